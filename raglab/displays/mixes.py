"""Display of the traffic mix (shore): expected cost over the share of ok in traffic (S6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, spaced_rows
from raglab.metrics.crossings import LEVEL, Crossing
from raglab.metrics.intervals import t_quantile
from raglab.metrics.mixes import TrafficMix
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

POINTS = 41  # shares of ok at which lines are drawn
MANY = 1e6  # degrees of freedom of a normal interval


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
        shown = result.mix_costs.loc[list(dict.fromkeys((result.selected, *policies)))]
        return cls.from_costs(shown, result.crossing, mix=result.goal.traffic, **drawing)

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

        share, reach = np.linspace(0.0, 1.0, POINTS), t_quantile(MANY, LEVEL)
        frames = []
        for policy, row in zip(costs.index, costs.to_dict("records"), strict=True):
            cost = (1.0 - share) * row["none_ok"] + share * row["all_ok"]
            error = np.hypot((1.0 - share) * row["none_ok_error"], share * row["all_ok_error"])
            ends = {"low": np.maximum(cost - reach * error, 0.0), "high": cost + reach * error}
            columns = {"policy": str(policy), "share": share, "cost": cost}
            frames.append(pd.DataFrame(columns | ends))
        stated = None if mix is None else mix.shares.get("ok")
        subject, cases = str(costs.index[0]), int(costs["cases"].iloc[0])
        rows = pd.concat(frames, ignore_index=True)
        return cls(rows, subject, crossed, stated, cases).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        on, lines = self.ax_, []
        for place, (policy, rows) in enumerate(self.rows.groupby("policy", sort=False)):
            look = canvas.line_style(place) | style
            text = canvas.literal_text(str(policy))
            lines.append(canvas.draw_with_band(on, rows, "share", "cost", text, look))
        canvas.draw_band_label(on, f"{100 * LEVEL:g} % interval of each point")
        if self.crossing is not None:
            sample = self.crossing.sample
            on.axvline(sample, label="labelled cases", **canvas.IDEAL)
            ends = (self.crossing.low, self.crossing.high)
            for place, end in enumerate(end for end in ends if 0.0 <= end <= 1.0):
                label = "crossing" if not place else None
                on.axvline(end, label=label, **canvas.CERTIFIED)
        if self.stated is not None:
            # one share is a line, several are a band
            width = 2.0 if len({*self.stated}) == 1 else 0.0
            look = canvas.BAND | {"color": canvas.GREEN, "label": "stated share"}
            on.axvspan(*self.stated, **look | {"linewidth": width})
        canvas.shares_along(on, "share of ok in traffic (other labels as in the labelled cases)")
        on.set_ylim(bottom=0.0)
        size = canvas.size_text(self.cases, "labelled cases")
        on.set_ylabel(f"expected cost of a case ({size})")
        canvas.tidy(on)
        canvas.legend_above(on, columns=2)
        return lines

    def _summary(self) -> Summary:
        wide = self.rows.pivot_table("cost", "policy", "share", sort=False, dropna=False)
        columns: dict[str, Any] = {"policy": wide.index}
        for place in range(0, POINTS, 4):
            columns[f"{2.5 * place:.0f} % ok"] = wide.iloc[:, place]
        facts = [("labelled cases", f"{self.cases:,}")]
        notes = [] if self.crossing is None else [self.crossing.says(self.subject)]
        title = self.name or "expected cost by share of ok"
        return Summary(facts, spaced_rows(columns), notes, title)

    @property
    def caption(self) -> str:
        """What is drawn, and the crossing in words."""
        says = "" if self.crossing is None else f" {self.crossing.says(self.subject)}"
        return f"{self.name or 'traffic mix'}: expected cost of a case by share of ok.{says}"
