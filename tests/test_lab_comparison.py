"""The selected policy beside what it must beat: by hand, and by the sweep that counts the same cases."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raglab import metrics
from raglab.lab.comparison import (
    compare,
    compare_policies,
    contest_record,
    contest_sentence,
    contests,
    reference_roles,
    standings,
    standings_text,
    worse_sentence,
)
from raglab.lab.search_space import always_answer, always_refuse
from raglab.replay import sweep
from raglab.store.policies import Policy
from raglab.values import TraceData
from worlds import Hit, ask, trace_of

ANSWERS, REFUSES = always_answer(Policy.load()), always_refuse(Policy.load())
ROLES = {"always-answer": "best free policy", "confidence at least": "best single threshold"}


def cases(n_ok: int, n_refuse: int) -> TraceData:
    """Cases that answering all has right, and such as refusing all has."""
    right = ask(expect_status="ok", expect_sources=("guide.md",))
    labels = [right] * n_ok + [ask(expect_status="refuse")] * n_refuse
    return trace_of(*((case, [[Hit(0.5)]]) for case in labels))


def test_a_worse_policy_is_called_worse() -> None:
    """Of 12 cases to answer, refusing all has none right: 0 against 12, p = 2 / 2^12, and it costs 1 more a case."""
    (found,) = contests(cases(12, 0), {"tuned": REFUSES, "always-answer": ANSWERS}, ROLES)
    assert found.paired == metrics.Paired(0, 12, 2 / 2**12)
    assert (found.verdict, found.p, found.gain.estimate) == ("worse", 2 / 2**12, -1.0)
    assert contest_sentence(found).startswith(
        "tuned against always-answer (best free policy): tuned is worse than always-answer; 0 cases only tuned"
    )
    assert worse_sentence([found], 12) == "On the 12 judged cases tuned is worse than always-answer: do not use it."
    assert contest_record(found)["verdict"] == "worse"


def test_a_better_policy_an_equal_one_and_chance() -> None:
    """12 to 0 is better, 3 to 2 is chance, and a policy is not compared with itself."""
    better, chance, same = (
        contests(cases(*counts), {"tuned": ANSWERS, "always-answer": other}, ROLES)[0]
        for counts, other in (((12, 0), REFUSES), ((3, 2), REFUSES), ((3, 2), ANSWERS))
    )
    assert [one.verdict for one in (better, chance, same)] == ["better", "open", "same"]
    assert [one.says for one in (better, chance)] == ["tuned is better than always-answer", "no difference shown"]
    assert contest_sentence(same).endswith("tuned and always-answer are one policy")
    assert worse_sentence([better, chance, same], 5) == ""


def test_stated_costs_decide_who_wins() -> None:
    """Answering has more cases right; where a wrong answer costs 10, refusing saves more than it loses."""
    trace, these = cases(20, 12), {"tuned": REFUSES, "always-answer": ANSWERS}
    (plain,) = contests(trace, these, ROLES)
    (graded,) = contests(trace, these, ROLES, costs={"refuse": {"answered_wrong": 10}})
    assert (plain.verdict, plain.paired) == ("open", graded.paired)
    assert graded.verdict == "better"
    assert graded.gain.estimate == pytest.approx((12 * 10 - 20) / 32)
    assert graded.p == graded.gain.p < 0.05


def test_rows_are_those_of_the_sweep() -> None:
    """Tuned first, defaults last, one row for policies that are one, no manual loop; rates and costs as swept."""
    trace = cases(5, 3)
    these = {
        "defaults": Policy.load(),
        "tuned": ANSWERS,
        "always-answer": ANSWERS,
        "always-refuse": REFUSES,
        "manual-loop": ANSWERS.replace("chosen.final_k", 1),
    }
    table = standings(trace, these)
    assert table["policy"].tolist() == ["tuned = always-answer", "always-refuse", "defaults"]
    swept = sweep(trace, [ANSWERS, REFUSES, Policy.load()], engine="numpy")
    for name in ("pass_rate", "expected_cost", "expected_cost_low", "expected_cost_high", "coverage_high"):
        np.testing.assert_array_equal(table[name], swept[name])
    text = standings_text(table)
    assert text["pass"].tolist()[0] == "0.625 [0.24, 0.91] 5/8"
    assert text["expected_cost"].tolist()[0] == "0.375 [0.09, 0.76]"
    assert text["hallucination"].tolist()[1] == "- (0 of 0)"


def test_references_are_the_best_held_out() -> None:
    """Of the free policies and of the thresholds the one that costs least when held out, and the published policy."""
    names = ["always-answer", "always-refuse", "defaults", "gap at least", "confidence at least", "chain"]
    costs = pd.DataFrame({"cross_validated": [0.5, 0.7, 0.6, 0.4, 0.3, 0.1]}, index=names)
    assert reference_roles(costs) == ROLES | {"defaults": "published policy"}
    assert (
        "best single threshold"
        not in reference_roles(costs.drop(index=["gap at least", "confidence at least"])).values()
    )


def test_two_policies_differ_by_what_their_sweep_says() -> None:
    """Of 6 cases to answer and 4 to refuse, answering all has the 6 right, refusing all the 4: it costs 0.2 more."""
    trace = cases(6, 4)
    found = compare(trace, ANSWERS, REFUSES)
    rows = found.table.set_index("measure")
    assert rows.loc["expected_cost", ["a", "b", "difference"]].tolist() == pytest.approx([0.4, 0.6, 0.2])
    assert rows.loc["pass_rate", ["a_k", "a_n", "b_k", "b_n", "only_a", "only_b"]].tolist() == [6, 10, 4, 10, 6, 4]
    assert rows.loc["pass_rate", "p"] == compare_policies(trace, ANSWERS, REFUSES)["pass"].p
    assert rows.loc["coverage", "difference"] == -1.0
    assert np.isnan(rows.loc["hallucination_rate", "difference"])  # refusing all answers nothing
    swept = sweep(trace, [ANSWERS, REFUSES])
    for name in metrics.RATES:
        assert rows.loc[name, ["a_k", "b_k"]].tolist() == swept[f"{name}_k"].tolist()
        assert rows.loc[name, ["a_n", "b_n"]].tolist() == swept[f"{name}_n"].tolist()
    assert found.changed["change"].value_counts().to_dict() == {"lost": 6, "gained": 4}
    assert "10 of 10 cases changed, 6 lost, 4 gained, 0 other" in repr(found)


def test_a_policy_beside_itself_differs_in_nothing_that_the_cases_show() -> None:
    """Every difference is 0; its interval says how often a case that would show one may come."""
    found = compare(cases(6, 4), ANSWERS, ANSWERS)
    known = found.table.dropna(subset="difference")
    assert (known["difference"] == 0.0).all()
    assert (known["low"] < 0.0).all()
    assert (known["high"] > 0.0).all()
    assert len(found.changed) == 0


def test_the_other_way_round_a_difference_changes_its_sign() -> None:
    """So do the ends of its interval."""
    trace = cases(7, 5)
    first, second = Policy.load(), ANSWERS
    there, back = (compare(trace, *pair).table for pair in ((first, second), (second, first)))
    np.testing.assert_allclose(there["difference"], -back["difference"])
    np.testing.assert_allclose(there["low"], -back["high"])
    assert there["only_a"].tolist()[1:] == back["only_b"].tolist()[1:]
