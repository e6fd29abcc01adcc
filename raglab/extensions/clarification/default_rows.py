"""The default table in the audit (shore): rows rebuilt from events (S5.3, S5.8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from raglab.audit.default_table import Application, Pending, RowKey
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
    request_row,
)
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest, utc_text
from raglab.words.html_display import Fold, display, short

Rows: TypeAlias = dict[str, ClarificationDefault]  # by row_id


_RIGHT = frozenset({"explicit_yes", "implicit_ok"})


class SignalEvent(NamedTuple):
    """What a user's word or silence says of a value.

    The value, the signal's name, and what it was corrected to.
    """

    value: str
    signal: str
    corrected_to: str | None

    @property
    def success(self) -> str | None:
        """Value that was accepted, named, or confirmed by silence; None where none was."""
        return (
            self.corrected_to
            if self.signal == "explicit_no"
            else self.value
            if self.signal in _RIGHT
            else None
        )


NO_SIGNAL = SignalEvent("", "", None)


class Change(NamedTuple):
    """One event that changes the default table, with all that the change depends on.

    kind: met (a request came to the row), signal, or look (the row was split; in logs of before
    also: it was tested, and nothing was found).
    """

    at: datetime
    kind: str
    row_id: str
    key: RowKey
    event: SignalEvent
    conditions: Mapping[str, str]
    learner: DefaultLearner
    split: Split | None = None


def fold(
    rows: Mapping[str, ClarificationDefault], change: Change
) -> tuple[ClarificationDefault, ...]:
    """New versions that a change makes of the rows before it, the changed row's first.

    A row that is not there yet begins with its first change. A split leaves rows that are there
    already as they are.
    """
    row = rows.get(change.row_id) or empty_row(change.key, change.at)
    if change.kind == "met":
        return (met(row, now=change.at),)
    if change.kind == "signal":
        vote: Any = change.event
        more: dict[str, Any] = {"conditions": change.conditions or None, "learner": change.learner}
        return (update(row, *vote, now=change.at, **more),)
    row_split = change.split
    children = (
        () if row_split is None else split(row, row_split, now=change.at, learner=change.learner)
    )
    return (looked(row, row_split), *(child for child in children if child.row_id not in rows))


# of a row that is made for its name, which hangs on no time
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def row_id_of_key(key: RowKey) -> str:
    """Name of the row of a key."""
    return empty_row(key, ANY_TIME).row_id


def empty_row(key: RowKey, now: datetime) -> ClarificationDefault:
    """Row without a vote."""
    target_field, doctype, conditions = key
    return init(target_field, doctype, dict(conditions) or None, now=now)


def row_versions(
    log: Entries, row_id: str | None = None, until: int | None = None
) -> Iterator[ClarificationDefault]:
    """Versions of rows from their changes, in order: of all, or of one and what it was split from.

    Args:
      until: number of the last event that counts.
    """
    known: dict[str, DefaultLearner] = {}
    rows: Rows = {}
    changes = log.rows(CHANGES, until=until)
    for row in changes if row_id is None else _lineage(log, row_id, until):
        for version in fold(rows, change_of(log, row, known)):
            rows[version.row_id] = version
            yield version


def _lineage(log: Entries, row_id: str, until: int | None) -> Iterator[dict[str, Any]]:
    """A row's changes, and before them those of the rows it was split from, in number order."""
    wanted, of = [row_id], row_id
    while (born := _born(log, of)) is not None and born not in wanted:
        wanted.append(of := born)
    rows = (row for wanted_id in wanted for row in log.rows(CHANGES, row_id=wanted_id, until=until))
    return iter(sorted(rows, key=lambda row: int(row["seq"])))


def _born(log: Entries, row_id: str) -> str | None:
    """Row whose split made another, None where its own first change did."""
    first = next(log.rows(VERSIONS, row_id=row_id), None)
    if first is None:
        return None
    cause = next(log.rows(CHANGES, after=int(first["cause"]) - 1), None)
    return None if cause is None or cause["row_id"] == row_id else str(cause["row_id"])


def change_of(
    log: Entries, row: Mapping[str, Any], known: dict[str, DefaultLearner] | None = None
) -> Change:
    """Change of a row of `CHANGES`.

    Args:
      known: learners by digest, added to.
    """
    target_field, doctype, conditions = row["key"]
    return Change(
        at=datetime.fromisoformat(row["at"]),
        kind=row["kind"],
        row_id=row["row_id"],
        key=RowKey(target_field, doctype, conditions),
        event=SignalEvent(row["value"], row["signal"], row["corrected_to"]),
        conditions=row["conditions"],
        learner=learner_of(log, row["learner"], {} if known is None else known),
        split=None if row["found"] is None else stored_split(row["found"]),
    )


