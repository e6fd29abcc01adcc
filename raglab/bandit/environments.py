"""Simulation environments (algebra): Bernoulli arms, reward tables, and their draws from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import is_number
from raglab.arguments.user_warnings import warn_user
from raglab.bandit.learner import check_count, check_mask
from raglab.bandit.table_frames import Costs, is_whole, read_frame
from raglab.values import BoolArray, CodeArray, FloatArray, IntArray, NumberArray, refuse

if TYPE_CHECKING:
    import pandas as pd


PLAY_ORDERS = ("replacement", "shuffled", "given")
NO_COSTS = np.zeros((1, 1))  # cost of every arm in every round, where none is stated
NO_COSTS.flags.writeable = False


class Table(NamedTuple):
    """Full information: every arm of every case measured.

    Attributes:
      arms: names, [A].
      value: [Q, A] what counts, net of price * cost, such as a right decision, 0 or 1.
      reward: [Q, A] what the learner sees, in [0, 1]; NaN never arrives.
      mask: [Q, A] arms available.
      features: [Q, F] contexts; F may be 0.
      feature_names: of the features, [F].
      ms: [Q, A] milliseconds; NaN unknown.
      cost: in the user's unit, [Q, A], at least 0; NaN where an arm that is not available states
        none, and a single 0 where there are no costs.
      price: value lost a unit of cost; 0 counts costs without charging them.
      order: in which a simulation plays the rows, `replacement` (a row drawn for each round),
        `shuffled` (a permutation of the rows in each replication), or `given` (row t in round t);
        of the last two each row is played once at most.
      delay: rounds until the reward arrives, [Q] or [Q, A]; None: at once.
      cost_range: least and largest cost that the learner's reward is scaled by; None: those of the
        table.
    """

    arms: tuple[str, ...]
    value: FloatArray
    reward: FloatArray
    mask: BoolArray
    features: FloatArray
    feature_names: tuple[str, ...]
    ms: FloatArray
    cost: FloatArray = NO_COSTS  # [Q, A]; NaN where an arm that is not available states none
    price: float = 0.0
    order: str = "replacement"
    delay: IntArray | None = None  # [Q] or [Q, A]
    cost_range: tuple[float, float] | None = None

    def __repr__(self) -> str:
        n_cases = len(self.value)
        n_features = len(self.feature_names)
        text = f", price {self.price:g}" if self.is_charged else ""
        return (
            f"Table({n_cases:,} cases × {self.n_arms} arms {', '.join(self.arms)!r:.120}, "
            f"{n_features} features{text})"
        )

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return len(self.arms)

    @property
    def has_costs(self) -> bool:
        """Whether some choice costs something."""
        return bool(np.any(self.cost > 0.0))

    @property
    def is_charged(self) -> bool:
        """Whether costs lower the value: some price times cost is above 0."""
        return self.price > 0.0 and self.has_costs

    @property
    def gross(self) -> FloatArray:
        """Value before costs, [Q, A]: value + price * cost."""
        return self.value + self.price * self.cost

    def priced(self, price: float) -> Self:
        """Table under another price of a unit of cost: value and reward are computed again.

        Value is gross value minus price times cost; the learner sees gross reward minus price times
        cost, moved into [0, 1] as in `from_frame`.

        Args:
          price: value lost a unit of cost, at least 0.

        Raises:
          ValueError: a price below 0 or not finite.

        Example:
          >>> import pandas as pd
          >>> frame = pd.DataFrame({"small": [0.5, 1.0], "large": [1.0, 1.0]})
          >>> table = Table.from_frame(
          ...     frame, costs={"small": 0.0, "large": 2.0}, price=0.25, order="given"
          ... )
          >>> table.value.tolist(), table.priced(0.0).value.tolist()
          ([[0.5, 0.5], [1.0, 0.5]], [[0.5, 1.0], [1.0, 1.0]])
        """
        _check_costing(price, None)
        if price == self.price:
            return self
        lowest_cost, highest_cost = self.cost_range or (
            float(np.nanmin(self.cost)),
            float(np.nanmax(self.cost)),
        )
        gross_reward = self.reward * (
            1.0 + self.price * (highest_cost - lowest_cost)
        ) + self.price * (self.cost - highest_cost)
        lowest_charge = price * lowest_cost
        highest_charge = price * highest_cost
        # costs can push it out of [0, 1], where Beta learners need it
        reward = np.clip(
            (gross_reward - price * self.cost + highest_charge)
            / (1.0 + highest_charge - lowest_charge),
            0.0,
            1.0,
        )
        value = self.gross - price * self.cost
        return self._replace(value=value, reward=reward, price=float(price))

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        costs: Costs | None = None,
        price: float | None = None,
        features: Sequence[str] = (),
        intercept: bool = True,
        order: str | None = None,
        delay: int | str | ArrayLike | None = None,
        mask: ArrayLike | pd.DataFrame | None = None,
        cost_range: tuple[float, float] | None = None,
    ) -> Self:
        """Table of stored rewards: a row a round, a column an arm.

        A missing reward means that the arm was not available in that round. With costs the value is
        reward minus price times cost, and the learner gets the same moved into [0, 1]: (reward -
        price * cost + highest) / (1 + highest - lowest), where highest and lowest are the ends of
        price * cost over the table, or of `cost_range`, in which two tables share a scale.

        Args:
          frame: rewards in [0, 1], [Q, A], and the columns named below; arms in the order of their
            columns.
          costs: of one choice of each arm, at least 0, in any unit: a number or the name of a
            column by arm, or [Q, A], as an array or as a frame with a column an arm.
          price: value lost a unit of cost, needed with costs; 1 where they are in the unit of the
            reward. 0 counts them, charging none.
          features: columns that are the context, finite numbers; no arms.
          intercept: whether a feature `intercept` of ones is added in front, where no feature is
            constant: without one a linear learner cannot tell a good arm from a poor one where its
            features are 0.
          order: in which a simulation plays the rows, `given` (row t in round t), `shuffled` (a
            permutation in each replication) or `replacement`. None: replacement, with a warning.
          delay: rounds until a reward is there: of all, a column, [Q], or [Q, A].
          mask: booleans [Q, A], False where an arm has a reward but was not available.
          cost_range: least and largest cost that the learner's reward is scaled by.

        Raises:
          ValueError: a column or cell breaks a rule; the message names row and column, and counts
            the bad cells.

        Example:
          >>> import pandas as pd
          >>> frame = pd.DataFrame({"bm25": [1.0, 0.0], "hybrid": [1.0, None]})
          >>> Table.from_frame(
          ...     frame, costs={"bm25": 0.0, "hybrid": 0.25}, price=1.0, order="given"
          ... ).value.tolist()
          [[1.0, 0.75], [0.0, nan]]
        """
        if costs is None and (price is not None or cost_range is not None):
            refuse("a price and a cost_range need costs", "none", "state costs, or leave both out")
        if price is None and costs is not None:
            refuse(
                "costs need a price, the value lost a unit of cost",
                "none",
                "write price=1.0 where costs are in the unit of the reward, 0.0 to charge none",
            )
        charge = 0.0 if price is None else price
        _check_costing(charge, cost_range)
        frame_arrays = read_frame(
            frame, costs=costs, features=features, intercept=intercept, delay=delay, mask=mask
        )
        unknown_ms = np.full(frame_arrays.mask.shape, np.nan)
        table = cls(
            frame_arrays.arms,
            frame_arrays.reward,
            frame_arrays.reward,
            frame_arrays.mask,
            frame_arrays.features,
            frame_arrays.feature_names,
            unknown_ms,
            order="replacement" if order is None else order,
            delay=frame_arrays.delay,
        )
        # costs are charged by the rule of `priced`, from a table that counts them at a price of 0
        if frame_arrays.cost is not None:
            table = table._replace(cost=frame_arrays.cost, cost_range=cost_range).priced(charge)
        checked_table = _check_table(table)
        if order is None:
            warn_user(
                f"The order of the {len(frame)} rows is not stated: they are drawn with "
                'replacement. State order="given", "shuffled" or "replacement" (rule S4.7).'
            )
        return table._replace(delay=checked_table.delay)


def _check_costing(price: object, cost_range: object) -> None:
    """Refuse a price that is no number from 0, and a range of costs that is not two of them."""
    if not _from_zero(price):
        refuse("price must be a number from 0", repr(price), "0 charges nothing")
    if cost_range is None:
        return
    range_ends = tuple(cost_range) if isinstance(cost_range, tuple | list) else ()
    if (
        len(range_ends) != 2
        or not all(map(_from_zero, range_ends))
        or range_ends[0] > range_ends[1]
    ):
        refuse(
            "cost_range must be the least and the largest cost, two numbers from 0",
            repr(cost_range),
            "state both",
        )


def _from_zero(candidate: object) -> bool:
    """Whether a value is a number from 0."""
    return is_number(candidate) and bool(0.0 <= candidate < np.inf)


class Bernoulli(NamedTuple):
    """Arms that pay 1 with a known probability, else 0; drifting where a row a round is given.

    Attributes:
      means: [A] or [T, A].
      mask: [A] or [T, A] arms available.
    """

    means: FloatArray
    mask: BoolArray | None = None

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return int(np.shape(self.means)[-1])


World = Table | Bernoulli


def table_costs(table: Table) -> FloatArray:
    """Costs [Q, A] of a table; one 0 stands for all where it has none."""
    return np.broadcast_to(np.asarray(table.cost, np.float64), table.mask.shape)


def check_world(world: World, rounds: int) -> World:
    """World with arrays of the right types.

    Raises:
      ValueError: shapes that do not fit, values outside their range, or a round without an arm.
    """
    if not isinstance(world, Table | Bernoulli):
        refuse(
            "a world must be a Table or a Bernoulli", type(world).__name__, "write Bernoulli(means)"
        )
    return (
        _check_table(world, rounds) if isinstance(world, Table) else _check_bernoulli(world, rounds)
    )


def _check_table(world: Table, rounds: int = 1) -> Table:
    values, reward_table, ms, features = (
        np.asarray(checked_array, dtype=np.float64)
        for checked_array in (world.value, world.reward, world.ms, world.features)
    )
    mask = np.asarray(world.mask)
    table_shape = (len(values), len(world.arms))
    for array_name, checked_array in (
        ("value", values),
        ("reward", reward_table),
        ("mask", mask),
        ("ms", ms),
    ):
        if checked_array.shape != table_shape or 0 in table_shape:
            refuse(
                f"{array_name} must be [Q, A], a row a case and a column an arm, {table_shape}",
                checked_array.shape,
                "fill it",
            )
    if features.shape != (len(values), len(world.feature_names)):
        refuse(
            "features must be [Q, F], a column a feature name", features.shape, "name each feature"
        )
    check_mask(mask, table_shape)
    rewards = reward_table[mask & ~np.isnan(reward_table)]
    wrong_rewards = rewards[~((rewards >= 0.0) & (rewards <= 1.0))]
    if len(wrong_rewards):
        refuse(
            "reward must be in [0, 1], or NaN where it never arrives",
            wrong_rewards[0],
            "normalise it (rule S4.4)",
        )
    for array_name, checked_array in (
        ("value of an available arm", values[mask]),
        ("features", features),
    ):
        if not np.isfinite(checked_array).all():
            refuse(f"{array_name} must be finite", "NaN or infinity", "mask the arm, or impute it")
    checked_table = world._replace(
        value=values, reward=reward_table, mask=mask, features=features, ms=ms
    )
    return _check_order(_check_costs(checked_table), rounds)


def _check_costs(world: Table) -> Table:
    """Table with its costs [Q, A]; one 0 that stands for all takes no memory.

    Raises:
      ValueError: a cost below 0 or missing where the arm is available, or outside cost_range; a
        price below 0.
    """
    _check_costing(world.price, world.cost_range)
    costs = np.asarray(world.cost, dtype=np.float64)
    if costs.shape != world.mask.shape:
        if costs.shape != NO_COSTS.shape or costs.any():
            refuse(
                f"cost must be [Q, A], {world.mask.shape}",
                costs.shape,
                "give a number a cell",
            )
        costs = np.broadcast_to(NO_COSTS, world.mask.shape)
    lowest_cost, highest_cost = (0.0, np.inf) if world.cost_range is None else world.cost_range
    available_costs = costs[world.mask]
    wrong_costs = available_costs[
        ~(
            (available_costs >= lowest_cost)
            & (available_costs <= highest_cost)
            & np.isfinite(available_costs)
        )
    ]
    if len(wrong_costs):
        refuse(
            (
                "the cost of an available arm must be a number from 0, within cost_range where "
                "that is stated"
            ),
            float(wrong_costs[0]),
            "mask the arm, or widen the range",
        )
    return world._replace(cost=costs)


def _check_order(world: Table, rounds: int) -> Table:
    """Table whose order and delays can be played.

    Raises:
      ValueError: an unknown order, more rounds than rows where each is played once, or delays that
        are none.
    """
    if world.order not in PLAY_ORDERS:
        refuse(
            f"order must be one of {', '.join(PLAY_ORDERS)}",
            repr(world.order),
            "choose one of them",
        )
    if world.order != "replacement" and rounds > len(world.mask):
        refuse(
            f"order {world.order} plays each row once, so rounds must be at most {len(world.mask)}",
            rounds,
            "take order='replacement'",
        )
    if world.delay is None:
        return world
    delays = np.asarray(world.delay)
    if delays.shape not in {world.mask.shape[:1], world.mask.shape} or not is_whole(delays):
        refuse(
            "delay must be whole numbers of rounds from 0, [Q] or [Q, A]",
            f"{delays.dtype} of {delays.shape}",
            "0 is a reward at once",
        )
    return world._replace(delay=delays.astype(np.int64))


def _check_bernoulli(world: Bernoulli, rounds: int) -> Bernoulli:
    means = np.asarray(world.means, dtype=np.float64)
    if means.ndim not in {1, 2} or 0 in means.shape:
        refuse("means must be [A] or [T, A]", means.shape, "give one an arm")
    if not ((means >= 0.0) & (means <= 1.0)).all():
        wrong_mean = means[~((means >= 0.0) & (means <= 1.0))][0]
        refuse("means must be in [0, 1]", wrong_mean, "they are probabilities")
    drifting_shape = (rounds, means.shape[-1])
    if means.ndim == 2 and means.shape != drifting_shape:
        refuse(f"drifting means must have a row a round, {rounds}", len(means), "give each one")
    if world.mask is None:
        return Bernoulli(means)
    mask = np.asarray(world.mask)
    return Bernoulli(means, None if check_mask(mask, drifting_shape) is None else mask)


Arms = CodeArray
# replications that share one spawned stream; fixed, so that the bits are; of 100 half as fast
REPLICATIONS_PER_BLOCK = 200
REWARD_STREAM, DELAY_STREAM, LOST_STREAM, POLICY_STREAM = range(4)  # streams of a block


class Feed(NamedTuple):
    """A block of a world; its tables have a row a case, a row a round, or one row, [N, A]."""

    rounds: int
    size: int  # replications, R
    worth: FloatArray  # [N, A] what counts: the value of the case, or the mean
    gap: FloatArray  # [N, A] what the best available arm is worth more
    reward: FloatArray  # [N, A] what the learner sees, or the probability that it is 1
    mask: BoolArray | None  # [N, A]; none where every arm is available
    uniform: FloatArray | None  # [T, R] a reward is 1 where it is below the mean; none for a table
    case: NumberArray | None  # [T, R] row of the table; none for known means
    features: FloatArray  # [N, F]
    delay: IntArray | int  # [T, R] rounds until the reward is there, or the same for all
    lost: BoolArray | None  # [T, R] reward never arrives
    cost: FloatArray | None = None  # [N, A]; none where nothing costs
    # [N, A] of a table whose arms differ in it; then `delay` is 0
    arm_delay: IntArray | None = None

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return self.worth.shape[-1]

    def row(self, round_index: int) -> NumberArray | int:
        """Row of the tables at round t: of each replication, or one for all."""
        if self.case is not None:
            return self.case[round_index]
        return round_index if len(self.worth) > 1 else 0

    def open(self, round_index: int) -> BoolArray | None:
        """Arms available at round t, [R, A]."""
        return (
            None
            if self.mask is None
            else np.broadcast_to(self.mask[self.row(round_index)], (self.size, self.n_arms))
        )

    def rewards(self, t: IntArray, replication: IntArray, arm: IntArray) -> FloatArray:
        """Rewards [N] of rounds that were chosen; NaN never arrives."""
        if self.uniform is None:
            rows = t if self.case is None else self.case[t, replication]
            return self.reward[rows, arm]
        arm_means = self.reward[t if len(self.reward) > 1 else 0, arm]
        return np.asarray(self.uniform[t, replication] < arm_means, np.float64)

    def costs(self, t: IntArray | int, replication: IntArray, arm: IntArray) -> FloatArray:
        """Costs [N] of rounds that were chosen."""
        if self.cost is None or self.case is None:
            return np.zeros(len(arm))
        return self.cost[self.case[t, replication], arm]


class Accounts(NamedTuple):
    """What a block of replications came to."""

    regret: FloatArray  # [R, T] cumulative
    value: FloatArray  # [R, T] cumulative
    pulls: IntArray  # [R, A]
    arm: Arms  # [R, T]
    case: NumberArray | None  # [R, T]
    spend: FloatArray | None  # [R, T] cumulative cost; none where nothing costs


def stream(seed: int, block_number: int, purpose: int) -> np.random.Generator:
    """Generator of one block and one purpose."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block_number, purpose)))


