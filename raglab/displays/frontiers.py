"""Display of budgets (shore): reward by spend, fixed-mixture frontier, plans beside it (S4.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.bandit.budget import Budget, check_budget, frontier
from raglab.bandit.environments import Table
from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, Shown
from raglab.displays.tables import estimate_cells

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the frontier's line
    ) -> Self:
        """Display of the frontier of a table, and of plans that were compared on it.

        Args:
          table: with costs.
          comparison: of `compare_plans` on this table.
          budget: of a question.
          unit: of the spend; the budget's, or "cost".
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Example:
          `FrontierDisplay.from_table(test, compare_plans(test, plans, budget=0.5),
          budget=Budget(0.5, "$"))`.
        """
        import pandas as pd

        corners = frontier(table)
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
        stated = "cost" if checked is None or not checked.unit else checked.unit
        amount = None if checked is None else checked.per_question
        return cls(
            drawn, amount, stated if unit is None else unit, len(table.mask), name=name
        ).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        on, is_corner = self.ax_, self.rows["kind"] == CORNER
        corners, plans = self.rows[is_corner], self.rows[~is_corner]
        look: dict[str, Any] = {
            "color": "0.45",
            "marker": "o",
            "markersize": 4,
            "linewidth": 1.5,
        } | style
        lines = list(
            on.plot(corners["spend"], corners["reward"], label="fixed mixtures of arms", **look)
        )
        for place, row in enumerate(plans.to_dict("records")):
            arms: dict[str, Any] = {
                f"{axis}err": canvas.interval_arms(
                    [row[part]], [row[f"{part}_low"]], [row[f"{part}_high"]]
                )
                for axis, part in (("x", "spend"), ("y", "reward"))
            }
            mark, label = canvas.point_style(place), canvas.literal_text(str(row["policy"]))
            on.errorbar(
                row["spend"],
                row["reward"],
                ecolor="black",
                elinewidth=1.0,
                label=label,
                **arms,
                **mark,
            )
        if self.budget is not None:
            on.axvline(self.budget, color="0.6", linestyle=":", linewidth=1.2, label="budget")
        # Corners far dearer than what is compared would leave no room for it.
        if len(plans):
            edge = 1.6 * max(float(plans["spend"].max()), self.budget or 0.0)
            on.set_xlim(0.0, min(edge, 1.05 * float(corners["spend"].max())))
        on.set_xlabel(
            canvas.literal_text(f"spend a question ({self.unit})", canvas.LONGEST_TITLE), fontsize=9
        )
        on.set_ylabel(
            f"reward a question (mean; {canvas.size_text(self.questions, 'questions')})", fontsize=9
        )
        canvas.tidy(on)
        canvas.legend_above(on)
        return lines

    def _shown(self) -> Shown:
        caption = f"{self.name or 'frontier'}: reward and spend ({self.unit}) a question"
        known = self.rows.reindex(
            columns=["policy", "reward", "reward_low", "reward_high", "spend"]
        )
        spend = [f"{value:.4g}" for value in known["spend"]]
        columns = {
            "policy": known["policy"],
            "reward": estimate_cells(known, "reward", "reward_"),
            "spend": spend,
        }
        return Shown(
            caption, columns, "of resampled questions" if "reward_low" in self.rows else "none"
        )
