"""Which rows and columns of tables a question means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, isinf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.retrieval._asked import TYPED, Asked, terms_of
from raglab.retrieval._quantities import Quantity
from raglab.retrieval._records import DASHES, Cell, Table, time_of
from raglab.retrieval._sql import Match, Records

_DIGITS = 9  # of a number that counts rows
_YEAR = 360  # days from which on a span is a year: it means the column that begins in it
TOTAL = re.compile(r"^(?:grand )?total\b|\btotal (?:payable|to pay|ttc)\b", re.IGNORECASE)
_PART = re.compile(r"\b(?:sub-?|sous-)total\b|^net\b|^nett?e\b|^(?:of which|dont)\b", re.IGNORECASE)


class Held(NamedTuple):
    """Tables with their records, as far as a question may see them.

    at: table and place in it of each row. runs: for each table the rows of it and of those that continue it. within:
    rows that may be seen; None is all of them.
    """

    tables: tuple[Table, ...]
    at: tuple[tuple[int, int], ...]
    runs: tuple[range, ...]
    records: Records
    within: NDArray[np.integer] | None = None

    def matches(self, asked: Asked, k: int) -> list[Match]:
        """Return the k rows that share most with a question."""
        return self.records.matches(asked, k, self.within)

    def table(self, row: int) -> Table:
        """Table of a row."""
        return self.tables[self.at[row][0]]

    def cells(self, row: int) -> tuple[Cell, ...]:
        """Cells of a row."""
        return self.table(row).rows[self.at[row][1]]

    def label(self, row: int) -> str:
        """What a row is called."""
        return self.cells(row)[self.table(row).label].text

    def siblings(self, row: int) -> list[int]:
        """Rows of the same table, continued ones too, that may be seen."""
        run = np.array(self.runs[self.at[row][0]])
        return (run if self.within is None else np.intersect1d(run, self.within)).tolist()


class Place(NamedTuple):
    """A cell: row and column."""

    row: int
    column: int


def singled_out(held: Held, asked: Asked, matches: Sequence[Match]) -> Match | None:
    """The one row that a question means, or None where none or several are as good."""
    level_best = level(held, asked, matches)
    return level_best[0] if len(level_best) == 1 else None


def level(held: Held, asked: Asked, matches: Sequence[Match]) -> list[Match]:
    """Best rows, where their own cells share a word with the question; of those with one score the most fully named."""
    best = [match for match in matches if match.score == matches[0].score and match.own]
    told = [_told(held, match.row, asked) for match in best]
    return [match for match, share in zip(best, told, strict=True) if share == max(told)]


def _told(held: Held, row: int, asked: Asked) -> float:
    """Share of a row's name that a question tells."""
    named = terms_of(held.label(row))
    return sum(term in asked.terms for term in named) / len(named) if named else 0.0


def second(best: Match, matches: Sequence[Match]) -> Match | None:
    """Row that tells most of what the best one leaves out, of those whose own cells share a word with the question."""
    others = [match for match in matches if match.row != best.row and match.own and gain(best, match) > 0.0]
    return max(others, key=lambda match: (gain(best, match) + match.score, -match.row), default=None)


def gain(best: Match, other: Match) -> float:
    """Share of the question that another row tells and the best one does not."""
    return sum(share for term, share in other.shares.items() if term not in best.shares)


def columns(held: Held, row: int, asked: Asked) -> list[int]:
    """Columns that a question means in a row, by unit, time and words of their heads; all where it says nothing.

    A cell that only has a dash is none, and neither is a column that numbers the rows.
    """
    table, cells = held.table(row), held.cells(row)
    places = [place for place in range(len(cells)) if place != table.label and not _numbers(table, place)]
    if asked.kinds:
        fitting = [place for place in places if cells[place].quantity.unit in asked.kinds]
        places = fitting or [place for place in places if cells[place].quantity.kind in {"text", "percent", "missing"}]
    places = _timely(table, places, asked)
    told = {place: len(head_terms(table, place, asked)) for place in places}
    return [place for place in places if told[place] == max(told.values()) and cells[place].text.strip(DASHES)]


def _numbers(table: Table, place: int) -> bool:
    """Whether a column counts the rows: 1, 2, 3."""
    counted = [row[place].text.strip(".") for row in table.rows]
    start = int(counted[0]) if counted[0].isdecimal() and len(counted[0]) < _DIGITS else 0
    return start > 0 and len(counted) > 1 and counted == [str(n) for n in range(start, start + len(counted))]


def head_terms(table: Table, place: int, asked: Asked) -> set[str]:
    """Words of a column's head, its years aside, that a question says."""
    return {term for term in terms_of(table.columns[place]) if not term.isdigit()} & set(asked.terms)


