"""Question parsing (shore): a question as typed fields with confidences, by words alone (S5.1).

Each field's confidence is the chance that a careful reader of the question alone would put down the
same value. What a pack adds are names of fields and roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    meets,
    plain,
    stem,
    stems,
    whole_words,
)
from raglab.live.clarifier import ParsedQuestion, Slot
from raglab.live.requests import language_of
from raglab.values import Chunk
from raglab.words.numerals import dates_in
from raglab.words.packs import GENERIC, Pack
from raglab.words.tokeniser import split_words

PARSER_VERSION = "rules-10"  # to be raised with every change of what is read
# in words of the tables, by its form, one of few, left open
NAMED_CONFIDENCE, IMPLIED_CONFIDENCE, LIKELY_CONFIDENCE, OPEN_CONFIDENCE = 0.95, 0.80, 0.65, 0.30
QUESTION_TASKS = ("cite", "summarise", "extract_conditions")
# in the order in which they are looked for
QUESTION_INTENTS = (*QUESTION_TASKS, "define", "compare", "why", "procedure", "check")
ASKED_KINDS = (
    "address",
    "email",
    "phone",
    "url",
    "percentage",
    "time",
    "duration",
    "date",
    "reference",
    "quantity",
    "amount",
)
VERSION_LISTS = (("newest", "newer"), ("oldest", "older"))
MAX_BARE_WORDS = 5  # words of a question that names a thing and asks nothing
_NUMBERED_KINDS = frozenset({"reference", "phone", "number"})  # kinds of what is called a number
_HOW_LONG = re.compile(r"(?<!\w)(?:how (?:long|soon)|combien de temps)(?!\w)")
_HOW_MUCH = re.compile(r"(?<!\w)(?:how much(?! notice)|combien(?! de))(?!\w)")
_ASKS_WHEN = re.compile(r"(?<!\w)(?:when|quand)(?!\w)")
_DATE_WORD = re.compile(r"(?<!\w)date(?!\w)")
_YEAR_NUMBER = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_CITED_PART = re.compile(
    r"\b((?:section|clause|article|part|module|annexe?|chapter|chapitre|titre|step|etape) "
    r"(?:[a-z]?\d+(?:\.\d+){0,4}|[a-h]\b|[ivx]+\b))"
)


def parse_question(
    question: str, documents: Sequence[Chunk] = (), /, *, pack: Pack = GENERIC
) -> ParsedQuestion:
    """A question as typed fields; what it says nothing of is empty, with confidence 0.

    Args:
      question: text of the question, English or French.
      documents: passages of the documents that it is asked of.
      pack: names of fields and roles.

    Source: rule S5.1.

    Example:
      >>> parsed = parse_question("How much is the pet deposit?")
      >>> parsed.target_field.value, parsed.intent.value
      ('pet deposit', 'lookup')
    """
    plain_text = plain(question)
    document_types = {chunk.tags.get("doc_type", "") for chunk in documents} - {""}
    return ParsedQuestion(
        question=question,
        entity=_entity(plain_text, pack),
        intent=_intent(plain_text),
        target_field=_field(plain_text, pack),
        page_scope=_page(plain_text),
        date_scope=_date(plain_text),
        doctype=Slot(document_types.pop(), NAMED_CONFIDENCE)
        if len(document_types) == 1
        else Slot(),
        language=language_of(question, pack),
    )


def _entity(plain_text: str, pack: Pack) -> Slot:
    """A role that is named, by the pack or by the words for people."""
    for name, role in pack.roles.items():
        if whole_words(role.asked).search(plain_text):
            return Slot(name, NAMED_CONFIDENCE)
    people_match = expression("people").search(plain_text)
    return Slot(people_match[0], IMPLIED_CONFIDENCE) if people_match else Slot()


def _intent(plain_text: str) -> Slot:
    """What is to be done; open where a thing is named and nothing asked."""
    for name in QUESTION_INTENTS:
        intent_match = expression(name).search(plain_text)
        # A verb asks whether only where the question begins with it.
        if intent_match and (name != "check" or intent_match.start() == 0):
            return Slot(
                name,
                NAMED_CONFIDENCE if name in QUESTION_TASKS else IMPLIED_CONFIDENCE,
            )
    is_open = is_bare(plain_text) or expression("about").search(plain_text) is not None
    return Slot("cite", OPEN_CONFIDENCE) if is_open else Slot("lookup", LIKELY_CONFIDENCE)


def is_bare(text: str, *, cited: bool = False) -> bool:
    """Whether a question in plain letters names a thing and asks nothing.

    `the warranty section`, `deposit?`.

    Args:
      cited: whether what names a part by its number counts too, `section 3, deposits`.
    """
    return (
        len(split_words(_CITED_PART.sub(" ", text))) <= MAX_BARE_WORDS
        and expression("asking").search(text) is None
        and (cited or _CITED_PART.search(text) is None)
    )


def _field(plain_text: str, pack: Pack) -> Slot:
    """A field of the pack, else the words of the topic."""
    for name, field_expressions in pack.asked.items():
        if whole_words(field_expressions).search(plain_text):
            return Slot(name, NAMED_CONFIDENCE)
    topic_text = " ".join(topic_words(plain_text))
    return Slot(topic_text, LIKELY_CONFIDENCE) if topic_text else Slot()


def _page(plain_text: str) -> Slot:
    """A page, the contents or the whole, or a part by its number."""
    page_match = expression("page_named").search(plain_text)
    if page_match:
        return Slot(
            next(page_text for page_text in page_match.groups() if page_text), NAMED_CONFIDENCE
        )
    for name, scope_value in (
        ("contents", "toc"),
        ("whole_named", "document"),
        ("last_page", "last"),
        ("cover", "1"),
    ):
        scope_match = expression(name).search(plain_text)
        # `cover` and `index` mean something else in many trades: a page is called one.
        if scope_match and (name != "cover" or expression("page").search(scope_match[0])):
            return Slot(scope_value, NAMED_CONFIDENCE)
    part_match = _CITED_PART.search(plain_text)
    return Slot(part_match[1], NAMED_CONFIDENCE) if part_match else Slot()


def _date(plain_text: str) -> Slot:
    """A day, a year, or the newer or older of several versions."""
    named_day = next((found_date for found_date in dates_in(plain_text) if found_date.month), None)
    if named_day:
        return Slot(
            f"{named_day.year}-{named_day.month:02d}"
            + (f"-{named_day.day:02d}" if named_day.day else ""),
            NAMED_CONFIDENCE,
        )
    year_match = _YEAR_NUMBER.search(plain_text)
    if year_match:
        return Slot(year_match[1], NAMED_CONFIDENCE)
    named_versions = [
        version_name
        for version_name, list_name in VERSION_LISTS
        if expression(list_name).search(plain_text)
    ]
    return Slot(named_versions[0], IMPLIED_CONFIDENCE) if len(named_versions) == 1 else Slot()


@lru_cache(maxsize=1)
def _form_words() -> frozenset[str]:
    """Words that say nothing about the subject of a question."""
    list_entries = (*entries("filler"), *entries("holders"), *entries("polite"), *entries("asking"))
    return frozenset(
        entry_word
        for entry in list_entries
        if re.fullmatch(r"[\w' -]+", entry)
        for entry_word in split_words(entry)
    )


def topic_words(text: str) -> tuple[str, ...]:
    """Words of a question in plain letters that say what it is about, in order.

    Example:
      >>> topic_words("what is the excess for storm damage?")
      ('excess', 'storm', 'damage')
    """
    # `notice` names a paper or a time: where the question asks for the time by it, it is what is
    # asked about.
    form_words = _form_words() - {
        duration_match[0].split()[0] for duration_match in expression("duration").finditer(text)
    }
    for name in ("email", "url", "phrases"):  # `mail address` says a kind in two words
        text = expression(name).sub(" ", text)
    content_words = (
        question_word
        for question_word in split_words(text)
        if stems(question_word)
        and not {question_word, question_word.removesuffix("s")} & form_words
        and not question_word.isdigit()
    )
    return tuple(dict.fromkeys(content_words))


def is_kind_word(word: str) -> bool:
    """Whether a word says what kind of value is meant more than what it is of.

    `limit`, `price`, `period`.
    """
    return (
        any(expression(value_kind).fullmatch(word) for value_kind in ASKED_KINDS)
        or wanted_units(word) != ()
    )


def wanted_units(text: str) -> tuple[str, ...]:
    """Units of the measure that a question in plain letters asks for; () where it asks for none.

    Example:
      >>> wanted_units("how heavy is it?"), wanted_units("what is the price?")
      (('kg', 'g', 'lb'), ())
    """
    return next(
        (
            measure_units
            for name, measure_units in _UNITS_BY_MEASURE.items()
            if expression(name).search(text)
            and not (name == "age" and expression("amount").search(text))
        ),
        (),
    )


_UNITS_BY_MEASURE = {  # of each measure, as values print them
    "degrees": ("°", "degree", "degré"),
    "watts": ("W",),
    "weight": ("kg", "g", "lb"),
    "age": ("year", "yr", "ans"),
    "decibels": ("dB",),
}


def wanted_kinds(text: str) -> frozenset[str]:
    """Kinds of value that a question in plain letters asks for; none where it does not say.

    Example:
      >>> (
      ...     sorted(wanted_kinds("how long is the notice period?")),
      ...     sorted(wanted_kinds("who is the landlord?")),
      ... )
      (['duration'], ['name'])
    """
    if wanted_units(text):
        is_age = expression("age").search(text) is not None
        return frozenset({"quantity", "duration"} if is_age else {"quantity"})
    if _HOW_LONG.search(text):  # `how long are phone calls kept` names a phone and asks for a time
        return frozenset({"duration"})
    asked_kinds = {value_kind for value_kind in ASKED_KINDS if expression(value_kind).search(text)}
    asked_kinds -= {"time"} if "amount" in asked_kinds else set()  # `the fee to close an account`
    if expression("numbered").search(text) and "phone" not in asked_kinds:
        return _NUMBERED_KINDS  # a number, be it the deposit's, is no sum
    text_without_when = _ASKS_WHEN.sub(" ", text)
    if "date" in asked_kinds and expression("date").search(text_without_when) is None:
        return frozenset({"date", "time", "duration"})
    if {"date", "duration"} <= asked_kinds:
        asked_kinds = {
            "date" if text_without_when != text or _DATE_WORD.search(text) else "duration"
        }
    is_who = expression("who").search(text) is not None
    if expression("contact").search(text) and asked_kinds.isdisjoint({"phone", "email", "amount"}):
        asked_kinds |= {"name"} if is_who else {"phone", "email"}
    elif is_who:
        asked_kinds = {"name"}
    if len(asked_kinds) > 1 and _HOW_MUCH.search(text) is None:
        asked_kinds -= {"amount"}
    if not asked_kinds and expression("count").search(text):
        asked_kinds = {"quantity", "number", "duration"}
    return frozenset(asked_kinds | ({"percentage"} if "amount" in asked_kinds else set()))


def shared_topic(words: Iterable[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Words of a topic that every one of some texts has."""
    stems_by_text = [frozenset(stems(text)) for text in texts]
    return tuple(
        topic_word
        for topic_word in words
        if all(
            any(meets(stem(topic_word), text_stem) for text_stem in text_stems)
            for text_stems in stems_by_text
        )
    )
