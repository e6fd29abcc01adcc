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

from raglab.extensions.graph_table.quantities import Quantity, format_like
from raglab.extensions.graph_table.table_records import (
    BOUND_OPERATIONS,
    CHANGE_TERM,
    DASH_MARKS,
    FULL_WEIGHT,
    STATEMENTS,
    TYPED_PREFIX,
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
from raglab.values import Chunk, IntArray, WholeArray
from raglab.words.languages import LANGUAGES, expression
from raglab.words.packs import GENERIC, Pack

Scope = WholeArray | None

_MAX_COUNTER_DIGITS = 9  # of a number that counts rows
_YEAR_DAYS = 360  # days from which on a span is a year: it means the column that begins in it
_TABLE_WORDS = LANGUAGES.tables
TOTAL_ROW = re.compile(expression(_TABLE_WORDS.totals), re.IGNORECASE)
_PART_ROW = re.compile(expression(_TABLE_WORDS.parts), re.IGNORECASE)
MAX_CANDIDATES = 100  # rows that are looked at
ROW_MARK = "#row"  # between the id of a chunk and the number of a row in it
# What a shared word counts by where it stands: a row's name and its document tell it apart, other
# cells and heads less, prose around a table least. Chosen on the bundled tune split.
_LABEL_WEIGHT, _CELL_WEIGHT, _HEAD_WEIGHT, _DOCUMENT_WEIGHT, _PROSE_WEIGHT = (
    FULL_WEIGHT,
    70,
    70,
    FULL_WEIGHT,
    40,
)


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
        cells = ((self.table.columns[column], self.cells[column].text) for column in places)
        return "; ".join(
            f"{column_head}: {text}" if column_head else text for column_head, text in cells
        )


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
    parents: IntArray = field(repr=False)
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
        scoped_index = self.in_scope(allowed)
        parsed_question = table_question(question, self.later)
        row_matches = scoped_index.matches(parsed_question, MAX_CANDIDATES)
        table_answers = (
            _run_query(scoped_index, cell_query)
            for make_queries in _QUERIES_BY_OPERATION.get(parsed_question.operation, (_row_cells,))
            for cell_query in make_queries(scoped_index, parsed_question, row_matches)
        )
        return next(filter(None, table_answers), None) if row_matches else None

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
    typed_rows = _typed_rows(chunks, tables)
    parents = np.array([table_row.table.chunk for table_row in typed_rows], np.int64)
    postings: dict[str, list[tuple[int, int, bool]]] = {}
    stored_cells: list[Sequence[TableCell]] = []
    for table in tables:
        shared_weights = _shared_terms(table, chunks[table.chunk])
        for row_cells in table.rows:
            for row_term, term_weight in _row_terms(row_cells, table.label, shared_weights).items():
                postings.setdefault(row_term, []).append((len(stored_cells), *term_weight))
            stored_cells.append(row_cells)
    records = store_records(stored_cells, postings) if stored_cells else None
    return TableIndex(_row_chunks(chunks, typed_rows), parents, typed_rows, records, pack.later)


def _typed_rows(chunks: Sequence[Chunk], tables: Sequence[MarkdownTable]) -> list[TableRow]:
    """Rows of all tables; neighbours in a document with the same name and heads are one run."""

    def heads(table: MarkdownTable) -> tuple[str, str, tuple[str, ...]]:
        return chunks[table.chunk].source, table.name, table.columns

    typed_rows: list[TableRow] = []
    for _, run_tables in groupby(tables, key=heads):
        run_cells = [(table, row_cells) for table in run_tables for row_cells in table.rows]
        run_rows = range(len(typed_rows), len(typed_rows) + len(run_cells))
        typed_rows += [TableRow(table, row_cells, run_rows) for table, row_cells in run_cells]
    return typed_rows


def _row_chunks(chunks: Sequence[Chunk], typed: Sequence[TableRow]) -> tuple[Chunk, ...]:
    """Rows as passages, numbered within their chunk: the table's name, and the cells that speak."""
    rows_by_chunk: Counter[int] = Counter()
    row_passages = []
    for row in typed:
        parent_position = row.table.chunk
        rows_by_chunk[parent_position] += 1
        filled_columns = [
            column for column, cell in enumerate(row.cells) if cell.text.strip(DASH_MARKS)
        ]
        row_passages.append(
            chunks[parent_position]._replace(
                chunk_id=f"{chunks[parent_position].chunk_id}{ROW_MARK}{rows_by_chunk[parent_position]}",
                text=f"{row.table.name} - {row.captions(filled_columns)}",
            )
        )
    return tuple(row_passages)


def _shared_terms(table: MarkdownTable, chunk: Chunk) -> dict[str, int]:
    """Terms that all rows of a table have, with their weight.

    Of its heads and section, its document, and its prose.
    """
    first_line, *later_lines = chunk.full_text.splitlines()
    prose_text = "\n".join(text_line for text_line in later_lines if "|" not in text_line)
    title_texts = (
        *chunk.tags.values(),
        *chunk.entities,
        chunk.source,
        table.name.rpartition(" (")[2],
    )
    weight_by_text = {
        prose_text: _PROSE_WEIGHT,
        f"{first_line} {' '.join(table.columns)}": _HEAD_WEIGHT,
    }
    weight_by_text[" ".join(title_texts)] = _DOCUMENT_WEIGHT
    term_weights = {
        term: text_weight
        for part_text, text_weight in weight_by_text.items()
        for term in distinct_terms(part_text)
    }
    time_heads = [
        column_head for column_head in table.columns if head_time(column_head) is not None
    ]
    return term_weights | ({CHANGE_TERM: FULL_WEIGHT} if len(time_heads) > 1 else {})


def _row_terms(
    cells: Sequence[TableCell], label_column: int, shared_weights: Mapping[str, int]
) -> dict[str, tuple[int, bool]]:
    """Terms of a row, each with its weight and whether the row's own cells hold it."""
    row_terms = {row_term: (cell_weight, False) for row_term, cell_weight in shared_weights.items()}
    for column, (text, quantity) in enumerate(cells):
        cell_weight = _LABEL_WEIGHT if column == label_column else _CELL_WEIGHT
        is_worded = quantity.kind in {"text", "missing", "date"}
        for row_term in distinct_terms(text if is_worded else quantity.note):
            row_terms[row_term] = (max(cell_weight, row_terms.get(row_term, (0, True))[0]), True)
    return row_terms


def _run_query(index: TableIndex, query: CellQuery) -> TableAnswer | None:
    """Answer of a statement; None where its cells do not go together."""
    sql_statement = STATEMENTS[query.statement]
    parameters = {
        "rows": [row_number for row_number, _ in query.cells],
        "places": [column for _, column in query.cells],
        **query.more,
    }
    result_rows = (
        index.records.run(sql_statement, parameters) if index.records and query.cells else []
    )
    if not result_rows:
        return None
    answer_cells = (
        query.cells
        if query.figure
        else [(row_number, column) for row_number, column, _ in result_rows]
    )
    answer_text = _captions(index, answer_cells)
    if query.figure:
        figure_text = result_rows[0][0]
        if query.statement != "count":  # as the first cell is written that has a unit
            written_cells = [
                index.typed[row_number].cells[column] for row_number, column in answer_cells
            ]
            model_cell = next(
                (written_cell for written_cell in written_cells if written_cell.quantity.unit),
                written_cells[0],
            )
            figure_text = format_like(figure_text, model_cell.text, model_cell.quantity.unit)
        answer_text = f"{answer_text}; {query.figure}: {figure_text}"
    answer_rows = tuple(dict.fromkeys(row_number for row_number, _ in answer_cells))
    return TableAnswer(answer_text, sql_text(sql_statement, parameters), answer_rows, query.score)


def _captions(index: TableIndex, answer_cells: Iterable[tuple[int, int]]) -> str:
    """Cells with the names of their tables, rows and columns, as written.

    Each table's name once in a run.
    """
    columns_by_row: dict[int, list[int]] = {}
    for row_number, column in answer_cells:
        columns_by_row.setdefault(row_number, []).append(column)
    row_captions: list[str] = []
    last_table = None
    for row_number, row_columns in columns_by_row.items():
        table_row = index.typed[row_number]
        row_caption = table_row.captions(dict.fromkeys([table_row.table.label, *row_columns]))
        row_captions.append(
            row_caption
            if table_row.table is last_table
            else f"{table_row.table.name} - {row_caption}"
        )
        last_table = table_row.table
    return " | ".join(row_captions)


def _row_cells(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Cells of the one row that the question means; of a number of things no sum of money."""
    best_matches = _best_rows(index, question, matches)
    if len(best_matches) != 1:
        return []
    table_row = index.typed[best_matches[0].row]
    meant_columns = _meant_columns(table_row, question)
    if question.operation == "count" and not question.kinds:
        quantities = {column: table_row.cells[column].quantity for column in meant_columns}
        meant_columns = [column for column in meant_columns if quantities[column].exact]
        meant_columns = [column for column in meant_columns if quantities[column].kind == "number"]
    return [
        CellQuery(
            "value",
            [(best_matches[0].row, column) for column in meant_columns],
            best_matches[0].score,
        )
    ]


def _difference(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Two columns of the row that the question means, or one column of two rows."""
    best_matches = _best_rows(index, question, matches)
    if not 0 < len(best_matches) < 3:
        return []
    best_match, *tied_matches = best_matches

    def added_share(second_match: RowMatch) -> float:
        """Share of the question's terms that the second row has and the best row lacks."""
        return sum(
            term_share
            for question_term, term_share in second_match.shares.items()
            if question_term not in best_match.shares
        )

    def query(compared_cells: Sequence[tuple[int, int]], query_score: float) -> CellQuery:
        return CellQuery("difference", compared_cells, query_score, "difference")

    # the row that covers most of the terms that the best row lacks
    second_match = max(
        tied_matches
        or [row_match for row_match in matches if row_match.own and added_share(row_match) > 0.0],
        key=lambda row_match: (added_share(row_match) + row_match.score, -row_match.row),
        default=None,
    )
    cell_queries = []
    if second_match is not None:
        compared_cells = [
            (row_number, column)
            for row_number in (best_match.row, second_match.row)
            for column in _meant_columns(index.typed[row_number], question)
            if index.typed[row_number].cells[column].quantity.exact
        ]
        paired_cells = (
            compared_cells
            if [row_number for row_number, _ in compared_cells]
            == [best_match.row, second_match.row]
            else []
        )
        cell_queries.append(
            query(paired_cells, min(1.0, best_match.score + added_share(second_match)))
        )
    if not tied_matches:
        best_row = index.typed[best_match.row]
        compared_columns = _compared_columns(best_row, question)
        is_named = all(_head_terms(best_row.table, column, question) for column in compared_columns)
        is_row_first = question.operation == "change" or is_named
        row_query = query(
            [(best_match.row, column) for column in compared_columns], best_match.score
        )
        cell_queries.insert(0 if is_row_first else len(cell_queries), row_query)
    return cell_queries


def _rank_rows(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Rows of one table by the cells of one column.

    The highest, the lowest, or all beyond a bound.
    """
    whole_table = table_match(index, question, matches)
    if whole_table is None:
        return []
    ranked_cells = _column_cells(index, question, whole_table.named or whole_table.parts)
    if question.operation not in BOUND_OPERATIONS:
        return [CellQuery(question.operation, ranked_cells, whole_table.score)]
    bound_quantity = question.quantities[0]
    bound_parameters = {
        "bound": question.operation,
        "value": bound_quantity.low,
        "unit": bound_quantity.unit,
    }
    return [CellQuery("bound", ranked_cells, whole_table.score, more=bound_parameters)]


def _figure(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Sum or mean of the question's rows, or a whole column, unless the table states its total."""
    whole_table = table_match(index, question, matches)
    column_cells = (
        _column_cells(index, question, whole_table.distinct or whole_table.parts)
        if whole_table
        else []
    )
    if whole_table is None or not column_cells:
        return []
    total_rows = (
        []
        if whole_table.distinct
        else [r for r in whole_table.rows if TOTAL_ROW.search(index.typed[r].label)]
    )
    if len(total_rows) == 1 and question.operation != "average":
        return [CellQuery("value", [(total_rows[0], column_cells[0][1])], whole_table.score)]
    figure_name = "average" if question.operation == "average" else "sum"
    n_counted = sum(
        isfinite(index.typed[row_number].cells[column].quantity.low)
        for row_number, column in column_cells
    )
    return [
        CellQuery(figure_name, column_cells, whole_table.score, f"{figure_name} of {n_counted}")
    ]


def _count_rows(
    index: TableIndex, question: TableQuestion, matches: Sequence[RowMatch]
) -> list[CellQuery]:
    """Number of rows of a table that match the question's terms of rows; all where it has none."""
    whole_table = None if question.kinds else table_match(index, question, matches)
    if whole_table is None:
        return []
    cells = [
        (row_number, index.typed[row_number].table.label)
        for row_number in whole_table.named or whole_table.parts
    ]
    return [CellQuery("count", cells, whole_table.score, "count")]


_TableQuery = Callable[[TableIndex, TableQuestion, Sequence[RowMatch]], list[CellQuery]]
# What is tried for an operation, in order; for the other ones, the cells of a row.
_QUERIES_BY_OPERATION: Mapping[str, tuple[_TableQuery, ...]] = {
    **dict.fromkeys(("change", "difference"), (_difference, _row_cells)),
    **dict.fromkeys(("highest", "lowest", *BOUND_OPERATIONS), (_rank_rows,)),
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
    best_matches = [
        row_match for row_match in matches if row_match.score == matches[0].score and row_match.own
    ]
    named_shares = []
    for row_match in best_matches:
        label_terms = distinct_terms(index.typed[row_match.row].label)
        named_shares.append(
            sum(label_term in question.terms for label_term in label_terms)
            / max(len(label_terms), 1)
        )
    return [
        row_match
        for row_match, named_share in zip(best_matches, named_shares, strict=True)
        if named_share == max(named_shares)
    ]


def _meant_columns(table_row: TableRow, question: TableQuestion) -> list[int]:
    """Columns that a question means in a row, by unit, time and words of their heads.

    All where it says nothing.

    A cell that only has a dash is none, and neither is a column that numbers the rows.
    """
    table = table_row.table
    cells = table_row.cells
    meant_columns = [
        column
        for column in range(len(cells))
        if column != table.label and not _is_row_counter(table, column)
    ]
    if question.kinds:
        worded_kinds = {"text", "percent", "missing"}
        meant_columns = [
            column for column in meant_columns if cells[column].quantity.unit in question.kinds
        ] or [column for column in meant_columns if cells[column].quantity.kind in worded_kinds]
    meant_columns = _columns_for_time(table, meant_columns, question)
    head_counts = {column: len(_head_terms(table, column, question)) for column in meant_columns}
    max_count = max(head_counts.values(), default=0)
    return [
        column
        for column in meant_columns
        if head_counts[column] == max_count and cells[column].text.strip(DASH_MARKS)
    ]


def _is_row_counter(table: MarkdownTable, column: int) -> bool:
    """Whether a column counts the rows: 1, 2, 3."""
    texts = [cells[column].text.strip(".") for cells in table.rows]
    if len(texts) < 2 or not texts[0].isdecimal() or len(texts[0]) >= _MAX_COUNTER_DIGITS:
        return False
    first_number = int(texts[0])
    return first_number > 0 and texts == [
        str(first_number + row_offset) for row_offset in range(len(texts))
    ]


def _head_terms(table: MarkdownTable, column: int, question: TableQuestion) -> set[str]:
    """Words of a column's head, its years aside, that a question says."""
    words = {
        head_term for head_term in distinct_terms(table.columns[column]) if not head_term.isdigit()
    }
    return words.intersection(question.terms)


def _columns_for_time(
    table: MarkdownTable, candidate_columns: list[int], question: TableQuestion
) -> list[int]:
    """Columns for the time that the question names; all of them where they have one time."""
    column_times = {
        column: head_days
        for column in candidate_columns
        if (head_days := head_time(table.columns[column])) is not None
    }
    if len(column_times) < 2:
        return candidate_columns
    for named_day in question.days:
        fitting_columns = _period_columns(column_times, named_day)
        if 0 < len(fitting_columns) < len(column_times):
            return fitting_columns
    ordered_columns = sorted(column_times, key=lambda column: (column_times[column].low, column))
    return [ordered_columns[-1 if question.side > 0 else 0]] if question.side else candidate_columns


def _period_columns(column_times: Mapping[int, Quantity], named_day: Quantity) -> list[int]:
    """Columns for a day or a span; for a year those that begin in it, if any.

    A day is in no business year.
    """
    if named_day.high - named_day.low >= _YEAR_DAYS:
        begun_columns = [
            column
            for column, head_days in column_times.items()
            if named_day.low <= head_days.low <= named_day.high
        ]
        if begun_columns:
            return begun_columns
    bounded_times = {
        column: head_days
        for column, head_days in column_times.items()
        if isinf(head_days.low) != isinf(head_days.high)
    }
    return [
        column
        for column, head_days in bounded_times.items()
        if head_days.low <= named_day.high and named_day.low <= head_days.high
    ]


def _compared_columns(table_row: TableRow, question: TableQuestion) -> list[int]:
    """The two columns of a row to compare.

    Those named in the question, else two times, else its only numbers.
    """
    exact_columns = [
        column
        for column, cell in enumerate(table_row.cells)
        if column != table_row.table.label and cell.quantity.exact
    ]
    named_columns = [
        column for column in exact_columns if _head_terms(table_row.table, column, question)
    ]
    time_columns = [
        column for column in exact_columns if head_time(table_row.table.columns[column]) is not None
    ]
    return next(
        (
            column_pair
            for column_pair in (named_columns, time_columns, exact_columns)
            if len(column_pair) == 2
        ),
        [],
    )


def _column_cells(
    index: TableIndex, question: TableQuestion, row_numbers: Sequence[int]
) -> list[tuple[int, int]]:
    """Cells of the one column of numbers that a question means in several rows.

    None where it means several columns.
    """
    column_counts = Counter(
        column
        for row_number in row_numbers
        for column in _meant_columns(index.typed[row_number], question)
        if isfinite(index.typed[row_number].cells[column].quantity.low)
    )
    meant_columns = [
        column
        for column, column_count in column_counts.items()
        if 2 * column_count > len(row_numbers)
    ]
    return (
        [(row_number, meant_columns[0]) for row_number in row_numbers]
        if len(row_numbers) > 1 and len(meant_columns) == 1
        else []
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
    index: TableIndex, question: TableQuestion, matches: Iterable[RowMatch]
) -> WholeTable | None:
    """Return the table whose rows together carry most of a question.

    None where two carry as much.
    """
    # A table counts each term once, by the row that says most of it.
    best_shares: dict[range, dict[str, float]] = {}
    for row_match in matches:
        run_shares = best_shares.setdefault(index.typed[row_match.row].run, {})
        run_shares |= {
            own_term: max(row_share, run_shares.get(own_term, 0.0))
            for own_term, row_share in row_match.shares.items()
        }
    # Sorted sums: the order of the matches must not decide between two tables.
    run_scores = sorted(
        (
            (sum(sorted(run_shares.values())), run_rows)
            for run_rows, run_shares in best_shares.items()
        ),
        key=itemgetter(0),
    )
    if not run_scores or (len(run_scores) > 1 and run_scores[-1][0] == run_scores[-2][0]):
        return None
    total_score, run_rows = run_scores[-1]
    # All rows of the table are met anew, since only some came among the first matches.
    run_rows_allowed = (
        np.array(run_rows) if index.within is None else np.intersect1d(run_rows, index.within)
    )
    run_matches = replace(index, within=run_rows_allowed).matches(question, len(run_rows_allowed))
    # what not all rows stand for
    common_terms = frozenset[str]()
    if len(run_matches) == len(run_rows_allowed):
        common_terms = frozenset.intersection(
            *(frozenset(row_match.shares) for row_match in run_matches)
        )
    # Matches come best first, so that a later row is distinct by what it alone adds.
    share_by_row: dict[int, float] = {}
    distinct_rows: list[int] = []
    covered_terms: set[str] = set()
    for row_match in run_matches:
        own_terms = {
            own_term
            for own_term in row_match.own - common_terms
            if not own_term.startswith(TYPED_PREFIX)
        }
        if own_terms:
            share_by_row[row_match.row] = sum(
                sorted(row_match.shares[own_term] for own_term in own_terms)
            )
        if own_terms - covered_terms:
            distinct_rows.append(row_match.row)
            covered_terms |= own_terms
    named_rows = sorted(
        row_number
        for row_number, row_share in share_by_row.items()
        if row_share == max(share_by_row.values())
    )
    labels_by_row = {
        row_number: index.typed[row_number].label for row_number in run_rows_allowed.tolist()
    }
    part_rows = [
        row_number
        for row_number, row_label in labels_by_row.items()
        if not (TOTAL_ROW.search(row_label) or _PART_ROW.search(row_label))
    ]
    return WholeTable(
        list(labels_by_row), part_rows, named_rows, sorted(distinct_rows), min(1.0, total_score)
    )
