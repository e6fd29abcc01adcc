"""Compiled kernels of the bandits (algebra): the simulation loops in numba.

A generator draws in a compiled loop what it draws in NumPy, in the order in which it is asked:
rounds, then replications, then arms. Logarithms come ready from NumPy, whose last digits are its
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raglab.bandit.environments import Arms, Feed
from raglab.bandit.learner import LEARNERS, Bandit, State
from raglab.bandit.scores import noise
from raglab.loops.compiled import bit_draws, compile_kernel
from raglab.values import FloatArray

# numba types the arrays for itself, and one loop says a policy whole.
# ruff: noqa: ANN401, C901, FBT001, PLR0912

_, _normal, _, _beta, _student = bit_draws()


@compile_kernel(inline="always")
def _table_row(round_index: int, replication: int, cases: Any, n_rows: int) -> int:
    """Row of the tables."""
    if len(cases) > 0:
        return int(cases[round_index, replication])
    return round_index if n_rows > 1 else 0


@compile_kernel(inline="always")
def _arm_reward(
    round_index: int, replication: int, table_row: int, arm: int, rewards: Any, uniforms: Any
) -> float:
    """Reward of an arm: read from a table, or 1 where the uniform is below its mean."""
    if len(uniforms) > 0:
        return 1.0 if uniforms[round_index, replication] < rewards[table_row, arm] else 0.0
    return float(rewards[table_row, arm])


@compile_kernel(inline="always")
def _best_arm(scores: Any, replication: int, table_row: int, arm_mask: Any) -> int:
    """Lowest of the available arms with the best score."""
    best_arm = 0
    best_score = -np.inf
    for arm_index in range(scores.shape[1]):
        arm_score = (
            scores[replication, arm_index]
            if len(arm_mask) == 0 or arm_mask[table_row, arm_index]
            else -np.inf
        )
        best_arm = arm_index if arm_score > best_score else best_arm
        best_score = max(best_score, arm_score)
    return best_arm


@compile_kernel(checked=False)
def _ucb_arms(
    chosen_arms: Any,
    cases: Any,
    uniforms: Any,
    rewards: Any,
    arm_mask: Any,
    random_arms: Any,
    log_rounds: Any,
    exploration: float,
    adds_bound: bool,
) -> None:
    """Arms of ucb1, or without bounds of epsilon_greedy, whose uniform choices are given."""
    n_arms = rewards.shape[1]
    n_replications = chosen_arms.shape[1]
    # an infinite mean puts an arm first until its first reward; its bound divides by 1, so that no
    # arm is NaN
    reward_sums = np.zeros((n_replications, n_arms))
    reward_counts = np.zeros((n_replications, n_arms))
    mean_rewards = np.full((n_replications, n_arms), np.inf)
    scores = np.empty((n_replications, n_arms))
    for round_index in range(len(chosen_arms)):
        for replication in range(n_replications):
            for arm_index in range(n_arms):
                scores[replication, arm_index] = mean_rewards[replication, arm_index]
                if adds_bound:
                    scores[replication, arm_index] += exploration * np.sqrt(
                        2.0
                        * log_rounds[round_index]
                        / max(reward_counts[replication, arm_index], 1.0)
                    )
            table_row = _table_row(round_index, replication, cases, len(rewards))
            arm = _best_arm(scores, replication, table_row, arm_mask)
            # uniform choices were drawn beforehand, in the order of the NumPy loop
            if len(random_arms) > 0 and random_arms[round_index, replication] >= 0:
                arm = random_arms[round_index, replication]
            chosen_arms[round_index, replication] = arm
            reward_counts[replication, arm] += 1.0
            reward_sums[replication, arm] += _arm_reward(
                round_index, replication, table_row, arm, rewards, uniforms
            )
            mean_rewards[replication, arm] = (
                reward_sums[replication, arm] / reward_counts[replication, arm]
            )


@compile_kernel(checked=False)
def _thompson_beta(
    chosen_arms: Any,
    cases: Any,
    uniforms: Any,
    rewards: Any,
    arm_mask: Any,
    rng: Any,
    prior_successes: float,
    prior_failures: float,
    count_divisor: float,
    threshold: float,
) -> None:
    """Arms of thompson_beta; before, rest: prior successes and failures."""
    bit_generator = rng.bit_generator
    n_arms = rewards.shape[1]
    n_replications = chosen_arms.shape[1]
    draws = np.empty((n_replications, n_arms))
    outcome_counts = np.zeros((2, n_replications, n_arms))
    for round_index in range(len(chosen_arms)):
        for replication in range(n_replications):
            for arm_index in range(n_arms):
                successes = prior_successes + outcome_counts[0, replication, arm_index]
                failures = prior_failures + outcome_counts[1, replication, arm_index]
                draws[replication, arm_index] = _beta(
                    bit_generator, successes / count_divisor, failures / count_divisor
                )
            table_row = _table_row(round_index, replication, cases, len(rewards))
            arm = _best_arm(draws, replication, table_row, arm_mask)
            chosen_arms[round_index, replication] = arm
            outcome = (
                0
                if _arm_reward(round_index, replication, table_row, arm, rewards, uniforms)
                > threshold
                else 1
            )
            outcome_counts[outcome, replication, arm] += 1.0


@compile_kernel(checked=False)
def _thompson_nig(
    chosen_arms: Any,
    cases: Any,
    uniforms: Any,
    rewards: Any,
    arm_mask: Any,
    rng: Any,
    prior_mean: float,
    prior_strength: float,
    prior_variance: float,
    exploration: float,
) -> None:
    """Arms of thompson_nig: each draws from the Student t posterior of its mean reward."""
    bit_generator = rng.bit_generator
    n_arms = rewards.shape[1]
    n_replications = chosen_arms.shape[1]
    reward_counts, reward_sums, square_sums = (
        np.zeros((n_replications, n_arms)),
        np.zeros((n_replications, n_arms)),
        np.zeros((n_replications, n_arms)),
    )
    # written as the NumPy reference writes it, since another order rounds otherwise
    draws = np.empty((n_replications, n_arms))
    locations = np.full((n_replications, n_arms), prior_strength * prior_mean / prior_strength)
    scales = np.full(
        (n_replications, n_arms),
        exploration * np.sqrt(prior_variance * prior_strength / prior_strength / prior_strength),
    )
    for round_index in range(len(chosen_arms)):
        for replication in range(n_replications):
            for arm_index in range(n_arms):
                draws[replication, arm_index] = locations[replication, arm_index] + scales[
                    replication, arm_index
                ] * _student(bit_generator, prior_strength + reward_counts[replication, arm_index])
            table_row = _table_row(round_index, replication, cases, len(rewards))
            arm = _best_arm(draws, replication, table_row, arm_mask)
            chosen_arms[round_index, replication] = arm
            arm_reward = _arm_reward(round_index, replication, table_row, arm, rewards, uniforms)
            reward_counts[replication, arm] += 1.0
            reward_sums[replication, arm] += arm_reward
            square_sums[replication, arm] += arm_reward * arm_reward
            n_rewards = reward_counts[replication, arm]
            reward_sum = reward_sums[replication, arm]
            # only the posterior of the chosen arm changes, so the others keep theirs
            posterior_count = prior_strength + n_rewards
            # rounding may leave a sum of squares below the square of the sum
            scatter = max(square_sums[replication, arm] - reward_sum * reward_sum / n_rewards, 0.0)
            shift = reward_sum - n_rewards * prior_mean
            between = prior_strength * shift * shift / (n_rewards * posterior_count)
            locations[replication, arm] = (
                prior_strength * prior_mean + reward_sum
            ) / posterior_count
            scales[replication, arm] = exploration * np.sqrt(
                (prior_variance * prior_strength + scatter + between)
                / posterior_count
                / posterior_count
            )


@compile_kernel(checked=False)
def _linear_arms(
    chosen_arms: Any,
    cases: Any,
    rewards: Any,
    arm_mask: Any,
    features: Any,
    rng: Any,
    first_inverse: Any,
    first_moment: Any,
    prior_mean: float,
    exploration: float,
    is_drawn: bool,
) -> None:
    """Arms of lin_ucb, or of lin_thompson, which draws.

    first_inverse, first_moment: of each arm's design and of its sums before the first round, [A, d,
    d] and [A, d].
    """
    bit_generator = rng.bit_generator
    n_arms, n_replications, n_features = rewards.shape[1], chosen_arms.shape[1], features.shape[1]
    inverses = np.empty((n_replications, n_arms, n_features, n_features))
    moments = np.empty((n_replications, n_arms, n_features))
    inverses[:], moments[:] = first_inverse, first_moment
    solved_features, widths, normal_draws = (
        np.empty((n_arms, n_features)),
        np.empty(n_arms),
        np.ones(n_arms),
    )
    for round_index in range(len(chosen_arms)):
        for replication in range(n_replications):
            # all arms draw, masked ones too: the generator's order must not depend on the mask
            if is_drawn:
                for arm_index in range(n_arms):
                    normal_draws[arm_index] = _normal(bit_generator)
            table_row = int(cases[round_index, replication])
            context = features[table_row]
            best_arm = 0
            best_score = -np.inf
            for arm_index in range(n_arms):
                if len(arm_mask) > 0 and not arm_mask[table_row, arm_index]:
                    continue
                # the inverse times the context gives mean and width now, and the update of the arm
                # that is taken
                solved_row = solved_features[arm_index]
                for i in range(n_features):
                    solved_row[i] = inverses[replication, arm_index, 0, i] * context[0]
                for j in range(1, n_features):
                    for i in range(n_features):
                        solved_row[i] += inverses[replication, arm_index, j, i] * context[j]
                arm_mean, widths[arm_index] = 0.0, 0.0
                for i in range(n_features):
                    widths[arm_index] += solved_row[i] * context[i]
                    arm_mean += moments[replication, arm_index, i] * solved_row[i]
                arm_score = (
                    prior_mean
                    + arm_mean
                    + exploration * np.sqrt(max(widths[arm_index], 0.0)) * normal_draws[arm_index]
                )
                # only a better score counts, so that of equal ones the lowest arm is taken
                if arm_score > best_score:
                    best_arm = arm_index
                    best_score = arm_score
            chosen_arms[round_index, replication] = best_arm
            # Sherman and Morrison: the inverse loses an outer product, and is never inverted anew
            centred_reward = rewards[table_row, best_arm] - prior_mean
            solved_row = solved_features[best_arm]
            update_factor = np.sqrt(1.0 / (1.0 + widths[best_arm]))
            for i in range(n_features):
                solved_row[i] *= update_factor
                moments[replication, best_arm, i] += centred_reward * context[i]
            for i in range(n_features):
                for j in range(n_features):
                    inverses[replication, best_arm, i, j] -= solved_row[i] * solved_row[j]


def played(
    block_feed: Feed, bandit: Bandit, rng: np.random.Generator, initial: State | None = None
) -> Arms:
    """Arms [T, R] that a plain learner with a compiled loop chooses: that which its entry names.

    Args:
      initial: state of one linear learner that every replication begins with.
    """
    chosen_arms = np.empty((block_feed.rounds, block_feed.size), np.int8)
    # what is not there is empty, so that numba has one type for it
    cases = np.zeros((0, 0), np.int32) if block_feed.case is None else block_feed.case
    uniforms = np.zeros((0, 0)) if block_feed.uniform is None else block_feed.uniform
    rewards = np.ascontiguousarray(block_feed.reward)
    arm_mask = (
        np.zeros((0, 0), np.bool_)
        if block_feed.mask is None
        else np.ascontiguousarray(block_feed.mask)
    )
    block_arrays = (chosen_arms, cases, uniforms, rewards, arm_mask)
    exploration = float(bandit.exploration)
    prior_strength = float(bandit.prior_strength)
    prior_mean = float(bandit.prior_mean)
    prior_variance = float(bandit.prior_variance)
    loop_name = LEARNERS[bandit.algorithm].compiled
    if loop_name in {"greedy", "ucb1"}:
        random_arms = exploration_arms(block_feed, bandit, rng)
        epsilon_arms = np.zeros((0, 0), np.int8) if random_arms is None else random_arms
        _ucb_arms(
            *block_arrays, epsilon_arms, logs(block_feed.rounds), exploration, loop_name == "ucb1"
        )
    elif loop_name == "beta":
        prior_successes = prior_strength * prior_mean
        threshold = float(bandit.threshold)
        _thompson_beta(
            *block_arrays,
            rng,
            prior_successes,
            prior_strength - prior_successes,
            exploration * exploration,
            threshold,
        )
    elif loop_name == "student":
        _thompson_nig(*block_arrays, rng, prior_mean, prior_strength, prior_variance, exploration)
    else:
        is_drawn = loop_name == "lin_thompson"
        features = np.ascontiguousarray(block_feed.features)
        spread_factor = noise(bandit) if is_drawn else exploration
        n_features = features.shape[1]
        # before a reward the design is the ridge alone
        inverses: Any = np.tile(np.eye(n_features) / prior_strength, (block_feed.n_arms, 1, 1))
        moments: FloatArray = np.zeros((block_feed.n_arms, n_features))
        if initial is not None:
            inverses = np.linalg.inv(
                np.ascontiguousarray(initial.gram) + prior_strength * np.eye(n_features)
            )
            moments = np.ascontiguousarray(initial.moment)
        _linear_arms(
            chosen_arms,
            cases,
            rewards,
            arm_mask,
            features,
            rng,
            inverses,
            moments,
            prior_mean,
            spread_factor,
            is_drawn,
        )
    return chosen_arms


def logs(rounds: int) -> FloatArray:
    """Ln of the rewards before each round, [T]; 0 before the first two."""
    return np.log(np.maximum(np.arange(rounds, dtype=np.float64), 1.0))


def exploration_arms(block_feed: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms | None:
    """Arms [T, R] that a learner with an epsilon chooses uniformly, -1 where it does not.

    None for other learners.
    """
    if not LEARNERS[bandit.algorithm].uniform:
        return None
    uniforms = rng.random((block_feed.rounds, block_feed.size))
    open_arms = (
        np.ones((1, block_feed.n_arms), np.bool_) if block_feed.mask is None else block_feed.mask
    )
    round_rows = (
        np.arange(block_feed.rounds)[:, None] if block_feed.case is None else block_feed.case
    )
    mask_rows = round_rows if len(open_arms) > 1 else 0
    n_open_arms = open_arms.sum(axis=-1)[mask_rows]
    open_ranks = np.minimum(
        uniforms / max(bandit.epsilon, 1e-300) * n_open_arms, n_open_arms - 1
    ).astype(np.int64)
    # available arms first
    open_arms_first = np.argsort(~open_arms, axis=-1, kind="stable").astype(np.int8)
    return np.where(uniforms < bandit.epsilon, open_arms_first[mask_rows, open_ranks], np.int8(-1))
