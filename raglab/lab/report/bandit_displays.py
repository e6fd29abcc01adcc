"""Bandit displays (shore): regret, shares of arms, posteriors, propensities.

In scikit-learn's manner, as in `displays`: `from_…` takes values that were computed elsewhere and draws them, `plot`
draws them again on any axes, `to_frame` gives every number that is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.lab.report import canvas
from raglab.lab.report import canvas as ink
from raglab.lab.report.blocks import ReportCell, estimate_cell, percent
from raglab.lab.report.canvas import html, text_summary
from raglab.metrics.intervals import mean_interval, percentile_interval

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.report.canvas import Axes, Figure

Array = NDArray[np.float64]
Band = Literal["interval", "quantiles"]
MOST_POINTS = 400  # of a line
BAND_WORDS = {"interval": "% interval of the mean", "quantiles": "% of the replications"}


class RunRegret(Protocol):
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
        runs: Mapping[str, RunRegret],
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
        if band not in BAND_WORDS or not 0.0 < level < 1.0:
            msg = f"band must be interval or quantiles and level in (0, 1), got {band!r} and {level:g}."
            raise ValueError(msg)
        lengths = {int(run.regret.shape[1]) for run in runs.values()}
        if len(lengths) != 1:
            msg = f"runs must be at least one and of as many rounds, got {sorted(lengths)}; simulate them alike."
            raise ValueError(msg)
        at = _plotted_rounds(lengths.pop(), log=log_x)
        bands = {name: _regret_band(run.regret[:, at - 1], band, level) for name, run in runs.items()}
        return cls(
            at=at,
            mean={name: run.regret[:, at - 1].mean(axis=0) for name, run in runs.items()},
            low={name: one[0] for name, one in bands.items()},
            high={name: one[1] for name, one in bands.items()},
            replications={name: len(run.regret) for name, run in runs.items()},
            band=band,
            level=level,
            log_x=log_x,
            slope=slope,
            unit=unit,
            name=name,
        ).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.6)
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        for place, name in enumerate(self.mean):
            look = ink.line_style(place) | kwargs
            label = f"{ink.literal_text(name)}: {self._end(name)}"
            self.lines_ += self.ax_.plot(self.at, self.mean[name], label=label, **look)
            self.ax_.fill_between(self.at, self.low[name], self.high[name], color=look["color"], **ink.BAND)
        if self.slope is not None:
            label = f"Lai–Robbins: {self.slope:.4g} · ln(rounds), a slope in the long run"
            self.ax_.plot(self.at, self.slope * np.log(self.at), label=label, **ink.TARGET)
        if self.log_x:
            self.ax_.set_xscale("log")
        self.ax_.set_xlim(self.at[0] if self.log_x else 0, self.at[-1])
        self.ax_.set_xlabel(f"rounds (count{', logarithmic' if self.log_x else ''})", fontsize=9)
        self.ax_.set_ylabel(f"cumulative regret ({ink.literal_text(self.unit)})", fontsize=9)
        canvas.tidy(self.ax_)
        if any((self.high[name] > self.low[name]).any() for name in self.mean):  # of one replication there is no band
            self.ax_.fill_between([], [], [], color=ink.GREY, label=self._band_is, **ink.BAND)
        canvas.legend_above(self.ax_, 2 if len(self.mean) > 3 else 1)
        return self

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} {BAND_WORDS[self.band]}"

    def _end(self, name: str) -> str:
        low, high = self.low[name][-1], self.high[name][-1]
        end = _three_digits(self.mean[name][-1])
        return end if np.isnan(low) else f"{end} ({_three_digits(low)} to {_three_digits(high)})"

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
        return text_summary(self)

    def _repr_html_(self) -> str:
        last = self.to_frame().drop_duplicates("run", keep="last")
        columns: dict[str, Any] = {
            "run": last["run"],
            "rounds": last["round"],
            "replications": last["replications"],
            f"regret ({self.unit})": [estimate_cell(*row) for row in last[["regret", "low", "high"]].to_numpy()],
        }
        return html(self, f"{self.name or 'regret'} at the last round", columns, self._band_is)


def _three_digits(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def _plotted_rounds(n_rounds: int, *, log: bool) -> NDArray[np.int64]:
    """Rounds that are drawn, from 1: all of them, or so many that a line is smooth, the last one among them."""
    if n_rounds <= MOST_POINTS:
        return np.arange(1, n_rounds + 1)
    spaced = np.geomspace(1, n_rounds, MOST_POINTS) if log else np.linspace(1, n_rounds, MOST_POINTS)
    return np.unique(spaced.round().astype(np.int64))


def _regret_band(regret: Array, band: str, level: float) -> tuple[Array, Array]:
    """Ends of the band, [N]; NaN where one replication says nothing about others."""
    return (percentile_interval if band == "quantiles" and len(regret) > 1 else mean_interval)(regret, level)


PREFIX = "p_"
WINDOWS = 50  # that a run is cut into where no window is given


class RunArms(Protocol):
    """What `replay.run` returns, as far as it is drawn."""

    @property
    def arm(self) -> NDArray[np.integer[Any]]:
        """Arms chosen, [R, T]."""


@dataclass(eq=False, repr=False)
class ArmShareDisplay:
    """Share of the pulls that each arm gets, window by window, over all replications of a run.

    at: middle of each window, [N]. share: [N, A]. low, high: middle share of the replications at `level`, [N, A].
    After `plot`: ax_, figure_, lines_.
    """

    at: Array
    share: Array
    low: Array
    high: Array
    arms: Sequence[str]
    window: int
    level: float = 0.8
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_run(
        cls,
        run: RunArms,
        arms: Sequence[str],
        *,
        window: int | None = None,
        level: float = 0.8,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of one run.

        Args:
          arms: names, [A]. window: rounds that are counted together; a fiftieth of the run where not given, and the
            last one may be shorter. level: share of the replications within the band.

        Raises:
          ValueError: a window below 1, or an arm pulled that has no name.
        """
        n_rounds = run.arm.shape[1]
        size = max(1, n_rounds // WINDOWS) if window is None else window
        if size < 1 or int(run.arm.max()) >= len(arms):
            msg = f"window must be at least 1 and arms name all pulled, got {size} and {list(arms)}."
            raise ValueError(msg)
        starts = np.arange(0, n_rounds, size)
        length = np.diff(np.append(starts, n_rounds))
        each = np.stack(
            [np.add.reduceat(run.arm == arm, starts, axis=1, dtype=np.float64) / length for arm in range(len(arms))],
            axis=2,
        )
        low, high = percentile_interval(each, level)
        at = starts + (length + 1) / 2.0
        return cls(
            at=at, share=each.mean(axis=0), low=low, high=high, arms=tuple(arms), window=size, level=level, name=name
        ).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            label = f"{ink.literal_text(name)}: {percent(self.share[-1, arm])} in the last window"
            self.lines_ += self.ax_.plot(self.at, self.share[:, arm], label=label, **look)
            ends = (self.low[:, arm], self.high[:, arm])
            self.ax_.fill_between(self.at, *ends, color=look["color"], **ink.BAND)
        if (self.high > self.low).any():  # of one replication there is no band
            self.ax_.fill_between([], [], [], color=ink.GREY, label=self._band_is, **ink.BAND)
        self.ax_.set_xlabel(f"round (count, windows of {self.window})", fontsize=9)
        self.ax_.set_xlim(0, self.at[-1] + self.window / 2.0)
        canvas.shares_up(self.ax_, "pulls (share of the window, %)")
        canvas.legend_above(self.ax_, 2)
        return self

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} % of the replications"

    def to_frame(self) -> pd.DataFrame:
        """One row a window and arm: `round` (its middle), `arm`, `share`, `low`, `high`."""
        import pandas as pd

        n = len(self.arms)
        columns = {"share": self.share.ravel(), "low": self.low.ravel(), "high": self.high.ravel()}
        return pd.DataFrame({"round": np.repeat(self.at, n), "arm": list(self.arms) * len(self.at)} | columns)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        columns = _arm_columns(self.at, self.arms, (self.share, self.low, self.high))
        return html(self, f"{self.name or 'pulls'}: share of each arm by window", columns, self._band_is)


