"""Policies that learn nothing (algebra): best fixed arm, uniform, oracle, as probability (S4.7)."""

from __future__ import annotations

import numpy as np

from raglab.bandit.environments import Table
from raglab.values import BoolArray, FloatArray, refuse

FIXED_PLAN, UNIFORM_PLAN, ORACLE_PLAN, ROUTER_PLAN = "best fixed arm", "uniform", "oracle", "router"
MIXTURE_PLAN, PRICED_PLAN = "best fixed mixture", "ridge with a price"  # those within a budget
ROW_SUM_TOLERANCE = 1e-9  # that probabilities of a row may miss 1 by


def baselines(
    world: Table, router: FloatArray | None = None, *, fixed: str | None = None
) -> dict[str, FloatArray]:
    """Policies that learn nothing, as probabilities [Q, A].

    The best fixed arm, uniform, the router, the oracle.

    A fixed arm is available in every case; where no arm is, this policy is left out. The oracle
    takes the best available arm of each case and shares ties. The best is by value, net of price
    times cost.

    Args:
      world: table of all arms of every case.
      router: the arm that the source's router chooses in each case.
      fixed: name of the arm that was best on other cases; on these ones where not given.

    Raises:
      ValueError: the fixed arm is unknown, or not available in every case.

    Example:
      >>> import pandas as pd
      >>> table = Table.from_frame(pd.DataFrame({"a": [1.0, 0.0], "b": [1.0, 1.0]}), order="given")
      >>> {name: plan.tolist() for name, plan in baselines(table).items()}["best fixed arm"]
      [[0.0, 1.0], [0.0, 1.0]]
    """
    mask = world.mask
    fixed_arm = best_fixed_arm(world) if fixed is None else fixed
    plans: dict[str, FloatArray] = {}
    if fixed_arm is not None:
        if fixed_arm not in world.arms or not mask[:, world.arms.index(fixed_arm)].all():
            refuse(
                "fixed must be an arm that is available in every case",
                f"{fixed_arm!r} of {', '.join(world.arms)}",
                "name another, or none",
            )
        plans[FIXED_PLAN] = np.broadcast_to(
            np.eye(len(world.arms))[world.arms.index(fixed_arm)], mask.shape
        )
    plans[UNIFORM_PLAN] = mask / mask.sum(axis=1, keepdims=True)
    if router is not None:
        plans[ROUTER_PLAN] = router
    return plans | {ORACLE_PLAN: greedy_arms(world.value, mask)}


def best_fixed_arm(world: Table) -> str | None:
    """Arm of most value among those that are available in every case.

    The first of equals, None if there is none.

    Args:
      world: table of all arms of every case.
    """
    always_open = np.flatnonzero(world.mask.all(axis=0))
    return (
        None
        if not len(always_open)
        else world.arms[always_open[int(np.argmax(world.value[:, always_open].sum(axis=0)))]]
    )


def greedy_arms(signal: FloatArray, mask: BoolArray) -> FloatArray:
    """Who has the highest signal among the available arms, as probabilities [Q, A].

    Ties share a case equally.

    An arm without a signal (NaN) is chosen only where none has one.
    """
    has_signal = mask & ~np.isnan(signal)
    candidate_arms = np.where(has_signal.any(axis=1, keepdims=True), has_signal, mask)
    open_signals = np.where(candidate_arms, np.where(np.isnan(signal), 0.0, signal), -np.inf)
    is_best = candidate_arms & (open_signals == open_signals.max(axis=1, keepdims=True))
    return is_best / is_best.sum(axis=1, keepdims=True)


def check_plan(plan: FloatArray, argument_name: str) -> None:
    """Refuse rows [..., A] that are no probabilities.

    Raises:
      ValueError: a row has a number below 0, or does not sum to 1.
    """
    is_wrong = ~(
        (plan >= 0.0).all(axis=-1) & (np.abs(plan.sum(axis=-1) - 1.0) <= ROW_SUM_TOLERANCE)
    )
    if is_wrong.any():
        refuse(
            f"rows of {argument_name} must be >= 0 and sum to 1",
            plan[is_wrong].reshape(-1, plan.shape[-1])[0].tolist(),
            "they are probabilities",
        )
