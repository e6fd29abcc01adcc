"""Versions of rows folded anew from their changes, each row once, as far as one request needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.default_learner import ClarificationDefault
from raglab.lab._audited import versions
from raglab.store.audit import Entries
from raglab.store.requests import CHANGES, of_request


class Anew:
    """Rows as they were for one request."""

    def __init__(self, log: Entries, request: Mapping[str, Any]) -> None:
        self._log = log
        self._until = max((int(row["seq"]) for row in of_request(log, CHANGES, request["request_id"])), default=0)
        self._known: dict[str, tuple[int, dict[int, ClarificationDefault], list[str]]] = {}

    def row(self, row_id: str, version: int, cause: int) -> tuple[ClarificationDefault | None, list[str]]:
        """A version of a row, None where its changes do not give it; and what is wrong with these.

        Args:
          cause: number of the change that made it, as the log has it.
        """
        known = self._known.get(row_id)
        if known is None or known[0] < cause:
            until = max(cause, self._until)
            found, wrong = self._folded(row_id, until)
            known = self._known[row_id] = (until, found, wrong)
        return known[1].get(version), known[2]

    def _folded(self, row_id: str, until: int) -> tuple[dict[int, ClarificationDefault], list[str]]:
        found: dict[int, ClarificationDefault] = {}
        try:
            for row in versions(self._log, row_id, until):
                if row.row_id == row_id:
                    found[row.version] = row
        except (ValueError, KeyError, TypeError) as error:
            return found, [f"row {row_id} cannot be rebuilt: {error}"]
        return found, []
