"""Table questions (shore): what a question means in the tables, and the rows that answer it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from math import isfinite, isinf
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.graph_table import table_records
from raglab.extensions.graph_table.quantities import Quantity, format_like
from raglab.extensions.graph_table.table_records import (
    BOUNDS,
    CHANGE,
    DASHES,
    TYPED,
    WHOLE,
    Columns,
    MarkdownTable,
    Posting,
    Records,
    RowMatch,
    TableCell,
    TableQuestion,
    distinct_terms,
    head_time,
    markdown_tables,
    row_text,
    store_records,
    table_question,
)
from raglab.values import Chunk
from raglab.words.languages import LANGUAGES, expression
from raglab.words.packs import GENERIC, Pack

_DIGITS = 9  # of a number that counts rows
_YEAR = 360  # days from which on a span is a year: it means the column that begins in it
TOTAL = re.compile(expression(LANGUAGES.tables.totals), re.IGNORECASE)
_PART = re.compile(expression(LANGUAGES.tables.parts), re.IGNORECASE)


class VisibleTables(NamedTuple):
    """Tables with their records, as far as a question may see them.

    at: table and place in it of each row. runs: for each table the rows of it and of those that
    continue it. within: rows that may be seen; None is all of them.
    """

    tables: tuple[MarkdownTable, ...]
    at: tuple[tuple[int, int], ...]
    runs: tuple[range, ...]
    records: Records
    within: NDArray[np.integer] | None = None

    def matches(self, question: TableQuestion, k: int) -> list[RowMatch]:
        """Return the k rows that share most with a question."""
        return self.records.matches(question, k, self.within)

    def table(self, row: int) -> MarkdownTable:
        """Table of a row."""
        return self.tables[self.at[row][0]]

    def cells(self, row: int) -> tuple[TableCell, ...]:
        """Cells of a row."""
        return self.table(row).rows[self.at[row][1]]

    def label(self, row: int) -> str:
        """What a row is called."""
        return self.cells(row)[self.table(row).label].text

    def siblings(self, row: int) -> list[int]:
        """Rows of the same table, continued ones too, that may be seen."""
        run = np.array(self.runs[self.at[row][0]])
        return (run if self.within is None else np.intersect1d(run, self.within)).tolist()


class CellPosition(NamedTuple):
    """A cell: row and column."""

    row: int
    column: int


def single_row(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> RowMatch | None:
    """The one row that a question means, or None where none or several are as good."""
    level_best = best_matches(held, question, matches)
    return level_best[0] if len(level_best) == 1 else None


def best_matches(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[RowMatch]:
    """Best rows, where their own cells share a word with the question.

    Of those with one score the most fully named.
    """
    best = [match for match in matches if match.score == matches[0].score and match.own]
    shares = [_name_share(held, match.row, question) for match in best]
    return [match for match, share in zip(best, shares, strict=True) if share == max(shares)]


def _name_share(held: VisibleTables, row: int, question: TableQuestion) -> float:
    """Share of a row's name that a question tells."""
    named = distinct_terms(held.label(row))
    return sum(term in question.terms for term in named) / len(named) if named else 0.0


def complementary_row(best: RowMatch, matches: Sequence[RowMatch]) -> RowMatch | None:
    """Row that covers most of the question's terms that the best row lacks."""
    candidates = [
        match
        for match in matches
        if match.row != best.row and match.own and added_share(best, match) > 0.0
    ]
    return max(
        candidates,
        key=lambda match: (added_share(best, match) + match.score, -match.row),
        default=None,
    )


def added_share(best: RowMatch, second: RowMatch) -> float:
    """Share of the question's terms that the second row has and the best row lacks."""
    return sum(share for term, share in second.shares.items() if term not in best.shares)


def columns(held: VisibleTables, row: int, question: TableQuestion) -> list[int]:
    """Columns that a question means in a row, by unit, time and words of their heads.

    All where it says nothing.

    A cell that only has a dash is none, and neither is a column that numbers the rows.
    """
    table, cells = held.table(row), held.cells(row)
    places = [
        place
        for place in range(len(cells))
        if place != table.label and not _is_row_counter(table, place)
    ]
    if question.kinds:
        fitting = [place for place in places if cells[place].quantity.unit in question.kinds]
        places = fitting or [
            place
            for place in places
            if cells[place].quantity.kind in {"text", "percent", "missing"}
        ]
    places = _columns_for_time(table, places, question)
    word_counts = {place: len(head_terms(table, place, question)) for place in places}
    return [
        place
        for place in places
        if word_counts[place] == max(word_counts.values()) and cells[place].text.strip(DASHES)
    ]


