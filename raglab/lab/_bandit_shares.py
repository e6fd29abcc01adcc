"""Displays of whom a bandit chooses through time, and with which probability; see `bandit_plots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text
from raglab.lab._wording import Cell, percent

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

Array = NDArray[np.float64]
PREFIX = "p_"
WINDOWS = 50  # that a run is cut into where no window is given


class Chosen(Protocol):
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
        run: Chosen,
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
        tail = (1.0 - level) / 2.0
        low, high = np.quantile(each, [tail, 1.0 - tail], axis=0)
        at = starts + (length + 1) / 2.0
        return cls(at, each.mean(axis=0), low, high, tuple(arms), size, level, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            label = f"{ink.plain(name)}: {percent(self.share[-1, arm])} in the last window"
            self.lines_ += self.ax_.plot(self.at, self.share[:, arm], label=label, **look)
            ends = (self.low[:, arm], self.high[:, arm])
            self.ax_.fill_between(self.at, *ends, color=look["color"], **ink.BAND)
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
        return text(self)

    def _repr_html_(self) -> str:
        columns = _by_arm(self.at, self.arms, (self.share, self.low, self.high))
        return html(self, f"{self.name or 'pulls'}: share of each arm by window", columns, self._band_is)


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
        size = max(1, -(-len(p) // (4 * WINDOWS))) if window is None else window
        if size < 1:
            msg = f"window must be at least 1 round, got {size}."
            raise ValueError(msg)
        starts = np.arange(0, len(p), size)
        known = ~np.isnan(p)
        count = np.add.reduceat(known, starts, axis=0, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.add.reduceat(np.where(known, p, 0.0), starts, axis=0) / count
        least = np.minimum.reduceat(np.where(known, p, np.inf), starts, axis=0)
        most = np.maximum.reduceat(np.where(known, p, -np.inf), starts, axis=0)
        least[count == 0.0] = most[count == 0.0] = np.nan
        at = starts + (np.diff(np.append(starts, len(p))) + 1) / 2.0
        acted = None if action is None else np.asarray(action, dtype=np.int64)
        if acted is not None and acted.shape != (len(p),):
            msg = f"action must be [T], an arm a round, got {acted.shape} for {len(p)} rounds."
            raise ValueError(msg)
        return cls(at, mean, least, most, tuple(arms), size, acted, floor, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        lane = 0.045
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            label = ink.plain(name)
            if self.action is not None:
                rounds = np.flatnonzero(self.action == arm) + 1
                label += f": chosen {len(rounds)} of {len(self.action)} times"
                ticks: dict[str, Any] = {
                    "marker": "|",
                    "markersize": 5,
                    "markeredgewidth": 0.8,
                    "alpha": 0.7,
                    "linestyle": "none",
                }
                self.ax_.plot(rounds, np.full(len(rounds), -lane * (arm + 1)), color=look["color"], **ticks)
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
            self.ax_.set_ylim(-lane * (len(self.arms) + 1), 1 + ink.SHARE_MARGIN)
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
        return text(self)

    def _repr_html_(self) -> str:
        columns = _by_arm(self.at, self.arms, (self.mean, self.least, self.most))
        return html(self, f"{self.name or 'propensity'} of each arm by window", columns, self._band_is)


def _by_arm(at: Array, arms: Sequence[str], parts: tuple[Array, Array, Array]) -> dict[str, Any]:
    """Columns of a shown table, one an arm: value, low and high, each [windows, A]."""
    columns: dict[str, Any] = {"round": at}
    for arm, name in enumerate(arms):
        rows = zip(*(part[:, arm] for part in parts), strict=True)
        columns[name] = [Cell(percent(one), f"{percent(low)} to {percent(high)}", "number") for one, low, high in rows]
    return columns
