"""Calibration error (algebra): reliability bins, ECE with intervals, smooth ECE.

Rows are sorted once; whatever comes after sums over levels, or over sorted rows, so that no number
depends on the order of the rows, not even in its last bit.

Smooth ECE lays residuals (score minus outcome) and cases on a mesh over [0, 1], smooths both, and
takes the mean absolute smoothed residual. The width is the smallest at which the error is no larger
than the width.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import (
    ROUNDING_TOLERANCE,
    check_present,
    float_array,
    plain_array,
    shown_number,
    within_range,
)
from raglab.metrics.intervals import FloatArray, IntArray, check_level, percentile_interval
from raglab.values import Curve


class ScoreLevels(NamedTuple):
    """Distinct scores in ascending order: k of n cases came true at the score `at`; all [L]."""

    at: FloatArray
    n: IntArray
    k: IntArray


def pairs(
    y: ArrayLike, score: ArrayLike, name: str = "score"
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Outcomes, bool [Q], and finite scores, float [Q], one of each a case.

    Raises:
      ValueError: another shape, different lengths, no case, NaN, an infinite score, or an outcome
        beside 0 and 1; names the first position.
    """
    outcome, value = plain_array(y, "y"), float_array(score, name)
    if outcome.ndim != 1 or outcome.shape != value.shape or not outcome.size:
        msg = (
            f"y and {name} must be [Q], one of each a case and at least one, got shapes "
            f"{outcome.shape} and {value.shape}."
        )
        raise ValueError(msg)
    true = outcome == 1
    for rule, part, bad in (
        ("y must be 0 or 1 (or bool)", outcome, ~(true | (outcome == 0))),
        (f"{name} must be finite", value, ~np.isfinite(value)),
    ):
        if bad.any():
            position = int(bad.argmax())
            msg = (
                f"{rule}, not NaN, got {part[position]} at position {position} ({int(bad.sum())} "
                f"of {value.size} cases); label or drop them first."
            )
            raise ValueError(msg)
    return true, value


def chances(y: ArrayLike, p: ArrayLike) -> tuple[NDArray[np.bool_], FloatArray]:
    """`pairs` whose scores are probabilities."""
    outcome, value = pairs(y, p, "p")
    return outcome, check_probability(value)


def check_probability(p: ArrayLike) -> FloatArray:
    """Probabilities as float64, [...].

    Args:
      p: [...], in [0, 1].

    Raises:
      ValueError: NaN, or a value outside [0, 1]; such a score only ranks until it is calibrated.

    Example:
      >>> check_probability([40.0, 72.0])
      Traceback (most recent call last):
      ValueError: p must be in [0, 1], got 72 at most; what only ranks is calibrated first (fit, \
apply).
    """
    value = float_array(p, "p")
    low, high = (value.min(), value.max()) if value.size else (0.0, 1.0)
    if low >= 0.0 and high <= 1.0:
        return value
    check_present(value, "p", "label or drop them first")
    if low >= -ROUNDING_TOLERANCE and high <= 1.0 + ROUNDING_TOLERANCE:
        return within_range(value, 0.0, 1.0, "p")
    worst = float(high if high > 1.0 else low)
    shown = f"{shown_number(worst, 0.0, 1.0)} at {'most' if high > 1.0 else 'least'}"
    msg = f"p must be in [0, 1], got {shown}; what only ranks is calibrated first (fit, apply)."
    raise ValueError(msg)


def sort_by_score(y: NDArray[np.bool_], score: FloatArray) -> tuple[IntArray, FloatArray]:
    """Outcomes, 0 or 1, and scores of the same rows sorted by score, then outcome, [Q] each."""
    plain = score + 0.0  # one zero, not two
    # bits of floats in [0, 2) keep their order and leave room for one
    if plain.min() >= 0.0 and plain.max() < 2.0:
        key = plain.view(np.int64) << 1
        key |= y
        key.sort()
        return key & 1, (key >> 1).view(np.float64)
    order = np.lexsort((y, plain))
    return y[order].astype(np.int64), plain[order]


