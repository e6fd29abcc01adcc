"""Score models: what is kept as numbers is what scikit-learn fitted; a file holds nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from raglab.extensions.learned_signals.score_models import (
    LEAF_PENALTY,
    LEARNING_RATE,
    MIN_LEAF_CASES,
    TREES_BY_DEPTH,
    Logistic,
    Recipe,
    ScoreModel,
    Trees,
    choose_recipe,
    fit_score_model,
    model_record,
    parse_model,
)
from raglab.lab.held_out_groups import grouped_folds

NAMES = ("a", "b", "c", "flat")
GROUPS = {"signal": ("a", "b"), "noise": ("c", "flat")}
BOTH = ("signal", "noise")


def cases(n=300, seed=0):
    """Features with some missing, and labels that hang on the first two."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 3] = 1.0
    y = x[:, 0] - x[:, 1] + rng.normal(size=n) > 0.0
    x[rng.random(n) < 0.1, 1] = np.nan
    return x, y


def test_a_logistic_by_hand():
    """(3 - 1) / 2 · 0.5 + 0.25 = 0.75.

    A missing value counts as the center, a far one as 8 deviations.
    """
    body = Logistic(np.array([1.0]), np.array([2.0]), np.array([0.5]), 0.25)
    model = ScoreModel(("a",), body, Recipe(("signal",), "logistic", 1.0))
    assert body.logits(np.array([[3.0], [np.nan], [1e9]])).tolist() == [0.75, 0.25, 4.25]
    assert model.probabilities(np.array([[9.0, 1.0]]), ("z", "a")).tolist() == [0.562176501]


def test_a_tree_by_hand():
    """One split at 0.5 to the left where equal, missing to the right."""
    one = np.array([[0, 0, 0]])
    body = Trees(
        one,
        np.array([[0.5, 0, 0]]),
        one > 0,
        np.array([[1, -1, -1]]),
        np.array([[2, -1, -1]]),
        np.array([[0.0, -1.0, 2.0]]),
        0.25,
    )
    assert body.logits(np.array([[0.5], [0.6], [np.nan]])).tolist() == [-0.75, 2.25, 2.25]


def test_the_logistic_is_scikit_learns():
    """On complete features the probabilities are those of the fitted pipeline."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, y = cases()
    x = np.nan_to_num(x)
    model = fit_score_model(x, y, NAMES, GROUPS, Recipe(BOTH, "logistic", 0.03))
    assert model.features == ("a", "b", "c")  # what is the same in every case is left out
    scaled = StandardScaler().fit_transform(x[:, :3])
    fitted = LogisticRegression(C=0.03, max_iter=2_000).fit(scaled, y)
    assert np.allclose(model.probabilities(x, NAMES), fitted.predict_proba(scaled)[:, 1], atol=1e-8)


@pytest.mark.parametrize("depth", TREES_BY_DEPTH)
def test_the_trees_are_scikit_learns(depth):
    """Every read-out node's probability is scikit-learn's, also on missing and threshold values."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y = cases()
    x = np.round(x, 1)  # ties, and values exactly on a threshold
    model = fit_score_model(x, y, NAMES, GROUPS, Recipe(BOTH, "trees", float(depth)))
    fitted = HistGradientBoostingClassifier(
        max_iter=TREES_BY_DEPTH[depth],
        max_depth=depth,
        learning_rate=LEARNING_RATE,
        min_samples_leaf=MIN_LEAF_CASES,
        l2_regularization=LEAF_PENALTY,
        early_stopping=False,
        random_state=0,
    ).fit(x[:, :3], y)
    other, _ = cases(seed=1)
    for rows in (x, np.round(other, 1), other):
        assert np.allclose(
            model.probabilities(rows, NAMES), fitted.predict_proba(rows[:, :3])[:, 1], atol=1e-9
        )


@pytest.mark.parametrize("recipe", [Recipe(BOTH, "logistic", 0.1), Recipe(BOTH, "trees", 2.0)])
def test_a_file_holds_the_same_model(recipe):
    """Through JSON and back every probability has the same bits.

    One row has those that it has among others.
    """
    x, y = cases()
    model = fit_score_model(x, y, NAMES, GROUPS, recipe)
    known = parse_model(json.loads(json.dumps(model_record(model))), GROUPS)
    p = model.probabilities(x, NAMES)
    assert np.array_equal(known.probabilities(x, NAMES), p)
    assert [model.probabilities(x[row : row + 1], NAMES)[0] for row in range(20)] == p[:20].tolist()
    assert known.recipe == recipe


@pytest.mark.parametrize("family", ["logistic", "trees"])
def test_nothing_to_tell_apart_gives_the_share(family):
    """All of one kind, or no feature that varies.

    (right + 1) / (cases + 2), and it is kept as well.
    """
    x, y = cases(98)
    x[:, :] = 1.0
    y[:] = np.arange(98) < 49
    for labels, share in ((np.ones(98, dtype=bool), 0.99), (y, 0.5)):
        model = fit_score_model(x, labels, NAMES, GROUPS, Recipe(BOTH, family, 2.0))
        assert model.probabilities(x[:1], NAMES).tolist() == [share]
        assert parse_model(json.loads(json.dumps(model_record(model))), GROUPS).features == ()


def test_a_broken_file_is_refused():
    """Numbers that are not finite, too few of them, features unknown, and nodes that lead back."""
    x, y = cases()
    line = model_record(fit_score_model(x, y, NAMES, GROUPS, Recipe(BOTH, "logistic", 0.1)))
    trees = model_record(fit_score_model(x, y, NAMES, GROUPS, Recipe(BOTH, "trees", 2.0)))
    loop = [[0 if node >= 0 else -1 for node in tree] for tree in trees["left"]]
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (line, {"bias": float("nan")}),
        (line, {"weights": [1.0]}),
        (line, {"scale": [0.0] * 3}),
        (line, {"features": ["a", "b", "unknown"]}),
        (line, {"features": ["a", "a", "b"]}),
        (line, {"recipe": [["signal"], "pickle", 1.0]}),
        (line, {"more": 1}),
        (trees, {"left": loop}),
        (trees, {"feature": [[99] * len(tree) for tree in trees["feature"]]}),
        (trees, {"value": []}),
    ]
    for record, changes in wrong:
        with pytest.raises((ValueError, LookupError, TypeError)):
            parse_model(record | changes, GROUPS)


def test_the_recipe_that_tells_is_chosen():
    """Noise alone loses against the group that the labels hang on; one recipe is taken as it is."""
    x, y = cases()
    recipes = [Recipe(("noise",), "logistic", 0.1), Recipe(("signal",), "logistic", 0.1)]
    fold = grouped_folds(y, np.arange(len(y)), 5, np.random.default_rng(0))
    assert choose_recipe(x, y, NAMES, GROUPS, recipes, fold) == recipes[1]
    assert choose_recipe(x, y, NAMES, GROUPS, recipes[:1], fold) == recipes[0]
