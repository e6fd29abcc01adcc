"""Candidates (shore): a study's choices, each decided by versions that never saw a case (S6.8).

A candidate is a fixed policy, or a recipe that makes a policy of labelled cases: the decision by
expected cost, one threshold on one signal, the chain. A recipe is carried out anew on the other
folds for each fold of several deals (cross-fitting), and once on all cases for the policy that is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from raglab import metrics
from raglab.decision.learned_cases import hash_queries, with_learned_cases
from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.trace_view import Measured
from raglab.gating.signal_gates import MIN_OPTIONS
from raglab.lab.arrays import AnyArray, CodeArray, FloatArray, IntArray
from raglab.lab.decision_fitting import (
    LEAST,
    DecisionCases,
    decide_by_model,
    fit_model,
    policy_with_costs,
    stratified_folds,
    tells_apart,
)
from raglab.lab.goals import Goal
from raglab.lab.line_search import LEAST_GAIN, coordinate_search
from raglab.lab.search_space import SearchRange, set_values
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.progress import progress
from raglab.replay import case_cells, case_rows, evidence_with_model, path_moves
from raglab.replaying.breakpoints import StepCells, sum_moves
from raglab.store.policies import Policy
from raglab.values import Status, TraceData

FOLDS, REPEATS = 5, 4
POOL = 400  # configurations of the chain that a fold chooses among before its line search
ROUNDS = 3  # of the line search in a fold
LEAST_OF_LABEL = 10  # cases of a label that occurs, below which a model of it is not trusted
RATIOS = 64  # of a family of ratios, that the nested estimate chooses among
ANSWER, REFUSE, DEFAULTS = "always-answer", "always-refuse", "defaults"
THRESHOLD, CHAIN, COST = "one threshold", "chain", "expected cost"
FREE = (ANSWER, REFUSE)
FIXED = (*FREE, DEFAULTS)
RECIPES = (COST, THRESHOLD, CHAIN)
EVERY_ACTION = frozenset(Status)
ANSWER_OR_REFUSE = frozenset({Status.ok, Status.refuse})


class Cases(NamedTuple):
    """Measured cases of one split and arm, and what recipes start from.

    held: the trace of the cases, measured.
    arm: of the trace; None for the first.
    start: policy that recipes begin with.
    defaults: the default policy (thresholds of the source documents).
    goal: costs, and targets where there are any.
    evidence: of the cases under `start`.
    decided: the same cases as a fit reads them.
    space: ranges that the chain is searched in.
    questions: number of each case's question, from 0, see `question_numbers`, [Q].
    seed: of folds, pool and resamples.
    folds: of the cross-fit.
    repeats: deals of the cases into folds.
    weight: of each case, where they were drawn with several probabilities, [Q].
    """

    held: Measured
    arm: str | None
    start: Policy
    defaults: Policy
    goal: Goal
    evidence: Evidence
    decided: DecisionCases
    space: Mapping[str, SearchRange]
    questions: IntArray
    seed: int
    folds: int = FOLDS
    repeats: int = REPEATS
    weight: FloatArray | None = None

    @property
    def traffic(self) -> tuple[float, ...] | None:
        """Shares of the labels in traffic, [3]; None where they are those of the cases."""
        shares = self.goal.shares(np.zeros(metrics.N_CELLS))
        return None if shares is None else tuple(shares.tolist())

    def counted(self, cells: CodeArray, rows: IntArray | None = None) -> AnyArray:
        """Cases by cell, [..., 20], by their weights, of the cell of each case, [..., Q].

        Args:
          cells: cell of each case.
          rows: that these are of; all where not given.
        """
        if self.weight is None:
            return count_cells(cells)
        return count_cells(cells, self.weight if rows is None else self.weight[rows])

    @property
    def trace(self) -> TraceData:
        """Trace of the cases."""
        return self.held.trace

    @property
    def label(self) -> CodeArray:
        """Label of every case, [Q]."""
        return self.evidence.label

    def cells(self, policy: Policy) -> CodeArray:
        """Cell of every case under a policy, [Q]."""
        return case_cells(measured_tables(self.held, policy, self.arm).evidence, [policy])[0]

    @property
    def groups(self) -> IntArray:
        """Number of the group of each case, [Q], which no fold parts: its question.

        Itself where these are too few.
        """
        size = len(self.questions)
        return (
            self.questions if self.questions.max() + 1 >= min(self.folds, size) else np.arange(size)
        )

    @property
    def fold_numbers(self) -> IntArray:
        """Fold of every case in every repeat, [repeats, Q], stratified by label.

        Equal questions are in one fold.
        """
        question = self.groups
        first = np.unique(question, return_index=True)[1]
        rng = np.random.default_rng(self.seed)
        folds = min(self.folds, len(first))
        dealt = [stratified_folds(self.label[first], folds, rng) for _ in range(self.repeats)]
        return np.stack(dealt)[:, question]

    @property
    def can_ask(self) -> bool:
        """Whether some case is labelled ambiguous.

        Without one the resolver stays out and no threshold asks.
        """
        return bool((self.label == Status.ambiguous).any())


@dataclass(frozen=True)
class Candidate:
    """A candidate as it decided cases that it was not made of.

    name: in tables. cells: cell of every case in every repeat, [V, R, Q]; V values of a family, 1
    of any other, and R = 1 of a fixed
      policy.
    policies: of the V values, made of all cases.
    actions: that its policies can take.
    """

    name: str
    cells: CodeArray
    policies: Sequence[Policy]
    actions: frozenset[Status]


def count_cells(cells: CodeArray, weight: FloatArray | None = None) -> AnyArray:
    """Cases by cell, [..., 20], of the cell of each case, [..., Q], and of its weight, [Q]."""
    flat = cells.reshape(-1, cells.shape[-1])
    counts = np.stack([np.bincount(row, weight, minlength=metrics.N_CELLS) for row in flat])
    return counts.reshape(*cells.shape[:-1], metrics.N_CELLS)


def fixed_candidate(
    name: str, policy: Policy, cases: Cases, actions: frozenset[Status] = EVERY_ACTION
) -> Candidate:
    """A policy that learns nothing from the cases."""
    return Candidate(name, cases.cells(policy)[None, None], (policy,), actions)


def free_candidates(cases: Cases) -> list[Candidate]:
    """Always-answer, always-refuse and the default policy.

    One of them is what a candidate has to beat.
    """
    return [
        fixed_candidate(ANSWER, always_answer(cases.start), cases, frozenset({Status.ok})),
        fixed_candidate(REFUSE, always_refuse(cases.start), cases, frozenset({Status.refuse})),
        fixed_candidate(DEFAULTS, cases.defaults, cases),
    ]


def cross_fitted_cells(
    cases: Cases,
    decide: Callable[[IntArray, IntArray], CodeArray],
    what: str,
) -> CodeArray:
    """Cell of every case, decided without its fold, [repeats, Q].

    Args:
      decide: from training cases to the cells of held-out ones, both as positions.
      what: for the progress bar.
    """
    cells = np.empty((cases.repeats, len(cases.label)), dtype=np.int8)
    for repeat, rows, held in held_out_folds(cases, what):
        cells[repeat, held] = decide(rows, held)
    return cells


def held_out_folds(cases: Cases, what: str) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Repeat, training cases and held-out cases of every fold, as positions."""
    fold = cases.fold_numbers
    every = [
        (repeat, number) for repeat in range(len(fold)) for number in range(int(fold.max()) + 1)
    ]
    # thousands of small products, over which threads would only wait for each other
    with threadpool_limits(1):
        for repeat, number in progress(every, what, "fold"):
            yield (
                repeat,
                np.flatnonzero(fold[repeat] != number),
                np.flatnonzero(fold[repeat] == number),
            )


