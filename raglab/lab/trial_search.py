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
from raglab.lab.goals import Goal, front
from raglab.lab.search_space import SearchRange, set_values
from raglab.lab.store_errors import (
    DAMAGED_STORE,
    OTHER_FAULT,
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
from raglab.values import AnyArray, FloatArray, refuse
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

# of a study, and which way each is wanted
OBJECTIVES = {"expected_cost": "minimize", "coverage": "maximize"}
# share of a trial's answered cases judged by text that lack a recorded answer
MISSING_ANSWERS = "missing_answers"
PLACE_ATTRIBUTE = (
    "place"  # attribute of a trial that was proposed here: its place in the search, from 0
)
SAMPLERS: Mapping[str, Callable[..., optuna.samplers.BaseSampler]] = {
    "nsga2": optuna.samplers.NSGAIISampler,
    "tpe": optuna.samplers.TPESampler,
    "random": optuna.samplers.RandomSampler,
}
SEARCH_ATTRIBUTE = "raglab"  # attribute of a study: what its trials were judged on, and by
IDLE_TRANSACTION_S = (
    30.0  # seconds that a transaction may stand open in a storage with nothing done
)
LONGEST_SETTING = (
    80  # characters of a setting that are kept as they are; of a longer one its digest
)
N_FINALISTS, FINALIST_REPEATS = (
    20,
    5,
)  # best trials that are judged once more, on so many times the chance
KEPT_TRIALS_NOTE = "the study goes on from its whole trials"
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

    study: Optuna's, of the storage if any. trials: a row a trial of this search. best:
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

    n_trials, batch_size = check_search(problem.settings)
    search_name, distributions, trial_rows = (
        study_name or problem.name,
        _distributions(problem.space),
        [],
    )
    with quiet_optuna():
        study = _new_study(optuna.storages.InMemoryStorage(), search_name)
        stored_study = (
            None if storage is None else open_study(storage, search_name, problem.settings)
        )
        for first_values in problem.first[:n_trials]:
            study.enqueue_trial(dict(first_values))
        parents: Trials = []
        for batch_start in progress(range(0, n_trials, batch_size), "study", "batch"):
            study.sampler = _batch_sampler(problem, study, batch_start, parents)
            parents = getattr(study.sampler, "parents", [])
            open_trials = [
                study.ask(distributions) for _ in range(min(batch_size, n_trials - batch_start))
            ]
            judged_batch = judge_trials(problem, [trial.params for trial in open_trials])
            for trial, judged_trial in zip(open_trials, judged_batch, strict=True):
                judged_trial.row["number"] = trial.number
                # Counts go along: whoever reads the stored study has exact intervals of its rates.
                attributes = {
                    PLACE_ATTRIBUTE: trial.number,
                    "policy_id": judged_trial.row["policy_id"],
                }
                for attribute, value in (attributes | {"counts": judged_trial.counts}).items():
                    trial.set_user_attr(attribute, value)
                # Constraints are set before the trial is told, or a sampler takes it for feasible.
                for attribute, excess in judged_trial.constraints.items():
                    trial.set_constraint(attribute, excess)
                study.tell(trial, [judged_trial.row[objective] for objective in OBJECTIVES])
            if stored_study is not None:
                with as_store_errors(str(storage), KEPT_TRIALS_NOTE):
                    stored_numbers = _stored_numbers(stored_study, study)
                    batch_trials = study.get_trials(deepcopy=False)[batch_start:]
                    stored_study.add_trials(
                        [trial for trial in batch_trials if trial.number not in stored_numbers]
                    )
            trial_rows += [judged_trial.row for judged_trial in judged_batch]
            if on_trials is not None and on_trials(pd.DataFrame(trial_rows[batch_start:])) is False:
                break
        trial_table = pd.DataFrame(trial_rows)
        if stored_study is not None:
            with as_store_errors(str(storage), KEPT_TRIALS_NOTE):
                trial_table["number"] = trial_table["number"].map(
                    _stored_numbers(stored_study, study)
                )
            study = stored_study
    ranked_numbers = trial_table.sort_values(
        ["violation", "expected_cost", "number"], kind="stable"
    )["number"]
    return Search(study, trial_table, study.get_trials(deepcopy=False)[int(ranked_numbers.iloc[0])])


def check_search(settings: Mapping[str, Any]) -> tuple[int, int]:
    """How many trials a search has, and how many of them a batch.

    Raises:
      ValueError: one of them is below 1, or an unknown sampler.
    """
    n_trials = int(settings["trials"])
    batch_size = int(settings["batch_size"])
    name = settings["sampler"]
    if name not in SAMPLERS:
        refuse(f"sampler must be one of {', '.join(SAMPLERS)}", f"{name!r}", "correct the name")
    if n_trials < 1 or batch_size < 1:
        msg = f"trials and batch_size must be at least 1, got {n_trials} and {batch_size}."
        raise ValueError(msg)
    return n_trials, batch_size


def judge_trials(
    problem: Problem, candidate_values: Sequence[Mapping[str, Any]]
) -> list[JudgedTrial]:
    """What trials of some values come to, by replay."""
    goal = problem.goal
    arm = problem.settings["arm"]
    policies = [set_values(problem.start, trial_values) for trial_values in candidate_values]
    # All policies share one pass over the trace, which is what a batch is for.
    trial_tally = tally(problem.trace, policies, arm)
    rate_sizes = metrics.denominators(trial_tally.counts, trial_tally.labels)
    cell_counts: AnyArray = trial_tally.cells
    if problem.weight is not None:
        outcome_codes = trace_codes(problem.trace, policies, arm)
        cell_counts = metrics.weighed_cases(CELL_OF_CODE[outcome_codes], problem.weight).weights
    excess = goal.excess(cell_counts)
    constraints = goal.constraints
    if (
        trial_tally.basis.text
    ):  # one that lacks too many recorded answers is not compared (rule S6.3)
        missing_share = trial_tally.missing[:, :1] / np.maximum(trial_tally.missing[:, 1:], 1)
        excess = np.hstack([excess, missing_share - MAX_MISSING])
        constraints = (*constraints, MISSING_ANSWERS)
    traffic_cells = goal.in_traffic(cell_counts)
    mean_costs = goal.cost(cell_counts)
    trial_rates = metrics.rates(
        metrics.rate_counts(traffic_cells), metrics.label_counts(traffic_cells)
    )
    judged_trials = []
    for trial_index, (policy, tried_values, trial_excess) in enumerate(
        zip(policies, candidate_values, excess, strict=True)
    ):
        trial_row: dict[str, Any] = {
            "number": trial_index,
            "policy_id": policy.policy_id,
            **dict(zip(metrics.RATES, trial_rates[trial_index].tolist(), strict=True)),
            "expected_cost": float(mean_costs[trial_index]),
            "feasible": bool((trial_excess <= 0.0).all()),
            "violation": float(np.maximum(trial_excess, 0.0).sum()),
        }
        if trial_tally.basis.text:
            trial_row[MISSING_ANSWERS] = float(trial_excess[-1] + MAX_MISSING)
        rate_pairs = np.stack(
            [trial_tally.counts[trial_index], rate_sizes[trial_index]], axis=1
        ).tolist()
        rate_counts = dict(zip(metrics.RATES, rate_pairs, strict=True))
        constraint_excess = dict(zip(constraints, trial_excess.tolist(), strict=True))
        judged_trials.append(
            JudgedTrial(trial_row | dict(tried_values), rate_counts, constraint_excess)
        )
    return judged_trials


def _new_study(storage: optuna.storages.BaseStorage, study_name: str) -> optuna.Study:
    """The study of a storage, made where it is not there, its objectives named."""
    study = optuna.create_study(
        storage=storage,
        study_name=study_name,
        directions=list(OBJECTIVES.values()),
        load_if_exists=True,
    )
    if _has_objectives(study) and not study.metric_names:
        study.set_metric_names(list(OBJECTIVES))
    return study


def _has_objectives(study: optuna.Study) -> bool:
    return [direction.name.lower() for direction in study.directions] == list(OBJECTIVES.values())


def open_study(storage: str | Path, study_name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """The stored study of a name, made where it is not there.

    Args:
      storage: URL of a database, or a folder, where it is a file that processes of one machine may
        share: a journal of Optuna's, ten times as fast as SQLite.
      settings: of the search.

    Raises:
      InputError: no storage, a damaged one, or a study of another trace, space or setting.
    """
    storage_text = str(storage)
    # A database serves several machines; a folder needs no server.
    is_folder = "://" not in storage_text
    lock_files = (
        [make_folder(Path(storage)) / STUDY_FILE] if is_folder else [*sqlite_files(storage_text)]
    )
    # Of two processes that begin at once the second reads the settings that the first has stated.
    with opening_lock(*lock_files):
        try:
            optuna_storage: Any = _journal(lock_files[0]) if is_folder else _database(storage_text)
            study = _new_study(optuna_storage, study_name)
            stored_texts = study.user_attrs.get(SEARCH_ATTRIBUTE)
            search_texts = settings_texts(settings)
        except InputError:
            raise
        except Exception as error:  # each database has errors of its own
            fault = fault_of(error)
            if fault is OTHER_FAULT:
                # of a line of the file
                is_line = is_folder and isinstance(error, ValueError | LookupError | TypeError)
                fault = DAMAGED_STORE if is_line else NO_STORAGE
            raise store_error(storage_text, error, fault) from error
        # Trials of other objectives or settings do not compare with those of this search.
        differing = [] if _has_objectives(study) else ["objectives"]
        if stored_texts is None and not differing:
            study.set_user_attr(SEARCH_ATTRIBUTE, search_texts)
        elif stored_texts != search_texts:
            stored_settings = stored_texts if isinstance(stored_texts, Mapping) else {}
            differing += [
                setting
                for setting, setting_text in search_texts.items()
                if stored_settings.get(setting) != setting_text
            ]
            rule = f"study {study_name!r} must be of this search"
            differing_text = f"other {', '.join(differing)}"
            raise input_error(
                Where(storage_text), rule, "choose another study_name, or none", differing_text
            )
    return study


NO_STORAGE = Fault(
    "a storage must be a folder, or the URL of a database, that Optuna can open",
    "correct it, or choose another",
)


def _journal(journal_file: Path) -> optuna.storages.BaseStorage:
    """Storage of a file's studies; a half line is removed before anything is read or appended."""
    journal = optuna.storages.journal
    # Optuna's lock is a link to this path, read from the file's folder: a relative one leads
    # nowhere, and the lock of a killed process would never count as old.
    journal_file = journal_file.absolute()
    file_lock = WholeLinesLock(journal_file, journal.JournalFileSymlinkLock(str(journal_file)))
    drop_half_line(file_lock)
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(journal_file), file_lock))


