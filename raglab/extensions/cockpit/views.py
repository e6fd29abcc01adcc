"""What the cockpit shows (shore): a policy's gates, rates, cases, axes as plain page values.

Everything here is a look at what `replay` decided: no threshold meets a number in this module.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
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
from raglab.values import Status
from raglab.words.canonical import decimals
from raglab.words.characters import visible

BINS = 40  # of a histogram
MOST_ROWS = 100  # cases that a page lists; the rest are counted
HITS_SHOWN, TEXT_SHOWN = 12, 1_200  # hits of a case, characters of each
STATUSES = tuple(status.name for status in Status)


class ShownPolicy(NamedTuple):
    """A policy decided on the cases: its decisions, and the cell of every case, [Q]."""

    decisions: Decisions
    cells: NDArray[np.int64]

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
    def counts(self) -> NDArray[np.int64]:
        """Cases by cell, [18]."""
        return np.bincount(self.cells, minlength=metrics.N_CELLS)

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Whether each case passes its contract, [Q] (rule S6.3)."""
        return metrics.cell_costs()[self.cells] == 0.0


def shown(decisions: Decisions) -> ShownPolicy:
    """Decisions with the cell of every case."""
    stage, slot, depth = decisions.outcome
    every = chain.Outcome(stage[None], slot[None], depth[None])
    return ShownPolicy(decisions, CELL_OF_CODE[outcome_codes(decisions.tables.evidence, every)[0]])


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


def gate_rows(here: ShownPolicy) -> Iterator[Row]:
    """What may decide under a policy, in its order.

    Gates, those on signals and of the user, rules, costs, no gate.
    """
    thresholds, policy = here.thresholds, here.policy
    order, by_cost = thresholds.order, policy.decision.rule == EXPECTED_COST
    yield Row("empty_query", "S2.1", "refuse", "")
    for step in order.query:
        yield _gate_row(step.gate)
    yield Row("no_hits", "S2.2", "refuse", "")
    if by_cost:
        yield Row(EXPECTED_COST, "S2.17", "refuse or ask", "", COST_THRESHOLDS)
    for steps in (order.before, order.after):
        for step in steps:
            if step.gate.name == SIGNALS:
                yield from _user_rows(here, step.names)
            elif not by_cost:
                yield _gate_row(step.gate)
        if steps is order.before and not by_cost:
            yield _gate_row(chain.GAP_GATE)
            yield from _rule_rows()
    if here.evidence.answered:  # of them only hygiene judges what was decided by expected cost
        yield from (
            _gate_row(step.gate) for step in order.answer if not (by_cost and step.gate.switch)
        )
    yield Row(ANSWERED, "S2.12", "answer", "")


def _gate_row(gate: Gate) -> Row:
    swept = () if gate.firing == "warn" else gate.thresholds
    firing = "ask the resolver" if gate is chain.GAP_GATE else gate.firing
    return Row(gate.name, gate.rule, firing, f"{gate.name}.enabled" if gate.switch else "", swept)


def _rule_rows() -> Iterator[Row]:
    for rule in RULES:
        fires = "ask" if rule.status == Status.ambiguous else "answer"
        yield Row(
            f"resolver.{rule.name}",
            "S3.3",
            fires,
            RULE_SWITCHES.get(rule.name, ""),
            rule.thresholds,
        )
    yield Row(f"resolver.{ONE_OPTION}", "S3.5", "answer", "")


def _user_rows(here: ShownPolicy, names: Sequence[str] | None) -> Iterator[Row]:
    """Gates on signals of the policy or with a column in the trace, then those of the user."""
    for name in here.evidence.known.names:
        path = signal_path(name)
        is_gate = name in here.policy.signals or name in here.decisions.trace.columns
        if is_gate and (names is None or path in names):
            section = here.policy.value(f"{path}.on_fire")
            paths = swept_paths(here.evidence.known).values()
            swept = tuple(threshold for threshold in paths if threshold.signal == name)
            yield Row(path, "S2.15", section, f"{path}.enabled", swept)
    for name in here.policy.gates:
        if names is None or f"{USER_GATES_SECTION}.{name}" in names:
            own = own_gate(name)
            yield Row(
                f"{USER_GATES_SECTION}.{name}",
                "S2.18",
                own.firing,
                f"{USER_GATES_SECTION}.{name}.enabled",
                own.thresholds,
            )


