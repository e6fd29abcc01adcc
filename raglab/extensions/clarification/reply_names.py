"""Names in replies (algebra): the reading, page or statement that a reply's words name (S5.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    plain,
    shared_stems,
    stem,
    stems,
    whole_words,
)
from raglab.extensions.clarification.question_parsing import topic_words
from raglab.extensions.clarification.reply_traits import (
    by_heading,
    by_page,
    by_size,
    by_time,
    has,
    heading_stems,
    own_text,
    shown_text,
    statements_beside,
    time_words,
)
from raglab.extensions.clarification.statements import Statement, statements, value_key
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import split_words

PAGE_SCOPE: Final = "page_scope"
CONTENTS, DOCUMENT, LAST_PAGE = "toc", "document", "last"
# that a reply may ask for of a part, beside those on offer
MORE_TASKS: Final = ("procedure", "amounts", "exceptions")
# words of a reply that names by place: `the second one`; letters of a word in which two may be
# swapped
SHORT = 5
NAME_LETTERS = 3  # of a name at least one more
YEAR = 4  # digits of a number that can name a reading by itself
LONG_WORD = 6  # letters of a word in which an edit is mended
ROOT = 4  # letters that two forms of a word share
_ARTICLE = re.compile(r"^(?:(?:the|an?|les?|la|une?|du|de|des)(?!\w) ?|l'|d')")
_ENDINGS = re.compile(r"(?:ations?|ings?|ages?|ed|es|e|s)$")


class Mention(NamedTuple):
    """What a part of a reply names.

    Attributes:
      named: the reply by this part; `not_understood` for several pages, or for a page that does not
        exist.
      rest: words of the part that its name does not account for.
    """

    named: Reply
    rest: tuple[str, ...] = ()


def mention(part: str, request: ReplyRequest) -> Mention | None:
    """The only page or reading that a part of a reply names, None for none or several readings."""
    paged = _pages_named(part, request) if request.kind == PAGE_SCOPE else None
    if paged is not None:
        return paged
    reading = _reading_named(part, request)
    if reading is None:
        return _task_beside(part, request)
    own = plain(own_text(reading, request))
    bounds = tuple(
        words for words in expression("bounding").findall(part) if not _holds(own, words)
    )
    # `under 45 minutes`
    return Mention(Reply("chosen", reading.value), bounds or _rest(part, reading, request))


def _task_beside(part: str, request: ReplyRequest) -> Mention | None:
    """What a part asks for of the text in question that is none of the tasks on offer.

    Its steps, its amounts.
    """
    tasks = [task for task in MORE_TASKS if expression(f"task_{task}").search(part)]
    if request.kind != "intent" or len(tasks) != 1:
        return None
    residue = expression(f"task_{tasks[0]}").sub(" ", bare(part))
    fillers = manners() | chatter()
    rest = (
        _joined_words(residue)
        if is_joined(residue)
        else unknown_words(residue, fillers, asked_stems(request))
    )
    return Mention(Reply("page", tasks[0]), rest)


def _reading_named(part: str, request: ReplyRequest) -> GapReading | None:
    """The only reading that a part names: by its name, place, value, or words that it alone has."""
    readings = request.readings
    sizes = {
        reading: max((len(name) for name in phrases(reading) if _holds(part, name)), default=0)
        for reading in readings
    }
    longest = max(sizes.values(), default=0)
    if longest:
        by_name = [reading for reading, size in sizes.items() if size == longest]
        residue = without_names(part, by_name[0])
        apart = any(
            _holds(residue, name)
            for reading in readings
            if reading != by_name[0]
            for name in phrases(reading)
        )
        return by_name[0] if len(by_name) == 1 and not apart else None
    return (
        by_place(bare(part), request)
        or _by_initials(bare(part), readings)
        or _by_value(part, request)
        or _by_words(part, request)
        or _by_task(part, request)
        or by_time(part, request)
        or by_size(part, request)
        or _by_quote(part, request)
        or by_page(part, request)
        or by_heading(_placing_words(part, request), request)
    )


def _rest(part: str, reading: GapReading, request: ReplyRequest) -> tuple[str, ...]:
    """Content words of a part that a reading does not account for.

    Where the part joins two things, chatter counts.
    """
    if reading in {by_place(bare(part), request), _by_initials(bare(part), request.readings)}:
        return ()
    residue = without_names(bare(part), reading)
    # before and behind its article: `celui du debut`, `l'ancien`
    if by_time(part, request) == reading:
        times = time_words("newer", "older")
        residue = times.sub(" ", without_names(bare(times.sub(" ", part)), reading))
    by_words = _by_value(part, request) or _by_words(part, request)
    # `less` turns a name down
    if by_size(part, request) == reading and residue == bare(part) and by_words is None:
        residue = re.sub(whole_words((*entries("smaller"), *entries("larger"))), " ", residue)
    for value in values_in(residue):
        if {sum_key(value.text), value_key(value.text)} & held_values(reading, request):
            residue = residue.replace(value.text, " ")
    if _by_task(part, request) == reading:
        residue = expression(f"task_{reading.value}").sub(
            " ", expression(reading.value).sub(" ", residue)
        )
    fillers = manners() | chatter() | heads()
    names = asked_stems(request) | frozenset(stems(own_text(reading, request)))
    # `quote the text`
    fillers |= _word_stems(("holders",)) if request.kind == "intent" else frozenset()
    # What is joined to a name, or joins two words of it, is another thing: `the lamp and the strap`
    # of one sentence.
    if is_joined(residue):
        return _joined_words(residue)
    if by_heading(_placing_words(part, request), request) == reading:
        names |= heading_stems(reading, request)
        fillers |= _word_stems(("holders",))
    if by_page(part, request) == reading:
        fillers |= _word_stems(("page_words",)) | frozenset(re.findall(r"\d+", residue))
    foreign_words = words_of_others(reading, request)
    return unknown_words(residue, fillers - foreign_words, names - foreign_words)


def _joined_words(text: str) -> tuple[str, ...]:
    """Words of a text that joins two things, but thanks; where it leaves a choice, all of them."""
    if expression("either").search(text):
        return tuple(tokens(text))
    return tuple(
        word
        for word in tokens(expression("joining").sub(" ", text))
        if word not in entries("thanks")
    )


def words_of_others(reading: GapReading | None, request: ReplyRequest) -> frozenset[str]:
    """Stems in names of readings beside one that are not its own, the question's or the field's."""
    own = asked_stems(request) | frozenset(
        () if reading is None else stems(shown_text(reading, request))
    )
    texts = (shown_text(rival, request) for rival in request.readings if rival != reading)
    return (
        frozenset(word for text in texts for word in stems(text) if not has(own, word)) - manners()
    )


def unknown_words(
    text: str, fillers: frozenset[str], names: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Stems of a text that are no fillers and meet no name: `against` is no form of `again`."""
    words = (
        *stems(text),
        *(word for word in split_words(text) if len(word) == 1 and word not in STOP_WORDS),
    )
    return tuple(sorted(set(words) - fillers - shared_stems(words, names)))


