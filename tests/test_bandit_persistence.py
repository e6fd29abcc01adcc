"""A learner as one document.

Every bit comes back, what was altered is refused, and workers merge.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import (
    POLICIES,
    Bandit,
    Stats,
    choose,
    dumps,
    guarded,
    history_of,
    init,
    loads,
    merge,
    update,
    warm_start,
)

LAWFUL = settings(deadline=None, derandomize=True, max_examples=40)
HISTORY = Stats(np.array([2.0, 0.1, 0.0]), np.array([1.0, 1 / 30, 0.0]), np.array([0.7, 0.01, 0.0]))
REWARD = st.sampled_from([0.0, 0.1, 1 / 3, 0.5, 0.7, 1.0])
SEEN = st.lists(st.tuples(st.integers(0, 2), REWARD), max_size=12)
BANDITS = st.sampled_from(
    [
        *(Bandit(policy) for policy in POLICIES),
        Bandit("thompson_nig", discount=0.9, floor=0.1),
        Bandit("ucb1", window=4, ties="random"),
        Bandit("lin_thompson", window=3),
        Bandit("thompson_beta", history=HISTORY, exploration=2),
    ]
)


def learned(bandit, rounds, batch=()):
    """State after these arms and rewards."""
    rng = np.random.default_rng(0)
    width = 2 if bandit.linear else 0
    state = init(3, bandit=bandit, n_features=width, batch=batch)
    for arm, reward in rounds:
        x = rng.normal(size=width) if width else None
        state, _ = choose(state, bandit, rng, context=x)
        state = update(state, np.full(batch, arm), reward, bandit, context=x)
    return state


def same(one, two):
    """Whether every field has the same shape, type and bits."""
    return all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() and a.shape == b.shape
        for a, b in zip(one, two, strict=True)
    )


def forged(text, change):
    """The document with something else in it and a hash that stands for that."""
    document = json.loads(text)
    del document["sha256"]
    change(document)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return json.dumps(document | {"sha256": hashlib.sha256(canonical.encode()).hexdigest()})


TEXT = dumps(
    learned(Bandit(), [(0, 0.9), (1, 0.1)]), Bandit(history=HISTORY), np.random.default_rng(7)
)


# what comes back


def test_the_document_by_head():
    """Version, settings, shapes, position and a hash over the rest."""
    document = json.loads(TEXT)
    assert document["raglab_bandit"] == 1
    assert document["state"]["n"] == {"shape": [3], "values": [1.0, 1.0, 0.0]}
    assert document["bandit"]["history"]["total"][1] == 1 / 30
    assert document["rng"] == np.random.default_rng(7).bit_generator.state
    rest = {key: value for key, value in document.items() if key != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    assert document["sha256"] == hashlib.sha256(canonical.encode()).hexdigest()


@LAWFUL
@given(bandit=BANDITS, rounds=SEEN, batch=st.sampled_from([(), (2,), (2, 1)]))
def test_every_bit_comes_back(bandit, rounds, batch):
    """State and settings, of every policy, batch, window and history.

    And the bytes of the document again.
    """
    state = learned(bandit, rounds, batch)
    text = dumps(state, bandit, np.random.default_rng(3))
    saved = loads(text)
    assert same(saved.state, state)
    assert dumps(*saved) == text
    assert saved.bandit._replace(history=None) == bandit._replace(history=None)
    if bandit.history is not None:
        assert saved.bandit.history is not None
        for one, two in zip(saved.bandit.history, bandit.history, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.PCG64DXSM])
def test_a_generator_goes_on_with_the_same_draws(bits):
    """Also in the middle of a pair of 32-bit draws; and so do the choices."""
    rng = np.random.Generator(bits(11))
    rng.random(5)
    rng.integers(0, 100, dtype=np.uint32)
    bandit = Bandit("thompson_beta", ties="random", floor=0.1)
    state = learned(bandit, [(0, 0.9), (2, 0.2)])
    saved = loads(dumps(state, bandit, rng))
    assert saved.rng is not None
    for _ in range(20):
        state, choice = choose(state, bandit, rng)
        mine, again = choose(saved.state, saved.bandit, saved.rng)
        saved = saved._replace(state=mine)
        np.testing.assert_array_equal(choice.score, again.score)
    assert rng.integers(0, 2**32, dtype=np.uint32) == saved.rng.integers(0, 2**32, dtype=np.uint32)


# what is refused


def test_another_version_is_refused():
    """Newer, none, or one that only looks the same."""
    for version, rule in ((2, "should be 1, stated as 2"), ("1", "stated as '1'"), (1.0, "sha256")):
        with pytest.raises(ValueError, match=rule):
            loads(forged(TEXT, put("raglab_bandit", value=version)))
    with pytest.raises(ValueError, match="'raglab_bandit': Field required"):
        loads(forged(TEXT, lambda document: document.pop("raglab_bandit")))


@pytest.mark.parametrize("at", [40, 400, len(TEXT) - 60])
def test_altered_content_is_refused(at):
    """A digit that was changed anywhere does not fit the hash."""
    place = next(i for i in range(at, len(TEXT)) if TEXT[i] in "12345678")
    with pytest.raises(ValueError, match=r"sha256 must stand for the rest|must be JSON"):
        loads(TEXT[:place] + chr(ord(TEXT[place]) + 1) + TEXT[place + 1 :])


@pytest.mark.parametrize("text", ["", "{", TEXT[:-9], "not json", "[" * 100_000, '{"a": 1}}'])
def test_broken_json_is_refused(text):
    """An empty or cut file among it."""
    with pytest.raises(ValueError, match="a saved learner must be JSON, got"):
        loads(text)


def test_what_is_no_learner_is_refused():
    """A list, a number that is not finite, a part that is missing or one too many."""
    with pytest.raises(ValueError, match="must be an object, got list"):
        loads("[1]")
    with pytest.raises(ValueError, match="must hold finite numbers, got NaN"):
        loads(TEXT.replace("[1.0,1.0,0.0]", "[1.0,NaN,0.0]"))
    with pytest.raises(ValueError, match=r"'note': Extra inputs .*, stated as 'mine'; "):
        loads(forged(TEXT, lambda document: document.update(note="mine")))


def put(*path, value):
    """Change of one place of a document."""

    def change(document):
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("bandit", "policy", value="magic"), "algorithm must be one of .*got 'magic'"),
        (
            put("bandit", "epsilon", value="0.1"),
            "'bandit.epsilon': Input should be a valid number, stated as '0.1'",
        ),
        (put("bandit", "window", value=2), r"state.recent_arm must have shape \(2,\), got \(0,\)"),
        (put("bandit", "floor", value=1.5), "floor must be in"),
        (put("bandit", "policy", value="lin_ucb"), "features where the policy is linear"),
        (put("bandit", "history", "n", value=[1.0, 2.0]), "history must be"),
        (
            put("state", "n", "values", value=[1.0, 2.0]),
            r"as many values as its shape says, got 2 for \[3\]",
        ),
        (put("state", "n", "values", 1, value=-1.0), "counts must be at least 0"),
        (
            put("state", "pulls", "values", 1, value=2**70),
            "'state.pulls.values.1': Input should be less",
        ),
        (
            put("state", "total", value={"shape": [1, 3], "values": [1.0, 0.0, 0.0]}),
            "state.total must have shape",
        ),
        (
            put("rng", "bit_generator", value="MT19937"),
            "rng must be a position of PCG64, PCG64DXSM, got .*state must be for a PCG64",
        ),
    ],
)
def test_content_that_does_not_fit_is_refused(change, said):
    """Even under a hash that stands for it; each message has rule, value and remedy."""
    with pytest.raises(ValueError, match=said):
        loads(forged(TEXT, change))


def test_what_could_not_be_read_is_not_written():
    """A state with a NaN, one of another window, another generator."""
    state = init(2)
    other_generator = np.random.Generator(np.random.MT19937(1))
    for call, rule in (
        ((state._replace(total=np.array([np.nan, 0.0])), Bandit()), "total must be finite"),
        ((state, Bandit(window=5)), "recent_arm must have shape"),
        ((state, Bandit(), other_generator), "generator .* got MT19937"),
    ):
        with pytest.raises(ValueError, match=rule):
            dumps(*call)


# several workers


MERGING = st.sampled_from([Bandit(policy) for policy in POLICIES])


@LAWFUL
@given(bandit=MERGING, parts=st.lists(SEEN, min_size=1, max_size=3))
def test_merged_workers_know_what_one_would(bandit, parts):
    """Rounds, pulls and statistics add, in any order of the workers, and no worker is changed."""
    states = [learned(bandit, part) for part in parts]
    before = [[field.copy() for field in state] for state in states]
    got = merge(states, bandit)
    for name, total in got._asdict().items():
        np.testing.assert_allclose(total, sum(getattr(state, name) for state in states), atol=1e-12)
    for order in itertools.permutations(states):
        assert same(merge(order, bandit), got)
    assert same(merge(states[:1], bandit), states[0])
    assert loads(dumps(got, bandit)).state.t == sum(len(part) for part in parts)
    for state, fields in zip(states, before, strict=True):
        assert all(np.array_equal(field, kept) for field, kept in zip(state, fields, strict=True))


def test_what_does_not_merge_says_why():
    """A window, a discount, other arms, no state at all."""
    forgetful, discounted = Bandit(window=5), Bandit(discount=0.99)
    for states, bandit, rule in (
        ([init(2, bandit=forgetful)] * 2, forgetful, "nothing is forgotten, got window 5"),
        ([init(2)] * 2, discounted, "nothing is forgotten, got discount 0.99"),
        ([init(2), init(3)], Bandit(), "one shape"),
        ([], Bandit(), "needs a state"),
    ):
        with pytest.raises(ValueError, match=rule):
            merge(states, bandit)


LAWFUL_HISTORY = settings(deadline=None, derandomize=True, max_examples=40)
NAN = float("nan")
ARMS = ["hybrid", "iterative", "graph"]
ROUNDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
    min_size=1,
    max_size=14,
)
LEARNERS = st.sampled_from(
    [
        Bandit("thompson_beta"),
        Bandit("thompson_nig"),
        Bandit("ucb1", discount=0.5),
        Bandit("thompson_beta", discount=0.75),
        Bandit("kl_ucb", window=3),
    ]
)


def log_of(rounds):
    """Rounds in order as a log of named arms."""
    return pd.DataFrame(
        {"arm": [ARMS[arm] for arm, _ in rounds], "reward": [reward for _, reward in rounds]}
    )


# what a log counts


@LAWFUL_HISTORY
@given(rounds=ROUNDS, bandit=LEARNERS)
def test_a_history_is_what_the_learner_would_hold(rounds, bandit):
    """Its statistics at the end of the log, forgetting included.

    With time, in whatever order the rows stand.
    """
    rng = np.random.default_rng(0)
    state = init(3, bandit=bandit)
    for arm, reward in rounds:
        state, _ = choose(state, bandit, rng)
        state = update(state, arm, reward, bandit)
    log = log_of(rounds)
    for table in (log, log.assign(time=np.arange(len(log))).sample(frac=1.0, random_state=1)):
        for one, two in zip(
            history_of(table, ARMS, bandit), (state.n, state.total, state.square), strict=True
        ):
            np.testing.assert_allclose(one, two, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda log: log.assign(reward=[0.5, NAN]), r"reward must be in \[0, 1\], got nan"),
        (
            lambda log: log.assign(arm=["hybrid", "magic"]),
            "arm must be one of hybrid, iterative, graph, got 'magic'",
        ),
        (
            lambda log: log.rename(columns={"reward": "r"}),
            "columns action or arm, and reward, .*got arm, r; ",
        ),
    ],
)
def test_a_log_that_does_not_fit_is_refused(change, said):
    """A reward that never came, or is out of range; an unknown arm; a missing column.

    The log stays as it was.
    """
    log = log_of([(0, 0.5), (1, 0.5)])
    kept = log.copy()
    with pytest.raises(ValueError, match=said):
        history_of(change(log), ARMS, Bandit())
    pd.testing.assert_frame_equal(log, kept)


def test_a_linear_policy_has_no_history():
    """Its statistics need contexts."""
    with pytest.raises(ValueError, match="a history has no contexts, got the policy lin_ucb"):
        history_of(log_of([(0, 0.5)]), ARMS, Bandit("lin_ucb"))


# what is kept of it


@LAWFUL_HISTORY
@given(
    n=st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=1, max_size=4),
    discount=st.sampled_from([0.0, 0.3, 1.0]),
    most=st.sampled_from([0.0, 1.0, 10.0, np.inf]),
)
def test_a_warm_start_keeps_the_means(n, discount, most):
    """Counts are discounted or capped; the mean reward of every arm that is left stays.

    The history is not changed.
    """
    history = Stats(np.array(n), 0.25 * np.array(n), 0.125 * np.array(n))
    got = warm_start(history, discount=discount, most=most)
    np.testing.assert_allclose(got.n, np.minimum(discount * np.array(n), most), rtol=1e-15)
    np.testing.assert_allclose(got.total, 0.25 * got.n, atol=1e-12)
    np.testing.assert_allclose(got.square, 0.125 * got.n, atol=1e-12)
    assert history.n.tolist() == n


def test_a_warm_start_out_of_range_is_refused():
    """A discount above 1 or NaN, a negative cap."""
    history = Stats(np.ones(2), np.ones(2), np.ones(2))
    for limits in ({"discount": 1.5}, {"discount": NAN}, {"most": -1}):
        with pytest.raises(ValueError, match=next(iter(limits))):
            warm_start(history, **{"discount": 0.5, "most": 5, **limits})


# the guard of recent latency


@LAWFUL_HISTORY
@given(
    mask=st.lists(
        st.lists(st.booleans(), min_size=3, max_size=3).filter(any), min_size=1, max_size=4
    ),
    p95=st.lists(st.sampled_from([0.0, 100.0, 101.0, 1e9, NAN]), min_size=3, max_size=3),
)
def test_the_guard_only_takes_away(mask, p95):
    """Never an arm that was masked, never the last, row by row.

    A larger budget never drops more.
    """
    on = np.array(mask)
    kept = guarded(on, p95, 100.0)
    assert (kept <= on).all()
    assert kept.any(axis=-1).all()
    for row, one in zip(on, kept, strict=True):
        assert guarded(row, p95, 100.0).tolist() == one.tolist()
        late = row & (np.array(p95) > 100.0)
        assert one.tolist() == (row if (late == row).all() else row & ~late).tolist()
    wider = guarded(on, p95, 1e10)
    assert (wider == on).all()


def test_the_guard_refuses_what_is_no_mask():
    """All false, numbers, a negative latency, no budget."""
    for mask, latest, budget, rule in (
        ([False, False], 2.0, 100.0, "leave an arm"),
        ([1, 0], 2.0, 100.0, "booleans"),
        ([True, True], -2.0, 100.0, "positive milliseconds"),
        ([True, True], 2.0, NAN, "positive milliseconds"),
    ):
        with pytest.raises(ValueError, match=rule):
            guarded(mask, [1.0, latest], budget)
