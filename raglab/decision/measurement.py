"""Measurement (algebra): a trace measured once into evidence, and again for other patterns (S0.6, S2.4, S3.6).

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are relevant",
then one for each way the resolver can pick. Whatever is asked of the chosen hits (are the entities
covered, is the expected source among them) is answered once per slot and looked up ever after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import fusion, resolver
from raglab.canonical import canonical_json, digest
from raglab.decision.answer_text import right_answers, text_cases
from raglab.decision.hit_sets import (
    Keys,
    agree,
    first_k_by_count,
    hit_keys,
    option_places,
    pad_sets,
    row_options,
)
from raglab.decision.item_masks import bit_masks, full_masks, item_masks, item_planes, positions
from raglab.decision.recorded_answers import slot_answer_scores, slot_answer_verdicts, slot_answers, without_answers
from raglab.decision.signal_values import (
    FirstHits,
    answer_signals,
    arm_agreement,
    arm_order,
    check_stored,
    confidence_gap,
    first_by_rank,
    query_signals,
    score_signals,
    signal_rows,
    stored_signals,
    trace_signals,
    with_columns,
)
from raglab.documents import check_clear, chunk_sources, known_documents, source_meanings
from raglab.expected_cost import CLASSES, class_probabilities
from raglab.patterns import pattern_hits
from raglab.policy import DEFAULT_IDENTITY, PolicyData, Structure, check_pack
from raglab.signals import SignalSet, degenerate_scores
from raglab.text import BITS, content_words, word_set
from raglab.values import (
    Case,
    Hits,
    PatternHits,
    TraceData,
    check_labelled,
    holds_read_only,
    label_codes,
    map_fields,
)

AT_ONCE = 1 << 16  # hits of sets looked up at once


def _expected_sources(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*case.expect_sources, *case.expect_sources_any)))


def _bits(
    wanted: Sequence[Collection[str]], rows: NDArray[np.intp] | slice, specs: Sequence[Sequence[str]]
) -> NDArray[np.uint64]:
    """Bits of the wanted sources of some rows among their own in a plane."""
    numbers = range(len(wanted))[rows] if isinstance(rows, slice) else rows
    sets = (frozenset(wanted[number]) for number in numbers)
    pairs = zip(sets, specs, strict=True)
    return np.array([sum(1 << bit for bit, one in enumerate(spec) if one in own) for own, spec in pairs], np.uint64)


class SlotLabels(NamedTuple):
    """What the hits of every slot carry, [B, S] each, or [D, S, Q] by `by_slot`.

    missing: entities to be covered that are not. right: whether the expected sources are there. share: of the
    question's content words, in [0, 1]; 1 where it has none.
    """

    missing: NDArray[np.unsignedinteger[Any]]
    right: NDArray[np.bool_]
    share: NDArray[np.float64]


def slot_labels(
    chosen: ChosenHits, batch: CaseBatch, entities: Entities, trace: TraceData, min_hits: int
) -> SlotLabels:
    """Entities missing, expected sources found and keyword share of every slot.

    Args:
      min_hits: of a slot, that must hold an entity.
    """
    planes = zip(entities.must_cover, entities.carried, strict=True)
    lacking = [np.bitwise_count(must[:, None] & ~_unions(mask, chosen.places, min_hits)) for must, mask in planes]
    most = BITS * len(lacking)  # as narrow as the number can be: the compiled kernel reads this table most
    return SlotLabels(
        missing=np.add.reduce(lacking, dtype=np.min_scalar_type(most)) if len(lacking) > 1 else lacking[0],
        right=_right(chosen, batch, trace),
        share=_keyword_share(chosen.places, batch, trace),
    )


def _right(chosen: ChosenHits, batch: CaseBatch, trace: TraceData) -> NDArray[np.bool_]:
    """Whether a slot's hits hold what the case expects: all of some sources, one of others, and enough of them."""
    cases, places = batch.cases, chosen.places
    right = np.ones(places.shape[:2], dtype=bool)
    specs = [_expected_sources(case) for case in cases]
    if not any(specs) and not any(case.min_sources or case.expect_option is not None for case in cases):
        return right  # as of a question asked live
    sought = {source for spec in specs for source in spec}
    meanings = source_meanings(sought, known_documents(trace)) if sought else {}
    check_clear(trace.cases, meanings)
    named = chunk_sources(trace.chunks, meanings)
    # Either step costs a pass over all sets of hits; a trace whose cases expect nothing of the kind goes without.
    if sought:
        _expect_sources(right, places, batch, specs, positions(named))
    least = np.array([case.min_sources for case in cases])
    if least.any():
        right &= _distinct_counts(batch.keys.source, places) >= least[:, None]
    _expect_option(right, (chosen.options_all, chosen.options_tied), batch, named)
    return right