def append_change(
    log: Entries, change: Change, *, request_id: str, learner: str, once: str
) -> Rows:
    """Add a change and the versions that it makes; give them back by row_id."""
    row = {
        "at": utc_text(change.at),
        "kind": change.kind,
        "request_id": request_id,
        "row_id": change.row_id,
        "key": [change.key.target_field, change.key.doctype, dict(change.key.sub_conditions)],
        **change.event._asdict(),
        "conditions": dict(change.conditions),
        "learner": learner,
        "found": None if change.split is None else change.split._asdict(),
        "once": once,
    }
    row_split = change.split
    before = {change.row_id: current(log, change.row_id)}
    if row_split is not None:
        before |= {version.row_id: version for version in current_rows(log)}
    versions = {
        version.row_id: version
        for version in fold(
            {key: version for key, version in before.items() if version is not None}, change
        )
    }
    cause = log.add(CHANGES, row)
    for version in versions.values():
        _version(log, version, cause, change.at)
    return versions


def _version(log: Entries, row: ClarificationDefault, cause: int, at: datetime) -> None:
    body = row_body(row)
    about = {
        "row_id": row.row_id,
        "target_field": row.target_field,
        "doctype": row.doctype,
        "body": body,
    }
    origin = {"version": row.version, "of": f"{row.row_id}.{row.version}", "cause": cause}
    size = {"confidence": row.confidence, "sample_size": row.sample_size}
    log.add(VERSIONS, {"at": utc_text(at), **about, **origin, **size})
    log.keep(CURRENT, about)


def current(log: Entries, row_id: str) -> ClarificationDefault | None:
    """Latest version of a row."""
    row = log.row(CURRENT, row_id=row_id)
    return None if row is None else parse_row(row["body"])


