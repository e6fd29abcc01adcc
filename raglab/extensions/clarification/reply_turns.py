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

LONGEST_REPLY = 200  # characters
FEWEST = 2  # values that are a choice


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
    if not answer.strip() or len(answer) > LONGEST_REPLY:
        rule = f"a reply must be a text of 1 to {LONGEST_REPLY} characters"
        refuse(rule, f"{answer!r:.80}", "say yes, no or one of the values")
    # A default that silence settled in the meantime takes no correction any more.
    log.settle(now=now)
    matter = _open_request(request_id, log, system, question, now)
    # A bandit gave the request its reward when a default answered it; the corrected answer is
    # another round.
    answered_as = f"{request_id}~reply" if matter.asking is None else request_id
    calls = clarification.calls.for_request()
    turn = Turn(matter.request, system, log, clarification, calls, answered_as, writes=[])
    complete = _choose_option if matter.use.kind == KIND else _answer_reply
    response = answer_or_refuse(matter.request, system, partial(complete, matter, answer, turn))
    response = with_fallbacks(response, turn)
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
        replies = list(entries.rows(REPLIES, request_id=request_id, after=state[1]))
        changes = list(entries.rows(CHANGES, request_id=request_id))
        silent = entries.row(SETTLEMENTS, request_id=request_id)
    spoken = {row["signal"] for row in changes} & {"explicit_yes", "explicit_no"}
    # A default's answer stands after a reply that named nothing, and takes another one.
    if pending is None and replies and (spoken or filled is None or len(replies) > 1):
        rule = f"a request takes one reply, and {request_id!r} had {replies[-1]['reply']!r}"
        refuse(rule, "another", "ask the question again")
    use = pending or filled
    if use is None:
        rule = "a reply must be to a request that was asked about or filled in"
        refuse(rule, repr(request_id), "ask it anew")
    if pending is None and silent is not None:
        rule = "a default is corrected before the next request and within 24 hours"
        settled = f"{request_id!r} was settled at {silent['at'][:19]} ({silent['outcome']})"
        refuse(f"{rule}, and {settled}", "a reply", "ask the question again")
    here = system.policy.policy_id
    if record["policy_id"] != here:
        rule = f"a reply must go to the policy_id that asked, {record['policy_id']}"
        refuse(rule, here, "open that policy")
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
    return Open(
        request,
        use,
        use.clarification if isinstance(use, Pending) else None,
        use.clarification.proposed_default if isinstance(use, Pending) else use.value,
        frozenset(row["value"] for row in changes if row["signal"] == "explicit_no"),
        len(replies),
        state,
    )


def _question_text(record: Mapping[str, Any], question: str | None) -> str:
    """Text of the question: the caller's, else the log's."""
    if question is None and record["question"] is None:
        msg = "the audit log keeps no text of questions; give the question again, with question=."
        raise ValueError(msg)
    if question is None:
        return str(record["question"])
    wording, known = normalise_question(question), record["question_hash"]
    if known and digest(wording) != known:
        remedy = "give it as it was, or leave it out"
        refuse("question must be the one that was asked", f"{question!r:.80}", remedy)
    return wording


def _answer_reply(matter: Open, answer: str, turn: Turn) -> Response:
    """Learn what the reply names, then answer the filled request, reshow or end it (rule S5.4)."""
    waiting = _waiting(matter, turn)
    turn, kind, language = waiting.turn, waiting.gap.kind, turn.request.language
    turned_down = [each for each in waiting.gap.readings if each.value in matter.turned_down]
    remaining = tuple(each for each in waiting.gap.readings if each not in turned_down)
    if matter.proposed in matter.turned_down:
        matter = matter._replace(proposed=next((each.value for each in remaining), None))
    reply_request = ReplyRequest(
        turn.request.text,
        kind,
        matter.use.key.target_field.partition(":")[0],
        tuple(each._replace(text=waiting.shown(each.value)) for each in remaining),
        matter.proposed,
        turn.pinned.chunks,
        language,
    )
    reply = turn.calls.reply(answer, reply_request)
    # A declined value comes back by its name, not by a cell of its row.
    gone = [each.value for each in turned_down if each.quote == reply.quote]
    if reply.kind == "own_value" and gone:
        named = [value for value in gone if plain(value) in plain(answer)]
        reply = Reply("chosen", named[0]) if named else NOT_UNDERSTOOD
    _learn(matter, reply, turn, len(remaining))
    if reply.kind == "not_understood":
        last_option = option_rows(remaining, kind, language)[-1]
        if plain(answer).strip(" .!") in {
            OTHER,
            str(last_option["id"]),
            plain(last_option["text"]),
        }:
            why = turn.say("not_offered", field=waiting.field, words=last_option["text"])
            return _refusal(waiting, why)
        why = turn.say("names_nothing", reply=f"{answer!r:.80}")
        return _show_again(waiting, matter, remaining, why)
    if reply.kind == "declined":
        declined = turn.say("both").join(map(waiting.shown, reply.declined))
        still_offered = tuple(each for each in remaining if each.value not in reply.declined)
        return _show_again(waiting, matter, still_offered, turn.say("declined", values=declined))
    if reply.kind == "own_value":  # what the user named wins over every reader
        own = GapReading(reply.value, reply.quote)
        note = turn.say("not_offered", field=waiting.field, words=repr(reply.value))
        return waiting.answer(quoted_reading(own, turn.pinned.chunks, turn.parsed), [note])
    reading = waiting.read(reply.value)
    if not reading.failed:
        return waiting.answer(reading)
    if not reply.doubted and turn.reads_fields:
        _signal(matter, turn, reply.value, "failure")
    return _refusal(waiting, waiting.vain([reply.value]))


