"""Ask once, learn the default.

The loop in `ask`, end to end on the bundled documents (rules S5.1 to S5.10).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import raglab
from broker_documents import (
    COVER,
    ENGLISH,
    FILES,
    FRENCH,
    QUI,
    RENEWAL,
    ROLES,
    START,
    WHO,
    WORDING,
)
from extensions.clarification.asked_questions import ASKING, audit, logged, put, voted
from generators import Fixed
from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog
from raglab.decision.recorded_answers import AnswerKey
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.extensions.clarification.question_parsing import PARSER_VERSION, parse_question
from raglab.extensions.clarification.replies import LAST_PAGE
from raglab.extensions.clarification.value_readings import read_gap_value
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, QuestionGap
from raglab.live.pipeline import case_trace
from raglab.live.response import RESPONSE_KEYS, CheckedAnswer, answer_sets
from raglab.live.system import unpack_depths
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    DECISIONS,
    EVIDENCE_TABLE,
    REPLIES,
    REQUESTS,
)
from raglab.values import Case, Chunk, Status
from raglab.words.languages import Reason, say
from refusals import refused

NUMBERS = ("confidence", "support")  # of an answer, null where missing


def answered(system, words="yes", request="q", *, now=START):
    """Response to a reply."""
    return reply(request, words, system=system, now=now)


def votes(system):
    """Votes of the first row that was learned."""
    return audit(system).rows()[0].candidate_votes


def signals(system, request="q"):
    """Signals of a request."""
    changes = logged(system, CHANGES, request_id=request)
    return [change["signal"] for change in changes if change["kind"] == "signal"]


def became(system, request):
    """Trace of a clarified request, from the log alone: its query, its hits, and its answer."""
    (row,) = logged(system, EVIDENCE_TABLE, request_id=request)
    case = Case(request, row["query"], "ok", selected_sources=tuple(row["documents"]))
    depths = unpack_depths(row["depths"], len(system.retriever.chunks))
    trace, answer = case_trace(case, row["arm"], depths, system), row["answer"]
    if answer is None:
        return trace
    values = {name: answer[name] for name in CheckedAnswer._fields}
    numbers = {name: np.nan if values[name] is None else values[name] for name in NUMBERS}
    key = AnswerKey(0, 0, int(answer["depth"]), tuple(answer["chunks"]))
    checked = CheckedAnswer(**values | numbers | {"cited": tuple(answer["cited"])})
    answers = answer_sets([key], [checked], system.generator.name, system.scorer.name)
    return dataclasses.replace(trace, answers=answers)


def silent(system):
    """The system, which has answered a request of ann's by its default in silence."""
    voted(system, 9.5, 1)
    assert put(system, session="ann")["default_applied"] is not None
    return system


class TestWhatItBecame:
    """Rule S5.10: a clarified question is judged as what it became, and its trace is replayed."""

    QUESTIONS = (
        ("what does page 5 say?", COVER, None),
        ("what about pollution", WORDING, "yes"),
        ("the cancellation clause", WORDING, "summarise it"),
        ("limit?", COVER, "yes"),
    )

    @pytest.mark.parametrize(
        "policy",
        [
            {},
            {"l2": {"enabled": True, "max_l2": 0.3, "soft_max_l2": 0.5}},
            {"similarity": {"enabled": True, "min_similarity": 0.9}},
            {"generation": {"min_generation_confidence": 0.99}},
        ],
        ids=["open", "l2", "similarity", "generation"],
    )
    def test_replay_decides_as_live(self, opened, policy):
        """Status and reason, of what was answered and of what was refused."""
        system, statuses = opened(policy), set()
        for number, (question, document, answer) in enumerate(self.QUESTIONS):
            name = f"q{number}"
            response = put(system, question, document, name, now=START + timedelta(hours=number))
            if response["clarification"] is not None and answer is not None:
                response = answered(system, answer, name, now=START + timedelta(hours=number))
            if response.record.evidence is None:
                continue
            trace = became(system, name)
            replayed = raglab.decide(trace, system.policy)
            statuses.add(response["status"])
            assert trace.cases[0].query != question
            assert Status(int(replayed.status[0])).name == response["status"], question
            if response["status"] == "refuse":
                assert replayed.reason(0) == response["refusal_reason"]
        assert statuses
        assert policy or "ok" in statuses

    def test_nobody_is_asked_only_to_be_refused(self, opened):
        """Where no value leads to an answer, the question is answered or refused as it is."""
        system = opened({"l2": {"enabled": True, "max_l2": 1e-9, "soft_max_l2": 1e-9}})
        response = put(system, "what about pollution", WORDING)
        assert (response["status"], response["clarification"]) == ("refuse", None)
        assert logged(system, CLARIFICATIONS) == []
        assert response.record.evidence is None


