"""The five ways in which a question leaves something out, each with the values that its documents offer (rule S5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from raglab.answering._asked_kinds import KINDS_OF_EXCESS
from raglab.answering._asked_scopes import BROAD, CHANGE, PART, ROLES, SOMEBODY, VAGUE_ROLE, VERB, WIDE
from raglab.answering._asked_words import ON_A_PAGE
from raglab.answering._asking import asked
from raglab.answering._parsed import KINDS, LEAST, Failure, ParsedQuestion
from raglab.answering._phrases import first, found
from raglab.answering._scoped import (
    SPOKEN_OF,
    Scoped,
    changed,
    scoped_to,
    section_kinds,
    several,
    speaking,
    speaks,
    spoken_by,
    versions,
)
from raglab.answering._vocabulary import parties
from raglab.evidence import words
from raglab.values import Chunk

PAGES = ("1", "toc", "document")  # where a field that documents name once may stand
TASKS = ("cite", "summarise", "extract_conditions")
VERSIONS = ("renewal", "old schedule")
MOST = 6  # candidates of a failure
_BARE = 4  # words of a question that names a thing and asks nothing
_SHORT = 12  # words of a question that names a part of a document and hardly more
_ROLE = tuple(expression for expressions in ROLES.values() for expression in expressions)
_OF_ONE_KIND = ("aggregate_limit", "limit_per_occurrence", "cancellation_notice")  # fields that leave nothing to choose
_CHOSEN = ("limit", "excess", "period")  # families of which one document states several figures


def failures(
    parsed: ParsedQuestion,
    question: str,
    chunks: Sequence[Chunk],
    *,
    least: float = LEAST,
    tried: Sequence[str] = (),
) -> tuple[Failure, ...]:
    """What a question leaves out of the documents it is asked of, in the order of `KINDS`; () where nothing is missing.

    At most the first is to be asked.

    Args:
      parsed: the question as it was read. question: as it was asked.
      chunks: of the documents it is asked of. least: confidence below which a slot is missing, in [0, 1].
      tried: values that were tried and gave nothing: no candidates any more.

    Source: rule S5.1; the clarification article, section 1.

    Example:
      >>> from raglab.answering.parse import Vocabulary, parse
      >>> asks = "Who is the insurer?"
      >>> failures(parse(asks, Vocabulary()), asks, [Chunk("a", "The insurer is Acme.", "a.md", 1)])[0].candidates
      ('1', 'toc', 'document')
    """
    if not chunks:
        return ()
    scoped = scoped_to(question, chunks, parsed.said("target_field", least))
    made = (failure for kind in KINDS for failure in _RULES[kind](parsed, question, scoped, least))
    left = (
        failure._replace(candidates=tuple(value for value in failure.candidates if value not in tried)[:MOST])
        for failure in made
    )
    doctype = parsed.said("doctype", least) or "contract"
    last = tried[-1] if tried else None
    return tuple(
        failure._replace(
            question_to_user=asked(
                failure, failure.candidates[0], failed=last, language=parsed.language, doctype=doctype
            )
        )
        for failure in left
        if failure.candidates
    )


def _field_type(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A family is asked for, and the documents state several of it that the question does not tell apart."""
    if parsed.said("intent", least) == "compare" or scoped.family not in _CHOSEN or scoped.field in _OF_ONE_KIND:
        return
    if scoped.about and (scoped.family == "period" or scoped.field == "sum_insured"):
        return
    kinds = several(scoped)
    named = first(KINDS_OF_EXCESS, question) if scoped.family == "excess" else None
    if named in kinds and not scoped.about:
        return
    if len(kinds) > 1:
        key = scoped.field if scoped.field == "sum_insured" else scoped.family
        yield Failure("field_type", key, kinds, "", f"one document states {len(kinds)} kinds of it")


def _implicit_entity(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """Several products are left open, or a word that may mean any of several roles."""
    compared = parsed.said("intent", least) == "compare" or sum(name.kind == "product" for name in scoped.names) > 1
    if len(scoped.products) > 1 and not compared:
        products = speaking(scoped)
        if len(products) > 1:
            key = f"{scoped.field or 'answer'}:product"
            yield Failure(
                "implicit_entity", key, products, "", f"{len(products)} products are in scope and none is named"
            )
            return
    held = {role for role, _, _ in parties(scoped.chunks)}
    roles = tuple(role for role in ROLES if role in held)
    bare = len(words(question)) <= _BARE and not found(VERB, question)
    vague = scoped.field == "policyholder_name" and found(VAGUE_ROLE, question)
    named_insured = found((r"policy ?-?holders?|souscript\w+|preneur",), question)
    asked_for = vague and (bare or not named_insured) and not scoped.about
    somebody = parsed.said("intent", least) == "check" and found(SOMEBODY, question) and not found(_ROLE, question)
    nobody = not any(name.kind == "client" for name in scoped.names)
    if len(roles) > 1 and (asked_for or (somebody and nobody)):
        yield Failure("implicit_entity", "insured:role", roles, "", f"the documents name {len(roles)} roles")


def _date_scope(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """Old and new sums are in scope, both speak of what is asked, and no date tells which applies."""
    dated = parsed.said("date_scope", least) is not None or parsed.said("intent", least) == "compare"
    if dated or found(CHANGE, question) or scoped.field in ON_A_PAGE or found((*WIDE, *BROAD), question):
        return
    old, new = versions(scoped)
    others = [c for c in scoped.chunks if c not in old and c not in new]
    both = min(spoken_by(old, scoped.about), spoken_by(new, scoped.about))
    if (both >= SPOKEN_OF and both >= spoken_by(others, scoped.about)) or changed(scoped):
        key = f"{scoped.family or scoped.field or 'figure'}:date"
        yield Failure("date_scope", key, VERSIONS, "", "an old version and its renewal both speak of it")


def _intent(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A part of a document is named, and nothing said of what to do with it."""
    short = not scoped.field and len(words(question)) <= _SHORT
    if short and parsed.said("intent", least) is None and found((PART,), question) and not found(VERB, question):
        yield Failure("intent", "section:intent", TASKS, "", "a part of the document is named without a task")


def _page_scope(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A field without a page to look on, or a question what is said without what for."""
    if parsed.said("page_scope", least) is not None:
        return
    if scoped.field in ON_A_PAGE and not scoped.about:
        yield Failure("page_scope", scoped.field, PAGES, "", "no page is named")
        return
    if scoped.field and not found(BROAD, question):
        return
    if not found((*WIDE, *BROAD), question):
        return
    passages = [chunk for chunk in scoped.chunks if speaks(chunk, scoped.about) >= SPOKEN_OF]
    if len({(chunk.source, chunk.page) for chunk in passages}) > 1:
        kinds = section_kinds(passages)
        values = (*kinds[: MOST - 1], "document")
        yield Failure("page_scope", "section", values, "", f"{len(passages)} passages speak of it")


Rule = Callable[[ParsedQuestion, str, Scoped, float], Iterator[Failure]]
_RULES: Mapping[str, Rule] = {
    "field_type": _field_type,
    "implicit_entity": _implicit_entity,
    "date_scope": _date_scope,
    "intent": _intent,
    "page_scope": _page_scope,
}