def decided_counts(here: ShownPolicy) -> dict[str, list[int]]:
    """Cases by decision, in the order of `Status`, by the name of what decided them.

    Those that decided any.
    """
    deciders, status = here.decisions.decided_by.astype(str), here.decisions.status
    return {
        str(name): np.bincount(status[deciders == name], minlength=len(Status)).tolist()
        for name in np.unique(deciders)
    }


def gate_views(
    here: ShownPolicy,
    before: ShownPolicy,
    locked: frozenset[str],
    axes: Mapping[tuple[str, str], Axis],
) -> list[dict[str, Any]]:
    """Gates as the page lists them.

    Args:
      locked: paths and gates that the user keeps.
      axes: that were worked out, by policy id and path.
    """
    counts, counts_before = decided_counts(here), decided_counts(before)
    none, views, rows = [0] * len(Status), [], list(gate_rows(here))
    paths = [threshold.path for row in rows for threshold in row.thresholds]
    idle = set(idle_thresholds(here.evidence, here.policy, paths))
    for row in rows:
        view = {
            "name": row.name,
            "title": row.name.replace("_", " "),
            "rule": row.rule,
            "firing": row.firing,
            "switch": row.switch or None,
            "on": bool(here.policy.value(row.switch)) if row.switch else True,
            "decided": counts.get(row.name, none),
            "decided_before": counts_before.get(row.name, none),
            "off_reason": _off_reason(here, row),
            "locked": row.name in locked,
            "thresholds": [
                _threshold_view(here, before, threshold, locked, axes)
                | {
                    "idle": idle_reasons(
                        [(here.policy, threshold.path)] if threshold.path in idle else []
                    )
                }
                for threshold in row.thresholds
            ],
        }
        views.append(view)
    return views


def _off_reason(here: ShownPolicy, row: Row) -> str | None:
    """Why a gate decides nothing whatever its thresholds are."""
    if row.name in here.evidence.off:
        return "the trace lacks what it measures"
    if row.name in here.thresholds.order.off:
        return "decision.order leaves it out"
    return None


def _threshold_view(
    here: ShownPolicy,
    before: ShownPolicy,
    swept: Threshold,
    locked: frozenset[str],
    axes: Mapping[tuple[str, str], Axis],
) -> dict[str, Any]:
    value, base = here.policy.value(swept.path), before.policy.value(swept.path)
    bounded = swept_threshold(here.evidence.known, here.thresholds, swept.path)
    low, high = value_range(here, swept, (here.policy, before.policy))
    # an axis of another policy would show changes where this one has none
    axis = axes.get((here.policy.policy_id, swept.path))
    view = {
        "path": swept.path,
        "key": _shown_key(swept),
        "side": swept.side,
        "unit": swept.unit.described.removeprefix("a "),
        "value": value,
        "text": "off" if value is None else decimals(float(value)),
        "baseline": base,
        "nullable": swept.nullable,
        "whole": swept.whole,
        "low": bounded.low,
        "high": bounded.high,
        "view_low": low,
        "view_high": high,
        "locked": swept.path in locked,
        "plateau": None
        if axis is None or axis.at < 0
        else [_finite(axis.low[axis.at]), _finite(axis.high[axis.at])],
    }
    return _finite_values(view)


def _shown_key(swept: Threshold) -> str:
    """Name of a threshold beside its slider.

    That of a cost has the label, since each label has one of its name.
    """
    cost = swept.path.removeprefix("decision.costs.")
    return swept.key if cost == swept.path else cost.replace(".", ": ")


