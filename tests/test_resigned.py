"""Files whose hashes were made right again.

Refused with rule, value and remedy, or the same decisions.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from fuzz.resigned import decided_alike, resigned_documents, resigned_traces, walk
from raglab.bandit.learner import Bandit, choose, init, update
from raglab.bandit.persistence import _document_digest as document_hash
from raglab.bandit.persistence import dumps, loads
from raglab.store.traces import Trace
from stored_traces import full_trace


def trace_walk(folder, step=1):
    """Walk over a trace that holds all that one may hold."""
    whole, target = folder / "whole.parquet", folder / "t.parquet"
    dataclasses.replace(full_trace(), latency=None).save(whole)
    return walk(
        resigned_traces(whole, target, step), lambda path: Trace.load(path or whole), decided_alike
    )


def test_a_trace(tmp_path):
    """Every forty-fifth change of a column or field of a trace."""
    counts = trace_walk(tmp_path, step=45)
    assert counts["refused"] > counts["same"] > 0


def test_a_trace_whole(tmp_path):
    """Every change of every column and field."""
    counts = trace_walk(tmp_path)
    assert counts["refused"] > counts["same"] > counts["another"] > 0


@pytest.mark.parametrize("policy_name", ["thompson_beta", "lin_ucb"])
def test_a_saved_learner(policy_name):
    """Every place of its state and settings."""
    bandit, rng = Bandit(policy_name), np.random.default_rng(0)
    width = 2 if bandit.linear else 0
    state = init(3, bandit=bandit, n_features=width)
    for n in range(12):
        context = np.array([1.0, n / 12.0]) if width else np.zeros(0)
        state = update(state, n % 3, 0.25 + 0.5 * (n % 2), bandit, context=context)
    document = json.loads(dumps(state, bandit, rng))

    def choices(saved):
        context = np.ones(width)
        drawn = np.random.default_rng(1)
        return [
            choose(saved.state, saved.bandit, drawn, context=context)[1].arm.tolist()
            for _ in range(20)
        ]

    def read(changed):
        return loads(json.dumps(document if changed is None else changed))

    counts = walk(resigned_documents(document, "sha256", document_hash), read, choices)
    assert counts["refused"] > 5 * counts["same"] > 0


def test_latencies(tmp_path):
    """They are no part of a decision; those of another trace are refused."""
    whole = tmp_path / "t.parquet"
    full_trace().save(whole)
    file = whole.with_name("t.parquet.latency")
    table = pq.read_table(file)
    head = json.loads(table.schema.metadata[b"raglab"])

    def read(changed):
        if changed is not None:
            pq.write_table(table.replace_schema_metadata({"raglab": json.dumps(changed)}), file)
        return Trace.load(whole)

    counts = walk(
        resigned_documents(head, "content", lambda _: head["content"]), read, decided_alike
    )
    assert counts["refused"] > 50
