"""Scores as probabilities: how far they can be believed, and maps that make them so.

Measures take outcomes y, 0 or 1, and probabilities p, both [Q], and give the same number, to the last bit, for the
same cases in any order. A calibrator is never judged by the cases it was fitted to alone: see `calibrated`.
"""

from __future__ import annotations

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab._binned import Norm, Strategy, ece, ece_interval, reliability
from raglab._calibrators import METHODS, Calibrator, Method, apply, fit, fit_levels, venn_abers_interval
from raglab._levels import FloatArray, IntArray, Levels, blocks, chances, check_probability, levels, pairs
from raglab._smooth import SmoothECE, smooth_ece, smooth_ece_with_bandwidth

__all__ = [
    "METHODS",
    "Brier",
    "Calibrated",
    "Calibrator",
    "Judgement",
    "Method",
    "Norm",
    "SmoothECE",
    "Spiegelhalter",
    "Strategy",
    "apply",
    "brier_decomposition",
    "calibrated",
    "check_probability",
    "cross_fitted",
    "ece",
    "ece_interval",
    "fit",
    "folds_of",
    "judged",
    "reliability",
    "smooth_ece",
    "smooth_ece_with_bandwidth",
    "spiegelhalter",
    "venn_abers_interval",
]


class Brier(NamedTuple):
    """Brier score and its parts: score = mcb − dsc + unc, to the last bit in that order.

    mcb: miscalibration, what recalibration would take off. dsc: discrimination, what the ranking is worth.
    unc: uncertainty, the score of the constant base rate.
    """

    score: float
    mcb: float
    dsc: float
    unc: float


class Spiegelhalter(NamedTuple):
    """Test of calibration: standard normal z, and its two-sided p-value."""

    z: float
    p_value: float


class Judgement(NamedTuple):
    """How far n probabilities can be believed: ECE, smooth ECE, Brier score with its parts."""

    n: int
    ece: float
    smooth_ece: float
    brier: Brier


class Calibrated(NamedTuple):
    """A calibrator with its judgement on the cases it was fitted to and on cases it had not seen, side by side.

    calibrator: fitted to all cases. p: cross-fitted probabilities, [Q]. in_sample: of the calibrator on its own
    cases, which flatters. cross_fitted: of p, the one to report.
    """

    calibrator: Calibrator
    p: FloatArray
    in_sample: Judgement
    cross_fitted: Judgement


def brier_decomposition(y: ArrayLike, p: ArrayLike) -> Brier:
    """Brier score, the mean of (p − y)², in parts, with isotonic regression as the recalibration (CORP).

    mcb is 0 where p is its own isotonic recalibration, dsc is 0 where p ranks no better than a constant.

    Raises:
      ValueError: p outside [0, 1] (a score that only ranks), NaN, no case, y beside 0 and 1.

    Source: Dimitriadis, Gneiting and Jordan 2021.

    Example:
      >>> brier_decomposition([0, 1, 1, 1], [0.5, 0.5, 1.0, 1.0])
      Brier(score=0.125, mcb=0.0, dsc=0.0625, unc=0.1875)
    """
    seen = levels(*chances(y, p))
    n, k = int(seen.n.sum()), int(seen.k.sum())
    start = blocks(seen.n, seen.k)
    size, true = np.add.reduceat(seen.n, start), np.add.reduceat(seen.k, start)
    again = np.repeat(true / size, np.diff(start, append=seen.at.size))
    worse = (seen.at - again) * (seen.n * (seen.at + again) - 2 * seen.k)
    mcb = max(float(worse.sum()) / n, 0.0)
    unc = k * (n - k) / n**2
    left = float((true * (size - true) / size).sum()) / n  # score of the recalibrated
    dsc = max(unc - left, 0.0)
    return Brier(mcb - dsc + unc, mcb, dsc, unc)


def spiegelhalter(y: ArrayLike, p: ArrayLike) -> Spiegelhalter:
    """Whether the Brier score is as large as calibrated probabilities would make it: z and two-sided p-value.

    z > 0: outcomes scatter more than p says (too sure); z < 0: less (too unsure). Scores of 0, 1/2 and 1 add no
    variance: where there are only such, z is 0, or infinite if a sure score was wrong.

    Raises:
      ValueError: as in `brier_decomposition`.

    Source: Spiegelhalter 1986.

    Example:
      >>> z, p_value = spiegelhalter([1, 0, 1, 0], [0.8, 0.2, 0.8, 0.2])
      >>> round(z, 3), round(p_value, 3)
      (-1.0, 0.317)
    """
    seen = levels(*chances(y, p))
    lean = 1.0 - 2.0 * seen.at
    excess = float(((seen.k - seen.n * seen.at) * lean).sum())
    variance = float((seen.n * lean**2 * seen.at * (1.0 - seen.at)).sum())
    untested = float("inf") if excess > 0.0 else 0.0
    z = excess / sqrt(variance) if variance > 0.0 else untested
    return Spiegelhalter(z, erfc(abs(z) / sqrt(2.0)))


def folds_of(
    y: ArrayLike, score: ArrayLike, *, folds: int = 5, groups: ArrayLike | None = None, rng: np.random.Generator
) -> IntArray:
    """Fold of each case, from 0, [Q]; sizes differ by one at most; it does not depend on the order of the cases.

    Folds are drawn for the cases in the order of score, then outcome; cases alike in both are interchangeable. They
    are not stratified, on purpose: folds that share out the outcomes, at each score or over all, repeat in the part
    held out the noise of the part fitted, and cross-fitted errors come out too small: isotonic, 400 cases, 11 levels
    that say nothing, ECE 0.003 and 0.030 where fresh cases, and these folds, show 0.045.

    Args:
      y: outcomes, 0 or 1, [Q]. score: of any scale, [Q]. groups: a label a case, [Q]; cases that must not be parted,
        such as paraphrases or questions on one document. Groups are drawn whole, in the order of their labels.

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
            msg = f"groups must be [Q], a label a case, got shape {part.shape} for {value.size} cases."
            raise ValueError(msg)
    parts = int(part.max()) + 1
    if not 2 <= folds <= parts:
        msg = f"folds must be between 2 and the {parts} {'cases' if groups is None else 'groups'}, got {folds}."
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
    """Probability of each case from a calibrator fitted to the other folds, [Q]; folds as in `folds_of`.

    Raises:
      ValueError: as in `fit` and `folds_of`; a fold whose other folds hold one outcome only.

    Example:
      >>> y, score = [0, 1] * 10, [10, 40] * 10
      >>> cross_fitted(y, score, method="isotonic", rng=np.random.default_rng(0))[:4].tolist()
      [0.0, 1.0, 0.0, 1.0]
    """
    outcome, value = pairs(y, score)
    seen = levels(outcome, value)
    fold = folds_of(outcome, value, folds=folds, groups=groups, rng=rng)
    place = np.searchsorted(seen.at, value)
    p = np.empty(value.size)
    for held in range(folds):
        rows = fold == held
        n = seen.n - np.bincount(place[rows], minlength=seen.at.size)
        k = seen.k - np.bincount(place[rows & outcome], minlength=seen.at.size)
        left = n > 0
        p[rows] = apply(fit_levels(Levels(seen.at[left], n[left], k[left]), method), value[rows])
    return p


def judged(y: ArrayLike, p: ArrayLike) -> Judgement:
    """ECE, smooth ECE and Brier score of probabilities, at the defaults of each."""
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
    """A calibrator fitted to all cases, judged on them and, beside it, by cross-fitting.

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
