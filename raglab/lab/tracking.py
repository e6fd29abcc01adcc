"""Tracking (shore): studies as MLflow runs."""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.metrics import RATES
from raglab.store.files import Where, csv_text, input_error, make_folder, shown_value, write_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.study import TuneResult

COST = "expected_cost"
DATABASE = "mlflow.db"
MOST_NESTED = 20
_SQLITE = b"SQLite format 3\x00"  # how such a file begins
_PARAMETER_LENGTH = 500
_METRIC_NAME = re.compile(r"[^\w\-./ :]")  # what MLflow does not allow in one
_STORES = ("mlflow", "sqlalchemy", "alembic", "sqlite3")
_ADVANTAGE = ("estimate", "low", "high", "probability")


class TrackedRun(NamedTuple):
    """Where a study is to be found: its run, the store, and the command that opens it."""

    run_id: str
    experiment_id: str
    tracking_uri: str

    @property
    def command(self) -> str:
        """Shell command that serves the store on this machine only."""
        return (
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true "
            f"mlflow ui --host 127.0.0.1 --port 5000 --backend-store-uri {shlex.quote(self.tracking_uri)}"
        )

    @property
    def link(self) -> str:
        """Page of the runs, once it is served."""
        return f"http://127.0.0.1:5000/#/experiments/{self.experiment_id}/runs"


def track(result: TuneResult, folder: str | Path = "mlruns", *, report: str | Path | None = None) -> TrackedRun:
    """Log a study as one MLflow run.

    Parameters (settings, what was selected, the tuned policy), metrics (rates and expected cost of every policy, cost
    of what was selected in sample, cross-validated and judged, its advantage over the best free policy, lowest
    expected cost by trial), tags (policy_id, trace fingerprint, selected), tables (trials as Parquet; candidates and
    comparison as CSV), the policies as YAML, and the report with its figures where there is one. The best of the
    Pareto front become nested runs, at most twenty.

    Args:
      folder: holds the database and the artifacts; made where it is not there. Artifacts are found by absolute path:
        a moved folder loses them.
      report: HTML file whose page and figures are logged too.
    """
    tags = {
        "policy_id": result.policy.policy_id,
        "incumbent_id": result.incumbent.policy_id,
        "trace_fingerprint": result.tuned_on.fingerprint,
        "corpus": str(result.tuned_on.meta.get("corpus")),
        "selected": result.selected,
    }
    name = f"{result.tuned_on.meta.get('corpus')} {result.settings['sampler']} {result.settings['trials']}"
    parameters = {
        **_plain_settings(result.settings),
        "selected": result.selected,
        **{f"tuned.{path}": value for path, value in result.policy.manifest.items()},
    }
    series = _metrics(result)
    with _open_run(name, "tune", folder, tags) as run:
        run.log(parameters, series)
        with tempfile.TemporaryDirectory() as scratch:
            _log_files(result, Path(scratch))
            run.client.log_artifacts(run.id, scratch)
        if report is not None:
            _report(run.client, run.id, Path(report))
        front = result.pareto.sort_values(["feasible", COST], ascending=[False, True], kind="stable").head(MOST_NESTED)
        for row in front.to_dict("records"):
            _log_child_run(run.client, run.experiment_id, run.id, row)
    return TrackedRun(run.id, run.experiment_id, run.uri)


def track_run(
    name: str,
    experiment: str,
    params: Mapping[str, Any],
    metrics: Sequence[tuple[str, float, int]],
    tables: Mapping[str, pd.DataFrame],
    folder: str | Path = "mlruns",
    *,
    tags: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
) -> TrackedRun:
    """Log one MLflow run of any kind.

    Args:
      metrics: name, value and step of each; one that is not finite is left out. tables: name -> frame, logged as
        Parquet. texts: file name -> its text.
    """
    with _open_run(name, experiment, folder, dict(tags or {})) as run:
        run.log(params, [one for one in metrics if math.isfinite(one[1])])
        with tempfile.TemporaryDirectory() as scratch:
            for table, frame in tables.items():
                frame.to_parquet(Path(scratch) / f"{table}.parquet", index=False)
            for file, text in (texts or {}).items():
                (Path(scratch) / file).write_text(text, encoding="utf-8")
            run.client.log_artifacts(run.id, scratch)
    return TrackedRun(run.id, run.experiment_id, run.uri)


class _OpenRun(NamedTuple):
    """An open run of MLflow."""

    client: Any
    id: str
    experiment_id: str
    uri: str

    def log(self, params: Mapping[str, Any], series: Sequence[tuple[str, float, int]]) -> None:
        """Log parameters as text and metrics with their steps."""
        from mlflow.entities import Metric, Param

        texts = [Param(key, str(value)[:_PARAMETER_LENGTH]) for key, value in params.items()]
        self.client.log_batch(self.id, params=texts)
        for start in range(0, len(series), 1000):
            part = [Metric(key, value, 0, step) for key, value, step in series[start : start + 1000]]
            self.client.log_batch(self.id, metrics=part)


@contextmanager
def _open_run(name: str, experiment: str, folder: str | Path, tags: Mapping[str, str]) -> Iterator[_OpenRun]:
    """A run of an experiment in a folder, both made where they are not there; failed unless its block ends well.

    Raises:
      InputError: the folder cannot be written, or the database in it is damaged.
    """
    with _refusals(Path(folder)):
        yield from _run(name, experiment, folder, tags)


