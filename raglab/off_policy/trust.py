"""Trust in an off-policy estimate (algebra): overlap, effective size, and thin logs (S4.7).

A log may be too thin to say.
"""

from __future__ import annotations

from math import inf, isnan
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from raglab.off_policy.estimators import (
    EstimatorSettings,
    Fit,
    fit_estimator,
    session_sums,
    standard_error,
)
from raglab.off_policy.logs import EvaluationRows
from raglab.values import FloatArray

Finding = tuple[int, str]  # place in STATUSES, and why


STATUSES = ("ok", "weak", "none")
OK, WEAK, UNUSABLE = STATUSES  # none: the log says nothing, so that the number must not be used


EQUAL_SPREAD = 1e-6  # relative spread of weights that single precision leaves


DRIFT_ERRORS = 3.0  # standard errors that a mean may be off before it counts against the log


AGREEMENT_ERRORS = (
    1.96  # standard errors of dr minus dm within which dr is taken to agree with dm, at worst
)


# of the rewards' size, that dr and dm may differ where their formulas are the same
REWARD_ROUNDING = 1e-12


class Rules(NamedTuple):
    """Bounds at which a number becomes weak, and at which it says nothing: (weak, none) each.

    Attributes:
      ess: effective sample size below this.
      share: one round's share of all weight above this.
      drift: mean weight further from 1 than this, beyond three standard errors.
      unsupported: target's share on arms never logged above this.
      lead: one round's (session's) share of the variance above this.
      cut: share of the weight that clip or switch removed above this.
      model: distance of dr from dm, at the far end of a 95 % interval of their difference, in
        standard errors of dm: above this (dm, which is weak at best).
    """

    ess: tuple[float, float] = (100.0, 10.0)
    share: tuple[float, float] = (0.10, 0.50)
    drift: tuple[float, float] = (0.01, 0.10)
    unsupported: tuple[float, float] = (1e-9, 0.05)
    lead: tuple[float, float] = (0.10, 0.50)
    cut: tuple[float, float] = (0.05, 0.50)
    model: tuple[float, float] = (0.0, 1.0)


class Overlap(NamedTuple):
    """Overlap of a log with a target, for every estimator.

    Attributes:
      n: rounds.
      ess: (sum w)² / sum w², in rounds.
      max_weight: largest ratio of the target's probability to the logged one.
      mean_weight: mean of these ratios; 1 in a log that is right and wide enough.
      mean_weight_low: lower end of the mean's interval.
      mean_weight_high: upper end of the mean's interval.
      unsupported: the target's share on arms never logged.
      status: ok, weak or none.
      note: reason for the status.
    """

    n: int
    ess: float
    max_weight: float
    mean_weight: float
    mean_weight_low: float
    mean_weight_high: float
    unsupported: float
    status: str
    note: str


class EstimateDiagnostics(NamedTuple):
    """Diagnostics of one estimate: ess in rounds, largest weight, status, and why."""

    ess: float
    max_weight: float
    status: str
    note: str


def _above(measure: float, bounds: tuple[float, float]) -> int:
    """Number of limits that a value is above."""
    return sum(measure > bound for bound in bounds)


def _below(measure: float, bounds: tuple[float, float]) -> int:
    """Number of limits that a value is below."""
    return sum(measure < bound for bound in bounds)


def _worst_status(findings: list[Finding]) -> tuple[str, str]:
    """The worst status, and all reasons; a level of 0 gives no reason."""
    severity = max((severity for severity, _ in findings), default=0)
    return STATUSES[severity], "; ".join(reason for severity, reason in findings if severity)


def effective_size(weight: FloatArray) -> float:
    """Kish's effective sample size, (sum w)² / sum w²; 0 where all are 0."""
    square = float(np.einsum("i,i", weight, weight))
    return float(weight.sum()) ** 2 / square if square > 0.0 else 0.0


def target_overlap(rows: EvaluationRows, level: float, rules: Rules) -> Overlap:
    """Overlap of a log with a target, judged by rules on ess, share, drift and unsupported arms."""
    # Weights alone tell how much of the log speaks of the target: no reward is looked at.
    round_weights = rows.weight
    n_rounds = len(rows.weight)
    sample_size, largest_weight, mean_weight = (
        effective_size(round_weights),
        float(round_weights.max()),
        float(round_weights.mean()),
    )
    mean_error = standard_error(round_weights - mean_weight, rows.log)
    interval_reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * mean_error
    # Without any weight the log has no round of the target: the worst share, not a division by
    # zero.
    largest_share = largest_weight / (n_rounds * mean_weight) if mean_weight > 0.0 else 1.0
    # Weights of a log with right propensities average 1; only what chance does not explain counts
    # as drift.
    mean_drift = abs(mean_weight - 1.0) - (0.0 if isnan(mean_error) else DRIFT_ERRORS * mean_error)
    # Some names are enough for a message: a log may lack hundreds of arms.
    unlogged_arms = ", ".join(
        rows.log.names[arm] for arm in np.flatnonzero((rows.pulls == 0) & (rows.mass > 0.0))[:5]
    )
    unsupported = rows.unsupported
    status, note = _worst_status(
        [
            (_below(sample_size, rules.ess), f"effective sample size {sample_size:.1f}"),
            (
                _above(largest_share, rules.share),
                f"one round holds {largest_share:.0%} of the weight",
            ),
            (
                _above(mean_drift, rules.drift),
                (
                    f"mean weight {mean_weight:.3f} where 1 is expected: propensities wrong or "
                    "arms left out"
                ),
            ),
            (
                _above(unsupported, rules.unsupported),
                f"{unsupported:.1%} of the target is on arms never logged ({unlogged_arms})",
            ),
        ]
    )
    interval_ends = mean_weight - interval_reach, mean_weight + interval_reach
    return Overlap(
        n_rounds,
        sample_size,
        largest_weight,
        mean_weight,
        *interval_ends,
        unsupported,
        status,
        note,
    )


