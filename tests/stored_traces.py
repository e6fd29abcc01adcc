"""Traces as files hold them: measured, with what patterns hit, with all that one may hold."""

from __future__ import annotations

import dataclasses

import numpy as np

from raglab import values
from raglab.policy_parts.patterns import Patterns, pattern_hits
from raglab.store.records import hash_cases
from raglab.store.traces import Trace
from worlds import PATTERNS, measured, random_trace

META = {
    "fingerprint": "0123456789abcdef",
    "corpus_hash": "c" * 64,
    "command": "raglab trace broker --cases qa.jsonl",
}


def stored(plain, **meta):
    """Trace with what patterns hit and a meta of its own; measurements as retrieval takes them."""
    plain = measured(plain)
    found = pattern_hits(plain.cases, plain.chunks, Patterns(**PATTERNS))
    told = META | {"cases_hash": hash_cases(plain.cases)} | meta
    return Trace(plain.cases, plain.chunks, plain.arms, plain.hits, found, told)


def stored_world(seed=0):
    """Trace of six cases, two arms, two depths."""
    return stored(random_trace(seed, n_cases=6, arms=2, depths=2))


def unit_vectors(seed, size):
    """Embeddings of unit length, [size, 3]."""
    rows = np.random.default_rng(seed).normal(size=(size, 3))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def assert_same_trace(first, second):
    """Check that two traces hold the same, to the bit and the type."""
    assert first.cases == second.cases
    assert [chunk._replace(tags=dict(chunk.tags)) for chunk in first.chunks] == list(second.chunks)
    assert (first.arms, first.meta) == (second.arms, second.meta)
    pairs = list(zip(first.hits, second.hits, strict=True))
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype == np.float64)
    if first.vectors is None:
        assert second.vectors is None
    else:
        assert first.vectors.dtype == second.vectors.dtype == np.float32
        assert np.array_equal(first.vectors, second.vectors)
    if first.pattern_hits is None:
        assert second.pattern_hits is None
    else:
        assert first.pattern_hits.counts.tolist() == second.pattern_hits.counts.tolist()
        assert first.pattern_hits._replace(counts=None) == second.pattern_hits._replace(counts=None)


def full_trace():
    """Trace with everything that a trace may hold, two cases."""
    plain = stored(
        random_trace(2, n_cases=2, arms=2, depths=1),
        parameters={"k": 5, "models": ["a", None]},
        pack="p@1",
    )
    n_arms = plain.hits.l2.shape[1]
    ints = np.array([0, 1], np.int32)
    answers = values.Answers(
        generator="extractive",
        scorer="words",
        row=ints,
        arm=np.zeros(2, np.int32),
        depth=np.zeros(2, np.int32),
        chunks=np.array([[0, 1], [1, -1]], np.int32),
        text=("one", "two"),
        confidence=np.array([0.5, 0.25]),
        support=np.array([1.0, 0.75]),
        claim=("a claim", "another"),
        cited=((0,), (1,)),
        refused=("no", ""),
    )
    return dataclasses.replace(
        plain,
        queries=tuple(tuple((case.query,) for _ in range(n_arms)) for case in plain.cases),
        answers=answers,
        latency=values.Latency(("dense", "bm25"), np.arange(4.0 * n_arms).reshape(2, n_arms, 1, 2)),
        vectors=np.eye(len(plain.chunks), 3, dtype=np.float32),
        columns={"gaps": np.full((2, n_arms, 1), 0.5)},
    )
