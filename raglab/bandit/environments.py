"""Simulation environments (algebra): Bernoulli arms and reward tables, and their draws from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import check_count, refuse
from raglab.characters import visible

if TYPE_CHECKING:
    import pandas as pd


Array = NDArray[np.float64]


class Table(NamedTuple):
    """Full information: every arm of every case measured."""

    arms: tuple[str, ...]
    value: NDArray[np.float64]  # [Q, A] what counts, such as a right decision, 0 or 1
    reward: NDArray[np.float64]  # [Q, A] what the learner sees, in [0, 1]; NaN never arrives
    mask: NDArray[np.bool_]  # [Q, A] arms available
    features: NDArray[np.float64]  # [Q, F] contexts; F may be 0
    feature_names: tuple[str, ...]
    ms: NDArray[np.float64]  # [Q, A] milliseconds; NaN unknown

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return len(self.arms)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        costs: Mapping[str, float] | pd.Series[float] | None = None,
        features: Sequence[str] = (),
    ) -> Self:
        """Table of stored rewards: a row a round, a column an arm.

        A reward that is missing says that the arm was not available in that round. With costs what counts is reward
        minus cost, and the learner sees the same moved into [0, 1]: (reward - cost + highest) / (1 + highest - lowest),
        over the arms' costs.

        Args:
          frame: rewards in [0, 1], [Q, A], beside the features; arms in the order of their columns.
          costs: of one choice of each arm, in the unit of the reward, at least 0; every arm has one.
          features: columns that are the context, finite numbers; no arms.

        Raises:
          ValueError: a column or cell breaks a rule; the message names row and column, and counts the bad cells.

        Example:
          >>> import pandas as pd
          >>> frame = pd.DataFrame({"bm25": [1.0, 0.0], "hybrid": [1.0, None]})
          >>> Table.from_frame(frame, costs={"bm25": 0.0, "hybrid": 0.25}).value.tolist()
          [[1.0, 0.75], [0.0, nan]]
        """
        # What is not named as a feature counts as an arm, so a stray column is refused and never played.
        heads = _frame_heads(frame, features)
        arms = tuple(head for head in heads if head not in features)
        reward = _frame_numbers(
            frame,
            arms,
            heads,
            "a reward",
            (0.0, 1.0),
            "normalise it (rule S4.4), or name a column that is no arm in features or drop it",
        )
        context = _frame_numbers(frame, features, heads, "a feature", (-np.inf, np.inf), "fill or drop it")
        # A missing reward marks an arm as not available; a round without any arm leaves nothing to choose.
        mask = ~np.isnan(reward)
        if not mask.any(axis=1).all():
            row = _frame_place(frame, int(np.flatnonzero(~mask.any(axis=1))[0]))
            _refuse_frame("a round must have a reward of some arm", f"none in {row}", "drop the row")
        # A context without a number has no linear score, and nothing may stand in for it.
        if np.isnan(context).any():
            at, number = (int(place[0]) for place in np.nonzero(np.isnan(context)))
            came = f"none in {_frame_place(frame, at)}, column {features[number]}"
            _refuse_frame("a feature must not be missing", came, "fill or drop it")
        # Costs can push a value out of [0, 1], where Beta learners need it: the learner sees it moved and scaled.
        value, seen = reward, reward
        if costs is not None:
            price = _costs_of_arms(costs, arms)
            value = reward - price
            seen = np.clip((value + price.max()) / (1.0 + price.max() - price.min()), 0.0, 1.0)
        made = cls(arms, value, seen, mask, context, tuple(features), np.full(mask.shape, np.nan))
        _check_table(made)
        return made


def _frame_heads(frame: pd.DataFrame, features: Sequence[str]) -> list[str]:
    """Names of the columns of a frame of rewards."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        _refuse_frame("rewards must be a pandas DataFrame", type(frame).__name__, "wrap them in one, a column an arm")
    heads = [str(head) for head in frame.columns]
    if len(set(heads)) < len(heads):
        twice = next(head for place, head in enumerate(heads) if head in heads[:place])
        _refuse_frame("arms must have different names", f"{twice!r} twice", "rename or drop a column")
    missing = [str(name) for name in features if name not in heads] if not isinstance(features, str) else [features]
    if missing:
        rule = f"features must be a list of columns among {', '.join(heads)[:300]}"
        _refuse_frame(rule, ", ".join(missing)[:80], "correct the name")
    if not len(frame) or len(heads) == len(features):
        _refuse_frame("a frame must have a row and an arm", frame.shape, "write a row a round and a column an arm")
    return heads


