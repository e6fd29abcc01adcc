"""Statuses: each rule turns a number weak and then none, and says why."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.off_policy import ESTIMATORS, OverlapWarning, Rules, estimate, overlap


def uniform(n: int, *, seed: int = 0) -> pd.DataFrame:
    """Log of two arms, chosen by a fair coin, with rewards by another."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"action": np.arange(n) % 2, "reward": rng.integers(0, 2, n), "propensity": 0.5})


def statuses(log: pd.DataFrame, target: Any, *names: str, **more: Any) -> dict[str, str]:
    """Status of each estimator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        table = estimate(log, target, names or ESTIMATORS, **more)
    return dict(zip(table["estimator"], table["status"], strict=True))


def notes(log: pd.DataFrame, target: Any, name: str, **more: Any) -> str:
    """Why the status of an estimator is what it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        return estimate(log, target, (name,), **more).attrs["notes"][name]


def test_a_wide_log_is_ok() -> None:
    """No notes, no warning, for every estimator."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = estimate(uniform(2000), [0.4, 0.6])
    assert set(table["status"]) == {"ok"}
    assert set(table.attrs["notes"].values()) == {""}


@pytest.mark.parametrize(("n", "status"), [(400, "ok"), (150, "weak"), (16, "none")])
def test_few_effective_rounds(n: int, status: str) -> None:
    """One of two arms: the effective sample size is half the rounds; below 100 weak, below 10 none."""
    seen = overlap(uniform(n), [0.0, 1.0])
    assert (seen.n, seen.ess, seen.max_weight, seen.mean_weight) == (n, n / 2, 2.0, 1.0)
    assert seen.status == status
    assert ("effective sample size" in seen.note) == (status != "ok")
    assert set(statuses(uniform(n), [0.0, 1.0], "ips", "snips", "dr", "dm").values()) == {status}


def test_one_round_with_most_of_the_weight() -> None:
    """A rare arm that the target loves."""
    log = pd.DataFrame({"action": [1] + [0] * 999, "reward": [0, 1] * 500, "propensity": [0.001] + [0.999] * 999})
    for share, status in ((0.05, "ok"), (0.2, "weak"), (0.8, "none")):
        seen = overlap(log, [1 - share, share], rules=Rules(ess=(0.0, 0.0)))
        assert seen.status == status
        assert (f"one round holds {share:.0%} of the weight" in seen.note) == (status != "ok")


@pytest.mark.parametrize(("factor", "status"), [(1.0, "ok"), (0.95, "weak"), (0.5, "none")])
def test_propensities_that_are_wrong_show_in_the_mean_weight(factor: float, status: str) -> None:
    """It is far from 1 by more than its error: logged probabilities are not those that chose."""
    log = uniform(40_000)
    log["propensity"] *= factor
    seen = overlap(log, [0.45, 0.55])
    assert seen.status == status
    assert seen.mean_weight == pytest.approx(1 / factor)
    assert seen.mean_weight_low <= 1 / factor <= seen.mean_weight_high
    assert ("mean weight" in seen.note) == (status != "ok")


def test_a_mean_weight_that_chance_explains_is_no_finding() -> None:
    """A tenth off, where the standard error of so short a log is 0.07."""
    action = np.array([1] * 110 + [0] * 90)
    log = pd.DataFrame({"action": action, "reward": np.arange(200) % 2, "propensity": 0.5})
    seen = overlap(log, [0.0, 1.0])
    assert (seen.mean_weight, seen.status, seen.note) == (1.1, "ok", "")


@pytest.mark.parametrize(("mass", "status"), [(0.0, "ok"), (0.01, "weak"), (0.3, "none")])
def test_mass_on_arms_never_logged(mass: float, status: str) -> None:
    """Nothing of the log speaks for them; the direct method gives them the log's mean, and says so."""
    target = np.array([0.5 - mass / 2, 0.5 - mass / 2, mass])
    log = uniform(4000)
    seen = overlap(log, target)
    assert seen.unsupported == pytest.approx(mass)
    assert seen.status == status
    assert ("arms never logged (2)" in seen.note) == (mass > 0)
    assert set(statuses(log, target).values()) == {status}


def test_few_events_make_few_reasons() -> None:
    """Three clicks in 10,000 rounds: the weights are fine, but one round makes a third of the variance."""
    log = uniform(10_000).assign(reward=0.0)
    log.loc[[10, 500, 7000], "reward"] = 1.0
    assert overlap(log, [0.5, 0.5]).status == "ok"
    assert statuses(log, [0.5, 0.5], "snips", "dr") == {"snips": "weak", "dr": "weak"}
    assert "one round makes 33% of the variance" in notes(log, [0.5, 0.5], "snips")
    log.loc[[10, 500], "reward"] = 0.0
    assert statuses(log, [0.5, 0.5], "snips") == {"snips": "none"}


def test_few_sessions_make_few_reasons() -> None:
    """Rounds of one session count together: with four sessions, one makes a quarter of the variance or more."""
    log = uniform(4000)
    assert statuses(log, [0.4, 0.6], "snips") == {"snips": "ok"}
    session = np.arange(4000) // 1000
    assert "one session makes" in notes(log, [0.4, 0.6], "snips", session=session)
    assert statuses(log, [0.4, 0.6], "snips", session=session)["snips"] != "ok"


