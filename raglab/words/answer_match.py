"""Answers against gold answers (algebra): right, wrong or undecided by their text (rule S6.3).

What decides is the values of the gold answer: numbers with their units, amounts, dates, times,
codes, names, yes or no, and what is negated. Where it has none, token F1 decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from raglab.words.characters import unaccented, usual_forms
from raglab.words.claim_words import (
    BREAK,
    LITTLE,
    NAME,
    NEGATION,
    NUMBER,
    SPEAKER,
    UNIT,
    WORD,
    Word,
    canonical_value,
    claim_words,
)
from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import any_of, currencies, dates_in, tables
from raglab.words.text import STOP_WORDS, sentences

# F1 of a gold answer without values: wrong up to, right from, and from for one that is no sentence
LOWER_F1, UPPER_F1, TERM_F1 = 0.0, 0.4, 0.6
MOST = 1e15  # of a number that is compared by its value, else as it is written
LONGEST_TERM = 5  # words of a gold answer that is no sentence: a right answer holds all of them


class AnswerMatch(IntEnum):
    """What an answer is against a gold answer; `undecided` where its text does not tell."""

    wrong = 0
    right = 1
    undecided = 2


class Value(NamedTuple):
    """A value that a text states: its kind, in which another one replaces it, and its key."""

    kind: str
    key: str


class Facts(NamedTuple):
    """What a text states.

    values: numbers with units, amounts, dates, times, codes and names. keys: of its words of
    substance, numbers among them, with their signs, -1 where a word is negated. words: all of them
    as written, without case and accents. yes: 1 or -1 where it begins with yes or no, else 0.
    restricts: whether it holds a word such as `unless`. doubts: whether it calls a value past or
    none. bounds: 1 where numbers are stated to be least ones, -1 where largest ones.
    negations: words that negate.
    """

    values: frozenset[Value]
    keys: frozenset[tuple[str, int]]
    words: frozenset[str]
    yes: int
    restricts: bool
    doubts: bool
    bounds: frozenset[int]
    negations: int

    @property
    def content(self) -> frozenset[str]:
        """Words of substance."""
        return frozenset(key for key, _ in self.keys)

    @property
    def negates(self) -> bool:
        """Whether anything is negated, forbidden, refused or left out."""
        return self.negations > 0 or any((key, -1) in self.keys for key in _REFUSALS)


_WORDS = LANGUAGES.comparison
# Kind of a unit's word and its factor, by the key of the word: minutes, months, metres and so on
_UNITS = {
    claim_words(word)[0].key: (kind, float(factor))
    for measure, words in _WORDS.measures.items()
    for kind, factor in [measure.split()]
    for word in words
}
# signs of currencies by the key of their hundredths
_CENTS = {
    claim_words(word)[0].key: sign for sign, some in _WORDS.hundredths.items() for word in some
}
_YES = dict.fromkeys(_WORDS.affirming, 1) | dict.fromkeys(_WORDS.denying, -1)
_UNIT_WORDS = {
    *(
        word
        for table in (_WORDS.measures, _WORDS.hundredths)
        for words in table.values()
        for word in words
    ),
    *tables().endings,
    *tables().suffixes,
    *tables().money_suffixes,
    "am",
    "pm",
}
_MINUS = claim_words("minus")[0].key
FIRST, PER, EACH = "first", "per", "each"  # kinds: names that begin a sentence; what is counted for
_DAYS = {day[:3]: day for day in _WORDS.days[:7]}
_RATES = {word: unit for unit, some in _WORDS.rates.items() for word in some}
_REPLY_ENDS = r"(?:\s*[,.;:!]|$)"


def _any(patterns: Iterable[str], frame: str = r"\b{}\b") -> re.Pattern[str]:
    """Any of a language's expressions, in a frame."""
    return re.compile(frame.replace("{}", expression(patterns)), re.IGNORECASE)


