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

ROUNDING_TOLERANCE = 1e-6  # by which a measurement in single precision may leave its range
_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})  # by name, without importing pandas
_SHOWN_CHARACTERS = 60  # characters of a value in a message


def refuse(requirement: str, actual_value: object, remedy: str) -> NoReturn:
    """Raise a ValueError with rule, value and remedy."""
    message = f"{requirement}, got {actual_value}; {remedy}."
    raise ValueError(message)


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
        plain_array_values = np.asarray(values)
        if plain_array_values.dtype.kind in "fiub":
            return plain_array_values.astype(np.float64, copy=False)
    has_dtype = hasattr(values, "dtype")
    cell_array = _cells(values, name).astype(object) if has_dtype else _cells(values, name, object)
    numbers = np.full(cell_array.shape, np.nan)
    for position, cell in enumerate(cell_array.flat):
        if not is_missing(cell):
            numbers.flat[position] = _number(
                cell, name, _shown_position(position, cell_array.shape)
            )
    return numbers


# number, array, list or Series
def measured_values(measurements: Any, name: str = "value") -> Any:  # noqa: ANN401
    """Measurements as NumPy compares them.

    Numbers and arrays as they are, lists and columns as `float_array`.

    Example:
      >>> measured_values([0.5, None]), measured_values(0.5)
      (array([0.5, nan]), 0.5)
    """
    # arrays first: they are many, and a union of types takes longer
    is_plain = (
        isinstance(measurements, np.ndarray) and measurements.dtype.kind != "O"
    ) or isinstance(measurements, float | int | np.number)
    return measurements if is_plain else float_array(measurements, name)


