"""What is wrong with a trace that a door made."""

from __future__ import annotations

import numpy as np

from raglab.replay import decide
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from worlds import policy


def trace_problem(trace, folder):
    """What is wrong with a trace that was made.

    Another one from disk, no distance, another decision.
    """
    path = folder / "t.parquet"
    trace.save(path)
    again = Trace.load(path)
    if content_hash(again) != content_hash(trace):
        return "another one when saved and read again"
    if (
        np.isinf(trace.hits.l2).any()
        or (trace.hits.l2 < 0).any()
        or (np.abs(trace.hits.cosine) > 1).any()
    ):
        return "a distance that is none"
    chosen = policy(l2={"enabled": True, "max_l2": 0.6})
    one, other = (decide(held, chosen).frame()["status"].tolist() for held in (trace, again))
    return "" if one == other else "another decision when saved and read again"