# how a reply says yes or no in other words
_REPLIES = {
    sign: _any(some, rf"\W*{{}}{_REPLY_ENDS}")
    for sign, some in ((-1, _WORDS.denies), (1, _WORDS.affirms))
}
_YES_QUESTION = _any(_WORDS.asks, r"\W*{}\b")
_RESTRICTS = _any(_WORDS.restricts)
_DOUBT = _any(_WORDS.past, r"\b{}")  # a value that is stated to be none, or not any more
_ASKED_BOUNDS = {-1: _any(_WORDS.until, r"\W*{}\b"), 1: _any(_WORDS.since, r"\W*{}\b")}
_COUNTED = {
    kind: _any(some, r"\b{}\s+([^\W\d_]+)")
    for kind, some in ((PER, _WORDS.per), (EACH, _WORDS.each))
}
_BOUND = re.compile(
    rf"\b(?P<no>no |not )?(?:(?P<below>{any_of(LANGUAGES.quantities.below)})"
    rf"|(?P<above>{any_of(LANGUAGES.quantities.above)}))(?:\s+\w+)?\s+[£€$]?\d",
    re.IGNORECASE,
)
_MONTH = any_of(tables().months)
_ENDING = any_of(tables().endings)
_CODES = re.compile(
    r"(?P<mail>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<web>(?<![\w.-])(?:https?://)?(?:www\.)?(?:[a-z][\w-]*\.)+[a-z]{2,}\b(?:/[\w./?=&%#-]*)?)"
    r"|(?P<phone>(?<![\w.,-])(?:\+|\(0|0)[\d ()./-]{5,}\d(?!\w))"
    r"|(?P<version>\bv?\d+(?:\.\d+){2,}\b|\bv\d+(?:\.\d+)*\b)"
    r"|(?P<code>(?<![\w./-])(?=[\w./-]*\d)(?=[\d./-]*[a-z])[a-z\d]+(?:[-./][a-z\d]+)*\b"
    r"|\b\d+(?:[/-]\d+)+\b|\b\d{7,}\b)",
    re.IGNORECASE,
)
# a number with what is written to it is no code: `20kg`, `1st`, `2m`, `45-minute`
_NO_CODE = re.compile(rf"\d[\d.,]*[-/]?(?:[a-z]{{3,}}|{any_of(_UNIT_WORDS)})?", re.IGNORECASE)
_DAY = re.compile(
    rf"\b(?P<d1>\d{{1,2}})(?:{_ENDING})?\s+(?:of\s+)?(?P<m1>{_MONTH})\b"
    rf"|\b(?P<m2>{_MONTH})\.?\s+(?P<d2>\d{{1,2}})(?:{_ENDING})?\b(?![:.]\d)",
    re.IGNORECASE,
)
_NOON = dict.fromkeys(_WORDS.noon, 720) | dict.fromkeys(_WORDS.midnight, 0)
_TIME = re.compile(
    r"\b(?P<hour>\d{1,2})(?:[:.h](?P<minute>[0-5]\d))?\s?(?P<half>[ap])\.?m\b\.?"
    r"|\b(?P<hour24>\d{1,2})(?::|h\s?)(?P<minute24>[0-5]\d)\b"
    rf"|\b(?P<noon>{any_of(_NOON)})\b",
    re.IGNORECASE,
)
# other ways to write a value
_SPELLINGS = [
    (re.compile(pattern.replace("MONTHS", _MONTH), re.IGNORECASE), value)
    for pattern, value in (
        *(
            (rf"\b{ordinal}(?= of (?:MONTHS)\b)", str(day))
            for day, ordinal in enumerate(_WORDS.ordinals, 1)
        ),
        *_WORDS.spellings.items(),
    )
]
_HALF_DAY = re.compile(
    r"\b(\d{1,2})((?:[:.]\d\d)?)(?=\s?(?:-|–|to|until|and)\s?\d{1,2}(?:[:.]\d\d)?\s?([ap])\.?m\b)",
    re.IGNORECASE,
)
_CAPITAL = re.compile(r"[^\W\d_](?:[^\W_]|['’](?=\w))*")
_MARKS, _STOPS = " \t\"'“”«»([*_-–", (".", "!", "?", ":", ";", "\n")  # before a sentence begins
NEAR = 8  # characters before a word in which they are looked for
_RUN = re.compile(rf"\s(?:& |(?:{any_of(LANGUAGES.words.joining)}) )?|, | ?[-–/+] ?")
_NO_NAMES = STOP_WORDS.union(
    _YES,
    _NOON,
    tables().months,
    LANGUAGES.words.titles,
    (code.lower() for code in currencies().values()),
    _WORDS.firms,
)
_NO_KEYS = SPEAKER | {"?"}
_IDLE = frozenset({LITTLE, NEGATION, BREAK, UNIT})
_REFUSALS = [f"~{name}" for name in ("allow", "cover", "accept", "mandatory", "possible", "able")]
# poles that bounds of numbers speak of, which `bounds` compares
_OF_BOUNDS = {f"~{name}" for name in ("more", "early", "maximum")}
_BRACKETS = re.compile(r"\([^()]*\)")
_PART = re.compile(rf"[,;]|\b(?:{any_of([*LANGUAGES.words.joining, *LANGUAGES.words.parting])})\b")


