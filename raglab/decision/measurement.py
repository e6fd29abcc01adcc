"""Trace to evidence: orders, hit sets, near pages, coverage, recorded answers.

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are relevant",
then one for each way the resolver can pick. Whatever is asked of the chosen hits (are the entities
covered, is the expected source among them) is answered once per slot and looked up ever after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import fusion, resolver
from raglab.decision import evidence as measure
from raglab.policy import Structure
from raglab.text import content_words, word_set
from raglab.values import Answers, Case, Chunk, Hits, PatternHits, Status, TraceData, each


class Keys(NamedTuple):
    """Numbers of what each hit is of, [B, K], -1 where there is no hit.

    hit: chunk. file: file name. page: (file name, page), numbered in the order of `sources`. page_only: page.
    core, sign: signature, without and (where asked for) with vendor and version. tagged: whether it has a tag, bool.
    text: text.
    """

    hit: NDArray[np.int64]
    file: NDArray[np.int64]
    page: NDArray[np.int64]
    page_only: NDArray[np.int64]
    core: NDArray[np.int64]
    sign: NDArray[np.int64]
    tagged: NDArray[np.bool_]
    text: NDArray[np.int64]
    sources: list[tuple[str, str]]


def keys_of(chunks: Sequence[Chunk], chunk: NDArray[np.integer[Any]], *, strict: bool) -> Keys:
    """Keys of hits.

    Args:
      chunk: of each hit, [B, K], -1 where there is none. strict: whether vendor and version tell groups apart.
    """
    hit = np.where(chunk >= 0, chunk, -1).astype(np.int64)

    def by_hit(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(hit >= 0, np.append(values, -1)[hit], -1)

    keys = [(one.file_name, one.page_shown) for one in chunks]
    sources = sorted(set(keys))
    place = {key: number for number, key in enumerate(sources)}
    signatures = [resolver.signature(one.tags, one.file_name, strict=False) for one in chunks]
    core = by_hit(_numbered(signatures))
    tagged = np.array([not resolver.is_fallback(one) for one in signatures] + [False])[hit]
    sign = core
    if strict:
        sign = by_hit(_numbered([resolver.signature(one.tags, one.file_name, strict=True) for one in chunks]))
    return Keys(
        hit,
        by_hit(_numbered([key[0] for key in keys])),
        by_hit(np.array([place[key] for key in keys], dtype=np.int64)),
        by_hit(_numbered([key[1] for key in keys])),
        core,
        sign,
        tagged,
        by_hit(_numbered([one.text for one in chunks])),
        sources,
    )


def _numbered(values: Sequence[Any]) -> NDArray[np.int64]:
    known: dict[Any, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def order_of_arm(rank: NDArray[np.int32], hit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the hits in the arm's final order, hits without a rank last."""
    return np.argsort(np.where((hit >= 0) & (rank >= 0), rank, np.iinfo(np.int32).max), axis=1, kind="stable")


