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

KNOTS = 33
DIGITS = 10  # of a probability: the exponential's last bits differ between machines (rule S0.4)


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
        signal = visible(self.signal)
        return f"Part({signal}, {len(self.x)} knots, adds {min(self.y):.3g} to {max(self.y):.3g})"


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
        widest = sorted(self.parts, key=lambda part: min(part.y) - max(part.y))
        rows = [
            (
                part.signal,
                f"{min(part.y):+.3g}",
                f"{max(part.y):+.3g}",
                f"{part.x[0]:.4g} to {part.x[-1]:.4g}",
                f"{len(part.x)}",
            )
            for part in widest
        ]
        head = ("signal", "adds at least", "at most", "over", "knots")
        return display(
            "Fused gate, in logits",
            [("bias", f"{self.bias:.3g}")],
            [Fold("parts", rows, None, head, open=True)],
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
    out = np.empty((len(model.parts), *signals.shape[1:]))
    for row, part in enumerate(model.parts):
        values = signals[names.index(part.signal)]
        out[row] = np.interp(np.where(np.isnan(values), -np.inf, values), part.x, part.y)
    return out


def logit(signals: FloatArray, model: Model, names: Sequence[str] = SIGNALS) -> FloatArray:
    """Sum of the bias and the parts, [...]; NaN where none of the model's signals was measured.

    Args:
      signals: [S, ...]; higher is surer, NaN where missing.
      model: fitted.
      names: of the signals, [S].
    """
    used = [names.index(part.signal) for part in model.parts]
    blind = np.isnan(signals[used]).all(axis=0)
    return np.where(
        blind, np.nan, model.bias + logit_contributions(signals, model, names).sum(axis=0)
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
    return np.round(1.0 / (1.0 + np.exp(-logit(signals, model, names))), DIGITS)


def rank_knots(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots of a signal (levels, or quantiles if many) and the normal scores of their ranks.

    Args:
      values: [Q]; NaN is left out.
    """
    from scipy.special import ndtri

    known = np.sort(values[~np.isnan(values)])
    levels = np.unique(known)
    if len(levels) > KNOTS:
        levels = np.unique(np.quantile(known, np.linspace(0.0, 1.0, KNOTS), method="inverted_cdf"))
    below, upto = (
        np.searchsorted(known, levels, side="left"),
        np.searchsorted(known, levels, side="right"),
    )
    return levels, ndtri((below + upto) / (2.0 * len(known)))


RIDGE = 1.0  # penalty on the squared weights, in units of one case


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

    signals, outcomes = float_array(signals, "signals"), float_array(right, "right")
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
    order = np.lexsort((right, *signals[::-1]))
    y = right[order].astype(np.float64)
    named, columns = [], []
    for name, unsorted in zip(names, signals, strict=True):
        values = unsorted[order]
        # A signal with one value ranks nothing, and has no spread to be standardised by.
        if len(np.unique(values[~np.isnan(values)])) < 2:
            continue
        x, z = rank_knots(values)
        # A missing value ranks below all others: missing never speaks for an answer.
        column = np.interp(np.where(np.isnan(values), -np.inf, values), x, z)
        named.append((name, x, (z - column.mean()) / column.std()))
        columns.append((column - column.mean()) / column.std())
    if not named:
        refuse("a fused gate needs a signal that varies", "none", "check that the trace holds hits")
    design = np.stack(columns, axis=1)

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        eta = theta[0] + design @ theta[1:]
        residual = 1.0 / (1.0 + np.exp(-eta)) - y
        value = float(
            (np.logaddexp(0.0, eta) - y * eta).sum() + 0.5 * RIDGE * (theta[1:] ** 2).sum()
        )
        return value, np.concatenate([[residual.sum()], design.T @ residual + RIDGE * theta[1:]])

    # Bounds at 0 keep the model monotone, and the problem convex, so that the start does not
    # matter.
    bounds: Any = [(None, None), *[(0.0, None)] * len(named)]
    options: Any = {"maxiter": 2_000, "ftol": 1e-13, "gtol": 1e-9}
    at: Any = np.zeros(1 + len(named))
    coefficients = minimize(loss, at, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    parts = [
        Part(name, tuple(x.tolist()), tuple((weight * z).tolist()))
        for (name, x, z), weight in zip(named, coefficients[1:], strict=True)
        if weight > 0.0
    ]
    return Model(float(coefficients[0]), tuple(parts))


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
        what = "the model ranks against the labels on cases it did not see"
        refuse(
            "slope must be positive",
            f"{slope:g}: {what}",
            "label more cases, or keep to a single gate",
        )
    parts = tuple(
        Part(part.signal, part.x, tuple(slope * value for value in part.y)) for part in model.parts
    )
    return Model(slope * model.bias + intercept, parts)
