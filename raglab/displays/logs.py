"""Displays of logs (shore): off-policy estimates as forest, reward audit, live rates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, FrameDisplay, Shown
from raglab.displays.tables import DASH, estimate_cells, number_cell, number_text
from raglab.off_policy.evaluation import COLUMNS as NEEDED
from raglab.reward import LESS_IS_BETTER

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

MARKS: dict[str, dict[str, Any]] = {
    "ok": {"marker": "o", "color": canvas.BLUE, "markersize": 6},
    "weak": {"marker": "s", "color": canvas.ORANGE, "markersize": 6, "markerfacecolor": "white"},
    "none": {"marker": "X", "color": canvas.VERMILLION, "markersize": 7},
}
STATUS_WORDS = {
    "ok": "ok",
    "weak": "weak: read with care",
    "none": "none: the log says nothing about it",
}
# points right of the axes
COLUMNS = (("value", 34), ("ESS", 88), ("largest\nweight", 140), ("status", 190))


@dataclass(eq=False, repr=False)
class ForestDisplay(FrameDisplay):
    """Estimates below each other, the interval as a line, the status as the mark.

    Next to them ESS and largest weight.

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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the marks
    ) -> Self:
        """Display of estimates.

        Args:
          estimates: of `off_policy.estimate`, or several joined, with a column `policy`.
          truth: drawn as a dashed line.
          level: of their intervals.
          unit: of the estimates, on the axis.
          rounds: of the log; where not given as `off_policy.estimate` noted it, which frames that
            were joined forget.
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no row, a missing column or an unknown status.

        Example: `ForestDisplay.from_estimates(off_policy.estimate(log, target), truth=0.62)`.
        """
        absent = [name for name in NEEDED if name not in estimates]
        odd = [] if "status" in absent else sorted(set(estimates["status"]) - set(MARKS))
        if absent or odd or not len(estimates):
            fault = (
                f"{', '.join(absent)} missing" if absent else f"{len(estimates)} rows, status {odd}"
            )
            msg = (
                f"estimates must be rows of {', '.join(NEEDED)}, status ok, weak or none, got "
                f"{fault}."
            )
            raise ValueError(msg)
        rounds = estimates.attrs.get("rounds") if rounds is None else rounds
        return cls(estimates.reset_index(drop=True), truth, level, unit, rounds, name=name).plot(
            ax, **style
        )

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        return canvas.panels(ax, 1, 1, (8.2, 1.7 + 0.34 * len(self.rows)))

    def _draw(self, style: Style) -> list[Any]:
        on, height = self.ax_, -np.arange(len(self.rows), dtype=np.float64)
        for status, mark in MARKS.items():
            at = np.flatnonzero((self.rows["status"] == status).to_numpy())
            if len(at):
                value, low, high = (
                    self.rows[name].to_numpy(np.float64)[at] for name in ("value", "low", "high")
                )
                look = (
                    {"elinewidth": 1.4, "capsize": 3, "label": STATUS_WORDS[status]} | mark | style
                )
                canvas.draw_marks(on, value, low, high, height[at], **look)
        if self.truth is not None:
            on.axvline(self.truth, label=f"true value {self.truth:.3f}", **canvas.TARGET)
        self._write_numbers()
        canvas.name_rows(on, [canvas.literal_text(name) for name in self._names])
        size = (
            "n of rounds not stated"
            if self.rounds is None
            else canvas.size_text(self.rounds, "rounds")
        )
        on.set_xlabel(
            f"value ({canvas.literal_text(self.unit)})\n({self._interval_is}; {size})", fontsize=9
        )
        on.set_ylabel("estimator (with interval)", fontsize=9)
        canvas.legend_above(on, 2, first=lambda label: not label.startswith("true"))
        return list(on.containers)

    def _write_numbers(self) -> None:
        """Numbers of each row, right of the axes."""
        look: Style = {"textcoords": "offset points", "fontsize": 8, "ha": "center", "va": "center"}
        look["xycoords"] = self.ax_.get_yaxis_transform()
        for head, aside in COLUMNS:
            self.ax_.annotate(head, (1, 0.6), xytext=(aside, 12), style="italic", **look)
        for place, row in enumerate(self.rows.to_dict("records")):
            value, size = f"{row['value']:.3f}", f"{row['ess']:,.0f}"
            cells = (
                value,
                size,
                number_text(float(row["max_weight"])),
                canvas.literal_text(str(row["status"])),
            )
            for (_, aside), cell in zip(COLUMNS, cells, strict=True):
                self.ax_.annotate(cell.replace("nan", "–"), (1, -place), xytext=(aside, 0), **look)

    @property
    def _names(self) -> list[str]:
        rows = self.rows
        if "policy" not in rows:
            return [str(estimator) for estimator in rows["estimator"]]
        return [
            f"{policy}: {estimator}"
            for policy, estimator in zip(rows["policy"], rows["estimator"], strict=True)
        ]

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.level:g} % interval"

    def _shown(self) -> Shown:
        columns = {
            "estimator": self._names,
            "value": estimate_cells(self.rows, "value"),
            "ESS": self.rows["ess"],
            "largest weight": self.rows["max_weight"],
            "status": self.rows["status"].astype(str),
        }
        true = "" if self.truth is None else f", true value {self.truth:.3f}"
        return Shown(f"{self.name or 'off-policy estimates'}{true}", columns, self._interval_is)


