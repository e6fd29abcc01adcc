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
    SHOWN_ID,
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

PART_BYTES = 64 << 20  # of the input whose requests are in memory together
MOST_PARTS = 512  # that spans are sorted into by the hash of their trace's id
PARTS_OF_STORE = 16  # where the size of the input is unknown
MOST_CELLS = 20 << 20  # of the table of a part's requests by the hits of the longest
SPANS_AHEAD = 5_000  # spans of a piece in memory before they are written
DIRECTIONS = ("surer", "ask")
Feedback = Sequence[str] | Mapping[str, str] | None  # see `trace_from_spans`
StoredRows = Callable[[], Any]  # bytes of the JSON of rows between two steps of an import
SortedSpans = tuple[dict[int, list[StoredRows]], ImportCounts]  # by part, with the counts
_time = attrgetter("start", "id")
_HALF = re.compile("[\ud800-\udfff]")
_PARTS, _REQUESTS = TypeAdapter(list[SpanPart]), TypeAdapter(list[SpanRequest])


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
        question = plain_question(request.question)
        return self.by_id.get(request.id) or self.by_question.get(question)


def store_rows(
    rows: Sequence[NamedTuple], folder: Path | None, name: str, counts: ImportCounts
) -> StoredRows:
    """Rows put into a file of a folder, behind those that are there; into memory without one.

    Halves of characters, which no file can hold, are replaced and counted. The result is called for
    the rows as JSON.
    """
    text = json.dumps(rows, ensure_ascii=False)
    counts.add(
        "halves of characters (lone surrogates) are replaced by `?`",
        f"among the spans from trace {rows[0][0]:.{SHOWN_ID}} on",
        len(_HALF.findall(text)),
    )
    content = text.encode("utf-8", "replace")
    if folder is None:
        return partial(zlib.decompress, zlib.compress(content, 1))
    start = append_bytes(content, folder / name)
    return partial(np.fromfile, folder / name, np.uint8, count=len(content), offset=start)


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
    parts = pieces(source, counts)
    size = sum(path.stat().st_size for path in {piece.path for piece in parts})
    n_parts = min(MOST_PARTS, size // PART_BYTES + 1)
    sort = partial(run_each, sort_piece, list(enumerate(parts)), what="read")
    return _traced(lambda folder: sort(folder, n_parts, settings.groups), counts, settings)


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
    names = [feedback] if isinstance(feedback, str) else feedback
    senses = names if isinstance(names, Mapping | None) else dict.fromkeys(names, "ok")
    remedy = 'write higher={"retriever_score": "ask"} for a distance'
    _check("higher must name", directions, SIGNALS, remedy)
    _check("higher must name", directions.values(), DIRECTIONS, remedy)
    remedy = 'write feedback={"toxicity": "refuse"}'
    _check("what a yes means must be", (senses or {}).values(), ("ok", "refuse"), remedy)
    return ImportSettings(
        {case.id: case for case in cases or ()},
        {plain_question(case.query): case for case in cases or ()},
        senses,
        directions,
        (groups,) if isinstance(groups, str) else tuple(groups),
        name,
        out,
    )


def _check(rule: str, values: Iterable[str], choices: Iterable[str], remedy: str) -> None:
    for value in values:
        if value not in choices:
            refuse(f"{rule} {' or '.join(choices)}", shown_value(value), remedy)


# as `trace_from_spans`
def trace_of_spans(spans: Iterable[LoggedSpan], settings: ImportSettings) -> Any:  # noqa: ANN401
    """Trace of spans from anywhere; see `trace_from_spans`."""
    sort = partial(_sort, spans, "spans", PARTS_OF_STORE, settings.groups, ImportCounts())
    return _traced(lambda folder: [sort(folder)], ImportCounts(), settings)


# --- spans sorted by the hash of their trace's id


def sort_piece(
    numbered: tuple[int, FilePiece], folder: Path | None, n_parts: int, groups: Sequence[str]
) -> SortedSpans:
    """Spans of a piece, written by part; and what was left out of it."""
    number, piece = numbered
    counts = ImportCounts()
    return _sort(read_spans(piece, counts), f"spans-{number:05d}", n_parts, groups, counts, folder)


def _sort(
    spans: Iterable[LoggedSpan],
    name: str,
    n_parts: int,
    groups: Sequence[str],
    counts: ImportCounts,
    folder: Path | None,
) -> SortedSpans:
    stored: dict[int, list[StoredRows]] = defaultdict(list)
    remaining = iter(spans)
    while ahead := list(islice(remaining, SPANS_AHEAD)):
        waiting: dict[int, list[SpanPart]] = defaultdict(list)
        for span in ahead:
            part = zlib.crc32(span.trace_id.encode("utf-8", "replace")) % n_parts
            waiting[part].append(span_part(span, groups))
        for part, rows in sorted(waiting.items()):
            stored[part].append(store_rows(rows, folder, name, counts))
    return stored, counts


# --- requests of a part


def join_requests(
    numbered: tuple[int, list[StoredRows]], folder: Path | None, settings: ImportSettings
) -> tuple[list[StoredRows], ImportCounts]:
    """Requests of a part with their labels, stored in the order of their time.

    And what was counted.
    """
    number, stored = numbered
    counts = ImportCounts()
    by_trace: dict[str, list[SpanPart]] = defaultdict(list)
    for part in chain.from_iterable(_PARTS.validate_json(bytes(rows())) for rows in stored):
        by_trace[part.trace_id].append(part)
    requests = [
        request for parts in by_trace.values() for request in joined_requests(parts, counts)
    ]
    if not requests:
        return [], counts
    most = min(MAX_HITS_PER_CASE, MOST_CELLS // len(requests))
    requests = sorted(
        (_labelled(request, most, settings, counts) for request in requests), key=_time
    )
    return [store_rows(requests, folder, f"requests-{number:05d}", counts)], counts


def _labelled(
    request: SpanRequest, most: int, settings: ImportSettings, counts: ImportCounts
) -> SpanRequest:
    """A request with its first hits and the label of its feedback, where no case labels it."""
    place = f"trace {request.id:.{SHOWN_ID}}"
    counts.add(
        f"hits beyond the first {most:,} of a trace are left out", place, len(request.hits[most:])
    )
    for group in settings.groups:
        counts.add(f"requests state no group {group}", place, group not in request.groups)
    label, notes = None, ""
    if known := settings.label(request):
        counts.tallies["matched"][known.id] += 1
        counts.add(
            "requests have the label of a case with the same question",
            place,
            known.id != request.id,
        )
    elif settings.feedback is not None:
        label, notes = feedback_label(request, settings.feedback, counts)
    return request._replace(hits=request.hits[:most], feedback=(), label=label, notes=notes)


def _case(request: SpanRequest, settings: ImportSettings) -> Case:
    """A request as a case, with its label where there is one."""
    at = datetime.fromtimestamp(request.start // 10**9, UTC).isoformat() if request.start else ""
    fields = {"at": at, "logged_answer": request.answer, "groups": request.groups}
    extra = {name: value for name, value in fields.items() if value}
    if known := settings.label(request):
        return known._replace(id=request.id, query=request.question, extra={**known.extra, **extra})
    return Case(
        request.id, request.question, request.label, notes=request.notes or None, extra=extra
    )


# --- traces


def _traced(
    sort: Callable[[Path | None], Iterable[SortedSpans]],
    counts: ImportCounts,
    settings: ImportSettings,
) -> Any:  # noqa: ANN401 - as `trace_from_spans`
    """Trace of spans, or shards, and what is said of them.

    Args:
      sort: the spans by part, written to a folder, or kept in memory without one.
      counts: of the import, as far as it has come.
      settings: of the import.
    """
    by_part: dict[int, list[StoredRows]] = defaultdict(list)
    out = settings.out
    with nullcontext() if out is None else scratch_folder(Path(out)) as folder:
        for stored, more in sort(folder):
            counts.merge(more)
            for part, rows in stored.items():
                by_part[part] += rows
        shards = []
        parts = sorted(by_part.items())
        for requests, more in run_each(join_requests, parts, folder, settings, what="join"):
            counts.merge(more)
            shards += [requests] if requests else []
        if not shards:
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
        shared = (_shared_meta(settings.name, counts), directions, settings)
        if out is None:
            result = trace_of_files(list(chain(*shards)), *shared)
        else:
            traces = run_each(trace_of_files, shards, *shared, what="build")
            save_shards = extension("save_shards", "scale", "a trace of shards (out=)")
            result = save_shards(traces, out, shard=None)
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


def trace_of_files(
    files: Sequence[StoredRows],
    shared: Mapping[str, Any],
    directions: Mapping[str, str],
    settings: ImportSettings,
) -> Trace:
    """Trace of the requests of some files, in the order of their time."""
    requests = sorted(
        chain.from_iterable(_REQUESTS.validate_json(bytes(file())) for file in files), key=_time
    )
    cases = tuple(_case(request, settings) for request in requests)
    documents: dict[str, SpanDocument] = {}
    for hit in chain.from_iterable(request.hits for request in requests):
        documents.setdefault(hit.document.id, hit.document)
    chunks = tuple(
        Chunk(own.id, own.text, own.source or flat_name(own.id), own.page)
        for own in documents.values()
    )
    number = {name: place for place, name in enumerate(documents)}
    # the hits of a case stand in their final order: [Q, A, D, K] of one arm and one depth
    lengths = np.array([len(request.hits) for request in requests])
    places = np.arange(max(*lengths, 1), dtype=np.int32)
    is_hit = (places < lengths[:, None])[:, None, None]
    chunk = np.full(is_hit.shape, -1, np.int32)
    chunk[is_hit] = [number[hit.document.id] for request in requests for hit in request.hits]
    hits = Hits(
        chunk=chunk,
        rank=np.where(is_hit, places, np.int32(-1)),
        n_reranked=np.zeros(is_hit.shape[:3], np.int32),
        **{field_name: np.full(is_hit.shape, np.nan) for field_name in FLOAT_FIELDS},
    )
    meta = {
        **shared,
        "cases_hash": hash_cases(cases),
        "command": f"trace_from_spans(…, name={settings.name!r})",
    }
    fields: dict[str, Any] = {
        "cases": cases,
        "chunks": chunks,
        "arms": (settings.name,),
        "hits": hits,
        "meta": meta,
    }
    meta["fingerprint"] = content_hash(TraceData(**fields))[:16]
    patterns = pattern_hits(cases, chunks, PolicyData.from_mapping().pattern_lists)
    trace = Trace(**fields, pattern_hits=patterns)
    for signal, higher in directions.items():
        scores = [
            getattr(request.hits[0], SIGNALS[signal]) if request.hits else np.nan
            for request in requests
        ]
        trace = trace.with_signal(
            signal, np.array(scores), higher=higher, unit="score", source="spans"
        )
    return trace


def _warn(settings: ImportSettings, counts: ImportCounts, directions: Mapping[str, str]) -> None:
    """Say what an import left out, merged and mapped, score directions, and which gates are off."""
    changed = +counts.tallies["changed"]
    counts.add(
        "documents have several texts or sources, of which the first counts",
        min(changed, default=""),
        len(changed),
    )
    missing = settings.by_id.keys() - counts.tallies["matched"].keys()
    counts.add(
        f"of {len(settings.by_id):,} cases are of no request and are left out",
        min(missing, default=""),
        len(missing),
    )
    guesses = map(counts.direction_sentence, directions.keys() - settings.higher.keys())
    gates = ", ".join(f"signals.{signal}" for signal in directions) or "none, no score was logged"
    off = f"no distance is logged, so {', '.join(CAN_BE_OFF)} are off; gates of signals: {gates}"
    for note in filter(None, (counts.sentence(), *sorted(guesses), off)):
        warn_user(f"{settings.name}: {note}.")
