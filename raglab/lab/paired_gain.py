"""Paired gain (shore): what one policy saves over another on the same cases, and proof (S6.11)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics

Verdict = Literal["better", "worse", "open"]


class Advantage(NamedTuple):
    """Expected cost of another policy less that of the selected one, on the same cases.

    Neither policy was fitted or selected on these cases; who calls `paired_advantage` sees to that.

    estimate, low, high: mean saving of a case with its 95 % interval. p: two-sided, of the same
    test: below 0.05 where the interval excludes 0. over: name of the other policy. cases: how many.
    """

    estimate: float
    low: float
    high: float
    p: float
    over: str
    cases: int

    @property
    def verdict(self) -> Verdict:
        """`better` or `worse` where the interval excludes 0, else `open`."""
        return "better" if self.low > 0.0 else "worse" if self.high < 0.0 else "open"

    @property
    def text(self) -> str:
        """Saving with its interval and p-value."""
        return f"{self.estimate:+.3f} [{self.low:+.3f}, {self.high:+.3f}], p = {self.p:.3g}"


def paired_advantage(
    selected: NDArray[np.integer[Any]],
    reference: NDArray[np.integer[Any]],
    costs: metrics.Costs | NDArray[np.float64] | None,
    over: str,
    weights: NDArray[np.float64] | None = None,
) -> Advantage:
    """Advantage of the selected policy over another one, of the cells of the same cases, [Q] each.

    Args:
      selected: cell of each case under the selected policy.
      reference: cell of each case under the other policy.
      costs: see `metrics.cost_matrix`.
      over: name of the other policy.
      weights: see `metrics.paired_cost`.

    Source: rules S6.7, S6.11; see `metrics.paired_cost`.

    Example: of twelve questions to refuse, the selected policy refuses all, the other one answers
      all.
      >>> advantage = paired_advantage(np.full(12, 8), np.full(12, 2), None, "always-answer")
      >>> advantage.estimate, round(advantage.low, 3), advantage.verdict
      (1.0, 0.471, 'better')
    """
    paid = metrics.paired_cost(selected, reference, costs, weights=weights)
    return Advantage(*paid, over, len(selected))
