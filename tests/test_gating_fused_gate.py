"""The fused gate: one probability from all signals.

As arrays, in a policy, in the chain, fitted on labelled cases.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import free_policy, labelled, shuffled
from raglab import metrics
from raglab.gating.fused_gate import (
    Model,
    Part,
    fit_fusion,
    fused_probability,
    logit,
    logit_contributions,
    rank_knots,
    rescale_logit,
)
from raglab.lab.gate_fitting import case_signals, compare_gates, fit_boosting, fit_fused_gate
from raglab.lab.untuned_policies import published_policy
from raglab.policy import PolicyData
from raglab.replay import decide, sweep, tally
from raglab.signals import SIGNALS
from raglab.store.policies import Policy
from raglab.values import Status
from worlds import FUSED, Hit, ask, policy, random_policies, random_trace, trace_of

NAN = float("nan")
LAWFUL = settings(deadline=None, derandomize=True, max_examples=60)
SIGNAL = st.sampled_from([-1.0, 0.0, 0.25, 0.3, 0.5, 1.0, 40.0, NAN])
CASE = st.lists(SIGNAL, min_size=len(SIGNALS), max_size=len(SIGNALS)).map(np.array)
MODEL = Model(
    -0.5,
    (
        Part("confidence", (0.0, 50.0, 100.0), (-2.0, 0.5, 2.0)),
        Part("gap", (0.0, 0.25, 0.5), (-1.0, -1.0, 1.0)),
        Part("keyword_share", (0.5,), (0.3,)),
    ),
)


# the primitive


@LAWFUL
@given(case=CASE)
def test_parts_sum_to_the_logit(case):
    """Bias and contributions make the logit, and that the probability to ten digits."""
    total = MODEL.bias + logit_contributions(case, MODEL).sum()
    if np.isnan(case[[SIGNALS.index(part.signal) for part in MODEL.parts]]).all():
        assert np.isnan(logit(case, MODEL))
        assert np.isnan(fused_probability(case, MODEL))
    else:
        assert float(logit(case, MODEL)) == total
        assert float(fused_probability(case, MODEL)) == round(
            1.0 / (1.0 + float(np.exp(-total))), 10
        )


@LAWFUL
@given(case=CASE, more=st.integers(0, len(SIGNALS) - 1), value=SIGNAL)
def test_a_surer_signal_never_lowers_the_probability(case, more, value):
    """Neither does one that is measured instead of missing."""
    raised = case.copy()
    raised[more] = value if np.isnan(case[more]) else np.fmax(value, case[more])
    before, after = float(fused_probability(case, MODEL)), float(fused_probability(raised, MODEL))
    assert np.isnan(before) or after >= before


def test_a_missing_signal_adds_the_least():
    """As its lowest knot and anything below; one of many is a cell of many."""
    signals = np.full((len(SIGNALS), 2, 3), NAN)
    signals[SIGNALS.index("gap")] = [[NAN, -9.0, 0.0], [0.25, 0.375, 9.0]]
    parts = logit_contributions(signals, MODEL)
    assert parts[1].tolist() == [[-1.0, -1.0, -1.0], [-1.0, 0.0, 1.0]]
    assert (parts[0] == -2.0).all()
    assert (parts[2] == 0.3).all()
    assert np.array_equal(
        fused_probability(signals[:, 1, 2], MODEL), fused_probability(signals, MODEL)[1, 2]
    )
    assert np.isnan(fused_probability(signals, MODEL)[0, 0])


def _drawn(seed, n=200):
    rng = np.random.default_rng(seed)
    signals = np.full((len(SIGNALS), n), NAN)
    sure = rng.random(n)
    for row, spread in ((0, 0.1), (3, 0.3), (6, 5.0)):
        signals[row] = np.round(np.clip(sure + rng.normal(0.0, spread, n), 0.0, 1.0), 1)
    signals[3, rng.random(n) < 0.1] = NAN
    signals[8] = 1.0 - signals[0]  # ranks against the labels
    return signals, rng.random(n) < sure


@settings(deadline=None, derandomize=True, max_examples=4)
@given(seed=st.integers(0, 99))
def test_a_fit_is_monotone_and_blind_to_the_order_of_the_rows(seed):
    """Parts never fall, what ranks against labels has none, bits are the same in any order.

    They are the same every time.
    """
    signals, right = _drawn(seed)
    model = fit_fusion(signals, right)
    assert all(first <= two for part in model.parts for first, two in pairwise(part.y))
    assert "signature_similarity" not in {part.signal for part in model.parts}
    order = np.random.default_rng(seed).permutation(len(right))
    assert fit_fusion(signals[:, order], right[order]) == model == fit_fusion(signals, right)


def test_a_fit_to_one_signal_is_logistic_regression():
    """Of scikit-learn, on the standardised normal scores of its ranks, with C = 1."""
    from sklearn.linear_model import LogisticRegression

    signals, right = _drawn(0)
    signals[1:] = NAN
    x, z = rank_knots(signals[0])
    column = z[np.searchsorted(x, signals[0])]
    theirs = LogisticRegression(C=1.0, tol=1e-10).fit(
        ((column - column.mean()) / column.std())[:, None], right
    )
    ours = logit(signals, fit_fusion(signals, right))
    want = theirs.decision_function(((column - column.mean()) / column.std())[:, None])
    np.testing.assert_allclose(ours, want, atol=1e-5)


def test_a_fit_needs_both_kinds_and_a_signal_that_varies():
    """One class, no case, constant signals; and a calibration that would turn the ranking round."""
    signals, right = _drawn(0)
    for few in (np.ones_like(right), np.zeros_like(right), right[:0]):
        with pytest.raises(ValueError, match="must see right and wrong cases, got"):
            fit_fusion(signals[:, : len(few)], few)
    with pytest.raises(ValueError, match="needs a signal that varies, got none"):
        fit_fusion(np.ones_like(signals), right)
    for slope in (0.0, -1.0, NAN):
        with pytest.raises(
            ValueError, match=r"slope must be positive, got .* keep to a single gate"
        ):
            rescale_logit(MODEL, slope, 0.0)
    assert logit(signals, rescale_logit(MODEL, 2.0, 1.0)) == pytest.approx(
        2.0 * logit(signals, MODEL) + 1.0, nan_ok=True
    )


# in a policy


@pytest.mark.parametrize(
    ("section", "rule"),
    [
        (
            {"parts": {"my.cosine": {"x": [0.0], "y": [0.0]}}},
            r"fused: parts must name signals .* got 'my.cosine'",
        ),
        (
            {"parts": {"gap": {"x": [0.0, 0.0], "y": [0.0, 1.0]}}},
            r"fused.parts.gap: x must ascend and y must not fall",
        ),
        (
            {"parts": {"gap": {"x": [0.0], "y": []}}},
            r"fused.parts.gap: x and y must be as many finite numbers",
        ),
        (
            {"parts": {"gap": {"x": [0.0], "y": [NAN]}}},
            r"fused.parts.gap.y.0: input should be a finite number",
        ),
        ({"parts": {"gap": {"x": [0.0]}}}, r"fused.parts.gap.y: field required"),
        ({"enabled": True}, "a fused gate without parts refuses everything; fit one"),
        ({"bias": float("inf")}, "fused.bias"),
        ({"min_fused": 50.0}, r"fused.min_fused: .* got 50.0; it is a share"),
    ],
)
def test_bad_parts_are_refused_with_key_and_rule(section, rule):
    """What stands in the file, which rule it breaks."""
    with pytest.raises(ValueError, match=rule):
        PolicyData.from_mapping({"fused": section})


def test_a_model_travels_in_the_yaml(tmp_path):
    """To the last bit.

    Parts in any order are one model and one policy_id, another knot is another.
    """
    saved = Policy.from_mapping({"fused": FUSED | {"enabled": True, "bias": 0.1 + 0.2}})
    saved.save(tmp_path / "p.yaml")
    loaded = Policy.load(tmp_path / "p.yaml")
    assert (loaded, loaded.fused_model) == (saved, saved.fused_model)
    turned = saved.replace("fused.parts", dict(reversed(saved.fused.model_dump()["parts"].items())))
    assert (turned.policy_id, turned.structure) == (saved.policy_id, saved.structure)
    assert (
        saved.replace("fused.parts", {"gap": {"x": [0.0], "y": [0.0]}}).policy_id != saved.policy_id
    )


# in the chain


def _fused_policy(**more):
    return policy(
        fused={"enabled": True, "min_fused": 0.5, **FUSED, **more}, gap={"enabled": False}
    )


def test_the_gate_stands_between_similarity_and_confidence():
    """Two hits 0.25 apart, cosine 0.875, confidence 50.

    Logit 0.5 + 0 - 0.5 - 0.5 is below one half.
    """
    trace = trace_of((ask(), [[Hit(0.25), Hit(0.5)]]))
    low = _fused_policy()
    probability = float(1.0 / (1.0 + np.exp(0.5)))
    decisions = decide(trace, low)
    assert (decisions.stage(0), decisions.frame()["decided_by"][0]) == ("fused", "fused")
    assert decisions.reason(0).startswith(
        "fused probability 0.3775 is below min_fused 0.5; in logits: "
    )
    assert (
        decide(trace, low.replace("fused.min_fused", round(probability, 10))).status[0] == Status.ok
    )
    both = low.replace("similarity.enabled", True, "similarity.min_similarity", 0.9)
    assert decide(trace, both).stage(0) == "similarity"
    after = low.replace(
        "fused.min_fused", 0.1, "confidence.enabled", True, "confidence.tau_default", 60.0
    )
    assert decide(trace, after).stage(0) == "confidence"
    order = [check.gate for check in decide(trace, after).explain("q")]
    assert order[order.index("similarity") :] == [
        "similarity",
        "fused",
        "sufficiency",
        "confidence",
    ]


def test_an_explanation_names_the_parts_and_they_add_up():
    """Largest entry, with the bias, to four decimals; off and missing are said too."""
    trace = trace_of((ask(), [[Hit(0.25), Hit(0.5)]]), (ask("empty"), [[]]))
    check = next(
        entry for entry in decide(trace, _fused_policy()).explain("q0") if entry.gate == "fused"
    )
    assert (check.rule, check.passes, check.threshold) == ("S2.14", False, 0.5)
    assert check.margin == check.value - 0.5
    logits = dict(re.findall(r"(\w+) ([+-]\d+(?:\.\d+)?)", check.text.partition("in logits: ")[2]))
    assert set(logits) == {"confidence", "gap", "top1_cosine", "bias"}
    shares = [abs(float(value)) for name, value in logits.items() if name != "bias"]
    assert shares == sorted(shares, reverse=True)
    assert sum(map(float, logits.values())) == pytest.approx(
        np.log(check.value / (1.0 - check.value)), abs=3e-4
    )
    assert decide(trace, _fused_policy()).stage(1) == "no_hits"
    off = next(
        entry
        for entry in decide(trace, _fused_policy(enabled=False)).explain("q0")
        if entry.gate == "fused"
    )
    assert (off.passes, "(gate off)" in off.text) == (True, True)


@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_a_gate_that_sees_nothing_refuses(bound):
    """One hit has no gap: the model's only signal is missing, and no threshold lets that pass."""
    trace = trace_of((ask(), [[Hit(0.25)]]))
    blind = _fused_policy(min_fused=bound, parts={"gap": {"x": [0.0, 1.0], "y": [5.0, 9.0]}})
    decisions = decide(trace, blind)
    assert decisions.stage(0) == "fused"
    assert decisions.reason(0).startswith(f"fused probability is missing, min_fused {bound:g}; ")
    assert sweep(trace, [blind])["decided_by.fused"][0] == 1
    assert decide(trace, blind.replace("fused.enabled", False)).status[0] == Status.ok


