"""Tables in the texts of chunks as typed records: heads, rows, cells with their quantities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from raglab.retrieval._quantities import Quantity, period_of, quantity_of
from raglab.retrieval._units import CURRENCIES, UNITS
from raglab.values import Chunk

NAME_LENGTH = 200  # characters of a first line that may still be a heading, and of a caption
_FENCES = ("```", "~~~")
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-+:?")
_PROSE_ENDS = (".", "!", "?", "…", ":", ";", ",")
_PATH_JOINT = " > "
DASHES = "-–—−"
_OLDER = re.compile(r"\b(?:old|previous|expiring|before|ancien\w*|avant)\b", re.IGNORECASE)
_NEWER = re.compile(r"\b(?:new|renewal|renewed|after|nouve\w+|renouvel\w+|après)\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_WORDS = {word: unit for unit, words in (*CURRENCIES.items(), *UNITS.items()) for word in words}
_IN_BRACKETS = re.compile(r"\(([^()]{1,20})\)")
_STATED = re.compile(
    r"\b(?:amounts?|figures?|sums?|limits?|montants?|sommes?|plafonds?)\b[^.|]{0,60}?\b(?:in|en)\s+"
    r"(pounds|gbp|£|euros?|eur|€|dollars?|usd|\$)",
    re.IGNORECASE,
)


class Cell(NamedTuple):
    """A cell as written, and what it states."""

    text: str
    quantity: Quantity


class Table(NamedTuple):
    """A table in a chunk.

    name: heading path, its first part last, in brackets; else the line above, the title or the file. columns: heads, ''
    where one is empty. rows: as many cells each as there are columns. chunk: position of its chunk in the corpus.
    label: the column that names the rows.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    chunk: int
    label: int


def tables_of(chunks: Sequence[Chunk]) -> tuple[Table, ...]:
    r"""Tables of Markdown in the chunks' texts, in order; rows without any text are left out.

    A number without a unit has that of its head (`Excess (GBP)`), else of its row (`Ransom (GBP)`), else of the prose
    around it (`amounts are in GBP`). Cells beyond the heads are kept with the last one.

    Example:
      >>> (table,) = tables_of([Chunk("1", "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |", "a.md")])
      >>> table.name, table.columns, table.rows[0][1].quantity.low
      ('Excesses', ('Cause', 'Excess'), 250.0)
    """
    return tuple(table for position, chunk in enumerate(chunks) for table in _tables_in(chunk, position))


def row_text(table: Table, row: int) -> str:
    r"""A row as it can be read alone: the table's name, and each cell under its head, as written.

    Example:
      >>> (table,) = tables_of([Chunk("1", "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |", "a.md")])
      >>> row_text(table, 0)
      'Excesses - Cause: Storm; Excess: £250'
    """
    pairs = zip(table.columns, table.rows[row], strict=True)
    cells = [f"{head}: {cell.text}" if head else cell.text for head, cell in pairs if cell.text.strip(DASHES)]
    return f"{table.name} - {'; '.join(cells)}"


def time_of(head: str) -> Quantity | None:
    """Days that a column's head speaks of; all before and all after any day for `Old` and `New`."""
    older, newer = (pattern.search(head[:NAME_LENGTH]) is not None for pattern in (_OLDER, _NEWER))
    beyond = inf if newer else -inf
    return period_of(head) or (Quantity("date", beyond, beyond, "date") if older != newer else None)


def _tables_in(chunk: Chunk, position: int) -> Iterator[Table]:
    if "|" not in chunk.text:
        return
    lines = chunk.text.splitlines()
    stated = _STATED.search(chunk.text)
    common = _WORDS.get(stated[1].casefold(), "") if stated else ""
    for start, end in _blocks(lines):
        grid = [_cells(line) for line in lines[start:end]]
        headed = len(grid) > 1 and _is_rule(grid[1])
        heads = grid[0] if headed else [""] * max(map(len, grid))
        body = [_fitted(cells, len(heads)) for cells in (grid[2:] if headed else grid) if not _is_rule(cells)]
        rows = [cells for cells in body if any(cell.strip(DASHES) for cell in cells)]
        if rows:
            units = [_unit_in(head) for head in heads]
            typed = tuple(tuple(_typed(row, units, common)) for row in rows)
            yield Table(_name(chunk, lines, start), tuple(heads), typed, position, _label(typed))


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the tables stand: runs of lines that begin with a pipe, or that follow a head and its rule."""
    code = False
    inside: list[bool] = []
    for number, line in enumerate(lines):
        bare = line.strip()
        code ^= bare.startswith(_FENCES)
        ruled = any(_ruled(near) for near in lines[number : number + 2])
        going_on = bool(inside) and inside[-1]
        inside.append(not code and _PIPE.search(bare) is not None and (bare.startswith("|") or ruled or going_on))
    for is_table, run in groupby(range(len(lines)), key=lambda number: inside[number]):
        places = list(run)
        if is_table:
            yield places[0], places[-1] + 1


def _ruled(line: str) -> bool:
    return "|" in line and _is_rule(_cells(line))


def _is_rule(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_RULE.fullmatch(cell) for cell in cells)


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|")
    parts = _PIPE.split(bare)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [" ".join(part.replace("\\|", "|").split()) for part in parts]


def _fitted(cells: list[str], width: int) -> list[str]:
    if len(cells) <= width:
        return [*cells, *[""] * (width - len(cells))]
    return [*cells[: width - 1], " | ".join(cells[width - 1 :])]


def _typed(row: Sequence[str], units: Sequence[str], common: str) -> Iterator[Cell]:
    own = next((unit for unit in map(_unit_in, row) if unit), "")
    for text, unit in zip(row, units, strict=True):
        quantity = quantity_of(text)
        bare = quantity.kind == "number" and not quantity.unit and not quantity.note
        yield Cell(text, _with_unit(quantity, unit or own or common) if bare else quantity)


def _with_unit(quantity: Quantity, unit: str) -> Quantity:
    kind = "money" if unit in CURRENCIES else "percent" if unit == "%" else "number"
    return quantity._replace(kind=kind, unit=unit) if unit else quantity  # type: ignore[arg-type]


def _unit_in(text: str) -> str:
    """Unit in brackets, or that is all of a head."""
    within = [match[1] for match in _IN_BRACKETS.finditer(text[:NAME_LENGTH])]
    return next((_WORDS[word] for word in (part.strip().casefold() for part in (*within, text)) if word in _WORDS), "")


def _label(rows: Sequence[Sequence[Cell]]) -> int:
    """First column most of whose cells are words; the first of all where there is none."""
    named = [
        sum(c.quantity.kind == "text" and bool(_LETTERS.search(c.text)) for c in col) for col in zip(*rows, strict=True)
    ]
    return next((place for place, count in enumerate(named) if 2 * count > len(rows)), 0)


def _name(chunk: Chunk, lines: Sequence[str], start: int) -> str:
    """Heading path, else the line above the table, else title or file."""
    first = lines[0].strip().lstrip("#").strip() if start else ""
    if first and len(first) <= NAME_LENGTH and not first.endswith(_PROSE_ENDS):
        title, *rest = first.split(_PATH_JOINT)
        return f"{_PATH_JOINT.join(rest)} ({title})" if rest else title
    above = next((line.strip() for line in reversed(lines[:start]) if line.strip()), "")
    caption = above.strip("*_# ").rstrip(":")
    return caption if caption and len(caption) <= NAME_LENGTH else chunk.tags.get("title") or chunk.file_name
