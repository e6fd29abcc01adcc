"""Layouts of tables of contents (shore): how titles and pages are printed, and which lines are none.

Read are leaders (dots, lines, dashes), tabs and columns of blanks, one or several entries a line; tables of Markdown
with a column of pages, under a head or without; lists with `page 7`, `p. 7` or `(7)`, sentences of them and lines with
middle dots; lists of links to headings or pages, and lists of the document's own headings without any page. Titles may
be numbered (`1.1`, `A.`, `Article 3`, `Chapitre II`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from raglab.text import fold_case, pieces

LEAST_ENTRIES = 3
_LONGEST = 400  # characters of a line that is looked at
_LABEL = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS = rf"{_LABEL}(?:\s?(?:[–-]|to|à)\s?{_LABEL})?"
_PAGES = r"(?:pages?|pp?\.)"
_RANGE = re.compile(rf"^{_PAGES}?\s?({_LABEL})(?:\s?(?:[–-]|to|à)\s?({_LABEL}))?$", re.IGNORECASE)
_PAGE_HEAD = re.compile(r"\b(?:printed )?pages?\b|^\s*p\.\s*$", re.IGNORECASE)
_ITEM = re.compile(
    rf"^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?:pages?|p\.)\s*(?P<labels>{_LABELS})\s*[.;]?$", re.IGNORECASE
)
_BRACKET_ITEM = re.compile(rf"^(?P<title>\S.{{0,120}}?)\s?\({_PAGES}?\s?(?P<labels>{_LABELS})\)[.;,]?$", re.IGNORECASE)
_PLAIN_ITEM = re.compile(rf"^(?P<title>\S.{{0,120}}?[^\W\d_]\S{{0,20}}?)\s(?P<labels>{_LABELS})$", re.IGNORECASE)
_RUN_IN = re.compile(
    r"(?P<title>[^·]{1,89}?(?:[^·\s]|(?<=\S)\s))\s*"
    rf"(?:\((?:pages?|p\.)?\s*(?P<a>{_LABELS})\)|,\s*(?:pages?|p\.)\s*(?P<b>{_LABELS}))"
    r"[\s.,;:—–]*(?:(?:and|et)\s)?",
    re.IGNORECASE,
)
_DOTTED_LAST = re.compile(rf"^(?P<title>.{{2,90}}?)\s(?P<labels>{_LABELS})\b\.?", re.IGNORECASE)
_DOTTED_FIRST = re.compile(rf"^(?P<labels>{_LABELS})\s(?P<title>\D.{{1,90}}?)\.?$", re.IGNORECASE)
_LEADERS = re.compile(r"(?:\s?[.·_…]){3,400}+\s?|…{1,400}+|\s?[-–—]{3,400}+\s?|\s[–—|→]\s|[ \u00a0]{2,400}+|\t++")
_ANCHOR = re.compile(r"\[([^\[\]]{1,150})\]\(#([^()\s]{1,150})\)")
_ANCHORED_PAGE = re.compile(r"^(?:page|pg|p|seite)[-_]?(\d{1,3})$")
_NUMBERING = re.compile(
    r"^(?:(?:article|art\.?|chapter|chapitre|section|part|partie|titre|annexe?|appendix|module|step)\s+"
    r"(?:[ivxlc]{1,6}|\d{1,3}|[a-z])\b"
    r"|\d{1,3}(?:\.\d{1,3}){0,4}\b\.?\)?|[a-z][.)]|[ivxlc]{1,6}[.)])\s?[:.)–—-]?\s*"
)
_LISTED = re.compile(r"^\s*(?:[-*+•]\s|\d{1,2}(?:\.\d{1,2}){0,3}[.)]?\s|[A-Za-z][.)]\s)")


_EMPHASIS = re.compile(r"\*{1,3}|`|(?<![^\W_])(_{1,3})(?=[^\s_])([^_\n]{1,200})(?<=\S)\1(?![^\W_])")
_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,300}\)|<((?:https?://|mailto:)?[^<>\s]{3,200}[@.][^<>\s]{1,99})>"
)
_FOOTNOTE = re.compile(r"\[\^[^\[\]]{1,9}\]|(?<=\S)[¹²³⁴⁵⁶⁷⁸⁹⁰†‡]{1,3}(?=[\s).,;:|]|$)")
_TAG = re.compile(r"</?[a-z][a-z0-9]{0,9}\s?/?>", re.IGNORECASE)
_TITLED = r"(?=[*_]{0,3}(?:[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]{2}|[A-ZÀ-ÖØ-Þ]{4}))"  # `4.1 Paid leave`, and no `2.5 GHz`
_MARK = re.compile(
    r"^\s*(?:>\s?)*(?:[-*+•▪‣–—]\s+|\d{1,2}[.)]\s+(?=[^\d\s])|\((?:[a-z]{1,3}|[A-Z]|\d{1,2})\)\s+"
    rf"|(?:§\s?)?(?:\d{{1,2}}|[IVX]{{1,4}}|[A-Z])(?:\.\d{{1,2}}){{1,3}}\.?\s+{_TITLED}"
    r"|(?:§|[Aa]rt(?:icle|\.)|[Cc]lause|[Ss]ection)\s?\d{1,3}(?:\.\d{1,2}){0,3}"
    rf"(?:\.|\s[–—-])\s+{_TITLED})?(?:\[[ x]\]\s)?"
)
_UNITS_BEHIND = frozenset("²³")


def plain_line(line: str) -> str:
    """A line without Markdown's marks, links and footnote marks, which are no part of a value.

    Example:
      >>> plain_line("- **Phone:** [0800 123 4567](tel:08001234567)[^1]")
      'Phone: 0800 123 4567'
    """
    text = _MARK.sub("", line, count=1)
    text = _IMAGE_OR_LINK.sub(
        lambda match: match[1] if match[1] is not None else match[2].removeprefix("mailto:"), text
    )
    text = _EMPHASIS.sub(lambda match: match[2] or "", text.replace("\\*", "").replace("&nbsp;", "\u00a0"))
    text = _TAG.sub(" ", text)
    return _FOOTNOTE.sub(
        lambda match: match[0] if match[0] in _UNITS_BEHIND and match.string[match.start() - 1].isalpha() else "", text
    ).strip()


def fold(text: str) -> str:
    """Text in small letters without accents, each character at its place; quotes as ASCII has them.

    Example:
      >>> fold("L’ÉTÉ")
      "l'ete"
    """
    folded = (fold_case(char) for char in text.replace("’", "'").translate(_BLANKS))
    return "".join(plain if len(plain) == 1 else char for plain, char in zip(folded, text, strict=True))


_BLANKS = str.maketrans("\t\n\u00a0\u202f", "    ")


class Listed(NamedTuple):
    """A line of a table of contents: title, the printed labels of its pages, and the anchor of its link."""

    title: str
    labels: str = ""
    anchor: str = ""


class Layout(NamedTuple):
    """Lines that may be a table of contents. sure: they say themselves that they are one, without a title over them."""

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
            yield from _table_layouts([(piece.kind, piece.cells, piece.heads) for piece in rows])
    prose = [piece.text for piece in parts if piece.kind == "prose"]
    items = [match for match in map(_ITEM.match, prose) if match]
    if not any(intro.search(line) for line in prose if _RUN_IN.search(line)):
        yield Layout(tuple(Listed(match["title"].strip(), match["labels"]) for match in items), True)
    for line in prose:
        if line.count("·") >= LEAST_ENTRIES - 1:
            yield Layout(tuple(_dot_separated_entries(line, intro)), True)
    joined = " ".join(prose)
    lead = intro.search(joined)
    if lead:
        yield Layout(tuple(_consecutive_entries(joined[lead.end() :])), True)
    yield from _line_layouts(text)


def _table_layouts(rows: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]]) -> Iterator[Layout]:
    """Rows with a column of pages, the last or the first, under a head that says so or under another, or none."""
    heads = rows[0][2] or (rows[0][1] if rows[0][0] == "head" else ())
    body = [cells for kind, cells, _ in rows if kind == "row"]
    for at in (-1, 0):
        headed = bool(heads) and _PAGE_HEAD.search(plain_line(heads[at])) is not None
        taken = body if headed or not heads or rows[0][0] != "head" else [cells for _, cells, _ in rows]
        if not headed and (any(len(cells) > 3 for cells in taken) or at == 0):
            continue
        kept = [(cells, plain_line(cells[at])) for cells in taken if cells]
        found = [
            Listed(plain_line(" ".join(filter(None, cells[:-1] if at else cells[1:]))), label)
            for cells, label in kept
            if _RANGE.match(label)
        ]
        if headed or len(found) >= len([cells for _, cells, _ in rows]) - 1:
            yield Layout(tuple(entry for entry in found if entry.title), headed)


def _dot_separated_entries(line: str, lead: re.Pattern[str]) -> list[Listed]:
    """Entries between middle dots; the labels stand all behind the titles or all before them."""
    intro = lead.search(line)
    parts = [part.strip() for part in (line[intro.end() :] if intro else line).split("·")]
    for form in (_DOTTED_FIRST, _DOTTED_LAST):
        found = [match for match in map(form.match, parts) if match]
        if len(found) == len(parts):
            return [Listed(match["title"].strip(), match["labels"]) for match in found]
    return []


def _consecutive_entries(text: str) -> list[Listed]:
    """Entries that follow each other without a gap from the text's start."""
    found = []
    at = 0
    while match := _RUN_IN.match(text, at):
        found.append(Listed(match["title"].strip(" ,;:—–"), match["a"] or match["b"]))
        at = match.end()
    return found


