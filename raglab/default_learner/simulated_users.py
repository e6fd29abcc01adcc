"""Simulated users (algebra): worlds, and what a block of users asks and wants (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.bandit.environments import stream
from raglab.bandit.learner import check_count
from raglab.values import refuse

Array = NDArray[np.float64]
Small = NDArray[np.int16]
MOST_NUMBERED = int(np.iinfo(np.int16).max)
BLOCK = 500  # users that share spawned streams; fixed, so that the bits are
OWN, TRAFFIC, STRAYS, COLUMNS, REPLIES = range(5)  # streams of a block
SUMS_TO_ONE = 1e-9
PLAIN = "here"  # the one scene of a world without conditions


class World(NamedTuple):
    """Traffic over rows of the default table, and the values that users truly want there.

    C contexts (row keys), S scenes (hidden strata that may decide the true value), V values, M
    columns.

    Attributes:
      contexts: their names.
      values: candidate values of each, in the order in which they are proposed.
      traffic: share of the requests, [C].
      scenes: share of a context's requests, [C, S].
      shares: of the users, by true value, [C, S, V].
      noise: probability that a request wants another value than its user's own, any of them alike,
        [C].
      drift: probability, at a request, that the user's true values of the context are drawn again,
        [C].
      columns: names of what is seen of a scene.
      levels: value of each column, as a number, [C, S, M].
      noise_columns: number of columns without information.
      noise_levels: number of values of each of them.
      notices: probability that a user corrects a silent wrong answer; it is taken for right
        otherwise.
      detects: probability that a wrong value finds nothing.
      names: probability that a user who says no names the right value.
      at_once: number of contexts that one user has, drawn by traffic; 0 is all.
      per_day: requests of a user a day.
    """

    contexts: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    traffic: Array
    scenes: Array
    shares: Array
    noise: Array
    drift: Array
    columns: tuple[str, ...]
    levels: NDArray[np.int16]
    noise_columns: int = 0
    noise_levels: int = 2
    notices: float = 0.5
    detects: float = 0.0
    names: float = 1.0
    at_once: int = 0
    per_day: float = 5.0

    @property
    def n_levels(self) -> int:
        """Most values that a column has."""
        n_known = int(self.levels.max(initial=-1)) + 1
        return max(n_known, self.noise_levels if self.noise_columns else 0, 1)

    @property
    def offered(self) -> NDArray[np.bool_]:
        """Places of the candidate values of each context, [C, V]."""
        known = np.array([len(candidates) for candidates in self.values])
        return np.arange(self.shares.shape[-1]) < known[:, None]

    @property
    def slots(self) -> int:
        """Contexts of one user."""
        return min(self.at_once, len(self.contexts)) or len(self.contexts)


class Crowd(NamedTuple):
    """What a block of users asks: T requests of each of U users.

    topic: context of each slot, [U, slots]. slot: of the request, [T, U]. own: true value then.
    wanted: by the request. scene: hidden. level: of every column, those of noise last, [T, U, M].
    notice, detect, name: what happens if.
    """

    topic: NDArray[np.intp]
    slot: Small
    scene: Small
    own: Small
    wanted: Small
    level: Small
    notice: NDArray[np.bool_]
    detect: NDArray[np.bool_]
    name: NDArray[np.bool_]


def world(
    shares: Mapping[str, Mapping[str, Any]],
    *,
    column: str = "",
    mix: Mapping[str, float] | None = None,
    traffic: ArrayLike | None = None,
    noise: ArrayLike = 0.0,
    drift: ArrayLike = 0.0,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World of shares by context and value, or by context, condition and value.

    Args:
      shares: context -> value -> share of the users; with `column`: context -> its level -> value
        -> share.
      column: seen condition that decides the true value.
      mix: its level -> share of the requests; equal if not given.
      traffic: by context, equal if not given.
      noise: probability of a request that wants another value, one or one a context.
      drift: probability of a change of the true values, one or one a context.
      **more: other fields of `World`.

    Raises:
      ValueError: no context, shares that are none, probabilities outside [0, 1].

    Example:
      >>> pages = world(
      ...     {"vendor/contract": {"body": {"1": 1.0}, "coversheet": {"toc": 1.0}}},
      ...     column="page_1_kind",
      ... )
      >>> pages.values, pages.scenes.tolist(), pages.shares[0].tolist()
      ((('1', 'toc'),), [[0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]])
    """
    if not shares:
        refuse("a world has at least one context", "none", "give shares by context")
    # without a column every context has one plain scene, so that both forms are filled alike
    nested = {
        name: (context_shares if column else {PLAIN: context_shares})
        for name, context_shares in shares.items()
    }
    scenes = list(dict.fromkeys(scene for by_scene in nested.values() for scene in by_scene))
    values = tuple(
        tuple(dict.fromkeys(value for of in by_scene.values() for value in of))
        for by_scene in nested.values()
    )
    # one rectangle for all contexts: a value that one does not have keeps share 0
    table = np.zeros((len(nested), len(scenes), max(len(candidates) for candidates in values)))
    there = np.zeros((len(nested), len(scenes)))
    for row, (name, by_scene) in enumerate(nested.items()):
        for scene, of in by_scene.items():
            at = row, scenes.index(scene)
            # scenes that a context lacks keep weight 0; the rest is made shares below
            there[at] = 1.0 if mix is None else mix.get(scene, 0.0)
            table[at][[values[row].index(value) for value in of]] = _normalised_shares(
                name, list(of.values())
            )
    # one number stands for every context, and is checked as one a context is
    count = len(nested)
    return check_simulated_world(
        World(
            tuple(nested),
            values,
            _normalised_shares("traffic", np.ones(count) if traffic is None else traffic),
            there / there.sum(axis=1, keepdims=True),
            table,
            np.broadcast_to(np.asarray(noise, np.float64), (count,)),
            np.broadcast_to(np.asarray(drift, np.float64), (count,)),
            (column,) if column else (),
            np.broadcast_to(
                np.arange(len(scenes), dtype=np.int16)[:, None],
                (count, len(scenes), int(bool(column))),
            ),
            **more,
        )
    )


