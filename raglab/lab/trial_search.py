"""Search (shore): Optuna samplers, trials judged in replay batches, their storage (S6.4, S6.5).

Proposals come from the samplers themselves, and parents are chosen once a batch: 0.35 ms a trial.
The same search by `study.ask` and `study.tell` takes 1.5 ms a trial of 300 and 2.6 ms of 2,000,
where `tune` takes 1.6 times as long; with Optuna's copy of every trial that is added, 0.53 ms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import optuna
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import MAX_MISSING
from raglab.decision.outcome_codes import CELL_OF_CODE
from raglab.decision.trace_view import TraceView
from raglab.lab.search_space import Goal, SearchRange, own_trial, set_values
from raglab.lab.store_errors import (
    DAMAGED,
    OTHER,
    Fault,
    check_beside,
    fault_of,
    opening_lock,
    sqlite_files,
    store_error,
)
from raglab.lab.study_journal import STUDY_FILE, WholeLinesLock, drop_half_line
from raglab.lab.users_trials import QUEUED, outside_space, warn_outside
from raglab.progress import progress
from raglab.replay import tally, trace_codes
from raglab.store.files import InputError, Where, input_error, make_folder, shown_value
from raglab.store.policies import Policy
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

# of a study, and which way each is wanted
OBJECTIVES = {"expected_cost": "minimize", "coverage": "maximize"}
# share of a trial's answered cases judged by text that lack a recorded answer
MISSING = "missing_answers"
PLACE = "place"  # attribute of a trial that was proposed here: its place in the search, from 0
POLICY_ID = "policy_id"  # attribute of every such trial
SAMPLERS: Mapping[str, Callable[..., optuna.samplers.BaseSampler]] = {
    "nsga2": optuna.samplers.NSGAIISampler,
    "tpe": optuna.samplers.TPESampler,
    "random": optuna.samplers.RandomSampler,
}
ABOUT = "raglab"  # attribute of a study: what its trials were judged on, and by
IDLE_S = 30.0  # seconds that a transaction may stand open in a storage with nothing done
_STORES = {"optuna", "sqlalchemy", "sqlite3", "psycopg"}  # packages of errors of a storage
LONGEST = 80  # characters of a setting that are kept as they are; of a longer one its digest
Space = dict[str, optuna.distributions.BaseDistribution]
Trial: TypeAlias = optuna.trial.FrozenTrial
Trials = list[Trial]
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
    weight: NDArray[np.float64] | None = None

    @property
    def distributions(self) -> Space:
        """The space as Optuna has it."""
        return _distributions(self.space)

    @property
    def name(self) -> str:
        """Name of the study where it is given none.

        Corpus, and digest of all that tells it from another.
        """
        corpus = self.trace.meta.get("corpus", "study")
        return f"{corpus}-{digest(canonical_json(settings_texts(self.settings)), 8)}"


class Search(NamedTuple):
    """Outcome of a search.

    study: Optuna's, of the storage where there is one. trials: a row a trial, those that were
    proposed here before those of the user. proposed: how many were. best: the feasible trial of
    least expected cost; where none is feasible, the one that misses the targets by least in sum.
    """

    study: optuna.Study
    trials: pd.DataFrame
    proposed: int
    best: optuna.trial.FrozenTrial


class JudgedTrials(NamedTuple):
    """Trials as Optuna keeps them, and a row each."""

    trials: Trials
    rows: list[dict[str, Any]]


def run_search(
    problem: Problem,
    *,
    storage: str | Path | None,
    study_name: str | None,
    on_trials: OnTrials | None,
) -> Search:
    """Search the space.

    Proposals are drawn beside the storage, from trials of the search alone, so that they are the
    same with and without one; finished trials go into it batch by batch, and are proposed no more
    when the search goes on.

    Args:
      storage, study_name, on_trials: see `raglab.tune`.

    Raises:
      InputError: the storage is locked, away, full or closed meanwhile; what is stored stays.
    """
    import pandas as pd

    trials, size = check_search(problem.settings)
    name, memory = study_name or problem.name, optuna.storages.InMemoryStorage()
    rows: list[dict[str, Any]] = []
    with quiet_optuna():
        study = _new_study(memory, name)
        stored = None if storage is None else open_study(storage, name, problem.settings)
        with storage_errors(storage):
            values_by_place = {} if stored is None else _stored_values(stored, problem)
        before: tuple[Trials, Trials] = ([], [])
        for begin in progress(range(0, trials, size), "study", "batch"):
            places = range(begin, min(begin + size, trials))
            # A sampler of its own for every batch, with a stream of its own: a study that goes on
            # skips the batches that are kept and still draws what it would have drawn. A study of
            # its own as well, for Optuna's caches.
            sampler = _batch_sampler(problem, begin, begin // size, before)
            study = optuna.load_study(study_name=name, storage=memory, sampler=sampler)
            if isinstance(sampler, _Batchwise) and begin:
                sampler.parents = sampler.select_parent(study, sampler.generation)
            known = [values_by_place[place] for place in places if place in values_by_place]
            batch = _judged_batch(study, problem, places, known)
            fresh = [
                trial
                for trial in batch.trials
                if values_by_place.get(trial.user_attrs[PLACE]) != trial.params
            ]
            if stored is not None and fresh:
                with storage_errors(storage):
                    stored.add_trials(fresh)
            rows += batch.rows
            before = (
                _trials_at(study, places),
                sampler.parents if isinstance(sampler, _Batchwise) else [],
            )
            if on_trials is not None and on_trials(pd.DataFrame(batch.rows)) is False:
                break
        table = pd.DataFrame(rows)
        if stored is not None:
            with storage_errors(storage):
                study, table = stored, _append_user_trials(stored, problem, table)
    nearest = table.sort_values(["violation", "expected_cost", "number"], kind="stable")[
        "number"
    ].iloc[0]
    return Search(study, table, len(rows), study.get_trials(deepcopy=False)[int(nearest)])


def check_search(settings: Mapping[str, Any]) -> tuple[int, int]:
    """How many trials a search has, and how many of them a batch.

    Raises:
      ValueError: one of them is below 1, or an unknown sampler.
    """
    trials, size = int(settings["trials"]), int(settings["batch_size"])
    _check_sampler(settings["sampler"])
    if trials < 1 or size < 1:
        msg = f"trials and batch_size must be at least 1, got {trials} and {size}."
        raise ValueError(msg)
    return trials, size


def _check_sampler(name: str) -> None:
    if name not in SAMPLERS:
        msg = f"sampler must be one of {', '.join(SAMPLERS)}, got {name!r}; correct the name."
        raise ValueError(msg)


def _judged_batch(
    study: optuna.Study, problem: Problem, places: Sequence[int], known: Sequence[Mapping[str, Any]]
) -> JudgedTrials:
    """The trials of a batch, judged and in the study.

    Proposed by its sampler where their values are not all known.
    """
    whole = len(known) == len(places)
    if whole or not isinstance(study.sampler, optuna.samplers.TPESampler):
        batch = judge_trials(
            problem, known if whole else _proposals(study, problem, places), places
        )
        study.add_trials([AddedTrial.of(trial) for trial in batch.trials])
        return batch
    # TPE keeps away from what is tried at the time, so that its trials are under way until the
    # batch is judged.
    for values in problem.first[places[0] : places[-1] + 1]:
        study.enqueue_trial(dict(values))
    running_trials = [study.ask(problem.distributions) for _ in places]
    batch = judge_trials(problem, [trial.params for trial in running_trials], places)
    for trial, judged in zip(running_trials, batch.trials, strict=True):
        _tell(study, trial, judged)
    return batch


class AddedTrial(optuna.trial.FrozenTrial):  # type: ignore[misc] # Optuna is not followed
    """A trial that a storage in memory may keep as it is.

    That copies what is added, each range of the space too.
    """

    @classmethod
    def of(cls, trial: Trial) -> AddedTrial:
        """A trial with the same fields, for a storage to take."""
        copy = cls.__new__(cls)
        copy.__dict__.update(trial.__dict__)
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Trial:
        """A plain trial, with a number of its own, that shares what nobody writes into."""
        del memo
        copy = optuna.trial.FrozenTrial.__new__(optuna.trial.FrozenTrial)
        copy.__dict__.update(self.__dict__)
        return copy


def _tell(study: optuna.Study, trial: optuna.Trial, judged: optuna.trial.FrozenTrial) -> None:
    """Tell a trial that was asked for what it came to."""
    for key, value in judged.user_attrs.items():
        trial.set_user_attr(key, value)
    # Constraints are set before the trial is told, or a sampler takes it for feasible.
    for key, value in judged.constraints.items():
        trial.set_constraint(key, value)
    study.tell(trial, judged.values)


def _proposals(
    study: optuna.Study, problem: Problem, places: Sequence[int]
) -> list[dict[str, Any]]:
    """Values of the trials of a batch, by its sampler.

    The study is told nothing, which takes most of Optuna's time.
    """
    sampler, space = study.sampler, problem.distributions
    proposals = []
    for place in places:
        if place < len(problem.first):
            proposals.append(dict(problem.first[place]))
            continue
        trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
        trial.number = place
        together = sampler.sample_relative(
            study, trial, sampler.infer_relative_search_space(study, trial)
        )
        alone = (path for path in space if path not in together)
        values = together | {path: _alone(study, trial, path, space[path]) for path in alone}
        proposals.append({path: values[path] for path in space})
    return proposals


def _alone(
    study: optuna.Study,
    trial: optuna.trial.FrozenTrial,
    path: str,
    extent: optuna.distributions.BaseDistribution,
) -> Any:  # noqa: ANN401 - a value of the range
    if extent.single():  # nothing to draw
        return extent.to_external_repr(
            extent.choices[0] if hasattr(extent, "choices") else extent.low
        )
    return study.sampler.sample_independent(study, trial, path, extent)


def judge_trials(
    problem: Problem, values: Sequence[Mapping[str, Any]], places: Sequence[int]
) -> JudgedTrials:
    """Trials of some values, judged by replay.

    Args:
      places: of the trials in the search; none of those that were not proposed here.
    """
    goal, space = problem.goal, problem.distributions
    policies = [set_values(problem.start, trial_values) for trial_values in values]
    # All policies share one pass over the trace, which is what a batch is for.
    counted = tally(problem.trace, policies, problem.settings["arm"])
    counts, n = counted.counts, metrics.denominators(counted.counts, counted.labels)
    cells: NDArray[Any] = counted.cells
    if problem.weight is not None:
        codes = trace_codes(problem.trace, policies, problem.settings["arm"])
        cells = metrics.weighed_cases(CELL_OF_CODE[codes], problem.weight).weights
    excess, constraints = goal.excess(cells), goal.constraints
    if counted.basis.text:  # one that lacks too many recorded answers is not compared (rule S6.3)
        share = counted.missing[:, :1] / np.maximum(counted.missing[:, 1:], 1)
        excess, constraints = np.hstack([excess, share - MAX_MISSING]), (*constraints, MISSING)
    parts = (policies, values, counts, n, goal.cost(cells), excess)
    there = goal.in_traffic(cells)
    rates = metrics.rates(metrics.rate_counts(there), metrics.label_counts(there))
    trials, rows = [], []
    for at, (policy, tried, k, of, cost, over) in enumerate(zip(*parts, strict=True)):
        row = {name: float(value) for name, value in zip(metrics.RATES, rates[at], strict=True)}
        row |= {"expected_cost": float(cost), "feasible": bool((over <= 0.0).all())}
        row |= {"violation": float(np.maximum(over, 0.0).sum())}
        row |= {MISSING: float(over[-1] + MAX_MISSING)} if counted.basis.text else {}
        stated = {POLICY_ID: policy.policy_id}
        # Counts go along: whoever reads the stored study again has exact intervals of its rates.
        whole = {
            "counts": {
                name: pair
                for name, *pair in zip(metrics.RATES, k.tolist(), of.tolist(), strict=True)
            }
        }
        trial = optuna.trial.create_trial(
            values=[row[name] for name in OBJECTIVES],
            params=dict(tried),
            distributions=space,
            user_attrs={**({PLACE: places[at]} if places else {}), **stated, **whole},
            constraints={name: float(value) for name, value in zip(constraints, over, strict=True)},
        )
        trials.append(trial)
        rows.append({"number": places[at] if places else -1, **stated, **row, **tried})
    return JudgedTrials(trials, rows)


def _trials_at(study: optuna.Study, places: range) -> Trials:
    trials: Trials = study.get_trials(deepcopy=False)[places.start : places.stop]
    return trials


def _new_study(storage: optuna.storages.BaseStorage, name: str) -> optuna.Study:
    """The study of a storage, made where it is not there, its objectives named."""
    study = optuna.create_study(
        storage=storage, study_name=name, directions=list(OBJECTIVES.values()), load_if_exists=True
    )
    if [direction.name.lower() for direction in study.directions] == list(
        OBJECTIVES.values()
    ) and not study.metric_names:
        study.set_metric_names(list(OBJECTIVES))
    return study


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
        where = Where(shown)
        try:
            place: Any = _journal(files[0]) if is_folder else _database(shown)
            study = _new_study(place, name)
            about, search_texts = study.user_attrs.get(ABOUT), settings_texts(settings)
        except InputError:
            raise
        except Exception as error:  # each database has errors of its own
            raise store_error(shown, error, _fault(error, shown)) from error
        # Trials of other objectives or settings do not compare with those of this search.
        if [direction.name.lower() for direction in study.directions] != list(OBJECTIVES.values()):
            rule = (
                f"study {name!r} must have the objectives "
                f"{', '.join(f'{way} {key}' for key, way in OBJECTIVES.items())}"
            )
            value = ", ".join(direction.name.lower() for direction in study.directions)
            raise input_error(where, rule, "choose another study_name", value)
        if about is None:
            study.set_user_attr(ABOUT, search_texts)
        elif about != search_texts:
            differ = [
                key
                for key in search_texts
                if not isinstance(about, Mapping) or about.get(key) != search_texts[key]
            ]
            here, there = (
                ", ".join(f"{key} {shown_value(texts.get(key))}" for key in differ)
                if isinstance(texts, Mapping)
                else "none"
                for texts in (search_texts, about)
            )
            rule = f"study {name!r} must be of this search ({here or 'without more'})"
            raise input_error(
                where, rule, "choose another study_name, or none", there or "more settings"
            )
    return study


def _fault(error: Exception, storage: str) -> Fault:
    """What is wrong with a storage that cannot be opened."""
    fault = fault_of(error)
    if fault is not OTHER:
        return fault
    # of a line of the file
    if "://" not in storage and isinstance(error, ValueError | LookupError | TypeError):
        return DAMAGED
    rule = "a storage must be a folder, or the URL of a database, that Optuna can open"
    return Fault(rule, "correct it, or choose another storage")


@contextmanager
def storage_errors(storage: str | Path | None) -> Iterator[None]:
    """What a storage says while a search goes on, each library in types of its own, as one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if (
            not isinstance(error, OSError)
            and type(error).__module__.partition(".")[0] not in _STORES
        ):
            raise
        raise store_error(
            str(storage), error, note="the study goes on from its whole trials"
        ) from error


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


