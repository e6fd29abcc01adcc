"""Fitting the decision by expected cost.

The loss, the bounds, the calibration, and what it reads.
"""

from __future__ import annotations

import numpy as np
import pytest

from labelled import free_policy, labelled, relabelled
from raglab.decision.measurement import measured_tables
from raglab.lab.decision_fitting import (
    ABSENT_LOGIT,
    OUTCOME_CLASSES,
    DecisionCases,
    decide_by_model,
    decision_cases,
    fit_decision,
    fit_model,
    penalty_shares,
    scaled_signals,
    usable_signals,
)
from raglab.lab.group_fitting import log_softmax
from raglab.replay import decide
from raglab.signals import NAMES, signal
from raglab.values import Status
from refusals import refused

SPLITS = {"tune": 120, "certify": 60, "report": 60}
EITHER = ("words", "complexity", "intent_graph", "intent_table")  # no direction is declared
SURER, ASKS = ("confidence", "top1_cosine", "gap"), ("groups", "options", "gaps")


def _cases(seed, n=300, names=EITHER, classes=4, steep=1.5):
    """Cases drawn from a multinomial logistic on standard normal signals.

    The rest is missing everywhere.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(names)))
    weights = rng.normal(size=(classes, len(names))) * steep
    chance = np.exp(log_softmax(x @ weights.T))
    drawn = np.array([rng.choice(classes, p=row) for row in chance])
    signals = np.full((len(NAMES), n), np.nan)
    signals[[NAMES.index(name) for name in names]] = x.T
    return DecisionCases(signals, drawn.astype(np.int64), rng.random(n) < 0.8, rng.random(n) < 0.7)


@pytest.mark.parametrize("strength", [0.03, 0.3, 1.0])
def test_without_directions_it_is_the_multinomial_logistic(strength):
    """Against scikit-learn on signals scaled by what the penalty allows each, calibration aside.

    To a thousandth.
    """
    from sklearn.linear_model import LogisticRegression

    cases = _cases(2, steep=1.0)
    model = fit_model(cases, strengths=(strength,))
    rows = cases.signals[[NAMES.index(name) for name in model.names]]
    x = scaled_signals(rows, model.center, model.scale)
    root = np.sqrt(penalty_shares(x, np.eye(len(OUTCOME_CLASSES))[cases.classes]))
    peer = LogisticRegression(C=strength, tol=1e-10, max_iter=5_000).fit(x * root, cases.classes)
    logits = x @ (model.weights / model.temperature).T + model.bias / model.temperature
    np.testing.assert_allclose(np.exp(log_softmax(logits)), peer.predict_proba(x * root), atol=3e-3)
    centred = model.weights / model.temperature
    np.testing.assert_allclose(
        centred - centred.mean(axis=0), root * (peer.coef_ - peer.coef_.mean(axis=0)), atol=1e-2
    )


@pytest.mark.parametrize("seed", range(3))
def test_weights_obey_the_declared_direction(seed):
    """More of what is surer never speaks against an answer, of what asks never against asking."""
    cases = _cases(seed, names=SURER + ASKS)
    model = fit_model(cases)
    for place, name in enumerate(model.names):
        own = OUTCOME_CLASSES.index("right" if signal(name).direction == "surer" else "ambiguous")
        assert model.weights[own, place] == 0.0
        assert (model.weights[:, place] <= 0.0).all()
    before = model.probabilities(cases.signals)
    for name in model.names:
        more = cases.signals.copy()
        more[NAMES.index(name)] += 0.5
        own = OUTCOME_CLASSES.index("right" if signal(name).direction == "surer" else "ambiguous")
        assert (model.probabilities(more)[own] >= before[own] - 1e-12).all()


@pytest.mark.parametrize("absent", ["refuse", "ambiguous"])
def test_a_label_that_is_absent_never_gets_its_action(absent):
    """Of a class without cases the chance is none, and its weights are 0."""
    cases = _cases(3, names=EITHER)
    keep = cases.classes != OUTCOME_CLASSES.index(absent)
    model = fit_model(cases.rows(keep))
    assert model.bias[OUTCOME_CLASSES.index(absent)] == ABSENT_LOGIT
    assert (model.weights[OUTCOME_CLASSES.index(absent)] == 0.0).all()
    assert model.probabilities(cases.signals)[OUTCOME_CLASSES.index(absent)].max() < 1e-6
    if absent == "ambiguous":
        assert model.asked_right == 0.0


def test_the_same_bytes_twice():
    """Same cases and seed, same policy."""
    trace = labelled(1, SPLITS)
    first, second = (fit_decision(trace, free_policy(), seed=3) for _ in range(2))
    assert first.policy_id == second.policy_id


def test_too_few_cases_are_refused():
    """Ten that would be answered right and ten others: the message counts what there is."""
    cases = _cases(5, n=60)
    few = np.flatnonzero(cases.classes == 0)[:9]
    rest = np.flatnonzero(cases.classes != 0)
    refused(
        rf"at least 10 cases .* got 9 and {len(rest)}; label more",
        fit_model,
        cases.rows(np.concatenate([few, rest])),
    )
    refused(r"got .* and 0", fit_model, cases._replace(classes=np.zeros_like(cases.classes)))


def test_constant_and_missing_signals_are_dropped():
    """They tell no two cases apart.

    Where all do not, the message says so, and a name that is none is named.
    """
    cases = _cases(6)
    signals = cases.signals.copy()
    signals[NAMES.index("words")] = 3.0
    # constant but for its last digit
    signals[NAMES.index("nqc")] = 1.0 / 3.0 + np.arange(60 * 5) % 2 * 1e-16
    assert usable_signals(signals) == tuple(
        name for name in NAMES if name in EITHER and name != "words"
    )
    assert "words" not in fit_model(cases._replace(signals=signals)).names
    refused(
        "needs a signal that differs between cases, got words, gap",
        fit_model,
        cases._replace(signals=signals),
        signal_names=("words", "gap"),
    )


def test_a_missing_value_counts_as_the_mean():
    """In the fit and in the policy: a case without a signal is decided as one at its centre."""
    cases = _cases(7)
    model = fit_model(cases)
    row = NAMES.index("words")
    missing, central = cases.signals.copy(), cases.signals.copy()
    missing[row] = np.nan
    central[row] = model.center[model.names.index("words")]
    np.testing.assert_allclose(
        model.probabilities(missing), model.probabilities(central), atol=1e-12
    )


def test_the_policy_says_what_the_fit_says():
    """Rounded to six digits: probabilities of the trace are those of the fitted model to 1e-4."""
    trace = labelled(2, {"tune": 200}, missing=0.1)
    base = free_policy()
    cases = decision_cases(measured_tables(trace, base).evidence)
    model = fit_model(cases)
    chosen = decide_by_model(base, model, "hybrid")
    np.testing.assert_allclose(
        measured_tables(trace, chosen).evidence.probability[:, 0],
        model.probabilities(cases.signals),
        atol=1e-4,
    )


def test_classes_say_what_would_have_been_right():
    """Right where the first hits hold what is expected, a miss where not, and the label else."""
    trace = labelled(3, {"tune": 100}, missing=0.1)
    cases = decision_cases(measured_tables(trace, free_policy()).evidence)
    for row, case in enumerate(trace.cases):
        hit = trace.hits.chunk[row, 0, 0, 0] >= 0
        expected = "refuse" if case.expect_status == "refuse" else "miss"
        if case.expect_status == "ok" and hit and case.expect_sources == ("guide.md",):
            expected = "right"
        assert OUTCOME_CLASSES[cases.classes[row]] == expected


def test_only_split_tune_is_read():
    """Other labels in certify and report give the same policy, byte for byte.

    Without a right answer in tune nothing is fitted.
    """
    trace = labelled(4, SPLITS)
    policy_id = fit_decision(trace, free_policy()).policy_id
    assert (
        fit_decision(relabelled(trace, "certify", "report"), free_policy()).policy_id == policy_id
    )
    refused("at least 10 cases", fit_decision, relabelled(trace, "tune"), free_policy())
    assert fit_decision(trace.split("tune"), free_policy()).policy_id == policy_id


def test_costs_go_into_the_policy_and_change_no_model():
    """Own costs are stated beside the same numbers.

    A cost that is none stops before anything is fitted.
    """
    trace = labelled(5, {"tune": 120})
    plain, dear = (
        fit_decision(trace, free_policy(), costs=c)
        for c in (None, {"refuse": {"answered_wrong": 10}})
    )
    assert dear.decision.model == plain.decision.model
    assert dear.value("decision.costs.refuse.answered_wrong") == 10.0
    counts = [(decide(trace, one).status == Status.ok).sum() for one in (plain, dear)]
    assert counts[1] < counts[0]
    refused(
        "an outcome of costs must be one of",
        fit_decision,
        trace,
        free_policy(),
        costs={"refuse": {"wrong": 10}},
    )
