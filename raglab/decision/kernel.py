"""The compiled kernel of the chain (algebra): the same decisions in numba.

It takes a case under many policies at a time.

A twin of `chain.gate_depth` for traces without refinement. Margins are formed as in `gates` and
`resolver`, a difference against zero, so that NaN never passes. A case meets some policies at once:
what hangs on the case alone is settled once, and the loops over policies have no branch and no
table in them beside their columns, so that one instruction compares several. Look-ups in tables
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
    BY_SLOT,
    COMPUTED,
    NONE,
    SLOT_TABLE,
    STAGE,
    STAGES,
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

TILE = 128  # policies whose thresholds and counts stay in the cache while all cases pass
SLOTS = SLOT_TABLE.astype(np.int64)
# Each with code of its own here, the twin of its primitive.
COMPILED = frozenset({"domain", "l2", "density", "gap", "coverage", SIGNALS, "confidence"})
# Their primitives are `headroom` of one measurement, as of a row without a primitive of its own.
PLAIN = frozenset({"similarity", "fused"})


# Numbers of the outcomes by name, which the compiled code decides by; asked_slot: slot, after those
# of relevant hits, of the options that a gate on a signal offers.
Numbers = namedtuple("Numbers", (*STAGE, "asked_slot"))  # type: ignore[misc]  # noqa: PYI024
NUMBERS: Any = Numbers._make([*STAGE.values(), int(ASKED_SLOT)])


def complete() -> bool:
    """Whether the compiled code knows every gate that decides before an answer is there."""
    before = [gate for gate in gates.GATES if gate.firing != "warn" and gate.judges != "answer"]
    return all(gate.name in COMPILED or gate in _scalars() for gate in before)


def _scalars() -> tuple[gates.Gate, ...]:
    """Gates on the chosen hits that compare one case measurement, which depends on no policy."""
    return tuple(
        gate
        for gate in gates.judging_gates("chosen")
        if gate.firing == "refuse"
        and (gate.name in PLAIN or (gate.margins is None and gate.name not in COMPILED))
        and gate.measurements[0] not in BY_SLOT | COMPUTED
    )


@compile_kernel()
def _partition_hits(rerank: Any, hybrid: Any) -> Any:
    """Move the hits that can be the best for some blend to the front; says how many, [Q].

    A hit with both scores no greater than another's cannot: rounding keeps the order of sums.
    """
    n_front = np.zeros(len(rerank), dtype=np.int64)
    for q in range(len(rerank)):
        first, second = rerank[q].copy(), hybrid[q].copy()
        for k in range(len(first)):
            beaten = np.isnan(first[k]) or np.isnan(second[k])
            for j in range(len(first)):
                no_less = first[j] >= first[k] and second[j] >= second[k]
                beaten |= no_less and (j < k or first[j] > first[k] or second[j] > second[k])
            if not beaten:
                rerank[q, n_front[q]], hybrid[q, n_front[q]] = first[k], second[k]
                n_front[q] += 1
    return n_front


@compile_kernel()
def _decide_by_cost(case: Any, policy: Any, number: Any) -> int:
    """Stage of one case under one policy that decides by expected cost.

    Sums in the order of `expected_costs`.
    """
    if case.words < 1:
        return int(number.empty_query)
    if policy.domain_on and case.denied > 0:
        return int(number.deny)
    if policy.domain_on and case.needs_allowed and case.allowed < 1:
        return int(number.allow)
    if case.n_hits == 0:
        return int(number.no_hits)
    wrong = (
        policy.wrong_ok * case.miss
        + policy.wrong_refuse * case.refuse
        + policy.wrong_ambiguous * case.ambiguous
    )
    answer_cost = policy.right * case.right + policy.ratio * wrong
    refuse_cost = (
        policy.refused_ok * case.ok
        + policy.refused_refuse * case.refuse
        + policy.refused_ambiguous * case.ambiguous
    )
    idle = policy.asked_right * case.asked_right + policy.asked_ambiguous * (1.0 - case.asked_right)
    ask_cost = policy.asked_ok * case.ok + policy.asked_refuse * case.refuse + idle * case.ambiguous
    if case.can_ask and ask_cost < refuse_cost and ask_cost <= answer_cost:
        return int(number.least_cost_ask)
    # a cost that is not known is no reason to act
    answers = answer_cost < refuse_cost and not np.isnan(ask_cost)
    return int(number.least_cost_answer) if answers else int(number.least_cost_refuse)


@compile_kernel()
def _cost_counts(policies: Any, cases: Any, right: Any, number: Any, codes: int) -> Any:
    """How often each policy met each (stage, label, expected sources found), [P, codes].

    right: of the options and of an answer, [Q, 2].
    """
    counts = np.zeros((len(policies), codes), dtype=np.int64)
    for p in range(len(policies)):
        for q in range(len(cases)):
            stage = _decide_by_cost(cases[q], policies[p], number)
            is_right = right[q, 0] if stage == number.least_cost_ask else right[q, 1]
            counts[p, stage * CELLS + cases[q].label * 2 + is_right] += 1
    return counts


class PolicyColumns(NamedTuple):
    """Thresholds of the policies, [P] each, to compare several policies in one instruction.

    min_keep: 0 where the density gate is off. coverage_stage, confidence_stage, scalar_stage: what
    the gate decides, `NONE` where it is off, so that it never does. scalar_stage, scalar_bound: of
    the scalar gates on the chosen hits, [gates, P]. signal_bound, signal_stage: bounds of signals
    that some policy sets, [B, P], upper ones with their signs changed, and what each decides.
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
def _new_tile(n_hits: int, size: int) -> Any:
    ints, floats = np.int64, np.float64
    return Tile(
        np.empty(size, floats),
        np.empty(size, floats),
        np.empty(size, ints),
        np.empty(size, ints),
        np.empty(size, ints),
        np.empty(size, ints),
        np.empty(size, ints),
        np.empty(n_hits + 2, floats),
        np.empty(n_hits, floats),
        np.empty(n_hits + 1, ints),
    )


