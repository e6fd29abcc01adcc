"""Display of an upgrade (shore): decision changes between traces, a threshold's scores (S3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, check, joined_panels, spaced_rows
from raglab.displays.figures import confusion_matrix
from raglab.values import Status
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

LABELS = {status.name: canvas.LABEL_INKS[status] for status in Status} | {None: canvas.SILVER}


@dataclass(eq=False, repr=False)
class TraceComparisonDisplay(Display):
    """Decisions on the old trace against the new one, and one threshold's old and new scores.

    Attributes:
      comparison: of `compare_traces`.
      path: of the threshold whose scores are drawn.
    """

    SIZE = (11.0, 4.8)
    PANELS = (1, 2)

    comparison: Any
    path: str

    @classmethod
    def from_comparison(
        cls,
        comparison: Any,  # noqa: ANN401 - of `compare_traces`
        *,
        path: str | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of a comparison of two traces.

        Args:
          comparison: of `compare_traces`.
          path: of the threshold whose scores are drawn; where not given, the one that the most
            other questions meet.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: a path whose scores the comparison does not have.

        Example:
          `TraceComparisonDisplay.from_comparison(compare_traces(trace, new, policy=policy))`.
        """
        rows = comparison.signals
        paths = rows["path"].tolist() if len(rows) else []
        if path is None and paths:
            moves = (rows["passes_new"] - rows["passes_old"]).abs().fillna(0.0)
            path = paths[int(np.argmax(moves))]
        check(path in paths, f"path must be a threshold of the comparison, one of {paths}", path)
        return cls(comparison, str(path)).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        self._draw_flow(self.axes_[0])
        return self._draw_scores(self.axes_[1], style)

    def _draw_flow(self, on: Axes) -> None:
        """Cases by both decisions, and below their number how many become correct and incorrect."""
        rows = self.comparison.decisions
        n, gained, lost = (
            rows[name].to_numpy().reshape(3, 3)
            for name in ("n", "becomes_correct", "becomes_incorrect")
        )
        title = canvas.literal_text(self.name_ or "decisions", canvas.LONGEST_TITLE)
        confusion_matrix(n, on, title=title)
        for place, text in enumerate(on.texts):
            more, less = gained.flat[place], lost.flat[place]
            if more or less:
                text.set_text(f"{text.get_text()}\n+{more} −{less}")
        along = "new decision (cases, % of the row; + become correct, − incorrect)"
        on.set(xlabel=along, ylabel="old decision (cases)")

    def _draw_scores(self, on: Axes, style: Style) -> list[Any]:
        """Old against new scores of questions that both measure, by label, and both thresholds."""
        rows = self._scores()
        signal: Any = self.comparison.signals.set_index("path").loc[self.path]
        drawn = rows.dropna(subset=["old", "new"])
        points = []
        plain: Style = {"s": 12, "alpha": 0.55, "linewidths": 0, "rasterized": True}
        for label, ink in LABELS.items():
            of = drawn[drawn["label"].isna() if label is None else drawn["label"] == label]
            if len(of):
                look = plain | {"label": f"{label or 'not judged'} (n = {len(of)})", "color": ink}
                look["marker"] = canvas.MARKERS[list(LABELS).index(label)]
                points.append(on.scatter(of["old"], of["new"], **look | style))
        unit = f" ({signal['unit']})" if signal["unit"] else ""
        sides = (("old", on.axvline, on.set_xlabel, "-"), ("new", on.axhline, on.set_ylabel, "--"))
        for side, line, name_axis, dash in sides:
            at, passes = signal[f"threshold_{side}"], signal[f"passes_{side}"]
            look = {"color": "black", "linewidth": 1.3, "linestyle": dash}
            line(at, label=f"{side} threshold {at:.4g},\n{passes:.0%} meet it", **look)
            text = f"score on the {side} trace{unit}"
            name_axis(canvas.literal_text(text, canvas.LONGEST_TITLE))
        missing = f", {len(rows) - len(drawn)} without a score" if len(drawn) < len(rows) else ""
        title = f"{self.path}: {len(drawn):,} questions{missing}"
        on.set_title(canvas.literal_text(title, canvas.LONGEST_TITLE), loc="left")
        canvas.tidy(on)
        canvas.limit_ticks(on)
        canvas.legend_beside(on)
        return points

    def _scores(self) -> pd.DataFrame:
        return self.comparison.scores[self.comparison.scores["path"] == self.path]

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn.

        Pairs of decisions, then scores, with `panel` as the first column.
        """
        decisions = self.comparison.decisions.assign(panel="decisions")
        return joined_panels([decisions, self._scores().assign(panel="scores")])

    def _summary(self) -> Summary:
        rows = self.comparison.decisions
        rows = rows[rows["n"] > 0]
        facts = [("questions", f"{rows['n'].sum():,}"), ("scores", self.path)]
        names = ["before", "after", "n", "becomes_correct", "becomes_incorrect"]
        return Summary(facts, spaced_rows(dict(rows[names])), title=self.name or "upgrade")
