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

PROGRESS_VARIABLE = "RAGLAB_PROGRESS"
BAR_DELAY_S = 2.0  # seconds that a loop takes before anything is shown
_OFF_VALUES = frozenset({"0", "false", "no", "off"})
_is_silent: ContextVar[bool] = ContextVar("silent", default=False)
# Frame of the outermost loop that is counted, by its id. It is looked for among the callers: a loop
# that was left by an error may be kept alive, with its traceback, and must not silence those that
# come after it.
_counted_frame: ContextVar[int] = ContextVar("counted", default=0)

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
    computes does not depend on it.

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
    has_several = not isinstance(items, Sized) or len(items) > 1
    if not has_several or _is_off() or _inside():
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    progress_bar = None
    started_at = monotonic()
    # of several loops in each other the outermost is counted
    frame_id = id(sys._getframe(1))  # noqa: SLF001
    _counted_frame.set(frame_id)
    try:
        for item in items:
            yield item
            done += 1 if size is None else size(item)
            if progress_bar is None and monotonic() - started_at >= BAR_DELAY_S:
                # Made only now: a widget is sent to the page when it is made, shown or not.
                from tqdm.auto import tqdm

                # A delay as short as can be keeps the empty bar away; no smoothing: the rate is
                # that of the whole loop.
                progress_bar = tqdm(
                    total=total, desc=what, unit=unit, disable=None, delay=1e-9, smoothing=0
                )
                progress_bar.start_t = getattr(progress_bar, "start_t", 0.0) - (
                    monotonic() - started_at
                )
            if progress_bar is not None:
                progress_bar.update(done - progress_bar.n)
    finally:
        if _counted_frame.get() == frame_id:
            _counted_frame.set(0)
        if progress_bar is not None:
            progress_bar.close()


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
    end_event = Event()
    # The context tells a notebook in which cell this is shown.
    clock_thread = Thread(
        target=copy_context().run, args=(_show_seconds, what, end_event), daemon=True
    )
    try:
        with suppress(RuntimeError):  # no thread is free: the work goes on without a clock
            clock_thread.start()
        yield
    finally:
        end_event.set()
        if clock_thread.ident is not None:
            clock_thread.join()


def _show_seconds(task_name: str, end_event: Event) -> None:
    """Show how long something takes, second by second, from two seconds on and until it ends."""
    if end_event.wait(BAR_DELAY_S):
        return
    from tqdm.auto import tqdm

    progress_bar = tqdm(desc=task_name, bar_format="{desc}: {elapsed}", disable=None)
    progress_bar.start_t = getattr(progress_bar, "start_t", 0.0) - BAR_DELAY_S
    while not end_event.wait(1.0):
        progress_bar.refresh()
    progress_bar.refresh()
    progress_bar.close()


def _is_off() -> bool:
    """Whether nothing is shown, by `silence` or the environment."""
    return _is_silent.get() or os.environ.get(PROGRESS_VARIABLE, "").strip().lower() in _OFF_VALUES


def _inside() -> bool:
    """Whether a caller is in a loop that is counted."""
    outer_frame, caller_frame = _counted_frame.get(), sys._getframe(1)  # noqa: SLF001 - the stack as it is
    while outer_frame and caller_frame.f_back is not None:
        caller_frame = caller_frame.f_back
        if id(caller_frame) == outer_frame:
            return True
    return False


@contextmanager
def silence() -> Iterator[None]:
    """No bar inside the block."""
    silence_token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(silence_token)
