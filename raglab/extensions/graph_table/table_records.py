"""Table records (shore): tables of documents as typed records in DuckDB.

Every statement stands here as it is run: what a question says comes in as a parameter, never as a
part of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf, isnan, log
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.graph_table.quantities import (
    CURRENCIES,
    CURRENCY_OF,
    UNIT_OF,
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
        table for position, chunk in enumerate(chunks) for table in _tables_in(chunk, position)
    )


def row_text(table: MarkdownTable, row: int) -> str:
    r"""A row as it can be read alone: the table's name, and each cell under its head, as written.

    Example:
      >>> (table,) = markdown_tables(
      ...     [Chunk("1", "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |", "a.md")]
      ... )
      >>> row_text(table, 0)
      'Excesses - Cause: Storm; Excess: £250'
    """
    pairs = zip(table.columns, table.rows[row], strict=True)
    cells = [
        f"{head}: {cell.text}" if head else cell.text
        for head, cell in pairs
        if cell.text.strip(DASHES)
    ]
    return f"{table.name} - {'; '.join(cells)}"


def head_time(head: str) -> Quantity | None:
    """Days that a column's head speaks of; all before and all after any day for `Old` and `New`."""
    older, newer = (pattern.search(head[:NAME_LENGTH]) is not None for pattern in (_OLDER, _NEWER))
    beyond = inf if newer else -inf
    return head_period(head) or (
        Quantity("date", beyond, beyond, "date") if older != newer else None
    )


def _tables_in(chunk: Chunk, position: int) -> Iterator[MarkdownTable]:
    if "|" not in chunk.full_text:
        return
    lines = chunk.full_text.splitlines()
    stated = _STATED.search(chunk.full_text)
    common = CURRENCY_OF[stated[1].casefold()] if stated else ""
    for start, end in _table_blocks(lines):
        grid = [_split_cells(line) for line in lines[start:end]]
        headed = len(grid) > 1 and _is_rule(grid[1])
        heads = grid[0] if headed else [""] * max(map(len, grid))
        body = [
            _fit_width(cells, len(heads))
            for cells in (grid[2:] if headed else grid)
            if not _is_rule(cells)
        ]
        rows = [cells for cells in body if any(cell.strip(DASHES) for cell in cells)]
        if rows:
            units = [_unit_in(head) for head in heads]
            typed = tuple(tuple(_typed_cells(row, units, common)) for row in rows)
            yield MarkdownTable(
                _table_name(chunk, lines, start), tuple(heads), typed, position, _label(typed)
            )


