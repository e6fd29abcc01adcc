"""Propensities (algebra): the exact probability of each arm under a learner (S4.6).

P(i) = ∫ f_i(x) ∏_{j≠i} F_j(x) dx over the arms that are available, by Gauss–Legendre on panels that
are short wherever one of the densities bends. Nothing is drawn, so the same posteriors give the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.fixed_plans import check_plan
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    State,
    check_round,
    uniform_share,
)
from raglab.values import BoolArray, FloatArray, IntArray, refuse

# points; F and f at a point
Family: TypeAlias = tuple[Callable[..., FloatArray], Callable[..., tuple[FloatArray, FloatArray]]]

TAIL_MASS = 1e-12  # mass of a draw that is left out at either end
PANEL_NODES, PANEL_WEIGHTS = np.polynomial.legendre.leggauss(8)  # of a panel
N_PANELS = 12  # of the range of one draw
PANEL_GROWTH = 1.7  # panels grow from the middle of a Beta outwards
LONGEST_TAIL_PANEL = 0.9  # panel in a heavy tail, in units of the logarithm of the distance
MIN_DEGREES_OF_FREEDOM = 0.1
FAR_LOG_ODDS = 30.0  # log-odds
# log-odds where 1 − x and x change their roles
LOG_ODDS_KINKS = np.array([0.0, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 76.8])
PANEL_ERROR = 1e-10  # panels are halved until the probabilities sum to 1 within it
MAX_SUM_ERROR = 1e-9  # where halving no longer helps, and the digits of a float end
PANEL_HALVINGS = 5
ROWS_AT_ONCE = 256  # taken at once


def largest_normal(mean: ArrayLike, sd: ArrayLike, mask: ArrayLike | None = None) -> FloatArray:
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
    return _largest((_normal_points, _normal_cdf), {"mean": mean}, {"sd": sd}, mask)


def largest_t(
    mean: ArrayLike, scale: ArrayLike, df: ArrayLike, mask: ArrayLike | None = None
) -> FloatArray:
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
    if np.any(
        (np.asarray(df) < MIN_DEGREES_OF_FREEDOM) & np.asarray(True if mask is None else mask)
    ):
        refuse(
            f"df must be at least {MIN_DEGREES_OF_FREEDOM:g}",
            f"{float(np.min(df)):g}",
            "give the prior more observations",
        )
    return _largest(
        (_student_points, _student_cdf), {"mean": mean}, {"scale": scale, "df": df}, mask
    )


def largest_beta(a: ArrayLike, b: ArrayLike, mask: ArrayLike | None = None) -> FloatArray:
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
    draw_family: Family,
    unbounded_parameters: dict[str, ArrayLike],
    positive_parameters: dict[str, ArrayLike],
    mask: ArrayLike | None,
) -> FloatArray:
    named_parameters = {
        parameter_name: np.asarray(parameter_values, dtype=np.float64)
        for parameter_name, parameter_values in (unbounded_parameters | positive_parameters).items()
    }
    *parameter_arrays, takes_part = np.broadcast_arrays(
        *named_parameters.values(), np.asarray(mask is None or mask, bool)
    )
    if not takes_part.any(axis=-1).all():
        refuse(
            "one draw at least must take part",
            "a mask that is false for all",
            "leave one arm available",
        )
    for parameter_name, parameter_values in zip(named_parameters, parameter_arrays, strict=True):
        is_invalid = takes_part & ~(
            np.isfinite(parameter_values)
            & ((parameter_values > 0.0) | (parameter_name in unbounded_parameters))
        )
        if is_invalid.any():
            refuse(
                (
                    f"{parameter_name} must be finite"
                    f"{' and above 0' * (parameter_name in positive_parameters)}"
                ),
                f"{parameter_values[is_invalid][0]:g}",
                "see the prior",
            )
    # a draw that takes no part gets a parameter that is harmless to every formula
    safe_parameters = [
        np.where(takes_part, parameter_values, 1.0).reshape(-1, takes_part.shape[-1])
        for parameter_values in parameter_arrays
    ]
    available = takes_part.reshape(-1, takes_part.shape[-1])
    _, first_rows, row_of_posterior = np.unique(
        np.concatenate([*safe_parameters, available], axis=-1),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    # equal posteriors are integrated once
    safe_parameters = [parameter_values[first_rows] for parameter_values in safe_parameters]
    available = available[first_rows]
    # so many rows at a time, whose panels fit into memory
    probabilities = np.empty(available.shape)
    for first_row in range(0, len(probabilities), ROWS_AT_ONCE):
        row_block = slice(first_row, first_row + ROWS_AT_ONCE)
        block_parameters = [parameter_values[row_block] for parameter_values in safe_parameters]
        probabilities[row_block] = _integrated_probabilities(
            draw_family[1],
            block_parameters,
            available[row_block],
            draw_family[0](available[row_block], *block_parameters),
            PANEL_HALVINGS,
        )
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return probabilities[row_of_posterior.ravel()].reshape(takes_part.shape)


def _integrated_probabilities(
    cdf_and_density: Callable[..., Any],
    parameters: list[FloatArray],
    takes_part: BoolArray,
    break_points: FloatArray,
    halvings_left: int,
) -> FloatArray:
    """Probabilities of B rows before they are normalised, [B, A].

    Rows that miss 1 again with panels half as long.

    Args:
      halvings_left: that may still follow.
    """
    probabilities = _integrals(cdf_and_density, parameters, takes_part, break_points)
    imprecise_rows = np.flatnonzero(~(np.abs(probabilities.sum(axis=-1) - 1.0) <= PANEL_ERROR))
    if len(imprecise_rows) == 0:
        return probabilities
    if halvings_left == 0:
        sum_error = float(np.abs(probabilities[imprecise_rows].sum(axis=-1) - 1.0).max())
        if not sum_error <= MAX_SUM_ERROR:
            msg = (
                f"probabilities must sum to 1 within {MAX_SUM_ERROR:g}, missed by {sum_error:g}; "
                "give the prior more weight."
            )
            raise ValueError(msg)
        return probabilities
    coarse_points = break_points[imprecise_rows]
    midpoints = 0.5 * (coarse_points[:, 1:] + coarse_points[:, :-1])
    finer_points = np.sort(np.concatenate([coarse_points, midpoints], axis=-1), axis=-1)
    parameters = [parameter[imprecise_rows] for parameter in parameters]
    probabilities[imprecise_rows] = _integrated_probabilities(
        cdf_and_density, parameters, takes_part[imprecise_rows], finer_points, halvings_left - 1
    )
    return probabilities


def _integrals(
    cdf_and_density: Callable[..., Any],
    parameters: list[FloatArray],
    takes_part: BoolArray,
    break_points: FloatArray,
) -> FloatArray:
    """∫ f_i ∏_{j≠i} F_j over the panels between each row's points, by Gauss–Legendre, [B, A]."""
    panel_rows, panel_numbers = np.nonzero(break_points[:, 1:] > break_points[:, :-1])
    panel_starts = break_points[panel_rows, panel_numbers]
    panel_ends = break_points[panel_rows, panel_numbers + 1]
    half_widths = 0.5 * (panel_ends - panel_starts)
    # of shape [panels, nodes]
    node_points = (0.5 * (panel_ends + panel_starts))[:, None] + half_widths[:, None] * PANEL_NODES
    cumulative, density = cdf_and_density(
        node_points[..., None], *(parameter[panel_rows, None, :] for parameter in parameters)
    )
    is_left_out = ~takes_part[panel_rows, None, :]
    cumulative = np.where(is_left_out, 1.0, cumulative)
    density = np.where(is_left_out, 0.0, density)
    product_of_rivals = _product_of_others(cumulative)
    panel_integrals = (
        (half_widths[:, None] * PANEL_WEIGHTS)[..., None] * density * product_of_rivals
    ).sum(axis=1)
    probabilities = np.zeros(takes_part.shape)
    np.add.at(probabilities, panel_rows, panel_integrals)
    return probabilities