def replication_blocks(replications: int) -> list[int]:
    """How many replications each block has."""
    return [
        min(REPLICATIONS_PER_BLOCK, replications - first_replication)
        for first_replication in range(0, replications, REPLICATIONS_PER_BLOCK)
    ]


def check_delay(delay: int | tuple[int, int], missing: float) -> tuple[int, int]:
    """Least and greatest delay.

    Raises:
      ValueError: they are no whole numbers with 0 <= low <= high, or missing is no probability.
    """
    least_delay, greatest_delay = delay if isinstance(delay, tuple) else (delay, delay)
    least_delay = check_count("delay", least_delay, 0, "0 is before the next choice")
    greatest_delay = check_count(
        "the greatest delay", greatest_delay, least_delay, "give (low, high) with low <= high"
    )
    if not 0.0 <= missing <= 1.0:
        refuse(
            "missing must be in [0, 1]",
            missing,
            "it is a probability",
        )
    return least_delay, greatest_delay


def feed(
    world: World,
    rounds: int,
    n_replications: int,
    seed: int,
    block_number: int,
    *,
    delay: tuple[int, int] = (0, 0),
    missing: float = 0.0,
) -> Feed:
    """Block of a world that was checked.

    It depends on seed and block alone, and is the same for every policy.

    Args:
      delay: least and largest delay, drawn for each round if the table states no delays.
    """
    if isinstance(world, Table):
        worth, reward, features = world.value, world.reward, world.features
        mask = None if world.mask.all() else world.mask
    else:
        n_rows = max(
            1 if np.ndim(world_array) < 2 else len(world_array)
            for world_array in world
            if world_array is not None
        )
        full_shape = (n_rows, world.n_arms)
        worth = reward = np.ascontiguousarray(np.broadcast_to(world.means, full_shape))
        mask = (
            None
            if world.mask is None
            else np.ascontiguousarray(np.broadcast_to(world.mask, full_shape))
        )
        features = np.zeros((n_rows, 0))
    # Regret is measured against the best arm that is available, so masked arms do not count.
    best_worth = (worth if mask is None else np.where(mask, worth, -np.inf)).max(
        axis=-1, keepdims=True
    )
    # Rewards, delays and losses have streams of their own: adding a delay changes no reward.
    rng = stream(seed, block_number, REWARD_STREAM)
    draw_shape = (rounds, n_replications)
    case_rows = (
        _drawn_rows(world, rng, rounds, n_replications) if isinstance(world, Table) else None
    )
    least_delay, greatest_delay = delay
    late_rounds: IntArray | int
    late_rounds = (
        least_delay
        if least_delay == greatest_delay
        else stream(seed, block_number, DELAY_STREAM).integers(
            least_delay, greatest_delay, size=draw_shape, endpoint=True
        )
    )
    arm_delay = None
    if isinstance(world, Table) and world.delay is not None:
        row_delays = world.delay if world.delay.ndim == 1 else world.delay[:, 0]
        if world.delay.ndim == 2 and (world.delay != row_delays[:, None]).any():
            arm_delay = world.delay
        else:  # the same for every arm; if it is always 0, nothing is late
            late_rounds = row_delays[case_rows] if row_delays.any() else 0
    return Feed(
        rounds,
        n_replications,
        worth,
        best_worth - worth,
        reward,
        mask,
        None if isinstance(world, Table) else rng.random(draw_shape),
        case_rows,
        features,
        late_rounds,
        stream(seed, block_number, LOST_STREAM).random(draw_shape) < missing
        if missing > 0.0
        else None,
        world.cost if isinstance(world, Table) and world.has_costs else None,
        arm_delay,
    )


