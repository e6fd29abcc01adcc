"""Half samples: halves, learners on them, the variance over tables, and the intervals that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import Bandit, Table
from raglab.bandit.fixed_plans import FIXED, ORACLE, UNIFORM, baselines
from raglab.lab.half_samples import (
    Account,
    best_arm_values,
    difference_interval,
    draw_half_samples,
    half_sample_means,
    half_sample_values,
)
from raglab.lab.learner_comparison import compare_learners
from raglab.metrics.intervals import mean_interval


def world(value: Any, mask: Any = None) -> Table:
    """Table in which the learner sees the value."""
    worth = np.asarray(value, dtype=np.float64)
    open_ = np.ones(worth.shape, dtype=bool) if mask is None else np.asarray(mask)
    names = tuple("abcdef"[: worth.shape[1]])
    return Table(names, worth, worth, open_, np.zeros((len(worth), 0)), (), worth * np.nan)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 30), st.integers(1, 20), st.integers(0, 50), st.integers(0, 10**6))
def test_halves_share_no_case_and_leave_none_out(n_cases: int, rounds: int, replications: int, seed: int) -> None:
    """Each replication draws from its own half alone; there are at least as many as were asked for."""
    halves = draw_half_samples(n_cases, rounds, replications, seed)
    assert (halves.member.sum(axis=1) == 1).all()
    assert np.array_equal(np.unique(halves.member.sum(axis=2)), np.unique([n_cases // 2, n_cases - n_cases // 2]))
    n = int(np.prod(halves.shape))
    assert halves.case.shape == (rounds, n)
    assert n >= max(8, replications)
    inside = halves.member.repeat(2, axis=1).reshape(n, n_cases)
    assert ((halves.counts > 0) <= inside).all()
    assert (halves.counts.sum(axis=1) == rounds).all()
    again = draw_half_samples(n_cases, rounds, replications, seed)
    np.testing.assert_array_equal(halves.case, again.case)


def test_a_learner_over_one_arm_earns_the_mean_of_its_draws() -> None:
    """In every block, by both engines where there are two."""
    rng = np.random.default_rng(0)
    met = world(rng.random((30, 2)), np.tile([True, False], (30, 1)))
    halves = draw_half_samples(30, 40, 260, 3)
    half = half_sample_values(Bandit("ucb1"), met, halves, seed=3, engine="numpy", work=0.0)
    np.testing.assert_allclose(half, half_sample_means(met.value[:, 0], halves))


def test_a_learner_knows_its_own_half_alone() -> None:
    """Where the two halves favour different arms, it follows the arm of its half."""
    value = np.zeros((40, 2))
    halves = draw_half_samples(40, 400, 8, 1)
    value[halves.member[0, 0], 0] = 1.0
    value[halves.member[0, 1], 1] = 1.0
    half = half_sample_values(Bandit("ucb1"), world(value), halves, seed=1, engine="numpy", work=0.0)
    assert half[0].min() > 0.8
    assert half[1:].max() < 0.8


def test_the_best_arm_of_each_half_by_head() -> None:
    """On the half where it is best it earns 1; on the other half, which it was not chosen on, 0."""
    value = np.zeros((10, 2))
    halves = draw_half_samples(10, 5, 8, 2)
    value[halves.member[0, 0], 0] = 1.0
    value[halves.member[0, 1], 1] = 1.0
    own, elsewhere = best_arm_values(value, np.array([0, 1]), halves)
    assert own[0].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert elsewhere[0].tolist() == [0.0, 0.0]


def test_plans_that_stay_have_a_t_interval_of_the_cases() -> None:
    """Without chance of the replications it is Student's, to the digit."""
    by_case = np.random.default_rng(1).random(25)
    half = np.zeros((3, 2, 2))
    left = Account(np.full(4, by_case.mean()), by_case, half, fixed=True)
    nothing = Account(np.zeros(4), np.zeros(25), half, fixed=True)
    low, high = mean_interval(by_case[:, None], 0.9)
    assert difference_interval(left, nothing, 0.9) == pytest.approx((low[0], high[0]))
    assert difference_interval(left, left, 0.9) == (0.0, 0.0)
    single = Account(np.ones(1), np.ones(1), half, fixed=True)
    assert np.isnan(difference_interval(single, single, 0.9)).all()


