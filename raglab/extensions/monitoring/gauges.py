"""Gauges (shore): what a monitor says, for Prometheus (S6.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raglab.live.prometheus import MetricTable, tables_text

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("promise", "policy")
GAUGES = (
    (
        "raglab_promise_alarm",
        "gauge",
        "is_alarm",
        1.0,
        "Whether the promise had an alarm; it stays 1",
    ),
    (
        "raglab_promise_held",
        "gauge",
        "is_held",
        1.0,
        "Whether the promise is held on average since the start",
    ),
    (
        "raglab_promise_log_wealth_alarm",
        "gauge",
        "log_wealth_alarm",
        1.0,
        "Log wealth since the start, of a broken promise",
    ),
    (
        "raglab_promise_bar_alarm",
        "gauge",
        "bar_alarm",
        1.0,
        "Bar of the alarm since the start; each restart has its own",
    ),
    (
        "raglab_promise_log_wealth_held",
        "gauge",
        "log_wealth_held",
        1.0,
        "Log wealth since the start, of a held promise",
    ),
    (
        "raglab_promise_bar_held",
        "gauge",
        "bar_held",
        1.0,
        "Log wealth at which the promise is held",
    ),
    (
        "raglab_promise_alarm_rate",
        "gauge",
        "alarm_rate",
        1.0,
        "Rate of the rows that the alarm is about, weighted",
    ),
    (
        "raglab_promise_rate",
        "gauge",
        "estimate",
        1.0,
        "Rate since the start, weighted, without an interval",
    ),
    ("raglab_promise_alpha", "gauge", "alpha", 1.0, "Rate that is promised at most"),
    ("raglab_promise_labelled", "gauge", "labelled", 1.0, "Labelled rows since the start"),
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
