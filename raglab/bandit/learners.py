"""The bandits (algebra): the index or the draw of each, and the table with one entry each (S4.5).

An entry holds all that choosing, propensities, simulation, files, settings, studies and displays
read of a learner. One more is an index (or a draw and the probability that it is the largest) and
an entry; the rest of it is optional.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raglab.bandit.learner import LEARNERS, Bandit, LearnerEntry, State
from raglab.bandit.propensity import greedy_choice, largest_beta, largest_normal, largest_t
from raglab.bandit.scores import (
    Mask,
    beta,
    beta_belief,
    index_of_means,
    kl_upper,
    noise,
    normal,
    student,
    student_belief,
)
from raglab.values import BoolArray, FloatArray, refuse


def greedy(state: State, bandit: Bandit, mask: Mask, _: FloatArray) -> FloatArray:
    """Mean reward of each arm, [..., A].

    epsilon_greedy takes the largest where it does not choose uniformly.
    """
    return index_of_means(state, bandit, mask)


def ucb1(state: State, bandit: Bandit, mask: Mask, _: FloatArray) -> FloatArray:
    """Mean plus exploration * sqrt(2 ln t / n), [..., A].

    Source: Auer, Cesa-Bianchi and Fischer, Finite-time analysis of the multiarmed bandit problem
      (2002).
    """

    def bound(means: FloatArray, counts: FloatArray, log_rewards: FloatArray) -> FloatArray:
        return means + bandit.exploration * np.sqrt(2.0 * log_rewards / counts)

    return index_of_means(state, bandit, mask, bound)


def kl_ucb(state: State, bandit: Bandit, mask: Mask, _: FloatArray) -> FloatArray:
    """Largest mean whose Bernoulli divergence is at most exploration² * ln t / n, [..., A].

    The divergence is from the mean seen.
    """

    def bound(means: FloatArray, counts: FloatArray, log_rewards: FloatArray) -> FloatArray:
        return kl_upper(means, bandit.exploration * bandit.exploration * log_rewards / counts)

    return index_of_means(state, bandit, mask, bound)


def check_beta_prior(bandit: Bandit) -> None:
    """Refuse a prior mean that leaves a Beta without one of its two counts.

    Raises:
      ValueError: it is 0 or 1.
    """
    if bandit.prior_mean in {0.0, 1.0}:
        refuse(
            f"prior_mean of {bandit.algorithm} must be in (0, 1)",
            bandit.prior_mean,
            "a Beta needs both counts",
        )


def thompson_beta(
    state: State, bandit: Bandit, rng: np.random.Generator, _: FloatArray
) -> FloatArray:
    """One draw of each arm's success rate, [..., A].

    Replications, then arms, in the generator's order.
    """
    return rng.beta(*beta(state, bandit))


def beta_largest(state: State, bandit: Bandit, is_open: BoolArray, _: FloatArray) -> FloatArray:
    """Probability that each available arm's draw of thompson_beta is the largest, [..., A]."""
    return largest_beta(*beta(state, bandit), is_open)


def thompson_nig(
    state: State, bandit: Bandit, rng: np.random.Generator, _: FloatArray
) -> FloatArray:
    """One draw of each arm's mean reward, [..., A].

    Replications, then arms, in the generator's order.
    """
    locations, scales, df = student(state, bandit)
    return locations + scales * rng.standard_t(df)


def student_largest(state: State, bandit: Bandit, is_open: BoolArray, _: FloatArray) -> FloatArray:
    """Probability that each available arm's draw of thompson_nig is the largest, [..., A]."""
    means, scales, df = student(state, bandit)
    return _unless_certain(
        means,
        scales,
        bandit,
        is_open,
        lambda positive_scales: largest_t(means, positive_scales, df, is_open),
    )


def lin_ucb(state: State, bandit: Bandit, _: Mask, context: FloatArray) -> FloatArray:
    """Expected reward in this context plus exploration times its standard deviation, [..., A]."""
    posterior = normal(state, bandit, context)
    return posterior.mean + bandit.exploration * posterior.sd


def lin_thompson(
    state: State, bandit: Bandit, rng: np.random.Generator, context: FloatArray
) -> FloatArray:
    """One draw of each arm's expected reward in this context, [..., A], in generator order."""
    means, deviations = normal(state, bandit, context)
    return means + noise(bandit) * deviations * rng.standard_normal(means.shape)


def normal_largest(
    state: State, bandit: Bandit, is_open: BoolArray, context: FloatArray
) -> FloatArray:
    """Probability that each available arm's draw of lin_thompson is the largest, [..., A]."""
    means, deviations = normal(state, bandit, context)
    return _unless_certain(
        means,
        noise(bandit) * deviations,
        bandit,
        is_open,
        lambda positive_scales: largest_normal(means, positive_scales, is_open),
    )


def _unless_certain(
    means: FloatArray,
    scales: FloatArray,
    bandit: Bandit,
    is_open: BoolArray,
    integral_over: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Integral over draws, [..., A].

    Where no available arm has a spread there is nothing to draw: the means decide.

    Args:
      integral_over: scales [..., A], all above 0, to probabilities.
    """
    is_certain = np.asarray(~(is_open & (scales > 0.0)).any(axis=-1, keepdims=True))
    return np.where(
        is_certain,
        greedy_choice(means, bandit, is_open),
        integral_over(np.where(is_certain, 1.0, scales)),
    )


BUILT_IN = {
    "epsilon_greedy": LearnerEntry(
        settings=("epsilon",),
        index=greedy,
        compiled="greedy",
        pays=7e5,
    ),
    "ucb1": LearnerEntry(
        settings=("exploration",),
        index=ucb1,
        compiled="ucb1",
        pays=1e6,
    ),
    "kl_ucb": LearnerEntry(
        settings=("exploration",),
        bounded=True,
        index=kl_ucb,
    ),
    "thompson_beta": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength", "threshold"),
        positive=("exploration", "prior_strength"),
        check=check_beta_prior,
        successes=True,
        bounded=True,
        draw=thompson_beta,
        largest=beta_largest,
        compiled="beta",
        pays=9e5,
        belief=beta_belief,
        quantity="success rate (share of rewards above {threshold:g}, 0 to 1)",
    ),
    "thompson_nig": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength", "prior_variance"),
        positive=("prior_strength", "prior_variance"),
        draw=thompson_nig,
        largest=student_largest,
        compiled="student",
        pays=1e6,
        belief=student_belief,
        quantity="mean reward (0 to 1)",
    ),
    "lin_ucb": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength"),
        positive=("prior_strength",),
        linear=True,
        index=lin_ucb,
        compiled="lin_ucb",
        pays=2e5,
    ),
    "lin_thompson": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength", "prior_variance"),
        positive=("prior_strength",),
        linear=True,
        draw=lin_thompson,
        largest=normal_largest,
        compiled="lin_thompson",
        pays=2e5,
    ),
}
LEARNERS.update(BUILT_IN)
POLICIES = tuple(BUILT_IN)  # names of those that come with raglab
