"""Bandit learners (algebra): settings, state, init, choose, update (S4.5).

What the entries hold stands in `raglab.bandit.learners`: here nothing knows a learner by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array, within_range
from raglab.values import Floats, refuse

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
TIE_RULES = ("lowest", "random")


class Stats(NamedTuple):
    """Statistics of the rewards of each arm; discounted where the bandit discounts.

    Attributes:
      n: rewards counted, [..., A].
      total: sum of the rewards, [..., A]; successes for thompson_beta.
      square: sum of their squares, [..., A].
    """

    n: NDArray[np.float64]
    total: NDArray[np.float64]
    square: NDArray[np.float64]


# mark of a linear learner whose sums are of rewards less prior_mean; those of before have none
CENTRED_MARK = "centred"


@dataclass(frozen=True)
class Bandit:
    """Settings of a learner.

    Attributes:
      algorithm: the learner, by its name in `LEARNERS`; files have it under `policy`.
      epsilon: share of rounds in which epsilon_greedy chooses uniformly.
      exploration: multiplies the width of an upper bound or the spread of a posterior (a Beta's
        pseudo-counts are divided by its square).
      threshold: thompson_beta calls a reward above it a success (rule S4.5).
      prior_mean: of thompson_beta the mean of the prior Beta(mean * strength, (1 - mean) *
        strength); of thompson_nig mu0; of the linear learners the reward expected of an arm without
        one (1 is optimistic: every arm is tried before a good one is settled on).
      prior_strength: of thompson_beta the strength of that Beta; of thompson_nig kappa0 = 2 *
        alpha0; of the linear learners the ridge.
      prior_variance: of thompson_nig beta0 / alpha0; of lin_thompson the variance of its noise.
      discount: every round multiplies all statistics by it.
      window: above 0, only the last `window` rounds count.
      floor: least propensity of every available arm.
      ties: how ties of scores are broken: the `lowest` arm, or a `random` one.
      history: pseudo-counts [A] added to the statistics whenever scores are made; no part of the
        state.

    Raises:
      ValueError: `algorithm` is the name of no learner.
    """

    algorithm: str = "thompson_beta"
    epsilon: float = 0.1
    exploration: float = 1.0
    threshold: float = 0.5
    prior_mean: float = 0.5
    prior_strength: float = 2.0
    prior_variance: float = 0.25
    discount: float = 1.0
    window: int = 0
    floor: float = 0.0
    ties: str = "lowest"
    history: Stats | None = None

    def __post_init__(self) -> None:
        if LEARNERS:  # defaults of functions are made before the table is filled
            check_algorithm(self.algorithm)

    @property
    def linear(self) -> bool:
        """Whether it learns from a context."""
        return self.algorithm in LEARNERS and LEARNERS[self.algorithm].linear

    def _replace(self, **settings: Any) -> Bandit:  # noqa: ANN401 - settings of any type
        """Bandit with other settings, as a state or a table has it."""
        return replace(self, **settings)


# Keys of files and logs for fields that are named otherwise: formats on disk stay.
STORED_KEYS: Mapping[str, str] = {"algorithm": "policy"}


def stored_settings(bandit: Bandit) -> dict[str, Any]:
    """Settings by the keys of files and logs."""
    return {
        STORED_KEYS.get(field.name, field.name): getattr(bandit, field.name)
        for field in fields(bandit)
    }


class Rewards(NamedTuple):
    """Rewards of N rounds that were chosen before.

    Attributes:
      rows: replications that are rewarded, [N]; one may occur more than once.
      arm: number of the arm, [N].
      reward: in [0, 1], [N].
      age: rounds chosen since the choice, [N].
      context: of the choice, [N, d]; d = 0 without one.
      cost: of the choice, [N], which a ledger reads.
      old: the counted reward that each replaces, [N]; None of new ones.
    """

    rows: Ints
    arm: Ints
    reward: Array
    age: Ints
    context: Array
    cost: Array | float = 0.0
    old: Array | None = None


class State(NamedTuple):
    """State of a learner; [...] is any batch of replications.

    Attributes:
      t: rounds chosen, [...].
      pulls: rounds that chose the arm, [..., A].
      n: rewards counted, as in `Stats`, [..., A].
      total: sum of the rewards, as in `Stats`, [..., A].
      square: sum of their squares, as in `Stats`, [..., A].
      gram: sum of x x' without the ridge, [..., A, d, d]; d = 0 without a context.
      moment: sum of (reward - prior_mean) * x, [..., A, d].
      recent_arm: arm whose reward arrived, [..., W]; -1 none yet. Round t is in place t mod W.
      recent_reward: reward of these rounds, [..., W].
      recent_context: context of these rounds, [..., W, d].
    """

    t: NDArray[np.int64]
    pulls: NDArray[np.int64]
    n: NDArray[np.float64]
    total: NDArray[np.float64]
    square: NDArray[np.float64]
    gram: NDArray[np.float64]
    moment: NDArray[np.float64]
    recent_arm: NDArray[np.int64]
    recent_reward: NDArray[np.float64]
    recent_context: NDArray[np.float64]

    @property
    def net(self) -> State:
        """What a choice reads: itself; a ledger's is net of what its price charges."""
        return self

    @property
    def price(self) -> NDArray[np.float64]:
        """Value lost a unit of cost: NaN, since nothing is charged, [...]."""
        return np.full(self.t.shape, np.nan)

    def after_choice(self, arm: Ints, cost: Array, bandit: Bandit) -> State:  # noqa: ARG002
        """State after a round, as `record_pull`.

        Args:
          arm: number of the arm, [...].
          cost: not read, [...].
          bandit: settings of the learner.
        """
        return record_pull(self, arm, bandit)

    def after_rewards(self, rewards: Rewards, bandit: Bandit) -> State:
        """State after rewards, as `record_rewards`.

        Args:
          rewards: that arrived.
          bandit: settings of the learner.
        """
        return record_rewards(self, rewards, bandit)


