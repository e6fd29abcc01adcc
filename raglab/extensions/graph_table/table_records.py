"""Table records (shore): tables of documents as typed records in DuckDB.

Every statement stands here as it is run: what a question says comes in as a parameter, never as a
part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.extensions.graph_table.quantities import (
    CURRENCIES,
    CURRENCY_OF,
    UNIT_OF,
    Kind,
    Quantity,
    QuantitySpan,
    cell_quantity,
    head_period,
    quantities_in,
)
from raglab.values import BoolArray, Chunk, IntArray, WholeArray
from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import CURRENCY_CODES, any_of
from raglab.words.packs import compile_expression
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import split_words

if TYPE_CHECKING:
    import duckdb

MAX_NAME_LENGTH = 200  # characters of a first line that may still be a heading, and of a caption
_CODE_FENCES = ("```", "~~~")
_CELL_PIPE = re.compile(r"(?<!\\)\|")
_RULE_CELL = re.compile(r":?-+:?")
_PROSE_ENDS = (".", "!", "?", "…", ":", ";", ",")
_PATH_JOINT = " > "
DASH_MARKS = "-–—−"
_QUANTITY_WORDS = LANGUAGES.quantities
_OLDER_HEAD = re.compile(rf"\b{expression(_QUANTITY_WORDS.older)}\b", re.IGNORECASE)
_NEWER_HEAD = re.compile(rf"\b{expression(_QUANTITY_WORDS.newer)}\b", re.IGNORECASE)
_LETTER_WORD = re.compile(r"[^\W\d_]{3,}")
_KNOWN_UNITS = {**CURRENCY_OF, **UNIT_OF}
_IN_BRACKETS = re.compile(r"\(([^()]{1,20})\)")
_STATED_CURRENCY = re.compile(
    rf"\b{expression(_QUANTITY_WORDS.stated)}\s+({any_of(CURRENCY_OF)})", re.IGNORECASE
)


class TableCell(NamedTuple):
    """A cell as written, and what it states."""

    text: str
    quantity: Quantity


class MarkdownTable(NamedTuple):
    """A table in a chunk.

    name: heading path, its first part last, in brackets; else the line above, the title or the
    file. columns: heads, '' where one is empty. rows: as many cells each as there are columns.
    chunk: position of its chunk in the corpus. label: the column that names the rows.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    chunk: int
    label: int


def markdown_tables(chunks: Sequence[Chunk]) -> tuple[MarkdownTable, ...]:
    r"""Tables of Markdown in the chunks' texts, in order; rows without any text are left out.

    A number without a unit has that of its head (`Excess (GBP)`), else of its row (`Ransom (GBP)`),
    else of the prose around it (`amounts are in GBP`). Cells beyond the heads are kept with the
    last one.

    Example:
      >>> (table,) = markdown_tables(
      ...     [Chunk("1", "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |", "a.md")]
      ... )
      >>> table.name, table.columns, table.rows[0][1].quantity.low
      ('Excesses', ('Cause', 'Excess'), 250.0)
    """
    return tuple(
        table
        for position, chunk in enumerate(chunks)
        if "|" in chunk.full_text
        for table in _tables_in(chunk, position)
    )


def head_time(head: str) -> Quantity | None:
    """Days that a column's head speaks of; all before and all after any day for `Old` and `New`."""
    is_older, is_newer = (
        time_pattern.search(head[:MAX_NAME_LENGTH]) is not None
        for time_pattern in (_OLDER_HEAD, _NEWER_HEAD)
    )
    endless_day = inf if is_newer else -inf
    return head_period(head) or (
        Quantity("date", endless_day, endless_day, "date") if is_older != is_newer else None
    )


def _tables_in(chunk: Chunk, position: int) -> Iterator[MarkdownTable]:
    text_lines = chunk.full_text.splitlines()
    currency_match = _STATED_CURRENCY.search(chunk.full_text)
    common_unit = CURRENCY_OF[currency_match[1].casefold()] if currency_match else ""
    for first_line, table_grid in _table_blocks(text_lines):
        is_headed = len(table_grid) > 1 and _is_rule(table_grid[1])
        column_heads = table_grid[0] if is_headed else [""] * max(map(len, table_grid))
        head_units = [_unit_in(head) for head in column_heads]
        typed_rows = [
            _typed_cells(row_cells, head_units, common_unit)
            for row_cells in (table_grid[2:] if is_headed else table_grid)
            if any(cell.strip(DASH_MARKS) for cell in row_cells) and not _is_rule(row_cells)
        ]
        if typed_rows:
            table_name = _table_name(chunk, text_lines, first_line)
            yield MarkdownTable(
                table_name, tuple(column_heads), tuple(typed_rows), position, _label(typed_rows)
            )