def score_levels(y: NDArray[np.bool_], score: FloatArray) -> ScoreLevels:
    """Counts at each distinct score.

    Example:
      >>> score_levels(np.array([True, False, True]), np.array([0.7, 0.7, 0.4])).n.tolist()
      [1, 2]
    """
    outcome, value = sort_by_score(y, score)
    start = np.flatnonzero(np.concatenate(([True], value[1:] != value[:-1])))
    return ScoreLevels(
        value[start], np.diff(start, append=value.size), np.add.reduceat(outcome, start)
    )


def isotonic_blocks(n: IntArray, k: IntArray) -> IntArray:
    """First level of each isotonic regression block of k / n on the level, weighted by n; [B].

    Rates of the blocks rise strictly: they are taken from the counts again until none is out of
    order.

    Source: Dimitriadis, Gneiting and Jordan 2021 (CORP); pool-adjacent-violators by SciPy.
    """
    from scipy.optimize import isotonic_regression

    start = np.arange(n.size)
    while True:
        size = np.add.reduceat(n, start)
        pooled = isotonic_regression(np.add.reduceat(k, start) / size, weights=size).blocks[:-1]
        if pooled.size == start.size:
            return start
        start = start[pooled]


Strategy = Literal["uniform", "quantile", "corp"]
Norm = Literal["l1", "l2", "max"]
# levels that are resampled as they are; more are merged where they share a cell of this width
FINE = 1024
BLOCK = 1 << 19  # counts drawn at once
CHUNK = 1 << 15  # rows binned at once, few enough for the cache
UNIT = 2.0**26


class Bins(NamedTuple):
    """Non-empty bins in ascending order, [B].

    K of n cases came true, `total` is the sum of their scores.
    """

    at: FloatArray
    n: IntArray
    k: IntArray
    total: FloatArray


def reliability(
    y: ArrayLike, p: ArrayLike, *, bins: int = 10, strategy: Strategy = "uniform"
) -> Curve:
    """Observed rate against mean score, one entry a non-empty bin.

    `at` is the lower edge of the bin.

    A score on an inner edge belongs to the bin below it, a score of 0 to the first bin: bins are
    (low, high]. Edges are those of floating point, as in scikit-learn's `calibration_curve`; with
    5, 10, 15, 20, 25, 50 or 100 bins every decimal that names an edge, such as 0.6 and 0.7 or 30 /
    100 and 40 / 100, does fall below it.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].
      bins: their number; not used by "corp".
      strategy: "uniform", equal widths; "quantile", equal numbers of cases, edges at percentiles of
        p; "corp", the blocks of the isotonic regression of y on p, which has no bins to choose.

    Raises:
      ValueError: p outside [0, 1] (a score that only ranks), NaN, no case, y other than 0 and 1,
        bins below 1.

    Source: Dimitriadis, Gneiting and Jordan 2021 for "corp".

    Example:
      >>> curve = reliability([0, 1, 1, 1], [0.55, 0.6, 0.65, 0.7])
      >>> curve.n.tolist(), curve.y.tolist()
      ([2, 2], [0.5, 1.0])
    """
    counts = _bin_counts(*chances(y, p), bins, strategy)
    return Curve(counts.total / counts.n, counts.k / counts.n, counts.n, counts.k, counts.at)


def ece(
    y: ArrayLike,
    p: ArrayLike,
    *,
    bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    debias: bool = False,
) -> float:
    """Expected calibration error, in probability.

    The gap of mean score and observed rate, over bins.

    Bins are those of `reliability`. The error is biased upwards, the more bins the more.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].
      bins: their number; not used by "corp".
      strategy: of the bins, as for `reliability`.
      norm: "l1", mean absolute gap, weighted by cases; "l2", root of the mean squared gap; "max",
        the largest gap.
      debias: takes the sampling variance rate (1 − rate) / (n − 1) off each squared gap, leaves
        bins of one case out, and never goes below 0; with the norm "l2" only.

    Raises:
      ValueError: as in `reliability`; debias with a norm other than "l2".

    Source: Naeini, Cooper and Hauskrecht 2015; Kumar, Liang and Ma 2019 for debias.

    Example:
      >>> round(ece([0, 1, 1, 1], [0.5, 0.5, 0.9, 0.9]), 3)
      0.05
    """
    _check_norm(norm, debias=debias)
    counts = _bin_counts(*chances(y, p), bins, strategy)
    return float(
        _calibration_error(counts.total - counts.k, counts.n, counts.k, norm, debias=debias)
    )


