from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from raglab.lab.comparison import compare_policies, policies_case_cells
from raglab.lab.decision_fitting import stratified_folds
from raglab.lab.nested_selection import (
    _centre_on_estimate,
    code_counts,
    fold_winners,
    gains_table,
    honest,
    honest_codes,
    honest_table,
    outcome_labels,
    stratified_resamples,
)
from raglab.lab.search_space import Goal
from raglab.metrics import DISTINCT_CELL, RATES, clopper_pearson, rate_counts
from raglab.replay import sweep, tally
from raglab.values import Status, TraceData, map_fields
from worlds import random_policies, random_trace

ANSWERED_RIGHT, REFUSED_OK, REFUSED = 1, 6, 8  # codes 6 · status + 2 · label + sources found
FREE = Goal(targets={})  # the default costs, no target
PASS = RATES.index("pass_rate")


def _ids(count: int) -> list[str]:
    return [f"q{number:04d}" for number in range(count)]


def _alike(rng: np.random.Generator, count: int, size: int) -> NDArray[np.int8]:
    """Codes of an incumbent and of `count` policies that all decide equally well, at random; half labelled ok."""
    label = np.repeat([0, 0, 1, 2], size // 4)
    said = np.array([[0.7, 0.2, 0.1], [0.15, 0.75, 0.1], [0.2, 0.2, 0.6]]).cumsum(axis=1)[label]
    drawn = rng.random((count + 1, size))
    status = (drawn > said[:, 0]).astype(int) + (drawn > said[:, 1])
    return DISTINCT_CELL[6 * status + 2 * label + (rng.random(status.shape) < 0.9)].astype(np.int8)


ALIKE_PASS = 0.5 * 0.7 * 0.9 + 0.25 * 0.75 + 0.25 * 0.6 * 0.9


def _shuffled(trace: TraceData, rows: NDArray[np.intp]) -> TraceData:
    cases = tuple(trace.cases[row] for row in rows)
    return TraceData(cases, trace.chunks, trace.arms, map_fields(trace.hits, lambda field: field[rows]))


def _bytes(found: Any) -> bytes:
    return pickle.dumps(found)


def test_leaving_one_out_by_hand() -> None:
    """A answers the first two of four, B the last two: without any one case the policy that refuses it wins."""
    codes = np.array([[1, 1, 6, 6], [6, 6, 1, 1]], dtype=np.int8)
    found = honest_codes(codes, codes[0], _ids(4), goal=FREE, folds=4, resamples=10, rng=np.random.default_rng(0))
    assert (found.in_sample.expected_cost, found.nested.expected_cost) == (0.5, 1.0)
    assert found.winner == 0
    assert (found.nested.k[0], found.nested.n[0]) == (4, 4)
    assert found.optimism["expected_cost"] == found.optimism["false_refusal_rate"] == -0.5
    assert found.optimism["pass_rate"] == 0.5
    assert found.paired["pass"][:2] == (2, 0)
    assert found.nested_gain.difference[[0, 1]].tolist() == [0.5, 0.5]


def test_a_winner_by_far_is_not_shrunk() -> None:
    """One policy answers all, the other refuses all: every fold chooses the first, and it is surely better."""
    codes = np.array([[REFUSED_OK] * 40, [ANSWERED_RIGHT] * 40], dtype=np.int8)
    found = honest_codes(codes, codes[0], _ids(40), rng=np.random.default_rng(0), resamples=50)
    assert (found.winner, set(found.winners.ravel())) == (1, {1})
    assert {name: value for name, value in found.optimism.items() if value} == {
        "missed_ambiguity_rate": pytest.approx(np.nan, nan_ok=True)
    }
    assert found.nested_gain.better == found.in_sample_gain.better == 1.0
    assert found.nested.low[PASS] == clopper_pearson(40, 40).low
    assert found.paired["pass"].p == pytest.approx(2.0**-39)


def test_the_incumbent_against_itself() -> None:
    """Nothing to choose: no difference, no optimism, better with probability one half."""
    codes = _alike(np.random.default_rng(1), 0, 40)
    found = honest_codes(codes, codes[0], _ids(40), resamples=30, rng=np.random.default_rng(0))
    assert found.nested_gain.better == found.in_sample_gain.better == 0.5
    assert set(found.optimism.values()) == {0.0}
    assert not np.nan_to_num([*found.nested_gain.difference, *found.nested_gain.low, *found.nested_gain.high]).any()
    assert all(test.p == 1.0 for test in found.paired.values())
    assert found.nested.k.tolist() == found.incumbent.k.tolist()


def test_of_equal_policies_the_first_wins() -> None:
    """Policies that decide alike are one, under the first of their positions."""
    codes = _alike(np.random.default_rng(2), 1, 40)
    found = honest_codes(codes[[0, 1, 0, 1]], codes[0], _ids(40), resamples=5, rng=np.random.default_rng(0))
    assert found.winner in {0, 1}
    assert set(found.winners.ravel()) <= {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("depths", [1, 3])
def test_outcomes_are_what_the_sweep_counts(depths: int) -> None:
    """Codes of 24 policies on 25 cases, summed, are the tally; the standings are rows of the sweep."""
    trace, policies = random_trace(depths, 25, depths), random_policies(3, 24)
    codes = policies_case_cells(trace, policies)
    assert codes.dtype == np.int8
    assert (code_counts()[codes].sum(axis=1) == tally(trace, policies).counts).all()
    assert (outcome_labels(codes) == [Status[case.expect_status] for case in trace.cases]).all()
    found = honest(trace, policies, policies[7], resamples=5, rng=np.random.default_rng(0))
    table = sweep(trace, [policies[found.winner], policies[7]])
    for place, name in enumerate(RATES):
        for row, standing in enumerate((found.in_sample, found.incumbent)):
            for column, field in ((name, "rates"), (f"{name}_k", "k"), (f"{name}_n", "n"), (f"{name}_high", "high")):
                assert getattr(standing, field)[place] == pytest.approx(table[column][row], nan_ok=True)


def test_the_pairing_is_that_of_the_study() -> None:
    """With one policy to choose from, McNemar's tests are those of `compare_policies`."""
    trace, policies = random_trace(5, 30), random_policies(6, 2)
    found = honest(trace, policies[1:], policies[0], resamples=5, rng=np.random.default_rng(0))
    assert dict(found.paired) == compare_policies(trace, policies[0], policies[1])


@pytest.mark.slow
def test_the_order_of_rows_is_irrelevant_and_a_seed_repeats() -> None:
    """Shuffled cases give the same bytes under the same seed, another seed another deal."""
    trace, policies = random_trace(8, 24), random_policies(9, 12)
    rows = np.random.default_rng(1).permutation(24)

    def run(cases: TraceData, seed: int) -> Any:
        return honest(cases, policies, policies[0], repeats=2, resamples=20, rng=np.random.default_rng(seed))

    assert _bytes(run(trace, 0)) == _bytes(run(trace, 0)) == _bytes(run(_shuffled(trace, rows), 0))
    assert _bytes(run(trace, 0)) != _bytes(run(trace, 1))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 6))
