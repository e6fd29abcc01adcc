"""Displays: frames hold primitives' numbers, given axes are used, notebooks show a thing once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from drawings import CERTIFIED, COSTS, DECIDED, LABEL, RIGHT, SCORE, SHUFFLED, gate_displays
from raglab import calibration, certify, metrics, replay
from raglab.displays import canvas
from raglab.displays.gates import (
    OutcomeTableDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    ThresholdSweepDisplay,
)
from raglab.metrics import TARGETS
from raglab.values import Status
from refusals import refused
from worlds import policy, random_trace


def check_points(shown, names, curve, ends):
    """The frame has a row a point of the curve, which is drawn, with the ends of its interval."""
    frame = shown.frame()
    assert list(frame.columns) == [*names, "k", "n", "low", "high"]
    np.testing.assert_array_equal(
        frame.to_numpy().T, [curve.at, curve.x, curve.y, curve.k, curve.n, *ends]
    )
    drawn = shown.lines_[0].get_xdata()
    np.testing.assert_array_equal(drawn[len(drawn) - len(frame) :], curve.x)


@pytest.mark.parametrize("strategy", ["uniform", "quantile", "corp"])
def test_reliability_equals_its_primitives(strategy):
    """Points are those of `reliability`, intervals exact, and measures those stated elsewhere."""
    shown = ReliabilityDisplay.from_predictions(
        RIGHT, SCORE, n_bins=5, strategy=strategy, level=0.9
    )
    curve = calibration.reliability(RIGHT, SCORE, bins=5, strategy=strategy)
    ends = metrics.clopper_pearson(curve.k, curve.n, 0.9)
    check_points(shown, ("bin_low", "score", "rate"), curve, ends)
    assert shown.ece == calibration.ece(RIGHT, SCORE)
    assert shown.smooth_ece == calibration.smooth_ece_with_bandwidth(RIGHT, SCORE)
    assert shown.brier == calibration.brier_decomposition(RIGHT, SCORE)
    np.testing.assert_array_equal(shown.lines_[0].get_ydata(), curve.y)


@pytest.mark.parametrize("band", ["pointwise", "simultaneous", None])
def test_risk_coverage_equals_its_primitives(band):
    """Steps, bands and areas are those of `metrics`.

    Without a band the frame still has its intervals.
    """
    shown = RiskCoverageDisplay.from_predictions(RIGHT, SCORE, band=band, level=0.9, target=0.2)
    curve = metrics.risk_coverage(RIGHT, SCORE)
    ends = metrics.risk_band(curve, 0.9, simultaneous=band == "simultaneous")
    check_points(shown, ("threshold", "coverage", "risk"), curve, ends)
    assert (shown.aurc, shown.eaurc) == (metrics.aurc(RIGHT, SCORE), metrics.eaurc(RIGHT, SCORE))
    assert len(shown.ax_.collections) == 2 * (band is not None)  # the band, and its name


def test_the_target_is_marked_where_it_is_last_kept():
    """The mark stands at coverage@risk; where no coverage keeps the target there is none."""
    shown = RiskCoverageDisplay.from_predictions(RIGHT, SCORE, target=0.25)
    assert shown.curve.x[shown.within_target] == metrics.coverage_at_risk(RIGHT, SCORE, 0.25)
    assert RiskCoverageDisplay.from_predictions(~RIGHT, SCORE, target=0.0).within_target is None
    assert RiskCoverageDisplay.from_predictions(RIGHT, SCORE).within_target is None


def test_sweep_tries_every_threshold():
    """At every threshold, on a level or between two, the step has the rates counted there.

    What has no score is never answered.
    """
    score, ok = np.where(np.arange(300) < 7, np.nan, SCORE), Status.ok == LABEL
    frame = ThresholdSweepDisplay.from_predictions(RIGHT, score, label=LABEL).frame()
    for at in np.arange(-0.05, 1.1, 0.025) - 1e-9:
        (row,) = frame[(frame["low"] < at) & (at <= frame["high"])].to_dict("records")
        answered = score >= at
        counts = {
            "hallucination_rate": ((answered & ~RIGHT).sum(), answered.sum()),
            "false_refusal_rate": ((ok & ~answered).sum(), ok.sum()),
            "coverage": (answered.sum(), 300),
        }
        for name, (k, n) in counts.items():
            values = [row[f"{name}{end}"] for end in ("_k", "_n", "_low", "_high")]
            np.testing.assert_equal(values, [k, n, *metrics.clopper_pearson(k, n)])


def test_sweep_of_a_policy_s_threshold():
    """The frame of `replay.steps` is drawn as it is, with the rates asked for."""
    steps = replay.steps(random_trace(1, n_cases=40), policy(), path="l2.max_l2")
    shown = ThresholdSweepDisplay.from_steps(
        steps, rates=("over_ask_rate", "coverage"), name="squared L2"
    )
    frame = shown.frame()
    assert frame.equals(steps[list(frame.columns)])
    values, edges, _ = shown.lines_[1].get_data()
    np.testing.assert_array_equal(values, steps["coverage"])
    np.testing.assert_array_equal(edges, [*steps["low"], steps["high"].iloc[-1]])


def test_the_certified_threshold_is_a_line_with_its_bound():
    """The line stands at the threshold, the mark at the bound."""
    shown = ThresholdSweepDisplay.from_predictions(RIGHT, SCORE, certificate=CERTIFIED)
    lines = {str(line.get_label())[:9]: line for line in shown.ax_.get_lines()}
    assert lines["certified"].get_xdata()[0] == CERTIFIED.threshold  # type: ignore[index]
    bound = lines["upper bou"]
    assert (bound.get_xdata()[0], bound.get_ydata()[0]) == (CERTIFIED.threshold, CERTIFIED.bound)


def test_a_certificate_is_marked_on_the_curve():
    """From its risk up to its bound at its coverage, with its confidence.

    What was picked here is called optimistic.
    """
    shown = RiskCoverageDisplay.from_predictions(RIGHT, SCORE, target=0.3, certificate=CERTIFIED)
    lines = {str(line.get_label())[:9]: line for line in shown.ax_.get_lines()}
    (promise,) = CERTIFIED.promises
    mark = lines["certified"]
    assert np.asarray(mark.get_xdata()).tolist() == [CERTIFIED.coverage] * 2
    assert np.asarray(mark.get_ydata()).tolist() == [promise.k / promise.n, CERTIFIED.bound]
    assert "risk ≤ 30 % at 90 % confidence" in str(mark.get_label())
    flattering = lines["optimisti"]
    assert CERTIFIED.coverage < np.asarray(flattering.get_xdata())[0]
    assert CERTIFIED.reason in shown._repr_html_()
    none = certify.certify(RIGHT, SCORE, alpha=0.001)
    for display in (RiskCoverageDisplay, ThresholdSweepDisplay):
        assert none.reason in display.from_predictions(RIGHT, SCORE, certificate=none)._repr_html_()


NAMED = certify.Promise("hallucination_rate", 0.1, 3, 10, 0.5)
FOREIGN = {
    "target must be the certified one, 0.3, got 0.2": {"target": 0.2},
    "certificate must be .* got one of 299 cases beside 300": {
        "certificate": certify.certify(RIGHT[1:], SCORE[1:], alpha=0.3)
    },
    "certificate must be of the scores .* got one of .* wrong": {
        "certificate": certify.certify(RIGHT, SCORE + 0.001, alpha=0.3)
    },
    "certificate must be of the scores .* wrong of": {
        "certificate": certify.certify(RIGHT | (SCORE > 0.7), SCORE, alpha=0.3)
    },
    "certificate must be of one gate, .* got that of hallucination_rate": {
        "certificate": certify.Certificate(
            None, (), 0.0, (NAMED,), None, 0.1, "single", 1, 1, 300, ""
        )
    },
}


@pytest.mark.parametrize("rule", list(FOREIGN))
def test_a_foreign_certificate_is_refused(rule):
    """Of another target, other cases, another score, other labels, or of policies."""
    refused(
        rule,
        RiskCoverageDisplay.from_predictions,
        RIGHT,
        SCORE,
        **{"certificate": CERTIFIED} | FOREIGN[rule],
    )


def test_outcomes_equal_their_primitives():
    """Cells, shares and intervals are those of `metrics`.

    Wrong answers and what is paid stand beside them.
    """
    shown = OutcomeTableDisplay.from_predictions(LABEL, DECIDED, right=RIGHT, costs=COSTS)
    counts, frame = metrics.outcome_table(LABEL, DECIDED), shown.frame()
    wrong = int(((Status.ok == LABEL) & (Status.ok == DECIDED) & ~RIGHT).sum())
    np.testing.assert_array_equal(frame["k"], counts.ravel())
    np.testing.assert_array_equal(frame["n"], np.repeat(counts.sum(axis=1), 3))
    for name, ends in zip(("low", "high"), metrics.outcome_intervals(counts), strict=True):
        np.testing.assert_array_equal(frame[name], np.ravel(ends))
    assert frame["wrong"].tolist() == [wrong, 0, 0, counts[1, 0], 0, 0, counts[2, 0], 0, 0]
    outcome = np.array([1, 2, 4])[DECIDED] - (
        (DECIDED == LABEL) & RIGHT & (Status.refuse != LABEL)
    )  # the right one stands before the wrong one
    paid = metrics.cost_matrix(COSTS)[LABEL, outcome]
    assert shown.expected_cost == pytest.approx(paid.mean())
    for row in frame.itertuples():
        cell = (Status[row.label] == LABEL) & (Status[row.decision] == DECIDED)
        assert row.cost == pytest.approx(paid[cell].mean())
    assert shown.cost_interval[0] < shown.expected_cost < shown.cost_interval[1]
    assert f"{wrong} wrong" in shown.ax_.texts[0].get_text()


def test_the_order_of_the_cases_is_nothing():
    """Shuffled rows give the same frame, bit for bit, and the same figure."""
    shuffled = gate_displays(SHUFFLED)
    for name, shown in gate_displays().items():
        assert shown.frame().equals(shuffled[name].frame()), name
        assert canvas.png(shown.figure_) == canvas.png(shuffled[name].figure_), name


def test_small_cases_are_drawn():
    """One case, one class and one level each give a display with its numbers."""
    for right, score in (([True], [0.4]), ([True, False], [0.5, 0.5])):
        for shown in (
            ReliabilityDisplay.from_predictions(right, score),
            RiskCoverageDisplay.from_predictions(right, score, target=0.1),
            ThresholdSweepDisplay.from_predictions(right, score, targets=TARGETS),
        ):
            assert len(shown.frame())
    table = OutcomeTableDisplay.from_predictions([0], [2])
    assert table.frame()["n"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert "–" in table._repr_html_()


RELIABLE, RISKY, SWEPT, TABLED = (
    display.from_predictions
    for display in (
        ReliabilityDisplay,
        RiskCoverageDisplay,
        ThresholdSweepDisplay,
        OutcomeTableDisplay,
    )
)
STEPS = SWEPT([1], [1]).frame()
FROM_STEPS = ThresholdSweepDisplay.from_steps
BROKEN: list[tuple[str, Any, Any, dict[str, Any]]] = [
    (r"p must be in \[0, 1\], got 70 at most", RELIABLE, ([0, 1], [40.0, 70.0]), {}),
    ("p must be finite, not NaN, got nan at position 1", RELIABLE, ([0, 1], [0.4, np.nan]), {}),
    (r"must be \[Q\], one of each a case and at least one, got shapes", RELIABLE, ([], []), {}),
    ("strategy must be one of", RELIABLE, ([0, 1], [0, 1]), {"strategy": "odd"}),
    ("bins must be at least 1", RELIABLE, ([0, 1], [0, 1]), {"n_bins": 0}),
    ("level must be in", RELIABLE, ([0, 1], [0, 1]), {"level": 1.0}),
    (r"correct and confidence must be \[Q\] each, of one case at least", RISKY, ([], []), {}),
    ("got NaN only", RISKY, ([True], [np.nan]), {}),
    ("band must be one of", RISKY, ([True], [0.5]), {"band": "both"}),
    ("target must be in", RISKY, ([True], [0.5]), {"target": 10.0}),
    ("scores must hold a number", SWEPT, ([True], [np.nan]), {}),
    ("label must hold ok, refuse, ambiguous", SWEPT, ([1], [1]), {"label": ["fine"]}),
    ("one a case|give one a case|one row a case", SWEPT, ([1], [1]), {"label": ["ok"] * 2}),
    ("rates and targets must be among", SWEPT, ([1], [1]), {"targets": {"ECE": 0.1}}),
    ("steps must have", FROM_STEPS, (STEPS.drop(columns="coverage_k"),), {}),
    ("got no row", FROM_STEPS, (STEPS.head(0),), {}),
    ("label must hold at least one case", TABLED, ([], []), {}),
    ("label must be codes of Status", TABLED, ([3], [0]), {}),
    ("status must hold ok, refuse", TABLED, (["ok"], ["answered"]), {}),
    ("label and status must be", TABLED, ([0, 1], [0]), {}),
    ("right must be", TABLED, ([0, 1], [0, 1]), {"right": [True]}),
    ("costs must map", TABLED, ([0], [0]), {"right": [True], "costs": [[1.0]]}),
    ("costs need right=", TABLED, ([0], [0]), {"costs": COSTS}),
    (
        "an outcome of costs",
        TABLED,
        ([0], [0]),
        {"right": [True], "costs": {"ok": {"answered": 1}}},
    ),
]


@pytest.mark.parametrize(("rule", "door", "columns", "more"), BROKEN)
def test_doors_state_the_rule(rule, door, columns, more):
    """What cannot be shown stops with the rule that it breaks."""
    refused(rule, door, *columns, **more)
