"""What the cockpit shows (shore): a policy's gates, rates, cases, axes as plain page values.

Everything here is a look at what `replay` decided: no threshold meets a number in this module.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import ConfigDict, Field, Strict, TypeAdapter

from raglab import gates, metrics
from raglab.decision import chain
from raglab.decision.checks import Check
from raglab.decision.decisions import ANSWERED, Decisions
from raglab.decision.measurement import Evidence
from raglab.decision.outcome_codes import CELL_OF_CODE, outcome_codes
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.gates import Gate, Threshold
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.gating.signal_gates import SIGNALS, signal_path
from raglab.lab.goals import Goal
from raglab.lab.line_search import round_between, step_index
from raglab.metrics.mixes import cost_columns
from raglab.policy import idle_reasons
from raglab.policy_parts.acting import RULE_SWITCHES
from raglab.policy_parts.own_gates import own_gate
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import flips, step_cells
from raglab.replaying.breakpoints import (
    COST_THRESHOLDS,
    StepCells,
    swept_paths,
    swept_threshold,
    threshold_values,
    user_gates,
)
from raglab.replaying.step_functions import idle_thresholds, with_threshold
from raglab.resolver import ONE_OPTION, RULES
from raglab.store.files import shown_value
from raglab.store.policies import Policy
from raglab.values import BoolArray, FloatArray, IntArray, Status
from raglab.words.canonical import decimals
from raglab.words.characters import visible

HISTOGRAM_BINS = 40  # of a histogram
MAX_LISTED_CASES = 100  # cases that a page lists; the rest are counted
HITS_SHOWN, MAX_TEXT_SHOWN = 12, 1_200  # hits of a case, characters of each
STATUS_NAMES = tuple(status.name for status in Status)


class ShownPolicy(NamedTuple):
    """A policy decided on the cases: its decisions, and the cell of every case, [Q]."""

    decisions: Decisions
    cells: IntArray

    @property
    def policy(self) -> Policy:
        """The policy that decided."""
        return cast("Policy", self.decisions.policy)

    @property
    def evidence(self) -> Evidence:
        """What was measured of the cases."""
        return self.decisions.tables.evidence

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the policy."""
        return self.decisions.thresholds

    @property
    def counts(self) -> IntArray:
        """Cases by cell, [18]."""
        return np.bincount(self.cells, minlength=metrics.N_CELLS)

    @property
    def passes(self) -> BoolArray:
        """Whether each case passes its contract, [Q] (rule S6.3)."""
        return metrics.cell_costs()[self.cells] == 0.0


def shown(decisions: Decisions) -> ShownPolicy:
    """Decisions with the cell of every case."""
    stages, slots, depths = decisions.outcome
    outcome = chain.Outcome(stages[None], slots[None], depths[None])
    return ShownPolicy(
        decisions, CELL_OF_CODE[outcome_codes(decisions.tables.evidence, outcome)[0]]
    )


class Row(NamedTuple):
    """A gate, a rule of the resolver or the expected cost, as the cockpit lists it.

    name: as `Decisions.decided_by` has it. firing: what it does to a case. switch: path of its
    switch, '' where it has none.
    """

    name: str
    rule: str
    firing: str
    switch: str
    thresholds: tuple[Threshold, ...] = ()


def gate_rows(current: ShownPolicy) -> Iterator[Row]:
    """What may decide under a policy, in its order.

    Gates, those on signals and of the user, rules, costs, no gate.
    """
    thresholds = current.thresholds
    policy = current.policy
    gate_order = thresholds.order
    is_by_cost = policy.decision.rule == EXPECTED_COST
    yield Row("empty_query", "S2.1", "refuse", "")
    for gate_step in gate_order.query:
        yield _gate_row(gate_step.gate)
    yield Row("no_hits", "S2.2", "refuse", "")
    if is_by_cost:
        yield Row(EXPECTED_COST, "S2.17", "refuse or ask", "", COST_THRESHOLDS)
    for gate_steps in (gate_order.before, gate_order.after):
        for gate_step in gate_steps:
            if gate_step.gate.name == SIGNALS:
                yield from _user_rows(current, gate_step.names)
            elif not is_by_cost:
                yield _gate_row(gate_step.gate)
        if gate_steps is gate_order.before and not is_by_cost:
            yield _gate_row(chain.GAP_GATE)
            yield from _rule_rows()
    if current.evidence.answered:  # of them only hygiene judges what was decided by expected cost
        yield from (
            _gate_row(gate_step.gate)
            for gate_step in gate_order.answer
            if not (is_by_cost and gate_step.gate.switch)
        )
    yield Row(ANSWERED, "S2.12", "answer", "")


