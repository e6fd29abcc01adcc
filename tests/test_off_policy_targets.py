"""Targets of off-policy evaluation: learners, functions, units of a log with costs.

Estimates are those of before.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import Bandit, Bernoulli, Table
from raglab.bandit.learner import init, record_pull, update
from raglab.bandit.propensity import propensities
from raglab.bandit.simulation import log as play
from raglab.off_policy import ESTIMATORS, OverlapWarning, difference, estimate, lower_bound, overlap

MEANS = np.array([0.3, 0.5, 0.8])
COLUMNS = ["value", "low", "high"]
BEFORE = {  # of estimates to 12 digits, made before learners could be targets
    ("delta", False): "f4327a687fa82e2b",
    ("delta", True): "da18c0fcbca14b44",
    ("bootstrap", False): "1ebeaf81a6c8cdbf",
    ("bootstrap", True): "08c147ab47b03f28",
}


def logged(seed=0, n=600):
    """Log of three arms with propensities and targets on a coarse grid, and a target, [T, A]."""
    rng = np.random.default_rng(seed)
    grid = [rng.integers(1, 5, size=(n, 3)) + 0.0 for _ in range(2)]
    logging, target = (shares / shares.sum(axis=1, keepdims=True) for shares in grid)
    action = (rng.random(n)[:, None] > logging.cumsum(axis=1)[:, :-1]).sum(axis=1)
    reward = (rng.random(n) < MEANS[action]).astype(float)
    columns = {"action": action, "reward": reward, "propensity": logging[np.arange(n), action]}
    return pd.DataFrame(columns), target


def quiet(*args, **more):
    """Estimates without warnings of overlap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        return estimate(*args, **more)


def digest(frame):
    """Hash of values and intervals, to 12 digits."""
    text = " ".join(f"{number:.12g}" for number in frame[COLUMNS].to_numpy().ravel())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("interval", "modelled"), list(BEFORE))
def test_estimates_of_arrays_are_those_of_before(
    interval,
    modelled,
):
    """Values and intervals of all estimators, both interval kinds, with or without reward model."""
    frame, target = logged()
    frame = frame.assign(q_0=0.25, q_1=0.5, q_2=0.75) if modelled else frame
    result = quiet(frame, target, ESTIMATORS, 3, interval=interval, n_boot=50)
    assert digest(result) == BEFORE[(interval, modelled)]


@pytest.mark.parametrize(
    "policy", ["thompson_beta", "thompson_nig", "ucb1", "kl_ucb", "epsilon_greedy"]
)
def test_a_learner_on_its_own_log_is_what_was_logged(policy):
    """Its propensities in each round are the log's: weights are 1 and the value the mean reward."""
    bandit = Bandit(policy, floor=0.05)
    frame = play(bandit, Bernoulli(MEANS), rounds=150, seed=1)
    result = quiet(frame, bandit, ("ips", "snips"))
    assert result["value"].to_numpy() == pytest.approx(frame["reward"].mean(), abs=1e-8)
    assert overlap(frame, bandit).max_weight == pytest.approx(1.0, abs=1e-7)


def test_a_linear_learner_reads_its_features():
    """The same with a context, whose columns are named; without them it is refused."""
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(40), rng.random(40)])
    value = (rng.random((40, 2)) < 0.5).astype(float)
    world = Table(
        ("a", "b"), value, value, np.ones((40, 2), bool), features, ("one", "x"), value * np.nan
    )
    bandit = Bandit("lin_ucb", floor=0.1)
    frame = play(bandit, world, rounds=120, seed=2)
    frame[["f0", "f1"]] = features[frame["case"]]
    assert overlap(frame, bandit, features=("f0", "f1")).max_weight == pytest.approx(1.0, abs=1e-7)
    with pytest.raises(ValueError, match="needs a context, got no features"):
        overlap(frame, bandit)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([{}, {"discount": 0.9}, {"window": 5}]))
def test_a_learner_knows_the_rounds_before_and_no_other(seed, forgets):
    """Its probabilities equal those of a learner that is told round by round."""
    frame, _ = logged(seed, n=25)
    bandit = Bandit("thompson_beta", **forgets)
    state, expected = init(3, bandit=bandit), []
    for arm, reward in zip(frame["action"], frame["reward"], strict=True):
        expected.append(propensities(state, bandit))
        state = update(record_pull(state, np.asarray(arm), bandit), arm, reward, bandit)
    weight = np.array(expected)[np.arange(25), frame["action"]] / frame["propensity"]
    diagnostics = overlap(frame, bandit, arms=range(3))
    assert (diagnostics.mean_weight, diagnostics.max_weight) == pytest.approx(
        (weight.mean(), weight.max()), abs=1e-9
    )


def test_a_learner_as_target_needs_arms():
    """Arms that are named nowhere are not guessed from the actions.

    One may never have been logged.
    """
    frame, target = logged()
    with pytest.raises(ValueError, match=r"a learner as target needs the arms.*arms="):
        estimate(frame, Bandit())
    bandit = Bandit("epsilon_greedy")
    value = quiet(frame, bandit, ("snips",), arms=range(3))["value"][0]
    assert difference(frame, bandit, target, arms=range(3)).first == pytest.approx(value)


