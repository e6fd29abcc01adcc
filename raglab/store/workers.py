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

_WORKER_SCRIPT = Path(__file__).with_name("document_worker.py")
# All of the environment that a worker needs to start: a broken document shall not come near a key
# that stands there.
_WORKER_VARIABLES = (
    "PATH",
    "HOME",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHOME",
)
_WALL_FACTOR = (
    8  # seconds to wait for each second of computing, since other programs compute as well
)
_START_S = 30.0
_ESCAPED_BYTES = 12  # bytes of a character in JSON at most
_MIB = 2**20
SECONDS_LIMIT = b"seconds"  # the limit of computing
_CPU_SIGNAL = int(getattr(signal, "SIGXCPU", 0))  # what the system ends a worker with


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
        answer_kind, answer = self._tried(raw, request)
        if answer_kind in {"limit", "unreadable"}:
            self.end()
            if not is_fresh and answer != SECONDS_LIMIT:
                return self.answer(raw, request)
        return answer_kind, answer

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # of what could not be written
                process.__exit__(None, None, None)

    def _tried(self, raw_bytes: bytes, request: Mapping[str, Any]) -> tuple[str, bytes]:
        try:
            process = self._process = self._process or _started()
        except OSError as error:
            return "unreadable", f"no process to read it in ({error.strerror})".encode()
        max_answer_bytes = _ESCAPED_BYTES * request["characters"] + _MIB
        patience_s = _START_S + _WALL_FACTOR * request["seconds"]
        start_time = monotonic()
        kill_timer = Timer(patience_s, process.kill)
        kill_timer.start()
        answer_line = b""
        try:
            with suppress(OSError):  # it has ended
                process.stdin.write(
                    json.dumps({**request, "bytes": len(raw_bytes)}).encode() + b"\n"
                )
                process.stdin.write(raw_bytes)
                process.stdin.flush()
                answer_line = process.stdout.readline(max_answer_bytes + 1)
        except BaseException:  # Ctrl-C among them: no worker lives on
            self.end()
            raise
        finally:
            kill_timer.cancel()
        if len(answer_line) > max_answer_bytes:
            return "limit", b"characters"
        if answer_line.endswith(b"\n"):
            answer_kind, _, answer = answer_line.partition(b" ")
            return answer_kind.decode("latin-1"), answer
        process.kill()
        is_late = process.wait() == -_CPU_SIGNAL or monotonic() - start_time >= patience_s
        return ("limit", SECONDS_LIMIT) if is_late else ("unreadable", b"a reader that ended")


def _started() -> Any:  # noqa: ANN401 - a Popen, whose pipes may be None to mypy
    environment = {
        variable: os.environ[variable] for variable in _WORKER_VARIABLES if variable in os.environ
    }
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    worker_command = [sys.executable, "-P", str(_WORKER_SCRIPT)]
    worker_pipe = subprocess.PIPE
    # our own interpreter and script
    return subprocess.Popen(  # noqa: S603
        worker_command,
        env=environment,
        stdin=worker_pipe,
        stdout=worker_pipe,
        stderr=subprocess.DEVNULL,
    )
