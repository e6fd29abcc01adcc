"""Gates on signals.

Bounds of any signal that refuse, ask back or warn (raglab.gating.signal_gates, rule S2.15).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab import gates
from raglab.audit.explanation import check_differences, decide_by_checks
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.gating.signal_gates import SignalThresholds, signal_margins
from raglab.lab.search_space import full_space
from raglab.policy import PolicyData
from raglab.replay import decide, steps
from raglab.signals import signal
from raglab.store.policies import Policy
from raglab.values import Status
from worlds import NAN, Hit, ask, policy, random_policies, random_trace, trace_of, with_signals

LAWFUL = settings(deadline=None, derandomize=True, max_examples=25)
SEEDS = st.integers(0, 100_000)
NEAR, FAR = Hit(0.25, "x/a.md", 1, {"product": "hull"}), Hit(0.5, "x/b.md", 2, {"product": "cargo"})
CONFIDENT: dict[str, Any] = {"gap": {"enabled": False}, "sufficiency": {"enabled": False}}


def _decide(hits, **gated):
    return decide(trace_of((ask(), [hits])), policy(**CONFIDENT, signals=gated))


def _said(decisions):
    row = decisions.frame().iloc[0]
    return row["status"], row["decided_by"], decisions.stage(0)


# one case by head: the gap of the two hits is 0.25, the cosine of the first 0.875


@pytest.mark.parametrize(
    ("gated", "outcome", "reason"),
    [
        (
            {"gap": {"min": 0.25, "max": 0.25}},
            ("ok", "answered", "gap"),
            "every gate that is on passes",
        ),
        (
            {"gap": {"min": 0.26}},
            ("refuse", "signals.gap", "signals"),
            "signal gap 0.25 is below min 0.26",
        ),
        (
            {"gap": {"max": 0.2}},
            ("refuse", "signals.gap", "signals"),
            "signal gap 0.25 is above max 0.2",
        ),
        (
            {"gap": {"min": 0.26, "on_fire": "ask"}},
            ("ambiguous", "signals.gap", "signals_ask"),
            "is below min 0.26",
        ),
        (
            {"gap": {"min": 0.26, "on_fire": "ask"}, "top1_cosine": {"min": 0.9}},
            ("refuse", "signals.top1_cosine", "signals"),
            "signal top1_cosine 0.875 is below min 0.9",
        ),
    ],
)
def test_a_signal_outside_its_bounds_refuses_asks_or_warns(gated, outcome, reason):
    """A value on its bound passes.

    Of gates that fire, one that refuses comes before one that asks.
    """
    decisions = _decide([NEAR, FAR], **gated)
    assert _said(decisions) == outcome
    assert reason in decisions.reason(0)


def test_asking_offers_the_options_whatever_the_gap_says():
    """Rule S3.5: both groups, though the gap is wide and the gate `gap` is off."""
    decisions = _decide([NEAR, FAR], gap={"min": 0.26, "on_fire": "ask"})
    assert [option.sources for option in decisions.options("q")] == [
        (("x/a.md", "1"),),
        (("x/b.md", "2"),),
    ]
    labelled = trace_of((ask(expect_status="ambiguous", expect_sources=("b.md",)), [[NEAR, FAR]]))
    assert decide(labelled, decisions.policy).right.tolist() == [True]


def test_a_missing_signal_fires():
    """A lone hit has no gap.

    It is below every min and above every max, unless its gate is off or has no bound.
    """
    for gated, status in (
        ({"min": 0.0}, "refuse"),
        ({"max": 4.0}, "refuse"),
        ({"min": 0.0, "enabled": False}, "ok"),
        ({}, "ok"),
    ):
        assert _said(_decide([NEAR], gap=gated))[0] == status
    assert _decide([NEAR], gap={"min": 0.1}).reason(0) == "signal gap is missing, min 0.1"


def test_the_order_is_similarity_then_signals_then_fused():
    """All of them fire; switched off one by one the decision moves down."""
    trace = trace_of((ask(), [[Hit(0.25, cosine=0.5, s_hybrid=0.1)]]))
    sections: dict[str, Any] = {
        "similarity": {"enabled": True, "min_similarity": 0.9},
        "signals": {"hybrid": {"min": 0.5}},
        "confidence": {"enabled": True},
    }
    stages = []
    for off in ("", "similarity", "signals"):
        if off:
            sections[off] = {} if off == "signals" else {"enabled": False}
        stages.append(decide(trace, policy(**sections)).stage(0))
    assert stages == ["similarity", "signals", "confidence"]


def test_a_refusal_by_a_signal_is_refined_like_one_by_similarity():
    """Rule S2.9: depth 1 has the cosine that depth 0 lacks.

    Without `refine_on_refusal` depth 0 decides.
    """
    trace = trace_of((ask(), [[Hit(0.5, cosine=0.5)], [Hit(0.25, cosine=0.9)]]))
    chosen = policy(signals={"top1_cosine": {"min": 0.8}})
    assert decide(trace, chosen).outcome.depth.tolist() == [1]
    decisions = decide(trace, chosen.replace("refine.refine_on_refusal", False))
    assert (decisions.stage(0), decisions.outcome.depth.tolist()) == ("signals", [0])
    deeper = trace_of((ask(), [[NEAR, FAR], [Hit(0.25, cosine=0.9)]]))
    decisions = decide(deeper, policy(**CONFIDENT, signals={"gap": {"min": 0.3, "on_fire": "ask"}}))
    assert (decisions.stage(0), decisions.outcome.depth.tolist()) == ("signals_ask", [0])


def test_the_checks_before_a_question_are_of_the_hits_that_would_be_answered_from():
    """Coverage judged the first hit, which has the entity.

    The options, which have it as well, change nothing of it.
    """
    hull = Hit(0.25, "x/a.md", 1, {"product": "hull"}, entities=("hull",))
    trace = trace_of((ask("explain hull"), [[hull, FAR]]))
    patterns = {"coverage_generic": ["explain"], "entities": {"hull": ["hull"]}}
    chosen = policy(**CONFIDENT, patterns=patterns, signals={"gap": {"min": 0.3, "on_fire": "ask"}})
    decisions = decide(trace, chosen)
    assert decisions.stage(0) == "signals_ask"
    assert [check.passes for check in decisions.explain("q") if check.gate == "coverage"] == [True]
    assert decisions.judged_slot(0) == 2
    assert decisions.outcome.slot.tolist() != [2]


def test_steps_of_a_bound_are_counted_by_hand():
    """Cosines 0.875 and 0.75, of a bound that is stated, of none, and up to the bound beside it."""
    trace = trace_of((ask(), [[Hit(0.25)]]), (ask(), [[Hit(0.5)]]))
    columns = ["low", "high", "coverage_k"]
    bare = policy(**CONFIDENT)
    of_min = [[-1.0, 0.75, 2], [0.75, 0.875, 1], [0.875, 1.0, 0]]
    for chosen in (bare, bare.replace("signals.top1_cosine.min", 0.1)):
        assert (
            steps(trace, chosen, path="signals.top1_cosine.min")[columns].to_numpy().tolist()
            == of_min
        )
    of_max = [[-1.0, 0.75, 0], [0.75, 0.875, 1], [0.875, 1.0, 2]]
    assert steps(trace, bare, path="signals.top1_cosine.max")[columns].to_numpy().tolist() == of_max
    capped = bare.replace("signals.top1_cosine.max", 0.8)
    table = steps(trace, capped, path="signals.top1_cosine.min")[columns]
    assert table.to_numpy().tolist() == [[-1.0, 0.75, 1], [0.75, 0.8, 0]]


# policies


def test_a_policy_with_signals_is_written_and_read(tmp_path):
    """YAML gives back the same policy.

    One without signals has the id of before the section came.
    """
    bare = Policy.load()
    chosen = bare.replace(
        "signals.nqc.min", 0.1, "signals.nqc.on_fire", "ask", "signals.gaps.max", 1.0
    )
    chosen.save(tmp_path / "policy.yaml")
    again = Policy.load(tmp_path / "policy.yaml")
    assert (again.signals, again.policy_id) == (chosen.signals, chosen.policy_id)
    assert chosen.manifest["signals.nqc.on_fire"] == "ask"
    assert PolicyData.from_mapping({"signals": {}}).policy_id == bare.policy_id != chosen.policy_id
    assert chosen.replace("signals", {}).policy_id == bare.policy_id


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("signals.Gap.min", 1.0, r"is no field of a policy; .* signals\.<name>\.min"),
        (
            "signals.gap.min",
            5.0,
            r"gap\.min must lie in \[0, 4\], 5 does not; it is a squared L2 distance",
        ),
        ("signals.gap.on_fire", "explode", "'refuse', 'ask' or 'warn', got 'explode'"),
        (
            "signals.gap",
            {"min": 2.0, "max": 1.0},
            "min must not be above max, 1.0; no value would pass",
        ),
        *(
            (
                "signals",
                {name: {}},
                rf"named \(small letters, digits and underscores.* got '{name}'; correct the name",
            )
            for name in ("my gap",)
        ),
    ],
)
def test_what_is_no_gate_on_a_signal_is_refused(path, value, rule):
    """The message says the rule, what came and what to write."""
    with pytest.raises(ValueError, match=rule):
        policy().replace(path, value)


def test_a_search_keeps_to_bounds_that_are_stated_and_never_crosses_them():
    """No bound that the policy leaves open; of two, each up to the middle."""
    trace = trace_of(*((ask(), [[Hit(0.25 * n)]]) for n in range(1, 5)))
    bare = policy(**CONFIDENT, l2={"enabled": False})
    assert not any(path.startswith("signals.") for path in full_space(trace, bare))
    both = bare.replace("signals.top1_cosine.min", 0.55, "signals.top1_cosine.max", 0.85)
    space = full_space(trace, both)
    least = space["signals.top1_cosine.min"]
    assert (least.low, least.high) == (0.5, pytest.approx(0.625, abs=1e-5))
    assert space["signals.top1_cosine.max"].low >= 0.7


# margins


@given(
    value=st.sampled_from([-1.0, 0.0, 0.1, 0.3, 1.0, NAN]),
    low=st.sampled_from([NAN, 0.0, 0.1, 0.3]),
    high=st.sampled_from([NAN, 0.3, 1.0]),
    on=st.booleans(),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_a_margin_is_headroom_where_the_value_lies_within_its_bounds(*, value, low, high, on):
    """`>= 0` is `min <= value <= max` for what is stated; missing fails whatever is stated."""
    gate = gates.signal_gate(signal("nqc"))
    assert all(threshold.nullable for threshold in gate.thresholds)
    limits = SignalThresholds(low, high, np.True_, np.False_, np.array(on))
    (margin,) = gates.margins_of(gate, {"signals.nqc": value}.__getitem__, limits)
    assert margin == signal_margins(value, limits).signal or np.isnan(margin)
    stated = [bound for bound in (low, high) if not np.isnan(bound)]
    within = all((np.isnan(low) or value >= low, np.isnan(high) or value <= high))
    assert bool(gates.meets_threshold(margin)) is (
        not on or not stated or (within and not np.isnan(value))
    )


# laws on random traces


@LAWFUL
@given(seed=SEEDS)
def test_the_decision_follows_from_its_checks(seed):
    """The first check that fails decides, by its rule; margins follow from value and bounds.

    The reason is its text.
    """
    trace = random_trace(seed, n_cases=6, depths=1 + seed % 2)
    for chosen in with_signals(random_policies(seed, 3), seed):
        decisions, limits = decide(trace, chosen), policy_thresholds([chosen])
        for row, case in enumerate(trace.cases):
            checks = decisions.explain(case.id)
            derived = decide_by_checks(checks)
            assert derived is not None
            assert derived.status == Status(int(decisions.status[row])).name
            if derived.gate not in {"", "resolver"}:
                gate = {"empty_query": "domain", "no_hits": "l2"}.get(
                    decisions.decided_by[row], decisions.decided_by[row]
                )
                assert derived.gate == gate
            if decisions.stage(row).startswith("signals"):
                assert decisions.reason(row) == derived.text
            assert check_differences(checks, limits) == []
