"""The compiled kernel of the chain (algebra): the same decisions in numba, a case at a time.

A twin of `chain.gate_depth` for traces without refinement that stops at the first gate that decides.
Margins are formed as in `gates` and `resolver`, a difference against zero, so that NaN never passes.
Cases and policies come as records: what one decision reads lies together. Numbers of outcomes, which hold the order of
the gates, come in as arguments: compiled code is kept on disk and must not hold those of another table.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab._numba import compile_kernel
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
from raglab.gate_order import Order
from raglab.metrics import CELLS
from raglab.signal_gates import LEAST_OPTIONS, SIGNALS, is_gated
from raglab.signals import retrieval_confidence
from raglab.thresholds import Thresholds

TILE = 128  # policies whose thresholds and counts stay in the cache while all cases pass
# Each with code of its own here.
COMPILED = frozenset({"domain", "l2", "density", "gap", "coverage", SIGNALS, "confidence"})


class Numbers(NamedTuple):
    """Numbers of the outcomes that the compiled code decides by name, as in `chain.STAGE`.

    asked_slot: slot, after those of relevant hits, of the options that a gate on a signal offers.
    """

    empty_query: int
    deny: int
    allow: int
    no_hits: int
    l2: int
    density: int
    coverage: int
    signals: int
    signals_ask: int
    confidence: int
    overview: int
    options: int
    gap: int
    single_group: int
    entities: int
    group_gap: int
    signature_similarity: int
    anchor_similarity: int
    single_option: int
    least_cost_refuse: int
    least_cost_ask: int
    least_cost_answer: int
    asked_slot: int


class SignalBounds(NamedTuple):
    """Bounds of signals that some policy sets, [B, P]: the bound, upper ones with their signs changed; its outcome."""

    bound: NDArray[np.float64]
    stage: NDArray[np.int64]


NUMBERS = Numbers._make([*(STAGE[name] for name in Numbers._fields[:-1]), int(ASKED_SLOT)])


def complete() -> bool:
    """Whether the compiled code knows every gate that decides before an answer is there."""
    before = [gate for gate in gates.GATES if gate.firing != "warn" and gate.judges != "answer"]
    return all(gate.name in COMPILED or gate in _scalars() for gate in before)


def _scalars() -> tuple[gates.Gate, ...]:
    """Gates on the chosen hits that compare one measurement of the case, which hangs on no policy."""
    chosen = [gate for gate in gates.judging_gates("chosen") if gate.firing == "refuse" and gate.name not in COMPILED]
    return tuple(gate for gate in chosen if gate.scalar and gate.measurements[0] not in BY_SLOT | COMPUTED)


@compile_kernel(inline="always")
def _resolver_rule(case: Any, policy: Any, tied: int, number: Any) -> int:  # noqa: ANN401 - records
    """First of the rules with a threshold that picks a group, else `options`; all three without a branch."""
    near = case.group_gap[tied] - policy.rules_min_group_gap >= 0.0
    signature = (case.best_signature[tied] - policy.rules_min_sig_sim >= 0.0) & (
        case.gap_signature[tied] - policy.rules_min_sig_sim_gap >= 0.0
    )
    anchor = (case.best_anchor[tied] - policy.rules_min_anchor_sim >= 0.0) & (
        case.gap_anchor[tied] - policy.rules_min_anchor_sim_gap >= 0.0
    )
    last = number.single_option if case.n_options[tied] == 1 else number.options
    by_text = number.signature_similarity if signature else number.anchor_similarity if anchor else last
    return number.group_gap if near else by_text


@compile_kernel(inline="always")
def _resolve_case(case: Any, policy: Any, number: Any) -> tuple[int, int]:  # noqa: ANN401 - records
    """Stage of the resolver, and whether rule `entities` speaks."""
    if case.n_groups == 1:
        return number.single_group, 0
    if policy.overview and case.overview and not (policy.overview_entities_lift and case.names_entity):
        return number.single_option if case.n_options[0] == 1 else number.overview, 0
    if policy.entities and not case.skips_entities and (case.full_entities or not policy.require_full):
        return number.entities if case.has_winner else _resolver_rule(case, policy, 1, number), 1
    return _resolver_rule(case, policy, 0, number), 0


@compile_kernel(inline="always")
def _case_confidence(case: Any, rerank: Any, hybrid: Any, blend: float) -> float:  # noqa: ANN401 - a record, arrays [k]
    """Confidence of the first hits' blended scores, as `signals.retrieval_confidence` has it."""
    if case.degenerate or blend == 1.0:
        return float(case.unblended)
    if case.n_front == 0:
        return 0.0
    best = blend * rerank[0] + (1.0 - blend) * hybrid[0]
    for k in range(1, case.n_front):
        best = max(best, blend * rerank[k] + (1.0 - blend) * hybrid[k])
    return float(100.0 * best)


