"""Layouts of tables of contents (shore): how titles and pages are printed, which lines are none.

Read are leaders (dots, lines, dashes), tabs and columns of blanks, one or several entries a line;
tables of Markdown with a column of pages, under a head or without; lists with `page 7`, `p. 7` or
`(7)`, sentences of them and lines with middle dots; lists of links to headings or pages, and lists
of the document's own headings without any page. Titles may be numbered (`1.1`, `A.`, `Article 3`,
`Chapitre II`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from raglab.extensions.clarification.language_words import plain
from raglab.words.text import Piece, pieces

PAIR, LEAST_ENTRIES = 2, 3  # entries that are enough where the print alone says it, and elsewhere
_LONGEST = 400  # characters of a line that is looked at
_WIDEST = 20  # pages of a range
_LABEL = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS = rf"{_LABEL}(?:\s?(?:[–-]|to|à)\s?{_LABEL})?"
_PAGES = r"(?:pages?|pp?\.)"
_PAGE = re.compile(rf"(?i){_PAGES}")
_RANGE = re.compile(rf"(?i)^{_PAGES}?\s?({_LABEL})(?:\s?(?:[–-]|to|à)\s?({_LABEL}))?$")
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
    rf"(?i)^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?:pages?|p\.)\s*(?P<labels>{_LABELS})\s*[.;]?$"
)
_BRACKETED = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?)\s?\({_PAGES}?\s?(?P<labels>{_LABELS})\)[.;,]?$"
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
_LINKED = re.compile(r"[^\[\]]*+\[(?P<title>[^\[\]]{1,150})\]\(#(?P<anchor>[^()\s]{1,150})\)")
_UNPAGED = re.compile(r"(?P<title>.+)")
_NUMBERING = re.compile(
    r"^(?:(?:article|art\.?|chapter|chapitre|section|part|partie|titre|annexe?|appendix|module|"
    r"step)\s+"
    r"(?:[ivxlc]{1,6}|\d{1,3}|[a-z])\b"
    r"|\d{1,3}(?:\.\d{1,3}){0,4}\b\.?\)?|[a-z][.)]|[ivxlc]{1,6}[.)])\s?[:.)–—-]?\s*"
)
_NUMBERED = re.compile(r"^\s*(?:[-*+•]\s|\d{1,2}(?:\.\d{1,2}){0,3}[.)]?\s|[A-Za-z][.)]\s)")
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
    """A line of a table of contents.

    Title, the printed labels of its pages, and the anchor of its link.
    """

    title: str
    labels: str = ""
    anchor: str = ""


_Form = tuple[Sequence[str], re.Pattern[str], bool, int, bool]


class Layout(NamedTuple):
    """Lines that may be a table of contents.

    Attributes:
      is_sure: they say themselves that they are one, without a title over them.
      least: entries that make one.
      is_led: a sentence leads up to them as a title would.
    """

    entries: tuple[Listed, ...]
    is_sure: bool
    least: int
    is_led: bool = False


def layouts(text: str, intro: re.Pattern[str]) -> Iterator[Layout]:
    """Possible tables of contents of a passage, one for each way to print them.

    Args:
      intro: what leads up to one that is run into a sentence.
    """
    parts = pieces(text)
    for is_row, rows in groupby(parts, lambda piece: piece.kind in {"row", "head"}):
        if is_row:
            yield _table_layout(list(rows))
    for texts, form, is_sure, least, is_led in _printed_forms(text, parts, intro):
        entries = tuple(entry for line in texts for entry in _printed(form, line))
        says_page = all(_PAGE.match(entry.labels) for entry in entries)
        yield Layout(entries, is_sure or says_page, least, is_led and says_page)


def _printed_forms(text: str, parts: Sequence[Piece], intro: re.Pattern[str]) -> list[_Form]:
    """Texts, how each prints an entry, whether that is sure, entries that are enough, is_led."""
    prose = [piece.text for piece in parts if piece.kind == "prose"]
    lead = intro.search(joined := " ".join(prose))
    forms: list[_Form] = [([joined[lead.end() :]], _RUN_IN, True, PAIR, True)] if lead else []
    for line in prose:
        lead = intro.search(line)
        dotted = [part.strip() for part in line[lead.end() if lead else 0 :].split("·")]
        forms += [
            (dotted, form, True, PAIR, False) for form in _DOTTED if all(map(form.match, dotted))
        ]
    lines = [
        line.rstrip("\\ ")  # a break of Markdown
        for line in text.splitlines()
        if line.strip() and len(line) <= _LONGEST and not line.lstrip().startswith(("|", "#"))
    ]
    bare = [plain_line(line) for line in lines]
    titles = [plain_line(line) for line in lines if _NUMBERED.match(line)]
    return [
        *forms,
        (prose, _ITEM, True, PAIR, False),
        ([_unmarked(line).lstrip("-*+•> \t") for line in lines], _LED, False, PAIR, False),
        (bare, _ITEM, True, PAIR, False),
        (bare, _BRACKETED, False, PAIR, False),
        (bare, _BARE, False, LEAST_ENTRIES, False),
        (lines, _LINKED, False, LEAST_ENTRIES, False),
        (titles or bare, _UNPAGED, False, LEAST_ENTRIES, False),
    ]


def _printed(form: re.Pattern[str], text: str) -> Iterator[Listed]:
    """Entries that follow each other from the beginning of a text without a gap."""
    at = 0
    while match := form.match(text, at):
        groups, at = match.groupdict(""), match.end()
        title = _unmarked(groups["title"]).strip(" ,:;–—\t")
        yield Listed(title, groups.get("labels", "").strip(), groups.get("anchor", ""))


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
    return Layout(entries if first or last or is_column else (), first or last, PAIR)


def single_labels(labels: str, pages: Iterable[str]) -> list[str]:
    """Single labels of a range.

    `6–7` is 6 and 7, but `2-1` is one where pages are counted by chapter.

    Args:
      pages: labels that the pages carry.
    """
    written = re.sub(r"\s?[-–]\s?", "-", labels)
    if _IN_PARTS.fullmatch(written) and any(map(_IN_PARTS.fullmatch, pages)):
        return [written]
    match = _RANGE.match(labels)
    if match is None:
        return []
    first, last = match[1], match[2] or ""
    if not (first.isdecimal() and last.isdecimal() and 0 < int(last) - int(first) <= _WIDEST):
        return [first]
    return [str(number) for number in range(int(first), int(last) + 1)]


def bare_title(title: str) -> str:
    """A title in small letters without accents, marks or numbering, as headings are compared.

    Example:
      >>> bare_title("1.2 Congés payés :"), bare_title("Chapitre II — Congés payés")
      ('conges payes', 'conges payes')
    """
    whole = plain(title)
    words = re.findall(r"[a-z\d]+", _NUMBERING.sub("", whole, count=1))
    return " ".join(words or re.findall(r"[a-z\d]+", whole))


def heading_page(entry: Listed, headings: Mapping[str, int]) -> int | None:
    """Page of the heading that an entry names by its title or its link."""
    keys = map(bare_title, (entry.title, entry.anchor.replace("-", " ")))
    return next((headings[key] for key in keys if key in headings), None)
