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
MAX_ANSWER_LINES = 12  # lines of an answer
SUMMARY_LINES = 3  # lines that a summary keeps of its only section
_DUTY_WORDS = whole_words(map(re.escape, map(fold_case, LANGUAGES.words.duties)))
# What a line must say to be of a task; where none does, all are.
_TASK_TESTS: Mapping[str, Callable[[str], bool]] = {
    "extract_conditions": lambda text: _DUTY_WORDS.search(fold_case(text)) is not None,
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
    first_chunk = chunks[0]
    document_title = first_chunk.tags.get("title") or next(iter(first_chunk.section), "")
    scope_text = " > ".join(dict.fromkeys(filter(None, (document_title, heading_of(first_chunk)))))
    beginning = " ".join(first_chunk.text.split()[:_BEGINNING_WORDS])
    query = f"{scope_text}: {beginning}" if scope_text else f"{question} {beginning}"
    shown_pages = tuple(dict.fromkeys(chunk.shown for chunk in chunks))
    return NarrowedQuestion(shown_pages, task, tuple(topic), query, question)


_BEGINNING_WORDS = 60  # words of a text without a heading by which it is asked for


def headed_chunks(topic: Sequence[str], chunks: Sequence[Chunk]) -> list[Chunk]:
    """Passages whose innermost heading names most of a topic.

    All that speak of it where none does.
    """
    topic_stems = [stem(topic_word) for topic_word in topic]
    shared_counts = [len(shared_stems(topic_stems, stems(heading_of(chunk)))) for chunk in chunks]
    best_count = max(shared_counts, default=0)
    if best_count:
        return [
            chunk
            for chunk, shared_count in zip(chunks, shared_counts, strict=True)
            if shared_count == best_count
        ]
    return [chunk for chunk in chunks if shared_stems(topic_stems, stems(chunk.full_text))]


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
        topic_stems = frozenset(line_stems(" ".join(self.narrowed.topic)))
        passage_order = sorted(
            range(len(passages)), key=lambda passage_index: _position(passages[passage_index])
        )
        numbered_lines = [
            (passage_index, passage_line)
            for passage_index in passage_order
            for passage_line in passage_lines(
                passages[passage_index].text, passages[passage_index].section
            )
        ]
        chosen_lines = _chosen(self.narrowed.task, topic_stems, numbered_lines)
        if not chosen_lines:
            return unanswered(Reason("no_sentence"))
        named_stems = frozenset[str]().union(
            *(passage_line.stems | passage_line.heading for _, passage_line in chosen_lines)
        )
        topic_share = len(topic_stems & named_stems) / len(topic_stems) if topic_stems else 1.0
        answer_text = "\n".join(
            dict.fromkeys(passage_line.text for _, passage_line in chosen_lines)
        )
        return Generation(
            answer_text,
            topic_share,
            tuple(dict.fromkeys(passage_index for passage_index, _ in chosen_lines)),
        )


def _chosen(
    task: str, topic: frozenset[str], lines: Sequence[tuple[int, PassageLine]]
) -> list[tuple[int, PassageLine]]:
    """Lines of a task, each with the position of its passage: those under a heading of the topic.

    Else those that name it, else all.
    """
    relevant_lines = [numbered_line for numbered_line in lines if topic & numbered_line[1].heading]
    relevant_lines = (
        relevant_lines
        or [numbered_line for numbered_line in lines if topic & numbered_line[1].stems]
        or list(lines)
    )
    if task == "summarise":
        line_groups = groupby(
            relevant_lines, key=lambda numbered_line: (numbered_line[0], numbered_line[1].heading)
        )
        line_sections = [list(section_lines) for _, section_lines in line_groups]
        max_lines = SUMMARY_LINES if len(line_sections) == 1 else 1
        relevant_lines = [
            numbered_line
            for section_lines in line_sections
            for numbered_line in section_lines[:max_lines]
        ]
    if task in _TASK_TESTS:
        relevant_lines = [
            numbered_line
            for numbered_line in relevant_lines
            if _TASK_TESTS[task](numbered_line[1].text)
        ] or relevant_lines
    return relevant_lines[:MAX_ANSWER_LINES]


def _position(chunk: Chunk) -> tuple[str, int, list[int], str]:
    """Where a passage stands: document, page, and the numbers of its id, `a.md#3-2`."""
    id_numbers = re.findall(r"\d+", chunk.chunk_id.rpartition("#")[2])
    return (
        chunk.source,
        chunk.page or 0,
        [int(id_number) for id_number in id_numbers],
        chunk.chunk_id,
    )
