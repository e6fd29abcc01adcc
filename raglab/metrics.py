"""Rates of decisions against labels, each with its counts and an interval; ranking measures; paired tests.

A rate is never bare: k, n, and the exact binomial interval travel with it. 0 of 0 is NaN and meets no
target (rule S6.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.values import Floats, Ints, Status

RATES = ("false_refusal_rate", "hallucination_rate", "missed_ambiguity_rate", "over_ask_rate", "coverage", "pass_rate")
OBJECTIVES = RATES[:4]
TARGETS: Mapping[str, float] = {"false_refusal_rate": 0.10, "hallucination_rate": 0.01}
COUNTS = ("refused_ok", "wrong", "missed_ambiguity", "over_ask", "answered", "passed")


class Interval(NamedTuple):
    """Ends of a confidence interval, each with the shape of its rate."""

    low: Floats
    high: Floats


def contributions(status: NDArray[np.int8]) -> NDArray[np.int64]:
    """What one decision adds to each of `COUNTS`, by outcome, label and whether the expected sources were found.

    Args:
      status: of each outcome, [O].

    Returns: int [O, 3, 2, 6].

    Source: rules S6.2, S6.3.

    Example:
      >>> table = contributions(np.array([Status.ok]))
      >>> dict(zip(COUNTS, table[0, Status.refuse, 1].tolist()))["wrong"]
      1
    """
    said = status[:, None, None]
    label = np.arange(3)[None, :, None]
    right = np.array([False, True])[None, None, :]
    ok, refuse, ambiguous = Status.ok, Status.refuse, Status.ambiguous
    rows = (
        (said == refuse) & (label == ok),
        (said == ok) & ((label != ok) | ~right),
        (said != ambiguous) & (label == ambiguous),
        (said == ambiguous) & (label != ambiguous),
        said == ok,
        (said == label) & (right | (label == refuse)),
    )
    shape = np.broadcast_shapes(*(np.shape(row) for row in rows))
    return np.stack([np.broadcast_to(row, shape) for row in rows], axis=-1).astype(np.int64)


def denominators(counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of how many each of `RATES` is a share, [..., 6].

    Args:
      counts: [..., 6]. labels: cases labelled ok, refuse, ambiguous, [3].
    """
    total = labels.sum()
    n = np.empty_like(counts)
    n[..., 0] = labels[Status.ok]
    n[..., 1] = counts[..., 4]
    n[..., 2] = labels[Status.ambiguous]
    n[..., 3] = total - labels[Status.ambiguous]
    n[..., 4] = total
    n[..., 5] = total
    return n


