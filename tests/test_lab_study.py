from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from labelled import noted
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.goals import INFEASIBLE_COST, Goal
from raglab.lab.line_search import line_search
from raglab.lab.search_space import SearchRange, full_space, own_trial, search_ranges
from raglab.lab.study import tune
from raglab.lab.study_cases import study_splits
from raglab.lab.untuned_policies import (
    always_answer,
    manual_loop,
    published_policy,
    step_thresholds,
)
from raglab.replay import SWEPT, sweep, tally
from raglab.store.policies import Policy
from raglab.values import Status
from refusals import refused
from study_worlds import study_world

# what is tested here is the search and what stands around it (`test_lab_selection`)
pytestmark = pytest.mark.usefixtures("quick_study")
NAN = float("nan")


def _same(first, second):
    assert first.policy.policy_id == second.policy.policy_id
    pd.testing.assert_frame_equal(first.trials, second.trials)
    pd.testing.assert_frame_equal(first.rates(), second.rates())
    pd.testing.assert_frame_equal(first.costs, second.costs)
    assert first.advantage == second.advantage


def _cells(**counted):
    """Cases by cell, [18], of words `decision_label` and, if right, `decision_label_right`.

    What is right is an answer or a question.
    """
    cells = np.zeros((3, 3, 2), dtype=np.int64)
    for name, count in counted.items():
        decision, label, *right = name.split("_")
        cells[Status[decision], Status[label], len(right)] += count
    return cells.reshape(-1)


def test_the_score_is_the_cost_and_a_target_that_is_missed_outweighs_it():
    """Of 20 cases 1 is falsely refused and 2 are answered wrong.

    3 / 20, and 2 of 9 answers are above 1 %.
    """
    cells = _cells(
        ok_ok_right=7,
        ok_ok=1,
        refuse_ok=2,
        ok_refuse=1,
        refuse_refuse=4,
        ambiguous_ambiguous_right=5,
    )
    free = Goal(targets={})
    assert free.cost(cells) == free.score(cells) == pytest.approx(4 / 20)
    assert Goal(targets={"hallucination_rate": 0.01}).score(cells) == INFEASIBLE_COST + free.cost(
        cells
    )
    assert Goal(targets={"hallucination_rate": 0.23}).score(cells) == free.cost(cells)
    assert Goal(targets={"coverage": 0.4}).score(cells) == free.cost(cells), "wanted high: 9 of 20"
    assert Goal(targets={"coverage": 0.5}).score(cells) > INFEASIBLE_COST


def test_answering_nothing_meets_no_target():
    """Rule S6.2: 0 of 0 hallucinations miss their target, or refusing everything would win."""
    nothing = _cells(refuse_ok=10, refuse_refuse=5, refuse_ambiguous=5)
    goal = Goal(targets={"false_refusal_rate": 0.1, "hallucination_rate": 0.01})
    assert goal.excess(nothing).tolist() == pytest.approx([0.9, 1.0, 0.25, -0.1]), (
        "half of the answerable, 10 % asked"
    )
    assert not goal.meets(nothing)
    assert Goal().cost(nothing) == pytest.approx(15 / 20)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"targets": {"false_refusals": 0.1}}, "a target must be one of false_refusal_rate"),
        ({"targets": [0.1]}, "targets must map rate -> highest value"),
        ({"costs": {"over_ask_rate": 0.1}}, "a label of costs must be one of"),
    ],
)
def test_a_goal_that_is_none_is_refused(stated, words):
    """Unknown names, weights in the wrong place and numbers out of range, in plain words."""
    refused(words, Goal, **stated)


def test_a_space_takes_pairs_and_says_what_it_does_not_know():
    """`(low, high)` is a range; a switch has none, and an empty one is none."""
    ranges = search_ranges(
        {
            "l2.max_l2": (0.5, 1),
            "density.min_keep": (1, 3),
            "resolver.anchor": SearchRange(NAN, NAN),
        }
    )
    assert ranges["l2.max_l2"] == SearchRange(0.5, 1, whole=False, log=SWEPT["l2.max_l2"].log)
    assert ranges["density.min_keep"].whole
    assert ranges["resolver.anchor"].is_switch
    refused(r"got 'l2.maximum'.*full_space", search_ranges, {"l2.maximum": (0.0, 1.0)})


def test_one_step_by_hand_moves_every_threshold_of_the_source():
    """Rule S6.4: looser is a lower cosine and tau, and a larger distance."""
    looser = step_thresholds(Policy.load(), 1)
    assert [
        looser.value(path)
        for path in ("similarity.min_similarity", "confidence.tau_default", "l2.max_l2")
    ] == [
        0.65,
        35.0,
        0.85,
    ]
    assert step_thresholds(looser, -1).policy_id == Policy.load().policy_id


def test_the_manual_loop_takes_a_rate_of_no_cases_for_unmet():
    """Rule S6.2: with no case labelled ok, 0 of 0 false refusals do not meet the source's 10 %."""
    trace = study_world()
    rows = [row for row, case in enumerate(trace.cases) if case.expect_status != "ok"]
    start = published_policy(Policy.load())
    unlabelled = trace.subset(rows)
    assert np.isnan(sweep(unlabelled, [start])["false_refusal_rate"]).all()
    ended = manual_loop(unlabelled, start)
    assert ended.value("similarity.min_similarity") < 0.7


def test_the_space_holds_what_cases_can_meet():
    """Ranges are those observed; a start outside is moved to their edge."""
    trace = study_world()
    space = full_space(trace, Policy.load())
    assert space["similarity.min_similarity"].low == pytest.approx(
        trace.hits.cosine[:, 0, 0, 0].min()
    )
    trial = own_trial(Policy.load().replace("similarity.min_similarity", -1.0), space)
    assert trial["similarity.min_similarity"] == space["similarity.min_similarity"].low


