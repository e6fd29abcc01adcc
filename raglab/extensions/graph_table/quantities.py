"""Quantities (shore): money, dates, shares and spans read from text."""

from __future__ import annotations

import datetime as dt
import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from math import inf, isfinite, nan
from typing import Literal, NamedTuple

from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import (
    BLANKS,
    WrittenDate,
    any_of,
    bound_opening,
    currencies,
    date_at,
    dates_in,
    plain_number,
    tables,
)

_WORDS = LANGUAGES.quantities
# What a cell says that states nothing to count with; a zero; no bound.
MISSING = frozenset(("", "-", "–", "—", "−", *_WORDS.missing))
NIL, UNLIMITED = frozenset(_WORDS.nil), frozenset(_WORDS.unlimited)
_EVERYWHERE: Mapping[str, tuple[str, ...]] = {  # units that are written so in every language
    "%": ("%",),
    "km": ("km",),
    "m²": ("m²", "m2"),
    "t": ("t",),
    "kg": ("kg",),
    "cm": ("cm",),
    "kWh": ("kwh",),
}
UNITS: Mapping[str, tuple[str, ...]] = {
    unit: (
        *_EVERYWHERE.get(unit, ()),
        *(_WORDS.percent if unit == "%" else _WORDS.units.get(unit, ())),
    )
    for unit in dict.fromkeys((*_EVERYWHERE, *_WORDS.units))
}


Kind = Literal["money", "percent", "date", "number", "text", "missing"]

LONGEST = 400  # characters of a cell that are looked at: a longer one is prose
# "27 vans" and "3 per cent" count something, "12 Small van, up to 2.0 t" names it
_WORDS_OF_A_COUNT = 2
_GROUP = 4  # a mark and the three digits that it parts
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


class QuantitySpan(NamedTuple):
    """A quantity inside a longer text, and where it stands."""

    quantity: Quantity
    start: int
    end: int


CURRENCY_OF = currencies()
CURRENCIES = frozenset(CURRENCY_OF.values())
UNIT_OF = {word: unit for unit, words in UNITS.items() for word in words}
_NUMERALS = tables()
_SCALE_OF = {  # from a thousand on: a hundred stands inside a number
    word: scale
    for words in (_NUMERALS.scales, _NUMERALS.suffixes, _NUMERALS.money_suffixes)
    for word, scale in words.items()
    if scale >= 1000
}
_BLANK = f"[{BLANKS}]"
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
    plain = text.casefold()
    if plain in MISSING:
        return Quantity("missing")
    if plain in NIL or plain in UNLIMITED:
        bound = 0.0 if plain in NIL else inf
        return Quantity("number", bound, bound)
    return (_band(text) if len(text) <= LONGEST else None) or Quantity("text")


def quantities_in(text: str) -> list[QuantitySpan]:
    """Dates, money, shares and numbers in a text, in order.

    Example:
      >>> [span.quantity.low for span in quantities_in("a £4,000 ring, 12 days")]
      [4000.0, 12.0]
    """
    return sorted(_all_in(text[:LONGEST]), key=lambda span: span.start)


def head_period(head: str) -> Quantity | None:
    """Days that the head of a column speaks of: until or from a date, or a calendar year.

    None where it names none.

    A business year (`2024/25`) is known by its first year.

    Example:
      >>> head_period("Montant 2024") == head_period("2024/25 (GBP)")
      True
    """
    for date in dates_in(head[:LONGEST]):
        days = _date_days(date)
        before = head[: date.start]
        if days is not None and _ends_with(_BELOW, before):
            return days._replace(low=-inf)
        if days is not None:
            return days._replace(high=inf) if _ends_with(_ABOVE, before) else days
    year = _YEAR.search(head[:LONGEST])
    return None if year is None else _days(int(year[0]), None, None)


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
    french = match["joint"] in tuple(" \u00a0\u202f\u2009") or bool(
        re.search(r"\d,\d(?!\d\d)", match["number"])
    )
    scaled = abs(value) / _SCALE_OF.get((match["scale"] or "").lower(), 1.0)
    mark = max(match["number"].rfind(","), match["number"].rfind("."))
    written = (
        len(match["number"]) - mark - 1
        if mark >= 0 and len(match["number"]) - mark != _GROUP
        else 0
    )
    places = written if round(scaled, written) == round(scaled, _EVEN) else max(written, _PLACES)
    number = f"{scaled:,.{places}f}"
    number = number.translate(str.maketrans(",.", "\u00a0,")) if french else number
    before, after = (
        like[match.start() : match.start("number")].strip("-−"),
        like[match.end("number") : match.end()],
    )
    own = match["before"] or match["after"] or match["unit"]
    return (
        f"{'-' if value < 0 else ''}{before}{number}{after}"
        f"{'' if own or not unit else f' {unit}'}".strip()
    )


def _all_in(text: str) -> Iterator[QuantitySpan]:
    rest = text
    for date in dates_in(text):
        days = _date_days(date)
        if days is not None:
            yield QuantitySpan(days, date.start, date.end)
            rest = rest[: date.start] + "\0" * (date.end - date.start) + rest[date.end :]
    for match in _AMOUNT.finditer(rest):
        amount = _match_amount(match)
        if amount is not None and not rest[match.end() : match.end() + 1].isalnum():
            yield QuantitySpan(amount, *match.span())


def _band(text: str) -> Quantity | None:
    """One quantity or a band of them at the start of a cell, and its note."""
    for prefix, below in ((_BELOW, True), (_ABOVE, False)):
        opened = prefix.match(text)
        span = _quantity_at(text, opened.end()) if opened else None
        if span is not None and not _JOINT.match(text, span.end):
            bounded = span.quantity
            bounded = bounded._replace(low=-inf) if below else bounded._replace(high=inf)
            return _quantity_with_note(bounded, text[span.end :])
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
    days = _date_days(date) if date else None
    if date and days:
        return QuantitySpan(days, date.start, date.end)
    match = _AMOUNT.match(text, start)
    amount = _match_amount(match) if match else None
    return QuantitySpan(amount, match.start(), match.end()) if match and amount else None


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


def _date_days(date: WrittenDate) -> Quantity | None:
    return _days(date.year, date.month, date.day or None)


def _days(year: int, month: int | None, day: int | None) -> Quantity | None:
    try:
        first = dt.date(year, month or 1, day or 1)
        last = dt.date(year, month or 12, day or monthrange(year, month or 12)[1])
    except ValueError:
        return None
    return Quantity("date", float(first.toordinal()), float(last.toordinal()), "date")


def _ends_with(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a text ends with what a pattern matches."""
    return any(match.end() == len(text) for match in pattern.finditer(text))
