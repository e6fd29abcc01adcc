"""Exact propensities: closed forms, quadrature of another kind, and the choices themselves.

Sampling from them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc, betaln, expit, log_expit, ndtr, stdtr

from raglab.bandit import (
    POLICIES,
    Bandit,
    State,
    choose,
    init,
    propensities,
    sample,
    update,
)
from raglab.bandit.propensity import largest_beta, largest_normal, largest_t

LAWFUL = settings(deadline=None, derandomize=True, max_examples=60)
EXACT = 1e-8  # what is promised
COUNT = st.sampled_from([0.05, 0.5, 1.0, 2.0, 3.0, 30.0, 400.0, 5000.0])
CLOSE = {"abs": 1e-10, "rel": 0.0}


def first_of_two_betas(a, b, c, d):
    """P(Beta(a, b) > Beta(c, d)) for a whole a: a finite sum."""
    i = np.arange(a)
    return float(
        np.exp(betaln(c + i, b + d) - np.log(b + i) - betaln(1 + i, b) - betaln(c, d)).sum()
    )


def plain(laws, ends):
    """The integral by SciPy's adaptive quadrature between ends, arm by arm, of pairs of F and f."""
    out = []
    for i, (_, density) in enumerate(laws):
        distributions = [below for j, (below, _) in enumerate(laws) if j != i]

        def inside(x, density=density, distributions=distributions):
            return float(density(x) * np.prod([below(x) for below in distributions]))

        out.append(
            sum(
                quad(inside, *pair, limit=200, epsabs=1e-13, epsrel=1e-11)[0]
                for pair in pairwise(ends)
            )
        )
    return out


def log_odds(a, b):
    """F and f of the log-odds of a Beta draw."""
    return (
        lambda z: betainc(a, b, expit(z)),
        lambda z: np.exp(a * log_expit(z) + b * log_expit(-z) - betaln(a, b)),
    )


def student(df, mean, scale):
    """F and f of a Student-t draw."""
    top = np.exp(-betaln(0.5 * df, 0.5)) / (np.sqrt(df) * scale)
    return (
        lambda x: stdtr(df, (x - mean) / scale),
        lambda x: top * (1.0 + ((x - mean) / scale) ** 2 / df) ** (-0.5 * (df + 1.0)),
    )


def played(bandit, rounds, seed, n_arms=4):
    """A state after some rounds, and the context of the next."""
    rng = np.random.default_rng(seed)
    width = 2 if bandit.linear else 0
    state = init(n_arms, bandit=bandit, n_features=width)
    for _ in range(rounds):
        x = rng.normal(size=width) if width else None
        state, choice = choose(state, bandit, rng, context=x)
        state = update(state, choice.arm, np.round(rng.random(), 2), bandit, context=x)
    return state, rng.normal(size=width) if width else None


# the largest of independent draws


@pytest.mark.parametrize(
    ("a", "b", "c", "d"),
    [
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (5000, 3, 1, 1),
        (50, 50, 52, 49),
        (3, 2, 2, 3),
        (5000, 5000, 5001, 5000),
        (2, 900, 1, 1),
    ],
)
def test_two_betas_by_their_finite_sum(a, b, c, d):
    """Also where one is a thousand times narrower than the other, or they are nearly the same."""
    p = first_of_two_betas(a, b, c, d)
    assert largest_beta([a, c], [b, d]).tolist() == pytest.approx([p, 1.0 - p], **CLOSE)


@pytest.mark.parametrize("counts", [0.01, 0.05, 0.5, 1.0, 77.0, 1e5, 1e9])
def test_ten_equal_arms_get_a_tenth(counts):
    """Whatever the shape: bathtub, flat, narrow, at an end; of every family."""
    many = np.full(10, counts)
    np.testing.assert_allclose(largest_beta(many, many), 0.1, atol=1e-12)
    np.testing.assert_allclose(largest_beta(1e19, np.ones(10)), 0.1, atol=1e-12)
    np.testing.assert_allclose(largest_normal(0.5, 1.0 / many), 0.1, atol=1e-12)
    np.testing.assert_allclose(largest_t(0.5, 1.0 / many, np.maximum(many, 0.5)), 0.1, atol=1e-12)


@pytest.mark.parametrize(
    ("gap", "first", "second"),
    [(0.0, 1.0, 5.0), (0.3, 1.0, 0.001), (1.0, 1.0, 5.0), (1e-4, 1e-4, 1e-4)],
)
def test_two_normals_and_two_cauchys_by_closed_form(gap, first, second):
    """A difference of normals is normal, of Cauchys Cauchy."""
    p = (
        largest_normal([gap, 0.0], [first, second])[0],
        largest_t([gap, 0.0], [first, second], 1.0)[0],
    )
    expected = ndtr(gap / np.hypot(first, second)), 0.5 + np.arctan(gap / (first + second)) / np.pi
    assert p == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize(
    "counts",
    [
        [(1.0, 1.0), (5000.0, 3.0), (0.5, 0.5)],
        [(20.0, 20.0), (20.5, 20.0), (20.0, 21.0), (3.0, 2.0)],
        [(1.5, 1.0), (1.0, 3.0), (40.0, 60.0), (0.1, 0.3)],
    ],
)
def test_betas_by_adaptive_quadrature(counts):
    """Betas of unlike widths, some with a pole at an end, as SciPy integrates their log-odds."""
    ends = [-300.0, *np.arange(-20.0, 31.0, 0.5), 100.0]
    expected = plain([log_odds(*pair) for pair in counts], ends)
    assert largest_beta(*np.array(counts).T).tolist() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("seed", range(2))