def rates(counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """`RATES` of tallied decisions, [..., 6]; NaN where there is nothing to be a share of.

    Source: rule S6.2.

    Example:
      >>> rates(np.array([1, 0, 0, 0, 0, 0]), np.array([4, 0, 0]))[:2]
      array([0.25,  nan])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return counts / denominators(counts, labels)


def clopper_pearson(k: Ints, n: Ints, level: float = 0.95) -> Interval:
    """Exact binomial confidence interval of a rate of k in n; NaN where n is 0.

    Args:
      k, n: counts, [...]. level: in (0, 1).

    Raises:
      ValueError: level outside (0, 1), or k outside 0 … n.

    Source: Clopper and Pearson 1934.

    Example:
      >>> low, high = clopper_pearson(0, 10)
      >>> float(low), round(float(high), 4)
      (0.0, 0.3085)
    """
    from scipy.special import betaincinv

    if not 0.0 < level < 1.0:
        msg = f"level must be in (0, 1), got {level}; 0.95 is usual."
        raise ValueError(msg)
    hit, size = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if np.any((hit < 0) | (hit > size)):
        msg = "k must be between 0 and n; check that both count the same cases."
        raise ValueError(msg)
    tail = (1.0 - level) / 2.0
    low = np.where(hit > 0, betaincinv(np.maximum(hit, 1), size - hit + 1, tail), 0.0)
    high = np.where(hit < size, betaincinv(hit + 1, np.maximum(size - hit, 1), 1.0 - tail), 1.0)
    return Interval(np.where(size > 0, low, np.nan), np.where(size > 0, high, np.nan))


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact p-value that two paired decisions are right equally often.

    Args:
      only_first, only_second: cases that only one of them has right.

    Source: McNemar 1947, exact binomial form.

    Example:
      >>> mcnemar(0, 5)
      0.0625
    """
    from scipy.special import bdtr

    n = only_first + only_second
    return 1.0 if n == 0 else float(min(1.0, 2.0 * bdtr(min(only_first, only_second), n, 0.5)))


def hit_rate(relevant: NDArray[np.bool_], k: int) -> float:
    """hit@k: share of queries with a relevant hit among the first k.

    Args:
      relevant: hits in ranked order, [Q, K].
    """
    return float(relevant[:, :k].any(axis=1).mean()) if len(relevant) else float("nan")


def ndcg(relevant: NDArray[np.bool_], n_relevant: NDArray[np.int64], k: int = 10) -> float:
    """nDCG@k with binary gains, mean over queries that have a relevant document.

    Args:
      relevant: hits in ranked order, [Q, K]. n_relevant: relevant documents there are, [Q].

    Source: Järvelin and Kekäläinen 2002.

    Example:
      >>> ndcg(np.array([[False, True]]), np.array([1]))
      0.6309297535714575
    """
    if (relevant.sum(axis=1) > n_relevant).any():
        msg = "relevant must not hold more hits than n_relevant documents; count a document once, at its first hit."
        raise ValueError(msg)
    width = min(k, relevant.shape[1])
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    gain = (relevant[:, :width] * discount[:width]).sum(axis=1)
    ideal = np.cumsum(discount)[np.clip(n_relevant, 1, k) - 1]
    judged = n_relevant > 0
    return float((gain / ideal)[judged].mean()) if judged.any() else float("nan")


class Paired(NamedTuple):
    """Paired comparison of two sets of decisions on the same cases.

    only_first, only_second: cases that only one has right; p: exact two-sided p-value.
    """

    only_first: int
    only_second: int
    p: float


def paired(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Paired:
    """McNemar's exact test of two vectors of right decisions, [Q] each.

    Example:
      >>> paired(np.array([True, False]), np.array([True, True]))
      Paired(only_first=0, only_second=1, p=1.0)
    """
    a, b = int((first & ~second).sum()), int((second & ~first).sum())
    return Paired(a, b, mcnemar(a, b))


class Reliability(NamedTuple):
    """Bins of a score: mean score, observed rate, count and interval of each bin that is not empty."""

    score: NDArray[np.float64]
    rate: NDArray[np.float64]
    k: NDArray[np.int64]
    n: NDArray[np.int64]
    interval: Interval


def reliability_bins(score: NDArray[np.float64], right: NDArray[np.bool_], edges: Sequence[float]) -> Reliability:
    """How often a score's cases are right, by bins `[edge, next edge)`, the last one closed.

    Args:
      score: [Q], no NaN. right: [Q]. edges: ascending.
    """
    if len(score) and not (edges[0] <= score.min() and score.max() <= edges[-1]):
        msg = f"scores must be in [{edges[0]}, {edges[-1]}], got {score.min()} to {score.max()}; widen the edges."
        raise ValueError(msg)
    bins = np.clip(np.searchsorted(np.asarray(edges)[1:-1], score, side="right"), 0, len(edges) - 2)
    n = np.bincount(bins, minlength=len(edges) - 1)
    k = np.bincount(bins, weights=right, minlength=len(edges) - 1).astype(np.int64)
    used = n > 0
    mean = np.bincount(bins, weights=score, minlength=len(edges) - 1)[used] / n[used]
    return Reliability(mean, k[used] / n[used], k[used], n[used], clopper_pearson(k[used], n[used]))


class RiskCoverage(NamedTuple):
    """Risk at every reachable coverage: answer where the score is at least `threshold`."""

    threshold: NDArray[np.float64]
    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    answered: NDArray[np.int64]
    wrong: NDArray[np.int64]


def risk_coverage_steps(score: NDArray[np.float64], right: NDArray[np.bool_]) -> RiskCoverage:
    """Share answered and share of the answered that is wrong, one step for each distinct score; NaN never answers.

    Args:
      score: [Q]. right: [Q].

    Source: El-Yaniv and Wiener 2010.

    Example:
      >>> curve = risk_coverage_steps(np.array([3.0, 1.0, 1.0]), np.array([True, True, False]))
      >>> curve.coverage, curve.risk
      (array([0.33333333, 1.        ]), array([0.        , 0.33333333]))
    """
    known = ~np.isnan(score)
    levels, place = np.unique(-score[known], return_inverse=True)
    answered = np.bincount(place, minlength=len(levels)).cumsum()
    wrong = np.bincount(place, weights=~right[known], minlength=len(levels)).cumsum().astype(np.int64)
    return RiskCoverage(-levels, answered / max(1, len(score)), wrong / np.maximum(answered, 1), answered, wrong)


def rate_columns(counts: NDArray[np.int64], labels: NDArray[np.int64], level: float = 0.95) -> dict[str, Any]:
    """Columns of a table of rates: value, `_k`, `_n`, `_low` and `_high` of each of `RATES`, [P] each."""
    value, n = rates(counts, labels), denominators(counts, labels)
    columns: dict[str, Any] = {}
    for place, name in enumerate(RATES):
        low, high = clopper_pearson(counts[..., place], n[..., place], level)
        columns |= {
            name: value[..., place],
            f"{name}_k": counts[..., place],
            f"{name}_n": n[..., place],
            f"{name}_low": low,
            f"{name}_high": high,
        }
    return columns
