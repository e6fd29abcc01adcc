"""Folders (shore): the files below a folder and nothing outside it: no link unless asked for, no loop, no device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raglab.store.files import Where, check_regular, input_error, link_error


def files_below(folder: Path, *, follow_links: bool) -> dict[str, Path]:
    """Files at any depth by their relative paths with slashes, sorted; names with a leading dot are passed over.

    Args:
      follow_links: whether links to files and folders are followed. A folder is read once: a second way to it may be a
        loop.

    Raises:
      InputError: a link that is not to be followed or leads nowhere, a folder that is reached twice, a device, pipe or
        socket, or a folder that cannot be read; the message names the path.
    """
    found: dict[str, Path] = {}
    visited: dict[tuple[int, int], Path] = {}
    open_folders = [("", folder)]
    while open_folders:
        prefix, place = open_folders.pop()
        with _listing(place):
            _visit_once(place, visited)
            entries = [entry for entry in os.scandir(place) if not entry.name.startswith(".")]
        for entry in entries:
            path = place / entry.name
            with _listing(path):
                if entry.is_symlink() and not follow_links:
                    raise link_error(path)
                mode = entry.stat().st_mode
                if entry.is_dir():
                    open_folders.append((f"{prefix}{entry.name}/", path))
                    continue
            check_regular(mode, path)
            found[f"{prefix}{entry.name}"] = path
    return dict(sorted(found.items()))


def is_folder(path: Path) -> bool:
    """Whether a path that a person gave, or a file states, is a folder.

    Raises:
      InputError: the system cannot say, as of a name that is too long.
    """
    with _listing(path):
        return path.is_dir()


def check_link(path: Path, *, follow_links: bool) -> Path:
    """A path inside a folder that has a fixed name there, which may be a link only where links are followed."""
    if not follow_links and path.is_symlink():
        raise link_error(path)
    return path


def _visit_once(place: Path, visited: dict[tuple[int, int], Path]) -> None:
    """Note a folder by what the system calls it, and stop where a link has come back to one."""
    stat = place.stat()
    first = visited.setdefault((stat.st_dev, stat.st_ino), place)
    if first != place:
        rule = "a folder must be reached in one way"
        raise input_error(Where(str(place)), rule, "take the link away", f"{first} again")


@contextmanager
def _listing(path: Path) -> Iterator[None]:
    """Turn the system's errors about what a folder holds into an InputError."""
    try:
        yield
    except OSError as error:
        came = error.strerror or type(error).__name__
        rule = "a folder and all it holds must be readable"
        raise input_error(Where(str(path)), rule, "check rights and links, or take it away", came) from error
