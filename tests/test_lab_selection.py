"""Selection: the rule by hand, its pseudo-case, targets, nested estimate, selecting studies."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled import free_policy, labelled
from raglab.decision.learned_cases import IN_SAMPLE
from raglab.lab.candidates import (
    ANSWER,
    COST_RECIPE,
    DEFAULTS,
    FIXED_POLICIES,
    FREE_POLICIES,
    REFUSE,
    THRESHOLD_RECIPE,
    Candidate,
)
from raglab.lab.goals import Goal
from raglab.lab.selection import (
    choose,
    largest_cost,
    options_of,
    paired_saving,
    select_candidate,
)
from raglab.lab.study import tune
from raglab.store.policies import Policy
from raglab.values import Status
from selection_worlds import measured_cases, separable

ANSWER_OR_REFUSE = frozenset({Status.ok, Status.refuse})
DEAR = {"refuse": {"answered_wrong": 10.0}}


def _cells(label, passes):
    """Cells of cases that pass or fail: an answer that is right or a refusal that is.

    A wrong answer or refusal.
    """
    right = np.where(
        label == Status.ok, Status.ok * 6 + Status.ok * 2 + 1, Status.refuse * 6 + label * 2
    )
    wrong = np.where(
        label == Status.ok, Status.refuse * 6 + Status.ok * 2, Status.ok * 6 + label * 2
    )
    return np.where(passes, right, wrong).astype(np.int8)


def _candidates(cases, passes):
    """Candidates that pass the cases stated; those that learn have another policy each."""
    actions = {ANSWER: frozenset({Status.ok}), REFUSE: frozenset({Status.refuse})}
    return [
        Candidate(
            name,
            _cells(cases.label, rows)[None, None],
            (cases.start.replace("notes", name),),
            actions.get(name, ANSWER_OR_REFUSE),
        )
        for name, rows in passes.items()
    ]


def _selected(cases, passes):
    return select_candidate(_candidates(cases, passes), list(passes), cases)


def _free(cases):
    """What always-answer, always-refuse and the default policy pass, the last one nothing."""
    ok = cases.label == Status.ok
    return {ANSWER: ok, REFUSE: ~ok, DEFAULTS: np.zeros(len(ok), dtype=bool)}


def test_the_rule_by_hand():
    """Mean saving against half its standard error, over the cases and one pseudo-case."""
    gain = np.array([1.0] * 6 + [-1.0] * 3 + [0.0] * 31)
    saving = paired_saving(gain, 0.0)
    every = np.append(gain, 0.0)
    assert saving.mean == pytest.approx(every.mean())
    assert saving.error == pytest.approx(every.std(ddof=1) / sqrt(41))
    assert saving.replaces, "3 of 41 against half of .073"
    assert not paired_saving(np.array([1.0] * 4 + [-1.0] * 3 + [0.0] * 33), 0.0).replaces
    assert not paired_saving(gain, -9.0).replaces, "one dear failure that the cases did not show"
    assert not paired_saving(np.zeros(40), 0.0).replaces
    weights = np.array([2.0] * 20 + [0.0] * 20)
    doubled = paired_saving(np.repeat(gain[:20], 2), 0.5)
    weighted = paired_saving(gain, 0.5, weights)
    assert (weighted.mean, weighted.error) == pytest.approx((doubled.mean, doubled.error))


def test_the_pseudo_case_is_the_largest_cost_of_the_actions():
    """Answering may cost 10 where refusing costs 1 at most; refusing 3 where answering costs 1."""
    dear, refusal = Goal(costs=DEAR), Goal(costs={"ok": {"refused": 3.0}})
    answer, refuse = frozenset({Status.ok}), frozenset({Status.refuse})
    assert [largest_cost(actions, dear) for actions in (answer, refuse)] == [10.0, 1.0]
    assert [largest_cost(actions, refusal) for actions in (answer, refuse)] == [1.0, 3.0]
    assert largest_cost(answer | refuse, dear) == 10.0


def test_a_candidate_must_save_more_than_half_its_standard_error():
    """Against the best free policy, on the same cases; two candidates: the one that saves more."""
    cases = measured_cases(labelled(0, {"tune": 100}))
    free = _free(cases)
    incumbent = max(FREE_POLICIES, key=lambda name: free[name].sum())
    base = free[incumbent]
    failed = np.flatnonzero(~base)
    better, little = base.copy(), base.copy()
    better[failed[:9]] = True
    little[failed[:4]] = True
    chosen = _selected(cases, free | {COST_RECIPE: better, THRESHOLD_RECIPE: little})
    assert (chosen.selected, chosen.incumbent) == (COST_RECIPE, incumbent)
    assert chosen.costs.loc[COST_RECIPE, "gain"] == pytest.approx(9 / 101)
    assert chosen.costs.loc[COST_RECIPE, "cross_validated"] == pytest.approx(1.0 - better.mean())


def test_targets_come_before_cost():
    """What keeps them is selected though it costs more.

    Where nothing does, the nearest, and it says by how much.
    """
    trace = labelled(2, {"tune": 200}, wrong=0.4, refusable=1.0)
    cases = measured_cases(trace, Goal(targets={"hallucination_rate": 0.1}))
    free = _free(cases)
    ok, refusable = np.flatnonzero(free[ANSWER]), np.flatnonzero(free[REFUSE])
    bold, careful = free[ANSWER].copy(), free[REFUSE].copy()
    bold[refusable[: len(refusable) // 2]] = True  # all ok answered, half of the others too
    careful[ok[: (2 * len(ok)) // 3]] = True  # two thirds of the ok answered, nothing else
    chosen = _selected(cases, free | {"bold": bold, "careful": careful})
    assert (
        chosen.costs.loc["bold", "cross_validated"] < chosen.costs.loc["careful", "cross_validated"]
    )
    assert chosen.costs["meets_targets"].to_dict() == {
        name: name == "careful" for name in chosen.costs.index
    }
    assert (chosen.selected, chosen.misses) == ("careful", 0.0)
    assert _selected(cases, free | {"bold": bold}).misses > 0.0


@given(st.integers(0, 50), st.integers(2, 5))
def test_laws_of_the_rule(seed, kinds):
    """Candidate order never matters, a copy never replaces the incumbent, dominated ones lose."""
    rng = np.random.default_rng(seed)
    cases = measured_cases(LAW_TRACE)
    free = _free(cases)
    own = {
        f"candidate {number}": rng.random(40) < rng.choice([0.3, 0.5, 0.7])
        for number in range(kinds)
    }
    whole, goal = free | own, cases.goal
    options = options_of(_candidates(cases, whole), cases)
    allowed = np.ones(len(whole), dtype=bool)
    choice = choose(options, goal, allowed)
    selected = list(whole)[options.candidate[choice.chosen]]
    back = dict(reversed(whole.items()))
    mirrored = options_of(_candidates(cases, back), cases)
    other = list(back)[mirrored.candidate[choose(mirrored, goal, allowed).chosen]]
    assert whole[selected].sum() == whole[other].sum()
    incumbent = list(whole)[options.candidate[choice.incumbent]]
    assert whole[selected].sum() >= whole[incumbent].sum()
    if selected not in FIXED_POLICIES:
        assert whole[selected].sum() == max(rows.sum() for rows in own.values())
    copied = options_of(_candidates(cases, free | {"copy": whole[incumbent]}), cases)
    assert choose(copied, goal, np.ones(4, dtype=bool)).chosen < len(FIXED_POLICIES)


LAW_TRACE = labelled(5, {"tune": 40})


def test_the_nested_estimate_takes_off_what_the_best_of_many_gains_by_luck():
    """Thirty coins that are right in half the cases.

    The best looks like .37, the nested estimate says about .5.
    """
    cases = measured_cases(labelled(3, {"tune": 60}, wrong=0.5, refusable=1.0))
    rng = np.random.default_rng(0)
    coins = {f"coin {number}": rng.random(60) < 0.5 for number in range(30)}
    chosen = _selected(cases, _free(cases) | coins)
    assert chosen.selected.startswith("coin")
    best = float(chosen.costs.loc[chosen.selected, "cross_validated"])
    assert best <= 0.40
    assert 0.44 < chosen.held_out_estimate < 0.56
    assert 0.44 < chosen.losses[chosen.selected].mean() < 0.56  # so do costs by label


def test_the_expected_cost_decision_is_selected_where_classes_are_separable():
    """By two signals together, cross-fitted.

    It is far ahead of the best single threshold, and of answering all.
    """
    result = tune(separable(160, seed=3), policy=free_policy(), trials=16, batch_size=8)
    assert result.selected == COST_RECIPE
    costs = result.costs["cross_validated"]
    assert costs[COST_RECIPE] < costs[THRESHOLD_RECIPE] - 0.15
    judged = result.comparison.set_index("policy")["judged_by"]
    assert judged["tuned"] == IN_SAMPLE != judged["always-answer"]


def test_on_noise_a_free_policy_is_kept():
    """Of signals that know nothing."""
    for seed in range(3):
        trace = labelled(seed, {"tune": 100}, wrong=0.35)
        assert tune(trace, policy=free_policy(), trials=16, batch_size=8).selected in FREE_POLICIES


@pytest.mark.usefixtures("quick_study")
def test_where_no_case_is_ambiguous_no_candidate_asks():
    """The resolver stays out, no threshold asks, the model knows no such class.

    over-ask is 0 but of the defaults.
    """
    trace = separable(120)
    rows = [row for row, case in enumerate(trace.cases) if case.expect_status != "ambiguous"]
    result = tune(trace.subset(rows), trials=8, batch_size=8)
    own = result.costs.drop(index=DEFAULTS)
    assert (own["over_ask"] == 0.0).all()


def test_a_study_by_the_chain_and_by_candidates_of_the_user():
    """`rule="chain"` lets the chain compete; a named policy competes by its own name."""
    trace = separable(60, seed=4)
    own = Policy.load().replace("similarity.min_similarity", 0.5, "refine.max_depth", 0)
    by_chain = tune(trace, rule="chain", trials=16, batch_size=8)
    competing = by_chain.costs.index[by_chain.costs["competes"]]
    assert list(competing) == [*FIXED_POLICIES, "chain"]
    named = tune(trace, candidates={"mine": own}, trials=16, batch_size=8)
    assert named.costs.loc["mine", "competes"]
    assert named.policies["mine"].policy_id == own.policy_id
