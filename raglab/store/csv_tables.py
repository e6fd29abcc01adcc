"""CSV tables (shore): one reader of delimited labels, chunks, documents, scores, logs, signals.

A table is UTF-8, or UTF-16 with a byte-order mark, which Excel calls Unicode text. Its first line
may state the delimiter as Excel does, `sep=;`; else the comma, semicolon, tab or bar is taken that
parts the records most alike. The first line holds the heads; a title above them is refused. Decimal
commas are read and reported, and refused where each may be a thousands separator. Chunks without
`id` are named c1, c2, …. `csv_records` gives the cells as texts; `csv_frame` reads columns of
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
MAX_HEADS_CHARACTERS = 20_000  # characters
# what tools write for no number
MISSING_WORDS = frozenset({"", "nan", "none", "null", "na", "n/a", "<na>"})
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ ,;\t|]*\n', re.IGNORECASE)
_TRIED_RECORDS = 20  # by which a delimiter is chosen
_SAVE_AS_UTF_8 = "save the file as UTF-8"  # of tables at doors without encoding=
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
_COMMA_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_WHOLE_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
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
    location = Where(str(path), 1)
    raw_bytes = read_bytes(path, max_file_bytes, follow_links=follow_links, keep_mark=True)
    table_content = decode_text(raw_bytes, location, encoding, remedy)
    # UTF-16 without its mark, UTF-32, or a workbook
    if "\0" in table_content[:MAX_HEADS_CHARACTERS]:
        raise input_error(
            location, "a table must be text", "save it as CSV UTF-8", "a NUL character"
        )
    return table_content


def csv_records(table_content: str, path: Path) -> list[CsvRecord]:
    """Records that are not blank: the heads and at least one row, as long each.

    Raises:
      InputError: the file is no CSV, a line precedes its heads, a row has not as many cells as
        there are heads, or there is no row.
    """
    location = Where(str(path))
    cell_delimiter, skipped = _dialect(table_content, path)
    with _reading(
        csv.reader(StringIO(table_content), delimiter=cell_delimiter, strict=True), path
    ) as csv_reader:
        filled_records = (
            CsvRecord(csv_reader.line_num, record_cells)
            for record_cells in csv_reader
            if any(map(str.strip, record_cells))
        )
        records = list(islice(filled_records, skipped, MAX_TABLE_ROWS + skipped + 2))
    if not 2 <= len(records) <= MAX_TABLE_ROWS + 1:
        raise input_error(
            location,
            f"a table must have heads and a row, and at most {MAX_TABLE_ROWS:,} rows",
            "add rows, or split it",
            f"{len(records):,} records",
        )
    (heads_line, head_cells), *row_records = records
    location = location._replace(line=heads_line)
    heads_length = len(",".join(head_cells))
    if heads_length > MAX_HEADS_CHARACTERS:  # every table of a document repeats them
        raise input_error(
            location,
            f"the heads of a table must be at most {MAX_HEADS_CHARACTERS} characters",
            "shorten them, or split the table",
            str(heads_length),
        )
    if (
        not any(map(str.strip, head_cells[1:]))
        and head_cells[0].strip()
        and "".join(row_records[0].cells[1:])
    ):
        raise input_error(
            location,
            "a table must begin with its heads",
            "delete the lines above",
            shown_value(head_cells[0]),
        )
    ragged_rows = [
        record_cells for record_cells in row_records if len(record_cells.cells) != len(head_cells)
    ]
    if ragged_rows:
        location = location._replace(line=ragged_rows[0].line)
        raise input_error(
            location,
            f"each of {len(row_records):,} rows must have as many cells as there are heads",
            "quote a cell that holds the delimiter",
            f"{len(ragged_rows[0].cells)} instead of {len(head_cells)} in "
            f"{len(ragged_rows):,} of them",
        )
    return records


def csv_frame(path: Path, *, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Table of a file.

    A column whose filled cells are all numbers as numbers, any other as texts, None where blank.

    A column of true and false is one of truth values. Whole numbers with a leading zero are names,
    and stay texts.

    Args:
      text_columns: columns that always stay texts, such as ids.

    Raises:
      InputError: the file is no table, two columns have one name, or commas may be decimal or
        between thousands.

    Warns:
      UserWarning: commas are read as decimal, or points that may stand between thousands; names the
        columns.
    """
    import pandas as pd

    table_content = table_text(path, remedy=_SAVE_AS_UTF_8)
    head_record, *row_records = csv_records(table_content, path)
    # A head that is blank is that of an index which was written with the table; pandas names it so.
    column_names = [
        head_cell.strip() or f"Unnamed: {column_index}"
        for column_index, head_cell in enumerate(head_record.cells)
    ]
    check_heads(column_names, location := Where(str(path), head_record.line))
    cells_by_name, comma_columns, point_columns = {}, [], []
    for column_index, column_name in enumerate(column_names):
        column_cells = [row_record.cells[column_index].strip() for row_record in row_records]
        if column_name in text_columns:
            cells_by_name[column_name] = _texts(column_cells)
            continue
        if _has_decimal_commas(column_cells, location._replace(id=column_name)):
            comma_columns.append(column_name)
            column_cells = [cell.replace(",", ".") for cell in column_cells]
        elif all(
            map(
                _POINTED_THOUSANDS.fullmatch, [cell for cell in column_cells if "." in cell] or [""]
            )
        ):
            point_columns.append(column_name)
        cells_by_name[column_name] = _typed(column_cells)
    if comma_columns and point_columns:
        raise input_error(
            location._replace(id=point_columns[0]),
            "points and commas must not both be decimal",
            _POINTS_REMEDY,
        )
    # where commas part the cells, points are decimal
    if decimal_columns := comma_columns or (
        point_columns if _dialect(table_content, path)[0] != "," else []
    ):
        mark_noun = "commas" if comma_columns else "points"
        shown_count = f"{len(decimal_columns)} of {len(column_names)} columns"
        shown_columns = shown_value(", ".join(decimal_columns))
        warn_user(
            visible(
                f"{path}: {mark_noun} are read as decimal points in {shown_count}: {shown_columns}."
            )
        )
    return pd.DataFrame(cells_by_name)


