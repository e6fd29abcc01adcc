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
EMPTY_SIGNAL: Signal = ("", "", None)


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
    change_time = datetime.fromisoformat(change["at"])
    changed_row = rows.get(change["row_id"]) or empty_row(RowKey(*change["key"]), change_time)
    row_split = None if change["found"] is None else stored_split(change["found"])
    if change["kind"] == "met":
        return (met(changed_row, now=change_time),)
    if change["kind"] == "signal":
        signal_vote = (change["value"], change["signal"], change["corrected_to"])
        conditions = change["conditions"] or None
        return (
            update(
                changed_row, *signal_vote, now=change_time, conditions=conditions, learner=learner
            ),
        )
    if row_split is None:
        return (looked(changed_row),)
    split_rows = split(changed_row, row_split, now=change_time, learner=learner)
    return (
        looked(changed_row, row_split),
        *(split_row for split_row in split_rows if split_row.row_id not in rows),
    )


def row_id_of_key(key: RowKey) -> str:
    """Name of the row of a key, which hangs on no time."""
    return empty_row(key, datetime(2000, 1, 1, tzinfo=UTC)).row_id


def empty_row(key: RowKey, now: datetime) -> ClarificationDefault:
    """Row without a vote."""
    target_field, doctype, row_conditions = key
    return init(target_field, doctype, dict(row_conditions) or None, now=now)


def row_versions(
    log: Entries, changes: Iterable[Mapping[str, Any]]
) -> Iterator[ClarificationDefault]:
    """Versions that changes make, in order; of a row they begin with its first or its parent's."""
    learners_by_id: dict[str, DefaultLearner] = {}
    rows_by_id: dict[str, ClarificationDefault] = {}
    for change in changes:
        for row_version in fold(
            rows_by_id, change, learner_of(log, change["learner"], learners_by_id)
        ):
            rows_by_id[row_version.row_id] = row_version
            yield row_version


def lineage(log: Entries, row_id: str, until: int) -> list[dict[str, Any]]:
    """Changes of a row and of the rows that it was split from, in number order.

    Args:
      until: number of the last event that counts.
    """
    changes_by_row: dict[str, list[dict[str, Any]]] = {}
    while row_id not in changes_by_row:
        changes_by_row[row_id] = list(log.rows(CHANGES, row_id=row_id, until=until))
        first_version = next(log.rows(VERSIONS, row_id=row_id), {"cause": 0})
        cause_change = log.row(CHANGES, until=int(first_version["cause"]))
        row_id = row_id if cause_change is None else cause_change["row_id"]
    return sorted(
        chain.from_iterable(changes_by_row.values()), key=lambda change: int(change["seq"])
    )


def _append_change(
    log: Entries,
    change_kind: str,
    key: RowKey,
    *,
    request_id: str,
    learner: DefaultLearner,
    at: datetime,
    change_identity: list[Any],
    signal: Signal = EMPTY_SIGNAL,
    conditions: Mapping[str, str] | None = None,
    row_split: Split | None = None,
) -> Versions:
    """Add a change and the versions that it makes, as `fold` gives them; () where it came before.

    Args:
      change_identity: what tells the change from all others.
    """
    once_digest = digest(canonical_json(change_identity), 32)
    if log.row(CHANGES, once=once_digest) is not None:
        return ()
    time_text = utc_text(at)
    row_id = row_id_of_key(key)
    signal_value, signal_name, corrected_to = signal
    change_row = {
        "at": time_text,
        "kind": change_kind,
        "request_id": request_id,
        "row_id": row_id,
        "key": [*key[:2], dict(key.sub_conditions)],
        "value": signal_value,
        "signal": signal_name,
        "corrected_to": corrected_to,
        "conditions": dict(conditions or {}),
        "learner": record_learner(log, learner, time_text),
        "found": None if row_split is None else row_split._asdict(),
        "once": once_digest,
    }
    earlier_rows = current_rows(log, **({"row_id": row_id} if row_split is None else {}))
    new_versions = fold(
        {row_version.row_id: row_version for row_version in earlier_rows}, change_row, learner
    )
    change_number = log.add(CHANGES, change_row)
    for row_version in new_versions:
        row_body = row_version.model_dump(mode="json")
        row_fields = {
            signal_name: row_body[signal_name] for signal_name in ("target_field", "doctype")
        }
        row_fields |= {"row_id": row_version.row_id, "body": row_body}
        log.keep(CURRENT, row_fields)
        row_fields |= {
            signal_name: row_body[signal_name]
            for signal_name in ("version", "confidence", "sample_size")
        }
        log.add(
            VERSIONS,
            {
                "at": time_text,
                "of": f"{row_version.row_id}.{row_version.version}",
                "cause": change_number,
                **row_fields,
            },
        )
    return new_versions


def current_rows(log: Entries, **column_values: Any) -> Versions:  # noqa: ANN401 - values of columns
    """Latest versions of the rows that have these values, in a fixed order.

    Raises:
      InputError: a row of the log is none.
    """
    with as_written():
        row_bodies = (row["body"] for row in log.rows(CURRENT, **column_values))
        return _in_order(map(ClarificationDefault.model_validate, row_bodies))


