"""Simulation of asking once: a learner before thousands of users at once, one loop over their requests."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raglab._asked_rows import Rows, opened
from raglab._learner import check_whole, refuse
from raglab._users import Crowd, World, blocks, checked, crowd
from raglab._votes import SIGNALS, Learner
from raglab._votes import checked as settled

Bools = NDArray[np.bool_]
Baseline = Literal["always_ask", "never_ask", "oracle"]
BASELINES: tuple[Baseline, ...] = ("always_ask", "never_ask", "oracle")
ALWAYS, NEVER, ORACLE = BASELINES
YES, NO, OK, FAILURE = (SIGNALS.index(name) for name in ("explicit_yes", "explicit_no", "implicit_ok", "failure"))
NONE = -1


class Priced(NamedTuple):
    """A learner that asks only where a question is worth its cost, as the loop does: see `worth_asking`."""

    learner: Learner


Policy: TypeAlias = Learner | Priced | Baseline


class Asked(NamedTuple):
    """What came of every request of U users, T each.

    question: one was asked. error: a wrong value was applied silently. unanswered: nobody named a right value.
    unnoticed: errors that were taken for right. slot, topic: as of `Crowd`. split: request of the user at which the row
    of a slot was split, and by which column, [U, slots]; -1 never.
    """

    question: Bools  # [U, T]
    error: Bools
    unanswered: Bools
    unnoticed: Bools
    slot: NDArray[np.int16]
    topic: NDArray[np.intp]
    split: NDArray[np.int32]
    column: NDArray[np.int16]


def asked(
    world: World,
    policy: Policy,
    *,
    users: int,
    requests: int,
    seed: int,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    n_jobs: int = 1,
) -> Asked:
    """What came of every request of every user under one policy.

    Users meet the same requests, noise and drift under every policy of one seed, whatever block or process they are
    in. Each has default rows of its own. The row proposes a value. A wrong one comes back empty with probability
    `detects`: signal failure, and a question about the best of the others. Else the gate asks or applies. Who is asked
    says yes, or says no and names the right value with probability `names`. A wrong value applied is a silent error,
    which its user corrects with probability `notices` and lets pass else (implicit_ok, wrongly). A learner that
    stratifies may split each row once.

    Baselines: `always_ask`; `never_ask` applies the first candidate until its user has corrected it, and refuses what
    came back empty; `oracle` knows its
    user's own value and the probabilities of the world, applies the value silently, and asks only where that is
    cheaper.

    Args:
      question_cost, error_cost: of one each, for the oracle. n_jobs: processes, as joblib counts them.

    Raises:
      ValueError: sizes below 1, an unknown policy, a world that breaks a rule.
    """
    check_whole("users", users, 1, "simulate at least one")
    check_whole("requests", requests, 1, "simulate at least one")
    check_whole("seed", seed, 0, "the same seed gives the same bits")
    if not isinstance(policy, Learner | Priced) and policy not in BASELINES:
        rule = f"a policy must be a Learner, a Priced one, or one of {', '.join(BASELINES)}"
        refuse(rule, repr(policy), "choose one of them")
    made = checked(world)

    def one(block: int, size: int) -> Asked:
        met = crowd(made, size, requests, seed, block)
        play = _oracle if policy == ORACLE else partial(_played, policy=policy)
        return play(made, met, question_cost=question_cost, error_cost=error_cost)

    work = list(enumerate(blocks(users)))
    if n_jobs == 1 or len(work) == 1:
        done = [one(block, size) for block, size in work]
    else:
        from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

        done = Parallel(n_jobs=n_jobs)(delayed(one)(block, size) for block, size in work)
    return Asked(*(np.concatenate(parts) for parts in zip(*done, strict=True)))


def _oracle(made: World, met: Crowd, question_cost: float, error_cost: float) -> Asked:
    """Applies the user's own value where what noise then costs is less than a question.

    What comes back empty is asked about in any case, with the likeliest stray of those left.
    """
    here = met.topic[np.arange(met.slot.shape[1]), met.slot]
    noise = made.noise[here]
    unseen = noise * (1.0 - made.detects)
    asking = question_cost * (1.0 + unseen * (1.0 - made.names))
    silent = noise * made.detects * question_cost + unseen * error_cost <= asking
    strays = made.stray[here, met.scene].copy()
    np.put_along_axis(strays, met.own[..., None].astype(np.intp), -1.0, axis=-1)
    off = met.wanted != met.own
    empty = off & met.detect
    error = silent & off & ~empty
    question = ~silent | empty
    lost = off & ~met.name & ~(empty & (strays.argmax(axis=-1) == met.wanted))
    return _account(met, question, error, question & lost, error & ~met.notice)


def _account(
    met: Crowd, question: Bools, error: Bools, unanswered: Bools, unnoticed: Bools, rows: Rows | None = None
) -> Asked:
    never = np.full(met.topic.shape, NONE)
    split, column = (never, never) if rows is None else (rows.split_at, rows.column)
    by_user = [np.ascontiguousarray(part.T) for part in (question, error, unanswered, unnoticed, met.slot)]
    of_slots = split.reshape(never.shape).astype(np.int32), column.reshape(never.shape).astype(np.int16)
    fields: Any = (*by_user, met.topic, *of_slots)
    return Asked(*fields)


def _played(made: World, met: Crowd, policy: Policy, question_cost: float, error_cost: float) -> Asked:
    """One block under a learner, request by request."""
    learner = settled(policy.learner if isinstance(policy, Priced) else _learner(policy))
    requests, users = met.slot.shape
    rows, who = opened(made, users, learner), np.arange(users)
    known = np.array([len(one) for one in made.values])
    offered = np.arange(made.shares.shape[-1]) < known[met.topic][..., None]  # [U, slots, V]
    question, error, unanswered, unnoticed = (np.zeros((requests, users), bool) for _ in range(4))
    for t in range(requests):
        day, slot, wanted, level = t / made.per_day, met.slot[t], met.wanted[t].astype(np.intp), met.level[t]
        row, parent = rows.at(who, slot, level)
        choice = offered[who, slot]
        liking = rows.liking(row, choice)
        value = liking.argmax(axis=1)
        learned = liking[who, value] > 0.0
        empty = (value != wanted) & met.detect[t]
        wants = np.full(users, policy == ALWAYS) if policy in (ALWAYS, NEVER) else rows.asks(row) | ~learned | empty
        rows.met[row] += 1
        failed = np.flatnonzero(empty & learned)
        if len(failed):
            ballot = (value[failed], np.full(len(failed), FAILURE), np.full(len(failed), NONE))
            rows.vote(row[failed], *ballot, day)
            rows.stratum(parent[failed], *ballot, level[failed])
            rows.look(parent[failed], t + 1, day)
        liking[empty, value[empty]] = -np.inf  # what came back empty is not proposed
        choice[empty, value[empty]] = False
        value = liking.argmax(axis=1)
        ask = wants & (rows.gain(row, choice, error_cost) > question_cost) if isinstance(policy, Priced) else wants
        right, none = value == wanted, empty & (policy == NEVER)
        wrong = ~ask & ~right & ~none
        rejects = (ask & ~right) | (wrong & met.notice[t])
        signal = np.where(rejects, NO, np.where(ask, YES, np.where(wants | none, NONE, OK)))
        names = rejects & (met.name[t] | wrong)  # who corrects a silent answer says what was wanted
        ballot = (value, signal, np.where(names, wanted, NONE))
        rows.vote(row, *ballot, day)
        rows.stratum(parent, *ballot, level)
        question[t], error[t], unnoticed[t] = ask, wrong, wrong & ~met.notice[t]
        unanswered[t] = (ask & ~right & ~met.name[t]) | none
    return _account(met, question, error, unanswered, unnoticed, rows)


def _learner(policy: Learner | Baseline) -> Learner:
    return policy if isinstance(policy, Learner) else Learner(stratify=False)
