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

MARKS: dict[str, dict[str, Any]] = {
    "ok": {"marker": "o", "color": canvas.BLUE, "markersize": 6},
    "weak": {"marker": "s", "color": canvas.ORANGE, "markersize": 6, "markerfacecolor": "white"},
    "none": {"marker": "X", "color": canvas.VERMILLION, "markersize": 7},
}
ENDS = ("value", "low", "high")
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
        odd = sorted(set(estimates["status"]) - set(MARKS))
        check(not odd, f"status of estimates must be among {', '.join(MARKS)}", odd)
        rounds = estimates.attrs.get("rounds") if rounds is None else rounds
        rows = estimates.reset_index(drop=True)
        return cls(rows, truth, level, unit, rounds).plot(**drawing)

    @property
    def _size(self) -> tuple[float, float]:
        return 7.2, 1.9 + 0.42 * len(self.rows)

    def _draw(self, style: Style) -> list[Any]:
        on, height = self.ax_, -np.arange(len(self.rows), dtype=np.float64)
        for status, mark in MARKS.items():
            at = np.flatnonzero(self.rows["status"] == status)
            if len(at):
                value, low, high = self.rows[list(ENDS)].to_numpy(np.float64)[at].T
                look: Style = {"elinewidth": 1.4, "capsize": 3, "label": STATUS_WORDS[status]}
                canvas.draw_marks(on, value, low, high, height[at], **look | mark | style)
        if self.truth is not None:
            on.axvline(self.truth, label=f"true value {self.truth:.3f}", **canvas.TARGET)
        names = []
        for name, row in zip(self._names, self.rows.to_dict("records"), strict=True):
            value = DASH if np.isnan(row["value"]) else f"{row['value']:.3f}"
            weight = f"ESS {row['ess']:,.0f}, weight ≤ {value_text(float(row['max_weight']))}"
            names.append(f"{canvas.literal_text(name)}: {value}\n{weight}".replace("nan", "–"))
        canvas.name_rows(on, names)
        n = "n of rounds not stated"
        size = n if self.rounds is None else canvas.size_text(self.rounds, "rounds")
        unit = canvas.literal_text(self.unit)
        on.set(xlabel=f"value ({unit})\n({self._interval_is}; {size})", ylabel="estimator")
        canvas.legend_above(on, 2, first=lambda label: not label.startswith("true"))
        return list(on.containers)

    @property
    def _names(self) -> list[str]:
        estimators = self.rows["estimator"].astype(str)
        policies = self.rows["policy"] + ": " if "policy" in self.rows else ""
        return (policies + estimators).tolist()

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


