"""Tables of a corpus: their rows as chunks to find, and their cells as records to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from raglab.retrieval._answers import TableAnswer, answered
from raglab.retrieval._asked import CHANGE, asked, terms_of
from raglab.retrieval._meant import Held
from raglab.retrieval._quantities import Quantity
from raglab.retrieval._records import Cell, Table, row_text, tables_of, time_of
from raglab.retrieval._sql import WHOLE, Columns, Posting, records
from raglab.values import Chunk

__all__ = ["Cell", "Quantity", "Table", "TableAnswer", "TableIndex", "row_text", "table_index", "tables_of"]

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
Allowed = Sequence[NDArray[np.integer] | None]

# What a shared word counts by where it stands: a row's name and its document tell it apart, other cells and heads less,
# prose around a table least. Chosen on the bundled tune split.
_LABEL, _CELL, _HEAD, _DOCUMENT, _PROSE = WHOLE, 70, 70, WHOLE, 40


@dataclass(frozen=True, slots=True)
class TableIndex:
    """Rows of the tables in a corpus.

    rows: one chunk a row. parents: position in the corpus of the chunk that each row stands in, [R]. tables: typed.
    """

    rows: tuple[Chunk, ...] = field(repr=False)
    parents: Ids = field(repr=False)
    tables: tuple[Table, ...] = field(repr=False)
    held: Held | None = field(repr=False)

    def search(self, queries: Sequence[str], k: int, allowed: Allowed | None = None) -> tuple[Values, Ids]:
        """Return the k best rows, (scores, ids), each [Q, k], by (score, id); NaN and -1 where fewer share a word.

        A score is the share of the question's terms, by their weight, that the row, its table or its document holds.

        Args:
          queries: Q texts.
          k: rows a query.
          allowed: for each query the positions of chunks whose rows it may find; None is all of them.
        """
        scores, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        scopes = [None] * len(queries) if allowed is None else allowed
        for i, (query, scope) in enumerate(zip(queries, scopes, strict=True)):
            found = self.held.records.matches(asked(query), k, self._within(scope)) if self.held is not None else []
            scores[i, : len(found)] = [match.score for match in found]
            ids[i, : len(found)] = [match.row for match in found]
        return scores, ids

    def answer(self, question: str, allowed: NDArray[np.integer] | None = None) -> TableAnswer | None:
        r"""Return what the tables answer; None where none speaks to the question, or its cells do not go together.

        Args:
          question: any text.
          allowed: positions of chunks whose tables may answer; None is all of them.

        Example:
          >>> text = "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |\n| Flood | £500 |"
          >>> index = table_index([Chunk("a#1", text, "a.md")])
          >>> index.answer("By how much is the flood excess higher than the storm excess?").text
          'Excesses - Cause: Storm; Excess: £250 | Cause: Flood; Excess: £500; difference: £250'
        """
        if self.held is None:
            return None
        return answered(self.held._replace(within=self._within(allowed)), asked(question))

    def _within(self, allowed: NDArray[np.integer] | None) -> NDArray[np.integer] | None:
        """Rows of chunks."""
        return None if allowed is None else np.flatnonzero(np.isin(self.parents, allowed))


def table_index(chunks: Sequence[Chunk]) -> TableIndex:
    """Index the tables in the texts of a corpus; an empty index where there is none.

    Args:
      chunks: of the corpus, in its order.
    """
    tables = tables_of(chunks)
    at = tuple((number, row) for number, table in enumerate(tables) for row in range(len(table.rows)))
    if not at:
        return TableIndex((), np.empty(0, np.int64), (), None)
    parents = np.array([tables[number].chunk for number, _ in at], np.int64)
    within = _numbered(parents)
    rows = tuple(
        chunks[parent]._replace(chunk_id=f"{chunks[parent].chunk_id}#row{place}", text=row_text(tables[number], row))
        for parent, place, (number, row) in zip(parents.tolist(), within, at, strict=True)
    )
    held = Held(tables, at, _runs(tables, chunks), records(len(at), _columns(chunks, tables, at)))
    return TableIndex(rows, parents, tables, held)


def _runs(tables: Sequence[Table], chunks: Sequence[Chunk]) -> tuple[range, ...]:
    """For each table the rows of it and of its neighbours in the same document with its name and heads."""
    first = 0
    runs: list[range] = []
    for _, same in groupby(tables, key=lambda table: (chunks[table.chunk].source, table.name, table.columns)):
        sizes = [len(table.rows) for table in same]
        runs += [range(first, first + sum(sizes))] * len(sizes)
        first += sum(sizes)
    return tuple(runs)


def _numbered(parents: Ids) -> list[int]:
    """Number of each row within its chunk, from 1."""
    _, starts, counts = np.unique(parents, return_index=True, return_counts=True)
    return [
        int(place) - start + 1
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
        for place in range(start, start + count)
    ]


def _columns(chunks: Sequence[Chunk], tables: Sequence[Table], at: Sequence[tuple[int, int]]) -> Columns:
    """All that the database holds, row by row."""
    shared = [_shared(table, chunks[table.chunk]) for table in tables]
    postings: dict[str, list[Posting]] = {}
    for row, (number, place) in enumerate(at):
        for term, (weight, own) in _terms(tables[number], place, shared[number]).items():
            postings.setdefault(term, []).append(Posting(row, weight, own))
    cells = [
        (row, column, cell.text, cell.quantity)
        for row, (number, place) in enumerate(at)
        for column, cell in enumerate(tables[number].rows[place])
    ]
    return Columns(postings, cells)


def _shared(table: Table, chunk: Chunk) -> dict[str, int]:
    """Terms that all rows of a table have, with their weight: of its heads and section, its document, and its prose."""
    first, *others = chunk.text.splitlines()
    prose = "\n".join(line for line in others if "|" not in line)
    document = " ".join((*chunk.tags.values(), *chunk.entities, chunk.source, table.name.rpartition(" (")[2]))
    parts = ((prose, _PROSE), (f"{first} {' '.join(table.columns)}", _HEAD), (document, _DOCUMENT))
    found = {term: weight for text, weight in parts for term in terms_of(text)}
    times = sum(time_of(head) is not None for head in table.columns)
    return {**found, CHANGE: WHOLE} if times > 1 else found


def _terms(table: Table, place: int, shared: dict[str, int]) -> dict[str, tuple[int, bool]]:
    """Terms of a row, each with its weight and whether the row's own cells hold it."""
    found: dict[str, tuple[int, bool]] = {term: (weight, False) for term, weight in shared.items()}
    for column, cell in enumerate(table.rows[place]):
        weight = _LABEL if column == table.label else _CELL
        plain = cell.quantity.kind in {"text", "missing", "date"}
        for term in terms_of(cell.text if plain else cell.quantity.note):
            found[term] = (max(weight, found.get(term, (0, True))[0]), True)
    return found
