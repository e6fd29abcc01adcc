"""Search (shore): Optuna proposes values, replay judges them, a storage keeps them (S6.4, S6.5)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import optuna
from optuna.trial import TrialState

from raglab import metrics
from raglab.decision.answer_text import MAX_MISSING
from raglab.decision.outcome_codes import CELL_OF_CODE
from raglab.decision.trace_view import TraceView
from raglab.lab.arrays import AnyArray, FloatArray
from raglab.lab.goals import Goal, front
from raglab.lab.search_space import SearchRange, set_values
from raglab.lab.store_errors import (
    DAMAGED,
    OTHER,
    Fault,
    as_store_errors,
    check_beside,
    fault_of,
    opening_lock,
    sqlite_files,
    store_error,
)
from raglab.lab.study_journal import STUDY_FILE, WholeLinesLock, drop_half_line
from raglab.progress import progress
from raglab.replay import tally, trace_codes
from raglab.store.files import InputError, Where, input_error, make_folder
from raglab.store.policies import Policy
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

# of a study, and which way each is wanted
OBJECTIVES = {"expected_cost": "minimize", "coverage": "maximize"}
# share of a trial's answered cases judged by text that lack a recorded answer
MISSING = "missing_answers"
PLACE = "place"  # attribute of a trial that was proposed here: its place in the search, from 0
SAMPLERS: Mapping[str, Callable[..., optuna.samplers.BaseSampler]] = {
    "nsga2": optuna.samplers.NSGAIISampler,
    "tpe": optuna.samplers.TPESampler,
    "random": optuna.samplers.RandomSampler,
}
ABOUT = "raglab"  # attribute of a study: what its trials were judged on, and by
IDLE_S = 30.0  # seconds that a transaction may stand open in a storage with nothing done
LONGEST = 80  # characters of a setting that are kept as they are; of a longer one its digest
FINALISTS, AGAIN = 20, 5  # best trials that are judged once more, on so many times the chance
KEPT = "the study goes on from its whole trials"
Space = dict[str, optuna.distributions.BaseDistribution]
Trials = list[optuna.trial.FrozenTrial]
OnTrials = Callable[["pd.DataFrame"], bool | None]


class Problem(NamedTuple):
    """What is searched, from where, and what each trial is judged on.

    start: policy that the tried values are put into. space: ranges by path. first: values that are
    tried before the sampler proposes any. settings: `trials`, `batch_size`, `sampler`, `seed`,
    `arm`, and what else tells one study from another. weight: of each case, where they were drawn
    with several probabilities, [Q].
    """

    trace: TraceView
    start: Policy
    space: Mapping[str, SearchRange]
    goal: Goal
    first: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    weight: FloatArray | None = None

    @property
    def name(self) -> str:
        """Name of the study where it is given none.

        Corpus, and digest of all that tells it from another.
        """
        corpus = self.trace.meta.get("corpus", "study")
        return f"{corpus}-{digest(canonical_json(settings_texts(self.settings)), 8)}"


class Search(NamedTuple):
    """Outcome of a search.

    study: Optuna's, of the storage where there is one. trials: a row a trial of this search. best:
    the feasible trial of least expected cost; where none is feasible, the one that misses the
    targets by least in sum.
    """

    study: optuna.Study
    trials: pd.DataFrame
    best: optuna.trial.FrozenTrial


class JudgedTrial(NamedTuple):
    """What a trial came to: its row, `k` and `n` of its rates, its constraints by name."""

    row: dict[str, Any]
    counts: dict[str, list[float]]
    constraints: dict[str, float]


def run_search(
    problem: Problem,
    *,
    storage: str | Path | None,
    study_name: str | None,
    on_trials: OnTrials | None,
) -> Search:
    """Search the space.

    The search runs in memory and draws the same with and without a storage. A storage is believed
    in nothing: a search that goes on proposes and judges again, and adds the trials that the
    storage lacks, batch by batch.

    Args:
      storage, study_name, on_trials: see `raglab.tune`.

    Raises:
      InputError: the storage is locked, away, full or closed meanwhile; what is stored stays.
    """
    import pandas as pd

    trials, size = check_search(problem.settings)
    name, distributions, rows = study_name or problem.name, _distributions(problem.space), []
    with quiet_optuna():
        study = _new_study(optuna.storages.InMemoryStorage(), name)
        stored = None if storage is None else open_study(storage, name, problem.settings)
        for values in problem.first[:trials]:
            study.enqueue_trial(dict(values))
        parents: Trials = []
        for begin in progress(range(0, trials, size), "study", "batch"):
            study.sampler = _batch_sampler(problem, study, begin, parents)
            parents = getattr(study.sampler, "parents", [])
            running = [study.ask(distributions) for _ in range(min(size, trials - begin))]
            batch = judge_trials(problem, [trial.params for trial in running])
            for trial, judged in zip(running, batch, strict=True):
                judged.row["number"] = trial.number
                # Counts go along: whoever reads the stored study has exact intervals of its rates.
                attributes = {PLACE: trial.number, "policy_id": judged.row["policy_id"]}
                for key, value in (attributes | {"counts": judged.counts}).items():
                    trial.set_user_attr(key, value)
                # Constraints are set before the trial is told, or a sampler takes it for feasible.
                for key, over in judged.constraints.items():
                    trial.set_constraint(key, over)
                study.tell(trial, [judged.row[objective] for objective in OBJECTIVES])
            if stored is not None:
                with as_store_errors(str(storage), KEPT):
                    numbers = _stored_numbers(stored, study)
                    finished = study.get_trials(deepcopy=False)[begin:]
                    stored.add_trials([trial for trial in finished if trial.number not in numbers])
            rows += [judged.row for judged in batch]
            if on_trials is not None and on_trials(pd.DataFrame(rows[begin:])) is False:
                break
        table = pd.DataFrame(rows)
        if stored is not None:
            with as_store_errors(str(storage), KEPT):
                table["number"] = table["number"].map(_stored_numbers(stored, study))
            study = stored
    order = table.sort_values(["violation", "expected_cost", "number"], kind="stable")["number"]
    return Search(study, table, study.get_trials(deepcopy=False)[int(order.iloc[0])])


def check_search(settings: Mapping[str, Any]) -> tuple[int, int]:
    """How many trials a search has, and how many of them a batch.

    Raises:
      ValueError: one of them is below 1, or an unknown sampler.
    """
    trials, size = int(settings["trials"]), int(settings["batch_size"])
    name = settings["sampler"]
    if name not in SAMPLERS:
        refuse(f"sampler must be one of {', '.join(SAMPLERS)}", f"{name!r}", "correct the name")
    if trials < 1 or size < 1:
        msg = f"trials and batch_size must be at least 1, got {trials} and {size}."
        raise ValueError(msg)
    return trials, size


def judge_trials(problem: Problem, values: Sequence[Mapping[str, Any]]) -> list[JudgedTrial]:
    """What trials of some values come to, by replay."""
    goal, arm = problem.goal, problem.settings["arm"]
    policies = [set_values(problem.start, trial_values) for trial_values in values]
    # All policies share one pass over the trace, which is what a batch is for.
    counted = tally(problem.trace, policies, arm)
    n = metrics.denominators(counted.counts, counted.labels)
    cells: AnyArray = counted.cells
    if problem.weight is not None:
        codes = trace_codes(problem.trace, policies, arm)
        cells = metrics.weighed_cases(CELL_OF_CODE[codes], problem.weight).weights
    excess, constraints = goal.excess(cells), goal.constraints
    if counted.basis.text:  # one that lacks too many recorded answers is not compared (rule S6.3)
        share = counted.missing[:, :1] / np.maximum(counted.missing[:, 1:], 1)
        excess, constraints = np.hstack([excess, share - MAX_MISSING]), (*constraints, MISSING)
    there, cost = goal.in_traffic(cells), goal.cost(cells)
    rates = metrics.rates(metrics.rate_counts(there), metrics.label_counts(there))
    judged = []
    for at, (policy, tried, over) in enumerate(zip(policies, values, excess, strict=True)):
        row: dict[str, Any] = {
            "number": at,
            "policy_id": policy.policy_id,
            **dict(zip(metrics.RATES, rates[at].tolist(), strict=True)),
            "expected_cost": float(cost[at]),
            "feasible": bool((over <= 0.0).all()),
            "violation": float(np.maximum(over, 0.0).sum()),
        }
        if counted.basis.text:
            row[MISSING] = float(over[-1] + MAX_MISSING)
        pairs = np.stack([counted.counts[at], n[at]], axis=1).tolist()
        counts = dict(zip(metrics.RATES, pairs, strict=True))
        limits = dict(zip(constraints, over.tolist(), strict=True))
        judged.append(JudgedTrial(row | dict(tried), counts, limits))
    return judged


def _new_study(storage: optuna.storages.BaseStorage, name: str) -> optuna.Study:
    """The study of a storage, made where it is not there, its objectives named."""
    study = optuna.create_study(
        storage=storage, study_name=name, directions=list(OBJECTIVES.values()), load_if_exists=True
    )
    if _has_objectives(study) and not study.metric_names:
        study.set_metric_names(list(OBJECTIVES))
    return study


def _has_objectives(study: optuna.Study) -> bool:
    return [way.name.lower() for way in study.directions] == list(OBJECTIVES.values())


def open_study(storage: str | Path, name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """The stored study of a name, made where it is not there.

    Args:
      storage: URL of a database, or a folder, where it is a file that processes of one machine may
        share: a journal of Optuna's, ten times as fast as SQLite.
      settings: of the search.

    Raises:
      InputError: no storage, a damaged one, or a study of another trace, space or setting.
    """
    shown = str(storage)
    # A database serves several machines; a folder needs no server.
    is_folder = "://" not in shown
    files = [make_folder(Path(storage)) / STUDY_FILE] if is_folder else [*sqlite_files(shown)]
    # Of two processes that begin at once the second reads the settings that the first has stated.
    with opening_lock(*files):
        try:
            place: Any = _journal(files[0]) if is_folder else _database(shown)
            study = _new_study(place, name)
            about, search_texts = study.user_attrs.get(ABOUT), settings_texts(settings)
        except InputError:
            raise
        except Exception as error:  # each database has errors of its own
            fault = fault_of(error)
            if fault is OTHER:
                # of a line of the file
                is_line = is_folder and isinstance(error, ValueError | LookupError | TypeError)
                fault = DAMAGED if is_line else NO_STORAGE
            raise store_error(shown, error, fault) from error
        # Trials of other objectives or settings do not compare with those of this search.
        differ = [] if _has_objectives(study) else ["objectives"]
        if about is None and not differ:
            study.set_user_attr(ABOUT, search_texts)
        elif about != search_texts:
            stated = about if isinstance(about, Mapping) else {}
            differ += [key for key, text in search_texts.items() if stated.get(key) != text]
            rule, value = f"study {name!r} must be of this search", f"other {', '.join(differ)}"
            raise input_error(Where(shown), rule, "choose another study_name, or none", value)
    return study


NO_STORAGE = Fault(
    "a storage must be a folder, or the URL of a database, that Optuna can open",
    "correct it, or choose another",
)


def _journal(file: Path) -> optuna.storages.BaseStorage:
    """Storage of a file's studies; a half line is removed before anything is read or appended."""
    journal = optuna.storages.journal
    # Optuna's lock is a link to this path, read from the file's folder: a relative one leads
    # nowhere, and the lock of a killed process would never count as old.
    file = file.absolute()
    lock = WholeLinesLock(file, journal.JournalFileSymlinkLock(str(file)))
    drop_half_line(lock)
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(file), lock))


