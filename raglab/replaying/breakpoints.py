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
from raglab.gating.expected_cost import PATHS
from raglab.gating.own_margins import OWN
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

# What a decision by expected cost hangs on (rule S2.17). Each belongs to one action, which is
# chosen up to some value.
COST_THRESHOLDS = (
    Threshold("decision.ratio", "floor", RATIO, "ratio"),
    *(Threshold(f"decision.costs.{path}", "floor", COST, name) for name, path in PATHS.items()),
)


def swept_paths(
    known: SignalSet = BUILT_IN_SET, own: tuple[OwnGate, ...] = ()
) -> Mapping[str, Threshold]:
    """Thresholds that can be swept, by path.

    Of gates that decide, in their order, of the resolver's rules, of costs.

    Args:
      known: signals that there are, as `Evidence.known` has those of a trace.
      own: gates of the user.
    """
    if known.rows == BUILT_IN and not own:  # as of nearly every trace
        return SWEPT
    return _swept(known, own)


def _swept(known: SignalSet, own: tuple[OwnGate, ...]) -> Mapping[str, Threshold]:
    rules = (threshold for rule in RULES for threshold in rule.thresholds)
    of_user = (threshold for gate in own if gate.firing != "warn" for threshold in gate.thresholds)
    return {
        threshold.path: threshold
        for threshold in (*gates.swept_thresholds(known.rows), *of_user, *rules, *COST_THRESHOLDS)
    }


def user_gates(thresholds: Thresholds) -> tuple[OwnGate, ...]:
    """Gates of the user that some policy has."""
    return tuple(own_gate(name) for name in thresholds.own)


SWEPT = _swept(BUILT_IN_SET, ())  # those of the built-in signals


def threshold_at(path: str) -> Threshold | None:
    """Threshold of a path that can be swept, None where it is none.

    Of a user's own signal it has no unit and the widest range, since its trace alone knows them:
    see `swept_threshold`.
    """
    if path in SWEPT:
        return SWEPT[path]
    section, _, rest = path.partition(".")
    name, _, bound = rest.partition(".")
    if section == OWN and name in REGISTERED_GATES:
        return next(
            (
                threshold
                for threshold in REGISTERED_GATES[name].thresholds
                if threshold.key == bound
            ),
            None,
        )
    if section != "signals" or bound not in ("min", "max") or not is_name(name) or name in NAMES:
        return None
    return swept_paths(SignalSet((own_signal(name, higher="surer", unit="number"),)))[path]


def breakpoints(evidence: Evidence, thresholds: Thresholds, path: str) -> FloatArray:
    """Values of a threshold at which each case may change, [B, Q], ascending, NaN at the end.

    All within its range.
    """
    swept = swept_threshold(evidence.known, thresholds, path)
    flat = np.concatenate(
        [
            threshold_values(evidence, thresholds, path, depth)
            for depth in range(evidence.l2.shape[0])
        ]
    )
    meets = (flat >= swept.low) & (flat <= swept.high)
    for special in SWEPT.values():  # of a gate with two thresholds each case meets one
        if special.where and special.section == swept.section:
            meets &= chain.measurement(evidence, special.where) == (special.path == path)
    values = np.where(meets, flat, np.nan)
    ordered: FloatArray = np.sort(values, axis=0)
    return ordered[: int(np.max(np.sum(~np.isnan(ordered), axis=0), initial=0))]


def swept_threshold(known: SignalSet, thresholds: Thresholds, path: str) -> Threshold:
    """A threshold with its range as far as one policy lets it move.

    A signal's min no further than its max (S2.15).

    Args:
      known: signals that there are.

    Raises:
      ValueError: the path cannot be swept.
    """
    paths = swept_paths(known, user_gates(thresholds))
    if path not in paths:
        named = [
            *(swept_path for swept_path, swept in SWEPT.items() if not swept.signal),
            "signals.<name>.min",
            "signals.<name>.max",
        ]
        near = [
            *(at for at in paths if at.endswith(f".{path}")),
            *get_close_matches(str(path), paths, 1),
        ][:1]
        remedy = f"write {near[0]}" if near else f"names of signals: {', '.join(known.names)}"
        refuse(f"path must be one of {', '.join(named)}", repr(path), remedy)
    swept = paths[path]
    gate = thresholds.signals.get(swept.signal)
    if gate is None:
        return swept
    floor = swept.side == "floor"
    opposite = np.asarray(gate.max if floor else gate.min).item()
    if np.isnan(opposite):
        return swept
    low, high = (
        (swept.low, min(swept.high, opposite)) if floor else (max(swept.low, opposite), swept.high)
    )
    return swept._replace(unit=swept.unit._replace(low=low, high=high))


