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
WEAK_EVIDENCE, PRINTED_EVIDENCE, SURE_EVIDENCE, LED_UP_EVIDENCE = range(4)
_MAX_LINE_LENGTH = 400  # characters of a line that is looked at
_MAX_PAGE_RANGE = 20  # pages of a range
_LABEL_PATTERN = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS_PATTERN = rf"{_LABEL_PATTERN}(?:\s?(?:[–-]|to|à)\s?{_LABEL_PATTERN})?"
_PAGE_WORDS = r"(?:pages?|pp?\.)"
_PAGE_WORD = re.compile(rf"(?i){_PAGE_WORDS}")
_LABEL_RANGE = re.compile(
    rf"(?i)^{_PAGE_WORDS}?\s*({_LABEL_PATTERN})(?:\s?(?:[–-]|to|à)\s?({_LABEL_PATTERN}))?$"
)
_IN_PARTS = re.compile(r"\d{1,3}-\d{1,3}")
_PAGE_HEAD = re.compile(r"(?i)\b(?:printed )?pages?\b|^\s*p\.\s*$")
_LEADER = (
    r"(?:(?:\s?[.·_…]){3,400}+\s?|…{1,400}+|\s?[-–—]{3,400}+\s?|\s[–—|→]\s|[ \u00a0]{2,400}+|\t++)"
)
# Several entries may stand in one line; nothing else may stand behind the last.
_LED = re.compile(
    rf"(?i)(?P<title>[\W\d_]*[^\W\d_].*?){_LEADER}\s*(?P<labels>{_PAGE_WORDS}?\s?{_LABELS_PATTERN})"
    rf"(?:{_LEADER}(?=.*\b{_LABEL_PATTERN}\s*$)|\s*$)"
)
_ITEM_ENTRY = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?P<labels>(?:pages?|p\.)\s*{_LABELS_PATTERN})\s*[.;]?$"
)
_BRACKETED = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?)\s?\((?P<labels>{_PAGE_WORDS}?\s?{_LABELS_PATTERN})\)[.;,]?$"
)
_BARE_ENTRY = re.compile(
    rf"(?i)^(?P<title>\S.{{0,120}}?[^\W\d_]\S{{0,20}}?)\s(?P<labels>{_LABELS_PATTERN})$"
)
# Entries run into a sentence follow each other without a gap.
_RUN_IN = re.compile(
    r"(?i)(?P<title>[^·]{1,89}?(?:[^·\s]|(?<=\S)\s))\s*"
    rf"(?:\(|,\s*(?=p))(?P<labels>(?:(?:pages?|p\.)\s*)?{_LABELS_PATTERN})\)?"
    r"[\s.,;:—–]*(?:(?:and|et)\s)?"
)
# Labels between middle dots stand all before the titles or all behind them.
_DOTTED = (
    re.compile(rf"(?i)^(?P<labels>{_LABELS_PATTERN})\s(?P<title>\D.{{1,90}}?)\.?$"),
    re.compile(rf"(?i)^(?P<title>.{{2,90}}?)\s(?P<labels>{_LABELS_PATTERN})\b\.?"),
)
_LINKED = re.compile(
    r"(?i)[^\[\]]*+\[(?P<title>[^\[\]]{1,150})\]\(#(?:page|pg|p|seite)[-_]?(?P<labels>\d{1,3})\)"
)
_LINE_MARK = re.compile(
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
    return _unmarked(_LINE_MARK.sub("", line, count=1)).strip()


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
    """Lines that may be a table of contents.

    strength: how surely they are one, from `WEAK_EVIDENCE` to `LED_UP_EVIDENCE`.
    """

    entries: tuple[Listed, ...]
    strength: int


def layouts(text: str, intro: re.Pattern[str]) -> Iterator[Layout]:
    """Possible tables of contents of a passage, one for each way to print them.

    Args:
      intro: what leads up to one that is run into a sentence.
    """
    text_pieces = pieces(text)
    for is_row, table_rows in groupby(text_pieces, lambda piece: piece.kind in {"row", "head"}):
        if is_row:
            yield _table_layout(list(table_rows))
    prose_texts = [piece.text for piece in text_pieces if piece.kind == "prose"]
    for entry_texts, entry_pattern, evidence_strength in (
        *_run_in(prose_texts, intro),
        *_listed(text),
    ):
        printed_entries = tuple(
            printed_entry
            for entry_text in entry_texts
            for printed_entry in _printed(entry_pattern, entry_text)
        )
        says_page = all(_PAGE_WORD.match(printed_entry.labels) for printed_entry in printed_entries)
        yield Layout(printed_entries, evidence_strength + says_page)


_Rows = Iterator[tuple[Sequence[str], re.Pattern[str], int]]


def _run_in(prose: Sequence[str], intro: re.Pattern[str]) -> _Rows:
    """Texts with entries in a sentence, how each prints them, and how surely."""
    joined_prose = " ".join(prose)
    intro_match = intro.search(joined_prose)
    if intro_match:
        yield [joined_prose[intro_match.end() :]], _RUN_IN, SURE_EVIDENCE
    for text in prose:
        intro_match = intro.search(text)
        dotted_parts = [
            dotted_part.strip()
            for dotted_part in text[intro_match.end() if intro_match else 0 :].split("·")
        ]
        yield from (
            (dotted_parts, dotted_pattern, SURE_EVIDENCE)
            for dotted_pattern in _DOTTED
            if all(map(dotted_pattern.match, dotted_parts))
        )


def _listed(text: str) -> _Rows:
    """Texts with an entry each, or entries in columns, how they print them, and how surely."""
    text_lines = [
        text_line.rstrip("\\ ")  # a break of Markdown
        for text_line in text.splitlines()
        if text_line.strip()
        and len(text_line) <= _MAX_LINE_LENGTH
        and not text_line.lstrip().startswith(("|", "#"))
    ]
    bare_lines = [plain_line(text_line) for text_line in text_lines]
    yield bare_lines, _ITEM_ENTRY, PRINTED_EVIDENCE
    yield (
        [_unmarked(text_line).lstrip("-*+•> \t") for text_line in text_lines],
        _LED,
        PRINTED_EVIDENCE,
    )
    yield bare_lines, _BRACKETED, PRINTED_EVIDENCE
    yield bare_lines, _BARE_ENTRY, WEAK_EVIDENCE
    yield text_lines, _LINKED, WEAK_EVIDENCE


def _printed(entry_pattern: re.Pattern[str], text: str) -> Iterator[Listed]:
    """Entries that follow each other from the beginning of a text without a gap."""
    text_position = 0
    while entry_match := entry_pattern.match(text, text_position):
        text_position = entry_match.end()
        yield Listed(
            _unmarked(entry_match["title"]).strip(" ,:;–—\t"), entry_match["labels"].strip()
        )


def _table_layout(table_rows: Sequence[Piece]) -> Layout:
    """Rows with a column of pages: the last or the first, as its head says.

    Or the last, whose cells look like pages.
    """
    is_page_first, is_page_last = (
        table_rows[0].kind == "head"
        and _PAGE_HEAD.search(plain_line(table_rows[0].cells[cell_index])) is not None
        for cell_index in (0, -1)
    )
    ordered_cells = [
        table_row.cells[1:] + table_row.cells[:1]
        if is_page_first and not is_page_last
        else table_row.cells
        for table_row in table_rows
    ]
    printed_entries = (
        Listed(plain_line(" ".join(filter(None, title_cells))), plain_line(label_cell))
        for *title_cells, label_cell in ordered_cells
    )
    page_entries = tuple(
        printed_entry
        for printed_entry in printed_entries
        if printed_entry.title and _LABEL_RANGE.match(printed_entry.labels)
    )
    # a head of other words may be the one row without a page
    is_column = max(map(len, ordered_cells)) <= 3 and len(page_entries) >= len(table_rows) - 1
    return Layout(
        page_entries if is_page_first or is_page_last or is_column else (),
        PRINTED_EVIDENCE + (is_page_first or is_page_last),
    )


def single_labels(labels: str, pages: Iterable[str]) -> list[str]:
    """Single labels of a range.

    `6–7` is 6 and 7, but `2-1` is one where pages are counted by chapter.

    Args:
      pages: labels that the pages carry.
    """
    written_labels = re.sub(r"\s?[-–]\s?", "-", labels)
    if _IN_PARTS.fullmatch(written_labels) and any(map(_IN_PARTS.fullmatch, pages)):
        return [written_labels]
    first_label, last_label = _LABEL_RANGE.findall(labels)[0]
    is_range = first_label.isdecimal() and last_label.isdecimal()
    if is_range and 0 < int(last_label) - int(first_label) <= _MAX_PAGE_RANGE:
        return [str(page_number) for page_number in range(int(first_label), int(last_label) + 1)]
    return [first_label]
