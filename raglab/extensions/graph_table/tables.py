"""Table questions (shore): what a question means in the tables, and the rows that answer it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import isfinite, isinf
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.graph_table.quantities import Quantity, format_like
from raglab.extensions.graph_table.table_records import (
    BOUNDS,
    CHANGE,
    DASHES,
    STATEMENTS,
    TYPED,
    WHOLE,
    MarkdownTable,
    Records,
    RowMatch,
    TableCell,
    TableQuestion,
    distinct_terms,
    head_time,
    markdown_tables,
    sql_text,
    store_records,
    table_question,
)
from raglab.values import Chunk
from raglab.words.languages import LANGUAGES, expression
from raglab.words.packs import GENERIC, Pack

Ids = NDArray[np.int64]
Scope = NDArray[np.integer] | None

_DIGITS = 9  # of a number that counts rows
_YEAR = 360  # days from which on a span is a year: it means the column that begins in it
_WORDS = LANGUAGES.tables
TOTAL = re.compile(expression(_WORDS.totals), re.IGNORECASE)
_PART = re.compile(expression(_WORDS.parts), re.IGNORECASE)
CANDIDATES = 100  # rows that are looked at
ROW_MARK = "#row"  # between the id of a chunk and the number of a row in it
# What a shared word counts by where it stands: a row's name and its document tell it apart, other
# cells and heads less, prose around a table least. Chosen on the bundled tune split.
_LABEL, _CELL, _HEAD, _DOCUMENT, _PROSE = WHOLE, 70, 70, WHOLE, 40


class TableRow(NamedTuple):
    """A row of a table. run: rows of its table and of those that continue it."""

    table: MarkdownTable
    cells: tuple[TableCell, ...]
    run: range

    @property
    def label(self) -> str:
        """What it is called."""
        return self.cells[self.table.label].text

    def captions(self, places: Iterable[int]) -> str:
        """Some of its cells under their heads, as written."""
        pairs = ((self.table.columns[place], self.cells[place].text) for place in places)
        return "; ".join(f"{head}: {text}" if head else text for head, text in pairs)


class CellQuery(NamedTuple):
    """A statement of `STATEMENTS` over cells, each a row and a column.

    score: share of the question that the cells carry. figure: what the statement works out of them;
    '' where it gives some of them. more: further parameters.
    """

    statement: str
    cells: Sequence[tuple[int, int]]
    score: float
    figure: str = ""
    more: Mapping[str, Any] = {}


class TableAnswer(NamedTuple):
    """What tables answer to a question.

    text: name of the table, heads and cells as written; what is worked out from them comes last.
    sql: the statement that was run, its parameters behind it. rows: places among the index's rows
    that it rests on. score: share of the question that they carry, in [0, 1].
    """

    text: str
    sql: str
    rows: tuple[int, ...]
    score: float


@dataclass(frozen=True, slots=True)
class TableIndex:
    """Rows of the tables in a corpus.

    rows: one chunk a row. parents: position in the corpus of the chunk that each row stands in,
    [R]. typed: the rows with their cells. records: what is stored of them; None without any row.
    later: expressions of a question that speak of the newer figures. within: rows that a question
    may see; None is all of them.
    """

    rows: tuple[Chunk, ...] = field(repr=False)
    parents: Ids = field(repr=False)
    typed: Sequence[TableRow] = field(repr=False)
    records: Records | None = field(repr=False)
    later: tuple[str, ...] = ()
    within: Scope = field(default=None, repr=False)

    def search(self, question: str, k: int, allowed: Scope = None) -> list[RowMatch]:
        """Return the k best rows, by (score, row); fewer where fewer share a word.

        A score is the share of the question's terms, by their weight, that the row, its table or
        its document holds.

        Args:
          question: any text.
          k: rows.
          allowed: positions of chunks whose rows it may find; None is all of them.
        """
        return self.in_scope(allowed).matches(table_question(question, self.later), k)

    def answer(self, question: str, allowed: Scope = None) -> TableAnswer | None:
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
        view, read = self.in_scope(allowed), table_question(question, self.later)
        matches = view.matches(read, CANDIDATES)
        answers = (
            _run_query(view, query)
            for tried in _TRIES.get(read.operation, (_row_cells,))
            for query in tried(view, read, matches)
        )
        return next(filter(None, answers), None) if matches else None

    def in_scope(self, allowed: Scope) -> TableIndex:
        """The same, as far as it stands in chunks of these positions."""
        rows = None if allowed is None else np.flatnonzero(np.isin(self.parents, allowed))
        return replace(self, within=rows)

    def matches(self, question: TableQuestion, k: int) -> list[RowMatch]:
        """Return the k rows that share most with a question."""
        return [] if self.records is None else self.records.matches(question, k, self.within)


def table_rows(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Rows of the tables in the texts of a corpus, one passage each, as `table_index` has them."""
    return _row_chunks(chunks, _typed_rows(chunks, markdown_tables(chunks)))


