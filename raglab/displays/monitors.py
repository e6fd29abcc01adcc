"""Display of a monitor (shore): evidence on each promise by labelled rows, and the rate (S6.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, check_rows, spaced_rows
from raglab.words.results import Summary

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
        monitor: Any,  # noqa: ANN401 - of `monitor`, or its frame
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of a monitor.

        Args:
          monitor: of `monitor`, or its frame, such as those of several calls one below the other.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no step, or a missing column.

        Example: `MonitorDisplay.from_monitor(monitor(policy, "labels.csv"))`.
        """
        import pandas as pd

        rows = monitor if isinstance(monitor, pd.DataFrame) else monitor.frame()
        check_rows("monitor", rows, NEEDED)
        return cls(rows.reset_index(drop=True)).plot(**drawing)

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows["promise"].nunique(), COLUMNS

    @property
    def _size(self) -> tuple[float, float]:
        return 9.8, 0.6 + 2.7 * self._grid[0]

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
            was_held = last["verdict"] == "alarm" and last.get("is_held", False)
            both = "; held since the start" if was_held else ""
            title = f"{promise} ≤ {last['alpha']:g}: {last['verdict']}{both}"
            left.set_title(canvas.literal_text(title, 60), loc="left")
            # A restart speaks of its own rows, so that the line of a broken promise says whose it
            # is.
            if by := last.get("alarm_by") or last.get("leader"):
                name = f"{'alarm by' if last.get('alarm_by') else 'broken: of'} {by}"
                place_at: Style = {"va": "top", "transform": left.transAxes, "bbox": canvas.LABEL}
                left.text(0.02, 0.97, canvas.literal_text(name, 60), fontsize=8, **place_at)
            lines += self._draw_rate(right, drawn, style)
        labels = ["evidence of a broken promise", "of a held one", "bar of a verdict, or promise"]
        canvas.legend_over(self.figure_, [*lines[:2], self.axes_[0].lines[-1]], labels, 3)
        return lines

    def _draw_evidence(self, on: Axes, rows: pd.DataFrame, style: Style) -> list[Any]:
        """Log wealth of both sides less the bar, so that one line is the bar of both."""
        lines = []
        for place, (column, (label, ink)) in enumerate(SIDES.items()):
            look: Style = canvas.line_style(place) | {"color": ink, "label": label}
            lines += on.plot(rows["labelled"], rows[column], **look | style)
        on.axhline(0.0, **canvas.TARGET)
        bar = float(rows["bar_held"].iloc[0])
        on.set(ylim=(-FAR * bar, FAR * bar), ylabel="log wealth less its bar (nats)")
        _name_rows_along(on, rows)
        return lines

    def _draw_rate(self, on: Axes, rows: pd.DataFrame, style: Style) -> list[Any]:
        """Weighted rate since the start, and what is promised."""
        look: Style = {"color": canvas.GREY, "linewidth": 1.5, "label": "rate"}
        lines = on.plot(rows["labelled"], rows["rate"], **look | style)
        on.axhline(float(rows["alpha"].iloc[0]), **canvas.TARGET)
        top = on.get_ylim()[1]
        canvas.shares_up(on, "rate since the start (%)")
        on.set_ylim(0.0, top)
        _name_rows_along(on, rows)
        return list(lines)

    def _summary(self) -> Summary:
        last = self.rows.groupby("promise", sort=False).tail(1)
        facts = [tuple(map(str, row)) for row in last[["promise", "verdict"]].to_numpy()]
        columns = dict(last[["promise", "alpha", "rate", "labelled", "verdict"]])
        return Summary(facts, spaced_rows(columns), title=self.name or "monitor")


def _name_rows_along(on: Axes, rows: pd.DataFrame) -> None:
    size = canvas.size_text(int(rows["labelled"].iloc[-1]), "in all")
    on.set_xlabel(f"labelled rows (count; {size})")
    canvas.tidy(on)
    canvas.limit_ticks(on)
