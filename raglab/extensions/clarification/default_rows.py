"""The default table in the audit (shore): rows rebuilt from events (S5.3, S5.8).

`fold` alone makes the versions of a change: when it is logged, and when rows are rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from raglab.audit.default_table import Application, Key, Pending, RowKey
from raglab.audit.log import learner_of, record_learner
from raglab.default_learner import (
    ClarificationDefault,
    ClarificationRequest,
    DefaultLearner,
    Split,
    init,
    looked,
    lookup,
    met,
    split,
    stored_split,
    stratify,
    update,
)
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    CURRENT,
    DECISIONS,
    REPLIES,
    VERSIONS,
)
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest, utc_text

Versions: TypeAlias = tuple[ClarificationDefault, ...]
Signal: TypeAlias = tuple[str, str, str | None]  # value, signal's name, what it was corrected to
NO_SIGNAL: Signal = ("", "", None)


def fold(
    rows: Mapping[str, ClarificationDefault], change: Mapping[str, Any], learner: DefaultLearner
) -> Versions:
    """New versions that a change makes of the rows before it, the changed row's first.

    A row that is not there yet begins with its first change. A split leaves rows that are there
    already as they are.

    Args:
      rows: by row_id.
      change: a row of `CHANGES`, JSON unpacked. Its kind is met (a request came to the row),
        signal, or look (the row was split; in logs of before also: it was tested, and nothing was
        found).
      learner: settings that the change names.
    """
    at = datetime.fromisoformat(change["at"])
    row = rows.get(change["row_id"]) or empty_row(RowKey(*change["key"]), at)
    row_split = None if change["found"] is None else stored_split(change["found"])
    if change["kind"] == "met":
        return (met(row, now=at),)
    if change["kind"] == "signal":
        vote = (change["value"], change["signal"], change["corrected_to"])
        conditions = change["conditions"] or None
        return (update(row, *vote, now=at, conditions=conditions, learner=learner),)
    if row_split is None:
        return (looked(row),)
    children = split(row, row_split, now=at, learner=learner)
    return (looked(row, row_split), *(child for child in children if child.row_id not in rows))


def row_id_of_key(key: RowKey) -> str:
    """Name of the row of a key, which hangs on no time."""
    return empty_row(key, datetime(2000, 1, 1, tzinfo=UTC)).row_id


def empty_row(key: RowKey, now: datetime) -> ClarificationDefault:
    """Row without a vote."""
    target_field, doctype, conditions = key
    return init(target_field, doctype, dict(conditions) or None, now=now)


def row_versions(
    log: Entries, changes: Iterable[Mapping[str, Any]]
) -> Iterator[ClarificationDefault]:
    """Versions that changes make, in order; of a row they begin with its first or its parent's."""
    learners: dict[str, DefaultLearner] = {}
    rows: dict[str, ClarificationDefault] = {}
    for change in changes:
        for version in fold(rows, change, learner_of(log, change["learner"], learners)):
            rows[version.row_id] = version
            yield version


def lineage(log: Entries, row_id: str, until: int) -> list[dict[str, Any]]:
    """Changes of a row and of the rows that it was split from, in number order.

    Args:
      until: number of the last event that counts.
    """
    changes: dict[str, list[dict[str, Any]]] = {}
    while row_id not in changes:
        changes[row_id] = list(log.rows(CHANGES, row_id=row_id, until=until))
        first = next(log.rows(VERSIONS, row_id=row_id), {"cause": 0})
        cause = log.row(CHANGES, until=int(first["cause"]))
        row_id = row_id if cause is None else cause["row_id"]
    return sorted(chain.from_iterable(changes.values()), key=lambda change: int(change["seq"]))


def _append_change(
    log: Entries,
    kind: str,
    key: RowKey,
    *,
    request_id: str,
    learner: DefaultLearner,
    at: datetime,
    once: list[Any],
    signal: Signal = NO_SIGNAL,
    conditions: Mapping[str, str] | None = None,
    row_split: Split | None = None,
) -> Versions:
    """Add a change and the versions that it makes, as `fold` gives them; () where it came before.

    Args:
      once: what tells the change from all others.
    """
    once_digest = digest(canonical_json(once), 32)
    if log.row(CHANGES, once=once_digest) is not None:
        return ()
    moment, row_id = utc_text(at), row_id_of_key(key)
    value, name, corrected_to = signal
    change = {
        "at": moment,
        "kind": kind,
        "request_id": request_id,
        "row_id": row_id,
        "key": [*key[:2], dict(key.sub_conditions)],
        "value": value,
        "signal": name,
        "corrected_to": corrected_to,
        "conditions": dict(conditions or {}),
        "learner": record_learner(log, learner, moment),
        "found": None if row_split is None else row_split._asdict(),
        "once": once_digest,
    }
    before = current_rows(log, **({"row_id": row_id} if row_split is None else {}))
    versions = fold({row.row_id: row for row in before}, change, learner)
    cause = log.add(CHANGES, change)
    for row in versions:
        body = row.model_dump(mode="json")
        about = {name: body[name] for name in ("target_field", "doctype")}
        about |= {"row_id": row.row_id, "body": body}
        log.keep(CURRENT, about)
        about |= {name: body[name] for name in ("version", "confidence", "sample_size")}
        named = f"{row.row_id}.{row.version}"
        log.add(VERSIONS, {"at": moment, "of": named, "cause": cause, **about})
    return versions


