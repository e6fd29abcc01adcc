"""Journal of studies (shore): Optuna's file of lines, never half ones, whatever stops a writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raglab.store.files import cut_file

STUDY_FILE = "study.journal"  # in a folder that is the storage of studies
_OPENING = b'{"op_code":'  # how a line begins
# bytes from the end in which the beginning of the last line is looked for, before the whole file is
_TAIL = 2**20


class WholeLinesLock:
    """Optuna's lock of a journal, under which a line cut off by a kill or full disk is removed.

    Whoever appends would otherwise write on behind the half line, and no reader would get past it.
    """

    def __init__(self, file: Path, lock: Any) -> None:  # noqa: ANN401 - Optuna is not followed
        """Take a journal and Optuna's lock of it."""
        self.file, self._lock = file, lock

    def acquire(self) -> bool:
        """Wait for the lock; what a process that was killed left is taken away."""
        self._lock.acquire()
        try:
            self._drop_half_line()
        except BaseException:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        """Let go of the lock; what a full disk left is taken away before."""
        try:
            self._drop_half_line()
        finally:
            self._lock.release()

    def _drop_half_line(self) -> None:
        if size := half_line(self.file):
            cut_file(self.file, self.file.stat().st_size - size)


def half_line(file: Path) -> int:
    """Bytes of the last line of a journal where it has no end.

    0 where it has, or where it is no line of Optuna's.

    Only under the lock it is a line that was cut off: else it may be one that is being written.
    """
    if not file.is_file() or not (file_size := file.stat().st_size):
        return 0
    with file.open("rb") as journal_content:
        for tail_length in (1, min(_TAIL, file_size), file_size):
            journal_content.seek(file_size - tail_length)
            tail = journal_content.read(tail_length)
            line_end = tail.rfind(b"\n")
            if line_end == len(tail) - 1:
                return 0
            if line_end >= 0:
                break
    last_line = tail[line_end + 1 :]
    return len(last_line) if _OPENING.startswith(last_line[: len(_OPENING)]) else 0


def drop_half_line(lock: WholeLinesLock) -> None:
    """Take away the last line of a journal that was cut off: what is appended to it would be lost.

    A line that another process is writing is waited for, and stays.
    """
    if half_line(lock.file):
        lock.acquire()
        lock.release()
