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

_NEAR = 0.999  # of the largest stake, so that no product is 0
_LEAST = 1e-9  # of targets, which are tested inside (0, 1)
_HALVINGS = 40
_MOST_LABELS = 2**24
_OF_LABEL = np.arange(len(LABELS))[:, None] == LABEL_OF_CELL


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
        several: NDArray[np.bool_] = (label_counts(self.counted) > 0.0).sum(axis=-1) > 1
        return several

    def p(self, place: int, alpha: float | FloatArray, *, lower: bool = False) -> FloatArray:
        """p-value that a rate is above alpha in some mix inside, [N].

        Args:
          place: of the target.
          alpha: highest rate, on the scale of the losses; of all policies or of each, [N].
          lower: whether the null is a rate of at most alpha in every mix inside.
        """
        limit = np.clip(np.asarray(alpha, dtype=np.float64), _LEAST, 1.0 - _LEAST)
        every = np.array([self._p(place, limit, corner, lower) for corner in self.corners])
        if lower:  # any corner may break it
            return np.minimum(1.0, every.min(axis=0) * len(every))
        return np.asarray(every.max(axis=0))

    def _p(
        self,
        place: int,
        alpha: FloatArray,
        corner: FloatArray,
        lower: bool,  # noqa: FBT001 - of one caller
    ) -> FloatArray:
        """`p` at one mix."""
        cells, loss, counted = self.cells[:, place], self.loss[place], self.counted[place]
        live = (corner > 0.0) & (label_counts(counted) > 0.0)
        if not live.any():
            return np.ones(len(cells))
        if live.sum() == 1 and not ((loss > 0.0) & (loss < 1.0)).any():
            ends = (cells @ (part * live[LABEL_OF_CELL]) for part in (loss, counted))
            k, n = (np.ceil(end - _LEAST) for end in ends)  # of whole cases
            return np.asarray(
                binomial_p(n - k, n, 1.0 - alpha) if lower else binomial_p(k, n, alpha)
            )
        labels = label_counts(cells[0])
        weight = label_weights(labels, corner)
        always, ever = (
            end(np.where(_OF_LABEL, counted, np.nan), axis=1) for end in (np.nanmin, np.nanmax)
        )
        spread = alpha * (1.0 - alpha) * float((labels * weight**2) @ (always + ever)) / 2.0
        excess = (-1.0 if lower else 1.0) * (loss - alpha[..., None] * counted)
        stakes = excess * weight[LABEL_OF_CELL]
        most = np.maximum(stakes.max(axis=-1), _LEAST)
        stake = np.minimum(np.sqrt(2.0 * log(1.0 / self.level) / spread), _NEAR / most)
        wealth = (cells * np.log1p(-stake[..., None] * stakes)).sum(axis=-1)
        return np.asarray(np.exp(np.minimum(-wealth, 0.0)))

    def bound(self, place: int, delta: float, alpha: float, *, lower: bool = False) -> FloatArray:
        """Upper bound of the rate over all mixes inside at confidence 1 − delta, or lower, [N].

        Args:
          place: of the target.
          delta: error of the bound.
          alpha: target, on which side of which the bound lies as the p-value says.
          lower: for the lower bound of the largest rate.
        """
        low, high = np.zeros(len(self.cells)), np.ones(len(self.cells))
        middle = np.full(len(self.cells), alpha)
        for _ in range(_HALVINGS):
            below = (self.p(place, middle, lower=lower) <= delta) != lower
            low, high = np.where(below, low, middle), np.where(below, middle, high)
            middle = (low + high) / 2.0
        return low if lower else high

    def weighed(self, place: int, row: int) -> FloatArray:
        """Units of a policy by cell, weighed to the mean of the corners, [20]."""
        cells = self.cells[row, place]
        weight = label_weights(label_counts(cells), self.corners.mean(axis=0))
        return np.asarray(cells * weight[LABEL_OF_CELL])

    def rate(self, place: int, row: int) -> float:
        """Rate under the mean of the corners; NaN where it is of nothing."""
        weighed = self.weighed(place, row)
        counted = float(weighed @ self.counted[place])
        return float(weighed @ self.loss[place]) / counted if counted else float("nan")

    def needed(self, place: int, row: int, alpha: float, delta: float) -> LabelNeed:
        """Smallest number of labels, in proportion to the mix, that certifies a target.

        Args:
          place: of the target.
          row: of the policy whose rates are seen.
          alpha: target, on the scale of the losses.
          delta: error of the promise.
        """
        excess = self.loss[place] - alpha * self.counted[place]
        ideal, cells = np.zeros(len(LABEL_OF_CELL)), self.cells[row, place]
        ideal[np.where(_OF_LABEL, excess, np.inf).argmin(axis=1)] = 1.0
        there = label_counts(cells)[LABEL_OF_CELL]
        rates = np.divide(cells, there, out=np.zeros(len(there)), where=there > 0.0)
        share, at = self.corners.mean(axis=0), slice(place, place + 1)

        def labels(total: int) -> FloatArray:
            return np.asarray(np.ceil(np.round(share * total, 9)))

        def fewest(profile: FloatArray) -> tuple[int, ...]:
            def enough(total: int) -> bool:
                units = (profile * labels(total)[LABEL_OF_CELL])[None, None]
                test = MixTest(units, self.loss[at], self.counted[at], self.corners, self.level)
                return bool(test.p(0, alpha)[0] <= delta)

            total = bisect_left(range(_MOST_LABELS), 1, 1, key=enough)
            return tuple(labels(total).astype(int).tolist()) if total < _MOST_LABELS else ()

        return LabelNeed(fewest(ideal), fewest(rates))
