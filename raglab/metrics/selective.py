"""Selective prediction (algebra): risk-coverage, AURC, AUROC, curve bands, AURC differences.

Everything is counted on the levels of the confidence (bands and differences: on sorted cells), from
the most confident down, and summed in their order: the order of the rows changes no bit. Cases of
equal confidence are answered together or not at all. A case whose confidence is missing (NaN) ranks
below every other; `risk_coverage` and the thresholds never answer it.
"""

from __future__ import annotations

from math import log, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array, plain_array
from raglab.metrics.intervals import (
    FloatArray,
    IntArray,
    Interval,
    check_level,
    clopper_pearson,
    percentile_interval,
)
from raglab.values import Curve, refuse


class ConfidenceLevels(NamedTuple):
    """Cases by level of their confidence, highest first, [L + 1].

    The last level is NaN, and may have none.
    """

    at: FloatArray
    size: IntArray
    wrong: IntArray


def check_confidence(
    correct: ArrayLike, confidence: ArrayLike
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Whether each case is wrong, and how confident it is, [Q] each.

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.
    """
    right, score = plain_array(correct, "correct"), float_array(confidence, "confidence")
    if right.ndim != 1 or right.shape != score.shape or not len(right):
        msg = (
            f"correct and confidence must be [Q] each, of one case at least, got shapes "
            f"{right.shape} and {score.shape}; give one a case."
        )
        raise ValueError(msg)
    odd = (right != 0) & (right != 1)
    if odd.any():
        position, count = int(odd.argmax()), int(odd.sum())
        msg = (
            f"correct must be boolean or 0 and 1, got {right[position]} at position {position} "
            f"({count} such cases); it comes before confidence, and a grade is rounded first."
        )
        raise ValueError(msg)
    return right == 0, score + 0.0  # -0.0 and 0.0 are one level, written 0.0


def confidence_levels(correct: ArrayLike, confidence: ArrayLike) -> ConfidenceLevels:
    """Cases and wrong cases of each level of the confidence.

    See `check_confidence` for what is refused.
    """
    wrong, score = check_confidence(correct, confidence)
    known = ~np.isnan(score)
    at, size = np.unique(score[known], return_counts=True)
    up_to = np.searchsorted(np.sort(score[known & wrong]), at, side="right")
    lost = np.diff(up_to, prepend=0)
    return ConfidenceLevels(
        np.append(at[::-1], nan),
        np.append(size[::-1], (~known).sum()),
        np.append(lost[::-1], (~known & wrong).sum()),
    )


def risk_coverage(correct: ArrayLike, confidence: ArrayLike) -> Curve:
    """Risk at every reachable coverage: answer where the confidence is at least a threshold.

    One step for each distinct confidence, from the most confident down: `x` the share of all cases
    that is answered, `y` the share of the answered that is wrong, `n` answered, `k` wrong, `at` the
    threshold. A NaN never answers.

    Args:
      correct: whether each case is right if answered, boolean or 0 and 1, [Q].
      confidence: higher is surer, [Q].

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.

    Source: El-Yaniv and Wiener 2010.

    Example:
      >>> curve = risk_coverage([True, True, False], [3.0, 1.0, 1.0])
      >>> curve.x, curve.y
      (array([0.33333333, 1.        ]), array([0.        , 0.33333333]))
    """
    at, size, wrong = confidence_levels(correct, confidence)
    n, k = size[:-1].cumsum(), wrong[:-1].cumsum()
    return Curve(n / size.sum(), k / n, n, k, at[:-1])


def mean_risk(size: IntArray, wrong: IntArray) -> FloatArray:
    """Mean over k = 1 … n of the expected error rate of the k first, [...], with random ties.

    Within a level of m cases with w wrong, reached after a cases with e wrong, the expected errors
    at a + j are e + j · w / m; their shares sum to (e − a · w / m) · (1 / (a + 1) + … + 1 / (a +
    m)) + w.

    Args:
      size, wrong: by level, the most confident first, [..., L]; a level may be empty.
    """
    from scipy.special import digamma

    after = size.cumsum(axis=-1)
    before, errors = after - size, wrong.cumsum(axis=-1) - wrong
    harmonic = np.diff(digamma(after + 1.0), axis=-1, prepend=digamma(1.0))
    parts = (errors - before * (wrong / np.maximum(size, 1))) * harmonic + wrong
    return parts.sum(axis=-1) / after[..., -1]


def aurc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """AURC, in [0, 1].

    Mean over k = 1 … n of the error rate among the k most confident, expected over ties.

    It is what the average over all orders of equal confidences gives, so it does not depend on the
    order of the rows.

    Args:
      correct: boolean or 0 and 1, [Q].
      confidence: [Q]; NaN ranks below all others, as one tie.

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.

    Source: Geifman, Uziel and El-Yaniv 2019.

    Example:
      >>> aurc([True, False], [0.9, 0.2]), aurc([True, False], [0.5, 0.5])
      (0.25, 0.5)
    """
    _, size, wrong = confidence_levels(correct, confidence)
    return float(mean_risk(size, wrong))


def eaurc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """E-AURC, at least 0.

    AURC minus that of the perfect order, all right cases before all wrong ones.

    The perfect AURC is its finite sum over n cases, not the limit risk + (1 − risk) · log(1 −
    risk).

    Args:
      correct: as for `aurc`, [Q].
      confidence: as for `aurc`, [Q].

    Source: Geifman, Uziel and El-Yaniv 2019; arguments and errors as for `aurc`.

    Example:
      >>> eaurc([True, False], [0.9, 0.2]), eaurc([True, False], [0.2, 0.9])
      (0.0, 0.5)
    """
    _, size, wrong = confidence_levels(correct, confidence)
    n, lost = size.sum(), wrong.sum()
    best = mean_risk(np.array([n - lost, lost]), np.array([0, lost]))
    return max(0.0, float(mean_risk(size, wrong) - best))


def augrc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """AUGRC, in [0, 1/2].

    Area under the share of all cases that is wrong and answered, over coverage.

    The area of straight lines between the steps; the mean risk of an undetected failure. With
    accuracy a it is (1 − AUROC) · a · (1 − a) + (1 − a)² / 2.

    Args:
      correct: as for `aurc`, [Q].
      confidence: as for `aurc`, [Q].

    Source: Traub et al. 2024; arguments and errors as for `aurc`.

    Example:
      >>> augrc([True, False], [0.9, 0.2]), augrc([True, False], [0.2, 0.9])
      (0.125, 0.375)
    """
    _, size, wrong = confidence_levels(correct, confidence)
    return int((size * (2 * wrong.cumsum() - wrong)).sum()) / (2 * int(size.sum()) ** 2)


def prr(correct: ArrayLike, confidence: ArrayLike, *, max_rejection: float = 1.0) -> float:
    """Prediction-rejection ratio: 1 for the perfect order, 0 for chance, below 0 for a worse one.

    The least confident cases are rejected in turn. (random - area) / (random - perfect), where area
    is the mean error rate of the cases that are kept, with none rejected up to `max_rejection`;
    ties in expectation. NaN if all cases are right, or all wrong.

    Args:
      correct: as for `aurc`, [Q].
      confidence: as for `aurc`, [Q].
      max_rejection: largest share that is rejected, in (0, 1]; one case at least.

    Raises:
      ValueError: as for `aurc`, or a share outside of (0, 1].

    Source: Malinin and Gales 2021.

    Example:
      >>> prr([True, False], [0.9, 0.2]), prr([True, False], [0.5, 0.5])
      (1.0, 0.0)
    """
    if not 0.0 < max_rejection <= 1.0:
        refuse("max_rejection must be in (0, 1]", max_rejection, "1.0 rejects up to all cases")
    _, size, wrong = confidence_levels(correct, confidence)
    errors = np.repeat(wrong / np.maximum(size, 1), size)  # expected, by rank
    n_cases, n_wrong = len(errors), int(wrong.sum())
    if n_wrong in (0, n_cases):
        return nan
    perfect = np.arange(n_cases) >= n_cases - n_wrong
    first = n_cases - max(2, int(max_rejection * n_cases + 1e-9))
    area, best = (
        (order.cumsum() / np.arange(1, n_cases + 1))[first:].mean() for order in (errors, perfect)
    )
    chance = n_wrong / n_cases
    return float((chance - area) / (chance - best))


def auroc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """AUROC: chance that a right case is more confident than a wrong one, ties half.

    NaN if there is only one kind.

    Args:
      correct: as for `aurc`, [Q].
      confidence: as for `aurc`, [Q].

    Source: Mann and Whitney 1947; arguments and errors as for `aurc`.

    Example:
      >>> auroc([True, True, False], [0.9, 0.4, 0.4])
      0.75
    """
    _, size, wrong = confidence_levels(correct, confidence)
    right, lost = size - wrong, int(wrong.sum())
    pairs = int(right.sum()) * lost
    return (
        int((right * (2 * (lost - wrong.cumsum()) + wrong)).sum()) / (2 * pairs) if pairs else nan
    )


def auroc_interval(correct: ArrayLike, confidence: ArrayLike, level: float = 0.95) -> Interval:
    """Confidence interval of `auroc`: DeLong's variance on the logit scale.

    NaN if there is only one kind.

    Where that variance is 0 or not defined, m disjoint pairs of a right and a wrong case are all
    that is read, m the rarer kind: at an AUROC of 0 or 1 exactly (all m pairs agree), else by
    Hoeffding's bound. The variance is a large-sample one: with ten of the rarer kind a 95 %
    interval may hold in 90 % of samples. Cases must be independent.

    Args:
      correct: as for `aurc`, [Q].
      confidence: as for `aurc`, [Q].
      level: in (0, 1).

    Raises:
      ValueError: level outside (0, 1), or as for `aurc`.

    Source: DeLong, DeLong and Clarke-Pearson 1988; Hoeffding 1963.

    Example:
      >>> low, high = auroc_interval([1, 1, 1, 0, 0, 0], [0.9, 0.8, 0.4, 0.6, 0.3, 0.2])
      >>> round(float(low), 3), round(float(high), 3)
      (0.261, 0.995)
    """
    from scipy.special import expit, logit, ndtri

    tail = (1.0 - check_level(level)) / 2.0
    area = auroc(correct, confidence)
    _, size, wrong = confidence_levels(correct, confidence)
    right = size - wrong
    n_right, n_wrong = int(right.sum()), int(wrong.sum())
    fewer = min(n_right, n_wrong)
    if not fewer:
        return Interval(nan, nan)
    # of a right case the wrong ones under it, of a wrong case the right ones over it
    below = (n_wrong - wrong.cumsum() + wrong / 2) / n_wrong - area
    above = (right.cumsum() - right / 2) / n_right - area
    variance = 0.0
    if fewer > 1:
        variance = float((right * below**2).sum()) / ((n_right - 1) * n_right)
        variance += float((wrong * above**2).sum()) / ((n_wrong - 1) * n_wrong)
    if variance > 0.0:
        reach = -float(ndtri(tail)) * sqrt(variance) / (area * (1.0 - area))
        return Interval(expit(logit(area) - reach), expit(logit(area) + reach))
    is_inside = 0.0 < area < 1.0
    reach = sqrt(-log(tail) / (2 * fewer)) if is_inside else 1.0 - tail ** (1.0 / fewer)
    return Interval(max(0.0, area - reach), min(1.0, area + reach))


def risk_at_coverage(correct: ArrayLike, confidence: ArrayLike, coverage: float) -> float:
    """risk@coverage: risk at the smallest reachable coverage that is at least `coverage`.

    NaN if none is.

    Args:
      correct: as for `risk_coverage`, [Q].
      confidence: as for `risk_coverage`, [Q].
      coverage: share of all cases, in (0, 1].

    Raises:
      ValueError: coverage outside (0, 1], or as for `risk_coverage`.

    Example:
      >>> risk_at_coverage([True, True, False, False], [0.9, 0.7, 0.7, 0.1], 0.5)
      0.3333333333333333
    """
    if not 0.0 < coverage <= 1.0:
        msg = f"coverage must be in (0, 1], got {coverage}; 0.8 answers 80 % of the cases."
        raise ValueError(msg)
    curve = risk_coverage(correct, confidence)
    step = int(np.searchsorted(curve.x, coverage))
    return float(curve.y[step]) if step < len(curve.x) else nan


def coverage_at_risk(correct: ArrayLike, confidence: ArrayLike, risk: float) -> float:
    """coverage@risk: largest reachable coverage whose risk is at most `risk`; 0 if none is.

    It is what these cases show, the best of all thresholds; use `raglab.certify` for what holds on
    new cases.

    Args:
      correct: as for `risk_coverage`, [Q].
      confidence: as for `risk_coverage`, [Q].
      risk: wrong share of the answered, in [0, 1].

    Raises:
      ValueError: risk outside [0, 1], or as for `risk_coverage`.

    Example:
      >>> coverage_at_risk([True, True, False, False], [0.9, 0.7, 0.7, 0.1], 0.4)
      0.75
    """
    if not 0.0 <= risk <= 1.0:
        msg = f"risk must be in [0, 1], got {risk}; 0.1 is 10 % of the answered."
        raise ValueError(msg)
    curve = risk_coverage(correct, confidence)
    return float(curve.x[curve.y <= risk].max(initial=0.0))


# of a curve that a simultaneous band is made of: each one more costs width at all others
STEPS = 64
CELLS = 2**22  # counts of resamples held at once


def risk_band(curve: Curve, level: float = 0.95, *, simultaneous: bool = False) -> Interval:
    """Interval of the risk at each step of a risk–coverage curve, [N].

    What it holds is the risk of the answered given their confidences: the mean of their chances to
    be wrong.

    - Pointwise: Clopper and Pearson's interval of each step. It does not hold for two steps
      together, nor for one that was chosen because its risk is low: all steps of a curve lie in
      their intervals far less often than `level`.
    - Simultaneous: all steps lie in it at once with probability at least `level`, so any of them
      may be chosen. At most 64 steps have Clopper and Pearson's interval at 1 − (1 − level) / steps
      (Bonferroni): all steps if there are no more (where the confidence has no other values, the
      band holds for the risk of new cases too), else some even in the root of their coverage,
      chosen by it alone. From these follow the others: M(n), the sum of the chances among the n
      answered, grows by 0 to 1 with every case, so that for a ≤ n ≤ b max(M(a), M(b) − (b − n)) ≤
      M(n) ≤ min(M(b), M(a) + (n − a)); the tightest over all chosen a and b is taken.

    Args:
      curve: of `risk_coverage`.
      level: in (0, 1).
      simultaneous: whether the band holds at all steps at once.

    Raises:
      ValueError: level outside (0, 1).

    Source: Clopper and Pearson 1934; Hoeffding 1956 for cases of unequal chances.

    Example:
      >>> from raglab.metrics.selective import risk_coverage
      >>> curve = risk_coverage([True] * 30 + [False] * 10, [0.9] * 20 + [0.4] * 20)
      >>> risk_band(curve).high.round(3), risk_band(curve, simultaneous=True).high.round(3)
      (array([0.168, 0.412]), array([0.197, 0.434]))
    """
    if not simultaneous:
        return clopper_pearson(curve.k, curve.n, level)
    chosen = np.arange(len(curve.n))
    if len(chosen) > STEPS:  # some at even distance in the root of `n`, the last among them
        marks = (np.arange(1, STEPS + 1) / STEPS) ** 2
        chosen = np.unique(np.searchsorted(curve.n, curve.n[-1] * marks))
    low, high = clopper_pearson(
        curve.k[chosen], curve.n[chosen], 1.0 - (1.0 - check_level(level)) / max(1, len(chosen))
    )
    n = curve.n.astype(np.float64)
    fewest, most = np.full(len(n), -np.inf), np.full(len(n), np.inf)
    fewest[chosen], most[chosen] = low * n[chosen], high * n[chosen]
    least = np.maximum(
        np.maximum.accumulate(fewest),  # M(a)
        np.maximum.accumulate((fewest - n)[::-1])[::-1] + n,  # M(b) − (b − n)
    )
    greatest = np.minimum(
        np.minimum.accumulate(most[::-1])[::-1],  # M(b)
        np.minimum.accumulate(most - n) + n,  # M(a) + (n − a)
    )
    lower, upper = np.clip(least / n, 0.0, 1.0), np.clip(greatest / n, 0.0, 1.0)
    lower[chosen], upper[chosen] = low, high
    return Interval(lower, upper)


class Difference(NamedTuple):
    """Difference of two signals on the same cases, first minus second, with its interval.

    Attributes:
      value: first minus second.
      low: lower end of the interval.
      high: upper end of the interval.
      p_better: share of resamples in which the first has the lower value, ties half.
    """

    value: float
    low: float
    high: float
    p_better: float


def aurc_difference(
    correct: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator,
) -> Difference:
    """AURC of the first confidence minus that of the second, by a paired bootstrap over cases.

    Below 0 the first wins.

    Interval: quantiles of the resamples. The same seed gives the same bits for any order of the
    rows and any strictly increasing change of either confidence. Time and draws grow with resamples
    × distinct rows.

    Args:
      correct: [Q], or [2, Q] where the answers of the two differ.
      first: first confidence, [Q]; see `aurc`.
      second: second confidence, [Q]; see `aurc`.
      level: in (0, 1).
      resamples: at least 1.
      rng: generator of the resamples.

    Raises:
      ValueError: level or resamples out of range, or as for `aurc`.

    Source: Efron and Tibshirani 1993, percentile interval.

    Example:
      >>> right = np.arange(200) % 4 > 0
      >>> found = aurc_difference(right, right, np.ones(200), rng=np.random.default_rng(1))
      >>> round(found.value, 3), found.high < 0, found.p_better
      (-0.215, True, 1.0)
    """
    check_level(level)
    if resamples < 1:
        msg = f"resamples must be at least 1, got {resamples}; 1000 is usual."
        raise ValueError(msg)
    truth = np.atleast_2d(plain_array(correct, "correct"))
    if len(truth) > 2:
        msg = f"correct must be [Q] or [2, Q], got shape {truth.shape}; give one row for both."
        raise ValueError(msg)
    # a case is a cell of (rank in first, rank in second): resampling counts of cells keeps the
    # pairs
    first_rank, second_rank = _rank_codes(truth[0], first), _rank_codes(truth[-1], second)
    base = int(second_rank.max()) + 1
    cells, count = np.unique(first_rank * base + second_rank, return_counts=True)
    sides = np.divmod(cells, base)
    value = _cell_aurc(count, sides[0]) - _cell_aurc(count, sides[1])
    # so many resamples at a time, that their counts fit into memory
    block = max(1, CELLS // len(cells))
    drawn = []
    for done in range(0, resamples, block):
        counts = rng.multinomial(
            len(first_rank), count / len(first_rank), size=min(block, resamples - done)
        )
        drawn.append(_cell_aurc(counts, sides[0]) - _cell_aurc(counts, sides[1]))
    differences = np.concatenate(drawn)
    low, high = map(float, percentile_interval(differences, level))
    p_better = float(((differences < 0) + (differences == 0) / 2).mean())
    return Difference(float(value), low, high, p_better)


def _rank_codes(correct: ArrayLike, confidence: ArrayLike) -> IntArray:
    """Twice each case's level rank, highest 0 and NaN last, plus one if the case is wrong, [Q]."""
    wrong, score = check_confidence(correct, confidence)
    return 2 * np.unique(-score, return_inverse=True)[1] + wrong


def _cell_aurc(counts: IntArray, cells: IntArray) -> FloatArray:
    """AURC of cases in cells as `_rank_codes` names them, [...].

    Args:
      counts: [..., C].
      cells: [C], in any order.
    """
    order = np.argsort(cells, kind="stable")
    rank, wrong = np.divmod(cells[order], 2)
    starts = np.flatnonzero(np.diff(rank, prepend=-1))
    taken = counts[..., order]
    return mean_risk(
        np.add.reduceat(taken, starts, axis=-1), np.add.reduceat(taken * wrong, starts, axis=-1)
    )
