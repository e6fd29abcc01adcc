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

LABEL_NAME_INKS = {status.name: canvas.LABEL_INKS[status] for status in Status} | {
    None: canvas.SILVER
}


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
        threshold_paths = rows["path"].tolist() if len(rows) else []
        if path is None and threshold_paths:
            pass_rate_changes = (rows["passes_new"] - rows["passes_old"]).abs().fillna(0.0)
            path = threshold_paths[int(np.argmax(pass_rate_changes))]
        check(
            path in threshold_paths,
            f"path must be a threshold of the comparison, one of {threshold_paths}",
            path,
        )
        return cls(comparison, str(path)).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        self._draw_flow(self.axes_[0])
        return self._draw_scores(self.axes_[1], style)

    def _draw_flow(self, axes: Axes) -> None:
        """Cases by both decisions, and below their number how many become correct and incorrect."""
        decision_rows = self.comparison.decisions
        decision_counts, correct_counts, incorrect_counts = (
            decision_rows[column_name].to_numpy().reshape(3, 3)
            for column_name in ("n", "becomes_correct", "becomes_incorrect")
        )
        panel_title = canvas.literal_text(self.name_ or "decisions", canvas.LONGEST_TITLE)
        confusion_matrix(decision_counts, axes, title=panel_title)
        for cell_index, text in enumerate(axes.texts):
            n_correct = correct_counts.flat[cell_index]
            n_incorrect = incorrect_counts.flat[cell_index]
            if n_correct or n_incorrect:
                text.set_text(f"{text.get_text()}\n+{n_correct} −{n_incorrect}")
        axes.set(
            xlabel="new decision (cases, % of the row; + become correct, − incorrect)",
            ylabel="old decision (cases)",
        )

    def _draw_scores(self, axes: Axes, style: Style) -> list[Any]:
        """Old against new scores of questions that both measure, by label, and both thresholds."""
        score_rows = self._scores()
        signal_row: Any = self.comparison.signals.set_index("path").loc[self.path]
        scored_rows = score_rows.dropna(subset=["old", "new"])
        # one colour and mark a label, so that shifts of one label stand out
        label_points = []
        point_style: Style = {"s": 12, "alpha": 0.55, "linewidths": 0, "rasterized": True}
        for label_name, label_ink in LABEL_NAME_INKS.items():
            label_rows = scored_rows[
                scored_rows["label"].isna()
                if label_name is None
                else scored_rows["label"] == label_name
            ]
            if len(label_rows):
                mark_style = point_style | {
                    "label": f"{label_name or 'not judged'} (n = {len(label_rows)})",
                    "color": label_ink,
                }
                mark_style["marker"] = canvas.MARKERS[list(LABEL_NAME_INKS).index(label_name)]
                label_points.append(
                    axes.scatter(label_rows["old"], label_rows["new"], **mark_style | style)
                )
        unit_text = f" ({signal_row['unit']})" if signal_row["unit"] else ""
        trace_sides = (
            ("old", axes.axvline, axes.set_xlabel, "-"),
            ("new", axes.axhline, axes.set_ylabel, "--"),
        )
        # each trace has its own threshold: upright for the old scores, level for the new ones
        for trace_side, draw_threshold, name_axis, line_dash in trace_sides:
            threshold = signal_row[f"threshold_{trace_side}"]
            pass_rate = signal_row[f"passes_{trace_side}"]
            mark_style = {"color": "black", "linewidth": 1.3, "linestyle": line_dash}
            draw_threshold(
                threshold,
                label=f"{trace_side} threshold {threshold:.4g},\n{pass_rate:.0%} meet it",
                **mark_style,
            )
            name_axis(
                canvas.literal_text(
                    f"score on the {trace_side} trace{unit_text}", canvas.LONGEST_TITLE
                )
            )
        # a question without a score on one side has no point, so their number is in the title
        missing_text = (
            f", {len(score_rows) - len(scored_rows)} without a score"
            if len(scored_rows) < len(score_rows)
            else ""
        )
        axes.set_title(
            canvas.literal_text(
                f"{self.path}: {len(scored_rows):,} questions{missing_text}", canvas.LONGEST_TITLE
            ),
            loc="left",
        )
        canvas.tidy(axes)
        canvas.limit_ticks(axes)
        canvas.legend_beside(axes)
        return label_points

    def _scores(self) -> pd.DataFrame:
        return self.comparison.scores[self.comparison.scores["path"] == self.path]

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn.

        Pairs of decisions, then scores, with `panel` as the first column.
        """
        decisions = self.comparison.decisions.assign(panel="decisions")
        return joined_panels([decisions, self._scores().assign(panel="scores")])

    def _summary(self) -> Summary:
        decision_rows = self.comparison.decisions
        decision_rows = decision_rows[decision_rows["n"] > 0]
        facts = [("questions", f"{decision_rows['n'].sum():,}"), ("scores", self.path)]
        names = ["before", "after", "n", "becomes_correct", "becomes_incorrect"]
        return Summary(
            facts,
            spaced_rows(dict(decision_rows[names])),
            title=self.name or "upgrade",
        )
