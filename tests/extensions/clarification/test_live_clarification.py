"""Ask once, learn the default.

The loop in `ask`, end to end on the bundled documents (rules S5.1 to S5.10).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from datetime import datetime, timedelta
from importlib.metadata import version
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
from raglab.default_learner import asks
from raglab.extensions.clarification import protocol_calls
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.extensions.clarification.question_parsing import PARSER_VERSION, parse_question
from raglab.extensions.clarification.replies import LAST_PAGE
from raglab.extensions.clarification.value_readings import read_gap_value
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, QuestionGap
from raglab.live.pipeline import case_trace
from raglab.live.response import RESPONSE_KEYS, CheckedAnswer, Response, answer_sets
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

NUMBERS = ("confidence", "support")  # of an answer, null where missing


def answered(system, words="yes", request="q", *, now=START):
    """Response to a reply."""
    return reply(request, words, system=system, now=now)


def votes(system):
    """Votes of the first row that was learned."""
    return audit(system).rows()[0].candidate_votes


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
        system, seen = opened(policy), []
        for number, (question, document, answer) in enumerate(self.QUESTIONS):
            name = f"q{number}"
            said = put(system, question, document, name, now=START + timedelta(hours=number))
            if said["clarification"] is not None and answer is not None:
                said = answered(system, answer, name, now=START + timedelta(hours=number))
            if said.record.evidence is None:
                continue
            trace = became(system, name)
            replayed = raglab.decide(trace, system.policy)
            seen.append(said["status"])
            assert trace.cases[0].query != question
            assert Status(int(replayed.status[0])).name == said["status"], (
                question,
                said["refusal_reason"],
            )
            if said["status"] == "refuse":
                assert replayed.reason(0) == said["refusal_reason"]
        assert seen
        assert policy or "ok" in seen

    def test_nobody_is_asked_only_to_be_refused(self, opened):
        """Where no value leads to an answer, the question is answered or refused as it is."""
        system = opened({"l2": {"enabled": True, "max_l2": 1e-9, "soft_max_l2": 1e-9}})
        said = put(system, "what about pollution", WORDING)
        assert (said["status"], said["clarification"]) == ("refuse", None)
        assert logged(system, CLARIFICATIONS) == []
        assert said.record.evidence is None

    def test_the_hits_are_of_the_scope(self, opened):
        """Only passages of the page that the user named."""
        system = opened()
        said = put(system, "what does page 5 say?", COVER)
        assert (said["status"], said["sources"]) == ("ok", [f"{COVER}#5"])
        assert {chunk.shown for chunk in became(system, "q").chunks} == {f"{COVER}#5"}


class TestTheArticle:
    """Rule S5.9: the cases of the clarification article."""

    def test_case_1_in_french(self, opened):
        """The first time the user is asked, says yes, gets page 1, and the default gets a vote.

        The vote is the first, and page 1 is where the answer comes from.
        """
        system = opened()
        asked = put(system, QUI, FRENCH, "one", session="ann")
        assert (asked["status"], asked["answer"], asked["sources"]) == ("ambiguous", None, [])
        assert "page 1" in asked["clarification"]["question_to_user"]
        assert asked["clarification"]["question_to_user"].startswith("Je ")
        assert asked["clarification"]["proposed_default"] == "1"
        assert asked["options"][0] == {"id": 1, "value": "1", "text": "page 1"}
        assert asked["options"][-1]["value"] == "other"
        said = answered(system, "Oui", "one", now=START + timedelta(minutes=1))
        assert (said["status"], said["request_id"], said["sources"]) == (
            "ok",
            "one",
            [f"{FRENCH}#1"],
        )
        assert "Vauban Assurances SA" in said["answer"]
        assert (said["clarification"], said["default_applied"], said["route"]) == (
            None,
            None,
            "extract",
        )
        assert [row["session"] for row in logged(system, REQUESTS)] == ["ann"]
        (clarified,) = logged(system, CLARIFICATIONS)
        assert (clarified["target_field"], clarified["proposed"], clarified["gate"]) == (
            "insurer_name",
            "1",
            "ask",
        )
        assert clarified["gain"] is not None
        assert [row["reply"] for row in logged(system, REPLIES)] == ["Oui"]
        assert [(row["kind"], row["signal"]) for row in logged(system, CHANGES)] == [
            ("met", ""),
            ("signal", "explicit_yes"),
        ]
        assert [row["status"] for row in logged(system, DECISIONS)] == ["ambiguous", "ok"]
        assert logged(system, APPLICATIONS) == []
        (row,) = audit(system).rows()
        assert (row.target_field, row.doctype, row.candidate_votes) == (
            "insurer_name",
            "schedule",
            {"1": 1.0},
        )
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
        said = put(system, WHO, ENGLISH, "two", session="ann")
        assert (said["status"], said["clarification"], said["sources"]) == (
            "ok",
            None,
            [f"{ENGLISH}#1"],
        )
        assert "Castellan Specialty" in said["answer"]
        named = {
            "field": "insurer_name",
            "value": "1",
            "row_id": row.row_id,
            "version": row.version,
        }
        assert said["default_applied"] == named | {
            "confidence": row.confidence,
            "gate": "ask_occasionally",
        }
        assert any("by the learned default for schedule" in text for text in said["warnings"])
        (applied,) = logged(system, APPLICATIONS)
        assert (applied["value"], applied["version"], applied["confidence"]) == (
            "1",
            row.version,
            row.confidence,
        )
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(minutes=5))
        (later,) = audit(system).rows()
        assert later.candidate_votes == {"1": 10.0}
        assert "implicit_ok" in {one["signal"] for one in logged(system, CHANGES, request_id="two")}

    def test_case_12(self, opened):
        """A silent default fails on a cover sheet; the table of contents is asked for and read."""
        system = opened()
        voted(system, 9.5, 1)
        asked = put(system, WHO, COVER, "twelve")
        assert asked["status"] == "ambiguous"
        assert asked["clarification"]["proposed_default"] == "toc"
        text = asked["clarification"]["question_to_user"]
        assert text.startswith("Page 1 did not name")
        assert "table of contents" in text
        assert "1" not in [one["value"] for one in asked["options"]]
        said = answered(system, "try TOC", "twelve")
        assert (said["status"], said["sources"]) == ("ok", [f"{COVER}#2"])
        assert "Acme Assurance plc" in said["answer"]
        signals = [
            one["signal"]
            for one in logged(system, CHANGES, request_id="twelve")
            if one["kind"] == "signal"
        ]
        assert signals == ["failure", "explicit_yes"]
        (clarified,) = logged(system, CLARIFICATIONS)
        assert clarified["tried"] == ["1"]
        assert logged(system, APPLICATIONS) == []  # what read nothing was tried, and not applied

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
        assert {"request_id", "model", "prompt_version"} <= set(cover["clarification"]["audit"])
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
        ("field_type", "What is the excess?", (COVER,), "Storm and wind", ("£250",)),
        ("field_type", "excess?", (COVER,), "Escape of water", ("£350",)),
        ("implicit_entity", "the policyholder", (ROLES,), "Loss payee", ("Arden Vehicle Leasing",)),
        (
            "date_scope",
            "What is the excess for escape of water?",
            (COVER, RENEWAL),
            "oldest",
            ("£350",),
        ),
        ("intent", "the cancellation section", (WORDING,), "summarise", ()),
        ("intent", "what about cancellation?", (WORDING,), "summarise", ()),
        ("page_scope", WHO, (ENGLISH,), "document", ("Castellan",)),
        ("page_scope", "Which insurer is it?", (ROLES,), "document", ("Northmark Mutual",)),
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
        asked = ask(question, system=system, documents=documents, request_id="q", now=START)
        assert asked["status"] == "ambiguous", asked
        assert asked["clarification"]["audit"]["kind"] == kind
        assert len(asked["options"]) >= 2
        proposed = asked["clarification"]["proposed_default"]
        assert proposed != value
        assert value in asked["clarification"]["candidate_values"]
        said = answered(system, value)
        assert said["status"] in {"ok", "refuse"}
        assert (said["clarification"], said["request_id"]) == (None, "q")
        assert not words or any(word in said["answer"] for word in words)
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
        asked = put(system, "What is the excess?", COVER)
        first = asked["clarification"]["candidate_values"]
        again = answered(system, "no")
        assert (again["status"], again["request_id"], again["answer"]) == ("ambiguous", "q", None)
        assert (
            again["clarification"]["question_to_user"] == asked["clarification"]["question_to_user"]
        )
        assert again["clarification"]["candidate_values"] == first[1:]
        assert first[0] not in [option["value"] for option in again["options"]]
        assert len(logged(system, CLARIFICATIONS)) == 1
        assert votes(system) == {first[0]: -1.0}
        said = answered(system, "no")
        assert (said["status"], said["sources"]) == ("refuse", [])
        assert "excess" in said["refusal_reason"]
        assert votes(system) == {first[0]: -1.0, first[1]: -1.0}
        assert explain_request("q", audit(system)).rebuilt
        with pytest.raises(ValueError, match="takes one reply"):
            answered(system)

    def test_a_no_that_leaves_no_choice_is_a_refusal(self, opened):
        """Fewer than two values are left: the last one is not taken for the user's."""
        system = opened()
        asked = put(system, QUI, FRENCH)
        assert len(asked["clarification"]["candidate_values"]) == 2
        said = answered(system, "non")
        assert (said["status"], said["sources"]) == ("refuse", [])
        assert "page 1" in said["refusal_reason"]

    @pytest.mark.parametrize("said", ["other", "Something else.", "4", "cancel"])
    def test_something_else_and_cancel_end_it_without_a_vote(self, opened, said):
        """By the option's value, text or number, or by words that drop the matter."""
        system = opened()
        asked = ask("the policyholder", system=system, documents=[ROLES], request_id="q", now=START)
        assert [option["value"] for option in asked["options"]][3:] == ["other"]
        ended = answered(system, said)
        assert (ended["status"], ended["sources"]) == ("refuse", [])
        assert votes(system) == {}
        assert explain_request("q", audit(system)).rebuilt

    def test_a_page_that_finds_nothing_ends_the_request(self, opened):
        """No other page is taken for the user's; the page's failure is noted."""
        system = opened()
        put(system)
        said = answered(system, "page 3")
        assert (said["status"], said["clarification"]) == ("refuse", None)
        assert "the insurer was not found in page 3" in said["refusal_reason"]
        signals = [
            one["signal"]
            for one in logged(system, CHANGES, request_id="q")
            if one["kind"] == "signal"
        ]
        assert signals == ["explicit_no", "failure"]
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
        with pytest.raises(ValueError, match="within 24 hours, and 'q' was settled"):
            answered(system, "page 3", now=START + timedelta(hours=25))

        assert votes(system) == {"1": 10.0}

    def test_what_cannot_be_replied_to(self, opened):
        """Unknown, settled, replied already, never asked: each says so."""
        system = opened()
        with pytest.raises(ValueError, match="nobody"):
            reply("nobody", "yes", system=system)
        ask("Is theft covered?", system=system, request_id="plain", now=START)
        with pytest.raises(ValueError, match="asked about or filled in, got 'plain'"):
            reply("plain", "yes", system=system)
        put(system)
        for wrong in ("", "x" * 201):
            with pytest.raises(ValueError, match="reply must"):
                reply("q", wrong, system=system)
        answered(system)
        with pytest.raises(ValueError, match="one reply, and 'q' had 'yes'"):
            reply("q", "no", system=system)
        silent = put(system, WHO, ENGLISH, "s", session="ann")
        assert silent["default_applied"] is not None
        ask("Is theft covered?", system=system, session="ann", now=START + timedelta(minutes=5))
        with pytest.raises(ValueError, match="was settled at"):
            reply("s", "no", system=system)
        with pytest.raises(ValueError, match="clarify=True"):
            reply("q", "yes", system=opened(clarify=False))
        other = opened({"confidence": {"enabled": True}})
        ask(WHO, system=opened(), documents=[COVER], request_id="p")
        with pytest.raises(ValueError, match="policy_id that asked"):
            reply("p", "yes", system=other)

    def test_a_log_without_texts_needs_the_question_again(self, opened, monkeypatch):
        """The same question completes it, another is refused."""
        monkeypatch.setenv("RAGLAB_AUDIT_QUERY", "hash")
        system = opened()
        put(system, QUI, FRENCH)
        with pytest.raises(ValueError, match="give the question again"):
            reply("q", "oui", system=system)
        with pytest.raises(ValueError, match="must be the one that was asked"):
            reply("q", "oui", system=system, question=WHO)
        assert reply("q", "oui", system=system, question=QUI)["sources"] == [f"{FRENCH}#1"]

    def test_the_figure_stands_before_a_row_of_several(self, opened):
        """An old and a new figure in one row: the answer says which was read."""
        asks = "What is the escape of water excess from the 2025 renewal?"
        said = ask(asks, system=opened(), documents=[RENEWAL], now=START)
        assert (said["answer"], said["status"]) == (
            "£500: Escape of water excess; £350; £500",
            "ok",
        )

    def test_a_bandit_chooses_once_more_for_a_correction(self, opened):
        """A silent default the chain answered is corrected under the same id, by its own choice."""
        system = opened(arm="bandit")
        put(system, "the cancellation section", WORDING, "a")
        answered(system, "yes", "a")
        silent = put(system, "the cancellation section", WORDING, "b")
        assert (silent["default_applied"]["value"], silent["arm"]) == ("cite", "hybrid")
        again = answered(system, "summarise it", "b")
        assert (again["request_id"], again["arm"], again["default_applied"]) == (
            "b",
            "hybrid",
            None,
        )
        assert system.online is not None
        assert list(system.online.frame()["request_id"]) == ["a", "b", "b~reply"]
        assert votes(system) == {"cite": 0.0, "summarise": 1.0}

    def test_nothing_found_anywhere_is_a_refusal(self, opened, monkeypatch):
        """If the user's page and all that is left find nothing, the reason names what was read."""
        system = opened()
        put(system, QUI, FRENCH)
        monkeypatch.setattr(protocol_calls, "read_value", lambda *_, **__: None)
        said = answered(system, "page 2")
        assert (said["status"], said["answer"]) == (
            "refuse",
            say("fr", Reason("refusal")),
        )
        assert "l'assureur est introuvable ici : page 2" in said["refusal_reason"]
        assert explain_request("q", audit(system)).rebuilt
        plain = put(system, QUI, FRENCH, "r")
        assert (plain["clarification"], plain["arm"]) == (None, "hybrid")
        assert any("l'assureur est introuvable ici" in text for text in plain["warnings"])

    def test_a_value_of_the_documents_wins(self, opened):
        """A value that is not on offer is answered as the documents state it of the field asked."""
        system = opened()
        asked = put(system, "What is the excess?", COVER)
        value = "Accidental breakage of the cello"
        assert value not in asked["clarification"]["candidate_values"]
        assert answered(system, "the one for trace and access")["status"] == "ambiguous"
        said = answered(system, "the one for accidental breakage of the cello")
        assert any("none of the values on offer" in text for text in said["warnings"])
        assert value in said["answer"]
        proposed = asked["clarification"]["proposed_default"]
        assert votes(system) == {proposed: -1.0, value: 1.0}