@compile_kernel()
def _find_edges(case: Any, l2: Any, missing: Any, right: Any, tile: Any) -> int:
    """Number of distances at which one more hit changes the decision, [K] in `edge`.

    Its sets of hits lack other entities, or are right or wrong. chosen: a slot that stands for all
    from one such distance to the next.
    """
    count, slot = 0, 0
    tile.chosen[0] = 0
    for k in range(min(len(l2), case.most_slots)):
        if (missing[k + 1] > 0) != (missing[slot] > 0) or right[k + 1] != right[slot]:
            slot = k + 1
            tile.edge[count] = l2[k]
            count += 1
            tile.chosen[count] = slot
    return count


@compile_kernel()
def _refuse_early(case: Any, policies: Any, size: int, l2: Any, number: Any, tile: Any) -> None:
    """Write what refuses before hits are chosen, `NONE` if nothing, and how far a hit may lie."""
    # Fewer hits than `min_keep` is a NaN, which meets no bound; 0 of them is nearer than every
    # bound.
    n_hits, best = len(l2), case.best_l2
    tile.nearest[0], tile.nearest[n_hits + 1] = -np.inf, np.nan
    for k in range(n_hits):
        tile.nearest[k + 1] = l2[k]
    for i in range(size):
        tile.score[i] = tile.nearest[min(policies.min_keep[i], n_hits + 1)]
    of_l2, of_density = number.l2, number.density
    for i in range(size):
        on = policies.l2_on[i]
        near = policies.max_l2[i] - best >= 0.0
        soft = policies.soft_max_l2[i] - best >= 0.0
        bound = policies.max_l2[i] if near else policies.soft_max_l2[i]
        cut = bound if on else np.inf
        dense = NONE if tile.score[i] <= cut else of_density
        tile.early[i] = of_l2 if on & (not (near | soft)) else dense
        tile.cut[i] = cut
    if case.needs_allowed and case.allowed < 1:
        for i in range(size):
            tile.early[i] = number.allow if policies.domain_on[i] else tile.early[i]
    if case.denied > 0:
        for i in range(size):
            tile.early[i] = number.deny if policies.domain_on[i] else tile.early[i]


