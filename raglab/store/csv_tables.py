"""CSV tables (shore): one reader of delimited labels, chunks, documents, scores, logs, signals.

A table is UTF-8, or UTF-16 with a byte-order mark, which Excel calls Unicode text. Its first line
may state the delimiter as Excel does, `sep=;`; else the comma, semicolon, tab or bar is taken that
parts the records most alike. `csv_records` gives the cells as texts; `csv_frame` reads columns of
numbers too, with decimal points or commas.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.cells import check_heads
from raglab.store.encodings import ENCODING_REMEDY, Encoding, decode_text
from raglab.store.files import MAX_FILE_BYTES, Where, input_error, read_bytes, shown_value
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

MAX_TABLE_ROWS = 2_000_000
MAX_HEADS = 20_000  # characters
# what tools write for no number
MISSING_WORDS = frozenset({"", "nan", "none", "null", "na", "n/a", "<na>"})
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR = re.compile(r'"?sep=(.)"?[ ,;\t|]*\n', re.IGNORECASE)
_TRIED_RECORDS = 20  # by which a delimiter is chosen
_SAVE_AS_UTF_8 = "save the file as UTF-8"  # of tables at doors without encoding=
_SHOWN = 5  # columns that a message names
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_OF_FLOATS = frozenset("0123456789+-.e\n")
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")


class CsvRecord(NamedTuple):
    """A record and the number of the line it ends on."""

    line: int
    cells: list[str]


def table_text(
    path: Path,
    max_file_bytes: int = MAX_FILE_BYTES,
    *,
    follow_links: bool = True,
    encoding: Encoding = None,
    remedy: str = ENCODING_REMEDY,
) -> str:
    """Text of a table, its line ends as one line feed.

    Args:
      path: of the file.
      max_file_bytes: its size at most.
      follow_links: whether the path may be a link.
      encoding: that the caller knows it to have where it has no byte-order mark, or knows some of
        its folder to have.
      remedy: of a table that is not UTF-8, for messages.

    Raises:
      InputError: the file cannot be read, is empty or too long, or is neither in that encoding, nor
        UTF-8, nor UTF-16 with its mark.
    """
    raw, where = (
        read_bytes(path, max_file_bytes, follow_links=follow_links, keep_mark=True),
        Where(str(path), 1),
    )
    text = decode_text(raw, where, encoding, remedy)
    if "\0" in text[:MAX_HEADS]:  # UTF-16 without its mark, UTF-32, or a workbook
        raise input_error(where, "a table must be text", "save it as CSV UTF-8", "a NUL character")
    return text


def csv_records(text: str, path: Path) -> list[CsvRecord]:
    """Records that are not blank: the heads and at least one row, as long each.

    Tabs part the cells of a .tsv file.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no
        row.
    """
    file = str(path)
    # A first line that states the delimiter is no record, but counts as a line.
    stated = _SEPARATOR.match(text)
    body, skipped = (text[stated.end() :], 1) if stated else (text, 0)
    default = "\t" if path.suffix.lower() == ".tsv" else None
    delimiter = stated[1] if stated else default or _delimiter(body, file)
    reader = csv.reader(StringIO(body), delimiter=delimiter, strict=True)
    with _reading(reader, file):
        filled = (
            CsvRecord(reader.line_num + skipped, cells)
            for cells in reader
            if not "".join(cells).isspace() and any(cells)
        )
        records = list(islice(filled, MAX_TABLE_ROWS + 2))
    if len(records) > MAX_TABLE_ROWS + 1:
        rule = f"a table must have at most {MAX_TABLE_ROWS} rows"
        raise input_error(
            Where(file, records[-1].line), rule, "split it into several files", "more"
        )
    if len(records) < 2:
        value = "none" if not records else "heads alone"
        raise input_error(
            Where(file),
            "a table must have heads and a row",
            "add them or take the file away",
            value,
        )
    line, heads = records[0]
    size, width = sum(map(len, heads)) + len(heads), len(heads)
    if size > MAX_HEADS:  # every table of a document repeats them
        rule = f"the heads of a table must be at most {MAX_HEADS} characters"
        raise input_error(Where(file, line), rule, "shorten them, or split the table", str(size))
    ragged = [record for record in records[1:] if len(record.cells) != width]
    if ragged:
        line, cells = ragged[0]
        rule, remedy = (
            "a row must have as many cells as there are heads",
            "quote a cell that holds the delimiter",
        )
        count = (
            f"; {len(ragged):,} of {len(records) - 1:,} rows have not" if len(ragged) > 1 else ""
        )
        raise input_error(
            Where(file, line), rule, f"{remedy}{count}", f"{len(cells)} instead of {width}"
        )
    return records


def csv_frame(
    path: Path, *, texts: Collection[str] = (), max_file_bytes: int = MAX_FILE_BYTES
) -> pd.DataFrame:
    """Table of a file.

    A column whose filled cells are all numbers as numbers, any other as texts, None where blank.

    A column of true and false is one of truth values. Whole numbers with a leading zero are names,
    and stay texts.

    Args:
      texts: columns that stay texts whatever they hold, such as ids.

    Raises:
      InputError: the file is no table, two columns have one name, or commas may be decimal or
        between thousands.

    Warns:
      UserWarning: commas are read as decimal; names the columns.
    """
    import pandas as pd

    heads, *rows = csv_records(table_text(path, max_file_bytes, remedy=_SAVE_AS_UTF_8), path)
    # A head that is blank is that of an index which was written with the table; pandas names it so.
    names = [head.strip() or f"Unnamed: {place}" for place, head in enumerate(heads.cells)]
    check_heads(names, Where(str(path), heads.line))
    columns, with_commas = {}, []
    for name, column in zip(names, zip(*(row.cells for row in rows), strict=True), strict=True):
        cells = [*map(str.strip, column)]
        if name not in texts and _has_decimal_commas(cells, Where(str(path), heads.line, name)):
            cells = [cell.replace(",", ".") for cell in cells]
            with_commas.append(name)
        columns[name] = _texts(cells) if name in texts else _typed(cells)
    if with_commas:
        _check_points(names, rows, path, heads.line)
        more = f" and {len(with_commas) - _SHOWN} more" if len(with_commas) > _SHOWN else ""
        names_shown = ", ".join(map(shown_value, with_commas[:_SHOWN])) + more
        count = f"{len(with_commas)} of {len(names)} columns"
        warn_user(visible(f"{path}: commas are read as decimal points in {count}: {names_shown}."))
    return pd.DataFrame(columns)


def _check_points(names: Sequence[str], rows: Sequence[CsvRecord], path: Path, line: int) -> None:
    """Stop where commas are decimal in one column and points in another may separate thousands.

    Raises:
      InputError: as said.
    """
    for place, name in enumerate(names):
        points = [cell for row in rows if "." in (cell := row.cells[place].strip())]
        if points and all(map(_POINTED_THOUSANDS.fullmatch, points)):
            rule = "points must be decimal where commas are decimal in another column"
            remedy = "write numbers with decimal points and without thousands"
            raise input_error(Where(str(path), line, name), rule, remedy, shown_value(points[0]))


def _texts(cells: Sequence[str]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series([cell or None for cell in cells], dtype=object)


def _typed(cells: Sequence[str]) -> pd.Series[Any]:
    """Column of a table as integers, floats, truth values or texts, by its filled cells."""
    import pandas as pd

    # Most columns of a log are plain numbers, which their characters show: no cell is then looked
    # at twice.
    if set("\n".join(cells)) <= _OF_FLOATS and "" not in cells:
        try:
            numbers = [*map(float, cells)]
        except ValueError:
            pass
        else:
            if any("." in cell or "e" in cell for cell in cells):
                return pd.Series(numbers, dtype="float64")
    if all(map(_INTEGER.fullmatch, cells)):
        return pd.Series([int(cell) for cell in cells], dtype="int64")
    missing = [cell.lower() in MISSING_WORDS for cell in cells]
    filled = [cell for cell, is_missing in zip(cells, missing, strict=True) if not is_missing]
    # 007 is a name, 0.7 and 007.5 are numbers.
    if all(map(_NUMBER.fullmatch, filled)) and not any(
        cell.isdecimal() and not _INTEGER.fullmatch(cell) for cell in filled
    ):
        pairs = zip(cells, missing, strict=True)
        return pd.Series(
            [float("nan") if is_missing else float(cell) for cell, is_missing in pairs],
            dtype="float64",
        )
    if {cell.lower() for cell in cells} <= {"true", "false"}:
        return pd.Series([cell.lower() == "true" for cell in cells], dtype=bool)
    return _texts(cells)


def _has_decimal_commas(cells: Sequence[str], where: Where) -> bool:
    """Whether a column of numbers has decimal commas.

    Raises:
      InputError: every comma may stand between thousands too.
    """
    commas = [cell for cell in cells if "," in cell]  # none in most columns
    if not commas or not all(map(_DECIMAL_COMMA.fullmatch, commas)):
        return False
    if not all(
        _NUMBER.fullmatch(cell) or "," in cell or cell.lower() in MISSING_WORDS for cell in cells
    ):
        return False  # a column of texts, some of which look like numbers
    points = next((cell for cell in cells if "." in cell), None)
    if points is not None or all(map(_THOUSANDS.fullmatch, commas)):
        rule = "commas in numbers must be either decimal or between thousands"
        value = shown_value(commas[0]) + (
            f" beside {shown_value(points)}" if points is not None else ""
        )
        raise input_error(
            where, rule, "write numbers with decimal points and without thousands", value
        )
    return True


def _delimiter(text: str, file: str) -> str:
    """Delimiter that gives most first records the heads' width, and the heads the most cells."""
    first = text.lstrip("\n")
    scores = []
    for delimiter in _DELIMITERS:
        reader = csv.reader(StringIO(first), delimiter=delimiter)
        with _reading(reader, file):
            widths = [len(cells) for cells in islice(reader, _TRIED_RECORDS) if cells]
        width = widths[0] if widths else 0
        alike = sum(count == width for count in widths) / max(len(widths), 1)
        scores.append((width > 1, alike == 1.0, width))
    return _DELIMITERS[scores.index(max(scores))]


@contextmanager
# the type of a CSV reader has no public name
def _reading(reader: Any, file: str) -> Iterator[None]:  # noqa: ANN401
    """Turn what the reader finds wrong into an InputError."""
    try:
        yield
    except csv.Error as error:
        rule, remedy = (
            f"a {Path(file).suffix.lower()} file must be valid CSV",
            "close each quote and double those inside",
        )
        raise input_error(Where(file, reader.line_num), rule, remedy, str(error)) from error
