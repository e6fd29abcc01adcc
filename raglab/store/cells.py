"""Cells (shore): columns of a frame or a CSV file as typed values, and errors that name row and column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.store.files import MAX_INTEGER, InputError, Where, input_error, shown_value
from raglab.user_warnings import warn_user

if TYPE_CHECKING:
    import pandas as pd


class Cells(NamedTuple):
    """Columns of a frame as Python values, None where a cell is missing.

    name: of the frame, in errors. size: rows. columns: column -> one value a row. labels: what the rows are called
    beside their positions, which count from 0: of a frame its index, of a file the lines. label: the kind of that.
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any] = ()
    label: str = "index"

    def place(self, row: int) -> str:
        """A row as errors name it: its position, as `frame.iloc` counts, and its label where that is another."""
        label = self.labels[row] if len(self.labels) else row
        number = int(label) if isinstance(label, int | np.integer) else None
        shown = shown_value(label) if number is None else number
        return f"row {row}" if number == row and self.label == "index" else f"row {row} ({self.label} {shown})"

    def has(self, column: str) -> bool:
        """Whether the frame has the column."""
        return column in self.columns

    def of(self, column: str) -> Sequence[Any]:
        """Values of a column, all None where the frame has none."""
        return self.columns[column] if column in self.columns else [None] * self.size

    def error(self, row: int, column: str, rule: str, remedy: str, came: str | None = None) -> InputError:
        """Error about one cell."""
        return input_error(Where(f"{self.name}, {self.place(row)}, column {column}"), rule, remedy, came)

    def typed(self, column: str, of: Callable[[Any], Any], rule: str, remedy: str) -> list[Any]:
        """Values of a column as `of` turns them, None where missing; `of` gives None for what breaks the rule."""
        if not self.has(column):
            return [None] * self.size
        out = []
        for row, value in enumerate(self.of(column)):
            found = None if value is None else of(value)
            if found is None and value is not None:
                raise self.error(row, column, f"{column} must be {rule}", remedy, shown_value(value))
            if not is_unicode(found):
                came = f"half a surrogate pair in {shown_value(found)}"
                raise self.error(row, column, "text must be Unicode", "correct the text", came)
            out.append(found)
        return out

    def same(self, column: str, values: Sequence[Any], first: Sequence[int], of_what: str, remedy: str) -> None:
        """Stop where a row differs in a column from the first row of its group, `first`."""
        if not self.has(column):
            return
        for row, (start, value) in enumerate(zip(first, values, strict=True)):
            if values[start] != value:
                came = f"{shown_value(value)} after {shown_value(values[start])} in row {start}"
                raise self.error(row, column, f"{of_what} must have one {column}", remedy, came)


MAX_ROWS = 2_000_000  # of a frame: twenty seconds and a gigabyte as a trace


def frame_cells(frame: pd.DataFrame, name: str, row: str = "hit", index: Collection[str] = ()) -> Cells:
    """Cells of a frame.

    Args:
      row: what a row is, in errors. index: names whose level of the index counts as a column, where no column has them.

    Raises:
      InputError: no DataFrame, no row, more than `MAX_ROWS`, or two columns of one name.
    """
    import pandas as pd

    where = Where(name)
    if not isinstance(frame, pd.DataFrame):
        raise input_error(where, f"the {row}s must be a pandas DataFrame", "wrap them in one", type(frame).__name__)
    if not len(frame):
        raise input_error(where, "a frame must have at least one row", f"add one row a {row}", "none")
    if len(frame) > MAX_ROWS:
        rule = f"a frame must have at most {MAX_ROWS:,} rows"
        raise input_error(where, rule, "keep the first hits of each case, or make parts of it", f"{len(frame):,}")
    heads = [str(column) for column in frame.columns]
    check_heads(heads, where)
    columns = {head: _values(frame.iloc[:, place]) for place, head in enumerate(heads)}
    for level, head in enumerate(frame.index.names):
        if head in index and head not in columns:
            columns[str(head)] = _values(pd.Series(frame.index.get_level_values(level)))
    labels: Any = frame.index  # as long as the frame, read where an error asks
    return Cells(name, len(frame), columns, labels)


def check_heads(heads: Sequence[str], where: Where) -> None:
    """Stop at two columns of one name."""
    if len(set(heads)) < len(heads):
        twice = next(head for place, head in enumerate(heads) if head in heads[:place])
        raise input_error(
            where, "columns must have different names", "rename or drop one", f"{shown_value(twice)} twice"
        )


_HALF = re.compile("[\ud800-\udfff]")


def is_unicode(value: object) -> bool:
    """Whether a text, or every one of several, can be written: no half of a surrogate pair."""
    if isinstance(value, str):
        return value.isascii() or _HALF.search(value) is None
    return not isinstance(value, tuple) or all(map(is_unicode, value))


