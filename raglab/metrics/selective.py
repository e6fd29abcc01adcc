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
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array, plain_array
from raglab.metrics.intervals import Interval, check_level, clopper_pearson, percentile_interval
from raglab.values import BoolArray, Curve, FloatArray, IntArray, refuse


class ConfidenceLevels(NamedTuple):
    """Cases by level of their confidence, highest first, [L + 1].

    The last level is NaN, and may have none.
    """

    at: FloatArray
    size: IntArray
    wrong: IntArray


def check_confidence(correct: ArrayLike, confidence: ArrayLike) -> tuple[BoolArray, FloatArray]:
    """Whether each case is wrong, and how confident it is, [Q] each.

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.
    """
    is_right = plain_array(correct, "correct")
    scores = float_array(confidence, "confidence")
    if is_right.ndim != 1 or is_right.shape != scores.shape or not len(is_right):
        msg = (
            f"correct and confidence must be [Q] each, of one case at least, got shapes "
            f"{is_right.shape} and {scores.shape}; give one a case."
        )
        raise ValueError(msg)
    is_neither = (is_right != 0) & (is_right != 1)
    if is_neither.any():
        first_position = int(is_neither.argmax())
        n_bad = int(is_neither.sum())
        msg = (
            f"correct must be boolean or 0 and 1, got {is_right[first_position]} at position "
            f"{first_position} "
            f"({n_bad} such cases); it comes before confidence, and a grade is rounded first."
        )
        raise ValueError(msg)
    return is_right == 0, scores + 0.0  # -0.0 and 0.0 are one level, written 0.0


