"""Spans (shore): read one by one from OTLP JSON files and SDK JSON lines, in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from raglab.store.files import Where, input_error, shown_value

LONGEST_LINE = 64 << 20  # bytes of a line; a longer one is left out and counted
MOST_WHOLE = 256 << 20  # bytes of a file that is one JSON document over several lines
PIECE_BYTES = 16 << 20  # of a file that one worker reads at a time
SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz")
_GZIP = b"\x1f\x8b"
_LATEST = 253_402_300_799 * 10**9  # the end of the year 9999, in nanoseconds
_LISTS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans")


class LoggedSpan(NamedTuple):
    """One operation of a request.

    Attributes:
      trace_id: of the request.
      span_id: its own.
      parent_id: of the operation that it is a part of; "" of the first.
      name: of the operation.
      start: nanoseconds since 1970, 0 where it is not stated.
      attributes: by name, as plain values.
      events: name and attributes of each event.
      resource: attributes of what logged it, such as a service or a tenant's deployment.
      is_failed: whether its status is an error.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    resource: Mapping[str, Any] = MappingProxyType({})
    is_failed: bool = False


@dataclass(slots=True)
class Losses:
    """What an import leaves out or merges: counts by reason, and the place of the first of each.

    Attributes:
      counts: by reason, in words that follow a number: "lines are no JSON".
      first: place of the first, by reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, place: str, number: int = 1) -> None:
        """Count what is left out or merged.

        Args:
          reason: in words that follow a number.
          place: of the first of them.
          number: of them.
        """
        self.counts[reason] += number
        self.first.setdefault(reason, place)

    def merge(self, more: Losses) -> None:
        """Add the counts of another part of the import."""
        for reason, number in more.counts.items():
            self.add(reason, more.first[reason], number)

    def sentence(self) -> str:
        """All counts in a line, '' where nothing was left out."""
        rows = [
            f"{number:,} {reason} (the first: {self.first[reason]})"
            for reason, number in self.counts.items()
        ]
        return "; ".join(rows)


class FilePiece(NamedTuple):
    """Part of a file that one worker reads.

    Attributes:
      path: of the file.
      start: its first byte, at the beginning of a line.
      end: lines that begin before this byte belong to it; None up to the end of the file.
      line: number of its first line; 0 where the file is one JSON document.
    """

    path: Path
    start: int = 0
    end: int | None = None
    line: int = 1


def pieces(source: str | Path | Iterable[str | Path], losses: Losses) -> list[FilePiece]:
    """Pieces of files in their order, each of about 16 MiB of whole lines; a gzipped file is one.

    A file is OTLP JSON, whole or a batch a line as a collector's file exporter writes it, or JSON
    lines of spans as `to_json` of the Python SDK writes them; plain or gzipped.

    Args:
      source: a file, a folder of `.json`, `.jsonl`, `.ndjson` and `.gz` files with its folders, or
        several of them.
      losses: gets the count of a folder's other files.

    Raises:
      InputError: no such file, or a folder without files.
      TypeError: a source that is no path.
    """
    return [piece for path in _files(source, losses) for piece in _pieces_of(path)]


def read_spans(piece: FilePiece, losses: Losses) -> Iterator[LoggedSpan]:
    """Spans of a piece of a file, one line in memory at a time.

    Args:
      piece: to read.
      losses: gets the count of lines and values that cannot be read.

    Raises:
      InputError: a file of one JSON document of more than 256 MiB.
    """
    for value, place in _values(piece, losses):
        yield from _spans_of(value, place, losses)


def _files(source: str | Path | Iterable[str | Path], losses: Losses) -> Iterator[Path]:
    listed = (
        [source]
        if isinstance(source, str | Path)
        else list(source)
        if isinstance(source, Iterable)
        else [source]
    )
    for entry in listed:
        if not isinstance(entry, str | Path) or entry == "":
            msg = (
                f"source must be a file, a folder or a list of files, got {shown_value(entry)}; "
                "name the file."
            )
            raise TypeError(msg)
        place = Path(entry)
        if place.is_dir():
            within = sorted(
                path
                for path in place.rglob("*")
                if path.is_file() and not path.name.startswith(".")
            )
            files = [path for path in within if path.suffix.lower() in SUFFIXES]
            if unread := [path for path in within if path not in files]:
                losses.add(
                    "files of a folder have another ending and are not read",
                    unread[0].name,
                    len(unread),
                )
            if not files:
                rule = f"a folder of spans must hold files of {', '.join(SUFFIXES)}"
                raise input_error(Where(str(place)), rule, "name the files", "none")
            yield from files
        elif place.is_file():
            yield place
        else:
            raise input_error(
                Where(str(place)),
                "a file of spans must be there",
                "correct the path",
                "no such file",
            )


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == _GZIP


def _open(path: Path) -> IO[bytes]:
    # reads as a file
    return gzip.open(path) if _is_gzip(path) else path.open("rb")  # type: ignore[return-value]


def _pieces_of(path: Path) -> Iterator[FilePiece]:
    """Pieces of a file. Whether it is one document over several lines is told by its first line."""
    with _open(path) as stream:
        first = _next_line(stream, FilePiece(path), Losses()).removeprefix(codecs.BOM_UTF8).strip()
    if (
        first[:1] in {b"{", b"["}
        and not _is_json(first)
        and len(first) <= LONGEST_LINE
        and _is_document(path)
    ):
        yield FilePiece(path, line=0)
        return
    if _is_gzip(path):
        yield FilePiece(path)
        return
    with path.open("rb") as stream:
        start, line = 0, 1
        while block := stream.read(PIECE_BYTES):
            lines = block.count(b"\n")
            while not block.endswith(b"\n") and (block := stream.readline(PIECE_BYTES)):
                lines += block.endswith(b"\n")
            yield FilePiece(path, start, stream.tell(), line)
            start, line = stream.tell(), line + lines


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_document(path: Path) -> bool:
    """Whether a file whose first line is no JSON is one JSON document; one of lines is not."""
    try:
        with _open(path) as stream:
            content = stream.read(MOST_WHOLE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    if len(content) <= MOST_WHOLE:
        return _is_json(content)
    # more lines that are JSON: the first one is broken
    lines = content[:LONGEST_LINE].splitlines()[1:4]
    if any(line[:1] == b"{" and _is_json(line) for line in lines):
        return False
    rule = f"a file that is one JSON document must have at most {MOST_WHOLE >> 20} MiB"
    raise input_error(Where(str(path)), rule, "export JSON lines, a span or batch a line", "more")


def _values(piece: FilePiece, losses: Losses) -> Iterator[tuple[Any, str]]:
    """JSON values of a piece, each with its place: one a line, or the file as one."""
    with _open(piece.path) as stream:
        if piece.line == 0:
            yield json.loads(stream.read()), piece.path.name
            return
        stream.seek(piece.start)
        for number, line in enumerate(_lines(stream, piece, losses), start=piece.line):
            text = line.removeprefix(codecs.BOM_UTF8).strip() if number == 1 else line.strip()
            if not text:
                continue
            place = f"{piece.path.name}, line {number}"
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                losses.add("lines are no JSON and are left out", place)
                continue
            yield value, place


def _lines(stream: IO[bytes], piece: FilePiece, losses: Losses) -> Iterator[bytes]:
    """Lines of a piece; b"" for one that is too long, which is never in memory as a whole."""
    number, at = piece.line, piece.start
    while (piece.end is None or at < piece.end) and (line := _next_line(stream, piece, losses)):
        at += len(line)
        if len(line) > LONGEST_LINE:
            reason = f"lines of more than {LONGEST_LINE >> 20} MiB are left out"
            losses.add(reason, f"{piece.path.name}, line {number}")
            while line and not line.endswith(b"\n"):
                line = _next_line(stream, piece, losses)
                at += len(line)
            line = b""
        yield line
        number += 1


def _next_line(stream: IO[bytes], piece: FilePiece, losses: Losses) -> bytes:
    try:
        return stream.readline(LONGEST_LINE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        losses.add(
            "gzipped files are cut off or damaged, and what follows is left out", piece.path.name
        )
        return b""


# any JSON
def _spans_of(value: Any, place: str, losses: Losses) -> Iterator[LoggedSpan]:  # noqa: ANN401
    """Spans of a JSON value: a batch, a list, or a span.

    Lists within lists are walked without recursion.
    """
    none: Mapping[str, Any] = MappingProxyType({})
    waiting = [(value, none)]
    while waiting:
        entry, resource = waiting.pop()
        if isinstance(entry, list):
            waiting.extend((part, resource) for part in reversed(entry))
            continue
        is_span = isinstance(entry, dict) and (
            "traceId" in entry or "trace_id" in entry or "context" in entry
        )
        lists = (
            []
            if is_span or not isinstance(entry, dict)
            else [entry[key] for key in _LISTS if key in entry]
        )
        if lists:
            about = entry.get("resource")
            if isinstance(about, dict) and "attributes" in about:
                resource = plain_attributes(about["attributes"], place, losses)
            waiting.extend((part, resource) for part in reversed(lists))
            continue
        span = _span(entry, resource, place, losses) if isinstance(entry, dict) else None
        if span is None:
            losses.add("values are no spans with a trace id and are left out", place)
        else:
            yield span


def _span(
    record: Mapping[str, Any], resource: Mapping[str, Any], place: str, losses: Losses
) -> LoggedSpan | None:
    """A span of OTLP or of an SDK's JSON; None where it has no trace id."""
    context = record.get("context")
    ids = context if isinstance(context, dict) else record
    trace_id = ids.get("traceId") or ids.get("trace_id")
    if not trace_id:
        return None
    parent = (
        record.get("parentSpanId") or record.get("parent_span_id") or record.get("parent_id") or ""
    )
    events = record.get("events")
    return LoggedSpan(
        str(trace_id).removeprefix("0x"),
        str(ids.get("spanId") or ids.get("span_id") or "").removeprefix("0x"),
        str(parent).removeprefix("0x"),
        str(record.get("name") or ""),
        nanoseconds(record.get("startTimeUnixNano") or record.get("start_time") or 0),
        plain_attributes(record.get("attributes"), place, losses),
        tuple(
            (str(event.get("name") or ""), plain_attributes(event.get("attributes"), place, losses))
            for event in (events if isinstance(events, list) else ())
            if isinstance(event, dict)
        ),
        resource,
        _is_failed(record.get("status")),
    )