def check_heads(column_names: Sequence[str], location: Where) -> None:
    """Stop at two columns of one name."""
    for column_name, n_uses in Counter(column_names).items():
        if n_uses > 1:
            raise input_error(
                location,
                "columns must have different names",
                "rename or drop one",
                f"{shown_value(column_name)} {n_uses} times",
            )


def _texts(text_cells: Sequence[str]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series([cell or None for cell in text_cells], dtype=object)


def _typed(column_cells: Sequence[str]) -> pd.Series[Any]:
    """Column of a table as integers, floats, truth values or texts, by its filled cells."""
    import pandas as pd

    if all(map(_WHOLE_NUMBER.fullmatch, column_cells)):
        return pd.Series([int(cell) for cell in column_cells], dtype="int64")
    # 007 is a name, 0.7 and 007.5 are numbers
    if not any(cell.isdecimal() and not _WHOLE_NUMBER.fullmatch(cell) for cell in column_cells):
        with suppress(ValueError):
            return pd.Series([_number(cell) for cell in column_cells], dtype="float64")
    if {cell.lower() for cell in column_cells} <= {"true", "false"}:
        return pd.Series([cell.lower() == "true" for cell in column_cells], dtype=bool)
    return _texts(column_cells)


def _number(number_text: str) -> float:
    """Number of a cell, NaN if it means a missing one.

    Raises:
      ValueError: no number; Python alone takes 1_0 for ten.
    """
    if number_text.lower() in MISSING_WORDS:
        return float("nan")
    return float(number_text if number_text.isascii() and "_" not in number_text else "no number")


def _has_decimal_commas(column_cells: Sequence[str], location: Where) -> bool:
    """Whether a column of numbers has decimal commas.

    Raises:
      InputError: every comma may stand between thousands too.
    """
    comma_cells = [cell for cell in column_cells if "," in cell]  # none in most columns
    other_cells = [cell for cell in column_cells if "," not in cell]
    if (
        not comma_cells
        or not all(map(_DECIMAL_COMMA.fullmatch, comma_cells))
        or _typed(other_cells).dtype == "O"
    ):
        return False
    point_cells = [cell for cell in other_cells if "." in cell]
    if point_cells or all(map(_COMMA_THOUSANDS.fullmatch, comma_cells)):
        raise input_error(
            location,
            "commas in numbers must be either decimal or between thousands",
            _POINTS_REMEDY,
            " beside ".join(map(shown_value, [comma_cells[0], *point_cells[:1]])),
        )
    return True


def _dialect(table_content: str, path: Path) -> tuple[str, bool]:
    """Delimiter, and whether a first line states it, which is no record.

    Tabs part the cells of a .tsv file. Else it is the delimiter that gives most first records the
    width of the heads, and the heads the most cells; or the rows, below a line above the heads.
    """
    separator_line = _SEPARATOR_LINE.match(table_content)
    if separator_line or path.suffix.lower() == ".tsv":
        return (separator_line[1], True) if separator_line else ("\t", False)
    delimiter_scores = []
    for delimiter in _DELIMITERS:
        with _reading(
            csv.reader(StringIO(table_content.lstrip("\n")), delimiter=delimiter), path
        ) as csv_rows:
            heads_width, *row_widths = [
                len(csv_row) for csv_row in islice(csv_rows, _TRIED_RECORDS) if csv_row
            ] or [0]
        has_title_line = (
            heads_width == 1 and len(row_widths) > 1 and len({*row_widths}) == 1 < row_widths[0]
        )
        delimiter_scores.append(
            (heads_width > 1, has_title_line, {*row_widths} <= {heads_width}, heads_width)
        )
    return _DELIMITERS[delimiter_scores.index(max(delimiter_scores))], False


@contextmanager
# the type of a CSV reader has no public name
def _reading(csv_reader: Any, path: Path) -> Iterator[Any]:  # noqa: ANN401
    """Turn what the reader finds wrong into an InputError."""
    try:
        yield csv_reader
    except csv.Error as error:
        raise input_error(
            Where(str(path), csv_reader.line_num),
            f"a {path.suffix} file must be valid CSV",
            "close each quote and double those inside",
            str(error),
        ) from error
