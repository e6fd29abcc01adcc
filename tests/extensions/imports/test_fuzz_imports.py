"""Spans of an application that are not what they should be: a trace with counts, or one line."""

from __future__ import annotations

import json
import warnings
from functools import partial

from fuzz.mutation import hostile_value, mutated_bytes, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.roundtrip import trace_problem
from raglab.extensions.imports.span_traces import trace_from_spans
from span_samples import request, reranker, span

ROWS = [
    *request("t0", "what is the excess?", ("a", 0.75), ("b", 0.5), feedback="up", tenant="north"),
    span("t0", 3, reranker(("b", 4.0), ("a", 1.0)), parent="t0-0"),
    *request("t1", "who won the cup?", ("a", 0.25), feedback="down", second=1),
]
SDK = {
    "context": {"trace_id": "0x1", "span_id": "0x2"},
    "start_time": "2025-11-24T16:00:00Z",
    "attributes": {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": "q",
        "gen_ai.retrieval.documents": json.dumps(
            [{"id": "a", "score": 1, "content": "t", "metadata": {"page": 1}}]
        ),
    },
}


def changed(rng):
    """A file with one to three things wrong; and what they are."""
    rows = [json.loads(json.dumps(row)) for row in (*ROWS, SDK)]
    notes = []
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(rows)))
        match int(rng.integers(4)):
            case 0:
                rows[place] = mutated_value(rng, rows[place])
            case 1 if isinstance(rows[place], dict) and isinstance(
                rows[place].get("attributes"), list
            ):
                attribute = pick(rng, rows[place]["attributes"] or [{}])
                if isinstance(attribute, dict):
                    attribute["value"] = {
                        pick(rng, ("stringValue", "doubleValue", "intValue", "x")): hostile_value(
                            rng
                        )
                    }
            case 2:
                rows.insert(place, hostile_value(rng))
            case _:
                rows[place] = {"resourceSpans": [{"scopeSpans": rows[place]}, rows[place]]}
        notes.append(f"row {place}: {shown(rows[place], 200)}")
    texts = [json.dumps(row, allow_nan=True) for row in rows]
    raw = "\n".join(texts).encode("utf-8", "surrogatepass")
    return (mutated_bytes(rng, raw), "bytes") if rng.random() < 0.3 else (raw, "; ".join(notes))


def imported(path):
    """Trace of a file; the counts are not of interest here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return trace_from_spans(path, groups=("tenant",))


def test_spans_that_are_none_are_a_trace_or_are_refused(tmp_path):
    """Ids, times, scores, documents and attributes that no exporter should write."""
    path = tmp_path / "spans.jsonl"

    def draw(rng):
        raw, what = changed(rng)
        path.write_bytes(raw)
        return Trial(what, partial(imported, path), lambda trace: trace_problem(trace, tmp_path))

    failures = fuzz("spans", draw, tmp_path, -(-CASES // 10))
    assert not failures, report(failures)
