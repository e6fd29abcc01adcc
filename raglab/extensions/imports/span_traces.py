"""Traces of spans (shore): an application's logged requests, as trace or shards, memory bounded."""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from raglab.arguments.user_warnings import warn_user
from raglab.decision.measurement import CAN_BE_OFF
from raglab.extension_points import extension
from raglab.extensions.imports.import_counts import SIGNALS, ImportCounts
from raglab.extensions.imports.span_parts import SpanDocument, SpanPart, span_part
from raglab.extensions.imports.span_requests import (
    SHOWN_ID_LENGTH,
    SpanRequest,
    feedback_label,
    joined_requests,
)
from raglab.extensions.imports.spans import FilePiece, LoggedSpan, pieces, read_spans
from raglab.loops.parallel import run_each
from raglab.policy import PolicyData
from raglab.policy_parts.patterns import pattern_hits
from raglab.store.files import Where, append_bytes, input_error, scratch_folder, shown_value
from raglab.store.records import flat_name, hash_cases
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import (
    FLOAT_FIELDS,
    MAX_HITS_PER_CASE,
    SCHEMA_VERSION,
    Case,
    Chunk,
    Hits,
    TraceData,
    refuse,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question

BYTES_PER_PART = 64 << 20  # of the input whose requests are in memory together
MAX_PARTS = 512  # that spans are sorted into by the hash of their trace's id
PARTS_FOR_STORE = 16  # where the size of the input is unknown
MAX_HIT_CELLS = 20 << 20  # of the table of a part's requests by the hits of the longest
MAX_SPANS_AHEAD = 5_000  # spans of a piece in memory before they are written
SCORE_DIRECTIONS = ("surer", "ask")
Feedback = Sequence[str] | Mapping[str, str] | None  # see `trace_from_spans`
StoredRows = Callable[[], Any]  # bytes of the JSON of rows between two steps of an import
SortedSpans = tuple[dict[int, list[StoredRows]], ImportCounts]  # by part, with the counts
_request_time = attrgetter("start", "id")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_PARTS_ADAPTER = TypeAdapter(list[SpanPart])
_REQUESTS_ADAPTER = TypeAdapter(list[SpanRequest])


class ImportSettings(NamedTuple):
    """What an import is to make of spans; see `trace_from_spans`."""

    by_id: Mapping[str, Case]
    by_question: Mapping[str, Case]
    feedback: Mapping[str, str] | None
    higher: Mapping[str, str]
    groups: tuple[str, ...]
    name: str
    out: str | Path | None

    def label(self, request: SpanRequest) -> Case | None:
        """The case that labels a request: that of its id, else that of its question."""
        plain_text = plain_question(request.question)
        return self.by_id.get(request.id) or self.by_question.get(plain_text)


def store_rows(
    rows: Sequence[NamedTuple], folder: Path | None, name: str, counts: ImportCounts
) -> StoredRows:
    """Rows put into a file of a folder, behind those that are there; into memory without one.

    Halves of characters, which no file can hold, are replaced and counted. The result is called for
    the rows as JSON.
    """
    rows_json = json.dumps(rows, ensure_ascii=False)
    counts.add(
        "halves of characters (lone surrogates) are replaced by `?`",
        f"among the spans from trace {rows[0][0]:.{SHOWN_ID_LENGTH}} on",
        len(_HALF_CHARACTER.findall(rows_json)),
    )
    content = rows_json.encode("utf-8", "replace")
    if folder is None:
        return partial(zlib.decompress, zlib.compress(content, 1))
    file_offset = append_bytes(content, folder / name)
    return partial(np.fromfile, folder / name, np.uint8, count=len(content), offset=file_offset)


def trace_from_spans(
    source: str | Path | Iterable[str | Path],
    cases: Sequence[Case] | None = None,
    *,
    feedback: Feedback = (),
    higher: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
    name: str = "spans",
    out: str | Path | None = None,
) -> Any:  # noqa: ANN401 - a trace, or one of shards
    """Trace of the requests that an application logged as spans.

    A file is JSON, plain or gzipped, a value a line or over several: OTLP (of a collector or of
    Tempo), spans as an SDK's `to_json` writes them, or rows of Phoenix. Spans are read by the
    conventions of OpenInference, OpenTelemetry GenAI and MLflow. A
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
      InputError: no file, no request, or a JSON document of more than 256 MiB or 4 million
        brackets.
      TypeError: an argument of another type.
      MissingExtensionError: `out` without the room `scale`.

    Warns:
      UserWarning: counts of what is left out, merged, mapped or guessed; the directions of scores;
        the gates that are off.
    """
    settings = import_settings(cases, feedback, higher, groups, name, out)
    counts = ImportCounts()
    file_pieces = pieces(source, counts)
    total_bytes = sum(
        path.stat().st_size for path in {file_piece.path for file_piece in file_pieces}
    )
    n_parts = min(MAX_PARTS, total_bytes // BYTES_PER_PART + 1)
    sort_pieces = partial(run_each, sort_piece, list(enumerate(file_pieces)), what="read")
    return _traced(lambda folder: sort_pieces(folder, n_parts, settings.groups), counts, settings)


def import_settings(
    cases: Sequence[Case] | None,
    feedback: Feedback,
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
    directions = dict(higher or {})
    feedback_names = [feedback] if isinstance(feedback, str) else feedback
    feedback_senses = (
        feedback_names
        if isinstance(feedback_names, Mapping | None)
        else dict.fromkeys(feedback_names, "ok")
    )
    remedy = 'write higher={"retriever_score": "ask"} for a distance'
    _check("higher must name", directions, SIGNALS, remedy)
    _check("higher must name", directions.values(), SCORE_DIRECTIONS, remedy)
    remedy = 'write feedback={"toxicity": "refuse"}'
    _check("what a yes means must be", (feedback_senses or {}).values(), ("ok", "refuse"), remedy)
    return ImportSettings(
        {case.id: case for case in cases or ()},
        {plain_question(case.query): case for case in cases or ()},
        feedback_senses,
        directions,
        (groups,) if isinstance(groups, str) else tuple(groups),
        name,
        out,
    )


def _check(
    requirement: str, given_values: Iterable[str], allowed_values: Iterable[str], remedy: str
) -> None:
    for given_value in given_values:
        if given_value not in allowed_values:
            refuse(f"{requirement} {' or '.join(allowed_values)}", shown_value(given_value), remedy)


# as `trace_from_spans`
def trace_of_spans(spans: Iterable[LoggedSpan], settings: ImportSettings) -> Any:  # noqa: ANN401
    """Trace of spans from anywhere; see `trace_from_spans`."""
    sort_spans = partial(_sort, spans, "spans", PARTS_FOR_STORE, settings.groups, ImportCounts())
    return _traced(lambda folder: [sort_spans(folder)], ImportCounts(), settings)


# --- spans sorted by the hash of their trace's id


def sort_piece(
    numbered_piece: tuple[int, FilePiece], folder: Path | None, n_parts: int, groups: Sequence[str]
) -> SortedSpans:
    """Spans of a piece, written by part; and what was left out of it."""
    piece_number, file_piece = numbered_piece
    counts = ImportCounts()
    return _sort(
        read_spans(file_piece, counts), f"spans-{piece_number:05d}", n_parts, groups, counts, folder
    )


def _sort(
    spans: Iterable[LoggedSpan],
    file_name: str,
    n_parts: int,
    groups: Sequence[str],
    counts: ImportCounts,
    folder: Path | None,
) -> SortedSpans:
    rows_by_part: dict[int, list[StoredRows]] = defaultdict(list)
    remaining_spans = iter(spans)
    while next_spans := list(islice(remaining_spans, MAX_SPANS_AHEAD)):
        waiting_parts: dict[int, list[SpanPart]] = defaultdict(list)
        for span in next_spans:
            part_number = zlib.crc32(span.trace_id.encode("utf-8", "replace")) % n_parts
            waiting_parts[part_number].append(span_part(span, groups))
        for part_number, part_rows in sorted(waiting_parts.items()):
            rows_by_part[part_number].append(store_rows(part_rows, folder, file_name, counts))
    return rows_by_part, counts


# --- requests of a part


def join_requests(
    numbered_part: tuple[int, list[StoredRows]], folder: Path | None, settings: ImportSettings
) -> tuple[list[StoredRows], ImportCounts]:
    """Requests of a part with their labels, stored in the order of their time.

    And what was counted.
    """
    part_number, stored_rows = numbered_part
    counts = ImportCounts()
    parts_by_trace: dict[str, list[SpanPart]] = defaultdict(list)
    for stored_part in chain.from_iterable(
        _PARTS_ADAPTER.validate_json(bytes(read_rows())) for read_rows in stored_rows
    ):
        parts_by_trace[stored_part.trace_id].append(stored_part)
    requests = [
        request
        for trace_parts in parts_by_trace.values()
        for request in joined_requests(trace_parts, counts)
    ]
    if not requests:
        return [], counts
    max_hits = min(MAX_HITS_PER_CASE, MAX_HIT_CELLS // len(requests))
    requests = sorted(
        (_labelled(request, max_hits, settings, counts) for request in requests), key=_request_time
    )
    return [store_rows(requests, folder, f"requests-{part_number:05d}", counts)], counts


def _labelled(
    request: SpanRequest, max_hits: int, settings: ImportSettings, counts: ImportCounts
) -> SpanRequest:
    """A request with its first hits and the label of its feedback, where no case labels it."""
    trace_text = f"trace {request.id:.{SHOWN_ID_LENGTH}}"
    counts.add(
        f"hits beyond the first {max_hits:,} of a trace are left out",
        trace_text,
        len(request.hits[max_hits:]),
    )
    for group_name in settings.groups:
        counts.add(
            f"requests state no group {group_name}", trace_text, group_name not in request.groups
        )
    feedback_status = None
    label_notes = ""
    if labelled_case := settings.label(request):
        counts.tallies["matched"][labelled_case.id] += 1
        counts.add(
            "requests have the label of a case with the same question",
            trace_text,
            labelled_case.id != request.id,
        )
    elif settings.feedback is not None:
        feedback_status, label_notes = feedback_label(request, settings.feedback, counts)
    return request._replace(
        hits=request.hits[:max_hits], feedback=(), label=feedback_status, notes=label_notes
    )


def _case(request: SpanRequest, settings: ImportSettings) -> Case:
    """A request as a case, with its label where there is one."""
    text = datetime.fromtimestamp(request.start // 10**9, UTC).isoformat() if request.start else ""
    logged_fields = {"at": text, "logged_answer": request.answer, "groups": request.groups}
    extra_fields = {name: value for name, value in logged_fields.items() if value}
    if labelled_case := settings.label(request):
        return labelled_case._replace(
            id=request.id, query=request.question, extra={**labelled_case.extra, **extra_fields}
        )
    return Case(
        request.id, request.question, request.label, notes=request.notes or None, extra=extra_fields
    )


# --- traces


def _traced(
    sort_spans: Callable[[Path | None], Iterable[SortedSpans]],
    counts: ImportCounts,
    settings: ImportSettings,
) -> Any:  # noqa: ANN401 - as `trace_from_spans`
    """Trace of spans, or shards, and what is said of them.

    Args:
      sort_spans: the spans by part, written to a folder, or kept in memory without one.
      counts: of the import, as far as it has come.
      settings: of the import.
    """
    rows_by_part: dict[int, list[StoredRows]] = defaultdict(list)
    out_folder = settings.out
    with nullcontext() if out_folder is None else scratch_folder(Path(out_folder)) as folder:
        for stored_rows, further_counts in sort_spans(folder):
            counts.merge(further_counts)
            for part_number, part_rows in stored_rows.items():
                rows_by_part[part_number] += part_rows
        shard_rows = []
        numbered_parts = sorted(rows_by_part.items())
        for request_rows, further_counts in run_each(
            join_requests, numbered_parts, folder, settings, what="join"
        ):
            counts.merge(further_counts)
            shard_rows += [request_rows] if request_rows else []
        if not shard_rows:
            raise input_error(
                Where(settings.name),
                "an import must have at least one request: a trace with a retriever's span",
                "log the retrieval as a span with its documents",
                counts.sentence() or "no span",
            )
        directions = {
            signal: settings.higher.get(signal) or counts.direction(signal)
            for signal in sorted(+counts.tallies["scored"])
        }
        shared_arguments = (_shared_meta(settings.name, counts), directions, settings)
        if out_folder is None:
            imported_trace = trace_of_files(list(chain(*shard_rows)), *shared_arguments)
        else:
            traces = run_each(trace_of_files, shard_rows, *shared_arguments, what="build")
            save_shards = extension("save_shards", "scale", "a trace of shards (out=)")
            imported_trace = save_shards(traces, out_folder, shard=None)
        _warn(settings, counts, directions)
    return imported_trace


def _shared_meta(corpus_name: str, counts: ImportCounts) -> dict[str, Any]:
    """Part of the meta that all shards share."""
    document_hashes = sorted(
        (chunk_id, document_hash.hex()) for chunk_id, document_hash in counts.documents.items()
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "corpus": corpus_name,
        "corpus_hash": digest(canonical_json([corpus_name, document_hashes]), 64),
        "n_chunks": len(document_hashes),
        "parameters": {"score": None, "arms": [corpus_name]},
        "gates_off": list(CAN_BE_OFF),
    }


def trace_of_files(
    row_files: Sequence[StoredRows],
    shared_meta: Mapping[str, Any],
    directions: Mapping[str, str],
    settings: ImportSettings,
) -> Trace:
    """Trace of the requests of some files, in the order of their time."""
    # Files hold parts of the requests; only all of them together have an order of time.
    requests = sorted(
        chain.from_iterable(
            _REQUESTS_ADAPTER.validate_json(bytes(read_rows())) for read_rows in row_files
        ),
        key=_request_time,
    )
    cases = tuple(_case(request, settings) for request in requests)
    # The first text that a document was seen with is its text.
    documents_by_id: dict[str, SpanDocument] = {}
    for hit in chain.from_iterable(request.hits for request in requests):
        documents_by_id.setdefault(hit.document.id, hit.document)
    chunks = tuple(
        Chunk(document.id, document.text, document.source or flat_name(document.id), document.page)
        for document in documents_by_id.values()
    )
    document_numbers = {
        document_id: document_index for document_index, document_id in enumerate(documents_by_id)
    }
    # the hits of a case stand in their final order: [Q, A, D, K] of one arm and one depth
    hit_counts = np.array([len(request.hits) for request in requests])
    hit_ranks = np.arange(max(*hit_counts, 1), dtype=np.int32)
    is_hit = (hit_ranks < hit_counts[:, None])[:, None, None]
    chunk_numbers = np.full(is_hit.shape, -1, np.int32)
    chunk_numbers[is_hit] = [
        document_numbers[hit.document.id] for request in requests for hit in request.hits
    ]
    trace_hits = Hits(
        chunk=chunk_numbers,
        rank=np.where(is_hit, hit_ranks, np.int32(-1)),
        n_reranked=np.zeros(is_hit.shape[:3], np.int32),
        **{field_name: np.full(is_hit.shape, np.nan) for field_name in FLOAT_FIELDS},
    )
    trace_meta = {
        **shared_meta,
        "cases_hash": hash_cases(cases),
        "command": f"trace_from_spans(…, name={settings.name!r})",
    }
    trace_fields: dict[str, Any] = {
        "cases": cases,
        "chunks": chunks,
        "arms": (settings.name,),
        "hits": trace_hits,
        "meta": trace_meta,
    }
    # The fingerprint is of all but itself, so it comes last.
    trace_meta["fingerprint"] = content_hash(TraceData(**trace_fields))[:16]
    matched_patterns = pattern_hits(cases, chunks, PolicyData.from_mapping().pattern_lists)
    trace = Trace(**trace_fields, pattern_hits=matched_patterns)
    # A score of hits is a signal of the case by its first hit.
    for signal, direction in directions.items():
        first_scores = [
            getattr(request.hits[0], SIGNALS[signal]) if request.hits else np.nan
            for request in requests
        ]
        trace = trace.with_signal(
            signal, np.array(first_scores), higher=direction, unit="score", source="spans"
        )
    return trace


def _warn(settings: ImportSettings, counts: ImportCounts, directions: Mapping[str, str]) -> None:
    """Say what an import left out, merged and mapped, score directions, and which gates are off."""
    changed_documents = +counts.tallies["changed"]
    counts.add(
        "documents have several texts or sources, of which the first counts",
        min(changed_documents, default=""),
        len(changed_documents),
    )
    unmatched_cases = settings.by_id.keys() - counts.tallies["matched"].keys()
    counts.add(
        f"of {len(settings.by_id):,} cases are of no request and are left out",
        min(unmatched_cases, default=""),
        len(unmatched_cases),
    )
    guessed_directions = map(counts.direction_sentence, directions.keys() - settings.higher.keys())
    gate_names = (
        ", ".join(f"signals.{signal}" for signal in directions) or "none, no score was logged"
    )
    off_note = (
        f"no distance is logged, so {', '.join(CAN_BE_OFF)} are off; gates of signals: {gate_names}"
    )
    for import_note in filter(None, (counts.sentence(), *sorted(guessed_directions), off_note)):
        warn_user(f"{settings.name}: {import_note}.")
