"""Re-signed files.

Traces, manifests of shards and saved learners whose content was changed and hashed again.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

import numpy as np

from fuzz.mutation import mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.resigned import Change, decided_alike, json_hash, signed_tables, trace_changes
from raglab.bandit.learner import Bandit, choose, init, update
from raglab.bandit.persistence import _document_digest, dumps, loads
from raglab.store.traces import Trace
from stored_traces import full_trace


def test_re_signed_traces(tmp_path):
    """A change of a column or of the head.

    What no honest file holds is refused, or decides as before.
    """
    whole, target = tmp_path / "whole.parquet", tmp_path / "t.parquet"
    dataclasses.replace(full_trace(), latency=None).save(whole)
    changes, truth = list(trace_changes(whole)), repr(decided_alike(Trace.load(whole)))

    def draw(rng):
        change: Change = pick(rng, changes)
        *_, _ = signed_tables(change, target)

        def problem(found):
            return "another decision" if change.malformed and repr(found) != truth else ""

        return Trial(change.what, lambda: decided_alike(Trace.load(target)), problem)

    failures = fuzz("re-signed: traces", draw, tmp_path, -(-CASES // 10))
    assert not failures, report(failures)


@cache
def learner():
    """A saved learner as a document."""
    bandit = Bandit("thompson_beta")
    state = init(3, bandit=bandit)
    for n in range(12):
        state = update(state, n % 3, 0.5, bandit)
    document: dict[str, Any] = json.loads(dumps(state, bandit, np.random.default_rng(0)))
    return document


def test_re_signed_learners(tmp_path):
    """One that loads chooses one of its arms."""

    def draw(rng):
        changed = mutated_value(
            rng, {key: value for key, value in learner().items() if key != "sha256"}
        )
        try:
            signed = {**changed, "sha256": _document_digest(changed)}
        except (TypeError, ValueError):
            signed = {"sha256": json_hash({})}

        def chosen():
            saved = loads(json.dumps(signed))
            return [
                choose(saved.state, saved.bandit, np.random.default_rng(1))[1].arm.tolist()
                for _ in range(5)
            ]

        return Trial(
            shown(signed, 400), chosen, lambda arms: "" if set(arms) <= set(range(99)) else "no arm"
        )

    failures = fuzz("re-signed: learners", draw, tmp_path, -(-CASES // 4))
    assert not failures, report(failures)
