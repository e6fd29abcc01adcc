"""Files (shore): reading, writing whole or not at all, logs of lines under a lock, `InputError`."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import ENOENT
from functools import partial
from io import FileIO
from math import isfinite
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from raglab.words.canonical import canonical_json
from raglab.words.characters import masked_passwords, visible

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_CHARACTERS = 80
_SHOWN_RULE = 500
_SHOWN_PATH = 1000
_SHOWN_BITS = 1024


class InputError(ValueError):
    """A file, line or field breaks a rule; the message names place, rule, value and remedy."""


class BlankError(InputError):
    """A document has no text; a folder does without it."""


class LabelsError(InputError):
    """A table holds labels of cases, and is no document; a folder does without it."""


class Where(NamedTuple):
    """Place in the input, as far as it is known.

    file: path as the caller gave it. line: from 1. id: of the record, or the way to it inside one
    JSON document, such as `data[3].title`.
    """

    file: str
    line: int | None = None
    id: str | None = None


Place = Where | Path | str  # in the input, or the path or name of a file
UNNAMED = ""  # file of a document whose reader takes its bytes; what calls it names the file


def input_error(
    location: Place,
    rule: str,
    remedy: str,
    offending_value: str | None = None,
    error_type: type[InputError] = InputError,
) -> InputError:
    """Error with one message of one line: file, line, id, rule, what came, remedy.

    Whatever comes from a file is shown as text: no escape sequence, no turned direction, no
    password of a URL.

    Args:
      location: the place, of which parts that are None are left out.
      rule: what must hold.
      remedy: what the person can do.
      offending_value: what was found instead, already shortened (see `shown_value`).
      error_type: of the error.

    Example:
      >>> str(
      ...     input_error(Where("a.jsonl", 3), "query must be a string", "quote it", shown_value(7))
      ... )
      'a.jsonl, line 3: query must be a string, got 7; quote it.'
    """
    if not isinstance(location, Where):
        location = Where(str(location))
    line_clause = "" if location.line is None else f", line {location.line}"
    id_clause = "" if location.id is None else f", id {_shorten(location.id)}"
    got_clause = "" if offending_value is None else f", got {offending_value}"
    # both may name what the input calls a key
    rule, remedy = (_shorten(message_part, _SHOWN_RULE) for message_part in (rule, remedy))
    shown_place = f"{_shorten(location.file, _SHOWN_PATH)}{line_clause}{id_clause}"
    return error_type(visible(masked_passwords(f"{shown_place}: {rule}{got_clause}; {remedy}.")))


def shown_value(value: object, max_characters: int = _SHOWN_CHARACTERS) -> str:
    """The value as a message shows it: its repr, of at most `max_characters`.

    Example:
      >>> shown_value("x" * 1000)[-6:]
      'xxx...'
    """
    if isinstance(value, str):
        return _shorten(repr(value[: max_characters + 1]), max_characters)
    # Python writes no more than 4,300 digits
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return _shorten(repr(value), max_characters)


def _shorten(text: str, max_characters: int = _SHOWN_CHARACTERS) -> str:
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."


SCRATCH_NAME = ".scratch"  # in a folder that is written to: files of a run alone
_WRITABLE = "the file must be writable"
MAX_LINE_BYTES = 16 * 2**20
MAX_FILE_BYTES = 256 * 2**20
Append = Callable[[Mapping[str, Any]], None]
_UTF8_MARK = b"\xef\xbb\xbf"


class JsonLine(NamedTuple):
    """One record of a JSON-lines file and where it stood."""

    where: Where
    record: Mapping[str, Any]


def read_bytes(
    path: Path,
    max_file_bytes: int,
    *,
    allow_blank: bool = False,
    follow_links: bool = True,
    keep_mark: bool = False,
) -> bytes:
    """Content of a file of at most `max_file_bytes`, without a byte-order mark of UTF-8.

    Args:
      allow_blank: whether a file without content is one too.
      follow_links: whether the path may be a link; the path that a person gave may, what a folder
        holds may not.
      keep_mark: whether a byte-order mark stays.

    Raises:
      InputError: the file cannot be read, is empty, or is longer than the limit; or the path is a
        link, and may not be.
    """
    with _opened(path, follow_links=follow_links) as opened_file:
        raw_bytes = opened_file.read(max_file_bytes + 1) or b""
    if len(raw_bytes) > max_file_bytes:
        raise input_error(
            path,
            f"a file must be at most {max_file_bytes} bytes",
            "split it, or raise max_file_bytes",
            "more",
        )
    content = raw_bytes.removeprefix(_UTF8_MARK)
    if not allow_blank and not content.strip():
        raise input_error(
            path, "a file must not be empty", "fill it or take it away", "no content", BlankError
        )
    return raw_bytes if keep_mark else content


def read_text(
    path: Path, max_file_bytes: int, *, allow_blank: bool = False, follow_links: bool = True
) -> str:
    """Text of a UTF-8 file, its line ends as one line feed; see `read_bytes`."""
    location = Where(str(path), 1)
    text = decode_utf8(
        read_bytes(path, max_file_bytes, allow_blank=allow_blank, follow_links=follow_links),
        location,
    )
    # it would hide the `---` of a front matter, or become a part of the first key
    if text.startswith("\ufeff"):
        raise input_error(
            location,
            "a file must begin with one byte-order mark at most",
            "take the second away",
            "two",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


# any JSON value; the fields are checked where they are read
def read_json(path: Path, max_file_bytes: int, *, follow_links: bool = True) -> Any:  # noqa: ANN401
    """Value of a file that is one JSON document."""
    raw_bytes = read_bytes(path, max_file_bytes, follow_links=follow_links)
    return parse_json(decode_utf8(raw_bytes, Where(str(path), 1)), Where(str(path)))


def json_lines(path: Path, max_line_bytes: int, *, follow_links: bool = True) -> Iterator[JsonLine]:
    """Records of a JSON-lines file in their order; blank lines are passed over.

    No more than `max_line_bytes` + 2 bytes of a line are ever read.

    Raises:
      InputError: a line is too long, not UTF-8, not JSON, or not an object; or the file has no
        record.
    """
    has_record = False
    with _opened(path, follow_links=follow_links) as opened_file:
        raw_lines = iter(partial(opened_file.readline, max_line_bytes + 2), b"")
        for line_number, raw_line in enumerate(raw_lines, 1):
            location = Where(str(path), line_number)
            line_bytes = (
                raw_line.removeprefix(_UTF8_MARK) if line_number == 1 else raw_line
            ).rstrip(b"\r\n")
            if len(line_bytes) > max_line_bytes:
                raise input_error(
                    location,
                    f"a line must be at most {max_line_bytes} bytes",
                    "write one record a line, or raise max_line_bytes",
                    "more",
                )
            if line_bytes.strip():
                has_record = True
                yield _json_line(line_bytes, location)
    if not has_record:
        raise input_error(
            path, "a file must not be empty", "write one JSON object a line", "no record"
        )


def _json_line(line_bytes: bytes, location: Where) -> JsonLine:
    """Record of a line, which must be a JSON object."""
    record = parse_json(decode_utf8(line_bytes, location), location)
    if not isinstance(record, dict):
        raise input_error(
            location, "a line must be a JSON object", 'write {"key": value, …}', shown_value(record)
        )
    return JsonLine(location, record)


def decode_utf8(raw_bytes: bytes, location: Where, remedy: str = "save the file as UTF-8") -> str:
    """Text of UTF-8 bytes; `where.line` is the line of their first byte."""
    try:
        return raw_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        line_number = (location.line or 1) + raw_bytes.count(b"\n", 0, error.start)
        raise input_error(
            location._replace(line=line_number),
            "text must be UTF-8",
            remedy,
            f"byte 0x{raw_bytes[error.start]:02x}",
        ) from error


def parse_json(text: str, location: Where) -> Any:  # noqa: ANN401 - any JSON value
    """Value of a JSON text.

    No NaN, no number beyond a double, no repeated key, no half of a surrogate pair.
    """
    try:
        json_value = json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=finite_number,
            parse_float=finite_number,
        )
        if "\\ud" in text or "\\uD" in text:
            json.dumps(json_value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            location = location._replace(line=location.line or error.lineno)
            reason = f"{error.msg} at column {error.colno}"
        elif isinstance(error, RecursionError):
            reason = "nesting too deep"
        elif "integer string conversion" in reason:
            reason = "an integer of over 4300 digits"
        raise input_error(
            location, "text must be valid JSON", "correct or remove it", reason
        ) from error
    return json_value


def canonical_text(value: object, location: Where) -> str:
    """Canonical JSON of a value: sorted keys, no white space, ASCII only."""
    with _json_values(location):
        return canonical_json(value, ensure_ascii=True, allow_nan=False)


@contextmanager
def _json_values(location: Where) -> Iterator[None]:
    """Turn an error about what is no JSON into an InputError."""
    try:
        yield
    except (TypeError, ValueError, RecursionError) as error:
        raise input_error(
            location, "a record must hold JSON values only", "convert or remove it", str(error)
        ) from error


def write_lines(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write one JSON object a line, whole or not at all.

    A new file next to the target takes the lines and replaces it at the end; on an error the target
    is as it was.

    Raises:
      InputError: a record is not JSON, or the folder cannot be written.
    """
    write_parts(
        (
            _encode_line(record, Where(str(path), line_number))
            for line_number, record in enumerate(records, 1)
        ),
        path,
    )


