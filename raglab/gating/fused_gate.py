"""Fused gate (algebra): all signals in one P(right), monotone in each, explained by its parts.

The model is additive: logit = bias + sum of f_i(signal_i), each f_i a non-decreasing polyline
through knots. A policy holds the knots, so a fitted gate replays, travels and explains itself
without the library that fitted it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import check_present, float_array
from raglab.signals import SIGNALS
from raglab.values import BoolArray, FloatArray, refuse
from raglab.words.characters import visible
from raglab.words.html_display import Fold, display, short

MAX_SIGNAL_KNOTS = 33
PROBABILITY_DIGITS = (
    10  # of a probability: the exponential's last bits differ between machines (rule S0.4)
)


class Part(NamedTuple):
    """Share of one signal in the logit: polyline through (x, y), flat beyond its ends.

    Attributes:
      signal: its name.
      x: knots, ascending, in the signal's unit.
      y: logit at each knot.
    """

    signal: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    def __repr__(self) -> str:
        signal_name = visible(self.signal)
        return (
            f"Part({signal_name}, {len(self.x)} knots, adds {min(self.y):.3g} to {max(self.y):.3g})"
        )


class Model(NamedTuple):
    """Additive model of being right, in logits.

    Attributes:
      bias: logit without any part.
      parts: one a signal, which add.
    """

    bias: float
    parts: tuple[Part, ...]

    def __repr__(self) -> str:
        names = short(", ".join(part.signal for part in self.parts), 120)
        return f"Model(bias {self.bias:.3g}, {len(self.parts)} parts: {names})"

    def _repr_html_(self) -> str:
        """Display for a notebook: what each signal adds at least and at most, the widest first."""
        widest_parts = sorted(self.parts, key=lambda part: min(part.y) - max(part.y))
        part_rows = [
            (
                part.signal,
                f"{min(part.y):+.3g}",
                f"{max(part.y):+.3g}",
                f"{part.x[0]:.4g} to {part.x[-1]:.4g}",
                f"{len(part.x)}",
            )
            for part in widest_parts
        ]
        column_titles = ("signal", "adds at least", "at most", "over", "knots")
        return display(
            "Fused gate, in logits",
            [("bias", f"{self.bias:.3g}")],
            [Fold("parts", part_rows, None, column_titles, open=True)],
        )


def logit_contributions(
    signals: FloatArray, model: Model, names: Sequence[str] = SIGNALS
) -> FloatArray:
    """Contribution of each part to the logit, [parts, ...].

    A missing signal adds the least that it can.

    Args:
      signals: [S, ...]; higher is surer, NaN where missing.
      model: fitted.
      names: of the signals, [S].

    Example:
      >>> one = Model(0.0, (Part("gap", (0.0, 0.1), (-1.0, 1.0)),))
      >>> signals = np.full((len(SIGNALS), 2), np.nan)
      >>> signals[SIGNALS.index("gap")] = [0.05, np.nan]
      >>> logit_contributions(signals, one)
      array([[ 0., -1.]])
    """
    signals = float_array(signals, "signals")
    contributions = np.empty((len(model.parts), *signals.shape[1:]))
    for part_index, part in enumerate(model.parts):
        values = signals[names.index(part.signal)]
        contributions[part_index] = np.interp(
            np.where(np.isnan(values), -np.inf, values), part.x, part.y
        )
    return contributions


def logit(signals: FloatArray, model: Model, names: Sequence[str] = SIGNALS) -> FloatArray:
    """Sum of the bias and the parts, [...]; NaN where none of the model's signals was measured.

    Args:
      signals: [S, ...]; higher is surer, NaN where missing.
      model: fitted.
      names: of the signals, [S].
    """
    used_rows = [names.index(part.signal) for part in model.parts]
    is_unmeasured = np.isnan(signals[used_rows]).all(axis=0)
    return np.where(
        is_unmeasured, np.nan, model.bias + logit_contributions(signals, model, names).sum(axis=0)
    )


def fused_probability(
    signals: FloatArray, model: Model, names: Sequence[str] = SIGNALS
) -> FloatArray:
    """Probability that the case is right if it is answered, [...], to ten digits.

    NaN where nothing was measured.

    Args:
      signals: [S, ...]; higher is surer, NaN where missing.
      model: fitted.
      names: of the signals, [S].
    """
    return np.round(1.0 / (1.0 + np.exp(-logit(signals, model, names))), PROBABILITY_DIGITS)


def rank_knots(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots of a signal (levels, or quantiles if many) and the normal scores of their ranks.

    Args:
      values: [Q]; NaN is left out.

    Example: ranks 1/6 and 2/3 of three values.
      >>> levels, scores = rank_knots(np.array([1.0, 2.0, 2.0, np.nan]))
      >>> levels.tolist(), scores.round(2).tolist()
      ([1.0, 2.0], [-0.97, 0.43])
    """
    from scipy.special import ndtri

    measured_values = np.sort(values[~np.isnan(values)])
    knot_levels = np.unique(measured_values)
    if len(knot_levels) > MAX_SIGNAL_KNOTS:
        knot_levels = np.unique(
            np.quantile(
                measured_values, np.linspace(0.0, 1.0, MAX_SIGNAL_KNOTS), method="inverted_cdf"
            )
        )
    rank_below = np.searchsorted(measured_values, knot_levels, side="left")
    rank_through = np.searchsorted(measured_values, knot_levels, side="right")
    return knot_levels, ndtri((rank_below + rank_through) / (2.0 * len(measured_values)))


