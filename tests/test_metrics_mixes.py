"""Traffic mixes: laws of shares, weights, corners and crossings (S6.15)."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab import metrics
from raglab.gating.expected_cost import LABEL_OF_CLASS, mixed_bias
from raglab.metrics.crossings import crossing
from raglab.metrics.decision_rates import effective_counts
from raglab.metrics.mixes import checked_mix, cost_columns, mix_weighings, weighed_by_mix
from raglab.values import Status

LAWS = settings(deadline=None, derandomize=True, max_examples=50)
CELLS = st.lists(st.integers(0, 6), min_size=metrics.N_CELLS, max_size=metrics.N_CELLS)
SHARES = st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(1, 10))
WITHIN_LABEL = ("false_refusal_rate", "missed_ambiguity_rate")


def _shares(parts):
    return np.array(parts) / sum(parts)


def _label_mean(cells, value, label):
    of = label == metrics.LABEL_OF_CELL
    return float(cells[of] @ value[of] / cells[of].sum())


@LAWS
@given(CELLS, SHARES)
def test_the_cost_in_a_mix_is_the_mean_of_the_label_means(counts, parts):
    """Σ share × mean cost of the label; rates inside one label do not move."""
    cells, shares = np.array(counts), _shares(parts)
    if (metrics.label_counts(cells) == 0).any():
        return
    price = metrics.cell_costs({"refuse": {"answered_wrong": 5.0}})
    expected = sum(shares[label] * _label_mean(cells, price, label) for label in range(3))
    weighed = weighed_by_mix(cells[None], shares)
    assert weighed.weights.sum() == pytest.approx(cells.sum())
    paid = cost_columns(cells, {"refuse": {"answered_wrong": 5.0}}, None, [weighed])
    assert float(paid["expected_cost"][0]) == pytest.approx(expected)
    plain, mixed = (metrics.rate_columns(cells[None], None, rows) for rows in ((), [weighed]))
    for name in WITHIN_LABEL:
        share = shares[[Status.ok, Status.ambiguous][WITHIN_LABEL.index(name)]]
        if share:
            assert mixed[name][0] == pytest.approx(plain[name][0])
    assert mixed["coverage_k"][0] == plain["coverage_k"][0]


def test_weights_of_a_mix_by_hand():
    """Four ok and two refuse in traffic of 9 to 1: weights 1.35 and 0.3, and their squares."""
    cells = np.zeros(metrics.N_CELLS, dtype=np.int64)
    rows = [int(np.argmax(label == metrics.LABEL_OF_CELL)) for label in (0, 1)]
    cells[rows] = 4, 2
    weighed = weighed_by_mix(cells, np.array([0.9, 0.1, 0.0]))
    np.testing.assert_allclose(weighed.weights[rows], [5.4, 0.6])
    np.testing.assert_allclose(weighed.squares[rows], [4 * 1.35**2, 2 * 0.3**2])


@LAWS
@given(CELLS)
def test_the_sample_s_own_shares_change_nothing(counts):
    """Weights are 1, effective counts are the counts, intervals are the exact ones."""
    cells = np.array(counts)
    labels = metrics.label_counts(cells)
    if (labels == 0).any():
        return
    weighed = weighed_by_mix(cells[None], labels / labels.sum())
    k, n = (counts[0] for counts in effective_counts(weighed))
    assert k == pytest.approx(metrics.rate_counts(cells))
    assert n == pytest.approx(metrics.denominators(metrics.rate_counts(cells), labels))
    plain, mixed = (metrics.rate_columns(cells[None], 0.9, rows) for rows in ((), [weighed]))
    for name, column in plain.items():
        assert mixed[name] == pytest.approx(column, nan_ok=True)


@LAWS
@given(CELLS, st.data())
def test_no_mix_inside_is_worse_than_the_worst_corner(counts, data):
    """Every corner keeps the intervals and sums to 1; rates and costs are largest at corners."""
    cells = np.array(counts)
    labels = metrics.label_counts(cells)
    if (labels == 0).any():
        return
    ends = {
        label: tuple(sorted(data.draw(st.tuples(*[st.integers(0, 10)] * 2))))
        for label in metrics.LABELS[: data.draw(st.integers(1, 3))]
    }
    stated = {label: (low / 10, high / 10) for label, (low, high) in ends.items()}
    try:
        mix = checked_mix(stated)
    except ValueError:
        assert sum(low for low, _ in stated.values()) > 1.0 or (
            len(stated) == 3 and sum(high for _, high in stated.values()) < 1.0
        )
        return
    assert mix is not None
    corners = mix.vertices(labels)
    assert corners.sum(axis=1) == pytest.approx(1.0)
    for place, (low, high) in enumerate(stated.values()):
        assert (corners[:, place] >= low - 1e-6).all()
        assert (corners[:, place] <= high + 1e-6).all()
    parts = data.draw(st.lists(st.integers(0, 5), min_size=len(corners), max_size=len(corners)))
    if not sum(parts):
        return
    inside = np.array(parts) / sum(parts) @ corners

    def rates(shares):
        table = weighed_by_mix(cells, shares).weights
        return metrics.rates(metrics.rate_counts(table), metrics.label_counts(table))

    worst = np.nanmax([rates(corner) for corner in corners], axis=0)
    rates_inside = rates(inside)
    assert (np.isnan(rates_inside) | (rates_inside <= worst + 1e-9)).all()


def test_labels_without_a_share_have_the_rest_in_their_ratio():
    """A share of ok alone leaves 3 to 2 to the others; one absent label is none."""
    mix = checked_mix({"ok": 0.8})
    assert mix is not None
    assert mix.vertices(np.array([7, 30, 20])) == pytest.approx(np.array([[0.8, 0.12, 0.08]]))
    assert mix.vertices(np.array([7, 30, 0])) == pytest.approx(np.array([[0.8, 0.2, 0.0]]))
    with pytest.raises(ValueError, match="7 ok, 0 refuse, 0 ambiguous"):
        mix.at_labels(np.array([7, 0, 0]))


@pytest.mark.parametrize(
    "mix",
    [
        {"ok": 1.2},
        {"ok": (0.9, 0.8)},
        {"fine": 0.5},
        {},
        0.9,
        {"ok": "most"},
        {"ok": True},
        {"ok": 0.5, "refuse": 0.4, "ambiguous": 0.2},
        {"ok": float("nan")},
        {"ok": (0.1, 0.2, 0.3)},
        "traffic",
    ],
)
def test_what_is_no_mix_is_refused(mix):
    """Shares outside [0, 1], unknown labels, sums other than 1."""
    with pytest.raises(ValueError, match=r"mix"):
        checked_mix(mix)


@LAWS
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 3)), min_size=1, max_size=30))
def test_a_weight_is_a_number_of_equal_cases(rows):
    """Rates and costs of weighed cases are those of as many copies."""
    cell, times = (np.array(column) for column in zip(*rows, strict=True))
    copies = np.bincount(np.repeat(cell, times), minlength=metrics.N_CELLS)
    weighed = metrics.weighed_cases(cell[None], times.astype(np.float64))
    assert weighed.weights[0] / len(cell) == pytest.approx(copies / copies.sum())
    assert weighed.counts[0].sum() == len(cell)
    k, n = effective_counts(weighed)
    alike = metrics.rates(metrics.rate_counts(copies), metrics.label_counts(copies))
    with np.errstate(invalid="ignore"):
        assert k[0] / n[0] == pytest.approx(alike, nan_ok=True)
    assert (
        n[0]
        <= metrics.denominators(
            metrics.rate_counts(weighed.counts), metrics.label_counts(weighed.counts)
        )[0]
        + 1e-9
    ).all()


@LAWS
@given(SHARES, SHARES, st.lists(st.integers(-4, 4), min_size=4, max_size=4))
def test_a_corrected_bias_multiplies_the_chances(fitted, traffic, bias):
    """Each class by share in traffic over share in the fitted cases, normalised (Saerens 2002)."""
    if not all(fitted):
        return
    odds = np.exp(np.array(bias, dtype=np.float64))
    ratio = (_shares(traffic) / _shares(fitted))[list(LABEL_OF_CLASS)]
    expected = odds * ratio / (odds * ratio).sum()
    corrected = np.exp(np.array(mixed_bias(bias, _shares(fitted), _shares(traffic))))
    assert corrected / corrected.sum() == pytest.approx(expected, abs=1e-9)


GRID = st.sampled_from([0.0, 0.5, 1.0])


@LAWS
@given(st.data(), st.integers(2, 12), st.integers(2, 12), st.integers(1, 3))
def test_a_policy_is_the_cheapest_between_its_crossings_alone(data, n_ok, n_refuse, n_others):
    """On a grid of shares: strictly cheaper than each other inside, not cheaper outside."""
    label = np.repeat([Status.ok, Status.refuse], [n_ok, n_refuse]).astype(np.int64)
    loss = np.array(
        data.draw(
            st.lists(
                st.lists(GRID, min_size=len(label), max_size=len(label)),
                min_size=n_others + 1,
                max_size=n_others + 1,
            )
        )
    )
    names = [f"policy {number}" for number in range(n_others)]
    lines = crossing(loss[0], loss[1:], names, label)
    assert lines is not None
    all_ok, none_ok = loss[:, label == 0].mean(axis=1), loss[:, label == 1].mean(axis=1)
    for share in np.linspace(0.0, 1.0, 21)[1:-1]:
        cost = share * all_ok + (1.0 - share) * none_ok
        if min(abs(share - lines.low), abs(share - lines.high)) < 1e-9:
            continue
        assert (cost[0] < cost[1:].min() - 1e-12) == (lines.low < share < lines.high)
    assert lines.sample == pytest.approx(n_ok / (n_ok + n_refuse))
    assert (lines.above == "") == (lines.high == inf)
    assert lines.low_interval[0] <= lines.low_interval[1]


def test_an_interval_of_mixes_widens_what_a_point_says():
    """The value stays in the middle, the interval reaches over all corners."""
    cells = np.zeros((1, metrics.N_CELLS), dtype=np.int64)
    cells[0, [1, 6, 2, 8]] = 40, 10, 15, 15
    point = mix_weighings(cells, checked_mix({"ok": 0.8, "refuse": 0.2}))
    wide = mix_weighings(cells, checked_mix({"ok": (0.7, 0.9), "ambiguous": 0.0}))
    assert len(wide) == 3
    at_point, two = (cost_columns(cells, None, 0.95, rows) for rows in (point, wide))
    assert two["expected_cost"] == pytest.approx(at_point["expected_cost"])
    assert two["expected_cost_low"] < at_point["expected_cost_low"]
    assert two["expected_cost_high"] > at_point["expected_cost_high"]