class TestGates:
    """What is refused is refused first, and what is read is judged."""

    def test_a_denied_question_is_not_asked_about(self, opened):
        """The domain gate goes before any clarification."""
        system = opened()
        said = ask(
            "Who is the insurer of the weather?", system=system, documents=[ENGLISH], now=START
        )
        assert said["refusal_reason"] == "out of domain: a deny pattern matches"
        assert logged(system, CLARIFICATIONS) == []
        assert [row["status"] for row in logged(system, DECISIONS)] == ["refuse"]

    def test_a_read_answer_meets_the_gates_on_answers(self, opened):
        """Confidence of the extraction below the policy's is a refusal with the usual reason."""
        system = opened({"generation": {"min_generation_confidence": 0.99}})
        put(system, QUI, FRENCH)
        said = answered(system, "oui")
        assert (said["status"], said["refused"], said["sources"]) == ("refuse", True, [])
        assert "en dessous de min_generation_confidence 0.99" in said["refusal_reason"]
        assert {check.gate for check in said.record.checks} == {
            "domain",
            "field",
            "generation",
            "support",
            "hygiene",
        }

    @pytest.mark.parametrize("cost", ["1", "11"])
    def test_below_ask_below_the_user_is_always_asked(self, opened, monkeypatch, cost):
        """However dear a question is, and though all pages answer alike (rule S5.5)."""
        monkeypatch.setenv("RAGLAB_CLARIFY_QUESTION_COST", cost)
        for question, document in ((WHO, ROLES), (QUI, FRENCH)):
            said = ask(question, system=opened(), documents=[document], now=START)
            assert (said["status"], said["default_applied"]) == ("ambiguous", None)