def _is_row_counter(table: MarkdownTable, place: int) -> bool:
    """Whether a column counts the rows: 1, 2, 3."""
    counted = [row[place].text.strip(".") for row in table.rows]
    start = int(counted[0]) if counted[0].isdecimal() and len(counted[0]) < _DIGITS else 0
    return (
        start > 0
        and len(counted) > 1
        and counted == [str(n) for n in range(start, start + len(counted))]
    )


def head_terms(table: MarkdownTable, place: int, question: TableQuestion) -> set[str]:
    """Words of a column's head, its years aside, that a question says."""
    return {term for term in distinct_terms(table.columns[place]) if not term.isdigit()} & set(
        question.terms
    )


def _columns_for_time(
    table: MarkdownTable, places: list[int], question: TableQuestion
) -> list[int]:
    """Columns for the time that the question names; all of them where they have one time."""
    times = {
        place: time for place in places if (time := head_time(table.columns[place])) is not None
    }
    if len(times) < 2:
        return places
    for day in question.days:
        fitting = _period_columns(times, day)
        if 0 < len(fitting) < len(times):
            return fitting
    order = sorted(times, key=lambda place: (times[place].low, place))
    return [order[-1] if question.side > 0 else order[0]] if question.side else places


def _period_columns(times: Mapping[int, Quantity], day: Quantity) -> list[int]:
    """Columns for a day or a span; for a year those that begin in it, if any.

    A day is in no business year.
    """
    spans = {place: time for place, time in times.items() if isinf(time.low) != isinf(time.high)}
    if day.high - day.low >= _YEAR:
        begun = [place for place, time in times.items() if day.low <= time.low <= day.high]
        if begun:
            return begun
    return [place for place, time in spans.items() if time.low <= day.high and day.low <= time.high]


def compared_columns(held: VisibleTables, row: int, question: TableQuestion) -> list[int]:
    """The two columns of a row to compare.

    Those named in the question, else two times, else its only numbers.
    """
    table = held.table(row)
    exact = [
        place
        for place, cell in enumerate(held.cells(row))
        if place != table.label and cell.quantity.exact
    ]
    named = [place for place in exact if head_terms(table, place, question)]
    timed = [place for place in exact if head_time(table.columns[place]) is not None]
    return next((places for places in (named, timed, exact) if len(places) == 2), [])


def compared_cells(
    held: VisibleTables, row: int, second_row: int, question: TableQuestion
) -> list[CellPosition]:
    """The one cell of each of two rows that a question compares."""
    chosen = [
        CellPosition(compared_row, p)
        for compared_row in (row, second_row)
        for p in columns(held, compared_row, question)
        if held.cells(compared_row)[p].quantity.exact
    ]
    return chosen if [place.row for place in chosen] == [row, second_row] else []


def column_cells(
    held: VisibleTables, question: TableQuestion, rows: Sequence[int]
) -> list[CellPosition]:
    """Cells of the one column of numbers that a question means in several rows.

    None where it means several columns.
    """
    counts: dict[int, int] = {}
    for row in rows:
        means = columns(held, row, question)
        for place, cell in enumerate(held.cells(row)):
            counts[place] = counts.get(place, 0) + (place in means and isfinite(cell.quantity.low))
    wanted = [place for place, count in counts.items() if 2 * count > len(rows)]
    return (
        [CellPosition(row, wanted[0]) for row in rows] if len(rows) > 1 and len(wanted) == 1 else []
    )


class WholeTable(NamedTuple):
    """A table that a question means as a whole.

    rows: all. parts: those that are no total of others and no part of another. named: those whose
    own cells tell most of the words that not all rows stand for. distinct: those that each tell
    such a word which no better one does. score: share of the question that they carry together.
    """

    rows: list[int]
    parts: list[int]
    named: list[int]
    distinct: list[int]
    score: float


