"""Silence (shore): when an answer that nobody corrected confirms its default, and what makes it say nothing (S5.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from raglab.canonical import canonical_json, digest, utc_text
from raglab.default_learner import (
    Learner,
    update,
)
from raglab.extensions.clarification.default_rows import RowKey, SignalEvent, empty_row, key_of_row, record_signal
from raglab.store.log_chain import Finding
from raglab.store.log_entries import Entries
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    DECISIONS,
    OPEN,
    REQUESTS,
    SETTLEMENTS,
    request_events,
)
from raglab.text import jaccard, split_words


class SilenceRule(NamedTuple):
    """When silence after an answer confirms it (rule S5.4).

    hours: after which an answer that nobody corrected was right. near_same: Jaccard index of the words of two
    questions, in [0, 1], from which the second rephrases the first.
    """

    hours: float = 24.0
    near_same: float = 0.5

    @property
    def span(self) -> timedelta:
        """The hours as a span of time."""
        return timedelta(hours=self.hours)


SESSIONS = 1024  # whose last questions are remembered where their text is not kept


_TOLD = frozenset({"explicit_yes", "explicit_no", "implicit_ok"})


class Silent(NamedTuple):
    """A default that silence confirmed."""

    request_id: str
    key: RowKey
    value: str
    conditions: Mapping[str, str]


def remember(
    log: Entries,
    asked: MutableMapping[str, tuple[str, frozenset[str]]],
    request_id: str,
    session: str,
    question: str,
    documents: Sequence[str],
    at: str,
    rule: SilenceRule = SilenceRule(),  # noqa: B008 - a value
) -> str:
    """Close what the session's last request left open; give that request's id where this one rephrases it, else ''.

    A rephrasing asks nearly the same (`SilenceRule.near_same`) of the same documents. Where the log keeps no text,
    words are compared with what this process remembers, and else only the hash of the whole question.

    Args:
      asked: last question of each session: id and words; added to.
    """
    if not session:
        return ""
    new = frozenset(split_words(question))
    before = log.one(REQUESTS, session=session)
    known = asked.pop(session, ("", frozenset()))
    asked[session] = (request_id, new)
    while len(asked) > SESSIONS:
        asked.pop(next(iter(asked)))
    if before is None:
        return ""
    old = known[1] if known[0] == before["request_id"] else frozenset(split_words(before["question"] or ""))
    alike = jaccard(old, new) >= rule.near_same or before["question_hash"] == digest(question)
    again = alike and set(before["documents"]) == set(documents)
    in_time = datetime.fromisoformat(at) - datetime.fromisoformat(before["at"]) < rule.span
    for work in list(log.rows(OPEN, session=session, closed=0)):
        same = work["request_id"] == before["request_id"]
        log.keep(OPEN, work | {"closed": 1, "rephrased": int(again and in_time and same)})
    return str(before["request_id"]) if again else ""


def record_application(log: Entries, request: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Log a default applied silently, a row once a request, and keep it open until its outcome is known.

    Raises:
      ValueError: silence could not confirm it: a row that the log has not, a value or conditions that are none.
    """
    at = datetime.fromisoformat(row["at"])
    begun = empty_row(key_of_row(log, row["row_id"]), at)
    update(begun, row["value"], "implicit_ok", conditions=row["conditions"], now=at)
    once = digest(canonical_json([request["request_id"], row["row_id"]]), 32)
    if log.one(APPLICATIONS, once=once) is not None:
        return
    number = log.add(APPLICATIONS, {**row, "request_id": request["request_id"], "once": once})
    work = {"once": once, **{name: request[name] for name in ("at", "request_id", "session")}}
    log.keep(OPEN, work | {"application": number, "closed": 0, "rephrased": 0})


def settle(
    log: Entries,
    now: datetime,
    session: str | None,
    learner: Learner,
    rule: SilenceRule = SilenceRule(),  # noqa: B008
) -> int:
    """Settle what can be, and learn what silence confirmed; how many defaults it did."""
    found = settle_silence(log, now, session, rule)
    for one in found:
        record_signal(
            log, one.request_id, one.key, SignalEvent(one.value, "implicit_ok", None), one.conditions, learner, now
        )
    return len(found)


