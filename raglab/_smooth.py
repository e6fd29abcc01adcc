"""Smooth calibration error: residuals under a reflected Gaussian kernel whose width they choose themselves.

Residuals (score minus outcome) and cases are laid on a mesh over [0, 1], both are smoothed, and the error is the
mean absolute smoothed residual. The width is the smallest at which the error is no larger than the width.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab._levels import FloatArray, Levels, chances, levels

FLOOR = 1e-4  # cases added to the density everywhere
NARROWEST = 1e-3  # no narrower kernel is tried
HALVINGS = 10  # of the interval in which the width is sought
REACH = 9.0  # standard deviations; what lies beyond is below 3e-18 of the peak


class SmoothECE(NamedTuple):
    """Smooth ECE, in probability, and the standard deviation of its kernel, in units of the score."""

    value: float
    bandwidth: float


def smooth_ece(y: ArrayLike, p: ArrayLike) -> float:
    """Smooth ECE, in probability: binning replaced by a kernel whose width follows from the data.

    Args:
      y: outcomes, 0 or 1, [Q]. p: probabilities, [Q].

    Source: Błasiok and Nakkiran 2023, on the probability itself, not its logit, with the mesh and the search of
      their package relplot.

    Example:
      >>> round(smooth_ece([0, 1, 1, 1], [0.75, 0.75, 0.75, 0.75]), 3)
      0.0
    """
    return smooth_ece_with_bandwidth(y, p).value


def smooth_ece_with_bandwidth(y: ArrayLike, p: ArrayLike) -> SmoothECE:
    """Smooth ECE and the width of the kernel, found by ten halvings of (0, 1].

    Example:
      >>> smooth_ece_with_bandwidth([0, 1, 1, 1], [0.75, 0.75, 0.75, 0.75]).bandwidth
      0.001953125
    """
    return smoothed(levels(*chances(y, p)))


def smoothed(at: Levels) -> SmoothECE:
    """Smooth ECE of counts at levels in [0, 1]."""
    residual = at.n * at.at - at.k
    moments = np.stack([residual, residual * at.at, at.n, at.n * at.at])

    @cache
    def laid(points: int) -> FloatArray:
        return _laid(at.at, moments, points)

    def error(width: float) -> float:
        points = max(2000, round(20 / width)) // 2 + 1
        return _error(laid(points), width)

    best, below = SmoothECE(np.nan, 1.0), 0.0
    for _ in range(HALVINGS):
        middle = (best.bandwidth + below) / 2.0
        found = error(middle) if middle >= NARROWEST else np.inf
        if found <= middle:
            best = SmoothECE(found, middle)
        else:
            below = middle
    return best if best.bandwidth < 1.0 else SmoothECE(error(1.0), 1.0)


def _laid(at: FloatArray, moments: FloatArray, points: int) -> FloatArray:
    """Residuals and cases on a mesh, each split between its two neighbours, [2, points].

    moments: residual, residual × level, cases, cases × level, [4, L]; their sums over a cell say what each end gets.
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


def _error(mesh: FloatArray, width: float) -> float:
    """Mean absolute smoothed residual, weighted by the smoothed density of cases.

    The kernel spans the length of the mesh around its middle point; where the number of points is even it stands
    half a cell off, as in the package.
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