# One threshold on one signal
# ----------------------------------------------------------------------------------------------


class BoundCells(NamedTuple):
    """Bound on one signal, and what each case comes to on either side of it.

    signal: its name.
    end: that it bounds, `min` or `max`.
    on_fire: what the gate does beyond, `refuse` or `ask`.
    surer: values of its signal, turned so that more is surer, [Q].
    answered: cell where the case is answered, [Q].
    fired: cell where the gate fires, [Q].
    weight: of each case, where they were drawn with several probabilities, [Q].
    """

    signal: str
    end: str
    on_fire: str
    surer: FloatArray
    answered: CodeArray
    fired: CodeArray
    weight: FloatArray | None = None

    def best(self, rows: IntArray, goal: Goal) -> tuple[float, float]:
        """Least score of a threshold on `surer` over some cases, and that threshold.

        The threshold is the middle of the widest of the best steps; one that no case passes is
        none.
        """
        order = rows[np.argsort(-self.surer[rows], kind="stable")]
        order = order[~np.isnan(self.surer[order])]
        by = None if self.weight is None else self.weight[rows]
        everywhere = count_cells(self.fired[rows][None], by)[0]
        if not len(order):
            return float(goal.score(everywhere[None])[0]), 0.0
        moved: AnyArray = _one_hot(self.answered[order]) - _one_hot(self.fired[order])
        if self.weight is not None:
            moved = moved * self.weight[order, None]
        cells = everywhere + moved.cumsum(axis=0)
        ordered = self.surer[order]
        below = np.append(ordered[1:], ordered[-1] - _margin(ordered))
        # A threshold lies between two values that differ, and by more than their last digit.
        middle = (ordered + below) / 2.0
        scores = np.where(middle > below, goal.score(cells), np.inf)
        width = np.where(scores <= scores.min() + LEAST_GAIN, ordered - below, -np.inf)
        return float(scores.min()), float(middle[int(np.argmax(width))])

    def decide(self, threshold: float, held: IntArray) -> CodeArray:
        """Cells of some cases under a threshold on `surer`; a missing value fires."""
        cells: CodeArray = np.where(
            self.surer[held] >= threshold, self.answered[held], self.fired[held]
        )
        return cells

    def policy(self, threshold: float, cases: Cases) -> Policy:
        """Policy with that threshold on the signal, and everything else off."""
        turn = 1.0 if self.end == "min" else -1.0
        unit = cases.evidence.known.signal(self.signal).unit
        value = float(np.clip(turn * threshold, unit.low, unit.high))
        ends = {self.end: _round_between(value, turn * self.surer), "on_fire": self.on_fire}
        return always_answer(cases.start).replace("signals", {self.signal: ends})