@compile_kernel()
def _resolve_case(case: Any, policies: Any, size: int, number: Any, tile: Any) -> None:
    """Write the stage of the resolver, and whether rule `entities` speaks."""
    # What the case alone decides is settled before the loop over policies, which then has no
    # branch.
    one_of_all, one_of_tied = case.n_options[0] == 1, case.n_options[1] == 1
    last_all = number.single_option if one_of_all else number.options
    last_tied = number.single_option if one_of_tied else number.options
    over_stage = number.single_option if one_of_all else number.overview
    # Where it speaks, the rules after it choose among the groups that tie on entities.
    near_all, near_tied = case.group_gap[0], case.group_gap[1]
    best_sig_all, best_sig_tied = case.best_signature[0], case.best_signature[1]
    gap_sig_all, gap_sig_tied = case.gap_signature[0], case.gap_signature[1]
    best_anchor_all, best_anchor_tied = case.best_anchor[0], case.best_anchor[1]
    gap_anchor_all, gap_anchor_tied = case.gap_anchor[0], case.gap_anchor[1]
    asks, full, winner, lifted = (
        not case.skips_entities,
        case.full_entities,
        case.has_winner,
        case.names_entity,
    )
    overview, of_entities, of_gap = case.overview, number.entities, number.group_gap
    of_signature, of_anchor = number.signature_similarity, number.anchor_similarity
    for i in range(size):
        speaks = policies.entities[i] & asks & (full | (not policies.require_full[i]))
        near = (near_tied if speaks else near_all) - policies.min_group_gap[i] >= 0.0
        best_signature, gap_signature = (
            best_sig_tied if speaks else best_sig_all,
            gap_sig_tied if speaks else gap_sig_all,
        )
        signature = (best_signature - policies.min_sig_sim[i] >= 0.0) & (
            gap_signature - policies.min_sig_sim_gap[i] >= 0.0
        )
        best_anchor, gap_anchor = (
            best_anchor_tied if speaks else best_anchor_all,
            gap_anchor_tied if speaks else gap_anchor_all,
        )
        anchor = (best_anchor - policies.min_anchor_sim[i] >= 0.0) & (
            gap_anchor - policies.min_anchor_sim_gap[i] >= 0.0
        )
        # The last one written is the first of the rules that decides.
        stage = last_tied if speaks else last_all
        stage = of_anchor if anchor else stage
        stage = of_signature if signature else stage
        stage = of_gap if near else stage
        stage = of_entities if speaks & winner else stage
        # An overview asks before entities decide, unless an entity lifts it (rule S3.3).
        over = policies.overview[i] & overview & (not (policies.overview_entities_lift[i] & lifted))
        tile.stage[i] = over_stage if over else stage
        tile.tied[i] = 1 if speaks & (not over) else 0


@compile_kernel()
def _choose_hits(
    case: Any, policies: Any, size: int, l2: Any, slots: Any, n_edges: int, number: Any, tile: Any
) -> None:
    """Write stage and slot before any gate on the chosen hits.

    The relevant ones, or what the resolver picks.
    """
    n_hits = len(l2)
    tile.slot[:size] = 0
    for e in range(n_edges):
        edge = tile.edge[e]
        for i in range(size):
            tile.slot[i] += 1 if tile.cut[i] >= edge else 0
    if case.agree or n_hits == 1:
        tile.stage[:size] = number.gap
        for i in range(size):
            tile.slot[i] = tile.chosen[tile.slot[i]]
        return
    if case.n_groups == 1:
        tile.stage[:size] = number.single_group
        tile.tied[:size] = 0
    else:
        _resolve_case(case, policies, size, number, tile)
    second, gap, of_gap = l2[1], case.gap, number.gap
    for i in range(size):
        alone = not second <= tile.cut[i]
        direct = alone | (not policies.gap_on[i]) | (gap - policies.min_gap[i] >= 0.0)
        tile.stage[i] = of_gap if direct else tile.stage[i]
    for i in range(size):
        picked = n_hits + 1 + slots[tile.tied[i], tile.stage[i]]
        relevant = tile.chosen[tile.slot[i]]
        tile.slot[i] = relevant if tile.stage[i] == of_gap else picked


