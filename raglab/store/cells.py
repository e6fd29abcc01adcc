"""Cells (shore): what a table column may hold, and typed cells of a frame or a CSV file.

Every door that takes a table describes it by `ColumnRule`s and reads it by `read_columns`: cases
and chunks in `raglab.store.case_frames`, hits in `raglab.store.hit_columns`, their signals in
`raglab.store.frames`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import ROUNDING, rounding_note
from raglab.arguments.user_warnings import warn_user
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.record_fields import MAX_INTEGER
from raglab.words.characters import is_unicode, visible

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 2_000_000  # of a frame: twenty seconds and a gigabyte as a trace
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_BOOLEAN = (  # a remedy
    "is it whether the hit or its answer is right? That is a label, no measurement: write the "
    "right hits of each "
    "question into expect_sources_any (docs/howto/own_hits.md); only if it is known before the "
    "answer, write "
    'frame["{column}"].astype(float)'
)
_SHOWN = 3  # rows that a message names after the first
_SHOWN_NAMES = 10  # columns that a message names


class ColumnRule(NamedTuple):
    """What a column may hold.

    read: value of a cell as a record has it, None where it breaks the rule. rule, remedy: in words,
    the remedy also by the column's name and the cells that break it. aliases: its other names.
    required: whether it must be there. filled: whether none of its cells may be missing, where it
    is there. bounds: ends of the range of a measurement. file_remedy: the remedy where the column
    stands in a file, which has another; None for the same.
    """

    read: Callable[[Any], Any]
    rule: str
    remedy: str | Callable[[str, Sequence[Any]], str]
    aliases: tuple[str, ...] = ()
    required: bool = False
    filled: bool = False
    bounds: tuple[float, float] | None = None
    file_remedy: Callable[[str, Sequence[Any]], str] | None = None


class Cells(NamedTuple):
    """Columns of a frame as Python values, None where a cell is missing.

    name: of the frame, in errors. size: rows. columns: column -> one value a row. labels: what the
    rows are called beside their positions, which count from 0: of a frame its index, of a file the
    lines. label: the kind of that.
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any] = ()
    label: str = "index"

    def place(self, row: int) -> str:
        """A row as errors name it.

        Its position, as `frame.iloc` counts, and its label where that is another.
        """
        label = self.labels[row] if len(self.labels) else row
        number = int(label) if isinstance(label, int | np.integer) else None
        shown = shown_value(label) if number is None else number
        return (
            f"row {row}"
            if number == row and self.label == "index"
            else f"row {row} ({self.label} {shown})"
        )

    def has(self, column: str) -> bool:
        """Whether the frame has the column."""
        return column in self.columns

    def of(self, column: str) -> Sequence[Any]:
        """Values of a column, all None where the frame has none."""
        return self.columns[column] if column in self.columns else [None] * self.size

    def error(
        self, row: int, column: str, rule: str, remedy: str, value: str | None = None
    ) -> InputError:
        """Error about one cell."""
        return input_error(
            Where(f"{self.name}, {self.place(row)}, column {column}"), rule, remedy, value
        )

    def same(
        self, column: str, values: Sequence[Any], first: Sequence[int], of_what: str, remedy: str
    ) -> None:
        """Stop where a row differs in a column from the first row of its group, `first`."""
        for row, (start, value) in enumerate(zip(first, values, strict=True)):
            if values[start] != value:
                conflict = f"{shown_value(value)} after {shown_value(values[start])} in row {start}"
                raise self.error(row, column, f"{of_what} must have one {column}", remedy, conflict)


def frame_cells(
    frame: pd.DataFrame, name: str, row: str = "hit", index: Collection[str] = ()
) -> Cells:
    """Cells of a frame.

    Args:
      row: what a row is, in errors.
      index: names whose level of the index counts as a column, where no column has them.

    Raises:
      InputError: no DataFrame, no row, more than `MAX_ROWS`, or two columns of one name.
    """
    import pandas as pd

    where = Where(name)
    if not isinstance(frame, pd.DataFrame):
        raise input_error(
            where,
            f"the {row}s must be a pandas DataFrame",
            "wrap them in one",
            type(frame).__name__,
        )
    if not len(frame):
        raise input_error(
            where, "a frame must have at least one row", f"add one row a {row}", "none"
        )
    if len(frame) > MAX_ROWS:
        rule = f"a frame must have at most {MAX_ROWS:,} rows"
        raise input_error(
            where, rule, "keep the first hits of each case, or make parts of it", f"{len(frame):,}"
        )
    heads = [str(column) for column in frame.columns]
    if len(heads) == 1 and (mark := next((mark for mark in ";\t|" if mark in heads[0]), None)):
        remedy = (
            f'read the file by pandas.read_csv(path, sep={mark!r}, decimal=","), or skiprows=1 '
            "after a line sep="
        )
        raise input_error(
            where, "a frame must have a column a field", remedy, f"only {shown_value(heads[0])}"
        )
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
            where,
            "columns must have different names",
            "rename or drop one",
            f"{shown_value(twice)} twice",
        )


