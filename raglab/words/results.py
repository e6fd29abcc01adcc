"""Results (algebra): base of results: one summary becomes text, notebook page and frame.

A class states what it shows in `_summary`; the mixin writes it. Numbers are numbers of frames until
then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from raglab.arguments.plain_arrays import is_missing
from raglab.words.canonical import decimals
from raglab.words.characters import visible
from raglab.words.html_display import MAX_CELL_CHARACTERS, Cell, Fold, display

if TYPE_CHECKING:
    import pandas as pd

DASH = "–"
LINE = 100  # characters of a line of text


class Summary(NamedTuple):
    """What a result shows of itself.

    facts: rows of a name and its values; the text has them all. tables: frames and folds by
    title, for the notebook alone; the first stands open. notes: sentences for the reader. title: of
    the page; else the name of the class.
    """

    facts: Sequence[Sequence[Cell | str]]
    tables: Mapping[str, pd.DataFrame | Fold] = {}
    notes: Sequence[str] = ()
    title: str = ""


class Shown:
    """Mixin: `repr` in one bounded line, `str` with notes, a notebook page."""

    __slots__ = ()

    def _summary(self) -> Summary:
        """What the result shows of itself."""
        raise NotImplementedError

    def __repr__(self) -> str:
        line = self._line()
        return line if len(line) <= MAX_CELL_CHARACTERS else f"{line[: MAX_CELL_CHARACTERS - 1]}…"

    def __str__(self) -> str:
        texts = (self._line(), *map(visible, self._summary().notes))
        return "\n".join(fill(text, LINE, break_on_hyphens=False) for text in texts)

    def _line(self) -> str:
        """Every fact, in one line."""
        facts = "; ".join(" ".join(map(_text, row)) for row in self._summary().facts)
        return visible(f"{type(self).__name__}({facts})")

    def _repr_html_(self) -> str:
        summary = self._summary()
        folds = [
            table if isinstance(table, Fold) else frame_fold(title, table, is_open=not place)
            for place, (title, table) in enumerate(summary.tables.items())
        ]
        rows = [(f"{place}", note) for place, note in enumerate(summary.notes, 1)]
        notes = [Fold("notes", rows, open=True)] if rows else []
        return display(summary.title or type(self).__name__, summary.facts, [*notes, *folds])


class Result(Shown):
    """Mixin of results: what is shown, and a frame."""

    TABLE: ClassVar[str] = "table"  # attribute that `frame` returns

    def frame(self) -> pd.DataFrame:
        """The table of the result, as a copy."""
        table: pd.DataFrame = getattr(self, self.TABLE)
        return table.copy()


def frame_fold(title: str, frame: pd.DataFrame, *, is_open: bool = False) -> Fold:
    """Fold of a frame's rows, without its index."""
    rows = (tuple(map(cell, row)) for row in frame.itertuples(index=False))
    return Fold(title, rows, len(frame), tuple(map(str, frame)), is_open)


def cell(value: Any) -> Cell:  # noqa: ANN401 - value of any frame
    """Value as a cell; numbers are set off."""
    if isinstance(value, Cell):
        return value
    is_number = isinstance(value, int | float) or hasattr(value, "dtype")
    return Cell(value_text(value), mark="number" if is_number else "")


def value_text(value: Any) -> str:  # noqa: ANN401 - value of any frame
    """Value as text: numbers to four digits, a dash where it is missing.

    Example:
      >>> value_text(0.123456), value_text(float("nan")), value_text(True), value_text(12)
      ('0.1235', '–', 'yes', '12')
    """
    plain = value.item() if getattr(value, "size", 0) == 1 and hasattr(value, "item") else value
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if is_missing(plain):
        return DASH
    # a table of many kinds of numbers: four digits, whatever their size
    is_float = isinstance(plain, float)
    return (decimals(plain) if isinf(plain) else f"{plain:.4g}") if is_float else str(plain)


def _text(part: Cell | str) -> str:
    return f"{part.text} {part.small}".rstrip() if isinstance(part, Cell) else part
