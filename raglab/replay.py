"""Replay (algebra): decide, sweep, exact steps of a threshold, the smallest flips of a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates, metrics
from raglab._numba import kernel_of
from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.simulation import Run, log, run
from raglab.decision import chain
from raglab.decision.chain import (
    STAGE,
    STAGE_OF_COST,
    STAGES,
    STATUS_OF,
    Outcome,
    decide_cases,
    narrow_evidence,
    values_at_slot,
)
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import Evidence, Tables, measured_tables
from raglab.decision.recorded_answers import select_answers
from raglab.decision.signal_values import check_signals, check_stored
from raglab.expected_cost import PATHS, class_probabilities
from raglab.gate_order import Order
from raglab.gates import Threshold
from raglab.metrics import CELLS
from raglab.own_gates import REGISTERED, OwnGate, critical_values, own_gate
from raglab.policy import PolicyData
from raglab.resolver import RULES, Contest
from raglab.signal_gates import OWN, OwnLimits
from raglab.signals import BUILT_IN_SET, COST, NAMES, RATIO, SignalSet, is_name, own_signal
from raglab.thresholds import Thresholds, policy_thresholds
from raglab.values import Status, TraceData, check_labelled, label_codes, map_fields

if TYPE_CHECKING:
    import pandas as pd

CASES = 4_096  # cases of a part, whose measurements stay in the cache of one core while all policies pass
BLOCK = 65_536  # decisions of a part that are made at once


class Tally(NamedTuple):
    """Counted decisions of many policies.

    cells: cases by decision, label and whether the expected sources were found, [P, 18]. stages: by what decided,
    [P, stages]. labels: cases by label, [3]. engine: what counted, and why where the compiled kernel could not.
    """

    cells: NDArray[np.int64]
    stages: NDArray[np.int64]
    labels: NDArray[np.int64]
    engine: str = "numpy"

    @property
    def counts(self) -> NDArray[np.int64]:
        """What each of `metrics.RATES` counts, [P, rates]."""
        return metrics.rate_counts(self.cells)


# Cell (decision, label, expected sources found) of each code (what decided, label, expected sources found), [codes].
CELL_OF_CODE = metrics.DISTINCT_CELL[(STATUS_OF.astype(np.int64)[:, None] * CELLS + np.arange(CELLS)).ravel()]
_CELLS_OF_CODES = (CELL_OF_CODE[:, None] == np.arange(metrics.N_CELLS)).astype(np.int64)


def outcome_codes(found: Evidence, said: Outcome) -> NDArray[np.int64]:
    """Number of (what decided, label, expected sources found), [P, Q]."""
    if found.right.shape[0] == 1:
        right = values_at_slot(found.right[0], said.slot)
    else:
        depth, slot = said.depth.astype(np.int64), said.slot.astype(np.int64)
        right = found.right[depth, slot, np.arange(slot.shape[1])]
    return said.stage.astype(np.int64) * CELLS + found.label * 2 + right


def vectorised_codes(found: Evidence, limits: Thresholds, n_policies: int) -> NDArray[np.int64]:
    """Cases by code (what decided, label, expected sources found), [P, codes], of many policies."""
    width = len(STAGES) * CELLS
    seen = np.zeros((n_policies, width), dtype=np.int64)
    found, limits = narrow_evidence(found, limits)
    for cases in _spans(len(found.label), CASES):
        part = case_rows(found, cases)
        n_cases = len(part.label)
        for rows in _spans(n_policies, max(1, BLOCK // n_cases)):
            some = _policy_slice(limits, rows)
            codes = outcome_codes(part, decide_cases(part, some, (rows.stop - rows.start, n_cases)))
            seen[rows] += [np.bincount(of_policy, minlength=width) for of_policy in codes]
    return seen


def _spans(n: int, size: int) -> Iterator[slice]:
    """Equal parts of n, none over a size."""
    n_parts = -(-n // size)
    for part in range(n_parts):
        yield slice(part * n // n_parts, (part + 1) * n // n_parts)


def case_rows(found: Any, rows: Any) -> Any:  # noqa: ANN401 - evidence or a part of it, a slice or positions
    """Measurements of some cases."""

    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple):
            return case_rows(field, rows)
        return np.ascontiguousarray(field[..., rows]) if isinstance(field, np.ndarray) else field

    return type(found)(*map(part, found))


def _policy_slice(limits: Any, rows: slice) -> Any:  # noqa: ANN401 - thresholds, a part of them, or an array
    if limits is None or isinstance(limits, Order):
        return limits
    if isinstance(limits, OwnLimits):
        return limits.rows(rows)
    if isinstance(limits, dict):
        return {name: _policy_slice(field, rows) for name, field in limits.items()}
    return type(limits)(*map(partial(_policy_slice, rows=rows), limits)) if isinstance(limits, tuple) else limits[rows]


# What a decision by expected cost hangs on (rule S2.17). Each belongs to one action, which is chosen up to some value.
COST_THRESHOLDS = (
    Threshold("decision.ratio", "floor", RATIO, "ratio"),
    *(Threshold(f"decision.costs.{path}", "floor", COST, name) for name, path in PATHS.items()),
)


@cache
def swept_paths(known: SignalSet = BUILT_IN_SET, own: tuple[OwnGate, ...] = ()) -> Mapping[str, Threshold]:
    """Thresholds that can be swept, by path: of gates that decide, in their order, of the resolver's rules, of costs.

    Args:
      known: signals that there are, as `Evidence.known` has those of a trace. own: gates of the user.
    """
    rules = (one for rule in RULES for one in rule.thresholds)
    of_user = (one for gate in own if gate.firing != "warn" for one in gate.thresholds)
    return {one.path: one for one in (*gates.swept_thresholds(known.rows), *of_user, *rules, *COST_THRESHOLDS)}


def user_gates(limits: Thresholds) -> tuple[OwnGate, ...]:
    """Gates of the user that some policy has."""
    return tuple(own_gate(name) for name in limits.own)


SWEPT = swept_paths()  # those of the built-in signals


def threshold_at(path: str) -> Threshold | None:
    """Threshold of a path that can be swept, None where it is none.

    Of a user's own signal it has no unit and the widest range, since its trace alone knows them: see `swept_threshold`.
    """
    if path in SWEPT:
        return SWEPT[path]
    section, _, rest = path.partition(".")
    name, _, bound = rest.partition(".")
    if section == OWN and name in REGISTERED:
        return next((one for one in REGISTERED[name].thresholds if one.key == bound), None)
    if section != "signals" or bound not in ("min", "max") or not is_name(name) or name in NAMES:
        return None
    return swept_paths(SignalSet((own_signal(name, higher="surer", unit="number"),)))[path]


CodesOf = Callable[[Thresholds, tuple[int, int]], NDArray[np.int64]]


def breakpoints(found: Evidence, limits: Thresholds, path: str) -> NDArray[np.float64]:
    """Values of a threshold at which each case may change, [B, Q], ascending, NaN at the end; all within its range."""
    swept = swept_threshold(found.known, limits, path)
    flat = np.concatenate([threshold_values(found, limits, path, depth) for depth in range(found.l2.shape[0])])
    values = np.where((flat >= swept.low) & (flat <= swept.high), flat, np.nan)
    ordered: NDArray[np.float64] = np.sort(values, axis=0)
    return ordered[: int(np.max(np.sum(~np.isnan(ordered), axis=0), initial=0))]


def swept_threshold(known: SignalSet, limits: Thresholds, path: str) -> Threshold:
    """A threshold with its range as far as one policy lets it move: a signal's min no further than its max (S2.15).

    Args:
      known: signals that there are.

    Raises:
      ValueError: the path cannot be swept.
    """
    paths = swept_paths(known, user_gates(limits))
    if path not in paths:
        named = [*(one for one, swept in SWEPT.items() if not swept.signal), "signals.<name>.min", "signals.<name>.max"]
        msg = f"path must be one of {', '.join(named)}, got {path!r}; names of signals: {', '.join(known.names)}."
        raise ValueError(msg)
    swept = paths[path]
    gate = limits.signals.get(swept.signal)
    if gate is None:
        return swept
    floor = swept.side == "floor"
    other = np.asarray(gate.max if floor else gate.min).item()
    if np.isnan(other):
        return swept
    low, high = (swept.low, min(swept.high, other)) if floor else (max(swept.low, other), swept.high)
    return swept._replace(unit=swept.unit._replace(low=low, high=high))


def threshold_values(found: Evidence, limits: Thresholds, path: str, depth: int) -> NDArray[np.float64]:
    """What a threshold meets at a depth, [B, Q]; the nearest hit first where there are several."""
    by_search = {"decision": _dearest, OWN: _critical}.get(path.partition(".")[0])
    if by_search is not None:
        return by_search(found, limits, path, depth)
    meets = swept_paths(found.known)[path].meets
    if meets == "l2":  # of every hit, since the bound also says which are relevant
        return found.l2[depth]
    if meets == "n_relevant":
        counts = np.arange(1.0, found.l2.shape[1] + 1.0)
        return np.broadcast_to(counts[:, None], found.l2.shape[1:])
    if meets in Contest._fields:  # of all groups, or of those that tie on entities
        return np.stack([getattr(found.all, meets)[depth], getattr(found.tied, meets)[depth]])
    if meets in chain.BY_SLOT:
        return _distinct_breakpoints(chain.measurement(found, meets)[depth])
    computed = {"confidence": chain.depth_confidence(found, limits, depth)[0]} if meets == "confidence" else {}
    one: NDArray[np.float64] = np.asarray(
        chain.GateMeasurements(found, depth, computed=computed)(meets), dtype=np.float64
    )[None]
    return one


def _dearest(found: Evidence, limits: Thresholds, path: str, _: int) -> NDArray[np.float64]:
    """Greatest value of a cost at which its action is still chosen, [1, Q]; NaN where it is at none or at all.

    Floating-point sums of products rise with each factor, so there is one such number, found by halving the ordered
    bit patterns between the ends of the range.
    """
    size, swept = len(found.label), swept_paths(found.known)[path]
    if limits.costs is None:
        return np.full((1, size), np.nan)
    action = STAGE_OF_COST[swept.meets]
    # Where an answer is refused as unfit, answering was chosen all the same.
    counts_as = [action, *(STAGE[name] for name in chain.ON_ANSWER if STATUS_OF[action] == Status.ok)]

    def chosen(value: NDArray[np.float64]) -> NDArray[np.bool_]:
        said = decide_cases(found, limits.with_value(path, value[None]), (1, size))
        return np.isin(said.stage[0], counts_as)

    low, high = (np.full(size, end).view(np.int64) for end in (swept.low, swept.high))
    changes = chosen(low.view(np.float64)) & ~chosen(high.view(np.float64))
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        still = chosen(middle.view(np.float64))
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    return np.where(changes, low.view(np.float64), np.nan)[None]


def _critical(found: Evidence, limits: Thresholds, path: str, depth: int) -> NDArray[np.float64]:
    """Value of a threshold of the user's gate at which each case changes at a depth, [B, Q]; by slot where it reads it.

    Source: rule S2.18.
    """
    name, _, key = path.removeprefix(f"{OWN}.").partition(".")
    gate, size = own_gate(name), len(found.label)
    if not chain.BY_SLOT.intersection(gate.reads):
        read = chain.GateMeasurements(found, depth)
        return critical_values(gate, key, limits.own[name], read, (1, size))
    n_slots = found.missing.shape[1]

    def of_slots(measured: str) -> Any:  # noqa: ANN401 - an array
        table = chain.measurement(found, measured)
        return table[depth] if getattr(table, "ndim", 0) > 1 else table

    return _distinct_breakpoints(critical_values(gate, key, limits.own[name], of_slots, (n_slots, size)))


def _distinct_breakpoints(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column's values once, ascending, NaN at the end, [most, Q]."""
    ordered = np.sort(values, axis=0)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[1:] = ordered[1:] == ordered[:-1]
    found: NDArray[np.float64] = np.sort(np.where(repeated, np.nan, ordered), axis=0)
    return found[: int(np.max(np.sum(~np.isnan(found), axis=0), initial=0))]


