"""Displays of bandits (shore): regret, shares of arms, posteriors, propensities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, check, spaced_rows
from raglab.displays.tables import estimate_cells, interval_cells
from raglab.metrics.intervals import mean_interval, percentile_interval
from raglab.words.canonical import percent
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

Array = NDArray[np.float64]
Band = Literal["interval", "quantiles"]
MOST_POINTS = 400  # of a line
RECENT = 20  # parts of a run, one of which the last rounds are where their number is not stated
BAND_WORDS = {"interval": "% interval of the mean", "quantiles": "% of the replications"}


def lai_robbins(means: ArrayLike) -> float:
    """Least long-run regret per unit of ln(rounds) of any consistent policy on Bernoulli arms.

    Source: Lai and Robbins 1985.

    Example:
      >>> round(lai_robbins([0.7, 0.6, 0.5, 0.4]), 3)
      8.285
    """
    p = np.asarray(means, dtype=np.float64)
    inside = p.ndim == 1 and ((p > 0.0) & (p < 1.0)).all()
    check(inside, "means must be [A] probabilities inside (0, 1)", p.tolist())
    best = p.max()
    worse = p[p < best]
    divergence = worse * np.log(worse / best) + (1.0 - worse) * np.log((1.0 - worse) / (1.0 - best))
    return float(((best - worse) / divergence).sum())


@dataclass(eq=False, repr=False)
class RegretDisplay(FrameDisplay):
    """Mean cumulative regret of runs over the rounds, with a band over their replications.

    Where choices cost something, two panels more draw the reward before costs and the spend, each
    as the mean of the rounds so far. Where all replications meet the same rounds and the arms
    differ from round to round (a table in its given order, means that drift), a panel draws the
    value of the last rounds, and that of the arm that was best in them.

    Attributes:
      band: content of the band, "interval" or "quantiles".
      level: of the band.
      log_x: whether the rounds are on a logarithmic axis.
      slope: of the Lai–Robbins line.
      unit: of the regret.
      cost_unit: of the spend.
      recent: number of the last rounds that are averaged; 0 without that panel.
      rows: a run and round drawn: `run`, `round`, `regret`, `low`, `high`, `replications`; of the
        other panels `reward`, `spend` and `recent`, with `reward_low` and so on, and `best`;
        without a band where there is one replication.
    """

    band: Band = "interval"
    level: float = 0.95
    log_x: bool = False
    slope: float | None = None
    unit: str = "reward"
    cost_unit: str = "cost"
    recent: int = 0

    @classmethod
    def from_runs(
        cls,
        runs: Mapping[str, Any],
        *,
        band: Band = "interval",
        level: float = 0.95,
        log_x: bool = False,
        slope: float | None = None,
        unit: str = "reward",
        cost_unit: str = "cost",
        recent: int | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of runs by name, all of the same number of rounds.

        Args:
          runs: name -> run, as `bandit.run` or `bandit.simulate` gives it.
          band: "interval", that of the mean over replications; "quantiles", the middle share of the
            replications.
          level: of the band, in (0, 1).
          log_x: rounds on a logarithmic axis, where the regret of a good learner is a straight line
            in the end.
          slope: of a line slope · ln(rounds), such as `lai_robbins(means)`.
          unit: of the regret, such as "right answers".
          cost_unit: of the spend, such as "US dollars".
          recent: last rounds that the panel of drift is of; a twentieth of the run where not
            stated.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no run, lengths that differ, an unknown band, level outside (0, 1), or recent
            below 1.

        Example:
          `RegretDisplay.from_runs({"ucb1": one, "thompson_beta": two}, log_x=True, slope=8.285)`.
        """
        import pandas as pd

        is_band = band in BAND_WORDS and 0.0 < level < 1.0
        check(is_band, "band must be interval or quantiles, level in (0, 1)", (band, level))
        lengths = sorted({int(run.regret.shape[1]) for run in runs.values()})
        check(len(lengths) == 1, "runs must be at least one and of as many rounds", lengths)
        last = max(1, lengths[0] // RECENT) if recent is None else recent
        check(last >= 1, "recent must be at least 1 round", last)
        at = _plotted_rounds(lengths[0], log=log_x)
        ends = percentile_interval if band == "quantiles" else mean_interval
        parts = []
        for run_name, run in runs.items():
            columns: dict[str, Any] = {"run": run_name, "round": at}
            for value, cumulated in _cumulated(run, at, last).items():
                prefix = "" if value == "regret" else f"{value}_"
                # one replication says nothing about others: its interval is missing
                low, high = (ends if len(cumulated) > 1 else mean_interval)(cumulated, level)
                ends_of = {f"{prefix}low": low, f"{prefix}high": high}
                columns |= {value: cumulated.mean(axis=0)} | ends_of
            if (arm_value := getattr(run, "arm_value", None)) is not None:
                columns["best"] = _best_recent(arm_value, at, last)
            parts.append(pd.DataFrame(columns | {"replications": len(run.regret)}))
        rows = pd.concat(parts, ignore_index=True)
        last = last if "best" in rows else 0
        return cls(rows, band, level, log_x, slope, unit, cost_unit, last).plot(**drawing)

    @property
    def _panels(self) -> dict[str, str]:
        """Column that each panel draws, and the label of its upright axis."""
        net = ", net" if "spend" in self.rows else ""
        labels = {
            "regret": f"cumulative regret ({self.unit})",
            "reward": f"mean before costs ({self.unit})",
            "spend": f"mean spend ({self.cost_unit})",
            "recent": f"last {self.recent:,} rounds{net} ({self.unit})",
        }
        return {name: label for name, label in labels.items() if name in self.rows}

    @property
    def _grid(self) -> tuple[int, int]:
        return len(self._panels), 1

    @property
    def _size(self) -> tuple[float, float]:
        return 7.2, min(2.8 + 1.8 * len(self._panels), 6.6)

    def _draw(self, style: Style) -> list[Any]:
        lines, at = [], self.rows["round"].unique()
        size = canvas.size_text(self.rows["replications"], "replications")
        along = f"rounds (count{', logarithmic' if self.log_x else ''}; {size})"
        for on, (value, label) in zip(self.axes_, self._panels.items(), strict=True):
            prefix = "" if value == "regret" else f"{value}_"
            # the legend of the first panel names the lines of all
            for place, (name, part) in enumerate(self.rows.groupby("run", sort=False)):
                text = f"{canvas.literal_text(str(name))}: {_last_regret(part)}"
                look = canvas.line_style(place) | style
                known = text if on is self.ax_ else "_line"
                line = canvas.draw_with_band(on, part, "round", value, known, look, prefix)
                lines += [line] if on is self.ax_ else []
            if value == "recent":
                best = self.rows.dropna(subset=["best"]).drop_duplicates("round")
                text = "the best arm of these rounds"
                on.plot(best["round"], best["best"], label=text, **canvas.TARGET)
                canvas.legend_above(on)
            if self.log_x:
                on.set_xscale("log")
            if at[0] < at[-1] or not self.log_x:  # of a single round there is no width
                on.set_xlim(at[0] if self.log_x else 0, at[-1])
            on.set(ylabel=canvas.literal_text(label, canvas.LONGEST_TITLE), xlabel=along)
            if canvas.is_narrow(on) and on is not self.axes_[-1]:
                on.set_xlabel("")
            canvas.tidy(on)
        if self.slope is not None:
            label = f"Lai–Robbins: {self.slope:.4g} · ln(rounds), a slope in the long run"
            self.ax_.plot(at, self.slope * np.log(at), label=label, **canvas.TARGET)
        if (self.rows["high"] > self.rows["low"]).any():  # of one replication there is no band
            canvas.draw_band_label(self.ax_, self._band_is)
        canvas.legend_above(self.ax_, 2 if len(lines) > 3 else 1)
        return lines

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} {BAND_WORDS[self.band]}"

    def _summary(self) -> Summary:
        last = self.rows.drop_duplicates("run", keep="last")
        columns: dict[str, Any] = {name: last[name] for name in ("run", "round", "replications")}
        for value, label in self._panels.items():
            columns[label] = estimate_cells(last, value, "" if value == "regret" else f"{value}_")
        if "best" in last:
            columns["best arm"] = last["best"]
        facts = [(str(name), _last_regret(part)) for name, part in self.rows.groupby("run")]
        facts.append(("band", self._band_is))
        return Summary(facts, spaced_rows(columns), title=self.name or "regret")


