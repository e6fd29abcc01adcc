"""Indexes of the arms `graph` and `table` (shore): search over entities and over rows (S4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.graph_table.entity_graph import EntityGraph, entity_graph
from raglab.extensions.graph_table.tables import (
    ROW_MARK,
    TableIndex,
    table_index,
    table_rows,
)
from raglab.retrieval.arms import ArmRow
from raglab.retrieval.indexes import ArmHits, Bm25Index
from raglab.values import Chunk, Generation
from raglab.words.packs import Pack


@dataclass(frozen=True, slots=True)
class GraphIndex:
    """Chunks near the question's entities, by a walk that starts from the keywords' hits."""

    graph: EntityGraph
    rows: ClassVar[tuple[Chunk, ...]] = ()
    answers: ClassVar[bool] = False

    def search(
        self, query: str, k: int, scope: NDArray[np.integer] | None, bm25: Bm25Index
    ) -> ArmHits:
        """The k chunks that the walk meets most; its order keeps a say after reranking."""
        scores, ids = bm25.search([query], k, [scope])
        hits = self.graph.search(query, k, scope, (scores[0], ids[0]))[1]
        return ArmHits(hits[None], keeps_order=True)

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation | None:  # noqa: ARG002
        """None: a graph finds passages, and answers nothing."""
        return None


@dataclass(frozen=True, slots=True)
class TableRowIndex:
    """Rows of tables as the chunks that they stand in, each by its best row.

    first: position of the first row among all passages. numbers: of the rows by their chunk id.
    """

    tables: TableIndex
    first: int
    numbers: Mapping[str, int] = field(repr=False)
    answers: ClassVar[bool] = True

    @property
    def rows(self) -> tuple[Chunk, ...]:
        """Rows of the tables, one passage each."""
        return self.tables.rows

    def search(
        self,
        query: str,
        k: int,
        scope: NDArray[np.integer] | None,
        bm25: Bm25Index,  # noqa: ARG002
    ) -> ArmHits:
        """The chunks of the k best rows."""
        rows: dict[int, tuple[int, float]] = {}
        for match in self.tables.search(query, k, scope):
            chunk_number = int(self.tables.parents[match.row])
            rows.setdefault(chunk_number, (self.first + match.row, match.score))
        chunk = np.full((1, k), -1, np.int64)
        chunk[0, : len(rows)] = list(rows)
        return ArmHits(chunk, rows)

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation | None:
        """What the query over the typed records returns, cited by its rows.

        It speaks only where rows were chosen, of their tables alone, and where all that the answer
        rests on is among the passages, as a row or as the chunk it stands in: an answer never rests
        on what retrieval did not choose.
        """
        place = {passage.chunk_id: number for number, passage in enumerate(passages)}
        chosen = [self.numbers[name] for name in place if name in self.numbers]
        if not chosen:
            return None
        answer = self.tables.answer(question, np.unique(self.tables.parents[chosen]))
        names = [self.rows[row].chunk_id for row in answer.rows] if answer else []
        cited = [place.get(name, place.get(name.rpartition(ROW_MARK)[0], -1)) for name in names]
        if answer is None or not cited or min(cited) < 0:
            return None
        return Generation(answer.text, answer.score, tuple(dict.fromkeys(cited)))


def table_row_index(chunks: Sequence[Chunk], first: int, pack: Pack) -> TableRowIndex:
    """Index of arm `table` over the chunks of a corpus."""
    tables = table_index(chunks, pack=pack)
    numbers = {row.chunk_id: number for number, row in enumerate(tables.rows)}
    return TableRowIndex(tables, first, numbers)


# a graph adds no passages
GRAPH = ArmRow(
    lambda chunks, first, pack: GraphIndex(entity_graph(chunks)),  # noqa: ARG005
    lambda chunks: (),  # noqa: ARG005
)
TABLE = ArmRow(table_row_index, table_rows)