@compile_kernel()
def _blend_scores(case: Any, policies: Any, size: int, rerank: Any, hybrid: Any, tile: Any) -> None:
    """Write the first hits' blended confidence, as `signals.retrieval_confidence` has it."""
    tile.score[:size] = 0.0
    if case.n_front > 0:
        for i in range(size):
            blend = policies.blend[i]
            tile.score[i] = blend * rerank[0] + (1.0 - blend) * hybrid[0]
        for k in range(1, case.n_front):
            for i in range(size):
                blend = policies.blend[i]
                score = blend * rerank[k] + (1.0 - blend) * hybrid[k]
                tile.score[i] = max(tile.score[i], score)
    for i in range(size):
        whole = case.degenerate | (policies.blend[i] == 1.0)
        tile.score[i] = case.unblended if whole else 100.0 * tile.score[i]


@compile_kernel()
def _judge_chosen(
    case: Any, policies: Any, size: int, missing: Any, number: Any, tile: Any
) -> None:
    """Lower answers to the first firing gate on the chosen hits, and all to an early refusal."""
    for i in range(size):
        tile.fired[i] = policies.coverage_stage[i] if missing[tile.slot[i]] > 0 else NONE
    tau = policies.tau_explicit if case.explicit else policies.tau_default
    for i in range(size):
        lacking = NONE if tile.score[i] - tau[i] >= 0.0 else policies.confidence_stage[i]
        tile.fired[i] = min(tile.fired[i], lacking)
    for g in range(len(case.scalar)):
        bound, stage, value = policies.scalar_bound[g], policies.scalar_stage[g], case.scalar[g]
        for i in range(size):
            lacking = NONE if value - bound[i] >= 0.0 else stage[i]
            tile.fired[i] = min(tile.fired[i], lacking)
    answers = number.gap
    for i in range(size):
        stage, early = tile.stage[i], tile.early[i]
        stage = min(stage, tile.fired[i]) if stage >= answers else stage
        tile.stage[i] = early if early < NONE else stage
        tile.slot[i] = 0 if early < NONE else tile.slot[i]


@compile_kernel()
def _gate_signals(
    case: Any, policies: Any, size: int, measured: Any, options_slot: int, number: Any, tile: Any
) -> None:
    """Lower what was decided to the first gate on a signal that fires.

    They stand before what decided only where that is an answer, or a refusal by a gate after them.
    """
    tile.fired[:size] = NONE
    for b in range(len(measured)):
        for i in range(size):
            passes = measured[b] - policies.signal_bound[b, i] >= 0.0
            tile.fired[i] = min(tile.fired[i], NONE if passes else policies.signal_stage[b, i])
    offered = case.n_options[0] >= MIN_OPTIONS
    for i in range(size):
        stage = tile.stage[i]
        before = (stage <= number.signals) | ((number.overview <= stage) & (stage < number.gap))
        lowered = stage if before else min(stage, tile.fired[i])
        asks = (not before) & (lowered == number.signals_ask)
        tile.stage[i] = number.signals if asks & (not offered) else lowered
        tile.slot[i] = options_slot if asks & offered else tile.slot[i]


