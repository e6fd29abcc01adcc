"""Files that want something else.

Pickles that leave a mark when they are loaded, and a small disk to fill or close.
"""

from __future__ import annotations

import os
import pickle
import resource
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


@contextmanager
def no_file_longer(size):
    """The system refuses to make any file of this process longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def forge_journal(file, victim):
    """Create a victim and a rollback journal beside a file, after which SQLite would delete it."""
    victim.write_bytes(b"precious")
    name, magic = os.fsencode(victim), bytes.fromhex("d9d505f920a163d7")
    numbers = (0, 0, file.stat().st_size // 4096, 512, 4096)
    head = magic + b"".join(number.to_bytes(4, "big") for number in numbers)
    tail = (2**30 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    tail += (sum(byte if byte < 128 else byte - 256 for byte in name) % 2**32).to_bytes(
        4, "big"
    ) + magic
    file.with_name(f"{file.name}-journal").write_bytes(head.ljust(512, b"\0") + tail)
    return victim
