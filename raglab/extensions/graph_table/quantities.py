"""Quantities (shore): money, dates, shares and spans read from text."""

from __future__ import annotations

import datetime as dt
import re
from calendar import monthrange
from collections.abc import Mapping
from math import inf, isfinite, nan
from typing import Literal, NamedTuple

from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import (
    NUMBER_BLANKS,
    any_of,
    bound_opening,
    currencies,
    date_at,
    dates_in,
    plain_number,
    tables,
)

_WORDS = LANGUAGES.quantities
# units that are written so in every language, then those of the languages, by word
UNIT_OF: Mapping[str, str] = {
    "%": "%",
    "km": "km",
    "m²": "m²",
    "m2": "m²",
    "t": "t",
    "kg": "kg",
    "cm": "cm",
    "kwh": "kWh",
    **{word: unit for unit, words in _WORDS.units.items() for word in words},
    **dict.fromkeys(_WORDS.percent, "%"),
}


Kind = Literal["money", "percent", "date", "number", "text", "missing"]

LONGEST = 400  # characters of a cell that are looked at: a longer one is prose
# "27 vans" and "3 per cent" count something, "12 Small van, up to 2.0 t" names it
_WORDS_OF_A_COUNT = 2
_PLACES = 2  # decimals of a figure that needs more than its cells have
_EVEN = 6  # decimals up to which two figures are the same
_LARGEST = 1e15  # beyond it a float64 is no longer exact to a cent


class Quantity(NamedTuple):
    """What a cell states.

    low, high: its bounds, equal where it is one number, NaN where there is none; of a date its days
    as ordinals. unit: `GBP`, `%`, `days`, `date`; '' where none is written. note: what else the
    cell says.
    """

    kind: Kind
    low: float = nan
    high: float = nan
    unit: str = ""
    note: str = ""

    @property
    def exact(self) -> bool:
        """Whether it is one finite number."""
        return self.low == self.high and isfinite(self.low)


# cells that are read whole: no bound, a zero, and what states nothing to count with
_FIXED: Mapping[str, Quantity] = {
    **dict.fromkeys(_WORDS.unlimited, Quantity("number", inf, inf)),
    **dict.fromkeys(_WORDS.nil, Quantity("number", 0.0, 0.0)),
    **dict.fromkeys(("", "-", "–", "—", "−", *_WORDS.missing), Quantity("missing")),
}


class QuantitySpan(NamedTuple):
    """A quantity inside a longer text, and where it stands."""

    quantity: Quantity
    start: int
    end: int


CURRENCY_OF = currencies()
CURRENCIES = frozenset(CURRENCY_OF.values())
_NUMERALS = tables()
_SCALE_OF = {  # from a thousand on: a hundred stands inside a number
    word: scale
    for words in (_NUMERALS.scales, _NUMERALS.suffixes, _NUMERALS.money_suffixes)
    for word, scale in words.items()
    if scale >= 1000
}
_BLANK = f"[{NUMBER_BLANKS}]"
_SIGNS = any_of([word for word in CURRENCY_OF if not word.isalpha()])
_CODES = any_of([word for word in CURRENCY_OF if word.isalpha()])
_SIGN = "[£€$¥]"
_AMOUNT = re.compile(
    rf"(?<![\w.,])(?P<minus>[-−]{_BLANK}?)?(?:(?P<before>{_SIGNS}|(?:{_CODES})(?=\W|\d)){_BLANK}?)"
    r"?(?P<inner>[-−])?"
    rf"(?P<number>\d{{1,3}}(?:(?P<joint>{_BLANK}|[,.'’])\d{{3}}(?:(?P=joint)\d{{3}})*)?(?:[.,]\d+)"
    r"?(?![\d])|\d+(?:[.,]\d+)?)"
    rf"(?:{_BLANK}?(?P<scale>(?:{any_of(_SCALE_OF)})(?={_SIGN}|\b)))?"
    rf"(?:{_BLANK}?(?:{'|'.join(_WORDS.of_money) or '(?!)'})?(?P<after>{_SIGN}|(?:{_CODES})\b))?"
    rf"(?:{_BLANK}?(?P<unit>%|(?:{any_of(UNIT_OF)})(?!\w)))?",
    re.IGNORECASE,
)
_BELOW, _ABOVE = bound_opening(_WORDS.below, "<=?|≤"), bound_opening(_WORDS.above, ">=?|≥")
_BETWEEN = re.compile(rf"{expression(_WORDS.between)}\s+", re.IGNORECASE)
_JOINT = re.compile(rf"\s*(?:{'|'.join(_WORDS.joints)}|-|–|—)\s*", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\d/])(?:19|20)\d{2}(?!\d)")


