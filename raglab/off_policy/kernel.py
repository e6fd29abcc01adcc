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
    n_wrong, written_sum, varies_by_round = 0, 0.0, len(model) > 1
    for round_index in range(len(arm)):
        target_sum, mean_reward, model_row = 0.0, 0.0, round_index if varies_by_round else 0
        for arm_index in range(target.shape[1]):
            arm_share = target[round_index, arm_index]
            target_sum += arm_share
            mean_reward += arm_share * model[model_row, arm_index]
            mass[arm_index] += arm_share
            n_wrong += 0 if arm_share >= 0.0 else 1
        n_wrong += 0 if abs(target_sum - 1.0) <= tolerance else 1
        logged_arm = np.uint64(arm[round_index])
        weight[round_index], expected[round_index], predicted[round_index] = (
            target[round_index, logged_arm] / propensity[round_index],
            mean_reward,
            model[model_row, logged_arm],
        )
        written_sum += mean_reward + model[model_row, logged_arm]
    return n_wrong == 0, np.isfinite(written_sum)
