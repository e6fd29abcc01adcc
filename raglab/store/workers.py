"""Workers (shore): starts `document_worker`, bounds time, memory and size, and reads its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any

_WORKER = Path(__file__).with_name("document_worker.py")
# All of the environment that a worker needs to start: a broken document shall not come near a key
# that stands there.
_ENVIRONMENT = ("PATH", "HOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
_WALL = 4  # seconds to wait for each second of computing, since other programs compute as well
_START_S = 5.0
_ESCAPED = 12  # bytes of a character in JSON at most
_MIB = 2**20
_CPU_SPENT = int(getattr(signal, "SIGXCPU", 0))  # what the system ends a worker with


def worker_answer(raw: bytes, limits: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker says of a document, or the limit at which it was ended.

    Nothing of it is checked yet.

    A process of its own reads it and is ended at the limits, so that a hostile file costs no more
    than they say.

    Args:
      raw: content of the file.
      limits: `seconds` of computing, `memory_bytes`, `characters` of the answer; what else the
        worker is to know.
    """
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", str(_WORKER), json.dumps(dict(limits))]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    most = _ESCAPED * limits["characters"] + _MIB
    late = Event()
    try:
        # our own interpreter and script
        worker = subprocess.Popen(command, env=environment, **pipes)  # noqa: S603
    except OSError as error:
        return {"unreadable": f"no process to read it in ({error.strerror})"}

    def end() -> None:
        late.set()
        worker.kill()

    # The answer is read here while a thread feeds the worker, so that neither waits for the other
    # for ever.
    timer = Timer(_START_S + _WALL * limits["seconds"], end)
    feeder = Thread(target=_feed, args=(worker.stdin, raw), daemon=True)
    with worker:
        try:
            timer.start()
            feeder.start()
            output = worker.stdout.read(most + 1) if worker.stdout else b""
        finally:  # whatever happened, Ctrl-C among it, no worker lives on
            timer.cancel()
            worker.kill()
            feeder.join()
    if late.is_set() or worker.returncode == -_CPU_SPENT:
        return {"limit": "seconds"}
    if len(output) > most:
        return {"limit": "characters"}
    return parsed_answer(output) or {
        "unreadable": f"a reader that ended with code {worker.returncode}"
    }


def _feed(pipe: IO[bytes], raw: bytes) -> None:
    with suppress(OSError), pipe:  # a worker that has ended takes no more
        pipe.write(raw)


def parsed_answer(output: bytes) -> dict[str, Any]:
    """JSON object that a worker printed; empty where it is none."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
