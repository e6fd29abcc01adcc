"""Traces under mutated files: one that loads is equal to what was saved, all else is told.

Never another decision.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.mutation import hostile_value, mutated_bytes, mutated_value, pick, shown
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


def mutated_table(rng, table):
    """A table with one column or one field of its head changed; and what was changed."""
    names = table.column_names
    column = pick(rng, names)
    match int(rng.integers(5)):
        case 0:
            return table.drop_columns([column]), f"without {column}"
        case 1:
            head = mutated_value(rng, json.loads(table.schema.metadata[b"raglab"]))
            text = json.dumps(head).encode("utf-8", "replace")
            return table.replace_schema_metadata({"raglab": text}), f"head {shown(text, 600)}"
        case 2:
            rows = (
                rng.permutation(table.num_rows + 1)[: int(rng.integers(0, table.num_rows + 1))]
                % table.num_rows
            )
            return table.take(pa.array(rows)), f"rows {rows.tolist()}"
        case 3:
            name = str(hostile_value(rng))[:20].encode("utf-8", "replace").decode()
            return table.append_column(name, table[column]), f"{column} again as {name!r}"
        case _:
            values, place = table[column].to_pylist(), names.index(column)
            changed = _changed_cell(rng, values)
            try:
                array = pa.array(changed, table.schema.field(column).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                array = pa.array([None] * len(values))
            return table.set_column(place, column, array), f"{column}: {shown(changed, 300)}"


def _changed_cell(rng, values):
    """Values with one of a row changed; a case, which is JSON inside a text, within that."""
    out, row = list(values), int(rng.integers(len(values)))
    held = out[row]
    if isinstance(held, str) and held.startswith("{"):
        out[row] = (
            json.dumps(mutated_value(rng, json.loads(held))).encode("utf-8", "replace").decode()
        )
    elif isinstance(held, list) and held and isinstance(held[0], int | float):
        out[row] = [*held]
        out[row][int(rng.integers(len(held)))] = pick(
            rng, (0, 1, -1, 2**30, 0.5, float("nan"), float("inf"), None)
        )
    else:
        out[row] = mutated_value(rng, [held])
        out[row] = out[row][0] if isinstance(out[row], list) and out[row] else None
    return out


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


def test_a_trace_with_a_mutated_field(tmp_path):
    """A column, a cell or a field of the head is changed by someone who can write Parquet."""
    (tmp_path / "whole.parquet").write_bytes(saved()[1])
    table, path = pq.read_table(tmp_path / "whole.parquet"), tmp_path / "t.parquet"

    def draw(rng):
        changed, what = mutated_table(rng, table)
        pq.write_table(changed, path)
        return Trial(what, lambda: Trace.load(path), problem)

    failures = fuzz("trace: fields", draw, tmp_path, -(-CASES // 8))
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
