"""Decisions of one policy and tallies of many over a trace (raglab.replay)."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from raglab.decision import chain
from raglab.decision.decisions import GATE_OF
from raglab.decision.measurement import policy_pattern_hits
from raglab.decision.trace_view import KEPT_MEASUREMENTS, Measured
from raglab.lab.comparison import compare
from raglab.policy_parts.patterns import pattern_hits
from raglab.replay import decide, flips, steps, sweep, tally
from raglab.store.traces import Trace
from raglab.values import Status, TraceData
from worlds import (
    NAN,
    PATTERNS,
    Hit,
    ask,
    policy,
    random_policies,
    random_trace,
    trace_of,
    with_signals,
)

REPLAYED = settings(deadline=None, derandomize=True, max_examples=25)
CONFIDENT: dict[str, Any] = {"confidence": {"enabled": True}}
SIMILAR: dict[str, Any] = {"similarity": {"enabled": True}}
TWO_GROUPS = [
    Hit(0.5, "x/a.md", 1, {"product": "hull"}),
    Hit(0.5, "x/b.md", 2, {"product": "cargo"}),
]
UNDECIDED: dict[str, Any] = {
    "resolver": {"signature": False, "anchor": False, "min_group_gap": 0.25}
}


def _decide(hits, case=None, **sections):
    depths: Any = hits if hits and isinstance(hits[0], list) else [hits]
    return decide(trace_of((case or ask(), depths)), policy(**sections))


def _stage(decisions):
    return str(chain.STAGES[int(decisions.outcome.stage[0])][0])


# one case, gate by gate


@pytest.mark.parametrize(
    ("hits", "case", "sections", "stage", "reason"),
    [
        ([Hit(0.25)], ask("  \t"), {}, "empty_query", "empty query"),
        ([Hit(0.25)], ask("weather"), {"patterns": {"deny": ["weather"]}}, "deny", "out of domain"),
        (
            [Hit(0.25)],
            ask("weather"),
            {"patterns": {"allow": ["excess"]}},
            "allow",
            "out of domain",
        ),
        ([], ask(), {}, "no_hits", "no hits"),
        ([Hit(1.06)], ask(), {}, "l2", "1.06 is above max_l2 0.8"),
        ([Hit(0.25), Hit(0.81)], ask(), {"density": {"min_keep": 2}}, "density", "min_keep 2"),
        (
            [Hit(0.25)],
            ask("explain hull"),
            {"patterns": PATTERNS},
            "coverage",
            "missing document coverage for: hull",
        ),
        (
            [Hit(0.25, cosine=0.62)],
            ask(),
            SIMILAR,
            "similarity",
            "0.62 is below min_similarity 0.7",
        ),
        (
            [Hit(0.25, s_hybrid=0.27)],
            ask(),
            CONFIDENT,
            "confidence",
            "confidence 27 is below tau_default 40",
        ),
        (
            [Hit(0.25, s_hybrid=0.27)],
            ask(selected_sources=("a",)),
            CONFIDENT,
            "confidence",
            "below tau_explicit 30",
        ),
    ],
)
def test_a_refusal_names_its_gate_and_numbers(hits, case, sections, stage, reason):
    """Rule S0.2: the first gate that refuses decides, and says with which numbers."""
    decisions = _decide(hits, case, **sections)
    row = decisions.frame(reasons=True).iloc[0]
    assert (row["status"], decisions.stage(0), row["sources"]) == ("refuse", stage, [])
    assert reason in row["reason"]


def test_the_first_gate_that_refuses_decides():
    """Everything is wrong with this case.

    Switching gates off one by one moves the decision down the chain.
    """
    case, hits = ask("weather explain hull"), [Hit(1.5, cosine=0.1, s_hybrid=0.1)]
    sections: dict[str, Any] = {
        "patterns": PATTERNS | {"deny": ["weather"], "allow": ["excess"]},
        "density": {"min_keep": 2},
        "similarity": {"enabled": True},
        "confidence": {"enabled": True},
    }
    stages = [_stage(_decide(hits, case, **sections))]
    for gate in ("domain", "l2", "density", "coverage", "similarity", "confidence"):
        sections[gate] = sections.get(gate, {}) | {"enabled": False}
        stages.append(_stage(_decide(hits, case, **sections)))
    assert stages == ["deny", "l2", "density", "coverage", "similarity", "confidence", "gap"]


FIRST = Hit(0.5, "x/a.md", 1)
VENDORS = [Hit(0.5, source, tags={"vendor": "acme"}) for source in ("a.md", "b.md")]


@pytest.mark.parametrize(
    ("hits", "more", "stage"),
    [
        # wide enough a gap, one source within 2 pages, or alone
        ([FIRST, Hit(0.5, "b.md")], {}, "options"),
        ([FIRST, Hit(0.52, "b.md")], {}, "gap"),
        ([FIRST, Hit(0.5, "x/a.md", 3)], {}, "gap"),
        ([FIRST, Hit(0.5, "x/a.md", None)], {}, "single_group"),
        ([FIRST, Hit(0.5, "y/a.md", 1)], {}, "options"),
        ([FIRST, Hit(0.81, "b.md")], {}, "gap"),
        # how far pages agree is the policy's
        ([FIRST, Hit(0.5, "x/a.md", 4)], {"gap": {"near_pages": 3}}, "gap"),
        ([FIRST, Hit(0.5, "x/a.md", 2)], {"gap": {"near_pages": 0}}, "single_group"),
        # one core signature agrees, the strict one of tags that are no core ones does not
        (
            [Hit(0.5, "a.md", tags={"product": name}) for name in ("hull", " HULL")],
            {},
            "gap",
        ),
        (VENDORS, {}, "options"),
        (VENDORS, {"resolver": UNDECIDED["resolver"] | {"strict": True}}, "single_group"),
    ],
)
def test_near_hits_are_confident_where_they_agree(hits, more, stage):
    """Rule S2.4, at a least gap of 0.015."""
    assert _stage(_decide(hits, **UNDECIDED | more)) == stage


@pytest.mark.parametrize(("min_hits", "stage"), [(1, "gap"), (2, "gap"), (3, "coverage")])
def test_an_entity_may_have_to_stand_in_several_hits(min_hits, stage):
    """Two of three chosen hits hold it: `min_hits` 2 is met, 3 is not."""
    hits = [
        Hit(0.25, "a.md", 1, entities=("hull",)),
        Hit(0.25, "a.md", 2, entities=("hull",)),
        Hit(0.25, "a.md", 3),
    ]
    decisions = _decide(
        hits, ask("explain hull"), patterns=PATTERNS, coverage={"min_hits": min_hits}
    )
    assert _stage(decisions) == stage


def test_documents_may_name_an_entity_otherwise_than_questions():
    """By `document_entities` aliases alone if it has the name, by those of questions if not."""
    entities = {"hull": ["hull"], "fleet": ["fleet"]}
    chunks = [
        Hit(0.25, text="The hull is insured."),
        Hit(0.25, text="The vessel's body is insured."),
    ]
    trace = trace_of((ask("explain hull"), [chunks]))

    def named(**more):
        return policy_pattern_hits(
            trace, policy(patterns=PATTERNS | {"entities": entities} | more)
        ).chunk_entities

    assert named() == (("hull",), ())
    assert named(document_entities={"hull": ["vessel's body"]}) == ((), ("hull",))


CURVE = {"calibration": {"x": [0.2, 0.6], "y": [0.1, 0.5]}}
BROKEN = [
    Hit(0.25, text="what excess", cosine=0.4, s_hybrid=0.9),
    Hit(0.5, cosine=0.3, s_hybrid=0.5),
]


@pytest.mark.parametrize(
    ("hits", "n_reranked", "more", "points", "score"),
    [
        # no reranker ran
        ([Hit(0.25, text="what excess", s_hybrid=0.6)], None, {}, 60.0, "hybrid score"),
        # its first score is NaN: the best cosine is halfway between the knots
        (BROKEN, 2, {"fallback": "cosine", **CURVE}, 30.0, "calibrated cosine"),
        (BROKEN, 2, {"fallback": "hybrid", **CURVE}, 90.0, "hybrid score"),
        # nothing was measured: nothing speaks for an answer
        ([Hit(0.25, cosine=NAN, s_hybrid=0.9)], 1, {}, 0.0, "calibrated cosine"),
        ([Hit(0.25, s_hybrid=NAN)], None, {}, 0.0, "hybrid score"),
    ],
)
def test_without_usable_scores_another_score_stands_in(hits, n_reranked, more, points, score):
    """In place of the reranker's, and a warning says which."""
    confident = policy(confidence={"enabled": True} | more)
    decisions = decide(trace_of((ask(), [hits]), n_reranked=n_reranked), confident)
    assert decisions.confidence().tolist() == [pytest.approx(points)]
    assert _stage(decisions) == ("gap" if points >= 40.0 else "confidence")
    warning = f"reranker gave no usable scores: confidence is the {score}"
    assert decisions.warnings(0).count(warning) == 1


