"""Figures that documents state, of a family such as limits or excesses: rows of their tables, sentences with a sum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._asked_kinds import FAMILY_HEADS, KINDS_OF_LIMIT
from raglab.answering._phrases import first, found, plain
from raglab.sentences import Piece, pieces
from raglab.values import Chunk

_SUM = re.compile(
    r"(?:[£€$]|\b(?:gbp|eur|usd) ?)\d|\d[\d .,\u00a0\u202f]*(?:[£€$%]|\b(?:gbp|eur|euros?|per cent|mph)\b)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,3}(?:[.,  \u00a0\u202f]\d{3})+|\d+(?:[.,]\d+)?|\bnil\b|\bnone\b|\bnot\b")
_SPAN = re.compile(
    r"(?:\d+|two|three|four|five|six|seven|ten|twelve|fourteen|twenty|thirty|sixty|ninety|deux|trois|cinq|dix|quinze|trente)"
    r"(?: (?:consecutive|working|calendar|clear|further))?[ -](?:hours?|days?|nights?|weeks?|months?|years?|"
    r"heures?|jours?|mois|ans?)"
)
_OLD = (r"old|until|before|expiring|ancien\w*|jusqu'au|avant|20\d\d schedule",)
_NEW = (r"new|from|since|renewal|nouve\w+|depuis|a partir|des le|apres",)
_YEAR = re.compile(r"(20\d\d)")
_INDEX = frozenset({"no", "no.", "ref", "n°", "#"})
_MENTION = {  # a sentence states a figure of a family only in these words, not where it speaks of sums at large
    "limit": (r"limits?|sub-?limits?|aggregate|at most|up to|maximum|plafonds?|jusqu'a|limite a|au plus",),
    "excess": FAMILY_HEADS["excess"],
    "premium": FAMILY_HEADS["premium"],
    "fee": FAMILY_HEADS["fee"],
}


class Figure(NamedTuple):
    """A figure of a document.

    family: `limit`, `excess`, `premium`, `fee` or ''. label: of its row, or its sentence. head: of its column. basis:
    the other words of the row. value: as it stands. version: `old`, `new` or ''. section: heading it stands under.
    at: position of its chunk in what was given. table: whether it stands in one.
    """

    family: str
    label: str
    head: str
    basis: str
    value: str
    version: str
    section: str
    at: int
    table: bool

    @property
    def context(self) -> str:
        """All words that say what the figure is."""
        return f"{self.label} {self.head} {self.basis}"


def figures(chunks: Sequence[Chunk], family: str | None = None) -> tuple[Figure, ...]:
    """Figures of a family, or of any, in the order in which they stand."""
    return tuple(
        figure._replace(at=at)
        for at, chunk in enumerate(chunks)
        for figure in _read(chunk.text)
        if family is None or figure.family == family
    )


@lru_cache(maxsize=4096)
def section(text: str) -> str:
    r"""Heading that a chunk stands under, without the title of its document.

    Example:
      >>> section("Acme Home > C. Excesses\nThe excess is £250.")
      'C. Excesses'
    """
    return text.partition("\n")[0].rpartition(" > ")[2].strip()


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[Figure, ...]:
    heading = section(text)
    made: list[Figure] = []
    for piece in pieces(text)[1:]:
        if piece.kind == "row":
            made += _of_row(piece, heading)
        elif piece.kind == "prose":
            made += _of_sentence(piece.text, heading)
    return tuple(made)


def _of_row(piece: Piece, heading: str) -> list[Figure]:
    heads = piece.heads or ("",) * len(piece.cells)
    sums = [
        at for at, cell in enumerate(piece.cells) if at and _NUMBER.search(plain(cell)) and _sum_like(cell, heads[at])
    ]
    names = [at for at in range(len(piece.cells)) if at not in sums and plain(heads[at]).strip() not in _INDEX]
    if not sums or not names:
        return []
    label = piece.cells[names[0]]
    basis = " ".join(piece.cells[at] for at in names[1:])
    versions = _versions([heads[at] for at in sums])
    return [
        Figure(
            _family(heads[at], label, heading),
            label,
            heads[at],
            basis,
            piece.cells[at],
            version,
            heading,
            -1,
            table=True,
        )
        for at, version in zip(sums, versions, strict=True)
    ]


def _sum_like(cell: str, head: str) -> bool:
    """Whether a cell is a figure rather than words with a number in them."""
    letters = sum(char.isalpha() for char in cell)
    return bool(_SUM.search(cell)) or letters <= 8 or bool(first(FAMILY_HEADS, head))


def _versions(heads: Sequence[str]) -> list[str]:
    """Which columns are the old figures and which the new ones."""
    if len(heads) < 2:
        return [""] * len(heads)
    olds, news = [bool(found(_OLD, head)) for head in heads], [bool(found(_NEW, head)) for head in heads]
    if any(olds) and any(news):
        return ["old" if old else "new" if new else "" for old, new in zip(olds, news, strict=True)]
    years = [_YEAR.search(head) for head in heads]
    if all(years) and len({year[1] for year in years if year}) == len(heads):
        order = sorted(year[1] for year in years if year)
        return ["old" if year and year[1] == order[0] else "new" for year in years]
    return [""] * len(heads)


def _family(head: str, label: str, heading: str) -> str:
    return first(FAMILY_HEADS, head) or first(FAMILY_HEADS, label) or first(FAMILY_HEADS, heading) or ""


def _of_sentence(sentence: str, heading: str) -> list[Figure]:
    """A figure of each family that a sentence states: a sum in words of the family, a span of time, a kind of limit."""
    made = []
    if _SUM.search(sentence):
        family = next((name for name, expressions in _MENTION.items() if found(expressions, sentence)), "")
        made += [family] if family else []
    elif found(FAMILY_HEADS["limit"], sentence) and first(KINDS_OF_LIMIT, sentence):
        made.append("kind")
    if _SPAN.search(plain(sentence)):
        made.append("period")
    return [Figure(family, sentence, "", "", sentence, "", heading, -1, table=False) for family in made]
