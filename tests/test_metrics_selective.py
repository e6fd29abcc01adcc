"""Selective prediction and three-way outcomes (raglab.metrics)."""

from __future__ import annotations

from itertools import permutations
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.metrics import (
    augrc,
    aurc,
    aurc_difference,
    auroc,
    auroc_interval,
    clopper_pearson,
    coverage_at_risk,
    eaurc,
    outcome_intervals,
    outcome_table,
    prr,
    risk_at_coverage,
    risk_band,
    risk_coverage,
)
from raglab.metrics.selective import BAND_STEPS, mean_risk
from raglab.values import Curve, Status

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=40)
ROW = st.tuples(st.booleans(), st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, NAN]))
ROWS = st.lists(ROW, min_size=1, max_size=14)
MEASURES = (aurc, eaurc, augrc, auroc)


def _columns(rows):
    return [np.array(column) for column in zip(*rows, strict=True)]


def _naive_aurc(correct, confidence):
    """As it is mostly written: sort, then count; ties stay in the order of the rows, NaN last."""
    order = np.argsort(-confidence, kind="stable")
    return float((np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)).mean())


def _bits(value):
    parts = value if isinstance(value, tuple) else (value,)
    return b"".join(np.asarray(part, dtype=np.float64).tobytes() for part in parts)


# --- the curve


def test_risk_at_every_reachable_coverage():
    """Scores 3, 2, 2, NaN: one of four answered without error, then three with one wrong.

    NaN never answers.
    """
    curve = risk_coverage(np.array([False, True, True, True]), np.array([2.0, 3.0, 2.0, NAN]))
    assert isinstance(curve, Curve)
    assert curve.at.tolist() == [3.0, 2.0]
    assert curve.x.tolist() == [0.25, 0.75]
    assert curve.y.tolist() == [0.0, 1 / 3]
    assert (curve.n.tolist(), curve.k.tolist()) == ([1, 3], [0, 1])


def test_no_scores_give_no_steps():
    """All missing: nothing is ever answered, no coverage is reached, no risk is kept."""
    assert [len(field) for field in risk_coverage([True], [NAN])] == [0] * 5
    assert np.isnan(risk_at_coverage([True], [NAN], 0.1))
    assert coverage_at_risk([True], [NAN], 1.0) == 0.0
    assert [len(end) for end in risk_band(risk_coverage([True], [NAN]), simultaneous=True)] == [
        0,
        0,
    ]


@LAWFUL
@given(rows=ROWS)
def test_each_step_is_the_count_at_its_threshold(rows):
    """Answered and wrong at a step are as `score >= threshold` counts, a step a score."""
    right, score = _columns(rows)
    curve = risk_coverage(right, score)
    assert len(curve.at) == len(set(score[~np.isnan(score)].tolist()))
    assert (np.diff(curve.at) < 0).all()
    for threshold, n, k in zip(curve.at, curve.n, curve.k, strict=True):
        assert n == (score >= threshold).sum()
        assert k == ((score >= threshold) & ~right).sum()
    np.testing.assert_array_equal(curve.x, curve.n / len(score))


# --- areas


def test_aurc_by_hand():
    """Right, wrong, right, wrong from the top: (0 + 1/2 + 1/3 + 2/4) / 4.

    Perfect is (0 + 0 + 1/3 + 1/2) / 4.
    """
    correct, confidence = [1, 0, 1, 0], [0.9, 0.8, 0.7, 0.6]
    assert aurc(correct, confidence) == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 4, abs=1e-15)
    assert eaurc(correct, confidence) == pytest.approx((1 / 2) / 4, abs=1e-15)


@settings(LAWFUL, max_examples=20)
@given(rows=st.lists(ROW, min_size=1, max_size=5))
def test_aurc_is_the_mean_over_all_orders_of_the_rows(rows):
    """The plain sort, averaged over every order the rows may stand in."""
    right, score = _columns(rows)
    orders = [list(order) for order in permutations(range(len(rows)))]
    mean = np.mean([_naive_aurc(right[order], score[order]) for order in orders])
    assert aurc(right, score) == pytest.approx(mean, abs=1e-12)


