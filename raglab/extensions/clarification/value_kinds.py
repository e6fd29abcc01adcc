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
_NUMBER = (
    r"(?<![\d])\d{1,3}(?:[., \u00a0\u202f']\d{3}){1,5}(?:[.,]\d{1,2})?(?!\d)|(?<![\d])\d{1,"
    r"15}(?:[.,]\d{1,6})?(?!\d)"
)
_NUMERALS = any_of(
    sorted(
        (word for words in LANGUAGES.numerals.numbers.values() for word in words if len(word) > 2),
        key=len,
        reverse=True,
    )
)
_COUNT = rf"(?:{_NUMBER}|(?:{_NUMERALS})(?:[- ](?:{_NUMERALS}))?)"
_MONEY = r"[£€$¥]|\b(?:GBP|EUR|USD|CHF|CAD|AUD)\b"
_MONEY_NAME = (
    r"[£€$¥]|(?:GBP|EUR|USD|CHF|CAD|AUD|euros?|pounds?|dollars?|pence|cents?|centimes?|francs?|p|"
    r"c)\b"
)
_SCALE = r"(?:\s?(?:k|m|bn|million|billion|thousand|milliards?|millions|mille)\b)?"
_SPAN = (
    r"(?:minutes?|mins?|hours?|hrs?|days?|nights?|weeks?|fortnights?|months?|quarters?|years?|"
    r"yrs?|seconds?|secondes?|heures?|jours?|"
    r"nuits?|nuitées?|semaines?|mois|trimestres?|années?|ans?|h)"
)
_BETWEEN = (
    r"(?:working|calendar|clear|consecutive|business|full|whole|more|further|ouvrés|ouvrables|"
    r"consécutifs|calendaires)"
)
_UNIT = (
    r"(?:k?Wh|k?W|m?Ah?|k?V|[kMG]?Hz|dB(?:\([A-Z]\))?|°\s?[CF]?|k?g|mg|lbs?|oz|km/h|mph|"
    r"[kcm]?m[²³23]?|km|miles?|[mc]?l|lit(?:re|er)s?|metres?|meters?|mètres?|"
    r"bars?|psi|rpm|tr/min|degrees?|degrés?|inch(?:es)?|pouces?|feet|ft|pages?|cups?|tasses?|"
    r"persons?|people|personnes?|points?)"
)
# of `10 to 40 °C`
_SPAN_START = r"(?:(?<![\w.,/-])[−–-]?\d{1,6}(?:[.,]\d{1,3})?(?:\s(?:to|and|à|et)\s|\s?[–]\s?))?"
_POSTCODE = r"(?:[A-Z]{1,2}\d[\dA-Z]? ?\d[A-Z]{2}|[A-Z][\w'’-]{1,30},? [A-Z]{2} \d{5})"
_TOWN = r"(?<=, )\d{5} [A-ZÀ-Þ][\w'’-]{1,30}"  # behind a street alone: sums look alike
_WORD = r"(?:[A-ZÀ-Þ\d][\w'’./-]{0,30}|of|the|de|du|des|la|le)"
_STREET = r"\d{1,4} ?(?:bis|ter|[a-z])?,?(?: (?:de|du|des|of|[^\W\d][\w'’.-]{2,30})){1,5},? "
_PARTS = rf"(?:[A-ZÀ-Þ][\w'’./-]{{0,30}}(?: {_WORD}){{0,4}},? ){{0,3}}"
_ADDRESS = re.compile(
    rf"(?<![\w'’.-])(?:(?:{_STREET})?{_PARTS}{_POSTCODE}|{_STREET}{_PARTS}{_TOWN})(?![\w-])"
)
_EXPRESSIONS = (  # in the order of precedence
    ("email", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    ("url", r"(?:https?://|www\.)[^\s<>|,;)]{1,300}[^\s<>|,;).]"),
    ("amount", rf"(?:{_MONEY})\s?(?:{_NUMBER}){_SCALE}|(?:{_NUMBER}){_SCALE}\s?(?:{_MONEY_NAME})"),
    ("percentage", rf"(?:{_NUMBER})\s?(?:%|per\s?cent\b|pour\s?cent\b)"),
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
            rf"{_COUNT}(?:\s{_BETWEEN})?[\s\u00a0-]{_SPAN}\b(?:\s{_BETWEEN})?|\b(?:a|an|un|une)"
            rf"\s(?:{_SPAN})\b"
        ),
    ),
    ("quantity", rf"{_SPAN_START}(?:[−–-])?(?:{_NUMBER})\s?{_UNIT}(?![\w])"),
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
    ("number", rf"(?<![\w.,/-])(?:{_NUMBER})(?![\w/-])"),
)
# between the ends of a range
RANGE = re.compile(r"\s?(?:to|through|until|till|à|~|–|—|-|…|\.\.\.)\s?\+?", re.IGNORECASE)
KINDS = ("date", "address", *(kind for kind, _ in _EXPRESSIONS), "name", "text")
_ANY = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _EXPRESSIONS), re.IGNORECASE
)
_DIGITS = range(8, 16)  # of a phone number


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
        TypedValue("address", match[0], *match.span())
        for match in _ADDRESS.finditer(text if "," in text else "")
        if "," in match[0]
    )
    dates = (
        TypedValue("date", text[date.start : date.end], date.start, date.end)
        for date in dates_in(text)
    )
    values, taken = list[TypedValue](), set[int]()  # places that a value has
    for value in (*addresses, *dates, *_typed(text)):  # in the order of precedence
        places = range(value.start, value.end)
        if taken.isdisjoint(places):
            taken.update(places)
            values.append(value)
    results: list[TypedValue] = []
    for value in sorted(values, key=lambda value: value.start):
        # `from 9:00 to 17:00`, `de 14 h à 17 h` is one value
        is_end = value.kind == "time" or _HOUR.fullmatch(value.text)
        start = results[-1].start if is_end and results and results[-1].kind == "time" else None
        if start is not None and RANGE.fullmatch(text[results[-1].end : value.start]):
            results[-1] = TypedValue("time", text[start : value.end], start, value.end)
        else:
            results.append(value)
    return tuple(results)


