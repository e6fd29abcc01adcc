"""The commands `explain` and `audit`."""

from __future__ import annotations

import json
import sqlite3

import pytest

from commands import run
from log_samples import START, audit_at
from raglab.audit.log import AuditLog
from raglab.decision.checks import Check
from raglab.policy import PolicyData


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the log of two requests."""
    monkeypatch.chdir(tmp_path)
    log = audit_at(tmp_path / "audit.sqlite")
    for request, status in (("r1", "ok"), ("r2", "refuse")):
        log.opened(
            request,
            "who is the insurer?",
            policy=PolicyData.from_mapping(),
            fingerprint="f",
            models={},
            now=START,
        )
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


def test_explain(folder):
    """Prints what happened, for people or as JSON."""
    said = run("explain", "r2", "--log", folder)
    assert said.exit_code == 0, said.output
    assert "decided anew  refuse by similarity" in said.output
    told = json.loads(run("explain", "r1", "--log", folder / "audit.sqlite", "--json").output)
    assert (told["rebuilt"], told["request"]["question"]) == (True, "who is the insurer?")


def test_explain_a_log_that_was_edited(folder):
    """Ends with 1, and says where."""
    with sqlite3.connect(folder / "audit.sqlite") as link:
        link.execute("UPDATE decisions SET status = 'ok'")
    link.close()
    said = run("explain", "r2", "--log", folder)
    assert said.exit_code == 1
    assert "status ok is recorded, the checks give refuse by similarity" in said.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("explain", "r9", "--log", "."),
            "request_id must be that of a request in the log, got 'r9'",
        ),
        (("explain", "r1"), "RAGLAB_AUDIT_LOG: it must name the audit log"),
        (("explain", "r1", "--log", "none.sqlite"), "a log must be there"),
        (
            ("audit", "--log", ".", "--forget", "yesterday"),
            "--forget must be a day such as 2026-01-31",
        ),
        (("audit", "--log", ".", "--forget", "old"), "forget needs a moment"),
    ],
)
def test_what_is_refused(folder, words, told):
    """One line, exit code 1."""
    said = run(*words)
    assert folder.is_dir()
    assert said.exit_code == 1
    assert told in said.output
    assert "Traceback" not in said.output


def test_audit(folder):
    """Counts by day; export and forgetting on demand."""
    said = run("audit", "--log", folder, "--export", folder / "out")
    assert said.exit_code == 0, said.output
    assert (folder / "out" / "query_log.parquet").is_file()
    assert "2026-03-02" in said.output
    told = json.loads(run("audit", "--log", folder, "--forget", "2026-03-03", "--json").output)
    assert told["forgotten"] == 2
    (day,) = told["days"]
    assert {name: day[name] for name in ("requests", "ok", "refuse")} == {
        "requests": 2,
        "ok": 1,
        "refuse": 1,
    }
    assert told["defaults"] == []
    assert b"who is the insurer" not in (folder / "audit.sqlite").read_bytes()


def test_audit_of_an_empty_log(tmp_path):
    """Says that there is nothing."""
    with AuditLog(tmp_path / "audit.sqlite").log.writing():
        pass
    assert "no request yet" in run("audit", "--log", tmp_path).output