def _is_failed(status: Any) -> bool:  # noqa: ANN401 - of JSON
    code = (status.get("code") or status.get("status_code")) if isinstance(status, dict) else None
    return code in {2, "2", "STATUS_CODE_ERROR", "ERROR"}


def nanoseconds(value: Any) -> int:  # noqa: ANN401 - of JSON
    """Nanoseconds since 1970 of a number of OTLP or of an ISO time, in UTC where it names no zone.

    0 of anything else.

    Example:
      >>> (
      ...     nanoseconds("1764000000000000000"),
      ...     nanoseconds("2025-11-24T16:00:00Z"),
      ...     nanoseconds("soon"),
      ... )
      (1764000000000000000, 1764000000000000000, 0)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < _LATEST else 0
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_LATEST)):
        return nanoseconds(int(value))
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return 0
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(
        1970, 1, 1, tzinfo=UTC
    )
    return nanoseconds(since // timedelta(microseconds=1) * 1_000)


# of JSON
def plain_attributes(attributes: Any, place: str, losses: Losses) -> dict[str, Any]:  # noqa: ANN401
    """Attributes by name: of OTLP's list of keys and typed values, or of an object.

    Args:
      attributes: of JSON.
      place: of the span.
      losses: gets the count of those that cannot be read.

    Example:
      >>> plain_attributes(
      ...     [{"key": "top_k", "value": {"intValue": "5"}}], "a.jsonl, line 1", Losses()
      ... )
      {'top_k': 5}
    """
    if isinstance(attributes, dict):
        return attributes
    rows = attributes if isinstance(attributes, list) else ()
    values = {
        str(row["key"]): _plain_value(row.get("value"))
        for row in rows
        if isinstance(row, dict) and "key" in row
    }
    lost = len(rows) - len(values) if attributes is None or isinstance(attributes, list) else 1
    if lost:
        losses.add(
            "attributes have no name, or one that stands twice, and are left out", place, lost
        )
    return values


def _plain_value(value: Any) -> Any:  # noqa: ANN401 - of JSON
    """A value of OTLP's `AnyValue` as a plain one; None where it is none."""
    if not isinstance(value, dict) or not value:
        return None
    kind, content = next(iter(value.items()))
    if kind == "intValue":
        try:
            return int(content)
        except (TypeError, ValueError, OverflowError):
            return None
    if kind in {"arrayValue", "kvlistValue"}:
        entries = content.get("values") if isinstance(content, dict) else None
        rows = entries if isinstance(entries, list) else []
        if kind == "arrayValue":
            return [_plain_value(entry) for entry in rows]
        named = [row for row in rows if isinstance(row, dict) and "key" in row]
        return {str(row["key"]): _plain_value(row.get("value")) for row in named}
    return content
