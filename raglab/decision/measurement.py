"""Measurement (algebra): a trace measured once into evidence (S0.6, S2.4, S3.6).

It is measured again for other patterns.

Which sets of hits a decision may rest on, and what was measured of each, is in
`raglab.decision.evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    AnyArray,
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
    pattern_counts: PatternHits,
    structure: Structure,
    *,
    needs_allowed: bool,
) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6).

    Args:
      measured: the trace.
      pattern_counts: what the structure's patterns hit.
      needs_allowed: whether the policy has allow patterns.
    """
    measured_trace = Measured.of(measured)
    trace = measured_trace.trace
    case_batch = _case_batch(trace, arm, structure)
    entities = entity_requirements(pattern_counts, case_batch, structure)
    contests = _contests(case_batch, entities, structure)
    # Every set of hits that some threshold could choose is laid out first, so that what is asked of
    # the chosen hits is measured once a set and only looked up by thousands of policies.
    chosen_hits = _chosen_hits(case_batch, entities, contests, structure)
    slot_answers_right = slot_labels(chosen_hits, case_batch, entities, trace, structure.min_hits)
    first_hits = _first_hits(case_batch, structure)
    hit_signals = _hit_signals(case_batch, first_hits, contests, chosen_hits, slot_answers_right)
    off_gates = gates_off(trace)
    if (
        "confidence" in off_gates
    ):  # of no score at all the formula makes 0, which would look measured
        hit_signals["confidence"] = np.full_like(hit_signals["confidence"], np.nan)
    hits = case_batch.hits
    is_present = case_batch.keys.hit >= 0
    # A hit without a distance lies beyond every bound: it is relevant only where none is set.
    # Padding becomes NaN, so that it passes no gate.
    hit_distances = np.where(is_present, np.where(np.isnan(hits.l2), np.inf, hits.l2), np.nan)
    n_entities = np.bitwise_count(entities.resolved).sum(axis=0)
    batch_fields: dict[str, Any] = {
        "n_hits": is_present.sum(axis=1),
        "best_l2": np.where(is_present[:, 0], hits.l2[:, 0], np.nan),
        "top1": np.where(is_present[:, 0], hits.cosine[:, 0], np.nan),
        "gap": confidence_gap(hits),
        "agree": agree(case_batch.keys, trace.chunks, structure.near_pages),
        "degenerate": first_hits.degenerate,
        "top_rerank": first_hits.rerank,
        "top_hybrid": np.where(first_hits.degenerate, first_hits.fallback, first_hits.hybrid),
        "n_groups": contests.groups.n,
        "has_winner": contests.entities.winner >= 0,
        "skips_entities": contests.entities.best == 0,
        "full_entities": contests.entities.best >= n_entities,
        "n_options_all": np.array(list(map(len, chosen_hits.options_all))),
        "n_options_tied": np.array(list(map(len, chosen_hits.options_tied))),
    }
    case_fields: dict[str, Any] = {
        field_name: case_batch.by_case(batch_column)
        for field_name, batch_column in batch_fields.items()
    }
    evidence = Evidence(
        **_question_fields(trace, pattern_counts, entities, needs_allowed=needs_allowed),
        **case_fields,
        **_signal_fields(trace, arm, pattern_counts.query_entities, hit_signals, structure.fused),
        l2=by_slot(hit_distances, case_batch.shape),
        all=resolver.reshape_contest(contests.all, case_batch.shape),
        tied=resolver.reshape_contest(contests.tied, case_batch.shape),
        missing=by_slot(slot_answers_right.missing, case_batch.shape),
        right=by_slot(slot_answers_right.right, case_batch.shape),
        share=by_slot(slot_answers_right.share, case_batch.shape),
        **without_answers(*case_batch.shape),
        off=off_gates,
        rank_order=structure.order == "rank",
        final_k=structure.final_k,
    )
    return add_answers(
        Tables(arm, evidence, chosen_hits, pattern_counts), measured_trace, structure
    )


