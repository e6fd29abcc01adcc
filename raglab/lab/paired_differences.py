"""Paired differences (shore): two policies on the same cases: cost, rates, intervals, p (S6.11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.learned_cases import IN_SAMPLE, Learned, warn_of_learned
from raglab.store.baselines import COST_MEASURE

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95  # of intervals
Verdict = Literal["better", "worse", "open"]


def difference_text(estimate: float, low: float, high: float) -> str:
    """Difference with its interval, in words.

    Example:
      >>> difference_text(0.5, -0.4187, 1.4187)
      '+0.500 [-0.419, +1.419]'
    """
    return f"{estimate:+.3f} [{low:+.3f}, {high:+.3f}]"


def differing_settings(
    old: Mapping[str, Any], new: Mapping[str, Any], sides: Sequence[str]
) -> pd.DataFrame:
    """Settings that differ, a row each; None where a side states none."""
    import pandas as pd

    pairs = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    rows = [(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    return pd.DataFrame(rows, columns=["setting", *sides], dtype=object)


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
        return f"{difference_text(*self[:3])}, p = {self.p:.3g}"


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


def paired_table(
    first: NDArray[np.integer[Any]],
    second: NDArray[np.integer[Any]],
    sides: tuple[str, str],
    costs: metrics.Costs | NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
    *,
    in_sample: bool = False,
) -> pd.DataFrame:
    """Expected cost and rates of two lots of decisions on the same cases, a row a measure.

    Columns: see `raglab.lab.comparison.Comparison`.

    Args:
      first, second: cell of each case, [Q] each.
      sides: names of the two in the columns.
      costs: see `metrics.cost_matrix`.
      weights: of each case, mean 1, [Q], in a traffic mix; 1 where not given.
      in_sample: whether any policy learned from these cases, so that there are no intervals and no
        p.
    """
    import pandas as pd

    paid = metrics.paired_cost(first, second, costs, LEVEL, weights=weights)
    rates = metrics.paired_rates(first, second, LEVEL, weights=weights)
    columns: dict[str, Any] = {"measure": [COST_MEASURE, *metrics.RATES]}
    for place, (side, cells) in enumerate(zip(sides, (first, second), strict=True)):
        counts = np.bincount(cells, weights, metrics.N_CELLS)
        columns[side] = [float(metrics.expected_cost(counts, costs)), *rates.rate[place]]
    for name in ("difference", "low", "high"):
        columns[name] = [getattr(paid, name), *getattr(rates, name)]
    columns["p"] = [paid.p] + [np.nan] * len(metrics.RATES)
    whole_numbers = {
        f"{side}_{name}": column[place]
        for place, side in enumerate(sides)
        for name, column in (("k", rates.k), ("n", rates.n))
    } | {f"only_{sides[0]}": rates.only_first, f"only_{sides[1]}": rates.only_second}
    columns |= {
        name: pd.array([pd.NA, *map(int, column)], dtype="Int64")
        for name, column in whole_numbers.items()
    }
    table = pd.DataFrame(columns)
    # Whatever learned from these cases fits them too well for an interval or a test of them to mean
    # anything.
    if in_sample:
        table[["low", "high", "p"]] = np.nan
    return table


def learned_text(names: Sequence[str], sides: tuple[str, str], learned: Sequence[Learned]) -> str:
    """Which of two policies learned from how many of the cases, '' where neither is known to.

    Warns of it.
    """
    texts = [
        f"of {side} {note.removeprefix(f'{IN_SAMPLE}: ')}"
        for side, note in zip(sides, warn_of_learned(names, learned), strict=True)
        if note
    ]
    return f"{IN_SAMPLE}: {'; '.join(texts)}" if texts else ""
