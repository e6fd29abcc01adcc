"""Money, dates, shares parsed."""

from __future__ import annotations

import datetime as dt
import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from math import inf, isfinite, nan
from typing import Literal, NamedTuple

# What a cell says that states nothing to count with; a zero; no bound.
MISSING = (
    "",
    "-",
    "–",
    "—",
    "−",
    "n/a",
    "na",
    "not selected",
    "not applicable",
    "not insured",
    "not covered",
    "sans objet",
    "non souscrit",
    "non souscrite",
    "non garanti",
    "non garantie",
    "non applicable",
)
NIL = ("nil", "free", "none", "zero", "gratuit", "gratuite", "néant", "aucun", "aucune", "zéro")
UNLIMITED = ("unlimited", "no limit", "no aggregate", "sans limite", "illimité", "illimitée")

CURRENCIES = {
    "GBP": ("£", "gbp", "pound", "pounds", "livre", "livres"),
    "EUR": ("€", "eur", "euro", "euros"),
    "USD": ("$", "us$", "usd", "dollar", "dollars"),
    "JPY": ("¥", "jpy", "yen"),
    "CHF": ("chf",),
    "CAD": ("cad",),
    "AUD": ("aud",),
}
SCALES = {
    1e3: ("k", "thousand"),
    1e6: ("m", "mn", "million", "millions"),
    1e9: ("bn", "md", "billion", "billions", "milliard", "milliards"),
}
UNITS = {
    "%": ("%", "per cent", "percent", "pour cent"),
    "working days": ("working day", "working days", "jour ouvré", "jours ouvrés"),
    "days": ("day", "days", "jour", "jours"),
    "nights": ("night", "nights", "nuit", "nuits"),
    "weeks": ("week", "weeks", "semaine", "semaines"),
    "months": ("month", "months", "mois"),
    "years": ("year", "years", "an", "ans", "année", "années"),
    "hours": ("hour", "hours", "heure", "heures"),
    "minutes": ("minute", "minutes", "min"),
    "km": ("km", "kilometre", "kilometres", "kilomètre", "kilomètres"),
    "miles": ("mile", "miles"),
    "m²": ("m²", "m2", "sq m"),
    "t": ("t", "tonne", "tonnes"),
    "kg": ("kg",),
    "cm": ("cm",),
    "l": ("litre", "litres"),
    "kWh": ("kwh",),
}
MONTHS = (
    ("january", "janvier", "janv", "jan"),
    ("february", "février", "fevrier", "févr", "feb"),
    ("march", "mars", "mar"),
    ("april", "avril", "apr", "avr"),
    ("may", "mai"),
    ("june", "juin", "jun"),
    ("july", "juillet", "juil", "jul"),
    ("august", "août", "aout", "aug"),
    ("september", "septembre", "sept", "sep"),
    ("october", "octobre", "oct"),
    ("november", "novembre", "nov"),
    ("december", "décembre", "decembre", "déc", "dec"),
)


Kind = Literal["money", "percent", "date", "number", "text", "missing"]

LONGEST = 400  # characters of a cell that are looked at: a longer one is prose
_WORDS_OF_A_COUNT = 2  # "27 vans" and "3 per cent" count something, "12 Small van, up to 2.0 t" names it
_GROUP = 4  # a mark and the three digits that it parts
_PLACES = 2  # decimals of a figure that needs more than its cells have
_EVEN = 6  # decimals up to which two figures are the same
_LARGEST = 1e15  # beyond it a float64 is no longer exact to a cent