def test_no_case_judges_a_policy_that_it_helped_to_choose(seed: int, folds: int) -> None:
    """Whatever happens in a fold, its winner is chosen without it; and every case is judged once."""
    rng = np.random.default_rng(seed)
    codes = _alike(rng, 6, 24)
    fold, once = stratified_folds(outcome_labels(codes[0]), folds, rng)[None], np.ones((1, 24), dtype=np.int64)
    seen = fold_winners(codes, fold, once, Goal())
    other = codes.copy()
    hidden = fold[0] == 0
    other[:, hidden] = _alike(rng, 6, 24)[:, hidden]
    assert fold_winners(other, fold, once, Goal()).winners[0, 0, 0] == seen.winners[0, 0, 0]
    held = codes[seen.winners[0, 0][fold[0]], np.arange(24)]
    assert (code_counts()[held].sum(axis=0) == rate_counts(seen.cells[0, 0])).all()
    sizes = np.bincount(fold[0])
    assert sizes.max() - sizes.min() <= 1
    for status in Status:
        of_label = np.bincount(fold[0][outcome_labels(codes[0]) == status], minlength=folds)
        assert of_label.max() - of_label.min() <= 1


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 10_000))
def test_a_case_drawn_twice_counts_as_two(seed: int) -> None:
    """Winners and counts under weights are those of the cases written out."""
    rng = np.random.default_rng(seed)
    codes = _alike(rng, 8, 20)
    label = outcome_labels(codes[0])
    fold = stratified_folds(label, 4, rng)[None]
    (weights,) = stratified_resamples(label, 3, 10, rng)
    assert (weights @ np.eye(3, dtype=int)[label] == np.bincount(label)).all()
    seen = fold_winners(codes, fold, weights, Goal())
    for row, drawn in enumerate(weights):
        one = np.ones((1, 20), dtype=np.int64)
        written = fold_winners(np.repeat(codes, drawn, axis=1), np.repeat(fold, drawn, axis=1), one, Goal())
        if written.winners.shape[2] == 4:  # else the last fold was not drawn
            assert (written.winners[0] == seen.winners[row]).all()
            assert (written.cells[0] == seen.cells[row]).all()