class TestAudit:
    """Every question is logged, and nothing is changed by it."""

    def test_with_and_without_the_log_the_response_is_the_same(self, opened):
        """Byte for byte, for answers, refusals and options."""
        questions = [
            (WHO, [ENGLISH]),
            ("Who is the insurer?", None),
            ("weather", None),
            ("What is covered?", None),
            (" ", None),
        ]
        for policy in ({}, ASKING):
            one, two = opened(policy, clarify=False), opened(policy, clarify=False, audit=False)
            assert one.audit is not None
            assert (two.audit, two.clarifier) == (None, None)
            for question, documents in questions:
                said = [
                    ask(question, system=system, documents=documents, request_id="r").json()
                    for system in (one, two)
                ]
                assert said[0] == said[1]

    def test_every_question_has_its_row_also_from_the_cache(self, opened):
        """A cached answer is a decision too; an id used twice is two requests."""
        system = opened(clarify=False, cache=True)
        for _ in range(2):
            ask("Is theft covered?", system=system, request_id="r", now=START)
        assert len(logged(system, REQUESTS)) == len(logged(system, DECISIONS)) == 2
        assert logged(system, REQUESTS)[0]["request_id"] == "r"
        one, two = (
            {**row, "seq": 0, "request_id": "", "ms": 0, "checks": 0}
            for row in logged(system, DECISIONS)
        )
        assert one == two

    def test_where_it_clarifies_an_id_is_taken_once(self, opened):
        """A reply must know which request it is to."""
        system = opened()
        put(system, WHO, ENGLISH, "r")
        with pytest.raises(ValueError, match="must be new, got 'r'"):
            put(system, WHO, ENGLISH, "r")

    def test_clarifying_needs_the_log(self, opened):
        """What was learned would be lost."""
        with pytest.raises(ValueError, match="need the audit log"):
            opened(audit=False)

    def test_a_time_without_a_zone_is_utc(self, opened):
        """As the learner takes it; what is no time is refused before anything is logged."""
        system = opened()
        with pytest.raises(ValueError, match="now must be a datetime"):
            ask(WHO, system=system, now="2026-01-05")  # type: ignore[arg-type]
        assert logged(system, REQUESTS) == []
        ask(WHO, system=system, now=datetime(2026, 1, 5))  # noqa: DTZ001 - a naive one
        assert [row["at"] for row in logged(system, REQUESTS)] == [
            "2026-01-05T00:00:00.000000+00:00"
        ]

    def test_explain_reads_what_happened(self, opened, tmp_path):
        """A clarified, a silent and a plain request are rebuilt from the log."""
        system = opened()
        put(system, QUI, FRENCH, "a")
        answered(system, "oui", "a")
        put(system, WHO, ENGLISH, "b", now=START + timedelta(days=1))
        ask("Is theft covered?", system=system, request_id="c", now=START + timedelta(days=2))
        for request in "abc":
            rebuilt = explain_request(request, audit(system))
            assert rebuilt.rebuilt, rebuilt.differences
        told = str(raglab.explain("a", system=system))
        assert (
            told
            == str(raglab.explain("a", tmp_path / "index"))
            == str(explain_request("a", audit(system)))
        )
        assert "oui" in told
        with pytest.raises(ValueError, match="a log or a system, got neither"):
            raglab.explain("a")


