"""Texts as words that carry facts: what each is known by, how much it counts, and which way it is turned."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._lexicon import (
    BONUS,
    KEY,
    MONTHS,
    NE,
    NEGATORS,
    NUMBERS,
    POLE_BEGINNINGS,
    POLES,
    SCALES,
    SMALL,
    SPEAKER,
    SUFFIXES,
    UNITS,
    WITH_NE,
)
from raglab.answering._numerals import counted, date_of, plain, value_of

BREAK, NEGATION, LITTLE, WORD, NAME, NUMBER, UNIT = "break", "negation", "little", "word", "name", "number", "unit"

_DATE = r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"
_DIGITS = r"\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*"
_CODE = r"\d+(?:[/:]\d+)+"
_LETTERS = r"[^\W\d_]+(?:['’][^\W\d_]+|\d[^\W_]*)*"
_MARKS = r"[.!?,;:()\[\]–—|\"“”«»]+"
_TOKEN = re.compile(rf"{_LETTERS}|{_MARKS}|{_DATE}|{_CODE}|(?:{_DIGITS})(?:[^\W\d_]+\d*)?|[%£€$]")
_NUMBER = re.compile(rf"({_DIGITS})([^\W\d_]+\d*)?")
_IS_DATE = re.compile(_DATE)
_ENGLISH = re.compile(r"(.+)n['’]t$")
_ORDINALS = frozenset(["st", "nd", "rd", "th", "e", "er", "ère", "ème", "s"])
_IRREGULAR = {"wo": "will", "ca": "can", "sha": "shall"}
_MAYBE_MONTHS = frozenset(["may", "march", "mars", "mai", "sept"])
_ADVERB = re.compile(
    r"(?!family|supply|apply|reply).{3,}ly$|.*(?:quement|alement|ivement|ièrement|eusement|amment|emment)$"
)
_ENDING = re.compile(r"(?<=[a-z]{3})(?:(?:ing|ed|e)?s?|(?<=[^s])s)$")
_PER_CENT = re.compile(r"\b(?:per|pour) ?cent\b", re.IGNORECASE)
_ENDS = frozenset(".!?")
_COUNTING = frozenset({*NUMBERS, *SCALES, *_MAYBE_MONTHS, "one", "m"})
_NO_NEGATION = {"not": {"only"}, "pas": {"seulement"}, "non": {"seulement", "plus"}}
_TURNING = NEGATORS | WITH_NE
EXACT = 15  # digits, with what parts them, up to which a number is known by its value
REACH = 6  # words after a negation among which the one that it turns is looked for


class Word(NamedTuple):
    """One word of a text.

    key: what it is known by; equal keys match. kind: what it is. sign: -1 where it stands for the opposite or is
    negated, else 1. negated: whether a negation turned it.
    """

    key: str
    kind: str
    sign: int = 1
    negated: bool = False


Part = tuple[str, Word]

_FIXED = {
    **{word: Word(f"m{number}", NUMBER) for word, number in MONTHS.items() if word not in _MAYBE_MONTHS},
    **{word: Word(unit, UNIT) for word, unit in UNITS.items()},
    **{word: Word(word, WORD) for word in SPEAKER},
    **dict.fromkeys(NEGATORS, Word("¬", NEGATION)),
    "à": Word("à", LITTLE),  # no `a`
}


def words_of(text: str) -> list[Word]:
    """The words of a text in order, punctuation that parts clauses among them, negations carried to what they turn.

    Numbers are known by their value, whether in digits or in words, months by their place, currencies by their sign.

    Example:
      >>> [(word.key, word.sign) for word in words_of("It doesn't cover 1,000 vans")]
      [('it', 1), ('doe', 1), ('¬', 1), ('~cover', -1), ('1000', 1), ('van', 1)]
    """
    parts: list[Part] = []
    first = True
    for token in _TOKEN.findall(_PER_CENT.sub("%", text)):
        parts += _parts(token, first)
        first = token in _ENDS
    texts = [part for part, _ in parts]
    if not _COUNTING.isdisjoint(texts):
        parts = _numbered(parts)
    return [word for _, word in parts] if _TURNING.isdisjoint(texts) else _turned(parts)


@lru_cache(maxsize=2**16)
def _known(word: str) -> Word:
    """A word in small letters by itself."""
    if word in _FIXED:
        return _FIXED[word]
    pole = POLES.get(word) or next((pole for start, pole in POLE_BEGINNINGS if word.startswith(start)), None)
    if pole:
        return Word(pole[0], WORD, pole[1])
    bare = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return Word(_ENDING.sub("", bare)[:KEY], LITTLE if word in SMALL or len(word) == 1 else WORD)


@lru_cache(maxsize=2**16)
def _parts(token: str, first: bool) -> tuple[Part, ...]:  # noqa: FBT001
    """Small letters and the word of each part of a token; `first` in its sentence, a capital is no name."""
    start = token[0]
    if start.isdigit():
        if _IS_DATE.fullmatch(token):
            return tuple((key, Word(key, NUMBER)) for key in date_of(token))
        number = _NUMBER.fullmatch(token)
        return tuple(_number(number[1], (number[2] or "").lower())) if number else ((token, Word(token, NUMBER)),)
    if start.isalpha():
        if any(letter.isdigit() for letter in token):
            return ((token.lower(), Word(token.lower(), NUMBER)),)
        known = [(piece, _known(piece)) for piece in _pieces(token)]
        if start.isupper() and (not first or (len(token) > 1 and token.isupper())):
            known = [(piece, word._replace(kind=NAME) if word.kind == WORD else word) for piece, word in known]
        return tuple(known)
    if start in UNITS:
        return ((token, _known(token)),)
    return ((token, Word("?", WORD) if "?" in token else Word("", BREAK)),)


def _pieces(part: str) -> list[str]:
    """Words in small letters of what is written as one: elisions, possessives, `n't`."""
    word = part.lower().replace("’", "'")
    negated = _ENGLISH.match(word)
    if negated:
        return [_IRREGULAR.get(negated[1], negated[1]), "not"]
    return [piece for piece in word.split("'") if piece != "s"] if "'" in word else [word]


def _number(digits: str, glued: str) -> Iterator[Part]:
    """A number by its value, and what is written to it."""
    if len(digits) > EXACT:
        yield digits, Word(digits + glued, NUMBER)
        return
    value = value_of(digits)
    if glued in SUFFIXES:
        yield digits, Word(plain(value * SUFFIXES[glued]), NUMBER)
    elif not glued or glued in _ORDINALS:
        yield digits, Word(plain(value), NUMBER)
    elif glued.isalpha():
        yield digits, Word(plain(value), NUMBER)
        yield glued, _known(glued)
    else:
        yield digits, Word(digits + glued, NUMBER)


def _numbered(parts: list[Part]) -> list[Part]:
    """Number words joined into their value, and months that may be other words told by a number beside them."""
    out: list[Part] = []
    texts = [text for text, _ in parts]
    at = 0
    while at < len(parts):
        text, word = parts[at]
        scale = _scale(parts, at) if word.kind == NUMBER else 0
        if scale:
            out.append((text, word._replace(key=plain(float(word.key) * scale))))
            at += 2
        elif text in NUMBERS or text in SCALES or text == "one":
            value, end = counted(texts, at)
            lone = text == "one" and end == at + 1
            out.append((text, Word(str(value), LITTLE if lone else NUMBER)))
            at = end
        elif text in _MAYBE_MONTHS:
            beside = [parts[i][1].kind for i in (at - 1, at + 1) if 0 <= i < len(parts)]
            out.append((text, Word(f"m{MONTHS[text]}", NUMBER) if NUMBER in beside else word))
            at += 1
        else:
            out.append(parts[at])
            at += 1
    return out


def _scale(parts: list[Part], at: int) -> int:
    """What the number in digits here is multiplied by: 10**6 in `2 million` and in `£2m`, 0 if by nothing."""
    if at + 1 == len(parts) or not parts[at][0][0].isdigit() or not parts[at][1].key.replace(".", "", 1).isdigit():
        return 0
    follows = parts[at + 1][0]
    if follows == "m":
        return 10**6 if at and parts[at - 1][0] in UNITS else 0
    return SCALES.get(follows, 0)


def _turned(parts: list[Part]) -> list[Word]:
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
        after, before = range(at + 1, min(len(parts), at + 1 + REACH)), range(at - 1, max(-1, at - 1 - REACH), -1)
        spans = (range(since, at), after, before)
        focus = next((found for span in spans if (found := _focus(parts, span)) is not None), None)
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
    if text == "no" and follows[0] in {"claim", "claims"} and at + 2 < len(parts) and parts[at + 2][0] in BONUS:
        return False, at
    if text == "no" and (follows[0].startswith(".") or follows[1].kind == NUMBER):
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
