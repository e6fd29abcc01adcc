"""The compiled kernel of the chain (algebra): the same decisions in numba.

It takes a case under many policies at a time.

A twin of `chain.gate_depth` for traces without refinement. Margins are formed as in `gates` and
`resolver`, a difference against zero, so that NaN never passes. A case meets some policies at once:
what depends on the case alone is settled once, and the loops over policies have no branch and no
table but their columns, so that one instruction compares several. Look-ups in tables
stand in loops of their own. Numbers of outcomes, which hold the order of the gates, come in as
arguments: compiled code is kept on disk and must not hold those of another table.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab.decision.chain import (
    ASKED_SLOT,
    NO_STAGE,
    SLOT_MEASUREMENTS,
    SLOT_TABLE,
    STAGE,
    STAGES,
    THRESHOLD_MEASUREMENTS,
    GateMeasurements,
    answer_slots,
)
from raglab.decision.measurement import Evidence
from raglab.decision.threshold_arrays import Thresholds
from raglab.gating.signal_gates import MIN_OPTIONS, SIGNALS, is_gated
from raglab.loops.compiled import compile_kernel
from raglab.loops.parallel import by_threads
from raglab.metrics import CELLS
from raglab.signals import retrieval_confidence
from raglab.values import BoolArray, FloatArray, IntArray

# ruff: noqa: ANN401 - records and arrays, which numba types for itself

TILE_POLICIES = 128  # policies whose thresholds and counts stay in the cache while all cases pass
SLOT_NUMBERS = SLOT_TABLE.astype(np.int64)
# Each with code of its own here, the twin of its primitive.
COMPILED_GATES = frozenset({"domain", "l2", "density", "gap", "coverage", SIGNALS, "confidence"})
# Their primitives are `headroom` of one measurement, as of a row without a primitive of its own.
SCALAR_GATES = frozenset({"similarity", "fused"})


# Numbers of the outcomes by name, by which the compiled code decides; asked_slot: slot, after those
# of relevant hits, of the options that a gate on a signal offers.
StageNumbers = namedtuple("StageNumbers", (*STAGE, "asked_slot"))  # type: ignore[misc]  # noqa: PYI024
STAGE_NUMBERS: Any = StageNumbers._make([*STAGE.values(), int(ASKED_SLOT)])


def complete() -> bool:
    """Whether the compiled code knows every gate that decides before an answer is there."""
    deciding_gates = [
        gate for gate in gates.GATES if gate.firing != "warn" and gate.judges != "answer"
    ]
    return all(gate.name in COMPILED_GATES or gate in _scalars() for gate in deciding_gates)


def _scalars() -> tuple[gates.Gate, ...]:
    """Gates on the chosen hits that compare one case measurement, which depends on no policy."""
    return tuple(
        gate
        for gate in gates.judging_gates("chosen")
        if gate.firing == "refuse"
        and (
            gate.name in SCALAR_GATES or (gate.margins is None and gate.name not in COMPILED_GATES)
        )
        and gate.measurements[0] not in SLOT_MEASUREMENTS | THRESHOLD_MEASUREMENTS
    )


@compile_kernel()
def _partition_hits(rerank: Any, hybrid: Any) -> Any:
    """Move the hits that can be the best for some blend to the front; says how many, [Q].

    A hit with both scores no greater than another's cannot: rounding keeps the order of sums.
    """
    front_counts = np.zeros(len(rerank), dtype=np.int64)
    for case_index in range(len(rerank)):
        rerank_scores = rerank[case_index].copy()
        hybrid_scores = hybrid[case_index].copy()
        for hit_index in range(len(rerank_scores)):
            is_beaten = np.isnan(rerank_scores[hit_index]) or np.isnan(hybrid_scores[hit_index])
            for rival_index in range(len(rerank_scores)):
                rival_no_less = (
                    rerank_scores[rival_index] >= rerank_scores[hit_index]
                    and hybrid_scores[rival_index] >= hybrid_scores[hit_index]
                )
                is_beaten |= rival_no_less and (
                    rival_index < hit_index
                    or rerank_scores[rival_index] > rerank_scores[hit_index]
                    or hybrid_scores[rival_index] > hybrid_scores[hit_index]
                )
            if not is_beaten:
                (
                    rerank[case_index, front_counts[case_index]],
                    hybrid[case_index, front_counts[case_index]],
                ) = rerank_scores[hit_index], hybrid_scores[hit_index]
                front_counts[case_index] += 1
    return front_counts


@compile_kernel()
def _decide_by_cost(case: Any, policy: Any, stage_numbers: Any) -> int:
    """Stage of one case under one policy that decides by expected cost.

    Sums in the order of `expected_costs`.
    """
    if case.words < 1:
        return int(stage_numbers.empty_query)
    if policy.domain_on and case.denied > 0:
        return int(stage_numbers.deny)
    if policy.domain_on and case.needs_allowed and case.allowed < 1:
        return int(stage_numbers.allow)
    if case.n_hits == 0:
        return int(stage_numbers.no_hits)
    wrong_cost = (
        policy.wrong_ok * case.miss
        + policy.wrong_refuse * case.refuse
        + policy.wrong_ambiguous * case.ambiguous
    )
    answer_cost = policy.right * case.right + policy.ratio * wrong_cost
    refuse_cost = (
        policy.refused_ok * case.ok
        + policy.refused_refuse * case.refuse
        + policy.refused_ambiguous * case.ambiguous
    )
    idle_cost = policy.asked_right * case.asked_right + policy.asked_ambiguous * (
        1.0 - case.asked_right
    )
    ask_cost = (
        policy.asked_ok * case.ok + policy.asked_refuse * case.refuse + idle_cost * case.ambiguous
    )
    if case.can_ask and ask_cost < refuse_cost and ask_cost <= answer_cost:
        return int(stage_numbers.least_cost_ask)
    # a cost that is not known is no reason to act
    answers = answer_cost < refuse_cost and not np.isnan(ask_cost)
    return int(stage_numbers.least_cost_answer) if answers else int(stage_numbers.least_cost_refuse)


@compile_kernel()
def _cost_counts(policies: Any, cases: Any, right: Any, stage_numbers: Any, n_codes: int) -> Any:
    """How often each policy met each (stage, label, expected sources found), [P, codes].

    right: of the options and of an answer, [Q, 2].
    """
    code_counts = np.zeros((len(policies), n_codes), dtype=np.int64)
    for policy_index in range(len(policies)):
        for case_index in range(len(cases)):
            stage = _decide_by_cost(cases[case_index], policies[policy_index], stage_numbers)
            is_right = (
                right[case_index, 0]
                if stage == stage_numbers.least_cost_ask
                else right[case_index, 1]
            )
            code_counts[policy_index, stage * CELLS + cases[case_index].label * 2 + is_right] += 1
    return code_counts


class PolicyColumns(NamedTuple):
    """Thresholds of the policies, [P] each, to compare several policies in one instruction.

    min_keep: 0 where the density gate is off. coverage_stage, confidence_stage, scalar_stage: what
    the gate decides, `NO_STAGE` where it is off, so that it never does. scalar_stage, scalar_bound:
    of the scalar gates on the chosen hits, [gates, P]. signal_bound, signal_stage: bounds of
    signals that some policy sets, [B, P], upper ones with their signs changed, and what each
    decides.
    """

    domain_on: BoolArray
    l2_on: BoolArray
    max_l2: FloatArray
    soft_max_l2: FloatArray
    min_keep: IntArray
    gap_on: BoolArray
    min_gap: FloatArray
    overview: BoolArray
    overview_entities_lift: BoolArray
    entities: BoolArray
    require_full: BoolArray
    min_group_gap: FloatArray
    min_sig_sim: FloatArray
    min_sig_sim_gap: FloatArray
    min_anchor_sim: FloatArray
    min_anchor_sim_gap: FloatArray
    blend: FloatArray
    tau_default: FloatArray
    tau_explicit: FloatArray
    coverage_stage: IntArray
    confidence_stage: IntArray
    scalar_stage: IntArray
    scalar_bound: FloatArray
    signal_bound: FloatArray
    signal_stage: IntArray


class HitColumns(NamedTuple):
    """Of the hits: l2 [Q, K], NaN last, scores of the first [Q, k] twice, by slot [Q, S] twice.

    Of signals [Q, B].
    """

    l2: FloatArray
    rerank: FloatArray
    hybrid: FloatArray
    missing: NDArray[np.uint8]
    right: BoolArray
    measured: FloatArray


class Tile(NamedTuple):
    """Outcomes of one case under some policies.

    Early [P] before any hits are chosen, stage and slot [P] then.

    cut: how far a hit may lie to be relevant. score: confidence, and before it the distance that
    meets `min_keep`. fired: first gate that fires, of those on the chosen hits and then of those on
    signals. tied: whether the resolver chooses among the groups that tie on entities. nearest:
    distance of the hit that fills up each `min_keep`, [K + 2]. edge, chosen: see `_find_edges`, [K]
    and [K + 1].
    """

    cut: FloatArray
    score: FloatArray
    early: IntArray
    stage: IntArray
    slot: IntArray
    tied: IntArray
    fired: IntArray
    nearest: FloatArray
    edge: FloatArray
    chosen: IntArray


@compile_kernel()
def _new_tile(n_hits: int, n_policies: int) -> Any:
    int_type = np.int64
    float_type = np.float64
    return Tile(
        np.empty(n_policies, float_type),
        np.empty(n_policies, float_type),
        np.empty(n_policies, int_type),
        np.empty(n_policies, int_type),
        np.empty(n_policies, int_type),
        np.empty(n_policies, int_type),
        np.empty(n_policies, int_type),
        np.empty(n_hits + 2, float_type),
        np.empty(n_hits, float_type),
        np.empty(n_hits + 1, int_type),
    )


@compile_kernel()
def _find_edges(case: Any, l2: Any, missing: Any, right: Any, tile: Any) -> int:
    """Number of distances at which one more hit changes the decision, [K] in `edge`.

    Its sets of hits lack other entities, or are right or wrong. chosen: a slot that stands for all
    from one such distance to the next.
    """
    n_edges = 0
    last_slot = 0
    tile.chosen[0] = 0
    for hit_index in range(min(len(l2), case.most_slots)):
        if (missing[hit_index + 1] > 0) != (missing[last_slot] > 0) or right[
            hit_index + 1
        ] != right[last_slot]:
            last_slot = hit_index + 1
            tile.edge[n_edges] = l2[hit_index]
            n_edges += 1
            tile.chosen[n_edges] = last_slot
    return n_edges


@compile_kernel()
def _refuse_early(
    case: Any, policies: Any, n_policies: int, l2: Any, stage_numbers: Any, tile: Any
) -> None:
    """Write what refuses before hits are chosen, `NO_STAGE` if nothing, and how far hits lie."""
    # Fewer hits than `min_keep` is a NaN, which meets no bound; 0 of them is nearer than every
    # bound.
    n_hits = len(l2)
    best_l2 = case.best_l2
    tile.nearest[0], tile.nearest[n_hits + 1] = -np.inf, np.nan
    for hit_index in range(n_hits):
        tile.nearest[hit_index + 1] = l2[hit_index]
    for i in range(n_policies):
        tile.score[i] = tile.nearest[min(policies.min_keep[i], n_hits + 1)]
    l2_stage = stage_numbers.l2
    refused_density = stage_numbers.density
    for i in range(n_policies):
        l2_on = policies.l2_on[i]
        meets_max = policies.max_l2[i] - best_l2 >= 0.0
        meets_soft_max = policies.soft_max_l2[i] - best_l2 >= 0.0
        l2_bound = policies.max_l2[i] if meets_max else policies.soft_max_l2[i]
        l2_cut = l2_bound if l2_on else np.inf
        density_stage = NO_STAGE if tile.score[i] <= l2_cut else refused_density
        tile.early[i] = l2_stage if l2_on & (not (meets_max | meets_soft_max)) else density_stage
        tile.cut[i] = l2_cut
    if case.needs_allowed and case.allowed < 1:
        for i in range(n_policies):
            tile.early[i] = stage_numbers.allow if policies.domain_on[i] else tile.early[i]
    if case.denied > 0:
        for i in range(n_policies):
            tile.early[i] = stage_numbers.deny if policies.domain_on[i] else tile.early[i]


@compile_kernel()
def _resolve_case(case: Any, policies: Any, n_policies: int, stage_numbers: Any, tile: Any) -> None:
    """Write the stage of the resolver, and whether rule `entities` speaks."""
    # What the case alone decides is settled before the loop over policies, which then has no
    # branch.
    single_of_all = case.n_options[0] == 1
    single_of_tied = case.n_options[1] == 1
    last_all = stage_numbers.single_option if single_of_all else stage_numbers.options
    last_tied = stage_numbers.single_option if single_of_tied else stage_numbers.options
    overview_stage = stage_numbers.single_option if single_of_all else stage_numbers.overview
    # Where it speaks, the rules after it choose among the groups that tie on entities.
    gap_all = case.group_gap[0]
    gap_tied = case.group_gap[1]
    best_sig_all = case.best_signature[0]
    best_sig_tied = case.best_signature[1]
    gap_sig_all = case.gap_signature[0]
    gap_sig_tied = case.gap_signature[1]
    best_anchor_all = case.best_anchor[0]
    best_anchor_tied = case.best_anchor[1]
    gap_anchor_all = case.gap_anchor[0]
    gap_anchor_tied = case.gap_anchor[1]
    asks_entities, is_full, has_winner, is_lifted = (
        not case.skips_entities,
        case.full_entities,
        case.has_winner,
        case.names_entity,
    )
    is_overview, entities_stage, gap_stage = (
        case.overview,
        stage_numbers.entities,
        stage_numbers.group_gap,
    )
    signature_stage = stage_numbers.signature_similarity
    anchor_stage = stage_numbers.anchor_similarity
    for i in range(n_policies):
        entities_speak = (
            policies.entities[i] & asks_entities & (is_full | (not policies.require_full[i]))
        )
        gap_decides = (gap_tied if entities_speak else gap_all) - policies.min_group_gap[i] >= 0.0
        best_signature = best_sig_tied if entities_speak else best_sig_all
        gap_signature = gap_sig_tied if entities_speak else gap_sig_all
        signature_decides = (best_signature - policies.min_sig_sim[i] >= 0.0) & (
            gap_signature - policies.min_sig_sim_gap[i] >= 0.0
        )
        best_anchor = best_anchor_tied if entities_speak else best_anchor_all
        gap_anchor = gap_anchor_tied if entities_speak else gap_anchor_all
        anchor_decides = (best_anchor - policies.min_anchor_sim[i] >= 0.0) & (
            gap_anchor - policies.min_anchor_sim_gap[i] >= 0.0
        )
        # The last one written is the first of the rules that decides.
        stage = last_tied if entities_speak else last_all
        stage = anchor_stage if anchor_decides else stage
        stage = signature_stage if signature_decides else stage
        stage = gap_stage if gap_decides else stage
        stage = entities_stage if entities_speak & has_winner else stage
        # An overview asks before entities decide, unless an entity lifts it (rule S3.3).
        overview_decides = (
            policies.overview[i]
            & is_overview
            & (not (policies.overview_entities_lift[i] & is_lifted))
        )
        tile.stage[i] = overview_stage if overview_decides else stage
        tile.tied[i] = 1 if entities_speak & (not overview_decides) else 0


@compile_kernel()
def _choose_hits(
    case: Any,
    policies: Any,
    n_policies: int,
    l2: Any,
    slots: Any,
    n_edges: int,
    stage_numbers: Any,
    tile: Any,
) -> None:
    """Write stage and slot before any gate on the chosen hits.

    The relevant ones, or what the resolver picks.
    """
    n_hits = len(l2)
    tile.slot[:n_policies] = 0
    for edge_index in range(n_edges):
        edge_distance = tile.edge[edge_index]
        for i in range(n_policies):
            tile.slot[i] += 1 if tile.cut[i] >= edge_distance else 0
    if case.agree or n_hits == 1:
        tile.stage[:n_policies] = stage_numbers.gap
        for i in range(n_policies):
            tile.slot[i] = tile.chosen[tile.slot[i]]
        return
    if case.n_groups == 1:
        tile.stage[:n_policies] = stage_numbers.single_group
        tile.tied[:n_policies] = 0
    else:
        _resolve_case(case, policies, n_policies, stage_numbers, tile)
    second_l2, case_gap, gap_stage = l2[1], case.gap, stage_numbers.gap
    for i in range(n_policies):
        is_alone = not second_l2 <= tile.cut[i]
        is_direct = is_alone | (not policies.gap_on[i]) | (case_gap - policies.min_gap[i] >= 0.0)
        tile.stage[i] = gap_stage if is_direct else tile.stage[i]
    for i in range(n_policies):
        resolver_slot = n_hits + 1 + slots[tile.tied[i], tile.stage[i]]
        relevant_slot = tile.chosen[tile.slot[i]]
        tile.slot[i] = relevant_slot if tile.stage[i] == gap_stage else resolver_slot


@compile_kernel()
def _blend_scores(
    case: Any, policies: Any, n_policies: int, rerank: Any, hybrid: Any, tile: Any
) -> None:
    """Write the first hits' blended confidence, as `signals.retrieval_confidence` has it."""
    tile.score[:n_policies] = 0.0
    if case.n_front > 0:
        for i in range(n_policies):
            blend = policies.blend[i]
            tile.score[i] = blend * rerank[0] + (1.0 - blend) * hybrid[0]
        for hit_index in range(1, case.n_front):
            for i in range(n_policies):
                blend = policies.blend[i]
                hit_score = blend * rerank[hit_index] + (1.0 - blend) * hybrid[hit_index]
                tile.score[i] = max(tile.score[i], hit_score)
    for i in range(n_policies):
        keeps_unblended = case.degenerate | (policies.blend[i] == 1.0)
        tile.score[i] = case.unblended if keeps_unblended else 100.0 * tile.score[i]


