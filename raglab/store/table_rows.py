"""Long rows of tables (shore): a row no chunk holds continues below its columns' heads.

It goes on in further rows.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import NamedTuple

from raglab.store.blocks import Block
from raglab.words.text import sentence_ends

Sizes = Callable[[Sequence[str]], Sequence[int]]

TABLE_RULE = re.compile(r"\|?[\s:|-]*-[\s:|-]*\|?")
_CELL = re.compile(r"(?<!\\)\|")
_BLANKS = re.compile(r"\s+")
# the first column with its cell, and the head of another, take at most the room over this
_SHARE = 3
_SLACK = 2  # tokens: counts of some tokenizers do not add up
_HEAD = 60  # characters of a head that is too long to be repeated


class _RowCell(NamedTuple):
    """A cell or a part of one, and its column from 0."""

    column: int
    text: str


class _TableForm(NamedTuple):
    """A table's heads or none, its width if empty cells are written, and a chunk's room."""

    heads: tuple[str, ...]
    width: int
    room: int

    def text(self, cells: Sequence[_RowCell]) -> str:
        """A row as a table of its own: the columns that have a cell, below their heads."""
        if not self.heads:
            texts = dict(cells) if self.width else {}
            return _line(
                [texts.get(column, "") for column in range(self.width)]
                or [cell.text for cell in cells]
            )
        heads = [self.heads[cell.column] if cell.column < len(self.heads) else "" for cell in cells]
        return "\n".join(
            (_line(heads), "|" + "---|" * len(cells), _line([cell.text for cell in cells]))
        )


def split_long_rows(block: Block, room: int, sizes: Sizes) -> list[Block]:
    r"""A table as several.

    Runs of rows that fit below the whole head, and every other row in pieces.

    A piece is a table of the columns whose words it holds, so that these stand below their own
    heads; the first cell of the row stands in each, unless it is long. A row is parted between
    cells and sentences, else between words, in pieces of about one length. No word is lost: a head
    that is too long to be repeated stands whole before the table. A row without heads keeps the
    places of its cells by empty ones, unless they would fill the chunk.

    Args:
      block: a table.
      room: tokens of a chunk's text.
      sizes: tokens of texts.

    Example:
      >>> words = lambda texts: [len(text.split()) for text in texts]
      >>> day = "Covered by day and by night, in house and garden."
      >>> row = f"| Storm | {day} Not at sea, nor on any lake or river. |"
      >>> table = Block("table", "| Peril | Text |\n|---|---|\n" + row)
      >>> for piece in split_long_rows(table, 27, words):
      ...     print(piece.text.split("\n")[-1])
      | Storm | Covered by day and by night, in house and garden. |
      | Storm | Not at sea, nor on any lake or river. |
    """
    head, *lines = block.text.split("\n")
    has_head = bool(lines) and TABLE_RULE.fullmatch(lines[0].strip()) is not None
    above = f"{head}\n{lines[0]}\n" if has_head else ""
    rows = lines[1:] if has_head else [head, *lines]
    whole_heads = _cells(head) if has_head else ()
    width = max((len(_cells(row)) for row in rows), default=0)
    # as they are repeated, the long ones in part
    heads = tuple(
        f"{name[:_HEAD].rstrip()} …" if size > room // _SHARE and len(name) > _HEAD else name
        for name, size in zip(whole_heads, sizes(whole_heads), strict=True)
    )
    table = _TableForm(heads, width if width <= room // _SHARE else 0, room - _SLACK)
    blocks: list[Block] = []
    # A head that takes more than half of a chunk is not repeated whole: each row has what it needs
    # of it.
    frame = sizes([above])[0] if above else 0
    places = [frame <= room // 2 and size + frame <= room for size in sizes(rows)]
    unabridged = {column for column, name in enumerate(heads) if name == whole_heads[column]}
    shown: set[int] = set()
    for fits, run in groupby(zip(places, rows, strict=True), key=itemgetter(0)):
        if fits:
            blocks.append(block._replace(text=above + "\n".join(row for _, row in run)))
            shown.update(range(len(whole_heads)))
            continue
        for part in chain.from_iterable(_row_parts(_cells(row), table, sizes) for _, row in run):
            blocks.append(block._replace(text=table.text(part)))
            shown |= unabridged & {cell.column for cell in part}
    # Heads that stand in no piece, or not whole, and those of columns without a cell.
    unplaced = [name for column, name in enumerate(whole_heads) if name and column not in shown]
    return [*([block._replace(kind="text", text="; ".join(unplaced))] if unplaced else []), *blocks]


def _row_parts(texts: tuple[str, ...], table: _TableForm, sizes: Sizes) -> Iterator[list[_RowCell]]:
    """Cells of the pieces of a row, which fit as far as it can be parted."""
    cells = [_RowCell(column, text) for column, text in enumerate(texts) if text]
    repeats = (
        len(cells) > 1
        and cells[0].column == 0
        and sizes([table.text(cells[:1])])[0] <= table.room // _SHARE
    )
    first = cells[:1] if repeats else []
    parts = [cells[1:] if repeats else cells]
    while parts:
        part = parts.pop()
        size = sizes([table.text([*first, *part])])[0]
        shorter = (
            _parted(part, max(2, -(-size * 5 // (4 * table.room)))) if size > table.room else []
        )
        if len(shorter) > 1:
            parts += reversed(shorter)
        elif part:
            yield [*first, *part]


def _parted(cells: Sequence[_RowCell], count: int) -> list[list[_RowCell]]:
    """Cells in up to so many parts of about one length, in their order."""
    # Places in the words of all cells, one after the other.
    starts = [0, *accumulate(len(cell.text) for cell in cells)]
    total = starts.pop()
    marks = [
        start + place
        for start, cell in zip(starts, cells, strict=True)
        for place in (0, *(end for _, end in sentence_ends(cell.text)))
    ]
    # Each cut is the beginning of a sentence or cell nearest to its place, unless that is nearer to
    # another cut's.
    reach = total // (2 * count)
    cuts = set()
    for number in range(1, count):
        at = number * total // count
        after, inside = bisect(marks, at), bisect(starts, at) - 1
        near = [mark for mark in marks[max(after - 1, 0) : after + 1] if abs(mark - at) <= reach]
        word = starts[inside] + _word_start(cells[inside].text, at - starts[inside], reach)
        cuts.add(min(near, key=lambda mark: abs(mark - at), default=word))
    # A cell in which a cut falls goes on in the next part.
    parts: list[list[_RowCell]] = [[]]
    ends = iter([*sorted(cuts - {0, total}), total])
    end = next(ends)
    for start, (column, text) in zip(starts, cells, strict=True):
        done = 0
        while start + len(text) > end:
            parts[-1] += _stripped(column, text[done : end - start])
            done = end - start
            parts.append([])
            end = next(ends)
        parts[-1] += _stripped(column, text[done:])
    return [part for part in parts if part]


def _stripped(column: int, text: str) -> list[_RowCell]:
    return [_RowCell(column, text.strip())] if text.strip() else []


def _word_start(text: str, at: int, reach: int) -> int:
    """Start of a word near a place of a text, or that place, never between a bar and its escape."""
    low = max(at - reach, 0)
    places = [low + match.end() for match in _BLANKS.finditer(text[low : at + reach])]
    return min(places, key=lambda place: abs(place - at), default=at - (text[at - 1 : at] == "\\"))


def _cells(line: str) -> tuple[str, ...]:
    """Cells of a row as they are written, marks of escape included."""
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(cell.strip() for cell in _CELL.split(inner))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