def _table_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the tables stand.

    Runs of lines that begin with a pipe, or that follow a head and its rule.
    """
    code = False
    inside: list[bool] = []
    for number, line in enumerate(lines):
        bare = line.strip()
        code ^= bare.startswith(_FENCES)
        ruled = any(_is_rule_line(near) for near in lines[number : number + 2])
        going_on = bool(inside) and inside[-1]
        inside.append(
            not code
            and _PIPE.search(bare) is not None
            and (bare.startswith("|") or ruled or going_on)
        )
    for is_table, run in groupby(range(len(lines)), key=lambda number: inside[number]):
        places = list(run)
        if is_table:
            yield places[0], places[-1] + 1


def _is_rule_line(line: str) -> bool:
    return "|" in line and _is_rule(_split_cells(line))


def _is_rule(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_RULE.fullmatch(cell) for cell in cells)


def _split_cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|")
    parts = _PIPE.split(bare)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [" ".join(part.replace("\\|", "|").split()) for part in parts]


def _fit_width(cells: list[str], width: int) -> list[str]:
    if len(cells) <= width:
        return [*cells, *[""] * (width - len(cells))]
    return [*cells[: width - 1], " | ".join(cells[width - 1 :])]


def _typed_cells(row: Sequence[str], units: Sequence[str], common: str) -> Iterator[TableCell]:
    own = next((unit for unit in map(_unit_in, row) if unit), "")
    for text, unit in zip(row, units, strict=True):
        quantity = cell_quantity(text)
        bare = quantity.kind == "number" and not quantity.unit and not quantity.note
        yield TableCell(text, _with_unit(quantity, unit or own or common) if bare else quantity)


def _with_unit(quantity: Quantity, unit: str) -> Quantity:
    kind = "money" if unit in CURRENCIES else "percent" if unit == "%" else "number"
    return quantity._replace(kind=kind, unit=unit) if unit else quantity  # type: ignore[arg-type]


def _unit_in(text: str) -> str:
    """Unit in brackets, or that is all of a head."""
    within = [match[1] for match in _IN_BRACKETS.finditer(text[:NAME_LENGTH])]
    return next(
        (
            _UNITS[word]
            for word in (part.strip().casefold() for part in (*within, text))
            if word in _UNITS
        ),
        "",
    )


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


Operation = Literal[
    "value",
    "change",
    "difference",
    "highest",
    "lowest",
    "above",
    "below",
    "at least",
    "at most",
    "sum",
    "total",
    "average",
    "count",
]

BOUNDS: tuple[Operation, ...] = ("at least", "at most", "above", "below")
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


# What each operation is asked with; the first that occurs is taken, so that what is most particular
# stands first.
_ORDER: tuple[Operation, ...] = (
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
_OPERATIONS = tuple(
    (operation, _asks(_ASKS.operations.get(operation, ["(?!)"]))) for operation in _ORDER
)
# ask for an operation and name no row of a table
_OPERATING = _asks([rf"\b{expression(_ASKS.operating)}\b"])
_LATER, _EARLIER = (
    _asks([rf"\b{expression(_ASKS.later)}\b"]),
    _asks([rf"\b{expression(_ASKS.earlier)}\b"]),
)
_PHRASES = any_of([word for word in UNIT_OF if " " in word]) or "(?!)"
_UNIT_ASKED = _asks([rf"\b{expression(_ASKS.unit)}\s*(?P<unit>{_PHRASES}|\w+)"])
_TIME_ASKED, _SHARE_ASKED, _MONEY_ASKED = _asks(_ASKS.time), _asks(_ASKS.share), _asks(_ASKS.money)
_TIMES = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")


class TableQuestion(NamedTuple):
    """A question, as far as tables can answer it.

    terms: distinct words and beginnings of longer ones. operation: what to do with the cells.
    quantities: money, shares and numbers with units that it states. days: the days, months or years
    it speaks of. side: 1 where it asks for the newer of two columns, -1 for the older. kinds: units
    that an answer may have; empty where any may.
    """

    terms: tuple[str, ...]
    operation: Operation
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
    stated = tuple(f for f in spans if f.quantity.unit and f.quantity.kind != "date")
    operation = _operation(text, stated=bool(stated))
    terms = distinct_terms(_without_quantities(text, spans, operation), _ASKING)[:MOST_TERMS]
    terms = (*terms, CHANGE) if operation == "change" else terms
    days = tuple(f.quantity for f in spans if f.quantity.kind == "date") or tuple(
        d for d in (head_period(text),) if d
    )
    return TableQuestion(
        terms,
        operation,
        tuple(f.quantity for f in stated),
        days,
        _age_side(text, later),
        _answer_units(text),
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
    words = (unaccented(word) for word in split_words(text) if word not in STOP_WORDS)
    return tuple(
        dict.fromkeys(
            term for word in words if word not in without for term in _with_beginning(word)
        )
    )


def _with_beginning(word: str) -> tuple[str, ...]:
    return (word, f"^{word[:STEM]}") if len(word) > STEM and not word.isdigit() else (word,)


def _operation(text: str, *, stated: bool) -> Operation:
    """First operation that the text asks for; a bound needs a quantity to compare with."""
    fitting = (
        name
        for name, pattern in _OPERATIONS
        if (stated or name not in BOUNDS) and pattern.search(text)
    )
    return next(fitting, "value")


def _without_quantities(text: str, spans: list[QuantitySpan], operation: Operation) -> str:
    """Text without its typed quantities and the operation's words.

    Of a date the year stays, of a month both.
    """
    rest = text
    for quantity, start, end in spans:
        if quantity.unit:
            months = r"[^\W\d_]{3,}|" if quantity.high > quantity.low else ""
            date_words = (
                re.findall(rf"{months}(?:19|20)\d\d", text[start:end])
                if quantity.kind == "date"
                else []
            )
            rest = (
                rest[:start] + " ".join(date_words).ljust(end - start)[: end - start] + rest[end:]
            )
    return rest if operation in {"value", "count", "total"} else _OPERATING.sub(" ", rest)


def _age_side(text: str, later: Sequence[str]) -> int:
    """1 for the newer, -1 for the older, 0 where both or neither are asked for."""
    newer = _LATER.search(text) is not None
    if later and not newer:
        newer = compile_expression(rf"\b(?:{'|'.join(later)})\b").search(text) is not None
    return newer - (_EARLIER.search(text) is not None)


def _answer_units(text: str) -> tuple[str, ...]:
    """Units that an answer may have, as far as the question says."""
    counted = _UNIT_ASKED.search(text)
    unit = UNIT_OF.get(counted["unit"].casefold(), "") if counted else ""
    if unit:
        return (unit,)
    if _TIME_ASKED.search(text):
        return _TIMES
    if _SHARE_ASKED.search(text):
        return ("%",)
    return CURRENCY_CODES if _MONEY_ASKED.search(text) else ()


# weight of a term in the field that counts most; whole numbers, so that no sum depends on its order
WHOLE = 100
# weight of a quantity that a cell states, or a band around it: that of a word in a cell
_QUANTITY = 70

# Macros. holding: rows that hold terms, and those that state a quantity; the mass is what the term
# weighs there. chosen: the cells at hand, without those that state nothing. comparable: the same,
# but none of them unless each is one number and all are of one unit; nothing and no bound are of
# any unit.
_SCHEMA = """
CREATE TABLE terms (term VARCHAR, idf BIGINT, row_ids INTEGER[], weights INTEGER[], owned \
BOOLEAN[]);
CREATE TABLE cells (
    row_id INTEGER, place INTEGER, text VARCHAR, kind VARCHAR, low DOUBLE, high DOUBLE, unit \
VARCHAR, note VARCHAR
);

