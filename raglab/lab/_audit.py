"""Numbers behind the reward audit: correlation and concordance under resampled cases, and whom a signal chooses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.metrics import clopper_pearson

Array = NDArray[np.float64]
BLOCK = 2_000_000  # cells of one block of resamples
FLAT = 1e-12  # share of the variance below which a resample counts as constant
FEWEST = 10  # cases with a pair, below which a concordance has no interval


class Pairs(NamedTuple):
    """Pairs of arms of one case with different values, [Q]: how many, and in how many the signal agrees (ties half)."""

    agree: Array
    n: Array


def resamples(n_cases: int, n_boot: int, width: int, seed: int) -> Iterator[Array]:
    """How often each case is drawn, [b, Q] a block, n_boot rows in all; the same for any number of columns used.

    Args:
      width: cells that one resample needs further on, so that a block stays small.
    """
    rng = np.random.default_rng(seed)
    size = max(1, BLOCK // max(1, width))
    share = np.full(n_cases, 1.0 / n_cases)
    for start in range(0, n_boot, size):
        yield rng.multinomial(n_cases, share, size=min(size, n_boot - start)).astype(np.float64)


def weighted_ranks(values: Array, weight: Array) -> Array:
    """Mid-ranks of values that occur so many times each, [B, N]; rows of weight 0 get a rank too, and it is no matter.

    Args:
      values: [N]. weight: [B, N].

    Example:
      >>> weighted_ranks(np.array([3.0, 1.0, 3.0]), np.ones((1, 3)))
      array([[2.5, 1. , 2.5]])
    """
    levels, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(levels)))
    size = np.add.reduceat(weight[:, order], starts, axis=1)
    middle = np.cumsum(size, axis=1) - size + (size + 1.0) / 2.0
    return middle[:, place]


def weighted_correlation(x: Array, y: Array, weight: Array) -> Array:
    """Pearson correlation of x and y, [B]; NaN where one of them is constant.

    Args:
      x, y: [N] each, or ranks [B, N] each. weight: how often each row occurs, [B, N].
    """
    if x.ndim == 1:
        x, y = x - x.mean(), y - y.mean()
        total, sx, sy, sxx, syy, sxy = (weight @ np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)).T
    else:
        total, wx, wy = weight.sum(axis=1), weight * x, weight * y
        sx, sy = wx.sum(axis=1), wy.sum(axis=1)
        sxx, syy, sxy = (np.einsum("bn,bn->b", one, two) for one, two in ((wx, x), (wy, y), (wx, y)))
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, both = sxx - sx * sx / total, syy - sy * sy / total, sxy - sx * sy / total
        flat = (vx <= FLAT * sxx) | (vy <= FLAT * syy)
        return np.where(flat, np.nan, np.clip(both / np.sqrt(np.where(flat, 1.0, vx * vy)), -1.0, 1.0))


def pairs_of(signal: Array, value: Array, mask: NDArray[np.bool_]) -> Pairs:
    """Concordance of a signal with the values within each case, over pairs of available arms that differ in value.

    A pair without a signal (NaN) is left out.

    Args:
      signal, value, mask: [Q, A].
    """
    left, right = np.triu_indices(signal.shape[1], 1)
    both = mask[:, left] & mask[:, right] & ~np.isnan(signal[:, left]) & ~np.isnan(signal[:, right])
    apart = np.sign(value[:, left] - value[:, right])
    use = both & (apart != 0)
    same = np.sign(np.where(use, signal[:, left] - signal[:, right], 0.0)) * apart
    return Pairs((np.where(use, 0.5 + 0.5 * same, 0.0)).sum(axis=1), use.sum(axis=1).astype(np.float64))


def greedy(signal: Array, mask: NDArray[np.bool_]) -> Array:
    """Who has the highest signal among the available arms, as probabilities [Q, A]; ties share a case equally.

    An arm without a signal (NaN) is chosen only where none has one.
    """
    known = mask & ~np.isnan(signal)
    pool = np.where(known.any(axis=1, keepdims=True), known, mask)
    seen = np.where(pool, np.where(np.isnan(signal), 0.0, signal), -np.inf)
    best = pool & (seen == seen.max(axis=1, keepdims=True))
    return best / best.sum(axis=1, keepdims=True)


def mean_by_arm(signal: Array, mask: NDArray[np.bool_]) -> Array:
    """Mean of a signal over the cases in which the arm is available and has one, [A]; NaN where there is none."""
    known = mask & ~np.isnan(signal)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, signal, 0.0).sum(axis=0) / known.sum(axis=0)


def unseen(n_cases: int, level: float) -> float:
    """Number of n cases that may differ at most although none did, by the exact binomial."""
    return n_cases * float(clopper_pearson(0, n_cases, level).high)


def ends(draws: Array, level: float) -> tuple[Array, Array]:
    """Percentile interval over the first axis, resamples without a number left out; NaN where all are."""
    low, high = np.full(draws.shape[1:], np.nan), np.full(draws.shape[1:], np.nan)
    some = ~np.isnan(draws).all(axis=0)
    tail = (1.0 - level) / 2.0
    if some.any():
        low[some], high[some] = np.nanquantile(draws[:, some], [tail, 1.0 - tail], axis=0)
    return low, high
