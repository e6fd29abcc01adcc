"""Answered traces (algebra): functions that get a trace without cases whose call failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from raglab.decision.trace_view import answered_cases, plain_trace

P = ParamSpec("P")
R = TypeVar("R")


def answered_traces(
    *names: str, measured: bool = False, every_case: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function that gets its traces without the cases for which a call failed.

    Signature, docstring and types stay those of the function.

    Args:
      names: of its parameters that are traces; a value that is no trace passes as it is.
      measured: whether a `Measured` stays one; else the function gets the plain trace.
      every_case: whether it gets the other cases too, since it calls for them again.

    Source: rule S0.1.
    """

    def trace(value: Any) -> Any:  # noqa: ANN401 - of any argument
        if not hasattr(type(value), "measured_once"):
            return value
        stated = value if measured else plain_trace(value)
        return stated if every_case else answered_cases(stated)

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        form = signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = form.bind(*args, **kwargs)
            for name in bound.arguments.keys() & names:
                bound.arguments[name] = trace(bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        return call

    return mark
