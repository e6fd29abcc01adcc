"""Displays of clarification: what policies ask and get wrong over time, when rows fall silent, how confidence moves.

In scikit-learn's manner, as in `displays`: `from_…` takes values that were computed elsewhere and draws them, `plot`
draws them again on any axes, `to_frame` gives every number that is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab._asked_table import Silence
from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._clarify_paths import ConfidenceDisplay, SplitDisplay
from raglab.lab._shown import html, text
from raglab.lab._wording import estimate

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

__all__ = ["ClarifyDisplay", "ConfidenceDisplay", "SilenceDisplay", "SplitDisplay"]
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
        self.axes_ = list(canvas.figure(10.5, 7.0).subplots(2, 2).ravel()) if ax is None else list(ax)
        if len(self.axes_) != len(PANELS):
            msg = f"ax must be four axes, got {len(self.axes_)}; make them with subplots(2, 2).ravel()."
            raise ValueError(msg)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        for place, (policy, rows) in enumerate(self.table.groupby("policy", sort=False)):
            look = ink.line_style(place) | kwargs
            for on, measure in zip(self.axes_, PANELS, strict=True):
                (line,) = on.plot(rows["last"], rows[measure], label=ink.plain(str(policy)), **look)
                on.fill_between(
                    rows["last"], rows[f"{measure}_low"], rows[f"{measure}_high"], color=look["color"], **ink.BAND
                )
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
        return text(self)

    def _repr_html_(self) -> str:
        last = self.table.drop_duplicates("policy", keep="last")
        columns: dict[str, Any] = {"policy": last["policy"], "requests": last["last"], "users": last["users"]}
        heads = {"questions": "questions per 100", "errors": "silent errors per 100", "regret": "regret a user"}
        for measure, head in heads.items():
            columns[head] = [
                estimate(*row) for row in last[[measure, f"{measure}_low", f"{measure}_high"]].to_numpy(np.float64)
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
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        for place, (policy, part) in enumerate(self._shares().groupby("policy", sort=False)):
            look = ink.line_style(place) | {"drawstyle": "steps-post"} | kwargs
            share = part["share"].iloc[-1]
            label = f"{ink.plain(str(policy))}: {100 * share:.1f} % silent in the end"
            self.lines_ += self.ax_.plot(part["requests"], part["share"], label=label, **look)
        canvas.shares_up(self.ax_, "rows that ask no more (share, %)")
        self.ax_.set_xlabel("requests of the row up to its last question (count)", fontsize=9)
        self.ax_.set_title(self.name or "time until silent", fontsize=9, loc="left", y=1.0, pad=4)
        self.ax_.legend(fontsize=8, frameon=False, loc="upper left")
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
        return text(self)

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
