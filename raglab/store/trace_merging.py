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

from raglab.decision.trace_view import FAILED_CALLS, Measured, joined_failed_calls
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.records import hash_cases
from raglab.values import Answers, Chunk, Hits, NumberArray, PatternHits, TraceData
from raglab.words.canonical import canonical_json, digest

ANSWER_REQUESTS = "answer_requests"  # in a trace's meta: what its recorded answers took
# Of a trace's meta, what its cases or its build change.
TRACE_OWN_KEYS = frozenset({"fingerprint", "cases_hash", "command", "columns", ANSWER_REQUESTS})
Kind = TypeVar("Kind", bound=TraceData)
FAILED_FACT = f"{FAILED_CALLS} in their meta"  # that may differ, and are joined


def merge_traces(first_trace: Kind, further_traces: Sequence[TraceData]) -> Kind:
    """Trace of the kind of the first with the cases of all, in order; see `Trace.merge`.

    Raises:
      InputError: parts that differ in more than their cases, or share one; a trace of shards.
    """
    trace_parts: Sequence[TraceData] = (first_trace, *further_traces)
    first_facts = shared_facts(first_trace)
    # Alike before joined: below, whether there are answers, vectors or columns is read of the first
    # part alone.
    for trace_part in further_traces:
        check_alike(first_facts, shared_facts(trace_part))
    joined_cases = tuple(case for trace_part in trace_parts for case in trace_part.cases)
    case_id, n_uses = (
        Counter(case.id for case in joined_cases).most_common(1)[0] if joined_cases else ("", 1)
    )
    if n_uses > 1:
        refuse_duplicate(case_id, n_uses)
    joined_chunks = _united_chunks(trace_parts)
    chunk_positions = {
        chunk.chunk_id: part_numbers for part_numbers, chunk in enumerate(joined_chunks)
    }
    # The last number of each part is -1, so that -1, which is no hit, stays -1 when it is looked
    # up.
    numbers_by_part = [
        np.array([*(chunk_positions[chunk.chunk_id] for chunk in trace_part.chunks), -1], np.int32)
        for trace_part in trace_parts
    ]
    renumbered_hits = [
        trace_part.hits._replace(chunk=part_numbers[trace_part.hits.chunk])
        for trace_part, part_numbers in zip(trace_parts, numbers_by_part, strict=True)
    ]
    joined_meta = {**first_trace.meta, "cases_hash": hash_cases(joined_cases)}
    joined_meta |= joined_failed_calls([trace_part.meta for trace_part in trace_parts])
    # Of the parts' fingerprints, not of what was joined: shards that are never in one piece have
    # the same.
    joined_meta["fingerprint"] = joined_fingerprint(
        [trace_part.meta.get("fingerprint") for trace_part in trace_parts]
    )
    if answer_requests := joined_requests(
        [
            trace_part.meta[ANSWER_REQUESTS]
            for trace_part in trace_parts
            if ANSWER_REQUESTS in trace_part.meta
        ]
    ):
        joined_meta[ANSWER_REQUESTS] = answer_requests
    joined_queries = (
        None
        if first_trace.queries is None
        else _joined([trace_part.queries for trace_part in trace_parts])
    )
    joined_latency = first_trace.latency
    stages_of_parts = {
        trace_part.latency and trace_part.latency.stages for trace_part in trace_parts
    }
    if joined_latency is not None:  # stays where all parts have the same stages
        milliseconds = [trace_part.latency.ms for trace_part in trace_parts if trace_part.latency]
        joined_latency = (
            joined_latency._replace(ms=_joined(milliseconds)) if len(stages_of_parts) == 1 else None
        )
    joined_vectors = None
    if first_trace.vectors is not None:
        joined_vectors = np.empty(
            (len(joined_chunks), first_trace.vectors.shape[1]), dtype=np.float32
        )
        for trace_part, part_numbers in zip(trace_parts, numbers_by_part, strict=True):
            joined_vectors[part_numbers[:-1]] = trace_part.vectors
    return replace(
        first_trace,
        cases=joined_cases,
        chunks=joined_chunks,
        hits=Hits(*map(_joined, zip(*renumbered_hits, strict=True))),
        pattern_hits=_joined_patterns(trace_parts, numbers_by_part),
        meta=joined_meta,
        queries=joined_queries,
        answers=_joined_answers(trace_parts, numbers_by_part),
        latency=joined_latency,
        vectors=joined_vectors,
        columns={
            case_id: _joined([trace_part.columns[case_id] for trace_part in trace_parts])
            for case_id in first_trace.columns
        },
    )