@compile_kernel()
def _judge_chosen(
    case: Any, policies: Any, n_policies: int, missing: Any, stage_numbers: Any, tile: Any
) -> None:
    """Lower answers to the first firing gate on the chosen hits, and all to an early refusal."""
    for i in range(n_policies):
        tile.fired[i] = policies.coverage_stage[i] if missing[tile.slot[i]] > 0 else NO_STAGE
    min_confidence = policies.tau_explicit if case.explicit else policies.tau_default
    for i in range(n_policies):
        fired_stage = (
            NO_STAGE if tile.score[i] - min_confidence[i] >= 0.0 else policies.confidence_stage[i]
        )
        tile.fired[i] = min(tile.fired[i], fired_stage)
    for gate_index in range(len(case.scalar)):
        scalar_bounds, stage, case_value = (
            policies.scalar_bound[gate_index],
            policies.scalar_stage[gate_index],
            case.scalar[gate_index],
        )
        for i in range(n_policies):
            fired_stage = NO_STAGE if case_value - scalar_bounds[i] >= 0.0 else stage[i]
            tile.fired[i] = min(tile.fired[i], fired_stage)
    first_answer = stage_numbers.gap
    for i in range(n_policies):
        stage = tile.stage[i]
        early_stage = tile.early[i]
        stage = min(stage, tile.fired[i]) if stage >= first_answer else stage
        tile.stage[i] = early_stage if early_stage < NO_STAGE else stage
        tile.slot[i] = 0 if early_stage < NO_STAGE else tile.slot[i]


