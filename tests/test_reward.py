"""The reward of a retrieval strategy: by head, by law, and re-scored from a log."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from raglab.reward import (
    COMPONENTS,
    OPTIONAL_COMPONENTS,
    Bounds,
    RewardWeights,
    answer_brevity,
    bounds,
    hit_diversity,
    rank_consistency,
    raw,
    reward,
    score_margin,
    threshold,
)

NAN = float("nan")
LAWFUL = settings(deadline=None, derandomize=True, max_examples=80)
ROW = {"margin": 0.5, "diversity": 0.2, "latency_ratio": 0.25, "cache_hit": 0.0, "consistency": 1.0}
SHARE = st.sampled_from([0.0, 0.25, 0.5, 1.0])
WEIGHT = st.sampled_from([0.0, 0.1, 0.25, 1.0])
ROWS = st.fixed_dictionaries(
    {
        **dict.fromkeys(COMPONENTS, SHARE),
        "latency_ratio": st.sampled_from([0.0, 0.25, 1.0, 3.0]),
        **{name: st.one_of(SHARE, st.just(NAN)) for name in OPTIONAL_COMPONENTS},
    }
)
WEIGHTS = st.builds(
    RewardWeights,
    *[WEIGHT] * 5,
    st.sampled_from([0.5, 2.0]),
    st.sampled_from([0.5, 1.0]),
    *[WEIGHT] * 3,
)
SOME = WEIGHTS.filter(lambda w: w.margin + w.diversity + w.latency + w.cache + w.consistency > 0.0)
WEIGHT_OF = {"latency_ratio": "latency", "cache_hit": "cache"}


# the arithmetic of rule S4.4


def test_the_worked_example():
    """Raw 0.4·0.5 + 0.1·0.2 − 0.2·2·0.25 + 0.2·1 = 0.32, between −0.4 and 0.8.

    The reward is 0.72 / 1.2 = 0.6.
    """
    assert raw(ROW) == pytest.approx(0.32, abs=1e-15)
    assert bounds() == pytest.approx(Bounds(-0.4, 0.8), abs=1e-15)
    assert reward(ROW) == pytest.approx(0.6, abs=1e-15)
    assert isinstance(reward(ROW), float)


# what is missing


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_missing_component_is_not_zero(name):
    """Its row has no reward; the others keep theirs."""
    table = {key: np.array([value, value]) for key, value in ROW.items()}
    table[name][0] = NAN
    got = np.asarray(reward(table))
    assert np.isnan(got[0])
    assert got[1] == reward(ROW)


def test_a_thumb_that_has_not_come_leaves_its_weight_out():
    """Up adds 0.3 to raw and to hi, down to hi alone.

    None leaves the reward as it is without the weight.
    """
    weights = RewardWeights(thumbs=0.3)
    thumbs = ROW | {"thumbs": np.array([1.0, 0.0, NAN])}
    assert np.asarray(raw(thumbs, weights)).tolist() == pytest.approx([0.62, 0.32, 0.32])
    assert np.asarray(bounds(weights, thumbs).hi).tolist() == pytest.approx([1.1, 1.1, 0.8])
    assert np.asarray(reward(thumbs, weights)).tolist() == pytest.approx(
        [1.02 / 1.5, 0.72 / 1.5, 0.6]
    )
    assert reward(ROW, weights) == reward(ROW), "an absent column is missing in every row"


# what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margin": 1.5}, r"margin must be in \[0, 1\], got 1.5"),
        ({"latency_ratio": -1.0}, "latency_ratio must be at least 0"),
        ({"latency_ratio": float("inf")}, "latency_ratio must be at least 0"),
        ({"consistency": np.array([0.5, 1.01])}, "consistency must be.*got 1.01"),
    ],
)
def test_a_component_outside_its_range_is_refused(change, message):
    """The message names the component and the value."""
    with pytest.raises(ValueError, match=message):
        reward(ROW | change)


@pytest.mark.parametrize("value", [-0.1, NAN, float("inf")])
@pytest.mark.parametrize("name", RewardWeights._fields)
def test_a_weight_that_is_negative_or_nan_is_refused(name, value):
    """Every weight, lambda and delta."""
    with pytest.raises(ValueError, match=f"weight {name} must be at least 0"):
        reward(ROW, RewardWeights(**{name: value}))


def test_weights_that_are_all_zero_are_refused():
    """There is nothing to normalise by; a latency that costs nothing does not count."""
    with pytest.raises(ValueError, match="one weight at least must be positive"):
        reward(ROW, RewardWeights(0.0, 0.0, 0.2, 0.0, 0.0, lambda_=0.0))
    with pytest.raises(ValueError, match="brevity must be"):
        reward(ROW | {"brevity": 2.0}, RewardWeights(brevity=0.1))


# laws


@LAWFUL
@given(
    row=ROWS,
    weights=SOME,
    name=st.sampled_from([*COMPONENTS, *OPTIONAL_COMPONENTS]),
    more=st.sampled_from([0.25, 0.5, 1.0]),
)
def test_the_reward_is_monotone(row, weights, name, more):
    """It stays in [0, 1]; more of a component never lowers it, more latency never raises it."""
    before = reward(row, weights)
    raised = row | {
        name: row[name] + more if name == "latency_ratio" else min(1.0, row[name] + more)
    }
    assert 0.0 <= before <= 1.0
    if np.isnan(row[name]):
        return
    after = reward(raised, weights)
    assert after <= before if name == "latency_ratio" else after >= before
    within = 0.0 < before < 1.0 and raised[name] != row[name]
    if within and getattr(weights, WEIGHT_OF.get(name, name)) > 0.0:
        assert after != before, "inside the clamp every weighted component counts"


@LAWFUL
@given(row=ROWS, weights=SOME, times=st.sampled_from([0.125, 0.5, 4.0, 1024.0]))
def test_scaling_the_weights_changes_nothing(row, weights, times):
    """Powers of two not by a bit; lambda and delta are no weights."""
    scaled = RewardWeights(
        *(
            value if name in {"lambda_", "delta"} else value * times
            for name, value in weights._asdict().items()
        )
    )
    assert reward(row, scaled) == reward(row, weights)


@LAWFUL
@given(rows=st.lists(ROWS, min_size=1, max_size=5), weights=st.lists(SOME, min_size=1, max_size=3))
def test_one_is_a_cell_of_many(rows, weights):
    """A frame of rows, and weights [P, 1] against them, give the bits of one row and weight set."""
    frame = pd.DataFrame(rows)
    each = np.array([[reward(row, weights_of_row) for row in rows] for weights_of_row in weights])
    for weights_of_row, wanted in zip(weights, each, strict=True):
        np.testing.assert_array_equal(reward(frame, weights_of_row), wanted)
    stacked = RewardWeights(*(np.array(column)[:, None] for column in zip(*weights, strict=True)))
    np.testing.assert_array_equal(reward(frame, stacked), each)


# components from arrays, rule S4.3


def test_the_margin_of_hits():
    """Best minus second in any order; one hit against 0; nothing is 0.

    A hit without a score is not known.
    """
    scores = [[0.3, 0.8, NAN], [0.7, NAN, NAN], [NAN, NAN, NAN], [0.5, 0.5, 0.2]]
    assert np.asarray(score_margin(scores)).tolist() == [0.5, 0.7, 0.0, 0.0]
    hits = [[True, True, True], [True, False, False], [False] * 3, [True] * 3]
    np.testing.assert_array_equal(score_margin(scores, hits), [NAN, 0.7, 0.0, 0.0])
    assert score_margin([]) == 0.0
    with pytest.raises(ValueError, match=r"s_rerank must be in \[0, 1\], got 7"):
        score_margin([7.0, 0.5])


def test_the_diversity_of_hits():
    """Right angles 1, twins 0, opposites clipped at 1, one hit 0; the mean over pairs."""
    x, y = [1.0, 0.0], [0.0, 1.0]
    assert hit_diversity([x, y]) == 1.0
    assert hit_diversity([x, x, x]) == 0.0
    assert hit_diversity([x, [-1.0, 0.0]]) == 1.0
    assert hit_diversity([x]) == 0.0
    assert hit_diversity([x, x, y]) == pytest.approx(2 / 3)
    assert hit_diversity([x, x, y], [True, False, True]) == 1.0
    assert np.isnan(hit_diversity([x, [NAN, 0.0]], [True, True]))
    with pytest.raises(ValueError, match="vectors must have length 1, got 2"):
        hit_diversity([x, [2.0, 0.0]])


def test_consistency_is_kendalls_tau():
    """(1 + tau) / 2 where no scores tie."""
    rng = np.random.default_rng(1)
    first, second = rng.random((20, 6)), rng.random((20, 6))
    wanted = [(1.0 + kendalltau(a, b).statistic) / 2.0 for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(rank_consistency(first, second), wanted, atol=1e-12)


def test_a_brief_answer_is_worth_more():
    """Strictly, word by word.

    A missing answer stays missing, and no answer has fewer than no words.
    """
    brevity = np.asarray(answer_brevity(np.arange(200.0)))
    assert brevity[0] == 1.0
    assert (np.diff(brevity) < 0.0).all()
    assert (brevity > 0.0).all()
    assert np.isnan(answer_brevity(float("nan")))
    with pytest.raises(ValueError, match="n_words must be at least 0"):
        answer_brevity(-1)


def test_a_threshold_is_the_source_s_unless_the_median_is_wanted():
    """0.5 by default, a number as it is, the median of what is known.

    Of many equal ones the next lower reward.
    """
    assert threshold([0.1, 0.9]) == 0.5
    assert threshold([0.1, 0.9], 0.3) == 0.3
    assert threshold([[0.1, np.nan], [0.2, 0.7]], "median") == 0.2
    assert threshold([0.3, 0.4, 0.9, 0.9, 0.9], "median") == 0.4


@LAWFUL
@given(
    st.lists(st.integers(0, 8), min_size=2, max_size=30).filter(lambda cells: len(set(cells)) > 1)
)
def test_a_median_threshold_leaves_successes_and_failures(cells):
    """Whatever the ties: some rewards lie above, some do not, and never more than half above."""
    rewards = np.array(cells) / 8.0
    above = (rewards > threshold(rewards, "median")).sum()
    assert 0 < above < len(rewards)
    assert above <= len(rewards) / 2 or (rewards == rewards.max()).sum() == above


@pytest.mark.parametrize(
    ("rewards", "rule", "message"),
    [
        ([0.1, 0.9], 1.5, r"rule must be a number in \[0, 1\] or 'median', got 1.5"),
        ([0.1, 0.9], "mean", "rule must be a number .* got 'mean'"),
        ([0.4, 0.4], "median", "rewards must differ .* got 2 alike"),
        ([0.4, 7.0], "median", r"rewards must be in \[0, 1\], got 7"),
    ],
)
def test_thresholds_out_of_range_are_refused(rewards, rule, message):
    """Rule, value, remedy."""
    with pytest.raises(ValueError, match=message):
        threshold(rewards, rule)
