"""Rules of fields (shore): patterns and table readers that find a field's value in a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.numerals import dates_in
from raglab.packs import MONEY, Aside, Total, compile_expression
from raglab.text import Piece, pieces

_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_STARTS = re.compile(
    r"\b(?:before|from|on or after|à partir du|à compter du|depuis le|avant le)\s(?=(?:\d|1er))", re.IGNORECASE
)
_BEFORE_DATE = re.compile(r"\b(?:before|prior to|avant(?: le)?)\s(?=\d|1er|[^\W\d_]{3,9}\s\d)", re.IGNORECASE)
_FORMER = re.compile(r"\b(?:old|former|previous|expiring|before|ancien\w*|avant)\b", re.IGNORECASE)
_DAY = r"(?:the\s|le\s)?(?:\d|1er)"
_OLD = re.compile(
    r"^(?:old|until|jusqu|ancien|expiring|(?:19|20)\d\d)"
    rf"|^(?:[^\W\d_]{{2,20}}\s){{0,2}}(?:(?:up )?to|before|prior to|until|jusqu'?’?au|avant)\s{_DAY}"
    r"|\d\s(?:to|au)\s.*\d",
    re.IGNORECASE,
)
_NEW = re.compile(
    r"^(?:new|from|depuis|à partir|nouveau|nouvelle|renewal|(?:19|20)\d\d|now$|since|as of|dès|désormais)"
    rf"|^(?:[^\W\d_]{{2,20}}\s){{0,2}}(?:from|since|as of|on or after|depuis|dès|à (?:partir|compter) d[ue])\s{_DAY}",
    re.IGNORECASE,
)
Date = tuple[int, int, int]


def is_old_and_new(heads: Sequence[str]) -> bool:
    """Whether the heads of columns are times, the last the newest: `2024 | 2025`, `Until 31 March | From 1 April`."""
    return len(heads) > 1 and all(_OLD.search(head) for head in heads[:-1]) and bool(_NEW.search(heads[-1]))


def column_in_question(heads: Sequence[str], about: str, *, label: str = "", said: str = "") -> int:
    """Position of the column that a question is about: by its date or year, else the last.

    The new figures start at the date that the row's label gives (`from 1 May 2025`), else at that of the last head,
    else at that of the sentences about the table.

    Args:
      heads: of the columns, the newest last. about: the question. label: of the row. said: sentences about the table.
    """
    last = len(heads) - 1
    start = _start(label) or _parse_date(heads[-1]) or _start(said)
    asked = _parse_date(about)
    if asked is not None and start is not None:
        first = start if asked[2] else (*start[:2], 0)
        return last if asked > first or (asked == first and not _BEFORE_DATE.search(about)) else 0
    years = {int(year) for year in _YEAR.findall(about)}
    named = [n for n, head in enumerate(heads) if years & {int(year) for year in _YEAR.findall(head)[:1]}]
    if len(named) == 1:
        return named[0]
    if _FORMER.search(about) or (years and start is not None and max(years) < start[0]):
        return 0
    return last


def _start(text: str) -> Date | None:
    mark = _STARTS.search(text)
    return _parse_date(text[mark.end() :][:24]) if mark else None


def _parse_date(text: str) -> Date | None:
    """Year, month and day of the first date of a text; day 0 where only a month is written."""
    return next(((date.year, date.month, date.day) for date in dates_in(text)), None)


_NAMED = re.compile(r"^(?:name|firm|party|person|company|nom|personne|qui|société)\b", re.IGNORECASE)
_AFTER_NAME = re.compile(r"(?<!\s)\s*[,(;].*$")
SUM = re.compile(MONEY)


class ChunkReading(NamedTuple):
    """A chunk as it is read.

    place: among those given. section: heading it stands under; the document's title where there is no other. printed:
    headings that the page itself prints, "" where there is only the title. stated: pieces without headings. text: the
    whole chunk; headed: whether its first line is the heading. language: of the document's tags, "" where none says.
    first: whether it is on page 1.
    """

    place: int
    section: str
    printed: str
    stated: tuple[Piece, ...]
    text: str = ""
    headed: bool = False
    language: str = ""
    first: bool = False


class Opening(NamedTuple):
    """Words with which a line begins as under a heading of its own, and what stands behind them on the line."""

    label: str
    said: str


_LISTED = re.compile(r"\s*(?:>\s?)?(?:[-*+•]\s+|\(?(?:\d{1,2}|[A-Za-z])[.)]\s+)?")
_BOLD = re.compile(r"(\*\*|__)(?P<label>[^*_\n]{2,90}?)\1[ \t\u00a0.:–—-]*(?P<said>.*)")
_QUESTION = re.compile(r"(?P<label>[A-ZÀ-ÖØ-Þ][^.!?:;|\n]{3,90}\?)(?:\s+(?P<said>\S.*)|\s*$)")
_MOST_OPENED = 12  # sentences that stand under the words with which their paragraph begins
_BREAK = re.compile(r"\s{0,9}(?:$|[|#]|[-*+•]\s|\(?(?:\d{1,2}|[A-Za-z])[.)]\s)")


def opening_of(line: str) -> Opening | None:
    """The bold words or the question with which a line begins, None where there is none.

    Example:
      >>> opening_of("- **May I bring it back?** Within 28 days.")
      Opening(label='May I bring it back?', said='Within 28 days.')
    """
    listed = _LISTED.match(line)
    begun = listed.end() if listed else 0
    match = _BOLD.match(line, begun) or _QUESTION.match(line, begun)
    if match is None or not any(char.isalpha() for char in match["label"]):
        return None
    return Opening(match["label"].strip(" .:"), (match["said"] or "").strip())


@lru_cache(maxsize=256)
def openings(text: str) -> Mapping[str, Opening]:
    """Sentences of a passage -> bold words or question that their paragraph stands under, and what it said before."""
    found: dict[str, Opening] = {}
    label, block = "", list[str]()
    carried = False  # whether the label stands on a line of its own, before a blank one

    def close() -> None:
        said = [piece.text for piece in pieces("\n".join(["", *block]))] if label else []
        found.update((one, Opening(label, " ".join(said[:n]))) for n, one in enumerate(said[:_MOST_OPENED]))
        if said:  # `**Label** value` is one sentence
            found[f"{label} {said[0]}"] = Opening(label, "")
        block.clear()

    for line in text.splitlines():
        opening = opening_of(line)
        if opening is not None or _BREAK.match(line):
            close()
            blank = not line.strip()
            if opening is not None:
                label, carried = opening.label, not opening.said
            elif not (blank and carried):
                label, carried = "", False
            block += [opening.said] if opening is not None and opening.said else []
        else:
            carried = False
            block.append(line)
    close()
    return found


def role_value(role: str, pages: Sequence[ChunkReading]) -> Iterator[tuple[str, str, int]]:
    """Names of the rows with a cell that states the role: from the column headed as names, else from its neighbour."""
    for page in pages:
        for piece in page.stated:
            if piece.kind != "row" or len(piece.cells) < 2:
                continue
            at = next((n for n, cell in enumerate(piece.cells[:2]) if compile_expression(role).search(cell)), None)
            if at is None:
                continue
            named = next((n for n, head in enumerate(piece.heads) if n != at and _NAMED.search(head)), 1 - at)
            name = _AFTER_NAME.sub("", piece.cells[named]).strip()
            if name and name[0].isupper():
                yield name, piece.text, page.place


def total_value(total: Total, pages: Sequence[ChunkReading], about: str) -> Iterator[tuple[str, str, int]]:
    """Amounts of the rows of totals under the heading of one; of two years the one `about` names, else the last."""
    for page in pages:
        if not compile_expression(total.under).search(page.section):
            continue
        for piece in page.stated:
            if piece.kind == "row" and compile_expression(total.row).search(piece.cells[0]):
                amounts = [(n, cell) for n, cell in enumerate(piece.cells) if n and SUM.fullmatch(cell.strip())]
                if amounts:
                    heads = [piece.heads[n] if piece.heads else "" for n, _ in amounts]
                    timed = is_old_and_new(heads)
                    yield amounts[column_in_question(heads, about) if timed else -1][1], piece.text, page.place


_NEAR = 60  # characters between the word and the value that belongs to it
_STEM = 5


def aside_value(aside: Aside, pages: Sequence[ChunkReading], about: str) -> Iterator[tuple[str, str, int]] | None:
    """Values of the matter that the question turns to, none or more; None where it does not turn."""
    if aside.closed is not None and compile_expression(aside.closed).search(about):
        return iter(())
    turned = {match[0].lower()[:_STEM] for match in compile_expression(aside.words).finditer(about)}
    return _values_beside(aside, turned, pages, about) if turned else None


def _values_beside(
    aside: Aside, turned: set[str], pages: Sequence[ChunkReading], about: str
) -> Iterator[tuple[str, str, int]]:
    value = compile_expression(aside.value)
    for page in pages:
        if aside.under is not None and not compile_expression(aside.under).search(page.section):
            continue
        for piece in page.stated:
            if not all(re.search(rf"\b{re.escape(word)}", piece.text, re.IGNORECASE) for word in turned):
                continue
            if piece.kind == "row":
                values = [(n, cell) for n, cell in enumerate(piece.cells) if value.fullmatch(cell.strip())]
                heads = [piece.heads[n] if piece.heads else "" for n, _ in values]
                if len(values) == 1 or (values and is_old_and_new(heads)):
                    at = column_in_question(heads, about) if len(values) > 1 else 0
                    yield values[at][1], piece.text, page.place
            else:
                near = _nearest_value(value, turned, piece.text)
                if near is not None:
                    yield near[0], piece.text, page.place


def _nearest_value(value: re.Pattern[str], turned: set[str], text: str) -> re.Match[str] | None:
    """The value that stands nearest to one of the words, within reach."""
    spots = [match for word in turned for match in re.finditer(rf"\b{re.escape(word)}\w*", text, re.IGNORECASE)]
    gaps = [
        (max(found.start() - spot.end(), spot.start() - found.end()), n, found)
        for n, found in enumerate(value.finditer(text))
        for spot in spots
    ]
    best = min(gaps, key=lambda gap: gap[:2], default=None)
    return best[2] if best is not None and best[0] <= _NEAR else None