def _gate_row(gate: Gate) -> Row:
    swept_thresholds = () if gate.firing == "warn" else gate.thresholds
    text = "ask the resolver" if gate is chain.GAP_GATE else gate.firing
    return Row(
        gate.name,
        gate.rule,
        text,
        f"{gate.name}.enabled" if gate.switch else "",
        swept_thresholds,
    )


def _rule_rows() -> Iterator[Row]:
    for rule in RULES:
        firing = "ask" if rule.status == Status.ambiguous else "answer"
        yield Row(
            f"resolver.{rule.name}",
            "S3.3",
            firing,
            RULE_SWITCHES.get(rule.name, ""),
            rule.thresholds,
        )
    yield Row(f"resolver.{ONE_OPTION}", "S3.5", "answer", "")


def _user_rows(current: ShownPolicy, step_names: Sequence[str] | None) -> Iterator[Row]:
    """Gates on signals of the policy or with a column in the trace, then those of the user."""
    for signal_name in current.evidence.known.names:
        gate_path = signal_path(signal_name)
        is_gate = (
            signal_name in current.policy.signals or signal_name in current.decisions.trace.columns
        )
        if is_gate and (step_names is None or gate_path in step_names):
            firing = current.policy.value(f"{gate_path}.on_fire")
            user_thresholds = swept_paths(current.evidence.known).values()
            signal_thresholds = tuple(
                threshold for threshold in user_thresholds if threshold.signal == signal_name
            )
            yield Row(gate_path, "S2.15", firing, f"{gate_path}.enabled", signal_thresholds)
    for signal_name in current.policy.gates:
        if step_names is None or f"{USER_GATES_SECTION}.{signal_name}" in step_names:
            user_gate = own_gate(signal_name)
            yield Row(
                f"{USER_GATES_SECTION}.{signal_name}",
                "S2.18",
                user_gate.firing,
                f"{USER_GATES_SECTION}.{signal_name}.enabled",
                user_gate.thresholds,
            )


def decided_counts(current: ShownPolicy) -> dict[str, list[int]]:
    """Cases by decision, in the order of `Status`, by the name of what decided them.

    Those that decided any.
    """
    deciders = current.decisions.decided_by.astype(str)
    statuses = current.decisions.status
    return {
        str(decider): np.bincount(statuses[deciders == decider], minlength=len(Status)).tolist()
        for decider in np.unique(deciders)
    }


def gate_views(
    current: ShownPolicy,
    baseline: ShownPolicy,
    locked: frozenset[str],
    axes: Mapping[tuple[str, str], Axis],
) -> list[dict[str, Any]]:
    """Gates as the page lists them.

    Args:
      locked: paths and gates that the user keeps.
      axes: that were worked out, by policy id and path.
    """
    counts = decided_counts(current)
    baseline_counts = decided_counts(baseline)
    no_counts, gate_entries, deciding_rows = [0] * len(Status), [], list(gate_rows(current))
    threshold_paths = [
        threshold.path for deciding_row in deciding_rows for threshold in deciding_row.thresholds
    ]
    idle_paths = set(idle_thresholds(current.evidence, current.policy, threshold_paths))
    for deciding_row in deciding_rows:
        gate_entry = {
            "name": deciding_row.name,
            "title": deciding_row.name.replace("_", " "),
            "rule": deciding_row.rule,
            "firing": deciding_row.firing,
            "switch": deciding_row.switch or None,
            "on": bool(current.policy.value(deciding_row.switch)) if deciding_row.switch else True,
            "decided": counts.get(deciding_row.name, no_counts),
            "decided_before": baseline_counts.get(deciding_row.name, no_counts),
            "off_reason": _off_reason(current, deciding_row),
            "locked": deciding_row.name in locked,
            "thresholds": [
                _threshold_view(current, baseline, threshold, locked, axes)
                | {
                    "idle": idle_reasons(
                        [(current.policy, threshold.path)] if threshold.path in idle_paths else []
                    )
                }
                for threshold in deciding_row.thresholds
            ],
        }
        gate_entries.append(gate_entry)
    return gate_entries


