"""Candidates (shore): a study's choices, each decided by versions that never saw a case (S6.8).

A candidate is a fixed policy, or a recipe that makes a policy of labelled cases: the decision by
expected cost, one threshold on one signal, the chain. A recipe is carried out again on the other
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
from raglab.lab.decision_fitting import (
    MIN_KIND_CASES,
    DecisionCases,
    decide_by_model,
    fit_model,
    policy_with_costs,
    stratified_folds,
    tells_apart,
)
from raglab.lab.goals import Goal
from raglab.lab.line_search import MIN_SCORE_GAIN, coordinate_search
from raglab.lab.search_space import SearchRange, set_values
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.progress import progress
from raglab.replay import case_cells, case_rows, evidence_with_model, path_moves
from raglab.replaying.breakpoints import StepCells, sum_moves
from raglab.store.policies import Policy
from raglab.values import AnyArray, CodeArray, FloatArray, IntArray, Status, TraceData

CROSS_FIT_FOLDS = 5
CROSS_FIT_REPEATS = 4
FOLD_POOL_SIZE = 400  # configurations of the chain that a fold chooses among before its line search
FOLD_SEARCH_ROUNDS = 3  # of the line search in a fold
MIN_LABEL_CASES = 10  # cases of a label that occurs, below which a model of it is not trusted
MAX_COST_RATIOS = 64  # of a family of ratios, that the nested estimate chooses among
ANSWER, REFUSE, DEFAULTS = "always-answer", "always-refuse", "defaults"
THRESHOLD_RECIPE, CHAIN_RECIPE, COST_RECIPE = "one threshold", "chain", "expected cost"
FREE_POLICIES = (ANSWER, REFUSE)
FIXED_POLICIES = (*FREE_POLICIES, DEFAULTS)
RECIPE_NAMES = (COST_RECIPE, THRESHOLD_RECIPE, CHAIN_RECIPE)
EVERY_ACTION = frozenset(Status)
ANSWER_OR_REFUSE = frozenset({Status.ok, Status.refuse})


class Cases(NamedTuple):
    """Measured cases of one split and arm, and what recipes start from.

    held: the trace of the cases, measured.
    arm: of the trace; None for the first.
    start: policy that recipes begin with.
    defaults: the default policy (thresholds of the source documents).
    goal: costs, and targets if any.
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
    folds: int = CROSS_FIT_FOLDS
    repeats: int = CROSS_FIT_REPEATS
    weight: FloatArray | None = None

    @property
    def traffic(self) -> tuple[float, ...] | None:
        """Shares of the labels in traffic, [3]; None where they are those of the cases."""
        label_shares = self.goal.shares(np.zeros(metrics.N_CELLS))
        return None if label_shares is None else tuple(label_shares.tolist())

    def counted(self, cells: CodeArray, case_indices: IntArray | None = None) -> AnyArray:
        """Cases by cell, [..., 20], by their weights, of the cell of each case, [..., Q].

        Args:
          cells: cell of each case.
          case_indices: that these are of; all where not given.
        """
        if self.weight is None:
            return count_cells(cells)
        return count_cells(
            cells, self.weight if case_indices is None else self.weight[case_indices]
        )

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
        n_cases = len(self.questions)
        return (
            self.questions
            if self.questions.max() + 1 >= min(self.folds, n_cases)
            else np.arange(n_cases)
        )

    @property
    def fold_numbers(self) -> IntArray:
        """Fold of every case in every repeat, [repeats, Q], stratified by label.

        Equal questions are in one fold.
        """
        question_numbers = self.groups
        first_cases = np.unique(question_numbers, return_index=True)[1]
        rng = np.random.default_rng(self.seed)
        n_folds = min(self.folds, len(first_cases))
        dealt_folds = [
            stratified_folds(self.label[first_cases], n_folds, rng) for _ in range(self.repeats)
        ]
        return np.stack(dealt_folds)[:, question_numbers]

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


def count_cells(cells: CodeArray, case_weights: FloatArray | None = None) -> AnyArray:
    """Cases by cell, [..., 20], of the cell of each case, [..., Q], and of its weight, [Q]."""
    flat_cells = cells.reshape(-1, cells.shape[-1])
    counts = np.stack(
        [
            np.bincount(policy_cells, case_weights, minlength=metrics.N_CELLS)
            for policy_cells in flat_cells
        ]
    )
    return counts.reshape(*cells.shape[:-1], metrics.N_CELLS)


