"""A generator that answers from tables where one speaks to the question, and lets another answer where none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from raglab.lab.answers import Generator
from raglab.retrieval.table import TableIndex
from raglab.values import Chunk, Generation


@dataclass(frozen=True, slots=True)
class TableFirst:
    """Rows of tables first: the answer is what the query over the typed records returns, cited by its rows.

    It speaks only where rows were chosen, of their tables alone, and where all that the answer rests on is among the
    passages, as a row or as the chunk it stands in: an answer never rests on what retrieval did not choose.

    otherwise: answers the rest. row_of: number of a row by its chunk id. ids: chunk id of each row's chunk.
    """

    otherwise: Generator
    tables: TableIndex = field(repr=False)
    row_of: Mapping[str, int] = field(repr=False)
    ids: Sequence[str] = field(repr=False)

    @classmethod
    def over(cls, otherwise: Generator, tables: TableIndex, chunks: Sequence[Chunk]) -> Self:
        """Generator over the tables of a corpus; chunks: of the corpus in order."""
        row_of = {row.chunk_id: number for number, row in enumerate(tables.rows)}
        return cls(otherwise, tables, row_of, [chunks[parent].chunk_id for parent in tables.parents.tolist()])

    @property
    def name(self) -> str:
        """Stable identifier."""
        return f"table+{self.otherwise.name}"

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the rows among the passages, else from the passages' text."""
        place = {passage.chunk_id: number for number, passage in enumerate(passages)}
        chosen = [self.row_of[passage.chunk_id] for passage in passages if passage.chunk_id in self.row_of]
        found = self.tables.answer(question, np.unique(self.tables.parents[chosen])) if chosen else None
        if found is None:
            return self.otherwise.answer(question, passages)
        cited = [place.get(self.tables.rows[row].chunk_id, place.get(self.ids[row])) for row in found.rows]
        known = [number for number in cited if number is not None]
        if not known or len(known) < len(cited):
            return self.otherwise.answer(question, passages)
        return Generation(found.text, found.score, tuple(dict.fromkeys(known)))
