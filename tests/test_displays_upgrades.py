"""An upgrade drawn: the flow of decisions, and the scores of one threshold on both traces."""

from __future__ import annotations

import numpy as np

from drawings import upgraded
from raglab.displays.upgrades import TraceComparisonDisplay
from refusals import refused


def test_decisions_and_scores():
    """Counts are in the cells, each question is a point of its label, both thresholds are lines."""
    comparison = upgraded()
    display = TraceComparisonDisplay.from_comparison(
        comparison, path="similarity.min_similarity", name="encoder"
    )
    flow, scatter = display.axes_
    texts = [text.get_text() for text in flow.texts]
    cells = [text.split("\n") for text in texts]
    assert cells[1] == ["0", "0 %"]
    assert [cell[-1] for cell in cells if len(cell) == 3] == ["+0 −1", "+1 −1"]
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
    frame = display.frame()
    assert frame["panel"].value_counts().to_dict() == {"decisions": 9, "scores": 5}


def test_the_threshold_that_moves_most_is_drawn():
    """Where none is named; another name is refused with those that there are."""
    comparison = upgraded()
    rows = comparison.signals.set_index("path")
    moves = (rows["passes_new"] - rows["passes_old"]).abs()
    assert TraceComparisonDisplay.from_comparison(comparison).path == moves.idxmax()
    refused(
        r"similarity\.min_similarity.*got l2",
        TraceComparisonDisplay.from_comparison,
        comparison,
        path="l2",
    )
