"""The study (shore): `tune` thresholds and switches with Optuna, judged on cases it did not see (S6.4, S6.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from tqdm import tqdm

from raglab import metrics
from raglab.canonical import digest
from raglab.certify import cases_needed
from raglab.decision.measurement import measured_tables
from raglab.lab.decision_fitting import decision_cases
from raglab.lab.report.verdicts import certifiable
from raglab.lab.search_space import (
    Goal,
    SearchRange,
    always_answer,
    full_space,
    limit_depth,
    own_trial,
    polish,
    published_policy,
    search_ranges,
    set_values,
    step_thresholds,
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
    Advantage,
    Cases,
    Selection,
    best_of,
    chain_pool,
    judged_costs,
    policy_plateaus,
    recipes_of,
    select_recipe,
)
from raglab.metrics import Paired
from raglab.replay import Tally, decide, sweep, tally
from raglab.store.files import make_folder, write_text
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status, TraceData, check_labelled, label_codes

if TYPE_CHECKING:
    import pandas as pd

OBJECTIVES = {"expected_cost": "minimize", "coverage": "maximize"}  # of a study, and which way each is wanted
Space = dict[str, optuna.distributions.BaseDistribution]
Trials = list[optuna.trial.FrozenTrial]


class Proposer(NamedTuple):
    """Where trials come from: the search space, what the sampler starts from, and what each trial is decided on.

    start: policy that the tried values are put into. distributions: of the space, by path. first: values that are tried
    before the sampler proposes any. settings: `trials`, `batch_size`, `sampler`, `seed`, `arm`, and what else tells one
    study from another.
    """

    trace: TraceData
    start: Policy
    goal: Goal
    distributions: Space
    first: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]


def run_search(
    trace: TraceData,
    start: Policy,
    space: Mapping[str, SearchRange],
    goal: Goal,
    settings: Mapping[str, Any],
    first: Sequence[Mapping[str, Any]],
    folder: Path | None,
    on_batch: Callable[[int, NDArray[np.float64]], None] | None,
    *,
    progress: bool,
) -> tuple[optuna.Study, pd.DataFrame]:
    """Search the space: the Optuna study and a row a trial.

    Args:
      settings, first: see `Proposer`. folder: keeps finished batches; None keeps none.
      on_batch: takes the number of trials so far and the batch's objectives, [B, O].
    """
    import pandas as pd

    trials, size = int(settings["trials"]), int(settings["batch_size"])
    if trials < 1 or size < 1:
        msg = f"trials and batch_size must be at least 1, got {trials} and {size}."
        raise ValueError(msg)
    proposer = Proposer(
        trace=trace, start=start, goal=goal, distributions=_distributions(space), first=first, settings=settings
    )
    rows: list[dict[str, Any]] = []
    with _without_trial_lines():
        study = optuna.create_study(directions=list(OBJECTIVES.values()))
        kept = _Batches(folder, settings)
        before: tuple[Trials, Trials] = ([], [])
        for begin in tqdm(range(0, trials, size), desc="study", unit="batch", disable=not progress):
            count = min(size, trials - begin)
            # A sampler of its own for every batch, with a stream of its own: a resumed study skips the batches that
            # are kept and still draws what it would have drawn.
            study.sampler = sampler = _sampler(settings, begin, proposer.distributions, before)
            if isinstance(sampler, _Batchwise) and begin:
                sampler.parents = sampler.select_parent(study, sampler.generation)
            known = kept.read(begin, count)
            if known is None:
                batch = _trial_batch(study, proposer, begin, count)
                kept.write(begin, batch.trials, batch.rows)
            else:
                study.add_trials(known.trials)
                batch = RecordedTrials(_trials_from(study, begin, count), known.rows)
            rows += batch.rows
            before = (batch.trials, sampler.parents if isinstance(sampler, _Batchwise) else [])
            if on_batch is not None:
                on_batch(begin + count, np.array([[row[name] for name in OBJECTIVES] for row in batch.rows]))
    return study, pd.DataFrame(rows)


def _trial_batch(study: optuna.Study, proposer: Proposer, begin: int, count: int) -> RecordedTrials:
    """Propose, replay and tell a batch of trials."""
    goal, first = proposer.goal, proposer.first
    for values in first[begin : begin + count] if begin < len(first) else ():
        study.enqueue_trial(dict(values))
    asked = [study.ask(proposer.distributions) for _ in range(count)]
    policies = [set_values(proposer.start, trial.params) for trial in asked]
    # All policies of the batch share one pass over the trace, which is what a batch is for.
    counted = tally(proposer.trace, policies, proposer.settings["arm"])
    coverage = metrics.rates(counted.counts, counted.labels)[:, metrics.RATES.index("coverage")]
    judged = zip(asked, goal.cost(counted.cells), coverage, goal.excess(counted.cells), strict=True)
    for trial, cost, share, over in judged:
        for place, (name, value) in enumerate(zip(goal.constraints, over, strict=True)):
            trial.set_constraint(f"{place} {name}", float(value))
        study.tell(trial, [float(cost), float(share)])
    done = _trials_from(study, begin, count)
    return RecordedTrials(done, _trial_rows(done, policies, counted, goal))


def _trials_from(study: optuna.Study, begin: int, count: int) -> Trials:
    trials: Trials = study.get_trials(deepcopy=False)[begin : begin + count]
    return trials


@contextmanager
def _without_trial_lines() -> Iterator[None]:
    """Optuna without a line a trial; the caller's level is back afterwards."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


