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

COUNTS = (
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
_SIGNAL_COUNTS = {"explicit_yes": "confirmed", "explicit_no": "rejected"}


def days(log: AuditLog) -> pd.DataFrame:
    """Counts by day (UTC) of the request, one row a day with requests.

    ok, refuse, ambiguous: by the last decision. errors: requests whose model failed, in none of the
    three (rule S0.1). asked: clarifications. filled_in: defaults applied silently. confirmed,
    rejected: by word. silent, rephrased: how the silent ones were settled.

    Source: rule S6.4.
    """
    import pandas as pd

    with log.log.reading() as entries, as_written():
        day = {row["request_id"]: row["at"][:10] for row in entries.rows(REQUESTS)}
        # A later decision of a request takes the place of an earlier one; a model that failed has
        # decided nothing (rule S0.1).
        outcomes = {
            row["request_id"]: "errors"
            if any(check["gate"] == ERROR_GATE for check in row["checks"])
            else row["status"]
            for row in entries.rows(DECISIONS)
        }
        events = list(outcomes.items())
        events += [(row["request_id"], "asked") for row in entries.rows(CLARIFICATIONS)]
        events += [(row["request_id"], "filled_in") for row in entries.rows(APPLICATIONS)]
        events += [
            (row["request_id"], _SIGNAL_COUNTS[row["signal"]])
            for row in entries.rows(CHANGES)
            if row["signal"] in _SIGNAL_COUNTS
        ]
        events += [(row["request_id"], row["outcome"]) for row in entries.rows(SETTLEMENTS)]
        counts = Counter((at, "requests") for at in day.values())
        counts.update((day[request_id], name) for request_id, name in events)
    rows = [(at, *(counts[at, name] for name in COUNTS)) for at in sorted(set(day.values()))]
    return pd.DataFrame(rows, columns=["day", *COUNTS])


def defaults(log: AuditLog) -> pd.DataFrame:
    """The default table, each row with its gate under the log's learner settings."""
    import pandas as pd

    with log.log.reading() as entries:
        begun = entries.row(CURRENT) is not None
    return pd.DataFrame(
        [
            {
                "target_field": row.target_field,
                "doctype": row.doctype,
                "sub_conditions": ", ".join(
                    f"{name}={value}" for name, value in sorted(row.sub_conditions.items())
                ),
                "votes": ", ".join(
                    f"{value} {votes:g}" for value, votes in row.candidate_votes.items()
                ),
                "confidence": row.confidence,
                "sample_size": row.sample_size,
                "gate": row_gate(row, log.learner),
                "requests": row.requests,
                "version": row.version,
                "last_refreshed": row.last_refreshed.isoformat(timespec="seconds"),
                "row_id": row.row_id,
            }
            for row in (log.rows() if begun else ())
        ]
    )
