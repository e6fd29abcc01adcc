"""Robustness (algebra): how far a certificate carries.

Wrong labels, other traffic, another embedder.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.metrics import check_delta, clopper_pearson, upper_bound
from raglab.values import Status


class LabelNoiseBound(NamedTuple):
    """Bound of an error rate if some of the right cases are labelled wrong, [J] each.

    Attributes:
      labels: number of wrong labels.
      k: errors with these.
      bound: upper bound with these.
    """

    labels: NDArray[np.int64]
    k: NDArray[np.int64]
    bound: NDArray[np.float64]


def label_noise_bound(k: int, n: int, delta: float = 0.1, most: int = 10) -> LabelNoiseBound:
    """Exact upper bound of an error rate if j of the n labels hide an error, j = 0 … most.

    It holds at confidence 1 − delta.

    Every wrong label is taken to hide one error: the worst that j wrong labels can do. There are no
    more rows than right cases.

    Args:
      k: errors seen.
      n: cases answered, at least 1.
      delta: error of the bound, in (0, 0.5).
      most: last j, at least 0.

    Raises:
      ValueError: n below 1, k outside 0 … n, most below 0, or delta outside (0, 0.5).

    Source: Clopper and Pearson 1934.

    Example:
      >>> label_noise_bound(0, 50, most=2).bound.round(3)
      array([0.045, 0.076, 0.103])
    """
    _check_k_of_n(k, n)
    if most < 0:
        msg = (
            f"most must be at least 0, got {most}; it is the largest number of wrong labels shown."
        )
        raise ValueError(msg)
    labels = np.arange(min(most, n - k) + 1, dtype=np.int64)
    return LabelNoiseBound(labels, k + labels, np.asarray(upper_bound(k + labels, n, delta)))


def labels_to_break(k: int, n: int, alpha: float, delta: float = 0.1) -> int:
    """Fewest wrong labels among the right cases that push the bound above alpha.

    0 where it is above already.

    With one fewer the promise "at most alpha, at confidence 1 − delta" still holds.

    Args:
      k: errors seen.
      n: cases answered, at least 1.
      alpha: highest rate allowed, in (0, 1).
      delta: error of the promise, in (0, 0.5).

    Raises:
      ValueError: n below 1, k outside 0 … n, alpha outside (0, 1), or delta outside (0, 0.5).

    Example:
      >>> labels_to_break(0, 50, alpha=0.1)
      2
    """
    _check_k_of_n(k, n)
    if not 0.0 < alpha < 1.0:
        msg = (
            f"alpha must be in (0, 1), got {alpha}; it is the highest share of errors allowed, "
            "0.1 for 10 %."
        )
        raise ValueError(msg)
    return bisect_left(range(n - k + 1), 1, key=lambda j: int(upper_bound(k + j, n, delta) > alpha))


def _check_k_of_n(k: int, n: int) -> None:
    if n < 1:
        msg = f"n must be at least 1, got {n}; a bound takes answered cases."
        raise ValueError(msg)
    if not 0 <= k <= n:
        msg = f"k must be between 0 and n, got {k} of {n}; check that both count the same cases."
        raise ValueError(msg)


class AnsweredCases(NamedTuple):
    """Answered cases by label.

    Attributes:
      right: right answers to cases labelled ok.
      wrong: wrong answers to cases labelled ok.
      refuse: answers to cases labelled refuse.
      ambiguous: answers to cases labelled ambiguous.
    """

    right: int
    wrong: int
    refuse: int
    ambiguous: int


def answers(
    status: NDArray[np.integer[Any]], label: NDArray[np.integer[Any]], right: NDArray[np.bool_]
) -> tuple[AnsweredCases, NDArray[np.int64]]:
    """Answered cases by label, and the cases of each label, [3]: what `traffic_rates` reads.

    Args:
      status: codes of `Status`, [Q].
      label: codes of `Status`, [Q].
      right: whether a case passes its contract, [Q].

    Example:
      >>> answers(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([True, False, True]))
      (AnsweredCases(right=1, wrong=0, refuse=1, ambiguous=0), array([1, 2, 0]))
    """
    is_answered = status == Status.ok
    of = {outcome: int((is_answered & (label == outcome)).sum()) for outcome in Status}
    good = int((is_answered & (label == Status.ok) & right).sum())
    cases = AnsweredCases(good, of[Status.ok] - good, of[Status.refuse], of[Status.ambiguous])
    return cases, np.bincount(label, minlength=len(Status))


class TrafficRates(NamedTuple):
    """Rates under other traffic; each bound holds by itself at confidence 1 − delta.

    Attributes:
      hallucination_rate: NaN where nothing is answered.
      bound: upper bound of the hallucination rate.
      coverage: share of the traffic that is answered.
      coverage_low: its lower bound.
      coverage_high: its upper bound.
    """

    hallucination_rate: float
    bound: float
    coverage: float
    coverage_low: float
    coverage_high: float


def traffic_rates(
    counts: AnsweredCases | Sequence[int],
    labels: Sequence[int] | NDArray[np.int64],
    shares: Mapping[str, float] | Sequence[float] | NDArray[np.float64],
    delta: float = 0.1,
) -> TrafficRates:
    """Hallucination rate and coverage at the label frequencies of a user's traffic.

    They are not those of the labelled set.

    It holds if only the shares of the labels differ: within a label the traffic must be like the
    labelled cases. The false-refusal rate is a share of the cases labelled ok and **does not
    move**; nor does the share of missed ambiguity. With shares s, and among the cases of a label
    the shares right, wrong, answered,

        coverage = s_ok · a + B,  B = s_refuse · b + s_ambiguous · c
        hallucination_rate = 1 − s_ok · a · (1 − e) / coverage

    which rises in e, b and c and falls in a. The bound puts an exact bound in the place of each
    share that matters (of a label with traffic; a only where B does) at delta over their number, at
    most four, so that all hold together. With all traffic answerable it is the plain exact bound of
    e.

    Args:
      counts: see `AnsweredCases`.
      labels: cases labelled ok, refuse, ambiguous, [3].
      shares: of the labels, by name or in that order, summing to 1; a name left out is 0.
      delta: error of each bound, in (0, 0.5).

    Raises:
      ValueError: shares that do not sum to 1, a label with traffic and no case, or counts above
        their labels.

    Example:
      >>> half = traffic_rates(
      ...     AnsweredCases(80, 10, 5, 0), [100, 50, 0], {"ok": 0.5, "refuse": 0.5}
      ... )
      >>> rare = traffic_rates(
      ...     AnsweredCases(80, 10, 5, 0), [100, 50, 0], {"ok": 0.9, "refuse": 0.1}
      ... )
      >>> round(half.hallucination_rate, 3), round(rare.hallucination_rate, 3)
      (0.2, 0.122)
    """
    share, size = _label_shares(shares), np.asarray(labels, dtype=np.int64)
    cases = AnsweredCases(*(int(count) for count in counts))
    _possible(cases, size, share, delta)
    answered = (cases.right + cases.wrong, cases.refuse, cases.ambiguous)
    strata = [(s, k, n) for s, k, n in zip(share, answered, size.tolist(), strict=True) if s > 0.0]
    of_ok, rest = (strata[:1], strata[1:]) if share[Status.ok] > 0.0 else ([], strata)

    right = sum(s * cases.right / n for s, _, n in of_ok)
    coverage = sum(s * k / n for s, k, n in strata)
    each = delta / ((1 + bool(rest)) * len(of_ok) + len(rest))
    least_ok = sum(s * _lower_rate(k, n, each) for s, k, n in of_ok)
    most_others = sum(s * _upper_rate(k, n, each) for s, k, n in rest)
    most_wrong = _upper_rate(cases.wrong, answered[Status.ok], each)
    most = (least_ok * most_wrong + most_others) / (least_ok + most_others) if rest else most_wrong

    each = delta / len(strata)
    return TrafficRates(
        hallucination_rate=1.0 - right / coverage if coverage > 0.0 else float("nan"),
        bound=most,
        coverage=coverage,
        coverage_low=sum(s * _lower_rate(k, n, each) for s, k, n in strata),
        coverage_high=min(1.0, sum(s * _upper_rate(k, n, each) for s, k, n in strata)),
    )


def _upper_rate(k: int, n: int, delta: float) -> float:
    return float(upper_bound(k, n, delta)) if n else 1.0


def _lower_rate(k: int, n: int, delta: float) -> float:
    return float(clopper_pearson(k, n, 1.0 - 2.0 * delta).low) if n else 0.0


def _label_shares(
    shares: Mapping[str, float] | Sequence[float] | NDArray[np.float64],
) -> tuple[float, float, float]:
    names = [status.name for status in Status]
    if isinstance(shares, Mapping):
        unknown = sorted(set(shares) - set(names))
        if unknown:
            msg = (
                f"shares must be of {', '.join(names)}, got {unknown[0]!r}; name labels, not "
                "kinds of question."
            )
            raise ValueError(msg)
        fractions = [float(shares.get(name, 0.0)) for name in names]
    else:
        fractions = [float(share) for share in shares]
    if (
        len(fractions) != len(names)
        or not all(0.0 <= share <= 1.0 for share in fractions)
        or abs(sum(fractions) - 1.0) > 1e-9
    ):
        msg = (
            f"shares must be three from 0 to 1 that sum to 1, got {fractions}; divide by their sum."
        )
        raise ValueError(msg)
    return fractions[0], fractions[1], fractions[2]


def _possible(
    cases: AnsweredCases, size: NDArray[np.int64], share: Sequence[float], delta: float
) -> None:
    """Stop at counts that cannot be."""
    check_delta(delta)
    answered = (cases.right + cases.wrong, cases.refuse, cases.ambiguous)
    for label, count, n, weight in zip(Status, answered, size, share, strict=True):
        if min(cases) < 0 or count > n:
            pair = f"{tuple(cases)} of {size.tolist()}"
            msg = (
                f"answered cases must be between 0 and those of their label, got {pair}; count "
                "both on the same cases."
            )
            raise ValueError(msg)
        if weight > 0.0 and n == 0:
            rule = (
                f"a label with traffic must have cases, got none of {label.name} at a share of "
                f"{weight:g}"
            )
            msg = f"{rule}; label some, or set its share to 0."
            raise ValueError(msg)


def quantile_map(
    threshold: float, source: NDArray[np.float64], target: NDArray[np.float64]
) -> float:
    """Threshold on another embedder's score that answers the same share of the same queries.

    It needs no labels.

    "Answer where score >= threshold" answers m of the source's queries; returned is the level
    observed in the target that answers nearest to m, the higher of two that are equally near, or
    the next float above all of them where answering none is nearest. So ties are counted as they
    fall, and a higher threshold never maps to a lower one. A distance, where lower is surer, is
    mapped with its sign turned. The same share is not the same risk: a certificate does not carry
    over, test it again on labelled cases.

    Args:
      threshold: for the source, not NaN.
      source: scores of the queries by the first embedder, [Q]; NaN never answers.
      target: scores of the same queries by the second embedder, [Q]; NaN never answers.

    Raises:
      ValueError: threshold NaN, lengths that differ, or no score in the target.

    Example:
      >>> quantile_map(0.7, np.array([0.5, 0.6, 0.7, 0.8]), np.array([20.0, 30.0, 40.0, 50.0]))
      40.0
    """
    if np.isnan(threshold):
        msg = "threshold must be a number, got NaN; a gate without a threshold has nothing to map."
        raise ValueError(msg)
    if np.shape(source) != np.shape(target) or np.ndim(source) != 1:
        shapes = f"{np.shape(source)} and {np.shape(target)}"
        msg = (
            f"source and target must be scores of the same queries, [Q] each, got {shapes}; score "
            "the same queries."
        )
        raise ValueError(msg)
    levels, sizes = np.unique(target[~np.isnan(target)], return_counts=True)
    if not len(levels):
        msg = (
            "target must hold at least one score, got none; score the queries with the target's "
            "embedder."
        )
        raise ValueError(msg)
    wanted = int((np.asarray(source) >= threshold).sum())
    at_or_above = np.append(np.cumsum(sizes[::-1])[::-1], 0)
    candidates = np.append(levels, np.nextafter(levels[-1], np.inf))
    away = np.abs(at_or_above - wanted)
    return float(candidates[len(away) - 1 - int(np.argmin(away[::-1]))])