class TrialOutcome(NamedTuple):
    """What a trial came to: its value, by how much it exceeds each limit (at most 0 keeps it), and what to keep too."""

    value: float
    excess: Mapping[str, float]
    seen: Mapping[str, Any]


def maximise(
    judge: Callable[[Mapping[str, Any]], TrialOutcome],
    space: Mapping[str, SearchRange],
    *,
    trials: int,
    sampler: str,
    seed: int,
    first: Sequence[Mapping[str, Any]] = (),
    progress: bool = False,
) -> tuple[optuna.Study, pd.DataFrame]:
    """Search one value trial by trial; a row a trial: `number`, `value`, `feasible`, what was seen, what was tried.

    Args:
      first: values that are tried before the sampler proposes any.
    """
    import pandas as pd

    if trials < 1:
        msg = f"trials must be at least 1, got {trials}."
        raise ValueError(msg)
    rows: list[dict[str, Any]] = []
    with _without_trial_lines():
        study = optuna.create_study(direction="maximize", sampler=_sequential_sampler(sampler, seed))
        distributions = _distributions(space)
        for values in first[:trials]:
            study.enqueue_trial(dict(values))
        for _ in tqdm(range(trials), desc="study", unit="trial", disable=not progress):
            trial = study.ask(distributions)
            judged = judge(trial.params)
            # Constraints are set before the trial is told, or the sampler takes it for feasible.
            for name, over in judged.excess.items():
                trial.set_constraint(name, float(over))
            study.tell(trial, judged.value)
            feasible = all(over <= 0.0 for over in judged.excess.values())
            row = {"number": trial.number, "value": judged.value, "feasible": feasible}
            rows.append(row | dict(judged.seen) | trial.params)
    return study, pd.DataFrame(rows)


def _sequential_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    make: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    return _sampler_by_name(make, name)


