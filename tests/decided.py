"""Policies that decide by expected cost, for tests.

Models and costs drawn on coarse grids, so that ties occur.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from raglab.decision.measurement import structure_hash
from raglab.decision.signal_values import STORED_SIGNALS
from raglab.gating.expected_cost import COST_PATHS
from raglab.policy import PolicyData
from raglab.signals import NAMES, PARSED
from worlds import random_policies, with_signals

P = TypeVar("P", bound=PolicyData)
WEIGHTS = (-1.0, -0.5, 0.0, 0.0, 0.5, 1.0)
BIASES = (-1.0, 0.0, 0.0, 1.0)
PRICES = (0.0, 0.5, 1.0, 1.0, 2.0, 10.0)


def by_cost(
    policy,
    bias=(0.0, 0.0, 0.0, 0.0),
    parts=None,
    *,
    asked_right=0.5,
    arm="hybrid",
):
    """The policy with a model of its own hits, deciding by expected cost."""
    model = {
        "parts": parts or {},
        "bias": tuple(bias),
        "asked_right": asked_right,
        "structure": structure_hash(policy.structure, arm),
    }
    return policy.replace("decision.model", model, "decision.rule", "expected_cost")


def with_columns(trace, seed):
    """The trace with random columns of the stored signals, small whole numbers, some missing."""
    rng = np.random.default_rng([seed, 7])
    shape = trace.hits.n_reranked.shape

    def column():
        return np.where(
            rng.random(shape) < 0.1, np.nan, rng.integers(0, 4, shape).astype(np.float64)
        )

    return replace(trace, columns={signal.name: column() for signal in PARSED})


def random_model(rng, policy, names=NAMES):
    """The policy with a random model over up to four signals.

    One in eight has none, so that every case is alike.
    """
    picked = rng.choice(names, size=min(len(names), int(rng.integers(1, 5))), replace=False)
    parts = {
        str(name): {
            "center": float(rng.choice([0.0, 0.25, 0.5, 2.0])),
            "scale": float(rng.choice([0.25, 0.5, 1.0, 20.0])),
            "missing": float(rng.choice([0.0, 0.5, 1.0])),
            "weights": tuple(float(weight) for weight in rng.choice(WEIGHTS, size=4)),
        }
        for name in picked
    }
    bias = tuple(float(one) for one in rng.choice(BIASES, size=4))
    share = float(rng.choice([0.0, 0.5, 0.75, 1.0]))
    return by_cost(policy, bias, {} if rng.random() < 0.125 else parts, asked_right=share)


def random_costs(rng, policy):
    """The policy with costs and a ratio on a coarse grid; one in four keeps the default."""
    if rng.random() < 0.25:
        return policy
    changes: dict[str, Any] = {
        f"decision.costs.{path}": float(rng.choice(PRICES)) for path in COST_PATHS.values()
    }
    if rng.random() < 0.3:  # what the user gates besides comes first
        fires = str(rng.choice(["refuse", "ask", "warn"]))
        changes["signals"] = {
            str(rng.choice(["groups", "options"])): {"max": 1.0 + rng.integers(3), "on_fire": fires}
        }
    changes |= {
        "decision.ratio": float(rng.choice(PRICES)),
        "domain.enabled": bool(rng.random() < 0.75),
    }
    return policy.replace(*(part for pair in changes.items() for part in pair))


def drawn_policies(seed):
    """Policies with gates of every kind."""
    chain = [*random_policies(seed, 1), *with_signals(random_policies(seed + 1, 1), seed)]
    return [*chain, by_cost(chain[0])]


def with_constant_columns(trace, value=0.0):
    """The trace with every stored signal at a value."""
    return replace(
        trace, columns={name: np.full(trace.hits.chunk.shape[:3], value) for name in STORED_SIGNALS}
    )