class TestTheArticle:
    """Rule S5.9: the cases of the clarification article."""

    def test_case_1_in_french(self, opened):
        """The first time the user is asked, says yes, gets page 1, and the default gets a vote.

        The vote is the first, and page 1 is where the answer comes from.
        """
        system = opened()
        question_response = put(system, QUI, FRENCH, "one", session="ann")
        assert (
            question_response["status"],
            question_response["answer"],
            question_response["sources"],
        ) == ("ambiguous", None, [])
        assert question_response["clarification"]["question_to_user"].startswith("Je ")
        assert question_response["clarification"]["proposed_default"] == "1"
        known = question_response["clarification"]["audit"]
        assert [known[name] for name in ("policy_id", "parser", "pack", "learner")] == [
            system.policy.policy_id,
            PARSER_VERSION,
            system.pack.digest,
            audit(system).digest,
        ]
        assert question_response["options"][0] == {"id": 1, "value": "1", "text": "page 1"}
        response = answered(system, "Oui", "one", now=START + timedelta(minutes=1))
        assert (
            tuple(json.loads(question_response.json()))
            == tuple(json.loads(response.json()))
            == RESPONSE_KEYS
        )
        assert (
            response["status"],
            response["request_id"],
            response["sources"],
            response["route"],
        ) == (
            "ok",
            "one",
            [f"{FRENCH}#1"],
            "extract",
        )
        assert "Vauban Assurances SA" in response["answer"]
        turns(system, "one", question_response, response)
        (clarified,) = logged(system, CLARIFICATIONS)
        assert (clarified["target_field"], clarified["gate"]) == ("insurer_name", "ask")
        assert [row["reply"] for row in logged(system, REPLIES)] == ["Oui"]
        assert signals(system, "one") == ["explicit_yes"]
        (row,) = audit(system).rows()
        assert (row.doctype, row.candidate_votes) == ("schedule", {"1": 1.0})
        assert row.strata["page_1_kind"].keys() == {"body"}
        assert audit(system).rebuild() == (row,)

    def test_case_2_in_english(self, opened):
        """9.5 votes from 12 requests are 0.79: the default is applied in silence and named."""
        system = opened()
        voted(system, 9.5, 1)
        (row,) = audit(system).rows()
        assert (row.candidate_votes, row.sample_size, round(row.confidence, 2)) == (
            {"1": 9.5},
            12,
            0.79,
        )
        response = put(system, WHO, ENGLISH, "two", session="ann")
        assert (response["status"], response["clarification"], response["sources"]) == (
            "ok",
            None,
            [f"{ENGLISH}#1"],
        )
        assert "Castellan Specialty" in response["answer"]
        assert response["default_applied"] == {
            "field": "insurer_name",
            "value": "1",
            "row_id": row.row_id,
            "version": row.version,
            "confidence": row.confidence,
            "gate": "ask_occasionally",
        }
        assert any("by the learned default for schedule" in text for text in response["warnings"])
        turns(system, "two", response)
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(minutes=5))
        (later,) = audit(system).rows()
        assert later.candidate_votes == {"1": 10.0}
        assert signals(system, "two") == ["implicit_ok"]

    def test_case_12(self, opened):
        """A silent default fails on a cover sheet; the table of contents is asked for and read."""
        system = opened()
        voted(system, 9.5, 1)
        question_response = put(system, WHO, COVER, "twelve")
        assert question_response["status"] == "ambiguous"
        assert question_response["clarification"]["proposed_default"] == "toc"
        assert question_response["clarification"]["question_to_user"].startswith(
            "Page 1 did not name"
        )
        assert "1" not in [option["value"] for option in question_response["options"]]
        response = answered(system, "try TOC", "twelve")
        assert (response["status"], response["sources"]) == ("ok", [f"{COVER}#2"])
        assert "Acme Assurance plc" in response["answer"]
        assert signals(system, "twelve") == ["failure", "explicit_yes"]
        (clarified,) = logged(system, CLARIFICATIONS)
        assert clarified["tried"] == ["1"]
        turns(
            system, "twelve", question_response, response
        )  # what read nothing was tried, and not applied

    @pytest.mark.parametrize(("rule", "questions"), [("vote_share", 3), ("posterior", 1)])
    def test_twelve_bodies_and_a_cover_sheet(
        self,
        opened,
        monkeypatch,
        rule,
        questions,
    ):
        """Twelve bodies, asked or in silence, a cover sheet, the contents: split there.

        Both then in silence.
        """
        monkeypatch.setenv("RAGLAB_CLARIFY_RULE", rule)
        system = opened()
        bodies = []
        for number in range(12):
            now, request = START + timedelta(days=2 * number), f"body-{number}"
            response = put(system, WHO, ENGLISH, request, now=now)
            bodies.append(response["clarification"] is not None)
            if bodies[-1]:
                response = answered(system, "yes", request, now=now)
            assert (response["status"], response["sources"]) == ("ok", [f"{ENGLISH}#1"])
        assert (bodies[0], sum(bodies), len(audit(system).rows())) == (True, questions, 1)
        now = START + timedelta(days=30)
        cover = put(system, WHO, COVER, "cover-0", now=now)
        assert cover["clarification"]["question_to_user"].startswith("Page 1 did not name")
        assert len(audit(system).rows()) == 1  # the failure alone says nothing of what is right
        assert answered(system, "try TOC", "cover-0", now=now)["sources"] == [f"{COVER}#2"]
        conditions = [row.sub_conditions for row in audit(system).rows()]
        assert conditions == [{}, {"page_1_kind": "body"}, {"page_1_kind": "coversheet"}]
        for days in (40, 50):
            for document, value, page in ((ENGLISH, "1", 1), (COVER, "toc", 2)):
                request, now = f"{value}-{days}", START + timedelta(days=days)
                response = put(system, WHO, document, request, now=now)
                assert (response["clarification"], response["sources"]) == (
                    None,
                    [f"{document}#{page}"],
                )
                assert response["default_applied"]["value"] == value
                assert explain_request(request, audit(system)).rebuilt
        assert audit(system).rebuild() == audit(system).rows()

    def test_evidence_waits_for_the_second(self, opened, monkeypatch):
        """The rule beside it: a setting, with its alpha."""
        monkeypatch.setenv("RAGLAB_CLARIFY_SPLIT", "evidence")
        monkeypatch.setenv("RAGLAB_CLARIFY_ALPHA", "0.05")
        system = opened()
        voted(system, 12.0, 0)
        for number in range(2):
            assert len(audit(system).rows()) == 1
            put(system, WHO, COVER, f"cover-{number}")
            if number == 0:
                answered(system, "try TOC", f"cover-{number}")
        assert len(audit(system).rows()) > 1