def answer_match(
    answer: str, golds: Sequence[str], question: str = "", headings: str = ""
) -> AnswerMatch:
    """Whether an answer says what one of the gold answers says.

    A gold answer has values: numbers with units, amounts, dates, times, codes, names, yes or no,
    and what it negates; those that the question states too are not asked for. The answer is wrong
    if one of them is replaced by another of its kind, or it only repeats question and headings. It
    is right if it has all of them and no further one of the same kind, and nothing speaks against
    it: a negation, another bound, another name in their clause. Without values it is right if the
    F1 of the words that the question does not hold is at least `UPPER_F1`, and wrong up to
    `LOWER_F1`. All else is undecided.

    Args:
      answer: text as it leaves the system.
      golds: gold answers, any of which will do.
      question: to which both are answers.
      headings: above the passages that the answer rests on.

    Source: rule S6.3; F1 as in Rajpurkar et al. 2016.

    Example:
      >>> golds = ["The excess of a storm is £1,200."]
      >>> texts = ("1200 pounds", "It is GBP 1,250.", "It depends.")
      >>> [answer_match(text, golds, "What is the excess of a storm?").name for text in texts]
      ['right', 'wrong', 'undecided']
    """
    matches = {_match(answer, gold, question, headings) for gold in golds}
    if AnswerMatch.right in matches:
        return AnswerMatch.right
    return AnswerMatch.wrong if matches == {AnswerMatch.wrong} else AnswerMatch.undecided


def _match(answer: str, gold: str, question: str, headings: str) -> AnswerMatch:
    """Whether an answer says what a gold answer says."""
    stated, wanted, query = text_facts(answer), text_facts(gold), text_facts(question)
    if stated.values == wanted.values and _plain_words(answer) == _plain_words(gold):
        return AnswerMatch.right
    agreement = 0
    if _YES_QUESTION.match(question):
        agreement = _says_yes(stated, query) * _says_yes(wanted, query)
    if agreement < 0 or not (stated.keys or stated.yes):
        return AnswerMatch.wrong
    values = frozenset(
        value for value in wanted.values - query.values if not _is_named(value, query)
    )
    if not values and not wanted.content - query.content:
        values = wanted.values
    is_echo = stated.content <= query.content | text_facts(headings).content
    if values:
        return _match_values(answer, gold, question, values, is_echo=is_echo)
    opposes = _opposes(stated, wanted) or stated.restricts != wanted.restricts
    if agreement:
        return AnswerMatch.undecided if opposes else AnswerMatch.right
    is_sentence = gold.strip()[-1:] in ".!"
    is_echo &= not wanted.content <= stated.content
    if is_echo and not wanted.content <= query.content:
        return AnswerMatch.wrong
    match = _match_words(stated, wanted, query, opposes=opposes, is_sentence=is_sentence)
    # yes and no may be said in words that share nothing
    is_open = match == AnswerMatch.wrong and not opposes and _YES_QUESTION.match(question)
    return AnswerMatch.undecided if is_open else match


def _match_words(
    stated: Facts, wanted: Facts, query: Facts, *, opposes: bool, is_sentence: bool
) -> AnswerMatch:
    """Whether an answer holds the words of a gold answer without values."""
    new, wanted_new = stated.content - query.content, wanted.content - query.content
    if not wanted_new:  # all words of the gold answer are the question's
        new, wanted_new = stated.content, wanted.content
    shared = len(new & wanted_new)
    f1 = 2.0 * shared / max(1, len(new) + len(wanted_new))
    is_term = len(wanted_new) <= LONGEST_TERM and not is_sentence
    if f1 < (TERM_F1 if is_term else UPPER_F1):
        is_wrong = f1 <= LOWER_F1 and not wanted.content <= query.content
        return AnswerMatch.wrong if is_wrong else AnswerMatch.undecided
    if opposes:
        return AnswerMatch.undecided if stated.restricts or wanted.restricts else AnswerMatch.wrong
    is_right = wanted_new <= new if is_term else stated.negates == wanted.negates
    return AnswerMatch.right if is_right else AnswerMatch.undecided


