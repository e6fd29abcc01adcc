from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab import metrics
from raglab.metrics import binomial_p, clopper_pearson, contributions, upper_bound
from raglab.metrics.robustness import (
    AnsweredCases,
    answers,
    label_noise_bound,
    labels_to_break,
    quantile_map,
    traffic_rates,
)
from raglab.replay import decide, sweep
from worlds import random_policies, random_trace

NAN = float("nan")


def test_wrong_labels_by_hand() -> None:
    """No error in 230 certifies 1 % at 90 %; one wrong label and it is 1.68 %."""
    found = label_noise_bound(0, 230, most=2)
    assert found.labels.tolist() == found.k.tolist() == [0, 1, 2]
    assert found.bound[0] == pytest.approx(1 - 0.1 ** (1 / 230))
    assert found.bound[0] < 0.01 < found.bound[1] == pytest.approx(0.01680, abs=1e-5)
    assert labels_to_break(0, 230, alpha=0.01) == 1


def test_no_more_labels_are_wrong_than_cases_are_right() -> None:
    """3 errors in 5: two right cases are left, and with both wrong the bound is 1."""
    found = label_noise_bound(3, 5)
    assert found.k.tolist() == [3, 4, 5]
    assert found.bound[-1] == 1.0
    assert label_noise_bound(1, 1).bound.tolist() == [1.0]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    st.integers(1, 300),
    st.data(),
    st.sampled_from([0.01, 0.05, 0.1, 0.3]),
    st.sampled_from([0.05, 0.1, 0.2]),
)
def test_the_fewest_labels_break_and_one_fewer_does_not(
    n: int, data: Any, alpha: float, delta: float
) -> None:
    """At j the bound is above alpha, at j − 1 it is not; the exact test agrees."""
    k = data.draw(st.integers(0, n))
    j = labels_to_break(k, n, alpha, delta)
    bound = label_noise_bound(k, n, delta, most=n).bound
    assert bound[j] > alpha
    assert (np.diff(bound) > 0).all()
    assert float(binomial_p(k + j, n, alpha)) > delta - 1e-12
    assert j == 0 or (
        bound[j - 1] <= alpha and float(binomial_p(k + j - 1, n, alpha)) <= delta + 1e-12
    )


def test_answers_by_label() -> None:
    """Answered: 2 right and 1 wrong of ok, 1 of refuse, none of ambiguous."""
    status = np.array([0, 0, 0, 1, 0, 1, 2])
    label = np.array([0, 0, 0, 0, 1, 1, 2])
    right = np.array([True, False, True, False, False, True, True])
    found, labels = answers(status, label, right)
    assert found == AnsweredCases(right=2, wrong=1, refuse=1, ambiguous=0)
    assert labels.tolist() == [4, 2, 1]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 5000))
def test_at_the_shares_of_the_set_nothing_moves(seed: int) -> None:
    """Under the labelled set's own shares rates are those of the sweep, each inside its bounds."""
    trace, one = random_trace(seed, 20), random_policies(seed, 1)[0]
    said = decide(trace, one)
    counts, labels = answers(said.status, said.tables.evidence.label, said.right)
    row = sweep(trace, [one]).iloc[0]
    found = traffic_rates(counts, labels, labels / labels.sum())
    assert found.coverage == pytest.approx(row["coverage"])
    assert found.hallucination_rate == pytest.approx(row["hallucination_rate"], nan_ok=True)
    assert found.coverage_low <= found.coverage <= found.coverage_high
    assert not found.hallucination_rate > found.bound + 1e-12


def test_false_refusals_do_not_move() -> None:
    """Twice as many unanswerable questions.

    More hallucinations, the same share of the answerable refused.
    """
    labels, status = np.repeat([0, 1], [50, 50]), np.repeat([0, 1, 0, 1], [40, 10, 10, 40])
    right = (status == labels) | (labels == 1)
    per_case = contributions(np.arange(3, dtype=np.int8))[status, labels, right.astype(int)]
    for times in (1, 2):
        drawn = np.concatenate([np.arange(50), np.tile(np.arange(50, 100), times)])
        counts, of_label = per_case[drawn].sum(axis=0), np.bincount(labels[drawn], minlength=3)
        rates = metrics.rates(counts, of_label)
        found = traffic_rates(AnsweredCases(40, 0, 10, 0), [50, 50, 0], of_label / of_label.sum())
        assert rates[0] == 0.2
        assert found.hallucination_rate == pytest.approx(rates[1])