# ambiguity


# refinement


def _refined(points, **sections):
    depths = [[Hit(0.25, s_hybrid=value / 100.0)] for value in points]
    decisions = _decide(depths, confidence={"enabled": True}, **sections)
    return _stage(decisions), int(decisions.outcome.depth[0])


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([50, 0, 0], ("gap", 0)),
        ([20, 40, 0], ("gap", 1)),
        ([20, 30, 40], ("gap", 2)),
        ([20, 25, 30], ("confidence", 2)),
        ([20, 20.5, 90], ("confidence", 1)),
        ([20, 21, 90], ("gap", 2)),
        ([20, 30, 35, 39, 90], ("confidence", 3)),
        ([20], ("confidence", 0)),
    ],
)
def test_refinement_stops_where_it_is_confident_stable_or_deep(points, expected):
    """At tau 40, epsilon 1, max_depth 3: 20 then 20.5 is stable, 20 then 21 is not."""
    assert _refined(points) == expected


# labels


ANSWERED = [Hit(0.25, "x/a.md", 1), Hit(0.5, "x/b.md", 2)]


@pytest.mark.parametrize(
    ("hits", "more", "right"),
    [
        # an answer from a.md page 1 and b.md page 2
        *(
            (ANSWERED, more, right)
            for more, right in (
                ({}, True),
                ({"expect_sources": ("a.md",)}, True),
                ({"expect_sources": ("a.md#1", "b.md#2")}, True),
                ({"expect_sources": ("a.md", "a.md")}, True),
                ({"expect_sources": ("a.md", "c.md")}, False),
                ({"expect_sources": ("a.md#2",)}, False),
                ({"expect_sources_any": ("c.md", "b.md")}, True),
                ({"expect_sources_any": ("b.md", "b.md")}, True),
                ({"expect_sources_any": ("c.md",)}, False),
                ({"expect_sources": ("a.md",), "expect_sources_any": ("a.md",)}, True),
                ({"expect_sources": ("c.md",), "expect_sources_any": ("a.md",)}, False),
                ({"min_sources": 2}, True),
                ({"min_sources": 3}, False),
                ({"expect_status": "refuse"}, False),
                ({"expect_status": "ambiguous"}, False),
            )
        ),
        # all options shown, or the option that the case names
        *(
            (TWO_GROUPS, {"expect_status": "ambiguous", **more}, right)
            for more, right in (
                ({}, True),
                ({"expect_sources": ("a.md", "b.md")}, True),
                ({"expect_sources": ("c.md",)}, False),
                ({"expect_option": 2, "expect_sources": ("b.md",)}, True),
                ({"expect_option": 1, "expect_sources": ("b.md",)}, False),
                ({"expect_option": 3}, False),
            )
        ),
        # a right refusal needs no sources
        ([Hit(1.5)], {"expect_status": "refuse", "expect_sources": ("a.md",)}, True),
    ],
)
def test_the_contract(hits, more, right):
    """Rule S6.3 for an answer, a question back and a refusal."""
    assert _decide(hits, ask(**more), **UNDECIDED).right.tolist() == [right]


