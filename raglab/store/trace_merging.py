"""Merging traces (shore): cases of traces of one corpus, arms and models in one (S1.3, S2.15).

Chunks are united by their ids in an order that keeps that of every part, so that ties are settled
as before (S0.4) and each case is decided as in the trace that it came from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import chain, pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.decision.trace_view import FAILED_CALLS, Measured, joined_failed_calls
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.records import hash_cases
from raglab.values import Answers, Chunk, Hits, PatternHits, TraceData
from raglab.words.canonical import canonical_json, digest

ANSWER_REQUESTS = "answer_requests"  # in a trace's meta: what its recorded answers took
# Of a trace's meta, what its cases or its build change.
OWN = frozenset({"fingerprint", "cases_hash", "command", "columns", ANSWER_REQUESTS})
Kind = TypeVar("Kind", bound=TraceData)
FAILED_FACT = f"{FAILED_CALLS} in their meta"  # that may differ, and are joined


def merge_traces(first: Kind, further: Sequence[TraceData]) -> Kind:
    """Trace of the kind of the first with the cases of all, in order; see `Trace.merge`.

    Raises:
      InputError: parts that differ in more than their cases, or share one; a trace of shards.
    """
    parts: Sequence[TraceData] = (first, *further)
    facts = shared_facts(first)
    # Alike before joined: below, whether there are answers, vectors or columns is read of the first
    # part alone.
    for part in further:
        check_alike(facts, shared_facts(part))
    cases = tuple(case for part in parts for case in part.cases)
    name, times = Counter(case.id for case in cases).most_common(1)[0] if cases else ("", 1)
    if times > 1:
        refuse_duplicate(name, times)
    chunks = _united_chunks(parts)
    place = {chunk.chunk_id: number for number, chunk in enumerate(chunks)}
    # The last number of each part is -1, so that -1, which is no hit, stays -1 when it is looked
    # up.
    numbers = [
        np.array([*(place[chunk.chunk_id] for chunk in part.chunks), -1], np.int32)
        for part in parts
    ]
    hits = [
        part.hits._replace(chunk=number[part.hits.chunk])
        for part, number in zip(parts, numbers, strict=True)
    ]
    meta = {**first.meta, "cases_hash": hash_cases(cases)}
    meta |= joined_failed_calls([part.meta for part in parts])
    # Of the parts' fingerprints, not of what was joined: shards that are never in one piece have
    # the same.
    meta["fingerprint"] = joined_fingerprint([part.meta.get("fingerprint") for part in parts])
    if requests := joined_requests(
        [part.meta[ANSWER_REQUESTS] for part in parts if ANSWER_REQUESTS in part.meta]
    ):
        meta[ANSWER_REQUESTS] = requests
    queries = None if first.queries is None else _joined([part.queries for part in parts])
    latency, stages = first.latency, {part.latency and part.latency.stages for part in parts}
    if latency is not None:  # stays where all parts have the same stages
        milliseconds = [part.latency.ms for part in parts if part.latency]
        latency = latency._replace(ms=_joined(milliseconds)) if len(stages) == 1 else None
    vectors = None
    if first.vectors is not None:
        vectors = np.empty((len(chunks), first.vectors.shape[1]), dtype=np.float32)
        for part, number in zip(parts, numbers, strict=True):
            vectors[number[:-1]] = part.vectors
    return replace(
        first,
        cases=cases,
        chunks=chunks,
        hits=Hits(*map(_joined, zip(*hits, strict=True))),
        pattern_hits=_joined_patterns(parts, numbers),
        meta=meta,
        queries=queries,
        answers=_joined_answers(parts, numbers),
        latency=latency,
        vectors=vectors,
        columns={name: _joined([part.columns[name] for part in parts]) for name in first.columns},
    )


def joined_requests(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Counts of the requests of several runs in one; parts of one run have the same and count once.

    Percentiles of several runs cannot be told from those of each, and are None.

    Example:
      >>> part = {"requests": 2, "ms": {"p50": 9.0}, "missing": {"timeout": 1}}
      >>> joined_requests([part, part, {"requests": 1, "ms": {"p50": 7.0}, "missing": {}}])
      {'requests': 3, 'ms': {'p50': None}, 'missing': {'timeout': 1}}
    """
    runs = list({canonical_json(dict(run)): run for run in counts}.values())
    if len(runs) < 2:
        return dict(runs[0]) if runs else None
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(chain.from_iterable(runs)):
        values = [run[name] for run in runs if name in run]
        if not isinstance(values[0], Mapping):
            joined[name] = sum(values)
        elif name == "ms":
            joined[name] = dict.fromkeys(values[0])
        else:
            joined[name] = dict(sum(map(Counter, values), Counter[str]()))
    return joined


def _refuse(rule: str, value: str, remedy: str = "build one trace of all cases") -> NoReturn:
    raise input_error(Where("merge"), rule, remedy, value)


class TraceError(InputError):
    """A trace on disk is damaged, or was made of something else than what is asked for."""


