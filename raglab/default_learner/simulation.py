"""Simulated users (algebra): what default learners ask and get wrong over many requests (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.bandit.environments import stream
from raglab.bandit.learner import check_count
from raglab.default_learner.confidence import (
    FAILED,
    N_COUNTS,
    NAMED,
    NO,
    SIGNALS,
    SILENT,
    YES,
    DefaultLearner,
    Votes,
    add_signal,
    decay_votes,
    mean,
    no_votes,
    question_schedule,
    vote_confidence,
    vote_counts,
)
from raglab.default_learner.confidence import check_learner as settled
from raglab.default_learner.stratification import doubts, evidence
from raglab.loops.parallel import jobs, run_each
from raglab.metrics.intervals import check_level, clopper_pearson, mean_interval
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

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


Index = NDArray[np.intp]

NONE = -1


@dataclass
class DefaultRowArrays:
    """Default rows of U users, changed in place.

    Of each slot the parent, then one for each level L it may split into.

    counts, n, confidence, met, day: of every row, R = U · slots · (1 + L). The others: of the
    parents, P = U · slots. met: requests that met the row. day: of its last vote. strata: by column
    and level, as of `ClarificationDefault`. column: a row was split by it at request split_at; -1
    not. there: whether the split made a row for a level.

    Values that tie go by the order of the candidates, where `ClarificationDefault` takes the first
    that was voted on.
    """

    learner: DefaultLearner
    slots: int
    n_levels: int
    counts: Array  # [R, V, 7]
    n: Array
    confidence: Array
    met: NDArray[np.int32]
    day: Array
    strata: Array  # [P, M, L, V, 7]; L is 0 where rows never split
    column: Small
    split_at: NDArray[np.int32]
    there: NDArray[np.bool_]  # [P, L]

    def at(self, who: Index, slot: Small, level: Small) -> tuple[Index, Index]:
        """Most specific row that each user's request meets, [U], and the parent of its slot."""
        parent = who * self.slots + slot
        column, row = self.column[parent], parent * (1 + self.n_levels)
        if not (column >= 0).any():
            return row, parent
        own = level[np.arange(len(who)), column].astype(np.intp)
        return row + np.where((column >= 0) & self.there[parent, own], 1 + own, 0), parent

    def asks(self, row: Index) -> NDArray[np.bool_]:
        """Whether the request that meets each row now is asked: as `default_learner.asks`."""
        return question_schedule(self.confidence[row], self.met[row], self.learner)

    def liking(self, row: Index, offered: NDArray[np.bool_]) -> Array:
        """Score by which `suggest` takes the first best of the values offered, [U, V].

        0 without a vote for it.
        """
        votes = Votes(self.counts[row], self.n[row])
        liked = vote_counts(votes)
        score = np.where(
            liked > 0.0,
            mean(votes, self.learner) if self.learner.rule == "posterior" else liked,
            0.0,
        )
        return np.where(offered, score, -np.inf)

    def vote(self, row: Index, value: Index, signal: Index, named: Index, day: float) -> None:
        """One signal to each row, all different."""
        before = Votes(self.counts[row], self.n[row])
        if self.learner.half_life_days > 0.0:
            before = decay_votes(
                before, 0.5 ** ((day - self.day[row]) / self.learner.half_life_days)
            )
        after = add_signal(before, value, signal, named, self.learner)
        self.counts[row], self.n[row], self.day[row] = after.counts, after.n, day
        self.confidence[row] = vote_confidence(after, self.learner)

    def stratum(
        self, parent: Index, value: Index, signal: Index, named: Index, level: Small
    ) -> None:
        """The same signal to the counts by condition of rows that are not split."""
        if not self.n_levels:
            return
        is_whole = self.column[parent] < 0
        levels = level[is_whole]
        cell = (parent[is_whole][:, None], np.arange(levels.shape[1]), levels)
        votes = Votes(self.strata[cell], np.zeros(levels.shape))
        about, kind, right = (part[is_whole][:, None] for part in (value, signal, named))
        self.strata[cell] = add_signal(votes, about, kind, right).counts

    def stratify(
        self, parent: Index, success: Index, level: Small, request: int, day: float
    ) -> None:
        """Split those of the rows, all different, that a rule parts: as `default_learner.stratify`.

        Args:
          success: value that each row's last signal was a success of, -1 none.
          level: of its request, [D, M].
        """
        if not self.n_levels:
            return
        going = self.column[parent] < 0
        parent, success, level = parent[going], success[going], level[going]
        if not len(parent):
            return
        if self.learner.split == "source":
            self._stratify_at_success(parent, success, level, request, day)
            return
        # Votes may age, strata do not; each request has a value of every column.
        counts = np.moveaxis(self.strata[parent], 2, 3)  # [D, M, V, L, 7]
        # trials of a value and those that were wrong: as `stratification.outcomes`
        wrong = np.rint(counts[..., NO] + counts[..., FAILED]).astype(np.int64)
        of = wrong + np.rint(counts[..., YES] + counts[..., SILENT]).astype(np.int64)
        parts = (of > 0).sum(axis=-1)
        tried = (parts > 1) & (wrong.any(axis=-1))  # where nothing was wrong nothing is found
        e_values = np.zeros(tried.shape)
        there = of[tried]
        e_values[tried] = (
            np.where(there > 0, evidence(wrong[tried], there), 0.0).sum(axis=-1) / parts[tried]
        )
        e_values = e_values.reshape(len(parent), -1)
        bar = np.maximum((parts > 1).sum(axis=(1, 2)), 1) / self.learner.alpha
        best = e_values.argmax(axis=1)
        enough = e_values[np.arange(len(e_values)), best] >= bar
        if enough.any():
            self._split(parent[enough], best[enough] // counts.shape[2], request, day)

    def _stratify_at_success(
        self, parent: Index, success: Index, level: Small, request: int, day: float
    ) -> None:
        """Split rows at a success with another candidate than one that failed there.

        As `source_split`.
        """
        there = success >= 0
        parent, success, level = parent[there], success[there], level[there]
        if not len(parent):
            return
        right = self.strata[parent][..., [YES, NAMED, SILENT]].sum(axis=-1)  # [D, M, L, V]
        row, column = np.arange(len(parent))[:, None], np.arange(level.shape[1])
        here = right[row, column, level]  # [D, M, V]
        failed = self.strata[parent[:, None], column, level][..., FAILED] > 0.0
        failed[np.arange(len(parent)), :, success] = False
        # Never right here counts before right elsewhere: no row has so many signals.
        # The shape is [D, M].
        score = np.where(failed, (here == 0.0) * _ALL_SIGNALS + right.sum(axis=2) - here, -1.0).max(
            axis=2
        )
        enough = score.max(axis=1) >= 0.0
        if enough.any():
            self._split(parent[enough], score.argmax(axis=1)[enough], request, day)

    def _split(self, parent: Index, column: Index, request: int, day: float) -> None:
        """Rows of the levels of a column, with the votes that were cast under them.

        As `default_learner.split`.
        """
        first = parent * (1 + self.n_levels)
        counts = self.strata[parent, column]  # [D, L, V, 7]
        total = counts[..., [YES, SILENT, NO, FAILED]].sum(axis=(1, 2, 3))
        self.there[parent] = counts.sum(axis=(2, 3)) > 0.0
        self.column[parent], self.split_at[parent] = column, request
        counts[..., FAILED] = 0.0
        n = counts[..., [YES, SILENT, NO]].sum(axis=(2, 3))
        votes = doubts(Votes(counts, n), self.learner)
        if self.learner.half_life_days > 0.0:
            votes = decay_votes(votes, np.broadcast_to((self.n[first] / total)[:, None], n.shape))
        rows = first[:, None] + 1 + np.arange(self.n_levels)
        self.counts[rows], self.n[rows], self.day[rows] = votes.counts, votes.n, day
        self.confidence[rows] = vote_confidence(votes, self.learner)


_ALL_SIGNALS = 2.0**40  # more than a row ever has


def empty_rows(world: World, users: int, learner: DefaultLearner) -> DefaultRowArrays:
    """Rows without a vote."""
    n_columns, n_values = len(world.columns) + world.noise_columns, world.shares.shape[-1]
    splits = learner.stratify and n_columns > 0
    n_levels, parents = world.n_levels if splits else 0, users * world.slots
    size = parents * (1 + n_levels)
    strata = np.zeros((parents, n_columns, n_levels, n_values, N_COUNTS))
    return DefaultRowArrays(
        learner,
        world.slots,
        n_levels,
        np.zeros((size, n_values, N_COUNTS)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size, np.int32),
        np.zeros(size),
        strata,
        np.full(parents, NONE, np.int16),
        np.full(parents, NONE, np.int32),
        np.zeros((parents, n_levels), bool),
    )


Bools = NDArray[np.bool_]
Ints = NDArray[np.integer[Any]]
Baseline = Literal["always_ask", "never_ask", "oracle"]
BASELINES: tuple[Baseline, ...] = ("always_ask", "never_ask", "oracle")
ALWAYS, NEVER, ORACLE = BASELINES
SIGNAL_YES, SIGNAL_NO, SIGNAL_OK, SIGNAL_FAILURE = (
    SIGNALS.index(name) for name in ("explicit_yes", "explicit_no", "implicit_ok", "failure")
)


Policy: TypeAlias = DefaultLearner | Baseline


class RequestOutcomes(NamedTuple):
    """What came of every request of U users, T each.

    question: one was asked. error: a wrong value was applied silently. unanswered: nobody named a
    right value. unnoticed: errors that were taken for right. slot, topic: as of `Crowd`. split:
    request of the user at which the row of a slot was split, and by which column, [U, slots]; -1
    never.
    """

    question: Bools  # [U, T]
    error: Bools
    unanswered: Bools
    unnoticed: Bools
    slot: NDArray[np.int16]
    topic: NDArray[np.intp]
    split: NDArray[np.int32]
    column: NDArray[np.int16]


def request_outcomes(
    world: World,
    policy: Policy,
    *,
    users: int,
    requests: int,
    seed: int,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    n_jobs: int = 1,
) -> RequestOutcomes:
    """Outcome of every request of every user under one policy.

    Users meet the same requests, noise and drift under every policy of one seed, in any block or
    process. Each user has separate default rows. The row proposes a value. A wrong value finds
    nothing with probability `detects`: signal failure, and a question about the best of the others.
    Else the gate asks or applies. A user who is asked says yes, or says no and names the right
    value with probability `names`. A wrong value applied is a silent error, which its user corrects
    with probability `notices` and else lets pass (implicit_ok, wrongly). A learner that stratifies
    may split each row once.

    Baselines: `always_ask`; `never_ask` applies the first candidate until its user has corrected
    it, and refuses where it finds nothing; `oracle` knows its user's true value and the
    probabilities of the world, applies the value silently, and asks only where that is cheaper.

    Args:
      world: the world that the users live in.
      policy: a learner, or a baseline by name.
      users: number of users.
      requests: of each user.
      seed: of the world and the users.
      question_cost: cost of a question, for the oracle.
      error_cost: cost of a silent error, for the oracle.
      n_jobs: processes, as joblib counts them.

    Raises:
      ValueError: sizes below 1, an unknown policy, a world that breaks a rule.
    """
    check_count("users", users, 1, "simulate at least one")
    check_count("requests", requests, 1, "simulate at least one")
    check_count("seed", seed, 0, "the same seed gives the same bits")
    if not isinstance(policy, DefaultLearner) and policy not in BASELINES:
        rule = f"a policy must be a DefaultLearner, or one of {', '.join(BASELINES)}"
        refuse(rule, repr(policy), "choose one of them")
    shared = (check_simulated_world(world), policy, requests, seed, question_cost, error_cost)
    blocks = list(enumerate(user_blocks(users)))
    with jobs(n_jobs):
        done = list(run_each(_block_outcomes, blocks, *shared, what="simulate", unit="block"))
    return RequestOutcomes(*(np.concatenate(parts) for parts in zip(*done, strict=True)))


def _block_outcomes(
    block: tuple[int, int],
    world: World,
    policy: Policy,
    requests: int,
    seed: int,
    question_cost: float,
    error_cost: float,
) -> RequestOutcomes:
    """Outcomes of one block of users, (number, size)."""
    met = crowd(world, block[1], requests, seed, block[0])
    if policy == ORACLE:
        return _oracle(world, met, question_cost, error_cost)
    return _play_block(world, met, policy)


def _oracle(world: World, met: Crowd, question_cost: float, error_cost: float) -> RequestOutcomes:
    """Applies the user's own value where what noise then costs is less than a question.

    What comes back empty is asked about in any case, with the likeliest stray of those left.
    """
    here = met.topic[np.arange(met.slot.shape[1]), met.slot]
    noise = world.noise[here]
    unseen = noise * (1.0 - world.detects)
    asking = question_cost * (1.0 + unseen * (1.0 - world.names))
    silent = noise * world.detects * question_cost + unseen * error_cost <= asking
    strays = world.offered[here].astype(np.float64)
    np.put_along_axis(strays, met.own[..., None].astype(np.intp), -1.0, axis=-1)
    off = met.wanted != met.own
    empty = off & met.detect
    error = silent & off & ~empty
    question = ~silent | empty
    lost = off & ~met.name & ~(empty & (strays.argmax(axis=-1) == met.wanted))
    never = np.full(met.topic.shape, NONE, np.int16)
    flags = question, error, question & lost, error & ~met.notice
    return _account(met, flags, never.astype(np.int32), never)


def _account(met: Crowd, flags: tuple[Bools, ...], split: Ints, column: Ints) -> RequestOutcomes:
    """Outcomes [U, T] of flags [T, U], as they are named first in `RequestOutcomes`."""
    by_user = (np.ascontiguousarray(part.T) for part in (*flags, met.slot))
    of_slots = (split.reshape(met.topic.shape), column.reshape(met.topic.shape))
    fields: Any = (*by_user, met.topic, *of_slots)
    return RequestOutcomes(*fields)


def _play_block(world: World, met: Crowd, policy: Policy) -> RequestOutcomes:
    """One block under a learner, request by request."""
    is_learner = isinstance(policy, DefaultLearner)
    plain = policy if isinstance(policy, DefaultLearner) else DefaultLearner(stratify=False)
    learner = settled(plain)
    requests, users = met.slot.shape
    rows, who = empty_rows(world, users, learner), np.arange(users)
    offered = world.offered[met.topic]  # [U, slots, V]
    question, error, unanswered, unnoticed = (np.zeros((requests, users), bool) for _ in range(4))
    for t in range(requests):
        day, slot, wanted, level = (
            t / world.per_day,
            met.slot[t],
            met.wanted[t].astype(np.intp),
            met.level[t],
        )
        row, parent = rows.at(who, slot, level)
        choice = offered[who, slot]
        liking = rows.liking(row, choice)
        value = liking.argmax(axis=1)
        learned = liking[who, value] > 0.0
        empty = (value != wanted) & met.detect[t]
        ask = rows.asks(row) | ~learned | empty
        if not is_learner:
            ask = np.full(users, policy == ALWAYS)
        rows.met[row] += 1
        # A default that comes back empty is a sign for a split, without a vote (rule S5.4).
        failed = np.flatnonzero(empty & learned)
        if len(failed):
            ballot = (
                value[failed],
                np.full(len(failed), SIGNAL_FAILURE),
                np.full(len(failed), NONE),
            )
            _count_votes(rows, row[failed], parent[failed], ballot, level[failed], t, day)
        liking[empty, value[empty]] = -np.inf  # what came back empty is not proposed
        choice[empty, value[empty]] = False
        value = liking.argmax(axis=1)
        right, none = value == wanted, empty & (policy == NEVER)
        wrong = ~ask & ~right & ~none
        rejects = (ask & ~right) | (wrong & met.notice[t])
        signal = np.where(
            rejects, SIGNAL_NO, np.where(ask, SIGNAL_YES, np.where(none, NONE, SIGNAL_OK))
        )
        names = rejects & (met.name[t] | wrong)  # who corrects a silent answer says what was wanted
        ballot = (value, signal, np.where(names, wanted, NONE))
        # a failure may have split it: the vote is cast under the condition
        row, _ = rows.at(who, slot, level)
        _count_votes(rows, row, parent, ballot, level, t, day)
        question[t], error[t], unnoticed[t] = ask, wrong, wrong & ~met.notice[t]
        unanswered[t] = (ask & ~right & ~met.name[t]) | none
    flags = question, error, unanswered, unnoticed
    return _account(met, flags, rows.split_at, rows.column)


def _count_votes(
    rows: DefaultRowArrays,
    row: Index,
    parent: Index,
    ballot: tuple[Index, Index, Index],
    level: Small,
    t: int,
    day: float,
) -> None:
    """Count value, signal and named value of each row at request t, and split parents if due."""
    rows.vote(row, *ballot, day)
    rows.stratum(parent, *ballot, level)
    value, signal, named = ballot
    accepted = np.where((signal == SIGNAL_YES) | (signal == SIGNAL_OK), value, NONE)
    success = np.where(named >= 0, named, accepted)
    spoken = signal >= 0
    rows.stratify(parent[spoken], success[spoken], level[spoken], t + 1, day)


HUNDRED = 100.0
QUIET = 10  # requests without a question after which a row counts as silent
BUCKETS = 20
MEASURES = ("questions", "errors", "unanswered", "cost", "regret", "silent")


class Silence(NamedTuple):
    """When rows fell silent, [U, slots].

    requests: that met the row. after: its requests up to its last question; 0 never asked; NaN not
    silent in the end.
    """

    requests: NDArray[np.int64]
    after: Array


def simulate(
    world: World,
    policies: Mapping[str, Policy],
    *,
    users: int = 2000,
    requests: int = 200,
    seed: int = 0,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    buckets: int = BUCKETS,
    level: float = 0.95,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Questions, silent errors, cost and regret of each policy, by bucket of requests.

    All policies meet the same users, requests and noise, so that their differences may be taken
    pair by pair; the bits depend neither on the number of processes nor on the other policies.

    Args:
      world: the world that the users live in.
      policies: name -> learner, or one of `BASELINES`, which `request_outcomes` describes.
      users: number of users.
      requests: of each user.
      seed: of the world and the users.
      question_cost: cost of a question or an unanswered request.
      error_cost: cost of a wrong value applied silently.
      buckets: number of buckets into which the requests are cut.
      level: of the intervals over users.
      n_jobs: processes, as joblib counts them.

    Returns:
      A row a policy and bucket: `policy`, `bucket`, `first`, `last` (numbers of its requests, from
        1), `questions`, `errors` (silent ones), `unanswered`, `cost`, each per 100 requests;
        `regret` (cost of a user above the oracle's, all requests up to `last`); `silent` (share of
        users who are not asked after `last`; NaN in the last bucket); each with `_low` and `_high`;
        `users`.

    Raises:
      ValueError: no policy, one that is unknown, sizes below 1, costs below 0, a world that breaks
        a rule.

    Source: rules S5.4, S5.5.

    Example:
      >>> from raglab.default_learner.simulation import world
      >>> table = simulate(
      ...     world({"a": {"x": 1.0}}),
      ...     {"learner": DefaultLearner()},
      ...     users=5,
      ...     requests=4,
      ...     buckets=2,
      ... )
      >>> table[["last", "questions", "errors"]].to_numpy().tolist()
      [[2.0, 50.0, 0.0], [4.0, 0.0, 0.0]]
    """
    import pandas as pd

    check_count("buckets", buckets, 1, "give at least one")
    for name, cost in (("question_cost", question_cost), ("error_cost", error_cost)):
        if not 0.0 <= cost < np.inf:
            refuse(f"{name} must be >= 0", cost, "it is what one costs")
    if not policies:
        refuse("policies must be at least one", "none", "give a learner or a baseline by name")
    check_level(level)
    sizes: dict[str, Any] = {"users": users, "requests": requests, "seed": seed, "n_jobs": n_jobs}
    costs: dict[str, Any] = {"question_cost": question_cost, "error_cost": error_cost}
    best = request_costs(request_outcomes(world, ORACLE, **sizes, **costs), **costs)
    parts = [
        _policy_rows(
            name,
            request_outcomes(world, policy, **sizes, **costs),
            best,
            costs,
            min(buckets, requests),
            level,
        )
        for name, policy in policies.items()
    ]
    return pd.concat(parts, ignore_index=True)


def request_costs(outcomes: RequestOutcomes, question_cost: float, error_cost: float) -> Array:
    """Cost of every request, [U, T].

    An unanswered one costs as much as a question: its user must ask again.
    """
    return np.asarray(
        question_cost * (outcomes.question + 1.0 * outcomes.unanswered)
        + error_cost * outcomes.error
    )


def silence(outcomes: RequestOutcomes, quiet: int = QUIET) -> Silence:
    """When each row fell silent: it asked nothing at its last `quiet` requests, or at none at all.

    A row that met fewer requests after its last question is not known to be silent: NaN.

    Args:
      outcomes: of the requests, as `request_outcomes` gives them.
      quiet: requests without a question.
    """
    slots = outcomes.topic.shape[1]
    at = outcomes.slot[..., None] == np.arange(slots)  # [U, T, slots]
    number = np.cumsum(at, axis=1)
    total = number[:, -1]
    last = np.where(at & outcomes.question[..., None], number, 0).max(axis=1)
    return Silence(total, np.where(total - last >= quiet, last.astype(np.float64), np.nan))


def confidence_paths(learners: Mapping[str, DefaultLearner], requests: int) -> pd.DataFrame:
    """Confidence of a row whose value is always right, by request, after one yes at the first.

    Args:
      learners: name -> settings.
      requests: number of requests of the row.

    Returns:
      A row a learner, request and way: `learner`, `gated`, `request`, `question`, `confidence`
        (after it). `gated` false: the value is applied silently from then on; true: the gate asks
        when it is due, and the answer is yes.

    Source: rules S5.4, S5.5.

    Example:
      >>> confidence_paths({"vote_share": DefaultLearner()}, 3)["confidence"].tolist()
      [1.0, 0.75, 0.6666666666666666, 1.0, 0.75, 0.6666666666666666]
    """
    import pandas as pd

    check_count("requests", requests, 1, "give at least one")
    rows = []
    for name, learner in learners.items():
        for gated in (False, True):
            votes, sure = no_votes(1), 0.0
            for request in range(1, requests + 1):
                asks = request == 1 or (
                    gated and bool(question_schedule(sure, request - 1, learner))
                )
                votes = add_signal(
                    votes, 0, SIGNALS.index("explicit_yes" if asks else "implicit_ok")
                )
                sure = float(vote_confidence(votes, learner))
                rows.append((name, gated, request, asks, sure))
    return pd.DataFrame(rows, columns=["learner", "gated", "request", "question", "confidence"])


def _policy_rows(
    name: str,
    outcomes: RequestOutcomes,
    best: Array,
    costs: Mapping[str, float],
    buckets: int,
    level: float,
) -> pd.DataFrame:
    """Rows of one policy."""
    import pandas as pd

    requests = outcomes.question.shape[1]
    ends = np.rint(np.linspace(0, requests, buckets + 1)).astype(np.int64)
    size = np.diff(ends)
    cost = request_costs(outcomes, **costs)
    by_user = {
        "questions": outcomes.question,
        "errors": outcomes.error,
        "unanswered": outcomes.unanswered,
        "cost": cost,
    }
    columns: dict[str, object] = {
        "policy": name,
        "bucket": np.arange(buckets),
        "first": ends[:-1] + 1,
        "last": ends[1:],
    }
    for measure, part in by_user.items():
        sums = np.add.reduceat(part.astype(np.float64), ends[:-1], axis=1)
        columns |= _interval_columns(measure, HUNDRED * sums / size, level)
    columns |= _interval_columns("regret", np.cumsum(cost - best, axis=1)[:, ends[1:] - 1], level)
    last = np.where(outcomes.question, np.arange(1, requests + 1), 0).max(axis=1)
    quiet = (last[:, None] <= ends[1:]).sum(axis=0)
    low, high = clopper_pearson(quiet, len(last), level)
    open_end = ends[1:] == requests
    for key, value in (("silent", quiet / len(last)), ("silent_low", low), ("silent_high", high)):
        columns[key] = np.where(open_end, np.nan, value)
    return pd.DataFrame(columns | {"users": len(last)})


def _interval_columns(name: str, values: Array, level: float) -> dict[str, object]:
    """Mean over the users and its t interval, by column; NaN where there is one user."""
    low, high = mean_interval(values, level)
    return {name: values.mean(axis=0), f"{name}_low": low, f"{name}_high": high}