# patterns, arms, tables


def test_stored_pattern_hits_serve_only_their_own_patterns():
    """Rule S0.6: under the policy's own hash they are believed, else measured again."""
    bare = trace_of((ask(), [[Hit(0.25)]]))
    plain_policy, denies = policy(), policy(patterns={"deny": ["excess"]})
    of_plain, of_denies = (
        pattern_hits(bare.cases, bare.chunks, chosen.pattern_lists)
        for chosen in (plain_policy, denies)
    )
    forged = of_denies._replace(counts=np.zeros_like(of_denies.counts))
    for held, chosen, stage in (
        (of_plain, plain_policy, "gap"),
        (of_plain, denies, "deny"),
        (forged, denies, "gap"),
    ):
        assert _stage(decide(replace(bare, pattern_hits=held), chosen)) == stage


def test_arms_are_decided_apart():
    """Each arm by its own hits; an unknown arm is named with those there are."""
    trace = random_trace(3, n_cases=6, arms=2)
    chosen = random_policies(3, 1)[0]
    for place, arm in enumerate(trace.arms):
        decisions = decide(trace, chosen, arm=arm)
        assert [Status(int(s)).name for s in decisions.status] == [
            plain.say(trace, chosen, row, place).status for row in range(6)
        ]
    with pytest.raises(ValueError, match="hybrid, iterative, got 'graph'"):
        decide(trace, chosen, arm="graph")


