"""Files whose hashes were made right again.

Refused with rule, value and remedy, or the same decisions.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from fuzz.outcomes import is_clear
from fuzz.resigned import resigned_documents, resigned_traces
from raglab.bandit.learner import Bandit, choose, init, update
from raglab.bandit.persistence import _document_digest as document_hash
from raglab.bandit.persistence import dumps, loads
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.traces import Trace
from test_store_traces import full_trace
from worlds import PATTERNS, policy


def policies():
    """Policies that between them read every measurement."""
    return [
        policy(l2={"enabled": True, "max_l2": 0.6}),
        PolicyData.from_mapping({"patterns": PATTERNS, "signals": {"groups": {"max": 3.0}}}),
        PolicyData.from_mapping(
            {"generation": {"enabled": True}, "support": {"enabled": True}, "refine": REFINE}
        ),
    ]


REFINE = {"max_depth": 1}


def decided(trace):
    """Decisions of each policy by each arm."""
    return [
        decide(trace, one, arm=arm).frame(reasons=True).to_dict("records")
        for one in policies()
        for arm in trace.arms
    ]


def outcome(read, decide_all, truth):
    """`refused`, `same` or `another`, or what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = decide_all(read())
    except (ValueError, KeyError) as error:
        return "refused" if is_clear(error) else f"raw {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - what it is, is what is asked
        return f"traceback {type(error).__name__}: {error}"
    return "same" if repr(found) == repr(truth) else "another"


def walk(changes, read, decide_all):
    """What became of every change.

    Fails with the first that is neither refused nor decides as before.
    """
    truth, counts, wrong = decide_all(read(None)), Counter[str](), []
    for change in changes:
        # called at once
        found = outcome(lambda: read(change.content), decide_all, truth)  # noqa: B023
        kind = found if found in {"refused", "same", "another"} else "wrong"
        if kind == "wrong" or (kind == "another" and change.malformed):
            wrong.append(f"{change.what}: {found}")
            kind = "wrong"
        counts[kind] += 1
    assert not wrong, f"{len(wrong)} of {counts.total()}\n" + "\n".join(wrong[:40])
    return counts


def trace_walk(folder, step=1):
    """Walk over a trace that holds all that one may hold."""
    whole, target = folder / "whole.parquet", folder / "t.parquet"
    dataclasses.replace(full_trace(), latency=None).save(whole)
    return walk(
        resigned_traces(whole, target, step), lambda path: Trace.load(path or whole), decided
    )


def test_a_trace(tmp_path):
    """Every seventh change of a column or field of a trace."""
    counts = trace_walk(tmp_path, step=7)
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

    counts = walk(resigned_documents(head, "content", lambda _: head["content"]), read, decided)
    assert counts["refused"] > 50
