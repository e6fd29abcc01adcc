"""Search: an Optuna study proposes, replay judges a batch at a time, an exact line search polishes the winner."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from tqdm.auto import tqdm

from raglab import metrics
from raglab.lab.polish import polish
from raglab.lab.space import Range, always_answer, always_refuse, changed, full_space, published, stepped_by_hand, trial_of
from raglab.metrics import OBJECTIVES, TARGETS, Paired
from raglab.replay import Tally, decide, sweep, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

SamplerName = Literal["nsga2", "nsga3", "tpe", "qmc", "random"]
MANUAL_STEPS = 40
STUDY = "raglab"


class Goal(NamedTuple):
    """What a study wants: low objectives, targets kept; `score` says it in one number.

    targets: rate -> highest value. penalty: what a point above a target costs beside the rate itself.
    """

    objectives: tuple[str, ...] = OBJECTIVES
    targets: Mapping[str, float] = TARGETS
    penalty: float = 1.0

    def rates(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Objectives, [..., O]; a rate of nothing is 1: it meets no target (rule S6.2)."""
        every = metrics.rates(counts, labels)
        picked = every[..., [metrics.RATES.index(name) for name in self.objectives]]
        absent = np.array([_label_count(name, labels) == 0 for name in self.objectives])
        return np.where(np.isnan(picked), np.where(absent, 0.0, 1.0), picked)

    def excess(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far each target is exceeded, [..., T]; negative where it is met."""
        every = metrics.rates(counts, labels)
        picked = every[..., [metrics.RATES.index(name) for name in self.targets]]
        return np.where(np.isnan(picked), 1.0, picked) - np.array(list(self.targets.values()))

    def score(self, counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum of the objectives and of `penalty` times what exceeds the targets, [...]; lower is better."""
        over = np.maximum(self.excess(counts, labels), 0.0).sum(axis=-1)
        total: NDArray[np.float64] = self.rates(counts, labels).sum(axis=-1) + self.penalty * over
        return total


def _label_count(name: str, labels: NDArray[np.int64]) -> int:
    if name == "false_refusal_rate":
        return int(labels[Status.ok])
    if name == "missed_ambiguity_rate":
        return int(labels[Status.ambiguous])
    return int(labels.sum())


@dataclass(frozen=True)
class TuneResult:
    """Outcome of a study.

    policy: the winner, polished. incumbent: what it had to beat. policies: name -> policy of every row of
    `comparison`. trials: a row a trial (values tried, objectives, targets, score, policy_id). pareto: the trials
    no other beats. plateaus: how far each threshold may move at no cost. comparison: policies × rates on the cases
    that the study did not see. paired: tuned against incumbent. notes: what a reader must know. tuned_on, judged_on:
    the traces.
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
    study: optuna.Study
    settings: Mapping[str, Any]

    def report(self, path: str | Path) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases."""
        from raglab.lab.report import write_report

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
    start = policy if policy is not None else Policy.load()
    wanted = goal or Goal()
    tuned_on, judged_on, notes = _splits(trace)
    ranges = dict(space) if space is not None else full_space(tuned_on, start, arm)
    incumbent = published(start)
    settings = {
        "arm": arm, "trials": trials, "sampler": sampler, "batch_size": batch_size, "seed": seed, "targets": dict(wanted.targets),
        "objectives": list(wanted.objectives), "penalty": wanted.penalty, "start": start.policy_id, "trace": trace.fingerprint,
        "space": {path: list(extent[:2]) for path, extent in ranges.items()},
    }  # fmt: skip
    by_hand = manual_loop(tuned_on, incumbent, wanted, arm)
    begins = {one.policy_id: one for one in (start, incumbent, by_hand, always_answer(start))}
    first = [trial_of(one, ranges) for one in begins.values()]
    study, seen = _search(tuned_on, start, ranges, wanted, settings, first, Path(resume) if resume else None, on_batch, progress=progress)
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
    return trace, trace, ["The cases have no splits tune and report: tuned and judged on the same cases, so the tuned rates flatter (rule S6.5)."]


def compared(trace: Trace, first: Policy, second: Policy, arm: str | None = None) -> dict[str, Paired]:
    """Paired tests of two policies on the same cases: contract passed, and questions answered that are labelled ok."""
    one, two = decide(trace, first, arm), decide(trace, second, arm)
    label = one.tables.evidence.label
    ok = label == Status.ok
    return {
        "pass": metrics.paired(one.right, two.right),
        "not falsely refused": metrics.paired((one.status != Status.refuse)[ok], (two.status != Status.refuse)[ok]),
        "not hallucinated": metrics.paired(one.right | (one.status != Status.ok), two.right | (two.status != Status.ok)),
    }


def manual_loop(trace: Trace, policy: Policy, goal: Goal, arm: str | None = None) -> Policy:
    """The source's way: one step looser while false refusals exceed their target, else one step tighter while
    hallucinations exceed theirs; ends when both are met, when it returns to where it was, or after 40 steps.

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


def _search(
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
    storage: optuna.storages.BaseStorage, sampler: optuna.samplers.BaseSampler, coming: Sequence[optuna.trial.FrozenTrial]
) -> None:
    """Let a genetic sampler choose the parents of stored trials when the first run did: its choice hangs on the order."""
    if isinstance(sampler, optuna.samplers.NSGAIISampler | optuna.samplers.NSGAIIISampler):
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
        "nsga3": lambda: samplers.NSGAIIISampler(population_size=size, seed=stream),
        "tpe": lambda: samplers.TPESampler(seed=stream),
        "qmc": lambda: samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False),
        "random": lambda: samplers.RandomSampler(seed=stream),
    }
    if name not in make:
        msg = f"sampler must be one of {', '.join(make)}, got {name!r}."
        raise ValueError(msg)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = make[name]()
    if name in {"nsga2", "nsga3", "qmc"}:  # all trials have the same space: told, not inferred from thousands of trials again
        sampler.infer_relative_search_space = lambda study, trial: space  # type: ignore[method-assign]  # noqa: ARG005
    return sampler


def _rows(done: Sequence[optuna.trial.FrozenTrial], policies: Sequence[Policy], counted: Tally, goal: Goal) -> list[dict[str, Any]]:
    every = metrics.rates(counted.counts, counted.labels)
    scores = goal.score(counted.counts, counted.labels)
    feasible = (goal.excess(counted.counts, counted.labels) <= 0.0).all(axis=1)
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


def _best(start: Policy, seen: pd.DataFrame, count: int = 10) -> list[Policy]:
    """The best trials by score, one for each outcome, for the line search to start from."""
    ordered = seen.sort_values(["score", "number"], kind="stable").drop_duplicates(list(metrics.RATES))
    paths = [column for column in seen.columns if "." in column]
    return [changed(start, {path: _plain(row[path]) for path in paths}) for _, row in ordered.head(count).iterrows()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - numpy or Python scalar
    return value.item() if hasattr(value, "item") else value


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
                distributions={key: optuna.distributions.json_to_distribution(text) for key, text in record["distributions"].items()},
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
                "values": trial.values,
                "params": trial.params,
                "distributions": {key: optuna.distributions.distribution_to_json(d) for key, d in trial.distributions.items()},
                "system_attrs": trial.system_attrs,
                "row": dict(row),
            }
            for trial, row in zip(done, rows, strict=True)
        ]
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(records), encoding="utf-8")
        partial.replace(path)
