"""Intervals hold: delta method against bootstrap and jackknife, sessions, and the share of logs that they cover."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.off_policy import ESTIMATORS, Gain, OverlapWarning, difference, estimate, lower_bound
from raglab.off_policy.estimators import EstimatorSettings, _poisson, fit_estimator, standard_error
from raglab.off_policy.evaluation import weigh_targets

SMOOTH = tuple(name for name in ESTIMATORS if name != "replay")
MEANS = np.array([0.72, 0.78, 0.83, 0.88])
LOGGING = np.array([0.45, 0.30, 0.15, 0.10])
TARGET = np.array([0.10, 0.20, 0.30, 0.40])


def logged(rng: np.random.Generator, n: int, *, modelled: bool = False, smooth: bool = False) -> pd.DataFrame:
    """Log with rewards near 0.8: Bernoulli, or Beta; with a model that is off by a tenth, or without."""
    action = rng.choice(4, n, p=LOGGING)
    mean = MEANS[action]
    reward = rng.beta(8 * mean, 8 * (1 - mean)) if smooth else (rng.random(n) < mean).astype(float)
    log = pd.DataFrame({"action": action, "reward": reward, "propensity": LOGGING[action]})
    noise = 0.1 * rng.random(n)
    return log.assign(**{f"q_{arm}": MEANS[arm] - noise for arm in range(4)}) if modelled else log


def widths(log: pd.DataFrame, target: Any, **more: Any) -> Any:
    """Width of the interval of each estimator."""
    table = estimate(log, target, ESTIMATORS, **more)
    return (table["high"] - table["low"]).to_numpy()


@pytest.mark.parametrize("modelled", [False, True])
def test_bootstrap_and_delta_method_agree(modelled: bool) -> None:  # noqa: FBT001 - parametrised
    """Widths within 8 % of each other for every estimator, whether the model is fitted or from outside."""
    log = logged(np.random.default_rng(1), 4000, modelled=modelled)
    delta, boot = widths(log, TARGET), widths(log, TARGET, interval="bootstrap", n_boot=2000)
    np.testing.assert_allclose(boot, delta, rtol=0.08)


def test_bootstrap_and_delta_method_agree_on_arms_never_logged() -> None:
    """The log's mean stands in for them in every resample, and its error is in the interval."""
    log = logged(np.random.default_rng(9), 4000)
    log = log[log["action"] < 3].reset_index(drop=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        delta, boot = widths(log, TARGET), widths(log, TARGET, interval="bootstrap", n_boot=2000)
    np.testing.assert_allclose(boot, delta, rtol=0.08)


def test_bootstrap_and_delta_method_agree_by_session() -> None:
    """And both see that rounds of a session are alike: near twice as wide where four are copies of one."""
    log = logged(np.random.default_rng(2), 1500)
    few = np.arange(1500) % 375
    delta = widths(log, TARGET, session=few)
    np.testing.assert_allclose(widths(log, TARGET, session=few, interval="bootstrap", n_boot=2000), delta, rtol=0.08)
    copies = log.loc[np.repeat(np.arange(1500), 4)].assign(user=np.repeat(np.arange(1500), 4))
    delta = widths(copies, TARGET, session="user")
    boot = widths(copies, TARGET, session="user", interval="bootstrap", n_boot=2000)
    np.testing.assert_allclose(boot[1:], delta[1:], rtol=0.08)
    np.testing.assert_allclose(delta[1:], widths(log, TARGET)[1:], rtol=1e-9)  # replay draws anew
    np.testing.assert_allclose(delta[1:] / widths(copies, TARGET)[1:], 2.0, rtol=0.01)


def test_sessions_of_one_round_are_none() -> None:
    """The same interval as without, to the last digits."""
    log = logged(np.random.default_rng(3), 500)
    np.testing.assert_allclose(widths(log, TARGET, session=np.arange(500)[::-1]), widths(log, TARGET), rtol=1e-12)


@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_influence_is_what_a_round_changes(name: str, modelled: bool) -> None:  # noqa: FBT001 - parametrised
    """Leaving a round out moves the value by −influence / (n − 1), but for terms of 1 / n²."""
    log = logged(np.random.default_rng(4), 400, modelled=modelled)
    limits = EstimatorSettings(3.0, 3.0)
    (rows,) = weigh_targets(log, (TARGET,), None, None, None)
    whole = fit_estimator(rows, name, limits)
    for row in range(0, 400, 23):
        (less,) = weigh_targets(log.drop(index=row), (TARGET,), None, None, None)
        moved = whole.value - fit_estimator(less, name, limits).value
        assert moved == pytest.approx(whole.influence[row] / 399, abs=3e-4)
        assert moved == pytest.approx(whole.influence[row] / 399, rel=0.1, abs=2e-5)


@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_influences_have_mean_zero(name: str, modelled: bool) -> None:  # noqa: FBT001 - parametrised
    """Also with an arm never logged."""
    log = logged(np.random.default_rng(5), 300, modelled=modelled)
    log = log[log["action"] < 3].reset_index(drop=True)
    (rows,) = weigh_targets(log, (TARGET,), None, None, None)
    found = fit_estimator(rows, name, EstimatorSettings(3.0, 3.0, np.random.default_rng(6).random(len(log))))
    assert found.influence.mean() == pytest.approx(0.0, abs=1e-13)


def test_the_standard_error_of_a_mean() -> None:
    """Of one's own policy it is that of the mean; of one round or session there is none."""
    log = logged(np.random.default_rng(7), 200)
    (rows,) = weigh_targets(log, (LOGGING,), None, None, None)
    for name in ("ips", "snips"):
        error = standard_error(fit_estimator(rows, name, EstimatorSettings(9.0, 9.0)).influence, rows.log)
        assert error == pytest.approx(log["reward"].std(ddof=1) / np.sqrt(200))
    with pytest.warns(OverlapWarning):
        one = estimate(log.iloc[:1], LOGGING, ("ips",)).iloc[0]
    assert np.isnan([one["low"], one["high"]]).all()


def test_counts_of_the_bootstrap_are_poisson() -> None:
    """Mean and variance 1, to 16 bits."""
    table = _poisson()
    assert table.shape == (2**16,)
    assert (table.mean(), table.var()) == pytest.approx((1.0, 1.0), abs=1e-3)
    assert (table == 0).mean() == pytest.approx(np.exp(-1), abs=1e-5)


def test_a_level_widens() -> None:
    """99 % is wider than 90 %, in both ways."""
    log = logged(np.random.default_rng(8), 400)
    for kind in ("delta", "bootstrap"):
        assert (widths(log, TARGET, level=0.99, interval=kind) > widths(log, TARGET, level=0.9, interval=kind)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("modelled", "smooth"), [(False, False), (True, True)])
def test_intervals_cover(modelled: bool, smooth: bool) -> None:  # noqa: FBT001 - parametrised
    """Over 2,000 logs of 2,000 rounds with rewards near 0.8, nominal 95 % intervals hold in 93 to 97 %."""
    rng = np.random.default_rng(20)
    names = ("replay", "ips", "snips", "dr", "switch_dr") if modelled else ESTIMATORS
    truth, held = float(TARGET @ MEANS), []
    for number in range(2000):
        table = estimate(logged(rng, 2000, modelled=modelled, smooth=smooth), TARGET, names, seed=number)
        held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
    share = dict(zip(names, np.mean(held, axis=0), strict=True))
    assert all(0.93 <= covered <= 0.97 for covered in share.values()), share


@pytest.mark.slow
def test_bootstrap_intervals_cover() -> None:
    """Of SNIPS and DR, in 1,000 logs; with sessions of four rounds that share a mood, by session only."""
    rng = np.random.default_rng(21)
    truth = float(TARGET @ MEANS)
    session, held = np.arange(2000) // 4, []
    for number in range(1000):
        mood = rng.choice([-0.1, 0.1], 500)[session]
        action = rng.choice(4, 500, p=LOGGING)[session]
        reward = (rng.random(2000) < MEANS[action] + mood).astype(float)
        log = pd.DataFrame({"action": action, "reward": reward, "propensity": LOGGING[action]})
        said = [
            estimate(log, TARGET, ("snips", "dr"), number, interval="bootstrap", n_boot=200, session=session),
            estimate(log, TARGET, ("snips", "dr"), number, session=session),
            estimate(log, TARGET, ("snips", "dr"), number),
        ]
        held.append([((one["low"] <= truth) & (truth <= one["high"])).to_numpy() for one in said])
    share = np.mean(held, axis=0)
    assert (share[:2] > 0.925).all(), share
    assert (share[:2] < 0.97).all(), share
    assert (share[2] < 0.92).all(), share


@pytest.mark.slow
def test_the_difference_of_two_policies_is_covered() -> None:
    """By its paired interval, for SNIPS and DR, in 93 to 97 % of 2,000 logs."""
    rng = np.random.default_rng(22)
    other = np.array([0.25, 0.25, 0.25, 0.25])
    truth, held = float((TARGET - other) @ MEANS), []
    for _ in range(2000):
        log = logged(rng, 2000)
        found: list[Gain] = [difference(log, TARGET, other, name) for name in ("snips", "dr")]
        held.append([one.low <= truth <= one.high for one in found])
    share = np.mean(held, axis=0)
    assert ((share >= 0.93) & (share <= 0.97)).all(), share


@pytest.mark.slow
def test_logs_of_a_learner_are_nearly_covered() -> None:
    """In 1,000 logs of epsilon-greedy with a floor of 0.1: over 92 %; the mean by arm is too low, and DR mends it."""
    logs, rounds, arms, floor = 1000, 2000, 4, 0.1
    rng, means, every = np.random.default_rng(24), np.array([0.78, 0.80, 0.82, 0.80]), np.arange(1000)
    pulls, total = np.ones((logs, arms)), np.full((logs, arms), 0.5)
    action, reward, propensity = np.empty((3, rounds, logs))
    for number in range(rounds):
        share = np.full((logs, arms), floor)
        share[every, (total / pulls).argmax(axis=1)] += 1 - arms * floor
        arm = (rng.random(logs)[:, None] > share.cumsum(axis=1)[:, :-1]).sum(axis=1)
        reward[number] = rng.random(logs) < means[arm]
        pulls[every, arm] += 1
        total[every, arm] += reward[number]
        action[number], propensity[number] = arm, share[every, arm]
    truth, held, off = means.mean(), [], []
    for one in range(logs):
        log = pd.DataFrame({"action": action[:, one], "reward": reward[:, one], "propensity": propensity[:, one]})
        table = estimate(log, np.full(arms, 0.25), ("ips", "snips", "dr", "dm"))
        held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
        off.append(table["value"] - truth)
    assert (np.mean(held, axis=0)[:3] > 0.92).all(), np.mean(held, axis=0)
    assert np.abs(np.mean(off, axis=0)[:3]).max() < 0.0015, np.mean(off, axis=0)
    assert -0.01 < np.mean(off, axis=0)[3] < -0.003


@pytest.mark.slow
def test_the_bound_is_kept() -> None:
    """In at least 1 − delta of 2,000 logs the value is above it, even with 300 rounds and the clip chosen."""
    rng = np.random.default_rng(23)
    truth, bounds = float(TARGET @ MEANS), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        bounds = [lower_bound(logged(rng, 300), TARGET, delta=0.1) for _ in range(2000)]
    assert np.mean(np.array(bounds) <= truth) >= 0.9
    assert np.mean(bounds) > 0.2  # and says something