@compile_kernel()
def _decide_case(
    case: Any,
    q: int,
    policies: Any,
    size: int,
    hits: Any,
    slots: Any,
    number: Any,
    tile: Any,
) -> None:
    """Write stage and slot of one case under the policies from the first on.

    The slot is 0 where nothing was chosen.

    Every gate is compared, whatever decides: a branch that goes either way costs more than all of
    them.
    """
    if case.words < 1:
        tile.stage[:size] = number.empty_query
        tile.slot[:size] = 0
        return
    l2, missing = hits.l2[q], hits.missing[q]
    _refuse_early(case, policies, size, l2, number, tile)
    if case.n_hits == 0:
        for i in range(size):
            tile.stage[i] = min(tile.early[i], number.no_hits)
            tile.slot[i] = 0
        return
    n_edges = _find_edges(case, l2, missing, hits.right[q], tile)
    _choose_hits(case, policies, size, l2, slots, n_edges, number, tile)
    _blend_scores(case, policies, size, hits.rerank[q], hits.hybrid[q], tile)
    _judge_chosen(case, policies, size, missing, number, tile)
    if len(policies.signal_bound) > 0:
        _gate_signals(
            case, policies, size, hits.measured[q], len(l2) + 1 + number.asked_slot, number, tile
        )


@compile_kernel()
def _outcome_counts(
    policies: Any, cases: Any, hits: Any, slots: Any, number: Any, codes: int
) -> Any:
    """How often each tile policy met each (stage, label, expected sources found), [codes, P]."""
    size = len(policies.blend)
    tile, counted = _new_tile(hits.l2.shape[1], size), np.zeros((codes, size), dtype=np.int32)
    for q in range(len(cases)):
        _decide_case(cases[q], q, policies, size, hits, slots, number, tile)
        of_label, right = cases[q].label * 2, hits.right[q]
        for i in range(size):
            counted[tile.stage[i] * CELLS + of_label + right[tile.slot[i]], i] += 1
    return counted


