"""Which arm answers a question: the policy's, the source's own router's, or the bandit's (rules S4.1, S4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raglab import gates
from raglab.intent import intent
from raglab.policy import Policy, intent_thresholds

if TYPE_CHECKING:
    from raglab.lab.live import Lab


def arm_of(question: str, system: Lab) -> tuple[str, str]:
    """The arm that answers a question, and why, without a bandit; where one is wanted, the router stands in for it.

    Source: rules S4.1, S4.7: the router is the source's own, simple → hybrid, complex → iterative, flagged → its arm.

    Raises:
      ValueError: the index lacks the arm.
    """
    there = system.retriever.strategies
    wanted = system.arm or system.policy.strategy.arm
    if wanted == "bandit":
        arm, reason = routed(question, system.policy, tuple(there))
        return arm, f"bandit {'off' if system.online is None else 'not asked'}, {reason}"
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


def wants_bandit(system: Lab) -> bool:
    """Whether a bandit chooses the arm: where it is wanted, and not switched off."""
    return (system.arm or system.policy.strategy.arm) == "bandit" and system.online is not None