class DefaultRows(tuple[ClarificationDefault, ...]):
    """Rows of the default table, a tuple that shows itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        votes = sum(row.sample_size for row in self)
        fields = ", ".join(dict.fromkeys(row.target_field for row in self))
        return f"DefaultRows({len(self):,} rows, {votes:,} signals; of {short(fields)})"

    def _repr_html_(self) -> str:
        """Display for a notebook: what each row would fill in, and how sure it is."""
        rows = (
            (
                row.target_field,
                row.doctype,
                ", ".join(f"{name} {value}" for name, value in row.sub_conditions.items()) or "any",
                max(
                    row.candidate_votes,
                    key=lambda value: row.candidate_votes[value],
                    default="none",
                ),
                f"{row.confidence:.2f}",
                f"{row.sample_size:,}",
            )
            for row in self
        )
        head = ("field", "doctype", "where", "leads", "confidence", "signals")
        return display(
            "Default table",
            [("rows", f"{len(self):,}")],
            [Fold("rows", rows, len(self), head, open=True)],
        )


def current_rows(log: Entries, **where: Any) -> DefaultRows:  # noqa: ANN401 - values of columns
    """Latest versions of the rows that have these values, in a fixed order."""
    return sort_rows(parse_row(row["body"]) for row in log.rows(CURRENT, **where))


def sort_rows(rows: Iterable[ClarificationDefault]) -> DefaultRows:
    """Rows by field and doctype, the general before the specific."""

    def place(row: ClarificationDefault) -> tuple[str, str, int, str]:
        return (
            row.target_field,
            row.doctype,
            len(row.sub_conditions),
            canonical_json(row.sub_conditions),
        )

    return DefaultRows(sorted(rows, key=place))


def row_body(row: ClarificationDefault) -> dict[str, Any]:
    """Row as JSON values."""
    return row.model_dump(mode="json", include=set(ClarificationDefault.model_fields))


def parse_row(body: Mapping[str, Any]) -> ClarificationDefault:
    """Row of JSON values.

    Raises:
      ValueError: they are those of none.
    """
    with as_written():
        return ClarificationDefault.model_validate(body)


def record_request(
    log: Entries, request_id: str, key: RowKey, learner: DefaultLearner, at: datetime
) -> ClarificationDefault:
    """Row after a request came to it, which counts once."""
    row_id = row_id_of_key(key)
    known = current(log, row_id)
    once = digest(canonical_json([request_id, row_id, "met"]), 32)
    if known is not None and log.row(CHANGES, once=once) is not None:
        return known
    change = Change(at, "met", row_id, key, NO_SIGNAL, {}, learner)
    return append_change(
        log,
        change,
        request_id=request_id,
        learner=record_learner(log, learner, utc_text(at)),
        once=once,
    )[row_id]


def record_signal(
    log: Entries,
    request_id: str,
    key: RowKey,
    signal: SignalEvent,
    conditions: Mapping[str, str],
    learner: DefaultLearner,
    at: datetime,
) -> tuple[ClarificationDefault, ...]:
    """New versions by a signal, and by a split where there is evidence for one.

    None where the signal came before.

    A row that was split since the key was read is the parent of the row that its conditions lead to
    now: a vote cast under a condition goes to the row of that condition, and does not pull the
    parent.
    """
    # A request may turn down several values, one after the other; it accepts or names one.
    about = [signal.value] if signal.signal == "explicit_no" else []
    once = digest(canonical_json([request_id, row_id_of_key(key), signal.signal, *about]), 32)
    if log.row(CHANGES, once=once) is not None:
        return ()
    settings = record_learner(log, learner, utc_text(at))
    of = _conditioned_key(log, key, conditions)
    row_id = row_id_of_key(of)
    change = Change(at, "signal", row_id, of, signal, conditions, learner)
    versions = append_change(log, change, request_id=request_id, learner=settings, once=once)
    row = versions[row_id]
    row_split = stratify(row, learner, success=signal.success, conditions=conditions)
    if row_split is not None:
        look = Change(at, "look", row_id, of, NO_SIGNAL, {}, learner, row_split)
        once = digest(canonical_json([row_id, row.looks, "look"]), 32)
        versions |= append_change(log, look, request_id=request_id, learner=settings, once=once)
    return tuple(versions.values())


def _conditioned_key(log: Entries, key: RowKey, conditions: Mapping[str, str]) -> RowKey:
    """Key of a field and doctype's most specific row that conditions lead to.

    It is at least as specific as the key.
    """
    all_conditions = {**conditions, **key.sub_conditions}
    rows = [
        row
        for row in current_rows(log, target_field=key.target_field, doctype=key.doctype)
        if key.sub_conditions.items() < row.sub_conditions.items()
    ]
    row = lookup(rows, key.target_field, key.doctype, all_conditions)
    return key if row is None else RowKey(key.target_field, key.doctype, row.sub_conditions)


def pending_of(log: Entries, request_id: str) -> Pending | None:
    """Clarification of a request that no reply settled.

    None followed, or one after which it was shown again.
    """
    record, row = request_row(log, request_id), log.row(CLARIFICATIONS, request_id=request_id)
    if row is None:
        return None
    # A reply before the question was asked does not answer it; of those after it the second is the
    # last.
    replies = [
        reply for reply in log.rows(REPLIES, request_id=request_id) if reply["seq"] > row["seq"]
    ]
    last = log.row(DECISIONS, request_id=request_id)
    is_shown_again = (
        len(replies) == 1
        and last is not None
        and last["seq"] > replies[0]["seq"]
        and last["clarified"]
    )
    if replies and not is_shown_again:
        return None
    # Texts may have been blanked since: what is not kept is empty, and the request still takes its
    # reply.
    request = ClarificationRequest(
        target_field=row["target_field"],
        question_to_user=row["question_to_user"] or "",
        candidate_values=row["candidates"],
        proposed_default=row["proposed"],
        proposed_default_reason=row["proposed_reason"],
        audit=row["audit"] or {},
    )
    return Pending(
        **_use_of(log, record, row),
        parsed=record["parsed"],
        clarification=request,
        tried=tuple(row["tried"]),
        policy_id=record["policy_id"],
        fingerprint=record["fingerprint"],
    )


def application_of(log: Entries, request_id: str) -> Application | None:
    """Default that was last applied silently to a request."""
    record, row = request_row(log, request_id), log.row(APPLICATIONS, request_id=request_id)
    return None if row is None else Application(**_use_of(log, record, row), value=row["value"])


def _use_of(log: Entries, record: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """What a request and its use of a row of the default table are."""
    used = {
        name: row[name]
        for name in ("request_id", "kind", "version", "confidence", "gate", "conditions")
    }
    about = {
        "question": record["question"],
        "session": record["session"],
        "documents": tuple(record["documents"]),
    }
    return {**used, **about, "key": key_of_row(log, row["row_id"])}


def key_of_row(log: Entries, row_id: str) -> RowKey:
    """Key of a row that the log has.

    Raises:
      ValueError: it has none.
    """
    change = log.row(CHANGES, row_id=row_id)
    if change is not None:
        with as_written():
            target_field, doctype, conditions = change["key"]
            return RowKey(target_field, doctype, conditions)
    version = log.row(VERSIONS, row_id=row_id)
    if version is None:
        refuse(
            "a row must come from a change in the log", repr(row_id), "meet it before it is used"
        )
    return RowKey(version["target_field"], version["doctype"], version["body"]["sub_conditions"])
