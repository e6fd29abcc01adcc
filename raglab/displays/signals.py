"""Display of signals (shore): what each is worth, as a forest, and beside it what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, Shown
from raglab.displays.tables import DASH, estimate_cells, percent_cells
from raglab.signals import DOUBLE
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

HEIGHT = 0.52  # of a row, that its marks take
WORTH = {
    "worth": "saved beside all others",
    "worth_doubles": f"with its doubles (rank correlation of {DOUBLE:g} or beyond)",
    "worth_alone": "saved alone, against no signal",
}
AREAS = {
    "auroc_right": "right against wrong if answered",
    "auroc_ambiguous": "ambiguous against all others",
}
LOOKS = (
    {"color": canvas.BLUE, "marker": "o"},
    {"color": canvas.GREEN, "marker": "^"},
    {"color": canvas.VERMILLION, "marker": "s", "markerfacecolor": "white"},
)
READ = {"ask": " (asks)", "either": " (either way)", "surer": ""}


class AuditedSignals(Protocol):
    """What `audit_signals` returns, as far as it is drawn."""

    @property
    def table(self) -> pd.DataFrame:
        """Signals, the most worth first."""

    @property
    def cost(self) -> float:
        """Of a case, with all signals; NaN where it was not measured."""

    @property
    def cost_without_signals(self) -> float:
        """Of a case, by the better of always answering and always refusing."""

    @property
    def cases(self) -> int:
        """Number of labelled cases."""

    @property
    def level(self) -> float:
        """Of the intervals."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""


@dataclass(eq=False, repr=False)
class SignalAuditDisplay(Display):
    """Two panels, a row a signal: the cost that it saves, and its AUROC of both kinds.

    The cost is saved given all other signals, where a signal has doubles together with these, and
    alone.

    Attributes:
      audit: of `raglab.audit_signals`. Without cross-validated costs the second panel is the only
        one. Signals that no case has are named below the table.
    """

    audit: AuditedSignals

    @classmethod
    def from_audit(
        cls,
        audit: AuditedSignals,
        *,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the marks
    ) -> Self:
        """Display of an audit.

        Args:
          audit: of `raglab.audit_signals`.
          name: drawn in the legend or title.
          ax: as many axes as there are panels, or one whose place they take.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: another number of axes, or an audit in which no case has any signal.

        Example: `SignalAuditDisplay.from_audit(audit_signals(trace, policy))`.
        """
        if not (audit.table["n"] > 0).any():
            msg = (
                "an audit must hold a signal that some case has, got none; check that the trace "
                "holds hits."
            )
            raise ValueError(msg)
        return cls(audit, name=name).plot(ax, **style)

    @property
    def _rows(self) -> pd.DataFrame:
        """Signals that some case has, in the order of the audit."""
        frame = self.audit.table
        return frame[frame["n"] > 0].reset_index(drop=True)

    @property
    def _costed(self) -> bool:
        return not np.isnan(self.audit.cost)

    @property
    def _interval_is(self) -> str:
        return f"{100 * self.audit.level:g} % interval"

    @property
    def _basis(self) -> str:
        return f"{self._interval_is}; {canvas.size_text(self.audit.cases, 'labelled cases')}"

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        n = 1 + self._costed
        return canvas.panels(ax, 1, n, (6.4 + 3.6 * (n - 1), 2.1 + 0.34 * len(self._rows)))

    def _draw(self, style: Style) -> list[Any]:
        rows, areas = self._rows, self.axes_[-1]
        if self._costed:
            doubled = rows["rank_correlation"].abs() >= DOUBLE
            # else it is the worth itself
            shown = rows.assign(worth_doubles=rows["worth_doubles"].where(doubled))
            canvas.draw_measures(self.ax_, shown, WORTH, LOOKS, HEIGHT, style)
            self.ax_.axvline(0.0, **canvas.TARGET)
            costs = (
                f"{self.audit.cost:.3f} with all signals, {self.audit.cost_without_signals:.3f} "
                "with none"
            )
            label = f"cost saved a case, cross-validated\n({costs};\n{self._basis})"
            self.ax_.set_xlabel(label, fontsize=9)
        canvas.draw_measures(areas, rows, AREAS, LOOKS[::2], HEIGHT, style)
        areas.axvline(0.5, **canvas.TARGET)
        areas.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        label = f"AUROC, in the declared direction\n(share of pairs, 0.5 is a coin;\n{self._basis})"
        areas.set_xlabel(label, fontsize=9)
        signals = zip(rows["signal"], rows["direction"], strict=True)
        names = [canvas.literal_text(f"{signal}{READ[direction]}") for signal, direction in signals]
        for on in self.axes_:
            canvas.name_rows(on, names if on is self.ax_ else [""] * len(rows))
            canvas.legend_above(on)
        self.ax_.set_ylabel("signal, the most worth first" if self._costed else "")
        return [marks for on in self.axes_ for marks in on.containers]

    def frame(self) -> pd.DataFrame:
        """Return the frame of the audit, a row a signal."""
        return self.audit.table.copy()

    def _shown(self) -> Shown:
        rows = self._rows
        columns: dict[str, Any] = {"signal": rows["signal"], "more of it": rows["direction"]}
        if self._costed:
            heads = ("saved beside all others", "with its doubles", "saved alone")
            columns |= {
                head: estimate_cells(rows, name, f"{name}_", "+")
                for name, head in zip(WORTH, heads, strict=True)
            }
        columns |= {
            f"AUROC, {head}": estimate_cells(rows, name, f"{name}_") for name, head in AREAS.items()
        }
        nearest = zip(rows["nearest"], rows["rank_correlation"], strict=True)
        columns["repeats most"] = [
            Cell(f"{name} ({rho:+.2f})" if name else DASH) for name, rho in nearest
        ]
        columns |= {"missing": percent_cells(rows["missing"]), "ms": rows["ms"]}
        caption = "\n".join([self.name or "what each signal is worth", *self.audit.notes])
        return Shown(caption, columns, self._interval_is, most=len(rows))