def _stored_trials(study: optuna.Study, problem: Problem) -> dict[int, Trial]:
    """Last stored trial of each place, without those altered since."""
    return {
        trial.user_attrs[PLACE]: trial
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        if isinstance(trial.user_attrs.get(PLACE), int) and _is_unaltered(trial, problem)
    }


def _stored_values(study: optuna.Study, problem: Problem) -> dict[int, dict[str, Any]]:
    """Values of the stored trials, by place.

    A storage is believed in what was tried, never in what came of it: that is replayed again.
    """
    return {
        place: {path: trial.params[path] for path in problem.space}
        for place, trial in _stored_trials(study, problem).items()
    }


def _is_unaltered(trial: Trial, problem: Problem) -> bool:
    """Whether the values of a trial are of the space, and make the policy that was proposed."""
    if trial.params.keys() != problem.space.keys() or outside_space(
        trial.params, problem.start, problem.space
    ):
        return False
    policy = set_values(problem.start, trial.params)
    return policy.policy_id == trial.user_attrs.get(POLICY_ID)


class _StartSampler(optuna.samplers.RandomSampler):  # type: ignore[misc] # Optuna is not followed
    """Sampler that fills the missing values of a queued trial from the starting policy."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        super().__init__()
        self.own = own

    def sample_independent(
        self,
        _study: Any,  # noqa: ANN401
        _trial: Any,  # noqa: ANN401
        param_name: str,
        _distribution: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the value of the policy."""
        return self.own[param_name]


