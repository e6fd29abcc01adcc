"""Dropped gates (shore): gates that a study turned off, and bounds on signals in words (S6.8)."""

from __future__ import annotations

from collections.abc import Collection

from raglab import gates
from raglab.policy import PolicyData, told_value
from raglab.policy_parts.acting import acting_gates

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