def _off_reason(current: ShownPolicy, deciding_row: Row) -> str | None:
    """Why a gate decides nothing whatever its thresholds are."""
    if deciding_row.name in current.evidence.off:
        return "the trace lacks what it measures"
    if deciding_row.name in current.thresholds.order.off:
        return "decision.order leaves it out"
    return None


def _threshold_view(
    current: ShownPolicy,
    baseline: ShownPolicy,
    threshold: Threshold,
    locked: frozenset[str],
    axes: Mapping[tuple[str, str], Axis],
) -> dict[str, Any]:
    current_value = current.policy.value(threshold.path)
    baseline_value = baseline.policy.value(threshold.path)
    bounded_threshold = swept_threshold(current.evidence.known, current.thresholds, threshold.path)
    range_start, range_end = value_range(current, threshold, (current.policy, baseline.policy))
    # an axis of another policy would show changes where this one has none
    axis = axes.get((current.policy.policy_id, threshold.path))
    threshold_entry = {
        "path": threshold.path,
        "key": _shown_key(threshold),
        "side": threshold.side,
        "unit": threshold.unit.described.removeprefix("a "),
        "value": current_value,
        "text": "off" if current_value is None else decimals(float(current_value)),
        "baseline": baseline_value,
        "nullable": threshold.nullable,
        "whole": threshold.whole,
        "low": bounded_threshold.low,
        "high": bounded_threshold.high,
        "view_low": range_start,
        "view_high": range_end,
        "locked": threshold.path in locked,
        "plateau": None
        if axis is None or axis.at < 0
        else [_finite(axis.low[axis.at]), _finite(axis.high[axis.at])],
    }
    return _finite_values(threshold_entry)


def _shown_key(threshold: Threshold) -> str:
    """Name of a threshold beside its slider.

    That of a cost has the label, since each label has one of its name.
    """
    path = threshold.path.removeprefix("decision.costs.")
    return threshold.key if path == threshold.path else path.replace(".", ": ")


def _finite(number: float) -> float | None:
    """A number as JSON has it; what has no end is null."""
    return float(number) if np.isfinite(number) else None


def _finite_values(page_entry: dict[str, Any]) -> dict[str, Any]:
    """A view whose missing and endless numbers are null."""
    return {
        name: _finite(value) if isinstance(value, float) else value
        for name, value in page_entry.items()
    }


def met_values(current: ShownPolicy, threshold: Threshold) -> FloatArray:
    """Measurement that a threshold is compared with in every case, [Q]; NaN where there is none."""
    evidence = current.evidence
    measurement_name = threshold.meets
    measured_values: Any = np.nan  # of a cost
    is_cost = threshold.path.startswith("decision.")
    if measurement_name == "n_relevant":
        relevance_cut = np.atleast_2d(
            gates.l2_cut(evidence.best_l2[:1], current.thresholds.gates["l2"])
        )
        measured_values = gates.n_relevant(evidence.l2[0], relevance_cut)[0]
    elif measurement_name in chain.SLOT_MEASUREMENTS and not is_cost:
        measured_values = chain.values_at_slot(
            chain.measurement(evidence, measurement_name)[0], current.decisions.outcome.slot[None]
        )[0]
    elif not is_cost:
        measured_values = threshold_values(evidence, current.thresholds, threshold.path, 0)[0]
    return np.broadcast_to(np.asarray(measured_values, dtype=np.float64), len(current.decisions))


