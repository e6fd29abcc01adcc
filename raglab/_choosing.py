"""One step of a learner: `init`, `choose`, `update`, `revise`; state in and out, never changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._counting import counted, flat, learned, outcome, shaped
from raglab._indices import drawn, index
from raglab._learner import (
    THOMPSON,
    Bandit,
    Choice,
    State,
    check_arm,
    check_bandit,
    check_context,
    check_mask,
    check_reward,
    check_whole,
    refuse,
)

__all__ = ["choose", "chosen", "counted", "init", "nth", "outcome", "revise", "scores", "uniform_share", "update"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
DEFAULT = Bandit()
LEAST_COUNT = 0.5  # of a reward's weight; rounding takes less


def init(n_arms: int, *, bandit: Bandit = DEFAULT, n_features: int = 0, batch: tuple[int, ...] = ()) -> State:
    """State before the first round.

    Args:
      n_features: width of the context; of use to linear policies alone.
      batch: leading shape of replications that learn side by side.

    Raises:
      ValueError: settings outside their range, no arm, or a linear policy without features.

    Example:
      >>> init(2, batch=(3,)).pulls.shape
      (3, 2)
    """
    check_whole("n_arms", n_arms, 1, "there must be an arm to choose")
    check_whole("n_features", n_features, 0, "0 is no context")
    check_bandit(bandit, n_arms)
    if bandit.linear and n_features == 0:
        refuse(f"{bandit.policy} learns from a context", "n_features = 0", "name the width of the context")
    if bandit.floor * n_arms > 1.0:
        refuse(f"floor times {n_arms} arms may not pass 1", bandit.floor, f"at most {1.0 / n_arms:g} fits")
    width = n_features if bandit.linear else 0
    arms, recent = (*batch, n_arms), (*batch, bandit.window)
    return State(
        t=np.zeros(batch, np.int64),
        pulls=np.zeros(arms, np.int64),
        n=np.zeros(arms),
        total=np.zeros(arms),
        square=np.zeros(arms),
        gram=np.zeros((*arms, width, width)),
        moment=np.zeros((*arms, width)),
        recent_arm=np.full(recent, -1, np.int64),
        recent_reward=np.zeros(recent),
        recent_context=np.zeros((*recent, width)),
    )


def scores(
    state: State, bandit: Bandit, rng: np.random.Generator, mask: NDArray[np.bool_] | None, context: Array
) -> Array:
    """Index or draw of each arm, [..., A]; -inf where masked."""
    score = drawn(state, bandit, rng, context) if bandit.policy in THOMPSON else index(state, bandit, mask, context)
    return score if mask is None else np.where(mask, score, -np.inf)


def nth(open_: NDArray[np.bool_], place: Ints) -> Ints:
    """Arm [...] that is the place-th open one of [..., A], counted from 0."""
    return np.argmax(np.cumsum(open_, axis=-1) > place[..., None], axis=-1)


def uniform_share(bandit: Bandit, n_available: NDArray[np.integer] | int) -> Array:
    """Probability [...] that a round chooses uniformly among the available arms: epsilon, floor, or both."""
    floor = np.asarray(bandit.floor * np.asarray(n_available))
    epsilon = bandit.epsilon if bandit.policy == "epsilon_greedy" else 0.0
    return epsilon + floor - epsilon * floor


def chosen(
    state: State, bandit: Bandit, rng: np.random.Generator, mask: NDArray[np.bool_] | None, context: Array
) -> tuple[State, Choice]:
    """What `choose` returns, of arguments that were checked."""
    score = scores(state, bandit, rng, mask, context)
    if bandit.ties == "random":
        tied = score == score.max(axis=-1, keepdims=True)
        arm = nth(tied, (rng.random(state.t.shape) * tied.sum(axis=-1)).astype(np.int64))
    else:
        arm = np.argmax(score, axis=-1)
    if bandit.policy == "epsilon_greedy" or bandit.floor > 0.0:
        open_ = np.ones(score.shape, np.bool_) if mask is None else mask
        n_available = open_.sum(axis=-1)
        share = uniform_share(bandit, n_available)
        chance = rng.random(state.t.shape)
        place = np.minimum((chance / np.maximum(share, 1e-300) * n_available), n_available - 1).astype(np.int64)
        arm = np.where(chance < share, nth(open_, place), arm)
    return counted(state, arm, bandit), Choice(arm, score)


def choose(
    state: State,
    bandit: Bandit,
    rng: np.random.Generator,
    *,
    mask: ArrayLike | None = None,
    context: ArrayLike | None = None,
) -> tuple[State, Choice]:
    """State that has counted the round, and the arm of each replication.

    Draws replication by replication, arm by arm; with random ties one uniform a replication follows, and with
    epsilon_greedy or a floor one more.

    Args:
      mask: available arms, [A] or [..., A]. context: [..., d], for linear policies.

    Raises:
      ValueError: settings outside their range, a mask that leaves no arm, or a context that does not fit.

    Source: rule S4.5.

    Example:
      >>> _, choice = choose(init(2), Bandit("ucb1"), np.random.default_rng(0), mask=[False, True])
      >>> int(choice.arm), choice.score
      (1, array([-inf,  inf]))
    """
    n_arms = state.n.shape[-1]
    check_bandit(bandit, n_arms)
    _check_fits(state, bandit)
    checked = check_mask(mask, state.n.shape)
    most = n_arms if checked is None else int(checked.sum(axis=-1).max())
    if bandit.floor * most > 1.0:
        refuse(f"floor times {most} arms may not pass 1", bandit.floor, f"at most {1.0 / most:g} fits")
    return chosen(state, bandit, rng, checked, check_context(context, state))


def _check_fits(state: State, bandit: Bandit) -> None:
    if bandit.linear and state.moment.shape[-1] == 0:
        refuse(f"{bandit.policy} needs a state with features", "none", "give init the same bandit and n_features")
    if state.recent_arm.shape[-1] != bandit.window:
        came = (state.recent_arm.shape[-1], bandit.window)
        refuse("state and bandit must have the same window", came, "give init the same bandit")


def _full(name: str, values: NDArray[Any], batch: tuple[int, ...]) -> NDArray[Any]:
    if values.shape not in {batch[place:] for place in range(len(batch) + 1)}:
        refuse(f"{name} must be one for all, or fit the state's batch {batch}", values.shape, "give one a replication")
    return np.broadcast_to(values, batch)


def _seen(
    state: State, arm: ArrayLike, rewards: tuple[ArrayLike, ...], bandit: Bandit, context: ArrayLike | None, age: object
) -> tuple[Ints, tuple[Array, ...], Array, Ints]:
    """Checked arm [B], rewards [B], context [B, d] and age [B]."""
    check_bandit(bandit, state.n.shape[-1])
    _check_fits(state, bandit)
    batch, size = state.t.shape, state.t.size
    arms = _full("arm", check_arm(arm, state.n.shape[-1]), batch).reshape(size)
    values = tuple(_full("reward", check_reward(reward), batch).reshape(size) for reward in rewards)
    x = check_context(context, state).reshape(size, state.moment.shape[-1])
    ages = np.asarray(age)
    if not np.issubdtype(ages.dtype, np.integer) or (ages < 0).any():
        refuse("age must be a whole number of rounds, >= 0", age, "0 is a reward before the next choice")
    ages = _full("age", ages.astype(np.int64), batch).reshape(size)
    if bandit.window and (ages >= state.t.reshape(size)).any():
        refuse("age must be less than the rounds chosen", age, "a window keeps rewards of rounds that were chosen")
    return arms, values, x, ages


def update(
    state: State,
    arm: ArrayLike,
    reward: ArrayLike,
    bandit: Bandit,
    *,
    context: ArrayLike | None = None,
    age: ArrayLike = 0,
) -> State:
    """State that knows one more reward of each replication.

    Args:
      arm, reward: [...]; a reward in [0, 1]. context: [..., d], that of the choice.
      age: rounds between the choice and this reward, scalar or [...]: a late reward counts discount**age, and
        outside the window not at all.

    Raises:
      ValueError: a reward that is NaN or outside [0, 1], an unknown arm, or a second reward in one place of a window.

    Example:
      >>> update(init(2), 1, 0.8, Bandit("ucb1")).total
      array([0. , 0.8])
    """
    arms, (value,), x, ages = _seen(state, arm, (reward,), bandit, context, age)
    return shaped(learned(state, np.arange(len(arms)), arms, value, ages, x, bandit), state.t.shape)


def revise(
    state: State,
    arm: ArrayLike,
    old: ArrayLike,
    new: ArrayLike,
    bandit: Bandit,
    *,
    context: ArrayLike | None = None,
    age: ArrayLike = 0,
) -> State:
    """State in which a reward that was counted is another, such as after a thumb up: old out, new in.

    Args:
      old, new: [...] in [0, 1]. age: rounds chosen since the choice, scalar or [...].

    Raises:
      ValueError: as `update`; or the window holds another reward of that round.

    Example:
      >>> bandit = Bandit("ucb1")
      >>> revise(update(init(2), 1, 0.25, bandit), 1, 0.25, 1.0, bandit).total
      array([0., 1.])
    """
    arms, (before, after), x, ages = _seen(state, arm, (old, new), bandit, context, age)
    mine, rows = flat(state), np.arange(len(arms))
    if bandit.window:
        kept = ages < bandit.window
        rows, arms, ages, x = rows[kept], arms[kept], ages[kept], x[kept]
        before, after = before[kept], after[kept]
        place = (mine.t[rows] - 1 - ages) % bandit.window
        if not ((mine.recent_arm[rows, place] == arms) & (mine.recent_reward[rows, place] == before)).all():
            refuse("old must be the reward that was counted", before, "give arm, reward and age of that round")
        mine.recent_reward[rows, place] = after
    weight = np.asarray(bandit.discount**ages, np.float64)
    if (mine.n[rows, arms] < LEAST_COUNT * weight).any():
        refuse("old must be a reward that was counted", "an arm without one", "update with the first, then revise")
    was, becomes = outcome(before, bandit), outcome(after, bandit)
    at = rows, arms
    mine.total[at] += weight * (becomes - was)
    mine.square[at] += weight * (becomes * becomes - was * was)
    if mine.moment.shape[-1]:
        mine.moment[at] += (weight * (becomes - was))[:, None] * x
    return shaped(mine, state.t.shape)
