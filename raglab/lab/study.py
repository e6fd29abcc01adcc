"""Search: an Optuna study proposes, replay judges a batch at a time, an exact line search polishes the winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.certify import cases_needed
from raglab.lab import _findings
from raglab.lab._search import pareto_front, search
from raglab.lab.goal import Goal
from raglab.lab.polish import polish
from raglab.lab.space import (
    Range,
    always_answer,
    always_refuse,
    changed,
    full_space,
    published,
    stepped_by_hand,
    trial_of,
    within,
)
from raglab.metrics import Paired
from raglab.replay import decide, sweep, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

SamplerName = Literal["nsga2", "tpe", "random"]
MANUAL_STEPS = 40


@dataclass(frozen=True)
class TuneResult:
    """Outcome of a study.

    policy: the winner, polished. incumbent: what it had to beat. policies: name -> policy of every row of
    `comparison`. trials: a row a trial (values tried, objectives, targets, score, policy_id). pareto: the trials
    no other beats. plateaus: how far each threshold may move at no cost. comparison: policies × rates on the cases
    that the study did not see. paired: tuned against incumbent. notes: what a reader must know. tuned_on, judged_on:
    the traces. study: Optuna's own, for its plots and dashboards.
    """

    policy: Policy
    incumbent: Policy
    policies: Mapping[str, Policy]
    trials: pd.DataFrame
    pareto: pd.DataFrame
    plateaus: pd.DataFrame
    comparison: pd.DataFrame
    paired: Mapping[str, Paired]
    notes: tuple[str, ...]
    tuned_on: Trace
    judged_on: Trace
    study: Any
    settings: Mapping[str, Any]

    def report(self, path: str | Path) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases."""
        from raglab.lab.report import write_report

        return write_report(
            path,
            self.judged_on,
            self.policies,
            arm=self.settings["arm"],
            plateaus=self.plateaus,
            trials=self.trials,
            paired=self.paired,
            notes=self.notes,
        )


def tune(
    trace: Trace,
    *,
    policy: Policy | None = None,
    arm: str | None = None,
    trials: int = 2000,
    sampler: SamplerName = "nsga2",
    batch_size: int = 50,
    seed: int = 0,
    goal: Goal | None = None,
    space: Mapping[str, Range] | None = None,
    resume: str | Path | None = None,
    on_batch: Callable[[int, NDArray[np.float64]], None] | None = None,
    progress: bool = False,
) -> TuneResult:
    """Search for better thresholds on the split `tune`, judge what is found on the split `report`.

    Args:
      trace: without splits all cases serve for both, and the notes say that the rates flatter.
      policy: where the search starts, and whose patterns it keeps; the published thresholds where not given.
      trials: configurations tried before the line search.
      sampler: of Optuna. batch_size: configurations proposed and replayed together.
      space: path -> range; `full_space` where not given.
      resume: folder that keeps finished batches; a study killed and started again ends with the same result.
      on_batch: called after each batch with the number of trials and the objectives of the batch, [B, O].

    Raises:
      ValueError: unknown sampler, trials below 1, or a folder of another study.

    Source: rules S6.2, S6.4, S6.5.
    """
    start = within(policy if policy is not None else Policy.load(), trace)
    wanted = goal or Goal()
    tuned_on, judged_on, notes = _splits(trace)
    ranges = dict(space) if space is not None else full_space(tuned_on, start, arm)
    incumbent = within(published(start), trace)
    settings = {
        "arm": arm,
        "trials": trials,
        "sampler": sampler,
        "batch_size": batch_size,
        "seed": seed,
        "targets": dict(wanted.targets),
        "objectives": list(wanted.objectives),
        "penalty": wanted.penalty,
        "start": start.policy_id,
        "trace": trace.fingerprint,
        "space": {path: list(extent[:2]) for path, extent in ranges.items()},
    }
    by_hand = manual_loop(tuned_on, incumbent, wanted, arm)
    begins = {one.policy_id: one for one in (start, incumbent, by_hand, always_answer(start))}
    first = [trial_of(one, ranges) for one in begins.values()]
    study, seen = search(
        tuned_on, start, ranges, wanted, settings, first, Path(resume) if resume else None, on_batch, progress=progress
    )
    found = _best(start, seen)
    winner, plateaus = polish(tuned_on, found, list(ranges), wanted.score, incumbent, arm)
    policies = {
        "defaults": incumbent,
        "tuned": winner,
        "always-answer": always_answer(start),
        "always-refuse": always_refuse(start),
        "manual-loop": by_hand,
    }
    table = sweep(judged_on, list(policies.values()), arm)
    table.insert(0, "policy", list(policies))
    notes.append(_size_note(trace))
    front = pareto_front(seen, wanted.objectives)
    if not front["feasible"].any():
        notes.append("No trial meets all targets on the cases it was tuned on; the winner comes nearest by the score.")
    return TuneResult(
        winner, incumbent, policies, seen, front, plateaus, table,
        compared(judged_on, incumbent, winner, arm), tuple(notes), tuned_on, judged_on, study, settings,
    )  # fmt: skip


