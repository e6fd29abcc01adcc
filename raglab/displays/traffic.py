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

COLUMNS = 2  # of panels
MOST_PATHS = 5  # panels of thresholds
MOST_STEPS = 2_000  # that a line draws
MOST_DAYS = 12  # names of days on an axis
HATCHES = ("", "//", "..")  # of bars by decision, told apart in grey
WORDS = {Status.ok: "answered", Status.refuse: "refused", Status.ambiguous: "asked back"}


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
        moving = [path for path, curve in curves.items() if len(curve.low) > 1]
        by_change = sorted(moving, key=lambda path: -int(curves[path].changed.max()))[:MOST_PATHS]
        drawn = [path for path in moving if path in by_change] if paths is None else list(paths)
        unknown = [path for path in drawn if path not in curves]
        known = ", ".join([*curves][:3])
        rule = f"paths must be thresholds of the review that move a decision, such as {known}"
        check(not unknown and (drawn or len(review.days)), rule, unknown or "none, and no day")
        return cls(review, drawn).plot(**drawing)

    @property
    def _n_panels(self) -> int:
        return len(self.paths) + bool(len(self.review.days))

    @property
    def _grid(self) -> tuple[int, int]:
        columns = min(COLUMNS, self._n_panels)
        return ceil(self._n_panels / columns), columns

    @property
    def _size(self) -> tuple[float, float]:
        rows, columns = self._grid
        return 4.9 * columns, 0.5 + 2.7 * rows

    def _draw(self, style: Style) -> list[Any]:
        lines: list[Any] = []
        for on, path in zip(self.axes_, self.paths, strict=False):
            lines += self._draw_curve(on, path, style)
        if len(self.review.days):
            lines += self._draw_days(self.axes_[len(self.paths)], style)
        for spare in self.axes_[self._n_panels :]:
            spare.set_axis_off()
        canvas.legend_over(self.axes_, 4)
        return lines

    def _draw_curve(self, on: Axes, path: str, style: Style) -> list[Any]:
        """Shares of all requests as one threshold moves, as exact steps."""
        curve = self.review.curves[path]
        places = canvas.spaced_places(len(curve.low), MOST_STEPS)
        low, counts = curve.low[places], curve.counts[places]
        current = float(self.review.thresholds.set_index("path")["current"][path])
        inner = low[1:]
        first, last = canvas.visible_range(inner, [current])
        edges = np.concatenate([[min(first, *inner[:1])], inner, [max(last, *inner[-1:])]])
        lines: list[Any] = []
        for status in Status:
            look: Style = {"color": canvas.LABEL_INKS[status], "linewidth": 1.5, "baseline": None}
            look |= {"linestyle": canvas.DASHES[status.value], "label": WORDS[status]}
            lines.append(on.stairs(counts[:, status] / self.review.n, edges, **look | style))
        lines.append(on.axvline(current, label="policy's own value", **canvas.CERTIFIED))
        on.set_xlim(first, last)
        unit = f" ({curve.threshold.unit.name})" if curve.threshold.unit.name else ""
        label = f"{path}{unit}, now {current:.6g}"
        on.set_xlabel(canvas.literal_text(label, canvas.LONGEST_TITLE))
        canvas.limit_ticks(on)
        canvas.shares_up(on, f"share of {self.review.n:,} requests")
        return lines

    def _draw_days(self, on: Axes, style: Style) -> list[Any]:
        """Shares of each day's requests below each other, with their number."""
        days = self.review.days
        at, base = np.arange(len(days)), np.zeros(len(days))
        bars = []
        for status in Status:
            share = (days[status.name] / days["n"]).to_numpy(np.float64)
            look: Style = {"color": canvas.LABEL_INKS[status], "width": 0.85, "alpha": 0.75}
            look |= {"hatch": HATCHES[status], "edgecolor": "white", "label": WORDS[status]}
            bars.append(on.bar(at, share, bottom=base, **look | style))
            base += share
        few = MOST_DAYS // (1 + canvas.is_narrow(on))
        shown = canvas.spaced_places(len(days), few)
        rows = days.iloc[shown]
        names = [
            f"{day or 'no day'}\nn = {n:,}" for day, n in zip(rows["day"], rows["n"], strict=True)
        ]
        slant: Style = {"rotation": 45, "ha": "right"} if len(shown) > COLUMNS + 1 else {}
        on.set_xticks(shown, names, **slant)
        on.set_xlabel("day (UTC), n requests")
        canvas.shares_up(on, "share of the day's requests")
        return bars

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn.

        Steps of the thresholds, then days, with `panel` as the first column.
        """
        gates = self.review.gates
        steps = gates[gates["path"].isin(self.paths)]
        frames = [
            steps.assign(panel=steps["path"]).drop(columns="path"),
            self.review.days.assign(panel="days"),
        ]
        return joined_panels([frame for frame in frames if len(frame)])

    def _summary(self) -> Summary:
        rows = self.review.thresholds
        rows = rows[rows["path"].isin(self.paths)]
        names = ["path", "current", "lower", "lower_changed", "higher", "higher_changed"]
        drawn = f"{len(self.paths)} of {len(self.review.curves)}"
        facts = [("requests", f"{self.review.n:,}"), ("thresholds drawn", drawn)]
        return Summary(facts, spaced_rows(dict(rows[names])), title=self.name or "traffic")
