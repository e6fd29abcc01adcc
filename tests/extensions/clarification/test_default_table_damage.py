"""The default table of a log that was altered: refused in one line, or explained as it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from log_samples import LATER, POLICY, START, audit_at, edited
from log_samples import fill_audit as fill_requests
from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog, DefaultUse
from raglab.decision.checks import Check
from raglab.default_learner import ClarificationRequest, gate
from raglab.extensions.clarification.question_texts import applied_default
from raglab.store.log_tables import EVENTS

KEY = ("insurer_name", "broker_contract", {})


def ask(log, request, minute, session="ann", question="open Sesame?"):
    """Open a request and answer it with a default applied silently."""
    now = START + timedelta(minutes=minute)
    parsed = {"entity": ("Sesame", 0.9)}
    about = {
        "session": session,
        "policy": POLICY,
        "fingerprint": "f",
        "models": {"encoder": "mini"},
    }
    log.opened(request, question, parsed=parsed, now=now, **about)  # type: ignore[arg-type]
    row = log.met(request, KEY, now=now)
    use = DefaultUse(row, "1", gate(row), "page_scope", {})
    check = Check("similarity", "S2.6", 0.9, 0.7, 0.9 - 0.7, True, "similarity of the nearest hit")
    response = {
        "status": "ok",
        "answer": "Sesame",
        "options": [{"id": 1, "text": "Sesame"}],
        "confidence": 0.5,
    }
    response["default_applied"] = applied_default(use)
    log.decided(request, response, [check], {"total": 12.5}, applied=use, now=now)


def fill_audit(log):
    """Requests of which every table has an event."""
    for number in range(3):
        ask(log, f"d{number}", number)
    log.signal("d0", KEY, "1", "explicit_yes", conditions={}, now=START)
    about = ClarificationRequest(
        target_field=KEY[0],
        question_to_user="Page 1?",
        candidate_values=["1", "toc"],
        proposed_default="1",
    )
    more: dict[str, Any] = {
        "kind": "page_scope",
        "why": "gate",
        "gain": 5,
        "cost": 1,
        "conditions": {},
    }
    log.clarified("d2", about, row=log.rows()[0], now=LATER, **more)
    log.replied("d2", "page Sesame", now=LATER)
    log.settle(now=START + timedelta(minutes=9), session="ann")
    ask(log, "d3", 60, "bob")
    fill_requests(log)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Return a closed log with events in every table."""
    path = tmp_path_factory.mktemp("logs") / "audit.sqlite"
    log = audit_at(path)
    fill_audit(log)
    with log.log.reading() as entries:
        assert [table.name for table in EVENTS if entries.row(table.name) is None] == []
    log.close()
    return path


@pytest.fixture
def audit(filled, tmp_path):
    """Return the file of an audit log."""
    return Path(copy(filled, tmp_path))


@pytest.mark.parametrize("query", ["text", "hash", "none"])
def test_forgetting(tmp_path, query):
    """The rows stay, and can be rebuilt; the texts are gone."""
    log = AuditLog(tmp_path / "audit.sqlite", query=query, clock=lambda: START)
    fill_audit(log)
    before = log.rows()
    log.forget(before=START + timedelta(days=1))
    assert log.rebuild() == log.rows() == before
    assert explain_request("d2", log).rebuilt
    assert b"Sesame" not in (tmp_path / "audit.sqlite").read_bytes()
    log.close()


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        ("UPDATE defaults SET body = '[]'", lambda log: log.rows()),
        (
            "UPDATE defaults SET body = replace(hex(zeroblob(4500)), '0', '[')",
            lambda log: log.rows(),
        ),
        ("UPDATE defaults SET body = '{bad'", lambda log: log.rows()),
        (
            "UPDATE defaults SET body = '{\"votes\": 1}'",
            lambda log: log.signal("d3", KEY, "1", "failure", conditions={}),
        ),
        ("UPDATE default_changes SET key = '7'", lambda log: log.rebuild()),
        ("UPDATE default_changes SET at = 'never'", lambda log: log.rebuild()),
        ("UPDATE default_changes SET found = '[1]'", lambda log: log.rebuild()),
        ("UPDATE learners SET body = '{\"x\": 1}'", lambda log: log.rebuild()),
        ("UPDATE query_log SET documents = '7'", lambda log: explain_request("d3", log)),
        ("UPDATE clarifications SET candidates = '7'", lambda log: explain_request("d2", log)),
        ("UPDATE clarifications SET version = 'x'", lambda log: explain_request("d2", log)),
        ("DELETE FROM default_applications", lambda log: log.settle(now=START + timedelta(days=9))),
    ],
)
def test_rows_that_were_altered_beyond_reading(audit, statement, use):
    """Rule, value, remedy."""
    edited(audit, statement)
    log = audit_at(audit)
    with pytest.raises(
        ValueError, match=r"rows of a log must be as they were written, got .*restore a copy"
    ) as error:
        use(log)
    assert "\n" not in str(error.value)
    log.close()