def by_rank(values: NDArray[np.float64], order: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Values of the first k hits in an order, [k, B]."""
    return np.ascontiguousarray(np.take_along_axis(values, order[:, :k], axis=1).T)


def chosen_by_count(order: NDArray[np.int64], hit: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """First k in the order wanted among the n nearest hits, for n = 0 … K: places [B, K + 1, k].

    The k least positions of every prefix at once: what a prefix's least displaces competes for its second, and so on.
    """
    size, width = hit.shape
    position = np.empty_like(order)
    np.put_along_axis(position, np.ascontiguousarray(order), np.broadcast_to(np.arange(width), order.shape), axis=1)
    entry = np.where(hit >= 0, position, width)
    best = np.full((size, width + 1, k), width, dtype=np.int64)
    for level in range(min(k, width)):
        least = np.minimum.accumulate(entry, axis=1)
        best[:, 1:, level] = least
        before = np.concatenate([np.full((size, 1), width), least[:, :-1]], axis=1)
        entry = np.maximum(entry, before)
    padded = np.append(order, np.full((size, 1), -1), axis=1)
    return np.take_along_axis(padded, best.reshape(size, -1), axis=1).reshape(best.shape)


def agree(keys: Keys, chunks: Sequence[Chunk], near_pages: int) -> NDArray[np.bool_]:
    """Whether the first two hits agree: one document and pages at most so far apart, or one signature with a tag, [B].

    Source: rule S2.4.
    """
    hit, core = keys.hit, keys.core
    if hit.shape[1] < 2:
        return np.zeros(len(hit), dtype=bool)
    source = np.append(_numbered([chunk.source for chunk in chunks]), -1)
    page = np.array([np.nan if chunk.page is None else float(chunk.page) for chunk in chunks] + [np.nan])
    first, second = hit[:, 0], hit[:, 1]
    both = (first >= 0) & (second >= 0)
    near = (source[first] == source[second]) & (np.abs(page[first] - page[second]) <= near_pages)
    return both & (near | ((core[:, 0] == core[:, 1]) & keys.tagged[:, 0]))


def options_of(
    groups: resolver.Groups,
    candidates: NDArray[np.bool_],
    order: NDArray[np.int64],
    keys: Keys,
    l2: NDArray[np.float64],
    size: tuple[int, int],
    known: list[tuple[resolver.Option, ...]] | None = None,
) -> list[tuple[resolver.Option, ...]]:
    """Options of every row.

    Args:
      candidates: groups that go on, [B, G]. order: of them, a permutation, [B, G]. l2: [B, K].
      size: max_options and final_k. known: options of all groups, taken where all go on in their order.

    Source: rule S3.5.
    """
    most, final_k = size
    in_order = order == np.arange(order.shape[1])
    same = (in_order & (candidates == (groups.anchor >= 0))).all(axis=1)
    found = []
    for row in range(len(candidates)):
        if known is not None and same[row]:
            found.append(known[row])
            continue
        group = groups.group[row]
        leaders = [leader for leader in order[row] if candidates[row, leader]][:most]
        members = [np.nonzero(group == leader)[0].tolist() for leader in leaders]
        numbers = (keys.file[row].tolist(), keys.page[row].tolist(), keys.page_only[row].tolist(), l2[row].tolist())
        found.append(resolver.options(members, *numbers, final_k))
    return found


def shown_places(found: list[tuple[resolver.Option, ...]]) -> NDArray[np.int64]:
    """Places of all hits of a row's options, [B, most], -1 at the end."""
    rows = [[place for option in shown for place in option.places] for shown in found]
    places = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for row, every in enumerate(rows):
        places[row, : len(every)] = every
    return places


def stacked(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Sets of places of different widths as one array, [B, S, most], -1 at the end.

    Args:
      parts: [B, s, width] or, of one set, [B, width].
    """
    whole = [part if part.ndim == 3 else part[:, None] for part in parts]
    sizes = [part.shape[1] for part in whole]
    out = np.full((len(whole[0]), sum(sizes), max(part.shape[2] for part in whole)), -1, dtype=np.int64)
    start = 0
    for part, size in zip(whole, sizes, strict=True):
        out[:, start : start + size, : part.shape[2]] = part
        start += size
    return out


AT_ONCE = 1 << 16  # hits of sets looked up at once


def _expected(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*case.expect_sources, *case.expect_sources_any)))


def _bits(wanted: Sequence[Sequence[str]], specs: Sequence[Sequence[str]]) -> NDArray[np.uint64]:
    """Bits of the wanted sources among each case's own."""
    rows = zip(wanted, specs, strict=True)
    return np.array([sum(1 << spec.index(source) for source in set(row)) for row, spec in rows], dtype=np.uint64)


def judged(
    places: NDArray[np.int64],
    entity_mask: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    cases: Sequence[Case],
    trace: TraceData,
    hit: NDArray[np.int64],
    page_key: NDArray[np.int64],
    shown: Sequence[list[tuple[resolver.Option, ...]]],
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.float64]]:
    """Entities missing, expected sources found and keyword share of every slot, [B, S] each."""
    specs = [_expected(case) for case in cases]
    sought = {source for spec in specs for source in spec}
    named = [[name for name in (chunk.file_name, chunk.shown) if name in sought] for chunk in trace.chunks]
    source_mask = measure.bit_masks(specs, measure.positions(named), hit)
    every = _bits([case.expect_sources for case in cases], specs)
    some = _bits([case.expect_sources_any for case in cases], specs)
    asked = [content_words(case.query) for case in cases]
    vocabulary = {word for row in asked for word in row}
    texts = [sorted(word_set(chunk.text) & vocabulary) for chunk in trace.chunks]
    word_mask = measure.bit_masks(asked, measure.positions(texts), hit)
    n_words = np.array([len(row) for row in asked], dtype=np.float64)
    least = np.array([case.min_sources for case in cases])
    missing = np.bitwise_count(wanted[:, None] & ~_unions(entity_mask, places)).astype(np.uint8)
    right = np.ones(places.shape[:2], dtype=bool)
    if sought:
        found = _unions(source_mask, places)
        right = (found & every[:, None]) == every[:, None]
        right &= (some == 0)[:, None] | ((found & some[:, None]) != 0)
    with np.errstate(invalid="ignore"):
        share = np.bitwise_count(_unions(word_mask, places)) / n_words[:, None]
    if least.any():
        right &= _distinct(page_key, places) >= least[:, None]
    share[n_words == 0] = 1.0
    _expect_option(right, shown, cases, source_mask, every)
    return missing, right, share


def _rows_at_once(places: NDArray[np.int64]) -> list[slice]:
    """Parts of the batch whose sets of hits fit the cache of one core."""
    step = max(1, AT_ONCE // max(1, places.shape[1] * places.shape[2]))
    return [slice(start, start + step) for start in range(0, len(places), step)]


def _taken(values: NDArray[Any], places: NDArray[np.int64], nothing: Any) -> NDArray[Any]:  # noqa: ANN401 - a number
    """Values [b, K] at places [b, S, k]; `nothing` where there is none."""
    taken = values[np.arange(len(values))[:, None, None], np.maximum(places, 0)]
    return np.where(places >= 0, taken, nothing)


def _unions(mask: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Union of the bits of every slot's hits, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.uint64)
    for rows in _rows_at_once(places):
        out[rows] = np.bitwise_or.reduce(_taken(mask[rows], places[rows], np.uint64(0)), axis=2)
    return out


def _distinct(key: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many different keys every slot's hits have, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.int64)
    for rows in _rows_at_once(places):
        ordered = np.sort(_taken(key[rows], places[rows], -1), axis=2)
        out[rows] = (np.diff(ordered, axis=2, prepend=-1) != 0).sum(axis=2)
    return out


def _expect_option(
    right: NDArray[np.bool_],
    shown: Sequence[list[tuple[resolver.Option, ...]]],
    cases: Sequence[Case],
    source_mask: NDArray[np.uint64],
    every: NDArray[np.uint64],
) -> None:
    """Where a case says which option is the right one, that option must exist and hold the expected sources."""
    for row, case in enumerate(cases):
        if case.expect_option is None:
            continue
        for slot, found in zip((-2, -1), shown, strict=True):
            places = found[row][case.expect_option - 1].places if 0 < case.expect_option <= len(found[row]) else ()
            bits = np.bitwise_or.reduce(source_mask[row, list(places)]) if places else np.uint64(0)
            right[row, slot] &= bool(places) and (bits & every[row]) == every[row]


Key = tuple[int, int, int, tuple[int, ...]]


class Answer(NamedTuple):
    """One recorded answer; fields as in `Answers`."""

    text: str
    confidence: float
    support: float
    claim: str
    cited: tuple[int, ...]
    refused: str


class Recorded(NamedTuple):
    """By slot, [B, S]: the generator's confidence and least support, NaN where nothing is recorded; unfit to leave."""

    generation: NDArray[np.float64]
    support: NDArray[np.float64]
    unfit: NDArray[np.bool_]


def places_of(answers: Answers) -> dict[Key, int]:
    """(case, arm, depth, chunks of the set in order) -> position among the answers."""
    sets = [tuple(number for number in row if number >= 0) for row in answers.chunks.tolist()]
    keys = zip(answers.row.tolist(), answers.arm.tolist(), answers.depth.tolist(), sets, strict=True)
    return {key: number for number, key in enumerate(keys)}


def of_cases(answers: Answers | None, rows: Sequence[int]) -> Answers | None:
    """Answers of some cases only, numbered anew in the order given."""
    if answers is None:
        return None
    by_case: dict[int, list[int]] = {}
    for number, row in enumerate(answers.row.tolist()):
        by_case.setdefault(row, []).append(number)
    kept = [(place, number) for place, row in enumerate(rows) for number in by_case.get(row, [])]
    take = [number for _, number in kept]
    arrays: dict[str, Any] = {
        name: getattr(answers, name)[take] for name in ("arm", "depth", "chunks", "confidence", "support")
    }
    texts: dict[str, Any] = {
        name: tuple(getattr(answers, name)[n] for n in take) for name in ("text", "claim", "cited", "refused")
    }
    return answers._replace(row=np.array([place for place, _ in kept], dtype=np.int32), **arrays, **texts)


def answer_at(answers: Answers, number: int) -> Answer:
    """One of the answers."""
    return Answer(
        answers.text[number],
        float(answers.confidence[number]),
        float(answers.support[number]),
        answers.claim[number],
        answers.cited[number],
        answers.refused[number],
    )


def slot_sets(
    places: NDArray[np.int64], chunk: NDArray[np.integer], keep: NDArray[np.bool_]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Row of the batch, slot and chunks in order of every set of hits that an answer may rest on.

    Args:
      places: of the chosen hits by slot, [B, S, k], -1 at the end. chunk: of each hit, [B, K]. keep: [B, S].
    """
    width = places.shape[2]
    number = np.where(places >= 0, np.take_along_axis(chunk[:, None, :], np.maximum(places, 0), axis=2), -1)
    keep = keep & (number[..., 0] >= 0)
    rows, slots = np.nonzero(keep)
    for row, slot, found in zip(rows.tolist(), slots.tolist(), number[rows, slots].tolist(), strict=True):
        n = width
        while found[n - 1] < 0:
            n -= 1
        yield row, slot, tuple(found[:n])


def calibrated(
    confidence: NDArray[np.float64], knots: tuple[tuple[float, ...], tuple[float, ...]] | None
) -> NDArray[np.float64]:
    """Probability of being right that a generator's confidence is worth, [...]; as it is without knots x, y.

    Example:
      >>> calibrated(np.array([0.5, np.nan]), ((0.0, 1.0), (0.25, 0.75)))
      array([0.5, nan])
    """
    return confidence if knots is None else np.where(np.isnan(confidence), np.nan, np.interp(confidence, *knots))


def recorded(
    answers: Answers,
    known: Mapping[Key, int],
    arm: int,
    places: NDArray[np.int64],
    chunk: NDArray[np.integer],
    n_cases: int,
    calibration: tuple[tuple[float, ...], tuple[float, ...]] | None,
) -> Recorded:
    """Measurements of the recorded answers by slot; batch rows are depth · n_cases + case.

    Args:
      calibration: knots x, y of the generator's confidence; None takes it as it is.
    """
    shape = places.shape[:2]
    number = np.full(shape, -1, dtype=np.int64)
    for row, slot, chunks in slot_sets(places, chunk, np.ones(shape, dtype=bool)):
        number[row, slot] = known.get((row % n_cases, arm, row // n_cases, chunks), -1)
    there = number >= 0

    def of(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(there, np.append(values, np.nan)[number], np.nan)

    confidence = calibrated(of(answers.confidence), calibration)
    unfit = there & np.append(np.array([bool(text) for text in answers.refused], dtype=bool), False)[number]
    return Recorded(confidence, of(answers.support), unfit)


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


class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, [D, Q] unless stated; K hits, S slots.

    words [Q], denied [Q], allowed [Q]: counts. needs_allowed: whether there are allow patterns. generic,
    facet, explicit, names_entity [Q]: bools. full_entities: the best group carries all entities.
    all, tied: the contest among all groups, and among those tied on entities. l2 [D, K, Q].
    top_rerank, top_hybrid [k, D, Q]: scores of the first hits in the arm's order. signals [S, D, Q]: in the order of
    `fusion.SIGNALS`. fused: probability of the structure's model, NaN without one. missing, right, share
    [D, S, Q]: entities not covered, expected sources found, keyword share, by slot. answered: whether the trace holds
    answers. generation, support, unfit [D, S, Q]: of the answer recorded for a slot, no slots where there are none.
    """

    words: NDArray[np.int64]
    denied: NDArray[np.int64]
    allowed: NDArray[np.int64]
    needs_allowed: bool
    overview: NDArray[np.bool_]
    names_entity: NDArray[np.bool_]
    explicit: NDArray[np.bool_]
    label: NDArray[np.int8]
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
    fused: NDArray[np.float64]
    n_groups: NDArray[np.int64]
    has_winner: NDArray[np.bool_]
    skips_entities: NDArray[np.bool_]
    full_entities: NDArray[np.bool_]
    all: resolver.Contest
    tied: resolver.Contest
    n_options_all: NDArray[np.int64]
    n_options_tied: NDArray[np.int64]
    missing: NDArray[np.uint8]
    right: NDArray[np.bool_]
    share: NDArray[np.float64]
    answered: bool
    generation: NDArray[np.float64]
    support: NDArray[np.float64]
    unfit: NDArray[np.bool_]
    rank_order: bool
    final_k: int

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer; options; sources by number."""

    places: NDArray[np.int64]
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    sources: list[tuple[str, str]]


class Tables(NamedTuple):
    """Evidence of one arm under one structure, the chosen hits behind it, and what the patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


def tables(trace: TraceData, arm: str, hits_of: PatternHits, structure: Structure, *, needs_allowed: bool) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6)."""
    at = trace.arm(arm)
    hits = each(trace.hits, lambda field: np.moveaxis(field[:, at], 1, 0))
    depths, n_cases, width = hits.chunk.shape
    flat = each(hits, lambda field: field.reshape(depths * n_cases, *field.shape[2:]))
    chunks, cases = trace.chunks, trace.cases
    tiled = [case for _ in range(depths) for case in cases]
    keys = keys_of(chunks, flat.chunk, strict=structure.strict)
    hit = keys.hit
    place_of = measure.positions(hits_of.chunk_entities)
    entity_mask = measure.bit_masks([hits_of.query_entities[q % n_cases] for q in range(len(tiled))], place_of, hit)
    n_entities = np.array([len(names_) for names_ in hits_of.query_entities] * depths, dtype=np.int64)
    wanted = _all_bits(n_entities)
    seen_mask = entity_mask if structure.entity_extractor else np.zeros_like(entity_mask)
    seen = wanted if structure.entity_extractor else np.zeros_like(wanted)

    groups = resolver.group_hits(keys.sign)
    best_l2 = resolver.at_anchors(flat.l2, groups, np.inf)
    winner, tied, tied_order, best = resolver.resolve_entities(seen_mask, groups, best_l2)
    sig_sim = resolver.at_anchors(flat.sig_sim_strict if structure.strict else flat.sig_sim, groups, np.nan)
    anchor_sim = resolver.at_anchors(flat.anchor_sim, groups, np.nan)
    everyone = groups.anchor >= 0
    of_all = resolver.contest(everyone, best_l2, sig_sim, anchor_sim)
    of_tied = resolver.contest(tied, best_l2, sig_sim, anchor_sim, tied_order)

    of_arm = order_of_arm(flat.rank, hit)
    order = of_arm if structure.order == "rank" else np.broadcast_to(np.arange(width), hit.shape)
    k = structure.final_k
    picked = {
        "first_of_all": of_all.first,
        "signature_of_all": of_all.by_signature,
        "anchor_of_all": of_all.by_anchor,
        "entities": winner,
        "first_of_tied": of_tied.first,
        "signature_of_tied": of_tied.by_signature,
        "anchor_of_tied": of_tied.by_anchor,
    }
    distinct = {group.tobytes(): group for group in picked.values()}  # of a single case the rules mostly pick alike
    filled = {
        key: resolver.fill_entities(
            resolver.first_k((groups.group == group[:, None]) & (group >= 0)[:, None], order, k),
            seen_mask,
            seen,
            keys.page,
        )
        for key, group in distinct.items()
    }
    by_winner = [filled[group.tobytes()] for group in picked.values()]
    in_number = np.broadcast_to(np.arange(tied.shape[1]), tied.shape)
    size = (structure.max_options, k)
    options_all = options_of(groups, everyone, in_number, keys, flat.l2, size)
    options_tied = options_of(groups, tied, tied_order, keys, flat.l2, size, options_all)
    shown = (options_all, options_tied)
    places = stacked([chosen_by_count(order, hit, k), *by_winner, *map(shown_places, shown)])
    must_cover = np.where(_needs_coverage(hits_of, n_entities, depths), wanted, 0)
    missing, right, share = judged(places, entity_mask, must_cover, tiled, trace, hit, keys.page, shown)
    shape = (depths, n_cases)
    reranked = (flat.rank >= 0) & (flat.rank < flat.n_reranked[:, None])
    counts = hits_of.counts.astype(np.int64)
    degenerate = measure.degenerate_scores(flat.s_rerank, flat.s_raw, keys.text, reranked, structure.min_texts)
    top_rerank, top_hybrid = by_rank(flat.s_rerank, of_arm, k), by_rank(flat.s_hybrid, of_arm, k)
    gap = np.abs(flat.l2[:, 1] - flat.l2[:, 0]) if width >= 2 else np.full(len(hit), np.nan)
    signals = _signals(flat, of_arm, (top_rerank, top_hybrid, degenerate), gap, of_all, share[:, width])
    signals = signals.reshape(-1, *shape)

    def by_slot(table: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(table.reshape(depths, n_cases, table.shape[1]).transpose(0, 2, 1))

    found_evidence = Evidence(
        words=np.array([len(case.query.split()) for case in cases], dtype=np.int64),
        denied=counts[:, 0],
        allowed=counts[:, 1],
        needs_allowed=needs_allowed,
        overview=(counts[:, 2] > 0) & (counts[:, 3] == 0),
        names_entity=(seen > 0)[:n_cases],
        explicit=np.array([bool(case.selected_sources) for case in cases]),
        label=np.array([Status[case.expect_status] for case in cases], dtype=np.int8),
        l2=np.ascontiguousarray(np.where(hits.chunk >= 0, hits.l2, np.nan).transpose(0, 2, 1)),
        n_hits=(hits.chunk >= 0).sum(axis=2),
        best_l2=np.where(hits.chunk[..., 0] >= 0, hits.l2[..., 0], np.nan),
        top1=np.where(hits.chunk[..., 0] >= 0, hits.cosine[..., 0], np.nan),
        gap=gap.reshape(shape),
        agree=agree(keys, chunks, structure.near_pages).reshape(shape),
        degenerate=degenerate.reshape(shape),
        top_rerank=top_rerank.reshape(-1, *shape),
        top_hybrid=top_hybrid.reshape(-1, *shape),
        signals=signals,
        fused=np.full(shape, np.nan) if structure.fused is None else fusion.fused(signals, structure.fused),
        n_groups=groups.n.reshape(shape),
        has_winner=(winner >= 0).reshape(shape),
        skips_entities=(best == 0).reshape(shape),
        full_entities=(best >= np.bitwise_count(seen)).reshape(shape),
        all=resolver.shaped(of_all, shape),
        tied=resolver.shaped(of_tied, shape),
        n_options_all=np.array([len(found) for found in options_all]).reshape(shape),
        n_options_tied=np.array([len(found) for found in options_tied]).reshape(shape),
        missing=by_slot(missing),
        right=by_slot(right),
        share=by_slot(share),
        answered=False,
        generation=np.empty((depths, 0, n_cases)),
        support=np.empty((depths, 0, n_cases)),
        unfit=np.empty((depths, 0, n_cases), dtype=bool),
        rank_order=structure.order == "rank",
        final_k=k,
    )
    chosen = ChosenHits(places, options_all, options_tied, keys.sources)
    return with_answers(Tables(arm, found_evidence, chosen, hits_of), trace, structure)


def with_answers(measured: Tables, trace: TraceData, structure: Structure) -> Tables:
    """Tables with what the trace's answers say of every slot; as they are where it holds none."""
    if trace.answers is None:
        return measured
    at, places, found = trace.arm(measured.arm), measured.chosen.places, measured.evidence
    depths, n_cases = found.n_hits.shape
    hit = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(depths * n_cases, -1)
    said = recorded(trace.answers, places_of(trace.answers), at, places, hit, n_cases, structure.calibration)

    def by_slot(table: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(table.reshape(depths, n_cases, -1).transpose(0, 2, 1))

    told = [by_slot(table) for table in said]
    generation, support, unfit = told
    return measured._replace(
        evidence=found._replace(answered=True, generation=generation, support=support, unfit=unfit)
    )


def _signals(
    flat: Hits,
    of_arm: NDArray[np.int64],
    scores: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]],
    gap: NDArray[np.float64],
    groups: resolver.Contest,
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Signals of the fused gate, [S, B], higher is surer; none where nothing was retrieved.

    Args:
      scores: of the first hits in the arm's order, reranked and hybrid [k, B], and whether the first say nothing [B].
      share: keyword share of the first hits when all are relevant, [B].
    """
    rerank, hybrid, degenerate = scores
    first = by_rank(flat.cosine, of_arm, len(rerank))
    n = (~np.isnan(first)).sum(axis=0)
    found = {
        "confidence": measure.confidence(rerank, hybrid, degenerate, 1.0),
        "top1_cosine": flat.cosine[:, 0],
        "mean_cosine": np.nansum(first, axis=0) / np.maximum(n, 1),
        "gap": gap,
        "hybrid": np.fmax.reduce(hybrid, axis=0),
        "rerank_margin": rerank[0] - rerank[1] if len(rerank) >= 2 else np.full(len(gap), np.nan),
        "keyword_share": share,
        "anchor_similarity": groups.best_anchor,
        "signature_similarity": groups.best_signature,
    }
    return np.where(flat.chunk[:, 0] >= 0, fusion.stacked(found), np.nan)


def _all_bits(count: NDArray[np.int64]) -> NDArray[np.uint64]:
    return np.array([(1 << int(n)) - 1 for n in count], dtype=np.uint64)


def _needs_coverage(hits_of: PatternHits, n_entities: NDArray[np.int64], depths: int) -> NDArray[np.bool_]:
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    return (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))
