"""The laws that hold for every gate and for the whole chain, and where one of them stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab import gates, resolver
from raglab.decision.chain import STAGES, decide_cases
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.metrics import COUNTS
from raglab.policy import PolicyData
from raglab.replay import decide, sweep, tally
from raglab.values import Hits, Status, TraceData
from worlds import PATTERNS, Hit, ask, policy, random_policies, random_trace, trace_of

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=60)
CHAIN = settings(deadline=None, derandomize=True, max_examples=8)
SEEDS = st.integers(0, 100_000)

# Every margin function of a measurement x, a threshold t and a switch, each with another
# measurement drawn beside it.
GATES: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "domain": lambda x, t, on: gates.domain_margins(x, t, x, True, on),
    "l2": lambda x, t, on: gates.l2_margins(x, gates.L2Thresholds(t, NAN, on)),
    "l2_soft": lambda x, t, on: gates.l2_margins(x, gates.L2Thresholds(-1.0, t, on)),
    "density": lambda x, t, on: gates.density_margins(x, gates.DensityThresholds(t, on)),
    "gap": lambda x, t, on: gates.gap_margins(x, 2, False, gates.GapThresholds(t, on)),
    "coverage": lambda x, t, on: gates.coverage_margins(np.add(x, t), on),
    "similarity": lambda x, t, on: gates.similarity_margins(x, gates.SimilarityThresholds(t, on)),
    "sufficiency": lambda x, t, on: gates.sufficiency_margins(
        x, gates.SufficiencyThresholds(t, on)
    ),
    "fused": lambda x, t, on: gates.fused_margins(x, gates.FusedThresholds(t, on)),
    "tau_default": lambda x, t, on: gates.confidence_margins(
        x, False, gates.ConfidenceThresholds(t, NAN, on)
    ),
    "tau_explicit": lambda x, t, on: gates.confidence_margins(
        x, True, gates.ConfidenceThresholds(NAN, t, on)
    ),
}
UPPER = {"domain", "l2", "l2_soft", "coverage"}  # tightened downwards; the others upwards
VALUES = st.sampled_from([0.0, 0.25, 0.35, 0.5, 0.7, 1.0, 2.0, NAN])
BOUNDS = st.sampled_from([0.0, 0.25, 0.35, 0.5, 0.7, 1.0, 2.0])


@pytest.mark.parametrize("name", GATES)
@LAWFUL
@given(
    xs=st.lists(VALUES, min_size=1, max_size=4),
    rows=st.lists(st.tuples(BOUNDS, st.booleans()), min_size=1, max_size=4),
)
def test_one_is_a_cell_of_many(name, xs, rows):
    """Thresholds [P, 1] on cases [Q] give in cell (p, q) the bits policy p alone gives for q."""
    bound, on = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    many = [
        np.broadcast_to(margin, (len(rows), len(xs)))
        for margin in GATES[name](np.array(xs), bound, on)
    ]
    fired = np.broadcast_to(gates.fires(tuple(many)), (len(rows), len(xs)))
    for p, (t, switch) in enumerate(rows):
        for q, x in enumerate(xs):
            one = GATES[name](x, t, switch)
            np.testing.assert_array_equal(
                [float(margin) for margin in one], [margin[p, q] for margin in many]
            )
            assert gates.explain(type(one)(*one)).fired == fired[p, q]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GATES)
@LAWFUL
@given(x=VALUES, one=BOUNDS, two=BOUNDS)
def test_a_tighter_threshold_never_passes_more(name, x, one, two):
    """Where the tighter of two thresholds passes, the looser does."""
    loose, tight = (
        (max(one, two), min(one, two))
        if name in UPPER - {"domain", "coverage"}
        else (min(one, two), max(one, two))
    )
    assert gates.fires(GATES[name](x, tight, True)) or not gates.fires(GATES[name](x, loose, True))


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("bound", [-1.0, 0.0, 0.5, 4.0, np.inf, -np.inf])
def test_missing_never_passes(name, bound):
    """NaN fires every gate, by whatever threshold, unless the gate is off."""
    assert gates.fires(GATES[name](NAN, bound, True))
    if name != "domain":
        assert not gates.fires(GATES[name](NAN, bound, np.array(False)))


SEEN = st.tuples(*[st.sampled_from([-np.inf, 0.0, 0.25, 0.5, NAN])] * 5)
RULES = st.tuples(*[st.sampled_from([-np.inf, 0.0, 0.25, 0.5, NAN])] * 5)


@LAWFUL
@given(cases=st.lists(SEEN, min_size=1, max_size=3), rules=st.lists(RULES, min_size=1, max_size=3))
def test_a_rule_of_many_is_the_rule_of_each(cases, rules):
    """The resolver's margins, cell by cell, and no rule decides on a missing measurement."""

    def contest(rows):
        gap, sig, sig_gap, anchor, anchor_gap = np.moveaxis(
            np.asarray(rows, dtype=np.float64), -1, 0
        )
        zero = np.zeros_like(gap, dtype=np.int64)
        return resolver.Contest(zero, gap, zero, sig, sig_gap, zero, anchor, anchor_gap)

    with np.errstate(invalid="ignore"):
        many = resolver.rule_margins(
            contest(cases), resolver.RuleThresholds(*np.array(rules).T[:, :, None])
        )
        for p, row in enumerate(rules):
            for q, case in enumerate(cases):
                one = resolver.rule_margins(contest(case), resolver.RuleThresholds(*row))
                np.testing.assert_array_equal(
                    [float(m) for m in one],
                    [np.broadcast_to(m, (len(rules), len(cases)))[p, q] for m in many],
                )
                decided = [bool(resolver.decides(margin)) for margin in one]
                missing = [np.isnan(case[0]), np.isnan(case[1:3]).any(), np.isnan(case[3:]).any()]
                assert not any(d and m for d, m in zip(decided, missing, strict=True))


