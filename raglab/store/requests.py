"""The questions' part of the audit log: requests, clarifications, defaults as versions, decisions (rule S5.8).

What changes a row of the default table is one event of `CHANGES`, whatever it is, so that the rows are a fold over that
table alone. `CURRENT` and `OPEN` are its shortcuts: the latest version of each row, and the defaults applied silently
whose outcome is not known yet. What a person wrote stands in the columns that `forget` blanks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raglab.store._declared import Column, Table
from raglab.store.audit import Entries

REQUESTS, CLARIFICATIONS, REPLIES, APPLICATIONS, DECISIONS = (
    "query_log",
    "clarifications",
    "replies",
    "default_applications",
    "decisions",
)
CHANGES, VERSIONS, CURRENT = "default_changes", "default_versions", "defaults"
SETTLEMENTS, OPEN, FORGOTTEN = "settlements", "open_applications", "forgotten"
POLICIES, LEARNERS = "policies", "learners"
_AS_OF_THEN = (  # a row of the default table as it was when it was used
    Column("row_id", "name", listed=True),
    Column("version", "whole"),
    Column("confidence", "number"),
    Column("votes", "json"),
    Column("gate", "name"),
    Column("kind", "name"),
    Column("conditions", "json"),
)
TABLES = (
    Table(POLICIES, (Column("policy_id", "name", unique=True), Column("body", "json"))),
    Table(LEARNERS, (Column("digest", "name", unique=True), Column("body", "json"))),
    Table(
        REQUESTS,
        (
            Column("request_id", "name", unique=True),
            Column("session", "text", listed=True),
            Column("question", "text", missing=True),
            Column("question_hash", "name"),
            Column("rephrases", "name"),
            Column("documents", "json"),
            Column("parsed", "json"),
            Column("policy_id", "name"),
            Column("fingerprint", "name"),
            Column("models", "json"),
            Column("prompt_version", "name"),
            Column("learner", "name"),
        ),
    ),
    Table(
        CLARIFICATIONS,
        (
            Column("request_id", "name", unique=True),
            Column("target_field", "name"),
            Column("question_to_user", "text", missing=True),
            Column("candidates", "json"),
            Column("proposed", "text", missing=True),
            Column("proposed_reason", "text", missing=True),
            Column("audit", "json"),
            *_AS_OF_THEN,
            Column("why", "text"),
            Column("gain", "number", missing=True),
            Column("cost", "number", missing=True),
            Column("tried", "json"),
        ),
    ),
    Table(REPLIES, (Column("request_id", "name", listed=True), Column("reply", "text", missing=True))),
    Table(
        APPLICATIONS,
        (
            Column("request_id", "name", listed=True),
            *_AS_OF_THEN,
            Column("value", "text"),
            Column("once", "name", unique=True),
        ),
    ),
    Table(
        DECISIONS,
        (
            Column("request_id", "name", listed=True),
            Column("status", "name"),
            Column("reason", "text", missing=True),
            Column("answer", "text", missing=True),
            Column("sources", "json"),
            Column("options", "json"),
            Column("warnings", "json"),
            Column("confidence", "number", missing=True),
            Column("route", "name", missing=True),
            Column("arm", "name", missing=True),
            Column("clarified", "whole"),
            Column("default_applied", "json"),
            Column("checks", "json"),
            Column("ms", "json"),
            Column("policy_id", "name"),
            Column("fingerprint", "name"),
            Column("models", "json"),
            Column("prompt_version", "name"),
        ),
    ),
    Table(
        CHANGES,
        (
            Column("kind", "name"),  # met, signal, look
            Column("request_id", "name", listed=True),
            Column("row_id", "name", listed=True),
            Column("key", "json"),
            Column("value", "text"),
            Column("signal", "name"),
            Column("corrected_to", "text", missing=True),
            Column("conditions", "json"),
            Column("learner", "name"),
            Column("found", "json"),
            Column("once", "name", unique=True),
        ),
    ),
    Table(
        VERSIONS,
        (
            Column("row_id", "name", listed=True),
            Column("version", "whole"),
            Column("of", "name", unique=True),
            Column("cause", "whole", listed=True),  # number of the change that made it
            Column("target_field", "name"),
            Column("doctype", "name"),
            Column("confidence", "number"),
            Column("sample_size", "whole"),
            Column("body", "json"),
        ),
    ),
    Table(
        CURRENT,
        (Column("row_id", "name"), Column("target_field", "name"), Column("doctype", "name"), Column("body", "json")),
        key="row_id",
    ),
    Table(
        SETTLEMENTS,
        (
            Column("request_id", "name", listed=True),
            Column("row_id", "name"),
            Column("outcome", "name"),
            Column("once", "name", unique=True),
        ),
    ),
    Table(
        OPEN,
        (
            Column("once", "name"),
            Column("at", "name"),
            Column("request_id", "name"),
            Column("session", "text"),
            Column("application", "whole"),
            Column("closed", "whole"),
            Column("rephrased", "whole"),
        ),
        key="once",
    ),
    Table(FORGOTTEN, (Column("before", "name"), Column("requests", "whole"))),
)
EVENTS = tuple(table for table in TABLES if table.key is None)


def request_of(log: Entries, request_id: str) -> dict[str, Any]:
    """Row of a request.

    Raises:
      ValueError: there is none.
    """
    found = log.one(REQUESTS, request_id=request_id)
    if found is None:
        msg = f"request_id must be that of a request in the log, got {request_id!r:.80}; the response names it."
        raise ValueError(msg)
    return found


def of_request(log: Entries, table: str, request_id: str) -> list[dict[str, Any]]:
    """Events of a request in a table, in order."""
    return list(log.rows(table, request_id=request_id))


def changes(log: Entries, row_id: str | None = None, *, until: int | None = None) -> Iterator[dict[str, Any]]:
    """Changes of all rows of the default table or of one, in order, up to and with the event `until`."""
    for row in log.rows(CHANGES) if row_id is None else log.rows(CHANGES, row_id=row_id):
        if until is not None and row["seq"] > until:
            return
        yield row
