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
from numpy.typing import NDArray

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
from raglab.values import Chunk
from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import CURRENCY_CODES, any_of
from raglab.words.packs import compile_expression
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import split_words

if TYPE_CHECKING:
    import duckdb

NAME_LENGTH = 200  # characters of a first line that may still be a heading, and of a caption
_FENCES = ("```", "~~~")
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-+:?")
_PROSE_ENDS = (".", "!", "?", "…", ":", ";", ",")
_PATH_JOINT = " > "
DASHES = "-–—−"
_WORDS = LANGUAGES.quantities
_OLDER = re.compile(rf"\b{expression(_WORDS.older)}\b", re.IGNORECASE)
_NEWER = re.compile(rf"\b{expression(_WORDS.newer)}\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_UNITS = {**CURRENCY_OF, **UNIT_OF}
_IN_BRACKETS = re.compile(r"\(([^()]{1,20})\)")
_STATED = re.compile(rf"\b{expression(_WORDS.stated)}\s+({any_of(CURRENCY_OF)})", re.IGNORECASE)


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
    older, newer = (pattern.search(head[:NAME_LENGTH]) is not None for pattern in (_OLDER, _NEWER))
    beyond = inf if newer else -inf
    return head_period(head) or (
        Quantity("date", beyond, beyond, "date") if older != newer else None
    )


def _tables_in(chunk: Chunk, position: int) -> Iterator[MarkdownTable]:
    lines = chunk.full_text.splitlines()
    stated = _STATED.search(chunk.full_text)
    common = CURRENCY_OF[stated[1].casefold()] if stated else ""
    for start, grid in _table_blocks(lines):
        headed = len(grid) > 1 and _is_rule(grid[1])
        heads = grid[0] if headed else [""] * max(map(len, grid))
        units = [_unit_in(head) for head in heads]
        rows = [
            _typed_cells(cells, units, common)
            for cells in (grid[2:] if headed else grid)
            if any(cell.strip(DASHES) for cell in cells) and not _is_rule(cells)
        ]
        if rows:
            name = _table_name(chunk, lines, start)
            yield MarkdownTable(name, tuple(heads), tuple(rows), position, _label(rows))


def _table_blocks(lines: Sequence[str]) -> list[tuple[int, list[list[str]]]]:
    """First line and cells of each table.

    Runs of lines that begin with a pipe, or that follow a head and its rule.
    """
    blocks: list[tuple[int, list[list[str]]]] = []
    code = going_on = False
    for number, line in enumerate(lines):
        bare = line.strip()
        code ^= bare.startswith(_FENCES)
        is_row = not code and _PIPE.search(bare) is not None
        is_row = is_row and (
            bare.startswith("|")
            or going_on
            or any(
                "|" in near and _is_rule(_split_cells(near)) for near in lines[number : number + 2]
            )
        )
        if is_row and not going_on:
            blocks.append((number, []))
        if is_row:
            blocks[-1][1].append(_split_cells(line))
        going_on = is_row
    return blocks


def _is_rule(cells: Sequence[str]) -> bool:
    return all(_RULE.fullmatch(cell) for cell in cells)


def _split_cells(line: str) -> list[str]:
    parts = _PIPE.split(line.strip().removeprefix("|"))
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [" ".join(part.replace("\\|", "|").split()) for part in parts]


def _typed_cells(cells: list[str], units: Sequence[str], common: str) -> tuple[TableCell, ...]:
    """Cells of a row in as many columns as there are units; the last one holds what is beyond."""
    last = len(units) - 1
    padded = cells + [""] * (len(units) - len(cells))
    texts = [*padded[:last], " | ".join(padded[last:])]
    row_unit = next(filter(None, map(_unit_in, texts)), "")
    typed = []
    for text, head_unit in zip(texts, units, strict=True):
        quantity, unit = cell_quantity(text), head_unit or row_unit or common
        if unit and (quantity.kind, quantity.unit, quantity.note) == ("number", "", ""):
            kind: Kind = "percent" if unit == "%" else "number"
            quantity = quantity._replace(kind="money" if unit in CURRENCIES else kind, unit=unit)
        typed.append(TableCell(text, quantity))
    return tuple(typed)


def _unit_in(text: str) -> str:
    """Unit in brackets, or that is all of a head."""
    parts = [*_IN_BRACKETS.findall(text[:NAME_LENGTH]), text]
    words = (part.strip().casefold() for part in parts)
    return next((_UNITS[word] for word in words if word in _UNITS), "")


def _label(rows: Sequence[Sequence[TableCell]]) -> int:
    """First column most of whose cells are words; the first of all where there is none."""
    named = [
        sum(c.quantity.kind == "text" and bool(_LETTERS.search(c.text)) for c in col)
        for col in zip(*rows, strict=True)
    ]
    return next((place for place, count in enumerate(named) if 2 * count > len(rows)), 0)


def _table_name(chunk: Chunk, lines: Sequence[str], start: int) -> str:
    """Heading path, else the line above the table, else title or file."""
    first = lines[0].strip().lstrip("#").strip() if start else ""
    if first and len(first) <= NAME_LENGTH and not first.endswith(_PROSE_ENDS):
        title, *rest = first.split(_PATH_JOINT)
        return f"{_PATH_JOINT.join(rest)} ({title})" if rest else title
    above = next((line.strip() for line in reversed(lines[:start]) if line.strip()), "")
    caption = above.strip("*_# ").rstrip(":")
    return (
        caption
        if caption and len(caption) <= NAME_LENGTH
        else chunk.tags.get("title") or chunk.file_name
    )


BOUNDS = ("at least", "at most", "above", "below")
# The first that a question asks for is taken, so that what is most particular stands first.
OPERATIONS = (
    "average",
    "difference",
    "change",
    *BOUNDS,
    "highest",
    "lowest",
    "sum",
    "total",
    "count",
)
STEM = 5  # letters of a longer word that stand for its inflections, as in keyword search
LONGEST = 1000  # characters of a question that are read
TYPED = "#"  # begins a term that is no word
# the term of tables with columns for two times, and of questions for a change
CHANGE = f"{TYPED}change"
MOST_TERMS = 64  # distinct terms of a question that are looked up

_ASKS = LANGUAGES.tables
_ASKING = frozenset(LANGUAGES.words.asking)  # words of a question that name no matter


def _asks(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(expression(patterns, _ASKS.words), re.IGNORECASE)


_OPERATIONS = tuple((name, _asks(_ASKS.operations.get(name, ["(?!)"]))) for name in OPERATIONS)
# ask for an operation and name no row of a table
_OPERATING = _asks([rf"\b{expression(_ASKS.operating)}\b"])
_LATER, _EARLIER = (
    _asks([rf"\b{expression(_ASKS.later)}\b"]),
    _asks([rf"\b{expression(_ASKS.earlier)}\b"]),
)
_PHRASES = any_of([word for word in UNIT_OF if " " in word]) or "(?!)"
_UNIT_ASKED = _asks([rf"\b{expression(_ASKS.unit)}\s*(?P<unit>{_PHRASES}|\w+)"])
_TIMES = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")
_UNITS_ASKED = (
    (_asks(_ASKS.time), _TIMES),
    (_asks(_ASKS.share), ("%",)),
    (_asks(_ASKS.money), CURRENCY_CODES),
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
    text = question[:LONGEST]
    spans = quantities_in(text)
    stated = tuple(
        span.quantity for span in spans if span.quantity.unit and span.quantity.kind != "date"
    )
    # a bound needs a quantity to compare with
    operation = next(
        (
            name
            for name, pattern in _OPERATIONS
            if (stated or name not in BOUNDS) and pattern.search(text)
        ),
        "value",
    )
    terms = distinct_terms(_without_quantities(text, spans, operation), _ASKING)[:MOST_TERMS]
    days = [span.quantity for span in spans if span.quantity.kind == "date"]
    newer = _LATER.search(text) is not None
    if later and not newer:
        newer = compile_expression(rf"\b(?:{'|'.join(later)})\b").search(text) is not None
    return TableQuestion(
        terms=(*terms, CHANGE) if operation == "change" else terms,
        operation=operation,
        quantities=stated,
        days=tuple(days or filter(None, [head_period(text)])),
        side=newer - (_EARLIER.search(text) is not None),
        kinds=_answer_units(text),
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
    terms: dict[str, None] = {}
    for word in split_words(text):
        plain = unaccented(word)
        if word not in STOP_WORDS and plain not in without:
            terms[plain] = None
            if len(plain) > STEM and not plain.isdigit():
                terms[f"^{plain[:STEM]}"] = None
    return tuple(terms)


def _without_quantities(text: str, spans: Sequence[QuantitySpan], operation: str) -> str:
    """Text without its typed quantities and the operation's words.

    Of a date the year stays, of a month both.
    """
    for quantity, start, end in spans:
        if quantity.unit:
            months = r"[^\W\d_]{3,}|" if quantity.high > quantity.low else ""
            is_date = quantity.kind == "date"
            years = re.findall(rf"{months}(?:19|20)\d\d", text[start:end]) if is_date else []
            width = end - start
            text = text[:start] + " ".join(years).ljust(width)[:width] + text[end:]
    return text if operation in {"value", "count", "total"} else _OPERATING.sub(" ", text)


def _answer_units(text: str) -> tuple[str, ...]:
    """Units that an answer may have, as far as the question says."""
    counted = _UNIT_ASKED.search(text)
    if counted and (unit := UNIT_OF.get(counted["unit"].casefold())):
        return (unit,)
    return next((units for pattern, units in _UNITS_ASKED if pattern.search(text)), ())


# Weight of a term in the field that counts most, and of a quantity that a cell states, or a band
# around it, as of a word in a cell; whole numbers, so that no sum depends on its order.
WHOLE, QUANTITY = 100, 70

# Macros. chosen: the cells at hand, without those that state nothing. comparable: the same, but
# none of them unless each is one number and all are of one unit; nothing and no bound are of any
# unit.
_SCHEMA = """
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
_STATING = """
SELECT $typed || value || unit AS term, list(DISTINCT row_id ORDER BY row_id)
FROM cells JOIN (SELECT unnest($values) AS value, unnest($units) AS unit) USING (unit)
WHERE value BETWEEN low AND high GROUP BY term
"""
_HIGHEST = """
SELECT row_id, place, text FROM comparable($rows, $places)
QUALIFY low = max(low) OVER () ORDER BY row_id, place
"""
_SUM = """
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
    "highest": _HIGHEST,
    "lowest": _HIGHEST.replace("max", "min"),
    "bound": """
SELECT row_id, place, text FROM chosen($rows, $places) WHERE low = high
AND (unit = $unit OR (unit = '' AND low IN (0, 'inf'))) AND CASE $bound
WHEN 'above' THEN low > $value WHEN 'below' THEN low < $value WHEN 'at least' THEN low >= $value \
ELSE low <= $value END
ORDER BY row_id, place
""",
    "sum": _SUM,
    "average": _SUM.replace(" AS", " / count(*) AS"),
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

    rows: NDArray[np.int64]
    weights: NDArray[np.int64]
    own: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Records:
    """Typed records of `rows` rows of tables in a database, closed to files and network.

    postings: of the terms that the rows hold.
    """

    rows: int
    postings: Mapping[str, Postings] = field(repr=False)
    connection: duckdb.DuckDBPyConnection = field(repr=False, compare=False)

    def matches(
        self, question: TableQuestion, k: int, within: NDArray[np.integer] | None = None
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
        held = {term: self.postings[term] for term in question.terms if term in self.postings}
        most = dict.fromkeys(question.terms, WHOLE)
        if question.quantities:
            values, units = zip(
                *((each.low, each.unit) for each in question.quantities), strict=True
            )
            stated = {"values": list(values), "units": list(units), "typed": TYPED}
            for term, rows in self.run(_STATING, stated):
                ones = np.ones(len(rows), np.int64)
                held[term] = Postings(np.array(rows, np.int64), QUANTITY * ones, ones > 0)
                most[term] = QUANTITY
        # weight of a term as in BM25, in millionths
        idf = {}
        for term in most:
            n = len(held[term].rows) if term in held else 0
            idf[term] = round(1e6 * log(1.0 + (self.rows - n + 0.5) / (n + 0.5)))
        whole = sum(most[term] * idf[term] for term in most)
        totals = np.full(self.rows, -1, np.int64)  # of a row without any of the terms
        for term, (rows, weights, _) in held.items():
            totals[rows] = np.maximum(totals[rows], 0) + weights * idf[term]
        if within is not None:
            totals[~np.isin(np.arange(self.rows), within)] = -1
        best = np.argsort(-totals, kind="stable")[:k]
        best = best[totals[best] >= 0]
        shares: dict[int, dict[str, float]] = {row: {} for row in best.tolist()}
        own: dict[int, set[str]] = {row: set() for row in shares}
        for term in sorted(held):
            rows, weights, owned = held[term]
            for at in np.flatnonzero(np.isin(rows, best)).tolist():
                shares[int(rows[at])][term] = int(weights[at]) * idf[term] / whole
                if owned[at]:
                    own[int(rows[at])].add(term)
        return [
            RowMatch(row, int(totals[row]) / whole, shares[row], frozenset(own[row]))
            for row in shares
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

    settings: dict[str, Any] = {
        "threads": 1,
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET lock_configuration = true")
    connection.execute(_SCHEMA)
    stored = [
        (row, place, *_stored_cell(cell))
        for row, row_cells in enumerate(cells)
        for place, cell in enumerate(row_cells)
    ]
    columns = [list(column) for column in zip(*stored, strict=True)]
    marks = ", ".join(f"unnest(${place})" for place in range(1, len(columns) + 1))
    connection.execute(f"INSERT INTO cells SELECT {marks}", columns)
    arrays = {
        term: Postings(*map(np.array, zip(*some, strict=True))) for term, some in postings.items()
    }
    return Records(len(cells), arrays, connection)


def _stored_cell(cell: TableCell) -> tuple[str, str, float | None, float | None, str, str]:
    """A cell's text as Unicode that can be stored, and its quantity with NULL for what it lacks."""
    kind, low, high, unit, note = cell.quantity
    text, note = (part.encode(errors="replace").decode() for part in (cell.text, note))
    bounds = [None if isnan(bound) else bound for bound in (low, high)]
    return text, kind, bounds[0], bounds[1], unit, note


def sql_text(statement: str, parameters: Mapping[str, Any]) -> str:
    """A statement as one line, with its parameters after it as a comment."""
    values = json.dumps(parameters, ensure_ascii=False, sort_keys=True)
    return f"{' '.join(statement.split())} -- {values}"
