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

_QUANTITY_LISTS = LANGUAGES.quantities
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
    **{word: unit for unit, words in _QUANTITY_LISTS.units.items() for word in words},
    **dict.fromkeys(_QUANTITY_LISTS.percent, "%"),
}


Kind = Literal["money", "percent", "date", "number", "text", "missing"]

MAX_CELL_LENGTH = 400  # characters of a cell that are looked at: a longer one is prose
# "27 vans" and "3 per cent" count something, "12 Small van, up to 2.0 t" names it
_WORDS_OF_A_COUNT = 2
_MIN_DECIMALS = 2  # decimals of a figure that needs more than its cells have
_EQUAL_DECIMALS = 6  # decimals up to which two figures are the same
_MAX_EXACT_NUMBER = 1e15  # beyond it a float64 is no longer exact to a cent


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
_FIXED_CELLS: Mapping[str, Quantity] = {
    **dict.fromkeys(_QUANTITY_LISTS.unlimited, Quantity("number", inf, inf)),
    **dict.fromkeys(_QUANTITY_LISTS.nil, Quantity("number", 0.0, 0.0)),
    **dict.fromkeys(("", "-", "–", "—", "−", *_QUANTITY_LISTS.missing), Quantity("missing")),
}


class QuantitySpan(NamedTuple):
    """A quantity inside a longer text, and where it stands."""

    quantity: Quantity
    start: int
    end: int


CURRENCY_OF = currencies()
CURRENCIES = frozenset(CURRENCY_OF.values())
_NUMERAL_TABLES = tables()
_SCALE_OF = {  # from a thousand on: a hundred stands inside a number
    word: scale
    for words in (_NUMERAL_TABLES.scales, _NUMERAL_TABLES.suffixes, _NUMERAL_TABLES.money_suffixes)
    for word, scale in words.items()
    if scale >= 1000
}
_BLANK_CLASS = f"[{NUMBER_BLANKS}]"
_CURRENCY_SIGNS = any_of([word for word in CURRENCY_OF if not word.isalpha()])
_CURRENCY_WORDS = any_of([word for word in CURRENCY_OF if word.isalpha()])
_SIGN_CLASS = "[£€$¥]"
_AMOUNT = re.compile(
    rf"(?<![\w.,])(?P<minus>[-−]{_BLANK_CLASS}?)?(?:(?P<before>{_CURRENCY_SIGNS}|(?:{_CURRENCY_WORDS})(?=\W|\d)){_BLANK_CLASS}?)"
    r"?(?P<inner>[-−])?"
    rf"(?P<number>\d{{1,3}}(?:(?P<joint>{_BLANK_CLASS}|[,.'’])\d{{3}}(?:(?P=joint)\d{{3}})*)?(?:[.,]\d+)"
    r"?(?![\d])|\d+(?:[.,]\d+)?)"
    rf"(?:{_BLANK_CLASS}?(?P<scale>(?:{any_of(_SCALE_OF)})(?={_SIGN_CLASS}|\b)))?"
    rf"(?:{_BLANK_CLASS}?(?:{'|'.join(_QUANTITY_LISTS.of_money) or '(?!)'})?"
    rf"(?P<after>{_SIGN_CLASS}|(?:{_CURRENCY_WORDS})\b))?"
    rf"(?:{_BLANK_CLASS}?(?P<unit>%|(?:{any_of(UNIT_OF)})(?!\w)))?",
    re.IGNORECASE,
)
_BELOW_OPENING = bound_opening(_QUANTITY_LISTS.below, "<=?|≤")
_ABOVE_OPENING = bound_opening(_QUANTITY_LISTS.above, ">=?|≥")
_BETWEEN_OPENING = re.compile(rf"{expression(_QUANTITY_LISTS.between)}\s+", re.IGNORECASE)
_RANGE_JOINT = re.compile(rf"\s*(?:{'|'.join(_QUANTITY_LISTS.joints)}|-|–|—)\s*", re.IGNORECASE)
_CALENDAR_YEAR = re.compile(r"(?<![\d/])(?:19|20)\d{2}(?!\d)")


