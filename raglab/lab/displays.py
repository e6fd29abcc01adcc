"""Displays in scikit-learn's manner: values computed once, drawn on any axes, read as a table, shown in a notebook.

`from_predictions` computes and draws, `plot` draws again, `to_frame` gives every number that is drawn with its counts
and interval, and a display that ends a cell shows figure and table. A figure that `pyplot` holds is shown by it; the
display then adds the table alone. No number depends on the order of the cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from raglab import calibration, metrics
from raglab.calibration import Brier, SmoothECE, Strategy
from raglab.lab import _canvas as canvas
from raglab.lab import _draw as draw
from raglab.lab import _ink as ink
from raglab.lab._decided import OutcomeTableDisplay, ThresholdSweepDisplay
from raglab.lab._shown import html, known, said, text
from raglab.lab._wording import Cell, percent
from raglab.metrics import Interval
from raglab.values import Curve

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

__all__ = ["OutcomeTableDisplay", "ReliabilityDisplay", "RiskCoverageDisplay", "ThresholdSweepDisplay"]

Band = Literal["pointwise", "simultaneous"]


@dataclass(eq=False, repr=False)
class ReliabilityDisplay:
    """Observed rate against probability: points with exact intervals, and how many cases have such scores below.

    curve: of `calibration.reliability`, interval: exact, of each point at `level`. spread: cases by score, in 20 equal
    bins. ece: over 15 equal widths, whatever is drawn. After `plot`: ax_, figure_, and line_ through the points.
    """

    curve: Curve
    interval: Interval
    spread: Curve
    ece: float
    smooth_ece: SmoothECE
    brier: Brier
    level: float = 0.95
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Any = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = 10,
        strategy: Strategy = "uniform",
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the points
    ) -> Self:
        """Display of probabilities against outcomes; see `calibration.reliability` for the bins and their edges.

        Plot a second one on `first.ax_` to hold in-sample against cross-fitted probabilities; in-sample ones flatter
        and never stand alone.

        Args:
          y_true: outcomes, 0 or 1, [Q]. y_prob: probabilities, [Q]. strategy: "uniform", "quantile" or "corp".
          level: of the intervals.

        Raises:
          ValueError: a score outside [0, 1] (rank only: calibrate first), NaN, no case, or level outside (0, 1).

        Example: `ReliabilityDisplay.from_predictions(right, p, strategy="corp", name="cross-fitted")`.
        """
        curve = calibration.reliability(y_true, y_prob, bins=n_bins, strategy=strategy)
        return cls(
            curve,
            metrics.clopper_pearson(curve.k, curve.n, level),
            calibration.reliability(y_true, y_prob, bins=draw.SPREAD_BINS),
            calibration.ece(y_true, y_prob),
            calibration.smooth_ece_with_bandwidth(y_true, y_prob),
            calibration.brier_decomposition(y_true, y_prob),
            level,
            name,
        ).plot(ax, **kwargs)

    @property
    def summary(self) -> str:
        """ECE, smooth ECE with its bandwidth, Brier score with its parts, in two lines."""
        smooth, score = self.smooth_ece, self.brier
        return (
            f"ECE {self.ece:.3f}, smooth ECE {smooth.value:.3f} (bandwidth {smooth.bandwidth:.3f})\n"
            f"Brier {score.score:.3f} = MCB {score.mcb:.3f} − DSC {score.dsc:.3f} + UNC {score.unc:.3f}"
        )

    def plot(self, ax: Axes | None = None, name: str | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the points
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 6.4, 5.4)
        self.figure_ = canvas.whole(self.ax_)
        told = ink.plain(name or self.name or "scores")
        label = f"{told} ({int(self.curve.n.sum())} cases): {self.summary}"
        self.line_ = draw.reliability(self.ax_, self.curve, self.interval, self.spread, label, **kwargs)
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row a point: `bin_low` (excluded, but for 0), `score` (mean), `rate`, `k`, `n`, `low`, `high`."""
        import pandas as pd

        curve, (low, high) = self.curve, self.interval
        columns = {"bin_low": curve.at, "score": curve.x, "rate": curve.y, "k": curve.k, "n": curve.n}
        return pd.DataFrame(columns | {"low": low, "high": high})

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        columns: dict[str, Any] = {
            "bin above": frame["bin_low"],
            "mean score": frame["score"],
            "came true": said(frame),
        }
        return html(self, f"{self.name or 'scores'}: {self.summary}", columns, f"exact {100 * self.level:g} % interval")