def _normalised_shares(name: str, numbers: ArrayLike) -> Array:
    """Numbers as shares that sum to 1."""
    parts = np.asarray(numbers, np.float64)
    if not (np.isfinite(parts).all() and (parts >= 0.0).all() and parts.sum() > 0.0):
        refuse(
            f"shares of {name} must be >= 0 and not all 0", parts.tolist(), "give a number a value"
        )
    return np.asarray(parts / parts.sum())


def check_simulated_world(world: World) -> World:
    """The world itself.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    for name in ("noise", "drift", "notices", "detects", "names"):
        part = np.asarray(getattr(world, name), np.float64)
        if not ((part >= 0.0) & (part <= 1.0)).all():
            refuse(f"{name} must be in [0, 1]", np.unique(part).tolist(), "it is a probability")
    is_met = {"traffic": True, "scenes": True, "shares": world.scenes > 0.0}
    for name, wanted in is_met.items():
        sums = getattr(world, name).sum(axis=-1)
        if ((np.abs(sums - 1.0) > SUMS_TO_ONE) & wanted).any():
            refuse(f"{name} must sum to 1", sums.ravel()[:5].tolist(), "they are shares")
    sizes = {name: getattr(world, name) for name in ("noise_columns", "noise_levels", "at_once")}
    for name, size in sizes.items():
        least = int(name == "noise_levels")
        check_count(name, size, least, "state at least one" if least else "0 is none")
    # Scenes, values and levels are numbered in 16 bits.
    n_contexts, n_scenes, n_values = world.shares.shape
    sizes |= {"contexts": n_contexts, "scenes": n_scenes, "values": n_values}
    for name, size in sizes.items():
        if size > MOST_NUMBERED:
            refuse(f"{name} must be at most {MOST_NUMBERED:,}", f"{size:,}", "leave some out")
    if not world.per_day > 0.0:
        refuse("per_day must be > 0", world.per_day, "it is requests of a user a day")
    return world


def user_blocks(users: int) -> list[int]:
    """How many users each block has."""
    return [min(BLOCK, users - first) for first in range(0, users, BLOCK)]


def crowd(world: World, users: int, requests: int, seed: int, block: int) -> Crowd:
    """Block of users of a world that was checked.

    Hangs on seed and block alone, and is the same for every policy.
    """
    rng = {kind: stream(seed, block, kind) for kind in range(5)}
    shape = (requests, users)
    topic = _topics(world, users, rng[OWN])
    slot = _sample_place(np.cumsum(world.traffic[topic], axis=-1), rng[TRAFFIC].random(shape))
    here = np.take_along_axis(topic[None], slot[..., None].astype(np.intp), axis=2)[..., 0]
    scene = _sample_place(np.cumsum(world.scenes, axis=-1)[here], rng[TRAFFIC].random(shape))
    own = _true_values(world, topic, slot, scene, rng[OWN])
    strays = rng[STRAYS].random(shape) < world.noise[here]
    wanted = np.where(strays, _stray(world, here, own, rng[STRAYS].random(shape)), own)
    columns = [np.broadcast_to(world.levels[here, scene], (*shape, len(world.columns)))]
    if world.noise_columns:
        columns.append(
            rng[COLUMNS].integers(
                world.noise_levels, size=(*shape, world.noise_columns), dtype=np.int16
            )
        )
    chances = (world.notices, world.detects, world.names)
    replies = [rng[REPLIES].random(shape) < chance for chance in chances]
    return Crowd(
        topic, slot, scene, own, wanted.astype(np.int16), np.concatenate(columns, axis=-1), *replies
    )


def _topics(world: World, users: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Contexts of each user, [U, slots]; drawn by traffic without replacement (Gumbel's keys)."""
    count = len(world.contexts)
    if world.slots == count:
        return np.broadcast_to(np.arange(count), (users, count))
    with np.errstate(divide="ignore"):
        keys = np.log(world.traffic) + rng.gumbel(size=(users, count))
    return np.sort(np.argsort(-keys, axis=1, kind="stable")[:, : world.slots], axis=1)


