"""Document worker (shore): reads documents in a process that is ended at its limits.

`raglab.store.workers` runs this file as a script; nothing else imports it. Each request is a line
of JSON and the bytes of a document, each answer a line: its kind and JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time
from contextlib import suppress


def _allow(seconds: float, memory_bytes: int) -> None:
    """Have the system end this process after so many seconds, and give it no more memory or files.

    Where the system has no such limits, the one who waits for this process ends it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    cpu_seconds = math.ceil(time.process_time() + seconds)
    for name, value in (
        ("AS", memory_bytes),
        ("CPU", cpu_seconds),
        ("FSIZE", 0),
        ("CORE", 0),
        ("NPROC", 0),
    ):
        # macOS knows some of them by name alone
        with suppress(AttributeError, OSError, ValueError):
            resource_limit = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(resource_limit, (value, resource.getrlimit(resource_limit)[1]))


def _main() -> None:
    from raglab.store.document_reading import answered

    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints is no answer
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        raw_bytes = sys.stdin.buffer.read(request["bytes"])
        _allow(request["seconds"], request["memory_bytes"])
        answer_kind, answer = answered(request["reader"], raw_bytes, request["limits"])
        answers.write(answer_kind.encode() + b" " + answer + b"\n")
        answers.flush()


if __name__ == "__main__":
    _main()