def test_traffic_of_one_label() -> None:
    """All answerable: the plain exact bound; none answerable: every answer is wrong.

    None answered: no rate.
    """
    counts, labels = AnsweredCases(40, 2, 3, 1), [50, 20, 10]
    found = traffic_rates(counts, labels, {"ok": 1.0})
    assert found.hallucination_rate == pytest.approx(2 / 42)
    assert found.bound == float(upper_bound(2, 42))
    assert found.coverage_low == float(clopper_pearson(42, 50, 0.8).low)
    none_answerable = traffic_rates(counts, labels, [0.0, 0.5, 0.5])
    assert (none_answerable.hallucination_rate, none_answerable.bound) == (1.0, 1.0)
    silent = traffic_rates(AnsweredCases(0, 0, 0, 0), labels, [0.5, 0.3, 0.2])
    assert np.isnan(silent.hallucination_rate)
    assert silent.bound == 1.0
    assert silent.coverage == silent.coverage_low == 0.0


def test_the_bound_by_hand() -> None:
    """Two labels with traffic: three shares matter, each at delta / 3.

    For coverage two, each at delta / 2.
    """
    found = traffic_rates(
        AnsweredCases(70, 6, 2, 9), [100, 50, 20], {"ok": 0.8, "refuse": 0.2}, delta=0.12
    )
    least = 0.8 * clopper_pearson(76, 100, 1 - 2 * 0.04).low
    most = 0.2 * upper_bound(2, 50, 0.04)
    assert found.bound == pytest.approx((least * upper_bound(6, 76, 0.04) + most) / (least + most))
    assert found.hallucination_rate == pytest.approx(
        (0.8 * 0.06 + 0.2 * 0.04) / (0.8 * 0.76 + 0.2 * 0.04)
    )
    assert found.coverage_high == pytest.approx(
        0.8 * upper_bound(76, 100, 0.06) + 0.2 * upper_bound(2, 50, 0.06)
    )


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 10),
)
def test_the_bound_is_monotone(
    right: int, wrong: int, refuse: int, ambiguous: int, tenths: int
) -> None:
    """A right answer for a wrong one never raises it, one more due for refusal never lowers it."""
    labels, shares = [61, 31, 31], [1 - tenths / 10, tenths / 20, tenths / 20]
    one = traffic_rates(AnsweredCases(right, wrong, refuse, ambiguous), labels, shares)
    better = traffic_rates(
        AnsweredCases(right + 1, max(0, wrong - 1), refuse, ambiguous), labels, shares
    )
    worse = traffic_rates(AnsweredCases(right, wrong, refuse + 1, ambiguous + 1), labels, shares)
    assert better.bound <= one.bound + 1e-12
    assert worse.bound >= one.bound - 1e-12
    assert 0.0 <= one.bound <= 1.0


@pytest.mark.parametrize("shares", [(0.9, 0.05, 0.05), (1.0, 0.0, 0.0), (0.3, 0.5, 0.2)])
def test_the_bounds_hold(shares: tuple[float, float, float]) -> None:
    """400 labelled sets of 120 cases.

    Each bound is broken in at most delta of them, up to 3 standard errors.
    """
    rng, delta, size = np.random.default_rng(0), 0.1, 400
    answered, wrong = np.array([0.8, 0.1, 0.2]), 0.1
    coverage = float(np.dot(shares, answered))
    rate = 1 - shares[0] * answered[0] * (1 - wrong) / coverage
    broken = np.zeros(3)
    for _ in range(size):
        ok, refuse, ambiguous = rng.binomial([60, 30, 30], answered)
        bad = rng.binomial(ok, wrong)
        found = traffic_rates(
            AnsweredCases(ok - bad, bad, refuse, ambiguous), [60, 30, 30], shares, delta
        )
        broken += [
            found.bound < rate,
            found.coverage_low > coverage,
            found.coverage_high < coverage,
        ]
    assert (broken / size <= delta + 3 * np.sqrt(delta * (1 - delta) / size)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: label_noise_bound(0, 0), "n must be at least 1"),
        (lambda: label_noise_bound(3, 2), "k must be between 0 and n, got 3 of 2"),
        (lambda: label_noise_bound(0, 2, most=-1), "most must be at least 0"),
        (lambda: label_noise_bound(0, 2, delta=0.5), "delta must be in"),
        (lambda: labels_to_break(0, 0, 0.1), "n must be at least 1"),
        (lambda: labels_to_break(0, 9, 1.0), "alpha must be in"),
        (lambda: traffic_rates((1, 0, 0, 0), (1, 1, 1), (0.5, 0.5, 0.5)), "sum to 1"),
        (lambda: traffic_rates((1, 0, 0, 0), (1, 1, 1), (0.5, 0.5)), "must be three"),
        (lambda: traffic_rates((1, 0, 0, 0), (1, 1, 1), (NAN, 0.5, 0.5)), "sum to 1"),
        (lambda: traffic_rates((1, 0, 0, 0), (1, 1, 1), {"absent": 1.0}), "got 'absent'"),
        (
            lambda: traffic_rates((1, 0, 0, 0), (1, 0, 1), {"ok": 0.5, "refuse": 0.5}),
            "none of refuse at a share of 0.5",
        ),
        (
            lambda: traffic_rates((1, 1, 0, 0), (1, 1, 1), {"ok": 1.0}),
            r"got \(1, 1, 0, 0\) of \[1, 1, 1\]",
        ),
        (lambda: traffic_rates((-1, 1, 0, 0), (1, 1, 1), {"ok": 1.0}), "between 0 and those"),
        (
            lambda: traffic_rates((1, 0, 0, 0), (1, 1, 1), {"ok": 1.0}, delta=0.0),
            "delta must be in",
        ),
        (lambda: quantile_map(NAN, np.ones(2), np.ones(2)), "threshold must be a number"),
        (lambda: quantile_map(0.5, np.ones(2), np.ones(3)), "same queries"),
        (lambda: quantile_map(0.5, np.full(2, NAN), np.full(2, NAN)), "at least one score"),
        (lambda: quantile_map(0.5, np.empty(0), np.empty(0)), "at least one score"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, message: str) -> None:
    """A message says the rule and what came."""
    with pytest.raises(ValueError, match=message):
        call()


