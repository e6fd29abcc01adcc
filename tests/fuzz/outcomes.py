"""What became of each input, counted by kind; the table at the end."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzz.mutation import MARKER
from raglab.store.files import InputError
from raglab.words.characters import visible

KINDS = (
    "accepted",
    "clear",
    "raw system message",
    "traceback",
    "hang",
    "silent wrong",
    "half-written",
)
GOOD = KINDS[:2]
LONGEST_S = 10.0
SHOWN = 25  # failures that a report lists
CASES = int(os.environ.get("FUZZ_CASES", "1000"))
TABLE: dict[str, Counter[str]] = {}
# What the command line's door turns into one line, whatever it says; only a message of ours is a
# clear one.
CAUGHT = (ValueError, KeyError, OSError, ImportError)
RULE = (
    "must|should|may|needs?|cannot|takes?|holds?|lacks?|expected|required|(is|are) "
    "not|write|fit|unknown"
)
CLEAR = re.compile(rf"\b({RULE})\b")


class Trial(NamedTuple):
    """One input.

    shown: the input, for a report. call: takes it through the door. wrong: what is wrong with what
    came of it, '' for nothing; what it raises counts as a traceback.
    """

    shown: str
    call: Callable[[], Any]
    wrong: Callable[[Any], str] = lambda _: ""


class Outcome(NamedTuple):
    """Kind of an outcome, among `KINDS`, and what was seen of it."""

    kind: str
    seen: str = ""


class HalfWrittenError(Exception):
    """Raised by a trial that finds a file changed by what was refused."""


class _TooLongError(BaseException):
    """Ends a trial; no handler of the code under test catches it."""


@contextmanager
def _limited():
    """Stop what works for longer than `LONGEST_S` or waits six times as long.

    A busy machine ends no trial.
    """

    def stop(_, __):
        raise _TooLongError

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, LONGEST_S),
        (signal.SIGALRM, signal.ITIMER_REAL, 6 * LONGEST_S),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0.0)
            signal.signal(number, handler)


def is_clear(error):
    """Whether an error is one line of ours, with a rule and nothing that a terminal would obey.

    An `InputError` is ours; of other types the message must state a rule and end as a sentence, and
    a library's type under one of these (a UnicodeDecodeError, a ValidationError) is never ours.
    """
    text = str(error)
    one_line = bool(text) and "\n" not in text and text == visible(text) and len(text) <= 4_000
    ours = isinstance(error, InputError) or (
        type(error) in {ValueError, TypeError, KeyError} and CLEAR.search(text) is not None
    )
    return one_line and ours


def outcome(trial, folder=None):
    """What became of one input.

    Args:
      folder: nothing half-written may stay there.
    """
    start = time.process_time()
    try:
        with _limited():
            found = Outcome("accepted")
            value = trial.call()
            if wrong := trial.wrong(value):
                found = Outcome("silent wrong", wrong)
    except _TooLongError:
        found = Outcome("hang", f"over {LONGEST_S:g} s")
    except CAUGHT as error:
        said = f"{type(error).__name__}: {error}"
        found = Outcome("clear" if is_clear(error) else "raw system message", said)
    except HalfWrittenError as error:
        found = Outcome("half-written", str(error))
    except Exception as error:  # noqa: BLE001 - what it is, is what is asked
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        found = Outcome("traceback", f"{type(error).__name__}: {error} at {place}")
    if found.kind != "hang" and (worked := time.process_time() - start) > LONGEST_S:
        found = Outcome("hang", f"{worked:.1f} s")
    if folder is not None and (left := [file.name for file in folder.rglob("*.tmp")]):
        found = Outcome("half-written", ", ".join(left))
    return found


def fuzz(
    surface,
    draw,
    folder=None,
    cases=CASES,
    only=None,
):
    """Try so many inputs, each drawn by a stream of its own.

    The failures, each with what draws it again.

    Args:
      surface: name in the table; a part of a surface has a colon and a name of its own after it.
      only: number of the one case to try.
    """
    counts = TABLE.setdefault(surface, Counter())
    failures = []
    for number in range(cases) if only is None else (only,):
        if number % 20 == 0:  # what hears no signal ends the process, with its stack
            faulthandler.dump_traceback_later(12 * LONGEST_S, exit=True)
        trial = draw(np.random.default_rng([zlib.crc32(surface.encode()), number]))
        found = outcome(trial, folder)
        counts[found.kind] += 1
        if found.kind not in GOOD:
            failures.append(
                f"{surface} case {number}: {found.kind}: {found.seen[:300]!r}; input {trial.shown}"
            )
    faulthandler.cancel_dump_traceback_later()
    if Path(MARKER).exists():
        Path(MARKER).unlink()
        failures.append(f"{surface}: code of an input was run")
    return failures


def report(failures):
    """First failures and how many there are."""
    more = f"\n… and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    return "\n" + "\n".join(failures[:SHOWN]) + more


def table():
    """Counts by surface and kind, as Markdown."""
    rows = [["surface", "tried", *KINDS]]
    for surface, counts in [*TABLE.items(), ("all", sum(TABLE.values(), Counter()))]:
        rows.append(
            [surface, f"{sum(counts.values()):,}", *(f"{counts[kind]:,}" for kind in KINDS)]
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" + "|---:" * (len(KINDS) + 1) + "|", *lines[1:]])
