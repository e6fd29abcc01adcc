"""What a target needs: how many more labelled questions, and that so many are enough."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from raglab.certify import data_need
from raglab.lab.certification_needs import need_line, need_note
from raglab.metrics import upper_bound


def test_a_need_that_is_not_met_says_how_many_more_questions() -> None:
    """10 % takes 22 without an error, 38 with one: of 30 questions 9 count, so 29 more are 97; or 13 more, 44."""
    one_wrong = need_note("hallucination_rate", data_need(0.1, 9, 1), 30)
    assert one_wrong.startswith("hallucination_rate ≤ 10.0 % needs 22 answered cases without an error, 38 with one")
    assert "there are 9 with 1: these certify 36.8 %." in one_wrong
    assert "at least 29 more are missing, and that without a further error: about 97 more labelled" in one_wrong
    assert "since 9 of 30 count here; where the cases have splits, new ones go to" in one_wrong
    assert "The 11.1 % seen are above the target" in one_wrong
    right = need_note("hallucination_rate", data_need(0.1, 9, 0), 30)
    assert "at least 13 more are missing" in right
    assert "about 44 more labelled questions, since 9 of 30 count here" in right
    assert "above the target" not in right
    for need in (data_need(0.1, 22, 0), data_need(0.1, 0, 0)):
        assert need_note("hallucination_rate", need, 30) == need_line("hallucination_rate", need)


@given(st.integers(1, 60), st.integers(0, 8), st.sampled_from([0.05, 0.1, 0.3, 0.5]))
def test_the_cases_that_are_missing_certify_without_a_further_error(answered: int, wrong: int, alpha: float) -> None:
    """The number named is enough, and one less is not."""
    need = data_need(alpha, answered, min(wrong, answered))
    more = re.search(r"at least ([\d,]+) more are missing", need_note("hallucination_rate", need, 100))
    assert (more is None) == (need.best <= alpha)
    if more is not None:
        n = answered + int(more[1].replace(",", ""))
        assert upper_bound(need.wrong, n, need.delta) <= alpha < upper_bound(need.wrong, n - 1, need.delta)
