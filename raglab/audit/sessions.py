"""Sessions (shore): which request a question rephrases, what a session's next one closes (S5.4)."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from raglab.store.log_rows import Entries
from raglab.store.log_tables import OPEN, REQUESTS
from raglab.words.canonical import digest
from raglab.words.text import jaccard
from raglab.words.tokeniser import split_words


class SilenceRule(NamedTuple):
    """When silence after an answer confirms it (rule S5.4).

    hours: after which an answer that nobody corrected was right. near_same: Jaccard index of the
    words of two questions, in [0, 1], from which the second rephrases the first.
    """

    hours: float = 24.0
    near_same: float = 0.5

    @property
    def span(self) -> timedelta:
        """The hours as a span of time."""
        return timedelta(hours=self.hours)


MAX_SESSIONS = 1024  # whose last questions are remembered where their text is not kept


def close_previous(
    entries: Entries,
    last_questions: MutableMapping[str, tuple[str, frozenset[str]]],
    request_id: str,
    session: str,
    question: str,
    documents: Sequence[str],
    event_time: str,
    rule: SilenceRule = SilenceRule(),  # noqa: B008 - a value
) -> str:
    """Close what the session's last request left open.

    Give that request's id where this one rephrases it, else ''.

    A rephrasing asks nearly the same (`SilenceRule.near_same`) of the same documents. Where the log
    keeps no text, words are compared with what this process remembers, and else only the hash of
    the whole question.

    Args:
      last_questions: last question of each session: id and words; added to.
      session: not empty.
    """
    question_words = frozenset(split_words(question))
    previous_request = entries.row(REQUESTS, session=session)
    remembered = last_questions.pop(session, ("", frozenset()))
    last_questions[session] = (request_id, question_words)
    while len(last_questions) > MAX_SESSIONS:
        last_questions.pop(next(iter(last_questions)))
    if previous_request is None:
        return ""
    previous_words = (
        remembered[1]
        if remembered[0] == previous_request["request_id"]
        else frozenset(split_words(previous_request["question"] or ""))
    )
    is_alike = jaccard(previous_words, question_words) >= rule.near_same or previous_request[
        "question_hash"
    ] == digest(question)
    is_rephrased = is_alike and set(previous_request["documents"]) == set(documents)
    is_in_time = (
        datetime.fromisoformat(event_time) - datetime.fromisoformat(previous_request["at"])
        < rule.span
    )
    for open_application in list(entries.rows(OPEN, session=session, closed=0)):
        is_same_request = open_application["request_id"] == previous_request["request_id"]
        entries.keep(
            OPEN,
            open_application
            | {"closed": 1, "rephrased": int(is_rephrased and is_in_time and is_same_request)},
        )
    return str(previous_request["request_id"]) if is_rephrased else ""
