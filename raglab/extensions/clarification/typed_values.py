"""Values by kind (shore): dates, amounts, durations, telephone numbers, names and the like, each whole or not at all.

A value is what is printed from its first digit, letter or sign to its last: the minus before an amount, the unit, what
it is counted by (`per mile`), the other end of a range and the extension of a telephone number belong to it. Where it
cannot be told what belongs to it, it is marked as cut, and who reads a field takes nothing there.

Telephone numbers are checked by `phonenumbers`, the port of Google's libphonenumber, which knows the plans of every
country; the rest is a few expressions over the words of `raglab.languages`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from raglab.characters import unaccented
from raglab.languages import LANGUAGES
from raglab.numerals import (
    BLANKS,
    CURRENCY_CODES,
    any_of,
    calendar_date,
    currencies,
    number_word_value,
    plain_number,
    tables,
)
from raglab.packs import ValueKind

_NEAR = 24  # characters before a value that are looked at
_AT_CUT = 100  # characters before the cut that are not read
MOST = 4_000  # characters of one sentence or cell that are read
_WORDS = LANGUAGES.values
_MARKS = {
    **dict.fromkeys("\u2019\u2018\u02bc\u00b4`", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2212", "-"),
    **dict.fromkeys("\t\n", " "),
}
_BLANK = rf"[{BLANKS}]"


class TypedValue(NamedTuple):
    """A value in a text.

    start, end: where it stands. text: as printed. key: the same for the same value in another spelling. whole: False
    where more may belong to it, so that it must not be taken.
    """

    start: int
    end: int
    text: str
    key: str
    whole: bool = True


def fold(text: str) -> str:
    """Text in small letters without accents, each character at its place; quotes and hyphens as ASCII has them.

    Example:
      >>> fold("L’ÉTÉ")
      "l'ete"
    """
    if text.isascii():
        return text.lower().translate(_ASCII_BLANKS)
    return "".join(_folded(char) for char in text)


_ASCII_BLANKS = str.maketrans("\t\n", "  ")


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    if char in BLANKS:
        return char
    plain = _MARKS.get(char) or unaccented(char).lower()
    return plain if len(plain) == 1 and not (plain.isdigit() and not char.isdecimal()) else char


def typed_values(kind: ValueKind, text: str, language: str = "") -> tuple[TypedValue, ...]:
    """Values of a kind in a sentence, a line or a cell, in order, none inside another.

    Args:
      text: without marks of Markdown; what lies behind 4,000 characters is not read.
      language: of the document, such as `fr` or `en-US`, which tells where its telephone numbers are; `` for unknown.

    Example:
      >>> [value.text for value in typed_values("duration", "Quatre semaines, or thirty (30) calendar days' notice.")]
      ['Quatre semaines', 'thirty (30) calendar days']
      >>> [value.text for value in typed_values("amount", "From £10 to £20, 1 250,00 € or EUR 0.45 per mile.")]
      ['£10 to £20', '1 250,00 €', 'EUR 0.45 per mile']
    """
    found = _typed_values(kind, text[:MOST], language)
    # at the cut it cannot be told what a value goes on with
    return found if len(text) <= MOST else tuple(value for value in found if value.end <= MOST - _AT_CUT)


@lru_cache(maxsize=8192)
def _typed_values(kind: ValueKind, text: str, language: str) -> tuple[TypedValue, ...]:
    if kind == "phone":
        return tuple(_phones(text, language))
    return tuple(_READERS[kind](text))


# -- numbers with a unit -----------------------------------------------------------------------------------------------

_NUMBER = (  # whole or not at all: nothing is given back
    rf"(?>\d{{1,3}}(?:[{BLANKS}'’]\d{{3}}){{1,6}}(?!\d)(?:[.,]\d{{1,4}})?"
    r"|\d{1,3}(?:,\d{3}){1,6}(?!\d)(?:\.\d{1,4})?"
    r"|\d{1,3}(?:\.\d{3}){1,6}(?!\d)(?:,\d{1,4})?|\d{1,18}(?:[.,]\d{1,6})?)(?!\d|[.,]\d)"
)
_BEFORE = r"(?<![^\W_])(?<!\d[.,:/])"  # no letter or digit is cut off
_MINUS = r"(?:(?<![^\W_])[-−–+±])?"
_JOINT = r"(?:\s?[-–—]\s?|\s(?:to|a|à|et|and)\s)"
_BETWEEN = re.compile(r"(?<![^\W_])(?:between|entre)\s\Z")
_FRACTION_BEHIND = re.compile(r"\s(?:et (?:demie?|quart)|and a (?:half|quarter))(?![^\W_])")
_RIGHT = r"(?![^\W_]|[½¼¾⅓⅔+]|[-.,/:]\d)"


@cache
def _number_words() -> frozenset[str]:
    return frozenset(fold(word) for word in (*tables().numbers, *tables().scales))


@cache
def _word_number() -> str:
    """Numbers in words, up to eight of them; `a` and `an` are none."""
    words = _number_words() | {"un", "une", "cents", "vingts"}
    one = f"(?:{any_of(sorted(words))})(?![^\\W_])"
    return rf"(?:{one}(?:(?:[ -]|\s(?:and|et)\s){one}){{0,7}})"


@cache
def _count() -> str:
    """A number in digits, in words, or in both: `30`, `thirty`, `thirty (30)`, `30 (thirty)`."""
    return rf"(?:{_word_number()}(?:\s?\(\s?{_NUMBER}\s?\))?|{_NUMBER}(?:\s?\(\s?{_word_number()}\s?\))?)"


_BY = tuple(rate for rate in _WORDS.rates if rate not in {"a ", "an "})


@cache
def _rate() -> str:
    """What a figure is counted by: `per mile`, `/day`, `par personne et par nuit`, `a year`."""
    counted = any_of(sorted(fold(word) for word in (*_WORDS.counted, *_WORDS.times)))
    by = rf"\s(?:{'|'.join(_BY)})(?!(?:cent|exemple|example)\b)[a-z]{{1,15}}"
    one = rf"(?:{by}|\s(?:an?|by the)\s(?:{counted})|\s?/\s?[a-z]{{1,12}})"
    return rf"(?:(?:{one}){{1,2}}(?![^\W_])|\sp\.a\.|\s(?:pa|pcm)(?![^\W_]))?"


def _joined(
    found: Iterable[TypedValue], text: str, left: str = "", right: str = "", links: str = "to|a"
) -> Iterator[TypedValue]:
    """Values with the other end of their range: `£10-£20`, `3 to 5 days`, `£10-20`, `between 5 °C and 40 °C`.

    Args:
      left, right: expression of a bare number that may begin or end a range. links: words between two whole ends.
    """
    plain = fold(text)
    values: list[TypedValue] = []
    for value in found:
        between = plain[values[-1].end : value.start] if values else ""
        if re.fullmatch(rf"\s?[-–—]\s?|\s(?:{links})\s", between) or (
            re.fullmatch(r"\s(?:and|et)\s", between) and _BETWEEN.search(plain[: values[-1].start][-10:])
        ):
            first = values.pop()
            value = TypedValue(  # noqa: PLW2901 - both ends are one value
                first.start,
                value.end,
                text[first.start : value.end],
                f"{first.key}..{value.key}",
                first.whole and value.whole,
            )
        values.append(value)
    reach = 0
    for value in values:
        start, end, key = value.start, value.end, value.key
        if start < reach:
            continue  # the fraction of the value before: `one hour and a quarter`
        before = re.search(rf"{_BEFORE}({left})(?:{_JOINT})\Z", plain[max(0, start - 60) : start]) if left else None
        if before:
            # `between 3 and 5 days` and `de 3 à 5 jours` are one range; `in 2024 and 5 days` is none, and cut
            start -= len(before[0]) - (before.start(1) - before.start())
            key = f"{_spelt(before[1])}..{key}"
        after = re.match(rf"\s?[-–—]\s?({right})(?![^\W_]|[.,]\d)", plain[end : end + 60]) if right else None
        if after:
            end, key = end + after.end(), f"{key}..{after[1]}"
        fraction = _FRACTION_BEHIND.match(plain, end)
        if fraction:
            end, key = fraction.end(), f"{key}{fraction[0]}"
        reach = end
        yield TypedValue(start, end, text[start:end], key, value.whole and _stands_alone(plain, start, end))


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether nothing that may belong to a figure is written to either of its ends."""
    if re.match(_RIGHT, text[end : end + 2]) is None and text[end - 1 : end].isalnum():
        return False
    return not re.search(rf"\d[.,:]\Z|[^\W_][-–—]?\Z|/\Z|\d[{BLANKS}]\Z", text[max(0, start - 2) : start])