def _last_regret(rows: pd.DataFrame) -> str:
    """Regret of a run after its last round, with its band, to three digits at least."""
    ends = rows[["regret", "low", "high"]].iloc[-1]
    value, low, high = (f"{end:,.0f}" if abs(end) >= 100.0 else f"{end:.3g}" for end in ends)
    return value if np.isnan(ends["low"]) else f"{value} ({low} to {high})"


def _plotted_rounds(n_rounds: int, *, log: bool) -> NDArray[np.int64]:
    """Rounds that are drawn, from 1.

    All of them, or so many that a line is smooth, the last one among them.
    """
    if n_rounds <= MOST_POINTS:
        return np.arange(1, n_rounds + 1)
    spaced = (
        np.geomspace(1, n_rounds, MOST_POINTS) if log else np.linspace(1, n_rounds, MOST_POINTS)
    )
    return np.unique(spaced.round().astype(np.int64))


# a run
def _cumulated(run: Any, at: NDArray[np.int64], last: int) -> dict[str, Array]:  # noqa: ANN401
    """What is drawn of a run at some rounds, by column, [R, N]."""
    columns: dict[str, Array] = {"regret": run.regret[:, at - 1]}
    if getattr(run, "spend", None) is not None:
        columns |= {"reward": run.gross[:, at - 1] / at, "spend": run.spend[:, at - 1] / at}
    if getattr(run, "arm_value", None) is not None:
        columns["recent"] = _recent_mean(run.value.T, at, last).T
    return columns