SPREAD = 0.5  # of a row, that the marks of its measures take
LOOKS: tuple[Style, ...] = (
    {"marker": "o", "color": canvas.BLUE},
    {"marker": "s", "color": canvas.VERMILLION},
    {"marker": "^", "color": canvas.GREEN},
)
CLEAR: Style = {"facecolor": "white", "edgecolor": "none"}  # of text on the line of a reference
CENTRED: Style = {
    "ha": "center",
    "va": "center",
    "color": canvas.GREY,
    "bbox": CLEAR | {"pad": 1.5},
}
ARM_MEASURES = {
    "mean_reward": "mean reward",
    "success_share": "successes",
    "mean_value": "mean value",
}


class AuditedRewards(Protocol):
    """What `audit_rewards` returns, as far as it is drawn."""

    @property
    def arms(self) -> pd.DataFrame:
        """Arms: `arm`, and measures of `ARM_MEASURES` with their ends."""

    @property
    def simulation(self) -> pd.DataFrame:
        """Policies, the learner first.

        `policy`, `value`, `difference` with their ends, `verdict`.
        """

    @property
    def correlations(self) -> pd.DataFrame:
        """Signals: `signal`, `cases`, `pairs`, and measures with their ends."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was computed with: `bandit`, `level`, `cases`."""