def _table_blocks(text_lines: Sequence[str]) -> list[tuple[int, list[list[str]]]]:
    """First line and cells of each table.

    Runs of lines that begin with a pipe, or that follow a head and its rule.
    """
    table_blocks: list[tuple[int, list[list[str]]]] = []
    is_code = is_continued = False
    for line_number, text_line in enumerate(text_lines):
        bare_line = text_line.strip()
        is_code ^= bare_line.startswith(_CODE_FENCES)
        is_row = not is_code and _CELL_PIPE.search(bare_line) is not None
        is_row = is_row and (
            bare_line.startswith("|")
            or is_continued
            or any(
                "|" in next_line and _is_rule(_split_cells(next_line))
                for next_line in text_lines[line_number : line_number + 2]
            )
        )
        if is_row and not is_continued:
            table_blocks.append((line_number, []))
        if is_row:
            table_blocks[-1][1].append(_split_cells(text_line))
        is_continued = is_row
    return table_blocks


def _is_rule(cells: Sequence[str]) -> bool:
    return all(_RULE_CELL.fullmatch(text) for text in cells)


def _split_cells(text_line: str) -> list[str]:
    cell_texts = _CELL_PIPE.split(text_line.strip().removeprefix("|"))
    if len(cell_texts) > 1 and not cell_texts[-1].strip():
        cell_texts.pop()
    return [" ".join(cell_text.replace("\\|", "|").split()) for cell_text in cell_texts]


def _typed_cells(
    cell_texts: list[str], head_units: Sequence[str], common_unit: str
) -> tuple[TableCell, ...]:
    """Cells of a row in as many columns as there are units; the last one holds what is beyond."""
    last_column = len(head_units) - 1
    padded_cells = cell_texts + [""] * (len(head_units) - len(cell_texts))
    column_texts = [*padded_cells[:last_column], " | ".join(padded_cells[last_column:])]
    row_unit = next(filter(None, map(_unit_in, column_texts)), "")
    typed_cells = []
    for cell_text, head_unit in zip(column_texts, head_units, strict=True):
        quantity = cell_quantity(cell_text)
        quantity_unit = head_unit or row_unit or common_unit
        if quantity_unit and (quantity.kind, quantity.unit, quantity.note) == ("number", "", ""):
            number_kind: Kind = "percent" if quantity_unit == "%" else "number"
            quantity = quantity._replace(
                kind="money" if quantity_unit in CURRENCIES else number_kind, unit=quantity_unit
            )
        typed_cells.append(TableCell(cell_text, quantity))
    return tuple(typed_cells)


def _unit_in(text: str) -> str:
    """Unit in brackets, or that is all of a head."""
    bracket_texts = [*_IN_BRACKETS.findall(text[:MAX_NAME_LENGTH]), text]
    unit_words = (bracket_text.strip().casefold() for bracket_text in bracket_texts)
    return next(
        (_KNOWN_UNITS[unit_word] for unit_word in unit_words if unit_word in _KNOWN_UNITS), ""
    )


def _label(typed_rows: Sequence[Sequence[TableCell]]) -> int:
    """First column most of whose cells are words; the first of all where there is none."""
    word_counts = [
        sum(
            cell.quantity.kind == "text" and bool(_LETTER_WORD.search(cell.text)) for cell in column
        )
        for column in zip(*typed_rows, strict=True)
    ]
    return next(
        (
            column_number
            for column_number, word_count in enumerate(word_counts)
            if 2 * word_count > len(typed_rows)
        ),
        0,
    )


