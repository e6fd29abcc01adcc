"""Workers of one study: each place judged and stored once, whoever stops, dies or comes back."""

# ruff: noqa: PD011 - the values of a trial of Optuna

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from sqlalchemy.pool import NullPool
from typer.testing import CliRunner

from databases import Server
from raglab.cli import app
from raglab.extensions.scale import study_workers
from raglab.extensions.scale.study_workers import StudyWorker, work_on_study
from raglab.lab import trial_search
from raglab.lab.search_space import Goal, own_trial
from raglab.lab.study_journal import STUDY_FILE, WholeLinesLock, drop_half_line
from raglab.lab.study_storage import check_storage, finish_shared_study
from raglab.lab.trial_search import (
    ABOUT,
    PLACE,
    WORKER,
    AddedTrial,
    Problem,
    StorageError,
    StoredStudy,
    is_claim,
    open_study,
    run_search,
    settings_texts,
)
from raglab.replay import sweep
from raglab.store.files import InputError
from test_lab_trial_search import SAMPLERS, SPACE, START, WORLD, problem

# of many, a database takes long
FEW = {path: SPACE[path] for path in ("similarity.min_similarity", "l2.max_l2")}
PLACES, WORKERS = 400, 4
QUICK = {"sign_s": 0.5, "grace_s": 3.0}  # of which a test need not wait long


def small(trials: int, **settings: Any) -> Problem:
    """A search over two thresholds."""
    given = {
        "arm": None,
        "trials": trials,
        "batch_size": 10,
        "seed": 0,
        "sampler": "random",
        "trace": "t",
    }
    return Problem(WORLD, START, FEW, Goal(targets={}), [own_trial(START, FEW)], given | settings)


def at(folder: Path, asked: Problem) -> StoredStudy:
    """The study of a folder, opened as by a process of its own.

    A journal ends no trial twice either, and is quick.
    """
    return open_study(folder, "study", asked.settings)


def finished(study: optuna.Study) -> Counter[int]:
    """How often each place is complete."""
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return Counter(trial.user_attrs[PLACE] for trial in done)


def values_by_place(study: optuna.Study) -> dict[int, dict[str, Any]]:
    """What was tried at each place."""
    return {
        trial.user_attrs[PLACE]: trial.params
        for trial in study.trials
        if trial.state.name == "COMPLETE"
    }


def work(worker: StudyWorker, rounds: int = 1000) -> None:
    """Rounds of a worker, until all places are complete or so many are done."""
    for _ in range(rounds):
        if worker.run_round() is None:
            return


class _Stop(Exception):  # noqa: N818 - what happens to it
    pass


