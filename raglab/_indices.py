"""What a learner thinks of each arm: upper bounds, and posteriors that Thompson sampling draws from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import Bandit, State, Stats

Array = NDArray[np.float64]
NEWTON = 10  # steps of kl_upper; from its start, seven reach the last digits (tests/test_bandit.py)
PULLED = np.finfo(np.float64).max  # score of an arm without a reward yet that others were pulled less than


class Beta(NamedTuple):
    """Posterior of each arm's success rate, [..., A]."""

    a: Array
    b: Array


class Student(NamedTuple):
    """Posterior of each arm's mean reward, a shifted t distribution, [..., A]."""

    location: Array
    scale: Array
    df: Array


class Normal(NamedTuple):
    """Posterior of each arm's reward in this context, [..., A]."""

    mean: Array
    sd: Array


def pooled(state: State, bandit: Bandit) -> Stats:
    """Statistics [..., A] with the history's pseudo-counts."""
    if bandit.history is None:
        return Stats(state.n, state.total, state.square)
    n, total, square = bandit.history
    return Stats(state.n + n, state.total + total, state.square + square)


def beta(state: State, bandit: Bandit) -> Beta:
    """Posterior of thompson_beta: prior counts plus successes and failures, over exploration squared (rule S4.5)."""
    n, total, _ = pooled(state, bandit)
    before, spread = bandit.prior_strength * bandit.prior_mean, bandit.exploration * bandit.exploration
    failures = np.maximum(n - total, 0.0)  # a discounted 1 - 1 may fall a last digit below 0
    return Beta((before + total) / spread, (bandit.prior_strength - before + failures) / spread)


def student(state: State, bandit: Bandit) -> Student:
    """Posterior of thompson_nig: of the mean, with the variance integrated out.

    Source: Murphy, Conjugate Bayesian analysis of the Gaussian distribution (2007), section 6; alpha0 is half of
      kappa0, so that prior_strength counts the pseudo-observations of both.
    """
    return student_of(*pooled(state, bandit), bandit)


def student_of(n: Array, total: Array, square: Array, bandit: Bandit) -> Student:
    """Posterior of thompson_nig from statistics of any shape."""
    strength, mu = bandit.prior_strength, bandit.prior_mean
    count = strength + n
    location = (strength * mu + total) / count
    scatter = square - total * total / np.maximum(n, 1e-300)
    shift = total - n * mu
    between = strength * shift * shift / (np.maximum(n, 1e-300) * count)
    twice_beta = bandit.prior_variance * strength + np.maximum(scatter, 0.0) + between
    return Student(location, bandit.exploration * np.sqrt(twice_beta / count / count), count)


def normal(state: State, bandit: Bandit, context: Array) -> Normal:
    """Posterior of a linear arm's expected reward: ridge regression, disjoint arms.

    Args:
      context: [..., d].

    Source: Li et al., A contextual-bandit approach to personalized news article recommendation (2010), algorithm 1.
    """
    ridge = bandit.prior_strength * np.eye(context.shape[-1])
    x = context[..., None, :]
    solved = np.linalg.solve(state.gram + ridge, np.broadcast_to(x, state.moment.shape)[..., None])[..., 0]
    mean = (state.moment * solved).sum(axis=-1)
    return Normal(mean, np.sqrt(np.maximum((x * solved).sum(axis=-1), 0.0)))


def spread(bandit: Bandit) -> float:
    """What multiplies the width sqrt(x' inv(A) x) of a linear arm."""
    noise = np.sqrt(bandit.prior_variance) if bandit.policy == "lin_thompson" else 1.0
    return float(bandit.exploration * noise)


def index(state: State, bandit: Bandit, mask: NDArray[np.bool_] | None, context: Array) -> Array:
    """Scores [..., A] of a policy that does not draw; among available arms the best is chosen.

    Arms without a reward come first: of them those that were pulled least.
    """
    if bandit.policy == "lin_ucb":
        found = normal(state, bandit, context)
        return found.mean + spread(bandit) * found.sd
    n, total, _ = pooled(state, bandit)
    unseen = n <= 0.0
    counted = np.where(unseen, 1.0, n)
    mean = total / counted
    if bandit.policy == "epsilon_greedy":
        score = mean
    else:
        level = np.log(np.maximum(n.sum(axis=-1), 1.0))[..., None]
        if bandit.policy == "ucb1":
            score = mean + bandit.exploration * np.sqrt(2.0 * level / counted)
        else:
            score = kl_upper(mean, bandit.exploration * bandit.exploration * level / counted)
    return _unseen_first(score, unseen, state.pulls, mask) if unseen.any() else score


def _unseen_first(
    score: Array, unseen: NDArray[np.bool_], pulls: NDArray[np.int64], mask: NDArray[np.bool_] | None
) -> Array:
    open_ = unseen if mask is None else unseen & mask
    least = np.where(open_, pulls, np.iinfo(np.int64).max).min(axis=-1, keepdims=True)
    return np.where(unseen, np.where(pulls <= least, np.inf, PULLED), score)


def kl_upper(mean: Array, level: Array) -> Array:
    """Largest q with kl(mean, q) <= level, of Bernoulli divergences, in [mean, 1].

    Newton's method from above: kl is convex in q, so that no step passes the root.

    Args:
      mean: [...] in [0, 1]. level: [...] >= 0; ln(t) / n in KL-UCB.

    Source: Garivier and Cappe, The KL-UCB algorithm for bounded stochastic bandits and beyond (2011), with c = 0.
    """
    low = 1.0 - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(mean > 0.0, mean * np.log(mean), 0.0) + np.where(low > 0.0, low * np.log(low), 0.0)
        pinsker = mean + np.sqrt(0.5 * level)
        near_one = -np.expm1((entropy - level) / low)
        q = np.minimum(np.minimum(pinsker, near_one), 1.0)
        for _ in range(NEWTON):
            one = np.where(mean > 0.0, mean * np.log(q), 0.0)
            other = np.where(low > 0.0, low * np.log1p(-q), 0.0)
            step = (entropy - one - other - level) * q * (1.0 - q) / (q - mean)
            q = np.where((q > mean) & (step > 0.0), np.maximum(q - step, mean), q)
    return np.where(low > 0.0, q, 1.0)


def drawn(state: State, bandit: Bandit, rng: np.random.Generator, context: Array) -> Array:
    """One draw from the posterior of each arm, [..., A]; replications, then arms, in the generator's order."""
    if bandit.policy == "thompson_beta":
        return rng.beta(*beta(state, bandit))
    if bandit.policy == "thompson_nig":
        location, scale, df = student(state, bandit)
        return location + scale * rng.standard_t(df)
    mean, sd = normal(state, bandit, context)
    return mean + spread(bandit) * sd * rng.standard_normal(mean.shape)
