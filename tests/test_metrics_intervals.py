from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from raglab.loops.parallel import parallel_workers
from raglab.metrics import binomial_p, upper_bound
from raglab.metrics.intervals import (
    PAIRS_PER_THREAD,
    check_level,
    clopper_pearson,
    mean_interval,
    percentile_interval,
)

N = np.array([1, 2, 10, 22, 59, 230, 1000])[:, None]
K = np.minimum(np.array([0, 1, 2, 5, 9, 40, 1000]), N)
ALPHAS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.9)
DELTAS = (0.01, 0.05, 0.1, 0.25, 0.49)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_p_value_is_the_lower_tail(alpha):
    """`binom.cdf`, and `binomtest` with the alternative that the rate is less, to 1e-9."""
    found = np.asarray(binomial_p(K, N, alpha))
    np.testing.assert_allclose(found, stats.binom.cdf(K, N, alpha), rtol=1e-9, atol=1e-300)
    one_by_one = [
        stats.binomtest(int(k), int(n), alpha, alternative="less").pvalue for k, n in _pairs()
    ]
    np.testing.assert_allclose(found.ravel(), one_by_one, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("delta", DELTAS)
def test_an_upper_bound_is_a_quantile_of_a_beta(delta):
    """`beta.ppf(1 - delta, k + 1, n - k)` and `binomtest`'s one-sided end to 1e-9; 1 for n of n."""
    found = np.asarray(upper_bound(K, N, delta))
    with np.errstate(invalid="ignore"):
        by_beta = np.where(K < N, stats.beta.ppf(1.0 - delta, K + 1, N - K), 1.0)
    np.testing.assert_allclose(found, by_beta, rtol=1e-9)
    ends = [
        stats.binomtest(k, n, alternative="less").proportion_ci(1.0 - delta).high
        for k, n in _pairs()
    ]
    np.testing.assert_allclose(found.ravel(), ends, rtol=1e-9)


@pytest.mark.parametrize("delta", DELTAS)
def test_a_p_value_is_small_exactly_where_the_bound_is(delta):
    """It is <= delta where the upper bound is at most alpha, and nowhere else."""
    n = np.arange(1, 120)[:, None]
    k = np.minimum(np.arange(12), n)
    bound = np.asarray(upper_bound(k, n, delta))
    for alpha in ALPHAS:
        assert np.array_equal(np.asarray(binomial_p(k, n, alpha)) <= delta, bound <= alpha)


def test_nothing_answered_proves_nothing():
    """0 of 0: p is 1, the bound is missing."""
    assert float(binomial_p(0, 0, 0.1)) == 1.0
    assert np.isnan(upper_bound(0, 0))


@pytest.mark.parametrize(("k", "n"), [(3, 2), (-1, 2)])
def test_a_part_is_not_more_than_the_whole(k, n):
    """3 of 2 is a mistake in counting."""
    for call in (lambda *of: binomial_p(*of, 0.1), upper_bound, clopper_pearson):
        with pytest.raises(ValueError, match="k must be between 0 and n"):
            call(k, n)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 10.0, float("nan")])
def test_levels_are_probabilities(value):
    """10 is a percentage."""
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\), got"):
        binomial_p(1, 2, value)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 0.5\), got"):
        upper_bound(1, 2, value)


def _pairs():
    return list(zip(K.ravel().tolist(), np.broadcast_to(N, K.shape).ravel().tolist(), strict=True))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_an_interval_of_a_mean_is_that_of_scipy(level):
    """`scipy.stats.t.interval`, to 1e-12, from two replications on."""
    for count in (2, 3, 20, 400):
        values = np.random.default_rng(count).normal(3.0, 2.0, (count, 5))
        low, high = mean_interval(values, level)
        want = stats.t.interval(
            level, count - 1, loc=values.mean(axis=0), scale=stats.sem(values, axis=0)
        )
        np.testing.assert_allclose([low, high], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_a_percentile_interval_is_that_of_scipy(level):
    """`scipy.stats.bootstrap` with method percentile on the same resamples.

    One without a number is left out.
    """
    values = np.random.default_rng(5).exponential(size=40)
    made = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(6),
        n_resamples=999,
    )
    draws = made.bootstrap_distribution
    low, high = percentile_interval(draws, level)
    assert (float(low), float(high)) == pytest.approx(tuple(made.confidence_interval), abs=1e-12)
    with_holes = np.column_stack([np.insert(draws, 7, np.nan), np.full(len(draws) + 1, np.nan)])
    low_of, high_of = percentile_interval(with_holes, level)
    assert (low_of[0], high_of[0]) == (low, high)
    assert np.isnan([low_of[1], high_of[1]]).all()


def test_threads_make_the_same_intervals():
    """Of more counts than one thread makes at once, each matches small lots, threads or not."""
    rng = np.random.default_rng(0)
    n = rng.integers(0, 3_000, PAIRS_PER_THREAD + 5_000)
    k = rng.integers(0, n + 1)
    few = [
        clopper_pearson(k[start : start + 999], n[start : start + 999])
        for start in range(0, len(n), 999)
    ]
    with parallel_workers("threads", 2):
        by_threads = clopper_pearson(k, n)
    assert len(np.unique(k * 3_000 + n)) > PAIRS_PER_THREAD
    for found in (clopper_pearson(k, n), by_threads):
        for end, parts in zip(found, zip(*few, strict=True), strict=True):
            np.testing.assert_array_equal(end, np.concatenate(parts))


def test_a_level_is_checked_once():
    """Rule, value, remedy."""
    assert check_level(0.9) == 0.9
    for wrong in (0.0, 1.0, 95.0, float("nan")):
        for call in (check_level, lambda level: clopper_pearson(1, 2, level)):
            with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got .*; 0.95 is"):
                call(wrong)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    counts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40),
    of_one_size=st.booleans(),
)
# drawn
def test_intervals_of_many_are_those_of_each(
    counts,
    of_one_size,
):
    """To the bit, whether counts repeat or not, and in any shape: 0 of 0 among them."""
    k = np.array([min(pair) for pair in counts])
    n = np.full(len(k), 6) if of_one_size else np.array([max(pair) for pair in counts])
    alone = [clopper_pearson(int(one), int(of)) for one, of in zip(k, n, strict=True)]
    for end, each in zip(clopper_pearson(k[None], n[None]), zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(end, np.array(each, dtype=np.float64)[None])


def test_one_replication_has_no_interval():
    """The mean of one says nothing of others."""
    assert np.isnan(mean_interval(np.ones((1, 3)), 0.95)).all()