def _line_layouts(text: str) -> Iterator[Layout]:
    """Entries of lines: by leaders or columns, by brackets, by nothing but a blank, by links, and bare titles."""
    raw = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("|", "#"))]
    raw = [line for line in raw if len(line) <= _LONGEST]
    raw = [line.rstrip("\\ ") for line in raw]  # a break of Markdown
    lines = [plain_line(line) for line in raw]
    led = [entry for line in raw for entry in _led_entries(_without_marks(line))]
    marked = all(re.match(_PAGES, entry.labels, re.IGNORECASE) for entry in led)
    yield Layout(tuple(led), marked)
    for form in (_ITEM, _BRACKET_ITEM, _PLAIN_ITEM):
        found = [match for match in map(form.match, lines) if match]
        entries = tuple(Listed(match["title"].strip(" ,:–—"), match["labels"]) for match in found)
        yield Layout(entries, form is _ITEM)
    linked = [Listed(plain_line(title), "", anchor) for line in raw for title, anchor in _ANCHOR.findall(line)]
    yield Layout(tuple(linked), False)
    titles = [line for line, whole in zip(lines, raw, strict=True) if _LISTED.match(whole)] or lines
    yield Layout(tuple(Listed(title) for title in titles), False)


def _without_marks(line: str) -> str:
    """A line without Markdown's marks; its tabs and columns of blanks stay."""
    indent = re.sub(r"^\s+", "", line)
    return re.sub(
        r"\*\*|(?<=\s)\*(?=\S)|`",
        "",
        re.sub(r"\[([^\[\]]{1,150})\]\([^()\s]{1,150}\)", r"\1", re.sub(r"^(?:[-*+•]\s+|>\s)", "", indent)),
    )