def fixed_candidate(
    candidate_name: str, policy: Policy, cases: Cases, actions: frozenset[Status] = EVERY_ACTION
) -> Candidate:
    """A policy that learns nothing from the cases."""
    return Candidate(candidate_name, cases.cells(policy)[None, None], (policy,), actions)


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
    decide_fold: Callable[[IntArray, IntArray], CodeArray],
    progress_label: str,
) -> CodeArray:
    """Cell of every case, decided without its fold, [repeats, Q].

    Args:
      decide_fold: from training cases to the cells of held-out ones, both as positions.
      progress_label: for the progress bar.
    """
    held_out_cells = np.empty((cases.repeats, len(cases.label)), dtype=np.int8)
    for repeat_number, training_cases, held_out_cases in held_out_folds(cases, progress_label):
        held_out_cells[repeat_number, held_out_cases] = decide_fold(training_cases, held_out_cases)
    return held_out_cells


def held_out_folds(cases: Cases, progress_label: str) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Repeat, training cases and held-out cases of every fold, as positions."""
    fold_numbers = cases.fold_numbers
    repeats_and_folds = [
        (repeat_number, fold_number)
        for repeat_number in range(len(fold_numbers))
        for fold_number in range(int(fold_numbers.max()) + 1)
    ]
    # thousands of small products, over which threads would only wait for each other
    with threadpool_limits(1):
        for repeat_number, fold_number in progress(repeats_and_folds, progress_label, "fold"):
            yield (
                repeat_number,
                np.flatnonzero(fold_numbers[repeat_number] != fold_number),
                np.flatnonzero(fold_numbers[repeat_number] == fold_number),
            )


# One threshold on one signal
# ----------------------------------------------------------------------------------------------


class BoundCells(NamedTuple):
    """Bound on one signal, and the cell of each case on either side of it.

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

    def best(self, case_indices: IntArray, goal: Goal) -> tuple[float, float]:
        """Least score of a threshold on `surer` over some cases, and that threshold.

        The threshold is the middle of the widest of the best steps; one that no case passes is
        none.
        """
        surest_first = case_indices[np.argsort(-self.surer[case_indices], kind="stable")]
        surest_first = surest_first[~np.isnan(self.surer[surest_first])]
        case_weights = None if self.weight is None else self.weight[case_indices]
        fired_cells = count_cells(self.fired[case_indices][None], case_weights)[0]
        if not len(surest_first):
            return float(goal.score(fired_cells[None])[0]), 0.0
        moved_cells: AnyArray = _one_hot(self.answered[surest_first]) - _one_hot(
            self.fired[surest_first]
        )
        if self.weight is not None:
            moved_cells = moved_cells * self.weight[surest_first, None]
        step_cells = fired_cells + moved_cells.cumsum(axis=0)
        ordered_values = self.surer[surest_first]
        next_values = np.append(ordered_values[1:], ordered_values[-1] - _margin(ordered_values))
        # A threshold lies between two values that differ, and by more than their last digit.
        middle_values = (ordered_values + next_values) / 2.0
        step_scores = np.where(middle_values > next_values, goal.score(step_cells), np.inf)
        step_widths = np.where(
            step_scores <= step_scores.min() + MIN_SCORE_GAIN, ordered_values - next_values, -np.inf
        )
        return float(step_scores.min()), float(middle_values[int(np.argmax(step_widths))])

    def decide(self, threshold: float, held_out_cases: IntArray) -> CodeArray:
        """Cells of some cases under a threshold on `surer`; a missing value fires."""
        cells: CodeArray = np.where(
            self.surer[held_out_cases] >= threshold,
            self.answered[held_out_cases],
            self.fired[held_out_cases],
        )
        return cells

    def policy(self, threshold: float, cases: Cases) -> Policy:
        """Policy with that threshold on the signal, and everything else off."""
        bound_sign = 1.0 if self.end == "min" else -1.0
        signal_unit = cases.evidence.known.signal(self.signal).unit
        value = float(np.clip(bound_sign * threshold, signal_unit.low, signal_unit.high))
        signal_bound = {
            self.end: _round_between(value, bound_sign * self.surer),
            "on_fire": self.on_fire,
        }
        return always_answer(cases.start).replace("signals", {self.signal: signal_bound})


