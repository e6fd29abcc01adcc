"""Off-policy estimators (algebra): IPS, SNIPS, direct, doubly robust, switch.

Their intervals (S4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import exp, factorial, sqrt
from math import log as ln
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from raglab.loops.parallel import run_each
from raglab.metrics.intervals import FloatArray
from raglab.off_policy.logs import EvaluationRows, Log

ESTIMATORS = ("replay", "ips", "clipped_ips", "snips", "dm", "dr", "switch_dr")
NORMALISED = ("replay", "snips")  # divided by the sum of their weights
MODELLED = ("dm", "dr", "switch_dr")  # read a reward model
# say nothing of what a deterministic log leaves out
WEIGHTED = ("ips", "clipped_ips", "snips", "dr", "switch_dr")


class EstimatorSettings(NamedTuple):
    """Arguments of single estimators.

    clip: largest weight of clipped_ips. switch: largest weight that switch_dr uses.
    uniform: chance of replay, [T]; None where it is not asked for.
    """

    clip: float
    switch: float
    uniform: FloatArray | None = None


class Fit(NamedTuple):
    """A value and what makes its interval.

    value: estimated mean reward of the target. influence: of each round on it, mean 0, [T]; the
    variance of the value is the mean square over T. used: weight that each round has, [T]; None of
    dm.
    """

    value: float
    influence: FloatArray
    used: FloatArray | None


def estimator_weight(
    rows: EvaluationRows, name: str, settings: EstimatorSettings
) -> FloatArray | None:
    """Weight that an estimator gives to the reward of each round, [T].

    None where it reads the model alone.
    """
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
        return np.asarray(
            settings.uniform * max(weight.max(), np.finfo(float).tiny) < weight, dtype=np.float64
        )
    return weight


def midpoint(reward: FloatArray) -> float:
    """Middle of the range of the rewards.

    The reward itself, to the bit, where they are all the same.
    """
    return float(reward.min()) / 2.0 + float(reward.max()) / 2.0


def fit_estimator(rows: EvaluationRows, name: str, settings: EstimatorSettings) -> Fit:
    """Value and influence function of one estimator.

    - replay, snips: sum(u r) / sum(u), with u = 1 for an accepted round, u = weight.
    - ips, clipped_ips: mean(u r), with u = weight, min(weight, clip).
    - dm, dr, switch_dr: mean(expected + u (r − predicted)), with u = 0, weight, weight where it is
      at most switch. Where the model was fitted to this log, its arms' means vary with the log, and
      the influence says so.
    """
    used = estimator_weight(rows, name, settings)
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
        score += _fitted_means(rows, used)
    return Fit(value, score, used)


def _ratio(rows: EvaluationRows, used: FloatArray) -> Fit:
    """Mean reward under the weights; its influence is u (r − value) / mean(u)."""
    total = float(used.sum())
    if total <= 0.0:
        return Fit(float("nan"), np.full(len(used), np.nan), used)
    # so that rewards which are all the same leave no rounding behind
    middle = midpoint(rows.log.reward)
    off = rows.log.reward - middle
    shift = float(np.einsum("i,i", used, off)) / total
    off -= shift
    off *= used
    off *= len(used) / total
    return Fit(middle + shift, off, used)


def _fitted_means(rows: EvaluationRows, used: FloatArray | None) -> FloatArray:
    """What a round adds through the arms' means that were fitted to it, [T].

    The value changes by mass(a) − mean(u, arm a) with the mean reward of arm a, and that changes by
    (r − mean of a) / share of a with a round of arm a; the log's mean stands in for arms never
    logged.
    """
    log, n = rows.log, len(rows.weight)
    share = rows.pulls / n
    slope = rows.mass.copy()
    if used is not None:
        slope -= np.bincount(log.arm, weights=used, minlength=len(slope)) / n
    is_pulled = rows.pulls > 0
    slope[is_pulled] /= share[is_pulled]
    added: FloatArray = (log.reward - rows.predicted) * slope[log.arm]
    if rows.unsupported > 0.0:
        added += rows.unsupported * (log.reward - log.reward.mean())
    return added


COUNTS_AT_ONCE = 2**22  # of the bootstrap


def session_sums(values: FloatArray, log: Log) -> FloatArray:
    """Sums by session, [G]; the values themselves where there are none."""
    if log.session is None:
        return values
    return np.bincount(log.session, weights=values, minlength=log.sessions).astype(
        np.float64, copy=False
    )


def standard_error(influence: FloatArray, log: Log) -> float:
    """Standard error of a value with this influence; rounds of one session count together.

    NaN of one session.
    """
    sums = session_sums(influence, log)
    if len(sums) < 2:
        return float("nan")
    return sqrt(float(np.einsum("i,i", sums, sums)) * len(sums) / (len(sums) - 1.0)) / len(
        influence
    )


def delta_interval(
    value: float, influence: FloatArray, log: Log, level: float
) -> tuple[float, float]:
    """Normal interval by the delta method."""
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * standard_error(influence, log)
    return value - reach, value + reach


def bootstrap_values(
    rows: EvaluationRows,
    names: Sequence[str],
    settings: EstimatorSettings,
    *,
    n_boot: int,
    seed: np.random.SeedSequence,
) -> FloatArray:
    """Values of each estimator in resamples of the log, [E, B].

    Numerator and denominator are resampled together.

    Each session, or each round where there are none, counts Poisson(1) times, drawn to 16 bits.
    What was fitted to the log is fitted again to the resample. The same seed gives the same
    resamples for every estimator and target. Inside `raglab.lab.parallel_workers` blocks of rounds
    are resampled by the workers, to the same bits.

    Source: Chamandy et al. 2012 for the Poisson bootstrap.
    """
    used = [(name, estimator_weight(rows, name, settings)) for name in names]
    block_size, session = max(1, COUNTS_AT_ONCE // n_boot), rows.log.session
    columns_of_block = partial(_block_columns, rows, used, midpoint(rows.log.reward))
    session_totals = None
    if session is not None:
        # what is resampled of each session is the sum of its rounds, [G, C]
        session_totals = np.zeros((rows.log.sessions, columns_of_block(slice(0)).shape[1]))
        for start in range(0, len(rows.weight), block_size):
            block = slice(start, start + block_size)
            np.add.at(session_totals, session[block], columns_of_block(block))
    # rounds or sessions
    n_units = len(rows.weight) if session_totals is None else len(session_totals)
    block_totals = run_each(
        _resampled_sums,
        range(0, n_units, block_size),
        columns_of_block,
        session_totals,
        block_size,
        n_boot,
        seed,
        what="resample",
        unit="block of rounds",
    )
    total = np.asarray(sum(block_totals))
    # The columns of the estimators are next to each other, in their order.
    ends = np.cumsum([3 * len(rows.mass) + 2 if _refits(rows, name) else 2 for name in names])
    parts = np.split(total, ends[:-1], axis=1)
    return np.stack(
        [_resample_values(part, rows, name) for name, part in zip(names, parts, strict=True)]
    )


def _resampled_sums(
    start: int,
    columns_of_block: Callable[[slice], FloatArray],
    session_totals: FloatArray | None,
    block_size: int,
    n_boot: int,
    seed: np.random.SeedSequence,
) -> FloatArray:
    """What the resamples hold of a block of rounds, or of sessions, from `start` on, [B, C].

    The counts are those of one stream over all blocks, which is moved on to this one: two counts a
    draw of 32 bits, two of those a step of the generator, and what is left of a draw at the end of
    a block is dropped.
    """
    rng = np.random.default_rng(seed)
    before = start // block_size * (-(-n_boot * block_size // 2))
    rng.bit_generator.advance(before // 2)  # type: ignore[attr-defined] # it is PCG64
    if before % 2:
        rng.integers(0, 2**32, dtype=np.uint32)
    block = slice(start, start + block_size)
    part = columns_of_block(block) if session_totals is None else session_totals[block]
    counts = _poisson()[rng.integers(0, 2**16, size=(n_boot, len(part)), dtype=np.uint16)]
    return np.einsum("br,rc->bc", counts, part)  # not by BLAS, whose bits hang on its threads


@cache
def _poisson() -> FloatArray:
    """Poisson(1) counts by a uniform 16-bit number, [65536]."""
    edges = np.round(np.cumsum([exp(-1.0) / factorial(k) for k in range(9)]) * 2**16).astype(
        np.int64
    )
    return np.repeat(np.arange(10.0), np.diff(edges, prepend=0, append=2**16))


def _block_columns(
    rows: EvaluationRows, used: Sequence[tuple[str, FloatArray | None]], middle: float, part: slice
) -> FloatArray:
    """What is resampled of each round of a block, [size, C]."""
    columns = (_summed_columns(rows, name, weight, part, middle) for name, weight in used)
    return np.concatenate([*columns], axis=1)


def _refits(rows: EvaluationRows, name: str) -> bool:
    return name in MODELLED and rows.fitted


def _summed_columns(
    rows: EvaluationRows, name: str, weight: FloatArray | None, part: slice, middle: float
) -> FloatArray:
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
    return np.column_stack(
        [ones, used * off, arm, arm * off[:, None], rows.target[part] - arm * used[:, None]]
    )


def _resample_values(sums: FloatArray, rows: EvaluationRows, name: str) -> FloatArray:
    """Value of each resample from its sums, [B]; NaN where the denominator is 0."""
    middle = midpoint(rows.log.reward)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.asarray(sums[:, 1] / sums[:, 0])
        if not _refits(rows, name):
            return value + middle if name in NORMALISED else value
        pulls, totals, owed = np.split(sums[:, 2:], 3, axis=1)
        means = np.where(pulls > 0.0, totals / pulls, (totals.sum(axis=1) / sums[:, 0])[:, None])
        return np.asarray(middle + value + (means * owed).sum(axis=1) / sums[:, 0])


def bernstein(used: FloatArray, reward: FloatArray, clip: float, delta: float) -> float:
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
