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

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
HELPS, HARMS, LEVEL = "helps", "harms", "not told apart"
END = 0.2  # share of the rounds, the last ones, in which a learner is judged
PATHS = 5  # of a learner on each resampled table
ROUNDING = 1e-12  # of a difference that is none
FEWEST = 10  # cases, or cases with a pair, below which resampling gives no interval
LEAST = 0.005  # of the range of the values: a smaller difference is none
POWER = 0.8  # chance with which a detectable difference is told apart


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
    world: Table, bandit: Bandit, plans: Mapping[str, Array], sizes: SimulationSizes
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
    played = run(
        bandit, world, rounds=sizes.rounds, replications=sizes.replications, seed=sizes.seed
    )
    first, drawn_cases = _end_start(sizes.rounds), cast("NDArray[np.int32]", played.case)
    arms, cases = played.arm[:, first:], drawn_cases[:, first:]
    fixed = [(plan * np.where(world.mask, world.value, 0.0)).sum(axis=1) for plan in plans.values()]
    ends = float(_expected_values(world, arms, cases, np.arange(len(world.mask))).mean())
    values = np.array([ends, *(each.mean() for each in fixed)])
    # Resampled tables, on which the learner starts again, say how far other questions would have
    # led elsewhere.
    checked = cast("Table", check_world(world, sizes.rounds))
    drawn = _resampled_values(checked, bandit, fixed, sizes)
    # The best fixed arm was chosen among several on these cases: its interval is that of as many
    # comparisons.
    wider = {FIXED_PLAN: _width_of_several(int(world.mask.all(axis=0).sum()) - 1, sizes.level)}
    span = float(np.ptp(world.value[world.mask]))
    # What cases that show no difference leave open; few cases leave it open for all.
    most = span * float(clopper_pearson(0, len(world.mask), sizes.level).high)
    few = most if len(world.mask) < FEWEST else 0.0
    shares = [_end_shares(arms, world.n_arms), *plans.values()]
    rows = []
    for place, (name, share) in enumerate(zip([bandit.algorithm, *plans], shares, strict=True)):
        value, differences = values[place], drawn[:, 0] - drawn[:, place]
        low, high = _interval_around(drawn[:, place], value, sizes.level, few)
        row: dict[str, Any] = {"policy": name, "value": value, "value_low": low, "value_high": high}
        gain, low, high, result = np.nan, np.nan, np.nan, ""
        if place:
            gain = values[0] - value
            low, high = _interval_around(differences, gain, sizes.level, few)
            if (np.abs(differences) < ROUNDING).all():  # never apart on these cases is no proof
                low, high = gain - most, gain + most
            width = wider.get(name, 1.0)
            low, high = gain - width * (gain - low), gain + width * (high - gain)
            result = verdict(gain, low, high, LEAST * span)
        row |= {"difference": gain, "difference_low": low, "difference_high": high}
        # What lies this far beyond the interval's reach is told apart in 4 of 5 tables like this.
        reach = max(gain - low, high - gain) + NormalDist().inv_cdf(POWER) * differences.std()
        row |= {"detectable": max(reach, LEAST * span) if place else np.nan}
        pulls = zip(world.arms, share.mean(axis=0).tolist(), strict=True)
        rows.append(row | {"verdict": result} | {f"pulls_{arm}": pulled for arm, pulled in pulls})
    return pd.DataFrame(rows)


def _width_of_several(n: int, level: float) -> float:
    """How many times as wide a normal interval for all n comparisons at once is (Bonferroni).

    Example:
      >>> _width_of_several(1, 0.95), round(_width_of_several(2, 0.95), 3)
      (1.0, 1.144)
    """
    tail = (1.0 - level) / 2.0
    return NormalDist().inv_cdf(1.0 - tail / max(1, n)) / NormalDist().inv_cdf(1.0 - tail)


def _interval_around(
    drawn: Array, estimate: float, level: float, reach: float = 0.0
) -> tuple[float, float]:
    """Percentile interval that holds the estimate, and so much on either side of it."""
    low, high = percentile_interval(drawn, level)
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
    world: Table, bandit: Bandit, plans: list[Array], sizes: SimulationSizes
) -> Array:
    """Values of learner, new on each, and of each plan on tables drawn with replacement, [B, P].

    Args:
      plans: value of each case under each policy that learns nothing, [Q] each.
    """
    n_cases, first = len(world.mask), _end_start(sizes.rounds)
    rng = np.random.default_rng(np.random.SeedSequence(sizes.seed, spawn_key=(TABLES,)))
    own = rng.integers(n_cases, size=(sizes.tables, n_cases), dtype=np.int32)
    size = PATHS * sizes.tables
    learned: list[float] = []
    blocks = table_arms(
        bandit,
        world,
        sizes.rounds,
        size,
        lambda part, drawn: own[np.arange(part.start, part.stop) // PATHS, drawn],
        number=0,
        seed=sizes.seed + 1,
        engine="auto",
        work=float(sizes.rounds * size),
    )
    total = len(replication_blocks(size))
    for _, met, arms in progress(blocks, "simulate", "block", total=total):
        for place in range(0, met.size, PATHS):
            paths, rows = slice(place, place + PATHS), own[len(learned)]
            case: Any = met.case
            ends = arms[first:, paths].T, case[first:, paths].T
            learned.append(float(_expected_values(world, *ends, rows).mean()))
    values = np.array([[each[rows].mean() for each in plans] for rows in own]).reshape(
        len(own), len(plans)
    )
    return np.column_stack([learned, values])


TABLES = 4  # stream of the resampled tables, beside those of a block of a world


def _expected_values(
    world: Table, arms: NDArray[Any], cases: NDArray[Any], rows: NDArray[Any]
) -> Array:
    """Value of each replication at the end, on the cases of its table, [R].

    The cases that were drawn at the end are few; what the shares of the arms would earn on all of
    the table's is known, so that only the rest is taken from those drawn (a control variate).

    Args:
      arms, cases: of the rounds at the end, [R, E].
      rows: cases of the table, [N].
    """
    value, mask = np.where(world.mask, world.value, 0.0), world.mask.astype(np.float64)
    shares = _end_shares(arms, len(world.arms))
    out = np.empty(len(arms))
    for place, (share, arm, case) in enumerate(
        zip(shares, arms.astype(np.intp), cases, strict=True)
    ):
        room = mask @ share
        # where none of its arms is on offer it may take any
        plain = value.sum(axis=1) / mask.sum(axis=1)
        expected = np.where(room > 0.0, (value @ share) / np.where(room > 0.0, room, 1.0), plain)
        out[place] = (value[case, arm] - expected[case]).mean() + expected[rows].mean()
    return out


def _end_shares(arms: NDArray[Any], n_arms: int) -> Array:
    """Share of each arm in each replication, [R, A]."""
    return np.stack([(arms == arm).mean(axis=1) for arm in range(n_arms)], axis=1)


def _end_start(rounds: int) -> int:
    """First round that is judged."""
    return rounds - max(1, round(END * rounds))
