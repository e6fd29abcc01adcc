"""Time of the processor that a reader of text takes.

A watch cannot tell fast from slow on a busy machine.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import contextmanager

import pytest

from hostile_texts import LONG_TEXTS
from raglab.values import Chunk

# seconds of the processor on the machine where the fixed work takes USUAL
LIMIT, READER_LIMIT = 0.5, 2.0
USUAL = 0.05  # seconds
ALARM = 60  # seconds of the clock
BRIEF = ("digits", "letters", "blanks", "lines", "thousands", "letters and a mark")
KINDS = (
    *(*BRIEF, "words", "names", "initials", "items", "hyphens", "brackets", "quotes", "ideographs"),
    *("accents", "cells", "marks", "tags", "fences", "money", "dates", "negations", "unseen"),
)


@contextmanager
def alarm():
    """End what hangs; where signals cannot, nothing does."""

    def ring(*_):
        pytest.fail(f"over {ALARM} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(ALARM)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def slowness():
    """How many times as long as usual a fixed work takes just now, at least 1.

    The machine, not the reader.
    """
    start = time.process_time()
    for number in range(40_000):
        re.match(r"(\d+)-(\w+)", f"{number}-abc")
    return max(1.0, (time.process_time() - start) / USUAL)


def slow(read, limit=LIMIT, names=(), most=None):
    """Texts that take more than the limit even the third time, and how long they take."""
    found = {}
    for name in names or LONG_TEXTS:
        long = LONG_TEXTS[name][:most]
        for _ in range(3):  # the first call may fill tables and caches
            start = time.process_time()
            read(long)
            spent = time.process_time() - start
            if spent <= limit or spent <= limit * slowness():
                break
        else:
            found[name] = round(spent, 2)
    return found


EXCESS = "The storm excess is £250. "


def passage_of(passage):
    """Return a passage of a document."""
    return Chunk("c", passage, "a.md", 1, "1", {"doc_type": "policy"})
