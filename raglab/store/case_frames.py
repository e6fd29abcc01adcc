"""Tables of cases and chunks (shore): rows of a DataFrame, a CSV or a TSV file as the records of JSON lines (S6.1).

A row is a case or a chunk. A column has one of our names (`CASE_COLUMNS`, `CHUNK_COLUMNS`), or `columns` says which one
stands for it. A cell that is None, NaN or blank is absent. A cell of several texts is a list, tuple or array, or one
text: a JSON list, or parts with semicolons between. An index of a frame that has the name of a field which no column
holds is its column, such as `id`. Whatever other columns there are, a case keeps in `extra` and a
chunk in `tags`; those without a name, such as an index that was written with the table, are left out. A column of a
table of cases that looks like a field which the table lacks is an error, which proposes the name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.characters import visible
from raglab.store.case_labels import near_name_error, near_names, status_remedy
from raglab.store.cells import (
    Cells,
    cell_text,
    check_heads,
    filled_text,
    frame_cells,
    is_unicode,
    listed,
    listed_sources,
    whole_at_least,
)
from raglab.store.documents import csv_records
from raglab.store.files import MAX_NAME, JsonLine, Where, flat_name, input_error, read_text, shown_value
from raglab.store.folders import is_folder
from raglab.user_warnings import warn_user
from raglab.values import LONGEST_QUESTION, STATUS_NAMES, document_path

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".tsv")
FRAME = "frame"  # name of a DataFrame, in messages and as that of a corpus
_FAULTS_SHOWN = 3


class Column(NamedTuple):
    """What a column may hold.

    read: value of a cell as a record has it, None where it breaks the rule. rule, remedy: in words, the remedy also by
    the column's name. aliases: its other names. required: whether it must be there, and none of its cells absent.
    """

    read: Callable[[Any], Any]
    rule: str
    remedy: str | Callable[[str], str]
    aliases: tuple[str, ...] = ()
    required: bool = False


def source_rule(source: str) -> tuple[str, str] | None:
    """Rule that a source of a case breaks, and the remedy; None where it is `path` or `path#page`."""
    path, mark, page = document_path(source).rpartition("#")
    if mark and "/" not in page and not (path and page.isascii() and page.isdigit() and page.strip("0")):
        return "path or path#page, page an integer", "give the page's number from 1, not its printed label"
    return None


def check_no_columns(columns: Mapping[str, str] | None, place: Path) -> None:
    """Refuse a map of columns where there are none."""
    if columns is not None:
        rule = f"columns must come with a DataFrame or a file {' or '.join(ENDINGS)}"
        raise input_error(Where(str(place)), rule, "leave columns out, or check the path", shown_value(place.name))


def _name(value: object) -> str | None:
    """Text that is not blank; integers, which frames hold ids as, in their digits."""
    whole = whole_at_least(0)(value)
    text = filled_text(value) if whole is None else str(whole)
    return text if text is not None and len(text) <= MAX_NAME else None


def _question(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= LONGEST_QUESTION else None


def _status(value: object) -> str | None:
    return value if isinstance(value, str) and value in STATUS_NAMES else None


def _whole(least: int) -> Callable[[Any], int | None]:
    """Integer of a cell from a least value on; of a CSV, in its digits, which pandas may have written as 2.0."""
    bounded = whole_at_least(least)

    def read(value: object) -> int | None:
        digits = value.strip().removesuffix(".0") if isinstance(value, str) else ""
        return bounded(int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else value)

    return read


def _texts(value: object) -> list[str] | None:
    """Texts of a cell that holds several; see the head of this module."""
    items = listed(value)
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and _name(item) == item for item in items):
        return None
    return list(items)


def _sources(value: object) -> list[str] | None:
    found = _texts(listed_sources(value))
    return None if found is None or any(map(source_rule, found)) else found


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Value of a JSON text, None where it is none."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A cell as JSON holds it, None where it cannot."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_value)
        text.encode()
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _plain_value(value: object) -> Any:  # noqa: ANN401 - a list or a number
    """What an array or a number of NumPy holds, as those of Hugging Face have them inside a cell."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    msg = f"no JSON value: {type(value).__name__}"
    raise TypeError(msg)


