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

CORNER = "frontier"


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

        corners = bandit.frontier(table)
        arms = [table.arms[int(np.argmax(share))] for share in corners.mixture]
        drawn = pd.DataFrame(
            {"kind": CORNER, "policy": arms, "spend": corners.spend, "reward": corners.reward}
        )
        if comparison is not None:
            columns = [
                f"{part}{end}" for part in ("spend", "reward") for end in ("", "_low", "_high")
            ]
            drawn = pd.concat(
                [drawn, comparison[["policy", *columns]].assign(kind="plan")], ignore_index=True
            )
        checked = None if budget is None else check_budget(budget)
        amount, stated = (None, "") if checked is None else (checked.per_question, checked.unit)
        return cls(drawn, amount, unit or stated or "cost", len(table.mask)).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        on, is_corner = self.ax_, self.rows["kind"] == CORNER
        corners, plans = self.rows[is_corner], self.rows[~is_corner]
        look: Style = {"color": canvas.GREY, "marker": "o", "markersize": 4, "linewidth": 1.5}
        look["label"] = "fixed mixtures of arms"
        lines = list(on.plot(corners["spend"], corners["reward"], **look | style))
        # the line rises less and less: right below a corner is free, and left above the last
        for place, row in enumerate(corners.to_dict("records")):
            is_last = place == len(corners) - 1
            side: Style = {"xytext": (7, -7), "ha": "left", "va": "top"}
            side = {"xytext": (-5, 5), "ha": "right", "va": "bottom"} if is_last else side
            name, look = canvas.literal_text(str(row["policy"])), side | {"bbox": canvas.CLEAR}
            at = (row["spend"], row["reward"])
            on.annotate(name, at, textcoords="offset points", fontsize=8, **look)
        for place, row in enumerate(plans.to_dict("records")):
            arms: dict[str, Any] = {
                f"{axis}err": canvas.interval_arms(
                    *([row[f"{part}{end}"]] for end in ("", "_low", "_high"))
                )
                for axis, part in (("x", "spend"), ("y", "reward"))
            }
            look = canvas.point_style(place) | {"ecolor": "black", "elinewidth": 1.0}
            label = canvas.literal_text(str(row["policy"]))
            on.errorbar(row["spend"], row["reward"], label=label, **arms, **look)
        if self.budget is not None:
            on.axvline(self.budget, label="budget", **canvas.TARGET)
        on.margins(x=0.12, y=0.12)
        unit, size = self.unit, canvas.size_text(self.questions, "questions")
        on.set_xlabel(canvas.literal_text(f"spend a question ({unit})", canvas.LONGEST_TITLE))
        on.set_ylabel(f"reward a question (mean; {size})")
        canvas.tidy(on)
        canvas.legend_above(on, 2)
        return lines

    def _summary(self) -> Summary:
        known = self.rows.reindex(
            columns=["policy", "reward", "reward_low", "reward_high", "spend"]
        )
        columns = {
            "policy": known["policy"],
            "reward": estimate_cells(known, "reward", "reward_"),
            "spend": known["spend"],
        }
        facts = [("questions", f"{self.questions:,}"), ("spend in", self.unit)]
        return Summary(facts, spaced_rows(columns), title=self.name or "frontier")
