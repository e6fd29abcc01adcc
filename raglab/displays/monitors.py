"""Display of a monitor (shore): evidence on each promise by labelled rows, and the rate (S6.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, check_rows, spaced_rows
from raglab.words.results import Summary

if TYPE_CHECKING:
    from raglab.displays.canvas import Style

MOST_POINTS = 2_000  # that a line draws
COLUMNS = 2  # evidence and rate
ALARM = canvas.line_style(0) | {"color": canvas.VERMILLION, "label": "evidence of a broken promise"}
HELD = canvas.line_style(1) | {"color": canvas.BLUE, "label": "of a held one"}
RATE: Style = {"color": canvas.GREY, "linewidth": 1.5}
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
            drawn = rows.iloc[canvas.spaced_places(len(rows), MOST_POINTS)]
            last = rows.iloc[-1]
            was_held = last["verdict"] == "alarm" and last.get("is_held", False)
            both = "; held since the start" if was_held else ""
            title = f"{promise} ≤ {last['alpha']:g}: {last['verdict']}{both}"
            # A restart speaks of its own rows, so that a broken promise says whose it is.
            if by := last.get("alarm_by") or last.get("leader"):
                title += f"; {'alarm by' if last.get('alarm_by') else 'broken: of'} {by}"
            left.set_title(canvas.literal_text(title, canvas.LONGEST_TITLE), loc="left")
            along, margin_held = drawn["labelled"], drawn["log_wealth_held"] - drawn["bar_held"]
            # less the bar, so that one line is the bar of both
            lines += left.plot(along, drawn["margin_alarm"], **ALARM | style)
            lines += left.plot(along, margin_held, **HELD | style)
            left.axhline(0.0, label="bar of a verdict, or promise", **canvas.TARGET)
            # evidence grows without end: beyond the bar it is drawn by its order
            left.set_yscale("asinh", linear_width=float(last["bar_held"]), base=0)
            left.set_ylabel("log wealth less its bar (nats, asinh axis)")
            lines += right.plot(along, drawn["rate"], **RATE | style)
            right.axhline(float(last["alpha"]), **canvas.TARGET)
            top = right.get_ylim()[1]
            canvas.shares_up(right, "rate since the start (%)")
            right.set_ylim(0.0, top)
            size = canvas.size_text(int(last["labelled"]), "in all")
            for on in (left, right):
                on.set_xlabel(f"labelled rows (count; {size})")
                canvas.tidy(on)
                canvas.limit_ticks(on)
        canvas.legend_over(self.axes_, 3)
        return lines

    def _summary(self) -> Summary:
        last = self.rows.groupby("promise", sort=False).tail(1)
        facts = [tuple(map(str, row)) for row in last[["promise", "verdict"]].to_numpy()]
        columns = dict(last[["promise", "alpha", "rate", "labelled", "verdict"]])
        return Summary(facts, spaced_rows(columns), title=self.name or "monitor")
