"""Cases and passages that the rows of a frame state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raglab.store._cells import Cells, at_least, filled, names, text, texts
from raglab.store._errors import shown
from raglab.store._fields import flat_name
from raglab.store.qa import case_of
from raglab.values import TAG_KEYS, Case, Chunk, Status

LISTS = ("expect_sources", "expect_sources_any", "selected_sources")
COUNTS = {"min_sources": 0, "expect_option": 1}
TEXTS = ("answer", "intent", "doctype", "split", "notes")
_STATUSES = tuple(status.name for status in Status)
OF_CASE = (*LISTS, *COUNTS, *TEXTS)
OF_CHUNK = ("text", "source", "page", "page_label", *TAG_KEYS, "entities")


_AS_TEXT = "convert it with .astype(str)"


def required(cells: Cells, column: str, found: Sequence[Any]) -> list[Any]:
    """Values of a column of which none is missing."""
    for row, value in enumerate(found):
        if value is None:
            raise cells.error(row, column, f"{column} must not be missing", f"fill {column}")
    return list(found)


def numbered(keys: Sequence[str | None], cells: Cells, column: str) -> tuple[tuple[str, ...], list[int]]:
    """Distinct keys in the order of their first rows, and the number of each row's."""
    number: dict[str, int] = {}
    rows = [number.setdefault(key, len(number)) for key in required(cells, column, keys)]
    return tuple(number), rows


def cases_of(cells: Cells) -> tuple[tuple[Case, ...], list[int]]:
    """Cases in the order of their first rows, and the number of each row's."""
    label = "label" if cells.has("label") else "expect_status"
    one_of = f"one of {', '.join(_STATUSES)}"
    query = required(cells, "query", cells.typed("query", text, "a string", _AS_TEXT))
    status = required(cells, label, cells.typed(label, _status, one_of, "correct it"))
    key = "case_id" if cells.has("case_id") else "query"
    keys, rows = numbered(names(cells, key) if key == "case_id" else query, cells, key)
    stated: dict[str, Sequence[Any]] = {"query": query, label: status}
    for column in LISTS:
        stated[column] = cells.typed(column, texts, "a list of strings", "write ['a.md', 'b.md#2']")
    for column, least in COUNTS.items():
        stated[column] = cells.typed(column, at_least(least), f"an integer of at least {least}", "correct it")
    for column in TEXTS:
        stated[column] = cells.typed(column, text, "a string", _AS_TEXT)
    remedy = "correct it" if key == "case_id" else "correct it, or tell the cases apart by case_id"
    first = _first_rows(rows)
    for column, found in stated.items():
        cells.same(column, found, [first[number] for number in rows], "a case", remedy)
    stated["expect_status"] = stated.pop(label)
    cases = []
    for number, row in enumerate(first):
        record = {column: found[row] for column, found in stated.items() if found[row] is not None}
        record |= {column: list(record[column]) for column in LISTS if column in record}
        record["id"] = keys[number] if key == "case_id" else f"q{number + 1}"
        cases.append(case_of(record, f"{cells.name}, row {row}"))
    return tuple(cases), rows


def chunks_of(cells: Cells, of_hit: Sequence[str]) -> tuple[tuple[Chunk, ...], list[int]]:
    """Passages in the order of their first rows, and the number of each row's, -1 where it has none.

    Args:
      cells: of the frame.
      of_hit: columns that must be empty in a row without a passage.
    """
    ids = names(cells, "hit_id")
    nothing = [row for row, hit in enumerate(ids) if hit is None]
    for column in filter(cells.has, of_hit):
        for row in nothing:
            value = cells.of(column)[row]
            if value is not None:
                rule = f"a row without hit_id says that nothing was found, so it must have no {column}"
                raise cells.error(row, column, rule, "fill hit_id, or empty the cell", shown(value))
    columns: dict[str, Sequence[Any]] = {
        "source": cells.typed("source", filled, "a path that is not blank", "fill it, or drop the column"),
        "page": cells.typed("page", at_least(1), "an integer from 1", "write a printed label into page_label"),
        "entities": cells.typed("entities", texts, "a list of strings", "write ['fleet', 'hull']"),
    }
    for column in ("text", "page_label", *TAG_KEYS):
        columns[column] = cells.typed(column, text, "a string", _AS_TEXT)
    number: dict[str, int] = {}
    rows = [-1 if hit is None else number.setdefault(hit, len(number)) for hit in ids]
    first = _first_rows(rows)
    of_row = [first[place] if place >= 0 else row for row, place in enumerate(rows)]
    for column, found in columns.items():
        cells.same(column, found, of_row, "a hit_id", "correct it, or name the passages apart")
    chunks = []
    for hit, row in zip(number, first, strict=True):
        of = {column: found[row] for column, found in columns.items()}
        tags = {key: of[key] for key in TAG_KEYS if of[key] is not None}
        source, said = of["source"] or flat_name(hit), of["text"] or ""
        chunks.append(Chunk(hit, said, source, of["page"], of["page_label"], tags, of["entities"] or ()))
    return tuple(chunks), rows


def _first_rows(numbers: Sequence[int]) -> list[int]:
    """First row of each number from 0 on."""
    first: dict[int, int] = {}
    for row, number in enumerate(numbers):
        if number >= 0:
            first.setdefault(number, row)
    return list(first.values())


def _status(value: object) -> str | None:
    return value if isinstance(value, str) and value in _STATUSES else None
