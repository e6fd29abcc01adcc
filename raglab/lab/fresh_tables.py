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

Array = NDArray[np.float64]
# replications of each table: their chance is independent, so that it cancels from their product
TWINS = 2
REPLICATIONS = 200  # on fresh tables where none are stated: 50 tables of each population, one block
MOST_SKEW = 1.5
MOST_EFFECT = 4.0  # in effects of the cases as they are: arms that differ twice as much
PARTS = 64  # equally likely values of a variance that is known to within an error
CANDIDATES = 4001  # differences that an interval may hold
TINY = 1e-100
# number of the first block on fresh tables: its streams are those of no other block
FIRST_BLOCK = 2**20
STREAM = 77  # of the tables themselves


class FreshTables(NamedTuple):
    """Tables drawn from two populations, first that of equal arms.

    N = 2 × H × 2 twins, in this order.

    row: rows of `by_turns` that make each table, [2, H, Q]. case: row of `by_turns` by round and
    replication, [T, N].
    """

    row: NDArray[np.int64]
    case: NDArray[np.int32]


class Account(NamedTuple):
    """What a policy earns a round: on the table, and on fresh ones.

    mean: of each replication on the table, [R]. by_case: of a round of each case, [Q]. fresh: on
    fresh tables, [2, H, 2]. expected: likewise, over all cases that might have been met, where the
    choice does not hang on the case; else none. fixed: whether it does on every table what it does
    on this one.
    """

    mean: Array
    by_case: Array
    fresh: Array
    expected: Array | None
    fixed: bool


