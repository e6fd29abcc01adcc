"""How an answer came about, rebuilt from the log alone.

Every chain's decision, a week of requests, an edited log.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators import Drawn, Weighed
from hostile_texts import assert_inert
from log_samples import PASSES, POLICY, START, audit_at, check_edited, check_unreadable, response_of
from raglab.audit.explanation import check_differences, decide_by_checks, explain_request, margins
from raglab.audit.log import check_from_json, check_to_json
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.live.answer_recording import record_answers
from raglab.replay import decide
from worlds import Hit, ask, random_policies, random_trace, trace_of, with_signals
from worlds import policy as stated_policy


def in_log(checks):
    """Checks as they come back from a log."""
    return [
        check_from_json(json.loads(json.dumps(check_to_json(one), allow_nan=False)))
        for one in checks
    ]


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.integers(0, 100_000), st.integers(1, 3), st.booleans())
# drawn
def test_the_checks_alone_give_the_decision(
    seed,
    depths,
    answered,
):
    """For any evidence and policy, recorded checks give the chain's status, reason and margins."""
    trace = random_trace(seed, n_cases=4, depths=depths)
    for policy in (*random_policies(seed, 2), *with_signals(random_policies(seed, 1), seed)):
        full = record_answers(trace, policy, Drawn(), Weighed()) if answered else trace
        said = decide(full, policy)
        for row, case in enumerate(full.cases):
            checks = in_log(said.explain(case.id))
            anew, told = decide_by_checks(checks), response_of(said, row)
            assert anew.status == told["status"]
            assert check_differences(checks, policy_thresholds([policy])) == []
            if anew.status == "refuse" and anew.gate not in {"domain", "l2"}:
                assert told["refusal_reason"].startswith(anew.text)
            known = [one for one in margins(checks, policy_thresholds([policy])) if one is not None]
            assert len(known) >= len(checks) / 2


def test_what_a_signal_s_gate_does_is_held_against_the_policy():
    """A refusal recorded as a warning, a bound not the policy's, an ungated signal are told."""
    chosen = stated_policy(signals={"top1_cosine": {"min": 0.9}})
    found = decide(trace_of((ask(), [[Hit(0.25)]])), chosen).explain("q")
    place = next(place for place, check in enumerate(found) if check.gate == "signals.top1_cosine")
    for edit, told in (
        (
            {"rule": "S2.15 warns"},
            "what it does is recorded as S2.15 warns, the policy has on_fire refuse",
        ),
        ({"threshold": 0.8}, "threshold 0.8 is recorded, the policy has 0.9"),
        ({"value": 0.95}, "value and threshold give"),
        ({"gate": "signals.nqc"}, "the policy gates no signal nqc"),
    ):
        edited = [*found[:place], found[place]._replace(**edit), *found[place + 1 :]]
        assert any(
            told in problem for problem in check_differences(edited, policy_thresholds([chosen]))
        )
    assert check_differences(found, policy_thresholds([chosen])) == []


@pytest.fixture
def log(tmp_path):
    """Return a log, closed at the end."""
    made = audit_at(tmp_path / "audit.sqlite")
    yield made
    made.close()


def answered(log, checks, status="ok"):
    """One request with a decision."""
    log.opened(
        "r1",
        "who <b>is</b> it?",
        session="ann",
        policy=POLICY,
        fingerprint="f0",
        models={"encoder": "m"},
        now=START,
    )
    reason = (
        next((one.text for one in checks if not one.passes), None) if status == "refuse" else None
    )
    said = {"status": status, "refusal_reason": reason, "answer": "<i>Acme</i>"}
    log.decided("r1", said, checks)


class TestExplain:
    """One request."""

    def test_what_it_says(self, log):
        """It all follows, and every check has its margin."""
        answered(log, [PASSES])
        said = explain_request("r1", log)
        assert said.rebuilt, said.differences
        assert said.frame()["margin_anew"].tolist() == [pytest.approx(0.2)]

    def test_it_is_shown_escaped(self, log):
        """What people and documents wrote is text in a notebook, not markup."""
        answered(log, [PASSES])
        html = explain_request("r1", log)._repr_html_()
        assert_inert(html)
        assert "&lt;i&gt;Acme&lt;/i&gt;" in html
        assert "<b>is" not in html
        assert "<i>" not in html

    def test_what_has_no_checks(self, log):
        """Cannot be derived, and says so."""
        answered(log, [])
        said = explain_request("r1", log)
        assert not said.rebuilt
        assert said.differences == ("no checks are recorded that derive the decision",)
        assert len(said.frame()) == 0

    def test_a_request_without_a_decision(self, log):
        """A question that broke off says so."""
        log.opened("r1", "?", policy=POLICY, fingerprint="f0", models={}, now=START)
        assert explain_request("r1", log).differences == ("no decision is recorded",)

    def test_an_unknown_request(self, log):
        """Is refused; in an empty log too."""
        with pytest.raises(
            ValueError, match="request_id must be that of a request in the log, got 'nobody'"
        ):
            explain_request("nobody", log)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (
                "UPDATE decisions SET checks = replace(checks, '0.9,', '0.5,')",
                "margin 0.2 is recorded",
            ),
            ("UPDATE decisions SET checks = replace(checks, 'true', 'false')", "says the opposite"),
            (
                (
                    "UPDATE decisions SET checks = replace(checks, '\"threshold\":0.7', "
                    "'\"threshold\":0.6')"
                ),
                "the policy has 0.7",
            ),
            (
                "UPDATE decisions SET status = 'refuse'",
                "status refuse is recorded, the checks give ok",
            ),
            (
                "UPDATE decisions SET policy_id = 'other'",
                "policy_id 'other' is recorded, the request has",
            ),
            ("UPDATE policies SET body = replace(body, '1.05', '1.15')", "its body has the id"),
            ("DELETE FROM policies", "is not in the log"),
            (
                "UPDATE learners SET body = replace(body, '0.85', '0.5')",
                "its settings have the digest",
            ),
            (
                "UPDATE query_log SET question = 'who else?'",
                "question 'who else?' is recorded, its hash",
            ),
        ],
    )
    def test_an_edited_log_is_noticed(self, log, tmp_path, change, told):
        """Whatever was written over afterwards is named among the differences."""
        answered(log, [PASSES])
        check_edited(log, tmp_path, change, told)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE decisions SET checks = '[{}]'",
            "UPDATE decisions SET checks = '{bad'",
            "UPDATE decisions SET confidence = 'high'",
            "UPDATE query_log SET documents = '5'",
            "UPDATE query_log SET models = '[]'",
        ],
    )
    def test_a_log_that_cannot_be_read(self, log, tmp_path, change):
        """Values that are no JSON, or not of their kind, are told as such, without a stack."""
        answered(log, [PASSES])
        check_unreadable(log, tmp_path, change)
