"""Passages cut into sentences that can be left out, and put together again without those that were."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from raglab.sentences import Piece, pieces, sentences

_CLOSING = "\"'”»)"
_LEADS_ON = ("?", ":")  # what a line ends with that means little without the next one, and the next without it


class Cut(NamedTuple):
    """A passage in pieces, as `sentences` counts them.

    lines: places of those that say something by themselves: prose and rows of tables, headings only where there is
    nothing else. needs: of each piece, the places of those without which it misleads. written: each as Markdown.
    goes_on: whether it goes on in the line of the piece before it.
    """

    text: str
    pieces: tuple[Piece, ...]
    lines: tuple[int, ...]
    needs: tuple[frozenset[int], ...]
    written: tuple[str, ...]
    goes_on: tuple[bool, ...]


@lru_cache(maxsize=4096)
def cut(text: str) -> Cut:
    r"""Cut a passage into pieces.

    Example:
      >>> cut("# Excess\n\nNot paid:\n- Storm.\n\n| Peril | Sum |\n|---|---|\n| Fire | £9 |").needs[-1] == {0, 1, 3}
      True
    """
    found = tuple(pieces(text))
    lines = tuple(at for at, piece in enumerate(found) if piece.kind in {"prose", "row"}) or tuple(range(len(found)))
    written = tuple(map(_written, found))
    return Cut(text, found, lines, _needs(found), written, _goes_on(text, found, written))


def put_together(whole: Cut, kept: Collection[int]) -> str:
    r"""Markdown of some pieces of a passage, in its order; the passage itself where no line is left out.

    Its sentences are those pieces. A table keeps the rule under its head.

    Example:
      >>> put_together(cut("# Excess\n\nIt rose in 2025. It is £250. Ask us."), {0, 2})
      '# Excess\n\nIt is £250.'
    """
    if set(whole.lines) <= set(kept):
        return whole.text
    places = sorted(kept)
    following = (_joint(whole, before, at) + whole.written[at] for before, at in pairwise(places))
    return "".join((*(whole.written[at] for at in places[:1]), *following))


def leads_on(text: str) -> bool:
    """Whether a line is answered or listed out by what follows it.

    Example:
      >>> leads_on("Not covered:"), leads_on("Is flood covered?"), leads_on("No.")
      (True, True, False)
    """
    return text.rstrip(_CLOSING).endswith(_LEADS_ON)


def _joint(whole: Cut, before: int, at: int) -> str:
    """What stands between two kept pieces."""
    if whole.goes_on[at] and before == at - 1:
        return " "
    table, other = _table_of(whole, before), _table_of(whole, at)
    return "\n" if whole.pieces[at].kind == "row" and table == other and (table >= 0 or before == at - 1) else "\n\n"


def _table_of(whole: Cut, at: int) -> int:
    """Place of the head of the table that a piece stands in; -1 of one without a head, -2 in none."""
    if whole.pieces[at].kind != "row":
        return at if whole.pieces[at].kind == "head" else -2
    return next((place for place in whole.needs[at] if whole.pieces[place].kind == "head"), -1)


def _needs(found: tuple[Piece, ...]) -> tuple[frozenset[int], ...]:
    """Of each piece: the headings above it, its table's head, and the line that leads on to it (`Not covered:`)."""
    needs = []
    headings: tuple[int, ...] = ()
    head: int | None = None
    lead: int | None = None
    for at, piece in enumerate(found):
        if piece.kind == "heading":
            needs.append(frozenset(headings if at and found[at - 1].kind == "heading" else ()))
            headings, head, lead = (*needs[-1], at), None, None
            continue
        if piece.kind != "row":
            head = None
        leading = piece.kind == "prose" and leads_on(piece.text)
        wanted = (*headings, None if leading else lead, head if _is_under(piece, found, head) else None)
        needs.append(frozenset(place for place in wanted if place is not None))
        head, lead = (at if piece.kind == "head" else head), (at if leading else lead)
    return tuple(needs)


def _is_under(piece: Piece, found: tuple[Piece, ...], head: int | None) -> bool:
    """Whether a row stands under that head; one as wide without heads is of a table of its own."""
    return head is not None and (bool(piece.heads) or len(piece.cells) != len(found[head].cells))


def _written(piece: Piece) -> str:
    if piece.kind == "heading":
        return f"# {piece.text}"
    if piece.kind == "prose":
        return piece.text if sentences(piece.text) == [piece.text] else f"- {piece.text}"
    row = "| " + " | ".join(cell.replace("|", "\\|") for cell in piece.cells) + " |"
    return row if piece.kind == "row" else row + "\n|" + "---|" * len(piece.cells)


def _goes_on(text: str, found: Sequence[Piece], written: Sequence[str]) -> tuple[bool, ...]:
    """Whether a sentence stands in one paragraph with the one before it, and the two are told apart without a break."""
    paragraphs = [_bare(paragraph) for paragraph in text.split("\n\n")]
    runs = [False]
    for (one, other), forms in zip(pairwise(found), pairwise(written), strict=True):
        line = f"{one.text} {other.text}"
        is_prose = (one.text, other.text) == forms and one.kind == other.kind == "prose"
        runs.append(is_prose and any(_bare(line) in whole for whole in paragraphs) and sentences(line) == [*forms])
    return tuple(runs[: len(found)])


def _bare(text: str) -> str:
    return " ".join(text.replace("*", "").split())