def test_resamples_are_centred_at_what_was_seen() -> None:
    """Mean 2 becomes 1, mean 0.3 becomes 0.95 and stays below 1; a missing rate moves nothing."""
    drawn, seen = np.array([[1.0, 0.2, np.nan], [3.0, 0.4, 0.5]]), np.array([1.0, 0.95, np.nan])
    moved = _centre_on_estimate(drawn, seen, -1.0)
    assert moved[:, 0].tolist() == [0.0, 2.0]
    assert moved[:, 1] == pytest.approx([0.85, 1.0])
    assert moved[:, 2] == pytest.approx([np.nan, 0.5], nan_ok=True)


def test_repeats_are_averaged_and_add_no_cases() -> None:
    """The n of a rate stays that of the cases, k becomes a mean, and the table says so with fractions."""
    codes = _alike(np.random.default_rng(4), 30, 40)
    found = honest_codes(codes[1:], codes[0], _ids(40), repeats=4, resamples=10, rng=np.random.default_rng(0))
    assert found.winners.shape == (4, 5)
    assert found.nested.n[PASS] == 40
    assert found.nested.k[PASS] * 4 == int(found.nested.k[PASS] * 4)
    assert found.nested.rates[PASS] == pytest.approx(found.nested.k[PASS] / 40)
    assert found.nested.low[PASS] < found.nested.rates[PASS] < found.nested.high[PASS]
    assert honest_table(found)["pass_rate_k"].dtype == np.float64


def test_tables_hold_what_was_found() -> None:
    """Three rows of standings with k, n and interval; a row a rate of differences."""
    codes = _alike(np.random.default_rng(5), 20, 40)
    found = honest_codes(codes[1:], codes[0], _ids(40), resamples=20, rng=np.random.default_rng(0))
    table = honest_table(found).set_index("what")
    assert list(table.index) == ["in-sample winner", "nested estimate", "incumbent"]
    assert table["pass_rate_k"].dtype == np.int64
    assert (
        table["expected_cost"]["nested estimate"] - table["expected_cost"]["in-sample winner"]
        == -found.optimism["expected_cost"]
    )
    assert {f"{name}{part}" for name in RATES for part in ("", "_k", "_n", "_low", "_high")} < set(table)
    gained = gains_table(found)
    assert gained["rate"].tolist() == ["expected_cost", *RATES] * 2
    inside = gained.dropna()
    assert ((inside["low"] <= inside["high"]) & (inside["difference"] <= 1)).all()


def test_costs_choose_and_targets_bind() -> None:
    """Refusing is cheap: the policy that refuses wins by cost, and loses where no refusal of an answerable is allowed.

    Two of four are answered wrongly by the first, all are refused by the second; reported is the cost alone.
    """
    codes = np.array([[0, 0, 1, 1], [6, 6, 6, 6]], dtype=np.int8)
    for goal, winner, cost in (
        (Goal(costs={"ok": {"refused": 0.25}}, targets={}), 1, 0.25),
        (Goal(costs={"ok": {"refused": 0.25}}, targets={"false_refusal_rate": 0.0}), 0, 0.5),
        (FREE, 0, 0.5),
    ):
        found = honest_codes(codes, codes[1], _ids(4), goal=goal, folds=2, resamples=5, rng=np.random.default_rng(0))
        assert (found.winner, found.in_sample.expected_cost) == (winner, cost)


