"""Score models (shore): logistic or small boosted trees on named features, cross-fitted.

They are stored as numbers.

scikit-learn fits them. What is kept are their numbers alone: they are written as JSON, read back
with every number checked, and give the same probabilities by NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.values import refuse

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LIMIT = 8.0  # a scaled feature counts for at most that many standard deviations
LEAST_SPREAD = 1e-6  # of a feature: what differs less tells nothing apart
# inverse of the logistic's penalty, as scikit-learn's `C`
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)
DEPTHS: Mapping[int, int] = {2: 150, 3: 200}  # of trees -> their number
# of boosting: learning rate, cases of a leaf, L2 of its value
RATE, LEAST_LEAF, PENALTY = 0.05, 20, 10.0
DIGITS = 9  # of a probability, so that a row has the same one alone and among others
LEAF = -1  # in `left` of a leaf
MOST_NODES = 64  # of a tree that is read from a file
MOST_TREES = 2_000
# of a weight or threshold: no sum of so large ones overflows, and no fit makes them
MOST_NUMBER = 1e12
MOST_FEATURES = 10_000


class Logistic(NamedTuple):
    """Logistic on scaled features, (value - center) / scale; a missing one counts as its center.

    All [F] but bias.
    """

    center: FloatArray
    scale: FloatArray
    weights: FloatArray
    bias: float

    def logits(self, x: FloatArray) -> FloatArray:
        """Logit of each row of [Q, F]."""
        scaled = np.nan_to_num(np.clip((x - self.center) / self.scale, -LIMIT, LIMIT), nan=0.0)
        total: FloatArray = scaled @ self.weights + self.bias
        return total


class Trees(NamedTuple):
    """Boosted trees as tables [T, N] of their nodes.

    The logit is the sum of one leaf a tree, and `base`.

    feature, threshold: a row goes left where the feature is at most the threshold, and where it is
    missing as `missing_left` says. left, right: nodes of the same tree, later ones; `LEAF` in a
    leaf. value: of a leaf.
    """

    feature: IntArray
    threshold: FloatArray
    missing_left: BoolArray
    left: IntArray
    right: IntArray
    value: FloatArray
    base: float

    def logits(self, x: FloatArray) -> FloatArray:
        """Logit of each row of [Q, F]."""
        tree, row = np.arange(len(self.feature))[None, :], np.arange(len(x))[:, None]
        node = np.zeros((len(x), len(self.feature)), dtype=np.int64)
        while True:
            inner = self.left[tree, node] != LEAF
            if not inner.any():
                break
            values = x[row, self.feature[tree, node]]
            goes_left = np.where(
                np.isnan(values),
                self.missing_left[tree, node],
                values <= self.threshold[tree, node],
            )
            node = np.where(
                inner, np.where(goes_left, self.left[tree, node], self.right[tree, node]), node
            )
        total: FloatArray = self.value[tree, node].sum(axis=1) + self.base
        return total


class Recipe(NamedTuple):
    """What is fitted: the features of which groups, by what.

    groups: of features. family: `logistic` or `trees`. size: inverse of the penalty, or depth of
    the trees.
    """

    groups: tuple[str, ...]
    family: Literal["logistic", "trees"]
    size: float


class ScoreModel(NamedTuple):
    """A fitted model: names of its features, [F], its numbers, and the recipe that they came by."""

    features: tuple[str, ...]
    body: Logistic | Trees
    recipe: Recipe

    def probabilities(self, x: FloatArray, names: Sequence[str]) -> FloatArray:
        """Probability of each row, [Q], of features [Q, N] in the order of names."""
        logits = self.body.logits(x[:, [names.index(name) for name in self.features]])
        probabilities: FloatArray = (1.0 / (1.0 + np.exp(-logits))).round(DIGITS)
        return probabilities


def fit_score_model(
    x: FloatArray,
    y: BoolArray,
    names: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    recipe: Recipe,
) -> ScoreModel:
    """Model of a recipe.

    Args:
      x: features, [Q, N]; NaN where one is missing.
      y: what is to be told, [Q].
      names: of the features, [N].
      groups: features by group.
    """
    wanted = [name for group in recipe.groups for name in groups[group]]
    used_names = tuple(name for name in wanted if _differs(x[:, names.index(name)]))
    # nothing to tell apart, or by: the share of cases, held off 0 and 1
    if not used_names or y.all() or not y.any():
        share = (y.sum() + 1.0) / (len(y) + 2.0)
        constant = Logistic(
            np.zeros(0), np.ones(0), np.zeros(0), float(np.log(share / (1.0 - share)))
        )
        return ScoreModel((), constant, recipe._replace(family="logistic"))
    columns = x[:, [names.index(name) for name in used_names]]
    fitted = (
        _logistic(columns, y, recipe.size)
        if recipe.family == "logistic"
        else _trees(columns, y, int(recipe.size))
    )
    return ScoreModel(used_names, fitted, recipe)


def _differs(values: FloatArray) -> bool:
    there = values[~np.isnan(values)]
    return bool(len(there) and there.max() - there.min() > LEAST_SPREAD)


def _logistic(x: FloatArray, y: BoolArray, strength: float) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    center, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    scaled = np.nan_to_num(np.clip((x - center) / scale, -LIMIT, LIMIT), nan=0.0)
    regression = LogisticRegression(C=strength, max_iter=2_000).fit(scaled, y)
    return Logistic(
        center, scale, regression.coef_[0].astype(np.float64), float(regression.intercept_[0])
    )


def _trees(x: FloatArray, y: BoolArray, depth: int) -> Trees:
    """Boosted trees of scikit-learn, read out node by node."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    boosted: Any = HistGradientBoostingClassifier(
        max_iter=DEPTHS[depth],
        max_depth=depth,
        learning_rate=RATE,
        min_samples_leaf=LEAST_LEAF,
        l2_regularization=PENALTY,
        early_stopping=False,
        random_state=0,
    )
    # several wait for each other, and cost more than they bring
    with threadpool_limits(1, user_api="openmp"):
        boosted.fit(x, y)
    # no public attribute holds the nodes; a test compares what is read here with scikit-learn's own
    # probabilities
    nodes = [stage[0].nodes for stage in boosted._predictors]  # noqa: SLF001
    # a tree of fewer nodes than another ends in leaves
    table = np.zeros((len(nodes), max(map(len, nodes))), dtype=nodes[0].dtype)
    table["is_leaf"] = 1
    for tree, of in enumerate(nodes):
        table[tree, : len(of)] = of
    leaf = table["is_leaf"].astype(np.bool_)

    def inner(field: str, kind: type[np.generic], of_leaf: float = 0.0) -> NDArray[Any]:
        return np.where(leaf, of_leaf, table[field].astype(np.float64)).astype(kind)

    return Trees(
        feature=inner("feature_idx", np.int64),
        threshold=inner("num_threshold", np.float64),
        missing_left=inner("missing_go_to_left", np.bool_),
        left=inner("left", np.int64, LEAF),
        right=inner("right", np.int64, LEAF),
        value=np.where(leaf, table["value"], 0.0),
        base=float(np.ravel(boosted._baseline_prediction)[0]),  # noqa: SLF001
    )