class TestFailures:
    """Rule S5.1: each of the five, asked about once and settled by a reply, in two phrasings."""

    CASES = (
        ("field_type", "What is the excess?", (COVER,), "Storm and wind", "£250"),
        ("field_type", "excess?", (COVER,), "Escape of water", "£350"),
        ("implicit_entity", "the policyholder", (ROLES,), "Loss payee", "Arden Vehicle Leasing"),
        (
            "date_scope",
            "What is the excess for escape of water?",
            (COVER, RENEWAL),
            "oldest",
            "£350",
        ),
        ("intent", "the cancellation section", (WORDING,), "summarise", ""),
        ("intent", "what about cancellation?", (WORDING,), "summarise", ""),
        ("page_scope", WHO, (ENGLISH,), "document", "Castellan"),
        ("page_scope", "Which insurer is it?", (ROLES,), "document", "Northmark Mutual"),
    )

    @pytest.mark.parametrize(("kind", "question", "documents", "value", "words"), CASES)
    def test_asked_once_and_answered(
        self,
        opened,
        kind,
        question,
        documents,
        value,
        words,
    ):
        """The user names another value than the proposed one.

        It gains what that one loses, and is answered from.
        """
        system = opened()
        question_response = ask(
            question, system=system, documents=documents, request_id="q", now=START
        )
        assert question_response["clarification"]["audit"]["kind"] == kind
        proposed = question_response["clarification"]["proposed_default"]
        assert proposed != value
        assert value in question_response["clarification"]["candidate_values"]
        response = answered(system, value)
        assert (response["clarification"], response["request_id"]) == (None, "q")
        assert words in (response["answer"] or "")
        (row,) = audit(system).rows()
        assert row.candidate_votes[value] == 1.0
        assert row.candidate_votes[proposed] == -1.0
        assert explain_request("q", audit(system)).rebuilt