def _timely(table: Table, places: list[int], asked: Asked) -> list[int]:
    """Of columns for several times those for the time that a question speaks of."""
    times = {place: time for place in places if (time := time_of(table.columns[place])) is not None}
    if len(times) < 2:
        return places
    for day in asked.days:
        fitting = _fitting(times, day)
        if 0 < len(fitting) < len(times):
            return fitting
    order = sorted(times, key=lambda place: (times[place].low, place))
    return [order[-1] if asked.side > 0 else order[0]] if asked.side else places


def _fitting(times: Mapping[int, Quantity], day: Quantity) -> list[int]:
    """Columns for a day or a span; for a year those that begin in it, if any. A day is in no year of insurance."""
    spans = {place: time for place, time in times.items() if isinf(time.low) != isinf(time.high)}
    if day.high - day.low >= _YEAR:
        begun = [place for place, time in times.items() if day.low <= time.low <= day.high]
        if begun:
            return begun
    return [place for place, time in spans.items() if time.low <= day.high and day.low <= time.high]


def two_columns(held: Held, row: int, asked: Asked) -> list[int]:
    """The two columns of a row that a question compares: named by their heads, for two times, or its only numbers."""
    table = held.table(row)
    exact = [place for place, cell in enumerate(held.cells(row)) if place != table.label and cell.quantity.exact]
    named = [place for place in exact if head_terms(table, place, asked)]
    timed = [place for place in exact if time_of(table.columns[place]) is not None]
    return next((places for places in (named, timed, exact) if len(places) == 2), [])


def one_column(held: Held, row: int, other: int, asked: Asked) -> list[Place]:
    """The one cell of each of two rows that a question compares."""
    chosen = [
        Place(one, p) for one in (row, other) for p in columns(held, one, asked) if held.cells(one)[p].quantity.exact
    ]
    return chosen if [place.row for place in chosen] == [row, other] else []


def whole_column(held: Held, asked: Asked, rows: Sequence[int]) -> list[Place]:
    """Cells of the one column of numbers that a question means in several rows; none where it means several columns."""
    counts: dict[int, int] = {}
    for row in rows:
        means = columns(held, row, asked)
        for place, cell in enumerate(held.cells(row)):
            counts[place] = counts.get(place, 0) + (place in means and isfinite(cell.quantity.low))
    wanted = [place for place, count in counts.items() if 2 * count > len(rows)]
    return [Place(row, wanted[0]) for row in rows] if len(rows) > 1 and len(wanted) == 1 else []


class Whole(NamedTuple):
    """A table that a question means as a whole.

    rows: all. parts: those that are no total of others and no part of another. named: those whose own cells tell most
    of the words that not all rows stand for. distinct: those that each tell such a word which no better one does.
    score: share of the question that they carry together.
    """

    rows: list[int]
    parts: list[int]
    named: list[int]
    distinct: list[int]
    score: float


def whole(held: Held, asked: Asked, matches: Iterable[Match]) -> Whole | None:
    """Return the table whose rows together carry most of a question; None where two carry as much."""
    shares: dict[range, dict[str, float]] = {}
    for match in matches:
        of_table = shares.setdefault(held.runs[held.at[match.row][0]], {})
        for term, share in match.shares.items():
            of_table[term] = max(share, of_table.get(term, 0.0))
    totals = sorted(((sum(sorted(terms.values())), -run.start) for run, terms in shares.items()), reverse=True)
    if not totals or (len(totals) > 1 and totals[0][0] == totals[1][0]):
        return None
    rows = held.siblings(-totals[0][1])
    within = held.records.matches(asked, len(rows), np.array(rows))
    own = _own(within, len(rows))
    told = {match.row: sum(sorted(match.shares[term] for term in terms)) for match, terms in own}
    named = sorted(row for row, share in told.items() if share == max(told.values()))
    names = {row: held.label(row) for row in rows}
    parts = [row for row, name in names.items() if not (TOTAL.search(name) or _PART.search(name))]
    return Whole(rows, parts, named, _distinct(own), min(1.0, totals[0][0]))


def _own(matches: Sequence[Match], rows: int) -> list[tuple[Match, frozenset[str]]]:
    """Rows of a table with the words that their own cells tell and not all its rows stand for, where there are any."""
    every = len(matches) == rows
    common = frozenset.intersection(*(frozenset(match.shares) for match in matches)) if every else frozenset()
    own = [(match, frozenset(t for t in match.own - common if not t.startswith(TYPED))) for match in matches]
    return [(match, terms) for match, terms in own if terms]


def _distinct(own: Iterable[tuple[Match, frozenset[str]]]) -> list[int]:
    """Rows, best first, that each tell a word which those before them do not; in the order of the table."""
    chosen: list[int] = []
    seen: set[str] = set()
    for match, terms in own:
        if terms - seen:
            chosen.append(match.row)
            seen |= terms
    return sorted(chosen)
