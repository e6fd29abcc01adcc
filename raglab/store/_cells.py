"""Cells of a DataFrame, typed column by column; whatever breaks a rule stops with row, column, rule and remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.store._errors import InputError, Where, input_error, shown

if TYPE_CHECKING:
    import pandas as pd


class Cells(NamedTuple):
    """Columns of a frame as Python values, None where a cell is missing.

    name: of the frame, in errors. size: rows. columns: column -> one value a row.
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]

    def has(self, column: str) -> bool:
        """Whether the frame has the column."""
        return column in self.columns

    def of(self, column: str) -> Sequence[Any]:
        """Values of a column, all None where the frame has none."""
        return self.columns[column] if column in self.columns else [None] * self.size

    def error(self, row: int, column: str, rule: str, remedy: str, came: str | None = None) -> InputError:
        """Error about one cell; rows count from 0, as `frame.iloc` does."""
        return input_error(Where(f"{self.name}, row {row}, column {column}"), rule, remedy, came)

    def typed(self, column: str, of: Callable[[Any], Any], rule: str, remedy: str) -> list[Any]:
        """Values of a column as `of` turns them, None where missing; `of` gives None for what breaks the rule."""
        if not self.has(column):
            return [None] * self.size
        out = []
        for row, value in enumerate(self.of(column)):
            found = None if value is None else of(value)
            if found is None and value is not None:
                raise self.error(row, column, f"{column} must be {rule}", remedy, shown(value))
            out.append(found)
        return out

    def same(self, column: str, values: Sequence[Any], first: Sequence[int], of_what: str, remedy: str) -> None:
        """Stop where a row differs in a column from the first row of its group, `first`."""
        if not self.has(column):
            return
        for row, (start, value) in enumerate(zip(first, values, strict=True)):
            if values[start] != value:
                came = f"{shown(value)} after {shown(values[start])} in row {start}"
                raise self.error(row, column, f"{of_what} must have one {column}", remedy, came)


def cells_of(frame: pd.DataFrame, name: str) -> Cells:
    """Cells of a frame.

    Raises:
      InputError: no DataFrame, no row, or two columns of one name.
    """
    import pandas as pd

    where = Where(name)
    if not isinstance(frame, pd.DataFrame):
        raise input_error(where, "the hits must be a pandas DataFrame", "wrap them in one", type(frame).__name__)
    if not len(frame):
        raise input_error(where, "a frame must have at least one row", "add one row a hit", "none")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise input_error(where, "columns must have different names", "rename or drop one", f"{shown(twice)} twice")
    return Cells(name, len(frame), {str(column): _values(frame[column]) for column in frame.columns})


def _values(series: pd.Series[Any]) -> list[Any]:
    values = zip(series.tolist(), series.isna().tolist(), strict=True)
    plain = (None if gone else value for value, gone in values)
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def whole(value: object) -> int | None:
    """Integer of a cell; a whole float counts, since pandas keeps integers beside missing ones as floats."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def at_least(least: int) -> Callable[[Any], int | None]:
    """`whole`, from a least value on."""

    def bounded(value: object) -> int | None:
        found = whole(value)
        return None if found is None or found < least else found

    return bounded


def text(value: object) -> str | None:
    """String of a cell."""
    return value if isinstance(value, str) else None


def filled(value: object) -> str | None:
    """String of a cell that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def texts(value: object) -> tuple[str, ...] | None:
    """Strings of a cell that holds a list, tuple or array of them, none blank."""
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list | tuple) or any(filled(item) is None for item in items):
        return None
    return tuple(items)


def names(cells: Cells, column: str) -> list[str | None]:
    """Names in a column as strings: all strings, or all integers."""
    values = cells.typed(
        column,
        lambda value: filled(value) or whole(value),
        "a string that is not blank, or an integer",
        "give each one a name",
    )
    kinds = dict.fromkeys(type(value) for value in values if value is not None)
    if len(kinds) > 1:
        row = next(row for row, value in enumerate(values) if type(value) is list(kinds)[1])
        remedy = f'write frame["{column}"].astype(str)'
        raise cells.error(row, column, f"{column} must be all strings or all integers", remedy, shown(values[row]))
    return [None if value is None else str(value) for value in values]


class Range(NamedTuple):
    """Allowed values of a measurement, and what to do about others."""

    low: float
    high: float
    what: str
    remedy: str


def numbers(cells: Cells, column: str, allowed: Range) -> NDArray[np.float64]:
    """Measurements of a column as float64, [rows], NaN where missing."""
    rule = f"{allowed.what}, from {allowed.low:g} to {allowed.high:g}"
    found = cells.typed(column, _number, rule, "write a number without quotes")
    out = np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    wrong = np.flatnonzero((out < allowed.low) | (out > allowed.high))
    if len(wrong):
        row = int(wrong[0])
        near = min(abs(out[row] - allowed.low), abs(out[row] - allowed.high)) < _ROUNDING
        clip = f'it is rounding: write frame["{column}"].clip({allowed.low:g}, {allowed.high:g})'
        raise cells.error(
            row, column, f"{column} must be {rule}", clip if near else allowed.remedy, shown(float(out[row]))
        )
    return out


_ROUNDING = 1e-5


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
