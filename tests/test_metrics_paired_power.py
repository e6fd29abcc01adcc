"""Paired power.

The smallest difference that cases tell, the cases that a difference takes, and their sentence.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.metrics.intervals import t_quantile
from raglab.metrics.paired_power import (
    cases_needed,
    paired_sizes,
    smallest_difference,
)

Z = 1.959964 + 0.841621
COUNTS = st.integers(0, 60)
SIZES = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 10.0])


def gains(up, down, same, size=1.0):
    """Differences of cost of cases that gain, lose and stay."""
    return np.repeat([size, -size, 0.0], [up, down, same])


def simulated_power(cases, share, sizes, difference, seed):
    """Share of 4,000 simulated comparisons whose paired 95 % t interval excludes 0."""
    rng, shape = np.random.default_rng(seed), (4_000, cases)
    up = 0.5 + difference / (2.0 * share * float(np.mean(sizes)))
    signs = np.where(rng.random(shape) < up, 1.0, -1.0)
    values = np.where(rng.random(shape) < share, signs * rng.choice(sizes, shape), 0.0)
    error = values.std(axis=1, ddof=1) / np.sqrt(cases)
    return float((np.abs(values.mean(axis=1)) > t_quantile(cases - 1, 0.95) * error).mean())


def test_a_worked_example():
    """Of 92 cases 14 differ.

    δ = z √(p / (n + z²)), N = z² (p - δ²) / δ² at both ends of the exact interval.
    """
    power = paired_sizes(gains(10, 4, 78))
    assert (power.cases, power.discordant, power.mean_square) == (92, 14, 1.0)
    assert power.share == pytest.approx((0.0858, 14 / 92, 0.2421), abs=1e-4)
    assert power.smallest.estimate == pytest.approx(Z * np.sqrt((14 / 92) / (92 + Z**2)), abs=1e-6)
    for difference, needed in power.needed.items():
        # At the lower end the share of .086 cannot carry .10: a share of .10 is the least that
        # does.
        shares = np.maximum(power.share, difference)
        assert needed == tuple(np.ceil(Z**2 * (shares - difference**2) / difference**2))


@pytest.mark.parametrize(
    ("share", "sizes", "difference"),
    [
        (0.2, [1.0], 0.05),
        (0.2, [1.0], 0.1),
        (0.2, [0.5, 1.0, 3.0], 0.1),
    ],
)
def test_the_cases_needed_have_the_power(share, sizes, difference):
    """Simulated at the given number of cases, the t interval excludes 0 in 80 ± 4 %.

    At 0.7 of that number it does so in 67 ± 6 %.
    """
    needed = int(cases_needed(difference, share, float(np.mean(np.square(sizes)))))
    assert simulated_power(needed, share, sizes, difference, 0) == pytest.approx(0.8, abs=0.04)
    assert simulated_power(int(0.7 * needed), share, sizes, difference, 1) == pytest.approx(
        0.67, abs=0.06
    )


def test_at_the_edge_the_power_is_not_below():
    """Where all discordant cases favour one policy the cases needed have at least 80 % power."""
    for difference in (0.05, 0.1):
        needed = int(cases_needed(difference, 0.0))
        assert simulated_power(needed, difference, [1.0], difference, 2) >= 0.8


def test_no_discordant_case():
    """The share is 0 up to 1 - .025^(1/n).

    At its lower end the least share that carries the difference is taken.
    """
    power = paired_sizes(np.zeros(30))
    most = 1.0 - 0.025 ** (1.0 / 30)
    assert power.share == pytest.approx((0.0, 0.0, most))
    assert power.needed[0.05] == (
        np.ceil(Z**2 * 19),
        np.ceil(Z**2 * 19),
        np.ceil(Z**2 * (most / 0.05**2 - 1.0)),
    )
    assert power.smallest.low == pytest.approx(Z**2 / (30 + Z**2), abs=1e-6)


@given(COUNTS, COUNTS, COUNTS, SIZES)
def test_laws(up, down, same, size):
    """Ranges ascend; signs and order do not matter; a unit of cost scales.

    The two formulas are inverse.
    """
    if up + down + same == 0:
        return
    values = gains(up, down, same, size)
    power = paired_sizes(values)
    for found in (power.share, power.smallest, *power.needed.values()):
        assert found.low <= found.estimate <= found.high
    assert paired_sizes(-values[::-1]) == power
    assert power.smallest.high <= np.sqrt(power.mean_square)
    scaled = paired_sizes(3.0 * values, price=3.0)
    assert scaled.smallest == pytest.approx(tuple(3.0 * end for end in power.smallest))
    if up + down:
        smallest = smallest_difference(power.cases, power.share.estimate, power.mean_square)
        assert (
            cases_needed(smallest * (1.0 + 1e-9), power.share.estimate, power.mean_square)
            <= power.cases
        )
        assert (
            cases_needed(smallest * (1.0 - 1e-6), power.share.estimate, power.mean_square)
            >= power.cases
        )


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros((2, 2)), np.array([1.0, np.nan])])
def test_gains_that_are_none(values):
    """No case, another shape and a missing difference are refused."""
    with pytest.raises(ValueError, match="gains must be a finite number a case"):
        paired_sizes(values)


def test_settings_that_mean_nothing():
    """A difference of 0, a power or level outside (0, 1) and a price of 0 are refused."""
    for call, rule in (
        (lambda: cases_needed(0.0, 0.1), "difference must not be 0"),
        (lambda: cases_needed(0.1, 0.1, power=1.0), "power must be in"),
        (lambda: smallest_difference(10, 0.1, level=95), "level must be in"),
        (lambda: paired_sizes(np.zeros(3), price=0.0), "price must be above 0"),
    ):
        with pytest.raises(ValueError, match=rule):
            call()


@pytest.mark.parametrize("guard", [2.0, 3.0])
def test_a_guard_against_dear_failures_takes_more_cases(guard):
    """The least difference and N grow, and at N the guarded interval excludes 0 in about 80 %.

    The share is that of draws.
    """
    gains = np.repeat([1.0, -1.0, 0.0], [30, 6, 64])
    plain, guarded = paired_sizes(gains, price=guard), paired_sizes(gains, price=guard, guard=guard)
    assert guarded.smallest.estimate > plain.smallest.estimate
    difference = 0.1 * guard
    n = int(guarded.needed[difference].estimate)
    assert n >= plain.needed[difference].estimate
    rng = np.random.default_rng(0)
    up, down = (0.36 + difference) / 2.0, (0.36 - difference) / 2.0
    draws = rng.random((2_000, n))
    values = np.where(draws < up, 1.0, np.where(draws < up + down, -1.0, 0.0))
    values = np.column_stack([values, np.full(len(values), -guard)])
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / np.sqrt(n + 1))
    assert 0.74 < (t > 1.96).mean() < 0.92
