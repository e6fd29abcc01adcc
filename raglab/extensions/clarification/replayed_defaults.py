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

_USES = (("applied", APPLICATIONS), ("asked", CLARIFICATIONS))
_OF_ROW = (
    "target_field",
    "doctype",
    "sub_conditions",
    "row_id",
    "version",
    "confidence",
    "sample_size",
)
_COMPARED = ("confidence", "gate", "votes")
_OF_CHANGE = ("at", "kind", "signal", "value", "corrected_to", "row_id")


def replay_uses(events: RequestEvents, learner: DefaultLearner) -> ReplayedUses:
    """What a request did with the default table, each row folded from its first change on.

    What differs from what is recorded is told in words.
    """
    if learner.ask_below > learner.apply_above:
        learner = DefaultLearner()  # edited: among the differences already
    uses = [
        (use, row, events.version(row["row_id"], row["version"]))
        for use, table in _USES
        for row in events.of(table)
    ]
    uses.sort(key=lambda each: int(each[1]["seq"]))
    changes = [(change, events.versions(int(change["seq"]))) for change in events.of(CHANGES)]
    met = {change["row_id"]: change["seq"] for change, _ in changes if change["kind"] == "met"}
    records = [record for *_, record in uses if record is not None]
    records += [record for _, versions in changes for record in versions]
    until = max((int(record["cause"]) for record in records), default=0)
    row_ids = {record["row_id"] for record in records}
    folds = {row_id: _Fold(events.log, row_id, until) for row_id in row_ids}
    differences = [text for record in records for text in folds[record["row_id"]].compare(record)]
    defaults = []
    for use, row, record in uses:
        version = None if record is None else folds[row["row_id"]].versions.get(row["version"])
        if version is None:
            key = key_of_row(events.log, row["row_id"])
            version = empty_row(key, datetime.fromisoformat(row["at"]))
        if record is None and row["version"]:
            differences.append(f"row {row['row_id']} has no version {row['version']} in the log")
        is_counted = record is not None and met.get(row["row_id"], inf) <= record["cause"]
        default = _replayed(use, row, version, learner, is_counted=is_counted)
        defaults.append(default)
        about = (
            f"{use} {default.value or 'nothing'}, row {default.row_id} version {default.version}"
        )
        differences += [
            f"{about}: {name} {row[name]} is recorded, the changes before it give {value}"
            for name, value in default._asdict().items()
            if name in _COMPARED and row[name] != value
        ]
    signals = []
    for change, versions in changes:
        for record in versions[:1]:  # of the row that it changed; a split has those of others
            columns = {name: change[name] for name in _OF_CHANGE}
            signals.append(columns | {name: record[name] for name in ("version", "confidence")})
        if not versions:
            differences.append(f"change {change['seq']} ({change['kind']}) has no version")
    return ReplayedUses(tuple(defaults), tuple(signals), tuple(dict.fromkeys(differences)))


class _Fold:
    """Versions of a row as its changes give them, as far as they do."""

    def __init__(self, log: Entries, row_id: str, until: int) -> None:
        self.versions: dict[int, ClarificationDefault] = {}
        self._broken = ""
        try:
            for row in row_versions(log, lineage(log, row_id, until)):
                if row.row_id == row_id:
                    self.versions[row.version] = row
        except (ValueError, KeyError, TypeError) as error:
            self._broken = f"row {row_id} cannot be rebuilt: {error}"

    def compare(self, record: Mapping[str, Any]) -> Iterator[str]:
        """What of a version, as the log has it, is not as the changes give it."""
        row, body = self.versions.get(record["version"]), record["body"]
        label = f"row {record['row_id']} version {record['version']}"
        if self._broken:
            yield self._broken
        elif row is None or row.model_dump(mode="json") != body:
            yield f"{label}: its body differs from what the changes give"
        for name in ("target_field", "doctype", "confidence", "sample_size"):
            if isinstance(body, Mapping) and record[name] != body.get(name):
                yield f"{label}: {name} {record[name]!r} is recorded beside its body"


def _replayed(
    use: str,
    row: Mapping[str, Any],
    version: ClarificationDefault,
    learner: DefaultLearner,
    *,
    is_counted: bool,
) -> ReplayedDefault:
    """A row as it was when it was used; counted: whether the version counts this request."""
    requests = version.requests + (not is_counted)
    return ReplayedDefault(
        used=use,
        kind=row["kind"],
        value=row["value"] if use == "applied" else row["proposed"],
        votes=dict(version.candidate_votes),
        gate=row_gate(version, learner),
        requests=requests,
        asks=asks(version.model_copy(update={"requests": requests - 1}), learner),
        thresholds=(learner.ask_below, learner.apply_above),
        every=learner.every,
        **{name: getattr(version, name) for name in _OF_ROW},
    )
