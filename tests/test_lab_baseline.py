"""Baselines: paired by case, a loss fails above the minimum effect if its interval excludes 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answered_traces import PLAIN, many, without
from labelled import free_policy, labelled
from raglab.lab.baseline import (
    baseline_of,
    compare_baselines,
)
from raglab.lab.comparison import compare
from raglab.lab.untuned_policies import always_answer
from raglab.metrics import RATES
from study_worlds import PAIRS, baseline_case, baseline_of_cases

POLICY = free_policy()
ANSWERING = always_answer(PLAIN)
STRICT = POLICY.replace("similarity.min_similarity", 0.9)
OUTCOMES_OF_OK = [pair for pair in PAIRS if pair[0] == "ok"]


def outcomes(right, wrong, refused=0, **more):
    """A baseline of cases labelled ok, those answered rightly first."""
    kinds = ["answered_right"] * right + ["answered_wrong"] * wrong + ["refused"] * refused
    return baseline_of_cases(
        [baseline_case(number, "ok", kind) for number, kind in enumerate(kinds)], **more
    )


def row(found, measure):
    """Row of a measure."""
    return found.frame().set_index("measure").loc[measure]


def test_a_worked_example():
    """20 of 200 right answers turn wrong: cost and hallucinations lose .1.

    Only what is tested fails.
    """
    before, after = outcomes(200, 0), outcomes(180, 20)
    found = compare_baselines(before, after)
    cost = row(found, "expected_cost")
    error = np.std([0] * 180 + [1] * 20, ddof=1) / np.sqrt(200)
    assert (cost["before"], cost["after"]) == (0.0, pytest.approx(0.1))
    assert (cost["loss"], cost["low"]) == (
        pytest.approx(0.1),
        pytest.approx(0.1 - 1.972 * error, abs=1e-4),
    )
    assert found.lost == ("expected_cost",)
    wrong = row(found, "hallucination_rate")
    assert (wrong["verdict"], wrong["tested"], wrong["after_k"], wrong["after_n"]) == (
        "lost",
        False,
        20,
        200,
    )
    assert compare_baselines(before, after, rates=["hallucination_rate", "coverage"]).lost == (
        "expected_cost",
        "hallucination_rate",
    )
    assert found.changed["case_id"].tolist() == [f"q{number:05d}" for number in range(180, 200)]
    assert set(found.changed["after"]) == {"answered_wrong"}


def test_a_tiny_loss_of_many_cases_passes():
    """1 % of 2,000 cases: the interval excludes 0, the minimum effect is not exceeded.

    At 0.005 it is.
    """
    before, after = outcomes(2_000, 0), outcomes(1_980, 20)
    found = compare_baselines(before, after)
    assert row(found, "expected_cost")["low"] > 0.0
    assert (row(found, "expected_cost")["verdict"], found.lost) == ("small", ())
    assert compare_baselines(before, after, min_effect=0.005).lost == ("expected_cost",)
    assert compare_baselines(before, after, min_effect=0.01).lost == (), "exceeds, not equals"


def test_a_large_loss_of_few_cases_passes_and_is_stated():
    """2 of 10 cases: .2, but the interval holds 0."""
    found = compare_baselines(outcomes(10, 0), outcomes(8, 2))
    cost = row(found, "expected_cost")
    assert cost["low"] < 0.0 < cost["loss"]
    assert (cost["verdict"], found.lost) == ("open", ())
    assert found.detectable > cost["loss"]


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(st.sampled_from(OUTCOMES_OF_OK), st.sampled_from(OUTCOMES_OF_OK)),
        min_size=1,
        max_size=25,
    )
)
def test_laws(pairs):
    """The same table loses exactly 0; swapped, the signs turn.

    A large enough minimum effect never fails.
    """
    before, after = (
        baseline_of_cases([baseline_case(number, *pair[side]) for number, pair in enumerate(pairs)])
        for side in (0, 1)
    )
    same = compare_baselines(before, before, rates=list(RATES))
    assert (same.frame()["loss"].dropna() == 0.0).all()
    assert (same.lost, len(same.changed)) == ((), 0)
    there, back = compare_baselines(before, after), compare_baselines(after, before)
    for near, far in (("loss", "loss"), ("low", "high"), ("high", "low")):
        assert there.frame()[near].to_numpy() == pytest.approx(
            -back.frame()[far].to_numpy(), nan_ok=True, abs=1e-12
        )
    assert compare_baselines(before, after, rates=list(RATES), min_effect=1.0).lost == ()
    for name in there.lost:
        assert row(there, name)["low"] > 0.0
        assert row(there, name)["loss"] > there.min_effect


def test_what_is_not_paired_is_counted():
    """Only here, only there, another question and another label.

    Each counted, stated, and out of the figures.
    """
    cases = [baseline_case(number) for number in range(10)]
    moved = [
        *cases[1:7],
        cases[7]._replace(question="f" * 16, outcome="refused"),
        cases[8]._replace(judged_by="f" * 16, outcome="refused"),
        cases[9]._replace(label="refuse", outcome="answered_wrong"),
        baseline_case(77, "ok", "refused"),
        baseline_case(78, "ok", "refused"),
    ]
    found = compare_baselines(baseline_of_cases(cases), baseline_of_cases(moved))
    assert list(found.unpaired.values()) == [1, 2, 1, 2]
    assert (
        found.cases,
        row(found, "expected_cost")["loss"],
        row(found, "coverage")["before_n"],
    ) == (6, 0.0, 6)


def test_another_basis_or_matrix_is_refused():
    """With what is stored, what came and the remedy."""
    before = outcomes(3, 1)
    with pytest.raises(
        ValueError, match=r"own basis, sources .*got cases judged by text; save the baseline again"
    ):
        compare_baselines(before, replace(before, basis="text"))
    with pytest.raises(
        ValueError, match=r"own costs, ok.refused=1, got ok.refused=2; leave the costs out"
    ):
        compare_baselines(before, outcomes(3, 1, costs={"ok": {"refused": 2}}))


def test_other_differences_are_stated():
    """Arm, retrieval, documents and schema, which are no part of the policy."""
    before = outcomes(40, 1)
    after = replace(
        before, arm="graph", retrieval={"fetch_k": 9, "arms": []}, corpus_hash="c", schema_version=4
    )
    found = compare_baselines(before, after)
    assert found.settings.to_numpy().tolist() == [
        ["arm", "hybrid", "graph"],
        ["documents", before.corpus_hash, "c"],
        ["schema of traces", before.schema_version, 4],
        ["retrieval.fetch_k", 50, 9],
    ]
    assert len(found.notes) == 1


@pytest.fixture(scope="module")
def trace():
    """Return labelled cases."""
    return labelled(3, {"tune": 150, "report": 100})


class TestOnTraces:
    """Baselines of policies on traces."""

    def test_the_same_figures_as_a_comparison(self, trace):
        """Cost, rates and intervals are those of `compare` on the same cases."""
        costs = {"ok": {"refused": 0.5}, "refuse": {"answered_wrong": 10.0}}
        stored = baseline_of(trace, POLICY, costs=costs)
        found = compare_baselines(
            stored, baseline_of(trace, STRICT, costs=costs), rates=["coverage"]
        )
        reference = compare(trace, POLICY, STRICT, costs=costs)
        sign = np.array(
            [
                -1.0 if name in {"coverage", "pass_rate"} else 1.0
                for name in reference.table["measure"]
            ]
        )
        assert found.frame()["loss"].to_numpy() == pytest.approx(
            sign * reference.table["difference"], nan_ok=True
        )
        assert found.frame()["before"].to_numpy() == pytest.approx(
            reference.table["a"].to_numpy(), nan_ok=True
        )
        assert sorted(found.changed["case_id"]) == sorted(reference.changed["case_id"])
        assert (found.before, found.after) == (POLICY.policy_id, STRICT.policy_id)
        assert "coverage" in found.lost

    def test_where_hardly_a_case_is_paired_nothing_is_compared(self, trace):
        """All ids but a few are new: refused, not passed."""
        renamed = [
            case._replace(id=f"new {case.id}") if row > 5 else case
            for row, case in enumerate(trace.cases)
        ]
        other = replace(trace, cases=tuple(renamed))
        with pytest.raises(ValueError, match=r"must be paired with the baseline.*--save-baseline"):
            compare_baselines(baseline_of(trace, POLICY), baseline_of(other, STRICT))

    def test_cases_without_labels_and_without_any_are_refused(self, trace):
        """Nobody knows what they cost."""
        blank = tuple(one._replace(expect_status=None, expect_sources=()) for one in trace.cases)
        with pytest.raises(ValueError, match="label"):
            baseline_of(replace(trace, cases=blank), POLICY)
        with pytest.raises(ValueError, match="at least one case"):
            baseline_of(trace.subset([]), POLICY)


class TestText:
    """Recorded answers (S6.3)."""

    def test_an_answer_that_turns_wrong_is_a_loss(self):
        """From the same hits; cases without recorded answers are of another basis."""
        before, after = many(range(80)), many([number for number in range(80) if number % 4 != 1])
        stored = baseline_of(before, ANSWERING)
        assert (stored.basis, stored.missing_answers) == ("text", 0)
        found = compare_baselines(stored, baseline_of(after, ANSWERING))
        assert (found.cases, row(found, "expected_cost")["loss"], found.lost) == (
            80,
            0.25,
            ("expected_cost",),
        )
        with pytest.raises(ValueError, match="own basis, text"):
            compare_baselines(stored, baseline_of(replace(before, answers=None), ANSWERING))

    def test_another_gold_answer_is_another_label(self):
        """Where text is judged."""
        trace = many(range(80))
        other = replace(
            trace,
            cases=tuple(case._replace(answer=case.answer and "Glass.") for case in trace.cases),
        )
        found = compare_baselines(baseline_of(trace, ANSWERING), baseline_of(other, ANSWERING))
        assert (found.cases, found.unpaired["another label"]) == (20, 60)

    def test_too_many_missing_answers_are_refused(self):
        """As by every comparison; few are counted and stated."""
        trace = many(range(80))
        answered = [number for number in range(80) if number % 4]
        stored = baseline_of(without(trace, answered[:2]), ANSWERING)
        assert stored.missing_answers == 2
        found = compare_baselines(stored, baseline_of(trace, ANSWERING))
        assert found.scoring["missing answers before"] == 2
        with pytest.raises(ValueError, match="is not compared"):
            baseline_of(without(trace, answered[:20]), ANSWERING)
