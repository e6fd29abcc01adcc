"""Off-policy estimators: each is a mean or a ratio of means, and its influence function reads the same vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raglab._logged import Floats, Rows

ESTIMATORS = ("replay", "ips", "clipped_ips", "snips", "dm", "dr", "switch_dr")
NORMALISED = ("replay", "snips")  # divided by the sum of their weights
MODELLED = ("dm", "dr", "switch_dr")  # read a reward model
WEIGHTED = ("ips", "clipped_ips", "snips", "dr", "switch_dr")  # say nothing of what a deterministic log leaves out


class Settings(NamedTuple):
    """Arguments of single estimators.

    clip: largest weight of clipped_ips. switch: largest weight that switch_dr uses.
    uniform: chance of replay, [T]; None where it is not asked for.
    """

    clip: float
    switch: float
    uniform: Floats | None = None


class Fit(NamedTuple):
    """A value and what makes its interval.

    value: estimated mean reward of the target. influence: of each round on it, mean 0, [T]; the variance of the value
    is the mean square over T. used: weight that each round has, [T]; None of dm.
    """

    value: float
    influence: Floats
    used: Floats | None


def used_weight(rows: Rows, name: str, settings: Settings) -> Floats | None:
    """Weight that an estimator gives to the reward of each round, [T]; None where it reads the model alone."""
    weight = rows.weight
    if name == "dm":
        return None
    if name == "clipped_ips":
        return np.minimum(weight, settings.clip)
    if name == "switch_dr":
        return np.where(weight <= settings.switch, weight, 0.0)
    if name == "replay":
        if settings.uniform is None:
            msg = "replay must be given a uniform for each round."
            raise ValueError(msg)
        return np.asarray(settings.uniform * max(weight.max(), np.finfo(float).tiny) < weight, dtype=np.float64)
    return weight


def midpoint(reward: Floats) -> float:
    """Middle of the range of the rewards; the reward itself, to the bit, where they are all the same."""
    return float(reward.min()) / 2.0 + float(reward.max()) / 2.0


def fit(rows: Rows, name: str, settings: Settings) -> Fit:
    """Value and influence function of one estimator.

    - replay, snips: sum(u r) / sum(u), with u = 1 for an accepted round, u = weight.
    - ips, clipped_ips: mean(u r), with u = weight, min(weight, clip).
    - dm, dr, switch_dr: mean(expected + u (r − predicted)), with u = 0, weight, weight where it is at most switch.
      Where the model was fitted to this log, its arms' means vary with the log, and the influence says so.
    """
    used = used_weight(rows, name, settings)
    if used is not None and name in NORMALISED:
        return _ratio(rows, used)
    if used is None:
        score = rows.expected.copy()
    elif name in MODELLED:
        score = rows.log.reward - rows.predicted
        score *= used
        score += rows.expected
    else:
        score = rows.log.reward * used
    value = float(score.mean())
    score -= value
    if name in MODELLED and rows.fitted:
        score += _fitting(rows, used)
    return Fit(value, score, used)


def _ratio(rows: Rows, used: Floats) -> Fit:
    """Mean reward under the weights; its influence is u (r − value) / mean(u)."""
    total = float(used.sum())
    if total <= 0.0:
        return Fit(float("nan"), np.full(len(used), np.nan), used)
    middle = midpoint(rows.log.reward)  # so that rewards which are all the same leave no rounding behind
    off = rows.log.reward - middle
    shift = float(np.einsum("i,i", used, off)) / total
    off -= shift
    off *= used
    off *= len(used) / total
    return Fit(middle + shift, off, used)


def _fitting(rows: Rows, used: Floats | None) -> Floats:
    """What a round adds through the arms' means that were fitted to it, [T].

    The value changes by mass(a) − mean(u, arm a) with the mean reward of arm a, and that changes by
    (r − mean of a) / share of a with a round of arm a; the log's mean stands in for arms never logged.
    """
    log, n = rows.log, len(rows.weight)
    share = rows.pulls / n
    slope = rows.mass.copy()
    if used is not None:
        slope -= np.bincount(log.arm, weights=used, minlength=len(slope)) / n
    seen = rows.pulls > 0
    slope[seen] /= share[seen]
    added: Floats = (log.reward - rows.predicted) * slope[log.arm]
    if rows.unsupported > 0.0:
        added += rows.unsupported * (log.reward - log.reward.mean())
    return added
