"""Readers of tables and labels take time that grows with a text, not with its square.

See `test_long_texts`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raglab.extensions.graph_table import entity_graph, quantities, table_records
from raglab.values import Chunk
from reading_time import READER_LIMIT, alarm, slow

READERS: dict[str, Callable[[str], object]] = {
    "labels": entity_graph.labels_in,
    "cell": quantities.cell_quantity,
    "quantities": quantities.quantities_in,
    "tables": lambda text: table_records.markdown_tables([Chunk("c", text, "a.md")]),
    "question of tables": table_records.table_question,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_any_long_text_in_no_time(reader):
    """Of every kind."""
    with alarm():
        assert slow(READERS[reader], READER_LIMIT) == {}
