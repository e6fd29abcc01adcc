"""The default table under the hash chain.

Damage to its rows is named, forgetting leaves it, a request is explained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog, DefaultUse
from raglab.decision.checks import Check
from raglab.default_learner import ClarificationRequest, gate
from raglab.extensions.clarification.question_texts import applied_default
from raglab.store.log_tables import EVENTS
from test_store_log_chain import (
    LATER,
    POLICY,
    START,
    Log,
    audit_at,
    check_altered_cells,
    edited,
    first_version,
)
from test_store_log_chain import fill_audit as fill_requests

KEY = ("insurer_name", "broker_contract", {})


def ask(
    log: AuditLog, request: str, minute: int, session: str = "ann", question: str = "open Sesame?"
) -> None:
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
    said = {
        "status": "ok",
        "answer": "Sesame",
        "options": [{"id": 1, "text": "Sesame"}],
        "confidence": 0.5,
    }
    said["default_applied"] = applied_default(use)
    log.decided(request, said, [check], {"total": 12.5}, applied=use, now=now)


def fill_audit(log: AuditLog) -> None:
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
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed log with events in every table."""
    path = tmp_path_factory.mktemp("logs") / "audit.sqlite"
    log = audit_at(path)
    fill_audit(log)
    with log.log.reading() as entries:
        assert [table.name for table in EVENTS if entries.row(table.name) is None] == []
    log.close()
    return path


@pytest.fixture
def audit(filled: Path, tmp_path: Path) -> Iterator[Log]:
    """Return an audit log."""
    path, names = Path(copy(filled, tmp_path)), (f"w{number}" for number in count())
    log = audit_at(path)
    yield Log(path, log.verify, lambda: ask(log, next(names), 99, "cat"), log.rows, log.close)
    log.close()


def test_an_intact_log(audit: Log) -> None:
    """Nothing is found, before and after more is written."""
    assert audit.findings() == []
    audit.write()
    assert audit.verify().intact


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE defaults SET body = replace(body, '1.0', '7.0')",
            r"defaults: row \w+ differs from what the events make",
        ),
        ("DELETE FROM defaults", r"defaults: row \w+ is missing"),
        ("UPDATE open_applications SET closed = 1 - closed", r"open_applications: row \w+ differs"),
        ("DELETE FROM open_applications", r"open_applications: row \w+ is missing"),
    ],
)
def test_damage_is_named(audit: Log, statement: str, told: str) -> None:
    """By table and what is wrong."""
    audit.edit(statement)
    verification = audit.verify()
    assert not verification.intact
    assert any(re.match(told, str(finding)) for finding in verification.findings), (
        verification.findings
    )


def test_a_hundred_cells_are_altered(audit: Log) -> None:
    """Whichever cell of whichever table.

    A verification names it, or the log is refused as a whole.
    """
    check_altered_cells(audit)


@pytest.mark.parametrize("query", ["text", "hash", "none"])
def test_forgetting(tmp_path: Path, query: Any) -> None:
    """What was forgotten, or never kept, is not missed, and the texts are gone."""
    log = AuditLog(tmp_path / "audit.sqlite", query=query, clock=lambda: START)
    fill_audit(log)
    assert log.verify().intact
    log.forget(before=START + timedelta(days=1))
    assert log.verify().intact
    assert b"Sesame" not in (tmp_path / "audit.sqlite").read_bytes()
    log.close()


def test_a_log_of_version_1(audit: Log) -> None:
    """Is read as it is, and chained by the first write."""
    first_version(audit.path)
    audit.read()
    audit.write()
    assert audit.findings() == []


def test_a_log_that_has_not_begun(tmp_path: Path) -> None:
    """Is read as an empty one, and is not there afterwards."""
    log = audit_at(tmp_path / "a.sqlite")
    assert (log.rows(), log.rebuild(), log.settle(now=START)) == ((), (), 0)
    assert list(tmp_path.iterdir()) == []


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
        ("UPDATE query_log SET documents = '7'", lambda log: log.application("d3")),
        ("UPDATE clarifications SET candidates = '7'", lambda log: explain_request("d2", log)),
        ("UPDATE clarifications SET version = 'x'", lambda log: explain_request("d2", log)),
        ("DELETE FROM default_applications", lambda log: log.settle(now=START + timedelta(days=9))),
    ],
)
def test_rows_that_were_altered_beyond_reading(
    audit: Log, statement: str, use: Callable[[AuditLog], object]
) -> None:
    """Rule, value, remedy."""
    audit.edit(statement)
    log = audit_at(audit.path)
    with pytest.raises(
        ValueError, match=r"rows of a log must be as they were written, got .*audit --verify"
    ) as error:
        use(log)
    assert "\n" not in str(error.value)
    log.close()


def test_an_explanation_is_held_against_the_chain(audit: Log) -> None:
    """Proposals follow from nothing: the chain tells that one was edited."""
    log = audit_at(audit.path)
    explanation = explain_request("d2", log)
    assert (explanation.damage, explanation.rebuilt) == ((), True)
    log.close()
    edited(audit.path, "UPDATE clarifications SET proposed = 'toc'")
    explanation = explain_request("d2", log)
    assert any("clarifications" in damage for damage in explanation.damage or ())
    log.close()
