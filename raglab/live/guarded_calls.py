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
MAX_LATE_CALLS = 8  # calls that still run after their time; with so many, none is begun
MAX_REASON_LENGTH = 200  # characters of an error's text
_running_calls: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar(
    "running", default=()
)


class CallFailedError(Exception):
    """A callable of the user gave nothing that can be taken; its text is the reason."""


class LateCallError(CallFailedError):
    """It took longer than it may, or too many such calls still run."""


def is_running(checked_call: object) -> bool:
    """Whether a guarded callable calls this code, so another call of it would be within itself."""
    return any(running_call is checked_call for running_call in _running_calls.get())


class CallTime:
    """Seconds that a user's callables may take together for one question.

    Args:
      limit_s: seconds in all; None waits for ever.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = self.left_s = limit_s


def attribute_text(attribute_owner: object, attribute_name: str, timeout_s: float | None) -> str:
    """Text of an attribute of a user's object.

    "" where it is none, or reading it raises or takes too long.

    Args:
      attribute_owner: any object.
      attribute_name: of the attribute.
      timeout_s: seconds; None waits.
    """
    with suppress(CallFailedError):
        return call_in_time(
            lambda: getattr(attribute_owner, attribute_name, ""),
            (),
            call_time=CallTime(timeout_s),
            read_result=_text,
            late_threads=[],
        )
    return ""


def _text(attribute: object) -> str:
    return str.__str__(attribute) if isinstance(attribute, str) else ""


def call_in_time(
    user_call: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    call_time: CallTime,
    read_result: Callable[[Any], T],
    late_threads: list[threading.Thread],
) -> T:
    """What a callable gives within a time, as `read_result` copies and checks it.

    It may go on by itself after that.

    Args:
      user_call: of the user.
      arguments: by position.
      call_time: of the question, which the call and reading what it gives use up.
      read_result: copies the result into plain types and checks it, in the same thread and time.
      late_threads: calls of any question that go on; takes the thread of this one if it does.
        Beside `MAX_LATE_CALLS` of them none is begun.

    Raises:
      CallFailedError: it raised, took longer, or gave what cannot be taken.
    """
    late_threads[:] = [call_thread for call_thread in late_threads if call_thread.is_alive()]
    if len(late_threads) >= MAX_LATE_CALLS:
        message = f"TimeoutError: {len(late_threads)} earlier calls still run"
        raise LateCallError(message)
    results: list[T] = []
    failures: list[str] = []
    call_context = contextvars.copy_context()
    call_context.run(_running_calls.set, (*_running_calls.get(), user_call))
    if call_time.left_s is not None:
        # a language model writes no reply that nobody waits for
        call_context.run(end_calls_within, call_time.left_s)

    def run_call() -> None:
        try:
            results.append(read_result(call_context.run(user_call, *arguments)))
        # whatever a user's code raises, the question is answered
        except BaseException as error:  # noqa: BLE001
            with suppress(BaseException):
                failures.append(error_line(error))

    if call_time.left_s == 0.0:
        raise _over(call_time)
    start_time = monotonic()
    try:
        call_thread = threading.Thread(target=run_call, name="guarded call", daemon=True)
        call_thread.start()
    except RuntimeError as error:  # no thread is left
        raise CallFailedError(error_line(error)) from None
    call_thread.join(call_time.left_s)
    if call_thread.is_alive():
        late_threads.append(call_thread)
        call_time.left_s = 0.0
        raise _over(call_time)
    if call_time.left_s is not None:
        call_time.left_s = max(call_time.left_s - (monotonic() - start_time), 0.0)
    if not results:
        raise CallFailedError(*failures or ["an error that has no text"])
    return results[0]


def _over(call_time: CallTime) -> CallFailedError:
    return LateCallError(
        f"TimeoutError: calls took longer than the {call_time.limit_s:g} s of a question"
    )


def error_line(error: BaseException) -> str:
    """An error in one line that any log takes."""
    text = f"{error}"
    if isinstance(error, ValidationError):
        first_error = error.errors(include_url=False)[0]
        text = (
            f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}, got "
            f"{first_error['input']!r:.80}"
        )
    line = " ".join(f"{type(error).__name__}: {text[:MAX_REASON_LENGTH]}".split()).replace(
        "\0", "?"
    )
    return line.encode("utf-8", "replace").decode().rstrip(": ")
