"""Paired power (algebra): which cost differences n cases tell, and how many cases one takes.

Two policies decide the same n cases; d_i is the difference of their costs on case i. A share p of
the cases is discordant (d_i is not 0), and m2 is the mean of d_i² over these. Around a mean
difference delta the variance of one d_i is p · m2 - delta². A paired t interval at level 95 %
excludes 0 with a power of 80 % where

    n = z² · (p · m2 - delta²) / delta²,   z = z_.975 + z_.8 = 2.80,

which solved for delta is the smallest difference that n cases tell: delta = z · sqrt(p · m2 / (n +
z²)).

A share p carries a mean difference of p · sqrt(m2) at most, where all discordant cases favour one
policy (Jensen's inequality). For a larger delta both formulas take the smallest share that carries
it, delta / sqrt(m2). That far at the edge the power is above 80 %, so the figures err on the side
of more cases.

m2 is the observed one: the ranges hold the uncertainty of the share alone. With fewer than about 8
discordant cases the mean is far from normal, and where single cases are dear m2 itself is known
roughly; the figures are then orders of magnitude.

Source: Connor 1987 (Biometrics 43, 207-211) for paired proportions, here with the variance under
  the difference in both terms, which is what a t interval estimates; Clopper and Pearson 1934 for
  the share.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from raglab.metrics.costs import COST_ROUNDING
from raglab.metrics.intervals import check_level, clopper_pearson
from raglab.values import FloatArray, Floats

POWER = 0.8
LEVEL = 0.95
DIFFERENCES = (0.05, 0.10)  # of the highest cost, of which `needed` has the number of cases


class Range(NamedTuple):
    """A figure at the observed share of discordant cases, and at the ends of its exact interval."""

    low: float
    estimate: float
    high: float


class PairedSizes(NamedTuple):
    """Differences of cost that a paired comparison of these cases can detect.

    Attributes:
      cases: n.
      discordant: cases whose costs differ.
      mean_square: of their differences.
      share: of discordant cases, with its exact 95 % interval.
      smallest: difference detected with 80 % power at two-sided 5 %.
      needed: difference -> number of cases that detect it, whole numbers.
    """

    cases: int
    discordant: int
    mean_square: float
    share: Range
    smallest: Range
    needed: dict[float, Range]


def smallest_difference(
    cases: Floats,
    share: Floats,
    mean_square: Floats = 1.0,
    *,
    power: float = POWER,
    level: float = LEVEL,
) -> Floats:
    """Smallest mean difference of cost that a paired comparison tells, [...].

    Args:
      cases: number of cases, [...], above 0.
      share: of discordant cases, in [0, 1], [...].
      mean_square: of the differences of discordant cases, [...], above 0.
      power: in (0, 1).
      level: of the two-sided interval, in (0, 1).

    Raises:
      ValueError: power or level outside (0, 1).

    Source: Connor 1987, solved for the difference.

    Example: 14 of 92 cases are decided otherwise.
      >>> round(float(smallest_difference(92, 14 / 92)), 3)
      0.109
    """
    squared_errors = _standard_errors(power, level) ** 2
    n_cases = np.asarray(cases, dtype=np.float64)
    # A smaller share cannot carry the difference that it would let these cases tell.
    carrying_share = np.maximum(share, squared_errors / (n_cases + squared_errors))
    return np.asarray(
        np.sqrt(squared_errors * carrying_share * mean_square / (n_cases + squared_errors))
    )


def cases_needed(
    difference: Floats,
    share: Floats,
    mean_square: Floats = 1.0,
    *,
    power: float = POWER,
    level: float = LEVEL,
) -> Floats:
    """Whole number of cases from which a paired comparison tells a mean cost difference, [...].

    A difference that the share cannot carry takes the smallest share that can.

    Args:
      difference: mean difference of cost, [...]; its sign does not matter.
      share: of discordant cases, in [0, 1], [...].
      mean_square: of the differences of discordant cases, [...], above 0.
      power: in (0, 1).
      level: of the two-sided interval, in (0, 1).

    Raises:
      ValueError: a difference of 0, or power or level outside (0, 1).

    Source: Connor 1987.

    Example:
      >>> cases_needed(0.1, np.array([0.086, 0.15, 0.242])).tolist()
      [71.0, 110.0, 183.0]
    """
    difference_size = np.abs(np.asarray(difference, dtype=np.float64))
    if not (difference_size > 0.0).all():
        msg = f"difference must not be 0, got {difference}; no number of cases tells that."
        raise ValueError(msg)
    carrying_share = np.maximum(share, difference_size / np.sqrt(mean_square))
    n_cases = (
        _standard_errors(power, level) ** 2
        * (carrying_share * mean_square - difference_size**2)
        / difference_size**2
    )
    return np.asarray(np.maximum(np.ceil(n_cases), 1.0))


def _standard_errors(power: float = POWER, level: float = LEVEL) -> float:
    """Standard errors between 0 and a difference that is told.

    Z of the two-sided level and z of the power.
    """
    from scipy.special import ndtri

    if not 0.0 < power < 1.0:
        msg = f"power must be in (0, 1), got {power}; 0.8 is usual."
        raise ValueError(msg)
    return float(ndtri(0.5 + check_level(level) / 2.0) + ndtri(power))


def paired_sizes(gains: FloatArray, *, price: float = 1.0, guard: float = 0.0) -> PairedSizes:
    """Differences that these cases tell, and numbers of cases that differences of .05 and .10 take.

    Args:
      gains: difference of cost of each case, [Q].
      price: cost of a failed contract, above 0. Where no case differs, one case is assumed to
        differ by it; differences below 1e-9 of it are rounding.
      guard: difference of the one case more that the interval counts against the estimate, see
        `metrics.interval_guard`; 0 for none.

    Raises:
      ValueError: gains of no case, of another shape than [Q], or not finite; or a price that is not
        above 0.

    Source: Connor 1987; Clopper and Pearson 1934.

    Example: 14 of 92 cases are decided otherwise.
      >>> found = paired_sizes(np.repeat([1.0, -1.0, 0.0], [10, 4, 78]))
      >>> found.discordant, round(found.smallest.estimate, 3), found.needed[0.1]
      (14, 0.109, Range(low=71.0, estimate=112.0, high=183.0))
    """
    case_gains = np.asarray(gains, dtype=np.float64)
    if case_gains.ndim != 1 or not len(case_gains) or not np.isfinite(case_gains).all():
        msg = (
            f"gains must be a finite number a case, [Q], got shape {case_gains.shape}; drop the "
            "rest."
        )
        raise ValueError(msg)
    if not price > 0.0:
        msg = f"price must be above 0, got {price}; it is what a failed contract costs."
        raise ValueError(msg)
    discordant_gains = case_gains[np.abs(case_gains) > COST_ROUNDING * price]
    n_cases = len(case_gains)
    n_discordant = len(discordant_gains)
    mean_square = float((discordant_gains**2).mean()) if n_discordant else price**2
    lower_bound, upper_bound = clopper_pearson(n_discordant, n_cases, LEVEL)
    share_range = Range(float(lower_bound), n_discordant / n_cases, float(upper_bound))
    smallest_range = Range(
        *(_guarded_difference(n_cases, share_end, mean_square, guard) for share_end in share_range)
    )
    cases_needed_by_difference = {
        cost_difference: Range(
            *(
                _guarded_cases(cost_difference, share_end, mean_square, guard)
                for share_end in share_range
            )
        )
        for cost_difference in (cost_difference * price for cost_difference in DIFFERENCES)
    }
    return PairedSizes(
        n_cases, n_discordant, mean_square, share_range, smallest_range, cases_needed_by_difference
    )


def _guarded_difference(cases: int, share: float, mean_square: float, guard: float) -> float:
    """Smallest difference told where one case more of size `guard` stands against the estimate."""
    unguarded = float(smallest_difference(cases, share, mean_square))
    if not guard:
        return unguarded
    z_sum = _standard_errors()
    return max(
        unguarded, (z_sum * sqrt(cases * share * mean_square + guard**2) + guard) / (cases + 1.0)
    )


def _guarded_cases(difference: float, share: float, mean_square: float, guard: float) -> float:
    """Cases that tell a difference where one more case of size `guard` is against the estimate."""
    unguarded = float(cases_needed(difference, share, mean_square))
    if not guard:
        return unguarded
    # (n d - g)^2 = z^2 (n p m + g^2), solved for n.
    z_sum = _standard_errors()
    half_linear = difference * guard + z_sum**2 * share * mean_square / 2.0
    discriminant_root = sqrt(half_linear**2 + difference**2 * guard**2 * (z_sum**2 - 1.0))
    return max(unguarded, float(ceil((half_linear + discriminant_root) / difference**2)))
