"""Judging a study (shore): selection, costs, rates and findings on the judged cases (S6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import MAX_MISSING, Basis
from raglab.decision.chain import can_ask
from raglab.decision.inclusion import inclusion_weights
from raglab.decision.learned_cases import IN_SAMPLE, trace_queries, with_scores_of, with_tuned_cases
from raglab.decision.measurement import gates_off
from raglab.decision.outcome_codes import CELL_OF_CODE, tally_codes
from raglab.decision.refusal_warnings import idle_text, refusal_text
from raglab.decision.scoring import trace_basis, trace_status_only, unretrieved_count
from raglab.decision.trace_view import (
    Measured,
    TraceView,
    failed_count,
    held_trace,
    trace_parts,
)
from raglab.lab.candidates import (
    ANSWER,
    COST_RECIPE,
    DEFAULTS,
    FIXED_POLICIES,
    FOLD_POOL_SIZE,
    RECIPE_NAMES,
    REFUSE,
    Cases,
    chain_paths,
    count_cells,
)
from raglab.lab.comparison import contests, reference_roles
from raglab.lab.competition import BY_HAND, TUNED, CompetitionEntry, build_candidates
from raglab.lab.decision_fitting import direction_notes
from raglab.lab.dropped_gates import dropped_gates
from raglab.lab.findings import study_findings
from raglab.lab.goals import Goal
from raglab.lab.line_search import line_search
from raglab.lab.selection import Selection, policy_flat_ranges, select_candidate
from raglab.lab.study_cases import Splits
from raglab.lab.study_result import TuneResult
from raglab.lab.trial_search import MISSING_ANSWERS, Problem, Search, pareto_front, trial_policies
from raglab.metrics.crossings import Crossing, cost_table, crossing
from raglab.replay import decide_policies, rate_table, tally, trace_codes
from raglab.retrieval.corpus_language import foreign_questions
from raglab.store.policies import Policy
from raglab.values import AnyArray, CodeArray, FloatArray, SlotArray, Status
from raglab.words.text import is_foreign

if TYPE_CHECKING:
    import pandas as pd


UNSEEN, AS_IT_IS = "unseen cases", "fixed policy"  # by which cases a policy is judged
AS_GIVEN = "as given, origin unknown"  # a policy of the user, on the cases tuned on


class StudyProblem(NamedTuple):
    """What a study searches.

    The cases, the search over them, and the policies that its result is held against.

    splits: the cases.
    held: those that candidates are made of, measured.
    problem: the search.
    defaults: the default policy.
    by_hand: policy of the source's loop (rule S6.4).
    start_note: in what a start that the toolkit chose differs from the default policy, '' if not.
    left_out: thresholds and switches that a space of the toolkit leaves out.
    """

    splits: Splits
    held: Measured
    problem: Problem
    defaults: Policy
    by_hand: Policy
    start_note: str
    left_out: tuple[str, ...]

    def measured(self, trace: TraceView) -> TraceView:
        """A trace to be asked many questions.

        The one that candidates are made of with what was measured of it.
        """
        return self.held if trace is self.held.trace else held_trace(trace)


def judged_result(
    study_problem: StudyProblem, cases: Cases, entry: CompetitionEntry, search: Search
) -> TuneResult:
    """The selected policy, made of all cases, on the cases nothing was made of or chosen on."""
    problem = study_problem.problem
    splits = study_problem.splits
    arm, trials, goal = problem.settings["arm"], int(problem.settings["trials"]), problem.goal
    tuned_on = splits.tuned_on
    judged_on = splits.judged_on
    is_unseen = judged_on is not tuned_on
    # The cases may be a sample: then trials, judged on all cases, are scored on the sample once
    # more to be compared.
    refit_trials = partial(_chain_of_trials, cases, search.trials)
    selection = select_candidate(
        build_candidates(cases, entry, refit_trials, min(FOLD_POOL_SIZE, trials)),
        entry.competing,
        cases,
    )
    # what was selected, what it must beat, and the other candidates
    policies = {
        DEFAULTS: study_problem.defaults,
        TUNED: selection.policies[selection.selected],
        ANSWER: selection.policies[ANSWER],
        REFUSE: selection.policies[REFUSE],
        BY_HAND: study_problem.by_hand,
    }
    policies = _with_tuned_cases(policies | dict(selection.policies), tuned_on)
    selection = selection._replace(policies={name: policies[name] for name in selection.policies})
    tuned_policy = policies[TUNED]
    # All policies on the same cases at once, which chose none of them where there is a split to
    # judge on.
    judged_view = study_problem.measured(judged_on)
    outcome_codes = trace_codes(judged_view, list(policies.values()), arm)
    judged_policies = JudgedPolicies(
        policies, outcome_codes, trace_basis(judged_view), inclusion_weights(judged_view)
    )
    candidate_costs, cost_crossing, label_mix_costs = _judged_costs(
        selection, goal, cases, judged_policies, unseen=is_unseen
    )
    traffic_cells = (
        None if goal.traffic is None else count_cells(judged_policies.cells[TUNED][None])[0]
    )
    contest_roles = reference_roles(candidate_costs, selection.selected, selection.incumbent)
    policy_contests = (
        contests(judged_view, policies, contest_roles, arm, goal.costs, goal.mix)
        if is_unseen
        else []
    )
    # An advantage is claimed over the incumbent, and on unseen cases only (rule S6.11).
    incumbent_gains = (
        contest.gain for contest in policy_contests if contest.reference == selection.incumbent
    )
    advantage = None if selection.selected == selection.incumbent else next(incumbent_gains, None)
    selection_settings = {
        "rule": entry.rule,
        "folds": cases.folds,
        "repeats": cases.repeats,
        "competing": ", ".join(entry.competing),
    }
    if cases.decided.groups is not None:
        selection_settings["group"] = cases.decided.groups.attribute
    result = TuneResult(
        policy=tuned_policy,
        selected=selection.selected,
        incumbent=selection.incumbent,
        default_policy=study_problem.defaults,
        policies=policies,
        costs=candidate_costs,
        held_out_estimate=selection.held_out_estimate,
        advantage=advantage,
        trials=search.trials,
        pareto=pareto_front(search.trials),
        flat_ranges=policy_flat_ranges(cases, tuned_policy),
        judged=_judged_rates(judged_policies, goal, selection, unseen=is_unseen),
        tuned_on=tuned_on,
        judged_on=judged_on,
        study=search.study,
        best=search.best,
        settings=problem.settings,
        selection_settings=selection_settings,
        goal=goal,
        basis=str(judged_policies.basis),
        n_certify=splits.n_certify,
        left_out=study_problem.left_out,
        crossing=cost_crossing,
        mix_costs=label_mix_costs,
        # always-refuse answers nothing, whatever the other gates would say
        dropped=()
        if selection.selected == REFUSE
        else dropped_gates(problem.start, tuned_policy, gates_off(tuned_on)),
        counts=_counts(study_problem, cases, entry, search, selection),
        target_excess=max(0.0, selection.misses) if goal.targets else 0.0,
        contests=tuple(policy_contests),
        smallest_saving=_smallest_saving(selection, goal),
        worst_cost=nan if traffic_cells is None else float(goal.worst_cost(traffic_cells)),
    )
    further_texts = _further_texts(study_problem, cases, entry, tuned_policy, judged_policies.basis)
    return replace(result, findings=study_findings(result, further_texts))


def _smallest_saving(selection: Selection, goal: Goal) -> float:
    """Saving of the best candidate over the incumbent that the cases can tell."""
    costs = selection.costs
    rival_costs = costs[costs["competes"] & ~costs.index.isin(FIXED_POLICIES)]
    if rival_costs.empty:
        return nan
    best_rival = str(rival_costs.index[int(np.argmax(rival_costs["gain"].to_numpy()))])
    largest_price = float(metrics.cost_matrix(goal.costs).max()) or 1.0
    return metrics.paired_sizes(selection.gains[best_rival], price=largest_price).smallest.estimate


def _counts(
    study_problem: StudyProblem,
    cases: Cases,
    entry: CompetitionEntry,
    search: Search,
    selection: Selection,
) -> dict[str, int]:
    """Cases, trials and groups that are left out or reduced, see `TuneResult`."""
    splits, trials, groups = study_problem.splits, search.trials, cases.decided.groups
    case_counts: dict[str, int] = {}
    for case_role in ("judged", "tuned")[: 1 + (splits.tuned_on is not splits.judged_on)]:
        trace = splits.judged_on if case_role == "judged" else splits.tuned_on
        case_counts[f"{case_role}_failed"] = failed_count(trace)
        # any answer of such a case counts as correct (rule S6.3)
        case_counts[f"{case_role}_status_only"] = int(trace_status_only(trace).sum())
        case_counts[f"{case_role}_unretrieved"] = unretrieved_count(trace, cases.arm)
        case_counts[f"{case_role}_foreign"] = sum(
            len(foreign_questions(part.loaded()))
            for part in trace_parts(trace)
            if any(is_foreign(case.query, ()) for case in part.cases)  # others are not loaded
        )
    if groups is not None:
        cost_model = (
            selection.policies[COST_RECIPE].decision.model
            if COST_RECIPE in selection.policies
            else None
        )
        n_biased = (
            0 if cost_model is None or cost_model.groups is None else len(cost_model.groups.bias)
        )
        group_sizes = groups.counts()
        case_counts["groups"], case_counts["groups_without_bias"] = (
            len(group_sizes),
            len(group_sizes) - n_biased,
        )
        case_counts["cases_without_group"] = len(groups.names) - sum(group_sizes.values())
    ambiguous = cases.label == Status.ambiguous
    return {
        **case_counts,
        "ambiguous": int(ambiguous.sum()),
        "with_options": int((can_ask(cases.evidence) & ambiguous).sum()),
        "unsplit": splits.unsplit,
        "refitted_on": len(splits.made_of),
        "repeated_questions": len(cases.questions) - int(cases.questions.max()) - 1,
        "trials_not_run": int(study_problem.problem.settings["trials"]) - len(trials),
        "trials_of_others": len(search.study.get_trials(deepcopy=False)) - len(trials),
        "trials_uncompared": int((trials.get(MISSING_ANSWERS, np.zeros(1)) > MAX_MISSING).sum()),
        "candidates_of_less_depth": entry.limited,
    }


def _further_texts(
    study_problem: StudyProblem,
    cases: Cases,
    entry: CompetitionEntry,
    tuned_policy: Policy,
    basis: Basis,
) -> dict[str, str]:
    """Findings of policies and signals on the cases that candidates are made of, by key."""

    def refusals(policy: Policy) -> str:
        decisions = decide_policies(cases.held, [policy], cases.arm)[0]
        return refusal_text(decisions, remedy_text="") or idle_text(decisions, remedy_text="")

    start_policy = study_problem.problem.start
    candidate_doubts = [
        *entry.doubts,
        *(
            f"Candidate {candidate}: {refusal}"
            for candidate, policy in entry.policies.items()
            if (refusal := refusals(policy))
        ),
    ]
    finding_texts = {
        "directions": " ".join(direction_notes(cases.decided)[:1]),
        "candidates": " ".join(candidate_doubts[:1]),
        "start": study_problem.start_note,
    }
    tuning_basis = trace_basis(study_problem.splits.tuned_on)
    if tuning_basis.kind != basis.kind:
        finding_texts["basis"] = (
            f"Costs do not compare: tuned on by {tuning_basis}, judged by {basis}."
        )
    if refusal := refusals(tuned_policy):
        finding_texts["refusals"] = f"In the selected policy {refusal}"
    if tuned_policy.policy_id != start_policy.policy_id and (refusal := refusals(start_policy)):
        finding_texts["start"] = f"In the policy that the study starts from {refusal}"
    return finding_texts


def _with_tuned_cases(policies: Mapping[str, Policy], tuned_on: TraceView) -> dict[str, Policy]:
    """Named policies.

    Those that were made or selected here remember the cases tuned on (rules S6.4, S6.11).
    """
    # A policy that learned nothing from the cases, however it was come by, is judged honestly on

    # any.
    free_ids = {policies[policy_name].policy_id for policy_name in FIXED_POLICIES}
    learned_names = {TUNED, BY_HAND, *RECIPE_NAMES}
    queries = list(chain.from_iterable(trace_queries(tuned_on).values()))
    return {
        policy_name: with_scores_of(with_tuned_cases(policy, queries), tuned_on.meta)
        if policy_name in learned_names and policy.policy_id not in free_ids
        else policy
        for policy_name, policy in policies.items()
    }


def _chain_of_trials(cases: Cases, trial_table: pd.DataFrame) -> Policy:
    """Chain of all cases: the trials that are best on them, then the exact line search."""
    # Trials are judged on all cases tuned on; the cases may be a sample, and without ambiguous ones

    # nothing asks.
    best_trials = trial_table.sort_values(
        ["violation", "expected_cost", "number"], kind="stable"
    ).head(RESCORED)
    tried_policies = trial_policies(
        cases.start, best_trials, None if cases.can_ask else {"gap.enabled": False}
    )
    trial_tally = tally(cases.held, tried_policies, cases.arm)
    is_compared = np.array([shortfall.is_compared for shortfall in trial_tally.missing_answers])
    cell_counts: AnyArray = trial_tally.cells
    if cases.weight is not None:
        outcome_codes = trace_codes(cases.held, tried_policies, cases.arm)
        cell_counts = metrics.weighed_cases(CELL_OF_CODE[outcome_codes], cases.weight).weights
    score_order = np.argsort(
        np.where(is_compared, cases.goal.score(cell_counts), np.inf), kind="stable"
    )
    _, distinct_rows = np.unique(cell_counts[score_order], axis=0, return_index=True)
    start_policies = [
        tried_policies[trial_index] for trial_index in score_order[np.sort(distinct_rows)[:BEST]]
    ]
    return line_search(
        cases.held,
        start_policies,
        chain_paths(cases),
        cases.goal.score,
        cases.defaults,
        cases.arm,
        cases.weight,
    )


class JudgedPolicies(NamedTuple):
    """Decisions of the named policies on the judged cases.

    codes: see `shard_codes`, [P, Q]. basis: of the cases. weight: of each case, where they were
    drawn with several probabilities, [Q].
    """

    policies: Mapping[str, Policy]
    codes: SlotArray
    basis: Basis
    weight: FloatArray | None = None

    @property
    def cells(self) -> dict[str, CodeArray]:
        """Cell of every case by name of the policy, [Q] each."""
        return dict(zip(self.policies, CELL_OF_CODE[self.codes], strict=True))


def _judged_costs(
    selection: Selection, goal: Goal, cases: Cases, judged_policies: JudgedPolicies, *, unseen: bool
) -> tuple[pd.DataFrame, Crossing | None, pd.DataFrame]:
    """Costs plus each candidate policy's result on judged cases, if none of them was tuned on.

    Beside it the crossing of what is selected with the policies without tuning, and `mix_costs`.
    """
    candidate_costs = selection.costs.copy()
    policies = selection.policies
    losses, case_costs, case_labels = (
        selection.losses,
        selection.gains,
        cases.label.astype(np.int64),
    )
    report_costs = [np.nan] * len(policies)
    if unseen:
        cell_prices = metrics.cell_costs(goal.matrix)
        judged_cells = judged_policies.cells
        losses = case_costs = {name: cell_prices[judged_cells[name]] for name in policies}
        case_labels = metrics.LABEL_OF_CELL[judged_cells[TUNED]]
        case_weights = (
            goal.case_weights(case_labels)
            if judged_policies.weight is None
            else judged_policies.weight
        )
        report_costs = [
            float((loss if case_weights is None else case_weights * loss).mean())
            for loss in losses.values()
        ]
    candidate_costs.insert(3, "report", report_costs)
    is_compared = dict(candidate_costs.get("compared", {}))
    selected = selection.selected
    rival_names = [
        rival
        for rival in FIXED_POLICIES
        if policies[rival].policy_id != policies[selected].policy_id
        and is_compared.get(
            rival, True
        )  # of two policies without tuning, one that costs the same of every case is no rival
        and not (
            selected in FIXED_POLICIES and np.array_equal(case_costs[selected], case_costs[rival])
        )
    ]
    cost_crossing = None
    if cases.weight is None and judged_policies.weight is None and rival_names:
        rival_losses = np.stack([losses[rival] for rival in rival_names])
        cost_crossing = crossing(losses[selected], rival_losses, rival_names, case_labels)
    return candidate_costs, cost_crossing, cost_table(losses, case_labels)


def _judged_rates(
    judged_policies: JudgedPolicies, goal: Goal, selection: Selection, *, unseen: bool
) -> pd.DataFrame:
    """Rates of the named policies, a row each, their judging cases, and whether targets are met."""
    policies = judged_policies.policies
    policy_tally = tally_codes(judged_policies.codes, judged_policies.basis)
    weighed_counts = goal.weighings(policy_tally.cells)
    if judged_policies.weight is not None:
        weighed_counts = [
            metrics.weighed_cases(CELL_OF_CODE[judged_policies.codes], judged_policies.weight)
        ]
    policy_rates = rate_table(
        policy_tally, list(policies.values()), costs=goal.costs, weighed_cells=weighed_counts
    )

    # A policy that learned nothing from the cases has the rates that it has, however it was come

    # by.
    free_ids = {policies[policy_name].policy_id for policy_name in FIXED_POLICIES}
    judging_notes = {
        policy_name: AS_GIVEN
        for policy_name in selection.policies
        if policy_name not in (*FIXED_POLICIES, *RECIPE_NAMES)
    }
    judging_notes |= {
        policy_name: AS_IT_IS
        for policy_name in policies
        if policies[policy_name].policy_id in free_ids
    }
    policy_rates.insert(0, "policy", list(policies))
    judged_by = [
        UNSEEN if unseen else judging_notes.get(policy_name, IN_SAMPLE) for policy_name in policies
    ]
    policy_rates.insert(1, "judged_by", judged_by)
    is_compared = np.array([shortfall.is_compared for shortfall in policy_tally.missing_answers])
    target_cells = (
        policy_tally.cells if judged_policies.weight is None else weighed_counts[0].weights
    )
    return policy_rates.assign(met=goal.meets(target_cells) & is_compared)


# trials that are scored on the cases once more, and those the line search starts from
RESCORED = 100
BEST = 5
