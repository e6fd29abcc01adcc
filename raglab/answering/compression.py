"""Compression (shore): passages shortened to what a question needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, isfinite
from typing import NamedTuple

from raglab.answering.extractive import (
    SUPPORT_DIGITS,
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
    themselves: prose, rows of tables and code, headings only without any of these. needs: of each
    piece, the places of those without which it misleads. written: each as Markdown. goes_on:
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
    line_indices = tuple(
        piece_index
        for piece_index, piece in enumerate(passage_pieces)
        if piece.kind in {"prose", "row", "code"}
    ) or tuple(range(len(passage_pieces)))
    piece_texts = tuple(map(_piece_markdown, passage_pieces))
    continues_paragraph = _continues_paragraph(text, passage_pieces, piece_texts)
    return PassagePieces(
        text,
        section,
        passage_pieces,
        line_indices,
        _needs(passage_pieces),
        piece_texts,
        continues_paragraph,
    )


def join_pieces(passage_pieces: PassagePieces, selection: Collection[int]) -> str:
    r"""Markdown of some pieces of a passage, in its order.

    The passage itself where no line is left out.

    Its sentences are those pieces. A table keeps the rule under its head.

    Example:
      >>> join_pieces(cut_passage("# Excess\n\nIt rose in 2025. It is £250. Ask us."), {0, 2})
      '# Excess\n\nIt is £250.'
    """
    if set(passage_pieces.lines) <= set(selection):
        return passage_pieces.text
    kept_indices = sorted(selection)
    joined_pieces = (
        _joint(passage_pieces, previous_index, piece_index) + passage_pieces.written[piece_index]
        for previous_index, piece_index in pairwise(kept_indices)
    )
    return "".join(
        (*(passage_pieces.written[piece_index] for piece_index in kept_indices[:1]), *joined_pieces)
    )


def _joint(passage_pieces: PassagePieces, previous_index: int, piece_index: int) -> str:
    """What stands between two kept pieces."""
    if passage_pieces.goes_on[piece_index] and previous_index == piece_index - 1:
        return " "
    if passage_pieces.pieces[piece_index].kind != "row":
        return "\n\n"
    own_table, next_table = (
        {
            needed_index
            for needed_index in (*passage_pieces.needs[piece_index], piece_index)
            if passage_pieces.pieces[needed_index].kind == "head"
        }
        for piece_index in (previous_index, piece_index)
    )
    follows_row = (
        previous_index == piece_index - 1 and passage_pieces.pieces[previous_index].kind == "row"
    )
    return "\n" if own_table == next_table and (own_table or follows_row) else "\n\n"


def _needs(passage_pieces: tuple[Piece, ...]) -> tuple[frozenset[int], ...]:
    """Of each piece.

    The headings above it, its table's head, and the line that leads on to it (`Not covered:`).
    """
    needed_by_piece = []
    heading_indices: tuple[int, ...] = ()
    head_index: int | None = None
    lead_index: int | None = None
    for piece_index, piece in enumerate(passage_pieces):
        if piece.kind == "heading":
            needed_by_piece.append(
                frozenset(
                    heading_indices
                    if piece_index and passage_pieces[piece_index - 1].kind == "heading"
                    else ()
                )
            )
            heading_indices, head_index, lead_index = (
                (*needed_by_piece[-1], piece_index),
                None,
                None,
            )
            continue
        if piece.kind != "row":
            head_index = None
        is_leading = piece.kind == "prose" and introduces_next(piece.text)
        # A row as wide as a head, but without heads, starts a table of its own.
        is_under = head_index is not None and (
            bool(piece.heads) or len(piece.cells) != len(passage_pieces[head_index].cells)
        )
        wanted_indices = (
            *heading_indices,
            None if is_leading else lead_index,
            head_index if is_under else None,
        )
        needed_by_piece.append(
            frozenset(wanted_index for wanted_index in wanted_indices if wanted_index is not None)
        )
        head_index = piece_index if piece.kind == "head" else head_index
        lead_index = piece_index if is_leading else lead_index
    return tuple(needed_by_piece)


def _piece_markdown(piece: Piece) -> str:
    if piece.kind == "heading":
        return f"# {piece.text}"
    if piece.kind in {"code", "prose"}:
        is_whole = piece.kind == "code" or sentences(piece.text) == [piece.text]
        return piece.text if is_whole else f"- {piece.text}"
    row_text = "| " + " | ".join(cell_text.replace("|", "\\|") for cell_text in piece.cells) + " |"
    return row_text if piece.kind == "row" else row_text + "\n|" + "---|" * len(piece.cells)


def _continues_paragraph(
    text: str, passage_pieces: Sequence[Piece], piece_texts: Sequence[str]
) -> tuple[bool, ...]:
    """Whether a sentence shares a paragraph with the one before, told apart without a break."""
    plain_paragraphs = [_without_emphasis(paragraph) for paragraph in text.split("\n\n")]
    continues = [False]
    for (piece_before, piece_after), text_pair in zip(
        pairwise(passage_pieces), pairwise(piece_texts), strict=True
    ):
        joined_line = f"{piece_before.text} {piece_after.text}"
        is_prose = (
            piece_before.text,
            piece_after.text,
        ) == text_pair and piece_before.kind == piece_after.kind == "prose"
        continues.append(
            is_prose
            and any(
                _without_emphasis(joined_line) in plain_paragraph
                for plain_paragraph in plain_paragraphs
            )
            and sentences(joined_line) == [*text_pair]
        )
    return tuple(continues[: len(passage_pieces)])


def _without_emphasis(text: str) -> str:
    return " ".join(text.replace("*", "").split())


TOKENS_PER_WORD = 4 / 3  # of English and French under the usual subword vocabularies
MEANING_WEIGHT = (
    # how much a whole unit of meaning counts, compared with the question's words; on the bundled
    # set it added nothing
    1.0
)
OPEN_KIND = 0.5  # `ScoredLine.kind` where the question leaves open what kind of answer it asks for

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
        message = (
            f"budget must be 1 or more, and keep positions of the {len(passages)} passages, "
            f"got {budget} and {sorted(keep)}."
        )
        raise ValueError(message)
    cut_passages = [
        cut_passage(passage_index.text, passage_index.section) for passage_index in passages
    ]
    ranked_lines = sorted(
        _kept_lines(question, cut_passages, meaning, pack),
        key=lambda ranked_line: (
            not ranked_line.carries,
            -ranked_line.score,
            ranked_line.passage,
            ranked_line.at,
        ),
    )
    selections: list[set[int]] = [set() for _ in passages]
    # A kept passage without a line costs its whole text from the start; the others cost what is
    # taken of them.
    spent_tokens = [
        _cost(count, passage_pieces, passage_pieces.text)
        if position in keep and not passage_pieces.pieces
        else 0
        for position, passage_pieces in enumerate(cut_passages)
    ]

    def take(candidate: _PackedLine, token_limit: float) -> None:
        """Add a line and its context (headings, table head, lead-in) if it fits the budget."""
        extended_selection = (
            selections[candidate.passage]
            | {candidate.at}
            | cut_passages[candidate.passage].needs[candidate.at]
        )
        selection_cost = _cost(
            count,
            cut_passages[candidate.passage],
            join_pieces(cut_passages[candidate.passage], extended_selection),
        )
        if sum(spent_tokens) - spent_tokens[candidate.passage] + selection_cost <= token_limit:
            selections[candidate.passage], spent_tokens[candidate.passage] = (
                extended_selection,
                selection_cost,
            )

    # What must stay comes first, at any cost: the best line of each passage to keep, else the
    # best of all.
    best_lines = {ranked_line.passage: ranked_line for ranked_line in reversed(ranked_lines)}
    for ranked_line in (
        [best_lines[position] for position in sorted(keep) if position in best_lines]
        if keep
        else ranked_lines[:1]
    ):
        take(ranked_line, float("inf"))
    # Then by rank while there is room; a passage that shares nothing was chosen for its meaning, so
    # all of it counts.
    unshared_passages = set(range(len(passages))) - {
        ranked_line.passage for ranked_line in ranked_lines if ranked_line.carries
    }
    for ranked_line in ranked_lines:
        if ranked_line.carries or ranked_line.passage in unshared_passages:
            take(ranked_line, budget)
    remaining_passages = [
        passage_index._replace(text=join_pieces(cut_pieces, kept_indices))
        for position, (passage_index, cut_pieces, kept_indices) in enumerate(
            zip(passages, cut_passages, selections, strict=True)
        )
        if kept_indices or position in keep
    ]
    # A passage of which no line is left out has all its pieces.
    kept_positions = (
        tuple(
            range(len(cut_pieces.pieces))
            if kept_indices and kept_indices >= {*cut_pieces.lines}
            else sorted(kept_indices)
        )
        for cut_pieces, kept_indices in zip(cut_passages, selections, strict=True)
    )
    return Compression(tuple(remaining_passages), tuple(kept_positions), sum(spent_tokens))


def _cost(count_tokens: Count, passage_pieces: PassagePieces, kept_text: str) -> int:
    """Tokens of what is left of a passage, below the headings of its section."""
    return count_tokens(
        "\n".join([SECTION_JOINT.join(passage_pieces.section), kept_text])
        if passage_pieces.section
        else kept_text
    )


def _kept_lines(
    question: str, cut_passages: Sequence[PassagePieces], meaning: Meaning | None, pack: Pack
) -> Iterator[_PackedLine]:
    """Lines that can be kept for their own sake.

    One that leads on to others only where there is nothing else.
    """
    parsed_question = parse_question(question, pack)
    passage_lines_read = [
        [
            passage_line._replace(
                is_answer=not introduces_next(passage_pieces.pieces[piece_index].text)
            )
            for piece_index, passage_line in zip(
                passage_pieces.lines,
                passage_lines(passage_pieces.text, passage_pieces.section),
                strict=False,
            )  # none where it is all headings
        ]
        for passage_pieces in cut_passages
    ]
    line_places = [
        (passage_index, piece_index)
        for passage_index, passage_pieces in enumerate(cut_passages)
        for piece_index in passage_pieces.lines
        if passage_lines_read[passage_index]
    ]
    candidates = list(
        score_lines(
            parsed_question, weights(parsed_question, passage_lines_read), passage_lines_read
        )
    )
    candidate_texts = [candidate.line.text for candidate in candidates]
    closeness = [0.0] * len(candidate_texts)
    if meaning is not None and candidate_texts:
        closeness = [
            float(closeness_value) for closeness_value in meaning(question, candidate_texts)
        ]
    if len(closeness) != len(candidate_texts) or not all(
        isfinite(closeness_value) and closeness_value <= 1.0 for closeness_value in closeness
    ):
        message = (
            f"meaning must give {len(candidate_texts)} finite "
            f"numbers of at most 1, got {closeness}."
        )
        raise ValueError(message)
    for candidate, closeness_value in zip(candidates, closeness, strict=True):
        carries_question = (
            bool(candidate.near) or candidate.kind > OPEN_KIND or closeness_value > 0.0
        )
        yield _PackedLine(
            *line_places[candidate.place],
            round(candidate.support + MEANING_WEIGHT * closeness_value, SUPPORT_DIGITS),
            carries_question,
        )
    for passage_index in sorted(
        set(range(len(cut_passages))) - {candidate.passage for candidate in candidates}
    ):
        yield from (
            _PackedLine(passage_index, piece_index, 0.0, carries=False)
            for piece_index in cut_passages[passage_index].lines
        )
