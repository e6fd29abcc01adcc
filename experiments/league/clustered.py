"""Paired differences of two signals on the same cases: AUROC within cells, accuracy (S6.7).

Cases that share a question, a document or a conversation are no independent evidence. Everything
here takes `clusters`: one value a case; cases of one value count as one draw. The order of the rows
changes no bit.
"""

from __future__ import annotations

from math import log, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array, is_missing, plain_array
from raglab.metrics.intervals import check_level, t_quantile
from raglab.metrics.selective import check_confidence

# below which no interval is given: their spread says too little of the next ones
LEAST_CLUSTERS = 10
FLAT = (
    "No case moves the difference: the interval is that of as many independent cases without a "
    "spread."
)
SMALLEST = 1e-12  # standard error above rounding
ROUNDING = 1e-9  # of a number of cases, as a share of all: a coverage of k / n is k cases


class PairedDifference(NamedTuple):
    """Difference of two signals on the same cases, first minus second, with its interval.

    Attributes:
      value: first minus second; NaN where it is not defined.
      low: lower end of the interval, NaN where none is given.
      high: upper end of the interval, NaN where none is given.
      clusters: independent clusters that were read.
      cells: cells whose differences are averaged; 1 where there are no cells.
      cells_left_out: cells that say nothing of ranks, and are not in `value`.
      note: why there is no interval, or what was left out; empty where there is nothing to say.
    """

    value: float
    low: float
    high: float
    clusters: int
    cells: int = 1
    cells_left_out: int = 0
    note: str = ""


class Lean(NamedTuple):
    """How far each case moves a statistic, by the kind of the case, [Q] each.

    The other kind's cases are 0.

    right: of cases that are right. wrong: of those that are wrong.
    """

    right: NDArray[np.float64]
    wrong: NDArray[np.float64]


