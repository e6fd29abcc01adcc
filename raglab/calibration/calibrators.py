"""Calibrators (algebra): isotonic, Platt, beta, temperature, Venn-Abers; cross-fitting.

Parts of the Brier score.

A million rows on a hundred levels cost what a hundred rows cost, once they are sorted. Isotonic,
Platt and Venn–Abers take scores of any scale; beta takes probabilities, temperature probabilities
other than 0 and 1.

A calibrator is never judged by the cases it was fitted to alone: see `calibrated`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array
from raglab.calibration.errors import (
    ScoreLevels,
    chances,
    ece,
    isotonic_blocks,
    pairs,
    score_levels,
    smooth_ece,
)
from raglab.metrics.intervals import FloatArray, IntArray

Method = Literal["isotonic", "platt", "beta", "temperature", "venn-abers"]
METHODS: tuple[Method, ...] = get_args(Method)
# a case: keeps a logistic fit finite where the score separates the outcomes, next to nothing
# elsewhere
RIDGE = 1e-11
EPSILON = np.finfo(np.float64).eps  # beta: the nearest that a score comes to 0 and 1


class Calibrator(NamedTuple):
    """A fitted map, of plain arrays that a file can hold.

    Attributes:
      method: one of `METHODS`.
      weights: platt (slope, intercept); beta (a, b, c) of `a ln s − b ln(1 − s) + c`; temperature
        (1 / T,); else empty.
      at: scores of the knots, ascending [K]; empty where there are weights.
      low: isotonic: the probability at each knot, [K], straight in between and flat outside.
        venn-abers: p0 below, between and above the knots, [K + 1]; on a knot p0 of above it.
      high: isotonic: as `low`. venn-abers: p1 below, between and above the knots, [K + 1]; on a
        knot p1 of below it.
    """

    method: Method
    weights: FloatArray
    at: FloatArray
    low: FloatArray
    high: FloatArray


def fit(y: ArrayLike, score: ArrayLike, *, method: Method) -> Calibrator:
    """A map from score to the probability that y is 1.

    It flatters on the cases it was fitted to: see `calibrated`.

    isotonic: the rising step function nearest to the outcomes, its steps joined by lines.
    platt: logistic in the score, on outcomes shrunk to (n1 + 1) / (n1 + 2) and 1 / (n0 + 2).
    beta: logistic in ln s and −ln(1 − s), neither weight below 0.
    temperature: logit s divided by T > 0; T infinite where the score ranks the wrong way round.
    venn-abers: isotonic fits with the new case added, once as 0, once as 1.

    Args:
      y: outcomes, 0 or 1, [Q].
      score: the larger, the likelier 1, [Q]: in [0, 1] for beta, in (0, 1) for temperature.
      method: one of `METHODS`, as listed above.

    Raises:
      ValueError: one outcome only; a score outside the method's range; NaN.

    Source: Zadrozny and Elkan 2002; Platt 1999 with Lin, Lin and Weng 2007; Kull, Silva Filho and
      Flach 2017; Guo et al. 2017; Vovk, Petej and Fedorova 2015.

    Example:
      >>> fit([0, 1, 0, 1], [10, 20, 30, 40], method="isotonic").high.tolist()
      [0.0, 0.5, 0.5, 1.0]
    """
    return fit_counts(score_levels(*pairs(y, score)), method)


def fit_counts(levels: ScoreLevels, method: Method) -> Calibrator:
    """`fit` on counts; the scores are finite."""
    if method not in METHODS:
        msg = f"method must be one of {', '.join(METHODS)}, got {method!r}."
        raise ValueError(msg)
    n, k = int(levels.n.sum()), int(levels.k.sum())
    # with one outcome the likelihood has no finite maximum
    if k in {0, n}:
        msg = f"y must hold both outcomes to fit on, got {k} of {n} true; add cases of the other."
        raise ValueError(msg)
    weights = at = low = high = np.empty(0)
    if method == "isotonic":
        at, low = _block_steps(levels)
        high = low
    elif method == "venn-abers":
        # p0 is p1 of the mirrored problem: scores reversed, outcomes exchanged
        p1 = _isotonic_with_success(levels.n, levels.k)
        p0 = 1.0 - _isotonic_with_success(levels.n[::-1], (levels.n - levels.k)[::-1])[::-1]
        # only where a probability changes is a knot needed
        changes = (np.diff(p0) != 0) | (np.diff(p1) != 0)
        ends = np.append(True, changes)
        at, low, high = levels.at[changes], p0[ends], p1[ends]
    else:
        columns = _logistic_columns(method, levels.at)
        if method == "platt":
            # Platt's smoothed targets keep the slope finite where scores separate the outcomes
            target = levels.k * (k + 1) / (k + 2) + (levels.n - levels.k) / (n - k + 2)
            weights = _logistic(columns, levels.n, target)
        elif method == "beta":
            weights = _rising(columns, levels)
        else:
            # a temperature below 0 would turn the order round
            weights = _logistic(columns, levels.n, levels.k, intercept=False)
            weights = np.maximum(weights, 0.0)
    for part in (weights, at, low, high):
        part.setflags(write=False)
    return Calibrator(method, weights, at, low, high)


def apply(calibrator: Calibrator, score: ArrayLike) -> FloatArray:
    """Probability that y is 1 at each score, [...]; NaN stays NaN. Venn–Abers: p1 / (1 − p0 + p1).

    Args:
      calibrator: fitted.
      score: [...], in the method's range.

    Raises:
      ValueError: a score outside the method's range.

    Example:
      >>> apply(fit([0, 1, 0, 1], [10, 20, 30, 40], method="isotonic"), [5, 15, 35]).tolist()
      [0.0, 0.25, 0.75]
    """
    value = float_array(score, "score")
    if calibrator.method == "isotonic":
        return np.asarray(np.interp(value, calibrator.at, calibrator.high))
    if calibrator.method == "venn-abers":
        p0, p1 = venn_abers_interval(calibrator, value)
        return np.asarray(p1 / (1.0 - p0 + p1))
    from scipy.special import expit

    weights = np.asarray(calibrator.weights)
    columns = _logistic_columns(calibrator.method, value)
    margin = weights[-1] if weights.size > len(columns) else 0.0
    for weight, column in zip(weights, columns, strict=False):
        margin = margin + weight * column
    return np.asarray(expit(margin))


def venn_abers_interval(calibrator: Calibrator, score: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """p0 and p1 at each score, [...] each.

    The isotonic estimates if the new case were a 0, and if it were a 1.

    One of the two is calibrated under any distribution, if cases are exchangeable; their distance
    shows how little the data tell at that score. NaN stays NaN.

    Args:
      calibrator: of the method `venn-abers`.
      score: [...].

    Raises:
      ValueError: a calibrator of another method.

    Example:
      >>> p0, p1 = venn_abers_interval(fit([0, 1, 0, 1], [10, 20, 30, 40], method="venn-abers"), 45)
      >>> round(float(p0), 3), float(p1)
      (0.5, 1.0)
    """
    if calibrator.method != "venn-abers":
        msg = f"p0 and p1 need a calibrator of method='venn-abers', got {calibrator.method}."
        raise ValueError(msg)
    value = float_array(score, "score")
    p0 = np.asarray(calibrator.low)[np.searchsorted(calibrator.at, value, side="right")]
    p1 = np.asarray(calibrator.high)[np.searchsorted(calibrator.at, value, side="left")]
    return np.where(np.isnan(value), np.nan, p0), np.where(np.isnan(value), np.nan, p1)


def _block_steps(levels: ScoreLevels) -> tuple[FloatArray, FloatArray]:
    """Both ends of each isotonic block, and the block's rate at them."""
    start = isotonic_blocks(levels.n, levels.k)
    rate = np.add.reduceat(levels.k, start) / np.add.reduceat(levels.n, start)
    ends = np.stack([start, np.append(start[1:], levels.at.size) - 1], axis=1)
    single = ends[:, 0] == ends[:, 1]
    used = np.stack([np.ones_like(single), ~single], axis=1)
    return levels.at[ends[used]], np.repeat(rate, 2).reshape(-1, 2)[used]


