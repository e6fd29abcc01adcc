"""What a request waits for, and what was applied to it silently, as the log has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raglab.default_learner import ClarificationRequest
from raglab.lab._audited import Key
from raglab.store.audit import Entries
from raglab.store.requests import APPLICATIONS, CHANGES, CLARIFICATIONS, REPLIES, VERSIONS, request_of


class Pending(NamedTuple):
    """A request that a user was asked about.

    question: None where its text is not kept. parsed: fields as they were read, JSON values. key, version, confidence,
    gate: of the row of the default table, as of then. tried: values that failed before the user was asked.
    """

    request_id: str
    question: str | None
    documents: tuple[str, ...]
    session: str
    parsed: Any
    clarification: ClarificationRequest
    kind: str
    key: Key
    version: int
    confidence: float
    gate: str
    conditions: Mapping[str, str]
    tried: tuple[str, ...]
    policy_id: str
    fingerprint: str


class Application(NamedTuple):
    """A default that was applied silently, with its row as of then."""

    request_id: str
    value: str
    kind: str
    key: Key
    version: int
    confidence: float
    gate: str
    conditions: Mapping[str, str]
    question: str | None
    documents: tuple[str, ...]
    session: str


def pending_of(log: Entries, request_id: str) -> Pending | None:
    """Clarification of a request that no reply followed."""
    asked, row = request_of(log, request_id), log.one(CLARIFICATIONS, request_id=request_id)
    reply = log.one(REPLIES, request_id=request_id)
    if row is None or (reply is not None and reply["seq"] > row["seq"]):
        return None
    request = ClarificationRequest(
        target_field=row["target_field"],
        question_to_user=row["question_to_user"] or "",
        candidate_values=row["candidates"],
        proposed_default=row["proposed"],
        proposed_default_reason=row["proposed_reason"],
        audit=row["audit"] or {},
    )
    return Pending(
        request_id,
        asked["question"],
        tuple(asked["documents"]),
        asked["session"],
        asked["parsed"],
        request,
        row["kind"],
        key_of_row(log, row["row_id"]),
        row["version"],
        row["confidence"],
        row["gate"],
        row["conditions"],
        tuple(row["tried"]),
        asked["policy_id"],
        asked["fingerprint"],
    )


def application_of(log: Entries, request_id: str) -> Application | None:
    """Default that was last applied silently to a request."""
    asked, row = request_of(log, request_id), log.one(APPLICATIONS, request_id=request_id)
    if row is None:
        return None
    then = (row["version"], row["confidence"], row["gate"], row["conditions"])
    about = (asked["question"], tuple(asked["documents"]), asked["session"])
    return Application(request_id, row["value"], row["kind"], key_of_row(log, row["row_id"]), *then, *about)


def key_of_row(log: Entries, row_id: str) -> Key:
    """Key of a row that the log has.

    Raises:
      ValueError: it has none.
    """
    change = log.one(CHANGES, row_id=row_id)
    if change is not None:
        target_field, doctype, conditions = change["key"]
        return (target_field, doctype, conditions)
    version = log.one(VERSIONS, row_id=row_id)
    if version is None:
        msg = f"a row must come from a change in the log, got {row_id!r}; meet it before it is used."
        raise ValueError(msg)
    return (version["target_field"], version["doctype"], version["body"]["sub_conditions"])