def _append_user_trials(study: optuna.Study, problem: Problem, table: pd.DataFrame) -> pd.DataFrame:
    """Table of trials numbered as in the stored study, then those the user ran or queued there.

    Queued ones are run: judged by replay and told. Values outside the space, and trials of other
    parameters, stay in the study and are not counted, which a warning says.
    """
    import pandas as pd

    own = own_trial(problem.start, problem.space)
    study.sampler = _StartSampler(own)
    faults: dict[int, str] = {}
    for _ in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,)):
        trial = study.ask()
        queued = study.get_trials(deepcopy=False)[trial.number].system_attrs.get(QUEUED, {})
        if fault := outside_space(queued, problem.start, problem.space):
            faults[trial.number] = fault
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        for path, extent in problem.distributions.items():
            _suggest(trial, path, extent)
        (done,) = judge_trials(problem, [trial.params], ()).trials
        _tell(study, trial, done)
    numbers = {place: trial.number for place, trial in _stored_trials(study, problem).items()}
    users: dict[int, dict[str, Any]] = {}
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        if PLACE in trial.user_attrs or not trial.params:
            continue
        if fault := outside_space(trial.params, problem.start, problem.space):
            faults[trial.number] = fault
        else:
            users[trial.number] = {path: (own | trial.params)[path] for path in problem.space}
    warn_outside(faults)
    table = table.assign(number=table["number"].map(numbers))
    if not users:
        return table
    user_table = pd.DataFrame(judge_trials(problem, list(users.values()), ()).rows).assign(
        number=list(users)
    )
    return pd.concat([table, user_table], ignore_index=True)


