"""What a round and a reward do to a learner's statistics; of arguments that were checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raglab._learner import Bandit, State, refuse

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def counted(state: State, arm: NDArray[np.int64], bandit: Bandit) -> State:
    """State after a round that chose these arms: pulls, forgetting."""
    places = np.asarray(arm)[..., None]
    pulls = state.pulls.copy()
    np.put_along_axis(pulls, places, np.take_along_axis(pulls, places, -1) + 1, -1)
    state = state._replace(pulls=pulls)
    if bandit.discount < 1.0:
        statistics = ("n", "total", "square", "gram", "moment")
        state = state._replace(**{name: getattr(state, name) * bandit.discount for name in statistics})
    if bandit.window:
        state = _without_oldest(state, bandit)
    return state._replace(t=np.asarray(state.t + 1))


def flat(state: State) -> State:
    """State of one batch axis, [B, ...], with arrays of its own."""
    lead, size = state.t.ndim, state.t.size
    return State._make(field.reshape(size, *field.shape[lead:]).copy() for field in state)


def shaped(state: State, batch: tuple[int, ...]) -> State:
    """State [B, ...] with its batch as it was."""
    return State._make(field.reshape((*batch, *field.shape[1:])) for field in state)


def outcome(reward: Array, bandit: Bandit) -> Array:
    """What a policy adds up: the reward, or for thompson_beta whether it is a success (rule S4.5)."""
    return np.asarray(won(reward, bandit), np.float64) if bandit.policy == "thompson_beta" else reward


def won(reward: Array, bandit: Bandit) -> NDArray[np.bool_]:
    """Whether a reward is a success: above the threshold (rule S4.5)."""
    return np.asarray(reward > bandit.threshold)


def _without_oldest(state: State, bandit: Bandit) -> State:
    """State from whose statistics the round that leaves the window is gone; its place is empty."""
    mine = flat(state)
    place = mine.t % bandit.window
    rows = np.arange(len(place))
    there = mine.recent_arm[rows, place] >= 0
    rows, place = rows[there], place[there]
    arm, seen = mine.recent_arm[rows, place], mine.recent_reward[rows, place]
    x = mine.recent_context[rows, place]
    _add(mine, rows, arm, -np.ones(len(rows)), outcome(seen, bandit), x)
    empty = rows[mine.n[rows, arm] == 0.0], arm[mine.n[rows, arm] == 0.0]
    for field in (mine.total, mine.square, mine.gram, mine.moment):  # no digit of what was subtracted stays
        field[empty] = 0.0
    mine.recent_arm[rows, place], mine.recent_reward[rows, place], mine.recent_context[rows, place] = -1, 0.0, 0.0
    return shaped(mine, state.t.shape)


def _add(mine: State, rows: Ints, arm: Ints, weight: Array, seen: Array, context: Array) -> None:
    """Add outcomes to the statistics of a state that is one's own; a row may occur more than once."""
    at = rows, arm
    np.add.at(mine.n, at, weight)
    np.add.at(mine.total, at, weight * seen)
    np.add.at(mine.square, at, weight * (seen * seen))
    if mine.moment.shape[-1]:
        np.add.at(mine.gram, at, weight[:, None, None] * (context[:, :, None] * context[:, None, :]))
        np.add.at(mine.moment, at, (weight * seen)[:, None] * context)


def learned(state: State, rows: Ints, arm: Ints, reward: Array, age: Ints, context: Array, bandit: Bandit) -> State:
    """State [B, ...] after rewards [N] of these rows, of arguments that were checked; a row may occur more than once.

    Args:
      context: [N, d]; d = 0 without a context.
    """
    mine = flat(state)
    if bandit.window:
        kept = age < bandit.window
        rows, arm, reward, age, context = rows[kept], arm[kept], reward[kept], age[kept], context[kept]
        place = (mine.t[rows] - 1 - age) % bandit.window
        if (mine.recent_arm[rows, place] >= 0).any():
            refuse("a round has one reward", "a second one", "correct the first with revise")
        mine.recent_arm[rows, place], mine.recent_reward[rows, place] = arm, reward
        mine.recent_context[rows, place] = context
    _add(mine, rows, arm, np.asarray(bandit.discount**age, np.float64), outcome(reward, bandit), context)
    return mine
