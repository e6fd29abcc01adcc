"""What one policy saves over another.

Interval and p-value are of one test, also where every case gains alike.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab import metrics
from raglab.lab.paired_differences import paired_advantage
from raglab.values import Status

WRONG = Status.ok * 6 + Status.refuse * 2  # a case to refuse that was answered
RIGHT = Status.refuse * 6 + Status.refuse * 2  # refused
COSTS = (
    None,
    {"refuse": {"answered_wrong": 10}},
    {"refuse": {"refused": 0.3}, "ok": {"refused": 2.5}},
)


def cells(wrong, right):
    """So many cases to refuse, answered and refused."""
    return np.array([WRONG] * wrong + [RIGHT] * right)


def test_a_saving_by_hand():
    """Of 4 cases 2 gain 1.

    Mean 0.5, spread 0.577, so Student's t with 3 degrees reaches 3.182 · 0.289 = 0.919.
    """
    found = paired_advantage(cells(0, 4), cells(2, 2), None, "always-answer")
    assert found[:4] == pytest.approx((0.5, -0.4187, 1.4187, 0.1817), abs=1e-4)
    assert (found.verdict, found.over, found.cases) == ("open", "always-answer", 4)


@pytest.mark.parametrize(
    ("n", "verdict"), [(1, "open"), (5, "open"), (6, "better"), (30, "better")]
)
def test_cases_that_all_gain_alike_are_a_sign_test(n, verdict):
    """There is no spread: p = 2 / 2^n, and the interval that of n wins of n.

    One case shows nothing, six do.
    """
    found = paired_advantage(cells(0, n), cells(n, 0), None, "always-answer")
    assert found.p == pytest.approx(min(1.0, 2.0 / 2.0**n))
    assert found.low == pytest.approx(2 * float(metrics.clopper_pearson(n, n).low) - 1)
    assert (found.estimate, found.high, found.verdict) == (1.0, pytest.approx(1.0), verdict)


def test_policies_that_decide_alike_differ_by_what_no_case_shows():
    """No discordant case in 10: up to 31 % of others may be so, at 10 each in costs; p is 1."""
    found = paired_advantage(cells(4, 6), cells(4, 6), COSTS[1], "defaults")
    share = float(metrics.clopper_pearson(0, 10).high)
    assert found[:4] == pytest.approx((0.0, -10 * share, 10 * share, 1.0))
    assert found.verdict == "open"


@given(
    st.integers(1, 40), st.integers(0, 10**6), st.sampled_from((1, 2, 18)), st.sampled_from(COSTS)
)
def test_p_is_below_005_exactly_where_the_interval_excludes_0(n, seed, kinds, costs):
    """Interval and p-value are of the same test, and the other way round the sign changes."""
    rng = np.random.default_rng(seed)
    other = rng.integers(0, kinds, n)  # of one kind, no case differs from another
    selected = rng.integers(0, 1 if kinds == 1 else 3, n) * 6 + other % 6
    found, back = (
        paired_advantage(selected, other, costs, "a"),
        paired_advantage(other, selected, costs, "b"),
    )
    assert (found.p < 0.05) == (found.low > 0.0 or found.high < 0.0) == (found.verdict != "open")
    assert found.low <= found.estimate <= found.high
    assert back[:4] == pytest.approx((-found.estimate, -found.high, -found.low, found.p))


@pytest.mark.parametrize(("rare", "cases"), [(0.01, 60), (0.01, 100), (0.03, 100), (0.005, 100)])
def test_a_policy_that_may_cost_dearly_is_seldom_called_better_by_luck(rare, cases):
    """Two policies of equal cost: one saves 1 in ten times as many cases as it costs 10 in.

    At most 5 % are called.
    """
    rng = np.random.default_rng(7)
    # cells: label refuse answered, label refuse refused, label ok refused
    answer_wrong, refused, refused_ok = 2, 8, 6
    right = 1
    draws = rng.random((1_000, cases))
    called = 0
    for draw in draws:
        dear, saved = draw < rare, (draw >= rare) & (draw < 11 * rare)
        selected = np.where(dear, answer_wrong, np.where(saved, right, refused))
        other = np.where(saved, refused_ok, refused)
        found = paired_advantage(
            selected, other, {"refuse": {"answered_wrong": 10.0}}, "always-refuse"
        )
        called += found.verdict != "open"
        assert (found.p < 0.05) == (found.verdict != "open")
    assert called <= 0.06 * len(draws)
