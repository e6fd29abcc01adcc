"""Tests under a traffic mix (algebra): p-values, bounds and labels needed, counts a label (S6.15).

The labelled cases of each label are as many as they are; only within a label they are draws.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.metrics.costs import LABEL_OF_CELL, LABELS
from raglab.metrics.decision_rates import label_counts
from raglab.metrics.intervals import FloatArray, binomial_p
from raglab.metrics.mixes import label_weights

_LARGEST_STAKE_SHARE = 0.999  # of the largest stake, so that no product is 0
_SMALLEST_TARGET = 1e-9  # of targets, which are tested inside (0, 1)
_BOUND_HALVINGS = 40
_MAX_LABELS_NEEDED = 2**24
_CELL_HAS_LABEL = np.arange(len(LABELS))[:, None] == LABEL_OF_CELL


class LabelNeed(NamedTuple):
    """Labelled questions that certify a target under a mix, by label, [3]; empty: no number does.

    Attributes:
      best: if all are decided right.
      as_seen: if they are decided as the labelled ones were.
    """

    best: tuple[int, ...]
    as_seen: tuple[int, ...]


class MixTest(NamedTuple):
    """Losses of units by cell, and the outermost mixes in which a target is to be kept.

    A unit is an independent case of one label. For a target alpha let Z = loss − alpha · counted
    and w = share · n / n_label. If the rate under the mix is at least alpha then Σ w E[Z] ≥ 0 over
    the units, so for any stake λ with λ · max wZ < 1 that rests on no outcome

        E[Π (1 − λ w Z)] = Π (1 − λ w E[Z]) ≤ exp(−λ Σ w E[Z]) ≤ 1        (1 − x ≤ e^−x)

    and 1 / Π (1 − λ w Z) is a p-value by Markov's inequality; with −Z one of a rate at most alpha.
    The stake is that of Σ wZ with the spread of a rate alpha of which every other decision counts:
    in simulations a mean over several stakes certifies less often than this one. Where only one
    label has a share, the exact binomial test takes its place.

    Attributes:
      cells: units by cell, of each policy and target, [N, T, 20]; all have the same labels.
      loss: of a unit of each cell, in [0, 1], [T, 20].
      counted: 1 of the units that the rate is a share of, else 0, [T, 20].
      corners: mixes, [V, 3].
      level: error of a test that the stake is made for.

    Source: rule S6.15; Waudby-Smith and Ramdas 2024 (betting).
    """

    cells: FloatArray
    loss: FloatArray
    counted: FloatArray
    corners: FloatArray
    level: float

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Whether a rate moves with the mix: it is a share of cases of several labels, [T]."""
        has_several_labels: NDArray[np.bool_] = (label_counts(self.counted) > 0.0).sum(axis=-1) > 1
        return has_several_labels

    def p(self, place: int, alpha: float | FloatArray, *, lower: bool = False) -> FloatArray:
        """p-value that a rate is above alpha in some mix inside, [N].

        Args:
          place: of the target.
          alpha: highest rate, on the scale of the losses; of all policies or of each, [N].
          lower: whether the null is a rate of at most alpha in every mix inside.
        """
        tested_rate = np.clip(
            np.asarray(alpha, dtype=np.float64), _SMALLEST_TARGET, 1.0 - _SMALLEST_TARGET
        )
        corner_p_values = np.array(
            [self._p(place, tested_rate, corner, lower) for corner in self.corners]
        )
        if lower:  # any corner may break it
            return np.minimum(1.0, corner_p_values.min(axis=0) * len(corner_p_values))
        return np.asarray(corner_p_values.max(axis=0))

    def _p(
        self,
        target_index: int,
        tested_rate: FloatArray,
        corner: FloatArray,
        tests_below: bool,  # noqa: FBT001 - of one caller
    ) -> FloatArray:
        """`p` at one mix."""
        cells, cell_losses, is_counted = (
            self.cells[:, target_index],
            self.loss[target_index],
            self.counted[target_index],
        )
        is_live = (corner > 0.0) & (label_counts(is_counted) > 0.0)
        if not is_live.any():
            return np.ones(len(cells))
        # One label with losses of 0 and 1 is a plain binomial: its exact test is the sharper one.
        if is_live.sum() == 1 and not ((cell_losses > 0.0) & (cell_losses < 1.0)).any():
            exact_counts = (
                cells @ (cell_values * is_live[LABEL_OF_CELL])
                for cell_values in (cell_losses, is_counted)
            )
            # whole cases: rounding must not make one more of them
            n_errors, n_counted = (
                np.ceil(weighed_count - _SMALLEST_TARGET) for weighed_count in exact_counts
            )
            return np.asarray(
                binomial_p(n_counted - n_errors, n_counted, 1.0 - tested_rate)
                if tests_below
                else binomial_p(n_errors, n_counted, tested_rate)
            )
        label_totals = label_counts(cells[0])
        label_weight = label_weights(label_totals, corner)
        always_counted, ever_counted = (
            extreme(np.where(_CELL_HAS_LABEL, is_counted, np.nan), axis=1)
            for extreme in (np.nanmin, np.nanmax)
        )
        # The stake must rest on no outcome, so it takes the spread of a rate at the target, where
        # every other decision counts.
        rate_variance = (
            tested_rate
            * (1.0 - tested_rate)
            * float((label_totals * label_weight**2) @ (always_counted + ever_counted))
            / 2.0
        )
        cell_excess = (-1.0 if tests_below else 1.0) * (
            cell_losses - tested_rate[..., None] * is_counted
        )
        weighed_excess = cell_excess * label_weight[LABEL_OF_CELL]
        largest_excess = np.maximum(weighed_excess.max(axis=-1), _SMALLEST_TARGET)
        # below 1 / largest excess, so that no factor of the product is 0
        stake_size = np.minimum(
            np.sqrt(2.0 * log(1.0 / self.level) / rate_variance),
            _LARGEST_STAKE_SHARE / largest_excess,
        )
        log_wealth = (cells * np.log1p(-stake_size[..., None] * weighed_excess)).sum(axis=-1)
        return np.asarray(np.exp(np.minimum(-log_wealth, 0.0)))

    def bound(self, place: int, delta: float, alpha: float, *, lower: bool = False) -> FloatArray:
        """Upper bound of the rate over all mixes inside at confidence 1 − delta, or lower, [N].

        Args:
          place: of the target.
          delta: error of the bound.
          alpha: target, on which side of which the bound lies as the p-value says.
          lower: for the lower bound of the largest rate.
        """
        interval_start, interval_end = np.zeros(len(self.cells)), np.ones(len(self.cells))
        midpoint = np.full(len(self.cells), alpha)
        for _ in range(_BOUND_HALVINGS):
            is_below = (self.p(place, midpoint, lower=lower) <= delta) != lower
            interval_start, interval_end = (
                np.where(is_below, interval_start, midpoint),
                np.where(is_below, midpoint, interval_end),
            )
            midpoint = (interval_start + interval_end) / 2.0
        return interval_start if lower else interval_end

    def weighed(self, place: int, row: int) -> FloatArray:
        """Units of a policy by cell, weighed to the mean of the corners, [20]."""
        unit_counts = self.cells[row, place]
        label_weight = label_weights(label_counts(unit_counts), self.corners.mean(axis=0))
        return np.asarray(unit_counts * label_weight[LABEL_OF_CELL])

    def rate(self, place: int, row: int) -> float:
        """Rate under the mean of the corners; NaN where it is of nothing."""
        weighed_units = self.weighed(place, row)
        counted_units = float(weighed_units @ self.counted[place])
        return (
            float(weighed_units @ self.loss[place]) / counted_units
            if counted_units
            else float("nan")
        )

    def needed(self, place: int, row: int, alpha: float, delta: float) -> LabelNeed:
        """Smallest number of labels, in proportion to the mix, that certifies a target.

        Args:
          place: of the target.
          row: of the policy whose rates are seen.
          alpha: target, on the scale of the losses.
          delta: error of the promise.
        """
        cell_excess = self.loss[place] - alpha * self.counted[place]
        ideal_profile, unit_counts = np.zeros(len(LABEL_OF_CELL)), self.cells[row, place]
        ideal_profile[np.where(_CELL_HAS_LABEL, cell_excess, np.inf).argmin(axis=1)] = 1.0
        label_totals = label_counts(unit_counts)[LABEL_OF_CELL]
        observed_profile = np.divide(
            unit_counts, label_totals, out=np.zeros(len(label_totals)), where=label_totals > 0.0
        )
        mean_shares, target_slice = self.corners.mean(axis=0), slice(place, place + 1)

        def labels(n_labels: int) -> FloatArray:
            return np.asarray(np.ceil(np.round(mean_shares * n_labels, 9)))

        def fewest(profile: FloatArray) -> tuple[int, ...]:
            """Fewest labels of each kind that certify where units fall on cells by `profile`."""

            def enough(n_labels: int) -> bool:
                unit_table = (profile * labels(n_labels)[LABEL_OF_CELL])[None, None]
                scaled_test = MixTest(
                    unit_table,
                    self.loss[target_slice],
                    self.counted[target_slice],
                    self.corners,
                    self.level,
                )
                return bool(scaled_test.p(0, alpha)[0] <= delta)

            # the first number, from 1 on, that is enough
            n_labels = bisect_left(range(_MAX_LABELS_NEEDED), 1, 1, key=enough)
            return (
                tuple(labels(n_labels).astype(int).tolist())
                if n_labels < _MAX_LABELS_NEEDED
                else ()
            )

        return LabelNeed(fewest(ideal_profile), fewest(observed_profile))
