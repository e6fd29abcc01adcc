"""A log of a learner at work in a world, with the probability of every arm, as off-policy evaluation needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from raglab._choosing import counted, init
from raglab._feed import POLICY, feed, stream
from raglab._learner import Bandit, check_whole
from raglab._worlds import Table, World, check_world
from raglab.bandit import propensities, sample, update

if TYPE_CHECKING:
    import pandas as pd


def log(bandit: Bandit, world: World, *, rounds: int, seed: int = 0) -> pd.DataFrame:
    """One learner's rounds in a world, each chosen by its exact propensities; what a live system would have logged.

    Args:
      rounds: a millisecond each for Thompson sampling, whose propensities are integrals.

    Returns: a row a round: `action` (number of the arm), `arm` (its name, or number), `reward`, `propensity` of that
      arm, `case` (row of a table; -1 where there is none), `value` of the choice, and `p_<arm>` of every arm.

    Raises:
      ValueError: a world, settings or sizes that break a rule.

    Source: rules S4.6, S4.7.

    Example:
      >>> from raglab._worlds import Bernoulli
      >>> seen = log(Bandit("epsilon_greedy", epsilon=0.5), Bernoulli(np.array([0.2, 0.8])), rounds=3)
      >>> seen[["p_0", "p_1"]].sum(axis=1).tolist()
      [1.0, 1.0, 1.0]
    """
    import pandas as pd

    check_whole("rounds", rounds, 1, "log at least one")
    met = feed(check_world(world, rounds), rounds, 1, seed, 0)
    names = world.arms if isinstance(world, Table) else tuple(str(arm) for arm in range(met.n_arms))
    state = init(met.n_arms, bandit=bandit, n_features=met.features.shape[1] if bandit.linear else 0)
    chance = stream(seed, 0, POLICY).random(rounds)
    share, actions, rewards = np.empty((rounds, met.n_arms)), np.empty(rounds, np.int64), np.empty(rounds)
    for t in range(rounds):
        row = int(np.ravel(met.row(t))[0])
        context = met.features[row] if bandit.linear else None
        mask = None if met.mask is None else met.mask[row]
        share[t] = propensities(state, bandit, mask=mask, context=context)
        arm = sample(share[t], chance[t])
        state = counted(state, arm, bandit)
        (rewards[t],) = met.rewards(np.array([t]), np.array([0]), np.array([arm], dtype=np.int8))
        actions[t] = arm
        if not np.isnan(rewards[t]):
            state = update(state, arm, rewards[t], bandit, context=context)
    case = np.full(rounds, -1) if met.case is None else met.case[:, 0].astype(np.int64)
    rows = case if met.case is not None else np.arange(rounds) % len(met.worth)
    return pd.DataFrame(
        {
            "action": actions,
            "arm": [names[arm] for arm in actions],
            "reward": rewards,
            "propensity": share[np.arange(rounds), actions],
            "case": case,
            "value": met.worth[rows, actions],
            **{f"p_{name}": share[:, number] for number, name in enumerate(names)},
        }
    )
