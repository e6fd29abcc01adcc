"""Mapped files (shore): files kept mapped into memory while searched, checked before each search.

Whoever shortens a file that is mapped ends the process: reading past its new end is a signal of the
system (SIGBUS), no error. So size, number and time of the last change are compared before anything
is read. What is shortened between that look and the reading cannot be told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from raglab.store.files import InputError, Where, input_error

_REMEDY = (
    "end what changes it, then open the index again, which names a damaged folder to be deleted "
    "and made again"
)


class MappedFile(NamedTuple):
    """A file as it was when it was mapped.

    path: as text, which is looked up a third faster than a Path. size: bytes. changed: of the last
    write, in nanoseconds. number: of device and file. folder: number of the folder's device and
    file.
    """

    path: str
    size: int
    changed: int
    number: tuple[int, int]
    folder: tuple[int, int]


def mapped_file(path: Path) -> MappedFile:
    """A file as it is now.

    Raises:
      OSError: it is not there.
    """
    stat, folder = path.stat(), path.parent.stat()
    return MappedFile(
        str(path),
        stat.st_size,
        stat.st_mtime_ns,
        (stat.st_dev, stat.st_ino),
        (folder.st_dev, folder.st_ino),
    )


def mapping_check(paths: Sequence[Path]) -> Callable[[], None]:
    """Function that compares files with what they are now.

    Made before they are mapped, called before they are read.

    Raises:
      OSError: one is not there.
    """
    return partial(check_mapped, tuple(mapped_file(path) for path in paths))


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Stop before files are read that are not as they were when they were mapped.

    A few microseconds a file.

    A file that has no name any more, or whose folder was made anew, stays mapped as it was: a new
    version of an index takes the place of an older one while that is searched.

    Raises:
      InputError: a file was shortened, written over or exchanged; names it and the remedy.
    """
    for file in files:
        try:
            stat = os.stat(file.path)  # noqa: PTH116 - twice as fast as a Path's
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _changed(file, error.strerror or str(error)) from None
        same = (stat.st_dev, stat.st_ino) == file.number
        if same and stat.st_size == file.size and stat.st_mtime_ns == file.changed:
            continue
        if same or _folder_number(file) == file.folder:
            raise _changed(file, _difference(stat, file, same=same))


def _folder_number(file: MappedFile) -> tuple[int, int]:
    stat = Path(file.path).parent.stat()
    return stat.st_dev, stat.st_ino


def _difference(stat: os.stat_result, file: MappedFile, *, same: bool) -> str:
    if not same:
        return "another file in its place"
    if stat.st_size != file.size:
        return f"{stat.st_size} bytes of {file.size}"
    return "one that was written since"


def _changed(file: MappedFile, value: str) -> InputError:
    rule = "a file must stay as it was opened while it is mapped into memory"
    return input_error(Where(file.path), rule, _REMEDY, value)
