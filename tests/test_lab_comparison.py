"""The selected policy beside what it must beat.

By hand, and by the sweep that counts the same cases.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raglab import metrics
from raglab.lab.comparison import (
    compare,
    contest_record,
    contests,
    reference_roles,
)
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.replay import sweep
from raglab.store.policies import Policy
from worlds import Hit, ask, trace_of

ANSWERS, REFUSES = always_answer(Policy.load()), always_refuse(Policy.load())
ROLES = {"always-answer": "incumbent"}


def cases(n_ok, n_refuse):
    """Cases that answering all has right, and such as refusing all has."""
    right = ask(expect_status="ok", expect_sources=("guide.md",))
    labels = [right] * n_ok + [ask(expect_status="refuse")] * n_refuse
    return trace_of(*((case, [[Hit(0.5)]]) for case in labels))


def test_a_worse_policy_is_called_worse():
    """Of 12 cases to answer, refusing all has none right.

    Each costs 1 more, which is the sign test, p = 2 / 2^12.
    """
    (found,) = contests(cases(12, 0), {"tuned": REFUSES, "always-answer": ANSWERS}, ROLES)
    assert (found.only_tuned, found.only_reference) == (0, 12)
    assert (found.verdict, found.gain.p, found.gain.estimate) == (
        "worse",
        pytest.approx(2 / 2**12),
        -1.0,
    )
    assert found.gain.text == "-1.000 [-1.000, -0.471], p = 0.000488"
    assert contest_record(found)["verdict"] == "worse"


def test_a_better_policy_an_equal_one_and_chance():
    """12 to 0 is better, 3 to 2 is chance and says what 5 cases cannot tell.

    A policy is not compared with itself.
    """
    better, chance, same = (
        contests(cases(*counts), {"tuned": ANSWERS, "always-answer": other}, ROLES)[0]
        for counts, other in (((12, 0), REFUSES), ((3, 2), REFUSES), ((3, 2), ANSWERS))
    )
    assert [one.verdict for one in (better, chance, same)] == ["better", "open", "same"]
    assert (same.sizes, chance.sizes and chance.sizes.discordant) == (None, 5)


@pytest.mark.parametrize("n_ok", range(8, 24))
def test_no_difference_is_shown_exactly_where_the_interval_holds_0(n_ok):
    """The old page said "no difference shown" beside [+.005, +.190].

    Its p was of another test than its interval.
    """
    (found,) = contests(
        cases(n_ok, 8), {"tuned": ANSWERS, "always-refuse": REFUSES}, {"always-refuse": "incumbent"}
    )
    holds = found.gain.low <= 0.0 <= found.gain.high
    assert (found.verdict == "open") == holds == (found.gain.p >= 0.05)


def test_stated_costs_decide_who_wins():
    """Answering has more cases right.

    Where a wrong answer costs 10, refusing saves more than it loses.
    """
    trace, these = cases(20, 12), {"tuned": REFUSES, "always-answer": ANSWERS}
    (plain,) = contests(trace, these, ROLES)
    (graded,) = contests(trace, these, ROLES, costs={"refuse": {"answered_wrong": 10}})
    assert (plain.verdict, plain.only_tuned, plain.only_reference) == (
        "open",
        graded.only_tuned,
        graded.only_reference,
    )
    assert graded.verdict == "better"
    assert graded.gain.estimate == pytest.approx((12 * 10 - 20) / 32)
    assert graded.gain.p < 0.05


def test_references_begin_with_the_incumbent():
    """What the candidate had to beat, then what else needs no tuning, then the other candidates."""
    names = ["always-answer", "always-refuse", "defaults", "expected cost", "one threshold"]
    costs = pd.DataFrame({"competes": [True] * 4 + [False]}, index=names)
    assert list(reference_roles(costs, "expected cost", "defaults").items()) == [
        ("defaults", "incumbent"),
        ("always-answer", "free policy"),
        ("always-refuse", "free policy"),
        ("one threshold", "shown beside"),
    ]


def test_two_policies_differ_by_what_their_sweep_says():
    """Of 6 cases to answer and 4 to refuse, answering all has the 6 right, refusing all the 4.

    It costs 0.2 more.
    """
    trace = cases(6, 4)
    found = compare(trace, ANSWERS, REFUSES)
    rows = found.table.set_index("measure")
    assert rows.loc["expected_cost", ["a", "b", "difference"]].tolist() == pytest.approx(
        [0.4, 0.6, 0.2]
    )
    assert rows.loc["pass_rate", ["a_k", "a_n", "b_k", "b_n", "only_a", "only_b"]].tolist() == [
        6,
        10,
        4,
        10,
        6,
        4,
    ]
    (contest,) = contests(trace, {"tuned": REFUSES, "always-answer": ANSWERS}, ROLES)
    cost = rows.loc["expected_cost"]
    assert [cost["p"], cost["low"], cost["high"]] == [
        contest.gain.p,
        -contest.gain.high,
        -contest.gain.low,
    ]
    assert rows["p"].drop("expected_cost").isna().all()  # an interval of a rate is of no test
    assert rows.loc["coverage", "difference"] == -1.0
    assert np.isnan(rows.loc["hallucination_rate", "difference"])  # refusing all answers nothing
    swept = sweep(trace, [ANSWERS, REFUSES])
    for name in metrics.RATES:
        assert rows.loc[name, ["a_k", "b_k"]].tolist() == swept[f"{name}_k"].tolist()
        assert rows.loc[name, ["a_n", "b_n"]].tolist() == swept[f"{name}_n"].tolist()
    assert found.changed["change"].value_counts().to_dict() == {"lost": 6, "gained": 4}
    assert "10 of 10 cases, 6 lost, 4 gained, 0 other" in repr(found)


def test_a_policy_beside_itself_differs_in_nothing_that_the_cases_show():
    """Every difference is 0; its interval says how often a case that would show one may come."""
    found = compare(cases(6, 4), ANSWERS, ANSWERS)
    known = found.table.dropna(subset="difference")
    assert (known["difference"] == 0.0).all()
    assert (known["low"] < 0.0).all()
    assert (known["high"] > 0.0).all()
    assert len(found.changed) == 0
