"""Traffic drawn.

The curves of a review as they are, the policy's own threshold marked, and its days.
"""

from __future__ import annotations

import numpy as np
import pytest

from drawings import reviewed_traffic
from raglab.displays.traffic import ReviewDisplay
from raglab.values import Status
from refusals import refused

MOST_STEPS = 100


def test_each_threshold_and_the_days():
    """A panel a threshold that changes anything, as its steps are.

    Labels, units and n on every axis.
    """
    reviewed = reviewed_traffic(at=["2026-03-02", "2026-03-03", "2026-03-04"])
    display = ReviewDisplay.from_review(reviewed)
    assert list(display.paths) == [
        "density.min_keep",
        "similarity.min_similarity",
        "confidence.tau_default",
    ]
    on = display.axes_[1]
    assert on.get_xlabel() == "similarity.min_similarity (cosine), now 0.4"
    assert on.lines[0].get_xdata()[0] == 0.4  # type: ignore[index]
    curve = reviewed.curves["similarity.min_similarity"]
    for patch, status in zip(on.patches, Status, strict=True):
        values, edges, _ = patch.get_data()  # type: ignore[attr-defined]
        assert values.tolist() == (curve.counts[:, status] / 60).tolist()
        assert edges.tolist()[1:-1] == curve.low.tolist()[1:]
    days = display.axes_[3]
    assert [text.get_text() for text in days.get_xticklabels()] == [
        f"2026-03-0{day}\nn = 20" for day in (2, 3, 4)
    ]
    heights = np.array([[bar.get_height() for bar in bars] for bars in days.containers])
    assert heights.sum(axis=0) == pytest.approx(1.0)
    frame = display.frame()
    assert frame["panel"].unique().tolist() == [*display.paths, "days"]


def test_many_steps_are_thinned(monkeypatch):
    """A line has so many steps at most, each exact at its lower end."""
    monkeypatch.setattr("raglab.displays.traffic.MAX_CURVE_STEPS", MOST_STEPS)
    reviewed = reviewed_traffic(n=500, steps=None)
    curve = reviewed.curves["confidence.tau_default"]
    assert len(curve.low) > MOST_STEPS
    display = ReviewDisplay.from_review(reviewed, paths=["confidence.tau_default"])
    values, _, _ = display.ax_.patches[0].get_data()  # type: ignore[attr-defined]
    assert len(values) == MOST_STEPS
    assert (values[0], values[-1]) == (curve.counts[0, 0] / 500, curve.counts[-1, 0] / 500)


def test_a_path_that_has_no_curve():
    """Is named, with some that there are."""
    refused(
        r"such as density\.min_keep, .*got \['similarity'\]",
        ReviewDisplay.from_review,
        reviewed_traffic(),
        paths=["similarity"],
    )