class TestReplies:
    """What a reply means, and what it does."""

    def test_no_shows_what_is_left_once(self, opened):
        """A value that is declined loses a vote and is not answered.

        A second no ends the request with its reason.
        """
        system = opened()
        question_response = put(system, "What is the excess?", COVER)
        first = question_response["clarification"]["candidate_values"]
        again = answered(system, "no")
        assert (again["status"], again["request_id"], again["answer"]) == ("ambiguous", "q", None)
        assert again["clarification"]["candidate_values"] == first[1:]
        assert first[0] not in [option["value"] for option in again["options"]]
        response = answered(system, "no")
        assert (response["status"], response["sources"]) == ("refuse", [])
        assert votes(system) == {first[0]: -1.0, first[1]: -1.0}
        assert explain_request("q", audit(system)).rebuilt
        refused("takes one reply", answered, system)

    def test_a_no_that_leaves_no_choice_is_a_refusal(self, opened):
        """Fewer than two values are left: the last one is not taken for the user's."""
        system = opened()
        question_response = put(system, QUI, FRENCH)
        assert len(question_response["clarification"]["candidate_values"]) == 2
        response = answered(system, "non")
        assert (response["status"], response["sources"]) == ("refuse", [])
        assert "page 1" in response["refusal_reason"]

    @pytest.mark.parametrize("words", ["other", "Something else.", "4", "cancel"])
    def test_something_else_and_cancel_end_it_without_a_vote(self, opened, words):
        """By the option's value, text or number, or by words that drop the matter."""
        system = opened()
        question_response = ask(
            "the policyholder", system=system, documents=[ROLES], request_id="q", now=START
        )
        assert [option["value"] for option in question_response["options"]][3:] == ["other"]
        ended = answered(system, words)
        assert (ended["status"], ended["sources"]) == ("refuse", [])
        assert votes(system) == {}
        assert explain_request("q", audit(system)).rebuilt

    def test_a_page_that_finds_nothing_ends_the_request(self, opened):
        """No other page is taken for the user's; the page's failure is noted."""
        system = opened()
        put(system)
        response = answered(system, "page 3")
        assert (response["status"], response["clarification"]) == ("refuse", None)
        assert "the insurer was not found in page 3" in response["refusal_reason"]
        assert signals(system) == ["explicit_no", "failure"]
        assert votes(system) == {"1": -1.0, "3": 1.0}

    def test_a_silent_default_is_corrected(self, opened):
        """A value takes its place, under the same id, with a second decision.

        Silence then says nothing.
        """
        system = silent(opened())
        again = answered(system, "the whole document", now=START + timedelta(minutes=1))
        assert (again["status"], again["request_id"], again["default_applied"]) == ("ok", "q", None)
        assert [row["status"] for row in logged(system, DECISIONS, request_id="q")] == ["ok", "ok"]
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(hours=1))
        assert votes(system) == {"1": 8.5, "document": 1.0}

    def test_a_silent_default_is_confirmed(self, opened):
        """Yes is a whole vote, and no half one follows."""
        system = silent(opened())
        answered(system)
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(hours=1))
        assert votes(system) == {"1": 10.5}

    def test_a_correction_after_a_day_is_too_late(self, opened):
        """Also where nobody has asked anything since."""
        system = silent(opened())
        refused(
            "within 24 hours, and 'q' was settled",
            answered,
            system,
            "page 3",
            now=START + timedelta(hours=25),
        )

        assert votes(system) == {"1": 10.0}

    def test_what_cannot_be_replied_to(self, opened):
        """Unknown, never asked, replied already, settled, of another policy: each says so."""
        system = opened()
        ask("Is theft covered?", system=system, request_id="plain", now=START)
        put(system, WHO, COVER, "p")
        put(system)
        answered(system)
        assert put(system, WHO, ENGLISH, "s", session="ann")["default_applied"] is not None
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(minutes=5))
        changed_system = opened({"confidence": {"enabled": True}})
        for request, words, asker, message in (
            ("nobody", "yes", system, "nobody"),
            ("plain", "yes", system, "asked about or filled in, got 'plain'"),
            ("p", "", system, "reply must"),
            ("p", "x" * 201, system, "reply must"),
            ("q", "no", system, "one reply, and 'q' had 'yes'"),
            ("s", "no", system, "was settled at"),
            ("q", "yes", opened(clarify=False), "clarify=True"),
            ("p", "yes", changed_system, "policy_id that asked"),
        ):
            refused(message, reply, request, words, system=asker)

    def test_a_log_without_texts_needs_the_question_again(self, opened, monkeypatch):
        """The same question completes it, another is refused."""
        monkeypatch.setenv("RAGLAB_AUDIT_QUERY", "hash")
        system = opened()
        put(system, QUI, FRENCH)
        refused("give the question again", reply, "q", "oui", system=system)
        refused("must be the one that was asked", reply, "q", "oui", system=system, question=WHO)
        assert reply("q", "oui", system=system, question=QUI)["sources"] == [f"{FRENCH}#1"]

    def test_the_figure_stands_before_a_row_of_several(self, opened):
        """An old and a new figure in one row: the answer says which was read."""
        asks = "What is the escape of water excess from the 2025 renewal?"
        response = ask(asks, system=opened(), documents=[RENEWAL], now=START)
        assert (response["answer"], response["status"]) == (
            "£500: Escape of water excess; £350; £500",
            "ok",
        )

    def test_a_bandit_chooses_once_more_for_a_correction(self, opened):
        """A silent default the chain answered is corrected under the same id, by its own choice."""
        system = opened(arm="bandit")
        put(system, "the cancellation section", WORDING, "a")
        answered(system, "yes", "a")
        silent = put(system, "the cancellation section", WORDING, "b")
        assert silent["default_applied"]["value"] == "cite"
        again = answered(system, "summarise it", "b")
        assert (again["request_id"], again["default_applied"]) == ("b", None)
        assert system.online is not None
        assert list(system.online.frame()["request_id"]) == ["a", "b", "b~reply"]
        assert votes(system) == {"cite": 0.0, "summarise": 1.0}

    def test_a_value_of_the_documents_wins(self, opened):
        """A value that is not on offer is answered as the documents state it of the field asked."""
        system = opened()
        question_response = put(system, "What is the excess?", COVER)
        value = "Accidental breakage of the cello"
        assert value not in question_response["clarification"]["candidate_values"]
        assert answered(system, "the one for trace and access")["status"] == "ambiguous"
        response = answered(system, "the one for accidental breakage of the cello")
        assert any("none of the values on offer" in text for text in response["warnings"])
        assert value in response["answer"]
        proposed = question_response["clarification"]["proposed_default"]
        assert votes(system) == {proposed: -1.0, value: 1.0}