def joined_requests(requests_of_runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Counts of the requests of several runs in one; parts of one run have the same and count once.

    Percentiles of several runs cannot be told from those of each, and are None.

    Example:
      >>> part = {"requests": 2, "ms": {"p50": 9.0}, "missing": {"timeout": 1}}
      >>> joined_requests([part, part, {"requests": 1, "ms": {"p50": 7.0}, "missing": {}}])
      {'requests': 3, 'ms': {'p50': None}, 'missing': {'timeout': 1}}
    """
    distinct_runs = list(
        {canonical_json(dict(run_counts)): run_counts for run_counts in requests_of_runs}.values()
    )
    if len(distinct_runs) < 2:
        return dict(distinct_runs[0]) if distinct_runs else None
    joined_counts: dict[str, Any] = {}
    for count_name in dict.fromkeys(chain.from_iterable(distinct_runs)):
        run_values = [
            run_counts[count_name] for run_counts in distinct_runs if count_name in run_counts
        ]
        if not isinstance(run_values[0], Mapping):
            joined_counts[count_name] = sum(run_values)
        elif count_name == "ms":
            joined_counts[count_name] = dict.fromkeys(run_values[0])
        else:
            joined_counts[count_name] = dict(sum(map(Counter, run_values), Counter[str]()))
    return joined_counts


def _refuse(
    merge_rule: str, shown_difference: str, remedy: str = "build one trace of all cases"
) -> NoReturn:
    raise input_error(Where("merge"), merge_rule, remedy, shown_difference)


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
    optional_parts = ("pattern_hits", "queries", "answers", "vectors")
    patterns, answers, vectors = trace.pattern_hits, trace.answers, trace.vectors
    trace_facts: dict[str, Any] = {
        "arms": trace.arms,
        "depths": trace.hits.chunk.shape[2],
        "parts": [
            part_name for part_name in optional_parts if getattr(trace, part_name) is not None
        ],
        "patterns": patterns and patterns.patterns_hash,
        "generator and scorer": answers and answers[:2],
        "width of vectors": None if vectors is None else vectors.shape[1],
        "signals": trace.signals,
    }
    trace_facts |= {
        f"{meta_key} in their meta": trace.meta[meta_key]
        for meta_key in sorted(trace.meta.keys() - TRACE_OWN_KEYS)
    }
    # as a manifest holds it
    plain_facts: dict[str, Any] = json.loads(canonical_json(trace_facts, default=str))
    return plain_facts


def check_alike(first_facts: Mapping[str, Any], second_facts: Mapping[str, Any]) -> None:
    """Stop if two traces differ in what a trace holds once, or one holds what the other lacks.

    Calls that failed are of cases, and may differ.

    Args:
      first_facts, second: what `shared_facts` says of each.

    Raises:
      InputError: names the first difference.
    """
    for name in dict.fromkeys((*first_facts, *second_facts)):
        first_fact = first_facts.get(name)
        second_fact = second_facts.get(name)
        if first_fact != second_fact and name != FAILED_FACT:
            _refuse(
                f"traces must have the same {name}",
                f"{shown_value(str(first_fact))} and {shown_value(str(second_fact))}",
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


def _united_chunks(trace_parts: Sequence[TraceData]) -> tuple[Chunk, ...]:
    """Chunks of all parts, each once, in an order that agrees with every part's.

    Earlier parts first where they can be.

    All parts are sorted at once (Kahn 1962): placed part by part, chunks that no part has set in an
    order yet would get one that a later part may not have.
    """
    known_chunks: dict[str, Chunk] = {}  # in the order in which they came
    chunk_sorter = TopologicalSorter[str]()
    for trace_part in trace_parts:
        chunk_ids = [chunk.chunk_id for chunk in trace_part.chunks]
        for chunk_id, chunk in zip(chunk_ids, trace_part.chunks, strict=True):
            if known_chunks.setdefault(chunk_id, chunk) != chunk:
                _refuse(
                    "a chunk must be the same in all traces",
                    f"two of the id {shown_value(chunk_id)}",
                )
            chunk_sorter.add(chunk_id)
        for previous_id, next_id in pairwise(chunk_ids):
            chunk_sorter.add(next_id, previous_id)
    chunk_ids = list(known_chunks)
    united_chunks = []
    positions = {chunk_id: position for position, chunk_id in enumerate(chunk_ids)}
    ready_positions: list[int] = []
    try:
        chunk_sorter.prepare()
    except CycleError:
        _refuse("chunks must stand in the same order in all traces", "two orders")
    while chunk_sorter.is_active():
        for chunk_id in chunk_sorter.get_ready():
            heappush(ready_positions, positions[chunk_id])
        chunk_id = chunk_ids[heappop(ready_positions)]
        united_chunks.append(known_chunks[chunk_id])
        chunk_sorter.done(chunk_id)
    return tuple(united_chunks)


def _joined(joined_parts: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays or tuples
    """Arrays or tuples in one; narrower arrays are padded at the end, by what is missing."""
    first_part = joined_parts[0]
    if not isinstance(first_part, np.ndarray):
        return tuple(chain.from_iterable(joined_parts))
    if first_part.ndim > 1:
        max_width = max(part_array.shape[-1] for part_array in joined_parts)
        missing_value = np.nan if first_part.dtype.kind == "f" else -1
        unpadded_sides = [(0, 0)] * (first_part.ndim - 1)
        joined_parts = [
            np.pad(
                part_array,
                [*unpadded_sides, (0, max_width - part_array.shape[-1])],
                constant_values=missing_value,
            )
            for part_array in joined_parts
        ]
    return np.concatenate(joined_parts)


def _joined_patterns(
    trace_parts: Sequence[TraceData], numbers_by_part: Sequence[NumberArray]
) -> PatternHits | None:
    """What the patterns hit in all queries and chunks."""
    patterns_by_part = [
        trace_part.pattern_hits for trace_part in trace_parts if trace_part.pattern_hits is not None
    ]
    if not patterns_by_part:
        return None
    entities_by_chunk = {
        chunk_position: entities
        for pattern_hits, part_numbers in zip(patterns_by_part, numbers_by_part, strict=True)
        for chunk_position, entities in zip(
            part_numbers[:-1].tolist(), pattern_hits.chunk_entities, strict=True
        )
    }
    return PatternHits(
        patterns_by_part[0].patterns_hash,
        _joined([pattern_hits.counts for pattern_hits in patterns_by_part]),
        _joined([pattern_hits.query_entities for pattern_hits in patterns_by_part]),
        tuple(entities_by_chunk[chunk_position] for chunk_position in sorted(entities_by_chunk)),
    )


def _joined_answers(
    trace_parts: Sequence[TraceData], numbers_by_part: Sequence[NumberArray]
) -> Answers | None:
    """Answers of all cases, their rows and chunks numbered anew."""
    first_row = 0
    renumbered_answers = []
    for trace_part, part_numbers in zip(trace_parts, numbers_by_part, strict=True):
        if trace_part.answers is None:
            return None  # parts are alike: none has any
        case_rows = (trace_part.answers.row + first_row).astype(np.int32)
        cited_chunks = tuple(
            tuple(part_numbers[list(answer_chunks)].tolist())
            for answer_chunks in trace_part.answers.cited
        )
        answer_chunks = part_numbers[trace_part.answers.chunks]
        renumbered_answers.append(
            trace_part.answers._replace(row=case_rows, chunks=answer_chunks, cited=cited_chunks)
        )
        first_row += len(trace_part)
    answer_fields = zip(*renumbered_answers, strict=True)
    generator = next(answer_fields)[0]
    scorer = next(answer_fields)[0]
    return Answers(generator, scorer, *map(_joined, answer_fields))
