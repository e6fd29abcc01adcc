"""Half samples of a table (shore): learners trained again on halves of the cases, and the intervals that follow (S4.7).

A learner's path depends on the table: on other cases it would have chosen other arms. Two halves of the cases are two
independent tables, so that what a learner earns on one and on the other shows that dependence without bias, where a
bootstrap, which repeats cases, exaggerates the differences between arms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import BLOCK, POLICY, Table, feed, stream
from raglab.bandit.learner import Bandit
from raglab.bandit.simulation import is_plain, kernel, stepwise_arms
from raglab.metrics.intervals import t_quantile

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
TWINS = 2  # replications of each half: their chance is independent, so that it cancels from their product
REPLICATIONS = 100  # on half samples where none are stated: 25 pairs of halves
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
    [H, 2, 2]. held: the same, had the policy done in each half what it does on the table, [H, 2, 2]. fixed: whether it
    does so by definition.
    """

    mean: Array
    by_case: Array
    half: Array
    held: Array
    fixed: bool


def draw_half_samples(n_cases: int, rounds: int, replications: int, seed: int) -> HalfSamples:
    """Random halves of the cases, and the cases that replications draw from them with replacement.

    Args:
      n_cases: of the table, Q, at least 2.
      rounds: of each replication, T.
      replications: at least so many; a pair of halves takes four.
      seed: of halves and draws.
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
    flat = case.reshape(rounds, -1)
    place = flat + n_cases * np.arange(flat.shape[1])
    counts = np.bincount(place.ravel(), minlength=n_cases * flat.shape[1]).reshape(-1, n_cases)
    return HalfSamples(member, flat, counts.astype(np.float64))


def half_sample_values(
    bandit: Bandit, world: Table, halves: HalfSamples, *, seed: int, engine: str, work: float
) -> Array:
    """Mean value a round of a learner that learns on each half sample alone, [H, 2, 2].

    Args:
      world: a checked table.
      work: choices of the whole simulation, as `simulation.kernel` reads them.
    """
    rounds, replications = halves.case.shape
    means = []
    # Blocks as large as those of a simulation, each with a stream of its own.
    for number, start in enumerate(range(0, replications, BLOCK), FIRST_BLOCK):
        case = np.ascontiguousarray(halves.case[:, start : start + BLOCK])
        met = feed(world, rounds, case.shape[1], seed, number)._replace(case=case)
        rng = stream(seed, number, POLICY)
        compiled = kernel(bandit, work, engine) if is_plain(bandit, met) else None
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

    The variance of the difference has three parts, which are estimated apart and added:

    - held: what the cases alone make, had both policies done on other cases what they did on these, s² / Q;
    - retrained: what learning on other cases adds or takes away. Half the difference of two halves has the variance of
      the whole table; the product of its two twins is free of their chance. What `held` predicts for the same draws is
      subtracted from each product, so that only the change is left to estimate;
    - chance: of the replications on the table, s² / R.

    Degrees of freedom are Satterthwaite's. One case says nothing of others: NaN.

    Source: McCarthy 1969 (half samples); Efron and Stein 1981 (why the jackknife is too wide where arms are equal);
      Satterthwaite 1946; rule S4.7.
    """
    n_cases, replications = len(left.by_case), len(left.mean)
    middle = float(left.mean.mean() - right.mean.mean())
    if n_cases < 2:
        return float("nan"), float("nan")
    gap, apart = left.mean - right.mean, left.half - right.half
    # Cases: exact for policies that stay as they are, and the larger part for most others.
    held = float((left.by_case - right.by_case).var(ddof=1)) / n_cases
    spread = 2.0 * held**2 / (n_cases - 1)
    # Retraining: mean over pairs of halves of what the products of the twins have beyond the held ones.
    retrained = 0.0
    if not (left.fixed and right.fixed):
        contrast, known = _half_contrasts(apart), _half_contrasts(left.held - right.held)
        beyond = contrast.prod(axis=1) - known.prod(axis=1)
        retrained = float(beyond.mean())
        spread += float(beyond.var(ddof=1)) / len(beyond)
    # Chance: of replications side by side; a single one borrows that of the twins.
    if replications > 1:
        chance, freedom = float(gap.var(ddof=1)) / replications, replications - 1
    else:
        chance, freedom = float(((apart[..., 0] - apart[..., 1]) ** 2).mean()) / 2.0, 2 * len(apart)
    spread += 2.0 * chance**2 / freedom
    variance = max(held + retrained, 0.0) + chance
    if variance <= 0.0:
        return middle, middle
    reach = t_quantile(max(2.0 * variance**2 / spread, 1.0), level) * variance**0.5
    return middle - reach, middle + reach


def _half_contrasts(values: Array) -> Array:
    """Half the difference of the two halves of each pair, by twin, [H, 2]."""
    return (values[:, 0] - values[:, 1]) / 2.0
