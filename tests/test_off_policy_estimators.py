"""Intervals hold.

Delta method against bootstrap and jackknife, sessions, and the share of logs that they cover.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from raglab.off_policy import (
    ESTIMATORS,
    Gain,
    OverlapWarning,
    Rules,
    difference,
    estimate,
    lower_bound,
    overlap,
)
from raglab.off_policy.estimators import EstimatorSettings, fit_estimator, standard_error
from raglab.off_policy.evaluation import weigh_targets

SMOOTH = tuple(name for name in ESTIMATORS if name != "replay")
MEANS = np.array([0.72, 0.78, 0.83, 0.88])
LOGGING = np.array([0.45, 0.30, 0.15, 0.10])
TARGET = np.array([0.10, 0.20, 0.30, 0.40])


def logged(rng, n, *, modelled=False, smooth=False):
    """Log with rewards near 0.8: Bernoulli, or Beta.

    With a model that is off by a tenth, or without.
    """
    action = rng.choice(4, n, p=LOGGING)
    mean = MEANS[action]
    reward = rng.beta(8 * mean, 8 * (1 - mean)) if smooth else (rng.random(n) < mean).astype(float)
    log = pd.DataFrame({"action": action, "reward": reward, "propensity": LOGGING[action]})
    noise = 0.1 * rng.random(n)
    return log.assign(**{f"q_{arm}": MEANS[arm] - noise for arm in range(4)}) if modelled else log


def widths(log, target, **more):
    """Width of the interval of each estimator."""
    table = estimate(log, target, ESTIMATORS, **more)
    return (table["high"] - table["low"]).to_numpy()


@pytest.mark.parametrize(("modelled", "arms"), [(False, 4), (True, 4), (False, 3)])
@pytest.mark.filterwarnings("ignore::raglab.off_policy.OverlapWarning")
def test_bootstrap_and_delta_method_agree(modelled, arms):
    """Widths within 8 % of each other for every estimator, with a fitted or an outside model.

    The log's mean stands in for an arm never logged in every resample, with its error.
    """
    log = logged(np.random.default_rng(1), 4000, modelled=modelled)
    log = log[log["action"] < arms].reset_index(drop=True)
    delta, boot = widths(log, TARGET), widths(log, TARGET, interval="bootstrap", n_boot=2000)
    np.testing.assert_allclose(boot, delta, rtol=0.08)


def test_bootstrap_and_delta_method_agree_by_session():
    """And both see that rounds of a session are alike.

    Near twice as wide where four are copies of one.
    """
    log = logged(np.random.default_rng(2), 1500)
    few = np.arange(1500) % 375
    delta = widths(log, TARGET, session=few)
    np.testing.assert_allclose(
        widths(log, TARGET, session=few, interval="bootstrap", n_boot=2000), delta, rtol=0.08
    )
    copies = log.loc[np.repeat(np.arange(1500), 4)].assign(user=np.repeat(np.arange(1500), 4))
    delta = widths(copies, TARGET, session="user")
    boot = widths(copies, TARGET, session="user", interval="bootstrap", n_boot=2000)
    np.testing.assert_allclose(boot[1:], delta[1:], rtol=0.08)
    np.testing.assert_allclose(delta[1:], widths(log, TARGET)[1:], rtol=1e-9)  # replay draws anew
    np.testing.assert_allclose(delta[1:] / widths(copies, TARGET)[1:], 2.0, rtol=0.01)


@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_influence_is_what_a_round_changes(name, modelled):
    """Leaving a round out moves the value by −influence / (n − 1), but for terms of 1 / n²."""
    log = logged(np.random.default_rng(4), 400, modelled=modelled)
    limits = EstimatorSettings(3.0, 3.0)
    (rows,) = weigh_targets(log, (TARGET,), None, None, None)
    whole = fit_estimator(rows, name, limits)
    for row in range(0, 400, 40):
        (less,) = weigh_targets(log.drop(index=row), (TARGET,), None, None, None)
        moved = whole.value - fit_estimator(less, name, limits).value
        assert moved == pytest.approx(whole.influence[row] / 399, rel=0.1, abs=2e-5)


def test_the_standard_error_of_a_mean():
    """Of one's own policy it is that of the mean; of one round or session there is none."""
    log = logged(np.random.default_rng(7), 200)
    (rows,) = weigh_targets(log, (LOGGING,), None, None, None)
    for name in ("ips", "snips"):
        error = standard_error(
            fit_estimator(rows, name, EstimatorSettings(9.0, 9.0)).influence, rows.log
        )
        assert error == pytest.approx(log["reward"].std(ddof=1) / np.sqrt(200))
    with pytest.warns(OverlapWarning):
        one = estimate(log.iloc[:1], LOGGING, ("ips",)).iloc[0]
    assert np.isnan([one["low"], one["high"]]).all()