def test_many_resamples_are_one_by_one():
    """The batch form is the single one, row by row, with empty levels among them."""
    rng = np.random.default_rng(2)
    size = rng.integers(0, 3, (50, 12)) + np.eye(50, 12, dtype=np.int64)
    wrong = rng.binomial(size, 0.4)
    rows = [
        mean_risk(level[level > 0], lost[level > 0])
        for level, lost in zip(size, wrong, strict=True)
    ]
    np.testing.assert_allclose(mean_risk(size, wrong), rows, rtol=0, atol=1e-15)


def test_eaurc_of_the_perfect_and_of_the_worst_order():
    """0, and what the reverse costs.

    For many cases the perfect AURC nears r + (1 - r) log(1 - r).
    """
    right = np.arange(1_000) < 800
    perfect = np.arange(1_000.0)[::-1]
    assert eaurc(right, perfect) == 0.0
    assert eaurc(right, right) == 0.0
    assert eaurc(right, -perfect) > eaurc(right, np.zeros(1_000)) > 0.0
    assert aurc(right, perfect) == pytest.approx(0.2 + 0.8 * log(0.8), abs=2e-3)


def test_augrc_by_hand():
    """Wrong, then right: shares 0, 1/2, 1/2 at coverages 0, 1/2, 1, so 1/8 + 1/4.

    A tie is the line from 0 to 1/2.
    """
    assert augrc([False, True], [0.9, 0.1]) == 0.375
    assert augrc([True, False], [0.9, 0.1]) == 0.125
    assert augrc([True, False], [0.5, 0.5]) == 0.25


def test_prr_by_hand():
    """The first of four, the only wrong case, is rejected first, last, or in a tie."""
    right = [False, True, True, True]
    assert (
        prr(right, [0.1, 0.2, 0.3, 0.4]) == prr(right, [0.1, 0.2, 0.3, 0.4], max_rejection=0.5) == 1
    )
    assert prr(right, [0.5, 0.5, 0.5, 0.5]) == 0.0
    # error rates of 4 and 3 cases: 1/4 and 1/3 in the place of 1/4 and 0
    assert prr(right, [0.4, 0.3, 0.2, 0.1], max_rejection=0.5) == pytest.approx(-1 / 3)
    assert np.isnan(prr([True, True], [0.1, 0.2]))
    with pytest.raises(ValueError, match=r"max_rejection.*1\.5"):
        prr(right, right, max_rejection=1.5)


@LAWFUL
@given(rows=ROWS)
def test_prr_is_the_share_of_the_gain_of_the_perfect_order(rows):
    """(risk - AURC) / (risk - AURC of the perfect order), where both kinds are there."""
    right, score = _columns(rows)
    risk = 1 - right.mean()
    if 0 < risk < 1:
        gain = risk - aurc(right, score)
        assert prr(right, score) == pytest.approx(gain / (gain + eaurc(right, score)))


@LAWFUL
@given(rows=ROWS)
def test_augrc_is_what_accuracy_and_auroc_say(rows):
    """(1 - AUROC) a (1 - a) + (1 - a)² / 2, and the drawn curve's area if no score is missing."""
    right, score = _columns(rows)
    accuracy, area = right.mean(), auroc(right, score)
    rank = 0.0 if np.isnan(area) else (1 - area) * accuracy * (1 - accuracy)
    assert augrc(right, score) == pytest.approx(rank + (1 - accuracy) ** 2 / 2, abs=1e-14)
    curve = risk_coverage(right, np.where(np.isnan(score), -1.0, score))
    trapezoid = np.trapezoid(np.append(0, curve.k) / len(right), np.append(0, curve.x))
    assert augrc(right, score) == pytest.approx(trapezoid, abs=1e-14)


# --- AUROC


def test_auroc_by_hand():
    """Right at 0.9 and 0.4 against wrong at 0.4 and 0.1: won 1, 1, half, 1 of four pairs."""
    assert auroc([1, 1, 0, 0], [0.9, 0.4, 0.4, 0.1]) == 0.875