def _sample_place(cumulated: Array, uniform: Array) -> Small:
    """Place of a uniform number among cumulated shares, in parts of their sum.

    Never one of share 0 at the end.
    """
    ends = np.where(cumulated[..., :-1] < cumulated[..., -1:], cumulated[..., :-1], np.inf)
    return np.asarray((uniform[..., None] * cumulated[..., -1:] >= ends).sum(axis=-1), np.int16)


def _true_values(
    world: World, topic: NDArray[np.intp], slot: Small, scene: Small, rng: np.random.Generator
) -> Small:
    """True value of each user at each request, [T, U], in the scene of the request."""
    requests, users = slot.shape
    cumulated = np.cumsum(world.shares, axis=-1)
    n_scenes, who = world.shares.shape[1], np.arange(users)
    now = _sample_place(cumulated[topic], rng.random((users, topic.shape[1], n_scenes)))
    if not world.drift.any():
        return now[who, slot, scene]
    own = np.empty(slot.shape, np.int16)
    turned = rng.random(slot.shape) < world.drift[topic[who, slot]]
    for t in range(requests):
        movers = np.flatnonzero(turned[t])
        again = rng.random((len(movers), n_scenes))
        now[movers, slot[t, movers]] = _sample_place(
            cumulated[topic[movers, slot[t, movers]]], again
        )
        own[t] = now[who, slot[t], scene[t]]
    return own


def _stray(world: World, here: NDArray[np.intp], own: Small, uniform: Array) -> Small:
    """Another value than the user's own, all alike; the own one where there is no other."""
    strays = world.offered[here].astype(np.float64)
    np.put_along_axis(strays, own[..., None].astype(np.intp), 0.0, axis=-1)
    cumulated = np.cumsum(strays, axis=-1)
    return np.where(cumulated[..., -1] > 0.0, _sample_place(cumulated, uniform), own)
