"""Plain arrays (algebra): values of callers as NumPy arrays, and records that hold and check them.

Lists and columns become arrays, nullable columns of pandas too. Fields of named tuples and
dataclasses are checked, converted, or read-only arrays.

A missing value is None, NaN, pandas' NA or NaT. It is NaN in an array of floats, and refused by
place where a function has no use for it. What lies beyond its range by rounding of single precision
counts as the range's end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, NoReturn, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user

ROUNDING = 1e-6  # by which a measurement in single precision may leave its range
_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})  # by name, without importing pandas
_SHOWN = 60  # characters of a value in a message


def refuse(rule: str, value: object, remedy: str) -> NoReturn:
    """Raise a ValueError with rule, value and remedy."""
    msg = f"{rule}, got {value}; {remedy}."
    raise ValueError(msg)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, NaN included, and no boolean."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_missing(value: object) -> bool:
    """Whether a cell is None, NaN, NA or NaT."""
    # NaN
    return type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and value != value  # noqa: PLR0124
    )


# array, list or Series
def float_array(values: Any, name: str) -> NDArray[np.float64]:  # noqa: ANN401
    """Numbers as float64, NaN where one is missing; without a copy where they are that already.

    A text is no number: Python takes 1_0 for ten.

    Raises:
      ValueError: a value is no number; names it and its position.

    Example:
      >>> float_array([1, None, True], "score")
      array([ 1., nan,  1.])
    """
    with suppress(TypeError, ValueError, OverflowError):
        plain = np.asarray(values)
        if plain.dtype.kind in "fiub":
            return plain.astype(np.float64, copy=False)
    has_kind = hasattr(values, "dtype")
    cells = _cells(values, name).astype(object) if has_kind else _cells(values, name, object)
    numbers = np.full(cells.shape, np.nan)
    for position, value in enumerate(cells.flat):
        if not is_missing(value):
            numbers.flat[position] = _number(value, name, _shown_position(position, cells.shape))
    return numbers


# number, array, list or Series
def measured_values(values: Any, name: str = "value") -> Any:  # noqa: ANN401
    """Measurements as NumPy compares them.

    Numbers and arrays as they are, lists and columns as `float_array`.

    Example:
      >>> measured_values([0.5, None]), measured_values(0.5)
      (array([0.5, nan]), 0.5)
    """
    # arrays first: they are many, and a union of types takes longer
    is_plain = (isinstance(values, np.ndarray) and values.dtype.kind != "O") or isinstance(
        values, float | int | np.number
    )
    return values if is_plain else float_array(values, name)


def plain_array(values: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 - array, list or Series
    """Values as an array; numbers and truth values beside missing ones are floats with NaN.

    Raises:
      ValueError: rows of different lengths.

    Example:
      >>> plain_array([True, None], "y"), plain_array([True, False], "y")
      (array([ 1., nan]), array([ True, False]))
    """
    cells = _cells(values, name)
    if cells.dtype != object or not cells.size:
        return cells
    plain = [float("nan") if is_missing(value) else value for value in cells.flat]
    numeric = all(isinstance(value, bool | np.bool_ | int | float | np.number) for value in plain)
    return np.array(plain, dtype=np.float64 if numeric else object).reshape(cells.shape)


def check_present(values: NDArray[np.float64], name: str, remedy: str) -> None:
    """Stop at missing numbers.

    Raises:
      ValueError: counts them and names the first position.
    """
    if np.isnan(np.sum(values)):
        missing = np.isnan(values)
        if missing.any():  # infinities of both signs sum to NaN too
            position = _shown_position(int(missing.ravel().argmax()), values.shape)
            count = f"{int(missing.sum()):,} of {values.size:,}"
            refuse(f"{name} must not be missing", f"{count}, the first {position}", remedy)


def within_range(
    values: NDArray[np.float64], low: float, high: float, name: str
) -> NDArray[np.float64]:
    """Values with the ends of their range in place of what lies beyond by rounding.

    Warns:
      UserWarning: some do; it counts them.
    """
    beyond = ((values < low) & (values >= low - ROUNDING)) | (
        (values > high) & (values <= high + ROUNDING)
    )
    if not beyond.any():
        return values
    warn_user(f"{rounding_note(name, int(beyond.sum()), values.size, low, high)}.")
    clipped: NDArray[np.float64] = np.where(beyond, np.clip(values, low, high), values)
    return clipped


def rounding_note(name: str, count: int, size: int, low: float, high: float) -> str:
    """A sentence about values that lie beyond their range by rounding."""
    beyond = f"{count:,} of {size:,} {name} lie beyond [{low:g}, {high:g}] by at most {ROUNDING:g}"
    return f"{beyond}, which is rounding; they count as its ends"


def shown_number(value: float, low: float, high: float) -> str:
    """A number outside a range with as many digits as show that it is.

    Example:
      >>> shown_number(1.00001, 0.0, 1.0), shown_number(72.0, 0.0, 1.0)
      ('1.00001', '72')
    """
    for digits in (4, 6, 9):
        text = f"{value:.{digits}g}"
        if not low <= float(text) <= high:
            return text
    return repr(float(value))


# array, list or Series
def _cells(values: Any, name: str, dtype: type | None = None) -> NDArray[Any]:  # noqa: ANN401
    try:
        cells = np.asarray(values, dtype=dtype)
    except ValueError:
        cells = np.array([values, None], dtype=object)  # ragged, which NumPy takes as objects alone
    if cells.dtype == object and any(
        isinstance(value, list | tuple | np.ndarray) for value in cells.flat
    ):
        rule = f"{name} must be an array of single values"
        refuse(rule, "rows of different lengths", "give as many to each")
    return cells


def _number(value: object, name: str, position: str) -> float:
    if isinstance(value, bool | int | float | np.bool_ | np.number | Decimal | Fraction):
        try:
            return float(value)
        except (OverflowError, TypeError):  # beyond 1.8e308, or complex
            pass
    shown = " ".join(repr(value).split())[:_SHOWN]  # a table in a cell takes several lines
    rule = f"{name} must be numbers"
    refuse(rule, f"{shown} {position}", "convert them first, and give NaN where one is missing")


def _shown_position(position: int, shape: tuple[int, ...]) -> str:
    """Place of an element in words: `at position 2`, of more than one axis `at position [0, 2]`."""
    place = [int(index) for index in np.unravel_index(position, shape)] if shape else []
    return f"at position {place if len(place) != 1 else place[0]}"


Kind = TypeVar("Kind")
Values = TypeVar("Values")
_FIELD_SHOWN = 80  # characters of a field in a message


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
        init = kind.__init__
        form = signature(init)

        @wraps(init)
        def call(*values: Any, **named: Any) -> None:  # noqa: ANN401 - of any field
            stated = form.bind(*values, **named)
            for name in stated.arguments.keys() & converters.keys():
                stated.arguments[name] = converters[name](stated.arguments[name])
            init(*stated.args, **stated.kwargs)

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
            (name, kind._field_defaults.get(name, none), rules[name].exact, rules[name].good)
            for name in kind._fields
        ]

        def check(value: Any) -> Any:  # noqa: ANN401 - of the kind
            # a tuple of all fields; strict costs
            for item, (name, default, exact, good) in zip(value, tests):  # noqa: B905
                if item is not default and type(item) is not exact and not good(item):
                    of, (_, rule, remedy, _) = repr(value[0])[:_FIELD_SHOWN], rules[name]
                    where = f"{kind.__name__} {of}: {name} must be {rule}"
                    refuse(where, repr(item)[:_FIELD_SHOWN], remedy)
            return value

        kind.__new__ = wraps(call)(
            lambda cls, *values, **fields: check(call(cls, *values, **fields))
        )
        kind._make = classmethod(wraps(make)(lambda cls, values: check(make(cls, values))))
        return kind

    return decorate
