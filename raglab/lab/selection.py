"""Selection (shore): which recipe holds on questions it never saw, by repeated cross-validation (S6.8).

A candidate is a recipe, not a policy: answer all, one threshold on one signal, the chain, the expected cost. In every
fold a recipe is carried out from the start on the other folds (search, line search, fit and calibration included) and
judged on this one. The recipe that is chosen is then carried out on all cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from raglab import metrics
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.measurement import Evidence, measured_tables
from raglab.lab.decision_fitting import LEAST, DecisionCases, decide_by_model, fit_model, stratified_folds, tells_apart
from raglab.lab.looks import queries_hash
from raglab.lab.paired_gain import Advantage, paired_advantage
from raglab.lab.search_space import (
    LEAST_GAIN,
    SWITCHES,
    Goal,
    SearchRange,
    always_answer,
    always_refuse,
    descend,
    plateau,
    set_values,
)
from raglab.policy_sections import EXPECTED_COST
from raglab.progress import progress
from raglab.replay import case_cells, case_rows, evidence_with_model, tally
from raglab.signal_gates import LEAST_OPTIONS
from raglab.store.policies import Policy
from raglab.values import Status, TraceData

if TYPE_CHECKING:
    import pandas as pd

FOLDS, REPEATS = 10, 5
POOL = 400  # configurations of the chain that a fold chooses among before its line search
ROUNDS = 3  # of the line search in a fold
RESAMPLES = 1_000  # of the cases, for how often each recipe wins
CORRECTIONS = 500  # resamples, for what the selection gains by being the best of many
ANSWER, REFUSE, DEFAULTS = "always-answer", "always-refuse", "defaults"
CHAIN, CHAIN_ASKS, COST = "chain", "chain with resolver", "expected cost"
FREE = (ANSWER, REFUSE)


class Cases(NamedTuple):
    """Measured cases of one split and arm, and what a recipe starts from.

    start, defaults: policy that recipes begin with, and the published one. goal: what is minimised. found: evidence
    under `start`. decided: the same cases as a fit reads them. space: that the chain is searched in. seed: of folds,
    pool and resamples.
    """

    trace: TraceData
    arm: str | None
    start: Policy
    defaults: Policy
    goal: Goal
    found: Evidence
    decided: DecisionCases
    space: Mapping[str, SearchRange]
    seed: int

    @property
    def arm_name(self) -> str:
        """Name of the arm."""
        return self.trace.arms[0] if self.arm is None else self.arm

    def cells(self, policy: Policy) -> NDArray[np.int8]:
        """Cell of every case under a policy, [Q]."""
        return case_cells(measured_tables(self.trace, policy, self.arm).evidence, [policy])[0]


@dataclass(frozen=True)
class Recipe:
    """One candidate.

    carry_out: from training cases (positions) to the cells of held-out ones. refit: policy made of all cases.
    complexity: of that policy, what breaks ties (rule S6.8).
    """

    name: str
    carry_out: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int8]]
    refit: Callable[[], Policy]
    complexity: Callable[[Policy], int]


def count_cells(cells: NDArray[np.int8]) -> NDArray[np.int64]:
    """Cases by cell, [..., 18], of the cell of each case, [..., Q]."""
    flat = cells.reshape(-1, cells.shape[-1])
    counted = np.stack([np.bincount(row, minlength=metrics.N_CELLS) for row in flat])
    return counted.reshape(*cells.shape[:-1], metrics.N_CELLS)


def fixed_recipe(name: str, policy: Policy, cases: Cases, complexity: int) -> Recipe:
    """A policy that learns nothing."""
    cells = cases.cells(policy)
    return Recipe(name, lambda _, held: cells[held], lambda: policy, lambda _: complexity)


class Bound(NamedTuple):
    """Gate of one signal: which end it bounds, and what it does beyond."""

    signal: str
    end: str
    on_fire: str

    @property
    def name(self) -> str:
        """Name of the candidate."""
        return f"{self.signal} {'at least' if self.end == 'min' else 'at most'}{', else ask' * (self.on_fire == 'ask')}"


def signal_bounds(found: Evidence, goal_asks: bool) -> Iterator[Bound]:  # noqa: FBT001 - a verdict
    """One threshold on each signal that is there and says which way it points.

    Args:
      goal_asks: whether asking back is worth a try.
    """
    for row, one in enumerate(found.known.rows):
        values = found.signals[row, 0]
        if one.direction == "either" or not one.alone or not tells_apart(values):
            continue
        yield Bound(one.name, "min" if one.direction == "surer" else "max", "refuse")
        if one.direction == "ask" and goal_asks:
            yield Bound(one.name, "max", "ask")


def threshold_recipe(bound: Bound, cases: Cases) -> Recipe:
    """Best single threshold on a signal, everything else off."""
    answered = cases.cells(always_answer(cases.start))
    fired = _fired_cells(bound, cases)
    values = cases.found.signals[cases.found.known.place(bound.signal), 0]
    surer = values if bound.end == "min" else -values

    def best(rows: NDArray[np.int64]) -> float:
        """Threshold on `surer`: the middle of the widest of the best steps; one that no case passes is none."""
        order = rows[np.argsort(-surer[rows], kind="stable")]
        order = order[~np.isnan(surer[order])]
        if not len(order):
            return 0.0
        everywhere = count_cells(fired[rows][None])[0]
        cells = everywhere + (_one_hot(answered[order]) - _one_hot(fired[order])).cumsum(axis=0)
        ordered = surer[order]
        below = np.append(ordered[1:], ordered[-1] - _margin(ordered))
        # A threshold lies between two values that differ, and by more than their last digit.
        middle = (ordered + below) / 2.0
        scores = np.where(middle > below, cases.goal.score(cells), np.inf)
        width = np.where(scores <= scores.min() + LEAST_GAIN, ordered - below, -np.inf)
        return float(middle[int(np.argmax(width))])

    def carry_out(rows: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.where(surer[held] >= best(rows), answered[held], fired[held])

    def refit() -> Policy:
        at = best(np.arange(len(values)))
        unit = cases.found.known.signal(bound.signal).unit
        value = float(np.clip(at if bound.end == "min" else -at, unit.low, unit.high))
        return bounded_policy(cases.start, bound, _round_between(value, values))

    return Recipe(bound.name, carry_out, refit, lambda _: 1)


def bounded_policy(start: Policy, bound: Bound, value: float) -> Policy:
    """Policy with one threshold on a signal and everything else off."""
    return always_answer(start).replace("signals", {bound.signal: {bound.end: value, "on_fire": bound.on_fire}})


def _fired_cells(bound: Bound, cases: Cases) -> NDArray[np.int8]:
    """Cell of every case where the gate fires, [Q]: refused, or asked where there are two options."""
    found = cases.found
    status = np.full(len(found.label), Status.refuse, dtype=np.int64)
    if bound.on_fire == "ask":
        status[found.n_options_all[0] >= LEAST_OPTIONS] = Status.ambiguous
    cells: NDArray[np.int8] = metrics.DISTINCT_CELL[
        status * metrics.CELLS + found.label * 2 + cases.decided.options_right
    ].astype(np.int8)
    return cells


def _one_hot(cells: NDArray[np.int8]) -> NDArray[np.int64]:
    return (cells[:, None] == np.arange(metrics.N_CELLS)).astype(np.int64)


def _margin(ordered: NDArray[np.float64]) -> float:
    """A tenth of the range beyond its ends, where no case was seen."""
    return 0.1 * float(ordered[0] - ordered[-1]) or 1.0


def _round_between(value: float, values: NDArray[np.float64]) -> float:
    """Shortest number on the same side of every observed value."""
    above, below = values[values > value], values[values < value]
    high = float(above.min()) if len(above) else np.inf
    low = float(below.max()) if len(below) else -np.inf
    for digits in range(1, 17):
        short = float(f"{value:.{digits}g}")
        if low < short < high:
            return short
    return value


RESOLVES = ("gap.", "resolver.")


def chain_recipe(name: str, cases: Cases, refit: Callable[[], Policy], pool: Sequence[Policy]) -> Recipe:
    """The chain, searched in a pool that no label has seen, then by exact line search.

    Args:
      refit: search of the chain on all cases. pool: configurations; without the resolver their gap gate is off.
    """
    asks = name == CHAIN_ASKS
    tried = [policy if asks else policy.replace("gap.enabled", False) for policy in pool]
    paths = [path for path in cases.space if asks or not path.startswith(RESOLVES)]
    cells = case_cells(cases.found, tried)

    def carry_out(rows: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int8]:
        first = int(np.argmin(cases.goal.score(count_cells(cells[:, rows]))))
        _, policy = descend(case_rows(cases.found, rows), tried[first], paths, cases.goal.score, ROUNDS)
        return case_cells(case_rows(cases.found, held), [policy])[0]

    return Recipe(name, carry_out, refit, lambda policy: chain_complexity(policy, cases))


def chain_pool(cases: Cases, size: int) -> list[Policy]:
    """Configurations of the chain: the start, the defaults, all gates off, then draws of the space."""
    rng = np.random.default_rng([cases.seed, len(cases.space)])
    base = cases.defaults if cases.defaults.structure == cases.start.structure else cases.start
    pool = [cases.start, base, always_answer(cases.start)]
    for _ in range(size - len(pool)):
        drawn = {path: extent.draw(rng) for path, extent in cases.space.items()}
        pool.append(set_values(cases.start, drawn))
    return pool


def chain_complexity(policy: Policy, cases: Cases) -> int:
    """Gates and rules that refuse or ask in some case, and thresholds that are not the published ones."""
    from raglab.decision.decisions import GATE_OF
    from raglab.replay import decide_policies

    (said,) = decide_policies(cases.trace, [policy], cases.arm)
    acting = {GATE_OF[said.stage(int(row))] for row in np.flatnonzero(said.status != Status.ok)}
    moved = sum(policy.value(path) != cases.defaults.value(path) for path in cases.space)
    return len(acting) + moved


def cost_recipe(cases: Cases) -> Recipe:
    """Decision by expected cost on all signals."""
    costs = cases.goal.costs
    plain = cases.start.replace("decision.rule", "chain")

    def fitted(rows: NDArray[np.int64], fitted_on: str | None = None) -> Policy:
        model = fit_model(cases.decided.rows(rows), seed=cases.seed)
        return decide_by_model(plain, model, cases.arm_name, {} if costs is None else costs, fitted_on)

    def carry_out(rows: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int8]:
        policy = fitted(rows)
        part = case_rows(cases.found, held)
        return case_cells(evidence_with_model(part, policy), [policy])[0]

    def signals_used(policy: Policy) -> int:
        model = policy.decision.model
        return 0 if model is None else sum(any(part.weights) for part in model.parts.values())

    def refit() -> Policy:  # remembers its cases, on which it may not be certified (rule S6.4)
        return fitted(np.arange(len(cases.found.label)), queries_hash(cases.trace.cases))

    return Recipe(COST, carry_out, refit, signals_used)


def fold_numbers(label: NDArray[np.int8], seed: int) -> NDArray[np.int64]:
    """Fold of every case in every repeat, [repeats, Q], stratified by label."""
    rng = np.random.default_rng(seed)
    return np.stack([stratified_folds(label, min(FOLDS, len(label)), rng) for _ in range(REPEATS)])


def held_out_cells(recipes: Sequence[Recipe], fold: NDArray[np.int64]) -> NDArray[np.int8]:
    """Cell of every case where the recipe was carried out without its fold, [recipes, repeats, Q]."""
    cells = np.empty((len(recipes), *fold.shape), dtype=np.int8)
    every = [(repeat, one) for repeat in range(len(fold)) for one in range(int(fold.max()) + 1)]
    for repeat, one in progress(every, "cross-validation", "fold"):
        rows, held = np.flatnonzero(fold[repeat] != one), np.flatnonzero(fold[repeat] == one)
        for place, recipe in enumerate(recipes):
            cells[place, repeat, held] = recipe.carry_out(rows, held)
    return cells


@dataclass(frozen=True)
class Selection:
    """Which recipe was chosen, and what each came to.

    selected: name of the chosen candidate. policies: of every candidate, made of all cases. costs: a row a candidate.
    loss: cost of every case, held out, mean over repeats, [candidates, Q]. expected: cost of what is selected on cases
    that it was neither made of nor chosen on. missing: recorded answers that each candidate's policy lacks.
    """

    selected: str
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    loss: NDArray[np.float64]
    names: tuple[str, ...]
    expected: float
    missing: Mapping[str, MissingAnswers]


def select_recipe(recipes: Sequence[Recipe], cases: Cases) -> Selection:
    """Choose the simplest recipe within one standard error of the best, by cross-validation.

    Where some candidate meets all targets of the goal when held out, only such are chosen among; one that costs more
    than a candidate no less simple is never chosen. One that lacks too many recorded answers is not compared.

    Source: rules S6.3, S6.8; Breiman et al. 1984 (one-standard-error rule).
    """
    import pandas as pd

    fold = fold_numbers(cases.found.label, cases.seed)
    with threadpool_limits(1):  # thousands of small products, over which threads would only wait for each other
        cells = held_out_cells(recipes, fold)
    loss = metrics.cell_costs(cases.goal.matrix)[cells].mean(axis=1)
    policies = {recipe.name: recipe.refit() for recipe in progress(recipes, "refit", "candidate")}
    pooled = count_cells(cells).sum(axis=1)
    lacks = tally(cases.trace, [policies[recipe.name] for recipe in recipes], cases.arm)
    compared = np.array([one.is_compared for one in lacks.missing_answers])  # always-refuse is
    feasible = cases.goal.meets(pooled) & compared
    allowed = feasible if feasible.any() else compared
    complexity = np.array([recipe.complexity(policies[recipe.name]) for recipe in recipes])
    # The order in which the last ties are settled: by policy_id.
    ranks = np.argsort(np.argsort([policies[recipe.name].policy_id for recipe in recipes]))
    every = np.ones(loss.shape[1])
    mean, error = loss.mean(axis=1), differences(loss, every, allowed)[1]
    chosen = simplest_near_best(loss, every, allowed, complexity, ranks)
    rates = metrics.rates(metrics.rate_counts(pooled), metrics.label_counts(pooled))
    in_sample = [float(cases.goal.cost(count_cells(cases.cells(policies[one.name])[None])[0])) for one in recipes]
    names = tuple(recipe.name for recipe in recipes)
    table = pd.DataFrame(
        {
            "in_sample": in_sample,
            "cross_validated": mean,
            "std_error": error,
            "over_ask": rates[:, metrics.RATES.index("over_ask_rate")],
            "coverage": rates[:, metrics.RATES.index("coverage")],
            "complexity": complexity,
            "won": _wins(loss, cases.seed),
            "meets_targets": feasible,
            "policy_id": [policies[name].policy_id for name in names],
        },
        index=pd.Index(names, name="candidate"),
    )
    if lacks.by_text:
        table = table.assign(missing_answers_k=lacks.missing[:, 0], missing_answers_n=lacks.missing[:, 1])
        table = table.assign(compared=compared)
    expected = corrected_cost(loss, allowed, complexity, ranks, cases.seed)
    missing = dict(zip(names, lacks.missing_answers, strict=True))
    return Selection(names[chosen], policies, table, loss, names, expected, missing)


def differences(
    loss: NDArray[np.float64], weights: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean difference of each candidate to the best that is allowed, and its standard error, [candidates] each.

    Args:
      loss: [candidates, Q]. weights: how often each case counts, [Q].
    """
    n = weights.sum()
    best = int(np.argmin(np.where(allowed, loss @ weights, np.inf)))
    behind = loss - loss[best]
    mean = behind @ weights / n
    spread = ((behind - mean[:, None]) ** 2) @ weights / max(n - 1.0, 1.0)
    return mean, np.sqrt(spread / n)


