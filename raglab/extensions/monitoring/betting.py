"""Betting (algebra): tests of a mean of bounded steps, by wealth that bets on it.

They hold at every time.

A step is x in [low, high], with a mean given the past that may drift. A fixed bet b has wealth
prod(1 + b * x). With m the means, prod(1 + b * x) / prod(1 + b * m) is a martingale, and prod(1 + b
* m) <= exp(b * sum(m)). So wealth reaches 1 / delta while the means so far sum to 0 or less with
probability delta at most, over all times together (Ville). This needs a bet that never changes;
wealth is spread evenly over several of them at the start, and the sum keeps the law.

Source: Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting,
  section 4 (hedged capital over a grid of bets); Ville 1939.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from raglab.values import FloatArray

# Shares of the largest bet that cannot lose all: small ones find a slight break, large ones tell a
# clear one soon.
FRACTIONS = 1.0 / (1.0 + np.exp(-np.linspace(-6.0, 6.0, 17)))
FRACTIONS.setflags(write=False)


class Wealth(NamedTuple):
    """Wealth of the bets after some steps.

    Attributes:
      bets: that multiply a step, [J].
      logs: log wealth of each bet, [..., J]; 0 before the first step.
    """

    bets: FloatArray
    logs: FloatArray

    @property
    def log(self) -> FloatArray:
        """Log of the mean wealth, [...]."""
        return log_mean(self.logs)


def log_mean(logs: FloatArray) -> FloatArray:
    """Log of the mean of numbers that are given by their logs, over the last axis, [...]."""
    highest = logs.max(axis=-1, keepdims=True)
    log_of_mean: FloatArray = np.log(np.exp(logs - highest).mean(axis=-1)) + highest[..., 0]
    return log_of_mean


def opening_wealth(low: float, high: float, *, below: bool = False) -> Wealth:
    """Wealth before the first step, spread evenly over fixed bets.

    Args:
      low: least step, below 0.
      high: largest step, above 0.
      below: bet on a mean below 0; otherwise on one above 0.

    Raises:
      ValueError: the steps cannot have both signs.

    Example:
      >>> wealth = opening_wealth(-0.1, 0.9)
      >>> bool((1.0 + wealth.bets * -0.1 > 0.0).all()), float(wealth.log)
      (True, 0.0)
    """
    if not low < 0.0 < high:
        msg = (
            f"steps must be able to lie on both sides of 0, got [{low}, {high}]; alpha must be in "
            "(0, 1)."
        )
        raise ValueError(msg)
    bets = -FRACTIONS / high if below else FRACTIONS / -low
    return Wealth(bets, np.zeros(len(bets)))


def bet(wealth: Wealth, steps: FloatArray) -> tuple[FloatArray, Wealth]:
    """Log of the mean wealth after each step, [..., T], and the wealth after the last one.

    Args:
      wealth: before the steps.
      steps: [..., T], within the range that the wealth was opened for.

    Raises:
      ValueError: a step outside of that range, which could lose more than all, or NaN.

    Example: ten steps of a promise of at most 0.1 errors, all of them errors.
      >>> path, last = bet(opening_wealth(-0.1, 0.9), np.full(10, 0.9))
      >>> bool(path[-1] > log(1 / 0.001))
      True
    """
    factors = 1.0 + wealth.bets * steps[..., None]
    if not (factors > 0.0).all():
        msg = (
            "steps must be numbers in the range that the bets were made for; state the least "
            "inclusion probability."
        )
        raise ValueError(msg)
    # One running sum that begins at the wealth before, so that the steps may be cut anywhere to the
    # same bits.
    earlier_logs = np.broadcast_to(
        wealth.logs[..., None, :], (*factors.shape[:-2], 1, len(wealth.bets))
    )
    running_logs = np.concatenate([earlier_logs, np.log(factors)], axis=-2).cumsum(axis=-2)
    return log_mean(running_logs[..., 1:, :]), Wealth(wealth.bets, running_logs[..., -1, :])


def log_bar(delta: float) -> float:
    """Log wealth from which on a statement is made at error delta."""
    return log(1.0 / delta)