def signal_bounds(cases: Cases) -> Iterator[BoundCells]:
    """One bound on each signal that differs between cases and says which way it points."""
    evidence = cases.evidence
    answered_cells = cases.cells(always_answer(cases.start))
    has_options = evidence.n_options_all[0] >= MIN_OPTIONS
    for signal_row, signal in enumerate(evidence.known.rows):
        signal_values = evidence.signals[signal_row, 0]
        if signal.direction == "either" or not signal.alone or not tells_apart(signal_values):
            continue
        is_surer = signal.direction == "surer"
        can_ask = signal.direction == "ask" and cases.can_ask
        for on_fire in ("refuse", "ask")[: 1 + can_ask]:
            is_asked = has_options & (on_fire == "ask")
            fired_status = np.where(is_asked, Status.ambiguous, Status.refuse).astype(np.int64)
            outcome_codes = (
                fired_status * metrics.CELLS + evidence.label * 2 + cases.decided.options_right
            )
            yield BoundCells(
                signal.name,
                "min" if is_surer else "max",
                on_fire,
                signal_values if is_surer else -signal_values,
                answered_cells,
                metrics.DISTINCT_CELL[outcome_codes].astype(np.int8),
                cases.weight,
            )


def best_bound(
    bound_choices: Sequence[BoundCells], case_indices: IntArray, goal: Goal
) -> tuple[BoundCells, float]:
    """Signal and threshold of the least score over some cases; the first of equals."""
    bound_scores = [signal_bound.best(case_indices, goal) for signal_bound in bound_choices]
    best_place = int(np.argmin([bound_score for bound_score, _ in bound_scores]))
    return bound_choices[best_place], bound_scores[best_place][1]


def threshold_candidate(cases: Cases) -> Candidate | None:
    """The family of single thresholds: signal and value chosen on each training part.

    None without a signal.
    """
    all_bounds = list(signal_bounds(cases))
    if not all_bounds:
        return None

    def decide(training_cases: IntArray, held_out_cases: IntArray) -> CodeArray:
        chosen_bound, threshold = best_bound(all_bounds, training_cases, cases.goal)
        return chosen_bound.decide(threshold, held_out_cases)

    cross_fitted = cross_fitted_cells(cases, decide, THRESHOLD_RECIPE)
    chosen_bound, threshold = best_bound(all_bounds, np.arange(len(cases.label)), cases.goal)
    is_asking = chosen_bound.on_fire == "ask"
    actions = EVERY_ACTION if is_asking else ANSWER_OR_REFUSE
    return Candidate(
        THRESHOLD_RECIPE, cross_fitted[None], (chosen_bound.policy(threshold, cases),), actions
    )


def _one_hot(cell_numbers: CodeArray) -> IntArray:
    return (cell_numbers[:, None] == np.arange(metrics.N_CELLS)).astype(np.int64)


def _margin(ordered_values: FloatArray) -> float:
    """A tenth of the range beyond its ends, where no case was seen."""
    return 0.1 * float(ordered_values[0] - ordered_values[-1]) or 1.0


def _round_between(exact_value: float, observed_values: FloatArray) -> float:
    """Shortest number on the same side of every observed value.

    Example:
      >>> _round_between(0.4321, np.array([0.4, 0.5]))
      0.43
    """
    values_above = observed_values[observed_values > exact_value]
    values_below = observed_values[observed_values < exact_value]
    upper_bound = float(values_above.min()) if len(values_above) else np.inf
    lower_bound = float(values_below.max()) if len(values_below) else -np.inf
    for n_digits in range(1, 17):
        rounded_value = float(f"{exact_value:.{n_digits}g}")
        if lower_bound < rounded_value < upper_bound:
            return rounded_value
    return exact_value


# The chain
# ----------------------------------------------------------------------------------------------

RESOLVER_PATHS = ("gap.", "resolver.")


def chain_paths(cases: Cases) -> list[str]:
    """Paths that the chain is searched along; where no case is ambiguous the resolver stays out."""
    return [path for path in cases.space if cases.can_ask or not path.startswith(RESOLVER_PATHS)]


