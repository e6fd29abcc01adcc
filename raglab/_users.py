"""Users with true preferences, and what a block of them asks: drawn without a look at who answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._feed import stream
from raglab._learner import check_whole, refuse

Array = NDArray[np.float64]
Small = NDArray[np.int16]
BLOCK = 500  # users that share spawned streams; fixed, so that the bits are
OWN, TRAFFIC, STRAYS, COLUMNS, REPLIES = range(5)  # streams of a block
SUMS_TO_ONE = 1e-9
PLAIN = "here"  # the one scene of a world without conditions


class World(NamedTuple):
    """Traffic over rows of the default table, and what users truly want there.

    C contexts (row keys), S scenes (hidden strata that may decide the true value), V values, M columns.

    contexts: their names. values: candidate values of each, in the order in which they are proposed.
    traffic: share of the requests, [C]. scenes: share of a context's requests, [C, S].
    shares: of the users, by true value, [C, S, V]. stray: what a request wants that is noise, [C, S, V].
    noise: probability that a request wants another value than its user's own, [C].
    drift: probability, at a request, that the user's true values of the context are drawn anew, [C].
    columns: names of what is seen of a scene. levels: value of each column, as a number, [C, S, M].
    noise_columns, noise_levels: columns that say nothing, and how many values each has.
    notices: probability that a user corrects a silent wrong answer; it is taken for right otherwise.
    detects: probability that a wrong value comes back empty. names: that a user who says no names the right value.
    at_once: contexts that one user has, drawn by traffic; 0 all. per_day: requests of a user a day.
    """

    contexts: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    traffic: Array
    scenes: Array
    shares: Array
    stray: Array
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
        seen = int(self.levels.max(initial=-1)) + 1
        return max(seen, self.noise_levels if self.noise_columns else 0, 1)

    @property
    def slots(self) -> int:
        """Contexts of one user."""
        return min(self.at_once, len(self.contexts)) or len(self.contexts)


class Crowd(NamedTuple):
    """What a block of users asks: T requests of each of U users.

    topic: context of each slot, [U, slots]. slot: of the request, [T, U]. own: true value then. wanted: by the request.
    scene: hidden. level: of every column, those of noise last, [T, U, M]. notice, detect, name: what happens if.
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
      shares: context -> value -> share of the users; with `column`: context -> its level -> value -> share.
      column: seen condition that decides the true value. mix: its level -> share of the requests; equal if not given.
      traffic: by context, equal if not given. noise, drift: one, or one a context.
      more: other fields of `World`.

    Raises:
      ValueError: no context, shares that are none, probabilities outside [0, 1].

    Example:
      >>> made = world({"insurer/contract": {"body": {"1": 1.0}, "coversheet": {"toc": 1.0}}}, column="page_1_kind")
      >>> made.values, made.scenes.tolist(), made.shares[0].tolist()
      ((('1', 'toc'),), [[0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]])
    """
    if not shares:
        refuse("a world has at least one context", "none", "give shares by context")
    nested = {name: (one if column else {PLAIN: one}) for name, one in shares.items()}
    scenes = list(dict.fromkeys(scene for one in nested.values() for scene in one))
    values = tuple(tuple(dict.fromkeys(value for of in one.values() for value in of)) for one in nested.values())
    table = np.zeros((len(nested), len(scenes), max(len(one) for one in values)))
    there = np.zeros((len(nested), len(scenes)))
    for row, (name, one) in enumerate(nested.items()):
        for scene, of in one.items():
            at = row, scenes.index(scene)
            there[at] = 1.0 if mix is None else mix.get(scene, 0.0)
            table[at][[values[row].index(value) for value in of]] = _shares(name, list(of.values()))
    count = len(nested)
    return checked(
        World(
            tuple(nested),
            values,
            _shares("traffic", np.ones(count) if traffic is None else traffic),
            there / there.sum(axis=1, keepdims=True),
            table,
            _others(values, table.shape),
            np.broadcast_to(np.asarray(noise, np.float64), (count,)),
            np.broadcast_to(np.asarray(drift, np.float64), (count,)),
            (column,) if column else (),
            np.broadcast_to(np.arange(len(scenes), dtype=np.int16)[:, None], (count, len(scenes), int(bool(column)))),
            **more,
        )
    )


def _shares(name: str, given: ArrayLike) -> Array:
    """Numbers as shares that sum to 1."""
    parts = np.asarray(given, np.float64)
    if not (np.isfinite(parts).all() and (parts >= 0.0).all() and parts.sum() > 0.0):
        refuse(f"shares of {name} must be >= 0 and not all 0", parts.tolist(), "give a number a value")
    return np.asarray(parts / parts.sum())


def _others(values: Sequence[Sequence[str]], shape: tuple[int, ...]) -> Array:
    """Every value of a context alike, [C, S, V]."""
    table = np.zeros(shape)
    for row, one in enumerate(values):
        table[row, :, : len(one)] = 1.0
    return table


def checked(made: World) -> World:
    """The world itself.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    for name in ("noise", "drift", "notices", "detects", "names"):
        part = np.asarray(getattr(made, name), np.float64)
        if not ((part >= 0.0) & (part <= 1.0)).all():
            refuse(f"{name} must be in [0, 1]", np.unique(part).tolist(), "it is a probability")
    for name in ("traffic", "scenes", "shares"):
        sums = getattr(made, name).sum(axis=-1)
        wanted = (made.scenes > 0.0) if name == "shares" else np.ones_like(sums, dtype=bool)
        if (np.abs(sums - 1.0) > SUMS_TO_ONE)[wanted].any():
            refuse(f"{name} must sum to 1", sums[wanted].ravel()[:5].tolist(), "they are shares")
    check_whole("noise_columns", made.noise_columns, 0, "0 is none")
    check_whole("noise_levels", made.noise_levels, 1, "a column has at least one value")
    check_whole("at_once", made.at_once, 0, "0 is every context")
    if not made.per_day > 0.0:
        refuse("per_day must be > 0", made.per_day, "it is requests of a user a day")
    return made