class TestGates:
    """What is refused is refused first, and what is read is judged."""

    def test_a_denied_question_is_not_asked_about(self, opened):
        """The domain gate goes before any clarification."""
        system = opened()
        response = ask(
            "Who is the insurer of the weather?", system=system, documents=[ENGLISH], now=START
        )
        assert response["refusal_reason"] == "out of domain: a deny pattern matches"
        assert logged(system, CLARIFICATIONS) == []
        assert [row["status"] for row in logged(system, DECISIONS)] == ["refuse"]

    @pytest.mark.parametrize("cost", ["1", "11"])
    def test_below_ask_below_the_user_is_always_asked(self, opened, monkeypatch, cost):
        """However dear a question is, and though all pages answer alike (rule S5.5)."""
        monkeypatch.setenv("RAGLAB_CLARIFY_QUESTION_COST", cost)
        for question, document in ((WHO, ROLES), (QUI, FRENCH)):
            response = ask(question, system=opened(), documents=[document], now=START)
            assert (response["status"], response["default_applied"]) == ("ambiguous", None)


class TestAudit:
    """Every question is logged, and nothing is changed by it."""

    def test_with_and_without_the_log_the_response_is_the_same(self, opened):
        """Byte for byte, for answers, refusals and options."""
        questions = [(WHO, [ENGLISH]), ("weather", None), ("What is covered?", None), (" ", None)]
        for policy in ({}, ASKING):
            logged_system, bare_system = (
                opened(policy, clarify=False),
                opened(policy, clarify=False, audit=False),
            )
            assert logged_system.audit is not None
            assert (bare_system.audit, bare_system.clarifier) == (None, None)
            for question, documents in questions:
                response = [
                    ask(question, system=system, documents=documents, request_id="r").json()
                    for system in (logged_system, bare_system)
                ]
                assert response[0] == response[1]

    def test_clarifying_needs_the_log(self, opened):
        """What was learned would be lost."""
        refused("need the audit log", opened, audit=False)
        refused("a log or a system, got neither", raglab.explain, "a")

    def test_a_cached_answer_has_its_row_too(self, opened):
        """An id used twice is two requests, whose decisions are the same."""
        system = opened(clarify=False, cache=True)
        for _ in range(2):
            ask("Is theft covered?", system=system, request_id="r", now=START)
        assert len(logged(system, REQUESTS)) == 2
        first, again = (
            {**row, "seq": 0, "request_id": "", "ms": 0, "checks": 0}
            for row in logged(system, DECISIONS)
        )
        assert first == again


