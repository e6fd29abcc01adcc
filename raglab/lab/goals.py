"""Goal of a study (shore): least expected cost that meets the targets, in traffic (S6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import MAX_OVER_ASK
from raglab.lab.arrays import AnyArray, BoolArray, FloatArray
from raglab.metrics.mixes import (
    SAMPLE,
    Mix,
    TrafficMix,
    checked_mix,
    label_weights,
    mix_weighings,
    weighed_by_mix,
)
from raglab.values import Status, refuse

HONEST = ("min_coverage", "max_over_ask")  # constraints of every goal that has targets
# what costs nothing by default
RIGHT = ("ok.answered_right", "refuse.refused", "ambiguous.asked_right")
# added to the cost where a target is missed: greater than any cost that a study compares
INFEASIBLE = 1e6


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
        right = metrics.cost_matrix(self.costs)[metrics.DEFAULT_COSTS == 0.0]
        if right.any():
            priced = [f"{path}={cost:g}" for path, cost in zip(RIGHT, right, strict=True) if cost]
            warn_user(
                f"costs state a price of what is right, {', '.join(priced)}; 0 is usual, leave it "
                "out."
            )
        if not isinstance(self.targets, Mapping):
            rule, remedy = "targets must map rate -> highest value", "write {'over_ask_rate': 0.1}"
            refuse(rule, f"{self.targets!r}", remedy)
        for name, limit in self.targets.items():
            if name not in metrics.RATE_TABLE:
                rule = f"a target must be one of {', '.join(metrics.RATES)}"
                refuse(rule, f"{name!r}", "costs go into `costs`")
            number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
            if not number or not 0.0 <= limit <= 1.0:
                refuse(f"the target of {name} must be in [0, 1]", f"{limit!r}", "it is a share")

    @property
    def matrix(self) -> FloatArray:
        """Cost by label and outcome, [3, 5]."""
        return metrics.cost_matrix(self.costs)

    @property
    def traffic(self) -> TrafficMix | None:
        """The stated mix; None of the sample's own."""
        return checked_mix(self.mix)

    def at_labels(self, labels: AnyArray) -> Goal:
        """The same goal, its mix made whole by labelled cases.

        Args:
          labels: cases by label, [3].

        Raises:
          ValueError: a label has a share in traffic and no case.
        """
        traffic = self.traffic
        return self if traffic is None else replace(self, mix=traffic.at_labels(labels))

    def vertices(self, cells: AnyArray) -> FloatArray | None:
        """Outermost mixes, [V, 3]; None where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20], whose labels share what the mix does not state.
        """
        traffic = self.traffic
        return None if traffic is None else traffic.vertices(_labels(cells))

    def shares(self, cells: AnyArray) -> FloatArray | None:
        """Shares of the labels at which costs are taken, [3]; None where they are the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        traffic = self.traffic
        return None if traffic is None else traffic.center(_labels(cells))

    def in_traffic(self, cells: AnyArray) -> AnyArray:
        """Cases by cell as in traffic, [..., 20]; as they are where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        shares = self.shares(cells)
        return cells if shares is None else weighed_by_mix(cells, shares).weights

    def cost(self, cells: AnyArray) -> FloatArray:
        """Expected cost of a case, [...], of cells [..., 20].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray(metrics.expected_cost(self.in_traffic(cells), self.matrix))

    def case_weights(
        self, label: NDArray[np.integer[Any]], counts: FloatArray | None = None
    ) -> FloatArray | None:
        """Weight of each case in the mix, mean 1, [Q]; None where the mix is the sample's.

        Args:
          label: of each case, [Q].
          counts: how often each case counts, [Q]; once where not given.
        """
        traffic, labels = self.traffic, np.bincount(label, counts, minlength=len(Status))
        return None if traffic is None else label_weights(labels, traffic.center(labels))[label]

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
        vertices = self.vertices(cells)
        if vertices is None:
            return self.cost(cells)
        tables = (weighed_by_mix(cells, shares).weights for shares in vertices)
        paid = [np.asarray(metrics.expected_cost(table, self.matrix)) for table in tables]
        return np.asarray(np.max(paid, axis=0))

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of what `excess` has a column of: the targets, then what keeps them honest.

        None without a target.
        """
        return (*self.targets, *HONEST) if self.targets else ()

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
        vertices = self.vertices(cells)
        if vertices is None:
            counts, labels = metrics.rate_counts(cells), metrics.label_counts(cells)
            return self._excess(counts, metrics.denominators(counts, labels), labels, errors)
        worst = []
        for shares in vertices:
            weighed = weighed_by_mix(cells, shares)
            k, n = metrics.effective_counts(weighed)
            worst.append(self._excess(k, n, metrics.label_counts(weighed.weights), errors))
        return np.max(worst, axis=0)

    def _excess(
        self,
        counts: AnyArray,
        of: AnyArray,
        labels: AnyArray,
        errors: float,
    ) -> FloatArray:
        """`excess` of the counts of each rate, [..., rates], and of cases by label, [..., 3]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            by_rate = counts / of
        smooth = (counts + 1.0) / (of + 2.0)
        error = errors * np.sqrt(smooth * (1.0 - smooth) / np.maximum(of, 1.0))
        rates, spread = (
            dict(zip(metrics.RATES, np.moveaxis(part, -1, 0), strict=True))
            for part in (by_rate, error)
        )
        over = [
            (1.0 if metrics.RATE_TABLE[name].better == "low" else -1.0) * (rates[name] - limit)
            + spread[name]
            for name, limit in self.targets.items()
        ]
        least = self.min_coverage
        if least is None:
            least = 0.5 * labels[..., Status.ok] / np.maximum(labels.sum(axis=-1), 1)
        most = self.targets.get("over_ask_rate", self.max_over_ask)
        # A set of which every case is ambiguous has nothing to ask idly.
        idle = np.nan_to_num(rates["over_ask_rate"] + spread["over_ask_rate"], nan=0.0)
        over += [least - rates["coverage"] + spread["coverage"], idle - most]
        missed = np.stack(over, axis=-1)
        return np.where(np.isnan(missed), 1.0, missed)

    def violation(self, cells: AnyArray) -> FloatArray:
        """Sum of target distances if every rate is one standard error worse, [...] (rule S6.8).

        Args:
          cells: cases by cell, [..., 20].
        """
        total: FloatArray = np.maximum(self.excess(cells, errors=1.0), 0.0).sum(axis=-1)
        return total

    def meets(self, cells: AnyArray) -> BoolArray:
        """Whether all targets are met, by a policy that answers, [...].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray((self.excess(cells) <= 0.0).all(axis=-1))

    def score(self, cells: AnyArray) -> FloatArray:
        """Expected cost where all targets are met, and `INFEASIBLE` more where not, [...].

        Lower is better.

        Args:
          cells: cases by cell, [..., 20].
        """
        return self.cost(cells) + INFEASIBLE * ~self.meets(cells)


def _labels(cells: AnyArray) -> AnyArray:
    """Cases by label, [3], of the first of cells [..., 20]; they are the same in all."""
    return metrics.label_counts(cells.reshape(-1, cells.shape[-1])[0])


def front(first: FloatArray, second: FloatArray) -> BoolArray:
    """Points that no other beats in both values, lower is better, [N].

    Equal points stand together; NaN is never one.

    Example:
      >>> front(np.array([0.0, 0.2, 0.2]), np.array([0.5, 0.1, 0.6]))
      array([ True,  True, False])
    """
    order = np.lexsort((second, first))
    order = order[~(np.isnan(first) | np.isnan(second))[order]]
    least = np.minimum.accumulate(second[order])
    # the least so far, at the first point that reached it
    reached = np.searchsorted(-least, -least)
    out = np.zeros(len(first), dtype=bool)
    out[order] = (second[order] == least) & (first[order] == first[order][reached])
    return out
