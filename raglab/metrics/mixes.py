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
    FloatArray,
    Stratum,
    check_delta,
    clopper_pearson,
    finite_interval,
    stratified_rate,
)

SAMPLE: Literal["sample"] = "sample"  # the mix of the labelled cases themselves
FEW_UNITS = 10  # cases of a label below which its part of a mix is said to rest on few
_SUM = 1e-5  # by which stated shares may miss 1
_WRITTEN = 12  # decimals of a share
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
        ends = zip(LABELS, self.low, self.high, strict=True)
        return {label: (low, high) for label, low, high in ends if not isnan(low)}

    @property
    def rows(self) -> dict[str, Any]:
        """The mix as a certificate and a run state it: a share, or its two ends, by label."""
        stated: dict[str, Any] = {
            label: low if low == high else [low, high] for label, (low, high) in self.shares.items()
        }
        return stated | ({"delta": self.delta} if self.delta else {})

    @property
    def estimate(self) -> dict[str, float]:
        """Estimate of each share, by label; empty of stated shares.

        Of each stratum the rows with a label speak for all; one without any is left out.
        """
        by_label = zip(LABELS, zip(*self.strata, strict=True), strict=False)
        return {label: stratified_rate(strata)[0] for label, strata in by_label}

    def __str__(self) -> str:
        parts = {
            label: f"{low:.4g}" + (f" to {high:.4g}" if high > low else "")
            for label, (low, high) in self.shares.items()
        }
        if self.strata:
            shown = (
                f"{label} {share:.3g} ({parts[label]})" for label, share in self.estimate.items()
            )
            drawn = sum(stratum.drawn for stratum, *_ in self.strata)
            known = sum(stratum.drawn - stratum.unknown for stratum, *_ in self.strata)
            counts = f"{known:,} labels of {drawn:,} requests"
            return f"{', '.join(shown)} by {counts}, delta {self.delta:g}"
        is_point = len(self.corners) == 1
        if is_point:
            corner = zip(LABELS, self.corners[0], strict=True)
            parts |= {label: f"{share:.4g}" for label, share in corner if share}
        stated = ", ".join(f"{label} {ends}" for label, ends in parts.items())
        is_whole = is_point or len(parts) == len(LABELS)
        return stated if is_whole else f"{stated}, the rest as labelled"

    __repr__ = __str__

    def at_labels(self, labels: CellCounts, where: str = "") -> TrafficMix:
        """The mix made whole by labelled cases: what is not stated, and the corners.

        Args:
          labels: cases by label, [3].
          where: which cases, for the message.

        Raises:
          ValueError: shares that cannot sum to 1, or a share above 0 of a label without a case.
        """
        corners = self.vertices(labels)
        check_shares(corners, labels, where)
        return replace(self, corners=tuple(map(tuple, corners.tolist())))

    def vertices(self, labels: CellCounts) -> FloatArray:
        """Corners of all mixes inside, [V, 3]; a rate or cost is largest at one of them.

        Args:
          labels: cases by label, [3], for what neither the mix nor `at_labels` states.

        Raises:
          ValueError: shares that cannot sum to 1.
        """
        if self.corners:
            return np.array(self.corners)
        ends, stated = list(self.shares.values()), ~np.isnan(self.low)
        parts = np.eye(len(LABELS))[stated]
        if not stated.all():
            # what is not stated is one part, in the ratio of the cases; of none, in equal shares,
            # which `at_labels` refuses or never uses
            counts = np.where(stated, 0.0, labels)
            ratio = counts / counts.sum() if counts.any() else np.full(len(LABELS), 1 / len(LABELS))
            ends, parts = [*ends, (0.0, 1.0)], np.vstack([parts, ratio])
        corners = set()
        for free, (least, most) in enumerate(ends):
            fixed = [set(pair) for place, pair in enumerate(ends) if place != free]
            for chosen in product(*fixed):
                rest = round(1.0 - sum(chosen), _WRITTEN)
                if least - _SUM <= rest <= most + _SUM:
                    values = [*chosen[:free], min(max(rest, 0.0), 1.0), *chosen[free:]]
                    corner = np.array(values) @ parts
                    corners.add(tuple(np.round(corner / corner.sum(), _WRITTEN).tolist()))
        table = np.array(sorted(corners, reverse=True)).reshape(-1, len(LABELS))
        if not len(table):
            msg = f"shares of a mix must be able to sum to 1, got {self}; widen or correct them."
            raise ValueError(msg)
        return table

    def center(self, labels: CellCounts) -> FloatArray:
        """Mix at which costs and rates are taken, [3]: the estimate, else the mean of the corners.

        Args:
          labels: as for `vertices`.
        """
        if not self.strata:
            return np.asarray(self.vertices(labels).mean(axis=0))
        shares = np.array(list(self.estimate.values()))
        return np.round(shares / shares.sum(), _WRITTEN)