def _typed(text: str) -> Iterator[TypedValue]:
    """Values of a text by the expressions of their kinds."""
    for match in _ANY.finditer(text):
        kind, shown = match.lastgroup or "", match[0].strip()
        if kind == "phone" and sum(map(str.isdigit, shown)) not in _DIGITS:
            kind = "number"
        if kind != "reference" or shown.lower() != shown:  # its capitals tell
            yield TypedValue(kind, shown, *match.span())


_HOUR = re.compile(r"\d{1,2}\s?h")  # `14 h`, where a time stands before it
_CAPITAL = r"(?<![\w’'.-])[A-ZÀ-ÖØ-Þ][\w’'.-]{0,30}(?![\w’'-])"
_JOIN = r"(?:of|de|du|des|la|le|and|et|&|van|von|der|d’|d')"
NAME = (
    rf"{_CAPITAL}(?:\s(?:{_JOIN}\s)?{_CAPITAL}){{1,5}}(?:,?\s(?:plc|Ltd|LLP|SA|SAS|SARL|GmbH|Inc)"
    r"\b)?"
)
_NAME = re.compile(rf"(?:(?:Mrs?|Ms|Miss|Mme|Mlle|Dr|M)\.?\s)?{NAME}\.?")


def is_name(text: str) -> bool:
    """Whether a text is the name of a person or firm, as capitals tell it.

    Example:
      >>> is_name("Eleanor Whitcombe"), is_name("Acme Tools plc"), is_name("Security deposit")
      (True, True, False)
    """
    return _NAME.fullmatch(text.strip()) is not None
