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
from raglab.store.case_labels import KNOWN_EXTRAS
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
ENDINGS = (*TEXT_ENDINGS, ".parquet")
FRAME = "frame"  # name of a DataFrame, in messages and as that of a corpus
NEAR = 0.8  # of difflib, from which a name is a slip of another
_MAP = "columns must map our names to those of the table"
_MAP_REMEDY = 'write {"query": "question"}'
NearNames = Mapping[str, Sequence[str]]  # what others call our fields, by field
_IDS = ("id", "case_id")  # fields that an index without them may hold
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
        value = self.labels[row]
        is_position = type(value) is int and value == row and self.label == "index"
        label = "" if is_position else f" ({self.label} {shown_value(value)})"
        return Where(f"{self.name}, row {row}{label}{f', column {column}' if column else ''}")


class Places(NamedTuple):
    """Columns of a table by our fields, further columns, and those that are left out."""

    heads: Mapping[str, str]
    further: Sequence[str]
    left_out: Sequence[str]


def is_table(path: Path) -> bool:
    """Whether a path is a file with the ending of a table."""
    return path.suffix.lower() in ENDINGS and path.is_file()


def read_table(
    source: pd.DataFrame | str | Path,
    names: Mapping[str, str],
    columns: Columns,
    *,
    name: str = FRAME,
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
    mapped = {} if columns is None else columns
    if not isinstance(mapped, Mapping):
        raise input_error(name, _MAP, _MAP_REMEDY, shown_value(columns))
    if not isinstance(source, str | Path):
        check_no_encoding(encoding, name)
        return _frame_table(source, names, mapped, name)
    path = Path(source)
    if path.suffix.lower() not in TEXT_ENDINGS:
        check_no_encoding(encoding, str(path))
        return _frame_table(parquet_frame(path), names, mapped, str(path))
    text = table_text(path, max_file_bytes, encoding=encoding, remedy=remedy)
    heads, *rows = csv_records(text, path)
    stripped = [head.strip() for head in heads.cells]
    check_heads([head for head in stripped if head], Where(str(path), heads.line))
    cells = {head: [row.cells[place] for row in rows] for place, head in enumerate(stripped)}
    return SourceTable(str(path), len(rows), cells, [row.line for row in rows], "line")


def _frame_table(
    frame: pd.DataFrame, names: Mapping[str, str], mapped: Mapping[str, str], name: str
) -> SourceTable:
    import pandas as pd

    where = Where(name)
    is_frame = isinstance(frame, pd.DataFrame)
    if not is_frame or not 0 < len(frame) <= MAX_TABLE_ROWS:
        raise input_error(
            where,
            f"a table must be a DataFrame of at least one row, at most {MAX_TABLE_ROWS:,}",
            "wrap, add or split them",
            f"{len(frame):,}" if is_frame else type(frame).__name__,
        )
    heads = [str(column) for column in frame.columns]
    check_heads(heads, where)
    columns = {head: _frame_cells(frame.iloc[:, place]) for place, head in enumerate(heads)}
    held = {names.get(head) for head in (*heads, *mapped)}
    left_out = []
    for level, head in enumerate(frame.index.names):
        known = head if isinstance(head, str) else ""
        is_free = known in names and names[known] not in held
        cells = frame.index.get_level_values(level).to_series()
        if known not in columns and (is_free or head in mapped.values()):
            columns[known] = _frame_cells(cells)
        elif held.isdisjoint(_IDS) and (head is not None or isinstance(cells.iloc[0], str)):
            left_out.append(f"the index {shown_value(head)}")
    return SourceTable(name, len(frame), columns, frame.index.tolist(), left_out=left_out)


def _frame_cells(series: pd.Series[Any]) -> list[Any]:
    values = series.tolist()
    try:
        gone = series.isna().tolist()
    except ArithmeticError:  # a signalling NaN of `decimal` raises where it is compared
        values = [... if isinstance(of, Decimal) and of.is_snan() else of for of in values]
        gone = list(map(is_missing, values))
    return [
        None if missing else value.tolist() if hasattr(value, "tolist") else value
        for value, missing in zip(values, gone, strict=True)
    ]


def place_columns(
    name: str,
    heads: Collection[str],
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
      heads: of its columns.
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
    where, mapped, heads = Where(name), columns or {}, [*heads]
    wrong = [field for field, head in mapped.items() if field not in names and field != head]
    if wrong := wrong or [head for head in mapped.values() if head not in heads]:
        raise input_error(
            where,
            _MAP,
            _MAP_REMEDY,
            f"{_shown(wrong)}, where the table has {_shown(heads)}",
        )
    fields = {head: names[field] for field, head in mapped.items() if field in names}
    fields |= {
        head: names[head]
        for head in heads
        if head in names and head not in mapped.values() and names[head] not in fields.values()
    }
    places: dict[str, str] = {}
    for head, field in fields.items():
        if places.setdefault(field, head) != head:
            faults.add(
                where,
                f"{field} must be one column",
                "drop or rename one of them",
                f"{places[field]} and {head}",
            )
    unread = [head for head in heads if head not in fields and head not in stated]
    left_out = [
        head
        for head in unread
        if head not in mapped.values()
        and (not head.strip() or head.startswith("Unnamed: ") or head in names)
    ]
    further = [head for head in unread if head not in left_out]
    lacking = {*names.values()} - places.keys()
    near = {
        head: meant
        for head in further
        if head not in mapped.values() and (meant := near_fields(head, names, lacking, near_names))
    }
    missing = [field for field in required if field in lacking]
    pairs: dict[str, str] = {}  # a map that would do
    for head, meant in sorted(near.items(), key=lambda pair: len(pair[1])):
        wanted = [field for field in meant if field in missing and field not in pairs]
        pairs.setdefault((wanted or meant)[0], head)
    absent = [field for field in missing if field not in pairs]
    map_text = json.dumps(pairs | dict.fromkeys(absent, "…"), ensure_ascii=False)
    remedy = f"pass columns={map_text} (--columns ours=yours)"
    if near:
        shown = [f"{head!r}, which looks like {' or '.join(meant)}" for head, meant in near.items()]
        remedy += ", or map a name to itself to keep it"
        faults.add(where, "columns must have our names", remedy, shown_names(shown))
    if absent:
        faults.add(
            where, f"a table must have columns {', '.join(absent)}", remedy, f"only {_shown(heads)}"
        )
    return Places(places, further, left_out)


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
    known = {*names}.union(*near_names.values())
    plain = plain_name(head)
    is_known = plain in known or head in KNOWN_EXTRAS
    close = [plain] if is_known else get_close_matches(plain, known, n=1, cutoff=NEAR)
    meant = [field for field, used in near_names.items() if not {*close}.isdisjoint(used)]
    meant += [names[name] for name in close if name in names]
    # sources are there by another name
    elsewhere = {"expect_sources"} if "expect_sources_any" not in lacking else set()
    return tuple(
        field for field in dict.fromkeys(meant) if field in lacking and field not in elsewhere
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
    columns: dict[str, list[Any]] = {}
    words: Counter[str] = Counter()
    heads = [*places.heads.items(), *((head, head) for head in places.further)]
    for field, head in heads:
        reader = CELL_READERS.get(field) if field in places.heads else further
        cells: list[Any] = []
        columns[field] = cells
        for row, cell in enumerate(table.columns[head]):
            is_text = isinstance(cell, str)
            is_word = is_text and cell in MISSING_TEXTS
            words[head] += is_word
            if cell is None or is_word or (is_text and not cell.strip() and field not in blank):
                cells.append(None)
                continue
            try:
                cells.append(cell if reader is None else reader(cell))
            except ValueError as error:
                faults.add(
                    table.where(row, head),
                    f"{head} {error}",
                    "convert the column",
                    shown_value(cell),
                )
                cells.append(None)
    empty = [head for field, head in heads if all(cell is None for cell in columns[field])]
    texts = [f"{shown_value(head)} ({count:,})" for head, count in words.items() if count]
    notes = {
        "left out": shown_names([*table.left_out, *map(shown_value, places.left_out)]),
        "without a value": _shown(empty),
        "cells such as nan or None read as missing": shown_names(texts),
    }
    shown = "; ".join(f"{what}: {names}" for what, names in notes.items() if names)
    if shown:
        warn_user(visible(f"{table.name}: {shown}."))
    return columns


def table_lines(
    table: SourceTable, places: Places, faults: Faults, further: Callable[[Any], Any], prefix: str
) -> Iterator[JsonLine]:
    """Rows as records of their cells, see `read_cells`; those that are missing left out.

    Args:
      prefix: of the ids of rows where no column holds them: c1, c2, …
    """
    columns = read_cells(table, places, faults, further)
    for row in range(table.size):
        record = {} if "id" in columns else {"id": f"{prefix}{row + 1}"}
        record |= {field: of[row] for field, of in columns.items() if of[row] is not None}
        yield JsonLine(table.where(row), record)


def _shown(names: Iterable[object]) -> str:
    return shown_names(map(shown_value, names))


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
    labels = ("expect_status", "expect_sources", "expect_sources_any")
    fields = {name: name for name in ("query", *labels)} | {"question": "query"}
    meant = {name: near_fields(name, fields, fields) for name in map(plain_name, heads)}
    questions = {name for name, of in meant.items() if "query" in of}
    answers = {name for name, of in meant.items() if {*of}.intersection(labels)}
    own = not {"label", *fields}.isdisjoint(questions | answers)
    loose = {name for names in LOOSE_NAMES.values() for name in names}
    return bool(questions and answers) and (own or not (questions <= loose or answers <= loose))