def write_text(text: str, path: Path) -> None:
    """Write a text file as UTF-8, whole or not at all; see `write_lines`."""
    write_parts([text.encode()], path)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file, whole or not at all; see `write_lines`."""
    write_parts([content], path)


_FORMULA_STARTS = tuple(
    "=+-@\t\r\n＝＋－＠"
)  # what a spreadsheet takes a formula by, wide forms among them


def cut_file(path: Path, kept_bytes: int) -> None:
    """Take the end of a file away, in its place, which needs no room on the disk.

    Only under the file's lock.

    Args:
      kept_bytes: bytes that stay.
    """
    os.truncate(path, kept_bytes)


def csv_text(table: pd.DataFrame) -> str:
    r"""CSV of a table without its index.

    A text that a spreadsheet would run as a formula has an apostrophe before it.

    Numbers, and texts that are numbers, stay as they are.

    Source: OWASP, CSV injection.

    Example:
      >>> import pandas as pd
      >>> csv_text(pd.DataFrame({"query": ["=cmd|' /C calc'!A0", "-0.5"], "@cost": [-0.5, 1.0]}))
      "query,'@cost\n'=cmd|' /C calc'!A0,-0.5\n-0.5,1.0\n"
    """
    return map_texts(table, _inert).to_csv(index=False, lineterminator="\n")


def map_texts(table: pd.DataFrame, function: Callable[[str], str]) -> pd.DataFrame:
    """Table with a function applied to its texts and its heads.

    Numbers and all else stay as they are.
    """
    import pandas as pd

    mapped_table = table.set_axis([function(str(name)) for name in table.columns], axis=1)
    for position, column_type in enumerate(mapped_table.dtypes):
        if column_type.kind == "O":
            series = mapped_table.iloc[:, position]
            mapped_cells = [function(cell) if isinstance(cell, str) else cell for cell in series]
            mapped_table.isetitem(position, pd.Series(mapped_cells, dtype=object).array)
    return mapped_table


def _inert(cell: str) -> str:
    if not cell.startswith(_FORMULA_STARTS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def plain_cell(cell: str) -> str:
    """Text of a cell of `csv_text`: without the apostrophe that it puts before a formula.

    Example:
      >>> plain_cell("'-x7"), plain_cell("'tis"), plain_cell("-7")
      ('-x7', "'tis", '-7')
    """
    text = cell.removeprefix("'")
    return text if _inert(text) == cell else cell


def write_parts(contents: Iterable[bytes], path: Path) -> None:
    """Write a file in parts, whole or not at all; see `replacing`."""
    with replacing(path) as partial, partial.open("xb") as output:
        for content in contents:
            output.write(content)


def make_folder(folder: Path) -> Path:
    """The folder, made with all above it where it is not there.

    Raises:
      InputError: it cannot be made, or a file stands in its way.
    """
    _check_name(folder)
    with system_errors(folder, "the folder must be writable"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new path next to the target to write to.

    Its file takes the target's place when the block ends.

    The one door for everything that raglab writes to a file: on any error, a full disk among them,
    the target is as it was and nothing is left next to it. What a kill leaves has a hidden name on
    `.tmp`, which nothing reads. A link stays and what it names is replaced; a file keeps its
    rights.

    Raises:
      InputError: the folder cannot be written, the file may not be, it is a folder or a device, or
        the disk is full.
    """
    with system_errors(path, _WRITABLE):
        _check_place(path)
        target_path = Path(os.path.realpath(path))
        partial = target_path.with_name(f".{secrets.token_hex(8)}.tmp")
        if target_path.exists():
            # what may not be written is not replaced either, though the folder would let it
            target_path.open("r+b").close()
        try:
            yield partial
            with partial.open("rb") as partial_file:
                os.fsync(partial_file.fileno())
            if target_path.exists():
                partial.chmod(S_IMODE(target_path.stat().st_mode))
            partial.replace(target_path)
        finally:
            with suppress(OSError):
                partial.unlink()
    _sync_folder(target_path.parent)