@compile_kernel()
def _partition_hits(rerank: Any, hybrid: Any) -> Any:  # noqa: ANN401 - arrays [Q, k]
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


@compile_kernel(inline="always")
def _count_within_cut(l2: Any, cut: float) -> int:  # noqa: ANN401 - array [K], ascending
    """Hits within the cut, by halving steps without a branch."""
    count, step = 0, 1 << 15
    while step > len(l2):
        step >>= 1
    while step > 0:
        if count + step <= len(l2):
            count += step * (l2[count + step - 1] <= cut)
        step >>= 1
    return count


@compile_kernel(inline="always")
def _decide_case(  # noqa: C901, PLR0911, PLR0912 - one branch a gate
    case: Any,  # noqa: ANN401
    policy: Any,  # noqa: ANN401
    l2: Any,  # noqa: ANN401
    rerank: Any,  # noqa: ANN401
    hybrid: Any,  # noqa: ANN401
    missing: Any,  # noqa: ANN401
    number: Any,  # noqa: ANN401
) -> tuple[int, int]:
    """Stage and slot of one case under one policy that gates no signal; the slot is 0 where nothing was chosen."""
    if case.words < 1:
        return number.empty_query, 0
    if policy.domain_on and case.denied > 0:
        return number.deny, 0
    if policy.domain_on and case.needs_allowed and case.allowed < 1:
        return number.allow, 0
    if case.n_hits == 0:
        return number.no_hits, 0
    # How far a hit may lie to be relevant: without a bound that the nearest meets, nothing is.
    cut = np.inf
    if policy.l2_on:
        if policy.l2_max_l2 - case.best_l2 >= 0.0:
            cut = policy.l2_max_l2
        elif policy.l2_soft_max_l2 - case.best_l2 >= 0.0:
            cut = policy.l2_soft_max_l2
        else:
            return number.l2, 0
    if policy.density_on and not (policy.density_min_keep <= len(l2) and l2[policy.density_min_keep - 1] <= cut):
        return number.density, 0
    # What would be answered from: the relevant hits where the two nearest part, else what the resolver picks.
    single = len(l2) == 1 or not l2[1] <= cut
    if single | case.agree | (not policy.gap_on) | (case.gap - policy.gap_min_gap >= 0.0):
        stage, slot = number.gap, min(_count_within_cut(l2, cut), case.most_slots)
    else:
        stage, tied = _resolve_case(case, policy, number)
        slot = len(l2) + 1 + policy.slots[tied, stage]
    if stage < number.gap:
        return stage, slot
    # Of the gates on the chosen hits that fire, the one with the least number is the first; the confidence, which
    # costs the most, is formed only where it could still be the first.
    first = stage
    if policy.coverage_on and missing[slot] > 0:
        first = number.coverage
    for g in range(len(case.scalar)):
        if not case.scalar[g] - policy.scalar_bound[g, case.met[g]] >= 0.0:
            first = min(first, policy.scalar_stage[g])
    if policy.confidence_on and number.confidence < first:
        tau = policy.confidence_tau_explicit if case.explicit else policy.confidence_tau_default
        if not _case_confidence(case, rerank, hybrid, policy.blend) - tau >= 0.0:
            first = number.confidence
    return first, slot


