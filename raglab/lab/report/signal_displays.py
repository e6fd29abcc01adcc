"""Signal displays (shore): what each signal is worth, as a forest, and beside it what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.lab.report import canvas
from raglab.lab.report import canvas as ink
from raglab.lab.report.blocks import ReportCell, estimate_cell, number_text, percent
from raglab.lab.report.canvas import html, text_summary
from raglab.lab.signal_audit import DOUBLE, EVERYWHERE, SignalAudit

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.report.canvas import Axes, Figure

HEIGHT = 0.52  # of a row, that its marks take
WORTH = {
    "worth": "saved beside all others",
    "worth_doubles": f"with its doubles (rank correlation of {DOUBLE:g} or beyond)",
    "worth_alone": "saved alone, against no signal",
}
AREAS = {"auroc_right": "right against wrong if answered", "auroc_ambiguous": "ambiguous against all others"}
LOOKS = (
    {"color": ink.BLUE, "marker": "o"},
    {"color": ink.GREEN, "marker": "^"},
    {"color": ink.VERMILLION, "marker": "s", "markerfacecolor": "white"},
)
READ = {"ask": " (asks)", "either": " (either way)", "surer": ""}


@dataclass(eq=False, repr=False)
class SignalAuditDisplay:
    """Two panels, a row a signal: the cost that it saves, and its AUROC of both kinds.

    Saved beside all others, where a signal has doubles together with these, and alone.

    audit: of `signal_audit.audit_signals`. Without cross-validated costs the second panel stands alone. Signals that no
    case has are named below the table. After `plot`: axes_ (one or two), ax_ (the first), figure_.
    """

    audit: SignalAudit
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    axes_: Sequence[Axes] = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_audit(
        cls,
        audit: SignalAudit,
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the marks
    ) -> Self:
        """Display of an audit.

        Args:
          ax: as many axes as there are panels, or one whose place they take.

        Raises:
          ValueError: another number of axes, or an audit in which no case has any signal.

        Example: `SignalAuditDisplay.from_audit(audit_signals(trace, policy))`.
        """
        if (audit.frame["note"] == EVERYWHERE).all():
            msg = "an audit must hold a signal that some case has, got none; check that the trace holds hits."
            raise ValueError(msg)
        return cls(audit, name).plot(ax, **kwargs)

    @property
    def _rows(self) -> pd.DataFrame:
        """Signals that some case has, in the order of the audit."""
        frame = self.audit.frame
        return frame[frame["note"] != EVERYWHERE].reset_index(drop=True)

    @property
    def _costed(self) -> bool:
        return not np.isnan(self.audit.cost)

    def plot(self, ax: Axes | Sequence[Axes] | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the marks
        """Draw on axes, or on those of a new figure."""
        rows = self._rows
        self.axes_ = _panels(ax, 1 + self._costed, 2.1 + 0.34 * len(rows))
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        if self._costed:
            twins = rows["rank_correlation"].abs() >= DOUBLE
            shown = rows.assign(worth_doubles=rows["worth_doubles"].where(twins))  # else it is the worth itself
            _marks(self.axes_[0], shown, WORTH, LOOKS, kwargs)
            self.axes_[0].axvline(0.0, **ink.TARGET)
            told = f"{self.audit.cost:.3f} with all signals, {self.audit.cost_without_signals:.3f} with none"
            label = f"cost saved a case, cross-validated\n({told}; {self._interval_is})"
            self.axes_[0].set_xlabel(label, fontsize=9)
        _marks(self.axes_[-1], rows, AREAS, LOOKS[::2], kwargs)
        self.axes_[-1].axvline(0.5, **ink.TARGET)
        self.axes_[-1].set_xlim(-ink.SHARE_MARGIN, 1.0 + ink.SHARE_MARGIN)
        label = f"AUROC, in the declared direction\n(share of pairs, 0.5 is a coin; {self._interval_is})"
        self.axes_[-1].set_xlabel(label, fontsize=9)
        pairs = zip(rows["signal"], rows["direction"], strict=True)
        names = [ink.literal_text(f"{signal}{READ[direction]}") for signal, direction in pairs]
        for place, on in enumerate(self.axes_):
            on.set_yticks(-np.arange(len(rows)), names if place == 0 else [""] * len(rows))
            on.set_ylim(-len(rows) + 0.4, 0.6)
            canvas.tidy(on)
            on.set_ylabel("signal, the most worth first" if place == 0 and self._costed else "")
            canvas.legend_above(on, 1)
        return self

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.audit.level:g} % interval"

    def to_frame(self) -> pd.DataFrame:
        """Return the frame of the audit, a row a signal."""
        return self.audit.frame.copy()

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        rows = self._rows
        columns: dict[str, Any] = {"signal": list(rows["signal"]), "more of it": list(rows["direction"])}
        saved = {"worth": "saved beside all others", "worth_doubles": "with its doubles", "worth_alone": "saved alone"}
        for name, head in {**(saved if self._costed else {}), **AREAS}.items():
            sign = "+" if name in saved else ""
            values = rows[[name, f"{name}_low", f"{name}_high"]].to_numpy(dtype=np.float64)
            lead = "" if name in saved else "AUROC, "
            columns[f"{lead}{head}"] = [estimate_cell(value, low, high, sign) for value, low, high in values]
        twins = zip(rows["nearest"], rows["rank_correlation"], strict=True)
        columns["repeats most"] = [ReportCell(f"{name} ({rho:+.2f})" if name else "–") for name, rho in twins]
        columns["missing"] = [ReportCell(percent(share), mark="number") for share in rows["missing"]]
        columns["ms"] = [ReportCell(number_text(ms), mark="number") for ms in rows["ms"]]
        told = "\n".join([self.name or "what each signal is worth", *self.audit.notes])
        return html(self, told, columns, self._interval_is, most=len(rows))


def _panels(ax: Axes | Sequence[Axes] | None, n: int, height: float) -> Sequence[Axes]:
    """So many axes: those given, those of a new figure, or as many in the place of one."""
    if ax is None:
        made = canvas.empty_figure(6.4 + 3.6 * (n - 1), height).subplots(1, n)
        return list(np.atleast_1d(np.asarray(made, dtype=object)))
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel().tolist()
    if len(given) == n:
        return given
    place = given[0].get_subplotspec() if len(given) == 1 else None
    if place is None:
        msg = f"ax must be {n} axes, or one of a grid, got {len(given)}; make them with subplots(1, {n})."
        raise ValueError(msg)
    given[0].set_axis_off()
    return list(place.subgridspec(1, n).subplots())


def _marks(
    on: Axes, rows: pd.DataFrame, measures: dict[str, str], looks: Sequence[ink.Style], style: dict[str, Any]
) -> None:
    """Measures of each row as marks with intervals, the first row on top; a missing one has no mark."""
    for place, (measure, label) in enumerate(measures.items()):
        height = -np.arange(len(rows)) - HEIGHT * (place / (len(measures) - 1) - 0.5)
        value, low, high = (rows[f"{measure}{end}"].to_numpy(dtype=np.float64) for end in ("", "_low", "_high"))
        look: dict[str, Any] = {"linestyle": "none", "markersize": 5, "elinewidth": 1.2, "capsize": 2.5, "label": label}
        on.errorbar(value, height, xerr=canvas.interval_arms(value, low, high), **look | looks[place] | style)
