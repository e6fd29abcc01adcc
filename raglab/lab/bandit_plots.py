"""Displays of the bandit laboratory: regret, arm shares, posteriors, propensities, off-policy estimates, reward audit.

In scikit-learn's manner, as in `displays`: `from_…` takes values that were computed elsewhere and draws them, `plot`
draws them again on any axes, `to_frame` gives every number that is drawn.
"""

from __future__ import annotations

from raglab.lab._bandit_beliefs import PosteriorDisplay
from raglab.lab._bandit_forest import ForestDisplay
from raglab.lab._bandit_panels import RewardAuditDisplay
from raglab.lab._bandit_regret import RegretDisplay, lai_robbins
from raglab.lab._bandit_shares import ArmShareDisplay, PropensityDisplay

__all__ = [
    "ArmShareDisplay",
    "ForestDisplay",
    "PosteriorDisplay",
    "PropensityDisplay",
    "RegretDisplay",
    "RewardAuditDisplay",
    "lai_robbins",
]
