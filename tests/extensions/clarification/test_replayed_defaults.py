"""Explanations of requests that used the default table: its rows are rebuilt as they were."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pytest

from log_samples import PASSES, POLICY, START, check_edited, check_unreadable
from log_samples import response_of as response
from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog, DefaultUse
from raglab.default_learner import ClarificationRequest, DefaultLearner, asks, gate, lookup
from raglab.extensions.clarification.question_texts import applied_default
from raglab.replay import decide
from worlds import random_policies, random_trace

DOCTYPE = "broker_contract"


@pytest.fixture
def log(tmp_path):
    """Return a log, closed at the end."""
    made = AuditLog(tmp_path / "audit.sqlite", clock=lambda: START)
    yield made
    made.close()


class Week:
    """A simulated week: users ask for fields of contracts, some with a coversheet.

    The loop asks, applies, learns.
    """

    def __init__(self, log, seed):
        self.log, self.rng = log, np.random.default_rng(seed)
        self.trace = random_trace(seed, n_cases=40, depths=2)
        self.policies = random_policies(seed, 3)
        self.said = [decide(self.trace, policy) for policy in self.policies]
        self.now, self.ids = START, []

    def play(self, requests):
        """Ids of the requests that were played."""
        for number in range(requests):
            self.now += timedelta(minutes=float(self.rng.integers(1, 7 * 24 * 60 // requests * 2)))
            self.log.settle(now=self.now)
            self.one(f"q{number:03d}")
        return self.ids

    def one(self, request):
        """One request, whichever way it goes."""
        rng, log, now = self.rng, self.log, self.now
        which, row = int(rng.integers(len(self.policies))), int(rng.integers(len(self.trace)))
        said, field = self.said[which], ("insurer_name", "expiry_date")[int(rng.integers(2))]
        conditions = {"page_1_kind": "coversheet" if rng.random() < 0.3 else "body"}
        about = {"conditions": conditions, "kind": "page_scope", "now": now}
        parsed = {"target_field": (field, 0.9), "page_scope": (None, 0.1), "language": "en"}
        session = f"s{int(rng.integers(4))}"
        question = f"what is the {field} on contract {int(rng.integers(9))}?"
        log.opened(
            request,
            question,
            session=session,
            parsed=parsed,
            policy=self.policies[which],
            fingerprint="f0",
            models={"encoder": "mini", "prompt_version": "p1"},
            now=now,
        )
        self.ids.append(request)
        found = lookup(log.rows(field, DOCTYPE), field, DOCTYPE, conditions)
        key = (field, DOCTYPE, {} if found is None else found.sub_conditions)
        asking = found is None or asks(found, log.learner)
        then = log.met(request, key, now=now)
        checks, told = said.explain(self.trace.cases[row].id), response(said, row)
        if asking:
            proposal = ClarificationRequest(
                target_field=field,
                question_to_user="Page 1?",
                candidate_values=["1", "toc"],
                proposed_default="1",
            )
            log.clarified(request, proposal, row=then, why="gate ask", gain=4.0, cost=1.0, **about)
            waiting = {
                "status": "ambiguous",
                "clarification": proposal.model_dump(),
                "answer": None,
            }
            log.decided(request, waiting, checks[:1], {"total": 1.0}, now=now)
            if rng.random() < 0.2:
                return  # nobody replied
            right = conditions["page_1_kind"] == "body"
            log.replied(request, "yes" if right else "toc", now=now)
            signal, other = ("explicit_yes", None) if right else ("explicit_no", "toc")
            log.signal(request, key, "1", signal, other, conditions=conditions, now=now)
        elif conditions["page_1_kind"] == "coversheet":
            log.signal(request, key, "1", "failure", conditions=conditions, now=now)
        else:
            use = DefaultUse(then, "1", gate(then), "page_scope", conditions)
            told |= {"default_applied": applied_default(use._replace(row=then))}
            log.decided(request, told, checks, {"total": 2.0}, applied=use, now=now)
            return
        log.decided(request, told, checks, {"total": 2.0}, now=now)


@pytest.mark.parametrize("seed", range(3))
def test_a_simulated_week(tmp_path, seed):
    """Fifty random requests of a week of 150.

    Each decision, row, gate and margin is rebuilt identically.
    """
    learner = DefaultLearner(alpha=0.9) if seed else DefaultLearner(rule="posterior")
    log = AuditLog(tmp_path / "week.sqlite", learner=learner, clock=lambda: START)
    ids = Week(log, seed).play(150)
    assert log.rows() == log.rebuild()
    chosen = np.random.default_rng(seed).choice(ids, 50, replace=False)
    found = [explain_request(str(one), log) for one in chosen]
    assert [one.differences for one in found] == [()] * 50
    assert all(one.rebuilt for one in found)
    used = {default.used for one in found for default in one.defaults}
    assert used == {"asked", "applied"}
    assert {"ok", "refuse", "ambiguous"} <= {one.status for each in found for one in each.decisions}
    until = START + timedelta(days=400)
    log.forget(before=until)
    again = [explain_request(str(one), log) for one in chosen]
    assert all(one.rebuilt for one in again)
    assert [one.request["question"] for one in again] == [None] * 50
    assert [[each.status for each in one.decisions] for one in again] == [
        [each.status for each in one.decisions] for one in found
    ]
    assert [one.defaults for one in again] == [one.defaults for one in found]
    log.close()


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
        next((one.text for one in checks if not one.passes), None) if status == "refuse" else None
    )
    applied = {
        "field": key[0],
        "value": "1",
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
    }
    said = {"status": status, "refusal_reason": reason, "answer": "<i>Acme</i>"}
    log.decided("r1", said | {"default_applied": applied | {"gate": gate(row)}}, checks)


class TestExplain:
    """One request."""

    def test_what_it_says(self, log):
        """The default, its version, votes and confidence then, the gate, each check with margin."""
        answered(log, [PASSES])
        later = ("insurer_name", DOCTYPE, {})
        log.opened("z", "?", policy=POLICY, fingerprint="f0", models={}, now=START)
        # what came after is not what was then
        log.signal("z", later, "1", "explicit_no", "toc", conditions={})
        said = explain_request("r1", log)
        assert said.rebuilt, said.differences
        (then,) = said.defaults
        assert (then.used, then.value, then.version, then.confidence, dict(then.votes)) == (
            "applied",
            "1",
            7,
            1.0,
            {"1": 3.0},
        )
        assert (then.gate, then.requests, then.asks) == ("apply", 4, False)
        text = str(said)
        for part in (
            "who <b>is</b> it?",
            "confidence 1 from 3",
            "margin +0.2",
            "decided anew  ok",
            "rebuilt       yes",
        ):
            assert part in text
        assert said.frame()["margin_anew"].tolist() == [pytest.approx(0.2)]

    @pytest.mark.parametrize(("reads_before", "version"), [(True, 6), (False, 7)])
    def test_a_request_counts_once(self, log, reads_before, version):
        """Whether the version that it used counts it already, or not yet."""
        answered(log, [PASSES], reads_before=reads_before)
        said = explain_request("r1", log)
        (then,) = said.defaults
        assert (then.version, then.requests, said.differences) == (version, 4, ())

    def test_it_is_json(self, log):
        """Every part, without NaN."""
        answered(
            log, [PASSES._replace(value=float("nan"), margin=float("nan"), passes=False)], "refuse"
        )
        said = json.loads(explain_request("r1", log).json())
        assert said["rebuilt"] is True
        assert said["decisions"][0]["checks"][0]["margin"] is None
        assert said["defaults"][0]["confidence"] == 1.0

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (
                "UPDATE default_applications SET confidence = 0.5",
                "confidence 0.5 is recorded, the changes before it give 1.0",
            ),
            ("UPDATE default_applications SET gate = 'ask'", "gate ask is recorded"),
            (
                "UPDATE default_applications SET votes = '{\"1\":9.0}'",
                "votes {'1': 9.0} is recorded",
            ),
            ("UPDATE default_applications SET version = 99", "has no version 99"),
            ("UPDATE default_applications SET value = 'toc'", "no such default was applied"),
            ("DELETE FROM default_applications", "no such default was applied"),
            (
                "UPDATE default_versions SET confidence = 0.25",
                "confidence 0.25 is recorded beside its body",
            ),
            (
                "UPDATE default_versions SET sample_size = 9",
                "sample_size 9 is recorded beside its body",
            ),
            (
                "UPDATE default_versions SET doctype = 'invoice'",
                "doctype 'invoice' is recorded beside its body",
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
            (
                "UPDATE default_changes SET signal = 'implicit_ok' WHERE request_id = 'p1'",
                "differs from what the changes give",
            ),
            ("UPDATE default_changes SET key = '[]'", "cannot be rebuilt"),
            (
                "UPDATE default_versions SET cause = 1 WHERE version = 7",
                "(met) has no version",
            ),
        ],
    )
    def test_an_edited_log_is_noticed(self, log, tmp_path, change, told):
        """Whatever was written over afterwards is named among the differences."""
        answered(log, [PASSES])
        check_edited(log, tmp_path, change, told)

    def test_a_row_that_the_log_has_not(self, log, tmp_path):
        """Is told as such, without a stack."""
        answered(log, [PASSES])
        check_unreadable(log, tmp_path, "UPDATE default_applications SET row_id = 'zzz'")
