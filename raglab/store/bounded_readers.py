"""Bounded readers (shore): documents whose libraries a hostile file could stall, read in limits.

What is small is read at once. What is large, or built so that a parser could take long over it, is
read by a process of its own that is ended at its limits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from raglab.arguments.user_warnings import warn_user
from raglab.store.blocks import Block, BlockKind, DocumentBlocks
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.html import html_document, is_light_html
from raglab.store.markdown import (
    LIGHT_CHARACTERS,
    Page,
    is_light_markdown,
    markdown_blocks,
    page_blocks,
)
from raglab.store.notebooks import notebook_blocks
from raglab.store.office import docx_blocks, is_light_archive, xlsx_blocks
from raglab.store.rst import rst_blocks
from raglab.store.workers import worker_answer
from raglab.words.characters import is_unicode

_MIB = 2**20
LIGHT_RST = 10_000  # bytes
_KINDS = get_args(BlockKind)


class ReadingLimits(NamedTuple):
    """What one document may cost at most.

    seconds: of computing for each MiB that the file has, the last one begun counts whole.
    characters: of its text. memory_bytes: of the process that reads it.
    """

    seconds: float = 8.0
    characters: int = 64 * _MIB
    memory_bytes: int = 2**31


class BoundedReader(NamedTuple):
    """Reader of a format, and whether a file is small and plain enough to be read at once.

    Both take the content, of a format in text as UTF-8.
    """

    read: Callable[[bytes, str], DocumentBlocks]
    is_light: Callable[[bytes], bool]


def _html_blocks(raw: bytes, file: str) -> DocumentBlocks:
    page = html_document(raw.decode(), file)
    tags = {
        name: value for name, value in (("title", page.title), ("lang", page.language)) if value
    }
    return DocumentBlocks(page.title, page.blocks, tags)


def _is_light_rst(raw: bytes) -> bool:
    """Whether docutils reads a text in no time.

    Its references take a square of it, and substitutions any power.
    """
    return len(raw) <= LIGHT_RST and b"|" not in raw


READERS: dict[str, BoundedReader] = {
    "Markdown": BoundedReader(
        lambda raw, file: markdown_blocks(raw.decode(), file),
        lambda raw: is_light_markdown(raw.decode()),
    ),
    "Markdown page": BoundedReader(
        lambda raw, file: DocumentBlocks(
            "", page_blocks([Page(1, None, raw.decode())], file, None)
        ),
        lambda raw: is_light_markdown(raw.decode()),
    ),
    "HTML": BoundedReader(_html_blocks, lambda raw: is_light_html(raw.decode())),
    "reStructuredText": BoundedReader(
        lambda raw, file: rst_blocks(raw.decode(), file), _is_light_rst
    ),
    "notebook": BoundedReader(notebook_blocks, lambda raw: len(raw) <= LIGHT_CHARACTERS),
    "Word": BoundedReader(docx_blocks, is_light_archive),
    "Excel": BoundedReader(xlsx_blocks, is_light_archive),
}


def bounded_blocks(
    reader: str, raw: bytes, file: str, limits: ReadingLimits | None = None
) -> DocumentBlocks:
    """Blocks of a document, read within limits.

    Args:
      reader: a key of `READERS`.
      raw: content of the file, of a format in text as UTF-8.
      file: for messages.
      limits: None for the default ones.

    Raises:
      InputError: the document breaks a rule, or passes a limit.
    """
    read, is_light = READERS[reader]
    if is_light(raw):
        return read(raw, file)
    limits = ReadingLimits() if limits is None else limits
    allowed = limits._replace(seconds=limits.seconds * max(1, math.ceil(len(raw) / _MIB)))
    answer = worker_answer(raw, {**allowed._asdict(), "reader": reader, "file": file})
    where = Where(file)
    match answer:
        case {"refused": str(message)}:
            raise InputError(message)
        case {"limit": str(limit)}:
            rules = {
                "seconds": f"a document must be read within {limits.seconds:g} s for each MiB",
                "characters": f"a document's text must be at most {limits.characters} characters",
                "memory_bytes": (
                    f"a document must be read in at most {limits.memory_bytes} bytes of memory"
                ),
            }
            rule = rules.get(limit, "a document must be readable")
            raise input_error(where, rule, "split it, or save it as plain text", "more")
        case {
            "blocks": list(rows),
            "title": str(title),
            "tags": dict(tags),
            "entities": list(entities),
        }:
            blocks = tuple(map(_block, rows))
            texts = (title, *tags, *tags.values(), *entities)
            if None not in blocks and all(
                isinstance(text, str) and is_unicode(text) for text in texts
            ):
                for message in answer.get("warnings", ()):
                    warn_user(str(message))
                return DocumentBlocks(title, tuple(filter(None, blocks)), tags, tuple(entities))
    reason = shown_value(str(answer.get("unreadable", "no answer")))
    raise input_error(
        where, "a document must be readable", "open and save it again, or save it as text", reason
    )


def blocks_record(reader: str, raw: bytes, file: str) -> dict[str, Any]:
    """Blocks of a document as a worker prints them, or the message with which it is refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            document = READERS[reader].read(raw, file)
        except InputError as error:
            return {"refused": str(error)}
    messages = [str(warning.message) for warning in caught if warning.category is UserWarning]
    return {**document._asdict(), "tags": dict(document.tags), "warnings": messages}


def _block(row: object) -> Block | None:
    """Block of a worker's row, which is checked.

    What a document made of the worker is not known.
    """
    match row:
        case [
            str() as kind,
            str() as text,
            int() as level,
            int() as page,
            str() | None as label,
        ] if kind in _KINDS and 0 <= level <= 6 and page > 0 and is_unicode(text + (label or "")):
            return Block(kind, text, level, page, label)  # type: ignore[arg-type]
    return None
