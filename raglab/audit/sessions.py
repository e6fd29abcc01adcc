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


SESSIONS = 1024  # whose last questions are remembered where their text is not kept


def close_previous(
    log: Entries,
    last_questions: MutableMapping[str, tuple[str, frozenset[str]]],
    request_id: str,
    session: str,
    question: str,
    documents: Sequence[str],
    at: str,
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
    new = frozenset(split_words(question))
    before = log.row(REQUESTS, session=session)
    known = last_questions.pop(session, ("", frozenset()))
    last_questions[session] = (request_id, new)
    while len(last_questions) > SESSIONS:
        last_questions.pop(next(iter(last_questions)))
    if before is None:
        return ""
    old = (
        known[1]
        if known[0] == before["request_id"]
        else frozenset(split_words(before["question"] or ""))
    )
    alike = jaccard(old, new) >= rule.near_same or before["question_hash"] == digest(question)
    again = alike and set(before["documents"]) == set(documents)
    in_time = datetime.fromisoformat(at) - datetime.fromisoformat(before["at"]) < rule.span
    for work in list(log.rows(OPEN, session=session, closed=0)):
        same = work["request_id"] == before["request_id"]
        log.keep(OPEN, work | {"closed": 1, "rephrased": int(again and in_time and same)})
    return str(before["request_id"]) if again else ""
