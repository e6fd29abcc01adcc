"""Narrowed questions (shore): what a reading makes of a question, and tasks in a scope (S5.10).

The tasks are those that answer within it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from raglab.answering.extractive import PassageLine, passage_lines
from raglab.extensions.clarification.language_words import expression, meets, plain, stem, stems
from raglab.extensions.clarification.statements import heading_of
from raglab.extensions.clarification.value_kinds import values_in
from raglab.values import Chunk, Generation, Generator, unanswered
from raglab.words.languages import LANGUAGES, Reason
from raglab.words.text import fold_case

SCOPE_TASKS = (
    "page",
    "cite",
    "summarise",
    "extract_conditions",
    "procedure",
    "amounts",
    "exceptions",
)
MOST, LONGEST = 12, 1800  # lines and characters of an answer
LEADING = 3  # lines of each section that a summary keeps


class NarrowedQuestion(NamedTuple):
    """What a question became: see `raglab.live.requests.Narrowed`.

    Attributes:
      documents: `path` or `path#page`, to which retrieval is restricted.
      task: one of `SCOPE_TASKS`; '' for a question that is answered as any other.
      topic: words of its topic.
      query: text for retrieval and gates.
      question: text to answer.
    """

    documents: tuple[str, ...]
    task: str
    topic: tuple[str, ...]
    query: str
    question: str

    def generator(self, base: Generator) -> Generator:
        """Generator that answers the narrower question by its task."""
        return ScopeAnswers(self.task, self.question, self.topic, base)


def narrow_to_chunks(
    question: str, chunks: Sequence[Chunk], task: str, topic: Sequence[str]
) -> NarrowedQuestion:
    """A question of some passages, retrieved by title and heading as if it asked for the whole.

    Args:
      chunks: within the scope, at least one.
    """
    first = chunks[0]
    title = first.tags.get("title") or (first.section[0] if first.section else "")
    heading = heading_of(first)
    scope = " > ".join(dict.fromkeys(part for part in (title, heading) if part))
    beginning = " ".join(first.text.split()[:_BEGINNING])
    query = f"{scope}: {beginning}" if scope else f"{question} {beginning}"
    pages = tuple(dict.fromkeys(chunk.shown for chunk in chunks))
    return NarrowedQuestion(pages, task, tuple(topic), query, question)


_BEGINNING = 60  # words of a text without a heading by which it is asked for


def headed_chunks(topic: Sequence[str], chunks: Sequence[Chunk]) -> list[Chunk]:
    """Passages whose innermost heading names most of a topic.

    All that speak of it where none does.
    """
    own = [stem(word) for word in topic]
    share = {
        chunk.chunk_id: sum(
            any(meets(term, name) for name in stems(heading_of(chunk))) for term in own
        )
        for chunk in chunks
    }
    best = max(share.values(), default=0)
    if best:
        return [chunk for chunk in chunks if share[chunk.chunk_id] == best]
    return [
        chunk
        for chunk in chunks
        if any(meets(term, word) for term in own for word in stems(chunk.full_text))
    ]


class _Line(NamedTuple):
    """A line, the position of its passage, and whether it or a heading above it names the topic."""

    line: PassageLine
    passage: int
    is_on_topic: bool


@dataclass(frozen=True, slots=True)
class ScopeAnswers:
    """A generator that answers by a task within a scope; every line is verbatim.

    page: what the scope says, from its first line. cite, procedure: the same word for word.
    amounts: the lines that state one. exceptions: those that forbid or except. summarise: how each
    section begins. extract_conditions: the lines that oblige, allow or except. No task: as `base`
    answers. Its confidence is the share of the topic that the lines and their headings name; 1
    without a topic.
    """

    task: str
    question: str
    topic: tuple[str, ...]
    base: Generator

    @property
    def name(self) -> str:
        """Stable identifier for fingerprints and cache keys."""
        return f"{self.task}+{self.base.name}" if self.task else self.base.name

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer to the narrower question from passages."""
        # what is retrieved by names the scope, which is no part of what is asked within it
        del question
        if self.task not in SCOPE_TASKS:
            return self.base.answer(self.question, passages)
        own = [stem(word) for word in self.topic]
        order = sorted(range(len(passages)), key=lambda place: _position(passages[place]))
        lines = [
            _Line(line, place, any(_names(term, line.stems | line.heading) for term in own))
            for place in order
            for line in passage_lines(passages[place].text, passages[place].section)
        ]
        chosen = _chosen(self.task, own, lines)
        if not chosen:
            return unanswered(Reason("no_sentence"))
        named = frozenset[str]().union(*(entry.line.stems | entry.line.heading for entry in chosen))
        share = sum(_names(term, named) for term in own) / len(own) if own else 1.0
        text = "\n".join(dict.fromkeys(entry.line.text for entry in chosen))
        return Generation(text, share, tuple(dict.fromkeys(entry.passage for entry in chosen)))


def _chosen(task: str, topic: Sequence[str], lines: Sequence[_Line]) -> list[_Line]:
    headed = [entry for entry in lines if any(_names(word, entry.line.heading) for word in topic)]
    about = headed or [entry for entry in lines if entry.is_on_topic] or list(lines)
    if task == "summarise":
        sections: dict[tuple[int, frozenset[str]], list[_Line]] = {}
        for entry in about:
            sections.setdefault((entry.passage, entry.line.heading), []).append(entry)
        about = [
            entry
            for part in sections.values()
            for entry in part[: LEADING if len(sections) == 1 else 1]
        ]
    if task == "extract_conditions":
        about = [entry for entry in about if _duties().search(fold_case(entry.line.text))] or about
    if task == "amounts":
        about = [
            entry
            for entry in about
            if any(value.kind == "amount" for value in values_in(entry.line.text))
        ] or about
    if task == "exceptions":
        about = [
            entry for entry in about if expression("forbidding").search(plain(entry.line.text))
        ] or about
    chosen: list[_Line] = []
    for entry in about[:MOST]:
        if chosen and sum(len(each.line.text) for each in chosen) + len(entry.line.text) > LONGEST:
            break
        chosen.append(entry)
    return chosen


def _names(word: str, names: frozenset[str]) -> bool:
    return any(meets(word, name[: len(word)] if len(name) > len(word) else name) for name in names)


def _position(chunk: Chunk) -> tuple[str, int, int, str]:
    """Where a passage stands: document, page, and the number of its id, `a.md#3-2`."""
    number = chunk.chunk_id.rpartition("-")[2]
    return chunk.source, chunk.page or 0, int(number) if number.isdecimal() else 0, chunk.chunk_id


@lru_cache(maxsize=1)
def _duties() -> re.Pattern[str]:
    """Words of the languages by which a sentence obliges, allows or excepts."""
    words = sorted(map(fold_case, LANGUAGES.words.duties), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
