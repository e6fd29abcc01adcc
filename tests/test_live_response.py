"""Answers as part of the trace: recorded once, judged by the chain, replayed at any threshold."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators import Drawn, Fixed, Weighed
from plain import say
from raglab.lab.search_space import full_space
from raglab.live.answer_recording import record_answers
from raglab.live.response import check_answer
from raglab.replay import decide, flips
from raglab.store.traces import Trace
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of

GATES = {
    "generation.min_generation_confidence": (0.25, 0.5, 0.75),
    "generation.enabled": (True, True, False),
    "support.min_support": (0.25, 0.5, 0.75),
    "support.enabled": (True, True, False),
}


def one(**sections):
    """A policy that lets the hand-written trace through to generation."""
    return policy(**sections)


def recorded(confidence=0.9, text="The excess is £250.", chosen=None):
    """One answered question with one answer."""
    trace = trace_of((ask(), [[Hit(0.25)]]))
    # with it, a missing confidence is refused
    open_gate = (chosen or one()).replace("generation.enabled", False)
    return record_answers(trace, open_gate, Fixed(text, confidence), Full())


class Full:
    """Finds every claim half supported."""

    name = "full"

    def support(self, answer, passages):
        """Half."""
        return Weighed().support(answer, passages)._replace(score=0.5, claim=answer)


def expected(trace, chosen, row):
    """What the rules say of one case, in plain Python."""
    said = say(trace, chosen, row)
    if said.status != "ok":
        return said
    passages = [trace.chunks[number] for number in said.chunks]
    made = check_answer(trace.cases[row].query, passages, Drawn(), Weighed())
    confidence = made.confidence
    if chosen.generation.calibration is not None and not isnan(confidence):
        confidence = float(
            np.interp(confidence, chosen.generation.calibration.x, chosen.generation.calibration.y)
        )
    if chosen.generation.enabled and not confidence >= chosen.generation.min_generation_confidence:
        return said._replace(status="refuse", stage="generation")
    if chosen.support.enabled and not made.support >= chosen.support.min_support:
        return said._replace(status="refuse", stage="support")
    return said._replace(status="refuse", stage="hygiene") if made.refused else said


class TestByHead:
    """One question, one hit, one answer."""

    @pytest.mark.parametrize(
        ("sections", "confidence", "text", "stage", "reason"),
        [
            (
                {},
                0.59,
                "Yes.",
                "generation",
                "generation confidence 0.59 is below min_generation_confidence 0.6",
            ),
            (
                {},
                float("nan"),
                "Yes.",
                "generation",
                "generation confidence is missing, min_generation_confidence 0.6",
            ),
            (
                {"support": {"min_support": 0.51}},
                0.9,
                "Yes.",
                "support",
                "support of the weakest claim 0.5 is below",
            ),
            ({}, 0.9, "None", "support", "support of the weakest claim is missing"),
            ({"support": {"enabled": False}}, 0.9, "None", "hygiene", "nothing"),
        ],
    )
    def test_the_first_gate_that_refuses_is_named_with_its_numbers(
        self, sections, confidence, text, stage, reason
    ):
        """The first gate that refuses is named with its numbers."""
        said = decide(recorded(confidence, text), one(**sections))
        row = said.frame(reasons=True).iloc[0]
        assert (row["status"], row["decided_by"], row["answer"]) == ("refuse", stage, None)
        assert reason in row["reason"] or stage == "hygiene"
        assert [check.passes for check in said.explain("q") if check.gate == stage] == [False]

    def test_without_answers_the_chain_ends_at_confidence(self):
        """Without answers the chain ends at confidence."""
        said = decide(trace_of((ask(), [[Hit(0.25)]])), one())
        assert said.frame().loc[0, "status"] == "ok"
        assert not [
            check
            for check in said.explain("q")
            if check.gate in {"generation", "support", "hygiene"}
        ]

    def test_a_set_of_hits_without_an_answer_never_passes(self):
        """A set of hits without an answer never passes."""
        two = trace_of((ask(), [[Hit(0.25), Hit(0.5, page=3)]]))
        chosen = one(chosen={"final_k": 1, "order": "l2"})
        made = record_answers(two, chosen, Fixed(), Full(), decided_only=True)
        assert decide(made, chosen).frame().loc[0, "status"] == "ok"
        wider = decide(made, one(chosen={"final_k": 2, "order": "l2"}, gap={"enabled": False}))
        assert "no answer is recorded for these hits" in wider.frame(reasons=True).loc[0, "reason"]

    def test_a_flip_of_the_gates_on_answers_is_found(self):
        """A flip of the gates on answers is found."""
        near = flips(recorded(0.9), one(), "q").set_index("path")
        assert near.loc["support.min_support", "flips_at"] == pytest.approx(0.5)
        assert near.loc["generation.min_generation_confidence", "flips_at"] == pytest.approx(0.9)

    def test_the_thresholds_are_part_of_the_space(self):
        """The thresholds are part of the space."""
        trace = record_answers(random_trace(3, n_cases=20), one(), Drawn(), Weighed())
        assert {"generation.min_generation_confidence", "support.min_support"} <= full_space(
            trace, one()
        ).keys()


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.integers(0, 10_000))
def test_the_chain_says_what_the_rules_say(seed):
    """Plain Python and the arrays agree on cases with answers, at every depth."""
    trace = random_trace(seed, depths=1 + seed % 3)
    rng = np.random.default_rng(seed)
    for chosen in random_policies(seed, 2):
        drawn = [
            part
            for path, values in GATES.items()
            for part in (path, values[rng.integers(len(values))])
        ]
        knots = {"x": (0.0, 1.0), "y": (0.25, 0.75)} if seed % 4 == 0 else None
        under = chosen.replace(*drawn, "generation.calibration", knots)
        said = decide(record_answers(trace, under, Drawn(), Weighed()), under)
        for row in range(len(trace)):
            told = expected(trace, under, row)
            status = ("ok", "refuse", "ambiguous")[said.status[row]]
            assert (status, said.stage(row)) == (told.status, told.stage)


def test_answers_come_back_from_the_disk(tmp_path):
    """Answers come back from the disk."""
    trace = record_answers(random_trace(3, n_cases=6), one(), Drawn(), Weighed())
    trace.save(tmp_path / "t.parquet")
    back = Trace.load(tmp_path / "t.parquet")
    assert back.answers.text == trace.answers.text
    np.testing.assert_array_equal(back.answers.support, trace.answers.support)
    assert decide(back, one()).frame(reasons=True).equals(decide(trace, one()).frame(reasons=True))


def test_hits_without_text_are_counted():
    """Nothing can be written from them."""
    trace = random_trace(3, n_cases=6)
    blank = replace(trace, chunks=tuple(chunk._replace(text="") for chunk in trace.chunks))
    with pytest.warns(
        UserWarning, match=r"from the text of hits, and (\d+) of \1 have none; give it in"
    ):
        record_answers(blank, one(), Fixed(), Full())


def test_another_generator_makes_another_trace():
    """Another generator makes another trace."""
    trace = random_trace(3)
    made = Trace(trace.cases, trace.chunks, trace.arms, trace.hits, None, {"fingerprint": "f" * 16})
    one_, two = (record_answers(made, one(), Fixed(name=name), Full()).fingerprint for name in "ab")
    assert len({one_, two, made.fingerprint}) == 3


class TestNoConfidence:
    """A generator of the user that returns None as its confidence gives none."""

    def test_none_is_a_missing_confidence(self):
        """The answer is recorded as with NaN, and nothing is lost."""
        nothing = None
        answers = recorded(nothing).answers
        assert np.isnan(answers.confidence).all()
        assert answers.text

    def test_a_gate_of_confidence_needs_one(self):
        """As of NaN, the policy that gates on it is refused by name."""
        trace = trace_of((ask(), [[Hit(0.25)]]))
        nothing = None
        with pytest.raises(
            ValueError, match=r"needs a generator that gives a confidence .*, got fixed"
        ):
            record_answers(
                trace, one().replace("generation.enabled", True), Fixed(confidence=nothing), Full()
            )
