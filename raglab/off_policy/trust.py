"""Trust in an off-policy estimate (algebra): overlap, effective size, and thin logs (S4.7).

A log may be too thin to say.
"""

from __future__ import annotations

from math import inf, isnan
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from raglab.metrics.intervals import FloatArray
from raglab.off_policy.estimators import (
    EstimatorSettings,
    Fit,
    fit_estimator,
    session_sums,
    standard_error,
)
from raglab.off_policy.logs import EvaluationRows

Finding = tuple[int, str]  # place in STATUSES, and why


STATUSES = ("ok", "weak", "none")
OK, WEAK, UNUSABLE = STATUSES  # none: the log says nothing, so that the number must not be used


ALIKE = 1e-6  # relative spread of weights that single precision leaves


ERRORS = 3.0  # standard errors that a mean may be off before it counts against the log


SURE = 1.96  # standard errors of dr minus dm within which dr is taken to agree with dm, at worst


# of the rewards' size, that dr and dm may differ where their formulas are the same
ROUNDING = 1e-12


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


def _above(value: float, limits: tuple[float, float]) -> int:
    """Number of limits that a value is above."""
    return sum(value > limit for limit in limits)


def _below(value: float, limits: tuple[float, float]) -> int:
    """Number of limits that a value is below."""
    return sum(value < limit for limit in limits)


def _worst_status(findings: list[Finding]) -> tuple[str, str]:
    """The worst status, and all reasons; a level of 0 is none."""
    level = max((level for level, _ in findings), default=0)
    return STATUSES[level], "; ".join(text for level, text in findings if level)


def effective_size(weight: FloatArray) -> float:
    """Kish's effective sample size, (sum w)² / sum w²; 0 where all are 0."""
    square = float(np.einsum("i,i", weight, weight))
    return float(weight.sum()) ** 2 / square if square > 0.0 else 0.0


def target_overlap(rows: EvaluationRows, level: float, rules: Rules) -> Overlap:
    """Overlap of a log with a target, judged by rules on ess, share, drift and unsupported arms."""
    # Weights alone tell how much of the log speaks of the target: no reward is looked at.
    weight, n = rows.weight, len(rows.weight)
    ess, largest, mean = effective_size(weight), float(weight.max()), float(weight.mean())
    error = standard_error(weight - mean, rows.log)
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * error
    # Without any weight the log has no round of the target: the worst share, not a division by
    # zero.
    share = largest / (n * mean) if mean > 0.0 else 1.0
    # Weights of a log with right propensities average 1; only what chance does not explain counts
    # as drift.
    drift = abs(mean - 1.0) - (0.0 if isnan(error) else ERRORS * error)
    # Some names are enough for a message: a log may lack hundreds of arms.
    gone = ", ".join(
        rows.log.names[arm] for arm in np.flatnonzero((rows.pulls == 0) & (rows.mass > 0.0))[:5]
    )
    unsupported = rows.unsupported
    status, note = _worst_status(
        [
            (_below(ess, rules.ess), f"effective sample size {ess:.1f}"),
            (_above(share, rules.share), f"one round holds {share:.0%} of the weight"),
            (
                _above(drift, rules.drift),
                f"mean weight {mean:.3f} where 1 is expected: propensities wrong or arms left out",
            ),
            (
                _above(unsupported, rules.unsupported),
                f"{unsupported:.1%} of the target is on arms never logged ({gone})",
            ),
        ]
    )
    ends = mean - reach, mean + reach
    return Overlap(n, ess, largest, mean, *ends, unsupported, status, note)


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
    ess, largest = overlap.ess, overlap.max_weight
    limits = {"clipped_ips": settings.clip, "switch_dr": settings.switch}
    if fitted.used is None:
        findings += _direct_findings(rows, fitted, settings, overlap, rules)
    else:
        ess, largest = effective_size(fitted.used), float(fitted.used.max())
        if name == "replay":
            findings.append((_below(ess, rules.ess), f"{ess:.0f} rounds accepted"))
        elif name in limits:
            total = float(rows.weight.sum())
            cut = 1.0 - float(fitted.used.sum()) / total if total > 0.0 else 0.0
            text = f"{cut:.0%} of the weight is beyond {limits[name]:g}"
            findings.append((_above(cut, rules.cut), text))
    status, note = _worst_status(findings + _variance_findings(rows, fitted, name, rules))
    return EstimateDiagnostics(ess, largest, status, note)


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
    weak: list[Finding] = [(1, reason)]
    if overlap.status != OK:
        return [*weak, (2, "the overlap is too thin for dr to check it")]
    robust = fit_estimator(rows, "dr", settings)
    gap = robust.value - fitted.value
    # The difference of the two, round by round: where their formulas meet it is 0 for certain.
    error = standard_error(robust.influence - fitted.influence, rows.log)
    own = standard_error(fitted.influence, rows.log)
    far = abs(gap) + SURE * error
    if far <= ROUNDING * max(1.0, float(np.abs(rows.log.reward).max())):
        far = 0.0
    apart = 0.0 if far == 0.0 else far / own if own > 0.0 else inf
    if isnan(apart):
        return [*weak, (2, "one session cannot tell whether dr agrees")]
    text = f"dr may differ from it by {far:.3g}, {apart:.2g} of its standard errors: see dr"
    if error > 0.0 and abs(gap) > ERRORS * error:
        errors = f"{abs(gap) / error:.1f} standard errors"
        text = f"the log contradicts the reward model by {gap:+.3g} ({errors}): see dr"
    return [*weak, (_above(apart, rules.model), text)]


def _varies_within_arms(rows: EvaluationRows) -> bool:
    """Whether weights vary within an arm, so that what moves them may move rewards."""
    arm, weight = rows.log.arm, rows.weight
    mean = np.bincount(arm, weights=weight, minlength=len(rows.pulls)) / np.maximum(rows.pulls, 1)
    off = weight - mean[arm]
    return float(np.einsum("i,i", off, off)) > ALIKE**2 * float(np.einsum("i,i", weight, weight))


def _variance_findings(rows: EvaluationRows, fitted: Fit, name: str, rules: Rules) -> list[Finding]:
    """Whether the variance, and so the interval, hangs on too little."""
    if isnan(fitted.value):
        return [(2, "no round of the log counts")]
    sums = session_sums(fitted.influence, rows.log)
    total = float(np.einsum("i,i", sums, sums))
    if total > 0.0:
        lead = max(float(sums.max()), -float(sums.min())) ** 2 / total
        what = "round" if rows.log.session is None else "session"
        return [(_above(lead, rules.lead), f"one {what} makes {lead:.0%} of the variance")]
    if name == "dm" and not rows.fitted:
        return []
    return [(1, "all rewards that count are the same: an interval without width is no certainty")]
