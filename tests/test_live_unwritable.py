"""Questions where nothing can be written, and questions whose process was killed."""

from __future__ import annotations

import os
import signal
import warnings

import pytest

from generators import Fixed
from hostile import remount
from live_worlds import CORPUS, SMALL, opened_on_disk
from raglab.live.arm_choice import feedback
from raglab.live.ask import ask
from raglab.live.system import build_index
from raglab.store.database import UnwritableLogError
from raglab.store.files import InputError
from raglab.store.log_tables import CHOICES, DECISIONS, REQUESTS, REWARDS

QUESTION = "What is the motor excess?"


def close(system):
    """Let go of all files of a system."""
    for one in (system.audit, system.caches, None if system.online is None else system.online.log):
        if one is not None:
            one.close()


def fields(said, arm):
    """A response without what is of its request, nor, where a bandit chose, of the arm."""
    own = {
        "request_id",
        "arm",
        "arm_reason",
        *(("confidence", "policy_id", "sources") if arm == "bandit" else ()),
    }
    return {name: value for name, value in said.items() if name not in own}


def contents(place):
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


class TestReadOnly:
    """A disk that is mounted for reading alone."""

    @pytest.mark.parametrize("used", [True, False], ids=["with caches and logs", "fresh"])
    @pytest.mark.parametrize("arm", ["hybrid", "bandit"])
    def test_it_answers_and_says_once_what_is_not_logged(
        self,
        disk,
        arm,
        used,
    ):
        """The same answer, from the cache where it is there; one warning a log.

        Not a byte is written.
        """
        system = opened_on_disk(disk, cache=used, audit=used, stated=arm if used else "hybrid")
        wanted = fields(ask(QUESTION, system=system), arm)
        close(system)
        remount(disk, "ro")
        before = contents(disk)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            system = opened_on_disk(disk, stated=arm)
            first, second = (ask(QUESTION, system=system, request_id="r") for _ in range(2))
            by_folder = ask(QUESTION, system=disk / "i")
        told = [str(one.message) for one in said if "cannot be written" in str(one.message)]
        assert sum("audit log" in one for one in told) == 2  # of the two systems that were opened
        assert sum("bandit" in one for one in told) == (arm == "bandit")
        assert len(told) == 2 + (arm == "bandit")
        assert fields(first, arm) == fields(second, arm) == wanted
        assert by_folder["status"] in {"ok", "refuse", "ambiguous"}
        if arm == "bandit":
            assert first["arm_reason"].startswith("bandit off, router: ")
        elif used:
            assert first.record.answer_cache_hit
        assert contents(disk) == before
        close(system)

    def test_what_needs_the_log_is_refused(self, disk, monkeypatch):
        """A log that is required, by the caller or the environment; before any model is loaded."""
        remount(disk, "ro")
        with pytest.raises(
            InputError, match=r"audit.sqlite: the audit log must be writable: it is required"
        ):
            opened_on_disk(disk, audit="required")
        with pytest.warns(UserWarning, match="cannot be written"):
            system = opened_on_disk(disk)
        with pytest.raises(ValueError, match="a system with a bandit, got one without"):
            feedback("r", up=True, system=system)
        monkeypatch.setenv("RAGLAB_AUDIT_REQUIRED", "true")
        with pytest.raises(InputError, match="must be writable: it is required"):
            opened_on_disk(disk)

    def test_a_log_elsewhere_is_written(self, disk, tmp_path, monkeypatch):
        """An index for reading alone and a log of one's own satisfy who requires it."""
        remount(disk, "ro")
        monkeypatch.setenv("RAGLAB_AUDIT_LOG", str(tmp_path / "own.sqlite"))
        system = opened_on_disk(disk, audit="required")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(QUESTION, system=system, request_id="r")
        with system.audit.log.reading() as log:
            assert log.row(DECISIONS, request_id="r") is not None
        close(system)


