"""Tables (shore): one reader of labelled rows, whether of a DataFrame, CSV, TSV or Parquet (S6.1).

A column has one of our names, or `columns` says which one stands for it. A cell that is None, NaN
or blank is absent, and so is a text such as `nan` or `None`, which a warning counts. A cell of
several texts is a list, tuple or array, or one text: a JSON list, or parts with semicolons between.
An index of a frame that has the name of a field which no column holds is its column. A column that
looks like a field which the table lacks is a fault: nothing is read as a label, or left out of one,
by guess. Whatever other columns there are stay with the row; those without a name or a value are
left out, and one warning names all of these.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.arguments.plain_arrays import is_missing
from raglab.arguments.user_warnings import warn_user
from raglab.store.case_labels import KNOWN_EXTRA_KEYS
from raglab.store.cells import CELL_READERS, MISSING_TEXTS
from raglab.store.csv_tables import MAX_TABLE_ROWS, check_heads, csv_records, table_text
from raglab.store.encodings import ENCODING_REMEDY, Encoding, check_no_encoding
from raglab.store.files import MAX_FILE_BYTES, JsonLine, Where, input_error, shown_value
from raglab.store.records import Columns, Faults, shown_names
from raglab.store.trace_files import parquet_frame
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

TEXT_ENDINGS = (".csv", ".tsv")
TABLE_ENDINGS = (*TEXT_ENDINGS, ".parquet")
FRAME_NAME = "frame"  # name of a DataFrame, in messages and as that of a corpus
NEAR_CUTOFF = 0.8  # of difflib, from which a name is a slip of another
_MAP_RULE = "columns must map our names to those of the table"
NearNames = Mapping[str, Sequence[str]]  # what others call our fields, by field
_ID_FIELDS = ("id", "case_id")  # fields that an index without them may hold
# What other sets call our fields. A loose name is found in tables of any other kind too.
LOOSE_NAMES: NearNames = {
    "query": ("input", "text", "prompt", "utterance", "claim", "message"),
    "expect_sources": (
        *("gold", "expected", "source", "sources", "evidence", "citations", "references"),
        *("file", "files", "doc", "docs", "document", "documents"),
    ),
    "expect_status": ("status", "outcome", "expected_outcome", "gold", "expected"),
    "answer": ("gold", "expected", "reference"),
}
NEAR_NAMES: NearNames = {
    "query": (*LOOSE_NAMES["query"], "user_input", "user_query", "query_text"),
    "expect_sources": (
        *LOOSE_NAMES["expect_sources"],
        *("gold_source", "gold_sources", "gold_document", "gold_documents", "gold_doc"),
        *("gold_docs", "relevant_docs", "doc_id", "doc_ids"),
    ),
    "expect_status": (*LOOSE_NAMES["expect_status"], "gold_label", "answerable", "label"),
    "answer": (
        *LOOSE_NAMES["answer"],
        *("ground_truth", "reference_answer", "gold_answer", "expected_answer"),
    ),
    "split": ("fold", "subset", "partition"),
    "id": ("case_id",),
}


class SourceTable(NamedTuple):
    """Columns of a table, None where a cell is missing.

    name: in messages. size: rows. columns: a value a row, by head. labels, label: what rows are
    called beside their positions, which count from 0: the index of a frame, the lines of a file.
    left_out: levels of an index that are not read.
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any]
    label: str = "index"
    left_out: Sequence[str] = ()

    def where(self, row: int, column: str = "") -> Where:
        """Place of a row or cell."""
        row_label = self.labels[row]
        is_position = type(row_label) is int and row_label == row and self.label == "index"
        label_clause = "" if is_position else f" ({self.label} {shown_value(row_label)})"
        return Where(
            f"{self.name}, row {row}{label_clause}{f', column {column}' if column else ''}"
        )


