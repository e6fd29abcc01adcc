"""Reading and writing files: limits before memory, UTF-8, strict JSON, and writes that are whole or absent."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from raglab.store._errors import Where, input_error, shown

MAX_LINE_BYTES = 16 * 2**20
MAX_FILE_BYTES = 256 * 2**20
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One record of a JSON-lines file and where it stood."""

    where: Where
    record: Mapping[str, Any]


def read_bytes(path: Path, max_file_bytes: int) -> bytes:
    """Content of a file of at most `max_file_bytes`, without a byte-order mark.

    Raises:
      InputError: the file cannot be read, is empty, or is longer than the limit.
    """
    where = Where(str(path))
    with _reading(path), path.open("rb") as file:
        raw = file.read(max_file_bytes + 1)
    if len(raw) > max_file_bytes:
        rule = f"a file must be at most {max_file_bytes} bytes"
        raise input_error(where, rule, "split it, or raise max_file_bytes", f"more than {max_file_bytes}")
    raw = raw.removeprefix(_BOM)
    if not raw.strip():
        raise input_error(where, "a file must not be empty", "fill it or take it away", "no content")
    return raw


def read_text(path: Path, max_file_bytes: int) -> str:
    """Text of a UTF-8 file, its line ends as one line feed."""
    return decoded(read_bytes(path, max_file_bytes), Where(str(path), 1)).replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, max_file_bytes: int) -> Any:  # noqa: ANN401 - any JSON value; the fields are checked where they are read
    """Value of a file that is one JSON document."""
    return parsed(decoded(read_bytes(path, max_file_bytes), Where(str(path), 1)), Where(str(path)))


def json_lines(path: Path, max_line_bytes: int) -> Iterator[Line]:
    """Records of a JSON-lines file in their order; blank lines are passed over.

    No more than `max_line_bytes` + 2 bytes of a line are ever read.

    Raises:
      InputError: a line is too long, not UTF-8, not JSON, or not an object; or the file has no record.
    """
    found = False
    with _reading(path), path.open("rb") as file:
        number = 0
        while raw := file.readline(max_line_bytes + 2):
            number += 1
            where = Where(str(path), number)
            line = (raw.removeprefix(_BOM) if number == 1 else raw).rstrip(b"\r\n")
            if len(line) > max_line_bytes:
                rule = f"a line must be at most {max_line_bytes} bytes"
                raise input_error(
                    where, rule, "write one record a line, or raise max_line_bytes", f"more than {max_line_bytes}"
                )
            if line.strip():
                found = True
                yield Line(where, _object(parsed(decoded(line, where), where), where))
    if not found:
        raise input_error(Where(str(path)), "a file must not be empty", "write one JSON object a line", "no record")


def decoded(raw: bytes, where: Where) -> str:
    """Text of UTF-8 bytes; `where.line` is the line of their first byte."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = (where.line or 1) + raw.count(b"\n", 0, error.start)
        came = f"byte 0x{raw[error.start]:02x}"
        raise input_error(where._replace(line=line), "text must be UTF-8", "save the file as UTF-8", came) from error


def parsed(text: str, where: Where) -> Any:  # noqa: ANN401 - any JSON value
    """Value of a JSON text: no NaN, no repeated key, no half of a surrogate pair."""
    try:
        value = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        place = where if where.line is not None else where._replace(line=error.lineno)
        came = f"{error.msg} at column {error.colno}"
        raise input_error(place, "text must be valid JSON", "correct or remove it", came) from error
    except (ValueError, RecursionError) as error:
        came = "nesting too deep" if isinstance(error, RecursionError) else str(error)
        raise input_error(where, "text must be valid JSON", "correct or remove it", came) from error
    return value


def dumped(value: object, where: Where) -> str:
    """Canonical JSON of a value: sorted keys, no white space, ASCII only."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise input_error(where, "a record must hold JSON values only", "convert or remove it", str(error)) from error


def write_lines(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write one JSON object a line, whole or not at all.

    A new file beside the target takes the lines and replaces it at the end; on any error the target is as it was.

    Raises:
      InputError: a record is not JSON, or the folder cannot be written.
    """
    _write((_line(record, Where(str(path), number)) for number, record in enumerate(records, 1)), path)


def write_text(text: str, path: Path) -> None:
    """Write a text file as UTF-8, whole or not at all; see `write_lines`."""
    _write([text.encode()], path)


def _write(parts: Iterable[bytes], path: Path) -> None:
    partial = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with partial.open("xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        came = error.strerror or type(error).__name__
        raise input_error(
            Where(str(path)), "the file must be writable", "make the folder or choose another", came
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _line(record: Mapping[str, Any], where: Where) -> bytes:
    try:
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise input_error(where, "a record must hold JSON values only", "convert or remove it", str(error)) from error


def _object(value: object, where: Where) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise input_error(where, "a line must be a JSON object", 'write {"key": value, …}', shown(value))
    return value


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        msg = f"key {shown(key)} twice in one object"
        raise ValueError(msg)
    return record


def _refuse_constant(name: str) -> float:
    msg = f"{name}, which is not JSON"
    raise ValueError(msg)


class _reading:  # noqa: N801 - reads as a phrase: with _reading(path)
    """Turn the system's errors about a path into an InputError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        if self.path.exists() and not self.path.is_file():
            came = "a folder" if self.path.is_dir() else "a device or pipe"
            raise input_error(Where(str(self.path)), "the path must be a file", "give the path of a file", came)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            came = error.strerror or type(error).__name__
            raise input_error(
                Where(str(self.path)), "the file must be readable", "check path and rights", came
            ) from error
