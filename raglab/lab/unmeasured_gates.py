"""Unmeasured gates (shore): what a replay without recorded answers leaves out, in one sentence (S2.12, S2.13)."""

from __future__ import annotations

from typing import Any

from raglab import gates
from raglab.extensions.scale.sharded_traces import ShardedTrace
from raglab.policy import PolicyData
from raglab.values import TraceData


def unmeasured_note(trace: TraceData | ShardedTrace[Any], policy: PolicyData) -> tuple[str, ...]:
    """What `ask` may refuse under a policy and the replay of a trace does not: one sentence, or none.

    Generation and support count where the policy has them on. Hygiene always does, but for a trace of hits from
    elsewhere (`trace_from_frame`), which no system of raglab answers.
    """
    recorded = trace.answers is not None if isinstance(trace, TraceData) else bool(trace.meta.get("generator"))
    own = "score" not in trace.meta.get("parameters", {})
    order, by_cost = policy.decision.order, policy.decision.rule == "expected_cost"
    names = [
        gate.name
        for gate in gates.judging_gates("answer")
        if (own if not gate.scalar else not by_cost and _is_on(policy, gate.name, order))
    ]
    if recorded or not names:
        return ()
    listed = " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
    verb = "was" if len(names) == 1 else "were"
    remedy = "record them with raglab.record_answers(trace, policy)"
    what = f"{listed.capitalize()} {verb} not measured: no answers are recorded"
    return (f"{what}, so ask may refuse more than these counts show; {remedy}.",)


def _is_on(policy: PolicyData, name: str, order: tuple[str, ...] | None) -> bool:
    return bool(policy.value(f"{name}.enabled")) and (order is None or name in order)
