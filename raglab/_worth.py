"""What to propose, and whether a question is worth its cost."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab._defaults import ClarificationDefault, arrays, place
from raglab._learner import refuse
from raglab._votes import Learner, checked, for_and_against, mean

SUM = 1.0 + 1e-9  # most that shares may sum to, with their rounding


class Suggested(NamedTuple):
    """Value to propose, and why, in one sentence."""

    value: str
    reason: str


class Worth(NamedTuple):
    """Value of asking, in the unit of the costs.

    gain: expected cost of a silent error that an answer saves. cost: of the question. asks: whether the gain is more.
    """

    gain: float
    cost: float
    asks: bool


def suggest(
    default: ClarificationDefault | None, candidates: Sequence[str], learner: Learner | None = None
) -> Suggested:
    """Value to propose: of the candidates with votes above 0 the one that leads, else the first candidate.

    Args:
      candidates: in the order in which they are proposed without votes, which also breaks ties. learner: with the rule
      `posterior` the highest posterior mean leads, as for the row's confidence; else the most votes.

    Raises:
      ValueError: no candidate.
    """
    if not candidates:
        refuse("candidates must be at least one", "none", "give the values that can be proposed")
    votes = {} if default is None else default.candidate_votes
    liked = [value for value in candidates if votes.get(value, 0.0) > 0.0]
    if default is None or not liked:
        return Suggested(candidates[0], "It is the first candidate; no vote speaks for another yet.")
    score = dict(votes)
    if learner is not None and checked(learner).rule == "posterior":
        score = dict(zip(place(default), mean(arrays(default), learner).tolist(), strict=True))
    best = max(liked, key=lambda value: score[value])
    return Suggested(best, f"It leads: votes for it {votes[best]:g}, signals {default.sample_size}.")


def shares(
    default: ClarificationDefault | None, candidates: Sequence[str], learner: Learner | None = None
) -> dict[str, float]:
    """Probability of each candidate that it is the one wanted, from its votes; they sum to 1.

    What is for a value, plus `prior_yes` for each, over the sum: a Dirichlet mean.
    """
    prior = checked(Learner() if learner is None else learner).prior_yes
    for_it = dict.fromkeys(candidates, 0.0)
    if default is not None:
        for_it |= dict(zip(place(default), for_and_against(arrays(default))[0].tolist(), strict=True))
    weight = {value: prior + for_it[value] for value in candidates}
    total = sum(weight.values())
    return {value: one / total for value, one in weight.items()}


def worth_asking(
    shares: Mapping[str, float] | ArrayLike,
    *,
    question_cost: float,
    error_cost: float,
    outcomes: Sequence[Hashable] | None = None,
) -> Worth:
    """Whether a question is worth its cost: what it saves is error_cost · (1 − share of the best outcome).

    Args:
      shares: probability that each value is wanted, [V], at most 1 in sum; what is left is wanted by none of them.
      outcomes: what each value leads to, [V]; values of one outcome need no question between them.

    Raises:
      ValueError: shares that are none, costs below 0, outcomes that do not fit.

    Source: value of perfect information, Howard 1966.

    Example:
      >>> worth_asking([0.5, 0.25, 0.25], question_cost=1.0, error_cost=10.0, outcomes=["p. 1", "p. 1", "p. 2"])
      Worth(gain=2.5, cost=1.0, asks=True)
    """
    mass = np.asarray(list(shares.values()) if isinstance(shares, Mapping) else shares, dtype=np.float64)
    if mass.ndim != 1 or not mass.size or not (np.isfinite(mass) & (mass >= 0.0)).all() or mass.sum() > SUM:
        refuse("shares must be >= 0 and sum to at most 1", mass.tolist(), "they are probabilities")
    for name, cost in (("question_cost", question_cost), ("error_cost", error_cost)):
        if not (isfinite(cost) and cost >= 0.0):
            refuse(f"{name} must be >= 0", cost, "it is what one costs")
    ends = list(range(mass.size)) if outcomes is None else list(outcomes)
    if len(ends) != mass.size:
        refuse("outcomes must be one for each share", f"{len(ends)} for {mass.size}", "give them in the same order")
    by_end = {end: float(sum(mass[at] for at, other in enumerate(ends) if other == end)) for end in ends}
    gain = error_cost * max(1.0 - max(by_end.values()), 0.0)
    return Worth(gain, question_cost, gain > question_cost)
