"""Scores of arms (algebra): posteriors and upper bounds for learners' indices and draws (S4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from raglab.bandit.learner import Bandit, State, Stats
from raglab.values import BoolArray, FloatArray, IntArray

Mask = BoolArray | None

# steps of kl_upper; from its start, seven reach the last digits (tests/test_bandit_learner.py)
NEWTON_STEPS = 10
# score of an arm without a reward yet that others were pulled less than
PULLED_ARM_SCORE = np.finfo(np.float64).max


class Beta(NamedTuple):
    """Posterior of each arm's success rate, [..., A]."""

    a: FloatArray
    b: FloatArray


class Student(NamedTuple):
    """Posterior of each arm's mean reward, a shifted t distribution, [..., A]."""

    location: FloatArray
    scale: FloatArray
    df: FloatArray


class Normal(NamedTuple):
    """Posterior of each arm's reward in this context, [..., A]."""

    mean: FloatArray
    sd: FloatArray


def pooled_stats(state: State, bandit: Bandit) -> Stats:
    """Statistics [..., A] with the history's pseudo-counts."""
    if bandit.history is None:
        return Stats(state.n, state.total, state.square)
    counts, history_sums, history_squares = bandit.history
    return Stats(state.n + counts, state.total + history_sums, state.square + history_squares)


def beta(state: State, bandit: Bandit) -> Beta:
    """Posterior of thompson_beta.

    Prior counts plus successes and failures, over exploration squared (rule S4.5).
    """
    reward_counts, success_sums, _ = pooled_stats(state, bandit)
    prior_successes = bandit.prior_strength * bandit.prior_mean
    exploration_squared = bandit.exploration * bandit.exploration
    # a discounted 1 - 1 may fall a last digit below 0
    failure_counts = np.maximum(reward_counts - success_sums, 0.0)
    return Beta(
        (prior_successes + success_sums) / exploration_squared,
        (bandit.prior_strength - prior_successes + failure_counts) / exploration_squared,
    )


def student(state: State, bandit: Bandit) -> Student:
    """Posterior of thompson_nig: of the mean, with the variance integrated out.

    Source: Murphy, Conjugate Bayesian analysis of the Gaussian distribution (2007), section 6;
      alpha0 is half of kappa0, so that prior_strength counts the pseudo-observations of both.
    """
    return student_posterior(*pooled_stats(state, bandit), bandit)


def student_posterior(
    reward_counts: FloatArray, reward_sums: FloatArray, square_sums: FloatArray, bandit: Bandit
) -> Student:
    """Posterior of thompson_nig from statistics of any shape."""
    prior_strength = bandit.prior_strength
    prior_mean = bandit.prior_mean
    posterior_counts = prior_strength + reward_counts
    locations = (prior_strength * prior_mean + reward_sums) / posterior_counts
    scatter = square_sums - reward_sums * reward_sums / np.maximum(reward_counts, 1e-300)
    shift = reward_sums - reward_counts * prior_mean
    between = (
        prior_strength * shift * shift / (np.maximum(reward_counts, 1e-300) * posterior_counts)
    )
    twice_beta = bandit.prior_variance * prior_strength + np.maximum(scatter, 0.0) + between
    return Student(
        locations,
        bandit.exploration * np.sqrt(twice_beta / posterior_counts / posterior_counts),
        posterior_counts,
    )


def normal(state: State, bandit: Bandit, context: FloatArray) -> Normal:
    """Posterior of a linear arm's expected reward.

    Ridge regression of rewards less prior_mean, disjoint arms.

    What an arm without a reward is expected to pay is prior_mean, in every context.

    Args:
      context: [..., d].

    Source: Li et al., A contextual-bandit approach to personalized news article recommendation
      (2010), algorithm 1.
    """
    ridge_matrix = bandit.prior_strength * np.eye(context.shape[-1])
    context_rows = context[..., None, :]
    solved_contexts = np.linalg.solve(
        state.gram + ridge_matrix, np.broadcast_to(context_rows, state.moment.shape)[..., None]
    )[..., 0]
    mean_rewards = bandit.prior_mean + (state.moment * solved_contexts).sum(axis=-1)
    return Normal(
        mean_rewards, np.sqrt(np.maximum((context_rows * solved_contexts).sum(axis=-1), 0.0))
    )


def noise(bandit: Bandit) -> float:
    """What multiplies sqrt(x' inv(A) x) where lin_thompson draws.

    Exploration, and the deviation of its noise.
    """
    return float(bandit.exploration * np.sqrt(bandit.prior_variance))


