"""Passages and questions as the extractive generator reads them: lines that can be an answer, and what they say."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from raglab._answers import content_terms
from raglab.answering._expected import Kind, expected
from raglab.sentences import Piece, pieces

BEGINNING = 5  # letters of a word that count: they join claim, claims and claimed, assurer, assurance and assuré
LONGEST = 64  # different words of a question that count
_CLOSING = "\"'”»)"
_LEADS_ON = ("?", ":")  # a line that ends so is answered by the next one


class Question(NamedTuple):
    """A question's distinct stems in order, the pairs of neighbours among them, its terms, and the answer's kind."""

    stems: tuple[str, ...]
    pairs: frozenset[tuple[str, str]]
    terms: frozenset[str]
    kind: Kind | None


class Line(NamedTuple):
    """A sentence, list item or table row of a passage.

    text: as an answer shows it. stems: what it says. pairs: its neighbouring stems. heading: stems of the headings
    above it. before: stems of the line before it, of a row those of the last line before the table. is_answer: whether
    it can be one; what ends in a question mark or a colon is answered by what follows.
    """

    text: str
    stems: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    heading: frozenset[str]
    before: frozenset[str]
    is_answer: bool


def stems(text: str) -> tuple[str, ...]:
    """Beginnings of a text's content words, and its numbers, in order.

    Example:
      >>> stems("The claims of 1,200 claimants")
      ('claim', '1200', 'claim')
    """
    return tuple(term[:BEGINNING] if term.isalpha() else term for term in content_terms(text))


@lru_cache(maxsize=4096)
def read_question(text: str) -> Question:
    """Read what a question asks."""
    found = tuple(dict.fromkeys(stems(text)))[:LONGEST]
    return Question(found, frozenset(pairwise(found)), frozenset(content_terms(text)), expected(text))


@lru_cache(maxsize=8192)
def lines(text: str) -> tuple[Line, ...]:
    r"""Sentences, list items and table rows of a passage in order; what stands in headings goes to what they head.

    Example:
      >>> lines("Policy > Excess\nStorm is dearer.")[0].heading == {"polic", "exces"}
      True
    """
    found: list[Line] = []
    heading: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    headings_run = False
    for piece in pieces(text):
        if piece.kind == "heading":
            heading = frozenset(stems(piece.text)) | (heading if headings_run or not found else frozenset())
            headings_run, before = True, frozenset()
            continue
        headings_run = False
        if piece.kind == "head":
            continue
        line = shown(piece)
        said = stems(line)
        is_answer = bool(said) and not line.rstrip(_CLOSING).endswith(_LEADS_ON)
        found.append(Line(line, frozenset(said), frozenset(pairwise(said)), heading, before, is_answer))
        if piece.kind != "row":
            before = frozenset(said)
    return tuple(found)


def shown(piece: Piece) -> str:
    r"""A piece as an answer shows it: of a row its first cell, then the others under the heads of their columns.

    Example:
      >>> shown(pieces("| Peril | Excess |\n|---|---|\n| Storm excess | £400 |")[1])
      'Storm excess - Excess: £400'
    """
    if piece.kind != "row":
        return piece.text
    heads = piece.heads or ("",) * len(piece.cells)
    cells = zip(heads[1:], piece.cells[1:], strict=True)
    named = "; ".join(f"{head}: {cell}" if head else cell for head, cell in cells if cell)
    return " - ".join(part for part in (piece.cells[0], named) if part)
