"""Workers of a study (shore): processes that share its trials through a database.

Each place is judged and stored once.

A place of the search is claimed by a running trial of the study that names it. Trials are numbered
by the storage one after the other, so that of several claims of a place the one of the lowest
number holds, and whoever made another gives it up (it fails). A worker says in the study that it is
alive; where it does so no more, others give up its claims and make their own. A trial that has
failed can never be completed: a worker that was taken for dead and comes back finds its claims
given up, stores nothing of them, and goes on with other places. So no place is ever completed
twice, whatever stops or dies, and a clock that is wrong costs nothing: how long a worker was silent
is measured by whoever listens.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from raglab.lab.study import search_problem
from raglab.lab.study_storage import check_shareable, check_storage, stored_study
from raglab.lab.trial_search import (
    ABOUT,
    SIGN,
    WORKER,
    Problem,
    StorageError,
    StoredStudy,
    Trial,
    check_search,
    is_claim,
    is_unaltered,
    judge_trials,
    proposals_by_place,
    quiet_optuna,
    settings_texts,
)
from raglab.progress import progress
from raglab.store.files import Where, input_error
from raglab.store.traces import StudyTrace
from raglab.words.canonical import digest

SIGN_S = 2.0  # seconds between two signs of life
GRACE_S = 30.0  # seconds of silence after which a worker's claims are given up
WAIT_S = 0.5  # seconds before the study is looked at again, where all places are claimed
# times in a row that a storage may fail before a worker ends: between them it waits two minutes
RETRIES = 16
_WAITED = 10.0  # seconds at most between two tries of a storage that fails


class WorkerReport(NamedTuple):
    """What a worker did.

    study: name of the study. worker: its own name there. places: of the whole search. judged:
    places that it judged and stored. taken_over: claims of silent workers that it gave up, so that
    their places were free again. lost: claims of its own that others held, or took over while it
    was silent; nothing of them was stored.
    """

    study: str
    worker: str
    places: int
    judged: int
    taken_over: int
    lost: int


def share_study(
    trace: StudyTrace,
    *,
    storage: str | Path,
    study_name: str | None = None,
    **search: Any,  # noqa: ANN401 - arguments of a search
) -> WorkerReport:
    """Work on the study `raglab.tune` makes of the same arguments, as one of several processes.

    Args:
      trace: as for `raglab.tune`.
      storage, study_name: see `work_on_study`.
      search: see `search_problem`.
    """
    of = search_problem(trace, **search)
    problem = of.problem
    check_storage(problem, storage, study_name, None)  # before shards are measured
    with of.measured(problem.trace).measured_once(
        problem.start, problem.settings["arm"]
    ) as replayed:
        return work_on_study(
            problem._replace(trace=replayed), storage=storage, study_name=study_name
        )


def work_on_study(
    problem: Problem,
    *,
    storage: str | Path,
    study_name: str | None = None,
    sign_s: float = SIGN_S,
    grace_s: float = GRACE_S,
) -> WorkerReport:
    """Judge and store places of a study, beside other workers of it, until all are there.

    What a place is judged by is the trace alone; which values are tried there hangs on what was
    finished when it was proposed. `raglab.tune` with the same settings takes the trials afterwards,
    and proposes none of them again.

    Args:
      problem: the same for all workers, see `raglab.lab.study.search_problem`.
      storage: URL of a database server.
      study_name: as for `raglab.tune`.
      sign_s: seconds between two signs of life.
      grace_s: of silence after which a worker is taken for dead; many times `sign_s`.

    Raises:
      InputError: a storage that processes cannot share, or that cannot be opened or fails for two
        minutes, or a study of another search.
      ValueError: trials or a batch below 1, or a grace that is not longer than two signs of life.
    """
    check_search(problem.settings)
    if not 0.0 < 2.0 * sign_s < grace_s:
        msg = (
            f"grace_s must be more than twice sign_s, got {grace_s} and {sign_s}; state a longer "
            "grace_s."
        )
        raise ValueError(msg)
    check_shareable(storage)
    with quiet_optuna():
        worker = StudyWorker(
            stored_study(storage, study_name or problem.name, problem), problem, grace_s
        )
        try:
            with worker.alive(sign_s):
                for _ in progress(
                    _rounds(worker.run_round), "study", "trial", size=int, total=worker.trials
                ):
                    pass
        except StorageError as error:
            rule, remedy = (
                "the storage must answer",
                "check server and network, then start the worker again",
            )
            error_name = type(error.__cause__ or error).__name__
            raise input_error(
                Where(str(storage)), rule, remedy, f"{error_name}, time and again"
            ) from error
    return worker.report()


def _rounds(step: Callable[[], int | None]) -> Iterator[int]:
    """Results of a step until it gives None.

    Tried again where the storage fails, but not too often in a row.
    """
    failed = 0
    while True:
        try:
            result = step()
        except StorageError:
            failed += 1
            if failed == RETRIES:
                raise
            time.sleep(min(_WAITED, WAIT_S * 2**failed))
            continue
        failed = 0
        if result is None:
            return
        yield result


class StudyWorker:
    """One of the workers of a study."""

    def __init__(self, stored: StoredStudy, problem: Problem, grace_s: float) -> None:
        """Take the study.

        Args:
          grace_s: seconds of silence after which another worker's claims are given up.
        """
        self.stored = stored
        self.problem, self.grace_s, self.name = problem, grace_s, secrets.token_hex(6)
        # Of its own search: what stands in the study may be of another that was begun at the same
        # moment.
        self.about = settings_texts(problem.settings)
        self.trials, self.size = (
            int(problem.settings["trials"]),
            int(problem.settings["batch_size"]),
        )
        self.complete, self.judged, self.taken_over, self.lost = 0, 0, 0, 0
        # of each trial that is complete, by number: whether it holds no place
        self._altered: dict[int, bool] = {}
        # of each worker: its last sign, and when it was new here
        self._heard: dict[Any, tuple[Any, float]] = {}

    def report(self) -> WorkerReport:
        """What was done so far."""
        return WorkerReport(
            self.stored.study.study_name,
            self.name,
            self.trials,
            self.judged,
            self.taken_over,
            self.lost,
        )

    @contextmanager
    def alive(self, sign_s: float) -> Iterator[None]:
        """Give signs of life in the study, also while a batch is judged.

        In the end give up what is still claimed.

        Args:
          sign_s: seconds between two of them.
        """
        stop, numbers = Event(), count()

        def give_signs() -> None:
            while not stop.wait(sign_s):
                # the next one may come through; whether the storage fails, the rounds tell
                with suppress(Exception):
                    self.stored.sign(self.name, next(numbers))

        self.stored.sign(self.name, next(numbers))
        thread = Thread(target=give_signs, name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_WAITED)
            with suppress(Exception):  # what cannot be given up now is given up by others, in time
                for trial in self.holders().values():
                    if self._is_own(trial):
                        self.stored.give_up(trial)
                self.stored.sign(self.name, None)

    def run_round(self) -> int | None:
        """Claim a batch of places, judge and store it; where none is free, wait a little.

        Returns:
          Places completed since the last round began; None when the study is complete and nothing
          was new.
        """
        attributes = self.stored.study.user_attrs
        self._check_search(attributes)
        self._listen(attributes)
        holders = self.holders()
        n_complete = sum(not is_claim(trial) for trial in holders.values())
        newly_complete = n_complete - self.complete
        self.complete = n_complete
        if n_complete == self.trials:
            return newly_complete or None
        if self._give_up_stale(holders):
            holders = self.holders()
        free = self._free_places(holders)
        if free:
            self._work(free)
        else:
            time.sleep(min(WAIT_S, self.grace_s / 4))
        return newly_complete

    def _work(self, places: Sequence[int]) -> None:
        """Claim places, judge those that are held, and store what they came to."""
        known = [trial for _, trial in self._place_trials()]
        for place, values in zip(
            places, proposals_by_place(self.problem, places, known), strict=True
        ):
            self.stored.claim(self.problem, place, values, self.name)
            # The first claim tells whether another worker is at this batch, before all of it is
            # proposed.
            if place == places[0] and not self.own_claims([place]):
                return
        claims = self.own_claims(places)
        # What the storage holds is judged, so that values and outcome belong together whatever it
        # makes of a number.
        tried = [
            {path: claim.params[path] for path in self.problem.space} for claim in claims.values()
        ]
        for trial, judged in zip(
            claims.values(), judge_trials(self.problem, tried, list(claims)).trials, strict=True
        ):
            stored = self.stored.complete(trial, judged)
            self.judged += stored
            self.lost += not stored

    def own_claims(self, places: Sequence[int]) -> dict[int, Trial]:
        """Claims of this worker that hold, by place; those that do not are given up."""
        trials = self._place_trials()
        holders = _holders(trials)
        for place, trial in trials:
            if place in places and self._is_own(trial) and trial.number != holders[place].number:
                self.lost += self.stored.give_up(trial)
        return {
            place: holders[place]
            for place in places
            if place in holders and self._is_own(holders[place])
        }

    def holders(self) -> dict[int, Trial]:
        """Trial that holds each place that is not free.

        The one that is complete, else the first claim.
        """
        return _holders(self._place_trials())

    def _place_trials(self) -> list[tuple[int, Trial]]:
        """Places, and the trials that name them.

        Without those that a search would not take, see `is_unaltered`.
        """
        trials = self.stored.place_trials(self.trials)
        for _, trial in trials:
            if not is_claim(trial) and trial.number not in self._altered:
                self._altered[trial.number] = not is_unaltered(trial, self.problem)
        return [
            (place, trial) for place, trial in trials if not self._altered.get(trial.number, False)
        ]

    def _is_own(self, trial: Trial) -> bool:
        return is_claim(trial) and trial.user_attrs.get(WORKER) == self.name

    def _check_search(self, attributes: Mapping[str, Any]) -> None:
        """Refuse to go on where another search has taken the study's name at the same moment."""
        if attributes.get(ABOUT) != self.about:
            rule, remedy = (
                "a study must be of one search",
                "give each search a study_name of its own",
            )
            raise input_error(
                Where(self.stored.study.study_name),
                rule,
                remedy,
                "another that was begun at the same moment",
            )

    def _listen(self, attributes: Mapping[str, Any]) -> None:
        """Note when each worker gave its last sign, by the clock of this process alone."""
        now = time.monotonic()
        for key, sign in attributes.items():
            name = key.removeprefix(SIGN)
            if name != key and (name not in self._heard or self._heard[name][0] != sign):
                self._heard[name] = (sign, now)

    # whatever the attribute of a trial holds
    def _is_silent(self, owner: Any) -> bool:  # noqa: ANN401
        """Whether a worker has ended, or has given no new sign for too long."""
        sign, since = self._heard.setdefault(owner, ("none yet", time.monotonic()))
        return sign is None or time.monotonic() - since > self.grace_s

    def _give_up_stale(self, holders: Mapping[int, Trial]) -> bool:
        """Give up claims of silent workers, and those that a failed round of one's own left.

        Whether there were any.
        """
        stale = [trial for trial in holders.values() if is_claim(trial)]
        stale = [
            trial
            for trial in stale
            if self._is_own(trial) or self._is_silent(trial.user_attrs.get(WORKER))
        ]
        given_up = [trial for trial in stale if self.stored.give_up(trial)]
        self.taken_over += sum(not self._is_own(trial) for trial in given_up)
        return bool(given_up)

    def _free_places(self, holders: Mapping[int, Trial]) -> list[int]:
        """Free places of a batch that no worker is at; none where there is no such batch."""
        batches = [
            range(begin, min(begin + self.size, self.trials))
            for begin in range(0, self.trials, self.size)
        ]
        free = {batch: [place for place in batch if place not in holders] for batch in batches}
        # Whoever has claims in a batch may still be claiming the rest of it.
        at_work = {
            batch
            for batch in batches
            if any(is_claim(holders[place]) for place in batch if place in holders)
        }
        pool = [places for batch, places in free.items() if places and batch not in at_work]
        # Workers that look at the same moment mostly choose different batches.
        return pool[int(digest(self.name, 8), 16) % len(pool)] if pool else []


def _holders(trials: Sequence[tuple[int, Trial]]) -> dict[int, Trial]:
    holders: dict[int, Trial] = {}
    for place, trial in trials:
        if place not in holders or (is_claim(holders[place]) and not is_claim(trial)):
            holders[place] = trial
    return holders
