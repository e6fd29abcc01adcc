"""Displays of one row's confidence under right answers, and of when splits are found; see `clarify_plots`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

BINS = 24


@dataclass(eq=False, repr=False)
class ConfidenceDisplay:
    """Confidence of a row that is always right: above, silence alone after one yes; below, with the gate's questions.

    paths: of `confidence_paths`. After `plot`: axes_ (both), ax_ (the first), figure_, lines_.
    """

    paths: pd.DataFrame
    ask_below: float = 0.60
    apply_above: float = 0.85
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
        ask_below: float = 0.60,
        apply_above: float = 0.85,
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
        return cls(paths, ask_below, apply_above, name).plot(**kwargs)

    def plot(self, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on a new figure."""
        self.axes_ = list(canvas.figure(8.0, 6.4).subplots(2, 1, sharex=True))
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        for on, gated in zip(self.axes_, (False, True), strict=True):
            part = self.paths[self.paths["gated"] == gated]
            for place, (learner, rows) in enumerate(part.groupby("learner", sort=False)):
                look = ink.line_style(place) | kwargs
                label = f"{ink.plain(str(learner))}: ends at {rows['confidence'].iloc[-1]:.3f}"
                label += f", {int(rows['question'].sum())} questions" if gated else ""
                self.lines_ += on.plot(rows["request"], rows["confidence"], label=label, **look)
                at = rows[rows["question"]]
                mark = {"marker": ink.MARKERS[place], "color": look["color"], "linestyle": "none", "markersize": 4}
                on.plot(at["request"], at["confidence"], **mark)
            marks = (
                (self.apply_above, "applies above", "bottom", 0.015),
                (self.ask_below, "always asks below", "top", -0.03),
            )
            for value, what, side, lift in marks:
                on.axhline(value, **ink.TARGET)
                told, clear = (
                    f"{what} {value:g}",
                    {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
                )
                on.annotate(
                    told, (0.995, value + lift), xycoords=("axes fraction", "data"), va=side, bbox=clear, **NOTE
                )
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

    def to_frame(self) -> pd.DataFrame:
        """The paths."""
        return self.paths.copy()

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        parts = self.paths.groupby(["learner", "gated"], sort=False)
        rows = [(learner, gated, part) for (learner, gated), part in parts]
        columns: dict[str, Any] = {
            "learner": [str(learner) for learner, _, _ in rows],
            "asks": ["when due" if gated else "never" for _, gated, _ in rows],
            "last above apply": [_last(part, part["confidence"] > self.apply_above) for _, _, part in rows],
            "first below ask": [_first(part, part["confidence"] < self.ask_below) for _, _, part in rows],
            "ends at": [float(part["confidence"].iloc[-1]) for _, _, part in rows],
            "questions": [int(part["question"].sum()) for _, _, part in rows],
        }
        return html(self, self.name or "confidence of a row that is always right", columns, "none")


NOTE: dict[str, Any] = {"fontsize": 8, "ha": "right", "color": ink.GREY}


def _first(part: pd.DataFrame, met: Any) -> float:  # noqa: ANN401 - a boolean column
    rows = part.loc[met, "request"]
    return float(rows.iloc[0]) if len(rows) else float("nan")


def _last(part: pd.DataFrame, met: Any) -> float:  # noqa: ANN401 - a boolean column
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
        self.figure_ = canvas.whole(self.ax_)
        every = np.concatenate([one[~np.isnan(one)] for one in self.found.values()])
        edges, most = np.linspace(0.0, float(every.max(initial=1.0)), BINS + 1), 0.0
        for place, (name, one) in enumerate(self.found.items()):
            known = one[~np.isnan(one)]
            heights = np.histogram(known, edges)[0] / len(one)
            median = f", median {np.median(known):.0f} requests" if len(known) else ""
            most = max(most, float(heights.max()))
            label = f"{ink.plain(name)}: {len(known)} of {len(one)}{median}"
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
        return text(self)

    def _repr_html_(self) -> str:
        known = {name: one[~np.isnan(one)] for name, one in self.found.items()}
        columns: dict[str, Any] = {"name": list(known), "rows": [len(one) for one in self.found.values()]}
        columns["split"] = [len(one) for one in known.values()]
        for share in (0.1, 0.5, 0.9):
            columns[f"{100 * share:g} % after"] = [
                float(np.quantile(one, share)) if len(one) else float("nan") for one in known.values()
            ]
        return html(self, self.name or "requests until the split is found", columns, "none")
