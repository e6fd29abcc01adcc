"""Claims as words (algebra): tokens, numbers as written, negations, the words that bear weight.

Nothing here is learned: the words stand in the files of `raglab.words.languages`, and are known by
their beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import regex

from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES
from raglab.words.numerals import (
    any_of,
    calendar_date,
    comma_thousands,
    number_word_value,
    plain_number,
    tables,
)
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import is_plain, spaced

# Letters that a word is known by: `covered`, `covering` and `coverage` are one, so are `durée` and
# `durera`.
KEY = 5

# Words that carry no fact of their own, beyond those that a question is read without.
SMALL = STOP_WORDS | frozenset(LANGUAGES.words.small)
SPEAKER = frozenset(LANGUAGES.words.speaker)  # talk: these count as any other word

# Currencies are known by their signs, whatever the language calls them.
_SIGNS = {"GBP": "£", "EUR": "€", "USD": "$"}
UNITS = {
    **{word: "%" for word in ("%", *LANGUAGES.quantities.percent) if " " not in word},
    **{
        word: sign
        for code, sign in _SIGNS.items()
        for word in (sign, code.lower(), *LANGUAGES.quantities.currencies.get(code, ()))
    },
}

_NUMERALS = tables()
MONTHS, NUMBERS, SCALES = _NUMERALS.months, _NUMERALS.numbers, _NUMERALS.scales
SUFFIXES = {**_NUMERALS.suffixes, **SCALES}

# What turns the next word of substance. A particle such as French `ne` alone turns nothing: `ne …
# que` is `only`.
NEGATORS = frozenset(LANGUAGES.negation.negators)
WITH_NE = frozenset(LANGUAGES.negation.with_particle)
NE = frozenset(LANGUAGES.negation.particles)


# Ideas and signs by word; an ending of `-` is for all words that begin so.
_POLES = {
    word: (f"~{name}", sign)
    for name, poles in LANGUAGES.opposites.items()
    for sign, pole in ((1, poles.positive), (-1, poles.negative))
    for word in pole
}
POLES = {word: pole for word, pole in _POLES.items() if not word.endswith("-")}
POLE_BEGINNINGS = sorted(
    ((word.rstrip("-"), pole) for word, pole in _POLES.items() if word.endswith("-")),
    key=lambda item: (-len(item[0]), item[0]),
)


def canonical_value(value: float) -> str:
    """A value as every way of writing it is known by.

    Example:
      >>> canonical_value(250.0), canonical_value(0.1 + 0.2)
      ('250', '0.3')
    """
    return str(int(value)) if value == int(value) else repr(round(value, 6))


BREAK, NEGATION, LITTLE, WORD, NAME, NUMBER, UNIT = (
    "break",
    "negation",
    "little",
    "word",
    "name",
    "number",
    "unit",
)

_DATE = r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"
_DIGIT_RUN = r"\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*"
_CODE = r"\d+(?:[/:]\d+)+"
_LETTERS = r"[^\W\d_]+(?:['’][^\W\d_]+|\d[^\W_]*)*"
_MARKS = r"[.!?,;:()\[\]–—|\"“”«»]+"
_EXPRESSION = rf"{_LETTERS}|{_MARKS}|{_DATE}|{_CODE}|(?:{_DIGIT_RUN})(?:[^\W\d_]+\d*)?|[%£€$]"
_TOKEN = re.compile(_EXPRESSION)
_MARKED_TOKEN = regex.compile(_EXPRESSION)  # for other scripts: its letters include their marks
_NUMBER = re.compile(rf"({_DIGIT_RUN})([^\W\d_]+\d*)?")
_IS_DATE = re.compile(_DATE)
# don't, isn't
_CONTRACTED = re.compile(rf"\A(.+)(?:{any_of(LANGUAGES.negation.contracted) or '(?!)'})$")
_IRREGULAR = LANGUAGES.negation.irregular
_ENDINGS = _NUMERALS.endings
_MAYBE_MONTHS = frozenset(LANGUAGES.months_or_words)
_ADVERB = re.compile(rf"\A(?:{'|'.join(LANGUAGES.words.adverbs) or '(?!)'})")
_ENDING = re.compile(r"(?<=[a-z]{3})(?:(?:ing|ed|e)?s?|(?<=[^s])s)$")
_PER_CENT = re.compile(
    rf"\b(?:{any_of([phrase for phrase in LANGUAGES.quantities.percent if ' ' in phrase])})\b",
    re.IGNORECASE,
)
_ENDS = frozenset(".!?")
_COUNTING = frozenset({*NUMBERS, *SCALES, *_MAYBE_MONTHS, *_NUMERALS.money_suffixes})
_TURNING = NEGATORS | WITH_NE
_NO_NEGATION = {word: frozenset(follows) for word, follows in LANGUAGES.negation.not_before.items()}
_NUMBERING = frozenset(LANGUAGES.negation.numbering)
_NAMES = frozenset(tuple(name.split()) for name in LANGUAGES.negation.names)
_LONGEST_NAME = max(map(len, _NAMES), default=0)
EXACT = 15  # digits, with what parts them, up to which a number is known by its value
REACH = 6  # words after a negation among which the one that it turns is looked for


class Word(NamedTuple):
    """One word of a text.

    key: what it is known by; equal keys match. kind: what it is. sign: -1 where it stands for the
    opposite or is negated, else 1. negated: whether a negation turned it.
    """

    key: str
    kind: str
    sign: int = 1
    negated: bool = False


Part = tuple[str, Word]

_FIXED = {
    **{
        word: Word(f"m{number}", NUMBER)
        for word, number in MONTHS.items()
        if word not in _MAYBE_MONTHS
    },
    **{word: Word(unit, UNIT) for word, unit in UNITS.items()},
    **{word: Word(word, WORD) for word in SPEAKER},
    **dict.fromkeys(NEGATORS, Word("¬", NEGATION)),
    "à": Word("à", LITTLE),  # no `a`
}


def claim_words(text: str) -> list[Word]:
    """Words and clause punctuation of a text in order, negations carried to what they turn.

    Numbers are known by their value, whether in digits or in words, months by their place,
    currencies by their sign.

    Example:
      >>> [(word.key, word.sign) for word in claim_words("It doesn't cover 1,000 vans")]
      [('it', 1), ('doe', 1), ('¬', 1), ('~cover', -1), ('1000', 1), ('van', 1)]
    """
    parts: list[Part] = []
    first = True
    token_pattern = _TOKEN if is_plain(text) else _MARKED_TOKEN
    for token in token_pattern.findall(_PER_CENT.sub("%", comma_thousands(spaced(text)))):
        parts += _token_parts(token, first)
        first = token in _ENDS
    texts = [part for part, _ in parts]
    if not _COUNTING.isdisjoint(texts):
        parts = _join_numerals(parts)
    return [word for _, word in parts] if _TURNING.isdisjoint(texts) else _carry_negation(parts)


@lru_cache(maxsize=2**16)
def _plain_word(word: str) -> Word:
    """A word in small letters by itself."""
    if word in _FIXED:
        return _FIXED[word]
    pole = POLES.get(word) or next(
        (pole for start, pole in POLE_BEGINNINGS if word.startswith(start)), None
    )
    if pole:
        return Word(pole[0], WORD, pole[1])
    return Word(
        _ENDING.sub("", unaccented(word))[:KEY], LITTLE if word in SMALL or len(word) == 1 else WORD
    )


@lru_cache(maxsize=2**16)
def _token_parts(token: str, first: bool) -> tuple[Part, ...]:  # noqa: FBT001
    """Small letters and the word of each part of a token.

    `first` in its sentence, a capital is no name.
    """
    start = token[0]
    if start.isdigit():
        if _IS_DATE.fullmatch(token):
            year, month, day = calendar_date(token)
            return tuple((key, Word(key, NUMBER)) for key in (str(day), f"m{month}", str(year)))
        number = _NUMBER.fullmatch(token)
        return (
            tuple(_number_parts(number[1], (number[2] or "").lower()))
            if number
            else ((token, Word(token, NUMBER)),)
        )
    if start.isalpha():
        if any(letter.isdigit() for letter in token):
            return ((token.lower(), Word(token.lower(), NUMBER)),)
        known = [(piece, _plain_word(piece)) for piece in _split_elisions(token)]
        if start.isupper() and (not first or (len(token) > 1 and token.isupper())):
            known = [
                (piece, word._replace(kind=NAME) if word.kind == WORD else word)
                for piece, word in known
            ]
        return tuple(known)
    if start in UNITS:
        return ((token, _plain_word(token)),)
    return ((token, Word("?", WORD) if "?" in token else Word("", BREAK)),)


def _split_elisions(part: str) -> list[str]:
    """Words in small letters of what is written as one: elisions, possessives, `n't`."""
    word = part.lower().replace("’", "'")
    negated = _CONTRACTED.match(word)
    if negated:
        return [_IRREGULAR.get(negated[1], negated[1]), *LANGUAGES.negation.contracted_as]
    return [piece for piece in word.split("'") if piece != "s"] if "'" in word else [word]


def _number_parts(digits: str, glued: str) -> Iterator[Part]:
    """A number by its value, and what is written to it."""
    if len(digits) > EXACT:
        yield digits, Word(digits + glued, NUMBER)
        return
    number = plain_number(digits)
    if number is None:  # of a section, a version, an address: known as it is written
        yield digits, Word(digits + glued, NUMBER)
        return
    value = float(number)
    if glued in SUFFIXES:
        yield digits, Word(canonical_value(value * SUFFIXES[glued]), NUMBER)
    elif not glued or glued in _ENDINGS:
        yield digits, Word(canonical_value(value), NUMBER)
    elif glued.isalpha():
        yield digits, Word(canonical_value(value), NUMBER)
        yield glued, _plain_word(glued)
    else:
        yield digits, Word(digits + glued, NUMBER)


def _join_numerals(parts: list[Part]) -> list[Part]:
    """Number words joined into their value.

    A number beside it decides whether an ambiguous word is a month.
    """
    out: list[Part] = []
    texts = [text for text, _ in parts]
    at = 0
    while at < len(parts):
        text, word = parts[at]
        scale = _scale(parts, at) if word.kind == NUMBER else 0
        if scale:  # figures and the word that multiplies them are one number
            out.append((text, word._replace(key=canonical_value(float(word.key) * scale))))
            at += 2
        elif text in NUMBERS or text in SCALES:
            value, end = number_word_value(texts, at)
            lone = value == 1 and end == at + 1  # `one` may be a pronoun
            out.append((text, Word(str(value), LITTLE if lone else NUMBER)))
            at = end
        elif text in _MAYBE_MONTHS:  # `may` and `march` are verbs where no number is beside them
            beside = [parts[i][1].kind for i in (at - 1, at + 1) if 0 <= i < len(parts)]
            out.append((text, Word(f"m{MONTHS[text]}", NUMBER) if NUMBER in beside else word))
            at += 1
        else:
            out.append(parts[at])
            at += 1
    return out


def _scale(parts: list[Part], at: int) -> int:
    """What the number in digits here is multiplied by.

    10**6 in `2 million` and in `£2m`, 0 if by nothing.
    """
    if (
        at + 1 == len(parts)
        or not parts[at][0][0].isdigit()
        or not parts[at][1].key.replace(".", "", 1).isdigit()
    ):
        return 0
    follows = parts[at + 1][0]
    if follows in _NUMERALS.money_suffixes:  # metres elsewhere
        return _NUMERALS.money_suffixes[follows] if at and parts[at - 1][0] in UNITS else 0
    return SCALES.get(follows, 0)


def _carry_negation(parts: list[Part]) -> list[Word]:
    """Words with the sign of those that a negation turns."""
    words = [word for _, word in parts]
    for at, (text, word) in enumerate(parts):
        if word.kind != NEGATION and text not in WITH_NE:
            continue
        negates, since = _negates(parts, at)
        if not negates:
            words[at] = Word(text[:KEY], LITTLE)
            continue
        words[at] = Word("¬", NEGATION)
        after, before = (
            range(at + 1, min(len(parts), at + 1 + REACH)),
            range(at - 1, max(-1, at - 1 - REACH), -1),
        )
        spans = (range(since, at), after, before)
        focus = next(
            (position for span in spans if (position := _focus(parts, span)) is not None), None
        )
        if focus is not None:
            turned = words[focus]
            words[focus] = turned._replace(sign=-turned.sign, negated=not turned.negated)
    return words


def _negates(parts: list[Part], at: int) -> tuple[bool, int]:
    """Whether a word negates, and from where on the verb may stand before it."""
    text, word = parts[at]
    ne = next((i for i in range(at - 1, max(-1, at - 5), -1) if parts[i][0] in NE), None)
    since = at if ne is None else ne + 1
    if text in WITH_NE:
        return ne is not None, since
    if word.kind != NEGATION:
        return False, at
    follows = parts[at + 1] if at + 1 < len(parts) else ("", Word("", BREAK))
    if follows[0] in _NO_NEGATION.get(text, ()):
        return False, at
    if any(
        tuple(piece for piece, _ in parts[at : at + n]) in _NAMES
        for n in range(2, _LONGEST_NAME + 1)
    ):
        return False, at
    if text in _NUMBERING and (follows[0].startswith(".") or follows[1].kind == NUMBER):
        return False, at
    return True, since


def _focus(parts: list[Part], span: range) -> int | None:
    """The first word of substance within one clause; an adverb only if it is alone."""
    adverb = None
    for at in span:
        text, (_, kind, *_) = parts[at]
        if kind == BREAK:
            break
        if kind in {WORD, NAME, NUMBER, UNIT}:
            if not _ADVERB.match(text):
                return at
            adverb = at if adverb is None else adverb
    return adverb