def draw_fresh_tables(world: Table, rounds: int, replications: int, seed: int) -> FreshTables:
    """Tables of as many cases, drawn with replacement, and cases replications draw from each.

    Args:
      world: whose cases they are; their order is kept where it is given, since they may drift.
      rounds: of each replication, T.
      replications: at most so many, in fours; at least eight.
      seed: of tables and draws.
    """
    n_cases, tables = len(world.mask), max(2, replications // (2 * TWINS))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(FIRST_BLOCK, STREAM)))
    row = np.sort(rng.integers(n_cases, size=(2, tables, n_cases)), axis=-1)
    place = rng.integers(n_cases, size=(rounds, 2, tables, TWINS))
    if world.order == "given":
        place.sort(axis=0)
    # Equal arms: each row is taken from any of the copies in which its open arms have different
    # values.
    row[0] += n_cases * rng.integers(world.mask.sum(axis=1)[row[0]])
    case = row[np.arange(2)[:, None, None], np.arange(tables)[:, None], place]
    return FreshTables(row, case.reshape(rounds, -1).astype(np.int32))


def by_turns(world: Table) -> Table:
    """Copies of a table, one below the other.

    In copy s each arm has the values of the open arm s places further on.
    """
    n_cases, n_arms = world.mask.shape
    order = np.argsort(~world.mask, axis=1, kind="stable")  # open arms first
    rank, opened = np.argsort(order, axis=1), world.mask.sum(axis=1, keepdims=True)
    places = (np.where(rank < opened, (rank + shift) % opened, rank) for shift in range(n_arms))
    source = np.concatenate([np.take_along_axis(order, place, axis=1) for place in places])
    case = np.tile(np.arange(n_cases), n_arms)
    by_arm = ("value", "reward", "ms", "cost") if len(world.cost) > 1 else ("value", "reward", "ms")
    moved = {name: getattr(world, name)[case[:, None], source] for name in by_arm}
    if world.delay is not None:
        moved["delay"] = (
            world.delay[case] if world.delay.ndim == 1 else world.delay[case[:, None], source]
        )
    return world._replace(mask=world.mask[case], features=world.features[case], **moved)


def learner_values(
    bandit: Bandit,
    world: Table,
    fresh: FreshTables,
    *,
    seed: int,
    engine: str,
    work: float,
    budget: Budget | None = None,
) -> tuple[Array, Array | None]:
    """Mean value a round of a learner on each fresh table alone: `Account.fresh`, `.expected`.

    Args:
      world: every case and arm; what the learner sees is its reward.
      work: choices of the whole simulation, as `simulation.kernel` reads them.
      budget: that the learner keeps.
    """
    rounds, replications = fresh.case.shape
    copies: Any = check_world(by_turns(world), rounds)
    # An arm chosen whatever the case is earns its mean over the table: the luck of the draws is
    # left out.
    means = copies.value[fresh.row].mean(axis=2).reshape(-1, copies.n_arms)
    blind = not (bandit.linear or budget is not None or world.order == "given") and bool(
        world.mask.all()
    )
    earned, expected = [], []
    for part, met, arm in table_arms(
        bandit,
        copies._replace(order="replacement"),
        rounds,
        replications,
        lambda part, _: fresh.case[:, part],
        number=FIRST_BLOCK,
        seed=seed,
        engine=engine,
        work=work,
        budget=budget,
    ):
        earned.append(met.worth[met.case, arm].mean(axis=0))
        places = np.arange(part.start, part.stop) // TWINS
        expected.append(means[places, arm].mean(axis=0))
    values = np.concatenate(earned).reshape(2, -1, TWINS)
    return values, np.concatenate(expected).reshape(2, -1, TWINS) if blind else None


def table_arms(
    bandit: Bandit,
    world: Table,
    rounds: int,
    replications: int,
    rows: Callable[[slice, NDArray[np.int32]], NDArray[np.int32]],
    *,
    number: int,
    seed: int,
    engine: str,
    work: float,
    budget: Budget | None = None,
) -> Iterator[tuple[slice, Feed, Arms]]:
    """Blocks of replications of a learner, each on a resampled table of its own.

    Of each block its replications, what they meet, and the arms that are chosen, [T, R].

    Args:
      world: of which all tables are made.
      rows: rows of the world that replications meet, [T, R], from which of them there are and cases
        drawn for them.
      number: of the first block; each has streams of its own.
      work: choices of the whole simulation, as `simulation.kernel` reads them.
      budget: that the learner keeps.
    """
    first, start = first_ledger(None, bandit, world, budget), 0
    for block, size in enumerate(replication_blocks(replications), number):
        part, met = slice(start, start + size), feed(world, rounds, size, seed, block)
        case = np.ascontiguousarray(rows(part, cast("NDArray[np.int32]", met.case)))
        met = met._replace(case=case)
        if world.delay is not None and np.ndim(met.delay):
            met = met._replace(delay=world.delay.reshape(len(world.mask), -1)[:, 0][case])
        rng = stream(seed, block, POLICY_STREAM)
        how: dict[str, Any] = {"n_choices": work, "engine": engine, "initial": first}
        yield part, met, block_arms(bandit, met, world, rng, **how)
        start += size


def plan_values(by_row: Array, fresh: FreshTables) -> tuple[Array, Array]:
    """Mean of numbers by row of `by_turns` [A × Q], as `Account.fresh` and `.expected`."""
    expected = by_row[fresh.row].mean(axis=2)
    return by_row[fresh.case].mean(axis=0).reshape(2, -1, TWINS), np.repeat(
        expected[..., None], TWINS, axis=2
    )


def best_arm_values(
    value: Array, arms: NDArray[np.int64], fresh: FreshTables
) -> tuple[Array, Array, float]:
    """Value of the arm that is best on each fresh table.

    Args:
      value: of each row of `by_turns` and each arm, [A × Q, A].
      arms: those that may be chosen.

    Returns: as `Account.fresh` and `.expected`, and its mean on all cases as they are, where it was
      not chosen.
    """
    means = value[:, arms][fresh.row].mean(axis=2)  # [2, H, arms]
    best = means.argmax(axis=2)
    earned = value[fresh.case, arms[best].repeat(TWINS)].mean(axis=0).reshape(2, -1, TWINS)
    everywhere = value[: len(value) // value.shape[1], arms].mean(axis=0)
    return (
        earned,
        np.repeat(means.max(axis=2)[..., None], TWINS, axis=2),
        float(everywhere[best[1]].mean()),
    )


def difference_interval(left: Account, right: Account, level: float) -> tuple[float, float]:
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
    n_cases, replications, middle = (
        len(left.by_case),
        len(left.mean),
        float(left.mean.mean() - right.mean.mean()),
    )
    if n_cases < 2:
        return float("nan"), float("nan")
    # Own chance of a replication: of those side by side, and of twins on the cases as they are.
    gap, fresh = left.mean - right.mean, left.fresh - right.fresh
    freedom = replications - 1 + fresh.shape[1]
    squares = ((gap - gap.mean()) ** 2).sum() + ((fresh[1, :, 0] - fresh[1, :, 1]) ** 2).sum() / 2.0
    chance = float(squares) / freedom / replications
    if left.fixed and right.fixed:
        table = float((left.by_case - right.by_case).var(ddof=1)) / n_cases
        variance, spread = table + chance, 2.0 * (table**2 / (n_cases - 1) + chance**2 / freedom)
        # Twice the variance squared over the variance of the variance: few degrees where little is
        # known of it.
        reach = (
            t_quantile(2.0 * variance**2 / spread, level) * variance**0.5 if spread > 0.0 else 0.0
        )
        return middle - reach, middle + reach
    if left.expected is not None and right.expected is not None:
        fresh = left.expected - right.expected
    (equal, variance), (apart, _) = (_reach(part, chance, level) for part in fresh)
    # On the safe side no less than with equal arms, where they are not out of the question: three
    # times too far.
    start, effect = fresh[0].mean(), fresh[1].mean() - fresh[0].mean()
    rise = (
        max(apart**2, equal**2 * min(max(3.0 - abs(middle - start) / max(equal, TINY), 0.0), 1.0))
        - equal**2
    )
    # Which differences may be the truth: a grid of all that the largest reach leaves.
    most = MOST_EFFECT if rise > 0.0 else 1.0
    truth = middle + (equal**2 + max(rise, 0.0) * most**0.5) ** 0.5 * np.linspace(
        -1.0, 1.0, CANDIDATES
    )
    share = np.clip((truth - start) / effect, 0.0, most) if effect else np.zeros(CANDIDATES)
    held = truth[(truth - middle) ** 2 <= equal**2 + rise * share**0.5]
    shift = (
        _skewness(fresh[0], variance) * variance**0.5 / 6.0 * (1.0 + t_quantile(np.inf, level) ** 2)
    )
    return float(held[0]) + min(shift, 0.0), float(held[-1]) + max(shift, 0.0)


def _reach(values: Array, chance: float, level: float) -> tuple[float, float]:
    """Reach of a normal deviate whose variance is chance plus twins' [H, 2] over tables.

    That variance comes second.

    Twins have the same cases and other chance, so that their products hold the variance of the
    cases alone. It is at least 0 and known to within an error: the level is held in the mean over
    all that it may be.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr, stdtr, stdtrit

    freedom = len(values) - 1
    products = (values - values.mean()).prod(axis=1) * len(values) / freedom
    table, error = float(products.mean()), float(products.std(ddof=1)) / len(values) ** 0.5
    below = min(float(stdtr(freedom, -table / max(error, TINY))), 1.0 - 1e-9)
    parts = stdtrit(freedom, below + (1.0 - below) * (np.arange(PARTS) + 0.5) / PARTS)
    deviation = np.maximum((np.maximum(table + error * parts, 0.0) + chance) ** 0.5, TINY)
    reach = brentq(
        lambda far: ndtr(-far / deviation).mean() - (1.0 - level) / 2.0, 0.0, 10.0 * deviation.max()
    )
    return float(reach), max(table, 0.0) + chance


def _skewness(values: Array, variance: float) -> float:
    """Skewness of twins [H, 2] on the scale of the variance.

    0 as far as their own chance explains it.
    """
    off = values.mean(axis=1) - values.mean()
    third, error = float((off**3).mean()), float(off.var()) ** 1.5 * (6.0 / len(off)) ** 0.5
    if variance <= TINY or not third:
        return 0.0
    return float(np.clip(third / variance**1.5, -MOST_SKEW, MOST_SKEW)) * max(
        0.0, 1.0 - (error / third) ** 2
    )
