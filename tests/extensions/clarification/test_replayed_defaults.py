"""Explanations of requests that used the default table: its rows are rebuilt as they were."""

from __future__ import annotations

import pytest

from log_samples import PASSES, POLICY, START, check_edited
from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog
from raglab.default_learner import gate

DOCTYPE = "broker_contract"


@pytest.fixture
def log(tmp_path):
    """Return a log, closed at the end."""
    audit_log = AuditLog(tmp_path / "audit.sqlite", clock=lambda: START)
    yield audit_log
    audit_log.close()


def answered(log, checks, status="ok", *, reads_before=False):
    """One request with a silent default and a decision; its row read before it counts, or after."""
    log.opened(
        "r1",
        "who <b>is</b> it?",
        session="ann",
        policy=POLICY,
        fingerprint="f0",
        models={"encoder": "m"},
        now=START,
    )
    key = ("insurer_name", DOCTYPE, {})
    for number in range(3):
        log.opened(f"p{number}", "?", policy=POLICY, fingerprint="f0", models={}, now=START)
        log.met(f"p{number}", key)
        log.signal(f"p{number}", key, "1", "explicit_yes", conditions={})
    before, row = log.rows()[0], log.met("r1", key)
    row = before if reads_before else row
    log.applied("r1", row=row, value="1", gate="apply", conditions={}, kind="page_scope")
    reason = (
        next((check.text for check in checks if not check.passes), None)
        if status == "refuse"
        else None
    )
    applied = {
        "field": key[0],
        "value": "1",
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
    }
    response = {"status": status, "refusal_reason": reason, "answer": "<i>Acme</i>"}
    log.decided("r1", response | {"default_applied": applied | {"gate": gate(row)}}, checks)


class TestExplain:
    """One request."""

    def test_what_it_says(self, log):
        """The default, its version, votes and confidence then, the gate, each check with margin."""
        answered(log, [PASSES])
        later = ("insurer_name", DOCTYPE, {})
        log.opened("z", "?", policy=POLICY, fingerprint="f0", models={}, now=START)
        # what came after is not what was then
        log.signal("z", later, "1", "explicit_no", "toc", conditions={})
        explanation = explain_request("r1", log)
        assert explanation.rebuilt, explanation.differences
        (then,) = explanation.defaults
        assert (then.used, then.value, then.version, then.confidence, dict(then.votes)) == (
            "applied",
            "1",
            7,
            1.0,
            {"1": 3.0},
        )
        assert (then.gate, then.requests, then.asks) == ("apply", 4, False)
        text = str(explanation)
        for part in (
            "who <b>is</b> it?",
            "confidence 1 from 3",
            "margin +0.2",
            "decided anew  ok",
            "rebuilt       yes",
        ):
            assert part in text
        assert explanation.frame()["margin_anew"].tolist() == [pytest.approx(0.2)]

    @pytest.mark.parametrize(("reads_before", "version"), [(True, 6), (False, 7)])
    def test_a_request_counts_once(self, log, reads_before, version):
        """Whether the version that it used counts it already, or not yet."""
        answered(log, [PASSES], reads_before=reads_before)
        explanation = explain_request("r1", log)
        (then,) = explanation.defaults
        assert (then.version, then.requests, explanation.differences) == (version, 4, ())

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            (
                "UPDATE default_applications SET confidence = 0.5",
                "confidence 0.5 is recorded, the changes before it give 1.0",
            ),
            ("UPDATE default_applications SET version = 99", "has no version 99"),
            ("DELETE FROM default_applications", "no such default was applied"),
            (
                "UPDATE default_versions SET confidence = 0.25",
                "confidence 0.25 is recorded beside its body",
            ),
            (
                "UPDATE default_versions SET body = replace(body, '\"1\":3.0', '\"1\":4.0')",
                "differs from what the changes give",
            ),
            # of other requests: the row is folded from its first change on
            (
                "DELETE FROM default_changes WHERE kind = 'signal' AND request_id = 'p1'",
                "differs from what the changes give",
            ),
            ("UPDATE default_changes SET key = '[]'", "cannot be rebuilt"),
            (
                "UPDATE default_versions SET cause = 1 WHERE version = 7",
                "(met) has no version",
            ),
        ],
    )
    def test_an_edited_log_is_noticed(self, log, tmp_path, change, difference):
        """Whatever was written over afterwards is named among the differences."""
        answered(log, [PASSES])
        check_edited(log, tmp_path, change, difference)