@compile_kernel()
def _gate_signals(
    case: Any,
    policies: Any,
    n_policies: int,
    measured: Any,
    options_slot: int,
    stage_numbers: Any,
    tile: Any,
) -> None:
    """Lower what was decided to the first gate on a signal that fires.

    They stand before what decided only where that is an answer, or a refusal by a gate after them.
    """
    tile.fired[:n_policies] = NO_STAGE
    for bound_index in range(len(measured)):
        for i in range(n_policies):
            passes = measured[bound_index] - policies.signal_bound[bound_index, i] >= 0.0
            tile.fired[i] = min(
                tile.fired[i], NO_STAGE if passes else policies.signal_stage[bound_index, i]
            )
    has_options = case.n_options[0] >= MIN_OPTIONS
    for i in range(n_policies):
        stage = tile.stage[i]
        decides_earlier = (stage <= stage_numbers.signals) | (
            (stage_numbers.overview <= stage) & (stage < stage_numbers.gap)
        )
        lowered_stage = stage if decides_earlier else min(stage, tile.fired[i])
        asks_back = (not decides_earlier) & (lowered_stage == stage_numbers.signals_ask)
        tile.stage[i] = stage_numbers.signals if asks_back & (not has_options) else lowered_stage
        tile.slot[i] = options_slot if asks_back & has_options else tile.slot[i]


