"""An answer from tables: which rows and columns a question means, and what is to be done with their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any, Literal, NamedTuple

from raglab.retrieval import _meant, _sql
from raglab.retrieval._asked import BOUNDS, Asked
from raglab.retrieval._meant import Held, Place
from raglab.retrieval._quantities import rewritten
from raglab.retrieval._sql import Match

_Try = Callable[[Held, Asked, Sequence[Match]], "TableAnswer | None"]

CANDIDATES = 100  # rows that are looked at


class TableAnswer(NamedTuple):
    """What tables answer to a question.

    kind: a cell, a comparison of cells, or a figure over many. text: name of the table, heads and cells as written;
    what is worked out from them comes last. sql: the statement that was run, its parameters behind it. rows: places
    among the index's rows that it rests on. score: share of the question that they carry, in [0, 1].
    """

    kind: Literal["lookup", "comparison", "aggregate"]
    text: str
    sql: str
    rows: tuple[int, ...]
    score: float


def answered(held: Held, asked: Asked) -> TableAnswer | None:
    """Answer from tables, or None where none speaks to the question or its cells do not go together."""
    matches = held.matches(asked, CANDIDATES)
    tries: dict[str, tuple[_Try, ...]] = {
        **dict.fromkeys(("change", "difference"), (_difference, _value)),
        **dict.fromkeys(("highest", "lowest", *BOUNDS), (_ranked,)),
        **dict.fromkeys(("sum", "average"), (_figure,)),
        "total": (_value, _figure),
        "count": (_value,) if asked.kinds else (_counted, _count),
    }
    found = (one(held, asked, matches) for one in tries.get(asked.operation, (_value,)))
    return next((one for one in found if one is not None), None) if matches else None


def _value(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Cells of the one row that the question means."""
    best = _meant.singled_out(held, asked, matches)
    return None if best is None else _looked_up(held, best, _meant.columns(held, best.row, asked))


def _counted(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Numbers, but no sums of money, in the one row that the question means."""
    best = _meant.singled_out(held, asked, matches)
    if best is None:
        return None
    stated = {place: held.cells(best.row)[place].quantity for place in _meant.columns(held, best.row, asked)}
    return _looked_up(held, best, [place for place, one in stated.items() if one.exact and one.kind == "number"])


def _looked_up(held: Held, best: Match, places: Sequence[int]) -> TableAnswer | None:
    if not places:
        return None
    found, sql = _run(held, _sql.VALUES, [Place(best.row, place) for place in places])
    return TableAnswer("lookup", _described(held, found), sql, (best.row,), best.score)


def _difference(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Two columns of the row that the question means, or one column of two rows."""
    level = _meant.level(held, asked, matches)
    if not level or len(level) > 2:
        return None
    best, *others = level
    second = others[0] if others else _meant.second(best, matches)
    tries: list[tuple[list[Place], float]] = []
    if second is not None:
        pair = _meant.one_column(held, best.row, second.row, asked)
        tries.append((pair, min(1.0, best.score + _meant.gain(best, second))))
    if not others:
        places = _meant.two_columns(held, best.row, asked)
        named = all(_meant.head_terms(held.table(best.row), place, asked) for place in places)
        first = asked.operation == "change" or named
        tries.insert(0 if first else len(tries), ([Place(best.row, place) for place in places], best.score))
    for chosen, score in tries:
        found, sql = _run(held, _sql.DIFFERENCE, chosen) if len(chosen) == 2 else ([], "")
        if found:
            text = f"{_described(held, chosen)}; difference: {_written(held, chosen, found[0][0])}"
            return TableAnswer("comparison", text, sql, tuple(dict.fromkeys(p.row for p in chosen)), score)
    return None


def _ranked(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Rows of one table by the cells of one column: the highest, the lowest, or all beyond a bound."""
    table = _meant.whole(held, asked, matches)
    chosen = _meant.whole_column(held, asked, table.named or table.parts) if table is not None else []
    parameters: dict[str, Any] = {}
    if asked.operation in BOUNDS:
        bound = asked.quantities[0]
        parameters = {"bound": asked.operation, "value": bound.low, "unit": bound.unit}
    statement = {"highest": _sql.HIGHEST, "lowest": _sql.LOWEST}.get(asked.operation, _sql.BOUNDED)
    found, sql = _run(held, statement, chosen, parameters) if chosen else ([], "")
    if table is None or not found:
        return None
    return TableAnswer("comparison", _described(held, found), sql, tuple(row for row, *_ in found), table.score)


def _figure(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Sum or mean of the rows that the question names, or of a whole column, unless the table states its total."""
    table = _meant.whole(held, asked, matches)
    if table is None:
        return None
    chosen = _meant.whole_column(held, asked, table.distinct or table.parts)
    stated = [] if table.distinct else [row for row in table.rows if _meant.TOTAL.search(held.label(row))]
    if chosen and len(stated) == 1 and asked.operation != "average":
        found, sql = _run(held, _sql.VALUES, [Place(stated[0], chosen[0].column)])
        return TableAnswer("lookup", _described(held, found), sql, (stated[0],), table.score)
    name, statement = ("average", _sql.AVERAGE) if asked.operation == "average" else ("sum", _sql.SUM)
    found, sql = _run(held, statement, chosen) if chosen else ([], "")
    if not found:
        return None
    counted = sum(isfinite(held.cells(row)[column].quantity.low) for row, column in chosen)
    text = f"{_described(held, chosen)}; {name} of {counted}: {_written(held, chosen, found[0][0])}"
    return TableAnswer("aggregate", text, sql, tuple(row for row, _ in chosen), table.score)


def _count(held: Held, asked: Asked, matches: Sequence[Match]) -> TableAnswer | None:
    """Number of rows of a table that tell what the question names of single rows; all where it names nothing."""
    table = _meant.whole(held, asked, matches)
    if table is None:
        return None
    rows = table.named or table.parts
    chosen = [Place(row, held.table(row).label) for row in rows]
    found, sql = _run(held, _sql.COUNT, chosen)
    text = f"{_described(held, chosen)}; count: {found[0][0]}"
    return TableAnswer("aggregate", text, sql, tuple(rows), table.score)


def _run(
    held: Held, statement: str, chosen: Sequence[Place], more: Mapping[str, Any] | None = None
) -> tuple[list[tuple[Any, ...]], str]:
    """Rows of a statement over cells, and the statement as it is shown."""
    parameters = {"rows": [p.row for p in chosen], "places": [p.column for p in chosen], **(more or {})}
    return held.records.run(statement, parameters), _sql.shown(statement, parameters)


def _written(held: Held, chosen: Sequence[Place], figure: float) -> str:
    """A figure as the first cell with a unit writes its own."""
    cells = [held.cells(row)[column] for row, column in chosen]
    like = next((cell for cell in cells if cell.quantity.unit), cells[0])
    return rewritten(figure, like.text, like.quantity.unit)


def _described(held: Held, cells: Iterable[Sequence[Any]]) -> str:
    """Cells with the names of their tables, rows and columns, as written; each table's name once in a run."""
    by_row: dict[int, list[int]] = {}
    for row, column, *_ in cells:
        by_row.setdefault(row, []).append(column)
    parts: list[str] = []
    last = None
    for row, places in by_row.items():
        table = held.table(row)
        told = chain([table.label], (place for place in places if place != table.label))
        pairs = [(table.columns[place], held.cells(row)[place].text) for place in told]
        line = "; ".join(f"{head}: {text}" if head else text for head, text in pairs)
        parts.append(line if table is last else f"{table.name} - {line}")
        last = table
    return " | ".join(parts)
