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
KEY_LETTERS = 5

# Words that carry no fact of their own, beyond those that a question is read without.
SMALL_WORDS = STOP_WORDS | frozenset(LANGUAGES.words.small)
SPEAKER_WORDS = frozenset(LANGUAGES.words.speaker)  # talk: these count as any other word

# Currencies are known by their signs, whatever the language calls them.
_CURRENCY_SIGNS = {"GBP": "£", "EUR": "€", "USD": "$"}
UNIT_SIGNS = {
    **{word: "%" for word in ("%", *LANGUAGES.quantities.percent) if " " not in word},
    **{
        word: sign
        for code, sign in _CURRENCY_SIGNS.items()
        for word in (sign, code.lower(), *LANGUAGES.quantities.currencies.get(code, ()))
    },
}

_NUMERAL_TABLES = tables()
MONTHS, NUMBERS, SCALES = _NUMERAL_TABLES.months, _NUMERAL_TABLES.numbers, _NUMERAL_TABLES.scales
NUMBER_SUFFIXES = {**_NUMERAL_TABLES.suffixes, **SCALES}

# What turns the next word of substance. A particle such as French `ne` alone turns nothing: `ne …
# que` is `only`.
NEGATORS = frozenset(LANGUAGES.negation.negators)
NEGATORS_WITH_PARTICLE = frozenset(LANGUAGES.negation.with_particle)
NEGATION_PARTICLES = frozenset(LANGUAGES.negation.particles)


