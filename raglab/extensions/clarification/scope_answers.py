"""Narrowed questions (shore): what a reading makes of a question, and tasks in a scope (S5.10).

The tasks are those that answer within it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from raglab.answering.extractive import PassageLine, line_stems, passage_lines
from raglab.extensions.clarification.language_words import (
    expression,
    plain,
    shared_stems,
    stem,
    stems,
    whole_words,
)
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
MOST = 12  # lines of an answer
LEADING = 3  # lines that a summary keeps of its only section
_DUTIES = whole_words(map(re.escape, map(fold_case, LANGUAGES.words.duties)))
# What a line must say to be of a task; where none does, all are.
_SAID: Mapping[str, Callable[[str], bool]] = {
    "extract_conditions": lambda text: _DUTIES.search(fold_case(text)) is not None,
    "amounts": lambda text: any(value.kind == "amount" for value in values_in(text)),
    "exceptions": lambda text: expression("forbidding").search(plain(text)) is not None,
}


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
        return ScopeAnswers(self, base)


def narrow_to_chunks(
    question: str, chunks: Sequence[Chunk], task: str, topic: Sequence[str]
) -> NarrowedQuestion:
    """A question of some passages, retrieved by title and heading as if it asked for the whole.

    Args:
      chunks: within the scope, at least one.
    """
    first = chunks[0]
    title = first.tags.get("title") or next(iter(first.section), "")
    scope = " > ".join(dict.fromkeys(filter(None, (title, heading_of(first)))))
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
    shares = [len(shared_stems(own, stems(heading_of(chunk)))) for chunk in chunks]
    best = max(shares, default=0)
    if best:
        return [chunk for chunk, share in zip(chunks, shares, strict=True) if share == best]
    return [chunk for chunk in chunks if shared_stems(own, stems(chunk.full_text))]


@dataclass(frozen=True, slots=True)
class ScopeAnswers:
    """A generator that answers by a task within a scope; every line is verbatim.

    page: what the scope says, from its first line. cite, procedure: the same word for word.
    amounts: the lines that state one. exceptions: those that forbid or except. summarise: how each
    section begins. extract_conditions: the lines that oblige, allow or except. No task: as `base`
    answers. Its confidence is the share of the topic that the lines and their headings name; 1
    without a topic.
    """

    narrowed: NarrowedQuestion
    base: Generator

    @property
    def name(self) -> str:
        """Stable identifier for fingerprints and cache keys."""
        return "+".join(filter(None, (self.narrowed.task, self.base.name)))

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer to the narrower question from passages."""
        # what is retrieved by names the scope, which is no part of what is asked within it
        del question
        if self.narrowed.task not in SCOPE_TASKS:
            return self.base.answer(self.narrowed.question, passages)
        topic = frozenset(line_stems(" ".join(self.narrowed.topic)))
        order = sorted(range(len(passages)), key=lambda place: _position(passages[place]))
        lines = [
            (place, line)
            for place in order
            for line in passage_lines(passages[place].text, passages[place].section)
        ]
        chosen = _chosen(self.narrowed.task, topic, lines)
        if not chosen:
            return unanswered(Reason("no_sentence"))
        named = frozenset[str]().union(*(line.stems | line.heading for _, line in chosen))
        share = len(topic & named) / len(topic) if topic else 1.0
        text = "\n".join(dict.fromkeys(line.text for _, line in chosen))
        return Generation(text, share, tuple(dict.fromkeys(place for place, _ in chosen)))


def _chosen(
    task: str, topic: frozenset[str], lines: Sequence[tuple[int, PassageLine]]
) -> list[tuple[int, PassageLine]]:
    """Lines of a task, each with the position of its passage: those under a heading of the topic.

    Else those that name it, else all.
    """
    about = [entry for entry in lines if topic & entry[1].heading]
    about = about or [entry for entry in lines if topic & entry[1].stems] or list(lines)
    if task == "summarise":
        parts = groupby(about, key=lambda entry: (entry[0], entry[1].heading))
        sections = [list(part) for _, part in parts]
        most = LEADING if len(sections) == 1 else 1
        about = [entry for part in sections for entry in part[:most]]
    if task in _SAID:
        about = [entry for entry in about if _SAID[task](entry[1].text)] or about
    return about[:MOST]


def _position(chunk: Chunk) -> tuple[str, int, list[int], str]:
    """Where a passage stands: document, page, and the numbers of its id, `a.md#3-2`."""
    numbers = re.findall(r"\d+", chunk.chunk_id.rpartition("#")[2])
    return chunk.source, chunk.page or 0, [int(number) for number in numbers], chunk.chunk_id
