"""Answers by task (shore): a part of a document quoted, summarised, its conditions, its steps, or two sides of it.

A question that asks for one value is answered by its best sentence (`Extractive`). One that asks what a part of a
document says, how something is done or how two things differ is answered by other lines of the same passages. Every
line is verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import NamedTuple

from raglab.answering.extractive import PassageLine, passage_lines
from raglab.languages import LANGUAGES
from raglab.text import fold_case
from raglab.values import Chunk, Generation, Generator

TASKS = ("page", "cite", "summarise", "extract_conditions", "procedure", "compare", "figures")
QUOTE = "quote"  # lines that were found already are the answer
MOST = 12  # lines of an answer
LONGEST = 1800  # characters of an answer
_LEADING = 3  # lines of a section, and as many on the topic, that a summary of one section keeps; one of several


class _TopicLine(NamedTuple):
    """A line, the position of its passage, and whether it or a heading above it names the topic."""

    line: PassageLine
    passage: int
    on_topic: bool


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """A generator that answers the narrower question of a scope by its task, whatever it is asked.

    page: what the scope says of the topic, in its order; without a topic its first lines. cite: the same word for word
    from the first line on. summarise: how each section begins, and what it says of the topic. extract_conditions: the
    lines that oblige, allow or except. procedure: the lines of the passage that speaks of it most, in their order.
    compare: the best line of each document or section. figures: the rows that the user's value names. quote: the lines
    that the reply means, as far as retrieval chose their passages. No task: as `base` answers.

    Confidence of tasks on a scope: the share of the topic that the lines and their headings name, in [0, 1]; 1 without
    a topic, since a quotation of the scope that the user named is what was asked for, as are the rows of
    `figures`. Of `quote` how sure it was that the lines are meant, of `compare` the least confidence of `base` over its
    sides.

    Attributes:
      task: one of `TASKS`, `QUOTE` or ''. question: the narrower one. topic: stems of what it is about beside its
        scope. rows: label and value of the rows of `figures`. base: answers all else. quoted: lines of `quote`, each
        with the id of its passage. sure: of them, in [0, 1].
    """

    task: str
    question: str
    topic: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    base: Generator
    quoted: tuple[tuple[str, str], ...] = ()
    sure: float = 0.0

    @property
    def name(self) -> str:
        """Stable identifier for fingerprints and cache keys."""
        return f"{self.task}+{self.base.name}" if self.task else self.base.name

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer to the narrower question from passages, the best first."""
        del question  # what is retrieved by names the whole scope, which is no part of what is asked within it
        if self.task == "compare":
            return self._sides(self.question, passages)
        if self.task == QUOTE:
            return self._quotation(passages)
        if self.task not in TASKS:
            return self.base.answer(self.question, passages)
        lines = _lines(passages, self.topic)
        chosen = self._rows(lines) if self.task == "figures" else _chosen(self.task, self.topic, lines)
        if not chosen and self.task == "figures":  # retrieval chose none of their passages
            return self.base.answer(self.question, passages)
        if not chosen:
            return Generation("", nan, (), "the passages have no sentence to answer with")
        cited = tuple(dict.fromkeys(one.passage for one in chosen))
        return Generation(_joined(chosen, steps=self.task == "procedure"), self._share(chosen), cited)

    def _quotation(self, passages: Sequence[Chunk]) -> Generation:
        """The lines of the passages that retrieval chose."""
        places = {passage.chunk_id: at for at, passage in enumerate(passages)}
        held = [(places[passage], line) for passage, line in self.quoted if passage in places]
        if not held:
            return self.base.answer(self.question, passages)
        lines, cited = dict.fromkeys(line for _, line in held), dict.fromkeys(place for place, _ in held)
        return Generation("\n".join(lines), self.sure, tuple(cited))

    def _rows(self, lines: Sequence[_TopicLine]) -> list[_TopicLine]:
        """Lines that hold label and value of one of the rows."""
        held = [one for one in lines if any(a in one.line.text and b in one.line.text for a, b in self.rows)]
        return _short(held)

    def _share(self, chosen: Sequence[_TopicLine]) -> float:
        if not self.topic:
            return 1.0
        named = frozenset().union(*(one.line.stems | one.line.heading for one in chosen))
        return sum(_names(stem, named) for stem in self.topic) / len(self.topic)

    def _sides(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """The best line of each document, of each passage where there is one document."""
        by_file: dict[str, list[int]] = {}
        for place, passage in enumerate(passages):
            by_file.setdefault(passage.source, []).append(place)
        sides = list(by_file.values()) if len(by_file) > 1 else [[place] for place in range(len(passages))]
        found = [(side, self.base.answer(question, [passages[place] for place in side])) for side in sides]
        told = [(side, one) for side, one in found if one.text.strip()]
        if not told:
            return self.base.answer(question, passages)
        # A side that says nothing of it is left out; what two passages say alike is said once.
        texts = list(dict.fromkeys(one.text.strip() for _, one in told))
        cited = tuple(dict.fromkeys(side[place] for side, one in told for place in one.cited))
        return Generation("\n".join(texts), min(one.confidence for _, one in told), cited)


def _lines(passages: Sequence[Chunk], topic: Sequence[str]) -> list[_TopicLine]:
    """Lines of the passages in the order of the documents."""
    order = sorted(range(len(passages)), key=lambda at: _position(passages[at]))
    return [
        _TopicLine(line, at, any(_names(stem, line.stems | line.heading) for stem in topic))
        for at in order
        for line in passage_lines(passages[at].text)
    ]


def _position(chunk: Chunk) -> tuple[str, int, int, str]:
    """Where a passage stands: document, page, and the number of its id, `a.md#3-2`."""
    number = chunk.chunk_id.rpartition("-")[2]
    return chunk.source, chunk.page or 0, int(number) if number.isdecimal() else 0, chunk.chunk_id


def _names(stem: str, stems: frozenset[str]) -> bool:
    """Whether stems have one, or one that it begins."""
    return stem in stems or any(one.startswith(stem) for one in stems)


def _chosen(task: str, topic: Sequence[str], lines: Sequence[_TopicLine]) -> list[_TopicLine]:
    headed = [one for one in lines if any(_names(stem, one.line.heading) for stem in topic)]
    about = headed or [one for one in lines if one.on_topic] or list(lines)
    if task == "summarise":
        sections: dict[tuple[int, frozenset[str]], list[_TopicLine]] = {}
        for one in about:
            sections.setdefault((one.passage, one.line.heading), []).append(one)
        each = _LEADING if len(sections) == 1 else 1
        kept = [part[:each] + [one for one in part[each:] if _on(topic, one)][:each] for part in sections.values()]
        return _short([one for part in kept for one in part])
    if task == "extract_conditions":
        bound = [one for one in about if _duties().search(fold_case(one.line.text))]
        return _short(bound or about)
    if task == "procedure":
        count = {at: sum(one.passage == at and one.on_topic for one in about) for at in {one.passage for one in about}}
        best = max(sorted(count), key=lambda at: count[at])
        return _short([one for one in lines if one.passage == best])
    return _short(about)


def _on(topic: Sequence[str], one: _TopicLine) -> bool:
    """Whether a line itself names the topic."""
    return any(_names(stem, one.line.stems) for stem in topic)


def _short(lines: Sequence[_TopicLine]) -> list[_TopicLine]:
    """Lines as far as an answer may be long, the first always."""
    kept: list[_TopicLine] = []
    for one in lines[:MOST]:
        if kept and sum(len(each.line.text) for each in kept) + len(one.line.text) > LONGEST:
            break
        kept.append(one)
    return kept


def _joined(lines: Sequence[_TopicLine], *, steps: bool) -> str:
    """Lines one under the other; sentences of one section go on in the line, unless they are steps."""
    parts: list[str] = []
    for place, one in enumerate(lines):
        before = lines[place - 1] if place else None
        goes_on = (
            before is not None
            and not steps
            and before.passage == one.passage
            and before.line.heading == one.line.heading
            and before.line.text.rstrip("\"'”»)]").endswith((".", "!", "?", "…"))
        )
        parts.append((" " if goes_on else "\n" if parts else "") + one.line.text)
    return "".join(parts)


@lru_cache(maxsize=1)
def _duties() -> re.Pattern[str]:
    """Words of the languages by which a sentence obliges, allows or excepts."""
    words = sorted(map(fold_case, LANGUAGES.words.duties), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
