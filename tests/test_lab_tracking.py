"""What a study leaves with the tracker: one run, its data, its curve, its policies.

A folder that stays itself.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from raglab.lab.paired_differences import Advantage
from raglab.lab.study import tune
from raglab.lab.tracking import (
    HEADLINE_METRICS,
    _open_run,
    _study_metrics,
    track,
    track_run,
)
from raglab.replay import sweep
from study_worlds import study_world


def test_the_curve_holds_the_best_cost_by_trial_to_the_last():
    """A trial that keeps the targets is better than one that does not, whatever it costs."""
    parts = {
        "costs": pd.DataFrame({"in_sample": [0.2], "cross_validated": [0.3]}, index=["chain"]),
        "selected": "chain",
        "held_out_estimate": 0.31,
        "advantage": Advantage(0.5, -0.419, 1.419, 0.182, "always-answer", 4),
        "crossing": None,
        "trials": pd.DataFrame(
            {"feasible": [False, True, True, True], "expected_cost": [0.1, 0.4, 0.3, 0.35]}
        ),
    }
    series = _study_metrics(SimpleNamespace(**parts))  # type: ignore[arg-type]
    assert [(value, step) for name, value, step in series if name == "search/best_cost"] == [
        (0.1, 0),
        (0.4, 1),
        (0.3, 2),
        (0.3, 3),
    ]
    assert {
        ("study/advantage_estimate", 0.5, 0),
        ("study/advantage_p", 0.182, 0),
        ("study/held_out_estimate", 0.31, 0),
    } <= set(series)


@pytest.fixture(scope="module")
def result():
    """A small study over the splits of a trace."""
    return tune(study_world(), trials=8, batch_size=8, repeats=1, folds=3)


def client_of(run):
    """MLflow's client of the store of a run."""
    import mlflow

    return mlflow.MlflowClient(tracking_uri=run.tracking_uri)


def test_a_run_that_breaks_off_has_failed(mlruns):
    """Its block raises, and the store says so."""
    with suppress(ArithmeticError), _open_run("a", "tune", mlruns, {}, None) as run:
        raise ArithmeticError
    assert run.client.get_run(run.id).info.status == "FAILED"


def test_a_study_is_one_run_over_one_trace(result, mlruns, tmp_path):
    """The same id of the trace stands in tag, parameter, dataset and report.

    Each policy is a nested run.
    """
    (tmp_path / "more.txt").write_text("more", encoding="utf-8")
    page = result.report(tmp_path / "report.html")
    run = track(result, mlruns, report=page, files=[tmp_path / "more.txt"])
    client = client_of(run)
    parent = client.get_run(run.run_id)
    (data,) = parent.inputs.dataset_inputs
    whole = "world-0"
    assert (
        parent.data.tags["trace_fingerprint"]
        == parent.data.params["trace"]
        == data.dataset.digest
        == whole
    )
    assert whole in page.read_text(encoding="utf-8")
    assert sorted(parent.data.metrics)[:3] == list(HEADLINE_METRICS)
    judged = sweep(result.judged_on, list(result.policies.values()))
    nested = client.search_runs([run.experiment_id], f"tags.mlflow.parentRunId = '{run.run_id}'")
    assert {one.info.run_name for one in nested} == set(result.policies)
    seen = {one.info.run_name: one.data.metrics["expected_cost"] for one in nested}
    assert seen == dict(zip(result.policies, judged["expected_cost"], strict=True))
    assert seen["tuned"] == parent.data.metrics["expected_cost"]
    names = {path.name for path in (mlruns / "artifacts").rglob("*") if path.is_file()}
    assert {
        "trials.parquet",
        "tuned.yaml",
        "defaults.yaml",
        "report.html",
        "comparison.csv",
        "more.txt",
        "MLmodel",
    } <= names
    assert len(pd.read_parquet(next(mlruns.rglob("trials.parquet")))) == 8


def test_a_study_without_cases_to_judge_is_in_sample(mlruns):
    """Its run has no figure under the name of a judged rate."""
    cases = study_world().split("tune")
    run = track(tune(cases, trials=8, batch_size=8, repeats=1, folds=3), mlruns)
    metrics = client_of(run).get_run(run.run_id).data.metrics
    assert "in_sample/coverage" in metrics
    assert not {*HEADLINE_METRICS, "judged/coverage"} & metrics.keys()


def test_a_folder_that_was_copied_or_moved_is_its_own(mlruns, tmp_path):
    """A copy writes to itself and never into the original.

    Of one that was moved the artifacts are found.
    """
    first = track_run("a", "an experiment", {}, [], {}, mlruns, texts={"a.txt": "a"})
    before = sorted(mlruns.rglob("*.txt"))
    copy = Path(shutil.copytree(mlruns, tmp_path / "another place" / "runs"))
    second = track_run("b", "an experiment", {}, [], {}, copy, texts={"b.txt": "b"})
    assert sorted(mlruns.rglob("*.txt")) == before
    assert [path.name for path in sorted(copy.rglob("*.txt"))] in (
        ["a.txt", "b.txt"],
        ["b.txt", "a.txt"],
    )
    shutil.rmtree(mlruns)
    client = client_of(second)
    for run, name in ((first, "a.txt"), (second, "b.txt")):
        assert [one.path for one in client.list_artifacts(run.run_id)] == [name]
        assert copy.as_uri() in client.get_run(run.run_id).info.artifact_uri


def test_a_store_by_the_variable_of_mlflow(mlruns, tmp_path, monkeypatch):
    """MLFLOW_TRACKING_URI says where runs go unless a folder is given."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    other = Path(shutil.copytree(mlruns, tmp_path / "other"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other / 'mlflow.db'}")
    stated = track_run("a", "b", {"c": 1}, [("d", 1.0, 0)], {})
    assert client_of(stated).get_run(stated.run_id).data.params == {"c": "1"}
    given = track_run("a", "b", {"c": 1}, [], {}, mlruns)
    assert given.tracking_uri == f"sqlite:///{mlruns / 'mlflow.db'}"
