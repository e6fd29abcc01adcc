"""Off-policy values: worked by head, identities, refusals, differences and bounds."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.off_policy import (
    ESTIMATORS,
    OverlapWarning,
    difference,
    estimate,
    lower_bound,
    overlap,
)
from refusals import refused

LAWFUL = settings(deadline=None, derandomize=True, max_examples=25)
SEEDS = st.integers(0, 100_000)
LOG = pd.DataFrame({"action": [0, 1, 1], "reward": [1.0, 0.0, 1.0], "propensity": [0.5, 0.5, 0.25]})
ALWAYS_1 = np.array([0.0, 1.0])  # weights on LOG: 0, 2, 4


def quiet(log, target, *names, **more):
    """Estimates, whatever the overlap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        return estimate(log, target, names, **more)


def values(log, target, *names, **more):
    """Values of estimators."""
    return quiet(log, target, *names, **more)["value"].tolist()


def coarse(seed, *, n=40, arms=3):
    """Log on a coarse grid with a model, its policy and another, each changing by round.

    The first of these policies made the log.
    """
    rng = np.random.default_rng(seed)

    def policies():
        parts = rng.multinomial(8 - arms, np.ones(arms) / arms, size=n) + 1
        return parts / 8.0

    logging, target = policies(), policies()
    action = np.array([rng.choice(arms, p=row) for row in logging])
    action[:arms] = np.arange(arms)
    log = pd.DataFrame(
        {
            "action": action,
            "reward": rng.integers(0, 5, n) / 4.0,
            "propensity": logging[np.arange(n), action],
            **{f"q_{arm}": rng.integers(0, 5, n) / 4.0 for arm in range(arms)},
        }
    )
    return log, logging, target


def bare(log):
    """Log without its model."""
    return log[["action", "reward", "propensity"]]


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("ips", 4 / 3, {}),  # (0·1 + 2·0 + 4·1) / 3
        ("snips", 4 / 6, {}),  # over 0 + 2 + 4
        ("clipped_ips", 3 / 3, {"clip": 3.0}),  # (2·0 + 3·1) / 3
        ("dm", 0.5, {}),  # mean reward of arm 1
        ("dr", 0.5 + (-2 * 0.5 + 4 * 0.5) / 3, {}),
        ("switch_dr", 0.5 - 2 * 0.5 / 3, {"switch": 2.0}),  # at the threshold is used
        ("switch_dr", 0.5, {"switch": 1.0}),
    ],
)
def test_three_rounds_by_head(name, value, more):
    """Each estimator on a log that fits on a hand."""
    assert values(LOG, ALWAYS_1, name, **more)[0] == pytest.approx(value, abs=1e-12)


def test_the_table_has_the_promised_columns():
    """A row for each estimator, in the order asked for, and notes for those that are not ok."""
    log = pd.concat([LOG] * 50, ignore_index=True)
    with pytest.warns(OverlapWarning, match="mean weight 2.000"):
        table = estimate(log, ALWAYS_1, ("dr", "ips"))
    assert table["estimator"].tolist() == list(table.attrs["notes"]) == ["dr", "ips"]
    assert table["ess"].tolist() == pytest.approx([150 * 36 / (3 * 20)] * 2)
    assert table["max_weight"].tolist() == [4.0, 4.0]


def test_replay_of_a_uniform_log_takes_every_match():
    """A deterministic target on a uniform log: the mean reward of the matches, for any seed."""
    log = pd.DataFrame(
        {"action": [0, 1, 2] * 40, "reward": [0.0, 1.0, 0.5] * 40, "propensity": [1 / 3] * 120}
    )
    target = np.eye(3)[[0, 1, 2, 1, 1, 1] * 20]
    for seed in range(5):
        row = quiet(log, target, "replay", seed=seed).iloc[0]
        assert row["ess"] == 80.0  # matches in rows 0, 1, 2, 4 of every 6
        assert row["value"] == pytest.approx((0.0 + 1.0 + 0.5 + 1.0) / 4)


@LAWFUL
@given(SEEDS)
def test_the_logging_policy_is_worth_its_mean(seed):
    """Target = logging policy: replay = IPS = SNIPS = mean of the rewards."""
    log, logging, _ = coarse(seed)
    result = values(log, logging, "replay", "ips", "snips")
    assert result == pytest.approx([log["reward"].mean()] * 3, abs=1e-14)


@LAWFUL
@given(SEEDS, st.sampled_from([-2.0, 0.25, 100.0]))
def test_a_constant_on_the_rewards_shifts_the_normalised(seed, constant):
    """SNIPS, replay, and what is fitted to the log move with it; so do their intervals."""
    log, _, target = coarse(seed)
    names = ("snips", "replay", "dm", "dr", "switch_dr")
    before = quiet(bare(log), target, *names)
    after = quiet(bare(log).assign(reward=log["reward"] + constant), target, *names)
    columns = ["value", "low", "high"]
    np.testing.assert_allclose(after[columns], before[columns] + constant, atol=1e-11)


