"""Selection: single thresholds by brute force, folds that are not read, the simpler within one standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from labelled import free_policy, labelled
from raglab.decision.measurement import measured_tables
from raglab.lab import selection
from raglab.lab.decision_fitting import LEAST, decision_cases
from raglab.lab.search_space import Goal, always_answer, always_refuse, full_space, published_policy
from raglab.lab.selection import (
    CHAIN,
    CHAIN_ASKS,
    COST,
    FOLDS,
    FREE,
    REPEATS,
    Bound,
    Cases,
    Recipe,
    Selection,
    best_of,
    can_fit,
    chain_pool,
    cost_recipe,
    count_cells,
    fold_numbers,
    recipes_of,
    select_recipe,
    signal_bounds,
    threshold_recipe,
)
from raglab.lab.study import tune
from raglab.metrics import N_CELLS
from raglab.replay import tally
from raglab.signals import NAMES
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Case, Status
from worlds import Hit, ask, trace_of

PER_STATUS = N_CELLS // len(Status)  # cells of one decision


def _trace(rows: Sequence[tuple[Case, Sequence[Sequence[Hit]]]]) -> Trace:
    made = trace_of(*rows)
    return Trace(made.cases, made.chunks, made.arms, made.hits, None, {"fingerprint": "made", "corpus": "made"})


def _separable(n: int, seed: int = 0) -> Trace:
    """Answerable where confidence and cosine together exceed 1, ambiguous where a third group ties, else to refuse.

    No single threshold tells them apart.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        u, v = (round(float(x), 3) for x in rng.random(2))
        asks = number % 4 == 0
        status = "ambiguous" if asks else "ok" if u + v > 1.0 else "refuse"
        tags = [{"domain": name} for name in (("home", "fleet", "hull") if asks else ("home", "fleet", "home"))]
        hits = [
            Hit(0.2 + 0.1 * place, f"{'abc'[place]}.md", 1, tag, cosine=v, s_rerank=u, s_raw=u, rank=place)
            for place, tag in enumerate(tags)
        ]
        sources = ("a.md",) if status == "ok" else ()
        rows.append((ask(expect_status=status, expect_sources=sources), [hits]))
    return _trace(rows)


def _cases(trace: Trace, goal: Goal | None = None, start: Policy | None = None, seed: int = 0) -> Cases:
    begin = free_policy() if start is None else start
    found = measured_tables(trace, begin).evidence
    return Cases(
        trace=trace,
        arm=None,
        start=begin,
        defaults=published_policy(begin),
        goal=goal or Goal(targets={}),
        found=found,
        decided=decision_cases(found),
        space=full_space(trace, begin),
        seed=seed,
    )


def _recipes(cases: Cases, size: int = 12) -> list[Recipe]:
    """The candidates, with a chain that is refitted as in a fold's first step."""
    pool = chain_pool(cases, size)
    scores = [float(cases.goal.score(tally(cases.trace, [one]).cells)[0]) for one in pool]
    return recipes_of(cases, lambda _: pool[int(np.argmin(scores))], pool)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_best_single_threshold_is_that_of_brute_force(seed: int) -> None:
    """Over every threshold that parts the values, ties, missing ones and costs of their own included."""
    trace = labelled(seed, {"tune": 60}, steps=(10, None)[seed % 2], missing=0.1)
    goal = Goal(costs={"refuse": {"answered_wrong": 3}} if seed == 2 else None, targets={})
    cases = _cases(trace, goal)
    bounds = list(signal_bounds(cases.found, goal_asks=True))
    assert {"confidence", "top1_cosine", "gap"} <= {bound.signal for bound in bounds}
    for bound in bounds[:6]:
        values = cases.found.signals[NAMES.index(bound.signal), 0]
        there = np.unique(values[~np.isnan(values)])
        outside = there[0] - 1.0 if bound.end == "min" else there[-1] + 1.0
        middles = [*((there[1:] + there[:-1]) / 2.0).tolist(), float(outside)]
        recipe = threshold_recipe(bound, cases)
        (best,) = goal.cost(tally(trace, [recipe.refit()]).cells)
        found = [float(cost) for middle in middles for cost in goal.cost(_counted(cases, bound, middle))]
        assert best == pytest.approx(min(found)), bound.name


def _counted(cases: Cases, bound: Bound, at: float) -> NDArray[np.int64]:
    """Cells under a threshold, without a policy's range: refused where the signal fails it or is missing."""
    values = cases.found.signals[NAMES.index(bound.signal), 0]
    passes = values >= at if bound.end == "min" else values <= at
    answered, refused = cases.cells(always_answer(cases.start)), cases.cells(always_refuse(cases.start))
    return count_cells(np.where(passes, answered, refused)[None])


