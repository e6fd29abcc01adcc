"""Echoes (shore): answer lines that repeat a heading or the question, so claim nothing (S2.11).

A small model copies what stands above its passages, and asks the question back. Held against the
passages such a line is borne out word by word, though it answers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from raglab.values import Chunk
from raglab.words.languages import LANGUAGES
from raglab.words.text import pieces, split_code
from raglab.words.tokeniser import split_words

Words = tuple[str, ...]

_ITEM = re.compile(r"\A\s*(?:[-*+•‣◦▪·–]|\d{1,3}[.)])\s+")
_QUOTE = re.compile(r"\A(?:\s*>)+")
_LABEL = re.compile(
    rf"\A[\s*_]*(?:{'|'.join(LANGUAGES.no_answer.labels)})[\s*_]*[:\uff1a][\s*_]*", re.IGNORECASE
)  # `**Question:** How much?`
_JOINT = re.compile(r"(?<=\s)[>›»→](?=\s)")  # between the headings of a path
_EMPHASIS = " \t*_\"'“”«»"
_ASKS = ("?", "？", "؟")


def text_without_echoes(answer: str, question: str, passages: Sequence[Chunk]) -> str:
    r"""The answer without lines that only repeat a path of headings, a heading, or the question.

    The heading is one above other lines.

    A heading that is the whole answer, or an item of a list, may be the name that was asked for,
    and stays; so does what a passage states in a sentence of its own. Code stays. An answer without
    an echo is returned as it is.

    Example:
      >>> chunk = Chunk("a#1", "It is £250.", "a.md", section=("Home", "Excess of storm"))
      >>> text_without_echoes(
      ...     "Home > Excess of storm\nWhat is the excess?\n£250.", "What is the excess?", [chunk]
      ... )
      '\n\n£250.'
    """
    parts = split_code(answer.split("\n"))
    titles = {_words(head) for passage in passages for head in passage.section}
    heads = titles | {
        _words(head)
        for passage in passages
        for path in _paths(passage.text)
        for head in _JOINT.split(path)
    }
    is_title_possible = sum(not isinstance(part, str) or bool(part.strip()) for part in parts) > 1

    def is_echo(line: str) -> bool:
        text = _behind_question(_without_marks(line), question)
        words, path = _words(text), _JOINT.split(text)
        # Nothing is left behind the question; a line without any word is no echo, and changes no
        # claim.
        if not words:
            return bool(_words(line))
        if len(path) > 1 and all(_words(head) in heads for head in path):
            return True
        is_title = is_title_possible and words in titles and not _ITEM.match(line)
        return (is_title or words == _words(question)) and words not in _stated(passages)

    lines = ["" if isinstance(part, str) and is_echo(part) else part for part in parts]
    if lines == parts:
        return answer
    return "\n".join(part if isinstance(part, str) else "\n".join(part.source) for part in lines)


def _without_marks(line: str) -> str:
    """A line without marks of quotation, list and emphasis, and no label such as `Question:`."""
    bare = _ITEM.sub("", _QUOTE.sub("", line, count=1), count=1)
    return _LABEL.sub("", bare, count=1).strip(_EMPHASIS)


def _behind_question(text: str, question: str) -> str:
    """Text after the question where a text begins with it and it ends as a question.

    Else the text.
    """
    stated = question.strip()
    begins = stated.endswith(_ASKS) and text.casefold().startswith(stated.casefold())
    return text[len(stated) :].strip(_EMPHASIS) if begins else text


def _words(text: str) -> Words:
    return tuple(split_words(text))


def _paths(text: str) -> Iterator[str]:
    """Paths of headings that stand in a text, as in one whose sections are not known."""
    return (
        piece.text
        for piece in pieces(text)
        if piece.kind == "heading" and _JOINT.search(piece.text)
    )


def _stated(passages: Sequence[Chunk]) -> frozenset[Words]:
    """Words of every sentence and row of the passages."""
    return frozenset(
        _words(piece.text)
        for passage in passages
        for piece in pieces(passage.text)
        if piece.kind in {"prose", "row"}
    )
