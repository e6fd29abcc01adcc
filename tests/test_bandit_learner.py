"""Learners step by step: worked examples, then the laws that hold for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import (
    POLICIES,
    Bandit,
    State,
    Stats,
    Steps,
    choose,
    fold,
    init,
    kl_upper,
    revise,
    update,
)
from raglab.bandit.learner import CHOSEN, REVISED, REWARDED
from raglab.bandit.learners import lin_ucb, ucb1
from raglab.bandit.scores import PULLED_ARM_SCORE, beta, normal, student

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
FEATURES = 2
NONE = np.zeros(0)


def learned(bandit, rewards, n_arms=2):
    """State after these rewards, without a round chosen."""
    state = init(n_arms, bandit=bandit)
    for arm, reward in rewards:
        state = update(state, arm, reward, bandit)
    return state


def fresh(bandit, batch=(), n_arms=3):
    """State with features where the policy needs them."""
    return init(n_arms, bandit=bandit, n_features=FEATURES, batch=batch)


def same(first, second, tolerance=0.0):
    """Every field has the same bits, or is the same up to rounding."""
    for name, *pair in zip(State._fields, first, second, strict=True):
        np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance, err_msg=name)


def test_ucb1_by_hand():
    """Three rewards 1, 1, 0 of arm 0 and one 1 of arm 1.

    Mean + 3 sqrt(2 ln 4 / n), t counts the rewards so far.
    """
    bandit = Bandit("ucb1", exploration=3.0)
    state = learned(bandit, [(0, 1.0), (0, 1.0), (0, 0.0), (1, 1.0)])
    bounds = [2.0 / 3.0 + np.sqrt(6.0 * np.log(4.0)), 1.0 + np.sqrt(18.0 * np.log(4.0))]
    np.testing.assert_allclose(ucb1(state, bandit, None, NONE), bounds, rtol=1e-15)


@pytest.mark.parametrize("policy", ["epsilon_greedy", "ucb1", "kl_ucb"])
@pytest.mark.parametrize(
    ("mask", "taken", "last"),
    [
        ([True, True, True], [0, 1, 2, 0, 1], [PULLED_ARM_SCORE, np.inf, np.inf]),
        ([False, True, True], [1, 2, 1, 2, 1], [-np.inf, np.inf, np.inf]),
    ],
)
def test_arms_without_a_reward_come_first_the_least_pulled_one_before(policy, mask, taken, last):
    """Also where a reward of an earlier one has not come yet; masked arms are not waited for."""
    bandit, rng = Bandit(policy, epsilon=0.0), np.random.default_rng(0)
    state, arms = init(3, bandit=bandit), []
    for _ in taken:
        state, choice = choose(state, bandit, rng, mask=mask)
        arms.append(int(choice.arm))
    assert arms == taken
    assert choice.score.tolist() == last


def test_kl_upper_is_the_root_to_the_last_digits():
    """Against 60 halvings, on means from 0 to 1 and levels from 1e-6 to 100.

    At level 0 it is the mean.
    """
    mean, level = np.meshgrid(np.linspace(0.0, 1.0, 101), np.logspace(-6, 2, 50))
    low, high = mean.copy(), np.ones_like(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(60):
            middle = 0.5 * (low + high)
            first = np.where(mean > 0.0, mean * np.log(mean / middle), 0.0)
            second = np.where(mean < 1.0, (1.0 - mean) * np.log((1.0 - mean) / (1.0 - middle)), 0.0)
            inside = first + second <= level
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    np.testing.assert_allclose(kl_upper(mean, level), low, atol=2e-12, rtol=0.0)
    np.testing.assert_allclose(kl_upper(mean, 0.0 * level), mean, atol=1e-13, rtol=0.0)


def test_thompson_beta_by_hand():
    """Rewards 0.9 and 0.5 of arm 0: one success, since 0.5 is not above the threshold.

    Beta(1 + 1, 1 + 1).
    """
    bandit = Bandit()
    state = learned(bandit, [(0, 0.9), (0, 0.5)])
    assert [part.tolist() for part in beta(state, bandit)] == [[2.0, 1.0], [2.0, 1.0]]
    strong = Bandit(prior_mean=0.75, prior_strength=4.0, exploration=2.0)
    assert [part.tolist() for part in beta(state, strong)] == [[1.0, 0.75], [0.5, 0.25]]


def test_a_history_adds_pseudo_counts_and_stays_out_of_the_state():
    """Three pseudo-pulls with two successes of arm 1."""
    bandit = Bandit(history=Stats(*np.array([[0.0, 3.0], [0.0, 2.0], [0.0, 2.0]])))
    state = learned(bandit, [(1, 1.0)])
    assert state.n.tolist() == [0.0, 1.0]
    assert [part.tolist() for part in beta(state, bandit)] == [[1.0, 4.0], [1.0, 2.0]]


def test_thompson_nig_by_hand():
    """Rewards 0.5 and 1 with mu0 = 0.5, kappa0 = 2, alpha0 = 1, beta0 = 0.25.

    kappa = 4, mu = 2.5 / 4, alpha = 2, beta = 0.25 + 0.125 / 2 + 2 * 2 * 0.25 ** 2 / (2 * 4) =
    0.34375.
    """
    bandit = Bandit("thompson_nig")
    posterior = student(learned(bandit, [(0, 0.5), (0, 1.0)]), bandit)
    assert posterior.location.tolist() == [0.625, 0.5]
    assert posterior.df.tolist() == [4.0, 2.0]
    assert posterior.scale**2 == pytest.approx([0.34375 / (2.0 * 4.0), 0.25 / 2.0], abs=1e-15)


def test_lin_ucb_by_hand():
    """Ridge 1, mean 1/4, one reward 1 at x = (1, 0).

    Theta = (3/8, 0), x' inv(A) x = 1/2 there, 1 across.

    An arm without a reward is expected to pay the prior mean in every context.
    """
    bandit = Bandit("lin_ucb", prior_strength=1.0, prior_mean=0.25)
    state = update(init(2, bandit=bandit, n_features=2), 0, 1.0, bandit, context=[1.0, 0.0])
    posterior = normal(state, bandit, np.array([1.0, 0.0]))
    np.testing.assert_allclose(posterior, [[0.625, 0.25], [np.sqrt(0.5), 1.0]], rtol=1e-15)
    score = lin_ucb(state, bandit, None, np.array([0.0, 2.0]))
    np.testing.assert_allclose(score, [2.25, 2.25], rtol=1e-15)


@pytest.mark.parametrize("policy", ["thompson_beta", "thompson_nig", "lin_thompson"])
def test_draws_have_the_posterior_that_is_told(policy):
    """The mean of 20,000 draws is the posterior's, within four standard errors."""
    bandit = Bandit(policy)
    n = 20000
    state = init(2, bandit=bandit, n_features=1, batch=(n,))
    for arm, reward in ((0, 1.0), (0, 0.75), (0, 0.25), (1, 0.25)):
        state = update(state, arm, reward, bandit, context=[1.0])
    _, choice = choose(state, bandit, np.random.default_rng(3), context=[1.0])
    # with a constant as its only feature, a ridge of 2 is two pseudo-rewards of the prior mean
    expected = (0.6, 1 / 3) if policy == "thompson_beta" else (0.6, 1.25 / 3)
    error = choice.score.std(axis=0, ddof=1) / np.sqrt(n)
    assert (np.abs(choice.score.mean(axis=0) - expected) < 4.0 * error).all()