def test_the_cost_is_what_the_contract_fails() -> None:
    """With the default costs every cost is 1 minus the pass rate, in every row and difference, to the bit."""
    codes = _alike(np.random.default_rng(6), 20, 40)
    found = honest_codes(codes[1:], codes[0], _ids(40), repeats=2, resamples=20, rng=np.random.default_rng(0))
    table = honest_table(found)
    assert (table["expected_cost"] == 1.0 - table["pass_rate"]).all()
    assert (table["expected_cost_low"] <= table["expected_cost"]).all()
    assert (table["expected_cost"] <= table["expected_cost_high"]).all()
    assert found.nested_gain.difference[0] == pytest.approx(-found.nested_gain.difference[PASS + 1])


def test_a_rate_of_nothing_stays_missing() -> None:
    """Every policy refuses everything: hallucinations are 0 of 0 and have neither interval nor difference."""
    codes = np.array([[REFUSED_OK] * 10 + [REFUSED] * 10], dtype=np.int8)
    found = honest_codes(codes, codes[0], _ids(20), resamples=10, rng=np.random.default_rng(0))
    place = RATES.index("hallucination_rate")
    for field in (found.nested.rates, found.nested.low, found.nested.high):
        assert np.isnan(field[place])
    assert np.isnan([found.nested_gain.difference[place + 1], found.nested_gain.high[place + 1]]).all()
    assert np.isnan(found.nested.rates[RATES.index("missed_ambiguity_rate")])
    assert found.nested.rates[RATES.index("false_refusal_rate")] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be from 2"),
        ({"folds": 9}, "9 for 8 cases"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"resamples": 0}, "resamples must be at least 1"),
        ({"level": 1.0}, "level must be in"),
        ({"ids": ["a"] * 8}, "ids must be unique, got 1"),
        ({"ids": ["a"]}, "same cases"),
        ({"against": np.full(8, ANSWERED_RIGHT, dtype=np.int8)}, "same cases"),
        ({"codes": np.empty((0, 8), dtype=np.int8)}, "at least one policy"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    """A message says the rule and what came."""
    codes = _alike(np.random.default_rng(0), 3, 8)
    told = {"codes": codes, "against": codes[0], "ids": _ids(8), "rng": np.random.default_rng(0)} | change
    with pytest.raises(ValueError, match=message):
        honest_codes(**told)


@pytest.mark.slow
def test_the_winner_flatters_and_the_nested_estimate_does_not() -> None:
    """100 policies that are all equally good: in sample the best looks 8 points better, nested it looks as it is."""
    away = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        codes = _alike(rng, 100, 120)
        found = honest_codes(codes[1:], codes[0], _ids(120), resamples=1, rng=rng)
        standings = (found.in_sample, found.nested, found.incumbent)
        away.append([*(one.rates[PASS] - ALIKE_PASS for one in standings), *(one.expected_cost for one in standings)])
    mean, error = np.mean(away, axis=0), np.std(away, axis=0) / np.sqrt(len(away))
    assert mean[0] > 0.06
    assert abs(mean[1]) < 3 * error[1]
    assert mean[3] < mean[5] - 0.06
    assert abs(mean[4] - mean[5]) < 3 * np.hypot(error[4], error[5])


@pytest.mark.slow
def test_really_better_is_rarely_said_of_what_is_not() -> None:
    """No policy is better: "better at 95 %" is said of the selection in at most 5 %, of the in-sample winner in half.

    The 95 % interval of the gain in the pass rate holds the true 0 in at least 95 % of the repeats, up to 3 errors.
    """
    said = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        codes = _alike(rng, 100, 200)
        found = honest_codes(codes[1:], codes[0], _ids(200), resamples=200, rng=rng)
        gain = found.nested_gain
        holds = gain.low[PASS + 1] <= 0.0 <= gain.high[PASS + 1]
        said.append([gain.better > 0.95, gain.better < 0.05, found.in_sample_gain.better > 0.95, holds])
    better, worse, naive, holds_zero = np.mean(said, axis=0)
    slack = 3 * np.sqrt(0.05 * 0.95 / len(said))
    assert better <= 0.05 + slack
    assert worse <= 0.05 + slack
    assert naive > 0.4
    assert holds_zero >= 0.95 - slack