@compile_kernel()
def _decide_case(
    case: Any,
    case_index: int,
    policies: Any,
    n_policies: int,
    hits: Any,
    slots: Any,
    stage_numbers: Any,
    tile: Any,
) -> None:
    """Write stage and slot of one case under the policies from the first on.

    The slot is 0 where nothing was chosen.

    Every gate is compared, whatever decides: a branch that goes either way costs more than all of
    them.
    """
    if case.words < 1:
        tile.stage[:n_policies] = stage_numbers.empty_query
        tile.slot[:n_policies] = 0
        return
    l2 = hits.l2[case_index]
    missing = hits.missing[case_index]
    _refuse_early(case, policies, n_policies, l2, stage_numbers, tile)
    if case.n_hits == 0:
        for i in range(n_policies):
            tile.stage[i] = min(tile.early[i], stage_numbers.no_hits)
            tile.slot[i] = 0
        return
    n_edges = _find_edges(case, l2, missing, hits.right[case_index], tile)
    _choose_hits(case, policies, n_policies, l2, slots, n_edges, stage_numbers, tile)
    _blend_scores(
        case, policies, n_policies, hits.rerank[case_index], hits.hybrid[case_index], tile
    )
    _judge_chosen(case, policies, n_policies, missing, stage_numbers, tile)
    if len(policies.signal_bound) > 0:
        _gate_signals(
            case,
            policies,
            n_policies,
            hits.measured[case_index],
            len(l2) + 1 + stage_numbers.asked_slot,
            stage_numbers,
            tile,
        )