def _case_batch(trace: TraceData, arm: str, structure: Structure) -> CaseBatch:
    """Hits of an arm, depths and cases on one axis, so that all that follows works on rows."""
    arm_index = trace.arm(arm)
    n_depths = trace.hits.chunk.shape[2]
    n_cases = len(trace.cases)
    hits = map_fields(
        trace.hits,
        lambda hit_field: np.moveaxis(hit_field[:, arm_index], 1, 0).reshape(
            n_depths * n_cases, *hit_field.shape[3:]
        ),
    )
    key_columns = hit_keys(
        trace.chunks, hits.chunk, strict=structure.strict, identity=structure.document_identity
    )
    arm_ranking = arm_order(hits.rank, key_columns.hit)
    distance_ranking = np.broadcast_to(np.arange(key_columns.hit.shape[1]), key_columns.hit.shape)
    hit_order = arm_ranking if structure.order == "rank" else distance_ranking
    return CaseBatch(
        shape=(n_depths, n_cases),
        cases=list(trace.cases) * n_depths,
        hits=hits,
        keys=key_columns,
        by_arm=arm_ranking,
        order=hit_order,
    )


def _contests(case_batch: CaseBatch, entities: Entities, structure: Structure) -> Contests:
    hits = case_batch.hits
    hit_groups = resolver.group_hits(case_batch.keys.sign)
    best_l2 = resolver.anchor_values(hits.l2, hit_groups, np.inf)
    entity_contest = resolver.resolve_entities(entities.resolved_carried, hit_groups, best_l2)
    signature_values = resolver.anchor_values(
        hits.sig_sim_strict if structure.strict else hits.sig_sim, hit_groups, np.nan
    )
    anchor_similarities = resolver.anchor_values(hits.anchor_sim, hit_groups, np.nan)
    # Which of the two contests is held depends on thresholds (whether entities are asked for), so
    # both are measured.
    all_contest = resolver.contest(
        hit_groups.anchor >= 0, best_l2, signature_values, anchor_similarities
    )
    tied_contest = resolver.contest(
        entity_contest.candidates,
        best_l2,
        signature_values,
        anchor_similarities,
        entity_contest.order,
    )
    return Contests(hit_groups, entity_contest, all_contest, tied_contest)


def _chosen_hits(
    case_batch: CaseBatch, entities: Entities, contests: Contests, structure: Structure
) -> ChosenHits:
    """Hits of every slot.

    Of n relevant ones, of each group that may win, of the options (`WINNERS`).
    """
    hit_groups, entity_contest, final_k = contests.groups, contests.entities, structure.final_k
    group_of_rule = {
        "first_of_all": contests.all.first,
        "signature_of_all": contests.all.by_signature,
        "anchor_of_all": contests.all.by_anchor,
        "entities": entity_contest.winner,
        "first_of_tied": contests.tied.first,
        "signature_of_tied": contests.tied.by_signature,
        "anchor_of_tied": contests.tied.by_anchor,
    }
    # In a trace of one case, which is a question asked live, the rules mostly pick alike: fill each
    # pick once.
    distinct_picks = {
        picked_group.tobytes(): picked_group for picked_group in group_of_rule.values()
    }
    filled_picks = {
        pick_key: resolver.fill_entities(
            resolver.first_members(
                (hit_groups.group == picked_group[:, None]) & (picked_group >= 0)[:, None],
                case_batch.order,
                final_k,
            ),
            entities.resolved_carried,
            entities.resolved,
            case_batch.keys.page,
        )
        for pick_key, picked_group in distinct_picks.items()
    }
    winner_sets = [
        filled_picks[group_of_rule[winner_name].tobytes()]
        for winner_name in WINNERS
        if winner_name in group_of_rule
    ]
    # Options of the tied groups are those of all where all are tied in their order, which is the
    # common case.
    all_groups = hit_groups.anchor >= 0
    group_order = np.broadcast_to(
        np.arange(entity_contest.order.shape[1]), entity_contest.order.shape
    )
    option_size = (structure.max_options, final_k)
    hit_distances = case_batch.hits.l2
    options_of_all = row_options(
        hit_groups, all_groups, group_order, case_batch.keys, hit_distances, option_size
    )
    options_of_tied = row_options(
        hit_groups,
        entity_contest.candidates,
        entity_contest.order,
        case_batch.keys,
        hit_distances,
        option_size,
        options_of_all,
    )
    # The sets of all slots in one table, so that a policy only looks its slot up.
    count_sets = first_k_by_count(case_batch.order, case_batch.keys.hit, final_k)
    hit_places = pad_sets(
        [count_sets, *winner_sets, option_places(options_of_all), option_places(options_of_tied)]
    )
    return ChosenHits(
        hit_places,
        options_of_all,
        options_of_tied,
        case_batch.keys.pages,
        case_batch.keys.sources,
        case_batch.keys.source_of,
    )


