"""Display of budgets (shore): reward by spend, fixed-mixture frontier, plans beside it (S4.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab import bandit
from raglab.bandit.budget import Budget, check_budget
from raglab.bandit.environments import Table
from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, spaced_rows
from raglab.displays.tables import estimate_cells
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

CORNER_KIND = "frontier"


@dataclass(eq=False, repr=False)
class FrontierDisplay(FrameDisplay):
    """Reward and spend of a question.

    The frontier of fixed mixtures of arms, and plans with their intervals.

    Attributes:
      rows: `kind` (`frontier` or `plan`), `policy` (the arm of a corner, or the plan), `spend` and
        `reward`, of plans with `_low` and `_high`.
      budget: a line where it is stated.
      unit: of the spend.
      questions: of the table.
    """

    budget: float | None = None
    unit: str = "cost"
    questions: int = 0

    @classmethod
    def from_table(
        cls,
        table: Table,
        comparison: pd.DataFrame | None = None,
        *,
        budget: Budget | float | None = None,
        unit: str | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of the frontier of a table, and of plans that were compared on it.

        Args:
          table: with costs.
          comparison: of `compare_plans` on this table.
          budget: of a question.
          unit: of the spend; the budget's, or "cost".
          **drawing: see `Display.plot`.

        Example:
          `FrontierDisplay.from_table(test, compare_plans(test, plans, budget=0.5),
          budget=Budget(0.5, "$"))`.
        """
        import pandas as pd

        frontier_corners = bandit.frontier(table)
        corner_arms = [
            table.arms[int(np.argmax(arm_shares))] for arm_shares in frontier_corners.mixture
        ]
        drawn_rows = pd.DataFrame(
            {
                "kind": CORNER_KIND,
                "policy": corner_arms,
                "spend": frontier_corners.spend,
                "reward": frontier_corners.reward,
            }
        )
        if comparison is not None:
            plan_columns = [
                f"{quantity}{column_suffix}"
                for quantity in ("spend", "reward")
                for column_suffix in ("", "_low", "_high")
            ]
            drawn_rows = pd.concat(
                [drawn_rows, comparison[["policy", *plan_columns]].assign(kind="plan")],
                ignore_index=True,
            )
        checked_budget = None if budget is None else check_budget(budget)
        budget_amount, budget_unit = (
            (None, "")
            if checked_budget is None
            else (checked_budget.per_question, checked_budget.unit)
        )
        return cls(drawn_rows, budget_amount, unit or budget_unit or "cost", len(table.mask)).plot(
            **drawing
        )

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        is_corner = self.rows["kind"] == CORNER_KIND
        corner_rows = self.rows[is_corner]
        plan_rows = self.rows[~is_corner]
        mark_style: Style = {"color": canvas.GREY, "marker": "o", "markersize": 4, "linewidth": 1.5}
        mark_style["label"] = "fixed mixtures of arms"
        frontier_lines = list(
            axes.plot(corner_rows["spend"], corner_rows["reward"], **mark_style | style)
        )
        # The line rises less and less: below and right of a corner is free, above and left of the
        # last one.
        for row_index, point_row in enumerate(corner_rows.to_dict("records")):
            is_last_corner = row_index == len(corner_rows) - 1
            label_side: Style = {"xytext": (7, -7), "ha": "left", "va": "top"}
            label_side = (
                {"xytext": (-5, 5), "ha": "right", "va": "bottom"} if is_last_corner else label_side
            )
            corner_name = canvas.literal_text(str(point_row["policy"]))
            mark_style = label_side | {"bbox": canvas.CLEAR_BOX}
            corner_point = (point_row["spend"], point_row["reward"])
            axes.annotate(
                corner_name, corner_point, textcoords="offset points", fontsize=8, **mark_style
            )
        # a plan is measured in both directions, so its mark has two intervals
        for row_index, point_row in enumerate(plan_rows.to_dict("records")):
            error_bars: dict[str, Any] = {
                f"{axis_name}err": canvas.interval_arms(
                    *(
                        [point_row[f"{quantity}{column_suffix}"]]
                        for column_suffix in ("", "_low", "_high")
                    )
                )
                for axis_name, quantity in (("x", "spend"), ("y", "reward"))
            }
            mark_style = canvas.point_style(row_index) | {"ecolor": "black", "elinewidth": 1.0}
            plan_label = canvas.literal_text(str(point_row["policy"]))
            axes.errorbar(
                point_row["spend"],
                point_row["reward"],
                label=plan_label,
                **error_bars,
                **mark_style,
            )
        if self.budget is not None:
            axes.axvline(self.budget, label="budget", **canvas.TARGET_LINE)
        # room for the names beside the outer corners
        axes.margins(x=0.12, y=0.12)
        unit_text = self.unit
        questions_text = canvas.size_text(self.questions, "questions")
        axes.set_xlabel(
            canvas.literal_text(f"spend a question ({unit_text})", canvas.LONGEST_TITLE)
        )
        axes.set_ylabel(f"reward a question (mean; {questions_text})")
        canvas.tidy(axes)
        canvas.legend_above(axes, 2)
        return frontier_lines

    def _summary(self) -> Summary:
        reward_rows = self.rows.reindex(
            columns=["policy", "reward", "reward_low", "reward_high", "spend"]
        )
        columns = {
            "policy": reward_rows["policy"],
            "reward": estimate_cells(reward_rows, "reward", "reward_"),
            "spend": reward_rows["spend"],
        }
        facts = [("questions", f"{self.questions:,}"), ("spend in", self.unit)]
        return Summary(facts, spaced_rows(columns), title=self.name or "frontier")