@compile_kernel()
def _outcome_counts(
    policies: Any, cases: Any, hits: Any, slots: Any, stage_numbers: Any, n_codes: int
) -> Any:
    """How often each tile policy met each (stage, label, expected sources found), [codes, P]."""
    n_policies = len(policies.blend)
    tile = _new_tile(hits.l2.shape[1], n_policies)
    code_counts = np.zeros((n_codes, n_policies), dtype=np.int32)
    for case_index in range(len(cases)):
        _decide_case(
            cases[case_index], case_index, policies, n_policies, hits, slots, stage_numbers, tile
        )
        label_offset = cases[case_index].label * 2
        slots_right = hits.right[case_index]
        for i in range(n_policies):
            code_counts[tile.stage[i] * CELLS + label_offset + slots_right[tile.slot[i]], i] += 1
    return code_counts


def _numpy_records(columns: dict[str, Any], n_records: int) -> NDArray[np.void]:
    """Columns of n numbers, or [n, ...], as n records."""
    column_arrays = {name: np.asarray(column) for name, column in columns.items()}
    field_types = [
        (name, column_array.dtype, column_array.shape[1:])
        for name, column_array in column_arrays.items()
    ]
    records = np.empty(n_records, dtype=np.dtype(field_types, align=True))
    for name, column_array in column_arrays.items():
        records[name] = column_array
    return records


