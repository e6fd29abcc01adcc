"""Rewriting (shore): what passages lack of a question, which gains words of first hits (S2.9)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log
from typing import NamedTuple, Protocol

from raglab.retrieval.entity_names import (
    beginning,
    codes_in,
    lexicon,
    longest,
    names_in,
    plain_words,
    spot_names,
)
from raglab.words.text import STOP_WORDS

PASSAGES = 5  # first hits that are believed to be relevant
TERMS = 10  # words that a step adds
# words of the corpus that every passage is mixed with (Dirichlet's mu), about a passage's length
SMOOTHING = 100.0
PASSAGES_KEPT = 4096  # passages that are kept as they were read
UNSEEN = 0.5  # occurrences of a word that the corpus does not have

_TERM = re.compile(r"[^\W\d_]{3,}")


class Rewriter(Protocol):
    """Protocol of query rewriters."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints."""

    def rewrite(self, question: str, passages: Sequence[str], step: int) -> str:
        """Return a query of plain text.

        Args:
          question: as the user asked it.
          passages: texts of the hits of the step before, best first.
          step: from 1.
        """


def uncovered(question: str, passages: Sequence[str]) -> list[str]:
    """Names, codes and other content words of a question that no passage covers, in its order.

    Folded. A word is covered by any passage, a name by one that holds all its words, an identifier
    by one that holds them in a row; words are compared by their beginnings.

    Example:
      >>> uncovered("Which excess has Crédit des Alpes?", ["Excesses: none.", "The Alpes."])
      ['crédit des alpes']
    """
    held = [(_beginnings(passage), f" {' '.join(plain_words(passage))} ") for passage in passages]
    return [
        unit
        for unit in _units(question)
        if not any(_holds(words, text, unit) for words, text in held)
    ]


