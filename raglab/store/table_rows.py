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
_CELL_SEPARATOR = re.compile(r"(?<!\\)\|")
_BLANK_RUN = re.compile(r"\s+")
# the first column with its cell, and the head of another, take at most the room over this
_REPEATED_SHARE = 3
_TOKEN_SLACK = 2  # tokens: counts of some tokenizers do not add up
_SHORT_HEAD_CHARACTERS = 60  # characters of a head that is too long to be repeated


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
            text_by_column = dict(cells) if self.width else {}
            return _line(
                [text_by_column.get(column_index, "") for column_index in range(self.width)]
                or [cell.text for cell in cells]
            )
        row_heads = [
            self.heads[cell.column] if cell.column < len(self.heads) else "" for cell in cells
        ]
        return "\n".join(
            (_line(row_heads), "|" + "---|" * len(cells), _line([cell.text for cell in cells]))
        )


def split_long_rows(block: Block, room: int, count_tokens: Sizes) -> list[Block]:
    r"""A table as several.

    Runs of rows that fit below the whole head, and every other row in pieces.

    A piece is a table of the columns whose words it holds, each below its own head;
    the first cell of the row is repeated in each, unless it is long. A row is parted between
    cells and sentences, else between words, in pieces of about one length. No word is lost: a head
    that is too long to be repeated stands whole before the table. A row without heads keeps the
    places of its cells by empty ones, unless they would fill the chunk.

    Args:
      block: a table.
      room: tokens of a chunk's text.
      count_tokens: tokens of texts.

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
    head_line, *further_lines = block.text.split("\n")
    has_head = bool(further_lines) and TABLE_RULE.fullmatch(further_lines[0].strip()) is not None
    head_text = f"{head_line}\n{further_lines[0]}\n" if has_head else ""
    body_rows = further_lines[1:] if has_head else [head_line, *further_lines]
    full_heads = _cells(head_line) if has_head else ()
    n_columns = max((len(_cells(body_row)) for body_row in body_rows), default=0)
    # as they are repeated, the long ones in part
    short_heads = tuple(
        f"{head_name[:_SHORT_HEAD_CHARACTERS].rstrip()} …"
        if n_tokens > room // _REPEATED_SHARE and len(head_name) > _SHORT_HEAD_CHARACTERS
        else head_name
        for head_name, n_tokens in zip(full_heads, count_tokens(full_heads), strict=True)
    )
    table_form = _TableForm(
        short_heads, n_columns if n_columns <= room // _REPEATED_SHARE else 0, room - _TOKEN_SLACK
    )
    blocks: list[Block] = []
    # A head that takes more than half of a chunk is not repeated whole: each row has what it needs
    # of it.
    head_tokens = count_tokens([head_text])[0] if head_text else 0
    are_fitting = [
        head_tokens <= room // 2 and n_tokens + head_tokens <= room
        for n_tokens in count_tokens(body_rows)
    ]
    unabridged = {
        column_index
        for column_index, head_name in enumerate(short_heads)
        if head_name == full_heads[column_index]
    }
    shown_columns: set[int] = set()
    for is_fitting, row_run in groupby(zip(are_fitting, body_rows, strict=True), key=itemgetter(0)):
        if is_fitting:
            blocks.append(
                block._replace(text=head_text + "\n".join(body_row for _, body_row in row_run))
            )
            shown_columns.update(range(len(full_heads)))
            continue
        for row_part in chain.from_iterable(
            _row_parts(_cells(body_row), table_form, count_tokens) for _, body_row in row_run
        ):
            blocks.append(block._replace(text=table_form.text(row_part)))
            shown_columns |= unabridged & {cell.column for cell in row_part}
    # Heads that stand in no piece, or not whole, and those of columns without a cell.
    unplaced_heads = [
        head_name
        for column_index, head_name in enumerate(full_heads)
        if head_name and column_index not in shown_columns
    ]
    return [
        *([block._replace(kind="text", text="; ".join(unplaced_heads))] if unplaced_heads else []),
        *blocks,
    ]


def _row_parts(
    cell_texts: tuple[str, ...], table_form: _TableForm, count_tokens: Sizes
) -> Iterator[list[_RowCell]]:
    """Cells of the pieces of a row, which fit as far as it can be parted."""
    row_cells = [
        _RowCell(column_index, cell_text)
        for column_index, cell_text in enumerate(cell_texts)
        if cell_text
    ]
    repeats_first = (
        len(row_cells) > 1
        and row_cells[0].column == 0
        and count_tokens([table_form.text(row_cells[:1])])[0] <= table_form.room // _REPEATED_SHARE
    )
    first_cells = row_cells[:1] if repeats_first else []
    waiting_parts = [row_cells[1:] if repeats_first else row_cells]
    while waiting_parts:
        row_part = waiting_parts.pop()
        n_tokens = count_tokens([table_form.text([*first_cells, *row_part])])[0]
        shorter_parts = (
            _parted(row_part, max(2, -(-n_tokens * 5 // (4 * table_form.room))))
            if n_tokens > table_form.room
            else []
        )
        if len(shorter_parts) > 1:
            waiting_parts += reversed(shorter_parts)
        elif row_part:
            yield [*first_cells, *row_part]


def _parted(row_cells: Sequence[_RowCell], n_parts: int) -> list[list[_RowCell]]:
    """Cells in up to so many parts of about one length, in their order."""
    # Places in the words of all cells, one after the other.
    cell_starts = [0, *accumulate(len(cell.text) for cell in row_cells)]
    n_characters = cell_starts.pop()
    cut_candidates = [
        cell_start + sentence_start
        for cell_start, cell in zip(cell_starts, row_cells, strict=True)
        for sentence_start in (0, *(next_cut for _, next_cut in sentence_ends(cell.text)))
    ]
    # Each cut is the beginning of a sentence or cell nearest to its place, unless that is nearer to
    # another cut's.
    half_window = n_characters // (2 * n_parts)
    cut_positions = set()
    for cut_number in range(1, n_parts):
        ideal_cut = cut_number * n_characters // n_parts
        next_candidate = bisect(cut_candidates, ideal_cut)
        cell_index = bisect(cell_starts, ideal_cut) - 1
        near_candidates = [
            cut_candidate
            for cut_candidate in cut_candidates[max(next_candidate - 1, 0) : next_candidate + 1]
            if abs(cut_candidate - ideal_cut) <= half_window
        ]
        word_start = cell_starts[cell_index] + _word_start(
            row_cells[cell_index].text, ideal_cut - cell_starts[cell_index], half_window
        )
        cut_positions.add(
            min(
                near_candidates,
                key=lambda cut_candidate: abs(cut_candidate - ideal_cut),
                default=word_start,
            )
        )
    # A cell in which a cut falls goes on in the next part.
    row_parts: list[list[_RowCell]] = [[]]
    next_cuts = iter([*sorted(cut_positions - {0, n_characters}), n_characters])
    next_cut = next(next_cuts)
    for cell_start, (column_index, cell_text) in zip(cell_starts, row_cells, strict=True):
        n_done = 0
        while cell_start + len(cell_text) > next_cut:
            row_parts[-1] += _stripped(column_index, cell_text[n_done : next_cut - cell_start])
            n_done = next_cut - cell_start
            row_parts.append([])
            next_cut = next(next_cuts)
        row_parts[-1] += _stripped(column_index, cell_text[n_done:])
    return [row_part for row_part in row_parts if row_part]


def _stripped(column_index: int, cell_text: str) -> list[_RowCell]:
    return [_RowCell(column_index, cell_text.strip())] if cell_text.strip() else []


def _word_start(text: str, position: int, half_window: int) -> int:
    """Start of a word near a place of a text, or that place, never between a bar and its escape."""
    window_start = max(position - half_window, 0)
    word_starts = [
        window_start + blank_match.end()
        for blank_match in _BLANK_RUN.finditer(text[window_start : position + half_window])
    ]
    return min(
        word_starts,
        key=lambda word_start: abs(word_start - position),
        default=position - (text[position - 1 : position] == "\\"),
    )


def _cells(row_line: str) -> tuple[str, ...]:
    """Cells of a row as they are written, marks of escape included."""
    bare_line = row_line.strip().removeprefix("|")
    bare_line = (
        bare_line[:-1] if bare_line.endswith("|") and not bare_line.endswith("\\|") else bare_line
    )
    return tuple(cell.strip() for cell in _CELL_SEPARATOR.split(bare_line))


def _line(row_cells: Sequence[str]) -> str:
    return f"| {' | '.join(row_cells)} |"