@cache
def _amounts() -> re.Pattern[str]:
    names = [fold(name) for name in currencies()]
    signs = "|".join(re.escape(sign) for sign in ("us$", "ca$", "a$", "£", "€", "$", "¥"))
    words = any_of(sorted(name for name in names if name.isalpha()))
    coins = any_of(sorted({fold(coin) for coins in _WORDS.coins.values() for coin in coins}))
    table = tables()
    scale = any_of(sorted(fold(word) for word in (*table.scales, *table.suffixes, *table.money_suffixes)))
    scaled = rf"(?:\s?(?:{scale})(?![^\W_]))?"
    of = r"(?:\s(?:d'|de\s|of\s))?"
    number = _NUMBER
    codes = "|".join(code.lower() for code in CURRENCY_CODES)
    sign = rf"{_MINUS}(?:(?:{signs})\s?{_MINUS}|(?<![^\W_])(?:{codes})\s?)"
    first = rf"{sign}{number}{scaled}(?:\s?(?:{words})(?![^\W_]))?"
    last = rf"{_BEFORE}{_MINUS}{number}{scaled}{of}\s?(?:[£€$¥](?:\s?\d\d(?!\d))?|(?:{words}|{coins})(?![^\W_]))"
    said = rf"(?<![^\W_]){_word_number()}{of}\s(?:{words}|{coins})(?![^\W_])"
    bare = rf"{_BEFORE}\d{{1,6}}[.,]\d\d(?=\s(?:{'|'.join(_BY)})\w)"  # `0.45 per mile` is money
    return re.compile(rf"(?:(?:{first}|{last}|{said})|{bare}){_rate()}")


