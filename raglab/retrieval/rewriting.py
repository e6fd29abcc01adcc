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

BELIEVED_PASSAGES = 5  # first hits that are believed to be relevant
ADDED_TERMS = 10  # words that a step adds
# words of the corpus that every passage is mixed with (Dirichlet's mu), about a passage's length
DIRICHLET_MU = 100.0
PASSAGES_KEPT = 4096  # passages that are kept as they were read
UNSEEN_OCCURRENCES = 0.5  # occurrences of a word that the corpus does not have

_TERM_PATTERN = re.compile(r"[^\W\d_]{3,}")


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
    passage_forms = [
        (_beginnings(passage), f" {' '.join(plain_words(passage))} ") for passage in passages
    ]
    return [
        question_unit
        for question_unit in _units(question)
        if not any(
            _holds(passage_stems, text, question_unit) for passage_stems, text in passage_forms
        )
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
    passages: int = BELIEVED_PASSAGES
    terms: int = ADDED_TERMS

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
        believed_passages = [
            _passage_words(text) for text in self._believed(question, passages, step)
        ]
        return " ".join((question, *self._words(question, believed_passages)[: self.terms * step]))

    def _believed(self, question: str, passages: Sequence[str], step: int) -> Sequence[str]:
        first_passages = passages[: self.passages]
        if step == 1:
            return first_passages
        if step == 2:
            missing_stems = [
                _beginnings(uncovered_unit)
                for uncovered_unit in uncovered(question, first_passages)
            ]
            holding_passages = [
                passage
                for passage in passages
                if any(map(_beginnings(passage).issuperset, missing_stems))
            ]
            return holding_passages[: self.passages] or first_passages
        return passages[: self.passages * (step - 1)]

    def _words(self, question: str, passages: Sequence[_PassageWords]) -> list[str]:
        """Passage words not in the question, by their part in the divergence from the corpus.

        A passage's chance of a word is smoothed with the corpus (Dirichlet), a word's in the model
        is the sum over the passages of that chance times how far the passage is believed: its share
        of the question's likelihood.
        """
        question_stems = sorted(_beginnings(question))
        # likelihood of the question, per word
        likelihoods = []
        for passage in passages:
            word_chances = [
                passage.counts[word] + DIRICHLET_MU * self._common(word) for word in question_stems
            ]
            log_chances = [
                log(model_chance / (passage.n_words + DIRICHLET_MU))
                for model_chance in word_chances
            ]
            likelihoods.append(exp(sum(log_chances) / max(len(log_chances), 1)))
        passage_rates = [
            likelihood / sum(likelihoods) / (passage.n_words + DIRICHLET_MU)
            for likelihood, passage in zip(likelihoods, passages, strict=True)
        ]
        expected_counts: defaultdict[str, float] = defaultdict(float)
        for passage_rate, passage in zip(passage_rates, passages, strict=True):
            for word, n_occurrences in passage.counts.items():
                expected_counts[word] += passage_rate * n_occurrences
        question_beginnings = {beginning(word) for word in plain_words(question)}
        # the most frequent spelling of each beginning that can be added, the first of equals
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for passage in passages:
            for word_stem, word, n_occurrences in passage.terms:
                spellings[word_stem][word] += n_occurrences
        divergence_parts: dict[str, float] = {}
        for word in sorted(spellings.keys() - question_beginnings):
            corpus_chance = self._common(word)
            model_chance = expected_counts[word] + sum(passage_rates) * DIRICHLET_MU * corpus_chance
            divergence_parts[word] = model_chance * log(model_chance / corpus_chance)
        best_words = sorted(divergence_parts, key=lambda word: -divergence_parts[word])
        return [spellings[word].most_common(1)[0][0] for word in best_words]

    def _common(self, word: str) -> float:
        return (self.counts.get(word, 0) + UNSEEN_OCCURRENCES) / (self.total + UNSEEN_OCCURRENCES)


def rm3(
    texts: Sequence[str], *, passages: int = BELIEVED_PASSAGES, terms: int = ADDED_TERMS
) -> Rm3:
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
    passage_words = plain_words(text)
    term_counts = Counter(
        word for word in passage_words if _TERM_PATTERN.fullmatch(word) and word not in STOP_WORDS
    )
    stem_counts = Counter(beginning(word) for word in passage_words)
    return _PassageWords(
        len(passage_words),
        stem_counts,
        [(beginning(word), word, n_occurrences) for word, n_occurrences in term_counts.items()],
    )


def _units(question: str) -> list[str]:
    """Names, codes and content words of a question, folded, in order, each once."""
    question_words = plain_words(question)
    known_names = lexicon(
        "".join(plain_words(known_name))
        for known_name in (*names_in([question])[0], *codes_in(question))
    )
    lengths_by_start = {
        spot.at: spot.length for spot in longest(spot_names(question_words, known_names))
    }
    question_units: list[str] = []
    position = 0
    while position < len(question_words):
        n_words = lengths_by_start.get(position, 1)
        unit_words = " ".join(question_words[position : position + n_words])
        if n_words > 1 or unit_words not in STOP_WORDS:
            question_units.append(unit_words)
        position += n_words
    return list(dict.fromkeys(question_units))


def _holds(passage_stems: set[str], passage_text: str, question_unit: str) -> bool:
    """Whether a passage, by word beginnings and folded text, holds a name, identifier or word."""
    if " " in question_unit and any(character.isdigit() for character in question_unit):
        return f" {question_unit} " in passage_text
    return _beginnings(question_unit) <= passage_stems


def _beginnings(text: str) -> set[str]:
    return {beginning(word) for word in plain_words(text) if word not in STOP_WORDS}