def settle_silence(
    log: Entries,
    now: datetime,
    session: str | None,
    rule: SilenceRule = SilenceRule(),  # noqa: B008 - a value
) -> list[Silent]:
    """Settle what can be, and give what silence confirmed."""
    where: dict[str, Any] = {} if session is None else {"session": session}
    ripe = {row["once"]: row for row in log.rows(OPEN, before=utc_text(now - rule.span), **where)}
    ripe |= {row["once"]: row for row in log.rows(OPEN, closed=1, **where)}
    votes = []
    for once, work in sorted(ripe.items(), key=lambda pair: int(pair[1]["application"])):
        row = next(log.rows(APPLICATIONS, after=int(work["application"]) - 1, once=once))
        outcome = _outcome(log, row, rephrased=bool(work["rephrased"]))
        about = {"request_id": row["request_id"], "row_id": row["row_id"], "outcome": outcome, "once": once}
        log.add(SETTLEMENTS, {"at": utc_text(now), **about})
        log.drop(OPEN, once)
        if outcome == "silent":
            votes.append(Silent(row["request_id"], key_of_row(log, row["row_id"]), row["value"], row["conditions"]))
    return votes


def open_applications(log: Entries) -> dict[str, dict[str, Any]]:
    """Rows of `OPEN` from the events: defaults applied and not settled, closed by the session's next request.

    `rephrased` is None where the next request repeats the question: whether that came in time hangs on the hours of
    the rule that the log was written under, which it does not hold.
    """
    requests = {row[0]: row for row in log.stored(REQUESTS, "seq", "at", "request_id", "session", "rephrases")}
    applied = {row[0]: row for row in log.stored(APPLICATIONS, "seq", "once", "request_id")}
    settled = {once for (once,) in log.stored(SETTLEMENTS, "once")}
    asked: dict[str, tuple[str, str]] = {}  # by request: its time and session
    found: dict[str, dict[str, Any]] = {}
    waiting: dict[str, list[str]] = {}  # by session: what its next request closes
    for seq in sorted({*requests, *applied}):
        if seq in applied:
            _, once, request_id = applied[seq]
            at, session = asked[request_id]
            about = {"once": once, "at": at, "request_id": request_id, "session": session}
            if once not in settled:
                found[once] = about | {"application": seq, "closed": 0, "rephrased": 0}
                waiting.setdefault(session, []).append(once)
            continue
        _, at, request_id, session, rephrases = requests[seq]
        asked[request_id] = (at, session)
        for once in waiting.pop(session, []) if session else []:
            again = rephrases == found[once]["request_id"]
            found[once] |= {"closed": 1, "rephrased": None if again else 0}
    return found


def open_findings(log: Entries) -> Iterator[Finding]:
    """Rows of `OPEN` that are not what the events make."""
    made, kept = open_applications(log), {row["once"]: row for row in log.rows(OPEN)}
    for once in sorted({*made, *kept}):
        row, wanted = kept.get(once), made.get(once)
        if row is None:
            yield Finding(OPEN, None, f"row {once} is missing")
            continue
        if wanted is not None and wanted["rephrased"] is None and row["rephrased"] in {0, 1}:
            wanted = wanted | {"rephrased": row["rephrased"]}
        if row != wanted:
            yield Finding(OPEN, None, f"row {once} differs from what the events make")


def _outcome(log: Entries, row: Mapping[str, Any], *, rephrased: bool) -> str:
    """silent, or why silence says nothing: told, failed, asked, unanswered, refused, rephrased."""
    request, of = row["request_id"], row["row_id"]
    given = {one["signal"] for one in request_events(log, CHANGES, request) if one["row_id"] == of}
    if given & _TOLD:
        return "told"
    if "failure" in given:
        return "failed"
    asked = log.one(CLARIFICATIONS, request_id=request)
    if asked is not None and asked["row_id"] == of:
        return "asked"
    said = log.one(DECISIONS, request_id=request)
    if said is None:
        return "unanswered"
    if said["status"] != "ok":
        return "refused"
    return "rephrased" if rephrased else "silent"