# the whole chain


def _answered(trace, chosen):
    return {
        case.id
        for case, status in zip(trace.cases, decide(trace, chosen).status, strict=True)
        if status == Status.ok
    }


def _rows(trace, rows):
    return TraceData(
        tuple(trace.cases[row] for row in rows),
        trace.chunks,
        trace.arms,
        Hits(*(field[rows] for field in trace.hits)),
    )


@CHAIN
@given(seed=SEEDS)
def test_a_policy_decides_alone_as_among_many(seed):
    """Stage, chosen set and depth of policy p for case q.

    In a block of policies, alone, and with the case alone.
    """
    trace = random_trace(seed, n_cases=5, depths=1 + seed % 3)
    fixed = {
        "chosen__final_k": 2,
        "chosen__order": "rank",
        "resolver__strict": False,
        "resolver__max_options": 2,
    }
    policies = random_policies(
        seed, 6, **fixed, resolver__entity_extractor=True, patterns__allow=()
    )
    policies = [one.replace("patterns.allow", ()) for one in policies]
    found = measured_tables(trace, policies[0]).evidence
    many = decide_cases(found, policy_thresholds(policies), (6, 5))
    for p, chosen in enumerate(policies):
        one = decide(trace, chosen).outcome
        assert all((field[p] == alone).all() for field, alone in zip(many, one, strict=True))
    for q in range(5):
        alone = decide(_rows(trace, [q]), policies[0])
        together = decide(trace, policies[0])
        assert alone.frame(reasons=True).iloc[0].equals(together.frame(reasons=True).iloc[q])


@CHAIN
@given(seed=SEEDS)
def test_a_tally_counts_what_decide_says(seed):
    """Every policy of a mixed set, structures and depths included.

    Stages and counts are those of its own decisions.
    """
    trace = random_trace(seed, n_cases=6, depths=1 + seed % 2)
    policies = random_policies(seed, 5)
    seen = tally(trace, policies, engine="numpy")
    label = np.array([Status[case.expect_status] for case in trace.cases])
    for place, chosen in enumerate(policies):
        said = decide(trace, chosen)
        assert (
            seen.stages[place].tolist()
            == np.bincount(said.outcome.stage, minlength=len(STAGES)).tolist()
        )
        assert dict(zip(COUNTS, seen.counts[place].tolist(), strict=True)) == {
            "refused_ok": ((said.status == Status.refuse) & (label == Status.ok)).sum(),
            "wrong": ((said.status == Status.ok) & ~said.right).sum(),
            "missed_ambiguity": (
                (said.status != Status.ambiguous) & (label == Status.ambiguous)
            ).sum(),
            "over_ask": ((said.status == Status.ambiguous) & (label != Status.ambiguous)).sum(),
            "answered": (said.status == Status.ok).sum(),
            "passed": said.right.sum(),
        }