def signal_bounds(cases: Cases) -> Iterator[BoundCells]:
    """One bound on each signal that differs between cases and says which way it points."""
    evidence, answered = cases.evidence, cases.cells(always_answer(cases.start))
    options = evidence.n_options_all[0] >= MIN_OPTIONS
    for row, signal in enumerate(evidence.known.rows):
        values = evidence.signals[row, 0]
        if signal.direction == "either" or not signal.alone or not tells_apart(values):
            continue
        surer = signal.direction == "surer"
        asks = signal.direction == "ask" and cases.can_ask
        for on_fire in ("refuse", "ask")[: 1 + asks]:
            may_ask = options & (on_fire == "ask")
            status = np.where(may_ask, Status.ambiguous, Status.refuse).astype(np.int64)
            code = status * metrics.CELLS + evidence.label * 2 + cases.decided.options_right
            yield BoundCells(
                signal.name,
                "min" if surer else "max",
                on_fire,
                values if surer else -values,
                answered,
                metrics.DISTINCT_CELL[code].astype(np.int8),
                cases.weight,
            )


def best_bound(
    bounds: Sequence[BoundCells], rows: IntArray, goal: Goal
) -> tuple[BoundCells, float]:
    """Signal and threshold of the least score over some cases; the first of equals."""
    scores = [bound.best(rows, goal) for bound in bounds]
    place = int(np.argmin([score for score, _ in scores]))
    return bounds[place], scores[place][1]


def threshold_candidate(cases: Cases) -> Candidate | None:
    """The family of single thresholds: signal and value chosen on each training part.

    None without a signal.
    """
    bounds = list(signal_bounds(cases))
    if not bounds:
        return None

    def decide(rows: IntArray, held: IntArray) -> CodeArray:
        bound, threshold = best_bound(bounds, rows, cases.goal)
        return bound.decide(threshold, held)

    cells = cross_fitted_cells(cases, decide, THRESHOLD)
    bound, threshold = best_bound(bounds, np.arange(len(cases.label)), cases.goal)
    asks = bound.on_fire == "ask"
    actions = EVERY_ACTION if asks else ANSWER_OR_REFUSE
    return Candidate(THRESHOLD, cells[None], (bound.policy(threshold, cases),), actions)


def _one_hot(cells: CodeArray) -> IntArray:
    return (cells[:, None] == np.arange(metrics.N_CELLS)).astype(np.int64)


