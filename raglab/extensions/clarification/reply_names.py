"""Names in replies (algebra): the one thing that all words of a reply's part belong to (S5.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final, NamedTuple

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    language_parts,
    meets,
    plain,
    shared_stems,
    stem,
    stems,
)
from raglab.extensions.clarification.question_parsing import topic_words
from raglab.extensions.clarification.reply_traits import (
    by_size,
    by_time,
    own_texts,
    size_words,
    statement_of,
    time_words,
)
from raglab.extensions.clarification.statements import (
    Statement,
    called,
    quoted,
    statements,
    value_key,
)
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import split_words

PAGE_SCOPE: Final = "page_scope"
CONTENTS, DOCUMENT, LAST_PAGE = "toc", "document", "last"
# that a reply may ask for of a part, beside those on offer
MORE_TASKS: Final = ("procedure", "amounts", "exceptions")
NOT_UNDERSTOOD = Reply("not_understood")
NAME_LETTERS = 3  # a name that is looked for as a whole has more
SUREST = 4  # rank of a whole name
SHORT, NEAR = 5, 0.82  # letters of a word that may be misspelled, and how like the name it is
_ARTICLE = re.compile(r"^(?:(?:the|an?|les?|la|une?|du|de|des)(?!\w) ?|l'|d')")
_YEAR = re.compile(r"(?:19|20)\d\d")
MARK = re.compile(r"name(\d+)name")


class ReplyOffer(NamedTuple):
    """What naming something says, with what it is called by.

    Attributes:
      phrases: whole names, in plain letters.
      text: all that is said of it alone, in plain letters.
      ranks: words that tell it from other offers, the surest first: of its name; values, people,
        heading and page; words of its sentence or row, of which it takes two.
      own: all of these.
    """

    reply: Reply
    phrases: tuple[str, ...] = ()
    text: str = ""
    ranks: tuple[frozenset[str], ...] = ()
    own: frozenset[str] = frozenset()


class ReplyOffers(NamedTuple):
    """What was asked, and all that a reply may name.

    Attributes:
      marked: whole names that the reply holds, by the numbers of the marks in their places.
      topic: stems of the question and of the field.
    """

    request: ReplyRequest
    offers: tuple[ReplyOffer, ...]
    marked: tuple[str, ...]
    topic: frozenset[str]


def choice_of(text: str, request: ReplyRequest) -> tuple[str, ReplyOffers]:
    """A plain reply with marks in the place of whole names, and what it may name.

    So that the `not` or the comma of a name is not the reply's. Tasks and pages have many names.
    """
    own = [reading.value for reading in request.readings]
    text = MARK.sub("?", text)  # the user's own is none
    forms: list[tuple[re.Pattern[str], str]] = []
    values: tuple[str, ...] = ()
    if request.kind == "intent":
        values = MORE_TASKS
        tasks = dict.fromkeys((*own, *MORE_TASKS))
        forms = [(expression(key), task) for task in tasks for key in (f"task_{task}", task)]
    elif request.kind == PAGE_SCOPE:
        values = (*map(str, pages_of(request.documents)), CONTENTS, LAST_PAGE, DOCUMENT)
        forms = _page_forms(text, request)
        text = expression("only_cover").sub(entries("opening_no")[0], text)
    beside = (ReplyOffer(Reply("page", value), (value,)) for value in values if value not in own)
    offers = (*(_offer(reading, request) for reading in request.readings), *beside)
    names = {name for offer in offers for name in offer.phrases if len(name) > NAME_LETTERS}
    if request.kind != PAGE_SCOPE:
        longest = sorted(names, key=lambda each: (-len(each), each))
        forms += [(re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), name) for name in longest]
    marked: list[str] = []
    for form, name in forms:
        if (held := form.sub(f" name{len(marked)}name ", text)) != text:
            text = held
            marked.append(name)
    text = re.sub(r" +(?=[,;:.!?])", "", " ".join(text.split()))
    return text, ReplyOffers(request, offers, tuple(marked), asked_stems(request))


def _page_forms(text: str, request: ReplyRequest) -> list[tuple[re.Pattern[str], str]]:
    """How pages and scopes of pages are called; of pages those alone that a reply names."""
    pages, proposed = pages_of(request.documents), request.proposed or ""
    before = int(proposed) if proposed.isdecimal() else next(iter(pages), 0)
    following = next((page for page in pages if page > before), "")
    numbers = {int(number) for number in re.findall(r"\d+", text)}.intersection(pages)
    page, of_whole = "|".join(entries("page")), "|".join(entries("of_whole"))
    # The order matters: `the next page` and `the first page` are none of `the document`.
    return [
        *((re.compile(rf"(?<!\w)(?:{page}) ?0*{number}(?!\w)"), str(number)) for number in numbers),
        (expression("contents"), CONTENTS),
        (expression("last_page"), LAST_PAGE),
        (expression("next_page"), str(following)),
        (expression("cover"), str(next(iter(pages), ""))),
        (re.compile(rf"(?<=name )(?:{of_whole})(?!\w)"), "of"),
        (expression("whole"), DOCUMENT),
    ]


def _offer(reading: GapReading, request: ReplyRequest) -> ReplyOffer:
    value, quote, text = reading
    if request.kind == PAGE_SCOPE:
        return ReplyOffer(Reply("chosen", value), (value,))
    own, about = own_texts(reading, request)
    beside, stated = quoted(quote, request.documents), statement_of(reading, request)
    is_shared = own == about
    cells = [fact for fact in beside if fact.head]
    apart = [fact for fact in cells if not shared_stems(asked_stems(request), stems(fact.head))]
    for fact in apart if not is_shared and len(apart) < len(cells) else ():
        about = about.replace(fact.value, " ")  # a cell of a column that was not asked for
    names = {*_vocabulary(own if is_shared else f"{value} {text}")}
    more = {word for word in _vocabulary(about) if any(map(str.isdigit, word))}
    if stated is not None:  # where it stands
        places = {fact.place for fact in beside if fact[:3] == stated[:3]}
        more |= {f"pg{request.documents[place].page}" for place in places}
        more.update(stems(stated.heading))
    if not is_shared:
        people = re.findall(r"(?<=\W)[^\W\d_]\w+", quote)
        more |= {stem(plain(word)) for word in people if word[0].isupper()}
    texts = (value, text, value.removesuffix(".md").replace("-", " "))
    phrases = (_ARTICLE.sub("", plain(each).strip(" .")) for each in texts)
    named = (value, *filter(None, phrases))
    sentence = frozenset(word for word in stems(about) if not word.isdigit())
    ranks = (frozenset(names), frozenset(more), sentence)
    return ReplyOffer(Reply("chosen", value), named, plain(about), ranks, frozenset().union(*ranks))


def _vocabulary(text: str) -> frozenset[str]:
    """Stems and values of a text; of the figures of a value a year, or all of them, name it.

    A bare number counts also as a sum.
    """
    text = plain(text)
    keys = {(value.kind, sum_key(value.text)) for value in values_in(text)}
    words = (word for word in split_words(text) if not word.isdigit() or _YEAR.fullmatch(word))
    figures = {re.sub(r"\D", "", key) for _, key in keys}
    signed = {key + sign for kind, key in keys if kind == "number" for sign in "£€$¥"}
    return frozenset(
        {*_atoms(text), *map(stem, words), *signed, *(each for each in figures if len(each) > 1)}
    )


def _atoms(text: str) -> list[str]:
    """Stems and values of a part of a reply, in order; a page with its number is one of them."""
    page = rf"(?<!\w)(?:{'|'.join(entries('page'))}) ?0*(\d{{1,4}})(?!\w)"
    text, end, atoms = re.sub(page, r"pg\1", text), 0, list[str]()
    for value in values_in(text):
        if value.kind != "number":
            atoms += [*map(stem, split_words(text[end : value.start])), sum_key(value.text)]
            end = value.end
    return [*atoms, *map(stem, split_words(text[end:]))]


# --- what a part names


def named(part: str, choice: ReplyOffers) -> Reply | None:
    """The only thing to which all words of a part belong.

    None where the part says nothing; not understood where it names several things, or has a word
    that belongs to none.
    """
    request, subject = choice.request, bare(part)
    if request.kind == PAGE_SCOPE and subject.isdecimal():
        pages = (each.reply for each in choice.offers if each.reply.value == str(int(subject)))
        return next(pages, NOT_UNDERSTOOD)
    if (place := by_place(subject, request)) is not None:
        return choice.offers[place].reply
    ranks = [_rank(offer, subject, choice) for offer in choice.offers]
    best = [offer for offer, rank in zip(choice.offers, ranks, strict=True) if rank == max(ranks)]
    if not max(ranks):
        best = _by_trait(subject, choice)
    if not best:
        return None if fillers().issuperset(_atoms(subject)) else own_value(subject, choice)
    bounds = expression("bounding").findall(part)
    is_own = len(best) == 1 and all(words in best[0].text for words in bounds)
    return best[0].reply if is_own else NOT_UNDERSTOOD


def _by_trait(subject: str, choice: ReplyOffers) -> list[ReplyOffer]:
    """The offer that is the newer, the older, the lower or the higher; none where none is."""
    request = choice.request
    for trait, words in ((by_time, time_words("newer", "older")), (by_size, size_words())):
        if (reading := trait(subject, request)) is not None:
            offer = choice.offers[request.readings.index(reading)]
            # `less key` turns a name down
            own = offer if trait is by_time else ReplyOffer(offer.reply)
            rest = bare(words.sub(" ", subject))
            return [offer] if _accounts(own, rest, choice) else []
    return []


def _accounts(offer: ReplyOffer, subject: str, choice: ReplyOffers) -> bool:
    """Whether all words of a subject are an offer's, or nobody's."""
    if not {choice.marked[int(mark)] for mark in MARK.findall(subject)} <= {*offer.phrases, "of"}:
        return False
    more = {"intent": ("holders",), PAGE_SCOPE: ("page_words",)}.get(choice.request.kind, ())
    free = (fillers() | _word_stems(("heads", *more)) | choice.topic) - _foreign(offer, choice)
    return all(word in free or has(offer.own, word) for word in _atoms(MARK.sub(" ", subject)))


def _rank(offer: ReplyOffer, subject: str, choice: ReplyOffers) -> int:
    """How surely a subject says what tells an offer from the others, 0 where it does not.

    A number alone is a place, or nothing.
    """
    if not _accounts(offer, subject, choice):
        return 0
    words = [word for word in _atoms(MARK.sub(" ", subject)) if word not in fillers()]
    numbers = {*"123456789", *(entry.partition("=")[2] for entry in entries("cardinals"))}
    if MARK.search(subject):
        return SUREST
    if numbers.issuperset(words):
        return 0
    for rank, own in enumerate(offer.ranks, 1):
        rivals = [each.ranks[rank - 1] for each in choice.offers if each.ranks]
        telling = [
            word for word in words if has(own, word) and not all(has(each, word) for each in rivals)
        ]
        if len(telling) > (rank == len(offer.ranks)):
            return SUREST - rank
    return 0


def _foreign(offer: ReplyOffer, choice: ReplyOffers) -> frozenset[str]:
    """Words of other offers' names that are not an offer's, nor the question's."""
    names = {name for each in choice.offers for own in each.ranks[:1] for name in own}
    return frozenset(name for name in names - choice.topic if not has(offer.own, name))


