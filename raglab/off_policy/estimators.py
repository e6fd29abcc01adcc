"""Off-policy estimators (algebra): IPS, SNIPS, direct, doubly robust, switch; intervals (S4.7)."""

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
NORMALISED_ESTIMATORS = ("replay", "snips")  # divided by the sum of their weights
MODEL_ESTIMATORS = ("dm", "dr", "switch_dr")  # read a reward model
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
    round_weights = rows.weight
    if name == "dm":
        return None
    if name == "clipped_ips":
        return np.minimum(round_weights, settings.clip)
    if name == "switch_dr":
        return np.where(round_weights <= settings.switch, round_weights, 0.0)
    if name == "replay":
        if settings.uniform is None:
            msg = "replay must be given a uniform for each round."
            raise ValueError(msg)
        return np.asarray(
            settings.uniform * max(round_weights.max(), np.finfo(float).tiny) < round_weights,
            dtype=np.float64,
        )
    return round_weights


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
    used_weights = estimator_weight(rows, name, settings)
    if used_weights is not None and name in NORMALISED_ESTIMATORS:
        return _ratio(rows, used_weights)
    if used_weights is None:
        round_scores = rows.expected.copy()
    elif name in MODEL_ESTIMATORS:
        round_scores = rows.log.reward - rows.predicted
        round_scores *= used_weights
        round_scores += rows.expected
    else:
        round_scores = rows.log.reward * used_weights
    mean_value = float(round_scores.mean())
    round_scores -= mean_value
    if name in MODEL_ESTIMATORS and rows.fitted:
        round_scores += _fitted_means(rows, used_weights)
    return Fit(mean_value, round_scores, used_weights)


def _ratio(rows: EvaluationRows, used_weights: FloatArray) -> Fit:
    """Mean reward under the weights; its influence is u (r − value) / mean(u)."""
    total = float(used_weights.sum())
    if total <= 0.0:
        return Fit(float("nan"), np.full(len(used_weights), np.nan), used_weights)
    # so that rewards which are all the same leave no rounding behind
    middle = midpoint(rows.log.reward)
    off = rows.log.reward - middle
    shift = float(np.einsum("i,i", used_weights, off)) / total
    off -= shift
    off *= used_weights
    off *= len(used_weights) / total
    return Fit(middle + shift, off, used_weights)