def _finite(value: float) -> float | None:
    """A number as JSON has it; what has no end is null."""
    return float(value) if np.isfinite(value) else None


def _finite_values(view: dict[str, Any]) -> dict[str, Any]:
    """A view whose missing and endless numbers are null."""
    return {
        name: _finite(value) if isinstance(value, float) else value for name, value in view.items()
    }


def met_values(here: ShownPolicy, swept: Threshold) -> NDArray[np.float64]:
    """Measurement that a threshold is compared with in every case, [Q]; NaN where there is none."""
    evidence, meets = here.evidence, swept.meets
    values: Any = np.nan  # of a cost
    is_cost = swept.path.startswith("decision.")
    if meets == "n_relevant":
        cut = np.atleast_2d(gates.l2_cut(evidence.best_l2[:1], here.thresholds.gates["l2"]))
        values = gates.n_relevant(evidence.l2[0], cut)[0]
    elif meets in chain.SLOT_MEASUREMENTS and not is_cost:
        values = chain.values_at_slot(
            chain.measurement(evidence, meets)[0], here.decisions.outcome.slot[None]
        )[0]
    elif not is_cost:
        values = threshold_values(evidence, here.thresholds, swept.path, 0)[0]
    return np.broadcast_to(np.asarray(values, dtype=np.float64), len(here.decisions))


def value_range(
    here: ShownPolicy, swept: Threshold, policies: Sequence[Policy]
) -> tuple[float, float]:
    """Part of a threshold's axis that is shown: what the cases have, and the values of policies."""
    values = met_values(here, swept)
    marks = (policy.value(swept.path) for policy in policies)
    ends = [float(mark) for mark in marks if mark is not None]
    ends += values[np.isfinite(values)].tolist()
    if not ends:
        low, high = swept.low, swept.high
        return (low, high) if np.isfinite(low) and np.isfinite(high) else (0.0, 1.0)
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or max(0.04 * abs(low), 0.5 if swept.whole else 0.02)
    return float(max(low - margin, swept.low)), float(min(high + margin, swept.high))


def histogram(
    here: ShownPolicy, swept: Threshold, low: float, high: float
) -> dict[str, Any] | None:
    """Cases by label over what a threshold meets, in equal bins; None where nothing is measured."""
    values, label = met_values(here, swept), here.evidence.label
    inside = np.isfinite(values) & (values >= low) & (values <= high)
    if not inside.any() or not low < high:
        return None
    counts = {
        name: np.histogram(values[inside & (label == code)], BINS, (low, high))[0].tolist()
        for code, name in enumerate(STATUSES)
    }
    return {"low": low, "high": high, "counts": counts}


class Axis(NamedTuple):
    """Steps of one threshold, all else as in a policy.

    On [low, high) of a ceiling, (low, high] of a floor.

    value: what a drag to a step sets, [N]. cells: cases by cell, [N, 20]. at: the step of the
    policy's own value, -1 where it has none.
    """

    path: str
    side: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    value: NDArray[np.float64]
    cells: NDArray[np.int64]
    at: int


def axis_of(here: ShownPolicy, path: str) -> Axis:
    """Exact steps of a threshold under a policy.

    Raises:
      ValueError: the path cannot be swept.
    """
    value, policy = here.policy.value(path), with_threshold(here.evidence, here.policy, path)
    swept = swept_threshold(here.evidence.known, policy_thresholds([policy]), path)
    steps: StepCells = step_cells(here.evidence, policy, path)
    at = -1 if value is None else step_index(steps.low, steps.high, float(value), swept.side)
    inner = round_between(steps.low, steps.high, swept)
    return Axis(path, swept.side, steps.low, steps.high, inner, steps.cells, at)


