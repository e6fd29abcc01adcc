"""Reading of fields and tables of contents (shore): the public doors, with a pack by value, name or path."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path

from raglab.extensions.clarification.contents import Entry, contents
from raglab.extensions.clarification.fields import Extraction, extract
from raglab.live.clarifier import FieldReader
from raglab.packs import GENERIC, Pack
from raglab.store.policies import load_pack
from raglab.values import Chunk


def read_field(
    name: str,
    chunks: Sequence[Chunk],
    *,
    about: str = "",
    pack: Pack | str | Path | None = None,
    reader: FieldReader | None = None,
) -> Extraction:
    """Value of a field, whole and with the sentence that states it; a value of None where none can be told.

    Args:
      name: a field of the pack. chunks: of the pages to read, best first. about: words of the question, which tell
        several values apart. pack: a pack, or the name or path of one; None is the generic pack. reader: reads instead
        of the pack's rules.

    Raises:
      ValueError: the pack has no such field, or no rule for it.

    Source: rule S5.10.

    Example:
      >>> read_field("phone", [Chunk("a#1", "To reserve, call 0800 123 4567.", "a.md", 1)]).value
      '0800 123 4567'
    """
    trade = _pack(pack)
    if reader is None:
        _check_field(name, trade.readings, trade)
        return extract(name, chunks, about=about, pack=trade)
    _check_field(name, trade.fields, trade)
    return reader.read(name, chunks, about=about, pack=trade)


def read_contents(chunks: Sequence[Chunk], *, pack: Pack | str | Path | None = None) -> tuple[Entry, ...]:
    r"""Entries of a document's table of contents: title, printed label, page; none where it prints none.

    Args:
      chunks: of one document, in its order. pack: a pack, or the name or path of one; None is the generic pack.

    Raises:
      ValueError: chunks of several documents.

    Source: rule S5.10.

    Example:
      >>> text = "Contents\nLeave ........ 1\nNotice ....... 1\nTravel ....... 2"
      >>> [entry.title for entry in read_contents([Chunk("a#1", text, "a.md", 1), Chunk("a#2", "Travel", "a.md", 2)])]
      ['Leave', 'Notice', 'Travel']
    """
    return contents(chunks, pack=_pack(pack))


def _pack(pack: Pack | str | Path | None) -> Pack:
    return GENERIC if pack is None else pack if isinstance(pack, Pack) else load_pack(pack)


def _check_field(name: str, known: Collection[str], pack: Pack) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    msg = f"a field must be one of the pack {pack.name}, got {name!r}.{meant} Name one of {', '.join(sorted(known))}."
    raise ValueError(msg)