def _policies(thresholds: Thresholds, n_policies: int) -> PolicyColumns:
    """Columns of the thresholds of n policies."""

    # A threshold that all policies share comes as one number; the loops need a contiguous one for
    # each policy.
    def column(threshold_values: Any) -> Any:
        return np.ascontiguousarray(np.broadcast_to(threshold_values, (n_policies, 1))[:, 0])

    # A gate that is off writes no stage, so the loops need no switch.
    def stage_of(gate_name: str) -> IntArray:
        return np.where(column(thresholds.gates[gate_name].on), STAGE[gate_name], NO_STAGE)

    # With the sign of a ceiling turned, one loop serves floors and ceilings.
    scalar_gates = _scalars()
    gate_thresholds = thresholds.gates
    scalar_bounds = [
        getattr(gate_thresholds[gate.name], gate.thresholds[0].key) for gate in scalar_gates
    ]
    signed_bounds = [
        _sign(gate) * column(scalar_bound)
        for gate, scalar_bound in zip(scalar_gates, scalar_bounds, strict=True)
    ]
    density_thresholds = gate_thresholds["density"]
    signal_bound, signal_stage = _bounds(thresholds, n_policies)
    return PolicyColumns(
        domain_on=column(gate_thresholds["domain"].on),
        l2_on=column(gate_thresholds["l2"].on),
        max_l2=column(gate_thresholds["l2"].max_l2),
        soft_max_l2=column(gate_thresholds["l2"].soft_max_l2),
        min_keep=column(np.where(density_thresholds.on, density_thresholds.min_keep, 0)).astype(
            np.int64
        ),
        gap_on=column(gate_thresholds["gap"].on),
        min_gap=column(gate_thresholds["gap"].min_gap),
        overview=column(thresholds.switches.overview),
        overview_entities_lift=column(thresholds.switches.overview_entities_lift),
        entities=column(thresholds.switches.entities),
        require_full=column(thresholds.switches.require_full_entity_coverage),
        **{
            rule_key: column(rule_threshold)
            for rule_key, rule_threshold in thresholds.rules._asdict().items()
        },
        blend=column(thresholds.blend),
        tau_default=column(gate_thresholds["confidence"].tau_default),
        tau_explicit=column(gate_thresholds["confidence"].tau_explicit),
        coverage_stage=stage_of("coverage"),
        confidence_stage=stage_of("confidence"),
        scalar_stage=np.stack([stage_of(gate.name) for gate in scalar_gates]),
        scalar_bound=np.stack(signed_bounds),
        signal_bound=signal_bound,
        signal_stage=signal_stage,
    )


