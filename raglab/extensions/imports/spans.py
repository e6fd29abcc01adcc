"""Spans (shore): read one by one from files of JSON, however it is laid out, in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple

from raglab.extensions.imports.import_counts import ImportCounts
from raglab.store.files import Where, input_error

LONGEST_LINE = 64 << 20  # characters of a value on one line; a longer one is left out and counted
LONGEST_VALUE = 256 << 20  # characters of a value over several lines
MOST_BRACKETS = 4 << 20  # that open objects and lists in such a value: its memory by its size
PIECE_BYTES = 16 << 20  # of a file that one worker reads at a time
EVALUATION = "gen_ai.evaluation.result"  # name of an event
SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz")
_BLOCK = 1 << 20  # bytes that are read at once
_BLANK = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_DECODER = json.JSONDecoder()
_DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile)
_NO_TIME = "spans have no time that can be read"
_GUESSED_UNIT = "times are in seconds, milliseconds or microseconds, as their size tells"
_LISTS = (
    "resourcespans",
    "scopespans",
    "instrumentationlibraryspans",
    "spans",
    "batches",
    "trace",
    "traces",
    "data",
    "result",
)
# what other tools write, by a name that it alone has, and the way in
_FORMS = {
    "info": "traces of MLflow; read them by trace_from_mlflow",
    "operationname": "spans of Jaeger; export OTLP JSON",
    "localendpoint": "spans of Zipkin; export OTLP JSON",
    "runtype": "runs of LangSmith; export OpenTelemetry spans",
    "parentobservationid": "observations of Langfuse; see Langfuse in docs/recipes.md",
    "columns": "columns of a data frame; write frame.to_json(orient='records')",
    "resourcelogs": "logs; export the spans",
    "resourcemetrics": "metrics; export the spans",
}


class LoggedSpan(NamedTuple):
    """One operation of a request.

    Attributes:
      trace_id: of the request.
      span_id: its own.
      parent_id: of the operation that it is a part of; "" of the first.
      start: nanoseconds since 1970, 0 where it is not stated.
      attributes: by name, as plain values; its own, and those of what logged it, such as a service.
      evaluations: attributes of each event that judges the answer.
      is_failed: whether its status is an error.
    """

    trace_id: str
    span_id: str
    parent_id: str
    start: int
    attributes: Mapping[str, Any]
    evaluations: tuple[Mapping[str, Any], ...] = ()
    is_failed: bool = False


class FilePiece(NamedTuple):
    """Part of a file that one worker reads.

    Attributes:
      path: of the file.
      start: its first byte, at the beginning of a line.
      end: the byte behind its last line, or one beyond the file.
      line: number of its first line.
    """

    path: Path
    start: int = 0
    end: int = sys.maxsize
    line: int = 1


def pieces(source: str | Path | Iterable[str | Path], counts: ImportCounts) -> list[FilePiece]:
    """Pieces of files in their order, each of about 16 MiB of whole lines.

    A gzipped file is one piece, and so is one whose values are written over several lines.

    Args:
      source: a file, a folder of `.json`, `.jsonl`, `.ndjson` and `.gz` files with its folders, or
        several of them.
      counts: gets the count of a folder's other files.

    Raises:
      InputError: no such file, or a folder without files.
      TypeError: a source that is no path.
    """
    listed = [source] if isinstance(source, str) or not isinstance(source, Iterable) else source
    return [
        piece for entry in listed for path in _files(entry, counts) for piece in _pieces_of(path)
    ]


def _files(entry: Any, counts: ImportCounts) -> list[Path]:  # noqa: ANN401 - whatever a user wrote
    place = Path(entry)
    if place.is_file():
        return [place]
    paths = place.rglob("*") if entry != "" else ()
    within = [path for path in paths if path.is_file() and path.name[0] != "."]
    files = sorted(path for path in within if path.suffix.lower() in SUFFIXES)
    if not files:
        raise input_error(
            Where(str(place)),
            f"source must be a file of spans, or a folder of {', '.join(SUFFIXES)}",
            "correct the path",
            "no such file",
        )
    unread = sorted({*within} - {*files})
    counts.add(
        "files of a folder have another ending and are not read",
        "".join(path.name for path in unread[:1]),
        len(unread),
    )
    return files


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
    # reads as a file
    return gzip.open(path) if is_gzip else path.open("rb")  # type: ignore[return-value]


def _pieces_of(path: Path) -> Iterator[FilePiece]:
    """Pieces of a file. A first line that ends as a value tells that each value has its line."""
    with _open(path) as stream:
        if isinstance(stream, gzip.GzipFile) or not (
            stream.readline(PIECE_BYTES).rstrip().endswith((b"}", b"]"))
        ):
            yield FilePiece(path)
            return
        start, line = stream.seek(0), 1
        while block := stream.read(PIECE_BYTES) + stream.readline(LONGEST_LINE):
            yield FilePiece(path, start, stream.tell(), line)
            start, line = stream.tell(), line + block.count(b"\n")


# --- JSON values


def _blocks(piece: FilePiece, counts: ImportCounts) -> Iterator[str]:
    """Text of a piece, as much at once as is read at once."""
    decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
    with _open(piece.path) as stream:
        stream.seek(piece.start)
        while True:
            size = min(_BLOCK, piece.end - stream.tell())
            try:
                content = stream.read1(size)  # type: ignore[attr-defined]
            except _DAMAGES:
                counts.add(
                    "gzipped files are cut off or damaged, and what follows is left out",
                    piece.path.name,
                )
                return
            if text := decode(content, not content):
                yield text
            if not content:
                return


def _more(blocks: Iterator[str], size: int) -> str:
    """At least so many characters of the next blocks, or all that are left."""
    texts = []
    while size > 0 and (block := next(blocks, "")):
        texts.append(block)
        size -= len(block)
    return "".join(texts)


def _values(piece: FilePiece, counts: ImportCounts) -> Iterator[tuple[Any, str]]:
    """JSON values of a piece, each with its place; text that is none is counted by its lines.

    A value that its line does not end is read again with twice as many characters, up to the end of
    a line, so the time is linear. Behind an error reading goes on with the line of the error, or
    with the next one where the value began on that line.
    """
    blocks, text, start, line, size = _blocks(piece, counts), "", 0, piece.line, 0
    while True:
        begin = _BLANK.match(text, start).end()  # type: ignore[union-attr]
        line += text.count("\n", start, begin)
        if begin == len(text):
            text, start = _more(blocks, 1), 0
            if not text:
                return
            continue
        limit = LONGEST_VALUE if size else LONGEST_LINE
        text, start, stop = _with_lines(text, begin, size, limit, blocks)
        window, offset = text[start:stop], 0
        if len(window) > limit or sum(map(window.count, "{[")) > MOST_BRACKETS:
            most = f"{limit >> 20} MiB or 4 million brackets"
            if size:
                raise input_error(
                    Where(str(piece.path)),
                    f"a JSON document must have at most {most}",
                    "export JSON lines, a span or batch a line",
                    "more",
                )
            counts.add(f"lines of more than {most} are left out", f"{piece.path.name}, line {line}")
            start = stop
            while start == len(text) and (text := _more(blocks, 1)):
                start = text.find("\n") % (len(text) + 1)  # its end, where there is no line feed
            continue
        try:
            while offset < len(window):
                value, end = _DECODER.raw_decode(window, offset)
                yield value, f"{piece.path.name}, line {line}"
                end = _BLANK.match(window, end).end()  # type: ignore[union-attr]
                line, offset = line + window.count("\n", offset, end), end
        except (ValueError, RecursionError) as error:
            # the last character of what is too deep, or a number with too many digits
            fault = getattr(error, "pos", -1)
            if fault == len(window) and stop < len(text):
                start, size = start + offset, 2 * (len(window) - offset)
                continue
            resume = max(offset, window.rfind("\n", offset, fault % len(window)))
            end = window.find("\n", resume) % (len(window) + 1)
            lines = window.count("\n", offset, end)
            counts.add(
                "lines are no JSON and are left out", f"{piece.path.name}, line {line}", lines + 1
            )
            line, offset = line + lines, end
        start, size = start + offset, 0


def _with_lines(
    text: str, start: int, size: int, limit: int, blocks: Iterator[str]
) -> tuple[str, int, int]:
    """Text with lines of at least so many characters from a place on; the place, and their end."""
    while (stop := text.find("\n", start + size)) < 0:
        length = len(text) - start
        if length > limit or not (more := _more(blocks, min(length, limit + 1 - length))):
            return text, start, len(text)
        text, start = text[start:] + more, 0
    return text, start, stop


# --- spans


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the letters of their names: `traceId`, `trace_id`, `context.trace_id` are one."""
    context = record.get("context")
    named = {**record, **context} if isinstance(context, dict) else record
    return {
        name.removeprefix("context.").replace("_", "").lower(): value
        for name, value in named.items()
    }


