"""Cases of a binary outcome as counts at their score levels, checked at the door.

Rows are sorted once; whatever comes after sums over levels, or over sorted rows, so that no number depends on
the order of the rows, not even in its last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Levels(NamedTuple):
    """Distinct scores in ascending order: k of n cases came true at the score `at`; all [L]."""

    at: FloatArray
    n: IntArray
    k: IntArray


def pairs(y: ArrayLike, score: ArrayLike, name: str = "score") -> tuple[NDArray[np.bool_], FloatArray]:
    """Outcomes, bool [Q], and finite scores, float [Q], one of each a case.

    Raises:
      ValueError: another shape, different lengths, no case, NaN, an infinite score, or an outcome beside 0 and 1.
    """
    outcome, value = np.asarray(y), np.asarray(score, dtype=np.float64)
    if outcome.ndim != 1 or outcome.shape != value.shape:
        msg = f"y and {name} must be [Q], one of each a case, got shapes {outcome.shape} and {value.shape}."
        raise ValueError(msg)
    if not outcome.size:
        msg = f"y and {name} must hold at least one case, got none; check the filter before."
        raise ValueError(msg)
    true = outcome if outcome.dtype == np.bool_ else outcome == 1
    known = true is outcome or bool((true | (outcome == 0)).all())
    if not (known and np.isfinite(value.min()) and np.isfinite(value.max())):
        _refuse(outcome, value, name)
    return true, value


def _refuse(outcome: NDArray[Any], value: FloatArray, name: str) -> None:
    """Raise for the worst of what is wrong with outcomes and scores."""
    missing = [int((part != part).sum()) for part in (outcome, value)]  # noqa: PLR0124 - NaN, of any dtype
    if any(missing):
        seen = f"{missing[0]} in y and {missing[1]} in {name}, of {value.size} cases"
        msg = f"y and {name} must not be NaN, got {seen}; label or drop them first."
        raise ValueError(msg)
    if np.isinf(value).any():
        msg = f"{name} must be finite, got {np.isinf(value).sum()} infinite of {value.size}."
        raise ValueError(msg)
    odd = outcome[(outcome != 0) & (outcome != 1)]
    msg = f"y must be 0 or 1 (or bool), got {odd[0]!s} in {odd.size} cases; compare with the outcome meant first."
    raise ValueError(msg)


def chances(y: ArrayLike, p: ArrayLike) -> tuple[NDArray[np.bool_], FloatArray]:
    """`pairs` whose scores are probabilities."""
    outcome, value = pairs(y, p, "p")
    return outcome, check_probability(value)


def check_probability(p: ArrayLike) -> FloatArray:
    """Probabilities as float64, [...].

    Raises:
      ValueError: NaN, or a value outside [0, 1]; such a score only ranks until it is calibrated.

    Example:
      >>> check_probability([40.0, 72.0])
      Traceback (most recent call last):
      ValueError: p must be in [0, 1], got 72 at most; a cosine, an L2 distance or a confidence in points is \
rank only: calibrate first (fit, apply).
    """
    value = np.asarray(p, dtype=np.float64)
    low, high = (value.min(), value.max()) if value.size else (0.0, 1.0)
    if low >= 0.0 and high <= 1.0:
        return value
    if np.isnan(low):
        msg = f"p must not be NaN, got {np.isnan(value).sum()} of {value.size} cases; label or drop them first."
        raise ValueError(msg)
    worst = float(high if high > 1.0 else low)
    text = next(text for text in (f"{worst:.4g}", repr(worst)) if not 0.0 <= float(text) <= 1.0)
    seen = f"{text} at {'most' if high > 1.0 else 'least'}"
    rank = "a cosine, an L2 distance or a confidence in points is rank only: calibrate first (fit, apply)."
    msg = f"p must be in [0, 1], got {seen}; {rank}"
    raise ValueError(msg)


def ordered(y: NDArray[np.bool_], score: FloatArray) -> tuple[IntArray, FloatArray]:
    """Outcomes, 0 or 1, and scores of the same rows sorted by score, then outcome, [Q] each."""
    plain = score + 0.0  # one zero, not two
    if plain.min() >= 0.0 and plain.max() < 2.0:  # bits of floats in [0, 2) keep their order and leave room for one
        key = plain.view(np.int64) << 1
        key |= y
        key.sort()
        return key & 1, (key >> 1).view(np.float64)
    order = np.lexsort((y, plain))
    return y[order].astype(np.int64), plain[order]


def levels(y: NDArray[np.bool_], score: FloatArray) -> Levels:
    """Counts at each distinct score.

    Example:
      >>> levels(np.array([True, False, True]), np.array([0.7, 0.7, 0.4])).n.tolist()
      [1, 2]
    """
    outcome, value = ordered(y, score)
    start = np.flatnonzero(np.concatenate(([True], value[1:] != value[:-1])))
    return Levels(value[start], np.diff(start, append=value.size), np.add.reduceat(outcome, start))


def blocks(n: IntArray, k: IntArray) -> IntArray:
    """First level of each block of the isotonic regression of k / n on the level, weighted by n; [B].

    Rates of the blocks rise strictly: they are taken from the counts again until none is out of order.

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
