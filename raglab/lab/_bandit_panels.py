"""Display of a reward audit: does each signal point where the labels point, and what does following it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text
from raglab.lab._wording import Cell, estimate
from raglab.lab.reward_audit import LESS_IS_BETTER, RewardAudit

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

APART = 0.17  # of a row, between the marks of two measures
TRIED = ink.BLUE, ink.VERMILLION
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "color": ink.GREY}


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
        self.axes_ = _three(ax)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole(self.ax_)
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
            f"regret ({self.audit.settings['unit']})",
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
        return text(self)

    def _repr_html_(self) -> str:
        rows = self.audit.policies
        share = [f"{row.right:.4g} of {row.n}" for row in rows.itertuples()]
        columns: dict[str, Any] = {"policy": list(rows["policy"]), "right": [Cell(one, mark="number") for one in share]}
        for measure in ("regret", "behind"):
            values = rows[[measure, f"{measure}_low", f"{measure}_high"]].to_numpy(dtype=np.float64)
            columns[measure] = [estimate(*row) for row in values]
        return html(self, "\n".join([self.name or "reward audit", *self.audit.notes]), columns, self._interval_is)


def _three(ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
    """Three axes: those given, those of a new figure, or three in the place of one."""
    if ax is None:
        return list(canvas.figure(11.5, 4.4).subplots(1, 3))
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
        reach = np.stack([value - low, high - value])
        look: dict[str, Any] = {
            "linestyle": "none",
            "marker": ink.MARKERS[place],
            "color": TRIED[place],
            "markersize": 5,
            "elinewidth": 1.2,
            "capsize": 2.5,
            "label": measure.capitalize(),
        } | style
        on.errorbar(value, height, xerr=np.abs(reach), **look)
    for at in np.flatnonzero(table[list(measures)].isna().all(axis=1)):
        on.annotate("the same everywhere", (0.5, -at), xycoords=on.get_yaxis_transform(), fontsize=8, **CENTRED)
    several = len(measures) > 1
    on.set_yticks(-np.arange(len(table)), [ink.plain(name) for name in names])
    on.set_ylim(-len(table) + 0.5 - 1.1 * several, 0.5)
    canvas.tidy(on)
    if several:
        on.legend(fontsize=8, frameon=False, loc="lower center", ncols=len(measures))
