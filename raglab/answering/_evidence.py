"""Evidence as places of words: in which sentence, in which clause, and what stands around them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._wording import BREAK, NAME, NEGATION, NUMBER, UNIT, WORD, Word, words_of
from raglab.sentences import sentences

SUBSTANCE = frozenset({WORD, NAME, NUMBER, UNIT})
# Keys of words that begin a clause.
PARTING = frozenset(
    ["and", "et", "but", "mais", "while", "where", "altho", "tandi", "alors"]
)  # keys of words that begin a clause
PARTING_NUMBERS = frozenset(["to", "à", "au", "until"])  # keys of words that do so after a number

# Keys of pronouns and auxiliaries: a clause that begins with one leaves what it is about to the clause before.
LEANING = frozenset(
    """it he she they can could may might must will would shall should is are was were do doe did has have had il elle
    ils elles est sont peut doit""".split()  # noqa: SIM905
)


class Place(NamedTuple):
    """Where a word stands.

    at: its number in the sentence. sign, negated: see `Word`. clause: counted over all evidence. leads: no word of
    substance is before it in its clause, or the clause begins with a pronoun or an auxiliary. counts: a word of
    substance comes right after it.
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


def evidence_of(texts: Sequence[str], keys: Collection[str] | None = None) -> Evidence:
    """Places of the words of texts, each a passage or a sentence.

    Args:
      keys: of the words that are wanted; None wants all.

    Example:
      >>> evidence_of(["Fire costs £250. Theft costs £400."]).places["400"]
      {1: [Place(at=3, sign=1, negated=False, clause=2, leads=False, counts=False)]}
    """
    places: dict[str, dict[int, list[Place]]] = {}
    passage: list[int] = []
    numbered: list[bool] = []
    for number, text in enumerate(texts):
        for words, clauses in _read(text):
            sentence, first = len(passage), len(numbered)
            passage.append(number)
            numbered += [False] * (clauses[-1] + 1 if clauses else 0)
            led = begun = -1
            leaning = False
            for at, (word, clause) in enumerate(zip(words, clauses, strict=True)):
                key, kind, sign, negated = word
                if clause != begun and kind != BREAK and key not in PARTING:
                    begun, leaning = clause, key in LEANING or kind == NEGATION
                if keys is None or key in keys:
                    counts = at + 1 < len(words) and words[at + 1].kind in SUBSTANCE
                    place = Place(at, sign, negated, first + clause, leaning or led != clause, counts)
                    places.setdefault(key, {}).setdefault(sentence, []).append(place)
                if kind in SUBSTANCE:
                    led = clause
                    if kind == NUMBER:
                        numbered[first + clause] = True
    return Evidence(places, passage, numbered)


def clauses_of(words: Sequence[Word]) -> list[int]:
    """Number of the clause that each word stands in, from 0: punctuation and `and` or `but` part clauses.

    Example:
      >>> clauses_of(words_of("2 vans and 3 cars"))
      [0, 0, 1, 1, 1]
    """
    found: list[int] = []
    clause, numbered = 0, False
    for at, (key, kind, _, _) in enumerate(words):
        if kind == BREAK or key in PARTING:
            clause, numbered = clause + 1, False
        elif kind == NUMBER:
            numbered = True
        elif numbered and key in PARTING_NUMBERS and any(word.kind == NUMBER for word in words[at + 1 : at + 3]):
            clause, numbered = clause + 1, False
        found.append(clause)
    return found


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[tuple[tuple[Word, ...], tuple[int, ...]], ...]:
    """Words of each sentence of a text, and their clauses."""
    return tuple((tuple(words), tuple(clauses_of(words))) for words in map(words_of, sentences(text)))