def chain_candidate(
    cases: Cases, refit: Callable[[], Policy], chain_policies: Sequence[Policy]
) -> Candidate:
    """The chain: in a fold searched in a pool that no label has seen, then by exact line search.

    Args:
      cases: measured cases.
      refit: search of the chain on all cases, by the whole Optuna study.
      chain_policies: configurations of `chain_pool`.
    """
    pool_cells = case_cells(cases.evidence, chain_policies)
    search_paths = chain_paths(cases)

    def decide(training_cases: IntArray, held_out_cases: IntArray) -> CodeArray:
        pool_place = int(
            np.argmin(
                cases.goal.score(cases.counted(pool_cells[:, training_cases], training_cases))
            )
        )
        case_weights = None if cases.weight is None else cases.weight[training_cases]
        _, policy = coordinate_search(
            case_rows(cases.evidence, training_cases),
            chain_policies[pool_place],
            search_paths,
            cases.goal.score,
            FOLD_SEARCH_ROUNDS,
            case_weights,
        )
        return case_cells(case_rows(cases.evidence, held_out_cases), [policy])[0]

    actions = EVERY_ACTION if cases.can_ask else ANSWER_OR_REFUSE
    return Candidate(
        CHAIN_RECIPE, cross_fitted_cells(cases, decide, CHAIN_RECIPE)[None], (refit(),), actions
    )


def chain_pool(cases: Cases, pool_size: int) -> list[Policy]:
    """Configurations of the chain: the start, the defaults, all gates off, then draws of the space.

    Args:
      cases: measured cases; without an ambiguous one the gap gate is off in all of them.
      pool_size: how many.
    """
    rng = np.random.default_rng([cases.seed, len(cases.space)])
    base_policy = (
        cases.defaults if cases.defaults.structure == cases.start.structure else cases.start
    )
    pool_policies = [cases.start, base_policy, always_answer(cases.start)]
    for _ in range(pool_size - len(pool_policies)):
        drawn_values = {
            setting_path: search_range.draw(rng)
            for setting_path, search_range in cases.space.items()
        }
        pool_policies.append(set_values(cases.start, drawn_values))
    return (
        pool_policies
        if cases.can_ask
        else [policy.replace("gap.enabled", False) for policy in pool_policies]
    )


# The decision by expected cost
# ----------------------------------------------------------------------------------------


def rare_labels(cases: Cases) -> dict[str, int]:
    """Labels that occur in fewer than 10 cases, with their number.

    A model of them is not trusted (rule S6.8).
    """
    counts = np.bincount(cases.label, minlength=len(Status)).tolist()
    return {
        status.name: counts[status] for status in Status if 0 < counts[status] < MIN_LABEL_CASES
    }


class CostCrossFit(NamedTuple):
    """Cross-fitted models of the decision by expected cost; they do not depend on the costs.

    evidence: of all cases in each repeat, with the probabilities of the models of the other folds,
    [R]. policy: decides by the model of all cases, under the default costs.
    """

    evidence: tuple[Evidence, ...]
    policy: Policy


def can_fit(cases: Cases) -> bool:
    """Whether outside every fold enough cases of both kinds, and a signal, remain for a model."""
    if min(least_training_counts(cases)) < MIN_KIND_CASES:
        return False
    own_signals = cases.decided.signals[
        [row for row, signal in enumerate(cases.decided.known.rows) if signal.alone]
    ]
    training_masks = (
        fold_numbers != fold_number
        for fold_numbers in cases.fold_numbers
        for fold_number in range(int(fold_numbers.max()) + 1)
    )
    return all(
        any(tells_apart(values[training_mask]) for values in own_signals)
        for training_mask in training_masks
    )


def least_training_counts(cases: Cases) -> list[int]:
    """Cases right if answered, and others: the fewest in any training part."""
    is_right = cases.decided.classes == 0
    kind_masks = np.stack([is_right, ~is_right])
    most_left_out = [
        [np.bincount(fold_numbers[kind_mask], minlength=1).max() for kind_mask in kind_masks]
        for fold_numbers in cases.fold_numbers
    ]
    fewest_cases: list[int] = (kind_masks.sum(axis=1) - np.max(most_left_out, axis=0)).tolist()
    return fewest_cases


