"""Rows of the default table as a fold over their changes: what the live log, the rebuild and `explain` all do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from raglab._defaults import canonical
from raglab.default_learner import (
    ClarificationDefault,
    Learner,
    Split,
    init,
    looked,
    met,
    split,
    update,
)
from raglab.store.audit import Entries
from raglab.store.requests import CHANGES, CURRENT, LEARNERS, VERSIONS, changes

Key: TypeAlias = tuple[str, str, Mapping[str, str]]  # target_field, doctype, sub_conditions
Rows: TypeAlias = dict[str, ClarificationDefault]  # by row_id


class Change(NamedTuple):
    """One event that changes the default table, with all that the change depends on.

    kind: met (a request came to the row), signal, or look (the row was tested for a split, which was found or not).
    """

    at: datetime
    kind: str
    row_id: str
    key: Key
    value: str
    signal: str
    corrected_to: str | None
    conditions: Mapping[str, str]
    learner: Learner
    found: Split | None


def fold(rows: Mapping[str, ClarificationDefault], change: Change) -> tuple[ClarificationDefault, ...]:
    """New versions that a change makes of the rows before it, the changed row's first.

    A row that is not there yet begins with its first change. A split leaves rows that are there already as they are.
    """
    row = rows.get(change.row_id) or fresh(change.key, change.at)
    if change.kind == "met":
        return (met(row, now=change.at),)
    if change.kind == "signal":
        said: Any = (change.value, change.signal, change.corrected_to)
        more: dict[str, Any] = {"conditions": change.conditions or None, "learner": change.learner}
        return (update(row, *said, now=change.at, **more),)
    found = change.found
    made = () if found is None else split(row, found, now=change.at, learner=change.learner)
    return (looked(row, found), *(child for child in made if child.row_id not in rows))


def id_of(key: Key) -> str:
    """Name of the row of a key, checked once."""
    target_field, doctype, conditions = key
    return _id_of(target_field, doctype, tuple(sorted(conditions.items())))


@lru_cache(maxsize=1024)
def _id_of(target_field: str, doctype: str, conditions: tuple[tuple[str, str], ...]) -> str:
    return fresh((target_field, doctype, dict(conditions)), datetime.now(UTC)).row_id


def fresh(key: Key, now: datetime) -> ClarificationDefault:
    """Row without a vote."""
    target_field, doctype, conditions = key
    return init(target_field, doctype, dict(conditions) or None, now=now)


def folded(log: Entries) -> Rows:
    """Rows from their changes alone."""
    return {row.row_id: row for row in versions(log)}


def versions(log: Entries, row_id: str | None = None, until: int | None = None) -> Iterator[ClarificationDefault]:
    """Versions of rows from their changes, in order: of all, or of one and what it was split from.

    Args:
      until: number of the last event that counts.
    """
    known: dict[str, Learner] = {}
    rows: Rows = {}
    for row in changes(log, None, until=until) if row_id is None else _lineage(log, row_id, until):
        for made in fold(rows, change_of(log, row, known)):
            rows[made.row_id] = made
            yield made


def _lineage(log: Entries, row_id: str, until: int | None) -> Iterator[dict[str, Any]]:
    """Changes of a row, and before them those of the rows that it was split from, in order of their numbers."""
    wanted, of = [row_id], row_id
    while (born := _born(log, of)) is not None and born not in wanted:
        wanted.append(of := born)
    rows = (row for one in wanted for row in changes(log, one, until=until))
    return iter(sorted(rows, key=lambda row: int(row["seq"])))


def _born(log: Entries, row_id: str) -> str | None:
    """Row whose split made another, None where its own first change did."""
    first = next(log.rows(VERSIONS, row_id=row_id), None)
    if first is None:
        return None
    cause = next(log.rows(CHANGES, after=int(first["cause"]) - 1), None)
    return None if cause is None or cause["row_id"] == row_id else str(cause["row_id"])


def change_of(log: Entries, row: Mapping[str, Any], known: dict[str, Learner] | None = None) -> Change:
    """Change of a row of `CHANGES`.

    Args:
      known: learners by digest, added to.
    """
    target_field, doctype, conditions = row["key"]
    return Change(
        datetime.fromisoformat(row["at"]),
        row["kind"],
        row["row_id"],
        (target_field, doctype, conditions),
        row["value"],
        row["signal"],
        row["corrected_to"],
        row["conditions"],
        learner_of(log, row["learner"], {} if known is None else known),
        None if row["found"] is None else Split(**row["found"]),
    )


def learner_of(log: Entries, named: str, known: dict[str, Learner]) -> Learner:
    """Learner settings of a digest, as they were kept."""
    if named not in known:
        row = log.one(LEARNERS, digest=named)
        if row is None:
            msg = f"a log must hold the learner settings that it names, got {named!r}; its tables were altered."
            raise ValueError(msg)
        known[named] = Learner(**row["body"])
    return known[named]


def entered(log: Entries, change: Change, *, request_id: str, learner: str, once: str) -> Rows:
    """Add a change and the versions that it makes; give them back by row_id."""
    row = {
        "at": stamp(change.at),
        "kind": change.kind,
        "request_id": request_id,
        "row_id": change.row_id,
        "key": [change.key[0], change.key[1], dict(change.key[2])],
        "value": change.value,
        "signal": change.signal,
        "corrected_to": change.corrected_to,
        "conditions": dict(change.conditions),
        "learner": learner,
        "found": None if change.found is None else change.found._asdict(),
        "once": once,
    }
    found = change.found
    before = {change.row_id: current(log, change.row_id)}
    if found is not None:
        before |= {one.row_id: one for one in rows_of(log)}
    made = {one.row_id: one for one in fold({key: one for key, one in before.items() if one is not None}, change)}
    cause = log.add(CHANGES, row)
    for one in made.values():
        _version(log, one, cause, change.at)
    return made


def _version(log: Entries, row: ClarificationDefault, cause: int, at: datetime) -> None:
    body = body_of(row)
    about = {"row_id": row.row_id, "target_field": row.target_field, "doctype": row.doctype, "body": body}
    told = {"version": row.version, "of": f"{row.row_id}.{row.version}", "cause": cause}
    size = {"confidence": row.confidence, "sample_size": row.sample_size}
    log.add(VERSIONS, {"at": stamp(at), **about, **told, **size})
    log.keep(CURRENT, about)


def current(log: Entries, row_id: str) -> ClarificationDefault | None:
    """Latest version of a row."""
    found = log.one(CURRENT, row_id=row_id)
    return None if found is None else row_of(found["body"])


def rows_of(log: Entries, **where: Any) -> tuple[ClarificationDefault, ...]:  # noqa: ANN401 - values of columns
    """Latest versions of the rows that have these values, in a fixed order."""
    return ordered(row_of(found["body"]) for found in log.rows(CURRENT, **where))


def ordered(rows: Iterable[ClarificationDefault]) -> tuple[ClarificationDefault, ...]:
    """Rows by field and doctype, the general before the specific."""

    def place(row: ClarificationDefault) -> tuple[str, str, int, str]:
        return (row.target_field, row.doctype, len(row.sub_conditions), canonical(row.sub_conditions))

    return tuple(sorted(rows, key=place))


def body_of(row: ClarificationDefault) -> dict[str, Any]:
    """Row as JSON values."""
    return row.model_dump(mode="json", include=set(ClarificationDefault.model_fields))


def row_of(body: Mapping[str, Any]) -> ClarificationDefault:
    """Row of JSON values."""
    return ClarificationDefault.model_validate(body)


def key_of(row: ClarificationDefault) -> Key:
    """What tells a row from the others."""
    return (row.target_field, row.doctype, row.sub_conditions)


def hashed(text: str, digits: int = 64) -> str:
    """First hex digits of the SHA-256 of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def stamp(at: datetime) -> str:
    """A moment as the log keeps it: UTC, to the microsecond, so that its text sorts as time does."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