def confidence_levels(correct: ArrayLike, confidence: ArrayLike) -> ConfidenceLevels:
    """Cases and wrong cases of each level of the confidence.

    See `check_confidence` for what is refused.
    """
    is_wrong, scores = check_confidence(correct, confidence)
    has_score = ~np.isnan(scores)
    thresholds, level_sizes = np.unique(scores[has_score], return_counts=True)
    wrong_up_to = np.searchsorted(np.sort(scores[has_score & is_wrong]), thresholds, side="right")
    wrong_counts = np.diff(wrong_up_to, prepend=0)
    return ConfidenceLevels(
        np.append(thresholds[::-1], nan),
        np.append(level_sizes[::-1], (~has_score).sum()),
        np.append(wrong_counts[::-1], (~has_score & is_wrong).sum()),
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
    thresholds, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    answered = level_sizes[:-1].cumsum()
    wrong_answered = wrong_counts[:-1].cumsum()
    return Curve(
        answered / level_sizes.sum(),
        wrong_answered / answered,
        answered,
        wrong_answered,
        thresholds[:-1],
    )


def mean_risk(level_sizes: IntArray, wrong_counts: IntArray) -> FloatArray:
    """Mean over k = 1 … n of the expected error rate of the k first, [...], with random ties.

    Within a level of m cases with w wrong, reached after a cases with e wrong, the expected errors
    at a + j are e + j · w / m; their shares sum to (e − a · w / m) · (1 / (a + 1) + … + 1 / (a +
    m)) + w.

    Args:
      level_sizes, wrong: by level, the most confident first, [..., L]; a level may be empty.
    """
    from scipy.special import digamma

    cases_after = level_sizes.cumsum(axis=-1)
    cases_before = cases_after - level_sizes
    errors_before = wrong_counts.cumsum(axis=-1) - wrong_counts
    harmonic_sums = np.diff(digamma(cases_after + 1.0), axis=-1, prepend=digamma(1.0))
    level_sums = (
        errors_before - cases_before * (wrong_counts / np.maximum(level_sizes, 1))
    ) * harmonic_sums + wrong_counts
    return level_sums.sum(axis=-1) / cases_after[..., -1]


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
    _, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    return float(mean_risk(level_sizes, wrong_counts))


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
    _, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    n_cases = level_sizes.sum()
    n_wrong = wrong_counts.sum()
    best_risk = mean_risk(np.array([n_cases - n_wrong, n_wrong]), np.array([0, n_wrong]))
    return max(0.0, float(mean_risk(level_sizes, wrong_counts) - best_risk))


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
    _, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    return int((level_sizes * (2 * wrong_counts.cumsum() - wrong_counts)).sum()) / (
        2 * int(level_sizes.sum()) ** 2
    )


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
    n_cases = len(errors)
    n_wrong = int(wrong.sum())
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
    _, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    right_counts = level_sizes - wrong_counts
    n_wrong = int(wrong_counts.sum())
    n_pairs = int(right_counts.sum()) * n_wrong
    return (
        int((right_counts * (2 * (n_wrong - wrong_counts.cumsum()) + wrong_counts)).sum())
        / (2 * n_pairs)
        if n_pairs
        else nan
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

    tail_mass = (1.0 - check_level(level)) / 2.0
    auroc_estimate = auroc(correct, confidence)
    _, level_sizes, wrong_counts = confidence_levels(correct, confidence)
    right_counts = level_sizes - wrong_counts
    n_right = int(right_counts.sum())
    n_wrong = int(wrong_counts.sum())
    rarer_count = min(n_right, n_wrong)
    if not rarer_count:
        return Interval(nan, nan)
    # of a right case the wrong ones under it, of a wrong case the right ones over it
    wrong_below = (n_wrong - wrong_counts.cumsum() + wrong_counts / 2) / n_wrong - auroc_estimate
    right_above = (right_counts.cumsum() - right_counts / 2) / n_right - auroc_estimate
    variance = 0.0
    if rarer_count > 1:
        variance = float((right_counts * wrong_below**2).sum()) / ((n_right - 1) * n_right)
        variance += float((wrong_counts * right_above**2).sum()) / ((n_wrong - 1) * n_wrong)
    if variance > 0.0:
        half_width = (
            -float(ndtri(tail_mass)) * sqrt(variance) / (auroc_estimate * (1.0 - auroc_estimate))
        )
        return Interval(
            expit(logit(auroc_estimate) - half_width), expit(logit(auroc_estimate) + half_width)
        )
    is_inside = 0.0 < auroc_estimate < 1.0
    half_width = (
        sqrt(-log(tail_mass) / (2 * rarer_count))
        if is_inside
        else 1.0 - tail_mass ** (1.0 / rarer_count)
    )
    return Interval(max(0.0, auroc_estimate - half_width), min(1.0, auroc_estimate + half_width))


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
    risk_curve = risk_coverage(correct, confidence)
    curve_step = int(np.searchsorted(risk_curve.x, coverage))
    return float(risk_curve.y[curve_step]) if curve_step < len(risk_curve.x) else nan


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
    risk_curve = risk_coverage(correct, confidence)
    return float(risk_curve.x[risk_curve.y <= risk].max(initial=0.0))


# of a curve that a simultaneous band is made of: each one more costs width at all others
BAND_STEPS = 64
RESAMPLE_CELLS_AT_ONCE = 2**22  # counts of resamples held at once


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
    chosen_steps = np.arange(len(curve.n))
    # some at even distance in the root of `n`, the last among them
    if len(chosen_steps) > BAND_STEPS:
        step_marks = (np.arange(1, BAND_STEPS + 1) / BAND_STEPS) ** 2
        chosen_steps = np.unique(np.searchsorted(curve.n, curve.n[-1] * step_marks))
    chosen_lower, chosen_upper = clopper_pearson(
        curve.k[chosen_steps],
        curve.n[chosen_steps],
        1.0 - (1.0 - check_level(level)) / max(1, len(chosen_steps)),
    )
    answered = curve.n.astype(np.float64)
    fewest_wrong = np.full(len(answered), -np.inf)
    most_wrong = np.full(len(answered), np.inf)
    fewest_wrong[chosen_steps], most_wrong[chosen_steps] = (
        chosen_lower * answered[chosen_steps],
        chosen_upper * answered[chosen_steps],
    )
    least_sum = np.maximum(
        np.maximum.accumulate(fewest_wrong),  # M(a)
        np.maximum.accumulate((fewest_wrong - answered)[::-1])[::-1] + answered,  # M(b) − (b − n)
    )
    greatest_sum = np.minimum(
        np.minimum.accumulate(most_wrong[::-1])[::-1],  # M(b)
        np.minimum.accumulate(most_wrong - answered) + answered,  # M(a) + (n − a)
    )
    lower_bounds = np.clip(least_sum / answered, 0.0, 1.0)
    upper_bounds = np.clip(greatest_sum / answered, 0.0, 1.0)
    lower_bounds[chosen_steps], upper_bounds[chosen_steps] = chosen_lower, chosen_upper
    return Interval(lower_bounds, upper_bounds)


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
    truth_rows = np.atleast_2d(plain_array(correct, "correct"))
    if len(truth_rows) > 2:
        msg = f"correct must be [Q] or [2, Q], got shape {truth_rows.shape}; give one row for both."
        raise ValueError(msg)
    # a case is a cell of (rank in first, rank in second): resampling counts of cells keeps the
    # pairs
    first_rank = _rank_codes(truth_rows[0], first)
    second_rank = _rank_codes(truth_rows[-1], second)
    rank_base = int(second_rank.max()) + 1
    rank_cells, cell_counts = np.unique(first_rank * rank_base + second_rank, return_counts=True)
    rank_pairs = np.divmod(rank_cells, rank_base)
    difference = _cell_aurc(cell_counts, rank_pairs[0]) - _cell_aurc(cell_counts, rank_pairs[1])
    # so many resamples at a time, that their counts fit into memory
    resample_block = max(1, RESAMPLE_CELLS_AT_ONCE // len(rank_cells))
    resample_differences = []
    for n_done in range(0, resamples, resample_block):
        resample_counts = rng.multinomial(
            len(first_rank),
            cell_counts / len(first_rank),
            size=min(resample_block, resamples - n_done),
        )
        resample_differences.append(
            _cell_aurc(resample_counts, rank_pairs[0]) - _cell_aurc(resample_counts, rank_pairs[1])
        )
    differences = np.concatenate(resample_differences)
    lower_bound, upper_bound = map(float, percentile_interval(differences, level))
    p_better = float(((differences < 0) + (differences == 0) / 2).mean())
    return Difference(float(difference), lower_bound, upper_bound, p_better)


def _rank_codes(correct: ArrayLike, confidence: ArrayLike) -> IntArray:
    """Twice each case's level rank, highest 0 and NaN last, plus one if the case is wrong, [Q]."""
    is_wrong, scores = check_confidence(correct, confidence)
    return 2 * np.unique(-scores, return_inverse=True)[1] + is_wrong


def _cell_aurc(counts: IntArray, rank_codes: IntArray) -> FloatArray:
    """AURC of cases in cells as `_rank_codes` names them, [...].

    Args:
      counts: [..., C].
      rank_codes: [C], in any order.
    """
    rank_order = np.argsort(rank_codes, kind="stable")
    sorted_ranks, is_wrong = np.divmod(rank_codes[rank_order], 2)
    rank_starts = np.flatnonzero(np.diff(sorted_ranks, prepend=-1))
    sorted_counts = counts[..., rank_order]
    return mean_risk(
        np.add.reduceat(sorted_counts, rank_starts, axis=-1),
        np.add.reduceat(sorted_counts * is_wrong, rank_starts, axis=-1),
    )