class TestDocuments:
    """Rule S5.10: which document, the same loop one layer up."""

    EXCESS = "What is the excess for escape of water on Acme Premier Home?"

    def test_versions_are_values(self, opened):
        """Two documents state it for two times.

        The user is asked which, and the next question is not asked.
        """
        system = opened()
        asked = ask(self.EXCESS, system=system, request_id="a", now=START)
        assert asked["clarification"]["audit"]["kind"] == "date_scope"
        assert asked["clarification"]["candidate_values"] == ["newest", "oldest"]
        assert any("2024" in option["text"] for option in asked["options"])
        said = answered(system, "the older one", "a")
        assert (said["status"], [one.split("#")[0] for one in said["sources"]]) == ("ok", [COVER])
        again = ask(self.EXCESS, system=system, request_id="b", now=START)
        if again["clarification"] is not None:  # a vote against the other halves the confidence
            answered(system, "oldest", "b")
        silent = ask(self.EXCESS, system=system, request_id="c", now=START)
        # Learned is the document's place among the candidates, which another portfolio has as well
        # (S5.10).
        assert silent["default_applied"]["value"] == "oldest"
        assert silent["sources"] == said["sources"]
        assert explain_request("c", audit(system)).rebuilt

    def test_a_date_says_which(self, opened):
        """Nothing is asked where the question names a year."""
        system = opened()
        question = "What was the excess for escape of water on Acme Premier Home in 2024?"
        said = ask(question, system=system, now=START)
        assert said["clarification"] is None


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
        assert "value" not in first["options"][0]
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
        assert first["default_applied"] is None
        assert silent["default_applied"]["gate"] == "apply"
        assert silent["default_applied"]["field"].startswith("options:")
        assert [row["kind"] for row in logged(system, APPLICATIONS)] == ["options"]
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
        question, files = (
            str(rng.choice(questions)),
            [[], [FILES[int(rng.integers(len(FILES)))]]][int(rng.integers(4) > 0)],
        )
        chosen = 1 if question == "What is covered?" and rng.random() < 0.5 else None
        about: dict[str, Any] = {
            "session": f"user-{rng.integers(3)}",
            "request_id": f"q{number}",
            "now": at,
        }
        said = ask(question, system=system, documents=files, selected_option=chosen, **about)
        kinds.add(
            (said["status"], said["clarification"] is not None, said["default_applied"] is not None)
        )
        if (said["clarification"] or said["default_applied"]) and rng.random() < 0.7:
            with contextlib.suppress(ValueError):
                kinds.add(
                    (
                        "reply",
                        answered(system, str(rng.choice(replies)), f"q{number}", now=at)["status"],
                    )
                )
    assert len(kinds) >= 6, kinds
    explained = []
    for _ in range(2):  # with the texts and without
        told = [explain_request(f"q{number}", audit(system)) for number in range(50)]
        assert [one.differences for one in told if not one.rebuilt] == []
        explained.append([one.defaults for one in told])
        assert audit(system).rebuild() == audit(system).rows()
        audit(system).forget(before=START + timedelta(days=400))
    assert explained[0] == explained[1]


