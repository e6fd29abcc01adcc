"""Traffic mixes (algebra): shares of the labels in traffic, and what counts come to there (S6.15).

A mix holds where only the shares of the labels differ: within a label, traffic must be like the
labelled cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isnan
from typing import Any, Literal

import numpy as np

from raglab.arguments.plain_arrays import is_number
from raglab.metrics.costs import (
    LABEL_OF_CELL,
    LABELS,
    CellCounts,
    Cells,
    Costs,
    cost_interval,
    expected_cost,
    hull,
)
from raglab.metrics.decision_rates import Weighed, label_counts
from raglab.metrics.intervals import (
    Stratum,
    check_delta,
    clopper_pearson,
    finite_interval,
    stratified_rate,
)
from raglab.values import FloatArray

SAMPLE: Literal["sample"] = "sample"  # the mix of the labelled cases themselves
FEW_UNITS = 10  # cases of a label below which its part of a mix is said to rest on few
_SHARE_SUM_TOLERANCE = 1e-5  # by which stated shares may miss 1
_SHARE_DECIMALS = 12  # decimals of a share
Shares = Mapping[str, float | tuple[float, float]]


@dataclass(frozen=True)
class TrafficMix:
    """Shares of the labels ok, refuse and ambiguous in traffic, each an interval.

    Attributes:
      low: least share by label; NaN where none is stated.
      high: largest share by label; NaN where none is stated. Labels without a share have what the
        others leave, in the ratio of the labelled cases.
      delta: probability that the true shares lie outside; 0 of stated shares.
      strata: counts that the intervals are estimated from, by stratum and label.
      is_finite: whether the strata were drawn from requests of known number.
      is_fixed: whether `delta` was stated, so that a certificate keeps it.
      labels: that occur in the sampled traffic; the others have no share.
      corners: outermost mixes, set by `at_labels`.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    delta: float = 0.0
    strata: tuple[tuple[Stratum, ...], ...] = ()
    is_finite: bool = False
    is_fixed: bool = False
    labels: tuple[str, ...] = LABELS
    corners: tuple[tuple[float, ...], ...] = ()

    def at(self, delta: float) -> TrafficMix:
        """The same estimate with intervals of another error.

        Shares and errors that the user stated stay as they are.

        Args:
          delta: probability that the true shares lie outside, in (0, 0.5).
        """
        if self.is_fixed or not self.strata:
            return self
        return estimated_mix(self.strata, delta, is_finite=self.is_finite, labels=self.labels)

    @property
    def shares(self) -> dict[str, tuple[float, float]]:
        """Interval of each stated share, by label."""
        label_ends = zip(LABELS, self.low, self.high, strict=True)
        return {
            label: (lower_share, upper_share)
            for label, lower_share, upper_share in label_ends
            if not isnan(lower_share)
        }

    @property
    def rows(self) -> dict[str, Any]:
        """The mix as a certificate and a run state it: a share, or its two ends, by label."""
        stated_shares: dict[str, Any] = {
            label: lower_share if lower_share == upper_share else [lower_share, upper_share]
            for label, (lower_share, upper_share) in self.shares.items()
        }
        return stated_shares | ({"delta": self.delta} if self.delta else {})

    @property
    def estimate(self) -> dict[str, float]:
        """Estimate of each share, by label; empty of stated shares.

        Of each stratum the rows with a label speak for all; one without any is left out.
        """
        label_strata = zip(LABELS, zip(*self.strata, strict=True), strict=False)
        return {label: stratified_rate(strata)[0] for label, strata in label_strata}

    def __str__(self) -> str:
        share_texts = {
            label: f"{lower_share:.4g}"
            + (f" to {upper_share:.4g}" if upper_share > lower_share else "")
            for label, (lower_share, upper_share) in self.shares.items()
        }
        if self.strata:
            estimate_texts = (
                f"{label} {share:.3g} ({share_texts[label]})"
                for label, share in self.estimate.items()
            )
            n_drawn = sum(stratum.drawn for stratum, *_ in self.strata)
            n_known = sum(stratum.drawn - stratum.unknown for stratum, *_ in self.strata)
            counts_text = f"{n_known:,} labels of {n_drawn:,} requests"
            return f"{', '.join(estimate_texts)} by {counts_text}, delta {self.delta:g}"
        is_point = len(self.corners) == 1
        if is_point:
            corner_shares = zip(LABELS, self.corners[0], strict=True)
            share_texts |= {label: f"{share:.4g}" for label, share in corner_shares if share}
        stated_text = ", ".join(
            f"{label} {share_text}" for label, share_text in share_texts.items()
        )
        states_all_labels = is_point or len(share_texts) == len(LABELS)
        return stated_text if states_all_labels else f"{stated_text}, the rest as labelled"

    __repr__ = __str__

    def at_labels(self, labels: CellCounts, where: str = "") -> TrafficMix:
        """The mix made whole by labelled cases: what is not stated, and the corners.

        Args:
          labels: cases by label, [3].
          where: which cases, for the message.

        Raises:
          ValueError: shares that cannot sum to 1, or a share above 0 of a label without a case.
        """
        mix_corners = self.vertices(labels)
        check_shares(mix_corners, labels, where)
        return replace(self, corners=tuple(map(tuple, mix_corners.tolist())))

    def vertices(self, labels: CellCounts) -> FloatArray:
        """Corners of all mixes inside, [V, 3]; a rate or cost is largest at one of them.

        Args:
          labels: cases by label, [3], for what neither the mix nor `at_labels` states.

        Raises:
          ValueError: shares that cannot sum to 1.
        """
        if self.corners:
            return np.array(self.corners)
        share_ranges = list(self.shares.values())
        is_stated = ~np.isnan(self.low)
        label_parts = np.eye(len(LABELS))[is_stated]
        if not is_stated.all():
            # what is not stated is one part, in the ratio of the cases; of none, in equal shares,
            # which `at_labels` refuses or never uses
            unstated_counts = np.where(is_stated, 0.0, labels)
            unstated_ratio = (
                unstated_counts / unstated_counts.sum()
                if unstated_counts.any()
                else np.full(len(LABELS), 1 / len(LABELS))
            )
            share_ranges = [*share_ranges, (0.0, 1.0)]
            label_parts = np.vstack([label_parts, unstated_ratio])
        corner_set = set()
        for free_place, (least_share, most_share) in enumerate(share_ranges):
            fixed_ends = [
                set(share_range)
                for part_place, share_range in enumerate(share_ranges)
                if part_place != free_place
            ]
            for chosen_ends in product(*fixed_ends):
                remaining_share = round(1.0 - sum(chosen_ends), _SHARE_DECIMALS)
                if (
                    least_share - _SHARE_SUM_TOLERANCE
                    <= remaining_share
                    <= most_share + _SHARE_SUM_TOLERANCE
                ):
                    part_shares = [
                        *chosen_ends[:free_place],
                        min(max(remaining_share, 0.0), 1.0),
                        *chosen_ends[free_place:],
                    ]
                    mix_corner = np.array(part_shares) @ label_parts
                    corner_set.add(
                        tuple(np.round(mix_corner / mix_corner.sum(), _SHARE_DECIMALS).tolist())
                    )
        corner_table = np.array(sorted(corner_set, reverse=True)).reshape(-1, len(LABELS))
        if not len(corner_table):
            msg = f"shares of a mix must be able to sum to 1, got {self}; widen or correct them."
            raise ValueError(msg)
        return corner_table

    def center(self, labels: CellCounts) -> FloatArray:
        """Mix at which costs and rates are taken, [3]: the estimate, else the mean of the corners.

        Args:
          labels: as for `vertices`.
        """
        if not self.strata:
            return np.asarray(self.vertices(labels).mean(axis=0))
        estimated_shares = np.array(list(self.estimate.values()))
        return np.round(estimated_shares / estimated_shares.sum(), _SHARE_DECIMALS)


