"""Whether evidence carries what an answer states: every claim scored by words, or by a model of entailment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab.answering._alignment import carried
from raglab.answering._evidence import SUBSTANCE, evidence_of
from raglab.answering._wording import words_of
from raglab.models import Nli
from raglab.sentences import pieces, sentences

Scores = NDArray[np.float64]

WORDS = "words-1"  # counts up with every change of the formula, so that no stored answer mixes two
WINDOW = 3  # sentences of a passage that a model of entailment reads at once
CLAUSE = 3  # words that a part between semicolons has at least where it is a claim of its own

_CITED = re.compile(r"\s*\[(?:\d+(?:\s*[,;–-]\s*\d+)*|[^\[\]]*#[^\[\]]*)\]")
_HEADING = re.compile(r"^\s*#{1,6}\s.*$", re.MULTILINE)
_ASKED = re.compile(r"\?[\"'”»)\]\s]*$")
_WORD = re.compile(r"\w+")


class Support(NamedTuple):
    """How well the claims of an answer are supported.

    score: of the least supported, in [0, 1]; NaN where the answer claims nothing. claim: that claim, '' where there is
    none. by_claim: every claim with its score, in the order of the answer.
    """

    score: float
    claim: str
    by_claim: tuple[tuple[str, float], ...]


class Scorer(Protocol):
    """What scores claims against evidence."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """Support of each claim by its list of evidence texts, in [0, 1], float64 [N]."""


@dataclass(frozen=True, slots=True)
class WordSupport:
    """The embedded scorer: weighted words in their company, numbers, names, negations; no model, no network."""

    name: str = field(default=WORDS, init=False)

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """`support_scores`."""
        return support_scores(claims, evidence)

    def support(self, answer: str, passages: Sequence[str]) -> Support:
        """`support_of` by this scorer."""
        return support_of(answer, passages, self)


@dataclass(frozen=True, slots=True)
class NliScorer:
    """Entailment by a cross-encoder: the probability that the best few adjacent sentences of a text entail the claim.

    model: of `raglab.models.load_nli`.
    """

    model: Nli

    @property
    def name(self) -> str:
        """Name of the model."""
        return f"nli:{self.model.name}"

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """Highest probability of entailment over the windows of each claim's evidence, float64 [N]; 0 without any.

        Raises:
          ValueError: claims and evidence differ in number.
        """
        _check(claims, evidence)
        pairs: dict[tuple[str, str], int] = {}
        asked: list[list[int]] = []
        for claim, texts in zip(claims, evidence, strict=True):
            windows = [window for text in texts for window in _windows(text)] if claim.strip() else []
            asked.append([pairs.setdefault((window, claim), len(pairs)) for window in windows])
        entailed = self.model.entailment(list(pairs))
        return np.array([max((float(entailed[i]) for i in at), default=0.0) for at in asked], np.float64)

    def support(self, answer: str, passages: Sequence[str]) -> Support:
        """`support_of` by this scorer."""
        return support_of(answer, passages, self)


def support_scores(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
    """Support of each claim by its evidence, in [0, 1], float64 [N]; 0 where either has no word.

    What counts is the weighted share of the claim's words that the evidence has, and whether each stands there in the
    company it has in the claim; less where the evidence negates what the claim states or the reverse, where a number
    stands in other company, and where a name is missing. English and French. A claim's score depends on nothing but the
    claim and its evidence. It is a ranking with a useful middle, not a probability.

    Args:
      claims: a statement each. evidence: of each claim, its texts, each a sentence or a passage.

    Raises:
      ValueError: claims and evidence differ in number.

    Source: rule S2.11.

    Example:
      >>> evidence = ["The storm excess is £400. The theft excess is £250. Flood is not covered."]
      >>> claims = ["The storm excess is £400.", "The storm excess is £250.", "Flood is covered.", "Bees are covered."]
      >>> support_scores(claims, [evidence] * 4).round(2).tolist()
      [1.0, 0.85, 0.4, 0.3]
    """
    _check(claims, evidence)
    words = [words_of(claim) for claim in claims]
    of: dict[tuple[str, ...], list[int]] = {}
    for number, texts in enumerate(evidence):
        of.setdefault(tuple(texts), []).append(number)
    scores = np.zeros(len(claims), np.float64)
    for known, numbers in of.items():
        places = evidence_of(known, {word.key for number in numbers for word in words[number]})
        scores[numbers] = [carried(words[number], places) for number in numbers]
    return scores


def overlap_scores(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
    """Share of each claim's distinct words that its evidence has, in [0, 1], float64 [N]; the measure to beat.

    Raises:
      ValueError: claims and evidence differ in number.

    Example:
      >>> overlap_scores(["Flood is covered.", ""], [["Flood is not covered here."], []])
      array([1., 0.])
    """
    _check(claims, evidence)
    said = [frozenset(_WORD.findall(claim.lower())) for claim in claims]
    held = [frozenset(_WORD.findall("\n".join(texts).lower())) for texts in evidence]
    return np.array([len(a & b) / max(1, len(a)) for a, b in zip(said, held, strict=True)], np.float64)


def claims_of(answer: str) -> list[str]:
    """What an answer states, in order: its sentences, list items and table rows, parts between semicolons apart.

    Citations such as `[2]` are left out; so are headings, questions, and what has no word of substance, such as
    `Yes.`; an answer may so have no claim.

    Example:
      >>> claims_of("Yes. Storm carries £400 [1]; theft carries £250 [2, 3]. Anything else?")
      ['Storm carries £400', 'theft carries £250.']
    """
    found: list[str] = []
    for piece in pieces(_CITED.sub("", _HEADING.sub("", answer))):
        if piece.kind != "head":
            found += [piece.text] if piece.kind == "row" else _parts(piece.text)
    return [claim for claim in found if not _ASKED.search(claim) and any(w.kind in SUBSTANCE for w in words_of(claim))]


def support_of(answer: str, passages: Sequence[str], scorer: Scorer | None = None) -> Support:
    """Support of an answer by passages: that of its least supported claim, the first of several.

    Args:
      scorer: None is the embedded one.

    Example:
      >>> support_of("Storm is covered. Theft is excluded.", ["Storm is covered. Theft is covered."]).claim
      'Theft is excluded.'
    """
    claims = claims_of(answer)
    if not claims:
        return Support(nan, "", ())
    scores = (scorer or WordSupport()).scores(claims, [passages] * len(claims)).tolist()
    weakest = min(range(len(claims)), key=scores.__getitem__)
    return Support(scores[weakest], claims[weakest], tuple(zip(claims, scores, strict=True)))


def _parts(text: str) -> list[str]:
    """Parts between semicolons, where each is long enough to state something; else the whole."""
    parts = [part.strip() for part in text.split(";")]
    return parts if all(len(part.split()) >= CLAUSE for part in parts) else [text]


def _windows(text: str) -> list[str]:
    """Runs of a few adjacent sentences of a text."""
    found = sentences(text)
    return [" ".join(found[i : i + WINDOW]) for i in range(max(1, len(found) - WINDOW + 1))] if found else []


def _check(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    """Stop where claims and evidence are not one to one, or evidence is text where a list of texts is meant.

    Raises:
      ValueError: they differ in number, or evidence of a claim is a text.
    """
    if len(claims) != len(evidence):
        msg = (
            f"claims and evidence must be one to one, got {len(claims)} claims and evidence for {len(evidence)}; "
            "give each claim its own list of texts."
        )
        raise ValueError(msg)
    if any(isinstance(texts, str) for texts in evidence):
        msg = "evidence of a claim must be a list of texts, got a text; put it in a list."
        raise ValueError(msg)
