"""Learners under a budget (algebra): sums of rewards and of costs, and the pacer's price (S4.8).

The sums stand side by side, and decisions are made at the pacer's price.

A price that moves would leave a learner with rewards net of many prices. Sums of rewards, of costs
and of their products say what the sums of net rewards would be at any price: so every past round is
charged at today's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.budget import Budget
from raglab.bandit.environments import Table, World, table_costs
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    Rewards,
    State,
    check_reward,
    check_whole,
    init,
    record_pull,
    record_rewards,
    restore_batch,
)
from raglab.bandit.simulation import check_first_state
from raglab.extensions.budgets.prices import Pacer, check_least, pace, start_pacer
from raglab.values import FloatArray, IntArray, refuse


class Ledger(NamedTuple):
    """Sums and price of a learner under a budget; [...] is any batch of replications.

    Attributes:
      state: the learner's sums of rewards before costs.
      cost: sum of cost over the rewards counted, [..., A].
      square: sum of the squared cost over the rewards counted, [..., A].
      cross: sum of reward times cost over the rewards counted, [..., A].
      moment: sum of cost times context, [..., A, d].
      pacer: price and spend.
    """

    state: State
    cost: FloatArray
    square: FloatArray
    cross: FloatArray
    moment: FloatArray
    pacer: Pacer

    @property
    def net(self) -> State:
        """Learner's state as if every reward had been charged at today's price.

        An arm without a reward is expected to pay prior_mean net of costs, so that each is tried.

        Example:
          >>> bandit = Bandit("thompson_nig")
          >>> budget = Budget(2.0, price=0.25)
          >>> learned_ledger([1], [0.75], [2.0], bandit, budget, n_arms=2).net.total.tolist()
          [0.0, 0.25]
        """
        price = self.price[..., None]
        state = self.state
        return state._replace(
            total=state.total - price * self.cost,
            square=state.square - 2.0 * price * self.cross + price * price * self.square,
            moment=state.moment - price[..., None] * self.moment,
        )

    @property
    def price(self) -> FloatArray:
        """Value lost a unit of cost at the next choice, [...]."""
        return np.asarray(self.pacer.price)

    def after_choice(self, arm: IntArray, cost: FloatArray, bandit: Bandit) -> Ledger:
        """Ledger after a round that chose these arms [...] and paid these costs [...].

        Pulls, forgetting, the price.

        Args:
          arm: number of the arm, [...].
          cost: of the choice, [...].
          bandit: settings of the learner.
        """
        sums = ("cost", "square", "cross", "moment")
        faded = {name: getattr(self, name) * bandit.discount for name in sums}
        state = record_pull(self.state, arm, bandit)
        return self._replace(state=state, pacer=pace(self.pacer, cost), **faded)

    def after_rewards(self, rewards: Rewards, bandit: Bandit) -> Ledger:
        """Ledger [B, ...] after rewards and what their arms cost, as `record_rewards`.

        Args:
          rewards: that arrived, with costs.
          bandit: settings of the learner.
        """
        state = record_rewards(self.state, rewards, bandit)
        rows, arm, reward, age, context, cost, _ = rewards
        weight = bandit.discount**age
        batch = self.cost.shape[:-1]
        outcomes = {
            "cost": weight * cost,
            "square": weight * (cost * cost),
            "cross": weight * (reward * cost),
            "moment": np.asarray(weight * cost)[:, None] * context,
        }
        added = {}
        for name, outcome in outcomes.items():
            field = getattr(self, name)
            mine = field.reshape(len(state.t), *field.shape[len(batch) :]).copy()
            np.add.at(mine, (rows, arm), outcome)
            added[name] = mine.reshape(field.shape)
        return self._replace(state=restore_batch(state, batch), **added)


def check_budgeted(bandit: Bandit, world: World) -> None:
    """Refuse a learner or a world that no budget can be kept in.

    Raises:
      ValueError: no costs; or a learner that needs rewards in [0, 1], keeps a window, or has a
        history without costs.
    """
    if not isinstance(world, Table) or not world.has_costs:
        refuse("a budget needs a table with costs", "none", "state costs in Table.from_frame")
    if LEARNERS[bandit.algorithm].bounded:
        follower = ", ".join(name for name, entry in LEARNERS.items() if not entry.bounded)
        refuse(
            "a learner under a budget must read rewards below 0",
            bandit.algorithm,
            f"play one of {follower}",
        )
    if bandit.window or bandit.history is not None:
        value = "a window" if bandit.window else "a history"
        refuse("a learner under a budget keeps sums of costs", value, "use a discount")


def open_ledger(
    initial: object, bandit: Bandit, world: World, budget: Budget | float, rounds: int
) -> Ledger:
    """Ledger that a learner begins with, with the budget that it is to keep now.

    Args:
      initial: ledger of history; None begins without any.
      rounds: that are played; above 0 a budget below what they cost at least is refused.

    Raises:
      ValueError: as `check_budgeted`; a first state that is no ledger of this learner, or a budget
        below what the cheapest arm of each question costs.
    """
    check_budgeted(bandit, world)
    if not isinstance(initial, Ledger | None):
        refuse(
            "initial must be a Ledger with a budget", type(initial).__name__, "see learned_ledger"
        )
    n_features = len(world.feature_names) if isinstance(world, Table) else 0
    ledger = start_ledger(world.n_arms, bandit, budget, n_features=n_features)
    if rounds and isinstance(world, Table):
        # in the given order the rounds are the table's first rows
        played = slice(rounds if world.order == "given" else None)
        cheapest = np.where(world.mask, table_costs(world), np.inf)[played].min(axis=1)
        least = float(cheapest.mean())
        check_least(ledger.pacer.budget, least, "the cheapest arm of each question")
    if initial is None:
        return ledger
    check_first_state(initial.state, bandit, world)
    return initial._replace(pacer=ledger.pacer)


def start_ledger(
    n_arms: int, bandit: Bandit, budget: Budget | float, *, n_features: int = 0
) -> Ledger:
    """Ledger before the first round."""
    state = init(n_arms, bandit=bandit, n_features=n_features)
    none = np.zeros(state.n.shape)
    return Ledger(state, none, none, none, np.zeros(state.moment.shape), start_pacer(budget))


def learned_ledger(
    arm: ArrayLike,
    reward: ArrayLike,
    cost: ArrayLike,
    bandit: Bandit,
    budget: Budget | float,
    *,
    n_arms: int,
    context: ArrayLike | None = None,
) -> Ledger:
    """Ledger of a learner after history: `run` and `log` continue from it under a budget.

    History was paid elsewhere: it teaches rewards and costs, and neither spend nor price.

    Args:
      arm: number of the arm of each round, [N].
      reward: of each round, [N], in [0, 1]; NaN teaches nothing.
      cost: of each round, [N], at least 0.
      bandit: settings of the learner.
      budget: mean cost of a question.
      n_arms: number of arms, A.
      context: of each round, [N, d], for a linear learner.

    Raises:
      ValueError: an unknown arm, a reward outside [0, 1], a cost that is missing or below 0,
        contexts that are missing, or shapes that do not fit.

    Example:
      >>> ledger = learned_ledger(
      ...     [0, 1, 1], [0.5, 1.0, 0.5], [0.0, 2.0, 4.0], Bandit("thompson_nig"), 1.0, n_arms=2
      ... )
      >>> ledger.state.total.tolist(), ledger.cost.tolist(), float(ledger.pacer.spend)
      ([0.5, 1.5], [0.0, 6.0], 0.0)
    """
    rewards, costs, arms = float_array(reward, "reward"), float_array(cost, "cost"), np.shape(arm)
    if len(arms) != 1 or not arms == rewards.shape == costs.shape:
        shapes = arms, rewards.shape, costs.shape
        refuse("arm, reward and cost must be [N] each", shapes, "give a number a round")
    there = ~np.isnan(rewards)
    wrong = there & ~((costs >= 0.0) & (costs < np.inf))
    if wrong.any():
        refuse(
            "the cost of a round with a reward must be a number from 0",
            f"{costs[wrong][0]:g}, one of {int(wrong.sum())}",
            "drop the round",
        )
    x = np.zeros((len(rewards), 0))
    if bandit.linear:
        x = np.asarray(x if context is None else context, np.float64)
        if x.ndim != 2 or 0 in x.shape or len(x) != len(rewards) or not np.isfinite(x).all():
            refuse(
                f"context must be finite, [N, d] of {len(rewards)} rounds",
                x.shape,
                "give all features of each round",
            )
    ledger = start_ledger(n_arms, bandit, budget, n_features=x.shape[1])
    places = check_whole("arm", arm, n_arms)
    pulls = np.bincount(places, minlength=n_arms)
    state = ledger.state._replace(pulls=pulls, t=np.asarray(len(places)))
    known = np.flatnonzero(there)
    row = np.zeros_like(known)  # one learner is row 0 of its flat state
    counted = check_reward(rewards[known])
    arrived = Rewards(row, places[known], counted, row, x[known], costs[known])
    return ledger._replace(state=state).after_rewards(arrived, bandit)