def test_t_draws_by_adaptive_quadrature(seed):
    """Student-t draws of two to sixty degrees, scales a hundredfold apart, as SciPy integrates."""
    rng = np.random.default_rng(seed)
    mean = rng.random(4)
    scale, df = (rng.choice(values, 4) for values in ([0.01, 0.1, 1.0], [2.0, 5.0, 60.0]))
    laws = [student(*law) for law in zip(df, mean, scale, strict=True)]
    far = np.geomspace(2.0, 1e6, 20)
    expected = plain(laws, [*-far[::-1], *np.arange(-1.5, 2.0, 0.05), *far])
    assert largest_t(mean, scale, df).tolist() == pytest.approx(expected, **CLOSE)


@LAWFUL
@given(counts=st.lists(st.tuples(COUNT, COUNT, st.booleans()), min_size=2, max_size=10))
def test_a_masked_draw_is_as_if_it_were_not_there(counts):
    """It has nothing, and the others what they have alone."""
    a, b, on = (np.array(column) for column in zip(*counts, strict=True))
    on[0] = True
    p = largest_beta(a, b, on)
    assert (p[~on] == 0.0).all()
    np.testing.assert_allclose(p[on], largest_beta(a[on], b[on]), atol=1e-12)
    assert p.sum() == pytest.approx(1.0, abs=1e-15)


@LAWFUL
@given(
    counts=st.lists(st.tuples(COUNT, COUNT), min_size=2, max_size=4),
    more=st.sampled_from([0.5, 1.0, 10.0]),
)
def test_a_success_never_lowers_a_propensity(counts, more):
    """Beta posteriors are ordered in their first count; order of the arms does not matter."""
    a, b = (np.array(column) for column in zip(*counts, strict=True))
    before, after = largest_beta(a, b), largest_beta(a + more * np.eye(len(a))[0], b)
    assert after[0] >= before[0] - EXACT
    np.testing.assert_allclose(largest_beta(a[::-1], b[::-1]), before[::-1], atol=1e-10)


def test_a_batch_is_its_rows():
    """Bit for bit, over any leading axes and masks."""
    rng = np.random.default_rng(2)
    (a, b), on = rng.gamma(1.0, 40.0, (2, 6, 5, 4)), rng.random((6, 5, 4)) < 0.7
    on[..., 0] = True
    for law, params in [
        (largest_beta, (a, b)),
        (largest_normal, (a / 90.0, b / 90.0)),
        (largest_t, (a / 90.0, b / 90.0, np.maximum(a, 1.0))),
    ]:
        many = law(*params, on)
        rows = [[law(*(p[i, j] for p in params), on[i, j]) for j in range(5)] for i in range(6)]
        np.testing.assert_array_equal(many, rows)