def cross_fit(cases: Cases) -> CostCrossFit:
    """Fit the model of each fold and of all cases, once for all cost matrices.

    Args:
      cases: measured cases, of which `can_fit` holds.

    Source: rules S2.17, S6.8.
    """
    chain_policy = cases.start.replace("decision.rule", "chain")

    def fitted(training_cases: IntArray, fitted_on: str | None = None) -> Policy:
        return decide_by_model(
            chain_policy,
            fit_model(cases.decided.rows(training_cases), seed=cases.seed),
            cases.trace.arms[0] if cases.arm is None else cases.arm,
            {},
            fitted_on,
            cases.traffic,
        )

    probability_shape = (cases.repeats, *cases.evidence.probability.shape)
    probability = np.empty(probability_shape)
    asked_right_chance = np.empty((cases.repeats, len(cases.label)))
    for repeat_number, training_cases, held_out_cases in held_out_folds(cases, COST_RECIPE):
        fold_cases = [cases.trace.cases[case_index] for case_index in held_out_cases.tolist()]
        fold_evidence = evidence_with_model(
            case_rows(cases.evidence, held_out_cases), fitted(training_cases), fold_cases
        )
        (
            probability[repeat_number][..., held_out_cases],
            asked_right_chance[repeat_number, held_out_cases],
        ) = fold_evidence.probability, fold_evidence.asked_right
    evidence = tuple(
        cases.evidence._replace(probability=repeat_probability, asked_right=asked_right)
        for repeat_probability, asked_right in zip(probability, asked_right_chance, strict=True)
    )
    # The policy remembers its cases, on which it may not be certified (rule S6.4).
    queries = [case.query for case in cases.trace.cases]
    policy = with_learned_cases(fitted(np.arange(len(cases.label)), hash_queries(queries)), queries)
    return CostCrossFit(evidence, policy)


def cost_candidate(cases: Cases, cost_fit: CostCrossFit) -> Candidate:
    """Decision by expected cost.

    Under the goal's costs, and with targets as a family over its cost ratio.

    The first value is what is chosen; of a family further ratios follow, which the nested estimate
    chooses among.

    Source: rules S2.17, S6.8.
    """
    cost_policy = policy_with_costs(cost_fit.policy, cases.goal.costs)
    ratio_policies = [cost_policy]
    if cases.goal.targets:
        cost_steps = ratio_steps(cost_fit, cost_policy, cases.weight)
        chosen_ratio = nearest_ratio(cost_steps, cases.goal, cases.repeats)
        picked_steps = (
            np.linspace(0, len(cost_steps.low) - 1, min(MAX_COST_RATIOS, len(cost_steps.low)))
            .round()
            .astype(np.int64)
        )
        cost_ratios = [
            chosen_ratio,
            *(step_ratio(cost_steps, step_place) for step_place in picked_steps.tolist()),
        ]
        ratio_policies = [
            cost_policy.replace("decision.ratio", ratio) for ratio in dict.fromkeys(cost_ratios)
        ]
    ratio_cells = np.stack(
        [case_cells(repeat_evidence, ratio_policies) for repeat_evidence in cost_fit.evidence],
        axis=1,
    )
    return Candidate(COST_RECIPE, ratio_cells, ratio_policies, EVERY_ACTION)


def ratio_steps(
    cost_fit: CostCrossFit, policy: Policy, case_weights: FloatArray | None = None
) -> StepCells:
    """Cases by cell between the exact breakpoints of the cost ratio, summed over the repeats."""
    repeat_moves = [
        path_moves(evidence, policy, "decision.ratio", case_weights)
        for evidence in cost_fit.evidence
    ]
    return sum_moves([cells for _, cells in repeat_moves], repeat_moves[0][0])


def step_ratio(steps: StepCells, step_place: int) -> float:
    """A ratio of a step: 1 where it holds 1, else its middle, a short number."""
    lower_ratio = float(steps.low[step_place])
    upper_ratio = float(steps.high[step_place])
    if lower_ratio < 1.0 <= upper_ratio:
        return 1.0
    return _round_between((lower_ratio + upper_ratio) / 2.0, np.array([lower_ratio, upper_ratio]))


def nearest_ratio(steps: StepCells, goal: Goal, repeats: int) -> float:
    """The cheapest ratio whose one-standard-error upper estimate meets every target.

    Else the nearest to them.

    Args:
      steps: of `ratio_steps`.
      goal: costs and targets.
      repeats: that the steps were summed over.
    """
    target_violation = goal.violation(steps.cells / repeats)
    step_costs = np.round(goal.cost(steps.cells), 9)
    holds_one = (steps.low < 1.0) & (steps.high >= 1.0)  # of equals the stated costs
    step_order = np.lexsort(
        (np.arange(len(step_costs)), ~holds_one, step_costs, np.round(target_violation, 9))
    )
    return step_ratio(steps, int(step_order[0]))
