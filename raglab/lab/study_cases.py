"""Cases of a study (shore): which it tunes and judges on, and a sample where they are too many to refit on (S6.5)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.certify import cases_needed
from raglab.decision.recorded_answers import keep_used_chunks
from raglab.lab.report.verdicts import certifiable
from raglab.parallel import run_each
from raglab.store.measured_shards import measured_shards
from raglab.store.policies import Policy
from raglab.store.sharded_traces import NONE, ShardedTrace, count_cases
from raglab.store.traces import Trace
from raglab.values import UNLABELLED, Status, TraceData, check_labelled, label_codes

MOST_REFITTED = 20_000  # cases that candidates are made of: a fold's fit and line search of 20,000 take three minutes
LEAST_LABELLED = 30  # cases of a label below which a split says little of it

AnyTrace = Trace | ShardedTrace[Trace]


class Splits(NamedTuple):
    """Cases that are tuned on and judged on, what a reader must know of them, and what so many can certify.

    made_of: those that candidates are made of and cross-validated on: those that are tuned on, or a sample of them.
    """

    tuned_on: AnyTrace
    judged_on: AnyTrace
    made_of: Trace
    notes: tuple[str, ...]
    size_note: str


def study_splits(trace: AnyTrace, seed: int) -> Splits:
    """Splits of a trace for a study; all cases for both where it has none.

    Args:
      seed: of the sample.

    Raises:
      ValueError: a case without a label.
    """
    counts, size = case_counts(trace), _size_note(trace)
    if {"tune", "report"} <= counts.keys():
        tuned_on, judged_on, notes = trace.split("tune"), trace.split("report"), []
    else:
        tuned_on = judged_on = trace
        says = "tuned and judged on the same cases, so the rates flatter (S6.5)."
        notes = [f"The cases have no splits tune and report: {says}"]
    made_of = draw_cases(tuned_on, MOST_REFITTED, seed)
    if len(made_of) < len(tuned_on):
        notes.append(
            f"Candidates were made of {len(made_of):,} of the {len(tuned_on):,} cases tuned on, drawn by label, and "
            "cross-validated on them; trials were judged on all."
        )
    return Splits(tuned_on, judged_on, made_of, tuple(notes), size)


def check_in_memory(trace: object, what: str) -> None:
    """Refuse a trace of shards where all hits are needed at once.

    Raises:
      TypeError: it is none in memory.
    """
    if not isinstance(trace, TraceData):
        came = f"a {type(trace).__name__}"
        remedy = "draw some cases (raglab.lab.study_cases.draw_cases), or merge shards (first, *rest = trace.shards(); "
        msg = f"{what} must have a trace in memory, got {came}; {remedy}first.merge(*rest))."
        raise TypeError(msg)


def case_counts(trace: TraceData | ShardedTrace[Any]) -> dict[str, dict[str, int]]:
    """Cases by split and label."""
    return count_cases(trace.cases) if isinstance(trace, TraceData) else trace.counted()


def label_counts(trace: AnyTrace) -> NDArray[np.int64]:
    """Cases by label, [3].

    Raises:
      ValueError: a case without a label.
    """
    by_split = case_counts(trace).values()
    check_labelled(np.array([UNLABELLED for labels in by_split if NONE in labels], dtype=np.int8))
    return np.array([sum(labels.get(status.name, 0) for labels in by_split) for status in Status])


def draw_cases(trace: AnyTrace, most: int, seed: int) -> Trace:
    """At most so many cases in memory, of each label in proportion, in their order; all where they are no more.

    Which are drawn hangs on the labels and the seed alone, not on how the trace is cut into shards.

    Raises:
      ValueError: a case without a label.
    """
    if isinstance(trace, Trace) and len(trace) <= most:
        return trace
    rows = np.arange(len(trace))
    if len(trace) > most:
        rows = _stratified_rows(_labels(trace), most, seed)
    if isinstance(trace, Trace):
        return trace.subset(rows)
    first, *rest = map(keep_used_chunks, trace.subset(rows).shards())
    merged: Trace = first.merge(*rest)
    return merged


def _stratified_rows(label: NDArray[np.int8], most: int, seed: int) -> NDArray[np.int64]:
    """Positions of so many cases, ascending: of each label its share, those left over to the largest remainders."""
    rng = np.random.default_rng([seed, most])
    n = np.bincount(label, minlength=len(Status))
    share = n * most / len(label)
    of_label = share.astype(np.int64)
    of_label[np.argsort(of_label - share, kind="stable")[: most - of_label.sum()]] += 1
    drawn = [
        rng.choice(np.flatnonzero(label == one), size, replace=False) for one, size in enumerate(of_label.tolist())
    ]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def _labels(trace: AnyTrace) -> NDArray[np.int8]:
    """Label of every case, [Q]."""
    if isinstance(trace, Trace):
        return check_labelled(label_codes(trace.cases))
    return check_labelled(np.concatenate(list(run_each(shard_labels, trace.parts, what="labels"))))


def shard_labels(part: Any) -> NDArray[np.int8]:  # noqa: ANN401 - a reference to a shard
    """Label of every case of a shard, [Q]; reads its cases alone."""
    return label_codes(part.cases())


def measured_once(
    trace: TraceData | ShardedTrace[Trace], policy: Policy, arm: str | None
) -> AbstractContextManager[Any]:
    """The trace for many replays under one structure: its shards measured on disk, or as it is in memory."""
    return nullcontext(trace) if isinstance(trace, TraceData) else measured_shards(trace, policy, arm)


def label_notes(trace: AnyTrace) -> list[str]:
    """Labels of which the cases that were tuned on hold few (rule S6.8)."""
    n = label_counts(trace)
    counts = {status.name: int(n[status]) for status in Status}
    few = [f"{count} labelled {name}" for name, count in counts.items() if 0 < count < LEAST_LABELLED]
    none = [name for name, count in counts.items() if not count]
    notes = []
    if few:
        says = f"under {LEAST_LABELLED} of a label say little of it: label more."
        notes.append(f"The cases that were tuned on hold only {', '.join(few)}; {says}")
    if none:
        notes.append(
            f"No case that was tuned on is labelled {' or '.join(none)}: nothing is learned of such questions."
        )
    return notes


def _size_note(trace: AnyTrace) -> str:
    """What a set of this size can certify at all, in plain words (rule S6.5)."""
    counts = case_counts(trace)
    held_out = counts.get("certify")
    where = "cases" if held_out is None else "certify split"
    n = sum(labels.get("ok", 0) for labels in (counts.values() if held_out is None else [held_out]))
    best, needs = certifiable(n), cases_needed(0.01)
    most = f"{best:.0%} at most" if best == best else "nothing"  # noqa: PLR0124 - NaN
    never = "" if n >= needs else ", never 1 %"
    return (
        f"In plain words: a set of this size can certify {most.replace('%', ' %')}{never}. "
        f"Its {where} {'holds' if held_out is not None else 'hold'} {n} answerable cases; 1 % needs {needs} answered "
        "without an error (exact binomial, 90 % confidence)."
    )