class Choice(NamedTuple):
    """One arm of each replication, and the scores that it was the best of.

    Attributes:
      arm: number of the chosen arm, [...].
      score: index or draw from the posterior, [..., A]; -inf where masked.
    """

    arm: NDArray[np.int64]
    score: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerEntry:
    """A learner in the table.

    Its properties for choices, propensities, simulation, files, studies and displays.

    Attributes:
      settings: fields of `Bandit` that it reads in addition to those of every learner (discount,
        window, floor, ties, history); a study searches those it has a range for, and a learner that
        reads `epsilon` chooses uniformly in that share of the rounds, around its scores.
      positive: settings that it divides by, so that 0 is refused.
      check: refuses what neither ranges nor `positive` do.
      linear: whether it needs a context, and with it `gram` and `moment` of the state.
      successes: whether it adds up successes (rewards above the threshold) rather than rewards;
        then its history is scored as one of coins.
      bounded: whether its scores need rewards in [0, 1], so that it cannot read rewards net of a
        price.
      index: (state, bandit, mask, context) to scores [..., A], of a learner that draws nothing;
        None for one with `draw` and `largest`.
      draw: (state, bandit, rng, context) to one draw of each arm, [..., A]; None for one with an
        index.
      largest: (state, bandit, mask, context) to the probability that each available arm's draw is
        the largest, [..., A]; of an index it follows by itself.
      compiled: name of its loop in `raglab.bandit.kernel`, a name because numba is optional and
        slow to load; None where there is none.
      pays: choices of a simulation from which the compiled loop makes up for its loading.
      belief: (state, bandit) to what a display draws of each arm; None: no density of one variable.
      quantity: the quantity of that density, with unit and range; `{threshold:g}` is replaced by
        the setting.

    Source: rule S4.5.
    """

    settings: tuple[str, ...]
    positive: tuple[str, ...] = ()
    check: Callable[[Bandit], None] | None = None
    linear: bool = False
    successes: bool = False
    bounded: bool = False
    index: Callable[..., NDArray[np.float64]] | None = None
    draw: Callable[..., NDArray[np.float64]] | None = None
    largest: Callable[..., NDArray[np.float64]] | None = None
    compiled: str | None = None
    pays: float = np.inf
    belief: Callable[..., Any] | None = None
    quantity: str = ""

    @property
    def uniform(self) -> bool:
        """Whether it chooses uniformly in a share `epsilon` of the rounds."""
        return "epsilon" in self.settings


# by name, in the order in which they are listed; `learners` fills it
LEARNERS: dict[str, LearnerEntry] = {}

SETTING_RANGES = {
    "epsilon": (0.0, 1.0, "it is a share of rounds"),
    "exploration": (0.0, np.inf, "it multiplies a width; 1 is published"),
    "threshold": (0.0, 1.0, "rewards are in [0, 1]"),
    "prior_mean": (0.0, 1.0, "rewards are in [0, 1]"),
    "prior_strength": (0.0, np.inf, "it counts pseudo-observations"),
    "prior_variance": (0.0, np.inf, "it is a variance"),
    "discount": (0.0, 1.0, "1 forgets nothing"),
    "floor": (0.0, 1.0, "times the number of arms it may not pass 1"),
}
POSITIVE_SETTINGS = ("discount",)
SUM_TOLERANCE = 1e-9  # that scaled sums may be off


