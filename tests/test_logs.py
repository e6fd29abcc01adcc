"""Logs of a simulated learner: what off-policy evaluation is fed with."""

from __future__ import annotations

import numpy as np
import pytest

from raglab.bandit import POLICIES, Bandit, Bernoulli, Table
from raglab.bandit.simulation import log, run
from raglab.off_policy import estimate


def world(cases: int = 6, arms: int = 3) -> Table:
    """Table on a coarse grid, one arm masked in every second case."""
    rng = np.random.default_rng(0)
    mask = np.ones((cases, arms), dtype=bool)
    mask[::2, arms - 1] = False
    value = rng.choice([0.0, 0.5, 1.0], size=(cases, arms))
    names = tuple("abcdefgh"[:arms])
    return Table(names, value, value, mask, rng.choice([0.0, 1.0], size=(cases, 2)), ("x", "y"), np.full_like(value, 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_keeps_its_own_rules(policy: str) -> None:
    """Probabilities sum to 1, none is on a masked arm, the logged one is that of the arm; rewards are the table's."""
    met = world()
    seen = log(Bandit(policy, floor=0.01), met, rounds=40, seed=1)
    share = seen[[f"p_{name}" for name in met.arms]].to_numpy()
    rows, action = seen["case"].to_numpy(), seen["action"].to_numpy()
    assert np.allclose(share.sum(axis=1), 1.0)
    assert (share[~met.mask[rows]] == 0.0).all()
    assert (share[met.mask[rows]] >= 0.01).all()
    assert np.array_equal(seen["propensity"], share[np.arange(40), action])
    assert np.array_equal(seen["reward"], met.reward[rows, action])
    assert seen["arm"].tolist() == [met.arms[arm] for arm in action]


def test_it_meets_the_cases_of_a_run() -> None:
    """A log and the first replication of a run under one seed meet the same cases."""
    met = world()
    done = run(Bandit("ucb1"), met, rounds=30, replications=1, seed=3)
    seen = log(Bandit("ucb1"), met, rounds=30, seed=3)
    assert done.case is not None
    assert seen["case"].tolist() == done.case[0].tolist()
    assert seen["action"].tolist() == done.arm[0].tolist()  # nothing is drawn
    assert (seen["propensity"] == 1.0).all()


def test_same_seed_same_log() -> None:
    """The log is a function of its arguments."""
    first, second, other = (log(Bandit(), Bernoulli(np.array([0.2, 0.8])), rounds=50, seed=seed) for seed in (0, 0, 1))
    assert first.equals(second)
    assert not first.equals(other)
    assert (first["case"] == -1).all()


@pytest.mark.slow
def test_off_policy_estimates_of_a_log_find_the_truth() -> None:
    """A uniform target's value, known from the means, lies inside nearly all 95 % intervals of logs with a floor."""
    means = np.array([0.2, 0.5, 0.8])
    inside = 0
    for seed in range(40):
        seen = log(Bandit("epsilon_greedy", epsilon=0.5), Bernoulli(means), rounds=400, seed=seed)
        row = estimate(seen, np.full(3, 1 / 3), ("snips",)).iloc[0]
        inside += bool(row["low"] <= means.mean() <= row["high"])
    assert inside >= 34  # 38 expected; fewer than 34 of 40 has probability 0.0034 at a coverage of 95 %