@CHAIN
@given(seed=SEEDS)
def test_tallies_sum_to_the_cases_and_their_order_is_irrelevant(seed):
    """Each policy decides each case once; a shuffled trace gives the same sweep."""
    trace = random_trace(seed, n_cases=7)
    policies = random_policies(seed, 4)
    seen = tally(trace, policies)
    assert seen.stages.sum(axis=1).tolist() == [7] * 4
    assert seen.labels.sum() == 7
    shuffled = _rows(trace, np.random.default_rng(seed).permutation(7))
    assert sweep(trace, policies).equals(sweep(shuffled, policies))


HARD_ONLY = {"gap__enabled": False, "l2__soft_max_l2": None}
ANCHORS = {
    "coverage__enabled": False,
    "gap__enabled": True,
    "gap__min_gap": 0.5,
    "density__enabled": False,
    "resolver__overview": False,
    "resolver__entities": False,
    "resolver__min_group_gap": None,
    "resolver__signature": False,
    "resolver__anchor": True,
    "resolver__min_anchor_sim": None,
}

# Tightening a threshold never answers more: from loose to tight, under the conditions stated, over
# the depths stated.
HOLDS: tuple[tuple[str, tuple[Any, ...], dict[str, Any], int], ...] = (
    ("confidence.enabled", (False, True), {}, 3),
    ("confidence.tau_default", (25.0, 50.0, 75.0, 100.0), {}, 3),
    ("confidence.tau_explicit", (25.0, 50.0, 75.0, 100.0), {}, 3),
    ("similarity.enabled", (False, True), {}, 3),
    ("similarity.min_similarity", (0.0, 0.25, 0.5, 0.75), {}, 3),
    ("fused.enabled", (False, True), {}, 3),
    ("fused.min_fused", (0.25, 0.5, 0.75, 1.0), {}, 3),
    ("density.min_keep", (1, 2, 3, 4), {}, 1),
    ("density.min_keep", (1, 2, 3, 4), {"gap__enabled": False}, 3),
    ("l2.max_l2", (1.0, 0.75, 0.5, 0.25, 0.0), HARD_ONLY | {"chosen__order": "l2"}, 3),
    ("l2.max_l2", (1.0, 0.75, 0.5, 0.25, 0.0), HARD_ONLY | {"coverage__enabled": False}, 3),
    (
        "l2.soft_max_l2",
        (1.25, 1.0, 0.75, 0.5, None),
        {"gap__enabled": False, "chosen__order": "l2"},
        3,
    ),
    (
        "l2.soft_max_l2",
        (1.25, 1.0, 0.75, 0.5, None),
        {"gap__enabled": False, "coverage__enabled": False},
        3,
    ),
    ("gap.min_gap", (None, 0.0, 0.25, 0.5), {"coverage__enabled": False}, 3),
    ("resolver.min_group_gap", (0.0, 0.25, 0.5, None), {"coverage__enabled": False}, 3),
    ("resolver.min_sig_sim", (None, 0.5, 0.75), {"coverage__enabled": False}, 3),
    ("resolver.min_anchor_sim_gap", (None, 0.25, 0.5), ANCHORS, 3),
)


@pytest.mark.parametrize(("path", "values", "fixed", "depths"), HOLDS)
def test_tightening_never_answers_more(path, values, fixed, depths):
    """Tau, min_similarity, min_fused always; min_keep without refinement or without the gap.

    The rest as stated.
    """
    moved = 0
    for seed in range(3):
        trace = random_trace(seed, n_cases=16, depths=1 + seed % depths)
        for chosen in random_policies(seed, 2, **fixed):
            found = [_answered(trace, chosen.replace(path, value)) for value in values]
            for loose, tight in pairwise(found):
                assert tight <= loose
                moved += tight < loose
    assert moved > 0


def _moves(hits, query, path, loose, tight, **sections):
    depths = hits if isinstance(hits[0], list) else [hits]
    trace, chosen = trace_of((ask(query), depths)), policy(patterns=PATTERNS, **sections)
    return [decide(trace, chosen.replace(path, value)).stage(0) for value in (loose, tight)]


APART = {"resolver": {"signature": False, "anchor": False, "min_group_gap": None}}