def shared_facts(trace: TraceData) -> dict[str, Any]:
    """What must be alike in traces whose cases are to be one, by what messages call it.

    JSON values alone.

    Raises:
      InputError: it is no trace in memory.
    """
    if not isinstance(trace, TraceData):
        remedy = "merge its shards (trace.merge(*sharded.shards())), or write raglab.io.save_shards"
        remedy = "give its .trace" if isinstance(trace, Measured) else remedy
        _refuse("traces that are merged must be in memory", f"a {type(trace).__name__}", remedy)
    optional = ("pattern_hits", "queries", "answers", "vectors")
    patterns, answers, vectors = trace.pattern_hits, trace.answers, trace.vectors
    facts: dict[str, Any] = {
        "arms": trace.arms,
        "depths": trace.hits.chunk.shape[2],
        "parts": [name for name in optional if getattr(trace, name) is not None],
        "patterns": patterns and patterns.patterns_hash,
        "generator and scorer": answers and answers[:2],
        "width of vectors": None if vectors is None else vectors.shape[1],
        "signals": trace.signals,
    }
    facts |= {f"{key} in their meta": trace.meta[key] for key in sorted(trace.meta.keys() - OWN)}
    plain: dict[str, Any] = json.loads(canonical_json(facts, default=str))  # as a manifest holds it
    return plain


def check_alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Stop if two traces differ in what a trace holds once, or one holds what the other lacks.

    Calls that failed are of cases, and may differ.

    Args:
      first, second: what `shared_facts` says of each.

    Raises:
      InputError: names the first difference.
    """
    for what in dict.fromkeys((*first, *second)):
        left, right = first.get(what), second.get(what)
        if left != right and what != FAILED_FACT:
            _refuse(
                f"traces must have the same {what}",
                f"{shown_value(str(left))} and {shown_value(str(right))}",
            )


def joined_fingerprint(fingerprints: Sequence[str | None]) -> str:
    """Fingerprint of the cases of several traces in their order; of one trace its own."""
    if len(fingerprints) == 1:
        return str(fingerprints[0])
    return digest(canonical_json(list(fingerprints)), 16)


def refuse_duplicate(case_id: str, times: int) -> NoReturn:
    """Raise InputError for a case that several traces hold."""
    _refuse(
        "a case must stand in one of the traces",
        f"{shown_value(case_id)} {times} times",
        "leave it out by subset",
    )


def _united_chunks(parts: Sequence[TraceData]) -> tuple[Chunk, ...]:
    """Chunks of all parts, each once, in an order that agrees with every part's.

    Earlier parts first where they can be.

    All parts are sorted at once (Kahn 1962): placed part by part, chunks that no part has set in an
    order yet would get one that a later part may not have.
    """
    known: dict[str, Chunk] = {}  # in the order in which they came
    sorter = TopologicalSorter[str]()
    for part in parts:
        names = [chunk.chunk_id for chunk in part.chunks]
        for name, chunk in zip(names, part.chunks, strict=True):
            if known.setdefault(name, chunk) != chunk:
                _refuse(
                    "a chunk must be the same in all traces", f"two of the id {shown_value(name)}"
                )
            sorter.add(name)
        for before, after in pairwise(names):
            sorter.add(after, before)
    names, united = list(known), []
    positions = {name: number for number, name in enumerate(names)}
    ready: list[int] = []
    try:
        sorter.prepare()
    except CycleError:
        _refuse("chunks must stand in the same order in all traces", "two orders")
    while sorter.is_active():
        for name in sorter.get_ready():
            heappush(ready, positions[name])
        name = names[heappop(ready)]
        united.append(known[name])
        sorter.done(name)
    return tuple(united)


def _joined(values: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays or tuples
    """Arrays or tuples in one; narrower arrays are padded at the end, by what is missing."""
    first = values[0]
    if not isinstance(first, np.ndarray):
        return tuple(chain.from_iterable(values))
    if first.ndim > 1:
        width = max(field.shape[-1] for field in values)
        empty = np.nan if first.dtype.kind == "f" else -1
        sides = [(0, 0)] * (first.ndim - 1)
        values = [
            np.pad(field, [*sides, (0, width - field.shape[-1])], constant_values=empty)
            for field in values
        ]
    return np.concatenate(values)


def _joined_patterns(
    parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int32]]
) -> PatternHits | None:
    """What the patterns hit in all queries and chunks."""
    by_part = [part.pattern_hits for part in parts if part.pattern_hits is not None]
    if not by_part:
        return None
    by_chunk = {
        place: entities
        for hits, number in zip(by_part, numbers, strict=True)
        for place, entities in zip(number[:-1].tolist(), hits.chunk_entities, strict=True)
    }
    return PatternHits(
        by_part[0].patterns_hash,
        _joined([hits.counts for hits in by_part]),
        _joined([hits.query_entities for hits in by_part]),
        tuple(by_chunk[place] for place in sorted(by_chunk)),
    )


def _joined_answers(
    parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int32]]
) -> Answers | None:
    """Answers of all cases, their rows and chunks numbered anew."""
    start, renumbered = 0, []
    for part, number in zip(parts, numbers, strict=True):
        if part.answers is None:
            return None  # parts are alike: none has any
        row = (part.answers.row + start).astype(np.int32)
        cited = tuple(tuple(number[list(chunks)].tolist()) for chunks in part.answers.cited)
        chunks = number[part.answers.chunks]
        renumbered.append(part.answers._replace(row=row, chunks=chunks, cited=cited))
        start += len(part)
    fields = zip(*renumbered, strict=True)
    generator, scorer = next(fields)[0], next(fields)[0]
    return Answers(generator, scorer, *map(_joined, fields))
