"""Simulated users (algebra): worlds, and what a block of users asks and wants (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.bandit.environments import stream
from raglab.bandit.learner import check_count
from raglab.values import BoolArray, FloatArray, PlaceArray, SlotArray, refuse

MAX_NUMBERED = int(np.iinfo(np.int16).max)
USERS_PER_BLOCK = 500  # users that share spawned streams; fixed, so that the bits are
# streams of a block
OWN_STREAM, TRAFFIC_STREAM, STRAY_STREAM, COLUMN_STREAM, REPLY_STREAM = range(5)
SHARE_SUM_TOLERANCE = 1e-9
PLAIN_SCENE = "here"  # the one scene of a world without conditions


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
    traffic: FloatArray
    scenes: FloatArray
    shares: FloatArray
    noise: FloatArray
    drift: FloatArray
    columns: tuple[str, ...]
    levels: SlotArray
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
    def offered(self) -> BoolArray:
        """Places of the candidate values of each context, [C, V]."""
        counts = np.array([len(values) for values in self.values])
        return np.arange(self.shares.shape[-1]) < counts[:, None]

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

    topic: PlaceArray
    slot: SlotArray
    scene: SlotArray
    own: SlotArray
    wanted: SlotArray
    level: SlotArray
    notice: BoolArray
    detect: BoolArray
    name: BoolArray


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
    scene_shares = {
        context: (context_shares if column else {PLAIN_SCENE: context_shares})
        for context, context_shares in shares.items()
    }
    scene_names = list(
        dict.fromkeys(
            scene for shares_by_scene in scene_shares.values() for scene in shares_by_scene
        )
    )
    context_values = tuple(
        tuple(
            dict.fromkeys(
                value for value_shares in shares_by_scene.values() for value in value_shares
            )
        )
        for shares_by_scene in scene_shares.values()
    )
    # one rectangle for all contexts: a value that one does not have keeps share 0
    share_table = np.zeros(
        (len(scene_shares), len(scene_names), max(len(candidates) for candidates in context_values))
    )
    scene_weights = np.zeros((len(scene_shares), len(scene_names)))
    for context_index, (context, shares_by_scene) in enumerate(scene_shares.items()):
        for scene, value_shares in shares_by_scene.items():
            scene_cell = context_index, scene_names.index(scene)
            # scenes that a context lacks keep weight 0; the rest is made shares below
            scene_weights[scene_cell] = 1.0 if mix is None else mix.get(scene, 0.0)
            share_table[scene_cell][
                [context_values[context_index].index(value) for value in value_shares]
            ] = _normalised_shares(context, list(value_shares.values()))
    # one number stands for every context, and is checked as one a context is
    n_contexts = len(scene_shares)
    return check_simulated_world(
        World(
            tuple(scene_shares),
            context_values,
            _normalised_shares("traffic", np.ones(n_contexts) if traffic is None else traffic),
            scene_weights / scene_weights.sum(axis=1, keepdims=True),
            share_table,
            np.broadcast_to(np.asarray(noise, np.float64), (n_contexts,)),
            np.broadcast_to(np.asarray(drift, np.float64), (n_contexts,)),
            (column,) if column else (),
            np.broadcast_to(
                np.arange(len(scene_names), dtype=np.int16)[:, None],
                (n_contexts, len(scene_names), int(bool(column))),
            ),
            **more,
        )
    )


def _normalised_shares(share_name: str, numbers: ArrayLike) -> FloatArray:
    """Numbers as shares that sum to 1."""
    weights = np.asarray(numbers, np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.sum() > 0.0):
        refuse(
            f"shares of {share_name} must be >= 0 and not all 0",
            weights.tolist(),
            "give a number a value",
        )
    return np.asarray(weights / weights.sum())


def check_simulated_world(world: World) -> World:
    """The world itself.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    for field_name in ("noise", "drift", "notices", "detects", "names"):
        probabilities = np.asarray(getattr(world, field_name), np.float64)
        if not ((probabilities >= 0.0) & (probabilities <= 1.0)).all():
            refuse(
                f"{field_name} must be in [0, 1]",
                np.unique(probabilities).tolist(),
                "it is a probability",
            )
    needs_shares = {"traffic": True, "scenes": True, "shares": world.scenes > 0.0}
    for field_name, is_needed in needs_shares.items():
        share_sums = getattr(world, field_name).sum(axis=-1)
        if ((np.abs(share_sums - 1.0) > SHARE_SUM_TOLERANCE) & is_needed).any():
            refuse(
                f"{field_name} must sum to 1", share_sums.ravel()[:5].tolist(), "they are shares"
            )
    world_sizes = {
        field_name: getattr(world, field_name)
        for field_name in ("noise_columns", "noise_levels", "at_once")
    }
    for field_name, field_size in world_sizes.items():
        smallest = int(field_name == "noise_levels")
        check_count(
            field_name, field_size, smallest, "state at least one" if smallest else "0 is none"
        )
    # Scenes, values and levels are numbered in 16 bits.
    n_contexts, n_scenes, n_values = world.shares.shape
    world_sizes |= {"contexts": n_contexts, "scenes": n_scenes, "values": n_values}
    for field_name, field_size in world_sizes.items():
        if field_size > MAX_NUMBERED:
            refuse(
                f"{field_name} must be at most {MAX_NUMBERED:,}",
                f"{field_size:,}",
                "leave some out",
            )
    if not world.per_day > 0.0:
        refuse("per_day must be > 0", world.per_day, "it is requests of a user a day")
    return world


