"""The table of learners: one entry each, with all that choosing, simulation, files, studies and displays read of it.

One more is an index (or a draw and its propensity) and an entry; a loop, a compiled loop and a belief are optional.
"""

from __future__ import annotations

from raglab.bandit import loops, propensity, scores
from raglab.bandit.learner import LEARNERS, LearnerEntry

BUILT_IN = {
    "epsilon_greedy": LearnerEntry(
        settings=("epsilon",),
        index=scores.greedy,
        loop=loops.greedy_loop,
        compiled="greedy",
        pays=8e6,
    ),
    "ucb1": LearnerEntry(
        settings=("exploration",),
        index=scores.ucb1,
        loop=loops.ucb1_loop,
        compiled="ucb1",
        pays=8e6,
    ),
    "kl_ucb": LearnerEntry(
        settings=("exploration",),
        index=scores.kl_ucb,
        loop=loops.kl_ucb_loop,
    ),
    "thompson_beta": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength", "threshold"),
        positive=("exploration", "prior_strength"),
        check=scores.check_beta_prior,
        successes=True,
        draw=scores.thompson_beta,
        largest=propensity.beta_largest,
        loop=loops.beta_loop,
        compiled="beta",
        pays=3e6,
        belief=scores.beta_belief,
        quantity="success rate (share of rewards above {threshold:g}, 0 to 1)",
    ),
    "thompson_nig": LearnerEntry(
        settings=("exploration", "prior_mean", "prior_strength", "prior_variance"),
        positive=("prior_strength", "prior_variance"),
        draw=scores.thompson_nig,
        largest=propensity.student_largest,
        loop=loops.student_loop,
        compiled="student",
        pays=2e6,
        belief=scores.student_belief,
        quantity="mean reward (0 to 1)",
    ),
    "lin_ucb": LearnerEntry(
        settings=("exploration", "prior_strength"),
        positive=("prior_strength",),
        linear=True,
        index=scores.lin_ucb,
        loop=loops.lin_ucb_loop,
        compiled="lin_ucb",
        pays=1e6,
    ),
    "lin_thompson": LearnerEntry(
        settings=("exploration", "prior_strength", "prior_variance"),
        positive=("prior_strength",),
        linear=True,
        draw=scores.lin_thompson,
        largest=propensity.normal_largest,
        loop=loops.lin_thompson_loop,
        compiled="lin_thompson",
        pays=1e6,
    ),
}
LEARNERS.update(BUILT_IN)
POLICIES = tuple(BUILT_IN)  # names of those that come with raglab