def cell_quantity(cell: str) -> Quantity:
    """What a cell states; kind `text` where it is no quantity, or more than one.

    Example:
      >>> cell_quantity("1 200,50 € par objet")
      Quantity(kind='money', low=1200.5, high=1200.5, unit='EUR', note='par objet')
    """
    text = " ".join(cell[: LONGEST + 1].replace("*", "").replace("`", "").split())
    if fixed := _FIXED.get(text.casefold()):
        return fixed
    return (_band(text) if len(text) <= LONGEST else None) or Quantity("text")


def quantities_in(text: str) -> list[QuantitySpan]:
    """Dates, money, shares and numbers in a text, in order.

    Example:
      >>> [span.quantity.low for span in quantities_in("a £4,000 ring, 12 days")]
      [4000.0, 12.0]
    """
    unread, spans = text[:LONGEST], []
    for date in dates_in(unread):
        if days := _days(*date[:3]):
            spans.append(QuantitySpan(days, date.start, date.end))
            blank = "\0" * (date.end - date.start)
            unread = unread[: date.start] + blank + unread[date.end :]
    for match in _AMOUNT.finditer(unread):
        amount = _match_amount(match)
        if amount is not None and not unread[match.end() : match.end() + 1].isalnum():
            spans.append(QuantitySpan(amount, *match.span()))
    return sorted(spans, key=lambda span: span.start)


def head_period(head: str) -> Quantity | None:
    """Days that the head of a column speaks of: until or from a date, or a calendar year.

    None where it names none.

    A business year (`2024/25`) is known by its first year.

    Example:
      >>> head_period("Montant 2024") == head_period("2024/25 (GBP)")
      True
    """
    for date in dates_in(head[:LONGEST]):
        if days := _days(*date[:3]):
            before = head[: date.start]
            for opening in (_BELOW, _ABOVE):
                if any(match.end() == len(before) for match in opening.finditer(before)):
                    return _open_ended(days, opening)
            return days
    year = _YEAR.search(head[:LONGEST])
    return None if year is None else _days(int(year[0]))


def format_like(value: float, like: str, unit: str) -> str:
    """Figure in the format of a cell, followed by the unit where the cell leaves it to the head.

    Args:
      value: finite.
      like: a cell with a quantity.
      unit: of the figure; '' without.

    Example:
      >>> figures = (36.3, "1 412,60 €", "EUR"), (5000, "GBP 40,000", "GBP"), (1500, "2,500", "GBP")
      >>> tuple(format_like(*figure) for figure in figures)
      ('36,30 €', 'GBP 5,000', '1,500 GBP')
    """
    match = _AMOUNT.search(like)
    if match is None:
        return f"{value:,.10g} {unit}".strip()
    number = match["number"]
    scaled = abs(value) / _SCALE_OF.get((match["scale"] or "").lower(), 1.0)
    # Digits behind the last mark are decimals, unless they are three. More are written where the
    # figure needs them.
    decimals = re.search(r"[.,](\d{1,2}|\d{4,})$", number)
    places = len(decimals[1]) if decimals else 0
    if round(scaled, places) != round(scaled, _EVEN):
        places = max(places, _PLACES)
    figure = f"{scaled:,.{places}f}"
    if (match["joint"] or ",") in NUMBER_BLANKS or re.search(r"\d,\d(?!\d\d)", number):
        figure = figure.translate(str.maketrans(",.", "\u00a0,"))  # as French has it
    before = like[match.start() : match.start("number")].strip("-−")
    after = like[match.end("number") : match.end()]
    text = f"{'-' if value < 0 else ''}{before}{figure}{after}"
    has_unit = match["before"] or match["after"] or match["unit"]
    return (text if has_unit else f"{text} {unit}").strip()