@LAWFUL
@given(rows=ROWS)
def test_auroc_is_that_of_scikit_learn(rows):
    """Missing ranks below all; one kind alone has none."""
    metrics = pytest.importorskip("sklearn.metrics")
    right, score = _columns(rows)
    if right.all() or not right.any():
        assert np.isnan(auroc(right, score))
        assert np.isnan(auroc_interval(right, score)).all()
    else:
        peer = metrics.roc_auc_score(right, np.where(np.isnan(score), -1.0, score))
        assert auroc(right, score) == pytest.approx(peer, abs=1e-12)


def test_delong_by_pairs():
    """The variance from all pairs, one by one, on the logit scale."""
    rng = np.random.default_rng(3)
    right, score = rng.random(60) < 0.6, rng.integers(0, 8, 60) / 8
    score = np.clip(score + 0.25 * right, 0, 1)
    pairs = (score[right][:, None] > score[~right]) + 0.5 * (score[right][:, None] == score[~right])
    area = pairs.mean()
    spread = (
        pairs.mean(axis=1).var(ddof=1) / right.sum()
        + pairs.mean(axis=0).var(ddof=1) / (~right).sum()
    )
    reach = 1.959963984540054 * np.sqrt(spread) / (area * (1 - area))
    ends = 1 / (1 + np.exp(-(log(area / (1 - area)) + reach * np.array([-1.0, 1.0]))))
    np.testing.assert_allclose(auroc_interval(right, score), ends, rtol=1e-12)


def test_auroc_intervals_where_delong_has_no_width():
    """Perfect: 0.025 ** (1 / m) for m pairs, mirrored at 0.

    All equal, or one of a kind: Hoeffding's, clipped.
    """
    right = np.arange(30) < 10
    low, high = auroc_interval(right, right)
    assert (float(low), float(high)) == (pytest.approx(0.025 ** (1 / 10)), 1.0)
    assert auroc_interval(right, ~right) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))
    half = float(np.sqrt(log(40) / 20))
    assert auroc_interval(right, np.zeros(30)) == (
        pytest.approx(0.5 - half),
        pytest.approx(0.5 + half),
    )
    assert auroc_interval([1, 0, 0], [0.5, 0.2, 0.7]) == (0.0, 1.0)


# --- one coverage, one risk


def test_risk_at_coverage_takes_the_next_that_is_reachable():
    """Reachable are 1/4, 3/4 and 1 with risks 0, 1/3 and 1/2; the edge itself counts."""
    correct, confidence = [1, 1, 0, 0], [0.9, 0.7, 0.7, 0.1]
    coverages = (0.01, 0.25, 0.2500001, 0.75, 0.76, 1.0)
    assert [risk_at_coverage(correct, confidence, c) for c in coverages] == [
        0.0,
        0.0,
        1 / 3,
        1 / 3,
        0.5,
        0.5,
    ]
    assert np.isnan(risk_at_coverage(correct, [0.9, 0.7, NAN, NAN], 0.51))


def test_coverage_at_risk_takes_the_largest():
    """Risks 1, 1/2, 1/3, 1/2 in turn: 0.4 is kept at 3/4 though not on the way there.

    Below 1/3 never.
    """
    correct, confidence = [0, 1, 1, 0], [0.9, 0.7, 0.5, 0.1]
    assert [coverage_at_risk(correct, confidence, r) for r in (0.0, 0.33, 1 / 3, 0.4, 0.5)] == [
        0,
        0,
        0.75,
        0.75,
        1,
    ]


# --- bands


def test_a_pointwise_band_is_the_interval_of_each_step():
    """0 of 10, then 5 of 20."""
    curve = risk_coverage([1] * 25 + [0] * 5, [3] * 10 + [2] * 10 + [1] * 10)
    assert curve.k.tolist() == [0, 0, 5]
    np.testing.assert_array_equal(risk_band(curve, 0.9), clopper_pearson(curve.k, curve.n, 0.9))


def test_a_short_simultaneous_band_is_bonferroni():
    """Three steps at 95 % are three intervals at 1 - 0.05 / 3."""
    curve = risk_coverage([1] * 25 + [0] * 5, [3] * 10 + [2] * 10 + [1] * 10)
    np.testing.assert_array_equal(
        risk_band(curve, simultaneous=True), clopper_pearson(curve.k, curve.n, 1 - 0.05 / 3)
    )