def _amount_values(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    found = (
        TypedValue(*match.span(), text[match.start() : match.end()], _figure_key(match[0]))
        for match in _amounts().finditer(plain)
    )
    return _joined(found, text, left=_NUMBER, right=_NUMBER)


def _figure_key(plain: str) -> str:
    """A figure with its unit in one spelling: `£1,250.00` and `GBP 1250` are one, `per day` and `/day` too."""
    number = re.search(_NUMBER, plain)
    if number is None:
        return _spelt(plain)
    digits = plain_number(number[0], money=True) or number[0]
    around = f"{plain[: number.start()]} {plain[number.end() :]}"
    for sign, code in currencies().items():
        if not sign.isalpha() or (
            len(sign) > 1 and re.search(rf"(?<![^\W_]){re.escape(fold(sign))}(?![^\W_])", around)
        ):
            around = around.replace(fold(sign), f" {code.lower()} ")
    words = re.sub(r"\([^)]*\)", " ", re.sub(r"\b(?:per|par|a|an|each|every)\s|/", " per ", around))
    return " ".join([digits, *dict.fromkeys(words.split())])


def _spelt(plain: str) -> str:
    """A figure in words with its number in digits, so that `four weeks` and `4 weeks` are one."""
    words = re.sub(r"\([^)]*\)", " ", plain).replace("-", " ").split()
    if words and words[0] in _number_words():
        value, at = number_word_value(words)
        return " ".join([str(value), *words[at:]])
    return " ".join(["1" if words[0] in {"a", "an", "un", "une"} else words[0], *words[1:]]) if words else ""


@cache
def _percentages() -> re.Pattern[str]:
    phrases = any_of(sorted(fold(phrase) for phrase in (*LANGUAGES.quantities.percent, "p. 100", "per centum")))
    ends = rf"(?:\s?[%‰]|\s(?:{phrases})(?![^\W_])(?!\s?-?points?))"
    return re.compile(rf"(?:{_BEFORE}{_MINUS}{_NUMBER}|(?<![^\W_]){_word_number()}(?:\s\({_NUMBER}\))?){ends}{_rate()}")


def _percentage_values(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    percent = re.compile(rf"\s?(?:{any_of(fold(phrase) for phrase in LANGUAGES.quantities.percent)})(?![^\W_])|\s?%")
    found = (
        TypedValue(
            *match.span(),
            text[match.start() : match.end()],
            _percentage_key(percent.sub(" % ", match[0])),
        )
        for match in _percentages().finditer(plain)
        if not re.match(r"\s?-?\s?points?\b", plain[match.end() :])
    )
    return _joined(found, text, left=_NUMBER)


def _percentage_key(plain: str) -> str:
    minus = "-" if plain[0] in "-−–" else ""
    return minus + _figure_key(" ".join(_spelt(plain).split()))


@cache
def _durations() -> re.Pattern[str]:
    units = LANGUAGES.quantities.units
    kept = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")
    words = {fold(word) for name in kept for word in units.get(name, ())} | {fold(word) for word in _WORDS.times}
    words |= {"yr", "yrs", "hr", "hrs", "min", "mins", "wks", "mths", "sec", "secs"}
    unit = rf"(?:{any_of(sorted(words))})(?![^\W_])"
    modifier = any_of(sorted(fold(word) for word in _WORDS.modifiers))
    half = r"(?:\s?(?:1/2|½)|\sand a half|\set demie?)?"
    behind = rf"(?:\s(?:{modifier})(?![^\W_])){{0,2}}(?:\set demie?)?"
    one = rf"{_count()}{half}[ -]?(?:(?:{modifier})[ -]){{0,2}}{unit}{behind}"
    single = rf"(?:an?|un|une|half an?|une demi-?)[ -](?:(?:{modifier})\s)?{unit}{behind}"
    smaller = (
        ("years", "months", "weeks", "days"),
        ("months", "weeks", "days"),
        ("weeks", "days"),
        ("hours", "minutes"),
    )
    named = {name: any_of(sorted(fold(word) for word in units[name])) for name in kept}
    together = "|".join(  # `2 years and 6 months`
        rf"{_count()}\s(?:{named[large]})\s(?:(?:and|et)\s)?"
        rf"{_count()}\s(?:{'|'.join(named[name] for name in small)})(?![^\W_])"
        for large, *small in smaller
    )
    # `2 h 30 min`, `1 hr 30`, `2h30`; what another word counts is no minutes: `24 hours 7 days a week`
    hours, minutes = rf"(?:h|hrs?|{named['hours']})", rf"(?:min|mins|mn|{named['minutes']})"
    clock = (
        rf"(?P<hours>\d{{1,3}})\s?{hours}\s?(?:(?:and|et)\s)?(?P<minutes>[0-5]?\d)"
        rf"(?:\s?{minutes}(?![^\W_])|(?!\s?(?:{any_of(sorted(words))}|(?:h|mn)(?![^\W_])|[%°£€$]|[.,:/-]?\d)|[^\W_]))"
    )
    short = rf"{_NUMBER}\s?(?:h|mn)(?![^\W_])"
    return re.compile(rf"{_BEFORE}(?:{clock}|{together}|{one}|{short}|{single})")


_END_OF = re.compile(r"(?<![^\W_])(?:end of\s|fin d')\Z")


def _duration_values(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    found = []
    for match in _durations().finditer(plain):
        start, end = match.span()
        if re.match(r"an?\s|une?\s", match[0]) and re.search(
            r"(?:\d|%|times|once|twice|days|hours|weeks|fois|jours)\s\Z", plain[max(0, start - _NEAR) : start]
        ):
            continue  # `£25 a day`, `twice a week` count by it
        if _END_OF.search(plain[max(0, start - _NEAR) : start]):
            continue  # `the end of a month` is a day
        by = re.match(rf"{_rate()}", plain[end:])
        key = " ".join(re.sub(r"\b(?:working|business) days?\b", "working day", _spelt(match[0])).split())
        if match["hours"]:
            key = f"{match['hours']} hour {int(match['minutes'])} minute"
        key = re.sub(r"\b(?:h|hrs?)$", "hour", re.sub(r"\b(?:mins?|mn)$", "minute", key))
        key = re.sub(r"(?<=[a-z]{3})s\b", "", key) + (by[0] if by else "")
        found.append(TypedValue(start, end, text[start:end], key, not _two_numbers(match[0])))
    return _joined(found, text, left=f"(?:{_NUMBER}|{_word_number()})")


def _two_numbers(plain: str) -> bool:
    """Whether number words are two numbers: `three and five days`."""
    words = re.split(r"[ -]", plain)
    if words[0] not in _number_words():
        return False
    _, at = number_word_value(words)
    return any(word in _number_words() for word in words[at : at + 3]) and "(" not in plain


_UNITS = "|".join(  # as fold leaves them; what is spelt out is English or French
    """kg g mg µg mcg t km m cm mm µm km/h mph m/s l ml cl dl l/min m² m2 m³ m3 ft in inch inches feet yards miles? w
    kw mw v mv kv a ma mah ah wh kwh va hz khz mhz ghz rpm tr/min bar mbar psi pa kpa hpa n nm db dba lm lux k °c °f °
    °k gb mb tb kb mbit/s gbit/s mp px dpi lb lbs oz gal ppm mmol/l mg/ml iu ui ohm ω kω j kj kcal litres? liters?
    metres? meters?
    kilometres? kilometers? millimetres? millimeters? centimetres? centimeters? grams? grammes? kilograms? kilogrammes?
    kilos? tonnes? tons? watts? volts? amps? amperes? pounds ounces gallons? pints? degrees degres bars pages? sheets?
    feuilles? tablets? comprimes? capsules? gelules? doses? people persons personnes""".split()  # noqa: SIM905
)

_LETTERS = frozenset("AVWKNJΩωgmtlL°")


@cache
def _quantities() -> re.Pattern[str]:
    names = "|".join(sorted(_UNITS.split("|"), key=lambda one: -len(one)))
    unit, first = (rf"(?:\s?(?{form}{names})(?:\s(?:ac|dc))?)" for form in (":", "P<unit>"))
    sides = rf"(?:(?:\s?(?:{_UNITS}))?\s?[x×]\s?{_NUMBER}){{0,2}}"
    return re.compile(
        rf"{_BEFORE}{_MINUS}{_NUMBER}{sides}{first}(?:(?<=lb)\s{_NUMBER}\s?oz)?(?:\s?±\s?{_NUMBER}(?:{unit}|\s?%))?(?![^\W_]|[²³]){_rate()}"
    )


def _quantity_values(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    found = (
        TypedValue(*match.span(), text[match.start() : match.end()], re.sub(r"\s", "", match[0]))
        for match in _quantities().finditer(plain)
        if _is_unit(text[match.start("unit") : match.end("unit")])
    )
    return _joined(found, text, left=rf"{_MINUS}{_NUMBER}", links="to|a|thru|through|(?:right )?up to|jusqu'a|~")


def _is_unit(printed: str) -> bool:
    """Whether a unit is printed as it must be: a letter alone in its own case and without accent (`A`, never `à`)."""
    return len(printed) > 1 or printed in _LETTERS


# -- dates -------------------------------------------------------------------------------------------------------------


@cache
def _dates() -> re.Pattern[str]:
    table = tables()
    month = any_of(sorted({fold(name) for name in table.months}))
    ending = any_of(sorted({fold(ending) for ending in table.endings}))
    of = "|".join(fold(of) for of in LANGUAGES.quantities.of_dates) or "(?!)"
    year = r"(?:,?\s(?:de\s)?(?P<{}>\d{{4}})(?!\d))"
    return re.compile(
        r"(?<![^\W_])(?<![\d/.-])(?:"
        r"(?P<digits>\d{4}[-/]\d{2}[-/]\d{2}|\d{1,2}(?P<mark>[/.-])\d{1,2}(?P=mark)(?:\d{4}|\d{2}))"
        rf"|(?P<d1>\d{{1,2}})(?:\s?(?:{ending}))?[\s-](?:{of})?(?P<m1>{month})(?![^\W_])"
        rf"(?:\.?{year.format('y1')}|-(?P<y4>\d{{4}}))?"
        rf"|(?P<m2>{month})\.?\s(?P<d2>\d{{1,2}})(?:{ending})?(?![\d])(?:{year.format('y2')})?"
        rf"|(?P<m3>{month})\.?\s(?P<y3>\d{{4}})"
        r"|(?P<m4>0[1-9]|1[0-2])/(?P<y5>(?:19|20)\d\d)"
        r")(?![^\W_]|[/-]\d|[.,]\d)"
    )


_BARE_DAY = re.compile(  # the first of two days that share a month: `1-5 March`
    r"(?<![\d.,])\d{1,2}(?:st|nd|rd|th|er)?(?:\s?[-–—/&]\s?|\s(?:to|and|or|et|ou|au|a)\s)\Z"
    r"|\d(?:st|nd|rd|th|er)?\s(?:of\s)?\Z"
)


def _date_values(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    for match in _dates().finditer(plain):
        start, end = match.span()
        known = _calendar(match)
        name = match["m1"] or match["m2"]
        small = name in _WORDS.capital_months and known and known.startswith("0000") and not _capital(text, match)
        if known is None or small:
            continue
        bare = _BARE_DAY.search(plain[max(0, start - _NEAR) : start])
        cut = bool(bare) or bool(re.match(r"[tT]\d|\s?[-–—/]\s?\d", plain[end:]))
        yield TypedValue(start, end, text[start:end], known, not cut)


def _capital(text: str, match: re.Match[str]) -> bool:
    return text[match.start("m1" if match["m1"] else "m2")].isupper()


def _calendar(match: re.Match[str]) -> str | None:
    """A date as `2025-04-01`, with noughts for a year or a day that is not written; None where no calendar has it."""
    if match["digits"]:
        year, month, day = _digits_date(match["digits"])
    else:
        month = int(match["m4"] or 0) or _months()[match["m1"] or match["m2"] or match["m3"]]
        year = int(match["y1"] or match["y4"] or match["y2"] or match["y3"] or match["y5"] or 0)
        day = int(match["d1"] or match["d2"] or 0)
    try:
        date(year or 2024, month, day or 1)
    except ValueError:
        return None
    return f"{year:04}-{month:02}-{day:02}"


def _digits_date(digits: str) -> tuple[int, int, int]:
    last = re.split(r"\D", digits)[-1]
    if len(last) == 2 and not re.match(r"\d{4}", digits):
        digits = f"{digits[:-2]}20{last}"
    return calendar_date(digits)


@cache
def _months() -> Mapping[str, int]:
    return {fold(name): number for name, number in tables().months.items()}


# -- telephone, mail and web -------------------------------------------------------------------------------------------

_GROUP = r"(?:\(\d{1,5}\)|\d{1,15})"
_RUN = re.compile(
    rf"(?<![^\W_])(?<![.,/#+=-])(?:\+ ?)?{_GROUP}"
    rf"(?:(?:[{BLANKS}.\-\u2010\u2011\u2012\u2013]| ?(?=\()|(?<=\))){_GROUP}){{0,14}}+"
)
_PLACE = re.compile(r"(?<=[.,/#+=-])\Z|[^\W_]\Z")
_FEWEST, _MOST_DIGITS = 6, 15  # of a telephone number, without extension
_GOES_ON = re.compile(r"[^\W_]|[-–./]\d|[-–./,]?\s?\d|\s?[%€£$°]")
_HOURS_BEHIND = re.compile(  # `, 8 a.m. to 8 p.m.`, `, 24 hours`
    r",\s\d{1,2}(?:[:.h]\d\d)?\s?(?:[ap]\.?m(?![^\W_])|h(?![^\W_])|hours?|heures?|(?:-|–|to|a)\s?\d{1,2}(?!\d))"
    r"|,\s(?:24/7|[5-7]\s(?:days|jours))(?![^\W_])"
)
_FEWEST_IN_A_ROW = 9  # digits of a telephone number that is written without a blank


@cache
def _extension() -> re.Pattern[str]:
    return re.compile(rf"[,;]?\s?\(?(?:{'|'.join(_WORDS.extension)})\s?:?\s?\d{{1,6}}(?!\d)\)?", re.IGNORECASE)


@cache
def _extension_before() -> re.Pattern[str]:
    """An extension with its number behind it: `ext. 12 on 01632 960 700`, `poste 12 au 01 99 00 12 34`."""
    links, said = any_of(sorted(_WORDS.extension_of)), "|".join(_WORDS.extension)
    return re.compile(rf"(?<![^\W_])(?:{said})\s?\d{{1,6}},?\s(?:{links})\s\Z", re.IGNORECASE)


@cache
def _extension_cut() -> re.Pattern[str]:
    """An extension whose figures stand in another line or sentence."""
    return re.compile(rf"[,;]?\s?\(?(?:{'|'.join(_WORDS.extension)})(?![^\W_])")


@cache
def _counted_by() -> re.Pattern[str]:
    """What follows a number that counts something: `0800 123 456 7 days a week`."""
    words = {fold(word) for unit in LANGUAGES.quantities.units.values() for word in unit}
    return re.compile(rf"\s(?:{any_of(sorted(words))}|[ap]\.?m\.?|h)(?![^\W_])")


def _phones(text: str, language: str) -> Iterator[TypedValue]:
    for match in _RUN.finditer(text):
        start, end = match.span()
        digits = re.sub(r"\D", "", match[0])
        if not _FEWEST <= len(digits) <= _MOST_DIGITS or _dates().fullmatch(match[0]):
            continue
        # an amount, a reference or a range around the digits
        if re.search(r"[£€$¥#]\s?\Z|[\d][-–]\s?\Z|[^\W_][-/.]\Z", text[max(0, start - 3) : start]):
            continue
        number = _dialled(match[0], language)
        if number is None:
            continue
        extension = _extension().match(text, end)
        end = extension.end() if extension else end
        if extension and not text[match.end() : end].count("(") and text[end - 1] == ")":
            end -= 1
        rest = fold(text[end : end + 24])
        if not extension and _extension_cut().match(rest):
            continue
        goes_on = _GOES_ON.match(rest) and not _HOURS_BEHIND.match(rest)
        whole = not goes_on and not (not extension and _counted_by().match(rest))
        before = None if extension else _extension_before().search(text[max(0, start - 2 * _NEAR) : start])
        start -= len(before[0]) if before else 0
        inner = (extension or before or [""])[0]
        yield TypedValue(start, end, text[start:end], number + re.sub(r"\D", "", inner), whole)


def _dialled(written: str, language: str) -> str | None:
    """A number as it is dialled from anywhere, None for what is no telephone number of the regions at hand.

    Numbers of no subscriber (`01632 960123`) are possible and not valid; they need the look of one: a + or a nought
    before them, or a code in brackets.
    """
    import phonenumbers

    look = written.startswith(("+", "0", "("))
    if not re.search(r"\D", written) and (not look or written.startswith("000") or len(written) < _FEWEST_IN_A_ROW):
        return None  # digits and nothing else: an account, a reference
    written = re.sub(r"\s", " ", written)
    for least in (phonenumbers.is_valid_number, phonenumbers.is_possible_number):
        for region in _regions(language):
            try:
                number = phonenumbers.parse(written, region)
            except phonenumbers.NumberParseException:
                continue
            if least(number):
                return f"+{number.country_code}{number.national_number}"
        if not look:
            return None
    return None


@lru_cache(maxsize=64)
def _regions(language: str) -> tuple[str, ...]:
    """Regions whose plans are tried in turn: that of `en-US`, those of the language, then all others."""
    tongue, _, region = language.replace("_", "-").partition("-")
    own = ("FR", "BE", "CH", "LU", "CA") if tongue.lower() == "fr" else ()
    return tuple(dict.fromkeys((*([region.upper()] if region else []), *own, *_WORDS.regions)))


_EMAIL = re.compile(
    r"(?<![\w.+%@'’-])[\w+%'-]{1,64}(?:\.[\w+%'-]{1,64}){0,6}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}+(?![\w@]|[-.]\w)"
)
_LINK = re.compile(r"(?<![\w@./-])(?:https?://|www\.)[^\s<>\"'|«»“”]{3,300}", re.IGNORECASE)
_DOMAIN = re.compile(
    r"(?<![\w@./:-])(?:[a-z0-9][a-z0-9-]{0,62}\.){1,4}"
    r"(?:com|org|net|edu|gov|info|app|dev|io|eu|uk|fr|be|ch|ca|us|au|ie|de|lu|nz|example|test)(?:/[^\s<>\"'|«»“”]{0,200})?(?![\w@-])",
    re.IGNORECASE,
)


def _emails(text: str) -> Iterator[TypedValue]:
    for match in _EMAIL.finditer(text):
        yield TypedValue(*match.span(), match[0], match[0].lower())


def _urls(text: str) -> Iterator[TypedValue]:
    end = 0
    for match in sorted(
        (*_LINK.finditer(text), *_DOMAIN.finditer(text)), key=lambda match: (match.start(), -match.end())
    ):
        if match.start() < end:
            continue
        shown = match[0].rstrip(".,;:!?*_")
        while shown.endswith((")", "]")) and shown.count("(") + shown.count("[") < shown.count(")") + shown.count("]"):
            shown = shown[:-1].rstrip(".,;:!?")
        end = match.start() + len(shown)
        key = re.sub(r"^https?://|/$", "", shown.lower())
        yield TypedValue(match.start(), end, shown, key, not text[end : end + 1].isalnum())


# -- names and references ----------------------------------------------------------------------------------------------

_CAP = r"(?:[A-ZÀ-ÖØ-Þ](?:[\w’'-]{0,30}[^\W_]|\.)?(?![^\W_]))"
_TITLE = r"(?:(?:Mr|Mrs|Ms|Miss|Dr|Prof|Sir|Mme|Mlle|M|Me|Maître|Monsieur|Madame)\.?\s)"
_PARTICLE = r"(?:(?:de|du|des|la|le|van|von|der|den|di|da|el|al|bin|ten|y)\s|d[’'])"
_PARTICLES = frozenset(
    {"de", "du", "des", "la", "le", "van", "von", "der", "den", "di", "da", "el", "al", "bin", "ten", "y"}
)
_PERSON = re.compile(rf"(?<![^\W_])(?<![-&’'])({_TITLE}{{0,2}}){_CAP}(?:[ \u00a0]{_PARTICLE}{{0,2}}{_CAP}){{0,4}}")
_FIRM = re.compile(
    r"(?<![^\W_])(?<![-’'])(?:[A-ZÀ-ÖØ-Þ\d][\w’'&.-]{0,30})"
    r"(?:[ \u00a0](?:(?:&|and|et|of|for|de|du|des|la|le|the)\s){0,2}(?:[dl][’'])?[A-ZÀ-ÖØ-Þ\d][\w’'&.-]{0,30}"
    r"|[ \u00a0]\([A-ZÀ-ÖØ-Þ][\w’'&-]{0,30}\)(?=[ \u00a0](?:Ltd|Limited|Inc|LLC|DAC|plc|PLC|Pty)\b)"
    r"|,\s(?:Inc|LLC|Ltd|LLP|SA|SAS|PLC|plc)\b\.?){0,8}(?:[ \u00a0](?:plc|inc|ltd|ltée|asbl)\b)?"
)


_OPENING_WORDS = re.compile(r"[^\W\d_]{2,20}[ \u00a0](?=[A-ZÀ-ÖØ-Þ])")


@cache
def _no_names() -> frozenset[str]:
    return frozenset(fold(word) for word in _WORDS.no_name)


@cache
def _small_words() -> frozenset[str]:
    """Words that go on with a sentence and with no name."""
    return frozenset(fold(word) for word in (*LANGUAGES.words.stop, *_WORDS.link, *_WORDS.copulas))


@cache
def _firms() -> frozenset[str]:
    return frozenset(fold(word) for word in _WORDS.firms)


def _persons(text: str) -> Iterator[TypedValue]:
    for match in _PERSON.finditer(text):
        start, end = match.span()
        opened = _OPENING_WORDS.match(match[0])  # `Ask Dana Whitlock`, `Responsable Jean Martin`
        if opened and all(fold(word) in _no_names() for word in opened[0].split()):
            match = _PERSON.match(text, start + opened.end()) or match  # noqa: PLW2901 - what is left of it
            start, end = match.span()
        shown = match[0].removesuffix(".") if not re.search(r"\b[A-Z]\.$", match[0]) else match[0]
        shown = re.sub(r"[’']s$", "", shown)
        end = start + len(shown)
        bare = shown[len(match[1]) :].strip()
        words = [fold(word).strip(".") for word in re.split(r"[\s\u00a0]", bare)]
        if not bare or (set(words) - _PARTICLES) & (_no_names() | _firms()) or (len(words) == 1 and not match[1]):
            continue
        if not any(len(word) > 1 for word in words):
            continue
        # another name goes on behind `&` or a hyphen, a firm's form behind a blank
        goes_on = re.match(r"[-&/]|\s&\s|[^\W_]|\s[A-ZÀ-ÖØ-Þ]", text[end:])
        yield TypedValue(start, end, shown, " ".join(words), not goes_on)


_SENTENCE_BEHIND = re.compile(  # `Acme Ltd. Forget`, `Acme K.K. Whoever`
    r"(?<=[^\W_]\s)(?:Ltd|Inc|LLC|LLP|plc|PLC|Corp|GmbH|Company|SA|SAS|SARL|(?:[A-Z]\.){1,3}[A-Z])(?=\.\s)"
)
_FORM_NEXT = re.compile(r"\.\s(?:Ltd|Inc|LLC|LLP|plc|PLC|GmbH|KG|SA|SAS|SARL|Co|Corp|Limited)(?![^\W_])")
_REST_OF_NAME = re.compile(  # `SELAS Groupe dentaire Solandre`: a form before the name, a small word, a capital
    rf"((?:[ \u00a0][a-zà-öø-ÿ][a-zà-öø-ÿ’'-]{{1,20}}){{1,3}})((?:[ \u00a0]{_CAP}){{1,4}})"
)


def name_in_sentence(name: str) -> str:
    """The name of a firm up to the end of its sentence.

    Example:
      >>> name_in_sentence("Northmark Ltd. Forget"), name_in_sentence("Northmark Co. Ltd")
      ('Northmark Ltd', 'Northmark Co. Ltd')
    """
    for match in _SENTENCE_BEHIND.finditer(name):
        if not _FORM_NEXT.match(name, match.end()):
            return name[: match.end()] + ("." if "." in match[0] else "")
    return name


def _organisations(text: str) -> Iterator[TypedValue]:
    end = 0
    for match in _FIRM.finditer(text):
        if match.start() < end:
            continue
        shown = re.sub(r"[’']s$", "", name_in_sentence(match[0]).rstrip(".,-’'"))
        rest = text[match.start() + len(shown) :]
        inner = re.search(r"\b(?:[A-Z]\.){1,3}[A-Z]$", shown) and rest.startswith(".")  # `B.V.`
        # the full stop of a form is the sentence's too; alone in its cell it is the form's
        alone = match.start() == 0 and rest.strip() == "."
        if inner or (
            re.search(r"\b(?:Inc|Ltd|Co|Corp|Bros)$", shown) and (alone or re.match(r"\.(?:[,;:)]|\s[a-zà-ÿ])", rest))
        ):
            shown += "."
        shown = re.sub(r"\s(?:and|et|of|for|de|du|des|la|le|the|&)$", "", shown)
        words = fold(shown).split()
        start = match.start()
        if start == 0 and words and words[0] in {"the", "le", "la", "les"} and len(words) > 1:
            cut = len(shown.split()[0]) + 1
            start, shown, words = start + cut, shown[cut:], words[1:]
        if (
            not shown
            or not any(char.isupper() for char in shown)
            or (len(words) == 1 and words[0] in _no_names() | _firms())
        ):
            continue
        if words[0] in _OPENERS or shown.replace(" ", "").isdigit():
            continue
        end = start + len(shown)
        further = _REST_OF_NAME.match(text, end) if words[0] in _firms() and len(words) > 1 else None
        if further and not _small_words() & set(fold(further[1]).split()):
            if start or not re.match(r"[.,;(]|\s?\Z|\s\(", text[further.end() :]):
                yield TypedValue(start, end, shown, " ".join(words), whole=False)
                continue
            end, shown = further.end(), text[start : further.end()]
            words = fold(shown).split()
        goes_on = re.match(r"[-&/]|\s&\s|[^\W_]|,?\s(?:Ltd|LLC|LLP|Inc|SA|SAS|SARL|GmbH|plc|PLC)\b", text[end:])
        yield TypedValue(start, end, shown, " ".join(word for word in words), not goes_on)


_OPENERS = frozenset(
    """a an and any as at by each for if in it no not of on or our that this to we you your ce cette il elle nous vous
    un une see please none neant aucun aucune tbc within outside under with dans hors sous avec chez""".split()  # noqa: SIM905
)
_REFERENCE = re.compile(
    r"(?<![^\W_])(?<![-/.@£€$])[A-Z\d]{1,20}"
    r"(?:(?:[-/._·:]|[ \u00a0](?=[A-Z\d]{0,8}\d))[A-Za-z\d]{1,20}){0,7}+(?![^\W_]|[-/@]\w|[.,]\d|\s?[%€£$])"
)
_NAMED_CODE = re.compile(r"(?:REF|SKU|MPN|P/?N|S/?N|LOT)[.:]?[ \u00a0](?=\S*\d)")  # says that a code follows
_EDITION = re.compile(  # `rev. C`, `v2`, `issue 3`
    r"[ \u00a0](?:(?:[Rr]ev(?:ision)?|REV|[Ii]ss(?:ue)?|ISSUE|[Ii]nd(?:ice)?)\b\.?[ \u00a0]?|[Vv]\.?)"
    r"(?:\d{1,3}(?:\.\d{1,2})?|[A-Z])(?![^\W_]|[./-]\w)"
)


def _references(text: str) -> Iterator[TypedValue]:
    plain = fold(text)
    for match in _REFERENCE.finditer(text):
        named = _NAMED_CODE.match(match[0])
        start = match.start() + (named.end() if named else 0)
        # the date that follows a reference is no part of it: `BAS/25/0091 9 May 2025`
        dated = (at for at in range(start + 1, match.end()) if text[at - 1] in " \u00a0" and _dates().match(plain, at))
        end = next(dated, match.end() + 1) - 1
        shown = text[start:end]
        if (
            not re.search(r"\d", shown)
            or (_dates().fullmatch(fold(shown)) and not re.fullmatch(r"\d\d/\d{4}", shown))
            or re.fullmatch(r"(?:19|20)\d\d|\d{1,2}", shown)
        ):
            continue
        if re.fullmatch(r"\d[\d.,: \u00a0]*", shown) and not re.fullmatch(r"\d{3,20}", shown):
            continue  # a number, a time, a telephone number
        edition = _EDITION.match(text, end) if end == match.end() else None
        end = edition.end() if edition else end
        shown = text[start:end]
        rest = text[end : end + 24]
        goes_on = end >= match.end() and (
            _counted_by().match(fold(rest)) or re.match(r"\s(?:[A-Z]{1,4}|[Rr]ev)(?![^\W_])", rest)
        )
        yield TypedValue(start, end, shown, re.sub(r"\s", " ", shown), not goes_on)


def _texts(text: str) -> Iterator[TypedValue]:
    shown = text.strip()
    shown = shown[:-1].rstrip() if shown.endswith((".", ";", ",")) else shown
    if shown:
        start = text.index(shown)
        yield TypedValue(start, start + len(shown), shown, " ".join(fold(shown).split()))


_READERS: Mapping[str, Callable[[str], Iterator[TypedValue]]] = {
    "date": _date_values,
    "amount": _amount_values,
    "percentage": _percentage_values,
    "duration": _duration_values,
    "quantity": _quantity_values,
    "email": _emails,
    "url": _urls,
    "person": _persons,
    "organisation": _organisations,
    "reference": _references,
    "text": _texts,
}


def is_whole(kind: ValueKind | None, text: str, start: int, end: int, language: str = "") -> bool:
    """Whether a span of a text is a value whole: no digit, letter, unit or sign of the same value goes on beside it.

    Args:
      kind: of the value; None for one of no kind, of which only letters and digits must not be cut.

    Example:
      >>> is_whole("phone", "ring 0800 123 4567", 5, 17), is_whole("phone", "ring 0800 123 4567", 5, 18)
      (False, True)
    """
    if _is_cut(text, start, end):
        return False
    if kind is None or kind == "text":
        return True
    if kind in {"person", "organisation"}:  # a pack's own pattern may take less than all words with capitals
        return re.match(r"-[^\W_]|,?\s(?:Ltd|LLC|LLP|Inc|SA|SAS|SARL|GmbH|plc|PLC)(?![^\W_])", text[end:]) is None
    over = [value for value in typed_values(kind, text, language) if value.start < end and start < value.end]
    if kind == "reference" and not over:
        return True
    return any(value.whole and value.start >= start and value.end <= end for value in over) and all(
        value.start >= start and value.end <= end for value in over
    )


def _is_cut(text: str, start: int, end: int) -> bool:
    for at in (start, end):
        pair = text[at - 1 : at + 1] if 0 < at < len(text) else ""
        if len(pair) == 2 and pair[0].isalnum() and pair[1].isalnum():
            return True
    tail = text[end : end + 2]
    return bool(text[end - 1 : end].isdigit() and re.match(r"[.,]\d", tail)) or bool(
        text[start : start + 1].isdigit() and re.search(r"\d[.,]\Z", text[max(0, start - 2) : start])
    )


def same_values(values: Iterable[TypedValue]) -> bool:
    """Whether values are one, however they are spelt."""
    keys = [value.key for value in values]
    return all(one == other for one, other in pairwise(keys))
