"""Learners under a budget (algebra): sums of rewards and of costs, and the pacer's price (S4.8).

The sums stand side by side, and decisions are made at the pacer's price.

A price that moves would leave a learner with rewards net of many prices. Sums of rewards, of costs
and of their products say what the sums of net rewards would be at any price: so every past round is
charged at today's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.budget import Budget, Pacer, check_budget, pace, start_pacer
from raglab.bandit.environments import Arms, Feed, Table, World
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    Ints,
    State,
    check_arm,
    check_reward,
    choose_arm,
    init,
    record_pull,
    record_rewards,
    restore_batch,
)
from raglab.values import refuse

Array = NDArray[np.float64]
Arrivals = Callable[[int, NDArray[np.int64]], NDArray[np.int64]]


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
    cost: Array
    square: Array
    cross: Array
    moment: Array
    pacer: Pacer


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
        refuse(
            "a learner under a budget keeps sums of costs",
            value,
            "use a discount",
        )


def start_ledger(
    n_arms: int,
    bandit: Bandit,
    budget: Budget | float,
    *,
    n_features: int = 0,
    batch: tuple[int, ...] = (),
) -> Ledger:
    """Ledger before the first round."""
    state = init(n_arms, bandit=bandit, n_features=n_features, batch=batch)
    none = np.zeros(state.n.shape)
    return Ledger(state, none, none, none, np.zeros(state.moment.shape), start_pacer(budget, batch))


def net_state(ledger: Ledger) -> State:
    """Learner's state as if every reward had been charged at today's price.

    What `choose` and `propensities` read.

    An arm without a reward is expected to pay prior_mean net of costs, so that each is tried.

    Example:
      >>> bandit = Bandit("thompson_nig")
      >>> ledger = record_choice(start_ledger(2, bandit, Budget(2.0, price=0.25)), 1, 2.0, bandit)
      >>> net_state(record_paid(ledger, 1, 0.75, 2.0, bandit)).total.tolist()  # 0.75 - 0.25 * 2
      [0.0, 0.25]
    """
    price = ledger.pacer.price[..., None]
    state = ledger.state
    return state._replace(
        total=state.total - price * ledger.cost,
        square=state.square - 2.0 * price * ledger.cross + price * price * ledger.square,
        moment=state.moment - price[..., None] * ledger.moment,
    )


def record_choice(ledger: Ledger, arm: ArrayLike, cost: ArrayLike, bandit: Bandit) -> Ledger:
    """Ledger after a round that chose these arms [...] and paid these costs [...].

    Pulls, forgetting, the price.
    """
    forgotten = {
        name: getattr(ledger, name) * bandit.discount
        for name in ("cost", "square", "cross", "moment")
    }
    state = record_pull(ledger.state, check_arm(arm, ledger.cost.shape[-1]), bandit)
    return ledger._replace(state=state, pacer=pace(ledger.pacer, cost), **forgotten)


def record_paid(
    ledger: Ledger,
    arm: ArrayLike,
    reward: ArrayLike,
    cost: ArrayLike,
    bandit: Bandit,
    *,
    context: ArrayLike | None = None,
    age: int = 0,
) -> Ledger:
    """Ledger of one learner that knows one more reward and what it cost.

    See `update` for the arguments.
    """
    width = ledger.moment.shape[-1]
    x = (
        np.zeros((1, width))
        if context is None
        else np.asarray(context, np.float64).reshape(1, width)
    )
    arms, ages = check_arm(arm, ledger.cost.shape[-1]).reshape(1), np.full(1, age, np.int64)
    rows, values = np.zeros(1, np.int64), check_reward(reward).reshape(1)
    return record_outcomes(
        ledger, rows, arms, values, np.asarray(cost, np.float64).reshape(1), ages, x, bandit
    )


def record_outcomes(
    ledger: Ledger,
    rows: Ints,
    arm: Ints,
    reward: Array,
    cost: Array,
    age: Ints,
    context: Array,
    bandit: Bandit,
) -> Ledger:
    """Ledger [B, ...] after rewards and costs [N] of these rows, of arguments that were checked.

    Args:
      context: [N, d]; d = 0 without a context.
    """
    state = record_rewards(ledger.state, rows, arm, reward, age, context, bandit)
    weight, n_arms, width = bandit.discount**age, ledger.cost.shape[-1], ledger.moment.shape[-1]
    sums = [
        array.reshape(-1, n_arms).copy() for array in (ledger.cost, ledger.square, ledger.cross)
    ]
    for array, outcome in zip(sums, (cost, cost * cost, reward * cost), strict=True):
        np.add.at(array, (rows, arm), weight * outcome)
    # -1 says nothing where d is 0
    moment = ledger.moment.reshape(len(sums[0]), n_arms, width).copy()
    np.add.at(moment, (rows, arm), (weight * cost)[:, None] * context)
    shape = ledger.cost.shape
    paid, square, cross = (array.reshape(shape) for array in sums)
    state = restore_batch(state, shape[:-1])
    return Ledger(state, paid, square, cross, moment.reshape(*shape, width), ledger.pacer)


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
    rewards, costs = float_array(reward, "reward"), float_array(cost, "cost")
    there = ~np.isnan(rewards)
    n_rounds = np.shape(arm)
    if len(n_rounds) != 1 or rewards.shape != n_rounds or costs.shape != n_rounds:
        shapes = n_rounds, rewards.shape, costs.shape
        refuse("arm, reward and cost must be [N] each", shapes, "give a number a round")
    wrong = there & ~((costs >= 0.0) & (costs < np.inf))
    if wrong.any():
        value = f"{costs[wrong][0]:g}, one of {int(wrong.sum())}"
        refuse(
            "the cost of a round with a reward must be a number from 0",
            value,
            "drop the round",
        )
    x = (
        np.zeros((len(rewards), 0))
        if context is None or not bandit.linear
        else np.asarray(context, np.float64)
    )
    if (
        bandit.linear
        and x.ndim == 2
        and x.shape[1] > 0
        and not (len(x) == len(rewards) and np.isfinite(x).all())
    ):
        rule = f"context must be finite, [N, d] of {len(rewards)} rounds"
        refuse(rule, x.shape if len(x) != len(rewards) else "NaN or infinity", "give a row a round")
    if bandit.linear and (x.ndim != 2 or x.shape[1] == 0):
        refuse(f"{bandit.algorithm} learns from a context", "none", "give all features")
    ledger = start_ledger(n_arms, bandit, check_budget(budget), n_features=x.shape[1])
    arms = check_arm(arm, n_arms)
    pulls = np.bincount(arms, minlength=n_arms)
    ledger = ledger._replace(state=ledger.state._replace(pulls=pulls, t=np.asarray(len(arms))))
    rows, ages = np.zeros(int(there.sum()), np.int64), np.zeros(int(there.sum()), np.int64)
    checked, paid = check_reward(rewards[there]), costs[there]
    return record_outcomes(ledger, rows, arms[there], checked, paid, ages, x[there], bandit)


def repeated_ledger(ledger: Ledger, size: int) -> Ledger:
    """Ledger of each of so many replications that begin alike, [R, ...]."""

    def repeated(array: Array) -> Array:
        return np.broadcast_to(array, (size, *array.shape)).copy()

    pacer = ledger.pacer._replace(
        price=repeated(ledger.pacer.price), spend=repeated(ledger.pacer.spend)
    )
    state = State._make(
        np.broadcast_to(field, (size, *field.shape)).copy() for field in ledger.state
    )
    cost, square, cross, moment = (
        repeated(part) for part in (ledger.cost, ledger.square, ledger.cross, ledger.moment)
    )
    return Ledger(state, cost, square, cross, moment, pacer)


def budgeted_arms(
    met: Feed,
    cost: Array,
    bandit: Bandit,
    rng: np.random.Generator,
    first: Ledger,
    arrivals: Arrivals,
) -> Arms:
    """Arms [T, R] of a learner that keeps a budget; the learner sees rewards before costs.

    Args:
      cost: [N, A] of the table.
      first: ledger of one learner that every replication begins with.
      arrivals: from a round and its arms to the choices whose rewards arrive in it.
    """
    ledger = repeated_ledger(first, met.size)
    arms = np.empty((met.rounds, met.size), np.int8)
    none = np.zeros((met.size, 0))
    for t in range(met.rounds):
        row = met.row(t)
        context = met.features[row] if bandit.linear else none
        _, choice = choose_arm(net_state(ledger), bandit, rng, met.open(t), context)
        arms[t] = choice.arm
        # What a choice costs is known at once; what it is worth may come later, and is learned
        # beside its cost then.
        ledger = record_choice(ledger, choice.arm, cost[row, choice.arm], bandit)
        when, who = np.divmod(arrivals(t, choice.arm), met.size)
        arm = arms[when, who].astype(np.int64)
        reward = met.rewards(when, who, arm)
        there = ~np.isnan(reward)
        when, who, arm, reward = when[there], who[there], arm[there], reward[there]
        rows = when if met.case is None else met.case[when, who]
        contexts = met.features[rows] if bandit.linear else none[who]
        ledger = record_outcomes(
            ledger, who, arm, reward, cost[rows, arm], t - when, contexts, bandit
        )
    return arms
