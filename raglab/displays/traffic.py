"""Display of traffic (shore): what a policy does to logged requests by threshold and day (S3.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from raglab.displays import canvas
from raglab.displays.display import Display, Shown
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

COLUMNS = 2  # of panels
MOST_PATHS = 5  # panels of thresholds
MOST_STEPS = 2_000  # that a line draws
MOST_DAYS = 12  # names of days on an axis
WORDS = {Status.ok: "answered", Status.refuse: "refused", Status.ambiguous: "asked back"}


class ReviewedTraffic(Protocol):
    """What `review` returns, as far as it is drawn."""

    @property
    def n(self) -> int:
        """Requests."""

    @property
    def curves(self) -> Mapping[str, Any]:
        """Curve of each threshold, by path.

        `threshold`, and `low`, `high`, `counts`, `changed` of its steps.
        """

    @property
    def days(self) -> pd.DataFrame:
        """Rows of `day`, `n` and requests by decision."""

    @property
    def gates(self) -> pd.DataFrame:
        """Rows of the curves: `path`, `low`, `high`, requests by decision."""

    @property
    def thresholds(self) -> pd.DataFrame:
        """Rows of thresholds: `path`, `current`, and the nearest changes."""


@dataclass(eq=False, repr=False)
class ReviewDisplay(Display):
    """Shares answered, refused and asked back.

    A panel a threshold as it moves, the policy's own marked, and by day.

    Attributes:
      review: of `raglab.review`.
      paths: of the thresholds that are drawn.
    """

    review: ReviewedTraffic
    paths: Sequence[str]

    @classmethod
    def from_review(
        cls,
        review: ReviewedTraffic,
        *,
        paths: Sequence[str] | None = None,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of a review.

        Args:
          review: of `raglab.review`.
          paths: of the thresholds to draw; where not given, the five at most whose curve changes
            most requests.
          name: drawn in the legend or title.
          ax: an axes a threshold, and one of the days where requests state them; or one whose place
            they take.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: a path that the review has no curve of, or nothing to draw.

        Example: `ReviewDisplay.from_review(raglab.review(trace, policy))`.
        """
        curves = review.curves
        moving = [path for path, curve in curves.items() if len(curve.low) > 1]
        by_change = sorted(moving, key=lambda path: -int(curves[path].changed.max()))[:MOST_PATHS]
        drawn = [path for path in moving if path in by_change] if paths is None else list(paths)
        unknown = [path for path in drawn if path not in curves]
        if unknown or not (drawn or len(review.days)):
            value = (
                repr(unknown[0]) if unknown else "no threshold that changes a decision, and no day"
            )
            msg = (
                f"paths must be thresholds of the review, such as {', '.join([*curves][:3])}, got "
                f"{value}."
            )
            raise ValueError(msg)
        return cls(review, drawn, name=name).plot(ax, **style)

    @property
    def _n_panels(self) -> int:
        return len(self.paths) + bool(len(self.review.days))

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        columns = min(COLUMNS, self._n_panels)
        rows = ceil(self._n_panels / columns)
        if ax is not None:
            return canvas.panels(ax, 1, self._n_panels, (0.0, 0.0))
        panels = canvas.panels(None, rows, columns, (4.9 * columns, 0.5 + 2.7 * rows))
        for spare in panels[self._n_panels :]:
            spare.set_axis_off()
        return panels[: self._n_panels]

    def _draw(self, style: Style) -> list[Any]:
        lines: list[Any] = []
        for on, path in zip(self.axes_, self.paths, strict=False):
            lines += self._draw_curve(on, path, style)
        if len(self.review.days):
            lines += self._draw_days(self.axes_[-1], style)
        labels = [WORDS[status] for status in Status]
        mark = [line for line in lines if line.get_label() == "policy's own value"][:1]
        canvas.legend_over(
            self.figure_, [*lines[:3], *mark], [*labels, *(["policy's own value"] * len(mark))], 4
        )
        return lines

    def _draw_curve(self, on: Axes, path: str, style: Style) -> list[Any]:
        """Shares of all requests as one threshold moves, as exact steps."""
        curve = self.review.curves[path]
        places = np.unique(
            np.linspace(0, len(curve.low) - 1, min(len(curve.low), MOST_STEPS)).round().astype(int)
        )
        low, counts = curve.low[places], curve.counts[places]
        current = float(self.review.thresholds.set_index("path")["current"][path])
        inner = low[1:]
        first, last = canvas.visible_range(inner, [current])
        edges = np.concatenate([[min(first, *inner[:1])], inner, [max(last, *inner[-1:])]])
        lines: list[Any] = []
        for status in Status:
            look: Style = {"color": canvas.LABEL_INKS[status], "linewidth": 1.5, "baseline": None}
            look["linestyle"] = canvas.DASHES[status.value]
            lines.append(on.stairs(counts[:, status] / self.review.n, edges, **look | style))
        lines.append(on.axvline(current, label="policy's own value", **canvas.CERTIFIED))
        on.set_xlim(first, last)
        unit = f" ({curve.threshold.unit.name})" if curve.threshold.unit.name else ""
        on.set_xlabel(
            canvas.literal_text(f"{path}{unit}, now {current:.6g}", canvas.LONGEST_TITLE),
            fontsize=9,
        )
        canvas.limit_ticks(on)
        canvas.shares_up(on, f"share of {self.review.n:,} requests")
        return lines

    def _draw_days(self, on: Axes, style: Style) -> list[Any]:
        """Shares of each day's requests below each other, with their number."""
        days = self.review.days
        at, base = np.arange(len(days)), np.zeros(len(days))
        bars = []
        for status in Status:
            share: NDArray[np.float64] = days[status.name].to_numpy(np.float64) / days[
                "n"
            ].to_numpy(np.float64)
            look: Style = {"color": canvas.LABEL_INKS[status], "width": 0.85, "alpha": 0.75}
            bars.append(on.bar(at, share, bottom=base, **look | style))
            base += share
        shown = np.unique(
            np.linspace(0, len(days) - 1, min(len(days), MOST_DAYS)).round().astype(int)
        )
        names = [
            f"{days['day'].iloc[row] or 'no day'}\nn = {days['n'].iloc[row]:,}" for row in shown
        ]
        slanted = len(shown) > COLUMNS + 1
        on.set_xticks(
            shown, names, rotation=45 if slanted else 0, ha="right" if slanted else "center"
        )
        on.set_xlabel("day (UTC), n requests", fontsize=9)
        canvas.shares_up(on, "share of the day's requests")
        return bars

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn.

        Steps of the thresholds, then days, with `panel` as the first column.
        """
        import pandas as pd

        gates = self.review.gates
        steps = gates[gates["path"].isin(self.paths)]
        frames = [
            steps.assign(panel=steps["path"]).drop(columns="path"),
            self.review.days.assign(panel="days"),
        ]
        joined = pd.concat([frame for frame in frames if len(frame)], ignore_index=True)
        return joined[["panel", *(name for name in joined if name != "panel")]]

    def _shown(self) -> Shown:
        rows = self.review.thresholds
        rows = rows[rows["path"].isin(self.paths)]
        columns = {
            "threshold": rows["path"].tolist(),
            "now": rows["current"],
            "next lower": rows["lower"],
            "requests changed there": rows["lower_changed"].astype(int),
            "next higher": rows["higher"],
            "requests changed": rows["higher_changed"].astype(int),
        }
        more = sum(len(curve.low) > 1 for curve in self.review.curves.values()) - len(self.paths)
        left_out = f"; {more} thresholds not drawn" if more > 0 else ""
        return Shown(
            f"{self.name or 'traffic'}: {self.review.n:,} requests by threshold and day{left_out}",
            columns,
        )
