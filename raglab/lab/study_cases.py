"""Cases of a study (shore): which it tunes and judges on, and a sample if too many (S6.5).

There are too many when refitting on all is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from raglab.decision.inclusion import check_alone, inclusion_weights
from raglab.decision.trace_view import TracePart, TraceView
from raglab.lab.goals import Goal
from raglab.replay import each_part, join_columns
from raglab.store.case_labels import check_split_names
from raglab.store.traces import StudyTrace, Trace
from raglab.values import (
    NO_LABEL,
    UNLABELLED,
    CodeArray,
    FloatArray,
    IntArray,
    Status,
    check_labelled,
    label_codes,
)

# cases that candidates are made of: a fold's fit and line search of 20,000 take three minutes
MAX_REFITTED_CASES = 20_000
# cases of a label below which a split says little of it, and a sample draws no fewer
MIN_LABEL_CASES = 30


class Splits(NamedTuple):
    """Cases tuned and judged on; the same trace where none are kept to judge.

    made_of: those that candidates are made of and cross-validated on: those that are tuned on, or a
    sample of them. unsplit: cases without a split, which are not used. n_certify: answerable cases
    of split certify; None without that split.
    """

    tuned_on: StudyTrace
    judged_on: StudyTrace
    made_of: Trace
    unsplit: int
    n_certify: int | None = None


def study_splits(trace: StudyTrace, seed: int) -> Splits:
    """Splits of a trace for a study.

    Without split report none is judged on, and those of split certify are never used.

    Args:
      trace: labelled cases.
      seed: of the sample.

    Raises:
      ValueError: a case without a label among those that are tuned or judged on, a split of another
        name, or no case but those of split certify.
    """
    split_counts = trace.counted()
    check_split_names(split_counts.keys() - {NO_LABEL})
    if {"tune", "report"} <= split_counts.keys():
        tuned_on = trace.split("tune")
        judged_on = trace.split("report")
    else:
        tuned_on = judged_on = _tuned_alone(trace, split_counts)
    counts_by_label(judged_on)
    unsplit = sum(split_counts.get(NO_LABEL, {}).values()) if "tune" in split_counts else 0
    n_certify = split_counts["certify"].get("ok", 0) if "certify" in split_counts else None
    return Splits(tuned_on, judged_on, candidate_cases(tuned_on, seed), unsplit, n_certify)


def study_goal(goal: Goal, splits: Splits) -> tuple[Goal, FloatArray | None]:
    """Goal whose mix is made whole by the cases tuned on, and the weights of these, [Q].

    Raises:
      ValueError: a label with a share in traffic has no case in a split, or a mix is stated for
        cases that were drawn with several probabilities.

    Source: rule S6.15.
    """
    case_weight = inclusion_weights(splits.tuned_on)
    if goal.traffic is None:
        return goal, case_weight
    for split_cases in (splits.tuned_on, splits.judged_on):
        check_alone(goal.traffic, inclusion_weights(split_cases))
    whole_goal = goal.at_labels(counts_by_label(splits.tuned_on))
    for split_cases, case_role in ((splits.judged_on, "judged on"), (splits.made_of, "made of")):
        if whole_goal.traffic is not None:
            whole_goal.traffic.at_labels(counts_by_label(split_cases), f" among those {case_role}")
    return whole_goal, None


def _tuned_alone(trace: StudyTrace, split_counts: Mapping[str, object]) -> StudyTrace:
    """Cases to tune on where none is kept to judge.

    Split tune, else all but those kept for certificates.
    """
    if "tune" in split_counts:
        return trace.split("tune")
    if "certify" not in split_counts:
        return trace
    tuning_rows = [case_row for case_row, case in enumerate(trace.cases) if case.split != "certify"]
    if not tuning_rows:
        msg = "a study needs cases outside of split certify, got none; label some tune."
        raise ValueError(msg)
    return trace.subset(tuning_rows)


def candidate_cases(trace: StudyTrace, seed: int) -> Trace:
    """Cases that candidates are made of, in memory.

    All, or of more than `MAX_REFITTED_CASES` a sample of so many.
    """
    return draw_cases(trace, MAX_REFITTED_CASES, seed)


def counts_by_label(trace: TraceView) -> IntArray:
    """Cases by label, [3].

    Raises:
      ValueError: a case without a label.
    """
    counts = trace.counted().values()
    n_unlabelled = sum(labels.get(NO_LABEL, 0) for labels in counts)
    check_labelled(
        np.repeat(
            np.array([UNLABELLED, Status.ok], dtype=np.int8),
            [n_unlabelled, len(trace) - n_unlabelled],
        )
    )
    return np.array([sum(labels.get(status.name, 0) for labels in counts) for status in Status])


def draw_cases(trace: StudyTrace, max_cases: int, seed: int) -> Trace:
    """At most so many cases in memory, of each label in proportion, in their order.

    All where they are no more.

    Of a label that is rare 30 are drawn, or all that there are, where so many of each fit. Which
    are drawn depends on labels and seed alone, not on how the trace is cut into shards.

    Raises:
      ValueError: a case without a label.
    """
    if counts_by_label(trace).sum() <= max_cases:
        return trace.loaded()
    case_labels = check_labelled(join_columns(each_part(part_labels, trace, what="labels")))
    return trace.subset(_stratified_rows(case_labels, max_cases, seed)).loaded()


def _stratified_rows(case_labels: CodeArray, max_cases: int, seed: int) -> IntArray:
    """Positions of so many cases, ascending."""
    rng = np.random.default_rng([seed, max_cases])
    sizes = _stratum_sizes(np.bincount(case_labels, minlength=len(Status)), max_cases).tolist()
    drawn = [
        rng.choice(np.flatnonzero(case_labels == code), size, replace=False)
        for code, size in enumerate(sizes)
    ]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def _stratum_sizes(n: IntArray, most: int) -> IntArray:
    """How many of each label are drawn, [3], of n there are.

    Its share, those left over to the largest remainders.
    """
    least = np.minimum(n, MIN_LABEL_CASES)
    least = least if least.sum() <= most else np.zeros_like(n)
    rare = np.zeros(len(n), dtype=bool)
    while True:
        # What rare labels take more than their share is taken from the others alike, which may make
        # one of them rare.
        share = np.where(rare, least, n * (most - least[rare].sum()) / max(1, n[~rare].sum()))
        if not np.any(share < least):
            break
        rare |= share < least
    sizes = share.astype(np.int64)
    sizes[np.argsort(sizes - share, kind="stable")[: most - sizes.sum()]] += 1
    return sizes


def part_labels(part: TracePart) -> CodeArray:
    """Label of every case of one part of a trace, [Q]; reads its cases alone."""
    return label_codes(part.cases)
