"""The frontier of mixtures with plans beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raglab.bandit import Budget, Table, compare_plans
from raglab.displays.frontiers import FrontierDisplay


def small_table():
    """Three arms; the one between the two others is in no mixture."""
    frame = pd.DataFrame({"small": [0.5, 0.3], "poor": [0.5, 0.4], "large": [1.0, 0.8]})
    return Table.from_frame(
        frame, costs={"small": 1.0, "poor": 2.0, "large": 3.0}, price=1.0, order="given"
    )


def test_a_frontier_alone():
    """Its corners, by their arms; a table without intervals."""
    display = FrontierDisplay.from_table(small_table(), unit="$")
    assert display.frame()["policy"].tolist() == ["small", "large"]
    assert np.allclose(display.frame()[["spend", "reward"]], [[1.0, 0.4], [3.0, 0.9]])
    assert (
        display.lines_[0].get_xydata().tolist()
        == display.frame()[["spend", "reward"]].to_numpy().tolist()
    )
    assert display.ax_.get_xlabel() == r"spend a question (\$)"
    assert display.ax_.get_ylabel() == "reward a question (mean; n = 2 questions)"


def test_plans_beside_a_frontier():
    """Each with its intervals; the budget is a line; every arm is named, none cut off."""
    table, budget = small_table(), Budget(2.0, "cents")
    shown = compare_plans(table, {"priced": [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]}, budget=budget)
    display = FrontierDisplay.from_table(table, shown, budget=budget)
    plans = display.frame().query("kind == 'plan'")
    assert plans["policy"].tolist() == ["priced", "best fixed mixture"]
    assert np.allclose(plans[["reward", "reward_low"]], shown[["reward", "reward_low"]])
    assert display.ax_.get_legend().get_texts()[0].get_text() == "fixed mixtures of arms"
    assert "budget" in {line.get_label() for line in display.ax_.lines}
    assert display.ax_.get_xlim()[1] > 3.0
    assert [text.get_text() for text in display.ax_.texts] == ["small", "large"]
    assert "cents" in display.ax_.get_xlabel()
