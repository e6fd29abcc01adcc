"""Compression (shore): passages shortened to what a question needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, isfinite
from typing import NamedTuple

from raglab.answering.extractive import (
    DIGITS,
    introduces_next,
    parse_question,
    passage_lines,
    score_lines,
    weights,
)
from raglab.values import SECTION_JOINT, Chunk
from raglab.words.packs import GENERIC, Pack
from raglab.words.text import Piece, pieces, sentences
from raglab.words.tokeniser import word_count


class PassagePieces(NamedTuple):
    """A passage in pieces, as `raglab.words.text.pieces` counts them.

    section: headings above it, which are no pieces. lines: places of those that say something by
    themselves: prose, rows of tables and code, headings only where there is nothing else. needs: of
    each piece, the places of those without which it misleads. written: each as Markdown. goes_on:
    whether it goes on in the line of the piece before it.
    """

    text: str
    section: tuple[str, ...]
    pieces: tuple[Piece, ...]
    lines: tuple[int, ...]
    needs: tuple[frozenset[int], ...]
    written: tuple[str, ...]
    goes_on: tuple[bool, ...]


@lru_cache(maxsize=4096)
def cut_passage(text: str, section: tuple[str, ...] = ()) -> PassagePieces:
    r"""Cut a passage into pieces; the headings of its section are none of them.

    Example:
      >>> passage = "# Excess\n\nNot paid:\n- Storm.\n\n| Peril | Sum |\n|---|---|\n| Fire | £9 |"
      >>> cut_passage(passage).needs[-1] == {0, 1, 3}
      True
    """
    passage_pieces = tuple(pieces(text, titled=not section))
    lines = tuple(
        at for at, piece in enumerate(passage_pieces) if piece.kind in {"prose", "row", "code"}
    ) or tuple(range(len(passage_pieces)))
    written = tuple(map(_piece_markdown, passage_pieces))
    runs = _continues_paragraph(text, passage_pieces, written)
    return PassagePieces(
        text, section, passage_pieces, lines, _needs(passage_pieces), written, runs
    )


def join_pieces(whole: PassagePieces, selection: Collection[int]) -> str:
    r"""Markdown of some pieces of a passage, in its order.

    The passage itself where no line is left out.

    Its sentences are those pieces. A table keeps the rule under its head.

    Example:
      >>> join_pieces(cut_passage("# Excess\n\nIt rose in 2025. It is £250. Ask us."), {0, 2})
      '# Excess\n\nIt is £250.'
    """
    if set(whole.lines) <= set(selection):
        return whole.text
    places = sorted(selection)
    following = (_joint(whole, before, at) + whole.written[at] for before, at in pairwise(places))
    return "".join((*(whole.written[at] for at in places[:1]), *following))


def _joint(whole: PassagePieces, before: int, at: int) -> str:
    """What stands between two kept pieces."""
    if whole.goes_on[at] and before == at - 1:
        return " "
    if whole.pieces[at].kind != "row":
        return "\n\n"
    table, next_table = (
        {place for place in (*whole.needs[at], at) if whole.pieces[place].kind == "head"}
        for at in (before, at)
    )
    follows = before == at - 1 and whole.pieces[before].kind == "row"
    return "\n" if table == next_table and (table or follows) else "\n\n"


def _needs(passage_pieces: tuple[Piece, ...]) -> tuple[frozenset[int], ...]:
    """Of each piece.

    The headings above it, its table's head, and the line that leads on to it (`Not covered:`).
    """
    needs = []
    headings: tuple[int, ...] = ()
    head: int | None = None
    lead: int | None = None
    for at, piece in enumerate(passage_pieces):
        if piece.kind == "heading":
            needs.append(
                frozenset(headings if at and passage_pieces[at - 1].kind == "heading" else ())
            )
            headings, head, lead = (*needs[-1], at), None, None
            continue
        if piece.kind != "row":
            head = None
        leading = piece.kind == "prose" and introduces_next(piece.text)
        # A row as wide as a head, but without heads, starts a table of its own.
        is_under = head is not None and (
            bool(piece.heads) or len(piece.cells) != len(passage_pieces[head].cells)
        )
        wanted = (*headings, None if leading else lead, head if is_under else None)
        needs.append(frozenset(place for place in wanted if place is not None))
        head, lead = (at if piece.kind == "head" else head), (at if leading else lead)
    return tuple(needs)


def _piece_markdown(piece: Piece) -> str:
    if piece.kind == "heading":
        return f"# {piece.text}"
    if piece.kind in {"code", "prose"}:
        is_whole = piece.kind == "code" or sentences(piece.text) == [piece.text]
        return piece.text if is_whole else f"- {piece.text}"
    row = "| " + " | ".join(cell.replace("|", "\\|") for cell in piece.cells) + " |"
    return row if piece.kind == "row" else row + "\n|" + "---|" * len(piece.cells)


def _continues_paragraph(
    text: str, passage_pieces: Sequence[Piece], written: Sequence[str]
) -> tuple[bool, ...]:
    """Whether a sentence shares a paragraph with the one before, told apart without a break."""
    paragraphs = [_without_emphasis(paragraph) for paragraph in text.split("\n\n")]
    runs = [False]
    for (before, after), forms in zip(pairwise(passage_pieces), pairwise(written), strict=True):
        line = f"{before.text} {after.text}"
        is_prose = (before.text, after.text) == forms and before.kind == after.kind == "prose"
        runs.append(
            is_prose
            and any(_without_emphasis(line) in whole for whole in paragraphs)
            and sentences(line) == [*forms]
        )
    return tuple(runs[: len(passage_pieces)])


def _without_emphasis(text: str) -> str:
    return " ".join(text.replace("*", "").split())


TOKENS_PER_WORD = 4 / 3  # of English and French under the usual subword vocabularies
MEANING = (
    # how much a whole unit of meaning counts beside the question's words; on the bundled set it
    # added nothing
    1.0
)
OPEN = 0.5  # `ScoredLine.kind` where the question leaves open what kind of answer it asks for

Count = Callable[[str], int]
Meaning = Callable[[str, Sequence[str]], Sequence[float]]


class Compression(NamedTuple):
    """What is left of passages.

    passages: those of which a sentence is left, in their order; but for the text they are as they
    were. positions: for each input passage, those of the pieces left of its text, as
    `raglab.words.text.pieces` counts; () where it is gone. tokens: of the texts that are left, with
    the headings of their sections.
    """

    passages: tuple[Chunk, ...]
    positions: tuple[tuple[int, ...], ...]
    tokens: int


class _PackedLine(NamedTuple):
    """A sentence, list item or table row.

    Its passage, its place there, how much of the question it carries, if any.
    """

    passage: int
    at: int
    score: float
    carries: bool


def words_as_tokens(text: str) -> int:
    """Tokens of a text, estimated from its words.

    Example:
      >>> words_as_tokens("The storm excess is £400.")
      7
    """
    return ceil(TOKENS_PER_WORD * word_count(text))


def compress(
    question: str,
    passages: Sequence[Chunk],
    *,
    budget: int = 512,
    keep: Collection[int] = (),
    count: Count = words_as_tokens,
    meaning: Meaning | None = None,
    pack: Pack = GENERIC,
) -> Compression:
    """Sentences, list items and table rows that answer a question, best first within a budget.

    A sentence counts where it, a line next to it or a heading above it has a content word, name or
    number of the question (words by their first five letters), or where it has a date, sum, number
    or name and the question asks for one. The order is that of the extractive generator's support.
    A passage that shares nothing with the question was chosen for its meaning: all of its sentences
    count, after the others.

    The result is in the order of the passages, with the context that it would mislead without: the
    headings above a sentence, the head of its table, the line that introduces it (`Not covered:`).

    Args:
      question: any text.
      passages: the chosen hits, the best first.
      budget: most tokens of the result, at least 1.
      keep: positions of passages that must stay, such as those that an answer cites: the best
        sentence of each stays, **even where that goes beyond the budget**. Without any, the best
        sentence of all stays in the same way.
      count: tokens of a text.
      meaning: how near each of some sentences is to the question, such as a cosine, at most 1;
        added to their score.
      pack: the pack whose nouns name amounts.

    Raises:
      ValueError: a budget below 1, a position that no passage has, or a meaning that is missing.

    Example:
      >>> text = "Storm and hail are covered. The storm excess is £400. Ask your office."
      >>> compress(
      ...     "How much is the storm excess?", [Chunk("a#1", text, "a.md")], budget=8
      ... ).passages[0].text
      'The storm excess is £400.'
    """
    if budget < 1 or not {*keep} <= {*range(len(passages))}:
        msg = (
            f"budget must be 1 or more, and keep positions of the {len(passages)} passages, "
            f"got {budget} and {sorted(keep)}."
        )
        raise ValueError(msg)
    cuts = [cut_passage(passage.text, passage.section) for passage in passages]
    ranked = sorted(
        _kept_lines(question, cuts, meaning, pack),
        key=lambda line: (not line.carries, -line.score, line.passage, line.at),
    )
    selections: list[set[int]] = [set() for _ in passages]
    # A kept passage without a line costs its whole text from the start; the others cost what is
    # taken of them.
    spent = [
        _cost(count, cut, cut.text) if place in keep and not cut.pieces else 0
        for place, cut in enumerate(cuts)
    ]

    def take(line: _PackedLine, limit: float) -> None:
        """Add a line and its context (headings, table head, lead-in) if it fits the budget."""
        more = selections[line.passage] | {line.at} | cuts[line.passage].needs[line.at]
        cost = _cost(count, cuts[line.passage], join_pieces(cuts[line.passage], more))
        if sum(spent) - spent[line.passage] + cost <= limit:
            selections[line.passage], spent[line.passage] = more, cost

    # What must stay comes first, whatever it costs: the best line of each passage to keep, else the
    # best of all.
    best = {line.passage: line for line in reversed(ranked)}
    for line in [best[place] for place in sorted(keep) if place in best] if keep else ranked[:1]:
        take(line, float("inf"))
    # Then by rank while there is room; a passage that shares nothing was chosen for its meaning, so
    # all of it counts.
    alone = set(range(len(passages))) - {line.passage for line in ranked if line.carries}
    for line in ranked:
        if line.carries or line.passage in alone:
            take(line, budget)
    remaining = [
        passage._replace(text=join_pieces(whole, own))
        for place, (passage, whole, own) in enumerate(zip(passages, cuts, selections, strict=True))
        if own or place in keep
    ]
    # A passage of which no line is left out has all its pieces.
    positions = (
        tuple(range(len(whole.pieces)) if own and own >= {*whole.lines} else sorted(own))
        for whole, own in zip(cuts, selections, strict=True)
    )
    return Compression(tuple(remaining), tuple(positions), sum(spent))


def _cost(count: Count, whole: PassagePieces, text: str) -> int:
    """Tokens of what is left of a passage, below the headings of its section."""
    return count("\n".join([SECTION_JOINT.join(whole.section), text]) if whole.section else text)


def _kept_lines(
    question: str, cuts: Sequence[PassagePieces], meaning: Meaning | None, pack: Pack
) -> Iterator[_PackedLine]:
    """Lines that can be kept for their own sake.

    One that leads on to others only where there is nothing else.
    """
    parsed_question = parse_question(question, pack)
    read = [
        [
            line._replace(is_answer=not introduces_next(whole.pieces[at].text))
            for at, line in zip(
                whole.lines, passage_lines(whole.text, whole.section), strict=False
            )  # none where it is all headings
        ]
        for whole in cuts
    ]
    places = [
        (passage, at) for passage, whole in enumerate(cuts) for at in whole.lines if read[passage]
    ]
    candidates = list(score_lines(parsed_question, weights(parsed_question, read), read))
    texts = [candidate.line.text for candidate in candidates]
    near = [0.0] * len(texts)
    if meaning is not None and texts:
        near = [float(value) for value in meaning(question, texts)]
    if len(near) != len(texts) or not all(isfinite(value) and value <= 1.0 for value in near):
        msg = f"meaning must give {len(texts)} finite numbers of at most 1, got {near}."
        raise ValueError(msg)
    for candidate, value in zip(candidates, near, strict=True):
        carries = bool(candidate.near) or candidate.kind > OPEN or value > 0.0
        yield _PackedLine(
            *places[candidate.place], round(candidate.support + MEANING * value, DIGITS), carries
        )
    for passage in sorted(set(range(len(cuts))) - {candidate.passage for candidate in candidates}):
        yield from (_PackedLine(passage, at, 0.0, carries=False) for at in cuts[passage].lines)
