"""Budgets: the frontier of mixtures, the price that keeps one, the pacer, plans and their spend."""

from __future__ import annotations

import doctest
import warnings
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import read_only_arguments
from raglab.bandit import (
    Bandit,
    Budget,
    Table,
    choose_price,
    compare_plans,
    fit_priced_policy,
    frontier,
    learned_ledger,
    log,
    pace,
    play_paced,
    run,
    start_pacer,
)
from raglab.bandit.fixed_plans import MIXTURE_PLAN
from raglab.extensions.budgets import plans
from raglab.extensions.budgets.ledgers import start_ledger
from raglab.extensions.budgets.prices import REACH
from raglab.lab.bandit_study import baselines, compare_learners
from raglab.off_policy.evaluation import estimate

HALVES = st.integers(0, 4).map(lambda n: n / 4.0)


def table_of(reward, cost, features=None, *, price=0.0, order="given"):
    """Table of rewards and costs [Q, A]."""
    frame = pd.DataFrame(np.asarray(reward, float)).rename(columns=lambda n: f"arm{n}")
    names = [] if features is None else [f"x{n}" for n in range(np.shape(features)[1])]
    context = pd.DataFrame(
        np.zeros((len(frame), 0)) if features is None else features, columns=names
    )
    costs = np.asarray(cost, float)
    return Table.from_frame(
        pd.concat([frame, context], axis=1), costs=costs, price=price, features=names, order=order
    )


def grids(most_rows=6):
    """Rewards and costs [Q, A] on a coarse grid."""
    return st.integers(1, most_rows).flatmap(
        lambda q: st.integers(1, 4).flatmap(
            lambda a: st.tuples(
                *(
                    st.lists(st.lists(HALVES, min_size=a, max_size=a), min_size=q, max_size=q).map(
                        np.array
                    )
                    for _ in range(2)
                )
            )
        )
    )


# The frontier


def test_a_frontier_of_three_arms():
    """An arm below the line between two others is in no mixture."""
    corners = frontier(table_of([[0.2, 0.4, 0.8]], [[1.0, 2.0, 3.0]]))
    rows = [[1.0, 0.2, 1.0, 0.0, 0.0], [3.0, 0.8, 0.0, 0.0, 1.0]]
    assert corners.frame().to_numpy().tolist() == rows
    assert corners.mixture_at(2.5).tolist() == [0.25, 0.0, 0.75]
    np.testing.assert_allclose(corners.reward_at([0.5, 2.0, 9.0]), [np.nan, 0.5, 0.8])


