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

VERSION = "rules-10"  # to be raised with every change of what is read
# in words of the tables, by its form, one of few, left open
NAMED, IMPLIED, LIKELY, OPEN = 0.95, 0.80, 0.65, 0.30
TASKS = ("cite", "summarise", "extract_conditions")
# in the order in which they are looked for
INTENTS = (*TASKS, "define", "compare", "why", "procedure", "check")
WANTED = (
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
VERSIONS = (("newest", "newer"), ("oldest", "older"))
BARE = 5  # words of a question that names a thing and asks nothing
_NUMBERED = frozenset({"reference", "phone", "number"})  # kinds of what is called a number
_HOW_LONG = re.compile(r"(?<!\w)(?:how (?:long|soon)|combien de temps)(?!\w)")
_HOW_MUCH = re.compile(r"(?<!\w)(?:how much(?! notice)|combien(?! de))(?!\w)")
_WHEN = re.compile(r"(?<!\w)(?:when|quand)(?!\w)")
_DATE = re.compile(r"(?<!\w)date(?!\w)")
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
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
    text = plain(question)
    doctypes = {chunk.tags.get("doc_type", "") for chunk in documents} - {""}
    return ParsedQuestion(
        question=question,
        entity=_entity(text, pack),
        intent=_intent(text),
        target_field=_field(text, pack),
        page_scope=_page(text),
        date_scope=_date(text),
        doctype=Slot(doctypes.pop(), NAMED) if len(doctypes) == 1 else Slot(),
        language=language_of(question, pack),
    )


def _entity(text: str, pack: Pack) -> Slot:
    """A role that is named, by the pack or by the words for people."""
    for name, role in pack.roles.items():
        if whole_words(role.asked).search(text):
            return Slot(name, NAMED)
    match = expression("people").search(text)
    return Slot(match[0], IMPLIED) if match else Slot()


def _intent(text: str) -> Slot:
    """What is to be done; open where a thing is named and nothing asked."""
    for name in INTENTS:
        match = expression(name).search(text)
        # A verb asks whether only where the question begins with it.
        if match and (name != "check" or match.start() == 0):
            return Slot(name, NAMED if name in TASKS else IMPLIED)
    is_open = is_bare(text) or expression("about").search(text) is not None
    return Slot("cite", OPEN) if is_open else Slot("lookup", LIKELY)


def is_bare(text: str, *, cited: bool = False) -> bool:
    """Whether a question in plain letters names a thing and asks nothing.

    `the warranty section`, `deposit?`.

    Args:
      cited: whether what names a part by its number counts too, `section 3, deposits`.
    """
    return (
        len(split_words(_CITED_PART.sub(" ", text))) <= BARE
        and expression("asking").search(text) is None
        and (cited or _CITED_PART.search(text) is None)
    )


def _field(text: str, pack: Pack) -> Slot:
    """A field of the pack, else the words of the topic."""
    for name, expressions in pack.asked.items():
        if whole_words(expressions).search(text):
            return Slot(name, NAMED)
    topic = " ".join(topic_words(text))
    return Slot(topic, LIKELY) if topic else Slot()


def _page(text: str) -> Slot:
    """A page, the contents or the whole, or a part by its number."""
    page = expression("page_named").search(text)
    if page:
        return Slot(next(group for group in page.groups() if group), NAMED)
    for key, value in (
        ("contents", "toc"),
        ("whole_named", "document"),
        ("last_page", "last"),
        ("cover", "1"),
    ):
        match = expression(key).search(text)
        # `cover` and `index` mean something else in many trades: a page is called one.
        if match and (key != "cover" or expression("page").search(match[0])):
            return Slot(value, NAMED)
    part = _CITED_PART.search(text)
    return Slot(part[1], NAMED) if part else Slot()


def _date(text: str) -> Slot:
    """A day, a year, or the newer or older of several versions."""
    day = next((date for date in dates_in(text) if date.month), None)
    if day:
        return Slot(f"{day.year}-{day.month:02d}" + (f"-{day.day:02d}" if day.day else ""), NAMED)
    year = _YEAR.search(text)
    if year:
        return Slot(year[1], NAMED)
    versions = [version for version, key in VERSIONS if expression(key).search(text)]
    return Slot(versions[0], IMPLIED) if len(versions) == 1 else Slot()


@lru_cache(maxsize=1)
def _form_words() -> frozenset[str]:
    """Words that say nothing about the subject of a question."""
    words = (*entries("filler"), *entries("holders"), *entries("polite"), *entries("asking"))
    return frozenset(
        part for word in words if re.fullmatch(r"[\w' -]+", word) for part in split_words(word)
    )


def topic_words(text: str) -> tuple[str, ...]:
    """Words of a question in plain letters that say what it is about, in order.

    Example:
      >>> topic_words("what is the excess for storm damage?")
      ('excess', 'storm', 'damage')
    """
    # `notice` names a paper or a time: where the question asks for the time by it, it is what is
    # asked about.
    form = _form_words() - {match[0].split()[0] for match in expression("duration").finditer(text)}
    for key in ("email", "url", "phrases"):  # `mail address` says a kind in two words
        text = expression(key).sub(" ", text)
    words = (
        word
        for word in split_words(text)
        if stems(word) and not {word, word.removesuffix("s")} & form and not word.isdigit()
    )
    return tuple(dict.fromkeys(words))


def is_kind_word(word: str) -> bool:
    """Whether a word says what kind of value is meant more than what it is of.

    `limit`, `price`, `period`.
    """
    return any(expression(kind).fullmatch(word) for kind in WANTED) or wanted_units(word) != ()


def wanted_units(text: str) -> tuple[str, ...]:
    """Units of the measure that a question in plain letters asks for; () where it asks for none.

    Example:
      >>> wanted_units("how heavy is it?"), wanted_units("what is the price?")
      (('kg', 'g', 'lb'), ())
    """
    return next(
        (
            units
            for measure, units in _UNITS.items()
            if expression(measure).search(text)
            and not (measure == "age" and expression("amount").search(text))
        ),
        (),
    )


_UNITS = {  # of each measure, as values print them
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
    kinds = {kind for kind in WANTED if expression(kind).search(text)}
    kinds -= {"time"} if "amount" in kinds else set()  # `the fee to close an account`
    if expression("numbered").search(text) and "phone" not in kinds:
        return _NUMBERED  # a number, be it the deposit's, is no sum
    undated = _WHEN.sub(" ", text)
    if "date" in kinds and expression("date").search(undated) is None:
        return frozenset({"date", "time", "duration"})
    if {"date", "duration"} <= kinds:
        kinds = {"date" if undated != text or _DATE.search(text) else "duration"}
    is_who = expression("who").search(text) is not None
    if expression("contact").search(text) and kinds.isdisjoint({"phone", "email", "amount"}):
        kinds |= {"name"} if is_who else {"phone", "email"}
    elif is_who:
        kinds = {"name"}
    if len(kinds) > 1 and _HOW_MUCH.search(text) is None:
        kinds -= {"amount"}
    if not kinds and expression("count").search(text):
        kinds = {"quantity", "number", "duration"}
    return frozenset(kinds | ({"percentage"} if "amount" in kinds else set()))


def shared_topic(words: Iterable[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Words of a topic that every one of some texts has."""
    own = [frozenset(stems(text)) for text in texts]
    return tuple(
        word
        for word in words
        if all(any(meets(stem(word), name) for name in names) for names in own)
    )
