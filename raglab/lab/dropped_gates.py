"""Dropped gates (shore): gates that a study turned off, and bounds on signals in words (S6.8)."""

from __future__ import annotations

from collections.abc import Collection

from raglab import gates
from raglab.policy import PolicyData, told_value
from raglab.policy_parts.acting import acting_gates

ANSWER_GATES = frozenset(gate.name for gate in gates.judging_gates("answer") if gate.switch)


def dropped_gates(
    before: PolicyData, after: PolicyData, gates_off: Collection[str] = ()
) -> tuple[str, ...]:
    """Gates that act under one policy and not under another; those on the answer first.

    Args:
      gates_off: gates that a trace declares off, see `gates_off`.
    """
    kept_names = set(acting_gates(after)).union(gates_off)
    lost_gates = [gate_name for gate_name in acting_gates(before) if gate_name not in kept_names]
    return tuple(sorted(lost_gates, key=lambda gate_name: gate_name not in ANSWER_GATES))


def bound_text(policy: PolicyData) -> str:
    """Thresholds on signals that a policy states, as it writes them, and what they do beyond.

    Example:
      >>> bound_text(PolicyData.from_mapping({"signals": {"confidence": {"min": 60}}}))
      'signals.confidence.min 60.0, else refuse'
    """
    signal_texts = []
    for signal_name in policy.signals:
        bound_texts = [
            f"signals.{signal_name}.{bound_name} {told_value(bound_value)}"
            for bound_name in ("min", "max")
            if (bound_value := policy.value(f"signals.{signal_name}.{bound_name}")) is not None
        ]
        signal_texts.append(
            f"{' and '.join(bound_texts)}, else {policy.value(f'signals.{signal_name}.on_fire')}"
        )
    return "; ".join(signal_texts)
