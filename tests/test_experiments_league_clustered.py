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
from refusals import refused

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=100)
LEVELS = st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, NAN])
ROW = st.tuples(st.booleans(), LEVELS, st.integers(0, 12))
ROWS = st.lists(ROW, min_size=2, max_size=40)


def world(seed, n, size):
    """Right or wrong, two coarse signals and the cluster.

    Cases of a cluster share how hard and how sure they are.
    """
    rng, cluster = np.random.default_rng(seed), np.repeat(np.arange(n // size), size)
    hard, sure = (rng.normal(size=n // size)[cluster] for _ in range(2))
    right = rng.random(len(cluster)) < 1.0 / (1.0 + np.exp(-1.0 - hard))
    common = 0.6 * sure + 0.5 * rng.normal(size=len(cluster))
    first, second = (
        own * right + common + 0.8 * rng.normal(size=len(cluster)) for own in (1.0, 0.6)
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
    (one, first), (two, second) = (auroc_lean(rows, rank, every) for rank in rows.rank)
    parts = (
        (first.right - second.right, int(right.sum())),
        (first.wrong - second.wrong, int((~right).sum())),
    )
    error, df = lean_spread(rows, parts, 80)
    assert error**2 == pytest.approx(variance, rel=1e-12)
    assert min(right.sum(), (~right).sum()) - 1 <= df <= 79
    assert one - two == pytest.approx(apart.mean(), abs=1e-15)


def test_clusters_are_obuchowski():
    """Sums of components by cluster as her equations 5 to 7 have them.

    The covariance is 1 % larger here.
    """
    right, first, _, cluster = world(1, 300, 5)
    pairs = (first[right][:, None] > first[~right]) + 0.5 * (first[right][:, None] == first[~right])
    area, (m, n) = pairs.mean(), pairs.shape
    ids = np.arange(60)
    x = np.array([(pairs.mean(axis=1) - area)[cluster[right] == i].sum() for i in ids])
    y = np.array([(pairs.mean(axis=0) - area)[cluster[~right] == i].sum() for i in ids])
    of_x, of_y = len(set(cluster[right].tolist())), len(set(cluster[~right].tolist()))
    s10, s01 = (x**2).sum() * of_x / ((of_x - 1) * m), (y**2).sum() * of_y / ((of_y - 1) * n)
    s11 = (x * y).sum() * 60 / 59
    variance = s10 / m + s01 / n + 2 * s11 / (m * n)
    rows = paired_rows(right, (first,), cluster)
    _, lean = auroc_lean(rows, rows.rank[0], np.ones(300, dtype=bool))
    assert lean_spread(rows, ((lean.right, of_x), (lean.wrong, of_y)), 60)[0] ** 2 == pytest.approx(
        variance, rel=0.01
    )


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


@LAWFUL
@given(rows=ROWS)
def test_a_rule_is_compared_at_its_own_coverage(rows):
    """What it answers is what has a 1, whatever the shares of rounding."""
    right, score, cluster = columns(rows)
    score, rule = np.nan_to_num(score, nan=-1.0), cluster % 2 == 0
    gain = accuracy_difference(right, score, rule, clusters=cluster)
    if not rule.any():
        assert np.isnan(gain.value)
        return
    assert gain.value == pytest.approx(
        accuracy_at_coverage(right, score, rule.mean()) - right[rule].mean(), abs=1e-12
    )


# --- laws of all


def test_few_clusters_give_no_interval():
    """Nine clusters of 30 cases: a value, a note, and no ends."""
    right, first, second, cluster = world(8, 270, 30)
    for gain in (
        auroc_difference(right, first, second, clusters=cluster),
        accuracy_difference(right, first, second > 0, clusters=cluster),
    ):
        assert np.isfinite(gain.value)
        assert np.isnan([gain.low, gain.high]).all()


def test_one_kind_alone():
    """No AUROC; the accuracy is there."""
    right, first, second, cluster = world(8, 60, 2)
    gain = auroc_difference(np.ones(60), first, second, clusters=cluster)
    assert np.isnan(gain[:3]).all()
    assert accuracy_difference(np.ones(60), first, second > 0).value == 0.0
    right[:] = np.arange(60) > 1
    assert auroc_difference(right, first, second, clusters=cluster).cells_left_out == 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"clusters": np.zeros(5)}, r"clusters must be one value a case, got shape \(5,\) for 60"),
        (
            {"clusters": ["a", None] * 30},
            r"clusters must not be missing, got 30 of 60, the first at position 1",
        ),
        ({"level": 1.0}, r"level must be in \(0, 1\)"),
    ],
)
def test_what_means_nothing(change, rule):
    """Rule, value, remedy."""
    right, first, second, _ = world(8, 60, 2)
    for call in (accuracy_difference, auroc_difference):
        refused(rule, call, right, first, second > 0, **change)
    refused(r"coverage must be in \(0, 1\]", accuracy_at_coverage, right, first, 1.2)
    refused("second must be 0 or 1", accuracy_difference, right, first, second)
