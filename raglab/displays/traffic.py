"""Display of traffic (shore): what a policy does to logged requests by threshold and day (S3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, check, joined_panels, spaced_rows
from raglab.values import Status
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

TRAFFIC_COLUMNS = 2  # of panels
MAX_THRESHOLD_PANELS = 5  # panels of thresholds
MAX_CURVE_STEPS = 2_000  # that a line draws
MAX_DAY_NAMES = 12  # names of days on an axis
STATUS_HATCHES = ("", "//", "..")  # of bars by decision, told apart in grey
TRAFFIC_STATUS_WORDS = {
    Status.ok: "answered",
    Status.refuse: "refused",
    Status.ambiguous: "asked back",
}


@dataclass(eq=False, repr=False)
class ReviewDisplay(Display):
    """Shares answered, refused and asked back.

    A panel a threshold as it moves, the policy's own marked, and by day.

    Attributes:
      review: of `raglab.review`.
      paths: of the thresholds that are drawn.
    """

    review: Any
    paths: Sequence[str]

    @classmethod
    def from_review(
        cls,
        review: Any,  # noqa: ANN401 - of `raglab.review`
        *,
        paths: Sequence[str] | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of a review.

        Args:
          review: of `raglab.review`.
          paths: of the thresholds to draw; where not given, the five at most whose curve changes
            most requests.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: a path that the review has no curve of, or nothing to draw.

        Example: `ReviewDisplay.from_review(raglab.review(trace, policy))`.
        """
        curves = review.curves
        moving_paths = [path for path, curve in curves.items() if len(curve.low) > 1]
        largest_changes = sorted(moving_paths, key=lambda path: -int(curves[path].changed.max()))[
            :MAX_THRESHOLD_PANELS
        ]
        drawn_paths = (
            [path for path in moving_paths if path in largest_changes]
            if paths is None
            else list(paths)
        )
        unknown_paths = [path for path in drawn_paths if path not in curves]
        known_paths = ", ".join([*curves][:3])
        check(
            not unknown_paths and (drawn_paths or len(review.days)),
            f"paths must be thresholds of the review that move a decision, such as {known_paths}",
            unknown_paths or "none, and no day",
        )
        return cls(review, drawn_paths).plot(**drawing)

    @property
    def _n_panels(self) -> int:
        return len(self.paths) + bool(len(self.review.days))

    @property
    def _grid(self) -> tuple[int, int]:
        n_columns = min(TRAFFIC_COLUMNS, self._n_panels)
        return ceil(self._n_panels / n_columns), n_columns

    @property
    def _size(self) -> tuple[float, float]:
        n_rows, n_columns = self._grid
        return 4.9 * n_columns, 0.5 + 2.7 * n_rows

    def _draw(self, style: Style) -> list[Any]:
        drawn_artists: list[Any] = []
        for axes, path in zip(self.axes_, self.paths, strict=False):
            drawn_artists += self._draw_curve(axes, path, style)
        if len(self.review.days):
            drawn_artists += self._draw_days(self.axes_[len(self.paths)], style)
        for spare_axes in self.axes_[self._n_panels :]:
            spare_axes.set_axis_off()
        canvas.legend_over(self.axes_, 4)
        return drawn_artists

    def _draw_curve(self, axes: Axes, path: str, style: Style) -> list[Any]:
        """Shares of all requests as one threshold moves, as exact steps."""
        curve = self.review.curves[path]
        step_places = canvas.spaced_places(len(curve.low), MAX_CURVE_STEPS)
        step_starts = curve.low[step_places]
        step_counts = curve.counts[step_places]
        current_threshold = float(self.review.thresholds.set_index("path")["current"][path])
        change_points = step_starts[1:]
        axis_start, axis_end = canvas.visible_range(change_points, [current_threshold])
        step_edges = np.concatenate(
            [
                [min(axis_start, *change_points[:1])],
                change_points,
                [max(axis_end, *change_points[-1:])],
            ]
        )
        status_lines: list[Any] = []
        for status in Status:
            line_look: Style = {
                "color": canvas.LABEL_INKS[status],
                "linewidth": 1.5,
                "baseline": None,
            }
            line_look |= {
                "linestyle": canvas.DASHES[status.value],
                "label": TRAFFIC_STATUS_WORDS[status],
            }
            status_lines.append(
                axes.stairs(step_counts[:, status] / self.review.n, step_edges, **line_look | style)
            )
        status_lines.append(
            axes.axvline(current_threshold, label="policy's own value", **canvas.CERTIFIED_LINE)
        )
        axes.set_xlim(axis_start, axis_end)
        unit_text = f" ({curve.threshold.unit.name})" if curve.threshold.unit.name else ""
        axes.set_xlabel(
            canvas.literal_text(
                f"{path}{unit_text}, now {current_threshold:.6g}", canvas.LONGEST_TITLE
            )
        )
        canvas.limit_ticks(axes)
        canvas.shares_up(axes, f"share of {self.review.n:,} requests")
        return status_lines

    def _draw_days(self, axes: Axes, style: Style) -> list[Any]:
        """Shares of each day's requests below each other, with their number."""
        days = self.review.days
        day_places = np.arange(len(days))
        bar_base = np.zeros(len(days))
        status_bars = []
        for status in Status:
            day_shares = (days[status.name] / days["n"]).to_numpy(np.float64)
            bar_style: Style = {"color": canvas.LABEL_INKS[status], "width": 0.85, "alpha": 0.75}
            bar_style |= {
                "hatch": STATUS_HATCHES[status],
                "edgecolor": "white",
                "label": TRAFFIC_STATUS_WORDS[status],
            }
            status_bars.append(
                axes.bar(day_places, day_shares, bottom=bar_base, **bar_style | style)
            )
            bar_base += day_shares
        max_names = MAX_DAY_NAMES // (1 + canvas.is_narrow(axes))
        named_days = canvas.spaced_places(len(days), max_names)
        day_rows = days.iloc[named_days]
        day_names = [
            f"{day or 'no day'}\nn = {n_requests:,}"
            for day, n_requests in zip(day_rows["day"], day_rows["n"], strict=True)
        ]
        name_slant: Style = (
            {"rotation": 45, "ha": "right"} if len(named_days) > TRAFFIC_COLUMNS + 1 else {}
        )
        axes.set_xticks(named_days, day_names, **name_slant)
        axes.set_xlabel("day (UTC), n requests")
        canvas.shares_up(axes, "share of the day's requests")
        return status_bars

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn.

        Steps of the thresholds, then days, with `panel` as the first column.
        """
        gates = self.review.gates
        rows = gates[gates["path"].isin(self.paths)]
        panel_frames = [
            rows.assign(panel=rows["path"]).drop(columns="path"),
            self.review.days.assign(panel="days"),
        ]
        return joined_panels([panel_frame for panel_frame in panel_frames if len(panel_frame)])

    def _summary(self) -> Summary:
        threshold_rows = self.review.thresholds
        threshold_rows = threshold_rows[threshold_rows["path"].isin(self.paths)]
        names = ["path", "current", "lower", "lower_changed", "higher", "higher_changed"]
        facts = [
            ("requests", f"{self.review.n:,}"),
            ("thresholds drawn", f"{len(self.paths)} of {len(self.review.curves)}"),
        ]
        return Summary(
            facts,
            spaced_rows(dict(threshold_rows[names])),
            title=self.name or "traffic",
        )