def _product_of_others(cumulative: FloatArray) -> FloatArray:
    """Product over all but one of the last axis, [..., A], without a division."""
    column = np.ones_like(cumulative[..., :1])
    product_below = np.cumprod(np.concatenate([column, cumulative[..., :-1]], axis=-1), axis=-1)
    product_above = np.cumprod(np.concatenate([column, cumulative[..., :0:-1]], axis=-1), axis=-1)[
        ..., ::-1
    ]
    return product_below * product_above


def _break_points(
    draw_points: FloatArray,
    lower_ends: FloatArray,
    upper_ends: FloatArray,
    takes_part: BoolArray,
    shared_points: FloatArray | None = None,
) -> FloatArray:
    """Break points [B, M] in order, from highest lower end to highest upper end of the draws.

    Below the first the product of the F_j is at most TAIL, above the second no draw has more than
    TAIL.

    Args:
      draw_points: [B, A, M].
      lower_ends, high: ends of each draw, [B, A].
      shared_points: the same further points for every row.
    """
    lowest_point = np.where(takes_part, lower_ends, -np.inf).max(axis=-1)[:, None]
    highest_point = np.where(takes_part, upper_ends, -np.inf).max(axis=-1)[:, None]
    row_points = np.where(takes_part[..., None], draw_points, lowest_point[..., None]).reshape(
        len(takes_part), -1
    )
    if shared_points is not None:
        row_points = np.concatenate(
            [row_points, np.broadcast_to(shared_points, (len(takes_part), len(shared_points)))],
            axis=-1,
        )
    return np.sort(np.clip(row_points, lowest_point, highest_point), axis=-1)


