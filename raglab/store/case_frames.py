"""Tables of cases and chunks (shore): rows of DataFrame, CSV or TSV as JSON line records (S6.1).

A row is a case or a chunk. A column has one of our names (`CASE_COLUMNS`, `CHUNK_COLUMNS`), or
`columns` says which one stands for it. A cell that is None, NaN or blank is absent. A cell of
several texts is a list, tuple or array, or one text: a JSON list, or parts with semicolons between.
An index of a frame that has the name of a field which no column holds is its column, such as `id`.
Whatever other columns there are, a case keeps in `extra` and a chunk in `tags`; those without a
name, such as an index that was written with the table, are left out. A column of a table of cases
that looks like a field which the table lacks is an error, which proposes the name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWER_RIGHT, JUDGE_RIGHT
from raglab.store.case_labels import (
    REQUIRED,
    near_name_error,
    near_names,
    plain_name,
    status_remedy,
)
from raglab.store.cells import (
    Cells,
    ColumnRule,
    cell_text,
    check_heads,
    column_places,
    field_names,
    filled_text,
    frame_cells,
    integer_from,
    is_missing,
    json_cell,
    listed,
    listed_sources,
    read_columns,
    warn_of_empty_columns,
)
from raglab.store.csv_tables import csv_records, table_text
from raglab.store.encodings import CASES_ENCODING_REMEDY, ENCODING_REMEDY
from raglab.store.files import JsonLine, Where, input_error, shown_value
from raglab.store.folders import is_folder
from raglab.store.record_fields import MAX_NAME, flat_name
from raglab.values import LONGEST_QUESTION, STATUS_NAMES, document_path
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".tsv")
_HEADS_SHOWN = 20  # in a message
_LABEL_FIELDS = ("expect_status", "expect_sources", "expect_sources_any")
# Names of others that a table of another kind has as well.
_LOOSE_NAMES = frozenset(
    {
        *("input", "text", "sentence", "message", "request", "prompt", "utterance", "claim"),
        *(
            "status",
            "outcome",
            "expected",
            "source",
            "sources",
            "relevant",
            "reference",
            "references",
            "file",
            "document",
        ),
        *(
            "files",
            "documents",
            "doc",
            "docs",
            "filename",
            "file_name",
            "citation",
            "citations",
            "evidence",
        ),
        *("anfrage", "quelle", "quellen", "dokument", "dokumente", "erwartung", "erwartet"),
        *("fichier", "fichiers", "statut", "étiquette", "attendu", "attente"),
    }
)
_QUESTION_NAMES = frozenset({"frage", "fragestellung"})  # which say what ours say
FRAME = "frame"  # name of a DataFrame, in messages and as that of a corpus


def source_rule(source: str) -> tuple[str, str] | None:
    """Rule that a source of a case breaks, and the remedy.

    None where it is `path` or `path#page`.
    """
    path, mark, page = document_path(source).rpartition("#")
    if (
        mark
        and "/" not in page
        and not (path and page.isascii() and page.isdigit() and page.strip("0"))
    ):
        return (
            "path or path#page, page an integer",
            "give the page's number from 1, not its printed label",
        )
    return None


def check_no_columns(columns: Mapping[str, str] | None, place: Path) -> None:
    """Refuse a map of columns where there are none."""
    if columns is not None:
        rule = f"columns must come with a DataFrame or a file {' or '.join(ENDINGS)}"
        raise input_error(
            Where(str(place)), rule, "leave columns out, or check the path", shown_value(place.name)
        )


def _name(value: object) -> str | None:
    """Text that is not blank; integers, which frames hold ids as, in their digits."""
    whole = None if isinstance(value, str) else integer_from(0)(value)
    text = filled_text(value) if whole is None else str(whole)
    return text if text is not None and len(text) <= MAX_NAME else None


def _question(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= LONGEST_QUESTION else None


def _status(value: object) -> str | None:
    return value if isinstance(value, str) and value in STATUS_NAMES else None


def _texts(value: object) -> list[str] | None:
    """Texts of a cell that holds several; see the head of this module."""
    items = listed(value)
    if not isinstance(items, list | tuple) or not all(
        isinstance(item, str) and _name(item) == item for item in items
    ):
        return None
    return list(items)


def _sources(value: object) -> list[str] | None:
    sources = _texts(listed_sources(value))
    return None if sources is None or any(map(source_rule, sources)) else sources


def _sources_remedy(_name: str, cells: Sequence[object]) -> str:
    items = listed_sources(cells[0])
    for source in items if isinstance(items, list | tuple) else ():
        broken = source_rule(source) if isinstance(source, str) else None
        if broken is not None:
            return f"{broken[1]}, in {shown_value(source)}"
    if items is None and isinstance(cells[0], str) and not cells[0].lstrip().startswith("["):
        several = ";".join(part.strip() for part in re.split("[,|;]", cells[0]))
        return (
            f"did you mean several? Write {shown_value(several)}: of expect_sources all are "
            "needed, of "
            "expect_sources_any one of them"
        )
    return 'write a list, a JSON list such as ["a.md", "b.md#2"], or a.md;b.md#2'


def _json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A cell as JSON holds it, None where it cannot."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_value)
        text.encode()
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _plain_value(value: object) -> Any:  # noqa: ANN401 - a list or a number
    """What a NumPy array or number holds, as those of Hugging Face have them inside a cell."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    msg = f"no JSON value: {type(value).__name__}"
    raise TypeError(msg)


