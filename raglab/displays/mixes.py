"""Display of the traffic mix (shore): expected cost over the share of ok in traffic (S6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, Shown
from raglab.metrics.crossings import LEVEL, Crossing
from raglab.metrics.intervals import t_quantile
from raglab.metrics.mixes import TrafficMix

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

POINTS = 41  # shares of ok at which lines are drawn
MANY = 1e6  # degrees of freedom of a normal interval


class MixResult(Protocol):
    """What `tune` returns, as far as it is drawn."""

    @property
    def mix_costs(self) -> pd.DataFrame | None:
        """Ends of the lines, a row a policy."""

    @property
    def crossing(self) -> Crossing | None:
        """Of what was selected."""

    @property
    def selected(self) -> str:
        """Name of what was selected."""

    @property
    def incumbent(self) -> str:
        """Name of the policy that it had to beat."""

    @property
    def goal(self) -> Any:  # noqa: ANN401 - `raglab.Goal`
        """Goal with the stated mix."""


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
        result: MixResult,
        *,
        policies: Sequence[str] = ("always-answer", "always-refuse", "defaults"),
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of a study: what was selected beside the policies without tuning.

        Args:
          result: of `raglab.tune`.
          policies: names in `result.costs` of what is drawn beside the selected one.
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Example: `MixDisplay.from_result(raglab.tune(trace))`.
        """
        table, mix = result.mix_costs, result.goal.traffic
        assert table is not None  # noqa: S101 - of every study
        shown = table.loc[list(dict.fromkeys((result.selected, *policies)))]
        return cls.from_costs(shown, result.crossing, mix=mix, name=name, ax=ax, **style)

    @classmethod
    def from_costs(
        cls,
        costs: pd.DataFrame,
        crossed: Crossing | None,
        *,
        mix: TrafficMix | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of lines that are known by their ends.

        Args:
          costs: of `raglab.metrics.crossings.cost_table`; the first row is the policy whose
            crossing is marked.
          crossed: of that policy with the others.
          mix: stated one.
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.
        """
        import pandas as pd

        share, reach = np.linspace(0.0, 1.0, POINTS), t_quantile(MANY, LEVEL)
        frames = []
        for policy, row in zip(costs.index, costs.to_dict("records"), strict=True):
            cost = (1.0 - share) * row["none_ok"] + share * row["all_ok"]
            error = np.hypot((1.0 - share) * row["none_ok_error"], share * row["all_ok_error"])
            frames.append(
                pd.DataFrame(
                    {
                        "policy": str(policy),
                        "share": share,
                        "cost": cost,
                        "low": np.maximum(cost - reach * error, 0.0),
                        "high": cost + reach * error,
                    }
                )
            )
        stated = None if mix is None else mix.shares.get("ok")
        subject, cases = str(costs.index[0]), int(costs["cases"].iloc[0])
        rows = pd.concat(frames, ignore_index=True)
        return cls(rows, subject, crossed, stated, cases, name=name).plot(ax, **style)

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
            low, high = self.stated
            span: Style = {"color": canvas.GREEN, "label": "stated share"}
            if low == high:
                on.axvline(low, linewidth=2.0, **span)
            else:
                on.axvspan(low, high, **span | canvas.BAND)
        canvas.shares_along(on, "share of ok in traffic (other labels as in the labelled cases)")
        on.set_ylim(bottom=0.0)
        size = canvas.size_text(self.cases, "labelled cases")
        on.set_ylabel(f"expected cost of a case ({size})", fontsize=9)
        canvas.tidy(on)
        canvas.legend_above(on, columns=2)
        return lines

    def _shown(self) -> Shown:
        wide = self.rows.pivot_table("cost", "policy", "share", sort=False, dropna=False)
        columns: dict[str, Any] = {"policy": wide.index.tolist()}
        for place in range(0, POINTS, 4):
            columns[f"{2.5 * place:.0f} % ok"] = wide.iloc[:, place].round(3).tolist()
        return Shown(self.caption, columns)

    @property
    def caption(self) -> str:
        """What is drawn, and the crossing in words."""
        says = "" if self.crossing is None else f" {self.crossing.says(self.subject)}"
        return f"{self.name or 'traffic mix'}: expected cost of a case by share of ok.{says}"
