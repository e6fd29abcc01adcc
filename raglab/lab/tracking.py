"""Tracking (shore): studies as MLflow runs."""

from __future__ import annotations

import logging
import math
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from raglab.arguments.user_warnings import warn_user
from raglab.lab.artifact_places import (
    STORED_PLACES,
    ArtifactPlaces,
    artifact_places,
    check_database,
    check_stored_places,
    table_names,
)
from raglab.lab.store_errors import (
    as_store_errors,
    check_server,
    opening_lock,
    sqlite_files,
    store_error,
)
from raglab.lab.tracked_model import save_model, unstated_signals
from raglab.metrics import RATES, SAMPLE
from raglab.store.files import (
    InputError,
    Where,
    csv_text,
    input_error,
    make_folder,
    scratch_folder,
    write_text,
)
from raglab.words.canonical import canonical_json

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.study_result import TuneResult

COST_COLUMN = "expected_cost"
HEADLINE_METRICS = (
    "coverage",
    COST_COLUMN,
    "hallucination_rate",
)  # metrics of a run outside of groups
DEFAULT_FOLDER = "mlruns"
DATABASE_NAME = "mlflow.db"
ARTIFACT_FOLDER = "artifacts"
STORE_VARIABLE = "MLFLOW_TRACKING_URI"
PAGE_PORT = 5000
# two processes, not nine
QUIET_SETTINGS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_SQLITE_HEADER = b"SQLite format 3\x00"  # how such a file begins
_PARAMETER_LENGTH = 500
_CORPUS_NAME_LENGTH = 60  # of the corpus in a run's name
_CURVE_STEPS = 500  # of a curve
_INTERVAL_SUFFIXES = ("", "_low", "_high")
_ADVANTAGE_FIELDS = ("estimate", "low", "high", "p")


class TrackedRun(NamedTuple):
    """Where a study is to be found: its run, the store, and the command that opens it."""

    run_id: str
    experiment_id: str
    tracking_uri: str

    @property
    def command(self) -> str:
        """Shell command that serves the store on this machine only; empty where a server has it."""
        if _is_server(self.tracking_uri):
            return ""
        program = "mlflow"
        if not shutil.which(program):
            program = Path(sys.executable).with_name(program).as_posix()
        quiet_settings = (f"{variable}={setting}" for variable, setting in QUIET_SETTINGS.items())
        return shlex.join([*quiet_settings, program, *_served(self.tracking_uri, PAGE_PORT)])

    @property
    def link(self) -> str:
        """Page of the runs, once it is served."""
        local_address = f"http://127.0.0.1:{PAGE_PORT}"
        server_address = self.tracking_uri if _is_server(self.tracking_uri) else local_address
        return f"{server_address.rstrip('/')}/#/experiments/{self.experiment_id}/runs"


class TrackedData(NamedTuple):
    """What a study was made of: name of the corpus, id of the whole trace, cases by split."""

    name: str
    trace: str
    splits: Mapping[str, int]