def test_ties_fall_to_the_lowest_or_at_random():
    """Equal arms 1 and 2 of three: all on 1, or half on each."""
    n = 20000
    for ties, share in (("lowest", 1.0), ("random", 0.5)):
        bandit = Bandit("ucb1", ties=ties)
        state = init(3, bandit=bandit, batch=(n,))
        for arm, reward in enumerate((0.25, 0.5, 0.5)):
            state = update(state, arm, reward, bandit)
        _, choice = choose(state, bandit, np.random.default_rng(1))
        assert (choice.arm == 1).mean() == pytest.approx(share, abs=(1.0 - share) * 0.028)
        assert (choice.arm != 0).all()


def test_a_discount_halves_what_was_seen():
    """A reward of one round ago counts half, one of now whole; pulls and t are not forgotten."""
    bandit, rng = Bandit("ucb1", discount=0.5), np.random.default_rng(0)
    state, _ = choose(init(1, bandit=bandit), bandit, rng)
    state, _ = choose(update(state, 0, 1.0, bandit), bandit, rng)
    state = update(state, 0, 0.5, bandit)
    assert (state.n[0], state.total[0], state.square[0]) == (1.5, 1.0, 0.75)
    assert (int(state.t), int(state.pulls[0])) == (2, 2)


def test_a_window_forgets_whole_rounds():
    """Of rewards 1, 0.75, 0.5 the last two count, and none after two rounds without one."""
    bandit, rng = Bandit("ucb1", window=2), np.random.default_rng(0)
    state = init(1, bandit=bandit)
    for reward in (1.0, 0.75, 0.5):
        state = update(choose(state, bandit, rng)[0], 0, reward, bandit)
    assert (state.n[0], state.total[0]) == (2.0, 1.25)
    for _ in range(2):
        state, _ = choose(state, bandit, rng)
    assert (state.n[0], state.total[0], state.square[0]) == (0.0, 0.0, 0.0)
    same(update(state, 0, 1.0, bandit, age=2), state)
    assert update(state, 0, 1.0, bandit, age=1).n[0] == 1.0