@pytest.mark.parametrize("interval", ["delta", "bootstrap"])
@pytest.mark.parametrize("reward", [1.0, 0.7, 0.0, -3.3])
def test_rewards_that_are_all_the_same_leave_no_width(interval, reward):
    """SNIPS is that reward to the bit, with zero width, and is not called ok."""
    log, _, target = coarse(7, n=400)
    row = estimate(
        log.assign(reward=reward), target, ("snips",), interval=interval, n_boot=50
    ).iloc[0]
    assert (row["value"], row["low"], row["high"], row["status"]) == (
        reward,
        reward,
        reward,
        "weak",
    )


@LAWFUL
@given(SEEDS)
def test_estimators_meet_where_their_formulas_do(seed):
    """DR with a model of zeros is IPS; clip and switch beyond the largest weight do nothing.

    Switch at 0 is DM.
    """
    log, _, target = coarse(seed)
    nothing = log.assign(q_0=0.0, q_1=0.0, q_2=0.0)
    ips, clipped = values(log, target, "ips", "clipped_ips", clip=64.0)
    dm, dr, switched = values(log, target, "dm", "dr", "switch_dr", switch=64.0)
    assert values(nothing, target, "dr")[0] == pytest.approx(ips)
    assert clipped == ips
    assert switched == dr
    assert values(log, target, "switch_dr", switch=1e-9)[0] == pytest.approx(dm)
    assert values(log, target, "clipped_ips", clip=0.5)[0] <= ips + 1e-12


@LAWFUL
@given(SEEDS, st.booleans())
# drawn
def test_the_order_of_the_rounds_is_irrelevant(seed, modelled):
    """To every estimator that draws nothing."""
    log, _, target = coarse(seed)
    log = log if modelled else bare(log)
    order = np.random.default_rng(seed).permutation(len(log))
    names = tuple(name for name in ESTIMATORS if name != "replay")
    assert values(log.iloc[order], target[order], *names) == pytest.approx(
        values(log, target, *names)
    )


@LAWFUL
@given(SEEDS)
def test_names_say_the_same_as_positions(seed):
    """Actions by name, target as a frame, q_ columns by name or position: the same bits."""
    log, _, target = coarse(seed)
    arms = ["hybrid", "graph", "table"]
    named = log.assign(action=np.array(arms)[log["action"]])
    by_name = named.rename(columns={f"q_{place}": f"q_{arm}" for place, arm in enumerate(arms)})
    frame = pd.DataFrame(target, columns=arms)
    expected = values(log, target, *ESTIMATORS)
    assert values(named, frame, *ESTIMATORS) == expected
    assert values(by_name, target, *ESTIMATORS, arms=arms) == expected
    items = pd.DataFrame(target, columns=[30, 10, 20])
    numbered = log.assign(action=np.array([30, 10, 20])[log["action"]])
    assert values(numbered, items, *ESTIMATORS) == expected


def test_a_model_may_be_silent_on_an_arm_without_mass():
    """NaN where target is 0 and the arm was not logged is no matter.

    Elsewhere it is refused with its row.
    """
    log, _, _ = coarse(3)
    log["q_2"] = np.where(log["action"] == 2, 0.5, np.nan)
    target = np.array([0.5, 0.5, 0.0])
    assert values(log, target, "dm")[0] == pytest.approx((log["q_0"] + log["q_1"]).mean() / 2)
    refused(r"q_<arm> must be finite .* in row 0", values, log, np.array([0.5, 0.25, 0.25]), "dm")


def test_no_mass_on_a_masked_arm():
    """A target that chooses what was not there is refused with row and arm."""
    log, _, target = coarse(5)
    mask = np.ones((40, 3), dtype=bool)
    assert values(log, target, *ESTIMATORS, mask=mask) == values(log, target, *ESTIMATORS)
    mask[11, 2] = False
    rule = "no mass on an arm that was not available.*arm 2 in row 11"
    refused(rule, estimate, log, target, mask=mask)
    refused("not available", overlap, log, target, mask=[True, True, False])


DETERMINISTIC = pd.DataFrame({"action": [0, 1] * 30, "reward": [0.5, 1.0] * 30, "propensity": 1.0})


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips", "dr", "switch_dr"])
def test_a_deterministic_log_is_refused(name):
    """It holds nothing of the arms it did not choose; the message says what to do instead."""
    rule, target = "deterministic policy.*row 0.*log with a floor.*dm", [0.0, 1.0]
    refused(rule, estimate, DETERMINISTIC, target, (name,))
    refused(rule, difference, DETERMINISTIC, target, [0.5, 0.5], name)
    refused(rule, lower_bound, DETERMINISTIC, target)