def rebuilt_rows(log: Entries) -> Versions:
    """Rows from their changes alone."""
    return _in_order(
        {
            row_version.row_id: row_version for row_version in row_versions(log, log.rows(CHANGES))
        }.values()
    )


def _in_order(default_rows: Iterable[ClarificationDefault]) -> Versions:
    """Rows by field and doctype, the general before the specific."""
    return tuple(
        sorted(
            default_rows,
            key=lambda default_row: (
                default_row.target_field,
                default_row.doctype,
                len(default_row.sub_conditions),
                canonical_json(default_row.sub_conditions),
            ),
        )
    )


def record_request(
    log: Entries, request_id: str, key: Key, learner: DefaultLearner, at: datetime
) -> ClarificationDefault:
    """Row after a request came to it, which counts once."""
    row_key = RowKey(*key)
    row_id = row_id_of_key(row_key)
    change_identity = [request_id, row_id, "met"]
    new_versions = _append_change(
        log,
        "met",
        row_key,
        request_id=request_id,
        learner=learner,
        at=at,
        change_identity=change_identity,
    )
    return (new_versions or current_rows(log, row_id=row_id))[0]


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
    row_key = target_field, doctype, key_conditions = RowKey(*key)
    signal_value, signal_name, corrected_to = signal
    # A request may turn down several values, one after the other; it accepts or names one.
    value_identity = [signal_value] if signal_name == "explicit_no" else []
    change_identity = [request_id, row_id_of_key(row_key), signal_name, *value_identity]
    field_rows = current_rows(log, target_field=target_field, doctype=doctype)
    specific_rows = [
        changed_row
        for changed_row in field_rows
        if key_conditions.items() < changed_row.sub_conditions.items()
    ]
    condition_row = lookup(specific_rows, target_field, doctype, {**conditions, **key_conditions})
    if condition_row is not None:
        row_key = row_key._replace(sub_conditions=condition_row.sub_conditions)
    append_change = partial(
        _append_change, log, key=row_key, request_id=request_id, learner=learner, at=at
    )
    new_versions = append_change(
        "signal", change_identity=change_identity, signal=signal, conditions=conditions
    )
    if not new_versions:
        return ()
    changed_row = new_versions[0]
    accepted_value = signal_value if signal_name in {"explicit_yes", "implicit_ok"} else None
    successful_value = corrected_to if signal_name == "explicit_no" else accepted_value
    row_split = stratify(changed_row, learner, success=successful_value, conditions=conditions)
    if row_split is None:
        return new_versions
    return append_change(
        "look", change_identity=[changed_row.row_id, changed_row.looks, "look"], row_split=row_split
    )


def pending_of(log: Entries, request_id: str) -> Pending | None:
    """Clarification of a request that no reply settled.

    None followed, or one after which it was shown again.
    """
    clarification_row = log.row(CLARIFICATIONS, request_id=request_id)
    if clarification_row is None:
        return None
    # A reply before the question was asked does not answer it; of those after it the second is the
    # last.
    later_replies = list(log.rows(REPLIES, request_id=request_id, after=clarification_row["seq"]))
    if later_replies:
        last_decision = log.row(DECISIONS, request_id=request_id)
        if len(later_replies) > 1 or last_decision is None or not last_decision["clarified"]:
            return None
        if last_decision["seq"] < later_replies[0]["seq"]:
            return None
    # Texts may have been blanked since, and the request still takes its reply.
    asked_request = ClarificationRequest(
        target_field=clarification_row["target_field"],
        question_to_user=clarification_row["question_to_user"] or "(forgotten)",
        candidate_values=clarification_row["candidates"],
        proposed_default=clarification_row["proposed"],
        proposed_default_reason=clarification_row["proposed_reason"],
        audit=clarification_row["audit"] or {},
    )
    row_key = key_of_row(log, clarification_row["row_id"])
    return Pending(
        asked_request,
        clarification_row["kind"],
        row_key,
        clarification_row["conditions"],
        tuple(clarification_row["tried"]),
    )


def application_of(log: Entries, request_id: str) -> Application | None:
    """Default that was last applied silently to a request."""
    application_row = log.row(APPLICATIONS, request_id=request_id)
    if application_row is None:
        return None
    return Application(
        application_row["value"],
        application_row["kind"],
        key_of_row(log, application_row["row_id"]),
        application_row["conditions"],
    )


def key_of_row(log: Entries, row_id: str) -> RowKey:
    """Key of a row that the log has.

    Raises:
      ValueError: it has none.
    """
    row_version = log.row(VERSIONS, row_id=row_id)
    if row_version is None:
        refuse(
            "a row must come from a change in the log", repr(row_id), "meet it before it is used"
        )
    with as_written():
        return RowKey(*(row_version["body"][key_field] for key_field in RowKey._fields))