def content_words(text: str, request: ReplyRequest) -> frozenset[str]:
    """Stems of a text beside those of manners, of chatter and of the question."""
    return frozenset(stems(bare(text))) - manners() - chatter() - heads() - asked_stems(request)


def asked_stems(request: ReplyRequest) -> frozenset[str]:
    """Stems of the question and of the field."""
    return frozenset(stems(f"{request.question} {request.field}"))


def is_joined(text: str) -> bool:
    """Whether a text holds a word that joins two things."""
    return (
        expression("joining").search(text) is not None or re.search(r"\s[/&+]\s", text) is not None
    )


def _word_stems(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(
        stem(part) for key in keys for word in entries(key) for part in split_words(word)
    )


@cache
def manners() -> frozenset[str]:
    """Stems of words that say nothing: thanks, yes, no, option."""
    return _word_stems(("polite", "assent", "dissent", "option"))


@cache
def chatter() -> frozenset[str]:
    """Stems of words around a name that say nothing of their own."""
    return _word_stems(("chatter",))


@cache
def heads() -> frozenset[str]:
    """Stems of words that stand for whatever is named: `the weekly rate`."""
    return _word_stems(("heads",))


def tokens(text: str) -> list[str]:
    """Words of a text, in order."""
    return re.findall(r"[\w'-]+", text)


def phrases(reading: GapReading) -> tuple[str, ...]:
    """How a reading is called, in plain letters, without an article."""
    texts = (reading.value, reading.text, reading.value.removesuffix(".md").replace("-", " "))
    plain_texts = (_ARTICLE.sub("", plain(text).strip(" .")) for text in texts if text)
    return tuple(dict.fromkeys(text for text in plain_texts if text))


def held_phrases(text: str, request: ReplyRequest) -> tuple[str, ...]:
    """Names of readings, and other words for tasks that a text holds, the longest first."""
    names = {
        name
        for reading in request.readings
        for name in phrases(reading)
        if len(name) > NAME_LETTERS
    }
    if request.kind == "intent":
        keys = [
            f"task_{task}"
            for task in (*MORE_TASKS, *(reading.value for reading in request.readings))
        ]
        names |= {match[0] for key in keys for match in expression(key).finditer(text)}
    return tuple(sorted(names, key=lambda name: (-len(name), name)))


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def without_names(text: str, reading: GapReading) -> str:
    """A text without the names of a reading."""
    for name in sorted(phrases(reading), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", text)
    return text


def bare(part: str) -> str:
    """A part of a reply without what leads up to its subject."""
    before = None
    residue = part.strip(" .!?\"'")
    while residue != before:
        before, residue = residue, _ARTICLE.sub("", _lead().sub("", residue)).strip()
    return residue


@cache
def _lead() -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join((*entries('lead_in'), *entries('polite')))})(?!\w)[ ,:]*")