class TestDocuments:
    """Rule S5.10: which document, the same loop one layer up."""

    EXCESS = "What is the excess for escape of water on Acme Premier Home?"

    def test_versions_are_values(self, opened):
        """Two documents state it for two times.

        The user is asked which, and the next question is not asked.
        """
        system = opened()
        question_response = ask(self.EXCESS, system=system, request_id="a", now=START)
        assert question_response["clarification"]["audit"]["kind"] == "date_scope"
        assert question_response["clarification"]["candidate_values"] == ["newest", "oldest"]
        response = answered(system, "the older one", "a")
        assert (response["status"], [source.split("#")[0] for source in response["sources"]]) == (
            "ok",
            [COVER],
        )
        silent = ask(self.EXCESS, system=system, request_id="b", now=START)
        # Learned is the document's place among the candidates, which another portfolio has as well
        # (S5.10).
        assert silent["default_applied"]["value"] == "oldest"
        assert silent["sources"] == response["sources"]
        assert explain_request("b", audit(system)).rebuilt

    def test_a_date_says_which(self, opened):
        """Nothing is asked where the question names a year."""
        question = "What was the excess for escape of water on Acme Premier Home in 2024?"
        assert ask(question, system=opened(), now=START)["clarification"] is None


def _killed(*_, **__):
    raise KeyboardInterrupt


class TestOptions:
    """Rule S3.5: choices among the resolver's options as learned defaults."""

    QUESTION = "What is covered?"

    def test_off_they_teach_nothing(self, opened):
        """Options are as they were, however often one is chosen."""
        system = opened(ASKING)
        first = ask(self.QUESTION, system=system, request_id="a", now=START)
        assert first["status"] == "ambiguous"
        ask(self.QUESTION, system=system, selected_option=2, request_id="b", now=START)
        again = ask(self.QUESTION, system=system, request_id="c", now=START)
        assert dict(again) | {"request_id": "a"} == dict(first)
        assert audit(system).rows() == ()

    def test_on_a_choice_settles_the_next(self, opened, monkeypatch):
        """The chosen option answers in silence, named, and a reply undoes it."""
        monkeypatch.setenv("RAGLAB_CLARIFY_OPTIONS", "true")
        system = opened(ASKING, generator=Fixed("Theft is covered.", name="fixed"), scorer=None)
        system = system.replace(system.policy.replace("support.enabled", False))
        first = ask(self.QUESTION, system=system, request_id="a", now=START)
        chosen = ask(self.QUESTION, system=system, selected_option=2, request_id="b", now=START)
        assert (first["status"], chosen["status"]) == ("ambiguous", "ok")
        silent = ask(self.QUESTION, system=system, request_id="c", now=START)
        assert (silent["status"], silent["sources"]) == ("ok", chosen["sources"])
        assert silent["default_applied"]["field"].startswith("options:")
        undone = answered(system, "1", "c")
        assert set(undone["sources"]) == set(first["options"][0]["sources"])
        assert sorted(votes(system).values()) == [0.0, 1.0]
        turns(system, "b", chosen)
        turns(system, "c", silent, undone)