def _database(url: str) -> optuna.storages.BaseStorage:
    """Optuna's storage of a URL, whose connections outlive a restart of the server.

    A transaction that a process leaves open, because it was stopped or its machine is gone, holds a
    lock of the study: the server ends it.
    """
    from raglab.store.database import limit_idle_transactions

    check_beside(url)
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    limit_idle_transactions(storage.engine, IDLE_S)
    return optuna.storages.get_storage(storage)


def settings_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What tells one search from another.

    All settings but the number of trials, long ones by their digest.
    """
    texts = {
        key: canonical_json(value, default=float)
        for key, value in settings.items()
        if key != "trials"
    }
    return {key: text if len(text) <= LONGEST else digest(text, 16) for key, text in texts.items()}


def _stored_numbers(stored: optuna.Study, study: optuna.Study) -> dict[int, int]:
    """Number in a storage of each trial of a search that is there with the same values."""
    own = {trial.number: trial.params for trial in study.get_trials(deepcopy=False)}
    places = [
        (trial.user_attrs.get(PLACE), trial)
        for trial in stored.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ]
    return {
        place: trial.number
        for place, trial in places
        if isinstance(place, int) and own.get(place) == trial.params
    }


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna without a line a trial or a word on what is new in it.

    The caller's level is back afterwards.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


class TrialOutcome(NamedTuple):
    """What a trial came to.

    Its value, by how much it exceeds each limit (at most 0 keeps it), and what to keep too.
    """

    value: float
    excess: Mapping[str, float]
    measures: Mapping[str, Any]


def maximise(
    judge: Callable[[Mapping[str, Any]], TrialOutcome],
    space: Mapping[str, SearchRange],
    *,
    trials: int,
    sampler: str,
    seed: int,
    first: Sequence[Mapping[str, Any]] = (),
) -> tuple[optuna.Study, pd.DataFrame]:
    """Search one value trial by trial.

    A row a trial: `number`, `value`, `feasible`, its measures, what was tried.

    Args:
      first: values that are tried before the sampler proposes any.
    """
    import pandas as pd

    check_search({"trials": trials, "batch_size": 1, "sampler": sampler})
    rows: list[dict[str, Any]] = []
    with quiet_optuna():
        study = optuna.create_study(direction="maximize", sampler=SAMPLERS[sampler](seed=seed))
        distributions = _distributions(space)
        for values in first[:trials]:
            study.enqueue_trial(dict(values))
        for _ in progress(range(trials), "study", "trial"):
            trial = study.ask(distributions)
            judged = judge(trial.params)
            # Constraints are set before the trial is told, or the sampler takes it for feasible.
            for name, over in judged.excess.items():
                trial.set_constraint(name, float(over))
            study.tell(trial, judged.value)
            feasible = all(over <= 0.0 for over in judged.excess.values())
            row = {"number": trial.number, "value": judged.value, "feasible": feasible}
            rows.append(row | dict(judged.measures) | trial.params)
    return study, pd.DataFrame(rows)


def finalists(trials: pd.DataFrame, nearest: str = "value") -> list[dict[str, Any]]:
    """Best feasible trials and the first one, in the order they were tried.

    Args:
      nearest: column of the rank among all where none is feasible, the least first; `value`, the
        largest first, where not given.
    """
    feasible = trials[trials["feasible"]]
    pool, order = (trials, nearest) if feasible.empty else (feasible, "value")
    ascending = [order != "value", True]
    best = pool.sort_values([order, "number"], ascending=ascending, kind="stable").head(FINALISTS)
    rows = pool[pool["number"].isin([0, *best["number"]])].to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


class _Batchwise(optuna.samplers.NSGAIISampler):  # type: ignore[misc] # Optuna is not followed
    """NSGA-II whose generations are the batches: parents are chosen once a batch, then fixed.

    Optuna's own reads the parents of a batch from its cache, in another order than it chose them.
    """

    space: Space
    parents: Trials = []  # noqa: RUF012 - replaced, never changed

    def infer_relative_search_space(self, study: object, trial: object) -> Space:  # noqa: ARG002
        """Space of every trial, told and not inferred from thousands of trials again."""
        return self.space

    def get_trial_generation(self, study: object, trial: object) -> int:  # noqa: ARG002
        """Generation of a trial: the one that is drawn."""
        return 1

    def get_population(self, study: object, generation: int) -> Trials:  # noqa: ARG002
        """Nothing: the last batch stands among those that parents are chosen of."""
        return []

    def get_parent_population(self, study: object, generation: int) -> Trials:  # noqa: ARG002
        """Parents of this batch; until they are chosen, the last batch and its parents."""
        return self.parents


def pareto_front(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials that no other beats in expected cost and coverage.

    Those that meet the targets only, where any does.
    """
    pool = trials[trials["feasible"]] if trials["feasible"].any() else trials
    best = pool[front(pool["expected_cost"].to_numpy(), -pool["coverage"].to_numpy())]
    return best.drop_duplicates(["expected_cost", "coverage"], ignore_index=True)


