"""A study on a full disk, beside other readers and writers, and after a kill."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import optuna
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.lab import trial_search
from raglab.lab.study_journal import STUDY_FILE, WholeLinesLock, drop_half_line, half_line
from raglab.lab.trial_search import open_study
from raglab.store.files import InputError
from study_worlds import search_problem, searched, stored_study

LINE = b'{"op_code":4,"worker_id":"w","study_id":0}\n'


def process(work):
    """Exit code of a process that does some work: 0, or 1 with an InputError about room, else 2."""
    child = os.fork()
    if child == 0:  # pragma: no cover - of another process
        code = 2
        try:
            work()
            code = 0
        except InputError as error:
            code = 1 if "must have room" in str(error) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lock_of(file):
    """Lock of a journal."""
    return WholeLinesLock(file, optuna.storages.journal.JournalFileSymlinkLock(str(file)))


class TestLines:
    """Which last line is one that was cut off."""

    @given(st.integers(0, 3), st.integers(0, len(LINE)), st.sampled_from([1, 30_000]))
    def test_a_cut_is_found_and_taken_away(self, tmp_path_factory, lines, cut, times):
        """Wherever it is, whatever the length of the line; whole lines stay to the byte."""
        file = tmp_path_factory.mktemp("journal") / STUDY_FILE
        line = LINE[:-2] + b',"x":"' + b"y" * 40 * (times - 1) + b'"}\n'
        half = line[: len(line) * cut // (len(LINE) + 1)]
        file.write_bytes(line * lines + half)
        assert half_line(file) == len(half)
        drop_half_line(lock_of(file))
        assert file.read_bytes() == line * lines
        assert not list(file.parent.glob("*.lock*"))

    @pytest.mark.parametrize("content", [b"", LINE, b"my notes", LINE + b"my notes", b'{"op": 1'])
    def test_what_is_no_line_of_optuna_stays(self, tmp_path, content):
        """It may be a file of somebody else."""
        file = tmp_path / STUDY_FILE
        file.write_bytes(content)
        drop_half_line(lock_of(file))
        assert file.read_bytes() == content
        assert half_line(tmp_path / "none") == 0

    def test_a_writer_goes_on_behind_the_half_line_of_another(self, tmp_path):
        """A process that was killed meanwhile costs its line, not the file."""
        asked = search_problem()
        study = open_study(tmp_path, "a", asked.settings)
        with (tmp_path / STUDY_FILE).open("ab") as file:
            file.write(LINE[:20])
        study.add_trial(optuna.trial.create_trial(values=[1.0, 0.5]))
        # of Optuna
        assert [trial.values for trial in stored_study(tmp_path).trials] == [[1.0, 0.5]]  # noqa: PD011
        assert half_line(tmp_path / STUDY_FILE) == 0

    def test_the_lock_goes_where_nothing_can_be_taken_away(self, tmp_path, monkeypatch):
        """Others would wait for it in vain."""
        (tmp_path / STUDY_FILE).write_bytes(LINE[:20])

        def fail(*_):
            raise PermissionError

        monkeypatch.setattr(os, "truncate", fail)
        with pytest.raises(PermissionError):
            lock_of(tmp_path / STUDY_FILE).acquire()
        assert not list(tmp_path.glob("*.lock*"))

    def test_the_lock_of_a_folder_by_its_relative_path_can_get_old(self, tmp_path, monkeypatch):
        """Optuna reads a dead process's lock's age through a link, which must lead to the file."""
        monkeypatch.chdir(tmp_path)
        lock, leads = optuna.storages.journal.JournalFileSymlinkLock, list[bool]()
        acquire = lock.acquire

        def acquire_and_look(self):
            result = acquire(self)
            leads.append(Path(self._lock_file).exists())
            return result

        monkeypatch.setattr(lock, "acquire", acquire_and_look)
        open_study("out/study", "a", search_problem().settings)
        assert leads
        assert all(leads)

    def test_a_line_that_another_process_ends_meanwhile_stays(self, tmp_path, monkeypatch):
        """It is cut off only where it is still broken once nobody writes."""
        journal, lock = tmp_path / STUDY_FILE, optuna.storages.journal.JournalFileSymlinkLock
        take = lock.acquire
        for rest, left in ((b"", LINE), (LINE[20:], LINE * 2)):
            journal.write_bytes(LINE + LINE[:20])

            def acquire(own, rest=rest):
                if not journal.read_bytes().endswith(b"\n"):
                    journal.write_bytes(journal.read_bytes() + rest)
                return bool(take(own))

            with monkeypatch.context() as patch:
                patch.setattr(lock, "acquire", acquire)
                drop_half_line(lock_of(journal))
            assert journal.read_bytes() == left


class TestFullDisk:
    """A search whose storage takes no more."""

    @pytest.mark.parametrize("room", [1_000, 30_000, 50_001])
    def test_it_is_said_and_goes_on_with_room(self, tmp_path, room):
        """The error names the storage; the file ends with a whole line.

        The result is that of a search with room.
        """
        asked = search_problem()

        def run():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            searched(asked, tmp_path)

        for _ in range(2):  # a second time as well, which makes nothing worse
            assert process(run) == 1
            content = (tmp_path / STUDY_FILE).read_bytes()
            assert content == b"" or content.endswith(b"\n")
            assert len(content) <= room
        assert process(lambda: stored_study(tmp_path) if content else None) == 0
        again = searched(asked, tmp_path)
        pd.testing.assert_frame_equal(again.trials, searched(asked).trials)

    def test_on_a_disk_of_its_own(self, tmp_path):
        """As by the limit of a process; one that is mounted for reading alone is said too."""
        from hostile import remount, small_disk

        asked = search_problem()
        with small_disk(tmp_path / "disk", "64k") as disk:
            for _ in range(2):
                with pytest.raises(
                    InputError,
                    match=r"the disk of the store must have room.*make room, then run this",
                ):
                    searched(asked, disk / "s")
            remount(disk, "size=4m")
            again = searched(asked, disk / "s")
            remount(disk, "ro")
            with pytest.raises(InputError, match=r"must be there and writable.*nothing is damaged"):
                searched(search_problem(40), disk / "s")
        pd.testing.assert_frame_equal(again.trials, searched(asked).trials)


class TestBeside:
    """Readers and writers of one folder."""

    def test_a_reader_beside_a_writer(self, tmp_path):
        """It never reads half of a trial, and stops nobody."""
        asked = search_problem(30)
        child = os.fork()
        if child == 0:  # pragma: no cover - of another process
            code = 1
            try:
                searched(asked, tmp_path)
                code = 0
            finally:
                os._exit(code)
        numbers, status = [0], (0, 0)
        while status == (0, 0):
            status = os.waitpid(child, os.WNOHANG)
            study = open_study(tmp_path, asked.name, asked.settings)
            trials = study.get_trials(deepcopy=False)
            numbers.append(len(trials))
            assert all(len(trial.params) == len(asked.space) for trial in trials)
        assert os.waitstatus_to_exitcode(status[1]) == 0
        assert numbers == sorted(numbers)
        assert len(stored_study(tmp_path).trials) == 30

    def test_a_file_of_sqlite_that_is_locked(self, tmp_path, monkeypatch):
        """At the beginning and in the middle.

        The lock is named, nobody is told to take the file away.
        """
        monkeypatch.setattr("sqlite3.dbapi2.connect", _impatient(sqlite3.connect))
        monkeypatch.setattr("sqlite3.connect", _impatient(sqlite3.connect))
        url, asked = f"sqlite:///{tmp_path / 'a.db'}", search_problem(4, batch_size=2)
        searched(search_problem(2, batch_size=2), url)
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as link:
            link.execute("BEGIN EXCLUSIVE")
            with pytest.raises(
                InputError, match=r"must be free to be written.*holds its lock"
            ) as caught:
                searched(asked, url)
            link.execute("ROLLBACK")
            assert "take" not in str(caught.value)

            def lock(rows):
                if len(rows):
                    link.execute("BEGIN IMMEDIATE")
                return True

            with pytest.raises(InputError, match="must be free to be written"):
                searched(search_problem(6, batch_size=2), url, on_trials=lock)
            link.execute("ROLLBACK")
        pd.testing.assert_frame_equal(searched(asked, url).trials, searched(asked).trials)

    @pytest.mark.parametrize(
        "content", [LINE[:-3] + b"\n" + LINE, b'{"op_code":0}\n', b"[1]\n", b"\xff\xfe\n" * 3]
    )
    def test_a_journal_that_is_damaged(self, tmp_path, content):
        """It is told from one that is locked or full, and is not changed."""
        (tmp_path / STUDY_FILE).write_bytes(content)
        with pytest.raises(InputError, match="restore a copy, or keep the damaged file elsewhere"):
            searched(search_problem(10), tmp_path)
        assert (tmp_path / STUDY_FILE).read_bytes() == content


class TestServer:
    """A study on a server of PostgreSQL."""

    def test_after_a_kill_it_ends_with_the_same_result(self, postgresql):
        """Wherever the process was, and without a trial twice."""
        asked, url = search_problem(12, batch_size=4), postgresql.schema()
        study = open_study(url, "a", asked.settings)
        child = os.fork()
        if child == 0:  # pragma: no cover - of another process
            try:
                searched(asked, url, study_name="a")
            finally:
                os._exit(1)
        until = time.monotonic() + 60.0
        while len(study.get_trials(deepcopy=False)) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        before = study.get_trials(deepcopy=False)
        assert 5 <= len(before) < 12
        again = searched(asked, url, study_name="a")
        whole = searched(asked).trials.drop(columns="number")
        pd.testing.assert_frame_equal(again.trials.drop(columns="number"), whole)
        complete = [trial for trial in again.study.trials if trial.state.name == "COMPLETE"]
        assert sorted(trial.user_attrs["place"] for trial in complete) == list(range(12))

    def test_a_transaction_that_a_stopped_process_left_open_is_ended(self, postgresql, monkeypatch):
        """Else its lock of the study would hold every other process up."""
        monkeypatch.setattr(trial_search, "IDLE_TRANSACTION_S", 0.5)
        asked, url = search_problem(10), postgresql.schema()
        engine = open_study(url, "a", asked.settings)._storage._backend.engine  # type: ignore[attr-defined]
        with closing(engine.connect()) as left_open:
            left_open.exec_driver_sql("SELECT * FROM studies FOR UPDATE")
            assert len(searched(asked, url, study_name="a").trials) == 10
            left_open.invalidate()


def _impatient(connect):
    """What opens files of SQLite without waiting for a lock."""

    def connected(*args, **more):
        return connect(*args, **{**more, "timeout": 0.1})  # type: ignore[arg-type]

    return connected