def check_algorithm(algorithm: str) -> None:
    """Refuse a name of no learner.

    Raises:
      ValueError: lists the learners, and names the nearest.
    """
    if algorithm not in LEARNERS:
        nearest_names = get_close_matches(str(algorithm), LEARNERS, 1)
        remedy = (
            f"did you mean {nearest_names[0]}? Choose one of them"
            if nearest_names
            else "choose one of them"
        )
        refuse(f"algorithm must be one of {', '.join(LEARNERS)}", repr(algorithm)[:80], remedy)


def check_bandit(bandit: Bandit, n_arms: int | None = None) -> None:
    """Refuse settings outside their ranges.

    With n_arms also a floor or a history that does not fit them.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    check_algorithm(bandit.algorithm)
    learner_entry = LEARNERS[bandit.algorithm]
    if bandit.ties not in TIE_RULES:
        refuse("ties must be lowest or random", repr(bandit.ties), "choose one of them")
    positive_settings = (*POSITIVE_SETTINGS, *learner_entry.positive)
    for setting_name, (lower_bound, upper_bound, range_reason) in SETTING_RANGES.items():
        setting_value = getattr(bandit, setting_name)
        if not (lower_bound <= setting_value <= upper_bound and np.isfinite(setting_value)) or (
            setting_name in positive_settings and setting_value == 0.0
        ):
            opening_bracket = "(" if setting_name in positive_settings else "["
            refuse(
                f"{setting_name} must be in {opening_bracket}{lower_bound:g}, {upper_bound:g}]",
                setting_value,
                range_reason,
            )
    if learner_entry.check is not None:
        learner_entry.check(bandit)
    if not (isinstance(bandit.window, int | np.integer) and bandit.window >= 0):
        refuse("window must be a whole number of rounds, >= 0", bandit.window, "0 is no window")
    if bandit.window and bandit.discount < 1.0:
        refuse(
            "a window and a discount exclude each other",
            (bandit.window, bandit.discount),
            "set one of them",
        )
    if bandit.history is not None:
        _check_history(bandit, n_arms)


def _check_history(bandit: Bandit, n_arms: int | None) -> None:
    if bandit.linear:
        refuse("a history has no contexts", bandit.algorithm, "leave it out")
    reward_counts, reward_sums, square_sums = (
        np.asarray(statistic, np.float64) for statistic in bandit.history or ()
    )
    arms_shape = reward_counts.shape[:1] if n_arms is None else (n_arms,)
    if not arms_shape or {reward_counts.shape, reward_sums.shape, square_sums.shape} != {
        arms_shape
    }:
        refuse("history must be [A] each, a number an arm", reward_counts.shape, "see warm_start")
    rounding_factor = 1.0 + SUM_TOLERANCE
    is_consistent = (
        (square_sums >= 0.0)
        & (reward_sums * rounding_factor >= square_sums)
        & (reward_counts * rounding_factor >= reward_sums)
        & (reward_counts < np.inf)
    )
    if not is_consistent.all():
        rule = "history must have finite n >= total >= square >= 0, as rewards in [0, 1] do"
        refuse(
            rule,
            (reward_counts.tolist(), reward_sums.tolist(), square_sums.tolist()),
            "see warm_start",
        )


def check_mask(
    mask: ArrayLike | None, state_shape: tuple[int, ...], floor: float = 0.0
) -> NDArray[np.bool_] | None:
    """Mask as bool [..., A] of the given shape; none where every arm is available.

    Args:
      mask: available arms, [A] or [..., A].
      state_shape: [..., A].
      floor: least propensity of every available arm.

    Raises:
      ValueError: it does not fit, is not of booleans, leaves no arm, or too many for the floor.
    """
    arm_mask = np.asarray(True if mask is None else mask)
    if arm_mask.dtype != np.bool_:
        refuse("mask must be of booleans", arm_mask.dtype, "True where available")
    if mask is not None and arm_mask.shape not in {
        state_shape[first_axis:] for first_axis in range(len(state_shape))
    }:
        refuse(
            f"mask must be [A] or [..., A] of {state_shape}", arm_mask.shape, "one boolean an arm"
        )
    arm_mask = np.broadcast_to(arm_mask, state_shape)
    if not arm_mask.any(axis=-1).all():
        refuse("mask must leave an arm in every round", "all false", "leave an arm available")
    check_floor(floor, int(arm_mask.sum(axis=-1).max()))
    return None if arm_mask.all() else arm_mask


def check_floor(floor: float, n_arms: int) -> None:
    """Refuse a least propensity that so many arms cannot all have.

    Raises:
      ValueError: times the number of arms it passes 1.
    """
    if floor * n_arms > 1.0:
        rule = f"floor times {n_arms} arms may not pass 1"
        refuse(rule, floor, f"at most {1.0 / n_arms:g} fits")


def check_context(context: ArrayLike | None, needed_shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Context as float64 [..., d] of the given shape; a learner with d = 0 reads none.

    Raises:
      ValueError: it is missing, of another width, or not finite.
    """
    n_features = needed_shape[-1]
    if n_features == 0:
        return np.zeros(needed_shape)
    features = np.zeros(0) if context is None else float_array(context, "context")
    if features.ndim == 0 or features.shape[-1] != n_features:
        context_shape = "none" if context is None else features.shape
        refuse(f"context must be [..., {n_features}]", context_shape, "give the features of init")
    if not np.isfinite(features).all():
        refuse("context must be finite", "NaN or infinity", "impute what is missing")
    return np.broadcast_to(features, needed_shape)


