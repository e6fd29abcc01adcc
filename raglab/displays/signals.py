"""Display of signals (shore): what each is worth, as a forest, and beside it what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, check, spaced_rows
from raglab.displays.tables import estimate_cells, percent_cells
from raglab.signals import DOUBLE
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

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


@dataclass(eq=False, repr=False)
class SignalAuditDisplay(Display):
    """Two panels, a row a signal: the cost that it saves, and its AUROC of both kinds.

    The cost is saved given all other signals, where a signal has doubles together with these, and
    alone.

    Attributes:
      audit: of `raglab.audit_signals`. Without cross-validated costs the second panel is the only
        one. Signals that no case has are named below the table.
    """

    audit: Any

    @classmethod
    def from_audit(
        cls,
        audit: Any,  # noqa: ANN401 - of `raglab.audit_signals`
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of an audit.

        Args:
          audit: of `raglab.audit_signals`.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: another number of axes, or an audit in which no case has any signal.

        Example: `SignalAuditDisplay.from_audit(audit_signals(trace, policy))`.
        """
        check((audit.table["n"] > 0).any(), "an audit must hold a signal of some case", "none")
        return cls(audit).plot(**drawing)

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
    def _grid(self) -> tuple[int, int]:
        return 1, 1 + self._costed

    @property
    def _size(self) -> tuple[float, float]:
        return 2.8 + 3.6 * self._grid[1], 2.1 + 0.34 * len(self._rows)

    def _draw(self, style: Style) -> list[Any]:
        rows, areas = self._rows, self.axes_[-1]
        basis = f"{self._interval_is}; {canvas.size_text(self.audit.cases, 'labelled cases')}"
        if self._costed:
            doubled = rows["rank_correlation"].abs() >= DOUBLE
            # else it is the worth itself
            shown = rows.assign(worth_doubles=rows["worth_doubles"].where(doubled))
            canvas.draw_measures(self.ax_, shown, WORTH, LOOKS, HEIGHT, style)
            self.ax_.axvline(0.0, **canvas.TARGET)
            cost, without = self.audit.cost, self.audit.cost_without_signals
            costs = f"{cost:.3f} with all signals, {without:.3f} with none"
            self.ax_.set_xlabel(f"cost saved a case, cross-validated ({costs}; {basis})")
        canvas.draw_measures(areas, rows, AREAS, LOOKS[::2], HEIGHT, style)
        areas.axvline(0.5, **canvas.TARGET)
        areas.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        areas.set_xlabel(
            f"AUROC, in the declared direction (share of pairs, 0.5 is a coin; {basis})"
        )
        signals = zip(rows["signal"], rows["direction"], strict=True)
        names = [canvas.literal_text(f"{signal}{READ[direction]}") for signal, direction in signals]
        for on in self.axes_:
            # a panel beside the first needs no names, one below it does
            is_named = on.get_position().x0 <= self.ax_.get_position().x0
            canvas.name_rows(on, names if is_named else [""] * len(rows))
            canvas.legend_above(on)
        self.ax_.set_ylabel("signal, the most worth first" if self._costed else "")
        return [marks for on in self.axes_ for marks in on.containers]

    def frame(self) -> pd.DataFrame:
        """Return the frame of the audit, a row a signal."""
        return self.audit.table.copy()

    def _summary(self) -> Summary:
        rows = self._rows
        columns: dict[str, Any] = dict(rows[["signal", "direction"]])
        measures = (WORTH if self._costed else {}) | AREAS
        for name, head in measures.items():
            sign = "+" if name in WORTH else ""
            columns[head] = estimate_cells(rows, name, f"{name}_", sign)
        columns |= dict(rows[["nearest", "rank_correlation"]])
        columns |= {"missing": percent_cells(rows["missing"]), "ms": rows["ms"]}
        facts = [("cases", f"{self.audit.cases:,}"), ("interval", self._interval_is)]
        title = self.name or "what each signal is worth"
        return Summary(facts, spaced_rows(columns, len(rows)), self.audit.notes, title)
