"""Summary of an audit log (shore): counts by day, and the default table as a DataFrame (S6.4)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raglab.audit.log import row_gate
from raglab.decision.checks import ERROR_GATE
from raglab.store.log_rows import as_written
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    CURRENT,
    DECISIONS,
    REQUESTS,
    SETTLEMENTS,
)

if TYPE_CHECKING:
    import pandas as pd

    from raglab.audit.log import AuditLog

DAY_COUNTS = (
    "requests",
    "ok",
    "refuse",
    "ambiguous",
    "errors",
    "asked",
    "filled_in",
    "confirmed",
    "rejected",
    "silent",
    "rephrased",
)
_COUNT_BY_SIGNAL = {"explicit_yes": "confirmed", "explicit_no": "rejected"}


def days(log: AuditLog) -> pd.DataFrame:
    """Counts by day (UTC) of the request, one row a day with requests.

    ok, refuse, ambiguous: by the last decision. errors: requests whose model failed, in none of the
    three (rule S0.1). asked: clarifications. filled_in: defaults applied silently. confirmed,
    rejected: by word. silent, rephrased: how the silent ones were settled.

    Source: rule S6.4.
    """
    import pandas as pd

    with log.log.reading() as entries, as_written():
        day_by_request = {
            event_row["request_id"]: event_row["at"][:10] for event_row in entries.rows(REQUESTS)
        }
        # A later decision of a request takes the place of an earlier one; a model that failed has
        # decided nothing (rule S0.1).
        outcomes = {
            event_row["request_id"]: "errors"
            if any(check["gate"] == ERROR_GATE for check in event_row["checks"])
            else event_row["status"]
            for event_row in entries.rows(DECISIONS)
        }
        request_events = list(outcomes.items())
        request_events += [
            (event_row["request_id"], "asked") for event_row in entries.rows(CLARIFICATIONS)
        ]
        request_events += [
            (event_row["request_id"], "filled_in") for event_row in entries.rows(APPLICATIONS)
        ]
        request_events += [
            (event_row["request_id"], _COUNT_BY_SIGNAL[event_row["signal"]])
            for event_row in entries.rows(CHANGES)
            if event_row["signal"] in _COUNT_BY_SIGNAL
        ]
        request_events += [
            (event_row["request_id"], event_row["outcome"])
            for event_row in entries.rows(SETTLEMENTS)
        ]
        event_counts = Counter((day_text, "requests") for day_text in day_by_request.values())
        event_counts.update(
            (day_by_request[request_id], event_name) for request_id, event_name in request_events
        )
    day_rows = [
        (day_text, *(event_counts[day_text, event_name] for event_name in DAY_COUNTS))
        for day_text in sorted(set(day_by_request.values()))
    ]
    return pd.DataFrame(day_rows, columns=["day", *DAY_COUNTS])


def defaults(log: AuditLog) -> pd.DataFrame:
    """The default table, each row with its gate under the log's learner settings."""
    import pandas as pd

    with log.log.reading() as entries:
        has_rows = entries.row(CURRENT) is not None
    return pd.DataFrame(
        [
            {
                "target_field": default_row.target_field,
                "doctype": default_row.doctype,
                "sub_conditions": ", ".join(
                    f"{condition_name}={option_value}"
                    for condition_name, option_value in sorted(default_row.sub_conditions.items())
                ),
                "votes": ", ".join(
                    f"{option_value} {option_votes:g}"
                    for option_value, option_votes in default_row.candidate_votes.items()
                ),
                "confidence": default_row.confidence,
                "sample_size": default_row.sample_size,
                "gate": row_gate(default_row, log.learner),
                "requests": default_row.requests,
                "version": default_row.version,
                "last_refreshed": default_row.last_refreshed.isoformat(timespec="seconds"),
                "row_id": default_row.row_id,
            }
            for default_row in (log.rows() if has_rows else ())
        ]
    )