def axis_buffer(axis: Axis, goal: Goal) -> bytes:
    """Steps for the browser: float64 low, high, value, cost [N].

    int32 k, n [N, rates] and label × decision [N, 9].
    """
    counts, labels = metrics.rate_counts(axis.cells), metrics.label_counts(axis.cells)
    cost = np.asarray(goal.cost(axis.cells), dtype=np.float64)
    whole = (
        counts,
        metrics.denominators(counts, labels),
        outcome_tables(axis.cells).reshape(len(axis.low), -1),
    )
    floats = b"".join(
        np.ascontiguousarray(array, dtype="<f8").tobytes()
        for array in (axis.low, axis.high, axis.value, cost)
    )
    return floats + b"".join(np.ascontiguousarray(array, dtype="<i4").tobytes() for array in whole)


def outcome_tables(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cases by label (rows) and decision (columns), [..., 3, 3], of cells [..., 20]."""
    plain = metrics.settled_cells(cells, metrics.WRONG_CELL)[..., : metrics.PLAIN_CELLS]
    table = plain.reshape(*cells.shape[:-1], len(Status), len(Status), 2).sum(axis=-1)
    return np.swapaxes(table, -1, -2)


def rate_views(here: ShownPolicy, before: ShownPolicy, goal: Goal) -> list[dict[str, Any]]:
    """Each rate: k of n, exact interval, same-case difference to the baseline, target outcome."""
    table = metrics.rate_columns(np.stack([here.counts, before.counts]))
    apart = metrics.paired_rates(before.cells, here.cells)
    views = []
    for place, name in enumerate(metrics.RATES):
        k, n = (int(table[f"{name}_{count}"][0]) for count in "kn")
        value, low, high = (float(table[f"{name}{end}"][0]) for end in ("", "_low", "_high"))
        target = goal.targets.get(name)
        verdict, text = target_verdict(name, k, n, (low, high), target)
        view = {"name": name, "k": k, "n": n, "value": value, "low": low, "high": high}
        view |= {"baseline": float(table[name][1]), "target": target}
        ends = (apart.difference[place], apart.low[place], apart.high[place])
        view |= _difference(here, before, ends)
        views.append(_finite_values(view) | {"verdict": verdict, "text": text})
    return views


def _difference(
    here: ShownPolicy, before: ShownPolicy, ends: tuple[float, float, float]
) -> dict[str, float]:
    """Difference to the baseline with its interval; two equal policies have none to show."""
    names = ("difference", "difference_low", "difference_high")
    is_same = here.policy.policy_id == before.policy.policy_id
    return {name: np.nan if is_same else float(end) for name, end in zip(names, ends, strict=True)}


def target_verdict(
    name: str, k: int, n: int, interval: tuple[float, float], target: float | None
) -> tuple[str, str]:
    """What k of n say of a target: a word for the page, and a sentence.

    `shown`: the whole interval keeps it; `met`: these cases keep it; `open`: no k of so few cases
    could show it; `missed`; `none`: there is no target, or no case.
    """
    if target is None or not n:
        return "none", "" if target is None else "0 of 0 meets no target"
    is_low = metrics.RATE_TABLE[name].better == "low"
    keeps = operator.le if is_low else operator.ge
    # of so many cases all of which count for the rate
    best = metrics.clopper_pearson(0 if is_low else n, n)
    if keeps(interval[is_low], target):
        return "shown", "met, the whole interval"
    if not keeps(k / n, target):
        return "missed", "not met"
    if not keeps((best.low, best.high)[is_low], target):
        return "open", f"cannot be shown with {n} cases"
    return "met", "met on these cases, not the whole interval"


def cost_view(here: ShownPolicy, before: ShownPolicy, goal: Goal) -> dict[str, Any]:
    """Expected cost of a case with interval, and difference to the baseline on the same cases."""
    counts = here.counts
    paid = cost_columns(counts, goal.matrix, weighed=goal.weighings(counts))
    weights = goal.case_weights(metrics.LABEL_OF_CELL[here.cells])
    apart = metrics.paired_cost(before.cells, here.cells, goal.matrix, weights=weights)
    view = {
        "value": float(goal.cost(counts)),
        "low": float(paid["expected_cost_low"]),
        "high": float(paid["expected_cost_high"]),
        "baseline": float(goal.cost(before.counts)),
    }
    return _finite_values(view | _difference(here, before, apart[:3]))


def plane_point(counts: NDArray[np.int64], goal: Goal) -> tuple[float, float]:
    """Coverage and expected cost, of cases by cell [18]."""
    there = goal.in_traffic(counts)
    answered = float(outcome_tables(there)[:, Status.ok].sum())
    return answered / float(there.sum()), float(goal.cost(counts))


LONGEST_SEARCH = 1_000  # characters
STRICT = ConfigDict(strict=True)  # nothing is turned into another type
Text = Annotated[str, Field(max_length=LONGEST_SEARCH)]
Label = Literal["ok", "refuse", "ambiguous"]


class Filter(NamedTuple):
    """Which cases are listed; None is any. kind: gained, lost or other. slice: column and value."""

    kind: Literal["gained", "lost", "other", "same"] | None = None
    label: Label | None = None
    decision: Label | None = None
    decided_by: Text | None = None
    slice: Annotated[tuple[Text, Text] | None, Strict(False)] = None
    search: Text = ""


FILTER = TypeAdapter(Filter, config=STRICT)


def checked_filter(wanted: Filter, columns: Mapping[str, Sequence[str]]) -> Filter:
    """The filter, its values checked.

    Args:
      columns: slices, by column.

    Raises:
      ValueError: an unknown kind, label, decision or column, or a value of another type.
    """
    filter_ = FILTER.validate_python(wanted._asdict())
    if filter_.slice is not None and filter_.slice[0] not in columns:
        names = ", ".join(columns) or "none"
        msg = f"a slice must be of {names}, got {visible(shown_value(filter_.slice[0]))}."
        raise ValueError(msg)
    return filter_


def case_views(
    here: ShownPolicy,
    before: ShownPolicy,
    wanted: Filter,
    texts: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    *,
    labelled: bool,
) -> dict[str, Any]:
    """Cases as the page lists them, those that changed first; at most `MOST_ROWS` of them.

    Args:
      texts: id and query of every case in small letters.
      columns: slices, by column, of every case.
      labelled: whether the labels are of the user; without them a change is neither gain nor loss.
    """
    status = here.decisions.status
    # gained, lost, changed otherwise or the same; without labels there is neither gain nor loss
    gained = labelled & here.passes & ~before.passes
    lost = labelled & before.passes & ~here.passes
    changed = before.decisions.status != status
    kinds = np.select([gained, lost, changed], ["gained", "lost", "other"], "same")
    names, deciders = np.array(STATUSES), here.decisions.decided_by
    label, was, now = (
        names[codes] for codes in (here.evidence.label, before.decisions.status, status)
    )
    # Filters narrow each other; the search for text comes last, on the rows that are left, since it
    # is the slow one.
    keep = np.ones(len(kinds), dtype=bool)
    for value, values in zip(wanted[:4], (kinds, label, now, deciders), strict=True):
        keep &= values == value if value else True
    if wanted.slice is not None:
        keep &= np.array(columns[wanted.slice[0]]) == wanted.slice[1]
    rows = np.flatnonzero(keep)
    # A change must not fall behind the last row that is sent.
    rows = rows[np.argsort(kinds[rows] == "same", kind="stable")]
    if wanted.search:
        sought = wanted.search.casefold()
        rows = np.array([row for row in rows.tolist() if sought in texts[row]], dtype=np.int64)
    cases = here.decisions.trace.cases
    views = [
        {
            "id": cases[row].id,
            "query": cases[row].query[:300],
            "label": (cases[row].expect_status or "") if labelled else "",
            "before": str(was[row]),
            "after": str(now[row]),
            "decided_by": str(deciders[row]),
            "kind": str(kinds[row]),
            "correct": bool(here.passes[row]) if labelled else None,
        }
        for row in rows[:MOST_ROWS].tolist()
    ]
    # Counts are of all cases, whatever the filter, for they are the result and not the list.
    counts = {name: int((kinds == name).sum()) for name in ("gained", "lost", "other")}
    return {**counts, "total": len(rows), "shown": len(views), "rows": views}


def case_view(here: ShownPolicy, case_id: str, *, labelled: bool) -> dict[str, Any]:
    """One case: what was asked, what each gate made of it, and its hits.

    `flip_views` takes longer and comes behind.

    Raises:
      KeyError: no such case is shown.
    """
    decisions = here.decisions
    row = decisions.row_of(case_id)
    case = decisions.trace.cases[row]
    rows = decisions.explain(case_id)
    return {
        "id": case.id,
        "query": case.query,
        "label": (case.expect_status or "") if labelled else "",
        "correct": bool(here.passes[row]) if labelled else None,
        "decision": STATUSES[decisions.status[row]],
        "decided_by": str(decisions.decided_by[row]),
        "reason": decisions.reason(row),
        "notes": case.notes or "",
        "checks": [_check_view(check) for check in rows],
        "hits": hit_views(decisions, row),
        "flips": None,
    }


def _check_view(check: Check) -> dict[str, Any]:
    """A check with its margin as a share of what it compares, for a bar."""
    size = max(abs(check.value), abs(check.threshold))
    is_finite = np.isfinite([check.value, check.threshold, check.margin]).all()
    share = check.margin / size if is_finite and size > 0.0 else np.nan
    view = check._asdict() | {"share": float(np.clip(share, -1.0, 1.0))}
    return _finite_values(view | {"passes": bool(check.passes)})


def hit_views(decisions: Decisions, row: int) -> list[dict[str, Any]]:
    """First hits of a case at the depth that decided, nearest first, with their scores and text."""
    trace = decisions.trace
    place, depth = trace.arm(decisions.tables.arm), int(decisions.outcome.depth[row])
    hits = trace.hits
    chosen = set(decisions.chunks_of_decision(row))
    views = []
    for at, number in enumerate(hits.chunk[row, place, depth][:HITS_SHOWN].tolist()):
        if number < 0:
            break
        chunk = trace.chunks[number]
        fields = {
            "squared L2": hits.l2,
            "cosine": hits.cosine,
            "hybrid": hits.s_hybrid,
            "rerank": hits.s_rerank,
        }
        views.append(
            {
                "rank": int(hits.rank[row, place, depth, at]) + 1,
                "source": chunk.document,
                "page": chunk.page_shown,
                "section": chunk.section_path[:TEXT_SHOWN],
                "text": chunk.text[:TEXT_SHOWN],
                "chosen": number in chosen,
                "scores": {
                    name: float(field[row, place, depth, at])
                    for name, field in fields.items()
                    if np.isfinite(field[row, place, depth, at])
                },
            }
        )
    return views


def flip_views(here: ShownPolicy, case_id: str) -> list[dict[str, Any]]:
    """Smallest change of each threshold that flips the status of a case, nearest first."""
    table = flips(here.decisions.trace, here.policy, case_id, arm=here.decisions.tables.arm)
    rows = table.rename(columns={"flips_at": "at"}).head(8)
    views: Any = rows[["path", "current", "at", "becomes"]].to_dict("records")
    return [
        view | {"text": f"{decimals(view['current'])} → {decimals(view['at'], view['current'])}"}
        for view in views
    ]


def sweepable(here: ShownPolicy) -> Mapping[str, Threshold]:
    """Thresholds that can be swept under a policy, by path."""
    return swept_paths(here.evidence.known, user_gates(here.thresholds))


def swept_rows(here: ShownPolicy) -> Iterator[Threshold]:
    """Thresholds that the page lists, in its order."""
    for row in gate_rows(here):
        yield from row.thresholds
