"""Propensities (algebra): the exact probability of each arm under a learner (S4.6).

P(i) = ∫ f_i(x) ∏_{j≠i} F_j(x) dx over the arms that are available, by Gauss–Legendre on panels that
are short wherever one of the densities bends. Nothing is drawn, so the same posteriors give the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.fixed_plans import check_plan
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    State,
    check_round,
    uniform_share,
)
from raglab.values import refuse

Array: TypeAlias = NDArray[np.float64]
Family: TypeAlias = tuple[
    Callable[..., Array], Callable[..., tuple[Array, Array]]
]  # points; F and f at a point

TAIL = 1e-12  # mass of a draw that is left out at either end
NODE, WEIGHT = np.polynomial.legendre.leggauss(8)  # of a panel
PANELS = 12  # of the range of one draw
GRADE = 1.7  # panels grow from the middle of a Beta outwards
LONGEST = 0.9  # panel in a heavy tail, in units of the logarithm of the distance
LEAST_DF = 0.1
FAR = 30.0  # log-odds
# log-odds where 1 − x and x change their roles
KINKS = np.array([0.0, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 76.8])
PANEL_ERROR = 1e-10  # panels are halved until the probabilities sum to 1 within it
MOST_ERROR = 1e-9  # where halving no longer helps, and the digits of a float end
HALVINGS = 5
ROWS = 256  # taken at once


def largest_normal(mean: ArrayLike, sd: ArrayLike, mask: ArrayLike | None = None) -> Array:
    """Probability that each of A normal draws is the largest, [..., A]; 0 where masked.

    Absolute error below 1e-9, as for the others here; what is rarer than that may come out as 0.

    Args:
      mean, sd: [..., A], sd > 0.
      mask: which draws take part, bool, broadcast to [..., A]; None: all.

    Raises:
      ValueError: a parameter of a draw that takes part is not finite or not positive where it must
        be, or none does.

    Example:
      >>> largest_normal([0.0, 0.0], [1.0, 5.0]).round(12).tolist()
      [0.5, 0.5]
    """
    return _largest((_normal_points, _normal), {"mean": mean}, {"sd": sd}, mask)


def largest_t(
    mean: ArrayLike, scale: ArrayLike, df: ArrayLike, mask: ArrayLike | None = None
) -> Array:
    """Probability that each of A Student-t draws is the largest, [..., A]; 0 where masked.

    Args:
      mean, scale, df: [..., A], scale and df > 0.
      mask: which draws take part, bool, broadcast to [..., A]; None: all.

    Raises:
      ValueError: a parameter of a draw that takes part is not finite or not positive where it must
        be, or none does, or a df is below 0.1, whose draws do not fit into floats.

    Example:
      >>> largest_t([0.0, 0.0], [1.0, 5.0], [2.0, 30.0]).round(9).tolist()
      [0.5, 0.5]
    """
    if np.any((np.asarray(df) < LEAST_DF) & np.asarray(True if mask is None else mask)):
        refuse(
            f"df must be at least {LEAST_DF:g}",
            f"{float(np.min(df)):g}",
            "give the prior more observations",
        )
    return _largest(
        (_student_points, _student_cdf), {"mean": mean}, {"scale": scale, "df": df}, mask
    )


def largest_beta(a: ArrayLike, b: ArrayLike, mask: ArrayLike | None = None) -> Array:
    """Probability that each of A Beta draws is the largest, [..., A]; 0 where masked.

    Args:
      a, b: [..., A], both > 0.
      mask: which draws take part, bool, broadcast to [..., A]; None: all.

    Raises:
      ValueError: a parameter of a draw that takes part is not finite and positive, or none takes
        part.

    Example:
      >>> largest_beta([2.0, 1.0], [1.0, 1.0]).round(12).tolist()  # 2/3 and 1/3
      [0.666666666667, 0.333333333333]
    """
    return _largest((_beta_points, _log_odds_cdf), {}, {"a": a, "b": b}, mask)


def _largest(
    family: Family,
    free: dict[str, ArrayLike],
    positive: dict[str, ArrayLike],
    mask: ArrayLike | None,
) -> Array:
    named = {name: np.asarray(value, dtype=np.float64) for name, value in (free | positive).items()}
    *values, on = np.broadcast_arrays(*named.values(), np.asarray(mask is None or mask, bool))
    if not on.any(axis=-1).all():
        rule = "one draw at least must take part"
        refuse(rule, "a mask that is false for all", "leave one arm available")
    for name, value in zip(named, values, strict=True):
        wrong = on & ~(np.isfinite(value) & ((value > 0.0) | (name in free)))
        if wrong.any():
            rule = f"{name} must be finite{' and above 0' * (name in positive)}"
            refuse(rule, f"{value[wrong][0]:g}", "see the prior")
    # a draw that takes no part gets a parameter that is harmless to every formula
    safe = [np.where(on, value, 1.0).reshape(-1, on.shape[-1]) for value in values]
    available = on.reshape(-1, on.shape[-1])
    _, first, again = np.unique(
        np.concatenate([*safe, available], axis=-1), axis=0, return_index=True, return_inverse=True
    )
    # equal posteriors are integrated once
    safe, available = [value[first] for value in safe], available[first]
    # so many rows at a time, whose panels fit into memory
    out = np.empty(available.shape)
    for start in range(0, len(out), ROWS):
        part = slice(start, start + ROWS)
        params = [value[part] for value in safe]
        out[part] = _integrated_probabilities(
            family[1], params, available[part], family[0](available[part], *params), HALVINGS
        )
    out /= out.sum(axis=-1, keepdims=True)
    return out[again.ravel()].reshape(on.shape)


def _integrated_probabilities(
    cdf_and_density: Callable[..., Any],
    params: list[Array],
    on: NDArray[np.bool_],
    points: Array,
    halvings: int,
) -> Array:
    """Probabilities of B rows before they are normalised, [B, A].

    Rows that miss 1 again with panels half as long.

    Args:
      halvings: that may still follow.
    """
    out = _integrals(cdf_and_density, params, on, points)
    wrong = np.flatnonzero(~(np.abs(out.sum(axis=-1) - 1.0) <= PANEL_ERROR))
    if len(wrong) == 0:
        return out
    if halvings == 0:
        missed = float(np.abs(out[wrong].sum(axis=-1) - 1.0).max())
        if not missed <= MOST_ERROR:
            msg = (
                f"probabilities must sum to 1 within {MOST_ERROR:g}, missed by {missed:g}; give "
                "the prior more weight."
            )
            raise ValueError(msg)
        return out
    coarse = points[wrong]
    middle = 0.5 * (coarse[:, 1:] + coarse[:, :-1])
    finer = np.sort(np.concatenate([coarse, middle], axis=-1), axis=-1)
    params = [value[wrong] for value in params]
    out[wrong] = _integrated_probabilities(cdf_and_density, params, on[wrong], finer, halvings - 1)
    return out


def _integrals(
    cdf_and_density: Callable[..., Any],
    params: list[Array],
    on: NDArray[np.bool_],
    points: Array,
) -> Array:
    """∫ f_i ∏_{j≠i} F_j over the panels between each row's points, by Gauss–Legendre, [B, A]."""
    row, panel = np.nonzero(points[:, 1:] > points[:, :-1])
    low, high = points[row, panel], points[row, panel + 1]
    half = 0.5 * (high - low)
    x = (0.5 * (high + low))[:, None] + half[:, None] * NODE  # [panels, nodes]
    below, density = cdf_and_density(x[..., None], *(value[row, None, :] for value in params))
    off = ~on[row, None, :]
    below, density = np.where(off, 1.0, below), np.where(off, 0.0, density)
    product = _product_of_others(below)
    inside = ((half[:, None] * WEIGHT)[..., None] * density * product).sum(axis=1)
    out = np.zeros(on.shape)
    np.add.at(out, row, inside)
    return out


