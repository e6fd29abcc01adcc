"""Columns of an old and a new figure, and the date that chooses between them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MONTHS = (
    ("jan", "janv"), ("feb", "févr", "fevr"), ("mar", "mars"), ("apr", "avr"), ("may", "mai"), ("jun", "juin"),
    ("jul", "juil"), ("aug", "août", "aout"), ("sep", "sept"), ("oct",), ("nov",), ("dec", "déc"),
)  # fmt: skip
_MONTH = {name: n for n, names in enumerate(_MONTHS, 1) for name in names}
_DATE = re.compile(
    rf"(?:\b(?P<day>\d{{1,2}})(?:er|st|nd|rd|th)?\s)?\b(?P<month>{'|'.join(sorted(_MONTH, key=len, reverse=True))})"
    r"[a-zéûô]*\.?\s(?P<year>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_STARTS = re.compile(
    r"\b(?:before|from|on or after|à partir du|à compter du|depuis le|avant le)\s(?=(?:\d|1er))", re.IGNORECASE
)
_FORMER = re.compile(r"\b(?:old|former|previous|expiring|before|ancien\w*|avant)\b", re.IGNORECASE)
_OLD = re.compile(r"^(?:old|until|jusqu|ancien|expiring|(?:19|20)\d\d)", re.IGNORECASE)
_NEW = re.compile(r"^(?:new|from|depuis|à partir|nouveau|nouvelle|renewal|(?:19|20)\d\d)", re.IGNORECASE)
Date = tuple[int, int, int]


def is_old_and_new(heads: Sequence[str]) -> bool:
    """Whether the heads of columns are times, the last the newest: `2024 | 2025`, `Until 31 March | From 1 April`."""
    return len(heads) > 1 and all(_OLD.search(head) for head in heads[:-1]) and bool(_NEW.search(heads[-1]))


def chosen_column(heads: Sequence[str], about: str, *, label: str = "", said: str = "") -> int:
    """Position of the column that a question is about: by its date or year, else the last.

    The new figures start at the date that the row's label gives (`from 1 May 2025`), else at that of the last head,
    else at that of the sentences about the table.

    Args:
      heads: of the columns, the newest last. about: the question. label: of the row. said: sentences about the table.
    """
    last = len(heads) - 1
    start = _start(label) or _date(heads[-1]) or _start(said)
    asked = _date(about)
    if asked is not None and start is not None:
        return last if asked >= (start if asked[2] else (*start[:2], 0)) else 0
    years = {int(year) for year in _YEAR.findall(about)}
    named = [n for n, head in enumerate(heads) if years & {int(year) for year in _YEAR.findall(head)[:1]}]
    if len(named) == 1:
        return named[0]
    if _FORMER.search(about) or (years and start is not None and max(years) < start[0]):
        return 0
    return last


def _start(text: str) -> Date | None:
    mark = _STARTS.search(text)
    return _date(text[mark.end() :][:24]) if mark else None


def _date(text: str) -> Date | None:
    match = _DATE.search(text)
    if match is None:
        return None
    return int(match["year"]), _MONTH[match["month"].lower()], int(match["day"] or 0)
