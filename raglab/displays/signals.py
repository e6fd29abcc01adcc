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

MARKS_HEIGHT = 0.52  # of a row, that its marks take
WORTH_MEASURES = {
    "worth": "saved beside all others",
    "worth_doubles": f"with its doubles (rank correlation of {DOUBLE:g} or beyond)",
    "worth_alone": "saved alone, against no signal",
}
AUROC_MEASURES = {
    "auroc_right": "right against wrong if answered",
    "auroc_ambiguous": "ambiguous against all others",
}
SIGNAL_MARKS = (
    {"color": canvas.BLUE, "marker": "o"},
    {"color": canvas.GREEN, "marker": "^"},
    {"color": canvas.VERMILLION, "marker": "s", "markerfacecolor": "white"},
)
DIRECTION_WORDS = {"ask": " (asks)", "either": " (either way)", "surer": ""}


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
        table = self.audit.table
        return table[table["n"] > 0].reset_index(drop=True)

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
        signal_rows = self._rows
        auroc_axes = self.axes_[-1]
        basis_text = f"{self._interval_is}; {canvas.size_text(self.audit.cases, 'labelled cases')}"
        if self._costed:
            has_doubles = signal_rows["rank_correlation"].abs() >= DOUBLE
            # else it is the worth itself
            worth_rows = signal_rows.assign(
                worth_doubles=signal_rows["worth_doubles"].where(has_doubles)
            )
            canvas.draw_measures(
                self.ax_, worth_rows, WORTH_MEASURES, SIGNAL_MARKS, MARKS_HEIGHT, style
            )
            self.ax_.axvline(0.0, **canvas.TARGET_LINE)
            full_cost = self.audit.cost
            cost_without_signals = self.audit.cost_without_signals
            costs_text = f"{full_cost:.3f} with all signals, {cost_without_signals:.3f} with none"
            self.ax_.set_xlabel(f"cost saved a case, cross-validated ({costs_text}; {basis_text})")
        canvas.draw_measures(
            auroc_axes, signal_rows, AUROC_MEASURES, SIGNAL_MARKS[::2], MARKS_HEIGHT, style
        )
        auroc_axes.axvline(0.5, **canvas.TARGET_LINE)
        auroc_axes.set_xlim(-canvas.SHARE_MARGIN, 1.0 + canvas.SHARE_MARGIN)
        auroc_axes.set_xlabel(
            f"AUROC, in the declared direction (share of pairs, 0.5 is a coin; {basis_text})"
        )
        signal_directions = zip(signal_rows["signal"], signal_rows["direction"], strict=True)
        row_names = [
            canvas.literal_text(f"{signal}{DIRECTION_WORDS[direction]}")
            for signal, direction in signal_directions
        ]
        for axes in self.axes_:
            # a panel beside the first needs no names, one below it does
            needs_names = axes.get_position().x0 <= self.ax_.get_position().x0
            canvas.name_rows(axes, row_names if needs_names else [""] * len(signal_rows))
            canvas.legend_above(axes)
        self.ax_.set_ylabel("signal, the most worth first" if self._costed else "")
        return [mark_container for axes in self.axes_ for mark_container in axes.containers]

    def frame(self) -> pd.DataFrame:
        """Return the frame of the audit, a row a signal."""
        return self.audit.table.copy()

    def _summary(self) -> Summary:
        signal_rows = self._rows
        columns: dict[str, Any] = dict(signal_rows[["signal", "direction"]])
        measures = (WORTH_MEASURES if self._costed else {}) | AUROC_MEASURES
        for measure, column_head in measures.items():
            number_sign = "+" if measure in WORTH_MEASURES else ""
            columns[column_head] = estimate_cells(signal_rows, measure, f"{measure}_", number_sign)
        columns |= dict(signal_rows[["nearest", "rank_correlation"]])
        columns |= {"missing": percent_cells(signal_rows["missing"]), "ms": signal_rows["ms"]}
        facts = [("cases", f"{self.audit.cases:,}"), ("interval", self._interval_is)]
        title = self.name or "what each signal is worth"
        return Summary(facts, spaced_rows(columns, len(signal_rows)), self.audit.notes, title)
