"""Traces of spans (shore): an application's logged requests, as trace or shards, memory bounded."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.decision.measurement import CAN_BE_OFF
from raglab.extension_points import extension
from raglab.extensions.imports.import_counts import ImportCounts
from raglab.extensions.imports.span_parts import SpanPart, part_of_row, span_part
from raglab.extensions.imports.span_requests import (
    SIGNALS,
    SpanRequest,
    feedback_label,
    joined_requests,
    request_of_row,
)
from raglab.extensions.imports.spans import FilePiece, LoggedSpan, Losses, pieces, read_spans
from raglab.loops.parallel import run_each
from raglab.policy import PolicyData
from raglab.policy_parts.patterns import pattern_hits
from raglab.store.files import Where, append_bytes, input_error, scratch_folder, shown_value
from raglab.store.records import flat_name, hash_cases
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import FLOAT_FIELDS, SCHEMA_VERSION, Case, Chunk, Hits, TraceData
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question

PART_BYTES = 64 << 20  # of the input whose requests are in memory together
MOST_PARTS = 512  # that spans are sorted into by the hash of their trace's id
PARTS_OF_STORE = 16  # where the size of the input is unknown
SPANS_AHEAD = 5_000  # spans of a piece in memory before they are written
DIRECTIONS = ("surer", "ask")
_KINDS = {
    "higher": "a mapping of signals to directions",
    "groups": "names of attributes",
    "feedback": "names of judgements, a mapping of them to what a yes means, or None",
}


class ImportSettings(NamedTuple):
    """What an import is to make of spans; see `trace_from_spans`."""

    labels: Mapping[str, Case]
    feedback: Mapping[str, str] | None
    higher: Mapping[str, str]
    groups: tuple[str, ...]
    name: str
    out: str | Path | None


class SortedRows(NamedTuple):
    """Rows between two steps of an import: in a file, or compressed in memory without `out`.

    n: number of rows. content: compressed, empty where they lie in the file `path` from `start` on,
    so many bytes.
    """

    n: int
    content: bytes
    path: str = ""
    start: int = 0
    size: int = 0

    def rows(self) -> list[Any]:
        """The rows, as JSON has them."""
        if self.path:
            with Path(self.path).open("rb") as stream:
                stream.seek(self.start)
                content = stream.read(self.size)
        else:
            content = zlib.decompress(self.content)
        rows: list[Any] = json.loads(content)
        return rows


def store_rows(rows: Sequence[Any], folder: Path | None, name: str) -> SortedRows:
    """Rows put into a file of a folder, behind those that are there; into memory without one."""
    content = json.dumps(rows).encode()
    if folder is None:
        return SortedRows(len(rows), zlib.compress(content, 1))
    path = folder / name
    return SortedRows(len(rows), b"", str(path), append_bytes(content, path), len(content))


def trace_from_spans(
    source: str | Path | Iterable[str | Path],
    cases: Sequence[Case] | None = None,
    *,
    feedback: Sequence[str] | Mapping[str, str] | None = (),
    higher: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
    name: str = "spans",
    out: str | Path | None = None,
) -> Any:  # noqa: ANN401 - a trace, or one of shards
    """Trace of the requests that an application logged as spans.

    A file is OTLP JSON (whole, or a batch a line), or JSON lines of an SDK's spans; plain or
    gzipped. Spans are read by the conventions of OpenInference, OpenTelemetry GenAI and MLflow. A
    request is a trace with a retriever's span, or a turn of one that holds a conversation: a span
    with a question below a first one that has none. Its hits stand in the order of the last
    reranker, then in that of the retrievers. Scores keep their own meaning: the score of the first
    hit is the signal `retriever_score` or `reranker_score`. No distance is known, so the gates on
    distances and on confidence are off. Files are read by the workers of
    `raglab.lab.parallel_workers`, to the same bytes.

    Args:
      source: a file, a folder, or several files.
      cases: labels by the id of the trace, or by the question.
      feedback: names of the judgements that become labels, with their source in `notes`; a mapping
        says of each what a yes means, `{"thumb": "ok", "toxicity": "refuse"}`. () takes all whose
        values are words, but names that say something bad; None takes none. Of a logged refusal a
        good judgement is the label `refuse`.
      higher: direction of a score by its signal, `surer` or `ask`; where it is not named, what most
        rankings show.
      groups: attributes whose values are kept with the case, such as `tenant.id`.
      name: of the collection and of the arm.
      out: folder of shards, where the spans are more than the memory holds: they are sorted in its
        folder `.scratch`, which the next import clears after a kill. None keeps spans and trace in
        memory, and writes no file.

    Returns:
      a `raglab.Trace` of Q cases, with `extra` of each: `at` (time), `logged_answer`, `groups`; a
        `ShardedTrace` with `out`.

    Raises:
      ValueError: a direction that is none.
      InputError: no file, no request, or a JSON document of more than 256 MiB.
      MissingExtensionError: `out` without the room `scale`.

    Warns:
      UserWarning: counts of what is left out, merged or mapped; the directions of scores; the gates
        that are off.
    """
    settings = import_settings(
        cases, feedback=feedback, higher=higher, groups=groups, name=name, out=out
    )
    losses = Losses()
    parts = pieces(source, losses)
    size = sum(
        piece.path.stat().st_size for piece in {piece.path: piece for piece in parts}.values()
    )
    number = min(MOST_PARTS, size // PART_BYTES + 1)
    with _scratch(settings) as folder:
        numbered = list(enumerate(parts))
        rows = run_each(sort_piece, numbered, folder, number, settings.groups, what="read")
        return _traced(chain([({}, losses)], rows), folder, settings)


def import_settings(
    cases: Sequence[Case] | None,
    *,
    feedback: Sequence[str] | Mapping[str, str] | None,
    higher: Mapping[str, str] | None,
    groups: Sequence[str],
    name: str,
    out: str | Path | None,
) -> ImportSettings:
    """Arguments of an import, checked.

    Raises:
      ValueError: a direction or sense that is none, or a direction of a signal that an import does
        not give.
      TypeError: an argument of another type.
    """
    for argument, value, kinds in (
        ("higher", higher, (Mapping, type(None))),
        ("groups", groups, (str, list, tuple)),
        ("feedback", feedback, (str, list, tuple, Mapping, type(None))),
    ):
        if not isinstance(value, kinds):
            msg = f"{argument} must be {_KINDS[argument]}, got {shown_value(value)}; write it so."
            raise TypeError(msg)
    for signal, direction in (higher or {}).items():
        if signal not in SIGNALS or direction not in DIRECTIONS:
            rule = f"higher must name {', '.join(SIGNALS)} with {' or '.join(DIRECTIONS)}"
            msg = (
                f'{rule}, got {signal!r}: {direction!r}; write higher={{"retriever_score": '
                f'"ask"}} for a distance.'
            )
            raise ValueError(msg)
    labels = {plain_question(case.query): case for case in cases or ()} | {
        case.id: case for case in cases or ()
    }
    named = dict.fromkeys([feedback], "ok") if isinstance(feedback, str) else feedback
    senses = (
        None
        if named is None
        else dict(named)
        if isinstance(named, Mapping)
        else dict.fromkeys(named, "ok")
    )
    if odd := set((senses or {}).values()) - {"ok", "refuse"}:
        rule = "feedback must say what a yes means, ok or refuse"
        msg = f'{rule}, got {min(map(str, odd))!r}; write feedback={{"toxicity": "refuse"}}.'
        raise ValueError(msg)
    listed = tuple([groups] if isinstance(groups, str) else groups)
    return ImportSettings(labels, senses, dict(higher or {}), listed, name, out)


# as `trace_from_spans`
def trace_of_spans(spans: Iterable[LoggedSpan], settings: ImportSettings) -> Any:  # noqa: ANN401
    """Trace of spans from anywhere; see `trace_from_spans`."""
    with _scratch(settings) as folder:
        rows = _sort(spans, folder, "spans", PARTS_OF_STORE, settings.groups)
        return _traced([(rows, Losses())], folder, settings)


def _scratch(settings: ImportSettings) -> AbstractContextManager[Path | None]:
    """Folder for spans while they are sorted; None, where they stay in memory, without `out`."""
    return nullcontext() if settings.out is None else scratch_folder(Path(settings.out))


# --- spans sorted by the hash of their trace's id


def sort_piece(
    numbered: tuple[int, FilePiece], folder: Path | None, n_parts: int, groups: Sequence[str]
) -> tuple[dict[int, list[SortedRows]], Losses]:
    """Spans of a piece, written by part; and what was left out of it."""
    number, piece = numbered
    losses = Losses()
    rows = _sort(read_spans(piece, losses), folder, f"spans-{number:05d}", n_parts, groups)
    return rows, losses


def _sort(
    spans: Iterable[LoggedSpan],
    folder: Path | None,
    name: str,
    n_parts: int,
    groups: Sequence[str],
) -> dict[int, list[SortedRows]]:
    stored: dict[int, list[SortedRows]] = defaultdict(list)
    rest = iter(spans)
    while ahead := list(islice(rest, SPANS_AHEAD)):
        waiting: dict[int, list[SpanPart]] = defaultdict(list)
        for span in ahead:
            part = zlib.crc32(span.trace_id.encode("utf-8", "replace")) % n_parts
            waiting[part].append(span_part(span, groups))
        for part, rows in sorted(waiting.items()):
            stored[part].append(store_rows(rows, folder, name))
    return dict(stored)


# --- requests of a part


def join_requests(
    numbered: tuple[int, list[SortedRows]], folder: Path | None, settings: ImportSettings
) -> tuple[SortedRows, ImportCounts]:
    """Requests of a part with their labels, stored in the order of their time.

    And what was counted.
    """
    number, stored = numbered
    counts = ImportCounts()
    by_trace: dict[str, list[SpanPart]] = {}
    for part in (part_of_row(row) for piece in stored for row in piece.rows()):
        by_trace.setdefault(part.trace_id, []).append(part)
    requests = (
        request for parts in by_trace.values() for request in joined_requests(parts, counts.losses)
    )
    listed = sorted(requests, key=lambda row: (row.start, row.id))
    for request in listed:
        counts.add_request(request)
        _case(request, settings, counts)
    return store_rows(listed, folder, f"requests-{number:05d}"), counts


def _case(request: SpanRequest, settings: ImportSettings, counts: ImportCounts) -> Case:
    """A request as a case, with its label where there is one."""
    at = datetime.fromtimestamp(request.start // 10**9, UTC).isoformat() if request.start else None
    extra: dict[str, Any] = {"at": at} if at else {}
    extra |= {"logged_answer": request.answer} if request.answer else {}
    extra |= {"groups": dict(request.groups)} if request.groups else {}
    known = settings.labels.get(request.id) or settings.labels.get(plain_question(request.question))
    counts.missing_groups.update(name for name in settings.groups if name not in request.groups)
    if known is not None:
        counts.by_question += known.id != request.id
        counts.matched.add(known.id)
        return known._replace(id=request.id, query=request.question, extra={**known.extra, **extra})
    label, why = None, ""
    if settings.feedback is not None:
        label, why = feedback_label(request.feedback, settings.feedback, request.decision)
        counts.add_feedback(label, why, request)
    return Case(request.id, request.question, label, notes=why or None, extra=extra)


# --- traces


def _traced(
    sorted_pieces: Iterable[tuple[dict[int, list[SortedRows]], Losses]],
    folder: Path | None,
    settings: ImportSettings,
) -> Any:  # noqa: ANN401 - as `trace_from_spans`
    """Trace of sorted spans, or shards, and what is said of them."""
    counts = ImportCounts()
    by_part: dict[int, list[SortedRows]] = defaultdict(list)
    for pieces_by_part, losses in sorted_pieces:
        counts.losses.merge(losses)
        for part, stored in pieces_by_part.items():
            by_part[part] += stored
    files = []
    for file, more in run_each(
        join_requests, sorted(by_part.items()), folder, settings, what="join"
    ):
        counts.merge(more)
        files += [file] if file.n else []
    if not files:
        rule = "an import must have at least one request: a trace with a retriever's span"
        remedy = "log the retrieval as a span with its documents"
        raise input_error(Where(settings.name), rule, remedy, counts.losses.sentence() or "no span")
    directions = {
        signal: settings.higher.get(signal) or counts.direction(signal)
        for signal in counts.signals()
    }
    shared = _shared_meta(settings.name, counts)
    if settings.out is None:
        result = trace_of_files(files, shared, directions, settings)
    else:
        traces = run_each(trace_of_file, files, shared, directions, settings, what="build")
        result = extension("save_shards", "scale", "a trace of shards (out=)")(
            traces, settings.out, shard=None
        )
    _warn(settings, counts, directions)
    return result


def _shared_meta(name: str, counts: ImportCounts) -> dict[str, Any]:
    """Part of the meta that all shards share."""
    rows = sorted((chunk_id, own.hex()) for chunk_id, own in counts.documents.items())
    return {
        "schema_version": SCHEMA_VERSION,
        "corpus": name,
        "corpus_hash": digest(canonical_json([name, rows]), 64),
        "n_chunks": len(rows),
        "parameters": {"score": None, "arms": [name]},
        "gates_off": list(CAN_BE_OFF),
    }


def trace_of_file(
    file: SortedRows,
    shared: Mapping[str, Any],
    directions: Mapping[str, str],
    settings: ImportSettings,
) -> Trace:
    """Trace of the requests of a file."""
    return trace_of_files([file], shared, directions, settings)


def trace_of_files(
    files: Sequence[SortedRows],
    shared: Mapping[str, Any],
    directions: Mapping[str, str],
    settings: ImportSettings,
) -> Trace:
    """Trace of the requests of some files, in the order of their time."""
    rows = (row for file in files for row in file.rows())
    requests = sorted(map(request_of_row, rows), key=lambda request: (request.start, request.id))
    name, counted = settings.name, ImportCounts()  # they were counted when they were written
    cases = tuple(_case(request, settings, counted) for request in requests)
    hits_of = [request.hits for request in requests]
    chunks: dict[str, Chunk] = {}
    for hit in (hit for hits in hits_of for hit in hits):
        document = hit.document
        if document.id not in chunks:
            source = document.source or flat_name(document.id)
            chunks[document.id] = Chunk(document.id, document.text, source, document.page)
    number = {chunk_id: place for place, chunk_id in enumerate(chunks)}
    shape = (len(cases), 1, 1, max(map(len, hits_of)) or 1)
    chunk = np.full(shape, -1, np.int32)
    for row, own in enumerate(hits_of):
        chunk[row, 0, 0, : len(own)] = [number[hit.document.id] for hit in own]
    rank = np.where(chunk >= 0, np.arange(shape[-1], dtype=np.int32), np.int32(-1))
    floats = {field_name: np.full(shape, np.nan) for field_name in FLOAT_FIELDS}
    hits = Hits(chunk=chunk, rank=rank, n_reranked=np.zeros(shape[:3], np.int32), **floats)
    meta = {
        **shared,
        "cases_hash": hash_cases(cases),
        "command": f"trace_from_spans(…, name={name!r})",
    }
    bare = TraceData(cases=cases, chunks=tuple(chunks.values()), arms=(name,), hits=hits, meta=meta)
    meta["fingerprint"] = content_hash(bare)[:16]
    patterns = pattern_hits(cases, bare.chunks, PolicyData.from_mapping().pattern_lists)
    trace = Trace(
        cases=cases, chunks=bare.chunks, arms=(name,), hits=hits, pattern_hits=patterns, meta=meta
    )
    for signal, higher in directions.items():
        scores = [getattr(own[0], SIGNALS[signal]) if own else np.nan for own in hits_of]
        trace = trace.with_signal(
            signal, np.array(scores), higher=higher, unit="score", source="spans"
        )
    return trace


def _warn(settings: ImportSettings, counts: ImportCounts, directions: Mapping[str, str]) -> None:
    """Say what an import left out, merged and mapped, score directions, and which gates are off."""
    notes = counts.sentences()
    known = {case.id for case in settings.labels.values()}
    if missing := len(known - counts.matched):
        notes.append(f"{missing:,} of {len(known):,} cases are of no request and are left out")
    notes += [
        counts.direction_sentence(signal) for signal in directions if signal not in settings.higher
    ]
    bounds = [
        f"signals.{signal}.{'max' if higher == 'ask' else 'min'}"
        for signal, higher in directions.items()
    ]
    how = (
        f'gate a signal instead: policy.replace("{bounds[0]}", …)'
        if bounds
        else "no score was logged"
    )
    notes.append(f"no distance is logged, so the gates {', '.join(CAN_BE_OFF)} are off; {how}")
    for note in notes:
        warn_user(f"{settings.name}: {note}.")