class Places(NamedTuple):
    """Columns of a table by our fields, further columns, and those that are left out."""

    heads: Mapping[str, str]
    further: Sequence[str]
    left_out: Sequence[str]


def is_table(path: Path) -> bool:
    """Whether a path is a file with the ending of a table."""
    return path.suffix.lower() in TABLE_ENDINGS and path.is_file()


def read_table(
    source: pd.DataFrame | str | Path,
    names: Mapping[str, str],
    columns: Columns,
    *,
    name: str = FRAME_NAME,
    max_file_bytes: int = MAX_FILE_BYTES,
    encoding: Encoding = None,
    remedy: str = ENCODING_REMEDY,
) -> SourceTable:
    """Table of a DataFrame or a file.

    Args:
      names: of fields and their aliases -> field. A level of a frame's index counts as a column by
        the name of a field that no column holds, or that `columns` maps to.
      columns: our names -> columns of the table.
      name: of a frame, in messages.
      encoding: of a CSV or TSV file, see `raglab.store.csv_tables.table_text`.
      remedy: of a text that is not UTF-8.

    Raises:
      InputError: it is no table.
    """
    column_map = {} if columns is None else columns
    if not isinstance(column_map, Mapping):
        raise input_error(name, _MAP_RULE, 'write {"query": "question"}', shown_value(columns))
    if not isinstance(source, str | Path):
        check_no_encoding(encoding, name)
        return _frame_table(source, names, column_map, name)
    table_path = Path(source)
    if table_path.suffix.lower() not in TEXT_ENDINGS:
        check_no_encoding(encoding, str(table_path))
        return _frame_table(parquet_frame(table_path), names, column_map, str(table_path))
    table_content = table_text(table_path, max_file_bytes, encoding=encoding, remedy=remedy)
    head_record, *row_records = csv_records(table_content, table_path)
    head_names = [head_name.strip() for head_name in head_record.cells]
    check_heads(
        [head_name for head_name in head_names if head_name],
        Where(str(table_path), head_record.line),
    )
    cells_by_head = {
        head_name: [row_record.cells[position] for row_record in row_records]
        for position, head_name in enumerate(head_names)
    }
    return SourceTable(
        str(table_path),
        len(row_records),
        cells_by_head,
        [row_record.line for row_record in row_records],
        "line",
    )


def _frame_table(
    frame: pd.DataFrame,
    fields_by_name: Mapping[str, str],
    column_map: Mapping[str, str],
    frame_name: str,
) -> SourceTable:
    import pandas as pd

    location = Where(frame_name)
    is_frame = isinstance(frame, pd.DataFrame)
    if not is_frame or not 0 < len(frame) <= MAX_TABLE_ROWS:
        raise input_error(
            location,
            f"a table must be a DataFrame of at least one row, at most {MAX_TABLE_ROWS:,}",
            "wrap, add or split them",
            f"{len(frame):,}" if is_frame else type(frame).__name__,
        )
    head_names = [str(frame_column) for frame_column in frame.columns]
    check_heads(head_names, location)
    cells_by_head = {
        head_name: _frame_cells(frame.iloc[:, position])
        for position, head_name in enumerate(head_names)
    }
    held_fields = {fields_by_name.get(head_name) for head_name in (*head_names, *column_map)}
    unread_levels = []
    for level_index, head_name in enumerate(frame.index.names):
        level_name = head_name if isinstance(head_name, str) else ""
        is_free = level_name in fields_by_name and fields_by_name[level_name] not in held_fields
        level_cells = frame.index.get_level_values(level_index).to_series()
        if level_name not in cells_by_head and (is_free or head_name in column_map.values()):
            cells_by_head[level_name] = _frame_cells(level_cells)
        elif held_fields.isdisjoint(_ID_FIELDS) and (
            head_name is not None or isinstance(level_cells.iloc[0], str)
        ):
            unread_levels.append(f"the index {shown_value(head_name)}")
    return SourceTable(
        frame_name, len(frame), cells_by_head, frame.index.tolist(), left_out=unread_levels
    )


