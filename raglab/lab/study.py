"""The study (shore): `tune` thresholds and switches by Optuna, judged on new cases (S6.4, S6.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from raglab import metrics
from raglab.decision.inclusion import PROBABILITY_KEY, case_weights
from raglab.decision.learned_cases import trace_queries
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured, answered_traces
from raglab.lab.answer_basis import with_basis
from raglab.lab.candidates import CROSS_FIT_FOLDS, CROSS_FIT_REPEATS, Cases
from raglab.lab.competition import CandidateNames, check_competition, competition
from raglab.lab.decision_fitting import decision_cases
from raglab.lab.goals import Goal
from raglab.lab.group_fitting import CaseGroups, check_groups
from raglab.lab.search_space import (
    SearchRange,
    check_space,
    full_space,
    left_out,
    own_trial,
    search_ranges,
)
from raglab.lab.study_cases import study_goal, study_splits
from raglab.lab.study_judging import StudyProblem, judged_result
from raglab.lab.study_result import TuneResult
from raglab.lab.trial_search import Problem, check_search, open_study, quiet_optuna, run_search
from raglab.lab.untuned_policies import (
    always_answer,
    limit_depth,
    manual_loop,
    published_policy,
    starting_note,
    starting_policy,
)
from raglab.store.case_labels import question_numbers
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace

if TYPE_CHECKING:
    import pandas as pd


SamplerName = Literal["nsga2", "tpe", "random"]
RuleName = Literal["expected_cost", "expected cost", "chain"]


@answered_traces("trace")
def tune(
    trace: StudyTrace,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    rule: RuleName = "expected_cost",
    candidates: CandidateNames = (),
    group: str | None = None,
    folds: int = CROSS_FIT_FOLDS,
    repeats: int = CROSS_FIT_REPEATS,
    trials: int = 1000,
    sampler: SamplerName = "nsga2",
    batch_size: int = 50,
    seed: int = 0,
    goal: Goal | None = None,
    basis: str | None = None,
    space: Mapping[str, SearchRange | tuple[float, float]] | None = None,
    storage: str | Path | None = None,
    study_name: str | None = None,
    on_trials: Callable[[pd.DataFrame], bool | None] | None = None,
) -> TuneResult:
    """Find the policy of least expected cost on the split `tune`, judge it on the split `report`.

    A candidate competes with always-answer, always-refuse and the default policy: the decision by
    expected cost, or with `rule="chain"` the published chain, whose thresholds Optuna tunes.
    Cross-fitted losses decide whether it replaces the best of the three (`raglab.lab.selection`).
    The best single threshold and the best chain are shown too; the Optuna study of the chain runs
    in any case.

    Args:
      trace: without splits all cases are tuned on, and the result gives the nested estimate.
      policy: where the search starts, and whose patterns it keeps; `starting_policy` of the trace
        where not given.
      arm: of the trace; the first where not given.
      rule: `expected_cost` (or `expected cost`) or `chain`. Where some label that occurs has fewer
        than 10 cases, or a fold could not fit the model, the family of single thresholds competes
        instead of the decision by expected cost.
      candidates: further competitors: `one threshold`, `chain` or `expected cost`, with blank or
        underscore, or policies, by name where given as a mapping. None may be fitted or tuned on
        these cases; a policy that was tuned by hand on them goes unnoticed.
      group: attribute of the cases, such as `tenant`: the decision by expected cost is fitted with
        a bias for each group, see `raglab.fit_decision`, and competes with it; the other candidates
        have no groups.
      folds: of the cross-fit, from 2.
      repeats: divisions of the cases into folds, from 1.
      trials: configurations of the chain tried before its line search.
      sampler: of Optuna.
      batch_size: configurations proposed and replayed together.
      seed: of folds, search and resamples.
      goal: costs and targets.
      basis: what says whether a recorded answer is right, `answer_right`, `judge_right` or `text`;
        the first at hand where not given (rule S6.3, see `with_basis`).
      space: path -> range or (low, high), of what can decide on these cases; `full_space` where not
        given.
      storage: where Optuna stores the trials: a folder (a journal file in it), or the URL of a
        database. There a study continues; one that was killed ends with the same result. Trials
        of others in it stay; they are counted, not read.
      study_name: in the storage; made of corpus and settings where not given, so that no study
        meets another.
      on_trials: takes the rows of each batch of trials, as in `TuneResult.trials`; what returns
        False ends the search.

    Raises:
      ValueError: unknown rule, candidate or sampler, trials below 1, folds below 2, a range that is
        none or of what decides nothing, a case without a label, a candidate that cannot be made of
        these cases or was fitted on them, a group that no case states or with the rule chain, or
        a storage that cannot be opened or holds a study of another search under this name.

    Source: rules S2.19, S2.20, S6.2, S6.4, S6.5, S6.7, S6.8.

    Example: `raglab.tune(trace, rule="chain", storage="out/study").best.params`
    """
    plain_rule, candidate_policies = check_competition(rule, candidates, folds, repeats, group)
    trace = trace if basis is None else with_basis(trace, basis)
    study_problem = search_problem(
        trace,
        policy=policy,
        arm=arm,
        trials=trials,
        sampler=sampler,
        batch_size=batch_size,
        seed=seed,
        goal=goal,
        space=space,
    )
    if storage is not None:  # one that cannot be used is refused before shards are measured
        with quiet_optuna():
            open_study(
                storage, study_name or study_problem.problem.name, study_problem.problem.settings
            )
    cases = _measured_cases(study_problem, folds, repeats, group)
    queries_by_split = trace_queries(trace) if candidate_policies else None
    # before the search: what cannot compete is said at once
    entry = competition(cases, plain_rule, candidate_policies, queries_by_split)
    with study_problem.measured(study_problem.splits.tuned_on).measured_once(
        study_problem.problem.start, arm
    ) as replayed:
        problem = study_problem.problem._replace(trace=replayed)
        search = run_search(problem, storage=storage, study_name=study_name, on_trials=on_trials)
    return judged_result(study_problem, cases, entry, search)


def search_problem(
    trace: StudyTrace,
    *,
    policy: Policy | None,
    arm: str | None,
    trials: int,
    sampler: SamplerName,
    batch_size: int,
    seed: int,
    goal: Goal | None,
    space: Mapping[str, SearchRange | tuple[float, float]] | None,
) -> StudyProblem:
    """The search that `tune` makes of the same arguments.

    Args: see `tune`.
    """
    # before a trace is read
    check_search({"trials": trials, "batch_size": batch_size, "sampler": sampler})
    start_policy = limit_depth(
        policy if policy is not None else starting_policy(trace, arm=arm), trace
    ).replace("decision.rule", "chain")
    splits = study_splits(trace, seed)
    whole_goal, case_weight = study_goal(goal or Goal(), splits)
    measured_cases = Measured(splits.made_of)
    if space is None:
        searched_ranges = full_space(measured_cases, start_policy, arm=arm)
    else:
        searched_ranges = search_ranges(space)
        check_space(
            measured_tables(measured_cases, start_policy, arm).evidence,
            start_policy,
            searched_ranges,
        )
    default_policy = limit_depth(published_policy(start_policy), trace)
    manual_policy = manual_loop(measured_cases, default_policy, arm)
    # Whatever changes a draw or a judgement goes in: a stored study is known by these settings.
    settings: dict[str, Any] = {
        "arm": arm,
        "trials": trials,
        "sampler": sampler,
        "batch_size": batch_size,
        "seed": seed,
        "targets": dict(whole_goal.targets),
        "costs": metrics.stated_costs(whole_goal.matrix),
        "min_coverage": whole_goal.min_coverage,
        "max_over_ask": whole_goal.max_over_ask,
        "start": start_policy.policy_id,
        "trace": trace.fingerprint,
        "space": {path: list(search_range[:2]) for path, search_range in searched_ranges.items()},
    }
    if case_weight is not None:
        settings["weighed"] = PROBABILITY_KEY
    if whole_goal.traffic is not None:
        settings["mix"] = [list(corner) for corner in whole_goal.traffic.corners]
    # The search begins with every policy that it will be compared with and that can lead anywhere,
    # so that it loses to none of them on the cases it sees.
    initial_policies = {
        initial_policy.policy_id: initial_policy
        for initial_policy in (
            start_policy,
            default_policy,
            manual_policy,
            always_answer(start_policy),
        )
    }
    first_trials = [
        own_trial(initial_policy, searched_ranges) for initial_policy in initial_policies.values()
    ]
    problem = Problem(
        splits.tuned_on,
        start_policy,
        searched_ranges,
        whole_goal,
        first_trials,
        settings,
        case_weight,
    )
    start_note = starting_note(start_policy) if policy is None else ""
    unsearched_paths = left_out(start_policy, searched_ranges) if space is None else ()
    return StudyProblem(
        splits, measured_cases, problem, default_policy, manual_policy, start_note, unsearched_paths
    )


def _measured_cases(
    study_problem: StudyProblem, folds: int, repeats: int, group_attribute: str | None
) -> Cases:
    """Cases that candidates are made of, measured once.

    With their groups where the decision is to have them.
    """
    problem, trace = study_problem.problem, study_problem.held.trace
    arm, start_policy, seed = problem.settings["arm"], problem.start, int(problem.settings["seed"])
    if len(trace) < 2:
        msg = f"a study needs at least 2 cases to tune on, got {len(trace)}; label more."
        raise ValueError(msg)
    evidence = measured_tables(study_problem.held, start_policy, arm).evidence
    case_groups = None if group_attribute is None else CaseGroups.of(trace.cases, group_attribute)
    case_weight = case_weights(trace.cases)
    check_groups(case_groups, case_weight)
    return Cases(
        held=study_problem.held,
        arm=arm,
        start=start_policy,
        defaults=study_problem.defaults,
        goal=problem.goal,
        evidence=evidence,
        decided=decision_cases(evidence)._replace(groups=case_groups, weight=case_weight),
        space=problem.space,
        questions=question_numbers(trace.cases),
        seed=seed,
        folds=folds,
        repeats=repeats,
        weight=case_weight,
    )