@pytest.mark.parametrize("policy", [{}, ASKING], ids=["open", "asking"])
def test_a_week_is_rebuilt_from_the_log(opened, policy, monkeypatch):
    """Fifty requests of several users, replied to in every way or not at all.

    Each decision follows from the log.
    """
    monkeypatch.setenv("RAGLAB_CLARIFY_OPTIONS", "true")
    system, rng = opened(policy, cache=True), np.random.default_rng(7)
    questions = (
        WHO,
        QUI,
        "What is the excess?",
        "the policyholder",
        "the cancellation section",
        "What is covered?",
        "weather",
    )
    replies = (
        "yes",
        "no",
        "toc",
        "page 2",
        "storm",
        "the one for keys",
        "old schedule",
        "document",
    )
    kinds: set[tuple[Any, ...]] = set()
    for number in range(50):
        at = START + timedelta(hours=3.3 * number)
        question = str(rng.choice(questions))
        files = [FILES[int(rng.integers(len(FILES)))]] if rng.integers(4) > 0 else []
        response = ask(
            question,
            system=system,
            documents=files,
            selected_option=1 if question == "What is covered?" and rng.random() < 0.5 else None,
            session=f"user-{rng.integers(3)}",
            request_id=f"q{number}",
            now=at,
        )
        asks, applied = response["clarification"] is not None, bool(response["default_applied"])
        kinds.add((response["status"], asks, applied))
        if (asks or applied) and rng.random() < 0.7:
            with contextlib.suppress(ValueError):
                replied = answered(system, str(rng.choice(replies)), f"q{number}", now=at)
                kinds.add(("reply", replied["status"]))
    assert len(kinds) >= 6, kinds
    explained = []
    for _ in range(2):  # with the texts and without
        requests = [explain_request(f"q{number}", audit(system)) for number in range(50)]
        assert [request.differences for request in requests if not request.rebuilt] == []
        explained.append([request.defaults for request in requests])
        assert audit(system).rebuild() == audit(system).rows()
        audit(system).forget(before=START + timedelta(days=400))
    assert explained[0] == explained[1]


def test_a_schedule_and_no_coin(opened):
    """Between the thresholds each fifth request of a row is asked about (rule S5.5)."""
    system = opened()
    voted(system, 9.5, 1, field="excess", value="Storm and wind")
    for number in range(10):
        at = START + timedelta(minutes=number)
        response = put(system, "What is the excess?", COVER, f"q{number}", now=at)
        assert (response["clarification"] is not None) == (number % 5 == 4)
        assert (response["default_applied"] is None) == (number % 5 == 4)


def test_a_refresh_that_can_change_nothing_is_left_out(opened):
    """Where the schedule asks but all values answer alike, the default is applied all the same."""
    system = opened()
    voted(system, 9.5, 1)
    for number in range(5):
        response = put(system, WHO, ROLES, f"q{number}", now=START + timedelta(minutes=number))
        assert response["default_applied"] is not None


