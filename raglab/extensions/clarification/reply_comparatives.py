"""Comparatives in replies (algebra): the newer or older reading, the lower or higher one (S5.4)."""

from __future__ import annotations

import re
from functools import cache

from raglab.extensions.clarification.language_words import entries, expression, plain, whole_words
from raglab.extensions.clarification.statements import Statement, called, quoted
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, ReplyRequest
from raglab.words.numerals import plain_number

TIMED = frozenset({"date_scope", "document"})  # kinds whose readings differ in their time
# kinds that are lower or higher
MEASURED = frozenset({"amount", "percentage", "duration", "quantity"})
_YEARS = re.compile(r"(?:19|20)\d\d")
_FIGURE = re.compile(r"\d(?:[\d.,\s\u00a0\u202f']*\d)?")


def statement_of(reading: GapReading, request: ReplyRequest) -> Statement | None:
    """The statement that a reading is, as its quote and value tell; None where there is none."""
    beside = quoted(reading.quote, request.documents)
    sole = beside if len({fact.value for fact in beside}) == 1 else []
    return next(iter((*called(reading.value, beside), *sole)), None)


def own_texts(reading: GapReading, request: ReplyRequest) -> tuple[str, str]:
    """What a reading is called, and what is said of it alone.

    Of a sentence that is others' too, its name and its own statement.
    """
    stated, own = statement_of(reading, request), reading.value
    if stated is not None:
        own = f"{own} {stated.label} {stated.head} {stated.value}"
    shared = [each for each in request.readings if each.quote and each.quote == reading.quote]
    return own, own if len(shared) > 1 else f"{reading.value} {reading.text} {reading.quote}"


@cache
def time_words(*keys: str) -> re.Pattern[str]:
    """Words of documents and replies for a time, longest first, so that they are taken whole."""
    words = {entry for key in keys for entry in (*entries(f"{key}_reply"), *entries(key))}
    return whole_words(sorted(words, key=lambda entry: (-len(entry), entry)))


@cache
def size_words() -> re.Pattern[str]:
    """Words for a lower or a higher value."""
    return whole_words((*entries("smaller"), *entries("larger")))


def by_time(part: str, request: ReplyRequest) -> GapReading | None:
    """Of readings that differ in their dates, the one that a part calls the newer or the older.

    By words for a time that one of them has, else by their last years.
    """
    bare = re.sub(r"(?<!\w)l'", "", part)
    newer, older = (
        time_words(key).search(part) or time_words(key).search(bare) for key in ("newer", "older")
    )
    if bool(newer) == bool(older):
        return None
    after, before = time_words("newer", "holds"), time_words("older", "held")
    marks, years = list[str](), list[str]()
    for reading in request.readings:
        # The name of a reading tells its time before its sentence, which may go on about another.
        for text in map(plain, own_texts(reading, request)):
            dates = _YEARS.findall(text)
            is_new, is_old = bool(after.search(text)), bool(before.search(text))
            if dates or is_new or is_old:
                break
        else:
            if request.kind not in TIMED:
                return None
        marks.append(str(1 + is_new - is_old))
        years.append(dates[-1] if dates else "")
    for ages in (marks, years):
        end = (max if newer else min)(ages)
        if "" not in ages and ages.count(end) == 1:
            return request.readings[ages.index(end)]
    return None


def by_size(part: str, request: ReplyRequest) -> GapReading | None:
    """Of readings with a value of one unit each, the one that a part calls the lower or the higher.

    A word of size may be of the thing, not of its value: it names only where a name says so too. A
    price is of sums.
    """
    is_lower, is_higher = (
        expression(key).search(part) is not None for key in ("smaller", "larger")
    )
    if is_lower == is_higher:
        return None
    measures = [_measure(reading, request) for reading in request.readings]
    known = [measure for measure in measures if measure is not None]
    sizes = [size for _, size in known]
    end = (min if is_lower else max)(sizes, default=0.0)
    units = {unit for unit, _ in known}
    if len(known) < len(measures) or len(units) != 1 or sizes.count(end) != 1:
        return None
    place = sizes.index(end)
    if expression("of_price").search(part) and known[0][0][0] != "amount":
        return None
    names = [plain(reading.value) for reading in request.readings]
    small = [expression("small_names").search(name) is not None for name in names]
    is_named = sorted(small) == [False, True] and small[place] == is_lower
    return request.readings[place] if is_named or not expression("of_size").search(part) else None


def _measure(reading: GapReading, request: ReplyRequest) -> tuple[tuple[str, str], float] | None:
    """Unit and number of the only value of a reading, of a kind that is lower or higher."""
    stated = statement_of(reading, request)
    values = values_in(reading.quote if stated is None else stated.value)
    if len(values) != 1 or values[0].kind not in MEASURED:
        return None
    kind, shown = values[0][:2]
    figures = _FIGURE.search(shown)
    size = figures and plain_number(figures[0], money=kind == "amount")
    return None if size is None else ((kind, _FIGURE.sub("", plain(shown)).strip()), float(size))
