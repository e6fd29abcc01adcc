"""What a bandit is: its settings, its state, its choice, and the rules that they must keep."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.values import Floats

POLICIES = ("epsilon_greedy", "ucb1", "kl_ucb", "thompson_beta", "thompson_nig", "lin_ucb", "lin_thompson")
LINEAR = ("lin_ucb", "lin_thompson")
THOMPSON = ("thompson_beta", "thompson_nig", "lin_thompson")
TIES = ("lowest", "random")


class Stats(NamedTuple):
    """What was seen of each arm; discounted where the bandit discounts."""

    n: NDArray[np.float64]  # [..., A] rewards counted
    total: NDArray[np.float64]  # [..., A] their sum; successes for thompson_beta
    square: NDArray[np.float64]  # [..., A] sum of their squares


class Bandit(NamedTuple):
    """Settings of a learner.

    policy: one of `POLICIES`. epsilon: share of rounds in which epsilon_greedy chooses uniformly.
    exploration: multiplies the width of an upper bound or the spread of a posterior (a Beta's pseudo-counts are
      divided by its square).
    threshold: thompson_beta calls a reward above it a success (rule S4.5).
    prior_mean, prior_strength, prior_variance: of thompson_beta Beta(mean * strength, (1 - mean) * strength); of
      thompson_nig mu0, kappa0 = 2 * alpha0, and beta0 / alpha0; of the linear ones the strength is the ridge, and
      lin_thompson's variance that of its noise.
    discount: every round multiplies all statistics by it. window: > 0, only the last so many rounds count.
    floor: least propensity of every available arm. ties: among equal scores the `lowest` arm, or a `random` one.
    history: pseudo-counts [A] added to the statistics whenever scores are made; no part of the state.
    """

    policy: str = "thompson_beta"
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

    @property
    def linear(self) -> bool:
        """Whether it learns from a context."""
        return self.policy in LINEAR


class State(NamedTuple):
    """What a learner knows; [...] is any batch of replications."""

    t: NDArray[np.int64]  # [...] rounds chosen
    pulls: NDArray[np.int64]  # [..., A] rounds that chose the arm
    n: NDArray[np.float64]  # [..., A] rewards counted, as in Stats
    total: NDArray[np.float64]  # [..., A]
    square: NDArray[np.float64]  # [..., A]
    gram: NDArray[np.float64]  # [..., A, d, d] sum of x x', without the ridge; d = 0 without a context
    moment: NDArray[np.float64]  # [..., A, d] sum of reward * x
    recent_arm: NDArray[np.int64]  # [..., W] arm whose reward came, -1 none yet; round t stands in place t mod W
    recent_reward: NDArray[np.float64]  # [..., W]
    recent_context: NDArray[np.float64]  # [..., W, d]


class Choice(NamedTuple):
    """One arm of each replication, and the scores that it was the best of."""

    arm: NDArray[np.int64]  # [...]
    score: NDArray[np.float64]  # [..., A] index, or draw from the posterior; -inf where masked


RANGES = {
    "epsilon": (0.0, 1.0, "it is a share of rounds"),
    "exploration": (0.0, np.inf, "it multiplies a width; 1 is the published one"),
    "threshold": (0.0, 1.0, "it is compared with rewards in [0, 1]"),
    "prior_mean": (0.0, 1.0, "it is the reward expected before any came"),
    "prior_strength": (0.0, np.inf, "it counts pseudo-observations"),
    "prior_variance": (0.0, np.inf, "it is the variance of a reward"),
    "discount": (0.0, 1.0, "1 forgets nothing, 0.99 halves a reward in 69 rounds"),
    "floor": (0.0, 1.0, "it is a probability; times the number of arms it may not pass 1"),
}
POSITIVE = ("discount",)
ROUNDING = 1e-9  # that scaled sums may be off
POSITIVE_IN = {  # settings that are divided by
    "thompson_beta": ("exploration", "prior_strength"),
    "thompson_nig": ("prior_strength", "prior_variance"),
    "lin_ucb": ("prior_strength",),
    "lin_thompson": ("prior_strength",),
}


def refuse(rule: str, came: object, remedy: str) -> NoReturn:
    """Raise a ValueError with rule, value and remedy."""
    msg = f"{rule}, got {came}; {remedy}."
    raise ValueError(msg)


def check_bandit(bandit: Bandit, n_arms: int | None = None) -> None:
    """Refuse settings outside their ranges; with n_arms also a floor or a history that does not fit them.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    if bandit.policy not in POLICIES:
        refuse(f"policy must be one of {', '.join(POLICIES)}", repr(bandit.policy), "choose one of them")
    if bandit.ties not in TIES:
        refuse("ties must be lowest or random", repr(bandit.ties), "choose one of them")
    positive = (*POSITIVE, *POSITIVE_IN.get(bandit.policy, ()))
    for name, (low, high, why) in RANGES.items():
        value = getattr(bandit, name)
        if not (low <= value <= high and np.isfinite(value)) or (name in positive and value == 0.0):
            bracket = "(" if name in positive else "["
            refuse(f"{name} must be in {bracket}{low:g}, {high:g}]", value, why)
    if bandit.policy == "thompson_beta" and bandit.prior_mean in {0.0, 1.0}:
        refuse("prior_mean of thompson_beta must be in (0, 1)", bandit.prior_mean, "a Beta needs both counts")
    if not (isinstance(bandit.window, int | np.integer) and bandit.window >= 0):
        refuse("window must be a whole number of rounds, >= 0", bandit.window, "0 is no window")
    if bandit.window and bandit.discount < 1.0:
        refuse("a window and a discount exclude each other", (bandit.window, bandit.discount), "set one of them")
    if bandit.history is not None:
        _check_history(bandit, n_arms)


