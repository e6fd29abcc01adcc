"""Learners through time.

Worlds, delays, baselines, common chance, the same bits for any number of processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from arms import table
from raglab.bandit import (
    POLICIES,
    Bandit,
    Bernoulli,
    Table,
    choose,
    environments,
    init,
    update,
)
from raglab.bandit.environments import check_world, feed
from raglab.bandit.simulation import Run, log, run
from refusals import refused

BAD, GOOD = Bernoulli(np.array([0.5, 0.6])), Bernoulli(np.array([0.2, 0.9]))


def same(one, other):
    """Every field has the same bits."""
    for name, left, right in zip(Run._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def everything():
    """Learners that forget, hold a floor, or break ties at random."""
    changes: list[dict[str, Any]] = [
        {},
        {"discount": 0.9},
        {"window": 4},
        {"floor": 0.2, "ties": "random"},
    ]
    return [Bandit(policy)._replace(**change) for policy in POLICIES for change in changes]


class TestTableFromFrame:
    """Stored rewards in a DataFrame: a row a round, a column an arm."""

    FRAME = pd.DataFrame(
        {"bm25": [1.0, 0.0, 0.5], "length": [3, 9, 6], "hybrid": [0, 1, None]},
        index=["x", "y", "z"],
    )

    @pytest.mark.parametrize(
        ("change", "more", "rule"),
        [
            (
                {"hybrid": [0, 7, 9]},
                {},
                (
                    r"a reward must be .* 0 to 1, got 7 in row 1 \(index 'y'\), column hybrid, "
                    r"one of "
                    r"2"
                ),
            ),
            (
                {"bm25": np.nan, "hybrid": np.nan},
                {},
                r"must have a reward of some arm, got none in row 0 \(index 'x'\); drop",
            ),
            (
                {"length": [3, None, 4]},
                {},
                "a feature must be a number, got nan in row 1 .*, column length",
            ),
            ({}, {"features": ["size"]}, "features must be a list .*, got size; correct"),
            (
                {},
                {"costs": {"bm25": 0.1}, "price": 1.0},
                "costs must name each arm once, bm25, hybrid, got hybrid in one of the two",
            ),
            (
                {},
                {"costs": {"bm25": 0.1, "hybrid": -1}, "price": 1.0},
                "the cost of hybrid must be a number from 0, got -1; state it in your unit",
            ),
        ],
    )
    def test_what_is_no_table_is_told(self, change, more, rule):
        """Row, index label and column, rule and remedy; bad cells are counted."""
        refused(
            rule, Table.from_frame, self.FRAME.assign(**change), **{"features": ["length"]} | more
        )

    def test_frames_that_are_none(self):
        """Lists, no row, two columns of one name."""
        refused("rewards must be a pandas DataFrame, got list", Table.from_frame, [[1.0]])
        refused("must have a row and an arm", Table.from_frame, self.FRAME.iloc[:0])
        twice = pd.concat([self.FRAME, self.FRAME], axis=1)
        refused("arms must have different names, got 'bm25' twice", Table.from_frame, twice)


@pytest.mark.parametrize(
    "late", [{}, {"delay": 3}, {"delay": (0, 4), "missing": 0.3}], ids=["now", "3", "late"]
)
def test_no_learner_takes_an_arm_that_is_not_available(late):
    """Whatever its settings and however late its rewards; and its regret is never negative."""
    world = table()
    for bandit in everything():
        done = run(bandit, world, rounds=12, replications=5, seed=1, **late)
        assert done.case is not None
        assert world.mask[done.case, done.arm].all(), bandit
        best = np.where(world.mask, world.value, -1.0).max(axis=1)
        gap = best[done.case] - world.value[done.case, done.arm]
        np.testing.assert_array_equal(done.regret, np.cumsum(gap, axis=1))
        np.testing.assert_array_equal(
            done.value, np.cumsum(world.value[done.case, done.arm], axis=1)
        )
        np.testing.assert_array_equal(
            done.pulls, [np.bincount(row, minlength=3) for row in done.arm]
        )
        assert (np.diff(done.regret, axis=1) >= 0.0).all()


def test_a_run_is_choose_and_update_in_turn():
    """One replication by hand per policy, with a two-round delay and rewards never arriving."""
    world = check_world(table(), 15)
    reward = world.reward.copy()  # type: ignore[union-attr] # a table
    reward[0] = np.nan
    world = world._replace(reward=reward)  # type: ignore[call-arg] # a table
    assert isinstance(world, Table)
    for bandit in everything():
        done = run(bandit, world, rounds=15, replications=1, seed=6, delay=2)
        assert done.case is not None
        case, arms = done.case[0], []
        rng = environments.stream(6, 0, environments.POLICY_STREAM)
        state = init(3, bandit=bandit, n_features=2, batch=(1,))
        for t in range(15):
            state, choice = choose(
                state, bandit, rng, mask=world.mask[case[t]], context=world.features[case[t]]
            )
            arms.append(int(choice.arm[0]))
            if t >= 2 and not np.isnan(world.reward[case[t - 2], arms[t - 2]]):
                paid, x = world.reward[case[t - 2], arms[t - 2]], world.features[case[t - 2]]
                state = update(state, arms[t - 2], paid, bandit, context=x, age=2)
        assert done.arm[0].tolist() == arms, bandit


@pytest.mark.parametrize("world", [BAD, table()], ids=["means", "table"])
@pytest.mark.parametrize("late", [{}, {"delay": (0, 3), "missing": 0.2}], ids=["now", "late"])
def test_the_number_of_processes_changes_no_bit(world, late):
    """One and two processes, three blocks, a learner and a policy that stays."""
    for policy in (Bandit("thompson_beta"), uniform(world)):
        same(
            *(
                run(policy, world, rounds=6, replications=401, seed=3, n_jobs=jobs, **late)
                for jobs in (1, 2)
            )
        )


def uniform(world):
    """Uniform probabilities over the available arms."""
    if isinstance(world, Bernoulli):
        return np.full(world.n_arms, 1.0 / world.n_arms)
    return world.mask / world.mask.sum(axis=1, keepdims=True)


def test_more_replications_begin_as_fewer():
    """Whole blocks are the same, whatever follows."""
    few, many = (
        run(Bandit("ucb1"), table(), rounds=5, replications=n)
        for n in (environments.REPLICATIONS_PER_BLOCK, environments.REPLICATIONS_PER_BLOCK + 7)
    )
    np.testing.assert_array_equal(few.arm, many.arm[: environments.REPLICATIONS_PER_BLOCK])


def test_two_policies_meet_the_same_cases():
    """Also a learner and one that stays; with delays, the chance of the world is the same too."""
    world = table(masked=False)
    first, again, fixed = (
        run(policy, world, rounds=9, replications=4, seed=5, delay=(0, 2), missing=0.5).case
        for policy in (Bandit("ucb1"), Bandit("lin_thompson"), [0.5, 0.25, 0.25])
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, fixed)
    met = [feed(world, 9, 4, seed, 0, delay=(0, 2), missing=0.5) for seed in (5, 5, 6)]
    for name in ("case", "delay", "lost"):
        first, again, other = (getattr(each, name) for each in met)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


def test_a_policy_that_stays_keeps_its_shares():
    """40,000 choices of (0.2, 0.5, 0, 0.3) within four standard errors, none of the arm with 0."""
    share = np.array([0.2, 0.5, 0.0, 0.3])
    got = (
        run(share, Bernoulli(np.full(4, 0.5)), rounds=200, replications=200).pulls.sum(axis=0)
        / 40000
    )
    assert (np.abs(got - share) <= 4.0 * np.sqrt(share * (1.0 - share) / 40000)).all()


def test_a_row_a_case_routes():
    """A router's probabilities are read at the row of the case.

    Where they are one-hot, the arm is theirs.
    """
    world = table(masked=False)
    arms = np.arange(8) % 3
    done = run(np.eye(3)[arms], world, rounds=10, replications=3)
    assert done.case is not None
    np.testing.assert_array_equal(done.arm, arms[done.case])


def test_means_may_drift():
    """The best arm changes after round 3: regret against the best of the round."""
    means = np.repeat([[0.75, 0.25], [0.25, 0.75]], 3, axis=0)
    done = run([1.0, 0.0], Bernoulli(means), rounds=6, replications=1)
    assert done.regret.tolist() == [[0.0, 0.0, 0.0, 0.5, 1.0, 1.5]]
    assert done.value.tolist() == [[0.75, 1.5, 2.25, 2.5, 2.75, 3.0]]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"policy": [0.5, 0.4]}, "sum to 1"),
        ({"world": [0.5, 0.6]}, "a world must be a Table or a Bernoulli, got list"),
        ({"policy": [1.0]}, r"a policy must be a Bandit, \[2\]"),
        (
            {
                "policy": [0.5, 0.5],
                "world": Bernoulli(np.array([0.5, 0.6]), np.array([True, False])),
            },
            "unavailable arm",
        ),
        ({"policy": Bandit("lin_ucb")}, "learns from a context"),
        (
            {"world": table()._replace(reward=np.full((8, 3), 2.0))},
            r"reward must be in \[0, 1\], or NaN",
        ),
        ({"world": table()._replace(mask=np.zeros((8, 3), np.bool_))}, "mask must leave an arm"),
        (
            {"world": table()._replace(value=np.full((8, 3), np.nan))},
            "value of an available arm must be finite",
        ),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"delay": (3, 1)}, "the greatest delay must be a whole number >= 3, got 1"),
        ({"missing": 1.5}, r"missing must be in \[0, 1\], got 1.5"),
        ({"engine": "numba", "delay": 1}, "plain learners, got one that"),
        ({"policy": Bandit("kl_ucb"), "engine": "numba"}, "engine numba plays"),
    ],
)
def test_runs_that_break_a_rule_are_refused(change, rule):
    """With the rule, what came, and a remedy."""
    known = {"policy": Bandit("ucb1"), "world": BAD, "rounds": 4, "replications": 2}
    refused(rule, run, **(known | change))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_keeps_its_own_rules(policy):
    """Probabilities sum to 1, none is on a masked arm, the logged one is that of the arm.

    Rewards are the table's.
    """
    met = table()
    seen = log(Bandit(policy, floor=0.01), met, rounds=40, seed=1)
    share = seen[[f"p_{name}" for name in met.arms]].to_numpy()
    rows, action = seen["case"].to_numpy(), seen["action"].to_numpy()
    assert np.allclose(share.sum(axis=1), 1.0)
    assert (share[~met.mask[rows]] == 0.0).all()
    assert (share[met.mask[rows]] >= 0.01).all()
    assert np.array_equal(seen["propensity"], share[np.arange(40), action])
    assert np.array_equal(seen["reward"], met.reward[rows, action])
    assert seen["arm"].tolist() == [met.arms[arm] for arm in action]
