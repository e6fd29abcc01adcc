"""Plots of Optuna take a study of ours as it is.

Objectives and paths are named, infeasible trials marked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raglab.lab.goals import Goal
from raglab.lab.study import tune
from study_worlds import study_world

pytest.importorskip("plotly", reason="raglab-toolkit[dashboard] is not installed")
COST: dict[str, Any] = {"target": lambda trial: trial.values[0], "target_name": "expected_cost"}


@pytest.fixture(scope="module", params=["memory", "folder"])
def result(request, tmp_path_factory):
    """Return a small study, in memory and in a storage."""
    storage = None if request.param == "memory" else Path(tmp_path_factory.mktemp("study"))
    goal = Goal(targets={"hallucination_rate": 0.2})
    return tune(
        study_world(),
        goal=goal,
        rule="chain",
        trials=8,
        batch_size=8,
        repeats=1,
        folds=2,
        storage=storage,
    )


def test_optimization_history(result):
    """The axis has the objective's name.

    Every trial is a point, those that miss the target apart.
    """
    from optuna.visualization import plot_optimization_history

    figure = plot_optimization_history(result.study, **COST)
    assert figure.layout.yaxis.title.text == "expected_cost"
    points = {trace.name: len(trace.x) for trace in figure.data if trace.mode == "markers"}
    infeasible = int((~result.trials["feasible"]).sum())
    assert points["Infeasible Trial"] == infeasible
    assert sum(points.values()) == len(result.trials) == 8


def test_parameter_importances(result):
    """A bar for each path of the space, in a group for each objective; they are shares."""
    from optuna.visualization import plot_param_importances

    figure = plot_param_importances(result.study)
    assert [bars.name for bars in figure.data] == ["expected_cost", "coverage"]
    paths = {path for path in result.trials.columns if "." in path}
    for bars in figure.data:
        assert set(bars.y) <= paths
        assert len(bars.y) > 1
        assert sum(bars.x) == pytest.approx(1.0)


def test_further_plots(result):
    """Pareto front, slices and coordinates need nothing more.

    Axes have the names of objectives and paths.
    """
    from optuna import visualization

    front = visualization.plot_pareto_front(result.study)
    assert (front.layout.xaxis.title.text, front.layout.yaxis.title.text) == (
        "expected_cost",
        "coverage",
    )
    assert visualization.plot_slice(result.study, **COST).data
    assert visualization.plot_parallel_coordinate(result.study, **COST).data