def _frame_place(frame: pd.DataFrame, row: int) -> str:
    """Position of a row, and its label where that is another."""
    label = frame.index[row]
    same = isinstance(label, int | np.integer) and int(label) == row
    return f"row {row}" if same else f"row {row} (index {_shown(label)})"


def _frame_numbers(
    frame: pd.DataFrame,
    columns: Sequence[str],
    heads: Sequence[str],
    what: str,
    allowed: tuple[float, float],
    remedy: str,
) -> Array:
    """Numbers of some columns, float64 [rows, columns], NaN where missing; infinity is none."""
    out = np.full((len(frame), len(columns)), np.nan)
    wrong: list[tuple[int, str, Any]] = []
    for place, column in enumerate(columns):
        cells = frame.iloc[:, heads.index(column)]
        for row, (cell, gone) in enumerate(zip(cells.tolist(), cells.isna().tolist(), strict=True)):
            if gone:
                continue
            number: float = float(cell) if isinstance(cell, _NUMBERS) and -MOST <= cell <= MOST else np.nan
            if allowed[0] <= number <= allowed[1]:
                out[row, place] = number
            else:
                wrong.append((row, column, cell))
    if wrong:
        row, column, cell = min(wrong, key=lambda one: one[0])
        came = f"{_shown(cell)} in {_frame_place(frame, row)}, column {column}, one of {len(wrong)} such cells"
        rule = f"{what} must be a number" + (f" from {allowed[0]:g} to {allowed[1]:g}" if allowed[1] == 1.0 else "")
        _refuse_frame(rule, came, remedy)
    return out


def _costs_of_arms(costs: Mapping[str, float] | pd.Series[float], arms: Sequence[str]) -> Array:
    """Cost of each arm, [A]."""
    if not hasattr(costs, "items"):
        _refuse_frame(
            "costs must be a mapping or a Series by arm", type(costs).__name__, 'write {"bm25": 0.0, "hybrid": 0.1}'
        )
    given: dict[str, Any] = {str(arm): cost for arm, cost in costs.items()}
    if set(given) != set(arms):
        came = ", ".join(sorted(set(given) ^ set(arms)))[:200]
        _refuse_frame(
            f"costs must name each arm once, {', '.join(arms)[:300]}",
            f"{came} in one of the two alone",
            "complete them",
        )
    for arm, cost in given.items():
        if not isinstance(cost, _NUMBERS) or not 0.0 <= cost <= MOST:
            _refuse_frame(
                f"the cost of {arm} must be a number from 0", _shown(cost), "state it in the unit of the reward"
            )
    return np.array([float(given[arm]) for arm in arms])


def _refuse_frame(rule: str, came: object, remedy: str) -> NoReturn:
    """Refuse what a frame holds, in one line whatever its columns and cells are called."""
    refuse(visible(rule), visible(str(came)), remedy)


