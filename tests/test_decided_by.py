"""What decided a case.

Every case once, never a gate that is off, the same in both engines (rules S2.12, S3.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import by_cost, with_columns
from raglab.gates import GATES
from raglab.replay import decide, sweep
from raglab.resolver import ONE_OPTION, RULES
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of, with_signals

RULE_STATUS = {f"resolver.{rule.name}": rule.status.name for rule in RULES} | {
    f"resolver.{ONE_OPTION}": "ok"
}


def _worlds(seed):
    """A random trace; chains with gates and signals on or off, another order, or cost decisions."""
    trace = with_columns(random_trace(seed, n_cases=16, depths=2), seed)
    chains = random_policies(seed, 4)
    rng = np.random.default_rng([seed, 31])
    part = {"center": 0.5, "scale": 0.25, "missing": 0.0, "weights": (2.0, 0.0, -2.0, 0.0)}
    costly = by_cost(chains[0], (0.0, 0.0, 0.0, float(rng.integers(0, 2))), {"top1_cosine": part})
    short = chains[1].replace("decision.order", ["similarity", "gap", "confidence"])
    return trace, [*chains, *with_signals([*chains, costly], seed), costly, short]


def _is_off(decisions, name):
    """Whether a gate of the policy is off, left out of its order, or unmeasured by the trace."""
    section, _, own = name.partition(".")
    chosen = decisions.policy
    if own:
        gated = chosen.signals if section == "signals" else chosen.gates
        return own not in gated or not gated[own].enabled
    by_order = name in decisions.thresholds.order.off or name in decisions.tables.evidence.off
    switch = next(gate.switch for gate in GATES if gate.name == name)
    return by_order or bool(switch and not getattr(chosen, name).enabled)


@given(st.integers(0, 2_000))
@settings(max_examples=6, deadline=None)
def test_what_decided_is_a_gate_that_is_on_a_rule_or_nothing(seed):
    """`answered` is ok, a rule has its own status, a gate refuses or asks back and is on.

    `gap` decides nobody.
    """
    trace, policies = _worlds(seed)
    for chosen in policies:
        decisions = decide(trace, chosen)
        frame = decisions.frame()
        assert frame["decided_by"].tolist() == decisions.decided_by.tolist()
        for name, status in zip(frame["decided_by"], frame["status"], strict=True):
            if name == "answered":
                assert status == "ok"
            elif name in RULE_STATUS:
                assert status == RULE_STATUS[name]
            elif name in {"empty_query", "no_hits"}:
                assert status == "refuse"
            elif name == "expected_cost":
                assert status in {"refuse", "ambiguous"}
                assert chosen.decision.rule == "expected_cost"
            else:
                assert status in {"refuse", "ambiguous"}
                assert name != "gap"
                assert not _is_off(decisions, name), name


@given(st.integers(0, 2_000))
@settings(max_examples=5, deadline=None)
def test_counts_are_those_of_the_sweep_in_both_engines(seed):
    """By deciding gate they are the frame's counts, user gates together, and sum to the cases."""
    trace, policies = _worlds(seed)
    tables = [sweep(trace, policies, level=None, engine=engine) for engine in ("numpy", "auto")]
    names = [name for name in tables[0] if name.startswith("decided_by.")]
    for row, chosen in enumerate(policies):
        decided = [
            "signals" if name.startswith("signals.") else name
            for name in decide(trace, chosen).decided_by
        ]
        for table in tables:
            assert table[names].iloc[row].sum() == len(trace)
            counts = {name.removeprefix("decided_by."): int(table[name][row]) for name in names}
            assert counts == {name: decided.count(name) for name in counts}


def test_without_any_gate_nothing_is_decided_by_one():
    """Two hits 0.25 apart are answered although the gap gate is off.

    What is empty is refused all the same.
    """
    apart = [Hit(0.25), Hit(0.5, "b.md")]
    trace = trace_of((ask(), [apart]), (ask(""), [apart]), (ask(), [[]]))
    off: dict[str, Any] = {
        gate.name: {"enabled": False} for gate in GATES if gate.switch and gate.name != "signals"
    }
    frame = decide(trace, policy(**off)).frame()
    assert frame["decided_by"].tolist() == ["answered", "empty_query", "no_hits"]