def read_spans(piece: FilePiece, counts: ImportCounts) -> Iterator[LoggedSpan]:
    """Spans of a piece of a file: of its batches, lists and spans, one value in memory at a time.

    Lists within lists are walked without recursion.

    Args:
      piece: to read.
      counts: gets what cannot be read.

    Raises:
      InputError: a value over several lines of more than 256 MiB or 4 million brackets.
    """
    for value, place in _values(piece, counts):
        waiting: list[tuple[Any, dict[str, Any]]] = [(value, {})]
        while waiting:
            entry, resource = waiting.pop()
            if isinstance(entry, list):
                waiting.extend((part, resource) for part in reversed(entry))
                continue
            fields = _fields(entry) if isinstance(entry, dict) else {}
            form = "columns" if isinstance(fields.get("traceid"), dict) else ""
            form = next((name for name in _FORMS if name in fields), form)
            about = fields.get("resource")
            if isinstance(about, dict):
                resource = plain_attributes(about.get("attributes"), place, counts)
            is_span = "traceid" in fields and "spans" not in fields
            lists = [] if is_span else [fields[name] for name in _LISTS if name in fields]
            if form:
                counts.add(f"values are {_FORMS[form]}", place)
            elif lists:
                waiting.extend((part, resource) for part in reversed(lists))
            elif span := _span(fields, entry, resource, place, counts):
                yield span
            else:
                counts.add("values are no spans with a trace id and are left out", place)


