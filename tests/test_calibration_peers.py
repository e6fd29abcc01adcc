"""Agreement with other calibration libraries, to 1e-9 where the convention is the same.

The peers are the extra `bench`, scikit-learn apart; where one is absent its tests skip.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from raglab.calibration import (
    apply,
    brier_decomposition,
    ece,
    fit,
    reliability,
    smooth_ece_with_bandwidth,
    venn_abers_interval,
)

EXACT = 1e-9
SHAPES = {
    "calibrated": lambda p: p,
    "too sure": lambda p: 0.25 + 0.5 * p,
    "biased": lambda p: np.clip(p + 0.02, 0, 1),
    "bent": lambda p: p**2,
    "turned round": lambda p: 1 - p,
}
GRIDS = {"continuous": 0, "11 levels": 10, "101 levels": 100}


def _world(shape, grid, n=1000, seed=0):
    """Outcomes and scores; on a grid, many scores lie on edges of bins."""
    rng = np.random.default_rng([seed, *map(ord, shape + grid)])
    levels = GRIDS[grid]
    p = rng.integers(0, levels + 1, n) / levels if levels else rng.random(n)
    return rng.random(n) < SHAPES[shape](p), p


every_world = pytest.mark.parametrize(
    ("shape", "grid"), [(shape, grid) for shape in SHAPES for grid in GRIDS]
)


# scikit-learn


@every_world
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("bins", [1, 7, 10, 15, 100])
def test_bins_are_those_of_scikit_learn(shape, grid, strategy, bins):
    """Scores on edges included."""
    y, p = _world(shape, grid)
    rate, score = calibration_curve(y, p, n_bins=bins, strategy=strategy)
    curve = reliability(y, p, bins=bins, strategy=strategy)
    assert curve.y == pytest.approx(rate, abs=EXACT)
    assert curve.x == pytest.approx(score, abs=EXACT)


@every_world
def test_corp_blocks_and_the_brier_score_are_those_of_scikit_learn(shape, grid):
    """The score; its mean square error after isotonic regression; the score of the base rate."""
    y, p = _world(shape, grid, 300)
    again = IsotonicRegression().fit(p, y).predict(p)
    base = np.full(y.size, y.mean())
    score, mcb, dsc, unc = brier_decomposition(y, p)
    assert score == pytest.approx(brier_score_loss(y, p), abs=EXACT)
    assert mcb == pytest.approx(brier_score_loss(y, p) - brier_score_loss(y, again), abs=EXACT)
    assert dsc == pytest.approx(brier_score_loss(y, base) - brier_score_loss(y, again), abs=EXACT)
    assert unc == pytest.approx(brier_score_loss(y, base), abs=EXACT)
    curve = reliability(y, p, strategy="corp")
    assert curve.y == pytest.approx(np.unique(np.round(again, 12)), abs=EXACT)
    assert np.repeat(curve.y, curve.n) == pytest.approx(np.sort(again), abs=EXACT)


class _Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that has scored already."""

    def fit(self, _scores, labels):
        """Itself."""
        self.classes_ = np.unique(labels)
        return self

    def decision_function(self, scores):
        """The score."""
        return scores[:, 0]

    def predict(self, scores):
        """Never asked for."""
        raise NotImplementedError


def _of_scikit_learn(method, y, s, at):
    scores = _Scores().fit(s[:, None], y)
    peer = CalibratedClassifierCV(FrozenEstimator(scores), method=method).fit(s[:, None], y)
    return peer.predict_proba(at[:, None])[:, 1]


@every_world
def test_platt_is_scikit_learns_sigmoid(shape, grid):
    """As far as its optimiser goes: it stops at a gradient of 1e-6, ours at rounding."""
    y, s = _world(shape, grid, 300)
    at = np.linspace(-0.2, 1.2, 50)
    theirs = _of_scikit_learn("sigmoid", y, s, at)
    assert apply(fit(y, s, method="platt"), at) == pytest.approx(theirs, abs=1e-5)
    points = _of_scikit_learn("sigmoid", y, 100 * s, 100 * at)
    assert apply(fit(y, 100 * s, method="platt"), 100 * at) == pytest.approx(points, abs=1e-5)