@given(grids(), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_no_mixture_beats_the_frontier(grid, eighths):
    """Concave and ascending; the exact optimum of all pairs of arms at any spend.

    The mixture of a budget spends it, or what the best arm does; below the least spend is none.
    """
    corners = frontier(table_of(*grid))
    budget, (reward, spend) = eighths / 8.0, (values.mean(axis=0) for values in grid)
    slopes = np.diff(corners.reward) / np.diff(corners.spend)
    assert (slopes > 0.0).all()
    assert (np.diff(slopes) < 0.0).all()
    assert corners.least_spend == spend.min()
    for share, first, second in product((0.0, 0.25, 0.5), *[range(len(spend))] * 2):
        mixed, earned = (
            share * values[first] + (1.0 - share) * values[second] for values in (spend, reward)
        )
        assert earned <= corners.reward_at(mixed) + 1e-12
    if budget < corners.least_spend:
        with pytest.raises(ValueError, match=f"at least {corners.least_spend:.6g}"):
            corners.mixture_at(budget)
        return
    mixture = corners.mixture_at(budget)
    assert mixture.sum() == pytest.approx(1.0)
    assert spend @ mixture == pytest.approx(min(budget, corners.spend[-1]))
    assert reward @ mixture == pytest.approx(float(corners.reward_at(budget)))


def test_a_frontier_leaves_out_what_a_question_cannot_have():
    """And says so."""
    table = table_of([[0.2, 0.4], [0.2, np.nan]], [[1.0, 2.0], [1.0, 2.0]])
    assert frontier(table).spend.tolist() == [1.0]
    assert "arm1" in frontier(table).notes[0]


# The price


def test_a_budget_that_does_not_bind_has_no_price():
    """And of arms as good the cheapest is taken."""
    reward, cost = [[0.5, 0.5], [0.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]
    choice = choose_price(reward, cost, 10.0)
    assert choice == (0.0, 0.0, 0.0, 1.5)
    assert choice.plan(reward, cost).tolist() == [[0.0, 1.0], [0.0, 1.0]]


@given(grids(), st.integers(1, 8))
@example((np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]])), 2)
@settings(max_examples=25, deadline=None)
def test_a_price_is_the_optimum_of_all_plans(grid, eighths):
    """By its own predictions no plan with this spend earns more.

    Linear programming says the same.
    """
    from scipy.optimize import linprog

    (reward, cost), budget = grid, eighths / 8.0
    size, n_arms = reward.shape
    if cost.min(axis=1).mean() > budget:
        with pytest.raises(ValueError, match="least spend"):
            choose_price(reward, cost, budget)
        return
    choice = choose_price(reward, cost, budget)
    plan = choice.plan(reward, cost)
    assert np.allclose(plan.sum(axis=1), 1.0)
    assert (plan * cost).sum() / size == pytest.approx(choice.spend)
    assert choice.spend <= budget * (1.0 + 1e-9)
    rows = np.kron(np.eye(size), np.ones(n_arms))
    best = linprog(-reward.ravel(), cost.reshape(1, -1), [budget * size], rows, np.ones(size))
    assert (plan * reward).sum() == pytest.approx(-best.fun, abs=1e-7)


# The pacer


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=20, deadline=None)
def test_the_overspend_is_read_off_the_price(costs, step):
    """Overspend = budget / step * ln(price / first price), while the price is inside its reach."""
    budget = Budget(2.0, price=0.5, step=step)
    pacer = start_pacer(budget)
    for cost in costs:
        pacer = pace(pacer, float(cost))
    assert pacer.rounds == len(costs)
    assert float(pacer.spend) == sum(costs)
    assert 1.0 / REACH < float(pacer.price) * 2.0 < REACH
    overspend = float(pacer.spend) - 2.0 * len(costs)
    assert overspend == pytest.approx(2.0 / step * np.log(float(pacer.price) / 0.5), abs=1e-9)