def _table_name(chunk: Chunk, text_lines: Sequence[str], first_line: int) -> str:
    """Heading path, else the line above the table, else title or file."""
    heading_line = text_lines[0].strip().lstrip("#").strip() if first_line else ""
    if (
        heading_line
        and len(heading_line) <= MAX_NAME_LENGTH
        and not heading_line.endswith(_PROSE_ENDS)
    ):
        first_part, *later_parts = heading_line.split(_PATH_JOINT)
        return f"{_PATH_JOINT.join(later_parts)} ({first_part})" if later_parts else first_part
    line_above = next(
        (text_line.strip() for text_line in reversed(text_lines[:first_line]) if text_line.strip()),
        "",
    )
    caption = line_above.strip("*_# ").rstrip(":")
    return (
        caption
        if caption and len(caption) <= MAX_NAME_LENGTH
        else chunk.tags.get("title") or chunk.file_name
    )


BOUND_OPERATIONS = ("at least", "at most", "above", "below")
# The first that a question asks for is taken, so that what is most particular stands first.
OPERATIONS = (
    "average",
    "difference",
    "change",
    *BOUND_OPERATIONS,
    "highest",
    "lowest",
    "sum",
    "total",
    "count",
)
STEM_LENGTH = 5  # letters of a longer word that stand for its inflections, as in keyword search
MAX_QUESTION_LENGTH = 1000  # characters of a question that are read
TYPED_PREFIX = "#"  # begins a term that is no word
# the term of tables with columns for two times, and of questions for a change
CHANGE_TERM = f"{TYPED_PREFIX}change"
MAX_QUESTION_TERMS = 64  # distinct terms of a question that are looked up

_QUESTION_WORDS = LANGUAGES.tables
_ASKING_WORDS = frozenset(LANGUAGES.words.asking)  # words of a question that name no matter


