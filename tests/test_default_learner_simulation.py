"""Simulation of clarification.

By head, against the rows of the learner one by one, same bits, curves, splits, CLI.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from raglab.default_learner import (
    ClarificationDefault,
    DefaultLearner,
    asks,
    confidence_paths,
    init,
    looked,
    lookup,
    met,
    request_outcomes,
    silence,
    simulate,
    split,
    stratify,
    suggest,
    update,
    world,
)
from raglab.default_learner.simulated_users import USERS_PER_BLOCK, crowd
from raglab.default_learner.simulation import (
    BASELINES,
    RequestOutcomes,
    request_costs,
)

COVER = {
    "insurer_name/contract": {"body": {"1": 1.0, "toc": 0.0}, "coversheet": {"1": 0.0, "toc": 1.0}}
}
TASTES = {
    "limit/contract": {"event": 0.5, "year": 0.3, "peril": 0.2},
    "page/schedule": {"1": 0.9, "toc": 0.1},
}
BEGUN = datetime(2026, 1, 5, tzinfo=UTC)


def cover(**more):
    """World of case 12: on cover sheets the first page names no insurer."""
    return world(
        COVER,
        column="page_1_kind",
        **({"mix": {"body": 0.6, "coversheet": 0.4}, "detects": 1.0} | more),
    )


def tastes(**more):
    """World of two contexts in which users differ."""
    return world(TASTES, **({"noise": [0.05, 0.1], "drift": 0.02} | more))


def one_by_one(users_world, learner, *, users, requests, seed=0):
    """The loop of the simulation over rows of the learner, one user after the other."""
    crowded = crowd(users_world, users, requests, seed, 0)
    columns = [
        *users_world.columns,
        *(f"zz{number:02}" for number in range(users_world.noise_columns)),
    ]
    out = np.zeros((4, users, requests), dtype=bool)
    split_at = np.full(crowded.topic.shape, -1)
    for user in range(users):
        rows: dict[tuple[str, str], ClarificationDefault] = {}
        for t in range(requests):
            slot = int(crowded.slot[t, user])
            context = int(crowded.topic[user, slot])
            out[:, user, t], is_split = _step(
                users_world, learner, crowded, rows, users_world.contexts[context], columns, user, t
            )
            if is_split:
                split_at[user, slot] = t + 1
    never = np.full_like(split_at, -1)
    return RequestOutcomes(*out, crowded.slot.T, crowded.topic, split_at, never)


def _step(users_world, learner, crowded, rows, name, columns, user, t):
    """One request: what was asked, wrong, unanswered, unnoticed; and whether its row was split."""
    now = BEGUN + timedelta(days=t / users_world.per_day)
    conditions = {
        column: str(level) for column, level in zip(columns, crowded.level[t, user], strict=True)
    }
    candidates = users_world.values[users_world.contexts.index(name)]  # noqa: PD011 - of a world
    wanted = candidates[crowded.wanted[t, user]]
    context_rows = [row for (context, _), row in rows.items() if context == name]
    row = lookup(context_rows, name, "any", conditions) or init(name, "any", now=now)
    best = suggest(row, candidates, learner).value
    learned = row.candidate_votes.get(best, 0.0) > 0.0
    empty = best != wanted and bool(crowded.detect[t, user])
    ask = empty or not learned or asks(row, learner)
    row, is_split = met(row, now=now), False
    about = {"conditions": {} if row.sub_conditions else conditions, "learner": learner, "now": now}
    if empty and learned:
        row, is_split = _split_or_not(
            update(row, best, "failure", **about), rows, name, learner, now, None, conditions
        )
    if empty:
        best = suggest(row, [value for value in candidates if value != best], learner).value
    right = best == wanted
    wrong = not ask and not right
    notices, names = bool(crowded.notice[t, user]), bool(crowded.name[t, user])
    if is_split:  # the vote is cast under the condition
        rows[name, ""] = row
        context_rows = [
            candidate_row
            for (context, _), candidate_row in rows.items()
            if context == name and candidate_row.target_field == name
        ]
        row = lookup(context_rows, name, "any", conditions) or row
        about["conditions"] = {}
    if (ask and not right) or (wrong and notices):
        success = wanted if names or wrong else None
        row = update(row, best, "explicit_no", success, **about)
    else:
        success = best
        row = update(row, best, "explicit_yes" if ask else "implicit_ok", **about)
    row, later = _split_or_not(row, rows, name, learner, now, success, conditions)
    rows[name, json.dumps(row.sub_conditions) if row.sub_conditions else ""] = row
    if is_split or later:
        rows[name, "split"] = init("split", "any", now=now)
    return (ask, wrong, ask and not right and not names, wrong and not notices), is_split or later


def _split_or_not(row, rows, name, learner, now, success, conditions):
    """The row after a signal, split where there is evidence; once a context."""
    is_parted = bool(row.sub_conditions) or (name, "split") in rows
    evidence = None if is_parted else stratify(row, learner, success=success, conditions=conditions)
    if evidence is None:
        return row, False
    for part in split(row, evidence, now=now, learner=learner):
        rows[name, json.dumps(part.sub_conditions)] = part
    return looked(row, evidence), True


@pytest.mark.parametrize(
    ("users_world", "learner"),
    [
        (tastes(names=0.5, detects=0.3), DefaultLearner("posterior")),
        (tastes(notices=1.0), DefaultLearner(half_life_days=2.0, ask_below=0.4, apply_above=0.7)),
        (cover(noise_columns=2, noise_levels=3), DefaultLearner("posterior", alpha=0.2)),
        (cover(), DefaultLearner("posterior", stratify=False)),
        (
            cover(noise=0.1, detects=0.8),
            DefaultLearner("posterior", half_life_days=20.0, alpha=0.2, split="evidence"),
        ),
    ],
)
def test_simulation_equals_the_rows_one_by_one(users_world, learner):
    """All questions, errors and splits match `update`, `asks`, `suggest`, `stratify`, `split`.

    But for values that tie: rows take the one that was voted on first, arrays the first candidate.
    None tie here.
    """
    sizes = {"users": 4, "requests": 60, "seed": 2}
    fast, plain = (
        request_outcomes(users_world, learner, **sizes),
        one_by_one(users_world, learner, **sizes),
    )
    for name in ("question", "error", "unanswered", "unnoticed", "slot", "split"):
        assert np.array_equal(getattr(fast, name), getattr(plain, name)), name
    if users_world.columns and learner.stratify:
        assert (fast.split >= 0).any()


def test_who_names_nothing_is_not_answered():
    """With two candidates and users only saying no, the wrong first one is asked repeatedly."""
    outcomes = request_outcomes(
        world({"a": {"x": 0.0, "y": 1.0}}, names=0.0), DefaultLearner(), users=3, requests=9, seed=0
    )
    assert outcomes.unanswered.all()
    assert (request_costs(outcomes, 1.0, 10.0) == 2.0).all()


def test_baselines_by_head():
    """Always asking never errs, never asking errs until corrected, the oracle only on noise."""
    users_world = world({"a": {"x": 0.0, "y": 1.0}}, notices=1.0)
    by = {
        name: request_outcomes(users_world, name, users=4, requests=10, seed=1)
        for name in BASELINES
    }
    errors = {name: outcomes.error[0].nonzero()[0].tolist() for name, outcomes in by.items()}
    assert errors == {"always_ask": [], "never_ask": [0], "oracle": []}
    questions = {name: outcomes.question.mean() for name, outcomes in by.items()}
    assert questions == {"always_ask": 1.0, "never_ask": 0.0, "oracle": 0.0}
    noisy = request_outcomes(
        users_world._replace(noise=np.array([0.09])), "oracle", users=400, requests=50, seed=1
    )
    assert not noisy.question.any()
    assert noisy.error.mean() == pytest.approx(0.09, abs=0.01)


def test_the_oracle_knows_what_a_question_costs():
    """A stray that comes back empty is asked about by its likeliest other value.

    An unanswered question costs two.
    """
    base = {"a": {"x": 1.0, "y": 0.0}}
    strays = request_outcomes(
        world(base, noise=0.3, detects=1.0, names=0.0), "oracle", users=50, requests=40, seed=0
    )
    assert strays.question.mean() == pytest.approx(0.3, abs=0.05)
    assert not (strays.unanswered | strays.error).any()
    for names in (1.0, 0.0):  # 0.105 * 10 = 1.05, against 1 or 1 + 0.105
        users_world = world(base, noise=0.105, names=names)
        outcomes = request_outcomes(users_world, "oracle", users=5, requests=10, seed=0)
        assert outcomes.question.mean() == names


def test_same_bits_for_any_workers_users_and_company():
    """Two processes, more users and other policies beside change nothing."""
    users_world, sizes = tastes(), {"requests": 20, "seed": 5}
    alone, parallel, fewer = (
        request_outcomes(users_world, DefaultLearner(), users=users, n_jobs=n_jobs, **sizes)
        for users, n_jobs in (
            (USERS_PER_BLOCK + 70, 1),
            (USERS_PER_BLOCK + 70, 2),
            (USERS_PER_BLOCK, 1),
        )
    )
    assert all(np.array_equal(a, b) for a, b in zip(alone, parallel, strict=True))
    assert np.array_equal(fewer.question, alone.question[:USERS_PER_BLOCK])
    alone = simulate(users_world, {"a": DefaultLearner()}, users=30, **sizes)
    beside = simulate(users_world, {"b": "always_ask", "a": DefaultLearner()}, users=30, **sizes)
    pd.testing.assert_frame_equal(alone, beside[beside["policy"] == "a"].reset_index(drop=True))


def test_table_of_a_simulation():
    """A row a policy and bucket; rates add up to what was asked; intervals hold their rate.

    Silence ends unknown.
    """
    users_world, sizes = tastes(), {"users": 60, "requests": 35, "seed": 2}
    table = simulate(
        users_world, {"learner": DefaultLearner(), "oracle": "oracle"}, buckets=4, **sizes
    )
    outcomes = request_outcomes(users_world, DefaultLearner(), **sizes)
    best = request_outcomes(users_world, "oracle", **sizes)
    rows = table[table["policy"] == "learner"]
    assert rows["last"].tolist() == [9, 18, 26, 35]
    for measure, part in (("questions", outcomes.question), ("errors", outcomes.error)):
        total = (rows[measure] * np.array([9, 9, 8, 9])).sum()
        assert total * 60 / 100 == pytest.approx(part.sum())
    lost = request_costs(outcomes, 1.0, 10.0) - request_costs(best, 1.0, 10.0)
    assert rows["regret"].iloc[-1] == pytest.approx(lost.sum(axis=1).mean())
    for measure in ("questions", "errors", "regret"):
        assert (rows[f"{measure}_low"] <= rows[measure]).all()
        assert (rows[measure] <= rows[f"{measure}_high"]).all()
    assert rows["silent"].isna().tolist() == [False, False, False, True]


def test_silence_by_head():
    """Last question of a row, NaN where too few requests came after it, 0 where it never asked."""
    question = np.array([[True, False, True, False, False, False]])
    none = np.zeros_like(question)
    slot = np.array([[0, 1, 0, 0, 0, 1]], np.int16)
    topic = np.array([[0, 1, 2]])
    outcomes = RequestOutcomes(question, none, none, none, slot, topic, topic, topic)
    ended = silence(outcomes, quiet=2)
    assert ended.requests.tolist() == [[4, 2, 0]]
    np.testing.assert_array_equal(ended.after, [[2.0, 0.0, np.nan]])
    assert np.isnan(silence(outcomes, quiet=3).after[0, 0])


def test_vote_share_cannot_stay_above_on_silence_alone():
    """It leaves 0.60 with the fifth silence; with the gate it asks for ever."""
    paths = confidence_paths({"vote_share": DefaultLearner()}, 1000)
    by = {key: part.set_index("request") for key, part in paths.groupby(["learner", "gated"])}
    silent = by["vote_share", False]["confidence"]
    assert silent.index[silent < 0.60][0] == 6  # one yes, five silences: 3.5 of 6
    gated = by["vote_share", True]
    assert gated.index[gated["question"]].tolist() == [1, *range(5, 1001, 5)]


def test_the_cover_sheet_is_found_and_noise_is_not():
    """Case 12: every row is split by the true column among 20 of noise.

    Without it under 5 in 100 are split.

    The rule of the source document splits all of them, most by a column of noise.
    """
    users_world = cover(noise_columns=20)
    sizes = {"users": 300, "requests": 120, "seed": 0}
    outcomes = request_outcomes(users_world, DefaultLearner("posterior", split="evidence"), **sizes)
    assert (outcomes.column == 0).mean() > 0.99
    hidden = users_world._replace(columns=(), levels=users_world.levels[..., :0])
    false = request_outcomes(hidden, DefaultLearner("posterior", split="evidence"), **sizes)
    assert (false.split >= 0).mean() < 0.05
    assert (request_outcomes(hidden, DefaultLearner("posterior"), **sizes).split >= 0).mean() > 0.95
    assert outcomes.question[:, 100:].mean() < 0.05 < false.question[:, 100:].mean()


@pytest.mark.parametrize(
    ("call", "change", "rule"),
    [
        (tastes, {"noise": 1.5}, "noise must be in"),
        (tastes, {"drift": -0.1}, "drift must be in"),
        (tastes, {"traffic": [0.0, 0.0]}, "shares of traffic"),
        (tastes, {"notices": float("nan")}, "notices must be in"),
        (world, {"shares": {}}, "at least one context"),
        (simulate, {"policies": {"a": "sometimes"}}, "a policy must be"),
        (simulate, {"policies": {"a": DefaultLearner("votes")}}, "rule must be one of"),
        (simulate, {"users": 0}, "users must be a whole number"),
        (simulate, {"error_cost": -1.0}, "error_cost must be >= 0"),
        (simulate, {"level": 1.0}, "level must be in"),
    ],
)
def test_what_breaks_a_rule_is_refused(call, change, rule):
    """The message has rule, value and remedy."""
    sizes = {"world": tastes(), "policies": {"a": DefaultLearner()}, "users": 2, "requests": 3}
    with pytest.raises(ValueError, match=rule):
        call(**((sizes if call is simulate else {}) | change))