@compile_kernel(inline="always")
def _decide_by_cost(case: Any, policy: Any, number: Any) -> int:  # noqa: ANN401 - records
    """Stage of one case under one policy that decides by expected cost; sums in the order of `expected_costs`."""
    if case.words < 1:
        return int(number.empty_query)
    if policy.domain_on and case.denied > 0:
        return int(number.deny)
    if policy.domain_on and case.needs_allowed and case.allowed < 1:
        return int(number.allow)
    if case.n_hits == 0:
        return int(number.no_hits)
    wrong = policy.wrong_ok * case.miss + policy.wrong_refuse * case.refuse + policy.wrong_ambiguous * case.ambiguous
    answer = policy.right * case.right + policy.ratio * wrong
    refused = (
        policy.refused_ok * case.ok + policy.refused_refuse * case.refuse + policy.refused_ambiguous * case.ambiguous
    )
    idle = policy.asked_right * case.asked_right + policy.asked_ambiguous * (1.0 - case.asked_right)
    asked = policy.asked_ok * case.ok + policy.asked_refuse * case.refuse + idle * case.ambiguous
    if case.can_ask and asked < refused and asked <= answer:
        return int(number.least_cost_ask)
    return int(number.least_cost_answer) if answer < refused else int(number.least_cost_refuse)


@compile_kernel()
def _cost_stages(policies: Any, cases: Any, number: Any) -> Any:  # noqa: ANN401 - records
    stage = np.empty((len(policies), len(cases)), dtype=np.int8)
    for p in range(len(policies)):
        for q in range(len(cases)):
            stage[p, q] = _decide_by_cost(cases[q], policies[p], number)
    return stage


@compile_kernel()
def _cost_counts(policies: Any, cases: Any, right: Any, number: Any, codes: int) -> Any:  # noqa: ANN401 - records
    """How often each policy met each (stage, label, expected sources found), [P, codes].

    right: of the options and of an answer, [Q, 2].
    """
    seen = np.zeros((len(policies), codes), dtype=np.int64)
    for p in range(len(policies)):
        for q in range(len(cases)):
            stage = _decide_by_cost(cases[q], policies[p], number)
            found = right[q, 0] if stage == number.least_cost_ask else right[q, 1]
            seen[p, stage * CELLS + cases[q].label * 2 + found] += 1
    return seen


@compile_kernel(inline="always")
def _signal_stages(measured: Any, bounds: Any, first: int, last: int, out: Any) -> None:  # noqa: ANN401 - arrays
    """Write the outcome of the gates on signals of one case, `NONE` where all pass, of the policies first to last.

    A bound after the other over many policies, so that several are compared in one instruction.
    """
    out[: last - first] = NONE
    for b in range(len(measured)):
        for p in range(first, last):
            passes = measured[b] - bounds.bound[b, p] >= 0.0
            out[p - first] = min(out[p - first], NONE if passes else bounds.stage[b, p])


@compile_kernel(inline="always")
def _gate_signals(
    decided: tuple[int, int],
    case: Any,  # noqa: ANN401
    fired: int,
    options_slot: int,
    number: Any,  # noqa: ANN401
) -> tuple[int, int]:
    """Stage and slot with the gates on signals, of what `_decide_case` says without; fired: of `_signal_stages`.

    They stand before what decided only where that is an answer, or a refusal by a gate after them.
    """
    stage, slot = decided
    if stage <= number.signals or number.overview <= stage < number.gap:
        return stage, slot
    first = min(stage, fired)
    if first != number.signals_ask:
        return first, slot
    return (first, options_slot) if case.n_options[0] >= LEAST_OPTIONS else (number.signals, slot)


class HitColumns(NamedTuple):
    """Of the hits: l2 [Q, K], NaN last, scores of the first [Q, k] twice, by slot [Q, S]; `_signals_of` [Q, B]."""

    l2: NDArray[np.float64]
    rerank: NDArray[np.float64]
    hybrid: NDArray[np.float64]
    missing: NDArray[np.uint8]
    measured: NDArray[np.float64]


