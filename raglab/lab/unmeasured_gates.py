"""Unmeasured gates (shore): what replays without answers omit, in one sentence (S2.12, S2.13).

The answers meant are recorded ones.
"""

from __future__ import annotations

from raglab import gates
from raglab.decision.trace_view import TraceView
from raglab.policy import PolicyData
from raglab.policy_parts.acting import acting_gates


def unmeasured_note(trace: TraceView, policy: PolicyData) -> tuple[str, ...]:
    """What `ask` may refuse under a policy and the replay of a trace does not.

    One sentence, or none.

    Generation and support count where the policy has them on. Hygiene always does, but for a trace
    of hits from elsewhere (`trace_from_frame`), which no system of raglab answers.
    """
    has_own_scores = "score" not in trace.meta.get("parameters", {})
    acting_names = acting_gates(policy)
    gate_names = [
        gate.name
        for gate in gates.judging_gates("answer")
        if (gate.name in acting_names if gate.switch else has_own_scores)
    ]
    # Where the answers of all cases are missing, the gates fire on them.
    if trace.has_answers or trace.meta.get("generator") or not gate_names:
        return ()
    verb = "is" if len(gate_names) == 1 else "are"
    note_text = f"No answers are recorded, so {', '.join(gate_names)} {verb} not measured"
    return (f"{note_text}: raglab.record_answers(trace, policy).",)
