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
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.answering.extractive import expected_kind
from raglab.audit.default_table import DefaultUse, RowKey
from raglab.decision.checks import Check
from raglab.default_learner import (
    ClarificationDefault,
    ClarificationRequest,
    Suggested,
    Worth,
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
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.extensions.clarification.question_parsing import is_kind_word, topic_words, wanted_kinds
from raglab.extensions.clarification.question_texts import (
    applied_default,
    default_sentence,
    field_text,
    option_rows,
    question_text,
    value_text,
)
from raglab.extensions.clarification.replies import DOCUMENT, LAST_PAGE, PAGE_SCOPE
from raglab.extensions.clarification.reply_names import MORE_TASKS
from raglab.extensions.clarification.scope_answers import narrow_to_chunks
from raglab.extensions.clarification.statements import statements, value_key
from raglab.extensions.clarification.turns import Clarification, Turn
from raglab.extensions.clarification.value_readings import (
    READ,
    ValueReading,
    chunks_in_scope,
    domain_checks,
    quoted_reading,
    read_field_value,
    read_gap_value,
    reading_response,
)
from raglab.live.ask import audit_log, log_answer, log_request, model_names
from raglab.live.clarifier import FieldValue, GapReading, ParsedQuestion, QuestionGap
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

# lists
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
# kinds whose values are statements, or lead to them
STATED = frozenset({"field_type", "implicit_entity", PAGE_SCOPE})


class Waiting(NamedTuple):
    """A request that leaves something out, with the default row that it meets.

    None where there is none yet.
    """

    turn: Turn
    parsed: ParsedQuestion
    gap: QuestionGap
    pinned: PinnedDocuments
    row: ClarificationDefault | None
    domain: tuple[Check, ...]

    @property
    def request(self) -> Request:
        """The request."""
        return self.turn.request

    @property
    def key(self) -> RowKey:
        """Key of the row."""
        return RowKey(
            self.gap.field, self.pinned.doctype, {} if self.row is None else self.row.sub_conditions
        )

    @property
    def field(self) -> str:
        """The field that is missing, as a user reads it."""
        return field_text(self.gap.field, self.request.language, self.turn.pack)

    @property
    def values(self) -> tuple[str, ...]:
        """Values on offer."""
        return tuple(reading.value for reading in self.gap.readings)

    def declined_last(self) -> Waiting:
        """The request with the values that were turned down more often than taken last.

        Ties keep their order.
        """
        votes = {} if self.row is None else self.row.candidate_votes
        order = sorted(
            self.gap.readings, key=lambda reading: -min(votes.get(reading.value, 0.0), 0.0)
        )
        reason = self.gap.reason if order[:1] == list(self.gap.readings[:1]) else "first"
        return self._replace(gap=self.gap._replace(readings=tuple(order), reason=reason))

    def read(self, value: str) -> ValueReading:
        """What a value leads to; what a user named beside the pages on offer is a statement."""
        reading = next((reading for reading in self.gap.readings if reading.value == value), None)
        is_stated = reading is not None and reading.quote not in {"", reading.value}
        if self.gap.kind == PAGE_SCOPE and reading is not None and is_stated:
            return quoted_reading(reading, self.pinned.chunks, self.parsed)
        return read_gap_value(self.gap, value, self.parsed, self.pinned.chunks, self.turn.calls)

    def shown(self, value: str) -> str:
        """A value as a user reads it."""
        text = next((reading.text for reading in self.gap.readings if reading.value == value), "")
        return value_text(value, self.request.language, self.gap.kind, text)


def clarify_request(request: Request, system: System, clarification: Clarification) -> Response:
    """Response to a request, logged; see `raglab.live.ask.ask`.

    Where the log cannot be written, the question is answered as by a system that clarifies nothing,
    with a warning: a question to the user or a default that is not logged could take no reply, and
    nothing could be learned from it.

    Raises:
      UnwritableLogError: the log cannot be written, and the system requires it.
    """
    start = perf_counter()
    calls, is_pinned = clarification.calls.for_request(), bool(request.documents)
    request = _with_documents(request, clarification)
    parsed = _parse(request, clarification, calls)
    if parsed is not None:
        request = request._replace(language=parsed.language)
    try:
        return _clarified(
            request, parsed, system, clarification, calls, is_pinned=is_pinned, start=start
        )
    except UnwritableLogError:
        if system.audit_required:
            raise
    # A bandit may have had its round before the log failed, and takes an id once: the router
    # chooses.
    plain_answer = partial(answer_request, request, replace(system, online=None))
    response = answer_or_refuse(request, system, plain_answer)
    return response.changed([say(request.language, Reason("unlogged"))])


def _clarified(
    request: Request,
    parsed: ParsedQuestion | None,
    system: System,
    clarification: Clarification,
    calls: ProtocolCalls,
    *,
    is_pinned: bool,
    start: float,
) -> Response:
    """Response to a request as it was read, logged.

    Args:
      start: of the request, by `perf_counter`.

    Raises:
      UnwritableLogError: the log cannot be written.
    """
    log = audit_log(system)
    read: dict[str, Any] = {}
    if parsed is not None:  # its text is a column of its own
        fields = parsed.model_dump(mode="json", exclude={"question", "documents"})
        read = {"parsed": fields, "parser": calls.names()["parser"]}
    with system.log_outages.writing(AUDIT, required=system.audit_required, ends=False):
        logged_as, resumed = log_request(log, request, system, **read)
        # Silence of an earlier turn counts before this one is decided, so that it decides under
        # what was learned then.
        log.settle(now=request.now)
        request = request._replace(resumed=resumed)
        turn = Turn(request, system, log, clarification, calls, request.id, is_pinned)
        response = answer_or_refuse(request, system, partial(_answer_turn, turn, parsed))
    ms = {**response.record.ms, "total": 1e3 * (perf_counter() - start)}
    response = response.changed(record=response.record._replace(ms=ms))
    return log_answer(log, logged_as, response, request.now, system)


def _parse(
    request: Request, clarification: Clarification, calls: ProtocolCalls
) -> ParsedQuestion | None:
    """The question as typed fields; None where only choices among options are learned."""
    if not clarification.asks:
        return None
    documents: tuple[Chunk, ...] = ()
    with suppress(ValueError):  # a document that is not there is refused when the request is logged
        documents = (
            clarification.index.pinned(request.documents).chunks if request.documents else ()
        )
    parsed = calls.parse(request.text, documents)
    return (
        parsed if parsed.documents else parsed.model_copy(update={"documents": request.documents})
    )


def _answer_turn(turn: Turn, parsed: ParsedQuestion | None) -> Response:
    """Response to a turn, with what is missing filled in or asked for, and learned from."""
    # Who chose among options has said what is meant: nothing is left to clarify.
    is_plain = parsed is None or turn.request.selected is not None
    response = turn.answer() if is_plain or parsed is None else _clarify_gaps(turn, parsed)
    response = with_fallbacks(response, turn)
    return (
        learn_options(response, turn) if turn.clarification.settings.clarify_options else response
    )


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


def _with_documents(request: Request, clarification: Clarification) -> Request:
    """The request with the only document that its words name, where the user pinned none."""
    if request.documents or request.selected is not None or not clarification.asks:
        return request
    named = clarification.index.named(request.text, clarification.settings.clarify_max_documents)
    return request._replace(documents=named) if len(named) == 1 else request


def made_by(turn: Turn) -> dict[str, Any]:
    """What a question to the user was made by.

    Models, protocols, pack, learner, rules, this raglab.
    """
    names = turn.calls.names()
    prompt = getattr(turn.calls.parser, "prompt_version", "") or names["parser"]
    return {
        **model_names(turn.system),
        "model": str(getattr(turn.calls.parser, "model", "") or names["parser"]),
        "parser": names["parser"],
        "prompt_version": str(prompt),
        "protocols": names,
        "fallbacks": [[fallback.role, fallback.reason] for fallback in turn.calls.fallbacks],
        "pack": turn.pack.digest,
        "fingerprint": turn.system.fingerprint,
        "learner_rule": turn.clarification.learner.rule,
        "learner": turn.log.digest,
        "raglab": version("raglab-toolkit"),
    }


def _clarify_gaps(turn: Turn, parsed: ParsedQuestion) -> Response:
    """Response to a question as it was read.

    Filled in, read from the named documents, or left to the pipeline.
    """
    request, index = turn.request, turn.clarification.index
    # Out of domain is refused before anyone is asked about it.
    domain = domain_checks(request.text, turn.system, request.language)
    if not all(check.passes for check in domain):
        return turn.answer()
    named = parsed.documents or request.documents
    pinned = index.pinned(
        named or index.named(request.text, turn.clarification.settings.clarify_max_documents)
    )
    files = tuple(dict.fromkeys(chunk.document for chunk in pinned.chunks))
    if len(files) > 1:  # a question that names some of its documents is of these
        among = index.named(request.text, len(files), files)
        pinned = index.pinned(among) if among else pinned
    is_named = bool(pinned.chunks)
    if not is_named:  # those of the nearest passages, as in the signals of a trace
        pinned = index.around(request.text)
    hits = index.nearest(request.text, pinned.chunks)
    gap = next(iter(turn.calls.gaps(parsed, pinned.chunks, hits)), None)
    if gap is not None and gap.kind == PAGE_SCOPE and not turn.is_pinned:
        gap = None  # whoever pins no document asks what it is, not where it stands
    if gap is not None:
        waiting = waiting_of(turn, parsed, _keyed_gap(turn, parsed, gap, pinned), pinned, domain)
        value = _named_reading(waiting)
        return (
            fill_in(waiting) if value is None else finish_request(waiting, waiting.read(value), [])
        )
    if not is_named:  # what nobody named is answered by the gates
        return turn.answer()
    reading = _complete_reading(turn, parsed, pinned, hits)
    if reading is not None:
        return answer_reading(turn, parsed, reading, domain, ())
    scope = parsed.known("page_scope", turn.calls.least) or ""
    if pinned.chunks and (scope.isdecimal() or scope == LAST_PAGE):
        scoped = chunks_in_scope(pinned.chunks, scope, "", request.text, turn.calls)
        if scoped:
            return _answer_narrowed(turn, narrow_to_chunks(request.text, scoped, "page", ()))
    return turn.answer()


def _keyed_gap(
    turn: Turn, parsed: ParsedQuestion, gap: QuestionGap, pinned: PinnedDocuments
) -> QuestionGap:
    """The gap under all a question names, spelled as the first row of the same words (rule S5.1).

    A vote on the deposit for a pet is none on every deposit, and `deposit for pets` asks for what
    `pet deposit` does. What limits a question stands behind a colon: a vote on the deposit is none
    on that of 2024, nor on the smallest.
    """
    name, *axis = gap.field.partition(":")
    text = plain(parsed.question)
    topic = own_topic(text, pinned.chunks)
    # else it is none of the question's words: of a pack, or a part
    if {*stems(name)} <= {*stems(" ".join(topic))}:
        name = " ".join(
            word for word in topic if stem(word) in stems(name) or not is_kind_word(word)
        )[:LONGEST]
    # A column of 2024 is the latest of one table and the earliest of the next: its vote is on a
    # choice among these.
    times = [reading.value for reading in gap.readings] if gap.kind == "date_scope" else []
    limits = {*limiting_words(text), *re.findall(r"\d+", " ".join(times))}
    limits = set() if gap.kind in {PAGE_SCOPE, "intent"} else limits
    suffix = "".join((*axis, f":{' '.join(sorted(limits))}"[: LONGEST // 2] if limits else ""))
    known = [row.target_field.partition(":") for row in turn.log.rows(doctype=pinned.doctype)]
    same = [
        before
        for before, *of in known
        if "".join(of) == suffix and _row_words(before) == _row_words(name)
    ]
    return gap._replace(field=f"{name if name in same else next(iter(same), name)}{suffix}")


def _row_words(name: str) -> frozenset[str]:
    """Stems that tell a row from others.

    `price of the kit` asks for what `how much is the kit` does.
    """
    words = [word for word in split_words(plain(name)) if stems(word)]
    return frozenset(
        stem(word) for word in words if not expression("paid").fullmatch(word)
    ) or frozenset(stems(name))


def _named_reading(waiting: Waiting) -> str | None:
    """The only value whose words a question names, some of them in the name of a document.

    `the head of school`.
    """
    text = plain(waiting.parsed.question)
    known = frozenset(
        map(stem, {*topic_words(text)}.difference(own_topic(text, waiting.pinned.chunks)))
    )
    own = {reading.value: frozenset(stems(reading.value)) for reading in waiting.gap.readings}
    named = [
        value for value, words in own.items() if words <= frozenset(stems(text)) and words & known
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
    limits = {match[0] for key in LIMITS for match in expression(key).finditer(text)}
    limits |= {
        match[0]
        for match in expression("newer").finditer(text)
        if match[0] not in entries("filler")
    }
    limits |= {word for word in split_words(text) if word.isdigit()}
    # `where do i pay the fee?` asks for no sum, whatever it names.
    is_placing = expected_kind(text) == "name" and expression("who").search(text) is None
    return tuple(sorted({*limits, *(["name"] if is_placing else [])}))


def _complete_reading(
    turn: Turn, parsed: ParsedQuestion, pinned: PinnedDocuments, hits: Sequence[Chunk]
) -> ValueReading | None:
    """What the documents state for a question that leaves nothing out.

    None where no field or statement answers it.
    """
    if not pinned.chunks or parsed.known("intent", turn.calls.least) not in {None, "lookup"}:
        return None
    name = parsed.known("target_field", turn.calls.least) or ""
    scope = parsed.known("page_scope", turn.calls.least) or DOCUMENT
    scoped = chunks_in_scope(pinned.chunks, scope, name, turn.request.text, turn.calls) or list(
        pinned.chunks
    )
    # A reader of one's own is asked first; the default reads fields that the question asks for and
    # nothing further.
    if name and (
        turn.calls.field_reader is not None or is_field_alone(parsed, pinned.chunks, turn.pack)
    ):
        read = read_field_value(name, scoped, turn.calls, about=parsed.question)
        if not read.failed:
            return read
    clear = clear_statement(parsed, scoped, hits, turn.pack)
    if clear is None:
        return None
    statement = clear.statement
    return ValueReading(
        DOCUMENT,
        FieldValue(statement.value, statement.text),
        scoped[statement.place],
        confidence=READ,
    )


def waiting_of(
    turn: Turn,
    parsed: ParsedQuestion,
    gap: QuestionGap,
    pinned: PinnedDocuments,
    domain: Sequence[Check],
) -> Waiting:
    """A request with the most specific row of what it leaves out (rule S5.7).

    A value that was learned under another spelling is offered as it was learned, and a page, task
    or statement that users named before is on offer too.
    """
    rows = turn.log.rows(gap.field, pinned.doctype)
    row = lookup(rows, gap.field, pinned.doctype, pinned.conditions)
    votes = {} if row is None else row.candidate_votes
    known = {value_key(value): value for value in votes}
    readings = [
        reading._replace(
            value=known.get(value_key(reading.value), reading.value),
            text=reading.text or reading.value,
        )
        for reading in gap.readings
    ]
    if gap.kind in {"page_scope", "intent", "date_scope", "document"}:
        readings = list(gap.readings)
    pages = {*(str(chunk.page) for chunk in pinned.chunks), LAST_PAGE}
    beside = {PAGE_SCOPE: pages, "intent": {*MORE_TASKS}}.get(gap.kind, set())
    offered = {reading.value for reading in readings}
    for value in (value for value in votes if votes[value] > 0.0 and value not in offered):
        quote = (
            "" if value in beside or gap.kind not in STATED else _stated_text(value, parsed, pinned)
        )
        readings += [GapReading(value, quote)] if quote or value in beside else []
    return Waiting(turn, parsed, gap._replace(readings=tuple(readings)), pinned, row, tuple(domain))


def _stated_text(value: str, parsed: ParsedQuestion, pinned: PinnedDocuments) -> str:
    """Only text of the kind asked for whose label or value a user named beside the offer, or ''."""
    kinds, key = wanted_kinds(plain(parsed.question)), value_key(value)
    facts = (
        fact
        for fact in statements(pinned.chunks)
        if key in {value_key(fact.label), value_key(fact.value)}
    )
    texts = {fact.text for fact in facts if not kinds or fact.kind in kinds}
    return texts.pop() if len(texts) == 1 else ""


class Prospect(NamedTuple):
    """What may fill in what a request leaves out, before anything is applied or asked.

    Attributes:
      row: row of the default table, as the request met it.
      best: value to propose.
      is_learned: whether the value was learned.
      is_silent: whether it is applied without a question.
      readings: what the values lead to, the best first, and alone where nothing else counts.
      worth: worth of a question.
    """

    row: ClarificationDefault
    best: Suggested
    is_learned: bool
    is_silent: bool
    readings: tuple[ValueReading, ...]
    worth: Worth


def prospect_of(waiting: Waiting) -> Prospect:
    """What may fill in what a request leaves out; the row counts the request."""
    turn, rule = waiting.turn, waiting.turn.clarification.learner
    best = suggest(waiting.row, list(waiting.values), rule, language=turn.request.language)
    # A row that is there already decides as it was before this request counted; a new one begins
    # with it.
    new_row = turn.log.met(turn.request.id, waiting.key, now=turn.request.now)
    row = new_row if waiting.row is None else waiting.row
    is_silent = fills_in(row, best.value, rule)
    first = waiting.read(best.value)
    rest = (
        []
        if is_silent and not first.failed
        else [value for value in waiting.values if value != best.value]
    )
    readings = (first, *map(waiting.read, rest))
    # What a question is worth; an outcome that is not known before retrieval may be anything.
    ends = [f"?{each.value}" if each.outcome is None else f"={each.outcome}" for each in readings]
    settings = turn.clarification.settings
    costs = {
        "question_cost": settings.clarify_question_cost,
        "error_cost": settings.clarify_error_cost,
    }
    worth = worth_asking(shares(row, [each.value for each in readings]), outcomes=ends, **costs)
    return Prospect(
        row=row,
        best=best,
        is_learned=leads(row, best.value, rule),
        is_silent=is_silent or fills_in(row, best.value, rule, worth),
        readings=readings,
        worth=worth,
    )


def fill_in(waiting: Waiting) -> Response:
    """Fill in what is missing, or ask (rules S5.4, S5.5, S5.10)."""
    waiting, turn, request = waiting.declined_last(), waiting.turn, waiting.request
    prospect, rule = prospect_of(waiting), turn.clarification.learner
    row, best, first = prospect.row, prospect.best.value, prospect.readings[0]
    about: dict[str, Any] = {"conditions": waiting.pinned.conditions, "now": request.now}
    # A default is applied where it fills something in: one that reads nothing was tried, and is
    # evidence against it.
    if prospect.is_silent and not first.failed:
        verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
        warning = default_sentence(row, waiting.shown(best), request.language, turn.pack)
        response = finish_request(waiting, first, [warning])
        use = DefaultUse(row, best, verdict, waiting.gap.kind, waiting.pinned.conditions)
        record = response.record._replace(applied=use)
        return response.changed(default_applied=applied_default(use), record=record)
    # A reader that failed says nothing of the value: only what was read in vain is evidence.
    is_read = all(fallback.role != "field_reader" for fallback in turn.calls.fallbacks)
    if prospect.is_learned and first.failed and is_read:
        turn.write(turn.log.signal, request.id, waiting.key, best, "failure", **about)
    readings = [reading for reading in prospect.readings if not reading.failed]
    before = (
        prospect.readings[: prospect.readings.index(readings[0])] if readings else prospect.readings
    )
    tried = [reading.value for reading in before]
    if readings:
        return ask_user(waiting, prospect, [reading.value for reading in readings], tried)
    warning = vain_warning(waiting, tried)
    return turn.answer().changed([warning])


def ask_user(
    waiting: Waiting, prospect: Prospect, values: Sequence[str], tried: Sequence[str]
) -> Response:
    """Ask the user: `ambiguous`, until `reply` (rules S0.2, S5.2).

    Args:
      values: values that read something, the proposal first.
      tried: values before it that read nothing.
    """
    turn, gap, row, worth = waiting.turn, waiting.gap, prospect.row, prospect.worth
    offered = tuple(
        reading for value in values for reading in gap.readings if reading.value == value
    )
    offered_gap = gap._replace(readings=offered)
    why = _asking_reason(waiting, row, tried, is_learned=prospect.is_learned)
    language = turn.request.language
    is_learned = prospect.is_learned and not tried
    text = question_text(
        offered_gap,
        language,
        proposed=values[0],
        learned=is_learned,
        failed=tried[0] if tried else "",
        pack=turn.pack,
        question=turn.request.text,
    )
    request = ClarificationRequest(
        target_field=gap.field,
        question_to_user=text,
        candidate_values=list(values),
        proposed_default=values[0],
        proposed_default_reason=_unstated(waiting, tried) if tried else prospect.best.reason,
        # What the question rests on, so that it can be explained when the row has long gone on.
        audit={
            "request_id": turn.request.id,
            "kind": gap.kind,
            "row_id": row.row_id,
            "version": row.version,
            "confidence": row.confidence,
            "why": why,
            "policy_id": turn.system.policy.policy_id,
            "readings": [list(reading) for reading in offered],
            "documents": sorted({chunk.document for chunk in waiting.pinned.chunks}),
            **made_by(turn),
        },
    )
    # Logged before it is put to the user: a reply may come from another process at once.
    turn.write(
        turn.log.clarified,
        turn.request.id,
        request,
        row=row,
        kind=gap.kind,
        why=why,
        gain=worth.gain,
        cost=worth.cost,
        conditions=waiting.pinned.conditions,
        tried=tried,
        now=turn.request.now,
    )
    return asking_response(waiting._replace(gap=offered_gap), request, why, [])


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
    record = ResponseRecord(checks=waiting.domain)
    return unretrieved_response(answer, turn.request, turn.system, record)


def finish_request(waiting: Waiting, reading: ValueReading, warnings: Sequence[str]) -> Response:
    """Response to a request that is filled in.

    What was read, or what the pipeline says to what it became.
    """
    if reading.field_value is not None:
        where = waiting.shown(reading.value)
        return answer_reading(
            waiting.turn, waiting.parsed, reading, waiting.domain, warnings, where
        )
    if reading.narrowed is None:
        return waiting.turn.answer().changed(warnings)
    return _answer_narrowed(waiting.turn, reading.narrowed).changed(warnings)


def answer_reading(
    turn: Turn,
    parsed: ParsedQuestion,
    reading: ValueReading,
    domain: Sequence[Check],
    warnings: Sequence[str],
    scope: str = "",
) -> Response:
    """Response that says what was read."""
    language = turn.request.language
    name = field_text(parsed.known("target_field", 0.0) or "", language, turn.pack) or reading.value
    shown = scope or value_text(reading.value, language)
    page = None if reading.chunk is None else reading.chunk.page
    where = turn.say("found_on_page", field=name, scope=shown, page=page)
    why = turn.say("read_field", field=name, value=shown)
    return reading_response(turn.request, reading, why, where, domain, turn.system, warnings)


def _answer_narrowed(turn: Turn, narrowed: Any) -> Response:  # noqa: ANN401 - a NarrowedQuestion
    documents = narrowed.documents or turn.request.documents
    return turn.answer(text=narrowed.query, documents=documents, narrowed=narrowed)


# --- sentences


def vain_warning(waiting: Waiting, tried: Sequence[str]) -> str:
    """What was read in vain, as a warning says it."""
    values = waiting.turn.say("either").join(waiting.shown(value) for value in dict.fromkeys(tried))
    key = "not_found" if waiting.gap.kind == PAGE_SCOPE else "unreadable"
    return waiting.turn.say(key, field=waiting.field, values=values)


def _unstated(waiting: Waiting, tried: Sequence[str]) -> str:
    """That some values did not state the field."""
    values = waiting.turn.listed([waiting.shown(value) for value in tried])
    return waiting.turn.say("not_in", values=values)


def _asking_reason(
    waiting: Waiting, row: ClarificationDefault, tried: Sequence[str], *, is_learned: bool
) -> str:
    turn, rule, sure = waiting.turn, waiting.turn.clarification.learner, row.confidence
    if tried:
        return _unstated(waiting, tried)
    if not is_learned:
        return turn.say("no_default")
    if gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above) == "ask":
        bounds = {
            "confidence": decimals(sure, rule.ask_below),
            "least": decimals(rule.ask_below, sure),
        }
        return turn.say("below_ask", **bounds)
    bounds = {
        "confidence": decimals(sure, rule.apply_above),
        "least": decimals(rule.apply_above, sure),
    }
    return turn.say("below_apply", **bounds, number=row.requests + 1, every=rule.every)
