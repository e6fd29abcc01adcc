"""Merging traces (shore): cases of traces of one corpus, arms and models in one (S1.3, S2.15).

Chunks are united by their ids in an order that keeps that of every part, so that ties are settled
as before (S0.4) and each case is decided as in the trace that it came from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from raglab.decision.failed_calls import FAILED_CALLS, joined_failed_calls
from raglab.decision.measured_trace import Measured
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.records import hash_cases
from raglab.values import Answers, Chunk, Hits, Latency, PatternHits, TraceData
from raglab.words.canonical import canonical_json, digest

ANSWER_REQUESTS = "answer_requests"  # in a trace's meta: what its recorded answers took
# Of a trace's meta, what its cases or its build change.
OWN = frozenset({"fingerprint", "cases_hash", "command", "columns", ANSWER_REQUESTS})
FAILED_FACT = f"{FAILED_CALLS} in their meta"  # that may differ, and are joined


def merge_traces(parts: Sequence[TraceData]) -> TraceData:
    """Cases of all parts, in order; see `Trace.merge`.

    Raises:
      InputError: parts that differ in more than their cases, or share one; a trace of shards.
    """
    first = parts[0]
    facts = shared_facts(first)
    # Alike before joined: below, whether there are answers, vectors or columns is read of the first
    # part alone.
    for part in parts[1:]:
        check_alike(facts, shared_facts(part))
    cases = tuple(case for part in parts for case in part.cases)
    name, times = Counter(case.id for case in cases).most_common(1)[0] if cases else ("", 1)
    if times > 1:
        refuse_duplicate(name, times)
    chunks = _united_chunks(parts)
    place = {chunk.chunk_id: number for number, chunk in enumerate(chunks)}
    # The last number of each part is -1, so that -1, which is no hit, stays -1 when it is looked
    # up.
    numbers = [np.array([place[chunk.chunk_id] for chunk in part.chunks] + [-1]) for part in parts]
    meta = {**first.meta, "cases_hash": hash_cases(cases)}
    meta |= joined_failed_calls([part.meta for part in parts])
    # Of the parts' fingerprints, not of what was joined: shards that are never in one piece have
    # the same.
    meta["fingerprint"] = joined_fingerprint([part.meta.get("fingerprint") for part in parts])
    if requests := joined_requests(
        [part.meta[ANSWER_REQUESTS] for part in parts if ANSWER_REQUESTS in part.meta]
    ):
        meta[ANSWER_REQUESTS] = requests
    return replace(
        first,
        cases=cases,
        chunks=chunks,
        hits=_joined_hits(parts, numbers),
        pattern_hits=_joined_patterns(parts, numbers, len(chunks)),
        meta=meta,
        queries=None
        if first.queries is None
        else tuple(row for part in parts for row in part.queries or ()),
        answers=_joined_answers(parts, numbers),
        latency=_joined_latency(parts),
        vectors=_joined_vectors(parts, numbers, len(chunks)),
        columns={
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        },
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
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if name in run]
        if not all(isinstance(value, Mapping) for value in values):
            joined[name] = sum(values)
        elif name == "ms":
            joined[name] = dict.fromkeys(values[0])
        else:
            joined[name] = dict(sum((Counter(value) for value in values), Counter[str]()))
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
        remedy = (
            "merge its shards (trace.merge(*sharded.shards())), or write all by "
            "raglab.io.save_shards"
        )
        remedy = "give its .trace" if isinstance(trace, Measured) else remedy
        _refuse("traces that are merged must be in memory", f"a {type(trace).__name__}", remedy)
    optional = {
        name: getattr(trace, name) for name in ("pattern_hits", "queries", "answers", "vectors")
    }
    answers = trace.answers
    facts: dict[str, Any] = {
        "arms": list(trace.arms),
        "depths": trace.hits.chunk.shape[2],
        "parts": [name for name, value in optional.items() if value is not None],
        "patterns": None if trace.pattern_hits is None else trace.pattern_hits.patterns_hash,
        "generator and scorer": None if answers is None else [answers.generator, answers.scorer],
        "width of vectors": None if trace.vectors is None else trace.vectors.shape[1],
        "signals": list(trace.signals),
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
    for what in sorted({*first, *second} - {FAILED_FACT}, key=[*first, *second].index):
        left, right = first.get(what), second.get(what)
        if left != right:
            _refuse(
                f"traces must have the same {what}",
                f"{shown_value(str(left))} and {shown_value(str(right))}",
            )


def joined_fingerprint(fingerprints: Sequence[str | None]) -> str:
    """Fingerprint of the cases of several traces in their order; of one trace its own."""
    return (
        str(fingerprints[0])
        if len(fingerprints) == 1
        else digest(canonical_json(list(fingerprints)), 16)
    )


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
    followers: dict[str, set[str]] = {}
    for part in parts:
        last = None
        for chunk in part.chunks:
            name = chunk.chunk_id
            if known.setdefault(name, chunk) != chunk:
                _refuse(
                    "a chunk must be the same in all traces", f"two of the id {shown_value(name)}"
                )
            if last is not None:
                followers.setdefault(last, set()).add(name)
            last = name
    positions = {name: number for number, name in enumerate(known)}
    awaited = Counter(name for after in followers.values() for name in after)
    free = [number for name, number in positions.items() if not awaited[name]]
    names, united = list(known), []
    while free:
        name = names[heappop(free)]
        united.append(known[name])
        for after in followers.get(name, ()):
            awaited[after] -= 1
            if not awaited[after]:
                heappush(free, positions[after])
    if len(united) < len(known):
        _refuse("chunks must stand in the same order in all traces", "two orders")
    return tuple(united)


def _joined_hits(parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int64]]) -> Hits:
    """Hits of all cases, those of a narrower trace padded at the end."""
    width = max(part.hits.chunk.shape[3] for part in parts)

    def padded(field: NDArray[Any]) -> NDArray[Any]:
        if field.ndim < 4:
            return field
        empty = np.nan if field.dtype.kind == "f" else -1
        return np.pad(field, [(0, 0)] * 3 + [(0, width - field.shape[3])], constant_values=empty)

    renumbered = [
        part.hits._replace(chunk=number[part.hits.chunk].astype(np.int32))
        for part, number in zip(parts, numbers, strict=True)
    ]
    return Hits(
        *(
            np.concatenate([padded(field) for field in fields])
            for fields in zip(*renumbered, strict=True)
        )
    )


def _joined_patterns(
    parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int64]], size: int
) -> PatternHits | None:
    """What the patterns hit in all queries and chunks."""
    pattern_hits = [part.pattern_hits for part in parts if part.pattern_hits is not None]
    if not pattern_hits:
        return None
    by_chunk: list[tuple[str, ...]] = [()] * size
    for part_hits, number in zip(pattern_hits, numbers, strict=True):
        for place, entities in zip(number[:-1].tolist(), part_hits.chunk_entities, strict=True):
            by_chunk[place] = entities
    queries = tuple(names for part_hits in pattern_hits for names in part_hits.query_entities)
    return PatternHits(
        pattern_hits[0].patterns_hash,
        np.concatenate([part_hits.counts for part_hits in pattern_hits]),
        queries,
        tuple(by_chunk),
    )


def _joined_answers(
    parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int64]]
) -> Answers | None:
    """Answers of all cases, their rows and chunks numbered anew."""
    # Parts are alike: all of them have answers, or none has, so that answers and numbers pair up
    # below.
    by_part = [part.answers for part in parts if part.answers is not None]
    if not by_part:
        return None
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
    # Answers of fewer chunks are padded with -1, which is no chunk.
    width = max(answers.chunks.shape[1] for answers in by_part)

    def chunks(answers: Answers, number: NDArray[np.int64]) -> NDArray[np.int32]:
        renumbered = number[answers.chunks].astype(np.int32)
        return np.pad(renumbered, [(0, 0), (0, width - renumbered.shape[1])], constant_values=-1)

    joined: dict[str, Any] = {
        name: np.concatenate([getattr(answers, name) for answers in by_part])
        for name in ("arm", "depth", "confidence", "support")
    }
    joined |= {
        name: tuple(value for answers in by_part for value in getattr(answers, name))
        for name in ("text", "claim", "refused")
    }
    cited = (
        tuple(int(number[chunk]) for chunk in row)
        for answers, number in zip(by_part, numbers, strict=True)
        for row in answers.cited
    )
    # Rows count cases, which stand part behind part; chunks are united, so their numbers are looked
    # up.
    rows = [answers.row + int(start) for answers, start in zip(by_part, starts, strict=True)]
    return by_part[0]._replace(
        row=np.concatenate(rows).astype(np.int32),
        chunks=np.concatenate(
            [chunks(answers, number) for answers, number in zip(by_part, numbers, strict=True)]
        ),
        cited=tuple(cited),
        **joined,
    )


def _joined_latency(parts: Sequence[TraceData]) -> Latency | None:
    """Latencies of all cases; None where a part has none, or others."""
    there = [part.latency for part in parts if part.latency is not None]
    if len(there) < len(parts) or any(latency.stages != there[0].stages for latency in there):
        return None
    return there[0]._replace(ms=np.concatenate([latency.ms for latency in there]))


def _joined_vectors(
    parts: Sequence[TraceData], numbers: Sequence[NDArray[np.int64]], size: int
) -> NDArray[np.float32] | None:
    """Embeddings of the united chunks."""
    if parts[0].vectors is None:
        return None
    joined = np.empty((size, parts[0].vectors.shape[1]), dtype=np.float32)
    for part, number in zip(parts, numbers, strict=True):
        joined[number[:-1]] = part.vectors
    return joined
