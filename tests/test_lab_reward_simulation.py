"""What a learner comes to on a reward.

Crafted worlds, laws, and the audit of a table from end to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import noted
from raglab import reward
from raglab.bandit import Bandit, Table
from raglab.bandit.fixed_plans import FIXED_PLAN as BEST
from raglab.bandit.fixed_plans import UNIFORM_PLAN
from raglab.lab.reward_audit import audit_rewards
from raglab.lab.reward_simulation import SimulationSizes, simulate_learner

MEDIAN = 'reward.threshold(rewards, "median")'
SMALL: dict[str, Any] = {"n_boot": 100, "rounds": 200, "replications": 20}


def table_of(value, rewards, mask=None):
    """Table without a context."""
    values, seen = np.asarray(value, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    arms = ("nor", "oner", "ircot", "graph")[: values.shape[1]]
    is_open = np.ones(values.shape, dtype=bool) if mask is None else np.asarray(mask)
    return Table(
        arms, values, seen, is_open, np.zeros((len(values), 0)), (), np.full(values.shape, np.nan)
    )


def misleading(n=500):
    """Success bits 1.00 / .98 / .98 where the first arm is worst; all arm pairs agree with labels.

    The first arm earns .55 always; the others .9, but .3 in one question of 50, in which all arms
    are alike in value.
    """
    case = np.arange(n)
    low = np.stack([np.zeros(n, dtype=bool), case % 50 == 0, case % 50 == 25], axis=1)
    rewards = np.where(low, 0.3, np.array([0.55, 0.9, 0.9]))
    value = np.zeros((n, 3))
    value[case % 10 < 3] = 1.0  # right whatever the arm
    value[(case % 10 >= 5) & ~low.any(axis=1), 1:] = 1.0
    return table_of(value, rewards)


def rows_of(audit):
    """Rows of a table of an audit by their first column."""
    return {str(row[0]): dict(row._asdict()) for row in audit.simulation.itertuples(index=False)}


def test_a_reward_that_agrees_in_every_pair_misleads_a_learner_of_successes():
    """Concordance 1, and the learner ends on the worst arm. The headline says so."""
    audit = audit_rewards(misleading(), **SMALL)
    assert audit.correlations["concordance"].tolist() == [1.0]
    assert audit.arms["success_share"].round(2).tolist() == [1.0, 0.98, 0.98]
    assert audit.arms["mean_value"].round(2).tolist() == [0.3, 0.78, 0.78]
    simulation = rows_of(audit)
    assert simulation["thompson_beta"]["pulls_nor"] > 0.6
    assert (simulation[UNIFORM_PLAN]["verdict"], simulation[BEST]["verdict"]) == ("harms", "harms")
    assert "misleads" in audit.notes[0]


@pytest.mark.parametrize("bandit", ["thompson_nig", Bandit(threshold=0.55)])
def test_another_learner_or_the_median_threshold_gains_on_the_same_rewards(bandit):
    """Mean rewards point to the best arms, and so do successes above the median."""
    world = misleading()
    assert reward.threshold(world.reward, "median") == 0.55
    audit = audit_rewards(world, bandit=bandit, **SMALL)
    assert rows_of(audit)[UNIFORM_PLAN]["verdict"] == "helps"
    assert "the reward helps it" in audit.notes[0]


def test_rewards_on_one_side_of_the_threshold_are_counted_and_the_median_is_offered():
    """1,480 of 1,500 rewards are successes; a learner of means is told nothing of it."""
    (note,) = [note for note in audit_rewards(misleading(), **SMALL).notes if MEDIAN in note]
    assert note.startswith("1480 of 1500 rewards lie above the threshold 0.5")
    assert f"{MEDIAN} is 0.550" in note
    others = audit_rewards(misleading(), bandit="thompson_nig", **SMALL).notes
    assert not noted(others, MEDIAN)


def test_chance_is_not_told_apart_from_uniform():
    """Rewards that know nothing of the value.

    Neither helps nor harms, and the concordance is a detail.
    """
    rng = np.random.default_rng(3)
    world = table_of((rng.random((300, 3)) < 0.5).astype(float), rng.random((300, 3)))
    audit = audit_rewards(world, **SMALL)
    row = rows_of(audit)[UNIFORM_PLAN]
    assert row["verdict"] == "not told apart"
    assert row["difference_low"] < 0.0 < row["difference_high"]
    assert "no gain" in audit.notes[0]


def test_the_interval_of_the_best_fixed_arm_allows_for_its_choice():
    """Best of three arms, two comparisons.

    2.2414 / 1.9600 times as wide as that of the same arm under another name.
    """
    world = misleading(100)
    plan = np.broadcast_to(np.array([0.0, 1.0, 0.0]), world.value.shape)
    rows = simulate_learner(world, Bandit(), {BEST: plan, "oner": plan}, SimulationSizes(50, 5, 40))
    best, plain = rows.iloc[1], rows.iloc[2]
    assert best["difference"] == plain["difference"]
    for end in ("difference_low", "difference_high"):
        assert best[end] - best["difference"] == pytest.approx(
            1.14357 * (plain[end] - plain["difference"]), rel=1e-4
        )


def test_what_can_be_detected_lies_beyond_the_interval_and_shrinks_with_the_questions():
    """By .84 of 1.96 deviations or so. Four times the questions leave the chance of the paths."""
    world, rows = misleading(100), []
    for n in (1, 4):
        table = table_of(np.tile(world.value, (n, 1)), np.tile(world.reward, (n, 1)))
        plans = {UNIFORM_PLAN: np.full(table.value.shape, 1.0 / 3.0)}
        sizes = SimulationSizes(300, 10, 200)
        rows.append(simulate_learner(table, Bandit("epsilon_greedy"), plans, sizes).iloc[1])
    few, many = rows
    gain, low, high = few[["difference", "difference_low", "difference_high"]]
    assert 1.1 < few["detectable"] / max(gain - low, high - gain) < 1.6
    assert 0.5 < many["detectable"] / few["detectable"] < 0.85


def grid(n):
    """Rows of three numbers on a coarse grid."""
    cell = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    return st.lists(st.lists(cell, min_size=3, max_size=3), min_size=n, max_size=n)


@settings(max_examples=15, deadline=None)
@given(value=grid(8), rewards=grid(8), closed=st.lists(st.booleans(), min_size=8, max_size=8))
def test_turned_values_turn_the_difference(value, rewards, closed):
    """The learner never sees the values.

    1 - value gives the same path and the opposite difference, and twice twice.
    """
    mask = np.ones((8, 3), dtype=bool)
    mask[:, 2] = ~np.array(closed)
    plans = {UNIFORM_PLAN: mask / mask.sum(axis=1, keepdims=True)}
    sizes = SimulationSizes(20, 4, 8)
    world = table_of(value, rewards, mask)
    turned = world._replace(value=1.0 - world.value)
    first, second, third = (
        simulate_learner(each, Bandit(), plans, sizes).iloc[1]
        for each in (world, turned, world._replace(value=2.0 * world.value))
    )
    assert second["difference"] == pytest.approx(-first["difference"], abs=1e-12)
    assert third["difference"] == pytest.approx(2.0 * first["difference"], abs=1e-12)
    spread = (
        first["difference_high"] - first["difference_low"],
        second["difference_high"] - second["difference_low"],
    )
    assert spread[0] == pytest.approx(spread[1], abs=1e-9)
    assert first["difference_low"] <= first["difference"] <= first["difference_high"]


def test_a_learner_starts_again_on_every_resampled_table():
    """Arms that 60 questions hardly tell apart.

    The interval holds both arms, not the one of these questions alone.
    """
    rng = np.random.default_rng(5)
    rewards = (rng.random((60, 2)) < 0.5).astype(float)
    # a little ahead on these questions
    rewards[:, 1] = np.where(np.arange(60) < 2, 1.0, rewards[:, 0])
    value = np.tile([0.0, 1.0], (60, 1))
    plans = {UNIFORM_PLAN: np.full((60, 2), 0.5)}
    row = simulate_learner(
        table_of(value, rewards), Bandit(), plans, SimulationSizes(500, 50, 100)
    ).iloc[0]
    assert row["value_high"] - row["value_low"] > 0.2