def test_a_schedule_and_no_coin(opened):
    """Between the thresholds each fifth request of a row is asked about (rule S5.5)."""
    system = opened()
    voted(system, 9.5, 1, field="excess", value="Storm and wind")
    seen = []
    for number in range(10):
        row = audit(system).rows("excess")[0]
        expected = asks(row, audit(system).learner)
        at = START + timedelta(minutes=number)
        said = put(system, "What is the excess?", COVER, f"q{number}", now=at)
        assert (said["clarification"] is not None) == expected
        assert (said["default_applied"] is not None) != expected
        seen.append(expected)
    assert seen == [False, False, False, False, True] * 2


def test_a_refresh_that_can_change_nothing_is_left_out(opened):
    """Where the schedule asks but all values answer alike, the default is applied all the same."""
    system = opened()
    voted(system, 9.5, 1)
    for number in range(5):
        said = put(system, WHO, ROLES, f"q{number}", now=START + timedelta(minutes=number))
        assert said["default_applied"] is not None


def test_the_keys_of_a_response_are_those_of_every_response(opened):
    """Rule S0.3 holds for what is asked and what is read.

    Both are JSON, and a notebook shows the question's words.
    """
    system = opened()
    asked = put(system, QUI, FRENCH)
    said = answered(system, "oui")
    for one in (asked, said):
        assert isinstance(one, Response)
        assert tuple(json.loads(one.json())) == RESPONSE_KEYS
    page = asked._repr_html_()
    assert "tout le document" in page
    assert "question_to_user" not in page


