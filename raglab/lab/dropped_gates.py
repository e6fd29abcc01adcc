"""Dropped gates (shore): gates that a study turned off, and what that means live (S6.8)."""

from __future__ import annotations

from collections.abc import Collection

from raglab import gates
from raglab.policy import PolicyData, told_value
from raglab.policy_parts.acting import acting_gates
from raglab.policy_parts.sections import EXPECTED_COST

ANSWER_GATES = frozenset(gate.name for gate in gates.judging_gates("answer") if gate.switch)


def dropped_gates(
    before: PolicyData, after: PolicyData, off: Collection[str] = ()
) -> tuple[str, ...]:
    """Gates that act under one policy and not under another; those on the answer first.

    Args:
      off: gates that a trace declares off, see `gates_off`.
    """
    names = set(acting_gates(after)).union(off)
    dropped = [name for name in acting_gates(before) if name not in names]
    return tuple(sorted(dropped, key=lambda name: name not in ANSWER_GATES))


def dropped_gates_text(dropped: Collection[str], after: PolicyData) -> str:
    """Dropped gates, what it means live if answer gates are among them, and how they come back."""
    return f"{', '.join(dropped)} (rule S6.8). {dropped_answer_gates_note(dropped, after)}".strip()


def dropped_answer_gates_note(dropped: Collection[str], after: PolicyData) -> str:
    """What it means live that gates on the answer are dropped, and how they come back.

    '' where none is.
    """
    on_answer = [name for name in dropped if name in ANSWER_GATES]
    if not on_answer:
        return ""
    switches = ", ".join(f'"{name}.enabled", True' for name in on_answer)
    # Under expected cost no switch brings them back: the rule reads none of them.
    remedy = f"To bring {'them' if on_answer[1:] else 'it'} back: policy.replace({switches})."
    if after.decision.rule == EXPECTED_COST:
        remedy = (
            'The decision by expected cost reads none of them; with rule="chain" a chain of gates '
            "competes too."
        )
    why = " or ".join(_REFUSES.get(name, f"by {name}") for name in on_answer)
    return f"With it a live system refuses no answer {why}; hygiene alone judges answers. {remedy}"


_REFUSES = {
    "generation": "for a low confidence of the generator",
    "support": "for a claim that no passage bears out",
}


def bound_text(policy: PolicyData) -> str:
    """Thresholds on signals that a policy states, as it writes them, and what they do beyond.

    Example:
      >>> bound_text(PolicyData.from_mapping({"signals": {"confidence": {"min": 60}}}))
      'signals.confidence.min 60.0, else refuse'
    """
    names = []
    for name in policy.signals:
        ends = [
            f"signals.{name}.{end} {told_value(value)}"
            for end in ("min", "max")
            if (value := policy.value(f"signals.{name}.{end}")) is not None
        ]
        names.append(f"{' and '.join(ends)}, else {policy.value(f'signals.{name}.on_fire')}")
    return "; ".join(names)
