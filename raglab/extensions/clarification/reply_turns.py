"""Reply turns (shore): what a user's reply says and teaches, and the request completed (S5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.audit.default_table import RowKey
from raglab.audit.log import request_groups
from raglab.default_learner import ClarificationRequest
from raglab.extensions.clarification.clarified_requests import (
    Waiting,
    ask_user,
    asking_response,
    finish_request,
    prospect_of,
    vain_warning,
    waiting_of,
    with_fallbacks,
)
from raglab.extensions.clarification.default_rows import application_of, pending_of
from raglab.extensions.clarification.language_words import plain
from raglab.extensions.clarification.option_defaults import KIND, option_values
from raglab.extensions.clarification.pinned_documents import PinnedDocuments
from raglab.extensions.clarification.reply_names import DOCUMENT, PAGE_SCOPE, own_statement
from raglab.extensions.clarification.turns import Clarification, Turn
from raglab.extensions.clarification.value_readings import (
    ValueReading,
    domain_checks,
    field_check,
)
from raglab.live.ask import audit_log, log_decision
from raglab.live.clarifier import (
    FieldValue,
    GapReading,
    ParsedQuestion,
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

LONGEST_REPLY = 200  # characters
WORDS = ("explicit_yes", "explicit_no")  # signals that a user speaks
FEWEST = 2  # values that are a choice
LAST = ("toc", DOCUMENT)  # scopes that are tried where the user's own finds nothing


class Open(NamedTuple):
    """The request that a reply is about.

    Attributes:
      proposed: value that a yes takes.
      candidates: values on offer.
      turned_down: values that earlier replies declined.
      replies: number of earlier replies.
      asking: the question to the user; None where a default answered the request already.
      state: see `_state`.
      remaining: values on offer that no reply declined.
    """

    request: Request
    kind: str
    key: RowKey
    conditions: Mapping[str, str]
    proposed: str | None
    candidates: tuple[str, ...]
    tried: tuple[str, ...]
    turned_down: frozenset[str]
    replies: int
    asking: ClarificationRequest | None
    state: tuple[int, ...]
    remaining: tuple[str, ...] = ()


def answer_reply(
    request_id: str,
    answer: str,
    system: System,
    clarification: Clarification,
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
    if not isinstance(answer, str):
        msg = f"a reply must be a text, got {type(answer).__name__}; pass yes, no or a value."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    if not answer.strip() or len(answer) > LONGEST_REPLY:
        refuse(
            f"a reply must have 1 to {LONGEST_REPLY} characters",
            len(answer),
            "say yes, no or one of the values",
        )
    # A default that silence settled in the meantime takes no correction any more.
    log.settle(now=now)
    matter = _open_request(request_id, log, system, question, now)
    # A bandit gave the request its reward when a default answered it; the corrected answer is
    # another round.
    answered_as = f"{request_id}~reply" if matter.asking is None else request_id
    turn = Turn(
        matter.request,
        system,
        log,
        clarification,
        clarification.calls.for_request(),
        answered_as,
        writes=[],
    )
    complete = _choose_option if matter.kind == KIND else _answer_reply
    response = with_fallbacks(
        answer_or_refuse(matter.request, system, partial(complete, matter, answer, turn)), turn
    )
    if response["error"] is not None:
        return response  # the reply is not in the log, so that it may be given again
    with log.together() as entries:
        if _state(entries, request_id) != matter.state:
            rule = f"a reply must be the first to what was shown of {request_id!r}"
            refuse(rule, f"{answer!r:.80} after another", "read what that one led to")
        for write in turn.writes or ():
            write()
        log.replied(request_id, answer, now=now)
        log_decision(log, request_id, response, now)
    return response


def _state(entries: Entries, request_id: str) -> tuple[int, ...]:
    """Numbers of the last reply to a request, of its question and of what silence settled.

    0 where there is none.
    """
    rows = (
        entries.row(table, request_id=request_id)
        for table in (REPLIES, CLARIFICATIONS, SETTLEMENTS)
    )
    return tuple(0 if row is None else int(row["seq"]) for row in rows)


def _open_request(
    request_id: str, log: AuditLog, system: System, question: str | None, now: datetime
) -> Open:
    with log.log.reading() as entries:
        record, state = request_row(entries, request_id), _state(entries, request_id)
        with as_written():
            pending, filled = pending_of(entries, request_id), application_of(entries, request_id)
        put = entries.row(CLARIFICATIONS, request_id=request_id)
        since = 0 if put is None else int(put["seq"])
        replies = [
            row for row in entries.rows(REPLIES, request_id=request_id) if int(row["seq"]) > since
        ]
        spoken = [
            row for row in entries.rows(CHANGES, request_id=request_id) if row["signal"] in WORDS
        ]
        gone = frozenset(row["value"] for row in spoken if row["signal"] == "explicit_no")
        silent = entries.row(SETTLEMENTS, request_id=request_id)
    # A default's answer stands after a reply that named nothing, and takes another one.
    if pending is None and replies and (spoken or filled is None or len(replies) > 1):
        msg = (
            f"a request takes one reply, and {request_id!r} had {replies[-1]['reply']!r}; ask the "
            "question again."
        )
        raise ValueError(msg)
    about = pending or filled
    if about is None:
        rule = "a reply must be to a request that was asked about or filled in"
        refuse(rule, repr(request_id), "ask it anew")
    if pending is None and silent is not None:
        rule = (
            "a default is corrected before the next request and within 24 hours, and "
            f"{request_id!r} was settled"
        )
        msg = f"{rule} at {silent['at'][:19]} ({silent['outcome']}); ask the question again."
        raise ValueError(msg)
    here = system.policy.policy_id
    if record["policy_id"] != here:
        refuse(
            f"a reply must go to the policy_id that asked, {record['policy_id']}",
            here,
            "open that policy",
        )
    system.check_index(record["fingerprint"])
    remedy = "open that pack, or ask the question again"
    check_pack(
        record["models"].get("pack"), system.pack.digest, f"the request {request_id!r}", remedy
    )
    text = _question_text(record, question)
    request = Request(
        id=request_id,
        text=text,
        documents=tuple(record["documents"]),
        selected=None,
        session=record["session"],
        now=now,
        resumed=True,  # a reply that broke off is given again
        language=language_of(text, system.pack),
        groups=request_groups(record),
    )
    asking = None if pending is None else pending.clarification
    applied = "" if filled is None else filled.value
    return Open(
        request,
        about.kind,
        about.key,
        about.conditions,
        applied if asking is None else asking.proposed_default,
        (applied,) if asking is None else tuple(asking.candidate_values),
        () if pending is None else pending.tried,
        gone,
        len(replies),
        asking,
        state,
    )


def _question_text(record: Mapping[str, Any], question: str | None) -> str:
    """Text of the question: the log's, or the caller's where the log keeps none."""
    wording = None if question is None else normalise_question(question)
    if record["question"] is None and wording is None:
        msg = "the audit log keeps no text of questions; give the question again, with question=."
        raise ValueError(msg)
    same = (
        record["question_hash"] in ("", None)
        or wording is None
        or digest(wording) == record["question_hash"]
    )
    if not same:
        refuse(
            "question must be the one that was asked",
            f"{question!r:.80}",
            "give it as it was, or leave it out",
        )
    return str(record["question"] if wording is None else wording)


def _answer_reply(matter: Open, answer: str, turn: Turn) -> Response:
    """Learn what the reply names, then answer the filled request, reshow or end it (rule S5.4)."""
    waiting, matter = _waiting(matter, turn)
    shown = tuple(
        reading._replace(text=waiting.shown(reading.value))
        for reading in waiting.gap.readings
        if reading.value in matter.remaining
    )
    about = (matter.key.target_field.partition(":")[0], shown, matter.proposed)
    language = turn.request.language
    request = ReplyRequest(
        matter.request.text, matter.kind, *about, waiting.pinned.chunks, language
    )
    reply = _of_what_was_declined(turn.calls.reply(answer, request), answer, waiting, matter)
    if reply.kind == "not_understood":
        return _show_again(waiting, matter, (), turn.say("names_nothing", reply=f"{answer!r:.80}"))
    _learn(matter, reply, turn)
    if reply.kind == "declined":
        declined = turn.listed([waiting.shown(value) for value in reply.declined])
        return _show_again(waiting, matter, reply.declined, turn.say("declined", values=declined))
    if reply.kind == "own_value":
        return _answer_own_value(waiting, reply)
    return _answer_value(waiting, matter, reply)


def _of_what_was_declined(reply: Reply, answer: str, waiting: Waiting, matter: Open) -> Reply:
    """A reply as a choice of a declined value where it says its name.

    A cell of its row alone takes nothing back.
    """
    gone = [
        each
        for each in waiting.gap.readings
        if each.value in matter.turned_down and each.quote == reply.quote
    ]
    if reply.kind != "own_value" or not gone:
        return reply
    named = next((reading for reading in gone if plain(reading.value) in plain(answer)), None)
    return Reply("not_understood") if named is None else Reply("chosen", named.value)


def _waiting(matter: Open, turn: Turn) -> tuple[Waiting, Open]:
    """The request as it was asked, with its documents and its row.

    And what is left of what was offered.
    """
    request, clarification = matter.request, turn.clarification
    if not clarification.asks:
        msg = "a reply needs the documents' readings; open the system with clarify=True."
        raise ValueError(msg)
    index, stated = clarification.index, _stated_readings(matter)
    named = request.documents or tuple(
        () if matter.asking is None else matter.asking.audit.get("documents", ())
    )
    if matter.kind == "document" and not named:
        named = tuple(
            dict.fromkeys(chunk.document for chunk in index.nearest(request.text, index.chunks))
        )
    pinned = index.pinned(named)
    parsed = turn.calls.parse(request.text, pinned.chunks).model_copy(
        update={"documents": request.documents}
    )
    gap = QuestionGap(
        matter.kind,  # type: ignore[arg-type] # as it was logged
        matter.key.target_field,
        stated,
        "first",
    )
    if matter.asking is None or not any(reading.quote for reading in stated):
        gap = _found_again(gap, turn, parsed, pinned) or gap
    waiting = waiting_of(
        turn, parsed, gap, pinned, domain_checks(request.text, turn.system, request.language)
    )
    offered = tuple(
        value for value in waiting.values if matter.asking is None or value in matter.candidates
    )
    remaining = tuple(value for value in offered if value not in matter.turned_down)
    stands = matter.proposed in remaining or not matter.turned_down
    proposed = matter.proposed if stands else next(iter(remaining), None)
    return waiting, matter._replace(remaining=remaining, proposed=proposed, candidates=offered)


def _stated_readings(matter: Open) -> tuple[GapReading, ...]:
    """Readings as they were logged.

    Their values alone where texts are blanked, or a default answered.
    """
    logged_readings = [] if matter.asking is None else matter.asking.audit.get("readings", [])
    known = {
        str(value): GapReading(str(value), str(quote), str(text))
        for value, quote, text in logged_readings
    }
    return tuple(known.get(value, GapReading(value)) for value in matter.candidates)


def _found_again(
    gap: QuestionGap, turn: Turn, parsed: ParsedQuestion, pinned: PinnedDocuments
) -> QuestionGap | None:
    """The gap as the question leads to it now, with the values that were on offer."""
    hits = turn.clarification.index.nearest(parsed.question, pinned.chunks)
    fresh_gap = next(
        (each for each in turn.calls.gaps(parsed, pinned.chunks, hits) if each.kind == gap.kind),
        None,
    )
    if fresh_gap is None:
        return None
    values = {reading.value for reading in fresh_gap.readings}
    more = tuple(reading for reading in gap.readings if reading.value not in values)
    return fresh_gap._replace(field=gap.field, readings=(*fresh_gap.readings, *more))


def _learn(matter: Open, reply: Reply, turn: Turn) -> None:
    """Signals of a reply (rule S5.4); a doubted one answers this request, and is no vote."""
    proposed, named = matter.proposed, reply.value
    signals: list[tuple[str, ...]] = [(value, "explicit_no") for value in reply.declined]
    if len(signals) > 1 and set(reply.declined) >= set(matter.remaining) and proposed is not None:
        # To turn down everything is a no to the proposal alone: nothing was said of the others.
        signals = [(proposed, "explicit_no")]
    if reply.kind != "declined":
        is_other = proposed not in {None, named}
        signals = [
            (proposed or named, "explicit_no", named) if is_other else (named, "explicit_yes")
        ]
    for signal in signals if not reply.doubted else ():
        about: dict[str, Any] = {"conditions": matter.conditions, "now": matter.request.now}
        turn.write(turn.log.signal, matter.request.id, matter.key, *signal, **about)


def _show_again(waiting: Waiting, matter: Open, declined: Sequence[str], why: str) -> Response:
    """The same request with what is left, once; else the end of it: a refusal with its reason.

    Args:
      declined: values that the reply turned down.
      why: it is shown again, in words.
    """
    asking = matter.asking
    remaining = tuple(value for value in matter.remaining if value not in declined)
    if matter.replies or len(remaining) < FEWEST:
        return _refusal(waiting, why)
    if asking is None and not declined:
        return finish_request(waiting, waiting.read(matter.proposed or ""), [why])
    offered = tuple(
        reading for value in remaining for reading in waiting.gap.readings if reading.value == value
    )
    waiting = waiting._replace(gap=waiting.gap._replace(readings=offered))
    if asking is None:  # the first question of a request whose default was declined
        waiting = waiting.declined_last()
        return ask_user(waiting, prospect_of(waiting), waiting.values, []).changed([why])
    shown = asking.model_copy(
        update={"candidate_values": list(remaining), "proposed_default": remaining[0]}
    )
    # The text of the question is the first one's (rule S5.2): what a yes takes by now is said
    # beside it.
    now = [waiting.turn.say("now_proposed", value=waiting.shown(remaining[0]))] if declined else []
    return asking_response(waiting, shown, why, [why, *now])


def _refusal(waiting: Waiting, reason: str) -> Response:
    """Refusal of a request that ends without a value; nothing is retrieved for it."""
    turn = waiting.turn
    refusal_reason = turn.say("unsettled", field=waiting.field, reason=reason)
    answer = ResponseFields(
        refusal(turn.request.language, turn.system.policy.refusal_message),
        status=Status.refuse,
        refusal_reason=refusal_reason,
        arm_reason=turn.say("read_for"),
    )
    checks = (*waiting.domain, field_check(refusal_reason, has_value=False))
    return unretrieved_response(answer, turn.request, turn.system, ResponseRecord(checks=checks))


def _answer_own_value(waiting: Waiting, reply: Reply) -> Response:
    """Answer by the statement of the documents that the user named: it wins over every reader."""
    statement = own_statement(reply, waiting.pinned.chunks)
    if statement is None:  # cannot be: the reply was checked against the same documents
        raise AssertionError
    note = waiting.turn.say("not_offered", field=waiting.field, words=repr(reply.value))
    field_value = FieldValue(statement.value, statement.text)
    reading = ValueReading(reply.value, field_value, waiting.pinned.chunks[statement.place])
    return finish_request(waiting, reading, [note])


def _answer_value(waiting: Waiting, matter: Open, reply: Reply) -> Response:
    """Answer under the user's value.

    A page that does not state the field is followed by the wide scopes, and named.
    """
    turn, paged, value = waiting.turn, matter.kind == PAGE_SCOPE, reply.value
    declined = {*reply.declined, *((matter.proposed,) if value != matter.proposed else ())}
    wide = [
        scope
        for scope in LAST
        if scope in matter.candidates and scope not in {*declined, *matter.tried, value}
    ]
    tried: list[str] = []
    for scope in (value, *(wide if paged else ())):
        reading = waiting.read(scope)
        if not reading.failed:
            return finish_request(waiting, reading, [vain_warning(waiting, tried)] if tried else [])
        tried.append(scope)
        # Only the user's own value is counted against: the others were never said to be right.
        if (
            scope == value
            and not reply.doubted
            and all(fallback.role != "field_reader" for fallback in turn.calls.fallbacks)
        ):
            about: dict[str, Any] = {"conditions": matter.conditions, "now": matter.request.now}
            turn.write(turn.log.signal, matter.request.id, matter.key, scope, "failure", **about)
    return _refusal(waiting, vain_warning(waiting, [*matter.tried, *tried]))


def _choose_option(matter: Open, answer: str, turn: Turn) -> Response:
    """A reply of options that were settled silently.

    They are shown, or the one that is named is taken.
    """
    options = turn.answer()
    values = option_values(options["options"], turn.clarification.chunks)
    texts = {option["id"]: "; ".join(option["sources"]) for option in options["options"]}
    readings = tuple(GapReading(value, text=texts[number]) for value, number in values.items())
    reply_request = ReplyRequest(
        matter.request.text,
        KIND,
        matter.key.target_field,
        readings,
        matter.proposed,
        language=turn.request.language,
    )
    reply = turn.calls.reply(answer, reply_request)
    if reply.kind == "not_understood" or reply.value not in {"", *values}:
        refuse(
            f"a reply must be yes, no, or an option from 1 to {len(values)}",
            f"{answer!r:.80}",
            "say which",
        )
    _learn(matter._replace(remaining=tuple(values)), reply, turn)
    return options if reply.kind == "declined" else turn.answer(selected=values[reply.value])