def test_a_threshold_moves_to_another_embedder() -> None:
    """0.7 answers 2 of 4, so does 40; between levels the next one up decides."""
    source, target = np.array([0.5, 0.6, 0.7, 0.8]), np.array([40.0, 20.0, 50.0, 30.0])
    assert [quantile_map(at, source, target) for at in (-1.0, 0.7, 0.65, 0.8)] == [
        20.0,
        40.0,
        40.0,
        50.0,
    ]
    assert quantile_map(40.0, target, source) == 0.7
    assert quantile_map(0.9, source, target) == np.nextafter(50.0, 60.0)
    assert quantile_map(-np.inf, source, target) == 20.0


def test_ties_and_missing_scores_are_counted_as_they_fall() -> None:
    """Two of four are answered; the target offers one or three: the stricter.

    NaN is never answered.
    """
    assert quantile_map(0.7, np.array([0.5, 0.6, 0.7, 0.8]), np.array([1.0, 2.0, 2.0, 3.0])) == 3.0
    assert quantile_map(0.7, np.array([NAN, NAN, 0.7, 0.8]), np.array([1.0, 2.0, 3.0, NAN])) == 2.0
    assert quantile_map(0.7, np.array([0.7, 0.7, 0.7, 0.1]), np.array([5.0, 5.0, 5.0, 5.0])) == 5.0


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
def test_the_nearest_share_wins_and_order_is_kept(
    seed: int,
    size: int,
    missing: bool,
) -> None:
    """No level answers nearer to the wanted share; monotone; the order of queries is irrelevant.

    There and back.
    """
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 6, size) / 4, rng.integers(0, 6, size) * 10.0
    if missing and size > 1:
        source[rng.integers(size)], target[rng.integers(size)] = NAN, NAN
    rows = rng.permutation(size)
    mapped = []
    for threshold in np.arange(-1, 14) / 8:
        at = quantile_map(threshold, source, target)
        assert at == quantile_map(threshold, source[rows], target[np.roll(rows, 1)])
        wanted, given_ = (source >= threshold).sum(), (target >= at).sum()
        levels = [*target[~np.isnan(target)], np.inf]
        away = {level: abs(int((target >= level).sum()) - int(wanted)) for level in levels}
        assert abs(int(given_) - int(wanted)) == min(away.values())
        assert given_ == min(
            (target >= level).sum() for level in levels if away[level] == min(away.values())
        )
        mapped.append(at)
    assert mapped == sorted(mapped)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_there_and_back_without_ties(seed: int, size: int) -> None:
    """Without ties both ways answer equally many, and back comes the lowest answered score."""
    rng = np.random.default_rng(seed)
    source, target = rng.permutation(size) / 4, rng.permutation(size) * 3.0
    for threshold in source - 0.1:
        at = quantile_map(threshold, source, target)
        assert (target >= at).sum() == (source >= threshold).sum()
        assert quantile_map(at, target, source) == source[source >= threshold].min()
