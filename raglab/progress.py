"""Progress of long loops and waits (shore): a bar in notebooks and terminals, else nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Event, Thread
from time import monotonic
from typing import TypeVar

VARIABLE = "RAGLAB_PROGRESS"
DELAY = 2.0  # seconds that a loop takes before anything is shown
_OFF = frozenset({"0", "false", "no", "off"})
_silent: ContextVar[bool] = ContextVar("silent", default=False)
# Frame of the outermost loop that is counted, by its id. It is looked for among the callers: a loop
# that was left by an error may be kept alive, with its traceback, and must not silence those that
# come after it.
_counted: ContextVar[int] = ContextVar("counted", default=0)

Item = TypeVar("Item")


def progress(
    items: Iterable[Item],
    what: str,
    unit: str = "it",
    *,
    size: Callable[[Item], int] | None = None,
    total: int | None = None,
    done: int = 0,
) -> Iterator[Item]:
    """The same items, one by one.

    After two seconds of a loop over them a bar counts those that are done.

    A widget in a notebook, a line in a terminal; nothing where the standard error is no terminal,
    inside `silence`, with RAGLAB_PROGRESS=0, or inside a loop that is counted already. What a loop
    computes never hangs on it.

    Args:
      what: is done.
      size: how much an item counts; 1.
      total: of all sizes; how many items there are where not given.
      done: of the total, before the loop.

    Example:
      >>> list(progress("abc", "spell", "letter"))
      ['a', 'b', 'c']
    """
    # of one item, a loop inside it is counted
    many = not isinstance(items, Sized) or len(items) > 1
    if not many or _is_off() or _inside():
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    bar, begun = None, monotonic()
    # of several loops in each other the outermost is counted
    own = id(sys._getframe(1))  # noqa: SLF001
    _counted.set(own)
    try:
        for item in items:
            yield item
            done += 1 if size is None else size(item)
            if bar is None and monotonic() - begun >= DELAY:
                # Made only now: a widget is sent to the page when it is made, shown or not.
                from tqdm.auto import tqdm

                # A delay as short as can be keeps the empty bar away; no smoothing: the rate is
                # that of the whole loop.
                bar = tqdm(total=total, desc=what, unit=unit, disable=None, delay=1e-9, smoothing=0)
                bar.start_t = getattr(bar, "start_t", 0.0) - (monotonic() - begun)
            if bar is not None:
                bar.update(done - bar.n)
    finally:
        if _counted.get() == own:
            _counted.set(0)
        if bar is not None:
            bar.close()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show the seconds passed of a block longer than two seconds, where `progress` shows a bar.

    For work that has no steps to count: a model that is loaded, a kernel that is compiled.

    Args:
      what: is done.

    Example:
      >>> with waiting("load the encoder"):
      ...     sum(range(10))
      45
    """
    if _is_off() or _inside():
        yield
        return
    end = Event()
    # The context tells a notebook in which cell this is shown.
    clock = Thread(target=copy_context().run, args=(_show_seconds, what, end), daemon=True)
    try:
        with suppress(RuntimeError):  # no thread is free: the work goes on without a clock
            clock.start()
        yield
    finally:
        end.set()
        if clock.ident is not None:
            clock.join()


def _show_seconds(what: str, end: Event) -> None:
    """Show how long something takes, second by second, from two seconds on and until it ends."""
    if end.wait(DELAY):
        return
    from tqdm.auto import tqdm

    bar = tqdm(desc=what, bar_format="{desc}: {elapsed}", disable=None)
    bar.start_t = getattr(bar, "start_t", 0.0) - DELAY
    while not end.wait(1.0):
        bar.refresh()
    bar.refresh()
    bar.close()


def _is_off() -> bool:
    """Whether nothing is shown, by `silence` or the environment."""
    return _silent.get() or os.environ.get(VARIABLE, "").strip().lower() in _OFF


def _inside() -> bool:
    """Whether a caller is in a loop that is counted."""
    outer, frame = _counted.get(), sys._getframe(1)  # noqa: SLF001 - the stack as it is
    while outer and frame.f_back is not None:
        frame = frame.f_back
        if id(frame) == outer:
            return True
    return False


@contextmanager
def silence() -> Iterator[None]:
    """No bar inside the block."""
    before = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(before)
