"""What a block of replications meets: cases, rewards, delays, drawn without a look at the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import check_whole, refuse
from raglab._worlds import Bernoulli, Table, World

Array = NDArray[np.float64]
Arms = NDArray[np.int8]
BLOCK = 200  # replications that share one spawned stream; fixed, so that the bits are; of 100 half as fast
REWARDS, DELAYS, LOST, POLICY = range(4)  # streams of a block


class Feed(NamedTuple):
    """A block of a world; its tables have a row a case, a row a round, or one row, [N, A]."""

    rounds: int
    size: int  # replications, R
    worth: Array  # [N, A] what counts: the value of the case, or the mean
    gap: Array  # [N, A] what the best available arm is worth more
    reward: Array  # [N, A] what the learner sees, or the probability that it is 1
    mask: NDArray[np.bool_] | None  # [N, A]; none where every arm is available
    uniform: Array | None  # [T, R] a reward is 1 where it is below the mean; none for a table
    case: NDArray[np.int32] | None  # [T, R] row of the table; none for known means
    features: Array  # [N, F]
    delay: NDArray[np.int64] | int  # [T, R] rounds until the reward is there, or the same for all
    lost: NDArray[np.bool_] | None  # [T, R] reward never arrives

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return self.worth.shape[-1]

    def row(self, t: int) -> NDArray[np.int32] | int:
        """Row of the tables at round t: of each replication, or one for all."""
        if self.case is not None:
            return self.case[t]
        return t if len(self.worth) > 1 else 0

    def open(self, t: int) -> NDArray[np.bool_] | None:
        """Arms available at round t, [R, A]."""
        return None if self.mask is None else np.broadcast_to(self.mask[self.row(t)], (self.size, self.n_arms))

    def rewards(self, t: NDArray[np.int64], replication: NDArray[np.int64], arm: NDArray[np.int64]) -> Array:
        """Rewards [N] of rounds that were chosen; NaN never arrives."""
        if self.uniform is None:
            rows = t if self.case is None else self.case[t, replication]
            return self.reward[rows, arm]
        means = self.reward[t if len(self.reward) > 1 else 0, arm]
        return np.asarray(self.uniform[t, replication] < means, np.float64)


class Accounts(NamedTuple):
    """What a block of replications came to."""

    regret: Array  # [R, T] cumulative
    value: Array  # [R, T] cumulative
    pulls: NDArray[np.int64]  # [R, A]
    arm: Arms  # [R, T]
    case: NDArray[np.int32] | None  # [R, T]


def stream(seed: int, block: int, kind: int) -> np.random.Generator:
    """Generator of one block and one purpose."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block, kind)))


def blocks(replications: int) -> list[int]:
    """How many replications each block has."""
    return [min(BLOCK, replications - first) for first in range(0, replications, BLOCK)]


def check_delay(delay: int | tuple[int, int], missing: float) -> tuple[int, int]:
    """Least and greatest delay.

    Raises:
      ValueError: they are no whole numbers with 0 <= low <= high, or missing is no probability.
    """
    low, high = delay if isinstance(delay, tuple) else (delay, delay)
    low = check_whole("delay", low, 0, "0 is a reward before the next choice")
    high = check_whole("the greatest delay", high, low, "give (low, high) with low <= high")
    if not 0.0 <= missing <= 1.0:
        refuse("missing must be in [0, 1]", missing, "it is the probability that a reward never arrives")
    return low, high


def feed(
    world: World,
    rounds: int,
    size: int,
    seed: int,
    block: int,
    *,
    delay: tuple[int, int] = (0, 0),
    missing: float = 0.0,
) -> Feed:
    """Block of a world that was checked; hangs on seed and block alone, and is the same for every policy."""
    tables = _of_table(world) if isinstance(world, Table) else _of_means(world)
    worth, _, _, mask, features = tables
    rng, shape = stream(seed, block, REWARDS), (rounds, size)
    low, high = delay
    return Feed(
        rounds,
        size,
        worth,
        _gap(worth, mask),
        *tables[2:4],
        None if isinstance(world, Table) else rng.random(shape),
        rng.integers(len(worth), size=shape, dtype=np.int32) if isinstance(world, Table) else None,
        features,
        low if low == high else stream(seed, block, DELAYS).integers(low, high, size=shape, endpoint=True),
        stream(seed, block, LOST).random(shape) < missing if missing > 0.0 else None,
    )


def _of_table(world: Table) -> tuple[Array, Array, Array, NDArray[np.bool_] | None, Array]:
    mask = None if world.mask.all() else world.mask
    return world.value, world.value, world.reward, mask, world.features


def _of_means(world: Bernoulli) -> tuple[Array, Array, Array, NDArray[np.bool_] | None, Array]:
    rows = max(1 if np.ndim(part) < 2 else len(part) for part in world if part is not None)
    means = np.ascontiguousarray(np.broadcast_to(world.means, (rows, world.n_arms)))
    mask = None if world.mask is None else np.ascontiguousarray(np.broadcast_to(world.mask, means.shape))
    return means, means, means, mask, np.zeros((rows, 0))


def _gap(worth: Array, mask: NDArray[np.bool_] | None) -> Array:
    best = (worth if mask is None else np.where(mask, worth, -np.inf)).max(axis=-1, keepdims=True)
    return best - worth


def accounts(met: Feed, arm: Arms) -> Accounts:
    """Regret, value and pulls of the arms chosen, [T, R]."""
    mine = np.ascontiguousarray(arm.T)
    case = None if met.case is None else np.ascontiguousarray(met.case.T)
    rows = case if case is not None else np.arange(met.rounds) if len(met.worth) > 1 else 0
    place = mine + np.asarray(rows, np.int64) * met.n_arms
    pulls = np.stack([(mine == number).sum(axis=1) for number in range(met.n_arms)], axis=1)
    regret, value = (np.take(table, place) for table in (met.gap, met.worth))
    return Accounts(np.cumsum(regret, 1, out=regret), np.cumsum(value, 1, out=value), pulls, mine, case)