def value_range(
    current: ShownPolicy, threshold: Threshold, policies: Sequence[Policy]
) -> tuple[float, float]:
    """Part of a threshold's axis that is shown: what the cases have, and the values of policies."""
    measured_values = met_values(current, threshold)
    policy_values = (policy.value(threshold.path) for policy in policies)
    shown_values = [
        float(policy_value) for policy_value in policy_values if policy_value is not None
    ]
    shown_values += measured_values[np.isfinite(measured_values)].tolist()
    if not shown_values:
        range_start = threshold.low
        range_end = threshold.high
        return (
            (range_start, range_end)
            if np.isfinite(range_start) and np.isfinite(range_end)
            else (0.0, 1.0)
        )
    range_start = min(shown_values)
    range_end = max(shown_values)
    margin = 0.04 * (range_end - range_start) or max(
        0.04 * abs(range_start), 0.5 if threshold.whole else 0.02
    )
    return float(max(range_start - margin, threshold.low)), float(
        min(range_end + margin, threshold.high)
    )


def histogram(
    current: ShownPolicy, threshold: Threshold, range_start: float, range_end: float
) -> dict[str, Any] | None:
    """Cases by label over what a threshold meets, in equal bins; None where nothing is measured."""
    measured_values = met_values(current, threshold)
    label_codes = current.evidence.label
    is_inside = (
        np.isfinite(measured_values)
        & (measured_values >= range_start)
        & (measured_values <= range_end)
    )
    if not is_inside.any() or not range_start < range_end:
        return None
    counts_by_label = {
        status_name: np.histogram(
            measured_values[is_inside & (label_codes == status_code)],
            HISTOGRAM_BINS,
            (range_start, range_end),
        )[0].tolist()
        for status_code, status_name in enumerate(STATUS_NAMES)
    }
    return {"low": range_start, "high": range_end, "counts": counts_by_label}


class Axis(NamedTuple):
    """Steps of one threshold, all else as in a policy.

    On [low, high) of a ceiling, (low, high] of a floor.

    value: what a drag to a step sets, [N]. cells: cases by cell, [N, 20]. at: the step of the
    policy's own value, -1 where it has none.
    """

    path: str
    side: str
    low: FloatArray
    high: FloatArray
    value: FloatArray
    cells: IntArray
    at: int


def axis_of(current: ShownPolicy, path: str) -> Axis:
    """Exact steps of a threshold under a policy.

    Raises:
      ValueError: the path cannot be swept.
    """
    current_value = current.policy.value(path)
    policy = with_threshold(current.evidence, current.policy, path)
    threshold = swept_threshold(current.evidence.known, policy_thresholds([policy]), path)
    exact_steps: StepCells = step_cells(current.evidence, policy, path)
    current_step = (
        -1
        if current_value is None
        else step_index(exact_steps.low, exact_steps.high, float(current_value), threshold.side)
    )
    drag_values = round_between(exact_steps.low, exact_steps.high, threshold)
    return Axis(
        path,
        threshold.side,
        exact_steps.low,
        exact_steps.high,
        drag_values,
        exact_steps.cells,
        current_step,
    )


def axis_buffer(axis: Axis, goal: Goal) -> bytes:
    """Steps for the browser: float64 low, high, value, cost [N].

    int32 k, n [N, rates] and label × decision [N, 9].
    """
    rate_counts = metrics.rate_counts(axis.cells)
    label_counts = metrics.label_counts(axis.cells)
    step_costs = np.asarray(goal.cost(axis.cells), dtype=np.float64)
    integer_arrays = (
        rate_counts,
        metrics.denominators(rate_counts, label_counts),
        outcome_tables(axis.cells).reshape(len(axis.low), -1),
    )
    float_bytes = b"".join(
        np.ascontiguousarray(array, dtype="<f8").tobytes()
        for array in (axis.low, axis.high, axis.value, step_costs)
    )
    return float_bytes + b"".join(
        np.ascontiguousarray(array, dtype="<i4").tobytes() for array in integer_arrays
    )


def outcome_tables(cells: IntArray) -> IntArray:
    """Cases by label (rows) and decision (columns), [..., 3, 3], of cells [..., 20]."""
    plain_cells = metrics.settled_cells(cells, metrics.WRONG_CELL)[..., : metrics.PLAIN_CELLS]
    counts = plain_cells.reshape(*cells.shape[:-1], len(Status), len(Status), 2).sum(axis=-1)
    return np.swapaxes(counts, -1, -2)


