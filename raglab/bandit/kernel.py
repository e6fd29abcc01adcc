"""Compiled kernels of the bandits (algebra): the simulation loops in numba.

A generator draws in a compiled loop what it draws in NumPy, in the order in which it is asked:
rounds, then replications, then arms. Logarithms come ready from NumPy, whose last digits are its
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raglab.bandit.environments import Arms, Array, Feed
from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.bandit.scores import noise
from raglab.loops.compiled import bit_draws, compile_kernel

# numba types the arrays for itself, and one loop says a policy whole.
# ruff: noqa: ANN401, C901, FBT001, PLR0912

_, _normal, _, _beta, _student = bit_draws()


@compile_kernel(inline="always")
def _row(t: int, r: int, case: Any, rows: int) -> int:
    """Row of the tables."""
    if len(case) > 0:
        return int(case[t, r])
    return t if rows > 1 else 0


@compile_kernel(inline="always")
def _arm_reward(t: int, r: int, row: int, arm: int, reward: Any, uniform: Any) -> float:
    """Reward of an arm: read from a table, or 1 where the uniform is below its mean."""
    if len(uniform) > 0:
        return 1.0 if uniform[t, r] < reward[row, arm] else 0.0
    return float(reward[row, arm])


@compile_kernel(inline="always")
def _best_arm(score: Any, r: int, row: int, mask: Any) -> int:
    """Lowest of the available arms with the best score."""
    arm, best = 0, -np.inf
    for a in range(score.shape[1]):
        mine = score[r, a] if len(mask) == 0 or mask[row, a] else -np.inf
        arm = a if mine > best else arm
        best = max(best, mine)
    return arm


@compile_kernel(checked=False)
def _ucb_arms(
    out: Any,
    case: Any,
    uniform: Any,
    reward: Any,
    mask: Any,
    at_random: Any,
    level: Any,
    width: float,
    bounds: bool,
) -> None:
    """Arms of ucb1, or without bounds of epsilon_greedy, whose uniform choices are given."""
    n_arms, size = reward.shape[1], out.shape[1]
    # an infinite mean puts an arm first until its first reward; its bound divides by 1, so that no
    # arm is NaN
    total, n = np.zeros((size, n_arms)), np.zeros((size, n_arms))
    mean, score = np.full((size, n_arms), np.inf), np.empty((size, n_arms))
    for t in range(len(out)):
        for r in range(size):
            for a in range(n_arms):
                score[r, a] = mean[r, a]
                if bounds:
                    score[r, a] += width * np.sqrt(2.0 * level[t] / max(n[r, a], 1.0))
            row = _row(t, r, case, len(reward))
            arm = _best_arm(score, r, row, mask)
            # uniform choices were drawn beforehand, in the order of the NumPy loop
            if len(at_random) > 0 and at_random[t, r] >= 0:
                arm = at_random[t, r]
            out[t, r] = arm
            n[r, arm] += 1.0
            total[r, arm] += _arm_reward(t, r, row, arm, reward, uniform)
            mean[r, arm] = total[r, arm] / n[r, arm]


@compile_kernel(checked=False)
def _thompson_beta(
    out: Any,
    case: Any,
    uniform: Any,
    reward: Any,
    mask: Any,
    rng: Any,
    before: float,
    rest: float,
    divisor: float,
    threshold: float,
) -> None:
    """Arms of thompson_beta; before, rest: prior successes and failures."""
    bits = rng.bit_generator
    n_arms, size = reward.shape[1], out.shape[1]
    draw, counts = np.empty((size, n_arms)), np.zeros((2, size, n_arms))
    for t in range(len(out)):
        for r in range(size):
            for a in range(n_arms):
                won, lost = before + counts[0, r, a], rest + counts[1, r, a]
                draw[r, a] = _beta(bits, won / divisor, lost / divisor)
            row = _row(t, r, case, len(reward))
            arm = _best_arm(draw, r, row, mask)
            out[t, r] = arm
            side = 0 if _arm_reward(t, r, row, arm, reward, uniform) > threshold else 1
            counts[side, r, arm] += 1.0


@compile_kernel(checked=False)
def _thompson_nig(
    out: Any,
    case: Any,
    uniform: Any,
    reward: Any,
    mask: Any,
    rng: Any,
    mu: float,
    strength: float,
    variance: float,
    exploration: float,
) -> None:
    """Arms of thompson_nig."""
    bits = rng.bit_generator
    n_arms, size = reward.shape[1], out.shape[1]
    n, total, square = np.zeros((size, n_arms)), np.zeros((size, n_arms)), np.zeros((size, n_arms))
    draw, location = np.empty((size, n_arms)), np.full((size, n_arms), strength * mu / strength)
    scale = np.full(
        (size, n_arms), exploration * np.sqrt(variance * strength / strength / strength)
    )
    for t in range(len(out)):
        for r in range(size):
            for a in range(n_arms):
                draw[r, a] = location[r, a] + scale[r, a] * _student(bits, strength + n[r, a])
            row = _row(t, r, case, len(reward))
            arm = _best_arm(draw, r, row, mask)
            out[t, r] = arm
            paid = _arm_reward(t, r, row, arm, reward, uniform)
            n[r, arm] += 1.0
            total[r, arm] += paid
            square[r, arm] += paid * paid
            n_rewards, added = n[r, arm], total[r, arm]
            count = strength + n_rewards
            scatter = max(square[r, arm] - added * added / n_rewards, 0.0)
            shift = added - n_rewards * mu
            between = strength * shift * shift / (n_rewards * count)
            location[r, arm] = (strength * mu + added) / count
            scale[r, arm] = exploration * np.sqrt(
                (variance * strength + scatter + between) / count / count
            )


@compile_kernel(checked=False)
def _linear_arms(
    out: Any,
    case: Any,
    reward: Any,
    mask: Any,
    features: Any,
    rng: Any,
    first_inverse: Any,
    first_moment: Any,
    mu: float,
    width: float,
    draws: bool,
) -> None:
    """Arms of lin_ucb, or of lin_thompson, which draws; mu is the prior mean.

    first_inverse, first_moment: of each arm's design and of its sums before the first round, [A, d,
    d] and [A, d].
    """
    bits = rng.bit_generator
    n_arms, size, d = reward.shape[1], out.shape[1], features.shape[1]
    inverse, moment = np.empty((size, n_arms, d, d)), np.empty((size, n_arms, d))
    inverse[:], moment[:] = first_inverse, first_moment
    solved, square, chance = np.empty((n_arms, d)), np.empty(n_arms), np.ones(n_arms)
    for t in range(len(out)):
        for r in range(size):
            # all arms draw, masked ones too: the generator's order must not hang on the mask
            if draws:
                for a in range(n_arms):
                    chance[a] = _normal(bits)
            row = int(case[t, r])
            x = features[row]
            arm, best = 0, -np.inf
            for a in range(n_arms):
                if len(mask) > 0 and not mask[row, a]:
                    continue
                # solved is the inverse times x: it gives mean and width now, and the update of the
                # arm that is taken
                mine = solved[a]
                for i in range(d):
                    mine[i] = inverse[r, a, 0, i] * x[0]
                for j in range(1, d):
                    for i in range(d):
                        mine[i] += inverse[r, a, j, i] * x[j]
                mean, square[a] = 0.0, 0.0
                for i in range(d):
                    square[a] += mine[i] * x[i]
                    mean += moment[r, a, i] * mine[i]
                score = mu + mean + width * np.sqrt(max(square[a], 0.0)) * chance[a]
                # only a better score counts, so that of equal ones the lowest arm is taken
                if score > best:
                    arm, best = a, score
            out[t, r] = arm
            # Sherman and Morrison: the inverse loses an outer product, and is never inverted anew
            paid, mine = reward[row, arm] - mu, solved[arm]
            factor = np.sqrt(1.0 / (1.0 + square[arm]))
            for i in range(d):
                mine[i] *= factor
                moment[r, arm, i] += paid * x[i]
            for i in range(d):
                for j in range(d):
                    inverse[r, arm, i, j] -= mine[i] * mine[j]


def played(
    met: Feed, bandit: Bandit, rng: np.random.Generator, initial: State | None = None
) -> Arms:
    """Arms [T, R] that a plain learner with a compiled loop chooses: that which its entry names.

    Args:
      initial: state of one linear learner that every replication begins with.
    """
    out = np.empty((met.rounds, met.size), np.int8)
    # what is not there is empty, so that numba has one type for it
    case = np.zeros((0, 0), np.int32) if met.case is None else met.case
    uniform = np.zeros((0, 0)) if met.uniform is None else met.uniform
    reward = np.ascontiguousarray(met.reward)
    mask = np.zeros((0, 0), np.bool_) if met.mask is None else np.ascontiguousarray(met.mask)
    block = (out, case, uniform, reward, mask)
    exploration, strength = float(bandit.exploration), float(bandit.prior_strength)
    mu, variance = float(bandit.prior_mean), float(bandit.prior_variance)
    loop = LEARNERS[bandit.algorithm].compiled
    if loop in {"greedy", "ucb1"}:
        at_random = exploration_arms(met, bandit, rng)
        drawn = np.zeros((0, 0), np.int8) if at_random is None else at_random
        _ucb_arms(*block, drawn, logs(met.rounds), exploration, loop == "ucb1")
    elif loop == "beta":
        before, threshold = strength * mu, float(bandit.threshold)
        _thompson_beta(*block, rng, before, strength - before, exploration * exploration, threshold)
    elif loop == "student":
        _thompson_nig(*block, rng, mu, strength, variance, exploration)
    else:
        draws, features = loop == "lin_thompson", np.ascontiguousarray(met.features)
        width, d = noise(bandit) if draws else exploration, features.shape[1]
        # before a reward the design is the ridge alone
        inverse: Any = np.tile(np.eye(d) / strength, (met.n_arms, 1, 1))
        moment: Array = np.zeros((met.n_arms, d))
        if initial is not None:
            inverse = np.linalg.inv(np.ascontiguousarray(initial.gram) + strength * np.eye(d))
            moment = np.ascontiguousarray(initial.moment)
        _linear_arms(out, case, reward, mask, features, rng, inverse, moment, mu, width, draws)
    return out


def logs(rounds: int) -> Array:
    """Ln of the rewards before each round, [T]; 0 before the first two."""
    return np.log(np.maximum(np.arange(rounds, dtype=np.float64), 1.0))


def exploration_arms(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms | None:
    """Arms [T, R] that a learner with an epsilon chooses uniformly, -1 where it does not.

    None for other learners.
    """
    if not LEARNERS[bandit.algorithm].uniform:
        return None
    chance = rng.random((met.rounds, met.size))
    open_ = np.ones((1, met.n_arms), np.bool_) if met.mask is None else met.mask
    by_round = np.arange(met.rounds)[:, None] if met.case is None else met.case
    rows = by_round if len(open_) > 1 else 0
    n_open = open_.sum(axis=-1)[rows]
    place = np.minimum(chance / max(bandit.epsilon, 1e-300) * n_open, n_open - 1).astype(np.int64)
    in_order = np.argsort(~open_, axis=-1, kind="stable").astype(np.int8)  # available arms first
    return np.where(chance < bandit.epsilon, in_order[rows, place], np.int8(-1))