def ece_interval(
    y: ArrayLike,
    p: ArrayLike,
    *,
    bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    debias: bool = False,
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Percentile bootstrap interval of `ece`: low and high end, in probability.

    Cases are drawn with replacement, the bins stay those of the data. Drawn are counts of score
    level × outcome, which is exact up to 1,024 levels. Beyond, levels that share a bin and a cell
    of width 1 / 1,024 count as one, at the mean score of each outcome in it: only the spread of
    scores inside a cell is left out, at most 0.0005 a case against the 0.3 to 0.5 of an outcome.
    Since ECE is biased upwards, and a resample's more so, the interval of a well calibrated score
    lies above 0 and may lie above its own ECE; "l2" with debias suffers least.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].
      bins: their number; not used by "corp".
      strategy: of the bins, as for `reliability`.
      norm: as for `ece`.
      debias: as for `ece`.
      level: of the interval, in (0, 1).
      resamples: of the bootstrap, at least 1.
      rng: generator of the resamples.

    Raises:
      ValueError: as in `ece`; level outside (0, 1), resamples below 1.

    Example:
      >>> low, high = ece_interval([0, 1] * 50, [0.5] * 100, rng=np.random.default_rng(0))
      >>> low, round(high, 2)
      (0.0, 0.12)
    """
    _check_norm(norm, debias=debias)
    check_level(level)
    if resamples < 1:
        msg = f"resamples must be at least 1, got {resamples}; 1,000 are usual."
        raise ValueError(msg)
    levels = score_levels(*chances(y, p))
    count, residual, outcome, start = _outcome_cells(levels, _level_bins(levels, bins, strategy))
    total, errors, size = int(count.sum()), [], max(1, BLOCK // count.size)
    for begin in range(0, resamples, size):
        drawn = rng.multinomial(total, count / total, size=min(size, resamples - begin))
        gap, n, k = (
            np.add.reduceat(part, start, axis=1)
            for part in (drawn * residual, drawn, drawn * outcome)
        )
        errors.append(_calibration_error(gap, n, k, norm, debias=debias))
    low, high = map(float, percentile_interval(np.concatenate(errors), level))
    return low, high


def _bin_counts(y: NDArray[np.bool_], p: FloatArray, bins: int, strategy: Strategy) -> Bins:
    """Counts and sums of scores in each non-empty bin, equal to the last bit in any row order."""
    if strategy == "corp":
        levels = score_levels(y, p)
        start = isotonic_blocks(levels.n, levels.k)
        size, true, total = (
            np.add.reduceat(part, start) for part in (levels.n, levels.k, levels.n * levels.at)
        )
        return Bins(levels.at[start], size, true, total)
    if strategy == "uniform":
        return _even(y, p, _bin_edges(p, bins, strategy))
    outcome, score = sort_by_score(y, p)
    edges = _bin_edges(score, bins, strategy)
    start, filled = _starts(score, edges)
    size = np.diff(start, append=score.size)
    return Bins(edges[filled], size, np.add.reduceat(outcome, start), np.add.reduceat(score, start))


def _even(y: NDArray[np.bool_], p: FloatArray, edges: FloatArray) -> Bins:
    """Sums over bins of equal width, without sorting.

    The nearest edge and one comparison with it place a score. Scores are summed as two integers,
    multiples of 2^-26 and of 2^-52: sums of integers are exact below 2^53, so they do not depend on
    the order.
    """
    bins = edges.size - 1
    below = np.append(-1.0, edges[1:])
    count = np.zeros(2 * bins, dtype=np.int64)
    parts = np.zeros((2, bins))
    for begin in range(0, p.size, CHUNK):
        score = p[begin : begin + CHUNK]
        place = np.rint(score * bins).astype(np.int64)
        place -= score <= below[place]
        count += np.bincount(2 * place + y[begin : begin + CHUNK], minlength=2 * bins)
        units = score * UNIT
        coarse = np.rint(units)
        fine = np.rint((units - coarse) * UNIT)
        parts += [np.bincount(place, weights=part, minlength=bins) for part in (coarse, fine)]
    size = count[::2] + count[1::2]
    filled = size > 0
    total = (parts[0] + parts[1] / UNIT) / UNIT
    return Bins(edges[:-1][filled], size[filled], count[1::2][filled], total[filled])


def _bin_edges(score: FloatArray, bins: int, strategy: Strategy) -> FloatArray:
    """Ends of bins, [bins + 1]."""
    if bins < 1:
        msg = f"bins must be at least 1, got {bins}."
        raise ValueError(msg)
    if strategy not in get_args(Strategy):
        msg = f"strategy must be one of {', '.join(get_args(Strategy))}, got {strategy!r}."
        raise ValueError(msg)
    even = np.linspace(0.0, 1.0, bins + 1)
    return even if strategy == "uniform" else np.percentile(score, even * 100.0)


def _starts(score: FloatArray, edges: FloatArray) -> tuple[IntArray, IntArray]:
    """First position of each non-empty bin in sorted scores, and that bin's number, [B] each."""
    start = np.append(0, np.searchsorted(score, edges[1:-1], side="right"))
    filled = np.flatnonzero(np.diff(start, append=score.size))
    return start[filled], filled


