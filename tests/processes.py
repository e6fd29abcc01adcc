"""Processes of tests that do some work at the same moment."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path


def at_once(works):
    """Exit codes of forks that begin together: 0 where the work came to its end, else 1.

    What went wrong is on standard error.
    """
    reading, writing = os.pipe()
    children = []
    for work in works:
        child = os.fork()
        if child == 0:  # pragma: no cover - of another process
            code = 1
            try:
                os.close(writing)
                os.read(reading, 1)  # ends where the parent closes the pipe
                work()
                code = 0
            finally:
                if code:
                    traceback.print_exc(file=sys.__stderr__)
                os._exit(code)
        children.append(child)
    os.close(writing)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(reading)
    return codes


def killed_once(item, folder, at):
    """Square of an item; the process that first has item `at` is killed."""
    mark = Path(folder) / "killed"
    if item == at and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item
