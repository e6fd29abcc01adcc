"""How far a log can speak for another policy: effective sample size, weights, and a status by stated rules."""

from __future__ import annotations

from math import inf, isnan
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from raglab._estimators import Fit, Settings
from raglab._intervals import by_session, standard_error
from raglab._logged import Floats, Rows

Finding = tuple[int, str]  # place in STATUSES, and why
STATUSES = ("ok", "weak", "none")
ALIKE = 1e-6  # relative spread of weights that single precision leaves
ERRORS = 3.0  # standard errors that a mean may be off before it counts against the log


class Rules(NamedTuple):
    """Where a number becomes weak, and where it says nothing: (weak, none) each.

    ess: effective sample size below this. share: one round's share of all weight above this. drift: mean weight
    further from 1 than this, beyond three standard errors. unsupported: target's share on arms never logged above
    this. lead: one round's (session's) share of the variance above this. cut: share of the weight that clip or
    switch took away above this. model: standard errors between reward model and rewards above this (dm).
    """

    ess: tuple[float, float] = (100.0, 10.0)
    share: tuple[float, float] = (0.10, 0.50)
    drift: tuple[float, float] = (0.01, 0.10)
    unsupported: tuple[float, float] = (1e-9, 0.05)
    lead: tuple[float, float] = (0.10, 0.50)
    cut: tuple[float, float] = (0.05, 0.50)
    model: tuple[float, float] = (ERRORS, inf)


class Overlap(NamedTuple):
    """What a log holds for a target, whatever the estimator.

    n: rounds. ess: (sum w)² / sum w², in rounds. max_weight, mean_weight: of the target's probability over the logged
    one; the mean is 1 in a log that is right and wide enough, with its interval. unsupported: the target's share on
    arms never logged. status: ok, weak or none. note: why.
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


class Judged(NamedTuple):
    """Diagnostics of one estimate: ess in rounds, largest weight, status, and why."""

    ess: float
    max_weight: float
    status: str
    note: str


def _above(value: float, limits: tuple[float, float], text: str) -> list[Finding]:
    """A finding where a value is above a limit, with the number of limits it is above."""
    level = int(value > limits[0]) + int(value > limits[1])
    return [(level, text)] if level else []


def _below(value: float, limits: tuple[float, float], text: str) -> list[Finding]:
    return _above(-value, (-limits[0], -limits[1]), text)


def _verdict(found: list[Finding]) -> tuple[str, str]:
    """The worst status, and all reasons."""
    return STATUSES[max((level for level, _ in found), default=0)], "; ".join(text for _, text in found)


def effective_size(weight: Floats) -> float:
    """Kish's effective sample size, (sum w)² / sum w²; 0 where all are 0."""
    square = float(np.einsum("i,i", weight, weight))
    return float(weight.sum()) ** 2 / square if square > 0.0 else 0.0


def overlap_of(rows: Rows, level: float, rules: Rules) -> Overlap:
    """Overlap of a log with a target, judged by the rules on ess, share, drift and unsupported arms."""
    weight, n = rows.weight, len(rows.weight)
    ess, largest, mean = effective_size(weight), float(weight.max()), float(weight.mean())
    error = standard_error(weight - mean, rows.log)
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * error
    share = largest / (n * mean) if mean > 0.0 else 1.0
    drift = abs(mean - 1.0) - (0.0 if isnan(error) else ERRORS * error)
    gone = ", ".join(rows.log.names[arm] for arm in np.flatnonzero((rows.pulls == 0) & (rows.mass > 0.0))[:5])
    status, note = _verdict(
        [
            *_below(ess, rules.ess, f"effective sample size {ess:.1f}"),
            *_above(share, rules.share, f"one round holds {share:.0%} of the weight"),
            *_above(
                drift, rules.drift, f"mean weight {mean:.3f} where 1 is expected: propensities wrong or arms left out"
            ),
            *_above(
                rows.unsupported,
                rules.unsupported,
                f"{rows.unsupported:.1%} of the target is on arms never logged ({gone})",
            ),
        ]
    )
    return Overlap(n, ess, largest, mean, mean - reach, mean + reach, rows.unsupported, status, note)


def judged(rows: Rows, fitted: Fit, name: str, settings: Settings, seen: Overlap, rules: Rules) -> Judged:
    """Diagnostics of one estimate; never better than the overlap.

    - All: the status of the overlap, and one round's (session's) share of the variance.
    - replay: ess is the rounds accepted. clipped_ips, switch_dr: the weight that was cut, which is bias or the
      model's word.
    - dm: reads no weight; beyond the overlap it extrapolates, so the overlap's figures are given, and the log may
      contradict its model. Its interval knows nothing of the error of a model from outside, nor of what moves both
      weights and rewards where the model is a mean by arm: weak then.
    """
    found = [] if seen.status == STATUSES[0] else [(STATUSES.index(seen.status), seen.note)]
    ess, largest = seen.ess, seen.max_weight
    if fitted.used is not None:
        ess, largest = effective_size(fitted.used), float(fitted.used.max())
        if name == "replay":
            found += _below(ess, rules.ess, f"{ess:.0f} rounds accepted")
        elif name in {"clipped_ips", "switch_dr"}:
            found += _cut(rows, fitted.used, settings.clip if name == "clipped_ips" else settings.switch, rules)
    else:
        found += _contradicted(rows, rules) + _unknown_to_its_interval(rows)
    status, note = _verdict(found + _narrow(rows, fitted, name, rules))
    return Judged(ess, largest, status, note)


def _cut(rows: Rows, used: Floats, limit: float, rules: Rules) -> list[Finding]:
    total = float(rows.weight.sum())
    cut = 1.0 - float(used.sum()) / total if total > 0.0 else 0.0
    return _above(cut, rules.cut, f"{cut:.0%} of the weight is beyond {limit:g}")


def _contradicted(rows: Rows, rules: Rules) -> list[Finding]:
    """Whether what doubly robust estimation would add to the direct method is more than chance."""
    off = rows.weight * (rows.log.reward - rows.predicted)
    mean = float(off.mean())
    error = standard_error(off - mean, rows.log)
    apart = abs(mean) / error if error > 0.0 else 0.0
    text = f"the log contradicts the reward model by {mean:+.3g} ({apart:.1f} standard errors)"
    return _above(apart, rules.model, text)


def _unknown_to_its_interval(rows: Rows) -> list[Finding]:
    if not rows.fitted:
        return [(1, "the interval takes the reward model from outside for true")]
    arm, weight = rows.log.arm, rows.weight
    mean = np.bincount(arm, weights=weight, minlength=len(rows.pulls)) / np.maximum(rows.pulls, 1)
    off = weight - mean[arm]
    alike = float(np.einsum("i,i", off, off)) <= ALIKE**2 * float(np.einsum("i,i", weight, weight))
    return [] if alike else [(1, "weights vary within an arm, and what moves them may move rewards: see dr")]


def _narrow(rows: Rows, fitted: Fit, name: str, rules: Rules) -> list[Finding]:
    """Whether the variance, and so the interval, hangs on too little."""
    if isnan(fitted.value):
        return [(2, "no round of the log counts")]
    sums = by_session(fitted.influence, rows.log)
    total = float(np.einsum("i,i", sums, sums))
    if total > 0.0:
        lead = max(float(sums.max()), -float(sums.min())) ** 2 / total
        what = "round" if rows.log.session is None else "session"
        return _above(lead, rules.lead, f"one {what} makes {lead:.0%} of the variance")
    if name == "dm" and not rows.fitted:
        return []
    return [(1, "all rewards that count are the same: an interval without width is no certainty")]
