"""The short answer inside a sentence: a phrase of the kind that the question asks for, else what stands next to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raglab._answers import content_terms
from raglab.answering._expected import phrases
from raglab.answering._reading import read_question, stems

# Where the kind is open, what counts beside nearness to the question's words; chosen on SQuAD's tune split.
CAPITALS = 1.0  # share of words with a capital or a digit, the sentence's first left out
WORDS = 0.2  # each word up to LONG
LONG = 5

_TOKEN = re.compile(r"[£$€¥]?\d(?:[\d.,'’\u00a0\u202f]*\d)?%?|[^\W\d_]\w*(?:['’.-]\w+)*|\S")


class _Token(NamedTuple):
    start: int
    end: int
    text: str
    stems: tuple[str, ...]


def short_answer(question: str, sentence: str) -> str:
    """The phrase of a sentence that answers the question; the sentence itself where it says nothing new.

    Where the question asks for a date, a sum, a number or a name: the one nearest to the question's words that is not
    in the question. Else the run of words between the question's words, or punctuation, that is nearest to them.

    Example:
      >>> short_answer("When was Rollo baptised?", "Rollo was baptised in 912, after the treaty of 911.")
      '912'
    """
    asked = read_question(question)
    tokens = [_Token(*match.span(), match[0], stems(match[0])) for match in _TOKEN.finditer(sentence)]
    repeated = [bool(token.stems) and set(token.stems) <= set(asked.stems) for token in tokens]
    found: list[tuple[float, int, int]] = []
    if asked.kind is not None:
        for start, end in phrases(asked.kind, sentence):
            terms = content_terms(sentence[start:end])
            at = [i for i, token in enumerate(tokens) if token.start < end and token.end > start]
            if at and not asked.terms.issuperset(terms):
                found.append((_nearness(at, repeated), start, end))
    if not found:
        for run in _runs(tokens, repeated):
            marked = sum(tokens[i].text[0].isupper() or tokens[i].text[0].isdigit() for i in run if i > 0) / len(run)
            score = _nearness(run, repeated) + CAPITALS * marked + WORDS * min(len(run), LONG)
            found.append((score, tokens[run[0]].start, tokens[run[-1]].end))
    if not found:
        return sentence
    _, start, end = max(found, key=lambda one: round(one[0], 9))
    return sentence[start:end]


def _nearness(run: Sequence[int], repeated: Sequence[bool]) -> float:
    """Sum, over the question's words in the sentence, of one over one plus their distance in words."""
    places = [place for place, is_repeated in enumerate(repeated) if is_repeated]
    return sum(1.0 / (1.0 + min(abs(place - run[0]), abs(place - run[-1]))) for place in places)


def _runs(tokens: Sequence[_Token], repeated: Sequence[bool]) -> Iterator[list[int]]:
    """Runs of words without punctuation and words of the question; function words at their ends left out."""
    run: list[int] = []
    for i, token in enumerate(tokens):
        if not repeated[i] and any(map(str.isalnum, token.text)):
            run.append(i)
            continue
        yield from _trimmed(run, tokens)
        run = []
    yield from _trimmed(run, tokens)


def _trimmed(run: Sequence[int], tokens: Sequence[_Token]) -> Iterator[list[int]]:
    kept = [i for i in run if tokens[i].stems]
    if kept:
        yield list(range(kept[0], kept[-1] + 1))
