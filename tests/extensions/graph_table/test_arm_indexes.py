"""What the core searches and asks of the room.

Rows that answer, and where a generator answers instead.
"""

from __future__ import annotations

import pytest

from generators import Fixed
from raglab.extension_points import extensions
from raglab.extensions.graph_table.arm_indexes import GRAPH, TABLE
from raglab.live.response import OwnAnswers
from raglab.retrieval.arms import arm_row, arm_rows, build_arm_indexes, live_arms
from raglab.retrieval.indexes import Bm25Index
from raglab.values import Chunk
from raglab.words.packs import GENERIC

ROWS = Chunk(
    "a.md#1",
    "Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |\n| Flood | £500 |",
    "docs/a.md",
    1,
)
PROSE = Chunk("a.md#2", "Claims are paid in May.", "docs/a.md", 2)
CHUNKS = (PROSE, ROWS)
QUESTION = "By how much is the flood excess higher than the storm excess?"


def first():
    """Rows of the two chunks before a generator."""
    return OwnAnswers("table", TABLE.build(CHUNKS, len(CHUNKS), GENERIC), Fixed())


class TestAnswers:
    """Answers from rows."""

    def test_rows_among_the_passages_answer(self):
        """The difference of two rows rests on both, and cites them."""
        storm, flood = first().index.rows
        answer = first().answer(QUESTION, [PROSE, storm, flood])
        assert "£250" in answer.text
        assert sorted(answer.cited) == [1, 2]

    def test_a_row_that_was_not_chosen_is_not_rested_on(self):
        """Where one of two rows is missing, the generator answers."""
        storm, _ = first().index.rows
        assert first().answer(QUESTION, [storm, PROSE]).text == Fixed().text
        whole = first().answer(QUESTION, [storm, ROWS])
        assert "£250" in whole.text
        assert set(whole.cited) == {0, 1}

    def test_without_rows_the_generator_answers(self):
        """Prose is not the tables' business."""
        assert first().answer("What is the storm excess?", [PROSE]).text == Fixed().text
        assert first().name == "table+fixed"

    def test_a_graph_answers_nothing(self):
        """It finds passages."""
        graph = GRAPH.build(CHUNKS, len(CHUNKS), GENERIC)
        assert (graph.rows, graph.answers, graph.answer(QUESTION, CHUNKS)) == ((), False, None)


class TestSearch:
    """Hits of the arms' own indexes."""

    def test_rows_are_found_as_their_chunks(self):
        """The best row of a chunk is named by its position behind all chunks."""
        (index,) = build_arm_indexes(["table"], CHUNKS, GENERIC).values()
        hits = index.search(
            "flood excess", 3, None, Bm25Index([chunk.full_text for chunk in CHUNKS])
        )
        assert hits.chunk.tolist() == [[1, -1, -1]]
        assert hits.rows is not None
        assert hits.rows[1][0] == len(CHUNKS) + 1
        assert not hits.keeps_order

    def test_two_indexes_with_rows_share_no_position(self):
        """The rows of the second stand behind those of the first."""
        row = arm_row("table")
        assert row is not None
        ahead = row.build(CHUNKS, len(CHUNKS), GENERIC)
        behind = row.build(CHUNKS, len(CHUNKS) + len(ahead.rows), GENERIC)
        bm25 = Bm25Index([chunk.full_text for chunk in CHUNKS])
        places = [index.search("flood", 1, None, bm25).rows for index in (ahead, behind)]
        assert [rows and rows[1][0] for rows in places] == [3, 5]

    @pytest.mark.parametrize("chunks", [CHUNKS, (PROSE,)], ids=["with a table", "without"])
    def test_rows_without_an_index_are_those_of_the_index(self, chunks):
        """A trace that is finished from its parts names the same passages."""
        built = build_arm_indexes(["graph", "table"], chunks, GENERIC)
        assert arm_rows(["hybrid", "graph", "table"], chunks) == built["table"].rows


def test_the_room_registers_its_arms():
    """They are live where the room is installed."""
    assert extensions("arm").keys() == {"graph", "table"}
    assert {"graph", "table"} <= set(live_arms())
