"""Display of a monitor (shore): evidence on each promise by labelled rows, and the rate (S6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, Shown

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

MOST_POINTS = 2_000  # that a line draws
FAR = 3.0  # bars from the bar, beyond which evidence is not drawn: it says no more
COLUMNS = 2  # evidence and rate
SIDES = {"margin_alarm": ("alarm", canvas.VERMILLION), "margin_held": ("held", canvas.BLUE)}
NEEDED = (
    "promise",
    "alpha",
    "labelled",
    "rate",
    "margin_alarm",
    "log_wealth_held",
    "bar_held",
    "verdict",
)


class MonitoredPromises(Protocol):
    """What `monitor` returns, as far as it is drawn."""

    def frame(self) -> pd.DataFrame:
        """Rows of steps and promises."""


@dataclass(eq=False, repr=False)
class MonitorDisplay(FrameDisplay):
    """Evidence over labelled rows, a row of panels a promise.

    Log wealth of both sides less its bar, and the rate.

    Attributes:
      rows: of `Monitor.frame`.
    """

    @classmethod
    def from_monitor(
        cls,
        monitor: MonitoredPromises | pd.DataFrame,
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of a monitor.

        Args:
          monitor: of `monitor`, or its frame, such as those of several calls one below the other.
          name: drawn in the legend or title.
          ax: two axes a promise, or one whose place they take.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no step, or a missing column.

        Example: `MonitorDisplay.from_monitor(monitor(policy, "labels.csv"))`.
        """
        import pandas as pd

        rows = monitor if isinstance(monitor, pd.DataFrame) else monitor.frame()
        absent = [column for column in NEEDED if column not in rows]
        if absent or not len(rows):
            fault = f"{', '.join(absent)} missing" if absent else "no step"
            msg = (
                f"monitor must have rows of {', '.join(NEEDED)}, got {fault}; give what monitor "
                "returned."
            )
            raise ValueError(msg)
        return cls(rows.reset_index(drop=True), name=name).plot(ax, **style)

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        n = self.rows["promise"].nunique()
        return canvas.panels(ax, n, COLUMNS, (9.8, 0.6 + 2.7 * n))

    def _draw(self, style: Style) -> list[Any]:
        lines: list[Any] = []
        for place, (promise, rows) in enumerate(self.rows.groupby("promise", sort=False)):
            left, right = self.axes_[COLUMNS * place : COLUMNS * place + COLUMNS]
            picked = np.unique(
                np.linspace(0, len(rows) - 1, min(len(rows), MOST_POINTS)).round().astype(int)
            )
            drawn = rows.iloc[picked].assign(margin_held=rows["log_wealth_held"] - rows["bar_held"])
            lines += self._draw_evidence(left, drawn, style)
            last = rows.iloc[-1]
            both = (
                "; held since the start"
                if last["verdict"] == "alarm" and last.get("is_held", False)
                else ""
            )
            title = canvas.literal_text(
                f"{promise} ≤ {last['alpha']:g}: {last['verdict']}{both}", 60
            )
            left.set_title(title, fontsize=9, loc="left")
            # A restart speaks of its own rows, so that the line of a broken promise says whose it
            # is.
            if by := last.get("alarm_by") or last.get("leader"):
                name = canvas.literal_text(
                    f"{'alarm by' if last.get('alarm_by') else 'broken: of'} {by}", 60
                )
                left.text(0.02, 0.97, name, fontsize=8, va="top", transform=left.transAxes)
            lines += self._draw_rate(right, drawn, style)
        labels = [
            "evidence of a broken promise",
            "evidence of a held promise",
            "bar of a verdict, or promise",
        ]
        entries = [*lines[:2], self.axes_[0].lines[-1]]
        canvas.legend_over(self.figure_, entries, labels, 3)
        return lines

    def _draw_evidence(self, on: Axes, rows: pd.DataFrame, style: Style) -> list[Any]:
        """Log wealth of both sides less the bar, so that one line is the bar of both."""
        lines = []
        for place, (column, (label, ink)) in enumerate(SIDES.items()):
            look: Style = {
                "color": ink,
                "linestyle": canvas.DASHES[place],
                "linewidth": 1.5,
                "label": label,
            }
            lines += on.plot(rows["labelled"], rows[column], **look | style)
        on.axhline(0.0, **canvas.TARGET)
        bar = float(rows["bar_held"].iloc[0])
        on.set_ylim(-FAR * bar, FAR * bar)
        on.set_xlabel(
            f"labelled rows (count; {canvas.size_text(int(rows['labelled'].iloc[-1]), 'in all')})",
            fontsize=9,
        )
        on.set_ylabel("log wealth less its bar (nats)", fontsize=9)
        canvas.tidy(on)
        canvas.limit_ticks(on)
        return lines

    def _draw_rate(self, on: Axes, rows: pd.DataFrame, style: Style) -> list[Any]:
        """Weighted rate since the start, and what is promised."""
        look: Style = {"color": canvas.GREY, "linewidth": 1.5, "label": "rate"}
        lines = on.plot(rows["labelled"], rows["rate"], **look | style)
        on.axhline(float(rows["alpha"].iloc[0]), **canvas.TARGET)
        top = on.get_ylim()[1]
        canvas.shares_up(on, "rate since the start (%)")
        on.set_ylim(0.0, top)
        on.set_xlabel(
            f"labelled rows (count; {canvas.size_text(int(rows['labelled'].iloc[-1]), 'in all')})",
            fontsize=9,
        )
        canvas.limit_ticks(on)
        return list(lines)

    def _shown(self) -> Shown:
        last = self.rows.groupby("promise", sort=False).tail(1)
        columns = {
            "promise": last["promise"].tolist(),
            "at most": last["alpha"],
            "rate, without an interval": last["rate"],
            "labelled rows": last["labelled"].astype(int),
            "verdict": last["verdict"].tolist(),
        }
        return Shown(
            f"{self.name or 'monitor'}: promises on labelled traffic since the start", columns
        )