def _splits(trace: Trace) -> tuple[Trace, Trace, list[str]]:
    names = {case.split for case in trace.cases}
    if {"tune", "report"} <= names:
        return trace.split("tune"), trace.split("report"), []
    note = "The cases have no splits tune and report: tuned and judged on the same cases, so the rates flatter (S6.5)."
    return trace, trace, [note]


def _size_note(trace: Trace) -> str:
    """What a set of this size can certify at all, in plain words (rule S6.5)."""
    rows = [case for case in trace.cases if case.split == "certify"]
    where = "certify split" if rows else "cases"
    n = sum(case.expect_status == "ok" for case in rows or trace.cases)
    best, needs = _findings.certifiable(n), cases_needed(0.01)
    most = f"{best:.0%} at most" if best == best else "nothing"  # noqa: PLR0124 - NaN
    never = "" if n >= needs else ", never 1 %"
    return (
        f"In plain words: a set of this size can certify {most.replace('%', ' %')}{never}. "
        f"Its {where} {'holds' if rows else 'hold'} {n} answerable cases; 1 % needs {needs} answered without an error "
        "(exact binomial, 90 % confidence)."
    )


def compared(trace: Trace, first: Policy, second: Policy, arm: str | None = None) -> dict[str, Paired]:
    """Paired tests of two policies on the same cases: contract passed, and questions answered that are labelled ok."""
    one, two = decide(trace, first, arm), decide(trace, second, arm)
    label = one.tables.evidence.label
    ok = label == Status.ok
    return {
        "pass": metrics.paired(one.right, two.right),
        "not falsely refused": metrics.paired((one.status != Status.refuse)[ok], (two.status != Status.refuse)[ok]),
        "not hallucinated": metrics.paired(
            one.right | (one.status != Status.ok), two.right | (two.status != Status.ok)
        ),
    }


def manual_loop(trace: Trace, policy: Policy, goal: Goal, arm: str | None = None) -> Policy:
    """Policy that the source's loop ends with, one step of all thresholds at a time.

    Looser while false refusals exceed their target, else tighter while hallucinations exceed theirs; it ends when both
    are met, when it returns to where it was, or after 40 steps.

    Source: rule S6.4.
    """
    limits = goal.targets
    seen = [policy]
    for _ in range(MANUAL_STEPS):
        counted = tally(trace, [seen[-1]], arm, engine="numpy")
        rate = dict(zip(metrics.RATES, metrics.rates(counted.counts[0], counted.labels), strict=True))
        if rate["false_refusal_rate"] > limits.get("false_refusal_rate", 1.0):
            following = stepped_by_hand(seen[-1], 1)
        elif not rate["hallucination_rate"] <= limits.get("hallucination_rate", 1.0):
            following = stepped_by_hand(seen[-1], -1)
        else:
            return seen[-1]
        if following in seen:
            return following
        seen.append(following)
    return seen[-1]


def _best(start: Policy, seen: pd.DataFrame, count: int = 10) -> list[Policy]:
    """The best trials by score, one for each outcome, for the line search to start from."""
    ordered = seen.sort_values(["score", "number"], kind="stable").drop_duplicates(list(metrics.RATES))
    paths = [column for column in seen.columns if "." in column]
    return [changed(start, {path: _plain(row[path]) for path in paths}) for _, row in ordered.head(count).iterrows()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - numpy or Python scalar
    return value.item() if hasattr(value, "item") else value