def cell_quantity(cell: str) -> Quantity:
    """What a cell states; kind `text` where it is no quantity, or more than one.

    Example:
      >>> cell_quantity("1 200,50 € par objet")
      Quantity(kind='money', low=1200.5, high=1200.5, unit='EUR', note='par objet')
    """
    text = " ".join(cell[: MAX_CELL_LENGTH + 1].replace("*", "").replace("`", "").split())
    if fixed_quantity := _FIXED_CELLS.get(text.casefold()):
        return fixed_quantity
    return (_band(text) if len(text) <= MAX_CELL_LENGTH else None) or Quantity("text")


def quantities_in(text: str) -> list[QuantitySpan]:
    """Dates, money, shares and numbers in a text, in order.

    Example:
      >>> [span.quantity.low for span in quantities_in("a £4,000 ring, 12 days")]
      [4000.0, 12.0]
    """
    unread_text = text[:MAX_CELL_LENGTH]
    quantity_spans = []
    for found_date in dates_in(unread_text):
        if date_days := _days(*found_date[:3]):
            quantity_spans.append(QuantitySpan(date_days, found_date.start, found_date.end))
            blanked_date = "\0" * (found_date.end - found_date.start)
            unread_text = (
                unread_text[: found_date.start] + blanked_date + unread_text[found_date.end :]
            )
    for amount_match in _AMOUNT.finditer(unread_text):
        amount = _match_amount(amount_match)
        if (
            amount is not None
            and not unread_text[amount_match.end() : amount_match.end() + 1].isalnum()
        ):
            quantity_spans.append(QuantitySpan(amount, *amount_match.span()))
    return sorted(quantity_spans, key=lambda quantity_span: quantity_span.start)


def head_period(head: str) -> Quantity | None:
    """Days that the head of a column speaks of: until or from a date, or a calendar year.

    None where it names none.

    A business year (`2024/25`) is known by its first year.

    Example:
      >>> head_period("Montant 2024") == head_period("2024/25 (GBP)")
      True
    """
    for head_date in dates_in(head[:MAX_CELL_LENGTH]):
        if date_days := _days(*head_date[:3]):
            text_before = head[: head_date.start]
            for opening_pattern in (_BELOW_OPENING, _ABOVE_OPENING):
                if any(
                    opening_match.end() == len(text_before)
                    for opening_match in opening_pattern.finditer(text_before)
                ):
                    return _open_ended(date_days, opening_pattern)
            return date_days
    year_match = _CALENDAR_YEAR.search(head[:MAX_CELL_LENGTH])
    return None if year_match is None else _days(int(year_match[0]))


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
    amount_match = _AMOUNT.search(like)
    if amount_match is None:
        return f"{value:,.10g} {unit}".strip()
    number_text = amount_match["number"]
    scaled_value = abs(value) / _SCALE_OF.get((amount_match["scale"] or "").lower(), 1.0)
    # Digits behind the last mark are decimals, unless they are three. More are written where the
    # figure needs them.
    decimal_match = re.search(r"[.,](\d{1,2}|\d{4,})$", number_text)
    n_decimals = len(decimal_match[1]) if decimal_match else 0
    if round(scaled_value, n_decimals) != round(scaled_value, _EQUAL_DECIMALS):
        n_decimals = max(n_decimals, _MIN_DECIMALS)
    figure_text = f"{scaled_value:,.{n_decimals}f}"
    if (amount_match["joint"] or ",") in NUMBER_BLANKS or re.search(r"\d,\d(?!\d\d)", number_text):
        figure_text = figure_text.translate(str.maketrans(",.", "\u00a0,"))  # as French has it
    text_before = like[amount_match.start() : amount_match.start("number")].strip("-−")
    text_after = like[amount_match.end("number") : amount_match.end()]
    formatted_text = f"{'-' if value < 0 else ''}{text_before}{figure_text}{text_after}"
    has_unit = amount_match["before"] or amount_match["after"] or amount_match["unit"]
    return (formatted_text if has_unit else f"{formatted_text} {unit}").strip()


def _open_ended(quantity: Quantity, opening: re.Pattern[str]) -> Quantity:
    """Quantity without its lower or its upper bound, by the words before it."""
    return quantity._replace(low=-inf) if opening is _BELOW_OPENING else quantity._replace(high=inf)


