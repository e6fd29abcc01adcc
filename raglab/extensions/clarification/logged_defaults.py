"""Keeper of the default table (shore): its protocol on an audit log, requests logged (S5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.audit.default_table import DefaultTable
from raglab.audit.log import json_value
from raglab.default_learner import ClarificationRequest
from raglab.extensions.clarification.default_rows import (
    application_of,
    current_rows,
    key_of_row,
    pending_of,
    rebuilt_rows,
    record_request,
    record_signal,
)
from raglab.extensions.clarification.replayed_defaults import replay_uses
from raglab.extensions.clarification.silence import record_application, settle
from raglab.store.log_rows import Entries
from raglab.store.log_tables import CLARIFICATIONS, request_row
from raglab.values import refuse


def record_clarification(
    log: Entries, row: Mapping[str, Any], request: ClarificationRequest
) -> None:
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


class LoggedDefaults:
    """The default table; see `raglab.audit.default_table.DefaultTable`."""

    rows = staticmethod(current_rows)
    rebuild = staticmethod(rebuilt_rows)
    meet = staticmethod(record_request)
    clarify = staticmethod(record_clarification)
    fill_in = staticmethod(record_application)
    learn = staticmethod(record_signal)
    settle = staticmethod(settle)
    pending = staticmethod(pending_of)
    application = staticmethod(application_of)
    replay = staticmethod(replay_uses)


LOGGED_DEFAULTS: DefaultTable = LoggedDefaults()