def _expect_sources(
    right: NDArray[np.bool_],
    places: NDArray[np.int64],
    batch: CaseBatch,
    specs: Sequence[Sequence[str]],
    found: Mapping[str, NDArray[np.intp]],
) -> None:
    """Where a slot lacks one of the sources that must be there, or all of those of which one will do, it is not right.

    Args:
      specs: sources of each case. found: source -> positions of its chunks.
    """
    one_will_do = np.array([bool(case.expect_sources_any) for case in batch.cases])
    some = np.zeros_like(right)
    every, any_of = ([getattr(case, name) for case in batch.cases] for name in ("expect_sources", "expect_sources_any"))
    for rows, spec in item_planes(specs):
        sources = _unions(bit_masks(spec, found, batch.keys.hit[rows]), places[rows])
        wanted = _bits(every, rows, spec)[:, None]
        right[rows] &= (sources & wanted) == wanted
        some[rows] |= (sources & _bits(any_of, rows, spec)[:, None]) != 0
    right &= ~one_will_do[:, None] | some


def _keyword_share(places: NDArray[np.int64], batch: CaseBatch, trace: TraceData) -> NDArray[np.float64]:
    """Share of the question's content words that stand in a slot's hits, [B, S]; 1 where it has none (rule S2.7)."""
    words = [content_words(case.query, most=None) for case in batch.cases]
    vocabulary = {word for row in words for word in row}  # only words that are asked for become bits
    texts = [sorted(word_set(chunk.text) & vocabulary) for chunk in trace.chunks]
    found = positions(texts)
    n_found = np.zeros(places.shape[:2], dtype=np.int64)
    for rows, spec in item_planes(words):
        n_found[rows] += np.bitwise_count(_unions(bit_masks(spec, found, batch.keys.hit[rows]), places[rows]))
    n_words = np.array([len(row) for row in words], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        share = n_found / n_words[:, None]
    share[n_words == 0] = 1.0
    return share


def _cache_blocks(places: NDArray[np.int64]) -> list[slice]:
    """Parts of the batch whose sets of hits fit the cache of one core."""
    step = max(1, AT_ONCE // max(1, places.shape[1] * places.shape[2]))
    return [slice(start, start + step) for start in range(0, len(places), step)]


def _values_at(values: NDArray[Any], places: NDArray[np.int64], nothing: Any) -> NDArray[Any]:  # noqa: ANN401 - a number
    """Values [b, K] at places [b, S, k]; `nothing` where there is none."""
    taken = values[np.arange(len(values))[:, None, None], np.maximum(places, 0)]
    return np.where(places >= 0, taken, nothing)


def _unions(mask: NDArray[np.uint64], places: NDArray[np.int64], least: int = 1) -> NDArray[np.uint64]:
    """Bits that at least so many of every slot's hits have, [B, S]: their union where it is one."""
    out = np.zeros(places.shape[:2], dtype=np.uint64)
    for rows in _cache_blocks(places):
        bits = _values_at(mask[rows], places[rows], np.uint64(0))
        if least == 1:
            out[rows] = np.bitwise_or.reduce(bits, axis=2)
            continue
        # held[n]: bits of at least n of the hits so far.
        held = [np.full_like(out[rows], ~np.uint64(0)), *(np.zeros_like(out[rows]) for _ in range(least))]
        for hit in np.moveaxis(bits, 2, 0):
            for count in range(least, 0, -1):
                held[count] |= held[count - 1] & hit
        out[rows] = held[least]
    return out


def _distinct_counts(key: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many different keys every slot's hits have, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.int64)
    for rows in _cache_blocks(places):
        ordered = np.sort(_values_at(key[rows], places[rows], -1), axis=2)
        out[rows] = (np.diff(ordered, axis=2, prepend=-1) != 0).sum(axis=2)
    return out


def _expect_option(
    right: NDArray[np.bool_],
    options: Sequence[list[tuple[resolver.Option, ...]]],
    batch: CaseBatch,
    named: Sequence[Sequence[str]],
) -> None:
    """Where a case says which option is the right one, that option must exist and hold the expected sources."""
    for row, case in enumerate(batch.cases):
        if case.expect_option is None:
            continue
        for slot, of_slot in zip(OPTION_SLOTS, options, strict=True):
            shown = of_slot[row]
            places = shown[case.expect_option - 1].places if 0 < case.expect_option <= len(shown) else ()
            there = {name for place in places for name in named[batch.keys.hit[row, place]]}
            right[row, slot] &= bool(places) and there.issuperset(case.expect_sources)


WINNERS = (
    "first_of_all",
    "signature_of_all",
    "anchor_of_all",
    "entities",
    "first_of_tied",
    "signature_of_tied",
    "anchor_of_tied",
    "options_of_all",
    "options_of_tied",
)


OPTION_SLOTS = (-2, -1)  # slots of the options among all groups, and among the tied ones: the last of `WINNERS`


@holds_read_only
class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, by group; none of them hangs on a threshold (rule S3.6).

    Q cases, D depths, K hits, k = `final_k` first hits, S slots. A float is NaN where there is nothing to measure.
    Flat, because chain and compiled kernel read every field by its name, and parts of it are cut out field by field.

    Question, [Q]:
      words: white-space separated words. denied, allowed: deny and allow patterns that match. needs_allowed: one bool,
      whether the policy has allow patterns. overview: a generic pattern matches and no facet pattern. names_entity:
      the resolver sees an entity in it. explicit: the user named documents. label_code: the expected `Status`,
      `UNLABELLED` where a case has none.

    Hits in the order of `l2`:
      l2 [D, K, Q]: squared L2 distances, ascending. n_hits [D, Q]: hits at all. best_l2 [D, Q]: squared L2 of the
      first. top1 [D, Q]: cosine of the first. gap [D, Q]: squared L2 between the first two. agree [D, Q]: the first two
      are of one document and near pages, or of one signature with a tag.

    Scores of the first k hits in the arm's order, in [0, 1]:
      degenerate [D, Q]: the reranker says nothing. top_rerank, top_hybrid [k, D, Q]; where it says nothing, the latter
      is what stands in for it. signals [signals, D, Q]: units as known: names, units and directions of the signals, in
      their order. fused [D, Q]: probability of being right, NaN where the structure has no model.
      probability [4, D, Q]: of the classes of the decision by expected cost, NaN where there is no model.
      asked_right [Q]: chance that the options of a case to be asked hold what it expects, of that model.

    Resolver, [D, Q]:
      n_groups: groups of hits with one signature. has_winner: rule `entities` decides. skips_entities: no group carries
      an entity of the question. full_entities: the best group carries all of them. all, tied: contest among all groups,
      and among those tied on entities, every field [D, Q]. n_options_all, n_options_tied: options of either contest.

    Slots, [D, S, Q]: a number of relevant hits, then each of `WINNERS`:
      missing: entities to be covered that the slot's hits lack. right: they hold the expected sources and, where text
      is judged, the recorded answer is the expected one. share: of the question's content words, in [0, 1].

    Recorded answers, [D, S, Q], with S = 0 where the trace holds none:
      answered: one bool, whether it holds any. generation, support: confidence and least support of the slot's answer,
      in [0, 1]. unfit: hygiene leaves nothing of it. by_text, [Q]: the case is judged by text (`text_cases`).
      unrecorded: it is, and the slot has no recorded answer. sources_right: the hits hold the expected sources.

    Structure:
      off: gates that are off whatever a policy says, since nobody measured what they compare (`gates_off`).
      rank_order: whether the chosen hits go by the arm's final order, else by l2. final_k: hits of an answer.
    """

    words: NDArray[np.int64]
    denied: NDArray[np.int64]
    allowed: NDArray[np.int64]
    needs_allowed: bool
    overview: NDArray[np.bool_]
    names_entity: NDArray[np.bool_]
    explicit: NDArray[np.bool_]
    label_code: NDArray[np.int8]

    l2: NDArray[np.float64]
    n_hits: NDArray[np.int64]
    best_l2: NDArray[np.float64]
    top1: NDArray[np.float64]
    gap: NDArray[np.float64]
    agree: NDArray[np.bool_]

    degenerate: NDArray[np.bool_]
    top_rerank: NDArray[np.float64]
    top_hybrid: NDArray[np.float64]
    signals: NDArray[np.float64]
    known: SignalSet
    fused: NDArray[np.float64]
    probability: NDArray[np.float64]
    asked_right: NDArray[np.float64]

    n_groups: NDArray[np.int64]
    has_winner: NDArray[np.bool_]
    skips_entities: NDArray[np.bool_]
    full_entities: NDArray[np.bool_]
    all: resolver.Contest
    tied: resolver.Contest
    n_options_all: NDArray[np.int64]
    n_options_tied: NDArray[np.int64]

    missing: NDArray[np.unsignedinteger[Any]]
    right: NDArray[np.bool_]
    share: NDArray[np.float64]

    answered: bool
    generation: NDArray[np.float64]
    support: NDArray[np.float64]
    unfit: NDArray[np.bool_]
    by_text: NDArray[np.bool_]
    unrecorded: NDArray[np.bool_]
    sources_right: NDArray[np.bool_]

    off: frozenset[str]
    rank_order: bool
    final_k: int

    @property
    def label(self) -> NDArray[np.int8]:
        """The expected `Status` of every case, [Q]: whoever counts by it is told where a case has none.

        Raises:
          ValueError: some case has no label.
        """
        return check_labelled(self.label_code)

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


@holds_read_only
class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer; options; sources by number.

    pages: document and page by the numbers of options' sources. sources: path and page; source_of: number of each
    chunk's, [C].
    """

    places: NDArray[np.int64]
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    pages: list[tuple[str, str]]
    sources: list[tuple[str, str]]
    source_of: NDArray[np.int64]


class Tables(NamedTuple):
    """Evidence of one arm under one structure, the chosen hits behind it, and what the patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


class CaseBatch(NamedTuple):
    """Hits of one arm as B = D·Q rows: row d·Q + q is case q at depth d.

    shape: (D, Q). cases: of the rows. hits: fields [B, K]. keys: of the hits. by_arm: places of the hits in the arm's
    final order, [B, K]; order: in the order that the structure chooses by.
    """

    shape: tuple[int, int]
    cases: list[Case]
    hits: Hits
    keys: Keys
    by_arm: NDArray[np.int64]
    order: NDArray[np.int64]

    def by_case(self, column: NDArray[Any]) -> NDArray[Any]:
        """Values of the rows [..., B] as [..., D, Q]."""
        return column.reshape(*column.shape[:-1], *self.shape)


class Entities(NamedTuple):
    """Entities of the questions, a bit each in W planes: in the question [W, B], and carried by its hits [W, B, K].

    must_cover: those that the chosen hits must carry (rule S2.5). seen, seen_carried: what the resolver sees of them,
    nothing where the structure switches its extractor off.
    """

    carried: NDArray[np.uint64]
    must_cover: NDArray[np.uint64]
    seen: NDArray[np.uint64]
    seen_carried: NDArray[np.uint64]


class Contests(NamedTuple):
    """What the resolver's rules would say of every row.

    entities: rule `entities`. all, tied: the contest among all groups, and among those tied on entities.
    """

    groups: resolver.Groups
    entities: resolver.EntityRule
    all: resolver.Contest
    tied: resolver.Contest


def measure_tables(
    measured: TraceData | Measured, arm: str, hits_of: PatternHits, structure: Structure, *, needs_allowed: bool
) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6).

    Args:
      measured: the trace. hits_of: what the structure's patterns hit. needs_allowed: whether the policy has allow
        patterns.
    """
    held = Measured.of(measured)
    trace = held.trace
    batch = _case_batch(trace, arm, structure)
    entities = _entity_requirements(hits_of, batch, structure)
    contests = _contests(batch, entities, structure)
    # Every set of hits that some threshold could choose is laid out first, so that what is asked of the chosen hits is
    # measured once a set and only looked up by thousands of policies.
    chosen = _chosen_hits(batch, entities, contests, structure)
    slots = slot_labels(chosen, batch, entities, trace, structure.min_hits)
    first = _first_hits(batch, structure)
    by_hits = _hit_signals(batch, first, contests, chosen, slots)
    off = gates_off(trace)
    if "confidence" in off:  # of no score at all the formula makes 0, which would look measured
        by_hits["confidence"] = np.full_like(by_hits["confidence"], np.nan)
    evidence = Evidence(
        **_question_fields(trace, hits_of, entities, needs_allowed=needs_allowed),
        **_distance_fields(batch, trace, structure),
        **_score_fields(batch, first),
        **_signal_fields(trace, arm, hits_of.query_entities, by_hits, structure.fused),
        **_resolver_fields(batch, entities, contests, chosen),
        missing=by_slot(slots.missing, batch.shape),
        right=by_slot(slots.right, batch.shape),
        share=by_slot(slots.share, batch.shape),
        **without_answers(*batch.shape),
        off=off,
        rank_order=structure.order == "rank",
        final_k=structure.final_k,
    )
    return add_answers(Tables(arm, evidence, chosen, hits_of), held, structure)


def _case_batch(trace: TraceData, arm: str, structure: Structure) -> CaseBatch:
    """Hits of an arm, depths and cases on one axis, so that everything after is written for rows."""
    at = trace.arm(arm)
    depths, n_cases = trace.hits.chunk.shape[2], len(trace.cases)
    hits = map_fields(
        trace.hits, lambda field: np.moveaxis(field[:, at], 1, 0).reshape(depths * n_cases, *field.shape[3:])
    )
    keys = hit_keys(trace.chunks, hits.chunk, strict=structure.strict, identity=structure.document_identity)
    by_arm = arm_order(hits.rank, keys.hit)
    by_l2 = np.broadcast_to(np.arange(keys.hit.shape[1]), keys.hit.shape)
    order = by_arm if structure.order == "rank" else by_l2
    return CaseBatch(
        shape=(depths, n_cases), cases=list(trace.cases) * depths, hits=hits, keys=keys, by_arm=by_arm, order=order
    )


def _entity_requirements(hits_of: PatternHits, batch: CaseBatch, structure: Structure) -> Entities:
    depths, _ = batch.shape
    named = list(hits_of.query_entities) * depths
    carried = item_masks(named, positions(hits_of.chunk_entities), batch.keys.hit)
    n_entities = np.array([len(names) for names in named], dtype=np.int64)
    wanted = full_masks(n_entities, len(carried))
    must_cover = np.where(_needs_coverage(hits_of, n_entities, depths), wanted, 0)
    # Coverage is asked of every question; the extractor of the resolver is a switch of its own.
    if structure.entity_extractor:
        return Entities(carried, must_cover, wanted, carried)
    return Entities(carried, must_cover, np.zeros_like(wanted), np.zeros_like(carried))


def _contests(batch: CaseBatch, entities: Entities, structure: Structure) -> Contests:
    hits = batch.hits
    groups = resolver.group_hits(batch.keys.sign)
    best_l2 = resolver.anchor_values(hits.l2, groups, np.inf)
    by_entities = resolver.resolve_entities(entities.seen_carried, groups, best_l2)
    sig_sim = resolver.anchor_values(hits.sig_sim_strict if structure.strict else hits.sig_sim, groups, np.nan)
    anchor_sim = resolver.anchor_values(hits.anchor_sim, groups, np.nan)
    # Which of the two contests is held hangs on thresholds (whether entities are asked for), so both are measured.
    of_all = resolver.contest(groups.anchor >= 0, best_l2, sig_sim, anchor_sim)
    of_tied = resolver.contest(by_entities.candidates, best_l2, sig_sim, anchor_sim, by_entities.order)
    return Contests(groups, by_entities, of_all, of_tied)


def _chosen_hits(batch: CaseBatch, entities: Entities, contests: Contests, structure: Structure) -> ChosenHits:
    """Hits of every slot: of n relevant ones, of each group that may win, of the options (`WINNERS`)."""
    groups, rule, k = contests.groups, contests.entities, structure.final_k
    by_rule = {
        "first_of_all": contests.all.first,
        "signature_of_all": contests.all.by_signature,
        "anchor_of_all": contests.all.by_anchor,
        "entities": rule.winner,
        "first_of_tied": contests.tied.first,
        "signature_of_tied": contests.tied.by_signature,
        "anchor_of_tied": contests.tied.by_anchor,
    }
    # In a trace of one case, which is a question asked live, the rules mostly pick alike: fill each pick once.
    picks = {group.tobytes(): group for group in by_rule.values()}
    filled = {
        key: resolver.fill_entities(
            resolver.first_members((groups.group == group[:, None]) & (group >= 0)[:, None], batch.order, k),
            entities.seen_carried,
            entities.seen,
            batch.keys.page,
        )
        for key, group in picks.items()
    }
    by_winner = [filled[by_rule[name].tobytes()] for name in WINNERS if name in by_rule]
    # Options of the tied groups are those of all where all are tied in their order, which is the common case.
    everyone, in_number = groups.anchor >= 0, np.broadcast_to(np.arange(rule.order.shape[1]), rule.order.shape)
    size, l2 = (structure.max_options, k), batch.hits.l2
    of_all = row_options(groups, everyone, in_number, batch.keys, l2, size)
    of_tied = row_options(groups, rule.candidates, rule.order, batch.keys, l2, size, of_all)
    by_count = first_k_by_count(batch.order, batch.keys.hit, k)
    places = pad_sets([by_count, *by_winner, option_places(of_all), option_places(of_tied)])
    return ChosenHits(places, of_all, of_tied, batch.keys.pages, batch.keys.sources, batch.keys.source_of)


def _question_fields(
    trace: TraceData, hits_of: PatternHits, entities: Entities, *, needs_allowed: bool
) -> dict[str, Any]:
    """Fields of `Evidence` that the question alone tells."""
    counts = hits_of.counts.astype(np.int64)
    deny, allow, generic, facet = (counts[:, column] for column in range(4))
    return {
        "words": np.array([len(case.query.split()) for case in trace.cases], dtype=np.int64),
        "denied": deny,
        "allowed": allow,
        "needs_allowed": needs_allowed,
        "overview": (generic > 0) & (facet == 0),
        "names_entity": (entities.seen != 0).any(axis=0)[
            : len(trace.cases)
        ],  # a question names the same at every depth
        "explicit": np.array([bool(case.selected_sources) for case in trace.cases]),
        "label_code": label_codes(trace.cases),
    }


# Gates that a trace may declare off, since what they compare is a measurement that not every system takes.
CAN_BE_OFF = ("l2", "density", "gap", "similarity", "confidence")


def gates_off(trace: Any) -> frozenset[str]:  # noqa: ANN401 - a trace, in memory or of shards
    """Gates that a trace declares off: nobody measured what they compare, for any of its cases.

    What is missing in some cases only fires the gate there, as everywhere (rule S2.15).

    Raises:
      ValueError: it names a gate that every trace can judge.
    """
    named = frozenset(map(str, trace.meta.get("gates_off", ())))
    if wrong := sorted(named.difference(CAN_BE_OFF)):
        msg = f"a trace may declare off only {', '.join(CAN_BE_OFF)}, got {wrong[0]!r}; build the trace again."
        raise ValueError(msg)
    return named


def _distance_fields(batch: CaseBatch, trace: TraceData, structure: Structure) -> dict[str, Any]:
    """Fields of `Evidence` on the hits in the order of l2; padding becomes NaN, so that it passes no gate.

    A hit without a distance lies beyond every bound: it is relevant only where none is set.
    """
    hits, there = batch.hits, batch.keys.hit >= 0
    l2 = np.where(np.isnan(hits.l2), np.inf, hits.l2)
    return {
        "l2": by_slot(np.where(there, l2, np.nan), batch.shape),
        "n_hits": batch.by_case(there.sum(axis=1)),
        "best_l2": batch.by_case(np.where(there[:, 0], hits.l2[:, 0], np.nan)),
        "top1": batch.by_case(np.where(there[:, 0], hits.cosine[:, 0], np.nan)),
        "gap": batch.by_case(confidence_gap(hits)),
        "agree": batch.by_case(agree(batch.keys, trace.chunks, structure.near_pages)),
    }


def _first_hits(batch: CaseBatch, structure: Structure) -> FirstHits:
    """Scores of the first hits in the arm's order."""
    hits, k = batch.hits, structure.final_k
    # What stands behind the reranked hits has a score of another kind and must not make them look different.
    reranked = (hits.rank >= 0) & (hits.rank < hits.n_reranked[:, None])
    hybrid, cosine = (first_by_rank(score, batch.by_arm, k) for score in (hits.s_hybrid, hits.cosine))
    fallback = hybrid
    if structure.fallback is not None:  # without a reranker the hybrid score is the one that taus were chosen for
        fallback = np.where(hits.n_reranked > 0, np.interp(cosine, *structure.fallback), hybrid)
    return FirstHits(
        rerank=first_by_rank(hits.s_rerank, batch.by_arm, k),
        hybrid=hybrid,
        cosine=cosine,
        fallback=fallback,
        degenerate=degenerate_scores(hits.s_rerank, hits.s_raw, batch.keys.text, reranked, structure.min_texts),
    )


def _score_fields(batch: CaseBatch, first: FirstHits) -> dict[str, Any]:
    """Fields of `Evidence` on the scores of the first hits in the arm's order."""
    return {
        "degenerate": batch.by_case(first.degenerate),
        "top_rerank": batch.by_case(first.rerank),
        "top_hybrid": batch.by_case(np.where(first.degenerate, first.fallback, first.hybrid)),
    }


def _hit_signals(
    batch: CaseBatch, first: FirstHits, contests: Contests, chosen: ChosenHits, slots: SlotLabels
) -> dict[str, NDArray[np.float64]]:
    """Signals of an arm's hits by name, [D, Q] each: of their scores, and of what resolver and slots say of them."""
    columns = score_signals(batch.hits, first) | {
        # The fused gate learned its weights on the hits when all of them are relevant, which is slot K.
        "keyword_share": slots.share[:, batch.keys.hit.shape[1]],
        "anchor_similarity": contests.all.best_anchor,
        "signature_similarity": contests.all.best_signature,
        "groups": contests.groups.n,
        "options": np.array([len(options) for options in chosen.options_all]),
        "group_gap": contests.all.group_gap,
    }
    return {name: batch.by_case(column) for name, column in columns.items()}


def _signal_fields(
    trace: TraceData, arm: str, named: Sequence[Sequence[str]], by_hits: Mapping[str, Any], model: fusion.Model | None
) -> dict[str, Any]:
    """Fields of `Evidence` that are signals, and the fused gate's probability by them.

    Args:
      named: entities of each question. by_hits: signals of the arm's hits. model: of the fused gate.
    """
    columns = {
        **query_signals(trace.cases, named),
        **by_hits,
        **arm_agreement(trace),
        **stored_signals(trace, arm),
    }
    retrieved = (trace.hits.chunk[:, trace.arm(arm), :, 0] >= 0).T
    known = trace_signals(trace)
    signals = signal_rows(columns, retrieved, known)
    none = np.full(retrieved.shape, np.nan)
    fused = none if model is None else fusion.fused_probability(signals, model, known.names)
    return {
        "signals": signals,
        "known": known,
        "fused": fused,
        "probability": np.full((len(CLASSES), *retrieved.shape), np.nan),
        "asked_right": np.full(retrieved.shape[1], np.nan),
    }


def _resolver_fields(batch: CaseBatch, entities: Entities, contests: Contests, chosen: ChosenHits) -> dict[str, Any]:
    """Fields of `Evidence` on groups of hits, rule `entities` and the two contests."""
    most = contests.entities.best
    return {
        "n_groups": batch.by_case(contests.groups.n),
        "has_winner": batch.by_case(contests.entities.winner >= 0),
        "skips_entities": batch.by_case(most == 0),
        "full_entities": batch.by_case(most >= np.bitwise_count(entities.seen).sum(axis=0)),
        "all": resolver.reshape_contest(contests.all, batch.shape),
        "tied": resolver.reshape_contest(contests.tied, batch.shape),
        "n_options_all": batch.by_case(np.array([len(options) for options in chosen.options_all])),
        "n_options_tied": batch.by_case(np.array([len(options) for options in chosen.options_tied])),
    }


def by_slot(table: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Values of rows and slots [B, S] as [D, S, Q]: cases last, so that a policy's pass runs along the memory."""
    depths, n_cases = shape
    return np.ascontiguousarray(table.reshape(depths, n_cases, table.shape[1]).transpose(0, 2, 1))


def add_answers(measured: Tables, of: TraceData | Measured, structure: Structure) -> Tables:
    """Tables with the recorded answers of every slot, and what they make right; unchanged where there are none.

    Args:
      of: the trace that was measured, with its answers.
    """
    held = Measured.of(of)
    trace = held.trace
    answers, evidence, chosen = trace.answers, measured.evidence, measured.chosen
    if answers is None:
        return measured
    at, (depths, n_cases) = trace.arm(measured.arm), evidence.n_hits.shape
    chunk = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(depths * n_cases, -1)
    number = slot_answers(answers, at, chosen.places, chunk, n_cases)
    by_text = text_cases(trace)
    texts_right = held.once("texts", "right", lambda: right_answers(answers, trace.cases, by_text))
    sources_right = evidence.sources_right if evidence.answered else evidence.right
    asked = np.zeros(number.shape, dtype=bool)
    for slot, options in zip(OPTION_SLOTS, (chosen.options_all, chosen.options_tied), strict=True):
        asked[:, slot] = [len(shown) != 1 for shown in options]  # one option left is an answer
    by_row = sources_right.transpose(0, 2, 1).reshape(number.shape)
    verdicts = slot_answer_verdicts(by_row, number, texts_right, np.tile(by_text, depths)[:, None] & ~asked)
    tables = slot_answer_scores(answers, number, structure.calibration)._asdict() | verdicts._asdict()
    fields: dict[str, Any] = {name: by_slot(table, (depths, n_cases)) for name, table in tables.items()}
    rows = answer_signals(fields["generation"], fields["support"], evidence.l2.shape[1])
    fields |= {"by_text": by_text, "sources_right": sources_right, "signals": with_columns(evidence.signals, rows)}
    return add_probabilities(measured._replace(evidence=evidence._replace(answered=True, **fields)), structure)


def _needs_coverage(hits_of: PatternHits, n_entities: NDArray[np.int64], depths: int) -> NDArray[np.bool_]:
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    return (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))


KEPT = 8  # measured tables that a `Measured` keeps, and as many of each other kind


class Measured:
    """A trace and what was measured of it so far; whoever asks many questions of one trace holds it.

    A replay of a plain trace measures it each time, which of 10,000 cases takes about a second; of a `Measured` it
    does so once for all policies of the same structure. It is the only value of the algebra that grows.

    Args:
      trace: in memory.

    Example: `held = Measured(trace)`, then `sweep(held, policies)`, `steps(held, policy)`, `decide(held, policy)`.
    """

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        self._values: dict[str, dict[Any, Any]] = {}

    @classmethod
    def of(cls, trace: TraceData | Measured) -> Measured:
        """A measured trace as it is; of a plain one a new one."""
        return trace if isinstance(trace, Measured) else cls(trace)

    def __len__(self) -> int:
        """Count the cases, Q."""
        return len(self.trace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.trace!r})"

    def once(self, kind: str, key: Any, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - any measured value
        """Measure once for a key; the oldest of its kind goes when there are too many."""
        known = self._values.setdefault(kind, {})
        if key not in known:
            while len(known) >= KEPT:
                known.pop(next(iter(known)))
            known[key] = make()
        return known[key]


def plain_trace(trace: Any) -> Any:  # noqa: ANN401 - a trace, measured or not, in memory or of shards
    """The trace without what was measured of it."""
    return trace.trace if isinstance(trace, Measured) else trace


def policy_pattern_hits(trace: TraceData | Measured, policy: PolicyData) -> PatternHits:
    """What the policy's patterns hit: as stored with the trace, measured again where they differ (rule S0.6)."""
    held, key = Measured.of(trace), policy.patterns.digest
    stored = held.trace.pattern_hits
    if stored is not None and stored.patterns_hash == key:
        return stored
    cases, chunks = held.trace.cases, held.trace.chunks
    hits: PatternHits = held.once("patterns", key, lambda: pattern_hits(cases, chunks, policy.pattern_lists))
    return hits


def measured_tables(trace: TraceData | Measured, policy: PolicyData, arm: str | None = None) -> Tables:
    """Evidence that the policy's thresholds meet; of a `Measured` once for all policies of the same structure.

    Raises:
      ValueError: the trace was built with another pack than the policy's, or lacks a signal that the policy uses.
    """
    held = Measured.of(trace)
    whole = held.trace
    check_stored(whole, [policy])
    check_pack(whole.meta.get("pack"), policy.pack_hash, "a trace", "put that pack back, or build the trace again")
    name = whole.arms[0] if arm is None else arm
    structure, needs_allowed = policy.structure, bool(policy.patterns.allow)
    plain = structure._replace(decision=None)

    def measure() -> Tables:
        hits_of = policy_pattern_hits(held, policy)
        return measure_tables(held, name, hits_of, plain, needs_allowed=needs_allowed)

    tables: Tables = held.once("tables", (name, plain), measure)
    if structure.decision is None:
        return tables
    decided: Tables = held.once("decided", (name, structure), lambda: add_probabilities(tables, structure))
    return decided


def add_probabilities(measured: Tables, structure: Structure) -> Tables:
    """Tables with what the structure's model makes of the signals (rule S2.17); as they are where it has none.

    Raises:
      ValueError: the model was fitted on other hits.
    """
    model = structure.decision
    if model is None:
        return measured
    check_model(structure, measured.arm)
    evidence = measured.evidence
    probability = class_probabilities(evidence.signals, model, evidence.known.names)
    asked_right = np.full(len(evidence.label_code), model.asked_right)
    return measured._replace(evidence=evidence._replace(probability=probability, asked_right=asked_right))


def check_model(structure: Structure, arm: str) -> None:
    """Stop where a structure's model was fitted on other hits than those of an arm under it (rule S2.17).

    Raises:
      ValueError: another structure or arm.
    """
    if structure.decision is None:
        return
    fitted, there = structure.decision.structure, structure_hash(structure, arm)
    if fitted != there:
        rule = "a decision model must be used on the hits it was fitted on (final_k, order, patterns, options, arm)"
        msg = (
            f"{rule}, {fitted}, got {there} with arm {arm!r}; fit it again with raglab.fit_decision, or state its arm."
        )
        raise ValueError(msg)


def structure_hash(structure: Structure, arm: str) -> str:
    """Hash of what decides which hits a decision rests on, and of the arm that found them."""
    rows = structure._replace(fused=None, decision=None)._asdict()
    del rows["fallback"]  # it chooses no hits
    if structure.document_identity == DEFAULT_IDENTITY:  # a model fitted before there was a choice stays valid (S0.8)
        del rows["document_identity"]
    return digest(canonical_json(rows | {"arm": arm, "cut": None}), 12)