@compile_kernel()
def _outcome_counts(
    right: Any,  # noqa: ANN401
    policies: Any,  # noqa: ANN401
    bounds: Any,  # noqa: ANN401
    cases: Any,  # noqa: ANN401
    hits: Any,  # noqa: ANN401
    number: Any,  # noqa: ANN401
    codes: int,
) -> Any:  # noqa: ANN401
    """How often each policy met each (stage, label, expected sources found), [P, codes]."""
    seen = np.zeros((len(policies), codes), dtype=np.int64)
    l2, rerank, hybrid, missing, measured = hits
    gated, options_slot = measured.shape[1] > 0, l2.shape[1] + 1 + number.asked_slot
    fired = np.full(TILE, NONE, dtype=np.int64)
    for first in range(0, len(policies), TILE):
        last = min(first + TILE, len(policies))
        for q in range(len(cases)):
            if gated:
                _signal_stages(measured[q], bounds, first, last, fired)
            for p in range(first, last):
                said = _decide_case(cases[q], policies[p], l2[q], rerank[q], hybrid[q], missing[q], number)
                if gated:
                    said = _gate_signals(said, cases[q], fired[p - first], options_slot, number)
                stage, slot = said
                seen[p, stage * CELLS + cases[q].label * 2 + right[q, slot]] += 1
    return seen


@compile_kernel()
def _stages(policies: Any, bounds: Any, cases: Any, hits: Any, number: Any) -> Any:  # noqa: ANN401
    stage = np.empty((len(policies), len(cases)), dtype=np.int8)
    slot = np.empty((len(policies), len(cases)), dtype=np.int16)
    l2, rerank, hybrid, missing, measured = hits
    gated, options_slot = measured.shape[1] > 0, l2.shape[1] + 1 + number.asked_slot
    fired = np.full(len(policies), NONE, dtype=np.int64)
    for q in range(len(cases)):
        if gated:
            _signal_stages(measured[q], bounds, 0, len(policies), fired)
        for p in range(len(policies)):
            said = _decide_case(cases[q], policies[p], l2[q], rerank[q], hybrid[q], missing[q], number)
            if gated:
                said = _gate_signals(said, cases[q], fired[p], options_slot, number)
            stage[p, q], slot[p, q] = said
    return stage, slot


