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
from typing import Any


def _allow(seconds: float, memory_bytes: int) -> None:
    """Have the system end this process after so many seconds, and give it no more memory or files.

    Where the system has no such limits, the one who waits for this process ends it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    cpu = math.ceil(time.process_time() + seconds)
    for name, most in (("AS", memory_bytes), ("CPU", cpu), ("FSIZE", 0), ("CORE", 0), ("NPROC", 0)):
        # macOS knows some of them by name alone
        with suppress(AttributeError, OSError, ValueError):
            limit = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))


def _answer(raw: bytes, request: dict[str, Any]) -> str:
    """Kind of an answer and its JSON: a document, a limit, or why it is refused or unreadable."""
    from raglab.store.document_reading import read_blocks
    from raglab.store.files import InputError

    _allow(request["seconds"], request["memory_bytes"])
    try:
        document = read_blocks(request["reader"], raw, request["limits"])
        return f"document {json.dumps(document, default=dict)}"
    except MemoryError:
        return "limit memory_bytes"
    except InputError as error:
        return f"refused {error}"


def _main() -> None:
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints is no answer
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        raw = sys.stdin.buffer.read(request["bytes"])
        answers.write(f"{_answer(raw, request)}\n".encode("utf-8", "backslashreplace"))
        answers.flush()


if __name__ == "__main__":
    _main()