def _suggest(trial: optuna.Trial, path: str, extent: optuna.distributions.BaseDistribution) -> None:
    """Let a queued trial take its value of a path, or that of the sampler."""
    if isinstance(extent, optuna.distributions.FloatDistribution):
        trial.suggest_float(path, extent.low, extent.high, log=extent.log)
    elif isinstance(extent, optuna.distributions.IntDistribution):
        trial.suggest_int(path, extent.low, extent.high)
    else:
        trial.suggest_categorical(path, extent.choices)


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

    if trials < 1:
        msg = f"trials must be at least 1, got {trials}."
        raise ValueError(msg)
    _check_sampler(sampler)
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


class _Batchwise(optuna.samplers.NSGAIISampler):  # type: ignore[misc] # Optuna is not followed
    """NSGA-II whose generations are the batches.

    Parents are chosen once a batch, not looked up for every trial.

    It remembers nothing between batches, so a resumed study goes on as the first run would have.
    """

    def __init__(
        self, size: int, seed: int, space: Space, generation: int, before: Sequence[Trials]
    ) -> None:
        super().__init__(population_size=max(2, size), seed=seed)
        self.space, self.generation = space, generation
        self.last, self.parents_of_last = before
        self.parents: Trials = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> Space:
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
    """Trials that no other beats in expected cost and coverage.

    Those that meet the targets only, where any does.
    """
    pool = trials[trials["feasible"]] if trials["feasible"].any() else trials
    values = np.column_stack([pool["expected_cost"], -pool["coverage"]])
    distinct, first = np.unique(values, axis=0, return_index=True)
    beaten = np.array(
        [
            bool(((distinct <= row).all(axis=1) & (distinct < row).any(axis=1)).any())
            for row in distinct
        ]
    )
    return pool.iloc[np.sort(first[~beaten])].reset_index(drop=True)