def _shown(cell: object) -> str:
    """A cell as a message shows it; Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(cell)[:80]
    except ValueError:
        return f"a {type(cell).__name__} too long to show"


_NUMBERS = (int, float, np.integer, np.floating)
MOST = 1e9  # of a feature or a cost; far more leaves the floats


class Bernoulli(NamedTuple):
    """Arms that pay 1 with a known probability, else 0; drifting where a row a round is given."""

    means: NDArray[np.float64]  # [A] or [T, A]
    mask: NDArray[np.bool_] | None = None  # [A] or [T, A] arms available

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return int(np.shape(self.means)[-1])


World = Table | Bernoulli


def check_world(world: World, rounds: int) -> World:
    """World with arrays of the right types.

    Raises:
      ValueError: shapes that do not fit, values outside their range, or a round without an arm.
    """
    if not isinstance(world, Table | Bernoulli):
        refuse("a world must be a Table or a Bernoulli", type(world).__name__, "write Bernoulli(means)")
    return _check_table(world) if isinstance(world, Table) else _check_bernoulli(world, rounds)


def _check_table(world: Table) -> Table:
    value, reward, ms, features = (
        np.asarray(array, dtype=np.float64) for array in (world.value, world.reward, world.ms, world.features)
    )
    mask = np.asarray(world.mask)
    shape = (len(value), len(world.arms))
    for name, array in (("value", value), ("reward", reward), ("mask", mask), ("ms", ms)):
        if array.shape != shape or 0 in shape:
            refuse(f"{name} must be [Q, A], a row a case and a column an arm, {shape}", array.shape, "fill it")
    if features.shape != (len(value), len(world.feature_names)):
        refuse("features must be [Q, F], a column a feature name", features.shape, "name each feature")
    _check_mask(mask)
    seen = reward[mask & ~np.isnan(reward)]
    if not ((seen >= 0.0) & (seen <= 1.0)).all():
        wrong = seen[~((seen >= 0.0) & (seen <= 1.0))][0]
        refuse("reward must be in [0, 1], or NaN where it never arrives", wrong, "normalise it (rule S4.4)")
    if not np.isfinite(value[mask]).all():
        refuse("value of an available arm must be finite", "NaN or infinity", "measure it, or mask the arm")
    if not np.isfinite(features).all():
        refuse("features must be finite", "NaN or infinity", "impute what is missing before")
    return world._replace(value=value, reward=reward, mask=mask, features=features, ms=ms)


def _check_bernoulli(world: Bernoulli, rounds: int) -> Bernoulli:
    means = np.asarray(world.means, dtype=np.float64)
    if means.ndim not in {1, 2} or 0 in means.shape:
        refuse("means must be [A] or [T, A]", means.shape, "give one probability an arm")
    if not ((means >= 0.0) & (means <= 1.0)).all():
        wrong = means[~((means >= 0.0) & (means <= 1.0))][0]
        refuse("means must be in [0, 1]", wrong, "they are probabilities of a reward of 1")
    if means.ndim == 2 and len(means) != rounds:
        refuse(f"drifting means must have a row a round, {rounds}", len(means), "give as many rows as rounds")
    if world.mask is None:
        return Bernoulli(means)
    mask = np.asarray(world.mask)
    if mask.shape not in {means.shape[-1:], (rounds, means.shape[-1])}:
        refuse(f"mask must be [A] or [T, A], {(rounds, means.shape[-1])}", mask.shape, "one boolean an arm")
    _check_mask(mask)
    return Bernoulli(means, None if mask.all() else mask)


def _check_mask(mask: NDArray[np.bool_]) -> None:
    if mask.dtype != np.bool_:
        refuse("mask must be of booleans", mask.dtype, "True where the arm is available")
    if not mask.any(axis=-1).all():
        refuse("mask must leave an arm in every round", "all false", "let one arm be available always")


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


def replication_blocks(replications: int) -> list[int]:
    """How many replications each block has."""
    return [min(BLOCK, replications - first) for first in range(0, replications, BLOCK)]


def check_delay(delay: int | tuple[int, int], missing: float) -> tuple[int, int]:
    """Least and greatest delay.

    Raises:
      ValueError: they are no whole numbers with 0 <= low <= high, or missing is no probability.
    """
    low, high = delay if isinstance(delay, tuple) else (delay, delay)
    low = check_count("delay", low, 0, "0 is a reward before the next choice")
    high = check_count("the greatest delay", high, low, "give (low, high) with low <= high")
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
    tables = _arms_from_table(world) if isinstance(world, Table) else _arms_from_means(world)
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


def _arms_from_table(world: Table) -> tuple[Array, Array, Array, NDArray[np.bool_] | None, Array]:
    mask = None if world.mask.all() else world.mask
    return world.value, world.value, world.reward, mask, world.features


def _arms_from_means(world: Bernoulli) -> tuple[Array, Array, Array, NDArray[np.bool_] | None, Array]:
    rows = max(1 if np.ndim(part) < 2 else len(part) for part in world if part is not None)
    means = np.ascontiguousarray(np.broadcast_to(world.means, (rows, world.n_arms)))
    mask = None if world.mask is None else np.ascontiguousarray(np.broadcast_to(world.mask, means.shape))
    return means, means, means, mask, np.zeros((rows, 0))


def _gap(worth: Array, mask: NDArray[np.bool_] | None) -> Array:
    best = (worth if mask is None else np.where(mask, worth, -np.inf)).max(axis=-1, keepdims=True)
    return best - worth


def play_accounts(met: Feed, arm: Arms) -> Accounts:
    """Regret, value and pulls of the arms chosen, [T, R]."""
    mine = np.ascontiguousarray(arm.T)
    case = None if met.case is None else np.ascontiguousarray(met.case.T)
    rows = case if case is not None else np.arange(met.rounds) if len(met.worth) > 1 else 0
    place = mine + np.asarray(rows, np.int64) * met.n_arms
    pulls = np.stack([(mine == number).sum(axis=1) for number in range(met.n_arms)], axis=1)
    regret, value = (np.take(table, place) for table in (met.gap, met.worth))
    return Accounts(np.cumsum(regret, 1, out=regret), np.cumsum(value, 1, out=value), pulls, mine, case)
