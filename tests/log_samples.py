"""Small logs of both kinds, edited past raglab, and checked for gaps."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from raglab.audit.log import AuditLog
from raglab.bandit import Bandit
from raglab.decision.checks import Check
from raglab.live.online_bandit import FEATURES, Online
from raglab.policy import PolicyData
from raglab.reward import COMPONENTS, RewardWeights
from raglab.store.log_tables import LABELS, SAMPLES

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = START + timedelta(minutes=3)
POLICY = PolicyData.from_mapping()
OLD = Path(__file__).parent / "data" / "log_version_3.sql"  # both logs, as raglab 0.1.0 made them
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
    for statement in [*statements, *(BEFORE_2 if version < 2 else ())]:
        places.execute("log.sqlite", statement)
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
    log.opened(
        request,
        question,
        session=session,
        parsed={"entity": ("Sesame", 0.9)},
        policy=POLICY,
        fingerprint="f",
        models={"encoder": "mini"},
        now=now,
    )
    check = Check("similarity", "S2.6", 0.9, 0.7, 0.9 - 0.7, True, "similarity of the nearest hit")
    response = {"status": "ok", "answer": "Sesame", "confidence": 0.5}
    response["options"] = [{"id": 1, "text": "Sesame"}]
    log.decided(request, response, [check], {"total": 12.5}, now=now)


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
    online.choose(request, [True, True], dict.fromkeys(FEATURES, 0.5), question="open Sesame?")
    online.update(request, dict.fromkeys(COMPONENTS, 0.5))
    online.thumbs(request, up=True)