def _isotonic_with_success(n: IntArray, k: IntArray) -> FloatArray:
    """Isotonic estimate at a new case of outcome 1 that stands before level i, for i in 0 … L.

    [L + 1].

    It is the slope of the line that touches, from below, the cumulative counts up to level i moved
    back by the new case, and those from level i on. Both points of contact only move up, so that
    one pass over exact integers does.
    """
    size, true = [0, *np.cumsum(n).tolist()], [0, *np.cumsum(k).tolist()]
    last = len(size) - 1
    # the next corner of the lower hull of all points from one on
    corner, hull = [last] * (last + 1), [last]
    for i in range(last - 1, -1, -1):
        while len(hull) > 1:
            a, b = hull[-1], hull[-2]
            if (true[a] - true[i]) * (size[b] - size[a]) < (true[b] - true[a]) * (
                size[a] - size[i]
            ):
                break
            hull.pop()
        corner[i] = hull[-1]
        hull.append(i)
    left = right = 0
    rise = run = 1
    estimate = np.empty(last + 1)
    for i in range(last + 1):
        if i == 0 or (true[i] - true[left]) * run < rise * (size[i] - size[left]):
            left, right = i, max(right, i)
            rise, run = true[right] - true[i] + 1, size[right] - size[i] + 1
            while right < last:
                b = corner[right]
                if (true[b] - true[right]) * run > rise * (size[b] - size[right]):
                    break
                right, rise, run = b, true[b] - true[i] + 1, size[b] - size[i] + 1
        estimate[i] = rise / run
    return estimate