def plain_array(values: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 - array, list or Series
    """Values as an array; numbers and truth values with missing ones are floats with NaN.

    Raises:
      ValueError: rows of different lengths.

    Example:
      >>> plain_array([True, None], "y"), plain_array([True, False], "y")
      (array([ 1., nan]), array([ True, False]))
    """
    cell_array = _cells(values, name)
    if cell_array.dtype != object or not cell_array.size:
        return cell_array
    plain_cells = [float("nan") if is_missing(cell) else cell for cell in cell_array.flat]
    is_numeric = all(
        isinstance(cell, bool | np.bool_ | int | float | np.number) for cell in plain_cells
    )
    return np.array(plain_cells, dtype=np.float64 if is_numeric else object).reshape(
        cell_array.shape
    )


def check_present(values: NDArray[np.float64], name: str, remedy: str) -> None:
    """Stop at missing numbers.

    Raises:
      ValueError: counts them and names the first position.
    """
    if np.isnan(np.sum(values)):
        is_missing_number = np.isnan(values)
        if is_missing_number.any():  # infinities of both signs sum to NaN too
            position_text = _shown_position(int(is_missing_number.ravel().argmax()), values.shape)
            count_text = f"{int(is_missing_number.sum()):,} of {values.size:,}"
            refuse(
                f"{name} must not be missing", f"{count_text}, the first {position_text}", remedy
            )


def within_range(
    values: NDArray[np.float64], lower_bound: float, upper_bound: float, values_name: str
) -> NDArray[np.float64]:
    """Values with the ends of their range in place of what lies beyond by rounding.

    Warns:
      UserWarning: some do; it counts them.
    """
    lies_beyond = ((values < lower_bound) & (values >= lower_bound - ROUNDING_TOLERANCE)) | (
        (values > upper_bound) & (values <= upper_bound + ROUNDING_TOLERANCE)
    )
    if not lies_beyond.any():
        return values
    note = rounding_note(values_name, int(lies_beyond.sum()), values.size, lower_bound, upper_bound)
    warn_user(f"{note}.")
    clipped_values: NDArray[np.float64] = np.where(
        lies_beyond, np.clip(values, lower_bound, upper_bound), values
    )
    return clipped_values


def rounding_note(
    values_name: str, n_beyond: int, n_values: int, lower_bound: float, upper_bound: float
) -> str:
    """A sentence about values that lie beyond their range by rounding."""
    beyond_text = (
        f"{n_beyond:,} of {n_values:,} {values_name} lie beyond [{lower_bound:g}, "
        f"{upper_bound:g}] by at most {ROUNDING_TOLERANCE:g}"
    )
    return f"{beyond_text}, which is rounding; they count as its ends"


def shown_number(value: float, lower_bound: float, upper_bound: float) -> str:
    """A number outside a range with as many digits as show that it is.

    Example:
      >>> shown_number(1.00001, 0.0, 1.0), shown_number(72.0, 0.0, 1.0)
      ('1.00001', '72')
    """
    for digits in (4, 6, 9):
        text = f"{value:.{digits}g}"
        if not lower_bound <= float(text) <= upper_bound:
            return text
    return repr(float(value))


# array, list or Series
def _cells(values: Any, values_name: str, dtype: type | None = None) -> NDArray[Any]:  # noqa: ANN401
    try:
        cell_array = np.asarray(values, dtype=dtype)
    except ValueError:
        cell_array = np.array(
            [values, None], dtype=object
        )  # ragged, which NumPy takes as objects alone
    if cell_array.dtype == object and any(
        isinstance(cell, list | tuple | np.ndarray) for cell in cell_array.flat
    ):
        refuse(
            f"{values_name} must be an array of single values",
            "rows of different lengths",
            "give as many to each",
        )
    return cell_array


def _number(cell: object, values_name: str, position_text: str) -> float:
    if isinstance(cell, bool | int | float | np.bool_ | np.number | Decimal | Fraction):
        try:
            return float(cell)
        except (OverflowError, TypeError):  # beyond 1.8e308, or complex
            pass
    shown_cell = " ".join(repr(cell).split())[
        :_SHOWN_CHARACTERS
    ]  # a table in a cell takes several lines
    refuse(
        f"{values_name} must be numbers",
        f"{shown_cell} {position_text}",
        "convert them first, and give NaN where one is missing",
    )


def _shown_position(position: int, array_shape: tuple[int, ...]) -> str:
    """Place of an element in words: `at position 2`, of more than one axis `at position [0, 2]`."""
    element_index = (
        [int(axis_index) for axis_index in np.unravel_index(position, array_shape)]
        if array_shape
        else []
    )
    return f"at position {element_index if len(element_index) != 1 else element_index[0]}"


Kind = TypeVar("Kind")
Values = TypeVar("Values")
_SHOWN_FIELD = 80  # characters of a field in a message


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
        read_only_view: Any = np.asarray(memoryview(array).toreadonly())
        return read_only_view
    if isinstance(values, tuple) and hasattr(values, "_make"):
        read_only_tuple: Values = values._make(map(read_only, values))
        return read_only_tuple
    return values


def holds_read_only(tuple_type: type[Kind]) -> type[Kind]:
    """Named tuple whose arrays are `read_only`, made by a call, by `_make` or by `_replace`.

    Args:
      tuple_type: type of named tuple.
    """
    open_type: Any = tuple_type  # the methods of a NamedTuple cannot be written in its body
    plain_new = open_type.__new__
    plain_make = open_type._make.__func__
    open_type.__new__ = wraps(plain_new)(
        lambda cls, *values, **fields: plain_make(
            cls, map(read_only, plain_new(cls, *values, **fields))
        )
    )
    open_type._make = classmethod(
        wraps(plain_make)(lambda cls, values: plain_make(cls, map(read_only, values)))
    )
    return tuple_type


def converted(**converters: Callable[[Any], Any]) -> Callable[[type[Kind]], type[Kind]]:
    """Dataclass whose fields are converted before it is made, so a frozen one never changes.

    Args:
      **converters: of some fields, by name; a default is taken as it is.
    """

    # the method of a dataclass cannot be written in its body
    def decorate(data_class: Any) -> Any:  # noqa: ANN401
        plain_init = data_class.__init__
        init_signature = signature(plain_init)

        @wraps(plain_init)
        def converting_init(*values: Any, **keyword_values: Any) -> None:  # noqa: ANN401 - of any field
            bound_arguments = init_signature.bind(*values, **keyword_values)
            for field_name in bound_arguments.arguments.keys() & converters.keys():
                bound_arguments.arguments[field_name] = converters[field_name](
                    bound_arguments.arguments[field_name]
                )
            plain_init(*bound_arguments.args, **bound_arguments.kwargs)

        data_class.__init__ = converting_init
        return data_class

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
    def decorate(tuple_type: Any) -> Any:  # noqa: ANN401
        plain_new = tuple_type.__new__
        plain_make = tuple_type._make.__func__
        no_default = object()  # the default of a field that has none
        field_tests = [
            (
                field_name,
                tuple_type._field_defaults.get(field_name, no_default),
                rules[field_name].exact,
                rules[field_name].good,
            )
            for field_name in tuple_type._fields
        ]

        def checked_record(new_record: Any) -> Any:  # noqa: ANN401 - of the kind
            # a tuple of all fields; strict costs
            for field_value, (field_name, default, exact_type, is_good) in zip(  # noqa: B905
                new_record, field_tests
            ):
                if (
                    field_value is not default
                    and type(field_value) is not exact_type
                    and not is_good(field_value)
                ):
                    shown_record, (_, field_rule, remedy, _) = (
                        repr(new_record[0])[:_SHOWN_FIELD],
                        rules[field_name],
                    )
                    refuse(
                        f"{tuple_type.__name__} {shown_record}: {field_name} must be {field_rule}",
                        repr(field_value)[:_SHOWN_FIELD],
                        remedy,
                    )
            return new_record

        tuple_type.__new__ = wraps(plain_new)(
            lambda cls, *values, **fields: checked_record(plain_new(cls, *values, **fields))
        )
        tuple_type._make = classmethod(
            wraps(plain_make)(lambda cls, values: checked_record(plain_make(cls, values)))
        )
        return tuple_type

    return decorate
