"""Layouts of tables of contents (shore): how titles and pages are printed, which lines are none.

Read are leaders (dots, lines, dashes), tabs and columns of blanks, one or several entries a line;
tables of Markdown with a column of pages, under a head or without; lists with `page 7`, `p. 7` or
`(7)`, sentences of them and lines with middle dots, and links to pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from raglab.words.text import Piece, pieces

# How surely lines are a table of contents: printed as any list is, as these mostly are, with the
# word page, and led up to by a sentence as by a title.
WEAK, PRINTED, SURE, LED_UP = range(4)
_LONGEST = 400  # characters of a line that is looked at
_WIDEST = 20  # pages of a range
_LABEL = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS = rf"{_LABEL}(?:\s?(?:[–-]|to|à)\s?{_LABEL})?"
_PAGES = r"(?:pages?|pp?\.)"
_PAGE = re.compile(rf"(?i){_PAGES}")
_RANGE = re.compile(rf"(?i)^{_PAGES}?\s*({_LABEL})(?:\s?(?:[–-]|to|à)\s?({_LABEL}))?$")
_IN_PARTS = re.compile(r"\d{1,3}-\d{1,3}")
_PAGE_HEAD = re.compile(r"(?i)\b(?:printed )?pages?\b|^\s*p\.\s*$")
_LEADER = (
    r"(?:(?:\s?[.·_…]){3,400}+\s?|…{1,400}+|\s?[-–—]{3,400}+\s?|\s[–—|→]\s|[ \u00a0]{2,400}+|\t++)"
)
# Several entries may stand in one line; nothing else may stand behind the last.
_LED = re.compile(
    rf"(?i)(?P<title>[\W\d_]*[^\W\d_].*?){_LEADER}\s*(?P<labels>{_PAGES}?\s?{_LABELS})"
    rf"(?:{_LEADER}(?=.*\b{_LABEL}\s*$)|\s*$)"
)
_ITEM = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?P<labels>(?:pages?|p\.)\s*{_LABELS})\s*[.;]?$"
)
_BRACKETED = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?)\s?\((?P<labels>{_PAGES}?\s?{_LABELS})\)[.;,]?$"
)
_BARE = re.compile(rf"(?i)^(?P<title>\S.{{0,120}}?[^\W\d_]\S{{0,20}}?)\s(?P<labels>{_LABELS})$")
# Entries run into a sentence follow each other without a gap.
_RUN_IN = re.compile(
    r"(?i)(?P<title>[^·]{1,89}?(?:[^·\s]|(?<=\S)\s))\s*"
    rf"(?:\(|,\s*(?=p))(?P<labels>(?:(?:pages?|p\.)\s*)?{_LABELS})\)?"
    r"[\s.,;:—–]*(?:(?:and|et)\s)?"
)
# Labels between middle dots stand all before the titles or all behind them.
_DOTTED = (
    re.compile(rf"(?i)^(?P<labels>{_LABELS})\s(?P<title>\D.{{1,90}}?)\.?$"),
    re.compile(rf"(?i)^(?P<title>.{{2,90}}?)\s(?P<labels>{_LABELS})\b\.?"),
)
_LINKED = re.compile(
    r"(?i)[^\[\]]*+\[(?P<title>[^\[\]]{1,150})\]\(#(?:page|pg|p|seite)[-_]?(?P<labels>\d{1,3})\)"
)
_MARK = re.compile(
    r"^\s*(?:>\s?)*(?:[-*+•▪‣–—]\s+|\d{1,2}[.)]\s+(?=[^\d\s])|\((?:[a-z]{1,3}|[A-Z]|\d{1,2})\)\s+)?"
)
_MARKUP = re.compile(
    r"!?\[(?P<link>[^\[\]]{0,200})\]\([^()\s]{0,300}\)|\\?\*{1,3}|`|\[\^[^\[\]]{1,9}\]|</"
    r"?[a-z][a-z0-9]{0,9}\s?/?>"
)


def plain_line(line: str) -> str:
    """A line without Markdown's marks, links and footnote marks, which are no part of a title.

    Example:
      >>> plain_line("- **Phone:** [0800 123 4567](tel:08001234567)[^1]")
      'Phone: 0800 123 4567'
    """
    return _unmarked(_MARK.sub("", line, count=1)).strip()


def _unmarked(line: str) -> str:
    """A line without emphasis, links and footnote marks.

    What it begins with, its tabs and its blanks stay.
    """
    return _MARKUP.sub(lambda match: match["link"] or "", line)


class Listed(NamedTuple):
    """A line of a table of contents: title, and the printed labels of its pages."""

    title: str
    labels: str


class Layout(NamedTuple):
    """Lines that may be a table of contents, and how surely they are one: `WEAK` to `LED_UP`."""

    entries: tuple[Listed, ...]
    strength: int


def layouts(text: str, intro: re.Pattern[str]) -> Iterator[Layout]:
    """Possible tables of contents of a passage, one for each way to print them.

    Args:
      intro: what leads up to one that is run into a sentence.
    """
    parts = pieces(text)
    for is_row, rows in groupby(parts, lambda piece: piece.kind in {"row", "head"}):
        if is_row:
            yield _table_layout(list(rows))
    prose = [piece.text for piece in parts if piece.kind == "prose"]
    for texts, form, strength in (*_run_in(prose, intro), *_listed(text)):
        entries = tuple(entry for line in texts for entry in _printed(form, line))
        says_page = all(_PAGE.match(entry.labels) for entry in entries)
        yield Layout(entries, strength + says_page)


_Rows = Iterator[tuple[Sequence[str], re.Pattern[str], int]]


def _run_in(prose: Sequence[str], intro: re.Pattern[str]) -> _Rows:
    """Texts with entries in a sentence, how each prints them, and how surely."""
    joined = " ".join(prose)
    lead = intro.search(joined)
    if lead:
        yield [joined[lead.end() :]], _RUN_IN, SURE
    for line in prose:
        lead = intro.search(line)
        dotted = [part.strip() for part in line[lead.end() if lead else 0 :].split("·")]
        yield from ((dotted, form, SURE) for form in _DOTTED if all(map(form.match, dotted)))


def _listed(text: str) -> _Rows:
    """Texts with an entry each, or entries in columns, how they print them, and how surely."""
    lines = [
        line.rstrip("\\ ")  # a break of Markdown
        for line in text.splitlines()
        if line.strip() and len(line) <= _LONGEST and not line.lstrip().startswith(("|", "#"))
    ]
    bare = [plain_line(line) for line in lines]
    yield bare, _ITEM, PRINTED
    yield [_unmarked(line).lstrip("-*+•> \t") for line in lines], _LED, PRINTED
    yield bare, _BRACKETED, PRINTED
    yield bare, _BARE, WEAK
    yield lines, _LINKED, WEAK


def _printed(form: re.Pattern[str], text: str) -> Iterator[Listed]:
    """Entries that follow each other from the beginning of a text without a gap."""
    at = 0
    while match := form.match(text, at):
        at = match.end()
        yield Listed(_unmarked(match["title"]).strip(" ,:;–—\t"), match["labels"].strip())


def _table_layout(rows: Sequence[Piece]) -> Layout:
    """Rows with a column of pages: the last or the first, as its head says.

    Or the last, whose cells look like pages.
    """
    first, last = (
        rows[0].kind == "head" and _PAGE_HEAD.search(plain_line(rows[0].cells[at])) is not None
        for at in (0, -1)
    )
    cells = [row.cells[1:] + row.cells[:1] if first and not last else row.cells for row in rows]
    printed = (
        Listed(plain_line(" ".join(filter(None, titles))), plain_line(label))
        for *titles, label in cells
    )
    entries = tuple(each for each in printed if each.title and _RANGE.match(each.labels))
    # a head of other words may be the one row without a page
    is_column = max(map(len, cells)) <= 3 and len(entries) >= len(rows) - 1
    return Layout(entries if first or last or is_column else (), PRINTED + (first or last))


def single_labels(labels: str, pages: Iterable[str]) -> list[str]:
    """Single labels of a range.

    `6–7` is 6 and 7, but `2-1` is one where pages are counted by chapter.

    Args:
      pages: labels that the pages carry.
    """
    written = re.sub(r"\s?[-–]\s?", "-", labels)
    if _IN_PARTS.fullmatch(written) and any(map(_IN_PARTS.fullmatch, pages)):
        return [written]
    first, last = _RANGE.findall(labels)[0]
    is_range = first.isdecimal() and last.isdecimal()
    if is_range and 0 < int(last) - int(first) <= _WIDEST:
        return [str(number) for number in range(int(first), int(last) + 1)]
    return [first]
