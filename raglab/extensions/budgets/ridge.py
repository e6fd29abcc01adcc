"""Ridge regression of strength set by data (algebra): exact leave-one-out errors (S4.5).

The errors are in closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.environments import Table
from raglab.values import FloatArray, refuse

if TYPE_CHECKING:
    import pandas as pd

STRENGTHS = 2.0 ** np.arange(-6.0, 17.0)  # tried in turn; the first of equals
# singular values below this share of the largest are rounding; so is 1 minus a leverage below it
CERTAIN = 1e-9


class RidgeFit(NamedTuple):
    """Linear regressions of several targets on the same features, own constant and strength each.

    mean, scale: [F] of the features, which are standardised by them. weights: [T, F] of the
    standardised features. constant: [T], not shrunk. strength: [T]. held_out: [Q, T] prediction of
    each row by a fit without that row (the strength is the one chosen on all rows); of a row
    without this target, the ordinary prediction. error: [T] mean square of the leave-one-out
    errors.
    """

    mean: FloatArray
    scale: FloatArray
    weights: FloatArray
    constant: FloatArray
    strength: FloatArray
    held_out: FloatArray
    error: FloatArray

    def predict(self, features: ArrayLike) -> FloatArray:
        """Predictions [Q, T] of features [Q, F]."""
        standardised = (np.asarray(features, np.float64) - self.mean) / self.scale
        return standardised @ self.weights.T + self.constant


def fit_ridge(
    features: ArrayLike, targets: ArrayLike, *, strength: float | None = None
) -> RidgeFit:
    """Ridge regression of each target on the standardised features.

    Args:
      features: [Q, F], finite.
      targets: [Q, T]; NaN where a row has no such target.
      strength: of the penalty on the weights; chosen for each target from `STRENGTHS` by least
        leave-one-out error where None.

    Raises:
      ValueError: shapes that do not fit, features without a number, or a target with fewer than two
        rows.

    Source: Allen, The relationship between variable selection and data augmentation and a method
      for prediction (1974): a row's leave-one-out error is its error over 1 minus its leverage.

    Example:
      >>> fit = fit_ridge([[0.0], [1.0], [2.0], [3.0]], [[1.0], [3.0], [5.0], [7.0]], strength=0.0)
      >>> fit.predict([[10.0]]).round(6).tolist()
      [[21.0]]
    """
    x = float_array(features, "features")
    y = float_array(targets, "targets")
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        refuse(
            "features must be [Q, F] and targets [Q, T]",
            (x.shape, y.shape),
            "give a row a question",
        )
    if not np.isfinite(x).all():
        refuse("features must be finite", "NaN or infinity", "impute what is missing")
    if np.isinf(y).any():
        refuse(
            "targets must be numbers, or NaN where a row has none",
            "infinity",
            "leave it out as NaN",
        )
    mean = x.mean(axis=0)
    spread = x.std(axis=0)
    scale = np.where(spread > 0.0, spread, 1.0)
    x = (x - mean) / scale
    rows = [~np.isnan(column) for column in y.T]
    if rows and min(int(known.sum()) for known in rows) < 2:
        refuse(
            "a target must have two rows",
            min(int(known.sum()) for known in rows),
            "measure it on more questions",
        )
    tried = STRENGTHS if strength is None else np.array([_checked(strength)])
    fits = [
        _centred_fit(x[known], column[known], tried)
        for known, column in zip(rows, y.T, strict=True)
    ]
    held_out = np.empty(y.shape)
    for number, (known, (weights, constant, _, left_out)) in enumerate(
        zip(rows, fits, strict=True)
    ):
        held_out[:, number] = x @ weights + constant
        held_out[known, number] = left_out
    return RidgeFit(
        mean=mean,
        scale=scale,
        weights=np.array([weights for weights, *_ in fits]).reshape(y.shape[1], x.shape[1]),
        constant=np.array([constant for _, constant, *_ in fits]),
        strength=np.array([chosen for *_, chosen, _ in fits]),
        held_out=held_out,
        error=np.nanmean((held_out - y) ** 2, axis=0),
    )


def _checked(strength: float) -> float:
    """A strength that is a number from 0."""
    if not 0.0 <= strength < np.inf:
        refuse("a ridge strength must be at least 0", strength, "0 shrinks nothing")
    return float(strength)


def _centred_fit(
    x: FloatArray, y: FloatArray, tried: FloatArray
) -> tuple[FloatArray, float, float, FloatArray]:
    """Weights [F], constant, strength and leave-one-out predictions [N] of one target."""
    middle = x.mean(axis=0)
    centre = float(y.mean())
    basis, singular, right = np.linalg.svd(x - middle, full_matrices=False)
    # The constant is not shrunk: it takes 1/N of every row's leverage.
    errors = [_left_out_errors(basis, singular, y - centre, value, 1.0 / len(y)) for value in tried]
    best = int(np.argmin([float((error**2).mean()) for error in errors]))
    weights = right.T @ (_shrinkage(singular, tried[best], 1) * (basis.T @ (y - centre)))
    return weights, centre - float(middle @ weights), float(tried[best]), y - errors[best]


def _shrinkage(singular: FloatArray, strength: float, power: int) -> FloatArray:
    """Factors of a ridge, s^power over s² + strength; 0 where s is no more than rounding.

    Args:
      power: 1 for weights, 2 for predictions.
    """
    some = singular > CERTAIN * singular.max(initial=0.0)
    return np.where(
        some, singular**power / np.where(some, singular * singular + strength, 1.0), 0.0
    )


def _left_out_errors(
    basis: FloatArray, singular: FloatArray, y: FloatArray, strength: float, constant: float
) -> FloatArray:
    """Errors [N] of each row predicted from all others."""
    share = _shrinkage(singular, strength, 2)
    leverage = constant + (basis * basis) @ share
    error = y - basis @ (share * (basis.T @ y))
    return error / np.maximum(1.0 - leverage, CERTAIN)


def ridge_strength(
    source: Table | pd.DataFrame,
    *,
    features: tuple[str, ...] | list[str] = (),
    prior_mean: float = 0.5,
) -> float:
    """`prior_strength` of a linear learner, from data: the one that predicts left-out rewards best.

    The model is the learner's own (S4.5): reward = prior_mean + theta' x, theta shrunk by the
    strength, each arm for itself. The strength of `STRENGTHS` with the least sum of squared
    leave-one-out errors over all arms is taken.

    Args:
      source: a table, of which all available arms count, or a log with columns `action`, `reward`
        and `features`.
      features: columns of a log that are the context; a table knows its own.
      prior_mean: reward that the learner expects of an arm it does not know.

    Raises:
      ValueError: no features, or no row.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame(
      ...     {"action": [0, 0, 1, 1] * 9, "reward": [0.5] * 36, "x": [0.0, 1.0] * 18}
      ... )
      >>> ridge_strength(log, features=["x"]) == float(
      ...     STRENGTHS[0]
      ... )  # nothing to shrink: all are equal, the first wins
      True
    """
    if isinstance(source, Table):
        context = np.asarray(source.features, np.float64)
        known = np.asarray(source.mask) & ~np.isnan(source.reward)
        cells = [(context[rows], source.reward[rows, arm]) for arm, rows in enumerate(known.T)]
    else:
        if not hasattr(source, "columns"):
            refuse("source must be a Table or a log", type(source).__name__, "give one of them")
        missing = [name for name in ("action", "reward", *features) if name not in source.columns]
        if missing:
            refuse(
                "a log must have its columns action, reward and features",
                ", ".join(missing),
                "correct the names",
            )
        logged = source[source["reward"].notna()]
        context = logged[list(features)].to_numpy(np.float64)
        action = logged["action"].to_numpy()
        reward = logged["reward"].to_numpy(np.float64)
        cells = [(context[action == arm], reward[action == arm]) for arm in np.unique(action)]
    if not np.isfinite(context).all():
        refuse("features must be finite", "NaN or infinity", "impute what is missing")
    if context.shape[1] == 0 or not len(context):
        refuse(
            "a ridge needs features and rows",
            context.shape,
            "name columns",
        )
    # Arms are disjoint regressions of one strength: their squared errors add up.
    total = np.zeros(len(STRENGTHS))
    for x, reward in cells:
        if len(x):
            basis, singular, _ = np.linalg.svd(x, full_matrices=False)
            errors = (
                _left_out_errors(basis, singular, reward - prior_mean, value, 0.0)
                for value in STRENGTHS
            )
            total += [float((error**2).sum()) for error in errors]
    return float(STRENGTHS[int(np.argmin(total))])
