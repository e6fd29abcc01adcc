"""Tests and counts behind a certificate: p-values, one error spent on many tests, the data that a target needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, log1p
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.metrics import binomial_p, check_delta, upper_bound
from raglab.values import Floats, Ints


def cases_needed(alpha: float, delta: float = 0.1, errors: int = 0) -> int:
    """Answered cases that certify a risk of alpha at confidence 1 − delta when so many of them are wrong.

    Raises:
      ValueError: alpha outside (0, 1), delta outside (0, 0.5), or errors below 0.

    Example:
      >>> cases_needed(0.01), cases_needed(0.01, errors=1), cases_needed(0.10)
      (230, 388, 22)
    """
    check_levels(alpha, delta)
    if errors < 0:
        msg = f"errors must not be negative, got {errors}."
        raise ValueError(msg)
    low = ceil(log(delta) / log1p(-alpha))  # without an error
    if errors == 0:
        return low
    low = max(low, errors + 1)  # as many errors as cases certify nothing
    high = 2 * (low + errors)
    while float(binomial_p(errors, high, alpha)) > delta:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if float(binomial_p(errors, middle, alpha)) > delta else (low, middle)
    return low


def hoeffding_bentkus(total: Floats, n: Ints, alpha: float) -> Floats:
    """p-value that a mean loss exceeds alpha, for losses in [0, 1] that sum to `total` over n cases; 1 where n is 0.

    Source: Bates, Angelopoulos, Lei, Malik, Jordan 2021, the smaller of Hoeffding's and Bentkus' bounds.
    """
    size: Any = np.asarray(n, dtype=np.float64)
    mean = np.minimum(np.divide(total, np.maximum(size, 1.0)), alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(mean > 0.0, mean * np.log(mean / alpha), 0.0)
    entropy = first + (1.0 - mean) * (np.log1p(-mean) - log1p(-alpha))
    hoeffding = np.exp(-size * entropy)
    whole = np.ceil(np.round(total, 9))  # a sum of grades may end in 3.0000000000000098
    bentkus = np.e * np.asarray(binomial_p(np.minimum(whole, size), size, alpha))
    return np.where(size > 0, np.minimum(1.0, np.minimum(hoeffding, bentkus)), 1.0)


def fixed_sequence(p: NDArray[np.float64], delta: float) -> NDArray[np.bool_]:
    """Hypotheses that are rejected when tested in their order, each at delta, until the first that is not, [N].

    The order must not depend on the labels that are tested.

    Example:
      >>> fixed_sequence(np.array([0.01, 0.09, 0.5, 0.01]), 0.1)
      array([ True,  True, False, False])
    """
    rejected: NDArray[np.bool_] = np.logical_and.accumulate(p <= delta)
    return rejected


def holm(p: NDArray[np.float64], delta: float) -> NDArray[np.bool_]:
    """Hypotheses that are rejected at family-wise error delta, in any order, [N].

    Source: Holm 1979.

    Example:
      >>> holm(np.array([0.5, 0.01, 0.04]), 0.1)
      array([False,  True,  True])
    """
    order = np.argsort(p, kind="stable")
    out = np.zeros(len(p), dtype=bool)
    out[order] = np.logical_and.accumulate(p[order] <= delta / np.arange(len(p), 0, -1))
    return out


def joint_p(k: Ints, n: Ints, alphas: ArrayLike) -> NDArray[np.float64]:
    """p-value that any of several targets is broken, [...]: the largest of theirs, no correction is needed.

    Args:
      k, n: counts, [..., T]. alphas: targets, [T].

    Source: intersection–union test, Berger 1982.
    """
    return np.asarray(binomial_p(k, n, np.asarray(alphas, dtype=np.float64))).max(axis=-1)


def pareto_order(p: NDArray[np.float64], gain: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidates that no other beats in both p-value and gain, from the safest to the one that gains most, [M].

    Args:
      p: p-value of each candidate on a pilot split, [N]. gain: what is wanted of it there, higher is better, [N].

    Source: Pareto testing, Laufer-Goldshtein, Fisch, Barzilay, Jaakkola 2023.

    Example:
      >>> pareto_order(np.array([0.2, 0.1, 0.3, 0.3]), np.array([5.0, 1.0, 4.0, 9.0]))
      array([1, 0, 3])
    """
    order = np.lexsort((-gain, p))
    best = np.maximum.accumulate(np.concatenate([[-np.inf], gain[order][:-1]]))
    return order[gain[order] > best] if len(order) else order


class DataNeed(NamedTuple):
    """What a target needs, and what there is.

    needed: answered cases with 0, 1 and 2 errors that certify it. answered, wrong: what there is. best: lowest target
    that these certify; NaN without an answer.
    """

    alpha: float
    delta: float
    needed: tuple[int, int, int]
    answered: int
    wrong: int
    best: float


def data_need(alpha: float, answered: int, wrong: int, delta: float = 0.1) -> DataNeed:
    """The data-need line of a target.

    Example:
      >>> data_need(0.01, 100, 0).needed, round(data_need(0.01, 100, 0).best, 4)
      ((230, 388, 531), 0.0228)
    """
    needed = (cases_needed(alpha, delta), cases_needed(alpha, delta, 1), cases_needed(alpha, delta, 2))
    return DataNeed(alpha, delta, needed, answered, wrong, float(upper_bound(wrong, answered, delta)))


def gate_counts(
    scores: Sequence[NDArray[np.float64]], thresholds: Sequence[NDArray[np.float64]], groups: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Cases of each group that pass every gate, at every combination of their thresholds, [L1, L2, …, G].

    Args:
      scores: one array a gate, [Q]; a gate passes where its score is at least its threshold, NaN never.
      thresholds: ascending, one array a gate. groups: number of each case's group, from 0, [Q].

    Raises:
      ValueError: thresholds that do not ascend, or a group below 0.
    """
    if any(bool((np.diff(levels) <= 0.0).any()) for levels in thresholds):
        msg = "thresholds must ascend, each one once; np.unique sorts them."
        raise ValueError(msg)
    if int(groups.min(initial=0)) < 0:
        msg = f"groups must be numbers from 0, got {groups.min()}; np.unique(..., return_inverse=True) numbers them."
        raise ValueError(msg)
    n_groups = int(groups.max(initial=-1)) + 1
    sizes = [len(levels) + 1 for levels in thresholds]
    cell = np.zeros(len(groups), dtype=np.int64)
    for score, levels in zip(scores, thresholds, strict=True):
        cell *= len(levels) + 1
        cell += np.where(np.isnan(score), 0, np.searchsorted(levels, score, side="right"))
    counts = np.bincount(cell * n_groups + groups, minlength=int(np.prod(sizes)) * n_groups)
    counts = counts.reshape(*sizes, n_groups)
    for axis in range(len(sizes)):  # passes t gates' levels and more
        counts = np.flip(np.cumsum(np.flip(counts, axis), axis=axis), axis)
    passing: NDArray[np.int64] = counts[(slice(1, None),) * len(sizes)]
    return passing


def check_levels(alpha: float, delta: float) -> None:
    """Refuse an alpha or a delta that means nothing."""
    if not 0.0 < alpha < 1.0:
        msg = f"alpha must be in (0, 1), got {alpha}; it is the highest share of errors allowed, 0.1 for 10 %."
        raise ValueError(msg)
    check_delta(delta)
