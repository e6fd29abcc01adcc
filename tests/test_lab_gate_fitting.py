"""A generator's confidence made a probability, and answers from tables; both replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from answered_traces import Sure
from generators import Weighed
from raglab.lab.gate_fitting import (
    answer_outcomes,
    calibrate_answers,
    calibrate_cosine,
    case_signals,
)
from raglab.live.answer_recording import record_answers
from raglab.replay import decide
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from refusals import refused
from worlds import Hit, ask, policy, trace_of

CHOSEN = Policy.from_mapping(policy().model_dump())


def world(rounds=1):
    """Ten questions a round, the last of them to refuse."""
    cases = [
        ask(
            f"excess {place or ''} number {n}",
            "refuse" if n == 9 else "ok",
            id=f"q{place or ''}{n}",
            answer=None if n == 9 else "£250 excess",
        )
        for place in range(rounds)
        for n in range(10)
    ]
    return record_answers(
        trace_of(*((case, [[Hit(0.25)]]) for case in cases)), CHOSEN, Sure(), Weighed()
    ), CHOSEN


def test_right_is_labelled_ok_and_says_the_gold_answer():
    """6, 7 and 8 are; 9 says it too, but is to be refused."""
    trace, chosen = world()
    table = answer_outcomes(trace, chosen)
    assert table["raw"].tolist() == [n / 10 for n in range(10)]
    assert table.loc[table["right"], "case_id"].tolist() == [f"q{n}{n}" for n in (6, 7, 8)]


def test_the_frame_states_the_basis_of_right():
    """Text where a case labelled ok has a gold answer.

    Of one without, and of one to refuse, the sources.
    """
    trace, chosen = world()
    cases = (trace.cases[0]._replace(answer=None), *trace.cases[1:])
    table = answer_outcomes(replace(trace, cases=cases), chosen)
    assert table["basis"].tolist() == ["sources", *["text"] * 8, "sources"]


def test_the_policy_carries_the_curve():
    """It rises, is in [0, 1], remembers its questions, and moves the gate's confidence."""
    trace, chosen = world(4)
    fitted = calibrate_answers(trace, chosen)
    knots = fitted.policy.generation.calibration
    assert knots.fitted_on
    assert (np.diff(knots.y) >= 0).all()
    after = answer_outcomes(trace, fitted.policy)
    assert after["confidence"].tolist() == pytest.approx(
        np.interp(after["raw"], knots.x, knots.y).tolist()
    )
    assert fitted.policy.policy_id != chosen.policy_id
    assert (
        Policy.from_mapping(fitted.policy.model_dump(mode="json")).policy_id
        == fitted.policy.policy_id
    )
    sure = decide(trace, fitted.policy.replace("generation.min_generation_confidence", 1.0))
    assert (sure.status != 0).all()


@pytest.mark.parametrize(("rounds", "counts"), [(1, "3 and 7"), (3, "9 and 21")])
def test_few_right_answers_carry_no_calibration(rounds, counts):
    """Ten of each kind are the least, as for `calibrate_signal`."""
    refused(
        f"at least 10 right answers .* got {counts}; label more", calibrate_answers, *world(rounds)
    )


def test_few_right_cases_carry_no_calibrated_cosine():
    """The same number of the cosine."""
    refused(
        r"at least 10 right cases .* label more",
        calibrate_cosine,
        _by_cosine(14, rising=True),
        CHOSEN,
    )


def test_a_trace_without_answers_is_refused():
    """The message says how to record them."""
    refused(
        "record them with",
        calibrate_answers,
        Trace(*_parts(trace_of((ask(), [[Hit(0.25)]])))),
        Policy.load(),
    )


def _by_cosine(n, *, rising):
    """Questions whose hits are the nearer, the oftener they are right, or the other way about.

    No reranker's score.
    """
    cases = [
        ask(expect_sources_any=("guide.md",) if (place * 7 % n < place) == rising else ("b.md",))
        for place in range(n)
    ]
    hits = [[Hit(2.0 - 2.0 * place / n, cosine=place / n, s_hybrid=1.0)] for place in range(n)]
    return Trace(
        *_parts(
            trace_of(*((case, [row]) for case, row in zip(cases, hits, strict=True)), n_reranked=1)
        )
    )


def test_the_cosine_becomes_the_probability_of_being_right():
    """Fitted where no reranker score is usable, confidence is the right share and orders cases."""
    trace = _by_cosine(60, rising=True)
    fitted = calibrate_cosine(trace, CHOSEN)
    knots = fitted.confidence.calibration
    assert knots.fitted_on
    points = decide(trace, fitted).confidence()
    assert (np.diff(points) >= 0.0).all()
    assert points[0] < 25.0
    assert points[-1] > 75.0
    right = case_signals(trace, fitted).right
    assert points.mean() == pytest.approx(100.0 * right.mean(), abs=2.0)


def test_a_cosine_that_ranks_the_wrong_way_is_refused():
    """It would make the far surer than the near."""
    refused("keep fallback: hybrid", calibrate_cosine, _by_cosine(60, rising=False), CHOSEN)


@pytest.mark.parametrize(
    ("knots", "rule"),
    [
        ({"x": [0.0, 1.0], "y": [0.0, 1.5]}, r"y must lie in \[0, 1\]"),
        ({"x": [0.0, 1.0], "y": [1.0, 0.0]}, "y must not fall"),
        ({"x": [], "y": []}, "at least one"),
    ],
)
def test_a_curve_that_is_none(knots, rule):
    """A probability outside its range, or one that falls with the confidence, does not load."""
    refused(rule, Policy.from_mapping, {"generation": {"calibration": knots}})


def _parts(trace):
    return trace.cases, trace.chunks, trace.arms, trace.hits, trace.pattern_hits, trace.meta
