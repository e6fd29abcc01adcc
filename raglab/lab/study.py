"""The study (shore): `tune` thresholds and switches with Optuna, judged on cases it did not see (S6.4, S6.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import MAX_MISSING, SOURCES, Basis, MissingAnswers
from raglab.decision.measurement import measured_tables
from raglab.decision.outcome_codes import CELL_OF_CODE, Tally, tally_codes
from raglab.decision.refusals import refusal_text
from raglab.decision.scoring import status_only_note, status_only_sentence, trace_status_only
from raglab.decision.sharded_decisions import trace_basis
from raglab.html_display import Cell, Fold, display, short
from raglab.lab.answer_basis import missing_notes
from raglab.lab.comparison import compare_cells
from raglab.lab.decision_fitting import decision_cases
from raglab.lab.paired_gain import Advantage
from raglab.lab.search_space import (
    Goal,
    SearchRange,
    always_answer,
    full_space,
    limit_depth,
    manual_loop,
    own_trial,
    polish,
    published_policy,
    search_ranges,
    starting_note,
    starting_policy,
)
from raglab.lab.selection import (
    ANSWER,
    CHAIN,
    CHAIN_ASKS,
    COST,
    DEFAULTS,
    FREE,
    NOT_THRESHOLDS,
    POOL,
    REFUSE,
    RESOLVES,
    Cases,
    Selection,
    best_of,
    chain_pool,
    judged_costs,
    policy_plateaus,
    recipes_of,
    select_recipe,
)
from raglab.lab.study_cases import Splits, StudyTrace, candidate_cases, label_notes, measured_once, study_splits
from raglab.lab.study_workers import check_storage, finish_shared_study
from raglab.lab.trial_search import MISSING, Problem, Search, check_search, pareto_front, run_search, trial_policies
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics import Paired
from raglab.misuse import takes
from raglab.policy import told_value
from raglab.replay import decide_policies, each_shard, join_columns, rate_table, shard_codes, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.user_warnings import warn_user

if TYPE_CHECKING:
    import pandas as pd


_COST = ("expected_cost", "expected_cost_low", "expected_cost_high")
SamplerName = Literal["nsga2", "tpe", "random"]


@dataclass(frozen=True, repr=False)
class TuneResult:
    """Outcome of a study.

    selected: candidate that was chosen. policy: made by it of all cases of split `tune`. incumbent: the published one.
    policies: name -> policy of every row of `comparison`: `defaults`, `tuned` (that was selected), `always-answer`,
    `always-refuse`, `manual-loop`, and the best of one threshold, chain and expected cost by their own names.
    costs: a row a candidate: expected cost `in_sample`, `cross_validated` and on the judged cases (`report`);
    `std_error` of the difference to the best; `over_ask` and `coverage` when held out; `complexity`; `won`, the share
    of resamples in which it costs least; `meets_targets`; `policy_id`. expected: cost of what is selected on cases that
    it was neither made of nor chosen on, while its own `cross_validated` is that of the best of many. advantage: over
    the best free policy.
    trials: a row a trial (values tried, rates, expected cost, `violation`: by how much targets are missed in sum,
    policy_id; where cases are judged by text `missing_answers`, the share of a trial's answers that is not recorded).
    best: the trial of Optuna's that meets all targets at the least expected cost; where none meets them,
    the one nearest to them. pareto: the trials no other beats in cost and coverage. plateaus: how far each threshold of
    `policy` may move at no cost. judged: policies × everything counted on the cases that the study did not see, see
    `comparison` and `rates`. paired: tuned against incumbent. notes: what a reader must know. Candidates, their costs
    in sample and cross-validated, plateaus and cockpit are of at most 20,000 of the cases tuned on, drawn by label;
    trials are judged on all of these, and the few that a chain is made of are chosen among them by the sample.
    tuned_on, judged_on: the traces. study: Optuna's own, for its plots and dashboards: trials by the paths that they
    set, objectives named, targets as constraints. settings: what tells this study from another, as storage and tracker
    name it; `trace` is the id of the whole trace. goal: costs and targets. basis: of the cases judged on (rule S6.3); a
    policy that lacks too many recorded answers is not compared, see `notes`. status_only: judged cases that are scored
    by status alone.
    """

    policy: Policy
    incumbent: Policy
    selected: str
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    expected: float
    advantage: Advantage | None
    trials: pd.DataFrame
    pareto: pd.DataFrame
    plateaus: pd.DataFrame
    judged: pd.DataFrame
    paired: Mapping[str, Paired]
    notes: tuple[str, ...]
    tuned_on: StudyTrace
    judged_on: StudyTrace
    study: Any
    best: Any
    settings: Mapping[str, Any]
    goal: Goal
    basis: str = SOURCES
    status_only: int = 0

    @property
    def headline(self) -> str:
        """How many judged cases are scored by status alone, '' where none is."""
        return status_only_sentence(self.status_only, len(self.judged_on))

    @property
    def comparison(self) -> pd.DataFrame:
        """The named policies on the cases that the study did not see, in few columns; the rest by `rates`.

        `policy`, `expected_cost` with `_low` and `_high`, the rates of the goal's targets beside coverage and over-ask,
        `pass_rate`, and `met`: whether all targets are met by a policy that answers (rule S6.9).
        """
        rates = dict.fromkeys((*self.goal.targets, "coverage", "over_ask_rate", "pass_rate"))
        names = [name for name in rates if name != "pass_rate"]
        return self.judged[["policy", *_COST, *names, "pass_rate", "met"]]

    def rates(self, name: str | None = None) -> pd.DataFrame:
        """Rate of the named policies: `value`, `k`, `n`, `low`, `high` by policy; of all rates every column.

        Args:
          name: one of `metrics.RATES`; without one, a row a policy with every rate and `_k`, `_n`, `_low`, `_high`.

        Raises:
          ValueError: no such rate.
        """
        if name is None:
            return self.judged
        if name not in metrics.RATE_TABLE:
            msg = f"name must be one of {', '.join(metrics.RATES)}, got {name!r}; expected cost stands in comparison."
            raise ValueError(msg)
        ends = {name: "value", **{f"{name}_{end}": end for end in ("k", "n", "low", "high")}}
        return self.judged.set_index("policy")[list(ends)].set_axis(list(ends.values()), axis=1)

    def changed(self, before: str = DEFAULTS, after: str = "tuned") -> pd.DataFrame:
        """Judged cases that two of the policies decide otherwise, see `Decisions.changed`.

        Args:
          before, after: names of `policies`; the incumbent and the selected one where not given.

        Raises:
          ValueError: no such policy.
        """
        for name in (before, after):
            if name not in self.policies:
                msg = f"policies must be among {', '.join(self.policies)}, got {name!r}; correct the name."
                raise ValueError(msg)
        chosen = [self.policies[name] for name in (before, after)]
        one, two = decide_policies(self.judged_on, chosen, self.settings["arm"])
        return one.changed(two)

    def __repr__(self) -> str:
        row = self.judged.iloc[list(self.policies).index("tuned")]
        cost = f"expected cost {row['expected_cost']:.3f} on {len(self.judged_on):,} judged cases"
        met = f"; targets {'met' if row['met'] else 'not met'}" if self.goal.targets else ""
        selected, trials = short(self.selected), f"{len(self.trials):,} trials"
        headline = f"; {self.headline}" if self.headline else ""
        told = f"{selected}, policy {self.policy.policy_id}: {cost}{met}; basis {self.basis}; {trials}{headline}"
        return f"{type(self).__name__}({told})"

    def _repr_html_(self) -> str:
        """Display for a notebook: what was selected, beside what it must beat; what it changes; what to know."""
        told = self.comparison
        names = [name for name in told.columns if name not in {"policy", "met", *_COST}]
        rows: list[tuple[Cell | str, ...]] = [
            (
                Cell(row["policy"], mark="changed" if row["policy"] == "tuned" else ""),
                Cell(
                    f"{row['expected_cost']:.3f}", f"[{row['expected_cost_low']:.3f}, {row['expected_cost_high']:.3f}]"
                ),
                *(f"{row[name]:.3f}" if row[name] == row[name] else "none" for name in names),
                Cell("yes" if row["met"] else "no", mark="good" if row["met"] else "bad"),
            )
            for row in told.to_dict("records")
        ]
        changes = [
            (path, told_value(there), Cell(told_value(here), mark="changed"))
            for path, (here, there) in self.policy.diff(self.incumbent).items()
        ]
        facts = [
            ("selected", self.selected),
            ("policy", self.policy.policy_id),
            ("expected cost on new cases", f"{self.expected:.3f}"),
            ("judged on", f"{len(self.judged_on):,} cases" + (f"; {self.headline}" if self.headline else "")),
            ("basis", self.basis),
            ("tuned on", f"{len(self.tuned_on):,} cases, {len(self.trials):,} trials"),
        ]
        folds = (
            Fold("notes", [(f"{place + 1}", note) for place, note in enumerate(self.notes)], open=True),
            Fold("judged policies", rows, None, ("policy", "expected cost", *names, "met"), open=True),
            Fold("changes of the incumbent", changes, None, ("path", "incumbent", "tuned")),
        )
        return display("Result of a study", facts, folds)

    def report(self, path: str | Path) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases, with `cockpit` inside."""
        from raglab.lab.report.page import write_report

        return write_report(
            path,
            self.judged_on,
            self.policies,
            arm=self.settings["arm"],
            plateaus=self.plateaus,
            trials=self.trials,
            paired=self.paired,
            notes=self.notes,
            candidates=self.costs,
            costs=self.goal.costs,
            trace_id=self.settings["trace"],
            cockpit=self.cockpit(),
        )

    def cockpit(self) -> str:
        """HTML page of the tuned policy against the incumbent, whose thresholds move without a kernel.

        It shows the cases that were tuned on, of more than 20,000 the sample that candidates were made of: those it
        was judged on are no place to choose a threshold.
        """
        from raglab.lab.cockpit.page import frozen_html
        from raglab.lab.cockpit.state import CockpitState

        shown, arm = candidate_cases(self.tuned_on, int(self.settings["seed"])), self.settings["arm"]
        return frozen_html(CockpitState(shown, self.policy, compare=self.incumbent, goal=self.goal, arm=arm))


@takes(trace="trace", policy="policy")
def tune(
    trace: StudyTrace,
    *,
    policy: Policy | None = None,
    arm: str | None = None,
    trials: int = 2000,
    sampler: SamplerName = "nsga2",
    batch_size: int = 50,
    seed: int = 0,
    goal: Goal | None = None,
    space: Mapping[str, SearchRange | tuple[float, float]] | None = None,
    storage: str | Path | None = None,
    study_name: str | None = None,
    on_trials: Callable[[pd.DataFrame], bool | None] | None = None,
) -> TuneResult:
    """Find the policy of least expected cost on the split `tune`, judge it on the split `report`.

    Candidates are recipes: answer all, refuse all, the published policy, one threshold on each signal, the chain with
    and without its resolver, the decision by expected cost. Cross-validation chooses (`raglab.lab.selection`); where
    nothing beats answering or refusing all, that is the result, and the first note says so.

    Args:
      trace: without splits all cases serve for both, and the notes say that the rates flatter.
      policy: where the search starts, and whose patterns it keeps; `starting_policy` of the trace where not given.
      trials: configurations of the chain tried before its line search.
      sampler: of Optuna. batch_size: configurations proposed and replayed together.
      goal: costs and targets. space: path -> range or (low, high); `full_space` where not given.
      storage: where Optuna keeps the trials: a folder (a journal file in it), or the URL of a database. There a study
        goes on; one that was killed ends with the same result. Trials that you ran or queued in it with Optuna are
        judged too, beside those of `trials`. Where workers have been at it (`raglab.lab.study_workers`), what they left
        open is finished first, as one of them, and whatever it takes.
      study_name: in the storage; made of corpus and settings where not given, so that no study meets another.
      on_trials: takes the rows of each batch of trials, as in `TuneResult.trials`; what returns False ends the search.
        A study that workers share takes none: its places are finished in any case.

    Warns:
      UserWarning: one gate of the policy that it starts from, or ends with, refuses nearly all cases labelled ok.

    Raises:
      ValueError: unknown sampler, trials below 1, a range that is none, a case without a label, a storage that cannot
        be opened or holds a study of another search under this name, or `on_trials` with a study that workers share.

    Source: rules S2.19, S6.2, S6.4, S6.5, S6.7, S6.8.

    Example: `raglab.tune(trace, storage="out/study").best.params`
    """
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
    check_storage(of.problem, storage, study_name, on_trials)  # before shards are measured
    with measured_once(of.splits.tuned_on, of.problem.start, arm) as replayed:
        problem = of.problem._replace(trace=replayed)
        finish_shared_study(problem, storage, study_name)
        search = run_search(problem, storage=storage, study_name=study_name, on_trials=on_trials)
    result = _judged_result(of.splits, of.problem, search, of.incumbent, of.by_hand)
    begun = starting_note(of.problem.start) if policy is None else ""
    return replace(result, notes=(result.notes[0], begun, *result.notes[1:])) if begun else result


class StudyProblem(NamedTuple):
    """What a study searches: the cases, the search over them, and the policies that its result is held against.

    incumbent: the published policy. by_hand: that of the source's loop (rule S6.4).
    """

    splits: Splits
    problem: Problem
    incumbent: Policy
    by_hand: Policy


def search_problem(
    trace: StudyTrace,
    *,
    policy: Policy | None = None,
    arm: str | None = None,
    trials: int = 2000,
    sampler: SamplerName = "nsga2",
    batch_size: int = 50,
    seed: int = 0,
    goal: Goal | None = None,
    space: Mapping[str, SearchRange | tuple[float, float]] | None = None,
) -> StudyProblem:
    """The search that `tune` makes of the same arguments, and that every process of one study makes alike.

    Args: see `tune`.
    """
    check_search({"trials": trials, "batch_size": batch_size, "sampler": sampler})  # before a trace is read
    start = limit_depth(policy if policy is not None else starting_policy(trace, arm), trace).replace(
        "decision.rule", "chain"
    )
    wanted, splits = goal or Goal(), study_splits(trace, seed)
    ranges = full_space(splits.made_of, start, arm) if space is None else search_ranges(space)
    incumbent = limit_depth(published_policy(start), trace)
    by_hand = manual_loop(splits.made_of, incumbent, wanted, arm)
    # Whatever changes a draw or a judgement goes in: a stored study is known by these settings.
    settings = {
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
    # The search begins with every policy that it will be compared with and that can lead anywhere, so that it loses
    # to none of them on the cases it sees.
    begins = {one.policy_id: one for one in (start, incumbent, by_hand, always_answer(start))}
    first = [own_trial(one, ranges) for one in begins.values()]
    problem = Problem(splits.tuned_on, start, ranges, wanted, first, settings)
    return StudyProblem(splits, problem, incumbent, by_hand)


def _judged_result(splits: Splits, problem: Problem, search: Search, incumbent: Policy, by_hand: Policy) -> TuneResult:
    """The recipe that holds, made of all cases, on the cases that nothing was made of or chosen on."""
    arm, trials, goal = problem.settings["arm"], int(problem.settings["trials"]), problem.goal
    tuned_on, judged_on = splits.tuned_on, splits.judged_on
    # The chain's search is one candidate among others; which of them holds is found out in folds of these cases. They
    # may be a sample: then its trials, judged on all cases, are scored on the sample once more to be compared with it.
    cases = _measured_cases(problem, splits.made_of, incumbent)
    pool = chain_pool(cases, min(POOL, trials))
    recipes = recipes_of(cases, lambda name: _chain_of_trials(name, cases, search.trials), pool)
    chosen = select_recipe(recipes, cases)
    tuned = chosen.policies[chosen.selected]
    policies = _named_policies(chosen, incumbent, by_hand)
    judged = judge_policies(judged_on, [*chosen.policies.values(), *policies.values()], arm)
    candidates = {name: judged.cells(policy) for name, policy in chosen.policies.items()}
    costs, advantage = judged_costs(chosen, goal, candidates, unseen=judged_on is not tuned_on)
    alone = {"judged": trace_status_only(judged_on)}
    alone |= {} if judged_on is tuned_on else {"tuned": trace_status_only(tuned_on)}
    scored = [f"Of the cases {name} on, {note}" for name, of in alone.items() if (note := status_only_note(of))]
    missing = judged.missing(policies)
    both = (missing[DEFAULTS], missing["tuned"])
    stopped = [f"Stopped after {search.proposed} of {trials} trials."] if search.proposed < trials else []
    return TuneResult(
        policy=tuned,
        incumbent=incumbent,
        selected=chosen.selected,
        policies=policies,
        costs=costs,
        expected=chosen.expected,
        advantage=advantage,
        trials=search.trials,
        pareto=pareto_front(search.trials),
        plateaus=policy_plateaus(cases, tuned),
        judged=_judged_rates(judged, policies, goal),
        paired=compare_cells(judged.cells(incumbent), judged.cells(tuned)) if all(m.is_compared for m in both) else {},
        notes=(
            _selection_note(chosen, advantage),
            *scored,
            *unmeasured_note(judged_on, tuned),
            *stopped,
            *splits.notes,
            *label_notes(tuned_on),
            splits.size_note,
            *_target_notes(costs, chosen.selected, goal),
            *_refusal_notes(cases, problem.start, tuned),
            *_answer_notes(splits, judged.basis, search.trials, chosen, missing),
        ),
        tuned_on=tuned_on,
        judged_on=judged_on,
        study=search.study,
        best=search.best,
        settings=problem.settings,
        goal=goal,
        status_only=int(alone["judged"].sum()),
        basis=str(judged.basis),
    )


def _measured_cases(problem: Problem, trace: Trace, incumbent: Policy) -> Cases:
    """Cases that recipes are made of, measured once."""
    arm, start, seed = problem.settings["arm"], problem.start, int(problem.settings["seed"])
    found = measured_tables(trace, start, arm).evidence
    decided = decision_cases(found)
    return Cases(trace, arm, start, incumbent, problem.goal, found, decided, problem.space, seed)


def _named_policies(chosen: Selection, incumbent: Policy, by_hand: Policy) -> dict[str, Policy]:
    """Policies that are judged beside each other: what was selected, what it must beat, and the best of each kind."""
    threshold = best_of(chosen.costs, [name for name in chosen.names if name not in NOT_THRESHOLDS])
    kinds = (threshold, CHAIN, CHAIN_ASKS, COST)
    return {
        DEFAULTS: incumbent,
        "tuned": chosen.policies[chosen.selected],
        ANSWER: chosen.policies[ANSWER],
        REFUSE: chosen.policies[REFUSE],
        "manual-loop": by_hand,
        **{name: chosen.policies[name] for name in kinds if name in chosen.names},
    }


def _chain_of_trials(name: str, cases: Cases, table: pd.DataFrame) -> Policy:
    """Chain with or without its resolver: the trials that are best on these cases, then the exact line search."""
    asks = name == CHAIN_ASKS
    tried = trial_policies(cases.start, table, None if asks else {"gap.enabled": False})
    paths = [path for path in cases.space if asks or not path.startswith(RESOLVES)]
    counted = tally(cases.trace, tried, cases.arm)
    cells, compared = counted.cells, np.array([one.is_compared for one in counted.missing_answers])
    order = np.argsort(np.where(compared, cases.goal.score(cells), np.inf), kind="stable")
    _, distinct = np.unique(cells[order], axis=0, return_index=True)
    best = [tried[place] for place in order[np.sort(distinct)[:BEST]]]
    policy, _ = polish(cases.trace, best, paths, cases.goal.score, cases.defaults, cases.arm)
    return policy


def _selection_note(chosen: Selection, advantage: Advantage | None) -> str:
    """What was selected, in the first line of every page."""
    cost = chosen.costs["cross_validated"]
    if chosen.selected in FREE:
        others = best_of(chosen.costs, [name for name in chosen.names if name not in FREE])
        if not others:
            return f"{chosen.selected} is selected: no other candidate has the recorded answers to be compared with it."
        return (
            f"Nothing beats {chosen.selected}: its expected cost is {cost[chosen.selected]:.3f} a case, and the best "
            f"of the others, {others}, comes to {cost[others]:.3f} on cases it did not see, less than one standard "
            "error better. There is nothing to tune here; signals that tell right from wrong are what is missing."
        )
    lead = f"Selected: {chosen.selected}. On new cases it is expected to cost {chosen.expected:.3f} a case."
    if advantage is None:
        return lead
    return f"{lead} It saves {advantage.text} over {advantage.over} on {advantage.cases} cases it never saw."


class JudgedPolicies(NamedTuple):
    """Decisions of policies on the judged cases. codes: see `shard_codes`, [Q] by policy_id. basis: of the cases."""

    codes: Mapping[str, NDArray[np.int16]]
    basis: Basis

    def cells(self, policy: Policy) -> NDArray[np.int8]:
        """Cell of every case under a policy, [Q]."""
        return CELL_OF_CODE[self.codes[policy.policy_id]]

    def tally(self, policies: Mapping[str, Policy]) -> Tally:
        """Counted decisions of policies."""
        codes = np.stack([self.codes[policy.policy_id] for policy in policies.values()])
        return tally_codes(codes, self.basis.text)

    def missing(self, policies: Mapping[str, Policy]) -> dict[str, MissingAnswers]:
        """Recorded answers that policies lack, by name."""
        return dict(zip(policies, self.tally(policies).missing_answers, strict=True))


def judge_policies(trace: StudyTrace, policies: Sequence[Policy], arm: str | None) -> JudgedPolicies:
    """Decisions of policies on cases, in one pass over a trace in memory or of shards."""
    every = {one.policy_id: one for one in policies}
    codes = join_columns(each_shard(shard_codes, trace, list(every.values()), arm, what="judge"))
    return JudgedPolicies(dict(zip(every, codes, strict=True)), trace_basis(trace))


def _judged_rates(judged: JudgedPolicies, policies: Mapping[str, Policy], goal: Goal) -> pd.DataFrame:
    """Rates of the named policies, a row each, and whether they meet the targets."""
    seen = judged.tally(policies)
    table = rate_table(seen, list(policies.values()), costs=goal.costs)
    table.insert(0, "policy", list(policies))
    compared = np.array([one.is_compared for one in seen.missing_answers])
    return table.assign(met=goal.meets(seen.cells) & compared)


def _answer_notes(
    splits: Splits, judged_on: Basis, trials: pd.DataFrame, chosen: Selection, missing: Mapping[str, MissingAnswers]
) -> list[str]:
    """The basis that cases are judged on, and what is not compared since recorded answers are missing (rule S6.3)."""
    tuned_on = judged_on if splits.tuned_on is splits.judged_on else trace_basis(splits.tuned_on)
    notes = [f"Cases are judged by {judged_on}."]
    if tuned_on.kind != judged_on.kind:
        notes.append(
            f"The cases tuned on are judged by {tuned_on}, those judged on by {judged_on}: their costs do not compare. "
            "Give both splits gold answers, or neither."
        )
    notes += missing_notes(chosen.missing, "the cases tuned on")
    notes += missing_notes(missing, "the judged cases")
    if MISSING in trials:
        n = int((trials[MISSING] > MAX_MISSING).sum())
        notes += [f"{n:,} of {len(trials):,} trials are not compared, since answers are missing."] if n else []
    return notes


def _refusal_notes(cases: Cases, start: Policy, tuned: Policy) -> list[str]:
    """Policies of a study of which one gate refuses nearly all answerable cases; `tune` warns of them too."""
    named = {start.policy_id: (start, "starts from"), tuned.policy_id: (tuned, "ends with")}
    notes = []
    for policy, role in named.values():
        text = refusal_text(decide_policies(cases.trace, [policy], cases.arm)[0])
        if text:
            notes.append(f"The policy that the study {role}: {text}")
            warn_user(notes[-1])
    return notes


def _target_notes(costs: pd.DataFrame, selected: str, goal: Goal) -> list[str]:
    """Whether what was selected keeps the targets, on cases it did not see."""
    if not goal.targets or bool(costs.loc[selected, "meets_targets"]):
        return []
    told = ", ".join(f"{name} {limit:g}" for name, limit in goal.targets.items())
    # Were there one that keeps them, only such would have been chosen among.
    return [f"No candidate keeps the targets ({told}) on cases it did not see; chosen by expected cost alone."]


BEST = 10  # trials that the line search starts from