def simplest_near_best(
    loss: NDArray[np.float64],
    weights: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    complexity: NDArray[np.int64],
    ranks: NDArray[np.int64],
) -> int:
    """Place of the simplest candidate within one standard error of the best; then the cheaper, then by rank.

    Args:
      loss: [candidates, Q]. weights: how often each case counts, [Q]. ranks: order in which ties are settled.
    """
    behind, error = differences(loss, weights, allowed)
    cost = np.round(loss @ weights, 9)
    # Where one dear failure decides, a candidate may be within its error of the best and yet behind a simpler one.
    no_less_simple = complexity[None, :] <= complexity[:, None]
    beaten = (no_less_simple & allowed[None, :] & (cost[None, :] < cost[:, None])).any(axis=1)
    near = np.flatnonzero(allowed & ~beaten & (behind <= error))
    return int(near[np.lexsort((ranks[near], cost[near], complexity[near]))[0]])


def corrected_cost(
    loss: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    complexity: NDArray[np.int64],
    ranks: NDArray[np.int64],
    seed: int,
) -> float:
    """Held-out cost of the selection itself, without what it gains by being the best of many on these very cases.

    In each resample the selection is made anew on the cases that are drawn and judged on those that are not.

    Source: bootstrap bias-corrected cross-validation (Tsamardinos, Greasidou and Borboudakis 2018).
    """
    size = loss.shape[1]
    rng = np.random.default_rng([seed, size, 1])
    costs = []
    for weights in rng.multinomial(size, np.full(size, 1.0 / size), size=CORRECTIONS):
        left = weights == 0
        if left.any():
            chosen = simplest_near_best(loss, weights.astype(np.float64), allowed, complexity, ranks)
            costs.append(float(loss[chosen, left].mean()))
    return float(np.mean(costs)) if costs else float(loss[0].mean())


