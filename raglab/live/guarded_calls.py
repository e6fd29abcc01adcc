"""Guarded calls (shore): a user's callable in its own thread, whatever it raises (S5.1)."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from pydantic import ValidationError

from raglab.answering.client import end_calls_within

T = TypeVar("T")
MOST_LATE = 8  # calls that still run after their time; beside them none is begun
LONGEST_REASON = 200  # characters of an error's text
_running: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar("running", default=())


class CallFailedError(Exception):
    """A callable of the user gave nothing that can be taken; its text is the reason."""


class LateCallError(CallFailedError):
    """It took longer than it may, or too many such calls still run."""


def is_running(call: object) -> bool:
    """Whether a guarded callable calls this code, so another call of it would be within itself."""
    return any(running is call for running in _running.get())


class CallTime:
    """Seconds that a user's callables may take together for one question.

    Args:
      limit_s: seconds in all; None waits for ever.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = self.left_s = limit_s


def attribute_text(value: object, name: str, timeout_s: float | None) -> str:
    """Text of an attribute of a user's object.

    "" where it is none, or reading it raises or takes too long.

    Args:
      value: any object.
      name: of the attribute.
      timeout_s: seconds; None waits.
    """
    with suppress(CallFailedError):
        return call_in_time(
            lambda: getattr(value, name, ""), (), time=CallTime(timeout_s), read=_text, late=[]
        )
    return ""


def _text(value: object) -> str:
    return str.__str__(value) if isinstance(value, str) else ""


def call_in_time(
    call: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    time: CallTime,
    read: Callable[[Any], T],
    late: list[threading.Thread],
) -> T:
    """What a callable gives within a time, as `read` copies and checks it.

    It may go on by itself after that.

    Args:
      call: of the user.
      arguments: by position.
      time: of the question, which the call and reading what it gives use up.
      read: copies the result into plain types and checks it, in the same thread and time.
      late: calls of any question that go on; takes the thread of this one if it does. Beside
        `MOST_LATE` of them none is begun.

    Raises:
      CallFailedError: it raised, took longer, or gave what cannot be taken.
    """
    late[:] = [thread for thread in late if thread.is_alive()]
    if len(late) >= MOST_LATE:
        msg = f"TimeoutError: {len(late)} earlier calls still run"
        raise LateCallError(msg)
    result: list[T] = []
    failure: list[str] = []
    context = contextvars.copy_context()
    context.run(_running.set, (*_running.get(), call))
    if time.left_s is not None:
        # a language model writes no reply that nobody waits for
        context.run(end_calls_within, time.left_s)

    def work() -> None:
        try:
            result.append(read(context.run(call, *arguments)))
        # whatever a user's code raises, the question is answered
        except BaseException as error:  # noqa: BLE001
            with suppress(BaseException):
                failure.append(error_line(error))

    if time.left_s == 0.0:
        raise _over(time)
    start = monotonic()
    try:
        thread = threading.Thread(target=work, name="guarded call", daemon=True)
        thread.start()
    except RuntimeError as error:  # no thread is left
        raise CallFailedError(error_line(error)) from None
    thread.join(time.left_s)
    if thread.is_alive():
        late.append(thread)
        time.left_s = 0.0
        raise _over(time)
    if time.left_s is not None:
        time.left_s = max(time.left_s - (monotonic() - start), 0.0)
    if not result:
        raise CallFailedError(*failure or ["an error that has no text"])
    return result[0]


def _over(time: CallTime) -> CallFailedError:
    return LateCallError(
        f"TimeoutError: calls took longer than the {time.limit_s:g} s of a question"
    )


def error_line(error: BaseException) -> str:
    """An error in one line that any log takes."""
    text = f"{error}"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r:.80}"
    line = " ".join(f"{type(error).__name__}: {text[:LONGEST_REASON]}".split()).replace("\0", "?")
    return line.encode("utf-8", "replace").decode().rstrip(": ")
