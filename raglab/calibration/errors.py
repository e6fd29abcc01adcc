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
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import (
    ROUNDING_TOLERANCE,
    check_present,
    float_array,
    plain_array,
    shown_number,
    within_range,
)
from raglab.metrics.intervals import check_level, percentile_interval
from raglab.values import BoolArray, Curve, FloatArray, IntArray


class ScoreLevels(NamedTuple):
    """Distinct scores in ascending order: k of n cases came true at the score `at`; all [L]."""

    at: FloatArray
    n: IntArray
    k: IntArray


def pairs(y: ArrayLike, score: ArrayLike, name: str = "score") -> tuple[BoolArray, FloatArray]:
    """Outcomes, bool [Q], and finite scores, float [Q], one of each a case.

    Raises:
      ValueError: another shape, different lengths, no case, NaN, an infinite score, or an outcome
        beside 0 and 1; names the first position.
    """
    outcomes = plain_array(y, "y")
    scores = float_array(score, name)
    if outcomes.ndim != 1 or outcomes.shape != scores.shape or not outcomes.size:
        msg = (
            f"y and {name} must be [Q], one of each a case and at least one, got shapes "
            f"{outcomes.shape} and {scores.shape}."
        )
        raise ValueError(msg)
    is_true = outcomes == 1
    for rule, checked_values, is_bad in (
        ("y must be 0 or 1 (or bool)", outcomes, ~(is_true | (outcomes == 0))),
        (f"{name} must be finite", scores, ~np.isfinite(scores)),
    ):
        if is_bad.any():
            position = int(is_bad.argmax())
            msg = (
                f"{rule}, not NaN, got {checked_values[position]} at position {position} "
                f"({int(is_bad.sum())} "
                f"of {scores.size} cases); label or drop them first."
            )
            raise ValueError(msg)
    return is_true, scores


def chances(y: ArrayLike, p: ArrayLike) -> tuple[BoolArray, FloatArray]:
    """`pairs` whose scores are probabilities."""
    outcomes, scores = pairs(y, p, "p")
    return outcomes, check_probability(scores)


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
    probabilities = float_array(p, "p")
    lowest, highest = (
        (probabilities.min(), probabilities.max()) if probabilities.size else (0.0, 1.0)
    )
    if lowest >= 0.0 and highest <= 1.0:
        return probabilities
    check_present(probabilities, "p", "label or drop them first")
    if lowest >= -ROUNDING_TOLERANCE and highest <= 1.0 + ROUNDING_TOLERANCE:
        return within_range(probabilities, 0.0, 1.0, "p")
    worst_value = float(highest if highest > 1.0 else lowest)
    shown_value = f"{shown_number(worst_value, 0.0, 1.0)} at {'most' if highest > 1.0 else 'least'}"
    msg = (
        f"p must be in [0, 1], got {shown_value}; what only ranks is calibrated first (fit, apply)."
    )
    raise ValueError(msg)


def sort_by_score(y: BoolArray, score: FloatArray) -> tuple[IntArray, FloatArray]:
    """Outcomes, 0 or 1, and scores of the same rows sorted by score, then outcome, [Q] each."""
    plain_scores = score + 0.0  # one zero, not two
    # bits of floats in [0, 2) keep their order and leave room for one
    if plain_scores.min() >= 0.0 and plain_scores.max() < 2.0:
        keys = plain_scores.view(np.int64) << 1
        keys |= y
        keys.sort()
        return keys & 1, (keys >> 1).view(np.float64)
    score_order = np.lexsort((y, plain_scores))
    return y[score_order].astype(np.int64), plain_scores[score_order]


def score_levels(y: BoolArray, score: FloatArray) -> ScoreLevels:
    """Counts at each distinct score.

    Example:
      >>> score_levels(np.array([True, False, True]), np.array([0.7, 0.7, 0.4])).n.tolist()
      [1, 2]
    """
    sorted_outcomes, sorted_scores = sort_by_score(y, score)
    level_starts = np.flatnonzero(np.concatenate(([True], sorted_scores[1:] != sorted_scores[:-1])))
    return ScoreLevels(
        sorted_scores[level_starts],
        np.diff(level_starts, append=sorted_scores.size),
        np.add.reduceat(sorted_outcomes, level_starts),
    )


