"""Folders (shore): the files below a folder and nothing outside it.

No link unless asked for, no loop, no device.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from raglab.store.files import InputError, check_regular, input_error, link_error, system_errors

_READABLE = "a folder and all it holds must be readable"
_LOCK = "~$"  # what office programs put beside a file that is open


class FolderFiles(NamedTuple):
    """What is below a folder.

    files: by their relative paths with slashes, sorted. problems: likewise links that are not to be
    followed, folders that are reached twice, devices, what cannot be read. passed_over: how many
    lock files of office programs (`~$a.docx`) and links that lead nowhere there are, by what they
    are.
    """

    files: dict[str, Path]
    problems: dict[str, InputError]
    passed_over: Counter[str]


def files_below(folder: Path, *, follow_links: bool) -> FolderFiles:
    """Files at any depth; names with a leading dot are passed over.

    Args:
      follow_links: whether links to files and folders are followed. A folder is read once: a second
        way to it may be a loop.
    """
    below = FolderFiles({}, {}, Counter())
    visited: dict[tuple[int, int], Path] = {}
    open_folders = [("", folder)]
    while open_folders:
        prefix, place = open_folders.pop()
        try:
            with system_errors(place, _READABLE):
                stat = place.stat()
                # by what the system calls it: a link may have come back to it
                first = visited.setdefault((stat.st_dev, stat.st_ino), place)
                if first != place:
                    raise input_error(
                        place,
                        "a folder must be reached in one way",
                        "take the link away",
                        f"{first} again",
                    )
                entries = [entry for entry in os.scandir(place) if not entry.name.startswith(".")]
        except InputError as error:
            below.problems[prefix] = error
            continue
        for entry in entries:
            path = place / entry.name
            try:
                with system_errors(path, _READABLE):
                    kind = _kind(entry, path, follow_links=follow_links)
            except InputError as error:
                below.problems[f"{prefix}{entry.name}"] = error
                continue
            if kind == "folder":
                open_folders.append((f"{prefix}{entry.name}/", path))
            elif kind == "file":
                below.files[f"{prefix}{entry.name}"] = path
            else:
                below.passed_over[kind] += 1
    return below._replace(
        files=dict(sorted(below.files.items())), problems=dict(sorted(below.problems.items()))
    )


def _kind(entry: os.DirEntry[str], path: Path, *, follow_links: bool) -> str:
    """What an entry of a folder is.

    It may matter where it is neither file nor folder, and is then a problem.
    """
    if entry.name.startswith(_LOCK):
        return "lock files"
    if entry.is_symlink():
        if not path.exists():
            return "links that lead nowhere"
        if not follow_links:
            raise link_error(path)
    if entry.is_dir():
        return "folder"
    check_regular(entry.stat().st_mode, path)
    return "file"


def is_folder(path: Path) -> bool:
    """Whether a path that a person gave, or a file states, is a folder.

    Raises:
      InputError: the system cannot say, as of a name that is too long.
    """
    with system_errors(path, _READABLE):
        return path.is_dir()


def check_link(path: Path, *, follow_links: bool) -> Path:
    """A path inside a folder with a fixed name there, a link only where links are followed."""
    if not follow_links and path.is_symlink():
        raise link_error(path)
    return path