def test_a_threshold_decides_in_a_policy_as_in_a_fold() -> None:
    """What `carry_out` says of all cases, learned on all, is what the refitted policy decides."""
    cases = _cases(labelled(7, {"tune": 80}, missing=0.05))
    every = np.arange(80)
    for bound in signal_bounds(cases.found, goal_asks=True):
        recipe = threshold_recipe(bound, cases)
        told, decided = recipe.carry_out(every, every) // PER_STATUS, cases.cells(recipe.refit()) // PER_STATUS
        np.testing.assert_array_equal(told, decided, err_msg=bound.name)


def test_folds_carry_the_labels() -> None:
    """Each case once a repeat, each label spread within one case, and other cases together in every repeat."""
    label = np.array([0] * 53 + [1] * 29 + [2] * 7, dtype=np.int8)
    fold = fold_numbers(label, 0)
    assert fold.shape == (REPEATS, len(label))
    for row in fold:
        counts = np.array([np.bincount(row[label == one], minlength=FOLDS) for one in range(3)])
        assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
        assert np.ptp(counts.sum(axis=0)) <= 1
    assert not (fold[0] == fold[1]).all()
    np.testing.assert_array_equal(fold, fold_numbers(label, 0))


def test_the_expected_cost_decision_is_a_candidate_only_where_every_fold_can_fit_it() -> None:
    """Ten right and ten other cases outside of every fold: folds carry labels, not what retrieval makes of them."""
    for seed in range(16):
        rng = np.random.default_rng(seed)
        trace = labelled(seed, {"tune": 80}, wrong=0.15, refusable=0.1)
        cases = _cases(trace, seed=int(rng.integers(1000)))
        right = cases.decided.classes == 0
        fewest = min(
            min(right[fold != one].sum(), (~right)[fold != one].sum())
            for fold in fold_numbers(cases.found.label, cases.seed)
            for one in range(FOLDS)
        )
        assert can_fit(cases) == (fewest >= LEAST)


def test_a_recipe_reads_nothing_of_the_held_out_fold() -> None:
    """Other labels there, the same decisions there: thresholds, chain and expected cost alike."""
    trace = _separable(80)
    held, rows = np.arange(0, 80, 8), np.setdiff1d(np.arange(80), np.arange(0, 80, 8))
    turned = {"ok": "refuse", "refuse": "ambiguous", "ambiguous": "ok"}
    other = replace(
        trace,
        cases=tuple(
            case._replace(expect_status=turned[case.expect_status], expect_sources=()) if row in held else case
            for row, case in enumerate(trace.cases)
        ),
    )
    before, after = (_recipes(_cases(one)) for one in (trace, other))
    assert [one.name for one in before] == [one.name for one in after]
    assert {CHAIN, CHAIN_ASKS, COST} <= {one.name for one in before}
    for one, two in zip(before, after, strict=True):
        said = one.carry_out(rows, held) // PER_STATUS, two.carry_out(rows, held) // PER_STATUS
        np.testing.assert_array_equal(*said, err_msg=one.name)


def _made(cases: Cases, stated: dict[str, tuple[NDArray[np.bool_], int]]) -> Selection:
    """Selection among recipes that pass the cases stated, with the complexity stated."""
    label = np.array([Status[case.expect_status] for case in cases.trace.cases])

    def recipe(name: str, passes: NDArray[np.bool_], complexity: int) -> Recipe:
        # An answer that is right or a refusal that is; an answer that is wrong, or a refusal of what is answerable.
        right = np.where(label == Status.ok, Status.ok * 6 + Status.ok * 2 + 1, Status.refuse * 6 + Status.refuse * 2)
        wrong = np.where(label == Status.ok, Status.refuse * 6 + Status.ok * 2, Status.ok * 6 + Status.refuse * 2)
        cells = np.where(passes, right, wrong).astype(np.int8)
        policy = cases.start.replace("notes", name)
        return Recipe(name, lambda _, held: cells[held], lambda: policy, lambda _: complexity)

    return select_recipe([recipe(name, *one) for name, one in stated.items()], cases)


def test_the_simpler_within_one_standard_error() -> None:
    """60 of 100 against 58 that are partly others: the simpler; 30 is too far; equally simple, the cheaper."""
    cases = _cases(labelled(0, {"tune": 100}))
    row = np.arange(100)
    best, near, far = row < 60, (row >= 4) & (row < 62), row < 30
    chosen = _made(cases, {"best": (best, 5), "near": (near, 1), "far": (far, 0)})
    assert chosen.selected == "near"
    assert chosen.costs["cross_validated"].tolist() == pytest.approx([0.40, 0.42, 0.70])
    difference = best.astype(float) - near.astype(float)
    assert chosen.costs.loc["near", "std_error"] == pytest.approx(difference.std(ddof=1) / 10.0)
    # One that fails two cases more and wins none is two standard errors behind: pairs say so, shares would not.
    assert _made(cases, {"best": (best, 5), "less": (row < 54, 1)}).selected == "best"
    assert _made(cases, {"near": (near, 1), "best": (best, 1)}).selected == "best"