def _logistic_columns(method: Method, score: FloatArray) -> list[FloatArray]:
    """What a logistic map is linear in, each with the shape of the score."""
    if method == "platt":
        return [score]
    is_beta = method == "beta"
    lost = (score < 0.0) | (score > 1.0) | (not is_beta and ((score == 0.0) | (score == 1.0)))
    if lost.any():
        msg = (
            f"score must be in {'[0, 1]' if is_beta else '(0, 1)'} for {method}, got "
            f"{score[lost].flat[0]}; isotonic, platt and venn-abers take any scale."
        )
        raise ValueError(msg)
    inner = np.clip(score, EPSILON, 1.0 - EPSILON) if is_beta else score
    up, down = np.log(inner), -np.log1p(-inner)
    return [up, down] if is_beta else [up + down]


def _rising(columns: list[FloatArray], levels: ScoreLevels) -> FloatArray:
    """Best logistic fit's weights with no column counting against y, and its intercept, [M + 1]."""
    free = _logistic(columns, levels.n, levels.k)
    if np.all(free[:-1] >= 0.0):
        return free
    shut = np.zeros((2, 3))
    for j, column in enumerate(columns):
        slope, shut[j, 2] = _logistic([column], levels.n, levels.k)
        shut[j, j] = slope
    rate = levels.k.sum() / levels.n.sum()
    flat = np.array([0.0, 0.0, np.log(rate / (1.0 - rate))])
    rising = [weights for weights in (flat, *shut) if np.all(weights[:2] >= 0.0)]
    return min(
        rising,
        key=lambda weights: _loss(weights[:2] @ np.stack(columns) + weights[2], levels.n, levels.k),
    )


def _loss(margin: FloatArray, n: IntArray, true: NDArray[np.number]) -> float:
    return float((n * np.logaddexp(0.0, margin) - true * margin).sum())


def _logistic(
    columns: list[FloatArray], n: IntArray, true: NDArray[np.number], *, intercept: bool = True
) -> FloatArray:
    """Weights of the likeliest logistic fit to `true` of n at each level, the intercept last."""
    if not intercept:
        (row,) = columns
        scale = max(float(np.abs(row).max()), EPSILON)
        return _newton(row[np.newaxis] / scale, n, true, np.zeros(1), np.ones(1)) / scale
    rows = np.stack(columns)
    middle = rows.mean(axis=1, keepdims=True)
    spread = np.sqrt(((rows - middle) ** 2).mean(axis=1, keepdims=True))
    spread[spread == 0.0] = 1.0
    start = np.append(np.zeros(len(columns)), np.log(true.sum() / (n.sum() - true.sum())))
    held = np.append(np.ones(len(columns)), 0.0)
    weights = _newton(
        np.append((rows - middle) / spread, np.ones((1, n.size)), axis=0), n, true, start, held
    )
    slopes = weights[:-1] / spread[:, 0]
    return np.append(slopes, weights[-1] - (slopes * middle[:, 0]).sum())