def _level_bins(levels: ScoreLevels, bins: int, strategy: Strategy) -> IntArray:
    """First level of each non-empty bin, [B]."""
    if strategy == "corp":
        return isotonic_blocks(levels.n, levels.k)
    rows = np.repeat(levels.at, levels.n) if strategy == "quantile" else levels.at
    return _starts(levels.at, _bin_edges(rows, bins, strategy))[0]


def _outcome_cells(
    levels: ScoreLevels, start: IntArray
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Cells of level × outcome, [C]: cases, mean residual, outcome.

    And the first cell of each bin, [B].
    """
    parts = np.arange(levels.at.size)
    if levels.at.size > FINE:
        inside = np.zeros(levels.at.size, dtype=np.int64)
        inside[start] = 1
        parts = np.flatnonzero(np.diff(np.floor(levels.at * FINE), prepend=-1.0) + inside)
    outcomes = np.stack([levels.n - levels.k, levels.k])
    count = np.add.reduceat(outcomes, parts, axis=1)
    score = np.add.reduceat(outcomes * levels.at, parts, axis=1) / np.maximum(count, 1)
    residual = score - np.array([[0.0], [1.0]])
    filled = np.add.reduceat(count.astype(bool).sum(axis=0), np.searchsorted(parts, start))
    cells = count.T.ravel(), residual.T.ravel(), np.tile([0, 1], parts.size)
    cases, apart, outcome = (part[cells[0] > 0] for part in cells)
    return cases, apart, outcome, np.append(0, filled.cumsum()[:-1])


def _check_norm(norm: Norm, *, debias: bool) -> None:
    if norm not in get_args(Norm):
        msg = f"norm must be one of {', '.join(get_args(Norm))}, got {norm!r}."
        raise ValueError(msg)
    if debias and norm != "l2":
        msg = f"debias needs norm='l2', got {norm!r}; only the squared gap has a known bias."
        raise ValueError(msg)


def _calibration_error(
    gap: FloatArray, n: IntArray, k: IntArray, norm: Norm, *, debias: bool
) -> FloatArray:
    """Norm of gaps over the last axis. gap: sum of scores less k, in each bin.

    A bin without cases adds nothing.
    """
    share = n / n.sum(axis=-1, keepdims=True)
    filled = np.maximum(n, 1)
    each = np.abs(gap) / filled
    if norm == "max":
        return each.max(axis=-1)
    if norm == "l1":
        return (share * each).sum(axis=-1)
    squared = each**2
    if debias:
        rate = k / filled
        squared = np.where(n > 1, squared - rate * (1.0 - rate) / np.maximum(n - 1, 1), 0.0)
    return np.sqrt(np.maximum((share * squared).sum(axis=-1), 0.0))


FLOOR = 1e-4  # cases added to the density everywhere
NARROWEST = 1e-3  # no narrower kernel is tried
HALVINGS = 10  # of the interval in which the width is sought
REACH = 9.0  # standard deviations; what lies beyond is below 3e-18 of the peak


class SmoothECE(NamedTuple):
    """Smooth ECE, in probability, and the standard deviation of its kernel, in units of the score.

    Attributes:
      value: in probability.
      bandwidth: standard deviation of the kernel, in units of the score.
    """

    value: float
    bandwidth: float


def smooth_ece(y: ArrayLike, p: ArrayLike) -> float:
    """Smooth ECE, in probability: binning replaced by a kernel whose width follows from the data.

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].

    Source: Błasiok and Nakkiran 2023, on the probability itself, not its logit, with the mesh and
      the search of their package relplot.

    Example:
      >>> round(smooth_ece([0, 1, 1, 1], [0.75, 0.75, 0.75, 0.75]), 3)
      0.0
    """
    return smooth_ece_with_bandwidth(y, p).value


def smooth_ece_with_bandwidth(y: ArrayLike, p: ArrayLike) -> SmoothECE:
    """Smooth ECE and the width of the kernel, found by ten halvings of (0, 1].

    Args:
      y: outcomes, 0 or 1, [Q].
      p: probabilities, [Q].

    Example:
      >>> smooth_ece_with_bandwidth([0, 1, 1, 1], [0.75, 0.75, 0.75, 0.75]).bandwidth
      0.001953125
    """
    at = score_levels(*chances(y, p))
    residual = at.n * at.at - at.k
    moments = np.stack([residual, residual * at.at, at.n, at.n * at.at])

    @cache
    def laid(points: int) -> FloatArray:
        return _laid(at.at, moments, points)

    def error(width: float) -> float:
        points = max(2000, round(20 / width)) // 2 + 1
        return _smooth_error(laid(points), width)

    best, below = SmoothECE(np.nan, 1.0), 0.0
    for _ in range(HALVINGS):
        middle = (best.bandwidth + below) / 2.0
        estimate = error(middle) if middle >= NARROWEST else np.inf
        if estimate <= middle:
            best = SmoothECE(estimate, middle)
        else:
            below = middle
    return best if best.bandwidth < 1.0 else SmoothECE(error(1.0), 1.0)


def _laid(at: FloatArray, moments: FloatArray, points: int) -> FloatArray:
    """Residuals and cases on a mesh, each split between its two neighbours, [2, points].

    moments: residual, residual × level, cases, cases × level, [4, L]; their sums over a cell say
    what each end gets.
    """
    start = np.searchsorted(at, np.arange(points - 1) / (points - 1))
    start[0] = 0
    filled = np.flatnonzero(np.diff(start, append=at.size))
    sums = np.add.reduceat(moments, start[filled], axis=1)
    above = sums[1::2] * (points - 1) - sums[::2] * filled
    mesh = np.zeros((2, points))
    mesh[:, filled] += sums[::2] - above
    mesh[:, filled + 1] += above
    return mesh


def _smooth_error(mesh: FloatArray, width: float) -> float:
    """Mean absolute smoothed residual, weighted by the smoothed density of cases.

    The kernel spans the length of the mesh around its middle point; where the number of points is
    even it stands half a cell off, as in the package.
    """
    points = mesh.shape[1]
    grid = np.linspace(0.0, 1.0, points)
    near = np.flatnonzero(np.abs(grid - 0.5) <= REACH * width)
    kernel = np.exp(-((grid[near] - 0.5) ** 2) / (2.0 * width**2)) / (np.sqrt(2.0 * np.pi) * width)
    first = points - 1 + points // 2 - near[-1]
    reflected = np.concatenate([mesh[:, :0:-1], mesh, mesh[:, -2::-1]], axis=1)
    reached = reflected[:, first : first + points + near.size - 1]
    at = np.linspace(0.0, 1.0, max(round(10 / width), 200))
    residual, density = (np.interp(at, grid, np.convolve(row, kernel, "valid")) for row in reached)
    return float(np.abs(residual).sum() / (density + FLOOR).sum())