def _match_values(
    answer: str, gold: str, question: str, values: frozenset[Value], *, is_echo: bool
) -> AnswerMatch:
    """Whether an answer holds the values of a gold answer and no others in their place."""
    stated, wanted, query = text_facts(answer), text_facts(gold), text_facts(question)
    has_codes = any(value.kind == "code" for value in stated.values | wanted.values)
    joined = _joined(answer) if has_codes else ""
    lacks = {
        value
        for value in values - stated.values
        if value.kind not in {PER, EACH}
        and not _is_named(value, stated)
        and not (value.key in joined and value.key)
    }
    kinds = {_PLAIN_KIND.get(value.kind, value.kind) for value in lacks}
    if lacks and (
        is_echo or not kinds.isdisjoint(_further(stated, wanted, query, gold, names=True))
    ):
        return AnswerMatch.wrong
    bare = text_facts(_BRACKETS.sub(" ", answer))
    kinds = {PER, *(_PLAIN_KIND.get(value.kind, value.kind) for value in wanted.values)}
    bounds = wanted.bounds or query.bounds
    doubts = (
        lacks
        or not kinds.isdisjoint(_further(bare, wanted, query, gold))
        or (bounds and stated.bounds and bounds.isdisjoint(stated.bounds))
        or (stated.doubts and not wanted.doubts)
        or _opposes(stated, wanted, _OF_BOUNDS)
        or _swaps(answer, gold)
        or _stands_elsewhere(answer, values, wanted, query)
    )
    return AnswerMatch.undecided if doubts else AnswerMatch.right


def _further(
    stated: Facts, wanted: Facts, query: Facts, gold: str, *, names: bool = False
) -> set[str]:
    """Kinds of the values that a text states and neither gold answer nor question.

    names: whether names that begin a sentence count.
    """
    joined = _joined(gold) if any(value.kind == "code" for value in stated.values) else ""
    return {
        _PLAIN_KIND[value.kind] if names and value.kind == FIRST else value.kind
        for value in stated.values - wanted.values - query.values
        if value.key not in joined and not (_is_named(value, wanted) or _is_named(value, query))
    }


def _joined(text: str) -> str:
    return "".join(re.findall(r"[^\W_]+", text)).casefold()


def _stands_elsewhere(answer: str, values: frozenset[Value], wanted: Facts, query: Facts) -> bool:
    """Whether the values stand in a clause of another matter than the question's."""
    parts = (part for line in sentences(answer) for part in line.split(";"))
    every = [(facts, len(facts.content & query.content)) for facts in map(text_facts, parts)]
    held = [
        (facts, shared)
        for facts, shared in every
        if values & facts.values or any(_is_named(value, facts) for value in values)
    ]
    if not held or max(count for _, count in held) < max(count for _, count in every):
        return bool(held)
    named = {value.key for value in query.values if value.kind == "name"}
    return bool(named) and any(
        named.isdisjoint(facts.words)
        and {value.key for value in facts.values if value.kind == "name"}
        - wanted.words
        - query.words
        for facts, _ in held
    )


_PLAIN_KIND = {FIRST: "name"}


def _is_named(value: Value, facts: Facts) -> bool:
    """Whether a value is a name, or what is counted for, that a text holds in any place."""
    return value.kind in {"name", FIRST, PER, EACH} and value.key in facts.words


@lru_cache(maxsize=1 << 14)
def text_facts(text: str) -> Facts:
    """What a text states: values, words of substance with their signs, yes or no."""
    plain = usual_forms(re.sub("[°²³]", " ", text))
    plain = re.sub(r"(?<![^\s(])[-−](?=\d)", "minus ", plain)
    for pattern, value in _SPELLINGS:
        plain = pattern.sub(value, plain)
    values: set[Value] = set()
    rest = _take_days(_take_codes(_take_times(_take_dates(plain, values), values), values), values)
    values |= {
        Value(kind, _plain_name(match[1]))
        for kind, pattern in _COUNTED.items()
        for match in pattern.finditer(rest)
        if match[1].lower() not in tables().numbers
    }
    values |= {*_quantities(claim_words(rest)), *_names(rest)}
    words = _plain_words(text)
    # `No interest is paid` negates a sentence and answers nothing by itself
    is_reply = re.match(r"\W*\w+\s*(?:[,.;:!–—-]|$)", plain) or words[:1] != ["no"]
    is_question = plain.rstrip().endswith("?")
    return Facts(
        frozenset(values),
        frozenset(
            (word.key, 1 if word.kind == NUMBER else word.sign)
            for word in claim_words(plain)
            if word.kind not in _IDLE and word.key not in _NO_KEYS
        ),
        frozenset(words),
        _YES.get(words[0], 0) if words and is_reply and words[0] in _YES else _reply(plain),
        _RESTRICTS.search(plain) is not None,
        _DOUBT.search(plain) is not None,
        frozenset(
            (1 if bound["above"] else -1) * (-1 if bound["no"] else 1)
            for bound in _BOUND.finditer(plain)
        )
        | {sign for sign, begins in _ASKED_BOUNDS.items() if is_question and begins.match(plain)},
        sum(word.kind == NEGATION for word in claim_words(plain)),
    )