def _check_history(bandit: Bandit, n_arms: int | None) -> None:
    if bandit.linear:
        refuse("a history has no contexts", bandit.policy, "a linear policy starts without one")
    for name, values in zip(Stats._fields, bandit.history or (), strict=True):
        array = np.asarray(values)
        if array.ndim != 1 or (n_arms is not None and array.shape != (n_arms,)):
            refuse(f"history.{name} must be [A], a number an arm", array.shape, "see warm_start")
        if not (np.isfinite(array).all() and (array >= 0.0).all()):
            refuse(f"history.{name} must be finite and >= 0", array, "see warm_start")
    n, total, square = (np.asarray(values, dtype=np.float64) for values in bandit.history or ())
    if (total > n * (1.0 + ROUNDING)).any() or (square > total * (1.0 + ROUNDING)).any():
        came = (n.tolist(), total.tolist(), square.tolist())
        refuse("history must have n >= total >= square, as rewards in [0, 1] do", came, "see warm_start")


def check_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Mask as bool [..., A] of the given shape; none where every arm is available.

    Raises:
      ValueError: it does not fit, is not of booleans, or leaves no arm.
    """
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        refuse("mask must be of booleans", array.dtype, "True where the arm is available")
    if array.shape not in {shape[place:] for place in range(len(shape))}:
        refuse(f"mask must be [A] or [..., A] of {shape}", array.shape, "one boolean an arm")
    array = np.broadcast_to(array, shape)
    if not array.any(axis=-1).all():
        refuse("mask must leave an arm in every round", "all false", "let one arm be available always")
    return None if array.all() else array


def check_context(context: ArrayLike | None, state: State) -> NDArray[np.float64]:
    """Context as float64 [..., d] that fits the state; d = 0 where the state has none.

    Raises:
      ValueError: it is missing, of another width, or not finite.
    """
    n_features = state.moment.shape[-1]
    shape = (*state.t.shape, n_features)
    if context is None:
        if n_features:
            refuse(f"context must be [..., {n_features}]", "none", "give the features that init was told of")
        return np.zeros(shape)
    array = np.asarray(context, dtype=np.float64)
    if n_features == 0:
        return np.zeros(shape)
    if array.ndim == 0 or array.shape[-1] != n_features:
        refuse(f"context must be [..., {n_features}]", array.shape, "give the features that init was told of")
    if not np.isfinite(array).all():
        refuse("context must be finite", "NaN or infinity", "impute what is missing before")
    return np.broadcast_to(array, shape)


def check_arm(arm: ArrayLike, n_arms: int) -> NDArray[np.int64]:
    """Arms as int64.

    Raises:
      ValueError: an arm that is not a whole number in [0, A).
    """
    array = np.asarray(arm)
    if not np.issubdtype(array.dtype, np.integer):
        refuse(f"arm must be a whole number in [0, {n_arms})", array, "it is a place among the arms")
    if array.size and not (array.min() >= 0 and array.max() < n_arms):
        refuse(f"arm must be in [0, {n_arms})", array, "it is unknown to this state")
    return array.astype(np.int64)


def check_reward(reward: Floats | ArrayLike, name: str = "reward") -> NDArray[np.float64]:
    """Rewards as float64.

    Raises:
      ValueError: a reward is NaN or outside [0, 1].
    """
    array = np.asarray(reward, dtype=np.float64)
    wrong = ~((array >= 0.0) & (array <= 1.0))
    if wrong.any():
        remedy = "a missing reward is no update; normalise the others (rule S4.4)"
        refuse(f"{name} must be in [0, 1]", array[wrong].flat[0], remedy)
    return array


def check_whole(name: str, value: Any, least: int, remedy: str) -> int:  # noqa: ANN401 - what a person gave
    """A whole number that is at least so large.

    Raises:
      ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        refuse(f"{name} must be a whole number >= {least}", repr(value), remedy)
    return int(value)