@dataclass(eq=False, repr=False)
class RiskCoverageDisplay:
    """Risk at every reachable coverage of one confidence.

    curve: of `metrics.risk_coverage`, interval: of its risk, pointwise unless `band` is simultaneous; none is drawn
    where band is None. After `plot`: ax_, figure_, line_.
    """

    curve: Curve
    interval: Interval
    aurc: float
    eaurc: float
    band: Band | None = "pointwise"
    level: float = 0.95
    target: float | None = None
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Any = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        confidence: ArrayLike,
        *,
        band: Band | None = "pointwise",
        level: float = 0.95,
        target: float | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the line
    ) -> Self:
        """Display of answering where the confidence is at least a threshold, for every threshold.

        Args:
          correct: right if answered, boolean or 0 and 1, [Q]. confidence: higher is surer, [Q]; NaN never answers.
          band: "pointwise" holds at one coverage chosen beforehand, "simultaneous" at all of them at once.
          target: risk wanted; marks the largest coverage that keeps it on these cases, which flatters.

        Raises:
          ValueError: unknown band, level or target out of range, no cases, shapes that differ, or no confidence at all.
        """
        _check(band, target)
        curve = known(metrics.risk_coverage(correct, confidence), "confidence")
        interval = metrics.risk_band(curve, level, simultaneous=band == "simultaneous")
        areas = metrics.aurc(correct, confidence), metrics.eaurc(correct, confidence)
        return cls(curve, interval, *areas, band, level, target, name).plot(ax, **kwargs)

    @property
    def within_target(self) -> int | None:
        """Step of the largest coverage that keeps the target on these cases; None if none does."""
        steps = np.flatnonzero(self.curve.y <= (-1.0 if self.target is None else self.target))
        return int(steps[-1]) if len(steps) else None

    def plot(self, ax: Axes | None = None, name: str | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the line
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.0, 4.8)
        self.figure_ = canvas.whole(self.ax_)
        label = f"{ink.plain(name or self.name or 'confidence')}: AURC {self.aurc:.3f}, E-AURC {self.eaurc:.3f}"
        place = sum(line.get_drawstyle() == "steps-pre" for line in self.ax_.get_lines())
        self.line_ = draw.risk(self.ax_, self.curve, label, place, **kwargs)
        if self.band is not None:
            draw.risk_band(self.ax_, self.curve, self.interval, self._interval_is, self.line_.get_color())
        if self.target is not None:
            draw.target(self.ax_, self.target, f"target {100 * self.target:g} %")
            self._mark()
        most = self.curve.y if self.band is None else self.interval.high
        draw.risk_axes(self.ax_, draw.risk_top(self.curve, most, self.target or 0.0))
        canvas.legend_above(self.ax_)
        return self

    def _mark(self) -> None:
        """Mark of the largest coverage within the target."""
        step = self.within_target
        if step is not None:
            coverage, risk, at = (part[step] for part in (self.curve.x, self.curve.y, self.curve.at))
            told = f"{100 * coverage:.1f} % answered within the target on these cases: threshold {at:.4g}"
            style = {"marker": "o", "linestyle": "none", "color": self.line_.get_color()}
            self.ax_.plot([coverage], [risk], label=told, **style)

    def to_frame(self) -> pd.DataFrame:
        """One row a step, the most confident first: `threshold`, `coverage`, `risk`, `k`, `n`, `low`, `high`."""
        import pandas as pd

        curve, (low, high) = self.curve, self.interval
        columns = {"threshold": curve.at, "coverage": curve.x, "risk": curve.y, "k": curve.k, "n": curve.n}
        return pd.DataFrame(columns | {"low": low, "high": high})

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        shares = [Cell(percent(share), mark="number") for share in frame["coverage"]]
        columns: dict[str, Any] = {"threshold": frame["threshold"], "coverage": shares, "risk": said(frame, "risk")}
        told = f"{self.name or 'confidence'}: AURC {self.aurc:.3f}, E-AURC {self.eaurc:.3f}"
        return html(self, told, columns, self._interval_is)

    @property
    def _interval_is(self) -> str:
        where = "at all coverages at once" if self.band == "simultaneous" else "at each coverage by itself"
        return f"{100 * self.level:g} % interval {where}"


def _check(band: str | None, target: float | None) -> None:
    if band is not None and band not in get_args(Band):
        msg = f"band must be one of {', '.join(get_args(Band))} or None, got {band!r}."
        raise ValueError(msg)
    if target is not None and not 0.0 <= target <= 1.0:
        msg = f"target must be in [0, 1], got {target}; it is the wrong share of the answered, 0.1 for 10 %."
        raise ValueError(msg)