def rate_views(current: ShownPolicy, baseline: ShownPolicy, goal: Goal) -> list[dict[str, Any]]:
    """Each rate: k of n, exact interval, same-case difference to the baseline, target outcome."""
    rate_table = metrics.rate_columns(np.stack([current.counts, baseline.counts]))
    paired_change = metrics.paired_rates(baseline.cells, current.cells)
    rate_entries = []
    for rate_index, rate_name in enumerate(metrics.RATES):
        n_counted, n_applicable = (
            int(rate_table[f"{rate_name}_{count_suffix}"][0]) for count_suffix in "kn"
        )
        rate_value, lower_bound, upper_bound = (
            float(rate_table[f"{rate_name}{bound_suffix}"][0])
            for bound_suffix in ("", "_low", "_high")
        )
        target = goal.targets.get(rate_name)
        verdict_word, verdict_text = target_verdict(
            rate_name, n_counted, n_applicable, (lower_bound, upper_bound), target
        )
        rate_entry = {
            "name": rate_name,
            "k": n_counted,
            "n": n_applicable,
            "value": rate_value,
            "low": lower_bound,
            "high": upper_bound,
        }
        rate_entry |= {"baseline": float(rate_table[rate_name][1]), "target": target}
        change_bounds = (
            paired_change.difference[rate_index],
            paired_change.low[rate_index],
            paired_change.high[rate_index],
        )
        rate_entry |= _difference(current, baseline, change_bounds)
        rate_entries.append(
            _finite_values(rate_entry) | {"verdict": verdict_word, "text": verdict_text}
        )
    return rate_entries


def _difference(
    current: ShownPolicy, baseline: ShownPolicy, change_bounds: tuple[float, float, float]
) -> dict[str, float]:
    """Difference to the baseline with its interval; two equal policies have none to show."""
    bound_names = ("difference", "difference_low", "difference_high")
    is_same = current.policy.policy_id == baseline.policy.policy_id
    return {
        bound_name: np.nan if is_same else float(bound)
        for bound_name, bound in zip(bound_names, change_bounds, strict=True)
    }


def target_verdict(
    rate_name: str,
    n_counted: int,
    n_applicable: int,
    interval: tuple[float, float],
    target: float | None,
) -> tuple[str, str]:
    """What k of n say of a target: a word for the page, and a sentence.

    `shown`: the whole interval keeps it; `met`: these cases keep it; `open`: no k of so few cases
    could show it; `missed`; `none`: there is no target, or no case.
    """
    if target is None or not n_applicable:
        return "none", "" if target is None else "0 of 0 meets no target"
    is_lower_better = metrics.RATE_TABLE[rate_name].better == "low"
    keeps_target = operator.le if is_lower_better else operator.ge
    # of so many cases all of which count for the rate
    best_interval = metrics.clopper_pearson(0 if is_lower_better else n_applicable, n_applicable)
    if keeps_target(interval[is_lower_better], target):
        return "shown", "met, the whole interval"
    if not keeps_target(n_counted / n_applicable, target):
        return "missed", "not met"
    if not keeps_target((best_interval.low, best_interval.high)[is_lower_better], target):
        return "open", f"cannot be shown with {n_applicable} cases"
    return "met", "met on these cases, not the whole interval"


def cost_view(current: ShownPolicy, baseline: ShownPolicy, goal: Goal) -> dict[str, Any]:
    """Expected cost of a case with interval, and difference to the baseline on the same cases."""
    cell_counts = current.counts
    cost_bounds = cost_columns(cell_counts, goal.matrix, weighed=goal.weighings(cell_counts))
    case_weights = goal.case_weights(metrics.LABEL_OF_CELL[current.cells])
    paired_change = metrics.paired_cost(
        baseline.cells, current.cells, goal.matrix, weights=case_weights
    )
    cost_entry = {
        "value": float(goal.cost(cell_counts)),
        "low": float(cost_bounds["expected_cost_low"]),
        "high": float(cost_bounds["expected_cost_high"]),
        "baseline": float(goal.cost(baseline.counts)),
    }
    return _finite_values(cost_entry | _difference(current, baseline, paired_change[:3]))


def plane_point(cell_counts: IntArray, goal: Goal) -> tuple[float, float]:
    """Coverage and expected cost, of cases by cell [18]."""
    traffic_counts = goal.in_traffic(cell_counts)
    answered = float(outcome_tables(traffic_counts)[:, Status.ok].sum())
    return answered / float(traffic_counts.sum()), float(goal.cost(cell_counts))