def isotonic_blocks(n: IntArray, k: IntArray) -> IntArray:
    """First level of each isotonic regression block of k / n on the level, weighted by n; [B].

    Rates of the blocks rise strictly: they are taken from the counts again until none is out of
    order.

    Source: Dimitriadis, Gneiting and Jordan 2021 (CORP); pool-adjacent-violators by SciPy.
    """
    from scipy.optimize import isotonic_regression

    block_starts = np.arange(n.size)
    while True:
        block_sizes = np.add.reduceat(n, block_starts)
        pooled_blocks = isotonic_regression(
            np.add.reduceat(k, block_starts) / block_sizes, weights=block_sizes
        ).blocks[:-1]
        if pooled_blocks.size == block_starts.size:
            return block_starts
        block_starts = block_starts[pooled_blocks]


Strategy = Literal["uniform", "quantile", "corp"]
Norm = Literal["l1", "l2", "max"]
# levels that are resampled as they are; more are merged where they share a cell of this width
FINE_LEVELS = 1024
BLOCK_COUNTS = 1 << 19  # counts drawn at once
CHUNK_ROWS = 1 << 15  # rows binned at once, few enough for the cache
INTEGER_UNIT = 2.0**26


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
    bin_counts = _bin_counts(*chances(y, p), bins, strategy)
    return Curve(
        bin_counts.total / bin_counts.n,
        bin_counts.k / bin_counts.n,
        bin_counts.n,
        bin_counts.k,
        bin_counts.at,
    )


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
    bin_counts = _bin_counts(*chances(y, p), bins, strategy)
    return float(
        _calibration_error(
            bin_counts.total - bin_counts.k, bin_counts.n, bin_counts.k, norm, debias=debias
        )
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
    cell_counts, cell_residuals, cell_outcomes, bin_starts = _outcome_cells(
        levels, _level_bins(levels, bins, strategy)
    )
    n_cases, errors, block_size = (
        int(cell_counts.sum()),
        [],
        max(1, BLOCK_COUNTS // cell_counts.size),
    )
    for block_start in range(0, resamples, block_size):
        drawn_counts = rng.multinomial(
            n_cases, cell_counts / n_cases, size=min(block_size, resamples - block_start)
        )
        gaps, n, k = (
            np.add.reduceat(cell_values, bin_starts, axis=1)
            for cell_values in (
                drawn_counts * cell_residuals,
                drawn_counts,
                drawn_counts * cell_outcomes,
            )
        )
        errors.append(_calibration_error(gaps, n, k, norm, debias=debias))
    lower_end, upper_end = map(float, percentile_interval(np.concatenate(errors), level))
    return lower_end, upper_end


def _bin_counts(y: BoolArray, p: FloatArray, bins: int, strategy: Strategy) -> Bins:
    """Counts and sums of scores in each non-empty bin, equal to the last bit in any row order."""
    if strategy == "corp":
        levels = score_levels(y, p)
        bin_starts = isotonic_blocks(levels.n, levels.k)
        bin_sizes, bin_true, score_sums = (
            np.add.reduceat(level_values, bin_starts)
            for level_values in (levels.n, levels.k, levels.n * levels.at)
        )
        return Bins(levels.at[bin_starts], bin_sizes, bin_true, score_sums)
    if strategy == "uniform":
        return _even(y, p, _bin_edges(p, bins, strategy))
    sorted_outcomes, sorted_scores = sort_by_score(y, p)
    edges = _bin_edges(sorted_scores, bins, strategy)
    bin_starts, filled_bins = _starts(sorted_scores, edges)
    bin_sizes = np.diff(bin_starts, append=sorted_scores.size)
    return Bins(
        edges[filled_bins],
        bin_sizes,
        np.add.reduceat(sorted_outcomes, bin_starts),
        np.add.reduceat(sorted_scores, bin_starts),
    )


def _even(y: BoolArray, p: FloatArray, edges: FloatArray) -> Bins:
    """Sums over bins of equal width, without sorting.

    The nearest edge and one comparison with it place a score. Scores are summed as two integers,
    multiples of 2^-26 and of 2^-52: sums of integers are exact below 2^53, so they do not depend on
    the order.
    """
    n_bins = edges.size - 1
    edges_below = np.append(-1.0, edges[1:])
    outcome_counts = np.zeros(2 * n_bins, dtype=np.int64)
    score_parts = np.zeros((2, n_bins))
    for chunk_start in range(0, p.size, CHUNK_ROWS):
        chunk_scores = p[chunk_start : chunk_start + CHUNK_ROWS]
        bin_index = np.rint(chunk_scores * n_bins).astype(np.int64)
        bin_index -= chunk_scores <= edges_below[bin_index]
        outcome_counts += np.bincount(
            2 * bin_index + y[chunk_start : chunk_start + CHUNK_ROWS], minlength=2 * n_bins
        )
        units = chunk_scores * INTEGER_UNIT
        coarse = np.rint(units)
        fine = np.rint((units - coarse) * INTEGER_UNIT)
        score_parts += [
            np.bincount(bin_index, weights=scaled_part, minlength=n_bins)
            for scaled_part in (coarse, fine)
        ]
    bin_sizes = outcome_counts[::2] + outcome_counts[1::2]
    is_filled = bin_sizes > 0
    score_sums = (score_parts[0] + score_parts[1] / INTEGER_UNIT) / INTEGER_UNIT
    return Bins(
        edges[:-1][is_filled],
        bin_sizes[is_filled],
        outcome_counts[1::2][is_filled],
        score_sums[is_filled],
    )


def _bin_edges(score: FloatArray, bins: int, strategy: Strategy) -> FloatArray:
    """Ends of bins, [bins + 1]."""
    if bins < 1:
        msg = f"bins must be at least 1, got {bins}."
        raise ValueError(msg)
    if strategy not in get_args(Strategy):
        msg = f"strategy must be one of {', '.join(get_args(Strategy))}, got {strategy!r}."
        raise ValueError(msg)
    even_edges = np.linspace(0.0, 1.0, bins + 1)
    return even_edges if strategy == "uniform" else np.percentile(score, even_edges * 100.0)


def _starts(sorted_scores: FloatArray, edges: FloatArray) -> tuple[IntArray, IntArray]:
    """First position of each non-empty bin in sorted scores, and that bin's number, [B] each."""
    bin_starts = np.append(0, np.searchsorted(sorted_scores, edges[1:-1], side="right"))
    filled_bins = np.flatnonzero(np.diff(bin_starts, append=sorted_scores.size))
    return bin_starts[filled_bins], filled_bins


def _level_bins(levels: ScoreLevels, bins: int, strategy: Strategy) -> IntArray:
    """First level of each non-empty bin, [B]."""
    if strategy == "corp":
        return isotonic_blocks(levels.n, levels.k)
    binned_scores = np.repeat(levels.at, levels.n) if strategy == "quantile" else levels.at
    return _starts(levels.at, _bin_edges(binned_scores, bins, strategy))[0]


def _outcome_cells(
    levels: ScoreLevels, bin_starts: IntArray
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Cells of level × outcome, [C]: cases, mean residual, outcome.

    And the first cell of each bin, [B].
    """
    cell_starts = np.arange(levels.at.size)
    if levels.at.size > FINE_LEVELS:
        starts_bin = np.zeros(levels.at.size, dtype=np.int64)
        starts_bin[bin_starts] = 1
        cell_starts = np.flatnonzero(
            np.diff(np.floor(levels.at * FINE_LEVELS), prepend=-1.0) + starts_bin
        )
    outcome_counts = np.stack([levels.n - levels.k, levels.k])
    cell_counts = np.add.reduceat(outcome_counts, cell_starts, axis=1)
    mean_scores = np.add.reduceat(outcome_counts * levels.at, cell_starts, axis=1) / np.maximum(
        cell_counts, 1
    )
    residuals = mean_scores - np.array([[0.0], [1.0]])
    n_filled = np.add.reduceat(
        cell_counts.astype(bool).sum(axis=0), np.searchsorted(cell_starts, bin_starts)
    )
    cells = cell_counts.T.ravel(), residuals.T.ravel(), np.tile([0, 1], cell_starts.size)
    cell_cases, cell_residuals, cell_outcomes = (cell_values[cells[0] > 0] for cell_values in cells)
    return cell_cases, cell_residuals, cell_outcomes, np.append(0, n_filled.cumsum()[:-1])


def _check_norm(norm: Norm, *, debias: bool) -> None:
    if norm not in get_args(Norm):
        msg = f"norm must be one of {', '.join(get_args(Norm))}, got {norm!r}."
        raise ValueError(msg)
    if debias and norm != "l2":
        msg = f"debias needs norm='l2', got {norm!r}; only the squared gap has a known bias."
        raise ValueError(msg)


def _calibration_error(
    gaps: FloatArray, n: IntArray, k: IntArray, norm: Norm, *, debias: bool
) -> FloatArray:
    """Norm of gaps over the last axis. gaps: sum of scores less k, in each bin.

    A bin without cases adds nothing.
    """
    case_shares = n / n.sum(axis=-1, keepdims=True)
    bin_sizes = np.maximum(n, 1)
    mean_gaps = np.abs(gaps) / bin_sizes
    if norm == "max":
        return mean_gaps.max(axis=-1)
    if norm == "l1":
        return (case_shares * mean_gaps).sum(axis=-1)
    squared_gaps = mean_gaps**2
    if debias:
        bin_rates = k / bin_sizes
        squared_gaps = np.where(
            n > 1, squared_gaps - bin_rates * (1.0 - bin_rates) / np.maximum(n - 1, 1), 0.0
        )
    return np.sqrt(np.maximum((case_shares * squared_gaps).sum(axis=-1), 0.0))


DENSITY_FLOOR = 1e-4  # cases added to the density everywhere
NARROWEST_KERNEL = 1e-3  # no narrower kernel is tried
WIDTH_HALVINGS = 10  # of the interval in which the width is sought
KERNEL_REACH = 9.0  # standard deviations; what lies beyond is below 3e-18 of the peak


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
    levels = score_levels(*chances(y, p))
    level_residuals = levels.n * levels.at - levels.k
    moments = np.stack(
        [level_residuals, level_residuals * levels.at, levels.n, levels.n * levels.at]
    )

    @cache
    def laid(points: int) -> FloatArray:
        return _laid(levels.at, moments, points)

    def error(width: float) -> float:
        points = max(2000, round(20 / width)) // 2 + 1
        return _smooth_error(laid(points), width)

    best_estimate = SmoothECE(np.nan, 1.0)
    lower_width = 0.0
    for _ in range(WIDTH_HALVINGS):
        middle_width = (best_estimate.bandwidth + lower_width) / 2.0
        middle_error = error(middle_width) if middle_width >= NARROWEST_KERNEL else np.inf
        if middle_error <= middle_width:
            best_estimate = SmoothECE(middle_error, middle_width)
        else:
            lower_width = middle_width
    return best_estimate if best_estimate.bandwidth < 1.0 else SmoothECE(error(1.0), 1.0)


def _laid(level_scores: FloatArray, moments: FloatArray, n_points: int) -> FloatArray:
    """Residuals and cases on a mesh, each split between its two neighbours, [2, points].

    moments: residual, residual × level, cases, cases × level, [4, L]; their sums over a cell say
    what each end gets.
    """
    cell_starts = np.searchsorted(level_scores, np.arange(n_points - 1) / (n_points - 1))
    cell_starts[0] = 0
    filled_cells = np.flatnonzero(np.diff(cell_starts, append=level_scores.size))
    moment_sums = np.add.reduceat(moments, cell_starts[filled_cells], axis=1)
    upper_shares = moment_sums[1::2] * (n_points - 1) - moment_sums[::2] * filled_cells
    mesh = np.zeros((2, n_points))
    mesh[:, filled_cells] += moment_sums[::2] - upper_shares
    mesh[:, filled_cells + 1] += upper_shares
    return mesh


def _smooth_error(mesh: FloatArray, width: float) -> float:
    """Mean absolute smoothed residual, weighted by the smoothed density of cases.

    The kernel spans the length of the mesh around its middle point; where the number of points is
    even it stands half a cell off, as in the package.
    """
    n_points = mesh.shape[1]
    mesh_points = np.linspace(0.0, 1.0, n_points)
    kernel_points = np.flatnonzero(np.abs(mesh_points - 0.5) <= KERNEL_REACH * width)
    kernel = np.exp(-((mesh_points[kernel_points] - 0.5) ** 2) / (2.0 * width**2)) / (
        np.sqrt(2.0 * np.pi) * width
    )
    first_point = n_points - 1 + n_points // 2 - kernel_points[-1]
    reflected = np.concatenate([mesh[:, :0:-1], mesh, mesh[:, -2::-1]], axis=1)
    kernel_reach = reflected[:, first_point : first_point + n_points + kernel_points.size - 1]
    evaluation_points = np.linspace(0.0, 1.0, max(round(10 / width), 200))
    residual, density = (
        np.interp(evaluation_points, mesh_points, np.convolve(mesh_row, kernel, "valid"))
        for mesh_row in kernel_reach
    )
    return float(np.abs(residual).sum() / (density + DENSITY_FLOOR).sum())
