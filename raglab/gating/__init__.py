"""What gates are made of (algebra): bounds of signals, the fused gate, decisions by cost."""

from raglab.gating import expected_cost, fused_gate

__all__ = ["expected_cost", "fused_gate"]
