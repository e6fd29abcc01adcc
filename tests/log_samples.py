"""Small logs of both kinds, edited past raglab, and checked for gaps."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog
from raglab.bandit import Bandit
from raglab.decision.checks import Check
from raglab.live.online_bandit import CONTEXT_FEATURES, Online
from raglab.policy import PolicyData
from raglab.reward import COMPONENTS, RewardWeights
from raglab.store import database
from raglab.store.log_tables import LABELS, SAMPLES
from raglab.values import Status

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = START + timedelta(minutes=3)
POLICY = PolicyData.from_mapping()
PASSES = Check(
    "similarity",
    "S2.6",
    0.9,
    0.7,
    0.9 - 0.7,
    True,
    "similarity of the nearest hit 0.9 is at or above",
)
OK = {"status": "ok", "answer": "Acme Mutual.", "refusal_reason": None}
ROOT = Path(__file__).parents[1]
OLD = ROOT / "tests" / "data" / "log_version_3.sql"  # both logs, as raglab 0.1.0 made them
# What makes of it a log of version 2, and of that one of version 1.
BEFORE_3 = (
    *(f"DROP TABLE {name}" for name in ("evidence", "samples", "labels")),
    "DELETE FROM audit_numbers WHERE name IN ('evidence', 'samples', 'labels')",
    "UPDATE audit_numbers SET value = 2 WHERE name = 'schema'",
)
BEFORE_2 = (
    "DROP TABLE audit_chain",
    "ALTER TABLE audit_numbers DROP COLUMN digest",
    "DELETE FROM audit_numbers WHERE name NOT IN ('schema', 'event')",
    "UPDATE audit_numbers SET value = 1 WHERE name = 'schema'",
)


def old_log(places, version):
    """Place of a log of an older version, with two requests and one choice of a bandit."""
    statements = OLD.read_text(encoding="utf-8").split(";\n")[:-1]
    statements += BEFORE_3 if version < 3 else ()
    places.run("log.sqlite", [*statements, *(BEFORE_2 if version < 2 else ())])
    return places("log.sqlite")


def edited(path, *statements):
    """Run statements over a closed log; each must reach a row, or change the schema."""
    link = sqlite3.connect(path)
    for statement in statements:
        assert link.execute(statement).rowcount != 0, statement
    link.commit()
    link.close()


def check_numbers(log):
    """The events of a log that is alone in its database have the numbers from 1, without a gap."""
    with log.log.reading() as entries:
        tables = [table.name for table in log.log._own if table.key is None]
        numbers = sorted(row["seq"] for table in tables for row in entries.rows(table))
        assert numbers == list(range(1, entries.last + 1))


def ask(log, request, minute, session="ann", question="open Sesame?"):
    """Open a request and answer it."""
    now = START + timedelta(minutes=minute)
    parsed = {"entity": ("Sesame", 0.9)}
    open_request(log, request, question, session=session, parsed=parsed, now=now)
    response = {"status": "ok", "answer": "Sesame", "confidence": 0.5}
    response["options"] = [{"id": 1, "text": "Sesame"}]
    log.decided(request, response, [PASSES], {"total": 12.5}, now=now)


def fill_audit(log):
    """A few requests with their events, but for those of the default table."""
    for number in range(3):
        ask(log, f"r{number}", number)
    log.replied("r2", "page Sesame", now=LATER)
    ask(log, "r3", 60, "bob")
    log.forget(before=START + timedelta(minutes=1))
    drawn = {"seed": 0, "first": 1, "last": 99, "sizes": {"ok": 4}, "drawn": ["r1"]}
    about = {"at": "2026-03-03T09:00:00+00:00", "sample": "s1"}
    with log.log.writing() as entries:
        entries.add(SAMPLES, about | drawn)
        entries.add(LABELS, about | {"request_id": "r1", "label": "ok"})
    became = {"query": "open Sesame?", "documents": ["a.md"], "task": "", "arm": "hybrid"}
    log.evidence("r2", became | {"depths": [], "answer": None}, now=LATER)


def audit_at(path):
    """An audit log whose clock stands still."""
    return AuditLog(path, clock=lambda: START)


def bandit_at(path):
    """A bandit over a log."""
    return Online(
        Bandit(floor=0.05), RewardWeights(), 8000.0, path, ("hybrid", "graph"), clock=lambda: START
    )


def choose(online, request):
    """One choice with its reward and a thumb."""
    online.choose(
        request, [True, True], dict.fromkeys(CONTEXT_FEATURES, 0.5), question="open Sesame?"
    )
    online.update(request, dict.fromkeys(COMPONENTS, 0.5))
    online.thumbs(request, up=True)


def edit(log, folder, change):
    """Write over rows of a log in a file."""
    log.close()
    edited(folder / "audit.sqlite", change)


def check_edited(log, folder, change, told):
    """Check that a change of a log is among the differences of its request."""
    assert explain_request("r1", log).rebuilt
    edit(log, folder, change)
    said = explain_request("r1", log)
    assert not said.rebuilt
    assert any(told in one for one in said.differences), said.differences
    assert "NO" in str(said)


def check_unreadable(log, folder, change):
    """Check that rows of a log that are none are told as such."""
    edit(log, folder, change)
    with pytest.raises(
        ValueError, match=r"rows of a log must be as they were written, .* were altered"
    ):
        explain_request("r1", log)


def response_of(said, row):
    """What a live system would have said of a case."""
    status = Status(int(said.status[row])).name
    reason = said.reason(row) if status == "refuse" else None
    return {
        "status": status,
        "refusal_reason": reason,
        "answer": "…",
        "confidence": float(said.confidence()[row]),
    }


def decided_request(
    log,
    request,
    status,
    gate="similarity",
    *,
    minute=0,
    **more,
):
    """One request that is answered, refused by a gate or asked back."""
    now = START + timedelta(minutes=minute)
    question = more.pop("question", f"who is {request}?")
    log.opened(request, question, policy=POLICY, fingerprint="f", models={}, now=now, **more)
    if status == "ambiguous":
        check = Check("resolver", "S3.3 group_gap", 0.1, 0.2, -0.1, False, "no group is ahead")
        said = {"options": [{"id": 1}, {"id": 2}]}
    else:
        value = 0.9 if status == "ok" else 0.1
        check = Check(gate, "S2", value, 0.7, value - 0.7, status == "ok", f"{gate} {value}")
        said = {"answer": "Acme", "refusal_reason": None if status == "ok" else check.text}
    log.decided(request, {"status": status, **said}, [check], now=now)


def newest_rate(table, name, source):
    """The newest row of a rate."""
    return table[(table["rate"] == name) & (table["source"] == source)].iloc[-1]


def open_request(log, request, question="who is the insurer?", **more):
    """Open a request."""
    stated = {"session": "ann", "now": START, "policy": POLICY, "fingerprint": "f0"}
    log.opened(request, question, **{**stated, "models": {"encoder": "mini"}, **more})


def rows_of(log, table):
    """Rows of a table."""
    with log.log.reading() as entries:
        return list(entries.rows(table))


AWAY = "audit log cannot be written"


def audit_of(system):
    """The audit log, which must be there."""
    assert system.audit is not None
    return system.audit


def full_disk(monkeypatch):
    """Switch by which the SQLite log of a system has no room for another page."""
    prepared, state = database.prepare_connection, {"full": False}

    def prepare(link, record=None):
        prepared(link, record)
        if state["full"]:
            pages = link.execute("PRAGMA page_count").fetchone()[0]
            link.execute(f"PRAGMA max_page_count={pages}")

    monkeypatch.setattr(database, "prepare_connection", prepare)

    def switch(system, full):
        state["full"] = full
        audit_of(system).log.close()

    return switch
