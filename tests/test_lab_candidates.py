"""Candidates: single thresholds by brute force, unread folds, exact ratios, who competes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labelled import free_policy, labelled
from raglab.lab.candidates import (
    CHAIN_RECIPE,
    COST_RECIPE,
    FIXED_POLICIES,
    MIN_LABEL_CASES,
    THRESHOLD_RECIPE,
    Cases,
    can_fit,
    chain_candidate,
    chain_pool,
    cost_candidate,
    count_cells,
    cross_fit,
    rare_labels,
    ratio_steps,
    signal_bounds,
    threshold_candidate,
)
from raglab.lab.competition import check_competition, competition
from raglab.lab.decision_fitting import MIN_KIND_CASES
from raglab.lab.goals import Goal
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.metrics import N_CELLS
from raglab.replay import case_cells, tally
from raglab.values import Status
from refusals import refused
from selection_worlds import measured_cases, separable

PER_STATUS = N_CELLS // len(Status)  # cells of one decision


@pytest.mark.parametrize("seed", [1, 2])
def test_the_best_single_threshold_is_that_of_brute_force(seed):
    """Over each threshold that parts the values, with ties, missing ones and their own costs."""
    trace = labelled(seed, {"tune": 60}, steps=(10, None)[seed % 2], missing=0.1)
    goal = Goal(costs={"refuse": {"answered_wrong": 3}} if seed == 2 else None)
    cases = measured_cases(trace, goal)
    bounds = list(signal_bounds(cases))
    assert {"confidence", "top1_cosine", "gap"} <= {one.signal for one in bounds}
    for one in bounds[:6]:
        values = one.surer if one.end == "min" else -one.surer
        there = np.unique(values[~np.isnan(values)])
        outside = there[0] - 1.0 if one.end == "min" else there[-1] + 1.0
        middles = [*((there[1:] + there[:-1]) / 2.0).tolist(), float(outside)]
        score, threshold = one.best(np.arange(60), goal)
        (cost,) = goal.cost(tally(trace, [one.policy(threshold, cases)]).cells)
        assert cost == pytest.approx(score)
        costs = [
            float(value) for middle in middles for value in goal.cost(_counted(cases, one, middle))
        ]
        assert cost == pytest.approx(min(costs)), one.signal


def _counted(cases, bound, threshold):
    """Cells under a threshold, without a policy's range.

    Refused where the signal fails it or is missing.
    """
    values = bound.surer if bound.end == "min" else -bound.surer
    passes = values >= threshold if bound.end == "min" else values <= threshold
    answered, refused = (
        cases.cells(always_answer(cases.start)),
        cases.cells(always_refuse(cases.start)),
    )
    return count_cells(np.where(passes, answered, refused)[None])


def test_a_threshold_decides_in_a_policy_as_in_a_fold():
    """What a threshold says of all cases is what its policy decides, asking back too."""
    every, fired = np.arange(80), set()
    for trace in (labelled(7, {"tune": 80}, missing=0.05), separable(80)):
        cases = measured_cases(trace)
        for bound in signal_bounds(cases):
            fired.add(bound.on_fire)
            _, threshold = bound.best(every, cases.goal)
            decided = cases.cells(bound.policy(threshold, cases)) // PER_STATUS
            np.testing.assert_array_equal(
                bound.decide(threshold, every) // PER_STATUS, decided, err_msg=bound.signal
            )
    assert fired == {"refuse", "ask"}


def test_equal_questions_are_in_one_fold_and_the_order_of_cases_is_irrelevant():
    """Each question three times: one fold a repeat.

    In another order of rows each case keeps its fold.
    """
    trace = labelled(3, {"tune": 60})
    named = [case._replace(query=f"Question  {row // 3}") for row, case in enumerate(trace.cases)]
    cases = measured_cases(replace(trace, cases=tuple(named)))
    for fold in cases.fold_numbers:
        assert (fold.reshape(-1, 3) == fold[::3, None]).all()
        assert len(np.unique(fold)) == cases.folds
    plain = measured_cases(trace)
    order = np.random.default_rng(0).permutation(60)
    moved = measured_cases(trace.subset(order))
    np.testing.assert_array_equal(moved.fold_numbers, plain.fold_numbers[:, order])


def test_without_a_signal_that_differs_nothing_is_fitted():
    """Constant signals: no model, and the free policies compete alone."""
    cases = measured_cases(separable(80))
    flat = cases.decided._replace(signals=np.ones_like(cases.decided.signals))
    assert can_fit(cases)
    assert not can_fit(cases._replace(decided=flat))


def test_the_decision_by_expected_cost_is_made_only_where_every_fold_can_fit_it():
    """Ten right and ten other cases outside of every fold.

    Folds carry labels, not what retrieval makes of them.
    """
    for seed in range(16):
        rng = np.random.default_rng(seed)
        cases = measured_cases(
            labelled(seed, {"tune": 60}, wrong=0.1, refusable=0.1), seed=int(rng.integers(1000))
        )
        right = cases.decided.classes == 0
        fewest = min(
            min(right[fold != number].sum(), (~right)[fold != number].sum())
            for fold in cases.fold_numbers
            for number in range(cases.folds)
        )
        assert can_fit(cases) == (fewest >= MIN_KIND_CASES)


def _candidates(cases):
    pool = chain_pool(cases, 12)
    scores = [float(cases.goal.score(tally(cases.trace, [policy]).cells)[0]) for policy in pool]
    threshold = threshold_candidate(cases)
    assert threshold is not None
    chain = chain_candidate(cases, lambda: pool[int(np.argmin(scores))], pool)
    return [cost_candidate(cases, cross_fit(cases)), threshold, chain]


def test_a_candidate_reads_nothing_of_the_held_out_fold():
    """Other labels in one fold, the same decisions there.

    Threshold, chain and expected cost alike.
    """
    trace = separable(100)
    cases = measured_cases(trace, repeats=1)
    held = np.flatnonzero(cases.fold_numbers[0] == 2)
    # Cases of the fold swap labels among themselves, so that the folds of labels stay as they are.
    shifted = dict(zip(held.tolist(), np.roll(held, 1).tolist(), strict=True))
    moved = [trace.cases[shifted.get(row, row)] for row in range(len(trace))]
    other = replace(
        trace,
        cases=tuple(
            case._replace(expect_status=source.expect_status, expect_sources=source.expect_sources)
            for case, source in zip(trace.cases, moved, strict=True)
        ),
    )
    fold = cases.fold_numbers
    swapped = _same_folds(measured_cases(other, repeats=1), fold)
    assert (cases.label[held] != swapped.label[held]).any()
    for before, after in zip(
        _candidates(_same_folds(cases, fold)), _candidates(swapped), strict=True
    ):
        decided = (before.cells[0, 0, held] // PER_STATUS, after.cells[0, 0, held] // PER_STATUS)
        np.testing.assert_array_equal(*decided, err_msg=before.name)


def _same_folds(cases, fold):
    """Cases that are dealt into stated folds, whatever their labels."""

    class Dealt(Cases):  # type: ignore[misc] # a named tuple with one property of its own
        __slots__ = ()
        fold_numbers = property(lambda _: fold)

    return Dealt(*cases)


def test_one_cross_fit_serves_every_cost_matrix():
    """Models of the folds under default costs decide as those fitted for these costs would."""
    trace = separable(80)
    fit = cross_fit(measured_cases(trace, repeats=1))
    costs = {"refuse": {"answered_wrong": 10}, "ok": {"refused": 3}}
    cases = measured_cases(trace, Goal(costs=costs), repeats=1)
    shared, own = cost_candidate(cases, fit), cost_candidate(cases, cross_fit(cases))
    np.testing.assert_array_equal(shared.cells, own.cells)
    assert shared.policies[0].policy_id == own.policies[0].policy_id


def test_the_ratio_of_a_family_is_that_of_brute_force():
    """The cheapest of all ratios that meet a target by one standard error.

    It is taken on cross-fitted probabilities.
    """
    goal = Goal(targets={"hallucination_rate": 0.15})
    cases = measured_cases(separable(120), goal, repeats=1)
    fit = cross_fit(cases)
    (chosen, *_), steps = cost_candidate(cases, fit).policies, ratio_steps(fit, fit.policy)
    assert len(steps.low) > 20
    tried = [*np.linspace(0.01, 12.0, 400).tolist(), float(chosen.decision.ratio)]
    policies = [fit.policy.replace("decision.ratio", ratio) for ratio in tried]
    cells = (
        np.sum([count_cells(case_cells(evidence, policies)) for evidence in fit.evidence], axis=0)
        / cases.repeats
    )
    missed, cost = goal.violation(cells), goal.cost(cells)
    assert missed[-1] == 0.0
    assert cost[-1] == pytest.approx(cost[missed == 0.0].min())
    assert not (goal.violation(cells[:-1])[cost[:-1] < cost[-1] - 1e-9] == 0.0).any()


def test_where_no_ratio_keeps_the_targets_the_nearest_competes():
    """No hallucination at all beside full coverage: the ratio that misses both by least in sum."""
    goal = Goal(targets={"hallucination_rate": 0.0, "coverage": 1.0})
    cases = measured_cases(separable(120), goal, repeats=1)
    fit = cross_fit(cases)
    chosen = cost_candidate(cases, fit).policies[0]
    steps = ratio_steps(fit, fit.policy)
    missed = goal.violation(steps.cells / cases.repeats)
    held = (steps.low < chosen.decision.ratio) & (steps.high >= chosen.decision.ratio)
    assert missed[held][0] == pytest.approx(missed.min())


def test_who_competes():
    """Rule S6.8: expected cost; single thresholds where a label is rare; the chain by rule.

    And what the user names.
    """
    cases = measured_cases(separable(80))
    assert competition(cases, "expected_cost", {}).competing == (*FIXED_POLICIES, COST_RECIPE)
    assert competition(cases, "chain", {}).competing == (*FIXED_POLICIES, CHAIN_RECIPE)
    _, named = check_competition("expected_cost", [THRESHOLD_RECIPE, free_policy()], 5, 2)
    assert competition(cases, "expected_cost", named).competing == (
        *FIXED_POLICIES,
        COST_RECIPE,
        THRESHOLD_RECIPE,
        free_policy().policy_id,
    )
    refuse = np.flatnonzero(cases.label == Status.refuse)
    few = np.setdiff1d(np.arange(80), refuse[MIN_LABEL_CASES - 1 :])
    rare = measured_cases(separable(80).subset(few))
    assert rare_labels(rare) == {"refuse": MIN_LABEL_CASES - 1}
    entry = competition(rare, "expected_cost", {})
    assert entry.competing == (*FIXED_POLICIES, THRESHOLD_RECIPE)


def test_a_candidate_that_cannot_compete_is_refused():
    """What cannot be fitted, what was fitted on these cases, and names that are none."""
    cases = measured_cases(separable(80))
    fitted = cross_fit(cases).policy
    refused(
        "must not be fitted on cases of this trace",
        competition,
        cases,
        "expected_cost",
        {"mine": fitted},
    )
    few = measured_cases(separable(80).subset(range(16)))
    refused("10 cases answered right", competition, few, "expected_cost", {COST_RECIPE: None})
    for rule, candidates, folds, repeats in (
        ("cost", (), 5, 2),
        ("chain", {"chain": free_policy()}, 5, 2),
        ("chain", (), 5, 0),
    ):
        refused(
            r"rule|candidate|folds|repeats", check_competition, rule, candidates, folds, repeats
        )  # type: ignore[arg-type]