def test_parameters_that_no_draw_has_are_refused():
    """NaN, a spread of 0, fewer than a tenth degree of freedom, nobody to draw."""
    with pytest.raises(ValueError, match="sd must be finite and above 0, got 0"):
        largest_normal([0.0, 1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="mean must be finite, got nan"):
        largest_t([0.0, np.nan], [1.0, 1.0], 5.0)
    with pytest.raises(ValueError, match=r"df must be at least 0.1, got 0.01"):
        largest_t([0.0, 0.5], [1.0, 1.0], 0.01)
    with pytest.raises(ValueError, match="one draw at least must take part"):
        largest_beta([1.0, 1.0], [1.0, 1.0], [False, False])
    assert largest_normal([0.0, np.nan], [1.0, np.nan], [True, False]).tolist() == [1.0, 0.0]


# propensities of a learner


@pytest.mark.parametrize(
    ("bandit", "share"),
    [
        (Bandit("epsilon_greedy", epsilon=0.3), 0.15),
        (Bandit("ucb1", floor=0.1), 0.1),
        (Bandit("thompson_beta"), 1 / 6),
        (Bandit("thompson_beta", floor=0.1), 0.1 + 0.8 / 6),
    ],
)
def test_two_available_arms_by_head(bandit, share):
    """The worse of two: Beta(1, 2) against Beta(2, 1) is 1/6; the third arm is masked."""
    state = init(3)
    for arm, reward in enumerate((0.2, 0.9, 0.9)):
        state = update(state, arm, reward, bandit)
    shares = propensities(state, bandit, mask=[True, True, False])
    assert shares.tolist() == pytest.approx([share, 1.0 - share, 0.0])


def test_linear_thompson_without_a_context_to_speak_of_ties():
    """A context of zeros predicts 0 for every arm with certainty.

    No draw decides, the tie rule does.
    """
    bandit = Bandit("lin_thompson")
    state = init(3, bandit=bandit, n_features=2)
    zeros = np.zeros(2)
    for changes, more, share in (
        ({}, {"context": zeros, "mask": [False, True, True]}, [0.0, 1.0, 0.0]),
        ({"ties": "random"}, {"context": zeros}, [1 / 3] * 3),
        ({"exploration": 0.0}, {"context": np.ones(2)}, [1.0, 0.0, 0.0]),
    ):
        p = propensities(state, bandit._replace(**changes), **more)
        assert p.tolist() == pytest.approx(share)


SETTINGS = [
    Bandit(policy, floor=floor, ties=ties, exploration=exploration)
    for policy in POLICIES
    for floor, ties, exploration in [(0.0, "lowest", 1.0), (0.05, "random", 1.5)]
]


@pytest.mark.parametrize("bandit", SETTINGS, ids=lambda bandit: f"{bandit.algorithm}-{bandit.ties}")
@pytest.mark.parametrize("rounds", [0, 40])
def test_choices_are_as_frequent_as_stated(bandit, rounds):
    """Choices of one state under a mask.

    A chi-square that a true propensity fails once in a million.
    """
    from scipy.special import chdtrc

    n = 20_000
    state, x = played(bandit, rounds, rounds)
    mask = np.array([True, True, False, True])
    p = propensities(state, bandit, mask=mask, context=x)
    many = State(*(np.broadcast_to(field, (n, *field.shape)) for field in state))
    _, choice = choose(many, bandit, np.random.default_rng(rounds), mask=mask, context=x)
    count = np.bincount(choice.arm, minlength=4)
    assert (count[p == 0.0] == 0).all()
    some = p > 0.0
    chi2 = float(((count[some] - n * p[some]) ** 2 / (n * p[some])).sum())
    assert some.sum() == 1 or chdtrc(int(some.sum()) - 1, chi2) > 1e-6


@LAWFUL
@given(
    bandit=st.sampled_from(SETTINGS),
    rounds=st.integers(0, 12),
    mask=st.lists(st.booleans(), min_size=4, max_size=4).filter(any),
)
def test_no_mass_on_a_masked_arm(bandit, rounds, mask):
    """Propensities sum to 1, respect the floor, are 0 where masked, and leave the state as is."""
    state, x = played(bandit, rounds, 3)
    copies = [np.array(field) for field in state]
    p = propensities(state, bandit, mask=mask, context=x)
    on = np.array(mask)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert (p[~on] == 0.0).all()
    assert (p[on] >= bandit.floor).all()
    for field, copy in zip(state, copies, strict=True):
        np.testing.assert_array_equal(field, copy)
    for uniform in (0.0, 0.37, np.nextafter(1.0, 0.0)):
        assert on[sample(p, uniform)]


# sampling


def test_sampling_by_head():
    """Upper ends belong to the next arm; the last positive arm takes what rounding leaves."""
    assert sample([0.25, 0.0, 0.75], [0.0, 0.2499, 0.25, 0.9999]).tolist() == [0, 0, 2, 2]
    assert int(sample([0.0, 1.0, 0.0], 0.0)) == 1
    assert int(sample([0.0, 1.0, 0.0], np.nextafter(1.0, 0.0))) == 1
    assert sample([[0.5, 0.5], [0.0, 1.0]], [0.4, 0.4]).tolist() == [0, 1]


@LAWFUL
@given(
    parts=st.lists(st.sampled_from([0.0, 0.1, 1 / 3, 0.7, 5e-324]), min_size=1, max_size=7).filter(
        lambda p: sum(p) > 0.01
    )
)
def test_a_masked_arm_is_never_sampled(parts):
    """Not at 0, not just below 1, and not anywhere between, however the sum rounds."""
    p = np.array(parts) / np.sum(parts)
    cuts = np.cumsum(p)
    uniforms = np.concatenate(
        [np.linspace(0.0, 1.0, 200), np.nextafter(cuts, 0.0), cuts, np.nextafter(cuts, 2.0)]
    )
    uniforms = uniforms[uniforms < 1.0]
    assert (p[sample(np.broadcast_to(p, (len(uniforms), len(p))), uniforms)] > 0.0).all()


def test_sampling_refuses_what_is_no_distribution():
    """Negative or NaN propensities, a sum that is not 1, a uniform of 1."""
    for share, uniform, rule in (
        ([-0.5, 1.5], 0.1, r"rows of propensity must be >= 0.*got \[-0.5, 1.5\]"),
        ([0.4, 0.5], 0.1, r"sum to 1, got \[0.4, 0.5\]"),
        ([0.4, 0.6], 1.0, r"uniform must be in \[0, 1\), got 1"),
    ):
        with pytest.raises(ValueError, match=rule):
            sample(share, uniform)
