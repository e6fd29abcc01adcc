"""Features of texts, and the ridge that data choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import Table, fit_ridge, ridge_strength, text_features
from raglab.extensions.budgets.ridge import STRENGTHS

TEXTS = [
    "How do I reset the router?",
    "The router does not reset, what now?",
    "Where is the invoice of March?",
    "An invoice has the wrong address",
    "Reset the password of the router please",
    "Which address is on the invoice?",
]
SOURCES = ["web", "web", "mail", "mail", "web", "mail"]


def left_out(x, y, strength):
    """Predictions of each row by a ridge on all others, by refitting."""
    out = []
    for row in range(len(x)):
        others = np.arange(len(x)) != row
        middle, centre = x[others].mean(axis=0), y[others].mean()
        part = x[others] - middle
        weights = np.linalg.solve(
            part.T @ part + strength * np.eye(x.shape[1]), part.T @ (y[others] - centre)
        )
        out.append(centre + (x[row] - middle) @ weights)
    return np.array(out)


# Ridge


@given(st.integers(0, 50), st.sampled_from([0.5, 4.0, 64.0]), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_a_row_is_predicted_as_by_a_fit_without_it(seed, strength, width):
    """The closed form is the refit; features are standardised by all rows."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(12, width)), rng.normal(size=(12, 2))
    fit = fit_ridge(x, y, strength=strength)
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    for target in range(2):
        assert np.allclose(fit.held_out[:, target], left_out(standardised, y[:, target], strength))
    assert np.allclose(fit.error, ((fit.held_out - y) ** 2).mean(axis=0))


def test_the_strength_follows_the_data():
    """Each target its own: noise is shrunk to nothing, a line hardly.

    It is the least error of all that are tried.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    y = np.column_stack([rng.normal(size=300), x[:, 0] + 0.01 * rng.normal(size=300)])
    fit = fit_ridge(x, y)
    assert fit.strength[0] > 100.0 * fit.strength[1]
    for target in range(2):
        errors = [
            fit_ridge(x, y[:, [target]], strength=float(value)).error[0] for value in STRENGTHS
        ]
        assert fit.strength[target] == STRENGTHS[int(np.argmin(errors))]


def test_missing_targets_and_constant_features():
    """A row without a target is predicted by the others; a constant feature changes nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    y = x[:, [0]] + rng.normal(size=(20, 1))
    y[3] = np.nan
    others = np.arange(20) != 3
    whole = fit_ridge(x, y, strength=2.0)
    with_ones = fit_ridge(np.column_stack([np.ones(20), x]), y, strength=2.0)
    assert np.allclose(whole.held_out, with_ones.held_out)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    by_others = left_out(scaled[others], y[others, 0], 2.0)
    assert np.allclose(whole.held_out[others, 0], by_others)
    assert whole.held_out[3, 0] == pytest.approx(float(whole.predict(x[[3]])[0, 0]))


def test_what_is_no_regression_is_refused():
    """Shapes, numbers, too few rows, and a strength below 0."""
    column = [[1.0], [2.0]]
    for x, y, rule in (
        ([[1.0]], column, r"\[Q, F\]"),
        ([[1.0, pd.NA], [2.0, 3.0]], column, "features must be finite"),
        (column, [[np.inf], [1.0]], "got infinity"),
        (column, [[1.0], [np.nan]], "two rows"),
    ):
        with pytest.raises(ValueError, match=rule):
            fit_ridge(x, y)
    with pytest.raises(ValueError, match="at least 0"):
        fit_ridge(column, column, strength=-1.0)


# A strength for learners


