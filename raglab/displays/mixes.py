"""Display of the traffic mix (shore): expected cost over the share of ok in traffic (S6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, spaced_rows
from raglab.metrics.crossings import CROSSING_LEVEL, Crossing
from raglab.metrics.intervals import t_quantile
from raglab.metrics.mixes import TrafficMix
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

OK_SHARE_POINTS = 41  # shares of ok at which lines are drawn
NORMAL_DEGREES_OF_FREEDOM = 1e6  # degrees of freedom of a normal interval


@dataclass(eq=False, repr=False)
class MixDisplay(FrameDisplay):
    """Expected cost of policies over the share of ok in traffic, the others in their ratio.

    Attributes:
      rows: `policy`, `share` of ok, `cost` with `low` and `high`, the 90 % interval of each point.
      subject: policy that the crossing is of.
      crossing: of the subject; None where the cases cannot tell.
      stated: least and largest share of ok that a mix states.
      cases: labelled cases that the costs are of.
    """

    subject: str = ""
    crossing: Crossing | None = None
    stated: tuple[float, float] | None = None
    cases: int = 0

    @classmethod
    def from_result(
        cls,
        result: Any,  # noqa: ANN401 - of `raglab.tune`
        *,
        policies: Sequence[str] = ("always-answer", "always-refuse", "defaults"),
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of a study: what was selected beside the policies without tuning.

        Args:
          result: of `raglab.tune`.
          policies: names in `result.costs` of what is drawn beside the selected one.
          **drawing: see `Display.plot`.

        Example: `MixDisplay.from_result(raglab.tune(trace))`.
        """
        drawn_costs = result.mix_costs.loc[list(dict.fromkeys((result.selected, *policies)))]
        return cls.from_costs(drawn_costs, result.crossing, mix=result.goal.traffic, **drawing)

    @classmethod
    def from_costs(
        cls,
        costs: pd.DataFrame,
        crossed: Crossing | None,
        *,
        mix: TrafficMix | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of lines that are known by their ends.

        Args:
          costs: of `raglab.metrics.crossings.cost_table`; the first row is the policy whose
            crossing is marked.
          crossed: of that policy with the others.
          mix: stated one.
          **drawing: see `Display.plot`.
        """
        import pandas as pd

        ok_shares = np.linspace(0.0, 1.0, OK_SHARE_POINTS)
        interval_factor = t_quantile(NORMAL_DEGREES_OF_FREEDOM, CROSSING_LEVEL)
        line_frames = []
        for policy, cost_row in zip(costs.index, costs.to_dict("records"), strict=True):
            mixed_costs = (1.0 - ok_shares) * cost_row["none_ok"] + ok_shares * cost_row["all_ok"]
            standard_errors = np.hypot(
                (1.0 - ok_shares) * cost_row["none_ok_error"], ok_shares * cost_row["all_ok_error"]
            )
            interval_columns = {
                "low": np.maximum(mixed_costs - interval_factor * standard_errors, 0.0),
                "high": mixed_costs + interval_factor * standard_errors,
            }
            line_columns = {"policy": str(policy), "share": ok_shares, "cost": mixed_costs}
            line_frames.append(pd.DataFrame(line_columns | interval_columns))
        stated_shares = None if mix is None else mix.shares.get("ok")
        subject = str(costs.index[0])
        n_cases = int(costs["cases"].iloc[0])
        line_rows = pd.concat(line_frames, ignore_index=True)
        return cls(line_rows, subject, crossed, stated_shares, n_cases).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        policy_lines = []
        for policy_index, (policy, policy_rows) in enumerate(
            self.rows.groupby("policy", sort=False)
        ):
            line_look = canvas.line_style(policy_index) | style
            policy_text = canvas.literal_text(str(policy))
            policy_lines.append(
                canvas.draw_with_band(axes, policy_rows, "share", "cost", policy_text, line_look)
            )
        canvas.draw_band_label(axes, f"{100 * CROSSING_LEVEL:g} % interval of each point")
        if self.crossing is not None:
            sample_share = self.crossing.sample
            axes.axvline(sample_share, label="labelled cases", **canvas.IDEAL_LINE)
            crossing_ends = (self.crossing.low, self.crossing.high)
            for policy_index, crossing_end in enumerate(
                crossing_end for crossing_end in crossing_ends if 0.0 <= crossing_end <= 1.0
            ):
                crossing_label = "crossing" if not policy_index else None
                axes.axvline(crossing_end, label=crossing_label, **canvas.CERTIFIED_LINE)
        if self.stated is not None:
            # one share is a line, several are a band
            line_width = 2.0 if len({*self.stated}) == 1 else 0.0
            line_look = canvas.INTERVAL_BAND | {"color": canvas.GREEN, "label": "stated share"}
            axes.axvspan(*self.stated, **line_look | {"linewidth": line_width})
        canvas.shares_along(axes, "share of ok in traffic (other labels as in the labelled cases)")
        axes.set_ylim(bottom=0.0)
        cases_text = canvas.size_text(self.cases, "labelled cases")
        axes.set_ylabel(f"expected cost of a case ({cases_text})")
        canvas.tidy(axes)
        canvas.legend_above(axes, n_columns=2)
        return policy_lines

    def _summary(self) -> Summary:
        cost_table = self.rows.pivot_table("cost", "policy", "share", sort=False, dropna=False)
        columns: dict[str, Any] = {"policy": cost_table.index}
        for share_index in range(0, OK_SHARE_POINTS, 4):
            columns[f"{2.5 * share_index:.0f} % ok"] = cost_table.iloc[:, share_index]
        facts = [("labelled cases", f"{self.cases:,}")]
        crossing_notes = [] if self.crossing is None else [self.crossing.says(self.subject)]
        title = self.name or "expected cost by share of ok"
        return Summary(facts, spaced_rows(columns), crossing_notes, title)

    @property
    def caption(self) -> str:
        """What is drawn, and the crossing in words."""
        text = "" if self.crossing is None else f" {self.crossing.says(self.subject)}"
        return f"{self.name or 'traffic mix'}: expected cost of a case by share of ok.{text}"
