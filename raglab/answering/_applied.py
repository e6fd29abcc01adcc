"""A chosen value put into effect: a narrower request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raglab.answering._asked_scopes import ROLE_OF
from raglab.answering._asking_words import VALUES, WRITTEN
from raglab.answering._parsed import Failure, ParsedQuestion
from raglab.answering._scoped import SPOKEN_OF, SUMS, Scoped, changed, scoped_to, section_kind, speaks, stamp, versions
from raglab.answering.contents import contents_pages
from raglab.answering.fields import FIELDS
from raglab.values import Chunk

_TASKS = {
    "cite": ("Quote", "Citer"),
    "summarise": ("Summarise", "Résumer"),
    "extract_conditions": ("Extract the conditions of", "Extraire les conditions de"),
}


class Applied(NamedTuple):
    """A request narrowed by a value.

    question: with the words of the value where the value is no scope. documents: `file` or `file#page`; () where the
    documents have nothing that the value names, which is as good as a field that comes back empty. field: key of the
    extractor's rule, None where no rule reads it.
    """

    question: str
    documents: tuple[str, ...]
    field: str | None


def applied(failure: Failure, value: str, question: str, parsed: ParsedQuestion, chunks: Sequence[Chunk]) -> Applied:
    """The request that a value of a failure makes of a question.

    Args:
      failure: what was missing. value: one of its candidates, or what the user named. question: as it was asked.
      parsed: as it was read. chunks: of the documents it was asked of.

    Raises:
      ValueError: the value is empty, or the failure of no known kind.

    Example:
      >>> pages = [Chunk("a#1", "The insurer is Acme.", "a.md", 1), Chunk("a#2", "Excesses", "a.md", 2)]
      >>> missing = Failure("page_scope", "insurer_name", ("1", "toc", "document"), "", "")
      >>> applied(missing, "1", "Who is the insurer?", ParsedQuestion(), pages).documents
      ('a.md#1',)
    """
    if not value.strip() or failure.kind not in _BY_KIND:
        msg = (
            f"a value of a known failure must be given, got {value!r} for {failure.kind!r}; take one of its candidates."
        )
        raise ValueError(msg)
    scoped = scoped_to(question, chunks, parsed.said("target_field"))
    return _BY_KIND[failure.kind](failure, value.strip(), question, parsed, scoped)


def _files(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.file_name for chunk in chunks))


def _pages(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.shown for chunk in chunks))


def _rule(field: str | None) -> str | None:
    return field if field in FIELDS else None


def _with(question: str, words: str) -> str:
    """A question with further words in brackets, before its mark."""
    bare = question.rstrip(" ?.!")
    return f"{bare} ({words}){question[len(bare) :]}"


def _written(value: str, parsed: ParsedQuestion) -> str:
    pair = WRITTEN.get(value) or VALUES.get(value)
    return pair[parsed.language == "fr"] if pair else value


def _page_scope(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del parsed
    field = _rule(failure.target_field)
    if value == "document":
        return Applied(question, _files(scoped.chunks), field)
    if value == "toc":
        documents = tuple(
            f"{file}#{page}"
            for file in _files(scoped.chunks)
            for page in contents_pages(
                failure.target_field, [c for c in scoped.chunks if c.file_name == file], " ".join(scoped.about)
            )
        )
        return Applied(question, documents, field)
    if value.isdigit():
        return Applied(question, _pages([c for c in scoped.chunks if c.page == int(value)]), field)
    of_kind = [chunk for chunk in scoped.chunks if section_kind(chunk) == value]
    speaking = [chunk for chunk in of_kind if speaks(chunk, scoped.about) >= SPOKEN_OF]
    return Applied(question, _pages(speaking or of_kind), field)


def _field_type(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    family = {"excess": "deductible", "limit": "sub_limit", "period": "cancellation_notice"}.get(failure.target_field)
    if failure.target_field == "period" and value != "cancellation":
        family = None
    field = value if value in FIELDS else family
    return Applied(_with(question, _written(value, parsed)), _files(scoped.chunks), _rule(field))


def _date_scope(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del failure
    old, new = versions(scoped)
    field = _rule(parsed.said("target_field"))
    if not old:  # one document states both
        heads = dict.fromkeys(
            figure.head for figure in changed(scoped) if figure.version == ("old" if value == "old schedule" else "new")
        )
        return Applied(_with(question, next(iter(heads), _written(value, parsed))), _files(scoped.chunks), field)
    stamped = {"renewal": new, "old schedule": old}.get(value)
    if stamped is None:
        years = [c for c in (*old, *new) if c.tags.get("doc_type") in SUMS and value[:4] in stamp(c)]
        stamped = tuple(years) or new
    return Applied(_with(question, _written(value, parsed)), _files(stamped), field)


def _implicit_entity(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    if failure.target_field.endswith(":role"):
        field = ROLE_OF.get(value)
        return Applied(_with(question, _written(value, parsed)), _files(scoped.chunks), _rule(field))
    own = [chunk for chunk in scoped.chunks if chunk.tags.get("product", "") == value]
    return Applied(_with(question, value), _files(own), _rule(parsed.said("target_field")))


def _intent(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del failure
    task = _TASKS.get(value, (value, value))[parsed.language == "fr"]
    return Applied(f"{task} {question}", _files(scoped.chunks), None)


_BY_KIND = {
    "field_type": _field_type,
    "implicit_entity": _implicit_entity,
    "date_scope": _date_scope,
    "intent": _intent,
    "page_scope": _page_scope,
}