def _distributions(space: Mapping[str, SearchRange]) -> Space:
    return {path: _distribution(extent) for path, extent in space.items()}


def _distribution(extent: SearchRange) -> optuna.distributions.BaseDistribution:
    if extent.is_switch:
        return optuna.distributions.CategoricalDistribution([False, True])
    if extent.whole:
        return optuna.distributions.IntDistribution(int(extent.low), int(extent.high))
    return optuna.distributions.FloatDistribution(extent.low, extent.high, log=extent.log)


def _batch_sampler(
    problem: Problem, begin: int, generation: int, before: Sequence[Trials]
) -> optuna.samplers.BaseSampler:
    """Sampler of the places from `begin` on, with a stream of its own.

    Args:
      generation: of NSGA-II; 0 draws without parents.
      before: trials of the generation before it, and their parents.
    """
    settings, space = problem.settings, problem.distributions
    name, size = str(settings["sampler"]), int(settings["batch_size"])
    stream = int(np.random.SeedSequence([int(settings["seed"]), begin]).generate_state(1)[0])
    if name == "nsga2":
        return _Batchwise(size=size, seed=stream, space=space, generation=generation, before=before)
    return SAMPLERS[name](seed=stream)


def trial_policies(
    start: Policy, trials: pd.DataFrame, stated: Mapping[str, Any] | None = None
) -> list[Policy]:
    """Policies of the trials of a search, in their order.

    Args:
      stated: values by path that all of them take instead of their own.
    """
    paths = [column for column in trials.columns if "." in column]
    rows = trials[paths].to_dict("records")
    return [
        set_values(start, {path: _python_scalar(row[path]) for path in paths} | dict(stated or {}))
        for row in rows
    ]


def _python_scalar(value: Any) -> Any:  # noqa: ANN401 - numpy or Python scalar
    return value.item() if hasattr(value, "item") else value
