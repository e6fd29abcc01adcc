"""A question read into typed slots, and what it leaves out, by rules to inspect and the corpus's own vocabulary.

Every slot has a confidence: the chance that a careful reader of the question alone would put down the same value. It
comes from what the value rests on, and `experiments/parse.py` states how often each of the levels is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from raglab.answering._applied import Applied, applied
from raglab.answering._asked_scopes import (
    BROAD,
    CHANGE,
    CITED_PART,
    DOCTYPES,
    ENGLISH,
    FRENCH,
    MONTHS,
    NOW,
    PAGE,
    PART,
    RENEWAL,
    ROLES,
    SECTIONS,
    TOC,
    VERB,
    WHOLE,
    WIDE,
)
from raglab.answering._asked_words import FIELDS, INTENTS, PEOPLE
from raglab.answering._asking import asked
from raglab.answering._failures import failures
from raglab.answering._parsed import BY_RULES, KINDS, Failure, ParsedQuestion, Read, Slot
from raglab.answering._phrases import first, found, plain, without
from raglab.answering._vocabulary import Vocabulary, named, nearest, vocabulary_of
from raglab.evidence import words

__all__ = [
    "BY_RULES",
    "KINDS",
    "Applied",
    "Failure",
    "ParsedQuestion",
    "Read",
    "Slot",
    "Vocabulary",
    "applied",
    "asked",
    "asks_for",
    "failures",
    "language_of",
    "parse",
    "vocabulary_of",
]

NAMED = 0.95  # the question names the value in words of the tables
IMPLIED = 0.80  # the form of the question says it
LIKELY = 0.65  # one reading among few
_WHY = (r"why|pourquoi",)
_HOW = (r"how|combien|comment",)
_NAMED_SECTION = (r"(?:the|les|des|under|in|dans) (?:general |your |its )?(exclusions|definitions)",)
_BY_SUBJECT = re.compile(rf"(?:the|la|le|les|l')\s*(?:\w+ ){{0,2}}{PART}|{PART} (?:on|about|for|sur)")
_PARTICULARS = re.compile(r"conditions (?:particulieres|generales)")
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?:[/-]\d{2,4})?(?!\d)")
_DAY = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er)? (?:of )?([a-z]{3,9})\.? ((?:19|20)\d\d)(?!\d)")


def parse(question: str, vocabulary: Vocabulary, *, documents: Sequence[str] = ()) -> ParsedQuestion:
    """A question as typed slots; a slot that it says nothing of is empty, with confidence 0.

    Args:
      question: as it was asked, English or French. vocabulary: of the corpus, see `vocabulary_of`.
      documents: sources that the user named, `file` or `file#page`.

    Source: rule S5.1.

    Example:
      >>> parsed = parse("Qui est l'assureur ?", Vocabulary())
      >>> parsed.target_field, parsed.language
      (Slot(value='insurer_name', confidence=0.95), 'fr')
    """
    return ParsedQuestion(
        entity=_entity(question, vocabulary),
        intent=_intent(question),
        target_field=_target(question, vocabulary),
        page_scope=_page(question, documents),
        date_scope=_date(question),
        doctype=_doctype(question, vocabulary, documents),
        documents=tuple(documents),
        language=language_of(question),
    )


def language_of(question: str) -> Literal["en", "fr"]:
    """French where more of its small words are French than English; English where neither.

    Example:
      >>> language_of("la franchise vol ?"), language_of("storm excess")
      ('fr', 'en')
    """
    spoken = words(plain(question))
    french = sum(word in FRENCH for word in spoken) + 2 * sum(word in {"l", "d", "qu"} for word in spoken)
    english = sum(word in ENGLISH for word in spoken)
    accented = any(char in "éèêàùçôîœ" for char in question)
    return "fr" if french + accented > english else "en"


def asks_for(field: str, question: str) -> bool:
    """Whether a question may be answered by what a field states: not one that asks why, nor of a name how much.

    Example:
      >>> asks_for("premium", "Why did the premium rise?"), asks_for("loss_payee", "Who is the loss payee?")
      (False, True)
    """
    return not found((*_WHY, *(_HOW if field in ("insurer_name", *PEOPLE) else ())), question)


def _entity(question: str, vocabulary: Vocabulary) -> Slot:
    """The product, else the client, else the insurer, else a role."""
    met = named(question, vocabulary.names)
    for kind, confidence in (("product", NAMED), ("client", NAMED), ("vendor", IMPLIED)):
        whose = list(dict.fromkeys(name.name for name in met if name.kind == kind))
        if whose:
            return Slot(whose[0], confidence if len(whose) == 1 else LIKELY)
    role = first(ROLES, question)
    return Slot(role, IMPLIED) if role else Slot()


def _intent(question: str) -> Slot:
    kind = first(INTENTS, question)
    if kind == "summarise" or (kind != "cite" and found(BROAD, question)):
        return Slot("summarise", NAMED)
    if kind in {"cite", "extract_conditions", "compare"}:
        return Slot(kind, NAMED)
    if kind in {"check", "lookup", "procedure"}:
        return Slot("compare" if found(CHANGE, question) and not found(_WHY, question) else kind, IMPLIED)
    if found((PART,), question) and not found(VERB, question):
        return Slot("cite", 1 / 3)  # a part is named and nothing said of what to do with it: cite, summarise or extract
    return Slot("lookup", LIKELY)


def _target(question: str, vocabulary: Vocabulary) -> Slot:
    named_field = first(FIELDS, question)
    if named_field:
        return Slot(named_field, NAMED)
    nameless = without(question, [name.words for name in named(question, vocabulary.names)])  # a name is no field
    near = None if found((*WIDE, *BROAD), question) else nearest(nameless, vocabulary)
    return Slot() if near is None else Slot(near[0].field, near[1])


def _page(question: str, documents: Sequence[str]) -> Slot:
    """A page, the contents or the whole, a part by its number, a page that was pinned, a part by its subject."""
    page = found(PAGE, question)
    if page:
        return Slot(page[1] or ("last" if "last" in page[0] else "1"), NAMED)
    part = found(CITED_PART, question)
    pinned = {document.rpartition("#")[2] for document in documents if "#" in document}
    plainly = (
        "toc" if found(TOC, question) else None,
        "document" if found(WHOLE, question) else None,
        " ".join(part[1].split()) if part else None,
        pinned.pop() if len(pinned) == 1 else None,
    )
    said = next((value for value in plainly if value), None)
    return Slot(said, NAMED) if said else _section(question)


def _section(question: str) -> Slot:
    """A kind of section that is named, or a part by what it deals with."""
    section = found(_NAMED_SECTION, question)
    if section:
        return Slot(section[1], NAMED)
    named_part = _BY_SUBJECT.search(_PARTICULARS.sub("", plain(question)))
    kind = first(SECTIONS, named_part[0]) if named_part else None
    return Slot(kind, IMPLIED) if kind else Slot()


def _date(question: str) -> Slot:
    text = plain(question)
    day = _DAY.search(text)
    if day and day[2] in MONTHS:
        return Slot(f"{day[3]}-{MONTHS[day[2]]:02d}-{int(day[1]):02d}", NAMED)
    version = first(RENEWAL, question)
    if version:
        return Slot(version, NAMED)
    year = _YEAR.search(text)
    if year:
        return Slot(year[1], NAMED)
    return Slot("renewal", IMPLIED) if found(NOW, question) else Slot()


def _doctype(question: str, vocabulary: Vocabulary, documents: Sequence[str]) -> Slot:
    own = dict(vocabulary.doctypes)
    pinned = {own.get(document.partition("#")[0], "") for document in documents}
    if len(pinned) == 1 and (only := pinned.pop()):
        return Slot(only, NAMED)
    kind = first(DOCTYPES, question)
    return Slot(kind, IMPLIED) if kind else Slot()
