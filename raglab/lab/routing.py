"""Which arm answers a question: the policy's, or by the source's own router (rules S4.1, S4.7)."""

from __future__ import annotations

from collections.abc import Sequence

from raglab import gates
from raglab.intent import intent
from raglab.lab.live import Lab
from raglab.policy import Policy, intent_thresholds


def arm_of(question: str, system: Lab) -> tuple[str, str]:
    """The arm that answers a question, and why.

    Source: rules S4.1, S4.7: the router is the source's own, simple → hybrid, complex → iterative, flagged → its arm.

    Raises:
      ValueError: the index lacks the arm.
    """
    there = system.retriever.strategies
    wanted = system.arm or system.policy.strategy.arm
    if wanted != "router":
        if wanted not in there:
            msg = f"arm must be one of the index's {', '.join(there)}, got {wanted}; make the index with it."
            raise ValueError(msg)
        return wanted, f"{'chosen' if system.arm else 'policy'}: {wanted}"
    return routed(question, system.policy, tuple(there))


def routed(question: str, policy: Policy, arms: Sequence[str]) -> tuple[str, str]:
    """The source's router over the arms that there are (rule S4.7), and why."""
    seen, limits = intent(question), intent_thresholds(policy)
    margins = gates.intent_margins(seen.graph, seen.table, seen.complexity, limits)
    flagged = {
        name: float(getattr(margins, name)) for name in ("table", "graph") if gates.reaches(getattr(margins, name))
    }
    for name in sorted(flagged, key=lambda one: (-flagged[one], one)):
        if name in arms:
            score = getattr(seen, name)
            return name, f"router: {name} intent {score:.2f} ({', '.join(seen.reasons.get(name, ()))})"
    if gates.reaches(margins.complexity) and "iterative" in arms:
        return (
            "iterative",
            f"router: complexity {seen.complexity:.2f} ({', '.join(seen.reasons.get('complexity', ()))})",
        )
    return ("hybrid" if "hybrid" in arms else arms[0]), f"router: simple question, complexity {seen.complexity:.2f}"