def track(
    result: TuneResult,
    folder: str | Path | None = None,
    *,
    report: str | Path | None = None,
    files: Sequence[str | Path] = (),
) -> TrackedRun:
    """Log a study as one MLflow run.

    Its name is `data set · policy · date`, the date in UTC, and its dataset the trace, by id and
    splits. MLflow sorts metrics by name: `coverage`, `expected_cost` and `hallucination_rate` of
    the tuned policy on the judged cases are first, all others are in groups behind them: every rate
    with its interval (`judged/`), the best cost by trial (`search/`), the selected candidate
    (`selected/`), nested estimate and advantage (`study/`). Of a policy that was fitted or chosen
    on these cases the group is `in_sample/`, and the first three are left out (rule S6.5).
    Parameters, tags (policy_id, targets, trace_fingerprint, selected, incumbent), tables (trials as
    Parquet; candidates and comparison as CSV), policies as YAML, and the report with its figures
    if any. `model` is the tuned policy as a model of MLflow that decides a DataFrame,
    see `raglab.lab.tracked_model`; one that reads signals of the user has none. Each policy of the
    comparison is a nested run with the same metrics.

    Args:
      result: of `tune`.
      folder: for the database and the artifacts; made where it does not exist. A folder that was
        moved or copied holds its own artifacts: they are written to it and read from it. Where not
        given: the store that MLFLOW_TRACKING_URI names, such as a server, else `mlruns`. A store
        may have artifacts written in its own folder, or by its own server, and elsewhere only in
        places that RAGLAB_ARTIFACTS names.
      report: HTML file whose page and figures are logged too.
      files: further files to log.

    Warns:
      UserWarning: no model is logged, since the policy reads signals of the user or no column
        `score`.
    """
    corpus_name = str(result.tuned_on.meta.get("corpus"))
    trace_id = str(result.settings["trace"])
    # A run is found by its tags; its parameters say how to make it again.
    tags = {
        "policy_id": result.policy.policy_id,
        "default_policy_id": result.default_policy.policy_id,
        "trace_fingerprint": trace_id,
        "corpus": corpus_name,
        "selected": result.selected,
        "incumbent": result.incumbent,
        "basis": result.basis,
        "targets": ", ".join(f"{rate} {target:g}" for rate, target in result.goal.targets.items())
        or "least cost",
        "mix": str(result.goal.traffic or result.settings.get("weighed", SAMPLE)),
        "mlflow.note.content": "\n".join(result.notes),
    }
    parameters = {
        **{setting: value for setting, value in result.settings.items() if setting != "space"},
        **result.selection_settings,
        "selected": result.selected,
        **{f"tuned.{path}": value for path, value in result.policy.manifest.items()},
    }
    judged_rows: dict[str, Any] = dict(
        zip(result.policies, result.judged.to_dict("records"), strict=True)
    )
    in_sample = result.in_sample
    # Without a split for judging the same cases served for both, and the data of the run say so.
    split_sizes = {"all": len(result.judged_on)}
    if result.judged_on is not result.tuned_on:
        split_sizes = {"tune": len(result.tuned_on), "report": len(result.judged_on)}
    # The id first: MLflow cuts names in its list of runs, and studies often select the same rule.
    policy_name = f"{result.policy.policy_id} {result.selected}"
    today = datetime.now(UTC).date()
    run_name = f"{corpus_name[:_CORPUS_NAME_LENGTH]} · {policy_name} · {today.isoformat()}"
    with _open_run(
        run_name, "tune", folder, tags, TrackedData(corpus_name, trace_id, split_sizes)
    ) as run:
        run.log(
            parameters,
            [
                *_policy_metrics(judged_rows["tuned"], in_sample="tuned" in in_sample),
                *_study_metrics(result),
            ],
        )
        with run.logged_files() as scratch:
            _log_files(result, scratch)
        for logged_file in (*([report] if report is not None else []), *files):
            run.log_page(Path(logged_file))
        # A nested run for each policy, so that the table of MLflow compares them.
        for policy_name, policy_row in judged_rows.items():
            policy_metrics = _policy_metrics(policy_row, in_sample=policy_name in in_sample)
            run.log_nested(policy_name, policy_metrics, {"policy_id": policy_row["policy_id"]})
    return TrackedRun(run.id, run.experiment_id, run.uri)