def _span(
    fields: Mapping[str, Any],
    record: Any,  # noqa: ANN401 - of JSON
    resource: Mapping[str, Any],
    place: str,
    counts: ImportCounts,
) -> LoggedSpan | None:
    """A span of OTLP, of an SDK's JSON or of a row of Phoenix; None where it has no trace id."""
    trace_id = _id(fields.get("traceid"))
    if not trace_id:
        return None
    attributes = plain_attributes(fields.get("attributes"), place, counts) or {
        name.removeprefix("attributes."): value
        for name, value in record.items()
        if name.startswith("attributes.")
    }
    attributes = {**resource, "span_kind": fields.get("spankind"), **attributes}
    status = fields.get("statuscode", fields.get("status"))
    if isinstance(status, dict):
        status = status.get("code") or status.get("status_code")
    start, remark = time_of(fields.get("starttimeunixnano") or fields.get("starttime"))
    if remark:
        counts.add(remark, place)
    return LoggedSpan(
        trace_id,
        _id(fields.get("spanid")),
        _id(fields.get("parentspanid") or fields.get("parentid")),
        start,
        attributes,
        tuple(
            plain_attributes(row.get("attributes"), place, counts)
            for row in objects(fields.get("events"))
            if row.get("name") == EVALUATION
        ),
        str(status).upper().endswith(("2", "ERROR")),
    )


def _id(value: Any) -> str:  # noqa: ANN401 - of JSON
    return str(value or "").removeprefix("0x") if isinstance(value, str | int) else ""


def time_of(value: Any) -> tuple[int, str]:  # noqa: ANN401 - of JSON
    """Nanoseconds since 1970, in UTC where no zone is named, and what is counted of a time.

    A number is read in the unit by which it lies between the years 1973 and 5138.

    Example:
      >>> time_of("1764000000000000000"), time_of("2025-11-24T16:00:00Z"), time_of("soon")[0]
      ((1764000000000000000, ''), (1764000000000000000, ''), 0)
    """
    try:
        number = Decimal(str(value))
        power = next(power for power in (9, 6, 3, 0) if 10**8 <= number < 10 ** (20 - power))
        return int(number.scaleb(power)), _GUESSED_UNIT if power else ""
    except (ValueError, ArithmeticError, StopIteration):
        pass
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return 0, _NO_TIME
    seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return (round(seconds * 10**6) * 10**3, "") if 0 < seconds < 1e11 else (0, _NO_TIME)


# of JSON
def plain_attributes(attributes: Any, place: str, counts: ImportCounts) -> dict[str, Any]:  # noqa: ANN401
    """Attributes by name: of OTLP's list of keys and typed values, or of an object.

    Args:
      attributes: of JSON.
      place: of the span.
      counts: gets the count of those that cannot be read.

    Example:
      >>> plain_attributes(
      ...     [{"key": "top_k", "value": {"int_value": "5"}}], "a.jsonl, line 1", ImportCounts()
      ... )
      {'top_k': 5}
    """
    if isinstance(attributes, dict):
        return attributes
    values = {
        str(row["key"]): _plain_value(row.get("value"))
        for row in objects(attributes)
        if "key" in row
    }
    number = len(attributes) if isinstance(attributes, list) else attributes is not None
    counts.add(
        "attributes have no name, or one that stands twice, and are left out",
        place,
        number - len(values),
    )
    return values


def objects(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of JSON
    """Objects of a list, none where it is no list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _plain_value(value: Any) -> Any:  # noqa: ANN401 - of JSON
    """A value of OTLP's `AnyValue` as a plain one; None where it is none."""
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()), ("", None))
    if kind in {"intValue", "int_value"}:
        return int(str(content)) if _INTEGER.fullmatch(str(content)) else None
    if kind not in {"arrayValue", "array_value", "kvlistValue", "kvlist_value"}:
        return content
    entries = content.get("values") if isinstance(content, dict) else None
    if kind.startswith("kvlist"):
        return plain_attributes(entries, "", ImportCounts())
    return [_plain_value(entry) for entry in entries] if isinstance(entries, list) else []