def _tag(value: object) -> str | None:
    """Text or number of a cell as a text.

    2020.0, which pandas makes of 2020 beside a missing one, is 2020.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    finite = (isinstance(value, int) and abs(value) < 2**63) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return str(int(value) if whole else value) if finite else None


def _tags(value: object) -> dict[str, str] | None:
    """Tags of a cell that holds them all: a mapping of texts, or a JSON object of them."""
    tags = json_cell(value) if isinstance(value, str) else value
    if not isinstance(tags, Mapping) or any(
        not isinstance(text, str) for pair in tags.items() for text in pair
    ):
        return None
    return dict(tags)


AS_TEXT = "convert the column with .astype(str)"
_TEXT = ColumnRule(cell_text, "a text", AS_TEXT)
_ID_RULE = f"a text or an integer from 0, of at most {MAX_NAME} characters"
_STATUS_RULE = f"one of {', '.join(STATUS_NAMES)}"
_QUESTION_RULE = f"a text of at most {LONGEST_QUESTION} characters"
_SOURCES = ColumnRule(
    _sources,
    "texts, each path or path#page, page an integer from 1, with semicolons between several",
    _sources_remedy,
)


def _utc_text(value: object) -> str | None:
    """ISO text of a time in UTC, to the second; a time without a zone is in UTC."""
    try:
        time = (
            value
            if isinstance(value, datetime)
            else datetime.fromisoformat(value)
            if isinstance(value, str)
            else None
        )
        zoned = time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
        return None if zoned is None else zoned.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _groups(value: object) -> dict[str, str] | None:
    """Groups by name; one whose value is missing is left out."""
    if not isinstance(value, Mapping):
        return None
    return _tags({name: _tag(group) for name, group in value.items() if not is_missing(group)})


CASE_COLUMNS: Mapping[str, ColumnRule] = {
    "id": ColumnRule(_name, _ID_RULE, "name it", aliases=("case_id",), filled=True),
    "query": ColumnRule(
        _question,
        _QUESTION_RULE,
        "write the question",
        aliases=("question",),
        required=True,
        filled=True,
    ),
    "expect_status": ColumnRule(
        _status,
        _STATUS_RULE,
        status_remedy,
        aliases=("label",),
        required=True,
        filled=True,
        file_remedy=partial(status_remedy, file=True),
    ),
    "expect_sources": _SOURCES,
    "expect_sources_any": _SOURCES,
    "min_sources": ColumnRule(
        integer_from(0), "an integer from 0, of 31 bits", "correct it, or empty the cell"
    ),
    "selected_sources": _SOURCES,
    "expect_option": ColumnRule(
        integer_from(1), "an integer from 1, of 31 bits", "count the options from 1"
    ),
    **dict.fromkeys(("answer", "intent", "doctype", "split", "notes"), _TEXT),
}
CHUNK_COLUMNS: Mapping[str, ColumnRule] = {
    "id": CASE_COLUMNS["id"]._replace(aliases=("chunk_id", "hit_id")),
    "text": ColumnRule(
        filled_text,
        "a text that is not blank",
        "fill it, or drop the row",
        required=True,
        filled=True,
    ),
    "source": ColumnRule(
        _name,
        f"a path that is not blank, of at most {MAX_NAME} characters",
        "fill it, or drop the column",
    ),
    "page": ColumnRule(
        integer_from(1), "an integer from 1, of 31 bits", "write a printed label into page_label"
    ),
    "page_label": ColumnRule(_tag, "a text", AS_TEXT),
    "tags": ColumnRule(
        _tags, "a mapping of texts to texts", 'write {"domain": "home"}, as JSON in a file'
    ),
    "entities": ColumnRule(
        _texts, "texts", 'write a list, a JSON list such as ["Acme", "Leeds"], or Acme;Leeds'
    ),
    "section": ColumnRule(
        _texts, "texts", 'write a list, a JSON list such as ["Home", "Excess"], or Home;Excess'
    ),
}
# of a question that a system logged; a case keeps them in `extra`
LOGGED_COLUMNS: Mapping[str, ColumnRule] = {
    **dict.fromkeys(
        (ANSWER_RIGHT, JUDGE_RIGHT), ColumnRule(_json_value, "0, 1 or empty", "write 0 or 1")
    ),
    "at": ColumnRule(_utc_text, "a time, or its ISO text", "write 2026-03-02T09:00:00+00:00"),
    "groups": ColumnRule(
        _groups,
        "a mapping of texts to texts or numbers",
        'write frame["groups"] = frame[["tenant", "language"]].to_dict("records")',
    ),
}
OWN_TAG = ColumnRule(_tag, "a text or a number, since it becomes a tag", f"{AS_TEXT}, or drop it")
_EXTRA = ColumnRule(
    _json_value, "a JSON value: text, number, truth value, list or object", f"{AS_TEXT}, or drop it"
)


def holds_labels(heads: Iterable[str]) -> bool:
    """Whether heads of a table are those of labelled questions.

    A question, and its label or expected sources.

    A name that others give our fields counts too. One that may stand for anything, such as text,
    message or source, needs a name of ours on the other side, or a German one that means the same.

    Example:
      >>> [
      ...     holds_labels(heads)
      ...     for heads in (["Question", "expected_source"], ["text", "source"], ["text", "label"])
      ... ]
      [True, False, True]
    """
    fields = field_names(CASE_COLUMNS)
    names = {plain_name(head) for head in heads}
    meant = {near.name: {*near.fields} for near in near_names(sorted(names), fields, CASE_COLUMNS)}
    questions = {name for name in names if "query" in meant.get(name, ())}
    labels = {name for name in names if not meant.get(name, set()).isdisjoint(_LABEL_FIELDS)}
    if not questions or not labels:
        return False
    own = any(fields.get(name) == "query" or name in _QUESTION_NAMES for name in questions)
    own = own or any(fields.get(name) for name in labels)
    return own or not (questions <= _LOOSE_NAMES or labels <= _LOOSE_NAMES)


def is_table(path: Path) -> bool:
    """Whether a path is a CSV or TSV file; one that is not there is none."""
    return path.suffix.lower() in ENDINGS and not is_folder(path) and path.exists()


def is_chunk_table(
    path: Path, columns: Mapping[str, str] | None, max_file_bytes: int, encoding: str | None = None
) -> bool:
    """Whether a file is a table with a row a chunk, and no document.

    TSV, or CSV with a head `text` or with a map.
    """
    if not is_table(path) or path.suffix.lower() != ".csv" or columns is not None:
        return is_table(path)
    return "text" in map(
        str.strip, csv_records(table_text(path, max_file_bytes, encoding=encoding), path)[0].cells
    )


def case_records(
    source: pd.DataFrame | str | Path,
    columns: Mapping[str, str] | None,
    max_file_bytes: int,
    encoding: str | None = None,
) -> list[JsonLine]:
    """Records of cases; without a column of ids they are q1, q2, … in the order of the rows.

    Raises:
      InputError: columns are missing, or cells break a rule: the first few are named by row and
        column, all counted.
    """
    cells = _cells(source, "case", max_file_bytes, CASE_COLUMNS, columns, encoding)
    places = column_names(cells, CASE_COLUMNS, columns)
    mapped = {*field_names(CASE_COLUMNS), *(columns or {}).values()}
    extra_columns = [name for name in cells.columns if name not in mapped and name.strip()]
    near = near_names(extra_columns, field_names(CASE_COLUMNS), CASE_COLUMNS.keys() - places.keys())
    if near:
        missing = [field for field in REQUIRED if field not in places]
        raise near_name_error(near, Where(cells.name), table=True, missing=missing)
    _check_required(cells, CASE_COLUMNS, places)
    rows = _rows(cells, places, CASE_COLUMNS, _EXTRA, _other_columns(cells, CASE_COLUMNS, places))
    records = [{"id": f"q{row + 1}"} | extra | record for row, (record, extra) in enumerate(rows)]
    return _lines(cells, records)


def chunk_records(
    source: pd.DataFrame | str | Path,
    columns: Mapping[str, str] | None,
    max_file_bytes: int,
    encoding: str | None = None,
) -> list[JsonLine]:
    """Records of chunks.

    Without a column of ids they are c1, c2, …, without one of sources each is a document.

    Raises:
      InputError: as for `case_records`.
    """
    cells = _cells(source, "chunk", max_file_bytes, CHUNK_COLUMNS, columns, encoding)
    places = column_names(cells, CHUNK_COLUMNS, columns)
    _check_required(cells, CHUNK_COLUMNS, places)
    rows = _rows(
        cells, places, CHUNK_COLUMNS, OWN_TAG, _other_columns(cells, CHUNK_COLUMNS, places)
    )
    if "id" not in places:
        text = (
            f"{cells.name}: without a column id its {cells.size:,} chunks are named c1 to "
            f"c{cells.size} by their rows"
        )
        warn_user(visible(f"{text}; a column id keeps their names where rows are added or moved."))
    chunks = []
    for row, (record, tags) in enumerate(rows, 1):
        named = {"id": f"c{row}"} | record
        chunks.append(
            {"source": flat_name(named["id"])} | named | {"tags": record.get("tags", {}) | tags}
        )
    return _lines(cells, chunks)


def _lines(cells: Cells, records: Sequence[Mapping[str, Any]]) -> list[JsonLine]:
    return [
        JsonLine(Where(f"{cells.name}, {cells.place(row)}"), record)
        for row, record in enumerate(records)
    ]


def _cells(
    source: pd.DataFrame | str | Path,
    row: str,
    max_file_bytes: int,
    known: Mapping[str, ColumnRule],
    columns: Mapping[str, str] | None,
    encoding: str | None,
) -> Cells:
    """Cells of a frame or a file, None where they are blank.

    An index of a frame counts as a column by the name of a field that no column holds, or that
    `columns` maps to.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        remedy = CASES_ENCODING_REMEDY if known is CASE_COLUMNS else ENCODING_REMEDY
        heads, *rows = csv_records(
            table_text(path, max_file_bytes, encoding=encoding, remedy=remedy), path
        )
        named = [head.strip() for head in heads.cells]
        check_heads([head for head in named if head], Where(str(path), heads.line))
        of_file: Mapping[str, Sequence[Any]] = {
            head: [record.cells[place] for record in rows] for place, head in enumerate(named)
        }
        cells = Cells(str(path), len(rows), of_file, [record.line for record in rows], "line")
    else:
        stated = columns.items() if isinstance(columns, Mapping) else ()
        mapped = {field: name for field, name in stated if isinstance(name, str)}
        held = {*map(str, getattr(source, "columns", ())), *mapped}
        fields = [(field, *column.aliases) for field, column in known.items()]
        free = {name for names in fields if held.isdisjoint(names) for name in names}
        cells = frame_cells(source, FRAME, row, free | {*mapped.values()})
        _warn_of_index(source, cells, row, known, is_without_id="id" in free)
    return cells._replace(
        columns={head: _without_blanks(column) for head, column in cells.columns.items()}
    )


