"""Logged defaults (shore): rows of the default table, folded from audit log events (S5.3, S5.8)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raglab.audit.default_table import DefaultTable, Key, ReplayedUses, RowKey
from raglab.audit.log import json_value
from raglab.audit.request_events import RequestEvents
from raglab.default_learner import ClarificationDefault, ClarificationRequest, DefaultLearner
from raglab.extensions.clarification.default_rows import (
    DefaultRows,
    SignalEvent,
    application_of,
    current_rows,
    key_of_row,
    pending_of,
    record_request,
    record_signal,
    row_versions,
    sort_rows,
)
from raglab.extensions.clarification.replayed_defaults import (
    ReplayedRows,
    replay_defaults,
    signal_changes,
)
from raglab.extensions.clarification.silence import record_application, settle
from raglab.store.log_rows import Entries
from raglab.store.log_tables import CLARIFICATIONS, request_row
from raglab.values import refuse


class LoggedDefaults:
    """The default table; see `raglab.audit.default_table.DefaultTable`."""

    rows = staticmethod(current_rows)
    fill_in = staticmethod(record_application)
    settle = staticmethod(settle)
    pending = staticmethod(pending_of)
    application = staticmethod(application_of)

    def rebuild(self, log: Entries) -> DefaultRows:
        """Rows from their changes alone."""
        return sort_rows({row.row_id: row for row in row_versions(log)}.values())

    def meet(
        self, log: Entries, request_id: str, key: Key, learner: DefaultLearner, at: datetime
    ) -> ClarificationDefault:
        """Row after a request came to it, which counts once."""
        return record_request(log, request_id, RowKey(*key), learner, at)

    def clarify(self, log: Entries, row: Mapping[str, Any], request: ClarificationRequest) -> None:
        """Log what the user is asked, once a request.

        Raises:
          ValueError: request or row is not in the log, or the request was asked about already.
        """
        request_id = row["request_id"]
        request_row(log, request_id)
        key_of_row(log, row["row_id"])
        if log.row(CLARIFICATIONS, request_id=request_id) is not None:
            refuse(
                "a request may be asked about once",
                f"a second clarification of {request_id!r}",
                "decide it",
            )
        columns = {
            "target_field": request.target_field,
            "question_to_user": request.question_to_user,
            "candidates": list(request.candidate_values),
            "proposed": request.proposed_default,
            "proposed_reason": request.proposed_default_reason,
            "audit": json_value(request.audit),
        }
        log.add(CLARIFICATIONS, {**row, **columns})

    def learn(
        self,
        log: Entries,
        request_id: str,
        key: Key,
        signal: tuple[str, str, str | None],
        conditions: Mapping[str, str],
        learner: DefaultLearner,
        at: datetime,
    ) -> tuple[ClarificationDefault, ...]:
        """New versions by a signal; see `default_rows.record_signal`."""
        return record_signal(
            log, request_id, RowKey(*key), SignalEvent(*signal), conditions, learner, at
        )

    def replay(self, events: RequestEvents, learner: DefaultLearner) -> ReplayedUses:
        """What a request did with the table, rebuilt from the changes before it."""
        rows = ReplayedRows(events)
        defaults, differences = replay_defaults(events, rows, learner)
        signals, more = signal_changes(events, rows)
        return ReplayedUses(defaults, signals, (*differences, *more))


LOGGED_DEFAULTS: DefaultTable = LoggedDefaults()