def test_a_long_band_is_bonferroni_at_its_places_and_what_these_imply_between():
    """Places are read from the counts answered alone, at most 64.

    Each bound is the best of all pairs, one by one.
    """
    rng = np.random.default_rng(5)
    score = rng.random(300)
    curve = risk_coverage(score > rng.random(300), score)
    places = np.unique(
        np.searchsorted(curve.n, 300 * (np.arange(1, BAND_STEPS + 1) / BAND_STEPS) ** 2)
    )
    assert places[-1] == 299
    assert 40 < len(places) <= BAND_STEPS
    low, high = risk_band(curve, simultaneous=True)
    ends = clopper_pearson(curve.k[places], curve.n[places], 1 - 0.05 / len(places))
    np.testing.assert_array_equal((low[places], high[places]), ends)
    assert (low <= curve.y).all()
    assert (curve.y <= high).all()
    for step in sorted(set(range(300)) - set(places.tolist())):
        more = [0.0, *_bounds(places, ends.low, step, lower=True)]
        less = [float(step + 1), *_bounds(places, ends.high, step, lower=False)]
        assert low[step] == pytest.approx(max(more) / (step + 1), abs=1e-12)
        assert high[step] == pytest.approx(min(less) / (step + 1), abs=1e-12)


def _bounds(places, ends, step, *, lower):
    """What each place says of expected errors among the first step + 1 cases, one case per step."""
    out = []
    for place, end in zip(places.tolist(), ends, strict=True):
        errors, apart = (place + 1) * float(end), step - place
        if lower:
            out.append(errors if apart > 0 else errors + apart)
        else:
            out.append(errors + apart if apart > 0 else errors)
    return out


# --- the difference of two signals


def test_a_difference_of_equal_signals_is_nothing():
    """No width, and neither is better; a strictly increasing change is no change."""
    right, score = np.arange(40) % 3 > 0, np.arange(40.0)
    assert aurc_difference(right, score, score**3, resamples=50, rng=np.random.default_rng(0)) == (
        0,
        0,
        0,
        0.5,
    )


def test_a_difference_is_that_of_the_areas():
    """Of the cases as they are; turned round it has the other sign.

    Answers of each side may differ.
    """
    rng = np.random.default_rng(8)
    right, first, second = rng.random(200) < 0.7, rng.random(200), rng.random(200)
    first += right
    result = aurc_difference(right, first, second, rng=np.random.default_rng(9))
    assert result.value == pytest.approx(aurc(right, first) - aurc(right, second), abs=1e-14)
    assert result.low < result.value < result.high < 0
    assert result.p_better == 1.0
    turned = aurc_difference(right, second, first, rng=np.random.default_rng(9))
    assert (turned.value, turned.p_better) == (pytest.approx(-result.value, abs=1e-14), 0.0)
    each = aurc_difference(
        [right, ~right], first, second, resamples=10, rng=np.random.default_rng(9)
    )
    assert each.value == pytest.approx(aurc(right, first) - aurc(~right, second), abs=1e-14)


# --- order of rows, degenerate inputs, errors


@LAWFUL
@given(
    rows=st.lists(
        st.tuples(*[st.one_of(column) for column in (st.booleans(), ROW, ROW)]),
        min_size=1,
        max_size=14,
    ),
    seed=st.integers(0, 99),
)
def test_the_order_of_rows_changes_no_bit(rows, seed):
    """Every number of this module, with ties, zeros of both signs and missing scores."""
    right, first, second = _columns([(right, row[1], two[1]) for right, row, two in rows])
    order = np.random.default_rng(seed).permutation(len(rows))
    bits = []
    for place in (np.arange(len(rows)), order):
        a, b, c = right[place], first[place], second[place]
        numbers: list[object] = [measure(a, b) for measure in MEASURES]
        numbers += [risk_coverage(a, b), auroc_interval(a, b)]
        numbers += [risk_at_coverage(a, b, 0.5), coverage_at_risk(a, b, 0.3)]
        numbers += [risk_band(risk_coverage(a, b), simultaneous=True)]
        numbers += [aurc_difference(a, b, c, resamples=5, rng=np.random.default_rng(seed))]
        bits.append([_bits(number) for number in numbers])
    assert bits[0] == bits[1]


