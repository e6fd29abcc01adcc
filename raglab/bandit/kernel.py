"""Compiled kernels of the bandits (algebra): the simulation loops in numba.

A generator draws in a compiled loop what it draws in NumPy, in the order in which it is asked:
rounds, then replications, then arms. Logarithms come ready from NumPy, whose last digits are its
own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raglab.bandit.environments import Arms, Array, Feed
from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.bandit.scores import noise
from raglab.loops.compiled import bit_draws, compile_kernel

# numba types the arrays for itself, and one loop says a policy whole.
# ruff: noqa: ANN401, C901, FBT001, PLR0912

THIRD = 1.0 / 3.0
CLOSE = 1e-14  # share of a score and its bound, beyond all rounding of either
_uniform, _normal, _standard_gamma, _beta, _student = bit_draws()


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


@compile_kernel(inline="always", checked=False)
def _best_bound(counts: Any, mean: Any, r: int, twice: float, width: float) -> int:
    """Lowest arm with the best score of one replication."""
    arm, best = 0, -np.inf
    for a in range(len(mean)):
        score = width * np.sqrt(twice / max(counts[a, r], 1.0)) + mean[a, r]
        arm = a if score > best else arm
        best = max(score, best)
    return arm


@compile_kernel(checked=False)
def _best_arms(
    t: int,
    case: Any,
    mask: Any,
    rows: int,
    level: float,
    width: float,
    bounds: bool,
    counts: Any,
    mean: Any,
    root: Any,
    best: Any,
    second: Any,
    first: Any,
) -> None:
    """Fill in the lowest available arm with the best score of each replication, in one round."""
    masked, n_arms, size = len(mask) > 0, len(counts), len(first)
    # the score is made and compared in one pass: a stored one would cost more memory than the
    # choice
    twice, scale = 2.0 * level, width * np.sqrt(level)
    best[:], second[:] = -np.inf, -np.inf
    first[:] = 0
    for a in range(n_arms):
        n, means, roots = counts[a], mean[a], root[a]
        # what is rare stands apart, so that the common loop has no branch and runs several
        # replications at once
        if masked or not bounds:
            for r in range(size):
                if not masked or mask[_row(t, r, case, rows), a]:
                    score = (
                        width * np.sqrt(twice / max(n[r], 1.0)) + means[r] if bounds else means[r]
                    )
                    first[r] = a if score > best[r] else first[r]
                    best[r] = max(score, best[r])
        else:
            for r in range(size):
                score, most = scale * roots[r] + means[r], best[r]
                better = score > most
                less = most if better else score
                first[r] = a if better else first[r]
                best[r] = score if better else most
                second[r] = max(second[r], less)
    if bounds and not masked:
        # a score with its root at hand is off by some last digits: where two are that close,
        # all are made in full
        n_close = 0
        for r in range(size):
            n_close += 0 if best[r] - second[r] > CLOSE * best[r] else 1
        if n_close > 0:
            for r in range(size):
                if not best[r] - second[r] > CLOSE * best[r]:
                    first[r] = _best_bound(counts, mean, r, twice, width)


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
    """Arms of ucb1, or without bounds of epsilon_greedy, whose uniform choices are given.

    Arms first and replications last, so that the scores of several replications are made at once.
    """
    n_arms, size = reward.shape[1], out.shape[1]
    # an infinite mean puts an arm first until its first reward; its bound divides by 1, so that no
    # arm is NaN
    total, counts, mean = (
        np.zeros((n_arms, size)),
        np.zeros((n_arms, size)),
        np.full((n_arms, size), np.inf),
    )
    # of 2 / n, which changes with a reward and not with a round
    roots_of = np.sqrt(2.0 / np.maximum(np.arange(len(out) + 1), 1))
    root = np.full((n_arms, size), roots_of[0])
    best, second = np.empty(size), np.empty(size)
    paid, first, place = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
    flat_counts, flat_total, flat_mean, flat_root = (
        counts.ravel(),
        total.ravel(),
        mean.ravel(),
        root.ravel(),
    )
    has_random, tabled, drifts = (
        len(at_random) > 0,
        len(case) > 0,
        len(reward) > 1,
    )
    for t in range(len(out)):
        _best_arms(
            t,
            case,
            mask,
            len(reward),
            level[t],
            width,
            bounds,
            counts,
            mean,
            root,
            best,
            second,
            first,
        )
        # uniform choices of epsilon_greedy were drawn beforehand, in the order of the NumPy loop
        if has_random:
            for r in range(size):
                first[r] = at_random[t, r] if at_random[t, r] >= 0 else first[r]
        # the reward of the arm taken: from a table's row, or 1 where the round's uniform is below
        # its mean
        if tabled:
            for r in range(size):
                paid[r] = reward[case[t, r], first[r]]
        else:
            chances, now = uniform[t], reward[t if drifts else 0]
            for r in range(size):
                paid[r] = 1.0 if chances[r] < now[np.uint64(first[r])] else 0.0
        for r in range(size):
            out[t, r], place[r] = first[r], first[r] * size + r
        for r in range(size):
            # without a sign, so that it is not looked at for being counted from the end
            at = np.uint64(place[r])
            count, won = flat_counts[at] + 1.0, flat_total[at] + paid[r]
            flat_counts[at], flat_total[at] = count, won
            flat_mean[at], flat_root[at] = won / count, roots_of[np.uint64(np.int64(count))]


@compile_kernel(inline="always")
def _gamma(bits: Any, shape: float, low: float, steep: float) -> float:
    """One gamma draw, that which `rng.standard_gamma(shape)` makes, with its constants at hand.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables (2000).
    """
    if shape <= 1.0:
        return float(_standard_gamma(bits, shape))
    while True:
        x = _normal(bits)
        root = 1.0 + steep * x
        while root <= 0.0:
            x = _normal(bits)
            root = 1.0 + steep * x
        cube = root * root * root
        u = _uniform(bits)
        if u < 1.0 - 0.0331 * (x * x) * (x * x):
            return float(low * cube)
        if np.log(u) < 0.5 * x * x + low * (1.0 - cube + np.log(cube)):
            return float(low * cube)


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
    shape = np.empty((2, size, n_arms))
    # each arm's two gamma shapes, with the constants of their draws: one of them changes a round
    shape[0], shape[1] = before / divisor, rest / divisor
    low = shape - THIRD
    steep = 1.0 / np.sqrt(9.0 * np.maximum(low, THIRD))
    for t in range(len(out)):
        for r in range(size):
            for a in range(n_arms):
                first, second = shape[0, r, a], shape[1, r, a]
                # where both are small, NumPy draws a Beta by another method, and in another order
                # of draws
                if first <= 1.0 and second <= 1.0:
                    draw[r, a] = _beta(bits, first, second)
                else:
                    won = _gamma(bits, first, low[0, r, a], steep[0, r, a])
                    draw[r, a] = won / (won + _gamma(bits, second, low[1, r, a], steep[1, r, a]))
            row = _row(t, r, case, len(reward))
            arm = _best_arm(draw, r, row, mask)
            out[t, r] = arm
            side = 0 if _arm_reward(t, r, row, arm, reward, uniform) > threshold else 1
            counts[side, r, arm] += 1.0
            shape[side, r, arm] = ((before if side == 0 else rest) + counts[side, r, arm]) / divisor
            low[side, r, arm] = shape[side, r, arm] - THIRD
            steep[side, r, arm] = 1.0 / np.sqrt(9.0 * max(low[side, r, arm], THIRD))


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


@compile_kernel(inline="always", checked=False)
def _count_reward(
    gram: Any,
    moment: Any,
    n: Any,
    r: int,
    arm: int,
    x: Any,
    reward: Any,
    row: int,
    mu: float,
    sign: float,
) -> None:
    """Add a reward to an arm's sums, or take it out.

    No digit of what was taken out stays where nothing is left.
    """
    paid = sign * (reward[row, arm] - mu)
    n[r, arm] += sign
    for i in range(len(x)):
        moment[r, arm, i] = moment[r, arm, i] + paid * x[i] if n[r, arm] != 0.0 else 0.0
        for j in range(len(x)):
            gram[r, arm, i, j] = (
                gram[r, arm, i, j] + sign * (x[i] * x[j]) if n[r, arm] != 0.0 else 0.0
            )


@compile_kernel(inline="always", checked=False)
def _fade_sums(gram: Any, moment: Any, r: int, discount: float) -> None:
    """Discount the sums of all arms of one replication."""
    for a in range(moment.shape[1]):
        for i in range(moment.shape[2]):
            moment[r, a, i] *= discount
            for j in range(moment.shape[2]):
                gram[r, a, i, j] *= discount


@compile_kernel(checked=False)
def _forgetful_arms(
    out: Any,
    case: Any,
    reward: Any,
    mask: Any,
    features: Any,
    rng: Any,
    first_gram: Any,
    first_moment: Any,
    mu: float,
    ridge: float,
    width: float,
    draws: bool,
    discount: float,
    window: int,
) -> None:
    """Arms of lin_ucb or lin_thompson that discount, or whose window is above 0.

    first_gram is without the ridge.

    What is forgotten is not the ridge, so that no inverse can be carried on: each score is solved
    for by Cholesky.
    """
    bits = rng.bit_generator
    n_arms, size, d = reward.shape[1], out.shape[1], features.shape[1]
    gram, moment, n = (
        np.empty((size, n_arms, d, d)),
        np.empty((size, n_arms, d)),
        np.zeros((size, n_arms)),
    )
    gram[:], moment[:] = first_gram, first_moment
    lower, first, second, chance = np.zeros((d, d)), np.empty(d), np.empty(d), np.ones(n_arms)
    for t in range(len(out)):
        for r in range(size):
            if draws:
                for a in range(n_arms):
                    chance[a] = _normal(bits)
            row = int(case[t, r])
            x = features[row]
            arm, best = 0, -np.inf
            for a in range(n_arms):
                if len(mask) > 0 and not mask[row, a]:
                    continue
                # with lower the root of the design, first solves for x and second for the moment:
                # their products are x' inv(A) x and moment' inv(A) x
                square, mean = 0.0, 0.0
                for i in range(d):
                    for j in range(i + 1):
                        rest = gram[r, a, i, j] + (ridge if i == j else 0.0)
                        for k in range(j):
                            rest -= lower[i, k] * lower[j, k]
                        lower[i, j] = np.sqrt(rest) if i == j else rest / lower[j, j]
                    x_rest, m_rest = x[i], moment[r, a, i]
                    for k in range(i):
                        x_rest -= lower[i, k] * first[k]
                        m_rest -= lower[i, k] * second[k]
                    first[i], second[i] = x_rest / lower[i, i], m_rest / lower[i, i]
                    square += first[i] * first[i]
                    mean += first[i] * second[i]
                score = mu + mean + width * np.sqrt(max(square, 0.0)) * chance[a]
                if score > best:
                    arm, best = a, score
            out[t, r] = arm
            # the round is counted first: all sums fade, or the round that leaves the window is
            # taken out
            if discount < 1.0:
                _fade_sums(gram, moment, r, discount)
            if window > 0 and t >= window:
                old = int(case[t - window, r])
                _count_reward(
                    gram,
                    moment,
                    n,
                    r,
                    int(out[t - window, r]),
                    features[old],
                    reward,
                    old,
                    mu,
                    -1.0,
                )
            _count_reward(gram, moment, n, r, arm, x, reward, row, mu, 1.0)


class _Block(NamedTuple):
    """Arrays of a block as the loops read them.

    What is not there is empty, so that numba has one type for it.
    """

    out: Arms  # [T, R], which the loop fills
    case: Any
    uniform: Any
    reward: Any
    mask: Any


def played(
    met: Feed, bandit: Bandit, rng: np.random.Generator, initial: State | None = None
) -> Arms:
    """Arms [T, R] that a plain learner with a compiled loop chooses: that which its entry names.

    Args:
      initial: state of one linear learner that every replication begins with.
    """
    block = _Block(
        np.empty((met.rounds, met.size), np.int8),
        np.zeros((0, 0), np.int32) if met.case is None else met.case,
        np.zeros((0, 0)) if met.uniform is None else met.uniform,
        np.ascontiguousarray(met.reward),
        np.zeros((0, 0), np.bool_) if met.mask is None else np.ascontiguousarray(met.mask),
    )
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
        _regress_arms(met, block, bandit, rng, initial, draws=loop == "lin_thompson")
    return block.out


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
    rows = (
        met.case
        if met.case is not None
        else np.arange(met.rounds)[:, None]
        if len(open_) > 1
        else 0
    )
    rows = rows if len(open_) > 1 else 0
    n_open = open_.sum(axis=-1)[rows]
    place = np.minimum(chance / max(bandit.epsilon, 1e-300) * n_open, n_open - 1).astype(np.int64)
    in_order = np.argsort(~open_, axis=-1, kind="stable").astype(np.int8)  # available arms first
    return np.where(chance < bandit.epsilon, in_order[rows, place], np.int8(-1))


def _regress_arms(
    met: Feed,
    block: _Block,
    bandit: Bandit,
    rng: np.random.Generator,
    initial: State | None,
    *,
    draws: bool,
) -> None:
    """Fill in the arms [T, R] of a linear learner."""
    features = np.ascontiguousarray(met.features)
    width = noise(bandit) if draws else float(bandit.exploration)
    d, mu, ridge = features.shape[1], float(bandit.prior_mean), float(bandit.prior_strength)
    world = (block.out, block.case, block.reward, block.mask, features, rng)
    gram, moment = np.zeros((met.n_arms, d, d)), np.zeros((met.n_arms, d))
    if initial is not None:
        gram, moment = np.ascontiguousarray(initial.gram), np.ascontiguousarray(initial.moment)
    if bandit.discount < 1.0 or bandit.window:
        memory = float(bandit.discount), int(bandit.window)
        _forgetful_arms(*world, gram, moment, mu, ridge, width, draws, *memory)
        return
    # before a reward the design is the ridge alone
    first = np.tile(np.eye(d) / ridge, (met.n_arms, 1, 1))
    inverse = first if initial is None else np.linalg.inv(gram + ridge * np.eye(d))
    _linear_arms(*world, inverse, moment, mu, width, draws)