def table_index(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> TableIndex:
    """Index the tables in the texts of a corpus; an empty index where there is none.

    Args:
      chunks: of the corpus, in its order.
      pack: of its trade, with its words for newer figures.
    """
    tables = markdown_tables(chunks)
    typed = _typed_rows(chunks, tables)
    parents = np.array([row.table.chunk for row in typed], np.int64)
    postings: dict[str, list[tuple[int, int, bool]]] = {}
    cells: list[Sequence[TableCell]] = []
    for table in tables:
        shared = _shared_terms(table, chunks[table.chunk])
        for row_cells in table.rows:
            for term, held in _row_terms(row_cells, table.label, shared).items():
                postings.setdefault(term, []).append((len(cells), *held))
            cells.append(row_cells)
    records = store_records(cells, postings) if cells else None
    return TableIndex(_row_chunks(chunks, typed), parents, typed, records, pack.later)


def _typed_rows(chunks: Sequence[Chunk], tables: Sequence[MarkdownTable]) -> list[TableRow]:
    """Rows of all tables; neighbours in a document with the same name and heads are one run."""

    def heads(table: MarkdownTable) -> tuple[str, str, tuple[str, ...]]:
        return chunks[table.chunk].source, table.name, table.columns

    rows: list[TableRow] = []
    for _, same in groupby(tables, key=heads):
        pairs = [(table, cells) for table in same for cells in table.rows]
        run = range(len(rows), len(rows) + len(pairs))
        rows += [TableRow(table, cells, run) for table, cells in pairs]
    return rows


def _row_chunks(chunks: Sequence[Chunk], typed: Sequence[TableRow]) -> tuple[Chunk, ...]:
    """Rows as passages, numbered within their chunk: the table's name, and the cells that speak."""
    numbers: Counter[int] = Counter()
    passages = []
    for row in typed:
        parent = row.table.chunk
        numbers[parent] += 1
        spoken = [place for place, cell in enumerate(row.cells) if cell.text.strip(DASHES)]
        name = f"{chunks[parent].chunk_id}{ROW_MARK}{numbers[parent]}"
        text = f"{row.table.name} - {row.captions(spoken)}"
        passages.append(chunks[parent]._replace(chunk_id=name, text=text))
    return tuple(passages)


def _shared_terms(table: MarkdownTable, chunk: Chunk) -> dict[str, int]:
    """Terms that all rows of a table have, with their weight.

    Of its heads and section, its document, and its prose.
    """
    first, *following = chunk.full_text.splitlines()
    prose = "\n".join(line for line in following if "|" not in line)
    titles = (*chunk.tags.values(), *chunk.entities, chunk.source, table.name.rpartition(" (")[2])
    parts = {prose: _PROSE, f"{first} {' '.join(table.columns)}": _HEAD}
    parts[" ".join(titles)] = _DOCUMENT
    weights = {term: weight for text, weight in parts.items() for term in distinct_terms(text)}
    times = [head for head in table.columns if head_time(head) is not None]
    return weights | ({CHANGE: WHOLE} if len(times) > 1 else {})


def _row_terms(
    cells: Sequence[TableCell], label: int, shared: Mapping[str, int]
) -> dict[str, tuple[int, bool]]:
    """Terms of a row, each with its weight and whether the row's own cells hold it."""
    terms = {term: (weight, False) for term, weight in shared.items()}
    for place, (text, quantity) in enumerate(cells):
        weight = _LABEL if place == label else _CELL
        plain = quantity.kind in {"text", "missing", "date"}
        for term in distinct_terms(text if plain else quantity.note):
            terms[term] = (max(weight, terms.get(term, (0, True))[0]), True)
    return terms


def _run_query(index: TableIndex, query: CellQuery) -> TableAnswer | None:
    """Answer of a statement; None where its cells do not go together."""
    statement = STATEMENTS[query.statement]
    parameters = {
        "rows": [row for row, _ in query.cells],
        "places": [place for _, place in query.cells],
        **query.more,
    }
    results = index.records.run(statement, parameters) if index.records and query.cells else []
    if not results:
        return None
    cells = query.cells if query.figure else [(row, place) for row, place, _ in results]
    text = _captions(index, cells)
    if query.figure:
        figure = results[0][0]
        if query.statement != "count":  # as the first cell is written that has a unit
            written = [index.typed[row].cells[place] for row, place in cells]
            like = next((cell for cell in written if cell.quantity.unit), written[0])
            figure = format_like(figure, like.text, like.quantity.unit)
        text = f"{text}; {query.figure}: {figure}"
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    return TableAnswer(text, sql_text(statement, parameters), rows, query.score)


def _captions(index: TableIndex, cells: Iterable[tuple[int, int]]) -> str:
    """Cells with the names of their tables, rows and columns, as written.

    Each table's name once in a run.
    """
    by_row: dict[int, list[int]] = {}
    for number, place in cells:
        by_row.setdefault(number, []).append(place)
    parts: list[str] = []
    last = None
    for number, places in by_row.items():
        row = index.typed[number]
        line = row.captions(dict.fromkeys([row.table.label, *places]))
        parts.append(line if row.table is last else f"{row.table.name} - {line}")
        last = row.table
    return " | ".join(parts)


def _row_cells(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Cells of the one row that the question means; of a number of things no sum of money."""
    best = _best_rows(index, question, matches)
    if len(best) != 1:
        return []
    row = index.typed[best[0].row]
    places = _meant_columns(row, question)
    if question.operation == "count" and not question.kinds:
        stated = {place: row.cells[place].quantity for place in places}
        places = [place for place in places if stated[place].exact]
        places = [place for place in places if stated[place].kind == "number"]
    return [CellQuery("value", [(best[0].row, place) for place in places], best[0].score)]


def _difference(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Two columns of the row that the question means, or one column of two rows."""
    level = _best_rows(index, question, matches)
    if not 0 < len(level) < 3:
        return []
    best, *ties = level

    def added_share(second: RowMatch) -> float:
        """Share of the question's terms that the second row has and the best row lacks."""
        return sum(share for term, share in second.shares.items() if term not in best.shares)

    def query(cells: Sequence[tuple[int, int]], score: float) -> CellQuery:
        return CellQuery("difference", cells, score, "difference")

    # the row that covers most of the terms that the best row lacks
    second = max(
        ties or [match for match in matches if match.own and added_share(match) > 0.0],
        key=lambda match: (added_share(match) + match.score, -match.row),
        default=None,
    )
    queries = []
    if second is not None:
        cells = [
            (number, place)
            for number in (best.row, second.row)
            for place in _meant_columns(index.typed[number], question)
            if index.typed[number].cells[place].quantity.exact
        ]
        pair = cells if [number for number, _ in cells] == [best.row, second.row] else []
        queries.append(query(pair, min(1.0, best.score + added_share(second))))
    if not ties:
        row = index.typed[best.row]
        places = _compared_columns(row, question)
        named = all(_head_terms(row.table, place, question) for place in places)
        first = question.operation == "change" or named
        one_row = query([(best.row, place) for place in places], best.score)
        queries.insert(0 if first else len(queries), one_row)
    return queries


def _rank_rows(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Rows of one table by the cells of one column.

    The highest, the lowest, or all beyond a bound.
    """
    table = table_match(index, question, matches)
    if table is None:
        return []
    cells = _column_cells(index, question, table.named or table.parts)
    if question.operation not in BOUNDS:
        return [CellQuery(question.operation, cells, table.score)]
    bound = question.quantities[0]
    more = {"bound": question.operation, "value": bound.low, "unit": bound.unit}
    return [CellQuery("bound", cells, table.score, more=more)]


def _figure(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Sum or mean of the question's rows, or a whole column, unless the table states its total."""
    table = table_match(index, question, matches)
    cells = _column_cells(index, question, table.distinct or table.parts) if table else []
    if table is None or not cells:
        return []
    stated = [] if table.distinct else [r for r in table.rows if TOTAL.search(index.typed[r].label)]
    if len(stated) == 1 and question.operation != "average":
        return [CellQuery("value", [(stated[0], cells[0][1])], table.score)]
    name = "average" if question.operation == "average" else "sum"
    counted = sum(isfinite(index.typed[row].cells[place].quantity.low) for row, place in cells)
    return [CellQuery(name, cells, table.score, f"{name} of {counted}")]


def _count_rows(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Number of rows of a table that match the question's terms of rows; all where it has none."""
    table = None if question.kinds else table_match(index, question, matches)
    if table is None:
        return []
    cells = [(row, index.typed[row].table.label) for row in table.named or table.parts]
    return [CellQuery("count", cells, table.score, "count")]


_Try = Callable[[TableIndex, TableQuestion, Sequence[RowMatch]], list[CellQuery]]
# What is tried for an operation, in order; for the other ones, the cells of a row.
_TRIES: Mapping[str, tuple[_Try, ...]] = {
    **dict.fromkeys(("change", "difference"), (_difference, _row_cells)),
    **dict.fromkeys(("highest", "lowest", *BOUNDS), (_rank_rows,)),
    **dict.fromkeys(("sum", "average"), (_figure,)),
    "total": (_row_cells, _figure),
    "count": (_row_cells, _count_rows),
}


def _best_rows(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[RowMatch]:
    """Best rows, where their own cells share a word with the question.

    Of those with one score the most fully named.
    """
    best = [match for match in matches if match.score == matches[0].score and match.own]
    shares = []
    for match in best:
        named = distinct_terms(index.typed[match.row].label)
        shares.append(sum(term in question.terms for term in named) / max(len(named), 1))
    return [match for match, share in zip(best, shares, strict=True) if share == max(shares)]


def _meant_columns(row: TableRow, question: TableQuestion) -> list[int]:
    """Columns that a question means in a row, by unit, time and words of their heads.

    All where it says nothing.

    A cell that only has a dash is none, and neither is a column that numbers the rows.
    """
    table, cells = row.table, row.cells
    places = [
        place
        for place in range(len(cells))
        if place != table.label and not _is_row_counter(table, place)
    ]
    if question.kinds:
        worded = {"text", "percent", "missing"}
        places = [place for place in places if cells[place].quantity.unit in question.kinds] or [
            place for place in places if cells[place].quantity.kind in worded
        ]
    places = _columns_for_time(table, places, question)
    counts = {place: len(_head_terms(table, place, question)) for place in places}
    most = max(counts.values(), default=0)
    return [place for place in places if counts[place] == most and cells[place].text.strip(DASHES)]


def _is_row_counter(table: MarkdownTable, place: int) -> bool:
    """Whether a column counts the rows: 1, 2, 3."""
    counted = [row[place].text.strip(".") for row in table.rows]
    if len(counted) < 2 or not counted[0].isdecimal() or len(counted[0]) >= _DIGITS:
        return False
    start = int(counted[0])
    return start > 0 and counted == [str(start + n) for n in range(len(counted))]


def _head_terms(table: MarkdownTable, place: int, question: TableQuestion) -> set[str]:
    """Words of a column's head, its years aside, that a question says."""
    words = {term for term in distinct_terms(table.columns[place]) if not term.isdigit()}
    return words.intersection(question.terms)


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
    return [order[-1 if question.side > 0 else 0]] if question.side else places


def _period_columns(times: Mapping[int, Quantity], day: Quantity) -> list[int]:
    """Columns for a day or a span; for a year those that begin in it, if any.

    A day is in no business year.
    """
    if day.high - day.low >= _YEAR:
        begun = [place for place, time in times.items() if day.low <= time.low <= day.high]
        if begun:
            return begun
    spans = {place: time for place, time in times.items() if isinf(time.low) != isinf(time.high)}
    return [place for place, time in spans.items() if time.low <= day.high and day.low <= time.high]


def _compared_columns(row: TableRow, question: TableQuestion) -> list[int]:
    """The two columns of a row to compare.

    Those named in the question, else two times, else its only numbers.
    """
    exact = [
        place
        for place, cell in enumerate(row.cells)
        if place != row.table.label and cell.quantity.exact
    ]
    named = [place for place in exact if _head_terms(row.table, place, question)]
    timed = [place for place in exact if head_time(row.table.columns[place]) is not None]
    return next((places for places in (named, timed, exact) if len(places) == 2), [])


def _column_cells(
    index: TableIndex, question: TableQuestion, rows: Sequence[int]
) -> list[tuple[int, int]]:
    """Cells of the one column of numbers that a question means in several rows.

    None where it means several columns.
    """
    counts = Counter(
        place
        for row in rows
        for place in _meant_columns(index.typed[row], question)
        if isfinite(index.typed[row].cells[place].quantity.low)
    )
    wanted = [place for place, count in counts.items() if 2 * count > len(rows)]
    return [(row, wanted[0]) for row in rows] if len(rows) > 1 and len(wanted) == 1 else []


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
    index: TableIndex, question: TableQuestion, matches: Iterable[RowMatch]
) -> WholeTable | None:
    """Return the table whose rows together carry most of a question.

    None where two carry as much.
    """
    shares: dict[range, dict[str, float]] = {}
    for match in matches:
        most = shares.setdefault(index.typed[match.row].run, {})
        most |= {term: max(share, most.get(term, 0.0)) for term, share in match.shares.items()}
    totals = sorted(
        ((sum(sorted(most.values())), run) for run, most in shares.items()), key=itemgetter(0)
    )
    if not totals or (len(totals) > 1 and totals[-1][0] == totals[-2][0]):
        return None
    score, run = totals[-1]
    rows = np.array(run) if index.within is None else np.intersect1d(run, index.within)
    run_matches = replace(index, within=rows).matches(question, len(rows))
    # what not all rows stand for
    common = frozenset[str]()
    if len(run_matches) == len(rows):
        common = frozenset.intersection(*(frozenset(match.shares) for match in run_matches))
    share_by_row: dict[int, float] = {}
    distinct: list[int] = []
    covered: set[str] = set()
    for match in run_matches:
        terms = {term for term in match.own - common if not term.startswith(TYPED)}
        if terms:
            share_by_row[match.row] = sum(sorted(match.shares[term] for term in terms))
        if terms - covered:
            distinct.append(match.row)
            covered |= terms
    named = sorted(
        row for row, share in share_by_row.items() if share == max(share_by_row.values())
    )
    names = {row: index.typed[row].label for row in rows.tolist()}
    parts = [row for row, name in names.items() if not (TOTAL.search(name) or _PART.search(name))]
    return WholeTable(list(names), parts, named, sorted(distinct), min(1.0, score))
