"""Progress of long loops (shore): a bar in notebooks and terminals, nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

VARIABLE = "RAGLAB_PROGRESS"
DELAY = 2.0  # seconds that a loop takes before anything is shown
_OFF = frozenset({"0", "false", "no", "off"})
_silent: ContextVar[bool] = ContextVar("silent", default=False)
# Frame of the outermost loop that is counted, by its id. It is looked for among the callers: a loop that was left by an
# error may be kept alive, with its traceback, and must not silence those that come after it.
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
    """The same items, one by one; after two seconds of a loop over them a bar counts those that are done.

    A widget in a notebook, a line in a terminal; nothing where the standard error is no terminal, inside `silence`,
    with RAGLAB_PROGRESS=0, or inside a loop that is counted already. What a loop computes never hangs on it.

    Args:
      what: is done. size: how much an item counts; 1. total: of all sizes; how many items there are where not given.
      done: of the total, before the loop.

    Example:
      >>> list(progress("abc", "spell", "letter"))
      ['a', 'b', 'c']
    """
    many = not isinstance(items, Sized) or len(items) > 1  # of one item, a loop inside it is counted
    if _silent.get() or not many or _inside() or os.environ.get(VARIABLE, "").strip().lower() in _OFF:
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    bar, begun = None, monotonic()
    own = id(sys._getframe(1))  # noqa: SLF001 - of several loops in each other the outermost is counted
    _counted.set(own)
    try:
        for item in items:
            yield item
            done += 1 if size is None else size(item)
            if bar is None and monotonic() - begun >= DELAY:
                # Made only now: a widget is sent to the page when it is made, shown or not.
                from tqdm.auto import tqdm

                # A delay as short as can be keeps the empty bar away; no smoothing: the rate is that of the whole loop.
                bar = tqdm(total=total, desc=what, unit=unit, disable=None, delay=1e-9, smoothing=0)
                bar.start_t = getattr(bar, "start_t", 0.0) - (monotonic() - begun)
            if bar is not None:
                bar.update(done - bar.n)
    finally:
        if _counted.get() == own:
            _counted.set(0)
        if bar is not None:
            bar.close()


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