def _numpy_records(columns: dict[str, Any], n: int) -> NDArray[np.void]:
    """Columns of n numbers, or [n, ...], as n records."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    kinds = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
    out = np.empty(n, dtype=np.dtype(kinds, align=True))
    for name, array in arrays.items():
        out[name] = array
    return out


def _policies(thresholds: Thresholds, n: int) -> PolicyColumns:
    """Columns of the thresholds of n policies."""

    # A threshold that all policies share comes as one number; the loops need a contiguous one for
    # each policy.
    def column(values: Any) -> Any:
        return np.ascontiguousarray(np.broadcast_to(values, (n, 1))[:, 0])

    # A gate that is off writes no stage, so the loops need no switch beside it.
    def stage_of(name: str) -> IntArray:
        return np.where(column(thresholds.gates[name].on), STAGE[name], NONE)

    # With the sign of a ceiling turned, one loop serves floors and ceilings.
    scalars, of_gates = _scalars(), thresholds.gates
    bounds = [getattr(of_gates[gate.name], gate.thresholds[0].key) for gate in scalars]
    signed = [_sign(gate) * column(bound) for gate, bound in zip(scalars, bounds, strict=True)]
    density = of_gates["density"]
    signal_bound, signal_stage = _bounds(thresholds, n)
    return PolicyColumns(
        domain_on=column(of_gates["domain"].on),
        l2_on=column(of_gates["l2"].on),
        max_l2=column(of_gates["l2"].max_l2),
        soft_max_l2=column(of_gates["l2"].soft_max_l2),
        min_keep=column(np.where(density.on, density.min_keep, 0)).astype(np.int64),
        gap_on=column(of_gates["gap"].on),
        min_gap=column(of_gates["gap"].min_gap),
        overview=column(thresholds.switches.overview),
        overview_entities_lift=column(thresholds.switches.overview_entities_lift),
        entities=column(thresholds.switches.entities),
        require_full=column(thresholds.switches.require_full_entity_coverage),
        **{key: column(value) for key, value in thresholds.rules._asdict().items()},
        blend=column(thresholds.blend),
        tau_default=column(of_gates["confidence"].tau_default),
        tau_explicit=column(of_gates["confidence"].tau_explicit),
        coverage_stage=stage_of("coverage"),
        confidence_stage=stage_of("confidence"),
        scalar_stage=np.stack([stage_of(gate.name) for gate in scalars]),
        scalar_bound=np.stack(signed),
        signal_bound=signal_bound,
        signal_stage=signal_stage,
    )


def _tiles(thresholds: Thresholds, n: int) -> Iterator[PolicyColumns]:
    """Columns of a few policies at a time, so few that they stay in cache while all cases pass."""
    columns = _policies(thresholds, n)
    n_tiles = -(-n // TILE)
    edges = [n * number // n_tiles for number in range(n_tiles + 1)] if n else []
    for first, last in pairwise(edges):
        tile: list[Any] = [np.array(column[..., first:last], order="C") for column in columns]
        yield PolicyColumns(*tile)


def _sign(gate: gates.Gate) -> float:
    return 1.0 if gate.thresholds[0].side == "floor" else -1.0


def _stated_bounds(thresholds: Thresholds) -> list[tuple[str, str]]:
    """Name of each signal and bound, `min` or `max`, that a policy sets, of gates on in some."""
    return [
        (name, key)
        for name, gate in thresholds.signals.items()
        for key in ("min", "max")
        if is_gated(gate) and not np.isnan(getattr(gate, key)).all()
    ]


def _signals_of(evidence: Evidence, thresholds: Thresholds) -> FloatArray:
    """Signal that each set bound is compared with, [Q, B].

    Upper bounds negated, +inf passes every bound.
    """
    stated = _stated_bounds(thresholds)
    out = np.empty((len(evidence.label), len(stated)))
    for b, (name, key) in enumerate(stated):
        place = evidence.known.place(name)
        value = evidence.signals[place, 0]
        out[:, b] = value if key == "min" else np.negative(value)
        if evidence.known.rows[place].missing == "passes":
            out[np.isnan(value), b] = np.inf
    return out


def _bounds(thresholds: Thresholds, n: int) -> tuple[FloatArray, IntArray]:
    """Each stated bound of each policy, [B, P], and the outcome that it leads to.

    `NONE` where the policy has none.
    """
    stated = _stated_bounds(thresholds)
    bound, stage = np.empty((len(stated), n)), np.full((len(stated), n), NONE, dtype=np.int64)
    for b, (name, key) in enumerate(stated):
        gate = thresholds.signals[name]
        value = getattr(gate, key)
        asks = np.where(gate.asks, NUMBERS.signals_ask, NONE)
        codes = np.where(gate.refuses, NUMBERS.signals, asks)
        bound[b] = (value if key == "min" else np.negative(value)).ravel()
        stage[b] = np.where(gate.on & ~np.isnan(value), codes, NONE).ravel()
    return bound, stage


def _inputs(evidence: Evidence, thresholds: Thresholds) -> tuple[NDArray[np.void], HitColumns]:
    """Records of the cases, and their hits; signals only as far as some policy gates them."""
    n = len(evidence.label)
    of_question = ("words", "denied", "allowed", "overview", "names_entity", "explicit", "label")
    of_hits = (
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
    columns: dict[str, Any] = {name: getattr(evidence, name) for name in of_question}
    # Depth 0 alone: this kernel is for traces without refinement.
    columns |= {name: getattr(evidence, name)[0] for name in of_hits}
    # All groups and the tied ones: which of them a rule compares depends on the policy.
    for name in ("group_gap", "best_signature", "gap_signature", "best_anchor", "gap_anchor"):
        columns[name] = np.stack(
            [getattr(evidence.all, name)[0], getattr(evidence.tied, name)[0]], axis=1
        )
    columns["n_options"] = np.stack([evidence.n_options_all[0], evidence.n_options_tied[0]], axis=1)
    columns["needs_allowed"] = np.full(n, evidence.needs_allowed)
    columns["most_slots"] = np.full(
        n, evidence.l2.shape[1] if evidence.rank_order else evidence.final_k
    )
    # Copies, since hits that no blend can make the best are moved to the back in place.
    rerank, hybrid = (
        np.array(scores[:, 0].T, order="C", copy=True)
        for scores in (evidence.top_rerank, evidence.top_hybrid)
    )
    columns["unblended"] = retrieval_confidence(rerank.T, hybrid.T, evidence.degenerate[0], 1.0)
    columns["n_front"] = _partition_hits(rerank, hybrid)
    # Copies, since numba would compile the loops again for arrays that are read-only.
    missing, right = (
        np.array(table[0].T, order="C") for table in (evidence.missing, evidence.right)
    )
    hits = HitColumns(
        np.sort(evidence.l2[0].T, axis=1),
        rerank,
        hybrid,
        missing,
        right,
        _signals_of(evidence, thresholds),
    )
    read = GateMeasurements(evidence)
    scalars = [_sign(gate) * read(gate.measurements[0]) for gate in _scalars()]
    return _numpy_records(columns | {"scalar": np.stack(scalars, axis=1)}, n), hits


def _cost_policies(thresholds: Thresholds, n: int) -> NDArray[np.void]:
    """A record a policy that decides by expected cost."""
    assert thresholds.costs is not None  # noqa: S101 - the caller asks for such policies only
    columns = {**thresholds.costs._asdict(), "domain_on": thresholds.gates["domain"].on}
    return _numpy_records(
        {name: np.broadcast_to(column, (n, 1))[:, 0] for name, column in columns.items()}, n
    )


def _cost_inputs(evidence: Evidence) -> tuple[NDArray[np.void], BoolArray]:
    """Case records as expected-cost decisions read them, and if options and answer are right."""
    n, every = len(evidence.label), np.arange(len(evidence.label))
    right, miss, refuse, ambiguous = evidence.probability[:, 0]
    columns: dict[str, Any] = {
        name: getattr(evidence, name) for name in ("words", "denied", "allowed", "label")
    }
    columns |= {
        "right": right,
        "miss": miss,
        "ok": right + miss,
        "refuse": refuse,
        "ambiguous": ambiguous,
    }
    columns |= {
        "asked_right": np.full(n, evidence.asked_right),
        "needs_allowed": np.full(n, evidence.needs_allowed),
    }
    columns |= {"n_hits": evidence.n_hits[0], "can_ask": evidence.n_options_all[0] >= MIN_OPTIONS}
    options = evidence.right[0, evidence.n_slots_relevant + ASKED_SLOT]
    return _numpy_records(columns, n), np.stack(
        [options, evidence.right[0, answer_slots(evidence), every]], axis=1
    )


def is_compiled(thresholds: Thresholds) -> bool:
    """Whether this process has compiled what counts by such thresholds, or read it from disk."""
    function: Any = _outcome_counts if thresholds.costs is None else _cost_counts
    return bool(function.signatures)


def tallied(evidence: Evidence, thresholds: Thresholds, n_policies: int) -> IntArray:
    """Cases by code (what decided, label, expected sources found), [P, codes], of many policies.

    Of depth 0 only.

    Args:
      evidence: measurements of one depth.
      thresholds: [P, 1].
    """
    codes, thresholds = len(STAGES) * CELLS, thresholds.without(evidence.off)
    if thresholds.costs is not None:
        cases, right = _cost_inputs(evidence)
        counted: IntArray = _cost_counts(
            _cost_policies(thresholds, n_policies), cases, right, NUMBERS, codes
        )
        return counted
    cases, hits = _inputs(evidence, thresholds)
    tiles = by_threads(
        lambda tile: _outcome_counts(tile, cases, hits, SLOTS, NUMBERS, codes),
        _tiles(thresholds, n_policies),
    )
    return np.concatenate(tiles, axis=1).T.astype(np.int64)
