"""Metrics for Prometheus (shore): what each arm of the bandit at work does, as a text file or over HTTP (S4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.store.files import write_text

if TYPE_CHECKING:
    import pandas as pd

LOCALHOST = "127.0.0.1"
METRICS = (
    ("raglab_bandit_pulls", "counter", "pulls", 1.0, "Questions that the arm was chosen for"),
    ("raglab_bandit_rewards", "counter", "rewards", 1.0, "Pulls whose reward has come"),
    ("raglab_bandit_wins", "gauge", "wins", 1.0, "Rewards above the threshold; a thumb may take one back"),
    ("raglab_bandit_win_ratio", "gauge", "win_rate", 1.0, "Share of rewards above the threshold"),
    ("raglab_bandit_reward_mean", "gauge", "mean_reward", 1.0, "Mean reward"),
    ("raglab_bandit_latency_mean_seconds", "gauge", "mean_ms", 1e-3, "Mean time to an answer"),
    ("raglab_bandit_latency_p95_seconds", "gauge", "p95_ms", 1e-3, "P95 of the time to an answer"),
)


class Serving(NamedTuple):
    """An endpoint at work on http://127.0.0.1:port/metrics; `close` ends it."""

    port: int
    close: Callable[[], None]


def metrics_text(arms: pd.DataFrame) -> str:
    """Metrics in the text format of Prometheus, each with the label `arm`.

    Args:
      arms: of `Online.arms_frame`; NaN where nothing has come is left out.

    Raises:
      ImportError: the extra is not installed.

    Source: rule S4.6.
    """
    from prometheus_client import generate_latest

    return str(generate_latest(_registry(lambda: arms)).decode())


def write_metrics(arms: pd.DataFrame, path: str | Path) -> None:
    """Write the metrics as a text file, whole or not at all, as a textfile collector reads it."""
    write_text(metrics_text(arms), Path(path))


def serve(arms: Callable[[], pd.DataFrame], port: int = 0) -> Serving:
    """Serve the metrics over HTTP to this machine alone, measured anew for each request.

    Args:
      arms: gives the table, such as `online.arms_frame`. port: 0 is any that is free.

    Raises:
      ImportError: the extra is not installed.
      OSError: the port is taken.
    """
    registry = _registry(arms)
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr=LOCALHOST, registry=registry)
    except OSError as error:
        msg = f"port must be free on {LOCALHOST}, got {port}, {error.strerror}; choose another, or 0 for any."
        raise OSError(msg) from None

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return Serving(int(server.server_port), close)


def _registry(arms: Callable[[], pd.DataFrame]) -> Any:  # noqa: ANN401 - of a library that is an extra
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        msg = 'metrics need prometheus_client, which is not installed; pip install "raglab[prometheus]".'
        raise ImportError(msg) from error
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

    class Collected:
        def collect(self) -> Iterator[Any]:
            table = arms()
            for name, kind, column, unit, says in METRICS:
                family = kinds[kind](name, f"{says}.", labels=["arm"])
                for arm, value in zip(table["arm"], table[column], strict=True):
                    if value == value:  # noqa: PLR0124 - NaN says nothing
                        family.add_metric([str(arm)], float(value) * unit)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    return registry
