"""Blocks of documents (shore): headings, text, list items, tables, code, as each reader gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

BlockKind = Literal["heading", "text", "item", "table", "code"]


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
    """A document: its title or '', its blocks, and the tags and entities that it states itself."""

    title: str
    blocks: tuple[Block, ...]
    tags: Mapping[str, str] = MappingProxyType({})
    entities: tuple[str, ...] = ()
