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

NUMBER_BLANKS = " \u00a0\u202f\u2009"  # between thousands, and between a figure and its unit
_THOUSANDS_BLANK = re.compile(rf"[{NUMBER_BLANKS}'’]")
# thousands, all parted by one mark
_MARKED_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+")
_DIGITS_ONLY = re.compile(r"\d+")

# Signs and codes stand for a currency in every language; its words are in the languages' files.
CURRENCY_SIGNS: Mapping[str, str] = {"£": "GBP", "€": "EUR", "$": "USD", "US$": "USD", "¥": "JPY"}
CURRENCY_CODES = ("GBP", "EUR", "USD", "JPY", "CHF", "CAD", "AUD")
_LAST_DAY = 31
_LAST_MONTH = 12


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
    joined_digits = _THOUSANDS_BLANK.sub("", digits)
    if _DIGITS_ONLY.fullmatch(joined_digits):
        return joined_digits
    last_mark = max(joined_digits.rfind(","), joined_digits.rfind("."))
    whole_part, mark_sign, decimal_part = (
        joined_digits[:last_mark],
        joined_digits[last_mark],
        joined_digits[last_mark + 1 :],
    )
    if _MARKED_THOUSANDS.fullmatch(joined_digits) and joined_digits[0] != "0":
        is_only_mark = _DIGITS_ONLY.fullmatch(whole_part) is not None
        if not is_only_mark or (not scaled and (mark_sign == "," or money)):
            return re.sub(r"\D", "", joined_digits)
    # What is left has decimals after its last mark; before it there may be thousands, parted by the
    # other mark.
    if not _DIGITS_ONLY.fullmatch(whole_part):
        if mark_sign in whole_part or not _MARKED_THOUSANDS.fullmatch(whole_part):
            return None  # the number of a section or a version: 1.2.3
        whole_part = re.sub(r"\D", "", whole_part)
    decimal_part = decimal_part.rstrip("0")
    return f"{whole_part}.{decimal_part}" if decimal_part else whole_part


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

    def by_word(month_words: Mapping[int, Sequence[str]]) -> dict[str, int]:
        return {
            month_word: number_value
            for number_value, value_words in month_words.items()
            for month_word in value_words
        }

    numeral_words = LANGUAGES.numerals
    months = {
        month_word: month_number
        for month_names in (LANGUAGES.months, LANGUAGES.months_short)
        for month_number, month_words in enumerate(month_names, 1)
        for month_word in month_words
    }
    joining_words = map(
        frozenset, (numeral_words.joins_hundreds, numeral_words.joins_tens, numeral_words.endings)
    )
    return NumeralTables(
        by_word(numeral_words.numbers),
        by_word(numeral_words.inside),
        by_word(numeral_words.scales),
        by_word(numeral_words.suffixes),
        by_word(numeral_words.money_suffixes),
        months,
        *joining_words,
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
    numeral_tables = tables()
    total_value = group_value = 0
    word_index = start
    while word_index < len(words):
        word_value = _word_value(words[word_index], numeral_tables, is_first=word_index == start)
        if word_index > start and _joins(
            words, word_index, total_value, group_value, numeral_tables
        ):
            pass
        elif word_value is None:
            break
        # ends a group of three: what stands before it is multiplied and put aside
        elif word_value >= 1000:
            total_value = total_value + max(group_value, 1) * word_value
            group_value = 0
        elif word_value == 100:
            group_value = max(group_value, 1) * 100
        elif word_value == 20 and group_value % 100 == 4:  # quatre-vingt
            group_value += 76
        elif group_value == 0 or _may_follow(group_value % 100, word_value):
            group_value += word_value
        else:
            break
        word_index += 1
    return total_value + group_value, word_index


def _word_value(word: str, numeral_tables: NumeralTables, *, is_first: bool) -> int | None:
    """Value of a number word or a scale; some words count only inside a number."""
    if not is_first and word in numeral_tables.inside:
        return numeral_tables.inside[word]
    return numeral_tables.numbers.get(word, numeral_tables.scales.get(word))


def _joins(
    words: Sequence[str],
    word_index: int,
    total_value: int,
    group_value: int,
    numeral_tables: NumeralTables,
) -> bool:
    """Whether `and` or `et` stands inside one number.

    `hundred and two`, `thousand and one`, `vingt et un`.
    """
    joining_word = words[word_index]
    after_hundreds = (
        joining_word in numeral_tables.joins_hundreds
        and total_value + group_value > 0
        and group_value % 100 == 0
    )
    if not (after_hundreds or joining_word in numeral_tables.joins_tens):
        return False
    next_value = (
        _word_value(words[word_index + 1], numeral_tables, is_first=False)
        if word_index + 1 < len(words)
        else None
    )
    return next_value is not None and next_value < 100


def _may_follow(group_value: int, small_value: int) -> bool:
    """Whether a number word may follow another in one number.

    `twenty five`, `dix sept`, `soixante quinze`.
    """
    if group_value in {60, 80} and 10 <= small_value < 20:
        return True
    return group_value == 0 or (
        group_value % 10 == 0 and (7 if group_value == 10 else 1) <= small_value < 10
    )


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
    return map(_written_date, _DATE_EXPRESSION.finditer(text))


def date_at(text: str, start: int) -> WrittenDate | None:
    """The date that begins at a place of a text, None where none does."""
    date_match = _DATE_EXPRESSION.match(text, start)
    return _written_date(date_match) if date_match else None


def calendar_date(digits: str) -> tuple[int, int, int]:
    """Year, month and day of a date in digits; the day comes before the month where either may.

    Example:
      >>> calendar_date("2025-04-01"), calendar_date("01/04/2025"), calendar_date("4/30/2025")
      ((2025, 4, 1), (2025, 4, 1), (2025, 4, 30))
    """
    date_numbers = [int(digit_run) for digit_run in re.split(r"\D", digits)]
    day, month, year = date_numbers[::-1] if date_numbers[0] > _LAST_DAY else date_numbers
    return (year, day, month) if month > _LAST_MONTH else (year, month, day)


# numbers of months by name, with and without accents
_MONTH_NUMBERS = tables().months
_MONTHS_WITHOUT_ACCENTS = {
    **{unaccented(name): month for name, month in _MONTH_NUMBERS.items()},
    **_MONTH_NUMBERS,
}
_MONTH_NAMES = any_of(_MONTHS_WITHOUT_ACCENTS)
_DAY_ENDING = any_of(tables().endings) or "(?!)"
_OF_IN_DATES = "|".join(LANGUAGES.quantities.of_dates) or "(?!)"
_DATE_EXPRESSION = re.compile(
    r"(?<![\w/.-])(?:(?P<digits>\d{4}-\d{2}-\d{2}|\d{1,2}[/.]\d{1,2}[/.]\d{4})"
    rf"|(?:(?P<d1>\d{{1,2}})(?:{_DAY_ENDING})?\s+(?:{_OF_IN_DATES})?)?(?P<m1>{_MONTH_NAMES})\.?\s+(?P<y1>\d{{4}})"
    rf"|(?P<m2>{_MONTH_NAMES})\.?\s+(?P<d2>\d{{1,2}})(?:{_DAY_ENDING})?,?\s+(?P<y2>\d{{4}}))(?![\w/])",
    re.IGNORECASE,
)


def _written_date(date_match: re.Match[str]) -> WrittenDate:
    if date_match["digits"]:
        return WrittenDate(*calendar_date(date_match["digits"]), *date_match.span())
    month_number = _MONTHS_WITHOUT_ACCENTS[(date_match["m1"] or date_match["m2"]).lower()]
    return WrittenDate(
        int(date_match["y1"] or date_match["y2"]),
        month_number,
        int(date_match["d1"] or date_match["d2"] or 0),
        *date_match.span(),
    )


@cache
def currencies() -> Mapping[str, str]:
    """ISO codes of currencies by sign, code and word, in small letters.

    Words that need a figure beside them too.
    """
    currency_tables = (
        LANGUAGES.quantities.currencies,
        LANGUAGES.quantities.currencies_beside_figures,
    )
    return {
        **{
            currency_sign.lower(): currency_code
            for currency_sign, currency_code in CURRENCY_SIGNS.items()
        },
        **{currency_code.lower(): currency_code for currency_code in CURRENCY_CODES},
        **{
            currency_word: currency_code
            for currency_words in currency_tables
            for currency_code, code_words in currency_words.items()
            for currency_word in code_words
        },
    }


@cache
def _point_money_pattern() -> re.Pattern[str]:
    """A sum of money whose only mark is a point before three digits."""
    currency_signs = re.escape(
        "".join(currency_sign for currency_sign in CURRENCY_SIGNS if len(currency_sign) == 1)
    )
    currency_names = any_of(
        [currency_name for currency_name in currencies() if currency_name.isalpha()]
    )
    number_pattern = r"(?<![\d.,])[1-9]\d{0,2}\.\d{3}(?![.,]?\d)"
    numeral_tables = tables()
    scale_pattern = any_of(
        [*numeral_tables.scales, *numeral_tables.suffixes, *numeral_tables.money_suffixes]
    )
    return re.compile(
        rf"(?:[{currency_signs}]|\b(?:{currency_names}))[{NUMBER_BLANKS}]?{number_pattern}(?![{NUMBER_BLANKS}]?(?:{scale_pattern})\b)"
        rf"|{number_pattern}(?=[{NUMBER_BLANKS}]?(?:[{currency_signs}]|(?:{currency_names})\b))",
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
