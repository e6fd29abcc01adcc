"""Value readings (shore): what a value leads to (S5.10).

It leads to a statement, a field of some pages, or a narrower question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.answering.extractive import piece_text
from raglab.decision.checks import Check, answer_checks
from raglab.decision.measurement import measured_tables
from raglab.decision.signal_values import STORED, used_signals
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.extensions.clarification.contents import scope
from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.field_values import is_quoted
from raglab.extensions.clarification.gap_candidates import (
    YEARS,
    as_good,
    candidates,
    in_column,
    meeting,
    outdated,
    unmet,
)
from raglab.extensions.clarification.language_words import language_parts, plain
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.extensions.clarification.question_parsing import topic_words
from raglab.extensions.clarification.replies import DOCUMENT, LAST_PAGE, PAGE_SCOPE
from raglab.extensions.clarification.scope_answers import (
    SCOPE_TASKS,
    NarrowedQuestion,
    headed_chunks,
    narrow_to_chunks,
)
from raglab.extensions.clarification.statements import heading_of, statements, value_key
from raglab.live.clarifier import FieldValue, GapReading, ParsedQuestion, QuestionGap
from raglab.live.pipeline import unretrieved_response
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseFields, ResponseRecord, check_answer
from raglab.policy_parts.patterns import pattern_hits
from raglab.replay import decide_on_tables
from raglab.signals import NAMES, declaration, own_signal
from raglab.values import FLOAT_FIELDS, Case, Chunk, Generation, Hits, Status, TraceData, refuse
from raglab.words.languages import refusal
from raglab.words.text import pieces

if TYPE_CHECKING:
    from raglab.live.system import System

ROUTE = "extract"
CHOSEN, READ = 1.0, 0.85  # confidence of what a user named, and of what a reader read


class ValueReading(NamedTuple):
    """What a value of a gap leads to.

    Attributes:
      value: of the gap, as it was offered.
      field_value: what the documents state; None where nothing was read.
      chunk: the passage that states it.
      narrowed: the question under the value, where nothing was read.
      confidence: of the field's value, in [0, 1].
    """

    value: str
    field_value: FieldValue | None = None
    chunk: Chunk | None = None
    narrowed: NarrowedQuestion | None = None
    confidence: float = CHOSEN

    @property
    def failed(self) -> bool:
        """Whether it gives nothing.

        The field came back empty (rule S5.4), or the documents have no such part.
        """
        return self.field_value is None and self.narrowed is None

    @property
    def outcome(self) -> str | None:
        """What two values must share to lead to the same answer.

        None where that is not known before retrieval.
        """
        return (
            None
            if self.narrowed is not None
            else ""
            if self.field_value is None
            else self.field_value.value
        )


def read_gap_value(
    gap: QuestionGap,
    value: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    calls: ProtocolCalls,
) -> ValueReading:
    """What a value of a gap leads to.

    A quoted reading is read as it stands: what the user named wins over every reader.
    """
    reading = next((option for option in gap.readings if option.value == value), None)
    if gap.kind == PAGE_SCOPE:
        return _page_reading(gap, value, parsed, chunks, calls)
    if gap.kind == "intent":
        topic = topic_words(plain(parsed.question))
        headed = headed_chunks(topic, chunks)
        task = value if value in SCOPE_TASKS else "page"
        narrowed = narrow_to_chunks(parsed.question, headed, task, topic) if headed else None
        return ValueReading(value, narrowed=narrowed)
    if reading is not None and reading.quote:
        return quoted_reading(reading, chunks, parsed)
    if gap.kind == "document":
        roles = document_roles({chunk.document: chunk.tags for chunk in chunks})
        own = [
            chunk
            for chunk in chunks
            if value in {chunk.document, chunk.shown, roles[chunk.document]}
        ]
        return _document_reading(value, parsed, own)
    return ValueReading(value)


def quoted_reading(
    reading: GapReading, chunks: Sequence[Chunk], parsed: ParsedQuestion
) -> ValueReading:
    """A reading by its quote: its own value, in the column that the question names.

    Else the quote itself.
    """
    chunk = is_quoted(reading.quote, chunks)
    if chunk is None:
        return ValueReading(reading.value)
    plain_quote = plain(reading.quote)
    stated = [fact for fact in statements([chunk]) if plain(fact.text) == plain_quote]
    named = [
        fact
        for fact in stated
        if value_key(reading.value)
        in {
            value_key(fact.label),
            value_key(fact.head),
            value_key(fact.name),
            value_key(fact.value),
        }
    ]
    named = in_column(parsed, named, [chunk])
    value = named[0].value if len({value_key(fact.value) for fact in named}) == 1 else reading.quote
    return ValueReading(reading.value, FieldValue(value, reading.quote), chunk)


def read_field_value(
    field: str,
    chunks: Sequence[Chunk],
    calls: ProtocolCalls,
    *,
    value: str = DOCUMENT,
    about: str = "",
) -> ValueReading:
    """A field as the reader of fields reads it; about: the question."""
    field_value = calls.value(field, chunks, about=about)
    chunk = None if field_value is None else is_quoted(field_value.quote, chunks)
    return (
        ValueReading(value)
        if chunk is None
        else ValueReading(value, field_value, chunk, confidence=READ)
    )


def _page_reading(
    gap: QuestionGap,
    value: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    calls: ProtocolCalls,
) -> ValueReading:
    """A field of the pages in a scope; without a field, what the pages or the part say."""
    if any(value == heading_of(chunk) for chunk in chunks):
        own = [chunk for chunk in chunks if heading_of(chunk) == value]
        return ValueReading(value, narrowed=narrow_to_chunks(parsed.question, own, "page", ()))
    scoped = chunks_in_scope(chunks, value, gap.field, parsed.question, calls)
    if gap.field in calls.pack.fields:
        return read_field_value(gap.field, scoped, calls, value=value, about=parsed.question)
    topic = topic_words(plain(parsed.question))
    return ValueReading(
        value, narrowed=narrow_to_chunks(parsed.question, scoped, "page", topic) if scoped else None
    )


def _document_reading(value: str, parsed: ParsedQuestion, chunks: Sequence[Chunk]) -> ValueReading:
    """What one document states; else the question asked of it alone."""
    text = plain(parsed.question)
    good = as_good(candidates(text, topic_words(text), chunks))
    listed = meeting(text, [match.statement for match in good], chunks)
    if len({value_key(statement.value) for statement in listed}) == 1:
        (stated, *_) = listed
        return ValueReading(value, FieldValue(stated.value, stated.text), chunks[stated.place])
    documents = tuple(dict.fromkeys(chunk.document for chunk in chunks))
    narrowed = (
        NarrowedQuestion(documents, "", (), parsed.question, parsed.question) if documents else None
    )
    return ValueReading(value, narrowed=narrowed)


def chunks_in_scope(
    chunks: Sequence[Chunk], value: str, field: str, text: str, calls: ProtocolCalls
) -> list[Chunk]:
    """Passages within a page scope, document by document; the last page is another one in each."""
    files: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        files.setdefault(chunk.source, []).append(chunk)
    scoped: list[Chunk] = []
    for own in files.values():
        page = str(max(chunk.page or 1 for chunk in own)) if value == LAST_PAGE else value
        if page.isdecimal() or page in {"toc", DOCUMENT}:
            scoped.extend(scope(own, page, field=field, about=text, pack=calls.pack))
    return scoped


# --- responses


class _Statement:
    """A generator that says what was read.

    The words that state it, after the value where they hold several.
    """

    name = "extractor"

    def __init__(self, field_value: FieldValue, confidence: float) -> None:
        self.field_value, self.confidence = field_value, confidence

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """The quote; for a row of several cells, after the value read or each under its head.

        It is each under its head if no value was read.
        """
        del question
        value, quote = self.field_value
        rows = [
            piece_text(piece)
            for piece in pieces(passages[0].full_text)
            if (piece.kind, piece.text) == ("row", quote)
        ]
        if value_key(value) == value_key(quote):
            return Generation(next(iter(rows), quote), self.confidence, (0,))
        return Generation(
            f"{value}: {quote}" if quote.count("; ") > 1 else quote, self.confidence, (0,)
        )


def reading_response(
    request: Request,
    reading: ValueReading,
    why: str,
    where: str,
    domain: Sequence[Check],
    system: System,
    warnings: Sequence[str],
) -> Response:
    """Response that says what was read, or refuses where a gate on the answer does.

    Its confidence is the reading's, 0 to 100; the policy's calibration is of the generator and does
    not apply.

    Args:
      why: the reason that stands for the arm's.
      where: the field was found, in words.
      warnings: before its own.

    Raises:
      ValueError: nothing was read.

    Source: rules S2.1, S2.10, S2.11, S2.13, S5.10.
    """
    field_value, chunk = reading.field_value, reading.chunk
    if field_value is None or chunk is None:
        refuse(
            "a reading must have found its field",
            f"none of {reading.value!r}",
            "ask the chain instead",
        )
    start = perf_counter()
    checked_answer = check_answer(
        request.text,
        [chunk],
        _Statement(field_value, reading.confidence),
        system.scorer,
        language=request.language,
    )
    limits = policy_thresholds([system.policy])
    words = _unmet_words(request, reading, system)
    if words:
        where = language_parts()[request.language]["say_unmet"].format(
            document=chunk.shown, words=", ".join(words)
        )
    measures = (
        checked_answer.confidence,
        checked_answer.support,
        checked_answer.claim,
        checked_answer.refused,
    )
    checks = (
        *domain,
        field_check(where, has_value=not words),
        *answer_checks(*measures, limits, request.language),
    )
    failed = next((check for check in checks if not check.passes), None)
    no_answer = refusal(request.language, system.policy.refusal_message)
    answer = ResponseFields(
        checked_answer.text if failed is None else no_answer,
        (chunk.shown,) if failed is None else (),
        Status.ok if failed is None else Status.refuse,
        refusal_reason=None if failed is None else failed.text,
        warnings=(*warnings,),
        confidence=100.0 * checked_answer.confidence,
        route=ROUTE,
        arm_reason=why,
    )
    if failed is None and YEARS.search(request.text) is None:
        why, until = outdated(chunk, system.retriever.chunks, request.now.date().isoformat())
        warning = (
            language_parts()[request.language]
            .get(f"say_{why}", "")
            .format(document=chunk.shown, until=until)
        )
        answer = answer._replace(warnings=(*warnings, warning)) if why else answer
    ms = {"support": 1e3 * (perf_counter() - start)}
    return unretrieved_response(answer, request, system, ResponseRecord(ms, checks=checks))


def _unmet_words(request: Request, reading: ValueReading, system: System) -> list[str]:
    """Words of a question that what was read for it is set against; none where a user named it."""
    field_value, chunk = reading.field_value, reading.chunk
    if field_value is None or chunk is None or reading.confidence == CHOSEN:
        return []
    own = [
        chunk,
        *(passage for passage in system.retriever.chunks if passage.document == chunk.document),
    ]
    stated = [fact for fact in statements([chunk]) if fact.text == field_value.quote]
    named = [
        fact for fact in stated if value_key(fact.value) in value_key(field_value.value)
    ] or stated
    words = [unmet(plain(request.text), fact, own) for fact in named]
    return sorted(words[0]) if words and all(words) else []


def field_check(text: str, *, has_value: bool) -> Check:
    """Check that a field is not empty."""
    return Check("field", "S5.10", float(has_value), 1.0, float(has_value) - 1.0, has_value, text)


def domain_checks(text: str, system: System, language: str = "en") -> tuple[Check, ...]:
    """Checks of rule S2.1, before anything is retrieved or asked."""
    case, shape = Case("question", text, "ok"), (1, 1, 1, 1)
    blank: dict[str, Any] = {name: np.full(shape, np.nan) for name in FLOAT_FIELDS}
    none: dict[str, Any] = {name: np.full(shape, -1, dtype=np.int32) for name in ("chunk", "rank")}
    hits = Hits(**none, **blank, n_reranked=np.zeros(shape[:3], dtype=np.int32))
    matches = pattern_hits(
        [case], (), system.policy.pattern_lists, (), system.policy.patterns.digest
    )
    named = set(used_signals(system.policy)).difference(NAMES)
    own = {name: own_signal(name, higher="surer", unit="number") for name in named}
    trace = TraceData(
        cases=(case,),
        chunks=(),
        arms=("extractor",),
        hits=hits,
        pattern_hits=matches,
        meta={
            "fingerprint": system.fingerprint,
            "signals": {name: declaration(entry) for name, entry in own.items()},
        },
        # the gate of the domain reads none
        columns={name: np.full((1, 1, 1), np.nan) for name in (*STORED, *own)},
    )
    limits = policy_thresholds([system.policy])
    decisions = decide_on_tables(
        measured_tables(trace, system.policy), trace, system.policy, limits
    )
    explained = replace(decisions, language=language).explain(case.id)
    return tuple(check for check in explained if check.gate == "domain")
