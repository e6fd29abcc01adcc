"""Documents (shore): plain text and CSV as blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from raglab.store.blocks import Block, DocumentBlocks
from raglab.store.chunking import plain_paragraphs
from raglab.store.csv_tables import csv_records
from raglab.store.markdown import Page


def count_words(text: str) -> int:
    """Number of words: runs without white space that hold a letter or a digit.

    Example:
      >>> count_words("| Wind | 1,000 |")
      2
    """
    return sum(any(map(str.isalnum, run)) for run in text.split())


def text_blocks(pages: Iterable[Page]) -> tuple[Block, ...]:
    """Plain text as blocks: the paragraphs of each page."""
    texts = ((page, text) for page in pages for text in plain_paragraphs(page.text))
    return tuple(Block("text", text, 0, page.number, page.label) for page, text in texts)


MAX_ROWS = 25


def csv_blocks(text: str, path: Path) -> DocumentBlocks:
    r"""Tables of at most 25 rows each below the file's name; the n-th table is page n.

    The first record holds the heads, which each table repeats. How the table is read:
    `raglab.store.csv_tables`. A line break inside a cell becomes a blank.

    Args:
      text: of the file.
      path: names the table, and the file in messages.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no
        row.

    Example:
      >>> csv_blocks("cause;excess\nstorm;1,50\n", Path("home_excesses.csv")).blocks[0].text
      '| cause | excess |\n|---|---|\n| storm | 1,50 |'
    """
    heads, *rows = csv_records(text, path)
    name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    parts = [
        [cells for _, cells in rows[start : start + MAX_ROWS]]
        for start in range(0, len(rows), MAX_ROWS)
    ]
    return DocumentBlocks(
        name,
        tuple(table_block(heads.cells, part)._replace(page=n) for n, part in enumerate(parts, 1)),
    )


def table_block(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    """A table as one block, which is cut between rows where it is too long for a chunk."""
    return Block(
        "table", "\n".join((_table_line(head), f"|{'---|' * len(head)}", *map(_table_line, rows)))
    )


def _table_line(cells: Sequence[str]) -> str:
    joined = " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells)
    return f"| {joined} |"