def _tiles(thresholds: Thresholds, n_policies: int) -> Iterator[PolicyColumns]:
    """Columns of a few policies at a time, so few that they stay in cache while all cases pass."""
    policy_columns = _policies(thresholds, n_policies)
    n_tiles = -(-n_policies // TILE_POLICIES)
    tile_edges = (
        [n_policies * tile_index // n_tiles for tile_index in range(n_tiles + 1)]
        if n_policies
        else []
    )
    for tile_start, tile_stop in pairwise(tile_edges):
        tile_columns: list[Any] = [
            np.array(policy_column[..., tile_start:tile_stop], order="C")
            for policy_column in policy_columns
        ]
        yield PolicyColumns(*tile_columns)


def _sign(gate: gates.Gate) -> float:
    return 1.0 if gate.thresholds[0].side == "floor" else -1.0


def _stated_bounds(thresholds: Thresholds) -> list[tuple[str, str]]:
    """Name of each signal and bound, `min` or `max`, that a policy sets, of gates on in some."""
    return [
        (signal_name, key)
        for signal_name, signal_gate in thresholds.signals.items()
        for key in ("min", "max")
        if is_gated(signal_gate) and not np.isnan(getattr(signal_gate, key)).all()
    ]


def _signals_of(evidence: Evidence, thresholds: Thresholds) -> FloatArray:
    """Signal that each set bound is compared with, [Q, B].

    Upper bounds negated, +inf passes every bound.
    """
    set_bounds = _stated_bounds(thresholds)
    compared_values = np.empty((len(evidence.label), len(set_bounds)))
    for bound_index, (signal_name, key) in enumerate(set_bounds):
        signal_index = evidence.known.place(signal_name)
        signal_values = evidence.signals[signal_index, 0]
        compared_values[:, bound_index] = (
            signal_values if key == "min" else np.negative(signal_values)
        )
        if evidence.known.rows[signal_index].missing == "passes":
            compared_values[np.isnan(signal_values), bound_index] = np.inf
    return compared_values


def _bounds(thresholds: Thresholds, n_policies: int) -> tuple[FloatArray, IntArray]:
    """Each stated bound of each policy, [B, P], and the outcome that it leads to.

    `NO_STAGE` where the policy has none.
    """
    set_bounds = _stated_bounds(thresholds)
    signal_bounds = np.empty((len(set_bounds), n_policies))
    signal_stages = np.full((len(set_bounds), n_policies), NO_STAGE, dtype=np.int64)
    for bound_index, (signal_name, bound_key) in enumerate(set_bounds):
        signal_gate = thresholds.signals[signal_name]
        bound_values = getattr(signal_gate, bound_key)
        asked_codes = np.where(signal_gate.asks, STAGE_NUMBERS.signals_ask, NO_STAGE)
        fired_codes = np.where(signal_gate.refuses, STAGE_NUMBERS.signals, asked_codes)
        signal_bounds[bound_index] = (
            bound_values if bound_key == "min" else np.negative(bound_values)
        ).ravel()
        signal_stages[bound_index] = np.where(
            signal_gate.on & ~np.isnan(bound_values), fired_codes, NO_STAGE
        ).ravel()
    return signal_bounds, signal_stages


def _inputs(evidence: Evidence, thresholds: Thresholds) -> tuple[NDArray[np.void], HitColumns]:
    """Records of the cases, and their hits; signals only as far as some policy gates them."""
    n_cases = len(evidence.label)
    question_fields = (
        "words",
        "denied",
        "allowed",
        "overview",
        "names_entity",
        "explicit",
        "label",
    )
    hit_fields = (
        "n_hits",
        "best_l2",
        "gap",
        "agree",
        "degenerate",
        "n_groups",
        "has_winner",
        "skips_entities",
        "full_entities",
    )
    case_columns: dict[str, Any] = {
        field_name: getattr(evidence, field_name) for field_name in question_fields
    }
    # Depth 0 alone: this kernel is for traces without refinement.
    case_columns |= {field_name: getattr(evidence, field_name)[0] for field_name in hit_fields}
    # All groups and the tied ones: which of them a rule compares depends on the policy.
    for field_name in ("group_gap", "best_signature", "gap_signature", "best_anchor", "gap_anchor"):
        case_columns[field_name] = np.stack(
            [getattr(evidence.all, field_name)[0], getattr(evidence.tied, field_name)[0]], axis=1
        )
    case_columns["n_options"] = np.stack(
        [evidence.n_options_all[0], evidence.n_options_tied[0]], axis=1
    )
    case_columns["needs_allowed"] = np.full(n_cases, evidence.needs_allowed)
    case_columns["most_slots"] = np.full(
        n_cases, evidence.l2.shape[1] if evidence.rank_order else evidence.final_k
    )
    # Copies, since hits that no blend can make the best are moved to the back in place.
    rerank_scores, hybrid_scores = (
        np.array(scores[:, 0].T, order="C", copy=True)
        for scores in (evidence.top_rerank, evidence.top_hybrid)
    )
    case_columns["unblended"] = retrieval_confidence(
        rerank_scores.T, hybrid_scores.T, evidence.degenerate[0], 1.0
    )
    case_columns["n_front"] = _partition_hits(rerank_scores, hybrid_scores)
    # Copies, since numba would compile the loops again for arrays that are read-only.
    slots_missing, slots_right = (
        np.array(slot_table[0].T, order="C") for slot_table in (evidence.missing, evidence.right)
    )
    hit_columns = HitColumns(
        np.sort(evidence.l2[0].T, axis=1),
        rerank_scores,
        hybrid_scores,
        slots_missing,
        slots_right,
        _signals_of(evidence, thresholds),
    )
    read_measurement = GateMeasurements(evidence)
    scalar_values = [_sign(gate) * read_measurement(gate.measurements[0]) for gate in _scalars()]
    return _numpy_records(
        case_columns | {"scalar": np.stack(scalar_values, axis=1)}, n_cases
    ), hit_columns


def _cost_policies(thresholds: Thresholds, n_policies: int) -> NDArray[np.void]:
    """A record a policy that decides by expected cost."""
    assert thresholds.costs is not None  # noqa: S101 - the caller asks for such policies only
    cost_columns = {**thresholds.costs._asdict(), "domain_on": thresholds.gates["domain"].on}
    return _numpy_records(
        {
            name: np.broadcast_to(column, (n_policies, 1))[:, 0]
            for name, column in cost_columns.items()
        },
        n_policies,
    )


def _cost_inputs(evidence: Evidence) -> tuple[NDArray[np.void], BoolArray]:
    """Case records as expected-cost decisions read them, and if options and answer are right."""
    n_cases = len(evidence.label)
    case_indices = np.arange(len(evidence.label))
    p_right, p_miss, p_refuse, p_ambiguous = evidence.probability[:, 0]
    case_columns: dict[str, Any] = {
        field_name: getattr(evidence, field_name)
        for field_name in ("words", "denied", "allowed", "label")
    }
    case_columns |= {
        "right": p_right,
        "miss": p_miss,
        "ok": p_right + p_miss,
        "refuse": p_refuse,
        "ambiguous": p_ambiguous,
    }
    case_columns |= {
        "asked_right": np.full(n_cases, evidence.asked_right),
        "needs_allowed": np.full(n_cases, evidence.needs_allowed),
    }
    case_columns |= {
        "n_hits": evidence.n_hits[0],
        "can_ask": evidence.n_options_all[0] >= MIN_OPTIONS,
    }
    options_right = evidence.right[0, evidence.n_slots_relevant + ASKED_SLOT]
    return _numpy_records(case_columns, n_cases), np.stack(
        [options_right, evidence.right[0, answer_slots(evidence), case_indices]], axis=1
    )


def is_compiled(thresholds: Thresholds) -> bool:
    """Whether this process has compiled what counts by such thresholds, or read it from disk."""
    counting_loop: Any = _outcome_counts if thresholds.costs is None else _cost_counts
    return bool(counting_loop.signatures)


def tallied(evidence: Evidence, thresholds: Thresholds, n_policies: int) -> IntArray:
    """Cases by code (what decided, label, expected sources found), [P, codes], of many policies.

    Of depth 0 only.

    Args:
      evidence: measurements of one depth.
      thresholds: [P, 1].
    """
    n_codes = len(STAGES) * CELLS
    thresholds = thresholds.without(evidence.off)
    if thresholds.costs is not None:
        case_records, right = _cost_inputs(evidence)
        code_counts: IntArray = _cost_counts(
            _cost_policies(thresholds, n_policies), case_records, right, STAGE_NUMBERS, n_codes
        )
        return code_counts
    case_records, hit_columns = _inputs(evidence, thresholds)
    tile_counts = by_threads(
        lambda policy_tile: _outcome_counts(
            policy_tile, case_records, hit_columns, SLOT_NUMBERS, STAGE_NUMBERS, n_codes
        ),
        _tiles(thresholds, n_policies),
    )
    return np.concatenate(tile_counts, axis=1).T.astype(np.int64)