def _band(cell_text: str) -> Quantity | None:
    """One quantity or a band of them at the start of a cell, and its note."""
    for bound_pattern in (_BELOW_OPENING, _ABOVE_OPENING):
        opening_match = bound_pattern.match(cell_text)
        quantity_span = _quantity_at(cell_text, opening_match.end()) if opening_match else None
        if quantity_span is not None and not _RANGE_JOINT.match(cell_text, quantity_span.end):
            return _quantity_with_note(
                _open_ended(quantity_span.quantity, bound_pattern), cell_text[quantity_span.end :]
            )
    opening_match = _BETWEEN_OPENING.match(cell_text)
    first_span = _quantity_at(cell_text, opening_match.end() if opening_match else 0)
    if first_span is None:
        return None
    joint_match = _RANGE_JOINT.match(cell_text, first_span.end)
    second_span = _quantity_at(cell_text, joint_match.end()) if joint_match else None
    if second_span is None:
        return (
            None
            if opening_match
            else _quantity_with_note(first_span.quantity, cell_text[first_span.end :])
        )
    lower_quantity = first_span.quantity
    upper_quantity = second_span.quantity
    if not lower_quantity.low < upper_quantity.high or (
        lower_quantity.unit and upper_quantity.unit and lower_quantity.unit != upper_quantity.unit
    ):
        return None
    united_quantity = upper_quantity if upper_quantity.unit else lower_quantity
    return _quantity_with_note(
        united_quantity._replace(low=lower_quantity.low, high=upper_quantity.high),
        cell_text[second_span.end :],
    )


def _quantity_with_note(quantity: Quantity, remaining_text: str) -> Quantity | None:
    """Quantity with the rest of its cell as a note.

    None where the rest states another or the cell only begins so.
    """
    cell_note = remaining_text.strip(" ,;:().")
    is_counting = quantity.unit or len(cell_note.split()) <= _WORDS_OF_A_COUNT
    if any(map(str.isdigit, cell_note)) or remaining_text[:1].isalnum() or not is_counting:
        return None
    return quantity._replace(note=cell_note)


def _quantity_at(text: str, start_position: int) -> QuantitySpan | None:
    """The date or amount that begins at a place."""
    found_date = date_at(text, start_position)
    date_days = _days(*found_date[:3]) if found_date else None
    if found_date and date_days:
        return QuantitySpan(date_days, found_date.start, found_date.end)
    amount_match = _AMOUNT.match(text, start_position)
    matched_amount = _match_amount(amount_match) if amount_match else None
    return (
        QuantitySpan(matched_amount, *amount_match.span())
        if amount_match and matched_amount
        else None
    )


def _match_amount(amount_match: re.Match[str]) -> Quantity | None:
    """The money, share or number of a match.

    None for what is no number, such as the number of a policy.
    """
    currency_text = amount_match["before"] or amount_match["after"]
    digit_text = plain_number(
        amount_match["number"], money=bool(currency_text), scaled=bool(amount_match["scale"])
    )
    if digit_text is None or (digit_text[0] == "0" and digit_text[1:2].isdigit()):
        return None
    magnitude = float(digit_text) * _SCALE_OF.get((amount_match["scale"] or "").lower(), 1.0)
    if magnitude > _MAX_EXACT_NUMBER:
        return None
    signed_value = -magnitude if amount_match["minus"] or amount_match["inner"] else magnitude
    if currency_text:
        return Quantity(
            "money",
            signed_value,
            signed_value,
            CURRENCY_OF[currency_text.lower()],
            amount_match["unit"] or "",
        )
    unit_name = UNIT_OF.get((amount_match["unit"] or "").lower(), "")
    return Quantity(
        "percent" if unit_name == "%" else "number", signed_value, signed_value, unit_name
    )


def _days(year: int, month: int = 0, day: int = 0) -> Quantity | None:
    """The days of a year, a month or a date; None where there is no such day."""
    try:
        first_day = dt.date(year, month or 1, day or 1)
        last_day = dt.date(year, month or 12, day or monthrange(year, month or 12)[1])
    except ValueError:
        return None
    return Quantity("date", float(first_day.toordinal()), float(last_day.toordinal()), "date")