def tells_of_another(reason: str, reply: Reply | None, choice: ReplyOffers) -> bool:
    """Whether a reason has a word of something else on offer, or a figure."""
    offer = next(
        (each for each in choice.offers if each.reply == reply), ReplyOffer(NOT_UNDERSTOOD)
    )
    foreign = _foreign(offer, choice)
    words = set(_atoms(expression("because").sub(" ", reason))) - fillers()
    return any(has(foreign, word) or any(map(str.isdigit, word)) for word in words)


def asked_stems(request: ReplyRequest) -> frozenset[str]:
    """Stems of the question and of the field."""
    return frozenset(stems(f"{request.question} {request.field}"))


@cache
def _word_stems(keys: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        stem(part) for key in keys for word in entries(key) for part in split_words(word)
    )


@cache
def fillers() -> frozenset[str]:
    """Stems of words that name nothing, beside those that join, turn down or leave open."""
    turning = [expression(key) for key in ("joining", "setting_aside", "undecided")]
    small = {word for word in STOP_WORDS if not any(each.fullmatch(word) for each in turning)}
    manners = _word_stems(("polite", "assent", "dissent", "option", "chatter"))
    return manners | frozenset(map(stem, small))


def has(names: frozenset[str], word: str) -> bool:
    """Whether a stem is one of some names, or a form of it."""
    return word in names or any(meets(word, name) for name in names)


