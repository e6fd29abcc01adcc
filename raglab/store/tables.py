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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.store.case_labels import KNOWN_EXTRAS
from raglab.store.cells import CELL_READERS, MISSING_TEXTS, is_missing
from raglab.store.csv_tables import MAX_TABLE_ROWS, check_heads, csv_records, table_text
from raglab.store.encodings import ENCODING_REMEDY, Encoding
from raglab.store.files import MAX_FILE_BYTES, JsonLine, Where, input_error, shown_value
from raglab.store.folders import is_folder
from raglab.store.records import Faults
from raglab.store.trace_files import parquet_frame
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

TEXT_ENDINGS = (".csv", ".tsv")
ENDINGS = (*TEXT_ENDINGS, ".parquet")
FRAME = "frame"  # name of a DataFrame, in messages and as that of a corpus
NEAR = 0.8  # of difflib, from which a name is a slip of another
_SHOWN = 10  # names that a message lists
_IDS = ("id", "case_id")  # fields that an index without them may hold
# What other sets call our fields. A loose name is found in tables of any other kind too.
LOOSE_NAMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("input", "text", "prompt", "utterance", "claim", "message"), ("query",)),
    **dict.fromkeys(("status", "outcome", "expected_outcome"), ("expect_status",)),
    **dict.fromkeys(("gold", "expected"), ("expect_sources", "expect_status", "answer")),
    **dict.fromkeys(
        ("source", "sources", "evidence", "citations", "references"), ("expect_sources",)
    ),
    **dict.fromkeys(("file", "files", "doc", "docs", "document", "documents"), ("expect_sources",)),
    "reference": ("answer",),
}
NEAR_NAMES: Mapping[str, tuple[str, ...]] = {
    **LOOSE_NAMES,
    **dict.fromkeys(("user_input", "user_query", "query_text"), ("query",)),
    **dict.fromkeys(("gold_label", "answerable"), ("expect_status",)),
    **dict.fromkeys(
        (
            *("gold_source", "gold_sources", "gold_document", "gold_documents", "gold_doc"),
            *("gold_docs", "relevant_docs", "doc_id", "doc_ids"),
        ),
        ("expect_sources",),
    ),
    **dict.fromkeys(
        ("ground_truth", "reference_answer", "gold_answer", "expected_answer"), ("answer",)
    ),
    **dict.fromkeys(("fold", "subset", "partition"), ("split",)),
    "label": ("expect_status",),
    "case_id": ("id",),
}