def bandits():
    """A policy, with a discount, a window, or neither."""
    forgets = st.sampled_from([{}, {"discount": 0.5}, {"window": 3}])
    ties = st.sampled_from(["lowest", "random"])
    return st.builds(
        lambda policy, more, tie: Bandit(policy, ties=tie, **more),
        st.sampled_from(POLICIES),
        forgets,
        ties,
    )


STEP = st.tuples(
    st.sampled_from(GRID), st.lists(st.sampled_from(GRID), min_size=FEATURES, max_size=FEATURES)
)
STEPS = st.lists(STEP, min_size=1, max_size=8)
quick = settings(deadline=None, derandomize=True, max_examples=40)


@quick
@given(bandits(), st.lists(STEPS, min_size=2, max_size=3))
def test_one_is_a_cell_of_many(bandit, rows):
    """A batch of replications learns what each alone would, from the same choices."""
    length, rng = min(map(len, rows)), np.random.default_rng(0)
    many, alone = fresh(bandit, (len(rows),)), [fresh(bandit) for _ in rows]
    for t in range(length):
        rewards, x = [row[t][0] for row in rows], [row[t][1] for row in rows]
        many, choice = choose(many, bandit, rng, context=x)
        many = update(many, choice.arm, rewards, bandit, context=x)
        for number, arm in enumerate(choice.arm):
            only = np.arange(3) == arm  # the mask forces the same arm
            state, _ = choose(alone[number], bandit, rng, mask=only, context=x[number])
            alone[number] = update(state, arm, rewards[number], bandit, context=x[number])
    for number, state in enumerate(alone):
        same(State(*(field[number] for field in many)), state)


@quick
@given(bandits(), STEPS, st.lists(st.integers(0, 4), min_size=8, max_size=8))
def test_a_late_reward_is_one_in_time(bandit, steps, delays):
    """With its age told, a reward late and out of order leaves the state it would have left."""
    timely = late = fresh(bandit)
    rng, one_arm = np.random.default_rng(0), np.arange(3)
    rounds = len(steps) + 5
    for t in range(rounds):
        only = one_arm == t % 3
        x = steps[t][1] if t < len(steps) else [0.0, 0.0]
        timely, late = (
            choose(state, bandit, rng, mask=only, context=x)[0] for state in (timely, late)
        )
        if t < len(steps):
            timely = update(timely, t % 3, steps[t][0], bandit, context=x)
        for then in range(min(t + 1, len(steps))):
            if then + delays[then] == t:
                reward, x = steps[then]
                late = update(late, then % 3, reward, bandit, context=x, age=delays[then])
    same(late, timely, 1e-12)


def steps_of(rows):
    """Rows of kind, arm, old, new, age and context as columns."""
    kind, arm, old, new, age, context = zip(*rows, strict=True)
    return Steps(*map(np.array, (kind, arm, old, new, age)), np.array(context, dtype=np.float64))