def track_run(
    name: str,
    experiment: str,
    params: Mapping[str, Any],
    metrics: Sequence[tuple[str, float, int]],
    tables: Mapping[str, pd.DataFrame],
    folder: str | Path | None = None,
    *,
    tags: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    data: TrackedData | None = None,
) -> TrackedRun:
    """Log one MLflow run of any kind.

    Args:
      metrics: name, value and step of each; one that is not finite is left out.
      tables: name -> frame, logged as Parquet.
      folder: as for `track`.
      texts: file name -> its text.
      data: what it was made of.
    """
    with _open_run(name, experiment, folder, dict(tags or {}), data) as run:
        run.log(params, _finite(metrics))
        with run.logged_files() as scratch:
            for table_name, frame in tables.items():
                frame.to_parquet(scratch / f"{table_name}.parquet", index=False)
            for file_name, file_text in (texts or {}).items():
                (scratch / file_name).write_text(file_text, encoding="utf-8")
    return TrackedRun(run.id, run.experiment_id, run.uri)


def search_metrics(
    trials: pd.DataFrame, comparison: pd.DataFrame, measures: Sequence[str]
) -> list[tuple[str, float, int]]:
    """Metrics of a search by one value: `<policy>.<measure>`, and the best value by trial.

    Args:
      comparison: a row a policy.
      measures: columns of the comparison.
    """
    metric_rows = [
        (f"{policy_row['policy']}.{measure}".replace(" ", "_"), float(policy_row[measure]), 0)
        for policy_row in comparison.to_dict("records")
        for measure in measures
    ]
    best_values = trials["value"].where(trials["feasible"]).cummax()
    return [
        *metric_rows,
        *(
            ("best_value", float(value), trial_number)
            for trial_number, value in enumerate(best_values)
        ),
    ]