def user_blocks(users: int) -> list[int]:
    """How many users each block has."""
    return [
        min(USERS_PER_BLOCK, users - first_user) for first_user in range(0, users, USERS_PER_BLOCK)
    ]


def crowd(world: World, users: int, requests: int, seed: int, block: int) -> Crowd:
    """Block of users of a world that was checked.

    Hangs on seed and block alone, and is the same for every policy.
    """
    generators = {stream_number: stream(seed, block, stream_number) for stream_number in range(5)}
    request_shape = (requests, users)
    user_topics = _user_topics(world, users, generators[OWN_STREAM])
    request_slots = _sampled_places(
        np.cumsum(world.traffic[user_topics], axis=-1),
        generators[TRAFFIC_STREAM].random(request_shape),
    )
    request_topics = np.take_along_axis(
        user_topics[None], request_slots[..., None].astype(np.intp), axis=2
    )[..., 0]
    request_scenes = _sampled_places(
        np.cumsum(world.scenes, axis=-1)[request_topics],
        generators[TRAFFIC_STREAM].random(request_shape),
    )
    own_values = _true_values(
        world, user_topics, request_slots, request_scenes, generators[OWN_STREAM]
    )
    is_stray = generators[STRAY_STREAM].random(request_shape) < world.noise[request_topics]
    wanted_values = np.where(
        is_stray,
        _stray_values(
            world, request_topics, own_values, generators[STRAY_STREAM].random(request_shape)
        ),
        own_values,
    )
    level_columns = [
        np.broadcast_to(
            world.levels[request_topics, request_scenes], (*request_shape, len(world.columns))
        )
    ]
    if world.noise_columns:
        level_columns.append(
            generators[COLUMN_STREAM].integers(
                world.noise_levels, size=(*request_shape, world.noise_columns), dtype=np.int16
            )
        )
    reply_chances = (world.notices, world.detects, world.names)
    replies = [
        generators[REPLY_STREAM].random(request_shape) < reply_chance
        for reply_chance in reply_chances
    ]
    return Crowd(
        user_topics,
        request_slots,
        request_scenes,
        own_values,
        wanted_values.astype(np.int16),
        np.concatenate(level_columns, axis=-1),
        *replies,
    )


def _user_topics(world: World, users: int, rng: np.random.Generator) -> PlaceArray:
    """Contexts of each user, [U, slots]; drawn by traffic without replacement (Gumbel's keys)."""
    n_contexts = len(world.contexts)
    if world.slots == n_contexts:
        return np.broadcast_to(np.arange(n_contexts), (users, n_contexts))
    with np.errstate(divide="ignore"):
        keys = np.log(world.traffic) + rng.gumbel(size=(users, n_contexts))
    return np.sort(np.argsort(-keys, axis=1, kind="stable")[:, : world.slots], axis=1)


def _sampled_places(cumulated: FloatArray, uniforms: FloatArray) -> SlotArray:
    """Place of a uniform number among cumulated shares, in parts of their sum.

    Never one of share 0 at the end.
    """
    share_ends = np.where(cumulated[..., :-1] < cumulated[..., -1:], cumulated[..., :-1], np.inf)
    return np.asarray(
        (uniforms[..., None] * cumulated[..., -1:] >= share_ends).sum(axis=-1), np.int16
    )


def _true_values(
    world: World,
    user_topics: PlaceArray,
    request_slots: SlotArray,
    request_scenes: SlotArray,
    rng: np.random.Generator,
) -> SlotArray:
    """True value of each user at each request, [T, U], in the scene of the request."""
    requests, users = request_slots.shape
    cumulated_shares = np.cumsum(world.shares, axis=-1)
    n_scenes = world.shares.shape[1]
    user_numbers = np.arange(users)
    current_values = _sampled_places(
        cumulated_shares[user_topics], rng.random((users, user_topics.shape[1], n_scenes))
    )
    if not world.drift.any():
        return current_values[user_numbers, request_slots, request_scenes]
    own_values = np.empty(request_slots.shape, np.int16)
    is_drift = (
        rng.random(request_slots.shape) < world.drift[user_topics[user_numbers, request_slots]]
    )
    for request_index in range(requests):
        drifting_users = np.flatnonzero(is_drift[request_index])
        new_uniforms = rng.random((len(drifting_users), n_scenes))
        current_values[drifting_users, request_slots[request_index, drifting_users]] = (
            _sampled_places(
                cumulated_shares[
                    user_topics[drifting_users, request_slots[request_index, drifting_users]]
                ],
                new_uniforms,
            )
        )
        own_values[request_index] = current_values[
            user_numbers, request_slots[request_index], request_scenes[request_index]
        ]
    return own_values


def _stray_values(
    world: World, request_topics: PlaceArray, own_values: SlotArray, uniforms: FloatArray
) -> SlotArray:
    """Another value than the user's own, all alike; the own one where there is no other."""
    stray_weights = world.offered[request_topics].astype(np.float64)
    np.put_along_axis(stray_weights, own_values[..., None].astype(np.intp), 0.0, axis=-1)
    cumulated_weights = np.cumsum(stray_weights, axis=-1)
    return np.where(
        cumulated_weights[..., -1] > 0.0, _sampled_places(cumulated_weights, uniforms), own_values
    )