def linear_world(noise):
    """Two arms whose better one hangs on a feature; four features say nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    mean = np.column_stack([0.5 + 0.1 * x[:, 0], 0.5 - 0.1 * x[:, 0]])
    frame = pd.DataFrame(
        np.clip(mean + noise * rng.normal(size=mean.shape), 0.0, 1.0), columns=["a", "b"]
    )
    names = [f"x{number}" for number in range(5)]
    return Table.from_frame(
        pd.concat([frame, pd.DataFrame(x, columns=names)], axis=1), features=names, order="given"
    )


def test_the_strength_of_a_table_is_least_in_left_out_error():
    """Of the learner's own model: rewards less prior_mean, no constant beside the features.

    Checked by refitting.
    """
    table = linear_world(0.3)
    x, y = table.features[:60], table.reward[:60] - 0.4
    fields = ("value", "reward", "mask", "features", "ms")
    small = table._replace(**{name: getattr(table, name)[:60] for name in fields})
    errors = []
    for strength in STRENGTHS:
        total = 0.0
        for row in range(60):
            others = np.arange(60) != row
            gram = x[others].T @ x[others] + strength * np.eye(x.shape[1])
            predicted = x[row] @ np.linalg.solve(gram, x[others].T @ y[others])
            total += ((y[row] - predicted) ** 2).sum()
        errors.append(total)
    assert ridge_strength(small, prior_mean=0.4) == STRENGTHS[int(np.argmin(errors))]


def test_a_log_gives_the_strength_of_its_rounds():
    """As a table of these rounds alone would; wrong columns are named."""
    table = linear_world(0.2)
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=400)
    mask = np.eye(2, dtype=bool)[action]
    rows = pd.DataFrame(table.features, columns=table.feature_names)
    rows["action"], rows["reward"] = action, table.reward[np.arange(400), action]
    assert ridge_strength(rows, features=table.feature_names) == ridge_strength(
        table._replace(mask=mask)
    )
    rows["gap"] = np.nan
    wrong: list[tuple[Any, list[str], str]] = [
        (rows, ["sources"], "sources"),
        (rows, [], "features and rows"),
        (rows, ["gap"], "features must be finite"),
        (3, [], "a Table or a log, got int"),
    ]
    for source, features, rule in wrong:
        with pytest.raises(ValueError, match=rule):
            ridge_strength(source, features=features)


# Features of texts


def test_columns_of_texts():
    """An intercept, two lengths, a column a source, components.

    Standardised on what they were fitted on.
    """
    fitted = text_features(TEXTS, SOURCES, components=3)
    frame = fitted.frame(TEXTS, SOURCES)
    names = ["intercept", "log_words", "log_characters", "source=mail", "source=web"]
    assert list(frame) == names + [f"tfidf_{number}" for number in range(3)]
    assert (frame["intercept"] == 1.0).all()
    standardised = frame.drop(columns="intercept")
    assert np.allclose(standardised.mean(), 0.0)
    assert np.allclose(standardised.std(ddof=0), 1.0)
    assert np.allclose(
        text_features(TEXTS, SOURCES, components=3, spread=0.1).frame(TEXTS, SOURCES)[
            standardised.columns
        ],
        standardised / 10,
    )


def test_features_are_a_function_of_texts_and_seed():
    """A text has the features that it has among all; the same seed gives the same bits."""
    first, again = (text_features(TEXTS, SOURCES, components=3, seed=4) for _ in range(2))
    whole = first.frame(TEXTS, SOURCES)
    pd.testing.assert_frame_equal(whole, again.frame(TEXTS, SOURCES))
    alone = first.frame(TEXTS[2:3], ["mail"]).to_numpy()
    assert alone.tolist() == whole[2:3].to_numpy().tolist()


def test_components_without_a_seed_are_exact():
    """They are those of the whole decomposition.

    Where texts have one direction, the others are 0.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    matrix = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(TEXTS).toarray()
    directions, values, _ = np.linalg.svd(matrix)
    peer = np.abs(directions[:, :2] * values[:2])
    fitted = text_features(TEXTS, components=2, seed=None)
    raw = (
        fitted.frame(TEXTS)[["tfidf_0", "tfidf_1"]].to_numpy() * fitted.scale[-2:]
        + fitted.mean[-2:]
    )
    assert np.allclose(np.abs(raw), peer)
    with pytest.warns(UserWarning, match="components"):
        same = text_features(["a same prompt"] * 9, seed=None).frame(["a same prompt"])
    assert np.allclose(same.drop(columns="intercept"), 0.0)


def test_an_unknown_source_is_counted():
    """It has 0 of every source; without sources where there were some nothing is guessed."""
    fitted = text_features(TEXTS, SOURCES, components=0)
    with pytest.warns(UserWarning, match=r"1 of 2 texts .*fax"):
        frame = fitted.frame(TEXTS[:2], ["web", "fax"])
    assert frame.loc[1, "source=web"] < 0.0
    assert frame.loc[1, "source=mail"] < 0.0
    for sources, rule in ((None, "sources must be given"), (["web"], "one a text")):
        with pytest.raises(ValueError, match=rule):
            fitted.frame(TEXTS, sources)
    with pytest.raises(ValueError, match="sources must be none"):
        text_features(TEXTS, components=0).frame(TEXTS, SOURCES)


def test_texts_that_are_none_are_refused():
    """With row and count."""
    for texts, rule in (
        ([], "there must be a text"),
        ("text", "sequence of strings"),
        (["a", 3, None], "int in row 1, one of 2"),
    ):
        with pytest.raises(ValueError, match=rule):
            text_features(texts)
    for wrong in ({"components": -1}, {"seed": -1}, {"spread": 0.0}, {"spread": "wide"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            text_features(TEXTS, **wrong)


@pytest.mark.parametrize("size", [2, 0])
def test_a_table_of_few_texts_has_the_columns_of_many(size):
    """A source that does not occur is constant there, and must not pass for the intercept."""
    fitted = text_features(TEXTS, SOURCES, components=2)
    frame = fitted.frame(TEXTS[:size], SOURCES[:size])
    assert tuple(frame) == fitted.names
    if size:
        rewards = pd.DataFrame({"a": [0.0, 1.0], "b": 0.5})
        table = Table.from_frame(
            pd.concat([rewards, frame], axis=1), features=list(frame), order="given"
        )
        assert table.feature_names == fitted.names


@pytest.mark.filterwarnings("ignore:.*components:UserWarning")
@pytest.mark.parametrize("count", range(4, 13))
def test_a_component_that_varies_by_rounding_alone_moves_no_text(count):
    """Texts that share all words of two: their component is one number, but for its last digits."""
    fitted = text_features([f"words of a file {number}" for number in range(count)])
    values = fitted.frame([f"words of another {number}" for number in range(count)]).to_numpy()
    assert np.abs(values).max() < 100.0


@pytest.mark.parametrize("seed", [0, None])
def test_components_beyond_the_rank_of_the_texts_are_zero(seed):
    """Twenty texts of three kinds have three components; rounding is not standardised."""
    kinds = ["red green blue", "one two three four", "north south"]
    fitted = text_features([kinds[n % 3] for n in range(20)], components=6, seed=seed)
    values = fitted.frame([*kinds, "blue four north", "two south"]).filter(like="tfidf")
    assert (values.iloc[:, 3:] == 0.0).all(axis=None)
    assert values.abs().max(axis=None) < 10.0
    assert values.iloc[:3, :3].abs().max(axis=None) > 0.5
