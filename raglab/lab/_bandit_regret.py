"""Display of what learners lose through time; see `bandit_plots`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text
from raglab.lab._wording import estimate
from raglab.lab.simulated import mean_interval

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

Array = NDArray[np.float64]
Band = Literal["interval", "quantiles"]
MOST_POINTS = 400  # of a line
TOLD = {"interval": "% interval of the mean", "quantiles": "% of the replications"}


class Simulated(Protocol):
    """What `replay.run` returns, as far as it is drawn."""

    @property
    def regret(self) -> Array:
        """Cumulative regret, [R, T]."""


def lai_robbins(means: ArrayLike) -> float:
    """Least regret a unit of ln(rounds) that any consistent policy has on Bernoulli arms in the long run.

    Source: Lai and Robbins 1985.

    Example:
      >>> round(lai_robbins([0.7, 0.6, 0.5, 0.4]), 3)
      8.285
    """
    p = np.asarray(means, dtype=np.float64)
    if p.ndim != 1 or not ((p > 0.0) & (p < 1.0)).all():
        msg = f"means must be [A] probabilities inside (0, 1), got {p.tolist()}; arms must stay as they are."
        raise ValueError(msg)
    best = p.max()
    worse = p[p < best]
    divergence = worse * np.log(worse / best) + (1.0 - worse) * np.log((1.0 - worse) / (1.0 - best))
    return float(((best - worse) / divergence).sum())


@dataclass(eq=False, repr=False)
class RegretDisplay:
    """Mean cumulative regret of runs over the rounds, with a band over their replications.

    at: rounds drawn, [N]. mean, low, high: name -> [N]; without a band where there is one replication. replications:
    name -> how many. slope: of the Lai–Robbins line. After `plot`: ax_, figure_, lines_.
    """

    at: NDArray[np.int64]
    mean: Mapping[str, Array]
    low: Mapping[str, Array]
    high: Mapping[str, Array]
    replications: Mapping[str, int]
    band: Band = "interval"
    level: float = 0.95
    log_x: bool = False
    slope: float | None = None
    unit: str = "reward"
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_runs(
        cls,
        runs: Mapping[str, Simulated],
        *,
        band: Band = "interval",
        level: float = 0.95,
        log_x: bool = False,
        slope: float | None = None,
        unit: str = "reward",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of runs by name, all of the same number of rounds.

        Args:
          band: "interval", that of the mean over replications; "quantiles", the middle share of the replications.
          log_x: rounds on a logarithmic axis, where the regret of a good learner is a straight line in the end.
          slope: of a line slope · ln(rounds), such as `lai_robbins(means)`.
          unit: of the regret, such as "right answers".

        Raises:
          ValueError: no run, lengths that differ, an unknown band, or level outside (0, 1).

        Example: `RegretDisplay.from_runs({"ucb1": one, "thompson_beta": two}, log_x=True, slope=8.285)`.
        """
        if band not in TOLD or not 0.0 < level < 1.0:
            msg = f"band must be interval or quantiles and level in (0, 1), got {band!r} and {level:g}."
            raise ValueError(msg)
        lengths = {int(run.regret.shape[1]) for run in runs.values()}
        if len(lengths) != 1:
            msg = f"runs must be at least one and of as many rounds, got {sorted(lengths)}; simulate them alike."
            raise ValueError(msg)
        at = _rounds(lengths.pop(), log=log_x)
        bands = {name: _banded(run.regret[:, at - 1], band, level) for name, run in runs.items()}
        return cls(
            at,
            {name: run.regret[:, at - 1].mean(axis=0) for name, run in runs.items()},
            {name: one[0] for name, one in bands.items()},
            {name: one[1] for name, one in bands.items()},
            {name: len(run.regret) for name, run in runs.items()},
            band, level, log_x, slope, unit, name,
        ).plot(ax, **kwargs)  # fmt: skip

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.6)
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        for place, name in enumerate(self.mean):
            look = ink.line_style(place) | kwargs
            label = f"{ink.plain(name)}: {self._end(name)}"
            self.lines_ += self.ax_.plot(self.at, self.mean[name], label=label, **look)
            self.ax_.fill_between(self.at, self.low[name], self.high[name], color=look["color"], **ink.BAND)
        if self.slope is not None:
            label = f"Lai–Robbins: {self.slope:.4g} · ln(rounds), a slope in the long run"
            self.ax_.plot(self.at, self.slope * np.log(self.at), label=label, **ink.TARGET)
        if self.log_x:
            self.ax_.set_xscale("log")
        self.ax_.set_xlim(self.at[0] if self.log_x else 0, self.at[-1])
        self.ax_.set_xlabel(f"rounds (count{', logarithmic' if self.log_x else ''})", fontsize=9)
        self.ax_.set_ylabel(f"cumulative regret ({self.unit})", fontsize=9)
        canvas.tidy(self.ax_)
        self.ax_.fill_between([], [], [], color=ink.GREY, label=self._band_is, **ink.BAND)
        canvas.legend_above(self.ax_, 2 if len(self.mean) > 3 else 1)
        return self

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} {TOLD[self.band]}"

    def _end(self, name: str) -> str:
        low, high = self.low[name][-1], self.high[name][-1]
        end = _short(self.mean[name][-1])
        return end if np.isnan(low) else f"{end} ({_short(low)} to {_short(high)})"

    def to_frame(self) -> pd.DataFrame:
        """One row a run and round drawn: `run`, `round`, `regret`, `low`, `high`, `replications`."""
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "run": name,
                    "round": self.at,
                    "regret": self.mean[name],
                    "low": self.low[name],
                    "high": self.high[name],
                    "replications": self.replications[name],
                }
            )
            for name in self.mean
        ]
        return pd.concat(parts, ignore_index=True)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        last = self.to_frame().drop_duplicates("run", keep="last")
        columns: dict[str, Any] = {
            "run": last["run"],
            "rounds": last["round"],
            "replications": last["replications"],
            f"regret ({self.unit})": [estimate(*row) for row in last[["regret", "low", "high"]].to_numpy()],
        }
        return html(self, f"{self.name or 'regret'} at the last round", columns, self._band_is)


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def _rounds(n_rounds: int, *, log: bool) -> NDArray[np.int64]:
    """Rounds that are drawn, from 1: all of them, or so many that a line is smooth, the last one among them."""
    if n_rounds <= MOST_POINTS:
        return np.arange(1, n_rounds + 1)
    spaced = np.geomspace(1, n_rounds, MOST_POINTS) if log else np.linspace(1, n_rounds, MOST_POINTS)
    return np.unique(spaced.round().astype(np.int64))


def _banded(regret: Array, band: str, level: float) -> tuple[Array, Array]:
    """Ends of the band, [N]; NaN where one replication says nothing about others."""
    tail = (1.0 - level) / 2.0
    if band == "quantiles" and len(regret) > 1:
        low, high = np.quantile(regret, [tail, 1.0 - tail], axis=0)
        return low, high
    return mean_interval(regret, level)