def warn_of_empty_columns(cells: Cells, names: Sequence[str]) -> None:
    """Name columns without a value in any row, since nothing comes of them."""
    empty = [name for name in names if all(value is None for value in cells.of(name))]
    if empty:
        shown = ", ".join(map(shown_value, empty[:_SHOWN_NAMES]))
        more = f" and {len(empty) - _SHOWN_NAMES} more" if len(empty) > _SHOWN_NAMES else ""
        count = f"{len(empty)} of {len(cells.columns)} columns"
        warn_user(visible(f"{cells.name}: {count} hold no value in any row: {shown}{more}."))


def _values(series: pd.Series[Any]) -> list[Any]:
    values = series.tolist()
    try:
        gone = series.isna().tolist()
    # a signalling NaN of `decimal` raises where it is compared, and is no missing value
    except ArithmeticError:
        gone = list(map(is_missing, values))
    plain = (None if missing else value for value, missing in zip(values, gone, strict=True))
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN or NA."""
    import pandas as pd

    try:
        return pd.isna(value) is True  # type: ignore[call-overload]
    except ArithmeticError:
        return False


def field_names(known: Mapping[str, ColumnRule]) -> dict[str, str]:
    """Names and aliases of columns, in their order -> our name."""
    return {name: field for field, column in known.items() for name in (field, *column.aliases)}


def column_places(
    cells: Cells, known: Mapping[str, ColumnRule], columns: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Column of the table for each of our names that it has, in our order.

    Args:
      known: columns by our names.
      columns: what the caller states: our names or aliases -> columns of the table.

    Raises:
      InputError: two columns stand for one of ours.
    """
    stated = columns or {}
    mapped = set(stated.values())
    places: dict[str, str] = {}
    for field, column in known.items():
        names = (field, *column.aliases)
        # What the caller states for a name of a column stands before a column of that name.
        there = [stated[name] for name in names if name in stated]
        there = there or [name for name in names if cells.has(name) and name not in mapped]
        if len(there) > 1:
            value = f"{there[0]} and {there[1]}"
            raise input_error(
                Where(cells.name),
                f"{field} must be one column",
                "drop or rename one of them",
                value,
            )
        if there:
            places[field] = there[0]
    return places


def read_columns(
    cells: Cells, places: Mapping[str, str], known: Mapping[str, ColumnRule]
) -> dict[str, list[Any]]:
    """Values of columns by our names, None where a cell is missing.

    Args:
      places: our names -> columns of the table.
      known: what the columns may hold, by our names.

    Raises:
      InputError: cells break a rule: the first is told whole, those of the next few rows by value,
        all rows counted.

    Warns:
      UserWarning: measurements leave their range by rounding.
    """
    columns: dict[str, list[Any]] = {}
    wrong: dict[int, str] = {}  # row -> the first of our names that it breaks a rule of
    for field, name in places.items():
        column, cells_of = known[field], cells.of(name)
        columns[field] = values = [None if cell is None else column.read(cell) for cell in cells_of]
        for row, (cell, value) in enumerate(zip(cells_of, values, strict=True)):
            if (value is None and (cell is not None or column.filled)) or not is_unicode(value):
                wrong.setdefault(row, field)
    if wrong:
        raise _cell_error(cells, wrong, places, known)
    for field, values in columns.items():
        bounds = known[field].bounds
        if bounds is not None:
            columns[field] = _clip_rounding(cells, places[field], values, *bounds)
    return columns


def _cell_error(
    cells: Cells,
    wrong: Mapping[int, str],
    places: Mapping[str, str],
    known: Mapping[str, ColumnRule],
) -> InputError:
    """Error about the first row that breaks a rule, with the next few by content and a count."""
    first, *rest = sorted(wrong)
    name, column = places[wrong[first]], known[wrong[first]]
    cell = cells.of(name)[first]
    rule, remedy = f"{wrong[first]} must not be missing", "fill it, or drop the row"
    if cell is not None:
        rule = f"{wrong[first]} must be {column.rule}"
        broken = [cells.of(name)[row] for row in sorted(wrong) if wrong[row] == wrong[first]]
        advice = (
            column.file_remedy
            if column.file_remedy is not None and cells.label == "line"
            else column.remedy
        )
        remedy = advice if isinstance(advice, str) else advice(name, broken)
    if not is_unicode(cell):
        remedy = "correct the text, which holds half of a surrogate pair"
    if rest:
        following = []
        for row in rest[:_SHOWN]:
            next_cell = cells.of(places[wrong[row]])[row]
            value = "none" if next_cell is None else shown_value(next_cell)
            following.append(f"{cells.place(row)}, column {places[wrong[row]]}, got {value}")
        remedy += (
            f"; {len(wrong):,} of {cells.size:,} rows break a rule, next {'; '.join(following)}"
        )
    return cells.error(first, name, rule, remedy, None if cell is None else shown_value(cell))


