"""CSV tables (shore): one reader of delimited labels, chunks, documents, scores, logs, signals.

A table is UTF-8, or UTF-16 with a byte-order mark, which Excel calls Unicode text. Its first line
may state the delimiter as Excel does, `sep=;`; else the comma, semicolon, tab or bar is taken that
parts the records most alike. `csv_records` gives the cells as texts; `csv_frame` reads columns of
numbers too, with decimal points or commas.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.encodings import ENCODING_REMEDY, Encoding, decode_text
from raglab.store.files import MAX_FILE_BYTES, Where, input_error, read_bytes, shown_value
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

MAX_TABLE_ROWS = 2_000_000  # twenty seconds and a gigabyte as a trace
MAX_HEADS = 20_000  # characters
# what tools write for no number
MISSING_WORDS = frozenset({"", "nan", "none", "null", "na", "n/a", "<na>"})
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR = re.compile(r'"?sep=(.)"?[ ,;\t|]*\n', re.IGNORECASE)
_TRIED_RECORDS = 20  # by which a delimiter is chosen
_SAVE_AS_UTF_8 = "save the file as UTF-8"  # of tables at doors without encoding=
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_POINTS_REMEDY = "write numbers with decimal points and without thousands"


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
    where = Where(str(path), 1)
    raw = read_bytes(path, max_file_bytes, follow_links=follow_links, keep_mark=True)
    text = decode_text(raw, where, encoding, remedy)
    if "\0" in text[:MAX_HEADS]:  # UTF-16 without its mark, UTF-32, or a workbook
        raise input_error(where, "a table must be text", "save it as CSV UTF-8", "a NUL character")
    return text


def csv_records(text: str, path: Path) -> list[CsvRecord]:
    """Records that are not blank: the heads and at least one row, as long each.

    Raises:
      InputError: the file is no CSV, a line stands above its heads, a row has not as many cells as
        there are heads, or there is no row.
    """
    where = Where(str(path))
    delimiter, skipped = _dialect(text, path)
    with _reading(csv.reader(StringIO(text), delimiter=delimiter, strict=True), path) as reader:
        filled = (CsvRecord(reader.line_num, row) for row in reader if any(map(str.strip, row)))
        records = list(islice(filled, skipped, MAX_TABLE_ROWS + skipped + 2))
    if not 2 <= len(records) <= MAX_TABLE_ROWS + 1:
        raise input_error(
            where,
            f"a table must have heads and a row, and at most {MAX_TABLE_ROWS:,} rows",
            "add rows, or split it",
            f"{len(records):,} records",
        )
    (line, heads), *rows = records
    where, size = where._replace(line=line), len(",".join(heads))
    if size > MAX_HEADS:  # every table of a document repeats them
        raise input_error(
            where,
            f"the heads of a table must be at most {MAX_HEADS} characters",
            "shorten them, or split the table",
            str(size),
        )
    if not any(map(str.strip, heads[1:])) and heads[0].strip() and "".join(rows[0].cells[1:]):
        raise input_error(
            where,
            "a table must begin with its heads",
            "delete the lines above",
            shown_value(heads[0]),
        )
    ragged = [row for row in rows if len(row.cells) != len(heads)]
    if ragged:
        where = where._replace(line=ragged[0].line)
        raise input_error(
            where,
            f"each of {len(rows):,} rows must have as many cells as there are heads",
            "quote a cell that holds the delimiter",
            f"{len(ragged[0].cells)} instead of {len(heads)} in {len(ragged):,} of them",
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
      UserWarning: commas are read as decimal, or points that may stand between thousands; names the
        columns.
    """
    import pandas as pd

    text = table_text(path, max_file_bytes, remedy=_SAVE_AS_UTF_8)
    heads, *rows = csv_records(text, path)
    # A head that is blank is that of an index which was written with the table; pandas names it so.
    names = [head.strip() or f"Unnamed: {place}" for place, head in enumerate(heads.cells)]
    check_heads(names, where := Where(str(path), heads.line))
    columns, commas, points = {}, [], []
    for place, name in enumerate(names):
        cells = [row.cells[place].strip() for row in rows]
        if name in texts:
            columns[name] = _texts(cells)
            continue
        if _has_decimal_commas(cells, where._replace(id=name)):
            commas.append(name)
            cells = [cell.replace(",", ".") for cell in cells]
        elif all(
            map(_POINTED_THOUSANDS.fullmatch, [cell for cell in cells if "." in cell] or [""])
        ):
            points.append(name)
        columns[name] = _typed(cells)
    if commas and points:
        raise input_error(
            where._replace(id=points[0]),
            "points and commas must not both be decimal",
            _POINTS_REMEDY,
        )
    # where commas part the cells, points are decimal
    if named := commas or (points if _dialect(text, path)[0] != "," else []):
        mark, count = "commas" if commas else "points", f"{len(named)} of {len(names)} columns"
        shown = shown_value(", ".join(named))
        warn_user(visible(f"{path}: {mark} are read as decimal points in {count}: {shown}."))
    return pd.DataFrame(columns)


