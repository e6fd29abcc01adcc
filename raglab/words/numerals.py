"""Numerals (algebra): numbers and dates as digits or words, in several languages.

One rule for marks of thousands and decimals, one table of number words and of months, for all that
reads text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, expression

BLANKS = " \u00a0\u202f\u2009"  # between thousands, and between a figure and its unit
_PARTING = re.compile(rf"[{BLANKS}'’]")
_MARKED = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+")  # thousands, all parted by one mark
_DIGITS = re.compile(r"\d+")

# Signs and codes stand for a currency in every language; its words are in the languages' files.
CURRENCY_SIGNS: Mapping[str, str] = {"£": "GBP", "€": "EUR", "$": "USD", "US$": "USD", "¥": "JPY"}
CURRENCY_CODES = ("GBP", "EUR", "USD", "JPY", "CHF", "CAD", "AUD")
_LAST_DAY, _LAST_MONTH = 31, 12


def any_of(phrases: Iterable[str]) -> str:
    r"""Expression for any of some phrases, the longest first.

    Example:
      >>> any_of(["day", "working day"])
      'working\\ day|day'
    """
    return "|".join(
        re.escape(phrase) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    )


def plain_number(digits: str, *, money: bool = False, scaled: bool = False) -> str | None:
    """A number in digits as Python writes it, with a point and no noughts after the decimals.

    None where it is none.

    Blanks and apostrophes part thousands. Of two kinds of marks the last begins the decimals.
    Several commas or points part thousands where three digits follow each. A single comma does so
    before three digits, unless a word such as `million` scales the number (`1,500 million`), or it
    begins with a nought; a single point does so only in a sum of money without such a word (`1.000
    €`), and begins the decimals elsewhere (`1.000 m`).

    Args:
      digits: figures, blanks, apostrophes, commas and points.
      money: whether a currency stands beside it.
      scaled: whether a word or a letter multiplies it.

    Example:
      >>> [
      ...     plain_number(digits)
      ...     for digits in ("1,000", "1 000,50", "2.50", "1.000.000", "1.000", "1.2.3")
      ... ]
      ['1000', '1000.5', '2.5', '1000000', '1', None]
      >>> (
      ...     plain_number("1.000", money=True),
      ...     plain_number("1,500", scaled=True),
      ...     plain_number("1.234,56"),
      ... )
      ('1000', '1.5', '1234.56')
    """
    joined = _PARTING.sub("", digits)
    if _DIGITS.fullmatch(joined):
        return joined
    mark = max(joined.rfind(","), joined.rfind("."))
    whole, last, part = joined[:mark], joined[mark], joined[mark + 1 :]
    if _MARKED.fullmatch(joined) and joined[0] != "0":
        alone = _DIGITS.fullmatch(whole) is not None
        if not alone or (not scaled and (last == "," or money)):
            return re.sub(r"\D", "", joined)
    # What is left has decimals after its last mark; before it there may be thousands, parted by the
    # other mark.
    if not _DIGITS.fullmatch(whole):
        if last in whole or not _MARKED.fullmatch(whole):
            return None  # the number of a section or a version: 1.2.3
        whole = re.sub(r"\D", "", whole)
    part = part.rstrip("0")
    return f"{whole}.{part}" if part else whole


class NumeralTables(NamedTuple):
    """What a language's numerals are looked up in, by words in small letters.

    numbers: values below a scale. inside: values of words that count only inside a number. scales:
    by word. suffixes, money_suffixes: what is written to figures for a scale, and beside a
    currency. months: numbers from 1. joins_hundreds, joins_tens, endings: see `numerals` in
    `en.yaml`.
    """

    numbers: Mapping[str, int]
    inside: Mapping[str, int]
    scales: Mapping[str, int]
    suffixes: Mapping[str, int]
    money_suffixes: Mapping[str, int]
    months: Mapping[str, int]
    joins_hundreds: frozenset[str]
    joins_tens: frozenset[str]
    endings: frozenset[str]


@cache
def tables() -> NumeralTables:
    """The numerals of a language, by word.

    Example:
      >>> tables().months["août"], tables().numbers["twelve"], tables().scales["mille"]
      (8, 12, 1000)
    """

    def by_word(words: Mapping[int, Sequence[str]]) -> dict[str, int]:
        return {word: value for value, some in words.items() for word in some}

    own = LANGUAGES.numerals
    months = {
        word: number
        for names in (LANGUAGES.months, LANGUAGES.months_short)
        for number, words in enumerate(names, 1)
        for word in words
    }
    marks = map(frozenset, (own.joins_hundreds, own.joins_tens, own.endings))
    return NumeralTables(
        by_word(own.numbers),
        by_word(own.inside),
        by_word(own.scales),
        by_word(own.suffixes),
        by_word(own.money_suffixes),
        months,
        *marks,
    )


def number_word_value(words: Sequence[str], start: int = 0) -> tuple[int, int]:
    """Value of the number words from `start` on, and where they end.

    Args:
      words: in small letters, without hyphens; the first is a number word or a scale.

    Example:
      >>> [
      ...     number_word_value(text.split())
      ...     for text in ("one hundred and twenty five vans", "quatre vingt dix jours")
      ... ]
      [(125, 5), (90, 3)]
    """
    table = tables()
    total = current = 0
    at = start
    while at < len(words):
        value = _value(words[at], table, first=at == start)
        if at > start and _joins(words, at, total, current, table):
            pass
        elif value is None:
            break
        # ends a group of three: what stands before it is multiplied and put aside
        elif value >= 1000:
            total, current = total + max(current, 1) * value, 0
        elif value == 100:
            current = max(current, 1) * 100
        elif value == 20 and current % 100 == 4:  # quatre-vingt
            current += 76
        elif current == 0 or _adds(current % 100, value):
            current += value
        else:
            break
        at += 1
    return total + current, at


def _value(word: str, table: NumeralTables, *, first: bool) -> int | None:
    """Value of a number word or a scale; some words count only inside a number."""
    if not first and word in table.inside:
        return table.inside[word]
    return table.numbers.get(word, table.scales.get(word))


def _joins(words: Sequence[str], at: int, total: int, current: int, table: NumeralTables) -> bool:
    """Whether `and` or `et` stands inside one number.

    `hundred and two`, `thousand and one`, `vingt et un`.
    """
    word = words[at]
    after_hundreds = word in table.joins_hundreds and total + current > 0 and current % 100 == 0
    if not (after_hundreds or word in table.joins_tens):
        return False
    follows = _value(words[at + 1], table, first=False) if at + 1 < len(words) else None
    return follows is not None and follows < 100


def _adds(current: int, small: int) -> bool:
    """Whether a number word may follow another in one number.

    `twenty five`, `dix sept`, `soixante quinze`.
    """
    if current in {60, 80} and 10 <= small < 20:
        return True
    return current == 0 or (current % 10 == 0 and (7 if current == 10 else 1) <= small < 10)


class WrittenDate(NamedTuple):
    """A date in a text, and where it stands; day 0 where only month and year are written."""

    year: int
    month: int
    day: int
    start: int
    end: int


def dates_in(text: str) -> Iterator[WrittenDate]:
    """Dates with a year in a text, in order.

    `2025-04-01`, `1/4/2025`, `1 April 2025`, `avril 2025`, `April 1, 2025`.

    In digits the day comes before the month where either may. Names of months are known without
    their accents too. Nothing checks that the month has that day.

    Example:
      >>> [date[:3] for date in dates_in("du 1er avril 2025 au 2026-03-31")]
      [(2025, 4, 1), (2026, 3, 31)]
    """
    return map(_date, _DATES.finditer(text))


def date_at(text: str, start: int) -> WrittenDate | None:
    """The date that begins at a place of a text, None where none does."""
    match = _DATES.match(text, start)
    return _date(match) if match else None


def calendar_date(digits: str) -> tuple[int, int, int]:
    """Year, month and day of a date in digits; the day comes before the month where either may.

    Example:
      >>> calendar_date("2025-04-01"), calendar_date("01/04/2025"), calendar_date("4/30/2025")
      ((2025, 4, 1), (2025, 4, 1), (2025, 4, 30))
    """
    numbers = [int(number) for number in re.split(r"\D", digits)]
    day, month, year = numbers[::-1] if numbers[0] > _LAST_DAY else numbers
    return (year, day, month) if month > _LAST_MONTH else (year, month, day)


# numbers of months by name, with and without accents
_NAMES = tables().months
_MONTHS = {**{unaccented(name): month for name, month in _NAMES.items()}, **_NAMES}
_MONTH, _DAY_ENDING = any_of(_MONTHS), any_of(tables().endings) or "(?!)"
_OF = "|".join(LANGUAGES.quantities.of_dates) or "(?!)"
_DATES = re.compile(
    r"(?<![\w/.-])(?:(?P<digits>\d{4}-\d{2}-\d{2}|\d{1,2}[/.]\d{1,2}[/.]\d{4})"
    rf"|(?:(?P<d1>\d{{1,2}})(?:{_DAY_ENDING})?\s+(?:{_OF})?)?(?P<m1>{_MONTH})\.?\s+(?P<y1>\d{{4}})"
    rf"|(?P<m2>{_MONTH})\.?\s+(?P<d2>\d{{1,2}})(?:{_DAY_ENDING})?,?\s+(?P<y2>\d{{4}}))(?![\w/])",
    re.IGNORECASE,
)


def _date(match: re.Match[str]) -> WrittenDate:
    if match["digits"]:
        return WrittenDate(*calendar_date(match["digits"]), *match.span())
    month = _MONTHS[(match["m1"] or match["m2"]).lower()]
    return WrittenDate(
        int(match["y1"] or match["y2"]), month, int(match["d1"] or match["d2"] or 0), *match.span()
    )


@cache
def currencies() -> Mapping[str, str]:
    """ISO codes of currencies by sign, code and word, in small letters.

    Words that need a figure beside them too.
    """
    own = (LANGUAGES.quantities.currencies, LANGUAGES.quantities.currencies_beside_figures)
    return {
        **{sign.lower(): code for sign, code in CURRENCY_SIGNS.items()},
        **{code.lower(): code for code in CURRENCY_CODES},
        **{word: code for table in own for code, words in table.items() for word in words},
    }


@cache
def _point_money_pattern() -> re.Pattern[str]:
    """A sum of money whose only mark is a point before three digits."""
    signs = re.escape("".join(sign for sign in CURRENCY_SIGNS if len(sign) == 1))
    names = any_of([name for name in currencies() if name.isalpha()])
    number = r"(?<![\d.,])[1-9]\d{0,2}\.\d{3}(?![.,]?\d)"
    table = tables()
    scale = any_of([*table.scales, *table.suffixes, *table.money_suffixes])
    return re.compile(
        rf"(?:[{signs}]|\b(?:{names}))[{BLANKS}]?{number}(?![{BLANKS}]?(?:{scale})\b)"
        rf"|{number}(?=[{BLANKS}]?(?:[{signs}]|(?:{names})\b))",
        re.IGNORECASE,
    )


def comma_thousands(text: str) -> str:
    """A text in which sums of money such as `1.000 €` have a comma before their thousands.

    For readers that look at one word at a time, and so cannot see the currency beside it.

    Example:
      >>> comma_thousands("1.000 € or 1.000 m")
      '1,000 € or 1.000 m'
    """
    if "." not in text:
        return text
    return _point_money_pattern().sub(lambda match: match[0].replace(".", ","), text)


def bound_opening(patterns: Sequence[str], symbols: str) -> re.Pattern[str]:
    """What stands before a bound: one of a language's phrases or a symbol, and an article."""
    articles = "|".join(LANGUAGES.quantities.articles) or "(?!)"
    return re.compile(rf"(?:{expression(patterns)}|{symbols})\s*(?:{articles})?\s*", re.IGNORECASE)
