"""Typed records in an embedded SQL engine, in memory; the one module that knows DuckDB.

Every statement stands here as it is run: what a question says comes in as a parameter, never as a part of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.retrieval._asked import TYPED, Asked
from raglab.retrieval._quantities import Quantity

if TYPE_CHECKING:
    import duckdb

WHOLE = 100  # weight of a term in the field that counts most; whole numbers, so that no sum depends on its order
_QUANTITY = 70  # weight of a quantity that a cell states, or a band around it: that of a word in a cell

_SCHEMA = """
CREATE TABLE terms (term VARCHAR, idf BIGINT, row_ids INTEGER[], weights INTEGER[], owned BOOLEAN[]);
CREATE TABLE cells (
    row_id INTEGER, place INTEGER, text VARCHAR, kind VARCHAR, low DOUBLE, high DOUBLE, unit VARCHAR, note VARCHAR
);

-- Rows that hold terms, and those that state a quantity; the mass is what the term weighs there.
CREATE MACRO holding(asked, stated, stating, masses) AS TABLE
SELECT term, unnest(row_ids) AS row_id, unnest(weights) * idf AS mass, unnest(owned) AS own
FROM terms SEMI JOIN (SELECT unnest(asked) AS term) USING (term)
UNION ALL
SELECT unnest(stated::VARCHAR[]), unnest(stating::INTEGER[]), unnest(masses::BIGINT[]), true;

-- The cells at hand, without those that state nothing.
CREATE MACRO chosen(at_rows, at_places) AS TABLE
SELECT row_id, place, text, kind, low, high, unit, note
FROM cells JOIN (SELECT unnest(at_rows) AS row_id, unnest(at_places) AS place) USING (row_id, place)
WHERE kind != 'missing';

-- The same, but none of them unless each is one number and all are of one unit; nothing and no bound are of any unit.
CREATE MACRO comparable(at_rows, at_places) AS TABLE
SELECT * FROM chosen(at_rows, at_places) WHERE (
    SELECT bool_and(coalesce(low = high, false))
        AND count(DISTINCT unit) FILTER (unit != '' OR low NOT IN (0, 'inf')) <= 1
    FROM chosen(at_rows, at_places)
);
"""
_FILL_TERMS = "INSERT INTO terms SELECT unnest($1), unnest($2), unnest($3), unnest($4), unnest($5)"
_FILL_CELLS = """
INSERT INTO cells SELECT unnest($1), unnest($2), unnest($3), unnest($4), unnest($5), unnest($6), unnest($7), unnest($8)
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
_SEARCH_WITHIN = """
SELECT row_id, sum(mass)::BIGINT AS total, list(term), list(mass), list(own)
FROM holding($asked, $stated, $stating, $masses) WHERE row_id IN (SELECT unnest($within::INTEGER[]))
GROUP BY row_id ORDER BY total DESC, row_id LIMIT $k
"""
VALUES = """
SELECT row_id, place, text FROM cells
JOIN (SELECT unnest($rows) AS row_id, unnest($places) AS place) USING (row_id, place) ORDER BY row_id, place
"""
DIFFERENCE = """
SELECT max(low) - min(low) AS figure FROM comparable($rows, $places) WHERE kind != 'date'
HAVING count(*) = 2 AND max(low) < 'inf'
"""
HIGHEST = """
SELECT row_id, place, text FROM comparable($rows, $places)
QUALIFY low = max(low) OVER () ORDER BY row_id, place
"""
LOWEST = """
SELECT row_id, place, text FROM comparable($rows, $places)
QUALIFY low = min(low) OVER () ORDER BY row_id, place
"""
BOUNDED = """
SELECT row_id, place, text FROM chosen($rows, $places) WHERE low = high
AND (unit = $unit OR (unit = '' AND low IN (0, 'inf'))) AND CASE $bound
WHEN 'above' THEN low > $value WHEN 'below' THEN low < $value WHEN 'at least' THEN low >= $value ELSE low <= $value END
ORDER BY row_id, place
"""
SUM = """
SELECT sum(low ORDER BY row_id, place) AS figure FROM comparable($rows, $places) WHERE kind != 'date'
HAVING count(*) > 0 AND max(low) < 'inf' AND count(DISTINCT note) = 1
"""
AVERAGE = """
SELECT sum(low ORDER BY row_id, place) / count(*) AS figure FROM comparable($rows, $places) WHERE kind != 'date'
HAVING count(*) > 0 AND max(low) < 'inf' AND count(DISTINCT note) = 1
"""
COUNT = "SELECT count(DISTINCT row_id) AS figure FROM chosen($rows, $places)"