class _OpenRun(NamedTuple):
    """An open run of MLflow. places: where its files may be written. root: folder of its store."""

    client: Any
    id: str
    experiment_id: str
    uri: str
    places: ArtifactPlaces
    root: Path

    def check_place(self) -> None:
        """Refuse the place of the run's files as the store names it now, before any is written.

        Raises:
          InputError: a place where the store may not have files written.
        """
        self.places.check(str(self.client.get_run(self.id).info.artifact_uri))

    @contextmanager
    def logged_files(self) -> Iterator[Path]:
        """Folder whose files are logged at the end of its block.

        MLflow takes artifacts as files only; here they are of no use once it has them.
        """
        with scratch_folder(self.root) as folder:
            yield folder
            self.log_folder(folder)

    def log_folder(self, folder: Path, name: str | None = None) -> None:
        """Log the files of a folder, below a name where one is given."""
        self.check_place()
        self.client.log_artifacts(self.id, str(folder), name)

    def log_page(self, page: Path) -> None:
        """Log a file, and the figures beside it where it is a report."""
        self.check_place()
        self.client.log_artifact(self.id, str(page))
        figure_folder = page.with_name(f"{page.stem}_figures")
        if figure_folder.is_dir():
            self.log_folder(figure_folder, "figures")

    def log(self, params: Mapping[str, Any], series: Sequence[tuple[str, float, int]]) -> None:
        """Log parameters as text and metrics with their steps."""
        from mlflow.entities import Metric, Param

        parameters = [Param(name, str(value)[:_PARAMETER_LENGTH]) for name, value in params.items()]
        metrics = [Metric(name, value, 0, step) for name, value, step in series]
        self.client.log_batch(self.id, params=parameters)
        for batch_start in range(0, len(metrics), 1000):
            self.client.log_batch(self.id, metrics=metrics[batch_start : batch_start + 1000])

    def log_nested(
        self, name: str, metrics: Sequence[tuple[str, float, int]], tags: Mapping[str, str]
    ) -> None:
        """Log a finished run below this one."""
        run = self.client.create_run(
            self.experiment_id, tags={"mlflow.parentRunId": self.id, **tags}, run_name=name
        )
        self._replace(id=run.info.run_id).log({}, metrics)
        self.client.set_terminated(run.info.run_id)

    def log_data(self, data: TrackedData) -> None:
        """Log what the run was made of as its dataset."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=data.name,
            digest=data.trace,
            source_type="raglab trace",
            source=canonical_json({"trace": data.trace}),
            profile=canonical_json({"cases": sum(data.splits.values()), **data.splits}),
        )
        split_tag = InputTag("mlflow.data.context", ", ".join(data.splits))
        self.client.log_inputs(self.id, [DatasetInput(dataset, [split_tag])])


@contextmanager
def _open_run(
    run_name: str,
    experiment_name: str,
    folder: str | Path | None,
    tags: Mapping[str, str],
    data: TrackedData | None,
) -> Iterator[_OpenRun]:
    """A run of an experiment in a store, both made where they are not there.

    Failed unless its block ends well.

    Raises:
      InputError: the store is locked, away, full, closed, damaged, or names a place for artifacts
        that is not its own; or the experiment was deleted.
    """
    environment_uri = None if folder is not None else os.environ.get(STORE_VARIABLE)
    with _refusals(environment_uri or str(folder or DEFAULT_FOLDER)):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # beside the JSON of a command
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        with _opening(folder) as store:
            run = _new_run(run_name, experiment_name, store, tags)
        final_status = "FAILED"
        try:
            run.check_place()
            if data is not None:
                run.log_data(data)
            yield run
            final_status = "FINISHED"
        finally:
            run.client.set_terminated(run.id, final_status)


class _Store(NamedTuple):
    """Where runs are kept.

    URI, and the folder of database and artifacts where it is one of ours.
    """

    uri: str
    root: Path | None


@contextmanager
def _opening(folder: str | Path | None) -> Iterator[_Store]:
    """The folder that is given, else what MLFLOW_TRACKING_URI names, else `mlruns`.

    Its artifacts its own. While the block lasts no other process of raglab opens it.
    """
    if folder is None and (environment_uri := os.environ.get(STORE_VARIABLE)):
        with opening_lock(*sqlite_files(environment_uri)):
            yield _Store(environment_uri, None)
        return
    root = make_folder(Path(DEFAULT_FOLDER if folder is None else folder).resolve())
    database = root / DATABASE_NAME
    with opening_lock(database):
        if database.exists():
            if not (database.is_file() and _begins(database) == _SQLITE_HEADER):
                raise input_error(
                    Where(str(database)),
                    "the tracking database must be one of SQLite's",
                    "name another folder",
                )
            check_database(f"sqlite:///{database.as_posix()}")
            _take_artifacts_home(database)
        yield _Store(f"sqlite:///{database.as_posix()}", root)


def _take_artifacts_home(database: Path) -> None:
    """Name the folder of a database wherever it names the one that it was made in.

    MLflow keeps absolute places: without this a copied folder would write into the original, and a
    moved one lose all.
    """
    folder_uri = database.parent.as_uri()
    with closing(sqlite3.connect(database)) as connection, connection:
        existing_tables = table_names(connection)
        if "experiments" not in existing_tables:
            return
        experiment_rows = connection.execute(
            "SELECT name, artifact_location FROM experiments"
        ).fetchall()
        locations = (
            (str(location), f"/{ARTIFACT_FOLDER}/{quote(str(experiment_name))}")
            for experiment_name, location in experiment_rows
        )
        former_roots = {
            location.removesuffix(location_tail)
            for location, location_tail in locations
            if location.startswith("file:") and location.endswith(location_tail)
        }
        # What MLflow makes by itself is named by path, what we make by URI.
        root_moves = [(former_root, folder_uri) for former_root in former_roots - {folder_uri}]
        root_moves += [
            (unquote(former_root.removeprefix("file://")), database.parent.as_posix())
            for former_root, _ in root_moves
        ]
        for table_name, column_name in (
            (table_name, column_name)
            for table_name, column_name in STORED_PLACES
            if table_name in existing_tables
        ):
            update_query = (  # names are those of `STORED_PLACES`
                f"UPDATE {table_name} SET {column_name} = ? || substr({column_name}, ?) "  # noqa: S608
                f"WHERE substr({column_name}, 1, ?) = ?"
            )
            for former_root, current_root in root_moves:
                connection.execute(
                    update_query,
                    (current_root, len(former_root) + 1, len(former_root) + 1, f"{former_root}/"),
                )
        # MLflow's own experiment has the folder where somebody worked when it was made.
        if "runs" in existing_tables:
            is_unused = (
                "experiment_id = 0 AND experiment_id NOT IN (SELECT experiment_id FROM runs)"
            )
            update_query = (
                f"UPDATE experiments SET artifact_location = ? WHERE {is_unused} AND "  # noqa: S608
                "artifact_location <> ?"
            )
            connection.execute(update_query, [f"{folder_uri}/{ARTIFACT_FOLDER}/Default"] * 2)


def _new_run(
    run_name: str, experiment_name: str, store: _Store, tags: Mapping[str, str]
) -> _OpenRun:
    import mlflow

    if _is_server(store.uri):
        check_server(store.uri)
    # The database of somebody else may name any place for files: nothing is written before it is
    # checked.
    check_database(store.uri)
    allowed_places = artifact_places(store.uri, store.root)
    client = mlflow.MlflowClient(tracking_uri=store.uri)
    experiment = client.get_experiment_by_name(experiment_name)
    artifact_location = (
        None if store.root is None else (store.root / ARTIFACT_FOLDER / experiment_name).as_uri()
    )
    if experiment is None:
        experiment = client.get_experiment(
            client.create_experiment(experiment_name, artifact_location=artifact_location)
        )
    allowed_places.check(str(experiment.artifact_location))
    experiment_id = str(experiment.experiment_id)
    run = client.create_run(experiment_id, tags=dict(tags), run_name=run_name)
    root = store.root or Path(DEFAULT_FOLDER)
    return _OpenRun(client, run.info.run_id, experiment_id, store.uri, allowed_places, root)


def serve(folder: str | Path | None = None, port: int = PAGE_PORT) -> int:
    """Show the runs of a store in MLflow's page on this machine only, until it is interrupted.

    Exit code of MLflow.

    Args:
      folder: as for `track`. A server that MLFLOW_TRACKING_URI names is shown already: nothing is
        started.

    Raises:
      InputError: a database that cannot be read, or that names places for files of others, which
        the page would show and write to.
    """
    try:
        with _opening(folder) as store:
            if _is_server(store.uri):
                return 0
            check_database(store.uri)
            check_stored_places(store.uri, artifact_places(store.uri, store.root))
    except sqlite3.Error as error:
        raise store_error(str(folder or DEFAULT_FOLDER), error) from error
    command = [sys.executable, "-m", "mlflow", *_served(store.uri, port)]
    with suppress(KeyboardInterrupt):  # how it is ended
        # MLflow itself
        return subprocess.run(command, env=os.environ | QUIET_SETTINGS, check=False).returncode  # noqa: S603
    return 0


def show_page() -> int:
    """Exit code of `make mlflow`: that of `serve`, or 1 where a line says what is refused."""
    try:
        return serve()
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _served(uri: str, port: int) -> list[str]:
    """Arguments of `mlflow` that serve a store on this machine only."""
    return [*f"ui --host 127.0.0.1 --port {port} --workers 1 --backend-store-uri".split(), uri]


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


@contextmanager
def _refusals(store_name: str) -> Iterator[None]:
    """What the store of the runs says, each library in types of its own, as one line.

    Its own log stays still.
    """
    import mlflow.tracking  # noqa: F401

    mlflow_logger = logging.getLogger("mlflow")
    earlier_level = mlflow_logger.level
    mlflow_logger.setLevel(logging.CRITICAL)  # it prints stacks beside what it raises
    try:
        with as_store_errors(store_name, "the result itself is not lost"):
            yield
    finally:
        mlflow_logger.setLevel(earlier_level)


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER))


def _policy_metrics(
    policy_row: Mapping[str, Any], *, in_sample: bool
) -> list[tuple[str, float, int]]:
    """Expected cost and rates of a policy with their intervals; what is not finite is left out.

    The three of `HEADLINE_METRICS` come before all groups by name, where MLflow shows them first.

    Args:
      in_sample: whether the policy was fitted or chosen on the judged cases; its figures then share
        no name with others.
    """
    metric_group = "in_sample" if in_sample else "judged"
    metric_names = [
        f"{metric_name}{suffix}"
        for metric_name in (COST_COLUMN, *RATES)
        for suffix in _INTERVAL_SUFFIXES
    ]
    headline_metrics = (
        []
        if in_sample
        else [(metric_name, float(policy_row[metric_name]), 0) for metric_name in HEADLINE_METRICS]
    )
    return _finite(
        [
            *headline_metrics,
            *(
                (f"{metric_group}/{metric_name}", float(policy_row[metric_name]), 0)
                for metric_name in metric_names
            ),
        ]
    )


def _study_metrics(result: TuneResult) -> list[tuple[str, float, int]]:
    """Nested estimate, costs of what was selected, its advantage, lowest expected cost by trial."""
    selected_costs: Any = result.costs.loc[result.selected]
    study_figures = {"study/held_out_estimate": result.held_out_estimate}
    study_figures |= {
        f"selected/{figure_name}_cost": float(selected_costs[figure_name])
        for figure_name in ("in_sample", "cross_validated")
    }
    if result.crossing is not None:
        study_figures["study/crossing"] = result.crossing.high
    if result.advantage is not None:
        for figure_name in _ADVANTAGE_FIELDS:
            study_figures[f"study/advantage_{figure_name}"] = float(
                getattr(result.advantage, figure_name)
            )
    # The best trial so far: one that meets all targets is better than one that does not.
    missed_targets = ~result.trials["feasible"].to_numpy(dtype=bool)
    best_trials = list(
        accumulate(zip(missed_targets, result.trials[COST_COLUMN], strict=True), min)
    )
    last_trial = len(best_trials) - 1
    step = max(1, len(best_trials) // _CURVE_STEPS)
    trial_numbers = sorted({*range(0, len(best_trials), step), last_trial})
    figure_metrics = [(figure_name, figure, 0) for figure_name, figure in study_figures.items()]
    return _finite(
        [
            *figure_metrics,
            *(
                ("search/best_cost", float(best_trials[trial_number][1]), trial_number)
                for trial_number in trial_numbers
            ),
        ]
    )


def _finite(metrics: Sequence[tuple[str, float, int]]) -> list[tuple[str, float, int]]:
    """Metrics without those that are not finite, which MLflow's stores refuse."""
    return [metric for metric in metrics if math.isfinite(metric[1])]


def _log_files(result: TuneResult, folder: Path) -> None:
    result.trials.to_parquet(folder / "trials.parquet", index=False)
    result.pareto.to_parquet(folder / "pareto.parquet", index=False)
    tables = {
        "flat_ranges": result.flat_ranges,
        "comparison": result.judged,
        "candidates": result.costs.reset_index(),
    }
    for file_name, table in tables.items():
        write_text(csv_text(table), folder / f"{file_name}.csv")
    for file_name, policy in (("tuned", result.policy), ("defaults", result.default_policy)):
        policy.save(folder / f"{file_name}.yaml")
    score_kind = result.tuned_on.meta.get("parameters", {}).get("score", "cosine")
    unmodelled = ", ".join(unstated_signals(result.policy)) or (
        "no column score" if score_kind is None else ""
    )
    if unmodelled:
        warn_user(f"No model of MLflow is logged: its frame cannot state {unmodelled}.")
    else:
        save_model(result.policy, folder / "model", score=score_kind)
    cockpit_page = result.cockpit_page()
    if cockpit_page is not None:
        write_text(cockpit_page, folder / "cockpit.html")