def _wins(loss: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Share of resamples of the cases in which each candidate costs least; ties go to the first."""
    rng = np.random.default_rng([seed, loss.shape[1]])
    size = loss.shape[1]
    weights = rng.multinomial(size, np.full(size, 1.0 / size), size=RESAMPLES)
    best = np.argmin(np.round(weights @ loss.T, 9), axis=1)
    found: NDArray[np.float64] = np.bincount(best, minlength=len(loss)) / RESAMPLES
    return found


def can_fit(cases: Cases) -> bool:
    """Whether there are cases enough of both kinds for a decision by expected cost, outside of every fold."""
    right = cases.decided.classes == 0
    kinds = np.stack([right, ~right])
    left_out = [
        np.bincount(fold[kind], minlength=FOLDS).max()
        for fold in fold_numbers(cases.found.label, cases.seed)
        for kind in kinds
    ]
    worst = np.tile(kinds.sum(axis=1), REPEATS) - left_out
    return bool(worst.min() >= LEAST)


def recipes_of(cases: Cases, refit_chain: Callable[[str], Policy], pool: Sequence[Policy]) -> list[Recipe]:
    """The candidates: free policies, the published one, one threshold on each signal, chain and expected cost.

    Where no case is ambiguous the resolver stays out and no threshold asks.

    Args:
      refit_chain: search of the chain on all cases, by the name of the candidate.
    """
    asks = bool((cases.found.label == Status.ambiguous).any())
    found = [
        fixed_recipe(ANSWER, always_answer(cases.start), cases, 0),
        fixed_recipe(REFUSE, always_refuse(cases.start), cases, 0),
        fixed_recipe(DEFAULTS, cases.defaults, cases, chain_complexity(cases.defaults, cases)),
    ]
    found += [threshold_recipe(bound, cases) for bound in signal_bounds(cases.found, asks)]
    for name in (CHAIN, CHAIN_ASKS) if asks else (CHAIN,):
        found.append(chain_recipe(name, cases, lambda name=name: refit_chain(name), pool))  # type: ignore[misc]
    if can_fit(cases):
        found.append(cost_recipe(cases))
    return found


NOT_THRESHOLDS = frozenset({ANSWER, REFUSE, DEFAULTS, CHAIN, CHAIN_ASKS, COST})


def best_of(costs: pd.DataFrame, names: Sequence[str]) -> str:
    """Of some candidates that are compared the one that costs least when held out, the first of equals; '' of none."""
    compared = [name for name in names if "compared" not in costs or costs.loc[name, "compared"]]
    return str(costs.loc[compared, "cross_validated"].idxmin()) if compared else ""


def judged_costs(
    chosen: Selection, goal: Goal, cells: Mapping[str, NDArray[np.int8]], *, unseen: bool
) -> tuple[pd.DataFrame, Advantage | None]:
    """Costs with what each candidate's policy comes to on the judged cases, and the advantage there.

    Where the judged cases are those tuned on, there is no advantage (rule S6.11).

    Args:
      cells: of the judged cases under each candidate's policy, [Q] each. unseen: whether none of them was tuned on.
    """
    free = best_of(chosen.costs, FREE)
    price = metrics.cell_costs(goal.matrix)
    table = chosen.costs.copy()
    table.insert(2, "report", [float(price[cells[name]].mean()) for name in chosen.names])
    if not unseen:
        return table, None
    return table, paired_advantage(cells[chosen.selected], cells[free], goal.matrix, free)


def policy_plateaus(cases: Cases, policy: Policy) -> pd.DataFrame:
    """How far each threshold that a policy decides by may move at no cost: `path`, `value`, `low`, `high`, `width`."""
    import pandas as pd

    paths = [path for path in cases.space if path not in SWITCHES and policy.value(path) is not None]
    if policy.decision.rule == EXPECTED_COST:
        paths = ["decision.ratio"]
    elif policy.signals:
        paths = [f"signals.{name}.{end}" for name in policy.signals for end in ("min", "max")]
        paths = [path for path in paths if policy.value(path) is not None]
    found = evidence_with_model(cases.found, policy)
    rows = [(*run, run.high - run.low) for run in (plateau(found, policy, path, cases.goal.score) for path in paths)]
    return pd.DataFrame(rows, columns=["path", "value", "low", "high", "width"])