@dataclass(eq=False, repr=False)
class RewardAuditDisplay(Display):
    """Three panels.

    What a learner follows in each arm, its value, and as a detail pairs of arms of a question.

    Attributes:
      audit: of `raglab.audit_rewards`.
    """

    audit: AuditedRewards

    SIZE: ClassVar = (12.5, 4.2)
    PANELS: ClassVar = (1, 3)

    @classmethod
    def from_audit(
        cls,
        audit: AuditedRewards,
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the marks
    ) -> Self:
        """Display of an audit.

        Args:
          audit: of `raglab.audit_rewards`.
          name: drawn in the legend or title.
          ax: three axes, or one whose place the three take.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: another number of axes.

        Example: `RewardAuditDisplay.from_audit(audit_rewards(trace, policy))`.
        """
        return cls(audit, name=name).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        arms, simulation, signals = self.audit.arms, self.audit.simulation, self.audit.correlations
        learner = str(simulation["policy"].iloc[0])
        # Three questions in a row: what does the learner follow, what does it come to, does a
        # signal rank arms?
        followed, ends, within = self.axes_
        _draw_measures(followed, arms, ARM_MEASURES, list(arms["arm"]), style)
        _draw_measures(ends, simulation, {"value": "value"}, list(simulation["policy"]), style)
        within_names = [
            f"{name} (less)" if name in LESS_IS_BETTER else name for name in signals["signal"]
        ]
        _draw_measures(within, signals, {"concordance": "concordance"}, within_names, style)
        # The value of the learner as a line shows each other policy left or right of it; 0.5 is a
        # coin.
        for on, at in ((ends, float(simulation["value"].iloc[0])), (within, 0.5)):
            on.axvline(at, **canvas.TARGET)
        within.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        self._write_verdicts(ends)
        bandit = self.audit.settings["bandit"]
        titles = (
            "what a learner follows in each arm,\nand what counts",
            f"{canvas.literal_text(learner)} at the end, beside policies\nthat learn nothing",
            "detail: does the better arm of a question\nscore higher? (no learner follows that)",
        )
        size = canvas.size_text(self.audit.settings["cases"], "questions")
        # pairs of one question are no independent evidence, so both numbers are stated
        questions = canvas.size_text(signals["cases"], "questions").removeprefix("n = ")
        pairs = canvas.size_text(signals["pairs"], f"pairs in {questions}")
        labels = (
            f"mean (of successes the share above {bandit.threshold:g})\n({size})",
            f"value of a question (mean; {size})",
            f"concordance (share of pairs; 0.5 is a coin)\n({pairs})",
        )
        for on, title, label in zip(self.axes_, titles, labels, strict=True):
            on.set_title(title, fontsize=9, loc="left")
            on.set_xlabel(label, fontsize=9)
            on.set_ylabel("")
            canvas.limit_ticks(on)
        return [marks for on in self.axes_ for marks in on.containers]

    def _write_verdicts(self, on: Axes) -> None:
        """What the learner is beside each policy, at the foot of its row."""
        for place, row in enumerate(self.audit.simulation.to_dict("records")):
            if row["verdict"]:
                text, look = (
                    f"{row['difference']:+.3f}: {VERDICT_WORDS[row['verdict']]}",
                    CLEAR | {"pad": 0.5},
                )
                at = (0.02, -place - 0.3)
                on.annotate(
                    text,
                    at,
                    xycoords=on.get_yaxis_transform(),
                    fontsize=7,
                    color=canvas.GREY,
                    bbox=look,
                )

    def frame(self) -> pd.DataFrame:
        """One row a number that is drawn.

        `panel`, `of` (arm, policy or signal), `value`, `low`, `high`.
        """
        import pandas as pd

        audit = self.audit
        drawn = [(audit.arms, measure) for measure in ARM_MEASURES]
        drawn += [
            (audit.simulation, "value"),
            (audit.simulation, "difference"),
            (audit.correlations, "concordance"),
        ]
        parts = []
        for rows, measure in drawn:
            ends = {
                "value": rows[measure],
                "low": rows[f"{measure}_low"],
                "high": rows[f"{measure}_high"],
            }
            parts.append(pd.DataFrame({"panel": measure, "of": rows.iloc[:, 0]} | ends))
        return pd.concat(parts, ignore_index=True)

    def _shown(self) -> Shown:
        arms, policies = self.audit.arms, self.audit.simulation
        none = [number_cell(DASH)]
        # Policies first, since the comparison is what the audit says; the arms explain it.
        columns: dict[str, Any] = {
            "policy or arm": [*policies["policy"], *(f"arm {arm}" for arm in arms["arm"])],
            "value": [
                *estimate_cells(policies, "value", "value_"),
                *estimate_cells(arms, "mean_value", "mean_value_"),
            ],
            "learner minus it": [
                *estimate_cells(policies, "difference", "difference_", "+"),
                *(none * len(arms)),
            ],
            "verdict": [
                *(VERDICT_WORDS.get(each, DASH) for each in policies["verdict"]),
                *([DASH] * len(arms)),
            ],
        }
        for measure in ("mean_reward", "success_share"):
            cells = estimate_cells(arms, measure, f"{measure}_")
            columns[ARM_MEASURES[measure]] = [*(none * len(policies)), *cells]
        level = f"{100 * self.audit.settings['level']:g} % interval over resampled cases"
        return Shown("\n".join([self.name or "reward audit", *self.audit.notes]), columns, level)


