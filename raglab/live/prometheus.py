"""Metrics for Prometheus (shore): arms of the bandit, live rates of the audit (S4.6, S6.4).

They are in a text file or over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from raglab.store.files import write_text

if TYPE_CHECKING:
    import pandas as pd

LOCALHOST = "127.0.0.1"
ARM_METRICS = (
    ("raglab_bandit_pulls", "counter", "pulls", 1.0, "Choices of the arm"),
    ("raglab_bandit_rewards", "counter", "rewards", 1.0, "Choices with a reward"),
    ("raglab_bandit_wins", "gauge", "wins", 1.0, "Rewards above the threshold"),
    ("raglab_bandit_win_ratio", "gauge", "win_rate", 1.0, "Share of wins"),
    ("raglab_bandit_reward_mean", "gauge", "mean_reward", 1.0, "Mean reward"),
    ("raglab_bandit_latency_mean_seconds", "gauge", "mean_ms", 1e-3, "Mean time to answer"),
    ("raglab_bandit_latency_p95_seconds", "gauge", "p95_ms", 1e-3, "P95 of that time"),
)
RATE_METRICS = (
    ("raglab_live_rate", "gauge", "estimate", 1.0, "Live rate"),
    ("raglab_live_rate_low", "gauge", "low", 1.0, "Lower end"),
    ("raglab_live_rate_high", "gauge", "high", 1.0, "Upper end"),
    ("raglab_live_rate_known", "gauge", "known", 1.0, "Requests with label or feedback"),
    ("raglab_live_rate_unknown", "gauge", "unknown", 1.0, "Requests without"),
    ("raglab_live_rate_requests", "gauge", "requests", 1.0, "Requests of the window"),
    ("raglab_live_rate_errors", "gauge", "errors", 1.0, "Requests whose model failed"),
)
Measured: TypeAlias = Callable[[], "pd.DataFrame"]
MetricRow: TypeAlias = tuple[str, str, str, float, str]  # name, kind, column, unit, what it is


class MetricTable(NamedTuple):
    """A table whose columns are metrics.

    How it is measured, its metrics, and the columns that label its rows.
    """

    measured: Measured
    metrics: Sequence[MetricRow]
    labels: tuple[str, ...]


class Serving(NamedTuple):
    """An endpoint at work on http://127.0.0.1:port/metrics; `close` ends it."""

    port: int
    close: Callable[[], None]


def metrics_text(arms: pd.DataFrame | None = None, rates: pd.DataFrame | None = None) -> str:
    """Metrics in the text format of Prometheus.

    Args:
      arms: of `Online.arms_frame`, with the label `arm`.
      rates: of `audit.live_rates.live_rates`, one window, with the labels `rate` and `source`. NaN,
        where nothing has come, is left out.

    Raises:
      ImportError: the extra is not installed.

    Source: rules S4.6, S6.4.
    """
    return tables_text(
        _live_tables(
            None if arms is None else lambda: arms, None if rates is None else lambda: rates
        )
    )


def tables_text(tables: Sequence[MetricTable]) -> str:
    """Metrics of any tables in the text format of Prometheus; NaN is left out.

    Args:
      tables: an extension may state its own.

    Raises:
      ImportError: the extra is not installed.

    Source: rules S4.6, S6.4.
    """
    metric_registry = _registry(tables)
    from prometheus_client import generate_latest

    return str(generate_latest(metric_registry).decode())


def _live_tables(arms: Measured | None, rates: Measured | None) -> list[MetricTable]:
    """Tables of the bandit's arms and of the live rates, as far as they are measured."""
    table_settings = ((arms, ARM_METRICS, ("arm",)), (rates, RATE_METRICS, ("rate", "source")))
    return [
        MetricTable(measure_table, metric_rows, label_columns)
        for measure_table, metric_rows, label_columns in table_settings
        if measure_table is not None
    ]


def write_metrics(
    arms: pd.DataFrame | None, path: str | Path, *, rates: pd.DataFrame | None = None
) -> None:
    """Write the metrics as a text file, whole or not at all, as a textfile collector reads it."""
    write_text(metrics_text(arms, rates), Path(path))


def serve(arms: Measured | None, port: int = 0, *, rates: Measured | None = None) -> Serving:
    """Serve the metrics over HTTP to this machine alone, measured anew for each request.

    Args:
      arms: gives the table, such as `online.arms_frame`.
      port: 0 is any that is free.
      rates: gives the live rates.

    Raises:
      ImportError: the extra is not installed.
      OSError: the port is taken.
    """
    metric_registry = _registry(_live_tables(arms, rates))
    from prometheus_client import start_http_server

    try:
        http_server, server_thread = start_http_server(
            port, addr=LOCALHOST, registry=metric_registry
        )
    except OSError as error:
        requirement = f"port must be free on {LOCALHOST}, got {port}, {error.strerror}"
        message = f"{requirement}; choose another, or 0."
        raise OSError(message) from None

    def close() -> None:
        http_server.shutdown()
        http_server.server_close()
        server_thread.join()

    return Serving(int(http_server.server_port), close)


def _registry(tables: Sequence[MetricTable]) -> Any:  # noqa: ANN401 - of a library that is an extra
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        message = 'metrics need prometheus_client; pip install "raglab-toolkit[prometheus]".'
        raise ImportError(message) from error
    family_types = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

    class Collected:
        def collect(self) -> Iterator[Any]:
            for measure_table, metric_rows, label_columns in tables:
                metric_table = measure_table()
                label_values = [
                    tuple(map(str, label_row))
                    for label_row in metric_table[list(label_columns)].itertuples(index=False)
                ]
                for metric_name, metric_kind, column_name, unit_factor, description in metric_rows:
                    metric_family = family_types[metric_kind](
                        metric_name, f"{description}.", labels=label_columns
                    )
                    for row_labels, metric_value in zip(
                        label_values, metric_table[column_name], strict=True
                    ):
                        if metric_value == metric_value:  # noqa: PLR0124 - NaN says nothing
                            metric_family.add_metric(row_labels, float(metric_value) * unit_factor)
                    yield metric_family

    metric_registry = CollectorRegistry(auto_describe=False)
    metric_registry.register(Collected())
    return metric_registry
