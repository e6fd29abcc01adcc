"""Scores of arms (algebra): posteriors and upper bounds for learners' indices and draws (S4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import Bandit, State, Stats

Array = NDArray[np.float64]
Mask = NDArray[np.bool_] | None

# steps of kl_upper; from its start, seven reach the last digits (tests/test_bandit_learner.py)
NEWTON = 10
# score of an arm without a reward yet that others were pulled less than
PULLED = np.finfo(np.float64).max


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


def pooled_stats(state: State, bandit: Bandit) -> Stats:
    """Statistics [..., A] with the history's pseudo-counts."""
    if bandit.history is None:
        return Stats(state.n, state.total, state.square)
    n, total, square = bandit.history
    return Stats(state.n + n, state.total + total, state.square + square)


def beta(state: State, bandit: Bandit) -> Beta:
    """Posterior of thompson_beta.

    Prior counts plus successes and failures, over exploration squared (rule S4.5).
    """
    n, total, _ = pooled_stats(state, bandit)
    before, spread = (
        bandit.prior_strength * bandit.prior_mean,
        bandit.exploration * bandit.exploration,
    )
    failures = np.maximum(n - total, 0.0)  # a discounted 1 - 1 may fall a last digit below 0
    return Beta((before + total) / spread, (bandit.prior_strength - before + failures) / spread)


def student(state: State, bandit: Bandit) -> Student:
    """Posterior of thompson_nig: of the mean, with the variance integrated out.

    Source: Murphy, Conjugate Bayesian analysis of the Gaussian distribution (2007), section 6;
      alpha0 is half of kappa0, so that prior_strength counts the pseudo-observations of both.
    """
    return student_posterior(*pooled_stats(state, bandit), bandit)


def student_posterior(n: Array, total: Array, square: Array, bandit: Bandit) -> Student:
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
    """Posterior of a linear arm's expected reward.

    Ridge regression of rewards less prior_mean, disjoint arms.

    What an arm without a reward is expected to pay is prior_mean, in every context.

    Args:
      context: [..., d].

    Source: Li et al., A contextual-bandit approach to personalized news article recommendation
      (2010), algorithm 1.
    """
    ridge = bandit.prior_strength * np.eye(context.shape[-1])
    x = context[..., None, :]
    solved = np.linalg.solve(state.gram + ridge, np.broadcast_to(x, state.moment.shape)[..., None])[
        ..., 0
    ]
    mean = bandit.prior_mean + (state.moment * solved).sum(axis=-1)
    return Normal(mean, np.sqrt(np.maximum((x * solved).sum(axis=-1), 0.0)))


def noise(bandit: Bandit) -> float:
    """What multiplies sqrt(x' inv(A) x) where lin_thompson draws.

    Exploration, and the deviation of its noise.
    """
    return float(bandit.exploration * np.sqrt(bandit.prior_variance))


def index_of_means(
    state: State,
    bandit: Bandit,
    mask: Mask,
    bound: Callable[[Array, Array, Array], Array] | None = None,
) -> Array:
    """Index that starts from each arm's mean reward, [..., A]; arms without a reward come first.

    Args:
      bound: (mean, rewards counted, ln of the rewards of all arms) to the index; None: the mean
        itself. An arm without a reward counts one, so that nothing is divided by 0: its index is
        replaced afterwards.
    """
    n, total, _ = pooled_stats(state, bandit)
    unseen = n <= 0.0
    counted = np.where(unseen, 1.0, n)
    score = total / counted
    # rewards that were counted stand for t: what a discount forgets, ln(t) forgets as well
    if bound is not None:
        score = bound(score, counted, np.log(np.maximum(n.sum(axis=-1), 1.0))[..., None])
    return _prefer_unpulled(score, unseen, state.pulls, mask) if unseen.any() else score


def _prefer_unpulled(
    score: Array, unseen: NDArray[np.bool_], pulls: NDArray[np.int64], mask: Mask
) -> Array:
    """Scores in which, of the arms without a reward, those that were pulled least are infinite."""
    open_ = unseen if mask is None else unseen & mask
    least = np.where(open_, pulls, np.iinfo(np.int64).max).min(axis=-1, keepdims=True)
    return np.where(unseen, np.where(pulls <= least, np.inf, PULLED), score)


def kl_upper(mean: Array, level: Array) -> Array:
    """Largest q with kl(mean, q) <= level, of Bernoulli divergences, in [mean, 1].

    Newton's method from above: kl is convex in q, so that no step passes the root.

    Args:
      mean: [...] in [0, 1].
      level: [...] >= 0; ln(t) / n in KL-UCB.

    Source: Garivier and Cappe, The KL-UCB algorithm for bounded stochastic bandits and beyond
      (2011), with c = 0.
    """
    low = 1.0 - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(mean > 0.0, mean * np.log(mean), 0.0) + np.where(
            low > 0.0, low * np.log(low), 0.0
        )
        pinsker = mean + np.sqrt(0.5 * level)
        near_one = -np.expm1((entropy - level) / low)
        q = np.minimum(np.minimum(pinsker, near_one), 1.0)
        for _ in range(NEWTON):
            success_term = np.where(mean > 0.0, mean * np.log(q), 0.0)
            failure_term = np.where(low > 0.0, low * np.log1p(-q), 0.0)
            step = (entropy - success_term - failure_term - level) * q * (1.0 - q) / (q - mean)
            q = np.where((q > mean) & (step > 0.0), np.maximum(q - step, mean), q)
    return np.where(low > 0.0, q, 1.0)


POINTS = 801  # of a drawn density
WIDE = 4.0  # scales of a t distribution that are drawn on each side


class Belief(NamedTuple):
    """What a display draws of each arm's posterior.

    distribution: of SciPy, of the arms, with `pdf` and `interval`. mean: [A]. grid: values at which
    it is drawn, [N].
    """

    distribution: Any
    mean: Array
    grid: Array


def beta_belief(state: State, bandit: Bandit) -> Belief:
    """Beta of each arm over the open unit interval: at its ends a density may be infinite."""
    from scipy import stats

    distribution: Any = stats.beta(*beta(state, bandit))
    return Belief(distribution, distribution.mean(), np.linspace(0.0, 1.0, POINTS)[1:-1])


def student_belief(state: State, bandit: Bandit) -> Belief:
    """Student-t of each arm.

    Its location stands for the mean, which few degrees of freedom do not have.
    """
    from scipy import stats

    location, scale, df = student(state, bandit)
    reach = WIDE * scale
    at = np.linspace((location - reach).min(), (location + reach).max(), POINTS)
    return Belief(stats.t(df, loc=location, scale=scale), location, at)