class _PassageWords(NamedTuple):
    """A passage, read.

    n_words: how many words it has. counts: how often each of their beginnings occurs. terms:
    beginning, word and number of occurrences of each word that can be added to a question, in their
    order.
    """

    n_words: int
    counts: Counter[str]
    terms: list[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class Rm3:
    """Pseudo-relevance feedback.

    The question, and after it the words that set its first hits apart from the corpus.

    counts: occurrences of each beginning of a word in the corpus. total: of them all. passages:
    hits that are believed. terms: words that a step adds.
    """

    counts: Mapping[str, int] = field(repr=False)
    total: int
    passages: int = PASSAGES
    terms: int = TERMS

    @property
    def name(self) -> str:
        """The method with its parameters."""
        return f"rm3-{self.passages}-{self.terms}"

    def rewrite(self, question: str, passages: Sequence[str], step: int) -> str:
        """Return the question, then the relevance model's first words, `terms` for each step.

        Step 1 believes the first passages, step 2 those that hold what the first ones miss of the
        question, where there are any, and a later step as many times more of the first. With each
        step the text grows, as long as the passages have words to add; where they have none, it is
        the question as it came.

        Source: Lavrenko and Croft 2001, SIGIR (the model); Abdul-Jaleel et al. 2004, TREC (the
          question stays in it); Carpineto et al. 2001, ACM TOIS (the words that are chosen).
        """
        believed = [_passage_words(text) for text in self._believed(question, passages, step)]
        return " ".join((question, *self._words(question, believed)[: self.terms * step]))

    def _believed(self, question: str, passages: Sequence[str], step: int) -> Sequence[str]:
        first = passages[: self.passages]
        if step == 1:
            return first
        if step == 2:
            missing = [_beginnings(unit) for unit in uncovered(question, first)]
            holding = [
                passage
                for passage in passages
                if any(map(_beginnings(passage).issuperset, missing))
            ]
            return holding[: self.passages] or first
        return passages[: self.passages * (step - 1)]

    def _words(self, question: str, passages: Sequence[_PassageWords]) -> list[str]:
        """Passage words not in the question, by their part in the divergence from the corpus.

        A passage's chance of a word is smoothed with the corpus (Dirichlet), a word's in the model
        is the sum over the passages of that chance times how far the passage is believed: its share
        of the question's likelihood.
        """
        stems = sorted(_beginnings(question))
        # likelihood of the question, per word
        likelihoods = []
        for passage in passages:
            chances = [passage.counts[word] + SMOOTHING * self._common(word) for word in stems]
            logs = [log(chance / (passage.n_words + SMOOTHING)) for chance in chances]
            likelihoods.append(exp(sum(logs) / max(len(logs), 1)))
        rates = [
            likelihood / sum(likelihoods) / (passage.n_words + SMOOTHING)
            for likelihood, passage in zip(likelihoods, passages, strict=True)
        ]
        heard: defaultdict[str, float] = defaultdict(float)
        for rate, passage in zip(rates, passages, strict=True):
            for word, times in passage.counts.items():
                heard[word] += rate * times
        question_beginnings = {beginning(word) for word in plain_words(question)}
        # the most frequent spelling of each beginning that can be added, the first of equals
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for passage in passages:
            for start, word, times in passage.terms:
                spellings[start][word] += times
        parts: dict[str, float] = {}
        for word in sorted(spellings.keys() - question_beginnings):
            common = self._common(word)
            chance = heard[word] + sum(rates) * SMOOTHING * common
            parts[word] = chance * log(chance / common)
        best = sorted(parts, key=lambda word: -parts[word])
        return [spellings[word].most_common(1)[0][0] for word in best]

    def _common(self, word: str) -> float:
        return (self.counts.get(word, 0) + UNSEEN) / (self.total + UNSEEN)


def rm3(texts: Sequence[str], *, passages: int = PASSAGES, terms: int = TERMS) -> Rm3:
    """Feedback for a corpus, whose words are counted once.

    Args:
      texts: of its chunks.
      passages: hits that are believed, at least 1.
      terms: words that a step adds, at least 1.

    Example:
      >>> texts = [
      ...     "Hail breaks glass.",
      ...     "Glass is covered against hail.",
      ...     "Rain is wet.",
      ...     "Fog is grey.",
      ... ]
      >>> rm3(texts, terms=2).rewrite("hail?", texts[:1], step=1)
      'hail? breaks glass'
    """
    counts = Counter(beginning(word) for text in texts for word in plain_words(text))
    return Rm3(dict(counts), counts.total(), passages, terms)


@lru_cache(maxsize=PASSAGES_KEPT)
def _passage_words(text: str) -> _PassageWords:
    """A passage, read; kept, since the first hits of one question are those of others."""
    words = plain_words(text)
    terms = Counter(word for word in words if _TERM.fullmatch(word) and word not in STOP_WORDS)
    starts = Counter(beginning(word) for word in words)
    return _PassageWords(
        len(words), starts, [(beginning(word), word, times) for word, times in terms.items()]
    )


def _units(question: str) -> list[str]:
    """Names, codes and content words of a question, folded, in order, each once."""
    words = plain_words(question)
    known = lexicon(
        "".join(plain_words(name)) for name in (*names_in([question])[0], *codes_in(question))
    )
    spots = {spot.at: spot.length for spot in longest(spot_names(words, known))}
    units: list[str] = []
    at = 0
    while at < len(words):
        length = spots.get(at, 1)
        unit = " ".join(words[at : at + length])
        if length > 1 or unit not in STOP_WORDS:
            units.append(unit)
        at += length
    return list(dict.fromkeys(units))


def _holds(words: set[str], text: str, unit: str) -> bool:
    """Whether a passage, by word beginnings and folded text, holds a name, identifier or word."""
    if " " in unit and any(char.isdigit() for char in unit):
        return f" {unit} " in text
    return _beginnings(unit) <= words


def _beginnings(text: str) -> set[str]:
    return {beginning(word) for word in plain_words(text) if word not in STOP_WORDS}
