"""The commands `explain` and `audit` over a log with a default table."""

from __future__ import annotations

import json

import pytest

from commands import run
from log_samples import START
from raglab.audit.log import AuditLog
from raglab.decision.checks import Check
from raglab.policy import PolicyData


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the log of two requests that voted for a default."""
    monkeypatch.chdir(tmp_path)
    log = AuditLog(tmp_path / "audit.sqlite", clock=lambda: START)
    key = ("insurer_name", "contract", {})
    for request, status in (("r1", "ok"), ("r2", "refuse")):
        log.opened(
            request,
            "who is the insurer?",
            policy=PolicyData.from_mapping(),
            fingerprint="f",
            models={},
            now=START,
        )
        log.met(request, key)
        log.signal(request, key, "1", "explicit_yes", conditions={})
        value = 0.9 if status == "ok" else 0.5
        check = Check(
            "similarity",
            "S2.6",
            value,
            0.7,
            value - 0.7,
            status == "ok",
            "similarity of the nearest hit",
        )
        reason = None if status == "ok" else "similarity of the nearest hit"
        log.decided(
            request, {"status": status, "answer": "Acme", "refusal_reason": reason}, [check]
        )
    log.close()
    return tmp_path


def test_audit(folder):
    """Counts by day and the default table; export and forgetting on demand."""
    said = run("audit", "--log", str(folder), "--export", str(folder / "out"))
    assert said.exit_code == 0, said.output
    assert (folder / "out" / "query_log.parquet").is_file()
    assert "2026-03-02" in said.output
    told = json.loads(run("audit", "--log", str(folder), "--forget", "2026-03-03", "--json").output)
    assert told["forgotten"] == 2
    (day,) = told["days"]
    assert {name: day[name] for name in ("requests", "ok", "refuse", "confirmed")} == {
        "requests": 2,
        "ok": 1,
        "refuse": 1,
        "confirmed": 2,
    }
    (row,) = told["defaults"]
    assert (row["votes"], row["gate"], row["requests"]) == ("1 2", "apply", 2)
    assert b"who is the insurer" not in (folder / "audit.sqlite").read_bytes()


def test_explain(folder):
    """Prints the vote."""
    shown = run("explain", "r2", "--log", str(folder))
    assert shown.exit_code == 0, shown.output
    assert "explicit_yes for 1" in shown.output
