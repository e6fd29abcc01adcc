"""The narrower question (shore): what a value makes of a question that left it out (S5.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raglab.answering.contents import contents_pages
from raglab.answering.missing_fields import (
    SPOKEN_OF,
    ScopedQuestion,
    changed_figures,
    document_date,
    scope_question,
    section_kind,
    speaks,
    version_passages,
)
from raglab.answering.question_vocabulary import Failure, ParsedQuestion
from raglab.packs import GENERIC, Pack
from raglab.values import Chunk

_TASKS = {
    "cite": ("Quote", "Citer"),
    "summarise": ("Summarise", "Résumer"),
    "extract_conditions": ("Extract the conditions of", "Extraire les conditions de"),
}


class NarrowedRequest(NamedTuple):
    """A request narrowed by a value.

    question: with the words of the value where the value is no scope. documents: `file` or `file#page`; () where the
    documents have nothing that the value names, which is as good as a field that comes back empty. field: key of the
    extractor's rule, None where no rule reads it.
    """

    question: str
    documents: tuple[str, ...]
    field: str | None


def narrow_request(
    failure: Failure,
    value: str,
    question: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    *,
    pack: Pack = GENERIC,
) -> NarrowedRequest:
    """The request that a value of a failure makes of a question.

    Args:
      failure: what was missing. value: one of its candidates, or what the user named. question: as it was asked.
      parsed: as it was read. chunks: of the documents it was asked of. pack: by which it was read.

    Raises:
      ValueError: the value is empty, or the failure of no known kind.

    Example:
      >>> pages = [Chunk("a#1", "Ring 01632 960 999.", "a.md", 1), Chunk("a#2", "Prices", "a.md", 2)]
      >>> missing = Failure("page_scope", "phone", ("1", "toc", "document"), "", "")
      >>> narrow_request(missing, "1", "What is the phone number?", ParsedQuestion(), pages).documents
      ('a.md#1',)
    """
    if not value.strip() or failure.kind not in _BY_KIND:
        msg = (
            f"a value of a known failure must be given, got {value!r} for {failure.kind!r}; take one of its candidates."
        )
        raise ValueError(msg)
    scoped = scope_question(question, chunks, parsed.said("target_field"), pack)
    return _BY_KIND[failure.kind](failure, value.strip(), question, parsed, scoped)


def _chunk_files(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.file_name for chunk in chunks))


def _chunk_pages(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.shown for chunk in chunks))


def _extraction_field(field: str | None, pack: Pack) -> str | None:
    return field if field in pack.readings else None


def _with_brackets(question: str, words: str) -> str:
    """A question with further words in brackets, before its mark."""
    bare = question.rstrip(" ?.!")
    return f"{bare} ({words}){question[len(bare) :]}"


def _spelled_value(value: str, parsed: ParsedQuestion, pack: Pack) -> str:
    wording = pack.wording[parsed.language]
    return wording.written.get(value) or wording.values.get(value) or value


def _narrow_to_pages(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    del parsed
    field = _extraction_field(failure.target_field, scoped.pack)
    if value == "document":
        return NarrowedRequest(question, _chunk_files(scoped.chunks), field)
    if value == "toc":
        documents = tuple(
            f"{file}#{page}"
            for file in _chunk_files(scoped.chunks)
            for page in contents_pages(
                failure.target_field,
                [c for c in scoped.chunks if c.file_name == file],
                " ".join(scoped.about),
                pack=scoped.pack,
            )
        )
        return NarrowedRequest(question, documents, field)
    if value.isdigit():
        return NarrowedRequest(question, _chunk_pages([c for c in scoped.chunks if c.page == int(value)]), field)
    of_kind = [chunk for chunk in scoped.chunks if section_kind(chunk, scoped.pack) == value]
    speaking = [chunk for chunk in of_kind if speaks(chunk, scoped) >= SPOKEN_OF]
    return NarrowedRequest(question, _chunk_pages(speaking or of_kind), field)


def _narrow_to_field(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    pack = scoped.pack
    family = pack.families.get(failure.target_field)
    reads = {} if family is None else family.reads
    field = value if value in pack.readings else reads.get(value, reads.get("*"))
    return NarrowedRequest(
        _with_brackets(question, _spelled_value(value, parsed, pack)),
        _chunk_files(scoped.chunks),
        _extraction_field(field, pack),
    )


def _narrow_to_date(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    del failure
    pack, older = scoped.pack, scoped.pack.versions.old.value
    old, new = version_passages(scoped)
    field, written = _extraction_field(parsed.said("target_field"), pack), _spelled_value(value, parsed, pack)
    if not old:  # one document states both
        version = "old" if value == older else "new"
        heads = dict.fromkeys(figure.head for figure in changed_figures(scoped) if figure.version == version)
        return NarrowedRequest(_with_brackets(question, next(iter(heads), written)), _chunk_files(scoped.chunks), field)
    stamped = {pack.versions.new.value: new, older: old}.get(value)
    if stamped is None:  # a date or year that the user named
        years = [
            c for c in (*old, *new) if c.tags.get("doc_type") in pack.documents.dated and value[:4] in document_date(c)
        ]
        stamped = tuple(years) or new
    return NarrowedRequest(_with_brackets(question, written), _chunk_files(stamped), field)


def _narrow_to_entity(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    pack = scoped.pack
    if failure.target_field.endswith(":role"):
        field = pack.roles[value].field if value in pack.roles else None
        return NarrowedRequest(
            _with_brackets(question, _spelled_value(value, parsed, pack)),
            _chunk_files(scoped.chunks),
            _extraction_field(field, pack),
        )
    own = [chunk for chunk in scoped.chunks if chunk.tags.get("product", "") == value]
    return NarrowedRequest(
        _with_brackets(question, value), _chunk_files(own), _extraction_field(parsed.said("target_field"), pack)
    )


def _narrow_to_intent(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    del failure
    task = _TASKS.get(value, (value, value))[parsed.language == "fr"]
    return NarrowedRequest(f"{task} {question}", _chunk_files(scoped.chunks), None)


_BY_KIND = {
    "field_type": _narrow_to_field,
    "implicit_entity": _narrow_to_entity,
    "date_scope": _narrow_to_date,
    "intent": _narrow_to_intent,
    "page_scope": _narrow_to_pages,
}