def turns(system, request, *said):
    """What the responses of a request's turns name, its log and its explanation are one.

    Null is none.
    """
    told = explain_request(request, audit(system))
    assert told.rebuilt, told.differences
    named = [one["default_applied"] for one in said]
    assert [one.default_applied for one in told.decisions] == named
    assert told.default_applied == named[-1]
    applied = [one for one in told.defaults if one.used == "applied"]
    assert [(one.row_id, one.version, one.value, one.confidence, one.gate) for one in applied] == [
        (one["row_id"], one["version"], one["value"], one["confidence"], one["gate"])
        for one in named
        if one
    ]
    assert [row["value"] for row in logged(system, APPLICATIONS, request_id=request)] == [
        one.value for one in applied
    ]
    asked = [one for one in told.defaults if one.used == "asked"]
    assert bool(asked) == (told.clarification is not None) == (said[0]["clarification"] is not None)


class TestCoherence:
    """`default_applied` of response, log and `explain` agree on every path (rules S0.3, S5.8)."""

    def test_asked_and_answered(self, opened):
        """Nothing was applied, whatever the user said."""
        system = opened()
        for request, words in (("a", "yes"), ("b", "toc"), ("c", "no"), ("d", "page 2")):
            asked = put(system, WHO, COVER, request)
            replied = [] if asked["clarification"] is None else [answered(system, words, request)]
            turns(system, request, asked, *replied)

    def test_applied_and_corrected_or_confirmed(self, opened):
        """The first turn names the default, the second is the user's own."""
        system = opened()
        voted(system, 14.0, 0)
        for number, words in enumerate((None, "yes", "toc", "page 2", "another document")):
            said = put(system, WHO, ENGLISH, f"q{number}")
            assert said["default_applied"] is not None or number > 2
            again = []
            if words is not None and (said["default_applied"] or said["clarification"]):
                with contextlib.suppress(ValueError):
                    again = [answered(system, words, f"q{number}")]
            turns(system, f"q{number}", said, *again)

    def test_tried_in_vain(self, opened, monkeypatch):
        """A learned page that reads nothing was not applied.

        Asked instead, or nothing is left to ask.
        """
        system = opened()
        voted(system, 14.0, 0)
        asked = put(system, WHO, COVER, "a")
        assert (asked["status"], asked["default_applied"]) == ("ambiguous", None)
        turns(system, "a", asked, answered(system, "toc", "a"))
        monkeypatch.setattr(protocol_calls, "read_value", lambda *_, **__: None)
        said = put(system, WHO, ENGLISH, "b")
        assert said["default_applied"] is None
        turns(system, "b", said)
        assert [
            row["signal"]
            for row in logged(system, CHANGES, request_id="b")
            if row["kind"] == "signal"
        ] == ["failure"]

    def test_applied_and_refused_by_a_gate(self, opened):
        """A default that filled in an answer which a gate refuses was applied, and is named."""
        system = opened({"generation": {"min_generation_confidence": 0.999}})
        voted(system, 14.0, 0)
        said = put(system)
        assert (said["status"], said["default_applied"]["value"]) == ("refuse", "1")
        turns(system, "q", said)

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
        voted_no = put(system, WHO, ENGLISH, "other")
        answered(system, "toc", "other")
        assert voted_no["default_applied"] is not None
        turns(
            system,
            "q",
            put(system, now=START + timedelta(days=1)),
        )

    def test_what_a_question_rests_on(self, opened):
        """Audits of questions to users name models, parser, prompt, pack, learner and versions."""
        system = opened()
        asked = put(system, QUI, FRENCH)
        known = asked["clarification"]["audit"]
        assert {
            name: known[name] for name in ("parser", "encoder", "pack", "learner_rule", "learner")
        } == {
            "parser": PARSER_VERSION,
            "encoder": system.retriever.encoder.name,
            "pack": system.pack.digest,
            "learner_rule": audit(system).learner.rule,
            "learner": audit(system).digest,
        }
        assert (known["prompt_version"], known["raglab"]) == (
            PARSER_VERSION,
            version("raglab-toolkit"),
        )
        assert known["policy_id"] == system.policy.policy_id
        kept = explain_request("q", audit(system)).clarification
        assert kept is not None
        assert kept["audit"] == known


