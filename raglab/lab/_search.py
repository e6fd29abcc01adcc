"""Optuna proposes a batch, replay judges it, finished batches are kept: a study that was killed ends the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
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

STUDY = "raglab"


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
        storage = optuna.storages.InMemoryStorage()
        study = optuna.create_study(storage=storage, study_name=STUDY, directions=["minimize"] * len(goal.objectives))
        distributions = {path: _distribution(extent) for path, extent in space.items()}
        rows: list[dict[str, Any]] = []
        kept = _Batches(folder, settings)
        for begin in tqdm(range(0, trials, size), desc="study", unit="batch", disable=not progress):
            count = min(size, trials - begin)
            known = kept.read(begin, count)
            study.sampler = _sampler(str(settings["sampler"]), int(settings["seed"]), begin, size, distributions)
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
                _choose_parents(storage, study.sampler, known.trials)
                study.add_trials(known.trials)
                rows += known.rows
            if on_batch is not None:
                on_batch(begin + count, np.array([[row[name] for name in goal.objectives] for row in rows[begin:]]))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return study, pd.DataFrame(rows)


def _choose_parents(
    storage: optuna.storages.BaseStorage,
    sampler: optuna.samplers.BaseSampler,
    coming: Sequence[optuna.trial.FrozenTrial],
) -> None:
    """Let a genetic sampler choose parents when the first run did: its choice hangs on the order."""
    if isinstance(sampler, optuna.samplers.NSGAIISampler):
        born = {value for trial in coming for key, value in trial.system_attrs.items() if key.endswith(":generation")}
        for generation in sorted(born):
            sampler.get_parent_population(optuna.load_study(study_name=STUDY, storage=storage), generation)


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
    name: str, seed: int, begin: int, size: int, space: dict[str, optuna.distributions.BaseDistribution]
) -> optuna.samplers.BaseSampler:
    """Sampler of one batch, with a stream of its own, so that a resumed study draws what it would have drawn."""
    stream = int(np.random.SeedSequence([seed, begin]).generate_state(1)[0])
    samplers = optuna.samplers
    make: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "nsga2": lambda: samplers.NSGAIISampler(population_size=size, seed=stream),
        "tpe": lambda: samplers.TPESampler(seed=stream),
        "random": lambda: samplers.RandomSampler(seed=stream),
    }
    if name not in make:
        msg = f"sampler must be one of {', '.join(make)}, got {name!r}."
        raise ValueError(msg)
    sampler = make[name]()
    if name == "nsga2":  # all trials have one space: told, not inferred from thousands of trials again
        sampler.infer_relative_search_space = lambda study, trial: space  # noqa: ARG005
    return sampler


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
        text = json.dumps({key: value for key, value in settings.items() if key != "trials"}, sort_keys=True)
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