def _margin(ordered: FloatArray) -> float:
    """A tenth of the range beyond its ends, where no case was seen."""
    return 0.1 * float(ordered[0] - ordered[-1]) or 1.0


def _round_between(value: float, values: FloatArray) -> float:
    """Shortest number on the same side of every observed value."""
    above, below = values[values > value], values[values < value]
    high = float(above.min()) if len(above) else np.inf
    low = float(below.max()) if len(below) else -np.inf
    for digits in range(1, 17):
        short = float(f"{value:.{digits}g}")
        if low < short < high:
            return short
    return value


# The chain
# ----------------------------------------------------------------------------------------------

RESOLVES = ("gap.", "resolver.")


def chain_paths(cases: Cases) -> list[str]:
    """Paths that the chain is searched along; where no case is ambiguous the resolver stays out."""
    return [path for path in cases.space if cases.can_ask or not path.startswith(RESOLVES)]


def chain_candidate(cases: Cases, refit: Callable[[], Policy], pool: Sequence[Policy]) -> Candidate:
    """The chain: in a fold searched in a pool that no label has seen, then by exact line search.

    Args:
      cases: measured cases.
      refit: search of the chain on all cases, by the whole Optuna study.
      pool: configurations of `chain_pool`.
    """
    cells = case_cells(cases.evidence, pool)
    paths = chain_paths(cases)

    def decide(rows: IntArray, held: IntArray) -> CodeArray:
        first = int(np.argmin(cases.goal.score(cases.counted(cells[:, rows], rows))))
        by = None if cases.weight is None else cases.weight[rows]
        _, policy = coordinate_search(
            case_rows(cases.evidence, rows), pool[first], paths, cases.goal.score, ROUNDS, by
        )
        return case_cells(case_rows(cases.evidence, held), [policy])[0]

    actions = EVERY_ACTION if cases.can_ask else ANSWER_OR_REFUSE
    return Candidate(CHAIN, cross_fitted_cells(cases, decide, CHAIN)[None], (refit(),), actions)


def chain_pool(cases: Cases, size: int) -> list[Policy]:
    """Configurations of the chain: the start, the defaults, all gates off, then draws of the space.

    Args:
      cases: measured cases; without an ambiguous one the gap gate is off in all of them.
      size: how many.
    """
    rng = np.random.default_rng([cases.seed, len(cases.space)])
    base = cases.defaults if cases.defaults.structure == cases.start.structure else cases.start
    pool = [cases.start, base, always_answer(cases.start)]
    for _ in range(size - len(pool)):
        drawn = {path: extent.draw(rng) for path, extent in cases.space.items()}
        pool.append(set_values(cases.start, drawn))
    return pool if cases.can_ask else [policy.replace("gap.enabled", False) for policy in pool]


# The decision by expected cost
# ----------------------------------------------------------------------------------------


def rare_labels(cases: Cases) -> dict[str, int]:
    """Labels that occur in fewer than 10 cases, with their number.

    A model of them is not trusted (rule S6.8).
    """
    counts = np.bincount(cases.label, minlength=len(Status)).tolist()
    return {status.name: counts[status] for status in Status if 0 < counts[status] < LEAST_OF_LABEL}


class CostCrossFit(NamedTuple):
    """Cross-fitted models of the decision by expected cost; they do not depend on the costs.

    evidence: of all cases in each repeat, with the probabilities of the models of the other folds,
    [R]. policy: decides by the model of all cases, under the default costs.
    """

    evidence: tuple[Evidence, ...]
    policy: Policy


def can_fit(cases: Cases) -> bool:
    """Whether outside every fold enough cases of both kinds, and a signal, remain for a model."""
    if min(least_training_counts(cases)) < LEAST:
        return False
    signals = cases.decided.signals[
        [row for row, signal in enumerate(cases.decided.known.rows) if signal.alone]
    ]
    rest = (fold != number for fold in cases.fold_numbers for number in range(int(fold.max()) + 1))
    return all(any(tells_apart(values[rows]) for values in signals) for rows in rest)


