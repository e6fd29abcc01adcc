"""An upgrade drawn: the flow of decisions, and the scores of one threshold on both traces."""

from __future__ import annotations

import numpy as np
import pytest

from raglab.displays.canvas import png
from raglab.displays.upgrades import TraceComparisonDisplay
from raglab.lab.trace_comparison import TraceComparison, compare_traces
from test_lab_trace_comparison import COSINE, FOUR, NEXT, hits


def compared() -> TraceComparison:
    """Four questions and one without a label, on two traces."""
    more = ("5", "no label?", None, "", (0.2, 0.1))
    return compare_traces(hits(*FOUR, more), hits(*NEXT, more), policy=COSINE)


def test_decisions_and_scores() -> None:
    """Counts are in the cells, each question is a point of its label, both thresholds are lines."""
    comparison = compared()
    display = TraceComparisonDisplay.from_comparison(
        comparison, path="similarity.min_similarity", name="encoder"
    )
    flow, scatter = display.axes_
    texts = [text.get_text() for text in flow.texts]
    assert texts[:2] == ["2\n100 %", "0\n0 %"]
    assert texts[-2:] == ["+0 −1 correct", "+1 −1 correct"]
    assert (flow.get_title(), flow.get_xlabel()) == (
        "encoder",
        "decision on the new trace (cases, and % of the row)",
    )
    points = np.concatenate([part.get_offsets() for part in scatter.collections])
    assert sorted(map(tuple, points.round(2).tolist())) == [
        (0.2, 0.2),
        (0.4, 0.6),
        (0.45, 0.65),
        (0.8, 0.7),
        (0.9, 0.95),
    ]
    lines = {line.get_label(): line for line in scatter.lines}
    assert lines["old threshold 0.5,\n40% meet it"].get_xdata()[0] == 0.5  # type: ignore[index]
    assert lines["new threshold 0.5,\n80% meet it"].get_ydata()[0] == 0.5  # type: ignore[index]
    legend = [text.get_text() for text in scatter.get_legend().get_texts()]
    assert legend[:3] == ["ok (n = 3)", "refuse (n = 1)", "not judged (n = 1)"]
    assert scatter.get_xlabel() == "score on the old trace (cosine)"
    assert png(display.figure_).startswith(b"\x89PNG")
    frame = display.frame()
    assert frame["panel"].value_counts().to_dict() == {"decisions": 9, "scores": 5}
    assert "encoder: decisions on 5 questions" in display._repr_html_()


def test_the_threshold_that_moves_most_is_drawn() -> None:
    """Where none is named; another name is refused with those that there are."""
    comparison = compared()
    rows = comparison.signals.set_index("path")
    moves = (rows["passes_new"] - rows["passes_old"]).abs()
    assert TraceComparisonDisplay.from_comparison(comparison).path == moves.idxmax()
    with pytest.raises(ValueError, match=r"got 'l2'; they are .*similarity\.min_similarity"):
        TraceComparisonDisplay.from_comparison(comparison, path="l2")
