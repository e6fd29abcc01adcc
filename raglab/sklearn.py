"""A scikit-learn face.

Answer, refuse or ask back on a table of signals, by expected cost and thresholds (S2.17).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from raglab.gating.expected_cost import OUTCOME_CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.decision_fitting import DecisionCases, fit_model
from raglab.metrics.costs import Costs, cost_matrix
from raglab.signals import Direction, Signal, SignalSet, Unit
from raglab.values import FloatArray, Status, refuse

CLASS_NAMES = {Status.ok: "right", Status.refuse: "refuse", Status.ambiguous: "ambiguous"}
CLASS_INDICES = {status: OUTCOME_CLASSES.index(name) for status, name in CLASS_NAMES.items()}
# of answers that would be right, and of others: scikit-learn leaves it to the user how few are too
# few
MIN_CLASS_CASES = 2
SIGNAL_UNIT = Unit("number", -np.inf, np.inf)


# scikit-learn is untyped
class PolicyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier that answers, refuses or asks back, by least cost, after refusal thresholds.

    A calibrated multinomial logistic of the signals gives the probability that answering, refusing
    or asking back is right; the action of least expected cost is taken. A row whose signal lies
    below its threshold, or is missing, is refused at any probabilities. It is the decision of
    `raglab.fit_decision` on a table instead of a trace.

    Args:
      thresholds: least value by column; a row below one, or without a value, is refused. None is no
        threshold.
      directions: `surer` by column where more of it speaks for an answer, `ask` where it speaks for
        asking back, `either` where it may speak for anything. A column that is left out is
        `either`.
      costs: label -> outcome -> cost, see `raglab.metrics.cost_matrix`; the default costs where
        None.
      positive: of two labels, the one that says that an answer would be right; without it statuses
        as they are written, or the greater of two numbers or booleans. Other texts have no order.
      seed: of the folds in which the penalty is chosen and the probabilities are calibrated.

    Attributes:
      classes_: labels of the training rows, sorted, shape [C].
      model_: fitted logistic, a `FittedModel`.

    Source: rule S2.17; Chow 1970, Elkan 2001.

    Example:
      >>> import pandas as pd
      >>> table = pd.DataFrame({"p_correct": np.tile([0.1, 0.2, 0.8, 0.9], 10)})
      >>> labels = np.tile(["refuse", "refuse", "ok", "ok"], 10)
      >>> model = PolicyClassifier(directions={"p_correct": "surer"}).fit(table, labels)
      >>> model.predict(pd.DataFrame({"p_correct": [0.15, 0.85]})).tolist()
      ['refuse', 'ok']
      >>> model.set_params(thresholds={"p_correct": 0.9}).predict(
      ...     pd.DataFrame({"p_correct": [0.85]})
      ... ).tolist()
      ['refuse']
    """

    def __init__(
        self,
        *,
        thresholds: Mapping[str | int, float] | None = None,
        directions: Mapping[str | int, Direction] | None = None,
        costs: Costs | None = None,
        positive: Any = None,  # noqa: ANN401 - a label
        seed: int = 0,
    ) -> None:
        """State the parameters; they are checked by `fit` and read again by `predict`."""
        self.thresholds = thresholds
        self.directions = directions
        self.costs = costs
        self.positive = positive
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        """Tags: two classes unless they are statuses; missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_class = False
        return tags

    # scikit-learn's name
    def fit(self, X: ArrayLike, y: ArrayLike) -> PolicyClassifier:  # noqa: N803
        """Fit the probabilities.

        Args:
          X: signals, one row a question, shape [n, d]; NaN where one is missing.
          y: labels, shape [n]: `ok`, `refuse` and `ambiguous`, or two others, see `positive`.

        Raises:
          ValueError: labels of another kind, fewer than 2 rows of a kind, a column that there is
            not, an unknown direction or cost, or a threshold that is no finite number.
        """
        table, labels = validate_data(self, X, y, ensure_all_finite="allow-nan", dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, class_indices = np.unique(labels, return_inverse=True)
        column_names = self._columns()
        directions = self._by_column("directions", self.directions)
        for direction in directions.values():
            if direction not in get_args(Direction):
                direction_rule = f"a direction must be one of {get_args(Direction)}"
                refuse(direction_rule, repr(direction), "correct it")
        self._least_values()
        cost_matrix(self.costs)
        signals = (
            Signal(column_name, SIGNAL_UNIT, directions.get(column_index, "either"), "hits", "")
            for column_index, column_name in enumerate(column_names)
        )
        decision_classes = np.array([CLASS_INDICES[status] for status in self._statuses()])[
            class_indices
        ]
        can_ask = np.ones(len(decision_classes), dtype=np.bool_)
        decision_cases = DecisionCases(
            table.T, decision_classes, can_ask, can_ask, SignalSet(tuple(signals))
        )
        self.model_ = fit_model(decision_cases, seed=self.seed, min_cases=MIN_CLASS_CASES)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:  # noqa: N803
        """Probability of each class in the order of `classes_`, shape [n, C].

        Thresholds do not change it.

        Args:
          X: signals, shape [n, d].
        """
        signals = self._checked(X)
        class_shares = self.model_.probabilities(signals.T)
        return class_shares[[CLASS_INDICES[status] for status in self._statuses()]].T

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Action for each row, shape [n].

        The label of `classes_` of least expected cost. A row that misses a threshold is refused: of
        statuses it is `refuse`, of two other labels the one that is not `positive`.

        Args:
          X: signals, shape [n, d].

        Raises:
          ValueError: `set_params` set an unknown cost, or a threshold that is no finite number or
            of no column.
        """
        signals = self._checked(X)
        class_shares = self.model_.probabilities(signals.T)
        options_hold_source = 1.0  # signals alone: there are no options that could lack it
        action_expectations = expected_costs(
            class_shares, options_hold_source, action_costs(cost_matrix(self.costs))
        )
        row_status = least_cost(*action_expectations, can_ask=Status.ambiguous in self._statuses())
        for column_index, least_value in self._least_values().items():
            # a missing value passes no threshold
            row_status[~(signals[:, column_index] >= least_value)] = Status.refuse
        if self._are_statuses():
            return np.array([status_member.name for status_member in Status])[row_status]
        right_index = self._statuses().index(Status.ok)
        label_indices = np.where(row_status == Status.ok, right_index, 1 - right_index)
        return np.asarray(self.classes_[label_indices])

    def _checked(self, X: ArrayLike) -> FloatArray:  # noqa: N803
        """Signals of rows to predict, [n, d]."""
        check_is_fitted(self)
        return np.asarray(
            validate_data(self, X, ensure_all_finite="allow-nan", dtype=np.float64, reset=False)
        )

    def _are_statuses(self) -> bool:
        status_names = {status.name for status in Status}
        return (
            self.positive is None
            and {str(label) for label in self.classes_.tolist()} <= status_names
        )

    def _statuses(self) -> tuple[Status, ...]:
        """Status that each label stands for.

        Raises:
          ValueError: neither statuses nor two labels, or texts of which none is `positive`.
        """
        class_labels = self.classes_.tolist()
        if self._are_statuses():
            return tuple(Status[label] for label in class_labels)
        if len(class_labels) == 2:
            positive_label = self.positive
            if positive_label is None and not any(isinstance(label, str) for label in class_labels):
                positive_label = class_labels[1]
            if positive_label not in class_labels:
                label_rule = f"positive must be the label of right answers, of {class_labels}"
                refuse(label_rule, repr(positive_label), "correct it")
            return tuple(
                Status.ok if label == positive_label else Status.refuse for label in class_labels
            )
        classes_text = "1 class" if len(class_labels) == 1 else f"{len(class_labels)} classes"
        message = (
            "Only binary classification is supported, or the statuses ok, refuse and ambiguous, "
            f"got {classes_text} {class_labels[:5]}; map the labels."
        )
        raise ValueError(message)

    def _columns(self) -> list[str]:
        """Names of the columns, their numbers where they have none."""
        feature_names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return [str(feature_name) for feature_name in feature_names]

    def _by_column(
        self, parameter_name: str, column_values: Mapping[str | int, Any] | None
    ) -> dict[int, Any]:
        """Values by the number of their column.

        Raises:
          ValueError: there is no such column.
        """
        column_names = self._columns()
        value_by_index = {}
        for column_key, column_value in (column_values or {}).items():
            if str(column_key) not in column_names:
                rule = f"{parameter_name} must name columns of X, {column_names[:10]}"
                refuse(rule, repr(column_key), "correct it")
            value_by_index[column_names.index(str(column_key))] = column_value
        return value_by_index

    def _least_values(self) -> dict[int, float]:
        """Thresholds by the number of their column.

        Raises:
          ValueError: one is no finite number.
        """
        least_by_index = self._by_column("thresholds", self.thresholds)
        for column_index, least_value in least_by_index.items():
            is_number = isinstance(least_value, int | float | np.number) and not isinstance(
                least_value, bool
            )
            if not is_number or not np.isfinite(least_value):
                column_name = self._columns()[column_index]
                rule = f"thresholds[{column_name!r}] must be a finite number"
                refuse(rule, repr(least_value), "correct it")
        return least_by_index