# --- a reading by its place, value, words or time


def by_place(text: str, request: ReplyRequest) -> GapReading | None:
    """The reading that is named by its number, or by its place among those on offer."""
    readings = request.readings
    number = re.fullmatch(
        rf"(?:(?:{'|'.join(entries('option'))}) ?)?#?([1-9])(?:\)|\.|st|nd|rd|th|e|er|re|eme)?(?: "
        r"one)?",
        text,
    )
    if number and request.kind != PAGE_SCOPE:
        place = int(number[1]) - 1
        return readings[place] if place < len(readings) else None
    words = tokens(text)
    if request.kind == PAGE_SCOPE or len(words) > SHORT:
        return None
    among = re.search(rf" of (?:the )?{_cardinal(len(readings))}$", text)  # `the last of the three`
    words = tokens(text[: among.start()]) if among else words
    rest = [
        word
        for word in words
        if word not in {*entries("polite"), *entries("option"), *entries("articles"), "of"}
    ]
    # then `the last` is the newest, `the first version` the oldest
    is_dated = request.kind == "date_scope"
    if re.fullmatch(
        "|".join(entry.partition("=")[2] for entry in entries("ordinals")), rest[0] if rest else ""
    ):
        beside = asked_stems(request) if is_dated else heads() | asked_stems(request)
        rest = [rest[0], *(word for word in rest[1:] if stem(word) not in beside)]
    if len(rest) != 1 or (is_dated and rest[0] in entries("last_one")):
        return None
    named = _place_named(
        rest[0], len(readings), is_numbered=bool(expression("option").search(text))
    )
    return None if named is None else readings[named]


