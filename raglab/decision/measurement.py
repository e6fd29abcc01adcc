"""Measurement (algebra): a trace measured once into evidence (S0.6, S2.4, S3.6).

It is measured again for other patterns.

Which sets of hits a decision may rest on, and what was measured of each, is in
`raglab.decision.evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab import resolver
from raglab.decision.answer_text import answer_verdicts, judged_cases
from raglab.decision.evidence import (
    OPTION_SLOTS,
    WINNERS,
    CaseBatch,
    ChosenHits,
    Contests,
    Entities,
    Evidence,
    Tables,
    agree,
    first_k_by_count,
    hit_keys,
    option_places,
    pad_sets,
    row_options,
)
from raglab.decision.recorded_answers import (
    slot_answer_scores,
    slot_answer_verdicts,
    slot_answers,
    without_answers,
)
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
from raglab.decision.slot_labels import SlotLabels, entity_requirements, slot_labels
from raglab.decision.trace_view import Measured
from raglab.gating import fused_gate
from raglab.gating.expected_cost import OUTCOME_CLASSES, class_probabilities
from raglab.policy import DEFAULT_IDENTITY, PolicyData, Structure, check_pack
from raglab.policy_parts.patterns import pattern_hits
from raglab.signals import degenerate_scores
from raglab.values import (
    Case,
    FloatArray,
    PatternHits,
    Status,
    TraceData,
    check_n_hits,
    label_codes,
    map_fields,
    refuse,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.tokeniser import word_count

__all__ = [
    "CAN_BE_OFF",
    "OPTION_SLOTS",
    "WINNERS",
    "ChosenHits",
    "Evidence",
    "Tables",
    "add_answers",
    "add_probabilities",
    "check_model",
    "gates_off",
    "measure_tables",
    "measured_tables",
    "policy_pattern_hits",
    "structure_hash",
]


def measure_tables(
    measured: TraceData | Measured,
    arm: str,
    hits_of: PatternHits,
    structure: Structure,
    *,
    needs_allowed: bool,
) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6).

    Args:
      measured: the trace.
      hits_of: what the structure's patterns hit.
      needs_allowed: whether the policy has allow patterns.
    """
    held = Measured.of(measured)
    trace = held.trace
    batch = _case_batch(trace, arm, structure)
    entities = entity_requirements(hits_of, batch, structure)
    contests = _contests(batch, entities, structure)
    # Every set of hits that some threshold could choose is laid out first, so that what is asked of
    # the chosen hits is measured once a set and only looked up by thousands of policies.
    chosen = _chosen_hits(batch, entities, contests, structure)
    slots = slot_labels(chosen, batch, entities, trace, structure.min_hits)
    first = _first_hits(batch, structure)
    by_hits = _hit_signals(batch, first, contests, chosen, slots)
    off = gates_off(trace)
    if "confidence" in off:  # of no score at all the formula makes 0, which would look measured
        by_hits["confidence"] = np.full_like(by_hits["confidence"], np.nan)
    hits, there = batch.hits, batch.keys.hit >= 0
    # A hit without a distance lies beyond every bound: it is relevant only where none is set.
    # Padding becomes NaN, so that it passes no gate.
    l2 = np.where(there, np.where(np.isnan(hits.l2), np.inf, hits.l2), np.nan)
    n_entities = np.bitwise_count(entities.resolved).sum(axis=0)
    by_case: dict[str, Any] = {
        "n_hits": there.sum(axis=1),
        "best_l2": np.where(there[:, 0], hits.l2[:, 0], np.nan),
        "top1": np.where(there[:, 0], hits.cosine[:, 0], np.nan),
        "gap": confidence_gap(hits),
        "agree": agree(batch.keys, trace.chunks, structure.near_pages),
        "degenerate": first.degenerate,
        "top_rerank": first.rerank,
        "top_hybrid": np.where(first.degenerate, first.fallback, first.hybrid),
        "n_groups": contests.groups.n,
        "has_winner": contests.entities.winner >= 0,
        "skips_entities": contests.entities.best == 0,
        "full_entities": contests.entities.best >= n_entities,
        "n_options_all": np.array(list(map(len, chosen.options_all))),
        "n_options_tied": np.array(list(map(len, chosen.options_tied))),
    }
    of_case: dict[str, Any] = {name: batch.by_case(column) for name, column in by_case.items()}
    evidence = Evidence(
        **_question_fields(trace, hits_of, entities, needs_allowed=needs_allowed),
        **of_case,
        **_signal_fields(trace, arm, hits_of.query_entities, by_hits, structure.fused),
        l2=by_slot(l2, batch.shape),
        all=resolver.reshape_contest(contests.all, batch.shape),
        tied=resolver.reshape_contest(contests.tied, batch.shape),
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
    """Hits of an arm, depths and cases on one axis, so that all that follows works on rows."""
    at = trace.arm(arm)
    depths, n_cases = trace.hits.chunk.shape[2], len(trace.cases)
    hits = map_fields(
        trace.hits,
        lambda field: np.moveaxis(field[:, at], 1, 0).reshape(depths * n_cases, *field.shape[3:]),
    )
    keys = hit_keys(
        trace.chunks, hits.chunk, strict=structure.strict, identity=structure.document_identity
    )
    by_arm = arm_order(hits.rank, keys.hit)
    by_l2 = np.broadcast_to(np.arange(keys.hit.shape[1]), keys.hit.shape)
    order = by_arm if structure.order == "rank" else by_l2
    return CaseBatch(
        shape=(depths, n_cases),
        cases=list(trace.cases) * depths,
        hits=hits,
        keys=keys,
        by_arm=by_arm,
        order=order,
    )


def _contests(batch: CaseBatch, entities: Entities, structure: Structure) -> Contests:
    hits = batch.hits
    groups = resolver.group_hits(batch.keys.sign)
    best_l2 = resolver.anchor_values(hits.l2, groups, np.inf)
    by_entities = resolver.resolve_entities(entities.resolved_carried, groups, best_l2)
    sig_sim = resolver.anchor_values(
        hits.sig_sim_strict if structure.strict else hits.sig_sim, groups, np.nan
    )
    anchor_sim = resolver.anchor_values(hits.anchor_sim, groups, np.nan)
    # Which of the two contests is held hangs on thresholds (whether entities are asked for), so
    # both are measured.
    of_all = resolver.contest(groups.anchor >= 0, best_l2, sig_sim, anchor_sim)
    of_tied = resolver.contest(
        by_entities.candidates, best_l2, sig_sim, anchor_sim, by_entities.order
    )
    return Contests(groups, by_entities, of_all, of_tied)


def _chosen_hits(
    batch: CaseBatch, entities: Entities, contests: Contests, structure: Structure
) -> ChosenHits:
    """Hits of every slot.

    Of n relevant ones, of each group that may win, of the options (`WINNERS`).
    """
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
    # In a trace of one case, which is a question asked live, the rules mostly pick alike: fill each
    # pick once.
    picks = {group.tobytes(): group for group in by_rule.values()}
    filled = {
        key: resolver.fill_entities(
            resolver.first_members(
                (groups.group == group[:, None]) & (group >= 0)[:, None], batch.order, k
            ),
            entities.resolved_carried,
            entities.resolved,
            batch.keys.page,
        )
        for key, group in picks.items()
    }
    by_winner = [filled[by_rule[name].tobytes()] for name in WINNERS if name in by_rule]
    # Options of the tied groups are those of all where all are tied in their order, which is the
    # common case.
    everyone, in_number = (
        groups.anchor >= 0,
        np.broadcast_to(np.arange(rule.order.shape[1]), rule.order.shape),
    )
    size, l2 = (structure.max_options, k), batch.hits.l2
    of_all = row_options(groups, everyone, in_number, batch.keys, l2, size)
    of_tied = row_options(groups, rule.candidates, rule.order, batch.keys, l2, size, of_all)
    # The sets of all slots in one table, so that a policy only looks its slot up.
    by_count = first_k_by_count(batch.order, batch.keys.hit, k)
    places = pad_sets([by_count, *by_winner, option_places(of_all), option_places(of_tied)])
    return ChosenHits(
        places, of_all, of_tied, batch.keys.pages, batch.keys.sources, batch.keys.source_of
    )


def _question_fields(
    trace: TraceData, hits_of: PatternHits, entities: Entities, *, needs_allowed: bool
) -> dict[str, Any]:
    """Fields of `Evidence` that the question alone tells."""
    counts = hits_of.counts.astype(np.int64)
    deny, allow, generic, facet = (counts[:, column] for column in range(4))
    return {
        "words": np.array([word_count(case.query) for case in trace.cases], dtype=np.int64),
        "denied": deny,
        "allowed": allow,
        "needs_allowed": needs_allowed,
        "overview": (generic > 0) & (facet == 0),
        "names_entity": (entities.resolved != 0).any(axis=0)[
            : len(trace.cases)
        ],  # a question names the same at every depth
        "explicit": np.array([bool(case.selected_sources) for case in trace.cases]),
        "label_code": label_codes(trace.cases),
    }


# Gates that a trace may declare off, since what they compare is a measurement that not every system
# takes.
CAN_BE_OFF = ("l2", "density", "gap", "similarity", "confidence")


def gates_off(trace: Any) -> frozenset[str]:  # noqa: ANN401 - a trace, in memory or of shards
    """Gates that a trace declares off: nobody measured what they compare, for any of its cases.

    What is missing in some cases only fires the gate there, as everywhere (rule S2.15).

    Raises:
      ValueError: it names a gate that every trace can judge.
    """
    named = frozenset(map(str, trace.meta.get("gates_off", ())))
    if wrong := sorted(named.difference(CAN_BE_OFF)):
        refuse(
            f"a trace may declare off only {', '.join(CAN_BE_OFF)}",
            repr(wrong[0]),
            "build the trace again",
        )
    return named


def _first_hits(batch: CaseBatch, structure: Structure) -> FirstHits:
    """Scores of the first hits in the arm's order."""
    hits, k = batch.hits, structure.final_k
    # What stands behind the reranked hits has a score of another kind and must not make them look
    # different.
    reranked = (hits.rank >= 0) & (hits.rank < hits.n_reranked[:, None])
    hybrid, cosine = (
        first_by_rank(score, batch.by_arm, k) for score in (hits.s_hybrid, hits.cosine)
    )
    fallback = hybrid
    # without a reranker the hybrid score is the one that taus were chosen for
    if structure.fallback is not None:
        fallback = np.where(hits.n_reranked > 0, np.interp(cosine, *structure.fallback), hybrid)
    return FirstHits(
        rerank=first_by_rank(hits.s_rerank, batch.by_arm, k),
        hybrid=hybrid,
        cosine=cosine,
        fallback=fallback,
        degenerate=degenerate_scores(
            hits.s_rerank, hits.s_raw, batch.keys.text, reranked, structure.min_texts
        ),
    )


def _hit_signals(
    batch: CaseBatch, first: FirstHits, contests: Contests, chosen: ChosenHits, slots: SlotLabels
) -> dict[str, FloatArray]:
    """Signals of an arm's hits by name, [D, Q] each.

    Of their scores, and of what resolver and slots say of them.
    """
    columns = score_signals(batch.hits, first) | {
        # The fused gate learned its weights on the hits when all of them are relevant, which is
        # slot K.
        "keyword_share": slots.share[:, batch.keys.hit.shape[1]],
        "anchor_similarity": contests.all.best_anchor,
        "signature_similarity": contests.all.best_signature,
        "groups": contests.groups.n,
        "options": np.array(list(map(len, chosen.options_all))),
        "group_gap": contests.all.group_gap,
    }
    return {name: batch.by_case(column) for name, column in columns.items()}


def _signal_fields(
    trace: TraceData,
    arm: str,
    named: Sequence[Sequence[str]],
    by_hits: Mapping[str, Any],
    model: fused_gate.Model | None,
) -> dict[str, Any]:
    """Fields of `Evidence` that are signals, and the fused gate's probability by them.

    Args:
      named: entities of each question.
      by_hits: signals of the arm's hits.
      model: of the fused gate.
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
    fused = none if model is None else fused_gate.fused_probability(signals, model, known.names)
    return {
        "signals": signals,
        "known": known,
        "fused": fused,
        "probability": np.full((len(OUTCOME_CLASSES), *retrieved.shape), np.nan),
        "asked_right": np.full(retrieved.shape[1], np.nan),
    }


def by_slot(table: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Values of rows and slots [B, S] as [D, S, Q].

    Cases last, so that a policy's pass runs along the memory.
    """
    depths, n_cases = shape
    return np.ascontiguousarray(table.reshape(depths, n_cases, table.shape[1]).transpose(0, 2, 1))


def add_answers(measured: Tables, of: TraceData | Measured, structure: Structure) -> Tables:
    """Tables with the recorded answers of every slot, and what they make right.

    Unchanged where there are none.

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
    by_text, verdict_of_answer = np.zeros(n_cases, bool), np.zeros(len(answers.row), np.int8)
    # a question asked live has neither a gold answer nor a column
    if any(case.answer or case.extra for case in trace.cases):
        by_text = judged_cases(trace)
        verdict_of_answer = held.once("answers", "verdicts", lambda: answer_verdicts(trace))
    sources_right = evidence.sources_right if evidence.answered else evidence.right
    asks = np.zeros(number.shape, dtype=bool)
    for slot, options in zip(OPTION_SLOTS, (chosen.options_all, chosen.options_tied), strict=True):
        asks[:, slot] = [len(shown) != 1 for shown in options]  # one option left is an answer
    by_row = sources_right.transpose(0, 2, 1).reshape(number.shape)
    judged = np.tile(by_text, depths)[:, None] & ~asks
    needed = judged | (np.tile(evidence.label_code == Status.refuse, depths)[:, None] & ~asks)
    verdicts = slot_answer_verdicts(by_row, number, verdict_of_answer, judged, needed)
    scores = slot_answer_scores(answers, number, structure.calibration)
    tables = scores._asdict() | verdicts._asdict()
    fields: dict[str, Any] = {
        name: by_slot(table, (depths, n_cases)) for name, table in tables.items()
    }
    rows = answer_signals(fields["generation"], fields["support"], evidence.l2.shape[1])
    answered = evidence._replace(
        answered=True,
        by_text=by_text,
        sources_right=sources_right,
        signals=with_columns(evidence.signals, rows),
        **fields,
    )
    return add_probabilities(measured._replace(evidence=answered), structure, trace.cases)


def policy_pattern_hits(trace: TraceData | Measured, policy: PolicyData) -> PatternHits:
    """What the policy's patterns hit.

    As stored with the trace, measured again where they differ (rule S0.6).
    """
    held, key = Measured.of(trace), policy.patterns.digest
    stored = held.trace.pattern_hits
    if stored is not None and stored.patterns_hash == key:
        return stored
    cases, chunks = held.trace.cases, held.trace.chunks
    hits: PatternHits = held.once(
        "patterns", key, lambda: pattern_hits(cases, chunks, policy.pattern_lists)
    )
    return hits


def measured_tables(
    trace: TraceData | Measured, policy: PolicyData, arm: str | None = None
) -> Tables:
    """Evidence that the policy's thresholds meet.

    Of a `Measured` once for all policies of the same structure.

    Raises:
      ValueError: the trace was built with another pack than the policy's, or lacks a signal that
        the policy uses.
    """
    held = Measured.of(trace)
    whole = held.trace
    check_stored(whole, [policy])
    check_pack(
        whole.meta.get("pack"),
        policy.pack_hash,
        "a trace",
        "put that pack back, or build the trace again",
    )
    check_n_hits(whole.hits.chunk.shape[-1])
    name = whole.arms[0] if arm is None else arm
    whole.arm(name)  # stops at one that the trace does not have
    structure, needs_allowed = policy.structure, bool(policy.patterns.allow)
    plain = structure._replace(decision=None)

    def measure() -> Tables:
        hits_of = policy_pattern_hits(held, policy)
        return measure_tables(held, name, hits_of, plain, needs_allowed=needs_allowed)

    tables: Tables = held.once("tables", (name, plain), measure)
    if structure.decision is None:
        return tables
    decided: Tables = held.once(
        "decided", (name, structure), lambda: add_probabilities(tables, structure, whole.cases)
    )
    return decided


def add_probabilities(measured: Tables, structure: Structure, cases: Sequence[Case]) -> Tables:
    """Tables with what the structure's model makes of the signals (rule S2.17).

    As they are where it has none.

    Args:
      cases: that were measured; their groups have a bias where the model has groups (rule S2.20).

    Raises:
      ValueError: the model was fitted on other hits.
    """
    model = structure.decision
    if model is None:
        return measured
    check_model(structure, measured.arm)
    evidence = measured.evidence
    probability = class_probabilities(
        evidence.signals, model, evidence.known.names, model.group_values(cases)
    )
    if not np.isfinite(probability).all():
        place = int(np.argwhere(~np.isfinite(probability))[0][-1])
        rule = (
            "a decision model must give every case finite chances (its weights must not overflow)"
        )
        refuse(rule, f"NaN for the case of row {place}", "fit it again with raglab.fit_decision")
    asked_right = np.full(len(evidence.label_code), model.asked_right)
    return measured._replace(
        evidence=evidence._replace(probability=probability, asked_right=asked_right)
    )


def check_model(structure: Structure, arm: str) -> None:
    """Stop if a structure's model was fitted on other hits than an arm's under it (rule S2.17).

    Raises:
      ValueError: another structure or arm.
    """
    if structure.decision is None:
        return
    fitted, there = structure.decision.structure, structure_hash(structure, arm)
    if fitted != there:
        rule = (
            "a decision model must be used on the hits it was fitted on (final_k, order, "
            "patterns, options, arm)"
        )
        refuse(
            f"{rule}, {fitted}",
            f"{there} with arm {arm!r}",
            "fit it again with raglab.fit_decision, or state its arm",
        )


def structure_hash(structure: Structure, arm: str) -> str:
    """Hash of what decides which hits a decision rests on, and of the arm that found them."""
    rows = structure._replace(fused=None, decision=None)._asdict()
    del rows["fallback"]  # it chooses no hits
    # a model fitted before there was a choice stays valid (S0.8)
    if structure.document_identity == DEFAULT_IDENTITY:
        del rows["document_identity"]
    return digest(canonical_json(rows | {"arm": arm, "cut": None}), 12)