def check_shares(corners: FloatArray, labels: CellCounts, where: str = "") -> None:
    """Stop where a label with a share above 0 has no case.

    Args:
      corners: mixes, [V, 3].
      labels: cases by label, [3].
      where: which cases, for the message.
    """
    for place, label in enumerate(LABELS):
        if corners[:, place].any() and not labels[place]:
            had = ", ".join(f"{int(n)} {name}" for name, n in zip(LABELS, labels, strict=True))
            rule = f"each label with a share of the mix must have a case{where}"
            msg = f"{rule}, got {had}; label some {label}, or set its share to 0."
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
    ends = {}
    for label, share in mix.items():
        pair = np.asarray(share, dtype=object).ravel().tolist()
        are_numbers = len(pair) in (1, 2) and all(map(is_number, pair))
        if not are_numbers or not 0.0 <= pair[0] <= pair[-1] <= 1.0:
            msg = f"{rule}, got {label}={share!r}; a share lies in [0, 1], 0.9 for 90 %."
            raise ValueError(msg)
        ends[label] = (float(pair[0]), float(pair[-1]))
    low, high = ([ends.get(label, (np.nan, np.nan))[end] for label in LABELS] for end in (0, 1))
    if low == high and abs(sum(low) - 1.0) <= _SUM:  # rounded shares are no intervals
        low = high = [round(share / sum(low), _WRITTEN) for share in low]
    stated = TrafficMix(tuple(low), tuple(high))
    stated.vertices(np.ones(len(LABELS)))
    return stated


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
    each = 1.0 - check_delta(delta) / (len(strata) * len(labels))
    by_label = list(zip(*strata, strict=True))
    if is_finite:
        size = sum(stratum.size for stratum in by_label[0])
        bounds = [[finite_interval(stratum, each) for stratum in of_label] for of_label in by_label]
        ends = [[sum(end) / size for end in zip(*pairs, strict=True)] for pairs in bounds]
    else:
        counts = [(only.hits, only.hits + only.unknown, only.drawn) for (only,) in by_label]
        least, most, drawn = np.array(counts).T
        low, high = clopper_pearson(least, drawn, each).low, clopper_pearson(most, drawn, each).high
        ends = [[*pair] for pair in np.column_stack([low, high])]
    occurs = np.isin(LABELS, labels)
    least_share, most_share = (
        tuple(np.round(np.where(occurs, [pair[end] for pair in ends], 0.0), _WRITTEN).tolist())
        for end in (0, 1)
    )
    return TrafficMix(least_share, most_share, delta, strata, is_finite, labels=labels)


def label_weights(labels: CellCounts, shares: FloatArray) -> FloatArray:
    """Weight of a case of each label under a mix, [..., 3]: share × cases / cases of the label.

    A label without a case has the weight 0, and the others have its share too.

    Args:
      labels: cases by label, [..., 3].
      shares: of the labels in traffic, [3].
    """
    size = np.asarray(labels, dtype=np.float64)
    there = np.where(size > 0.0, shares, 0.0)
    total = there.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = there / total * size.sum(axis=-1, keepdims=True) / size
    return np.where(size > 0.0, weight, 0.0)


def mix_column(label: Cells, mix: Mix) -> dict[str, FloatArray]:
    """Column `weight` of cases in a stated mix, mean 1; none where it is the sample's.

    Args:
      label: of each case, below 0 where it has none, whose weight is NaN, [Q].
      mix: see `checked_mix`.
    """
    stated = checked_mix(mix)
    if stated is None:
        return {}
    counts = np.bincount(label[label >= 0], minlength=len(LABELS))
    shares = stated.at_labels(counts).center(counts)
    return {"weight": np.append(label_weights(counts, shares), np.nan)[label]}


def weighed_by_mix(cells: CellCounts, shares: FloatArray) -> Weighed:
    """Cells under a mix.

    Args:
      cells: cases by cell, [..., 20].
      shares: of the labels in traffic, [3].
    """
    weight = label_weights(label_counts(cells), shares)[..., LABEL_OF_CELL]
    return Weighed(cells, cells * weight, cells * weight**2)


def weighed_cases(cells: Cells, weight: FloatArray) -> Weighed:
    """Counts of the cells of cases that have weights of their own.

    Args:
      cells: cell of each case, [..., Q].
      weight: of each case, of any scale, [Q].
    """
    scaled, width = weight * (len(weight) / weight.sum()), len(LABEL_OF_CELL)
    flat = cells.reshape(-1, cells.shape[-1])
    counts, weights, squares = (
        np.array([np.bincount(row, by, width) for row in flat]).reshape(*cells.shape[:-1], width)
        for by in (None, scaled, scaled**2)
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
    corners = mix.vertices(labels)
    points = [mix.center(labels), *(corners if len(corners) > 1 else ())]
    return [weighed_by_mix(cells, point) for point in points]


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
    values = weighed[0].weights if weighed else cells
    columns: dict[str, Any] = {"expected_cost": expected_cost(values, costs)}
    if level is not None:
        tables = [cells]
        if weighed:
            tables = [
                each.weights * (each.weights.sum(axis=-1) / each.squares.sum(axis=-1))[..., None]
                for each in weighed
            ]
        ends = hull(*(cost_interval(table, costs, level) for table in tables))
        columns |= {"expected_cost_low": ends.low, "expected_cost_high": ends.high}
    return columns
