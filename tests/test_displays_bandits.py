"""Displays of the bandit laboratory.

Frames hold the numbers that are drawn, axes given are axes used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from drawings import (
    ESTIMATES,
    bandit_displays,
    bandit_runs,
    bandit_state,
    priced_runs,
)
from hostile_texts import MARKUP, assert_inert
from raglab import off_policy
from raglab.bandit import Bandit
from raglab.default_learner.simulation import Silence
from raglab.displays import canvas
from raglab.displays.bandits import (
    ArmShareDisplay,
    PosteriorDisplay,
    PropensityDisplay,
    RegretDisplay,
    lai_robbins,
)
from raglab.displays.default_learner import SilenceDisplay
from raglab.displays.logs import ForestDisplay, RewardAuditDisplay
from refusals import refused
from study_worlds import audited, drawn


@pytest.fixture(scope="module")
def displays():
    """Displays of bandits by name."""
    return bandit_displays(name="<b>mine</b>")


def test_a_forest_knows_the_rounds_of_its_log():
    """As the estimates note them, or as stated where frames were joined."""
    log = pd.DataFrame({"action": [0, 1] * 200, "reward": [0.0, 1.0] * 200, "propensity": 0.5})
    table = off_policy.estimate(log, [0.25, 0.75], ("snips", "dr"))
    for shown in (
        ForestDisplay.from_estimates(table),
        ForestDisplay.from_estimates(ESTIMATES, rounds=400),
    ):
        assert shown.ax_.get_xlabel().endswith("(95 % interval; n = 400 rounds)")


def test_names_and_units_are_drawn_as_they_stand():
    """What looks like a formula, with an end or without, is text.

    What turns the order of letters is shown.
    """
    hostile = r"$\frac{ $x$"
    runs = {f"{hostile} {place}": run for place, run in enumerate(bandit_runs().values())}
    drawn: list[Any] = [
        RegretDisplay.from_runs(runs, unit=hostile),
        ForestDisplay.from_estimates(ESTIMATES, unit=hostile),
    ]
    policies = {hostile: Silence(np.array([[9, 4]]), np.array([[3.0, 2.0]]))}
    drawn.append(SilenceDisplay.from_silence(policies, name=hostile))
    assert all(canvas.png(display.figure_).startswith(b"\x89PNG") for display in drawn)
    assert_inert(RegretDisplay.from_runs(runs, unit=hostile, name=MARKUP)._repr_html_())
    assert canvas.literal_text("a\u202eb$\n") == r"a\u202eb\$\n"


def test_the_constant_of_lai_and_robbins():
    """8.285 for 0.7, 0.6, 0.5, 0.4; equal arms lose nothing; certain arms have no such bound."""
    assert lai_robbins([0.7, 0.6, 0.5, 0.4]) == pytest.approx(8.285, abs=5e-4)
    assert lai_robbins([0.5, 0.5]) == 0.0
    refused(r"means must be \[A\] probabilities inside \(0, 1\), got", lai_robbins, [1.0, 0.5])


def test_regret_is_the_mean_of_the_runs(displays):
    """Every round of the frame has the mean over replications and its t interval or quantiles."""
    frame = displays["interval"].frame()
    last = frame[(frame["run"] == "ucb1") & (frame["round"] == 500)].iloc[0]
    values = bandit_runs()["ucb1"].regret[:, -1]
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    assert last[["regret", "low", "high"]].tolist() == pytest.approx([values.mean(), low, high])
    quantiles = displays["quantiles"].frame().query("run == 'ucb1'").iloc[-1]
    assert quantiles[["low", "high"]].tolist() == pytest.approx(
        np.quantile(values, [0.1, 0.9]).tolist()
    )
    assert (frame["replications"] == 12).all()


def test_reward_and_spend_are_drawn_apart(displays):
    """Each as the mean of the rounds so far, before costs and in the user's unit.

    Without costs there is one panel.
    """
    frame = displays["spend"].frame()
    last = frame[frame["run"] == "thompson_nig"].iloc[-1]
    done = priced_runs()["thompson_nig"]
    assert done.spend is not None
    assert last["spend"] == pytest.approx(done.spend[:, -1].mean() / 60)
    assert last["reward"] == pytest.approx((done.value + 0.125 * done.spend)[:, -1].mean() / 60)
    low, high = stats.t.interval(
        0.95, 7, loc=last["spend"], scale=stats.sem(done.spend[:, -1] / 60)
    )
    assert last[["spend_low", "spend_high"]].tolist() == pytest.approx([low, high])
    labels = [on.get_ylabel() for on in displays["spend"].axes_]
    assert labels[2].split() == ["mean", "spend", "(US", "dollars)"]
    assert len(labels) == 4
    assert len(displays["interval"].axes_) == 1
    assert not {"spend", "recent"} & set(displays["interval"].frame())


def test_shares_by_head():
    """Two replications of four rounds, windows of two.

    0 0 1 1 and 0 1 1 1 give 75 % and 0 % of arm 0.
    """

    class Played:
        arm = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], dtype=np.int8)

    frame = ArmShareDisplay.from_run(Played(), ("a", "b"), window=2, level=1.0 - 1e-9).frame()
    assert frame["share"].tolist() == [0.75, 0.25, 0.0, 1.0]
    assert frame["round"].tolist() == [1.5, 1.5, 3.5, 3.5]
    assert frame.iloc[0][["low", "high"]].tolist() == pytest.approx([0.5, 1.0])
    uneven = ArmShareDisplay.from_run(Played(), ("a", "b"), window=3)
    assert uneven.frame().query("arm == 'a'")["share"].tolist() == [0.5, 0.0]
    np.testing.assert_allclose(uneven.frame().groupby("round")["share"].sum(), 1.0)
    refused(
        "window must be at least 1 and arms name all pulled",
        ArmShareDisplay.from_run,
        Played(),
        ("a",),
    )


def test_the_posterior_is_the_beta_that_is_drawn_from(displays):
    """3 of 4 successes and 0 of 1 on a uniform prior: Beta(4, 2) and Beta(1, 2)."""
    shown = displays["beta"]
    np.testing.assert_allclose(shown.density[:, 0], stats.beta(4, 2).pdf(shown.at))
    frame = shown.frame()
    assert frame["mean"].tolist() == pytest.approx([4 / 6, 1 / 3])
    assert frame.iloc[0][["low", "high"]].tolist() == pytest.approx(
        list(stats.beta(4, 2).interval(0.95))
    )
    spread = PosteriorDisplay.from_state(bandit_state()[0], Bandit(exploration=2.0))
    widths = [display.frame()["high"][0] - display.frame()["low"][0] for display in (spread, shown)]
    assert widths[0] > widths[1]


def test_the_posterior_of_the_normal_is_a_t(displays):
    """Its density integrates to 1, is symmetric about its mean, and has its mode there."""
    shown = displays["student"]
    assert dict(zip(shown.density[:, 0], shown.at, strict=True))[
        shown.density[:, 0].max()
    ] == pytest.approx(shown.frame()["mean"][0], abs=0.02)
    assert 0.95 < np.trapezoid(shown.density[:, 0], shown.at) <= 1.0 + 1e-6
    low, mean, high = shown.frame()[["low", "mean", "high"]].iloc[0]
    assert mean - low == pytest.approx(high - mean)


def test_propensities_by_window():
    """Mean, least and largest of each window; a masked arm is missing and not 0."""
    p = np.array([[0.2, 0.8], [0.4, 0.6], [1.0, 0.0]])
    mask = np.array([[True, True], [True, True], [True, False]])
    shown = PropensityDisplay.from_propensities(p, ("a", "b"), mask=mask, window=2)
    first, second = (rows for _, rows in shown.frame().groupby("arm"))
    assert first["propensity"].tolist() == pytest.approx([0.3, 1.0])
    assert second[["least", "most"]].iloc[0].tolist() == [0.6, 0.8]
    assert second[["propensity", "least", "most"]].iloc[1].isna().all()
    assert first["round"].tolist() == [1.5, 3.0]


def test_a_forest_marks_the_status(displays):
    """In words, where an estimate is weak or says nothing."""
    labels = displays["forest"].plot().ax_.get_legend_handles_labels()[1]
    assert {"weak: read with care", "none: the log says nothing about it"} <= set(labels)


def test_the_audit_draws_its_tables():
    """Arms, the simulated comparison and the pairs, in this order.

    The frame is that of the audit.
    """
    audit = audited(*drawn())
    shown = RewardAuditDisplay.from_audit(audit)
    frame = shown.frame()
    measures = ["mean_reward", "success_share", "mean_value", "value", "difference", "concordance"]
    assert frame["panel"].drop_duplicates().tolist() == measures
    assert (
        frame.query("panel == 'concordance'")["value"].tolist()
        == audit.correlations["concordance"].tolist()
    )
    assert frame.query("panel == 'value'")["value"].tolist() == audit.simulation["value"].tolist()
