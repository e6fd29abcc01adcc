"""Optuna, tune."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from tqdm import tqdm

from raglab import metrics
from raglab.certify import cases_needed
from raglab.lab.report import blocks
from raglab.lab.search_space import (
    Goal,
    Range,
    always_answer,
    always_refuse,
    changed,
    full_space,
    polish,
    published,
    stepped_by_hand,
    trial_of,
    within,
)
from raglab.metrics import Paired
from raglab.replay import Tally, decide, sweep, tally
from raglab.store.loaders import Policy
from raglab.store.traces import Trace
from raglab.values import Status, TraceData

if TYPE_CHECKING:
    import pandas as pd

Space = dict[str, optuna.distributions.BaseDistribution]
Trials = list[optuna.trial.FrozenTrial]


def search(
    trace: TraceData,
    start: Policy,
    space: Mapping[str, Range],
    goal: Goal,
    settings: Mapping[str, Any],
    first: Sequence[Mapping[str, Any]],
    folder: Path | None,
    on_batch: Callable[[int, NDArray[np.float64]], None] | None,
    *,
    progress: bool,
) -> tuple[optuna.Study, pd.DataFrame]:
    """Search the space: the Optuna study and a row a trial."""
    import pandas as pd

    trials, size = int(settings["trials"]), int(settings["batch_size"])
    if trials < 1 or size < 1:
        msg = f"trials and batch_size must be at least 1, got {trials} and {size}."
        raise ValueError(msg)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(directions=["minimize"] * len(goal.objectives))
        distributions = {path: _distribution(extent) for path, extent in space.items()}
        rows: list[dict[str, Any]] = []
        kept = _Batches(folder, settings)
        before: tuple[Trials, Trials] = ([], [])
        for begin in tqdm(range(0, trials, size), desc="study", unit="batch", disable=not progress):
            count = min(size, trials - begin)
            study.sampler = sampler = _sampler(settings, begin, distributions, before)
            if isinstance(sampler, _Batchwise) and begin:
                sampler.parents = sampler.select_parent(study, sampler.generation)
            known = kept.read(begin, count)
            if known is None:
                for given in first[begin : begin + count] if begin < len(first) else ():
                    study.enqueue_trial(dict(given))
                asked = [study.ask(distributions) for _ in range(count)]
                policies = [changed(start, trial.params) for trial in asked]
                counted = tally(trace, policies, settings["arm"])
                rates, excess = goal.rates(counted.counts, counted.labels), goal.excess(counted.counts, counted.labels)
                for trial, values, over in zip(asked, rates, excess, strict=True):
                    for name, value in zip(goal.targets, over, strict=True):
                        trial.set_constraint(name, float(value))
                    study.tell(trial, [float(value) for value in values])
                done = study.get_trials(deepcopy=False)[begin : begin + count]
                rows += _rows(done, policies, counted, goal)
                kept.write(begin, done, rows[begin:])
            else:
                study.add_trials(known.trials)
                done = study.get_trials(deepcopy=False)[begin : begin + count]
                rows += known.rows
            before = (done, sampler.parents if isinstance(sampler, _Batchwise) else [])
            if on_batch is not None:
                on_batch(begin + count, np.array([[row[name] for name in goal.objectives] for row in rows[begin:]]))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return study, pd.DataFrame(rows)


class Judged(NamedTuple):
    """What a trial came to: its value, by how much it exceeds each limit (at most 0 keeps it), and what to keep too."""

    value: float
    excess: Mapping[str, float]
    seen: Mapping[str, Any]


def maximised(
    judge: Callable[[Mapping[str, Any]], Judged],
    space: Mapping[str, Range],
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
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="maximize", sampler=_one_by_one(sampler, seed))
        distributions = {path: _distribution(extent) for path, extent in space.items()}
        for given in first[:trials]:
            study.enqueue_trial(dict(given))
        rows: list[dict[str, Any]] = []
        for _ in tqdm(range(trials), desc="study", unit="trial", disable=not progress):
            trial = study.ask(distributions)
            found = judge(trial.params)
            for name, over in found.excess.items():
                trial.set_constraint(name, float(over))
            study.tell(trial, found.value)
            met = all(over <= 0.0 for over in found.excess.values())
            kept = {"number": trial.number, "value": found.value, "feasible": met}
            rows.append(kept | dict(found.seen) | trial.params)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return study, pd.DataFrame(rows)


def _one_by_one(name: str, seed: int) -> optuna.samplers.BaseSampler:
    make: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    return _named(make, name)


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


def pareto_front(trials: pd.DataFrame, objectives: Sequence[str]) -> pd.DataFrame:
    """Trials that no other beats in all objectives; those that meet the targets only, where there are any."""
    pool = trials[trials["feasible"]] if trials["feasible"].any() else trials
    values = pool[list(objectives)].fillna(1.0).to_numpy()
    distinct, first = np.unique(values, axis=0, return_index=True)
    beaten = np.array([bool(((distinct <= row).all(axis=1) & (distinct < row).any(axis=1)).any()) for row in distinct])
    return pool.iloc[np.sort(first[~beaten])].reset_index(drop=True)


def _distribution(extent: Range) -> optuna.distributions.BaseDistribution:
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
        "nsga2": lambda: _Batchwise(size, stream, space, begin // size, before),
        "tpe": lambda: optuna.samplers.TPESampler(seed=stream),
        "random": lambda: optuna.samplers.RandomSampler(seed=stream),
    }
    return _named(make, name)


def _named(make: Mapping[str, Callable[[], optuna.samplers.BaseSampler]], name: str) -> optuna.samplers.BaseSampler:
    if name not in make:
        msg = f"sampler must be one of {', '.join(make)}, got {name!r}."
        raise ValueError(msg)
    return make[name]()


def _rows(
    done: Sequence[optuna.trial.FrozenTrial], policies: Sequence[Policy], counted: Tally, goal: Goal
) -> list[dict[str, Any]]:
    every = metrics.rates(counted.counts, counted.labels)
    scores = goal.score(counted.counts, counted.labels)
    feasible = np.all(goal.excess(counted.counts, counted.labels) <= 0.0, axis=1).tolist()
    return [
        {
            "number": trial.number,
            "policy_id": policy.policy_id,
            **{name: float(value) for name, value in zip(metrics.RATES, rates, strict=True)},
            "score": float(score),
            "feasible": bool(met),
            **trial.params,
        }
        for trial, policy, rates, score, met in zip(done, policies, every, scores, feasible, strict=True)
    ]


class _Known(NamedTuple):
    trials: list[optuna.trial.FrozenTrial]
    rows: list[dict[str, Any]]


class _Batches:
    """Finished batches on disk, one JSON file each, of one study only."""

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        made_by = {"raglab": version("raglab"), "optuna": optuna.__version__}
        text = json.dumps({key: value for key, value in settings.items() if key != "trials"} | made_by, sort_keys=True)
        self.folder = None if folder is None else folder / f"study-{sha256(text.encode()).hexdigest()[:16]}"
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, begin: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{begin:07d}.json"

    def read(self, begin: int, count: int) -> _Known | None:
        path = self._path(begin)
        if path is None or not path.is_file():
            return None
        records = json.loads(path.read_text(encoding="utf-8"))
        if len(records) != count:
            return None
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
        return _Known(trials, [record["row"] for record in records])

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
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(records), encoding="utf-8")
        partial.replace(path)


SamplerName = Literal["nsga2", "tpe", "random"]
MANUAL_STEPS = 40


@dataclass(frozen=True)
class TuneResult:
    """Outcome of a study.

    policy: the winner, polished. incumbent: what it had to beat. policies: name -> policy of every row of
    `comparison`. trials: a row a trial (values tried, objectives, targets, score, policy_id). pareto: the trials
    no other beats. plateaus: how far each threshold may move at no cost. comparison: policies × rates on the cases
    that the study did not see. paired: tuned against incumbent. notes: what a reader must know. tuned_on, judged_on:
    the traces. study: Optuna's own, for its plots and dashboards.
    """

    policy: Policy
    incumbent: Policy
    policies: Mapping[str, Policy]
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
    space: Mapping[str, Range] | None = None,
    resume: str | Path | None = None,
    on_batch: Callable[[int, NDArray[np.float64]], None] | None = None,
    progress: bool = False,
) -> TuneResult:
    """Search for better thresholds on the split `tune`, judge what is found on the split `report`.

    Args:
      trace: without splits all cases serve for both, and the notes say that the rates flatter.
      policy: where the search starts, and whose patterns it keeps; the published thresholds where not given.
      trials: configurations tried before the line search.
      sampler: of Optuna. batch_size: configurations proposed and replayed together.
      space: path -> range; `full_space` where not given.
      resume: folder that keeps finished batches; a study killed and started again ends with the same result.
      on_batch: called after each batch with the number of trials and the objectives of the batch, [B, O].

    Raises:
      ValueError: unknown sampler, trials below 1, or a folder of another study.

    Source: rules S6.2, S6.4, S6.5.
    """
    start = within(policy if policy is not None else Policy.load(), trace)
    wanted = goal or Goal()
    tuned_on, judged_on, notes = _splits(trace)
    ranges = dict(space) if space is not None else full_space(tuned_on, start, arm)
    incumbent = within(published(start), trace)
    settings = {
        "arm": arm,
        "trials": trials,
        "sampler": sampler,
        "batch_size": batch_size,
        "seed": seed,
        "targets": dict(wanted.targets),
        "objectives": list(wanted.objectives),
        "penalty": wanted.penalty,
        "start": start.policy_id,
        "trace": trace.fingerprint,
        "space": {path: list(extent[:2]) for path, extent in ranges.items()},
    }
    by_hand = manual_loop(tuned_on, incumbent, wanted, arm)
    begins = {one.policy_id: one for one in (start, incumbent, by_hand, always_answer(start))}
    first = [trial_of(one, ranges) for one in begins.values()]
    study, seen = search(
        tuned_on, start, ranges, wanted, settings, first, Path(resume) if resume else None, on_batch, progress=progress
    )
    found = _best(start, seen)
    winner, plateaus = polish(tuned_on, found, list(ranges), wanted.score, incumbent, arm)
    policies = {
        "defaults": incumbent,
        "tuned": winner,
        "always-answer": always_answer(start),
        "always-refuse": always_refuse(start),
        "manual-loop": by_hand,
    }
    table = sweep(judged_on, list(policies.values()), arm)
    table.insert(0, "policy", list(policies))
    notes.append(_size_note(trace))
    front = pareto_front(seen, wanted.objectives)
    if not front["feasible"].any():
        notes.append("No trial meets all targets on the cases it was tuned on; the winner comes nearest by the score.")
    return TuneResult(
        winner, incumbent, policies, seen, front, plateaus, table,
        compared(judged_on, incumbent, winner, arm), tuple(notes), tuned_on, judged_on, study, settings,
    )  # fmt: skip


def _splits(trace: Trace) -> tuple[Trace, Trace, list[str]]:
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
    best, needs = blocks.certifiable(n), cases_needed(0.01)
    most = f"{best:.0%} at most" if best == best else "nothing"  # noqa: PLR0124 - NaN
    never = "" if n >= needs else ", never 1 %"
    return (
        f"In plain words: a set of this size can certify {most.replace('%', ' %')}{never}. "
        f"Its {where} {'holds' if rows else 'hold'} {n} answerable cases; 1 % needs {needs} answered without an error "
        "(exact binomial, 90 % confidence)."
    )


def compared(trace: Trace, first: Policy, second: Policy, arm: str | None = None) -> dict[str, Paired]:
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

    Looser while false refusals exceed their target, else tighter while hallucinations exceed theirs; it ends when both
    are met, when it returns to where it was, or after 40 steps.

    Source: rule S6.4.
    """
    limits = goal.targets
    seen = [policy]
    for _ in range(MANUAL_STEPS):
        counted = tally(trace, [seen[-1]], arm, engine="numpy")
        rate = dict(zip(metrics.RATES, metrics.rates(counted.counts[0], counted.labels), strict=True))
        if rate["false_refusal_rate"] > limits.get("false_refusal_rate", 1.0):
            following = stepped_by_hand(seen[-1], 1)
        elif not rate["hallucination_rate"] <= limits.get("hallucination_rate", 1.0):
            following = stepped_by_hand(seen[-1], -1)
        else:
            return seen[-1]
        if following in seen:
            return following
        seen.append(following)
    return seen[-1]


def _best(start: Policy, seen: pd.DataFrame, count: int = 10) -> list[Policy]:
    """The best trials by score, one for each outcome, for the line search to start from."""
    ordered = seen.sort_values(["score", "number"], kind="stable").drop_duplicates(list(metrics.RATES))
    paths = [column for column in seen.columns if "." in column]
    return [changed(start, {path: _plain(row[path]) for path in paths}) for _, row in ordered.head(count).iterrows()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - numpy or Python scalar
    return value.item() if hasattr(value, "item") else value