def _tag(value: object) -> str | None:
    """Text or number of a cell as a text; 2020.0, which pandas makes of 2020 beside a missing one, is 2020."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    finite = (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
    return str(int(value) if whole else value) if finite else None


def _tags(value: object) -> dict[str, str] | None:
    """Tags of a cell that holds them all: a mapping of texts, or a JSON object of them."""
    found = _json(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping) or any(not isinstance(text, str) for pair in found.items() for text in pair):
        return None
    return dict(found)


_AS_TEXT = "convert the column with .astype(str)"
_SEVERAL = 'write a list, a JSON list such as ["a.md", "b.md#2"], or a.md;b.md#2'
_SOURCES = Column(
    _sources, "texts, each path or path#page, page an integer from 1, with semicolons between several", _SEVERAL
)
_TEXT = Column(cell_text, "a text", _AS_TEXT)
CASE_COLUMNS: Mapping[str, Column] = {
    "id": Column(_name, f"a text or an integer from 0, of at most {MAX_NAME} characters", "name it", ("case_id",)),
    "query": Column(
        _question,
        f"a text of at most {LONGEST_QUESTION} characters",
        "write the question",
        ("question",),
        required=True,
    ),
    "expect_status": Column(_status, f"one of {', '.join(STATUS_NAMES)}", status_remedy, ("label",), required=True),
    "expect_sources": _SOURCES,
    "expect_sources_any": _SOURCES,
    "min_sources": Column(_whole(0), "an integer from 0, of 31 bits", "correct it, or empty the cell"),
    "selected_sources": _SOURCES,
    "expect_option": Column(_whole(1), "an integer from 1, of 31 bits", "count the options from 1"),
    **dict.fromkeys(("answer", "intent", "doctype", "split", "notes"), _TEXT),
}
CHUNK_COLUMNS: Mapping[str, Column] = {
    "id": CASE_COLUMNS["id"]._replace(aliases=("chunk_id", "hit_id"), required=True),
    "text": Column(filled_text, "a text that is not blank", "fill it, or drop the row", required=True),
    "source": Column(_name, f"a path of at most {MAX_NAME} characters", "fill it, or drop the column"),
    "page": Column(_whole(1), "an integer from 1, of 31 bits", "write a printed label into page_label"),
    "page_label": Column(_tag, "a text", _AS_TEXT),
    "tags": Column(_tags, "a mapping of texts to texts", 'write {"domain": "home"}, as JSON in a file'),
    "entities": Column(_texts, "texts", 'write a list, a JSON list such as ["Acme", "Leeds"], or Acme;Leeds'),
}
_EXTRA = Column(_json_value, "a JSON value: text, number, truth value, list or object", f"{_AS_TEXT}, or drop it")
_OWN_TAG = Column(_tag, "a text or a number, since it becomes a tag", f"{_AS_TEXT}, or drop it")


def is_table(path: Path) -> bool:
    """Whether a path is a CSV or TSV file; one that is not there is none."""
    return path.suffix.lower() in ENDINGS and not is_folder(path) and path.exists()


def is_chunk_table(path: Path, columns: Mapping[str, str] | None, max_file_bytes: int) -> bool:
    """Whether a file is a table with a row a chunk, and not a document: TSV, or CSV where the heads or a map say so."""
    if not is_table(path) or path.suffix.lower() != ".csv" or columns is not None:
        return is_table(path)
    heads = set(csv_records(read_text(path, max_file_bytes), path)[0].cells)
    return "text" in heads and not heads.isdisjoint({"id", *CHUNK_COLUMNS["id"].aliases})


def case_records(
    source: pd.DataFrame | str | Path, columns: Mapping[str, str] | None, max_file_bytes: int
) -> list[JsonLine]:
    """Records of cases; without a column of ids they are q1, q2, … in the order of the rows.

    Raises:
      InputError: columns are missing, or cells break a rule: the first few are named by row and column, all counted.
    """
    cells = _cells(source, "case", max_file_bytes, _index_names(source, CASE_COLUMNS, columns))
    records = _records(cells, CASE_COLUMNS, _EXTRA, columns, "extra")
    return [_line(cells, row, {"id": f"q{row + 1}"} | record) for row, record in enumerate(records)]


def chunk_records(
    source: pd.DataFrame | str | Path, columns: Mapping[str, str] | None, max_file_bytes: int
) -> list[JsonLine]:
    """Records of chunks; without a column of sources each is a document of its own, named by its id.

    Raises:
      InputError: as for `case_records`.
    """
    cells = _cells(source, "chunk", max_file_bytes, _index_names(source, CHUNK_COLUMNS, columns))
    records = _records(cells, CHUNK_COLUMNS, _OWN_TAG, columns, "tags")
    return [_line(cells, row, {"source": flat_name(record["id"])} | record) for row, record in enumerate(records)]


def _line(cells: Cells, row: int, record: Mapping[str, Any]) -> JsonLine:
    return JsonLine(Where(f"{cells.name}, {cells.place(row)}"), record)


def _index_names(
    source: pd.DataFrame | str | Path, known: Mapping[str, Column], columns: Mapping[str, str] | None
) -> set[str]:
    """Names by which an index counts as a column: those of fields that no column holds, and what `columns` maps to."""
    heads = () if isinstance(source, str | Path) else map(str, getattr(source, "columns", ()))
    given = (
        {ours: name for ours, name in columns.items() if isinstance(name, str)} if isinstance(columns, Mapping) else {}
    )
    held = {*heads, *given}
    fields = {field: (field, *column.aliases) for field, column in known.items()}
    return {name for names in fields.values() if held.isdisjoint(names) for name in names} | {*given.values()}


def _cells(source: pd.DataFrame | str | Path, row: str, max_file_bytes: int, index: Collection[str]) -> Cells:
    """Cells of a frame or a file, None where they are blank.

    Args:
      index: names by which an index of a frame counts as a column.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        heads, *rows = csv_records(read_text(path, max_file_bytes), path)
        named = [head.strip() for head in heads.cells]
        check_heads([head for head in named if head], Where(str(path), heads.line))
        columns: Mapping[str, Sequence[Any]] = {
            head: [record.cells[place] for record in rows] for place, head in enumerate(named)
        }
        cells = Cells(str(path), len(rows), columns, [record.line for record in rows], "line")
    else:
        cells = frame_cells(source, FRAME, row, index)
    return cells._replace(columns={head: _without_blanks(column) for head, column in cells.columns.items()})


