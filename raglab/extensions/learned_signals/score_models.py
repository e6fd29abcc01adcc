"""Score models (shore): logistic or small boosted trees on named features, cross-fitted.

They are stored as numbers.

scikit-learn fits them. What is kept are their numbers alone: they are written as JSON, read back
with every number checked, and give the same probabilities by NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from raglab.values import AnyArray, BoolArray, FloatArray, IntArray, refuse

MAX_SCALED_VALUE = 8.0  # a scaled feature counts for at most that many standard deviations
MIN_SPREAD = 1e-6  # of a feature: what differs less tells nothing apart
# inverse of the logistic's penalty, as scikit-learn's `C`
PENALTY_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)
TREES_BY_DEPTH: Mapping[int, int] = {2: 150, 3: 200}  # of trees -> their number
# of boosting: learning rate, cases of a leaf, L2 of its value
LEARNING_RATE, MIN_LEAF_CASES, LEAF_PENALTY = 0.05, 20, 10.0
PROBABILITY_DIGITS = 9  # of a probability, so that a row has the same one alone and among others
LEAF_NODE = -1  # in `left` of a leaf
MAX_NODES = 64  # of a tree that is read from a file
MAX_TREES = 2_000
# of a weight or threshold: no sum of so large ones overflows, and no fit makes them
MAX_NUMBER = 1e12
MAX_FEATURES = 10_000


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
        scaled_features = np.nan_to_num(
            np.clip((x - self.center) / self.scale, -MAX_SCALED_VALUE, MAX_SCALED_VALUE), nan=0.0
        )
        row_logits: FloatArray = scaled_features @ self.weights + self.bias
        return row_logits


class Trees(NamedTuple):
    """Boosted trees as tables [T, N] of their nodes.

    The logit is the sum of one leaf a tree, and `base`.

    feature, threshold: a row goes left where the feature is at most the threshold, and where it is
    missing as `missing_left` says. left, right: nodes of the same tree, later ones; `LEAF_NODE` in
    a leaf. value: of a leaf.
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
        tree_numbers = np.arange(len(self.feature))[None, :]
        row_numbers = np.arange(len(x))[:, None]
        current_nodes = np.zeros((len(x), len(self.feature)), dtype=np.int64)
        while True:
            is_inner = self.left[tree_numbers, current_nodes] != LEAF_NODE
            if not is_inner.any():
                break
            node_values = x[row_numbers, self.feature[tree_numbers, current_nodes]]
            goes_left = np.where(
                np.isnan(node_values),
                self.missing_left[tree_numbers, current_nodes],
                node_values <= self.threshold[tree_numbers, current_nodes],
            )
            current_nodes = np.where(
                is_inner,
                np.where(
                    goes_left,
                    self.left[tree_numbers, current_nodes],
                    self.right[tree_numbers, current_nodes],
                ),
                current_nodes,
            )
        row_logits: FloatArray = self.value[tree_numbers, current_nodes].sum(axis=1) + self.base
        return row_logits


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
        logits = self.body.logits(
            x[:, [names.index(feature_name) for feature_name in self.features]]
        )
        probabilities: FloatArray = (1.0 / (1.0 + np.exp(-logits))).round(PROBABILITY_DIGITS)
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
    recipe_features = [
        feature_name for group_name in recipe.groups for feature_name in groups[group_name]
    ]
    used_names = tuple(
        feature_name
        for feature_name in recipe_features
        if _differs(x[:, names.index(feature_name)])
    )
    # nothing to tell apart, or by: the share of cases, held off 0 and 1
    if not used_names or y.all() or not y.any():
        positive_share = (y.sum() + 1.0) / (len(y) + 2.0)
        constant_model = Logistic(
            np.zeros(0),
            np.ones(0),
            np.zeros(0),
            float(np.log(positive_share / (1.0 - positive_share))),
        )
        return ScoreModel((), constant_model, recipe._replace(family="logistic"))
    used_columns = x[:, [names.index(feature_name) for feature_name in used_names]]
    fitted_body = (
        _logistic(used_columns, y, recipe.size)
        if recipe.family == "logistic"
        else _trees(used_columns, y, int(recipe.size))
    )
    return ScoreModel(used_names, fitted_body, recipe)


def _differs(feature_values: FloatArray) -> bool:
    present_values = feature_values[~np.isnan(feature_values)]
    return bool(len(present_values) and present_values.max() - present_values.min() > MIN_SPREAD)


def _logistic(features: FloatArray, labels: BoolArray, strength: float) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    centers = np.nanmean(features, axis=0)
    scales = np.nanstd(features, axis=0)
    scaled_features = np.nan_to_num(
        np.clip((features - centers) / scales, -MAX_SCALED_VALUE, MAX_SCALED_VALUE), nan=0.0
    )
    regression = LogisticRegression(C=strength, max_iter=2_000).fit(scaled_features, labels)
    return Logistic(
        centers, scales, regression.coef_[0].astype(np.float64), float(regression.intercept_[0])
    )