class Quantity(NamedTuple):
    """What a cell states.

    low, high: its bounds, equal where it is one number, NaN where there is none; of a date its days as ordinals. unit:
    `GBP`, `%`, `days`, `date`; '' where none is written. note: what else the cell says.
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


class Found(NamedTuple):
    """A quantity inside a longer text, and where it stands."""

    quantity: Quantity
    start: int
    end: int


def _named(names: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {word: name for name, words in names.items() for word in words}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


_CURRENCY_OF, UNIT_OF = _named(CURRENCIES), _named(UNITS)
_SCALE_OF = {word: scale for scale, words in SCALES.items() for word in words}
_MONTH_OF = {name: number for number, names in enumerate(MONTHS, 1) for name in names}
_BLANK = "[ \u00a0\u202f\u2009]"
_SIGNS = _any_of(word for word in _CURRENCY_OF if not word.isalpha())
_CODES = _any_of(word for word in _CURRENCY_OF if word.isalpha())
_AMOUNT = re.compile(
    rf"(?<![\w.,])(?P<minus>[-−]{_BLANK}?)?(?:(?P<before>{_SIGNS}|(?:{_CODES})(?=\W|\d)){_BLANK}?)?(?P<inner>[-−])?"
    rf"(?P<number>\d{{1,3}}(?:(?P<joint>{_BLANK}|[,.'’])\d{{3}}(?:(?P=joint)\d{{3}})*)?(?:[.,]\d+)?(?![\d])|\d+(?:[.,]\d+)?)"
    rf"(?:{_BLANK}?(?P<scale>(?:{_any_of(_SCALE_OF)})(?=[£€$¥]|\b)))?"
    rf"(?:{_BLANK}?(?:d['’]|de{_BLANK})?(?P<after>[£€$¥]|(?:{_CODES})\b))?"
    rf"(?:{_BLANK}?(?P<unit>%|(?:{_any_of(UNIT_OF)})(?!\w)))?",
    re.IGNORECASE,
)
_NAME = _any_of(_MONTH_OF)
_DATE = re.compile(
    r"(?<![\w/.-])(?:(?P<y1>\d{4})-(?P<m1>\d{2})-(?P<d1>\d{2})"
    r"|(?P<d2>\d{1,2})[/.](?P<m2>\d{1,2})[/.](?P<y2>\d{4})"
    rf"|(?:(?P<d3>\d{{1,2}})(?:st|nd|rd|th|er)?\s+(?:of\s+)?)?(?P<m3>{_NAME})\.?\s+(?P<y3>\d{{4}})"
    rf"|(?P<m4>{_NAME})\.?\s+(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y4>\d{{4}}))(?![\w/])",
    re.IGNORECASE,
)
_BELOW = re.compile(
    r"(?:up to|at most|under|below|less than|until|before|maximum|jusqu['’](?:à|au|en)|moins de|au plus|avant|<=?|≤)"
    r"\s*(?:l[ea]\s)?\s*",
    re.IGNORECASE,
)
_ABOVE = re.compile(
    r"(?:above|over|more than|at least|from|since|after|as of|plus de|au-delà de|au moins|depuis|dès|après"
    r"|à (?:partir|compter) d[ue]|>=?|≥)\s*(?:l[ea]\s)?\s*",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"(?:between|from|entre|de|du)\s+", re.IGNORECASE)
_JOINT = re.compile(r"\s*(?:to|and|à|et|au|-|–|—)\s*", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\d/])(?:19|20)\d{2}(?!\d)")


def quantity_of(cell: str) -> Quantity:
    """What a cell states; kind `text` where it is no quantity, or more than one.

    Example:
      >>> quantity_of("1 200,50 € par sinistre")
      Quantity(kind='money', low=1200.5, high=1200.5, unit='EUR', note='par sinistre')
    """
    text = " ".join(cell[: LONGEST + 1].replace("*", "").replace("`", "").split())
    plain = text.casefold()
    if plain in MISSING:
        return Quantity("missing")
    if plain in NIL or plain in UNLIMITED:
        bound = 0.0 if plain in NIL else inf
        return Quantity("number", bound, bound)
    return (_band(text) if len(text) <= LONGEST else None) or Quantity("text")


def quantities_in(text: str) -> list[Found]:
    """Dates, money, shares and numbers in a text, in order.

    Example:
      >>> [found.quantity.low for found in quantities_in("a £4,000 ring, 12 days")]
      [4000.0, 12.0]
    """
    return sorted(_all_in(text[:LONGEST]), key=lambda found: found.start)


def period_of(head: str) -> Quantity | None:
    """Days that the head of a column speaks of: until or from a date, or a calendar year; None where it names none.

    A year of insurance (`2024/25`) is known by its first year.

    Example:
      >>> period_of("Franchise 2024") == period_of("2024/25 (GBP)")
      True
    """
    for match in _DATE.finditer(head[:LONGEST]):
        days = _date(match)
        before = head[: match.start()]
        if days is not None and _ends(_BELOW, before):
            return days._replace(low=-inf)
        if days is not None:
            return days._replace(high=inf) if _ends(_ABOVE, before) else days
    year = _YEAR.search(head[:LONGEST])
    return None if year is None else _days(int(year[0]), None, None)


def rewritten(value: float, like: str, unit: str) -> str:
    """A figure written as a cell writes its own, with the unit behind it where the cell leaves it to the head.

    Args:
      value: finite.
      like: a cell with a quantity.
      unit: of the figure; '' without.

    Example:
      >>> rewritten(36.3, "1 412,60 €", "EUR"), rewritten(5000, "GBP 40,000", "GBP"), rewritten(1500, "2,500", "GBP")
      ('36,30 €', 'GBP 5,000', '1,500 GBP')
    """
    match = _AMOUNT.search(like)
    if match is None:
        return f"{value:,.10g} {unit}".strip()
    french = match["joint"] in tuple(" \u00a0\u202f\u2009") or bool(re.search(r"\d,\d(?!\d\d)", match["number"]))
    scaled = abs(value) / _SCALE_OF.get((match["scale"] or "").lower(), 1.0)
    mark = max(match["number"].rfind(","), match["number"].rfind("."))
    written = len(match["number"]) - mark - 1 if mark >= 0 and len(match["number"]) - mark != _GROUP else 0
    places = written if round(scaled, written) == round(scaled, _EVEN) else max(written, _PLACES)
    number = f"{scaled:,.{places}f}"
    number = number.translate(str.maketrans(",.", "\u00a0,")) if french else number
    before, after = like[match.start() : match.start("number")].strip("-−"), like[match.end("number") : match.end()]
    own = match["before"] or match["after"] or match["unit"]
    return f"{'-' if value < 0 else ''}{before}{number}{after}{'' if own or not unit else f' {unit}'}".strip()


def _all_in(text: str) -> Iterator[Found]:
    rest = text
    for match in _DATE.finditer(text):
        days = _date(match)
        if days is not None:
            yield Found(days, *match.span())
            rest = rest[: match.start()] + "\0" * (match.end() - match.start()) + rest[match.end() :]
    for match in _AMOUNT.finditer(rest):
        amount = _amount(match)
        if amount is not None and not rest[match.end() : match.end() + 1].isalnum():
            yield Found(amount, *match.span())


def _band(text: str) -> Quantity | None:
    """One quantity or a band of them at the start of a cell, and its note."""
    for prefix, below in ((_BELOW, True), (_ABOVE, False)):
        opened = prefix.match(text)
        found = _at(text, opened.end()) if opened else None
        if found is not None and not _JOINT.match(text, found.end):
            bounded = found.quantity
            bounded = bounded._replace(low=-inf) if below else bounded._replace(high=inf)
            return _noted(bounded, text[found.end :])
    opened = _BETWEEN.match(text)
    first = _at(text, opened.end() if opened else 0)
    if first is None:
        return None
    joint = _JOINT.match(text, first.end)
    second = _at(text, joint.end()) if joint else None
    if second is None:
        return None if opened else _noted(first.quantity, text[first.end :])
    low, high = first.quantity, second.quantity
    if not low.low < high.high or (low.unit and high.unit and low.unit != high.unit):
        return None
    whole = high if high.unit else low
    return _noted(whole._replace(low=low.low, high=high.high), text[second.end :])


def _noted(quantity: Quantity, rest: str) -> Quantity | None:
    """Quantity with the rest of its cell as a note; None where the rest states another or the cell only begins so."""
    note = rest.strip(" ,;:().")
    counts = quantity.unit or len(note.split()) <= _WORDS_OF_A_COUNT
    if any(map(str.isdigit, note)) or rest[:1].isalnum() or not counts:
        return None
    return quantity._replace(note=note)


def _at(text: str, start: int) -> Found | None:
    for pattern, of in ((_DATE, _date), (_AMOUNT, _amount)):
        match = pattern.match(text, start)
        found = of(match) if match else None
        if match and found:
            return Found(found, match.start(), match.end())
    return None


def _amount(match: re.Match[str]) -> Quantity | None:
    number = _number(match["number"], money=bool(match["before"] or match["after"]), scaled=bool(match["scale"]))
    sign = -1.0 if match["minus"] or match["inner"] else 1.0
    if number is None or number * _SCALE_OF.get((match["scale"] or "").lower(), 1.0) > _LARGEST:
        return None
    value = sign * number * _SCALE_OF.get((match["scale"] or "").lower(), 1.0)
    currency = match["before"] or match["after"]
    if currency:
        return Quantity("money", value, value, _CURRENCY_OF[currency.lower()], match["unit"] or "")
    unit = UNIT_OF.get((match["unit"] or "").lower(), "")
    return Quantity("percent" if unit == "%" else "number", value, value, unit)


def _number(text: str, *, money: bool, scaled: bool) -> float | None:
    """Number as written in English or French.

    A single comma or, in an unscaled sum of money, a single dot before three digits parts thousands; else either is a
    decimal mark.
    """
    digits = re.sub(rf"{_BLANK}|['’]", "", text)
    marks = [mark for mark in digits if mark in ",."]
    whole = digits.replace(",", "").replace(".", "")
    if len(whole) > 1 and whole[0] == "0" and digits[1] not in ",.":
        return None
    last = max(digits.rfind(","), digits.rfind("."))
    thousands = len(digits) - last == _GROUP and digits[0] != "0" and len(set(marks)) == 1
    if not marks:
        return float(whole)
    if thousands and (len(marks) > 1 or (digits[last] == "," and not scaled) or (money and not scaled)):
        return float(whole)
    return float(digits[:last].replace(",", "").replace(".", "") + "." + digits[last + 1 :])


def _date(match: re.Match[str]) -> Quantity | None:
    year = next(int(match[key]) for key in ("y1", "y2", "y3", "y4") if match[key])
    month = next(match[key] for key in ("m1", "m2", "m3", "m4") if match[key])
    day = next((int(match[key]) for key in ("d1", "d2", "d3", "d4") if match[key]), None)
    return _days(year, _MONTH_OF.get(month.lower()) or int(month), day)


def _days(year: int, month: int | None, day: int | None) -> Quantity | None:
    try:
        first = dt.date(year, month or 1, day or 1)
        last = dt.date(year, month or 12, day or monthrange(year, month or 12)[1])
    except ValueError:
        return None
    return Quantity("date", float(first.toordinal()), float(last.toordinal()), "date")


def _ends(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a text ends with what a pattern matches."""
    return any(match.end() == len(text) for match in pattern.finditer(text))
