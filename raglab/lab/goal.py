"""What a study wants, said once: objectives, targets, and one number that weighs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.metrics import OBJECTIVES, TARGETS
from raglab.values import Status


class Goal(NamedTuple):
    """What a study wants: low objectives, targets kept; `score` says it in one number.

    targets: rate -> highest value. penalty: what a point above a target costs beside the rate itself.
    """

    objectives: tuple[str, ...] = OBJECTIVES
    targets: Mapping[str, float] = TARGETS
    penalty: float = 1.0

    def rates(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Objectives, [..., O]; a rate of nothing is 1: it meets no target (rule S6.2)."""
        every = metrics.rates(counts, labels)
        picked = every[..., [metrics.RATES.index(name) for name in self.objectives]]
        absent = np.array([_label_count(name, labels) == 0 for name in self.objectives])
        return np.where(np.isnan(picked), np.where(absent, 0.0, 1.0), picked)

    def excess(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far each target is exceeded, [..., T]; negative where it is met."""
        every = metrics.rates(counts, labels)
        picked = every[..., [metrics.RATES.index(name) for name in self.targets]]
        return np.where(np.isnan(picked), 1.0, picked) - np.array(list(self.targets.values()))

    def score(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum of the objectives and of `penalty` times what exceeds the targets, [...]; lower is better."""
        over = np.maximum(self.excess(counts, labels), 0.0).sum(axis=-1)
        total: NDArray[np.float64] = self.rates(counts, labels).sum(axis=-1) + self.penalty * over
        return total


def _label_count(name: str, labels: NDArray[np.int64]) -> int:
    if name == "false_refusal_rate":
        return int(labels[Status.ok])
    if name == "missed_ambiguity_rate":
        return int(labels[Status.ambiguous])
    return int(labels.sum())