@pytest.mark.parametrize("shape", ["calibrated", "too sure", "biased", "bent"])
def test_temperature_is_that_of_scikit_learn(shape):
    """Half the logit as its decision value: it spreads a score x into −x and x."""
    y, s = _world(shape, "continuous", 300)
    half = np.log(s / (1 - s)) / 2
    theirs = _of_scikit_learn("temperature", y, half, half)
    assert apply(fit(y, s, method="temperature"), s) == pytest.approx(theirs, abs=1e-6)


# relplot


@every_world
@pytest.mark.parametrize("n", [1, 7, 300, 20_000])
def test_smooth_ece_is_that_of_relplot(shape, grid, n):
    """Value to 1e-9, and the very bandwidth, where relplot is told to leave the logit out."""
    peer = pytest.importorskip("relplot.metrics")
    y, p = _world(shape, grid, n)
    value, bandwidth = peer.smECE(p, y.astype(float), return_width=True)
    ours = smooth_ece_with_bandwidth(y, p)
    assert ours.value == pytest.approx(value, abs=EXACT)
    assert ours.bandwidth == bandwidth


# netcal


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bins", [5, 10, 15])
def test_ece_is_that_of_netcal_where_no_score_lies_on_an_edge(shape, bins):
    """Equal widths, equal masses, and the largest gap."""
    peer = pytest.importorskip("netcal.metrics")
    y, p = _world(shape, "continuous", 1002)  # so that no percentile is a score
    labels = y.astype(int)
    assert peer.ECE(bins).measure(p, labels) == pytest.approx(ece(y, p, bins=bins), abs=EXACT)
    assert peer.MCE(bins).measure(p, labels) == pytest.approx(
        ece(y, p, bins=bins, norm="max"), abs=EXACT
    )
    assert peer.ECE(bins, equal_intervals=False).measure(p, labels) == pytest.approx(
        ece(y, p, bins=bins, strategy="quantile"), abs=EXACT
    )


# MAPIE


# betacal


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", ["calibrated", "too sure", "biased", "bent"])
def test_beta_is_that_of_betacal(shape, grid):
    """As far as its optimiser goes; ours is at least as likely."""
    peer = pytest.importorskip("betacal")
    y, s = _world(shape, grid)
    with warnings.catch_warnings():
        theirs = peer.BetaCalibration("abm").fit(s, y.astype(int)).predict(s)
    ours = apply(fit(y, s, method="beta"), s)
    assert ours == pytest.approx(theirs, abs=2e-3)
    likely = [np.log(np.where(y, p, 1 - p)).sum() for p in (ours, theirs)]
    assert likely[0] >= likely[1] - 1e-7


# venn-abers


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@every_world
@pytest.mark.parametrize("n", [5, 40, 300])
def test_venn_abers_is_that_of_the_package(shape, grid, n):
    """p0, p1 and the point between them, at scores on the levels, between and outside."""
    # its import switches NumPy's warnings of division off for the whole process
    with np.errstate():
        peer = pytest.importorskip("venn_abers")
    y, s = _world(shape, grid, n)
    y[:2] = False, True
    at = np.concatenate([s, np.linspace(0.003, 0.997, 40), [0.0, 1.0]])
    theirs = peer.VennAbers()
    with np.errstate(divide="ignore", invalid="ignore"):
        theirs.fit(np.stack([1 - s, s], axis=1), y.astype(int))
        point, ends = theirs.predict_proba(np.stack([1 - at, at], axis=1))
    calibrator = fit(y, s, method="venn-abers")
    p0, p1 = venn_abers_interval(calibrator, at)
    assert p0 == pytest.approx(ends[:, 0], abs=EXACT)
    assert p1 == pytest.approx(ends[:, 1], abs=EXACT)
    assert apply(calibrator, at) == pytest.approx(point[:, 1], abs=EXACT)