def test_a_tighter_l2_may_answer_more_through_the_gap():
    """At 0.75 two hits too close to call ask the user.

    At 0.5 one of them is left, and a lone hit is confident.
    """
    hits = [Hit(0.5, "a.md"), Hit(0.625, "b.md")]
    assert _moves(hits, "excess", "l2.max_l2", 0.75, 0.5, gap={"min_gap": 0.25}, **APART) == [
        "options",
        "gap",
    ]


def test_a_tighter_gap_may_answer_more_through_entity_fill():
    """Confident, the two near hits lack the entity.

    Handed over, the resolver fills it in from a far hit.
    """
    hits = [Hit(0.25, page=1), Hit(0.5, page=9), Hit(2.0, page=20, entities=("hull",))]
    assert _moves(hits, "explain hull", "gap.min_gap", 0.25, 0.5) == ["coverage", "single_group"]


def test_a_larger_min_keep_may_answer_more_through_refinement():
    """Ambiguity ends the loop, a refusal does not: the next depth answers."""
    first = [Hit(0.5, "a.md"), Hit(0.5, "b.md")]
    second = [Hit(0.25, page=page) for page in (1, 2, 3)]
    assert _moves([first, second], "excess", "density.min_keep", 1, 3, **APART) == [
        "options",
        "gap",
    ]


@pytest.mark.parametrize(
    ("fields", "fixed"),
    [
        (("l2",), {"l2__enabled": True}),
        (("cosine",), {"similarity__enabled": True}),
        (("s_hybrid", "s_rerank"), {"confidence__enabled": True, "confidence__fallback": "hybrid"}),
        (
            ("cosine", "s_hybrid", "s_rerank"),
            {"confidence__enabled": True, "confidence__fallback": "cosine"},
        ),
        (("sig_sim", "sig_sim_strict"), {"coverage__enabled": False}),
        (("anchor_sim",), {"coverage__enabled": False}),
    ],
)
def test_a_measurement_that_is_missing_answers_nothing(fields, fixed):
    """With a field all NaN.

    Nothing is answered by a gate that reads it, nothing more by a rule that does.
    """
    for seed in range(3):
        trace = random_trace(seed, n_cases=12)
        blank = {name: np.full_like(getattr(trace.hits, name), NAN) for name in fields}
        missing = TraceData(trace.cases, trace.chunks, trace.arms, trace.hits._replace(**blank))
        for chosen in random_policies(seed, 2, **fixed):
            found = _answered(missing, chosen)
            assert found <= _answered(trace, chosen)
            assert not found or "sim" in fields[0]


def test_disk_width_makes_no_second_case():
    """A float32 0.35 from disk decides alike for one or many policies at float64 threshold 0.35."""
    trace = trace_of((ask(), [[Hit(float(np.float32(0.35)), cosine=float(np.float32(0.35)))]]))
    for path, section in (
        ("l2.max_l2", {"l2": {"soft_max_l2": None}}),
        ("similarity.min_similarity", {"similarity": {"enabled": True}}),
    ):
        policies = [
            policy(**section).replace(path, value)
            for value in (0.34, 0.35, float(np.float32(0.35)), 0.36)
        ]
        together = tally(trace, policies).counts[:, COUNTS.index("answered")].tolist()
        assert together == [len(_answered(trace, one)) for one in policies]


def test_a_hostile_policy_and_query_do_not_hang():
    """An exponential pattern and a query of 100,000 characters load and decide under a second."""
    hostile = PolicyData.from_mapping(
        {"patterns": {"deny": ["(a+)+$", ["(a|a)*b", "(.*)*c"]], "entities": {"x": ["(a*)*d"]}}}
    )
    trace = trace_of((ask("a" * 100_000 + "!"), [[Hit(0.25)]]))
    started = time.process_time()
    assert decide(trace, hostile).status[0] != Status.ambiguous
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("pattern", ["(?=a)", ["hull", "(?!fleet)"]])
def test_look_ahead_is_refused_when_the_policy_is_loaded(pattern):
    """Alone or in a list, the error says that the engine has no look-ahead and what to write."""
    with pytest.raises(
        ValueError, match=r"linear-time regular expression, got .*write look-around as a list"
    ):
        PolicyData.from_mapping({"patterns": {"deny": [pattern]}})