class TestFullDisk:
    """A disk that fills up while a system is open."""

    @pytest.mark.parametrize("arm", ["hybrid", "bandit"])
    def test_it_answers_and_says_so_once(self, disk, arm):
        """Questions go on without their rows; required, they are refused.

        With room again, rows are written again.
        """
        system, strict = (
            opened_on_disk(disk, cache=False, stated=arm),
            opened_on_disk(disk, cache=False, audit="required"),
        )
        wanted = fields(ask(QUESTION, system=system), arm)
        ask(QUESTION, system=strict)
        rest = disk / "rest"
        with rest.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for number in range(8):
                assert (
                    fields(ask(QUESTION, system=system, request_id=f"full{number}"), arm) == wanted
                )
        told = [str(one.message) for one in said]
        assert sum("the audit log cannot be written" in one for one in told) == 1
        assert len(told) <= 1 + (arm == "bandit")
        with pytest.raises(UnwritableLogError, match="a log must be readable and writable"):
            [ask(QUESTION, system=strict) for _ in range(8)]
        rest.unlink()
        ask(QUESTION, system=system, request_id="after")
        with system.audit.log.reading() as log:
            assert log.row(DECISIONS, request_id="after") is not None
        close(system)
        close(strict)


class Killing(Fixed):
    """A generator in whose middle the process is killed."""

    def answer(self, question, passages):
        """Never returns."""
        del question, passages
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def index(tmp_path, encoder):
    """Return a folder whose `i` is an index."""
    del encoder
    build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
    return tmp_path


def _killed(work):
    """Do some work in a fork, which is killed in its middle."""
    process = os.fork()
    if process == 0:  # pragma: no cover - of another process
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL


class TestKilled:
    """A question whose process ended between its request and its decision."""

    @pytest.mark.parametrize("arm", ["hybrid", "bandit"])
    def test_it_is_asked_again_under_its_id(self, index, arm):
        """Its request and its choice keep their one row, the reward counts once.

        Then the id is taken.
        """
        _killed(
            lambda: ask(
                QUESTION,
                system=opened_on_disk(index, stated=arm, cache=False, generator=Killing()),
                request_id="r",
            )
        )
        system = opened_on_disk(index, stated=arm, cache=False)
        said = ask(QUESTION, system=system, request_id="r", session="")
        assert said["status"] == "ok"
        with system.audit.log.reading() as log:
            assert [row["request_id"] for row in log.rows(REQUESTS)] == ["r"]
            assert [row["request_id"] for row in log.rows(DECISIONS)] == ["r"]
        if arm == "bandit":
            with system.online.log.reading() as log:
                (choice,), (reward,) = log.rows(CHOICES), log.rows(REWARDS)
            assert (choice["arm"], choice["propensity"]) == (said["arm"], said.record.propensity)
            assert reward["request_id"] == "r"
            with pytest.raises(ValueError, match="request_id must be new, got 'r'"):
                ask(QUESTION, system=system, request_id="r")
        close(system)

    def test_killed_between_reward_and_decision(self, index, monkeypatch):
        """The choice is taken again and not rewarded twice."""
        from raglab.audit.log import AuditLog

        def kill(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)

        def work():
            monkeypatch.setattr(AuditLog, "decided", kill)
            ask(
                QUESTION, system=opened_on_disk(index, stated="bandit", cache=False), request_id="r"
            )

        _killed(work)
        system = opened_on_disk(index, stated="bandit", cache=False)
        said = ask(QUESTION, system=system, request_id="r")
        assert said.record.propensity is not None
        with system.online.log.reading() as log:
            assert len(list(log.rows(CHOICES))) == len(list(log.rows(REWARDS))) == 1
        close(system)

    def test_another_question_may_not_take_the_id(self, index):
        """Another text, document, session or policy is another request: its log refuses the id."""
        _killed(
            lambda: ask(
                QUESTION,
                system=opened_on_disk(index, cache=False, generator=Killing()),
                request_id="r",
            )
        )
        system = opened_on_disk(index, cache=False)
        with system.audit.log.reading() as log:
            models = log.row(REQUESTS)["models"]  # type: ignore[index]
        about = {
            "policy": system.policy,
            "fingerprint": system.fingerprint,
            "models": models,
        }
        for changed in (
            {"session": "s"},
            {"fingerprint": "other"},
            {"models": {}},
            {"policy": system.policy.replace("chosen.final_k", 1)},
        ):
            with pytest.raises(ValueError, match="request_id must be new, got 'r'"):
                system.audit.opened("r", QUESTION, **{**about, **changed})
        with pytest.raises(ValueError, match="request_id must be new, got 'r'"):
            system.audit.opened("r", "Something else?", **about)
        assert system.audit.opened("r", QUESTION, **about)
        assert not system.audit.opened("new", QUESTION, **about)
        close(system)