def diagnose_estimate(
    rows: EvaluationRows,
    fitted: Fit,
    name: str,
    settings: EstimatorSettings,
    overlap: Overlap,
    rules: Rules,
) -> EstimateDiagnostics:
    """Diagnostics of one estimate; never better than the overlap.

    - All: the status of the overlap, and one round's (session's) share of the variance.
    - replay: ess is the rounds accepted. clipped_ips, switch_dr: the weight that was cut, which is
      bias or the model's word.
    - dm: reads no weight, and its interval knows nothing of the error of a model from outside, nor
      of what moves both weights and rewards where the model is a mean by arm. Alone it says
      nothing: none, unless the overlap is ok and dr shows dm to be within its own standard error;
      weak then, never ok. The overlap's figures are given.
    """
    findings = [(STATUSES.index(overlap.status), overlap.note)]
    sample_size = overlap.ess
    largest_weight = overlap.max_weight
    weight_limits = {"clipped_ips": settings.clip, "switch_dr": settings.switch}
    if fitted.used is None:
        findings += _direct_findings(rows, fitted, settings, overlap, rules)
    else:
        sample_size = effective_size(fitted.used)
        largest_weight = float(fitted.used.max())
        if name == "replay":
            findings.append((_below(sample_size, rules.ess), f"{sample_size:.0f} rounds accepted"))
        elif name in weight_limits:
            total_weight = float(rows.weight.sum())
            cut_share = 1.0 - float(fitted.used.sum()) / total_weight if total_weight > 0.0 else 0.0
            findings.append(
                (
                    _above(cut_share, rules.cut),
                    f"{cut_share:.0%} of the weight is beyond {weight_limits[name]:g}",
                )
            )
    status, note = _worst_status(findings + _variance_findings(rows, fitted, name, rules))
    return EstimateDiagnostics(sample_size, largest_weight, status, note)


def _direct_findings(
    rows: EvaluationRows, fitted: Fit, settings: EstimatorSettings, overlap: Overlap, rules: Rules
) -> list[Finding]:
    """Why the direct method is weak, or says nothing.

    Whether doubly robust estimation agrees with it.
    """
    if overlap.status == UNUSABLE:
        return []  # the overlap's own reason is enough
    reason = "dm reads no weight, so that it is weak at best; dr says the same"
    if not rows.fitted:
        reason = "the interval takes the reward model from outside for true"
    elif _varies_within_arms(rows):
        reason = "weights vary within an arm, and what moves them may move rewards"
    weak_finding: list[Finding] = [(1, reason)]
    if overlap.status != OK:
        return [*weak_finding, (2, "the overlap is too thin for dr to check it")]
    robust_fit = fit_estimator(rows, "dr", settings)
    value_gap = robust_fit.value - fitted.value
    # The difference of the two, round by round: where their formulas meet it is 0 for certain.
    gap_error = standard_error(robust_fit.influence - fitted.influence, rows.log)
    direct_error = standard_error(fitted.influence, rows.log)
    largest_gap = abs(value_gap) + AGREEMENT_ERRORS * gap_error
    if largest_gap <= REWARD_ROUNDING * max(1.0, float(np.abs(rows.log.reward).max())):
        largest_gap = 0.0
    gap_in_errors = (
        0.0 if largest_gap == 0.0 else largest_gap / direct_error if direct_error > 0.0 else inf
    )
    if isnan(gap_in_errors):
        return [*weak_finding, (2, "one session cannot tell whether dr agrees")]
    finding_text = (
        f"dr may differ from it by {largest_gap:.3g}, {gap_in_errors:.2g} of its standard "
        "errors: see dr"
    )
    if gap_error > 0.0 and abs(value_gap) > DRIFT_ERRORS * gap_error:
        error_text = f"{abs(value_gap) / gap_error:.1f} standard errors"
        finding_text = (
            f"the log contradicts the reward model by {value_gap:+.3g} ({error_text}): see dr"
        )
    return [*weak_finding, (_above(gap_in_errors, rules.model), finding_text)]


def _varies_within_arms(rows: EvaluationRows) -> bool:
    """Whether weights vary within an arm, so that what moves them may move rewards."""
    arm = rows.log.arm
    weight = rows.weight
    mean = np.bincount(arm, weights=weight, minlength=len(rows.pulls)) / np.maximum(rows.pulls, 1)
    off = weight - mean[arm]
    return float(np.einsum("i,i", off, off)) > EQUAL_SPREAD**2 * float(
        np.einsum("i,i", weight, weight)
    )


def _variance_findings(
    rows: EvaluationRows, fitted: Fit, estimator: str, rules: Rules
) -> list[Finding]:
    """Whether the variance, and so the interval, rests on too little."""
    if isnan(fitted.value):
        return [(2, "no round of the log counts")]
    sums_by_session = session_sums(fitted.influence, rows.log)
    total_variance = float(np.einsum("i,i", sums_by_session, sums_by_session))
    if total_variance > 0.0:
        lead_share = (
            max(float(sums_by_session.max()), -float(sums_by_session.min())) ** 2 / total_variance
        )
        unit_name = "round" if rows.log.session is None else "session"
        return [
            (
                _above(lead_share, rules.lead),
                f"one {unit_name} makes {lead_share:.0%} of the variance",
            )
        ]
    if estimator == "dm" and not rows.fitted:
        return []
    return [(1, "all rewards that count are the same: an interval without width is no certainty")]