def stop_before(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Stop whoever comes to one of the steps of the storage for the nth time, as a kill does."""
    whole, left = getattr(StoredStudy, name), iter(range(number - 1))

    def step(*given: Any) -> Any:
        if next(left, None) is None:
            raise _Stop
        return whole(*given)

    monkeypatch.setattr(StoredStudy, name, step)


class TestOneWorker:
    """What is judged and stored by a worker alone."""

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_every_place_is_judged_as_replay_judges_it(self, tmp_path: Path, sampler: str) -> None:
        """Objectives, constraints, counts and policy id are those that the search itself stores."""
        asked = problem(30, sampler=sampler)
        worker = StudyWorker(at(tmp_path, asked), asked, 2.0)
        work(worker)
        assert finished(worker.stored.study) == dict.fromkeys(range(30), 1)
        found = run_search(asked, storage=tmp_path, study_name="study", on_trials=None)
        for trial in found.study.trials:
            row = found.trials.set_index("number").loc[trial.number]
            policy = START.replace(*(part for pair in trial.params.items() for part in pair))
            seen = sweep(WORLD, [policy]).iloc[0]
            assert trial.values == [row["expected_cost"], row["coverage"]]
            assert trial.user_attrs["policy_id"] == policy.policy_id == row["policy_id"]
            assert trial.user_attrs["counts"]["coverage"] == [
                seen["coverage_k"],
                seen["coverage_n"],
            ]
            assert sum(max(over, 0.0) for over in trial.constraints.values()) == pytest.approx(
                row["violation"]
            )

    def test_the_search_takes_its_trials_and_proposes_none_again(self, tmp_path: Path) -> None:
        """Beside them nothing is stored."""
        asked = problem(30)
        worker = StudyWorker(at(tmp_path, asked), asked, 2.0)
        work(worker)
        found = run_search(asked, storage=tmp_path, study_name="study", on_trials=None)
        assert found.proposed == len(found.trials) == len(found.study.trials) == 30
        tried = values_by_place(worker.stored.study)
        for row in found.trials.to_dict("records"):
            place = found.study.trials[row["number"]].user_attrs[PLACE]
            assert {path: row[path] for path in asked.space} == tried[place]

    def test_the_policies_to_be_compared_with_come_first(self, tmp_path: Path) -> None:
        """At their places, whoever claims them."""
        asked = problem(10)
        worker = StudyWorker(at(tmp_path, asked), asked, 2.0)
        work(worker)
        tried = values_by_place(worker.stored.study)
        assert [tried[place] for place in range(len(asked.first))] == list(asked.first)


class TestSeveralWorkers:
    """Workers that take turns, each with the study opened for itself."""

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_what_is_drawn_hangs_on_the_place_alone(self, tmp_path: Path, count: int) -> None:
        """A sampler that learns nothing tries the same with any number of workers.

        None draws what another draws.
        """
        asked = small(40)
        workers = [StudyWorker(at(tmp_path, asked), asked, 60.0) for _ in range(count)]
        # a round of each
        while any([worker.run_round() is not None for worker in workers]):  # noqa: C419
            pass
        (tmp_path / "alone").mkdir()
        alone = StudyWorker(at(tmp_path / "alone", asked), asked, 60.0)
        work(alone)
        tried = values_by_place(workers[0].stored.study)
        assert tried == values_by_place(alone.stored.study)
        assert len({tuple(values.values()) for values in tried.values()}) == 40
        assert sum(worker.judged for worker in workers) == 40

    def test_of_two_claims_of_a_place_the_first_holds(self, tmp_path: Path) -> None:
        """Whoever made the other gives it up, and stores nothing of it."""
        asked = small(10)
        first, second = (StudyWorker(at(tmp_path, asked), asked, 60.0) for _ in range(2))
        for worker in (first, second):
            worker.stored.claim(asked, 3, asked.first[0], worker.name)
        assert list(first.own_claims([3])) == [3]
        assert second.own_claims([3]) == {}
        assert second.lost == 1
        assert [trial.state.name for trial in first.stored.study.trials] == ["RUNNING", "FAIL"]

    def test_a_batch_that_another_is_at_is_left_to_it(self, tmp_path: Path) -> None:
        """While it may still claim the rest of it."""
        asked = small(20)
        first, second = (StudyWorker(at(tmp_path, asked), asked, 60.0) for _ in range(2))
        first.stored.sign(first.name, 0)
        first.stored.claim(asked, 0, asked.first[0], first.name)
        work(second, 2)
        assert sorted(finished(second.stored.study)) == list(range(10, 20))

    @pytest.mark.parametrize(("step", "number"), [("claim", 5), ("complete", 1), ("complete", 6)])
    def test_a_dead_worker_leaves_its_places_to_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
    ) -> None:
        """After a while without a sign of life, wherever it was stopped.

        What it stored is not judged again.
        """
        asked = small(20)
        dead = StudyWorker(at(tmp_path, asked), asked, 60.0)
        dead.stored.sign(dead.name, 0)
        with monkeypatch.context() as patch:
            stop_before(patch, step, number)
            with pytest.raises(_Stop):
                dead.run_round()
        done = finished(dead.stored.study)
        heir = StudyWorker(at(tmp_path, asked), asked, 0.2)
        work(heir)
        assert finished(heir.stored.study) == dict.fromkeys(range(20), 1)
        assert heir.judged == 20 - done.total()
        assert heir.taken_over == sum(
            trial.state.name == "FAIL" for trial in heir.stored.study.trials
        )

    def test_a_worker_that_lives_is_not_robbed(self, tmp_path: Path) -> None:
        """As long as new signs of it come, its claims hold, however long they take."""
        asked = small(10)
        slow, other = (StudyWorker(at(tmp_path, asked), asked, 0.3) for _ in range(2))
        slow.stored.claim(asked, 0, asked.first[0], slow.name)
        for number in range(8):
            slow.stored.sign(slow.name, number)
            other.run_round()
            time.sleep(0.1)
        assert other.judged == other.taken_over == 0
        time.sleep(0.3)
        work(other)
        assert (other.judged, other.taken_over) == (10, 1)

    def test_a_late_worker_stores_nothing_of_what_others_took_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was taken for dead between claiming and storing; then it goes on with other places."""
        asked = small(20)
        late, heir = (
            StudyWorker(at(tmp_path, asked), asked, 60.0),
            StudyWorker(at(tmp_path, asked), asked, 0.05),
        )
        late.stored.sign(late.name, 0)
        whole = StoredStudy.complete
        gone: list[bool] = []

        def complete(*given: Any) -> bool:
            if not gone:
                gone.append(True)
                while heir.taken_over < 10:
                    heir.run_round()
            return whole(*given)

        with monkeypatch.context() as patch:
            patch.setattr(StoredStudy, "complete", complete)
            late.run_round()
        assert (late.judged, late.lost, heir.taken_over) == (0, 10, 10)
        work(late)
        assert finished(late.stored.study) == dict.fromkeys(range(20), 1)
        assert late.judged + heir.judged == 20

    def test_claims_of_a_round_that_failed_are_given_up_by_their_own_worker(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without waiting: it knows that it is not at them."""
        asked = small(10)
        worker = StudyWorker(at(tmp_path, asked), asked, 60.0)
        with monkeypatch.context() as patch:
            stop_before(patch, "complete", 4)
            with pytest.raises(_Stop):
                worker.run_round()
        work(worker)
        assert finished(worker.stored.study) == dict.fromkeys(range(10), 1)
        assert (worker.judged, worker.taken_over) == (10, 0)

    def test_who_ends_leaves_no_claim_and_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Interrupted in the middle of a batch; others need not wait."""
        asked = small(10)
        worker, heir = (StudyWorker(at(tmp_path, asked), asked, 60.0) for _ in range(2))
        with monkeypatch.context() as patch:
            stop_before(patch, "complete", 3)
            with pytest.raises(_Stop), worker.alive(0.05):
                worker.run_round()
        assert not any(is_claim(trial) for trial in worker.stored.study.trials)
        work(heir)
        assert finished(heir.stored.study) == dict.fromkeys(range(10), 1)

    def test_a_sign_of_life_comes_while_a_batch_is_judged(self, tmp_path: Path) -> None:
        """From beside the work."""
        asked = small(10)
        worker = StudyWorker(at(tmp_path, asked), asked, 60.0)
        with worker.alive(0.02):
            time.sleep(0.3)
            (sign,) = (
                value
                for key, value in worker.stored.study.user_attrs.items()
                if key.endswith(worker.name)
            )
            assert sign > 2
        assert worker.stored.study.user_attrs[f"raglab worker {worker.name}"] is None

    def test_another_search_of_the_same_name_is_noticed(self, tmp_path: Path) -> None:
        """Even where both were begun at the same moment, so that neither saw the other.

        The last that wrote goes on.
        """
        one, two = small(10), small(10, seed=1)
        stored = at(tmp_path, one)
        stored.study.set_user_attr(ABOUT, settings_texts(two.settings))
        with pytest.raises(InputError, match="a study must be of one search"):
            StudyWorker(stored, one, 60.0).run_round()
        worker = StudyWorker(at(tmp_path, two), two, 60.0)
        work(worker)
        assert worker.judged == 10

    def test_a_storage_that_fails_for_a_moment_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """But not for ever."""
        monkeypatch.setattr(study_workers, "WAIT_S", 0.0)
        results: Iterator[Any] = iter([1, StorageError, StorageError, 2, None])

        def step() -> int | None:
            found = next(results)
            if found is StorageError:
                raise found
            return found

        assert list(study_workers._rounds(step)) == [1, 2]

        def fails() -> None:
            raise StorageError

        with pytest.raises(StorageError):
            list(study_workers._rounds(fails))

    def test_a_storage_may_be_away_for_two_minutes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By head: 1, 2, 4 and 8 seconds, then eleven times 10, are 125."""
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)

        def fails() -> None:
            raise StorageError

        with pytest.raises(StorageError):
            list(study_workers._rounds(fails))
        assert slept == [1.0, 2.0, 4.0, 8.0, *[10.0] * 11]

    def test_a_place_that_was_altered_is_judged_again(self, tmp_path: Path) -> None:
        """By a worker, as the search itself would; that then takes all places and proposes none."""
        asked = small(10)
        work(StudyWorker(at(tmp_path, asked), asked, 60.0))
        journal = tmp_path / STUDY_FILE
        lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
        (claim,) = [line for line in lines if line.get("user_attrs", {}).get(PLACE) == 7]
        claim["params"]["l2.max_l2"] = 0.45
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        worker = StudyWorker(at(tmp_path, asked), asked, 60.0)
        work(worker)
        assert (worker.judged, len(worker.stored.study.trials)) == (1, 11)
        found = run_search(asked, storage=tmp_path, study_name="study", on_trials=None)
        assert len(found.study.trials) == 11
        assert sorted(found.trials["number"]) == [*range(7), 8, 9, 10]


class TestDoors:
    """What is refused, and what the search does beside workers."""

    @pytest.mark.parametrize("storage", ["folder", "sqlite:///study.db"])
    def test_a_storage_that_locks_no_trial_is_refused(self, tmp_path: Path, storage: str) -> None:
        """A folder and SQLite, before anything is read."""
        with pytest.raises(
            InputError, match=r"storage of workers must be a database server.*got (a folder|SQLite)"
        ):
            work_on_study(small(10), storage=storage)
        call = ["tune", str(tmp_path / "none.parquet"), "--worker", "--storage", storage]
        refused = CliRunner().invoke(app, call)
        assert refused.exit_code != 0
        assert "postgresql://user@host/name" in refused.output

    def test_numbers_that_mean_nothing_are_refused(self) -> None:
        """Trials, and how long a silent worker is waited for."""
        with pytest.raises(
            ValueError, match="trials and batch_size must be at least 1, got 0 and 10"
        ):
            work_on_study(small(0), storage="postgresql://ann@host/db")
        with pytest.raises(
            ValueError, match=r"grace_s must be more than twice sign_s, got 3.0 and 2.0"
        ):
            work_on_study(small(10), storage="postgresql://ann@host/db", grace_s=3.0)

    def test_a_search_alone_stops_where_workers_join(self, tmp_path: Path) -> None:
        """Rather than store what they have claimed."""
        asked = small(30)

        def joined(_: pd.DataFrame) -> None:
            at(tmp_path, asked).sign("another", 0)

        with pytest.raises(
            InputError, match="either workers or one process that proposes all trials, got workers"
        ):
            run_search(asked, storage=tmp_path, study_name="study", on_trials=joined)
        worker = StudyWorker(at(tmp_path, asked), asked, 60.0)
        assert sorted(finished(worker.stored.study)) == list(range(10))
        work(worker)
        assert finished(worker.stored.study) == dict.fromkeys(range(30), 1)

    def test_a_worker_that_joins_while_a_batch_is_stored_is_told_of(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Places of that batch may stand there twice; the search takes each once afterwards."""
        asked = small(30)
        add = optuna.Study.add_trials

        def added(study: optuna.Study, trials: Any) -> None:
            if not isinstance(trials[0], AddedTrial):  # of the storage, not of the study in memory
                worker = StudyWorker(at(tmp_path, asked), asked, 60.0)
                worker.stored.sign(worker.name, 0)
                work(worker, 1)
            add(study, trials)

        with monkeypatch.context() as patch:
            patch.setattr(optuna.Study, "add_trials", added)
            with pytest.raises(
                InputError, match=r"of places 0 to 9 that stand there twice, it takes the first"
            ):
                run_search(asked, storage=tmp_path, study_name="study", on_trials=None)
        work(StudyWorker(at(tmp_path, asked), asked, 0.1))
        found = run_search(asked, storage=tmp_path, study_name="study", on_trials=None)
        assert found.proposed == len(set(found.trials["number"])) == 30

    def test_a_shared_study_is_not_ended_by_a_function(self, tmp_path: Path) -> None:
        """All of its places are finished before any is told."""
        asked = small(10)
        check_storage(asked, tmp_path, "study", lambda _: False)
        at(tmp_path, asked).sign("another", None)
        check_storage(asked, tmp_path, "study", None)
        with pytest.raises(
            ValueError, match=r"on_trials must be left out of a study that workers share.*'study'"
        ):
            check_storage(asked, tmp_path, "study", lambda _: False)

    def test_a_line_that_another_process_ends_meanwhile_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A journal's last line is cut off only where it is still broken once nobody writes."""
        asked = small(10)
        work(StudyWorker(at(tmp_path, asked), asked, 60.0))
        journal, lock = tmp_path / STUDY_FILE, optuna.storages.journal.JournalFileSymlinkLock
        whole = journal.read_bytes()
        line, take = whole.splitlines(keepends=True)[-1], lock.acquire
        for rest, kept in ((b"", whole), (line[20:], whole + line)):
            journal.write_bytes(whole + line[:20])

            def acquire(own: Any, rest: bytes = rest) -> bool:
                if not journal.read_bytes().endswith(b"\n"):
                    journal.write_bytes(journal.read_bytes() + rest)
                return bool(take(own))

            with monkeypatch.context() as patch:
                patch.setattr(lock, "acquire", acquire)
                drop_half_line(WholeLinesLock(journal, lock(str(journal))))
            assert journal.read_bytes() == kept


def process(run: Callable[[], object], told: Path) -> int:
    """Number of a process that runs a function; what it comes to goes to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        told.write_text(json.dumps(run()), encoding="utf-8")
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it was stands in the file
        told.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)


def workers(count: int, asked: Problem, url: str, folder: Path) -> list[int]:
    """Processes that join a study at the same moment."""

    def run() -> dict[str, Any]:
        return work_on_study(asked, storage=url, study_name="study", **QUICK)._asdict()

    return [process(run, folder / f"{number}.json") for number in range(count)]


def wait(children: list[int], patience: float = 120.0) -> list[int]:
    """Exit codes; who goes on for too long is killed."""
    codes, until = [], time.monotonic() + patience
    for child in children:
        found, status = os.waitpid(child, os.WNOHANG)
        while not found and time.monotonic() < until:
            time.sleep(0.02)
            found, status = os.waitpid(child, os.WNOHANG)
        if not found:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


@cache
def stored_study(url: str) -> optuna.Study:
    """The study, opened once as any user of Optuna opens it.

    A look at it makes no tables and leaves no connection.
    """
    return optuna.load_study(
        study_name="study", storage=optuna.storages.RDBStorage(url, {"poolclass": NullPool})
    )


def wait_for(true: Callable[[], bool], patience: float = 60.0) -> None:
    """Wait until something is so."""
    until = time.monotonic() + patience
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def owners(study: optuna.Study) -> set[tuple[str, str]]:
    """Worker and state of every trial."""
    return {
        (trial.user_attrs[WORKER], trial.state.name) for trial in study.get_trials(deepcopy=False)
    }


def claims_of_one(study: optuna.Study) -> bool:
    """Whether a worker has claimed places and stored some."""
    found = {
        trial.user_attrs.get(WORKER)
        for trial in study.get_trials(deepcopy=False)
        if is_claim(trial)
    }
    return bool(found) and finished(study).total() > PLACES // 10


class TestPostgreSQL:
    """Processes on a server."""

    def test_four_processes_one_of_them_killed(self, postgresql: Server, tmp_path: Path) -> None:
        """All 400 places are there once; the search takes them all, and stores nothing more."""
        asked, url = small(PLACES, batch_size=25, sampler="nsga2"), postgresql.database()
        # the tables of the storage are made by four at once, too
        children = workers(WORKERS, asked, url, tmp_path)
        wait_for(lambda: _begun(url))
        wait_for(lambda: claims_of_one(stored_study(url)))
        os.kill(children[0], signal.SIGKILL)
        assert wait(children) == [-signal.SIGKILL, 0, 0, 0]
        study = stored_study(url)
        assert finished(study) == dict.fromkeys(range(PLACES), 1)
        told = [
            json.loads((tmp_path / f"{number}.json").read_text()) for number in range(1, WORKERS)
        ]
        dead = {trial.user_attrs[WORKER] for trial in study.trials} - {
            one["worker"] for one in told
        }
        by_dead = [
            one
            for one in study.trials
            if one.user_attrs[WORKER] in dead and one.state.name == "COMPLETE"
        ]
        assert sum(one["judged"] for one in told) + len(by_dead) == PLACES
        before = len(study.trials)
        found = run_search(asked, storage=url, study_name="study", on_trials=None)
        assert found.proposed == len(found.trials) == PLACES
        assert len(found.study.trials) == before
        assert set(found.trials["number"]) == {
            one.number for one in study.trials if one.state.name == "COMPLETE"
        }

    def test_all_killed_and_gone_on_with(self, postgresql: Server, tmp_path: Path) -> None:
        """By new workers, or by the search itself, which finishes the places as one of them."""
        asked, url = small(60), postgresql.schema()
        for _ in range(2):
            children = workers(2, asked, url, tmp_path)
            wait_for(lambda: _begun(url))
            wait_for(_more_than(url, finished(stored_study(url)).total() + 5))
            for child in children:
                os.kill(child, signal.SIGKILL)
            wait(children)
        done = {one.number for one in stored_study(url).trials if one.state.name == "COMPLETE"}
        assert 0 < len(done) < 60
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                work_on_study, "__kwdefaults__", (work_on_study.__kwdefaults__ or {}) | QUICK
            )
            finish_shared_study(asked, url, "study")
        study = stored_study(url)
        assert finished(study) == dict.fromkeys(range(60), 1)
        assert done <= {one.number for one in study.trials if one.state.name == "COMPLETE"}, (
            "none is judged again"
        )

    def test_a_process_that_was_stopped_comes_back(
        self, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others have taken its places over; it ends well, and no place is there twice.

        Stopped within a transaction, it holds a lock of the study until the server ends that.
        """
        monkeypatch.setattr(trial_search, "IDLE_S", 1.0)
        asked, url = small(100, batch_size=25), postgresql.schema()
        (late,) = workers(1, asked, url, tmp_path)
        wait_for(lambda: _begun(url))
        wait_for(_more_than(url, 10))
        os.kill(late, signal.SIGSTOP)
        try:
            (name,) = {trial.user_attrs[WORKER] for trial in stored_study(url).trials}
            (tmp_path / "others").mkdir()
            others = workers(2, asked, url, tmp_path / "others")
            # Where it was stopped between two batches it holds nothing that could be taken over.
            wait_for(
                lambda: (
                    (name, "FAIL") in owners(stored_study(url))
                    or len(finished(stored_study(url))) == 100
                )
            )
        finally:
            os.kill(late, signal.SIGCONT)
        assert wait([late, *others]) == [0, 0, 0]
        assert finished(stored_study(url)) == dict.fromkeys(range(100), 1)
        assert json.loads((tmp_path / "0.json").read_text())["worker"] == name

    @pytest.mark.usefixtures("quick_study")
    def test_the_command_line(self, postgresql: Server, tmp_path: Path) -> None:
        """`raglab tune --worker` gives no result; `raglab tune` makes it from what was stored."""
        url, trace, out = postgresql.schema(), tmp_path / "t.parquet", tmp_path / "out"
        WORLD.save(trace)
        call = [
            "tune",
            str(trace),
            "--trials",
            "5",
            "--storage",
            url,
            "--study-name",
            "study",
            "--no-track",
        ]
        call += ["--quiet", "--json", "--out", str(out)]
        done = CliRunner().invoke(app, [*call, "--worker"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert (told["study"], told["places"], told["judged"]) == ("study", 5, 5)
        assert not out.exists()
        before = len(stored_study(url).trials)
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 0, done.output
        assert (out / "tuned.yaml").exists()
        assert len(stored_study(url).trials) == before == 5


def _begun(url: str) -> bool:
    """Whether the study is there."""
    try:
        return stored_study(url) is not None
    except Exception:  # noqa: BLE001 - tables that are being made
        return False


def _more_than(url: str, count: int) -> Callable[[], bool]:
    """Whether more places than so many are complete."""
    return lambda: finished(stored_study(url)).total() > count
