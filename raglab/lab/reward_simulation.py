"""Simulated learner (shore): what a learner comes to on a reward, judged by value (S4.7).

It stands beside fixed policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import Table, check_world, replication_blocks
from raglab.bandit.fixed_plans import FIXED_PLAN
from raglab.bandit.learner import Bandit, check_count
from raglab.bandit.simulation import run
from raglab.lab.fresh_tables import table_arms
from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import percentile_interval
from raglab.progress import progress
from raglab.values import AnyArray, FloatArray

if TYPE_CHECKING:
    import pandas as pd

HELPS, HARMS, LEVEL = "helps", "harms", "not told apart"
JUDGED_SHARE = 0.2  # share of the rounds, the last ones, in which a learner is judged
TABLE_PATHS = 5  # of a learner on each resampled table
ROUNDING = 1e-12  # of a difference that is none
FEWEST = 10  # cases, or cases with a pair, below which resampling gives no interval
SMALLEST_DIFFERENCE = 0.005  # of the range of the values: a smaller difference is none
DETECTION_POWER = 0.8  # chance with which a detectable difference is told apart


class SimulationSizes(NamedTuple):
    """Sizes of a simulated comparison.

    rounds: that the learner plays, judged in the last fifth of them. replications: of the learner
    on the table itself. tables: resampled ones, on each of which it learns five times more. level:
    of the intervals. seed: of all chance.
    """

    rounds: int = 3000
    replications: int = 200
    tables: int = 200
    level: float = 0.95
    seed: int = 0


def simulate_learner(
    world: Table, bandit: Bandit, plans: Mapping[str, FloatArray], sizes: SimulationSizes
) -> pd.DataFrame:
    """Final value of a learner that sees table rewards, minus that of policies learning nothing.

    The end is the last fifth of the rounds. Intervals resample questions, and the learner learns
    again on every resampled table: on other questions of the same kind it might have ended on
    another arm.

    Args:
      world: cases in random order, with replacement, whatever order it states.
      plans: name -> probabilities [Q, A] of policies that learn nothing.

    Returns: a row a policy, the learner first: `policy`; `value` at the end with `_low`, `_high`;
      `difference` (learner minus the policy, paired, likewise; NaN for the learner); `verdict`
      (`helps`, `harms`, `not told apart`: the learner is above the policy, below it, or the
      interval holds 0 or the difference is under 0.5 % of the range of the values); `pulls_<arm>`
      (share of the rounds at the end). Of fewer than 10 cases an interval reaches at least as far
      as the exact one of as many cases that show nothing, times the range of the values.

    Raises:
      ValueError: rounds, replications or tables below 1, or a learner that the table does not fit.

    Source: rules S4.5, S4.7; Efron and Tibshirani 1993 for the percentile interval; Bonferroni for
      the best arm.
    """
    import pandas as pd

    check_count("tables", sizes.tables, 1, "200 are usual")
    world = world._replace(order="replacement")  # a resample of cases has no order of its own
    # The table itself gives the estimates; every policy is judged on all its cases, so that only
    # paths are chance.
    learner_run = run(
        bandit, world, rounds=sizes.rounds, replications=sizes.replications, seed=sizes.seed
    )
    end_start = _end_start(sizes.rounds)
    played_cases = cast("NDArray[np.int32]", learner_run.case)
    end_arms = learner_run.arm[:, end_start:]
    end_cases = played_cases[:, end_start:]
    plan_values = [
        (plan * np.where(world.mask, world.value, 0.0)).sum(axis=1) for plan in plans.values()
    ]
    learner_end = float(
        _expected_values(world, end_arms, end_cases, np.arange(len(world.mask))).mean()
    )
    mean_values = np.array([learner_end, *(plan_value.mean() for plan_value in plan_values)])
    # Resampled tables, on which the learner starts again, say how far other questions would have
    # led elsewhere.
    checked_world = cast("Table", check_world(world, sizes.rounds))
    resampled_values = _resampled_values(checked_world, bandit, plan_values, sizes)
    # The best fixed arm was chosen among several on these cases: its interval is that of as many
    # comparisons.
    interval_widths = {
        FIXED_PLAN: _width_of_several(int(world.mask.all(axis=0).sum()) - 1, sizes.level)
    }
    value_range = float(np.ptp(world.value[world.mask]))
    # What cases that show no difference leave open; few cases leave it open for all.
    unseen_difference = value_range * float(clopper_pearson(0, len(world.mask), sizes.level).high)
    few_cases_reach = unseen_difference if len(world.mask) < FEWEST else 0.0
    arm_shares = [_end_shares(end_arms, world.n_arms), *plans.values()]
    policy_rows = []
    for policy_index, (policy_name, policy_shares) in enumerate(
        zip([bandit.algorithm, *plans], arm_shares, strict=True)
    ):
        policy_value = mean_values[policy_index]
        differences = resampled_values[:, 0] - resampled_values[:, policy_index]
        lower_end, upper_end = _interval_around(
            resampled_values[:, policy_index], policy_value, sizes.level, few_cases_reach
        )
        policy_row: dict[str, Any] = {
            "policy": policy_name,
            "value": policy_value,
            "value_low": lower_end,
            "value_high": upper_end,
        }
        gain, lower_end, upper_end, verdict_text = np.nan, np.nan, np.nan, ""
        if policy_index:
            gain = mean_values[0] - policy_value
            lower_end, upper_end = _interval_around(differences, gain, sizes.level, few_cases_reach)
            if (np.abs(differences) < ROUNDING).all():  # never apart on these cases is no proof
                lower_end = gain - unseen_difference
                upper_end = gain + unseen_difference
            interval_width = interval_widths.get(policy_name, 1.0)
            lower_end = gain - interval_width * (gain - lower_end)
            upper_end = gain + interval_width * (upper_end - gain)
            verdict_text = verdict(gain, lower_end, upper_end, SMALLEST_DIFFERENCE * value_range)
        policy_row |= {
            "difference": gain,
            "difference_low": lower_end,
            "difference_high": upper_end,
        }
        # What lies this far beyond the interval's reach is told apart in 4 of 5 tables like this.
        detectable_reach = (
            max(gain - lower_end, upper_end - gain)
            + NormalDist().inv_cdf(DETECTION_POWER) * differences.std()
        )
        policy_row |= {
            "detectable": max(detectable_reach, SMALLEST_DIFFERENCE * value_range)
            if policy_index
            else np.nan
        }
        arm_pulls = zip(world.arms, policy_shares.mean(axis=0).tolist(), strict=True)
        policy_rows.append(
            policy_row
            | {"verdict": verdict_text}
            | {f"pulls_{arm}": pull_share for arm, pull_share in arm_pulls}
        )
    return pd.DataFrame(policy_rows)


def _width_of_several(n_comparisons: int, level: float) -> float:
    """How many times as wide a normal interval for all n comparisons at once is (Bonferroni).

    Example:
      >>> _width_of_several(1, 0.95), round(_width_of_several(2, 0.95), 3)
      (1.0, 1.144)
    """
    tail_chance = (1.0 - level) / 2.0
    return NormalDist().inv_cdf(1.0 - tail_chance / max(1, n_comparisons)) / NormalDist().inv_cdf(
        1.0 - tail_chance
    )


def _interval_around(
    resampled: FloatArray, estimate: float, level: float, reach: float = 0.0
) -> tuple[float, float]:
    """Percentile interval that holds the estimate, and so much on either side of it."""
    low, high = percentile_interval(resampled, level)
    return min(float(low), estimate - reach), max(float(high), estimate + reach)


def verdict(difference: float, low: float, high: float, least: float) -> str:
    """Whether a learner gains by a reward.

    Args:
      difference, low, high: value of the learner minus that of another policy, with its interval.
      least: smaller differences are none.

    Example:
      >>> (
      ...     verdict(0.04, 0.01, 0.07, 0.005),
      ...     verdict(-0.04, -0.07, -0.01, 0.005),
      ...     verdict(0.001, 0.0005, 0.002, 0.005),
      ... )
      ('helps', 'harms', 'not told apart')
    """
    if low > 0.0 and difference >= least:
        return HELPS
    return HARMS if high < 0.0 and difference <= -least else LEVEL


def _resampled_values(
    world: Table, bandit: Bandit, plans: list[FloatArray], sizes: SimulationSizes
) -> FloatArray:
    """Values of learner, new on each, and of each plan on tables drawn with replacement, [B, P].

    Args:
      plans: value of each case under each policy that learns nothing, [Q] each.
    """
    n_cases = len(world.mask)
    end_start = _end_start(sizes.rounds)
    rng = np.random.default_rng(np.random.SeedSequence(sizes.seed, spawn_key=(TABLE_STREAM,)))
    table_cases = rng.integers(n_cases, size=(sizes.tables, n_cases), dtype=np.int32)
    n_paths = TABLE_PATHS * sizes.tables
    learner_values: list[float] = []
    blocks = table_arms(
        bandit,
        world,
        sizes.rounds,
        n_paths,
        lambda path_slice, drawn_rounds: table_cases[
            np.arange(path_slice.start, path_slice.stop) // TABLE_PATHS, drawn_rounds
        ],
        first_block=0,
        seed=sizes.seed + 1,
        engine="auto",
        total_choices=float(sizes.rounds * n_paths),
    )
    n_blocks = len(replication_blocks(n_paths))
    for _, block_world, block_arms in progress(blocks, "simulate", "block", total=n_blocks):
        for path_start in range(0, block_world.size, TABLE_PATHS):
            path_range = slice(path_start, path_start + TABLE_PATHS)
            rows = table_cases[len(learner_values)]
            block_cases: Any = block_world.case
            end_pulls = block_arms[end_start:, path_range].T, block_cases[end_start:, path_range].T
            learner_values.append(float(_expected_values(world, *end_pulls, rows).mean()))
    fixed_values = np.array(
        [[plan_value[rows].mean() for plan_value in plans] for rows in table_cases]
    ).reshape(len(table_cases), len(plans))
    return np.column_stack([learner_values, fixed_values])


TABLE_STREAM = 4  # stream of the resampled tables, beside those of a block of a world


def _expected_values(
    world: Table, arms_by_path: AnyArray, cases_by_path: AnyArray, judged_rows: AnyArray
) -> FloatArray:
    """Value of each replication at the end, on the cases of its table, [R].

    The cases that were drawn at the end are few; what the shares of the arms would earn on all of
    the table's is known, so that only the rest is taken from those drawn (a control variate).

    Args:
      arms_by_path, cases: of the rounds at the end, [R, E].
      judged_rows: cases of the table, [N].
    """
    available_values = np.where(world.mask, world.value, 0.0)
    is_available = world.mask.astype(np.float64)
    arm_shares = _end_shares(arms_by_path, len(world.arms))
    path_values = np.empty(len(arms_by_path))
    for path_index, (path_shares, path_arms, path_cases) in enumerate(
        zip(arm_shares, arms_by_path.astype(np.intp), cases_by_path, strict=True)
    ):
        available_share = is_available @ path_shares
        # where none of its arms is on offer it may take any
        uniform_values = available_values.sum(axis=1) / is_available.sum(axis=1)
        expected_values = np.where(
            available_share > 0.0,
            (available_values @ path_shares)
            / np.where(available_share > 0.0, available_share, 1.0),
            uniform_values,
        )
        path_values[path_index] = (
            available_values[path_cases, path_arms] - expected_values[path_cases]
        ).mean() + expected_values[judged_rows].mean()
    return path_values


def _end_shares(arms: AnyArray, n_arms: int) -> FloatArray:
    """Share of each arm in each replication, [R, A]."""
    return np.stack([(arms == arm).mean(axis=1) for arm in range(n_arms)], axis=1)


def _end_start(rounds: int) -> int:
    """First round that is judged."""
    return rounds - max(1, round(JUDGED_SHARE * rounds))
