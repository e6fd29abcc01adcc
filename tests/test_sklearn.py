"""The scikit-learn face: an estimator like any other, which decides as the primitives do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from raglab.gating.expected_cost import OUTCOME_CLASSES, action_costs, expected_costs, least_cost
from raglab.metrics.costs import cost_matrix
from raglab.sklearn import PolicyClassifier
from raglab.values import Status

COLUMNS = ["p_correct", "groups"]


def table(seed=0, rows=240):
    """Signals of three kinds of questions, which overlap, and their statuses."""
    rng = np.random.default_rng(seed)
    status = rng.integers(0, 3, rows)
    p_correct = np.clip(
        np.array([0.7, 0.3, 0.5])[status] + rng.normal(0.0, 0.15, rows), 0.0, 1.0
    ).round(2)
    groups = np.array([1.0, 1.0, 3.0])[status] + rng.integers(0, 2, rows)
    return pd.DataFrame({"p_correct": p_correct, "groups": groups}), np.array(
        ["ok", "refuse", "ambiguous"]
    )[status]


def test_scikit_learn_takes_it_for_an_estimator():
    """All of its checks but that of texts, which have no order without `positive`.

    What is skipped needs array libraries that are not installed.
    """
    outcomes = check_estimator(PolicyClassifier(), on_fail=None, on_skip=None)
    assert {
        row["check_name"]: str(row["exception"])[:8]
        for row in outcomes
        if row["status"] == "failed"
    } == {"check_classifiers_classes": "positive"}
    assert {row["check_name"] for row in outcomes if row["status"] == "skipped"} <= {
        "check_array_api_input"
    }
    assert len(outcomes) > 50


def test_it_answers_refuses_and_asks_back():
    """Better than the most frequent label, in folds it did not see, alone and in a pipeline."""
    signals, labels = table()
    model = PolicyClassifier(directions={"p_correct": "surer", "groups": "ask"})
    assert cross_val_score(model, signals, labels, cv=4).min() > 0.6
    assert (
        cross_val_score(make_pipeline(FunctionTransformer(), model), signals, labels, cv=4).min()
        > 0.6
    )
    fitted = model.fit(signals, labels)
    assert set(fitted.predict(signals)) == {"ok", "refuse", "ambiguous"}
    assert fitted.classes_.tolist() == ["ambiguous", "ok", "refuse"]
    assert fitted.feature_names_in_.tolist() == COLUMNS


@settings(max_examples=12)
@given(st.floats(0.1, 20.0), st.floats(0.0, 2.0), st.integers(0, 5))
def test_it_decides_as_the_primitives_do(wrong, asked, seed):
    """The action of least expected cost, of the probabilities that it gives."""
    signals, labels = table(seed, 60)
    costs = {"refuse": {"answered_wrong": wrong}, "ok": {"asked": asked}}
    model = PolicyClassifier(costs=costs).fit(signals, labels)
    probability = model.predict_proba(signals)
    by_class = np.zeros((len(OUTCOME_CLASSES), len(signals)))
    for status, place in (("ok", "right"), ("refuse", "refuse"), ("ambiguous", "ambiguous")):
        by_class[OUTCOME_CLASSES.index(place)] = probability[
            :, model.classes_.tolist().index(status)
        ]
    least = least_cost(
        *expected_costs(by_class, 1.0, action_costs(cost_matrix(costs))), can_ask=True
    )
    assert model.predict(signals).tolist() == [Status(status).name for status in least.tolist()]


def test_thresholds_refuse_whatever_the_probabilities_say():
    """At the threshold a row passes; below it, or without a value, it does not.

    `set_params` needs no new fit.
    """
    signals, labels = table()
    model = PolicyClassifier(costs={"refuse": {"answered_wrong": 0.0}, "ok": {"refused": 9.0}}).fit(
        signals, labels
    )
    rows = pd.DataFrame({"p_correct": [0.8, 0.79, np.nan], "groups": [1.0, 1.0, 1.0]})
    assert model.predict(rows).tolist() == ["ok", "ok", "ok"]
    assert model.set_params(thresholds={"p_correct": 0.8}).predict(rows).tolist() == [
        "ok",
        "refuse",
        "refuse",
    ]


def test_two_labels_of_any_kind():
    """The greater number means that an answer would be right, or the text that is `positive`."""
    signals, labels = table()
    right = labels == "ok"
    model = PolicyClassifier().fit(signals, right)
    assert model.classes_.tolist() == [False, True]
    assert np.corrcoef(model.predict_proba(signals)[:, 1], right)[0, 1] > 0.5
    expected = model.predict(signals).tolist()
    assert (
        PolicyClassifier().fit(signals, right * 3 - 1).predict(signals) == 2
    ).tolist() == expected
    for good, bad in (("correct", "incorrect"), ("OK", "REFUSE")):
        texts = np.where(right, good, bad)
        with pytest.raises(ValueError, match="positive must be the label of right answers"):
            PolicyClassifier().fit(signals, texts)
        named = PolicyClassifier(positive=good).fit(signals, texts)
        assert (named.predict(signals) == good).tolist() == expected
        kept = named.set_params(thresholds={"p_correct": 2.0}).predict(signals)
        assert set(kept) == {bad}


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"thresholds": {"p_corect": 0.5}}, "thresholds must name columns .* got 'p_corect'"),
        ({"thresholds": {"p_correct": float("nan")}}, "finite number, got nan"),
        ({"directions": {"p_correct": "more"}}, "direction must be one of .* got 'more'"),
        ({"costs": {"refused": {"ok": 1.0}}}, "costs"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, match):
    """By `fit`; by `predict` too where it was set after."""
    signals, labels = table()
    with pytest.raises(ValueError, match=match):
        PolicyClassifier(**parameters).fit(signals, labels)
    if "directions" not in parameters:
        with pytest.raises(ValueError, match=match):
            PolicyClassifier().fit(signals, labels).set_params(**parameters).predict(signals)


def test_labels_that_are_neither_statuses_nor_two_are_refused():
    """With their number."""
    signals, _ = table(rows=30)
    with pytest.raises(ValueError, match="got 3 classes"):
        PolicyClassifier().fit(signals, np.arange(30) % 3)
    with pytest.raises(ValueError, match="at least 2 cases that would be answered right"):
        PolicyClassifier().fit(signals, np.where(np.arange(30) % 2, "refuse", "ambiguous"))
