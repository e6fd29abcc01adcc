"""Certificates (algebra): thresholds with a finite-sample guarantee, tests, cases needed (S6.4).

A certificate says: with probability at least 1 − delta over the draw of the labelled cases, every
promise of the chosen threshold (or policy) holds on the traffic the cases were drawn from. It holds
for any scores, however poor: where they cannot carry the promise, nothing is certified. What makes
it true is the order of the tests: it never depends on the labels that are tested (rule S6.4).

This module is the arithmetic. A policy is certified by `raglab.certify_policy`, the best of several
by `raglab.certify_best`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log, log1p
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import check_present, float_array, within_range
from raglab.metrics import binomial_p, check_delta, upper_bound
from raglab.values import BoolArray, FloatArray, Floats, IntArray, Ints, refuse
from raglab.words.canonical import decimals
from raglab.words.html_display import Cell, short
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

_MAX_EXACT_CASES = 2.0**53  # that a float counts one by one; a smaller risk asks for no fewer


def cases_needed(alpha: float, delta: float = 0.1, errors: int = 0) -> int:
    """Answered cases that certify risk alpha at confidence 1 − delta when `errors` are wrong.

    Args:
      alpha: highest risk, in (0, 1).
      delta: error of the certificate, in (0, 0.5).
      errors: wrong cases among them, at least 0.

    Raises:
      ValueError: alpha outside (0, 1), delta outside (0, 0.5), or errors below 0.

    Example:
      >>> cases_needed(0.01), cases_needed(0.01, errors=1), cases_needed(0.10)
      (230, 388, 22)
    """
    check_levels(alpha, delta)
    if errors < 0:
        refuse("errors must not be negative", errors, "they are counted")
    fewest_cases = ceil(min(log(delta) / log1p(-alpha), _MAX_EXACT_CASES))  # without an error
    if errors == 0:
        return fewest_cases
    fewest_cases = max(fewest_cases, errors + 1)  # as many errors as cases certify nothing
    enough_cases = 2 * (fewest_cases + errors)
    while float(binomial_p(errors, enough_cases, alpha)) > delta:
        fewest_cases = enough_cases
        enough_cases = 2 * enough_cases
    # the p-value falls as cases are added
    return bisect_left(
        range(enough_cases),
        -delta,
        fewest_cases,
        key=lambda n_cases: -float(binomial_p(errors, n_cases, alpha)),
    )


def hoeffding_bentkus(total: Floats, n: Ints, alpha: float) -> Floats:
    """p-value of mean loss above alpha, for n losses in [0, 1] that sum to `total`; 1 if n is 0.

    Args:
      total: sum of the losses, each in [0, 1].
      n: number of cases.
      alpha: highest mean loss.

    Source: Bates, Angelopoulos, Lei, Malik, Jordan 2021, the smaller of Hoeffding's and Bentkus'
      bounds.
    """
    total = float_array(total, "total")
    n_losses: Any = float_array(n, "n")
    mean_loss = np.minimum(np.divide(total, np.maximum(n_losses, 1.0)), alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy_term = np.where(mean_loss > 0.0, mean_loss * np.log(mean_loss / alpha), 0.0)
    entropy = entropy_term + (1.0 - mean_loss) * (np.log1p(-mean_loss) - log1p(-alpha))
    hoeffding_p = np.exp(-n_losses * entropy)
    rounded_total = np.ceil(np.round(total, 9))  # a sum of grades may end in 3.0000000000000098
    bentkus_p = np.e * np.asarray(binomial_p(np.minimum(rounded_total, n_losses), n_losses, alpha))
    return np.where(n_losses > 0, np.minimum(1.0, np.minimum(hoeffding_p, bentkus_p)), 1.0)


def fixed_sequence(p: FloatArray, delta: float) -> BoolArray:
    """Hypotheses rejected in order, each tested at delta, until the first that is not, [N].

    The order must not depend on the labels that are tested.

    Args:
      p: p-values in the order of testing, [N].
      delta: level of each test.

    Example:
      >>> fixed_sequence(np.array([0.01, 0.09, 0.5, 0.01]), 0.1)
      array([ True,  True, False, False])
    """
    return np.asarray(np.logical_and.accumulate(float_array(p, "p") <= delta))


def holm(p: FloatArray, delta: float) -> BoolArray:
    """Hypotheses that are rejected at family-wise error delta, in any order, [N].

    Args:
      p: p-values, [N].
      delta: family-wise error.

    Source: Holm 1979.

    Example:
      >>> holm(np.array([0.5, 0.01, 0.04]), 0.1)
      array([False,  True,  True])
    """
    return np.asarray(holm_adjusted(p) <= delta)


def holm_adjusted(p: FloatArray) -> FloatArray:
    """Holm's adjusted p-values, [N]: the smallest delta at which each would be rejected.

    NaN was not tested and stays.

    Args:
      p: p-values, [N]; NaN where not tested.

    Source: Holm 1979.

    Example:
      >>> holm_adjusted(np.array([0.04, 0.01, np.nan]))
      array([0.04, 0.02,  nan])
    """
    p = float_array(p, "p")
    adjusted_p = np.full(len(p), np.nan)
    tested_indices = np.flatnonzero(~np.isnan(p))
    sorted_indices = tested_indices[np.argsort(p[tested_indices], kind="stable")]
    multipliers = np.arange(len(sorted_indices), 0, -1)
    adjusted_p[sorted_indices] = np.minimum(
        1.0, np.maximum.accumulate(p[sorted_indices] * multipliers)
    )
    return adjusted_p


def pareto_order(p: FloatArray, gain: FloatArray) -> IntArray:
    """Candidates no other beats in both p-value and gain, from the safest to most gain, [M].

    Args:
      p: p-value of each candidate on a pilot split, [N].
      gain: gain of each candidate there, higher is better, [N].

    Source: Pareto testing, Laufer-Goldshtein, Fisch, Barzilay, Jaakkola 2023.

    Example:
      >>> pareto_order(np.array([0.2, 0.1, 0.3, 0.3]), np.array([5.0, 1.0, 4.0, 9.0]))
      array([1, 0, 3])
    """
    safety_order = np.lexsort((-gain, p))
    best_earlier_gain = np.maximum.accumulate(np.concatenate([[-np.inf], gain[safety_order][:-1]]))
    return (
        safety_order[gain[safety_order] > best_earlier_gain] if len(safety_order) else safety_order
    )


class DataNeed(NamedTuple):
    """Cases that a target needs, and cases there are.

    Attributes:
      alpha: the target.
      delta: error of the certificate.
      needed: answered cases with 0, 1 and 2 errors that certify it.
      answered: answered cases there are.
      wrong: wrong ones among them.
      best: lowest target that these certify; NaN without an answer.
    """

    alpha: float
    delta: float
    needed: tuple[int, int, int]
    answered: int
    wrong: int
    best: float


def data_need(alpha: float, answered: int, wrong: int, delta: float = 0.1) -> DataNeed:
    """The data-need line of a target.

    Args:
      alpha: highest risk, in (0, 1).
      answered: answered cases there are.
      wrong: wrong ones among them.
      delta: error of the certificate, in (0, 0.5).

    Example:
      >>> data_need(0.01, 100, 0).needed, round(data_need(0.01, 100, 0).best, 4)
      ((230, 388, 531), 0.0228)
    """
    without_error, with_one_error, with_two_errors = (
        cases_needed(alpha, delta, errors) for errors in range(3)
    )
    lowest_target = float(upper_bound(wrong, answered, delta))
    return DataNeed(
        alpha,
        delta,
        (without_error, with_one_error, with_two_errors),
        answered,
        wrong,
        lowest_target,
    )


POSTERIOR_POINTS = 64  # equally likely values of a rate that its posterior is read at


def certification_chance(
    k: ArrayLike, n: ArrayLike, size: ArrayLike, alpha: float, delta: float = 0.1
) -> FloatArray:
    """Probability that `size` new answered cases certify risk alpha, after k of n wrong, [...].

    The rate is estimated from the cases seen (a uniform prior); 0 where nothing is answered. It
    flatters the best of several candidates.

    Args:
      k: errors among answered cases elsewhere, such as on a pilot split, [...].
      n: answered cases there, [...].
      size: number of new answered cases, [...]; rounded to a whole number.
      alpha: highest risk, in (0, 1).
      delta: error of the certificate, in (0, 0.5).

    Raises:
      ValueError: alpha outside (0, 1) or delta outside (0, 0.5).

    Example: 5 wrong of 100 make 10 % on 100 further cases a toss, on 1,000 likely.
      >>> certification_chance(
      ...     np.array([5, 5]), np.array([100, 100]), np.array([100, 1000]), 0.1
      ... ).round(2)
      array([0.51, 0.88])
    """
    from scipy.special import bdtrik, betainc, betaincinv

    check_levels(alpha, delta)
    count_arrays = {
        argument_name: float_array(count_values, argument_name)
        for argument_name, count_values in (("k", k), ("n", n), ("size", size))
    }
    for argument_name, count_values in count_arrays.items():
        check_present(count_values, argument_name, "count the cases, 0 where there is none")
    wrong_counts, answered_counts, new_sizes = count_arrays.values()
    n_new = np.round(new_sizes).astype(np.int64)
    # The most errors that certify: the exact inverse lies between two counts, and rounding may miss
    # by one.
    max_errors = np.floor(np.nan_to_num(bdtrik(delta, n_new, alpha), nan=-1.0)) + 1.0
    for _ in range(2):
        max_errors = max_errors - (
            np.asarray(binomial_p(np.maximum(max_errors, 0.0).astype(np.int64), n_new, alpha))
            > delta
        )
    posterior_levels = (np.arange(POSTERIOR_POINTS) + 0.5) / POSTERIOR_POINTS
    posterior_rates = betaincinv(
        wrong_counts[..., None] + 1.0,
        np.maximum(answered_counts - wrong_counts, 0.0)[..., None] + 1.0,
        posterior_levels,
    )
    allowed_errors = np.maximum(max_errors, 0.0)[..., None]
    # P(Bin(new, rate) ≤ most), one where as many errors as cases would do, which no alpha below 1
    # allows.
    certified_share = betainc(
        np.maximum(n_new[..., None] - allowed_errors, 1.0),
        allowed_errors + 1.0,
        1.0 - posterior_rates,
    ).mean(axis=-1)
    return np.where(
        (max_errors >= 0.0) & (answered_counts > 0.0) & (n_new > 0.0), certified_share, 0.0
    )


def check_levels(alpha: float, delta: float) -> None:
    """Refuse an alpha or a delta outside its range.

    Args:
      alpha: highest risk, in (0, 1).
      delta: error of the certificate, in (0, 0.5).
    """
    if not 0.0 < alpha < 1.0:
        refuse("alpha must be in (0, 1)", alpha, "0.1 allows 10 % of errors")
    check_delta(delta)


Method = Literal["fixed_sequence", "holm"]
# of policies: one alone, in their order, or all at once
TestMethod = Literal["single", "fixed_sequence", "holm"]
# share of the unambiguous asked back above which a policy buys its targets by asking (S6.9)
MAX_OVER_ASK = 0.10
# how many times the cases needed without an error must be answered at the first level tried
START_FACTOR = 2


class Promise(NamedTuple):
    """A target, and its loss at the chosen candidate.

    K of n, with the exact upper bound at 1 − delta.

    Attributes:
      name: of the rate.
      alpha: highest value of the rate.
      k: sum of the losses; of a 0/1 loss a count.
      n: cases of the rate's denominator.
      bound: upper bound of the rate at confidence 1 − delta.
    """

    name: str
    alpha: float
    k: float
    n: int
    bound: float


@dataclass(frozen=True, repr=False)
class Certificate(Result):
    """Outcome of a certification.

    Where nothing could be certified, `chosen` is None and `reason` explains it.

    Attributes:
      chosen: threshold, or policy_id.
      certified: all candidates that passed, in the order tested; any of them keeps the promise.
      coverage: share answered at the chosen one, 0 without one.
      promises: one a target, at the chosen candidate or, without one, at the first that was tested
        (of Holm's, the likeliest).
      binding: the target that stopped the sequence or, where nothing did, whose bound is nearest to
        its alpha.
      delta: error spent, independent of the number of targets and candidates.
      method: of the test.
      tested: number of candidates that were tested.
      candidates: number of candidates there were.
      cases: number of cases that were certified on; of a trace, of distinct questions.
      reason: the promise in words, or the reason why nothing could be certified.
      pilot: number of cases that the order was learned on.
      cases_hash: fingerprint of the cases certified on, None without one.
      looks: certifications made on these cases so far, this one included; 0 where none was tested.
      spent: sum of their deltas.
      over_ask: share of the unambiguous that the chosen one asks back, 0 without one; a gate by
        itself never asks.
      free: policies without a threshold that keep every target too: always-answer, always-refuse,
        always-ask.
      basis: on which the cases are judged, `sources` or `text` (rule S6.3); None where the caller
        judged them.
      pilot_hash: fingerprint of the pilot cases, None without one.
      looks_recorded: whether a file records them; else `looks` counts those that are known.
      undecided: answers of the chosen one that count as wrong, since nobody can tell whether they
        are right; None where no answer is judged.
      missing_answers: those that are not recorded and count as wrong; None likewise.
      hypotheses: number of candidates in the order of the tests, any of which might have been
        chosen on these cases; of a certificate after `raglab.rescale_thresholds` on the same cases,
        that of the certificate before.
      mix: traffic that the promises are for, label -> share or its two ends, with `delta` of an
        estimate; None of that of the cases (rule S6.15).
      mix_corners: its outermost mixes, shares of ok, refuse and ambiguous.
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
    over_ask: float = 0.0
    free: tuple[str, ...] = ()
    basis: str | None = None
    pilot_hash: str | None = None
    looks_recorded: bool = False
    hypotheses: int = 0
    undecided: int | None = None
    missing_answers: int | None = None
    mix: Mapping[str, Any] | None = None
    mix_corners: tuple[tuple[float, ...], ...] = ()

    def _summary(self) -> Summary:
        is_certified = self.chosen is not None
        chosen_text = short(str(self.chosen)) if is_certified else "none"
        chosen_cell = Cell(chosen_text, mark="good" if is_certified else "bad")
        card_title = "Certificate" if is_certified else "No certificate"
        card_facts = [("chosen", chosen_cell), *certificate_facts(self)]
        return Summary(card_facts, {"promises": self.table}, (self.reason,), card_title)

    @property
    def table(self) -> pd.DataFrame:
        """Promises, a row each."""
        import pandas as pd

        return pd.DataFrame(self.promises, columns=list(Promise._fields))

    @property
    def rests_on_asking(self) -> bool:
        """Whether what is certified is bought.

        It asks back much, or asking or refusing always would earn it too.

        Source: rule S6.9.
        """
        trivial_policies = {"always-ask", "always-refuse"} & set(self.free)
        return self.chosen is not None and (self.over_ask > MAX_OVER_ASK or bool(trivial_policies))

    @property
    def threshold(self) -> float | None:
        """Threshold that was chosen, where one gate was certified."""
        return self.chosen if isinstance(self.chosen, float) else None

    @property
    def bound(self) -> float:
        """Largest upper bound of the promises relative to its alpha.

        NaN where nothing is certified.

        The promise is alpha: the bound describes these cases, at a threshold that was chosen on
        them.
        """
        if self.chosen is None or not self.promises:
            return float("nan")
        return max(self.promises, key=lambda promise: promise.bound / promise.alpha).bound

    @property
    def rows(self) -> dict[str, Any]:
        """Certificate as a policy file holds it."""
        certificate_row: dict[str, Any] = {
            "policy_id": self.chosen,
            "promises": [
                promise._asdict() | {"bound": promise.bound if promise.n else None}
                for promise in self.promises
            ],
            "binding": self.binding,
            "coverage": self.coverage,
            "over_ask_rate": self.over_ask,
            "rests_on_asking": self.rests_on_asking,
            "also_kept_by": list(self.free),
            "confidence": 1.0 - self.delta,
            "delta": self.delta,
            "method": self.method,
            "certified": len(self.certified),
            "tested": self.tested,
            "candidates": self.candidates,
            "hypotheses": self.hypotheses,
            "cases": self.cases,
            "pilot": self.pilot,
            "cases_hash": self.cases_hash,
            "pilot_hash": self.pilot_hash,
            "looks": self.looks,
            "looks_recorded": self.looks_recorded,
            "spent": self.delta if self.spent is None else self.spent,
            "reason": self.reason,
        }
        if self.basis is not None:
            certificate_row["basis"] = self.basis
        if self.mix is not None:
            certificate_row |= {
                "mix": dict(self.mix),
                "mix_corners": [*map(list, self.mix_corners)],
            }
        if self.undecided is not None:
            certificate_row |= {
                "undecided": self.undecided,
                "missing_answers": self.missing_answers,
            }
        return certificate_row


def certificate_facts(certificate: Certificate) -> list[tuple[str, ...]]:
    """Facts of a certificate as rows of a name and values: tests, cases, looks, what it does.

    Args:
      certificate: of an array or of policies.
    """
    target_texts = (f"{promise.name} at most {promise.alpha:g}" for promise in certificate.promises)
    looks_basis = "on record" if certificate.looks_recorded else "known of"
    counted_wrong = f"{certificate.undecided} undecided, {certificate.missing_answers} missing"
    fact_texts = {
        "targets": ", ".join(target_texts),
        "binding": certificate.binding,
        "confidence": f"{1.0 - certificate.delta:g}",
        "method": certificate.method,
        "tested": f"{certificate.tested:,} of {certificate.candidates:,}",
        "passed": f"{len(certificate.certified):,}",
        "cases": f"{certificate.cases:,}",
        "pilot": f"{certificate.pilot:,}" if certificate.pilot else "",
        "looks": f"{certificate.looks} {looks_basis}",
        "coverage": f"{certificate.coverage:.3f}",
        "over-ask": f"{certificate.over_ask:.3f}",
        "basis": certificate.basis,
        "counted as wrong": "" if certificate.undecided is None else counted_wrong,
    }
    return [(fact_name, fact_text) for fact_name, fact_text in fact_texts.items() if fact_text]


def certify(
    correct: ArrayLike,
    scores: ArrayLike,
    *,
    alpha: float,
    delta: float = 0.1,
    method: Method = "fixed_sequence",
    start: float | None = None,
    graded: bool = False,
) -> Certificate:
    """Lowest threshold of one gate whose risk is at most alpha with confidence 1 − delta.

    The gate answers where the score is at least the threshold; its risk is the wrong share of the
    answered. The candidates are the observed levels of the score. The fixed sequence goes down from
    a start that no label chose, and ends at the first level that fails; Holm tests every level at
    once and pays for it.

    This call keeps no count of looks: add its delta yourself. Another test on the same cases, by
    this function or by another one, adds its own delta to the error.

    Args:
      correct: whether each case is right if it is answered, boolean or 0 and 1, [Q].
      scores: higher is surer, [Q]; NaN is never answered.
      alpha: highest risk, in (0, 1).
      delta: error of the certificate, in (0, 0.5).
      method: `fixed_sequence` or `holm`.
      start: score to begin at, learned elsewhere, such as on a pilot split; where not given, the
        highest level with at least twice the cases needed without an error, or the lowest one where
        there are fewer. Holm has none.
      graded: whether `correct` holds grades in [0, 1], whose complements are the losses.

    Raises:
      ValueError: alpha outside (0, 1), delta outside (0, 0.5), lengths that differ, no cases, a
        `correct` that is no outcome, a start that is NaN or given to Holm.

    Source: Clopper and Pearson 1934; Angelopoulos, Bates, Candès, Jordan, Lei 2021 (Learn then
      test).

    Example:
      >>> found = certify([True] * 50 + [False] * 50, [0.9] * 50 + [0.1] * 50, alpha=0.1)
      >>> found.threshold, found.coverage
      (0.9, 0.5)
    """
    check_levels(alpha, delta)
    if method not in get_args(Method):
        refuse("method must be fixed_sequence or holm", repr(method), "leave it out")
    if start is not None and (method == "holm" or np.isnan(start)):
        start_problem = "one for holm, which tests every level" if method == "holm" else "NaN"
        refuse(
            "start must be a score at which a fixed sequence begins", start_problem, "leave it out"
        )
    losses, case_scores = _certify_cases(correct, scores, graded=graded)
    # A mean of grades has no exact binomial test: Hoeffding and Bentkus bound it instead.
    graded = bool(((losses > 0.0) & (losses < 1.0)).any())
    score_levels, n_answered, loss_sums = _levels(case_scores, losses)
    p_value_function: Any = hoeffding_bentkus if graded else binomial_p
    p_values = np.asarray(p_value_function(loss_sums, n_answered, alpha))
    n_needed = cases_needed(alpha, delta)
    first_level = _first_level(score_levels, n_answered, n_needed, method, start)
    is_rejected = (fixed_sequence if method == "fixed_sequence" else holm)(
        p_values[first_level:], delta
    )
    passed_levels = first_level + np.flatnonzero(is_rejected)
    # A fixed sequence ends at its first failure, which is tested too.
    n_tested = (
        len(is_rejected) if method == "holm" else min(len(is_rejected), len(passed_levels) + 1)
    )
    common_fields: dict[str, Any] = {"delta": delta, "method": method, "tested": n_tested}
    common_fields |= {"candidates": len(score_levels), "cases": len(case_scores)}

    def promise_at(level_index: int) -> Promise:
        # exact for a share, for grades the highest mean that is not rejected
        risk_bound = (graded_bound if graded else upper_bound)(
            loss_sums[level_index], n_answered[level_index], delta
        )
        return Promise(
            "risk",
            alpha,
            float(loss_sums[level_index]),
            int(n_answered[level_index]),
            float(risk_bound),
        )

    # Without a certificate the reason names what is short: cases, or the bound of the nearest
    # level.
    if not len(passed_levels) and first_level == len(n_answered):
        requirement = (
            f"a risk of {alpha:g} needs {n_needed} answered cases without an error at delta"
        )
        return Certificate(
            None,
            (),
            0.0,
            (),
            "risk",
            reason=f"{requirement} {delta:g}, got {int(n_answered.max(initial=0))}",
            **common_fields,
        )
    if not len(passed_levels):
        lowest_level = first_level + int(
            np.argmin(
                upper_bound(np.ceil(loss_sums[first_level:]), n_answered[first_level:], delta)
            )
        )
        first_promise = promise_at(first_level)
        lowest_bound = decimals(promise_at(lowest_level).bound, alpha)
        return Certificate(
            None,
            (),
            0.0,
            (first_promise,),
            "risk",
            reason=(
                f"the first level tried, {decimals(score_levels[first_level])}, "
                f"has {decimals(first_promise.k)} wrong of "
                f"{first_promise.n}, "
                f"upper bound {decimals(first_promise.bound, alpha)} above alpha "
                f"{decimals(alpha, first_promise.bound)}; the bound is lowest, {lowest_bound}, at "
                f"{decimals(score_levels[lowest_level])}"
            ),
            **common_fields,
        )
    promise = promise_at(int(passed_levels.max()))
    return Certificate(
        float(score_levels[passed_levels.max()]),
        tuple(score_levels[passed_levels].tolist()),
        promise.n / len(case_scores),
        (promise,),
        "risk",
        reason=f"risk at most {alpha:g} with confidence {1.0 - delta:g}",
        **common_fields,
    )


def _first_level(
    levels: FloatArray,
    n: IntArray,
    needed: int,
    method: Method,
    start_score: float | None,
) -> int:
    """Level that is tested first.

    It rests on numbers of answered cases alone: one chosen by labels would void the confidence.
    """
    first_usable = int(np.searchsorted(n, needed))  # no labels let a level above it pass
    if method == "holm":
        return first_usable
    if start_score is not None:
        return max(first_usable, int(np.searchsorted(-levels, -start_score, side="right")) - 1)
    return min(int(np.searchsorted(n, START_FACTOR * needed)), max(first_usable, len(n) - 1))


def graded_bound(total: float, n: int, delta: float) -> float:
    """Upper bound at confidence 1 − delta of the mean of n losses in [0, 1] that sum to `total`.

    It is the highest mean that `hoeffding_bentkus` does not reject; NaN where n is 0.

    Args:
      total: sum of the losses, each in [0, 1].
      n: number of cases.
      delta: error of the bound.
    """
    from scipy.optimize import brentq

    def over(alpha: float) -> float:
        return float(hoeffding_bentkus(total, n, alpha)) - delta

    if n == 0:
        return float("nan")
    lowest_mean = max(total / n, 1e-12)
    highest_mean = 1.0 - 1e-12
    return (
        float(brentq(over, lowest_mean, highest_mean))
        if lowest_mean < highest_mean and over(highest_mean) < 0.0
        else 1.0
    )


def _levels(case_scores: FloatArray, losses: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Score levels from the highest, how many are answered at each, and the sum of their losses.

    Losses are summed in their own order, so that the order of the rows changes nothing.
    """
    scored_indices = np.flatnonzero(~np.isnan(case_scores))
    scored_indices = scored_indices[
        np.lexsort((losses[scored_indices], -case_scores[scored_indices]))
    ]
    negated_levels, level_index = np.unique(-case_scores[scored_indices], return_inverse=True)
    loss_sums = np.bincount(
        level_index, weights=losses[scored_indices], minlength=len(negated_levels)
    ).cumsum()
    return (
        0.0 - negated_levels,
        np.bincount(level_index, minlength=len(negated_levels)).cumsum(),
        loss_sums,
    )


def _certify_cases(
    correct: ArrayLike, scores: ArrayLike, *, graded: bool
) -> tuple[FloatArray, FloatArray]:
    """Losses and scores of the cases."""
    correct_values = float_array(correct, "correct")
    case_scores = float_array(scores, "scores")
    if correct_values.ndim != 1 or correct_values.shape != case_scores.shape:
        refuse(
            "correct and scores must be one row a case each",
            f"shapes {correct_values.shape} and {case_scores.shape}",
            "give both of all cases",
        )
    if not len(correct_values):
        refuse("a certificate needs at least one case", "none", "check the split")
    correct_values = within_range(correct_values, 0.0, 1.0, "correct")
    is_invalid = (
        ~((correct_values >= 0.0) & (correct_values <= 1.0))
        if graded
        else (correct_values != 0.0) & (correct_values != 1.0)
    )
    if is_invalid.any():
        position = int(is_invalid.argmax())
        refuse(
            f"correct must be {'in [0, 1]' if graded else 'boolean, or 0 and 1'}, without NaN",
            (
                f"{correct_values[position]:g} at position {position} "
                f"({int(is_invalid.sum())} such cases)"
            ),
            "give (correct, scores) of labelled cases, grades by graded=True",
        )
    return 1.0 - correct_values, case_scores


class LabelNoiseBound(NamedTuple):
    """Bound of an error rate if some of the right cases are labelled wrong, [J] each.

    Attributes:
      labels: number of wrong labels.
      k: errors with these.
      bound: upper bound with these.
    """

    labels: IntArray
    k: IntArray
    bound: FloatArray


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
        refuse("most must be at least 0", most, "it counts wrong labels")
    wrong_labels = np.arange(min(most, n - k) + 1, dtype=np.int64)
    return LabelNoiseBound(
        wrong_labels, k + wrong_labels, np.asarray(upper_bound(k + wrong_labels, n, delta))
    )


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
    check_levels(alpha, delta)
    return bisect_left(
        range(n - k + 1), 1, key=lambda n_flipped: int(upper_bound(k + n_flipped, n, delta) > alpha)
    )


def _check_k_of_n(k: int, n: int) -> None:
    if n < 1:
        refuse("n must be at least 1", n, "a bound takes answered cases")
    if not 0 <= k <= n:
        refuse("k must be between 0 and n", f"{k} of {n}", "check that both count the same cases")
