"""Breakpoints (algebra): sweepable thresholds, and values of one at which cases change (S3.6).

`breakpoints` are all values that a threshold can meet, `live_breakpoints` those at which a decision
may change while all other thresholds stay: what steps and flips are made of. Step functions of
parts of the cases are added by `sum_moves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from raglab import gates, metrics
from raglab.decision import chain
from raglab.decision.chain import STAGE, STAGE_OF_COST, STATUS_OF, decide_cases
from raglab.decision.measurement import Evidence
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.gates import Threshold
from raglab.gating.expected_cost import COST_PATHS
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.policy import PolicyData
from raglab.policy_parts.own_gates import (
    REGISTERED_GATES,
    OwnGate,
    critical_values,
    last_passing,
    own_gate,
)
from raglab.resolver import RULES, Contest, ties_on_entities
from raglab.signals import (
    BUILT_IN,
    BUILT_IN_SET,
    COST,
    NAMES,
    RATIO,
    SignalSet,
    is_name,
    own_signal,
)
from raglab.values import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    PlaceArray,
    SlotArray,
    Status,
    refuse,
)

# What a decision by expected cost depends on (rule S2.17). Each belongs to one action, which is
# chosen up to some value.
COST_THRESHOLDS = (
    Threshold("decision.ratio", "floor", RATIO, "ratio"),
    *(
        Threshold(f"decision.costs.{path}", "floor", COST, name)
        for name, path in COST_PATHS.items()
    ),
)


def swept_paths(
    signal_set: SignalSet = BUILT_IN_SET, user_gate_rows: tuple[OwnGate, ...] = ()
) -> Mapping[str, Threshold]:
    """Thresholds that can be swept, by path.

    Of gates that decide, in their order, of the resolver's rules, of costs.

    Args:
      signal_set: signals that there are, as `Evidence.known` has those of a trace.
      user_gate_rows: gates of the user.
    """
    if signal_set.rows == BUILT_IN and not user_gate_rows:  # as of nearly every trace
        return SWEPT
    return _swept(signal_set, user_gate_rows)


def _swept(signal_set: SignalSet, user_gate_rows: tuple[OwnGate, ...]) -> Mapping[str, Threshold]:
    rule_thresholds = (threshold for rule in RULES for threshold in rule.thresholds)
    user_thresholds = (
        threshold
        for gate in user_gate_rows
        if gate.firing != "warn"
        for threshold in gate.thresholds
    )
    return {
        threshold.path: threshold
        for threshold in (
            *gates.swept_thresholds(signal_set.rows),
            *user_thresholds,
            *rule_thresholds,
            *COST_THRESHOLDS,
        )
    }


def user_gates(thresholds: Thresholds) -> tuple[OwnGate, ...]:
    """Gates of the user that some policy has."""
    return tuple(own_gate(gate_name) for gate_name in thresholds.own)


SWEPT = _swept(BUILT_IN_SET, ())  # those of the built-in signals


def threshold_at(path: str) -> Threshold | None:
    """Threshold of a path that can be swept, None for another path.

    Of a user's own signal it has no unit and the widest range, since its trace alone knows them:
    see `swept_threshold`.
    """
    if path in SWEPT:
        return SWEPT[path]
    section_name, _, signal_bound = path.partition(".")
    signal_name, _, threshold_key = signal_bound.partition(".")
    if section_name == USER_GATES_SECTION and signal_name in REGISTERED_GATES:
        return next(
            (
                threshold
                for threshold in REGISTERED_GATES[signal_name].thresholds
                if threshold.key == threshold_key
            ),
            None,
        )
    if (
        section_name != "signals"
        or threshold_key not in ("min", "max")
        or not is_name(signal_name)
        or signal_name in NAMES
    ):
        return None
    return swept_paths(SignalSet((own_signal(signal_name, higher="surer", unit="number"),)))[path]


def breakpoints(evidence: Evidence, thresholds: Thresholds, path: str) -> FloatArray:
    """Values of a threshold at which each case may change, [B, Q], ascending, NaN at the end.

    All within its range.
    """
    swept_range = swept_threshold(evidence.known, thresholds, path)
    case_values = np.concatenate(
        [
            threshold_values(evidence, thresholds, path, depth)
            for depth in range(evidence.l2.shape[0])
        ]
    )
    is_met = (case_values >= swept_range.low) & (case_values <= swept_range.high)
    for other_threshold in SWEPT.values():  # of a gate with two thresholds each case meets one
        if other_threshold.where and other_threshold.section == swept_range.section:
            is_met &= chain.measurement(evidence, other_threshold.where) == (
                other_threshold.path == path
            )
    met_values = np.where(is_met, case_values, np.nan)
    sorted_values: FloatArray = np.sort(met_values, axis=0)
    return sorted_values[: int(np.max(np.sum(~np.isnan(sorted_values), axis=0), initial=0))]


def swept_threshold(signal_set: SignalSet, thresholds: Thresholds, path: str) -> Threshold:
    """A threshold with its range as far as one policy lets it move.

    A signal's min no further than its max (S2.15).

    Args:
      signal_set: signals that there are.

    Raises:
      ValueError: the path cannot be swept.
    """
    threshold_by_path = swept_paths(signal_set, user_gates(thresholds))
    if path not in threshold_by_path:
        listed_paths = [
            *(swept_path for swept_path, swept_range in SWEPT.items() if not swept_range.signal),
            "signals.<name>.min",
            "signals.<name>.max",
        ]
        close_paths = [
            *(known_path for known_path in threshold_by_path if known_path.endswith(f".{path}")),
            *get_close_matches(str(path), threshold_by_path, 1),
        ][:1]
        remedy = (
            f"write {close_paths[0]}"
            if close_paths
            else f"names of signals: {', '.join(signal_set.names)}"
        )
        refuse(f"path must be one of {', '.join(listed_paths)}", repr(path), remedy)
    swept_range = threshold_by_path[path]
    signal_bounds = thresholds.signals.get(swept_range.signal)
    if signal_bounds is None:
        return swept_range
    is_floor = swept_range.side == "floor"
    opposite_bound = np.asarray(signal_bounds.max if is_floor else signal_bounds.min).item()
    if np.isnan(opposite_bound):
        return swept_range
    lowest, highest = (
        (swept_range.low, min(swept_range.high, opposite_bound))
        if is_floor
        else (max(swept_range.low, opposite_bound), swept_range.high)
    )
    return swept_range._replace(unit=swept_range.unit._replace(low=lowest, high=highest))


def threshold_values(
    evidence: Evidence, thresholds: Thresholds, path: str, depth: int
) -> FloatArray:
    """Measurements that a threshold is compared with at a depth, [B, Q].

    The nearest hit first of several.

    B is the number of values that a case can have: one per hit, count or set of hits, two of
    groups, else one.
    """
    # No table has the values of a cost, or of a gate of the user: a search finds them.
    search_values = {"decision": _greatest_costs, USER_GATES_SECTION: _critical}.get(
        path.partition(".")[0]
    )
    if search_values is not None:
        return search_values(evidence, thresholds, path, depth)
    # Of several values of a case, those that are compared depend on other thresholds of the policy:
    # all are given.
    measurement_name = swept_paths(evidence.known)[path].meets
    if measurement_name == "l2":  # of every hit, since the bound also says which are relevant
        return evidence.l2[depth]
    if (
        measurement_name == "n_relevant"
    ):  # every possible count from 1, since it moves with the l2 bound
        possible_counts = np.arange(1.0, evidence.l2.shape[1] + 1.0)
        return np.broadcast_to(possible_counts[:, None], evidence.l2.shape[1:])
    if measurement_name in Contest._fields:  # of all groups, or of those that tie on entities
        return np.stack(
            [
                getattr(evidence.all, measurement_name)[depth],
                getattr(evidence.tied, measurement_name)[depth],
            ]
        )
    if measurement_name in chain.SLOT_MEASUREMENTS:  # of every set of hits that may be chosen
        return _distinct_breakpoints(chain.measurement(evidence, measurement_name)[depth])
    return _one_value(chain.GateMeasurements(evidence, depth), thresholds, measurement_name)


def _one_value(
    measurements: chain.GateMeasurements, thresholds: Thresholds, measurement_name: str
) -> FloatArray:
    """Measurement of a case at the depth that is read, [1, Q]."""
    if measurement_name == "confidence":
        measurements = replace(
            measurements,
            computed={
                measurement_name: chain.depth_confidence(
                    measurements.evidence, thresholds, int(measurements.depth)
                )[0]
            },
        )
    values: FloatArray = np.asarray(measurements(measurement_name), dtype=np.float64)[None]
    return values


def live_breakpoints(evidence: Evidence, thresholds: Thresholds, path: str) -> FloatArray:
    """Those of `breakpoints` where a decision may change if other thresholds stay fixed, [B, Q].

    Of the sets of hits that a threshold may meet, those that are chosen; of the hits that it may
    let in, those that change what anything reads. All other values of a case lie within a step of
    it.
    """
    swept_range = swept_threshold(evidence.known, thresholds, path)
    thresholds = thresholds.without(evidence.off)
    read_depths = (
        range(evidence.l2.shape[0]) if _acts(evidence, thresholds, swept_range.section) else ()
    )
    if swept_range.meets == "l2":
        values_by_depth = [
            (evidence.l2[refinement_depth], _deciding_hits(evidence, thresholds, refinement_depth))
            for refinement_depth in read_depths
        ]
    else:
        chosen_values = [
            _chosen_values(evidence, thresholds, path, refinement_depth)
            for refinement_depth in read_depths
        ]
        values_by_depth = [
            (depth_values, ~np.isnan(depth_values)) for depth_values in chosen_values
        ]
    # Each case's values below each other, those of all cases that have one at a time: most have few
    # of many.
    max_points = sum(
        int(np.add.reduce(is_live.view(np.uint8), axis=0, dtype=np.uint16).max(initial=0))
        for _, is_live in values_by_depth
    )
    case_points = np.full((max_points, len(evidence.label_code)), np.nan)
    n_points = np.zeros(len(evidence.label_code), dtype=np.int64)
    for row_values, is_live in (
        (row_values, is_live)
        for depth_pair in values_by_depth
        for row_values, is_live in zip(*depth_pair, strict=True)
    ):
        live_cases = np.flatnonzero(
            is_live & (row_values >= swept_range.low) & (row_values <= swept_range.high)
        )
        case_points[n_points[live_cases], live_cases] = row_values[live_cases]
        n_points[live_cases] += 1
    case_points = case_points[: n_points.max(initial=0)]
    return case_points if len(case_points) < 2 else np.sort(case_points, axis=0)


def acting_paths(evidence: Evidence, policy: PolicyData) -> list[str]:
    """Thresholds that a policy sets and that are compared with anything, in their order."""
    thresholds = policy_thresholds([policy]).without(evidence.off)
    threshold_by_path = swept_paths(evidence.known, user_gates(thresholds))
    return [
        path
        for path in threshold_by_path
        if policy.value(path) is not None
        and _acts(evidence, thresholds, threshold_by_path[path].section)
    ]


def _acts(evidence: Evidence, thresholds: Thresholds, section_name: str) -> bool:
    """Whether the thresholds of a section of one policy are compared with anything that decides."""
    decides_by_cost = thresholds.costs is not None
    gate_bounds = thresholds.gates.get(section_name)
    section_kind, _, gate_name = section_name.partition(".")
    if section_kind == "decision":
        return decides_by_cost
    if section_kind == USER_GATES_SECTION:
        return bool(np.any(thresholds.own[gate_name].on)) if gate_name in thresholds.own else False
    if section_kind == "signals":  # a bound that no policy sets counts as if it refused
        signal_thresholds = thresholds.signals.get(gate_name)
        return signal_thresholds is None or bool(
            np.any(signal_thresholds.on & (signal_thresholds.refuses | signal_thresholds.asks))
        )
    # expected costs decide in place of the resolver as of every gate that has a switch
    if gate_bounds is None:
        return not decides_by_cost
    return (
        not decides_by_cost
        and bool(np.any(gate_bounds.on))
        and (evidence.answered or gates.gate_by_name(section_name).judges != "answer")
    )


def _chosen_values(evidence: Evidence, thresholds: Thresholds, path: str, depth: int) -> FloatArray:
    """Measurements of the chosen hits that a threshold is compared with at a depth, [B, Q]."""
    if path.startswith(f"{USER_GATES_SECTION}."):
        gate_name, _, threshold_key = path.removeprefix(f"{USER_GATES_SECTION}.").partition(".")
        gate = own_gate(gate_name)
        measurements = chain.GateMeasurements(evidence, depth)
        if chain.SLOT_MEASUREMENTS.intersection(gate.reads):
            measurements = replace(
                measurements, slot=_slot_before_gates(evidence, thresholds, depth)
            )
        return critical_values(
            gate,
            threshold_key,
            thresholds.own[gate_name],
            measurements,
            (1, len(evidence.label_code)),
        )
    if path.startswith("decision."):
        return threshold_values(evidence, thresholds, path, depth)
    measurement_name = swept_paths(evidence.known)[path].meets
    if measurement_name == "n_relevant":
        # so that all hits are counted
        all_counted = thresholds.with_value(path, np.full((1, 1), evidence.l2.shape[1]))
        return chain.relevant_counts(evidence, all_counted, depth).astype(np.float64)
    if measurement_name in Contest._fields:
        ties_entities = np.atleast_2d(
            ties_on_entities(chain.rule_evidence(evidence, depth), thresholds.switches)
        )
        return np.where(
            ties_entities,
            getattr(evidence.tied, measurement_name)[depth],
            getattr(evidence.all, measurement_name)[depth],
        )
    if measurement_name in chain.SLOT_MEASUREMENTS:
        measurements = chain.GateMeasurements(
            evidence, depth, slot=_slot_before_gates(evidence, thresholds, depth)
        )
        return np.asarray(measurements(measurement_name), dtype=np.float64)
    return threshold_values(evidence, thresholds, path, depth)


def _slot_before_gates(evidence: Evidence, thresholds: Thresholds, depth: int) -> SlotArray:
    """Set of hits that the gates on the chosen ones judge, [1, Q]."""
    if thresholds.costs is not None:
        return chain.answer_slots(evidence)[None]
    return chain.choose_hits(evidence, thresholds, depth, (1, len(evidence.label_code)))[1]


def _deciding_hits(evidence: Evidence, thresholds: Thresholds, depth: int) -> BoolArray:
    """Hits of a depth whose relevance can change the decision, [K, Q].

    The first, the second (rule S2.4) and the one that fills up `min_keep`, and those with which the
    chosen hits lack other entities, are right or wrong, or have another answer or share of the
    question's words, where that is judged.
    """
    n_hits, n_cases = evidence.l2.shape[1:]
    is_telling = np.zeros((n_hits, n_cases), dtype=bool)
    judged_measurements = {"right", "missing"} | (
        {"generation", "support", "unfit", "unrecorded", "undecided"}
        if evidence.answered
        else set()
    )
    judged_measurements |= chain.SLOT_MEASUREMENTS.intersection(
        measurement
        for measurement_name in thresholds.own
        for measurement in own_gate(measurement_name).reads
    )
    for measurement_name in sorted(judged_measurements):
        hit_table = chain.measurement(evidence, measurement_name)[depth][: n_hits + 1]
        changes_here = hit_table[1:] != hit_table[:-1]
        if hit_table.dtype.kind == "f":
            changes_here &= ~(np.isnan(hit_table[1:]) & np.isnan(hit_table[:-1]))
        is_telling |= changes_here
    if not evidence.rank_order:  # of the nearest hits no more are chosen
        is_telling[evidence.final_k :] = False
    for hit_count in {1, 2, int(np.max(thresholds.gates["density"].min_keep))}:
        is_telling[hit_count - 1 : hit_count] = True
    return is_telling


def _greatest_costs(evidence: Evidence, thresholds: Thresholds, path: str, _: int) -> FloatArray:
    """Greatest cost at which its action is still chosen, [1, Q].

    NaN where it is chosen at none or at all.

    Floating-point sums of products rise with each factor, so there is one such number.
    """
    n_cases = len(evidence.label_code)
    swept_range = swept_paths(evidence.known)[path]
    greatest_costs = np.full((1, n_cases), np.nan)
    if thresholds.costs is None:
        return greatest_costs
    action = STAGE_OF_COST[swept_range.meets]
    # Where an answer is refused as unfit, answering was chosen all the same.
    action_stages = [
        action,
        *(
            STAGE[stage_name]
            for stage_name in chain.ANSWER_STAGES
            if STATUS_OF[action] == Status.ok
        ),
    ]
    end_thresholds = thresholds.with_value(path, np.array([[swept_range.low], [swept_range.high]]))
    acts_at_low, acts_at_high = np.isin(
        decide_cases(evidence, end_thresholds, (2, n_cases)).stage, action_stages
    )
    changing_cases = np.flatnonzero(acts_at_low & ~acts_at_high)
    case_evidence = _cost_fields(evidence, changing_cases)

    def chosen(value: FloatArray, cases: PlaceArray) -> BoolArray:
        few_evidence = _cost_fields(case_evidence, cases)
        status = chain.cheapest_action(few_evidence, thresholds.with_value(path, value[None]))
        return np.broadcast_to(status == STATUS_OF[action], (1, len(cases)))[0]

    greatest_costs[0, changing_cases] = last_passing(
        chosen, swept_range.low, swept_range.high, len(changing_cases)
    )
    return greatest_costs


def _cost_fields(evidence: Evidence, case_rows: PlaceArray) -> Evidence:
    """Evidence with what the costs of actions read cut to some cases."""
    return evidence._replace(
        probability=evidence.probability[..., case_rows],
        asked_right=evidence.asked_right[case_rows],
        n_options_all=evidence.n_options_all[..., case_rows],
    )


def _critical(evidence: Evidence, thresholds: Thresholds, path: str, depth: int) -> FloatArray:
    """Value of a threshold of the user's gate at which each case changes at a depth, [B, Q].

    By slot where it reads it.

    Source: rule S2.18.
    """
    gate_name, _, threshold_key = path.removeprefix(f"{USER_GATES_SECTION}.").partition(".")
    gate = own_gate(gate_name)
    n_cases = len(evidence.label)
    if not chain.SLOT_MEASUREMENTS.intersection(gate.reads):
        measurements = chain.GateMeasurements(evidence, depth)
        return critical_values(
            gate, threshold_key, thresholds.own[gate_name], measurements, (1, n_cases)
        )
    slot_measurements = chain.read_by_slot(evidence, depth)
    slots_shape = (evidence.missing.shape[1], n_cases)
    return _distinct_breakpoints(
        critical_values(
            gate, threshold_key, thresholds.own[gate_name], slot_measurements, slots_shape
        )
    )


def _distinct_breakpoints(case_values: FloatArray) -> FloatArray:
    """Each column's values once, ascending, NaN at the end, [most, Q].

    Example:
      >>> _distinct_breakpoints(np.array([[0.3], [0.1], [0.3]]))[:, 0].tolist()
      [0.1, 0.3]
    """
    sorted_values = np.sort(case_values, axis=0)
    is_repeated = np.zeros(sorted_values.shape, dtype=bool)
    is_repeated[1:] = sorted_values[1:] == sorted_values[:-1]
    distinct_values: FloatArray = np.sort(np.where(is_repeated, np.nan, sorted_values), axis=0)
    return distinct_values[: int(np.max(np.sum(~np.isnan(distinct_values), axis=0), initial=0))]


class StepCells(NamedTuple):
    """Cells of a step function of one threshold: step i holds from low[i] to high[i].

    Cells [N, 20].
    """

    low: FloatArray
    high: FloatArray
    cells: IntArray


NO_STEPS = StepCells(np.empty(0), np.empty(0), np.empty((0, metrics.N_CELLS), dtype=np.int64))


class Moves(NamedTuple):
    """Where the cases of a trace go as a threshold rises.

    What step functions of parts are added by.

    first: cases by cell at the low end of its range, [18]. at: value at which a case changes its
    cell, [E]. before, after: the cells, [E]. weight: of the case that moves, [E]; None where each
    is 1.
    """

    first: IntArray
    at: FloatArray
    before: CodeArray
    after: CodeArray
    weight: FloatArray | None = None


def sum_moves(
    part_moves: Sequence[Moves], swept_range: Threshold, resolution: int | None = None
) -> StepCells:
    """Step function over all cases of some parts; the same to the bit however the cases are parted.

    Args:
      resolution: see `steps`.
    """
    move_values, cells_before, cells_after = (
        np.concatenate([moves[field_index] for moves in part_moves]) for field_index in (1, 2, 3)
    )
    move_values += 0.0  # so that no order of the parts decides whether a zero has a sign
    if resolution is not None:
        move_values = _snapped(move_values, swept_range, resolution)
    change_values, change_index = np.unique(move_values, return_inverse=True)
    # A row a cell, so that each is summed along one stretch of memory.
    n_steps = len(change_values) + 1
    gained_index, lost_index = (
        cell_codes * np.int64(n_steps) + change_index + 1
        for cell_codes in (cells_after, cells_before)
    )
    part_weights = [moves.weight for moves in part_moves if moves.weight is not None]
    move_weights = np.concatenate(part_weights) if part_weights else None
    cell_changes = np.bincount(gained_index, move_weights, minlength=metrics.N_CELLS * n_steps)
    cell_changes -= np.bincount(lost_index, move_weights, minlength=metrics.N_CELLS * n_steps)
    cell_changes = cell_changes.reshape(-1, n_steps)
    step_starts = np.flatnonzero(np.concatenate([[True], cell_changes[:, 1:].any(axis=0)]))
    cell_changes[:, 0] = np.sum([moves.first for moves in part_moves], axis=0)
    np.cumsum(cell_changes, axis=1, out=cell_changes)
    step_edges = np.concatenate([[swept_range.low], change_values, [swept_range.high]])
    step_ends = np.append(step_starts[1:], len(step_edges) - 1)
    return StepCells(
        step_edges[:-1][step_starts],
        step_edges[step_ends],
        np.ascontiguousarray(cell_changes[:, step_starts].T),
    )


def _snapped(move_values: FloatArray, swept_range: Threshold, resolution: int) -> FloatArray:
    """Values moved to a few of them, evenly spaced in order, so counts there stay exact, [E].

    A change at a value of a ceiling counts from there on, of a floor only beyond: moved up to the
    next one that stays, or down to it, it counts at just those that it counted at before.

    Example: of four values of a ceiling two stay, and the others move up.
      >>> _snapped(np.array([0.1, 0.2, 0.3, 0.4]), SWEPT["l2.max_l2"], 3).tolist()
      [0.1, 0.4, 0.4, 0.4]
    """
    distinct_values = np.unique(move_values)
    if len(distinct_values) < resolution:
        return move_values
    grid_indices = np.linspace(0, len(distinct_values) - 1, resolution - 1).round().astype(np.int64)
    if swept_range.side == "ceiling":
        grid_indices[-1] = (
            len(distinct_values) - 1
        )  # also of one place: every value has one above it to move to
    grid_values = distinct_values[grid_indices]
    if swept_range.side == "ceiling":
        return grid_values[np.searchsorted(grid_values, move_values, side="left")]
    return grid_values[np.searchsorted(grid_values, move_values, side="right") - 1]
