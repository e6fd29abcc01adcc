"""Fresh tables.

How they are drawn, learners on them, the variance over tables, and the intervals that follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import Bandit, Table
from raglab.bandit.fixed_plans import UNIFORM_PLAN, baselines
from raglab.lab.fresh_tables import (
    MAX_EFFECT_RATIO,
    Account,
    best_arm_values,
    by_turns,
    difference_interval,
    draw_fresh_tables,
    learner_values,
)
from raglab.lab.learner_comparison import compare_learners
from raglab.metrics.intervals import mean_interval, t_quantile

SIZES: dict[str, Any] = {"seed": 3, "engine": "numpy", "total_choices": 0.0}


def world(value, mask=None, **more):
    """Table in which the learner sees the value."""
    worth = np.asarray(value, dtype=np.float64)
    open_ = np.ones(worth.shape, dtype=bool) if mask is None else np.asarray(mask)
    names = tuple("abcdef"[: worth.shape[1]])
    return Table(names, worth, worth, open_, np.zeros((len(worth), 0)), (), worth * np.nan, **more)


def still(fresh):
    """Account of a policy that earns nothing on 20 cases."""
    return Account(
        np.zeros(10), np.zeros(20), np.zeros_like(fresh), np.zeros_like(fresh), fixed=True
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 50), st.integers(0, 10**6))
def test_replications_meet_rows_of_their_own_table(n_cases, rounds, replications, seed):
    """As many cases as the table has; the second population is the cases as they are.

    At most as many as asked for.
    """
    met = world(np.zeros((n_cases, 3)))
    fresh = draw_fresh_tables(met, rounds, replications, seed)
    n = max(8, replications // 4 * 4)
    assert fresh.case.shape == (rounds, n)
    assert fresh.row.shape == (2, n // 4, n_cases)
    assert fresh.row[1].max() < n_cases
    assert fresh.row[0].max() < 3 * n_cases
    again = draw_fresh_tables(met, rounds, replications, seed)
    np.testing.assert_array_equal(fresh.case, again.case)
    table_rows = fresh.row.reshape(n // 2, n_cases)
    assert all(set(fresh.case[:, place]) <= set(table_rows[place // 2]) for place in range(n))


def test_arms_take_turns_among_those_that_are_open():
    """Worked: three arms, the middle one closed in the second case.

    Costs and delays go with the values.
    """
    cost = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    mask = [[True, True, True], [True, False, True]]
    met = world(cost / 10.0, mask, cost=cost, delay=cost.astype(int) - 1)
    copies = by_turns(met)
    np.testing.assert_allclose(
        10.0 * copies.value, [[1, 2, 3], [4, 5, 6], [2, 3, 1], [6, 5, 4], [3, 1, 2], [4, 5, 6]]
    )
    np.testing.assert_allclose(copies.cost, 10.0 * copies.reward)
    np.testing.assert_array_equal(copies.delay, copies.cost - 1)
    np.testing.assert_array_equal(copies.mask, np.tile(met.mask, (3, 1)))
    # The first case may come from three copies, the second from the two in which its open arms
    # differ.
    row = draw_fresh_tables(met, 2, 4000, 0).row[0]
    assert np.unique(row).tolist() == [0, 1, 2, 3, 4]
    for case, mean in ((0, 0.2), (1, 0.5)):
        values = copies.value[row[row % 2 == case]].mean(axis=0)
        np.testing.assert_allclose(values, [mean] * 3, atol=0.01)


def test_a_blind_choice_is_expected_to_earn_the_mean_of_its_table():
    """Of one arm exactly, without the chance of the draws.

    A learner of features, or in order, is not blind.
    """
    met = world(np.random.default_rng(1).random((30, 1)))
    fresh = draw_fresh_tables(met, 7, 40, 1)
    _, expected = learner_values(Bandit("ucb1"), met, fresh, **SIZES)
    np.testing.assert_allclose(expected[..., 0], met.value[fresh.row, 0].mean(axis=2))
    seeing = met._replace(features=np.ones((30, 1)), feature_names=("x",))
    assert learner_values(Bandit("lin_ucb"), seeing, fresh, **SIZES)[1] is None
    assert learner_values(Bandit("ucb1"), met._replace(order="given"), fresh, **SIZES)[1] is None


def test_a_learner_knows_its_own_table_alone():
    """It follows an arm that is always right, but not where arms take turns to be."""
    met = world(np.tile([1.0, 0.0], (40, 1)))
    earned, expected = learner_values(
        Bandit("ucb1"), met, draw_fresh_tables(met, 400, 40, 1), **SIZES
    )
    assert earned[1].min() > 0.8
    np.testing.assert_allclose(earned[0].mean(), 0.5, atol=0.1)
    np.testing.assert_allclose(expected[1], earned[1])


def test_rewards_come_as_late_as_their_own_case():
    """Only arm a pays, and rewards of all cases but one come too late to learn from.

    It is not followed.
    """
    delay = np.array([500] * 39 + [0])
    met = world(np.tile([1.0, 0.0], (40, 1)), delay=delay)
    fresh = draw_fresh_tables(met, 100, 16, 1)
    never = fresh._replace(case=np.where(fresh.case % 40 == 39, fresh.case - 1, fresh.case))
    assert learner_values(Bandit("ucb1"), met, never, **SIZES)[0][1].max() < 0.7


def test_the_best_arm_of_each_table():
    """Worked: the best arm of the rows of a table, its mean there, and its mean on all cases."""
    value = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    fresh = draw_fresh_tables(world(value), 4, 8, 0)
    rows = np.array([[[0, 0, 1], [1, 1, 2]], [[0, 0, 0], [1, 2, 2]]])
    case = np.repeat(rows[:, :, None, 0].ravel(), 2)[None].repeat(4, axis=0).astype(np.int32)
    earned, expected, everywhere = best_arm_values(
        np.tile(value, (2, 1)), np.array([0, 1]), fresh._replace(row=rows, case=case)
    )
    assert (earned == 1.0).all()
    np.testing.assert_allclose(expected[..., 0], [[2 / 3, 2.5 / 3], [1.0, 2 / 3]])
    assert everywhere == pytest.approx((1 / 3 + 0.5) / 2)


def test_plans_that_stay_have_a_t_interval_of_the_cases():
    """Without chance of the replications it is Student's, to the digit."""
    by_case, fresh = np.random.default_rng(1).random(25), np.zeros((2, 3, 2))
    account = Account(np.full(4, by_case.mean()), by_case, fresh, fresh, fixed=True)
    nothing = Account(np.zeros(4), np.zeros(25), fresh, fresh, fixed=True)
    low, high = mean_interval(by_case[:, None], 0.9)
    assert difference_interval(account, nothing, 0.9) == pytest.approx((low[0], high[0]))
    assert difference_interval(account, account, 0.9) == (0.0, 0.0)