def _numpy_records(columns: dict[str, Any], n: int) -> NDArray[np.void]:
    """Columns of n numbers, or [n, ...], as n records."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    kinds = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
    out = np.empty(n, dtype=np.dtype(kinds, align=True))
    for name, array in arrays.items():
        out[name] = array
    return out


def _policies(limits: Thresholds, n: int) -> NDArray[np.void]:
    """A record a policy; a threshold of a gate is named `<gate>_<threshold>`, of a rule `rules_<threshold>`.

    scalar_stage, scalar_bound: of the scalar gates on the chosen hits, [gates] and [gates, thresholds of one].
    """
    columns: dict[str, Any] = {
        f"{name}_{key}": value for name, form in limits.gates.items() for key, value in form._asdict().items()
    }
    columns |= {f"rules_{key}": value for key, value in limits.rules._asdict().items()}
    columns |= {name: v for name, v in limits._asdict().items() if not isinstance(v, tuple | dict | NoneType | Order)}
    columns = {name: np.broadcast_to(column, (n, 1))[:, 0] for name, column in columns.items()}
    columns["density_min_keep"] = columns["density_min_keep"].astype(np.int64)
    # The table of slots and the scalar gates' numbers are the same for all policies; one that is off never decides.
    columns["slots"] = np.broadcast_to(SLOT_TABLE.astype(np.int8), (n, *SLOT_TABLE.shape))
    scalars = _scalars()
    columns["scalar_stage"] = np.stack(
        [np.where(columns[f"{gate.name}_on"], STAGE[gate.name], NONE) for gate in scalars], axis=1
    )
    columns["scalar_bound"] = np.zeros((n, len(scalars), max(len(gate.thresholds) for gate in scalars)))
    for g, gate in enumerate(scalars):
        for t, threshold in enumerate(gate.thresholds):
            columns["scalar_bound"][:, g, t] = _sign(gate) * columns[f"{gate.name}_{threshold.key}"]
    return _numpy_records(columns, n)


def _sign(gate: gates.Gate) -> float:
    return 1.0 if gate.thresholds[0].side == "floor" else -1.0


def _scalars_of(found: Evidence, n: int) -> dict[str, Any]:
    """Of the scalar gates on the chosen hits, [Q, gates]: their measurement, and which of its thresholds a case meets.

    An upper threshold and what it meets have their signs changed.
    """
    read, scalars = GateMeasurements(found), _scalars()
    value, met = np.empty((n, len(scalars))), np.zeros((n, len(scalars)), dtype=np.int64)
    for g, gate in enumerate(scalars):
        value[:, g] = _sign(gate) * read(gate.measurements[0])
        for t, threshold in enumerate(gate.thresholds[1:], 1):
            met[:, g] = np.where(read(threshold.where), t, met[:, g])
    return {"scalar": value, "met": met}


def _stated_bounds(limits: Thresholds) -> list[tuple[str, str]]:
    """Name of each signal and bound, `min` or `max`, that some policy sets, of gates that are on in some."""
    pairs = [(name, key) for name, gate in limits.signals.items() if is_gated(gate) for key in ("min", "max")]
    return [(name, key) for name, key in pairs if not np.isnan(getattr(limits.signals[name], key)).all()]


def _signals_of(found: Evidence, limits: Thresholds) -> NDArray[np.float64]:
    """What each stated bound meets, [Q, B]; signs of what an upper one meets are changed, +inf passes every bound."""
    out = np.empty((len(found.label), len(stated := _stated_bounds(limits))))
    for b, (name, key) in enumerate(stated):
        value = found.signals[found.known.place(name), 0]
        value = value if key == "min" else np.negative(value)
        out[:, b] = np.where(np.isnan(value), np.inf, value) if found.known.signal(name).missing == "passes" else value
    return out


def _bounds(limits: Thresholds, n: int) -> SignalBounds:
    """Each stated bound of each policy, with the outcome that it leads to; `NONE` where the policy has none."""
    stated = _stated_bounds(limits)
    bound, stage = np.empty((len(stated), n)), np.full((len(stated), n), NONE, dtype=np.int64)
    for b, (name, key) in enumerate(stated):
        gate = limits.signals[name]
        value = getattr(gate, key)
        acts = gate.on & ~np.isnan(value)
        codes = np.where(gate.refuses, NUMBERS.signals, np.where(gate.asks, NUMBERS.signals_ask, NONE))
        bound[b] = np.broadcast_to(value if key == "min" else np.negative(value), (n, 1))[:, 0]
        stage[b] = np.broadcast_to(np.where(acts, codes, NONE), (n, 1))[:, 0]
    return SignalBounds(bound, stage)


def _inputs(found: Evidence, limits: Thresholds) -> tuple[NDArray[np.void], HitColumns]:
    """Records of the cases, and their hits; signals only as far as some policy gates them."""
    n = len(found.label)
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
    columns: dict[str, Any] = {name: getattr(found, name) for name in of_question}
    columns |= {name: getattr(found, name)[0] for name in of_hits}
    for name in ("group_gap", "best_signature", "gap_signature", "best_anchor", "gap_anchor"):
        columns[name] = np.stack([getattr(found.all, name)[0], getattr(found.tied, name)[0]], axis=1)
    columns["n_options"] = np.stack([found.n_options_all[0], found.n_options_tied[0]], axis=1)
    columns["needs_allowed"] = np.full(n, found.needs_allowed)
    columns["most_slots"] = np.full(n, found.l2.shape[1] if found.rank_order else found.final_k)
    rerank, hybrid = (np.array(scores[:, 0].T, order="C", copy=True) for scores in (found.top_rerank, found.top_hybrid))
    columns["unblended"] = retrieval_confidence(rerank.T, hybrid.T, found.degenerate[0], 1.0)
    columns["n_front"] = _partition_hits(rerank, hybrid)
    missing = np.ascontiguousarray(found.missing[0].T)
    hits = HitColumns(np.sort(found.l2[0].T, axis=1), rerank, hybrid, missing, _signals_of(found, limits))
    return _numpy_records(columns | _scalars_of(found, n), n), hits


def _cost_policies(limits: Thresholds, n: int) -> NDArray[np.void]:
    """A record a policy that decides by expected cost."""
    assert limits.costs is not None  # noqa: S101 - the caller asks for such policies only
    columns = {**limits.costs._asdict(), "domain_on": limits.gates["domain"].on}
    return _numpy_records({name: np.broadcast_to(column, (n, 1))[:, 0] for name, column in columns.items()}, n)


def _cost_inputs(found: Evidence) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Records of the cases as a decision by expected cost reads them, and whether options and answer are right."""
    n, every = len(found.label), np.arange(len(found.label))
    right, miss, refuse, ambiguous = found.probability[:, 0]
    columns: dict[str, Any] = {name: getattr(found, name) for name in ("words", "denied", "allowed", "label")}
    columns |= {"right": right, "miss": miss, "ok": right + miss, "refuse": refuse, "ambiguous": ambiguous}
    columns |= {"asked_right": np.full(n, found.asked_right), "needs_allowed": np.full(n, found.needs_allowed)}
    columns |= {"n_hits": found.n_hits[0], "can_ask": found.n_options_all[0] >= LEAST_OPTIONS}
    options = found.right[0, found.n_slots_relevant + ASKED_SLOT]
    return _numpy_records(columns, n), np.stack([options, found.right[0, answer_slots(found), every]], axis=1)