def check_shares(corners: FloatArray, labels: CellCounts, where: str = "") -> None:
    """Stop where a label with a share above 0 has no case.

    Args:
      corners: mixes, [V, 3].
      labels: cases by label, [3].
      where: which cases, for the message.
    """
    for label_index, label in enumerate(LABELS):
        if corners[:, label_index].any() and not labels[label_index]:
            text = ", ".join(
                f"{int(n_cases)} {label_name}"
                for label_name, n_cases in zip(LABELS, labels, strict=True)
            )
            rule = f"each label with a share of the mix must have a case{where}"
            msg = f"{rule}, got {text}; label some {label}, or set its share to 0."
            raise ValueError(msg)


Mix = Shares | TrafficMix | Literal["sample"]


def checked_mix(mix: Mix | None) -> TrafficMix | None:
    """A stated mix; None of the sample's own.

    Args:
      mix: `sample`, a `TrafficMix`, or label -> share or (least, largest share). Labels that are
        left out share the rest in the ratio of the labelled cases.

    Raises:
      ValueError: an unknown label, or what is no share.

    Source: rule S6.15.

    Example:
      >>> mix = checked_mix({"ok": (0.8, 0.9)})
      >>> mix.vertices([50, 30, 20]).round(3).tolist()
      [[0.9, 0.06, 0.04], [0.8, 0.12, 0.08]]
    """
    if mix is None or isinstance(mix, TrafficMix) or (isinstance(mix, str) and mix == SAMPLE):
        return mix if isinstance(mix, TrafficMix) else None
    rule = f"mix must be {SAMPLE!r} or map {', '.join(LABELS)} to shares or (least, largest)"
    if not isinstance(mix, Mapping) or not mix or not set(mix) <= {*LABELS}:
        msg = f"{rule}, got {mix!r:.80}; write mix={{'ok': 0.9}}."
        raise ValueError(msg)
    stated_ends = {}
    for label, share in mix.items():
        share_ends = np.asarray(share, dtype=object).ravel().tolist()
        is_share = len(share_ends) in (1, 2) and all(map(is_number, share_ends))
        if not is_share or not 0.0 <= share_ends[0] <= share_ends[-1] <= 1.0:
            msg = f"{rule}, got {label}={share!r}; a share lies in [0, 1], 0.9 for 90 %."
            raise ValueError(msg)
        stated_ends[label] = (float(share_ends[0]), float(share_ends[-1]))
    lower_shares, upper_shares = (
        [stated_ends.get(label, (np.nan, np.nan))[end_index] for label in LABELS]
        for end_index in (0, 1)
    )
    # rounded shares are no intervals
    if lower_shares == upper_shares and abs(sum(lower_shares) - 1.0) <= _SHARE_SUM_TOLERANCE:
        lower_shares = upper_shares = [
            round(share / sum(lower_shares), _SHARE_DECIMALS) for share in lower_shares
        ]
    stated_mix = TrafficMix(tuple(lower_shares), tuple(upper_shares))
    stated_mix.vertices(np.ones(len(LABELS)))
    return stated_mix


