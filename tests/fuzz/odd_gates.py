"""A gate of a user over the traces of others, and what two policies beside it decide."""

from __future__ import annotations

from raglab.policy_parts.own_gates import register_gate
from raglab.replay import decide, sweep
from worlds import policy

N_CASES = 24
NEAR = "signals.top1_cosine"


def register(function, on_fire="refuse"):
    """Policy with a gate of that function, `odd`, that passes all it can."""
    least = {"least": {"side": "floor", "default": -1.0, "unit": "cosine"}}
    reads = [NEAR, "words", "best_l2", "missing"]
    register_gate("odd", thresholds=least, reads=reads, on_fire=on_fire)(function)
    return policy(gates={"odd": {}})


def neighbours():
    """Two policies that decide by what the gates of this file try to write."""
    by_signal = policy(signals={NEAR.removeprefix("signals."): {"min": 0.5}, "words": {"min": 4.0}})
    return [
        by_signal,
        policy(similarity={"enabled": True, "min_similarity": 0.5}, l2={"max_l2": 0.5}),
    ]


def state(trace):
    """Bytes of all that the two policies decide on a trace, alone and in a sweep."""
    parts = []
    for neighbour in neighbours():
        decided = decide(trace, neighbour)
        arrays = (*decided.outcome, decided.status, decided.passes, decided.confidence())
        parts += [array.tobytes() for array in arrays]
    frame = sweep(trace, neighbours(), engine="numpy").drop(columns="policy", errors="ignore")
    return [*parts, frame.to_json().encode()]
