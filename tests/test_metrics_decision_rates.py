"""Rates with intervals, ranking measures and paired tests (raglab.metrics)."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.metrics import (
    COUNTS,
    N_CELLS,
    PLAIN_CELLS,
    RATES,
    RIGHT_CELL,
    UNDECIDED_CELLS,
    WRONG_CELL,
    clopper_pearson,
    contributions,
    cost_interval,
    denominators,
    expected_cost,
    hit_rate,
    label_counts,
    paired_cost,
    paired_rates,
    rate_columns,
    rate_counts,
    rates,
    settled_cells,
)
from raglab.values import Status

LAWFUL = settings(deadline=None, derandomize=True, max_examples=40)
STATUSES = np.array([Status.ok, Status.refuse, Status.ambiguous], dtype=np.int8)


def _adds(said, label, *, right):
    row = contributions(STATUSES)[said, label, int(right)]
    return {name for name, n in zip(COUNTS, row.tolist(), strict=True) if n}


@pytest.mark.parametrize(
    ("said", "label", "right", "adds"),
    [
        (Status.ok, Status.ok, True, {"answered", "passed"}),
        (Status.ok, Status.ok, False, {"answered", "wrong"}),
        (Status.ok, Status.refuse, True, {"answered", "wrong"}),
        (Status.ok, Status.ambiguous, True, {"answered", "wrong", "missed_ambiguity"}),
        (Status.refuse, Status.ok, True, {"refused_ok"}),
        (Status.refuse, Status.refuse, False, {"passed"}),
        (Status.refuse, Status.ambiguous, True, {"missed_ambiguity"}),
        (Status.ambiguous, Status.ok, True, {"over_ask"}),
        (Status.ambiguous, Status.refuse, True, {"over_ask"}),
        (Status.ambiguous, Status.ambiguous, True, {"passed"}),
        (Status.ambiguous, Status.ambiguous, False, set()),
    ],
)
def test_what_a_decision_adds_to_the_counts(*, said, label, right, adds):
    """Rules S6.2 and S6.3, outcome by label by whether the expected sources were found."""
    assert _adds(said, label, right=right) == adds


def test_rates_of_ten_cases():
    """Of 5 ok, 3 refuse, 2 ambiguous.

    1 of 5 refused, 2 of 4 wrong, 1 of 2 missed, 2 of 8 over-asked, 4 and 5 of 10.
    """
    counts, labels = np.array([1, 2, 1, 2, 4, 5]), np.array([5, 3, 2])
    found = dict(zip(RATES, rates(counts, labels).tolist(), strict=True))
    assert found == {
        "false_refusal_rate": 0.2,
        "hallucination_rate": 0.5,
        "missed_ambiguity_rate": 0.5,
        "over_ask_rate": 0.25,
        "coverage": 0.4,
        "pass_rate": 0.5,
    }
    assert denominators(counts, labels).tolist() == [5, 4, 2, 8, 10, 10]


def test_nothing_of_nothing_meets_no_target():
    """Who answers nothing has no hallucination rate."""
    nothing = np.zeros(len(RATES), dtype=np.int64)
    refused = np.where(np.array(RATES) == "false_refusal_rate", 5, nothing)
    value = rates(refused, np.array([5, 0, 0]))
    assert np.isnan(value[RATES.index("hallucination_rate")])
    assert np.isnan(rates(nothing, np.zeros(3, dtype=np.int64))).all()


def test_an_interval_of_nothing_is_missing():
    """0 of 0 has no interval."""
    low, high = clopper_pearson(0, 0)
    assert np.isnan(low)
    assert np.isnan(high)


@LAWFUL
@given(n=st.integers(1, 25), data=st.data(), level=st.sampled_from([0.8, 0.9, 0.95]))
def test_the_ends_are_where_the_tails_are_half_of_the_rest(n, data, level):
    """By the binomial sum itself: P(X >= k | low) and P(X <= k | high) are (1 - level) / 2."""
    k = data.draw(st.integers(0, n))
    low, high = (float(end) for end in clopper_pearson(k, n, level))
    assert low <= k / n <= high

    def at_most(k, p):
        return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))

    if k > 0:
        assert 1.0 - at_most(k - 1, low) == pytest.approx((1.0 - level) / 2.0, rel=1e-8)
    if k < n:
        assert at_most(k, high) == pytest.approx((1.0 - level) / 2.0, rel=1e-8)


def test_hit_rate_counts_queries():
    """One of two queries has a relevant hit among the first two; no queries have no rate."""
    relevant = np.array([[False, True, False], [False, False, True]])
    assert [hit_rate(relevant, k) for k in (1, 2, 3)] == [0.0, 0.5, 1.0]
    assert np.isnan(hit_rate(np.zeros((0, 3), dtype=bool), 1))


@LAWFUL
@given(st.lists(st.integers(0, 5), min_size=N_CELLS, max_size=N_CELLS))
def test_undecided_answers_count_as_wrong_in_rates_and_widen_their_intervals(
    counts,
):
    """From all of them right to all of them wrong (rule S6.3)."""
    cells = np.array([counts])
    columns = rate_columns(cells)
    assert columns["undecided"].tolist() == [sum(counts[PLAIN_CELLS:])]
    worst, best = (rate_columns(settled_cells(cells, cell)) for cell in (WRONG_CELL, RIGHT_CELL))
    for rate in RATES:
        assert columns[f"{rate}_k"] == worst[f"{rate}_k"]
        ends = [side[f"{rate}{end}"][0] for side in (worst, best) for end in ("_low", "_high")]
        pair = [columns[f"{rate}_low"][0], columns[f"{rate}_high"][0]]
        assert np.array_equal(pair, [min(ends), max(ends)], equal_nan=True)
    low, high = cost_interval(cells)
    ends = [
        end[0]
        for side in (WRONG_CELL, RIGHT_CELL)
        for end in cost_interval(settled_cells(cells, side))
    ]
    assert np.array_equal([low[0], high[0]], [min(ends), max(ends)], equal_nan=True)
    assert np.array_equal(
        expected_cost(cells), expected_cost(settled_cells(cells, WRONG_CELL)), equal_nan=True
    )


CELL = st.sampled_from([0, 1, 2, 6, 12, *UNDECIDED_CELLS])


@LAWFUL
@given(st.lists(st.tuples(CELL, CELL), min_size=2, max_size=12))
def test_undecided_answers_count_against_a_difference(pairs):
    """Whatever the truth, as long as the answer that both give has one, its interval is inside."""
    first, second = np.array(pairs).T
    is_same = (first == second) & (first == UNDECIDED_CELLS[0])
    claim, rates_claim = paired_cost(first, second), paired_rates(first, second)
    opened = [cells >= PLAIN_CELLS for cells in (first, second)]
    for a, b in product((WRONG_CELL, RIGHT_CELL), repeat=2):
        truth = [
            np.where(mask, cell, cells)
            for mask, cell, cells in zip(opened, (a, b), (first, second), strict=True)
        ]
        truth[1] = np.where(is_same, truth[0], truth[1])
        side = paired_cost(*truth)
        if a != b:
            assert claim.low <= side.low + 1e-12
            assert claim.high >= side.high - 1e-12
        assert claim.low <= side.difference <= claim.high
        if not claim.low <= 0.0 <= claim.high:
            assert np.sign(side.difference) == np.sign(claim.low)
        assert np.all(
            (rates_claim.low <= paired_rates(*truth).difference + 1e-12) | np.isnan(rates_claim.low)
        )


def test_paired_intervals_hold_what_is_true_as_often_as_they_say():
    """Of 400 samples of 120 cases, 93 % or more of intervals hold the population's difference."""
    rng = np.random.default_rng(1)
    # Cells of both policies on one case share its label; the second mostly decides as the first.
    first = rng.integers(0, 18, 60_000)
    moved = rng.random(60_000) < 0.3
    second = np.where(moved, first % 6 + 6 * rng.integers(0, 3, 60_000), first)
    true = paired_rates(first, second).difference
    held = np.zeros(len(RATES))
    for _ in range(400):
        rows = rng.integers(0, 60_000, 120)
        found = paired_rates(first[rows], second[rows])
        held += (found.low <= true) & (true <= found.high)
        assert (found.low <= found.difference).all()
        assert (found.difference <= found.high).all()
    assert (held / 400 >= 0.93).all()