@pytest.mark.parametrize(("modelled", "smooth"), [(False, False), (True, True)])
def test_intervals_cover(modelled, smooth):
    """Over 2,000 logs of 2,000 rounds with rewards near 0.8, 95 % intervals hold in 93 to 97 %."""
    rng = np.random.default_rng(20)
    names = ("replay", "ips", "snips", "dr", "switch_dr") if modelled else ESTIMATORS
    truth, held = float(TARGET @ MEANS), []
    for number in range(2000):
        table = estimate(
            logged(rng, 2000, modelled=modelled, smooth=smooth), TARGET, names, seed=number
        )
        held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
    share = dict(zip(names, np.mean(held, axis=0), strict=True))
    assert all(0.93 <= covered <= 0.97 for covered in share.values()), share


def test_the_difference_of_two_policies_is_covered():
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


def test_logs_of_a_learner_are_nearly_covered():
    """In 1,000 logs of epsilon-greedy with a floor of 0.1: over 92 %.

    The mean by arm is too low, and DR mends it.
    """
    logs, rounds, arms, floor = 1000, 2000, 4, 0.1
    rng, means, every = (
        np.random.default_rng(24),
        np.array([0.78, 0.80, 0.82, 0.80]),
        np.arange(1000),
    )
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
        log = pd.DataFrame(
            {"action": action[:, one], "reward": reward[:, one], "propensity": propensity[:, one]}
        )
        table = estimate(log, np.full(arms, 0.25), ("ips", "snips", "dr", "dm"))
        held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
        off.append(table["value"] - truth)
    assert (np.mean(held, axis=0)[:3] > 0.92).all(), np.mean(held, axis=0)
    assert np.abs(np.mean(off, axis=0)[:3]).max() < 0.0015, np.mean(off, axis=0)
    assert -0.01 < np.mean(off, axis=0)[3] < -0.003


def test_the_bound_is_kept():
    """In at least 1 − delta of 2,000 logs the value is above it.

    This is so even with 300 rounds and the clip chosen.
    """
    rng = np.random.default_rng(23)
    truth, bounds = float(TARGET @ MEANS), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        bounds = [lower_bound(logged(rng, 300), TARGET, delta=0.1) for _ in range(2000)]
    assert np.mean(np.array(bounds) <= truth) >= 0.9
    assert np.mean(bounds) > 0.2  # and says something


def uniform(n, *, seed=0):
    """Log of two arms, chosen by a fair coin, with rewards by another."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"action": np.arange(n) % 2, "reward": rng.integers(0, 2, n), "propensity": 0.5}
    )


def statuses(log, target, *names, **more):
    """Status of each estimator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        table = estimate(log, target, names or ESTIMATORS, **more)
    return table.set_index("estimator")["status"].to_dict()