def test_the_variance_over_tables_comes_without_the_chance_of_the_twins():
    """Tables that vary by .1, and chance of a twin three times as large.

    The interval is that of the tables.
    """
    widths = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        fresh = 0.1 * rng.standard_normal((2, 100, 1)) + 0.3 * rng.standard_normal((2, 100, 2))
        account = Account(np.full(1000, 0.5), np.zeros(20), fresh, None, fixed=False)
        low, high = difference_interval(account, still(fresh)._replace(mean=np.zeros(1000)), 0.95)
        widths.append(high - low)
    assert 0.35 < np.median(widths) < 0.75  # 2 · 1.96 · 0.1 = 0.39, and what so much noise adds


def test_the_reach_is_that_of_equal_arms_where_the_truth_is_as_with_them():
    """Worked: equal arms vary by 1 around 0, arms as they are by 3 around 2.

    The found 5 and -5 lie on either side.
    """
    base = np.tile([-1.0, 1.0], 500)[:, None].repeat(2, axis=1)
    fresh = np.stack([base, 2.0 + 3.0 * base])
    z = t_quantile(np.inf, 0.95)

    def ends(middle):
        account = Account(np.full(10, middle), np.zeros(20), fresh, fresh, fixed=False)
        return difference_interval(account, still(fresh), 0.95)

    low, high = ends(-5.0)
    assert (low, high) == pytest.approx((-5.0 - z, -5.0 + z), abs=0.02)
    low, high = ends(5.0)
    # Squares of the reach grow from 1 to 9 as the root of the effect does, and no further than at
    # the most effect.
    assert high == pytest.approx(5.0 + z * (1.0 + 8.0 * MAX_EFFECT_RATIO**0.5) ** 0.5, abs=0.02)
    assert (5.0 - low) ** 2 == pytest.approx(
        z**2 * (1.0 + 8.0 * (max(low, 0.0) / 2.0) ** 0.5), abs=0.1
    )


def test_differences_of_learners_hold():
    """A better arm, 60 tables.

    The interval against uniform holds the mean over all of them in nearly all.
    """
    rows = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        met = world((rng.random((100, 3)) < [0.5, 0.5, 0.6]) + 0.0)
        sizes: dict[str, Any] = {"rounds": 200, "replications": 10, "seed": seed, "n_boot": 100}
        table = compare_learners(
            met, {"t": Bandit()}, baselines(met), reference=UNIFORM_PLAN, **sizes
        ).table
        rows.append(
            table.loc[0, ["difference", "difference_low", "difference_high"]].to_numpy(np.float64)
        )
    value, low, high = np.array(rows).T
    held = (low <= value.mean()) & (value.mean() <= high)
    assert held.mean() >= 0.85, held.mean()


def test_few_tables_leave_no_interval_without_width():
    """Twins that differ in sign give a variance below 0, of which little is known.

    The width is not 0.
    """
    fresh = np.array([[[0.4, -0.3], [0.3, -0.4]], [[-0.2, 0.4], [0.4, -0.5]]])
    account = Account(np.full(5, 0.5), np.zeros(20), fresh, None, fixed=False)
    low, high = difference_interval(account, still(fresh)._replace(mean=np.full(5, 0.25)), 0.95)
    assert low < 0.0
    assert high > 0.5
