"""Goal of a study (shore): least expected cost that meets the targets, in traffic (S6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import MAX_OVER_ASK
from raglab.metrics.mixes import (
    SAMPLE,
    Mix,
    TrafficMix,
    checked_mix,
    label_weights,
    mix_weighings,
    weighed_by_mix,
)
from raglab.values import AnyArray, BoolArray, FloatArray, Status, WholeArray, refuse

HONESTY_LIMITS = ("min_coverage", "max_over_ask")  # constraints of every goal that has targets
# what costs nothing by default
RIGHT_OUTCOMES = ("ok.answered_right", "refuse.refused", "ambiguous.asked_right")
# added to the cost where a target is missed: greater than any cost that a study compares
INFEASIBLE_COST = 1e6


@dataclass(frozen=True)
class Goal:
    """Goal of a study: the least expected cost that meets the targets.

    Attributes:
      costs: label -> outcome -> cost, the default where left out (`metrics.cost_matrix`).
      targets: rate -> highest value; of a rate that is wanted high (`coverage`, `pass_rate`) the
        least.
      min_coverage: least coverage of a policy that meets the targets (rule S6.9), since refusing
        everything would meet most of them; half the share of the cases labelled ok where not given.
      max_over_ask: largest share of the unambiguous cases that such a policy asks back (rule S6.9).
      mix: shares of the labels in traffic, label -> share or (least, largest), or a
        `raglab.traffic_mix`; costs, rates and targets are those of that traffic. `sample`: those of
        the labelled cases. It holds where only the shares differ: within a label, traffic is like
        the labelled cases (rule S6.15).

    Raises:
      ValueError: an unknown label, outcome or rate, or a number out of range.

    Warns:
      UserWarning: costs state a price of a right outcome.

    Source: rule S6.7.

    Example: a wrong answer to what should be refused costs ten times a failure, and at most 10 %
      are asked back idly.
      >>> goal = Goal(costs={"refuse": {"answered_wrong": 10}}, targets={"over_ask_rate": 0.1})
      >>> float(goal.matrix[1, 1])
      10.0
    """

    costs: metrics.Costs | None = None
    targets: Mapping[str, float] = field(default_factory=dict)
    min_coverage: float | None = None
    max_over_ask: float = MAX_OVER_ASK
    mix: Mix = SAMPLE

    def __post_init__(self) -> None:
        checked_mix(self.mix)
        right_costs = metrics.cost_matrix(self.costs)[metrics.DEFAULT_COSTS == 0.0]
        if right_costs.any():
            priced_outcomes = [
                f"{outcome_path}={outcome_cost:g}"
                for outcome_path, outcome_cost in zip(RIGHT_OUTCOMES, right_costs, strict=True)
                if outcome_cost
            ]
            warn_user(
                f"costs state a price of what is right, {', '.join(priced_outcomes)}; 0 is usual, "
                "leave it "
                "out."
            )
        if not isinstance(self.targets, Mapping):
            refuse(
                "targets must map rate -> highest value",
                f"{self.targets!r}",
                "write {'over_ask_rate': 0.1}",
            )
        for rate_name, target_limit in self.targets.items():
            if rate_name not in metrics.RATE_TABLE:
                refuse(
                    f"a target must be one of {', '.join(metrics.RATES)}",
                    f"{rate_name!r}",
                    "costs go into `costs`",
                )
            is_number = isinstance(target_limit, int | float | np.number) and not isinstance(
                target_limit, bool
            )
            if not is_number or not 0.0 <= target_limit <= 1.0:
                refuse(
                    f"the target of {rate_name} must be in [0, 1]",
                    f"{target_limit!r}",
                    "it is a share",
                )

    @property
    def matrix(self) -> FloatArray:
        """Cost by label and outcome, [3, 5]."""
        return metrics.cost_matrix(self.costs)

    @property
    def traffic(self) -> TrafficMix | None:
        """The stated mix; None of the sample's own."""
        return checked_mix(self.mix)

    def at_labels(self, label_counts: AnyArray) -> Goal:
        """The same goal, its mix made whole by labelled cases.

        Args:
          label_counts: cases by label, [3].

        Raises:
          ValueError: a label has a share in traffic and no case.
        """
        traffic_mix = self.traffic
        return (
            self if traffic_mix is None else replace(self, mix=traffic_mix.at_labels(label_counts))
        )

    def vertices(self, cells: AnyArray) -> FloatArray | None:
        """Outermost mixes, [V, 3]; None where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20], whose labels share what the mix does not state.
        """
        traffic_mix = self.traffic
        return None if traffic_mix is None else traffic_mix.vertices(_labels(cells))

    def shares(self, cells: AnyArray) -> FloatArray | None:
        """Shares of the labels at which costs are taken, [3]; None where they are the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        traffic_mix = self.traffic
        return None if traffic_mix is None else traffic_mix.center(_labels(cells))

    def in_traffic(self, cells: AnyArray) -> AnyArray:
        """Cases by cell as in traffic, [..., 20]; as they are where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        label_shares = self.shares(cells)
        return cells if label_shares is None else weighed_by_mix(cells, label_shares).weights

    def cost(self, cells: AnyArray) -> FloatArray:
        """Expected cost of a case, [...], of cells [..., 20].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray(metrics.expected_cost(self.in_traffic(cells), self.matrix))

    def case_weights(
        self, label: WholeArray, counts: FloatArray | None = None
    ) -> FloatArray | None:
        """Weight of each case in the mix, mean 1, [Q]; None where the mix is the sample's.

        Args:
          label: of each case, [Q].
          counts: how often each case counts, [Q]; once where not given.
        """
        traffic_mix = self.traffic
        label_counts = np.bincount(label, counts, minlength=len(Status))
        return (
            None
            if traffic_mix is None
            else label_weights(label_counts, traffic_mix.center(label_counts))[label]
        )

    def weighings(self, cells: AnyArray) -> list[metrics.Weighed]:
        """Cells in the mix, then at its outermost mixes if several; none where it is the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        return mix_weighings(cells, self.traffic)

    def worst_cost(self, cells: AnyArray) -> FloatArray:
        """Largest expected cost of a case at any mix inside the stated one, [...].

        Args:
          cells: cases by cell, [..., 20].
        """
        mix_vertices = self.vertices(cells)
        if mix_vertices is None:
            return self.cost(cells)
        cells_by_mix = (
            weighed_by_mix(cells, label_shares).weights for label_shares in mix_vertices
        )
        costs_by_mix = [
            np.asarray(metrics.expected_cost(weighed_cells, self.matrix))
            for weighed_cells in cells_by_mix
        ]
        return np.asarray(np.max(costs_by_mix, axis=0))

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of what `excess` has a column of: the targets, then what keeps them honest.

        None without a target.
        """
        return (*self.targets, *HONESTY_LIMITS) if self.targets else ()

    def excess(self, cells: AnyArray, errors: float = 0.0) -> FloatArray:
        """Distance by which each of the constraints is missed, [..., T], of cells [..., 20].

        At most 0 where it is met.

        A rate of nothing meets no target (rule S6.2).

        Args:
          cells: cases by cell, [..., 20].
          errors: standard errors by which every rate is taken worse than it is, the share with one
            case more that counts and one that does not.
        """
        if not self.targets:
            return np.zeros((*cells.shape[:-1], 0))
        mix_vertices = self.vertices(cells)
        if mix_vertices is None:
            rate_counts = metrics.rate_counts(cells)
            label_counts = metrics.label_counts(cells)
            return self._excess(
                rate_counts, metrics.denominators(rate_counts, label_counts), label_counts, errors
            )
        excess_by_mix = []
        for label_shares in mix_vertices:
            weighed_cells = weighed_by_mix(cells, label_shares)
            effective_errors, effective_cases = metrics.effective_counts(weighed_cells)
            excess_by_mix.append(
                self._excess(
                    effective_errors,
                    effective_cases,
                    metrics.label_counts(weighed_cells.weights),
                    errors,
                )
            )
        return np.max(excess_by_mix, axis=0)

    def _excess(
        self,
        rate_counts: AnyArray,
        rate_cases: AnyArray,
        label_counts: AnyArray,
        n_errors: float,
    ) -> FloatArray:
        """`excess` of the counts of each rate, [..., rates], and of cases by label, [..., 3]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rate_values = rate_counts / rate_cases
        smoothed_rates = (rate_counts + 1.0) / (rate_cases + 2.0)
        rate_errors = n_errors * np.sqrt(
            smoothed_rates * (1.0 - smoothed_rates) / np.maximum(rate_cases, 1.0)
        )
        value_of_rate, error_of_rate = (
            dict(zip(metrics.RATES, np.moveaxis(rate_array, -1, 0), strict=True))
            for rate_array in (rate_values, rate_errors)
        )
        excess_parts = [
            (1.0 if metrics.RATE_TABLE[rate_name].better == "low" else -1.0)
            * (value_of_rate[rate_name] - target_limit)
            + error_of_rate[rate_name]
            for rate_name, target_limit in self.targets.items()
        ]
        least_coverage = self.min_coverage
        if least_coverage is None:
            least_coverage = (
                0.5 * label_counts[..., Status.ok] / np.maximum(label_counts.sum(axis=-1), 1)
            )
        most_asking = self.targets.get("over_ask_rate", self.max_over_ask)
        # A set of which every case is ambiguous has nothing to ask idly.
        idle_asking = np.nan_to_num(
            value_of_rate["over_ask_rate"] + error_of_rate["over_ask_rate"], nan=0.0
        )
        excess_parts += [
            least_coverage - value_of_rate["coverage"] + error_of_rate["coverage"],
            idle_asking - most_asking,
        ]
        missed_distances = np.stack(excess_parts, axis=-1)
        return np.where(np.isnan(missed_distances), 1.0, missed_distances)

    def violation(self, cells: AnyArray) -> FloatArray:
        """Sum of target distances if every rate is one standard error worse, [...] (rule S6.8).

        Args:
          cells: cases by cell, [..., 20].
        """
        total_excess: FloatArray = np.maximum(self.excess(cells, errors=1.0), 0.0).sum(axis=-1)
        return total_excess

    def meets(self, cells: AnyArray) -> BoolArray:
        """Whether all targets are met, by a policy that answers, [...].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray((self.excess(cells) <= 0.0).all(axis=-1))

    def score(self, cells: AnyArray) -> FloatArray:
        """Expected cost where all targets are met, and `INFEASIBLE_COST` more where not, [...].

        Lower is better.

        Args:
          cells: cases by cell, [..., 20].
        """
        return self.cost(cells) + INFEASIBLE_COST * ~self.meets(cells)


def _labels(policy_cells: AnyArray) -> AnyArray:
    """Cases by label, [3], of the first of cells [..., 20]; they are the same in all."""
    return metrics.label_counts(policy_cells.reshape(-1, policy_cells.shape[-1])[0])


def front(first_values: FloatArray, second_values: FloatArray) -> BoolArray:
    """Points that no other beats in both values, lower is better, [N].

    Equal points stand together; NaN is never one.

    Example:
      >>> front(np.array([0.0, 0.2, 0.2]), np.array([0.5, 0.1, 0.6]))
      array([ True,  True, False])
    """
    point_order = np.lexsort((second_values, first_values))
    point_order = point_order[~(np.isnan(first_values) | np.isnan(second_values))[point_order]]
    least_so_far = np.minimum.accumulate(second_values[point_order])
    # the least so far, at the first point that reached it
    first_reached = np.searchsorted(-least_so_far, -least_so_far)
    on_front = np.zeros(len(first_values), dtype=bool)
    on_front[point_order] = (second_values[point_order] == least_so_far) & (
        first_values[point_order] == first_values[point_order][first_reached]
    )
    return on_front
