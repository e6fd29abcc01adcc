"""A user's own documents and questions.

36 documents, equal file names in folders, 60 questions in a CSV.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import raglab

MANUAL = Path(__file__).parent / "data" / "manual"
ANSWERS = raglab.lab.always_answer(raglab.Policy.load())
DOCUMENTS, QUESTIONS = MANUAL / "documents", MANUAL / "questions.csv"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The corpus, and a trace of the questions with splits and recorded answers."""
    out = tmp_path_factory.mktemp("own")
    corpus = raglab.load_corpus(DOCUMENTS)
    cases = raglab.split(raglab.load_cases(QUESTIONS), seed=0)
    trace = raglab.build_trace(corpus, cases, out=out / "trace.parquet")
    recorded = raglab.record_answers(trace, raglab.Policy.load())
    return {"out": out, "corpus": corpus, "cases": cases, "trace": trace, "recorded": recorded}


@pytest.fixture(scope="module")
def result(world):
    """A small study on recorded answers."""
    return raglab.tune(world["recorded"], trials=4, repeats=1, folds=3, seed=0)


class TestScoring:
    """What counts as correct."""

    def test_recorded_answers_count(self, world):
        """Answered cases are correct if their recorded answer is right, and the basis is stated."""
        policy = ANSWERS
        decisions = raglab.decide(world["recorded"], policy)
        outcomes = raglab.lab.answer_outcomes(world["recorded"], policy)
        answered_right = decisions.frame().query("status == 'ok'")["correct"].sum()
        assert answered_right == outcomes["right"].sum()
        by_sources = raglab.decide(world["trace"], policy).frame()["correct"].sum()
        assert answered_right < by_sources, "some answers from the right sources say something else"
        assert "basis text" in repr(decisions)

    def test_answers_of_one_policy_stay_when_another_is_recorded(self, world):
        """Two policies with other sets of hits are both judged on all their answers."""
        two, three = (ANSWERS.replace("chosen.final_k", k) for k in (2, 3))
        trace = raglab.record_answers(world["trace"], two, decided_only=True)
        trace = raglab.record_answers(trace, three, decided_only=True)
        assert [raglab.decide(trace, policy).missing_answers.k for policy in (two, three)] == [0, 0]
        assert raglab.record_answers(trace, two, decided_only=True) is trace, "nothing new"


class TestStudy:
    """Tune, report, certificate: each states what it rests on."""

    def test_a_certificate_states_its_basis(self, result, world):
        """Of recorded answers it says `text`."""
        certified = raglab.certify_policy(
            world["recorded"], result.policy, targets={"hallucination_rate": 0.8}
        )
        assert "text" in certified.certificate.reason

    def test_without_recorded_answers_the_study_says_what_is_missing(self, world):
        """Hygiene is a gate that live answers meet."""
        notes = " ".join(raglab.tune(world["trace"], trials=2, repeats=1, folds=3, seed=0).notes)
        assert "not measured" in notes
        assert "record_answers" in notes
