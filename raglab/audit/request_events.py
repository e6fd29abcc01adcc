"""Events of a request in the audit log (shore): what an explanation reads (S5.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.store.log_rows import Entries
from raglab.store.log_tables import VERSIONS


class RequestEvents:
    """Events of one request, each table read once, with the row versions that its changes made."""

    def __init__(self, log: Entries, request: Mapping[str, Any]) -> None:
        self.log, self.request = log, request
        self._tables: dict[str, list[dict[str, Any]]] = {}

    def of(self, table: str) -> list[dict[str, Any]]:
        """Events of a table, in order."""
        if table not in self._tables:
            self._tables[table] = list(self.log.rows(table, request_id=self.request["request_id"]))
        return self._tables[table]

    def versions(self, cause: int) -> list[dict[str, Any]]:
        """Versions of rows that a change made."""
        return list(self.log.rows(VERSIONS, cause=cause))

    def version(self, row_id: str, version: int) -> Mapping[str, Any] | None:
        """A version of a row, None where the log has none."""
        return self.log.row(VERSIONS, of=f"{row_id}.{version}")
