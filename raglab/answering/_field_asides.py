"""Questions that name a field's word and mean another matter: the tax on a premium, the night line, unpaid premium."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raglab.answering._field_dates import chosen_column, is_old_and_new
from raglab.answering._field_tables import MONEY, Page

_NEAR = 60  # characters between the word and the value that belongs to it
_STEM = 5


class Aside(NamedTuple):
    """Words of a question that turn a field to another matter, and what its value looks like.

    words: turn it, and must stand beside the value. closed: words after which nothing is read. under: must occur in the
    section's heading.
    """

    words: re.Pattern[str]
    value: re.Pattern[str]
    closed: re.Pattern[str] | None = None
    under: re.Pattern[str] | None = None


def aside_value(aside: Aside, pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]] | None:
    """Values of the matter that the question turns to, none or more; None where it does not turn."""
    if aside.closed is not None and aside.closed.search(about):
        return iter(())
    turned = {match[0].lower()[:_STEM] for match in aside.words.finditer(about)}
    return _beside(aside, turned, pages, about) if turned else None


def _beside(aside: Aside, turned: set[str], pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    for page in pages:
        if aside.under is not None and not aside.under.search(page.section):
            continue
        for piece in page.stated:
            if not all(re.search(rf"\b{re.escape(word)}", piece.text, re.IGNORECASE) for word in turned):
                continue
            if piece.kind == "row":
                values = [(n, cell) for n, cell in enumerate(piece.cells) if aside.value.fullmatch(cell.strip())]
                heads = [piece.heads[n] if piece.heads else "" for n, _ in values]
                if len(values) == 1 or (values and is_old_and_new(heads)):
                    at = chosen_column(heads, about) if len(values) > 1 else 0
                    yield values[at][1], piece.text, page.place
            else:
                near = _nearest(aside.value, turned, piece.text)
                if near is not None:
                    yield near[0], piece.text, page.place


def _nearest(value: re.Pattern[str], turned: set[str], text: str) -> re.Match[str] | None:
    """The value that stands nearest to one of the words, within reach."""
    spots = [match for word in turned for match in re.finditer(rf"\b{re.escape(word)}\w*", text, re.IGNORECASE)]
    gaps = [
        (max(found.start() - spot.end(), spot.start() - found.end()), n, found)
        for n, found in enumerate(value.finditer(text))
        for spot in spots
    ]
    best = min(gaps, key=lambda gap: gap[:2], default=None)
    return best[2] if best is not None and best[0] <= _NEAR else None


def money_aside(words: str, under: str) -> Aside:
    """An aside whose value is a sum of money."""
    return Aside(
        re.compile(words, re.IGNORECASE),
        re.compile(MONEY.pattern, re.IGNORECASE),
        None,
        re.compile(under, re.IGNORECASE),
    )