class Match(NamedTuple):
    """A row that shares something with a question.

    score: share of the question's weight that it carries, in [0, 1]. shares: that of each term. own: terms that its own
    cells hold, not its table or document alone.
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

    def matches(self, asked: Asked, k: int, within: NDArray[np.integer] | None = None) -> list[Match]:
        """Return the k rows that share most with a question, best first, ties by row.

        A row's score is the weight of the question's terms that it, its table or its document holds, each by where it
        stands, over that of all its terms; a term that no row holds weighs most.

        Args:
          asked: the question.
          k: rows.
          within: rows that it may find; None is all of them.
        """
        stating = self._stating(asked)
        weights = {term: _idf(count, self.rows) for term, count in Counter(term for term, _ in stating).items()}
        unknown = _idf(0, self.rows)
        most = WHOLE * sum(self.weights.get(term, unknown) for term in asked.terms) + _QUANTITY * sum(weights.values())
        parameters: dict[str, Any] = {
            "asked": list(asked.terms),
            "stated": [term for term, _ in stating],
            "stating": [row for _, row in stating],
            "masses": [_QUANTITY * weights[term] for term, _ in stating],
            "k": k,
        }
        if within is not None:
            parameters["within"] = within.tolist()
        matches = []
        for row, total, terms, masses, owned in self.run(_SEARCH if within is None else _SEARCH_WITHIN, parameters):
            shares = {term: mass / most for term, mass in sorted(zip(terms, masses, strict=True))}
            own = frozenset(term for term, is_own in zip(terms, owned, strict=True) if is_own)
            matches.append(Match(row, total / most, shares, own))
        return matches

    def _stating(self, asked: Asked) -> list[tuple[str, int]]:
        """Quantities of the question, and the rows that state them."""
        if not asked.quantities:
            return []
        values, units = zip(*((quantity.low, quantity.unit) for quantity in asked.quantities), strict=True)
        return self.run(_STATING, {"values": list(values), "units": list(units), "typed": TYPED})

    def run(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of one of this module's statements."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, dict(parameters)).fetchall()


def records(rows: int, columns: Columns) -> Records:
    """Store records in a new database in memory: one thread, no files, no network, no change of settings.

    Args:
      rows: how many there are.
      columns: what is stored.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
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
        connection.execute(_FILL_TERMS, [list(weights), list(weights.values()), *map(list, zip(*parts, strict=True))])
    cells = [(row, place, *_stored(text, quantity)) for row, place, text, quantity in columns.cells]
    connection.execute(_FILL_CELLS, [list(column) for column in zip(*cells, strict=True)])
    return Records(rows, weights, connection)


def shown(statement: str, parameters: Mapping[str, Any]) -> str:
    """A statement as one line, with its parameters after it as a comment."""
    values = json.dumps(parameters, ensure_ascii=False, sort_keys=True)
    return f"{' '.join(statement.split())} -- {values}"


def _stored(text: str, quantity: Quantity) -> tuple[str, str, float | None, float | None, str, str]:
    """Text as Unicode that can be stored, and the quantity with NULL for what it lacks."""
    told, note = (part.encode(errors="replace").decode() for part in (text, quantity.note))
    low, high = (None if isnan(bound) else bound for bound in (quantity.low, quantity.high))
    return told, quantity.kind, low, high, quantity.unit, note


def _idf(count: int, rows: int) -> int:
    """Weight of a term that `count` of all rows hold, as in BM25, in millionths."""
    return round(1e6 * log(1.0 + (rows - count + 0.5) / (count + 0.5)))