def _clip_rounding(
    cells: Cells, name: str, values: Sequence[float | None], low: float, high: float
) -> list[float | None]:
    """Measurements clipped to their range where rounding exceeded it."""
    inside = [None if value is None else min(max(value, low), high) for value in values]
    rounded = sum(value != number for value, number in zip(inside, values, strict=True))
    if rounded:
        warn_user(visible(f"{cells.name}: {rounding_note(name, rounded, cells.size, low, high)}."))
    return inside


def measurement(
    low: float, high: float, what: str, remedy: str | Callable[[Sequence[float]], str]
) -> ColumnRule:
    """Column of numbers in a range.

    Args:
      what: a number is, in words.
      remedy: what to do about numbers beyond the range, also by all of these; {column} in it is the
        name of the column.
    """

    def read(cell: object) -> float | None:
        number = _number(cell)
        return (
            number if number is not None and low - ROUNDING <= number <= high + ROUNDING else None
        )

    def advice(name: str, broken: Sequence[object]) -> str:
        cell = broken[0]
        number = _number(cell)
        if number is not None and math.isfinite(number):
            numbers = [
                value
                for value in map(_number, broken)
                if value is not None and math.isfinite(value)
            ]
            return (remedy if isinstance(remedy, str) else remedy(numbers)).replace(
                "{column}", name
            )
        if number is not None:
            return "leave the cell empty where it is not known"
        if isinstance(cell, bool):
            return _BOOLEAN.replace("{column}", name)
        is_percentage = isinstance(cell, str) and cell.rstrip().endswith("%")
        if is_percentage:
            return "write a percentage as a share: 0.92 for 92 %"
        if isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()):
            return (
                "write numbers with decimal points, or read the file by pandas.read_csv(path, "
                'decimal=",")'
            )
        return "write a number without quotes"

    return ColumnRule(read, f"{what}, from {low:g} to {high:g}", advice, bounds=(low, high))


def _number(cell: object) -> float | None:
    if isinstance(cell, bool) or not isinstance(cell, int | float | Decimal):
        return None
    try:
        return float(cell)
    except (OverflowError, ValueError):  # an integer beyond all floats; a signalling NaN
        return None


def whole_number(value: object) -> int | None:
    """Integer of a cell.

    A whole float counts, since pandas keeps integers beside missing ones as floats.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def integer_from(least: int) -> Callable[[Any], int | None]:
    """Integer of a cell from a least value to `MAX_INTEGER`.

    Of a CSV, its digits, which pandas may write as 2.0.
    """

    def read(cell: object) -> int | None:
        digits = cell.strip().removesuffix(".0") if isinstance(cell, str) else ""
        whole = whole_number(
            int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else cell
        )
        return whole if whole is not None and least <= whole <= MAX_INTEGER else None

    return read


def cell_text(value: object) -> str | None:
    """String of a cell."""
    return value if isinstance(value, str) else None


def filled_text(value: object) -> str | None:
    """String of a cell that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def json_cell(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Value of a JSON text, None where it is none."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def listed(value: object) -> Any:  # noqa: ANN401 - any cell
    """A cell of several values.

    Of one text its items, a JSON list or parts with semicolons between, stripped.

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
    items = json_cell(value)
    return (
        [item.strip() if isinstance(item, str) else item for item in items]
        if isinstance(items, list)
        else None
    )


# A file ending, or a page, then a comma or bar, then more.
_SEVERAL_FILES = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}(#\d+)?\s*[,|]\s*[^\s,|;]")


def listed_sources(value: object) -> Any:  # noqa: ANN401 - any cell
    """`listed` of a cell of sources.

    None of a text that looks like several files with commas or bars between.

    Example:
      >>> (
      ...     listed_sources("a.md, b.md"),
      ...     listed_sources(["a.md, b.md"]),
      ...     listed_sources("smith, 2020.pdf; b.md"),
      ... )
      (None, ['a.md, b.md'], ['smith, 2020.pdf', 'b.md'])
    """
    items = listed(value)
    if (
        isinstance(value, str)
        and not value.lstrip().startswith("[")
        and _SEVERAL_FILES.search(value)
    ):
        return None
    return items