def _frame_cells(series: pd.Series[Any]) -> list[Any]:
    series_cells = series.tolist()
    try:
        is_gone = series.isna().tolist()
    except ArithmeticError:  # a signalling NaN of `decimal` raises where it is compared
        series_cells = [
            ... if isinstance(cell, Decimal) and cell.is_snan() else cell for cell in series_cells
        ]
        is_gone = list(map(is_missing, series_cells))
    return [
        None if is_absent else value.tolist() if hasattr(value, "tolist") else value
        for value, is_absent in zip(series_cells, is_gone, strict=True)
    ]


def place_columns(
    name: str,
    column_names: Collection[str],
    names: Mapping[str, str],
    columns: Columns,
    faults: Faults,
    *,
    required: Collection[str] = (),
    stated: Collection[str] = (),
    near_names: NearNames = NEAR_NAMES,
) -> Places:
    """Which column of a table each field is.

    Args:
      name: of the table.
      column_names: of its columns.
      names: of fields and their aliases -> field.
      columns: what the caller states: our names -> columns. {"status": "status"} keeps a column
        that looks like a field as a further one.
      faults: takes fields that are missing, and columns that are there twice or look like a field.
      required: fields that must be there.
      stated: columns that the caller names elsewhere.
      near_names: what others call our fields.

    Raises:
      InputError: `columns` is no map of our names to columns of the table.
    """
    location, column_map, column_names = Where(name), columns or {}, [*column_names]
    wrong_names = [
        field_name
        for field_name, column_name in column_map.items()
        if field_name not in names and field_name != column_name
    ]
    absent_columns = [
        column_name for column_name in column_map.values() if column_name not in column_names
    ]
    if wrong_names := wrong_names or absent_columns:
        raise input_error(
            location,
            _MAP_RULE,
            f"write {_closest_map(column_map, column_names)}",
            f"{_shown(wrong_names)}, where the table has {_shown(column_names)}",
        )
    fields_by_column = {
        column_name: names[field_name]
        for field_name, column_name in column_map.items()
        if field_name in names
    }
    fields_by_column |= {
        column_name: names[column_name]
        for column_name in column_names
        if column_name in names
        and column_name not in column_map.values()
        and names[column_name] not in fields_by_column.values()
    }
    # A field in two columns is refused: neither of them is right by itself.
    columns_by_field: dict[str, str] = {}
    for column_name, field_name in fields_by_column.items():
        if columns_by_field.setdefault(field_name, column_name) != column_name:
            faults.add(
                location,
                f"{field_name} must be one column",
                "drop or rename one of them",
                f"{columns_by_field[field_name]} and {column_name}",
            )
    # Columns without a name come from an index that was written with the table.
    unread_columns = [
        column_name
        for column_name in column_names
        if column_name not in fields_by_column and column_name not in stated
    ]
    unused_columns = [
        column_name
        for column_name in unread_columns
        if column_name not in column_map.values()
        and (not column_name.strip() or column_name.startswith("Unnamed: ") or column_name in names)
    ]
    further_columns = [
        column_name for column_name in unread_columns if column_name not in unused_columns
    ]
    # A column whose name is close to a missing field is more often a slip than a wish.
    missing_fields = {*names.values()} - columns_by_field.keys()
    near_columns = {
        column_name: likely_fields
        for column_name in further_columns
        if column_name not in column_map.values()
        and (likely_fields := near_fields(column_name, names, missing_fields, near_names))
    }
    required_missing = [field_name for field_name in required if field_name in missing_fields]
    # The remedy is a map that the caller can copy, the clearest names first.
    suggested_map: dict[str, str] = {}  # a map that would do
    for column_name, likely_fields in sorted(
        near_columns.items(), key=lambda near_column: len(near_column[1])
    ):
        fitting_fields = [
            field_name
            for field_name in likely_fields
            if field_name in required_missing and field_name not in suggested_map
        ]
        # A name that may be several fields, or a field of several names, is the caller's to choose.
        if (suggested_fields := fitting_fields or likely_fields)[1:] and not fitting_fields:
            continue
        field_name = suggested_fields[0]
        suggested_map[field_name] = " or ".join(
            [*filter(None, [suggested_map.get(field_name)]), column_name]
        )
    absent_fields = [
        field_name for field_name in required_missing if field_name not in suggested_map
    ]
    map_text = json.dumps(suggested_map | dict.fromkeys(absent_fields, "…"), ensure_ascii=False)
    remedy = f"pass columns={map_text} (--columns ours=yours)"
    if near_columns:
        shown_columns = [
            f"{column_name!r}, which looks like {' or '.join(likely_fields)}"
            for column_name, likely_fields in near_columns.items()
        ]
        remedy += ", or map a name to itself to keep it"
        faults.add(location, "columns must have our names", remedy, shown_names(shown_columns))
    if absent_fields:
        faults.add(
            location,
            f"a table must have columns {', '.join(absent_fields)}",
            remedy,
            f"only {_shown(column_names)}",
        )
    return Places(columns_by_field, further_columns, unused_columns)


