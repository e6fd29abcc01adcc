"""Paired differences and clusters (experiments.league.clustered)."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.league.clustered import (
    accuracy_at_coverage,
    accuracy_difference,
    auroc_lean,
    lean_spread,
    mean_auroc_difference,
    paired_rows,
)
from raglab.metrics import auroc

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=100)
LEVELS = st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, NAN])
ROW = st.tuples(st.booleans(), LEVELS, st.integers(0, 12))


def world(seed, n, size):
    """Right or wrong, two coarse signals and the cluster.

    Cases of a cluster share how hard and how sure they are.
    """
    rng, cluster = np.random.default_rng(seed), np.repeat(np.arange(n // size), size)
    hard, sure = (rng.normal(size=n // size)[cluster] for _ in range(2))
    right = rng.random(len(cluster)) < 1.0 / (1.0 + np.exp(-1.0 - hard))
    common = 0.6 * sure + 0.5 * rng.normal(size=len(cluster))
    first, second = (
        strength * right + common + 0.8 * rng.normal(size=len(cluster)) for strength in (1.0, 0.6)
    )
    first, second = (np.clip(np.round(2.0 * values), -4, 4) for values in (first, second))
    return right, first, second, cluster


def auroc_difference(*columns, clusters=None, level=0.95):
    """Difference over one cell that holds all cases."""
    cells = np.zeros(len(columns[0]))
    return mean_auroc_difference(*columns, cells=cells, clusters=clusters, level=level)


def columns(rows):
    """Rows as columns."""
    return [np.array(column) for column in zip(*rows, strict=True)]


# --- AUROC


def test_single_clusters_are_delong():
    """Paired variance of all pairs of a right and wrong case, singly (DeLong 1988, equation 3)."""
    right, *signals, _ = world(0, 80, 1)
    pairs = [
        (s[right][:, None] > s[~right]) + 0.5 * (s[right][:, None] == s[~right]) for s in signals
    ]
    apart = pairs[0] - pairs[1]
    variance = (
        apart.mean(axis=1).var(ddof=1) / right.sum()
        + apart.mean(axis=0).var(ddof=1) / (~right).sum()
    )
    rows = paired_rows(right, tuple(signals), None)
    every = np.ones(80, dtype=bool)
    (first_auroc, first), (second_auroc, second) = (
        auroc_lean(rows, rank, every) for rank in rows.rank
    )
    parts = (
        (first.right - second.right, int(right.sum())),
        (first.wrong - second.wrong, int((~right).sum())),
    )
    error, df = lean_spread(rows, parts, 80)
    assert error**2 == pytest.approx(variance, rel=1e-12)
    assert min(right.sum(), (~right).sum()) - 1 <= df <= 79
    assert first_auroc - second_auroc == pytest.approx(apart.mean(), abs=1e-15)


def test_a_mean_over_cells_by_hand():
    """Two cells weigh the same.

    A third with right cases alone is left out, and a fourth with one wrong cluster.
    """
    right, first, second, cluster = world(4, 200, 2)
    cells = np.repeat(["a", "b", "c", "d"], [60, 60, 40, 40])
    right[120:160] = True
    right[160:] = np.arange(40) > 1
    gain = mean_auroc_difference(right, first, second, cells=cells, clusters=cluster)
    each = [
        auroc(right[p], first[p]) - auroc(right[p], second[p])
        for p in (slice(0, 60), slice(60, 120))
    ]
    assert gain.value == pytest.approx(np.mean(each), abs=1e-15)
    assert (gain.cells, gain.cells_left_out, gain.clusters) == (2, 2, 60)
    plain = mean_auroc_difference(
        right[:120], first[:120], second[:120], cells=cells[:120], clusters=cluster[:120]
    )
    assert np.array(plain[:4]) == pytest.approx(np.array(gain[:4]), abs=1e-15)


def test_questions_that_models_share_are_clusters():
    """The same answers of four models.

    A mean over models knows no more than one model where clusters span them.
    """
    right, first, second, cluster = world(6, 150, 1)
    tiled = [np.tile(column, 4) for column in (right, first, second, cluster)]
    cells = np.repeat(np.arange(4), 150)
    spanning = mean_auroc_difference(*tiled[:3], cells=cells, clusters=tiled[3])
    assert np.array(spanning[:3]) == pytest.approx(
        np.array(auroc_difference(right, first, second)[:3]), abs=1e-12
    )
    apart = mean_auroc_difference(*tiled[:3], cells=cells)
    assert apart.high - apart.low < 0.6 * (spanning.high - spanning.low)


# --- accuracy at a coverage


@settings(LAWFUL, max_examples=50)
@given(rows=st.lists(ROW, min_size=1, max_size=6), place=st.integers(1, 6))
def test_ties_are_worth_the_mean_of_their_orders(rows, place):
    """Of a whole number of cases.

    The accuracy of the first ones, averaged over every order of the rows.
    """
    right, score = columns(rows)[:2]
    score = np.nan_to_num(score, nan=-1.0)
    answered = min(place, len(rows))
    orders = [np.array(order) for order in permutations(range(len(rows)))]
    firsts = [order[np.argsort(-score[order], kind="stable")][:answered] for order in orders]
    expected = np.mean([right[first].mean() for first in firsts])
    assert accuracy_at_coverage(right, score, answered / len(rows)) == pytest.approx(
        expected, abs=1e-12
    )


def test_few_clusters_give_no_interval():
    """Nine clusters of 30 cases: a value, a note, and no ends."""
    right, first, second, cluster = world(8, 270, 30)
    for gain in (
        auroc_difference(right, first, second, clusters=cluster),
        accuracy_difference(right, first, second > 0, clusters=cluster),
    ):
        assert np.isfinite(gain.value)
        assert np.isnan([gain.low, gain.high]).all()
