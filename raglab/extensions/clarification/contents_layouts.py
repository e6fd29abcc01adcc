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

LEAST_ENTRIES = 3
_LONGEST = 400  # characters of a line that is looked at
_LABEL = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS = rf"{_LABEL}(?:\s?(?:[–-]|to|à)\s?{_LABEL})?"
_PAGES = r"(?:pages?|pp?\.)"
_RANGE = re.compile(rf"^{_PAGES}?\s?({_LABEL})(?:\s?(?:[–-]|to|à)\s?({_LABEL}))?$", re.IGNORECASE)
_IN_PARTS = re.compile(r"\d{1,3}-\d{1,3}")
_PAGE_HEAD = re.compile(r"\b(?:printed )?pages?\b|^\s*p\.\s*$", re.IGNORECASE)
_ITEM = re.compile(
    rf"^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?:pages?|p\.)\s*(?P<labels>{_LABELS})\s*[.;]?$",
    re.IGNORECASE,
)
_BRACKET_ITEM = re.compile(
    rf"^(?P<title>\S.{{0,120}}?)\s?\({_PAGES}?\s?(?P<labels>{_LABELS})\)[.;,]?$", re.IGNORECASE
)
_PLAIN_ITEM = re.compile(
    rf"^(?P<title>\S.{{0,120}}?[^\W\d_]\S{{0,20}}?)\s(?P<labels>{_LABELS})$", re.IGNORECASE
)
_RUN_IN = re.compile(
    r"(?P<title>[^·]{1,89}?(?:[^·\s]|(?<=\S)\s))\s*"
    rf"(?:\((?:pages?|p\.)?|,\s*(?:pages?|p\.))\s*(?P<labels>{_LABELS})\)?"
    r"[\s.,;:—–]*(?:(?:and|et)\s)?",
    re.IGNORECASE,
)
_DOTTED_LAST = re.compile(rf"^(?P<title>.{{2,90}}?)\s(?P<labels>{_LABELS})\b\.?", re.IGNORECASE)
_DOTTED_FIRST = re.compile(rf"^(?P<labels>{_LABELS})\s(?P<title>\D.{{1,90}}?)\.?$", re.IGNORECASE)
_LEADER = (
    r"(?:(?:\s?[.·_…]){3,400}+\s?|…{1,400}+|\s?[-–—]{3,400}+\s?|\s[–—|→]\s|[ \u00a0]{2,400}+|\t++)"
)
_LED = re.compile(
    rf"(?P<title>.+?){_LEADER}\s*(?P<labels>{_PAGES}?\s?{_LABELS})(?:{_LEADER}|\s*$)", re.IGNORECASE
)
_ANCHOR = re.compile(r"\[([^\[\]]{1,150})\]\(#([^()\s]{1,150})\)")
_NUMBERING = re.compile(
    r"^(?:(?:article|art\.?|chapter|chapitre|section|part|partie|titre|annexe?|appendix|module|"
    r"step)\s+"
    r"(?:[ivxlc]{1,6}|\d{1,3}|[a-z])\b"
    r"|\d{1,3}(?:\.\d{1,3}){0,4}\b\.?\)?|[a-z][.)]|[ivxlc]{1,6}[.)])\s?[:.)–—-]?\s*"
)
_LISTED = re.compile(r"^\s*(?:[-*+•]\s|\d{1,2}(?:\.\d{1,2}){0,3}[.)]?\s|[A-Za-z][.)]\s)")
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


class Layout(NamedTuple):
    """Lines that may be a table of contents.

    Sure: they say themselves that they are one, without a title over them.
    """

    entries: tuple[Listed, ...]
    sure: bool


def layouts(text: str, intro: re.Pattern[str]) -> Iterator[Layout]:
    """Possible tables of contents of a passage, one for each way to write them.

    Args:
      intro: what leads up to one that is run into a sentence.
    """
    parts = pieces(text)
    for is_row, rows in groupby(parts, lambda piece: piece.kind in {"row", "head"}):
        if is_row:
            yield from _table_layouts(list(rows))
    prose = [piece.text for piece in parts if piece.kind == "prose"]
    if not any(intro.search(line) for line in prose if _RUN_IN.search(line)):
        yield Layout(_matched_entries(_ITEM, prose), True)
    for line in prose:
        if line.count("·") >= LEAST_ENTRIES - 1:
            yield Layout(_dot_separated_entries(line, intro), True)
    joined = " ".join(prose)
    lead = intro.search(joined)
    if lead:
        yield Layout(_consecutive_entries(_RUN_IN, joined[lead.end() :])[0], True)
    yield from _line_layouts(text)