@contextmanager
def locked_lines(path: Path, line_opening: str, wait_s: float = 10.0) -> Iterator[Append]:
    """Function that adds a record to a log of JSON lines, made where it is not there.

    This block alone holds the log, and others wait for its lock. A record is seen on the disk, or
    the file is as it was.

    A last line that a kill or a full disk cut off was never finished and is taken away first; one
    that is whole but for its line end gets it.

    Args:
      line_opening: what every line of this log begins with, such as `{"key": `; a last line
        without an end that does not begin so is refused, so that another file is never cut.
      wait_s: seconds to wait for the lock.

    Raises:
      InputError: the file cannot be written, is another's, or is held for longer than `wait_s`.
    """
    with system_errors(path, _WRITABLE):
        _check_place(path)
        with path.open("a+b", buffering=0) as log_file:
            _lock(log_file, path, wait_s)
            _mend_last_line(log_file, path, line_opening.encode())
            yield partial(_append_line, path, log_file)


@contextmanager
def locked(path: Path, wait_s: float = 60.0) -> Iterator[None]:
    """A block that one process or thread runs at a time, by a file lock, made if missing.

    Raises:
      InputError: the file cannot be written, or is held for longer than `wait_s`.
    """
    with system_errors(path, _WRITABLE):
        _check_place(path)
        lock_file = path.open("a+b", buffering=0)
    with lock_file:
        _lock(lock_file, path, wait_s)
        yield


