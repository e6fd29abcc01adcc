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
from raglab.extensions.clarification.gaps import MAX_VALUE_LENGTH
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
    READ_CONFIDENCE,
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
LIMIT_LISTS = (
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
        row_conditions = {} if self.row is None else self.row.sub_conditions
        return RowKey(self.gap.field, self.turn.pinned.doctype, row_conditions)

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
        reading_text = next(
            (reading.text for reading in self.gap.readings if reading.value == value), ""
        )
        return value_text(value, self.turn.request.language, self.gap.kind, reading_text)

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
    log = audit_log(system)
    calls = clarification.calls.for_request()
    is_pinned = bool(request.documents)
    request, parsed = _read_question(request, clarification, calls)
    parsed_columns: dict[str, Any] = {}
    if clarification.asks:  # its text is a column of its own
        parsed_fields = parsed.model_dump(mode="json", exclude={"question", "documents"})
        parsed_columns = {"parsed": parsed_fields, "parser": calls.names()["parser"]}
    try:
        with system.log_outages.writing(AUDIT, required=system.audit_required, ends=False):
            log_entry, resumed = log_request(log, request, system, **parsed_columns)
            # Silence of an earlier turn counts before this one is decided, so that it decides under
            # what was learned then.
            log.settle(now=request.now)
            logged_request = request._replace(resumed=resumed)
            turn = Turn(
                logged_request,
                system,
                log,
                clarification,
                calls,
                request.id,
                is_pinned=is_pinned,
                parsed=parsed,
            )
            response = answer_or_refuse(logged_request, system, partial(_answer_turn, turn))
        return log_answer(log, log_entry, response, request.now, system)
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
    index = clarification.index
    documents = request.documents
    if not documents and request.selected is None:
        named_documents = index.named(request.text, clarification.settings.clarify_max_documents)
        documents = named_documents if len(named_documents) == 1 else ()
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
    index = turn.clarification.index
    text = turn.request.text
    max_documents = turn.clarification.settings.clarify_max_documents
    pinned = index.pinned(documents or index.named(text, max_documents))
    if not pinned.chunks:
        return index.around(text), False
    pinned_files = tuple(dict.fromkeys(chunk.document for chunk in pinned.chunks))
    named_files = index.named(
        text, len(pinned_files), pinned_files
    )  # a question that names some of them is of these
    return index.pinned(named_files) if named_files else pinned, True


def _clarify_gaps(turn: Turn) -> Response:
    """Response to a question as it was read.

    Filled in, read from the named documents, or left to the pipeline.
    """
    request, parsed, index = turn.request, turn.parsed, turn.clarification.index
    # Out of domain is refused before anyone is asked about it.
    domain_results = domain_checks(request.text, turn.system, request.language)
    if not all(check.passes for check in domain_results):
        return turn.answer()
    pinned_documents, is_named = pinned_of(turn, parsed.documents or request.documents)
    turn = replace(turn, pinned=pinned_documents, domain=domain_results)
    hits = index.nearest(request.text, pinned_documents.chunks)
    gap = next(iter(turn.calls.gaps(parsed, pinned_documents.chunks, hits)), None)
    # Whoever pins no document asks what it is, not where it stands.
    if gap is not None and (turn.is_pinned or gap.kind != PAGE_SCOPE):
        waiting = waiting_of(turn, _keyed_gap(turn, gap))
        named_value = _named_reading(waiting)
        return (
            fill_in(waiting) if named_value is None else waiting.answer(waiting.read(named_value))
        )
    if not is_named:  # what nobody named is answered by the gates
        return turn.answer()
    return answer_reading(turn, _complete_reading(turn, hits))


def _keyed_gap(turn: Turn, gap: QuestionGap) -> QuestionGap:
    """The gap under all a question names, spelled as the first row of the same words (rule S5.1).

    A vote on the deposit for a pet is none on every deposit, and `deposit for pets` asks for what
    `pet deposit` does. What limits a question stands behind a colon: a vote on the deposit is none
    on that of 2024, nor on the smallest.
    """
    field_name, *field_axis = gap.field.partition(":")
    plain_text = plain(turn.parsed.question)
    question_topic = own_topic(plain_text, turn.pinned.chunks)
    # else it is none of the question's words: of a pack, or a part
    if {*stems(field_name)} <= {*stems(" ".join(question_topic))}:
        field_name = " ".join(
            topic_word
            for topic_word in question_topic
            if stem(topic_word) in stems(field_name) or not is_kind_word(topic_word)
        )[:MAX_VALUE_LENGTH]
    limit_words: set[str] = set()
    if gap.kind not in {PAGE_SCOPE, "intent"}:
        # A column of 2024 is the latest of one table and the earliest of the next: its vote is on a
        # choice among these.
        date_texts = [reading.value for reading in gap.readings if gap.kind == "date_scope"]
        limit_words = {*limiting_words(plain_text), *re.findall(r"\d+", " ".join(date_texts))}
    limit_suffix = (
        f":{' '.join(sorted(limit_words))}"[: MAX_VALUE_LENGTH // 2] if limit_words else ""
    )
    keyed_field = "".join((field_name, *field_axis, limit_suffix))
    known_fields = (row.target_field for row in turn.log.rows(doctype=turn.pinned.doctype))
    equal_fields = (
        known_field
        for known_field in known_fields
        if _row_words(known_field) == _row_words(keyed_field)
    )
    return gap._replace(field=next(equal_fields, keyed_field))


def _row_words(field: str) -> tuple[frozenset[str], str]:
    """What tells a row from others: the stems of its name, and what stands behind the colon.

    `price of the kit` asks for what `how much is the kit` does.
    """
    name, _, limit_suffix = field.partition(":")
    name_stems = stems(expression("paid").sub(" ", plain(name))) or stems(name)
    return frozenset(name_stems), limit_suffix


def _named_reading(waiting: Waiting) -> str | None:
    """The only value whose words a question names, some of them in the name of a document.

    `the head of school`.
    """
    plain_text = plain(waiting.turn.parsed.question)
    topic_stems = {*map(stem, own_topic(plain_text, waiting.turn.pinned.chunks))}
    document_stems = {*map(stem, topic_words(plain_text))} - topic_stems
    question_stems = {*stems(plain_text)}
    named_values = [
        reading.value
        for reading in waiting.gap.readings
        if document_stems.intersection(stems(reading.value))
        and question_stems.issuperset(stems(reading.value))
    ]
    return named_values[0] if len(named_values) == 1 and not limiting_words(plain_text) else None


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
    limit_words = {limit_match[0] for limit_match in expression("newer").finditer(text)} - {
        *entries("filler")
    }
    limit_words |= {
        limit_match[0] for name in LIMIT_LISTS for limit_match in expression(name).finditer(text)
    }
    limit_words |= {word for word in split_words(text) if word.isdigit()}
    # `where do i pay the fee?` asks for no sum, whatever it names.
    if expected_kind(text) == "name" and expression("who").search(text) is None:
        limit_words.add("name")
    return tuple(sorted(limit_words))


def _complete_reading(turn: Turn, hits: Sequence[Chunk]) -> ValueReading:
    """What the documents state for a question that leaves nothing out.

    Else the page that it names, or nothing.
    """
    calls, text, parsed, chunks = turn.calls, turn.request.text, turn.parsed, turn.pinned.chunks
    page_scope = parsed.known("page_scope", calls.least) or DOCUMENT
    if parsed.known("intent", calls.least) in {None, "lookup"}:
        field_name = parsed.known("target_field", calls.least) or ""
        scoped_chunks = chunks_in_scope(chunks, page_scope, field_name, text, calls) or list(chunks)
        # A reader of one's own is asked first; the default reads fields that the question asks for
        # and nothing further.
        is_own_reader = calls.field_reader is not None
        if field_name and (is_own_reader or is_field_alone(parsed, chunks, turn.pack)):
            field_reading = read_field_value(
                field_name, scoped_chunks, calls, about=parsed.question
            )
            if not field_reading.failed:
                return field_reading
        clear_candidate = clear_statement(parsed, scoped_chunks, hits, turn.pack)
        if clear_candidate is not None:
            clear_value = clear_candidate.statement
            field_value = FieldValue(clear_value.value, clear_value.text)
            return ValueReading(
                DOCUMENT, field_value, scoped_chunks[clear_value.place], confidence=READ_CONFIDENCE
            )
    is_page = page_scope.isdecimal() or page_scope == LAST_PAGE
    page_chunks = chunks_in_scope(chunks, page_scope, "", text, calls) if is_page else []
    return ValueReading(
        page_scope,
        narrowed=narrow_to_chunks(text, page_chunks, "page", ()) if page_chunks else None,
    )


def waiting_of(turn: Turn, gap: QuestionGap) -> Waiting:
    """A request with the most specific row of what it leaves out (rule S5.7).

    A value that was learned under another spelling is offered as it was learned, and a page, task
    or statement that users named before is on offer too.
    """
    pinned = turn.pinned
    default_rows = turn.log.rows(gap.field, pinned.doctype)
    default_row = lookup(default_rows, gap.field, pinned.doctype, pinned.conditions)
    candidate_votes = {} if default_row is None else default_row.candidate_votes
    learned_by_sum = {sum_key(learned_text): learned_text for learned_text in candidate_votes}
    readings = [
        reading
        if learned_value == reading.value
        else reading._replace(value=learned_value, text=reading.text or reading.value)
        for reading in gap.readings
        for learned_value in (learned_by_sum.get(sum_key(reading.value), reading.value),)
    ]
    # As a reply reads them, so that they are named by what these documents state.
    reply_request = ReplyRequest(
        turn.parsed.question, gap.kind, gap.field, tuple(readings), None, pinned.chunks
    )
    offered_values = {reading.value for reading in readings}
    for learned_text in (
        learned_text
        for learned_text in candidate_votes
        if candidate_votes[learned_text] > 0.0 and learned_text not in offered_values
    ):
        checked = checked_reply(read_reply(learned_text, reply_request), reply_request)
        expected_reply = "page" if gap.kind in {PAGE_SCOPE, "intent"} else "own_value"
        if checked.kind == expected_reply and checked.value == learned_text:
            readings.append(GapReading(learned_text, checked.quote))
    return Waiting(turn, gap._replace(readings=tuple(readings)), default_row)


def fill_in(waiting: Waiting, *, declined: bool = False) -> Response:
    """Fill in what is missing, or ask (rules S5.4, S5.5, S5.10).

    Args:
      declined: whether the user turned down what was filled in: then the rest is asked about.
    """
    turn, gap, learner_rule = waiting.turn, waiting.gap, waiting.turn.clarification.learner
    request = turn.request
    costs = turn.clarification.settings
    # Values that were turned down more often than taken come last; ties keep their order.
    candidate_votes = {} if waiting.row is None else waiting.row.candidate_votes
    ordered_readings = sorted(
        gap.readings, key=lambda each: -min(candidate_votes.get(each.value, 0.0), 0.0)
    )
    reason = gap.reason if ordered_readings[0] == gap.readings[0] else "first"
    reading_values = [reading.value for reading in ordered_readings]
    suggestion = suggest(waiting.row, reading_values, learner_rule, language=request.language)
    ordered_readings.sort(key=lambda each: each.value != suggestion.value)
    # A row that is there already decides as it was before this request counted; a new one begins
    # with it.
    counted_row = turn.log.met(request.id, waiting.key, now=request.now)
    default_row = counted_row if waiting.row is None else waiting.row
    waiting = waiting._replace(
        gap=gap._replace(readings=tuple(ordered_readings), reason=reason), row=default_row
    )
    proposed_reading = waiting.read(suggestion.value)
    value_readings = [proposed_reading]
    question_worth = None
    asks = (
        declined
        or proposed_reading.failed
        or not fills_in(default_row, suggestion.value, learner_rule)
    )
    if asks:
        value_readings += [waiting.read(reading.value) for reading in ordered_readings[1:]]
        # What a question is worth; an outcome that is not known before retrieval may be anything.
        question_worth = worth_asking(
            shares(default_row, [each.value for each in value_readings]),
            question_cost=costs.clarify_question_cost,
            error_cost=costs.clarify_error_cost,
            outcomes=[(each.outcome, each.narrowed and each.value) for each in value_readings],
        )
        asks = (
            declined
            or proposed_reading.failed
            or not fills_in(default_row, suggestion.value, learner_rule, question_worth)
        )
    if question_worth is None or not asks:
        return _apply(waiting, default_row, proposed_reading)
    # A default is applied where it fills something in: one that reads nothing was tried, and is
    # evidence against it.
    is_learned = leads(default_row, suggestion.value, learner_rule)
    log_fields: dict[str, Any] = {"conditions": turn.pinned.conditions, "now": request.now}
    if is_learned and proposed_reading.failed and turn.reads_fields:
        turn.write(
            turn.log.signal, request.id, waiting.key, suggestion.value, "failure", **log_fields
        )
    reading_pairs = zip(ordered_readings, value_readings, strict=True)
    offered_readings = [each for each, reading in reading_pairs if declined or not reading.failed]
    if not offered_readings:
        return turn.answer().changed([waiting.vain(reading_values)])
    tried_values = [
        reading.value for reading in ordered_readings[: ordered_readings.index(offered_readings[0])]
    ]
    waiting = waiting._replace(gap=waiting.gap._replace(readings=tuple(offered_readings)))
    clarification_request, asking_reason = _question(
        waiting, tried_values, suggestion.reason, is_learned=is_learned and not tried_values
    )
    # Logged before it is put to the user: a reply may come from another process at once.
    log_fields |= {
        "row": default_row,
        "kind": gap.kind,
        "why": asking_reason,
        "tried": tried_values,
    }
    turn.write(
        turn.log.clarified,
        request.id,
        clarification_request,
        gain=question_worth.gain,
        cost=question_worth.cost,
        **log_fields,
    )
    return asking_response(waiting, clarification_request, asking_reason, [])


def _apply(waiting: Waiting, row: ClarificationDefault, reading: ValueReading) -> Response:
    """Response by the learned value, without a question."""
    turn = waiting.turn
    learner_rule = waiting.turn.clarification.learner
    shown_value = waiting.shown(reading.value)
    document_conditions = turn.pinned.conditions
    default_warning = default_sentence(row, shown_value, turn.request.language, turn.pack)
    response = waiting.answer(reading, [default_warning])
    verdict = gate(row, ask_below=learner_rule.ask_below, apply_above=learner_rule.apply_above)
    default_use = DefaultUse(row, reading.value, verdict, waiting.gap.kind, document_conditions)
    response_record = response.record._replace(applied=default_use)
    return response.changed(default_applied=applied_default(default_use), record=response_record)


def _question(
    waiting: Waiting, tried_values: Sequence[str], reason: str, *, is_learned: bool
) -> tuple[ClarificationRequest, str]:
    """The question to the user, and why it is asked, in words: `ambiguous`, until `reply`.

    Args:
      waiting: with the values that read something, the proposal first.
      tried_values: values before it that read nothing.
      reason: of the proposal, where nothing was tried.
      is_learned: whether earlier replies name the proposal.

    Source: rules S0.2, S5.2.
    """
    turn, gap, request = waiting.turn, waiting.gap, waiting.turn.request
    asking_reason = _asking_reason(waiting, tried_values, is_learned=is_learned)
    reading_values = [reading.value for reading in gap.readings]
    question_sentence = question_text(
        gap,
        request.language,
        proposed=reading_values[0],
        learned=is_learned,
        failed=tried_values[0] if tried_values else "",
        pack=turn.pack,
        question=request.text,
    )
    protocol_names = turn.calls.names()
    parser = turn.calls.parser
    # What the question rests on, so that it can be explained when models and settings have changed.
    audit_fields = {
        "request_id": request.id,
        "kind": gap.kind,
        "policy_id": turn.system.policy.policy_id,
        "readings": [list(reading) for reading in gap.readings],
        "documents": sorted({chunk.document for chunk in turn.pinned.chunks}),
        **model_names(turn.system),
        "model": str(getattr(parser, "model", "") or protocol_names["parser"]),
        "parser": protocol_names["parser"],
        "prompt_version": str(getattr(parser, "prompt_version", "") or protocol_names["parser"]),
        "protocols": protocol_names,
        "fallbacks": [[fallback.role, fallback.reason] for fallback in turn.calls.fallbacks],
        "pack": turn.pack.digest,
        "fingerprint": turn.system.fingerprint,
        "learner_rule": turn.clarification.learner.rule,
        "learner": turn.log.digest,
        "raglab": version("raglab-toolkit"),
    }
    return ClarificationRequest(
        target_field=gap.field,
        question_to_user=question_sentence,
        candidate_values=reading_values,
        proposed_default=reading_values[0],
        proposed_default_reason=asking_reason if tried_values else reason,
        audit=audit_fields,
    ), asking_reason


def _asking_reason(waiting: Waiting, tried: Sequence[str], *, is_learned: bool) -> str:
    """Why the user is asked: the gate of the default, in words."""
    turn, learner_rule, default_row = waiting.turn, waiting.turn.clarification.learner, waiting.row
    if tried:
        return waiting.vain(tried)
    if default_row is None or not is_learned:
        return turn.say("no_default")
    verdict = gate(
        default_row, ask_below=learner_rule.ask_below, apply_above=learner_rule.apply_above
    )
    is_low = verdict == "ask"
    row_confidence = default_row.confidence
    gate_bound = learner_rule.ask_below if is_low else learner_rule.apply_above
    return turn.say(
        "below_ask" if is_low else "below_apply",
        confidence=decimals(row_confidence, gate_bound),
        least=decimals(gate_bound, row_confidence),
        number=default_row.requests + 1,
        every=learner_rule.every,
    )


def asking_response(
    waiting: Waiting, request: ClarificationRequest, why: str, warnings: Sequence[str]
) -> Response:
    """The response that asks."""
    turn = waiting.turn
    gap = waiting.gap
    response_fields = ResponseFields(
        status=Status.ambiguous,
        options=tuple(option_rows(gap.readings, gap.kind, turn.request.language)),
        clarification=request.model_dump(mode="json"),
        arm_reason=turn.say("asks_for", kind=gap.kind, field=waiting.field, why=why),
        warnings=(*warnings,),
    )
    response_record = ResponseRecord(checks=turn.domain)
    return unretrieved_response(response_fields, turn.request, turn.system, response_record)


def answer_reading(
    turn: Turn, reading: ValueReading, warnings: Sequence[str] = (), scope: str = ""
) -> Response:
    """Response that says what was read, or what the pipeline says to what the question became."""
    language = turn.request.language
    narrowed_question = reading.narrowed
    if narrowed_question is not None:
        documents = narrowed_question.documents or turn.request.documents
        pipeline_response = turn.answer(
            text=narrowed_question.query, documents=documents, narrowed=narrowed_question
        )
        return pipeline_response.changed(warnings)
    if reading.field_value is None:
        return turn.answer().changed(warnings)
    field_name = turn.parsed.known("target_field", 0.0) or ""
    field_name_shown = field_text(field_name, language, turn.pack) or reading.value
    shown_scope = scope or value_text(reading.value, language)
    page_number = reading.chunk and reading.chunk.page
    place_sentence = turn.say(
        "found_on_page", field=field_name_shown, scope=shown_scope, page=page_number
    )
    reading_reason = turn.say("read_field", field=field_name_shown, value=shown_scope)
    return reading_response(
        turn.request, reading, reading_reason, place_sentence, turn.domain, turn.system, warnings
    )