def _take_dates(text: str, values: set[Value]) -> str:
    """The text without its dates, whose days, months and years go to the values."""
    for date in reversed([*dates_in(text)]):
        day = ("day", f"{date.month}-{date.day}") if date.day else ("month", str(date.month))
        values |= {Value("year", str(date.year)), Value(*day)}
        text = f"{text[: date.start]} , {text[date.end :]}"
    return text


def _take_times(text: str, values: set[Value]) -> str:
    """The text without its times of day, which go to the values in minutes."""

    def taken(match: re.Match[str]) -> str:
        if match["noon"]:
            minutes = _NOON[match["noon"].lower()]
        else:
            hour, minute = (
                int(match[name] or match[f"{name}24"] or 0) for name in ("hour", "minute")
            )
            half = (match["half"] or "").lower()
            minutes = (hour % 12 + 12 * (half == "p") if half else hour) * 60 + minute
        values.add(Value("time", str(minutes)))
        return " , "

    return _TIME.sub(taken, _HALF_DAY.sub(r"\1\2 \3m", text))


def _take_codes(text: str, values: set[Value]) -> str:
    """The text without its codes, addresses and telephone numbers, which go to the values."""

    def taken(match: re.Match[str]) -> str:
        kind, code = match.lastgroup or "", match[0].casefold()
        if kind == "code" and _NO_CODE.fullmatch(code) and not code.isdigit():
            return re.sub("[-/]", " ", match[0])
        if kind == "phone":
            if len(digits := re.sub(r"\D", "", code)) < 7:
                return match[0]
            code = digits[-9:]  # without the code of a country or its nought
        elif kind == "version":
            code = code.removeprefix("v")
        elif kind == "web":
            code = re.sub(r"\A(?:https?://)?(?:www\.)?", "", code).rstrip("/.")
        if kind not in {"mail", "web"}:
            kind, code = "code", re.sub(r"[\W_]", "", code)
        values.add(Value(kind, code))
        return " , "

    return _CODES.sub(taken, text)


def _take_days(text: str, values: set[Value]) -> str:
    """The text without its days of a month, which go to the values."""

    def taken(match: re.Match[str]) -> str:
        month = tables().months[(match["m1"] or match["m2"]).lower()]
        values.add(Value("day", f"{month}-{int(match['d1'] or match['d2'])}"))
        return " , "

    return _DAY.sub(taken, text)


def _quantities(words: Sequence[Word]) -> Iterator[Value]:
    """Numbers of a text with the unit beside them, by kind."""
    end = Word("", BREAK)
    beside = [end, end, *words, end, end, end, end]
    for at, word in enumerate(beside[:-3]):
        before, after = beside[at - 1], beside[at + 1]
        is_one = word.key == "1" and word.kind == LITTLE and after.key in _UNITS
        if word.kind != NUMBER and not is_one and word.key != "dozen":
            continue
        value = _number("12" if word.key == "dozen" else word.key)
        if word.key.startswith("m") and word.key[1:].isdigit():
            yield Value("month", word.key[1:])
        elif value is None:
            yield Value("code", word.key)
        elif before.kind == UNIT != after.kind and beside[at - 2].kind == NUMBER:
            continue  # the pence of two pounds fifty
        else:
            if [near.key for near in beside[at + 1 : at + 4]] == ["and", "a", "half"]:
                value, after = value + 0.5, beside[at + 4]
            value = -value if before.key == _MINUS else value
            yield _quantity(value, before, after, beside[at + 2])


