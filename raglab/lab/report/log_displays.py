"""Log displays (shore): off-policy estimates as a forest, the reward audit, live rates over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab.lab.report import canvas
from raglab.lab.report import canvas as ink
from raglab.lab.report.blocks import ReportCell, estimate_cell, number_text
from raglab.lab.report.canvas import html, text_summary
from raglab.lab.reward_audit import LESS_IS_BETTER, RewardAudit
from raglab.off_policy.evaluation import COLUMNS as NEEDED

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.report.canvas import Axes, Figure

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
        return cls(estimates=estimates.reset_index(drop=True), truth=truth, level=level, unit=unit, name=name).plot(
            ax, **kwargs
        )

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
        self.figure_ = canvas.whole_figure(self.ax_)
        height = -np.arange(n, dtype=np.float64)
        for status, mark in MARKS.items():
            at = np.flatnonzero((rows["status"] == status).to_numpy())
            if len(at):
                value, low, high = (rows[name].to_numpy(dtype=np.float64)[at] for name in ("value", "low", "high"))
                look: dict[str, Any] = (
                    {"linestyle": "none", "elinewidth": 1.4, "capsize": 3, "label": SAID[status]} | mark | kwargs
                )
                self.ax_.errorbar(value, height[at], xerr=canvas.interval_arms(value, low, high), **look)
        if self.truth is not None:
            self.ax_.axvline(self.truth, label=f"true value {self.truth:.3f}", **ink.TARGET)
        self._write(height)
        self.ax_.set_yticks(height, [ink.literal_text(name) for name in self._names])
        self.ax_.set_ylim(-n + 0.4, 0.6)
        self.ax_.set_xlabel(f"value ({ink.literal_text(self.unit)}; {self._interval_is})", fontsize=9)
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
            cells = (
                f"{row['value']:.3f}",
                f"{row['ess']:,.0f}",
                number_text(float(row["max_weight"])),
                ink.literal_text(str(row["status"])),
            )
            for (_, aside), cell in zip(COLUMNS, cells, strict=True):
                self.ax_.annotate(cell.replace("nan", "–"), (1, at), xytext=(aside, 0), **look)

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.level:g} % interval"

    def to_frame(self) -> pd.DataFrame:
        """Return the estimates, a row each."""
        return self.estimates.copy()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        rows = self.estimates
        values = rows[["value", "low", "high"]].to_numpy(dtype=np.float64)
        columns: dict[str, Any] = {
            "estimator": self._names,
            "value": [estimate_cell(*row) for row in values],
            "ESS": rows["ess"],
            "largest weight": rows["max_weight"],
            "status": [str(one) for one in rows["status"]],
        }
        true = "" if self.truth is None else f", true value {self.truth:.3f}"
        return html(self, f"{self.name or 'off-policy estimates'}{true}", columns, self._interval_is)


APART = 0.17  # of a row, between the marks of two measures
TRIED = ink.BLUE, ink.VERMILLION
CLEAR: dict[str, Any] = {"facecolor": "white", "edgecolor": "none"}  # of text on the line of a reference
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "color": ink.GREY, "bbox": CLEAR | {"pad": 1.5}}


@dataclass(eq=False, repr=False)
class RewardAuditDisplay:
    """Three panels: correlation with the value over all rows, agreement within a question, right answers lost.

    audit: of `reward_audit.audit_rewards`. After `plot`: axes_ (the three), ax_ (the first), figure_.
    """

    audit: RewardAudit
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    axes_: Sequence[Axes] = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_audit(
        cls,
        audit: RewardAudit,
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the marks
    ) -> Self:
        """Display of an audit.

        Args:
          ax: three axes, or one whose place the three take.

        Raises:
          ValueError: another number of axes.

        Example: `RewardAuditDisplay.from_audit(audit_rewards(trace, policy))`.
        """
        return cls(audit, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | Sequence[Axes] | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the marks
        """Draw on axes, or on those of a new figure."""
        self.axes_ = _three_axes(ax)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        # Three questions in a row: does a signal go with the value, does it rank arms, what does following it lose?
        signals, policies = self.audit.correlations, self.audit.policies
        shown = [f"{name} (less)" if name in LESS_IS_BETTER else name for name in signals["signal"]]
        _marks(self.axes_[0], signals, ("pearson", "spearman"), shown, kwargs)
        most = signals["pairs"].max()
        names = [name if n == most else f"{name} ({n} pairs)" for name, n in zip(shown, signals["pairs"], strict=True)]
        _marks(self.axes_[1], signals, ("concordance",), names, kwargs)
        _marks(self.axes_[2], policies, ("regret",), list(policies["policy"]), kwargs)
        for on, at in zip(self.axes_, (0.0, 0.5, 0.0), strict=True):
            on.axvline(at, **ink.TARGET)
        self.axes_[1].set_xlim(-ink.SHARE_MARGIN, 1.0 + ink.SHARE_MARGIN)
        titles = (
            "over all rows: correlation\nwith the value",
            f"within a question: does the better\narm score higher? {most} pairs, {signals['cases'].max()} cases",
            f"followed: what is lost against\nthe best arm of each of {self._n} cases",
        )
        labels = (
            "correlation (−1 to 1)",
            "concordance (share of pairs; 0.5 is a coin)",
            f"regret ({ink.literal_text(str(self.audit.settings['unit']))})",
        )
        for on, title, label in zip(self.axes_, titles, labels, strict=True):
            on.set_title(title, fontsize=9, loc="left")
            on.set_xlabel(f"{label}", fontsize=9)
            on.set_ylabel("")
        return self

    @property
    def _n(self) -> int:
        return int(self.audit.settings["cases"])

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.audit.settings['level']:g} % interval over resampled cases"

    def to_frame(self) -> pd.DataFrame:
        """One row a number that is drawn: `panel`, `of` (signal or policy), `value`, `low`, `high`."""
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "panel": measure,
                    "of": table[key],
                    "value": table[measure],
                    "low": table[f"{measure}_low"],
                    "high": table[f"{measure}_high"],
                }
            )
            for table, key, measure in (
                (self.audit.correlations, "signal", "pearson"),
                (self.audit.correlations, "signal", "spearman"),
                (self.audit.correlations, "signal", "concordance"),
                (self.audit.policies, "policy", "regret"),
            )
        ]
        return pd.concat(parts, ignore_index=True)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        rows = self.audit.policies
        share = [f"{row.right:.4g} of {row.n}" for row in rows.itertuples()]
        columns: dict[str, Any] = {
            "policy": list(rows["policy"]),
            "right": [ReportCell(one, mark="number") for one in share],
        }
        for measure in ("regret", "behind"):
            values = rows[[measure, f"{measure}_low", f"{measure}_high"]].to_numpy(dtype=np.float64)
            columns[measure] = [estimate_cell(*row) for row in values]
        return html(self, "\n".join([self.name or "reward audit", *self.audit.notes]), columns, self._interval_is)


def _three_axes(ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
    """Three axes: those given, those of a new figure, or three in the place of one."""
    if ax is None:
        return list(canvas.empty_figure(11.5, 4.4).subplots(1, 3))
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel().tolist()
    if len(given) == 3:
        return given
    place = given[0].get_subplotspec() if len(given) == 1 else None
    if place is None:
        msg = f"ax must be three axes, or one of a grid, got {len(given)}; make them with subplots(1, 3)."
        raise ValueError(msg)
    given[0].set_axis_off()
    return list(place.subgridspec(1, 3).subplots())


def _marks(on: Axes, table: pd.DataFrame, measures: Sequence[str], names: Sequence[str], style: Any) -> None:  # noqa: ANN401
    """Measures of each row as marks with intervals, the first row on top; a missing one has no mark."""
    for place, measure in enumerate(measures):
        height = -np.arange(len(table)) - APART * (2 * place - len(measures) + 1)
        value, low, high = (table[f"{measure}{end}"].to_numpy(dtype=np.float64) for end in ("", "_low", "_high"))
        look: dict[str, Any] = {
            "linestyle": "none",
            "marker": ink.MARKERS[place],
            "color": TRIED[place],
            "markersize": 5,
            "elinewidth": 1.2,
            "capsize": 2.5,
            "label": measure.capitalize(),
        } | style
        on.errorbar(value, height, xerr=canvas.interval_arms(value, low, high), **look)
    for at in np.flatnonzero(table[list(measures)].isna().all(axis=1)):
        on.annotate("the same everywhere", (0.5, -at), xycoords=on.get_yaxis_transform(), fontsize=8, **CENTRED)
    several = len(measures) > 1
    on.set_yticks(-np.arange(len(table)), [ink.literal_text(name) for name in names])
    on.set_ylim(-len(table) + 0.5 - 1.1 * several, 0.5)
    canvas.tidy(on)
    if several:
        on.legend(fontsize=8, framealpha=1.0, loc="lower center", ncols=len(measures), **CLEAR)


RATE_TITLES = {
    "false_refusal_rate": "false refusals among what should be answered",
    "over_ask_rate": "needless questions among what needs none",
    "correction_rate": "corrected or rephrased among answers with feedback",
}
RATE_SOURCES = {"labels": "labelled sample", "feedback": "feedback of users"}
NEEDED_RATES = ("until", "rate", "source", "estimate", "low", "high", "level", "known", "unknown")


@dataclass(eq=False, repr=False)
class LiveRatesDisplay:
    """Live rates over time: a panel a rate, a line with its interval for the labelled sample and for the feedback.

    rates: of `live_rates`, several windows. After `plot`: axes_ (one a rate), ax_ (the first), figure_, lines_.
    """

    rates: pd.DataFrame
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    axes_: list[Axes] = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_rates(
        cls,
        rates: pd.DataFrame,
        *,
        name: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of live rates.

        Raises:
          ValueError: no row, or a missing column.

        Example: `LiveRatesDisplay.from_rates(live_rates(log, last=500, every=100))`.
        """
        absent = [column for column in NEEDED_RATES if column not in rates]
        if absent or not len(rates):
            came = f"{', '.join(absent)} missing" if absent else "no row"
            msg = f"rates must be rows of {', '.join(NEEDED_RATES)}, got {came}; give what live_rates returned."
            raise ValueError(msg)
        return cls(rates.reset_index(drop=True), name).plot(**kwargs)

    def plot(self, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on a new figure."""
        known = list(dict.fromkeys(self.rates["rate"]))
        panels = canvas.empty_figure(8.0, 2.9 * len(known)).subplots(len(known), 1, sharex=True, squeeze=False)
        self.axes_ = list(panels.ravel())
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        for on, rate in zip(self.axes_, known, strict=True):
            for place, (source, rows) in enumerate(self.rates[self.rates["rate"] == rate].groupby("source")):
                look = ink.line_style(place) | {"marker": ink.MARKERS[place], "markersize": 4} | kwargs
                label = RATE_SOURCES.get(str(source), ink.literal_text(str(source)))
                self.lines_ += on.plot(rows["until"], rows["estimate"], label=label, **look)
                on.fill_between(rows["until"], rows["low"], rows["high"], color=look["color"], **ink.BAND)
            on.set_title(RATE_TITLES.get(rate, ink.literal_text(rate)), fontsize=9, loc="left")
            canvas.shares_up(on, "requests (share, %)")
            canvas.tidy(on)
        # One legend for all panels, above them: inside it would lie on a rate that is high.
        entries = {
            label: line for on in self.axes_ for line, label in zip(*on.get_legend_handles_labels(), strict=True)
        }
        level = f"{100 * float(self.rates['level'].iloc[0]):g} % interval"
        entries[level] = self.ax_.fill_between([], [], [], color=ink.GREY, **ink.BAND)
        canvas.legend_over(self.figure_, list(entries.values()), list(entries), 3)
        self.axes_[-1].set_xlabel("last request of the window", fontsize=9)
        self.figure_.autofmt_xdate()
        return self

    def to_frame(self) -> pd.DataFrame:
        """The rates."""
        return self.rates.copy()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        newest = self.rates[self.rates["until"] == self.rates["until"].max()]
        cells = newest[["estimate", "low", "high"]].to_numpy(np.float64)
        columns = {
            "rate": newest["rate"],
            "source": newest["source"],
            "share": [estimate_cell(*row) for row in cells],
            "known requests": newest["known"],
            "without label or feedback": newest["unknown"],
        }
        level = f"{100 * float(newest['level'].iloc[0]):g} % interval, of the newest window"
        return html(self, self.name or "live rates", columns, level)