def test_none_is_chosen_that_a_simpler_one_beats() -> None:
    """A failure that costs 100 makes the error so large that 2 failures more are near; always refusing beats them."""
    trace = labelled(1, {"tune": 100}, refusable=1.0)
    cases = _cases(trace, Goal(costs={"refuse": {"answered_wrong": 100}}, targets={}))
    refusable = np.array([case.expect_status == "refuse" for case in trace.cases])
    some = np.flatnonzero(refusable)[:1]
    risky = ~np.isin(np.arange(100), some)
    n_ok = int((~refusable).sum())
    careful = refusable | (np.cumsum(~refusable) <= n_ok // 2)
    chosen = _made(cases, {"refuse": (refusable, 0), "risky": (risky, 1), "careful": (careful, 5)})
    assert chosen.costs.loc["risky", "cross_validated"] > chosen.costs.loc["refuse", "cross_validated"]
    assert chosen.selected == "careful"


@pytest.mark.slow
def test_the_expected_cost_decision_wins_where_classes_are_separable() -> None:
    """By two signals together, held out: it is far ahead of every single threshold, and of answering all."""
    cases = _cases(_separable(160, seed=3))
    bounds = [
        Bound("confidence", "min", "refuse"),
        Bound("top1_cosine", "min", "refuse"),
        Bound("groups", "max", "ask"),
    ]
    recipes = [*(threshold_recipe(bound, cases) for bound in bounds), cost_recipe(cases)]
    chosen = select_recipe(recipes, cases)
    assert chosen.selected == COST
    thresholds = chosen.costs.drop(index=COST)["cross_validated"]
    assert chosen.costs.loc[COST, "cross_validated"] < thresholds.min() - 0.15
    again = select_recipe(recipes, cases)
    assert chosen.costs.equals(again.costs)
    assert chosen.policies[COST].policy_id == again.policies[COST].policy_id


@pytest.mark.slow
def test_on_noise_a_free_policy_is_selected() -> None:
    """Signals that know nothing: what is selected costs nothing to choose, and the first note says so."""
    for seed in range(3):
        trace = labelled(seed, {"tune": 100, "report": 60}, wrong=0.35)
        result = tune(trace, policy=free_policy(), trials=16, batch_size=8)
        assert result.selected in FREE
        assert result.notes[0].startswith(f"Nothing beats {result.selected}")


@pytest.mark.slow
def test_where_asking_everybody_is_cheapest_it_is_selected() -> None:
    """Where a bound on asking ends: 90 ambiguous of 200, the rest split evenly, nothing tells them apart.

    Asking everybody fails in 110 cases, answering or refusing everybody in 145.
    """
    rng = np.random.default_rng(0)
    rows = []
    for number in range(200):
        status = "ambiguous" if number < 90 else "ok" if number < 145 else "refuse"
        u, v = (round(float(x), 3) for x in rng.random(2))
        hits = [
            Hit(0.3, "a.md", 1, {"domain": "home"}, cosine=v, s_rerank=u, s_raw=u, rank=0),
            Hit(0.5, "b.md", 1, {"domain": "fleet"}, s_rerank=u / 2, s_raw=u / 2, rank=1),
        ]
        rows.append((ask(expect_status=status, expect_sources=("a.md",) if status == "ok" else ()), [hits]))
    cases = _cases(_trace(rows))
    names = (*FREE, COST)
    chosen = select_recipe(
        [one for one in recipes_of(cases, lambda _: cases.start, [cases.start]) if one.name in names], cases
    )
    assert chosen.selected == COST
    asked = (cases.cells(chosen.policies[COST]) // PER_STATUS == Status.ambiguous).mean()
    assert asked > 2.0 * 90 / 200


@pytest.mark.slow
def test_where_no_case_is_ambiguous_no_candidate_asks() -> None:
    """The resolver stays out, no threshold asks, the model knows no such class: over-ask is 0 but of the published."""
    trace = _separable(120)
    rows = [row for row, case in enumerate(trace.cases) if case.expect_status != "ambiguous"]
    result = tune(trace.subset(rows), trials=16, batch_size=8)
    assert CHAIN_ASKS not in result.costs.index
    assert not any("ask" in name for name in result.costs.index)
    own = result.costs.drop(index="defaults")
    assert (own["over_ask"] == 0.0).all()
    assert best_of(result.costs, list(own.index)) in own.index


@pytest.mark.slow
def test_a_study_selects_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs, advantage and policy, over more than one repeat of the folds."""
    monkeypatch.setattr(selection, "REPEATS", 2)
    trace = _separable(60, seed=5)
    one, two = (tune(trace, trials=8, batch_size=4, seed=2) for _ in range(2))
    assert one.costs.equals(two.costs)
    assert one.advantage == two.advantage
    assert one.policy.policy_id == two.policy.policy_id