def table_match(
    held: VisibleTables, question: TableQuestion, matches: Iterable[RowMatch]
) -> WholeTable | None:
    """Return the table whose rows together carry most of a question.

    None where two carry as much.
    """
    shares: dict[range, dict[str, float]] = {}
    for match in matches:
        of_table = shares.setdefault(held.runs[held.at[match.row][0]], {})
        for term, share in match.shares.items():
            of_table[term] = max(share, of_table.get(term, 0.0))
    totals = sorted(
        ((sum(sorted(terms.values())), -run.start) for run, terms in shares.items()), reverse=True
    )
    if not totals or (len(totals) > 1 and totals[0][0] == totals[1][0]):
        return None
    rows = held.siblings(-totals[0][1])
    within = held.records.matches(question, len(rows), np.array(rows))
    own = _rows_by_own_words(within, len(rows))
    row_shares = {
        match.row: sum(sorted(match.shares[term] for term in terms)) for match, terms in own
    }
    named = sorted(row for row, share in row_shares.items() if share == max(row_shares.values()))
    names = {row: held.label(row) for row in rows}
    parts = [row for row, name in names.items() if not (TOTAL.search(name) or _PART.search(name))]
    return WholeTable(rows, parts, named, _distinct_rows(own), min(1.0, totals[0][0]))


def _rows_by_own_words(
    matches: Sequence[RowMatch], rows: int
) -> list[tuple[RowMatch, frozenset[str]]]:
    """Rows of a table with the question's terms specific to them, not common to all rows."""
    every = len(matches) == rows
    common = (
        frozenset.intersection(*(frozenset(match.shares) for match in matches))
        if every
        else frozenset()
    )
    own = [
        (match, frozenset(t for t in match.own - common if not t.startswith(TYPED)))
        for match in matches
    ]
    return [(match, terms) for match, terms in own if terms]


def _distinct_rows(own: Iterable[tuple[RowMatch, frozenset[str]]]) -> list[int]:
    """Rows that add a term to the better ones; in the order of the table."""
    chosen: list[int] = []
    covered_terms: set[str] = set()
    for match, terms in own:
        if terms - covered_terms:
            chosen.append(match.row)
            covered_terms |= terms
    return sorted(chosen)


_Try = Callable[[VisibleTables, TableQuestion, Sequence[RowMatch]], "TableAnswer | None"]

CANDIDATES = 100  # rows that are looked at


class TableAnswer(NamedTuple):
    """What tables answer to a question.

    kind: a cell, a comparison of cells, or a figure over many. text: name of the table, heads and
    cells as written; what is worked out from them comes last. sql: the statement that was run, its
    parameters behind it. rows: places among the index's rows that it rests on. score: share of the
    question that they carry, in [0, 1].
    """

    kind: Literal["lookup", "comparison", "aggregate"]
    text: str
    sql: str
    rows: tuple[int, ...]
    score: float


def table_answer(held: VisibleTables, question: TableQuestion) -> TableAnswer | None:
    """Answer from tables, or None where no table answers or its cells do not go together."""
    matches = held.matches(question, CANDIDATES)
    tries: dict[str, tuple[_Try, ...]] = {
        **dict.fromkeys(("change", "difference"), (_difference, _row_cells)),
        **dict.fromkeys(("highest", "lowest", *BOUNDS), (_rank_rows,)),
        **dict.fromkeys(("sum", "average"), (_figure,)),
        "total": (_row_cells, _figure),
        "count": (_row_cells,) if question.kinds else (_count_numbers, _count_rows),
    }
    answers = (
        attempt(held, question, matches) for attempt in tries.get(question.operation, (_row_cells,))
    )
    return next((answer for answer in answers if answer is not None), None) if matches else None


