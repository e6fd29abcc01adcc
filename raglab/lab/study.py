"""The study (shore): `tune` thresholds and switches by Optuna, judged on new cases (S6.4, S6.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import MAX_MISSING, SOURCES, Basis
from raglab.decision.inclusion import PROBABILITY, case_weights, inclusion_weights
from raglab.decision.learned_cases import IN_SAMPLE, trace_queries, with_scores_of, with_tuned_cases
from raglab.decision.measurement import gates_off, measured_tables
from raglab.decision.outcome_codes import CELL_OF_CODE, tally_codes
from raglab.decision.refusal_warnings import idle_text, refusal_text
from raglab.decision.scoring import (
    trace_basis,
    trace_status_only,
    unretrieved_count,
)
from raglab.decision.trace_view import (
    Measured,
    TraceView,
    answered_traces,
    failed_count,
    held_trace,
)
from raglab.extension_points import extensions, missing, public
from raglab.lab.answer_basis import with_basis
from raglab.lab.candidates import (
    ANSWER,
    COST,
    DEFAULTS,
    FIXED,
    FOLDS,
    POOL,
    RECIPES,
    REFUSE,
    REPEATS,
    Cases,
    chain_paths,
    count_cells,
)
from raglab.lab.comparison import PolicyContest, StudyOutcome, contests, reference_roles
from raglab.lab.competition import (
    BY_HAND,
    TUNED,
    CandidateNames,
    CompetitionEntry,
    build_candidates,
    check_competition,
    competition,
)
from raglab.lab.decision_fitting import decision_cases, direction_notes
from raglab.lab.dropped_gates import dropped_gates
from raglab.lab.findings import notes_of, study_findings
from raglab.lab.group_fitting import CaseGroups, check_groups
from raglab.lab.paired_differences import Advantage
from raglab.lab.search_space import (
    Goal,
    SearchRange,
    always_answer,
    check_space,
    full_space,
    left_out,
    limit_depth,
    line_search,
    manual_loop,
    own_trial,
    published_policy,
    search_ranges,
    starting_note,
    starting_policy,
)
from raglab.lab.selection import Selection, policy_flat_ranges, select_candidate
from raglab.lab.study_cases import (
    Splits,
    candidate_cases,
    study_goal,
    study_splits,
)
from raglab.lab.trial_search import (
    MISSING,
    Problem,
    Search,
    check_search,
    open_study,
    pareto_front,
    quiet_optuna,
    run_search,
    trial_policies,
)
from raglab.metrics.crossings import Crossing, cost_table, crossing
from raglab.policy import told_value
from raglab.replay import decide_policies, rate_table, tally, trace_codes
from raglab.store.case_labels import question_numbers
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace, Trace
from raglab.words.html_display import short
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification_words import Certification


_COST = ("expected_cost", "expected_cost_low", "expected_cost_high")
SamplerName = Literal["nsga2", "tpe", "random"]
RuleName = Literal["expected_cost", "expected cost", "chain"]
UNSEEN, AS_IT_IS = "unseen cases", "fixed policy"  # by which cases a policy is judged
AS_GIVEN = "as given, origin unknown"  # a policy of the user, on the cases tuned on
# What a room draws of a study at the point `study_page.<name>`: cases, tuned and default policy,
# goal, arm -> HTML.
StudyPage = Callable[[Trace, Policy, Policy, Goal, str], str]


@dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """Outcome of a study.

    Attributes:
      policy: of the selected candidate, made of all cases of split `tune`.
      selected: name of the candidate that was selected.
      incumbent: name of the best of always-answer, always-refuse and the default policy, which a
        candidate must beat.
      default_policy: the thresholds of the source documents.
      policies: name -> policy of every row of `comparison`: `defaults`, `tuned` (that was
        selected), `always-answer`, `always-refuse`, `manual-loop` (the default policy with all
        thresholds moved one step at a time, looser while too much is refused, else tighter while
        too many answers are wrong, see `manual_loop`: a baseline that is never selected), and every
        candidate by its own name.
      costs: a row a candidate. `competes`: whether it could be selected. Expected cost `in_sample`,
        `cross_validated` (by versions that never saw the case; the best of several, so that it is a
        little low) and on the judged cases (`report`, NaN where these are the cases tuned on).
        `gain` and `std_error`: mean saving of a case over the incumbent, the pseudo-case of rule
        S6.8 included. `crossing`: share of ok in traffic above which a policy without tuning costs
        less, NaN where none does (rule S6.15). `coverage`, `over_ask` and `meets_targets`,
        cross-fitted; `policy_id`.
      held_out_estimate: nested estimate of the expected cost, on new cases, of what is selected:
        the selection made again on resampled cross-fitted losses, and at least the cross-fitted
        cost of what is selected. The headline where no case was kept from the choice.
      advantage: saving of the selected policy over the incumbent on the judged cases, with a 95 %
        interval; None where these were tuned on, or where the incumbent itself is selected.
      trials: a row a trial of the chain's search (values tried, rates, expected cost, `violation`:
        by how much targets are missed in sum, policy_id; where cases are judged by text
        `missing_answers`, the share of a trial's answers that is not recorded).
      pareto: the trials that no other beats in cost and coverage.
      flat_ranges: flat range of each threshold of `policy`, in which it may move at no cost.
      judged: policies × everything counted on the judged cases, see `comparison` and `rates`.
      findings: what the study says of itself, a row a finding: `key`, `applies`, `text`, from the
        most to the least important; the first are `use`, `shown` and `missing`.
      counts: numbers of cases that `judged` and `tuned` on `failed`, have `status_only` for a basis
        or expect sources that no hit has (`unretrieved`); cases without a split (`unsplit`); cases
        that candidates, costs, flat ranges and cockpit are of (`refitted_on`, at most 20,000 of
        those tuned on, drawn by label); trials not run or not compared; candidates judged at a
        smaller depth than theirs; groups, those without a bias and cases that state none.
      tuned_on: trace of the cases that were tuned on.
      judged_on: trace of the cases that were judged on.
      study: Optuna's own, for its plots and dashboards: trials by the paths that they set,
        objectives named, targets as constraints. Plots of one objective take `target=lambda trial:
        trial.values[0], target_name="expected_cost"`.
      best: Optuna's trial that meets all targets at the least expected cost; where none meets them,
        the nearest.
      settings: that identify this study in storage and tracker; `trace` is the id of the whole
        trace.
      selection_settings: `rule`, `folds`, `repeats` and the names that compete.
      goal: costs and targets.
      basis: of the cases judged on (rule S6.3); a policy that lacks too many recorded answers is
        not compared.
      n_certify: answerable cases of split certify, which the study does not read; None where there
        is no such split.
      crossing: shares of ok in traffic between which the selected policy costs less than each
        policy without tuning; None where the cases cannot tell, or were drawn with several
        probabilities.
      mix_costs: cost of a case that is ok, and of the others, a row a candidate: the ends of its
        line in `raglab.displays.MixDisplay`.
      left_out: thresholds and switches that the search of the chain left out, since they decide
        nothing on these cases.
      contests: of the selected policy with each that it must beat, on the judged cases; none where
        these were tuned on.
      dropped: gates that act where the study starts and not in `policy` (rule S6.8).
      target_excess: by how much the selected candidate misses the targets in sum when cross-fitted,
        each rate one standard error worse.
      smallest_saving: of the best candidate over the incumbent, that so many cases can tell when
        cross-fitted (paired test, 80 % power, rule S6.12).
      worst_cost: expected cost on the judged cases at the worst mix inside the stated one.
    """

    policy: Policy
    selected: str
    incumbent: str
    default_policy: Policy
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    held_out_estimate: float
    advantage: Advantage | None
    trials: pd.DataFrame
    pareto: pd.DataFrame
    flat_ranges: pd.DataFrame
    judged: pd.DataFrame
    tuned_on: StudyTrace
    judged_on: StudyTrace
    study: Any
    best: Any
    settings: Mapping[str, Any]
    selection_settings: Mapping[str, Any]
    goal: Goal
    basis: str = SOURCES
    n_certify: int | None = None
    left_out: tuple[str, ...] = ()
    crossing: Crossing | None = None
    mix_costs: pd.DataFrame | None = None
    contests: tuple[PolicyContest, ...] = ()
    dropped: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    target_excess: float = 0.0
    smallest_saving: float = nan
    worst_cost: float = nan
    findings: pd.DataFrame | None = None

    TABLE: ClassVar[str] = "judged"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to use, whether that is shown, what is missing, and at most two further notes."""
        return () if self.findings is None else notes_of(self.findings)

    @property
    def unseen(self) -> bool:
        """Whether the judged cases are not those that were tuned on."""
        return self.judged_on is not self.tuned_on

    @property
    def outcome(self) -> StudyOutcome:
        """What the study says of its policies, for reports and comparisons."""
        fitted = tuple(self.judged.loc[self.judged["judged_by"] == IN_SAMPLE, "policy"])
        return StudyOutcome(
            self.selected,
            self.incumbent,
            self.costs,
            self.held_out_estimate,
            self.unseen,
            fitted,
            self.n_certify,
            crossing=self.crossing,
            mix_costs=self.mix_costs,
            contests=self.contests,
            findings=self.findings,
        )

    @property
    def comparison(self) -> pd.DataFrame:
        """The named `policies` on the judged cases, in few columns; the rest by `rates`.

        `policy`, `judged_by` (unseen cases; where there are none a fixed policy, or in sample, not
        comparable), `expected_cost` with `_low` and `_high`, the rates of the goal's targets beside
        coverage, over-ask and missed ambiguity, `pass_rate`; with targets `met`: whether all are
        met by a policy that answers (rule S6.9).
        """
        rates = ("coverage", "over_ask_rate", "missed_ambiguity_rate")
        names = [name for name in self.goal.targets if name not in {*rates, "pass_rate"}]
        met = ["met"] if self.goal.targets else []
        return self.judged[["policy", "judged_by", *_COST, *names, *rates, "pass_rate", *met]]

    def rates(self) -> pd.DataFrame:
        """Named policies on the judged cases: every rate, with `_k`, `_n`, `_low` and `_high`."""
        return self.judged

    def changed(self, before: str = DEFAULTS, after: str = "tuned") -> pd.DataFrame:
        """Judged cases that two of the policies decide otherwise, see `Decisions.changed`.

        Args:
          before: name of one of `policies`; the default policy where not given.
          after: name of one of `policies`; the selected one where not given.

        Raises:
          KeyError: no such policy.
        """
        chosen = [self.policies[name] for name in (before, after)]
        decisions_before, decisions_after = decide_policies(
            self.judged_on, chosen, self.settings["arm"]
        )
        return decisions_before.changed(decisions_after)

    def _summary(self) -> Summary:
        """What was selected, its cost; policies judged, candidates, changes, what is left out."""
        import pandas as pd

        nested = f"{self.held_out_estimate:.3f} on new cases (nested estimate)"
        policies = self.comparison.set_index("policy")
        row = policies.loc[TUNED]
        unseen = f"{row['expected_cost']:.3f} on {len(self.judged_on):,} unseen cases"
        met = row["met"] if self.unseen and self.goal.targets else self.target_excess == 0.0
        facts = [
            ("selected", short(self.selected)),
            ("policy", self.policy.policy_id),
            ("expected cost", unseen if self.unseen else nested),
            ("basis", self.basis),
            ("trials", f"{len(self.trials):,}"),
        ]
        facts += [("targets", "met" if met else "not met")] * bool(self.goal.targets)
        # An interval around a cost in sample would lend certainty to a number that flatters.
        policies.loc[policies["judged_by"] == IN_SAMPLE, list(_COST[1:])] = np.nan
        changes = [
            (path, told_value(before), told_value(after))
            for path, (after, before) in self.policy.diff(self.default_policy).items()
        ]
        counts = {name: count for name, count in self.counts.items() if count}
        # cases that are left out or unused, and those of which any answer counts as correct
        headline = ("judged_failed", "judged_status_only", "unsplit")
        facts += [(name, f"{counts[name]:,}") for name in headline if name in counts]
        return Summary(
            facts,
            {
                "judged policies": policies.reset_index(),
                "candidates": self.costs.reset_index(),
                "changes": pd.DataFrame(changes, columns=["path", "default", "tuned"]),
                "counts": pd.DataFrame(counts.items(), columns=["what", "number"]),
                "left out of the search": pd.DataFrame({"path": self.left_out}),
            },
            self.notes,
            "Result of a study",
        )

    def report(self, path: str | Path, *, certification: Certification | None = None) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases.

        It includes the `cockpit` if there is one.

        Args:
          path: of the HTML file.
          certification: of the selected policy, from `certify_policy`: the page shows its promise,
            or that it failed. Without it the page knows of no promise, for a study reads no split
            `certify`.

        Raises:
          ValueError: a certification of another policy or arm.

        Example:
          `result.report("report.html", certification=raglab.certify_policy(trace, result.policy,
          targets=goal))`
        """
        policies, failed = self._certified_policies(certification)
        frozen = self.cockpit_page()
        notes = []
        if frozen is None:
            notes.append("The page has no cockpit: raglab/extensions/cockpit is not installed.")
        if (n := self.counts["refitted_on"]) < len(self.tuned_on):
            which = f"{n:,} of the {len(self.tuned_on):,} cases tuned on, drawn by label"
            notes.append(f"Candidates, cross-fitted costs, flat ranges and cockpit are of {which}.")
        page: Path = public("write_report")(
            self.judged_on,
            policies,
            out=path,
            arm=self.settings["arm"],
            flat_ranges=self.flat_ranges,
            trials=self.trials,
            notes=notes,
            study=self.outcome._replace(failed=failed),
            costs=self.goal.costs,
            targets=self.goal.targets,
            min_coverage=self.goal.min_coverage,
            max_over_ask=self.goal.max_over_ask,
            mix=self.goal.mix,
            trace_id=self.settings["trace"],
            cockpit=frozen,
        )
        return page

    def _certified_policies(
        self, certification: Certification | None
    ) -> tuple[Mapping[str, Policy], Certification | None]:
        """Named policies, the selected one with its certificate; the certification if it failed."""
        if certification is None:
            return self.policies, None
        own, certified = self.policy.policy_id, certification.policy
        # Of a sequence the table lists candidates after the first that fails too, which were not
        # tested.
        table, without_look = certification.table, not certification.certificate.looks
        tested = [*table["policy_id"][table["tested"] | without_look]]
        if own not in (tested if certified is None else [certified.policy_id]):
            msg = f"certification must be of the selected policy {own}; use raglab.write_report."
            raise ValueError(msg)
        if certified is None:
            return self.policies, certification
        arm = (certified.certificate or {}).get("arm")
        own_arm = self.settings["arm"] or self.judged_on.arms[0]
        if arm != own_arm:
            msg = f"certification must be of arm {own_arm}, got {arm}; certify arm={own_arm!r}."
            raise ValueError(msg)
        return {
            name: certified if policy.policy_id == own else policy
            for name, policy in self.policies.items()
        }, None

    def cockpit(self) -> str:
        """HTML page of tuned against default policy, with thresholds that move without a kernel.

        It shows the cases that were tuned on, of more than 20,000 the sample that candidates were
        made of: those it was judged on are no place to choose a threshold.

        Raises:
          MissingExtensionError: the room `cockpit` is not installed.
        """
        page = self.cockpit_page()
        return missing("TuneResult.cockpit", "cockpit") if page is None else page

    def cockpit_page(self) -> str | None:
        """`cockpit`; None where its room is not installed.

        A report and a run are then without it.
        """
        frozen_page: StudyPage | None = extensions("study_page").get("cockpit")
        if frozen_page is None:
            return None
        shown = candidate_cases(self.tuned_on, int(self.settings["seed"]))
        return frozen_page(shown, self.policy, self.default_policy, self.goal, self.settings["arm"])


@answered_traces("trace")
def tune(
    trace: StudyTrace,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    rule: RuleName = "expected_cost",
    candidates: CandidateNames = (),
    group: str | None = None,
    folds: int = FOLDS,
    repeats: int = REPEATS,
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
        that you ran or queued in it with Optuna are judged too, in addition to those of `trials`.
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
    rule, named = check_competition(rule, candidates, folds, repeats, group)
    trace = trace if basis is None else with_basis(trace, basis)
    of = search_problem(
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
            open_study(storage, study_name or of.problem.name, of.problem.settings)
    cases = _measured_cases(of, folds, repeats, group)
    by_split = trace_queries(trace) if named else None
    # before the search: what cannot compete is said at once
    entry = competition(cases, rule, named, by_split)
    with of.measured(of.splits.tuned_on).measured_once(of.problem.start, arm) as replayed:
        problem = of.problem._replace(trace=replayed)
        search = run_search(problem, storage=storage, study_name=study_name, on_trials=on_trials)
    return _judged_result(of, cases, entry, search)


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
    start = limit_depth(
        policy if policy is not None else starting_policy(trace, arm=arm), trace
    ).replace("decision.rule", "chain")
    splits = study_splits(trace, seed)
    wanted, weight = study_goal(goal or Goal(), splits)
    held = Measured(splits.made_of)
    if space is None:
        ranges = full_space(held, start, arm=arm)
    else:
        ranges = search_ranges(space)
        check_space(measured_tables(held, start, arm).evidence, start, ranges)
    defaults = limit_depth(published_policy(start), trace)
    by_hand = manual_loop(held, defaults, arm)
    # Whatever changes a draw or a judgement goes in: a stored study is known by these settings.
    settings: dict[str, Any] = {
        "arm": arm,
        "trials": trials,
        "sampler": sampler,
        "batch_size": batch_size,
        "seed": seed,
        "targets": dict(wanted.targets),
        "costs": metrics.stated_costs(wanted.matrix),
        "min_coverage": wanted.min_coverage,
        "max_over_ask": wanted.max_over_ask,
        "start": start.policy_id,
        "trace": trace.fingerprint,
        "space": {path: list(extent[:2]) for path, extent in ranges.items()},
    }
    if weight is not None:
        settings["weighed"] = PROBABILITY
    if wanted.traffic is not None:
        settings["mix"] = [list(corner) for corner in wanted.traffic.corners]
    # The search begins with every policy that it will be compared with and that can lead anywhere,
    # so that it loses to none of them on the cases it sees.
    begins = {
        initial_policy.policy_id: initial_policy
        for initial_policy in (start, defaults, by_hand, always_answer(start))
    }
    first = [own_trial(initial_policy, ranges) for initial_policy in begins.values()]
    problem = Problem(splits.tuned_on, start, ranges, wanted, first, settings, weight)
    start_note = starting_note(start) if policy is None else ""
    unsearched = left_out(start, ranges) if space is None else ()
    return StudyProblem(splits, held, problem, defaults, by_hand, start_note, unsearched)


def _judged_result(
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
    outcome = StudyOutcome(chosen.selected, chosen.incumbent, table, nan, unseen)
    roles, by = reference_roles(outcome), (arm, goal.costs, goal.mix)
    against = contests(view, policies, roles, *by) if unseen else []
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
    splits, arm, trials = of.splits, cases.arm, search.trials
    traces = {"judged": splits.judged_on}
    if splits.tuned_on is not splits.judged_on:
        traces["tuned"] = splits.tuned_on
    counts: dict[str, int] = {}
    for which, trace in traces.items():
        counts[f"{which}_failed"] = failed_count(trace)
        # any answer of such a case counts as correct (rule S6.3)
        counts[f"{which}_status_only"] = int(trace_status_only(trace).sum())
        counts[f"{which}_unretrieved"] = unretrieved_count(trace, arm)
    uncompared = trials[MISSING] > MAX_MISSING if MISSING in trials else np.zeros(0)
    groups = cases.decided.groups
    if groups is not None:
        model = chosen.policies[COST].decision.model if COST in chosen.policies else None
        biased = 0 if model is None or model.groups is None else len(model.groups.bias)
        sizes = groups.counts()
        counts["groups"], counts["groups_without_bias"] = len(sizes), len(sizes) - biased
        counts["cases_without_group"] = len(groups.names) - sum(sizes.values())
    return {
        **counts,
        "unsplit": splits.unsplit,
        "refitted_on": len(splits.made_of),
        "repeated_questions": len(cases.questions) - int(cases.questions.max()) - 1,
        "trials_not_run": max(0, int(of.problem.settings["trials"]) - search.proposed),
        "trials_uncompared": int(uncompared.sum()),
        "candidates_of_less_depth": entry.limited,
    }


def _further_texts(
    of: StudyProblem, cases: Cases, entry: CompetitionEntry, tuned: Policy, basis: Basis
) -> dict[str, str]:
    """Findings of policies and signals on the cases that candidates are made of, by key."""

    def refusals(policy: Policy) -> str:
        decisions = decide_policies(cases.held, [policy], cases.arm)[0]
        return refusal_text(decisions, remedy="") or idle_text(decisions, remedy="")

    start, directions = of.problem.start, direction_notes(cases.decided)
    by_user = {name: refusals(policy) for name, policy in entry.policies.items()}
    doubts = [
        *entry.doubts,
        *(f"Candidate {name}: {text}" for name, text in by_user.items() if text),
    ]
    kinds = [trace_basis(of.splits.tuned_on), basis]
    texts = {
        "basis": ""
        if kinds[0].kind == kinds[1].kind
        else f"Costs do not compare: tuned on by {kinds[0]}, judged by {kinds[1]}.",
        "refusals": f"In the selected policy {text}" if (text := refusals(tuned)) else "",
        "directions": " ".join(directions[:1]),
        "candidates": " ".join(doubts[:1]),
        "start": of.start_note,
    }
    if tuned.policy_id != start.policy_id and (text := refusals(start)):
        texts["start"] = f"In the policy that the study starts from {text}"
    return texts


def _measured_cases(of: StudyProblem, folds: int, repeats: int, group: str | None) -> Cases:
    """Cases that candidates are made of, measured once.

    With their groups where the decision is to have them.
    """
    problem, trace = of.problem, of.held.trace
    arm, start, seed = problem.settings["arm"], problem.start, int(problem.settings["seed"])
    if len(trace) < 2:
        msg = f"a study needs at least 2 cases to tune on, got {len(trace)}; label more."
        raise ValueError(msg)
    evidence = measured_tables(of.held, start, arm).evidence
    groups = None if group is None else CaseGroups.of(trace.cases, group)
    weight = case_weights(trace.cases)
    check_groups(groups, weight)
    return Cases(
        held=of.held,
        arm=arm,
        start=start,
        defaults=of.defaults,
        goal=problem.goal,
        evidence=evidence,
        decided=decision_cases(evidence)._replace(groups=groups, weight=weight),
        space=problem.space,
        questions=question_numbers(trace.cases),
        seed=seed,
        folds=folds,
        repeats=repeats,
        weight=weight,
    )


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
    cells: NDArray[Any] = counted.cells
    if cases.weight is not None:
        codes = trace_codes(cases.held, tried, cases.arm)
        cells = metrics.weighed_cases(CELL_OF_CODE[codes], cases.weight).weights
    order = np.argsort(np.where(compared, cases.goal.score(cells), np.inf), kind="stable")
    _, distinct = np.unique(cells[order], axis=0, return_index=True)
    best = [tried[place] for place in order[np.sort(distinct)[:BEST]]]
    policy, _ = line_search(
        cases.held,
        best,
        chain_paths(cases),
        cases.goal.score,
        cases.defaults,
        cases.arm,
        cases.weight,
    )
    return policy


class JudgedPolicies(NamedTuple):
    """Decisions of the named policies on the judged cases.

    codes: see `shard_codes`, [P, Q]. basis: of the cases. weight: of each case, where they were
    drawn with several probabilities, [Q].
    """

    policies: Mapping[str, Policy]
    codes: NDArray[np.int16]
    basis: Basis
    weight: NDArray[np.float64] | None = None

    @property
    def cells(self) -> dict[str, NDArray[np.int8]]:
        """Cell of every case by name of the policy, [Q] each."""
        return dict(zip(self.policies, CELL_OF_CODE[self.codes], strict=True))


def _judged_costs(
    chosen: Selection, goal: Goal, cases: Cases, judged: JudgedPolicies, *, unseen: bool
) -> tuple[pd.DataFrame, Crossing | None, pd.DataFrame]:
    """Costs plus each candidate policy's result on judged cases, if none of them was tuned on.

    Beside it the crossing of what is selected with the policies without tuning, and `mix_costs`.
    """
    table, policies = chosen.costs.copy(), chosen.policies
    losses, label = chosen.losses, cases.label.astype(np.int64)
    report = [np.nan] * len(policies)
    if unseen:
        price, cells = metrics.cell_costs(goal.matrix), judged.cells
        losses = {name: price[cells[name]] for name in policies}
        label = metrics.LABEL_OF_CELL[cells[TUNED]]
        by = goal.case_weights(label) if judged.weight is None else judged.weight
        report = [float((loss if by is None else by * loss).mean()) for loss in losses.values()]
    table.insert(3, "report", report)
    crossings: dict[str, Crossing | None] = {}
    compared = dict(table.get("compared", {}))

    def differs(name: str, rival: str) -> bool:
        # of two policies without tuning, one that costs the same of every case is no rival
        costs = losses if unseen else chosen.gains
        return name not in FIXED or not np.array_equal(costs[name], costs[rival])

    for name, policy in policies.items():
        free = [
            rival
            for rival in FIXED
            if policies[rival].policy_id != policy.policy_id
            and compared.get(rival, True)
            and differs(name, rival)
        ]
        known = cases.weight is None and judged.weight is None and free
        crossings[name] = (
            crossing(losses[name], np.stack([losses[rival] for rival in free]), free, label)
            if known
            else None
        )
    ends = [np.nan if crossed is None else crossed.high for crossed in crossings.values()]
    table.insert(4, "crossing", np.where(np.isinf(ends), np.nan, ends))
    return table, crossings[chosen.selected], cost_table(losses, label)


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
