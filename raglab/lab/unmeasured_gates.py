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
    own = "score" not in trace.meta.get("parameters", {})
    acting = acting_gates(policy)
    names = [
        gate.name
        for gate in gates.judging_gates("answer")
        if (gate.name in acting if gate.switch else own)
    ]
    # Where the answers of all cases are missing, the gates fire on them.
    if trace.has_answers or trace.meta.get("generator") or not names:
        return ()
    verb = "is" if len(names) == 1 else "are"
    text = f"No answers are recorded, so {', '.join(names)} {verb} not measured"
    return (f"{text}: raglab.record_answers(trace, policy).",)