def test_policies_with_other_models_are_measured_apart():
    """One tally over two models is the tally of each."""
    trace = random_trace(3, n_cases=8)
    first = random_policies(3, 1, fused__enabled=True, fused__min_fused=0.5)[0]
    two = first.replace("fused.bias", 5.0)
    together = tally(trace, [first, two, first]).counts.tolist()
    assert together == [tally(trace, [each]).counts[0].tolist() for each in (first, two, first)]


# fitted on labelled cases


FREE = free_policy()
SPLITS = {"tune": 240, "report": 120}


@pytest.fixture(scope="module")
def trace():
    """Two splits on coarse signals, so that cases tie in all of them."""
    return labelled(5, SPLITS, steps=5, missing=0.05)


@pytest.mark.parametrize("method", ["logistic", "boosting"])
def test_a_fitted_gate_is_in_its_policy(trace, method):
    """Fitted on tune only, calibrated; the policy's probabilities are the model's."""
    fitted = fit_fused_gate(trace, FREE, method=method)
    tune = trace.split("tune")
    assert [case.id for case in fitted.fitted_on.cases] == [case.id for case in tune.cases]
    assert fitted.policy.fused_model == Model(fitted.model.bias, tuple(sorted(fitted.model.parts)))
    assert fitted.policy.fused.enabled
    assert fitted.policy.fused.min_fused == FREE.fused.min_fused
    signals = case_signals(tune, FREE)
    p = fused_probability(signals.score, fitted.model)
    decisions = decide(tune, fitted.policy)
    assert np.allclose(decisions.tables.evidence.fused[0], p, rtol=0.0, atol=2e-10, equal_nan=True)
    assert (np.isnan(p) == np.isnan(fitted.p)).all()
    assert np.isnan(p).any()
    known = ~np.isnan(p)
    assert p[known].mean() == pytest.approx(signals.right[known].mean(), abs=0.05)
    assert fitted.quality["probabilities"].tolist() == ["in sample", "cross-fitted"]
    assert fitted.quality["Brier"].iloc[0] == pytest.approx(
        np.mean((p - signals.right)[known] ** 2)
    )


