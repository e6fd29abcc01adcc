"""Display of a monitor (shore): evidence on each promise by labelled rows, and the rate (S6.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, check_rows, spaced_rows
from raglab.words.results import Summary

if TYPE_CHECKING:
    from raglab.displays.canvas import Style

MAX_MONITOR_POINTS = 2_000  # that a line draws
MONITOR_COLUMNS = 2  # evidence and rate
ALARM_LINE = canvas.line_style(0) | {
    "color": canvas.VERMILLION,
    "label": "evidence of a broken promise",
}
HELD_LINE = canvas.line_style(1) | {"color": canvas.BLUE, "label": "of a held one"}
RATE_LINE: Style = {"color": canvas.GREY, "linewidth": 1.5}
MONITOR_FRAME_COLUMNS = (
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

        monitor_rows = monitor if isinstance(monitor, pd.DataFrame) else monitor.frame()
        check_rows("monitor", monitor_rows, MONITOR_FRAME_COLUMNS)
        return cls(monitor_rows.reset_index(drop=True)).plot(**drawing)

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows["promise"].nunique(), MONITOR_COLUMNS

    @property
    def _size(self) -> tuple[float, float]:
        return 9.8, 0.6 + 2.7 * self._grid[0]

    def _draw(self, style: Style) -> list[Any]:
        drawn_lines: list[Any] = []
        for promise_index, (promise, promise_rows) in enumerate(
            self.rows.groupby("promise", sort=False)
        ):
            evidence_axes, rate_axes = self.axes_[
                MONITOR_COLUMNS * promise_index : MONITOR_COLUMNS * promise_index + MONITOR_COLUMNS
            ]
            drawn_rows = promise_rows.iloc[
                canvas.spaced_places(len(promise_rows), MAX_MONITOR_POINTS)
            ]
            last_row = promise_rows.iloc[-1]
            was_held = last_row["verdict"] == "alarm" and last_row.get("is_held", False)
            held_text = "; held since the start" if was_held else ""
            panel_title = f"{promise} ≤ {last_row['alpha']:g}: {last_row['verdict']}{held_text}"
            # A restart speaks of its own rows, so that a broken promise says whose it is.
            if alarm_source := last_row.get("alarm_by") or last_row.get("leader"):
                panel_title += (
                    f"; {'alarm by' if last_row.get('alarm_by') else 'broken: of'} {alarm_source}"
                )
            evidence_axes.set_title(
                canvas.literal_text(panel_title, canvas.LONGEST_TITLE), loc="left"
            )
            labelled_counts = drawn_rows["labelled"]
            margin_held = drawn_rows["log_wealth_held"] - drawn_rows["bar_held"]
            # less the bar, so that one line is the bar of both
            drawn_lines += evidence_axes.plot(
                labelled_counts, drawn_rows["margin_alarm"], **ALARM_LINE | style
            )
            drawn_lines += evidence_axes.plot(labelled_counts, margin_held, **HELD_LINE | style)
            evidence_axes.axhline(0.0, label="bar of a verdict, or promise", **canvas.TARGET_LINE)
            # evidence grows without end: beyond the bar it is drawn by its order
            evidence_axes.set_yscale("asinh", linear_width=float(last_row["bar_held"]), base=0)
            evidence_axes.set_ylabel("log wealth less its bar (nats, asinh axis)")
            drawn_lines += rate_axes.plot(labelled_counts, drawn_rows["rate"], **RATE_LINE | style)
            rate_axes.axhline(float(last_row["alpha"]), **canvas.TARGET_LINE)
            upper_limit = rate_axes.get_ylim()[1]
            canvas.shares_up(rate_axes, "rate since the start (%)")
            rate_axes.set_ylim(0.0, upper_limit)
            labelled_text = canvas.size_text(int(last_row["labelled"]), "in all")
            for axes in (evidence_axes, rate_axes):
                axes.set_xlabel(f"labelled rows (count; {labelled_text})")
                canvas.tidy(axes)
                canvas.limit_ticks(axes)
        canvas.legend_over(self.axes_, 3)
        return drawn_lines

    def _summary(self) -> Summary:
        last_rows = self.rows.groupby("promise", sort=False).tail(1)
        facts = [
            tuple(map(str, verdict_row))
            for verdict_row in last_rows[["promise", "verdict"]].to_numpy()
        ]
        columns = dict(last_rows[["promise", "alpha", "rate", "labelled", "verdict"]])
        return Summary(facts, spaced_rows(columns), title=self.name or "monitor")
