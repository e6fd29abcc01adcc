"""Field rules (algebra): named tuples, dataclasses with checked, converted or read-only fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

Kind = TypeVar("Kind")
Values = TypeVar("Values")
_SHOWN = 80  # characters of a value in a message


class FieldRule(NamedTuple):
    """Rule of a field of a case or a chunk.

    Attributes:
      good: whether a value keeps the rule.
      rule: in words, for messages.
      remedy: in words, for messages.
      exact: a type of which every value is good.
    """

    good: Callable[[Any], bool]
    rule: str
    remedy: str
    exact: type | None = None


def read_only(values: Values) -> Values:
    """Arrays as views that nobody can write to, nor make writable again.

    No copy, and the given array stays as it is.

    Args:
      values: an array, a named tuple of such, or anything else, which is returned as it is.

    Example:
      >>> numbers = np.zeros(2)
      >>> read_only(numbers).flags.writeable, numbers.flags.writeable
      (False, True)
    """
    if isinstance(values, np.ndarray):
        array: Any = values
        if isinstance(array.base, memoryview) and array.base.readonly:
            return values
        # the flag of a view of an array could be set back
        view: Any = np.asarray(memoryview(array).toreadonly())
        return view
    if isinstance(values, tuple) and hasattr(values, "_make"):
        same: Values = values._make(map(read_only, values))
        return same
    return values


def holds_read_only(kind: type[Kind]) -> type[Kind]:
    """Named tuple whose arrays are `read_only`, made by a call, by `_make` or by `_replace`.

    Args:
      kind: type of named tuple.
    """
    of: Any = kind  # the methods of a NamedTuple cannot be written in its body
    call, make = of.__new__, of._make.__func__
    of.__new__ = wraps(call)(
        lambda cls, *values, **fields: make(cls, map(read_only, call(cls, *values, **fields)))
    )
    of._make = classmethod(wraps(make)(lambda cls, values: make(cls, map(read_only, values))))
    return kind


def converted(**converters: Callable[[Any], Any]) -> Callable[[type[Kind]], type[Kind]]:
    """Dataclass whose fields are converted before it is made, so a frozen one never changes.

    Args:
      **converters: of some fields, by name; a default is taken as it is.
    """

    # the method of a dataclass cannot be written in its body
    def decorate(kind: Any) -> Any:  # noqa: ANN401
        init, names = kind.__init__, [attribute.name for attribute in fields(kind)]

        def convert(name: str, value: Any) -> Any:  # noqa: ANN401 - of any field
            return converters[name](value) if name in converters else value

        @wraps(init)
        def call(self: Any, *values: Any, **named: Any) -> None:  # noqa: ANN401 - of any field
            by_place = map(convert, names, values[: len(names)])
            rest = values[len(names) :]  # too many, which `init` refuses
            init(
                self,
                *by_place,
                *rest,
                **{name: convert(name, value) for name, value in named.items()},
            )

        kind.__init__ = call
        return kind

    return decorate


def checked(**rules: FieldRule) -> Callable[[type[Kind]], type[Kind]]:
    """Named tuple whose fields are checked when a value is made.

    By a call, by `_make` or by `_replace`.

    A field at its default costs one comparison and is not checked. Rules that depend on other cases
    or on a corpus are checked where a set is loaded or a trace is built.

    Args:
      **rules: of every field.
    """

    # the methods of a NamedTuple cannot be written in its body
    def decorate(kind: Any) -> Any:  # noqa: ANN401
        call, make = kind.__new__, kind._make.__func__
        none = object()  # the default of a field that has none
        tests = [
            (kind._field_defaults.get(name, none), rules[name].exact, rules[name].good)
            for name in kind._fields
        ]

        def check(value: Any) -> Any:  # noqa: ANN401 - of the kind
            # a tuple of all fields; strict costs
            for item, (default, exact, good) in zip(value, tests):  # noqa: B905
                if item is not default and type(item) is not exact and not good(item):
                    refuse(value)
            return value

        def refuse(value: Any) -> None:  # noqa: ANN401 - of the kind
            wrong = (
                (name, item)
                for name, item in zip(kind._fields, value, strict=True)
                if not fits(name, item)
            )
            name, item = next(wrong)
            of, item_text = repr(value[0])[:_SHOWN], repr(item)[:_SHOWN]
            msg = (
                f"{kind.__name__} {of}: {name} must be {rules[name].rule}, got {item_text}; "
                f"{rules[name].remedy}."
            )
            raise ValueError(msg)

        def fits(name: str, item: object) -> bool:
            return item is kind._field_defaults.get(name, none) or rules[name].good(item)

        kind.__new__ = wraps(call)(
            lambda cls, *values, **fields: check(call(cls, *values, **fields))
        )
        kind._make = classmethod(wraps(make)(lambda cls, values: check(make(cls, values))))
        return kind

    return decorate
