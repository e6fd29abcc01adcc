"""Rows and their verdicts."""

from __future__ import annotations

from math import comb, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.extensions.league.league import difference_text
from raglab.extensions.league.rows import (
    AHEAD,
    BEHIND,
    LEVEL,
    NOT_JUDGED,
    TRADE,
    CellVerdict,
    LeagueRow,
    LeagueVerdict,
    cell_verdict,
    is_pooled,
    league_verdict,
    paired_interval,
    signed,
)

GRID = st.integers(-3, 3).map(lambda value: value / 4)


@given(GRID, GRID)
def test_the_verdict_turns_with_the_metric_and_the_sides(first: float, second: float) -> None:
    """Of a metric of which less is better, and of both sides exchanged, it is the opposite one."""
    low, high = min(first, second), max(first, second)
    opposite = {AHEAD: BEHIND, BEHIND: AHEAD, LEVEL: LEVEL}
    verdict = league_verdict(low, high, higher_is_better=True)
    assert (verdict == LEVEL) == (low <= 0.0 <= high)
    assert league_verdict(low, high, higher_is_better=False) == opposite[verdict]
    assert league_verdict(-high, -low, higher_is_better=True) == opposite[verdict]


@given(wins=st.integers(0, 19), losses=st.integers(0, 19))
def test_few_unequal_pairs_are_judged_by_the_sign_test(wins: int, losses: int) -> None:
    """The interval turns with the sides, holds the mean, and five wins to none tell nothing."""
    gain = np.array([1.0] * wins + [-1.0] * losses + [0.0] * 200)
    low, high = paired_interval(gain, nan, nan, 0.95)
    assert paired_interval(-gain, nan, nan, 0.95) == pytest.approx((-high, -low))
    assert low <= gain.mean() <= high
    if wins + losses < 20:
        chance = sum(comb(wins + losses, k) for k in range(min(wins, losses) + 1)) / 2 ** (
            wins + losses
        )
        if 2.0 * chance > 0.05:
            assert low <= 0.0 <= high


def test_a_small_end_is_not_shown_as_zero() -> None:
    """Three decimals would show an end above 0 as 0."""
    assert [signed(value) for value in (0.00008, -0.0004, 0.001, -0.25)] == [
        "+0.0001",
        "-0.0004",
        "+0.001",
        "-0.250",
    ]
    row = LeagueRow(
        "t", "c", "", "", higher_is_better=True, n=9, difference=0.002, low=0.00008, high=0.004
    )
    assert difference_text(row._replace(verdict="ahead")) == "+0.002 [+0.0001, +0.004]"
    assert difference_text(row) == ""  # what is not judged shows no result
    assert signed(1e-16) == "+0.000"


def test_without_an_interval_there_is_no_verdict() -> None:
    """Also where one end is missing."""
    assert league_verdict(nan, 0.1, higher_is_better=True) == NOT_JUDGED


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (AHEAD, AHEAD, AHEAD),
        (AHEAD, LEVEL, AHEAD),
        (AHEAD, BEHIND, TRADE),
        (LEVEL, LEVEL, LEVEL),
        (LEVEL, BEHIND, BEHIND),
        (BEHIND, BEHIND, BEHIND),
        (AHEAD, NOT_JUDGED, NOT_JUDGED),
        (BEHIND, NOT_JUDGED, NOT_JUDGED),
    ],
)
def test_two_rates_have_one_verdict(
    first: LeagueVerdict, second: LeagueVerdict, verdict: CellVerdict
) -> None:
    """A gain of one rate that costs the other is a trade; the order tells nothing."""
    assert cell_verdict([first, second]) == cell_verdict([second, first]) == verdict


@pytest.mark.parametrize(
    ("cell", "pooled"),
    [
        ("all", True),
        ("all, open models alone", True),
        ("all in copy", True),
        ("allegro / gpt", False),
        ("nq", False),
    ],
)
def test_rows_of_all_cells(cell: str, pooled: bool) -> None:
    """A set whose name begins with the same letters is a cell."""
    assert is_pooled(LeagueRow("t", cell, "", "", higher_is_better=True, n=0)) == pooled
