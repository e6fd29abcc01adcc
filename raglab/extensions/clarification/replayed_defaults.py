"""Replayed defaults (shore): default table rows as of one request, from the log alone (S5.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from math import inf
from typing import Any

from raglab.audit.default_table import ReplayedDefault, ReplayedUses
from raglab.audit.log import row_gate
from raglab.audit.request_events import RequestEvents
from raglab.default_learner import ClarificationDefault, DefaultLearner, asks
from raglab.extensions.clarification.default_rows import (
    empty_row,
    key_of_row,
    lineage,
    row_versions,
)
from raglab.store.log_rows import Entries
from raglab.store.log_tables import APPLICATIONS, CHANGES, CLARIFICATIONS

_USE_TABLES = (("applied", APPLICATIONS), ("asked", CLARIFICATIONS))
_ROW_FIELDS = (
    "target_field",
    "doctype",
    "sub_conditions",
    "row_id",
    "version",
    "confidence",
    "sample_size",
)
_COMPARED_FIELDS = ("confidence", "gate", "votes")
_CHANGE_FIELDS = ("at", "kind", "signal", "value", "corrected_to", "row_id")


def replay_uses(events: RequestEvents, learner: DefaultLearner) -> ReplayedUses:
    """What a request did with the default table, each row folded from its first change on.

    What differs from what is recorded is told in words.
    """
    if learner.ask_below > learner.apply_above:
        learner = DefaultLearner()  # edited: among the differences already
    logged_uses = [
        (use_name, use_row, events.version(use_row["row_id"], use_row["version"]))
        for use_name, log_table in _USE_TABLES
        for use_row in events.of(log_table)
    ]
    logged_uses.sort(key=lambda logged_use: int(logged_use[1]["seq"]))
    changes = [(change, events.versions(int(change["seq"]))) for change in events.of(CHANGES)]
    first_requests = {
        change["row_id"]: change["seq"] for change, _ in changes if change["kind"] == "met"
    }
    version_records = [
        version_record for *_, version_record in logged_uses if version_record is not None
    ]
    version_records += [
        version_record for _, change_versions in changes for version_record in change_versions
    ]
    last_cause = max(
        (int(version_record["cause"]) for version_record in version_records), default=0
    )
    row_ids = {version_record["row_id"] for version_record in version_records}
    folds_by_row = {row_id: _Fold(events.log, row_id, last_cause) for row_id in row_ids}
    differences = [
        difference
        for version_record in version_records
        for difference in folds_by_row[version_record["row_id"]].compare(version_record)
    ]
    replayed_defaults = []
    for use_name, use_row, version_record in logged_uses:
        row_version = (
            None
            if version_record is None
            else folds_by_row[use_row["row_id"]].versions.get(use_row["version"])
        )
        if row_version is None:
            row_key = key_of_row(events.log, use_row["row_id"])
            row_version = empty_row(row_key, datetime.fromisoformat(use_row["at"]))
        if version_record is None and use_row["version"]:
            differences.append(
                f"row {use_row['row_id']} has no version {use_row['version']} in the log"
            )
        is_counted = (
            version_record is not None
            and first_requests.get(use_row["row_id"], inf) <= version_record["cause"]
        )
        replayed_default = _replayed(use_name, use_row, row_version, learner, is_counted=is_counted)
        replayed_defaults.append(replayed_default)
        use_text = (
            f"{use_name} {replayed_default.value or 'nothing'}, "
            f"row {replayed_default.row_id} version {replayed_default.version}"
        )
        differences += [
            f"{use_text}: {field_name} {use_row[field_name]} is recorded, "
            f"the changes before it give {replayed_value}"
            for field_name, replayed_value in replayed_default._asdict().items()
            if field_name in _COMPARED_FIELDS and use_row[field_name] != replayed_value
        ]
    signal_columns = []
    for change, change_versions in changes:
        for version_record in change_versions[
            :1
        ]:  # of the row that it changed; a split has those of others
            change_columns = {field_name: change[field_name] for field_name in _CHANGE_FIELDS}
            signal_columns.append(
                change_columns
                | {
                    field_name: version_record[field_name]
                    for field_name in ("version", "confidence")
                }
            )
        if not change_versions:
            differences.append(f"change {change['seq']} ({change['kind']}) has no version")
    return ReplayedUses(
        tuple(replayed_defaults), tuple(signal_columns), tuple(dict.fromkeys(differences))
    )


class _Fold:
    """Versions of a row as its changes give them, as far as they do."""

    def __init__(self, log: Entries, row_id: str, until: int) -> None:
        self.versions: dict[int, ClarificationDefault] = {}
        self._broken = ""
        try:
            for row_version in row_versions(log, lineage(log, row_id, until)):
                if row_version.row_id == row_id:
                    self.versions[row_version.version] = row_version
        except (ValueError, KeyError, TypeError) as fold_error:
            self._broken = f"row {row_id} cannot be rebuilt: {fold_error}"

    def compare(self, record: Mapping[str, Any]) -> Iterator[str]:
        """What of a version, as the log has it, is not as the changes give it."""
        row_version = self.versions.get(record["version"])
        row_body = record["body"]
        row_label = f"row {record['row_id']} version {record['version']}"
        if self._broken:
            yield self._broken
        elif row_version is None or row_version.model_dump(mode="json") != row_body:
            yield f"{row_label}: its body differs from what the changes give"
        for field_name in ("target_field", "doctype", "confidence", "sample_size"):
            if isinstance(row_body, Mapping) and record[field_name] != row_body.get(field_name):
                fault = f"{field_name} {record[field_name]!r} is recorded beside its body"
                yield f"{row_label}: {fault}"


def _replayed(
    use: str,
    row: Mapping[str, Any],
    version: ClarificationDefault,
    learner: DefaultLearner,
    *,
    is_counted: bool,
) -> ReplayedDefault:
    """A row as it was when it was used; counted: whether the version counts this request."""
    n_requests = version.requests + (not is_counted)
    return ReplayedDefault(
        used=use,
        kind=row["kind"],
        value=row["value"] if use == "applied" else row["proposed"],
        votes=dict(version.candidate_votes),
        gate=row_gate(version, learner),
        requests=n_requests,
        asks=asks(version.model_copy(update={"requests": n_requests - 1}), learner),
        thresholds=(learner.ask_below, learner.apply_above),
        every=learner.every,
        **{field_name: getattr(version, field_name) for field_name in _ROW_FIELDS},
    )