def _without_blanks(column: Sequence[Any]) -> list[Any]:
    return [None if isinstance(value, str) and not value.strip() else value for value in column]


class _Fault(NamedTuple):
    """A cell that breaks a rule. came: what it holds, '' for words that stand in the rule's place."""

    row: int
    column: str
    rule: str
    remedy: str
    came: str


def _records(
    cells: Cells, known: Mapping[str, Column], other: Column, columns: Mapping[str, str] | None, rest_in: str
) -> list[dict[str, Any]]:
    """Records of all rows, whole or not at all.

    Args:
      known: columns by their names. other: of any other column. columns: our names -> theirs. rest_in: what keeps the
        others.
    """
    where = _columns(cells, known, columns)
    rest = _other_columns(cells, known, where, rest_in)
    faults: list[_Fault] = []
    records: list[dict[str, Any]] = [{} for _ in range(cells.size)]
    for field, column in where.items():
        _read(cells, column, field, known[field], records, faults)
    if "id" in where:
        faults += _repeated(cells, where["id"], records)
    further: list[dict[str, Any]] = [{} for _ in range(cells.size)]
    for column in rest:
        _read(cells, column, column, other, further, faults)
    _stop(cells, faults)
    if rest_in != "tags":
        return [more | record for record, more in zip(records, further, strict=True)]
    return [record | {"tags": record.get("tags", {}) | more} for record, more in zip(records, further, strict=True)]


def _read(
    cells: Cells, name: str, field: str, column: Column, records: Sequence[dict[str, Any]], faults: list[_Fault]
) -> None:
    """Put the values of a column into the records, and what breaks its rule to the faults."""
    for row, value in enumerate(cells.of(name)):
        if value is None:
            if column.required or field == "id":
                faults.append(_Fault(row, name, f"{field} must not be missing", "fill it, or drop the row", ""))
            continue
        found = column.read(value)
        if found is None or not _is_unicode(found):
            of_rule = column.remedy if isinstance(column.remedy, str) else column.remedy(name)
            remedy = of_rule if found is None else "correct the text, which holds half of a surrogate pair"
            faults.append(_Fault(row, name, f"{field} must be {column.rule}", remedy, shown_value(value)))
        else:
            records[row][field] = found


