"""Worlds that a learner is simulated in: a full table of measured cases, or arms with known means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import refuse


class Table(NamedTuple):
    """Full information: every arm of every case measured."""

    arms: tuple[str, ...]
    value: NDArray[np.float64]  # [Q, A] what counts, such as a right decision, 0 or 1
    reward: NDArray[np.float64]  # [Q, A] what the learner sees, in [0, 1]; NaN never arrives
    mask: NDArray[np.bool_]  # [Q, A] arms available
    features: NDArray[np.float64]  # [Q, F] contexts; F may be 0
    feature_names: tuple[str, ...]
    ms: NDArray[np.float64]  # [Q, A] milliseconds; NaN unknown

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return len(self.arms)


class Bernoulli(NamedTuple):
    """Arms that pay 1 with a known probability, else 0; drifting where a row a round is given."""

    means: NDArray[np.float64]  # [A] or [T, A]
    mask: NDArray[np.bool_] | None = None  # [A] or [T, A] arms available

    @property
    def n_arms(self) -> int:
        """How many arms it has."""
        return int(np.shape(self.means)[-1])


World = Table | Bernoulli


def check_world(world: World, rounds: int) -> World:
    """World with arrays of the right types.

    Raises:
      ValueError: shapes that do not fit, values outside their range, or a round without an arm.
    """
    if not isinstance(world, Table | Bernoulli):
        refuse("a world must be a Table or a Bernoulli", type(world).__name__, "write Bernoulli(means)")
    return _checked_table(world) if isinstance(world, Table) else _checked_bernoulli(world, rounds)


def _checked_table(world: Table) -> Table:
    value, reward, ms, features = (
        np.asarray(array, dtype=np.float64) for array in (world.value, world.reward, world.ms, world.features)
    )
    mask = np.asarray(world.mask)
    shape = (len(value), len(world.arms))
    for name, array in (("value", value), ("reward", reward), ("mask", mask), ("ms", ms)):
        if array.shape != shape or 0 in shape:
            refuse(f"{name} must be [Q, A], a row a case and a column an arm, {shape}", array.shape, "fill it")
    if features.shape != (len(value), len(world.feature_names)):
        refuse("features must be [Q, F], a column a feature name", features.shape, "name each feature")
    _check_mask(mask)
    seen = reward[mask & ~np.isnan(reward)]
    if not ((seen >= 0.0) & (seen <= 1.0)).all():
        wrong = seen[~((seen >= 0.0) & (seen <= 1.0))][0]
        refuse("reward must be in [0, 1], or NaN where it never arrives", wrong, "normalise it (rule S4.4)")
    if not np.isfinite(value[mask]).all():
        refuse("value of an available arm must be finite", "NaN or infinity", "measure it, or mask the arm")
    if not np.isfinite(features).all():
        refuse("features must be finite", "NaN or infinity", "impute what is missing before")
    return world._replace(value=value, reward=reward, mask=mask, features=features, ms=ms)


def _checked_bernoulli(world: Bernoulli, rounds: int) -> Bernoulli:
    means = np.asarray(world.means, dtype=np.float64)
    if means.ndim not in {1, 2} or 0 in means.shape:
        refuse("means must be [A] or [T, A]", means.shape, "give one probability an arm")
    if not ((means >= 0.0) & (means <= 1.0)).all():
        wrong = means[~((means >= 0.0) & (means <= 1.0))][0]
        refuse("means must be in [0, 1]", wrong, "they are probabilities of a reward of 1")
    if means.ndim == 2 and len(means) != rounds:
        refuse(f"drifting means must have a row a round, {rounds}", len(means), "give as many rows as rounds")
    if world.mask is None:
        return Bernoulli(means)
    mask = np.asarray(world.mask)
    if mask.shape not in {means.shape[-1:], (rounds, means.shape[-1])}:
        refuse(f"mask must be [A] or [T, A], {(rounds, means.shape[-1])}", mask.shape, "one boolean an arm")
    _check_mask(mask)
    return Bernoulli(means, None if mask.all() else mask)


def _check_mask(mask: NDArray[np.bool_]) -> None:
    if mask.dtype != np.bool_:
        refuse("mask must be of booleans", mask.dtype, "True where the arm is available")
    if not mask.any(axis=-1).all():
        refuse("mask must leave an arm in every round", "all false", "let one arm be available always")
