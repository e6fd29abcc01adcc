"""Bodies of the example service: decided, or refused with a rule.

Always in JSON that any client reads.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from fuzz.mutation import hostile_value, json_bytes, mutated_bytes, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from local_server import APP
from raglab.store.policies import Policy

GOOD = [
    {
        "query": "what is the excess?",
        "hit_id": "a",
        "node_score": 0.9,
        "text": "The excess is 350.",
        "source": "a.md",
    },
    {"query": "what is the excess?", "hit_id": "b", "node_score": 0.4, "page": 3},
    {"query": "Who won?", "hit_id": "c", "node_score": 0.1},
]


def body(rng):
    """A body with values changed, grown, or other bytes."""
    kind = rng.random()
    if kind < 0.6:
        return json_bytes(mutated_value(rng, {"hits": GOOD}))
    if kind < 0.75:
        hits = [dict(pick(rng, GOOD)) for _ in range(int(rng.integers(1, 150)))]
        for hit in hits:
            hit[str(pick(rng, [*GOOD[0], "case_id", "page", "other"]))] = hostile_value(rng)
        return json_bytes({"hits": hits})
    raw = json_bytes({"hits": GOOD})
    return mutated_bytes(rng, raw) if kind < 0.95 else rng.bytes(int(rng.integers(300)))


def test_whatever_a_client_sends(app):
    """By value and by byte."""
    policy = Policy.load(APP.with_name("policy.yaml"))

    def decided(content):
        status, text = app.decisions(policy, content)
        value = json.loads(text)  # which any client reads
        if not text.isascii() or status not in {200, 422}:
            raise OSError(text)
        if status != 200:
            raise ValueError(value["detail"])
        rows: list[dict[str, Any]] = value["decisions"]
        return rows

    def wrong(content, rows):
        hits = json.loads(content)["hits"]
        if {row["status"] for row in rows} - {"ok", "refuse", "ambiguous"}:
            return f"statuses {rows}"
        if len(rows) > len(hits):
            return f"{len(rows)} decisions on {len(hits)} hits"
        best = max(
            (hit["node_score"] for hit in hits if isinstance(hit.get("node_score"), int | float)),
            default=0.0,
        )
        return (
            "an answer on scores below the gate"
            if best < 0.5 and any(row["status"] == "ok" for row in rows)
            else ""
        )

    def draw(rng):
        content = body(rng)
        return Trial(shown(content, 500), partial(decided, content), partial(wrong, content))

    failures = fuzz("service", draw, None, -(-CASES // 4))
    assert not failures, report(failures)


def test_the_sample_is_decided(app):
    """What is mutated is a right body."""
    status, text = app.decisions(
        Policy.load(APP.with_name("policy.yaml")), json_bytes({"hits": GOOD})
    )
    assert (status, [row["status"] for row in json.loads(text)["decisions"]]) == (
        200,
        ["ok", "refuse"],
    )
    assert "service_app" in sys.modules
