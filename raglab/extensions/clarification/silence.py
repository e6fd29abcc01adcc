"""Silence (shore): when an answer that nobody corrected confirms its default (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raglab.audit.sessions import SilenceRule
from raglab.default_learner import DefaultLearner, update
from raglab.extensions.clarification.default_rows import (
    empty_row,
    key_of_row,
    record_signal,
)
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    DECISIONS,
    OPEN,
    REPLIES,
    SETTLEMENTS,
)
from raglab.words.canonical import canonical_json, digest, utc_text

_TOLD = frozenset({"explicit_yes", "explicit_no", "implicit_ok"})


def record_application(log: Entries, request: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Log a silently applied default, one row a request, open until its outcome is known.

    Raises:
      ValueError: silence could not confirm it: a row that the log has not, a value or conditions
        that are none.
    """
    at = datetime.fromisoformat(row["at"])
    begun = empty_row(key_of_row(log, row["row_id"]), at)
    update(begun, row["value"], "implicit_ok", conditions=row["conditions"], now=at)
    once = digest(canonical_json([request["request_id"], row["row_id"]]), 32)
    if log.row(APPLICATIONS, once=once) is not None:
        return
    number = log.add(APPLICATIONS, {**row, "request_id": request["request_id"], "once": once})
    work = {"once": once, **{name: request[name] for name in ("at", "request_id", "session")}}
    log.keep(OPEN, work | {"application": number, "closed": 0, "rephrased": 0})


def settle(
    log: Entries,
    at: datetime,
    session: str | None,
    learner: DefaultLearner,
    rule: SilenceRule = SilenceRule(),  # noqa: B008
) -> int:
    """Settle what can be, and learn what silence confirmed; how many defaults it did."""
    where: dict[str, Any] = {} if session is None else {"session": session}
    late = log.rows(OPEN, before=utc_text(at - rule.span), **where)
    ripe = {row["once"]: row for row in (*late, *log.rows(OPEN, closed=1, **where))}
    silent = []
    for once, work in sorted(ripe.items(), key=lambda pair: int(pair[1]["application"])):
        row = next(log.rows(APPLICATIONS, after=int(work["application"]) - 1, once=once))
        outcome = _outcome(log, row, rephrased=bool(work["rephrased"]))
        about = {name: row[name] for name in ("request_id", "row_id", "once")}
        log.add(SETTLEMENTS, {"at": utc_text(at), "outcome": outcome, **about})
        log.drop(OPEN, once)
        if outcome == "silent":
            silent.append(row)
    # What is learned now says nothing of the others: it is not their users' word.
    for row in silent:
        signal = (row["value"], "implicit_ok", None)
        key = key_of_row(log, row["row_id"])
        record_signal(log, row["request_id"], key, signal, row["conditions"], learner, at)
    return len(silent)


def _outcome(log: Entries, row: Mapping[str, Any], *, rephrased: bool) -> str:
    """silent, or why silence says nothing: told, failed, asked, unanswered, refused, rephrased."""
    request = row["request_id"]
    of = row["row_id"]
    # the row may have been split since, so that a signal went to a condition's row
    matter = key_of_row(log, of)[:2]
    with as_written():
        signals = {
            change["signal"]
            for change in log.rows(CHANGES, request_id=request)
            if tuple(change["key"][:2]) == matter
        }
    # who replied, if only in doubt, was not silent
    if signals & _TOLD or log.row(REPLIES, request_id=request) is not None:
        return "told"
    if "failure" in signals:
        return "failed"
    clarification = log.row(CLARIFICATIONS, request_id=request)
    if clarification is not None and clarification["row_id"] == of:
        return "asked"
    decision = log.row(DECISIONS, request_id=request)
    if decision is None:
        return "unanswered"
    if decision["status"] != "ok":
        return "refused"
    return "rephrased" if rephrased else "silent"
