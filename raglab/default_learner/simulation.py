"""Simulation (algebra): what default learners ask and get wrong over many requests (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import check_count
from raglab.default_learner.confidence import (
    SIGNALS,
    DefaultLearner,
    add_signal,
    no_votes,
    question_schedule,
    vote_confidence,
)
from raglab.default_learner.confidence import check_learner as settled
from raglab.default_learner.row_arrays import NONE, DefaultRowArrays, Index, empty_rows
from raglab.default_learner.simulated_users import (
    Array,
    Crowd,
    Small,
    World,
    check_simulated_world,
    crowd,
    user_blocks,
)
from raglab.loops.parallel import jobs, run_each
from raglab.metrics.intervals import check_level, clopper_pearson, mean_interval
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd


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
      >>> from raglab.default_learner.simulated_users import world
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