def _database(url: str) -> optuna.storages.BaseStorage:
    """Optuna's storage of a URL, whose connections outlive a restart of the server.

    A transaction that a process leaves open, because it was stopped or its machine is gone, holds a
    lock of the study: the server ends it.
    """
    from raglab.store.database import limit_idle_transactions

    check_beside(url)
    rdb_storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    limit_idle_transactions(rdb_storage.engine, IDLE_TRANSACTION_S)
    return optuna.storages.get_storage(rdb_storage)


def settings_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What tells one search from another.

    All settings but the number of trials, long ones by their digest.
    """
    setting_texts = {
        setting: canonical_json(value, default=float)
        for setting, value in settings.items()
        if setting != "trials"
    }
    return {
        setting: setting_text if len(setting_text) <= LONGEST_SETTING else digest(setting_text, 16)
        for setting, setting_text in setting_texts.items()
    }


def _stored_numbers(stored_study: optuna.Study, study: optuna.Study) -> dict[int, int]:
    """Number in a storage of each trial of a search that is there with the same values."""
    search_params = {trial.number: trial.params for trial in study.get_trials(deepcopy=False)}
    stored_trials = [
        (trial.user_attrs.get(PLACE_ATTRIBUTE), trial)
        for trial in stored_study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ]
    return {
        search_place: trial.number
        for search_place, trial in stored_trials
        if isinstance(search_place, int) and search_params.get(search_place) == trial.params
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
    trial_rows: list[dict[str, Any]] = []
    with quiet_optuna():
        study = optuna.create_study(direction="maximize", sampler=SAMPLERS[sampler](seed=seed))
        distributions = _distributions(space)
        for first_values in first[:trials]:
            study.enqueue_trial(dict(first_values))
        for _ in progress(range(trials), "study", "trial"):
            trial = study.ask(distributions)
            outcome = judge(trial.params)
            # Constraints are set before the trial is told, or the sampler takes it for feasible.
            for limit, excess in outcome.excess.items():
                trial.set_constraint(limit, float(excess))
            study.tell(trial, outcome.value)
            is_feasible = all(excess <= 0.0 for excess in outcome.excess.values())
            trial_row = {"number": trial.number, "value": outcome.value, "feasible": is_feasible}
            trial_rows.append(trial_row | dict(outcome.measures) | trial.params)
    return study, pd.DataFrame(trial_rows)


def finalists(trials: pd.DataFrame, nearest: str = "value") -> list[dict[str, Any]]:
    """Best feasible trials and the first one, in the order they were tried.

    Args:
      nearest: column of the rank among all where none is feasible, the least first; `value`, the
        largest first, where not given.
    """
    feasible_trials = trials[trials["feasible"]]
    pool, rank_column = (trials, nearest) if feasible_trials.empty else (feasible_trials, "value")
    ascending = [rank_column != "value", True]
    best_trials = pool.sort_values(
        [rank_column, "number"], ascending=ascending, kind="stable"
    ).head(N_FINALISTS)
    finalist_rows = pool[pool["number"].isin([0, *best_trials["number"]])].to_dict("records")
    return [{str(column): cell for column, cell in finalist.items()} for finalist in finalist_rows]


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
    candidate_trials = trials[trials["feasible"]] if trials["feasible"].any() else trials
    front_trials = candidate_trials[
        front(
            candidate_trials["expected_cost"].to_numpy(), -candidate_trials["coverage"].to_numpy()
        )
    ]
    return front_trials.drop_duplicates(["expected_cost", "coverage"], ignore_index=True)


def _distributions(space: Mapping[str, SearchRange]) -> Space:
    """The space as Optuna has it."""
    optuna_kinds = optuna.distributions
    distributions = Space()
    for path, search_range in space.items():
        if search_range.is_switch:
            distributions[path] = optuna_kinds.CategoricalDistribution([False, True])
        elif search_range.whole:
            distributions[path] = optuna_kinds.IntDistribution(
                int(search_range.low), int(search_range.high)
            )
        else:
            distributions[path] = optuna_kinds.FloatDistribution(
                search_range.low, search_range.high, log=search_range.log
            )
    return distributions


def _batch_sampler(
    problem: Problem, study: optuna.Study, batch_start: int, parents: Trials
) -> optuna.samplers.BaseSampler:
    """Sampler of the places from `batch_start` on, with a stream of its own.

    Args:
      parents: of the batch before.
    """
    settings = problem.settings
    sampler_name = str(settings["sampler"])
    batch_size = int(settings["batch_size"])
    batch_seed = int(
        np.random.SeedSequence([int(settings["seed"]), batch_start]).generate_state(1)[0]
    )
    if sampler_name != "nsga2":
        return SAMPLERS[sampler_name](seed=batch_seed)
    sampler = _Batchwise(population_size=max(2, batch_size), seed=batch_seed)
    sampler.space = _distributions(problem.space)
    if batch_start:
        sampler.parents = [
            *study.get_trials(deepcopy=False)[batch_start - batch_size : batch_start],
            *parents,
        ]
        sampler.parents = sampler.select_parent(study, 1)
    return sampler


def trial_policies(
    start: Policy, trials: pd.DataFrame, fixed_values: Mapping[str, Any] | None = None
) -> list[Policy]:
    """Policies of the trials of a search, in their order.

    Args:
      fixed_values: values by path that all of them take instead of their own.
    """
    tried_columns = trials[[column for column in trials.columns if "." in column]]
    trial_rows = tried_columns.astype(object).to_dict("records")  # Python's own numbers
    return [
        set_values(start, {**cast("dict[str, Any]", trial_row), **(fixed_values or {})})
        for trial_row in trial_rows
    ]
