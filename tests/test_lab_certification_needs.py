"""What a target needs: how many more labelled questions, and that so many are enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raglab.certify import data_need
from raglab.lab.certification_counts import CertificationSettings
from raglab.lab.certification_words import (
    lacking_cases,
    missing_questions,
    need_frame,
    need_note,
)
from raglab.metrics import upper_bound


def test_a_need_that_is_not_met_says_how_many_more_questions():
    """10 % takes 22 without an error, 38 with one: of 30 questions 9 count, so 29 more are 97.

    Or 13 more, 44.
    """
    one_wrong = need_note("hallucination_rate", data_need(0.1, 9, 1), 30)
    for part in ("22 / 38 / ", "36.8 %", "about 97 ", "above it"):
        assert part in one_wrong
    right = need_note("hallucination_rate", data_need(0.1, 9, 0), 30)
    assert "about 44 " in right
    assert "above it" not in right


@given(st.integers(1, 60), st.integers(0, 8), st.sampled_from([0.05, 0.1, 0.3, 0.5]))
def test_the_cases_that_are_missing_certify_without_a_further_error(answered, wrong, alpha):
    """The number named is enough, and one less is not."""
    need = data_need(alpha, answered, min(wrong, answered))
    n = answered + missing_questions(need, answered)
    assert (n == answered) == (need.best <= alpha)
    if n > answered:
        bounds = [upper_bound(need.wrong, size, need.delta) for size in (n, n - 1)]
        assert bounds[0] <= alpha < bounds[1]
    table = need_frame({"hallucination_rate": need}, answered)
    assert table["missing_questions"].tolist() == [n - answered]


def lacking(n_cases, targets, delta, n_tests=1, costs=None):
    """Target -> cases that are missing."""
    terms = CertificationSettings(targets, costs, delta)
    rows = lacking_cases(dict.fromkeys(targets, n_cases), terms, n_tests)
    assert all(size == n_cases for _, size in rows.values())
    return {name: needed - size for name, (needed, size) in rows.items()}


def test_too_few_cases_for_any_target_are_counted():
    """1 % takes 230 cases without an error, 459 at delta 0.01.

    A cost of 0.5 of at most 4 is a share of 1/8.
    """
    risk, costs = {"hallucination_rate": 0.01}, {"refuse": {"answered_wrong": 4.0}}
    assert lacking(167, risk | {"false_refusal_rate": 0.1}, 0.1) == {"hallucination_rate": 63}
    assert lacking(230, risk, 0.1) == {}
    assert lacking(230, risk, 0.1, 10) == {"hallucination_rate": 229}
    assert lacking(10, {"expected_cost": 0.5}, 0.1, costs=costs) == {"expected_cost": 8}
    assert lacking(18, {"expected_cost": 0.5}, 0.1, costs=costs) == {}