def index_of_means(
    state: State,
    bandit: Bandit,
    mask: Mask,
    bound: Callable[[FloatArray, FloatArray, FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Index that starts from each arm's mean reward, [..., A]; arms without a reward come first.

    Args:
      bound: (mean, rewards counted, ln of the rewards of all arms) to the index; None: the mean
        itself. An arm without a reward counts one, so that nothing is divided by 0: its index is
        replaced afterwards.
    """
    reward_counts, reward_sums, _ = pooled_stats(state, bandit)
    is_unrewarded = reward_counts <= 0.0
    safe_counts = np.where(is_unrewarded, 1.0, reward_counts)
    arm_scores = reward_sums / safe_counts
    # rewards that were counted stand for t: what a discount forgets, ln(t) forgets as well
    if bound is not None:
        arm_scores = bound(
            arm_scores, safe_counts, np.log(np.maximum(reward_counts.sum(axis=-1), 1.0))[..., None]
        )
    return (
        _prefer_unpulled(arm_scores, is_unrewarded, state.pulls, mask)
        if is_unrewarded.any()
        else arm_scores
    )


def _prefer_unpulled(
    arm_scores: FloatArray, is_unrewarded: BoolArray, pulls: IntArray, mask: Mask
) -> FloatArray:
    """Scores in which, of the arms without a reward, those that were pulled least are infinite."""
    open_unrewarded = is_unrewarded if mask is None else is_unrewarded & mask
    fewest_pulls = np.where(open_unrewarded, pulls, np.iinfo(np.int64).max).min(
        axis=-1, keepdims=True
    )
    return np.where(
        is_unrewarded, np.where(pulls <= fewest_pulls, np.inf, PULLED_ARM_SCORE), arm_scores
    )


def kl_upper(mean: FloatArray, divergence_limit: FloatArray) -> FloatArray:
    """Largest q with kl(mean, q) <= level, of Bernoulli divergences, in [mean, 1].

    Newton's method from above: kl is convex in q, so that no step passes the root.

    Args:
      mean: [...] in [0, 1].
      divergence_limit: [...] >= 0; ln(t) / n in KL-UCB.

    Source: Garivier and Cappe, The KL-UCB algorithm for bounded stochastic bandits and beyond
      (2011), with c = 0.
    """
    mean_failure = 1.0 - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(mean > 0.0, mean * np.log(mean), 0.0) + np.where(
            mean_failure > 0.0, mean_failure * np.log(mean_failure), 0.0
        )
        pinsker_bound = mean + np.sqrt(0.5 * divergence_limit)
        bound_near_one = -np.expm1((entropy - divergence_limit) / mean_failure)
        upper_mean = np.minimum(np.minimum(pinsker_bound, bound_near_one), 1.0)
        for _ in range(NEWTON_STEPS):
            success_term = np.where(mean > 0.0, mean * np.log(upper_mean), 0.0)
            failure_term = np.where(mean_failure > 0.0, mean_failure * np.log1p(-upper_mean), 0.0)
            newton_step = (
                (entropy - success_term - failure_term - divergence_limit)
                * upper_mean
                * (1.0 - upper_mean)
                / (upper_mean - mean)
            )
            upper_mean = np.where(
                (upper_mean > mean) & (newton_step > 0.0),
                np.maximum(upper_mean - newton_step, mean),
                upper_mean,
            )
    return np.where(mean_failure > 0.0, upper_mean, 1.0)


DENSITY_POINTS = 801  # of a drawn density
DENSITY_SCALES = 4.0  # scales of a t distribution that are drawn on each side


class Belief(NamedTuple):
    """What a display draws of each arm's posterior.

    distribution: of SciPy, of the arms, with `pdf` and `interval`. mean: [A]. grid: values at which
    it is drawn, [N].
    """

    distribution: Any
    mean: FloatArray
    grid: FloatArray


def beta_belief(state: State, bandit: Bandit) -> Belief:
    """Beta of each arm over the open unit interval: at its ends a density may be infinite."""
    from scipy import stats

    distribution: Any = stats.beta(*beta(state, bandit))
    return Belief(distribution, distribution.mean(), np.linspace(0.0, 1.0, DENSITY_POINTS)[1:-1])


def student_belief(state: State, bandit: Bandit) -> Belief:
    """Student-t of each arm.

    Its location stands for the mean, which few degrees of freedom do not have.
    """
    from scipy import stats

    location, scale, df = student(state, bandit)
    drawn_distance = DENSITY_SCALES * scale
    drawn_values = np.linspace(
        (location - drawn_distance).min(), (location + drawn_distance).max(), DENSITY_POINTS
    )
    return Belief(stats.t(df, loc=location, scale=scale), location, drawn_values)
