"""Events of a request in the audit log (shore): what an explanation reads (S5.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.store.log_entries import Entries
from raglab.store.log_tables import CHANGES, REQUESTS, VERSIONS, request_events


class RequestEvents:
    """Events of one request, each table read once, with the versions of rows that its changes made."""

    def __init__(self, log: Entries, request: Mapping[str, Any]) -> None:
        self.log, self.request = log, request
        self._tables: dict[str, list[dict[str, Any]]] = {REQUESTS: [dict(request)]}
        self._versions: dict[int, list[dict[str, Any]]] = {}

    def of(self, table: str) -> list[dict[str, Any]]:
        """Events of a table, in order."""
        if table not in self._tables:
            self._tables[table] = request_events(self.log, table, self.request["request_id"])
        return self._tables[table]

    def versions(self, cause: int) -> list[dict[str, Any]]:
        """Versions of rows that a change made."""
        if cause not in self._versions:
            self._versions[cause] = list(self.log.rows(VERSIONS, cause=cause))
        return self._versions[cause]

    def version(self, row_id: str, version: int) -> Mapping[str, Any] | None:
        """A version of a row, None where the log has none."""
        made = (one for change in self.of(CHANGES) for one in self.versions(int(change["seq"])))
        known = (one for one in made if (one["row_id"], one["version"]) == (row_id, version))
        return next(known, None) or self.log.one(VERSIONS, of=f"{row_id}.{version}")

    def change(self, seq: int) -> Mapping[str, Any] | None:
        """A change by its number, None where the log has none."""
        own = next((one for one in self.of(CHANGES) if one["seq"] == seq), None)
        return own or next(self.log.rows(CHANGES, after=seq - 1, until=seq), None)
