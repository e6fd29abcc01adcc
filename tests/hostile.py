"""Files that want something else.

Pickles that leave a mark when they are loaded, and a small disk to fill or close.
"""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest


class Marked:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        """What a pickle calls."""
        return Path.touch, (self.path,)


def pickles(marker):
    """Pickles of every protocol whose load makes the marker."""
    return [
        pickle.dumps(Marked(marker), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]


def diskcache_rows(file, bomb):
    """Make a file a diskcache database whose rows are pickles (mode 4) naming files elsewhere."""
    file.unlink(missing_ok=True)
    link = sqlite3.connect(file)
    link.execute("CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value)")
    link.execute(
        "CREATE TABLE Cache (key BLOB, raw INTEGER, mode INTEGER, filename TEXT, value BLOB)"
    )
    link.execute("INSERT INTO Settings VALUES ('disk_pickle_protocol', 4)")
    link.execute("INSERT INTO Cache VALUES (?, 1, 4, '../../victim', ?)", (bomb, bomb))
    link.commit()
    link.close()


@contextmanager
def small_disk(place, size="1m"):
    """A disk of its own in memory, mounted in a folder; skips where it cannot be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def remount(place, how):
    """Open a mounted disk for reading alone (`ro`), or for writing (`rw`)."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], capture_output=True, check=True)
