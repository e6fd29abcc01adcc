"""Half samples of a table (shore): learners trained again on halves of the cases, and the intervals that follow (S4.7).

A learner's path depends on the table: on other cases it would have chosen other arms. An interval that holds its paths
fixed is too narrow where it follows the table, and too wide where the reference follows it too. So every learner is
trained again on halves of the cases, and the best fixed arm is chosen again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.budget import Budget
from raglab.bandit.environments import BLOCK, POLICY, Table, check_world, feed, stream
from raglab.bandit.learner import Bandit
from raglab.bandit.ledgers import Ledger
from raglab.bandit.simulation import first_ledger, is_plain, kernel, ledger_arms, stepwise_arms
from raglab.metrics.intervals import t_quantile

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
TWINS = 2  # replications of each half: their chance is independent, so that it cancels from their product
REPLICATIONS = 200  # on half samples where none are stated: 50 pairs of halves, one block
LEAST_FREEDOM = 2.0  # degrees of freedom; fewer would make an interval of any width
MOST_SKEW = 1.5
FIRST_BLOCK = 2**20  # number of the first block on half samples: its streams are those of no other block
STREAM = 77  # of the halves themselves


class HalfSamples(NamedTuple):
    """Replications that each draw their cases from one half of the table; N = H pairs × 2 halves × 2 twins.

    member: cases of each half, [H, 2, Q]. case: row of the table by round and replication, [T, N]. counts: how often
    each replication draws each case, [N, Q].
    """

    member: Bools
    case: NDArray[np.int32]
    counts: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """Pairs, halves and twins, (H, 2, 2), in which the N replications are ordered."""
        return (len(self.member), 2, TWINS)


class Account(NamedTuple):
    """What a policy earns a round: on the table, and on halves of it.

    mean: of each replication on the table, [R]. by_case: of a round of each case, [Q]. half: on the half samples,
    [H, 2, 2]. fixed: whether it does on every table what it does on this one.
    """

    mean: Array
    by_case: Array
    half: Array
    fixed: bool


def draw_half_samples(n_cases: int, rounds: int, replications: int, seed: int, *, ordered: bool = False) -> HalfSamples:
    """Random halves of the cases, and the cases that replications draw from them with replacement.

    Args:
      n_cases: of the table, Q, at least 2.
      rounds: of each replication, T.
      replications: at least so many; a pair of halves takes four.
      seed: of halves and draws.
      ordered: whether each replication meets its cases in the order of the table, which may drift.
    """
    pairs = max(2, -(-replications // (2 * TWINS)))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(FIRST_BLOCK, STREAM)))
    order = rng.permuted(np.tile(np.arange(n_cases, dtype=np.int32), (pairs, 1)), axis=1)
    member = np.zeros((pairs, 2, n_cases), np.bool_)
    case = np.empty((rounds, pairs, 2, TWINS), np.int32)
    # The first half of a permutation and the rest: both are plain samples, and they share no case.
    for side, part in enumerate((order[:, : n_cases // 2], order[:, n_cases // 2 :])):
        np.put_along_axis(member[:, side], part, values=True, axis=1)
        places = rng.integers(part.shape[1], size=(rounds, pairs, TWINS))
        case[:, :, side] = part[np.arange(pairs)[:, None], places]
    if ordered:
        case.sort(axis=0)
    flat = case.reshape(rounds, -1)
    place = flat + n_cases * np.arange(flat.shape[1])
    counts = np.bincount(place.ravel(), minlength=n_cases * flat.shape[1]).reshape(-1, n_cases)
    return HalfSamples(member, flat, counts.astype(np.float64))


def half_sample_values(
    bandit: Bandit,
    world: Table,
    halves: HalfSamples,
    *,
    seed: int,
    engine: str,
    work: float,
    budget: Budget | None = None,
) -> Array:
    """Mean value a round of a learner that learns on each half sample alone, [H, 2, 2].

    Args:
      world: every case and arm; what the learner sees is its reward.
      work: choices of the whole simulation, as `simulation.kernel` reads them.
      budget: that the learner keeps.
    """
    rounds, replications = halves.case.shape
    checked, means = check_world(world, rounds), []
    first = first_ledger(None, bandit, checked, budget)
    # Blocks as large as those of a simulation, each with a stream of its own.
    for number, start in enumerate(range(0, replications, BLOCK), FIRST_BLOCK):
        case = np.ascontiguousarray(halves.case[:, start : start + BLOCK])
        met = feed(checked, rounds, case.shape[1], seed, number)._replace(case=case)
        rng = stream(seed, number, POLICY)
        compiled = kernel(bandit, work, engine) if is_plain(bandit, met) else None
        if isinstance(first, Ledger) and isinstance(checked, Table):
            arm = ledger_arms(met, checked, bandit, rng, first)
        else:
            arm = stepwise_arms(met, bandit, rng) if compiled is None else compiled.played(met, bandit, rng)
        means.append(met.worth[case, arm].mean(axis=0))
    return np.concatenate(means).reshape(halves.shape)


def half_sample_means(by_case: Array, halves: HalfSamples) -> Array:
    """Mean over the cases that each replication draws, of numbers by case [Q]; [H, 2, 2]."""
    return (halves.counts @ by_case / len(halves.case)).reshape(halves.shape)


def best_arm_values(value: Array, arms: NDArray[np.int64], halves: HalfSamples) -> tuple[Array, Array]:
    """Value of the arm that is best on each half: on that half's draws, and on all cases of the other half.

    Args:
      value: of each case and arm, [Q, A]. arms: those that may be chosen.

    Returns: [H, 2, 2], and [H, 2].
    """
    pairs, n_cases = len(halves.member), len(value)
    totals = halves.member.reshape(-1, n_cases).astype(np.float64) @ value[:, arms]  # [2 H, arms]
    best = arms[totals.argmax(axis=1)]
    drawn = halves.counts.reshape(2 * pairs, TWINS, n_cases)
    own = np.einsum("htq,qh->ht", drawn, value[:, best]) / len(halves.case)
    apart = halves.member[:, ::-1].reshape(-1, n_cases)
    elsewhere = np.einsum("hq,qh->h", apart.astype(np.float64), value[:, best]) / apart.sum(axis=1)
    return own.reshape(halves.shape), elsewhere.reshape(pairs, 2)


def difference_interval(left: Account, right: Account, level: float) -> tuple[float, float]:
    """Interval of how much more the left policy earns a round than the right one, over fresh tables of as many cases.

    Where neither policy changes with the table the variance is that of the cases, s² / Q, and of the replications' own
    chance, s² / R, and the interval is a t interval. Else the variance of the table comes from the half samples (see
    `_retrained_variance`), and the interval reaches further on the side to which their distribution is skewed: there
    the variance would be larger. Degrees of freedom are Satterthwaite's. One case says nothing of others: NaN.

    Source: Satterthwaite 1946; Johnson 1978 (skewness); rule S4.7.
    """
    n_cases, replications = len(left.by_case), len(left.mean)
    middle = float(left.mean.mean() - right.mean.mean())
    if n_cases < 2:
        return float("nan"), float("nan")
    gap, half = left.mean - right.mean, left.half - right.half
    # Chance of replications side by side; a single one borrows that of the twins, and counts as often as they do.
    single = float(((half[..., 0] - half[..., 1]) ** 2).mean()) / 2.0
    chance = float(gap.var(ddof=1)) / replications if replications > 1 else single
    spread = 2.0 * chance**2 / (replications - 1 if replications > 1 else 2 * len(half))
    # The table: exact for policies that stay as they are, else by training again.
    skew = 0.0
    if left.fixed and right.fixed:
        table = float((left.by_case - right.by_case).var(ddof=1)) / n_cases
        spread += 2.0 * table**2 / (n_cases - 1)
    else:
        table, error = _retrained_variance(half)
        spread += error**2
    variance = max(table, 0.0) + chance
    if variance <= 0.0 and not (left.fixed and right.fixed):
        # Few halves may give a variance below 0; their plain spread, own chance and all, errs to the wide side.
        variance = float(half.mean(axis=2).var(ddof=1))
        spread = 2.0 * variance**2 / (2 * len(half) - 1)
    if variance <= 0.0:
        return middle, middle
    if not (left.fixed and right.fixed):
        skew = _retrained_skewness(half, variance)
    # Twice the variance squared over the variance of the variance: few degrees where little is known of it.
    t = t_quantile(max(2.0 * variance**2 / spread, LEAST_FREEDOM), level)
    reach, shift = t * variance**0.5, skew * variance**0.5 / 6.0 * (1.0 + t_quantile(np.inf, level) ** 2)
    return middle - reach + min(shift, 0.0), middle + reach + max(shift, 0.0)


def _retrained_variance(half: Array) -> tuple[float, float]:
    """Variance over tables of Q cases of what half samples give, [H, 2, 2], and its standard error.

    Twins have the same cases and other chance, so that products of twins hold the variance of the cases alone. Two
    estimates are averaged. Half the difference of the two halves of a pair, which are independent tables, has the
    variance of the whole table: right where arms are equal, too small where a small table is harder to learn from. The
    spread of all halves around their mean, as in a bootstrap, errs to the other side.
    """
    n = 2 * len(half)
    off = half - half.mean()
    within = off[..., 0] * off[..., 1]  # of each half, [H, 2]
    # All four products across the halves of a pair: no twin of one half shares chance with one of the other.
    across = off[:, 0].sum(axis=1) * off[:, 1].sum(axis=1) / 4.0
    paired = (within.sum(axis=1) - 2.0 * across) / 4.0
    around = within.mean(axis=1) * n / (n - 1)
    both = (paired + around) / 2.0
    return float(both.mean()), float(both.std(ddof=1)) / len(both) ** 0.5


def _retrained_skewness(half: Array, variance: float) -> float:
    """Skewness of what half samples give, on the scale of the variance; 0 as far as their own chance explains it."""
    values = half.mean(axis=2).ravel()
    off = values - values.mean()
    skew = float((off**3).mean()) / variance**1.5
    error = (float(off.var()) / variance) ** 1.5 * (6.0 / len(values)) ** 0.5
    return float(np.clip(skew, -MOST_SKEW, MOST_SKEW)) * max(0.0, 1.0 - (error / skew) ** 2) if skew else 0.0
