"""Figures: what is drawn is what was given, every axis says what it shows and in which unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from raglab.displays import canvas as ink
from raglab.displays import figures
from raglab.displays.canvas import png
from raglab.metrics import TARGETS, risk_coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PNG = b"\x89PNG\r\n"
SCORE = np.array([5.0, 15.0, 15.0, 55.0, 95.0])
RIGHT = np.array([False, False, True, True, True])
STEPS = pd.DataFrame(
    {
        "low": [-1.0, 0.3, 0.6],
        "high": [0.3, 0.6, 1.0],
        "false_refusal_rate": [0.0, 0.4, 1.0],
        "hallucination_rate": [0.5, 0.2, np.nan],
        "missed_ambiguity_rate": [1.0, 1.0, 1.0],
        "over_ask_rate": [0.0, 0.0, 0.0],
    }
)

PANEL = figures.Panel(
    "similarity.min_similarity", "cosine", STEPS, {"defaults": 0.7, "tuned": 0.25}
)
RATIO = figures.Panel(
    "decision.ratio", "ratio", STEPS.assign(low=[0.0, 0.3, 6.0], high=[0.3, 6.0, 1e3]), {}, log=True
)
CANDIDATES = pd.DataFrame(
    {
        "in_sample": [0.5, 0.1, 0.7],
        "cross_validated": [0.5, 0.3, 0.7],
        "report": [0.4, 0.35, 0.7],
        "std_error": [0.05, 0.0, 0.1],
    },
    index=[
        "always-answer",
        "a $x_ candidate of a name that is longer than any label may be",
        "always-refuse",
    ],
)
DECIDED = np.array([[[1, 2], [0, 1], [0, 0]], [[0, 0], [3, 0], [1, 0]], [[0, 0], [0, 0], [2, 0]]])
COUNTS = np.array([[3, 43, 1], [0, 0, 0], [2, 1, 4]])


def drawn_figures():
    """Every figure once."""
    curves = {"confidence": risk_coverage(RIGHT, SCORE)}
    points = np.array([0.0, 0.4]), np.array([0.3, 0.1])
    pictures: dict[str, Axes | Figure] = {
        "risk_coverage": figures.draw_risk_coverage(
            curves, {"x": (0.5, 0.1), "silent": (0.0, np.nan)}, target=0.01
        ),
        "threshold": figures.threshold(PANEL, TARGETS),
        "thresholds": figures.threshold_panels([PANEL] * 4, TARGETS),
        "label_by_decision": figures.confusion_matrix(COUNTS, title="defaults"),
        "labels_by_decision": figures.confusion_matrices({"one": COUNTS, "two": COUNTS}),
        "ratio": figures.threshold_panels([RATIO], TARGETS),
        "candidates": figures.candidate_costs(CANDIDATES, "always-answer", "always-refuse"),
        "probability_by_label": figures.probability_by_label(DECIDED, (0, 50, 100)),
        "pareto": figures.pareto(*points, np.array([True, True]), TARGETS),
    }
    return {
        name: picture if isinstance(picture, Figure) else picture.get_figure(root=True)
        for name, picture in pictures.items()
    }


def curve(on, label):
    """Line or stairs of a label."""
    handles, labels = on.get_legend_handles_labels()
    return handles[labels.index(label)]


@pytest.fixture(scope="module")
def drawn():
    """Every figure, drawn once for the module."""
    return drawn_figures()


def test_the_same_figure_is_the_same_picture(drawn):
    """Byte for byte, without the name of the program that made it."""
    data = png(drawn["pareto"])
    assert data.startswith(PNG)
    assert data == png(drawn_figures()["pareto"])
    assert b"Software" not in data


def test_risk_coverage_draws_curve_and_points():
    """The line is the curve, its first risk held down to coverage 0.

    A policy without answers has no mark.
    """
    selective = risk_coverage(RIGHT, SCORE)
    points = {"x": (0.5, 0.1), "silent": (0.0, np.nan)}
    on = figures.draw_risk_coverage({"confidence": selective}, points, target=0.01)
    line = curve(on, "confidence")
    np.testing.assert_array_equal(line.get_xdata(), [0.0, *selective.x])
    np.testing.assert_array_equal(line.get_ydata(), [selective.y[0], *selective.y])
    assert line.get_drawstyle() == "steps-pre"
    assert (curve(on, "x").get_xdata()[0], curve(on, "x").get_ydata()[0]) == (0.5, 0.1)
    assert on.get_legend_handles_labels()[1] == ["confidence", "x", "target 1 %"]


def test_threshold_draws_its_steps():
    """Stairs carry the rates of the frame, lines the policies' values; both are in view."""
    on = figures.threshold(PANEL, TARGETS)
    for name in ink.RATE_INKS:
        values, edges, _ = curve(on, name.removesuffix("_rate").replace("_", " ")).get_data()
        np.testing.assert_array_equal(values, STEPS[name])
        np.testing.assert_array_equal(edges, [-1.0, 0.3, 0.6, 1.0])
    low, high = on.get_xlim()
    assert low < min(STEPS["high"])
    assert max(STEPS["low"]) < high
    assert curve(on, "target: hallucination ≤ 1 %").get_ydata()[0] == 0.01
    for name, value in PANEL.marks.items():
        assert curve(on, name).get_xdata()[0] == value
        assert low < value < high