CREATE MACRO holding(asked, stated, stating, masses) AS TABLE
SELECT term, unnest(row_ids) AS row_id, unnest(weights) * idf AS mass, unnest(owned) AS own
FROM terms SEMI JOIN (SELECT unnest(asked) AS term) USING (term)
UNION ALL
SELECT unnest(stated::VARCHAR[]), unnest(stating::INTEGER[]), unnest(masses::BIGINT[]), true;

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
_FILL_TERMS = "INSERT INTO terms SELECT unnest($1), unnest($2), unnest($3), unnest($4), unnest($5)"
_FILL_CELLS = """
INSERT INTO cells SELECT unnest($1), unnest($2), unnest($3), unnest($4), unnest($5), unnest($6), \
unnest($7), unnest($8)
"""
# Rows with a cell that states a quantity of the question, or a band around it.
_STATING = """
SELECT DISTINCT $typed || value || unit AS term, row_id
FROM cells JOIN (SELECT unnest($values) AS value, unnest($units) AS unit) USING (unit)
WHERE value BETWEEN low AND high ORDER BY term, row_id
"""
_SEARCH = """
SELECT row_id, sum(mass)::BIGINT AS total, list(term), list(mass), list(own)
FROM holding($asked, $stated, $stating, $masses)
GROUP BY row_id ORDER BY total DESC, row_id LIMIT $k
"""
_SEARCH_WITHIN = _SEARCH.replace(
    "GROUP", "WHERE row_id IN (SELECT unnest($within::INTEGER[])) GROUP"
)
VALUES = """
SELECT row_id, place, text FROM cells
JOIN (SELECT unnest($rows) AS row_id, unnest($places) AS place) USING (row_id, place) ORDER BY \
row_id, place
"""
DIFFERENCE = """
SELECT max(low) - min(low) AS figure FROM comparable($rows, $places) WHERE kind != 'date'
HAVING count(*) = 2 AND max(low) < 'inf'
"""
HIGHEST = """
SELECT row_id, place, text FROM comparable($rows, $places)
QUALIFY low = max(low) OVER () ORDER BY row_id, place
"""
LOWEST = HIGHEST.replace("max", "min")
BOUNDED = """
SELECT row_id, place, text FROM chosen($rows, $places) WHERE low = high
AND (unit = $unit OR (unit = '' AND low IN (0, 'inf'))) AND CASE $bound
WHEN 'above' THEN low > $value WHEN 'below' THEN low < $value WHEN 'at least' THEN low >= $value \
ELSE low <= $value END
ORDER BY row_id, place
"""
SUM = """
SELECT sum(low ORDER BY row_id, place) AS figure FROM comparable($rows, $places) WHERE kind != \
'date'
HAVING count(*) > 0 AND max(low) < 'inf' AND count(DISTINCT note) = 1
"""
AVERAGE = SUM.replace(" AS", " / count(*) AS")
COUNT = "SELECT count(DISTINCT row_id) AS figure FROM chosen($rows, $places)"


