"""CSV files to passages: each a Markdown table of some rows under the file's heads."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from raglab.store._errors import Where, input_error
from raglab.store._passages import Passage, words

MAX_ROWS = 25
_DELIMITERS = (",", ";", "\t", "|")


class _Record(NamedTuple):
    """A record and the number of the line it ends on."""

    line: int
    cells: list[str]


def csv_passages(text: str, path: Path, max_words: int) -> tuple[Passage, ...]:
    r"""Tables of at most 25 rows each, shorter where `max_words` asks for it; the file's name is the first line.

    The first record holds the heads, which each table repeats. The delimiter is the comma, semicolon, tab or bar that
    parts the heads into most cells. A line break inside a cell becomes a blank. The n-th table is page n.

    Args:
      text: of the file.
      path: names the table, and the file in messages.
      max_words: of a passage without its first line; a single row may be longer.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no row.

    Example:
      >>> csv_passages("cause;excess\nstorm;1,50\n", Path("home_excesses.csv"), 220)[0].text
      'home excesses\n| cause | excess |\n|---|---|\n| storm | 1,50 |'
    """
    heads, *rows = _records(text, str(path))
    for line, cells in rows:
        if len(cells) != len(heads.cells):
            rule, remedy = "a row must have as many cells as there are heads", "quote a cell that holds the delimiter"
            came = f"{len(cells)} instead of {len(heads.cells)}"
            raise input_error(Where(str(path), line), rule, remedy, came)
    name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    top = f"{_line(heads.cells)}\n|{'---|' * len(heads.cells)}"
    blocks = _blocks([_line(cells) for _, cells in rows], max_words - words(top))
    return tuple(Passage(number, None, "\n".join((name, top, *block))) for number, block in enumerate(blocks, 1))


def _records(text: str, file: str) -> list[_Record]:
    """Records that are not blank: the heads and at least one row."""
    reader = csv.reader(StringIO(text), delimiter=_delimiter(text, file), strict=True)
    with _reading(reader, file):
        found = [_Record(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    if len(found) < 2:
        came = "none" if not found else "heads alone"
        raise input_error(Where(file), "a table must have heads and a row", "add them or take the file away", came)
    return found


def _delimiter(text: str, file: str) -> str:
    """Delimiter that gives the first record most cells; the earlier one of the list where two give as many."""
    first = text.lstrip("\n")
    widths = []
    for delimiter in _DELIMITERS:
        reader = csv.reader(StringIO(first), delimiter=delimiter)
        with _reading(reader, file):
            widths.append(len(next(reader, [])))
    return _DELIMITERS[widths.index(max(widths))]


@contextmanager
def _reading(reader: Any, file: str) -> Iterator[None]:  # noqa: ANN401 - the type of a CSV reader has no public name
    """Turn what the reader finds wrong into an InputError."""
    try:
        yield
    except csv.Error as error:
        rule, remedy = "a .csv file must be valid CSV", "close each quote and double those inside"
        raise input_error(Where(file, reader.line_num), rule, remedy, str(error)) from error


def _line(cells: Sequence[str]) -> str:
    joined = " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells)
    return f"| {joined} |"


def _blocks(lines: Sequence[str], max_words: int) -> Iterator[list[str]]:
    held: list[str] = []
    total = 0
    for line in lines:
        count = words(line)
        if held and (len(held) == MAX_ROWS or total + count > max_words):
            yield held
            held, total = [], 0
        held.append(line)
        total += count
    yield held