def _values(series: pd.Series[Any]) -> list[Any]:
    values = zip(series.tolist(), series.isna().tolist(), strict=True)
    plain = (None if gone else value for value, gone in values)
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def whole_number(value: object) -> int | None:
    """Integer of a cell; a whole float counts, since pandas keeps integers beside missing ones as floats."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def whole_at_least(least: int) -> Callable[[Any], int | None]:
    """`whole_number`, from a least value to `MAX_INTEGER`."""

    def bounded(value: object) -> int | None:
        found = whole_number(value)
        return found if found is not None and least <= found <= MAX_INTEGER else None

    return bounded


def cell_text(value: object) -> str | None:
    """String of a cell."""
    return value if isinstance(value, str) else None


def filled_text(value: object) -> str | None:
    """String of a cell that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def listed(value: object) -> Any:  # noqa: ANN401 - any cell
    """A cell of several values: of one text its items, a JSON list or parts with semicolons between, stripped.

    Example:
      >>> listed("a.md; b.md#2"), listed('["a.md"]'), listed(("a.md",))
      (['a.md', 'b.md#2'], ['a.md'], ('a.md',))
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(";") if part.strip()]
    try:
        items = json.loads(value, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return [item.strip() if isinstance(item, str) else item for item in items] if isinstance(items, list) else None


# A file ending, or a page, then a comma or bar, then more.
_SEVERAL_FILES = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}(#\d+)?\s*[,|]\s*[^\s,|;]")


def listed_sources(value: object) -> Any:  # noqa: ANN401 - any cell
    """`listed` of a cell of sources; None of a text that looks like several files with commas or bars between.

    Example:
      >>> listed_sources("a.md, b.md"), listed_sources(["a.md, b.md"]), listed_sources("smith, 2020.pdf; b.md")
      (None, ['a.md, b.md'], ['smith, 2020.pdf', 'b.md'])
    """
    items = listed(value)
    if isinstance(value, str) and not value.lstrip().startswith("[") and _SEVERAL_FILES.search(value):
        return None
    return items


def texts(value: object) -> tuple[str, ...] | None:
    """Strings of a cell that holds a list, tuple or array of them, none blank."""
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list | tuple) or any(filled_text(item) is None for item in items):
        return None
    return tuple(items)


def source_texts(value: object) -> tuple[str, ...] | None:
    """Sources of a cell, none blank; see `listed_sources`."""
    return texts(listed_sources(value))


def names(cells: Cells, column: str) -> list[str | None]:
    """Names in a column as strings: all strings, or all integers."""
    values = cells.typed(
        column,
        lambda value: filled_text(value) or whole_number(value),
        "a string that is not blank, or an integer",
        "give each one a name",
    )
    kinds = dict.fromkeys(type(value) for value in values if value is not None)
    if len(kinds) > 1:
        row = next(row for row, value in enumerate(values) if type(value) is list(kinds)[1])
        remedy = f'write frame["{column}"].astype(str)'
        raise cells.error(
            row, column, f"{column} must be all strings or all integers", remedy, shown_value(values[row])
        )
    return [None if value is None else str(value) for value in values]


class AllowedRange(NamedTuple):
    """Allowed values of a measurement, and what to do about another, by its value."""

    low: float
    high: float
    what: str
    remedy: str | Callable[[float], str]


def numbers(cells: Cells, column: str, allowed: AllowedRange) -> NDArray[np.float64]:
    """Measurements of a column as float64, [rows], NaN where missing."""
    rule = f"{allowed.what}, from {allowed.low:g} to {allowed.high:g}"
    percent = any(isinstance(value, str) and value.rstrip().endswith("%") for value in cells.of(column))
    remedy = "write a percentage as a share: 0.92 for 92 %" if percent else "write a number without quotes"
    found = cells.typed(column, _finite_cell, rule, remedy)
    given = np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    out = np.clip(given, allowed.low, allowed.high)
    wrong = np.flatnonzero(np.abs(given - out) > ROUNDING)
    if len(wrong):
        value = float(given[wrong[0]])
        how = allowed.remedy if isinstance(allowed.remedy, str) else allowed.remedy(value)
        raise cells.error(int(wrong[0]), column, f"{column} must be {rule}", how, shown_value(value))
    rounded = int((given != out).sum() - np.isnan(given).sum())
    if rounded:
        within = f"[{allowed.low:g}, {allowed.high:g}]"
        told = f"{rounded} of {cells.size} {column} lie beyond {within} by at most {ROUNDING:g}, which is rounding"
        warn_user(f"{cells.name}: {told}; they count as its ends.")
    return out


ROUNDING = 1e-6  # by which a measurement in single precision may leave its range


def _finite_cell(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def required_values(cells: Cells, column: str, found: Sequence[Any]) -> list[Any]:
    """Values of a column of which none is missing."""
    for row, value in enumerate(found):
        if value is None:
            raise cells.error(row, column, f"{column} must not be missing", f"fill {column}")
    return list(found)


def number_keys(keys: Sequence[str | None], cells: Cells, column: str) -> tuple[tuple[str, ...], list[int]]:
    """Distinct keys in the order of their first rows, and the number of each row's."""
    number: dict[str, int] = {}
    rows = [number.setdefault(key, len(number)) for key in required_values(cells, column, keys)]
    return tuple(number), rows
