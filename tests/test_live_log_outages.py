"""Logs that are away, locked or closed while a system answers.

Said once, counted, logged again afterwards.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from time import monotonic

import pytest

from generators import Fixed
from live_worlds import CORPUS, SMALL
from log_samples import AWAY, audit_of, check_numbers
from raglab.live.ask import ask
from raglab.live.system import AUDIT, LogOutages, System, build_index
from raglab.store import database
from raglab.store.database import UnwritableLogError
from raglab.store.log_tables import CHOICES, DECISIONS, REQUESTS
from raglab.store.policies import Policy
from refusals import warned

FREE = {name: {"enabled": False} for name in ("l2", "similarity", "gap", "support", "confidence")}
QUESTION = "What is the motor excess?"
# Statements by which another process holds a file of SQLite.
LOCKS = {
    "a turn": ("BEGIN IMMEDIATE",),
    "no write-ahead log": ("PRAGMA journal_mode=DELETE", "BEGIN EXCLUSIVE"),
}


@pytest.fixture
def folder(tmp_path, encoder):
    """Return the folder of an index."""
    del encoder
    build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
    return tmp_path / "i"


def opened(folder, arm="hybrid", **more):
    """System over an index that answers every question."""
    policy = Policy.from_mapping(FREE | {"strategy": {"arm": arm}})
    return System.open(folder, policy=policy, **{"generator": Fixed(), "cache": False, **more})


def logged(system, table=DECISIONS):
    """Ids of a table of the audit log."""
    with audit_of(system).log.reading() as log:
        return [row["request_id"] for row in log.rows(table)]


@contextmanager
def locked_file(path, lock="a turn"):
    """Hold a file of SQLite as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as link:
        for statement in LOCKS[lock]:
            link.execute(statement)
        yield


@contextmanager
def stopped(server):
    """Messages of the warnings of a block in which a server is away."""
    server.stop("immediate")
    try:
        with warned() as texts:
            yield texts
    finally:
        server.start()


class TestServer:
    """A log on PostgreSQL."""

    @pytest.mark.parametrize("arm", ["hybrid", "bandit"])
    def test_away_and_back(self, folder, postgresql, monkeypatch, arm):
        """Questions are answered, and one warning a log says so.

        Both logs go on.
        """
        monkeypatch.setenv("RAGLAB_AUDIT_LOG", postgresql.schema())
        monkeypatch.setenv("RAGLAB_BANDIT_LOG", postgresql.schema())
        system = opened(folder, arm)
        first = ask(QUESTION, system=system, request_id="up")
        with stopped(postgresql) as warning_texts:
            away = [ask(QUESTION, system=system, request_id=f"away{number}") for number in range(3)]
        logs = 1 + (arm == "bandit")
        assert len(warning_texts) == logs
        assert sum(AWAY in text for text in warning_texts) == 1
        assert first.record.logged
        shown = [
            (response["status"], response["answer"], response.record.logged) for response in away
        ]
        assert shown == [("ok", first["answer"], False)] * 3
        with warned() as warning_texts:
            back = ask(QUESTION, system=system, request_id="back")
        assert back.record.logged
        assert not warning_texts
        assert logged(system) == ["up", "back"]
        if system.online is not None and arm == "bandit":
            with system.online.log.reading() as log:
                assert [row["request_id"] for row in log.rows(CHOICES)] == ["up", "back"]
        check_numbers(audit_of(system))

    def test_required_it_is_refused(self, folder, postgresql, monkeypatch):
        """Each question by an error that names server and remedy.

        `check` says it before.
        """
        monkeypatch.setenv("RAGLAB_AUDIT_LOG", postgresql.schema())
        system, loose = opened(folder, audit="required"), opened(folder)
        with stopped(postgresql) as warning_texts:
            for same_system in (system, system):
                with pytest.raises(UnwritableLogError, match="check URL, server and rights"):
                    ask(QUESTION, system=same_system)
            with pytest.raises(UnwritableLogError):
                system.check()
            loose.check()
        assert len(warning_texts) == 1
        assert AWAY in warning_texts[0]

    def test_it_is_opened_while_the_server_is_away(self, folder, postgresql, monkeypatch):
        """Texts that were to be forgotten are not yet, which is said.

        Required, nothing is opened.
        """
        monkeypatch.setenv("RAGLAB_AUDIT_LOG", postgresql.schema())
        monkeypatch.setenv("RAGLAB_AUDIT_KEEP_DAYS", "30")
        with stopped(postgresql) as warning_texts:
            system = opened(folder)
            with pytest.raises(UnwritableLogError):
                opened(folder, audit="required")
        assert ["texts of over 30 days stay" in text for text in warning_texts] == [True], (
            warning_texts
        )
        assert ask(QUESTION, system=system, request_id="q").record.logged
        assert logged(system) == ["q"]

    def test_it_goes_between_request_and_decision(self, folder, postgresql, monkeypatch):
        """The answer that is made already is given."""
        monkeypatch.setenv("RAGLAB_AUDIT_LOG", postgresql.schema())

        class Stopping(Fixed):
            def answer(self, question, passages):
                postgresql.stop("immediate")
                return super().answer(question, passages)

        system = opened(folder, generator=Stopping())
        try:
            with warned() as warning_texts:
                response = ask(QUESTION, system=system, request_id="q")
        finally:
            postgresql.start()
        assert (response["status"], response.record.logged) == ("ok", False)
        assert len(warning_texts) == 1
        assert (logged(system, REQUESTS), logged(system)) == (["q"], [])