def _newton(
    rows: FloatArray, n: IntArray, true: NDArray[np.number], weights: FloatArray, held: FloatArray
) -> FloatArray:
    """Weights of least logistic loss, [M], by Newton's steps, halved while they overshoot.

    rows: what the margin is linear in, [M, L]. held: 1 for a weight under the ridge, [M].
    """
    from scipy.special import expit

    cases = float(n.sum())
    ridge = held * RIDGE * cases

    def loss(at: FloatArray) -> float:
        return _loss(np.einsum("m,ml->l", at, rows), n, true) + float((ridge * at**2).sum()) / 2.0

    for _ in range(100):
        p = expit(np.einsum("m,ml->l", weights, rows))
        slope = (rows * (n * p - true)).sum(axis=1) + ridge * weights
        bend = np.einsum("al,bl,l->ab", rows, rows, n * p * (1.0 - p)) + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        gain = float((slope * step).sum())
        # nearer than that Newton's steps do not overshoot, and rounding hides what they gain
        if gain > 1e-3:
            here = loss(weights)
            while loss(weights - step) > here:
                step = step / 2.0
        weights = weights - step
        if gain <= 1e-20 * cases:
            break
    return weights


class Brier(NamedTuple):
    """Brier score and its parts: score = mcb − dsc + unc, to the last bit in that order.

    Attributes:
      score: mean of (p − y)².
      mcb: miscalibration, the part that recalibration would remove.
      dsc: discrimination, the worth of the ranking.
      unc: uncertainty, the score of the constant base rate.
    """

    score: float
    mcb: float
    dsc: float
    unc: float


class Judgement(NamedTuple):
    """Calibration of n probabilities: ECE, smooth ECE, Brier score with its parts.

    Attributes:
      n: number of cases.
      ece: expected calibration error, in probability.
      smooth_ece: in probability.
      brier: score and parts.
    """

    n: int
    ece: float
    smooth_ece: float
    brier: Brier


class Calibrated(NamedTuple):
    """A calibrator judged on the cases it was fitted to and on unseen cases, side by side.

    Attributes:
      calibrator: fitted to all cases.
      p: cross-fitted probabilities, [Q].
      in_sample: judgement of the calibrator on its own cases, which flatters.
      cross_fitted: judgement of p, the one to report.
    """

    calibrator: Calibrator
    p: FloatArray
    in_sample: Judgement
    cross_fitted: Judgement


def brier_decomposition(y: ArrayLike, p: ArrayLike) -> Brier:
    """Brier score, mean of (p − y)², in parts, with isotonic regression as recalibration (CORP).

    mcb is 0 where p is its own isotonic recalibration, dsc is 0 where p ranks no better than a
    constant.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].

    Raises:
      ValueError: p outside [0, 1] (a score that only ranks), NaN, no case, y other than 0 and 1.

    Source: Dimitriadis, Gneiting and Jordan 2021.

    Example:
      >>> brier_decomposition([0, 1, 1, 1], [0.5, 0.5, 1.0, 1.0])
      Brier(score=0.125, mcb=0.0, dsc=0.0625, unc=0.1875)
    """
    levels = score_levels(*chances(y, p))
    n, k = int(levels.n.sum()), int(levels.k.sum())
    start = isotonic_blocks(levels.n, levels.k)
    size, true = np.add.reduceat(levels.n, start), np.add.reduceat(levels.k, start)
    again = np.repeat(true / size, np.diff(start, append=levels.at.size))
    worse = (levels.at - again) * (levels.n * (levels.at + again) - 2 * levels.k)
    mcb = max(float(worse.sum()) / n, 0.0)
    unc = k * (n - k) / n**2
    recalibrated = float((true * (size - true) / size).sum()) / n  # score of the recalibrated
    dsc = max(unc - recalibrated, 0.0)
    return Brier(mcb - dsc + unc, mcb, dsc, unc)


