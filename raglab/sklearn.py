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

from raglab.gating.expected_cost import CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.decision_fitting import DecisionCases, fit_model
from raglab.metrics.costs import Costs, cost_matrix
from raglab.signals import Direction, Signal, SignalSet, Unit
from raglab.values import FloatArray, Status, refuse

CLASS_NAMES = {Status.ok: "right", Status.refuse: "refuse", Status.ambiguous: "ambiguous"}
CLASS_PLACES = {status: CLASSES.index(name) for status, name in CLASS_NAMES.items()}
# of answers that would be right, and of others: scikit-learn leaves it to the user how few are too
# few
LEAST_CASES = 2
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
        self.classes_, places = np.unique(labels, return_inverse=True)
        names = self._columns()
        directions = self._by_column("directions", self.directions)
        for direction in directions.values():
            if direction not in get_args(Direction):
                rule = f"a direction must be one of {get_args(Direction)}"
                refuse(rule, repr(direction), "correct it")
        self._least_values()
        cost_matrix(self.costs)
        signals = (
            Signal(name, SIGNAL_UNIT, directions.get(column, "either"), "hits", "")
            for column, name in enumerate(names)
        )
        classes = np.array([CLASS_PLACES[status] for status in self._statuses()])[places]
        can_ask = np.ones(len(classes), dtype=np.bool_)
        cases = DecisionCases(table.T, classes, can_ask, can_ask, SignalSet(tuple(signals)))
        self.model_ = fit_model(cases, seed=self.seed, min_cases=LEAST_CASES)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:  # noqa: N803
        """Probability of each class in the order of `classes_`, shape [n, C].

        Thresholds do not change it.

        Args:
          X: signals, shape [n, d].
        """
        signals = self._checked(X)
        probability = self.model_.probabilities(signals.T)
        return probability[[CLASS_PLACES[status] for status in self._statuses()]].T

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Action for each row, shape [n].

        A label of `classes_`, or `refuse` where a threshold refuses among statuses.

        Args:
          X: signals, shape [n, d].

        Raises:
          ValueError: `set_params` set an unknown cost, or a threshold that is no finite number or
            of no column.
        """
        signals = self._checked(X)
        probability = self.model_.probabilities(signals.T)
        costs = expected_costs(probability, 1.0, action_costs(cost_matrix(self.costs)))
        status = least_cost(*costs, can_ask=Status.ambiguous in self._statuses())
        for column, least in self._least_values().items():
            # a missing value passes no threshold
            status[~(signals[:, column] >= least)] = Status.refuse
        if self._are_statuses():
            return np.array([member.name for member in Status])[status]
        right_place = self._statuses().index(Status.ok)
        places = np.where(status == Status.ok, right_place, 1 - right_place)
        return np.asarray(self.classes_[places])

    def _checked(self, X: ArrayLike) -> FloatArray:  # noqa: N803
        """Signals of rows to predict, [n, d]."""
        check_is_fitted(self)
        return np.asarray(
            validate_data(self, X, ensure_all_finite="allow-nan", dtype=np.float64, reset=False)
        )

    def _are_statuses(self) -> bool:
        names = {status.name for status in Status}
        return self.positive is None and {str(label) for label in self.classes_.tolist()} <= names

    def _statuses(self) -> tuple[Status, ...]:
        """Status that each label stands for.

        Raises:
          ValueError: neither statuses nor two labels, or texts of which none is `positive`.
        """
        labels = self.classes_.tolist()
        if self._are_statuses():
            return tuple(Status[label] for label in labels)
        if len(labels) == 2:
            positive = self.positive
            if positive is None and not any(isinstance(label, str) for label in labels):
                positive = labels[1]
            if positive not in labels:
                rule = f"positive must be the label of right answers, of {labels}"
                refuse(rule, repr(positive), "correct it")
            return tuple(Status.ok if label == positive else Status.refuse for label in labels)
        kind = "1 class" if len(labels) == 1 else f"{len(labels)} classes"
        msg = (
            "Only binary classification is supported, or the statuses ok, refuse and ambiguous, "
            f"got {kind} {labels[:5]}; map the labels."
        )
        raise ValueError(msg)

    def _columns(self) -> list[str]:
        """Names of the columns, their numbers where they have none."""
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return [str(name) for name in names]

    def _by_column(self, parameter: str, values: Mapping[str | int, Any] | None) -> dict[int, Any]:
        """Values by the number of their column.

        Raises:
          ValueError: there is no such column.
        """
        names = self._columns()
        places = {}
        for column, value in (values or {}).items():
            if str(column) not in names:
                rule = f"{parameter} must name columns of X, {names[:10]}"
                refuse(rule, repr(column), "correct it")
            places[names.index(str(column))] = value
        return places

    def _least_values(self) -> dict[int, float]:
        """Thresholds by the number of their column.

        Raises:
          ValueError: one is no finite number.
        """
        least = self._by_column("thresholds", self.thresholds)
        for column, value in least.items():
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not is_number or not np.isfinite(value):
                name = self._columns()[column]
                rule = f"thresholds[{name!r}] must be a finite number"
                refuse(rule, repr(value), "correct it")
        return least