def _closest_map(column_map: Mapping[str, str], column_names: Sequence[str]) -> str:
    """The map with the only close column in the place of each that is absent, or an example."""
    closest_map = {}
    for field_name, column_name in column_map.items():
        free_names = [name for name in column_names if name not in column_map.values()]
        if column_name in column_names:
            close_names = [column_name]
        else:
            close_names = get_close_matches(str(column_name), free_names, 2)
        if len(close_names) == 1:
            closest_map[field_name] = close_names[0]
    if len(closest_map) < len(column_map) or closest_map == column_map:
        closest_map = {"query": "question"}
    return json.dumps(closest_map, ensure_ascii=False)


def near_fields(
    head: str,
    names: Mapping[str, str],
    lacking: Collection[str],
    near_names: NearNames = NEAR_NAMES,
) -> tuple[str, ...]:
    """Fields that a table lacks and a column may be, by its name.

    Example:
      >>> near_fields("Sources", {}, ["expect_sources", "expect_sources_any"])
      ('expect_sources',)
    """
    known_names = {*names}.union(*near_names.values())
    plain_head = plain_name(head)
    is_known = plain_head in known_names or head in KNOWN_EXTRA_KEYS
    close_names = (
        [plain_head]
        if is_known
        else get_close_matches(plain_head, known_names, n=1, cutoff=NEAR_CUTOFF)
    )
    likely_fields = [
        field_name
        for field_name, used_names in near_names.items()
        if not {*close_names}.isdisjoint(used_names)
    ]
    likely_fields += [names[close_name] for close_name in close_names if close_name in names]
    # sources are there by another name
    present_fields = {"expect_sources"} if "expect_sources_any" not in lacking else set()
    return tuple(
        field_name
        for field_name in dict.fromkeys(likely_fields)
        if field_name in lacking and field_name not in present_fields
    )