def tallied(found: Evidence, limits: Thresholds, n_policies: int) -> NDArray[np.int64]:
    """Cases by code (what decided, label, expected sources found), [P, codes], of many policies; of depth 0 only.

    Args:
      found: measurements of one depth. limits: thresholds, [P, 1].
    """
    codes, limits = len(STAGES) * CELLS, limits.without(found.off)
    if limits.costs is not None:
        cases, right = _cost_inputs(found)
        counted: NDArray[np.int64] = _cost_counts(_cost_policies(limits, n_policies), cases, right, NUMBERS, codes)
        return counted
    policies = _policies(limits, n_policies)
    order = np.argsort(policies["l2_max_l2"], kind="stable")  # so that a case passes or fails in runs
    seen = np.empty((n_policies, codes), dtype=np.int64)
    right = np.ascontiguousarray(found.right[0].T)
    bounds = _bounds(limits, n_policies)
    bounds = SignalBounds(bounds.bound[:, order], bounds.stage[:, order])
    seen[order] = _outcome_counts(right, policies[order], bounds, *_inputs(found, limits), NUMBERS, codes)
    return seen


def stages(found: Evidence, limits: Thresholds, n_policies: int) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    """Stage and slot of each policy and case, [P, Q]; the slot is 0 where nothing was chosen."""
    limits = limits.without(found.off)
    if limits.costs is not None:
        cases, _ = _cost_inputs(found)
        stage = _cost_stages(_cost_policies(limits, n_policies), cases, NUMBERS)
        asks = stage == NUMBERS.least_cost_ask
        slot = np.where(asks, np.int16(found.n_slots_relevant + ASKED_SLOT), answer_slots(found))
        on_query = (NUMBERS.empty_query, NUMBERS.deny, NUMBERS.allow)
        return stage, np.where(np.isin(stage, on_query), np.int16(0), slot)
    bounds = _bounds(limits, n_policies)
    stage, slot = _stages(_policies(limits, n_policies), bounds, *_inputs(found, limits), NUMBERS)
    return stage, slot