def test_a_deterministic_log_values_its_own_policy():
    """And for another one the direct method and replay answer, with a loud warning."""
    target = np.eye(2)[[0, 1] * 30]
    assert values(DETERMINISTIC, target, "ips", "snips", "dr") == pytest.approx([0.75] * 3)
    with pytest.warns(OverlapWarning, match="says nothing about the target"):
        table = estimate(
            DETERMINISTIC.assign(q_0=0.1, q_1=0.9), np.array([0.0, 1.0]), ("dm", "replay")
        )
    assert table["value"].tolist() == pytest.approx([0.9, 1.0])
    assert table["status"].tolist() == ["none", "none"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("interval", ["delta", "bootstrap"])
def test_a_policy_differs_from_itself_by_nothing(estimator, interval):
    """Exactly 0, without width."""
    log, _, target = coarse(8, n=400)
    result = difference(bare(log), target, target, estimator, interval=interval, n_boot=50)
    assert (result.value, result.low, result.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_difference_is_that_of_the_estimates(estimator):
    """With an interval that pairs the rounds.

    Narrower than two side by side where both policies are near.
    """
    log, _, first = coarse(9, n=2000)
    second = 0.9 * first + 0.1 / 3
    result = difference(log, first, second, estimator)
    table = pd.concat([estimate(log, target, (estimator,)) for target in (first, second)])
    assert (result.first, result.second) == tuple(table["value"])
    assert result.value == result.first - result.second
    assert (result.ess, result.max_weight) == (table["ess"].min(), table["max_weight"].max())
    apart = np.hypot(*(table["high"] - table["low"]))
    assert 0.0 < result.high - result.low < (0.7 if estimator != "replay" else 1.1) * apart


def test_a_difference_takes_the_worse_status():
    """And warns where one of the two is none."""
    log = pd.DataFrame({"action": [0, 1] * 300, "reward": [0.0, 1.0, 1.0] * 200, "propensity": 0.5})
    with pytest.warns(OverlapWarning, match="never logged"):
        result = difference(log, [0.5, 0.5, 0.0], [0.1, 0.1, 0.8])
    assert result.status == "none"
    assert difference(log, [0.5, 0.5], [0.4, 0.6]).status == "ok"
    refused("same arms", difference, log, [0.5, 0.5, 0.0], [0.5, 0.5])


def test_the_bound_by_head():
    """Clip 1, weights 1: mean 0.5, variance 0.5 / 2 · 4 / 3.

    Maurer and Pontil's two terms off it.
    """
    log = pd.DataFrame({"action": 0, "reward": [0.0, 1.0] * 200, "propensity": [1.0] * 400})
    slack = np.log(2 / 0.05)
    expected = 0.5 - np.sqrt(2 * (100 / 399) * slack / 400) - 7 * slack / (3 * 399)
    assert lower_bound(log, [1.0], clip=1.0) == pytest.approx(expected)
    assert lower_bound(log, [1.0], clip=2.0) == pytest.approx(expected - 7 * slack / (3 * 399))
    assert lower_bound(log, [1.0], delta=0.5, clip=1.0) > expected
    # of 1, 2, 4, 8, 16
    assert lower_bound(log, [1.0]) == lower_bound(log, [1.0], delta=0.05 / 5, clip=1.0)
    assert lower_bound(log.iloc[:3], [1.0], clip=1.0) == 0.0


def test_a_bound_wants_rewards_in_the_unit_interval():
    """And a delta and a clip that are some."""
    log, _, target = coarse(10)
    for more in ({"delta": 0.0}, {"delta": 1.0}, {"clip": 0.0}):
        refused(next(iter(more)), lower_bound, log, target, **more)
    refused(r"reward must be in \[0, 1\] for a bound", lower_bound, log.assign(reward=2), target)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"estimators": "ips"}, "even one stands in a tuple"),
        ({"estimators": ("ips", "iips")}, r"\['iips'\]"),
        ({"level": 95}, r"level must be in \(0, 1\), got 95"),
        ({"interval": "normal"}, "delta or bootstrap"),
        ({"n_boot": 0}, "n_boot must be at least 1"),
        ({"clip": 0.0}, "clip must be a weight above 0"),
        ({"seed": None}, "seed must be a whole number >= 0, got"),
    ],
)
def test_arguments_out_of_range_are_refused(more, message):
    """Rule, value, remedy."""
    refused(message, estimate, LOG, ALWAYS_1, **more)


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        (np.array([True, False]), "action must be an arm that was available, got 1 in row 1"),
        (np.array([1, 1]), r"mask must be booleans \[A\] or \[T, A\], \(4, 2\), got int64 \(2,\)"),
        (np.ones((3, 2), np.bool_), r"got bool \(3, 2\)"),
    ],
)
def test_a_mask_that_the_log_contradicts_is_refused(mask, rule):
    """An arm that was chosen was available; and a mask has its shape and type."""
    log = pd.DataFrame({"action": [0, 1, 0, 1], "reward": [0.0, 1.0, 1.0, 0.0], "propensity": 0.5})
    refused(rule, estimate, log, np.array([1.0, 0.0]), ("snips",), mask=mask)
