"""Traces under mutated files: one that loads is equal to what was saved, all else is told.

Never another decision.
"""

from __future__ import annotations

import dataclasses
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from fuzz.mutation import mutated_bytes
from fuzz.outcomes import CASES, Trial, fuzz, report
from raglab.replay import decide
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import Latency
from stored_traces import stored_world, unit_vectors
from worlds import policy


@cache
def saved():
    """A trace of two cases with embeddings, its file, and that of its latencies."""
    plain = stored_world(3).subset([0, 1])
    vectors = unit_vectors(0, len(plain.chunks))
    latency = Latency(("embed", "search"), np.full((*plain.hits.l2.shape[:3], 2), 1.5))
    trace = dataclasses.replace(plain, vectors=vectors, latency=latency)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        trace.save(path)
        return trace, path.read_bytes(), (path.parent / "t.parquet.latency").read_bytes()


@cache
def truth():
    """What an equal trace has.

    Its content's hash, its questions, and what a policy decides on it.
    """
    trace = saved()[0]
    return (
        content_hash(trace),
        [f"{case.id} {case.query}" for case in trace.cases],
        decisions(trace),
    )


def decisions(trace):
    """Statuses that a policy gives."""
    return [
        str(status)
        for status in decide(trace, policy(l2={"enabled": True, "max_l2": 0.6})).frame()["status"]
    ]


def problem(trace):
    """In what a trace that loaded differs from the one that was saved."""
    content, questions, decided = truth()
    if (
        content_hash(trace) != content
        or [f"{case.id} {case.query}" for case in trace.cases] != questions
    ):
        return "another content"
    return "" if decisions(trace) == decided else "another decision"


def test_a_trace_with_mutated_bytes(tmp_path):
    """Whatever bytes change, the trace is the one that was saved, or it is refused."""
    path = tmp_path / "t.parquet"

    def draw(rng):
        changed = mutated_bytes(rng, saved()[1])
        path.write_bytes(changed)
        return Trial(
            f"{len(changed)} bytes of {len(saved()[1])}", lambda: Trace.load(path), problem
        )

    failures = fuzz("trace: bytes", draw, tmp_path, -(-CASES // 8))
    assert not failures, report(failures)


def test_a_trace_with_mutated_latencies(tmp_path):
    """Whatever stands beside it, the trace is the one that was saved, or it is refused."""
    path = tmp_path / "t.parquet"
    path.write_bytes(saved()[1])

    def draw(rng):
        (tmp_path / "t.parquet.latency").write_bytes(mutated_bytes(rng, saved()[2]))
        return Trial("latencies", lambda: Trace.load(path), problem)

    failures = fuzz("trace: latencies", draw, tmp_path, -(-CASES // 20))
    assert not failures, report(failures)