def folds_of(
    y: ArrayLike,
    score: ArrayLike,
    *,
    folds: int = 5,
    groups: ArrayLike | None = None,
    rng: np.random.Generator,
) -> IntArray:
    """Fold of each case, from 0, [Q]; sizes differ by one at most.

    It does not depend on the order of the cases.

    Folds are drawn for the cases in the order of score, then outcome; cases alike in both are
    interchangeable. They are not stratified, on purpose: stratified folds, at each score or over
    all, repeat the noise of the fitted part in the part held out, and cross-fitted errors become
    too small: isotonic, 400 cases, 11 levels without information, ECE 0.003 and 0.030 where fresh
    cases, and these folds, show 0.045.

    Args:
      y: outcomes, 0 or 1, [Q].
      score: of any scale, [Q].
      folds: their number, at least 2.
      groups: a label a case, [Q]; cases that must not be separated, such as paraphrases or
        questions on one document. Groups are drawn whole, in the order of their labels.
      rng: generator of the folds.

    Raises:
      ValueError: folds below 2, or above the number of cases or groups; groups of another length.
    """
    outcome, value = pairs(y, score)
    if groups is None:
        part = np.empty(value.size, dtype=np.int64)
        part[np.lexsort((outcome, value))] = np.arange(value.size)
    else:
        part = np.unique(np.asarray(groups), return_inverse=True)[1]
        if part.shape != value.shape:
            msg = f"groups must be a label a case, got {part.shape} for {value.size} cases."
            raise ValueError(msg)
    parts = int(part.max()) + 1
    if not 2 <= folds <= parts:
        kind = "cases" if groups is None else "groups"
        msg = f"folds must be between 2 and the {parts} {kind}, got {folds}; take fewer folds."
        raise ValueError(msg)
    return rng.permutation(np.resize(np.arange(folds), parts))[part]


def cross_fitted(
    y: ArrayLike,
    score: ArrayLike,
    *,
    method: Method,
    folds: int = 5,
    groups: ArrayLike | None = None,
    rng: np.random.Generator,
) -> FloatArray:
    """Probability of each case from a calibrator fitted to the other folds, [Q].

    Folds as in `folds_of`.

    Args:
      y: outcomes, 0 or 1, [Q].
      score: the larger, the likelier 1, [Q].
      method: one of `METHODS`.
      folds: at least 2.
      groups: a label a case, [Q]; cases of one group stay in one fold.
      rng: generator of the folds.

    Raises:
      ValueError: as in `fit` and `folds_of`; a fold whose other folds hold one outcome only.

    Example:
      >>> y, score = [0, 1] * 10, [10, 40] * 10
      >>> cross_fitted(y, score, method="isotonic", rng=np.random.default_rng(0))[:4].tolist()
      [0.0, 1.0, 0.0, 1.0]
    """
    outcome, value = pairs(y, score)
    levels = score_levels(outcome, value)
    fold = folds_of(outcome, value, folds=folds, groups=groups, rng=rng)
    place = np.searchsorted(levels.at, value)
    p = np.empty(value.size)
    for held in range(folds):
        rows = fold == held
        n = levels.n - np.bincount(place[rows], minlength=levels.at.size)
        k = levels.k - np.bincount(place[rows & outcome], minlength=levels.at.size)
        has_cases = n > 0
        p[rows] = apply(
            fit_counts(ScoreLevels(levels.at[has_cases], n[has_cases], k[has_cases]), method),
            value[rows],
        )
    return p


def judged(y: ArrayLike, p: ArrayLike) -> Judgement:
    """ECE, smooth ECE and Brier score of probabilities, at the defaults of each.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].
    """
    return Judgement(np.asarray(y).size, ece(y, p), smooth_ece(y, p), brier_decomposition(y, p))


def calibrated(
    y: ArrayLike,
    score: ArrayLike,
    *,
    method: Method,
    folds: int = 5,
    groups: ArrayLike | None = None,
    rng: np.random.Generator,
) -> Calibrated:
    """A calibrator fitted to all cases, judged on them and by cross-fitting.

    Args:
      y: outcomes, 0 or 1, [Q].
      score: the larger, the likelier 1, [Q].
      method: one of `METHODS`.
      folds: of cross-fitting, at least 2.
      groups: a label a case, [Q]; cases of one group stay in one fold.
      rng: generator of the folds.

    Raises:
      ValueError: as in `cross_fitted`.

    Example:
      >>> y, score = [0, 1, 1, 0, 1, 1, 0, 1, 0, 1] * 4, list(range(40))
      >>> found = calibrated(y, score, method="isotonic", rng=np.random.default_rng(0))
      >>> found.in_sample.brier.score < found.cross_fitted.brier.score
      True
    """
    calibrator = fit(y, score, method=method)
    p = cross_fitted(y, score, method=method, folds=folds, groups=groups, rng=rng)
    return Calibrated(calibrator, p, judged(y, apply(calibrator, score)), judged(y, p))