class TestLanguage:
    """A French question has a French response; a policy's own words stay."""

    def test_a_refusal(self, opened):
        """Message, reason and warnings.

        The log keeps what was said, and the explanation adds up.
        """
        strict = {"similarity": {"enabled": True, "min_similarity": 0.999}}
        system = opened(strict)
        said = ask("Le vol est-il couvert ?", system=system, request_id="q", now=START)
        assert (said["status"], said["answer"]) == (
            "refuse",
            say("fr", Reason("refusal")),
        )
        assert said["refusal_reason"].startswith("similarité du passage le plus proche ")
        assert said["refusal_reason"].endswith(", en dessous de min_similarity 0.999")
        told = explain_request("q", audit(system))
        assert told.rebuilt, told.differences
        assert said["refusal_reason"] in str(told)
        english = ask("Is theft covered?", system=system, now=START)
        assert english["answer"] == system.policy.refusal_message
        assert "is below min_similarity 0.999" in english["refusal_reason"]
        own = opened(strict | {"refusal_message": "Nope."})
        assert ask("Le vol est-il couvert ?", system=own, now=START)["answer"] == "Nope."

    def test_an_invalid_choice(self, opened):
        """Is refused in its words, and derived as such."""
        system = opened()
        said = ask(
            "Le vol est-il couvert ?", system=system, selected_option=99, request_id="q", now=START
        )
        assert said["refusal_reason"] == "Choix invalide : 99"
        assert explain_request("q", audit(system)).rebuilt


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
