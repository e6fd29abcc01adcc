"""Gates of the user and the order of gates (rules S2.12 and S2.18).

See `raglab.policy_parts.own_gates` and `raglab.policy_parts.gate_order`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.audit.explanation import check_differences, decide_by_checks
from raglab.lab.search_space import full_space
from raglab.policy_parts.own_gates import REGISTERED_GATES, register_gate
from raglab.replay import decide, flips, steps, tally
from raglab.store.policies import Policy
from raglab.values import Status
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of, with_signals

LAWFUL = settings(deadline=None, derandomize=True, max_examples=5)
SEEDS = st.integers(0, 100_000)
CONFIDENT: dict[str, Any] = {"gap": {"enabled": False}, "sufficiency": {"enabled": False}}
MIDDLE = (
    "l2",
    "density",
    "gap",
    "coverage",
    "similarity",
    "signals",
    "fused",
    "sufficiency",
    "confidence",
)


@pytest.fixture(autouse=True)
def own_gates():
    """Two gates: one like that on the cosine of the first hit, one that asks back."""
    cosine = {"least": {"side": "floor", "default": 0.5, "unit": "cosine"}}
    register_gate("near", thresholds=cosine, reads=["signals.top1_cosine"])(
        lambda read, limits: read("signals.top1_cosine") - limits.least
    )
    most = {"most": {"side": "ceiling", "default": 2.0, "unit": "count"}}
    register_gate("short", thresholds=most, reads=["words"], on_fire="ask")(
        lambda read, limits: limits.most - read("words")
    )
    covered = {"most": {"side": "ceiling", "default": 0.0, "unit": "count"}}
    register_gate("covered", thresholds=covered, reads=["missing"])(
        lambda read, limits: limits.most - read("missing").astype(float)
    )
    yield
    REGISTERED_GATES.clear()


def _explained(trace, chosen):
    """The checks of every case lead to what the chain decided, and agree within themselves."""
    said = decide(trace, chosen)
    for row, case in enumerate(trace.cases):
        told = said.explain(case.id)
        assert decide_by_checks(told).status == Status(int(said.status[row])).name, (case.id, told)
        assert not check_differences(told, said.thresholds)
        assert said.decided_by[row]
        assert said.reason(row)


# one case by head: cosine of the nearest hit 0.75, four words


def test_a_gate_of_the_user_refuses_below_its_threshold():
    """Cosine 0.75 against a least of 0.8 and of 0.7, and the default of 0.5."""
    trace = trace_of((ask(), [[Hit(0.5)]]))
    for least, status in ((0.8, "refuse"), (0.7, "ok"), (None, "ok")):
        section = {"near": {} if least is None else {"least": least}}
        said = decide(trace, policy(**CONFIDENT, gates=section))
        assert said.frame()["status"].tolist() == [status]
    said = decide(trace, policy(**CONFIDENT, gates={"near": {"least": 0.8}}))
    assert said.decided_by[0] == "gates.near"
    assert said.reason(0) == "gate near: signals.top1_cosine 0.75, least 0.8; headroom -0.05"
    assert (
        decide(trace, policy(**CONFIDENT, gates={"near": {"least": 0.8, "enabled": False}})).status[
            0
        ]
        == Status.ok
    )


def test_one_that_asks_back_needs_two_options():
    """With hits of two documents it asks, with one it refuses."""
    two = [Hit(0.25, "a.md", tags={"product": "hull"}), Hit(0.5, "b.md", tags={"product": "cargo"})]
    asked = decide(trace_of((ask(), [two])), policy(**CONFIDENT, gates={"short": {}}))
    assert (asked.status[0], asked.decided_by[0]) == (Status.ambiguous, "gates.short")
    alone = decide(trace_of((ask(), [two[:1]])), policy(**CONFIDENT, gates={"short": {}}))
    assert alone.status[0] == Status.refuse
    assert "no two options" in alone.reason(0)


def test_steps_flips_and_space_know_its_threshold():
    """Cosine 0.75 flips just above it."""
    trace = trace_of((ask(), [[Hit(0.25)]]), (ask(), [[Hit(0.5)]]))
    chosen = policy(**CONFIDENT, gates={"near": {"least": 0.1}})
    flipped = flips(trace, chosen, "q1").set_index("path").loc["gates.near.least"]
    assert flipped["flips_at"] == np.nextafter(0.75, 1.0)
    assert "gates.near.least" in full_space(
        trace, Policy.from_mapping(chosen.model_dump(mode="json"))
    )


def test_an_order_decides_which_gate_is_named_and_what_is_asked():
    """Two products tie, so that it is asked.

    A similarity gate before the gap refuses what it would ask.
    """
    two = [Hit(0.5, "a.md", tags={"product": "hull"}), Hit(0.5, "b.md", tags={"product": "cargo"})]
    trace = trace_of((ask(), [two]))
    strict = policy(
        similarity={"enabled": True, "min_similarity": 0.9}, confidence={"enabled": False}
    )
    others = [name for name in MIDDLE if name != "similarity"]
    ahead = decide(trace, strict.replace("decision.order", ["similarity", *others]))
    assert (ahead.status[0], ahead.decided_by[0]) == (Status.refuse, "similarity")
    far = trace_of((ask(), [[Hit(3.0)]]))
    assert decide(far, strict).decided_by[0] == "l2"
    assert (
        decide(far, strict.replace("decision.order", ["similarity", *others])).decided_by[0]
        == "similarity"
    )


def test_a_gate_left_out_is_off():
    """What is empty is refused all the same."""
    trace = trace_of((ask(), [[Hit(3.0)]]), (ask(""), [[Hit(0.5)]]), (ask(), [[]]))
    strict = policy(gates={"near": {"least": 0.9}}, signals={"words": {"min": 90.0}})
    said = decide(trace, strict.replace("decision.order", ["domain", "gap"]))
    assert [said.stage(row) for row in range(3)] == ["gap", "empty_query", "no_hits"]
    assert (
        decide(trace, strict.replace("decision.order", ["gates.near"])).decided_by[0]
        == "gates.near"
    )


def test_an_unregistered_gate_is_refused_when_it_decides():
    """A policy with it loads, travels and has an id; deciding says how to get it."""
    chosen = policy(gates={"fresh": {"max_age": 30.0}})
    assert chosen.policy_id != policy().policy_id
    assert chosen.value("gates.fresh.max_age") == 30.0
    with pytest.raises(ValueError, match=r"gates\.fresh .*must be registered"):
        decide(trace_of((ask(), [[Hit(0.5)]])), chosen)


@pytest.mark.parametrize(
    ("order", "rule"),
    [
        (["similarity", "similarity"], "each gate once"),
        (["simila"], "must name gates"),
        (["coverage", "gap"], "gap before coverage"),
        (["l2", "domain"], "query first"),
        (["generation", "l2"], "answer last"),
        ([], "must name a gate"),
    ],
)
def test_an_impossible_order_is_refused(order, rule):
    """With the rule that it breaks."""
    with pytest.raises(ValueError, match=rule):
        policy().replace("decision.order", order)


def test_a_gate_on_chosen_hits_stands_behind_the_gap():
    """What is chosen is not known before."""
    chosen = policy(gates={"covered": {}}).replace("decision.order", ["gates.covered", "gap"])
    with pytest.raises(ValueError, match=r"gates\.covered behind gap.*missing"):
        decide(trace_of((ask(), [[Hit(0.5)]])), chosen)
    behind = chosen.replace("decision.order", ["l2", "density", "gap", "gates.covered"])
    assert decide(trace_of((ask(), [[Hit(0.5)]])), behind).status[0] == Status.ok


# laws on random traces


def _with_user_gates(policies, seed):
    """Policies with gates of the user at drawn thresholds, and drawn orders of their gates."""
    rng = np.random.default_rng(seed)
    names = [*MIDDLE, "gates.near", "gates.short", "signals.top1_cosine"]
    found = []
    for one in policies:
        order = [names[place] for place in rng.permutation(len(names))]
        behind = [name for name in order if name in {"coverage", "sufficiency"}]
        order = ["domain", *(name for name in order if name not in behind)]
        order = order[: int(rng.integers(6, len(order) + 1))]
        behind = behind if "gap" in order else []
        section = {
            "near": {"least": float(rng.integers(-4, 5)) / 4.0},
            "short": {"most": float(rng.integers(0, 8))},
        }
        changed = one.replace("gates", section)
        order = [name for name in order if "." not in name or name in changed.gates_in_order()]
        found.append(
            changed.replace("decision.order", [*order, *behind]) if rng.random() < 0.7 else changed
        )
    return found


@LAWFUL
@given(seed=SEEDS)
def test_sweep_decides_as_decide_and_explain_do(seed):
    """Of random policies with gates of the user and an order of their own."""
    trace = random_trace(seed, n_cases=6, depths=1 + seed % 2)
    policies = _with_user_gates(with_signals(random_policies(seed, 4), seed), seed)
    counted = tally(trace, policies)
    for row, chosen in enumerate(policies):
        said = decide(trace, chosen)
        assert (
            counted.stages[row].tolist() == np.bincount(said.outcome.stage, minlength=27).tolist()
        )
        _explained(trace, chosen)


@LAWFUL
@given(seed=SEEDS)
def test_the_published_order_stated_is_the_published_order(seed):
    """It decides alike by the same gate."""
    trace = random_trace(seed, n_cases=6)
    for chosen in with_signals(random_policies(seed, 3), seed):
        stated = ["domain", *MIDDLE, "generation", "support", "hygiene"]
        one, other = decide(trace, chosen), decide(trace, chosen.replace("decision.order", stated))
        assert np.array_equal(one.outcome.stage, other.outcome.stage)
        assert np.array_equal(one.outcome.slot, other.outcome.slot)


@LAWFUL
@given(seed=SEEDS)
def test_a_gate_of_the_user_is_the_gate_on_the_signal_it_reads(seed):
    """The same bound on the cosine of the first hit: same decisions, same steps."""
    trace = random_trace(seed, n_cases=6)
    bound = float(np.random.default_rng(seed).integers(-4, 5)) / 4.0
    for chosen in random_policies(seed, 3):
        on_signal = chosen.replace("signals.top1_cosine.min", bound)
        of_user = chosen.replace("gates", {"near": {"least": bound}})
        one, other = decide(trace, on_signal), decide(trace, of_user)
        assert np.array_equal(one.outcome.stage, other.outcome.stage)
        first, second = (
            steps(trace, on_signal, path="signals.top1_cosine.min"),
            steps(trace, of_user, path="gates.near.least"),
        )
        assert first.equals(second)
