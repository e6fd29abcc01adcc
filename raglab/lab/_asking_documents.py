"""The corpus-level question, which document: the same loop one layer up, with documents as values (rule S5.10)."""

from __future__ import annotations

from typing import Literal

from raglab.answering.fields import FIELDS, extract
from raglab.answering.parse import Failure, ParsedQuestion
from raglab.lab._asking_request import Clarifier
from raglab.values import Chunk

KIND = "document"
MOST = 6  # documents between which a user is asked to choose
_NAMES = ("product", "vendor", "title")  # tags that name what a document is about


def which(parsed: ParsedQuestion, clarifier: Clarifier, least: float) -> Failure | None:
    """Which of a few documents is meant, where none is named and they state the field differently; else None.

    Documents are those of the doctype and the entity that the question names; where that leaves more than `MOST`, the
    question is too wide for a choice.
    """
    wanted, doctype = parsed.said("target_field", least), parsed.said("doctype", least)
    entity = parsed.said("entity", least)
    if wanted is None or wanted not in FIELDS or entity is None or parsed.said("date_scope", least) is not None:
        return None
    files: dict[str, list[Chunk]] = {}
    for chunk in clarifier.chunks:
        if doctype is None or chunk.tags.get("doc_type") == doctype:
            files.setdefault(chunk.file_name, []).append(chunk)
    meant = {name: chunks for name, chunks in files.items() if _is_about(chunks, entity)}
    if not 1 < len(meant) <= MOST:
        return None
    found = {name: extract(wanted, chunks).value for name, chunks in meant.items()}
    stated = {name: value for name, value in found.items() if value is not None}
    if len(set(stated.values())) < 2:
        return None
    names = tuple(stated)
    reason = f"{len(stated)} documents state it, and not alike"
    said = asked(wanted, names, names[0], parsed.language)
    return Failure(KIND, f"{wanted}:{KIND}", names, said, reason)


def _is_about(chunks: list[Chunk], entity: str) -> bool:
    """Whether a document's tags or entities name an entity."""
    told = {chunks[0].tags.get(name, "") for name in _NAMES} | {name for chunk in chunks for name in chunk.entities}
    return any(entity.casefold() in name.casefold() for name in told)


def asked(field: str, names: tuple[str, ...], proposed: str, language: Literal["en", "fr"]) -> str:
    """The question put to the user."""
    every, what = ", ".join(names), field.removesuffix(f":{KIND}").replace("_", " ")
    if language == "fr":
        return f"Plusieurs documents répondent ({every}). Je vais prendre {proposed}. Est-ce le bon ?"
    return (
        f"Several documents state the {what}, and not alike: {every}. I will take {proposed}. Is that the one you mean?"
    )