def estimated_mix(
    strata: tuple[tuple[Stratum, ...], ...],
    delta: float,
    *,
    is_finite: bool,
    labels: tuple[str, ...] = LABELS,
) -> TrafficMix:
    """Mix with an interval of each share, all of them together at confidence 1 − delta.

    Args:
      strata: counts by stratum and label.
      delta: probability that the true shares lie outside, in (0, 0.5).
      is_finite: whether strata were drawn from requests of known number; else the draws are a
        simple random sample of all traffic.
      labels: that occur in the traffic.

    Source: rule S6.15; Clopper and Pearson 1934, Bonferroni over labels; of strata the tails of the
      hypergeometric distribution (Buonaccorsi 1987), Bonferroni over strata and labels, summed.
    """
    label_level = 1.0 - check_delta(delta) / (len(strata) * len(labels))
    label_strata = list(zip(*strata, strict=True))
    if is_finite:
        population = sum(stratum.size for stratum in label_strata[0])
        count_bounds = [
            [finite_interval(stratum, label_level) for stratum in strata_of_label]
            for strata_of_label in label_strata
        ]
        share_ends = [
            [sum(bound_counts) / population for bound_counts in zip(*label_bounds, strict=True)]
            for label_bounds in count_bounds
        ]
    else:
        label_counts_drawn = [
            (sole_stratum.hits, sole_stratum.hits + sole_stratum.unknown, sole_stratum.drawn)
            for (sole_stratum,) in label_strata
        ]
        least_hits, most_hits, n_drawn = np.array(label_counts_drawn).T
        lower_bounds = clopper_pearson(least_hits, n_drawn, label_level).low
        upper_bounds = clopper_pearson(most_hits, n_drawn, label_level).high
        share_ends = [[*end_pair] for end_pair in np.column_stack([lower_bounds, upper_bounds])]
    occurs = np.isin(LABELS, labels)
    least_share, most_share = (
        tuple(
            np.round(
                np.where(occurs, [end_pair[bound_counts] for end_pair in share_ends], 0.0),
                _SHARE_DECIMALS,
            ).tolist()
        )
        for bound_counts in (0, 1)
    )
    return TrafficMix(least_share, most_share, delta, strata, is_finite, labels=labels)


