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

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.store.cells import CELL_READERS, MISSING_TEXTS, is_missing, json_value
from raglab.store.csv_tables import MAX_TABLE_ROWS, check_heads, csv_records, table_text
from raglab.store.encodings import ENCODING_REMEDY, Encoding
from raglab.store.files import MAX_FILE_BYTES, JsonLine, Where, input_error, shown_value
from raglab.store.folders import is_folder
from raglab.store.records import Faults
from raglab.store.trace_files import damage_errors, parquet_frame
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

TEXT_ENDINGS = (".csv", ".tsv")
ENDINGS = (*TEXT_ENDINGS, ".parquet")
FRAME = "frame"  # name of a DataFrame, in messages and as that of a corpus
NEAR = 0.85  # of difflib, from which a name is a slip of another
_SHOWN = 10  # names that a message lists
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
        ("gold_source", "gold_sources", "gold_document", "gold_documents", "doc_id", "doc_ids"),
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
    """

    name: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any] = ()
    label: str = "index"

    def where(self, row: int, column: str = "") -> Where:
        """Place of a row or cell."""
        value = self.labels[row] if len(self.labels) else row
        whole = int(value) if isinstance(value, int | np.integer) else None
        shown = shown_value(value) if whole is None else whole
        label = "" if whole == row and self.label == "index" else f" ({self.label} {shown})"
        return Where(f"{self.name}, row {row}{label}{f', column {column}' if column else ''}")


class Places(NamedTuple):
    """Columns of a table by our fields, further columns, and notes about others."""

    heads: Mapping[str, str]
    further: tuple[str, ...]
    notes: tuple[str, ...]


def is_table(path: Path, endings: Collection[str] = ENDINGS) -> bool:
    """Whether a path is a file with the ending of a table."""
    return path.suffix.lower() in endings and not is_folder(path) and path.exists()


def read_table(
    source: pd.DataFrame | str | Path,
    index: Collection[str],
    *,
    name: str = FRAME,
    max_file_bytes: int = MAX_FILE_BYTES,
    encoding: Encoding = None,
    remedy: str = ENCODING_REMEDY,
) -> Table:
    """Table of a DataFrame or a file.

    Args:
      index: names whose level of a frame's index counts as a column where no column has them.
      name: of a frame, in messages.
      encoding: of a CSV or TSV file, see `raglab.store.csv_tables.table_text`.
      remedy: of a text that is not UTF-8.

    Raises:
      InputError: it is no table.
    """
    if not isinstance(source, str | Path):
        return _frame_table(source, index, name)
    path = Path(source)
    if path.suffix.lower() not in TEXT_ENDINGS:
        try:
            return _frame_table(parquet_frame(path), index, str(path))
        except damage_errors() as error:
            rule = "the file must be a whole Parquet file"
            raise input_error(Where(str(path)), rule, "write it again", str(error)) from error
    text = table_text(path, max_file_bytes, encoding=encoding, remedy=remedy)
    heads, *rows = csv_records(text, path)
    names = [head.strip() for head in heads.cells]
    check_heads([head for head in names if head], Where(str(path), heads.line))
    columns = {
        head: [cell if (cell := row.cells[place]).strip() else None for row in rows]
        for place, head in enumerate(names)
    }
    return Table(str(path), len(rows), columns, [row.line for row in rows], "line")


def _frame_table(frame: pd.DataFrame, index: Collection[str], name: str) -> Table:
    import pandas as pd

    where = Where(name)
    if not isinstance(frame, pd.DataFrame):
        rule = "the table must be a pandas DataFrame"
        raise input_error(where, rule, "wrap it in one", type(frame).__name__)
    if not 0 < len(frame) <= MAX_TABLE_ROWS:
        rule = f"a frame must have at least one row and at most {MAX_TABLE_ROWS:,}"
        raise input_error(where, f"{rule} rows", "add or split them", f"{len(frame):,}")
    heads = [str(column) for column in frame.columns]
    if len(heads) == 1 and any(mark in heads[0] for mark in ";\t|"):
        rule, remedy = "a frame must have a column a field", "read its file by its delimiter (sep=)"
        raise input_error(where, rule, remedy, f"only {shown_value(heads[0])}")
    check_heads(heads, where)
    columns = {head: _frame_cells(frame.iloc[:, place]) for place, head in enumerate(heads)}
    for level, head in enumerate(frame.index.names):
        if head in index and head not in columns:
            columns[str(head)] = _frame_cells(pd.Series(frame.index.get_level_values(level)))
    return Table(name, len(frame), columns, frame.index)


def _frame_cells(series: pd.Series[Any]) -> list[Any]:
    values = series.tolist()
    try:
        gone = series.isna().tolist()
    except ArithmeticError:  # a signalling NaN of `decimal` raises where it is compared
        gone = list(map(is_missing, values))
    return [
        None
        if missing or (isinstance(value, str) and not value.strip())
        else value.item()
        if isinstance(value, np.generic)
        else value
        for value, missing in zip(values, gone, strict=True)
    ]


def place_columns(
    table: Table,
    names: Mapping[str, str],
    columns: Mapping[str, str] | None,
    faults: Faults,
    *,
    required: Collection[str] = (),
    stated: Collection[str] = (),
    near_names: Mapping[str, tuple[str, ...]] = NEAR_NAMES,
) -> Places:
    """Which column of the table each field is.

    Args:
      names: of fields and their aliases -> field.
      columns: what the caller states: our names -> columns of the table.
      faults: takes fields that are missing, and columns that are there twice or look like a field.
      required: fields that must be there.
      stated: further columns that the caller names.
      near_names: what others call our fields.

    Raises:
      InputError: `columns` is no map of our names to columns of the table.
    """
    where, mapped = Where(table.name), _checked_map(table, names, columns)
    own = {user: field for field, user in mapped.items() if field in names}
    kept = {*mapped.values(), *stated}
    heads: dict[str, str] = {}
    for head in table.columns:
        field = names.get(own[head]) if head in own else None if head in kept else names.get(head)
        if field is None:
            continue
        if field in heads and (head in own) == (heads[field] in own):
            value = f"{heads[field]} and {head}"
            faults.add(where, f"{field} must be one column", "drop or rename one of them", value)
        elif field not in heads or head in own:
            heads[field] = head
    others = [head for head in table.columns if head not in heads.values() and head not in stated]
    dropped = [
        head for head in others if not head.strip() or head.startswith("Unnamed: ") or head in names
    ]
    further = [head for head in others if head not in dropped]
    lacking = {*names.values()} - heads.keys()
    near = {
        head: fields
        for head in further
        if head not in kept and (fields := near_fields(head, names, lacking, near_names))
    }
    _note_near_names(where, near, faults, lacking.intersection(required))
    for field in required:
        if field in lacking and not any(field in fields for fields in near.values()):
            there = shown_value(", ".join(table.columns), 200)
            remedy = f'name its column by columns={{"{field}": "…"}} (--columns {field}=…)'
            faults.add(where, f"the column {field} is required", remedy, f"only {there}")
    empty = [
        head
        for head in (*heads.values(), *further)
        if all(cell is None for cell in table.columns[head])
    ]
    notes = [f"left out: {_named(dropped)}"] if dropped else []
    notes += [f"no value in any row: {_named(empty)}"] if empty else []
    return Places(heads, tuple(further), tuple(notes))


def _checked_map(
    table: Table, names: Mapping[str, str], columns: Mapping[str, str] | None
) -> Mapping[str, str]:
    where, stated = Where(table.name), columns or {}
    rule, remedy = "columns must map our names to those of the table", 'write {"query": "question"}'
    if not isinstance(stated, Mapping) or not all(
        isinstance(name, str) for pair in stated.items() for name in pair
    ):
        raise input_error(where, rule, remedy, shown_value(columns))
    # {"status": "status"} says that a column is a further one, whatever it looks like
    strange = [name for name, head in stated.items() if name not in names and name != head]
    if strange:
        rule += f", which are {', '.join(names)}"
        raise input_error(where, rule, "write ours first, then yours", _named(strange))
    if absent := [head for head in stated.values() if head not in table.columns]:
        value = f"{_named(absent)}, where it has {_named([*table.columns])}"
        raise input_error(where, rule, "correct the name; ours comes first", value)
    return stated


def near_fields(
    head: str,
    names: Mapping[str, str],
    lacking: Collection[str],
    near_names: Mapping[str, tuple[str, ...]] = NEAR_NAMES,
) -> tuple[str, ...]:
    """Fields that a table lacks and a column may be, by its name.

    Example:
      >>> near_fields("Sources", {}, ["expect_sources"]), near_fields("team", {}, ["split"])
      (('expect_sources',), ())
    """
    plain = plain_name(head)
    if plain in near_names:
        meant = near_names[plain]
    else:
        close = get_close_matches(plain, (*names, *near_names), n=1, cutoff=NEAR)
        meant = next((near_names.get(name, (names.get(name, ""),)) for name in close), ())
    # sources are there by another name
    elsewhere = {"expect_sources"} if "expect_sources_any" not in lacking else set()
    return tuple(field for field in meant if field in lacking and field not in elsewhere)


def plain_name(name: str) -> str:
    """A name of a column without regard to case, blanks, hyphens and underscores around it.

    Example:
      >>> plain_name("Gold-Source ")
      'gold_source'
    """
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def _note_near_names(
    where: Where, near: Mapping[str, tuple[str, ...]], faults: Faults, missing: Collection[str]
) -> None:
    """Note columns that look like fields which the table lacks, with one map for all of them."""
    if not near:
        return
    pairs: dict[str, str] = {}
    for head, fields in sorted(near.items(), key=lambda pair: len(pair[1])):
        wanted = [field for field in fields if field in missing and field not in pairs]
        pairs.setdefault((wanted or fields)[0], head)
    stated = ", ".join(f'"{field}": "{head}"' for field, head in pairs.items())
    value = ", ".join(
        f"{shown_value(head)}, which looks like {' or '.join(fields)}"
        for head, fields in [*near.items()][:_SHOWN]
    )
    head = next(iter(near))
    remedy = f'pass columns={{{stated}}}, or {{"{head}": "{head}"}} to keep it as a further one'
    faults.add(where, "columns must have our names", remedy, value)


def table_lines(
    table: Table,
    places: Places,
    faults: Faults,
    further: Callable[[Any], Any] = json_value,
) -> Iterator[tuple[JsonLine, dict[str, Any]]]:
    """Rows as records with our names, and what their further columns hold; None where missing.

    Args:
      faults: takes cells of further columns that cannot be read.
      further: reads such a cell, or raises a ValueError.

    Warns:
      UserWarning: columns are left out, or texts such as `nan` are read as missing.
    """
    words: dict[str, int] = {}
    columns = {
        field: _read_cells(table, head, CELL_READERS.get(field), words, faults)
        for field, head in places.heads.items()
    }
    others = {head: _read_cells(table, head, further, words, faults) for head in places.further}
    notes = [*places.notes]
    if words:
        counts = [f"{shown_value(head)} ({count:,})" for head, count in words.items()]
        notes.append(f"cells such as nan or None read as missing: {_listed(counts)}")
    if notes:
        warn_user(visible(f"{table.name}: {'; '.join(notes)}."))
    for row in range(table.size):
        record = {field: cells[row] for field, cells in columns.items()}
        yield JsonLine(table.where(row), record), {head: of[row] for head, of in others.items()}


def _read_cells(
    table: Table,
    head: str,
    reader: Callable[[Any], Any] | None,
    words: dict[str, int],
    faults: Faults,
) -> Sequence[Any]:
    """Cells of a column as its field has them, and how many are words for no value."""
    cells = table.columns[head]
    if any(isinstance(cell, str) and cell in MISSING_TEXTS for cell in cells):
        gone = [isinstance(cell, str) and cell in MISSING_TEXTS for cell in cells]
        words[head] = sum(gone)
        cells = [None if out else cell for cell, out in zip(cells, gone, strict=True)]
    if reader is None:
        return cells
    values = []
    for row, cell in enumerate(cells):
        try:
            values.append(None if cell is None else reader(cell))
        except ValueError as error:
            remedy = "convert the column, or drop it"
            faults.add(table.where(row, head), f"{head} {error}", remedy, shown_value(cell))
            values.append(None)
    return values


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    )


def _named(names: Sequence[str]) -> str:
    return _listed([shown_value(name) if name.strip() else "one without a name" for name in names])


def holds_labels(heads: Collection[str]) -> bool:
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