def choose_recipe(
    x: FloatArray,
    y: BoolArray,
    names: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    recipes: Sequence[Recipe],
    fold: IntArray,
) -> Recipe:
    """Recipe of least cross-validated log-loss, the earlier of equals.

    Args:
      fold: of every case, [Q].
    """
    if len(recipes) == 1:
        return recipes[0]
    losses = []
    for recipe in recipes:
        p = np.zeros(len(y))
        for fold_number in np.unique(fold):
            rest = fold != fold_number
            model = fit_score_model(x[rest], y[rest], names, groups, recipe)
            p[~rest] = model.probabilities(x[~rest], names)
        sure = np.clip(np.where(y, p, 1.0 - p), 1e-12, 1.0)
        losses.append(-float(np.log(sure).mean()))
    return recipes[int(np.argmin(losses))]


def model_record(model: ScoreModel) -> dict[str, Any]:
    """Model as JSON holds it; every float reads back as itself."""
    numbers = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in model.body._asdict().items()
    }
    return {
        "features": list(model.features),
        "recipe": [list(model.recipe.groups), *model.recipe[1:]],
        **numbers,
    }


def parse_model(record: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> ScoreModel:
    """Model of a record, every number checked.

    Args:
      known: features by group.

    Raises:
      ValueError: a field that is none of its kind; a feature that is not known, numbers that are
        not finite or not as many as the features, a node that leads back.
    """
    values = dict(record)
    features, (groups, family, size) = tuple(values.pop("features")), values.pop("recipe")
    recipe = Recipe(tuple(groups), family, float(size))
    kinds: Mapping[str, Any] = {"logistic": Logistic, "trees": Trees}
    types = {"feature": np.int64, "left": np.int64, "right": np.int64, "missing_left": np.bool_}
    body = kinds[family](
        **{
            name: float(value)
            if name in {"bias", "base"}
            else np.array(value, dtype=types.get(name, np.float64))
            for name, value in values.items()
        }
    )
    names = {name for group in recipe.groups for name in known[group]}
    width = len(features)
    rules = {
        "features that raglab knows, each once": names.issuperset(features)
        and len(set(features)) == width <= MOST_FEATURES,
        # NaN is not within it either
        f"numbers of at most {MOST_NUMBER:g}": all(
            (np.abs(value) <= MOST_NUMBER).all() for value in body
        ),
        f"a body of {width} features": (_is_logistic if family == "logistic" else _is_trees)(
            body, width
        ),
    }
    if broken := [rule for rule, holds in rules.items() if not holds]:
        refuse("a model must be as it was written", f"another than {broken[0]}", "learn it again")
    return ScoreModel(features, body, recipe)


def _is_logistic(body: Logistic, width: int) -> bool:
    """Whether each feature has a center, a weight and a scale that nothing is too small for."""
    shapes = {np.shape(value) for value in body[:3]}
    return shapes == {(width,)} and bool((body.scale >= 1.0 / MOST_NUMBER).all())


def _is_trees(body: Trees, width: int) -> bool:
    """Whether tables of nodes are of these features, and lead on to later nodes."""
    shapes = {np.shape(value) for value in body[:-1]}
    trees, nodes = shapes.pop()
    leaf, place = body.left == LEAF, np.arange(nodes)
    return (
        not shapes
        and 0 < trees <= MOST_TREES
        and 0 < nodes <= MOST_NODES
        and all((leaf | ((side > place) & (side < nodes))).all() for side in body[3:5])
        and bool(((body.feature >= 0) & (body.feature < max(width, 1))).all())
    )