def _quantity(value: float, before: Word, after: Word, last: Word) -> Value:
    """A number with the words beside it."""
    sign = next((near.key for near in (after, before) if near.kind == UNIT), "")
    if after.key in _CENTS:
        return Value("amount", f"{_CENTS[after.key]}{canonical_value(value / 100)}")
    if sign:
        pence = _number(last.key) if after.kind == UNIT and sign != "%" else None
        value += 0.0 if pence is None or last.kind != NUMBER else pence / 100
        return Value("percent" if sign == "%" else "amount", f"{sign}{canonical_value(value)}")
    if after.key in _UNITS:
        kind, factor = _UNITS[after.key]
        return Value(kind, canonical_value(value * factor))
    is_year = value.is_integer() and 1500 <= value < 2100
    return Value("year" if is_year else "count", canonical_value(value))


def _number(key: str) -> float | None:
    """The value of a number's key, None of what is no number."""
    try:
        value = float(key)
    except ValueError:
        return None
    return value if abs(value) < MOST else None


def _names(text: str) -> Iterator[Value]:
    """Words of the names of a text: capitalised, and not only since a sentence begins."""
    words = [*_CAPITAL.finditer(text)]
    for place, match in enumerate(words):
        name = _plain_name(match[0])
        before = text[max(0, match.start() - NEAR) : match.start()].rstrip(_MARKS)
        begins = before.endswith(_STOPS) or (not before and match.start() <= NEAR)
        is_none = name in _UNITS or (name in _NO_NAMES and (len(name) > 1 or begins))
        if not match[0][0].isupper() or is_none or name == "i":
            continue
        kind = "name"
        if begins and not match[0][1:].isupper():
            follows = next(
                (word for word in words[place + 1 : place + 3] if word[0][0].isupper()), None
            )
            joint = text[match.end() : follows.start()] if follows else ""
            if len(words) > 1 and not (follows and _RUN.fullmatch(joint)):
                continue
            kind = FIRST
        yield Value(kind, name)


def _plain_words(text: str) -> list[str]:
    """Words and numbers of a text as names are compared."""
    return [_plain_name(word) for word in re.findall(r"\w+", usual_forms(text))]


def _plain_name(word: str) -> str:
    """A word without case, accents and the ending of a genitive or plural; days in full."""
    plain = unaccented(word).casefold().removesuffix("'s").removesuffix("’s")
    plain = plain.removesuffix("s") if len(plain) > 4 else plain
    plain = _RATES.get(plain, plain)
    day = _DAYS.get(plain[:3], "")
    return day if day.startswith(plain) or plain in {"tues", "thurs"} else plain


def _reply(text: str) -> int:
    """1 or -1 where a text begins with a short yes or no in other words, else 0."""
    return next((sign for sign, begins in _REPLIES.items() if begins.match(text)), 0)


def _says_yes(facts: Facts, query: Facts) -> int:
    """1 or -1 where a text says yes or no to what is asked, 0 where neither is clear."""
    if facts.yes or facts.restricts:
        return facts.yes
    signs = dict(query.keys)
    shared = [sign * signs[key] for key, sign in facts.keys if key in signs]
    if len(shared) * 2 < len(signs) or not shared:
        return 0
    if min(shared) < 0 or (facts.negates and not query.negates):
        return -1
    return int(len(shared) * 3 >= len(signs) * 2 and facts.negates == query.negates)


def _opposes(stated: Facts, wanted: Facts, without: Iterable[str] = ()) -> bool:
    """Whether a word of both is negated, or stands for its opposite, in one of them."""
    return any((key, -sign) in stated.keys for key, sign in wanted.keys if key not in without)


def _swaps(answer: str, gold: str) -> bool:
    """Whether values stand with the words of others: `front 3.2, rear 3.8` and the reverse."""
    stated, wanted = _companions(answer), _companions(gold)
    every = frozenset().union(*wanted.values())
    return any(
        stated[key] & every and not stated[key] & values
        for key, values in wanted.items()
        if key in stated and key not in every
    )


def _companions(text: str) -> dict[str, frozenset[str]]:
    """Numbers, without any the names, that stand in one part of a text with each word."""
    parts = [claim_words(part) for part in _PART.split(text)]
    kind = NUMBER if any(word.kind == NUMBER for part in parts for word in part) else NAME
    beside: dict[str, frozenset[str]] = {}
    for part in parts:
        values = frozenset(word.key for word in part if word.kind == kind)
        for word in part:
            if word.kind in {WORD, NAME} and values and word.key not in values:
                beside[word.key] = beside.get(word.key, frozenset()) | values
    return beside
