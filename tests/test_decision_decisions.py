from __future__ import annotations

import pandas as pd
import pytest

from decided import by_cost, with_columns
from generators import Drawn, Weighed
from raglab.decision import chain
from raglab.decision.decisions import DECIDED_BY, GATE_OF
from raglab.live.answer_recording import record_answers
from raglab.replay import decide
from raglab.values import Case, Status
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of, with_signals

COLUMNS = [
    "case_id",
    "query",
    "expect_status",
    "status",
    "decided_by",
    "confidence",
    "answer",
    "sources",
    "options",
    "depth",
    "correct",
    "why",
    "split",
    "policy_id",
]


def _row(said, row):
    """A row of the frame, case by case: what the frame makes in one pass."""
    case = said.trace.cases[row]
    answer = said.answer(row) if said.status[row] == Status.ok else None
    options = said.options(case.id)
    return {
        "case_id": case.id,
        "query": case.query,
        "expect_status": case.expect_status,
        "status": Status(int(said.status[row])).name,
        "decided_by": said.decided_by[row],
        "confidence": float(said.confidence()[row]),
        "answer": None if answer is None else answer.text,
        "sources": list(
            dict.fromkeys(said.trace.chunks[chunk].shown for chunk in said.chosen(row))
        ),
        "options": [[f"{name}#{page}" for name, page in option.sources] for option in options],
        "depth": int(said.outcome.depth[row]),
        "correct": None if case.expect_status is None else bool(said.right[row]),
        "why": said.why(row),
        "split": case.split,
        "policy_id": said.policy.policy_id,
        "reason": said.reason(row),
        "warnings": said.warnings(row),
    }


def _deciding_gate(said, row):
    """Name of what decided, by the checks of the case.

    What the frame reads from the margins of all cases.
    """
    stage = said.stage(row)
    if GATE_OF[stage] != "signals":
        return str(DECIDED_BY[chain.STAGE[stage]])
    asks = stage == "signals_ask"
    failed = (
        one for one in said.explain(said.trace.cases[row].id) if not one.passes and "." in one.gate
    )
    return next(
        one.gate
        for one in failed
        if not one.rule.endswith("warns") and one.rule.endswith("asks") == asks
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_frame_is_what_its_cases_are_one_by_one(seed):
    """Every column, over random traces with answers, depths, signals, chains and cost decisions."""
    trace = with_columns(random_trace(seed, n_cases=14, depths=2), seed)
    asked = [
        one.replace("signals.words.max", 3.0, "signals.words.on_fire", "ask")
        for one in random_policies(seed, 2)
    ]
    for one in (*random_policies(seed, 2), *with_signals(random_policies(seed, 3), seed), *asked):
        said = decide(record_answers(trace, one, Drawn(), Weighed()), one)
        frame = said.frame(reasons=True)
        plain = pd.DataFrame([_row(said, row) for row in range(len(trace))])
        pd.testing.assert_frame_equal(frame[list(plain)], plain)
        assert frame["decided_by"].tolist() == [
            _deciding_gate(said, row) for row in range(len(trace))
        ]
        assert said.frame().columns.tolist()[: len(COLUMNS)] == COLUMNS


def test_a_frame_of_a_decision_by_cost_is_what_its_cases_are():
    """Rule S2.17: `expected_cost` decides what has hits.

    The columns are those of the cases one by one.
    """
    trace = random_trace(2, n_cases=20)
    part = {"center": 0.5, "scale": 0.25, "missing": 0.0, "weights": (2.0, 0.0, -2.0, 0.0)}
    said = decide(trace, by_cost(policy(), (1.0, 0.0, 0.0, 0.5), {"top1_cosine": part}))
    plain = pd.DataFrame([_row(said, row) for row in range(len(trace))])
    frame = said.frame(reasons=True)
    pd.testing.assert_frame_equal(frame[list(plain)], plain)
    assert set(frame["decided_by"]) == {"answered", "expected_cost", "no_hits"}


def _three():
    """One answerable case, one to refuse, one without a label.

    The best hit's cosine is 0.875 in all.
    """
    hits = [Hit(0.25, "a.md"), Hit(0.75, "b.md")]
    return trace_of(
        (ask(expect_sources=("a.md",)), [hits]),
        (Case("r", "who won", "refuse"), [hits]),
        (Case("n", "what for"), [hits]),
    )


def test_a_contract_says_in_what_it_is_met():
    """The wrong status first, then other sources than expected; without a label nothing."""
    answers = policy(confidence={"enabled": False})
    frame = decide(_three(), answers).frame()
    assert frame["status"].tolist() == ["ok"] * 3
    assert frame["correct"].tolist() == [True, False, None]
    assert frame["why"].tolist()[:2] == [
        "ok as labelled, expected sources",
        "ok where the label is refuse",
    ]
    assert frame["why"].isna().tolist() == [False, False, True]
    other = trace_of((ask(expect_sources=("c.md",)), [[Hit(0.25, "a.md")]]))
    assert (
        decide(other, answers).why(0)
        == "ok as labelled, but the answer rests on other sources than expected"
    )


def test_changed_cases_are_named_with_what_they_were():
    """A threshold above all cosines refuses all three.

    One contract is lost, one gained, one has no label.
    """
    before = decide(_three(), policy(confidence={"enabled": False}))
    after = decide(
        _three(),
        policy(confidence={"enabled": False}, similarity={"enabled": True, "min_similarity": 0.95}),
    )
    changed = before.changed(after)
    assert changed["case_id"].tolist() == ["q0", "r1", "n2"]
    assert changed["change"].tolist() == ["lost", "gained", "other"]
    assert (changed["was"].unique().tolist(), changed["now"].unique().tolist()) == (
        ["ok"],
        ["refuse"],
    )
    assert (changed["decided_by_was"][0], changed["decided_by_now"][0]) == (
        "answered",
        "similarity",
    )
    assert changed["correct_was"].tolist() == [True, False, None]
    assert changed["correct_now"].tolist() == [False, True, None]
    assert len(before.changed(before)) == 0
    with pytest.raises(
        ValueError, match=r"must be on the same cases to be compared, got others \(3 and 1\)"
    ):
        before.changed(decide(trace_of((ask(), [[Hit(0.25)]])), policy()))


def test_numbers_that_go_by_l2_are_of_the_nearest_hit():
    """The first in the arm's order is another.

    Cosine and gap are of the nearest hits, and the messages say so.
    """
    hits = [Hit(0.5, "near.md", rank=1), Hit(0.9, "first.md", rank=0)]
    checks = {
        check.gate: check.text for check in decide(trace_of((ask(), [hits])), policy()).explain("q")
    }
    assert checks["similarity"].startswith("similarity of the nearest hit 0.75 ")
    assert checks["l2"].startswith("l2 of the nearest hit 0.5 ")
    both = [Hit(0.5, "near.md", rank=1), Hit(0.6, "next.md", rank=2), Hit(0.7, "first.md", rank=0)]
    checks = {
        check.gate: check.text for check in decide(trace_of((ask(), [both])), policy()).explain("q")
    }
    assert checks["gap"].startswith("gap of the two nearest hits 0.1 ")