def test_a_function_is_a_target():
    """Called with the log, it equals the array that it returns, in all four functions."""
    frame, target = logged()

    def rule(rounds):
        return target[: len(rounds)]

    pd.testing.assert_frame_equal(quiet(frame, rule), quiet(frame, target))
    assert difference(frame, rule, [0.2, 0.3, 0.5]) == difference(frame, target, [0.2, 0.3, 0.5])
    assert overlap(frame, rule) == overlap(frame, target)
    assert lower_bound(frame, rule) == lower_bound(frame, target)


def with_costs():
    """Log whose learner saw (gross - cost + 0.5) / 1.5.

    The user's units stand in value and cost.
    """
    frame, _ = logged(5)
    cost = np.array([0.0, 0.1, 0.5])[frame["action"]]
    value = frame["reward"] - cost
    return frame.assign(value=value, cost=cost, reward=(value + 0.5) / 1.5)


def test_a_log_with_costs_is_estimated_in_the_users_unit():
    """Without a stated column it is the net value, and that is said.

    What the learner saw is there on request.
    """
    frame, (_, target) = with_costs(), logged(5)
    names = ("ips", "snips", "dr")
    with pytest.warns(UserWarning, match="this log has costs"):
        result = quiet(frame, target, names)
    net = quiet(frame.drop(columns=["cost", "value"]).assign(reward=frame["value"]), target, names)
    np.testing.assert_array_equal(result[COLUMNS], net[COLUMNS])
    assert result.attrs["outcomes"] == ["value"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quiet(frame, target, ("snips",), reward="reward")["value"][0] == pytest.approx(
            (net["value"][1] + 0.5) / 1.5
        )


def test_several_outcomes_at_once():
    """Gross reward, spend and net value: each as if alone, and normalised estimates add up."""
    frame, (_, target) = with_costs(), logged(5)
    frame["gross"] = frame["value"] + frame["cost"]
    table = quiet(frame, target, ("snips", "dr"), reward=("gross", "cost", "value"))
    assert list(table.columns[:2]) == ["outcome", "estimator"]
    value = table.pivot_table(index="estimator", columns="outcome", values="value")
    assert (value["gross"] - value["cost"]).to_numpy() == pytest.approx(value["value"].to_numpy())
    alone = quiet(frame, target, ("snips", "dr"), reward="cost")
    np.testing.assert_array_equal(table.loc[table["outcome"] == "cost", COLUMNS], alone[COLUMNS])
    with pytest.raises(ValueError, match="q_<arm> must be the model of one outcome"):
        estimate(frame.assign(q_0=0.1, q_1=0.1, q_2=0.1), target, reward=("value", "cost"))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_direct_method_is_never_ok(seed, modelled):
    """Whatever the log: weak where dr shows the same, none else; and dr keeps its own status."""
    frame, target = logged(seed, n=400)
    frame = frame.assign(q_0=0.25, q_1=0.5, q_2=0.75) if modelled else frame
    status = dict(zip(ESTIMATORS, quiet(frame, target)["status"], strict=True))
    assert status["dm"] in {"weak", "none"}


def test_dm_alone_is_warned_of_and_beside_dr_it_is_marked():
    """Where dr may be used the row says enough.

    Where dm is all that was asked for, a warning does.
    """
    frame, target = logged(4, n=2000)
    frame = frame.assign(q_0=0.9, q_1=0.9, q_2=0.9)
    with pytest.warns(OverlapWarning, match="dm alone says nothing"):
        assert estimate(frame, target, ("dm",))["status"].tolist() == ["none"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate(frame, target, ("dm", "dr"))["status"].tolist() == ["none", "ok"]


def test_a_function_that_writes_leaves_the_log_alone():
    """It is called with columns of its own."""
    frame, _ = logged(0, n=300)
    before = frame.copy()

    def rule(log):
        log["reward"] = 0.0
        return [0.2, 0.3, 0.5]

    assert quiet(frame, rule)["value"].tolist() == quiet(before, [0.2, 0.3, 0.5])["value"].tolist()
    pd.testing.assert_frame_equal(frame, before)


def test_what_a_learner_cannot_learn_from_is_refused():
    """A log without rewards or rounds, features that are no numbers or no list.

    And a class is no learner.
    """
    frame, _ = logged(0, n=300)
    stated: dict[str, Any] = {"estimators": ("ips",), "arms": [0, 1, 2]}
    ridge = Bandit("lin_ucb", floor=0.1)
    unrewarded = frame.rename(columns={"reward": "value"})
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (unrewarded, Bandit(), {"reward": "value"}, r"\['reward'\] missing"),
        (frame[:0], Bandit(), {}, "got no rounds"),
        (frame.assign(x="a"), ridge, {"features": ["x"]}, "the feature x must be numbers"),
        (frame, ridge, {"features": "reward"}, "features must be a list of columns"),
        (frame, Bandit, {}, "got the class Bandit"),
    ]
    for log, target, more, rule in cases:
        with pytest.raises(ValueError, match=rule):
            estimate(log, target, **(stated | more))