MAX_SEARCH_LENGTH = 1_000  # characters
STRICT_TYPES = ConfigDict(strict=True)  # nothing is turned into another type
SearchText = Annotated[str, Field(max_length=MAX_SEARCH_LENGTH)]
Label = Literal["ok", "refuse", "ambiguous"]


class Filter(NamedTuple):
    """Which cases are listed; None is any. kind: gained, lost or other. slice: column and value."""

    kind: Literal["gained", "lost", "other", "same"] | None = None
    label: Label | None = None
    decision: Label | None = None
    decided_by: SearchText | None = None
    slice: Annotated[tuple[SearchText, SearchText] | None, Strict(False)] = None
    search: SearchText = ""


FILTER_ADAPTER = TypeAdapter(Filter, config=STRICT_TYPES)


def checked_filter(case_filter: Filter, columns: Mapping[str, Sequence[str]]) -> Filter:
    """The filter, its values checked.

    Args:
      columns: slices, by column.

    Raises:
      ValueError: an unknown kind, label, decision or column, or a value of another type.
    """
    checked = FILTER_ADAPTER.validate_python(case_filter._asdict())
    if checked.slice is not None and checked.slice[0] not in columns:
        names = ", ".join(columns) or "none"
        msg = f"a slice must be of {names}, got {visible(shown_value(checked.slice[0]))}."
        raise ValueError(msg)
    return checked


def case_views(
    current: ShownPolicy,
    baseline: ShownPolicy,
    case_filter: Filter,
    texts: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    *,
    labelled: bool,
) -> dict[str, Any]:
    """Cases as the page lists them, those that changed first; at most `MAX_LISTED_CASES` of them.

    Args:
      texts: id and query of every case in small letters.
      columns: slices, by column, of every case.
      labelled: whether the labels are of the user; without them a change is neither gain nor loss.
    """
    current_status = current.decisions.status
    # gained, lost, changed otherwise or the same; without labels there is neither gain nor loss
    is_gained = labelled & current.passes & ~baseline.passes
    is_lost = labelled & baseline.passes & ~current.passes
    is_changed = baseline.decisions.status != current_status
    change_kinds = np.select([is_gained, is_lost, is_changed], ["gained", "lost", "other"], "same")
    status_names = np.array(STATUS_NAMES)
    deciders = current.decisions.decided_by
    label_names, baseline_names, current_names = (
        status_names[status_codes]
        for status_codes in (current.evidence.label, baseline.decisions.status, current_status)
    )
    # Filters narrow each other; the search for text comes last, on the rows that are left, since it
    # is the slow one.
    is_listed = np.ones(len(change_kinds), dtype=bool)
    for filter_value, case_values in zip(
        case_filter[:4], (change_kinds, label_names, current_names, deciders), strict=True
    ):
        is_listed &= case_values == filter_value if filter_value else True
    if case_filter.slice is not None:
        is_listed &= np.array(columns[case_filter.slice[0]]) == case_filter.slice[1]
    case_indices = np.flatnonzero(is_listed)
    # A change must not fall behind the last row that is sent.
    case_indices = case_indices[np.argsort(change_kinds[case_indices] == "same", kind="stable")]
    if case_filter.search:
        search_text = case_filter.search.casefold()
        case_indices = np.array(
            [
                case_index
                for case_index in case_indices.tolist()
                if search_text in texts[case_index]
            ],
            dtype=np.int64,
        )
    cases = current.decisions.trace.cases
    case_entries = [
        {
            "id": cases[case_index].id,
            "query": cases[case_index].query[:300],
            "label": (cases[case_index].expect_status or "") if labelled else "",
            "before": str(baseline_names[case_index]),
            "after": str(current_names[case_index]),
            "decided_by": str(deciders[case_index]),
            "kind": str(change_kinds[case_index]),
            "correct": bool(current.passes[case_index]) if labelled else None,
        }
        for case_index in case_indices[:MAX_LISTED_CASES].tolist()
    ]
    # Counts are of all cases, whatever the filter, for they are the result and not the list.
    change_counts = {
        change_kind: int((change_kinds == change_kind).sum())
        for change_kind in ("gained", "lost", "other")
    }
    return {
        **change_counts,
        "total": len(case_indices),
        "shown": len(case_entries),
        "rows": case_entries,
    }