def turns(system, request, *responses):
    """What the responses of a request's turns name, its log and its explanation are one.

    Null is none.
    """
    explanation = explain_request(request, audit(system))
    assert explanation.rebuilt, explanation.differences
    named = [response["default_applied"] for response in responses]
    assert [decision.default_applied for decision in explanation.decisions] == named
    assert explanation.default_applied == named[-1]
    keys = ("row_id", "version", "value", "confidence", "gate")
    applied = [default for default in explanation.defaults if default.used == "applied"]
    assert [[getattr(default, key) for key in keys] for default in applied] == [
        [default[key] for key in keys] for default in named if default
    ]
    assert [row["value"] for row in logged(system, APPLICATIONS, request_id=request)] == [
        default.value for default in applied
    ]
    question_response = "asked" in {default.used for default in explanation.defaults}
    assert (
        question_response
        == (explanation.clarification is not None)
        == (responses[0]["clarification"] is not None)
    )


class TestCoherence:
    """`default_applied` of response, log and `explain` agree on every path (rules S0.3, S5.8)."""

    def test_applied_and_corrected_or_confirmed(self, opened):
        """The first turn names the default, the second is the user's own."""
        system = opened()
        voted(system, 14.0, 0)
        for number, words in enumerate((None, "yes", "toc", "page 2", "another document")):
            response = put(system, WHO, ENGLISH, f"q{number}")
            again = []
            if words is not None and (response["default_applied"] or response["clarification"]):
                with contextlib.suppress(ValueError):
                    again = [answered(system, words, f"q{number}")]
            turns(system, f"q{number}", response, *again)

    def test_stopped_before_its_decision(self, opened, monkeypatch):
        """A default goes into the log with its decision.

        A process killed before applied none, whatever comes later.
        """
        system = opened()
        voted(system, 14.0, 0)
        with monkeypatch.context() as patch:
            patch.setattr(AuditLog, "decided", _killed)
            with pytest.raises(KeyboardInterrupt):
                put(system)
        assert logged(system, APPLICATIONS) == []
        assert put(system, WHO, ENGLISH, "other")["default_applied"] is not None
        answered(system, "toc", "other")
        turns(system, "q", put(system, now=START + timedelta(days=1)))


class TestLanguage:
    """A French question has a French response; a policy's own words stay."""

    def test_a_refusal(self, opened):
        """Message and reason, which the log keeps and the explanation repeats."""
        strict = {"similarity": {"enabled": True, "min_similarity": 0.999}}
        system = opened(strict)
        response = ask("Le vol est-il couvert ?", system=system, request_id="q", now=START)
        assert (response["status"], response["answer"]) == (
            "refuse",
            say("fr", Reason("refusal")),
        )
        assert "en dessous de min_similarity 0.999" in response["refusal_reason"]
        assert response["refusal_reason"] in str(raglab.explain("q", system=system))
        english = ask("Is theft covered?", system=system, now=START)
        assert english["answer"] == system.policy.refusal_message
        stated_system = opened(strict | {"refusal_message": "Nope."})
        assert ask("Le vol est-il couvert ?", system=stated_system, now=START)["answer"] == "Nope."


def test_texts_older_than_the_setting_are_blanked_on_opening(opened, monkeypatch):
    """RAGLAB_AUDIT_KEEP_DAYS: what was asked before is gone from the log, its decision stays."""
    # long ago by the clock
    put(opened(), QUI, FRENCH, "old")
    monkeypatch.setenv("RAGLAB_AUDIT_KEEP_DAYS", "1")
    system = opened()
    assert [row["question"] for row in logged(system, REQUESTS)] == [None]
    assert [row["status"] for row in logged(system, DECISIONS)] == ["ambiguous"]
    assert raglab.explain("old", system=system).rebuilt


def test_the_last_page_is_that_of_each_document():
    """A learned `last` reads the field on the last page of another document, however long it is."""
    chunks = [
        Chunk(f"b#{n}", text, "b.md", n)
        for n, text in ((1, "Welcome."), (2, "Phone: 0800 123 4567"))
    ]
    gap = QuestionGap("page_scope", "phone", (GapReading("1"), GapReading("document")))
    parsed = parse_question("What is the phone number?", chunks)
    reading = read_gap_value(gap, LAST_PAGE, parsed, chunks, ProtocolCalls())
    assert reading.field_value is not None
    assert reading.chunk is not None
    assert (reading.field_value.value, reading.chunk.page) == ("0800 123 4567", 2)