class RowMatch(NamedTuple):
    """A row that shares something with a question.

    score: share of the question's weight that it carries, in [0, 1]. shares: that of each term.
    own: terms that its own cells hold, not its table or document alone.
    """

    row: int
    score: float
    shares: Mapping[str, float]
    own: frozenset[str]


class Posting(NamedTuple):
    """A row that holds a term. weight: by where it stands. own: in the row's own cells."""

    row: int
    weight: int
    own: bool


class Columns(NamedTuple):
    """What is stored; see the schema.

    postings: by term. cells: row, column, text and quantity.
    """

    postings: Mapping[str, Sequence[Posting]]
    cells: Sequence[tuple[int, int, str, Quantity]]


@dataclass(frozen=True, slots=True)
class Records:
    """Typed records of tables in a database of their own, closed to files and network.

    rows: how many. weights: of each term that a row holds.
    """

    rows: int
    weights: Mapping[str, int] = field(repr=False)
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
        stating = self._quantity_rows(question)
        weights = {
            term: _idf(count, self.rows)
            for term, count in Counter(term for term, _ in stating).items()
        }
        unknown = _idf(0, self.rows)
        most = WHOLE * sum(
            self.weights.get(term, unknown) for term in question.terms
        ) + _QUANTITY * sum(weights.values())
        parameters: dict[str, Any] = {
            "asked": list(question.terms),
            "stated": [term for term, _ in stating],
            "stating": [row for _, row in stating],
            "masses": [_QUANTITY * weights[term] for term, _ in stating],
            "k": k,
        }
        if within is not None:
            parameters["within"] = within.tolist()
        matches = []
        for row, total, terms, masses, owned in self.run(
            _SEARCH if within is None else _SEARCH_WITHIN, parameters
        ):
            shares = {term: mass / most for term, mass in sorted(zip(terms, masses, strict=True))}
            own = frozenset(term for term, is_own in zip(terms, owned, strict=True) if is_own)
            matches.append(RowMatch(row, total / most, shares, own))
        return matches

    def _quantity_rows(self, question: TableQuestion) -> list[tuple[str, int]]:
        """Quantities of the question, and the rows that state them."""
        if not question.quantities:
            return []
        values, units = zip(
            *((quantity.low, quantity.unit) for quantity in question.quantities), strict=True
        )
        return self.run(_STATING, {"values": list(values), "units": list(units), "typed": TYPED})

    def run(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of one of this module's statements."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, dict(parameters)).fetchall()


def store_records(rows: int, columns: Columns) -> Records:
    """Store records in a new database in memory.

    One thread, no files, no network, no change of settings.

    Args:
      rows: how many there are.
      columns: what is stored.
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
    weights = {term: _idf(len(some), rows) for term, some in sorted(columns.postings.items())}
    if weights:
        postings = [columns.postings[term] for term in weights]
        parts = [[list(part) for part in zip(*some, strict=True)] for some in postings]
        connection.execute(
            _FILL_TERMS,
            [list(weights), list(weights.values()), *map(list, zip(*parts, strict=True))],
        )
    cells = [
        (row, place, *_storable_text(text, quantity))
        for row, place, text, quantity in columns.cells
    ]
    connection.execute(_FILL_CELLS, [list(column) for column in zip(*cells, strict=True)])
    return Records(rows, weights, connection)


def sql_text(statement: str, parameters: Mapping[str, Any]) -> str:
    """A statement as one line, with its parameters after it as a comment."""
    values = json.dumps(parameters, ensure_ascii=False, sort_keys=True)
    return f"{' '.join(statement.split())} -- {values}"


def _storable_text(
    text: str, quantity: Quantity
) -> tuple[str, str, float | None, float | None, str, str]:
    """Text as Unicode that can be stored, and the quantity with NULL for what it lacks."""
    stored_text, note = (part.encode(errors="replace").decode() for part in (text, quantity.note))
    low, high = (None if isnan(bound) else bound for bound in (quantity.low, quantity.high))
    return stored_text, quantity.kind, low, high, quantity.unit, note


def _idf(count: int, rows: int) -> int:
    """Weight of a term that `count` of all rows hold, as in BM25, in millionths."""
    return round(1e6 * log(1.0 + (rows - count + 0.5) / (count + 0.5)))
