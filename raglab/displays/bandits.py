"""Displays of bandits (shore): regret, shares of arms, posteriors, propensities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, check, spaced_rows
from raglab.displays.tables import estimate_cells, interval_cells
from raglab.metrics.intervals import mean_interval, percentile_interval
from raglab.values import FloatArray, IntArray
from raglab.words.canonical import percent
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

Band = Literal["interval", "quantiles"]
MAX_LINE_POINTS = 400  # of a line
RECENT_PARTS = (
    20  # parts of a run, one of which the last rounds are where their number is not stated
)
BAND_WORDS = {"interval": "% interval of the mean", "quantiles": "% of the replications"}


def lai_robbins(means: ArrayLike) -> float:
    """Least long-run regret per unit of ln(rounds) of any consistent policy on Bernoulli arms.

    Source: Lai and Robbins 1985.

    Example:
      >>> round(lai_robbins([0.7, 0.6, 0.5, 0.4]), 3)
      8.285
    """
    probabilities = np.asarray(means, dtype=np.float64)
    is_inside = probabilities.ndim == 1 and ((probabilities > 0.0) & (probabilities < 1.0)).all()
    check(is_inside, "means must be [A] probabilities inside (0, 1)", probabilities.tolist())
    best_mean = probabilities.max()
    worse_means = probabilities[probabilities < best_mean]
    divergence = worse_means * np.log(worse_means / best_mean) + (1.0 - worse_means) * np.log(
        (1.0 - worse_means) / (1.0 - best_mean)
    )
    return float(((best_mean - worse_means) / divergence).sum())


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
        run_lengths = sorted({int(run.regret.shape[1]) for run in runs.values()})
        check(len(run_lengths) == 1, "runs must be at least one and of as many rounds", run_lengths)
        n_recent = max(1, run_lengths[0] // RECENT_PARTS) if recent is None else recent
        check(n_recent >= 1, "recent must be at least 1 round", n_recent)
        drawn_rounds = _plotted_rounds(run_lengths[0], is_logarithmic=log_x)
        interval_of = percentile_interval if band == "quantiles" else mean_interval
        run_frames = []
        for run_name, run in runs.items():
            run_columns: dict[str, Any] = {"run": run_name, "round": drawn_rounds}
            for quantity, cumulated in _cumulated(run, drawn_rounds, n_recent).items():
                column_prefix = "" if quantity == "regret" else f"{quantity}_"
                # one replication says nothing about others: its interval is missing
                lower_bounds, upper_bounds = (interval_of if len(cumulated) > 1 else mean_interval)(
                    cumulated, level
                )
                band_columns = {
                    f"{column_prefix}low": lower_bounds,
                    f"{column_prefix}high": upper_bounds,
                }
                run_columns |= {quantity: cumulated.mean(axis=0)} | band_columns
            if (arm_value := getattr(run, "arm_value", None)) is not None:
                run_columns["best"] = _best_recent(arm_value, drawn_rounds, n_recent)
            run_frames.append(pd.DataFrame(run_columns | {"replications": len(run.regret)}))
        drawn_rows = pd.concat(run_frames, ignore_index=True)
        n_recent = n_recent if "best" in drawn_rows else 0
        return cls(drawn_rows, band, level, log_x, slope, unit, cost_unit, n_recent).plot(**drawing)

    @property
    def _panels(self) -> dict[str, str]:
        """Column that each panel draws, and the label of its upright axis."""
        text = ", net" if "spend" in self.rows else ""
        panel_labels = {
            "regret": f"cumulative regret ({self.unit})",
            "reward": f"mean before costs ({self.unit})",
            "spend": f"mean spend ({self.cost_unit})",
            "recent": f"last {self.recent:,} rounds{text} ({self.unit})",
        }
        return {
            name: panel_label for name, panel_label in panel_labels.items() if name in self.rows
        }

    @property
    def _grid(self) -> tuple[int, int]:
        return len(self._panels), 1

    @property
    def _size(self) -> tuple[float, float]:
        return 7.2, min(2.8 + 1.8 * len(self._panels), 6.6)

    def _draw(self, style: Style) -> list[Any]:
        run_lines = []
        drawn_rounds = self.rows["round"].unique()
        replications_text = canvas.size_text(self.rows["replications"], "replications")
        rounds_label = f"rounds (count{', logarithmic' if self.log_x else ''}; {replications_text})"
        for axes, (quantity, panel_label) in zip(self.axes_, self._panels.items(), strict=True):
            column_prefix = "" if quantity == "regret" else f"{quantity}_"
            # the legend of the first panel names the lines of all
            for run_index, (run_name, run_rows) in enumerate(self.rows.groupby("run", sort=False)):
                run_text = f"{canvas.literal_text(str(run_name))}: {_last_regret(run_rows)}"
                line_look = canvas.line_style(run_index) | style
                legend_label = run_text if axes is self.ax_ else "_line"
                run_line = canvas.draw_with_band(
                    axes, run_rows, "round", quantity, legend_label, line_look, column_prefix
                )
                run_lines += [run_line] if axes is self.ax_ else []
            if quantity == "recent":
                best_rows = self.rows.dropna(subset=["best"]).drop_duplicates("round")
                run_text = "the best arm of these rounds"
                axes.plot(
                    best_rows["round"], best_rows["best"], label=run_text, **canvas.TARGET_LINE
                )
                canvas.legend_above(axes)
            if self.log_x:
                axes.set_xscale("log")
            # of a single round there is no width
            if drawn_rounds[0] < drawn_rounds[-1] or not self.log_x:
                axes.set_xlim(drawn_rounds[0] if self.log_x else 0, drawn_rounds[-1])
            axes.set(
                ylabel=canvas.literal_text(panel_label, canvas.LONGEST_TITLE), xlabel=rounds_label
            )
            if canvas.is_narrow(axes) and axes is not self.axes_[-1]:
                axes.set_xlabel("")
            canvas.tidy(axes)
        if self.slope is not None:
            panel_label = f"Lai–Robbins: {self.slope:.4g} · ln(rounds), a slope in the long run"
            self.ax_.plot(
                drawn_rounds,
                self.slope * np.log(drawn_rounds),
                label=panel_label,
                **canvas.TARGET_LINE,
            )
        if (self.rows["high"] > self.rows["low"]).any():  # of one replication there is no band
            canvas.draw_band_label(self.ax_, self._band_is)
        canvas.legend_above(self.ax_, 2 if len(run_lines) > 3 else 1)
        return run_lines

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} {BAND_WORDS[self.band]}"

    def _summary(self) -> Summary:
        last_rows = self.rows.drop_duplicates("run", keep="last")
        columns: dict[str, Any] = {
            column_name: last_rows[column_name] for column_name in ("run", "round", "replications")
        }
        for quantity, panel_label in self._panels.items():
            columns[panel_label] = estimate_cells(
                last_rows, quantity, "" if quantity == "regret" else f"{quantity}_"
            )
        if "best" in last_rows:
            columns["best arm"] = last_rows["best"]
        facts = [
            (str(column_name), _last_regret(run_rows))
            for column_name, run_rows in self.rows.groupby("run")
        ]
        facts.append(("band", self._band_is))
        return Summary(facts, spaced_rows(columns), title=self.name or "regret")


def _last_regret(run_rows: pd.DataFrame) -> str:
    """Regret of a run after its last round, with its band, to three digits at least."""
    last_row = run_rows[["regret", "low", "high"]].iloc[-1]
    regret_text, lower_text, upper_text = (
        f"{band_end:,.0f}" if abs(band_end) >= 100.0 else f"{band_end:.3g}" for band_end in last_row
    )
    return (
        regret_text
        if np.isnan(last_row["low"])
        else f"{regret_text} ({lower_text} to {upper_text})"
    )


def _plotted_rounds(n_rounds: int, *, is_logarithmic: bool) -> IntArray:
    """Rounds that are drawn, from 1.

    All of them, or so many that a line is smooth, the last one among them.
    """
    if n_rounds <= MAX_LINE_POINTS:
        return np.arange(1, n_rounds + 1)
    spaced_rounds = (
        np.geomspace(1, n_rounds, MAX_LINE_POINTS)
        if is_logarithmic
        else np.linspace(1, n_rounds, MAX_LINE_POINTS)
    )
    return np.unique(spaced_rounds.round().astype(np.int64))


# a run
def _cumulated(run: Any, drawn_rounds: IntArray, n_recent: int) -> dict[str, FloatArray]:  # noqa: ANN401
    """What is drawn of a run at some rounds, by column, [R, N]."""
    run_columns: dict[str, FloatArray] = {"regret": run.regret[:, drawn_rounds - 1]}
    if getattr(run, "spend", None) is not None:
        run_columns |= {
            "reward": run.gross[:, drawn_rounds - 1] / drawn_rounds,
            "spend": run.spend[:, drawn_rounds - 1] / drawn_rounds,
        }
    if getattr(run, "arm_value", None) is not None:
        run_columns["recent"] = _recent_mean(run.value.T, drawn_rounds, n_recent).T
    return run_columns


def _recent_mean(cumulated_sums: FloatArray, drawn_rounds: IntArray, n_recent: int) -> FloatArray:
    """Mean of the last rounds up to some rounds [N], of sums over the rounds so far [T, ...].

    Fewer at the start.
    """
    padded_sums = np.concatenate([np.zeros_like(cumulated_sums[:1]), cumulated_sums])
    first_rounds = np.maximum(drawn_rounds - n_recent, 0)
    counts = (drawn_rounds - first_rounds).reshape(-1, *[1] * (cumulated_sums.ndim - 1))
    return np.asarray((padded_sums[drawn_rounds] - padded_sums[first_rounds]) / counts)


def _best_recent(arm_values: FloatArray, drawn_rounds: IntArray, n_recent: int) -> FloatArray:
    """Mean value of the best arm of the last rounds, [N], each arm over rounds that offered it."""
    is_available = ~np.isnan(arm_values)
    mean_values = _recent_mean(
        np.cumsum(np.where(is_available, arm_values, 0.0), axis=0), drawn_rounds, n_recent
    )
    available_shares = _recent_mean(
        np.cumsum(is_available, axis=0, dtype=np.float64), drawn_rounds, n_recent
    )
    return np.asarray(
        np.where(
            available_shares > 0.0,
            mean_values / np.where(available_shares > 0.0, available_shares, 1.0),
            -np.inf,
        ).max(axis=1)
    )


PROPENSITY_PREFIX = "p_"
DEFAULT_WINDOWS = 50  # that a run is cut into where no window is given


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
        return {str(arm_name): rows for arm_name, rows in self.rows.groupby("arm", sort=False)}

    def _draw_lines(
        self, style: Style, legend_suffixes: Sequence[str], axis_suffix: str = ""
    ) -> list[Any]:
        """Lines of the arms, and the axis of rounds.

        Args:
          legend_suffixes: what follows the name of each arm in the legend.
          axis_suffix: what follows the number of rounds.
        """
        arm_lines = []
        for arm_index, (arm_name, arm_rows) in enumerate(self._parts().items()):
            legend_label = f"{canvas.literal_text(arm_name)}{legend_suffixes[arm_index]}"
            line_look = canvas.line_style(arm_index)
            line_look |= style
            arm_lines.append(
                canvas.draw_with_band(
                    self.ax_, arm_rows, "round", self.VALUE, legend_label, line_look
                )
            )
        windows_text = f", windows of {self.window:,}" if self.window > 1 else ""
        rounds_text = canvas.size_text(self.rounds, "rounds")
        self.ax_.set_xlabel(f"round (count{windows_text}; {rounds_text}{axis_suffix})")
        return arm_lines

    def _summary(self) -> Summary:
        arm_rows = self._parts()
        arm_cells = {
            arm_name: interval_cells(rows, self.VALUE) for arm_name, rows in arm_rows.items()
        }
        columns = {"round": arm_rows[self.arms[0]]["round"]} | arm_cells
        facts = [
            ("arms", *self.arms),
            ("window", f"{self.window:,}"),
            ("band", self._band_is),
        ]
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
        window_size = max(1, n_rounds // DEFAULT_WINDOWS) if window is None else window
        is_named = window_size >= 1 and int(run.arm.max()) < len(arms)
        check(is_named, "window must be at least 1 and arms name all pulled", (window_size, arms))
        window_starts, window_lengths = _windows(n_rounds, window_size)
        is_pulled = run.arm[..., None] == np.arange(len(arms))
        pulls = np.add.reduceat(is_pulled, window_starts, axis=1, dtype=np.float64)
        window_shares = pulls / window_lengths[:, None]
        lower_bounds, upper_bounds = percentile_interval(window_shares, level)
        window_middles = window_starts + (window_lengths + 1) / 2.0
        window_rows = _arm_rows(
            window_middles,
            arms,
            share=window_shares.mean(axis=0),
            low=lower_bounds,
            high=upper_bounds,
        )
        return cls(window_rows, tuple(arms), window_size, n_rounds, level, len(run.arm)).plot(
            **drawing
        )

    def _draw(self, style: Style) -> list[Any]:
        last_shares = (percent(arm_rows["share"].iloc[-1]) for arm_rows in self._parts().values())
        legend_suffixes = [f": {last_share} in the last window" for last_share in last_shares]
        arm_lines = self._draw_lines(
            style, legend_suffixes, f", {self.replications:,} replications"
        )
        if (self.rows["high"] > self.rows["low"]).any():  # of one replication there is no band
            canvas.draw_band_label(self.ax_, self._band_is)
        self.ax_.set_xlim(0, self.rounds)
        canvas.shares_up(self.ax_, "pulls (share of the window, %)")
        canvas.legend_above(self.ax_, 2)
        return arm_lines

    @property
    def _band_is(self) -> str:
        return f"{100 * self.level:g} % of the replications"


def _arm_rows(
    window_middles: FloatArray, arms: Sequence[str], **columns: FloatArray
) -> pd.DataFrame:
    """Rows of columns by window and arm, [N, A] each: the value, the ends of its band."""
    import pandas as pd

    row_columns: dict[str, Any] = {
        "round": np.repeat(window_middles, len(arms)),
        "arm": list(arms) * len(window_middles),
    }
    return pd.DataFrame(row_columns | {name: values.ravel() for name, values in columns.items()})


def _windows(n_rounds: int, window_size: int) -> tuple[IntArray, IntArray]:
    """First round of each window, from 0, and how many it has, [N] each."""
    window_starts = np.arange(0, n_rounds, window_size)
    return window_starts, np.diff(np.append(window_starts, n_rounds))


LANE_HEIGHT = 0.045  # height of an arm's lane of choices, as a share of the probability axis
CHOICE_TICK: dict[str, Any] = {
    "marker": "|",
    "markersize": 5,
    "markeredgewidth": 0.8,
    "alpha": 0.7,
    "linestyle": "none",
}


def _windowed(
    propensities: FloatArray, window_starts: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, least and largest of each window of rounds, [W, A] each.

    NaN where an arm was never available in it.
    """
    counts = np.add.reduceat(~np.isnan(propensities), window_starts, axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_propensities = (
            np.add.reduceat(np.nan_to_num(propensities), window_starts, axis=0) / counts
        )
    return (
        mean_propensities,
        np.fmin.reduceat(propensities, window_starts, axis=0),
        np.fmax.reduceat(propensities, window_starts, axis=0),
    )


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

    action: IntArray | None = None
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
        propensity_columns = [
            str(column_name)
            for column_name in log
            if str(column_name).startswith(PROPENSITY_PREFIX)
        ]
        check(propensity_columns, "a log must have a column p_<arm> for every arm", list(log))
        log_columns = {
            column_name: log[column_name].tolist()
            for column_name in ("mask", "action")
            if column_name in log
        }
        arm_names = [
            column_name.removeprefix(PROPENSITY_PREFIX) for column_name in propensity_columns
        ]
        return cls.from_propensities(log[propensity_columns], arm_names, **log_columns | kwargs)

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
        propensities = np.array(propensity, dtype=np.float64)
        is_table = (
            propensities.ndim == 2 and propensities.shape[1] == len(arms) and len(propensities)
        )
        check(
            is_table,
            f"propensity must be [T, A], a column each of {len(arms)} arms",
            propensities.shape,
        )
        outside_values = propensities[(propensities < 0.0) | (propensities > 1.0)]
        check(
            not outside_values.size, "propensity must be in [0, 1]", outside_values.max(initial=0.0)
        )
        if mask is not None:
            propensities[~np.broadcast_to(np.asarray(mask, dtype=bool), propensities.shape)] = (
                np.nan
            )
        # Windows, because a line a round says nothing where there are more rounds than pixels.
        window_size = (
            max(1, -(-len(propensities) // (4 * DEFAULT_WINDOWS))) if window is None else window
        )
        check(window_size >= 1, "window must be at least 1 round", window_size)
        actions = None if action is None else np.asarray(action, dtype=np.int64)
        if actions is not None:
            check(
                actions.shape == (len(propensities),),
                f"action must be [T], T = {len(propensities)}",
                actions.shape,
            )
        window_starts, window_lengths = _windows(len(propensities), window_size)
        mean_propensities, least_propensities, largest_propensities = _windowed(
            propensities, window_starts
        )
        window_middles = window_starts + (window_lengths + 1) / 2.0
        window_rows = _arm_rows(
            window_middles,
            arms,
            propensity=mean_propensities,
            low=least_propensities,
            high=largest_propensities,
        )
        return cls(window_rows, tuple(arms), window_size, len(propensities), actions, floor).plot(
            **drawing
        )

    def frame(self) -> pd.DataFrame:
        """Rows of windows and arms.

        `round` (middle), `arm`, `propensity` (mean), `least`, `most`.
        """
        return self.rows.rename(columns={"low": "least", "high": "most"})

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        legend_suffixes = [""] * len(self.arms)
        if self.action is not None:
            chosen_rounds = [
                np.flatnonzero(self.action == arm_index) + 1 for arm_index in range(len(self.arms))
            ]
            legend_suffixes = [
                f": chosen {len(arm_rounds)} of {len(self.action)} times"
                for arm_rounds in chosen_rounds
            ]
            # What was chosen stands below 0 %, a lane an arm, where no probability can be.
            for arm_index, arm_rounds in enumerate(chosen_rounds):
                arm_colour = (canvas.line_style(arm_index) | style)["color"]
                axes.plot(
                    arm_rounds,
                    np.full(len(arm_rounds), -LANE_HEIGHT * (arm_index + 1)),
                    color=arm_colour,
                    **CHOICE_TICK,
                )
        arm_lines = self._draw_lines(style, legend_suffixes)
        if self.floor is not None:
            axes.axhline(self.floor, label=f"floor {percent(self.floor)}", **canvas.TARGET_LINE)
        if self.window > 1:
            canvas.draw_band_label(axes, self._band_is)
        canvas.shares_up(axes, "propensity (probability of the arm, %)")
        if self.action is not None:
            canvas.strip_below(axes, -LANE_HEIGHT * (len(self.arms) + 1))
        canvas.legend_above(axes, 2)
        return arm_lines

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

    at: FloatArray
    density: FloatArray
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

        n_arms = state.pulls.shape[-1]
        arm_names = (
            tuple(f"arm {arm_number}" for arm_number in range(n_arms))
            if arms is None
            else tuple(arms)
        )
        learner_entry = LEARNERS.get(bandit.algorithm)
        if (
            learner_entry is None
            or learner_entry.belief is None
            or state.pulls.ndim != 1
            or len(arm_names) != n_arms
        ):
            known_learners = " or ".join(
                learner_name
                for learner_name, learner in LEARNERS.items()
                if learner.belief is not None
            )
            state_text = (
                f"{bandit.algorithm}, batch {state.pulls.shape[:-1]}, {len(arm_names)} names"
            )
            msg = (
                f"a posterior is of one state of {known_learners} with a name an arm, got "
                f"{state_text}."
            )
            raise ValueError(msg)
        belief = learner_entry.belief(state, bandit)
        lower_bounds, upper_bounds = belief.distribution.interval(level)
        arm_rows = pd.DataFrame(
            {
                "arm": arm_names,
                "pulls": state.pulls,
                "mean": belief.mean,
                "low": lower_bounds,
                "high": upper_bounds,
            }
        )
        density = belief.distribution.pdf(belief.grid[:, None])
        quantity = learner_entry.quantity.format(threshold=bandit.threshold)
        return cls(arm_rows, belief.grid, density, quantity, level).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        arm_lines = []
        for arm_index, arm_row in enumerate(self.rows.to_dict("records")):
            density = self.density[:, arm_index]
            line_look = canvas.line_style(arm_index) | style
            pulls_text = f"{arm_row['pulls']:,} pull{'' if arm_row['pulls'] == 1 else 's'}"
            legend_label = (
                f"{canvas.literal_text(arm_row['arm'])}: mean {arm_row['mean']:.3f}, {pulls_text}"
            )
            arm_lines += axes.plot(self.at, density, label=legend_label, **line_look)
            is_central = (self.at >= arm_row["low"]) & (self.at <= arm_row["high"])
            axes.fill_between(
                self.at,
                np.where(is_central, density, np.nan),
                color=line_look["color"],
                **canvas.INTERVAL_BAND,
            )
        canvas.draw_band_label(axes, self._band_is)
        dense_values = self.at[(self.density > 1e-3 * self.density.max()).any(axis=1)]
        axes.set_xlim(dense_values[0], dense_values[-1])
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel(canvas.literal_text(self.what, canvas.LONGEST_TITLE))
        axes.set_ylabel("density (per unit)")
        canvas.tidy(axes)
        canvas.legend_above(axes)
        return arm_lines

    @property
    def _band_is(self) -> str:
        return f"central {100 * self.level:g} %"

    def _summary(self) -> Summary:
        columns: dict[str, Any] = {name: self.rows[name] for name in ("arm", "pulls")}
        columns["mean"] = estimate_cells(self.rows, "mean")
        facts = [("density of", self.what), ("interval", self._band_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or "posterior")