def bare(part: str) -> str:
    """A part of a reply without what leads up to its subject."""
    before, residue = None, part.strip(" .!?\"'")
    while residue != before:
        before, residue = residue, _ARTICLE.sub("", _lead().sub("", residue)).strip()
    return residue


@cache
def _lead() -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join((*entries('lead_in'), *entries('polite')))})(?!\w)[ ,:]*")


# --- places and sums


def by_place(text: str, request: ReplyRequest) -> int | None:
    """The place of the reading that is named by its number or its place among those on offer.

    `two` names one only as a number, since it may be two of them. Of versions `the last` is the
    newest, and the number of a page is no place; nor is that of a sum, `£2`, or of a share.
    """
    among, is_dated = len(request.readings), request.kind == "date_scope"
    free = {"of", *entries("polite"), *entries("option"), *entries("articles")}
    free -= {"page", *entries("joining")}
    words = [word for word in re.findall(r"[\w'-]+", text) if word not in free]
    if request.kind == PAGE_SCOPE or not words or re.search(r"[^\w\s#).'-]", text):
        return None
    numbered = ["ordinals"]
    places: dict[str, int] = {}
    if len(words) == 1:  # `3 tickets` are three
        places = {f"{at + 1}(?:st|nd|rd|th|e|er|re|eme)?": at for at in range(among)}
        places |= {} if is_dated else dict.fromkeys(entries("last_one"), among - 1)
        numbered += ["cardinals"] if expression("option").search(text) else []
    for entry in (entry for key in numbered for entry in entries(key)):
        number, _, form = entry.partition("=")
        places[form] = int(number) - 1
    beside = asked_stems(request) | (frozenset() if is_dated else _word_stems(("heads",)))
    place = next((at for form, at in places.items() if re.fullmatch(form, words[0])), among)
    return place if place < among and beside.issuperset(map(stem, words[1:])) else None


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


