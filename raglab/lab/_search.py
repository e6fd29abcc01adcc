"""Optuna proposes a batch, replay judges it, finished batches are kept: a study that was killed ends the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from tqdm import tqdm

from raglab import metrics
from raglab.lab.goal import Goal
from raglab.lab.space import Range, changed
from raglab.replay import Tally, tally
from raglab.store.policies import Policy
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd

Space = dict[str, optuna.distributions.BaseDistribution]
Trials = list[optuna.trial.FrozenTrial]


def search(
    trace: Trace,
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