@contextmanager
def scratch_folder(parent_folder: Path) -> Iterator[Path]:
    """Folder for files of one block alone: `.scratch` in a place, made if missing, empty at first.

    What a kill left there is deleted by the next block, and nothing of it lies elsewhere. One block
    at a time has the folder; others wait for its lock.

    Raises:
      InputError: the place cannot be written, or its folder is held for too long.
    """
    scratch = make_folder(parent_folder) / SCRATCH_NAME
    with locked(parent_folder / f"{SCRATCH_NAME}.lock"):
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            yield make_folder(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def append_bytes(content: bytes, path: Path) -> int:
    """Append bytes to a file, made if missing; position of the first.

    Raises:
      InputError: the file cannot be written, or the disk is full.
    """
    with system_errors(path, _WRITABLE), path.open("ab") as output:
        start_position = output.tell()
        output.write(content)
    return start_position


def _append_line(path: Path, log_file: FileIO, record: Mapping[str, Any]) -> None:
    size_before = log_file.seek(0, os.SEEK_END)
    unwritten_bytes = memoryview(_encode_line(record, Where(str(path))))
    with system_errors(path, _WRITABLE):
        try:
            while unwritten_bytes:
                unwritten_bytes = unwritten_bytes[log_file.write(unwritten_bytes) :]
            os.fsync(log_file.fileno())
        except OSError:
            log_file.truncate(size_before)
            raise
    if not size_before:
        _sync_folder(path.parent)


def logged_lines(path: Path) -> list[JsonLine]:
    """Records of a log of JSON lines, none where it is not there.

    A last line that was cut off is passed over.

    Raises:
      InputError: the file cannot be read, is longer than `MAX_FILE_BYTES`, or a line is no JSON
        object.
    """
    if not path.exists():
        return []
    *texts, last_line = read_bytes(path, MAX_FILE_BYTES, allow_blank=True).split(b"\n")
    if _is_object(last_line):
        texts.append(last_line)
    return [
        _json_line(line_bytes, Where(str(path), line_number))
        for line_number, line_bytes in enumerate(texts, 1)
        if line_bytes.strip()
    ]


def _lock(lock_file: FileIO, path: Path, wait_s: float) -> None:
    """Take the lock, which ends with the open file, by a kill as well.

    Measured against filelock 4.2: 60 µs a lock instead of 700 µs; four processes that take turns
    800 times 0.8 s instead of 1.7 s. And filelock makes missing folders, takes a place that cannot
    be written for one that is held, and follows no links.
    """
    import fcntl  # not on Windows, where all else works

    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise input_error(
                    path,
                    f"the file must be free within {wait_s:g} s",
                    "wait for it, or end it",
                    "a lock of another process",
                ) from error
            time.sleep(0.005)
        else:
            return


def _mend_last_line(log_file: FileIO, path: Path, line_opening: bytes) -> None:
    """End a last line that lacks its end, or take it away where it was cut off.

    The caller holds the lock.
    """
    file_end = log_file.seek(0, os.SEEK_END)
    log_file.seek(max(0, file_end - MAX_LINE_BYTES))
    last_line = log_file.readall().rpartition(b"\n")[2]
    if last_line[: len(line_opening)] != line_opening[: len(last_line)]:
        raise input_error(
            path,
            f"the last line must begin with {line_opening.decode()}",
            "give another file",
            shown_value(last_line[:_SHOWN_CHARACTERS]),
        )
    if _is_object(last_line):
        log_file.write(b"\n")
    else:
        log_file.truncate(file_end - len(last_line))


def _is_object(line_bytes: bytes) -> bool:
    try:
        return isinstance(json.loads(line_bytes), dict)
    except (ValueError, RecursionError):
        return False


def _check_place(path: Path) -> None:
    """Refuse to write to what is no file: a device would be taken for one and replaced."""
    _check_name(path)
    if not path.name or (path.exists() and not path.is_file()):
        raise input_error(
            path,
            _WRITABLE,
            "give the path of a file",
            "a folder" if path.is_dir() else "a device or pipe",
        )


def _check_name(path: Path) -> None:
    if "\0" in str(path):
        raise input_error(path, "a path must hold no NUL character", "take it away", "one")


@contextmanager
def system_errors(path: Path, rule: str) -> Iterator[None]:
    """Turn the system's errors about a path into an InputError.

    What the system says goes by its number where it has one: libraries put texts of their own
    around it.
    """
    try:
        yield
    except OSError as error:
        raise input_error(
            path,
            rule,
            "check path and rights, or choose another",
            os.strerror(error.errno) if error.errno else str(error) or type(error).__name__,
        ) from error


def _sync_folder(folder: Path) -> None:
    """Have a new file's folder entry on disk as well, so that power loss does not undo it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encode_line(record: Mapping[str, Any], location: Where) -> bytes:
    with _json_values(location):
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(members)
    if len(record) < len(members):
        key = Counter(key for key, _ in members).most_common(1)[0][0]
        message = f"key {shown_value(key)} twice in one object"
        raise ValueError(message)
    return record


def finite_number(number_text: str | float) -> float:
    """Number of a text, or of a number.

    Raises:
      ValueError: it is not finite.
    """
    number = float(number_text)
    if not isfinite(number):
        message = f"{shown_value(number_text)}, which is no finite number"
        raise ValueError(message)
    return number


def link_error(path: Path) -> InputError:
    """A link where only what a folder holds itself is read."""
    shown_link = "a link"
    with suppress(OSError):
        shown_link = f"a link to {shown_value(str(path.readlink()))}"
    return input_error(
        path,
        "a folder must hold its files itself",
        "copy it, or pass follow_links=True (--follow-links)",
        shown_link,
    )


def check_regular(file_mode: int, path: Path) -> None:
    """Stop at what is no file.

    A folder, device, pipe or socket, by the mode that the system gives.
    """
    if not S_ISREG(file_mode):
        raise input_error(
            path,
            "the path must be a file",
            "give the path of a file",
            "a folder" if S_ISDIR(file_mode) else "a device, pipe or socket",
        )


_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def _opened(path: Path, *, follow_links: bool) -> Iterator[BinaryIO]:
    """A file open for reading.

    What is no file is never waited for, and the system's errors are InputErrors.
    """
    with system_errors(path, "the file must be readable"):
        if not follow_links and path.is_symlink():
            raise link_error(path)
        try:
            file_mode = path.stat().st_mode
        # a NUL, or half of a surrogate pair: no file can have such a name
        except ValueError as error:
            raise FileNotFoundError(ENOENT, "") from error
        check_regular(file_mode, path)  # opening a device can do something
        # Whatever stands there a moment later is looked at once more, and a link that took its
        # place is not followed.
        open_flags = _READ_FLAGS | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(os.open(path, open_flags), "rb") as opened_file:
            check_regular(os.fstat(opened_file.fileno()).st_mode, path)
            yield opened_file
