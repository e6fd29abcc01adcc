"""Certificates under a traffic mix: valid, monotone, at the corners, re-tested in it (S6.15)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import free_policy, labelled, noted
from raglab import metrics
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.certification_counts import (
    COST,
    UNEARNED_CELL,
    certified_tally,
    counted_losses,
    in_mix,
    repeated_cases,
    tally_losses,
    unit_cells,
)
from raglab.lab.looks import certificate_defect, stated_mix
from raglab.lab.threshold_rescaling import rescale_thresholds
from raglab.lab.untuned_policies import always_answer
from raglab.metrics import binomial_p
from raglab.metrics.intervals import Stratum
from raglab.metrics.mixes import estimated_mix
from raglab.store.policies import Policy

POLICY = free_policy()
ONE = ["similarity.min_similarity"]
RISK = {"hallucination_rate": 0.25}
MIX = {"ok": 0.95, "refuse": 0.05}
SPLITS = {"tune": 150, "certify": 300}
CORNERS = np.array([[0.8, 0.1, 0.1], [0.6, 0.4, 0.0]])
LABELS = (3, 2, 2)
LAWFUL = settings(deadline=None, derandomize=True, max_examples=60)
# answered wrong, answered right, refused, by label
PLACES = [(0, 1, 6), (2, 3, 8), (4, 5, 10)]


def of_cells(cells, names, corners, level=0.1, costs=None):
    """Test of policies whose cells are counted, [N, 20]."""
    table = np.atleast_2d(np.asarray(cells, dtype=np.int64))
    test = in_mix(counted_losses(table, names, costs), np.atleast_2d(corners), level).mix
    assert test is not None
    return test


@cache
def outcomes():
    """Cells of all outcomes of 3 + 2 + 2 units: wrong and right by label, and how many each is."""
    each = [[(k, r) for k in range(n + 1) for r in range(n + 1 - k)] for n in LABELS]
    rows = list(product(*each))
    cells = np.zeros((len(rows), metrics.N_CELLS), dtype=np.int64)
    for row, counts in enumerate(rows):
        for places, n, (k, r) in zip(PLACES, LABELS, counts, strict=True):
            cells[row, list(places)] = k, r, n - k - r
    ways = [
        prod(comb(n, k) * comb(n - k, r) for n, (k, r) in zip(LABELS, counts, strict=True))
        for counts in rows
    ]
    return cells, np.array(rows), np.array(ways, dtype=np.float64)


def chance(wrong, right):
    """Chance of each outcome, by chances of a wrong and of a right answer of each label."""
    _, counts, ways = outcomes()
    idle = np.array(LABELS) - counts.sum(axis=2)
    terms = np.power(wrong, counts[..., 0]) * np.power(right, counts[..., 1])
    return ways * (terms * np.power(np.maximum(1.0 - wrong - right, 0.0), idle)).prod(axis=1)


@LAWFUL
@given(
    st.lists(st.integers(0, 10), min_size=6, max_size=6),
    st.sampled_from([0.1, 0.3, 0.5]),
    st.sampled_from([(0.8, 0.1, 0.1), (0.2, 0.5, 0.3), (0.34, 0.33, 0.33)]),
    st.sampled_from([0.05, 0.2]),
    st.booleans(),
)
def test_p_values_are_valid_over_all_outcomes(tenths, alpha, shares, level, lower):
    """Whatever the chances at which a promise is broken (or kept), p is at most u with u or less.

    An answer to what should be refused is never right, so "right" is a refusal there.
    """
    wrong, right = np.array(tenths[:3]) / 20.0, np.array(tenths[3:]) / 20.0
    answered = wrong + right * [1.0, 0.0, 0.0]
    excess = float(np.dot(shares, wrong - alpha * answered))
    cells, _, _ = outcomes()
    cells = cells.copy()
    cells[:, 8] += cells[:, 3]  # answers to the others are never right
    cells[:, 10] += cells[:, 5]
    cells[:, [3, 5]] = 0
    p = of_cells(cells, ("hallucination_rate",), shares, level).p(0, alpha, lower=lower)
    if (excess < 0.0) != lower and excess != 0.0:
        return
    of = chance(wrong, right)
    for u in (0.01, 0.05, 0.1, 0.2, 0.5):
        assert of[p <= u + 1e-12].sum() <= u + 1e-9


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_graded_costs_are_valid_over_all_outcomes(level):
    """Costs between nothing and the highest, at a mean cost at the boundary."""
    costs = {"ok": {"refused": 0.4}, "refuse": {"answered_wrong": 2.0}}
    cells, _, _ = outcomes()
    shares, matrix = np.array([0.7, 0.2, 0.1]), metrics.cell_costs(costs)
    for wrong, right in (((0.1, 0.3, 0.5), (0.6, 0.1, 0.2)), ((0.4, 0.0, 0.2), (0.2, 0.3, 0.3))):
        chances = np.stack([wrong, right, 1.0 - np.add(wrong, right)], axis=1)
        cost = sum(
            share * chances[label] @ matrix[list(PLACES[label])]
            for label, share in enumerate(shares)
        )
        alpha = cost / matrix.max()
        p = of_cells(cells, ("expected_cost",), shares, level, costs).p(0, alpha)
        of = chance(np.array(wrong), np.array(right))
        assert all(of[p <= u].sum() <= u + 1e-9 for u in (0.05, 0.1, 0.2, 0.5))


def some_cells(seed, sizes=(60, 30, 30)):
    """Cells of a policy that answers mostly right."""
    rng, cells = np.random.default_rng(seed), np.zeros(metrics.N_CELLS, dtype=np.int64)
    parts = ((0.05, 0.7, 0.25), (0.15, 0.0, 0.85), (0.2, 0.0, 0.8))
    for places, n, of in zip(PLACES, sizes, parts, strict=True):
        cells[list(places)] = rng.multinomial(n, of)
    return cells


@settings(LAWFUL, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.2, 0.3]))
def test_fewer_errors_and_more_right_answers_are_never_worse(seed, alpha):
    """Nor is a higher target; the bound lies where the p-value says, either way."""
    cells = some_cells(seed)
    better, more = cells.copy(), cells.copy()
    better[[0, 1]] += (-1, 1) if cells[0] else (0, 0)
    more[[1, 6]] += (1, -1) if cells[6] else (0, 0)
    test = of_cells([cells, better, more], ("hallucination_rate",), CORNERS)
    for lower in (False, True):
        p = test.p(0, alpha, lower=lower)
        assert (p[1:] <= p[0]).all() if not lower else (p[1:] >= p[0]).all()
        bound = test.bound(0, 0.1, alpha, lower=lower)
        assert ((p <= 0.1) == (bound >= alpha if lower else bound <= alpha)).all()
    assert (test.bound(0, 0.1, alpha) > test.bound(0, 0.1, alpha, lower=True)).all()
    assert test.rate(0, 0) <= test.bound(0, 0.1, alpha)[0]


def test_the_worst_corner_decides_and_a_corner_of_one_label_is_exact():
    """Largest p of the corners, all corners tested below; all ok: the exact binomial test."""
    cells, names = some_cells(3), ("hallucination_rate", "false_refusal_rate", "expected_cost")
    both, first, second = (of_cells(cells, names, at) for at in (CORNERS, CORNERS[0], CORNERS[1]))
    for place in (0, 2):
        ends = [float(of.p(place, 0.3)[0]) for of in (first, second)]
        assert float(both.p(place, 0.3)[0]) == max(ends)
        below = [float(of.p(place, 0.05, lower=True)[0]) for of in (first, second)]
        assert float(both.p(place, 0.05, lower=True)[0]) == min(1.0, 2.0 * min(below))
    assert both.moved.tolist() == [True, False, True]
    exact = of_cells(cells, names, [1.0, 0.0, 0.0]).p(0, 0.3)[0]
    assert exact == binomial_p(cells[0], cells[0] + cells[1], 0.3)


def test_so_many_labels_certify_and_one_fewer_in_all_does_not():
    """In proportion to the mix; none do where the rates seen are above the target."""
    cells, names = some_cells(5, (200, 100, 100)), ("hallucination_rate",)
    test = of_cells(cells, names, [0.8, 0.1, 0.1])
    need = test.needed(0, 0, 0.2, 0.1)
    assert sum(need.as_seen) > sum(need.best)

    def ideal(labels):
        best = np.zeros(metrics.N_CELLS, dtype=np.int64)
        best[[1, 8, 10]] = labels
        return float(of_cells(best, names, [0.8, 0.1, 0.1]).p(0, 0.2)[0])

    assert ideal(need.best) <= 0.1
    total = next(n for n in range(1, 999) if np.ceil(np.round(0.8 * n, 9)) == need.best[0])
    assert ideal(np.ceil(np.round(np.array([0.8, 0.1, 0.1]) * (total - 1), 9))) > 0.1
    assert of_cells(cells, names, [0.0, 0.5, 0.5]).needed(0, 0, 0.2, 0.1).as_seen == ()


@pytest.fixture(scope="module")
def trace():
    """Two splits of one traffic, mostly ok."""
    return labelled(0, SPLITS)


@pytest.fixture(scope="module")
def certified(trace):
    """Chosen among a family, in a stated mix."""
    result = certify_best(trace, POLICY, targets=RISK, paths=ONE, mix=MIX)
    assert result.policy is not None
    return result


def test_of_the_sample_all_stays_as_it_was(trace):
    """The named default states no mix and gives the certificate of one that is not stated."""
    plain, named = (
        certify_best(trace, POLICY, targets=RISK, paths=ONE, **more)
        for more in ({}, {"mix": "sample"})
    )
    assert plain.certificate == named.certificate
    assert plain.policy == named.policy
    assert plain.table.equals(named.table)
    assert "mix" not in plain.certificate.rows
    assert plain.label_needs == {}
    assert noted(plain.notes, "stays true with more ok questions")


def test_a_certificate_states_its_mix(trace, certified, tmp_path):
    """In its rows; coverage is that of the mix."""
    rows = certified.policy.certificate
    assert rows["mix"] == MIX
    assert rows["mix_corners"] == [[0.95, 0.05, 0.0]]
    assert certified.label_needs.keys() == {"hallucination_rate"}
    held = trace.split("certify")
    cells = certified_tally(held, [certified.policy], None).cells
    labels = metrics.label_counts(cells)[0]
    by_label = [cells[0][[2 * label, 2 * label + 1]].sum() / labels[label] for label in (0, 1)]
    assert rows["coverage"] == pytest.approx(0.95 * by_label[0] + 0.05 * by_label[1])
    certified.policy.save(tmp_path / "policy.yaml")
    again = Policy.load(tmp_path / "policy.yaml")
    assert again.certificate == certified.policy.certificate


def drawn_mix(delta, *hits, **more):
    """Mix of 300 drawn requests of each label."""
    drawn: Any = (tuple(Stratum(300, 300, n) for n in hits),)
    return estimated_mix(drawn, delta, is_finite=False, **more)


def test_an_estimated_mix_takes_half_of_the_error(trace):
    """Unless its own is stated; nothing must be left of delta for the test: an error."""
    estimate = drawn_mix(0.02, 285, 15, 0)
    estimate = replace(estimate, high=(estimate.high[0], estimate.high[1], 0.0))
    with_none = replace(estimate, strata=(), is_fixed=True)
    fixed = certify_policy(trace, POLICY, targets=RISK, mix=with_none)
    assert fixed.certificate.delta == 0.1
    assert (fixed.certificate.mix or {})["delta"] == 0.02
    again = stated_mix(fixed.certificate.rows)
    assert again.shares == with_none.shares
    assert len(again.corners) == 2
    stated = certify_policy(trace, POLICY, targets=RISK, delta=0.08, mix=dict(with_none.shares))
    assert stated.table.equals(fixed.table)
    with pytest.raises(ValueError, match="delta must be above the error of the mix"):
        certify_policy(trace, POLICY, targets=RISK, delta=0.02, mix=with_none)


def test_another_mix_is_another_look(trace, tmp_path):
    """And one of a label without a case is refused before a look is noted."""
    looks = tmp_path / "looks.jsonl"
    with pytest.raises(ValueError, match="each label with a share of the mix must have a case"):
        certify_policy(trace, POLICY, targets=RISK, mix={"ambiguous": 0.1}, looks=looks)
    for _ in range(2):
        result = certify_policy(trace, POLICY, targets=RISK, mix=MIX, looks=looks)
        assert result.certificate.looks == 1
    for mix in ({"ok": 0.9}, {"ok": (0.94, 0.95), "refuse": (0.05, 0.06), "ambiguous": 0.0}):
        with pytest.raises(ValueError, match="certified on once"):
            certify_policy(trace, POLICY, targets=RISK, mix=mix, looks=looks)


@pytest.mark.filterwarnings("ignore:40 cases ask 39 questions")
def test_a_question_counts_once_with_its_worst_case():
    """Wrong if one of its cases is; of several labels it is an error with counts."""
    trace = labelled(1, {"certify": 40})
    cases = [
        case._replace(expect_status="ok", expect_sources=("guide.md",)) for case in trace.cases
    ]
    wrong = cases[0]._replace(expect_sources=("other.md",))

    def certified_with(label):
        again = cases[1]._replace(query=wrong.query, expect_status=label)
        repeated = replace(trace, cases=(wrong, again, *cases[2:]))
        targets = RISK | {COST: 0.9}
        return certify_policy(repeated, always_answer(POLICY), targets=targets, mix={"ok": 1.0})

    promises = certified_with("ok").certificate.promises
    assert [(promise.k, promise.n) for promise in promises] == [(1, 39), (1, 39)]
    with pytest.raises(ValueError, match="one label, got several for 1 of 39"):
        certified_with("refuse")


@LAWFUL
@given(
    st.lists(st.integers(0, 3), min_size=9, max_size=9),
    st.sampled_from(["hallucination_rate", "false_refusal_rate", "over_ask_rate", COST]),
    st.sampled_from(range(metrics.CELLS)),
    st.sampled_from([0.1, 0.3, 0.6]),
)
def test_failed_calls_never_help(row, name, cell, alpha):
    """Whatever they would have been: p is at least that of them decided so."""
    cells = np.ones((1, metrics.N_CELLS), dtype=np.int64)
    cells[0, metrics.PLAIN_CELLS :] = 0
    cells[0, [at for places in PLACES for at in places]] += row
    unearned = np.arange(metrics.N_CELLS) == UNEARNED_CELL
    trace = labelled(1, {"": int(cells.sum())})
    counted = certified_tally(trace, [POLICY], None)._replace(cells=cells + 2 * unearned)
    costs = {"ok": {"refused": 0.4}, "refuse": {"answered_wrong": 2.0}} if name == COST else None
    repeats = repeated_cases(trace, [POLICY], np.arange(len(trace)), None)
    units = unit_cells(tally_losses(counted, [name], costs), repeats, n_failed=2)
    with_failed = of_cells(units[:, 0], (name,), CORNERS, costs=costs)
    decided = of_cells(
        cells + 2 * (np.arange(metrics.N_CELLS) == cell), (name,), CORNERS, costs=costs
    )
    assert with_failed.p(0, alpha)[0] >= decided.p(0, alpha)[0] - 1e-12


def test_new_cases_are_tested_in_the_mix_of_the_certificate(certified):
    """Whatever their own shares: upheld in it, and broken where the rate there is above."""
    policy = certified.policy
    fresh = labelled(7, {"": 900})
    cells = certified_tally(fresh, [policy], None).cells
    test = of_cells(cells, ("hallucination_rate",), [0.95, 0.05, 0.0])
    result = check_policy(fresh, policy)
    row = result.table.iloc[0]
    assert row["rate"] == pytest.approx(test.rate(0, 0))
    assert row["upper_bound"] == test.bound(0, 0.1, 0.25)[0]
    assert row["lower_bound"] == test.bound(0, 0.1, 0.25, lower=True)[0]
    assert result.verdict == "upheld"
    refusable = labelled(8, {"": 900}, wrong=0.7, refusable=0.2)
    assert check_policy(refusable, policy).verdict == "broken"


@pytest.mark.parametrize(
    "changed",
    [
        {"mix": "ok"},
        {"mix": None},
        {"mix_corners": []},
        {"mix_corners": [[0.5, 0.5]]},
        {"mix_corners": [[2, -1, 0]]},
    ],
)
def test_a_mix_that_is_none_is_a_defect(certified, changed):
    """Of the stated mix or its corners."""
    rows = dict(certified.policy.certificate) | changed
    assert "raglab wrote it" in certificate_defect(certified.policy.replace("certificate", rows))


def test_an_upgrade_is_certified_in_the_mix_of_the_certificate(trace, certified):
    """An estimated one is to be estimated again."""
    mapped = rescale_thresholds(trace, certified.policy, to=trace)
    assert mapped.certification.certificate.mix == MIX
    rows = certified.policy.certificate
    guessed = certified.policy.replace("certificate", rows | {"mix": MIX | {"delta": 0.05}})
    refused = rescale_thresholds(trace, guessed, to=trace)
    assert refused.certification is None
    assert noted(refused.missing, "estimate")
