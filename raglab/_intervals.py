"""Intervals of off-policy values: delta method, joint-ratio bootstrap, both by session where given; a lower bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, factorial, sqrt
from math import log as ln
from statistics import NormalDist

import numpy as np

from raglab._estimators import MODELLED, NORMALISED, Settings, midpoint, used_weight
from raglab._logged import Floats, Log, Rows

COUNTS_AT_ONCE = 2**22  # of the bootstrap


def by_session(values: Floats, log: Log) -> Floats:
    """Sums by session, [G]; the values themselves where there are none."""
    if log.session is None:
        return values
    return np.bincount(log.session, weights=values, minlength=log.sessions).astype(np.float64, copy=False)


def standard_error(influence: Floats, log: Log) -> float:
    """Standard error of a value with this influence; rounds of one session count together. NaN of one session."""
    sums = by_session(influence, log)
    if len(sums) < 2:
        return float("nan")
    return sqrt(float(np.einsum("i,i", sums, sums)) * len(sums) / (len(sums) - 1.0)) / len(influence)


def delta_interval(value: float, influence: Floats, log: Log, level: float) -> tuple[float, float]:
    """Normal interval by the delta method."""
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * standard_error(influence, log)
    return value - reach, value + reach


def percentiles(drawn: Floats, level: float) -> tuple[float, float]:
    """Interval between quantiles of the resamples; those in which the value is not defined are left out."""
    kept = drawn[np.isfinite(drawn)]
    if not len(kept):
        return float("nan"), float("nan")
    low, high = np.quantile(kept, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def resampled(
    rows: Rows, names: Sequence[str], settings: Settings, *, n_boot: int, seed: np.random.SeedSequence
) -> Floats:
    """Values of each estimator in resamples of the log, [E, B]: numerator and denominator are resampled together.

    Each session, or each round where there are none, counts Poisson(1) times, drawn to 16 bits. What was fitted to the
    log is fitted again to the resample. The same seed gives the same resamples for every estimator and target.

    Source: Chamandy et al. 2012 for the Poisson bootstrap.
    """
    table, rng = _poisson(), np.random.default_rng(seed)
    used = [used_weight(rows, name, settings) for name in names]
    total: Floats | float = 0.0
    for part in _summands(rows, names, used, max(1, COUNTS_AT_ONCE // n_boot)):
        counts = table[rng.integers(0, 2**16, size=(n_boot, len(part)), dtype=np.uint16)]
        total = total + counts @ part
    values, first = [], 0
    for name in names:
        last = first + _width(rows, name)
        values.append(_value(np.asarray(total)[:, first:last], rows, name))
        first = last
    return np.stack(values)


def _poisson() -> Floats:
    """Poisson(1) counts by a uniform 16-bit number, [65536]."""
    edges = np.round(np.cumsum([exp(-1.0) / factorial(k) for k in range(9)]) * 2**16).astype(np.int64)
    return np.repeat(np.arange(10.0), np.diff(edges, prepend=0, append=2**16))


def _summands(rows: Rows, names: Sequence[str], used: list[Floats | None], size: int) -> Iterator[Floats]:
    """What is resampled, chunk by chunk, [chunk, C]: the columns of each round, or their sums by session."""
    middle = midpoint(rows.log.reward)
    parts = (slice(start, start + size) for start in range(0, len(rows.weight), size))
    columns = (
        np.concatenate(
            [_columns(rows, name, weight, part, middle) for name, weight in zip(names, used, strict=True)], 1
        )
        for part in parts
    )
    if rows.log.session is None:
        yield from columns
        return
    sums = np.zeros((rows.log.sessions, sum(_width(rows, name) for name in names)))
    for start, part in zip(range(0, len(rows.weight), size), columns, strict=True):
        np.add.at(sums, rows.log.session[start : start + size], part)
    for start in range(0, len(sums), size):
        yield sums[start : start + size]


def _width(rows: Rows, name: str) -> int:
    """How many columns an estimator sums."""
    return 3 * len(rows.mass) + 2 if _refits(rows, name) else 2


def _refits(rows: Rows, name: str) -> bool:
    return name in MODELLED and rows.fitted


def _columns(rows: Rows, name: str, weight: Floats | None, part: slice, middle: float) -> Floats:
    """What is summed of each round, [chunk, C]."""
    reward = rows.log.reward[part]
    used = np.zeros(len(reward)) if weight is None else weight[part]
    if name in NORMALISED:
        return np.column_stack([used, used * (reward - middle)])
    ones = np.ones(len(reward))
    if name not in MODELLED:
        return np.column_stack([ones, used * reward])
    if not rows.fitted:
        return np.column_stack([ones, rows.expected[part] + used * (reward - rows.predicted[part])])
    off = reward - middle
    arm = (rows.log.arm[part, None] == np.arange(len(rows.mass))).astype(np.float64)
    return np.column_stack([ones, used * off, arm, arm * off[:, None], rows.target[part] - arm * used[:, None]])


def _value(sums: Floats, rows: Rows, name: str) -> Floats:
    """Value of each resample from its sums, [B]; NaN where the denominator is 0."""
    middle = midpoint(rows.log.reward)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.asarray(sums[:, 1] / sums[:, 0])
        if not _refits(rows, name):
            return value + middle if name in NORMALISED else value
        pulls, totals, owed = np.split(sums[:, 2:], 3, axis=1)
        means = np.where(pulls > 0.0, totals / pulls, (totals.sum(axis=1) / sums[:, 0])[:, None])
        return np.asarray(middle + value + (means * owed).sum(axis=1) / sums[:, 0])


def bernstein(used: Floats, reward: Floats, clip: float, delta: float) -> float:
    """Lower bound, at confidence 1 − delta, of the mean of used × reward in [0, clip].

    Source: Maurer and Pontil 2009, theorem 4.
    """
    n = len(used)
    if n < 2:
        return 0.0
    score = used * reward
    slack = ln(2.0 / delta)
    spread = sqrt(2.0 * float(score.var(ddof=1)) * slack / n)
    return max(0.0, float(score.mean()) - spread - 7.0 * clip * slack / (3.0 * (n - 1.0)))
