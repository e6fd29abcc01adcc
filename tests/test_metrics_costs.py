"""Costs: one matrix by label and outcome, decisions' cost by it, and pass rate as its default."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.metrics import (
    DEFAULT_COSTS,
    DISTINCT_CELL,
    N_CELLS,
    OUTCOMES,
    PLAIN_CELLS,
    RATES,
    cell_costs,
    clopper_pearson,
    cost_interval,
    cost_matrix,
    expected_cost,
    label_counts,
    rate_counts,
    rates,
    stated_costs,
)
from raglab.metrics.intervals import t_quantile
from raglab.replay import decide, steps, sweep
from raglab.values import Status
from worlds import policy, random_policies, random_trace

OWN = {"ok": {"refused": 0.5, "asked": 0.1, "asked_wrong": 0.2}, "refuse": {"answered_wrong": 10}}
PASS = RATES.index("pass_rate")


def _cells(*rows):
    """Cells of rows (decision, label, sources found, cases)."""
    out = np.zeros((3, 3, 2), dtype=np.int64)
    for status, label, found, count in rows:
        out[Status[status], Status[label], int(found)] += count
    return out


def test_the_default_matrix():
    """A right answer to ok, a right refusal and a right question cost nothing, all else 1."""
    assert OUTCOMES == ("answered_right", "answered_wrong", "refused", "asked_right", "asked_wrong")
    assert cost_matrix().tolist() == [[0, 1, 1, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 0, 1]]
    assert (cost_matrix({}) == DEFAULT_COSTS).all()


def test_asked_sets_both_and_one_of_them_wins():
    """`asked` is short for both outcomes of asking.

    The one that is named beside it holds, whatever the order.
    """
    assert cost_matrix({"ambiguous": {"asked": 0.25}})[2].tolist() == [1, 1, 1, 0.25, 0.25]
    for of_ok in ({"asked": 0.1, "asked_wrong": 0.2}, {"asked_wrong": 0.2, "asked": 0.1}):
        assert cost_matrix({"ok": of_ok})[0].tolist() == [0, 1, 1, 0.1, 0.2]


def test_costs_by_hand():
    """Ten cases under own costs: 0.5 + 0.2 + 10 + 1 over ten; by default four failures of ten."""
    cells = _cells(
        ("ok", "ok", True, 4),
        ("refuse", "ok", False, 1),
        ("ambiguous", "ok", False, 1),
        ("ok", "refuse", False, 1),
        ("refuse", "refuse", False, 1),
        ("ambiguous", "ambiguous", True, 1),
        ("ambiguous", "ambiguous", False, 1),
    )
    assert expected_cost(cells, OWN) == pytest.approx((0.5 + 0.2 + 10 + 1) / 10)
    assert expected_cost(cells) == 1.0 - 6 / 10
    both = np.stack([cells, 2 * cells]).reshape(2, PLAIN_CELLS)
    assert expected_cost(both, cost_matrix(OWN)).tolist() == [expected_cost(cells, OWN)] * 2


def test_every_cell_has_the_cost_of_its_outcome():
    """An answer to ok from other sources is wrong, one to any other label is always wrong."""
    numbered = np.arange(15.0).reshape(3, 5)
    cost = cell_costs(numbered)[:PLAIN_CELLS].reshape(3, 3, 2)
    for status, label, found in product(Status, Status, (0, 1)):
        right = status == label and bool(found)
        kind = {Status.ok: "answered", Status.refuse: "refused", Status.ambiguous: "asked"}[status]
        outcome = kind if status == Status.refuse else f"{kind}_{'right' if right else 'wrong'}"
        assert cost[status, label, found] == numbered[label, OUTCOMES.index(outcome)]
    assert (cell_costs(numbered)[DISTINCT_CELL] == cell_costs(numbered)).all()


def test_no_cases_cost_nothing_known():
    """0 of 0 is NaN, as every rate of nothing (rule S6.2)."""
    assert np.isnan(expected_cost(np.zeros(N_CELLS, dtype=np.int64)))
    assert np.isnan(expected_cost(np.zeros((2, N_CELLS), dtype=np.int64), OWN)).all()


def test_what_is_stated_comes_back():
    """A matrix is said again by what differs from the default."""
    assert stated_costs(cost_matrix()) == {}
    stated = stated_costs(cost_matrix(OWN))
    assert stated == {
        "ok": {"refused": 0.5, "asked_right": 0.1, "asked_wrong": 0.2},
        "refuse": {"answered_wrong": 10.0},
    }
    assert (cost_matrix(stated) == cost_matrix(OWN)).all()


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (
            {"OK": {"refused": 1}},
            r"a label of costs must be one of ok, refuse, ambiguous, got 'OK'",
        ),
        (
            {"ok": {"answered": 1}},
            r"an outcome of costs must be one of answered_right.* or asked, got 'answered'",
        ),
        (
            {"refused": {"ok": 1}},
            r"costs must map label -> outcome -> cost, got .* at costs\['refused'\]",
        ),
        ({"ok": 1.0}, r"costs must map label -> outcome -> cost, got 1.0 at costs\['ok'\]"),
        (
            {"ok": {"refused": -0.1}},
            "a cost must be a finite number of at least 0, got ok.refused=-0.1",
        ),
        ({"ok": {"refused": float("inf")}}, "finite number"),
        ({"ok": {"refused": True}}, "finite number"),
    ],
)
def test_costs_that_mean_nothing_are_refused(costs, message):
    """Unknown names, weights in the wrong place and numbers out of range.

    The rule and what came.
    """
    with pytest.raises(ValueError, match=message):
        cost_matrix(costs)


def test_cells_of_another_shape_are_refused():
    """Counts of rates or a table by label and decision are no cells."""
    for cells in (np.zeros(6), np.zeros((3, 3)), np.zeros((2, 3, 3))):
        with pytest.raises(ValueError, match="cells must be"):
            expected_cost(cells)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.integers(0, 10_000), min_size=N_CELLS, max_size=N_CELLS))
def test_the_default_cost_is_one_minus_the_pass_rate(counts):
    """To the bit, whatever the counts; and stating the default changes nothing."""
    cells = np.array(counts)
    passed = rates(rate_counts(cells), label_counts(cells))[PASS]
    np.testing.assert_array_equal(expected_cost(cells), 1.0 - passed)
    np.testing.assert_array_equal(expected_cost(cells, {"refuse": {"refused": 0}}), 1.0 - passed)


def test_the_interval_of_failed_contracts_is_exact():
    """By default, and at one price for every failure, it is that of k in n.

    Of no cases it is NaN.
    """
    cells = np.stack([_cells(("ok", "ok", True, 9), ("refuse", "ok", False, n)) for n in (0, 1, 7)])
    for price in (1.0, 4.0):
        matrix = price * DEFAULT_COSTS
        low, high = cost_interval(cells, matrix, 0.9)
        exact = clopper_pearson(np.array([0, 1, 7]), np.array([9, 10, 16]), 0.9)
        np.testing.assert_allclose([low, high], price * np.stack(exact))
    assert np.isnan(cost_interval(np.zeros(N_CELLS, dtype=int))).all()
    assert np.isnan(cost_interval(np.zeros(N_CELLS, dtype=int), OWN)).all()


def test_the_interval_of_graded_costs():
    """Student's t of the mean over the cases, within the costs there are.

    Where all cost alike it still has width.
    """
    cells = _cells(("ok", "ok", True, 6), ("refuse", "ok", False, 3), ("ok", "refuse", False, 1))
    paid = np.array([0.0] * 6 + [0.5] * 3 + [10.0])
    low, high = cost_interval(cells, OWN)
    reach = t_quantile(9, 0.95) * paid.std(ddof=1) / np.sqrt(10)
    assert (float(low), float(high)) == (0.0, pytest.approx(paid.mean() + reach))
    low, high = cost_interval(_cells(("refuse", "ok", False, 20)), OWN)
    rare = 1.0 - 0.025 ** (1 / 20)
    assert (float(low), float(high)) == (
        pytest.approx(0.5 - 0.5 * rare),
        pytest.approx(0.5 + 9.5 * rare),
    )
    with pytest.raises(ValueError, match="level must be in"):
        cost_interval(cells, OWN, 1.0)


def test_sweep_and_steps_cost_the_same():
    """Every step of a threshold costs what a policy's sweep on that step does, by any matrix."""
    trace = random_trace(3, 25)
    for costs in (None, OWN):
        found = steps(trace, policy(), path="confidence.tau_default", costs=costs)
        tried = [policy().replace("confidence.tau_default", float(high)) for high in found["high"]]
        np.testing.assert_array_equal(
            sweep(trace, tried, costs=costs)["expected_cost"], found["expected_cost"]
        )


def test_the_sweep_costs_what_its_cases_do():
    """The mean over the cases of one policy, each by its label and outcome."""
    trace, matrix = random_trace(4, 30), cost_matrix(OWN)
    found = sweep(trace, random_policies(5, 8), costs=OWN)["expected_cost"]
    for cost, one in zip(found, random_policies(5, 8), strict=True):
        said = decide(trace, one)
        label = said.tables.evidence.label
        kind = np.array([0, 2, 3])[said.status] + (~said.right & (said.status != Status.refuse))
        assert cost == pytest.approx(matrix[label, kind].mean())