def _warn_of_index(
    frame: pd.DataFrame,
    cells: Cells,
    row: str,
    known: Mapping[str, ColumnRule],
    *,
    is_without_id: bool,
) -> None:
    """Warn of an index that looks like ids which the frame lacks, and is not read as them."""
    if not is_without_id or not {"id", *known["id"].aliases}.isdisjoint(cells.columns):
        return
    for level, name in enumerate(frame.index.names):
        if name in cells.columns:
            continue
        is_named = isinstance(name, str) and plain_name(name) in {"id", "ids", *known["id"].aliases}
        if is_named or (name is None and isinstance(frame.index.get_level_values(level)[0], str)):
            index = f"the index {shown_value(name)}" if name is not None else "the index of texts"
            remedy = 'write frame.rename_axis("id"), or frame.reset_index(drop=True)'
            warn_user(
                visible(f"{cells.name}: {index} is not read as the ids of its {row}s; {remedy}.")
            )


def _without_blanks(column: Sequence[Any]) -> list[Any]:
    return [None if isinstance(value, str) and not value.strip() else value for value in column]


def _rows(
    cells: Cells,
    places: Mapping[str, str],
    known: Mapping[str, ColumnRule],
    extra_rule: ColumnRule,
    extra_columns: Sequence[str],
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Values of all rows by our names, and those of further columns by theirs.

    Args:
      places: see `column_places`.
      known: columns by raglab's names.
      extra_rule: what a further column may hold.
      extra_columns: names of further columns, none of them a name of raglab's.
    """
    columns = read_columns(
        cells,
        {**places, **{name: name for name in extra_columns}},
        {**dict.fromkeys(extra_columns, extra_rule), **known},
    )
    if "id" in places:
        _check_unique(cells, places["id"], columns["id"])

    def record(row: int, names: Iterable[str]) -> dict[str, Any]:
        return {name: columns[name][row] for name in names if columns[name][row] is not None}

    return [(record(row, places), record(row, extra_columns)) for row in range(cells.size)]


def _check_unique(cells: Cells, name: str, ids: Sequence[str]) -> None:
    """Stop at an id that another row before its own has."""
    first: dict[str, int] = {}
    for row, value in enumerate(ids):
        if first.setdefault(value, row) != row:
            repeat = f"{shown_value(value)} again (first in {cells.place(first[value])})"
            raise cells.error(row, name, "id must be unique", "rename or drop one", repeat)


def column_names(
    cells: Cells, known: Mapping[str, ColumnRule], columns: Mapping[str, str] | None
) -> dict[str, str]:
    """Column of the table for each field of raglab that it has, in the order of the fields.

    Raises:
      InputError: `columns` is no map of names of ours to names of the table; or a name stands
        twice.
    """
    where, fields = Where(cells.name), field_names(known)
    if not isinstance(columns, Mapping | None) or any(
        not isinstance(name, str) for name in (columns or {}).values()
    ):
        rule = "columns must map our names to those of the table"
        raise input_error(where, rule, 'write {"query": "question"}', shown_value(columns))
    reversed_map = {
        user_name: raglab_name
        for raglab_name, user_name in (columns or {}).items()
        if cells.has(raglab_name) and user_name in fields
    }
    if columns and len(reversed_map) == len(columns) and not any(map(cells.has, columns.values())):
        rule, remedy = (
            "columns must map our names to those of the table",
            f"swap them: columns={reversed_map}",
        )
        raise input_error(
            where, rule, remedy, f"{columns}, whose first are of the table and second ours"
        )
    # {"status": "status"} says that a column is an extra one, whatever it looks like.
    strange = [
        str(name)
        for name, user_name in (columns or {}).items()
        if name not in fields and name != user_name
    ]
    if strange:
        raise input_error(
            where,
            f"columns must map names among {', '.join(fields)}",
            "ours first, then yours",
            ", ".join(strange),
        )
    absent = [name for name in (columns or {}).values() if not cells.has(name)]
    if absent:
        n_there = (
            f"{len(columns or {}) - len(absent)} of {len(columns or {})} mapped columns are there"
        )
        rule = f"what columns maps to must be columns, and {', '.join(absent)} is none ({n_there})"
        raise input_error(where, rule, "correct the name", f"only {_heads(cells)}")
    return column_places(cells, known, columns)


def _check_required(
    cells: Cells, known: Mapping[str, ColumnRule], places: Mapping[str, str]
) -> None:
    """Stop where required columns are missing, all of them in one message."""
    missing = [field for field, column in known.items() if column.required and field not in places]
    if missing:
        rule = f"the column {missing[0]} is required"
        if len(missing) > 1:
            rule = f"the columns {', '.join(missing)} are required"
        pairs = ", ".join(f'"{field}": "…"' for field in missing)
        option = "--corpus-columns" if known is CHUNK_COLUMNS else "--columns"
        options = " ".join(f"{option} {field}=…" for field in missing)
        remedy = f"rename what holds it, or pass columns={{{pairs}}} ({options})"
        raise input_error(Where(cells.name), rule, remedy, f"only {_heads(cells)}")


def _heads(cells: Cells) -> str:
    names = [shown_value(name) for name in cells.columns if name.strip()]
    more = f" and {len(names) - _HEADS_SHOWN} more" if len(names) > _HEADS_SHOWN else ""
    return ", ".join(names[:_HEADS_SHOWN]) + more


def _other_columns(
    cells: Cells, known: Mapping[str, ColumnRule], places: Mapping[str, str]
) -> list[str]:
    """Columns beside ours.

    One warning names those that are left out, and those that look like a slip of ours.
    """
    names, used = field_names(known), set(places.values())
    unused = [name for name in cells.columns if name not in used]
    dropped = [
        name for name in unused if not name.strip() or name.startswith("Unnamed: ") or name in names
    ]
    extra_columns = [name for name in unused if name not in dropped]
    notes = []
    if dropped:
        notes.append(
            "left out: "
            f"{', '.join(repr(name) if name else 'a column without a name' for name in dropped)}"
        )
    # a slip in a table of cases is an error
    for name in extra_columns if known is CHUNK_COLUMNS else ():
        close = get_close_matches(name.lower(), names, n=1, cutoff=0.85)
        notes += [f"kept in tags: {name!r}, which is close to our {close[0]!r}"] if close else []
    warn_of_empty_columns(cells, [name for name in cells.columns if name not in dropped])
    if notes:
        text = (
            f"{cells.name}: {'; '.join(notes)}; rename them, or name them by columns={{…}}, where "
            "they are meant."
        )
        warn_user(visible(text))
    return extra_columns