def test_a_pacer_is_a_value():
    """State in, state out; plays side by side; a cost that never arrives is the budget's.

    Reach and rules.
    """
    first = start_pacer(Budget(2.0), (2,))
    after = pace(first, [4.0, np.nan])
    assert first.spend.tolist() == [0.0, 0.0]
    assert after.spend.tolist() == [4.0, 2.0]
    assert after.price[1] == pytest.approx(first.price[1])
    assert pace(first, [1e9, 0.0]).price[0] == pytest.approx(REACH / 2.0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        pace(first, -1.0)
    for wrong in (0.0, np.inf, Budget(1.0, price=0.0), Budget(1.0, step=0.0)):
        with pytest.raises(ValueError, match="number above 0"):
            start_pacer(wrong)


# A policy of ridges, held and paced


def market(seed, size=400, dearer=1.0, order="given"):
    """Three arms; costly ones gain where the first feature is large; costs follow the second."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 2))
    mean = np.column_stack([0.5 + 0.0 * x[:, 0], 0.6 + 0.15 * x[:, 0], 0.62 + 0.17 * x[:, 0]])
    cost = dearer * np.exp(0.4 * x[:, [1]]) * np.array([0.1, 1.0, 3.0])
    return table_of(
        np.clip(mean + 0.05 * rng.normal(size=mean.shape), 0.0, 1.0), cost, x, order=order
    )


def test_a_priced_policy_beats_the_mixture_within_the_budget():
    """Held on another table, and with an interval above 0."""
    table, later = market(0), market(1)
    policy = fit_priced_policy(table, Budget(0.6, "$"))
    shown = compare_plans(
        later, {"priced": policy.plan(later)}, budget=policy.budget, validation=table
    )
    priced = shown.set_index("policy").loc["priced"]
    assert priced["difference_low"] > 0.03
    assert priced["of_budget"] < 1.1
    assert policy.price.spend == pytest.approx(0.6)
    assert np.allclose(policy.plan(later).sum(axis=1), 1.0)


def test_a_pacer_holds_the_budget_where_costs_have_risen():
    """A price that is held overspends by half; one that follows the spend does not."""
    table, later = market(0), market(1, size=1500, dearer=1.5)
    policy = fit_priced_policy(table, Budget(0.6))
    held = float((policy.plan(later) * later.cost).sum(axis=1).mean())
    assert held > 0.8
    for order in ("given", "shuffled"):
        played = play_paced(policy, later, order=order, seed=3)
        assert float(played.pacer.spend) / 1500 < 0.65
        assert sorted(played.order.tolist()) == list(range(1500))
        assert float((played.plan * later.cost).sum()) == pytest.approx(float(played.pacer.spend))


def test_known_costs_and_another_table_for_the_price():
    """Costs that are known before are not predicted.

    A price can be chosen on questions of its own.
    """
    table, second = market(0), market(2)
    policy = fit_priced_policy(table, 0.6, validation=second, known_costs=True)
    assert policy.costs is None
    assert np.array_equal(policy.predictions(second)[1], second.cost)
    assert float((policy.plan(second) * second.cost).sum(axis=1).mean()) == pytest.approx(0.6)
    with pytest.raises(ValueError, match="feature_names"):
        policy.plan(table_of(second.gross, second.cost, second.features[:, :1]))


def test_a_log_teaches_a_policy():
    """From one arm a question; nothing else is read."""
    table = market(0, 1200)
    arm = np.random.default_rng(0).integers(3, size=1200)
    policy = fit_priced_policy(table, 0.6, logged=arm)
    chosen = np.eye(3, dtype=bool)[arm]
    blank = table._replace(
        value=np.where(chosen, table.value, 0.125),
        cost=np.where(chosen, table.cost, 9.0),
        reward=table.reward * 0.5,
    )
    again = fit_priced_policy(blank, 0.6, logged=arm)
    assert again.price == policy.price


def test_a_masked_arm_is_never_planned():
    """Neither by a held price nor by a paced one."""
    table = market(0)
    mask = table.mask.copy()
    mask[::2, 1] = False
    part = table._replace(mask=mask)
    policy = fit_priced_policy(part, 0.6)
    for plan in (policy.plan(part), play_paced(policy, part).plan):
        assert plan[::2, 1].sum() == 0.0
        assert plan[1::2, 1].sum() > 0.0


def test_a_plan_is_what_run_estimate_and_comparisons_take():
    """A priced plan as probabilities.

    Simulated, estimated from a uniform log, and beside learners.
    """
    table, later = market(0), market(1, order="shuffled")
    plan = fit_priced_policy(table, 0.6).plan(later)
    value = float((plan * later.value).sum(axis=1).mean())
    done = run(plan, later, rounds=400, replications=20)
    assert float(done.value[:, -1].mean()) / 400 == pytest.approx(value, abs=0.005)
    assert done.spend is not None
    rows = log(Bandit("epsilon_greedy", epsilon=1.0), later, rounds=400, seed=1)
    estimates = estimate(rows, plan[rows["case"]], ("snips",))
    assert estimates["low"][0] < value < estimates["high"][0]
    plans = {"priced": plan} | baselines(later)
    compared = compare_learners(
        later, {"nig": Bandit("thompson_nig")}, plans, rounds=400, replications=3
    )
    right = compared.table.set_index("policy")["right"]
    assert right["priced"] == pytest.approx(value, abs=0.01)
    assert right["priced"] < right["oracle"]


# Plans beside each other


def test_plans_are_compared_on_the_same_questions():
    """Reward and spend apart; paired, so that a plan and itself differ by exactly 0.

    The mixture of the same questions flatters and is noted; that of other ones is not.
    """
    table = market(0)
    cheap, dear = np.eye(3)[0], np.eye(3)[2]
    plans = {"cheap": cheap, "same": np.tile(cheap, (400, 1)), "dear": dear}
    rows = compare_plans(table, plans, reference="cheap").set_index("policy")
    same, dear_row = rows.loc["same"], rows.loc["dear"]
    assert (same[["difference", "difference_low", "difference_high"]] == 0.0).all()
    assert dear_row["spend"] == pytest.approx(table.cost[:, 2].mean())
    assert dear_row["reward"] == pytest.approx(table.gross[:, 2].mean())
    assert dear_row["reward_low"] < dear_row["reward"] < dear_row["reward_high"]
    assert np.isnan(rows["of_budget"]).all()
    assert "flatters" in compare_plans(table, {}, budget=0.6).attrs["notes"][0]
    mixture = compare_plans(table, {}, budget=0.6, validation=market(1))
    assert (mixture.attrs["notes"], mixture["policy"].tolist()) == ((), [MIXTURE_PLAN])
    for plan, rule in (([0.5, 0.5], r"\[A\] or \[Q, A\]"), ([0.5, 0.2, 0.2], "sum to 1")):
        with pytest.raises(ValueError, match=rule):
            compare_plans(table, {"wrong": plan})


# A learner under a budget

FOLLOWERS = [
    Bandit("ucb1", exploration=0.2),
    Bandit("lin_thompson", exploration=0.2, discount=0.999),
]


@pytest.mark.parametrize("bandit", FOLLOWERS, ids=lambda bandit: bandit.algorithm)
def test_a_learner_keeps_its_budget(bandit):
    """The spend comes to the budget; without one it is far above."""
    table = market(1, 1500, order="shuffled")
    plays: dict[str, Any] = {"rounds": 1500, "replications": 4, "seed": 5}
    done = run(bandit, table, budget=Budget(0.6, step=0.02), **plays)
    assert done.spend is not None
    spend = done.spend[:, -1] / 1500
    assert spend.max() < 0.72
    free = run(bandit, table, **plays)
    assert free.spend is not None
    assert free.spend[:, -1].mean() / 1500 > 1.0


def test_a_log_under_a_budget_is_that_of_its_price():
    """Propensities are exact for the state net of the price; reward, cost and price are columns."""
    table = market(1, 60, order="shuffled")
    bandit, budget = Bandit("thompson_nig"), Budget(0.6)
    rows = log(bandit, table, rounds=60, seed=2, budget=budget)
    pacer = start_pacer(budget)
    for _, row in rows.iterrows():
        assert row["price"] == pytest.approx(float(pacer.price))
        pacer = pace(pacer, row["cost"])
    assert np.allclose(rows[[f"p_{arm}" for arm in table.arms]].sum(axis=1), 1.0)
    assert np.array_equal(rows["reward"], table.gross[rows["case"], rows["action"]])
    assert np.array_equal(rows["cost"], table.cost[rows["case"], rows["action"]])


def test_net_sums_are_those_of_net_rewards():
    """At any price, as if each reward had been charged at it."""
    rng = np.random.default_rng(0)
    arm, reward, cost = rng.integers(2, size=30), rng.random(30), rng.random(30)
    x = np.column_stack([np.ones(30), rng.normal(size=30)])
    bandit = Bandit("lin_ucb", prior_mean=0.7)
    ledger = learned_ledger(arm, reward, cost, bandit, Budget(1.0, price=0.3), n_arms=2, context=x)
    net, state = reward - 0.3 * cost, ledger.net
    for number in range(2):
        at = arm == number
        assert state.total[number] == pytest.approx(net[at].sum())
        assert state.square[number] == pytest.approx((net[at] ** 2).sum())
        assert np.allclose(state.moment[number], ((net - 0.7)[at, None] * x[at]).sum(axis=0))
        assert np.allclose(state.gram[number], x[at].T @ x[at])


def test_a_budget_ignores_the_price_of_a_table():
    """A ledger learns gross rewards, and charges costs itself."""
    plays: dict[str, Any] = {"rounds": 60, "replications": 2, "budget": 3.0}
    arms = [
        run(Bandit("ucb1"), market(0, 60).priced(price), **plays).arm.tolist()
        for price in (0.0, 0.5)
    ]
    assert arms[0] == arms[1]


def test_what_cannot_keep_a_budget_is_refused_or_switched():
    """By name, with a remedy; a learner of successes is switched, and says so."""
    table = market(0, 60)
    plays: dict[str, Any] = {"rounds": 60, "replications": 2, "budget": 0.6}
    ucb1, free = Bandit("ucb1"), table._replace(cost=np.zeros((1, 1)))
    cases: list[tuple[Any, Table, Any, str]] = [
        (Bandit("kl_ucb"), table, None, "kl_ucb"),
        (Bandit("ucb1", window=5), table, None, "a window"),
        (ucb1, free, None, "table with costs"),
        ([1.0, 0.0, 0.0], table, None, "needs a learner"),
        (ucb1, table, start_ledger(3, ucb1, 0.6).state, "Ledger with a budget"),
    ]
    for policy, world, initial, rule in cases:
        with pytest.raises(ValueError, match=rule):
            run(policy, world, initial=initial, **plays)
    with pytest.warns(UserWarning, match=r"S4\.5"):
        switched = run(Bandit("thompson_beta"), table, **plays)
    with pytest.warns(UserWarning, match=r"S4\.8"):
        normal = run(Bandit("thompson_nig"), table, **plays)
    assert np.array_equal(switched.arm, normal.arm)


def test_a_learner_is_refused_a_budget_that_nothing_keeps():
    """Below what the cheapest available arm of each question costs, of the rounds played."""
    table = table_of([[0.5, 1.0]] * 4, [[1.0, 3.0], [1.0, 3.0], [2.0, 3.0], [2.0, 3.0]])
    mask = np.ones((4, 2), bool)
    mask[0, 0] = False
    for play in (run, log):
        plays: dict[str, Any] = {"rounds": 4} | ({"replications": 2} if play is run else {})
        with pytest.raises(ValueError, match=r"at least 1\.5, the least spend"):
            play(Bandit("thompson_nig"), table, budget=1.4, **plays)
        with pytest.raises(ValueError, match="at least 2, the least spend"):
            play(Bandit("thompson_nig"), table._replace(mask=mask), budget=1.9, **plays)
        # the first two rows, which are played, cost 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            play(Bandit("thompson_nig"), table, budget=1.0, **(plays | {"rounds": 2}))


def test_a_budget_that_is_not_kept_is_named():
    """With how far the spend is above it, among the notes and in a warning.

    A kept one says nothing.
    """
    table = market(1, 100, order="shuffled")
    with pytest.warns(UserWarning, match=r"times the budget of 0\.6 \$ \(rule S4\.8\)"):
        run(Bandit("thompson_nig"), table, rounds=50, replications=4, budget=Budget(0.6, "$"))
    with pytest.warns(UserWarning, match=r"rule S4\.8"):
        log(Bandit("thompson_nig"), table, rounds=50, budget=Budget(0.6, "$"))
    assert run(Bandit("thompson_nig"), table, rounds=50, replications=4, budget=9.0).notes == ()


def test_a_price_on_features_that_tell_nothing_is_named():
    """Left-out predictions differ by row noise alone, so all questions may go to one arm later."""
    noted = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        reward = (rng.random((60, 2)) < [0.5, 0.6]).astype(float)
        noise = table_of(reward, np.tile([1.0, 2.0], (60, 1)), rng.normal(size=(60, 1)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            policy = fit_priced_policy(noise, 1.5)
        spend = float((policy.plan(noise) * noise.cost).sum(axis=1).mean())
        off = abs(spend - policy.price.spend) > 0.1 * policy.price.spend
        assert bool(policy.notes) == off == bool(caught)
        assert fit_priced_policy(noise, 1.5, validation=noise).notes == ()
        noted.append(off)
    assert 0 < sum(noted) < 12


def test_no_price_is_chosen_on_numbers_that_are_none():
    """Nor on other shapes, no question, or a question without an arm."""
    rows, nothing = np.ones((2, 2)), np.array([[True, True], [False, False]])
    cases: list[tuple[Any, Any, Any, str]] = [
        ([[np.nan, 1.0]], [[1.0, 2.0]], None, "reward of an available arm must be finite"),
        ([[0.5, 1.0]], [[1.0, np.inf]], None, "cost of an available arm must be finite"),
        ([[0.5, 1.0]], [[1.0]], None, r"must be \[Q, A\]"),
        (np.zeros((0, 2)), np.zeros((0, 2)), None, "of a question at least"),
        (rows, rows, nothing, "an arm for each question"),
    ]
    for reward, cost, mask, rule in cases:
        with pytest.raises(ValueError, match=rule):
            choose_price(reward, cost, 1.5, mask=mask)
    masked = choose_price([[np.nan, 1.0]], [[np.nan, 2.0]], 2.0, mask=np.array([[False, True]]))
    assert (masked.price, masked.spend) == (0.0, 2.0)


def test_a_history_of_costs_is_checked():
    """A cost that is missing beside a reward would make every later mean one that is none."""
    bandit, ridge = Bandit("thompson_nig"), Bandit("lin_ucb")
    cases: list[tuple[Bandit, list[float], Any, str]] = [
        (bandit, [1.0, np.nan], None, "number from 0, got nan, one of 1"),
        (bandit, [1.0, -3.0], None, "number from 0, got -3"),
        (ridge, [1.0, 1.0], [[1.0]], "of 2 rounds"),
        (ridge, [1.0, 1.0], [[1.0], [np.nan]], "must be finite"),
    ]
    for learner, cost, context, rule in cases:
        with pytest.raises(ValueError, match=rule):
            learned_ledger([0, 1], [0.5, 0.5], cost, learner, 1.0, n_arms=2, context=context)
    ledger = learned_ledger([0, 1], [0.5, np.nan], [1.0, np.nan], bandit, 1.0, n_arms=2)
    assert ledger.cost.tolist() == [1.0, 0.0]  # what was never rewarded teaches nothing


def test_what_no_policy_can_be_fitted_or_played_on_is_refused():
    """Without features, costs, an arm for each row or two rows of each arm; many plays at once."""
    table, seldom = market(0, 40), np.ones((40, 3), bool)
    seldom[1:, 2] = False
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"cost": np.zeros((1, 1))}, {}, "features and costs, got no costs"),
        ({"features": np.zeros((40, 0)), "feature_names": ()}, {}, "features and costs, got none"),
        ({"mask": seldom}, {}, "two measured rows of each arm, got 1 of arm2"),
        ({}, {"logged": [0, 1]}, r"logged must be \[Q\]"),
    ]
    for changes, more, rule in cases:
        with pytest.raises(ValueError, match=rule):
            fit_priced_policy(table._replace(**changes), 0.6, **more)
    with pytest.raises(ValueError, match="pacer of one play"):
        play_paced(fit_priced_policy(table, 0.6), table, pacer=start_pacer(0.6, (3,)))


def test_no_function_writes_into_an_argument(monkeypatch):
    """Every public function that takes an array is called with read-only ones."""
    monkeypatch.setattr(read_only_arguments, "ALGEBRA", ("extensions.budgets",))
    half = np.full((20, 2), 0.5)
    costly = Table(
        ("a", "b"), half, half, half > 0.0, half[:, :0], (), half, cost=half * [1.0, 2.0]
    )
    with read_only_arguments.guard_algebra() as called:
        for module in read_only_arguments.modules():
            assert not doctest.testmod(module).failed, module.__name__
        run(Bandit("ucb1"), costly, rounds=20, replications=2, seed=0, budget=0.75)
        plans.plan_within(half, costly, 0.75)
    assert [
        name
        for name, function in read_only_arguments.functions().items()
        if read_only_arguments.takes_arrays(function) and name not in called
    ] == []