VERDICT_WORDS = {
    "helps": "learner above it",
    "harms": "learner below it",
    "not told apart": "not told apart",
}


def _draw_measures(
    on: Axes, rows: pd.DataFrame, measures: Mapping[str, str], names: Sequence[str], style: Style
) -> None:
    """Measures (column -> label) of each row as marks with intervals, the first on top.

    A missing one has none.
    """
    several = len(measures) > 1
    canvas.draw_measures(on, rows, measures, LOOKS, SPREAD, style)
    for at in np.flatnonzero(rows[list(measures)].isna().all(axis=1)):
        on.annotate(
            "the same everywhere",
            (0.5, -at),
            xycoords=on.get_yaxis_transform(),
            fontsize=8,
            **CENTRED,
        )
    canvas.name_rows(
        on, [canvas.literal_text(name) for name in names], room=0.5, below=0.9 * several
    )
    if several:
        look: Style = {"columnspacing": 1.0, "handletextpad": 0.3} | CLEAR
        on.legend(fontsize=7, framealpha=1.0, loc="lower center", ncols=len(measures), **look)


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
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of live rates.

        Args:
          rates: of `live_rates`, several windows.
          name: drawn in the legend or title.
          ax: an axis a rate, or one whose place they take.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no row, or a missing column.

        Example: `LiveRatesDisplay.from_rates(live_rates(log, last=500, every=100))`.
        """
        absent = [column for column in NEEDED_RATES if column not in rates]
        if absent or not len(rates):
            fault = f"{', '.join(absent)} missing" if absent else "no row"
            msg = (
                f"rates must be rows of {', '.join(NEEDED_RATES)}, got {fault}; give what "
                "live_rates returned."
            )
            raise ValueError(msg)
        return cls(rates.reset_index(drop=True), name=name).plot(ax, **style)

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        n = self.rows["rate"].nunique()
        return canvas.panels(ax, n, 1, (8.0, 2.9 * n))

    def _draw(self, style: Style) -> list[Any]:
        # A source looks the same in all panels, so that one legend serves them; inside it would lie
        # on a high rate.
        places = {
            source: place for place, source in enumerate(sorted(self.rows["source"].unique()))
        }
        entries: dict[str, Any] = {}
        lines = []
        for on, (rate, part) in zip(self.axes_, self.rows.groupby("rate", sort=False), strict=True):
            for source, rows in part.groupby("source"):
                place, label = (
                    places[source],
                    RATE_SOURCES.get(str(source), canvas.literal_text(str(source))),
                )
                look = (
                    canvas.line_style(place)
                    | {"marker": canvas.MARKERS[place], "markersize": 4}
                    | style
                )
                lines.append(canvas.draw_with_band(on, rows, "until", "estimate", label, look))
                entries.setdefault(label, lines[-1])
            title = RATE_TITLES.get(str(rate), canvas.literal_text(str(rate)))
            size = canvas.size_text(part["known"], "known requests a window")
            on.set_title(f"{title} ({size})", fontsize=9, loc="left")
            canvas.shares_up(on, "requests (share, %)")
        entries[self._interval_is] = canvas.draw_band_label(self.ax_, "")
        canvas.legend_over(self.figure_, list(entries.values()), list(entries), 3)
        self.axes_[-1].set_xlabel("last request of the window (UTC)", fontsize=9)
        self.figure_.autofmt_xdate()
        return lines

    @property
    def _interval_is(self) -> str:
        return f"{100 * float(self.rows['level'].iloc[0]):g} % interval"

    def _shown(self) -> Shown:
        newest = self.rows[self.rows["until"] == self.rows["until"].max()]
        columns = {
            "rate": newest["rate"],
            "source": newest["source"],
            "share": estimate_cells(newest, "estimate"),
            "known requests": newest["known"],
            "without label or feedback": newest["unknown"],
        }
        return Shown(
            self.name or "live rates", columns, f"{self._interval_is}, of the newest window"
        )
