"""Systems that clarify where their log cannot be written.

See `test_live_unwritable` and `test_live_log_outages`.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker_documents import COVER, ENGLISH, QUI, START, WHO
from extensions.clarification.asked_questions import ASKING, logged, put, voted
from generators import Fixed
from hostile import remount
from live_worlds import opened_on_disk
from log_samples import AWAY, check_numbers, full_disk
from raglab.audit.log import AuditLog
from raglab.live.ask import ask, reply
from raglab.live.system import System
from raglab.store.database import UnwritableLogError
from raglab.store.files import InputError
from raglab.store.log_tables import APPLICATIONS, CLARIFICATIONS, DECISIONS
from raglab.words.languages import Reason, say
from refusals import warned

UNLOGGED = str(Reason("unlogged"))


def test_the_log_that_clarifications_need(disk):
    """Before any model is loaded."""
    remount(disk, "ro")
    with pytest.raises(InputError, match="must be writable: clarifications need it"):
        opened_on_disk(disk, clarify=True)


def test_a_server_that_is_away(opened, postgresql, monkeypatch):
    """What it has learned cannot be read: nothing is opened.

    While it is open, questions are answered.
    """
    monkeypatch.setenv("RAGLAB_AUDIT_LOG", postgresql.schema())
    system = opened()
    assert put(system)["clarification"] is not None
    postgresql.stop("immediate")
    try:
        with pytest.raises(UnwritableLogError):
            opened_again(system)
        with pytest.warns(UserWarning, match=AWAY):
            response = ask(WHO, system=system, documents=[ENGLISH], now=START)
        with pytest.raises(UnwritableLogError):
            reply("q", "document", system=system, now=START)
    finally:
        postgresql.start()
    assert (response["clarification"], response["warnings"][-1]) == (None, UNLOGGED)
    assert reply("q", "document", system=system, now=START)["status"] == "ok"


def opened_again(system):
    """The same index in another system that clarifies."""
    assert system.opening is not None
    return System.open(system.opening.place, policy=system.policy, cache=False, clarify=True)


def failing(monkeypatch, name):
    """Let one step of the audit log meet a full disk."""

    def fail(*_, **__):
        msg = "a log must be readable and writable, got database or disk is full; make room."
        raise UnwritableLogError(msg)

    monkeypatch.setattr(AuditLog, name, fail)


class TestFullDisk:
    """Nothing is asked back or filled in that the log has not: it could take no reply."""

    def test_a_question_is_answered_as_it_is(self, opened, monkeypatch):
        """As by a system that clarifies nothing, with a warning in its language.

        With room again, it asks.
        """
        switch, system, plain = full_disk(monkeypatch), opened(), opened(clarify=False, audit=False)
        about: dict[str, Any] = {"documents": [COVER], "now": START}
        for number in range(4):
            response = ask("What is the excess?", system=system, request_id=f"q{number}", **about)
            assert response["clarification"] is not None
        switch(system, True)
        with warned() as warning_texts:
            full = [
                ask("What is the excess?", system=system, request_id=f"full{number}", **about)
                for number in range(12)
            ]
        lost = [answer for answer in full if not answer.record.logged]
        assert lost
        assert [AWAY in text for text in warning_texts] == [True]
        for answer in lost:
            assert answer["clarification"] is None
            assert answer["default_applied"] is None
            assert answer["warnings"][-1] == UNLOGGED
        same = ask("What is the excess?", system=plain, **about)
        assert [(answer["status"], answer["answer"]) for answer in lost] == [
            (same["status"], same["answer"])
        ] * len(lost)
        french = ask(QUI, system=system, now=START)
        assert french["warnings"][-1] == say("fr", Reason("unlogged")) != UNLOGGED
        # what it would teach is not lost in silence: it can be given again
        taken: list[object] = []
        with pytest.raises(UnwritableLogError):
            taken.extend(
                reply(f"q{number}", "Storm and wind", system=system, now=START)
                for number in range(4)
            )
        switch(system, False)
        with warned() as warning_texts:
            again = ask("What is the excess?", system=system, request_id="after", **about)
        assert again["clarification"] is not None
        assert not warning_texts
        again = reply(f"q{len(taken)}", "Storm and wind", system=system, now=START)
        assert again["status"] in {"ok", "refuse"}
        assert system.audit is not None
        assert system.audit.rows()[0].candidate_votes["Storm and wind"] == len(taken) + 1.0
        assert system.audit.rebuild() == system.audit.rows()
        check_numbers(system.audit)

    @pytest.mark.parametrize("step", ["opened", "settle", "met", "clarified", "decided"])
    def test_whatever_step_fails(self, opened, monkeypatch, step):
        """No question is put to a user that the log has not, whole; the next one is."""
        system = opened()
        with monkeypatch.context() as patch:
            failing(patch, step)
            with pytest.warns(UserWarning, match=AWAY):
                response = put(system)
        assert (response["clarification"], response["warnings"][-1]) == (None, UNLOGGED)
        assert logged(system, DECISIONS) == []
        response = put(system, WHO, ENGLISH, "r")
        assert response["clarification"] is not None
        assert [row["request_id"] for row in logged(system, CLARIFICATIONS)] == [
            "r",
            *["q"] * (step == "decided"),
        ][::-1]

    @pytest.mark.parametrize("step", ["met", "decided"])
    def test_a_default_that_is_not_logged_is_not_applied(self, opened, monkeypatch, step):
        """Silence could not confirm it, nor a reply correct it."""
        system = opened()
        voted(system, 9.5, 1)
        with monkeypatch.context() as patch:
            failing(patch, step)
            with pytest.warns(UserWarning, match=AWAY):
                response = put(system)
        assert (response["default_applied"], response["warnings"][-1]) == (None, UNLOGGED)
        assert logged(system, APPLICATIONS) == []
        again = put(system, WHO, ENGLISH, "r")
        assert again["default_applied"] is not None

    def test_a_choice_that_is_not_learned_is_said(self, opened, monkeypatch):
        """It is answered by the option that was chosen."""
        monkeypatch.setenv("RAGLAB_CLARIFY_OPTIONS", "true")
        system = opened(ASKING, generator=Fixed("Theft is covered.", name="fixed"), scorer=None)
        system = system.replace(system.policy.replace("support.enabled", False))
        first = ask("What is covered?", system=system, request_id="a", now=START)
        failing(monkeypatch, "signal")
        with pytest.warns(UserWarning, match=AWAY):
            chosen = ask(
                "What is covered?", system=system, selected_option=2, request_id="b", now=START
            )
        assert chosen["warnings"][-1] == UNLOGGED
        assert set(chosen["sources"]) == set(first["options"][1]["sources"])
