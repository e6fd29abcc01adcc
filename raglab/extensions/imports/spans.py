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

MAX_LINE_LENGTH = (
    64 << 20
)  # characters of a value on one line; a longer one is left out and counted
MAX_VALUE_LENGTH = 256 << 20  # characters of a value over several lines
MAX_BRACKETS = 4 << 20  # that open objects and lists in such a value: its memory by its size
BYTES_PER_PIECE = 16 << 20  # of a file that one worker reads at a time
EVALUATION_EVENT = "gen_ai.evaluation.result"  # name of an event
SPAN_SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz")
_BLOCK_BYTES = 1 << 20  # bytes that are read at once
_BLANK_RUN = re.compile(r"[ \t\r\n]*")
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,4000}")
_JSON_DECODER = json.JSONDecoder()
_DAMAGE_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
_NO_TIME = "spans have no time that can be read"
_GUESSED_UNIT = "times are in seconds, milliseconds or microseconds, as their size tells"
_LIST_FIELDS = (
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
_FOREIGN_FORMS = {
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
    entries = [source] if isinstance(source, str) or not isinstance(source, Iterable) else source
    return [
        file_piece
        for entry in entries
        for path in _files(entry, counts)
        for file_piece in _pieces_of(path)
    ]


def _files(source_entry: Any, counts: ImportCounts) -> list[Path]:  # noqa: ANN401 - whatever a user wrote
    source_path = Path(source_entry)
    if source_path.is_file():
        return [source_path]
    found_paths = source_path.rglob("*") if source_entry != "" else ()
    visible_files = [
        file_path for file_path in found_paths if file_path.is_file() and file_path.name[0] != "."
    ]
    span_files = sorted(
        file_path for file_path in visible_files if file_path.suffix.lower() in SPAN_SUFFIXES
    )
    if not span_files:
        raise input_error(
            Where(str(source_path)),
            f"source must be a file of spans, or a folder of {', '.join(SPAN_SUFFIXES)}",
            "correct the path",
            "no such file",
        )
    unread_files = sorted({*visible_files} - {*span_files})
    counts.add(
        "files of a folder have another ending and are not read",
        "".join(file_path.name for file_path in unread_files[:1]),
        len(unread_files),
    )
    return span_files


def _open(file_path: Path) -> IO[bytes]:
    with file_path.open("rb") as file_stream:
        is_gzip = file_stream.read(2) == b"\x1f\x8b"
    # reads as a file
    return gzip.open(file_path) if is_gzip else file_path.open("rb")  # type: ignore[return-value]


def _pieces_of(file_path: Path) -> Iterator[FilePiece]:
    """Pieces of a file. A first line that ends as a value tells that each value has its line."""
    with _open(file_path) as file_stream:
        if isinstance(file_stream, gzip.GzipFile) or not (
            file_stream.readline(BYTES_PER_PIECE).rstrip().endswith((b"}", b"]"))
        ):
            yield FilePiece(file_path)
            return
        piece_start = file_stream.seek(0)
        first_line = 1
        while line_block := file_stream.read(BYTES_PER_PIECE) + file_stream.readline(
            MAX_LINE_LENGTH
        ):
            yield FilePiece(file_path, piece_start, file_stream.tell(), first_line)
            piece_start = file_stream.tell()
            first_line = first_line + line_block.count(b"\n")


# --- JSON values


def _blocks(file_piece: FilePiece, counts: ImportCounts) -> Iterator[str]:
    """Text of a piece, as much at once as is read at once."""
    decode_block = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
    with _open(file_piece.path) as file_stream:
        file_stream.seek(file_piece.start)
        while True:
            read_size = min(_BLOCK_BYTES, file_piece.end - file_stream.tell())
            try:
                block_bytes = file_stream.read1(read_size)  # type: ignore[attr-defined]
            except _DAMAGE_ERRORS:
                counts.add(
                    "gzipped files are cut off or damaged, and what follows is left out",
                    file_piece.path.name,
                )
                return
            if text := decode_block(block_bytes, not block_bytes):
                yield text
            if not block_bytes:
                return


def _more(blocks: Iterator[str], n_characters: int) -> str:
    """At least so many characters of the next blocks, or all that are left."""
    block_texts = []
    while n_characters > 0 and (block_text := next(blocks, "")):
        block_texts.append(block_text)
        n_characters -= len(block_text)
    return "".join(block_texts)


def _values(file_piece: FilePiece, counts: ImportCounts) -> Iterator[tuple[Any, str]]:
    """JSON values of a piece, each with its place; text that is none is counted by its lines.

    A value that its line does not end is read again with twice as many characters, up to the end of
    a line, so the time is linear. Behind an error reading goes on with the line of the error, or
    with the next one where the value began on that line.
    """
    text_blocks, buffer, value_start, line_number, min_size = (
        _blocks(file_piece, counts),
        "",
        0,
        file_piece.line,
        0,
    )
    while True:
        text_start = _BLANK_RUN.match(buffer, value_start).end()  # type: ignore[union-attr]
        line_number += buffer.count("\n", value_start, text_start)
        if text_start == len(buffer):
            buffer = _more(text_blocks, 1)
            value_start = 0
            if not buffer:
                return
            continue
        max_length = MAX_VALUE_LENGTH if min_size else MAX_LINE_LENGTH
        buffer, value_start, window_end = _with_lines(
            buffer, text_start, min_size, max_length, text_blocks
        )
        value_window = buffer[value_start:window_end]
        window_offset = 0
        if len(value_window) > max_length or sum(map(value_window.count, "{[")) > MAX_BRACKETS:
            limit_text = f"{max_length >> 20} MiB or 4 million brackets"
            if min_size:
                raise input_error(
                    Where(str(file_piece.path)),
                    f"a JSON document must have at most {limit_text}",
                    "export JSON lines, a span or batch a line",
                    "more",
                )
            counts.add(
                f"lines of more than {limit_text} are left out",
                f"{file_piece.path.name}, line {line_number}",
            )
            value_start = window_end
            while value_start == len(buffer) and (buffer := _more(text_blocks, 1)):
                value_start = buffer.find("\n") % (
                    len(buffer) + 1
                )  # its end, where there is no line feed
            continue
        try:
            while window_offset < len(value_window):
                json_value, value_end = _JSON_DECODER.raw_decode(value_window, window_offset)
                yield json_value, f"{file_piece.path.name}, line {line_number}"
                value_end = _BLANK_RUN.match(value_window, value_end).end()  # type: ignore[union-attr]
                line_number = line_number + value_window.count("\n", window_offset, value_end)
                window_offset = value_end
        except (ValueError, RecursionError) as json_error:
            # the last character of what is too deep, or a number with too many digits
            error_offset = getattr(json_error, "pos", -1)
            if error_offset == len(value_window) and window_end < len(buffer):
                value_start = value_start + window_offset
                min_size = 2 * (len(value_window) - window_offset)
                continue
            resume_offset = max(
                window_offset,
                value_window.rfind("\n", window_offset, error_offset % len(value_window)),
            )
            value_end = value_window.find("\n", resume_offset) % (len(value_window) + 1)
            n_lines = value_window.count("\n", window_offset, value_end)
            counts.add(
                "lines are no JSON and are left out",
                f"{file_piece.path.name}, line {line_number}",
                n_lines + 1,
            )
            line_number = line_number + n_lines
            window_offset = value_end
        value_start = value_start + window_offset
        min_size = 0


def _with_lines(
    buffer: str, text_start: int, min_size: int, max_length: int, text_blocks: Iterator[str]
) -> tuple[str, int, int]:
    """Text with lines of at least so many characters from a place on; the place, and their end."""
    while (line_end := buffer.find("\n", text_start + min_size)) < 0:
        text_length = len(buffer) - text_start
        if text_length > max_length or not (
            next_text := _more(text_blocks, min(text_length, max_length + 1 - text_length))
        ):
            return buffer, text_start, len(buffer)
        buffer = buffer[text_start:] + next_text
        text_start = 0
    return buffer, text_start, line_end


# --- spans


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the letters of their names: `traceId`, `trace_id`, `context.trace_id` are one."""
    span_context = record.get("context")
    named_fields = {**record, **span_context} if isinstance(span_context, dict) else record
    return {
        name.removeprefix("context.").replace("_", "").lower(): value
        for name, value in named_fields.items()
    }


def read_spans(file_piece: FilePiece, counts: ImportCounts) -> Iterator[LoggedSpan]:
    """Spans of a piece of a file: of its batches, lists and spans, one value in memory at a time.

    Lists within lists are walked without recursion.

    Args:
      file_piece: to read.
      counts: gets what cannot be read.

    Raises:
      InputError: a value over several lines of more than 256 MiB or 4 million brackets.
    """
    for json_value, value_place in _values(file_piece, counts):
        waiting_entries: list[tuple[Any, dict[str, Any]]] = [(json_value, {})]
        while waiting_entries:
            json_entry, resource_attributes = waiting_entries.pop()
            if isinstance(json_entry, list):
                waiting_entries.extend(
                    (entry_part, resource_attributes) for entry_part in reversed(json_entry)
                )
                continue
            entry_fields = _fields(json_entry) if isinstance(json_entry, dict) else {}
            foreign_form = "columns" if isinstance(entry_fields.get("traceid"), dict) else ""
            foreign_form = next(
                (field_name for field_name in _FOREIGN_FORMS if field_name in entry_fields),
                foreign_form,
            )
            resource_field = entry_fields.get("resource")
            if isinstance(resource_field, dict):
                resource_attributes = plain_attributes(
                    resource_field.get("attributes"), value_place, counts
                )
            is_span = "traceid" in entry_fields and "spans" not in entry_fields
            entry_lists = (
                []
                if is_span
                else [
                    entry_fields[field_name]
                    for field_name in _LIST_FIELDS
                    if field_name in entry_fields
                ]
            )
            if foreign_form:
                counts.add(f"values are {_FOREIGN_FORMS[foreign_form]}", value_place)
            elif entry_lists:
                waiting_entries.extend(
                    (entry_part, resource_attributes) for entry_part in reversed(entry_lists)
                )
            elif logged_span := _span(
                entry_fields, json_entry, resource_attributes, value_place, counts
            ):
                yield logged_span
            else:
                counts.add("values are no spans with a trace id and are left out", value_place)


def _span(
    span_fields: Mapping[str, Any],
    record: Any,  # noqa: ANN401 - of JSON
    resource_attributes: Mapping[str, Any],
    span_place: str,
    counts: ImportCounts,
) -> LoggedSpan | None:
    """A span of OTLP, of an SDK's JSON or of a row of Phoenix; None where it has no trace id."""
    trace_id = _id(span_fields.get("traceid"))
    if not trace_id:
        return None
    attributes = plain_attributes(span_fields.get("attributes"), span_place, counts) or {
        attribute_name.removeprefix("attributes."): attribute_value
        for attribute_name, attribute_value in record.items()
        if attribute_name.startswith("attributes.")
    }
    attributes = {**resource_attributes, "span_kind": span_fields.get("spankind"), **attributes}
    span_status = span_fields.get("statuscode", span_fields.get("status"))
    if isinstance(span_status, dict):
        span_status = span_status.get("code") or span_status.get("status_code")
    start_time, time_remark = time_of(
        span_fields.get("starttimeunixnano") or span_fields.get("starttime")
    )
    if time_remark:
        counts.add(time_remark, span_place)
    return LoggedSpan(
        trace_id,
        _id(span_fields.get("spanid")),
        _id(span_fields.get("parentspanid") or span_fields.get("parentid")),
        start_time,
        attributes,
        tuple(
            plain_attributes(event.get("attributes"), span_place, counts)
            for event in objects(span_fields.get("events"))
            if event.get("name") == EVALUATION_EVENT
        ),
        str(span_status).upper().endswith(("2", "ERROR")),
    )


def _id(raw_id: Any) -> str:  # noqa: ANN401 - of JSON
    return str(raw_id or "").removeprefix("0x") if isinstance(raw_id, str | int) else ""


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
    plain_values = {
        str(attribute["key"]): _plain_value(attribute.get("value"))
        for attribute in objects(attributes)
        if "key" in attribute
    }
    n_attributes = len(attributes) if isinstance(attributes, list) else attributes is not None
    counts.add(
        "attributes have no name, or one that stands twice, and are left out",
        place,
        n_attributes - len(plain_values),
    )
    return plain_values


def objects(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of JSON
    """Objects of a list, none where it is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _plain_value(typed_value: Any) -> Any:  # noqa: ANN401 - of JSON
    """A value of OTLP's `AnyValue` as a plain one; None where it is none."""
    if not isinstance(typed_value, dict):
        return typed_value
    value_kind, content = next(iter(typed_value.items()), ("", None))
    if value_kind in {"intValue", "int_value"}:
        return int(str(content)) if _INTEGER_TEXT.fullmatch(str(content)) else None
    if value_kind not in {"arrayValue", "array_value", "kvlistValue", "kvlist_value"}:
        return content
    value_entries = content.get("values") if isinstance(content, dict) else None
    if value_kind.startswith("kvlist"):
        return plain_attributes(value_entries, "", ImportCounts())
    return (
        [_plain_value(value_entry) for value_entry in value_entries]
        if isinstance(value_entries, list)
        else []
    )