def _run(name: str, experiment: str, folder: str | Path, tags: Mapping[str, str]) -> Iterator[_OpenRun]:
    database = Path(folder).resolve() / DATABASE
    if database.exists() and not (database.is_file() and _begins(database) == _SQLITE):
        rule = "the tracking database must be one of SQLite's, as MLflow makes it"
        raise input_error(Where(str(database)), rule, "move it away, or name another folder")
    import mlflow

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    root = make_folder(Path(folder).resolve())
    uri = f"sqlite:///{(root / DATABASE).as_posix()}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(experiment)
    place = (root / "artifacts" / experiment).as_uri()
    experiment_id = (
        known.experiment_id if known is not None else client.create_experiment(experiment, artifact_location=place)
    )
    run = client.create_run(experiment_id, tags=dict(tags), run_name=name)
    ended = "FAILED"
    try:
        yield _OpenRun(client, run.info.run_id, experiment_id, uri)
        ended = "FINISHED"
    finally:
        client.set_terminated(run.info.run_id, ended)


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """What the store of the runs says, each library in types of its own, as one line; its own log stays still."""
    import mlflow.tracking  # noqa: F401 - which sets the level of its log

    log = logging.getLogger("mlflow")
    level = log.level
    log.setLevel(logging.CRITICAL)  # it prints stacks beside what it raises
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _STORES:
            raise
        rule = "the folder of the runs must be writable and its database whole"
        remedy = f"make room, take a damaged {DATABASE} away, or choose another folder; the result itself is not lost"
        raise input_error(Where(str(folder)), rule, remedy, shown_value(str(cause))) from error
    finally:
        log.setLevel(level)


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_SQLITE))


def _plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != "space"}


def _metrics(result: TuneResult) -> list[tuple[str, float, int]]:
    series = [
        (f"{_METRIC_NAME.sub('', row['policy'])}.{name}", float(row[name]), 0)
        for row in result.comparison.to_dict("records")
        for name in (*RATES, COST)
        if row[name] == row[name]
    ]
    chosen: Any = result.costs.loc[result.selected]
    series += [(f"selected.{name}", float(chosen[name]), 0) for name in ("in_sample", "cross_validated", "report")]
    gain = result.advantage
    series += [(f"advantage.{name}", float(getattr(gain, name)), 0) for name in _ADVANTAGE]
    series = [one for one in series if math.isfinite(one[1])]
    best = _best_costs(result.trials)
    step = max(1, len(best) // 500)
    series += [(f"best_{COST}", value, number) for number, value in list(enumerate(best))[::step]]
    return series


def _best_costs(trials: pd.DataFrame) -> list[float]:
    """Expected cost of the best trial so far, by trial: one that meets all targets is better than one that does not."""
    ranks = list(zip(~trials["feasible"].to_numpy(dtype=bool), trials[COST].to_numpy(), strict=True))
    return [float(cost) for _, cost in accumulate(ranks, min)]


def _log_files(result: TuneResult, folder: Path) -> None:
    result.trials.to_parquet(folder / "trials.parquet", index=False)
    result.pareto.to_parquet(folder / "pareto.parquet", index=False)
    tables = {"plateaus": result.plateaus, "comparison": result.comparison, "candidates": result.costs.reset_index()}
    for name, table in tables.items():
        write_text(csv_text(table), folder / f"{name}.csv")
    for name, policy in (("tuned", result.policy), ("defaults", result.incumbent)):
        policy.save(folder / f"{name}.yaml")


def _report(client: Any, run_id: str, page: Path) -> None:  # noqa: ANN401 - an MLflow client
    client.log_artifact(run_id, str(page))
    figures = page.with_name(f"{page.stem}_figures")
    if figures.is_dir():
        client.log_artifacts(run_id, str(figures), "figures")


def _log_child_run(client: Any, experiment_id: str, parent: str, row: Mapping[Any, Any]) -> None:  # noqa: ANN401 - an MLflow client
    from mlflow.entities import Metric, Param, RunTag

    run = client.create_run(experiment_id, tags={"mlflow.parentRunId": parent}, run_name=f"trial {row['number']}")
    values = {key: value for key, value in row.items() if "." in key}
    scores = {key: float(row[key]) for key in (*RATES, COST) if row[key] == row[key]}
    client.log_batch(
        run.info.run_id,
        metrics=[Metric(key, value, 0, 0) for key, value in scores.items()],
        params=[Param(key, str(value)) for key, value in values.items()],
        tags=[RunTag("policy_id", row["policy_id"])],
    )
    client.set_terminated(run.info.run_id)


def rate_table(result: TuneResult) -> pd.DataFrame:
    """Policies × rates as text: value, interval and count; and the expected cost."""
    import pandas as pd

    def cell(row: Mapping[Any, Any], name: str) -> str:
        k, n = int(row[f"{name}_k"]), int(row[f"{name}_n"])
        if n == 0:
            return "- (0 of 0)"
        return f"{row[name]:.3f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}] {k}/{n}"

    rows = result.comparison.to_dict("records")
    return pd.DataFrame(
        [
            {
                "policy": row["policy"],
                COST: f"{row[COST]:.3f} [{row[f'{COST}_low']:.2f}, {row[f'{COST}_high']:.2f}]",
                **{name: cell(row, name) for name in RATES},
            }
            for row in rows
        ]
    )
