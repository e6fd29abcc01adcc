"""Evidence as places of words: in which sentence, in which clause, and what stands around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._wording import BREAK, NAME, NUMBER, UNIT, WORD, Word, words_of
from raglab.sentences import sentences

SUBSTANCE = frozenset({WORD, NAME, NUMBER, UNIT})
# Keys of words that begin a clause.
PARTING = frozenset(
    ["and", "et", "but", "mais", "while", "where", "altho", "tandi", "alors"]
)  # keys of words that begin a clause
PARTING_NUMBERS = frozenset(["to", "à", "au", "until"])  # keys of words that do so after a number


class Place(NamedTuple):
    """Where a word stands.

    at: its number in the sentence. sign, negated: see `Word`. clause: counted over all evidence. leads: no word of
    substance is before it in its clause. counts: a word of substance comes right after it.
    """

    at: int
    sign: int
    negated: bool
    clause: int
    leads: bool
    counts: bool


class Evidence(NamedTuple):
    """Where every word of the evidence stands.

    places: by key and sentence. passage: of each sentence. numbered: whether each clause has a number.
    """

    places: dict[str, dict[int, list[Place]]]
    passage: list[int]
    numbered: list[bool]


def evidence_of(texts: Sequence[str]) -> Evidence:
    """Places of the words of texts, each a passage or a sentence.

    Example:
      >>> evidence_of(["It is £250. It was £400."]).places["400"]
      {1: [Place(at=3, sign=1, negated=False, clause=2, leads=False, counts=False)]}
    """
    places: defaultdict[str, dict[int, list[Place]]] = defaultdict(dict)
    passage: list[int] = []
    numbered: list[bool] = []
    for number, text in enumerate(texts):
        for words, clauses in _read(text):
            sentence, first = len(passage), len(numbered)
            passage.append(number)
            numbered += [False] * (clauses[-1] + 1 if clauses else 0)
            led = -1
            for at, word in enumerate(words):
                clause = first + clauses[at]
                counts = at + 1 < len(words) and words[at + 1].kind in SUBSTANCE
                place = Place(at, word.sign, word.negated, clause, led != clause, counts)
                places[word.key].setdefault(sentence, []).append(place)
                if word.kind in SUBSTANCE:
                    led = clause
                    numbered[clause] |= word.kind == NUMBER
    return Evidence(dict(places), passage, numbered)


def clauses_of(words: Sequence[Word]) -> list[int]:
    """Number of the clause that each word stands in, from 0: punctuation and `and` or `but` part clauses.

    Example:
      >>> clauses_of(words_of("2 vans and 3 cars"))
      [0, 0, 1, 1, 1]
    """
    found: list[int] = []
    clause, numbered = 0, False
    for at, word in enumerate(words):
        between = numbered and word.key in PARTING_NUMBERS and any(w.kind == NUMBER for w in words[at + 1 : at + 3])
        if between or word.kind == BREAK or word.key in PARTING:
            clause, numbered = clause + 1, False
        elif word.kind == NUMBER:
            numbered = True
        found.append(clause)
    return found


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[tuple[tuple[Word, ...], tuple[int, ...]], ...]:
    """Words of each sentence of a text, and their clauses."""
    return tuple((tuple(words), tuple(clauses_of(words))) for words in map(words_of, sentences(text)))