class PairedRows(NamedTuple):
    """Cases in an order of their own, which is not that of the caller's rows.

    right: whether each case is right if answered, [Q]. rank: of each signal, the surest 0 and a
    missing value last, [S, Q]. n_known: cases with a value of each signal, [S]. cluster: number of
    each case's cluster, [Q]. cell: number of its cell, [Q]. rule: 1 where a rule answers it, [Q];
    all 0 where there is none.
    """

    right: NDArray[np.bool_]
    rank: NDArray[np.int64]
    n_known: NDArray[np.int64]
    cluster: NDArray[np.int64]
    cell: NDArray[np.int64]
    rule: NDArray[np.float64]

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.cluster.max()) + 1

    def by_cluster(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the cases of each cluster, [clusters]."""
        return np.bincount(self.cluster, weights=values, minlength=self.n_clusters).astype(
            np.float64
        )

    def holders(self, is_of: NDArray[np.bool_]) -> int:
        """Number of clusters that hold such a case."""
        return len(np.unique(self.cluster[is_of]))


def paired_rows(
    correct: ArrayLike,
    signals: tuple[ArrayLike, ...],
    clusters: ArrayLike | None,
    cells: ArrayLike | None = None,
    rule: NDArray[np.float64] | None = None,
) -> PairedRows:
    """Cases as the intervals read them: ranks of the signals, numbers of clusters and cells.

    Raises:
      ValueError: as for `check_confidence`; clusters or cells that are not one value a case.
    """
    checked = [check_confidence(correct, signal) for signal in signals]
    wrong, size = checked[0][0], len(checked[0][0])
    ranks = np.stack([np.unique(-score, return_inverse=True)[1] for _, score in checked])
    n_known = np.array([int((~np.isnan(score)).sum()) for _, score in checked])
    cluster = (
        np.zeros(size, dtype=np.int64)
        if clusters is None
        else value_numbers(clusters, size, "clusters")
    )
    cell = np.zeros(size, dtype=np.int64) if cells is None else value_numbers(cells, size, "cells")
    answered = np.zeros(size) if rule is None else rule
    # sums must not depend on the order of the rows
    order = np.lexsort((answered, *ranks, wrong, cluster, cell))
    numbers = np.arange(size) if clusters is None else cluster[order]
    return PairedRows(
        ~wrong[order], ranks[:, order], n_known, numbers, cell[order], answered[order]
    )


def value_numbers(values: ArrayLike, size: int, name: str) -> NDArray[np.int64]:
    """Number of the value of each case, from 0, [Q].

    Equal values have one, in the order of the values.

    Raises:
      ValueError: another number of values than cases, or a missing one.
    """
    labels = plain_array(values, name)
    if labels.shape != (size,):
        msg = (
            f"{name} must be one value a case, got shape {labels.shape} for {size} cases; repeat "
            "the value of a case."
        )
        raise ValueError(msg)
    is_absent = [is_missing(value) for value in labels.tolist()]
    if any(is_absent):
        count = f"{sum(is_absent)} of {size}, the first at position {is_absent.index(True)}"
        msg = (
            f"{name} must not be missing, got {count}; name it, or give each such case a value of "
            "its own."
        )
        raise ValueError(msg)
    plain = labels.astype(np.str_) if labels.dtype == object else labels
    return np.unique(plain, return_inverse=True)[1].astype(np.int64)


def auroc_lean(
    rows: PairedRows, ranks: NDArray[np.int64], keep: NDArray[np.bool_]
) -> tuple[float, Lean]:
    """AUROC of some cases and how far each moves it.

    DeLong's components, by cluster to the scale of their number.

    A right case leans by the share of the wrong ones that it is surer than, ties half, less the
    AUROC, over the number of right cases; a wrong one likewise. Sums by cluster then have the
    variance of Obuchowski; where each case is a cluster, that of DeLong.

    Args:
      rows: of all cases.
      ranks: of one signal, [Q].
      keep: the cases that are read, both kinds among them, [Q].
    """
    rank, is_right = ranks[keep], rows.right[keep]
    width = int(rank.max()) + 1
    right, wrong = (np.bincount(rank[kind], minlength=width) for kind in (is_right, ~is_right))
    n_right, n_wrong = int(right.sum()), int(wrong.sum())
    pairs = n_right * n_wrong
    area = int((right * (2 * (n_wrong - wrong.cumsum()) + wrong)).sum()) / (2 * pairs)
    below = (n_wrong - wrong.cumsum() + wrong / 2) / n_wrong - area
    above = (right.cumsum() - right / 2) / n_right - area
    leans = np.zeros((2, len(rows.right)))
    for lean, kind, part, size in (
        (leans[0], is_right, below, n_right),
        (leans[1], ~is_right, above, n_wrong),
    ):
        of = np.flatnonzero(keep)[kind]
        holders = len(np.unique(rows.cluster[of]))
        lean[of] = part[rank[kind]] / size * sqrt(holders / max(1, holders - 1))
    return area, Lean(leans[0], leans[1])


def lean_spread(
    rows: PairedRows,
    parts: tuple[tuple[NDArray[np.float64], int], ...],
    n_clusters: int,
    *,
    further: float | None = None,
) -> tuple[float, float]:
    """Standard error of a sum of leans by cluster, and its degrees of freedom (Satterthwaite).

    Args:
      parts: leans of a kind of case, [Q], and the number of clusters that hold such a case.
      n_clusters: that are read.
      further: lean of one cluster more, which the sample may lack; at least that of the cluster
        that leans most; none is added where not given.
    """
    sums = [(rows.by_cluster(lean), holders) for lean, holders in parts]
    total = np.sum([values for values, _ in sums], axis=0)
    variance = float((total**2).sum())
    if further is not None and variance > SMALLEST**2:
        variance += max(further, float(np.abs(total).max())) ** 2
    shares = [(float((values**2).sum()), holders) for values, holders in sums]
    spread = sum(share**2 / max(1, holders - 1) for share, holders in shares)
    df = sum(share for share, _ in shares) ** 2 / spread if spread > 0.0 else 1.0
    return sqrt(variance), min(df, n_clusters - 1.0)


def disjoint_pairs(rows: PairedRows, keep: NDArray[np.bool_]) -> int:
    """Most pairs of a right and a wrong case of which no two share a cluster."""
    right, wrong = (np.unique(rows.cluster[keep & kind]) for kind in (rows.right, ~rows.right))
    return min(len(right), len(wrong), len(np.union1d(right, wrong)) // 2)


def mean_auroc_difference(
    correct: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    cells: ArrayLike,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """Mean over cells of the difference of AUROC within a cell; clusters may span cells.

    Every cell weighs the same, and cases of two cells are never ranked against each other. A cell
    whose right or whose wrong cases are in fewer than two clusters is left out and counted: it has
    no AUROC, or one without a spread. The cells are these and no sample of others.

    Null hypothesis of an interval without 0: both have the same AUROC on the population that the
    clusters were drawn from. Assumes that clusters are independent and that the sum over them is
    nearly normal. The variance is that of DeLong's components, paired and summed by cluster, with
    Student's t; its degrees of freedom are Satterthwaite's of the clusters that hold a right and
    those that hold a wrong case. One cluster more, which leans as much as the one that leans most,
    is added to the variance: a sample of few cases that the signals rank differently may lack it.
    Where no case moves the difference, the interval is that of disjoint pairs without a spread
    (exact or Hoeffding's).

    Args:
      correct: as for `aurc`, [Q].
      first: confidence, [Q]; a missing one ranks below all others.
      second: confidence, [Q].
      cells: a value a case, such as the model and the question set, [Q].
      clusters: a value a case, equal for cases that are not independent, [Q]; each case by itself
        where not given.
      level: in (0, 1).

    Raises:
      ValueError: level outside (0, 1), cells or clusters that are not one value a case, or as for
        `aurc`.

    Source: DeLong, DeLong and Clarke-Pearson 1988; Obuchowski 1997.

    Example:
      >>> right = np.arange(200) % 4 > 0
      >>> mean_auroc_difference(
      ...     right, right, np.zeros(200), cells=np.arange(200) // 50, clusters=np.arange(200)
      ... ).value
      0.5
    """
    check_level(level)
    rows = paired_rows(correct, (first, second), clusters, cells)
    n_cells = int(rows.cell.max()) + 1
    by_cell = [rows.cell == cell for cell in range(n_cells)]
    read_cells = [
        keep
        for keep in by_cell
        if min(rows.holders(keep & rows.right), rows.holders(keep & ~rows.right)) >= 2
    ]
    n_left_out = n_cells - len(read_cells)
    notes = []
    if n_left_out:
        rule = "have right or wrong cases in fewer than two clusters and are left out"
        notes.append(f"{n_left_out} of {n_cells} cells {rule}.")
    if not read_cells:
        notes.append("There is no AUROC without right and wrong cases.")
        return PairedDifference(nan, nan, nan, rows.n_clusters, 0, n_left_out, " ".join(notes))
    areas, leans = np.zeros((len(read_cells), 2)), np.zeros((2, len(rows.right)))
    for place, keep in enumerate(read_cells):
        (areas[place, 0], first), (areas[place, 1], second) = (
            auroc_lean(rows, rank, keep) for rank in rows.rank
        )
        leans += (np.stack(first) - np.stack(second)) / len(read_cells)
    value, read = float((areas[:, 0] - areas[:, 1]).mean()), np.any(read_cells, axis=0)
    holders = [rows.holders(read & kind) for kind in (rows.right, ~rows.right)]
    reach = nan
    if why := lack_of_clusters(rows.holders(read), min(holders)):
        notes.append(why)
    else:
        parts = tuple(zip(leans, holders, strict=True))
        error, df = lean_spread(rows, parts, rows.holders(read), further=0.0)
        reach = t_quantile(df, level) * error
        if error < SMALLEST:
            reach = flat_reach(value, min(disjoint_pairs(rows, keep) for keep in read_cells), level)
            notes.append(FLAT)
    low, high = np.clip([value - reach, value + reach], -1.0, 1.0).tolist()
    return PairedDifference(
        value, low, high, rows.holders(read), len(read_cells), n_left_out, " ".join(notes)
    )


def lack_of_clusters(n_clusters: int, holders: int) -> str:
    """Why there is no interval, as a sentence; empty where there is one.

    Args:
      holders: clusters that hold a case of the rarer kind.
    """
    if n_clusters < LEAST_CLUSTERS:
        return f"No interval: {n_clusters} clusters are fewer than {LEAST_CLUSTERS}."
    if holders < 2:
        return "No interval: one cluster holds all cases of a kind."
    return ""


def flat_reach(value: float, draws: int, level: float) -> float:
    """Reach of the mean of independent differences in [-1, 1] that show no spread.

    Exact at 0, else Hoeffding's.
    """
    if not draws:
        return 2.0
    return (
        1.0 - (1.0 - level) ** (1.0 / draws)
        if abs(value) < SMALLEST
        else sqrt(2.0 * log(2.0 / (1.0 - level)) / draws)
    )


class Answered(NamedTuple):
    """Cases that a signal answers at a coverage.

    share: of each case, between 0 and 1 where ties are parted, [Q]. accuracy: of what is answered.
    """

    share: NDArray[np.float64]
    accuracy: float


def accuracy_at_coverage(correct: ArrayLike, confidence: ArrayLike, coverage: float) -> float:
    """accuracy@coverage.

    Share of the answered that is right if the most confident share of cases is answered.

    Of cases that tie at the threshold each is answered in part, by the same part: it is the
    expected accuracy where chance breaks the ties. `coverage` times the number of cases may be no
    whole number; the last case counts in part.

    Args:
      correct: as for `risk_coverage`, [Q].
      confidence: as for `risk_coverage`, [Q]; a missing one is never answered.
      coverage: share of all cases, in (0, 1].

    Returns: NaN where fewer cases have a confidence.

    Raises:
      ValueError: coverage outside (0, 1], or as for `risk_coverage`.

    Example:
      >>> accuracy_at_coverage([True, True, False, False], [0.9, 0.7, 0.7, 0.1], 0.5)
      0.75
    """
    rows = paired_rows(correct, (confidence,), None)
    if not 0.0 < coverage <= 1.0:
        msg = f"coverage must be in (0, 1], got {coverage}; 0.8 answers 80 % of the cases."
        raise ValueError(msg)
    return answered_cases(rows, 0, coverage).accuracy


def answered_cases(rows: PairedRows, signal: int, coverage: float) -> Answered:
    """Cases that one signal answers at a coverage, ties in part.

    Nothing is answered where too few have a value.
    """
    size = len(rows.right)
    number, rank = coverage * size, rows.rank[signal]
    if number > rows.n_known[signal] + ROUNDING * size:
        return Answered(np.full(size, nan), nan)
    upto = np.bincount(rank).cumsum()
    level = int(np.searchsorted(upto, number - ROUNDING * size))
    before = int(upto[level - 1]) if level else 0
    part = min(1.0, (number - before) / int(upto[level] - before))
    share = np.where(rank < level, 1.0, np.where(rank == level, part, 0.0))
    above, tied = int(rows.right[rank < level].sum()), int(rows.right[rank == level].sum())
    return Answered(share, (above + part * tied) / number)


def threshold_accuracy(rows: PairedRows, signal: int, answered: Answered, coverage: float) -> float:
    """Accuracy of the cases around the threshold, as many as chance moves it over.

    Args:
      answered: by the signal at the coverage.
    """
    size, rank = len(rows.right), rows.rank[signal]
    wander = sqrt(float((rows.by_cluster(answered.share - coverage) ** 2).sum()))
    width = max(1.0, wander)
    ends = np.clip([coverage * size - width, coverage * size + width], 0.0, rows.n_known[signal])
    upto = np.append(0, np.bincount(rank).cumsum())
    right = np.append(0, np.bincount(rank, weights=rows.right).cumsum())
    low, high = np.interp(ends, upto, right)
    return float((high - low) / (ends[1] - ends[0]))


def accuracy_difference(
    correct: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """accuracy@coverage of a confidence minus that of a rule at the rule's own coverage.

    Above 0 the confidence wins.

    Null hypothesis of an interval without 0: at this coverage both answer with the same accuracy on
    the population that the clusters were drawn from. Assumes that clusters are independent and that
    the sum over them is nearly normal. The standard error is that of the linearised difference
    (delta method) summed by cluster, with Student's t: an answered case counts by how far it lies
    from the accuracy around the threshold, as many cases of it as chance moves the threshold over.
    One cluster more, which leans as much as the one that leans most and at least as an answered
    case can, is added to the variance. Another sample moves the coverage of the rule; the interval
    includes that.

    Args:
      correct: as for `risk_coverage`, [Q].
      first: confidence, [Q].
      second: what the rule answers, 0 or 1, [Q].
      clusters: a value a case, equal for cases that are not independent, [Q]; each case by itself
        where not given.
      level: in (0, 1).

    Returns: without an interval, and with a note, below 10 clusters with an answered case; NaN
      where the confidence has too few values for the coverage, or the rule answers nothing.

    Raises:
      ValueError: a level outside (0, 1), a rule that is not 0 or 1, clusters that are not
        one value a case, or as for `risk_coverage`.

    Source: Liang and Zeger 1986 (sums by cluster); Serfling 1980, chapter 3 (delta method).

    Example:
      >>> right = np.arange(200) % 4 > 0
      >>> gain = accuracy_difference(
      ...     right, right, np.arange(200) % 3 > 0, clusters=np.arange(200) // 2
      ... )
      >>> round(gain.value, 3), gain.low > 0
      (0.248, True)
    """
    check_level(level)
    rule = float_array(second, "second")
    if not np.isin(rule, (0.0, 1.0)).all():
        msg = "second must be 0 or 1, got other values; a threshold makes a rule of a confidence."
        raise ValueError(msg)
    rows = paired_rows(correct, (first, second), clusters, rule=rule)
    share = float(rows.rule.mean())
    if share == 0.0:
        return PairedDifference(nan, nan, nan, rows.n_clusters, note="The rule answers no case.")
    answered = [answered_cases(rows, signal, share) for signal in (0, 1)]
    value = answered[0].accuracy - answered[1].accuracy
    if np.isnan(value):
        note = f"A signal has values for fewer cases than a coverage of {share:.4g} answers."
        return PairedDifference(nan, nan, nan, rows.n_clusters, note=note)
    leans = []
    for signal, (parts, accuracy) in enumerate(answered):
        near = threshold_accuracy(rows, signal, answered[signal], share)
        lean = parts * (rows.right - near) - rows.rule * (accuracy - near)
        leans.append(lean / (share * len(rows.right)))
    holders = rows.holders((answered[0].share > 0.0) | (answered[1].share > 0.0))
    if why := lack_of_clusters(holders, holders):
        return PairedDifference(value, nan, nan, holders, note=why)
    # one answered case more that is right by one signal alone
    further = 1.0 / (share * len(rows.right))
    error, df = lean_spread(rows, ((leans[0] - leans[1], holders),), holders, further=further)
    reach, note = t_quantile(df, level) * error * sqrt(holders / (holders - 1)), ""
    if error < SMALLEST:
        reach, note = flat_reach(value, holders, level), FLAT
    low, high = np.clip([value - reach, value + reach], -1.0, 1.0).tolist()
    return PairedDifference(value, low, high, holders, note=note)
