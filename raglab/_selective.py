"""Selective prediction: answer where a confidence is high enough, and count what is wrong among the answered.

Everything is counted on the levels of the confidence, from the most confident down, and summed in their order: the
order of the rows changes no bit. Cases of equal confidence are answered together or not at all. A case whose
confidence is missing (NaN) ranks below every other; `risk_coverage` and the thresholds never answer it.
"""

from __future__ import annotations

from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.values import Curve


class Levels(NamedTuple):
    """Cases by level of their confidence, highest first, [L + 1]; the last level is NaN, and may have none."""

    at: NDArray[np.float64]
    size: NDArray[np.int64]
    wrong: NDArray[np.int64]


def judged(correct: ArrayLike, confidence: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each case is wrong, and how confident it is, [Q] each.

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.
    """
    right, score = np.asarray(correct), np.asarray(confidence, dtype=np.float64)
    if right.ndim != 1 or right.shape != score.shape:
        msg = f"correct and confidence must be [Q] each, got shapes {right.shape} and {score.shape}; give one a case."
        raise ValueError(msg)
    if not len(right):
        msg = "correct must have at least one case, got none; a share of nothing is not defined."
        raise ValueError(msg)
    other = right[(right != 0) & (right != 1)]
    if len(other):
        msg = (
            f"correct must be boolean or 0 and 1, got {other[0]}; the order is (correct, confidence), and a grade "
            "is rounded to right or wrong first."
        )
        raise ValueError(msg)
    return right == 0, score + 0.0  # -0.0 and 0.0 are one level, written 0.0


def levels(correct: ArrayLike, confidence: ArrayLike) -> Levels:
    """Cases and wrong cases of each level of the confidence; see `judged` for what is refused."""
    wrong, score = judged(correct, confidence)
    known = ~np.isnan(score)
    at, size = np.unique(score[known], return_counts=True)
    up_to = np.searchsorted(np.sort(score[known & wrong]), at, side="right")
    lost = np.diff(up_to, prepend=0)
    return Levels(
        np.append(at[::-1], nan),
        np.append(size[::-1], (~known).sum()),
        np.append(lost[::-1], (~known & wrong).sum()),
    )


def risk_coverage(correct: ArrayLike, confidence: ArrayLike) -> Curve:
    """Risk at every reachable coverage: answer where the confidence is at least a threshold.

    One step for each distinct confidence, from the most confident down: `x` the share of all cases that is answered,
    `y` the share of the answered that is wrong, `n` answered, `k` wrong, `at` the threshold. A NaN never answers.

    Args:
      correct: whether each case is right if answered, boolean or 0 and 1, [Q]. confidence: higher is surer, [Q].

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.

    Source: El-Yaniv and Wiener 2010.

    Example:
      >>> curve = risk_coverage([True, True, False], [3.0, 1.0, 1.0])
      >>> curve.x, curve.y
      (array([0.33333333, 1.        ]), array([0.        , 0.33333333]))
    """
    at, size, wrong = levels(correct, confidence)
    n, k = size[:-1].cumsum(), wrong[:-1].cumsum()
    return Curve(n / size.sum(), k / n, n, k, at[:-1])


def mean_risk(size: NDArray[np.int64], wrong: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean over k = 1 … n of the expected error rate among the k first, [...], if ties are ordered by chance.

    Within a level of m cases with w wrong, reached after a cases with e wrong, the expected errors at a + j are
    e + j · w / m; their shares sum to (e − a · w / m) · (1 / (a + 1) + … + 1 / (a + m)) + w.

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
    """AURC, in [0, 1]: mean over k = 1 … n of the error rate among the k most confident, expected over ties.

    It is what the average over all orders of equal confidences gives, so it does not depend on the order of the rows.

    Args:
      correct: boolean or 0 and 1, [Q]. confidence: [Q]; NaN ranks below all others, as one tie.

    Raises:
      ValueError: no cases, shapes that differ, or a `correct` that is neither boolean nor 0 or 1.

    Source: Geifman, Uziel and El-Yaniv 2019.

    Example:
      >>> aurc([True, False], [0.9, 0.2]), aurc([True, False], [0.5, 0.5])
      (0.25, 0.5)
    """
    _, size, wrong = levels(correct, confidence)
    return float(mean_risk(size, wrong))


def eaurc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """E-AURC, at least 0: AURC minus that of the perfect order, all right cases before all wrong ones.

    The perfect AURC is its finite sum over n cases, not the limit risk + (1 − risk) · log(1 − risk).

    Source: Geifman, Uziel and El-Yaniv 2019; arguments and errors as for `aurc`.

    Example:
      >>> eaurc([True, False], [0.9, 0.2]), eaurc([True, False], [0.2, 0.9])
      (0.0, 0.5)
    """
    _, size, wrong = levels(correct, confidence)
    n, lost = size.sum(), wrong.sum()
    best = mean_risk(np.array([n - lost, lost]), np.array([0, lost]))
    return max(0.0, float(mean_risk(size, wrong) - best))


def augrc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """AUGRC, in [0, 1/2]: area under the share of all cases that is wrong and answered, over coverage.

    The area of straight lines between the steps; the mean risk of an undetected failure. With accuracy a it is
    (1 − AUROC) · a · (1 − a) + (1 − a)² / 2.

    Source: Traub et al. 2024; arguments and errors as for `aurc`.

    Example:
      >>> augrc([True, False], [0.9, 0.2]), augrc([True, False], [0.2, 0.9])
      (0.125, 0.375)
    """
    _, size, wrong = levels(correct, confidence)
    return int((size * (2 * wrong.cumsum() - wrong)).sum()) / (2 * int(size.sum()) ** 2)


def auroc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """AUROC: chance that a right case is more confident than a wrong one, ties half; NaN if there is only one kind.

    Source: Mann and Whitney 1947; arguments and errors as for `aurc`.

    Example:
      >>> auroc([True, True, False], [0.9, 0.4, 0.4])
      0.75
    """
    _, size, wrong = levels(correct, confidence)
    right, lost = size - wrong, int(wrong.sum())
    pairs = int(right.sum()) * lost
    return int((right * (2 * (lost - wrong.cumsum()) + wrong)).sum()) / (2 * pairs) if pairs else nan


def risk_at_coverage(correct: ArrayLike, confidence: ArrayLike, coverage: float) -> float:
    """risk@coverage: risk at the smallest reachable coverage that is at least this; NaN if none is.

    Args:
      coverage: share of all cases, in (0, 1].

    Raises:
      ValueError: coverage outside (0, 1], or as for `risk_coverage`.

    Example:
      >>> risk_at_coverage([True, True, False, False], [0.9, 0.7, 0.7, 0.1], 0.5)
      0.3333333333333333
    """
    if not 0.0 < coverage <= 1.0:
        msg = f"coverage must be in (0, 1], got {coverage}; it is a share of all cases, 0.8 for 80 %."
        raise ValueError(msg)
    curve = risk_coverage(correct, confidence)
    step = int(np.searchsorted(curve.x, coverage))
    return float(curve.y[step]) if step < len(curve.x) else nan


def coverage_at_risk(correct: ArrayLike, confidence: ArrayLike, risk: float) -> float:
    """coverage@risk: largest reachable coverage whose risk is at most this; 0 if none is.

    It is what these cases show, the best of all thresholds; what holds for new cases is for `raglab.certify` to say.

    Args:
      risk: wrong share of the answered, in [0, 1].

    Raises:
      ValueError: risk outside [0, 1], or as for `risk_coverage`.

    Example:
      >>> coverage_at_risk([True, True, False, False], [0.9, 0.7, 0.7, 0.1], 0.4)
      0.75
    """
    if not 0.0 <= risk <= 1.0:
        msg = f"risk must be in [0, 1], got {risk}; it is a share of the answered, 0.1 for 10 %."
        raise ValueError(msg)
    curve = risk_coverage(correct, confidence)
    return float(curve.x[curve.y <= risk].max(initial=0.0))