def _recent_mean(cumulated: Array, at: NDArray[np.int64], last: int) -> Array:
    """Mean of the last rounds up to some rounds [N], of sums over the rounds so far [T, ...].

    Fewer at the start.
    """
    whole = np.concatenate([np.zeros_like(cumulated[:1]), cumulated])
    first = np.maximum(at - last, 0)
    count = (at - first).reshape(-1, *[1] * (cumulated.ndim - 1))
    return np.asarray((whole[at] - whole[first]) / count)


def _best_recent(arm_value: Array, at: NDArray[np.int64], last: int) -> Array:
    """Mean value of the best arm of the last rounds, [N], each arm over rounds that offered it."""
    there = ~np.isnan(arm_value)
    total = _recent_mean(np.cumsum(np.where(there, arm_value, 0.0), axis=0), at, last)
    share = _recent_mean(np.cumsum(there, axis=0, dtype=np.float64), at, last)
    return np.asarray(
        np.where(share > 0.0, total / np.where(share > 0.0, share, 1.0), -np.inf).max(axis=1)
    )


PREFIX = "p_"
WINDOWS = 50  # that a run is cut into where no window is given


@dataclass(eq=False, repr=False)
class _ArmDisplay(FrameDisplay):
    """A line and its band for each arm, through windows of rounds.

    rows: a window and arm: `round` (middle of the window), `arm`, and the columns that a kind of
    display names.
    """

    arms: Sequence[str]
    window: int
    rounds: int

    VALUE: ClassVar[str]  # column that the line shows

    def _parts(self) -> dict[str, pd.DataFrame]:
        """Rows of each arm."""
        return {str(arm): part for arm, part in self.rows.groupby("arm", sort=False)}

    def _draw_lines(self, style: Style, ends: Sequence[str], more: str = "") -> list[Any]:
        """Lines of the arms, and the axis of rounds.

        Args:
          ends: what follows the name of each arm in the legend.
          more: what follows the number of rounds.
        """
        lines = []
        for place, (name, part) in enumerate(self._parts().items()):
            label, look = f"{canvas.literal_text(name)}{ends[place]}", canvas.line_style(place)
            look |= style
            lines.append(canvas.draw_with_band(self.ax_, part, "round", self.VALUE, label, look))
        windows = f", windows of {self.window:,}" if self.window > 1 else ""
        size = canvas.size_text(self.rounds, "rounds")
        self.ax_.set_xlabel(f"round (count{windows}; {size}{more})")
        return lines

    def _summary(self) -> Summary:
        parts = self._parts()
        cells = {name: interval_cells(part, self.VALUE) for name, part in parts.items()}
        columns = {"round": parts[self.arms[0]]["round"]} | cells
        facts = [("arms", *self.arms), ("window", f"{self.window:,}"), ("band", self._band_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or self.VALUE)

    @property
    def _band_is(self) -> str:
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class ArmShareDisplay(_ArmDisplay):
    """Share of the pulls that each arm gets, window by window, over all replications of a run.

    Attributes:
      level: share of the replications within the band.
      rows: a window and arm: `round` (its middle), `arm`, `share`, and `low` and `high`, between
        which the middle share of the replications at `level` lies.
      arms: names, [A].
      window: rounds that are counted together.
      rounds: of the run.
      replications: of the run.
    """

    level: float = 0.8
    replications: int = 1

    VALUE: ClassVar = "share"

    @classmethod
    def from_run(
        cls,
        run: Any,  # noqa: ANN401 - of `bandit.run`
        arms: Sequence[str],
        *,
        window: int | None = None,
        level: float = 0.8,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of one run.

        Args:
          run: of `bandit.run`.
          arms: names, [A].
          window: rounds that are counted together; a fiftieth of the run where not given, and the
            last one may be shorter.
          level: share of the replications within the band.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: a window below 1, or an arm pulled that has no name.
        """
        n_rounds = run.arm.shape[1]
        size = max(1, n_rounds // WINDOWS) if window is None else window
        is_named = size >= 1 and int(run.arm.max()) < len(arms)
        check(is_named, "window must be at least 1 and arms name all pulled", (size, arms))
        starts, length = _windows(n_rounds, size)
        is_pulled = run.arm[..., None] == np.arange(len(arms))
        pulls = np.add.reduceat(is_pulled, starts, axis=1, dtype=np.float64)
        each = pulls / length[:, None]
        low, high = percentile_interval(each, level)
        at = starts + (length + 1) / 2.0
        rows = _arm_rows(at, arms, share=each.mean(axis=0), low=low, high=high)
        return cls(rows, tuple(arms), size, n_rounds, level, len(run.arm)).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        last = (percent(part["share"].iloc[-1]) for part in self._parts().values())
        ends = [f": {share} in the last window" for share in last]
        lines = self._draw_lines(style, ends, f", {self.replications:,} replications")
        if (self.rows["high"] > self.rows["low"]).any():  # of one replication there is no band
            canvas.draw_band_label(self.ax_, self._band_is)
        self.ax_.set_xlim(0, self.rounds)
        canvas.shares_up(self.ax_, "pulls (share of the window, %)")
        canvas.legend_above(self.ax_, 2)
        return lines

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} % of the replications"


def _arm_rows(at: Array, arms: Sequence[str], **columns: Array) -> pd.DataFrame:
    """Rows of columns by window and arm, [N, A] each: the value, the ends of its band."""
    import pandas as pd

    by_row: dict[str, Any] = {"round": np.repeat(at, len(arms)), "arm": list(arms) * len(at)}
    return pd.DataFrame(by_row | {name: values.ravel() for name, values in columns.items()})


def _windows(n_rounds: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First round of each window, from 0, and how many it has, [N] each."""
    starts = np.arange(0, n_rounds, size)
    return starts, np.diff(np.append(starts, n_rounds))


LANE = 0.045  # height of an arm's lane of choices, as a share of the probability axis
TICK: dict[str, Any] = {
    "marker": "|",
    "markersize": 5,
    "markeredgewidth": 0.8,
    "alpha": 0.7,
    "linestyle": "none",
}


def _windowed(p: Array, starts: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Mean, least and largest of each window of rounds, [W, A] each.

    NaN where an arm was never available in it.
    """
    count = np.add.reduceat(~np.isnan(p), starts, axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.nan_to_num(p), starts, axis=0) / count
    return mean, np.fmin.reduceat(p, starts, axis=0), np.fmax.reduceat(p, starts, axis=0)


@dataclass(eq=False, repr=False)
class PropensityDisplay(_ArmDisplay):
    """Probability of each arm through the rounds of one log, and which arm was chosen.

    Attributes:
      action: arm of each round, [T], or None.
      floor: least propensity that was promised, or None.
      rows: a window and arm: `round` (its middle), `arm`, `propensity` (mean), `low` and `high`
        (least and largest), NaN where the arm was not available.
      arms: names, [A].
      window: rounds that are drawn together.
      rounds: of the log.
    """

    action: NDArray[np.int64] | None = None
    floor: float | None = None

    VALUE: ClassVar = "propensity"

    @classmethod
    # see from_propensities
    def from_log(cls, log: pd.DataFrame, **kwargs: Any) -> Self:  # noqa: ANN401
        """Display of a log with a row a round.

        `p_<arm>` of every arm, `action`, and `mask` where it has one.

        Args:
          log: a row a round, as `bandit.log` gives it.
          **kwargs: as `from_propensities` takes them.

        Raises:
          ValueError: no column `p_<arm>`.

        Example: `PropensityDisplay.from_log(replay.log(bandit, world, rounds=500))`.
        """
        columns = [str(name) for name in log if str(name).startswith(PREFIX)]
        check(columns, "a log must have a column p_<arm> for every arm", list(log))
        known = {name: log[name].tolist() for name in ("mask", "action") if name in log}
        arms = [name.removeprefix(PREFIX) for name in columns]
        return cls.from_propensities(log[columns], arms, **known | kwargs)

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
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of one log.

        Args:
          propensity: of every arm in every round, [T, A]; NaN or masked where the arm was not
            available.
          arms: names, [A].
          action: arm that was chosen, [T]; drawn as ticks below 0 %.
          mask: arms available, [A] or [T, A].
          window: rounds that are drawn together; the band is from the least to the largest in it.
          floor: least propensity that was promised, drawn as a line.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: shapes that differ, a propensity outside [0, 1], or a window below 1.
        """
        p = np.array(propensity, dtype=np.float64)
        is_table = p.ndim == 2 and p.shape[1] == len(arms) and len(p)
        check(is_table, f"propensity must be [T, A], a column each of {len(arms)} arms", p.shape)
        odd = p[(p < 0.0) | (p > 1.0)]
        check(not odd.size, "propensity must be in [0, 1]", odd.max(initial=0.0))
        if mask is not None:
            p[~np.broadcast_to(np.asarray(mask, dtype=bool), p.shape)] = np.nan
        # Windows, because a line a round says nothing where there are more rounds than pixels.
        size = max(1, -(-len(p) // (4 * WINDOWS))) if window is None else window
        check(size >= 1, "window must be at least 1 round", size)
        actions = None if action is None else np.asarray(action, dtype=np.int64)
        if actions is not None:
            check(actions.shape == (len(p),), f"action must be [T], T = {len(p)}", actions.shape)
        starts, length = _windows(len(p), size)
        mean, least, most = _windowed(p, starts)
        at = starts + (length + 1) / 2.0
        rows = _arm_rows(at, arms, propensity=mean, low=least, high=most)
        return cls(rows, tuple(arms), size, len(p), actions, floor).plot(**drawing)

    def frame(self) -> pd.DataFrame:
        """Rows of windows and arms.

        `round` (middle), `arm`, `propensity` (mean), `least`, `most`.
        """
        return self.rows.rename(columns={"low": "least", "high": "most"})

    def _draw(self, style: Style) -> list[Any]:
        on, ends = self.ax_, [""] * len(self.arms)
        if self.action is not None:
            chosen = [np.flatnonzero(self.action == arm) + 1 for arm in range(len(self.arms))]
            ends = [f": chosen {len(rounds)} of {len(self.action)} times" for rounds in chosen]
            # What was chosen stands below 0 %, a lane an arm, where no probability can be.
            for arm, rounds in enumerate(chosen):
                colour = (canvas.line_style(arm) | style)["color"]
                on.plot(rounds, np.full(len(rounds), -LANE * (arm + 1)), color=colour, **TICK)
        lines = self._draw_lines(style, ends)
        if self.floor is not None:
            on.axhline(self.floor, label=f"floor {percent(self.floor)}", **canvas.TARGET)
        if self.window > 1:
            canvas.draw_band_label(on, self._band_is)
        canvas.shares_up(on, "propensity (probability of the arm, %)")
        if self.action is not None:
            canvas.strip_below(on, -LANE * (len(self.arms) + 1))
        canvas.legend_above(on, 2)
        return lines

    @property
    def _band_is(self) -> str:
        return "least to largest of the window"


@dataclass(eq=False, repr=False)
class PosteriorDisplay(FrameDisplay):
    """Posterior density of each arm's success rate or mean reward, as Thompson sampling uses it.

    Attributes:
      at: values, [N].
      density: [N, A].
      what: quantity of the density, with unit and range.
      level: of the central intervals.
      rows: an arm: `arm`, `pulls`, `mean`, and `low` and `high` of its central interval at `level`.
    """

    at: Array
    density: Array
    what: str
    level: float = 0.95

    @classmethod
    def from_state(
        cls,
        state: State,
        bandit: Bandit,
        arms: Sequence[str] | None = None,
        *,
        level: float = 0.95,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of one state without a batch, of a learner whose entry has a belief.

        One such learner is `thompson_beta`.

        Args:
          state: of one learner.
          bandit: its settings.
          arms: names, [A]; their numbers where not given.
          level: of the central intervals, in (0, 1).
          **drawing: see `Display.plot`.

        Raises:
          ValueError: another learner, whose belief has no such density, a batch of states, or names
            that do not fit.

        Example:
          `PosteriorDisplay.from_state(state, Bandit("thompson_beta"), ("hybrid", "iterative"))`.
        """
        import pandas as pd

        n = state.pulls.shape[-1]
        names = tuple(f"arm {arm}" for arm in range(n)) if arms is None else tuple(arms)
        entry = LEARNERS.get(bandit.algorithm)
        if entry is None or entry.belief is None or state.pulls.ndim != 1 or len(names) != n:
            known = " or ".join(name for name, each in LEARNERS.items() if each.belief is not None)
            value = f"{bandit.algorithm}, batch {state.pulls.shape[:-1]}, {len(names)} names"
            msg = f"a posterior is of one state of {known} with a name an arm, got {value}."
            raise ValueError(msg)
        belief = entry.belief(state, bandit)
        low, high = belief.distribution.interval(level)
        rows = pd.DataFrame(
            {"arm": names, "pulls": state.pulls, "mean": belief.mean, "low": low, "high": high}
        )
        density = belief.distribution.pdf(belief.grid[:, None])
        quantity = entry.quantity.format(threshold=bandit.threshold)
        return cls(rows, belief.grid, density, quantity, level).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        on, lines = self.ax_, []
        for arm, row in enumerate(self.rows.to_dict("records")):
            density, look = self.density[:, arm], canvas.line_style(arm) | style
            pulls = f"{row['pulls']:,} pull{'' if row['pulls'] == 1 else 's'}"
            label = f"{canvas.literal_text(row['arm'])}: mean {row['mean']:.3f}, {pulls}"
            lines += on.plot(self.at, density, label=label, **look)
            inside = (self.at >= row["low"]) & (self.at <= row["high"])
            on.fill_between(
                self.at, np.where(inside, density, np.nan), color=look["color"], **canvas.BAND
            )
        canvas.draw_band_label(on, self._band_is)
        shown = self.at[(self.density > 1e-3 * self.density.max()).any(axis=1)]
        on.set_xlim(shown[0], shown[-1])
        on.set_ylim(bottom=0.0)
        on.set_xlabel(canvas.literal_text(self.what, canvas.LONGEST_TITLE))
        on.set_ylabel("density (per unit)")
        canvas.tidy(on)
        canvas.legend_above(on)
        return lines

    @property
    def _band_is(self) -> str:
        return f"central {100 * self.level:g} %"

    def _summary(self) -> Summary:
        columns: dict[str, Any] = {name: self.rows[name] for name in ("arm", "pulls")}
        columns["mean"] = estimate_cells(self.rows, "mean")
        facts = [("density of", self.what), ("interval", self._band_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or "posterior")