SPREAD = 0.5  # of a row, that the marks of its measures take
LOOKS: tuple[Style, ...] = (
    {"marker": "o", "color": canvas.BLUE},
    {"marker": "s", "color": canvas.VERMILLION},
    {"marker": "^", "color": canvas.GREEN},
)
CENTRED: Style = {"ha": "center", "va": "center", "color": canvas.GREY, "bbox": canvas.CLEAR}
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
        arms, simulation, signals = self.audit.arms, self.audit.simulation, self.audit.correlations
        learner = str(simulation["policy"].iloc[0])
        # Three questions in a row: what does the learner follow, what does it come to, does a
        # signal rank arms?
        followed, ends, within = self.axes_
        _draw_measures(followed, arms, ARM_MEASURES, map(canvas.literal_text, arms["arm"]), style)
        # what the learner is beside each policy stands below the name of that
        names = []
        for row in simulation.to_dict("records"):
            says = VERDICT_WORDS.get(row["verdict"])
            beside = f"\n{row['difference']:+.3f}: {says}" if says else ""
            names.append(f"{canvas.literal_text(str(row['policy']))}{beside}")
        _draw_measures(ends, simulation, {"value": "value"}, names, style)
        within_names = [
            canvas.literal_text(f"{name} (less)" if name in LESS_IS_BETTER else name)
            for name in signals["signal"]
        ]
        _draw_measures(within, signals, {"concordance": "concordance"}, within_names, style)
        # The value of the learner as a line shows each other policy left or right of it; 0.5 is a
        # coin.
        for on, at in ((ends, float(simulation["value"].iloc[0])), (within, 0.5)):
            on.axvline(at, **canvas.TARGET)
        within.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        bandit = self.audit.settings["bandit"]
        titles = (
            "what a learner follows in each arm, and what counts",
            f"{canvas.literal_text(learner)} at the end, beside policies that learn nothing",
            "detail: does the better arm of a question score higher?",
        )
        size = canvas.size_text(self.audit.settings["cases"], "questions")
        # pairs of one question are no independent evidence, so both numbers are stated
        questions = canvas.size_text(signals["cases"], "questions").removeprefix("n = ")
        pairs = canvas.size_text(signals["pairs"], f"pairs in {questions}")
        labels = (
            f"mean (of successes the share above {bandit.threshold:g}; {size})",
            f"value of a question (mean; {size})",
            f"concordance (share of pairs; 0.5 is a coin; {pairs})",
        )
        for on, title, label in zip(self.axes_, titles, labels, strict=True):
            on.set_title(title, loc="left")
            on.set(xlabel=label, ylabel="")
            canvas.limit_ticks(on)
        canvas.legend_above(followed, len(ARM_MEASURES))
        return [marks for on in self.axes_ for marks in on.containers]

    def frame(self) -> pd.DataFrame:
        """One row a number that is drawn.

        `panel`, `of` (arm, policy or signal), `value`, `low`, `high`.
        """
        arms, simulation = self.audit.arms, self.audit.simulation
        drawn = [(arms, measure) for measure in ARM_MEASURES]
        drawn += [(simulation, "value"), (simulation, "difference")]
        parts = []
        for rows, measure in [*drawn, (self.audit.correlations, "concordance")]:
            part = rows[[measure, f"{measure}_low", f"{measure}_high"]].set_axis(ENDS, axis=1)
            part.insert(0, "of", rows.iloc[:, 0])
            parts.append(part.assign(panel=measure))
        return joined_panels(parts)

    def _summary(self) -> Summary:
        arms, policies = self.audit.arms, self.audit.simulation
        of_policies = {
            "policy": policies["policy"],
            "value": estimate_cells(policies, "value", "value_"),
            "learner minus it": estimate_cells(policies, "difference", "difference_", "+"),
            "verdict": policies["verdict"].map(VERDICT_WORDS).astype(object),
        }
        of_arms = {"arm": arms["arm"]} | {
            head: estimate_cells(arms, name, f"{name}_") for name, head in ARM_MEASURES.items()
        }
        level = f"{100 * self.audit.settings['level']:g} % over resampled cases"
        # Policies first, since the comparison is what the audit says; the arms explain it.
        tables = spaced_rows(of_policies) | {"arms": spaced_rows(of_arms).popitem()[1]}
        title = self.name or "reward audit"
        return Summary([("interval", level)], tables, self.audit.notes, title)


VERDICT_WORDS = {
    "helps": "learner above it",
    "harms": "learner below it",
    "not told apart": "not told apart",
}


def _draw_measures(
    on: Axes, rows: pd.DataFrame, measures: Mapping[str, str], names: Iterable[str], style: Style
) -> None:
    """Measures (column -> label) of each row as marks with intervals, the first on top.

    A missing one has none.
    """
    canvas.draw_measures(on, rows, measures, LOOKS, SPREAD, style)
    for at in np.flatnonzero(rows[list(measures)].isna().all(axis=1)):
        place: Style = {"xy": (0.5, -at), "xycoords": on.get_yaxis_transform()}
        on.annotate("the same everywhere", fontsize=8, **place, **CENTRED)
    canvas.name_rows(on, list(names))


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
        places = {name: place for place, name in enumerate(sorted(self.rows["source"].unique()))}
        lines = []
        for on, (rate, part) in zip(self.axes_, self.rows.groupby("rate", sort=False), strict=True):
            for source, rows in part.groupby("source"):
                label = RATE_SOURCES.get(str(source), canvas.literal_text(str(source)))
                mark = {"marker": canvas.MARKERS[places[source]], "markersize": 4}
                look = canvas.line_style(places[source]) | mark | style
                lines.append(canvas.draw_with_band(on, rows, "until", "estimate", label, look))
            title = RATE_TITLES.get(str(rate), canvas.literal_text(str(rate)))
            size = canvas.size_text(part["known"], "known requests a window")
            on.set_title(f"{title} ({size})", loc="left")
            canvas.shares_up(on, "requests (share, %)")
        canvas.draw_band_label(self.axes_[-1], self._interval_is)
        canvas.legend_over(self.axes_, 3)
        self.axes_[-1].set_xlabel("last request of the window (UTC)")
        self.figure_.autofmt_xdate()
        return lines

    @property
    def _interval_is(self) -> str:
        return f"{100 * float(self.rows['level'].iloc[0]):g} % interval"

    def _summary(self) -> Summary:
        newest = self.rows[self.rows["until"] == self.rows["until"].max()]
        columns: dict[str, Any] = dict(newest[["rate", "source", "known", "unknown"]])
        columns["share"] = estimate_cells(newest, "estimate")
        facts = [("newest window", value_text(newest["until"].iloc[0]), self._interval_is)]
        return Summary(facts, spaced_rows(columns), title=self.name or "live rates")