def threshold_values(
    evidence: Evidence, thresholds: Thresholds, path: str, depth: int
) -> FloatArray:
    """Measurements that a threshold is compared with at a depth, [B, Q].

    The nearest hit first of several.

    B is the number of values that a case can have: one per hit, count or set of hits, two of
    groups, else one.
    """
    # No table has the values of a cost, or of a gate of the user: a search finds them.
    by_search = {"decision": _greatest_costs, OWN: _critical}.get(path.partition(".")[0])
    if by_search is not None:
        return by_search(evidence, thresholds, path, depth)
    # Of several values of a case, those that are compared depend on other thresholds of the policy:
    # all are given.
    meets = swept_paths(evidence.known)[path].meets
    if meets == "l2":  # of every hit, since the bound also says which are relevant
        return evidence.l2[depth]
    if meets == "n_relevant":  # every possible count from 1, since it moves with the l2 bound
        counts = np.arange(1.0, evidence.l2.shape[1] + 1.0)
        return np.broadcast_to(counts[:, None], evidence.l2.shape[1:])
    if meets in Contest._fields:  # of all groups, or of those that tie on entities
        return np.stack([getattr(evidence.all, meets)[depth], getattr(evidence.tied, meets)[depth]])
    if meets in chain.SLOT_MEASUREMENTS:  # of every set of hits that may be chosen
        return _distinct_breakpoints(chain.measurement(evidence, meets)[depth])
    return _one_value(chain.GateMeasurements(evidence, depth), thresholds, meets)


def _one_value(read: chain.GateMeasurements, thresholds: Thresholds, meets: str) -> FloatArray:
    """Measurement of a case at the depth that is read, [1, Q]."""
    if meets == "confidence":
        read = replace(
            read,
            computed={meets: chain.depth_confidence(read.evidence, thresholds, int(read.depth))[0]},
        )
    values: FloatArray = np.asarray(read(meets), dtype=np.float64)[None]
    return values


def live_breakpoints(evidence: Evidence, thresholds: Thresholds, path: str) -> FloatArray:
    """Those of `breakpoints` where a decision may change if other thresholds stay fixed, [B, Q].

    Of the sets of hits that a threshold may meet, those that are chosen; of the hits that it may
    let in, those that change what anything reads. All other values of a case lie within a step of
    it.
    """
    swept, thresholds = (
        swept_threshold(evidence.known, thresholds, path),
        thresholds.without(evidence.off),
    )
    depths = range(evidence.l2.shape[0]) if _acts(evidence, thresholds, swept.section) else ()
    if swept.meets == "l2":
        rows = [
            (evidence.l2[depth], _deciding_hits(evidence, thresholds, depth)) for depth in depths
        ]
    else:
        values = [_chosen_values(evidence, thresholds, path, depth) for depth in depths]
        rows = [(depth_values, ~np.isnan(depth_values)) for depth_values in values]
    # Each case's values below each other, those of all cases that have one at a time: most have few
    # of many.
    most = sum(
        int(np.add.reduce(there.view(np.uint8), axis=0, dtype=np.uint16).max(initial=0))
        for _, there in rows
    )
    points = np.full((most, len(evidence.label_code)), np.nan)
    n_points = np.zeros(len(evidence.label_code), dtype=np.int64)
    for value, there in (
        (value, there) for of_depth in rows for value, there in zip(*of_depth, strict=True)
    ):
        cases = np.flatnonzero(there & (value >= swept.low) & (value <= swept.high))
        points[n_points[cases], cases] = value[cases]
        n_points[cases] += 1
    points = points[: n_points.max(initial=0)]
    return points if len(points) < 2 else np.sort(points, axis=0)


def acting_paths(evidence: Evidence, policy: PolicyData) -> list[str]:
    """Thresholds that a policy sets and that are compared with anything, in their order."""
    thresholds = policy_thresholds([policy]).without(evidence.off)
    swept = swept_paths(evidence.known, user_gates(thresholds))
    return [
        path
        for path in swept
        if policy.value(path) is not None and _acts(evidence, thresholds, swept[path].section)
    ]