def _product_of_others(below: Array) -> Array:
    """Product over all but one of the last axis, [..., A], without a division."""
    ones = np.ones_like(below[..., :1])
    before = np.cumprod(np.concatenate([ones, below[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, below[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * after


def _break_points(
    points: Array,
    low: Array,
    high: Array,
    on: NDArray[np.bool_],
    more: Array | None = None,
) -> Array:
    """Break points [B, M] in order, from highest lower end to highest upper end of the draws.

    Below the first the product of the F_j is at most TAIL, above the second no draw has more than
    TAIL.

    Args:
      points: [B, A, M].
      low, high: ends of each draw, [B, A].
      more: the same further points for every row.
    """
    least = np.where(on, low, -np.inf).max(axis=-1)[:, None]
    most = np.where(on, high, -np.inf).max(axis=-1)[:, None]
    flat = np.where(on[..., None], points, least[..., None]).reshape(len(on), -1)
    if more is not None:
        flat = np.concatenate([flat, np.broadcast_to(more, (len(on), len(more)))], axis=-1)
    return np.sort(np.clip(flat, least, most), axis=-1)


def _normal_points(on: NDArray[np.bool_], mean: Array, sd: Array) -> Array:
    from scipy.special import ndtri

    reach = -ndtri(TAIL)
    points = mean[..., None] + sd[..., None] * np.linspace(-reach, reach, PANELS + 1)
    return _break_points(points, mean - reach * sd, mean + reach * sd, on)


def _normal(x: Array, mean: Array, sd: Array) -> tuple[Array, Array]:
    from scipy.special import ndtr

    z = (x - mean) / sd
    return ndtr(z), np.exp(-0.5 * z * z) / (sd * np.sqrt(2.0 * np.pi))


def _student_points(on: NDArray[np.bool_], mean: Array, scale: Array, df: Array) -> Array:
    """Even steps in w, x = mean + scale · √df · sinh(w): there the density is cosh(w)^−df."""
    from scipy.special import stdtrit

    root = np.sqrt(df)
    reach = np.arcsinh(-stdtrit(df, TAIL) / root)
    step = np.minimum(2.0 * reach / PANELS, LONGEST)
    most = int(np.ceil((2.0 * reach / step).max())) + 1
    w = np.minimum(-reach[..., None] + step[..., None] * np.arange(most + 1), reach[..., None])
    points = mean[..., None] + (scale * root)[..., None] * np.sinh(w)
    return _break_points(points, points[..., 0], points[..., -1], on)


def _student_cdf(x: Array, mean: Array, scale: Array, df: Array) -> tuple[Array, Array]:
    from scipy.special import stdtr

    z, h = (x - mean) / scale, 0.5 * df
    # ln Γ(h + ½) − ln Γ(h) − ½ ln h
    gammas = h * np.log1p(0.5 / h) - 0.5 + _rest(h + 0.5) - _rest(h)
    norm = gammas - 0.5 * np.log(2.0 * np.pi) - np.log(scale)
    return stdtr(df, z), np.exp(norm - 0.5 * (df + 1.0) * np.log1p(z * z / df))


def _beta_points(on: NDArray[np.bool_], a: Array, b: Array) -> Array:
    low, high = _lower_log_odds(a, b), -_lower_log_odds(b, a)
    middle = np.clip(np.log(a) - np.log(b), low, high)[..., None]
    share = np.linspace(0.0, 1.0, PANELS // 2 + 1) ** GRADE
    left, right = (
        middle + (low[..., None] - middle) * share,
        middle + (high[..., None] - middle) * share[1:],
    )
    return _break_points(
        np.concatenate([left, right], axis=-1), low, high, on, np.concatenate([-KINKS, KINKS])
    )


def _lower_log_odds(a: Array, b: Array) -> Array:
    """Log-odds with mass TAIL below; by the leading term of F where it is too small for a float."""
    from scipy.special import betaincinv, betaln

    x = betaincinv(a, b, TAIL)
    tiny = x < 1e-290
    return np.where(
        tiny,
        (np.log(TAIL * a) + betaln(a, b)) / a,
        np.log(x) - np.log1p(-np.minimum(x, 1.0 - 1e-16)),
    )


def _log_odds_cdf(z: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """F and f of the log-odds z of a Beta draw.

    F is smooth and falls exponentially whatever a and b are.

    f is taken relative to its value at the log-odds of a / (a + b), which Stirling's series gives
    without cancellation.
    """
    from scipy.special import betainc, betaln

    right = z > 0.0
    near, far, away = np.where(right, b, a), np.where(right, a, b), np.exp(-np.abs(z))
    tail = betainc(near, far, away / (1.0 + away))
    # the leading term, where the smaller of x and 1 − x is too small for a float
    if away.min() < 1e-290:
        tail = np.where(
            away < 1e-290, np.exp(-near * np.abs(z) - np.log(near) - betaln(a, b)), tail
        )
    middle = np.log(a) - np.log(b)
    d = z - middle
    less = a <= b
    # the form in which nothing cancels
    ahead = np.where(d > 0.0, less & (d <= FAR), less | (d < -FAR))
    count, step = np.where(ahead, a, b), np.where(ahead, d, -d)
    bent = count * step - (a + b) * np.log1p(count / (a + b) * np.expm1(step))
    peak = 0.5 * (np.log(a) + np.log(b) - np.log(a + b) - np.log(2.0 * np.pi))
    return np.where(right, 1.0 - tail, tail), np.exp(
        bent + peak + _rest(a + b) - _rest(a) - _rest(b)
    )


def _rest(x: Array) -> Array:
    """What Stirling's formula leaves of ln Γ(x)."""
    from scipy.special import gammaln

    far = np.maximum(x, 10.0)
    square = 1.0 / (far * far)
    series = (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    ) / far
    near = gammaln(x) - ((x - 0.5) * np.log(x) - x + 0.5 * np.log(2.0 * np.pi))
    return np.where(x >= 10.0, series, near)


def propensities(
    state: State, bandit: Bandit, *, mask: ArrayLike | None = None, context: ArrayLike | None = None
) -> Array:
    """Probability that `choose` takes each arm in this round, [..., A].

    Sums to 1, 0 on masked arms.

    Read it before `choose`, which counts the round. The index policies put 1 on their best arm, or
    split it over ties where these are random; Thompson sampling is integrated over the posteriors
    of the available arms, to an absolute error below 1e-8. With share s of rounds that choose
    uniformly (epsilon, the floor, or both) it is (1 − s) p + s / available. An arm whose draws are
    best less often than once in 1e12 may get 0; a floor above 0 keeps every weight of an off-policy
    estimate finite. Draws are taken as real numbers: with Beta counts below 0.1 (an exploration
    above 4 on few rewards) those of `choose` round to 1 and tie, and its lowest arm gains.

    Args:
      state: before the round.
      bandit: settings of the learner.
      mask: available arms, [A] or [..., A].
      context: [..., d], for linear policies.

    Raises:
      ValueError: settings outside their ranges, a mask that leaves no arm, or a context that does
        not fit.

    Source: rules S4.5 and S4.6.

    Example:
      >>> from raglab.bandit.learner import init, update
      >>> bandit = Bandit("thompson_beta")
      >>> state = update(init(2), 0, 1.0, bandit)  # Beta(2, 1) against Beta(1, 1)
      >>> propensities(state, bandit).round(9).tolist()
      [0.666666667, 0.333333333]
      >>> propensities(state, bandit, mask=[False, True]).tolist()
      [0.0, 1.0]
    """
    checked, x = check_round(state, bandit, mask, context)
    on = np.ones(state.n.shape, np.bool_) if checked is None else checked
    best = _greedy_probabilities(state, bandit, on, x)
    available = on.sum(axis=-1, keepdims=True)
    share = uniform_share(bandit, available)
    return np.where(on, (1.0 - share) * best + share / available, 0.0)


def sample(propensity: ArrayLike, uniform: ArrayLike) -> NDArray[np.int64]:
    """Arm that a uniform number picks by the inverse of the cumulated propensities, [...].

    Never one of propensity 0.

    Args:
      propensity: [..., A], sums to 1.
      uniform: in [0, 1), [...].

    Raises:
      ValueError: propensities that are negative, NaN or do not sum to 1, or a uniform outside [0,
        1).

    Example:
      >>> sample([0.25, 0.0, 0.75], [0.0, 0.2, 0.25, 0.999]).tolist()
      [0, 0, 2, 2]
    """
    p, u = float_array(propensity, "propensity"), float_array(uniform, "uniform")
    check_plan(p, "propensity")
    inside = (u >= 0.0) & (u < 1.0)
    if not inside.all():
        refuse(
            "uniform must be in [0, 1)", f"{u[~inside].flat[0]:g}", "draw it with Generator.random"
        )
    upto = np.cumsum(p, axis=-1)
    beyond = upto > (u * upto[..., -1])[..., None]
    # where u · total rounds up to the total
    last = p.shape[-1] - 1 - np.argmax((p > 0.0)[..., ::-1], axis=-1)
    return np.asarray(np.where(beyond[..., -1], np.argmax(beyond, axis=-1), last), dtype=np.int64)


def _greedy_probabilities(
    state: State, bandit: Bandit, on: NDArray[np.bool_], context: Array
) -> Array:
    """Probability that each available arm has the best score, [..., A].

    Certain of an index, an integral of draws.
    """
    entry = LEARNERS[bandit.algorithm]
    if entry.index is not None:
        return greedy_choice(entry.index(state, bandit, on, context), bandit, on)
    if entry.largest is None:
        refuse(
            "propensities need the probability that a draw is the largest",
            "none",
            f"give {bandit.algorithm} one",
        )
    return entry.largest(state, bandit, on, context)


def greedy_choice(score: Array, bandit: Bandit, on: NDArray[np.bool_]) -> Array:
    """1 on the best available score, on the lowest of tied arms or split among them, [..., A]."""
    masked = np.where(on, score, -np.inf)
    tied = on & (masked == masked.max(axis=-1, keepdims=True))
    if bandit.ties == "random":
        return tied / tied.sum(axis=-1, keepdims=True)
    return np.asarray(tied & (np.cumsum(tied, axis=-1) == 1), dtype=np.float64)
