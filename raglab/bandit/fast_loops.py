"""Simulation loops in NumPy (algebra): all replications of a block at once.

Each is a twin of `choose` and `update`, equal to them bit for bit where it is not linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import Arms, Array, Feed
from raglab.bandit.learner import LEARNERS, Bandit, refuse
from raglab.bandit.scores import kl_upper, noise, student_posterior

Ints = NDArray[np.int64]


class Twin(NamedTuple):
    """A learner's two steps on arrays of its own."""

    score: Callable[[int], Array]  # round -> scores [R, A], which the caller may write into
    learn: Callable[[Ints, Ints, Array], None]  # arm [R], place of (replication, arm) [R], reward [R]


def is_loop_exact(bandit: Bandit, met: Feed) -> bool:
    """Whether the fast loops say what the learner would: nothing forgotten, delayed, missing or floored."""
    settings = bandit.discount == 1.0 and bandit.window == 0 and bandit.floor == 0.0 and bandit.ties == "lowest"
    there = met.case is None or not np.isnan(met.reward if met.mask is None else met.reward[met.mask]).any()
    never_late = isinstance(met.delay, int) and met.delay == 0 and met.lost is None
    return settings and bandit.history is None and never_late and bool(there)


def logs(rounds: int) -> Array:
    """Ln of the rewards before each round, [T]; 0 before the first two."""
    return np.log(np.maximum(np.arange(rounds, dtype=np.float64), 1.0))