def _acts(evidence: Evidence, thresholds: Thresholds, section: str) -> bool:
    """Whether the thresholds of a section of one policy are compared with anything that decides."""
    by_cost, gate = thresholds.costs is not None, thresholds.gates.get(section)
    kind, _, name = section.partition(".")
    if kind == "decision":
        return by_cost
    if kind == OWN:
        return bool(np.any(thresholds.own[name].on)) if name in thresholds.own else False
    if kind == "signals":  # a bound that no policy sets counts as if it refused
        signal_thresholds = thresholds.signals.get(name)
        return signal_thresholds is None or bool(
            np.any(signal_thresholds.on & (signal_thresholds.refuses | signal_thresholds.asks))
        )
    # expected costs decide in place of the resolver as of every gate that has a switch
    if gate is None:
        return not by_cost
    return (
        not by_cost
        and bool(np.any(gate.on))
        and (evidence.answered or gates.gate_by_name(section).judges != "answer")
    )


def _chosen_values(evidence: Evidence, thresholds: Thresholds, path: str, depth: int) -> FloatArray:
    """Measurements of the chosen hits that a threshold is compared with at a depth, [B, Q]."""
    if path.startswith(f"{OWN}."):
        name, _, key = path.removeprefix(f"{OWN}.").partition(".")
        gate = own_gate(name)
        read = chain.GateMeasurements(evidence, depth)
        if chain.SLOT_MEASUREMENTS.intersection(gate.reads):
            read = replace(read, slot=_slot_before_gates(evidence, thresholds, depth))
        return critical_values(gate, key, thresholds.own[name], read, (1, len(evidence.label_code)))
    if path.startswith("decision."):
        return threshold_values(evidence, thresholds, path, depth)
    meets = swept_paths(evidence.known)[path].meets
    if meets == "n_relevant":
        # so that all hits are counted
        every = thresholds.with_value(path, np.full((1, 1), evidence.l2.shape[1]))
        return chain.relevant_counts(evidence, every, depth).astype(np.float64)
    if meets in Contest._fields:
        tied = np.atleast_2d(
            ties_on_entities(chain.rule_evidence(evidence, depth), thresholds.switches)
        )
        return np.where(
            tied, getattr(evidence.tied, meets)[depth], getattr(evidence.all, meets)[depth]
        )
    if meets in chain.SLOT_MEASUREMENTS:
        read = chain.GateMeasurements(
            evidence, depth, slot=_slot_before_gates(evidence, thresholds, depth)
        )
        return np.asarray(read(meets), dtype=np.float64)
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
    n_hits, size = evidence.l2.shape[1:]
    telling = np.zeros((n_hits, size), dtype=bool)
    judged = {"right", "missing"} | (
        {"generation", "support", "unfit", "unrecorded", "undecided"}
        if evidence.answered
        else set()
    )
    judged |= chain.SLOT_MEASUREMENTS.intersection(
        measurement for name in thresholds.own for measurement in own_gate(name).reads
    )
    for name in sorted(judged):
        table = chain.measurement(evidence, name)[depth][: n_hits + 1]
        changes = table[1:] != table[:-1]
        if table.dtype.kind == "f":
            changes &= ~(np.isnan(table[1:]) & np.isnan(table[:-1]))
        telling |= changes
    if not evidence.rank_order:  # of the nearest hits no more are chosen
        telling[evidence.final_k :] = False
    for count in {1, 2, int(np.max(thresholds.gates["density"].min_keep))}:
        telling[count - 1 : count] = True
    return telling


def _greatest_costs(evidence: Evidence, thresholds: Thresholds, path: str, _: int) -> FloatArray:
    """Greatest cost at which its action is still chosen, [1, Q].

    NaN where it is chosen at none or at all.

    Floating-point sums of products rise with each factor, so there is one such number.
    """
    size, swept = len(evidence.label_code), swept_paths(evidence.known)[path]
    dearest = np.full((1, size), np.nan)
    if thresholds.costs is None:
        return dearest
    action = STAGE_OF_COST[swept.meets]
    # Where an answer is refused as unfit, answering was chosen all the same.
    counts_as = [
        action,
        *(STAGE[name] for name in chain.ANSWER_STAGES if STATUS_OF[action] == Status.ok),
    ]
    ends = thresholds.with_value(path, np.array([[swept.low], [swept.high]]))
    at_low, at_high = np.isin(decide_cases(evidence, ends, (2, size)).stage, counts_as)
    changing = np.flatnonzero(at_low & ~at_high)
    of_cases = _cost_fields(evidence, changing)

    def chosen(value: FloatArray, cases: PlaceArray) -> BoolArray:
        few = _cost_fields(of_cases, cases)
        status = chain.cheapest_action(few, thresholds.with_value(path, value[None]))
        return np.broadcast_to(status == STATUS_OF[action], (1, len(cases)))[0]

    dearest[0, changing] = last_passing(chosen, swept.low, swept.high, len(changing))
    return dearest