def _fitted_means(rows: EvaluationRows, used_weights: FloatArray | None) -> FloatArray:
    """What a round adds through the arms' means that were fitted to it, [T].

    The value changes by mass(a) − mean(u, arm a) with the mean reward of arm a, and that changes by
    (r − mean of a) / share of a with a round of arm a; the log's mean stands in for arms never
    logged.
    """
    log, n_rounds = rows.log, len(rows.weight)
    arm_shares = rows.pulls / n_rounds
    mean_slopes = rows.mass.copy()
    if used_weights is not None:
        mean_slopes -= (
            np.bincount(log.arm, weights=used_weights, minlength=len(mean_slopes)) / n_rounds
        )
    is_pulled = rows.pulls > 0
    mean_slopes[is_pulled] /= arm_shares[is_pulled]
    added_influence: FloatArray = (log.reward - rows.predicted) * mean_slopes[log.arm]
    if rows.unsupported > 0.0:
        added_influence += rows.unsupported * (log.reward - log.reward.mean())
    return added_influence


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
    sums_by_session = session_sums(influence, log)
    if len(sums_by_session) < 2:
        return float("nan")
    return sqrt(
        float(np.einsum("i,i", sums_by_session, sums_by_session))
        * len(sums_by_session)
        / (len(sums_by_session) - 1.0)
    ) / len(influence)


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
    weights_by_name = [
        (estimator, estimator_weight(rows, estimator, settings)) for estimator in names
    ]
    block_size, session = max(1, COUNTS_AT_ONCE // n_boot), rows.log.session
    columns_of_block = partial(_block_columns, rows, weights_by_name, midpoint(rows.log.reward))
    session_totals = None
    if session is not None:
        # what is resampled of each session is the sum of its rounds, [G, C]
        session_totals = np.zeros((rows.log.sessions, columns_of_block(slice(0)).shape[1]))
        for block_start in range(0, len(rows.weight), block_size):
            block = slice(block_start, block_start + block_size)
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
    resampled_totals = np.asarray(sum(block_totals))
    # The columns of the estimators are next to each other, in their order.
    column_ends = np.cumsum(
        [3 * len(rows.mass) + 2 if _refits(rows, estimator) else 2 for estimator in names]
    )
    estimator_columns = np.split(resampled_totals, column_ends[:-1], axis=1)
    return np.stack(
        [
            _resample_values(estimator_sums, rows, estimator)
            for estimator, estimator_sums in zip(names, estimator_columns, strict=True)
        ]
    )


def _resampled_sums(
    block_start: int,
    columns_of_block: Callable[[slice], FloatArray],
    session_totals: FloatArray | None,
    block_size: int,
    n_boot: int,
    seed: np.random.SeedSequence,
) -> FloatArray:
    """What the resamples hold of a block of rounds, or of sessions, from `block_start` on, [B, C].

    The counts are those of one stream over all blocks, which is moved on to this one: two counts a
    draw of 32 bits, two of those a step of the generator, and what is left of a draw at the end of
    a block is dropped.
    """
    rng = np.random.default_rng(seed)
    n_drawn_before = block_start // block_size * (-(-n_boot * block_size // 2))
    rng.bit_generator.advance(n_drawn_before // 2)  # type: ignore[attr-defined] # it is PCG64
    if n_drawn_before % 2:
        rng.integers(0, 2**32, dtype=np.uint32)
    block = slice(block_start, block_start + block_size)
    block_rows = columns_of_block(block) if session_totals is None else session_totals[block]
    poisson_counts = _poisson()[
        rng.integers(0, 2**16, size=(n_boot, len(block_rows)), dtype=np.uint16)
    ]
    return np.einsum(
        "br,rc->bc", poisson_counts, block_rows
    )  # not by BLAS, whose bits hang on its threads


@cache
def _poisson() -> FloatArray:
    """Poisson(1) counts by a uniform 16-bit number, [65536]."""
    edges = np.round(np.cumsum([exp(-1.0) / factorial(k) for k in range(9)]) * 2**16).astype(
        np.int64
    )
    return np.repeat(np.arange(10.0), np.diff(edges, prepend=0, append=2**16))


def _block_columns(
    rows: EvaluationRows,
    weights_by_name: Sequence[tuple[str, FloatArray | None]],
    middle: float,
    block: slice,
) -> FloatArray:
    """What is resampled of each round of a block, [size, C]."""
    column_blocks = (
        _summed_columns(rows, estimator, weight, block, middle)
        for estimator, weight in weights_by_name
    )
    return np.concatenate([*column_blocks], axis=1)


def _refits(rows: EvaluationRows, estimator: str) -> bool:
    return estimator in MODEL_ESTIMATORS and rows.fitted


def _summed_columns(
    rows: EvaluationRows, estimator: str, weight: FloatArray | None, block: slice, middle: float
) -> FloatArray:
    """What is summed of each round, [chunk, C]."""
    reward = rows.log.reward[block]
    used = np.zeros(len(reward)) if weight is None else weight[block]
    if estimator in NORMALISED_ESTIMATORS:
        return np.column_stack([used, used * (reward - middle)])
    ones = np.ones(len(reward))
    if estimator not in MODEL_ESTIMATORS:
        return np.column_stack([ones, used * reward])
    if not rows.fitted:
        return np.column_stack(
            [ones, rows.expected[block] + used * (reward - rows.predicted[block])]
        )
    off = reward - middle
    arm = (rows.log.arm[block, None] == np.arange(len(rows.mass))).astype(np.float64)
    return np.column_stack(
        [ones, used * off, arm, arm * off[:, None], rows.target[block] - arm * used[:, None]]
    )


def _resample_values(sums: FloatArray, rows: EvaluationRows, estimator: str) -> FloatArray:
    """Value of each resample from its sums, [B]; NaN where the denominator is 0."""
    reward_midpoint = midpoint(rows.log.reward)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_values = np.asarray(sums[:, 1] / sums[:, 0])
        if not _refits(rows, estimator):
            return (
                mean_values + reward_midpoint if estimator in NORMALISED_ESTIMATORS else mean_values
            )
        arm_pulls, arm_rewards, owed_weights = np.split(sums[:, 2:], 3, axis=1)
        arm_means = np.where(
            arm_pulls > 0.0,
            arm_rewards / arm_pulls,
            (arm_rewards.sum(axis=1) / sums[:, 0])[:, None],
        )
        return np.asarray(
            reward_midpoint + mean_values + (arm_means * owed_weights).sum(axis=1) / sums[:, 0]
        )


def bernstein(used: FloatArray, reward: FloatArray, clip: float, delta: float) -> float:
    """Lower bound, at confidence 1 − delta, of the mean of used × reward in [0, clip].

    Source: Maurer and Pontil 2009, theorem 4.
    """
    n_rounds = len(used)
    if n_rounds < 2:
        return 0.0
    weighed_rewards = used * reward
    log_term = ln(2.0 / delta)
    spread_term = sqrt(2.0 * float(weighed_rewards.var(ddof=1)) * log_term / n_rounds)
    return max(
        0.0,
        float(weighed_rewards.mean())
        - spread_term
        - 7.0 * clip * log_term / (3.0 * (n_rounds - 1.0)),
    )