def _drawn_rows(
    world: Table, rng: np.random.Generator, rounds: int, n_replications: int
) -> NumberArray:
    """Row of the table in each round and replication, [T, R], by the table's order."""
    n_rows = len(world.value)
    if world.order == "given":
        return np.repeat(np.arange(rounds, dtype=np.int32)[:, None], n_replications, axis=1)
    if world.order == "shuffled":
        row_numbers = np.broadcast_to(np.arange(n_rows, dtype=np.int32), (n_replications, n_rows))
        return np.ascontiguousarray(rng.permuted(row_numbers, axis=1)[:, :rounds].T)
    return rng.integers(n_rows, size=(rounds, n_replications), dtype=np.int32)


def play_accounts(block_feed: Feed, arm: Arms) -> Accounts:
    """Regret, value and pulls of the arms chosen, [T, R]."""
    replication_arms = np.ascontiguousarray(arm.T)
    case_rows = None if block_feed.case is None else np.ascontiguousarray(block_feed.case.T)
    table_rows = (
        case_rows
        if case_rows is not None
        else np.arange(block_feed.rounds)
        if len(block_feed.worth) > 1
        else 0
    )
    flat_cells = replication_arms + np.asarray(table_rows, np.int64) * block_feed.n_arms
    pulls = np.stack(
        [(replication_arms == arm_number).sum(axis=1) for arm_number in range(block_feed.n_arms)],
        axis=1,
    )
    regret, value = (
        np.take(worth_table, flat_cells) for worth_table in (block_feed.gap, block_feed.worth)
    )
    spend = (
        None
        if block_feed.cost is None or case_rows is None
        else np.cumsum(block_feed.cost[case_rows, replication_arms], 1)
    )
    return Accounts(
        np.cumsum(regret, 1, out=regret),
        np.cumsum(value, 1, out=value),
        pulls,
        replication_arms,
        case_rows,
        spend,
    )
