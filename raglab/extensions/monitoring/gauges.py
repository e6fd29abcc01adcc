"""Gauges (shore): what a monitor says, for Prometheus (S6.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raglab.live.prometheus import MetricTable, tables_text

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("promise", "policy")
GAUGES = tuple(
    (f"raglab_promise_{name}", "gauge", column, 1.0, text)
    for name, column, text in (
        ("alarm", "is_alarm", "1 from the first alarm on"),
        ("held", "is_held", "Held on average since the start"),
        ("log_wealth_alarm", "log_wealth_alarm", "Against the promise, since the start"),
        ("bar_alarm", "bar_alarm", "Of the alarm since the start"),
        ("log_wealth_held", "log_wealth_held", "For the promise, since the start"),
        ("bar_held", "bar_held", "Of held"),
        ("alarm_rate", "alarm_rate", "Of the rows of the alarm"),
        ("rate", "estimate", "Since the start, weighted, without an interval"),
        ("alpha", "alpha", "Highest rate promised"),
        ("labelled", "labelled", "Rows since the start"),
    )
)


def gauges_text(table: pd.DataFrame, policy_id: str) -> str:
    """Gauges in the text format of Prometheus, with the labels promise and policy.

    Args:
      table: of a monitor.
      policy_id: of the certified policy.

    Raises:
      ImportError: the extra is not installed.
    """
    rows = table.assign(policy=policy_id, is_alarm=table["verdict"] == "alarm")
    return tables_text([MetricTable(lambda: rows, GAUGES, LABELS)])