def _asks(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(expression(patterns, _QUESTION_WORDS.words), re.IGNORECASE)


_OPERATION_PATTERNS = tuple(
    (name, _asks(_QUESTION_WORDS.operations.get(name, ["(?!)"]))) for name in OPERATIONS
)
# ask for an operation and name no row of a table
_OPERATING = _asks([rf"\b{expression(_QUESTION_WORDS.operating)}\b"])
_LATER_PATTERN = _asks([rf"\b{expression(_QUESTION_WORDS.later)}\b"])
_EARLIER_PATTERN = _asks([rf"\b{expression(_QUESTION_WORDS.earlier)}\b"])
_UNIT_PHRASES = any_of([word for word in UNIT_OF if " " in word]) or "(?!)"
_UNIT_ASKED = _asks([rf"\b{expression(_QUESTION_WORDS.unit)}\s*(?P<unit>{_UNIT_PHRASES}|\w+)"])
_TIME_UNITS = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")
_UNITS_ASKED = (
    (_asks(_QUESTION_WORDS.time), _TIME_UNITS),
    (_asks(_QUESTION_WORDS.share), ("%",)),
    (_asks(_QUESTION_WORDS.money), CURRENCY_CODES),
)


class TableQuestion(NamedTuple):
    """A question, as far as tables can answer it.

    terms: distinct words and beginnings of longer ones. operation: what to do with the cells.
    quantities: money, shares and numbers with units that it states. days: the days, months or years
    it speaks of. side: 1 where it asks for the newer of two columns, -1 for the older. kinds: units
    that an answer may have; empty where any may.
    """

    terms: tuple[str, ...]
    operation: str
    quantities: tuple[Quantity, ...]
    days: tuple[Quantity, ...]
    side: int
    kinds: tuple[str, ...]


def table_question(question: str, later: Sequence[str] = ()) -> TableQuestion:
    """Return what a question asks of tables.

    Later: expressions of a pack that speak of the newer figures.

    Example:
      >>> table_question("Which charge is the highest under Core?")[:2]
      (('charge', '^charg', 'core'), 'highest')
    """
    question_text = question[:MAX_QUESTION_LENGTH]
    quantity_spans = quantities_in(question_text)
    stated_quantities = tuple(
        quantity_span.quantity
        for quantity_span in quantity_spans
        if quantity_span.quantity.unit and quantity_span.quantity.kind != "date"
    )
    # a bound needs a quantity to compare with
    operation = next(
        (
            operation_name
            for operation_name, operation_pattern in _OPERATION_PATTERNS
            if (stated_quantities or operation_name not in BOUND_OPERATIONS)
            and operation_pattern.search(question_text)
        ),
        "value",
    )
    question_terms = distinct_terms(
        _without_quantities(question_text, quantity_spans, operation), _ASKING_WORDS
    )[:MAX_QUESTION_TERMS]
    stated_days = [
        quantity_span.quantity
        for quantity_span in quantity_spans
        if quantity_span.quantity.kind == "date"
    ]
    is_newer = _LATER_PATTERN.search(question_text) is not None
    if later and not is_newer:
        is_newer = (
            compile_expression(rf"\b(?:{'|'.join(later)})\b").search(question_text) is not None
        )
    return TableQuestion(
        terms=(*question_terms, CHANGE_TERM) if operation == "change" else question_terms,
        operation=operation,
        quantities=stated_quantities,
        days=tuple(stated_days or filter(None, [head_period(question_text)])),
        side=is_newer - (_EARLIER_PATTERN.search(question_text) is not None),
        kinds=_answer_units(question_text),
    )


def distinct_terms(text: str, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Distinct content words of a text without accents, first letters of longer ones, in order.

    Args:
      text: any.
      without: words that are left out beside the function words.

    Example:
      >>> distinct_terms("La réservation du vélo")
      ('reservation', '^reser', 'velo')
    """
    ordered_terms: dict[str, None] = {}
    for word in split_words(text):
        plain_word = unaccented(word)
        if word not in STOP_WORDS and plain_word not in without:
            ordered_terms[plain_word] = None
            if len(plain_word) > STEM_LENGTH and not plain_word.isdigit():
                ordered_terms[f"^{plain_word[:STEM_LENGTH]}"] = None
    return tuple(ordered_terms)


def _without_quantities(
    question_text: str, quantity_spans: Sequence[QuantitySpan], operation: str
) -> str:
    """Text without its typed quantities and the operation's words.

    Of a date the year stays, of a month both.
    """
    for quantity, span_start, span_end in quantity_spans:
        if quantity.unit:
            month_pattern = r"[^\W\d_]{3,}|" if quantity.high > quantity.low else ""
            is_date = quantity.kind == "date"
            kept_years = (
                re.findall(rf"{month_pattern}(?:19|20)\d\d", question_text[span_start:span_end])
                if is_date
                else []
            )
            span_width = span_end - span_start
            question_text = (
                question_text[:span_start]
                + " ".join(kept_years).ljust(span_width)[:span_width]
                + question_text[span_end:]
            )
    return (
        question_text
        if operation in {"value", "count", "total"}
        else _OPERATING.sub(" ", question_text)
    )


def _answer_units(question_text: str) -> tuple[str, ...]:
    """Units that an answer may have, as far as the question says."""
    unit_match = _UNIT_ASKED.search(question_text)
    if unit_match and (asked_unit := UNIT_OF.get(unit_match["unit"].casefold())):
        return (asked_unit,)
    return next(
        (
            possible_units
            for asking_pattern, possible_units in _UNITS_ASKED
            if asking_pattern.search(question_text)
        ),
        (),
    )


# Weight of a term in the field that counts most, and of a quantity that a cell states, or a band
# around it, as of a word in a cell; whole numbers, so that no sum depends on its order.
FULL_WEIGHT = 100
QUANTITY_WEIGHT = 70

# Macros. chosen: the cells at hand, without those that state nothing. comparable: the same, but
# none of them unless each is one number and all are of one unit; nothing and no bound are of any
# unit.
_CELL_SCHEMA = """
CREATE TABLE cells (
    row_id INTEGER, place INTEGER, text VARCHAR, kind VARCHAR, low DOUBLE, high DOUBLE, unit \
VARCHAR, note VARCHAR
);

CREATE MACRO chosen(at_rows, at_places) AS TABLE
SELECT row_id, place, text, kind, low, high, unit, note
FROM cells JOIN (SELECT unnest(at_rows) AS row_id, unnest(at_places) AS place) USING (row_id, place)
WHERE kind != 'missing';

CREATE MACRO comparable(at_rows, at_places) AS TABLE
SELECT * FROM chosen(at_rows, at_places) WHERE (
    SELECT bool_and(coalesce(low = high, false))
        AND count(DISTINCT unit) FILTER (unit != '' OR low NOT IN (0, 'inf')) <= 1
    FROM chosen(at_rows, at_places)
);
"""
# rows with a cell that states a quantity of the question, or a band around it
_STATING_QUERY = """
SELECT $typed || value || unit AS term, list(DISTINCT row_id ORDER BY row_id)
FROM cells JOIN (SELECT unnest($values) AS value, unnest($units) AS unit) USING (unit)
WHERE value BETWEEN low AND high GROUP BY term
"""
_HIGHEST_QUERY = """
SELECT row_id, place, text FROM comparable($rows, $places)
QUALIFY low = max(low) OVER () ORDER BY row_id, place
"""
_SUM_QUERY = """
SELECT sum(low ORDER BY row_id, place) AS figure FROM comparable($rows, $places) WHERE kind != \
'date'
HAVING count(*) > 0 AND max(low) < 'inf' AND count(DISTINCT note) = 1
"""
# Statements over cells: the cells themselves or some of them, or a figure.
STATEMENTS = {
    "value": """
SELECT row_id, place, text FROM cells
JOIN (SELECT unnest($rows) AS row_id, unnest($places) AS place) USING (row_id, place) ORDER BY \
row_id, place
""",
    "difference": """
SELECT max(low) - min(low) AS figure FROM comparable($rows, $places) WHERE kind != 'date'
HAVING count(*) = 2 AND max(low) < 'inf'
""",
    "highest": _HIGHEST_QUERY,
    "lowest": _HIGHEST_QUERY.replace("max", "min"),
    "bound": """
SELECT row_id, place, text FROM chosen($rows, $places) WHERE low = high
AND (unit = $unit OR (unit = '' AND low IN (0, 'inf'))) AND CASE $bound
WHEN 'above' THEN low > $value WHEN 'below' THEN low < $value WHEN 'at least' THEN low >= $value \
ELSE low <= $value END
ORDER BY row_id, place
""",
    "sum": _SUM_QUERY,
    "average": _SUM_QUERY.replace(" AS", " / count(*) AS"),
    "count": "SELECT count(DISTINCT row_id) AS figure FROM chosen($rows, $places)",
}


class RowMatch(NamedTuple):
    """A row that shares something with a question.

    score: share of the question's weight that it carries, in [0, 1]. shares: that of each term.
    own: terms that its own cells hold, not its table or document alone.
    """

    row: int
    score: float
    shares: Mapping[str, float]
    own: frozenset[str]


class Postings(NamedTuple):
    """Rows that hold a term, ascending, [n] each.

    weights: by where the term stands. own: whether the row's own cells hold it.
    """

    rows: IntArray
    weights: IntArray
    own: BoolArray


@dataclass(frozen=True, slots=True)
class Records:
    """Typed records of `rows` rows of tables in a database, closed to files and network.

    postings: of the terms that the rows hold.
    """

    rows: int
    postings: Mapping[str, Postings] = field(repr=False)
    connection: duckdb.DuckDBPyConnection = field(repr=False, compare=False)

    def matches(
        self, question: TableQuestion, k: int, within: WholeArray | None = None
    ) -> list[RowMatch]:
        """Return the k rows that share most with a question, best first, ties by row.

        A row's score is the weight of the question's terms that it, its table or its document
        holds, each by where it stands, over that of all its terms; a term that no row holds weighs
        most.

        Args:
          question: the question.
          k: rows.
          within: rows that it may find; None is all of them.
        """
        postings_by_term = {
            question_term: self.postings[question_term]
            for question_term in question.terms
            if question_term in self.postings
        }
        max_weights = dict.fromkeys(question.terms, FULL_WEIGHT)
        if question.quantities:
            asked_values, asked_units = zip(
                *((quantity.low, quantity.unit) for quantity in question.quantities), strict=True
            )
            query_parameters = {
                "values": list(asked_values),
                "units": list(asked_units),
                "typed": TYPED_PREFIX,
            }
            for question_term, posting_rows in self.run(_STATING_QUERY, query_parameters):
                row_ones = np.ones(len(posting_rows), np.int64)
                postings_by_term[question_term] = Postings(
                    np.array(posting_rows, np.int64), QUANTITY_WEIGHT * row_ones, row_ones > 0
                )
                max_weights[question_term] = QUANTITY_WEIGHT
        # weight of a term as in BM25, in millionths
        term_rarity = {}
        for question_term in max_weights:
            n_rows = (
                len(postings_by_term[question_term].rows)
                if question_term in postings_by_term
                else 0
            )
            term_rarity[question_term] = round(
                1e6 * log(1.0 + (self.rows - n_rows + 0.5) / (n_rows + 0.5))
            )
        total_weight = sum(
            max_weights[question_term] * term_rarity[question_term] for question_term in max_weights
        )
        row_totals = np.full(self.rows, -1, np.int64)  # of a row without any of the terms
        for question_term, (posting_rows, posting_weights, _) in postings_by_term.items():
            row_totals[posting_rows] = (
                np.maximum(row_totals[posting_rows], 0)
                + posting_weights * term_rarity[question_term]
            )
        if within is not None:
            row_totals[~np.isin(np.arange(self.rows), within)] = -1
        best_rows = np.argsort(-row_totals, kind="stable")[:k]
        best_rows = best_rows[row_totals[best_rows] >= 0]
        shares_by_row: dict[int, dict[str, float]] = {
            best_row: {} for best_row in best_rows.tolist()
        }
        own_by_row: dict[int, set[str]] = {best_row: set() for best_row in shares_by_row}
        for question_term in sorted(postings_by_term):
            posting_rows, posting_weights, is_own = postings_by_term[question_term]
            for posting_index in np.flatnonzero(np.isin(posting_rows, best_rows)).tolist():
                shares_by_row[int(posting_rows[posting_index])][question_term] = (
                    int(posting_weights[posting_index]) * term_rarity[question_term] / total_weight
                )
                if is_own[posting_index]:
                    own_by_row[int(posting_rows[posting_index])].add(question_term)
        return [
            RowMatch(
                best_row,
                int(row_totals[best_row]) / total_weight,
                shares_by_row[best_row],
                frozenset(own_by_row[best_row]),
            )
            for best_row in shares_by_row
        ]

    def run(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of one of this module's statements."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, dict(parameters)).fetchall()


def store_records(
    cells: Sequence[Sequence[TableCell]], postings: Mapping[str, Sequence[tuple[int, int, bool]]]
) -> Records:
    """Store the cells of rows in a new database in memory.

    One thread, no files, no network, no change of settings.

    Args:
      cells: of each row.
      postings: by term the rows that hold it, each with its weight and whether it is the row's own.
    """
    import duckdb

    database_settings: dict[str, Any] = {
        "threads": 1,
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection = duckdb.connect(":memory:", config=database_settings)
    connection.execute("SET lock_configuration = true")
    connection.execute(_CELL_SCHEMA)
    stored_rows = [
        (row_id, column, *_stored_cell(typed_cell))
        for row_id, row_cells in enumerate(cells)
        for column, typed_cell in enumerate(row_cells)
    ]
    stored_columns = [list(stored_values) for stored_values in zip(*stored_rows, strict=True)]
    placeholders = ", ".join(f"unnest(${column})" for column in range(1, len(stored_columns) + 1))
    connection.execute(f"INSERT INTO cells SELECT {placeholders}", stored_columns)
    posting_arrays = {
        row_term: Postings(*map(np.array, zip(*term_postings, strict=True)))
        for row_term, term_postings in postings.items()
    }
    return Records(len(cells), posting_arrays, connection)


def _stored_cell(cell: TableCell) -> tuple[str, str, float | None, float | None, str, str]:
    """A cell's text as Unicode that can be stored, and its quantity with NULL for what it lacks."""
    quantity_kind, lower_bound, upper_bound, quantity_unit, note = cell.quantity
    cell_text, note = (raw_text.encode(errors="replace").decode() for raw_text in (cell.text, note))
    stored_bounds = [
        None if isnan(quantity_bound) else quantity_bound
        for quantity_bound in (lower_bound, upper_bound)
    ]
    return cell_text, quantity_kind, stored_bounds[0], stored_bounds[1], quantity_unit, note


def sql_text(statement: str, parameters: Mapping[str, Any]) -> str:
    """A statement as one line, with its parameters after it as a comment."""
    text = json.dumps(parameters, ensure_ascii=False, sort_keys=True)
    return f"{' '.join(statement.split())} -- {text}"
