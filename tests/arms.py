"""A small trace of two arms with vectors and latencies.

`iterative` finds the source more often and takes longer.
"""

from __future__ import annotations

import numpy as np

from raglab.bandit import Table
from raglab.store.traces import Trace
from raglab.values import Hits, Latency
from worlds import Hit, ask, trace_of

HYBRID_MS, ITERATIVE_MS = 10.0, 40.0


def table(n=8, seed=0, *, masked=True):
    """Cases of three arms with features, values and rewards on a coarse grid."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, 3)) < 0.6 if masked else np.ones((n, 3), np.bool_)
    mask[np.arange(n), rng.integers(3, size=n)] = True
    value, reward = rng.integers(2, size=(n, 3)) * 1.0, rng.integers(5, size=(n, 3)) / 4.0
    features = np.column_stack([np.ones(n), rng.integers(5, size=n) / 4.0])
    return Table(
        ("a", "b", "c"), value, reward, mask, features, ("one", "x"), np.full((n, 3), np.nan)
    )


def two_arms(size=80, seed=0, *, agree=True):
    """Trace over the splits tune and report; right where the best hit is from a.md.

    agree: whether the arm that is right has the larger margin; otherwise the smaller one, and the
      two passes agree on the order of its hits only where it is right.
    """
    rng = np.random.default_rng(seed)
    parts = []
    right = np.stack([rng.random(size) < 0.4, rng.random(size) < 0.8], axis=1)
    for arm in range(2):
        rows = []
        for number in range(size):
            good = bool(right[number, arm])
            margin = 0.2 + 0.5 * (good == agree) + 0.1 * rng.random()
            best, other = ("a.md", "b.md") if good else ("c.md", "b.md")
            fused = (0.9, 0.5) if good or agree else (0.5, 0.9)
            hits = [
                Hit(0.5, best, s_rerank=0.9, s_raw=0.9, s_hybrid=fused[0], rank=0),
                Hit(
                    0.6, other, s_rerank=0.9 - margin, s_raw=0.9 - margin, s_hybrid=fused[1], rank=1
                ),
            ]
            split = ("tune", "report")[number % 2]
            rows.append(
                (
                    ask(
                        f"what is the excess of plan {number}",
                        expect_sources=("a.md",),
                        split=split,
                    ),
                    [hits],
                )
            )
        parts.append(trace_of(*rows))
    one, two = parts
    moved = two.hits._replace(
        chunk=np.where(two.hits.chunk >= 0, two.hits.chunk + len(one.chunks), -1).astype(np.int32)
    )
    hits = Hits(*(np.concatenate(pair, axis=1) for pair in zip(one.hits, moved, strict=True)))
    extra = tuple(chunk._replace(chunk_id=f"second {chunk.chunk_id}") for chunk in two.chunks)
    vectors = rng.normal(size=(len(one.chunks) + len(extra), 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ms = np.broadcast_to(np.array([HYBRID_MS, ITERATIVE_MS])[None, :, None, None], (size, 2, 1, 1))
    return Trace(
        one.cases,
        (*one.chunks, *extra),
        ("hybrid", "iterative"),
        hits,
        None,
        {"fingerprint": f"arms-{seed}", "corpus": "arms"},
        latency=Latency(("search",), ms.copy()),
        vectors=vectors,
    )
