"""Clarification displays (shore): questions and errors, confidence paths, splits.

In scikit-learn's manner, as in `displays`: `from_…` takes values that were computed elsewhere and draws them, `plot`
draws them again on any axes, `to_frame` gives every number that is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW
from raglab.default_learner.simulation import Silence
from raglab.lab.report import canvas
from raglab.lab.report import canvas as ink
from raglab.lab.report.blocks import estimate_cell
from raglab.lab.report.canvas import html, text_summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.report.canvas import Axes, Figure

BINS = 24


@dataclass(eq=False, repr=False)
class ConfidenceDisplay:
    """Confidence of a row that is always right: above, silence alone after one yes; below, with the gate's questions.

    paths: of `confidence_paths`. After `plot`: axes_ (both), ax_ (the first), figure_, lines_.
    """

    paths: pd.DataFrame
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    axes_: list[Axes] = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_paths(
        cls,
        paths: pd.DataFrame,
        *,
        name: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of paths.

        Raises:
          ValueError: no row.

        Example: `ConfidenceDisplay.from_paths(confidence_paths({"vote_share": Learner()}, 60))`.
        """
        if not len(paths):
            msg = "paths must hold a row a learner and request, got none; give what confidence_paths returned."
            raise ValueError(msg)
        return cls(paths, name).plot(**kwargs)

    def plot(self, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on a new figure."""
        self.axes_ = list(canvas.empty_figure(8.0, 6.4).subplots(2, 1, sharex=True))
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        # Above what silence alone teaches, below what the gate makes of it: the same learners, on one scale.
        for on, gated in zip(self.axes_, (False, True), strict=True):
            self._draw_paths(on, gated, kwargs)
            self._draw_thresholds(on)
            on.set_ylabel("confidence (0 to 1)", fontsize=9)
            on.set_ylim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
            canvas.tidy(on)
            on.legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
        titles = ("one yes, then silent successes alone", "with the gate: it asks when due and is told yes (marks)")
        for on, title in zip(self.axes_, titles, strict=True):
            on.set_title(title, fontsize=9, loc="left")
        self.axes_[1].set_xlabel("requests that met the row (count)", fontsize=9)
        self.axes_[1].set_xlim(0, int(self.paths["request"].max()))
        return self

    def _draw_paths(self, on: Axes, gated: bool, style: dict[str, Any]) -> None:  # noqa: FBT001 - a panel
        """A line a learner, with a mark where the user was asked."""
        part = self.paths[self.paths["gated"] == gated]
        for place, (learner, rows) in enumerate(part.groupby("learner", sort=False)):
            look = ink.line_style(place) | style
            label = f"{ink.literal_text(str(learner))}: ends at {rows['confidence'].iloc[-1]:.3f}"
            asked = int(rows["question"].sum())
            label += f", {asked} question{'' if asked == 1 else 's'}" if gated else ""
            self.lines_ += on.plot(rows["request"], rows["confidence"], label=label, **look)
            at = rows[rows["question"]]
            mark = {"marker": ink.MARKERS[place], "color": look["color"], "linestyle": "none", "markersize": 4}
            mark |= {"clip_on": False, "zorder": 3}
            on.plot(at["request"], at["confidence"], **mark)

    def _draw_thresholds(self, on: Axes) -> None:
        """Both thresholds of the gate, named at the right end, clear of the lines."""
        clear = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}
        marks = (
            (APPLY_ABOVE, "applies above", "bottom", 0.015),
            (ASK_BELOW, "always asks below", "top", -0.03),
        )
        for value, what, side, lift in marks:
            on.axhline(value, **ink.TARGET)
            place = (0.995, value + lift)
            on.annotate(f"{what} {value:g}", place, xycoords=("axes fraction", "data"), va=side, bbox=clear, **NOTE)

    def to_frame(self) -> pd.DataFrame:
        """The paths."""
        return self.paths.copy()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        parts = self.paths.groupby(["learner", "gated"], sort=False)
        rows = [(learner, gated, part) for (learner, gated), part in parts]
        columns: dict[str, Any] = {
            "learner": [str(learner) for learner, _, _ in rows],
            "asks": ["when due" if gated else "never" for _, gated, _ in rows],
            "last above apply": [_last_request(part, part["confidence"] > APPLY_ABOVE) for _, _, part in rows],
            "first below ask": [_first_request(part, part["confidence"] < ASK_BELOW) for _, _, part in rows],
            "ends at": [float(part["confidence"].iloc[-1]) for _, _, part in rows],
            "questions": [int(part["question"].sum()) for _, _, part in rows],
        }
        return html(self, self.name or "confidence of a row that is always right", columns, "none")


NOTE: dict[str, Any] = {"fontsize": 8, "ha": "right", "color": ink.GREY}


def _first_request(part: pd.DataFrame, met: Any) -> float:  # noqa: ANN401 - a boolean column
    rows = part.loc[met, "request"]
    return float(rows.iloc[0]) if len(rows) else float("nan")


def _last_request(part: pd.DataFrame, met: Any) -> float:  # noqa: ANN401 - a boolean column
    rows = part.loc[met, "request"]
    return float(rows.iloc[-1]) if len(rows) else float("nan")


@dataclass(eq=False, repr=False)
class SplitDisplay:
    """After how many requests of a row its split was found, as a histogram a world.

    found: name -> request of each row at which it was split, NaN never, [R]. After `plot`: ax_, figure_.
    """

    found: Mapping[str, NDArray[np.float64]]
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_found(
        cls, found: Mapping[str, NDArray[np.float64]], *, name: str | None = None, ax: Axes | None = None
    ) -> Self:
        """Display of splits by name.

        Raises:
          ValueError: no name, or no row of one.

        Example: `SplitDisplay.from_found({"page_1_kind": np.array([18.0, 31.0, np.nan])})`.
        """
        if not found or any(not len(one) for one in found.values()):
            msg = "found must hold a name with a number a row, got none; simulate at least one."
            raise ValueError(msg)
        return cls(found, name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole_figure(self.ax_)
        every = np.concatenate([one[~np.isnan(one)] for one in self.found.values()])
        edges, most = np.linspace(0.0, float(every.max(initial=1.0)), BINS + 1), 0.0
        for place, (name, one) in enumerate(self.found.items()):
            known = one[~np.isnan(one)]
            heights = np.histogram(known, edges)[0] / len(one)
            median = f", median {np.median(known):.0f} requests" if len(known) else ""
            most = max(most, float(heights.max()))
            label = f"{ink.literal_text(name)}: {len(known)} of {len(one)}{median}"
            colour = ink.INKS[place % 7]
            self.ax_.stairs(heights, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
            self.ax_.stairs(heights, edges, color=colour, linewidth=1.2, label=label)
        self.ax_.set_xlabel("requests of the row until it is split (count)", fontsize=9)
        canvas.shares_up(self.ax_, "rows (share, %)")
        self.ax_.set_ylim(0.0, 1.1 * max(most, 0.01))
        self.ax_.set_xlim(0.0, edges[-1])
        canvas.legend_above(self.ax_)
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row a row of the default table: `name`, `row`, `requests` (NaN: never split)."""
        import pandas as pd

        parts = [
            pd.DataFrame({"name": name, "row": np.arange(len(one)), "requests": one})
            for name, one in self.found.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        known = {name: one[~np.isnan(one)] for name, one in self.found.items()}
        columns: dict[str, Any] = {"name": list(known), "rows": [len(one) for one in self.found.values()]}
        columns["split"] = [len(one) for one in known.values()]
        for share in (0.1, 0.5, 0.9):
            columns[f"{100 * share:g} % after"] = [
                float(np.quantile(one, share)) if len(one) else float("nan") for one in known.values()
            ]
        return html(self, self.name or "requests until the split is found", columns, "none")


PANELS = {
    "questions": ("questions", "questions (per 100 requests)"),
    "errors": ("silent errors", "per 100 requests (logarithmic above 1)"),
    "regret": ("regret against the oracle", "cumulative cost above the oracle (a user)"),
    "silent": ("users who are not asked again", "share of the users (%)"),
}
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
INTERVAL = "95 % interval over users"


@dataclass(eq=False, repr=False)
class ClarifyDisplay:
    """Four panels over the requests: questions, silent errors, regret, and users who are not asked again.

    table: of `simulate`. After `plot`: axes_ (the four), ax_ (the first), figure_, lines_.
    """

    table: pd.DataFrame
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    axes_: Sequence[Axes] = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_simulation(
        cls,
        table: pd.DataFrame,
        *,
        name: str | None = None,
        ax: Sequence[Axes] | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of a simulation.

        Args:
          ax: four axes.

        Raises:
          ValueError: no row, or another number of axes.

        Example: `ClarifyDisplay.from_simulation(simulate(world, {"published": Learner(), "oracle": "oracle"}))`.
        """
        if not len(table):
            msg = "table must hold a row a policy and bucket, got none; give what simulate returned."
            raise ValueError(msg)
        return cls(table, name).plot(ax, **kwargs)

    def plot(self, ax: Sequence[Axes] | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on four axes, or on those of a new figure."""
        self.axes_ = list(canvas.empty_figure(10.5, 7.0).subplots(2, 2).ravel()) if ax is None else list(ax)
        if len(self.axes_) != len(PANELS):
            msg = f"ax must be four axes, got {len(self.axes_)}; make them with subplots(2, 2).ravel()."
            raise ValueError(msg)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        # One look a policy through all panels, so that one legend serves them.
        for place, (policy, rows) in enumerate(self.table.groupby("policy", sort=False)):
            look = ink.line_style(place) | kwargs
            for on, measure in zip(self.axes_, PANELS, strict=True):
                (line,) = on.plot(rows["last"], rows[measure], label=ink.literal_text(str(policy)), **look)
                ends = [rows[f"{measure}_{end}"].to_numpy(np.float64) for end in ("low", "high")]
                # An interval of a mean may reach below 0, a count cannot.
                low, high = ends if measure == "regret" else (np.maximum(end, 0.0) for end in ends)
                on.fill_between(rows["last"], low, high, color=look["color"], **ink.BAND)
                if on is self.ax_:
                    self.lines_.append(line)
        for on, (title, label) in zip(self.axes_, PANELS.values(), strict=True):
            on.set_title(title, fontsize=9, loc="left")
            on.set_xlabel("requests of a user (count)", fontsize=9)
            on.set_ylabel(label, fontsize=9)
            on.set_xlim(0, int(self.table["last"].max()))
            canvas.tidy(on)
        canvas.shares_up(self.axes_[3], PANELS["silent"][1])
        self._bent(self.axes_[1])
        # An empty band stands in the legend for all of them.
        band = self.axes_[0].fill_between([], [], [], color=ink.GREY, **ink.BAND)
        labels = [str(line.get_label()) for line in self.lines_]
        canvas.legend_over(self.figure_, [*self.lines_, band], [*labels, INTERVAL], 4)
        return self

    def _bent(self, on: Axes) -> None:
        """Axis of errors, logarithmic above 1: who never asks begins far above all others."""
        most = float(self.table["errors_high"].fillna(self.table["errors"]).max())
        ticks = [tick for tick in TICKS if tick <= max(most, 1.0)]
        on.set_yscale("symlog", linthresh=1.0)
        on.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        on.set_yticks([], minor=True)
        on.set_ylim(-0.05, 1.3 * max(most, 1.0))

    def to_frame(self) -> pd.DataFrame:
        """The table of the simulation."""
        return self.table.copy()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        last = self.table.drop_duplicates("policy", keep="last")
        columns: dict[str, Any] = {"policy": last["policy"], "requests": last["last"], "users": last["users"]}
        heads = {"questions": "questions per 100", "errors": "silent errors per 100", "regret": "regret a user"}
        for measure, head in heads.items():
            columns[head] = [
                estimate_cell(*row) for row in last[[measure, f"{measure}_low", f"{measure}_high"]].to_numpy(np.float64)
            ]
        told = f"{self.name or 'clarification'}: rates of the last bucket, regret of all requests"
        return html(self, told, columns, INTERVAL)


@dataclass(eq=False, repr=False)
class SilenceDisplay:
    """Share of rows that have asked their last question, over the requests that met them.

    rows: name -> what `silence` found. After `plot`: ax_, figure_, lines_.
    """

    rows: Mapping[str, Silence]
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_silence(
        cls,
        rows: Mapping[str, Silence],
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of rows by policy.

        Raises:
          ValueError: no policy, or one without a row that was met.

        Example: `SilenceDisplay.from_silence({"published": silence(asked(world, Learner(), users=9, ...))})`.
        """
        if not rows or any(not (one.requests > 0).any() for one in rows.values()):
            msg = "rows must hold a policy, each with a row that a request met, got none; simulate more requests."
            raise ValueError(msg)
        return cls(rows, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.4)
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = []
        for place, (policy, part) in enumerate(self._shares().groupby("policy", sort=False)):
            look = ink.line_style(place) | {"drawstyle": "steps-post"} | kwargs
            share = part["share"].iloc[-1]
            label = f"{ink.literal_text(str(policy))}: {100 * share:.1f} % silent in the end"
            self.lines_ += self.ax_.plot(part["requests"], part["share"], label=label, **look)
        canvas.shares_up(self.ax_, "rows that ask no more (share, %)")
        self.ax_.set_xlabel("requests of the row up to its last question (count)", fontsize=9)
        self.ax_.set_xlim(left=0)
        canvas.legend_above(self.ax_)  # inside it would lie on a line that rises early
        return self

    def _shares(self) -> pd.DataFrame:
        import pandas as pd

        most = int(max(one.requests.max() for one in self.rows.values()))
        parts = []
        for policy, one in self.rows.items():
            met = one.requests > 0
            after = one.after[met]
            at = np.arange(most + 1)
            known = np.sort(after[~np.isnan(after)])
            share = np.searchsorted(known, at, side="right") / len(after)
            parts.append(pd.DataFrame({"policy": policy, "requests": at, "share": share, "rows": len(after)}))
        return pd.concat(parts, ignore_index=True)

    def to_frame(self) -> pd.DataFrame:
        """A row a policy and number of requests: `policy`, `requests`, `share`, `rows`."""
        return self._shares()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        names, medians, ends, counts = [], [], [], []
        for policy, one in self.rows.items():
            after = one.after[one.requests > 0]
            known = after[~np.isnan(after)]
            names.append(policy)
            medians.append(float(np.median(known)) if len(known) else float("nan"))
            ends.append(100.0 * len(known) / len(after))
            counts.append(len(after))
        columns: dict[str, Any] = {
            "policy": names,
            "median requests until silent": medians,
            "silent (%)": ends,
            "rows": counts,
        }
        return html(self, self.name or "time until silent; medians are of the rows that fell silent", columns, "none")
