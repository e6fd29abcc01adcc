"""Blocks of documents (shore): headings, text, list items, tables, code, as each reader gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

BlockKind = Literal["heading", "text", "item", "table", "code"]
# What would be read as another kind of block at the beginning of a line.
_MARKED_KIND = re.compile(r"[ \t]*(?:#{1,6}(?:\s|$)|```|~~~|\|)")


class Block(NamedTuple):
    """One block of a document.

    kind: what it is. text: its words, '' of a heading that ends those of its level and below; of an
    item with its mark (`- ` or `1. `,
      indented two blanks a level); of a table as Markdown with outer bars, its head first where it
      has one; of code with its fence.
    level: of a heading 1 to 6, of an item its depth from 1, else 0.
    page: position of its page from 1.
    label: of the page as printed, or None.
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int = 1
    label: str | None = None


class DocumentBlocks(NamedTuple):
    """A document: its title or '', its blocks, and the tags and entities that it states itself.

    notes: what of it is left out, or is read by a guess, for a warning.
    """

    title: str
    blocks: tuple[Block, ...]
    tags: Mapping[str, str] = MappingProxyType({})
    entities: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Page(NamedTuple):
    """One page of a document: number from 1, label as printed, text."""

    number: int
    label: str | None
    text: str


def count_words(text: str) -> int:
    """Number of words: runs without white space that hold a letter or a digit.

    Example:
      >>> count_words("| Wind | 1,000 |")
      2
    """
    return sum(any(map(str.isalnum, character_run)) for character_run in text.split())


def plain_paragraphs(text: str) -> list[str]:
    r"""Paragraphs of a plain text, parted by blank lines.

    Example:
      >>> plain_paragraphs("One.\nStill one.\n\n  Two.\n")
      ['One.\nStill one.', '  Two.']
    """
    return [
        paragraph.strip("\n").rstrip()
        for paragraph in re.split(r"\n(?:[ \t]*\n)+", text)
        if paragraph.strip()
    ]


def text_blocks(pages: Iterable[Page]) -> tuple[Block, ...]:
    """Plain text as blocks: the paragraphs of each page, its line ends as one line feed."""
    return tuple(
        Block("text", paragraph, 0, page.number, page.label)
        for page in pages
        for paragraph in plain_paragraphs(page.text.replace("\r\n", "\n").replace("\r", "\n"))
    )


def table_block(head_cells: Sequence[str], table_rows: Sequence[Sequence[str]]) -> Block:
    """A table as one block, which is cut between rows where it is too long for a chunk."""
    escaped_rows = (
        [" ".join(text.replace("|", r"\|").split()) for text in table_row]
        for table_row in (head_cells, *table_rows)
    )
    head_line, *row_lines = (f"| {' | '.join(table_row)} |" for table_row in escaped_rows)
    return Block("table", "\n".join([head_line, f"|{'---|' * len(head_cells)}", *row_lines]))


def escaped(text: str) -> str:
    r"""Text with a backslash before what would begin another kind of block.

    Example:
      >>> print(escaped("# not a heading"))
      \# not a heading
    """
    return "\n".join(
        f"\\{line.lstrip()}" if _MARKED_KIND.match(line) else line for line in text.split("\n")
    )


def fenced(code_text: str, language: str = "") -> str:
    """Code between fences that are longer than any in it."""
    backtick_runs = re.findall(r"^[ \t]*(`{3,})", code_text, re.MULTILINE)
    fence = max(["``", *backtick_runs], key=len) + "`"
    return f"{fence}{language}\n{code_text}\n{fence}"
