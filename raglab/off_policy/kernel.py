"""Compiled kernel of off-policy evaluation (algebra): what estimators read of a log at one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from raglab.loops.compiled import compile_kernel

# ruff: noqa: ANN401 - arrays, which numba types for itself


@compile_kernel(checked=False)
def weigh_rows(
    target: Any,
    model: Any,
    arm: Any,
    propensity: Any,
    weight: Any,
    expected: Any,
    predicted: Any,
    mass: Any,
    tolerance: float,
) -> tuple[bool, bool]:
    """Write weight, expected and predicted reward of rounds, [R] each, add to target's mass, [A].

    Args:
      target: [R, A].
      model: reward of each arm, [R or more, A], or [1, A] where it is the same in all rounds. arm,
      propensity: logged, [R]; an arm is below A.
      tolerance: by how much a row of the target may sum to more or less than 1.

    Returns: whether every row of the target is a distribution, and whether all rewards that were
      written are finite.
    """
    wrong, total, by_round = 0, 0.0, len(model) > 1
    for r in range(len(arm)):
        whole, mean, of = 0.0, 0.0, r if by_round else 0
        for a in range(target.shape[1]):
            share = target[r, a]
            whole += share
            mean += share * model[of, a]
            mass[a] += share
            wrong += 0 if share >= 0.0 else 1
        wrong += 0 if abs(whole - 1.0) <= tolerance else 1
        mine = np.uint64(arm[r])
        weight[r], expected[r], predicted[r] = (
            target[r, mine] / propensity[r],
            mean,
            model[of, mine],
        )
        total += mean + model[of, mine]
    return wrong == 0, np.isfinite(total)