def check_whole(argument_name: str, numbers: ArrayLike, upper_bound: float = np.inf) -> Ints:
    """Whole numbers in [0, end) as int64, such as arms, or rounds since a choice.

    Raises:
      ValueError: another number.
    """
    whole_numbers = np.asarray(numbers)
    if (
        not np.issubdtype(whole_numbers.dtype, np.integer)
        or ((whole_numbers < 0) | (whole_numbers >= upper_bound)).any()
    ):
        remedy = "it counts arms, or rounds since the choice, from 0"
        refuse(
            f"{argument_name} must be a whole number in [0, {upper_bound})", whole_numbers, remedy
        )
    return whole_numbers.astype(np.int64)


def check_reward(reward: Floats | ArrayLike, argument_name: str = "reward") -> NDArray[np.float64]:
    """Rewards as float64.

    Raises:
      ValueError: a reward is NaN or outside [0, 1].
    """
    rewards = within_range(float_array(reward, argument_name), 0.0, 1.0, argument_name)
    is_outside = ~((rewards >= 0.0) & (rewards <= 1.0))
    if is_outside.any():
        remedy = "a missing reward is no update; normalise the others (rule S4.4)"
        refuse(f"{argument_name} must be in [0, 1]", rewards[is_outside].flat[0], remedy)
    return rewards


