"""Display of off-policy estimates with their intervals and how far they can be trusted; see `bandit_plots`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text
from raglab.lab._wording import estimate, number

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

NEEDED = ("estimator", "value", "low", "high", "ess", "max_weight", "status")
MARKS: dict[str, dict[str, Any]] = {
    "ok": {"marker": "o", "color": ink.BLUE, "markersize": 6},
    "weak": {"marker": "s", "color": ink.ORANGE, "markersize": 6, "markerfacecolor": "white"},
    "none": {"marker": "X", "color": ink.VERMILLION, "markersize": 7},
}
SAID = {"ok": "ok", "weak": "weak: read with care", "none": "none: the log says nothing about it"}
COLUMNS = (("value", 34), ("ESS", 88), ("largest\nweight", 140), ("status", 190))  # points right of the axes


@dataclass(eq=False, repr=False)
class ForestDisplay:
    """Estimates below each other, the interval as a line, the status as the mark; beside them ESS and largest weight.

    estimates: frame as `off_policy.estimate` gives it; a column `policy` names rows of several targets. truth: the
    value that is to be met, where it is known. After `plot`: ax_, figure_.
    """

    estimates: pd.DataFrame
    truth: float | None = None
    level: float = 0.95
    unit: str = "mean reward a round, 0 to 1"
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimates(
        cls,
        estimates: pd.DataFrame,
        *,
        truth: float | None = None,
        level: float = 0.95,
        unit: str = "mean reward a round, 0 to 1",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the marks
    ) -> Self:
        """Display of estimates.

        Args:
          estimates: of `off_policy.estimate`, or several joined, with a column `policy`. level: of their intervals.
          truth: drawn as a dashed line.

        Raises:
          ValueError: no row, a missing column or an unknown status.

        Example: `ForestDisplay.from_estimates(off_policy.estimate(log, target), truth=0.62)`.
        """
        absent = [name for name in NEEDED if name not in estimates]
        odd = [] if "status" in absent else sorted(set(estimates["status"]) - set(MARKS))
        if absent or odd or not len(estimates):
            came = f"{', '.join(absent)} missing" if absent else f"{len(estimates)} rows, status {odd}"
            msg = f"estimates must be rows of {', '.join(NEEDED)}, status ok, weak or none, got {came}."
            raise ValueError(msg)
        return cls(estimates.reset_index(drop=True), truth, level, unit, name).plot(ax, **kwargs)

    @property
    def _names(self) -> list[str]:
        rows = self.estimates
        if "policy" not in rows:
            return [str(one) for one in rows["estimator"]]
        return [f"{policy}: {one}" for policy, one in zip(rows["policy"], rows["estimator"], strict=True)]

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the marks
        """Draw on axes, or on those of a new figure."""
        rows, n = self.estimates, len(self.estimates)
        self.ax_ = canvas.axes(ax, 8.2, 1.7 + 0.34 * n)
        self.figure_ = canvas.whole(self.ax_)
        height = -np.arange(n, dtype=np.float64)
        for status, mark in MARKS.items():
            at = np.flatnonzero((rows["status"] == status).to_numpy())
            if len(at):
                value, low, high = (rows[name].to_numpy(dtype=np.float64)[at] for name in ("value", "low", "high"))
                reach = np.stack([value - low, high - value])
                look: dict[str, Any] = (
                    {"linestyle": "none", "elinewidth": 1.4, "capsize": 3, "label": SAID[status]} | mark | kwargs
                )
                self.ax_.errorbar(value, height[at], xerr=np.abs(reach), **look)
        if self.truth is not None:
            self.ax_.axvline(self.truth, label=f"true value {self.truth:.3f}", **ink.TARGET)
        self._write(height)
        self.ax_.set_yticks(height, [ink.plain(name) for name in self._names])
        self.ax_.set_ylim(-n + 0.4, 0.6)
        self.ax_.set_xlabel(f"value ({self.unit}; {self._interval_is})", fontsize=9)
        canvas.tidy(self.ax_)
        self.ax_.set_ylabel("estimator (with interval)", fontsize=9)
        canvas.legend_above(self.ax_, 2, first=lambda label: not label.startswith("true"))
        return self

    def _write(self, height: NDArray[np.float64]) -> None:
        """Numbers of each row, right of the axes."""
        look: dict[str, Any] = {
            "xycoords": self.ax_.get_yaxis_transform(),
            "textcoords": "offset points",
            "fontsize": 8,
            "ha": "center",
            "va": "center",
        }
        for head, aside in COLUMNS:
            self.ax_.annotate(head, (1, 0.6), xytext=(aside, 12), style="italic", **look)
        for at, row in zip(height, self.estimates.to_dict("records"), strict=True):
            cells = (f"{row['value']:.3f}", f"{row['ess']:,.0f}", number(float(row["max_weight"])), str(row["status"]))
            for (_, aside), cell in zip(COLUMNS, cells, strict=True):
                self.ax_.annotate(cell.replace("nan", "–"), (1, at), xytext=(aside, 0), **look)

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.level:g} % interval"

    def to_frame(self) -> pd.DataFrame:
        """Return the estimates, a row each."""
        return self.estimates.copy()

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        rows = self.estimates
        values = rows[["value", "low", "high"]].to_numpy(dtype=np.float64)
        columns: dict[str, Any] = {
            "estimator": self._names,
            "value": [estimate(*row) for row in values],
            "ESS": rows["ess"],
            "largest weight": rows["max_weight"],
            "status": [str(one) for one in rows["status"]],
        }
        true = "" if self.truth is None else f", true value {self.truth:.3f}"
        return html(self, f"{self.name or 'off-policy estimates'}{true}", columns, self._interval_is)
