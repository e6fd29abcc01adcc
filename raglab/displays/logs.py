"""Displays of logs (shore): off-policy estimates as forest, reward audit, live rates over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import (
    Display,
    FrameDisplay,
    check,
    check_rows,
    joined_panels,
    spaced_rows,
)
from raglab.displays.tables import estimate_cells
from raglab.off_policy.evaluation import COLUMNS as NEEDED
from raglab.reward import LESS_IS_BETTER
from raglab.words.results import DASH, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

STATUS_MARKS: dict[str, dict[str, Any]] = {
    "ok": {"marker": "o", "color": canvas.BLUE, "markersize": 6},
    "weak": {"marker": "s", "color": canvas.ORANGE, "markersize": 6, "markerfacecolor": "white"},
    "none": {"marker": "X", "color": canvas.VERMILLION, "markersize": 7},
}
INTERVAL_COLUMNS = ("value", "low", "high")
STATUS_WORDS = {
    "ok": "ok",
    "weak": "weak: read with care",
    "none": "none: the log says nothing about it",
}


@dataclass(eq=False, repr=False)
class ForestDisplay(FrameDisplay):
    """Estimates below each other with ESS and largest weight.

    The interval is a line, the status the mark.

    Attributes:
      truth: the value that is to be met, where it is known.
      level: of the intervals.
      unit: of the estimates, on the axis.
      rounds: of the log, or None where nobody says.
      rows: as `off_policy.estimate` gives them; a column `policy` names rows of several targets.
    """

    truth: float | None = None
    level: float = 0.95
    unit: str = "mean reward a round, 0 to 1"
    rounds: int | None = None

    @classmethod
    def from_estimates(
        cls,
        estimates: pd.DataFrame,
        *,
        truth: float | None = None,
        level: float = 0.95,
        unit: str = "mean reward a round, 0 to 1",
        rounds: int | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of estimates.

        Args:
          estimates: of `off_policy.estimate`, or several joined, with a column `policy`.
          truth: drawn as a dashed line.
          level: of their intervals.
          unit: of the estimates, on the axis.
          rounds: of the log; where not given as `off_policy.estimate` noted it, which frames that
            were joined forget.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no row, a missing column or an unknown status.

        Example: `ForestDisplay.from_estimates(off_policy.estimate(log, target), truth=0.62)`.
        """
        check_rows("estimates", estimates, NEEDED)
        unknown_statuses = sorted(set(estimates["status"]) - set(STATUS_MARKS))
        check(
            not unknown_statuses,
            f"status of estimates must be among {', '.join(STATUS_MARKS)}",
            unknown_statuses,
        )
        rounds = estimates.attrs.get("rounds") if rounds is None else rounds
        estimate_rows = estimates.reset_index(drop=True)
        return cls(estimate_rows, truth, level, unit, rounds).plot(**drawing)

    @property
    def _size(self) -> tuple[float, float]:
        return 7.2, 1.9 + 0.42 * len(self.rows)

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        row_heights = -np.arange(len(self.rows), dtype=np.float64)
        for status, status_mark in STATUS_MARKS.items():
            status_rows = np.flatnonzero(self.rows["status"] == status)
            if len(status_rows):
                estimates, lower_bounds, upper_bounds = (
                    self.rows[list(INTERVAL_COLUMNS)].to_numpy(np.float64)[status_rows].T
                )
                mark_style: Style = {"elinewidth": 1.4, "capsize": 3, "label": STATUS_WORDS[status]}
                canvas.draw_marks(
                    axes,
                    estimates,
                    lower_bounds,
                    upper_bounds,
                    row_heights[status_rows],
                    **mark_style | status_mark | style,
                )
        if self.truth is not None:
            axes.axvline(self.truth, label=f"true value {self.truth:.3f}", **canvas.TARGET_LINE)
        row_texts = []
        for row_name, estimate_row in zip(self._names, self.rows.to_dict("records"), strict=True):
            estimates = DASH if np.isnan(estimate_row["value"]) else f"{estimate_row['value']:.3f}"
            weight_text = (
                f"ESS {estimate_row['ess']:,.0f}, "
                f"weight ≤ {value_text(float(estimate_row['max_weight']))}"
            )
            row_texts.append(
                f"{canvas.literal_text(row_name)}: {estimates}\n{weight_text}".replace("nan", "–")
            )
        canvas.name_rows(axes, row_texts)
        rounds_text = (
            "n of rounds not stated"
            if self.rounds is None
            else canvas.size_text(self.rounds, "rounds")
        )
        unit_text = canvas.literal_text(self.unit)
        axes.set(
            xlabel=f"value ({unit_text})\n({self._interval_is}; {rounds_text})", ylabel="estimator"
        )
        canvas.legend_above(
            axes, 2, stands_first=lambda legend_label: not legend_label.startswith("true")
        )
        return list(axes.containers)

    @property
    def _names(self) -> list[str]:
        estimators = self.rows["estimator"].astype(str)
        policy_prefixes = self.rows["policy"] + ": " if "policy" in self.rows else ""
        return (policy_prefixes + estimators).tolist()

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.level:g} % interval"

    def _summary(self) -> Summary:
        columns = {
            "estimator": self._names,
            "value": estimate_cells(self.rows, "value"),
            "ESS": self.rows["ess"],
            "largest weight": self.rows["max_weight"],
            "status": self.rows["status"],
        }
        facts = [("true value", value_text(self.truth)), ("interval", self._interval_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or "off-policy estimates")


MEASURE_SPREAD = 0.5  # of a row, that the marks of its measures take
MEASURE_STYLES: tuple[Style, ...] = (
    {"marker": "o", "color": canvas.BLUE},
    {"marker": "s", "color": canvas.VERMILLION},
    {"marker": "^", "color": canvas.GREEN},
)
CENTRED_NOTE: Style = {
    "ha": "center",
    "va": "center",
    "color": canvas.GREY,
    "bbox": canvas.CLEAR_BOX,
}
ARM_MEASURES = {
    "mean_reward": "mean reward",
    "success_share": "successes",
    "mean_value": "mean value",
}


@dataclass(eq=False, repr=False)
class RewardAuditDisplay(Display):
    """Three panels.

    What a learner follows in each arm, its value, and as a detail pairs of arms of a question.

    Attributes:
      audit: of `raglab.audit_rewards`.
    """

    audit: Any

    SIZE: ClassVar = (12.5, 4.2)
    PANELS: ClassVar = (1, 3)

    @classmethod
    def from_audit(
        cls,
        audit: Any,  # noqa: ANN401 - of `raglab.audit_rewards`
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of an audit.

        Args:
          audit: of `raglab.audit_rewards`.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: another number of axes.

        Example: `RewardAuditDisplay.from_audit(audit_rewards(trace, policy))`.
        """
        return cls(audit).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        arm_rows, simulation_rows, signal_rows = (
            self.audit.arms,
            self.audit.simulation,
            self.audit.correlations,
        )
        learner = str(simulation_rows["policy"].iloc[0])
        # Three questions in a row: what does the learner follow, what does it come to, does a
        # signal rank arms?
        reward_axes, value_axes, concordance_axes = self.axes_
        _draw_measures(
            reward_axes, arm_rows, ARM_MEASURES, map(canvas.literal_text, arm_rows["arm"]), style
        )
        # what the learner is beside each policy stands below the name of that
        policy_texts = []
        for policy_row in simulation_rows.to_dict("records"):
            verdict_text = VERDICT_WORDS.get(policy_row["verdict"])
            difference_text = (
                f"\n{policy_row['difference']:+.3f}: {verdict_text}" if verdict_text else ""
            )
            policy_texts.append(
                f"{canvas.literal_text(str(policy_row['policy']))}{difference_text}"
            )
        _draw_measures(value_axes, simulation_rows, {"value": "value"}, policy_texts, style)
        signal_names = [
            canvas.literal_text(
                f"{signal_name} (less)" if signal_name in LESS_IS_BETTER else signal_name
            )
            for signal_name in signal_rows["signal"]
        ]
        _draw_measures(
            concordance_axes, signal_rows, {"concordance": "concordance"}, signal_names, style
        )
        # The value of the learner as a line shows each other policy left or right of it; 0.5 is a
        # coin.
        for axes, line_position in (
            (value_axes, float(simulation_rows["value"].iloc[0])),
            (concordance_axes, 0.5),
        ):
            axes.axvline(line_position, **canvas.TARGET_LINE)
        concordance_axes.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        bandit = self.audit.settings["bandit"]
        panel_titles = (
            "what a learner follows in each arm, and what counts",
            f"{canvas.literal_text(learner)} at the end, beside policies that learn nothing",
            "detail: does the better arm of a question score higher?",
        )
        cases_text = canvas.size_text(self.audit.settings["cases"], "questions")
        # pairs of one question are no independent evidence, so both numbers are stated
        questions_text = canvas.size_text(signal_rows["cases"], "questions").removeprefix("n = ")
        pairs_text = canvas.size_text(signal_rows["pairs"], f"pairs in {questions_text}")
        axis_labels = (
            f"mean (of successes the share above {bandit.threshold:g}; {cases_text})",
            f"value of a question (mean; {cases_text})",
            f"concordance (share of pairs; 0.5 is a coin; {pairs_text})",
        )
        for axes, panel_title, axis_label in zip(
            self.axes_, panel_titles, axis_labels, strict=True
        ):
            axes.set_title(panel_title, loc="left")
            axes.set(xlabel=axis_label, ylabel="")
            canvas.limit_ticks(axes)
        canvas.legend_above(reward_axes, len(ARM_MEASURES))
        return [mark_container for axes in self.axes_ for mark_container in axes.containers]

    def frame(self) -> pd.DataFrame:
        """One row a number that is drawn.

        `panel`, `of` (arm, policy or signal), `value`, `low`, `high`.
        """
        arm_rows = self.audit.arms
        simulation_rows = self.audit.simulation
        drawn_measures = [(arm_rows, measure) for measure in ARM_MEASURES]
        drawn_measures += [(simulation_rows, "value"), (simulation_rows, "difference")]
        measure_frames = []
        for source_rows, measure in [*drawn_measures, (self.audit.correlations, "concordance")]:
            measure_frame = source_rows[[measure, f"{measure}_low", f"{measure}_high"]].set_axis(
                INTERVAL_COLUMNS, axis=1
            )
            measure_frame.insert(0, "of", source_rows.iloc[:, 0])
            measure_frames.append(measure_frame.assign(panel=measure))
        return joined_panels(measure_frames)

    def _summary(self) -> Summary:
        arm_rows = self.audit.arms
        policy_rows = self.audit.simulation
        policy_columns = {
            "policy": policy_rows["policy"],
            "value": estimate_cells(policy_rows, "value", "value_"),
            "learner minus it": estimate_cells(policy_rows, "difference", "difference_", "+"),
            "verdict": policy_rows["verdict"].map(VERDICT_WORDS).astype(object),
        }
        arm_columns = {"arm": arm_rows["arm"]} | {
            column_head: estimate_cells(arm_rows, measure, f"{measure}_")
            for measure, column_head in ARM_MEASURES.items()
        }
        level_text = f"{100 * self.audit.settings['level']:g} % over resampled cases"
        # Policies first, since the comparison is what the audit says; the arms explain it.
        tables = spaced_rows(policy_columns) | {"arms": spaced_rows(arm_columns).popitem()[1]}
        title = self.name or "reward audit"
        return Summary([("interval", level_text)], tables, self.audit.notes, title)


VERDICT_WORDS = {
    "helps": "learner above it",
    "harms": "learner below it",
    "not told apart": "not told apart",
}


def _draw_measures(
    axes: Axes,
    measure_rows: pd.DataFrame,
    measures: Mapping[str, str],
    row_names: Iterable[str],
    style: Style,
) -> None:
    """Measures (column -> label) of each row as marks with intervals, the first on top.

    A missing one has none.
    """
    canvas.draw_measures(axes, measure_rows, measures, MEASURE_STYLES, MEASURE_SPREAD, style)
    for empty_row in np.flatnonzero(measure_rows[list(measures)].isna().all(axis=1)):
        note_position: Style = {"xy": (0.5, -empty_row), "xycoords": axes.get_yaxis_transform()}
        axes.annotate("the same everywhere", fontsize=8, **note_position, **CENTRED_NOTE)
    canvas.name_rows(axes, list(row_names))


RATE_TITLES = {
    "false_refusal_rate": "false refusals among what should be answered",
    "over_ask_rate": "needless questions among what needs none",
    "correction_rate": "corrected or rephrased among answers with feedback",
}
RATE_SOURCES = {"labels": "labelled sample", "feedback": "feedback of users"}
NEEDED_RATES = ("until", "rate", "source", "estimate", "low", "high", "level", "known", "unknown")


@dataclass(eq=False, repr=False)
class LiveRatesDisplay(FrameDisplay):
    """Live rates over time.

    A panel a rate, a line with its interval for the labelled sample and for the feedback.

    Attributes:
      rows: of `live_rates`, several windows.
    """

    @classmethod
    def from_rates(
        cls,
        rates: pd.DataFrame,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of live rates.

        Args:
          rates: of `live_rates`, several windows.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no row, or a missing column.

        Example: `LiveRatesDisplay.from_rates(live_rates(log, last=500, every=100))`.
        """
        check_rows("rates", rates, NEEDED_RATES)
        return cls(rates.reset_index(drop=True)).plot(**drawing)

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows["rate"].nunique(), 1

    @property
    def _size(self) -> tuple[float, float]:
        return 7.2, 0.3 + 2.9 * self._grid[0]

    def _draw(self, style: Style) -> list[Any]:
        # A source looks the same in all panels, so that one legend serves them; inside it would lie
        # on a high rate.
        source_indices = {
            source_name: source_index
            for source_index, source_name in enumerate(sorted(self.rows["source"].unique()))
        }
        rate_lines = []
        for axes, (rate, rate_rows) in zip(
            self.axes_, self.rows.groupby("rate", sort=False), strict=True
        ):
            for source, source_rows in rate_rows.groupby("source"):
                source_label = RATE_SOURCES.get(str(source), canvas.literal_text(str(source)))
                marker_style = {"marker": canvas.MARKERS[source_indices[source]], "markersize": 4}
                line_look = canvas.line_style(source_indices[source]) | marker_style | style
                rate_lines.append(
                    canvas.draw_with_band(
                        axes, source_rows, "until", "estimate", source_label, line_look
                    )
                )
            panel_title = RATE_TITLES.get(str(rate), canvas.literal_text(str(rate)))
            requests_text = canvas.size_text(rate_rows["known"], "known requests a window")
            axes.set_title(f"{panel_title} ({requests_text})", loc="left")
            canvas.shares_up(axes, "requests (share, %)")
        canvas.draw_band_label(self.axes_[-1], self._interval_is)
        canvas.legend_over(self.axes_, 3)
        self.axes_[-1].set_xlabel("last request of the window (UTC)")
        self.figure_.autofmt_xdate()
        return rate_lines

    @property
    def _interval_is(self) -> str:
        return f"{100 * float(self.rows['level'].iloc[0]):g} % interval"

    def _summary(self) -> Summary:
        newest_rows = self.rows[self.rows["until"] == self.rows["until"].max()]
        columns: dict[str, Any] = dict(newest_rows[["rate", "source", "known", "unknown"]])
        columns["share"] = estimate_cells(newest_rows, "estimate")
        facts = [("newest window", value_text(newest_rows["until"].iloc[0]), self._interval_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or "live rates")