def _open_ended(quantity: Quantity, opening: re.Pattern[str]) -> Quantity:
    """Quantity without its lower or its upper bound, by the words before it."""
    return quantity._replace(low=-inf) if opening is _BELOW else quantity._replace(high=inf)


def _band(text: str) -> Quantity | None:
    """One quantity or a band of them at the start of a cell, and its note."""
    for opening in (_BELOW, _ABOVE):
        opened = opening.match(text)
        span = _quantity_at(text, opened.end()) if opened else None
        if span is not None and not _JOINT.match(text, span.end):
            return _quantity_with_note(_open_ended(span.quantity, opening), text[span.end :])
    opened = _BETWEEN.match(text)
    first = _quantity_at(text, opened.end() if opened else 0)
    if first is None:
        return None
    joint = _JOINT.match(text, first.end)
    second = _quantity_at(text, joint.end()) if joint else None
    if second is None:
        return None if opened else _quantity_with_note(first.quantity, text[first.end :])
    low, high = first.quantity, second.quantity
    if not low.low < high.high or (low.unit and high.unit and low.unit != high.unit):
        return None
    whole = high if high.unit else low
    return _quantity_with_note(whole._replace(low=low.low, high=high.high), text[second.end :])


def _quantity_with_note(quantity: Quantity, rest: str) -> Quantity | None:
    """Quantity with the rest of its cell as a note.

    None where the rest states another or the cell only begins so.
    """
    note = rest.strip(" ,;:().")
    counts = quantity.unit or len(note.split()) <= _WORDS_OF_A_COUNT
    if any(map(str.isdigit, note)) or rest[:1].isalnum() or not counts:
        return None
    return quantity._replace(note=note)


def _quantity_at(text: str, start: int) -> QuantitySpan | None:
    """The date or amount that begins at a place."""
    date = date_at(text, start)
    days = _days(*date[:3]) if date else None
    if date and days:
        return QuantitySpan(days, date.start, date.end)
    match = _AMOUNT.match(text, start)
    amount = _match_amount(match) if match else None
    return QuantitySpan(amount, *match.span()) if match and amount else None


def _match_amount(match: re.Match[str]) -> Quantity | None:
    """The money, share or number of a match.

    None for what is no number, such as the number of a policy.
    """
    currency = match["before"] or match["after"]
    digits = plain_number(match["number"], money=bool(currency), scaled=bool(match["scale"]))
    if digits is None or (digits[0] == "0" and digits[1:2].isdigit()):
        return None
    size = float(digits) * _SCALE_OF.get((match["scale"] or "").lower(), 1.0)
    if size > _LARGEST:
        return None
    value = -size if match["minus"] or match["inner"] else size
    if currency:
        return Quantity("money", value, value, CURRENCY_OF[currency.lower()], match["unit"] or "")
    unit = UNIT_OF.get((match["unit"] or "").lower(), "")
    return Quantity("percent" if unit == "%" else "number", value, value, unit)


def _days(year: int, month: int = 0, day: int = 0) -> Quantity | None:
    """The days of a year, a month or a date; None where there is no such day."""
    try:
        first = dt.date(year, month or 1, day or 1)
        last = dt.date(year, month or 12, day or monthrange(year, month or 12)[1])
    except ValueError:
        return None
    return Quantity("date", float(first.toordinal()), float(last.toordinal()), "date")
