"""Progress of long loops.

The same items, and a bar only where somebody looks at a loop that lasts.
"""

from __future__ import annotations

import io
import sys
import time

import pytest

import raglab.progress
from raglab.progress import progress, silence, waiting


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self):
        """Return that it is a terminal."""
        return True


@pytest.fixture
def shown(monkeypatch):
    """What a function shows on a terminal where a loop lasts long from its first item on."""

    def of(run, delay=0.0, *, looked_at=True):
        screen = Terminal() if looked_at else io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(raglab.progress, "BAR_DELAY_S", delay)
            patch.setattr(sys, "stderr", screen)
            run()
        return screen.getvalue()

    return of


def test_a_long_loop_is_counted_to_its_end(shown):
    """By items, or by what each of them counts."""
    assert "read: 100%" in shown(lambda: list(progress(range(3), "read", "case")))
    by_size = shown(
        lambda: list(progress(["ab", "c"], "read", "letter", size=len, total=5, done=2))
    )
    assert "5/5" in by_size
    assert "3/5" not in by_size, "two of them were done before, and two come with the first"


def test_a_short_loop_shows_nothing(shown):
    """Nor does one where no terminal is, nor one that is told to be silent."""
    loop = lambda: list(progress(range(3), "read"))  # noqa: E731
    assert shown(loop, 60.0) == ""
    assert shown(loop, looked_at=False) == ""
    with silence():
        assert shown(loop) == ""
    assert shown(loop) != ""


@pytest.mark.parametrize(("stated", "seen"), [("0", False), ("1", True)])
def test_a_variable_turns_it_off(
    shown,
    monkeypatch,
    stated,
    seen,
):
    """RAGLAB_PROGRESS=0 shows nothing anywhere."""
    monkeypatch.setenv("RAGLAB_PROGRESS", stated)
    assert bool(shown(lambda: list(progress(range(3), "read")))) == seen


def test_of_loops_in_each_other_the_outermost_is_counted(shown):
    """Unless it has one item only.

    After it, and after one that was left, others are counted again.
    """

    def nested(n):
        for _ in progress(range(n), "outer"):
            list(progress(range(2), "inner"))

    said = shown(lambda: nested(2))
    assert ("outer" in said, "inner" in said) == (True, False)
    assert "inner" in shown(lambda: nested(1))

    def left():
        for _ in progress(range(9), "left"):
            break

    shown(left)
    assert "outer" in shown(lambda: nested(2))


def test_a_loop_that_failed_does_not_silence_the_next(shown):
    """Though its traceback is kept, as a notebook keeps the last one."""

    def failed():
        for _ in progress(range(9), "failed"):
            raise KeyError

    with pytest.raises(KeyError) as kept:
        failed()
    assert "outer" in shown(lambda: list(progress(range(3), "outer")))
    assert kept.tb is not None


def test_a_wait_is_shown_with_its_seconds(shown):
    """Where it is long and somebody looks, and never inside a counted loop."""

    def wait():
        with waiting("load"):
            time.sleep(0.2)

    assert "load: 00:0" in shown(wait)
    assert shown(wait, 60.0) == ""
    assert shown(wait, looked_at=False) == ""
    with silence():
        assert shown(wait) == ""
    assert "load" not in shown(lambda: [wait() for _ in progress(range(2), "read")])
