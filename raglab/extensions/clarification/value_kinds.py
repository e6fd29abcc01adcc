"""Kinds of value (algebra): the values in a text, each found with its kind.

The kinds are dates, amounts, percentages, durations, phones, addresses, codes and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from raglab.words.languages import LANGUAGES
from raglab.words.numerals import any_of, dates_in

# Everything is in bounds, so that a hostile text takes no hours.
_NUMBER_PATTERN = (
    r"(?<![\d])\d{1,3}(?:[., \u00a0\u202f']\d{3}){1,5}(?:[.,]\d{1,2})?(?!\d)|(?<![\d])\d{1,"
    r"15}(?:[.,]\d{1,6})?(?!\d)"
)
_NUMERAL_WORDS = any_of(
    sorted(
        (word for words in LANGUAGES.numerals.numbers.values() for word in words if len(word) > 2),
        key=len,
        reverse=True,
    )
)
_COUNT_PATTERN = rf"(?:{_NUMBER_PATTERN}|(?:{_NUMERAL_WORDS})(?:[- ](?:{_NUMERAL_WORDS}))?)"
_MONEY_SIGNS = r"[£€$¥]|\b(?:GBP|EUR|USD|CHF|CAD|AUD)\b"
_MONEY_NAMES = (
    r"[£€$¥]|(?:GBP|EUR|USD|CHF|CAD|AUD|euros?|pounds?|dollars?|pence|cents?|centimes?|francs?|p|"
    r"c)\b"
)
_SCALE_WORDS = r"(?:\s?(?:k|m|bn|million|billion|thousand|milliards?|millions|mille)\b)?"
_SPAN_UNITS = (
    r"(?:minutes?|mins?|hours?|hrs?|days?|nights?|weeks?|fortnights?|months?|quarters?|years?|"
    r"yrs?|seconds?|secondes?|heures?|jours?|"
    r"nuits?|nuitées?|semaines?|mois|trimestres?|années?|ans?|h)"
)
_SPAN_ADJECTIVES = (
    r"(?:working|calendar|clear|consecutive|business|full|whole|more|further|ouvrés|ouvrables|"
    r"consécutifs|calendaires)"
)
_MEASURE_UNITS = (
    r"(?:k?Wh|k?W|m?Ah?|k?V|[kMG]?Hz|dB(?:\([A-Z]\))?|°\s?[CF]?|k?g|mg|lbs?|oz|km/h|mph|"
    r"[kcm]?m[²³23]?|km|miles?|[mc]?l|lit(?:re|er)s?|metres?|meters?|mètres?|"
    r"bars?|psi|rpm|tr/min|degrees?|degrés?|inch(?:es)?|pouces?|feet|ft|pages?|cups?|tasses?|"
    r"persons?|people|personnes?|points?)"
)
# of `10 to 40 °C`
_SPAN_START = r"(?:(?<![\w.,/-])[−–-]?\d{1,6}(?:[.,]\d{1,3})?(?:\s(?:to|and|à|et)\s|\s?[–]\s?))?"
_POSTCODE = r"(?:[A-Z]{1,2}\d[\dA-Z]? ?\d[A-Z]{2}|[A-Z][\w'’-]{1,30},? [A-Z]{2} \d{5})"
_TOWN = r"(?<=, )\d{5} [A-ZÀ-Þ][\w'’-]{1,30}"  # behind a street alone: sums look alike
_ADDRESS_WORD = r"(?:[A-ZÀ-Þ\d][\w'’./-]{0,30}|of|the|de|du|des|la|le)"
_STREET_LINE = r"\d{1,4} ?(?:bis|ter|[a-z])?,?(?: (?:de|du|des|of|[^\W\d][\w'’.-]{2,30})){1,5},? "
_ADDRESS_PARTS = rf"(?:[A-ZÀ-Þ][\w'’./-]{{0,30}}(?: {_ADDRESS_WORD}){{0,4}},? ){{0,3}}"
_ADDRESS_PATTERN = re.compile(
    rf"(?<![\w'’.-])(?:(?:{_STREET_LINE})?{_ADDRESS_PARTS}{_POSTCODE}|{_STREET_LINE}{_ADDRESS_PARTS}{_TOWN})(?![\w-])"
)
_EXPRESSIONS = (  # in the order of precedence
    ("email", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    ("url", r"(?:https?://|www\.)[^\s<>|,;)]{1,300}[^\s<>|,;).]"),
    (
        "amount",
        rf"(?:{_MONEY_SIGNS})\s?(?:{_NUMBER_PATTERN}){_SCALE_WORDS}|(?:{_NUMBER_PATTERN}){_SCALE_WORDS}\s?(?:{_MONEY_NAMES})",
    ),
    ("percentage", rf"(?:{_NUMBER_PATTERN})\s?(?:%|per\s?cent\b|pour\s?cent\b)"),
    (
        "time",
        (
            r"(?<!\d)(?:[01]?\d|2[0-3])(?::[0-5]\d|\s?h\s?[0-5]\d|\s?h(?=\s(?:et|à|-|–))|"
            r"(?:[:.][0-5]\d)"
            r"?\s?[ap]\.?m\b\.?)"
        ),
    ),
    (
        "duration",
        (
            rf"{_COUNT_PATTERN}(?:\s{_SPAN_ADJECTIVES})?[\s\u00a0-]{_SPAN_UNITS}\b(?:\s{_SPAN_ADJECTIVES})?|\b(?:a|an|un|une)"
            rf"\s(?:{_SPAN_UNITS})\b"
        ),
    ),
    ("quantity", rf"{_SPAN_START}(?:[−–-])?(?:{_NUMBER_PATTERN})\s?{_MEASURE_UNITS}(?![\w])"),
    (
        "phone",
        (
            r"(?<![\w./-])(?:\+\d{1,3}[\s.-]?)?(?:\(\d{1,5}\)[\s.-]?)?\d{2,5}(?:[\s.\u00a0-]\d{2,"
            r"6})"
            r"{1,5}(?![\w/-])"
        ),
    ),
    (
        "reference",
        (
            r"(?<![\w/.-])(?=[\w./-]{0,40}\d)(?=[\w./-]{0,40}[A-Z])[A-Z\d]{1,16}(?:[-/"
            r".][A-Za-z\d]{1,"
            r"16}){1,6}(?![\w/-])|(?<![\w/-])[A-Z]{1,4}\d{2,12}\b"
        ),
    ),
    ("number", rf"(?<![\w.,/-])(?:{_NUMBER_PATTERN})(?![\w/-])"),
)
# between the ends of a range
RANGE_JOINT = re.compile(r"\s?(?:to|through|until|till|à|~|–|—|-|…|\.\.\.)\s?\+?", re.IGNORECASE)
VALUE_KINDS = ("date", "address", *(kind for kind, _ in _EXPRESSIONS), "name", "text")
_ANY_VALUE = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _EXPRESSIONS), re.IGNORECASE
)
_PHONE_DIGITS = range(8, 16)  # of a phone number


class TypedValue(NamedTuple):
    """A value in a text: its kind, as it is printed, and where it begins and ends."""

    kind: str
    text: str
    start: int
    end: int


@lru_cache(maxsize=1 << 14)
def values_in(text: str) -> tuple[TypedValue, ...]:
    """Values of a text in order, none within another.

    Example:
      >>> [
      ...     (value.kind, value.text)
      ...     for value in values_in("£250 within 14 days, by 1 May 2025; ring 020 7946 0142")
      ... ]
      [('amount', '£250'), ('duration', '14 days'), ('date', '1 May 2025'), ('phone', '020 7946 \
0142')]
    """
    addresses = (
        TypedValue("address", address_match[0], *address_match.span())
        for address_match in _ADDRESS_PATTERN.finditer(text if "," in text else "")
        if "," in address_match[0]
    )
    dates = (
        TypedValue("date", text[text_date.start : text_date.end], text_date.start, text_date.end)
        for text_date in dates_in(text)
    )
    separate_values, taken_positions = list[TypedValue](), set[int]()  # places that a value has
    for typed_value in (*addresses, *dates, *_typed(text)):  # in the order of precedence
        value_positions = range(typed_value.start, typed_value.end)
        if taken_positions.isdisjoint(value_positions):
            taken_positions.update(value_positions)
            separate_values.append(typed_value)
    joined_values: list[TypedValue] = []
    for typed_value in sorted(separate_values, key=lambda typed_value: typed_value.start):
        # `from 9:00 to 17:00`, `de 14 h à 17 h` is one value
        is_end = typed_value.kind == "time" or _BARE_HOUR.fullmatch(typed_value.text)
        time_start = (
            joined_values[-1].start
            if is_end and joined_values and joined_values[-1].kind == "time"
            else None
        )
        if time_start is not None and RANGE_JOINT.fullmatch(
            text[joined_values[-1].end : typed_value.start]
        ):
            joined_values[-1] = TypedValue(
                "time", text[time_start : typed_value.end], time_start, typed_value.end
            )
        else:
            joined_values.append(typed_value)
    return tuple(joined_values)


def _typed(text: str) -> Iterator[TypedValue]:
    """Values of a text by the expressions of their kinds."""
    for value_match in _ANY_VALUE.finditer(text):
        value_kind = value_match.lastgroup or ""
        value_text = value_match[0].strip()
        if value_kind == "phone" and sum(map(str.isdigit, value_text)) not in _PHONE_DIGITS:
            value_kind = "number"
        if value_kind != "reference" or value_text.lower() != value_text:  # its capitals tell
            yield TypedValue(value_kind, value_text, *value_match.span())


_BARE_HOUR = re.compile(r"\d{1,2}\s?h")  # `14 h`, where a time stands before it
_CAPITAL_WORD = r"(?<![\w’'.-])[A-ZÀ-ÖØ-Þ][\w’'.-]{0,30}(?![\w’'-])"
_NAME_JOIN = r"(?:of|de|du|des|la|le|and|et|&|van|von|der|d’|d')"
NAME_PATTERN = (
    rf"{_CAPITAL_WORD}(?:\s(?:{_NAME_JOIN}\s)?{_CAPITAL_WORD}){{1,5}}(?:,?\s(?:plc|Ltd|LLP|SA|SAS|SARL|GmbH|Inc)"
    r"\b)?"
)
_FULL_NAME = re.compile(rf"(?:(?:Mrs?|Ms|Miss|Mme|Mlle|Dr|M)\.?\s)?{NAME_PATTERN}\.?")


def is_name(text: str) -> bool:
    """Whether a text is the name of a person or firm, as capitals tell it.

    Example:
      >>> is_name("Eleanor Whitcombe"), is_name("Acme Tools plc"), is_name("Security deposit")
      (True, True, False)
    """
    return _FULL_NAME.fullmatch(text.strip()) is not None