def case_view(current: ShownPolicy, case_id: str, *, labelled: bool) -> dict[str, Any]:
    """One case: what was asked, what each gate made of it, and its hits.

    `flip_views` takes longer and comes behind.

    Raises:
      KeyError: no such case is shown.
    """
    decisions = current.decisions
    case_index = decisions.row_of(case_id)
    case = decisions.trace.cases[case_index]
    case_checks = decisions.explain(case_id)
    return {
        "id": case.id,
        "query": case.query,
        "label": (case.expect_status or "") if labelled else "",
        "correct": bool(current.passes[case_index]) if labelled else None,
        "decision": STATUS_NAMES[decisions.status[case_index]],
        "decided_by": str(decisions.decided_by[case_index]),
        "reason": decisions.reason(case_index),
        "notes": case.notes or "",
        "checks": [_check_view(check) for check in case_checks],
        "hits": hit_views(decisions, case_index),
        "flips": None,
    }


def _check_view(check: Check) -> dict[str, Any]:
    """A check with its margin as a share of what it compares, for a bar."""
    largest_magnitude = max(abs(check.value), abs(check.threshold))
    is_finite = np.isfinite([check.value, check.threshold, check.margin]).all()
    margin_share = (
        check.margin / largest_magnitude if is_finite and largest_magnitude > 0.0 else np.nan
    )
    entry = check._asdict() | {"share": float(np.clip(margin_share, -1.0, 1.0))}
    return _finite_values(entry | {"passes": bool(check.passes)})


def hit_views(decisions: Decisions, case_index: int) -> list[dict[str, Any]]:
    """First hits of a case at the depth that decided, nearest first, with their scores and text."""
    trace = decisions.trace
    arm_index = trace.arm(decisions.tables.arm)
    depth = int(decisions.outcome.depth[case_index])
    hit_columns = trace.hits
    chosen_chunks = set(decisions.chunks_of_decision(case_index))
    hit_entries = []
    for hit_rank, chunk_number in enumerate(
        hit_columns.chunk[case_index, arm_index, depth][:HITS_SHOWN].tolist()
    ):
        if chunk_number < 0:
            break
        chunk = trace.chunks[chunk_number]
        score_columns = {
            "squared L2": hit_columns.l2,
            "cosine": hit_columns.cosine,
            "hybrid": hit_columns.s_hybrid,
            "rerank": hit_columns.s_rerank,
        }
        hit_entries.append(
            {
                "rank": int(hit_columns.rank[case_index, arm_index, depth, hit_rank]) + 1,
                "source": chunk.document,
                "page": chunk.page_shown,
                "section": chunk.section_path[:MAX_TEXT_SHOWN],
                "text": chunk.text[:MAX_TEXT_SHOWN],
                "chosen": chunk_number in chosen_chunks,
                "scores": {
                    score_name: float(score_column[case_index, arm_index, depth, hit_rank])
                    for score_name, score_column in score_columns.items()
                    if np.isfinite(score_column[case_index, arm_index, depth, hit_rank])
                },
            }
        )
    return hit_entries


def flip_views(current: ShownPolicy, case_id: str) -> list[dict[str, Any]]:
    """Smallest change of each threshold that flips the status of a case, nearest first."""
    table = flips(
        current.decisions.trace, current.policy, case_id, arm=current.decisions.tables.arm
    )
    nearest_flips = table.rename(columns={"flips_at": "at"}).head(8)
    entries: Any = nearest_flips[["path", "current", "at", "becomes"]].to_dict("records")
    return [
        entry
        | {"text": f"{decimals(entry['current'])} → {decimals(entry['at'], entry['current'])}"}
        for entry in entries
    ]


def sweepable(current: ShownPolicy) -> Mapping[str, Threshold]:
    """Thresholds that can be swept under a policy, by path."""
    return swept_paths(current.evidence.known, user_gates(current.thresholds))


def swept_rows(current: ShownPolicy) -> Iterator[Threshold]:
    """Thresholds that the page lists, in its order."""
    for deciding_row in gate_rows(current):
        yield from deciding_row.thresholds
