"""Simulated regret is exact, and compiled loops match `choose`, `update` (raglab.bandit.kernel)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from arms import table
from exact_regret import expected_regret, thompson, ucb1
from raglab.bandit import (
    LEARNERS,
    POLICIES,
    Bandit,
    Bernoulli,
    environments,
    simulate,
)
from raglab.bandit.environments import check_world, feed, stream
from raglab.bandit.simulation import is_plain, run, stepwise_arms

MEANS = (0.5, 0.6)
AT = (10, 20, 30)
SEEDS = range(20)
FOUR = [0.7, 0.6, 0.5, 0.4]
GRID = np.linspace(0.0, 1.0, 5)
ROUNDS = 60
SETTINGS = (Bandit(), Bandit(exploration=0.7, prior_mean=0.3, prior_strength=1.7, epsilon=0.4))


def worlds():
    """Worlds of three arms that a plain learner meets."""
    rng = np.random.default_rng(5)
    means, drifting = np.array([0.25, 0.5, 0.75]), rng.choice(GRID, (ROUNDS, 3))
    changing = rng.random((ROUNDS, 3)) < 0.5
    changing[:, 1] = True
    return {
        "means": Bernoulli(means),
        "masked": Bernoulli(means, np.array([True, True, False])),
        "changing mask": Bernoulli(means, changing),
        "drifting": Bernoulli(drifting),
        "drifting, masked": Bernoulli(drifting, changing),
        "table": table(12, 5, masked=False),
        "table, masked": table(12, 6),
    }


WORLDS = worlds()
CASES = [
    pytest.param(name, policy, id=f"{policy}, {name}")
    for name in ("means", "drifting, masked", "table, masked")
    for policy in POLICIES
    if LEARNERS[policy].compiled and (not LEARNERS[policy].linear or name.startswith("table"))
]


def met(name, size=7):
    """A block of a world."""
    return feed(check_world(WORLDS[name], ROUNDS), ROUNDS, size, 3, 0)


def statistics(means, exact):
    """Sum over seeds of squared standard errors, and the square of that of all seeds together."""
    z = [(last.mean() - exact) / (last.std(ddof=1) / np.sqrt(len(last))) for last in means]
    every = np.concatenate(means)
    return float(np.square(z).sum()), float(
        (every.mean() - exact) ** 2 / (every.var(ddof=1) / len(every))
    )


def test_the_exact_regret_is_the_published_one():
    """Dynamic programming gives the figures that the contract names."""
    assert expected_regret(ucb1(), MEANS, AT) == pytest.approx(
        [0.461184, 0.888131, 1.298062], abs=5e-7
    )
    assert expected_regret(thompson(), MEANS, AT) == pytest.approx(
        [0.452613, 0.851380, 1.218944], abs=5e-7
    )


def simulated(policy, at, replications):
    """Regret [R] after so many rounds, of each seed."""
    done = [
        simulate(policy, MEANS, rounds=max(at), replications=replications, seed=seed).regret
        for seed in SEEDS
    ]
    return {t: [regret[:, t - 1] for regret in done] for t in at}


@pytest.mark.parametrize(("policy", "exact"), [("thompson_beta", 0.452613), ("ucb1", 0.461184)])
def test_ten_rounds_cost_the_exact_regret(policy, exact):
    """Over 20 seeds the squared deviations add up to no more than chance allows."""
    each, every = statistics(simulated(policy, (10,), 2000)[10], exact)
    assert each < chi2.ppf(0.999, len(SEEDS))
    assert every < chi2.ppf(0.999, 1)


@pytest.mark.parametrize(("name", "policy"), CASES)
@pytest.mark.parametrize("settings", SETTINGS, ids=["published", "other"])
def test_compiled_loops_are_choose_and_update(name, policy, settings):
    """Arms, regret, value and pulls have the same bits; so do exact ties and masked arms."""
    kernel = pytest.importorskip("raglab.bandit.kernel", reason="numba is not installed")
    bandit, block = settings._replace(algorithm=policy), met(name, 31)
    assert is_plain(bandit, block)
    plain = stepwise_arms(block, bandit, stream(3, 0, environments.POLICY_STREAM))
    compiled = kernel.played(block, bandit, stream(3, 0, environments.POLICY_STREAM))
    np.testing.assert_array_equal(plain, compiled)
    assert len(np.unique(plain)) > 1


@pytest.mark.parametrize("policy", ["epsilon_greedy", "ucb1", "thompson_beta", "thompson_nig"])
def test_engines_agree_over_hundreds_of_rounds(policy):
    """500 rounds of 201 replications, two blocks: the same bits."""
    pytest.importorskip("raglab.bandit.kernel", reason="numba is not installed")
    world = Bernoulli(np.array(FOUR))
    one, other = (
        run(Bandit(policy), world, rounds=500, replications=201, engine=name)
        for name in ("numpy", "numba")
    )
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("exploration", [1e-12, 1e-3, 1.0, 1e9])
@pytest.mark.parametrize("means", [[0.5, 0.5, 0.5], [1.0, 1.0, 0.999]])
def test_scores_that_are_nearly_equal_are_told_apart_as_before(means, exploration):
    """Compiled ucb1 compares scores off by last digits, and remakes those that are that close."""
    pytest.importorskip("raglab.bandit.kernel", reason="numba is not installed")
    bandit, world = Bandit("ucb1", exploration=exploration), Bernoulli(np.array(means))
    one, other = (
        run(bandit, world, rounds=600, replications=40, engine=name).arm
        for name in ("numpy", "numba")
    )
    np.testing.assert_array_equal(one, other)


def test_a_longer_simulation_begins_as_the_shorter():
    """20 rounds of a seed are the first of its 30, also where there are several blocks."""
    short, long = (
        simulate("ucb1", FOUR, rounds=t, replications=201, seed=4).regret for t in (20, 30)
    )
    np.testing.assert_array_equal(short, long[:, :20])


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"policy": "ucb2"}, "algorithm must be one of"),
        ({"means": [0.5, 1.2]}, r"means must be in \[0, 1\], got 1.2"),
        ({"means": np.full((4, 2), 0.5)}, "drifting means must have a row a round, 5, got 4"),
        ({"mask": [1, 0]}, "mask must be of booleans"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"replications": 0}, "replications must be a whole number >= 1, got 0"),
        ({"seed": None}, "seed must be a whole number >= 0, got None"),
    ],
)
def test_what_cannot_be_simulated_is_refused(change, rule):
    """With the rule, the value and a remedy."""
    asked: dict[str, Any] = {
        "policy": "ucb1",
        "means": [0.5, 0.6],
        "rounds": 5,
        "replications": 2,
        "seed": 0,
    } | change
    with pytest.raises(ValueError, match=rule):
        simulate(**asked)