# Ideas and signs by word; an ending of `-` is for all words that begin so.
_WORD_POLES = {
    word: (f"~{name}", sign)
    for name, poles in LANGUAGES.opposites.items()
    for sign, pole in ((1, poles.positive), (-1, poles.negative))
    for word in pole
}
POLES = {word: pole for word, pole in _WORD_POLES.items() if not word.endswith("-")}
POLE_BEGINNINGS = sorted(
    ((word.rstrip("-"), pole) for word, pole in _WORD_POLES.items() if word.endswith("-")),
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

_DATE_DIGITS = r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"
_DIGIT_RUN = r"\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*"
_CODE_DIGITS = r"\d+(?:[/:]\d+)+"
_LETTER_RUN = r"[^\W\d_]+(?:['’][^\W\d_]+|\d[^\W_]*)*"
_MARK_RUN = r"[.!?,;:()\[\]–—|\"“”«»]+"
_TOKEN_EXPRESSION = (
    rf"{_LETTER_RUN}|{_MARK_RUN}|{_DATE_DIGITS}|{_CODE_DIGITS}"
    rf"|(?:{_DIGIT_RUN})(?:[^\W\d_]+\d*)?|[%£€$]"
)
_PLAIN_TOKEN = re.compile(_TOKEN_EXPRESSION)
# for other scripts: its letters include their marks
_MARKED_TOKEN = regex.compile(_TOKEN_EXPRESSION)
_NUMBER_TOKEN = re.compile(rf"({_DIGIT_RUN})([^\W\d_]+\d*)?")
_DATE_TOKEN = re.compile(_DATE_DIGITS)
# don't, isn't
_CONTRACTED_NEGATION = re.compile(rf"\A(.+)(?:{any_of(LANGUAGES.negation.contracted) or '(?!)'})$")
_IRREGULAR_NEGATIONS = LANGUAGES.negation.irregular
_ORDINAL_ENDINGS = _NUMERAL_TABLES.endings
_MAYBE_MONTHS = frozenset(LANGUAGES.months_or_words)
_ADVERB_WORD = re.compile(rf"\A(?:{'|'.join(LANGUAGES.words.adverbs) or '(?!)'})")
_WORD_ENDING = re.compile(r"(?<=[a-z]{3})(?:(?:ing|ed|e)?s?|(?<=[^s])s)$")
_PER_CENT = re.compile(
    rf"\b(?:{any_of([phrase for phrase in LANGUAGES.quantities.percent if ' ' in phrase])})\b",
    re.IGNORECASE,
)
_SENTENCE_END_MARKS = frozenset(".!?")
_COUNTING_WORDS = frozenset({*NUMBERS, *SCALES, *_MAYBE_MONTHS, *_NUMERAL_TABLES.money_suffixes})
_NEGATING_WORDS = NEGATORS | NEGATORS_WITH_PARTICLE
_NO_NEGATION = {word: frozenset(follows) for word, follows in LANGUAGES.negation.not_before.items()}
_NUMBERING = frozenset(LANGUAGES.negation.numbering)
_NEGATING_NAMES = frozenset(tuple(name.split()) for name in LANGUAGES.negation.names)
_LONGEST_NEGATING_NAME = max(map(len, _NEGATING_NAMES), default=0)
MAX_EXACT_DIGITS = 15  # digits, with what parts them, up to which a number is known by its value
NEGATION_REACH = 6  # words after a negation among which the one that it turns is looked for


class Word(NamedTuple):
    """One word of a text.

    key: what it is known by; equal keys match. kind: what it is. sign: -1 where it stands for the
    opposite or is negated, else 1. negated: whether a negation turned it.
    """

    key: str
    kind: str
    sign: int = 1
    negated: bool = False


WordPart = tuple[str, Word]

_FIXED_WORDS = {
    **{
        word: Word(f"m{number}", NUMBER)
        for word, number in MONTHS.items()
        if word not in _MAYBE_MONTHS
    },
    **{word: Word(unit, UNIT) for word, unit in UNIT_SIGNS.items()},
    **{word: Word(word, WORD) for word in SPEAKER_WORDS},
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
    word_parts: list[WordPart] = []
    is_first = True
    token_pattern = _PLAIN_TOKEN if is_plain(text) else _MARKED_TOKEN
    for token in token_pattern.findall(_PER_CENT.sub("%", comma_thousands(spaced(text)))):
        word_parts += _token_parts(token, is_first)
        is_first = token in _SENTENCE_END_MARKS
    part_texts = [part_text for part_text, _ in word_parts]
    if not _COUNTING_WORDS.isdisjoint(part_texts):
        word_parts = _join_numerals(word_parts)
    return (
        [word for _, word in word_parts]
        if _NEGATING_WORDS.isdisjoint(part_texts)
        else _carry_negation(word_parts)
    )


@lru_cache(maxsize=2**16)
def _plain_word(small_word: str) -> Word:
    """A word in small letters by itself."""
    if small_word in _FIXED_WORDS:
        return _FIXED_WORDS[small_word]
    word_pole = POLES.get(small_word) or next(
        (
            word_pole
            for word_start, word_pole in POLE_BEGINNINGS
            if small_word.startswith(word_start)
        ),
        None,
    )
    if word_pole:
        return Word(word_pole[0], WORD, word_pole[1])
    return Word(
        _WORD_ENDING.sub("", unaccented(small_word))[:KEY_LETTERS],
        LITTLE if small_word in SMALL_WORDS or len(small_word) == 1 else WORD,
    )


@lru_cache(maxsize=2**16)
def _token_parts(token: str, is_first: bool) -> tuple[WordPart, ...]:  # noqa: FBT001
    """Small letters and the word of each part of a token.

    `is_first` in its sentence, a capital is no name.
    """
    first_character = token[0]
    if first_character.isdigit():
        if _DATE_TOKEN.fullmatch(token):
            year, month, day = calendar_date(token)
            return tuple(
                (part_key, Word(part_key, NUMBER))
                for part_key in (str(day), f"m{month}", str(year))
            )
        number_match = _NUMBER_TOKEN.fullmatch(token)
        return (
            tuple(_number_parts(number_match[1], (number_match[2] or "").lower()))
            if number_match
            else ((token, Word(token, NUMBER)),)
        )
    if first_character.isalpha():
        if any(character.isdigit() for character in token):
            return ((token.lower(), Word(token.lower(), NUMBER)),)
        token_words = [
            (word_piece, _plain_word(word_piece)) for word_piece in _split_elisions(token)
        ]
        if first_character.isupper() and (not is_first or (len(token) > 1 and token.isupper())):
            token_words = [
                (
                    word_piece,
                    piece_word._replace(kind=NAME) if piece_word.kind == WORD else piece_word,
                )
                for word_piece, piece_word in token_words
            ]
        return tuple(token_words)
    if first_character in UNIT_SIGNS:
        return ((token, _plain_word(token)),)
    return ((token, Word("?", WORD) if "?" in token else Word("", BREAK)),)


def _split_elisions(token_part: str) -> list[str]:
    """Words in small letters of what is written as one: elisions, possessives, `n't`."""
    small_word = token_part.lower().replace("’", "'")
    negated_match = _CONTRACTED_NEGATION.match(small_word)
    if negated_match:
        return [
            _IRREGULAR_NEGATIONS.get(negated_match[1], negated_match[1]),
            *LANGUAGES.negation.contracted_as,
        ]
    return (
        [elided_piece for elided_piece in small_word.split("'") if elided_piece != "s"]
        if "'" in small_word
        else [small_word]
    )


def _number_parts(digit_text: str, suffix: str) -> Iterator[WordPart]:
    """A number by its value, and what is written to it."""
    if len(digit_text) > MAX_EXACT_DIGITS:
        yield digit_text, Word(digit_text + suffix, NUMBER)
        return
    number_text = plain_number(digit_text)
    if number_text is None:  # of a section, a version, an address: known as it is written
        yield digit_text, Word(digit_text + suffix, NUMBER)
        return
    number_value = float(number_text)
    if suffix in NUMBER_SUFFIXES:
        yield digit_text, Word(canonical_value(number_value * NUMBER_SUFFIXES[suffix]), NUMBER)
    elif not suffix or suffix in _ORDINAL_ENDINGS:
        yield digit_text, Word(canonical_value(number_value), NUMBER)
    elif suffix.isalpha():
        yield digit_text, Word(canonical_value(number_value), NUMBER)
        yield suffix, _plain_word(suffix)
    else:
        yield digit_text, Word(digit_text + suffix, NUMBER)


def _join_numerals(word_parts: list[WordPart]) -> list[WordPart]:
    """Number words joined into their value.

    A number beside it decides whether an ambiguous word is a month.
    """
    joined_parts: list[WordPart] = []
    part_texts = [part_text for part_text, _ in word_parts]
    part_index = 0
    while part_index < len(word_parts):
        part_text, part_word = word_parts[part_index]
        scale_factor = _number_scale(word_parts, part_index) if part_word.kind == NUMBER else 0
        if scale_factor:  # figures and the word that multiplies them are one number
            joined_parts.append(
                (
                    part_text,
                    part_word._replace(key=canonical_value(float(part_word.key) * scale_factor)),
                )
            )
            part_index += 2
        elif part_text in NUMBERS or part_text in SCALES:
            numeral_value, numeral_end = number_word_value(part_texts, part_index)
            # `one` may be a pronoun
            is_lone_one = numeral_value == 1 and numeral_end == part_index + 1
            joined_parts.append(
                (part_text, Word(str(numeral_value), LITTLE if is_lone_one else NUMBER))
            )
            part_index = numeral_end
        # `may` and `march` are verbs where no number is beside them
        elif part_text in _MAYBE_MONTHS:
            neighbour_kinds = [
                word_parts[neighbour][1].kind
                for neighbour in (part_index - 1, part_index + 1)
                if 0 <= neighbour < len(word_parts)
            ]
            joined_parts.append(
                (
                    part_text,
                    Word(f"m{MONTHS[part_text]}", NUMBER)
                    if NUMBER in neighbour_kinds
                    else part_word,
                )
            )
            part_index += 1
        else:
            joined_parts.append(word_parts[part_index])
            part_index += 1
    return joined_parts


def _number_scale(word_parts: list[WordPart], part_index: int) -> int:
    """What the number in digits here is multiplied by.

    10**6 in `2 million` and in `£2m`, 0 if by nothing.
    """
    if (
        part_index + 1 == len(word_parts)
        or not word_parts[part_index][0][0].isdigit()
        or not word_parts[part_index][1].key.replace(".", "", 1).isdigit()
    ):
        return 0
    next_text = word_parts[part_index + 1][0]
    if next_text in _NUMERAL_TABLES.money_suffixes:  # metres elsewhere
        return (
            _NUMERAL_TABLES.money_suffixes[next_text]
            if part_index and word_parts[part_index - 1][0] in UNIT_SIGNS
            else 0
        )
    return SCALES.get(next_text, 0)


def _carry_negation(word_parts: list[WordPart]) -> list[Word]:
    """Words with the sign of those that a negation turns."""
    signed_words = [part_word for _, part_word in word_parts]
    for part_index, (part_text, part_word) in enumerate(word_parts):
        if part_word.kind != NEGATION and part_text not in NEGATORS_WITH_PARTICLE:
            continue
        is_negating, verb_start = _is_negation(word_parts, part_index)
        if not is_negating:
            signed_words[part_index] = Word(part_text[:KEY_LETTERS], LITTLE)
            continue
        signed_words[part_index] = Word("¬", NEGATION)
        positions_after = range(
            part_index + 1, min(len(word_parts), part_index + 1 + NEGATION_REACH)
        )
        positions_before = range(part_index - 1, max(-1, part_index - 1 - NEGATION_REACH), -1)
        search_spans = (range(verb_start, part_index), positions_after, positions_before)
        negated_index = next(
            (
                position
                for search_span in search_spans
                if (position := _negated_position(word_parts, search_span)) is not None
            ),
            None,
        )
        if negated_index is not None:
            turned_word = signed_words[negated_index]
            signed_words[negated_index] = turned_word._replace(
                sign=-turned_word.sign, negated=not turned_word.negated
            )
    return signed_words


def _is_negation(word_parts: list[WordPart], part_index: int) -> tuple[bool, int]:
    """Whether a word negates, and from where on the verb may stand before it."""
    part_text, part_word = word_parts[part_index]
    particle_index = next(
        (
            earlier_index
            for earlier_index in range(part_index - 1, max(-1, part_index - 5), -1)
            if word_parts[earlier_index][0] in NEGATION_PARTICLES
        ),
        None,
    )
    verb_start = part_index if particle_index is None else particle_index + 1
    if part_text in NEGATORS_WITH_PARTICLE:
        return particle_index is not None, verb_start
    if part_word.kind != NEGATION:
        return False, part_index
    next_part = (
        word_parts[part_index + 1] if part_index + 1 < len(word_parts) else ("", Word("", BREAK))
    )
    if next_part[0] in _NO_NEGATION.get(part_text, ()):
        return False, part_index
    if any(
        tuple(part_piece for part_piece, _ in word_parts[part_index : part_index + name_length])
        in _NEGATING_NAMES
        for name_length in range(2, _LONGEST_NEGATING_NAME + 1)
    ):
        return False, part_index
    if part_text in _NUMBERING and (next_part[0].startswith(".") or next_part[1].kind == NUMBER):
        return False, part_index
    return True, verb_start


def _negated_position(word_parts: list[WordPart], search_span: range) -> int | None:
    """The first word of substance within one clause; an adverb only if it is alone."""
    adverb_index = None
    for part_index in search_span:
        text, (_, word_kind, *_) = word_parts[part_index]
        if word_kind == BREAK:
            break
        if word_kind in {WORD, NAME, NUMBER, UNIT}:
            if not _ADVERB_WORD.match(text):
                return part_index
            adverb_index = part_index if adverb_index is None else adverb_index
    return adverb_index