def label_weights(labels: CellCounts, shares: FloatArray) -> FloatArray:
    """Weight of a case of each label under a mix, [..., 3]: share × cases / cases of the label.

    A label without a case has the weight 0, and the others have its share too.

    Args:
      labels: cases by label, [..., 3].
      shares: of the labels in traffic, [3].
    """
    counts = np.asarray(labels, dtype=np.float64)
    present_shares = np.where(counts > 0.0, shares, 0.0)
    present_total = present_shares.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = present_shares / present_total * counts.sum(axis=-1, keepdims=True) / counts
    return np.where(counts > 0.0, weights, 0.0)


def mix_column(label: Cells, mix: Mix) -> dict[str, FloatArray]:
    """Column `weight` of cases in a stated mix, mean 1; none where it is the sample's.

    Args:
      label: of each case, below 0 where it has none, whose weight is NaN, [Q].
      mix: see `checked_mix`.
    """
    stated_mix = checked_mix(mix)
    if stated_mix is None:
        return {}
    counts = np.bincount(label[label >= 0], minlength=len(LABELS))
    traffic_shares = stated_mix.at_labels(counts).center(counts)
    return {"weight": np.append(label_weights(counts, traffic_shares), np.nan)[label]}


def weighed_by_mix(cells: CellCounts, shares: FloatArray) -> Weighed:
    """Cells under a mix.

    Args:
      cells: cases by cell, [..., 20].
      shares: of the labels in traffic, [3].
    """
    cell_weights = label_weights(label_counts(cells), shares)[..., LABEL_OF_CELL]
    return Weighed(cells, cells * cell_weights, cells * cell_weights**2)


def weighed_cases(cells: Cells, weight: FloatArray) -> Weighed:
    """Counts of the cells of cases that have weights of their own.

    Args:
      cells: cell of each case, [..., Q].
      weight: of each case, of any scale, [Q].
    """
    scaled_weights = weight * (len(weight) / weight.sum())
    n_cells = len(LABEL_OF_CELL)
    rows = cells.reshape(-1, cells.shape[-1])
    counts, weights, squares = (
        np.array(
            [np.bincount(policy_cells, row_weights, n_cells) for policy_cells in rows]
        ).reshape(*cells.shape[:-1], n_cells)
        for row_weights in (None, scaled_weights, scaled_weights**2)
    )
    return Weighed(counts, weights, squares)


def mix_weighings(cells: CellCounts, mix: TrafficMix | None) -> list[Weighed]:
    """Cells in a mix, then at each of its corners if several; none where it is the sample's.

    Args:
      cells: cases by cell, [..., 20]; all have the same labels.
      mix: stated, or None.
    """
    if mix is None or not cells.size:
        return []
    labels = label_counts(cells.reshape(-1, cells.shape[-1])[0])
    mix_corners = mix.vertices(labels)
    mix_points = [mix.center(labels), *(mix_corners if len(mix_corners) > 1 else ())]
    return [weighed_by_mix(cells, mix_point) for mix_point in mix_points]


def cost_columns(
    cells: CellCounts,
    costs: Costs | FloatArray | None = None,
    level: float | None = 0.95,
    weighed: Sequence[Weighed] = (),
) -> dict[str, Any]:
    """Columns `expected_cost`, `expected_cost_low` and `expected_cost_high` of a table, [...] each.

    Args:
      cells: cases by cell, [..., 20].
      costs: see `cost_matrix`.
      level: of the interval; None leaves its ends out.
      weighed: see `rate_columns`; the interval is that of as many independent cases as these are
        worth (Kish 1965).
    """
    mean_cells = weighed[0].weights if weighed else cells
    cost_table: dict[str, Any] = {"expected_cost": expected_cost(mean_cells, costs)}
    if level is not None:
        interval_cells = [cells]
        if weighed:
            interval_cells = [
                weighed_cells.weights
                * (weighed_cells.weights.sum(axis=-1) / weighed_cells.squares.sum(axis=-1))[
                    ..., None
                ]
                for weighed_cells in weighed
            ]
        cost_bounds = hull(
            *(cost_interval(corner_cells, costs, level) for corner_cells in interval_cells)
        )
        cost_table |= {"expected_cost_low": cost_bounds.low, "expected_cost_high": cost_bounds.high}
    return cost_table