def test_weight_that_was_cut_away() -> None:
    """Clipping is bias, switching is the model's word: above 5 % of the weight weak, above a half none."""
    log = uniform(4000)
    for limit, status in ((2.0, "ok"), (1.5, "weak"), (0.9, "none")):
        found = statuses(log, [0.0, 1.0], "clipped_ips", "ips", clip=limit)
        assert found == {"clipped_ips": status, "ips": "ok"}
    assert statuses(log, [0.0, 1.0], "switch_dr", switch=1.0) == {"switch_dr": "none"}
    assert "100% of the weight is beyond 1" in notes(log, [0.0, 1.0], "switch_dr", switch=1.0)


def test_a_model_that_the_log_contradicts() -> None:
    """The direct method is weak then; doubly robust estimation mends it and stays ok."""
    log = uniform(4000)
    right = log.assign(q_0=0.5, q_1=0.5)
    assert statuses(right, [0.4, 0.6], "dm", "dr") == {"dm": "weak", "dr": "ok"}
    assert notes(right, [0.4, 0.6], "dm") == "the interval takes the reward model from outside for true"
    wrong = log.assign(q_0=0.9, q_1=0.9)
    assert statuses(wrong, [0.4, 0.6], "dm", "dr") == {"dm": "weak", "dr": "ok"}
    assert "contradicts the reward model by -0.395" in notes(wrong, [0.4, 0.6], "dm")


def test_means_by_arm_that_the_weights_may_confound() -> None:
    """Where weights vary within an arm, the mean reward by arm is no answer: here 0.36 for 0.50, and dr is right."""
    rng = np.random.default_rng(3)
    x = rng.random(4000)
    chosen = np.where(x < 0.5, 0.8, 0.2)  # of arm 1, which pays where it is seldom chosen
    action = (rng.random(4000) < chosen).astype(int)
    reward = np.where(action == 1, x > 0.5, rng.random(4000) < 0.5).astype(float)
    log = pd.DataFrame({"action": action, "reward": reward, "propensity": np.where(action == 1, chosen, 1.0 - chosen)})
    assert statuses(log, [0.5, 0.5], "dm", rules=Rules(model=(np.inf, np.inf)))["dm"] == "weak"
    assert "weights vary within an arm" in notes(log, [0.5, 0.5], "dm")
    assert estimate(log, [0.5, 0.5], ("dm", "dr"))["value"].tolist() == pytest.approx([0.36, 0.52], abs=0.005)
    assert statuses(log, [0.5, 0.5], "dr") == {"dr": "ok"}
    assert statuses(uniform(2000), [0.4, 0.6], "dm") == {"dm": "ok"}


def test_rewards_that_are_all_the_same_are_no_certainty() -> None:
    """An interval without width is weak for the direct method too."""
    log = uniform(2000).assign(reward=1.0)
    assert statuses(log, [0.4, 0.6], "snips", "dm", "dr") == {"snips": "weak", "dm": "weak", "dr": "weak"}


def test_few_rounds_accepted() -> None:
    """Replay by rejection wastes rounds that the weights would use."""
    rng = np.random.default_rng(2)
    action = (rng.random(2000) < 0.02).astype(int)
    log = pd.DataFrame(
        {"action": action, "reward": rng.integers(0, 2, 2000), "propensity": [0.98, 0.02] @ np.eye(2)[action].T}
    )
    found = statuses(log, [0.97, 0.03], "replay", "snips")
    assert found == {"replay": "ok", "snips": "ok"}
    few = statuses(log.iloc[:120], [0.9, 0.1], "replay", rules=Rules(share=(1.0, 1.0), lead=(1.0, 1.0)))
    assert few["replay"] != "ok"
    assert "rounds accepted" in notes(log.iloc[:120], [0.9, 0.1], "replay")


def test_a_log_in_which_nothing_counts() -> None:
    """The target never does what was logged: no value of the ratio, and a warning that says so."""
    log = pd.DataFrame({"action": [0] * 50, "reward": [0, 1] * 25, "propensity": 0.5})
    with pytest.warns(OverlapWarning, match="100.0% of the target is on arms never logged"):
        table = estimate(log, [0.0, 1.0])
    assert set(table["status"]) == {"none"}
    by_name = table.set_index("estimator")
    assert np.isnan(by_name.loc[["snips", "replay"], ["value", "low", "high"]]).all(axis=None)
    assert (by_name.loc["ips", "ess"], by_name.loc["ips", "max_weight"]) == (0.0, 0.0)


def test_one_warning_for_one_reason() -> None:
    """Not one an estimator."""
    with pytest.warns(OverlapWarning) as caught:
        estimate(uniform(16), [0.0, 1.0], ("ips", "snips", "dr"), rules=Rules(lead=(1.0, 1.0)))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_the_mean_weight_has_an_interval() -> None:
    """Normal, of the level asked for; wider by sessions that are alike."""
    rng = np.random.default_rng(4)
    action = (rng.random(1000) < 0.3).astype(int)
    log = pd.DataFrame({"action": action, "reward": 0.0, "propensity": np.where(action == 1, 0.3, 0.7)})
    weight = np.where(action == 1, 0.5 / 0.3, 0.5 / 0.7)
    seen = overlap(log, [0.5, 0.5])
    reach = 1.959964 * weight.std(ddof=1) / np.sqrt(1000)
    assert (seen.mean_weight_low, seen.mean_weight_high) == pytest.approx(
        (weight.mean() - reach, weight.mean() + reach)
    )
    twice = pd.concat([log, log], ignore_index=True)
    sessions = overlap(twice, [0.5, 0.5], session=np.tile(np.arange(1000), 2))
    assert sessions.mean_weight_low == pytest.approx(seen.mean_weight_low)
