"""Display of an upgrade (shore): decision changes between traces, a threshold's scores (S3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import Display, Shown
from raglab.displays.figures import confusion_matrix
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

LABELS = {status.name: canvas.LABEL_INKS[status] for status in Status} | {None: canvas.SILVER}


class ComparedTraces(Protocol):
    """What `compare_traces` returns, as far as it is drawn."""

    @property
    def decisions(self) -> pd.DataFrame:
        """Rows of `before`, `after`, `n`, `becomes_correct`, `becomes_incorrect`."""

    @property
    def signals(self) -> pd.DataFrame:
        """Rows of thresholds: `path`, `unit`, and of both traces `threshold_…` and `passes_…`."""

    @property
    def scores(self) -> pd.DataFrame:
        """Rows of `path`, `case_id`, `label`, `old`, `new`."""


@dataclass(eq=False, repr=False)
class TraceComparisonDisplay(Display):
    """Decisions on the old trace against the new one, and one threshold's old and new scores.

    Attributes:
      comparison: of `compare_traces`.
      path: of the threshold whose scores are drawn.
    """

    SIZE = (11.0, 4.8)
    PANELS = (1, 2)

    comparison: ComparedTraces
    path: str

    @classmethod
    def from_comparison(
        cls,
        comparison: ComparedTraces,
        *,
        path: str | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the points
    ) -> Self:
        """Display of a comparison of two traces.

        Args:
          comparison: of `compare_traces`.
          path: of the threshold whose scores are drawn; where not given, the one that the most
            other questions meet.
          name: drawn in the title.
          ax: two axes, or one of a grid, whose place they take.
          **style: of the points, in matplotlib's words.

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
        if path not in paths:
            there = ", ".join(paths) or "none, since no threshold of the policy acts on both traces"
            msg = (
                f"path must be a threshold of the comparison's signals, got {path!r}; they are "
                f"{there}."
            )
            raise ValueError(msg)
        return cls(comparison, str(path), name=name).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        self._draw_flow(self.axes_[0])
        return self._draw_scores(self.axes_[1], style)

    def _draw_flow(self, on: Axes) -> None:
        """Cases by both decisions, and below their number how many become correct and incorrect."""
        rows = self.comparison.decisions
        counts = {
            name: rows[name].to_numpy().reshape(3, 3)
            for name in ("n", "becomes_correct", "becomes_incorrect")
        }
        confusion_matrix(
            counts["n"],
            on,
            title=canvas.literal_text(self.name_ or "decisions", canvas.LONGEST_TITLE),
        )
        share = counts["n"] / np.maximum(counts["n"].sum(axis=1, keepdims=True), 1)
        for (row, column), gained in np.ndenumerate(counts["becomes_correct"]):
            if gained or counts["becomes_incorrect"][row, column]:
                text = f"+{gained} −{counts['becomes_incorrect'][row, column]} correct"
                colour = "white" if share[row, column] > 0.55 else "black"
                on.text(
                    column, row + 0.32, text, ha="center", va="center", fontsize=8, color=colour
                )
        on.set_xlabel("decision on the new trace (cases, and % of the row)", fontsize=9)
        on.set_ylabel("decision on the old trace (cases)", fontsize=9)

    def _draw_scores(self, on: Axes, style: Style) -> list[Any]:
        """Old against new scores of questions that both measure, by label, and both thresholds."""
        rows = self._scores()
        signal: Any = self.comparison.signals.set_index("path").loc[self.path]
        drawn = rows.dropna(subset=["old", "new"])
        points = []
        for label, ink in LABELS.items():
            of = drawn[drawn["label"].isna() if label is None else drawn["label"] == label]
            if len(of):
                look: Style = {
                    "s": 12,
                    "alpha": 0.55,
                    "color": ink,
                    "linewidths": 0,
                    "rasterized": True,
                }
                points.append(
                    on.scatter(
                        of["old"],
                        of["new"],
                        label=f"{label or 'not judged'} (n = {len(of)})",
                        **look | style,
                    )
                )
        unit = f" ({signal['unit']})" if signal["unit"] else ""
        sides = (("old", on.axvline, on.set_xlabel, "-"), ("new", on.axhline, on.set_ylabel, "--"))
        for side, line, name_axis, dash in sides:
            text = (
                f"{side} threshold {signal[f'threshold_{side}']:.4g},"
                f"\n{signal[f'passes_{side}']:.0%} meet it"
            )
            line(
                signal[f"threshold_{side}"],
                label=text,
                color="black",
                linewidth=1.3,
                linestyle=dash,
            )
            name_axis(
                canvas.literal_text(f"score on the {side} trace{unit}", canvas.LONGEST_TITLE),
                fontsize=9,
            )
        missing = f", {len(rows) - len(drawn)} without a score" if len(drawn) < len(rows) else ""
        title = f"{self.path}: {len(drawn):,} questions{missing}"
        on.set_title(canvas.literal_text(title, canvas.LONGEST_TITLE), fontsize=10)
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
        import pandas as pd

        frames = [
            self.comparison.decisions.assign(panel="decisions"),
            self._scores().assign(panel="scores"),
        ]
        joined = pd.concat(frames, ignore_index=True)
        return joined[["panel", *(name for name in joined if name != "panel")]]

    def _shown(self) -> Shown:
        rows = self.comparison.decisions
        rows = rows[rows["n"] > 0]
        columns = {
            "old decision": rows["before"].tolist(),
            "new decision": rows["after"].tolist(),
            "cases": rows["n"].tolist(),
            "become correct": rows["becomes_correct"].tolist(),
            "become incorrect": rows["becomes_incorrect"].tolist(),
        }
        n = int(rows["n"].sum())
        return Shown(
            f"{self.name or 'upgrade'}: decisions on {n:,} questions, and scores of {self.path}",
            columns,
        )