def blocks(users: int) -> list[int]:
    """How many users each block has."""
    return [min(BLOCK, users - first) for first in range(0, users, BLOCK)]


def crowd(made: World, users: int, requests: int, seed: int, block: int) -> Crowd:
    """Block of users of a world that was checked; hangs on seed and block alone, and is the same for every policy."""
    rng = {kind: stream(seed, block, kind) for kind in range(5)}
    shape = (requests, users)
    topic = _topics(made, users, rng[OWN])
    slot = _drawn(np.cumsum(made.traffic[topic], axis=-1), rng[TRAFFIC].random(shape))
    here = np.take_along_axis(topic[None], slot[..., None].astype(np.intp), axis=2)[..., 0]
    scene = _drawn(np.cumsum(made.scenes, axis=-1)[here], rng[TRAFFIC].random(shape))
    own = _own(made, topic, slot, scene, rng[OWN])
    strays = rng[STRAYS].random(shape) < made.noise[here]
    wanted = np.where(strays, _stray(made, here, scene, own, rng[STRAYS].random(shape)), own)
    columns = [np.broadcast_to(made.levels[here, scene], (*shape, len(made.columns)))]
    if made.noise_columns:
        columns.append(rng[COLUMNS].integers(made.noise_levels, size=(*shape, made.noise_columns), dtype=np.int16))
    chances = (made.notices, made.detects, made.names)
    replies = [rng[REPLIES].random(shape) < chance for chance in chances]
    return Crowd(topic, slot, scene, own, wanted.astype(np.int16), np.concatenate(columns, axis=-1), *replies)


def _topics(made: World, users: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Contexts of each user, [U, slots]; drawn by traffic without replacement (Gumbel's keys)."""
    count = len(made.contexts)
    if made.slots == count:
        return np.broadcast_to(np.arange(count), (users, count))
    with np.errstate(divide="ignore"):
        keys = np.log(made.traffic) + rng.gumbel(size=(users, count))
    return np.sort(np.argsort(-keys, axis=1, kind="stable")[:, : made.slots], axis=1)


def _drawn(cumulated: Array, uniform: Array) -> Small:
    """Place of a uniform number among cumulated shares, in parts of their sum; never one of share 0 at the end."""
    ends = np.where(cumulated[..., :-1] < cumulated[..., -1:], cumulated[..., :-1], np.inf)
    return np.asarray((uniform[..., None] * cumulated[..., -1:] >= ends).sum(axis=-1), np.int16)


def _own(made: World, topic: NDArray[np.intp], slot: Small, scene: Small, rng: np.random.Generator) -> Small:
    """True value of each user at each request, [T, U], in the scene of the request."""
    requests, users = slot.shape
    cumulated = np.cumsum(made.shares, axis=-1)
    n_scenes, who = made.shares.shape[1], np.arange(users)
    now = _drawn(cumulated[topic], rng.random((users, topic.shape[1], n_scenes)))
    if not made.drift.any():
        return now[who, slot, scene]
    own = np.empty(slot.shape, np.int16)
    turned = rng.random(slot.shape) < made.drift[topic[who, slot]]
    for t in range(requests):
        anew = np.flatnonzero(turned[t])
        again = rng.random((len(anew), n_scenes))
        now[anew, slot[t, anew]] = _drawn(cumulated[topic[anew, slot[t, anew]]], again)
        own[t] = now[who, slot[t], scene[t]]
    return own


def _stray(made: World, here: NDArray[np.intp], scene: Small, own: Small, uniform: Array) -> Small:
    """Another value than the user's own, by the strays' shares; the own one where there is no other."""
    table = made.stray[here, scene].copy()
    np.put_along_axis(table, own[..., None].astype(np.intp), 0.0, axis=-1)
    cumulated = np.cumsum(table, axis=-1)
    return np.where(cumulated[..., -1] > 0.0, _drawn(cumulated, uniform), own)