def plain_name(name: str) -> str:
    """A name of a column without regard to case, blanks, hyphens and underscores around it.

    Example:
      >>> plain_name("Gold-Source ")
      'gold_source'
    """
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def read_cells(
    table: SourceTable,
    places: Places,
    faults: Faults,
    further: Callable[[Any], Any],
    blank: Collection[str] = (),
) -> dict[str, list[Any]]:
    """Cells by field, and those of further columns by theirs; None where missing.

    Args:
      faults: takes cells of further columns that cannot be read.
      further: reads a cell of a further column, or raises a ValueError.
      blank: fields of texts that may be blank.

    Warns:
      UserWarning: columns are left out or empty, or texts such as `nan` are read as missing.
    """
    cells_by_field: dict[str, list[Any]] = {}
    missing_counts: Counter[str] = Counter()
    field_heads = [
        *places.heads.items(),
        *((column_name, column_name) for column_name in places.further),
    ]
    for field_name, column_name in field_heads:
        read_cell = CELL_READERS.get(field_name) if field_name in places.heads else further
        field_cells: list[Any] = []
        cells_by_field[field_name] = field_cells
        for row_index, cell in enumerate(table.columns[column_name]):
            is_text = isinstance(cell, str)
            is_word = is_text and cell in MISSING_TEXTS
            missing_counts[column_name] += is_word
            if (
                cell is None
                or is_word
                or (is_text and not cell.strip() and field_name not in blank)
            ):
                field_cells.append(None)
                continue
            try:
                field_cells.append(cell if read_cell is None else read_cell(cell))
            except ValueError as error:
                faults.add(
                    table.where(row_index, column_name),
                    f"{column_name} {error}",
                    "convert the column",
                    shown_value(cell),
                )
                field_cells.append(None)
    empty_columns = [
        column_name
        for field_name, column_name in field_heads
        if all(cell is None for cell in cells_by_field[field_name])
    ]
    shown_missing = [
        f"{shown_value(column_name)} ({n_missing:,})"
        for column_name, n_missing in missing_counts.items()
        if n_missing
    ]
    names_by_note = {
        "left out": shown_names([*table.left_out, *map(shown_value, places.left_out)]),
        "without a value": _shown(empty_columns),
        "cells such as nan or None read as missing": shown_names(shown_missing),
    }
    shown_notes = "; ".join(
        f"{note}: {noted_names}" for note, noted_names in names_by_note.items() if noted_names
    )
    if shown_notes:
        warn_user(visible(f"{table.name}: {shown_notes}."))
    return cells_by_field


def table_lines(
    table: SourceTable, places: Places, faults: Faults, further: Callable[[Any], Any], prefix: str
) -> Iterator[JsonLine]:
    """Rows as records of their cells, see `read_cells`; those that are missing left out.

    Args:
      prefix: of the ids of rows where no column holds them: c1, c2, …
    """
    cells_by_field = read_cells(table, places, faults, further)
    for row_index in range(table.size):
        record = {} if "id" in cells_by_field else {"id": f"{prefix}{row_index + 1}"}
        record |= {
            name: field_cells[row_index]
            for name, field_cells in cells_by_field.items()
            if field_cells[row_index] is not None
        }
        yield JsonLine(table.where(row_index), record)


def _shown(listed_names: Iterable[object]) -> str:
    return shown_names(map(shown_value, listed_names))


def holds_labels(heads: Iterable[str]) -> bool:
    """Whether heads of a table are those of labelled questions: a question and its label.

    A name that others give our fields counts too. One that may stand for anything, such as text or
    source, needs a name of ours on the other side.

    Example:
      >>> [
      ...     holds_labels(heads)
      ...     for heads in (["Question", "expected_source"], ["text", "source"], ["text", "label"])
      ... ]
      [True, False, True]
    """
    label_fields = ("expect_status", "expect_sources", "expect_sources_any")
    our_fields = {head_name: head_name for head_name in ("query", *label_fields)} | {
        "question": "query"
    }
    fields_by_head = {
        head_name: near_fields(head_name, our_fields, our_fields)
        for head_name in map(plain_name, heads)
    }
    question_heads = {
        head_name for head_name, likely_fields in fields_by_head.items() if "query" in likely_fields
    }
    label_heads = {
        head_name
        for head_name, likely_fields in fields_by_head.items()
        if {*likely_fields}.intersection(label_fields)
    }
    has_our_name = not {"label", *our_fields}.isdisjoint(question_heads | label_heads)
    loose_names = {head_name for names in LOOSE_NAMES.values() for head_name in names}
    return bool(question_heads and label_heads) and (
        has_our_name or not (question_heads <= loose_names or label_heads <= loose_names)
    )
