"""Replayed defaults (shore): default table rows as of one request, from the log alone (S5.8).

A row is folded from its changes; what differs from what is recorded is told in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from raglab.audit.default_table import ReplayedDefault
from raglab.audit.log import row_gate
from raglab.audit.request_events import RequestEvents
from raglab.default_learner import ClarificationDefault, DefaultLearner, asks
from raglab.extensions.clarification.default_rows import (
    empty_row,
    key_of_row,
    row_body,
    row_versions,
)
from raglab.store.log_tables import APPLICATIONS, CHANGES, CLARIFICATIONS


class ReplayedRows:
    """Versions of rows as they were for one request, each folded from the row's first change on."""

    def __init__(self, events: RequestEvents) -> None:
        self._events, self._log = events, events.log
        self._until = max((int(row["seq"]) for row in events.of(CHANGES)), default=0)
        self._folds: dict[str, tuple[int, dict[int, ClarificationDefault], list[str]]] = {}

    def compare(
        self, record: Mapping[str, Any], after: str = ""
    ) -> tuple[ClarificationDefault | None, list[str]]:
        """A version as its changes give it, None where they do not.

        And what differs from what the log keeps.

        Args:
          record: the version, as the log has it.
          after: of which change, in words.
        """
        row, differences = self._row(record["row_id"], record["version"], int(record["cause"]))
        if not differences and (row is None or row_body(row) != record["body"]):
            version = f"row {record['row_id']} version {record['version']}{after}"
            differences = [f"{version}: its body differs from what the changes give"]
        return row, differences

    def _row(
        self, row_id: str, version: int, cause: int
    ) -> tuple[ClarificationDefault | None, list[str]]:
        """A version of a row by the change that made it, None where its changes do not give it.

        What is wrong there.
        """
        known = self._folds.get(row_id)
        if known is None or known[0] < cause:
            until = max(cause, self._until)
            versions, wrong = self._folded(row_id, until)
            known = self._folds[row_id] = (until, versions, wrong)
        return known[1].get(version), known[2]

    def _folded(self, row_id: str, until: int) -> tuple[dict[int, ClarificationDefault], list[str]]:
        versions: dict[int, ClarificationDefault] = {}
        try:
            for row in row_versions(self._log, row_id, until):
                if row.row_id == row_id:
                    versions[row.version] = row
        except (ValueError, KeyError, TypeError) as error:
            return versions, [f"row {row_id} cannot be rebuilt: {error}"]
        return versions, []


def replay_defaults(
    events: RequestEvents, replay: ReplayedRows, learner: DefaultLearner
) -> tuple[tuple[ReplayedDefault, ...], list[str]]:
    """Rows that a request used, rebuilt from the changes before it.

    And what differs from what is recorded.
    """
    defaults, differences = [], []
    for used, table in (("applied", APPLICATIONS), ("asked", CLARIFICATIONS)):
        for row in events.of(table):
            replayed_row, wrong = _replay_row(events, row, replay)
            differences += wrong
            default = _replay_default(events, row, replayed_row, learner, used)
            default_label = (
                f"{used} {default.value or 'nothing'}, row {default.row_id} version "
                f"{default.version}"
            )
            pairs = (
                ("confidence", default.confidence),
                ("gate", default.gate),
                ("votes", dict(default.votes)),
            )
            differences += [
                f"{default_label}: {name} {row[name]} is recorded, the changes before it give "
                f"{value}"
                for name, value in pairs
                if row[name] != value
            ]
            defaults.append((int(row["seq"]), default))
    return tuple(default for _, default in sorted(defaults, key=lambda pair: pair[0])), differences


def _replay_row(
    events: RequestEvents, row: Mapping[str, Any], replay: ReplayedRows
) -> tuple[ClarificationDefault, list[str]]:
    """Row of the version that is recorded, folded from the changes up to the one that made it."""
    of, version = row["row_id"], row["version"]
    record = events.version(of, version)
    empty = empty_row(key_of_row(events.log, of), datetime.fromisoformat(row["at"]))
    if record is None:
        return empty, [] if version == empty.version else [
            f"row {of} has no version {version} in the log"
        ]
    replayed_row, wrong = replay.compare(record)
    return replayed_row or empty, wrong


def _replay_default(
    events: RequestEvents,
    row: Mapping[str, Any],
    replayed_row: ClarificationDefault,
    stated: DefaultLearner,
    used: str,
) -> ReplayedDefault:
    learner = (
        stated if stated.ask_below <= stated.apply_above else DefaultLearner()
    )  # edited: among the differences already
    verdict = row_gate(replayed_row, learner)
    requests = replayed_row.requests if _is_counted(events, row) else replayed_row.requests + 1
    before = replayed_row.model_copy(update={"requests": requests - 1})
    return ReplayedDefault(
        used=used,
        kind=row["kind"],
        value=row["value"] if used == "applied" else row["proposed"],
        target_field=replayed_row.target_field,
        doctype=replayed_row.doctype,
        sub_conditions=dict(replayed_row.sub_conditions),
        row_id=replayed_row.row_id,
        version=replayed_row.version,
        confidence=replayed_row.confidence,
        sample_size=replayed_row.sample_size,
        votes=dict(replayed_row.candidate_votes),
        gate=verdict,
        requests=requests,
        asks=asks(before, learner),
        thresholds=(learner.ask_below, learner.apply_above),
        every=learner.every,
    )


def _is_counted(events: RequestEvents, row: Mapping[str, Any]) -> bool:
    """Whether the version that is recorded counts this request already."""
    for change in events.of(CHANGES):
        if change["kind"] == "met" and change["row_id"] == row["row_id"]:
            records = (
                record
                for record in events.versions(int(change["seq"]))
                if record["row_id"] == row["row_id"]
            )
            return any(bool(record["version"] <= row["version"]) for record in records)
    return False


def signal_changes(
    events: RequestEvents, replay: ReplayedRows
) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """Changes that a request made, each with the version that followed.

    And what differs when they are folded anew.
    """
    signals, differences = [], []
    for change in events.of(CHANGES):
        records = events.versions(int(change["seq"]))
        for record in records:
            _, wrong = replay.compare(
                record, f" after {change['kind']} {change['signal']}".rstrip()
            )
            differences += [
                text for text in (*wrong, *_column_differences(record)) if text not in differences
            ]
            if record["row_id"] == change["row_id"]:
                columns = {
                    name: change[name]
                    for name in ("at", "kind", "signal", "value", "corrected_to", "row_id")
                }
                signals.append(
                    columns | {"version": record["version"], "confidence": record["confidence"]}
                )
        if not records:
            differences.append(
                f"change {change['seq']} ({change['kind']}) has no version of its row"
            )
    return tuple(signals), differences


def _column_differences(record: Mapping[str, Any]) -> Iterator[str]:
    """Columns of a version that are not those of its body."""
    for name in ("target_field", "doctype", "confidence", "sample_size"):
        if isinstance(record["body"], Mapping) and record[name] != record["body"].get(name):
            yield (
                f"row {record['row_id']} version {record['version']}: "
                f"{name} {record[name]!r} is recorded beside its body"
            )
