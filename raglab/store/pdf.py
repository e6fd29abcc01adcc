"""PDF (shore): text of a PDF's pages, read by a process of its own within stated limits of time, memory and size."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any, NamedTuple

from raglab.characters import is_unicode
from raglab.store.documents import Page
from raglab.store.files import InputError, Where, input_error, shown_value

_WORKER = Path(__file__).with_name("pdf_worker.py")
# All of the environment that a worker needs to start: a broken PDF shall not come near a key that stands there.
_ENVIRONMENT = ("PATH", "HOME", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
_WALL = 4  # seconds to wait for each second of computing, since other programs compute as well
_START_S = 5.0
_ESCAPED = 12  # bytes of a character in JSON at most
_MIB = 2**20
_CPU_SPENT = int(getattr(signal, "SIGXCPU", 0))  # what the system ends a worker with


class PdfLimits(NamedTuple):
    """What one PDF may have and cost at most.

    pages, objects: of the file. seconds: of computing for each MiB that the file has, the last one begun counts whole.
    characters: of text on all pages. memory_bytes: of the process that reads it.
    """

    pages: int = 10_000
    objects: int = 1_000_000
    seconds: float = 8.0
    characters: int = 16 * _MIB
    memory_bytes: int = 2**31


PDF_LIMITS = PdfLimits()


def pdf_pages(raw: bytes, file: str, limits: PdfLimits) -> tuple[Page, ...]:
    """Pages of a PDF with their text; labels where the PDF states some, else None.

    A process of its own reads them and is ended at the limits, so that a hostile file costs no more than they say.

    Args:
      raw: content of the file.
      file: for messages.

    Raises:
      InputError: the PDF cannot be read, is encrypted, has no text on any page, or passes a limit, which is named.
    """
    where = Where(file)
    allowed = limits._replace(seconds=limits.seconds * max(1, math.ceil(len(raw) / _MIB)))
    answer = _worker_answer(raw, where, allowed)
    if answer.get("encrypted"):
        raise input_error(where, "a PDF must not be encrypted", "save it without a password", "an encrypted one")
    if "limit" in answer:
        came = answer.get("came")
        raise _over_limit(where, str(answer["limit"]), limits, shown_value(came) if came else "more")
    rows = answer.get("pages")
    if not isinstance(rows, list):
        raise _unreadable(where, shown_value(str(answer.get("unreadable", "no answer"))))
    pages = tuple(_page(number, row, where) for number, row in enumerate(rows, 1))
    if not any(page.text.strip() for page in pages):
        came = f"no text on {len(pages)} pages"
        raise input_error(where, "a PDF must have text", "it needs OCR, or its pages as .png or .jpg files", came)
    return pages


def _worker_answer(raw: bytes, where: Where, limits: PdfLimits) -> dict[str, Any]:
    """What the worker says of a PDF, or the limit at which it was ended."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", str(_WORKER), json.dumps(limits._asdict())]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    most = _ESCAPED * limits.characters + _MIB
    late = Event()
    try:
        worker = subprocess.Popen(command, env=environment, **pipes)  # noqa: S603 - our own interpreter and script
    except OSError as error:
        raise _unreadable(where, f"no process to read it in ({error.strerror})") from error

    def end() -> None:
        late.set()
        worker.kill()

    # The answer is read here while a thread feeds the worker, so that neither waits for the other for ever.
    timer = Timer(_START_S + _WALL * limits.seconds, end)
    feeder = Thread(target=_feed, args=(worker.stdin, raw), daemon=True)
    with worker:
        try:
            timer.start()
            feeder.start()
            said = worker.stdout.read(most + 1) if worker.stdout else b""
        finally:  # whatever happened, Ctrl-C among it, no worker lives on
            timer.cancel()
            worker.kill()
            feeder.join()
    if late.is_set() or worker.returncode == -_CPU_SPENT:
        return {"limit": "seconds"}
    if len(said) > most:
        return {"limit": "characters"}
    return _parsed(said) or {"unreadable": f"a reader that ended with code {worker.returncode}"}


def _feed(pipe: IO[bytes], raw: bytes) -> None:
    with suppress(OSError), pipe:  # a worker that has ended takes no more
        pipe.write(raw)


def _parsed(said: bytes) -> dict[str, Any]:
    """JSON object that a worker printed; empty where it is none."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _page(number: int, row: object, where: Where) -> Page:
    """Page of a worker's row, which is checked: what a PDF made of the worker is not known."""
    match row:
        case [str() | None as label, str() as text] if is_unicode(text + (label or "")):
            return Page(number, label, text)
    came = f"half a surrogate pair on page {number}"
    raise input_error(where, "a PDF's text must be Unicode", "give its text as a .txt file", came)


def _unreadable(where: Where, came: str) -> InputError:
    return input_error(where, "a PDF must be readable", "open and save it anew, or give its text", came)


def _over_limit(where: Where, limit: str, limits: PdfLimits, came: str) -> InputError:
    """A limit that a PDF has passed, and how to raise it."""
    rules = {
        "pages": f"a PDF must have at most {limits.pages} pages",
        "objects": f"a PDF must have at most {limits.objects} objects",
        "seconds": f"a PDF must be read within {limits.seconds:g} s for each MiB",
        "characters": f"a PDF's text must be at most {limits.characters} characters",
        "memory_bytes": f"a PDF must be read in at most {limits.memory_bytes} bytes of memory",
    }
    if limit not in rules:
        return _unreadable(where, shown_value(limit))
    remedy = f"give its text as a .txt file, or raise {limit} in load_corpus(…, pdf=PdfLimits({limit}=…))"
    return input_error(where, rules[limit], remedy, came)