def _led_entries(line: str) -> list[Listed]:
    """Entries of a line whose titles and pages are parted by leaders, tabs or blanks; none if one has no page."""
    tokens: list[tuple[int, int]] = []
    at = 0
    for gap in _LEADERS.finditer(line):
        tokens.append((at, gap.start()))
        at = gap.end()
    tokens.append((at, len(line)))
    found: list[Listed] = []
    title: tuple[int, int] | None = None
    for start, end in tokens:
        token = line[start:end].strip()
        if not token:
            continue
        label = _RANGE.match(token)
        if label and title is not None:
            found.append(Listed(line[title[0] : title[1]].strip(" .:–—\t"), token))
            title = None
        else:
            title = (title[0] if title else start, end)
    return found if title is None and all(re.search(r"[^\W\d_]", entry.title) for entry in found) else []


def single_labels(labels: str) -> list[str]:
    """Single labels of a range: `6–7` is 6 and 7."""
    match = _RANGE.match(labels.strip())
    if match is None:
        return []
    first, last = match[1], match[2]
    if not last or not (first.isdecimal() and last.isdecimal()) or not int(first) < int(last) <= int(first) + 20:
        return [first]
    return [str(n) for n in range(int(first), int(last) + 1)]


def goes_up(labels: Sequence[str]) -> bool:
    """Whether labels in digits never go down."""
    numbers = [int(label) for label in labels if label.isdecimal()]
    return all(a <= b for a, b in pairwise(numbers))


def bare_title(title: str) -> str:
    """A title in small letters without accents, marks and its own numbering, as headings are compared.

    Example:
      >>> bare_title("1.2 Congés payés :"), bare_title("Chapitre II — Congés payés")
      ('conges payes', 'conges payes')
    """
    plain = fold(title).strip()
    return " ".join(re.findall(r"[a-z\d]+", _NUMBERING.sub("", plain, count=1))) or " ".join(
        re.findall(r"[a-z\d]+", plain)
    )


def page_of_anchor(anchor: str) -> str | None:
    """The page that an anchor names, as `page-3` does; None where it names a heading."""
    match = _ANCHORED_PAGE.match(anchor.lower())
    return match[1] if match else None


def heading_page(entry: Listed, headings: Mapping[str, int]) -> int | None:
    """Page of the heading that an entry names by its title or its link."""
    slug = " ".join(re.findall(r"[a-z\d]+", fold(entry.anchor))) if entry.anchor else ""
    return next((headings[key] for key in (bare_title(entry.title), slug, bare_title(slug)) if key in headings), None)
