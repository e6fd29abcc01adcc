"""Reward audit: four cases by head, twins in scipy, laws, and the bundled questions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from labelled import noted
from raglab.bandit import Bandit
from raglab.lab.reward_audit import audit_rewards, audit_table
from refusals import refused
from study_worlds import FEW, MARGIN, SEEN, VALUE, audited, drawn, margin_world


def correlation(found, signal="reward"):
    """Row of a signal."""
    return found.correlations.set_index("signal").loc[signal]


def test_a_reward_that_is_the_label_agrees_in_every_pair():
    """The margin equals the value and all pairs agree.

    Arms are equal on average, so that no learner gains by it.
    """
    value = np.array([[1.0, 0.0], [0.0, 1.0]] * 15)
    found = audited(value, value)
    row = correlation(found)
    assert (row["pearson"], row["concordance"]) == (pytest.approx(1.0), 1.0)
    assert row["concordance_low"] == pytest.approx(0.025 ** (1 / 30))  # exact: 30 of 30, and not 1
    assert found.simulation["verdict"].tolist() == ["", "not told apart", "not told apart"]


def test_a_constant_component_has_no_correlation():
    """cache_hit is 0 everywhere: ties agree half."""
    found = audited()
    row = correlation(found, "cache_hit")
    assert np.isnan([row["pearson"], row["pearson_low"], row["pearson_high"]]).all()
    assert row["concordance"] == 0.5


def test_concordance_equals_a_loop_over_pairs():
    """Available pairs of a case that differ in value at all; ties of the signal count half.

    Pearson over the available rows is scipy's.
    """
    value, margin, mask = drawn(seed=4)
    value *= [1.0, 0.5, 0.25]  # finer than right and wrong, as nDCG is
    agree = n = 0.0
    for row in range(len(value)):
        for one, two in combinations(np.flatnonzero(mask[row]), 2):
            if value[row, one] != value[row, two]:
                n += 1
                apart = (margin[row, one] - margin[row, two]) * (value[row, one] - value[row, two])
                agree += 0.5 if apart == 0.0 else float(apart > 0.0)
    row = correlation(audited(value, margin, mask), "margin")
    assert row["pairs"] == n > 20
    assert row["concordance"] == pytest.approx(agree / n)
    assert row["pearson"] == pytest.approx(stats.pearsonr(margin[mask], value[mask]).statistic)


def test_masked_arms_are_nothing():
    """What stands in a masked cell changes no number."""
    value, margin, mask = drawn(seed=5)
    first = audited(value, margin, mask)
    second = audited(np.where(mask, value, 1.0 - value), np.where(mask, margin, 1.0), mask)
    pd.testing.assert_frame_equal(first.correlations, second.correlations)
    pd.testing.assert_frame_equal(first.arms, second.arms)
    assert first.notes == second.notes


def test_arms_of_a_case_stay_together_in_the_bootstrap():
    """Every arm twice doubles the rows and adds no case: the intervals of the correlations stay."""
    value, margin, _ = drawn(60, 2, seed=7)
    one = correlation(audited(value, margin), "margin")
    two = (
        audited(np.tile(value, 2), np.tile(margin, 2))
        .correlations.set_index("signal")
        .loc["margin"]
    )
    assert two["n"] == 2 * one["n"]
    assert two["pearson_low"] == pytest.approx(one["pearson_low"])
    assert two["pearson_high"] == pytest.approx(one["pearson_high"])


def test_the_same_seed_gives_the_same_audit():
    """Bit for bit; another seed moves the intervals and no estimate."""
    value, margin, mask = drawn(seed=8)
    one, two, other = (audited(value, margin, mask, seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one.correlations, two.correlations)
    assert not one.simulation.equals(other.simulation)
    assert one.correlations["pearson"].equals(other.correlations["pearson"])


def test_missing_rewards_are_left_out_and_counted():
    """A case whose arms have no margin counts in no correlation and in no pair."""
    margin = SEEN.copy()
    margin[0] = np.nan
    found = audited(VALUE, margin)
    row = correlation(found)
    assert (row["n"], row["pairs"]) == (6, 1)
    assert found.settings["without_reward"] == 2


def test_an_optional_component_is_a_signal_where_it_has_a_weight():
    """Thumbs with weight 0 are no row of the table; with a weight they are."""
    table, measured = margin_world(VALUE, SEEN)
    measured["thumbs"] = np.tile([1.0, 0.0], 4)
    plain, thumbed = (
        audit_table(table, Bandit(), FEW, 200, measured, weights).correlations.set_index("signal")
        for weights in (MARGIN, MARGIN._replace(thumbs=1.0))
    )
    assert "thumbs" not in plain.index
    assert thumbed.loc["thumbs", "concordance"] == 0.5


@pytest.mark.parametrize(("level", "n_boot"), [(1.0, 10), (0.95, 0)])
def test_settings_out_of_range_are_refused(level, n_boot):
    """The message states the rule and what came."""
    refused(
        r"level must be in \(0, 1\) and n_boot at least 1, got", audited, level=level, n_boot=n_boot
    )


def test_few_cases_prove_nothing():
    """Of one or two cases resampling shows no spread.

    The interval is that of as many cases that show nothing.
    """
    for n in (1, 2):
        found = audited(np.tile([1.0, 0.0], (n, 1)), np.tile([0.9, 0.1], (n, 1)), rounds=100)
        learner, uniform = (
            found.simulation.iloc[0],
            found.simulation.set_index("policy").loc["uniform"],
        )
        assert uniform["verdict"] == "not told apart"
        assert uniform["difference_high"] - uniform["difference"] > 0.8
        assert learner["value_low"] < 0.5
        assert noted(found.notes, f"{n} cases are too few")
    many = audited(np.tile([1.0, 0.0], (10, 1)), np.tile([0.9, 0.1], (10, 1)), rounds=100)
    assert many.simulation.set_index("policy").loc["uniform", "verdict"] == "helps"
    assert not noted(many.notes, "too few")
    # no resample differs, and the exact interval says that this is no proof
    assert many.arms["mean_value_low"][0] == pytest.approx(0.025 ** (1 / 10))


def test_a_value_of_another_shape_is_refused():
    """With the shape that it must have; a missing one of an available arm too."""
    table = margin_world(VALUE, SEEN)[0]
    for value, rule in (
        (np.ones((2, 2)), r"value must be \[Q, A\], \(4, 2\), got \(2, 2\)"),
        (np.full((4, 2), np.nan), "must be finite, got NaN or infinity"),
    ):
        refused(rule, audit_rewards, table, value=value)


def test_intervals_hold_what_they_say():
    """Of 150 worlds of known truth, the concordance's 95 % interval holds it in 88 to 99 %."""
    held = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        value = (rng.random((120, 3)) < 0.5).astype(float)
        margin = rng.random((120, 3)) + 0.25 * value
        row = (
            audited(value, margin / 1.25, n_boot=300, seed=seed)
            .correlations.set_index("signal")
            .loc["margin"]
        )
        truth = 1.0 - 0.75**2 / 2.0  # of two uniforms, one of them 0.25 ahead
        held.append(row["concordance_low"] <= truth <= row["concordance_high"])
    assert 0.88 <= np.mean(held) <= 0.99
