"""Workers (shore): one process that reads the documents of a folder, within time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

_WORKER = Path(__file__).with_name("document_worker.py")
# All of the environment that a worker needs to start: a broken document shall not come near a key
# that stands there.
_ENVIRONMENT = ("PATH", "HOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
_WALL = 8  # seconds to wait for each second of computing, since other programs compute as well
_START_S = 30.0
_ESCAPED = 12  # bytes of a character in JSON at most
_MIB = 2**20
SECONDS = b"seconds"  # the limit of computing
_CPU_SPENT = int(getattr(signal, "SIGXCPU", 0))  # what the system ends a worker with


class DocumentWorker:
    """A process that reads documents; started for the first, and again where it had to be ended."""

    def __init__(self) -> None:
        self._process: Any = None  # a Popen with pipes

    def answer(self, raw: bytes, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """Kind of what the worker says of a document, and its JSON; nothing of it is checked yet.

        The kinds are those of `document_worker`; a limit at which the worker was ended is one too.
        A document that a used worker cannot read for want of memory, or dies of, is given to a
        fresh one.

        Args:
          raw: content of the file.
          request: `seconds` of computing, `memory_bytes`, `characters` of the text; what else the
            worker is to know.
        """
        is_fresh = self._process is None
        kind, answer = self._tried(raw, request)
        if kind in {"limit", "unreadable"}:
            self.end()
            if not is_fresh and answer != SECONDS:
                return self.answer(raw, request)
        return kind, answer

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # of what could not be written
                process.__exit__(None, None, None)

    def _tried(self, raw: bytes, request: Mapping[str, Any]) -> tuple[str, bytes]:
        try:
            process = self._process = self._process or _started()
        except OSError as error:
            return "unreadable", f"no process to read it in ({error.strerror})".encode()
        most = _ESCAPED * request["characters"] + _MIB
        patience = _START_S + _WALL * request["seconds"]
        begin = monotonic()
        timer = Timer(patience, process.kill)
        timer.start()
        line = b""
        try:
            with suppress(OSError):  # it has ended
                process.stdin.write(json.dumps({**request, "bytes": len(raw)}).encode() + b"\n")
                process.stdin.write(raw)
                process.stdin.flush()
                line = process.stdout.readline(most + 1)
        except BaseException:  # Ctrl-C among them: no worker lives on
            self.end()
            raise
        finally:
            timer.cancel()
        if len(line) > most:
            return "limit", b"characters"
        if line.endswith(b"\n"):
            kind, _, answer = line.partition(b" ")
            return kind.decode("latin-1"), answer
        process.kill()
        is_late = process.wait() == -_CPU_SPENT or monotonic() - begin >= patience
        return ("limit", SECONDS) if is_late else ("unreadable", b"a reader that ended")


def _started() -> Any:  # noqa: ANN401 - a Popen, whose pipes may be None to mypy
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", str(_WORKER)]
    pipe = subprocess.PIPE
    # our own interpreter and script
    return subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    )