class TestFile:
    """A log in a file of SQLite."""

    @pytest.mark.parametrize("lock", LOCKS)
    def test_a_lock_costs_one_short_wait(self, folder, monkeypatch, lock):
        """Whoever waited in vain leaves the log alone for a while."""
        patience = 1.0
        monkeypatch.setattr("raglab.live.system.PATIENCE_S", patience)
        system = opened(folder)
        ask(QUESTION, system=system, request_id="a")
        audit_of(system).log.close()
        with locked_file(folder / "audit.sqlite", lock), warned() as warning_texts:
            start = monotonic()
            assert not ask(QUESTION, system=system, request_id="b").record.logged
            first_s = monotonic() - start
            assert not any(ask(QUESTION, system=system).record.logged for _ in range(5))
            later_s = monotonic() - start - first_s
        assert first_s > patience
        assert later_s < 5 * patience, "five questions waited as the first did"
        assert len(warning_texts) == 1

    def test_a_required_log_is_waited_for(self, folder, monkeypatch):
        """As long as by a batch of writers: the question is refused without it."""
        monkeypatch.setattr("raglab.live.system.PATIENCE_S", 0.1)
        monkeypatch.setattr(database, "BUSY_S", 0.9)
        system = opened(folder, audit="required")
        ask(QUESTION, system=system, request_id="a")
        with locked_file(folder / "audit.sqlite"):
            start = monotonic()
            with pytest.raises(UnwritableLogError, match=r"within 0\.9 s"):
                ask(QUESTION, system=system, request_id="b")
            assert monotonic() - start > 0.9

    @pytest.mark.parametrize("name", ["answers", "strategies"])
    def test_a_cache_that_is_locked(self, folder, monkeypatch, name):
        """It costs one short wait.

        What it would have kept is found again, and who empties it is told.
        """
        monkeypatch.setattr("raglab.live.system.CACHE_PATIENCE_S", 0.7)
        system = opened(folder, cache=True)
        answer = ask(QUESTION, system=system)["answer"]
        with locked_file(folder / "cache" / f"{name}.sqlite"):
            start = monotonic()
            assert ask("What is the travel excess?", system=system)["answer"] is not None
            first_s = monotonic() - start
            assert [ask(QUESTION, system=system)["answer"] for _ in range(3)] == [answer] * 3
            later_s = monotonic() - start - first_s
            with warned() as warning_texts:
                system.caches.clear()
        assert 0.7 < first_s < 5.0
        assert later_s < 0.7
        assert [f"{name}.sqlite is not emptied" in text for text in warning_texts] == [True]


class TestOutages:
    """Warnings of an outage."""

    def test_each_outage_is_one_warning(self):
        """Whatever comes in between; the first row of a question ends none."""
        outages = LogOutages()

        def question(*, fails, ends=True):
            with outages.writing(AUDIT, ends=ends):
                if fails:
                    msg = "full"
                    raise UnwritableLogError(msg)

        with warned() as warning_texts:
            for fails in (False, True, True, True, False, False, True, False):
                question(fails=False, ends=False)
                with suppress(UnwritableLogError):
                    question(fails=fails)
        assert [text.partition(":")[2].split(" (")[0] for text in warning_texts] == [
            " questions get no row in it",
            " questions get no row in it",
        ]
