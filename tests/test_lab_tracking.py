"""What a study leaves with the tracker: names that MLflow takes, and the costs of what was selected."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pandas as pd

from raglab.lab.selection import paired_advantage
from raglab.lab.tracking import _metrics
from raglab.metrics import RATES


def result(**more: Any) -> Any:
    """What the tracker reads of a study whose best threshold asks back."""
    rates = dict.fromkeys(RATES, 0.5) | {"expected_cost": 0.25}
    costs = {"in_sample": [0.2], "cross_validated": [0.3], "report": [0.25]}
    parts = {
        "comparison": pd.DataFrame([{"policy": name, **rates} for name in ("tuned", "gaps at most, else ask")]),
        "costs": pd.DataFrame(costs, index=["gaps at most, else ask"]),
        "selected": "gaps at most, else ask",
        "advantage": paired_advantage(pd.Series([1.0, 0.0, 1.0, 0.0]).to_numpy(), "always-answer", "4 cases"),
        "trials": pd.DataFrame({"feasible": [True, True, True], "expected_cost": [0.4, 0.3, 0.35]}),
    }
    return SimpleNamespace(**(parts | more))


def test_metrics_have_names_that_the_tracker_takes() -> None:
    """A candidate's comma is left out; costs of the selected, its advantage and the best cost by trial are there."""
    series = _metrics(result())
    assert all(re.fullmatch(r"[\w\-./ :]+", name) for name, _, _ in series)
    first = {name: value for name, value, step in series if step == 0}
    assert first["gaps at most else ask.expected_cost"] == 0.25
    assert (first["selected.cross_validated"], first["selected.report"]) == (0.3, 0.25)
    assert first["advantage.estimate"] == 0.5
    assert [value for name, value, _ in series if name == "best_expected_cost"] == [0.4, 0.3, 0.3]


def test_what_is_not_finite_is_left_out() -> None:
    """A rate of no cases is no metric."""
    rates = dict.fromkeys(RATES, float("nan")) | {"expected_cost": 0.25}
    series = _metrics(result(comparison=pd.DataFrame([{"policy": "tuned", **rates}])))
    assert [name for name, _, _ in series if name.startswith("tuned.")] == ["tuned.expected_cost"]
