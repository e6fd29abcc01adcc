"""Fresh tables (shore): learners retrained on tables drawn from cases, and intervals (S4.7).

A learner's path depends on the table: on other cases it would have chosen other arms. An interval
that holds its paths fixed is too narrow where it follows the table, and too wide where the
reference follows it too. So every learner is trained again on tables drawn from the cases, and the
best fixed arm is chosen again.

How much it moves with the table depends on how far arms differ, and in one table differences that
are chance look like differences. So tables are drawn from two populations: the cases with arms that
are equal, since each case gives its values to its arms by turns, and the cases as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.budget import Budget
from raglab.bandit.environments import (
    POLICY_STREAM,
    Arms,
    Feed,
    Table,
    check_world,
    feed,
    replication_blocks,
    stream,
)
from raglab.bandit.learner import Bandit
from raglab.bandit.simulation import block_arms, first_ledger
from raglab.metrics.intervals import t_quantile
from raglab.values import FloatArray, IntArray, NumberArray

# replications of each table: their chance is independent, so that it cancels from their product
TWINS = 2
# on fresh tables by default: 50 tables of each population, one block
FRESH_REPLICATIONS = 200
MAX_SKEWNESS = 1.5
MAX_EFFECT_RATIO = 4.0  # in effects of the cases as they are: arms that differ twice as much
VARIANCE_QUANTILES = 64  # equally likely values of a variance that is known to within an error
DIFFERENCE_GRID = 4001  # differences that an interval may hold
TINY_VARIANCE = 1e-100
# number of the first block on fresh tables: its streams are those of no other block
FRESH_BLOCK = 2**20
TABLE_STREAM = 77  # of the tables themselves


class FreshTables(NamedTuple):
    """Tables drawn from two populations, first that of equal arms.

    N = 2 × H × 2 twins, in this order.

    row: rows of `by_turns` that make each table, [2, H, Q]. case: row of `by_turns` by round and
    replication, [T, N].
    """

    row: IntArray
    case: NumberArray


class Account(NamedTuple):
    """What a policy earns a round: on the table, and on fresh ones.

    mean: of each replication on the table, [R]. by_case: of a round of each case, [Q]. fresh: on
    fresh tables, [2, H, 2]. expected: likewise, over all cases that might have been met, where the
    choice does not depend on the case; else None. fixed: whether it does on every table what it
    does on this one.
    """

    mean: FloatArray
    by_case: FloatArray
    fresh: FloatArray
    expected: FloatArray | None
    fixed: bool


def draw_fresh_tables(world: Table, rounds: int, replications: int, seed: int) -> FreshTables:
    """Tables of as many cases, drawn with replacement, and cases replications draw from each.

    Args:
      world: whose cases they are; their order is kept where it is given, since they may drift.
      rounds: of each replication, T.
      replications: at most so many, in fours; at least eight.
      seed: of tables and draws.
    """
    n_cases = len(world.mask)
    n_tables = max(2, replications // (2 * TWINS))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(FRESH_BLOCK, TABLE_STREAM)))
    rows = np.sort(rng.integers(n_cases, size=(2, n_tables, n_cases)), axis=-1)
    drawn_places = rng.integers(n_cases, size=(rounds, 2, n_tables, TWINS))
    if world.order == "given":
        drawn_places.sort(axis=0)
    # Equal arms: each row is taken from any of the copies in which its open arms have different
    # values.
    rows[0] += n_cases * rng.integers(world.mask.sum(axis=1)[rows[0]])
    drawn_cases = rows[np.arange(2)[:, None, None], np.arange(n_tables)[:, None], drawn_places]
    return FreshTables(rows, drawn_cases.reshape(rounds, -1).astype(np.int32))


def by_turns(world: Table) -> Table:
    """Copies of a table, one below the other.

    In copy s each arm has the values of the open arm s places further on.
    """
    n_cases, n_arms = world.mask.shape
    open_first = np.argsort(~world.mask, axis=1, kind="stable")  # open arms first
    open_rank = np.argsort(open_first, axis=1)
    n_open = world.mask.sum(axis=1, keepdims=True)
    places_by_copy = (
        np.where(open_rank < n_open, (open_rank + shift) % n_open, open_rank)
        for shift in range(n_arms)
    )
    source_arms = np.concatenate(
        [np.take_along_axis(open_first, source_places, axis=1) for source_places in places_by_copy]
    )
    case_of_row = np.tile(np.arange(n_cases), n_arms)
    arm_columns = (
        ("value", "reward", "ms", "cost") if len(world.cost) > 1 else ("value", "reward", "ms")
    )
    turned_columns = {
        column_name: getattr(world, column_name)[case_of_row[:, None], source_arms]
        for column_name in arm_columns
    }
    if world.delay is not None:
        turned_columns["delay"] = (
            world.delay[case_of_row]
            if world.delay.ndim == 1
            else world.delay[case_of_row[:, None], source_arms]
        )
    return world._replace(
        mask=world.mask[case_of_row], features=world.features[case_of_row], **turned_columns
    )


def learner_values(
    bandit: Bandit,
    world: Table,
    fresh_tables: FreshTables,
    *,
    seed: int,
    engine: str,
    total_choices: float,
    budget: Budget | None = None,
) -> tuple[FloatArray, FloatArray | None]:
    """Mean value a round of a learner on each fresh table alone: `Account.fresh`, `.expected`.

    Args:
      world: every case and arm; what the learner sees is its reward.
      total_choices: choices of the whole simulation, as `simulation.kernel` reads them.
      budget: that the learner keeps.
    """
    rounds, replications = fresh_tables.case.shape
    turned_tables: Any = check_world(by_turns(world), rounds)
    # An arm chosen without looking at the case earns its mean over the table: the luck of the draws
    # is left out.
    arm_means = turned_tables.value[fresh_tables.row].mean(axis=2).reshape(-1, turned_tables.n_arms)
    is_blind = not (bandit.linear or budget is not None or world.order == "given") and bool(
        world.mask.all()
    )
    earned_values = []
    expected_values = []
    for block_slice, met_feed, chosen_arms in table_arms(
        bandit,
        turned_tables._replace(order="replacement"),
        rounds,
        replications,
        lambda block_slice, _: fresh_tables.case[:, block_slice],
        first_block=FRESH_BLOCK,
        seed=seed,
        engine=engine,
        total_choices=total_choices,
        budget=budget,
    ):
        earned_values.append(met_feed.worth[met_feed.case, chosen_arms].mean(axis=0))
        table_places = np.arange(block_slice.start, block_slice.stop) // TWINS
        expected_values.append(arm_means[table_places, chosen_arms].mean(axis=0))
    fresh_values = np.concatenate(earned_values).reshape(2, -1, TWINS)
    return fresh_values, np.concatenate(expected_values).reshape(2, -1, TWINS) if is_blind else None


def table_arms(
    bandit: Bandit,
    world: Table,
    rounds: int,
    replications: int,
    choose_rows: Callable[[slice, NumberArray], NumberArray],
    *,
    first_block: int,
    seed: int,
    engine: str,
    total_choices: float,
    budget: Budget | None = None,
) -> Iterator[tuple[slice, Feed, Arms]]:
    """Blocks of replications of a learner, each on a resampled table of its own.

    Of each block its replications, what they meet, and the arms that are chosen, [T, R].

    Args:
      world: of which all tables are made.
      choose_rows: rows of the world that replications meet, [T, R], from which of them there are
        and cases drawn for them.
      first_block: of the first block; each has streams of its own.
      total_choices: choices of the whole simulation, as `simulation.kernel` reads them.
      budget: that the learner keeps.
    """
    initial_ledger = first_ledger(None, bandit, world, budget)
    block_start = 0
    for block_number, block_size in enumerate(replication_blocks(replications), first_block):
        block_slice = slice(block_start, block_start + block_size)
        met_feed = feed(world, rounds, block_size, seed, block_number)
        met_cases = np.ascontiguousarray(
            choose_rows(block_slice, cast("NDArray[np.int32]", met_feed.case))
        )
        met_feed = met_feed._replace(case=met_cases)
        if world.delay is not None and np.ndim(met_feed.delay):
            met_feed = met_feed._replace(
                delay=world.delay.reshape(len(world.mask), -1)[:, 0][met_cases]
            )
        rng = stream(seed, block_number, POLICY_STREAM)
        block_settings: dict[str, Any] = {
            "n_choices": total_choices,
            "engine": engine,
            "initial": initial_ledger,
        }
        yield block_slice, met_feed, block_arms(bandit, met_feed, world, rng, **block_settings)
        block_start += block_size


def plan_values(row_values: FloatArray, fresh_tables: FreshTables) -> tuple[FloatArray, FloatArray]:
    """Mean of numbers by row of `by_turns` [A × Q], as `Account.fresh` and `.expected`."""
    expected_values = row_values[fresh_tables.row].mean(axis=2)
    return row_values[fresh_tables.case].mean(axis=0).reshape(2, -1, TWINS), np.repeat(
        expected_values[..., None], TWINS, axis=2
    )


def best_arm_values(
    row_values: FloatArray, open_arms: IntArray, fresh_tables: FreshTables
) -> tuple[FloatArray, FloatArray, float]:
    """Value of the arm that is best on each fresh table.

    Args:
      row_values: of each row of `by_turns` and each arm, [A × Q, A].
      open_arms: those that may be chosen.

    Returns: as `Account.fresh` and `.expected`, and its mean on all cases as they are, where it was
      not chosen.
    """
    arm_means = row_values[:, open_arms][fresh_tables.row].mean(axis=2)  # [2, H, arms]
    best_arms = arm_means.argmax(axis=2)
    earned_values = (
        row_values[fresh_tables.case, open_arms[best_arms].repeat(TWINS)]
        .mean(axis=0)
        .reshape(2, -1, TWINS)
    )
    mean_everywhere = row_values[: len(row_values) // row_values.shape[1], open_arms].mean(axis=0)
    return (
        earned_values,
        np.repeat(arm_means.max(axis=2)[..., None], TWINS, axis=2),
        float(mean_everywhere[best_arms[1]].mean()),
    )


def difference_interval(
    left_account: Account, right_account: Account, level: float
) -> tuple[float, float]:
    """Interval of how much more a round the left policy earns than the right, over fresh tables.

    Each fresh table has as many cases.

    Where neither policy changes with the table the variance is that of the cases, s² / Q, and of
    the replications' own chance, s² / R, and the interval is a t interval. Else it is the test
    inverted: it holds every difference in expectation that would be found as far away as here by
    chance. Chance reaches as far as with equal arms where the truth is what it is with equal arms,
    and further towards, and beyond, what it is on the cases as they are. Effects grow with the
    square of what arms differ by, and the square of the reach is taken to grow with that itself. It
    reaches further on the side to which equal arms are skewed. One case says nothing of others:
    NaN.

    Source: Satterthwaite 1946; Johnson 1978 (skewness); Efron 1979 (tables drawn again); rule S4.7.
    """
    n_cases = len(left_account.by_case)
    replications = len(left_account.mean)
    mean_difference = float(left_account.mean.mean() - right_account.mean.mean())
    if n_cases < 2:
        return float("nan"), float("nan")
    # Own chance of a replication: of those side by side, and of twins on the cases as they are.
    table_differences = left_account.mean - right_account.mean
    fresh_differences = left_account.fresh - right_account.fresh
    freedom = replications - 1 + fresh_differences.shape[1]
    sum_of_squares = ((table_differences - table_differences.mean()) ** 2).sum() + (
        (fresh_differences[1, :, 0] - fresh_differences[1, :, 1]) ** 2
    ).sum() / 2.0
    chance_variance = float(sum_of_squares) / freedom / replications
    if left_account.fixed and right_account.fixed:
        case_variance = float((left_account.by_case - right_account.by_case).var(ddof=1)) / n_cases
        variance = case_variance + chance_variance
        variance_spread = 2.0 * (case_variance**2 / (n_cases - 1) + chance_variance**2 / freedom)
        # Twice the variance squared over the variance of the variance: few degrees where little is
        # known of it.
        t_reach = (
            t_quantile(2.0 * variance**2 / variance_spread, level) * variance**0.5
            if variance_spread > 0.0
            else 0.0
        )
        return mean_difference - t_reach, mean_difference + t_reach
    if left_account.expected is not None and right_account.expected is not None:
        fresh_differences = left_account.expected - right_account.expected
    (equal_reach, variance), (apart_reach, _) = (
        _reach(table_twins, chance_variance, level) for table_twins in fresh_differences
    )
    # On the safe side no less than with equal arms, where they are not out of the question: three
    # times too far.
    equal_mean = fresh_differences[0].mean()
    observed_effect = fresh_differences[1].mean() - fresh_differences[0].mean()
    reach_rise = (
        max(
            apart_reach**2,
            equal_reach**2
            * min(
                max(3.0 - abs(mean_difference - equal_mean) / max(equal_reach, TINY_VARIANCE), 0.0),
                1.0,
            ),
        )
        - equal_reach**2
    )
    # Which differences may be the truth: a grid of all that the largest reach leaves.
    largest_share = MAX_EFFECT_RATIO if reach_rise > 0.0 else 1.0
    possible_differences = mean_difference + (
        equal_reach**2 + max(reach_rise, 0.0) * largest_share**0.5
    ) ** 0.5 * np.linspace(-1.0, 1.0, DIFFERENCE_GRID)
    effect_share = (
        np.clip((possible_differences - equal_mean) / observed_effect, 0.0, largest_share)
        if observed_effect
        else np.zeros(DIFFERENCE_GRID)
    )
    held_differences = possible_differences[
        (possible_differences - mean_difference) ** 2
        <= equal_reach**2 + reach_rise * effect_share**0.5
    ]
    skew_shift = (
        _skewness(fresh_differences[0], variance)
        * variance**0.5
        / 6.0
        * (1.0 + t_quantile(np.inf, level) ** 2)
    )
    return float(held_differences[0]) + min(skew_shift, 0.0), float(held_differences[-1]) + max(
        skew_shift, 0.0
    )


def _reach(twin_values: FloatArray, chance_variance: float, level: float) -> tuple[float, float]:
    """Reach of a normal deviate whose variance is chance plus twins' [H, 2] over tables.

    That variance comes second.

    Twins have the same cases and other chance, so that their products hold the variance of the
    cases alone. It is at least 0 and known to within an error: the level is held in the mean over
    all that it may be.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr, stdtr, stdtrit

    freedom = len(twin_values) - 1
    twin_products = (twin_values - twin_values.mean()).prod(axis=1) * len(twin_values) / freedom
    mean_variance = float(twin_products.mean())
    variance_error = float(twin_products.std(ddof=1)) / len(twin_values) ** 0.5
    mass_below = min(
        float(stdtr(freedom, -mean_variance / max(variance_error, TINY_VARIANCE))), 1.0 - 1e-9
    )
    variance_parts = stdtrit(
        freedom,
        mass_below
        + (1.0 - mass_below) * (np.arange(VARIANCE_QUANTILES) + 0.5) / VARIANCE_QUANTILES,
    )
    deviation = np.maximum(
        (np.maximum(mean_variance + variance_error * variance_parts, 0.0) + chance_variance) ** 0.5,
        TINY_VARIANCE,
    )
    level_reach = brentq(
        lambda deviation_reach: ndtr(-deviation_reach / deviation).mean() - (1.0 - level) / 2.0,
        0.0,
        10.0 * deviation.max(),
    )
    return float(level_reach), max(mean_variance, 0.0) + chance_variance


def _skewness(twin_values: FloatArray, variance: float) -> float:
    """Skewness of twins [H, 2] on the scale of the variance.

    0 as far as their own chance explains it.
    """
    table_deviations = twin_values.mean(axis=1) - twin_values.mean()
    third_moment = float((table_deviations**3).mean())
    moment_error = float(table_deviations.var()) ** 1.5 * (6.0 / len(table_deviations)) ** 0.5
    if variance <= TINY_VARIANCE or not third_moment:
        return 0.0
    return float(np.clip(third_moment / variance**1.5, -MAX_SKEWNESS, MAX_SKEWNESS)) * max(
        0.0, 1.0 - (moment_error / third_moment) ** 2
    )