def _waiting(matter: Open, turn: Turn) -> Waiting:
    """The request with its documents, its row and what was on offer.

    As it was logged; where texts are blanked, or a default answered, as the question leads to it
    now.
    """
    request, asking, use = matter.request, matter.asking, matter.use
    audit = {} if asking is None else asking.audit
    pinned, _ = pinned_of(turn, request.documents or audit.get("documents", ()))
    parsed = turn.calls.parse(request.text, pinned.chunks)
    parsed = parsed.model_copy(update={"documents": request.documents})
    readings, reason = [GapReading(*map(str, each)) for each in audit.get("readings", ())], "first"
    is_logged = bool(readings)
    if not is_logged:
        hits = turn.clarification.index.nearest(request.text, pinned.chunks)
        gaps = turn.calls.gaps(parsed, pinned.chunks, hits)
        for fresh in [gap for gap in gaps if gap.kind == use.kind][:1]:
            readings, reason = [*fresh.readings], fresh.reason
    values = [matter.proposed or ""] if asking is None else asking.candidate_values
    known = {each.value: each for each in (*map(GapReading, values), *readings)}
    kind: GapKind = use.kind  # type: ignore[assignment] # as it was logged
    gap = QuestionGap(kind, use.key.target_field, tuple(known.values()), reason)
    domain = domain_checks(request.text, turn.system, request.language)
    turn = replace(turn, parsed=parsed, pinned=pinned, domain=domain)
    if is_logged:
        return Waiting(turn, gap)
    waiting = waiting_of(turn, gap)
    if asking is None:
        return waiting
    offered = {each.value: each for each in waiting.gap.readings if each.value in values}
    return waiting._replace(gap=gap._replace(readings=tuple(offered.values())))


def _learn(matter: Open, reply: Reply, turn: Turn, remaining: int) -> None:
    """Signals of a reply (rule S5.4); a doubted one answers this request, and is no vote.

    To turn down all that is on offer is none either: it says nothing of any of them.
    """
    proposed, named = matter.proposed, reply.value
    if reply.doubted:
        return
    if named and proposed in {None, named}:
        _signal(matter, turn, named, "explicit_yes")
    elif named:
        _signal(matter, turn, proposed, "explicit_no", named)
    elif len(reply.declined) < max(remaining, FEWEST):
        for value in reply.declined:
            _signal(matter, turn, value, "explicit_no")


def _signal(matter: Open, turn: Turn, *signal: str | None) -> None:
    """Log a signal with the answer to the reply."""
    about: dict[str, Any] = {"conditions": matter.use.conditions, "now": turn.request.now}
    turn.write(turn.log.signal, turn.request.id, matter.use.key, *signal, **about)


def _show_again(
    waiting: Waiting, matter: Open, remaining: tuple[GapReading, ...], why: str
) -> Response:
    """The same request with what is left, once; else the end of it: a refusal with its reason.

    Args:
      why: it is shown again, in words.
    """
    asking, is_left = matter.asking, matter.proposed in {each.value for each in remaining}
    if matter.replies or len(remaining) < FEWEST:
        return _refusal(waiting, why)
    if asking is None and is_left:
        return waiting.answer(waiting.read(matter.proposed or ""), [why])
    waiting = waiting._replace(gap=waiting.gap._replace(readings=remaining))
    if asking is None:  # the first question of a request whose default was declined
        return fill_in(waiting, declined=True).changed([why])
    values = [reading.value for reading in remaining]
    shown = asking.model_copy(update={"candidate_values": values, "proposed_default": values[0]})
    # The text of the question is the first one's (rule S5.2): what a yes takes by now is said
    # beside it.
    proposed = waiting.turn.say("now_proposed", value=waiting.shown(values[0]))
    return asking_response(waiting, shown, why, [why] if is_left else [why, proposed])


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
    checks = (*turn.domain, field_check(refusal_reason, has_value=False))
    return unretrieved_response(answer, turn.request, turn.system, ResponseRecord(checks=checks))


def _choose_option(matter: Open, answer: str, turn: Turn) -> Response:
    """A reply of options that were settled silently.

    They are shown, or the one that is named is taken.
    """
    options = turn.answer()
    values = option_values(options["options"], turn.clarification.chunks)
    texts = {option["id"]: "; ".join(option["sources"]) for option in options["options"]}
    readings = tuple(GapReading(value, text=texts[number]) for value, number in values.items())
    field, language = matter.use.key.target_field, turn.request.language
    reply_request = ReplyRequest(
        turn.request.text, KIND, field, readings, matter.proposed, language=language
    )
    reply = turn.calls.reply(answer, reply_request)
    if reply.kind == "not_understood" or reply.value not in {"", *values}:
        rule = f"a reply must be yes, no, or an option from 1 to {len(values)}"
        refuse(rule, f"{answer!r:.80}", "say which")
    _learn(matter, reply, turn, len(values))
    return options if reply.kind == "declined" else turn.answer(selected=values[reply.value])
