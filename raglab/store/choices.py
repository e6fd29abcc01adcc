"""The bandit's part of the audit log: choices, rewards, thumbs (rule S4.6), and what they say to a learner in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Any, NamedTuple

from raglab.store.audit import Column, Entries, Table

SETUPS, CHOICES, REWARDS, THUMBS, SNAPSHOTS = (
    f"bandit_{name}" for name in ("setups", "choices", "rewards", "thumbs", "snapshots")
)
TABLES = (
    Table(SETUPS, (Column("digest", "name", unique=True), Column("body", "json"))),
    Table(
        CHOICES,
        (
            Column("request_id", "name", unique=True),
            Column("round", "whole", unique=True),
            Column("policy_id", "name"),
            Column("fingerprint", "name"),
            Column("question", "name", listed=True),
            Column("setup", "name"),
            Column("arm", "name"),
            Column("arms", "json"),
            Column("mask", "json"),
            Column("propensity", "number"),
            Column("propensities", "json"),
            Column("features", "json"),
            Column("state_seq", "whole"),
            Column("state_hash", "name"),
            Column("seed", "whole"),
        ),
    ),
    Table(
        REWARDS,
        (
            Column("request_id", "name", unique=True),
            Column("arm", "name", listed=True),
            Column("age", "whole"),
            Column("components", "json"),
            Column("thumb", "whole", missing=True),
            Column("reward", "number"),
            Column("ms", "number"),
            Column("measured", "json"),
        ),
    ),
    Table(
        THUMBS,
        (
            Column("request_id", "name", listed=True),
            Column("age", "whole"),
            Column("before", "whole", missing=True),
            Column("up", "whole"),
        ),
    ),
    Table(
        SNAPSHOTS,
        (Column("setup", "name"), Column("seq", "whole"), Column("state", "text"), Column("sums", "text")),
        key="setup",
    ),
)


class Event(NamedTuple):
    """What changes a learner's state, with all that the change depends on.

    seq: its number. kind: choice, reward or thumb. arm, features: of the choice. age: choices since it. components:
    raw, of the reward; None for a choice, and for a thumb that came before its reward. before, thumb: 1 up, 0 down,
    None is none; before this event, and from it on.
    """

    seq: int
    kind: str
    request_id: str
    arm: str
    features: Mapping[str, float | None]
    age: int = 0
    components: Mapping[str, float | None] | None = None
    before: int | None = None
    thumb: int | None = None


def events(log: Entries, after: int = 0) -> Iterator[Event]:
    """What happened after a number, in order."""
    tables = ((CHOICES, "choice"), (REWARDS, "reward"), (THUMBS, "thumb"))
    streams = [_stream(log, table, kind, after) for table, kind in tables]
    asked: dict[str, dict[str, Any]] = {}
    rewarded: dict[str, dict[str, Any]] = {}
    for seq, kind, row in merge(*streams, key=lambda one: one[0]):
        request = row["request_id"]
        if kind == "choice":
            asked[request] = row
            yield Event(seq, kind, request, row["arm"], row["features"])
            continue
        choice = asked.get(request) or log.one(CHOICES, request_id=request) or {}
        about = (seq, kind, request, choice["arm"], choice["features"], row["age"])
        if kind == "reward":
            rewarded[request] = row
            yield Event(*about, row["components"], None, row["thumb"])
            continue
        known = rewarded.get(request) or log.one(REWARDS, request_id=request)
        there = known is not None and known["seq"] < seq
        yield Event(*about, known["components"] if known is not None and there else None, row["before"], row["up"])


def _stream(log: Entries, table: str, kind: str, after: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for row in log.rows(table, after=after):
        yield row["seq"], kind, row


def rounds(log: Entries) -> int:
    """Choices so far."""
    last = log.one(CHOICES)
    return 0 if last is None else int(last["round"])


def choice_of(log: Entries, request_id: str) -> dict[str, Any]:
    """Choice of a request.

    Raises:
      ValueError: there is none.
    """
    found = log.one(CHOICES, request_id=request_id)
    if found is None:
        msg = f"request_id must be that of a choice in the log, got {request_id!r}; the response names it."
        raise ValueError(msg)
    return found