def check_heads(heads: Sequence[str], where: Where) -> None:
    """Stop at two columns of one name."""
    for name, count in Counter(heads).items():
        if count > 1:
            raise input_error(
                where,
                "columns must have different names",
                "rename or drop one",
                f"{shown_value(name)} {count} times",
            )


def _texts(cells: Sequence[str]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series([cell or None for cell in cells], dtype=object)


def _typed(cells: Sequence[str]) -> pd.Series[Any]:
    """Column of a table as integers, floats, truth values or texts, by its filled cells."""
    import pandas as pd

    if all(map(_INTEGER.fullmatch, cells)):
        return pd.Series([int(cell) for cell in cells], dtype="int64")
    # 007 is a name, 0.7 and 007.5 are numbers
    if not any(cell.isdecimal() and not _INTEGER.fullmatch(cell) for cell in cells):
        with suppress(ValueError):
            return pd.Series([_number(cell) for cell in cells], dtype="float64")
    if {cell.lower() for cell in cells} <= {"true", "false"}:
        return pd.Series([cell.lower() == "true" for cell in cells], dtype=bool)
    return _texts(cells)


def _number(cell: str) -> float:
    """Number of a cell, NaN for what stands for none.

    Raises:
      ValueError: it is none; Python alone takes 1_0 for ten.
    """
    if cell.lower() in MISSING_WORDS:
        return float("nan")
    return float(cell if cell.isascii() and "_" not in cell else "no number")


def _has_decimal_commas(cells: Sequence[str], where: Where) -> bool:
    """Whether a column of numbers has decimal commas.

    Raises:
      InputError: every comma may stand between thousands too.
    """
    commas = [cell for cell in cells if "," in cell]  # none in most columns
    plain = [cell for cell in cells if "," not in cell]
    if not commas or not all(map(_DECIMAL_COMMA.fullmatch, commas)) or _typed(plain).dtype == "O":
        return False
    points = [cell for cell in plain if "." in cell]
    if points or all(map(_THOUSANDS.fullmatch, commas)):
        raise input_error(
            where,
            "commas in numbers must be either decimal or between thousands",
            _POINTS_REMEDY,
            " beside ".join(map(shown_value, [commas[0], *points[:1]])),
        )
    return True


def _dialect(text: str, path: Path) -> tuple[str, bool]:
    """Delimiter, and whether a first line states it, which is no record.

    Tabs part the cells of a .tsv file. Else it is the delimiter that gives most first records the
    width of the heads, and the heads the most cells; or the rows, below a line above the heads.
    """
    stated = _SEPARATOR.match(text)
    if stated or path.suffix.lower() == ".tsv":
        return (stated[1], True) if stated else ("\t", False)
    scores = []
    for delimiter in _DELIMITERS:
        with _reading(csv.reader(StringIO(text.lstrip("\n")), delimiter=delimiter), path) as rows:
            width, *widths = [len(row) for row in islice(rows, _TRIED_RECORDS) if row] or [0]
        titled = width == 1 and len(widths) > 1 and len({*widths}) == 1 < widths[0]
        scores.append((width > 1, titled, {*widths} <= {width}, width))
    return _DELIMITERS[scores.index(max(scores))], False


@contextmanager
# the type of a CSV reader has no public name
def _reading(reader: Any, path: Path) -> Iterator[Any]:  # noqa: ANN401
    """Turn what the reader finds wrong into an InputError."""
    try:
        yield reader
    except csv.Error as error:
        raise input_error(
            Where(str(path), reader.line_num),
            f"a {path.suffix} file must be valid CSV",
            "close each quote and double those inside",
            str(error),
        ) from error
