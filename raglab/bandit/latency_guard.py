"""Latency guard (algebra): arms too slow for the budget are not offered to a bandit (S4.5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raglab.values import BoolArray, refuse


def guarded(mask: ArrayLike, p95_ms: ArrayLike, budget_ms: float) -> BoolArray:
    """Mask without arms whose recent P95 latency is over budget, unless none is left, [..., A].

    Args:
      mask: available arms, bool [..., A].
      p95_ms: recent 95th percentile of each arm in milliseconds, [A] or [..., A]; NaN, an arm never
        seen, passes; at the budget passes.
      budget_ms: milliseconds of a question, above 0.

    Raises:
      ValueError: a mask that is not of booleans or false for every arm, a negative latency, a
        budget not above 0.

    Source: rule S4.5.

    Example:
      >>> guarded([True, True, False], [500.0, 9000.0, 100.0], 8000.0).tolist()
      [True, False, False]
      >>> guarded([False, True, False], [500.0, 9000.0, 100.0], 8000.0).tolist()
      [False, True, False]
    """
    arm_mask = np.asarray(mask)
    latencies = np.asarray(p95_ms, dtype=np.float64)
    if arm_mask.dtype != np.bool_ or not arm_mask.any(axis=-1).all():
        refuse(
            "mask must be of booleans and leave an arm", arm_mask.tolist(), "leave an arm available"
        )
    if not budget_ms > 0.0 or bool((latencies < 0.0).any()):
        msg = (
            f"budget and latencies must be positive milliseconds, got {budget_ms:g} and "
            f"{latencies.tolist()}."
        )
        raise ValueError(msg)
    in_budget = arm_mask & ~(latencies > budget_ms)
    return np.where(in_budget.any(axis=-1, keepdims=True), in_budget, arm_mask)
