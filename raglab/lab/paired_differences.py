"""Paired differences (shore): two policies on the same cases: cost, rates, intervals, p (S6.11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.learned_cases import IN_SAMPLE, Learned, warn_of_learned
from raglab.store.baselines import COST_MEASURE
from raglab.values import FloatArray, WholeArray

if TYPE_CHECKING:
    import pandas as pd

INTERVAL_LEVEL = 0.95  # of intervals
Verdict = Literal["better", "worse", "open"]


def difference_text(estimate: float, lower_bound: float, upper_bound: float) -> str:
    """Difference with its interval, in words.

    Example:
      >>> difference_text(0.5, -0.4187, 1.4187)
      '+0.500 [-0.419, +1.419]'
    """
    return f"{estimate:+.3f} [{lower_bound:+.3f}, {upper_bound:+.3f}]"


def differing_settings(
    old_settings: Mapping[str, Any], new_settings: Mapping[str, Any], side_names: Sequence[str]
) -> pd.DataFrame:
    """Settings that differ, a row each; None where a side states none."""
    import pandas as pd

    pairs_by_setting = {
        setting_name: (old_settings.get(setting_name), new_settings.get(setting_name))
        for setting_name in {**old_settings, **new_settings}
    }
    rows = [
        (setting_name, *setting_pair)
        for setting_name, setting_pair in pairs_by_setting.items()
        if setting_pair[0] != setting_pair[1]
    ]
    return pd.DataFrame(rows, columns=["setting", *side_names], dtype=object)


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
    selected_cells: WholeArray,
    reference_cells: WholeArray,
    costs: metrics.Costs | FloatArray | None,
    other_policy: str,
    case_weights: FloatArray | None = None,
) -> Advantage:
    """Advantage of the selected policy over another one, of the cells of the same cases, [Q] each.

    Args:
      selected_cells: cell of each case under the selected policy.
      reference_cells: cell of each case under the other policy.
      costs: see `metrics.cost_matrix`.
      other_policy: name of the other policy.
      case_weights: see `metrics.paired_cost`.

    Source: rules S6.7, S6.11; see `metrics.paired_cost`.

    Example: of twelve questions to refuse, the selected policy refuses all, the other one answers
      all.
      >>> advantage = paired_advantage(np.full(12, 8), np.full(12, 2), None, "always-answer")
      >>> advantage.estimate, round(advantage.low, 3), advantage.verdict
      (1.0, 0.471, 'better')
    """
    saved_cost = metrics.paired_cost(selected_cells, reference_cells, costs, weights=case_weights)
    return Advantage(*saved_cost, other_policy, len(selected_cells))


def paired_table(
    first_cells: WholeArray,
    second_cells: WholeArray,
    side_names: tuple[str, str],
    costs: metrics.Costs | FloatArray | None = None,
    case_weights: FloatArray | None = None,
    *,
    in_sample: bool = False,
) -> pd.DataFrame:
    """Expected cost and rates of two lots of decisions on the same cases, a row a measure.

    Columns: see `raglab.lab.comparison.Comparison`.

    Args:
      first_cells, second_cells: cell of each case, [Q] each.
      side_names: names of the two in the columns.
      costs: see `metrics.cost_matrix`.
      case_weights: of each case, mean 1, [Q], in a traffic mix; 1 where not given.
      in_sample: whether any policy learned from these cases, so that there are no intervals and no
        p.
    """
    import pandas as pd

    saved_cost = metrics.paired_cost(
        first_cells, second_cells, costs, INTERVAL_LEVEL, weights=case_weights
    )
    paired_rates = metrics.paired_rates(
        first_cells, second_cells, INTERVAL_LEVEL, weights=case_weights
    )
    columns: dict[str, Any] = {"measure": [COST_MEASURE, *metrics.RATES]}
    for side_index, (side_name, policy_cells) in enumerate(
        zip(side_names, (first_cells, second_cells), strict=True)
    ):
        cell_counts = np.bincount(policy_cells, case_weights, metrics.N_CELLS)
        columns[side_name] = [
            float(metrics.expected_cost(cell_counts, costs)),
            *paired_rates.rate[side_index],
        ]
    for column_name in ("difference", "low", "high"):
        columns[column_name] = [
            getattr(saved_cost, column_name),
            *getattr(paired_rates, column_name),
        ]
    columns["p"] = [saved_cost.p] + [np.nan] * len(metrics.RATES)
    whole_numbers = {
        f"{side_name}_{column_name}": column_values[side_index]
        for side_index, side_name in enumerate(side_names)
        for column_name, column_values in (("k", paired_rates.k), ("n", paired_rates.n))
    } | {
        f"only_{side_names[0]}": paired_rates.only_first,
        f"only_{side_names[1]}": paired_rates.only_second,
    }
    columns |= {
        column_name: pd.array([pd.NA, *map(int, column_values)], dtype="Int64")
        for column_name, column_values in whole_numbers.items()
    }
    measure_table = pd.DataFrame(columns)
    # Whatever learned from these cases fits them too well for an interval or a test of them to mean
    # anything.
    if in_sample:
        measure_table[["low", "high", "p"]] = np.nan
    return measure_table


def learned_text(
    policy_names: Sequence[str], side_names: tuple[str, str], learned_rows: Sequence[Learned]
) -> str:
    """Which of two policies learned from how many of the cases, '' where neither is known to.

    Warns of it.
    """
    texts = [
        f"of {side_name} {learned_note.removeprefix(f'{IN_SAMPLE}: ')}"
        for side_name, learned_note in zip(
            side_names, warn_of_learned(policy_names, learned_rows), strict=True
        )
        if learned_note
    ]
    return f"{IN_SAMPLE}: {'; '.join(texts)}" if texts else ""
