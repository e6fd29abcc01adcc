"""Simulation (algebra): what default learners ask and get wrong over many requests (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import check_count
from raglab.default_learner.row_arrays import NO_NUMBER, DefaultRowArrays, Index, empty_rows
from raglab.default_learner.simulated_users import (
    Array,
    Crowd,
    Small,
    World,
    check_simulated_world,
    crowd,
    user_blocks,
)
from raglab.default_learner.votes import (
    SIGNALS,
    DefaultLearner,
    add_signal,
    no_votes,
    question_schedule,
    vote_confidence,
)
from raglab.default_learner.votes import check_learner as settled
from raglab.loops.parallel import jobs, run_each
from raglab.metrics.intervals import check_level, clopper_pearson, mean_interval
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd


Bools = NDArray[np.bool_]
Ints = NDArray[np.integer[Any]]
Baseline = Literal["always_ask", "never_ask", "oracle"]
BASELINES: tuple[Baseline, ...] = ("always_ask", "never_ask", "oracle")
ALWAYS_ASK, NEVER_ASK, ORACLE = BASELINES
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
    block_arguments = (
        check_simulated_world(world),
        policy,
        requests,
        seed,
        question_cost,
        error_cost,
    )
    user_blocks_to_play = list(enumerate(user_blocks(users)))
    with jobs(n_jobs):
        block_outcomes = list(
            run_each(
                _block_outcomes,
                user_blocks_to_play,
                *block_arguments,
                what="simulate",
                unit="block",
            )
        )
    return RequestOutcomes(
        *(np.concatenate(outcome_blocks) for outcome_blocks in zip(*block_outcomes, strict=True))
    )


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
    user_crowd = crowd(world, block[1], requests, seed, block[0])
    if policy == ORACLE:
        return _oracle_outcomes(world, user_crowd, question_cost, error_cost)
    return _play_block(world, user_crowd, policy)


def _oracle_outcomes(
    world: World, user_crowd: Crowd, question_cost: float, error_cost: float
) -> RequestOutcomes:
    """Applies the user's own value where what noise then costs is less than a question.

    What comes back empty is asked about in any case, with the likeliest stray of those left.
    """
    request_topics = user_crowd.topic[np.arange(user_crowd.slot.shape[1]), user_crowd.slot]
    noise_rates = world.noise[request_topics]
    unseen_errors = noise_rates * (1.0 - world.detects)
    asking_cost = question_cost * (1.0 + unseen_errors * (1.0 - world.names))
    is_silent = (
        noise_rates * world.detects * question_cost + unseen_errors * error_cost <= asking_cost
    )
    stray_weights = world.offered[request_topics].astype(np.float64)
    np.put_along_axis(stray_weights, user_crowd.own[..., None].astype(np.intp), -1.0, axis=-1)
    is_stray = user_crowd.wanted != user_crowd.own
    is_empty = is_stray & user_crowd.detect
    is_error = is_silent & is_stray & ~is_empty
    is_question = ~is_silent | is_empty
    is_lost = (
        is_stray
        & ~user_crowd.name
        & ~(is_empty & (stray_weights.argmax(axis=-1) == user_crowd.wanted))
    )
    never_split = np.full(user_crowd.topic.shape, NO_NUMBER, np.int16)
    outcome_flags = is_question, is_error, is_question & is_lost, is_error & ~user_crowd.notice
    return _request_outcomes(user_crowd, outcome_flags, never_split.astype(np.int32), never_split)


def _request_outcomes(
    user_crowd: Crowd, outcome_flags: tuple[Bools, ...], split_requests: Ints, split_columns: Ints
) -> RequestOutcomes:
    """Outcomes [U, T] of flags [T, U], as they are named first in `RequestOutcomes`."""
    user_flags = (
        np.ascontiguousarray(request_flags.T) for request_flags in (*outcome_flags, user_crowd.slot)
    )
    slot_arrays = (
        split_requests.reshape(user_crowd.topic.shape),
        split_columns.reshape(user_crowd.topic.shape),
    )
    outcome_fields: Any = (*user_flags, user_crowd.topic, *slot_arrays)
    return RequestOutcomes(*outcome_fields)


def _play_block(world: World, user_crowd: Crowd, policy: Policy) -> RequestOutcomes:
    """One block under a learner, request by request."""
    is_learner = isinstance(policy, DefaultLearner)
    policy_settings = (
        policy if isinstance(policy, DefaultLearner) else DefaultLearner(stratify=False)
    )
    learner = settled(policy_settings)
    requests, users = user_crowd.slot.shape
    default_rows, user_numbers = empty_rows(world, users, learner), np.arange(users)
    offered_values = world.offered[user_crowd.topic]  # [U, slots, V]
    question_flags, error_flags, unanswered_flags, unnoticed_flags = (
        np.zeros((requests, users), bool) for _ in range(4)
    )
    for request_index in range(requests):
        request_day, request_slots, wanted_values, request_levels = (
            request_index / world.per_day,
            user_crowd.slot[request_index],
            user_crowd.wanted[request_index].astype(np.intp),
            user_crowd.level[request_index],
        )
        row_indices, parent_indices = default_rows.at(user_numbers, request_slots, request_levels)
        open_values = offered_values[user_numbers, request_slots]
        value_scores = default_rows.liking(row_indices, open_values)
        proposed_values = value_scores.argmax(axis=1)
        is_learned = value_scores[user_numbers, proposed_values] > 0.0
        is_empty = (proposed_values != wanted_values) & user_crowd.detect[request_index]
        is_asked = default_rows.asks(row_indices) | ~is_learned | is_empty
        if not is_learner:
            is_asked = np.full(users, policy == ALWAYS_ASK)
        default_rows.met[row_indices] += 1
        # A default that comes back empty is a sign for a split, without a vote (rule S5.4).
        failed_users = np.flatnonzero(is_empty & is_learned)
        if len(failed_users):
            signal_ballot = (
                proposed_values[failed_users],
                np.full(len(failed_users), SIGNAL_FAILURE),
                np.full(len(failed_users), NO_NUMBER),
            )
            _count_votes(
                default_rows,
                row_indices[failed_users],
                parent_indices[failed_users],
                signal_ballot,
                request_levels[failed_users],
                request_index,
                request_day,
            )
        # a value that came back empty is not proposed again
        value_scores[is_empty, proposed_values[is_empty]] = -np.inf
        open_values[is_empty, proposed_values[is_empty]] = False
        proposed_values = value_scores.argmax(axis=1)
        is_right, is_refused = proposed_values == wanted_values, is_empty & (policy == NEVER_ASK)
        is_wrong = ~is_asked & ~is_right & ~is_refused
        is_rejected = (is_asked & ~is_right) | (is_wrong & user_crowd.notice[request_index])
        signals = np.where(
            is_rejected,
            SIGNAL_NO,
            np.where(is_asked, SIGNAL_YES, np.where(is_refused, NO_NUMBER, SIGNAL_OK)),
        )
        # a user who corrects a silent answer says which value was wanted
        names_value = is_rejected & (user_crowd.name[request_index] | is_wrong)
        signal_ballot = (proposed_values, signals, np.where(names_value, wanted_values, NO_NUMBER))
        # a failure may have split the row: the vote is cast under the condition
        row_indices, _ = default_rows.at(user_numbers, request_slots, request_levels)
        _count_votes(
            default_rows,
            row_indices,
            parent_indices,
            signal_ballot,
            request_levels,
            request_index,
            request_day,
        )
        question_flags[request_index] = is_asked
        error_flags[request_index] = is_wrong
        unnoticed_flags[request_index] = is_wrong & ~user_crowd.notice[request_index]
        unanswered_flags[request_index] = (
            is_asked & ~is_right & ~user_crowd.name[request_index]
        ) | is_refused
    outcome_flags = question_flags, error_flags, unanswered_flags, unnoticed_flags
    return _request_outcomes(user_crowd, outcome_flags, default_rows.split_at, default_rows.column)


def _count_votes(
    default_rows: DefaultRowArrays,
    row_indices: Index,
    parent_indices: Index,
    signal_ballot: tuple[Index, Index, Index],
    request_levels: Small,
    request_index: int,
    request_day: float,
) -> None:
    """Count value, signal and named value of each row at request t, and split parents if due."""
    default_rows.vote(row_indices, *signal_ballot, request_day)
    default_rows.stratum(parent_indices, *signal_ballot, request_levels)
    proposed_values, signals, named_values = signal_ballot
    accepted_values = np.where(
        (signals == SIGNAL_YES) | (signals == SIGNAL_OK), proposed_values, NO_NUMBER
    )
    successful_values = np.where(named_values >= 0, named_values, accepted_values)
    has_signal = signals >= 0
    default_rows.stratify(
        parent_indices[has_signal],
        successful_values[has_signal],
        request_levels[has_signal],
        request_index + 1,
        request_day,
    )


PER_HUNDRED_REQUESTS = 100.0
QUIET_REQUESTS = 10  # requests without a question after which a row counts as silent
REQUEST_BUCKETS = 20
SIMULATION_MEASURES = ("questions", "errors", "unanswered", "cost", "regret", "silent")


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
    buckets: int = REQUEST_BUCKETS,
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
    for policy_name, stated_cost in (("question_cost", question_cost), ("error_cost", error_cost)):
        if not 0.0 <= stated_cost < np.inf:
            refuse(f"{policy_name} must be >= 0", stated_cost, "it is what one costs")
    if not policies:
        refuse("policies must be at least one", "none", "give a learner or a baseline by name")
    check_level(level)
    simulation_sizes: dict[str, Any] = {
        "users": users,
        "requests": requests,
        "seed": seed,
        "n_jobs": n_jobs,
    }
    cost_settings: dict[str, Any] = {"question_cost": question_cost, "error_cost": error_cost}
    oracle_costs = request_costs(
        request_outcomes(world, ORACLE, **simulation_sizes, **cost_settings), **cost_settings
    )
    policy_frames = [
        _policy_rows(
            policy_name,
            request_outcomes(world, policy, **simulation_sizes, **cost_settings),
            oracle_costs,
            cost_settings,
            min(buckets, requests),
            level,
        )
        for policy_name, policy in policies.items()
    ]
    return pd.concat(policy_frames, ignore_index=True)


def request_costs(outcomes: RequestOutcomes, question_cost: float, error_cost: float) -> Array:
    """Cost of every request, [U, T].

    An unanswered one costs as much as a question: its user must ask again.
    """
    return np.asarray(
        question_cost * (outcomes.question + 1.0 * outcomes.unanswered)
        + error_cost * outcomes.error
    )


def silence(outcomes: RequestOutcomes, quiet: int = QUIET_REQUESTS) -> Silence:
    """When each row fell silent: it asked nothing at its last `quiet` requests, or at none at all.

    A row that met fewer requests after its last question is not known to be silent: NaN.

    Args:
      outcomes: of the requests, as `request_outcomes` gives them.
      quiet: requests without a question.
    """
    n_slots = outcomes.topic.shape[1]
    meets_slot = outcomes.slot[..., None] == np.arange(n_slots)  # [U, T, slots]
    request_numbers = np.cumsum(meets_slot, axis=1)
    slot_requests = request_numbers[:, -1]
    last_questions = np.where(meets_slot & outcomes.question[..., None], request_numbers, 0).max(
        axis=1
    )
    return Silence(
        slot_requests,
        np.where(
            slot_requests - last_questions >= quiet, last_questions.astype(np.float64), np.nan
        ),
    )


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
    path_rows = []
    for learner_name, learner in learners.items():
        for is_gated in (False, True):
            votes, confidence = no_votes(1), 0.0
            for request in range(1, requests + 1):
                is_question = request == 1 or (
                    is_gated and bool(question_schedule(confidence, request - 1, learner))
                )
                votes = add_signal(
                    votes, 0, SIGNALS.index("explicit_yes" if is_question else "implicit_ok")
                )
                confidence = float(vote_confidence(votes, learner))
                path_rows.append((learner_name, is_gated, request, is_question, confidence))
    return pd.DataFrame(
        path_rows, columns=["learner", "gated", "request", "question", "confidence"]
    )


def _policy_rows(
    policy_name: str,
    outcomes: RequestOutcomes,
    oracle_costs: Array,
    cost_settings: Mapping[str, float],
    buckets: int,
    level: float,
) -> pd.DataFrame:
    """Rows of one policy."""
    import pandas as pd

    n_requests = outcomes.question.shape[1]
    bucket_ends = np.rint(np.linspace(0, n_requests, buckets + 1)).astype(np.int64)
    bucket_sizes = np.diff(bucket_ends)
    policy_costs = request_costs(outcomes, **cost_settings)
    measures_by_user = {
        "questions": outcomes.question,
        "errors": outcomes.error,
        "unanswered": outcomes.unanswered,
        "cost": policy_costs,
    }
    bucket_columns: dict[str, object] = {
        "policy": policy_name,
        "bucket": np.arange(buckets),
        "first": bucket_ends[:-1] + 1,
        "last": bucket_ends[1:],
    }
    for measure, user_measure in measures_by_user.items():
        bucket_sums = np.add.reduceat(user_measure.astype(np.float64), bucket_ends[:-1], axis=1)
        bucket_columns |= _interval_columns(
            measure, PER_HUNDRED_REQUESTS * bucket_sums / bucket_sizes, level
        )
    bucket_columns |= _interval_columns(
        "regret", np.cumsum(policy_costs - oracle_costs, axis=1)[:, bucket_ends[1:] - 1], level
    )
    last_question = np.where(outcomes.question, np.arange(1, n_requests + 1), 0).max(axis=1)
    n_quiet = (last_question[:, None] <= bucket_ends[1:]).sum(axis=0)
    lower_bound, upper_bound = clopper_pearson(n_quiet, len(last_question), level)
    is_last_bucket = bucket_ends[1:] == n_requests
    for column_name, column_values in (
        ("silent", n_quiet / len(last_question)),
        ("silent_low", lower_bound),
        ("silent_high", upper_bound),
    ):
        bucket_columns[column_name] = np.where(is_last_bucket, np.nan, column_values)
    return pd.DataFrame(bucket_columns | {"users": len(last_question)})


def _interval_columns(measure: str, user_values: Array, level: float) -> dict[str, object]:
    """Mean over the users and its t interval, by column; NaN where there is one user."""
    lower_bound, upper_bound = mean_interval(user_values, level)
    return {
        measure: user_values.mean(axis=0),
        f"{measure}_low": lower_bound,
        f"{measure}_high": upper_bound,
    }
