"""Clarified requests (shore): ask once, fill in what was learned, answer (S5).

A request goes through the pipeline as ever. Before that, where the system clarifies, what the
question leaves out is filled in: by the learned default where its gate says apply, else by the
user, once a request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.answering.extractive import expected_kind
from raglab.audit.default_table import DefaultUse, RowKey
from raglab.default_learner import (
    ClarificationDefault,
    ClarificationRequest,
    fills_in,
    gate,
    leads,
    lookup,
    shares,
    suggest,
    worth_asking,
)
from raglab.extensions.clarification.gap_candidates import (
    clear_statement,
    is_field_alone,
    own_topic,
)
from raglab.extensions.clarification.gaps import LONGEST
from raglab.extensions.clarification.language_words import entries, expression, plain, stem, stems
from raglab.extensions.clarification.option_defaults import learn_options
from raglab.extensions.clarification.pinned_documents import PinnedDocuments
from raglab.extensions.clarification.protocol_calls import ProtocolCalls, checked_reply
from raglab.extensions.clarification.question_parsing import is_kind_word, topic_words
from raglab.extensions.clarification.question_texts import (
    applied_default,
    default_sentence,
    field_text,
    option_rows,
    question_text,
    value_text,
)
from raglab.extensions.clarification.replies import (
    DOCUMENT,
    LAST_PAGE,
    PAGE_SCOPE,
    read_reply,
)
from raglab.extensions.clarification.reply_names import sum_key
from raglab.extensions.clarification.scope_answers import narrow_to_chunks
from raglab.extensions.clarification.turns import UNREAD, Clarification, Turn
from raglab.extensions.clarification.value_readings import (
    READ,
    ValueReading,
    chunks_in_scope,
    domain_checks,
    read_field_value,
    read_gap_value,
    reading_response,
)
from raglab.live.ask import audit_log, log_answer, log_request, model_names
from raglab.live.clarifier import (
    FieldValue,
    GapReading,
    ParsedQuestion,
    QuestionGap,
    ReplyRequest,
)
from raglab.live.pipeline import answer_or_refuse, answer_request, unretrieved_response
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseFields, ResponseRecord
from raglab.live.system import AUDIT
from raglab.store.database import UnwritableLogError
from raglab.values import Chunk, Status
from raglab.words.canonical import decimals
from raglab.words.languages import Reason, say
from raglab.words.tokeniser import split_words

if TYPE_CHECKING:
    from raglab.live.system import System

# lists of what limits a question
LIMITS = (
    "smaller",
    "larger",
    "older",
    "lapsed",
    "during",
    "once_over",
    "page",
    "unit",
    "bound",
    "manner",
)


class Waiting(NamedTuple):
    """A request that leaves something out, with the default row that it meets.

    None where there is none yet.
    """

    turn: Turn
    gap: QuestionGap
    row: ClarificationDefault | None = None

    @property
    def key(self) -> RowKey:
        """Key of the row."""
        conditions = {} if self.row is None else self.row.sub_conditions
        return RowKey(self.gap.field, self.turn.pinned.doctype, conditions)

    @property
    def field(self) -> str:
        """The field that is missing, as a user reads it."""
        return field_text(self.gap.field, self.turn.request.language, self.turn.pack)

    def read(self, value: str) -> ValueReading:
        """What a value leads to."""
        turn = self.turn
        return read_gap_value(self.gap, value, turn.parsed, turn.pinned.chunks, turn.calls)

    def shown(self, value: str) -> str:
        """A value as a user reads it."""
        text = next((each.text for each in self.gap.readings if each.value == value), "")
        return value_text(value, self.turn.request.language, self.gap.kind, text)

    def vain(self, tried: Sequence[str]) -> str:
        """What was read in vain, as a warning says it."""
        values = self.turn.say("either").join(map(self.shown, dict.fromkeys(tried)))
        key = "not_found" if self.gap.kind == PAGE_SCOPE else "unreadable"
        return self.turn.say(key, field=self.field, values=values)

    def answer(self, reading: ValueReading, warnings: Sequence[str] = ()) -> Response:
        """Response to the request filled in."""
        return answer_reading(self.turn, reading, warnings, self.shown(reading.value))


def clarify_request(clarification: Clarification, request: Request, system: System) -> Response:
    """Response to a request, logged; see `raglab.live.ask.ask`.

    Where the log cannot be written, the question is answered as by a system that clarifies nothing,
    with a warning: a question to the user or a default that is not logged could take no reply, and
    nothing could be learned from it.

    Raises:
      UnwritableLogError: the log cannot be written, and the system requires it.
    """
    log, calls = audit_log(system), clarification.calls.for_request()
    is_pinned = bool(request.documents)
    request, parsed = _read_question(request, clarification, calls)
    read: dict[str, Any] = {}
    if clarification.asks:  # its text is a column of its own
        fields = parsed.model_dump(mode="json", exclude={"question", "documents"})
        read = {"parsed": fields, "parser": calls.names()["parser"]}
    try:
        with system.log_outages.writing(AUDIT, required=system.audit_required, ends=False):
            logged_as, resumed = log_request(log, request, system, **read)
            # Silence of an earlier turn counts before this one is decided, so that it decides under
            # what was learned then.
            log.settle(now=request.now)
            logged = request._replace(resumed=resumed)
            turn = Turn(
                logged,
                system,
                log,
                clarification,
                calls,
                request.id,
                is_pinned=is_pinned,
                parsed=parsed,
            )
            response = answer_or_refuse(logged, system, partial(_answer_turn, turn))
        return log_answer(log, logged_as, response, request.now, system)
    except UnwritableLogError:
        if system.audit_required:
            raise
    # A bandit may have had its round before the log failed, and takes an id once: the router
    # chooses.
    plain_answer = partial(answer_request, request, replace(system, online=None))
    response = answer_or_refuse(request, system, plain_answer)
    return response.changed([say(request.language, Reason("unlogged"))])


def _read_question(
    request: Request, clarification: Clarification, calls: ProtocolCalls
) -> tuple[Request, ParsedQuestion]:
    """A request with the only document that its words name, and its question as typed fields.

    Without any where only choices among options are learned.
    """
    if not clarification.asks:
        return request, UNREAD
    index, documents = clarification.index, request.documents
    if not documents and request.selected is None:
        named = index.named(request.text, clarification.settings.clarify_max_documents)
        documents = named if len(named) == 1 else ()
    passages: tuple[Chunk, ...] = ()
    with suppress(ValueError):  # a document that is not there is refused when the request is logged
        passages = index.pinned(documents).chunks
    parsed = calls.parse(request.text, passages)
    if not parsed.documents:
        parsed = parsed.model_copy(update={"documents": documents})
    return request._replace(documents=documents, language=parsed.language), parsed


def _answer_turn(turn: Turn) -> Response:
    """Response to a turn, with what is missing filled in or asked for, and learned from."""
    # Who chose among options has said what is meant: nothing is left to clarify.
    asks = turn.clarification.asks and turn.request.selected is None
    response = with_fallbacks(_clarify_gaps(turn) if asks else turn.answer(), turn)
    learns = turn.clarification.settings.clarify_options
    return learn_options(response, turn) if learns else response


def with_fallbacks(response: Response, turn: Turn) -> Response:
    """The response with a warning for each protocol that failed in the turn."""
    warnings = dict.fromkeys(
        # What it gave stands in the log alone: it may be a text that no document of the user holds.
        turn.say(
            "stood_in",
            role=fallback.role,
            reason=fallback.reason.partition(", got")[0],
        )
        for fallback in turn.calls.fallbacks
    )
    return response.changed([*warnings])


def pinned_of(turn: Turn, documents: Sequence[str]) -> tuple[PinnedDocuments, bool]:
    """Documents that a question is asked of, and whether it or its user names them.

    Where neither does, they are those of the nearest passages, as in the signals of a trace.
    """
    index, text = turn.clarification.index, turn.request.text
    most = turn.clarification.settings.clarify_max_documents
    pinned = index.pinned(documents or index.named(text, most))
    if not pinned.chunks:
        return index.around(text), False
    files = tuple(dict.fromkeys(chunk.document for chunk in pinned.chunks))
    among = index.named(text, len(files), files)  # a question that names some of them is of these
    return index.pinned(among) if among else pinned, True


def _clarify_gaps(turn: Turn) -> Response:
    """Response to a question as it was read.

    Filled in, read from the named documents, or left to the pipeline.
    """
    request, parsed, index = turn.request, turn.parsed, turn.clarification.index
    # Out of domain is refused before anyone is asked about it.
    domain = domain_checks(request.text, turn.system, request.language)
    if not all(check.passes for check in domain):
        return turn.answer()
    pinned, is_named = pinned_of(turn, parsed.documents or request.documents)
    turn = replace(turn, pinned=pinned, domain=domain)
    hits = index.nearest(request.text, pinned.chunks)
    gap = next(iter(turn.calls.gaps(parsed, pinned.chunks, hits)), None)
    # Whoever pins no document asks what it is, not where it stands.
    if gap is not None and (turn.is_pinned or gap.kind != PAGE_SCOPE):
        waiting = waiting_of(turn, _keyed_gap(turn, gap))
        value = _named_reading(waiting)
        return fill_in(waiting) if value is None else waiting.answer(waiting.read(value))
    if not is_named:  # what nobody named is answered by the gates
        return turn.answer()
    return answer_reading(turn, _complete_reading(turn, hits))


def _keyed_gap(turn: Turn, gap: QuestionGap) -> QuestionGap:
    """The gap under all a question names, spelled as the first row of the same words (rule S5.1).

    A vote on the deposit for a pet is none on every deposit, and `deposit for pets` asks for what
    `pet deposit` does. What limits a question stands behind a colon: a vote on the deposit is none
    on that of 2024, nor on the smallest.
    """
    name, *axis = gap.field.partition(":")
    text = plain(turn.parsed.question)
    topic = own_topic(text, turn.pinned.chunks)
    # else it is none of the question's words: of a pack, or a part
    if {*stems(name)} <= {*stems(" ".join(topic))}:
        name = " ".join(
            word for word in topic if stem(word) in stems(name) or not is_kind_word(word)
        )[:LONGEST]
    limits: set[str] = set()
    if gap.kind not in {PAGE_SCOPE, "intent"}:
        # A column of 2024 is the latest of one table and the earliest of the next: its vote is on a
        # choice among these.
        times = [reading.value for reading in gap.readings if gap.kind == "date_scope"]
        limits = {*limiting_words(text), *re.findall(r"\d+", " ".join(times))}
    limited = f":{' '.join(sorted(limits))}"[: LONGEST // 2] if limits else ""
    field = "".join((name, *axis, limited))
    known = (row.target_field for row in turn.log.rows(doctype=turn.pinned.doctype))
    same = (before for before in known if _row_words(before) == _row_words(field))
    return gap._replace(field=next(same, field))


def _row_words(field: str) -> tuple[frozenset[str], str]:
    """What tells a row from others: the stems of its name, and what stands behind the colon.

    `price of the kit` asks for what `how much is the kit` does.
    """
    name, _, limits = field.partition(":")
    words = stems(expression("paid").sub(" ", plain(name))) or stems(name)
    return frozenset(words), limits


def _named_reading(waiting: Waiting) -> str | None:
    """The only value whose words a question names, some of them in the name of a document.

    `the head of school`.
    """
    text = plain(waiting.turn.parsed.question)
    own = {*map(stem, own_topic(text, waiting.turn.pinned.chunks))}
    of_name, words = {*map(stem, topic_words(text))} - own, {*stems(text)}
    named = [
        reading.value
        for reading in waiting.gap.readings
        if of_name.intersection(stems(reading.value)) and words.issuperset(stems(reading.value))
    ]
    return named[0] if len(named) == 1 and not limiting_words(text) else None


def limiting_words(text: str) -> tuple[str, ...]:
    """What limits a question in plain letters beside its topic, sorted.

    Numbers, a size, a time, a place.

    Example:
      >>> (
      ...     limiting_words("what was the minimum fee in 2024?"),
      ...     limiting_words("how much is the fee now?"),
      ... )
      (('2024', 'minimum', 'was'), ())
    """
    limits = {match[0] for match in expression("newer").finditer(text)} - {*entries("filler")}
    limits |= {match[0] for key in LIMITS for match in expression(key).finditer(text)}
    limits |= {word for word in split_words(text) if word.isdigit()}
    # `where do i pay the fee?` asks for no sum, whatever it names.
    if expected_kind(text) == "name" and expression("who").search(text) is None:
        limits.add("name")
    return tuple(sorted(limits))


def _complete_reading(turn: Turn, hits: Sequence[Chunk]) -> ValueReading:
    """What the documents state for a question that leaves nothing out.

    Else the page that it names, or nothing.
    """
    calls, text, parsed, chunks = turn.calls, turn.request.text, turn.parsed, turn.pinned.chunks
    scope = parsed.known("page_scope", calls.least) or DOCUMENT
    if parsed.known("intent", calls.least) in {None, "lookup"}:
        name = parsed.known("target_field", calls.least) or ""
        scoped = chunks_in_scope(chunks, scope, name, text, calls) or list(chunks)
        # A reader of one's own is asked first; the default reads fields that the question asks for
        # and nothing further.
        is_own = calls.field_reader is not None
        if name and (is_own or is_field_alone(parsed, chunks, turn.pack)):
            read = read_field_value(name, scoped, calls, about=parsed.question)
            if not read.failed:
                return read
        clear = clear_statement(parsed, scoped, hits, turn.pack)
        if clear is not None:
            stated = clear.statement
            value = FieldValue(stated.value, stated.text)
            return ValueReading(DOCUMENT, value, scoped[stated.place], confidence=READ)
    is_page = scope.isdecimal() or scope == LAST_PAGE
    paged = chunks_in_scope(chunks, scope, "", text, calls) if is_page else []
    return ValueReading(
        scope, narrowed=narrow_to_chunks(text, paged, "page", ()) if paged else None
    )


def waiting_of(turn: Turn, gap: QuestionGap) -> Waiting:
    """A request with the most specific row of what it leaves out (rule S5.7).

    A value that was learned under another spelling is offered as it was learned, and a page, task
    or statement that users named before is on offer too.
    """
    pinned = turn.pinned
    rows = turn.log.rows(gap.field, pinned.doctype)
    row = lookup(rows, gap.field, pinned.doctype, pinned.conditions)
    votes = {} if row is None else row.candidate_votes
    known = {sum_key(value): value for value in votes}
    readings = [
        reading
        if learned == reading.value
        else reading._replace(value=learned, text=reading.text or reading.value)
        for reading in gap.readings
        for learned in (known.get(sum_key(reading.value), reading.value),)
    ]
    # As a reply reads them, so that they are named by what these documents state.
    reply_request = ReplyRequest(
        turn.parsed.question, gap.kind, gap.field, tuple(readings), None, pinned.chunks
    )
    offered = {reading.value for reading in readings}
    for value in (value for value in votes if votes[value] > 0.0 and value not in offered):
        reply = checked_reply(read_reply(value, reply_request), reply_request)
        beside = "page" if gap.kind in {PAGE_SCOPE, "intent"} else "own_value"
        if reply.kind == beside and reply.value == value:
            readings.append(GapReading(value, reply.quote))
    return Waiting(turn, gap._replace(readings=tuple(readings)), row)


def fill_in(waiting: Waiting, *, declined: bool = False) -> Response:
    """Fill in what is missing, or ask (rules S5.4, S5.5, S5.10).

    Args:
      declined: whether the user turned down what was filled in: then the rest is asked about.
    """
    turn, gap, rule = waiting.turn, waiting.gap, waiting.turn.clarification.learner
    request, costs = turn.request, turn.clarification.settings
    # Values that were turned down more often than taken come last; ties keep their order.
    votes = {} if waiting.row is None else waiting.row.candidate_votes
    order = sorted(gap.readings, key=lambda each: -min(votes.get(each.value, 0.0), 0.0))
    reason = gap.reason if order[0] == gap.readings[0] else "first"
    values = [reading.value for reading in order]
    best = suggest(waiting.row, values, rule, language=request.language)
    order.sort(key=lambda each: each.value != best.value)
    # A row that is there already decides as it was before this request counted; a new one begins
    # with it.
    counted = turn.log.met(request.id, waiting.key, now=request.now)
    row = counted if waiting.row is None else waiting.row
    waiting = waiting._replace(gap=gap._replace(readings=tuple(order), reason=reason), row=row)
    first = waiting.read(best.value)
    readings, worth = [first], None
    asks = declined or first.failed or not fills_in(row, best.value, rule)
    if asks:
        readings += [waiting.read(reading.value) for reading in order[1:]]
        # What a question is worth; an outcome that is not known before retrieval may be anything.
        worth = worth_asking(
            shares(row, [each.value for each in readings]),
            question_cost=costs.clarify_question_cost,
            error_cost=costs.clarify_error_cost,
            outcomes=[(each.outcome, each.narrowed and each.value) for each in readings],
        )
        asks = declined or first.failed or not fills_in(row, best.value, rule, worth)
    if worth is None or not asks:
        return _apply(waiting, row, first)
    # A default is applied where it fills something in: one that reads nothing was tried, and is
    # evidence against it.
    is_learned = leads(row, best.value, rule)
    about: dict[str, Any] = {"conditions": turn.pinned.conditions, "now": request.now}
    if is_learned and first.failed and turn.reads_fields:
        turn.write(turn.log.signal, request.id, waiting.key, best.value, "failure", **about)
    pairs = zip(order, readings, strict=True)
    offered = [each for each, reading in pairs if declined or not reading.failed]
    if not offered:
        return turn.answer().changed([waiting.vain(values)])
    tried = [reading.value for reading in order[: order.index(offered[0])]]
    waiting = waiting._replace(gap=waiting.gap._replace(readings=tuple(offered)))
    question, why = _question(waiting, tried, best.reason, is_learned=is_learned and not tried)
    # Logged before it is put to the user: a reply may come from another process at once.
    about |= {"row": row, "kind": gap.kind, "why": why, "tried": tried}
    turn.write(turn.log.clarified, request.id, question, gain=worth.gain, cost=worth.cost, **about)
    return asking_response(waiting, question, why, [])


def _apply(waiting: Waiting, row: ClarificationDefault, reading: ValueReading) -> Response:
    """Response by the learned value, without a question."""
    turn, rule = waiting.turn, waiting.turn.clarification.learner
    shown, conditions = waiting.shown(reading.value), turn.pinned.conditions
    warning = default_sentence(row, shown, turn.request.language, turn.pack)
    response = waiting.answer(reading, [warning])
    verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
    use = DefaultUse(row, reading.value, verdict, waiting.gap.kind, conditions)
    record = response.record._replace(applied=use)
    return response.changed(default_applied=applied_default(use), record=record)


def _question(
    waiting: Waiting, tried: Sequence[str], reason: str, *, is_learned: bool
) -> tuple[ClarificationRequest, str]:
    """The question to the user, and why it is asked, in words: `ambiguous`, until `reply`.

    Args:
      waiting: with the values that read something, the proposal first.
      tried: values before it that read nothing.
      reason: of the proposal, where nothing was tried.
      is_learned: whether earlier replies name the proposal.

    Source: rules S0.2, S5.2.
    """
    turn, gap, request = waiting.turn, waiting.gap, waiting.turn.request
    why = _asking_reason(waiting, tried, is_learned=is_learned)
    values = [reading.value for reading in gap.readings]
    text = question_text(
        gap,
        request.language,
        proposed=values[0],
        learned=is_learned,
        failed=tried[0] if tried else "",
        pack=turn.pack,
        question=request.text,
    )
    names, parser = turn.calls.names(), turn.calls.parser
    # What the question rests on, so that it can be explained when models and settings have changed.
    audit = {
        "request_id": request.id,
        "kind": gap.kind,
        "policy_id": turn.system.policy.policy_id,
        "readings": [list(reading) for reading in gap.readings],
        "documents": sorted({chunk.document for chunk in turn.pinned.chunks}),
        **model_names(turn.system),
        "model": str(getattr(parser, "model", "") or names["parser"]),
        "parser": names["parser"],
        "prompt_version": str(getattr(parser, "prompt_version", "") or names["parser"]),
        "protocols": names,
        "fallbacks": [[fallback.role, fallback.reason] for fallback in turn.calls.fallbacks],
        "pack": turn.pack.digest,
        "fingerprint": turn.system.fingerprint,
        "learner_rule": turn.clarification.learner.rule,
        "learner": turn.log.digest,
        "raglab": version("raglab-toolkit"),
    }
    return ClarificationRequest(
        target_field=gap.field,
        question_to_user=text,
        candidate_values=values,
        proposed_default=values[0],
        proposed_default_reason=why if tried else reason,
        audit=audit,
    ), why


def _asking_reason(waiting: Waiting, tried: Sequence[str], *, is_learned: bool) -> str:
    """Why the user is asked: the gate of the default, in words."""
    turn, rule, row = waiting.turn, waiting.turn.clarification.learner, waiting.row
    if tried:
        return waiting.vain(tried)
    if row is None or not is_learned:
        return turn.say("no_default")
    verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
    is_low, sure = verdict == "ask", row.confidence
    least = rule.ask_below if is_low else rule.apply_above
    return turn.say(
        "below_ask" if is_low else "below_apply",
        confidence=decimals(sure, least),
        least=decimals(least, sure),
        number=row.requests + 1,
        every=rule.every,
    )


def asking_response(
    waiting: Waiting, request: ClarificationRequest, why: str, warnings: Sequence[str]
) -> Response:
    """The response that asks."""
    turn, gap = waiting.turn, waiting.gap
    answer = ResponseFields(
        status=Status.ambiguous,
        options=tuple(option_rows(gap.readings, gap.kind, turn.request.language)),
        clarification=request.model_dump(mode="json"),
        arm_reason=turn.say("asks_for", kind=gap.kind, field=waiting.field, why=why),
        warnings=(*warnings,),
    )
    record = ResponseRecord(checks=turn.domain)
    return unretrieved_response(answer, turn.request, turn.system, record)


def answer_reading(
    turn: Turn, reading: ValueReading, warnings: Sequence[str] = (), scope: str = ""
) -> Response:
    """Response that says what was read, or what the pipeline says to what the question became."""
    language, narrowed = turn.request.language, reading.narrowed
    if narrowed is not None:
        documents = narrowed.documents or turn.request.documents
        answered = turn.answer(text=narrowed.query, documents=documents, narrowed=narrowed)
        return answered.changed(warnings)
    if reading.field_value is None:
        return turn.answer().changed(warnings)
    field = turn.parsed.known("target_field", 0.0) or ""
    name = field_text(field, language, turn.pack) or reading.value
    shown = scope or value_text(reading.value, language)
    page = reading.chunk and reading.chunk.page
    where = turn.say("found_on_page", field=name, scope=shown, page=page)
    why = turn.say("read_field", field=name, value=shown)
    return reading_response(turn.request, reading, why, where, turn.domain, turn.system, warnings)