class Table(NamedTuple):
    """Columns of a table, None where a cell is missing.

    name: in messages. size: rows. columns: a value a row, by head. labels, label: what rows are
    called beside their positions, which count from 0: the index of a frame, the lines of a file.
    left_out: levels of an index that are not read.
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any] = ()
    label: str = "index"
    left_out: Sequence[str] = ()

    def where(self, row: int, column: str = "") -> Where:
        """Place of a row or cell."""
        value = self.labels[row] if len(self.labels) else row
        whole = int(value) if isinstance(value, int | np.integer) else None
        shown = shown_value(value) if whole is None else whole
        label = "" if whole == row and self.label == "index" else f" ({self.label} {shown})"
        return Where(f"{self.name}, row {row}{label}{f', column {column}' if column else ''}")


class Places(NamedTuple):
    """Columns of a table by our fields, further columns, and those that are left out."""

    heads: Mapping[str, str]
    further: Sequence[str]
    left_out: Sequence[str]


def is_table(path: Path) -> bool:
    """Whether a path is a file with the ending of a table."""
    return path.suffix.lower() in ENDINGS and not is_folder(path) and path.exists()


def read_table(
    source: pd.DataFrame | str | Path,
    names: Mapping[str, str],
    columns: Mapping[str, str] | None,
    *,
    name: str = FRAME,
    max_file_bytes: int = MAX_FILE_BYTES,
    encoding: Encoding = None,
    remedy: str = ENCODING_REMEDY,
) -> Table:
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
    mapped = dict(columns) if isinstance(columns, Mapping) else {}
    if not isinstance(source, str | Path):
        return _frame_table(source, names, mapped, name)
    path = Path(source)
    if path.suffix.lower() not in TEXT_ENDINGS:
        return _frame_table(parquet_frame(path), names, mapped, str(path))
    text = table_text(path, max_file_bytes, encoding=encoding, remedy=remedy)
    heads, *rows = csv_records(text, path)
    stripped = [head.strip() for head in heads.cells]
    check_heads([head for head in stripped if head], Where(str(path), heads.line))
    cells = {head: [row.cells[place] for row in rows] for place, head in enumerate(stripped)}
    return Table(str(path), len(rows), cells, [row.line for row in rows], "line")


def _frame_table(
    frame: pd.DataFrame, names: Mapping[str, str], mapped: Mapping[str, str], name: str
) -> Table:
    import pandas as pd

    where = Where(name)
    if not isinstance(frame, pd.DataFrame):
        raise input_error(
            where, "the table must be a pandas DataFrame", "wrap it in one", type(frame).__name__
        )
    if not 0 < len(frame) <= MAX_TABLE_ROWS:
        raise input_error(
            where,
            f"a frame must have at least one row, at most {MAX_TABLE_ROWS:,} rows",
            "add or split them",
            f"{len(frame):,}",
        )
    heads = [str(column) for column in frame.columns]
    if len(heads) == 1 and any(mark in heads[0] for mark in ";\t|"):
        raise input_error(
            where,
            "a frame must have a column a field",
            "read its file with sep=",
            f"only {shown_value(heads[0])}",
        )
    check_heads(heads, where)
    columns = {head: _frame_cells(frame.iloc[:, place]) for place, head in enumerate(heads)}
    held = {names.get(head) for head in (*heads, *mapped)}
    left_out = []
    for level, head in enumerate(frame.index.names):
        known = head if isinstance(head, str) else ""
        cells = frame.index.get_level_values(level)
        is_free = known in names and names[known] not in held
        if (is_free or head in mapped.values()) and known not in columns:
            columns[known] = _frame_cells(pd.Series(cells))
        elif (head is not None or isinstance(cells[0], str)) and held.isdisjoint(_IDS):
            left_out.append(f"the index {shown_value(head)}")
    labels: Any = frame.index  # as long as the frame, read where an error asks
    return Table(name, len(frame), columns, labels, left_out=left_out)


def _frame_cells(series: pd.Series[Any]) -> list[Any]:
    values = series.tolist()
    try:
        gone = series.isna().tolist()
    except ArithmeticError:  # a signalling NaN of `decimal` raises where it is compared
        values = [... if isinstance(of, Decimal) and of.is_snan() else of for of in values]
        gone = list(map(is_missing, values))
    plain = (None if missing else value for value, missing in zip(values, gone, strict=True))
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def place_columns(
    name: str,
    heads: Collection[str],
    names: Mapping[str, str],
    columns: Mapping[str, str] | None,
    faults: Faults,
    *,
    required: Collection[str] = (),
    stated: Collection[str] = (),
    near_names: Mapping[str, tuple[str, ...]] = NEAR_NAMES,
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
    where, mapped = Where(name), columns or {}
    rule, remedy = "columns must map our names to those of the table", 'write {"query": "question"}'
    if not isinstance(mapped, Mapping) or not all(map(_is_text, (*mapped, *mapped.values()))):
        raise input_error(where, rule, remedy, shown_value(columns))
    wrong = [ours for ours, head in mapped.items() if ours not in names and ours != head]
    if wrong := wrong or [head for head in mapped.values() if head not in heads]:
        raise input_error(
            where,
            f"{rule}, ours first",
            remedy,
            f"{_named(wrong)}, where the table has {_named([*heads])}",
        )
    fields = {head: names[ours] for ours, head in mapped.items() if ours in names}
    held = {*fields.values()}
    for head in heads:
        if head in names and head not in mapped.values() and names[head] not in held:
            fields[head] = names[head]
    places: dict[str, str] = {}
    for head, field in fields.items():
        if places.setdefault(field, head) != head:
            faults.add(
                where,
                f"{field} must be one column",
                "drop or rename one of them",
                f"{places[field]} and {head}",
            )
    others = [head for head in heads if head not in fields and head not in stated]
    left_out = [
        head for head in others if not head.strip() or head.startswith("Unnamed: ") or head in names
    ]
    left_out = [head for head in left_out if head not in mapped.values()]
    further = [head for head in others if head not in left_out]
    lacking = {*names.values()} - places.keys()
    near = {
        head: meant
        for head in further
        if head not in mapped.values() and (meant := near_fields(head, names, lacking, near_names))
    }
    missing = [field for field in required if field in lacking]
    _note_missing(where, near, missing, heads, faults)
    return Places(places, further, left_out)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def near_fields(
    head: str,
    names: Mapping[str, str],
    lacking: Collection[str],
    near_names: Mapping[str, tuple[str, ...]] = NEAR_NAMES,
) -> tuple[str, ...]:
    """Fields that a table lacks and a column may be, by its name.

    Example:
      >>> near_fields("Sources", {}, ["expect_sources", "expect_sources_any"])
      ('expect_sources',)
    """
    known = {name: (field,) for name, field in names.items()} | dict(near_names)
    plain = plain_name(head)
    close = [plain] if plain in known or head in KNOWN_EXTRAS else []
    close = close or get_close_matches(plain, known, n=1, cutoff=NEAR)
    # sources are there by another name
    elsewhere = {"expect_sources"} if "expect_sources_any" not in lacking else set()
    meant = [field for name in close for field in known.get(name, ())]
    return tuple(field for field in meant if field in lacking and field not in elsewhere)


def plain_name(name: str) -> str:
    """A name of a column without regard to case, blanks, hyphens and underscores around it.

    Example:
      >>> plain_name("Gold-Source ")
      'gold_source'
    """
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def _note_missing(
    where: Where,
    near: Mapping[str, tuple[str, ...]],
    missing: Sequence[str],
    heads: Collection[str],
    faults: Faults,
) -> None:
    """Note fields that are missing, and columns that look like one, with a map for all of them."""
    pairs: dict[str, str] = {}
    for head, fields in sorted(near.items(), key=lambda pair: len(pair[1])):
        wanted = [field for field in fields if field in missing and field not in pairs]
        pairs.setdefault((wanted or fields)[0], head)
    absent = [field for field in missing if field not in pairs]
    stated = ", ".join(f'"{field}": "{head}"' for field, head in pairs.items())
    stated += "".join(f'{", " * bool(stated or n)}"{field}": "…"' for n, field in enumerate(absent))
    remedy = f"pass columns={{{stated}}} (--columns ours=yours)"
    if near:
        looks = [f"{head!r}, which looks like {' or '.join(of)}" for head, of in near.items()]
        head = next(iter(near))
        keep = f'{remedy}, or {{"{head}": "{head}"}} to keep it as it is'
        faults.add(where, "columns must have our names", keep, _listed(looks))
    if absent:
        faults.add(
            where,
            f"a table must have columns {', '.join(absent)}",
            remedy,
            f"only {_named([*heads])}",
        )


def read_cells(
    table: Table,
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
    words: dict[str, int] = {}
    heads = [*places.heads.items(), *((head, head) for head in places.further)]
    for field, head in heads:
        reader = CELL_READERS.get(field) if field in places.heads else further
        columns[field] = cells = []
        for row, cell in enumerate(table.columns[head]):
            is_word = isinstance(cell, str) and cell in MISSING_TEXTS
            is_blank = isinstance(cell, str) and not cell.strip() and field not in blank
            words[head] = words.get(head, 0) + is_word
            try:
                missing = cell is None or is_word or is_blank
                cells.append(None if missing else cell if reader is None else reader(cell))
            except ValueError as error:
                where = table.where(row, head)
                faults.add(where, f"{head} {error}", "convert the column", shown_value(cell))
                cells.append(None)
    empty = [head for field, head in heads if all(cell is None for cell in columns[field])]
    texts = [f"{shown_value(head)} ({count:,})" for head, count in words.items() if count]
    left_out = [*table.left_out, *(_named([head]) for head in places.left_out)]
    notes = {
        "left out": _listed(left_out),
        "without a value": empty and _named(empty),
        "cells such as nan or None read as missing": _listed(texts),
    }
    if any(notes.values()):
        told = "; ".join(f"{what}: {shown}" for what, shown in notes.items() if shown)
        warn_user(visible(f"{table.name}: {told}."))
    return columns


def table_lines(
    table: Table, places: Places, faults: Faults, further: Callable[[Any], Any]
) -> Iterator[JsonLine]:
    """Rows as records of their cells, see `read_cells`; those that are missing left out."""
    columns = read_cells(table, places, faults, further)
    for row in range(table.size):
        record = {field: of[row] for field, of in columns.items() if of[row] is not None}
        yield JsonLine(table.where(row), record)


def named_lines(lines: Iterable[JsonLine], places: Places) -> Iterator[JsonLine]:
    """Lines of JSON under our names."""
    fields = {head: field for field, head in places.heads.items()}
    for line in lines:
        pairs = line.record.items()
        yield line._replace(
            record={fields.get(key, key): of for key, of in pairs if key not in places.left_out}
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _named(names: Sequence[str]) -> str:
    return _listed([shown_value(name) if name.strip() else "one without a name" for name in names])


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
    loose = questions <= LOOSE_NAMES.keys() or answers <= LOOSE_NAMES.keys()
    return bool(questions and answers) and (own or not loose)