def test_the_variance_over_tables_comes_without_the_chance_of_the_twins() -> None:
    """Halves of linear statistics with noise ten times as large: the interval is that of the table in the mean."""
    widths = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(100)
        halves = draw_half_samples(100, 1, 200, seed)
        table = np.stack([x[member].mean() for member in halves.member.reshape(-1, 100)]).reshape(50, 2, 1)
        half = table + 0.3 * rng.standard_normal((50, 2, 2))
        account = Account(np.full(20, x.mean()), np.zeros(100), half, fixed=False)
        nothing = Account(np.zeros(20), np.zeros(100), np.zeros((50, 2, 2)), fixed=True)
        low, high = difference_interval(account, nothing, 0.95)
        widths.append(high - low)
    assert 0.3 < np.median(widths) < 1.0  # 2 · 1.96 · 0.1 = 0.39, and what so much noise adds


def test_notes_say_what_the_intervals_are_of_and_what_flatters() -> None:
    """An arm chosen here is named as such, with what it earns elsewhere; one chosen on other cases is not."""
    rng = np.random.default_rng(2)
    met = world((rng.random((60, 3)) < 0.5) + 0.0)
    sizes: dict[str, Any] = {"rounds": 80, "replications": 5, "n_boot": 40}
    result = compare_learners(met, {"ucb1": Bandit("ucb1")}, baselines(met), **sizes)
    assert "fresh tables of 60 cases" in result.notes[0]
    assert "10 splits of the cases, 40 replications" in result.notes[0]
    assert "was chosen on the 60 cases that it is judged on" in result.notes[1]
    own, elsewhere = (float(word) for word in result.notes[1].split() if word.startswith("0."))
    assert own > 0.5 > elsewhere - 0.1
    apart = compare_learners(met, {"ucb1": Bandit("ucb1")}, baselines(met, fixed="a"), fixed="a", **sizes)
    assert len(apart.notes) == 1


def test_intervals_and_values_are_the_same_for_the_same_seed() -> None:
    """Values do not depend on the half samples; intervals do, and repeat."""
    rng = np.random.default_rng(3)
    met = world((rng.random((50, 2)) < 0.5) + 0.0)
    sizes: dict[str, Any] = {"rounds": 60, "replications": 5, "seed": 4}
    first, second, fewer = (
        compare_learners(met, {"t": Bandit()}, baselines(met), n_boot=n, **sizes).table for n in (40, 40, 20)
    )
    assert first.equals(second)
    assert (first[["right", "regret", "difference"]] == fewer[["right", "regret", "difference"]]).all(axis=None)
    assert first.loc[0, "right_low"] != fewer.loc[0, "right_low"]
    assert set(first["policy"]) == {"t", FIXED, UNIFORM, ORACLE}


@pytest.mark.slow
def test_differences_of_learners_hold() -> None:
    """A better arm, 60 tables: the interval against uniform holds the mean over all of them in nearly all."""
    rows = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        met = world((rng.random((100, 3)) < [0.5, 0.5, 0.6]) + 0.0)
        table = compare_learners(
            met, {"t": Bandit()}, baselines(met), rounds=200, replications=10, seed=seed, reference=UNIFORM, n_boot=100
        ).table
        rows.append(table.loc[0, ["difference", "difference_low", "difference_high"]].to_numpy(np.float64))
    value, low, high = np.array(rows).T
    held = (low <= value.mean()) & (value.mean() <= high)
    assert held.mean() >= 0.85, held.mean()


def test_few_halves_leave_no_interval_without_width() -> None:
    """Twins that differ in sign give a variance below 0; the spread of the halves is taken, so the width is not 0."""
    half = np.array([[[0.4, -0.3], [0.3, -0.4]], [[-0.2, 0.4], [0.4, -0.5]]])
    left = Account(np.full(5, 0.5), np.zeros(20), half, fixed=False)
    right = Account(np.full(5, 0.25), np.zeros(20), np.zeros((2, 2, 2)), fixed=False)
    low, high = difference_interval(left, right, 0.95)
    assert low < 0.25 < high
