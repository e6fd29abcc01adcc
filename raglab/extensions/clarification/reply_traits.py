"""Traits in replies (algebra): a reading newer, lower, or alone on its page or heading (S5.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    meets,
    plain,
    stems,
    whole_words,
)
from raglab.extensions.clarification.statements import Statement, statements, value_key
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, ReplyRequest
from raglab.values import Chunk

TIMED = frozenset({"date_scope", "document"})  # kinds whose readings differ in their time
# kinds that are lower or higher
MEASURED = frozenset({"amount", "percentage", "duration", "quantity"})
PAIR = 2  # readings of which each is what the other is not
_YEARS = re.compile(r"(?:19|20)\d\d")
_ELIDED = re.compile(r"(?<!\w)l'")
_FIGURE = re.compile(r"\d[\d.,\s\u00a0\u202f']*")


def statement_of(reading: GapReading, request: ReplyRequest) -> Statement | None:
    """The statement of the documents that a reading is, as its quote and value tell.

    None where there is none.
    """
    key, stated = value_key(reading.value), statements_beside(reading, request)
    named = [
        statement
        for statement in stated
        if key
        in {
            value_key(name)
            for name in (statement.label, statement.head, statement.name, statement.value)
        }
    ]
    return next(
        iter(named or (stated if len({statement.value for statement in stated}) == 1 else ())), None
    )


def statements_beside(reading: GapReading, request: ReplyRequest) -> tuple[Statement, ...]:
    """Statements of the sentence or row that a reading quotes."""
    texts = tuple(chunk.full_text for chunk in request.documents)
    return _statements_of(plain(reading.quote), texts) if reading.quote else ()


@lru_cache(maxsize=1 << 9)
def _statements_of(quote: str, texts: tuple[str, ...]) -> tuple[Statement, ...]:
    chunks = [Chunk(str(place), text, "") for place, text in enumerate(texts)]
    return tuple(statement for statement in statements(chunks) if plain(statement.text) == quote)


# --- time


def by_time(part: str, request: ReplyRequest) -> GapReading | None:
    """Of readings that differ in their dates, the one that a part calls the newer or the older."""
    bare = _ELIDED.sub("", part)
    newer, older = (
        time_words(key).search(part) or time_words(key).search(bare) for key in ("newer", "older")
    )
    if bool(newer) == bool(older):
        return None
    names = {reading: plain(own_name(reading, request)) for reading in request.readings}
    # The name of a reading tells its time before its sentence does, which may go on about another.
    texts = {
        reading: name if _is_timed(name) else plain(own_text(reading, request))
        for reading, name in names.items()
    }
    if request.kind not in TIMED and not all(map(_is_timed, texts.values())):
        return None
    pairs = (
        (("newer", "older"), ("holds", "held"))
        if newer
        else (("older", "newer"), ("held", "holds"))
    )
    for key, against in pairs:
        marked = [reading for reading, text in texts.items() if time_words(key).search(text)]
        if len(marked) == 1 and not time_words(against).search(texts[marked[0]]):
            return marked[0]
        # Of two, the one that is not called the contrary: `it was 30 days until May` leaves the
        # newer.
        contrary = [reading for reading, text in texts.items() if time_words(against).search(text)]
        if len(texts) == PAIR and len(contrary) == 1 and not marked:
            return next(reading for reading in texts if reading != contrary[0])
    dated = {
        reading: years[-1] for reading, text in texts.items() if (years := _YEARS.findall(text))
    }
    if len(dated) < len(request.readings) or len(set(dated.values())) < len(dated):
        return None
    return (max if newer else min)(dated, key=lambda reading: dated[reading])


@cache
def time_words(*keys: str) -> re.Pattern[str]:
    """Words of documents and replies for a time, longest first, so that they are taken whole."""
    words = {entry for key in keys for entry in (*entries(f"{key}_reply"), *entries(key))}
    return whole_words(sorted(words, key=lambda entry: (-len(entry), entry)))


def own_name(reading: GapReading, request: ReplyRequest) -> str:
    """What a reading is called, with the words and the value of its statement."""
    stated = statement_of(reading, request)
    return (
        reading.value
        if stated is None
        else f"{reading.value} {stated.label} {stated.head} {stated.value}"
    )


def own_text(reading: GapReading, request: ReplyRequest) -> str:
    """What is said of a reading: its name, and its sentence.

    Of one that is others' too, the part up to its value.
    """
    own = own_name(reading, request)
    if not _is_shared(reading, request):
        return f"{own} {reading.text} {reading.quote}"
    stated, beside = statement_of(reading, request), statements_beside(reading, request)
    # What stands behind a value is of it: `£4 until May`. Then nothing before it is.
    if stated is None or stated.form != "sentence" or any(statement.head for statement in beside):
        return own
    end = max(reading.quote.find(stated.value), 0)
    ends = (
        reading.quote.find(statement.value) + len(statement.value)
        for statement in beside
        if statement.value != stated.value
    )
    start = max((place for place in ends if place <= end), default=0)
    return f"{own} {reading.quote[start:end]}"


def shown_text(reading: GapReading, request: ReplyRequest) -> str:
    """What a reading is offered as.

    Of a sentence that is others' too, shown where it was cut, what is its own.
    """
    return (
        own_text(reading, request)
        if _is_shared(reading, request)
        else f"{reading.value} {reading.text}"
    )


def _is_shared(reading: GapReading, request: ReplyRequest) -> bool:
    return any(
        each.quote and each.quote == reading.quote for each in request.readings if each != reading
    )


def _is_timed(text: str) -> bool:
    return _YEARS.search(text) is not None or any(
        time_words(key).search(text) for key in ("newer", "older", "holds", "held")
    )


# --- size


def by_size(part: str, request: ReplyRequest) -> GapReading | None:
    """Of readings with a value of one unit each, the one that a part calls the lower or the higher.

    A word of size may be of the thing, not of its value: it names only where a name says so too. A
    price is of sums.
    """
    lower, higher = expression("smaller").search(part), expression("larger").search(part)
    if bool(lower) == bool(higher):
        return None
    kind, sizes = _measures(request)
    ends = [
        reading
        for reading, size in sizes.items()
        if size == (min if lower else max)(sizes.values())
    ]
    if len(ends) != 1 or (expression("of_price").search(part) and kind != "amount"):
        return None
    if not expression("of_size").search(part):
        return ends[0]
    small = [
        reading
        for reading in request.readings
        if expression("small_names").search(plain(reading.value))
    ]
    if len(request.readings) == PAIR and len(small) == 1:
        return ends[0] if (ends == small) == bool(lower) else None
    return None


def _measures(request: ReplyRequest) -> tuple[str, Mapping[GapReading, float]]:
    """The only value of each reading as a number, with their kind.

    None unless all are of one kind and unit.
    """
    sizes: dict[GapReading, float] = {}
    units = set()
    for reading in request.readings:
        stated = statement_of(reading, request)
        values = values_in(reading.quote if stated is None else stated.value)
        figure = (
            _FIGURE.search(values[0].text)
            if len(values) == 1 and values[0].kind in MEASURED
            else None
        )
        if figure is None:
            return "", {}
        units.add((values[0].kind, value_key(_FIGURE.sub("", values[0].text))))
        sizes[reading] = _number(figure[0])
    return (next(iter(units))[0], sizes) if len(units) == 1 else ("", {})


@lru_cache(maxsize=1 << 10)
def _number(text: str) -> float:
    """A printed figure.

    Its last mark parts decimals, but where three digits follow and no zero stands alone before.
    """
    compact = re.sub(r"[\s\u00a0\u202f']", "", text).strip(".,")
    decimals = re.search(r"(?:(?<=^0)[.,]\d+|[.,](?:\d{1,2}|\d{4,}))$", compact)
    whole = compact if decimals is None else compact[: decimals.start()]
    return float(
        f"{re.sub(r'[^0-9]', '', whole) or '0'}.{'0' if decimals is None else decimals[0][1:]}"
    )


# --- place


def by_heading(words: frozenset[str], request: ReplyRequest) -> GapReading | None:
    """The only reading whose heading has words that no other one's heading, name or quote has."""
    if not words:
        return None
    headed = {reading: heading_stems(reading, request) for reading in request.readings}
    fitting = [
        reading for reading, names in headed.items() if all(has(names, word) for word in words)
    ]
    if len(fitting) != 1:
        return None
    apart = [
        frozenset(stems(f"{reading.value} {reading.text} {reading.quote}")) | headed[reading]
        for reading in request.readings
        if reading != fitting[0]
    ]
    return None if any(has(names, word) for names in apart for word in words) else fitting[0]


def heading_stems(reading: GapReading, request: ReplyRequest) -> frozenset[str]:
    """Stems of the heading that a reading stands under."""
    stated = statement_of(reading, request)
    return frozenset() if stated is None else frozenset(stems(stated.heading))


def by_page(part: str, request: ReplyRequest) -> GapReading | None:
    """The only reading that stands on a page which is all that a part names.

    `the one on page 4`.
    """
    form = whole_words(f"(?:{page})" for page in entries("page"))
    pages = [int(match[1]) for match in re.finditer(rf"{form.pattern} ?0*(\d{{1,4}})(?!\w)", part)]
    if len(pages) != 1:
        return None
    placed: dict[GapReading, Sequence[int | None]] = {}
    for reading in request.readings:
        stated = statement_of(reading, request)
        if stated is None:
            return None
        placed[reading] = [
            request.documents[each.place].page
            for each in statements_beside(reading, request)
            if (each.value, each.label) == (stated.value, stated.label)
        ]
    fitting = [reading for reading, own in placed.items() if pages[0] in own]
    return fitting[0] if len(fitting) == 1 else None


def has(names: frozenset[str], word: str) -> bool:
    """Whether a stem is one of some names, or a form of it."""
    return word in names or any(meets(word, name) for name in names)