def test_a_wide_log_is_ok():
    """No notes, no warning, for every estimator.

    The direct method is weak even where dr says the same.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = estimate(uniform(2000), [0.4, 0.6]).set_index("estimator")
    assert table["status"].to_dict() == dict.fromkeys(ESTIMATORS, "ok") | {"dm": "weak"}
    assert {name for name, note in table.attrs["notes"].items() if note} == {"dm"}


@pytest.mark.parametrize(("n", "status"), [(400, "ok"), (150, "weak"), (16, "none")])
def test_few_effective_rounds(n, status):
    """One of two arms: the effective sample size is half the rounds.

    Below 100 weak, below 10 none.
    """
    row = overlap(uniform(n), [0.0, 1.0])
    assert (row.n, row.ess, row.max_weight, row.mean_weight) == (n, n / 2, 2.0, 1.0)
    assert row.status == status
    assert set(statuses(uniform(n), [0.0, 1.0], "ips", "snips", "dr").values()) == {status}
    # dr cannot check it
    assert statuses(uniform(n), [0.0, 1.0], "dm")["dm"] == ("weak" if status == "ok" else "none")


def test_one_round_with_most_of_the_weight():
    """A rare arm that the target loves."""
    log = pd.DataFrame(
        {"action": [1] + [0] * 999, "reward": [0, 1] * 500, "propensity": [0.001] + [0.999] * 999}
    )
    for share, status in ((0.05, "ok"), (0.2, "weak"), (0.8, "none")):
        assert overlap(log, [1 - share, share], rules=Rules(ess=(0.0, 0.0))).status == status


@pytest.mark.parametrize(("factor", "status"), [(1.0, "ok"), (0.95, "weak"), (0.5, "none")])
def test_propensities_that_are_wrong_show_in_the_mean_weight(factor, status):
    """It is far from 1 by more than its error: logged probabilities are not those that chose."""
    log = uniform(40_000)
    log["propensity"] *= factor
    seen = overlap(log, [0.45, 0.55])
    assert seen.status == status
    assert seen.mean_weight == pytest.approx(1 / factor)


def test_a_mean_weight_that_chance_explains_is_no_finding():
    """A tenth off, where the standard error of so short a log is 0.07."""
    action = np.array([1] * 110 + [0] * 90)
    log = pd.DataFrame({"action": action, "reward": np.arange(200) % 2, "propensity": 0.5})
    seen = overlap(log, [0.0, 1.0])
    assert (seen.mean_weight, seen.status, seen.note) == (1.1, "ok", "")


@pytest.mark.parametrize(("mass", "status"), [(0.0, "ok"), (0.01, "weak"), (0.3, "none")])
def test_mass_on_arms_never_logged(mass, status):
    """Nothing of the log speaks for them.

    The direct method gives them the log's mean, and says so.
    """
    target = np.array([0.5 - mass / 2, 0.5 - mass / 2, mass])
    log = uniform(4000)
    seen = overlap(log, target)
    assert seen.unsupported == pytest.approx(mass)
    assert seen.status == status
    by_name = statuses(log, target)
    assert by_name.pop("dm") == ("weak" if status == "ok" else "none")
    assert set(by_name.values()) == {status}


def test_few_events_make_few_reasons():
    """Three clicks in 10,000 rounds: the weights are fine, one round makes a third of the variance.

    Rewards that are all the same are no certainty.
    """
    log = uniform(10_000).assign(reward=0.0)
    log.loc[[10, 500, 7000], "reward"] = 1.0
    assert overlap(log, [0.5, 0.5]).status == "ok"
    assert statuses(log, [0.5, 0.5], "snips", "dr") == {"snips": "weak", "dr": "weak"}
    log.loc[[10, 500], "reward"] = 0.0
    assert statuses(log, [0.5, 0.5], "snips") == {"snips": "none"}
    log["reward"] = 1.0
    assert statuses(log, [0.4, 0.6], "snips", "dm") == {"snips": "weak", "dm": "weak"}


def test_weight_that_was_cut_away():
    """Clipping is bias, switching is the model's word.

    Above 5 % of the weight weak, above a half none.
    """
    log = uniform(4000)
    for limit, status in ((2.0, "ok"), (1.5, "weak"), (0.9, "none")):
        found = statuses(log, [0.0, 1.0], "clipped_ips", "ips", clip=limit)
        assert found == {"clipped_ips": status, "ips": "ok"}
    assert statuses(log, [0.0, 1.0], "switch_dr", switch=1.0) == {"switch_dr": "none"}


def test_a_model_that_the_log_contradicts():
    """The direct method says nothing then, nor if its interval is too narrow; dr stays ok.

    Too narrow is narrower than what dr can check.
    """
    log = uniform(4000)
    right = log.assign(q_0=0.5, q_1=0.5)
    assert statuses(right, [0.4, 0.6], "dm", "dr") == {"dm": "none", "dr": "ok"}
    wrong = log.assign(q_0=0.9, q_1=0.9)
    assert statuses(wrong, [0.4, 0.6], "dm", "dr") == {"dm": "none", "dr": "ok"}


def test_means_by_arm_that_the_weights_may_confound():
    """Where weights vary within an arm, the mean reward by arm is no answer.

    Here 0.36 for 0.50, and dr is right.
    """
    rng = np.random.default_rng(3)
    x = rng.random(4000)
    chosen = np.where(x < 0.5, 0.8, 0.2)  # of arm 1, which pays where it is seldom chosen
    action = (rng.random(4000) < chosen).astype(int)
    reward = np.where(action == 1, x > 0.5, rng.random(4000) < 0.5).astype(float)
    chance = np.where(action == 1, chosen, 1.0 - chosen)
    log = pd.DataFrame({"action": action, "reward": reward, "propensity": chance})
    assert statuses(log, [0.5, 0.5], "dm", "dr") == {"dm": "none", "dr": "ok"}
    assert estimate(log, [0.5, 0.5], ("dm", "dr"))["value"].tolist() == pytest.approx(
        [0.36, 0.52], abs=0.005
    )


def test_a_log_in_which_nothing_counts():
    """The target never does what was logged: no value of the ratio, and a warning that says so."""
    log = pd.DataFrame({"action": [0] * 50, "reward": [0, 1] * 25, "propensity": 0.5})
    with pytest.warns(OverlapWarning, match="arms never logged"):
        table = estimate(log, [0.0, 1.0])
    assert set(table["status"]) == {"none"}
    by_name = table.set_index("estimator")
    assert np.isnan(by_name.loc[["snips", "replay"], ["value", "low", "high"]]).all(axis=None)
    assert by_name.loc["ips", "ess"] == 0.0


def test_the_mean_weight_has_an_interval():
    """Normal, of the level asked for; wider by sessions that are alike."""
    rng = np.random.default_rng(4)
    action = (rng.random(1000) < 0.3).astype(int)
    chance = np.array([0.7, 0.3])[action]
    log = pd.DataFrame({"action": action, "reward": 0.0, "propensity": chance})
    weight = pd.Series(0.5 / chance)
    seen = overlap(log, [0.5, 0.5])
    reach = 1.959964 * weight.std() / np.sqrt(1000)
    assert (seen.mean_weight_low, seen.mean_weight_high) == pytest.approx(
        (weight.mean() - reach, weight.mean() + reach)
    )
    sessions = overlap(pd.concat([log] * 2), [0.5, 0.5], session=np.tile(np.arange(1000), 2))
    assert sessions.mean_weight_low == pytest.approx(seen.mean_weight_low)