class _Batchwise(optuna.samplers.NSGAIISampler):  # type: ignore[misc] # Optuna is not followed
    """NSGA-II whose generations are the batches: parents are chosen once a batch, not looked up for every trial.

    It remembers nothing between batches, so a resumed study goes on as the first run would have.
    """

    def __init__(self, size: int, seed: int, space: Space, generation: int, before: Sequence[Trials]) -> None:
        super().__init__(population_size=max(2, size), seed=seed)
        self.space, self.generation = space, generation
        self.last, self.parents_of_last = before
        self.parents: Trials = []

    def infer_relative_search_space(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> Space:
        """Space of every trial, told and not inferred from thousands of trials again."""
        del study, trial
        return self.space

    def get_trial_generation(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
        """Number of the batch."""
        del study, trial
        return self.generation

    def get_population(self, study: optuna.Study, generation: int) -> Trials:
        """Trials of the last batch."""
        del study, generation
        return list(self.last)

    def get_parent_population(self, study: optuna.Study, generation: int) -> Trials:
        """Parents of this batch, or those of the last one."""
        del study
        return list(self.parents if generation == self.generation else self.parents_of_last)


def pareto_front(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials that no other beats in expected cost and coverage; those that meet the targets only, where any does."""
    pool = trials[trials["feasible"]] if trials["feasible"].any() else trials
    values = np.column_stack([pool["expected_cost"], -pool["coverage"]])
    distinct, first = np.unique(values, axis=0, return_index=True)
    beaten = np.array([bool(((distinct <= row).all(axis=1) & (distinct < row).any(axis=1)).any()) for row in distinct])
    return pool.iloc[np.sort(first[~beaten])].reset_index(drop=True)


def _distributions(space: Mapping[str, SearchRange]) -> Space:
    return {path: _distribution(extent) for path, extent in space.items()}


def _distribution(extent: SearchRange) -> optuna.distributions.BaseDistribution:
    if extent.is_switch:
        return optuna.distributions.CategoricalDistribution([False, True])
    if extent.whole:
        return optuna.distributions.IntDistribution(int(extent.low), int(extent.high))
    return optuna.distributions.FloatDistribution(extent.low, extent.high, log=extent.log)


def _sampler(
    settings: Mapping[str, Any], begin: int, space: Space, before: Sequence[Trials]
) -> optuna.samplers.BaseSampler:
    """Sampler of one batch, with a stream of its own, so that a resumed study draws what it would have drawn."""
    name, size = str(settings["sampler"]), int(settings["batch_size"])
    stream = int(np.random.SeedSequence([int(settings["seed"]), begin]).generate_state(1)[0])
    make: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "nsga2": lambda: _Batchwise(size=size, seed=stream, space=space, generation=begin // size, before=before),
        "tpe": lambda: optuna.samplers.TPESampler(seed=stream),
        "random": lambda: optuna.samplers.RandomSampler(seed=stream),
    }
    return _sampler_by_name(make, name)


def _sampler_by_name(
    make: Mapping[str, Callable[[], optuna.samplers.BaseSampler]], name: str
) -> optuna.samplers.BaseSampler:
    if name not in make:
        msg = f"sampler must be one of {', '.join(make)}, got {name!r}."
        raise ValueError(msg)
    return make[name]()


def _trial_rows(
    done: Sequence[optuna.trial.FrozenTrial], policies: Sequence[Policy], counted: Tally, goal: Goal
) -> list[dict[str, Any]]:
    every = metrics.rates(counted.counts, counted.labels)
    costs = goal.cost(counted.cells)
    feasible = goal.meets(counted.cells).tolist()
    return [
        {
            "number": trial.number,
            "policy_id": policy.policy_id,
            **{name: float(value) for name, value in zip(metrics.RATES, rates, strict=True)},
            "expected_cost": float(cost),
            "feasible": bool(met),
            **trial.params,
        }
        for trial, policy, rates, cost, met in zip(done, policies, every, costs, feasible, strict=True)
    ]


class RecordedTrials(NamedTuple):
    """A finished batch: Optuna's trials, and a row each."""

    trials: list[optuna.trial.FrozenTrial]
    rows: list[dict[str, Any]]


class _Batches:
    """Finished batches on disk, one JSON file each, of one study only."""

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        made_by = {"raglab": version("raglab"), "optuna": optuna.__version__}
        text = json.dumps({key: value for key, value in settings.items() if key != "trials"} | made_by, sort_keys=True)
        self.folder = None if folder is None else folder / f"study-{digest(text, 16)}"
        if self.folder is not None:
            make_folder(self.folder)

    def _path(self, begin: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{begin:07d}.json"

    def read(self, begin: int, count: int) -> RecordedTrials | None:
        """Trials of a batch; None where it is not there, damaged or altered, so that it is made again."""
        path = self._path(begin)
        if path is None or not path.is_file():
            return None
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            records = stored["records"]
            if len(records) == count and stored["digest"] == _batch_digest(path, records):
                return self._trials(records)
        return None

    @staticmethod
    def _trials(records: Sequence[Mapping[str, Any]]) -> RecordedTrials:
        trials = [
            optuna.trial.create_trial(
                values=record["values"],
                params=record["params"],
                distributions={
                    key: optuna.distributions.json_to_distribution(text)
                    for key, text in record["distributions"].items()
                },
                system_attrs=record["system_attrs"],
            )
            for record in records
        ]
        return RecordedTrials(trials, [record["row"] for record in records])

    def write(self, begin: int, done: Sequence[optuna.trial.FrozenTrial], rows: Sequence[Mapping[str, Any]]) -> None:
        path = self._path(begin)
        if path is None:
            return
        records = [
            {
                "values": list(trial.values),
                "params": trial.params,
                "distributions": {
                    key: optuna.distributions.distribution_to_json(d) for key, d in trial.distributions.items()
                },
                "system_attrs": trial.system_attrs,
                "row": dict(row),
            }
            for trial, row in zip(done, rows, strict=True)
        ]
        write_text(json.dumps({"digest": _batch_digest(path, records), "records": records}), path)


def _batch_digest(path: Path, records: Sequence[Mapping[str, Any]]) -> str:
    """Digest over a batch and its place, in which study and first trial are named."""
    return digest(f"{path.parent.name}/{path.name}\n{json.dumps(records)}")


SamplerName = Literal["nsga2", "tpe", "random"]
MANUAL_STEPS = 40


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
    trials: a row a trial (values tried, rates, expected cost, policy_id). pareto: the trials no other beats in cost and
    coverage. plateaus: how far each threshold of `policy` may move at no cost. comparison: policies × rates on the
    cases that the study did not see. paired: tuned against incumbent. notes: what a reader must know.
    tuned_on, judged_on: the traces. study: Optuna's own, for its plots and dashboards. settings: what tells this study
    from another, as kept batches and the tracker name it. goal: costs and targets.
    """

    policy: Policy
    incumbent: Policy
    selected: str
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    expected: float
    advantage: Advantage
    trials: pd.DataFrame
    pareto: pd.DataFrame
    plateaus: pd.DataFrame
    comparison: pd.DataFrame
    paired: Mapping[str, Paired]
    notes: tuple[str, ...]
    tuned_on: Trace
    judged_on: Trace
    study: Any
    settings: Mapping[str, Any]
    goal: Goal

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.notes[0]}"

    def report(self, path: str | Path) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases."""
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
        )


def tune(
    trace: Trace,
    *,
    policy: Policy | None = None,
    arm: str | None = None,
    trials: int = 2000,
    sampler: SamplerName = "nsga2",
    batch_size: int = 50,
    seed: int = 0,
    goal: Goal | None = None,
    space: Mapping[str, SearchRange | tuple[float, float]] | None = None,
    resume: str | Path | None = None,
    on_batch: Callable[[int, NDArray[np.float64]], None] | None = None,
    progress: bool = False,
) -> TuneResult:
    """Find the policy of least expected cost on the split `tune`, judge it on the split `report`.

    Candidates are recipes: answer all, refuse all, the published policy, one threshold on each signal, the chain with
    and without its resolver, the decision by expected cost. Cross-validation chooses (`raglab.lab.selection`); where
    nothing beats answering or refusing all, that is the result, and the first note says so.

    Args:
      trace: without splits all cases serve for both, and the notes say that the rates flatter.
      policy: where the search starts, and whose patterns it keeps; the published thresholds where not given.
      trials: configurations of the chain tried before its line search.
      sampler: of Optuna. batch_size: configurations proposed and replayed together.
      goal: costs and targets. space: path -> range or (low, high); `full_space` where not given.
      resume: folder that keeps finished batches; a study killed and started again ends with the same result.
      on_batch: called after each batch with the number of trials and their objectives (`OBJECTIVES`), [B, 2].

    Raises:
      ValueError: unknown sampler, trials below 1, a range that is none, or a folder of another study.

    Source: rules S6.2, S6.4, S6.5, S6.7, S6.8.
    """
    start = limit_depth(policy if policy is not None else Policy.load(), trace).replace("decision.rule", "chain")
    wanted = goal or Goal()
    tuned_on, judged_on, notes = _tune_splits(trace)
    ranges = full_space(tuned_on, start, arm) if space is None else search_ranges(space)
    incumbent = limit_depth(published_policy(start), trace)
    # Whatever changes a draw or a judgement goes in: kept batches are found again by these settings.
    settings = {
        "arm": arm,
        "trials": trials,
        "sampler": sampler,
        "batch_size": batch_size,
        "seed": seed,
        "targets": dict(wanted.targets),
        "costs": metrics.stated_costs(wanted.matrix),
        "start": start.policy_id,
        "trace": trace.fingerprint,
        "space": {path: list(extent[:2]) for path, extent in ranges.items()},
    }
    # The search begins with every policy that it will be compared with and that can lead anywhere, so that it loses
    # to none of them on the cases it sees.
    by_hand = manual_loop(tuned_on, incumbent, wanted, arm)
    begins = {one.policy_id: one for one in (start, incumbent, by_hand, always_answer(start))}
    first = [own_trial(one, ranges) for one in begins.values()]
    folder = Path(resume) if resume else None
    study, table = run_search(tuned_on, start, ranges, wanted, settings, first, folder, on_batch, progress=progress)
    # The chain's search is one candidate among others; which of them holds is found out in folds of these cases.
    cases = _measured_cases(tuned_on, arm, start, incumbent, wanted, ranges, seed)
    pool = chain_pool(cases, min(POOL, trials))
    recipes = recipes_of(cases, lambda name: _chain_of_trials(name, cases, table), pool)
    chosen = select_recipe(recipes, cases, progress=progress)
    tuned = chosen.policies[chosen.selected]
    policies = _named_policies(chosen, incumbent, by_hand)
    costs, advantage = judged_costs(chosen, cases, judged_on)
    comparison = _comparison(judged_on, policies, arm, wanted.costs)
    return TuneResult(
        policy=tuned,
        incumbent=incumbent,
        selected=chosen.selected,
        policies=policies,
        costs=costs,
        expected=chosen.expected,
        advantage=advantage,
        trials=table,
        pareto=pareto_front(table),
        plateaus=policy_plateaus(cases, tuned),
        comparison=comparison,
        paired=compare_policies(judged_on, incumbent, tuned, arm),
        notes=(
            _selection_note(chosen, advantage),
            *notes,
            *_label_notes(tuned_on),
            _size_note(trace),
            *_target_notes(costs, chosen.selected, wanted),
        ),
        tuned_on=tuned_on,
        judged_on=judged_on,
        study=study,
        settings=settings,
        goal=wanted,
    )


def _measured_cases(
    trace: Trace,
    arm: str | None,
    start: Policy,
    incumbent: Policy,
    goal: Goal,
    space: Mapping[str, SearchRange],
    seed: int,
) -> Cases:
    """Cases that recipes are made of, measured once."""
    found = measured_tables(trace, start, arm).evidence
    decided = decision_cases(found)
    return Cases(trace, arm, start, incumbent, goal, found, decided, space, seed)


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
    """Chain with or without its resolver: the best trials of the search, then the exact line search."""
    asks = name == CHAIN_ASKS
    tried = _trial_policies(cases.start, table)
    paths = [path for path in cases.space if asks or not path.startswith(RESOLVES)]
    if not asks:
        tried = [policy.replace("gap.enabled", False) for policy in tried]
    cells = tally(cases.trace, tried, cases.arm).cells
    order = np.argsort(cases.goal.score(cells), kind="stable")
    _, distinct = np.unique(cells[order], axis=0, return_index=True)
    best = [tried[place] for place in order[np.sort(distinct)[:BEST]]]
    policy, _ = polish(cases.trace, best, paths, cases.goal.score, cases.defaults, cases.arm)
    return policy


def _trial_policies(start: Policy, trials: pd.DataFrame) -> list[Policy]:
    """Policies of the trials of a search, in their order."""
    paths = [column for column in trials.columns if "." in column]
    rows = trials[paths].to_dict("records")
    return [set_values(start, {path: _python_scalar(row[path]) for path in paths}) for row in rows]


SURE = 0.99  # beyond which a probability is not told to the digit
LEAST_LABELLED = 30  # cases of a label below which a split says little of it


def _label_notes(trace: Trace) -> list[str]:
    """Labels of which the cases that were tuned on hold few (rule S6.8)."""
    n = np.bincount(check_labelled(label_codes(trace.cases)), minlength=len(Status))
    counts = {status.name: int(n[status]) for status in Status}
    few = [f"{count} labelled {name}" for name, count in counts.items() if 0 < count < LEAST_LABELLED]
    none = [name for name, count in counts.items() if not count]
    notes = []
    if few:
        says = f"under {LEAST_LABELLED} of a label say little of it: label more."
        notes.append(f"The cases that were tuned on hold only {', '.join(few)}; {says}")
    if none:
        notes.append(
            f"No case that was tuned on is labelled {' or '.join(none)}: nothing is learned of such questions."
        )
    return notes


def _chance_text(chance: float) -> str:
    return "above 0.99" if chance > SURE else f"{chance:.2f}"


def _selection_note(chosen: Selection, advantage: Advantage) -> str:
    """What was selected, in the first line of every page."""
    cost = chosen.costs["cross_validated"]
    free = best_of(chosen.costs, FREE)
    if chosen.selected in FREE:
        others = best_of(chosen.costs, [name for name in chosen.names if name not in FREE])
        return (
            f"Nothing beats {chosen.selected}: its expected cost is {cost[chosen.selected]:.3f} a case, and the best "
            f"of the others, {others}, comes to {cost[others]:.3f} on cases it did not see, less than one standard "
            "error better. There is nothing to tune here; signals that tell right from wrong are what is missing."
        )
    return (
        f"Selected: {chosen.selected}. On new cases it is expected to cost {chosen.expected:.3f} a case ({free} "
        f"{cost[free]:.3f}); advantage over {free} on {advantage.judged} {advantage.estimate:+.3f} "
        f"[{advantage.low:+.3f}, {advantage.high:+.3f}], real with probability {_chance_text(advantage.probability)}."
    )


def _comparison(
    trace: Trace, policies: Mapping[str, Policy], arm: str | None, costs: metrics.Costs | None
) -> pd.DataFrame:
    """Rates of the named policies, a row each."""
    table = sweep(trace, list(policies.values()), arm, costs=costs)
    table.insert(0, "policy", list(policies))
    return table


def _target_notes(costs: pd.DataFrame, selected: str, goal: Goal) -> list[str]:
    """Whether what was selected keeps the targets, on cases it did not see."""
    if not goal.targets or bool(costs.loc[selected, "meets_targets"]):
        return []
    told = ", ".join(f"{name} {limit:g}" for name, limit in goal.targets.items())
    # Were there one that keeps them, only such would have been chosen among.
    return [f"No candidate keeps the targets ({told}) on cases it did not see; chosen by expected cost alone."]


def _tune_splits(trace: Trace) -> tuple[Trace, Trace, list[str]]:
    names = {case.split for case in trace.cases}
    if {"tune", "report"} <= names:
        return trace.split("tune"), trace.split("report"), []
    note = "The cases have no splits tune and report: tuned and judged on the same cases, so the rates flatter (S6.5)."
    return trace, trace, [note]


def _size_note(trace: Trace) -> str:
    """What a set of this size can certify at all, in plain words (rule S6.5)."""
    rows = [case for case in trace.cases if case.split == "certify"]
    where = "certify split" if rows else "cases"
    n = sum(case.expect_status == "ok" for case in rows or trace.cases)
    best, needs = certifiable(n), cases_needed(0.01)
    most = f"{best:.0%} at most" if best == best else "nothing"  # noqa: PLR0124 - NaN
    never = "" if n >= needs else ", never 1 %"
    return (
        f"In plain words: a set of this size can certify {most.replace('%', ' %')}{never}. "
        f"Its {where} {'holds' if rows else 'hold'} {n} answerable cases; 1 % needs {needs} answered without an error "
        "(exact binomial, 90 % confidence)."
    )


def compare_policies(trace: Trace, first: Policy, second: Policy, arm: str | None = None) -> dict[str, Paired]:
    """Paired tests of two policies on the same cases: contract passed, and questions answered that are labelled ok."""
    one, two = decide(trace, first, arm), decide(trace, second, arm)
    label = one.tables.evidence.label
    ok = label == Status.ok
    return {
        "pass": metrics.paired(one.right, two.right),
        "not falsely refused": metrics.paired((one.status != Status.refuse)[ok], (two.status != Status.refuse)[ok]),
        "not hallucinated": metrics.paired(
            one.right | (one.status != Status.ok), two.right | (two.status != Status.ok)
        ),
    }


def manual_loop(trace: Trace, policy: Policy, goal: Goal, arm: str | None = None) -> Policy:
    """Policy that the source's loop ends with, one step of all thresholds at a time.

    Looser while false refusals do not meet their target, else tighter while hallucinations do not meet theirs; a rate
    of no cases meets none. It ends when both are met, when it returns to where it was, or after 40 steps.

    Source: rules S6.2, S6.4.
    """
    limits = goal.targets
    path = [policy]
    for _ in range(MANUAL_STEPS):
        counted = tally(trace, [path[-1]], arm, engine="numpy")
        rate = dict(zip(metrics.RATES, metrics.rates(counted.counts[0], counted.labels), strict=True))
        unmet = {name for name, limit in limits.items() if not rate[name] <= limit}  # 0 of 0 is NaN and meets none
        if not unmet & {"false_refusal_rate", "hallucination_rate"}:
            return path[-1]
        following = step_thresholds(path[-1], 1 if "false_refusal_rate" in unmet else -1)
        if following in path:
            return following
        path.append(following)
    return path[-1]


BEST = 10  # trials that the line search starts from


def _python_scalar(value: Any) -> Any:  # noqa: ANN401 - numpy or Python scalar
    return value.item() if hasattr(value, "item") else value
