"""Numbers and dates by their value, in digits or in words of English and French."""

from __future__ import annotations

import re
from collections.abc import Sequence

from raglab.answering._lexicon import NUMBERS, SCALES

LAST_DAY, LAST_MONTH = 31, 12


def value_of(digits: str) -> float:
    """Value of a number in digits.

    Blanks, apostrophes and a comma before three digits part thousands, and so do several points; else a comma or a
    point begins the decimals.

    Example:
      >>> [value_of(digits) for digits in ("1,000", "1 000,50", "2.5", "1.000.000")]
      [1000.0, 1000.5, 2.5, 1000000.0]
    """
    joined = re.sub(r"[\u00a0\u202f' ]", "", digits)
    joined = re.sub(r",(?=\d{3}(?:\D|$))", "", joined).replace(",", ".")
    head, *rest = joined.split(".")
    if len(rest) > 1 and all(len(part) == 3 for part in rest):
        return float(head + "".join(rest))
    return float(f"{head}.{''.join(rest)}") if rest else float(head)


def plain(value: float) -> str:
    """A value as every way of writing it is known by.

    Example:
      >>> plain(250.0), plain(0.1 + 0.2)
      ('250', '0.3')
    """
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def date_of(text: str) -> tuple[str, str, str]:
    """Day, month and year of a date in digits; the day comes first where either may.

    Example:
      >>> date_of("2025-04-01"), date_of("01/04/2025")
      (('1', 'm4', '2025'), ('1', 'm4', '2025'))
    """
    numbers = [int(number) for number in re.split(r"\D", text)]
    day, month, year = numbers[::-1] if numbers[0] > LAST_DAY else numbers
    if month > LAST_MONTH:
        day, month = month, day
    return str(day), f"m{month}", str(year)


def counted(words: Sequence[str], start: int) -> tuple[int, int]:
    """Value of the number words from `start` on, and where they end.

    Example:
      >>> counted("one hundred and twenty five vans".split(), 0), counted("quatre vingt dix jours".split(), 0)
      ((125, 5), (90, 3))
    """
    total = current = 0
    at = start
    while at < len(words):
        word = words[at]
        if at > start and word in {"and", "et"} and _joins(words, at, current):
            at += 1
            continue
        small = _small(word, first=at == start)
        if word in SCALES:
            scale = SCALES[word]
            if scale == 100:
                current = max(current, 1) * 100
            else:
                total, current = total + max(current, 1) * scale, 0
        elif small == 20 and current % 100 == 4:  # quatre-vingt
            current += 76
        elif small is not None and (current == 0 or _adds(current % 100, small)):
            current += small
        else:
            break
        at += 1
    return total + current, at


def _small(word: str, *, first: bool) -> int | None:
    """Value of a number word under a hundred; `un` counts only inside a number, as it is an article."""
    if word == "one" or (word == "un" and not first):
        return 1
    return NUMBERS.get(word)


def _joins(words: Sequence[str], at: int, current: int) -> bool:
    """Whether `and` or `et` stands inside one number: `hundred and two`, `vingt et un`."""
    follows = _small(words[at + 1], first=False) if at + 1 < len(words) else None
    return follows is not None and (words[at] == "et" or (current >= 100 and current % 100 == 0))


def _adds(current: int, small: int) -> bool:
    """Whether a number word may follow another in one number: `twenty five`, `soixante quinze`."""
    if current == 0:
        return True
    return (current % 10 == 0 and current >= 20 and small < 10) or (current in {60, 80} and 10 <= small < 20)