@settings(quick, max_examples=150)
@given(st.data())
def test_many_steps_at_once_are_the_steps_one_by_one(data):
    """The same bits for rewards in time, late and revised, whatever is forgotten; cut anywhere."""
    forgets = data.draw(st.sampled_from([{}, {"discount": 0.97}, {"window": 3}]))
    bandit = Bandit(data.draw(st.sampled_from(POLICIES)), **forgets)
    state, rng = fresh(bandit), np.random.default_rng(0)
    waiting: list[tuple[int, int, Any]] = []
    rows: list[Any] = []
    rewards: dict[int, tuple[int, float, Any]] = {}
    unit = st.floats(0.0, 1.0)

    def add(kind, arm, old, new, age, context):
        rows.append((kind, arm, old, new, age, context if bandit.linear else []))

    for t in range(data.draw(st.integers(1, 12))):
        arm = data.draw(st.integers(0, 2))
        x = data.draw(st.lists(unit, min_size=FEATURES, max_size=FEATURES))
        state, _ = choose(state, bandit, rng, mask=np.arange(3) == arm, context=x)
        add(CHOSEN, arm, 0.0, 0.0, 0, x)
        waiting.append((t, arm, x))
        if data.draw(st.booleans()):
            then, arm, x = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            reward = data.draw(unit)
            state = update(state, arm, reward, bandit, context=x, age=t - then)
            add(REWARDED, arm, 0.0, reward, t - then, x)
            rewards[then] = (arm, reward, x)
        if rewards and data.draw(st.booleans()):
            then = data.draw(st.sampled_from(sorted(rewards)))
            (arm, old, x), new = rewards[then], data.draw(unit)
            if bandit.window == 0 or t - then < bandit.window:
                state = revise(state, arm, old, new, bandit, context=x, age=t - then)
                add(REVISED, arm, old, new, t - then, x)
                rewards[then] = (arm, new, x)
    cut = data.draw(st.integers(1, len(rows)))
    folded = fold(fresh(bandit), steps_of(rows[:cut]), bandit)
    if rows[cut:]:
        folded = fold(folded, steps_of(rows[cut:]), bandit)
    same(folded, state)
    assert [field.dtype for field in folded] == [field.dtype for field in state]


@quick
@given(bandits(), STEPS, st.sampled_from(GRID))
def test_a_revised_reward_is_the_new_one(bandit, steps, new):
    """Two rounds later the state is the one of the new reward from the start."""
    revised = at_once = fresh(bandit)
    rng, only = np.random.default_rng(0), [True, False, False]
    for t, (reward, x) in enumerate(steps):
        revised, at_once = (
            choose(state, bandit, rng, mask=only, context=x)[0] for state in (revised, at_once)
        )
        revised = update(revised, 0, reward, bandit, context=x)
        at_once = update(at_once, 0, new if t == 0 else reward, bandit, context=x)
        if t == min(2, len(steps) - 1):
            revised = revise(revised, 0, steps[0][0], new, bandit, context=steps[0][1], age=t)
    same(revised, at_once, 1e-12)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda s, b, _: update(s, 0, np.nan, b), r"reward must be in \[0, 1\], got nan"),
        (lambda s, b, _: update(s, 0, -0.25, b), r"reward must be in \[0, 1\], got -0.25"),
        (lambda s, b, _: update(s, 0, 1.25, b), r"reward must be in \[0, 1\], got 1.25"),
        (lambda s, b, _: update(s, 3, 0.5, b), r"arm must be a whole number in \[0, 3\), got 3"),
        (lambda s, b, _: update(s, 1, 0.5, b, age=-1), "age must be a whole number"),
        (lambda s, b, _: revise(s, 1, 0.5, np.nan, b), r"reward must be in \[0, 1\], got nan"),
        (lambda s, b, _: revise(s, 2, 1.0, 0.0, b), "old must be a reward .* an arm without one"),
        (lambda s, b, _: update(s, [1, 2], 0.5, b), r"arm must be one for all, .* got \(2,\)"),
        (lambda s, b, r: choose(s, b, r, mask=[False] * 3), "mask must leave an arm"),
        (lambda s, b, r: choose(s, b, r, mask=[1, 0, 1]), "mask must be of booleans"),
        (lambda s, b, r: choose(s, b._replace(floor=0.4), r), "floor times 3 arms .* got 0.4"),
        (lambda s, b, r: choose(s, b._replace(window=2), r), "the same window"),
        (lambda *_: init(3, bandit=Bandit("thompson_beta", prior_mean=0.0)), "prior_mean.*0.0"),
        (lambda *_: init(3, bandit=Bandit("thompson_beta", prior_mean=1.0)), "prior_mean.*1.0"),
        (
            lambda s, b, r: choose(s, b._replace(algorithm="lin_ucb"), r),
            "needs a state with features",
        ),
        (
            lambda s, b, r: choose(s, b._replace(history=Stats(*np.zeros((3, 2)))), r),
            r"history must be \[A\]",
        ),
        (
            lambda _, b, __: fold(fresh(b, (2,)), steps_of([(CHOSEN, 0, 0.0, 0.0, 0, [])]), b),
            "steps must be of one learner",
        ),
    ],
)
def test_steps_that_break_a_rule_are_refused(call, rule):
    """With the rule and what came; the state is as it was."""
    bandit = Bandit("ucb1")
    state = learned(bandit, [(1, 0.5)], 3)
    before = State(*(field.copy() for field in state))
    with pytest.raises(ValueError, match=rule):
        call(state, bandit, np.random.default_rng(0))
    same(state, before)