def _trees(features: FloatArray, labels: BoolArray, depth: int) -> Trees:
    """Boosted trees of scikit-learn, read out node by node."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    boosted_trees: Any = HistGradientBoostingClassifier(
        max_iter=TREES_BY_DEPTH[depth],
        max_depth=depth,
        learning_rate=LEARNING_RATE,
        min_samples_leaf=MIN_LEAF_CASES,
        l2_regularization=LEAF_PENALTY,
        early_stopping=False,
        random_state=0,
    )
    # several wait for each other, and cost more than they bring
    with threadpool_limits(1, user_api="openmp"):
        boosted_trees.fit(features, labels)
    # no public attribute holds the nodes; a test compares what is read here with scikit-learn's own
    # probabilities
    nodes_by_tree = [boosting_stage[0].nodes for boosting_stage in boosted_trees._predictors]  # noqa: SLF001
    # a tree of fewer nodes than another ends in leaves
    node_table = np.zeros(
        (len(nodes_by_tree), max(map(len, nodes_by_tree))), dtype=nodes_by_tree[0].dtype
    )
    node_table["is_leaf"] = 1
    for tree_number, tree_nodes in enumerate(nodes_by_tree):
        node_table[tree_number, : len(tree_nodes)] = tree_nodes
    is_leaf = node_table["is_leaf"].astype(np.bool_)

    def inner(field: str, kind: type[np.generic], of_leaf: float = 0.0) -> AnyArray:
        return np.where(is_leaf, of_leaf, node_table[field].astype(np.float64)).astype(kind)

    return Trees(
        feature=inner("feature_idx", np.int64),
        threshold=inner("num_threshold", np.float64),
        missing_left=inner("missing_go_to_left", np.bool_),
        left=inner("left", np.int64, LEAF_NODE),
        right=inner("right", np.int64, LEAF_NODE),
        value=np.where(is_leaf, node_table["value"], 0.0),
        base=float(np.ravel(boosted_trees._baseline_prediction)[0]),  # noqa: SLF001
    )


def choose_recipe(
    x: FloatArray,
    y: BoolArray,
    names: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    recipes: Sequence[Recipe],
    folds: IntArray,
) -> Recipe:
    """Recipe of least cross-validated log-loss, the earlier of equals.

    Args:
      folds: of every case, [Q].
    """
    if len(recipes) == 1:
        return recipes[0]
    log_losses = []
    for recipe in recipes:
        held_out = np.zeros(len(y))
        for fold_number in np.unique(folds):
            is_training = folds != fold_number
            fold_model = fit_score_model(x[is_training], y[is_training], names, groups, recipe)
            held_out[~is_training] = fold_model.probabilities(x[~is_training], names)
        label_probabilities = np.clip(np.where(y, held_out, 1.0 - held_out), 1e-12, 1.0)
        log_losses.append(-float(np.log(label_probabilities).mean()))
    return recipes[int(np.argmin(log_losses))]


def model_record(model: ScoreModel) -> dict[str, Any]:
    """Model as JSON holds it; every float reads back as itself."""
    body_numbers = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in model.body._asdict().items()
    }
    return {
        "features": list(model.features),
        "recipe": [list(model.recipe.groups), *model.recipe[1:]],
        **body_numbers,
    }


def parse_model(
    record: Mapping[str, Any], features_by_group: Mapping[str, Sequence[str]]
) -> ScoreModel:
    """Model of a record, every number checked.

    Args:
      features_by_group: features by group.

    Raises:
      ValueError: a field that is none of its kind; a feature that is not known, numbers that are
        not finite or not as many as the features, a node that leads back.
    """
    record_fields = dict(record)
    feature_names, (groups, model_family, recipe_size) = (
        tuple(record_fields.pop("features")),
        record_fields.pop("recipe"),
    )
    recipe = Recipe(tuple(groups), model_family, float(recipe_size))
    body_types: Mapping[str, Any] = {"logistic": Logistic, "trees": Trees}
    array_types = {
        "feature": np.int64,
        "left": np.int64,
        "right": np.int64,
        "missing_left": np.bool_,
    }
    model_body = body_types[model_family](
        **{
            field_name: float(value)
            if field_name in {"bias", "base"}
            else np.array(value, dtype=array_types.get(field_name, np.float64))
            for field_name, value in record_fields.items()
        }
    )
    known_features = {
        field_name for group_name in recipe.groups for field_name in features_by_group[group_name]
    }
    n_features = len(feature_names)
    checks = {
        "features that raglab knows, each once": known_features.issuperset(feature_names)
        and len(set(feature_names)) == n_features <= MAX_FEATURES,
        # NaN is not within it either
        f"numbers of at most {MAX_NUMBER:g}": all(
            (np.abs(value) <= MAX_NUMBER).all() for value in model_body
        ),
        f"a body of {n_features} features": (
            _is_logistic if model_family == "logistic" else _is_trees
        )(model_body, n_features),
    }
    if broken_rules := [requirement for requirement, is_kept in checks.items() if not is_kept]:
        refuse(
            "a model must be as it was written", f"another than {broken_rules[0]}", "learn it again"
        )
    return ScoreModel(feature_names, model_body, recipe)


def _is_logistic(model_body: Logistic, n_features: int) -> bool:
    """Whether each feature has a center, a weight and a scale that nothing is too small for."""
    array_shapes = {np.shape(body_array) for body_array in model_body[:3]}
    return array_shapes == {(n_features,)} and bool((model_body.scale >= 1.0 / MAX_NUMBER).all())


def _is_trees(model_body: Trees, n_features: int) -> bool:
    """Whether tables of nodes are of these features, and lead on to later nodes."""
    array_shapes = {np.shape(body_array) for body_array in model_body[:-1]}
    n_trees, n_nodes = array_shapes.pop()
    is_leaf = model_body.left == LEAF_NODE
    node_numbers = np.arange(n_nodes)
    return (
        not array_shapes
        and 0 < n_trees <= MAX_TREES
        and 0 < n_nodes <= MAX_NODES
        and all(
            (is_leaf | ((child_nodes > node_numbers) & (child_nodes < n_nodes))).all()
            for child_nodes in model_body[3:5]
        )
        and bool(((model_body.feature >= 0) & (model_body.feature < max(n_features, 1))).all())
    )