RIDGE_PENALTY = 1.0  # penalty on the squared weights, in units of one case


def fit_fusion(signals: FloatArray, right: BoolArray, names: Sequence[str] = SIGNALS) -> Model:
    """Monotone logistic regression on ranked, standardised signals.

    Every signal is replaced by the normal score of its rank, standardised; weights are not
    negative, so that a surer signal never lowers the probability. A signal without weight has no
    part. The order of the rows does not matter.

    Args:
      signals: [S, Q].
      right: answered correctly if it were answered, [Q].
      names: of the signals, [S].

    Raises:
      ValueError: right and wrong cases are not both there, or no signal varies.

    Example:
      >>> signals = np.full((len(SIGNALS), 4), np.nan)
      >>> signals[0] = [10.0, 20.0, 30.0, 40.0]
      >>> [part.signal for part in fit_fusion(signals, np.array([False, False, True, True])).parts]
      ['confidence']
    """
    from scipy.optimize import minimize

    signals = float_array(signals, "signals")
    outcomes = float_array(right, "right")
    check_present(outcomes, "right", "leave out cases without a label")
    right = outcomes != 0.0
    if right.all() or not right.any():
        refuse(
            "a fused gate must see right and wrong cases",
            f"{int(right.sum())} right of {len(right)}",
            "add the other",
        )
    # Floats add up differently in another order: cases are sorted by value, so that their order
    # does not matter.
    case_order = np.lexsort((right, *signals[::-1]))
    sorted_outcomes = right[case_order].astype(np.float64)
    fitted_signals = []
    design_columns = []
    for signal_name, signal_row in zip(names, signals, strict=True):
        signal_values = signal_row[case_order]
        # A signal with one value ranks nothing, and has no spread to be standardised by.
        if len(np.unique(signal_values[~np.isnan(signal_values)])) < 2:
            continue
        knot_values, knot_scores = rank_knots(signal_values)
        # A missing value ranks below all others: missing never speaks for an answer.
        rank_scores = np.interp(
            np.where(np.isnan(signal_values), -np.inf, signal_values), knot_values, knot_scores
        )
        fitted_signals.append(
            (signal_name, knot_values, (knot_scores - rank_scores.mean()) / rank_scores.std())
        )
        design_columns.append((rank_scores - rank_scores.mean()) / rank_scores.std())
    if not fitted_signals:
        refuse("a fused gate needs a signal that varies", "none", "check that the trace holds hits")
    design_matrix = np.stack(design_columns, axis=1)

    def loss(coefficients_tried: FloatArray) -> tuple[float, FloatArray]:
        case_logits = coefficients_tried[0] + design_matrix @ coefficients_tried[1:]
        probability_errors = 1.0 / (1.0 + np.exp(-case_logits)) - sorted_outcomes
        penalised_loss = float(
            (np.logaddexp(0.0, case_logits) - sorted_outcomes * case_logits).sum()
            + 0.5 * RIDGE_PENALTY * (coefficients_tried[1:] ** 2).sum()
        )
        return penalised_loss, np.concatenate(
            [
                [probability_errors.sum()],
                design_matrix.T @ probability_errors + RIDGE_PENALTY * coefficients_tried[1:],
            ]
        )

    # Bounds at 0 keep the model monotone, and the problem convex, so that the start does not
    # matter.
    weight_bounds: Any = [(None, None), *[(0.0, None)] * len(fitted_signals)]
    solver_options: Any = {"maxiter": 2_000, "ftol": 1e-13, "gtol": 1e-9}
    start_weights: Any = np.zeros(1 + len(fitted_signals))
    coefficients = minimize(
        loss,
        start_weights,
        jac=True,
        method="L-BFGS-B",
        bounds=weight_bounds,
        options=solver_options,
    ).x
    fused_parts = [
        Part(
            signal_name, tuple(knot_values.tolist()), tuple((signal_weight * knot_scores).tolist())
        )
        for (signal_name, knot_values, knot_scores), signal_weight in zip(
            fitted_signals, coefficients[1:], strict=True
        )
        if signal_weight > 0.0
    ]
    return Model(float(coefficients[0]), tuple(fused_parts))


def rescale_logit(model: Model, slope: float, intercept: float) -> Model:
    """Model whose logit is slope · logit + intercept: how a calibration of the logit is folded in.

    Args:
      model: fitted.
      slope: factor of the logit, above 0.
      intercept: added to the logit.

    Raises:
      ValueError: the slope is not positive.
    """
    if not slope > 0.0:
        reason = "the model ranks against the labels on cases it did not see"
        refuse(
            "slope must be positive",
            f"{slope:g}: {reason}",
            "label more cases, or keep to a single gate",
        )
    rescaled_parts = tuple(
        Part(part.signal, part.x, tuple(slope * part_logit for part_logit in part.y))
        for part in model.parts
    )
    return Model(slope * model.bias + intercept, rescaled_parts)
