"""Reply turns (shore): what a user's reply says and teaches, and the request completed (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.audit.default_table import Application, Pending
from raglab.audit.log import request_groups
from raglab.default_learner import OTHER, ClarificationRequest
from raglab.extensions.clarification.clarified_requests import (
    Waiting,
    asking_response,
    fill_in,
    pinned_of,
    waiting_of,
    with_fallbacks,
)
from raglab.extensions.clarification.default_rows import application_of, pending_of
from raglab.extensions.clarification.language_words import plain
from raglab.extensions.clarification.option_defaults import KIND, option_values
from raglab.extensions.clarification.question_texts import option_rows
from raglab.extensions.clarification.reply_names import NOT_UNDERSTOOD
from raglab.extensions.clarification.turns import Clarification, Turn
from raglab.extensions.clarification.value_readings import (
    domain_checks,
    field_check,
    quoted_reading,
)
from raglab.live.ask import audit_log, log_decision
from raglab.live.clarifier import (
    GapKind,
    GapReading,
    QuestionGap,
    Reply,
    ReplyRequest,
)
from raglab.live.pipeline import answer_or_refuse, unretrieved_response
from raglab.live.requests import Request, language_of
from raglab.live.response import Response, ResponseFields, ResponseRecord
from raglab.live.system import normalise_question
from raglab.policy import check_pack
from raglab.store.log_rows import as_written
from raglab.store.log_tables import CHANGES, CLARIFICATIONS, REPLIES, SETTLEMENTS, request_row
from raglab.values import Status, refuse
from raglab.words.canonical import digest
from raglab.words.languages import refusal

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.system import System
    from raglab.store.log_rows import Entries

MAX_REPLY_LENGTH = 200  # characters
MIN_CHOICES = 2  # values that are a choice


class Open(NamedTuple):
    """The request that a reply is about.

    Attributes:
      use: what was asked, or filled in, with the row of the default table.
      asking: the question to the user; None where a default answered the request already.
      proposed: value that a yes takes.
      turned_down: values that earlier replies declined.
      replies: number of earlier replies.
      state: see `_state`.
    """

    request: Request
    use: Pending | Application
    asking: ClarificationRequest | None
    proposed: str | None
    turned_down: frozenset[str]
    replies: int
    state: tuple[int, ...]


def answer_reply(
    clarification: Clarification,
    request_id: str,
    answer: str,
    system: System,
    *,
    question: str | None,
    now: datetime,
) -> Response:
    """Response to a request with the user's reply; see `raglab.live.ask.reply`.

    The request keeps its id: the log has the reply, the signals and a second decision under it, in
    one transaction or not at all, so that a reply that broke off may be given again. Of replies at
    the same time the first is taken.
    """
    log = audit_log(system)
    if not answer.strip() or len(answer) > MAX_REPLY_LENGTH:
        refuse(
            f"a reply must be a text of 1 to {MAX_REPLY_LENGTH} characters",
            f"{answer!r:.80}",
            "say yes, no or one of the values",
        )
    # A default that silence settled in the meantime takes no correction any more.
    log.settle(now=now)
    open_request = _open_request(request_id, log, system, question, now)
    # A bandit gave the request its reward when a default answered it; the corrected answer is
    # another round.
    answer_id = f"{request_id}~reply" if open_request.asking is None else request_id
    calls = clarification.calls.for_request()
    turn = Turn(open_request.request, system, log, clarification, calls, answer_id, writes=[])
    complete_request = _choose_option if open_request.use.kind == KIND else _answer_reply
    response = answer_or_refuse(
        open_request.request, system, partial(complete_request, open_request, answer, turn)
    )
    response = with_fallbacks(response, turn)
    if response["error"] is not None:
        return response  # the reply is not in the log, so that it may be given again
    with log.together() as entries:
        if _state(entries, request_id) != open_request.state:
            refuse(
                f"a reply must be the first to what was shown of {request_id!r}",
                f"{answer!r:.80} after another",
                "read what that one led to",
            )
        for write_entry in turn.writes or ():
            write_entry()
        log.replied(request_id, answer, now=now)
        log_decision(log, request_id, response, now)
    return response


def _state(entries: Entries, request_id: str) -> tuple[int, ...]:
    """Numbers of the last reply to a request, of its question and of what silence settled.

    0 where there is none.
    """
    last_rows = (
        entries.row(table, request_id=request_id)
        for table in (REPLIES, CLARIFICATIONS, SETTLEMENTS)
    )
    return tuple(0 if log_row is None else int(log_row["seq"]) for log_row in last_rows)


def _open_request(
    request_id: str, log: AuditLog, system: System, question: str | None, now: datetime
) -> Open:
    with log.log.reading() as entries:
        record = request_row(entries, request_id)
        reply_state = _state(entries, request_id)
        with as_written():
            pending = pending_of(entries, request_id)
            application = application_of(entries, request_id)
        replies = list(entries.rows(REPLIES, request_id=request_id, after=reply_state[1]))
        changes = list(entries.rows(CHANGES, request_id=request_id))
        settlement = entries.row(SETTLEMENTS, request_id=request_id)
    explicit_signals = {log_row["signal"] for log_row in changes} & {"explicit_yes", "explicit_no"}
    # A default's answer stands after a reply that named nothing, and takes another one.
    if (
        pending is None
        and replies
        and (explicit_signals or application is None or len(replies) > 1)
    ):
        requirement = f"a request takes one reply, and {request_id!r} had {replies[-1]['reply']!r}"
        refuse(requirement, "another", "ask the question again")
    logged_use = pending or application
    if logged_use is None:
        requirement = "a reply must be to a request that was asked about or filled in"
        refuse(requirement, repr(request_id), "ask it anew")
    if pending is None and settlement is not None:
        requirement = "a default is corrected before the next request and within 24 hours"
        settled_text = (
            f"{request_id!r} was settled at {settlement['at'][:19]} ({settlement['outcome']})"
        )
        refuse(f"{requirement}, and {settled_text}", "a reply", "ask the question again")
    current_policy = system.policy.policy_id
    if record["policy_id"] != current_policy:
        requirement = f"a reply must go to the policy_id that asked, {record['policy_id']}"
        refuse(requirement, current_policy, "open that policy")
    system.check_index(record["fingerprint"])
    check_pack(
        record["models"].get("pack"),
        system.pack.digest,
        f"the request {request_id!r}",
        "open that pack, or ask the question again",
    )
    request_text = _question_text(record, question)
    request = Request(
        id=request_id,
        text=request_text,
        documents=tuple(record["documents"]),
        selected=None,
        session=record["session"],
        now=now,
        resumed=True,  # a reply that broke off is given again
        language=language_of(request_text, system.pack),
        groups=request_groups(record),
    )
    return Open(
        request,
        logged_use,
        logged_use.clarification if isinstance(logged_use, Pending) else None,
        logged_use.clarification.proposed_default
        if isinstance(logged_use, Pending)
        else logged_use.value,
        frozenset(log_row["value"] for log_row in changes if log_row["signal"] == "explicit_no"),
        len(replies),
        reply_state,
    )


def _question_text(record: Mapping[str, Any], question: str | None) -> str:
    """Text of the question: the caller's, else the log's."""
    if question is None and record["question"] is None:
        msg = "the audit log keeps no text of questions; give the question again, with question=."
        raise ValueError(msg)
    if question is None:
        return str(record["question"])
    normalised = normalise_question(question)
    question_hash = record["question_hash"]
    if question_hash and digest(normalised) != question_hash:
        refuse(
            "question must be the one that was asked",
            f"{question!r:.80}",
            "give it as it was, or leave it out",
        )
    return normalised


def _answer_reply(open_request: Open, answer: str, turn: Turn) -> Response:
    """Learn what the reply names, then answer the filled request, reshow or end it (rule S5.4)."""
    waiting = _waiting(open_request, turn)
    turn, gap_kind, language = waiting.turn, waiting.gap.kind, turn.request.language
    declined_readings = [
        reading for reading in waiting.gap.readings if reading.value in open_request.turned_down
    ]
    remaining_readings = tuple(
        reading for reading in waiting.gap.readings if reading not in declined_readings
    )
    if open_request.proposed in open_request.turned_down:
        open_request = open_request._replace(
            proposed=next((reading.value for reading in remaining_readings), None)
        )
    reply_request = ReplyRequest(
        turn.request.text,
        gap_kind,
        open_request.use.key.target_field.partition(":")[0],
        tuple(
            reading._replace(text=waiting.shown(reading.value)) for reading in remaining_readings
        ),
        open_request.proposed,
        turn.pinned.chunks,
        language,
    )
    reply = turn.calls.reply(answer, reply_request)
    # A declined value comes back by its name, not by a cell of its row.
    declined_values = [
        reading.value for reading in declined_readings if reading.quote == reply.quote
    ]
    if reply.kind == "own_value" and declined_values:
        named_values = [
            declined_value
            for declined_value in declined_values
            if plain(declined_value) in plain(answer)
        ]
        reply = Reply("chosen", named_values[0]) if named_values else NOT_UNDERSTOOD
    _learn(open_request, reply, turn, len(remaining_readings))
    if reply.kind == "not_understood":
        last_option = option_rows(remaining_readings, gap_kind, language)[-1]
        if plain(answer).strip(" .!") in {
            OTHER,
            str(last_option["id"]),
            plain(last_option["text"]),
        }:
            refusal_text = turn.say("not_offered", field=waiting.field, words=last_option["text"])
            return _refusal(waiting, refusal_text)
        refusal_text = turn.say("names_nothing", reply=f"{answer!r:.80}")
        return _show_again(waiting, open_request, remaining_readings, refusal_text)
    if reply.kind == "declined":
        declined_text = turn.say("both").join(map(waiting.shown, reply.declined))
        still_offered = tuple(
            reading for reading in remaining_readings if reading.value not in reply.declined
        )
        return _show_again(
            waiting, open_request, still_offered, turn.say("declined", values=declined_text)
        )
    if reply.kind == "own_value":  # what the user named wins over every reader
        own_reading = GapReading(reply.value, reply.quote)
        offer_note = turn.say("not_offered", field=waiting.field, words=repr(reply.value))
        return waiting.answer(
            quoted_reading(own_reading, turn.pinned.chunks, turn.parsed), [offer_note]
        )
    value_reading = waiting.read(reply.value)
    if not value_reading.failed:
        return waiting.answer(value_reading)
    if not reply.doubted and turn.reads_fields:
        _signal(open_request, turn, reply.value, "failure")
    return _refusal(waiting, waiting.vain([reply.value]))


def _waiting(open_request: Open, turn: Turn) -> Waiting:
    """The request with its documents, its row and what was on offer.

    As it was logged; where texts are blanked, or a default answered, as the question leads to it
    now.
    """
    request, asking, logged_use = open_request.request, open_request.asking, open_request.use
    logged_audit = {} if asking is None else asking.audit
    pinned_documents, _ = pinned_of(turn, request.documents or logged_audit.get("documents", ()))
    parsed_question = turn.calls.parse(request.text, pinned_documents.chunks)
    parsed_question = parsed_question.model_copy(update={"documents": request.documents})
    gap_readings = [
        GapReading(*map(str, logged_reading)) for logged_reading in logged_audit.get("readings", ())
    ]
    reason = "first"
    is_logged = bool(gap_readings)
    if not is_logged:
        hits = turn.clarification.index.nearest(request.text, pinned_documents.chunks)
        gaps = turn.calls.gaps(parsed_question, pinned_documents.chunks, hits)
        for fresh_gap in [
            question_gap for question_gap in gaps if question_gap.kind == logged_use.kind
        ][:1]:
            gap_readings = [*fresh_gap.readings]
            reason = fresh_gap.reason
    candidate_values = [open_request.proposed or ""] if asking is None else asking.candidate_values
    readings_by_value = {
        logged_reading.value: logged_reading
        for logged_reading in (*map(GapReading, candidate_values), *gap_readings)
    }
    gap_kind: GapKind = logged_use.kind  # type: ignore[assignment] # as it was logged
    question_gap = QuestionGap(
        gap_kind, logged_use.key.target_field, tuple(readings_by_value.values()), reason
    )
    domain_results = domain_checks(request.text, turn.system, request.language)
    turn = replace(turn, parsed=parsed_question, pinned=pinned_documents, domain=domain_results)
    if is_logged:
        return Waiting(turn, question_gap)
    waiting = waiting_of(turn, question_gap)
    if asking is None:
        return waiting
    offered_readings = {
        logged_reading.value: logged_reading
        for logged_reading in waiting.gap.readings
        if logged_reading.value in candidate_values
    }
    return waiting._replace(gap=question_gap._replace(readings=tuple(offered_readings.values())))


def _learn(open_request: Open, reply: Reply, turn: Turn, n_remaining: int) -> None:
    """Signals of a reply (rule S5.4); a doubted one answers this request, and is no vote.

    To turn down all that is on offer is none either: it says nothing of any of them.
    """
    proposed = open_request.proposed
    named_value = reply.value
    if reply.doubted:
        return
    if named_value and proposed in {None, named_value}:
        _signal(open_request, turn, named_value, "explicit_yes")
    elif named_value:
        _signal(open_request, turn, proposed, "explicit_no", named_value)
    elif len(reply.declined) < max(n_remaining, MIN_CHOICES):
        for declined_value in reply.declined:
            _signal(open_request, turn, declined_value, "explicit_no")


def _signal(open_request: Open, turn: Turn, *signal_values: str | None) -> None:
    """Log a signal with the answer to the reply."""
    log_fields: dict[str, Any] = {
        "conditions": open_request.use.conditions,
        "now": turn.request.now,
    }
    turn.write(turn.log.signal, turn.request.id, open_request.use.key, *signal_values, **log_fields)


def _show_again(
    waiting: Waiting,
    open_request: Open,
    remaining_readings: tuple[GapReading, ...],
    shown_reason: str,
) -> Response:
    """The same request with what is left, once; else the end of it: a refusal with its reason.

    Args:
      shown_reason: it is shown again, in words.
    """
    asking = open_request.asking
    is_proposal_left = open_request.proposed in {
        remaining_reading.value for remaining_reading in remaining_readings
    }
    if open_request.replies or len(remaining_readings) < MIN_CHOICES:
        return _refusal(waiting, shown_reason)
    if asking is None and is_proposal_left:
        return waiting.answer(waiting.read(open_request.proposed or ""), [shown_reason])
    waiting = waiting._replace(gap=waiting.gap._replace(readings=remaining_readings))
    if asking is None:  # the first question of a request whose default was declined
        return fill_in(waiting, declined=True).changed([shown_reason])
    remaining_values = [reading.value for reading in remaining_readings]
    shown_question = asking.model_copy(
        update={"candidate_values": remaining_values, "proposed_default": remaining_values[0]}
    )
    # The text of the question is the first one's (rule S5.2): what a yes takes by now is said
    # beside it.
    proposal_sentence = waiting.turn.say("now_proposed", value=waiting.shown(remaining_values[0]))
    return asking_response(
        waiting,
        shown_question,
        shown_reason,
        [shown_reason] if is_proposal_left else [shown_reason, proposal_sentence],
    )


def _refusal(waiting: Waiting, reason: str) -> Response:
    """Refusal of a request that ends without a value; nothing is retrieved for it."""
    turn = waiting.turn
    refusal_reason = turn.say("unsettled", field=waiting.field, reason=reason)
    response_fields = ResponseFields(
        refusal(turn.request.language, turn.system.policy.refusal_message),
        status=Status.refuse,
        refusal_reason=refusal_reason,
        arm_reason=turn.say("read_for"),
    )
    checks = (*turn.domain, field_check(refusal_reason, has_value=False))
    return unretrieved_response(
        response_fields, turn.request, turn.system, ResponseRecord(checks=checks)
    )


def _choose_option(open_request: Open, answer: str, turn: Turn) -> Response:
    """A reply of options that were settled silently.

    They are shown, or the one that is named is taken.
    """
    option_response = turn.answer()
    chunks_by_value = option_values(option_response["options"], turn.clarification.chunks)
    texts_by_option = {
        response_option["id"]: "; ".join(response_option["sources"])
        for response_option in option_response["options"]
    }
    option_readings = tuple(
        GapReading(option_value, text=texts_by_option[option_id])
        for option_value, option_id in chunks_by_value.items()
    )
    field_name = open_request.use.key.target_field
    language = turn.request.language
    reply_request = ReplyRequest(
        turn.request.text,
        KIND,
        field_name,
        option_readings,
        open_request.proposed,
        language=language,
    )
    reply = turn.calls.reply(answer, reply_request)
    if reply.kind == "not_understood" or reply.value not in {"", *chunks_by_value}:
        refuse(
            f"a reply must be yes, no, or an option from 1 to {len(chunks_by_value)}",
            f"{answer!r:.80}",
            "say which",
        )
    _learn(open_request, reply, turn, len(chunks_by_value))
    return (
        option_response
        if reply.kind == "declined"
        else turn.answer(selected=chunks_by_value[reply.value])
    )