def piece_codes(
    found: Evidence, limits: Thresholds, path: str, codes_of: CodesOf
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Breakpoints [B, Q] of each case and its codes on the pieces between them, [B + 1, Q].

    Piece i of a ceiling is [b(i-1), b(i)), of a floor (b(i-1), b(i)]; the first begins at the low end of the
    range, the last ends at its high end.
    """
    swept = swept_threshold(found.known, limits, path)
    values = breakpoints(found, limits, path)
    size = len(found.label)
    low, high = np.full((1, size), swept.low), np.full((1, size), swept.high)
    if swept.side == "ceiling":
        below = np.nextafter(values[:1], -np.inf) if len(values) else low
        trial = np.concatenate(
            [np.where(np.isnan(below), low, np.maximum(below, swept.low)), np.where(np.isnan(values), high, values)]
        )
    else:
        trial = np.concatenate([np.where(np.isnan(values), high, values), high])
    return values, codes_of(limits.with_value(path, trial), (len(trial), size))


class Steps(NamedTuple):
    """Cells of a step function of one threshold: step i holds from low[i] to high[i]; cells [N, 18]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    cells: NDArray[np.int64]


def sum_steps(values: NDArray[np.float64], codes: NDArray[np.int64], swept: Threshold) -> Steps:
    """Step function over all cases, from the code of each case on each of its pieces.

    Args:
      values: [B, Q] breakpoints. codes: [B + 1, Q].
    """
    cell = CELL_OF_CODE[codes]
    moved = (cell[1:] != cell[:-1]) & ~np.isnan(values)
    at, where = np.unique(values[moved], return_inverse=True)
    delta = np.zeros((len(at) + 1, metrics.N_CELLS), dtype=np.int64)
    delta[0] = np.bincount(cell[0], minlength=metrics.N_CELLS)
    np.add.at(delta, (where + 1, cell[1:][moved]), 1)
    np.subtract.at(delta, (where + 1, cell[:-1][moved]), 1)
    total = delta.cumsum(axis=0)
    edges = np.concatenate([[swept.low], at, [swept.high]])
    keep = np.concatenate([[True], (delta[1:] != 0).any(axis=1)])
    starts = np.nonzero(keep)[0]
    ends = np.append(starts[1:], len(edges) - 1)
    return Steps(edges[:-1][starts], edges[ends], total[starts])


def decide(trace: TraceData, policy: PolicyData, arm: str | None = None) -> Decisions:
    """Decision of one policy for every case of a trace.

    Args:
      arm: which of the trace's arms; the first where not given.

    Example: `decide(trace, policy).frame()` has a row a case.
    """
    return decide_on_tables(measured_tables(trace, policy, arm), trace, policy)


def decide_on_tables(
    measured: Tables, trace: TraceData, policy: PolicyData, limits: Thresholds | None = None
) -> Decisions:
    """Decision of a policy on tables that are measured already; limits: its thresholds, where they are at hand."""
    limits = (policy_thresholds([policy]) if limits is None else limits).without(measured.evidence.off)
    said = decide_cases(measured.evidence, limits, (1, len(trace)))
    return Decisions(trace, policy, measured, limits, Outcome(*(field[0] for field in said)))


def resolver_structure(policy: PolicyData) -> tuple[bool, bool, int]:
    """What a policy's structure takes from its resolver."""
    return policy.resolver.strict, policy.resolver.entity_extractor, policy.resolver.max_options


def group_by_structure(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables."""
    groups: dict[Any, list[int]] = {}
    known: dict[tuple[Any, ...], Any] = {}  # policies made by `replace` share what was not replaced
    for place, policy in enumerate(policies):
        decision = (policy.decision.rule, id(policy.decision.model))
        sections = (id(policy.patterns), id(policy.chosen), id(policy.fused), id(policy.generation))
        of_score = policy.confidence
        confidence = (of_score.min_texts, of_score.fallback, id(of_score.calibration))
        parts = (
            *sections,
            policy.gap.near_pages,
            policy.coverage.min_hits,
            confidence,
            resolver_structure(policy),
            decision,
        )
        if parts not in known:
            known[parts] = policy.structure
        groups.setdefault(known[parts], []).append(place)
    yield from groups.values()


def tally(trace: TraceData, policies: Sequence[PolicyData], arm: str | None = None, *, engine: str = "auto") -> Tally:
    """Count the decisions of many policies.

    Args:
      engine: `numpy`, `numba` (the compiled twin, equal cell by cell), or `auto`: numba where it is installed.
    """
    labels = _labels(trace)
    cells = np.zeros((len(policies), metrics.N_CELLS), dtype=np.int64)
    stages = np.zeros((len(policies), len(STAGES)), dtype=np.int64)
    compiled, fell_back = _compiled_kernel(engine), dict[str, None]()
    for places in _replay_groups(policies):
        group = [policies[place] for place in places]
        check_stored(trace, group)  # policies of one structure may gate different signals
        found = measured_tables(trace, group[0], arm).evidence
        limits = policy_thresholds(group)
        unknown = not_compiled(found, limits)
        if engine == "numba" and unknown:
            msg = f"engine numba must know what it replays, got {unknown}; use engine='auto'."
            raise ValueError(msg)
        fell_back |= {unknown: None} if unknown and compiled is not None else {}
        use = vectorised_codes if unknown or compiled is None else compiled
        seen = use(found, limits, len(group))
        cells[places] = seen @ _CELLS_OF_CODES
        stages[places] = seen.reshape(len(group), len(STAGES), CELLS).sum(axis=2)
    used = (
        f"numpy, since numba does not know {' or '.join(fell_back)}" if fell_back else "numba" if compiled else "numpy"
    )
    return Tally(cells, stages, labels, used)


def _replay_groups(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables and the order of their gates."""
    for places in group_by_structure(policies):
        orders: dict[Any, list[int]] = {}
        for place in places:
            orders.setdefault(policies[place].decision.order, []).append(place)
        yield from orders.values()


def not_compiled(found: Evidence, limits: Thresholds) -> str:
    """What the compiled kernel does not know of cases and policies, in words; empty where it knows all."""
    if found.l2.shape[0] > 1 or found.answered:
        return f"traces of {found.l2.shape[0]} depths{' with answers' if found.answered else ''}"
    if limits.own:
        return f"gates of your own ({', '.join(limits.own)})"
    if not limits.order.published:
        return "an order of the gates other than the published one"
    if limits.costs is not None and limits.signals:
        return "gates on signals before expected costs"
    return ""


def policy_cells(found: Evidence, policies: Sequence[PolicyData]) -> NDArray[np.int64]:
    """Cells of policies of one structure, [P, 18], over cases that are measured already."""
    return vectorised_codes(found, policy_thresholds(policies), len(policies)) @ _CELLS_OF_CODES


def case_cells(found: Evidence, policies: Sequence[PolicyData]) -> NDArray[np.int8]:
    """Cell of every case under policies of one structure, [P, Q], over cases that are measured already."""
    cells = np.empty((len(policies), len(found.label)), dtype=np.int8)
    limits = policy_thresholds(policies)
    for rows in _spans(len(policies), max(1, BLOCK // max(1, len(found.label)))):
        shape = (rows.stop - rows.start, len(found.label))
        cells[rows] = CELL_OF_CODE[outcome_codes(found, decide_cases(found, _policy_slice(limits, rows), shape))]
    return cells


def _labels(trace: TraceData) -> NDArray[np.int64]:
    return np.bincount(check_labelled(label_codes(trace.cases)), minlength=3)


def _compiled_kernel(engine: str) -> Any:  # noqa: ANN401 - a function
    """Compiled tally of an engine; None where NumPy is to do the work, or knows a gate that the kernel does not."""
    kernel = kernel_of(engine, _replay_kernel)
    if kernel is None or kernel.complete():
        return None if kernel is None else kernel.tallied
    if engine == "numba":
        msg = "engine numba must know every gate of the table, got one with margins of its own; use engine='auto'."
        raise ValueError(msg)
    return None


def _replay_kernel() -> Any:  # noqa: ANN401 - a module
    from raglab.decision import kernel

    return kernel


def sweep(
    trace: TraceData,
    policies: Sequence[PolicyData],
    arm: str | None = None,
    *,
    level: float = 0.95,
    engine: str = "auto",
    costs: metrics.Costs | None = None,
) -> pd.DataFrame:
    """Rates and expected cost of many policies over a trace.

    Args:
      arm: which of the trace's arms; the first where not given. level: of the intervals.
      engine: see `tally`. costs: label -> outcome -> cost, see `metrics.cost_matrix`.

    Returns: a row a policy, in the order given: `policy_id`, each of `metrics.RATES` with `_k`, `_n`,
      `_low`, `_high`, `expected_cost` with `_low` and `_high` (1 - `pass_rate` where no costs are given), and how many
      cases each stage decided (`stage_<name>`). Its `attrs["engine"]` says what counted, and why where the compiled
      kernel could not.
    """
    import pandas as pd

    seen = tally(trace, policies, arm, engine=engine)
    columns: Mapping[str, Any] = {
        "policy_id": [policy.policy_id for policy in policies],
        **_rate_columns(seen.cells, level, costs),
        **{f"stage_{name}": seen.stages[:, number] for number, (name, _) in enumerate(STAGES)},
    }
    frame = pd.DataFrame(columns)
    frame.attrs["engine"] = seen.engine
    return frame


def _rate_columns(cells: NDArray[np.int64], level: float, costs: metrics.Costs | None) -> dict[str, Any]:
    """Columns of rates and of the expected cost of a table, [P] each."""
    columns = metrics.rate_columns(metrics.rate_counts(cells), metrics.label_counts(cells), level)
    low, high = metrics.cost_interval(cells, costs, level)
    paid = metrics.expected_cost(cells, costs)
    return columns | {"expected_cost": paid, "expected_cost_low": low, "expected_cost_high": high}


def steps(
    trace: TraceData,
    policy: PolicyData,
    path: str,
    arm: str | None = None,
    *,
    level: float = 0.95,
    costs: metrics.Costs | None = None,
) -> pd.DataFrame:
    """Rates as an exact step function of one threshold, all others as in the policy.

    Args:
      path: one of `SWEPT`, such as `l2.max_l2`. costs: of `expected_cost`, see `metrics.cost_matrix`.

    Returns: a row a step, ascending: `low`, `high`, and the columns of rates as in `sweep`. A step of an upper
      threshold holds on [low, high), of a lower one on (low, high]; the outermost end at the threshold's range.

    Raises:
      ValueError: the path cannot be swept.
    """
    import pandas as pd

    found = step_cells(_path_tables(trace, policy, path, arm).evidence, policy, path)
    columns = _rate_columns(found.cells, level, costs)
    return pd.DataFrame({"low": found.low, "high": found.high, **columns})


def evidence_with_model(found: Evidence, policy: PolicyData) -> Evidence:
    """Measured cases with the probabilities of the policy's model, whatever hits that was fitted on."""
    model = policy.structure.decision
    if model is None:
        return found
    return found._replace(
        probability=class_probabilities(found.signals, model, found.known.names), asked_right=model.asked_right
    )


def step_cells(found: Evidence, policy: PolicyData, path: str) -> Steps:
    """Cells behind `steps`, of cases that are measured already."""
    limits = policy_thresholds([policy])
    swept = swept_threshold(found.known, limits, path)
    values, codes = piece_codes(found, limits, path, _codes_function(found))
    return sum_steps(values, codes, swept)


def _path_tables(trace: TraceData, policy: PolicyData, path: str, arm: str | None) -> Tables:
    """Measured tables of a policy, which must hold the signal that a path names."""
    section, _, rest = path.partition(".")
    if section == "signals" and "." in rest:
        check_signals(trace, [rest.partition(".")[0]])
    return measured_tables(trace, policy, arm)


def flips(trace: TraceData, policy: PolicyData, case_id: str, arm: str | None = None) -> pd.DataFrame:
    """For each threshold, the smallest change that would flip the status of one case, nearest first.

    Returns: a row a threshold that can flip it: `path`, `current`, `flips_at` (set the threshold to it and the
      status is another), `change`, `share` (|change| over the threshold's range), `status`, `becomes`.
    """
    import pandas as pd

    said = decide(trace, policy, arm)
    row = said.row_of(case_id)
    one = _single_case(trace, row)
    found = measured_tables(one, policy, arm).evidence
    limits = policy_thresholds([policy])
    current = Status(int(said.status[row]))
    rows = []
    for path, swept in swept_paths(found.known, user_gates(limits)).items():
        value = policy.value(path)
        if value is None or (limits.costs is None and path.startswith("decision.")):
            continue
        points, codes = piece_codes(found, limits, path, _codes_function(found))
        width = float(found.l2.shape[1]) if swept.whole else swept.high - swept.low
        if path.startswith("decision."):  # a cost has no greatest value: its change counts beside itself
            width = max(float(value), 1.0)
        moved = swept_threshold(found.known, limits, path)
        tried = _closest_flip(float(value), points[:, 0], STATUS_OF[codes[:, 0] // CELLS], int(current), moved)
        if tried is not None:
            at, becomes = tried
            change = at - float(value)
            rows.append((path, float(value), at, change, abs(change) / width, current.name, Status(becomes).name))
    columns = ["path", "current", "flips_at", "change", "share", "status", "becomes"]
    return pd.DataFrame(rows, columns=columns).sort_values("share", kind="stable", ignore_index=True)


def _closest_flip(
    value: float, points: NDArray[np.float64], status: NDArray[np.int8], current: int, swept: Threshold
) -> tuple[float, int] | None:
    """Nearest value of a threshold at which the status is another, and that status."""
    points = points[~np.isnan(points)]
    inward = np.inf if swept.side == "floor" else -np.inf
    best: tuple[float, int] | None = None
    for piece in range(len(points) + 1):
        if status[piece] == current:
            continue
        first = points[piece - 1] if piece else swept.low
        last = points[piece] if piece < len(points) else swept.high
        just_above = first + 1.0 if swept.whole else np.nextafter(first, inward)
        low = just_above if swept.side == "floor" and piece else first
        high = np.nextafter(last, inward) if swept.side == "ceiling" and piece < len(points) else last
        if low > high:
            continue
        at = float(min(max(value, low), high))
        if best is None or abs(at - value) < abs(best[0] - value):
            best = at, int(status[piece])
    return best


def _single_case(trace: TraceData, row: int) -> TraceData:
    """Trace of one case, labelled in any case: what flips is its status, whatever its label."""
    found = trace.pattern_hits
    if found is not None:
        found = found._replace(counts=found.counts[[row]], query_entities=(found.query_entities[row],))
    hits = map_fields(trace.hits, lambda field: field[[row]])
    answers = select_answers(trace.answers, [row])
    columns = {name: column[[row]] for name, column in trace.columns.items()}
    return TraceData(
        cases=(trace.cases[row]._replace(expect_status=trace.cases[row].expect_status or Status.refuse.name),),
        chunks=trace.chunks,
        arms=trace.arms,
        hits=hits,
        pattern_hits=found,
        meta=trace.meta,
        answers=answers,
        columns=columns,
    )


def _codes_function(found: Evidence) -> CodesOf:
    return lambda limits, shape: outcome_codes(found, decide_cases(found, limits, shape))


__all__ = ["SWEPT", "Bernoulli", "Run", "Table", "Tally", "decide", "flips", "log", "run", "steps", "sweep", "tally"]
