"""Field reading (shore): the doors `read_field`, `read_contents`; a field of documents (S5.10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from raglab.extensions.clarification.contents import Entry, contents
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.live.clarifier import FieldReader, FieldValue
from raglab.store.policies import load_pack
from raglab.values import Chunk, refuse
from raglab.words.packs import GENERIC, Pack


def read_field(
    name: str,
    chunks: Sequence[Chunk],
    *,
    pack: Pack | str | Path | None = None,
    reader: FieldReader | None = None,
) -> FieldValue | None:
    """Value of a field with the words that state it; None where none is stated, or several are.

    Args:
      name: a field of the pack, or words by which documents name it.
      chunks: chunks of the pages to read.
      pack: a pack, or the name or path of one; None is the generic pack.
      reader: reads the field in place of the default; its quote must be in the chunks.

    Raises:
      ValueError: an empty name.

    Source: rule S5.10.

    Example:
      >>> read_field("phone", [Chunk("a#1", "Phone: 0800 123 4567", "a.md", 1)])
      FieldValue(value='0800 123 4567', quote='Phone: 0800 123 4567')
    """
    if not name.strip():
        refuse(
            "a field must have a name",
            "an empty text",
            "name a field of the pack, or what documents call it",
        )
    return ProtocolCalls(pack=_pack(pack), field_reader=reader).value(name, chunks)


def read_contents(
    chunks: Sequence[Chunk], *, pack: Pack | str | Path | None = None
) -> tuple[Entry, ...]:
    r"""Entries of a document's table of contents: title, printed label, page.

    None where it prints none.

    Args:
      chunks: chunks of one document, in its order.
      pack: a pack, or the name or path of one; None is the generic pack.

    Raises:
      ValueError: chunks of several documents.

    Source: rule S5.10.

    Example:
      >>> text = "Contents\nLeave ........ 1\nNotice ....... 1\nTravel ....... 2"
      >>> [
      ...     entry.title
      ...     for entry in read_contents(
      ...         [Chunk("a#1", text, "a.md", 1), Chunk("a#2", "Travel", "a.md", 2)]
      ...     )
      ... ]
      ['Leave', 'Notice', 'Travel']
    """
    return contents(chunks, pack=_pack(pack))


def _pack(pack: Pack | str | Path | None) -> Pack:
    return GENERIC if pack is None else pack if isinstance(pack, Pack) else load_pack(pack)
