"""Judging a study (shore): selection, costs, rates and findings on the judged cases (S6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from raglab.lab.arrays import AnyArray, CodeArray, FloatArray
from raglab.lab.candidates import (
    ANSWER,
    COST,
    DEFAULTS,
    FIXED,
    POOL,
    RECIPES,
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
from raglab.values import Status
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
    of: StudyProblem, cases: Cases, entry: CompetitionEntry, search: Search
) -> TuneResult:
    """The selected policy, made of all cases, on the cases nothing was made of or chosen on."""
    problem, splits = of.problem, of.splits
    arm, trials, goal = problem.settings["arm"], int(problem.settings["trials"]), problem.goal
    tuned_on, judged_on = splits.tuned_on, splits.judged_on
    unseen = judged_on is not tuned_on
    # The cases may be a sample: then trials, judged on all cases, are scored on the sample once
    # more to be compared.
    refit = partial(_chain_of_trials, cases, search.trials)
    chosen = select_candidate(
        build_candidates(cases, entry, refit, min(POOL, trials)), entry.competing, cases
    )
    # what was selected, what it must beat, and the other candidates
    policies = {
        DEFAULTS: of.defaults,
        TUNED: chosen.policies[chosen.selected],
        ANSWER: chosen.policies[ANSWER],
        REFUSE: chosen.policies[REFUSE],
        BY_HAND: of.by_hand,
    }
    policies = _with_tuned_cases(policies | dict(chosen.policies), tuned_on)
    chosen = chosen._replace(policies={name: policies[name] for name in chosen.policies})
    tuned = policies[TUNED]
    # All policies on the same cases at once, which chose none of them where there is a split to
    # judge on.
    view = of.measured(judged_on)
    codes = trace_codes(view, list(policies.values()), arm)
    judged = JudgedPolicies(policies, codes, trace_basis(view), inclusion_weights(view))
    table, crossed, lines = _judged_costs(chosen, goal, cases, judged, unseen=unseen)
    traffic = None if goal.traffic is None else count_cells(judged.cells[TUNED][None])[0]
    roles = reference_roles(table, chosen.selected, chosen.incumbent)
    against = contests(view, policies, roles, arm, goal.costs, goal.mix) if unseen else []
    # An advantage is claimed over the incumbent, and on unseen cases only (rule S6.11).
    gains = (contest.gain for contest in against if contest.reference == chosen.incumbent)
    advantage = None if chosen.selected == chosen.incumbent else next(gains, None)
    selection_settings = {
        "rule": entry.rule,
        "folds": cases.folds,
        "repeats": cases.repeats,
        "competing": ", ".join(entry.competing),
    }
    if cases.decided.groups is not None:
        selection_settings["group"] = cases.decided.groups.attribute
    result = TuneResult(
        policy=tuned,
        selected=chosen.selected,
        incumbent=chosen.incumbent,
        default_policy=of.defaults,
        policies=policies,
        costs=table,
        held_out_estimate=chosen.held_out_estimate,
        advantage=advantage,
        trials=search.trials,
        pareto=pareto_front(search.trials),
        flat_ranges=policy_flat_ranges(cases, tuned),
        judged=_judged_rates(judged, goal, chosen, unseen=unseen),
        tuned_on=tuned_on,
        judged_on=judged_on,
        study=search.study,
        best=search.best,
        settings=problem.settings,
        selection_settings=selection_settings,
        goal=goal,
        basis=str(judged.basis),
        n_certify=splits.n_certify,
        left_out=of.left_out,
        crossing=crossed,
        mix_costs=lines,
        # always-refuse answers nothing, whatever the other gates would say
        dropped=()
        if chosen.selected == REFUSE
        else dropped_gates(problem.start, tuned, gates_off(tuned_on)),
        counts=_counts(of, cases, entry, search, chosen),
        target_excess=max(0.0, chosen.misses) if goal.targets else 0.0,
        contests=tuple(against),
        smallest_saving=_smallest_saving(chosen, goal),
        worst_cost=nan if traffic is None else float(goal.worst_cost(traffic)),
    )
    texts = _further_texts(of, cases, entry, tuned, judged.basis)
    return replace(result, findings=study_findings(result, texts))


def _smallest_saving(chosen: Selection, goal: Goal) -> float:
    """Saving of the best candidate over the incumbent that the cases can tell."""
    costs = chosen.costs
    rivals = costs[costs["competes"] & ~costs.index.isin(FIXED)]
    if rivals.empty:
        return nan
    best = str(rivals.index[int(np.argmax(rivals["gain"].to_numpy()))])
    price = float(metrics.cost_matrix(goal.costs).max()) or 1.0
    return metrics.paired_sizes(chosen.gains[best], price=price).smallest.estimate


def _counts(
    of: StudyProblem, cases: Cases, entry: CompetitionEntry, search: Search, chosen: Selection
) -> dict[str, int]:
    """Cases, trials and groups that are left out or reduced, see `TuneResult`."""
    splits, trials, groups = of.splits, search.trials, cases.decided.groups
    counts: dict[str, int] = {}
    for which in ("judged", "tuned")[: 1 + (splits.tuned_on is not splits.judged_on)]:
        trace = splits.judged_on if which == "judged" else splits.tuned_on
        counts[f"{which}_failed"] = failed_count(trace)
        # any answer of such a case counts as correct (rule S6.3)
        counts[f"{which}_status_only"] = int(trace_status_only(trace).sum())
        counts[f"{which}_unretrieved"] = unretrieved_count(trace, cases.arm)
        counts[f"{which}_foreign"] = sum(
            len(foreign_questions(part.loaded()))
            for part in trace_parts(trace)
            if any(is_foreign(case.query, ()) for case in part.cases)  # others are not loaded
        )
    if groups is not None:
        model = chosen.policies[COST].decision.model if COST in chosen.policies else None
        biased = 0 if model is None or model.groups is None else len(model.groups.bias)
        sizes = groups.counts()
        counts["groups"], counts["groups_without_bias"] = len(sizes), len(sizes) - biased
        counts["cases_without_group"] = len(groups.names) - sum(sizes.values())
    ambiguous = cases.label == Status.ambiguous
    return {
        **counts,
        "ambiguous": int(ambiguous.sum()),
        "with_options": int((can_ask(cases.evidence) & ambiguous).sum()),
        "unsplit": splits.unsplit,
        "refitted_on": len(splits.made_of),
        "repeated_questions": len(cases.questions) - int(cases.questions.max()) - 1,
        "trials_not_run": int(of.problem.settings["trials"]) - len(trials),
        "trials_of_others": len(search.study.get_trials(deepcopy=False)) - len(trials),
        "trials_uncompared": int((trials.get(MISSING_ANSWERS, np.zeros(1)) > MAX_MISSING).sum()),
        "candidates_of_less_depth": entry.limited,
    }


def _further_texts(
    of: StudyProblem, cases: Cases, entry: CompetitionEntry, tuned: Policy, basis: Basis
) -> dict[str, str]:
    """Findings of policies and signals on the cases that candidates are made of, by key."""

    def refusals(policy: Policy) -> str:
        decisions = decide_policies(cases.held, [policy], cases.arm)[0]
        return refusal_text(decisions, remedy="") or idle_text(decisions, remedy="")

    start = of.problem.start
    doubts = [
        *entry.doubts,
        *(
            f"Candidate {name}: {text}"
            for name, policy in entry.policies.items()
            if (text := refusals(policy))
        ),
    ]
    texts = {
        "directions": " ".join(direction_notes(cases.decided)[:1]),
        "candidates": " ".join(doubts[:1]),
        "start": of.start_note,
    }
    tuned_by = trace_basis(of.splits.tuned_on)
    if tuned_by.kind != basis.kind:
        texts["basis"] = f"Costs do not compare: tuned on by {tuned_by}, judged by {basis}."
    if text := refusals(tuned):
        texts["refusals"] = f"In the selected policy {text}"
    if tuned.policy_id != start.policy_id and (text := refusals(start)):
        texts["start"] = f"In the policy that the study starts from {text}"
    return texts


def _with_tuned_cases(policies: Mapping[str, Policy], tuned_on: TraceView) -> dict[str, Policy]:
    """Named policies.

    Those that were made or selected here remember the cases tuned on (rules S6.4, S6.11).
    """
    # A policy that learned nothing from the cases, however it was come by, is judged honestly on
    # any.
    fixed = {policies[name].policy_id for name in FIXED}
    learned = {TUNED, BY_HAND, *RECIPES}
    queries = list(chain.from_iterable(trace_queries(tuned_on).values()))
    return {
        name: with_scores_of(with_tuned_cases(policy, queries), tuned_on.meta)
        if name in learned and policy.policy_id not in fixed
        else policy
        for name, policy in policies.items()
    }


def _chain_of_trials(cases: Cases, table: pd.DataFrame) -> Policy:
    """Chain of all cases: the trials that are best on them, then the exact line search."""
    # Trials are judged on all cases tuned on; the cases may be a sample, and without ambiguous ones
    # nothing asks.
    first = table.sort_values(["violation", "expected_cost", "number"], kind="stable").head(
        RESCORED
    )
    tried = trial_policies(cases.start, first, None if cases.can_ask else {"gap.enabled": False})
    counted = tally(cases.held, tried, cases.arm)
    compared = np.array([shortfall.is_compared for shortfall in counted.missing_answers])
    cells: AnyArray = counted.cells
    if cases.weight is not None:
        codes = trace_codes(cases.held, tried, cases.arm)
        cells = metrics.weighed_cases(CELL_OF_CODE[codes], cases.weight).weights
    order = np.argsort(np.where(compared, cases.goal.score(cells), np.inf), kind="stable")
    _, distinct = np.unique(cells[order], axis=0, return_index=True)
    best = [tried[place] for place in order[np.sort(distinct)[:BEST]]]
    return line_search(
        cases.held,
        best,
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
    codes: NDArray[np.int16]
    basis: Basis
    weight: FloatArray | None = None

    @property
    def cells(self) -> dict[str, CodeArray]:
        """Cell of every case by name of the policy, [Q] each."""
        return dict(zip(self.policies, CELL_OF_CODE[self.codes], strict=True))


def _judged_costs(
    chosen: Selection, goal: Goal, cases: Cases, judged: JudgedPolicies, *, unseen: bool
) -> tuple[pd.DataFrame, Crossing | None, pd.DataFrame]:
    """Costs plus each candidate policy's result on judged cases, if none of them was tuned on.

    Beside it the crossing of what is selected with the policies without tuning, and `mix_costs`.
    """
    table, policies = chosen.costs.copy(), chosen.policies
    losses, costs, label = chosen.losses, chosen.gains, cases.label.astype(np.int64)
    report = [np.nan] * len(policies)
    if unseen:
        price, cells = metrics.cell_costs(goal.matrix), judged.cells
        losses = costs = {name: price[cells[name]] for name in policies}
        label = metrics.LABEL_OF_CELL[cells[TUNED]]
        by = goal.case_weights(label) if judged.weight is None else judged.weight
        report = [float((loss if by is None else by * loss).mean()) for loss in losses.values()]
    table.insert(3, "report", report)
    compared, selected = dict(table.get("compared", {})), chosen.selected
    free = [
        rival
        for rival in FIXED
        if policies[rival].policy_id != policies[selected].policy_id
        and compared.get(rival, True)
        # of two policies without tuning, one that costs the same of every case is no rival
        and not (selected in FIXED and np.array_equal(costs[selected], costs[rival]))
    ]
    crossed = None
    if cases.weight is None and judged.weight is None and free:
        rivals = np.stack([losses[rival] for rival in free])
        crossed = crossing(losses[selected], rivals, free, label)
    return table, crossed, cost_table(losses, label)


def _judged_rates(
    judged: JudgedPolicies, goal: Goal, chosen: Selection, *, unseen: bool
) -> pd.DataFrame:
    """Rates of the named policies, a row each, their judging cases, and whether targets are met."""
    policies, counted = judged.policies, tally_codes(judged.codes, judged.basis)
    weighed = goal.weighings(counted.cells)
    if judged.weight is not None:
        weighed = [metrics.weighed_cases(CELL_OF_CODE[judged.codes], judged.weight)]
    table = rate_table(counted, list(policies.values()), costs=goal.costs, weighed=weighed)
    # A policy that learned nothing from the cases has the rates that it has, however it was come
    # by.
    fixed = {policies[name].policy_id for name in FIXED}
    provenance = {name: AS_GIVEN for name in chosen.policies if name not in (*FIXED, *RECIPES)}
    provenance |= {name: AS_IT_IS for name in policies if policies[name].policy_id in fixed}
    table.insert(0, "policy", list(policies))
    judged_by = [UNSEEN if unseen else provenance.get(name, IN_SAMPLE) for name in policies]
    table.insert(1, "judged_by", judged_by)
    compared = np.array([shortfall.is_compared for shortfall in counted.missing_answers])
    cells = counted.cells if judged.weight is None else weighed[0].weights
    return table.assign(met=goal.meets(cells) & compared)


# trials that are scored on the cases once more, and those the line search starts from
RESCORED, BEST = 100, 5