def _table_layouts(rows: Sequence[Piece]) -> Iterator[Layout]:
    """Rows with a column of pages: the last or first, as its head says.

    Or the last, whose cells look like pages.
    """
    for column, title_cells in ((-1, slice(None, -1)), (0, slice(1, None))):
        headed = (
            rows[0].kind == "head"
            and _PAGE_HEAD.search(plain_line(rows[0].cells[column])) is not None
        )
        cells = [row.cells for row in rows if row.cells and not (headed and row.kind == "head")]
        if not headed and (column == 0 or any(len(row) > 3 for row in cells)):
            continue
        titles = [plain_line(" ".join(filter(None, row[title_cells]))) for row in cells]
        labels = [plain_line(row[column]) for row in cells]
        entries = [
            Listed(*entry) for entry in zip(titles, labels, strict=True) if _RANGE.match(entry[1])
        ]
        # a head of other words may be the one row without a page
        if headed or len(entries) >= len(rows) - 1:
            yield Layout(tuple(entry for entry in entries if entry.title), headed)


def _dot_separated_entries(line: str, lead: re.Pattern[str]) -> tuple[Listed, ...]:
    """Entries between middle dots; the labels stand all behind the titles or all before them."""
    intro = lead.search(line)
    parts = [part.strip() for part in (line[intro.end() :] if intro else line).split("·")]
    read = (_matched_entries(form, parts) for form in (_DOTTED_FIRST, _DOTTED_LAST))
    return next((entries for entries in read if len(entries) == len(parts)), ())


def _matched_entries(form: re.Pattern[str], texts: Iterable[str]) -> tuple[Listed, ...]:
    """Entries of the texts that are of a form."""
    return tuple(_listed(match) for match in map(form.match, texts) if match)


def _consecutive_entries(form: re.Pattern[str], text: str) -> tuple[tuple[Listed, ...], str]:
    """Entries of a form that run without a gap from the text's start, and what follows them."""
    entries: list[Listed] = []
    at = 0
    while match := form.match(text, at):
        entries.append(_listed(match))
        at = match.end()
    return tuple(entries), text[at:]


def _listed(match: re.Match[str]) -> Listed:
    return Listed(_unmarked(match["title"]).strip(" ,:;–—\t"), match["labels"].strip())


def _line_layouts(text: str) -> Iterator[Layout]:
    """Entries of lines.

    By leaders or columns, by brackets, by nothing but a blank, by links, and bare titles.
    """
    raw = [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith(("|", "#"))
    ]
    # without a break of Markdown
    raw = [line.rstrip("\\ ") for line in raw if len(line) <= _LONGEST]
    lines = [plain_line(line) for line in raw]
    led = tuple(entry for line in raw for entry in _led_entries(line))
    yield Layout(led, all(re.match(_PAGES, entry.labels, re.IGNORECASE) for entry in led))
    for form in (_ITEM, _BRACKET_ITEM, _PLAIN_ITEM):
        yield Layout(_matched_entries(form, lines), form is _ITEM)
    linked = (
        Listed(plain_line(title), "", anchor)
        for line in raw
        for title, anchor in _ANCHOR.findall(line)
    )
    yield Layout(tuple(linked), False)
    titles = [line for line, whole in zip(lines, raw, strict=True) if _LISTED.match(whole)] or lines
    yield Layout(tuple(map(Listed, titles)), False)


def _led_entries(line: str) -> tuple[Listed, ...]:
    """Entries of a line whose titles and pages are parted by leaders, tabs or blanks.

    None if one has no page.
    """
    entries, rest = _consecutive_entries(_LED, _unmarked(line).lstrip("-*+•> \t"))
    return (
        entries
        if not rest.strip() and all(re.search(r"[^\W\d_]", entry.title) for entry in entries)
        else ()
    )


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
    if (
        not (first.isdecimal() and last.isdecimal())
        or not int(first) < int(last) <= int(first) + 20
    ):
        return [first]
    return [str(n) for n in range(int(first), int(last) + 1)]


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