def test_candidates_stand_by_their_cost():
    """Cheapest cross-fitted first, three marks a row, bars of one error each way."""
    (on,) = figures.candidate_costs(CANDIDATES, "always-answer", "always-refuse").axes
    assert curve(on, "cross-fitted: by versions that never saw the case").get_xdata().tolist() == [
        0.3,
        0.5,
        0.7,
    ]
    assert curve(on, "judged: cases nothing was fitted or chosen on").get_xdata().tolist() == [
        0.35,
        0.4,
        0.7,
    ]
    (bars,) = on.containers
    (arms,) = bars.lines[2]
    ends = np.array([segment[:, 0] for segment in arms.get_segments() if len(segment)])
    np.testing.assert_allclose(ends[1], [0.45, 0.55])
    assert curve(on, "always-refuse, the incumbent, cross-fitted").get_xdata() == [0.7, 0.7]


def test_a_note_stands_in_the_picture_itself():
    """A figure in sample says so where it is shown without its page.

    Without a note nothing is written below it.
    """
    drawn = figures.pareto(*2 * [np.array([0.1])], np.array([True]), {}).get_figure(root=True)
    plain = png(drawn)
    assert drawn.get_supxlabel() == ""
    assert png(drawn, "In sample, not comparable.") != plain
    assert drawn.get_supxlabel() == "In sample, not comparable."


def test_probabilities_are_stacked_by_decision():
    """A row a label; the bars of what was decided stand on each other."""
    ok, refuse, _ = figures.probability_by_label(DECIDED, (0, 50, 100)).axes
    tops, _, floor = curve(refuse, "asks back").get_data()
    assert (list(tops), list(floor)) == ([4, 0], [3, 0])
    tops, _, floor = curve(ok, "refuses").get_data()
    assert (list(tops), list(floor)) == ([1, 3], [1, 2])


def test_pareto_draws_trials_and_front():
    """Trials off the front are dots, those on it a line in ascending order."""
    refused, wrong = np.array([0.4, 0.0, 0.5]), np.array([0.1, 0.3, 0.5])
    on = figures.pareto(refused, wrong, np.array([True, True, False]), TARGETS)
    assert curve(on, "trial").get_xdata().tolist() == [0.5]
    assert curve(on, "no other trial is better in both").get_xdata().tolist() == [0.0, 0.4]
    assert on.get_legend_handles_labels()[1][-2:] == [
        "target: false refusal ≤ 10 %",
        "target: hallucination ≤ 1 %",
    ]


def test_no_global_state():
    """Drawing leaves pyplot out: no figure is registered."""
    import matplotlib.pyplot as plt

    drawn_figures()
    assert plt.get_fignums() == []