def test_verbs_take_a_measured_trace():
    """They say the same of it as of the trace, and hand out the trace itself."""
    trace, (first, second) = random_trace(2), random_policies(2, 2)
    held, case = Measured(trace), trace.cases[0].id
    assert decide(held, first).trace is trace
    for verb in (
        lambda of: decide(of, first).frame(),
        lambda of: sweep(of, [first, second]),
        lambda of: steps(of, first),
        lambda of: flips(of, first, case),
        lambda of: compare(of, first, second).table,
    ):
        pd.testing.assert_frame_equal(verb(held), verb(trace))
    with pytest.raises(AttributeError):
        held.trace = random_trace(2)  # type: ignore[misc]


# the whole chain against plain Python


@REPLAYED
@given(seed=st.integers(0, 100_000))
def test_every_decision_is_that_of_the_plain_rules(seed):
    """Status, stage, hits as chosen, options, depth, confidence, over gates, rules, 1-3 depths.

    The chosen hits are compared in order.
    """
    trace = random_trace(seed, n_cases=6, depths=1 + seed % 3)
    drawn = random_policies(seed, 3)
    for chosen in (*drawn, *with_signals(drawn, seed)):
        decisions = decide(trace, chosen)
        confidence = decisions.confidence()
        for row, case in enumerate(trace.cases):
            expected = plain.say(trace, chosen, row)
            stage = chain.STAGES[int(decisions.outcome.stage[row])][0]
            shown = tuple(option.chunks for option in decisions.options(case.id))
            assert (
                Status(int(decisions.status[row])).name,
                stage,
                tuple(decisions.chosen(row)),
                shown,
            ) == expected[:4]
            depth = int(decisions.outcome.depth[row])
            if GATE_OF.get(stage) != "domain":
                assert (depth, float(confidence[row])) == expected[4:]
            if stage.startswith("signals"):  # the gate that is named is one that fires
                name = decisions.decided_by[row].removeprefix("signals.")
                hits = plain.hits_of(trace, chosen, row, 0, depth)
                assert plain.fires(chosen.signals[name], plain.signal_of(chosen, hits, name))


# many policies


def test_an_unknown_engine_is_refused():
    """The message lists the engines."""
    with pytest.raises(ValueError, match="auto, numpy or numba, got 'gpu'"):
        tally(random_trace(0), random_policies(0, 1), engine="gpu")


def test_threads_share_a_measured_trace():
    """Also where each drops what another one measured, since there are more keys than are kept."""
    held, keys = Measured(random_trace(1)), range(2 * KEPT_MEASUREMENTS + 1)

    def ask_often(start):
        return all(
            held.once("number", (start + n) % len(keys), object) is not None for n in range(3_000)
        )

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask_often, range(8)))
    finally:
        sys.setswitchinterval(switching)


@pytest.mark.parametrize("some", [policy(), policy(**CONFIDENT)])
def test_no_cases_make_no_decisions(some):
    """A split or slice may be empty: the results are, and no error of numpy."""
    whole = random_trace(0)
    empty = Trace(**{part.name: getattr(whole, part.name) for part in fields(TraceData)}).subset([])
    decisions = decide(empty, some)
    assert len(decisions.frame(reasons=True)) == 0
    assert len(sweep(empty, [some, some.replace("chosen.final_k", 1)])) == 2