@pytest.mark.parametrize("method", ["logistic", "boosting"])
def test_the_order_of_the_cases_changes_nothing(trace, method):
    """Model, quality, and each case's cross-fitted probability by id, ties of all signals too."""
    fitted = fit_fused_gate(trace, FREE, method=method)
    again = fit_fused_gate(shuffled(trace, 1), FREE, method=method)
    assert again.model == fitted.model
    assert again.quality.equals(fitted.quality)
    of_id = {case.id: p for case, p in zip(again.fitted_on.cases, again.p.tolist(), strict=True)}
    assert np.array_equal(
        [of_id[case.id] for case in fitted.fitted_on.cases], fitted.p, equal_nan=True
    )


def test_cross_fitted_probabilities_come_from_fits_that_did_not_see_the_case():
    """Trees on 150 cases flatter themselves.

    In sample they are a good deal better than cross-fitted.
    """
    tables = [
        fit_fused_gate(labelled(seed, {"": 150}, steps=None), FREE, method="boosting").quality
        for seed in range(2)
    ]
    for measure in ("Brier", "AURC"):
        inside, outside = np.mean([table[measure] for table in tables], axis=0)
        assert outside > 1.1 * inside


@pytest.mark.parametrize("levels", [5, None])
def test_the_polylines_of_boosting_are_its_trees(levels):
    """On the cases it was fitted to, to 1e-9; a missing signal is its lowest value."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    signals = case_signals(labelled(6, {"": 400}, steps=levels, missing=0.05), FREE)
    used = [
        row
        for row, values in enumerate(signals.score)
        if len(np.unique(values[~np.isnan(values)])) > 1
    ]
    design = np.stack(
        [np.where(np.isnan(row), np.nanmin(row), row) for row in signals.score[used]], axis=1
    )
    order = np.lexsort((signals.right, *design.T[::-1]))
    trees = HistGradientBoostingClassifier(
        max_iter=150,
        learning_rate=0.1,
        max_leaf_nodes=2,
        min_samples_leaf=20,
        monotonic_cst=[1] * len(used),
        early_stopping=False,
        random_state=0,
    )
    with threadpool_limits(1, user_api="openmp"):
        want = trees.fit(design[order], signals.right[order]).decision_function(design)
    model, known = fit_boosting(signals.score, signals.right), ~np.isnan(signals.score).all(axis=0)
    np.testing.assert_allclose(logit(signals.score, model)[known], want[known], atol=1e-9)
    assert all(first <= two for part in model.parts for first, two in pairwise(part.y))


def test_gates_are_compared_at_equal_risk_and_coverage(trace):
    """A row a signal, the fused gate and the published chain; lowest AURC first.

    What is missing never answers.
    """
    report, chosen = trace.split("report"), fit_fused_gate(trace, FREE).policy
    table = compare_gates(report, chosen, resamples=200).set_index("gate")
    assert set(table.index) == {*SIGNALS, "fused", "published chain"}
    assert table["AURC"].dropna().is_monotonic_increasing
    signals = case_signals(report, chosen)
    for name, values in zip(SIGNALS, signals.score, strict=True):
        row = table.loc[name]
        assert row["AURC"] == metrics.aurc(signals.right, values)
        assert row["difference"] == pytest.approx(
            row["AURC"] - table.loc["fused", "AURC"], abs=1e-12
        )
        assert row["low"] <= row["difference"] <= row["high"]
    chain, best = table.loc["published chain"], table.loc["fused"]
    answers = float(
        metrics.risk_at_coverage(
            signals.right, fused_probability(signals.score, chosen.fused_model), chain["coverage"]
        )
    )
    assert best["risk"] == answers
    assert best["coverage"] == metrics.coverage_at_risk(
        signals.right, fused_probability(signals.score, chosen.fused_model), chain["risk"]
    )
    costs = {"refuse": {"answered_wrong": 10}, "ok": {"refused": 0.3}}
    paid = compare_gates(report, chosen, resamples=1, costs=costs).set_index("gate")
    swept = sweep(report, [published_policy(chosen)], costs=costs)["expected_cost"][0]
    assert paid.loc["published chain", "expected_cost"] == swept
    again = compare_gates(shuffled(report, 1), chosen, resamples=200).set_index("gate")
    assert again.equals(table)
    with pytest.raises(ValueError, match="only with a fused one, got a policy without"):
        compare_gates(report, FREE)
