"""Unmeasured gates (shore): what a replay without recorded answers leaves out, in one sentence (S2.12, S2.13)."""

from __future__ import annotations

from raglab import gates
from raglab.decision.trace_view import TraceView
from raglab.policy import PolicyData


def unmeasured_note(trace: TraceView, policy: PolicyData) -> tuple[str, ...]:
    """What `ask` may refuse under a policy and the replay of a trace does not: one sentence, or none.

    Generation and support count where the policy has them on. Hygiene always does, but for a trace of hits from
    elsewhere (`trace_from_frame`), which no system of raglab answers.
    """
    own = "score" not in trace.meta.get("parameters", {})
    order, by_cost = policy.decision.order, policy.decision.rule == "expected_cost"
    names = [
        gate.name
        for gate in gates.judging_gates("answer")
        if (own if not gate.scalar else not by_cost and _is_on(policy, gate.name, order))
    ]
    if trace.has_answers or not names:
        return ()
    listed = " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
    verb = "was" if len(names) == 1 else "were"
    remedy = "record them with raglab.record_answers(trace, policy)"
    what = f"{listed.capitalize()} {verb} not measured: no answers are recorded"
    return (f"{what}, so ask may refuse more than these counts show; {remedy}.",)


def _is_on(policy: PolicyData, name: str, order: tuple[str, ...] | None) -> bool:
    return bool(policy.value(f"{name}.enabled")) and (order is None or name in order)