def current_rows(log: Entries, **where: Any) -> Versions:  # noqa: ANN401 - values of columns
    """Latest versions of the rows that have these values, in a fixed order.

    Raises:
      InputError: a row of the log is none.
    """
    with as_written():
        bodies = (row["body"] for row in log.rows(CURRENT, **where))
        return _in_order(map(ClarificationDefault.model_validate, bodies))


def rebuilt_rows(log: Entries) -> Versions:
    """Rows from their changes alone."""
    return _in_order({row.row_id: row for row in row_versions(log, log.rows(CHANGES))}.values())


def _in_order(rows: Iterable[ClarificationDefault]) -> Versions:
    """Rows by field and doctype, the general before the specific."""
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                row.target_field,
                row.doctype,
                len(row.sub_conditions),
                canonical_json(row.sub_conditions),
            ),
        )
    )


def record_request(
    log: Entries, request_id: str, key: Key, learner: DefaultLearner, at: datetime
) -> ClarificationDefault:
    """Row after a request came to it, which counts once."""
    row_key = RowKey(*key)
    row_id = row_id_of_key(row_key)
    once = [request_id, row_id, "met"]
    versions = _append_change(
        log, "met", row_key, request_id=request_id, learner=learner, at=at, once=once
    )
    return (versions or current_rows(log, row_id=row_id))[0]


def record_signal(
    log: Entries,
    request_id: str,
    key: Key,
    signal: Signal,
    conditions: Mapping[str, str],
    learner: DefaultLearner,
    at: datetime,
) -> Versions:
    """New versions by a signal, and by a split where there is evidence for one.

    None where the signal came before.

    A row that was split since the key was read is the parent of the row that its conditions lead to
    now: a vote cast under a condition goes to the row of that condition, and does not pull the
    parent.
    """
    row_key = target_field, doctype, own = RowKey(*key)
    value, name, corrected_to = signal
    # A request may turn down several values, one after the other; it accepts or names one.
    about = [value] if name == "explicit_no" else []
    once = [request_id, row_id_of_key(row_key), name, *about]
    rows = current_rows(log, target_field=target_field, doctype=doctype)
    specific = [row for row in rows if own.items() < row.sub_conditions.items()]
    at_condition = lookup(specific, target_field, doctype, {**conditions, **own})
    if at_condition is not None:
        row_key = row_key._replace(sub_conditions=at_condition.sub_conditions)
    append = partial(
        _append_change, log, key=row_key, request_id=request_id, learner=learner, at=at
    )
    versions = append("signal", once=once, signal=signal, conditions=conditions)
    if not versions:
        return ()
    row = versions[0]
    accepted = value if name in {"explicit_yes", "implicit_ok"} else None
    success = corrected_to if name == "explicit_no" else accepted
    row_split = stratify(row, learner, success=success, conditions=conditions)
    if row_split is None:
        return versions
    return append("look", once=[row.row_id, row.looks, "look"], row_split=row_split)


def pending_of(log: Entries, request_id: str) -> Pending | None:
    """Clarification of a request that no reply settled.

    None followed, or one after which it was shown again.
    """
    row = log.row(CLARIFICATIONS, request_id=request_id)
    if row is None:
        return None
    # A reply before the question was asked does not answer it; of those after it the second is the
    # last.
    replies = list(log.rows(REPLIES, request_id=request_id, after=row["seq"]))
    if replies:
        last = log.row(DECISIONS, request_id=request_id)
        if len(replies) > 1 or last is None or not last["clarified"]:
            return None
        if last["seq"] < replies[0]["seq"]:
            return None
    # Texts may have been blanked since, and the request still takes its reply.
    request = ClarificationRequest(
        target_field=row["target_field"],
        question_to_user=row["question_to_user"] or "(forgotten)",
        candidate_values=row["candidates"],
        proposed_default=row["proposed"],
        proposed_default_reason=row["proposed_reason"],
        audit=row["audit"] or {},
    )
    key = key_of_row(log, row["row_id"])
    return Pending(request, row["kind"], key, row["conditions"], tuple(row["tried"]))


def application_of(log: Entries, request_id: str) -> Application | None:
    """Default that was last applied silently to a request."""
    row = log.row(APPLICATIONS, request_id=request_id)
    if row is None:
        return None
    return Application(row["value"], row["kind"], key_of_row(log, row["row_id"]), row["conditions"])


def key_of_row(log: Entries, row_id: str) -> RowKey:
    """Key of a row that the log has.

    Raises:
      ValueError: it has none.
    """
    version = log.row(VERSIONS, row_id=row_id)
    if version is None:
        refuse(
            "a row must come from a change in the log", repr(row_id), "meet it before it is used"
        )
    with as_written():
        return RowKey(*(version["body"][name] for name in RowKey._fields))
