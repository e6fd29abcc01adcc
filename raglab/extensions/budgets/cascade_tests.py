"""Tests of a cascade (algebra): not worse than the dear arm by a margin, few dear calls (S4.9)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import numpy as np

from raglab.metrics.intervals import binomial_p
from raglab.values import FloatArray

CELLS = 800  # of the unknown share of losses; the margin is short by the width of one
LEAST = 1e-18  # chance of a number of gains below which it is not summed but added
ROUNDING = 1e-9  # of a count
BETS = 2.0 ** -np.arange(8.0)  # shares of the largest bet
PARTS = 4096  # of 1; a bound is rounded up to one


def paired_test(gains: int, losses: int, size: int, delta: float = 0.1) -> Callable[[float], float]:
    """Exact test that a policy is right less often than its reference by a margin or more.

    A question is a gain where the policy alone is right, a loss where the reference alone is, and a
    tie otherwise. Under the null hypothesis P(gain) - P(loss) <= -margin; how often both differ is
    a nuisance.

    Proof. Questions are independent and alike, so gains b and losses c are multinomial. Outcomes
    are ordered by an approximate lower limit L(b, c) of the difference, which is fixed before any
    count is seen and free of the margin. Let R be the least set that holds all outcomes with L at
    least that observed and, with (b, c), also (b + 1, c) and (b, c - 1). These sets are nested, so
    the largest P(R) over the null hypothesis is a p-value. Read each question off one uniform
    number: raising P(gain) or lowering P(loss) turns losses to ties and ties to gains, and takes no
    outcome out of R. Hence (1) the largest P(R) lies where P(gain) = P(loss) - margin; (2) for
    P(loss) in a cell [l, h] it is at most that at P(gain) = h - margin and P(loss) = l, and the
    p-value is the largest of these over cells that cover [margin, (1 + margin) / 2]; (3) it falls
    as the margin grows, but for the width of a cell, since R stays.

    Args:
      gains: questions that the policy alone has right, at least 0.
      losses: questions that the reference alone has right, at least 0.
      size: questions, at least gains + losses.
      delta: level that the order of outcomes is made for, in (0, 0.5).

    Returns:
      The p-value of a margin in (0, 1).

    Source: Buehler, Confidence intervals for the product of two binomial parameters (1957); Kabaila
      and Lloyd, Tight upper confidence limits from discrete data (1997); the approximate limit
      counts a question more on either side, after Agresti and Min (2005).

    Example: of 184 questions 8 are gains and 6 are losses.
      >>> p = paired_test(8, 6, 184)
      >>> round(p(0.05), 3), round(p(0.02), 3)
      (0.042, 0.096)
    """
    from scipy.special import ndtri

    reach = -float(ndtri(delta))
    gain = np.arange(size + 1.0)
    # L = gains - losses - reach * sqrt(gains + losses + 2) falls with every loss, so R holds for
    # each number of gains all losses up to where L is that observed, a root of a square.
    observed = losses - gains + reach * np.sqrt(gains + losses + 2.0)
    root = np.sqrt(reach**2 + 4.0 * np.maximum(observed + 2.0 * gain + 2.0, 0.0)) - reach
    most = np.floor(root**2 / 4.0 - gain - 2.0 + ROUNDING)
    return partial(_largest_chance, np.maximum.accumulate(most), size)


def least_limit(p: Callable[[float], float], delta: float) -> float:
    """Least limit in (0, 1) at which a falling p-value is at most delta; 1 where there is none.

    Args:
      p: of a limit.
      delta: level.

    Example:
      >>> round(least_limit(lambda limit: 1.0 - limit, 0.1), 3)
      0.9
    """
    return bisect_left(range(PARTS), -delta, 1, key=lambda part: -p(part / PARTS)) / PARTS


def mean_p(weights: FloatArray, excess: FloatArray, limit: float) -> float:
    """p-value that a mean is at least a limit, by bets on every question: 1 over an e-value.

    Proof. Let room = limit - excess, at least limit - 1. For a bet t in [0, 1 / (1 - limit)]
    each factor 1 + t * weight * room is at least 0. Where rows are drawn one by one
    and alike, the null hypothesis E[weight * room] <= 0 makes the mean of a factor at most 1, and
    that of their product, since rows are independent. Where the number of rows of each weight was
    fixed before the draw (strata), the means m of room differ by row, the null hypothesis is that
    weight * m sums to at most 0, and the mean of the product is prod(1 + t * weight * m) <= exp(t *
    sum(weight * m)) <= 1. A mean over fixed bets is an e-value too, and by Markov's inequality its
    inverse is a p-value. The order of the rows does not enter. It falls as the limit grows, since
    (limit - excess) / (1 - limit) rises.

    Args:
      weights: of the questions, in proportion to 1 / their inclusion probability, [Q], above 0, at
        most 1 for any question that could have been drawn.
      excess: what may not be large of each question, [Q], at most 1.
      limit: highest mean, below 1.

    Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (2024);
      Horvitz and Thompson (1952).

    Example: four questions without any excess; the largest bet doubles its stake on each.
      >>> e_value = np.mean((1.0 + BETS) ** 4)
      >>> round(mean_p(np.ones(4), np.zeros(4), 0.5), 3), round(float(1.0 / e_value), 3)
      (0.27, 0.27)
    """
    stake = weights * (limit - excess) / (1.0 - limit)
    with np.errstate(divide="ignore"):  # the largest bet may lose all
        logs = np.log1p(np.maximum(BETS[:, None] * stake, -1.0)).sum(axis=1)
    return float(np.exp(min(0.0, np.log(len(BETS)) - np.logaddexp.reduce(logs))))


def _largest_chance(most: FloatArray, size: int, margin: float) -> float:
    """Upper bound of the largest chance of R where the reference leads by `margin`.

    R holds up to `most` losses with each number of gains, [size + 1]; none where it is below 0.
    """
    from scipy.special import gammaln, xlog1py, xlogy

    edges = np.linspace(margin, 0.5 * (1.0 + margin), CELLS + 1)
    loss, up, gain = edges[:-1], edges[1:, None] - margin, np.arange(size + 1.0)
    choices = gammaln(size + 1.0) - gammaln(gain + 1.0) - gammaln(size - gain + 1.0)
    chance = np.exp(choices + xlogy(gain, up) + xlog1py(size - gain, -up))
    cell, number = np.nonzero((chance > LEAST) & (most >= 0.0))
    remainder = size - number
    among = (loss / (1.0 - up[:, 0]))[cell]
    few = binomial_p(np.minimum(most[number], remainder), remainder, among)
    # what is left out of a sum is added, so that no chance is too low
    total = np.bincount(cell, chance[cell, number] * few, CELLS) + LEAST * size
    return min(1.0, float(total.max()))