def _row_cells(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Cells of the one row that the question means."""
    best = single_row(held, question, matches)
    return None if best is None else _lookup_cells(held, best, columns(held, best.row, question))


def _count_numbers(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Numbers, but no sums of money, in the one row that the question means."""
    best = single_row(held, question, matches)
    if best is None:
        return None
    stated = {
        place: held.cells(best.row)[place].quantity for place in columns(held, best.row, question)
    }
    return _lookup_cells(
        held,
        best,
        [
            place
            for place, quantity in stated.items()
            if quantity.exact and quantity.kind == "number"
        ],
    )


def _lookup_cells(held: VisibleTables, best: RowMatch, places: Sequence[int]) -> TableAnswer | None:
    if not places:
        return None
    sql_rows, sql = _run_statement(
        held, table_records.VALUES, [CellPosition(best.row, place) for place in places]
    )
    return TableAnswer("lookup", _cell_captions(held, sql_rows), sql, (best.row,), best.score)


def _difference(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Two columns of the row that the question means, or one column of two rows."""
    level = best_matches(held, question, matches)
    if not level or len(level) > 2:
        return None
    best, *ties = level
    second = ties[0] if ties else complementary_row(best, matches)
    tries: list[tuple[list[CellPosition], float]] = []
    if second is not None:
        pair = compared_cells(held, best.row, second.row, question)
        tries.append((pair, min(1.0, best.score + added_share(best, second))))
    if not ties:
        places = compared_columns(held, best.row, question)
        named = all(head_terms(held.table(best.row), place, question) for place in places)
        first = question.operation == "change" or named
        tries.insert(
            0 if first else len(tries),
            ([CellPosition(best.row, place) for place in places], best.score),
        )
    for chosen, score in tries:
        sql_rows, sql = (
            _run_statement(held, table_records.DIFFERENCE, chosen) if len(chosen) == 2 else ([], "")
        )
        if sql_rows:
            text = (
                f"{_cell_captions(held, chosen)}; difference: "
                f"{_figure_text(held, chosen, sql_rows[0][0])}"
            )
            return TableAnswer(
                "comparison", text, sql, tuple(dict.fromkeys(p.row for p in chosen)), score
            )
    return None


def _rank_rows(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Rows of one table by the cells of one column.

    The highest, the lowest, or all beyond a bound.
    """
    table = table_match(held, question, matches)
    chosen = column_cells(held, question, table.named or table.parts) if table is not None else []
    parameters: dict[str, Any] = {}
    if question.operation in BOUNDS:
        bound = question.quantities[0]
        parameters = {"bound": question.operation, "value": bound.low, "unit": bound.unit}
    statement = {"highest": table_records.HIGHEST, "lowest": table_records.LOWEST}.get(
        question.operation, table_records.BOUNDED
    )
    sql_rows, sql = _run_statement(held, statement, chosen, parameters) if chosen else ([], "")
    if table is None or not sql_rows:
        return None
    return TableAnswer(
        "comparison",
        _cell_captions(held, sql_rows),
        sql,
        tuple(row for row, *_ in sql_rows),
        table.score,
    )


def _figure(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Sum or mean of the question's rows, or a whole column, unless the table states its total."""
    table = table_match(held, question, matches)
    if table is None:
        return None
    chosen = column_cells(held, question, table.distinct or table.parts)
    stated = [] if table.distinct else [row for row in table.rows if TOTAL.search(held.label(row))]
    if chosen and len(stated) == 1 and question.operation != "average":
        sql_rows, sql = _run_statement(
            held, table_records.VALUES, [CellPosition(stated[0], chosen[0].column)]
        )
        return TableAnswer("lookup", _cell_captions(held, sql_rows), sql, (stated[0],), table.score)
    name, statement = (
        ("average", table_records.AVERAGE)
        if question.operation == "average"
        else ("sum", table_records.SUM)
    )
    sql_rows, sql = _run_statement(held, statement, chosen) if chosen else ([], "")
    if not sql_rows:
        return None
    counted = sum(isfinite(held.cells(row)[column].quantity.low) for row, column in chosen)
    text = (
        f"{_cell_captions(held, chosen)}; {name} of {counted}: "
        f"{_figure_text(held, chosen, sql_rows[0][0])}"
    )
    return TableAnswer("aggregate", text, sql, tuple(row for row, _ in chosen), table.score)


def _count_rows(
    held: VisibleTables, question: TableQuestion, matches: Sequence[RowMatch]
) -> TableAnswer | None:
    """Number of rows of a table that match the question's terms of rows; all where it has none."""
    table = table_match(held, question, matches)
    if table is None:
        return None
    rows = table.named or table.parts
    chosen = [CellPosition(row, held.table(row).label) for row in rows]
    sql_rows, sql = _run_statement(held, table_records.COUNT, chosen)
    text = f"{_cell_captions(held, chosen)}; count: {sql_rows[0][0]}"
    return TableAnswer("aggregate", text, sql, tuple(rows), table.score)


def _run_statement(
    held: VisibleTables,
    statement: str,
    chosen: Sequence[CellPosition],
    more: Mapping[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], str]:
    """Rows of a statement over cells, and the statement as it is shown."""
    parameters = {
        "rows": [p.row for p in chosen],
        "places": [p.column for p in chosen],
        **(more or {}),
    }
    return held.records.run(statement, parameters), table_records.sql_text(statement, parameters)


def _figure_text(held: VisibleTables, chosen: Sequence[CellPosition], figure: float) -> str:
    """Figure in the format of the first cell that has a unit."""
    cells = [held.cells(row)[column] for row, column in chosen]
    like = next((cell for cell in cells if cell.quantity.unit), cells[0])
    return format_like(figure, like.text, like.quantity.unit)


def _cell_captions(held: VisibleTables, cells: Iterable[Sequence[Any]]) -> str:
    """Cells with the names of their tables, rows and columns, as written.

    Each table's name once in a run.
    """
    by_row: dict[int, list[int]] = {}
    for row, column, *_ in cells:
        by_row.setdefault(row, []).append(column)
    parts: list[str] = []
    last = None
    for row, places in by_row.items():
        table = held.table(row)
        caption_places = chain([table.label], (place for place in places if place != table.label))
        pairs = [(table.columns[place], held.cells(row)[place].text) for place in caption_places]
        line = "; ".join(f"{head}: {text}" if head else text for head, text in pairs)
        parts.append(line if table is last else f"{table.name} - {line}")
        last = table
    return " | ".join(parts)


Ids = NDArray[np.int64]
Values = NDArray[np.float64]
Allowed = Sequence[NDArray[np.integer] | None]

# What a shared word counts by where it stands: a row's name and its document tell it apart, other
# cells and heads less, prose around a table least. Chosen on the bundled tune split.
_LABEL, _CELL, _HEAD, _DOCUMENT, _PROSE = WHOLE, 70, 70, WHOLE, 40


@dataclass(frozen=True, slots=True)
class TableIndex:
    """Rows of the tables in a corpus.

    rows: one chunk a row. parents: position in the corpus of the chunk that each row stands in,
    [R]. tables: typed. later: expressions of a question that speak of the newer figures.
    """

    rows: tuple[Chunk, ...] = field(repr=False)
    parents: Ids = field(repr=False)
    tables: tuple[MarkdownTable, ...] = field(repr=False)
    held: VisibleTables | None = field(repr=False)
    later: tuple[str, ...] = ()

    def search(
        self, queries: Sequence[str], k: int, allowed: Allowed | None = None
    ) -> tuple[Values, Ids]:
        """Return the k best rows, (scores, ids), each [Q, k], by (score, id).

        NaN and -1 where fewer share a word.

        A score is the share of the question's terms, by their weight, that the row, its table or
        its document holds.

        Args:
          queries: Q texts.
          k: rows a query.
          allowed: for each query the positions of chunks whose rows it may find; None is all of
            them.
        """
        scores, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        scopes = [None] * len(queries) if allowed is None else allowed
        for i, (query, scope) in enumerate(zip(queries, scopes, strict=True)):
            wanted = table_question(query, self.later)
            matches = (
                self.held.records.matches(wanted, k, self._within(scope))
                if self.held is not None
                else []
            )
            scores[i, : len(matches)] = [match.score for match in matches]
            ids[i, : len(matches)] = [match.row for match in matches]
        return scores, ids

    def answer(
        self, question: str, allowed: NDArray[np.integer] | None = None
    ) -> TableAnswer | None:
        r"""Return what the tables answer.

        None where none speaks to the question, or its cells do not go together.

        Args:
          question: any text.
          allowed: positions of chunks whose tables may answer; None is all of them.

        Example:
          >>> text = "Charges\n| Kind | Charge |\n|---|---|\n| Tandem | £250 |\n| Trailer | £500 |"
          >>> index = table_index([Chunk("a#1", text, "a.md")])
          >>> index.answer("By how much is the trailer charge higher than the tandem charge?").text
          'Charges - Kind: Tandem; Charge: £250 | Kind: Trailer; Charge: £500; difference: £250'
        """
        if self.held is None:
            return None
        return table_answer(
            self.held._replace(within=self._within(allowed)), table_question(question, self.later)
        )

    def _within(self, allowed: NDArray[np.integer] | None) -> NDArray[np.integer] | None:
        """Rows of chunks."""
        return None if allowed is None else np.flatnonzero(np.isin(self.parents, allowed))


def table_rows(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Rows of the tables in the texts of a corpus, one passage each, as `table_index` has them."""
    return _row_chunks(chunks, markdown_tables(chunks))[0]


def table_index(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> TableIndex:
    """Index the tables in the texts of a corpus; an empty index where there is none.

    Args:
      chunks: of the corpus, in its order.
      pack: of its trade, with its words for newer figures.
    """
    tables = markdown_tables(chunks)
    rows, parents, at = _row_chunks(chunks, tables)
    if not at:
        return TableIndex((), parents, (), None)
    held = VisibleTables(
        tables,
        at,
        _row_ranges(tables, chunks),
        store_records(len(at), _database_columns(chunks, tables, at)),
    )
    return TableIndex(rows, parents, tables, held, pack.later)


def _row_chunks(
    chunks: Sequence[Chunk], tables: Sequence[MarkdownTable]
) -> tuple[tuple[Chunk, ...], Ids, tuple[tuple[int, int], ...]]:
    """Rows as passages; the position of each row's chunk, [R].

    Table and place in it of each row.
    """
    at = tuple(
        (number, row) for number, table in enumerate(tables) for row in range(len(table.rows))
    )
    parents = np.array([tables[number].chunk for number, _ in at], np.int64)
    rows = tuple(
        chunks[parent]._replace(
            chunk_id=f"{chunks[parent].chunk_id}#row{place}", text=row_text(tables[number], row)
        )
        for parent, place, (number, row) in zip(
            parents.tolist(), _row_numbers(parents), at, strict=True
        )
    )
    return rows, parents, at


def _row_ranges(tables: Sequence[MarkdownTable], chunks: Sequence[Chunk]) -> tuple[range, ...]:
    """Rows of each table and of its neighbours in the same document, with its name and heads."""
    first = 0
    runs: list[range] = []
    for _, same in groupby(
        tables, key=lambda table: (chunks[table.chunk].source, table.name, table.columns)
    ):
        sizes = [len(table.rows) for table in same]
        runs += [range(first, first + sum(sizes))] * len(sizes)
        first += sum(sizes)
    return tuple(runs)


def _row_numbers(parents: Ids) -> list[int]:
    """Number of each row within its chunk, from 1."""
    _, starts, counts = np.unique(parents, return_index=True, return_counts=True)
    return [
        int(place) - start + 1
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
        for place in range(start, start + count)
    ]


def _database_columns(
    chunks: Sequence[Chunk], tables: Sequence[MarkdownTable], at: Sequence[tuple[int, int]]
) -> Columns:
    """All that the database holds, row by row."""
    shared = [_shared_terms(table, chunks[table.chunk]) for table in tables]
    postings: dict[str, list[Posting]] = {}
    for row, (number, place) in enumerate(at):
        for term, (weight, own) in _row_terms(tables[number], place, shared[number]).items():
            postings.setdefault(term, []).append(Posting(row, weight, own))
    cells = [
        (row, column, cell.text, cell.quantity)
        for row, (number, place) in enumerate(at)
        for column, cell in enumerate(tables[number].rows[place])
    ]
    return Columns(postings, cells)


def _shared_terms(table: MarkdownTable, chunk: Chunk) -> dict[str, int]:
    """Terms that all rows of a table have, with their weight.

    Of its heads and section, its document, and its prose.
    """
    first, *rest = chunk.full_text.splitlines()
    prose = "\n".join(line for line in rest if "|" not in line)
    document = " ".join(
        (*chunk.tags.values(), *chunk.entities, chunk.source, table.name.rpartition(" (")[2])
    )
    parts = ((prose, _PROSE), (f"{first} {' '.join(table.columns)}", _HEAD), (document, _DOCUMENT))
    term_weights = {term: weight for text, weight in parts for term in distinct_terms(text)}
    times = sum(head_time(head) is not None for head in table.columns)
    return {**term_weights, CHANGE: WHOLE} if times > 1 else term_weights


def _row_terms(
    table: MarkdownTable, place: int, shared: dict[str, int]
) -> dict[str, tuple[int, bool]]:
    """Terms of a row, each with its weight and whether the row's own cells hold it."""
    term_weights: dict[str, tuple[int, bool]] = {
        term: (weight, False) for term, weight in shared.items()
    }
    for column, cell in enumerate(table.rows[place]):
        weight = _LABEL if column == table.label else _CELL
        plain = cell.quantity.kind in {"text", "missing", "date"}
        for term in distinct_terms(cell.text if plain else cell.quantity.note):
            term_weights[term] = (max(weight, term_weights.get(term, (0, True))[0]), True)
    return term_weights
