"""What a policy learned from is known case by case (S6.4, S6.11).

Nothing that is judged on it is called better.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled import free_policy, labelled
from raglab.decision.learned_cases import (
    IN_SAMPLE,
    code_text,
    hash_queries,
    learned_cases,
    learning_parts,
    question_codes,
    text_codes,
    with_learned_cases,
    with_tuned_cases,
)
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.comparison import compare
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import fit_fused_gate
from raglab.lab.goals import Goal
from raglab.lab.report.page import write_report
from raglab.lab.study import tune
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.replay import decide, sweep
from raglab.store.policies import Policy
from raglab.words.characters import plain_question

TARGET = {"hallucination_rate": 0.6}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def trace():
    """60 cases to tune on, 60 to certify on, 60 to report on."""
    return labelled(3, {"tune": 60, "certify": 60, "report": 60})


@pytest.fixture(scope="module")
def fitted(trace):
    """Decision by expected cost of split tune."""
    return fit_decision(trace, free_policy())


def _some(trace, split):
    return trace.subset([row for row, case in enumerate(trace.cases) if case.split == split][:40])


@given(st.lists(st.text(max_size=8), max_size=30))
def test_codes_of_questions_are_read_back(queries):
    """Each distinct plain question once, ascending, in eight characters, after the mark."""
    text = code_text(queries)
    codes = text_codes(text)
    assert len(text) == 8 * (1 + len(set(map(plain_question, queries))))
    np.testing.assert_array_equal(codes, [0, *np.unique(question_codes(queries)[0])])


def test_of_many_questions_a_fixed_sample_is_kept(monkeypatch):
    """The least codes in any order, so a policy file stays small and overlap is likely seen."""
    monkeypatch.setattr("raglab.decision.learned_cases.MAX_LEARNED_CODES", 5)
    queries = [f"question {number}" for number in range(40)]
    assert code_text(queries) == code_text(queries[::-1])
    np.testing.assert_array_equal(
        text_codes(code_text(queries))[1:], np.sort(question_codes(queries)[0])[:4]
    )


def test_overlap_is_counted_case_by_case():
    """Of four judged cases, two asking one question, three ask what the policy was tuned on."""
    policy = with_tuned_cases(Policy.load(), ["a", "b", "c"])
    (row,) = learned_cases([policy], {"report": ["a", "a", "c", "d"], "tune": ["b"]}, ("report",))
    assert (row.parts, row.k, row.n, row.unknown) == (("policy",), 3, 4, ())
    assert row.text == "the policy was fitted or tuned on 3 of these 4 cases"
    (other,) = learned_cases([policy], {None: ["d", "e"]})
    assert (other.k, other.text, other.doubt) == (0, "", "")


def test_an_old_policy_is_known_by_the_whole_set_alone():
    """All its cases are refused, alone or with others; of a part of them the doubt is said."""
    policy = Policy.load().replace("tuned_on", hash_queries(["a", "b"]))
    rows = [
        learned_cases([policy], by_split, ("certify",))[0]
        for by_split in (
            {"certify": ["a", "b"]},
            {"certify": ["a"], "tune": ["b"]},
            {"certify": ["c"], "tune": ["a", "b"]},
            {"certify": ["a"]},
        )
    ]
    assert [(row.k, row.n, row.unknown) for row in rows] == [
        (2, 2, ()),
        (1, 1, ()),
        (0, 1, ("policy",)),
        (0, 1, ("policy",)),
    ]
    assert "is not seen" in rows[3].doubt
    assert rows[0].doubt == ""


def test_a_few_equal_questions_are_repeats():
    """At most one in twenty does not count, and is stated; one more counts."""
    policy = with_tuned_cases(Policy.load(), ["hello", "thanks", "x"])
    new = [f"q{n}" for n in range(19)]
    (few,) = learned_cases([policy], {"report": ["hello", *new]})
    assert (few.parts, few.k, few.repeated, few.text) == ((), 0, 1, "")
    (more,) = learned_cases([policy], {"report": ["hello", "thanks", *new]})
    assert (more.k, more.repeated, more.doubt) == (2, 0, "")


def test_the_record_is_no_part_of_the_id(fitted, trace, tmp_path):
    """It is written and read back.

    Without it a policy is the same policy, its file that of an older raglab.
    """
    queries = [case.query for case in trace.split("tune").cases]
    tuned = with_tuned_cases(fitted, queries)
    plain = tuned.replace("tuned_on", None, "learned_cases", {})
    assert tuned.policy_id == fitted.policy_id == plain.policy_id
    assert not {"tuned_on", "learned_cases"} & tuned.manifest.keys()
    tuned.save(tmp_path / "tuned.yaml")
    read = Policy.load(tmp_path / "tuned.yaml")
    assert (read.tuned_on, read.learned_cases) == (
        hash_queries(queries),
        {hash_queries(queries): code_text(queries)},
    )
    with pytest.raises(ValueError, match="learned_cases"):
        tuned.replace("learned_cases", {"x": "no code"})


def test_what_does_not_act_learned_nothing(fitted, trace):
    """A model under the chain, a fused gate that is off, and always-answer of a tuned policy."""
    assert list(learning_parts(fitted)) == ["model of the decision"]
    assert learning_parts(fitted.replace("decision.rule", "chain")) == {}
    fused = fit_fused_gate(trace, free_policy()).policy
    assert list(learning_parts(fused)) == ["fused gate"]
    assert learning_parts(fused.replace("fused.enabled", False)) == {}
    assert learning_parts(always_answer(with_tuned_cases(fused, ["a"]))) == {}


def test_fits_warn_on_cases_that_are_held_back(trace):
    """Where all cases are of split certify or report, and nowhere else."""
    for fit in (fit_decision, fit_fused_gate):
        with pytest.warns(UserWarning, match="60 of split report: "):
            fit(trace.split("report"), free_policy())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(trace, free_policy())


def test_a_part_of_the_certified_cases_is_refused(trace, fitted):
    """40 of 60, by either function, and by the fused gate as by the model.

    Split tune is accepted.
    """
    part_of = _some(trace, "certify")
    policies = {
        "model of the decision": fit_decision(part_of, free_policy()),
        "policy": with_tuned_cases(free_policy(), [case.query for case in part_of.cases]),
    }
    for part, policy in policies.items():
        for certify in (certify_policy, certify_best):
            with pytest.raises(ValueError, match=f"the {part} was fitted on, got 40 of 60"):
                certify(trace, policy, targets=TARGET)
    old = policies["model of the decision"].replace("learned_cases", {})
    assert any("is not seen" in note for note in certify_policy(trace, old, targets=TARGET).notes)
    assert not any(
        "is not seen" in note for note in certify_policy(trace, fitted, targets=TARGET).notes
    )


def test_a_check_refuses_what_was_learned_or_certified(trace, fitted):
    """Some certified cases, which may be asked again, and some fitted on, which may not."""
    certified = certify_policy(trace, fitted, targets={"hallucination_rate": 0.9}).policy
    assert certified is not None
    with pytest.raises(ValueError, match="must see new cases, got 40 of 40"):
        check_policy(_some(trace, "certify"), certified)
    assert check_policy(_some(trace, "certify"), certified, again=True).verdict
    for again in (False, True):
        with pytest.raises(ValueError, match="was fitted on, got 40 of 40"):
            check_policy(_some(trace, "tune"), certified, again=again)
    assert check_policy(trace.split("report"), certified).verdict


def test_figures_of_what_learned_from_the_cases_say_so(trace, fitted):
    """Compare gives no interval, sweep and decide a note with the count.

    On other cases nothing changes.
    """
    tune_cases, report, start = trace.split("tune"), trace.split("report"), free_policy()
    says = f"{IN_SAMPLE}: the model of the decision was fitted or tuned on 60 of these 60 cases"
    with pytest.warns(UserWarning, match="fitted or tuned on 60 of these 60"):
        comparison = compare(tune_cases, start, fitted)
    assert says.replace("the model", "of b the model") in repr(comparison)
    assert comparison.table[["low", "high", "p"]].isna().all().all()
    with pytest.warns(UserWarning, match="fitted or tuned on 60 of these 60"):
        table = sweep(tune_cases, [start, fitted])
    assert table["note"].tolist() == ["", says]
    assert says in repr(decide(tune_cases, fitted))
    assert compare(report, start, fitted).in_sample == ""
    assert "note" not in sweep(report, [start, fitted])


def _opening(path):
    page = re.sub(r"<(script|style).*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_a_report_declares_no_winner_on_learned_cases(trace, fitted, tmp_path):
    """Neither where the subject learned from the cases, nor against another policy that did."""
    start, report = free_policy(), trace.split("report")
    free = {"always-answer": always_answer(fitted), "always-refuse": always_refuse(fitted)}
    leak = fit_decision(_some(trace, "report"), start)
    page = _opening(
        write_report(report, {"defaults": start, "tuned": leak} | free, out=tmp_path / "a.html")
    )
    assert "fitted or tuned on 40 of these 60 cases" in page
    assert "chosen, not shown to be better" in page
    for text in ("tuned is better", "Use tuned", "tuned saves"):
        assert text not in page
    page = _opening(
        write_report(report, {"defaults": leak, "tuned": fitted} | free, out=tmp_path / "b.html")
    )
    assert "What defaults is worth: in sample, not comparable" in page
    assert "not compared with defaults" in page or "not shown to be better" in page
    assert "Use tuned" not in page


def test_a_study_leaves_a_record(trace):
    """The policy names its cases."""
    goal = Goal(targets={"hallucination_rate": 0.001})
    result = tune(trace, policy=free_policy(), trials=16, batch_size=8, goal=goal)
    queries = [case.query for case in trace.split("tune").cases]
    assert result.policy.tuned_on == hash_queries(queries)
    assert result.policies["always-answer"].tuned_on is None
    (row,) = learned_cases([result.policy], {None: queries})
    assert row.k == len(queries)
    with pytest.raises(ValueError, match="must not be fitted on cases of this trace"):
        tune(trace, policy=free_policy(), trials=16, candidates={"mine": result.policy})


def test_two_parts_are_counted_once():
    """A fused gate and a study of overlapping cases: each case counts once."""
    policy = Policy.load().replace(
        "fused.parts", {"gap": {"x": [0.0], "y": [0.0]}}, "fused.enabled", True
    )
    policy = policy.replace("fused.fitted_on", hash_queries(["a", "b"]))
    policy = with_tuned_cases(with_learned_cases(policy, ["a", "b"]), ["b", "c"])
    (row,) = learned_cases([policy], {None: ["a", "b", "c", "d"]})
    assert (row.parts, row.k) == (("fused gate", "policy"), 3)