def pages_of(chunks: Iterable[Chunk]) -> tuple[int, ...]:
    """Pages of some passages, in order."""
    return tuple(sorted({chunk.page for chunk in chunks if chunk.page is not None}))


# --- values that the documents state elsewhere


def own_value(text: str, choice: ReplyOffers) -> Reply:
    """A value of the kind and field on offer that the documents state beside those.

    The only one that has a text as its label, its heading or itself; else some words of its label.
    """
    request = choice.request
    free, heads = fillers() | choice.topic, _word_stems(("heads",))
    full = set(_atoms(text)) - free
    words = full - heads
    # `9` is the place of none
    if not words or MARK.search(text) or re.fullmatch(r"\d{1,2}", text):
        return NOT_UNDERSTOOD
    offered = (quoted(reading.quote, request.documents) for reading in request.readings)
    kinds = {fact.kind for facts in offered for fact in facts} - {"text", "number"}
    wanted = frozenset(stems(request.field.partition(":")[0]))
    # the field of a pack, which the question names in other words
    if not wanted <= frozenset(stems(request.question)):
        wanted = frozenset(map(stem, topic_words(plain(request.question))))
    wanted -= heads
    own = [
        fact
        for fact in statements(request.documents)
        if (not kinds or fact.kind in kinds) and not wanted - shared_stems(wanted, _about(fact))
    ]
    whole = [
        fact
        for fact in own
        for name in (fact.label, fact.name, fact.value, fact.heading)
        if {*_atoms(plain(name))} - free in (words, full)
    ]
    if not whole and len(words) > 1:
        whole = [fact for fact in own if words.issubset(_atoms(plain(fact.name)))]
    if len({value_key(fact.value) for fact in whole}) != 1:
        return NOT_UNDERSTOOD
    return Reply("own_value", whole[0].label or whole[0].value, quote=whole[0].text)


def _about(fact: Statement) -> tuple[str, ...]:
    return stems(f"{fact.label} {fact.head or fact.table} {fact.heading} {fact.text}")


def own_statement(reply: Reply, chunks: Sequence[Chunk]) -> Statement | None:
    """The statement of an own value in the documents; None where no statement is quoted."""
    stated = quoted(reply.quote, chunks)
    return next(iter(called(reply.value, stated) or stated), None)


# --- misspelled words


def mended(text: str, request: ReplyRequest) -> str:
    """A text with each misspelled word set to the only word of the readings that is like it.

    Its first and last letters are right: `renter` and `rented` are two words. A word that the
    documents, the question or the word lists know is spelled as it is meant.

    Example:
      >>> readings = (GapReading("Pet deposit"), GapReading("Security deposit"))
      >>> mended(
      ...     "the secuirty one",
      ...     ReplyRequest("What is the deposit?", "field_type", "deposit", readings),
      ... )
      'the security one'
    """
    readings = request.readings
    names = {
        word
        for reading in readings
        for word in _words_of(f"{reading.value} {reading.text}")
        if len(word) >= SHORT
    }
    quotes = (reading.quote for reading in readings)
    documents = (chunk.full_text for chunk in request.documents)
    texts = (request.question, request.field, str(language_parts()), *quotes, *documents)
    for word in _words_of(text).difference(names, *map(_words_of, texts)):
        near = get_close_matches(word, sorted(names), 2, NEAR) if len(word) >= SHORT else []
        near = [name for name in near if (name[0], name[-1]) == (word[0], word[-1])]
        if len(near) == 1 and word.isalpha():
            text = re.sub(rf"(?<![\w'-]){word}(?![\w'-])", near[0], text)
    return text


@lru_cache(maxsize=1 << 10)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(split_words(plain(text)))