def _place_named(word: str, among: int, *, is_numbered: bool) -> int | None:
    """The place that a word names among some.

    `two` names one only as a number, since it may be two of them.
    """
    for key in ("ordinals", "cardinals"):
        own = [entry.split("=") for entry in entries(key)]
        place = next((int(number) - 1 for number, form in own if re.fullmatch(form, word)), -1)
        if 0 <= place < among and (key == "ordinals" or is_numbered):
            return place
    named = dict.fromkeys(entries("last_one"), among - 1)
    if among % 2:
        named |= dict.fromkeys(entries("middle_one"), among // 2)
    pair = entries("former_latter")
    if among == len(pair):
        named |= {name: place for place, name in enumerate(pair)}
    return named.get(word)


@cache
def _cardinal(number: int) -> str:
    """A small number in words, of the first language that has it."""
    forms = (entry.split("=") for entry in entries("cardinals"))
    return next((form for place, form in forms if int(place) == number), "")


def _by_initials(text: str, readings: Sequence[GapReading]) -> GapReading | None:
    """The only reading whose name has a text as the initials of its words, three or more."""
    words = [word for word in tokens(text) if word not in entries("polite")]
    named = [
        reading
        for reading in readings
        if words == ["".join(word[0] for word in stems(reading.value))]
    ]
    return named[0] if len(named) == 1 and len(words[0]) >= NAME_LETTERS else None


def sums_spelled(text: str) -> str:
    """A plain text whose sums and shares have signs in the place of names.

    `25 euros`, `5 per cent`.
    """
    for sign, _, name in (entry.partition("=") for entry in entries("money")):
        text = re.sub(rf"(\d) ?{name}(?!\w)", rf"\1 {sign}", text)
    return text


@lru_cache(maxsize=1 << 12)
def sum_key(value: str) -> str:
    """A value as two are compared where their signs count: `25 %` and `$25` are not £25."""
    text = sums_spelled(plain(value))
    return value_key(text) + "".join(re.findall("[£€$¥%]", text))


def told_values(text: str) -> frozenset[str]:
    """Values that a text prints, but bare numbers.

    Each without its sign too, which a document may leave out.
    """
    values = [value.text for value in values_in(text) if value.kind != "number"]
    return frozenset(key(value) for value in values for key in (sum_key, value_key))


def held_values(reading: GapReading, request: ReplyRequest) -> frozenset[str]:
    """Values that a reading prints, numbers too.

    Its own of a shared row or sentence, of its row in a column asked.
    """
    cells = [fact for fact in statements_beside(reading, request) if fact.head]
    apart = [fact for fact in cells if not shared_stems(asked_stems(request), stems(fact.head))]
    values = frozenset(
        sum_key(value.text) for value in values_in(plain(own_text(reading, request)))
    )
    return values - {sum_key(fact.value) for fact in apart if len(apart) < len(cells)}


def _by_value(part: str, request: ReplyRequest) -> GapReading | None:
    """The only reading that holds a value that a part of a reply prints."""
    printed, by_reading = (
        told_values(part),
        {reading: held_values(reading, request) for reading in request.readings},
    )
    held = [reading for reading, values in by_reading.items() if printed & values]
    if not printed:  # a sum without its sign; one figure alone is a place
        figures = frozenset(re.findall(r"(?<![\w.,])\d{2,}(?![\w.,]\d)", part))
        held = [
            reading
            for reading, values in by_reading.items()
            if figures & {re.sub(r"\D", "", v) for v in values}
        ]
    return held[0] if len(held) == 1 else None


def _by_words(part: str, request: ReplyRequest) -> GapReading | None:
    """The only reading that has the words of a part which tell the readings apart."""
    own = {reading: frozenset(stems(shown_text(reading, request))) for reading in request.readings}
    words = set(stems(expression("because").sub(" ", bare(part)))) - manners()
    numbers = {stem(entry.partition("=")[2]) for entry in entries("cardinals")}
    # a place, or nothing
    if all((word.isdigit() and len(word) != YEAR) or word in numbers for word in words):
        return None
    score = {
        reading: sum(
            1
            for word in words
            if has(own[reading], word) and not all(has(names, word) for names in own.values())
        )
        for reading in request.readings
    }
    best = max(score.values(), default=0)
    named = [reading for reading, number in score.items() if best and number == best]
    return named[0] if len(named) == 1 else None


def _by_quote(part: str, request: ReplyRequest) -> GapReading | None:
    """The only reading whose quote has all that a part says, a name or several words.

    The person, for the role.
    """
    part_words = content_words(part, request)
    held = [
        reading
        for reading in request.readings
        if part_words and part_words <= set(stems(reading.quote))
    ]
    if len(held) != 1:
        return None
    words = [word for word in part_words if not word.isdigit()]
    named = {
        stem(plain(word))
        for word in re.findall(r"(?<=\W)[^\W\d_]\w+", held[0].quote)
        if word[0].isupper()
    }
    return held[0] if len(words) > 1 or named.intersection(words) else None


def _placing_words(part: str, request: ReplyRequest) -> frozenset[str]:
    """Stems of a part that may be those of a heading."""
    return content_words(part, request) - _word_stems(("holders",))


def _by_task(part: str, request: ReplyRequest) -> GapReading | None:
    """Of tasks, the only one that a part asks for in other words: `word for word`."""
    if request.kind != "intent":
        return None
    named = [
        reading
        for reading in request.readings
        if expression(reading.value).search(part)
        or expression(f"task_{reading.value}").search(part)
    ]
    return named[0] if len(named) == 1 else None


# --- pages


def pages_of(chunks: Iterable[Chunk]) -> tuple[int, ...]:
    """Pages of some passages, in order."""
    return tuple(sorted({chunk.page for chunk in chunks if chunk.page is not None}))


def _pages_named(part: str, request: ReplyRequest) -> Mention | None:
    """The only page or scope of pages that a part names; a page must exist."""
    pages, residue = pages_of(request.documents), part
    named: list[int | str | None] = []
    numbered = re.compile(rf"(?<!\w)(?:{'|'.join(entries('page'))}) ?0*(\d{{1,4}})(?!\w)")
    alone = re.fullmatch(r"0*(\d{1,4})", bare(part))
    named += [int(alone[1])] if alone else [int(match[1]) for match in numbered.finditer(part)]
    residue = "" if alone else numbered.sub(" ", residue)
    before = (
        int(request.proposed)
        if request.proposed and request.proposed.isdecimal()
        else next(iter(pages), 0)
    )
    following = next((page for page in pages if page > before), None)
    # The order matters: `the next page` and `the first page` are none of `the document`.
    scopes: tuple[tuple[str, int | str | None], ...] = (
        ("contents", CONTENTS),
        ("last_page", LAST_PAGE),
        ("next_page", following),
        ("cover", next(iter(pages), None)),
    )
    for key, value in scopes:
        if expression(key).search(residue):
            named.append(value)
            residue = expression(key).sub(" ", residue)
    residue = re.sub(whole_words(entries("of_whole")), " ", residue) if named else residue
    if expression("whole").search(residue):
        named.append(DOCUMENT)
        residue = expression("whole").sub(" ", residue)
    if not named:
        return None
    there = {str(value) for value in named if isinstance(value, str) or value in pages}
    if len(there) != 1 or there != {str(value) for value in named}:
        return Mention(Reply("not_understood"))
    (scope,) = there
    fillers = manners() | chatter() | heads() | _word_stems(("page_words",))
    rest = (
        _joined_words(residue)
        if is_joined(residue)
        else unknown_words(bare(residue), fillers, asked_stems(request))
    )
    return Mention(
        Reply(
            "chosen" if scope in {reading.value for reading in request.readings} else "page", scope
        ),
        rest,
    )


# --- values that the documents state elsewhere


def own_value(part: str, request: ReplyRequest) -> Reply | None:
    """A value that the documents state beside those on offer.

    The only statement that a part names.
    """
    text = bare(part)
    words = set(stems(text)) - manners()
    # `9` is the place of none
    if not words or not request.documents or re.fullmatch(r"\d{1,2}", text):
        return None
    kinds = _kinds(request)
    wanted = frozenset(stems(request.field.partition(":")[0]))
    # the field of a pack, which the question names in other words
    if not wanted <= frozenset(stems(request.question)):
        wanted = frozenset(map(stem, topic_words(plain(request.question))))
    wanted -= heads()
    stated = [fact for fact in statements(request.documents) if not kinds or fact.kind in kinds]
    texts = {
        fact: f"{fact.label} {fact.head or fact.table} {fact.heading} {fact.text}"
        for fact in stated
    }
    # of no other field
    stated = [fact for fact in stated if wanted <= shared_stems(wanted, stems(texts[fact]))]
    key_of = value_key if value_key(text) == sum_key(text) else sum_key
    key = key_of(text)
    # label, head, value
    whole = [fact for fact in stated if key in map(key_of, (*fact[:3], fact.name, fact.heading))]
    if not whole:
        own = words - shared_stems(words, asked_stems(request))
        whole = [
            fact
            for fact in stated
            if len(own) > 1 and own == shared_stems(own, stems(f"{fact.label} {fact.head}"))
        ]
    if len({value_key(fact.value) for fact in whole}) != 1:
        return None
    (statement, *_) = whole
    return Reply("own_value", statement.label or statement.value, quote=statement.text)


def _kinds(request: ReplyRequest) -> frozenset[str]:
    """Kinds of value that the readings have.

    None where they have no quotes, so that any will do.
    """
    quoted = {plain(reading.quote) for reading in request.readings if reading.quote}
    known = frozenset(
        fact.kind for fact in statements(request.documents) if plain(fact.text) in quoted
    )
    return known - {"text", "number"}


def own_statement(reply: Reply, chunks: Sequence[Chunk]) -> Statement | None:
    """The statement of an own value in the documents; None where no statement is quoted."""
    plain_quote = plain(reply.quote)
    stated = [fact for fact in statements(chunks) if plain(fact.text) == plain_quote]
    named = [
        fact
        for fact in stated
        if value_key(reply.value)
        in {value_key(fact.label), value_key(fact.value), value_key(fact.name)}
    ]
    return next(iter(named or stated), None)


# --- misspelled words


def mended(text: str, request: ReplyRequest) -> str:
    """A text with each misspelled word set to the only word of the readings one edit away.

    A word that the documents, the question or the word lists know is spelled as it is meant.

    Example:
      >>> readings = (GapReading("Pet deposit"), GapReading("Security deposit"))
      >>> mended(
      ...     "the secuirty one",
      ...     ReplyRequest("What is the deposit?", "field_type", "deposit", readings),
      ... )
      'the security one'
    """
    names = sorted(
        {
            word
            for reading in request.readings
            for word in tokens(plain(f"{reading.value} {reading.text}"))
        }
    )
    names = [word for word in names if len(word) >= SHORT]
    for word in dict.fromkeys(tokens(text)):
        if len(word) < SHORT or not word.isalpha() or word in _listed_words():
            continue
        near = [name for name in names if is_near(word, name)]
        if len(near) == 1 and word not in names and not _is_known(word, request):
            text = re.sub(rf"(?<![\w'-]){word}(?![\w'-])", near[0], text)
    return text


def _is_known(word: str, request: ReplyRequest) -> bool:
    texts = (request.question, request.field, *(reading.quote for reading in request.readings))
    return any(
        word in _words_of(text)
        for text in (*texts, *(chunk.full_text for chunk in request.documents))
    )


@lru_cache(maxsize=1 << 10)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(split_words(plain(text)))


@cache
def _listed_words() -> frozenset[str]:
    """Words of the lists, so that `contact` is no `contract`."""
    keys = (
        "filler",
        "holders",
        "people",
        "chatter",
        "polite",
        "asking",
        "contact",
        "amount",
        "date",
        "duration",
    )
    return frozenset(
        word for key in keys for entry in entries(key) for word in re.findall(r"[a-z]{4,}", entry)
    )


def is_near(word: str, name: str) -> bool:
    """Whether a word is a name with one letter missing, added, changed or swapped.

    Another form of the name counts too.

    The first letter stands, and the last one is not changed: `renter` and `rented` are two words.

    Example:
      >>> is_near("acounts", "accounts"), is_near("renter", "rented"), is_near("storing", "storage")
      (True, False, True)
    """
    roots = _ENDINGS.sub("", word), _ENDINGS.sub("", name)
    if word[:1] != name[:1] or word == name:
        return False
    return (roots[0] == roots[1] and len(roots[0]) >= ROOT) or _is_an_edit_apart(word, name)


def _is_an_edit_apart(word: str, name: str) -> bool:
    """Whether one letter is left out, put in, changed or swapped.

    Short words may only have two swapped.
    """
    short, long = sorted((word, name), key=len)
    at = next(
        (place for place, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]),
        len(short),
    )
    if len(long) == len(short):
        swapped = (
            short[at + 2 :] == long[at + 2 :] and short[at : at + 2] == long[at : at + 2][::-1]
        )
        changed = (
            short[at + 1 :] == long[at + 1 :] and at < len(short) - 1 and len(short) >= LONG_WORD
        )
        return swapped or changed
    return len(long) == len(short) + 1 and len(long) >= LONG_WORD and short[at:] == long[at + 1 :]