def test_what_cannot_be_counted_is_refused():
    """No cases, other shapes, arguments the wrong way round, a judgement that is missing."""
    cases: list[tuple[Any, Any, str]] = [
        ([], [], r"one case at least, got shapes \(0,\)"),
        ([1, 0], [0.5], r"\[Q\] each, .* got shapes \(2,\) and \(1,\)"),
        ([[1, 0]], [[0.5, 0.2]], r"\[Q\] each"),
        ([0.9, 1.0], [1, 0], "boolean or 0 and 1, got 0.9 at position .* before confidence"),
        ([1.0, NAN], [0.5, 0.2], "boolean or 0 and 1, got nan"),
    ]
    for measure in (*MEASURES, risk_coverage, auroc_interval):
        for correct, confidence, rule in cases:
            with pytest.raises(ValueError, match=rule):
                measure(correct, confidence)


def test_ranges_are_refused_with_their_rule():
    """Coverage, risk, level, resamples and a third row."""
    correct, score, rng = [1, 0], [0.5, 0.2], np.random.default_rng(0)
    for coverage in (0.0, 1.1, 80, NAN):
        with pytest.raises(ValueError, match=r"coverage must be in \(0, 1\]"):
            risk_at_coverage(correct, score, coverage)
    for risk in (-0.1, 10, NAN):
        with pytest.raises(ValueError, match=r"risk must be in \[0, 1\]"):
            coverage_at_risk(correct, score, risk)
    curve = risk_coverage(correct, score)
    for level in (0.0, 1.0, NAN):
        for call in (
            lambda level: risk_band(curve, level, simultaneous=True),
            lambda level: auroc_interval(correct, score, level),
            lambda level: aurc_difference(correct, score, score, level=level, rng=rng),
        ):
            with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got"):
                call(level)
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        aurc_difference(correct, score, score, resamples=0, rng=rng)
    with pytest.raises(ValueError, match=r"\[Q\] or \[2, Q\]"):
        aurc_difference([correct] * 3, score, score, rng=rng)


# --- three-way outcomes


def test_outcomes_are_counted_by_label_and_decision():
    """Rows are labels, columns decisions; no cases are zeros."""
    label = [Status.ok, Status.ok, Status.refuse, Status.ambiguous, Status.ambiguous]
    status = [Status.ok, Status.ambiguous, Status.ok, Status.refuse, Status.ambiguous]
    assert outcome_table(label, status).tolist() == [[1, 0, 1], [1, 0, 0], [0, 1, 1]]
    assert outcome_table([], []).tolist() == [[0] * 3] * 3
    assert outcome_table(np.zeros(2, dtype=np.int8), np.zeros(2, dtype=np.uint8)).dtype == np.int64


@pytest.mark.parametrize("codes", [["ok"], [3], [-1], [0.0], [True], [[0]], [NAN]])
def test_other_codes_are_refused(codes):
    """Words, places beyond the three and fractions."""
    with pytest.raises(ValueError, match=r"status must be codes of Status.*Status\[name\]"):
        outcome_table([0], codes)
    with pytest.raises(ValueError, match=r"label and status must be \[Q\] each"):
        outcome_table([0, 1], [0])


def test_outcome_intervals_are_shares_of_the_row():
    """10 in a row: 8 and 2 of 10; a row without cases has none; tables may be stacked."""
    counts = np.array([[8, 2, 0], [0, 5, 0], [0, 0, 0]])
    low, high = outcome_intervals(counts, 0.9)
    np.testing.assert_array_equal((low[0], high[0]), clopper_pearson(counts[0], 10, 0.9))
    assert np.isnan(low[2]).all()
    assert outcome_intervals(np.stack([counts, counts])).high.shape == (2, 3, 3)
    with pytest.raises(ValueError, match=r"counts must be \[..., 3, 3\]"):
        outcome_intervals(counts[:2])
