"""What the audit log shows without labels: refusals, questions, defaults and corrections by day; the default table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raglab.default_learner import gate
from raglab.store.requests import APPLICATIONS, CHANGES, CLARIFICATIONS, DECISIONS, REQUESTS, SETTLEMENTS

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.audit_log import AuditLog
    from raglab.store.audit import Entries

COUNTS = ("requests", "ok", "refuse", "ambiguous", "asked", "filled_in", "confirmed", "rejected", "silent", "rephrased")
_TOLD = {"explicit_yes": "confirmed", "explicit_no": "rejected"}


def days(log: AuditLog) -> pd.DataFrame:
    """Counts by day (UTC) of the request, one row a day with requests.

    ok, refuse, ambiguous: by the last decision. asked: clarifications. filled_in: defaults applied silently. confirmed,
    rejected: by word. silent, rephrased: how the silent ones were settled.

    Source: rule S6.4.
    """
    with log.log.reading() as entries:
        return _counted(entries)


def _counted(log: Entries) -> pd.DataFrame:
    import pandas as pd

    day = {row["request_id"]: row["at"][:10] for row in log.rows(REQUESTS)}
    status = {row["request_id"]: row["status"] for row in log.rows(DECISIONS)}
    seen: Counter[tuple[str, str]] = Counter((at, "requests") for at in day.values())
    seen.update((day[request], name) for request, name in status.items())
    for table, name in ((CLARIFICATIONS, "asked"), (APPLICATIONS, "filled_in")):
        seen.update((day[row["request_id"]], name) for row in log.rows(table))
    seen.update((day[row["request_id"]], _TOLD[row["signal"]]) for row in log.rows(CHANGES) if row["signal"] in _TOLD)
    seen.update((day[row["request_id"]], row["outcome"]) for row in log.rows(SETTLEMENTS))
    rows = [(at, *(seen[at, name] for name in COUNTS)) for at in sorted(set(day.values()))]
    return pd.DataFrame(rows, columns=["day", *COUNTS])


def defaults(log: AuditLog) -> pd.DataFrame:
    """The default table, each row with its gate under the log's learner settings."""
    import pandas as pd

    limits = {"ask_below": log.learner.ask_below, "apply_above": log.learner.apply_above}
    return pd.DataFrame(
        [
            {
                "target_field": row.target_field,
                "doctype": row.doctype,
                "sub_conditions": ", ".join(f"{name}={value}" for name, value in sorted(row.sub_conditions.items())),
                "votes": ", ".join(f"{value} {votes:g}" for value, votes in row.candidate_votes.items()),
                "confidence": row.confidence,
                "sample_size": row.sample_size,
                "gate": gate(row, **limits),
                "requests": row.requests,
                "version": row.version,
                "last_refreshed": row.last_refreshed.isoformat(timespec="seconds"),
                "row_id": row.row_id,
            }
            for row in log.rows()
        ]
    )