def test_a_window_knows_its_rounds():
    """It refuses a second reward of a round, a reward of no round, and an old uncounted one."""
    bandit = Bandit("ucb1", window=3)
    first, _ = choose(init(2, bandit=bandit), bandit, np.random.default_rng(0))
    second = update(first, 0, 0.5, bandit)
    late, wrong = ((REWARDED, 0, 0.0, 0.5, 1, []), (REVISED, 0, 0.25, 1.0, 0, []))
    for rule, call, state, *about in (
        ("age must be less than the rounds chosen, got 1", fold, first, steps_of([late])),
        ("a round has one reward", update, second, 0, 0.5),
        ("old must be the reward that was counted", revise, second, 0, 0.25, 1.0),
        ("old must be the reward that was counted", fold, second, steps_of([wrong])),
    ):
        with pytest.raises(ValueError, match=rule):
            call(state, *about, bandit)
    with pytest.raises(ValueError, match="age must be less than the rounds chosen"):
        update(first, 0, 0.5, bandit, age=1)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"algorithm": "softmax"}, "algorithm must be one of epsilon_greedy"),
        ({"ties": "first"}, "ties must be lowest or random"),
        ({"epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
        ({"exploration": 0.0}, r"exploration must be in \(0"),
        ({"discount": 0.0}, r"discount must be in \(0, 1\]"),
        ({"prior_mean": 1.0}, "prior_mean of thompson_beta"),
        ({"window": -1}, "window must be a whole number"),
        ({"window": 3, "discount": 0.5}, "exclude each other"),
        ({"floor": 0.6}, "floor times 2 arms may not pass 1"),
        ({"algorithm": "lin_ucb", "history": Stats(*np.ones((3, 2)))}, "a history has no contexts"),
        ({"history": Stats(*np.full((3, 2), -1.0))}, "square >= 0"),
        ({"history": Stats(np.ones(2), np.full(2, 5.0), np.ones(2))}, "n >= total >= square"),
    ],
)
def test_settings_outside_their_range_are_refused(change, rule):
    """Before any state is made."""
    with pytest.raises(ValueError, match=rule):
        init(2, bandit=Bandit()._replace(**change), n_features=1)


@pytest.mark.parametrize("context", [None, [1.0], [1.0, np.nan]])
def test_a_context_must_fit(context):
    """A linear policy takes no missing, short or broken context."""
    bandit = Bandit("lin_ucb")
    with pytest.raises(ValueError, match="context must be"):
        choose(fresh(bandit), bandit, np.random.default_rng(0), context=context)