def _cost_fields(evidence: Evidence, rows: PlaceArray) -> Evidence:
    """Evidence with what the costs of actions read cut to some cases."""
    return evidence._replace(
        probability=evidence.probability[..., rows],
        asked_right=evidence.asked_right[rows],
        n_options_all=evidence.n_options_all[..., rows],
    )


def _critical(evidence: Evidence, thresholds: Thresholds, path: str, depth: int) -> FloatArray:
    """Value of a threshold of the user's gate at which each case changes at a depth, [B, Q].

    By slot where it reads it.

    Source: rule S2.18.
    """
    name, _, key = path.removeprefix(f"{OWN}.").partition(".")
    gate, size = own_gate(name), len(evidence.label)
    if not chain.SLOT_MEASUREMENTS.intersection(gate.reads):
        read = chain.GateMeasurements(evidence, depth)
        return critical_values(gate, key, thresholds.own[name], read, (1, size))
    of_slots, shape = chain.read_by_slot(evidence, depth), (evidence.missing.shape[1], size)
    return _distinct_breakpoints(critical_values(gate, key, thresholds.own[name], of_slots, shape))


def _distinct_breakpoints(values: FloatArray) -> FloatArray:
    """Each column's values once, ascending, NaN at the end, [most, Q]."""
    ordered = np.sort(values, axis=0)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[1:] = ordered[1:] == ordered[:-1]
    points: FloatArray = np.sort(np.where(repeated, np.nan, ordered), axis=0)
    return points[: int(np.max(np.sum(~np.isnan(points), axis=0), initial=0))]


class StepCells(NamedTuple):
    """Cells of a step function of one threshold: step i holds from low[i] to high[i].

    Cells [N, 20].
    """

    low: FloatArray
    high: FloatArray
    cells: IntArray


NOTHING = StepCells(np.empty(0), np.empty(0), np.empty((0, metrics.N_CELLS), dtype=np.int64))


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


def sum_moves(parts: Sequence[Moves], swept: Threshold, resolution: int | None = None) -> StepCells:
    """Step function over all cases of some parts; the same to the bit however the cases are parted.

    Args:
      resolution: see `steps`.
    """
    values, before, after = (np.concatenate([part[field] for part in parts]) for field in (1, 2, 3))
    values += 0.0  # so that no order of the parts decides whether a zero has a sign
    if resolution is not None:
        values = _snapped(values, swept, resolution)
    at, row = np.unique(values, return_inverse=True)
    # A row a cell, so that each is summed along one stretch of memory.
    width = len(at) + 1
    gained, lost = (cell * np.int64(width) + row + 1 for cell in (after, before))
    by = [part.weight for part in parts if part.weight is not None]
    weight = np.concatenate(by) if by else None
    total = np.bincount(gained, weight, minlength=metrics.N_CELLS * width)
    total -= np.bincount(lost, weight, minlength=metrics.N_CELLS * width)
    total = total.reshape(-1, width)
    starts = np.flatnonzero(np.concatenate([[True], total[:, 1:].any(axis=0)]))
    total[:, 0] = np.sum([part.first for part in parts], axis=0)
    np.cumsum(total, axis=1, out=total)
    edges = np.concatenate([[swept.low], at, [swept.high]])
    ends = np.append(starts[1:], len(edges) - 1)
    return StepCells(edges[:-1][starts], edges[ends], np.ascontiguousarray(total[:, starts].T))


def _snapped(values: FloatArray, swept: Threshold, resolution: int) -> FloatArray:
    """Values moved to a few of them, evenly spaced in order, so counts there stay exact, [E].

    A change at a value of a ceiling counts from there on, of a floor only beyond: moved up to the
    next one that stays, or down to it, it counts at just those that it counted at before.
    """
    ordered = np.unique(values)
    if len(ordered) < resolution:
        return values
    places = np.linspace(0, len(ordered) - 1, resolution - 1).round().astype(np.int64)
    if swept.side == "ceiling":
        places[-1] = len(ordered) - 1  # also of one place: every value has one above it to move to
    grid = ordered[places]
    if swept.side == "ceiling":
        return grid[np.searchsorted(grid, values, side="left")]
    return grid[np.searchsorted(grid, values, side="right") - 1]