def _question_fields(
    trace: TraceData, pattern_counts: PatternHits, entities: Entities, *, needs_allowed: bool
) -> dict[str, Any]:
    """Fields of `Evidence` that the question alone tells."""
    list_counts = pattern_counts.counts.astype(np.int64)
    n_denied, n_allowed, n_generic, n_facets = (list_counts[:, column] for column in range(4))
    return {
        "words": np.array([word_count(case.query) for case in trace.cases], dtype=np.int64),
        "denied": n_denied,
        "allowed": n_allowed,
        "needs_allowed": needs_allowed,
        "overview": (n_generic > 0) & (n_facets == 0),
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
    named_gates = frozenset(map(str, trace.meta.get("gates_off", ())))
    if unknown_gates := sorted(named_gates.difference(CAN_BE_OFF)):
        refuse(
            f"a trace may declare off only {', '.join(CAN_BE_OFF)}",
            repr(unknown_gates[0]),
            "build the trace again",
        )
    return named_gates


def _first_hits(case_batch: CaseBatch, structure: Structure) -> FirstHits:
    """Scores of the first hits in the arm's order."""
    hits = case_batch.hits
    final_k = structure.final_k
    # What stands behind the reranked hits has a score of another kind and must not make them look
    # different.
    is_reranked = (hits.rank >= 0) & (hits.rank < hits.n_reranked[:, None])
    hybrid_scores, cosine_scores = (
        first_by_rank(hit_scores, case_batch.by_arm, final_k)
        for hit_scores in (hits.s_hybrid, hits.cosine)
    )
    fallback_scores = hybrid_scores
    # without a reranker the hybrid score is the one that taus were chosen for
    if structure.fallback is not None:
        fallback_scores = np.where(
            hits.n_reranked > 0, np.interp(cosine_scores, *structure.fallback), hybrid_scores
        )
    return FirstHits(
        rerank=first_by_rank(hits.s_rerank, case_batch.by_arm, final_k),
        hybrid=hybrid_scores,
        cosine=cosine_scores,
        fallback=fallback_scores,
        degenerate=degenerate_scores(
            hits.s_rerank, hits.s_raw, case_batch.keys.text, is_reranked, structure.min_texts
        ),
    )


def _hit_signals(
    case_batch: CaseBatch,
    first_hits: FirstHits,
    contests: Contests,
    chosen_hits: ChosenHits,
    slot_sets: SlotLabels,
) -> dict[str, FloatArray]:
    """Signals of an arm's hits by name, [D, Q] each.

    Of their scores, and of what resolver and slots say of them.
    """
    signal_columns = score_signals(case_batch.hits, first_hits) | {
        # The fused gate learned its weights on the hits when all of them are relevant, which is
        # slot K.
        "keyword_share": slot_sets.share[:, case_batch.keys.hit.shape[1]],
        "anchor_similarity": contests.all.best_anchor,
        "signature_similarity": contests.all.best_signature,
        "groups": contests.groups.n,
        "options": np.array(list(map(len, chosen_hits.options_all))),
        "group_gap": contests.all.group_gap,
    }
    return {
        signal_name: case_batch.by_case(column) for signal_name, column in signal_columns.items()
    }


def _signal_fields(
    trace: TraceData,
    arm_name: str,
    entity_names: Sequence[Sequence[str]],
    hit_signals: Mapping[str, Any],
    fused_model: fused_gate.Model | None,
) -> dict[str, Any]:
    """Fields of `Evidence` that are signals, and the fused gate's probability by them.

    Args:
      entity_names: entities of each question.
      hit_signals: signals of the arm's hits.
      fused_model: of the fused gate.
    """
    signal_columns = {
        **query_signals(trace.cases, entity_names),
        **hit_signals,
        **arm_agreement(trace),
        **stored_signals(trace, arm_name),
    }
    has_hits = (trace.hits.chunk[:, trace.arm(arm_name), :, 0] >= 0).T
    signal_set = trace_signals(trace)
    signal_table = signal_rows(signal_columns, has_hits, signal_set)
    no_probability = np.full(has_hits.shape, np.nan)
    fused_probability = (
        no_probability
        if fused_model is None
        else fused_gate.fused_probability(signal_table, fused_model, signal_set.names)
    )
    return {
        "signals": signal_table,
        "known": signal_set,
        "fused": fused_probability,
        "probability": np.full((len(OUTCOME_CLASSES), *has_hits.shape), np.nan),
        "asked_right": np.full(has_hits.shape[1], np.nan),
    }


def by_slot(slot_values: AnyArray, depth_cases: tuple[int, int]) -> AnyArray:
    """Values of rows and slots [B, S] as [D, S, Q].

    Cases last, so that a policy's pass runs along the memory.
    """
    n_depths, n_cases = depth_cases
    return np.ascontiguousarray(
        slot_values.reshape(n_depths, n_cases, slot_values.shape[1]).transpose(0, 2, 1)
    )


def add_answers(
    measured: Tables, answered_trace: TraceData | Measured, structure: Structure
) -> Tables:
    """Tables with the recorded answers of every slot, and what they make right.

    Unchanged where there are none.

    Args:
      answered_trace: the trace that was measured, with its answers.
    """
    measured_trace = Measured.of(answered_trace)
    trace = measured_trace.trace
    answers, evidence, chosen_hits = trace.answers, measured.evidence, measured.chosen
    if answers is None:
        return measured
    arm_index, (n_depths, n_cases) = trace.arm(measured.arm), evidence.n_hits.shape
    hit_chunks = np.moveaxis(trace.hits.chunk[:, arm_index], 1, 0).reshape(n_depths * n_cases, -1)
    answer_numbers = slot_answers(answers, arm_index, chosen_hits.places, hit_chunks, n_cases)
    by_text = np.zeros(n_cases, bool)
    verdict_of_answer = np.zeros(len(answers.row), np.int8)
    # a question asked live has neither a gold answer nor a column
    if any(case.answer or case.extra for case in trace.cases):
        by_text = judged_cases(trace)
        verdict_of_answer = measured_trace.once(
            "answers", "verdicts", lambda: answer_verdicts(trace)
        )
    # Answers may be added twice: what the sources alone make right was kept by the first time.
    sources_right = evidence.sources_right if evidence.answered else evidence.right
    asks_back = np.zeros(answer_numbers.shape, dtype=bool)
    for slot, options in zip(
        OPTION_SLOTS, (chosen_hits.options_all, chosen_hits.options_tied), strict=True
    ):
        # one option left is an answer
        asks_back[:, slot] = [len(option_hits) != 1 for option_hits in options]
    sources_by_row = sources_right.transpose(0, 2, 1).reshape(answer_numbers.shape)
    judged_by_text = np.tile(by_text, n_depths)[:, None] & ~asks_back
    # A case labelled refuse needs its answer too: a gate that finds none refuses it unearned.
    needs_verdict = judged_by_text | (
        np.tile(evidence.label_code == Status.refuse, n_depths)[:, None] & ~asks_back
    )
    slot_verdicts = slot_answer_verdicts(
        sources_by_row, answer_numbers, verdict_of_answer, judged_by_text, needs_verdict
    )
    slot_scores = slot_answer_scores(answers, answer_numbers, structure.calibration)
    slot_tables = slot_scores._asdict() | slot_verdicts._asdict()
    evidence_fields: dict[str, Any] = {
        field_name: by_slot(slot_table, (n_depths, n_cases))
        for field_name, slot_table in slot_tables.items()
    }
    answer_columns = answer_signals(
        evidence_fields["generation"], evidence_fields["support"], evidence.l2.shape[1]
    )
    answered_evidence = evidence._replace(
        answered=True,
        by_text=by_text,
        sources_right=sources_right,
        signals=with_columns(evidence.signals, answer_columns),
        **evidence_fields,
    )
    return add_probabilities(measured._replace(evidence=answered_evidence), structure, trace.cases)


def policy_pattern_hits(trace: TraceData | Measured, policy: PolicyData) -> PatternHits:
    """What the policy's patterns hit.

    As stored with the trace, measured again where they differ (rule S0.6).
    """
    measured_trace = Measured.of(trace)
    patterns_digest = policy.patterns.digest
    stored_hits = measured_trace.trace.pattern_hits
    if stored_hits is not None and stored_hits.patterns_hash == patterns_digest:
        return stored_hits
    cases = measured_trace.trace.cases
    chunks = measured_trace.trace.chunks
    fresh_hits: PatternHits = measured_trace.once(
        "patterns", patterns_digest, lambda: pattern_hits(cases, chunks, policy.pattern_lists)
    )
    return fresh_hits


def measured_tables(
    trace: TraceData | Measured, policy: PolicyData, arm: str | None = None
) -> Tables:
    """Evidence that the policy's thresholds meet.

    Of a `Measured` once for all policies of the same structure.

    Raises:
      ValueError: the trace was built with another pack than the policy's, or lacks a signal that
        the policy uses.
    """
    measured_trace = Measured.of(trace)
    full_trace = measured_trace.trace
    check_stored(full_trace, [policy])
    check_pack(
        full_trace.meta.get("pack"),
        policy.pack_hash,
        "a trace",
        "put that pack back, or build the trace again",
    )
    check_n_hits(full_trace.hits.chunk.shape[-1])
    arm_name = full_trace.arms[0] if arm is None else arm
    full_trace.arm(arm_name)  # stops at one that the trace does not have
    structure = policy.structure
    needs_allowed = bool(policy.patterns.allow)
    plain_structure = structure._replace(decision=None)

    def measure() -> Tables:
        pattern_counts = policy_pattern_hits(measured_trace, policy)
        return measure_tables(
            measured_trace, arm_name, pattern_counts, plain_structure, needs_allowed=needs_allowed
        )

    tables: Tables = measured_trace.once("tables", (arm_name, plain_structure), measure)
    if structure.decision is None:
        return tables
    decided_tables: Tables = measured_trace.once(
        "decided",
        (arm_name, structure),
        lambda: add_probabilities(tables, structure, full_trace.cases),
    )
    return decided_tables


def add_probabilities(
    measured_columns: Tables, structure: Structure, cases: Sequence[Case]
) -> Tables:
    """Tables with what the structure's model makes of the signals (rule S2.17).

    As they are where it has none.

    Args:
      cases: that were measured; their groups have a bias where the model has groups (rule S2.20).

    Raises:
      ValueError: the model was fitted on other hits.
    """
    decision_model = structure.decision
    if decision_model is None:
        return measured_columns
    check_model(structure, measured_columns.arm)
    evidence = measured_columns.evidence
    probability = class_probabilities(
        evidence.signals, decision_model, evidence.known.names, decision_model.group_values(cases)
    )
    if not np.isfinite(probability).all():
        case_row = int(np.argwhere(~np.isfinite(probability))[0][-1])
        refuse(
            "a decision model must give every case finite chances (its weights must not overflow)",
            f"NaN for the case of row {case_row}",
            "fit it again with raglab.fit_decision",
        )
    asked_right = np.full(len(evidence.label_code), decision_model.asked_right)
    return measured_columns._replace(
        evidence=evidence._replace(probability=probability, asked_right=asked_right)
    )


def check_model(structure: Structure, arm_name: str) -> None:
    """Stop if a structure's model was fitted on other hits than an arm's under it (rule S2.17).

    Raises:
      ValueError: another structure or arm.
    """
    if structure.decision is None:
        return
    fitted_hash = structure.decision.structure
    actual_hash = structure_hash(structure, arm_name)
    if fitted_hash != actual_hash:
        requirement = (
            "a decision model must be used on the hits it was fitted on (final_k, order, "
            "patterns, options, arm)"
        )
        refuse(
            f"{requirement}, {fitted_hash}",
            f"{actual_hash} with arm {arm_name!r}",
            "fit it again with raglab.fit_decision, or state its arm",
        )


def structure_hash(structure: Structure, arm_name: str) -> str:
    """Hash of what decides which hits a decision rests on, and of the arm that found them."""
    structure_fields = structure._replace(fused=None, decision=None)._asdict()
    del structure_fields["fallback"]  # it chooses no hits
    # a model fitted before there was a choice stays valid (S0.8)
    if structure.document_identity == DEFAULT_IDENTITY:
        del structure_fields["document_identity"]
    return digest(canonical_json(structure_fields | {"arm": arm_name, "cut": None}), 12)
