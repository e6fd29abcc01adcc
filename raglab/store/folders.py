"""Folders (shore): the files below a folder and nothing outside it.

No link unless asked for, no loop, no device.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from raglab.store.files import InputError, check_regular, input_error, link_error, system_errors

_READABLE_FOLDER_RULE = "a folder and all it holds must be readable"
_LOCK_PREFIX = "~$"  # what office programs put beside a file that is open


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
    folder_files = FolderFiles({}, {}, Counter())
    visited: dict[tuple[int, int], Path] = {}
    open_folders = [("", folder)]
    while open_folders:
        path_prefix, open_folder = open_folders.pop()
        try:
            with system_errors(open_folder, _READABLE_FOLDER_RULE):
                folder_stat = open_folder.stat()
                # by what the system calls it: a link may have come back to it
                first_path = visited.setdefault(
                    (folder_stat.st_dev, folder_stat.st_ino), open_folder
                )
                if first_path != open_folder:
                    raise input_error(
                        open_folder,
                        "a folder must be reached in one way",
                        "take the link away",
                        f"{first_path} again",
                    )
                folder_entries = [
                    folder_entry
                    for folder_entry in os.scandir(open_folder)
                    if not folder_entry.name.startswith(".")
                ]
        except InputError as error:
            folder_files.problems[path_prefix] = error
            continue
        for folder_entry in folder_entries:
            entry_path = open_folder / folder_entry.name
            try:
                with system_errors(entry_path, _READABLE_FOLDER_RULE):
                    entry_kind = _kind(folder_entry, entry_path, follow_links=follow_links)
            except InputError as error:
                folder_files.problems[f"{path_prefix}{folder_entry.name}"] = error
                continue
            if entry_kind == "folder":
                open_folders.append((f"{path_prefix}{folder_entry.name}/", entry_path))
            elif entry_kind == "file":
                folder_files.files[f"{path_prefix}{folder_entry.name}"] = entry_path
            else:
                folder_files.passed_over[entry_kind] += 1
    return folder_files._replace(
        files=dict(sorted(folder_files.files.items())),
        problems=dict(sorted(folder_files.problems.items())),
    )


def _kind(folder_entry: os.DirEntry[str], entry_path: Path, *, follow_links: bool) -> str:
    """What an entry of a folder is.

    It may matter where it is neither file nor folder, and is then a problem.
    """
    if folder_entry.name.startswith(_LOCK_PREFIX):
        return "lock files"
    if folder_entry.is_symlink():
        if not entry_path.exists():
            return "links that lead nowhere"
        if not follow_links:
            raise link_error(entry_path)
    if folder_entry.is_dir():
        return "folder"
    check_regular(folder_entry.stat().st_mode, entry_path)
    return "file"


def is_folder(path: Path) -> bool:
    """Whether a path that a person gave, or a file states, is a folder.

    Raises:
      InputError: the system cannot say, as of a name that is too long.
    """
    with system_errors(path, _READABLE_FOLDER_RULE):
        return path.is_dir()


def check_link(path: Path, *, follow_links: bool) -> Path:
    """A path inside a folder with a fixed name there, a link only where links are followed."""
    if not follow_links and path.is_symlink():
        raise link_error(path)
    return path