# what a person gave
def check_count(argument_name: str, number: Any, smallest: int, remedy: str) -> int:  # noqa: ANN401
    """A whole number that is at least so large.

    Raises:
      ValueError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < smallest:
        refuse(f"{argument_name} must be a whole number >= {smallest}", repr(number), remedy)
    return int(number)


def record_pull(state: State, arm: NDArray[np.int64], bandit: Bandit) -> State:
    """State after a round that chose these arms: pulls, forgetting."""
    arm_indices = np.asarray(arm)[..., None]
    pulls = state.pulls.copy()
    np.put_along_axis(pulls, arm_indices, np.take_along_axis(pulls, arm_indices, -1) + 1, -1)
    state = state._replace(pulls=pulls)
    if bandit.discount < 1.0:
        statistics = ("n", "total", "square", "gram", "moment")
        state = state._replace(
            **{statistic: getattr(state, statistic) * bandit.discount for statistic in statistics}
        )
    if bandit.window:
        state = _without_oldest(state, bandit)
    return state._replace(t=np.asarray(state.t + 1))


def flat(state: State) -> State:
    """State of one batch axis, [B, ...], with arrays of its own."""
    n_batch_axes, n_learners = state.t.ndim, state.t.size
    return State._make(
        state_field.reshape(n_learners, *state_field.shape[n_batch_axes:]).copy()
        for state_field in state
    )


def restore_batch(state: State, batch_shape: tuple[int, ...]) -> State:
    """State [B, ...] with its batch as it was."""
    return State._make(
        state_field.reshape((*batch_shape, *state_field.shape[1:])) for state_field in state
    )


def reward_outcome(reward: Array, bandit: Bandit) -> Array:
    """What a learner adds up.

    The reward, or of some learners whether it is a success (rule S4.5).
    """
    return (
        np.asarray(is_success(reward, bandit), np.float64)
        if LEARNERS[bandit.algorithm].successes
        else reward
    )


def is_success(reward: Array, bandit: Bandit) -> NDArray[np.bool_]:
    """Whether a reward is a success: above the threshold (rule S4.5)."""
    return np.asarray(reward > bandit.threshold)


def _without_oldest(state: State, bandit: Bandit) -> State:
    """State from whose statistics the round that leaves the window is gone; its place is empty."""
    flat_state = flat(state)
    window_slot = flat_state.t % bandit.window
    learner_rows = np.flatnonzero(
        flat_state.recent_arm[np.arange(len(window_slot)), window_slot] >= 0
    )
    oldest_rounds = learner_rows, window_slot[learner_rows]
    oldest_arms, oldest_rewards, oldest_contexts = (
        flat_state.recent_arm[oldest_rounds],
        flat_state.recent_reward[oldest_rounds],
        flat_state.recent_context[oldest_rounds],
    )
    outcomes, no_weights = reward_outcome(oldest_rewards, bandit), np.zeros(len(learner_rows))
    _add(
        flat_state,
        learner_rows,
        oldest_arms,
        no_weights - 1.0,
        outcomes,
        oldest_contexts,
        bandit.prior_mean,
    )
    is_emptied = flat_state.n[learner_rows, oldest_arms] == 0.0
    # no digit of what was subtracted stays
    for statistic in (flat_state.total, flat_state.square, flat_state.gram, flat_state.moment):
        statistic[learner_rows[is_emptied], oldest_arms[is_emptied]] = 0.0
    (
        flat_state.recent_arm[oldest_rounds],
        flat_state.recent_reward[oldest_rounds],
        flat_state.recent_context[oldest_rounds],
    ) = -1, 0.0, 0.0
    return restore_batch(flat_state, state.t.shape)


def _add(
    flat_state: State,
    learner_rows: Ints,
    arm: Ints,
    weights: Array,
    outcomes: Array,
    contexts: Array,
    centre_rewards: float | Array,
    replaced_outcomes: Array | float = 0.0,
    is_new_reward: NDArray[np.bool_] | bool = True,  # noqa: FBT001 - an array of many
) -> None:
    """Add outcomes to the statistics of a state that is one's own; a row may occur more than once.

    Args:
      centre_rewards: reward that a linear learner's sums are taken from: its prior_mean, or the
        outcome that is replaced.
      replaced_outcomes: the outcome that is replaced, 0 of a new one.
      is_new_reward: whether it counts as one more.
    """
    arm_cells, added_counts = (learner_rows, arm), weights * is_new_reward
    np.add.at(flat_state.n, arm_cells, added_counts)
    np.add.at(flat_state.total, arm_cells, weights * (outcomes - replaced_outcomes))
    np.add.at(
        flat_state.square,
        arm_cells,
        weights * (outcomes * outcomes - replaced_outcomes * replaced_outcomes),
    )
    if flat_state.moment.shape[-1]:
        outer_products = contexts[:, :, None] * contexts[:, None, :]
        np.add.at(flat_state.gram, arm_cells, added_counts[:, None, None] * outer_products)
        np.add.at(
            flat_state.moment,
            arm_cells,
            (weights * (outcomes - centre_rewards))[:, None] * contexts,
        )


def record_rewards(state: State, rewards: Rewards, bandit: Bandit) -> State:
    """State [B, ...] after rewards of its rows, of arguments that were checked.

    Raises:
      ValueError: a second reward in one place of a window, or one that replaces what was not
        counted.
    """
    flat_state = flat(state)
    if bandit.window:
        is_in_window = rewards.age < bandit.window
        rewards = Rewards._make(
            reward_field[is_in_window] if isinstance(reward_field, np.ndarray) else reward_field
            for reward_field in rewards
        )
    learner_rows, arm, new_rewards, reward_ages, contexts, _, old_rewards = rewards
    if bandit.window:
        window_cells = learner_rows, (flat_state.t[learner_rows] - 1 - reward_ages) % bandit.window
        if old_rewards is None:
            if (flat_state.recent_arm[window_cells] >= 0).any():
                refuse("a round has one reward", "a second one", "correct the first with revise")
            flat_state.recent_arm[window_cells], flat_state.recent_context[window_cells] = (
                arm,
                contexts,
            )
        elif not (
            (flat_state.recent_arm[window_cells] == arm)
            & (flat_state.recent_reward[window_cells] == old_rewards)
        ).all():
            refuse(
                "old must be the reward that was counted", old_rewards, "give those of that round"
            )
        flat_state.recent_reward[window_cells] = new_rewards
    weights = np.asarray(bandit.discount**reward_ages, np.float64)
    old_outcomes: Array | float = 0.0
    centre_rewards: Array | float = bandit.prior_mean
    if old_rewards is not None:
        _check_counted(flat_state.n[learner_rows, arm] >= MIN_REWARD_WEIGHT * weights)
        old_outcomes = centre_rewards = reward_outcome(old_rewards, bandit)
    new_outcomes = reward_outcome(new_rewards, bandit)
    _add(
        flat_state,
        learner_rows,
        arm,
        weights,
        new_outcomes,
        contexts,
        centre_rewards,
        old_outcomes,
        is_new_reward=old_rewards is None,
    )
    return flat_state


DEFAULT_BANDIT = Bandit()
WHOLE_NUMBER_FIELDS = ("t", "pulls", "recent_arm")  # fields of a state that are whole numbers
MIN_REWARD_WEIGHT = 0.5  # of a reward's weight; rounding takes less


def init(
    n_arms: int,
    *,
    bandit: Bandit = DEFAULT_BANDIT,
    n_features: int = 0,
    batch: tuple[int, ...] = (),
) -> State:
    """State before the first round.

    Args:
      n_arms: number of arms, A.
      bandit: settings of the learner.
      n_features: width of the context; only linear policies read it.
      batch: leading shape of replications that learn side by side.

    Raises:
      ValueError: settings outside their range, no arm, or a linear policy without features.

    Example:
      >>> init(2, batch=(3,)).pulls.shape
      (3, 2)
    """
    check_count("n_arms", n_arms, 1, "there must be an arm to choose")
    check_count("n_features", n_features, 0, "0 is no context")
    check_bandit(bandit, n_arms)
    if bandit.linear and n_features == 0:
        refuse(
            f"{bandit.algorithm} learns from a context",
            "n_features = 0",
            "name the width of the context",
        )
    check_floor(bandit.floor, n_arms)
    field_shapes = state_shapes(batch, n_arms, n_features if bandit.linear else 0, bandit.window)
    empty_state = State._make(
        np.zeros(field_shape, np.int64 if field_name in WHOLE_NUMBER_FIELDS else np.float64)
        for field_name, field_shape in zip(State._fields, field_shapes, strict=True)
    )
    return empty_state._replace(recent_arm=empty_state.recent_arm - 1)


def state_shapes(
    batch_shape: tuple[int, ...], n_arms: int, n_features: int, window: int
) -> list[tuple[int, ...]]:
    """Shapes of the fields of a state, in their order."""
    arm_axis, feature_axis, window_axis = (n_arms,), (n_features,), (window,)
    field_shapes = (
        (),
        arm_axis,
        arm_axis,
        arm_axis,
        arm_axis,
        arm_axis + feature_axis + feature_axis,
        arm_axis + feature_axis,
        window_axis,
        window_axis,
        window_axis + feature_axis,
    )
    return [batch_shape + field_shape for field_shape in field_shapes]


def nth(open_arms: NDArray[np.bool_], open_rank: Ints) -> Ints:
    """Arm [...] that is the place-th open one of [..., A], counted from 0."""
    return np.argmax(np.cumsum(open_arms, axis=-1) > open_rank[..., None], axis=-1)


def uniform_share(bandit: Bandit, n_available: NDArray[np.integer] | int) -> Array:
    """Probability [...] that a round chooses uniformly among the available arms.

    Epsilon, floor, or both.
    """
    floor_share = np.asarray(bandit.floor * np.asarray(n_available))
    epsilon = bandit.epsilon if LEARNERS[bandit.algorithm].uniform else 0.0
    return epsilon + floor_share - epsilon * floor_share


def pick_arm(
    state: State,
    bandit: Bandit,
    rng: np.random.Generator,
    mask: NDArray[np.bool_] | None,
    context: Array,
) -> Choice:
    """Arm that `choose` takes, of arguments that were checked; the round is not counted yet.

    Raises:
      ValueError: the learner's entry has neither an index nor a draw.
    """
    learner_entry = LEARNERS[bandit.algorithm]
    if learner_entry.index is not None:
        scores = learner_entry.index(state, bandit, mask, context)
    elif learner_entry.draw is not None:
        scores = learner_entry.draw(state, bandit, rng, context)
    else:
        rule, what_is_missing = (
            "an entry must have an index or a draw",
            f"neither in {bandit.algorithm}",
        )
        refuse(rule, what_is_missing, "see raglab.bandit.learners")
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    if bandit.ties == "random":
        is_tied = scores == scores.max(axis=-1, keepdims=True)
        arm = nth(is_tied, (rng.random(state.t.shape) * is_tied.sum(axis=-1)).astype(np.int64))
    else:
        arm = np.argmax(scores, axis=-1)
    if learner_entry.uniform or bandit.floor > 0.0:
        open_arms = np.ones(scores.shape, np.bool_) if mask is None else mask
        n_available = open_arms.sum(axis=-1)
        uniform_shares = uniform_share(bandit, n_available)
        uniforms = rng.random(state.t.shape)
        open_ranks = np.minimum(
            (uniforms / np.maximum(uniform_shares, 1e-300) * n_available), n_available - 1
        ).astype(np.int64)
        arm = np.where(uniforms < uniform_shares, nth(open_arms, open_ranks), arm)
    return Choice(arm, scores)


def choose(
    state: State,
    bandit: Bandit,
    rng: np.random.Generator,
    *,
    mask: ArrayLike | None = None,
    context: ArrayLike | None = None,
) -> tuple[State, Choice]:
    """State that has counted the round, and the arm of each replication.

    Draws replication by replication, arm by arm; with random ties one uniform a replication
    follows, and with epsilon_greedy or a floor one more.

    Args:
      state: before the round.
      bandit: settings of the learner.
      rng: generator of all draws.
      mask: available arms, [A] or [..., A].
      context: [..., d], for linear policies.

    Raises:
      ValueError: settings outside their range, a mask that leaves no arm, or a context that does
        not fit.

    Source: rule S4.5.

    Example:
      >>> _, choice = choose(init(2), Bandit("ucb1"), np.random.default_rng(0), mask=[False, True])
      >>> int(choice.arm), choice.score
      (1, array([-inf,  inf]))
    """
    choice = pick_arm(state, bandit, rng, *check_round(state, bandit, mask, context))
    return record_pull(state, choice.arm, bandit), choice


def check_round(
    state: State, bandit: Bandit, mask: ArrayLike | None, context: ArrayLike | None
) -> tuple[NDArray[np.bool_] | None, Array]:
    """Mask and context of a round, as `choose` and `propensities` read them.

    Raises:
      ValueError: as `choose`.
    """
    _check_fits(state, bandit)
    arm_mask = check_mask(mask, state.n.shape, bandit.floor)
    return arm_mask, check_context(context, state.t.shape + state.moment.shape[-1:])


def _check_fits(state: State, bandit: Bandit) -> None:
    """Refuse settings outside their ranges, and a state of other settings."""
    check_bandit(bandit, state.n.shape[-1])
    if bandit.linear and state.moment.shape[-1] == 0:
        refuse(
            f"{bandit.algorithm} needs a state with features",
            "none",
            "give init the same n_features",
        )
    if state.recent_arm.shape[-1] != bandit.window:
        window_sizes = (state.recent_arm.shape[-1], bandit.window)
        refuse(
            "state and bandit must have the same window", window_sizes, "give init the same bandit"
        )


def _learn(
    state: State,
    arm: ArrayLike,
    old_reward: ArrayLike | None,
    new_reward: ArrayLike,
    bandit: Bandit,
    context: ArrayLike | None,
    age: ArrayLike,
) -> State:
    """State after a reward, or one that replaces the old one, of each replication."""
    _check_fits(state, bandit)
    batch_shape, n_learners = state.t.shape, state.t.size

    def each(argument_name: str, argument: NDArray[Any]) -> NDArray[Any]:
        if argument.shape not in {
            batch_shape[first_axis:] for first_axis in range(len(batch_shape) + 1)
        }:
            rule = f"{argument_name} must be one for all, or fit the state's batch {batch_shape}"
            refuse(rule, argument.shape, "give one a replication")
        return np.broadcast_to(argument, batch_shape).reshape(n_learners)

    arms, reward_ages = (
        each("arm", check_whole("arm", arm, state.n.shape[-1])),
        each("age", check_whole("age", age)),
    )
    old_rewards = None if old_reward is None else each("reward", check_reward(old_reward))
    new_rewards, n_features = each("reward", check_reward(new_reward)), state.moment.shape[-1]
    features = check_context(context, (*batch_shape, n_features)).reshape(n_learners, n_features)
    if bandit.window and (reward_ages >= state.t.reshape(n_learners)).any():
        remedy = "a window keeps rewards of rounds that were chosen"
        refuse("age must be less than the rounds chosen", age, remedy)
    rewards = Rewards(
        np.arange(n_learners), arms, new_rewards, reward_ages, features, old=old_rewards
    )
    return restore_batch(record_rewards(state, rewards, bandit), batch_shape)


def _check_counted(is_counted: NDArray[np.bool_]) -> None:
    if not is_counted.all():
        remedy = "update first, then revise"
        refuse("old must be a reward that was counted", "an arm without one", remedy)


def update(
    state: State,
    arm: ArrayLike,
    reward: ArrayLike,
    bandit: Bandit,
    *,
    context: ArrayLike | None = None,
    age: ArrayLike = 0,
) -> State:
    """State that counts one more reward of each replication.

    Args:
      state: the state that has counted the choice.
      arm: number of the arm, [...].
      reward: in [0, 1], [...].
      bandit: settings of the learner.
      context: of the choice, [..., d], for linear policies.
      age: rounds between the choice and this reward, scalar or [...]: a late reward counts
        discount**age, and outside the window not at all.

    Raises:
      ValueError: a reward that is NaN or outside [0, 1], an unknown arm, or a second reward in one
        place of a window.

    Example:
      >>> update(init(2), 1, 0.8, Bandit("ucb1")).total
      array([0. , 0.8])
    """
    return _learn(state, arm, None, reward, bandit, context, age)


def revise(
    state: State,
    arm: ArrayLike,
    old: ArrayLike,
    new: ArrayLike,
    bandit: Bandit,
    *,
    context: ArrayLike | None = None,
    age: ArrayLike = 0,
) -> State:
    """State after a counted reward is replaced, such as after a thumb up: old out, new in.

    Args:
      state: the state that has counted the old reward.
      arm: number of the arm, [...].
      old: the counted reward, [...], in [0, 1].
      new: the reward that replaces it, [...], in [0, 1].
      bandit: settings of the learner.
      context: of the choice, [..., d], for linear policies.
      age: rounds chosen since the choice, scalar or [...].

    Raises:
      ValueError: as `update`; or the window holds another reward of that round.

    Example:
      >>> bandit = Bandit("ucb1")
      >>> revise(update(init(2), 1, 0.25, bandit), 1, 0.25, 1.0, bandit).total
      array([0., 1.])
    """
    return _learn(state, arm, old, new, bandit, context, age)


class Steps(NamedTuple):
    """Events of one learner in order, [N] each: rounds that chose an arm, rewards, revised rewards.

    Attributes:
      kind: `CHOSEN`, `REWARDED` or `REVISED`.
      arm: number of the arm.
      old: the reward that it replaces; not read where there is none.
      new: the reward; not read where there is none.
      age: rounds chosen since the choice.
      context: of the choice, [N, d]; d = 0 without one.
    """

    kind: Ints
    arm: Ints
    old: Array
    new: Array
    age: Ints
    context: Array


CHOSEN, REWARDED, REVISED = range(3)


def fold(state: State, steps: Steps, bandit: Bandit) -> State:
    """State of one learner after many steps.

    The bits that `choose`, `update` and `revise` give one after another.

    A round counts for the arm that it chose, even where the learner would choose another.

    Args:
      state: of one learner, without a batch.
      steps: in order.
      bandit: settings of the learner.

    Raises:
      ValueError: as `update` and `revise`; or a state with a batch.

    Example:
      >>> none, ones, context = np.zeros(2), np.ones(2, int), np.zeros((2, 0))
      >>> steps = Steps(
      ...     np.array([CHOSEN, REWARDED]), ones, none, np.array([0.0, 0.8]), 0 * ones, context
      ... )
      >>> fold(init(2), steps, Bandit("ucb1")).total
      array([0. , 0.8])
    """
    _check_fits(state, bandit)
    if state.t.shape:
        refuse("steps must be of one learner", state.t.shape, "fold each alone")
    step_kinds, context_shape = np.asarray(steps.kind), (len(steps.kind), state.moment.shape[-1])
    if steps.context.shape != context_shape:
        refuse(f"context must be {context_shape}", steps.context.shape, "give the features of init")
    contexts = check_context(steps.context, context_shape)
    arms, ages = check_whole("arm", steps.arm, state.n.shape[-1]), check_whole("age", steps.age)
    check_reward(steps.new[step_kinds != CHOSEN])
    check_reward(steps.old[step_kinds == REVISED])
    if bandit.discount == 1.0 and not bandit.window:
        return _with_steps_added(state, step_kinds, arms, steps.old, steps.new, contexts, bandit)
    for step_kind, arm_index, old_reward, new_reward, reward_age, features in zip(
        step_kinds, arms, steps.old, steps.new, ages, contexts, strict=True
    ):
        if step_kind == CHOSEN:
            state = record_pull(state, arm_index, bandit)
        else:
            state = _learn(
                state,
                arm_index,
                old_reward if step_kind == REVISED else None,
                new_reward,
                bandit,
                features,
                reward_age,
            )
    return state


def _with_steps_added(
    state: State,
    step_kinds: Ints,
    arm: Ints,
    old_reward: Array,
    new_reward: Array,
    context: Array,
    bandit: Bandit,
) -> State:
    """State of one learner that forgets nothing after many steps.

    Sums in their order, so that their bits are the same.

    Raises:
      ValueError: a reward is revised that was not counted.
    """
    flat_state, is_reward, is_revision = flat(state), step_kinds == REWARDED, step_kinds == REVISED
    # rewards so far, [N, A]
    rewards_so_far = np.cumsum(
        (arm[:, None] == np.arange(flat_state.n.shape[1])) & is_reward[:, None], axis=0
    )
    _check_counted(
        (flat_state.n[0] + rewards_so_far)[is_revision, arm[is_revision]] >= MIN_REWARD_WEIGHT
    )
    is_choice = step_kinds == CHOSEN
    np.add.at(flat_state.pulls[0], arm[is_choice], 1)
    new_outcomes = reward_outcome(np.asarray(new_reward, np.float64), bandit)
    old_outcomes = np.where(
        is_revision, reward_outcome(np.asarray(old_reward, np.float64), bandit), 0.0
    )
    centre_rewards = np.where(is_revision, old_outcomes, bandit.prior_mean)
    # one learner is row 0 of its flat state
    reward_events = (
        np.zeros_like(arm),
        arm,
        np.ones(len(arm)),
        new_outcomes,
        context,
        centre_rewards,
        old_outcomes,
        is_reward,
    )
    _add(flat_state, *(event_field[~is_choice] for event_field in reward_events))
    return restore_batch(flat_state._replace(t=flat_state.t + int(is_choice.sum())), state.t.shape)