def exploration_arms(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms | None:
    """Arms [T, R] that a learner with an epsilon chooses uniformly, -1 where it does not; none for other learners."""
    if not LEARNERS[bandit.policy].uniform:
        return None
    chance = rng.random((met.rounds, met.size))
    open_ = np.ones((1, met.n_arms), np.bool_) if met.mask is None else met.mask
    rows = met.case if met.case is not None else np.arange(met.rounds)[:, None] if len(open_) > 1 else 0
    rows = rows if len(open_) > 1 else 0
    n_open = open_.sum(axis=-1)[rows]
    place = np.minimum(chance / max(bandit.epsilon, 1e-300) * n_open, n_open - 1).astype(np.int64)
    in_order = np.argsort(~open_, axis=-1, kind="stable").astype(np.int8)  # available arms first
    return np.where(chance < bandit.epsilon, in_order[rows, place], np.int8(-1))


def loop_arms(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms:
    """Arms [T, R] that a plain learner with a fast loop chooses.

    Every array of a round is allocated once, here or in the twin: at millions of rounds a second, memory is what costs.

    Raises:
      ValueError: the learner's entry has no loop.
    """
    entry = LEARNERS[bandit.policy]
    if entry.loop is None:
        refuse("a fast loop plays learners that have one", bandit.policy, "simulate it by choose and update")
    # what is random of the choice itself is drawn before the loop, all rounds at once
    at_random = exploration_arms(met, bandit, rng)
    twin: Twin = entry.loop(met, bandit, rng)
    arms = np.empty((met.rounds, met.size), np.int8)
    arm, place = np.empty(met.size, np.int64), np.empty(met.size, np.int64)
    first = np.arange(met.size) * met.n_arms
    closed = None if met.mask is None else ~met.mask
    # flat tables and flat places, since one take is faster than an index of two axes
    table, means, reward = met.reward.ravel(), np.empty(met.size), np.empty(met.size)
    for t in range(met.rounds):
        score, row = twin.score(t), met.row(t)
        if closed is not None:
            # the twin lends its scores, so masked arms are struck out in them
            np.copyto(score, -np.inf, where=closed[row])
        score.argmax(1, arm)
        if at_random is not None:
            np.copyto(arm, at_random[t], where=at_random[t] >= 0)
        arms[t] = arm
        # an int32 row times the number of arms could overflow in a large table
        start = row if isinstance(row, int) else row.astype(np.int64)
        np.add(arm, start * met.n_arms, place)
        # a table holds rewards; known means pay 1 where the round's uniform is below them
        if met.uniform is None:
            table.take(place, out=reward, mode="clip")
        else:
            np.less(met.uniform[t], table.take(place, out=means, mode="clip"), out=reward, casting="unsafe")
        np.add(arm, first, place)
        twin.learn(arm, place, reward)
    return arms


class Means(NamedTuple):
    """Counts and means of an index learner, [R, A] each; `learn` writes into them, round by round."""

    n: Array
    counted: Array  # n, but 1 before the first reward
    mean: Array  # infinite before the first reward, so that the arm comes first
    learn: Callable[[Ints, Ints, Array], None]


def _means(met: Feed) -> Means:
    """Empty counts and means of a block, and the step that adds a reward of each replication."""
    shape = met.size, met.n_arms
    n, total, counted, mean = np.zeros(shape), np.zeros(shape), np.ones(shape), np.full(shape, np.inf)
    flat_n, flat_total, flat_counted, flat_mean = n.ravel(), total.ravel(), counted.ravel(), mean.ravel()
    count, added = np.empty(met.size), np.empty(met.size)

    def learn(_: Ints, place: Ints, reward: Array) -> None:
        flat_n.take(place, out=count, mode="clip")
        np.add(count, 1.0, count)
        flat_n[place] = count
        flat_counted[place] = count
        flat_total.take(place, out=added, mode="clip")
        np.add(added, reward, added)
        flat_total[place] = added
        np.divide(added, count, added)
        flat_mean[place] = added

    return Means(n, counted, mean, learn)


def greedy_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:  # noqa: ARG001 - as the others
    """Twin of epsilon_greedy between its uniform choices."""
    _, _, mean, learn = _means(met)
    out = np.empty(mean.shape)

    def means(_: int) -> Array:
        np.copyto(out, mean)
        return out

    return Twin(means, learn)


def ucb1_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:  # noqa: ARG001 - as the others
    """Twin of ucb1."""
    _, counted, mean, learn = _means(met)
    out, twice = np.empty(mean.shape), (2.0 * logs(met.rounds)).tolist()

    def bounds(t: int) -> Array:
        np.divide(twice[t], counted, out)
        np.sqrt(out, out)
        if bandit.exploration != 1.0:
            np.multiply(out, bandit.exploration, out)
        return np.add(out, mean, out)

    return Twin(bounds, learn)


def kl_ucb_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:  # noqa: ARG001 - as the others
    """Twin of kl_ucb."""
    n, counted, mean, learn = _means(met)
    level = logs(met.rounds)

    def divergences(t: int) -> Array:
        rewarded = n > 0.0
        upper = kl_upper(np.where(rewarded, mean, 0.0), bandit.exploration * bandit.exploration * level[t] / counted)
        return np.where(rewarded, upper, np.inf)

    return Twin(divergences, learn)


def beta_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:
    """Twin of thompson_beta: successes and failures side by side, [2, R * A]."""
    size, divisor = met.size * met.n_arms, bandit.exploration * bandit.exploration
    before = bandit.prior_strength * bandit.prior_mean
    prior = np.repeat([before, bandit.prior_strength - before], size)
    seen, posterior = np.zeros(2 * size), prior / divisor
    a, b = posterior.reshape(2, met.size, met.n_arms)
    failed, at = np.empty(met.size, np.int64), np.empty(met.size, np.int64)
    count, base = np.empty(met.size), np.empty(met.size)

    def learn(_: Ints, place: Ints, reward: Array) -> None:
        np.less_equal(reward, bandit.threshold, failed, casting="unsafe")
        np.multiply(failed, size, at)
        np.add(at, place, at)
        seen.take(at, out=count, mode="clip")
        np.add(count, 1.0, count)
        seen[at] = count
        np.add(prior.take(at, out=base, mode="clip"), count, count)
        if divisor != 1.0:
            np.divide(count, divisor, count)
        posterior[at] = count

    return Twin(lambda _: rng.beta(a, b), learn)


def student_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:
    """Twin of thompson_nig: statistics and posteriors, [3, R * A] each."""
    stats, none = np.zeros((3, met.size * met.n_arms)), np.zeros((met.size, met.n_arms))
    posterior = np.stack(student_posterior(none, none, none, bandit))
    flat = posterior.reshape(3, -1)

    def score(_: int) -> Array:
        location, scale, df = posterior
        return np.asarray(location + scale * rng.standard_t(df))

    def learn(_: Ints, place: Ints, reward: Array) -> None:
        now = stats[:, place] + np.stack([np.ones_like(reward), reward, reward * reward])
        stats[:, place] = now
        flat[:, place] = np.stack(student_posterior(now[0], now[1], now[2], bandit))

    return Twin(score, learn)


def lin_ucb_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:  # noqa: ARG001 - as the others
    """Twin of lin_ucb."""
    return _linear_loop(met, bandit, bandit.exploration, lambda width: width)


def lin_thompson_loop(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Twin:
    """Twin of lin_thompson: one standard normal draw an arm, replication by replication."""
    shape = met.size, met.n_arms
    return _linear_loop(
        met, bandit, noise(bandit), lambda width: np.multiply(width, rng.standard_normal(shape).T, width)
    )


def _linear_loop(met: Feed, bandit: Bandit, wide: float, drawn: Callable[[Array], Array]) -> Twin:
    """Twin of the linear learners: keeps each arm's inverse by Sherman and Morrison's formula.

    Arms first and replications last, so that each step is one long loop.

    Args:
      wide: multiplies the width sqrt(x' inv(A) x). drawn: widths [A, R], which it may write into, to what is added.
    """
    d, size = met.features.shape[1], met.size
    inverse = np.zeros((met.n_arms, d, d, size))  # symmetric to the last bit, so that its rows are its columns
    for i in range(d):
        inverse[:, i, i] = 1.0 / bandit.prior_strength
    moment, solved, part = (np.zeros((met.n_arms, d, size)) for _ in range(3))
    x, square, mean, paid = np.empty((d, size)), *(np.empty((met.n_arms, size)) for _ in range(3))
    outer, columns = np.empty((d, d, size)), np.ascontiguousarray(met.features.T)

    def score(t: int) -> Array:
        np.take(columns, met.row(t), axis=1, out=x, mode="clip")
        np.multiply(inverse[:, 0], x[0], out=solved)
        for i in range(1, d):
            np.multiply(inverse[:, i], x[i], out=part)
            np.add(solved, part, out=solved)
        np.add.reduce(np.multiply(solved, x, out=part), axis=1, out=square)
        np.add.reduce(np.multiply(moment, solved, out=part), axis=1, out=mean)
        width = drawn(wide * np.sqrt(np.maximum(square, 0.0)))
        return np.ascontiguousarray((mean + width).T)

    def learn(arm: Ints, _: Ints, reward: Array) -> None:
        mine = arm == np.arange(met.n_arms)[:, None]
        np.multiply(solved, np.where(mine, np.sqrt(1.0 / (1.0 + square)), 0.0)[:, None], out=solved)
        np.multiply(mine, reward, out=paid)
        np.add(moment, np.multiply(paid[:, None], x, out=part), out=moment)
        for number in range(met.n_arms):  # each stays in the cache
            np.multiply(solved[number][:, None], solved[number], out=outer)
            np.subtract(inverse[number], outer, out=inverse[number])

    return Twin(score, learn)
