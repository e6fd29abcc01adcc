"""Thresholds that keep a promise: finite-sample certificates for one gate, several gates, several targets.

A certificate says: with probability at least 1 − delta over the draw of the labelled cases, every promise of the
chosen threshold (or policy) holds on the traffic the cases were drawn from. It holds for any scores, however poor:
where they cannot carry the promise, nothing is certified. What makes it true is the order of the tests: it never
depends on the labels that are tested (rule S6.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._testing import (
    DataNeed,
    cases_needed,
    check_levels,
    data_need,
    fixed_sequence,
    gate_counts,
    hoeffding_bentkus,
    holm,
    joint_p,
    pareto_order,
)
from raglab.metrics import binomial_p, risk_coverage, upper_bound

__all__ = [
    "Certificate",
    "DataNeed",
    "Promise",
    "cases_needed",
    "certify",
    "data_need",
    "fixed_sequence",
    "gate_counts",
    "hoeffding_bentkus",
    "holm",
    "joint_p",
    "pareto_order",
]

Method = Literal["fixed_sequence", "holm"]
START = 2  # how many times the cases needed without an error must be answered at the first level tried


class Promise(NamedTuple):
    """A target, and what was seen of it at the chosen candidate: loss k of n, exact upper bound at 1 − delta."""

    name: str
    alpha: float
    k: float
    n: int
    bound: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """Outcome of a certification; `chosen` None where nothing could be certified, and `reason` says why.

    chosen: threshold, or policy_id. certified: all that passed, in the order tested; any of them keeps the promise.
    coverage: share answered at the chosen one, 0 without one. promises: one a target, at the chosen one or, without
    one, at the first that was tested (of Holm's, the likeliest). binding: the target that stopped the
    sequence or, where nothing did, whose bound is nearest to its alpha. delta: error spent, whatever the number
    of targets and candidates. tested, candidates: how many were tested of how many there were.
    cases, pilot: how many were certified on, and how many the order was learned on. cases_hash: of the former.
    looks: certifications made on these cases so far, this one included. spent: sum of their deltas.
    """

    chosen: float | str | None
    certified: tuple[float | str, ...]
    coverage: float
    promises: tuple[Promise, ...]
    binding: str | None
    delta: float
    method: str
    tested: int
    candidates: int
    cases: int
    reason: str
    pilot: int = 0
    cases_hash: str | None = None
    looks: int = 1
    spent: float | None = None

    @property
    def threshold(self) -> float | None:
        """Threshold that was chosen, where one gate was certified."""
        return self.chosen if isinstance(self.chosen, float) else None

    @property
    def bound(self) -> float:
        """Largest upper bound of the promises relative to its alpha; NaN where nothing is certified.

        The promise is alpha: the bound describes these cases, at a threshold that was chosen on them.
        """
        worst = max(self.promises, key=lambda one: one.bound / one.alpha, default=None)
        return worst.bound if worst is not None and self.chosen is not None else float("nan")

    @property
    def rows(self) -> dict[str, Any]:
        """Certificate as a policy file holds it."""
        return {
            "policy_id": self.chosen,
            "promises": [one._asdict() | {"bound": one.bound if one.n else None} for one in self.promises],
            "binding": self.binding,
            "coverage": self.coverage,
            "confidence": 1.0 - self.delta,
            "delta": self.delta,
            "method": self.method,
            "certified": len(self.certified),
            "tested": self.tested,
            "candidates": self.candidates,
            "cases": self.cases,
            "pilot": self.pilot,
            "cases_hash": self.cases_hash,
            "looks": self.looks,
            "spent": self.delta if self.spent is None else self.spent,
            "reason": self.reason,
        }


def certify(
    scores: ArrayLike,
    correct: ArrayLike,
    *,
    alpha: float,
    delta: float = 0.1,
    method: Method = "fixed_sequence",
    start: float | None = None,
) -> Certificate:
    """Lowest threshold of one gate whose risk is at most alpha with confidence 1 − delta.

    The gate answers where the score is at least the threshold; its risk is the wrong share of the answered. The
    candidates are the observed levels of the score. The fixed sequence goes down from a start that no label chose,
    and ends at the first level that fails; Holm tests every level at once and pays for it.

    Args:
      scores: higher is surer, [Q]; NaN is never answered.
      correct: right if it is answered, [Q]: bool, or a grade in [0, 1] whose complement is the loss.
      start: score to begin at, learned elsewhere, such as on a pilot split; where not given, the highest level with
        at least twice the cases needed without an error, or the lowest one where there are fewer. Holm has none.

    Raises:
      ValueError: alpha outside (0, 1), delta outside (0, 0.5), lengths that differ, no cases, NaN in `correct`, a
        start that is NaN or given to Holm.

    Source: Clopper and Pearson 1934; Angelopoulos, Bates, Candès, Jordan, Lei 2021 (Learn then test).

    Example:
      >>> found = certify([0.9] * 50 + [0.1] * 50, [True] * 50 + [False] * 50, alpha=0.1)
      >>> found.threshold, found.coverage
      (0.9, 0.5)
    """
    check_levels(alpha, delta)
    if start is not None and (method == "holm" or np.isnan(start)):
        came = "one for holm, which tests every level" if method == "holm" else "NaN"
        msg = f"start must be a score at which a fixed sequence begins, got {came}; leave it out."
        raise ValueError(msg)
    score, loss = _cases(scores, correct)
    graded = bool(((loss > 0.0) & (loss < 1.0)).any())
    levels, n, total = (_graded_levels if graded else _levels)(score, loss)
    p_value: Any = hoeffding_bentkus if graded else binomial_p
    p = np.asarray(p_value(total, n, alpha))
    needed = cases_needed(alpha, delta)
    least = int(np.searchsorted(n, needed))  # levels above it can not pass, whatever the labels
    if method == "holm":
        first = least
    elif start is not None:
        first = max(least, int(np.searchsorted(-levels, -start, side="right")) - 1)
    else:
        first = min(int(np.searchsorted(n, START * needed)), max(least, len(n) - 1))
    rejected = _tests(method)(p[first:], delta)
    passed = first + np.flatnonzero(rejected)
    tested = len(rejected) if method == "holm" else min(len(rejected), len(passed) + 1)
    seen: dict[str, Any] = {"delta": delta, "method": method, "tested": tested}
    seen |= {"candidates": len(levels), "cases": len(score)}
    if not len(passed):
        if first == len(n):
            needs = f"a risk of {alpha:g} needs {needed} answered cases without an error at delta {delta:g}"
            reason = f"{needs}, got {int(n.max(initial=0))}"
            return Certificate(None, (), 0.0, (), "risk", reason=reason, **seen)
        lowest = first + int(np.argmin(upper_bound(np.ceil(total[first:]), n[first:], delta)))
        tried = {at: _promise(alpha, total[at], n[at], delta, graded=graded) for at in {first, lowest}}
        reason = _why_not(tried[first], float(levels[first]), tried[lowest].bound, float(levels[lowest]))
        return Certificate(None, (), 0.0, (tried[first],), "risk", reason=reason, **seen)
    last = int(passed.max())
    kept = _promise(alpha, total[last], n[last], delta, graded=graded)
    return Certificate(
        float(levels[last]), tuple(levels[passed].tolist()), kept.n / len(score), (kept,), "risk",
        reason=f"risk at most {alpha:g} with confidence {1.0 - delta:g}", **seen,
    )  # fmt: skip


def _promise(alpha: float, total: Any, n: Any, delta: float, *, graded: bool) -> Promise:  # noqa: ANN401 - numbers
    """What was seen at a level: the bound is exact for a share, for grades the highest mean that is not rejected."""
    bound = _graded_bound(float(total), int(n), delta) if graded else float(upper_bound(total, n, delta))
    return Promise("risk", alpha, float(total), int(n), bound)


def _graded_bound(total: float, n: int, delta: float) -> float:
    from scipy.optimize import brentq

    def over(alpha: float) -> float:
        return float(hoeffding_bentkus(total, n, alpha)) - delta

    low, high = max(total / n, 1e-12), 1.0 - 1e-12
    return float(brentq(over, low, high)) if low < high and over(high) < 0.0 else 1.0


def _levels(
    score: NDArray[np.float64], loss: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Levels of the score from the highest, how many are answered at each, and how many of them are wrong."""
    curve = risk_coverage(loss == 0.0, score)
    return curve.at, curve.n, curve.k.astype(np.float64)


def _graded_levels(
    score: NDArray[np.float64], loss: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """`_levels` where the loss has grades, summed in their own order: the order of the rows is nothing to them."""
    known = np.flatnonzero(~np.isnan(score))
    known = known[np.lexsort((loss[known], -score[known]))]
    levels, place = np.unique(-score[known], return_inverse=True)
    total = np.bincount(place, weights=loss[known], minlength=len(levels)).cumsum()
    return 0.0 - levels, np.bincount(place, minlength=len(levels)).cumsum(), total


def _tests(method: str) -> Any:  # noqa: ANN401 - a function
    if method not in {"fixed_sequence", "holm"}:
        msg = f"method must be fixed_sequence or holm, got {method!r}."
        raise ValueError(msg)
    return fixed_sequence if method == "fixed_sequence" else holm


def _cases(scores: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores and losses of the cases."""
    score, right = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if score.ndim != 1 or score.shape != right.shape:
        msg = f"scores and correct must be one row a case each, got shapes {score.shape} and {right.shape}."
        raise ValueError(msg)
    if not len(score):
        msg = "a certificate needs at least one case, got none; check the split."
        raise ValueError(msg)
    if not bool(((right >= 0.0) & (right <= 1.0)).all()):
        msg = "correct must be 0, 1 or a grade between them, without NaN; leave out cases that have no label."
        raise ValueError(msg)
    return score, 1.0 - right


def _why_not(first: Promise, level: float, lowest: float, at: float) -> str:
    """Why nothing passes: the first level tested, and the lowest bound of all."""
    return (
        f"the first level tried, {level:g}, has {first.k:g} wrong of {first.n}, upper bound {first.bound:.3g} above "
        f"alpha {first.alpha:g}; the bound is lowest, {lowest:.3g}, at {at:g}"
    )