LANE = 0.045  # height of an arm's lane of choices, as a share of the probability axis
TICK: dict[str, Any] = {"marker": "|", "markersize": 5, "markeredgewidth": 0.8, "alpha": 0.7, "linestyle": "none"}


def _windowed(
    p: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, least and largest of each window of rounds, [W, A] each; NaN where an arm was never available in it."""
    known = ~np.isnan(p)
    count = np.add.reduceat(known, starts, axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, p, 0.0), starts, axis=0) / count
    least = np.minimum.reduceat(np.where(known, p, np.inf), starts, axis=0)
    most = np.maximum.reduceat(np.where(known, p, -np.inf), starts, axis=0)
    least[count == 0.0] = most[count == 0.0] = np.nan
    return mean, least, most


@dataclass(eq=False, repr=False)
class PropensityDisplay:
    """Probability of each arm through the rounds of one log, and which arm was chosen.

    at: middle of each window, [N]. mean, least, most: of each arm within it, [N, A], NaN where the arm was not
    available. action: arm of each round, [T], or None. floor: least propensity that was promised, or None.
    After `plot`: ax_, figure_, lines_.
    """

    at: Array
    mean: Array
    least: Array
    most: Array
    arms: Sequence[str]
    window: int
    action: NDArray[np.int64] | None = None
    floor: float | None = None
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_log(cls, log: pd.DataFrame, **kwargs: Any) -> Self:  # noqa: ANN401 - see from_propensities
        """Display of a log with a row a round: `p_<arm>` of every arm, `action`, and `mask` where it has one.

        Args:
          kwargs: as `from_propensities` takes them.

        Raises:
          ValueError: no column `p_<arm>`.

        Example: `PropensityDisplay.from_log(replay.log(bandit, world, rounds=500))`.
        """
        columns = [str(name) for name in log if str(name).startswith(PREFIX)]
        if not columns:
            msg = f"a log must have a column p_<arm> for every arm, got {', '.join(map(str, log))}."
            raise ValueError(msg)
        given: dict[str, Any] = {}
        if "mask" in log:
            given["mask"] = np.array(log["mask"].tolist(), dtype=bool)
        if "action" in log:
            given["action"] = log["action"].to_numpy(dtype=np.int64)
        arms = [name.removeprefix(PREFIX) for name in columns]
        return cls.from_propensities(log[columns].to_numpy(dtype=np.float64), arms, **(given | kwargs))

    @classmethod
    def from_propensities(
        cls,
        propensity: ArrayLike,
        arms: Sequence[str],
        *,
        action: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        window: int | None = None,
        floor: float | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of one log.

        Args:
          propensity: of every arm in every round, [T, A]; NaN or masked where the arm was not available.
          action: arm that was chosen, [T]; drawn as ticks below 0 %. mask: arms available, [A] or [T, A].
          window: rounds that are drawn together; the band is from the least to the largest in it.

        Raises:
          ValueError: shapes that differ, a propensity outside [0, 1], or a window below 1.
        """
        p = np.array(propensity, dtype=np.float64)
        if p.ndim != 2 or p.shape[1] != len(arms) or not len(p):
            msg = f"propensity must be [T, A] with an arm a name, got {p.shape} for {len(arms)} names."
            raise ValueError(msg)
        if ((p < 0.0) | (p > 1.0)).any():
            msg = f"propensity must be in [0, 1], got {p[(p < 0.0) | (p > 1.0)][0]:g}; it is a probability."
            raise ValueError(msg)
        if mask is not None:
            p[~np.broadcast_to(np.asarray(mask, dtype=bool), p.shape)] = np.nan
        # Windows, because a line a round says nothing where there are more rounds than pixels.
        size = max(1, -(-len(p) // (4 * WINDOWS))) if window is None else window
        if size < 1:
            msg = f"window must be at least 1 round, got {size}."
            raise ValueError(msg)
        starts = np.arange(0, len(p), size)
        mean, least, most = _windowed(p, starts)
        at = starts + (np.diff(np.append(starts, len(p))) + 1) / 2.0
        acted = None if action is None else np.asarray(action, dtype=np.int64)
        if acted is not None and acted.shape != (len(p),):
            msg = f"action must be [T], an arm a round, got {acted.shape} for {len(p)} rounds."
            raise ValueError(msg)
        return cls(
            at=at,
            mean=mean,
            least=least,
            most=most,
            arms=tuple(arms),
            window=size,
            action=acted,
            floor=floor,
            name=name,
        ).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        # What was chosen stands below 0 %, a lane an arm, where no probability can be.
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            label = ink.literal_text(name)
            if self.action is not None:
                rounds = np.flatnonzero(self.action == arm) + 1
                label += f": chosen {len(rounds)} of {len(self.action)} times"
                self.ax_.plot(rounds, np.full(len(rounds), -LANE * (arm + 1)), color=look["color"], **TICK)
            self.lines_ += self.ax_.plot(self.at, self.mean[:, arm], label=label, **look)
            ends = (self.least[:, arm], self.most[:, arm])
            self.ax_.fill_between(self.at, *ends, color=look["color"], **ink.BAND)
        if self.floor is not None:
            self.ax_.axhline(self.floor, label=f"floor {percent(self.floor)}", **ink.TARGET)
        if self.window > 1:
            self.ax_.fill_between([], [], [], color=ink.GREY, label=self._band_is, **ink.BAND)
        windows = f", windows of {self.window}" if self.window > 1 else ""
        self.ax_.set_xlabel(f"round (count{windows})", fontsize=9)
        canvas.shares_up(self.ax_, "propensity (probability of the arm, %)")
        if self.action is not None:
            self.ax_.set_ylim(-LANE * (len(self.arms) + 1), 1 + ink.SHARE_MARGIN)
            self.ax_.set_yticks(np.linspace(0.0, 1.0, 6))
            self.ax_.axhline(0.0, color=ink.SILVER, linewidth=0.6)
        canvas.legend_above(self.ax_, 2)
        return self

    @property
    def _band_is(self) -> str:
        return "least to largest of the window"

    def to_frame(self) -> pd.DataFrame:
        """One row a window and arm: `round` (its middle), `arm`, `propensity` (mean), `least`, `most`."""
        import pandas as pd

        n = len(self.arms)
        columns = {"propensity": self.mean.ravel(), "least": self.least.ravel(), "most": self.most.ravel()}
        return pd.DataFrame({"round": np.repeat(self.at, n), "arm": list(self.arms) * len(self.at)} | columns)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        columns = _arm_columns(self.at, self.arms, (self.mean, self.least, self.most))
        return html(self, f"{self.name or 'propensity'} of each arm by window", columns, self._band_is)


def _arm_columns(at: Array, arms: Sequence[str], parts: tuple[Array, Array, Array]) -> dict[str, Any]:
    """Columns of a shown table, one an arm: value, low and high, each [windows, A]."""
    columns: dict[str, Any] = {"round": at}
    for arm, name in enumerate(arms):
        rows = zip(*(part[:, arm] for part in parts), strict=True)
        columns[name] = [
            ReportCell(percent(one), f"{percent(low)} to {percent(high)}", "number") for one, low, high in rows
        ]
    return columns


@dataclass(eq=False, repr=False)
class PosteriorDisplay:
    """Posterior density of each arm's success rate or mean reward, as Thompson sampling draws from it.

    at: values, [N]. density: [N, A]. mean, low, high: of each posterior, with its central interval at `level`, [A].
    pulls: [A]. After `plot`: ax_, figure_, lines_.
    """

    at: Array
    density: Array
    mean: Array
    low: Array
    high: Array
    pulls: NDArray[np.int64]
    arms: Sequence[str]
    what: str
    level: float = 0.95
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_state(
        cls,
        state: State,
        bandit: Bandit,
        arms: Sequence[str] | None = None,
        *,
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of one state without a batch, of a learner whose entry has a belief, such as `thompson_beta`.

        Raises:
          ValueError: another learner, whose belief has no such density, a batch of states, or names that do not fit.

        Example: `PosteriorDisplay.from_state(state, Bandit("thompson_beta"), ("hybrid", "iterative"))`.
        """
        n = state.pulls.shape[-1]
        names = tuple(f"arm {arm}" for arm in range(n)) if arms is None else tuple(arms)
        entry = LEARNERS.get(bandit.policy)
        if entry is None or entry.belief is None or state.pulls.ndim != 1 or len(names) != n:
            known = " or ".join(name for name, other in LEARNERS.items() if other.belief is not None)
            came = f"{bandit.policy}, a batch of {state.pulls.shape[:-1]} and {len(names)} names for {n} arms"
            msg = f"a posterior is drawn of one state of {known}, a name an arm, got {came}."
            raise ValueError(msg)
        belief = entry.belief(state, bandit)
        low, high = belief.distribution.interval(level)
        density = belief.distribution.pdf(belief.grid[:, None])
        quantity = entry.quantity.format(threshold=bandit.threshold)
        return cls(
            belief.grid, density, belief.mean, low, high, state.pulls, names, quantity, level, name
        ).plot(ax, **kwargs)  # fmt: skip

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        seen = self.density > 1e-3 * self.density.max()
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            pulls = int(self.pulls[arm])
            label = f"{ink.literal_text(name)}: mean {self.mean[arm]:.3f}, {pulls:,} pull{'' if pulls == 1 else 's'}"
            self.lines_ += self.ax_.plot(self.at, self.density[:, arm], label=label, **look)
            inside = (self.at >= self.low[arm]) & (self.at <= self.high[arm])
            self.ax_.fill_between(
                self.at, np.where(inside, self.density[:, arm], np.nan), color=look["color"], **ink.BAND
            )
        self.ax_.fill_between([], [], [], color=ink.GREY, label=f"central {100 * self.level:g} %", **ink.BAND)
        shown = self.at[seen.any(axis=1)]
        self.ax_.set_xlim(shown[0], shown[-1])
        self.ax_.set_ylim(bottom=0.0)
        self.ax_.set_xlabel(ink.literal_text(self.what, ink.LONGEST_TITLE), fontsize=9)
        self.ax_.set_ylabel("density (per unit)", fontsize=9)
        canvas.tidy(self.ax_)
        canvas.legend_above(self.ax_)
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row an arm: `arm`, `pulls`, `mean`, `low`, `high`."""
        import pandas as pd

        columns = {"arm": self.arms, "pulls": self.pulls, "mean": self.mean, "low": self.low, "high": self.high}
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        rows = zip(self.mean, self.low, self.high, strict=True)
        cells = [ReportCell(f"{mean:.3f}", f"{low:.3f} to {high:.3f}", "number") for mean, low, high in rows]
        columns: dict[str, Any] = {"arm": self.arms, "pulls": [int(one) for one in self.pulls], "mean": cells}
        return html(self, f"{self.name or 'posterior'}: {self.what}", columns, f"central {100 * self.level:g} % of it")
