"""How well each line of the passages is supported as the answer to a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from raglab.answering._expected import named
from raglab.answering._reading import Line, Question

# What a line's support is the sum of, in units of the share of the question's content that the line itself holds.
# Fitted (conditional logit on which line holds the answer) to the tune splits of SQuAD 2.0 and of the broker set, and
# rounded: a fifth more or less of any one moves the share of right lines on SQuAD by 0.7 points at most.
BEFORE = 0.5  # share of the question that the line before adds: whom `he` and `this` mean
HEADING = 0.25  # share that the headings add
AFTER = 0.25  # share that the line after adds
PAIRS = 0.25  # share of the question's pairs of neighbouring words that stand together in the line
KIND = 0.25  # whether the line has a date, sum, number or name where the question asks for one
RANK = 0.35  # one over the passage's place: retrieval's own opinion

TEMPERATURE = 0.09  # support that makes a line e times as likely, by the same fit
CLOSE = 0.09  # a second line trails the first by at most this support
ADDED = 0.1  # share of the question that a second line adds at least
CERTAIN = 1e-4  # no share counts as nearer to 0 or 1 than this
DIGITS = 9  # of support and confidence, so that a tie is a tie on every machine


class Scored(NamedTuple):
    """A line of a passage with its support.

    passage: position of the passage. place: of the line among all. own: stems of the question that the line holds.
    near: those that it, the lines beside it or its headings hold. kind: 1 where it has a phrase of the kind that the
    question asks for, 0 where it has none, ½ where the question leaves it open.
    """

    line: Line
    passage: int
    place: int
    own: frozenset[str]
    near: frozenset[str]
    kind: float
    support: float


def weights(asked: Question, passages: Sequence[Sequence[Line]]) -> dict[str, float]:
    """Weight of each of the question's stems, together 1: the more, the fewer lines have it.

    ln((N + 1) / (n + ½)) over N lines, n of which have it, as inverse document frequencies are.
    """
    held = Counter(stem for passage in passages for line in passage for stem in asked.stems if stem in line.stems)
    n_lines = sum(map(len, passages))
    raw = {stem: log((n_lines + 1) / (held[stem] + 0.5)) for stem in asked.stems}
    total = sum(raw.values())
    return {stem: weight / total for stem, weight in raw.items()}


def share(weight: Mapping[str, float], stems: Collection[str]) -> float:
    """Share of the question's content that stems hold, in [0, 1]."""
    return sum(part for stem, part in weight.items() if stem in stems)


def scored(asked: Question, weight: Mapping[str, float], passages: Sequence[Sequence[Line]]) -> Iterator[Scored]:
    """Every line that can be an answer, with its support, in the order of the passages."""
    start = 0
    for rank, passage in enumerate(passages):
        for at, line in enumerate(passage):
            if not line.is_answer:
                continue
            follows = passage[at + 1].stems if at + 1 < len(passage) else frozenset[str]()
            places = ((1.0, line.stems), (HEADING, line.heading), (BEFORE, line.before), (AFTER, follows))
            worth = {stem: next((worth for worth, stems in places if stem in stems), 0.0) for stem in weight}
            kind = _kind(asked, line)
            support = (
                sum(weight[stem] * worth[stem] for stem in weight)
                + PAIRS * len(asked.pairs & line.pairs) / max(1, len(asked.pairs))
                + (KIND * kind if asked.kind else 0.0)
                + RANK / (1 + rank)
            )
            near = frozenset(stem for stem in weight if worth[stem] > 0.0)
            yield Scored(line, rank, start + at, near & line.stems, near, kind, round(support, DIGITS))
        start += len(passage)


def second(best: Scored, lines: Sequence[Scored], weight: Mapping[str, float]) -> Scored | None:
    """Return the best supported line, close behind the best, that adds words of the question; None where none does."""
    adding = [
        one
        for one in lines
        if one.line.text != best.line.text
        and best.support - one.support <= CLOSE
        and share(weight, one.own - best.own) >= ADDED
    ]
    return max(adding, key=lambda one: one.support, default=None)


def confidence(chosen: Sequence[Scored], lines: Sequence[Scored], weight: Mapping[str, float]) -> float:
    """How far an answer can be trusted, in (0, 1); the first of the chosen lines is the best. Formula: `Extractive`."""
    best = chosen[0]
    texts = {one.line.text for one in chosen}
    said = sum(exp((one.support - best.support) / TEMPERATURE) for one in chosen)
    rest = sum(exp((one.support - best.support) / TEMPERATURE) for one in lines if one.line.text not in texts)
    lead = min(max(said / (said + rest), CERTAIN), 1.0 - CERTAIN)
    covered = share(weight, frozenset.union(best.near, *(one.own for one in chosen)))
    return round(1.0 / (1.0 + exp(-(log(lead / (1.0 - lead)) + 4.0 * covered + best.kind - 4.0) / 2.0)), DIGITS)


def _kind(asked: Question, line: Line) -> float:
    """Whether a line has a phrase of the expected kind that says something the question does not."""
    if asked.kind is None:
        return 0.5
    return float(any(not phrase <= asked.terms for phrase in named(asked.kind, line.text)))