def test_paired_rates_count_as_each_policy_alone():
    """K and n are those of either.

    The cases that count under one alone are those that a paired test would see.
    """
    rng = np.random.default_rng(2)
    first = rng.integers(0, 18, 50)
    second = first % 6 + 6 * rng.integers(0, 3, 50)
    found = paired_rates(first, second)
    every = np.eye(18, dtype=np.int64)
    for place, cells in enumerate((first, second)):
        counted = every[cells].sum(axis=0)
        assert (found.k[place] == rate_counts(counted)).all()
        assert (found.n[place] == denominators(rate_counts(counted), label_counts(counted))).all()
    at = RATES.index("pass_rate")
    passed = [rate_counts(every[cells])[:, at] > 0 for cells in (first, second)]
    one, two = passed
    assert (found.only_first[at], found.only_second[at]) == ((one & ~two).sum(), (two & ~one).sum())


def test_two_policies_in_the_other_order_have_the_opposite_interval():
    """Rates of 3 and 7 wrong answers of 20, in pairs."""
    wrong, right = WRONG_CELL, RIGHT_CELL
    first = np.where(np.arange(20) < 3, wrong, right)
    second = np.where(np.arange(20) % 3 == 0, wrong, right)
    forth, back = paired_rates(first, second), paired_rates(second, first)
    np.testing.assert_allclose(forth.low, -back.high)
    np.testing.assert_allclose(forth.high, -back.low)
    assert np.nanmax(np.abs(forth.high + forth.low)) > 0.0
