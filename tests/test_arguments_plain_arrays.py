"""Plain arrays.

Missing values of every kind, and values beyond their range (kinds J and K of `outside.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab import bandit, calibration, certify, gates, metrics, off_policy, resolver, reward
from raglab.arguments.plain_arrays import float_array, plain_array, within_range
from raglab.gating import expected_cost, fused_gate
from raglab.values import Status

N, AT = 12, 2  # cases, and the position of what is missing
OUTCOMES = np.array([1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1])
SHARES = np.linspace(0.1, 0.9, N)
MISSING = {"None": None, "NaN": float("nan"), "NA": pd.NA, "NaT": pd.NaT}
DTYPES = {"boolean": "boolean", "Int64": "Int64", "arrow": "double[pyarrow]", "Float64": "Float64"}


def rng():
    """Generator of a seed."""
    return np.random.default_rng(0)


def gapped(values, *nullable):
    """Values with a missing one, as lists and as nullable columns."""
    lists = {name: [*values[:AT], gap, *values[AT + 1 :]] for name, gap in MISSING.items()}
    columns = {name: pd.Series(lists["None"], dtype=DTYPES[name]) for name in nullable}
    return lists | columns


OUTCOME_COLUMNS = gapped([bool(value) for value in OUTCOMES], "boolean", "Int64")
SHARE_COLUMNS = gapped(SHARES.tolist(), "Float64", "arrow")


# Functions of outcomes and probabilities: a missing one of either is refused.
OF_PROBABILITIES: dict[str, Callable[[Any, Any], Any]] = {
    "ece": calibration.ece,
    "smooth_ece": calibration.smooth_ece,
    "brier": calibration.brier_decomposition,
    "reliability": calibration.reliability,
    "judged": calibration.judged,
    "ece_interval": lambda y, p: calibration.ece_interval(y, p, rng=rng()),
    "fit": lambda y, p: calibration.fit(y, p, method="isotonic"),
    "cross_fitted": lambda y, p: calibration.cross_fitted(y, p, method="platt", folds=2, rng=rng()),
}
# Functions of outcomes and confidences: a missing confidence ranks last (rule of
# `metrics.selective`).
OF_CONFIDENCES: dict[str, Callable[[Any, Any], Any]] = {
    "auroc": metrics.auroc,
    "auroc_interval": metrics.auroc_interval,
    "aurc": metrics.aurc,
    "eaurc": metrics.eaurc,
    "augrc": metrics.augrc,
    "prr": metrics.prr,
    "risk_coverage": metrics.risk_coverage,
    "risk_at_coverage": lambda y, p: metrics.risk_at_coverage(y, p, 0.5),
    "coverage_at_risk": lambda y, p: metrics.coverage_at_risk(y, p, 0.5),
    "aurc_difference": lambda y, p: metrics.aurc_difference(y, p, SHARES, resamples=20, rng=rng()),
    "certify": lambda y, p: certify.certify(y, p, alpha=0.5),
}


@pytest.mark.parametrize("name", [*OF_PROBABILITIES, *OF_CONFIDENCES])
def test_a_missing_outcome_is_refused_by_position(name):
    """Whatever kind of missing it is."""
    for column in OUTCOME_COLUMNS.values():
        with pytest.raises(ValueError, match=rf"(nan|NaN).*position {AT}"):
            (OF_PROBABILITIES | OF_CONFIDENCES)[name](column, SHARES)


@pytest.mark.parametrize("name", OF_CONFIDENCES)
def test_a_missing_confidence_is_one_value_of_every_kind(name):
    """NaN by any name: all give the same figures."""
    expected = OF_CONFIDENCES[name](OUTCOMES, np.where(np.arange(N) == AT, np.nan, SHARES))
    for column in SHARE_COLUMNS.values():
        assert repr(OF_CONFIDENCES[name](OUTCOMES, column)) == repr(expected)


LOG = pd.DataFrame({"action": [0, 1] * (N // 2), "reward": SHARES, "propensity": [0.5] * N})


@pytest.mark.parametrize("kind", [*MISSING, "Float64", "Int64"])
@pytest.mark.parametrize("name", ["action", "reward", "propensity"])
def test_a_log_with_a_missing_value_is_refused_by_row(name, kind):
    """Also in an object column, where NumPy finds no numbers."""
    values = LOG[name].astype(object).tolist()
    values[AT] = MISSING.get(kind)
    dtype = DTYPES.get(kind, object) if kind != "Int64" or name == "action" else "Float64"
    log = LOG.assign(**{name: pd.Series(values, dtype=dtype)})
    with pytest.raises(ValueError, match=rf"{name} must .*in row {AT} \(1 such rows\)"):
        off_policy.estimate(log, [0.5, 0.5], ("ips", "snips"))
    with pytest.raises(ValueError, match=rf"in row {AT}"):
        off_policy.overlap(log, [0.5, 0.5])


@pytest.mark.parametrize("gap", MISSING)
def test_gates_and_resolver_take_a_missing_measurement_for_none(gap):
    """It fires, as NaN does; a nullable column too."""
    value = [0.5, MISSING[gap]]
    series = pd.Series([0.5, None], dtype="Float64")
    for values in (value, series):
        for margins in (
            gates.similarity_margins(values, gates.SimilarityThresholds(0.4)),
            gates.l2_margins(values, gates.L2Thresholds(0.8, np.nan)),
            gates.signal_margins(values, gates.SignalThresholds(min=0.4)),
        ):
            assert gates.fires(margins).tolist() == [False, True]
    thresholds = resolver.RuleThresholds(min_group_gap=0.05)
    plain = resolver.resolve([0.1, 0.2], thresholds, sig_sim=[0.5, np.nan])
    assert resolver.resolve([0.1, 0.2], thresholds, sig_sim=value) == plain


def test_rewards_and_bandits_take_no_missing_value_for_a_number():
    """Refused where one is needed, NaN where a rule says what a missing one is."""
    state, kind = bandit.init(2), bandit.Bandit()
    for gap in MISSING.values():
        with pytest.raises(ValueError, match="reward must be in"):
            bandit.update(state, 0, gap, kind)
        assert np.isnan(reward.answer_brevity([3, gap])[1])  # type: ignore[index]


def test_fits_and_costs_take_missing_values_as_their_rules_say():
    """A missing signal is NaN, a missing label refused, a missing cost the cheapest of nothing."""
    names = ("confidence",)
    values = np.array([[*(n / 20 for n in range(19)), None]], dtype=object)
    right = np.arange(20) > 9
    plain = fused_gate.fit_fusion(
        np.where(np.arange(20) == 19, np.nan, np.arange(20) / 20)[None], right, names
    )
    assert fused_gate.fit_fusion(values, right, names) == plain
    with pytest.raises(
        ValueError, match="right must not be missing, got 1 of 20, the first at position 19"
    ):
        fused_gate.fit_fusion(values, [*right[:-1].tolist(), pd.NA], names)
    costs = expected_cost.least_cost([0.1, None], [0.2, 0.2], [0.3, pd.NA], [True, True])
    assert costs.tolist() == [Status.ok, Status.refuse]


HITS = pd.DataFrame(
    [("q1", "Who pays?", "a", 0.9, "ok"), ("q2", "Who am I?", "a", 0.8, "refuse")],
    columns=["case_id", "query", "hit_id", "score", "label"],
)


@pytest.mark.parametrize("gap", MISSING)
def test_signals_and_frames_read_a_missing_value(gap):
    """A signal is NaN there; a hit without a score is refused by row."""
    trace = raglab.trace_from_frame(HITS)
    judged = trace.with_signal("judge", [0.5, MISSING[gap]], higher="surer", unit="probability")
    assert np.isnan(judged.columns["judge"].ravel()).tolist() == [False, True]
    with pytest.raises(ValueError, match="row 1, column score: a hit must have a score"):
        raglab.trace_from_frame(HITS.assign(score=pd.Series([0.9, MISSING[gap]], dtype=object)))


# Kind K: rounding is clipped and said once, the digits that matter are shown, the hint fits.
def test_rounding_counts_as_the_end_of_the_range():
    """A cosine or probability in single precision, at every door; one warning counts them."""
    beyond = float(np.float32(1.0) + np.finfo(np.float32).eps)
    with pytest.warns(UserWarning, match=r"1 of 2 p lie beyond \[0, 1\]") as caught:
        assert calibration.ece([1, 0], [beyond, 0.2]) == calibration.ece([1, 0], [1.0, 0.2])
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="1 of 2 score of frame lie beyond"):
        assert raglab.trace_from_frame(HITS.assign(score=[beyond, 0.5])).hits.l2.min() == 0.0
    with pytest.warns(UserWarning, match="1 of 12 propensity lie beyond"):
        off_policy.overlap(LOG.assign(propensity=[beyond, *[0.5] * 11]), [0.5, 0.5])
    with pytest.warns(UserWarning, match="1 of 1 reward lie beyond"):
        bandit.update(bandit.init(2), 0, beyond, bandit.Bandit())
    with pytest.warns(UserWarning, match="1 of 12 correct lie beyond"):
        certify.certify([beyond, *OUTCOMES[1:]], SHARES, alpha=0.5)


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.none(), st.floats(-2, 2), st.booleans(), st.integers(-5, 5)), max_size=6
    )
)
def test_arrays_of_any_cells(values):
    """The numbers stay, what is missing is NaN, and nothing within its range is moved."""
    array = float_array(pd.Series(values, dtype=object), "x")
    assert [None if np.isnan(value) else value for value in array] == [
        None if value is None else float(value) for value in values
    ]
    assert plain_array(values, "x").shape == array.shape
    assert within_range(array, -5.0, 5.0, "x") is array
