"""Stored lines (shore): JSON lines of a published repository, gzipped or not.

What cannot be read is counted.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from raglab.store.files import (
    MAX_FILE_BYTES,
    InputError,
    Where,
    decode_utf8,
    input_error,
    parse_json,
)

SUFFIXES = (".jsonl", ".jsonl.gz")
LONGEST_LINE = 16 * 2**20  # bytes of a line; a longer one is not read
_GZIP = b"\x1f\x8b"


class StoredLines(NamedTuple):
    """Records of files in their order, and the number of lines that hold none."""

    records: tuple[Mapping[str, Any], ...]
    unread: int


def line_files(folder: Path) -> list[Path]:
    """Files of JSON lines in a folder, by name; of a file and its gzipped copy, the file.

    A link to nothing is listed, because reading it says so; folders and devices are not.

    Args:
      folder: need not be there.
    """
    paths = [path for path in folder.glob("*.jsonl*") if is_stored_file(path)]
    files = {path.name.removesuffix(".gz"): path for path in sorted(paths, reverse=True)}
    return [files[name] for name in sorted(files) if files[name].name.endswith(SUFFIXES)]


def is_stored_file(path: Path) -> bool:
    """Whether a path is a file, or a link whose file is not there."""
    try:
        return path.is_file() or (path.is_symlink() and not path.exists())
    except OSError:  # in a folder that may not be read
        return False


def walked(folder: Path, most: int) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Folders from one down with the names of their folders and files, as `os.walk`.

    Links are followed.

    A second path to a folder that was walked is passed over, so that links in a loop end.

    Args:
      folder: the first.
      most: folders below it. Names that the caller takes out of a list are not walked.
    """
    known: set[Path] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = Path(root).resolve()
        if real in known:
            folders.clear()
            continue
        known.add(real)
        folders.sort()
        yield Path(root), folders, sorted(files)
        if len(Path(root).relative_to(folder).parts) >= most:
            folders.clear()


def stored_lines(path: Path) -> StoredLines:
    """Records of a file of JSON lines; a line that is no JSON object is counted and left out.

    Args:
      path: of the file; whether it is gzipped is told by its first bytes.

    Raises:
      InputError: the file cannot be read, is cut off, or holds more than 256 MiB of text.
    """
    values = list(_values(path))
    records = tuple(value for value in values if isinstance(value, Mapping))
    return StoredLines(records, len(values) - len(records))


def first_record(path: Path) -> Mapping[str, Any]:
    """First record of a file of JSON lines, by which a layout is known.

    Empty where there is none to be read.
    """
    try:
        return next((value for value in _values(path) if isinstance(value, Mapping)), {})
    # what lies beside the data need not be readable; a file of the data is read again
    except InputError:
        return {}


def _values(path: Path) -> Iterator[Any]:
    """Value of each line that is not blank; None where it is no JSON."""
    where, size = Where(str(path)), 0
    try:
        with _stream(path) as stream:
            while line := stream.readline(LONGEST_LINE):
                size += len(line)
                if size > MAX_FILE_BYTES:
                    rule = f"a stored file must hold at most {MAX_FILE_BYTES} bytes of text"
                    raise input_error(where, rule, "split it", "more")
                if line.strip():
                    yield _value(line, where)
    except (OSError, EOFError, zlib.error) as error:
        rule, remedy = "a stored file must be readable", "fetch it again"
        raise input_error(where, rule, remedy, type(error).__name__) from error


def _stream(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        is_gzip = stream.read(2) == _GZIP
    # reads as a file
    return gzip.open(path) if is_gzip else path.open("rb")  # type: ignore[return-value]


def _value(line: bytes, where: Where) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return parse_json(decode_utf8(line, where), where)
    except InputError:
        return None