def least_training_counts(cases: Cases) -> list[int]:
    """Cases right if answered, and others: the fewest in any training part."""
    right = cases.decided.classes == 0
    kinds = np.stack([right, ~right])
    left_out = [
        [np.bincount(fold[kind], minlength=1).max() for kind in kinds]
        for fold in cases.fold_numbers
    ]
    least: list[int] = (kinds.sum(axis=1) - np.max(left_out, axis=0)).tolist()
    return least


def cross_fit(cases: Cases) -> CostCrossFit:
    """Fit the model of each fold and of all cases, once for all cost matrices.

    Args:
      cases: measured cases, of which `can_fit` holds.

    Source: rules S2.17, S6.8.
    """
    plain = cases.start.replace("decision.rule", "chain")

    def fitted(rows: IntArray, fitted_on: str | None = None) -> Policy:
        return decide_by_model(
            plain,
            fit_model(cases.decided.rows(rows), seed=cases.seed),
            cases.trace.arms[0] if cases.arm is None else cases.arm,
            {},
            fitted_on,
            cases.traffic,
        )

    shape = (cases.repeats, *cases.evidence.probability.shape)
    probability, right = np.empty(shape), np.empty((cases.repeats, len(cases.label)))
    for repeat, rows, held in held_out_folds(cases, COST):
        of_fold = [cases.trace.cases[row] for row in held.tolist()]
        part = evidence_with_model(case_rows(cases.evidence, held), fitted(rows), of_fold)
        probability[repeat][..., held], right[repeat, held] = part.probability, part.asked_right
    evidence = tuple(
        cases.evidence._replace(probability=of_repeat, asked_right=asked_right)
        for of_repeat, asked_right in zip(probability, right, strict=True)
    )
    # The policy remembers its cases, on which it may not be certified (rule S6.4).
    queries = [case.query for case in cases.trace.cases]
    policy = with_learned_cases(fitted(np.arange(len(cases.label)), hash_queries(queries)), queries)
    return CostCrossFit(evidence, policy)


def cost_candidate(cases: Cases, fit: CostCrossFit) -> Candidate:
    """Decision by expected cost.

    Under the goal's costs, and with targets as a family over its cost ratio.

    The first value is what is chosen; of a family further ratios follow, which the nested estimate
    chooses among.

    Source: rules S2.17, S6.8.
    """
    stated = policy_with_costs(fit.policy, cases.goal.costs)
    policies = [stated]
    if cases.goal.targets:
        steps = ratio_steps(fit, stated, cases.weight)
        chosen = nearest_ratio(steps, cases.goal, cases.repeats)
        picked = (
            np.linspace(0, len(steps.low) - 1, min(RATIOS, len(steps.low))).round().astype(np.int64)
        )
        ratios = [chosen, *(step_ratio(steps, place) for place in picked.tolist())]
        policies = [stated.replace("decision.ratio", ratio) for ratio in dict.fromkeys(ratios)]
    cells = np.stack([case_cells(evidence, policies) for evidence in fit.evidence], axis=1)
    return Candidate(COST, cells, policies, EVERY_ACTION)


def ratio_steps(fit: CostCrossFit, policy: Policy, weight: FloatArray | None = None) -> StepCells:
    """Cases by cell between the exact breakpoints of the cost ratio, summed over the repeats."""
    moves = [path_moves(evidence, policy, "decision.ratio", weight) for evidence in fit.evidence]
    return sum_moves([moved for _, moved in moves], moves[0][0])


def step_ratio(steps: StepCells, place: int) -> float:
    """A ratio of a step: 1 where it holds 1, else its middle, a short number."""
    low, high = float(steps.low[place]), float(steps.high[place])
    if low < 1.0 <= high:
        return 1.0
    return _round_between((low + high) / 2.0, np.array([low, high]))


def nearest_ratio(steps: StepCells, goal: Goal, repeats: int) -> float:
    """The cheapest ratio whose one-standard-error upper estimate meets every target.

    Else the nearest to them.

    Args:
      steps: of `ratio_steps`.
      goal: costs and targets.
      repeats: that the steps were summed over.
    """
    violation = goal.violation(steps.cells / repeats)
    cost = np.round(goal.cost(steps.cells), 9)
    holds_own = (steps.low < 1.0) & (steps.high >= 1.0)  # of equals the stated costs
    order = np.lexsort((np.arange(len(cost)), ~holds_own, cost, np.round(violation, 9)))
    return step_ratio(steps, int(order[0]))
