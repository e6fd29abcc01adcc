"""Off-policy evaluation (algebra): what another policy would earn, by this policy's log (S4.7).

A log is a frame with a row a round: action (the arm), reward, propensity (its probability when it
was chosen), and where there is a reward model from outside q_<arm>, its reward of every arm. A
target is the probability of every arm in every round, [T, A], or [A] where it is the same in all.
"""

from __future__ import annotations

from raglab.off_policy.estimators import ESTIMATORS
from raglab.off_policy.evaluation import (
    COLUMNS,
    Gain,
    OverlapWarning,
    difference,
    estimate,
    lower_bound,
    overlap,
)
from raglab.off_policy.trust import Overlap, Rules

__all__ = [
    "COLUMNS",
    "ESTIMATORS",
    "Gain",
    "Overlap",
    "OverlapWarning",
    "Rules",
    "difference",
    "estimate",
    "lower_bound",
    "overlap",
]
