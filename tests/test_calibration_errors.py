"""Calibration: probability measures, maps of scores to them, cross-fitting (raglab.calibration)."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.calibration import (
    METHODS,
    Calibrator,
    apply,
    brier_decomposition,
    calibrated,
    cross_fitted,
    ece,
    ece_interval,
    fit,
    folds_of,
    reliability,
    smooth_ece,
    smooth_ece_with_bandwidth,
    venn_abers_interval,
)

LAWFUL = settings(deadline=None, derandomize=True, max_examples=25)
STRATEGIES = ("uniform", "quantile", "corp")
MEASURES = {
    "reliability": lambda y, p: [reliability(y, p, strategy=strategy) for strategy in STRATEGIES],
    "ece": lambda y, p: [
        ece(y, p, strategy=s, norm=norm, debias=norm == "l2")
        for s in STRATEGIES
        for norm in ("l1", "l2", "max")
    ],
    "smooth ece": smooth_ece_with_bandwidth,
    "brier": brier_decomposition,
    "interval": lambda y, p: [
        ece_interval(y, p, strategy=s, resamples=20, rng=np.random.default_rng(0))
        for s in STRATEGIES
    ],
}
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=1, max_size=40)
FIT_ROWS = ROWS.filter(lambda rows: len({y for y, _ in rows}) == 2)


def _rng(seed=0):
    return np.random.default_rng(seed)


def _columns(rows, scale=20.0):
    return np.array([y for y, _ in rows]), np.array([s for _, s in rows]) / scale


def _bits(value):
    """Every number in nested tuples, lists and arrays, bit by bit."""
    if isinstance(value, tuple | list):
        return b"".join(map(_bits, value))
    return (
        value.encode() if isinstance(value, str) else np.asarray(value, dtype=np.float64).tobytes()
    )


def _world(n, seed=0):
    """Outcomes that come true with probability s², and scores s on 99 levels in (0, 1)."""
    rng = _rng(seed)
    s = rng.integers(1, 100, n) / 100
    return rng.random(n) < s**2, s


# worked examples


@pytest.mark.parametrize(
    ("y", "p", "settings_", "at", "x", "n", "k"),
    [
        # ten bins, two of them filled: {0.1} below 0.1, and {0.85, 0.9} below 0.9
        ([0, 1, 1, 0], [0.1, 0.85, 0.9, 0.9], {}, [0.0, 0.8], [0.1, 2.65 / 3], [1, 3], [0, 2]),
        # 0.2 came true, 0.4 did not: they are out of order and make one bin; 0.9 stands alone
        ([1, 0, 1], [0.2, 0.4, 0.9], {"strategy": "corp"}, [0.2, 0.9], [0.3, 0.9], [2, 1], [1, 1]),
    ],
)
def test_reliability_by_head(y, p, settings_, at, x, n, k):
    """Lower edges, mean scores, cases and true ones of each bin."""
    curve = reliability(y, p, **settings_)
    assert (curve.at.tolist(), curve.x.tolist()) == (pytest.approx(at), pytest.approx(x))
    assert (curve.n.tolist(), curve.k.tolist()) == (n, k)
    assert (curve.y * n).tolist() == pytest.approx(k)


def test_ece_by_head():
    """Gaps of 0.1 on three cases and 0.3 on one."""
    y, p = [0, 0, 0, 1], [0.1, 0.1, 0.1, 0.7]
    assert ece(y, p) == pytest.approx((3 * 0.1 + 0.3) / 4)
    assert ece(y, p, norm="l2") == pytest.approx(np.sqrt((3 * 0.1**2 + 0.3**2) / 4))
    assert ece(y, p, norm="max") == pytest.approx(0.3)


def test_debiased_ece_by_head():
    """Four cases at 0.9, two true: 0.4² − 0.25 / 3; at 0.6 the noise is larger than the gap: 0.

    One case: 0.
    """
    y = [0, 1, 1, 0]
    assert ece(y, [0.9] * 4, norm="l2", debias=True) == pytest.approx(np.sqrt(0.16 - 0.25 / 3))
    assert ece(y, [0.6] * 4, norm="l2", debias=True) == 0.0
    assert ece([0], [0.6], norm="l2", debias=True) == 0.0


def test_smooth_ece_by_head():
    """Eight cases at 1/2, seven of them true.

    The residual is 3/8 everywhere, whatever the kernel.
    """
    value, bandwidth = smooth_ece_with_bandwidth([1] * 7 + [0], [0.5] * 8)
    assert value == pytest.approx(0.375, rel=1e-4)
    # the least multiple of 1 / 1024 that is no smaller than the error
    assert bandwidth == 384 / 1024


SIX, EIGHT = [0, 0, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("method", "y", "score", "wanted"),
    [
        # one and two of three true; with three cases of each outcome they count as 4/5 and 1/5
        ("platt", SIX, [0, 0, 0, 1, 1, 1], {0: (4 / 5 + 2 / 5) / 3, 1: (8 / 5 + 1 / 5) / 3}),
        # 0.9 and 0.1 that are right in 3 of 4 cases: 1 / T is ln 3 / ln 9
        ("temperature", EIGHT, [0.9] * 4 + [0.1] * 4, {0.9: 0.75, 0.5: 0.5, 0.1: 0.25}),
        # three levels whose rates are 1/4, 1/2 and 3/4 are met exactly
        (
            "beta",
            [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0],
            np.repeat([0.2, 0.5, 0.9], 4),
            {0.2: 0.25, 0.5: 0.5, 0.9: 0.75},
        ),
    ],
)
def test_maps_by_head(method, y, score, wanted):
    """What each says at scores."""
    calibrator = fit(y, score, method=method)
    assert apply(calibrator, [*wanted]) == pytest.approx([*wanted.values()])


def test_venn_abers_by_head():
    """Calibration cases 0 at 10 and 1 at 20.

    A new case at 15 or 20 as 0 gives 0 or 1/2, as 1 gives 1.
    """
    calibrator = fit([0, 1], [10, 20], method="venn-abers")
    p0, p1 = venn_abers_interval(calibrator, [5, 10, 15, 20, 25])
    assert p0.tolist() == [0.0, 0.0, 0.0, 0.5, 0.5]
    assert p1.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert apply(calibrator, 15).tolist() == 0.5


# edges of bins


@pytest.mark.parametrize("bins", [5, 10, 15, 100])
def test_a_score_that_names_an_edge_belongs_to_the_bin_below(bins):
    """0.6 or 40 / 100 on an edge is the top of its bin, never the bottom of the next."""
    for j in range(1, bins):
        just_above = np.nextafter(np.linspace(0, 1, bins + 1)[j], 1.0)
        curve = reliability([1, 0], [j / bins, just_above], bins=bins)
        assert curve.at.tolist() == pytest.approx([(j - 1) / bins, j / bins])


# laws


@pytest.mark.parametrize("name", MEASURES)
@LAWFUL
@given(rows=ROWS, data=st.data())
def test_no_bit_of_a_measure_depends_on_the_order_of_cases(name, rows, data):
    """Every measure, every strategy and norm, and every bootstrap draw."""
    measure = MEASURES[name]
    shuffled = data.draw(st.permutations(rows))
    assert _bits(measure(*_columns(rows))) == _bits(measure(*_columns(shuffled)))


@pytest.mark.parametrize("method", METHODS)
@LAWFUL
@given(rows=FIT_ROWS, data=st.data())
def test_no_bit_of_a_calibrator_depends_on_the_order_of_cases(method, rows, data):
    """Fits on levels in (0, 1), ties and all."""
    shuffled = data.draw(st.permutations(rows))
    first, second = (
        fit(y, 0.02 + 0.96 * s, method=method)
        for y, s in (_columns(part, 20.0) for part in (rows, shuffled))
    )
    assert _bits(first) == _bits(second)


@LAWFUL
@given(rows=ROWS)
def test_the_parts_of_the_brier_score_make_it_up(rows):
    """To the last bit as mcb − dsc + unc; no part is negative.

    The score is the mean of (p − y)².
    """
    y, p = _columns(rows)
    score, mcb, dsc, unc = brier_decomposition(y, p)
    assert score == mcb - dsc + unc
    assert min(score, mcb, dsc, unc) >= 0.0
    assert dsc <= unc
    assert score == pytest.approx(np.mean((p - y) ** 2), abs=1e-15)


@LAWFUL
@given(rows=FIT_ROWS)
def test_isotonic_recalibration_leaves_no_error_in_sample(rows):
    """On its own cases: which is why in-sample values never stand alone."""
    y, s = _columns(rows)
    p = apply(fit(y, s, method="isotonic"), s)
    assert ece(y, p, strategy="corp", norm="max") == pytest.approx(0.0, abs=1e-15)
    assert brier_decomposition(y, p).mcb == 0.0


@LAWFUL
@given(rows=FIT_ROWS, method=st.sampled_from([m for m in METHODS if m != "platt"]))
def test_a_calibrator_never_turns_the_ranking_round(rows, method):
    """A probability rises with the score or stays, even where the data say the opposite.

    Only Platt's line may fall.
    """
    y, s = _columns(rows)
    p = apply(fit(y, 0.02 + 0.96 * s, method=method), np.linspace(0.01, 0.99, 50))
    assert np.all((p >= 0.0) & (p <= 1.0))
    assert np.all(np.diff(p) >= -1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_calibrator_survives_a_file(method):
    """Written as lists and read back it gives the same probabilities.

    Its arrays cannot be written to. A missing score stays missing: it never passes a gate.
    """
    y, s = _world(200)
    calibrator = fit(y, s, method=method)
    text = json.dumps(
        {key: np.asarray(part).tolist() for key, part in calibrator._asdict().items()}
    )
    grid = np.linspace(0.01, 0.99, 197)
    assert apply(Calibrator(**json.loads(text)), grid).tolist() == apply(calibrator, grid).tolist()
    assert not any(part.flags.writeable for part in calibrator[1:])
    assert np.isnan(apply(calibrator, [0.5, np.nan])).tolist() == [False, True]


@pytest.mark.parametrize("method", ["isotonic", "platt", "venn-abers"])
def test_scores_of_any_scale_are_calibrated(method):
    """Points, cosines and negative margins: a shift and a stretch change no probability."""
    y, s = _world(200)
    p = apply(fit(y, s, method=method), s)
    assert apply(fit(y, 640 * s - 320, method=method), 640 * s - 320) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_score_with_one_level_gets_the_base_rate(method):
    """Isotonic, beta, temperature: 3 of 4; Platt: shrunk; Venn-Abers: between 3 of 5 and 4 of 5."""
    calibrator = fit([1, 1, 1, 0], [0.6] * 4, method=method)
    wanted = {"platt": (3 * 4 / 5 + 1 / 3) / 4, "venn-abers": 0.8 / 1.2}.get(method, 0.75)
    assert float(apply(calibrator, 0.6)) == pytest.approx(wanted)


@pytest.mark.parametrize("method", ["beta", "temperature"])
def test_outcomes_that_the_score_separates_are_fitted(method):
    """No likeliest finite weights exist.

    A trace of a ridge keeps them finite, and the ends all but sure.
    """
    calibrator = fit([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], method=method)
    assert np.isfinite(calibrator.weights).all()
    assert apply(calibrator, [0.2, 0.8]) == pytest.approx([0.0, 1.0], abs=1e-6)


def test_beta_takes_sure_scores_and_temperature_does_not():
    """Beta comes as near to 0 and 1 as floats do; a logit has no value there."""
    y, s = [0, 1, 1, 0, 1], [0.0, 0.2, 0.5, 0.6, 1.0]
    assert np.isfinite(fit(y, s, method="beta").weights).all()
    with pytest.raises(ValueError, match=r"score must be in \(0, 1\) for temperature, got 0.0"):
        fit(y, s, method="temperature")


# cross-fitting


def test_folds_are_blind_to_the_outcome():
    """Of ten true cases among twenty at one score, a fold of ten gets 2 to 8, as chance has it.

    Not always 5.
    """
    y = np.arange(20) < 10
    held = [
        y[folds_of(y, np.full(20, 0.5), folds=2, rng=_rng(seed)) == 0].sum() for seed in range(400)
    ]
    assert np.mean(held) == pytest.approx(5.0, abs=0.2)
    assert np.var(held) == pytest.approx(25 / 19, rel=0.3)  # hypergeometric


def test_groups_are_never_parted():
    """Forty groups over five folds: eight a fold, each whole."""
    groups = np.repeat(np.arange(40), 5)
    fold = folds_of(*_world(200), groups=groups, rng=_rng()).reshape(40, 5)
    assert (fold == fold[:, :1]).all()
    assert np.bincount(fold[:, 0]).tolist() == [8] * 5


def test_no_case_is_judged_by_a_fit_that_saw_it():
    """Each fold gets what a calibrator fitted to the rows of the other folds says."""
    y, s = _world(40)
    fold = folds_of(y, s, rng=_rng())
    p = cross_fitted(y, s, method="isotonic", rng=_rng())
    for held in range(5):
        fitted = fold != held
        alone = apply(fit(y[fitted], s[fitted], method="isotonic"), s[~fitted])
        assert p[~fitted].tolist() == alone.tolist()


def test_in_sample_and_cross_fitted_judgements_stand_side_by_side():
    """Both hold ECE, smooth ECE and Brier score with its parts, of the same cases."""
    y, s = _world(100)
    result = calibrated(y, s, method="isotonic", rng=_rng())
    for judgement, p in (
        (result.in_sample, apply(result.calibrator, s)),
        (result.cross_fitted, result.p),
    ):
        assert judgement == (100, ece(y, p), smooth_ece(y, p), brier_decomposition(y, p))
    assert result.cross_fitted.brier.score > result.in_sample.brier.score


# resampling


@pytest.mark.parametrize("levels", [10, 10_000])
def test_the_interval_is_that_of_drawing_rows(levels):
    """Drawing counts, exact or merged, gives the ends of drawing cases within 3 standard errors."""
    rng = _rng(1)
    p = rng.integers(0, levels + 1, 3000) / levels
    y = rng.random(3000) < p**1.5
    rows = _rng(9).integers(0, y.size, (1000, y.size))
    drawn = np.array([ece(y[row], p[row], bins=10) for row in rows])
    low, high = ece_interval(y, p, bins=10, resamples=4000, rng=_rng(2))
    spread = drawn.std()
    assert abs(low - np.quantile(drawn, 0.025)) < 0.25 * spread
    assert abs(high - np.quantile(drawn, 0.975)) < 0.25 * spread
    assert low < ece(y, p, bins=10) < high


# the door


PUBLIC = {
    "reliability": reliability,
    "ece": ece,
    "smooth_ece": smooth_ece,
    "brier": brier_decomposition,
    "interval": lambda y, p: ece_interval(y, p, rng=_rng()),
}
FITS = {method: lambda y, s, method=method: fit(y, s, method=method) for method in METHODS}
DOORS = (
    PUBLIC | FITS | {"cross_fitted": lambda y, s: cross_fitted(y, s, method="isotonic", rng=_rng())}
)


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("p", [[0.3, 72.0], [-0.2, 0.4]])
def test_a_score_that_only_ranks_is_sent_to_calibration(name, p):
    """Points, cosines, distances: the message says what to do."""
    with pytest.raises(ValueError, match=r"p must be in \[0, 1\], .* calibrated first"):
        PUBLIC[name]([0, 1], p)


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize(
    ("y", "p", "says"),
    [
        ([0, np.nan], [0.1, 0.2], "y must be .* not NaN"),
        ([0, 1], [0.1, np.nan], "not NaN"),
        ([0, 1], [0.1, 0.2, 0.3], r"must be \[Q\], one of each a case"),
        ([[0, 1]], [[0.1, 0.2]], r"must be \[Q\]"),
        ([], [], "at least one"),
        ([0, 2, 3], [0.1, 0.2, 0.3], r"y must be 0 or 1 .*, got 2 at position 1"),
        (["ok", "refuse"], [0.1, 0.2], "y must be 0 or 1"),
        ([0, 1], [0.1, np.inf], "must be finite, .* got inf at position 1"),
    ],
)
def test_what_stops_at_the_door(name, y, p, says):
    """Rule, what came, remedy; the same for every measure and every fit."""
    with pytest.raises(ValueError, match=says):
        DOORS[name](y, p)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("outcome", [0, 1])
def test_one_outcome_teaches_nothing(method, outcome):
    """One class only is refused by every fit, and in every fold."""
    rule, y, s = "y must hold both outcomes to fit on", [outcome] * 9, np.linspace(0.1, 0.9, 9)
    with pytest.raises(ValueError, match=rule):
        fit(y, s, method=method)
    with pytest.raises(ValueError, match=rule):
        cross_fitted([1 - outcome, *y[1:]], s, method=method, rng=_rng())


@pytest.mark.parametrize(
    ("call", "more", "rule"),
    [
        (ece, {"bins": 0}, "bins must be at least 1, got 0"),
        (reliability, {"strategy": "width"}, "strategy must be one of uniform, quantile, corp"),
        (ece, {"norm": "L1"}, "norm must be one of l1, l2, max, got 'L1'"),
        (ece, {"debias": True}, "debias needs norm='l2', got 'l1'"),
        (ece_interval, {"level": 95, "rng": _rng()}, r"level must be in \(0, 1\), got 95"),
        (ece_interval, {"resamples": 0, "rng": _rng()}, "resamples must be at least 1, got 0"),
        (fit, {"method": "sigmoid"}, "method must be one of isotonic, .*, got 'sigmoid'"),
        (folds_of, {"folds": 4, "rng": _rng()}, "between 2 and the 3 cases, got 4"),
        (folds_of, {"folds": 3, "groups": [*"aab"], "rng": _rng()}, "2 groups, got 3"),
        (folds_of, {"folds": 2, "groups": [1, 2], "rng": _rng()}, "groups must be a label a case"),
    ],
)
def test_a_wrong_setting_is_named(call, more, rule):
    """With the range it must lie in."""
    with pytest.raises(ValueError, match=rule):
        call([0, 1, 0], [0.1, 0.2, 0.3], **more)


def test_a_calibrator_of_the_wrong_kind_is_refused():
    """Points are no scores of beta, and only Venn-Abers has intervals."""
    with pytest.raises(ValueError, match=r"score must be in \[0, 1\] for beta, got 40.0"):
        fit([0, 1], [40, 72], method="beta")
    with pytest.raises(ValueError, match="need a calibrator of method='venn-abers', got platt"):
        venn_abers_interval(fit([0, 1], [1, 2], method="platt"), 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("y", "p"), [([0], [0.0]), ([0, 1, 1, 0], [0.25] * 4), ([1, 1], [0.25, 0.75])]
)
def test_one_case_one_level_and_one_outcome_are_measured(strategy, y, p):
    """Every measure has a finite value: the gap between what was said and what came."""
    gap = abs(np.mean(p) - np.mean(y))
    assert ece(y, p, bins=1, strategy=strategy) == pytest.approx(gap)
    interval = ece_interval(y, p, strategy=strategy, rng=_rng())
    assert np.isfinite([*interval, smooth_ece(y, p), *brier_decomposition(y, p)]).all()