def _distributions(space: Mapping[str, SearchRange]) -> Space:
    """The space as Optuna has it."""
    kinds, distributions = optuna.distributions, Space()
    for path, extent in space.items():
        if extent.is_switch:
            distributions[path] = kinds.CategoricalDistribution([False, True])
        elif extent.whole:
            distributions[path] = kinds.IntDistribution(int(extent.low), int(extent.high))
        else:
            distributions[path] = kinds.FloatDistribution(extent.low, extent.high, log=extent.log)
    return distributions


def _batch_sampler(
    problem: Problem, study: optuna.Study, begin: int, parents: Trials
) -> optuna.samplers.BaseSampler:
    """Sampler of the places from `begin` on, with a stream of its own.

    Args:
      parents: of the batch before.
    """
    settings = problem.settings
    name, size = str(settings["sampler"]), int(settings["batch_size"])
    stream = int(np.random.SeedSequence([int(settings["seed"]), begin]).generate_state(1)[0])
    if name != "nsga2":
        return SAMPLERS[name](seed=stream)
    sampler = _Batchwise(population_size=max(2, size), seed=stream)
    sampler.space = _distributions(problem.space)
    if begin:
        sampler.parents = [*study.get_trials(deepcopy=False)[begin - size : begin], *parents]
        sampler.parents = sampler.select_parent(study, 1)
    return sampler


def trial_policies(
    start: Policy, trials: pd.DataFrame, stated: Mapping[str, Any] | None = None
) -> list[Policy]:
    """Policies of the trials of a search, in their order.

    Args:
      stated: values by path that all of them take instead of their own.
    """
    tried = trials[[column for column in trials.columns if "." in column]]
    rows = tried.astype(object).to_dict("records")  # Python's own numbers
    return [set_values(start, {**cast("dict[str, Any]", row), **(stated or {})}) for row in rows]
