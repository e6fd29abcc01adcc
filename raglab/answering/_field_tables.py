"""Values read from table rows: who has which role, and what the total is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raglab.answering._field_dates import chosen_column, is_old_and_new
from raglab.sentences import Piece

_NAMED = re.compile(r"^(?:name|firm|party|person|company|nom|personne|qui|société)\b", re.IGNORECASE)
_AFTER_NAME = re.compile(r"\s*[,(;].*$")
MONEY = re.compile(
    r"(?:[£€$]|GBP |EUR |USD )\s?\d+(?:,\d{3})*(?:\.\d\d)?|\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?:,\d\d)?\s?€"
    r"|\d+(?:,\d\d)?\s?€|\d{1,3}(?:,\d{3})+(?:\.\d\d)?"
)
PREMIUM = re.compile(r"premium|prime|cotisation", re.IGNORECASE)


class Page(NamedTuple):
    """A chunk as it is read.

    place: among those given. section: heading it stands under; the document's title where there is no other. printed:
    headings that the page itself prints, "" where there is only the title. stated: pieces without headings.
    """

    place: int
    section: str
    printed: str
    stated: tuple[Piece, ...]


def role_value(role: re.Pattern[str], pages: Sequence[Page]) -> Iterator[tuple[str, str, int]]:
    """Names of the rows with a cell that states the role: from the column headed as names, else from its neighbour."""
    for page in pages:
        for piece in page.stated:
            if piece.kind != "row" or len(piece.cells) < 2:
                continue
            at = next((n for n, cell in enumerate(piece.cells[:2]) if role.search(cell)), None)
            if at is None:
                continue
            named = next((n for n, head in enumerate(piece.heads) if n != at and _NAMED.search(head)), 1 - at)
            name = _AFTER_NAME.sub("", piece.cells[named]).strip()
            if name and name[0].isupper():
                yield name, piece.text, page.place


def total_value(total: re.Pattern[str], pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    """Amounts of the rows of totals under a heading of premiums; of two years the one `about` names, else the last."""
    for page in pages:
        if not PREMIUM.search(page.section):
            continue
        for piece in page.stated:
            if piece.kind == "row" and total.search(piece.cells[0]):
                amounts = [(n, cell) for n, cell in enumerate(piece.cells) if n and MONEY.fullmatch(cell.strip())]
                if amounts:
                    heads = [piece.heads[n] if piece.heads else "" for n, _ in amounts]
                    timed = is_old_and_new(heads)
                    yield amounts[chosen_column(heads, about) if timed else -1][1], piece.text, page.place