def _normal_points(takes_part: BoolArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    from scipy.special import ndtri

    tail_distance = -ndtri(TAIL_MASS)
    draw_points = mean[..., None] + sd[..., None] * np.linspace(
        -tail_distance, tail_distance, N_PANELS + 1
    )
    return _break_points(
        draw_points, mean - tail_distance * sd, mean + tail_distance * sd, takes_part
    )


def _normal_cdf(x: FloatArray, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.special import ndtr

    standardised = (x - mean) / sd
    return ndtr(standardised), np.exp(-0.5 * standardised * standardised) / (
        sd * np.sqrt(2.0 * np.pi)
    )


def _student_points(
    takes_part: BoolArray, mean: FloatArray, scale: FloatArray, df: FloatArray
) -> FloatArray:
    """Even steps in w, x = mean + scale · √df · sinh(w): there the density is cosh(w)^−df."""
    from scipy.special import stdtrit

    root_df = np.sqrt(df)
    tail_distance = np.arcsinh(-stdtrit(df, TAIL_MASS) / root_df)
    step_width = np.minimum(2.0 * tail_distance / N_PANELS, LONGEST_TAIL_PANEL)
    n_steps = int(np.ceil((2.0 * tail_distance / step_width).max())) + 1
    steps = np.minimum(
        -tail_distance[..., None] + step_width[..., None] * np.arange(n_steps + 1),
        tail_distance[..., None],
    )
    draw_points = mean[..., None] + (scale * root_df)[..., None] * np.sinh(steps)
    return _break_points(draw_points, draw_points[..., 0], draw_points[..., -1], takes_part)


def _student_cdf(
    x: FloatArray, mean: FloatArray, scale: FloatArray, df: FloatArray
) -> tuple[FloatArray, FloatArray]:
    from scipy.special import stdtr

    standardised = (x - mean) / scale
    half_df = 0.5 * df
    # ln Γ(h + ½) − ln Γ(h) − ½ ln h
    log_gamma_ratio = (
        half_df * np.log1p(0.5 / half_df)
        - 0.5
        + _stirling_remainder(half_df + 0.5)
        - _stirling_remainder(half_df)
    )
    log_normaliser = log_gamma_ratio - 0.5 * np.log(2.0 * np.pi) - np.log(scale)
    return stdtr(df, standardised), np.exp(
        log_normaliser - 0.5 * (df + 1.0) * np.log1p(standardised * standardised / df)
    )


def _beta_points(takes_part: BoolArray, a: FloatArray, b: FloatArray) -> FloatArray:
    lower_ends = _lower_log_odds(a, b)
    upper_ends = -_lower_log_odds(b, a)
    centres = np.clip(np.log(a) - np.log(b), lower_ends, upper_ends)[..., None]
    graded_steps = np.linspace(0.0, 1.0, N_PANELS // 2 + 1) ** PANEL_GROWTH
    points_below = centres + (lower_ends[..., None] - centres) * graded_steps
    points_above = centres + (upper_ends[..., None] - centres) * graded_steps[1:]
    return _break_points(
        np.concatenate([points_below, points_above], axis=-1),
        lower_ends,
        upper_ends,
        takes_part,
        np.concatenate([-LOG_ODDS_KINKS, LOG_ODDS_KINKS]),
    )


def _lower_log_odds(a: FloatArray, b: FloatArray) -> FloatArray:
    """Log-odds with mass TAIL below; by the leading term of F where it is too small for a float."""
    from scipy.special import betaincinv, betaln

    quantile = betaincinv(a, b, TAIL_MASS)
    is_tiny = quantile < 1e-290
    return np.where(
        is_tiny,
        (np.log(TAIL_MASS * a) + betaln(a, b)) / a,
        np.log(quantile) - np.log1p(-np.minimum(quantile, 1.0 - 1e-16)),
    )


def _log_odds_cdf(
    log_odds: FloatArray, a: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """F and f of the log-odds z of a Beta draw.

    F is smooth and falls exponentially whatever a and b are.

    f is taken relative to its value at the log-odds of a / (a + b), which Stirling's series gives
    without cancellation.
    """
    from scipy.special import betainc, betaln

    is_positive = log_odds > 0.0
    near_count, far_count, odds_decay = (
        np.where(is_positive, b, a),
        np.where(is_positive, a, b),
        np.exp(-np.abs(log_odds)),
    )
    tail_mass = betainc(near_count, far_count, odds_decay / (1.0 + odds_decay))
    # the leading term, where the smaller of x and 1 − x is too small for a float
    if odds_decay.min() < 1e-290:
        tail_mass = np.where(
            odds_decay < 1e-290,
            np.exp(-near_count * np.abs(log_odds) - np.log(near_count) - betaln(a, b)),
            tail_mass,
        )
    mean_log_odds = np.log(a) - np.log(b)
    distance = log_odds - mean_log_odds
    is_a_smaller = a <= b
    # the form in which nothing cancels
    uses_a = np.where(
        distance > 0.0,
        is_a_smaller & (distance <= FAR_LOG_ODDS),
        is_a_smaller | (distance < -FAR_LOG_ODDS),
    )
    beta_count = np.where(uses_a, a, b)
    signed_distance = np.where(uses_a, distance, -distance)
    log_shape = beta_count * signed_distance - (a + b) * np.log1p(
        beta_count / (a + b) * np.expm1(signed_distance)
    )
    log_peak = 0.5 * (np.log(a) + np.log(b) - np.log(a + b) - np.log(2.0 * np.pi))
    return np.where(is_positive, 1.0 - tail_mass, tail_mass), np.exp(
        log_shape
        + log_peak
        + _stirling_remainder(a + b)
        - _stirling_remainder(a)
        - _stirling_remainder(b)
    )


def _stirling_remainder(x: FloatArray) -> FloatArray:
    """What Stirling's formula leaves of ln Γ(x)."""
    from scipy.special import gammaln

    large_x = np.maximum(x, 10.0)
    inverse_square = 1.0 / (large_x * large_x)
    series = (
        1 / 12
        - inverse_square
        * (
            1 / 360
            - inverse_square * (1 / 1260 - inverse_square * (1 / 1680 - inverse_square / 1188))
        )
    ) / large_x
    small_x_remainder = gammaln(x) - ((x - 0.5) * np.log(x) - x + 0.5 * np.log(2.0 * np.pi))
    return np.where(x >= 10.0, series, small_x_remainder)


def propensities(
    state: State, bandit: Bandit, *, mask: ArrayLike | None = None, context: ArrayLike | None = None
) -> FloatArray:
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
    arm_mask, context_array = check_round(state, bandit, mask, context)
    is_open = np.ones(state.n.shape, np.bool_) if arm_mask is None else arm_mask
    greedy_shares = _greedy_probabilities(state, bandit, is_open, context_array)
    n_available = is_open.sum(axis=-1, keepdims=True)
    uniform_shares = uniform_share(bandit, n_available)
    return np.where(
        is_open, (1.0 - uniform_shares) * greedy_shares + uniform_shares / n_available, 0.0
    )


def sample(propensity: ArrayLike, uniform: ArrayLike) -> IntArray:
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
    probabilities = float_array(propensity, "propensity")
    uniforms = float_array(uniform, "uniform")
    check_plan(probabilities, "propensity")
    is_inside = (uniforms >= 0.0) & (uniforms < 1.0)
    if not is_inside.all():
        refuse(
            "uniform must be in [0, 1)",
            f"{uniforms[~is_inside].flat[0]:g}",
            "draw it with Generator.random",
        )
    cumulated = np.cumsum(probabilities, axis=-1)
    is_beyond = cumulated > (uniforms * cumulated[..., -1])[..., None]
    # where u · total rounds up to the total
    last_possible_arm = (
        probabilities.shape[-1] - 1 - np.argmax((probabilities > 0.0)[..., ::-1], axis=-1)
    )
    return np.asarray(
        np.where(is_beyond[..., -1], np.argmax(is_beyond, axis=-1), last_possible_arm),
        dtype=np.int64,
    )


def _greedy_probabilities(
    state: State, bandit: Bandit, is_open: BoolArray, context: FloatArray
) -> FloatArray:
    """Probability that each available arm has the best score, [..., A].

    Certain of an index, an integral of draws.
    """
    entry = LEARNERS[bandit.algorithm]
    if entry.index is not None:
        return greedy_choice(entry.index(state, bandit, is_open, context), bandit, is_open)
    if entry.largest is None:
        refuse(
            "propensities need the probability that a draw is the largest",
            "none",
            f"give {bandit.algorithm} one",
        )
    return entry.largest(state, bandit, is_open, context)


def greedy_choice(scores: FloatArray, bandit: Bandit, is_open: BoolArray) -> FloatArray:
    """1 on the best available score, on the lowest of tied arms or split among them, [..., A]."""
    masked_scores = np.where(is_open, scores, -np.inf)
    is_tied = is_open & (masked_scores == masked_scores.max(axis=-1, keepdims=True))
    if bandit.ties == "random":
        return is_tied / is_tied.sum(axis=-1, keepdims=True)
    return np.asarray(is_tied & (np.cumsum(is_tied, axis=-1) == 1), dtype=np.float64)