def test_polish_finds_what_trying_every_value_finds():
    """One threshold: the line search is exact, so no value of a fine grid is better."""
    trace = study_world()
    base = always_answer(Policy.load()).replace("confidence.enabled", True)
    goal = Goal()
    best = line_search(trace, [base], ["confidence.tau_default"], goal.score, base)
    grid = [base.replace("confidence.tau_default", tau / 4) for tau in range(401)]
    tallied = tally(trace, [best, *grid])
    scores = goal.score(tallied.cells)
    assert scores[0] == pytest.approx(scores.min())


def test_a_threshold_that_gains_nothing_stays_as_published():
    """Nothing differs without a gain: a gate that is off keeps its published number."""
    base = always_answer(Policy.load())
    best = line_search(
        study_world(),
        [base.replace("similarity.min_similarity", 0.123)],
        ["similarity.min_similarity"],
        Goal().score,
        base,
    )
    assert best.value("similarity.min_similarity") == 0.7


def test_a_study_gives_the_same_twice():
    """Same trace, same seed, same result.

    Every candidate is there, and the selected one is what is tuned.
    """
    trace = study_world()
    first, second = (tune(trace, trials=24, batch_size=8) for _ in range(2))
    _same(first, second)
    assert {"always-answer", "always-refuse", "defaults", "chain", "one threshold"} <= set(
        first.costs.index
    )
    assert first.policies["tuned"] is first.policy
    assert first.costs.loc[first.selected, "policy_id"] == first.policy.policy_id
    assert first.costs.loc[first.incumbent, "gain"] == 0.0


def test_a_stored_study_ends_with_the_same_result(tmp_path):
    """With and without a storage, stopped and gone on with: the same policy, costs and trials."""
    trace = study_world()
    settings = {"trials": 12, "batch_size": 4, "repeats": 1, "folds": 3}
    whole = tune(trace, **settings)
    stopped = tune(trace, **settings, storage=tmp_path, on_trials=lambda _: False)
    assert len(stopped.trials) == 4
    assert stopped.counts["trials_not_run"] == 8
    resumed = tune(trace, **settings, storage=tmp_path)
    _same(whole, resumed)
    assert whole.best.params == resumed.best.params
    assert len(resumed.study.trials) == 12


def test_without_splits_the_nested_estimate_is_the_headline():
    """Rules S6.5, S6.11: nothing is judged on the cases it was made of, and no p-value is given."""
    trace = study_world()
    result = tune(_with_splits(trace, [None] * len(trace)), trials=8, batch_size=8)
    assert "No split report" in result.notes[2]
    assert result.advantage is None
    assert result.costs["report"].isna().all()


@pytest.mark.usefixtures("quick_study")
def test_few_cases_of_a_label_are_warned_about():
    """Rule S6.8: under 30 of a label, by how many there are; none where there are enough."""
    result = tune(study_world(), trials=4, batch_size=4)
    assert "ew labels: " in result.notes[2]
    assert " refuse" in result.notes[2]
    assert not noted(tune(study_world(250), trials=4, batch_size=4).notes, "ew labels: ")


def test_candidates_that_keep_the_targets_are_preferred():
    """Cross-fitted.

    Whatever is selected keeps a target that any that competes keeps, and the notes say so.
    """
    trace = study_world(160)
    free = tune(trace, trials=16, batch_size=8)
    assert free.costs["meets_targets"].all()
    assert "met" not in free.comparison
    strict = tune(
        trace,
        trials=16,
        batch_size=8,
        goal=Goal(targets={"hallucination_rate": 0.35}, max_over_ask=0.2),
    )
    assert "met" in strict.comparison
    competing = strict.costs[strict.costs["competes"]]
    assert competing["meets_targets"].any()
    assert competing.loc[strict.selected, "meets_targets"]


@pytest.mark.parametrize("settings", [{"trials": 0}, {"batch_size": 0}, {"sampler": "grid"}])
def test_settings_that_make_no_study_are_refused(settings):
    """The message says what must hold."""
    refused(r"trials|batch_size|sampler", tune, study_world(), **settings)


def _with_splits(trace, splits):
    cases = tuple(case._replace(split=name) for case, name in zip(trace.cases, splits, strict=True))
    return replace(trace, cases=cases)


def test_cases_kept_for_certificates_are_never_tuned_on():
    """Splits tune and certify alone: tuned on tune; only certify is refused.

    Cases without a split are counted.
    """
    trace = study_world()
    n = len(trace)
    halves = _with_splits(trace, ["tune" if row % 2 else "certify" for row in range(n)])
    splits = study_splits(halves, 0)
    assert {case.split for case in splits.tuned_on.cases} == {"tune"}
    assert splits.judged_on is splits.tuned_on
    some = study_splits(
        _with_splits(trace, [(None, "tune", "report")[row % 3] for row in range(n)]), 0
    )
    assert (some.unsplit, splits.unsplit, some.n_certify) == (n // 3, 0, None)


@pytest.mark.usefixtures("quick_study")
def test_a_model_fitted_on_judged_cases_does_not_compete():
    """Fitted on all cases, then judged on a split of them.

    Refused, whichever union of splits it was.
    """
    trace = study_world(120)
    whole = _with_splits(trace, [None] * len(trace))
    refused(
        "must not be fitted on cases of this trace",
        tune,
        _different(trace),
        candidates={"mine": fit_decision(_different(whole), Policy.load())},
        trials=8,
    )


def _different(trace):
    """The same cases, each with a question of its own."""
    cases = tuple(case._replace(query=f"question {row}") for row, case in enumerate(trace.cases))
    return replace(trace, cases=cases)