def _is_unicode(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(is_unicode(text) for pair in value.items() for text in pair)
    return is_unicode(tuple(value) if isinstance(value, list) else value)


def _repeated(cells: Cells, name: str, records: Sequence[Mapping[str, Any]]) -> Iterator[_Fault]:
    """Rows whose id another row before them has."""
    first: dict[str, int] = {}
    for row, record in enumerate(records):
        if "id" in record and first.setdefault(record["id"], row) != row:
            came = f"{shown_value(record['id'])} again (first in {cells.place(first[record['id']])})"
            yield _Fault(row, name, "id must be unique", "rename or drop one", came)


def _stop(cells: Cells, faults: list[_Fault]) -> None:
    """Raise the first fault whole, with the count of bad rows and the next few of them."""
    if not faults:
        return
    faults.sort(key=lambda fault: fault.row)  # stable: within a row in the order of our columns
    one, rows = faults[0], list({fault.row: fault for fault in reversed(faults)}.values())[::-1]
    remedy = one.remedy
    if len(rows) > 1:
        following = (
            f"{cells.place(fault.row)}, column {fault.column}, got {fault.came or 'none'}"
            for fault in rows[1 : 1 + _FAULTS_SHOWN]
        )
        remedy += f"; {len(rows):,} of {cells.size:,} rows break a rule, next {'; '.join(following)}"
    raise cells.error(one.row, one.column, one.rule, remedy, one.came or None)


def _columns(cells: Cells, known: Mapping[str, Column], columns: Mapping[str, str] | None) -> dict[str, str]:
    """Column of the table for each of our names that it has, in our order.

    Raises:
      InputError: `columns` is no map of names of ours to names of the table; a name stands twice; or required columns
        are missing, all of them in one message.
    """
    where = Where(cells.name)
    came = shown_value(", ".join(cells.columns))
    ours = {name: field for field, column in known.items() for name in (field, *column.aliases)}
    if not isinstance(columns, Mapping | None) or any(not isinstance(name, str) for name in (columns or {}).values()):
        rule = "columns must map our names to those of the table"
        raise input_error(where, rule, 'write {"query": "question"}', shown_value(columns))
    # {"status": "status"} says that a column is an extra one, whatever it looks like.
    own = [name for name, given in (columns or {}).items() if name == given and name not in ours]
    strange = [str(name) for name in columns or () if name not in (*ours, *own)]
    if strange:
        raise input_error(
            where, f"columns must map names among {', '.join(ours)}", "ours first, then yours", ", ".join(strange)
        )
    absent = [name for name in (columns or {}).values() if not cells.has(name)]
    if absent:
        rule = f"what columns maps to must be columns, and {', '.join(absent)} is none"
        raise input_error(where, rule, "correct the name", f"only {came}")
    found: dict[str, str] = {}
    mapped = set((columns or {}).values())
    for name, field in ours.items():
        given = (columns or {}).get(name)
        there = given if given is not None else name if cells.has(name) and name not in mapped else None
        if there is None or (given is None and any(one in (columns or {}) for one, of in ours.items() if of == field)):
            continue
        if field in found:
            rule = f"{field} must be one column"
            raise input_error(where, rule, "drop or rename one of them", f"{found[field]} and {there}")
        found[field] = there
    if known is CASE_COLUMNS:
        others = [name for name in cells.columns if name not in (*ours, *mapped) and name.strip()]
        near = near_names(others, ours, [field for field in known if field not in found])
        if near:
            raise near_name_error(near, where, table=True)
    missing = [field for field, column in known.items() if column.required and field not in found]
    if missing:
        rule = (
            f"the column{'s' * (len(missing) > 1)} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} required"
        )
        pairs = ", ".join(f'"{field}": "…"' for field in missing)
        raise input_error(where, rule, f"rename what holds it, or pass columns={{{pairs}}}", f"only {came}")
    return {field: found[field] for field in known if field in found}


def _other_columns(cells: Cells, known: Mapping[str, Column], where: Mapping[str, str], rest_in: str) -> list[str]:
    """Columns beside ours; one warning names those that are left out, and those that look like a slip of ours."""
    ours = [name for field, column in known.items() for name in (field, *column.aliases)]
    used = set(where.values())
    left = [name for name in cells.columns if name not in used]
    out = [name for name in left if not name.strip() or name.startswith("Unnamed: ") or name in ours]
    rest = [name for name in left if name not in out]
    slips = rest if rest_in == "tags" else ()  # of cases they are an error
    near = {name: get_close_matches(name.lower(), ours, n=1, cutoff=0.85) for name in slips}
    told = [f"left out: {', '.join(repr(name) if name else 'a column without a name' for name in out)}"] if out else []
    told += [
        f"kept in {rest_in}: {name!r}, which is close to our {close[0]!r}" for name, close in near.items() if close
    ]
    if told:
        text = f"{cells.name}: {'; '.join(told)}; rename them, or name them by columns={{…}}, where they are meant."
        warn_user(visible(text))
    return rest
