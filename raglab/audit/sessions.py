"""Sessions (shore): which request a question rephrases, what a session's next one closes (S5.4)."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from raglab.store.log_chain import Finding
from raglab.store.log_entries import Entries
from raglab.store.log_tables import APPLICATIONS, OPEN, REQUESTS, SETTLEMENTS
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
    """
    if not session:
        return ""
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


def open_applications(log: Entries) -> dict[str, dict[str, Any]]:
    """Rows of `OPEN` from the events.

    Defaults applied and not settled, closed by the session's next request.

    `rephrased` is None where the next request repeats the question: whether that came in time hangs
    on the hours of the rule that the log was written under, which it does not hold.
    """
    requests = {
        row[0]: row
        for row in log.stored(REQUESTS, "seq", "at", "request_id", "session", "rephrases")
    }
    applied = {row[0]: row for row in log.stored(APPLICATIONS, "seq", "once", "request_id")}
    settled = {once for (once,) in log.stored(SETTLEMENTS, "once")}
    request_sessions: dict[str, tuple[str, str]] = {}  # by request: its time and session
    open_rows: dict[str, dict[str, Any]] = {}
    waiting: dict[str, list[str]] = {}  # by session: what its next request closes
    for seq in sorted({*requests, *applied}):
        if seq in applied:
            _, once, request_id = applied[seq]
            at, session = request_sessions[request_id]
            about = {"once": once, "at": at, "request_id": request_id, "session": session}
            if once not in settled:
                open_rows[once] = about | {"application": seq, "closed": 0, "rephrased": 0}
                waiting.setdefault(session, []).append(once)
            continue
        _, at, request_id, session, rephrases = requests[seq]
        request_sessions[request_id] = (at, session)
        for once in waiting.pop(session, []) if session else []:
            again = rephrases == open_rows[once]["request_id"]
            open_rows[once] |= {"closed": 1, "rephrased": None if again else 0}
    return open_rows


def open_findings(log: Entries) -> Iterator[Finding]:
    """Rows of `OPEN` that are not what the events make."""
    event_rows, stored_rows = open_applications(log), {row["once"]: row for row in log.rows(OPEN)}
    for once in sorted({*event_rows, *stored_rows}):
        row, wanted = stored_rows.get(once), event_rows.get(once)
        if row is None:
            yield Finding(OPEN, None, f"row {once} is missing")
            continue
        if wanted is not None and wanted["rephrased"] is None and row["rephrased"] in {0, 1}:
            wanted = wanted | {"rephrased": row["rephrased"]}
        if row != wanted:
            yield Finding(OPEN, None, f"row {once} differs from what the events make")
