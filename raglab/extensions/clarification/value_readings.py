"""Value readings (shore): what a value leads to (S5.10).

It leads to a statement, a field of some pages, or a narrower question.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from raglab.answering.extractive import piece_text
from raglab.decision.chain import NO_STAGE
from raglab.decision.checks import Check, answer_checks, step_checks
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.extensions.clarification.contents import scope
from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.field_values import is_quoted
from raglab.extensions.clarification.gap_candidates import (
    YEAR_PATTERN,
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
from raglab.extensions.clarification.statements import (
    called,
    heading_of,
    quoted,
    statements,
    value_key,
)
from raglab.gates import gate_by_name
from raglab.live.clarifier import FieldValue, GapReading, ParsedQuestion, QuestionGap
from raglab.live.pipeline import unretrieved_response
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseFields, ResponseRecord, check_answer
from raglab.policy_parts.gate_order import Step
from raglab.policy_parts.patterns import matches
from raglab.values import Chunk, Generation, Status, refuse
from raglab.words.languages import Reason, refusal, say
from raglab.words.text import pieces
from raglab.words.tokeniser import word_count

if TYPE_CHECKING:
    from raglab.live.system import System

READING_ROUTE = "extract"
CHOSEN_CONFIDENCE, READ_CONFIDENCE = (
    1.0,
    0.85,
)  # confidence of what a user named, and of what a reader read


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
    confidence: float = CHOSEN_CONFIDENCE

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
        if self.narrowed is not None:
            return None
        return "" if self.field_value is None else self.field_value.value


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
    if gap.kind == PAGE_SCOPE:
        return _page_reading(gap, value, parsed, chunks, calls)
    question_topic = topic_words(plain(parsed.question))
    if gap.kind == "intent":
        scope_task = value if value in SCOPE_TASKS else "page"
        return _narrowed(
            value, parsed, headed_chunks(question_topic, chunks), scope_task, question_topic
        )
    for reading in gap.readings:
        if reading.value == value and reading.quote:
            return quoted_reading(reading, chunks, parsed)
    if gap.kind == "document":
        roles_by_document = document_roles({chunk.document: chunk.tags for chunk in chunks})
        document_chunks = [
            chunk
            for chunk in chunks
            if value in {chunk.document, chunk.shown, roles_by_document[chunk.document]}
        ]
        return _document_reading(value, parsed, document_chunks)
    return ValueReading(value)


def _narrowed(
    value: str, parsed: ParsedQuestion, chunks: Sequence[Chunk], task: str, topic: Sequence[str]
) -> ValueReading:
    """The question asked of some passages; a failure where there are none."""
    narrowed_question = narrow_to_chunks(parsed.question, chunks, task, topic) if chunks else None
    return ValueReading(value, narrowed=narrowed_question)


def quoted_reading(
    reading: GapReading, chunks: Sequence[Chunk], parsed: ParsedQuestion
) -> ValueReading:
    """A reading by its quote: its own value, in the column that the question names.

    Else the quote itself.
    """
    chunk = is_quoted(reading.quote, chunks)
    if chunk is None:
        return ValueReading(reading.value)
    named_statements = in_column(
        parsed, called(reading.value, quoted(reading.quote, [chunk])), [chunk]
    )
    stated_value = (
        named_statements[0].value
        if len({value_key(statement.value) for statement in named_statements}) == 1
        else reading.quote
    )
    return ValueReading(reading.value, FieldValue(stated_value, reading.quote), chunk)


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
    quoted_chunk = field_value and is_quoted(field_value.quote, chunks)
    if quoted_chunk is None:
        return ValueReading(value)
    return ValueReading(value, field_value, quoted_chunk, confidence=READ_CONFIDENCE)


def _page_reading(
    gap: QuestionGap,
    value: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    calls: ProtocolCalls,
) -> ValueReading:
    """A field of the pages in a scope; without a field, what the pages or the part say."""
    if headed_passages := [chunk for chunk in chunks if heading_of(chunk) == value]:
        return _narrowed(value, parsed, headed_passages, "page", ())
    scoped_chunks = chunks_in_scope(chunks, value, gap.field, parsed.question, calls)
    if gap.field in calls.pack.fields:
        return read_field_value(gap.field, scoped_chunks, calls, value=value, about=parsed.question)
    return _narrowed(value, parsed, scoped_chunks, "page", topic_words(plain(parsed.question)))


def _document_reading(value: str, parsed: ParsedQuestion, chunks: Sequence[Chunk]) -> ValueReading:
    """What one document states; else the question asked of it alone."""
    plain_text = plain(parsed.question)
    best_candidates = as_good(candidates(plain_text, topic_words(plain_text), chunks))
    listed_statements = meeting(
        plain_text, [candidate.statement for candidate in best_candidates], chunks
    )
    if len({value_key(statement.value) for statement in listed_statements}) == 1:
        (single_statement, *_) = listed_statements
        return ValueReading(
            value,
            FieldValue(single_statement.value, single_statement.text),
            chunks[single_statement.place],
        )
    document_names = tuple(dict.fromkeys(chunk.document for chunk in chunks))
    question_text = parsed.question
    narrowed_question = (
        NarrowedQuestion(document_names, "", (), question_text, question_text)
        if document_names
        else None
    )
    return ValueReading(value, narrowed=narrowed_question)


def chunks_in_scope(
    chunks: Sequence[Chunk], value: str, field_name: str, question_text: str, calls: ProtocolCalls
) -> list[Chunk]:
    """Passages within a page scope, document by document; the last page is another one in each."""
    scoped_chunks: list[Chunk] = []
    for source in dict.fromkeys(chunk.source for chunk in chunks):
        source_chunks = [chunk for chunk in chunks if chunk.source == source]
        page_name = (
            str(max(chunk.page or 1 for chunk in source_chunks)) if value == LAST_PAGE else value
        )
        if page_name.isdecimal() or page_name in {"toc", DOCUMENT}:
            scoped_chunks += scope(
                source_chunks, page_name, field=field_name, about=question_text, pack=calls.pack
            )
    return scoped_chunks


# --- responses


class _Extractor(NamedTuple):
    """A generator that says what was read."""

    generation: Generation
    name: str = "extractor"

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """What was read, whatever is asked."""
        del question, passages
        return self.generation


def _said_of(field_value: FieldValue, chunk: Chunk) -> str:
    """The quote; of a row of several cells, after the value read.

    Each cell under its head where no value was read.
    """
    stated_value, stated_quote = field_value
    if value_key(stated_value) != value_key(stated_quote):
        return f"{stated_value}: {stated_quote}" if stated_quote.count("; ") > 1 else stated_quote
    table_rows = (text_piece for text_piece in pieces(chunk.full_text) if text_piece.kind == "row")
    return next(
        (piece_text(table_row) for table_row in table_rows if table_row.text == stated_quote),
        stated_quote,
    )


def reading_response(
    request: Request,
    reading: ValueReading,
    reading_reason: str,
    place_sentence: str,
    domain_results: Sequence[Check],
    system: System,
    warnings: Sequence[str],
) -> Response:
    """Response that says what was read, or refuses where a gate on the answer does.

    Its confidence is the reading's, 0 to 100; the policy's calibration is of the generator and does
    not apply.

    Args:
      reading_reason: the reason that stands for the arm's.
      place_sentence: the field was found, in words.
      warnings: before its own.

    Raises:
      ValueError: nothing was read.

    Source: rules S2.1, S2.10, S2.11, S2.13, S5.10.
    """
    field_value = reading.field_value
    chunk = reading.chunk
    if field_value is None or chunk is None:
        refuse(
            "a reading must have found its field",
            f"none of {reading.value!r}",
            "ask the chain instead",
        )
    start_time, language, policy = perf_counter(), request.language, system.policy
    # What was read passes the same checks as an answer of a generator.
    read_generation = Generation(_said_of(field_value, chunk), reading.confidence, (0,))
    checked_answer = check_answer(
        request.text, [chunk], _Extractor(read_generation), system.scorer, language=language
    )
    language_texts = language_parts()[language]
    # A value that the user chose needs no further proof by the words of the question.
    unmet_texts = (
        []
        if reading.confidence == CHOSEN_CONFIDENCE
        else _unmet_words(request, field_value, chunk, system)
    )
    if unmet_texts:
        place_sentence = language_texts["say_unmet"].format(
            document=chunk.shown, words=", ".join(unmet_texts)
        )
    answer_measures = (
        checked_answer.confidence,
        checked_answer.support,
        checked_answer.claim,
        checked_answer.refused,
    )
    checks = (
        *domain_results,
        field_check(place_sentence, has_value=not unmet_texts),
        *answer_checks(*answer_measures, policy_thresholds([policy]), language),
    )
    response_fields = ResponseFields(
        checked_answer.text,
        (chunk.shown,),
        Status.ok,
        warnings=(*warnings,),
        confidence=100.0 * checked_answer.confidence,
        route=READING_ROUTE,
        arm_reason=reading_reason,
    )
    # The first check that fails refuses, as in the chain.
    failed_check = next((check for check in checks if not check.passes), None)
    if failed_check is not None:
        refusal_message = refusal(language, policy.refusal_message)
        response_fields = response_fields._replace(
            answer=refusal_message,
            sources=(),
            status=Status.refuse,
            refusal_reason=failed_check.text,
        )
    elif YEAR_PATTERN.search(request.text) is None:
        # A question that names a year has said of when it asks.
        stale_key, end_of_validity = outdated(
            chunk, system.retriever.chunks, request.now.date().isoformat()
        )
        if stale_key:
            warning = language_texts[f"say_{stale_key}"].format(
                document=chunk.shown, until=end_of_validity
            )
            response_fields = response_fields._replace(warnings=(*warnings, warning))
    milliseconds = {"support": 1e3 * (perf_counter() - start_time)}
    return unretrieved_response(
        response_fields, request, system, ResponseRecord(milliseconds, checks=checks)
    )


def _unmet_words(
    request: Request, field_value: FieldValue, chunk: Chunk, system: System
) -> list[str]:
    """Words of a question that what was read for it is set against."""
    document_passages = [
        chunk,
        *(passage for passage in system.retriever.chunks if passage.document == chunk.document),
    ]
    quoted_statements = [
        statement for statement in statements([chunk]) if statement.text == field_value.quote
    ]
    named_statements = [
        statement
        for statement in quoted_statements
        if value_key(statement.value) in value_key(field_value.value)
    ] or quoted_statements
    words_by_statement = [
        unmet(plain(request.text), statement, document_passages) for statement in named_statements
    ]
    return sorted(words_by_statement[0]) if words_by_statement and all(words_by_statement) else []


def field_check(text: str, *, has_value: bool) -> Check:
    """Check that a field is not empty."""
    return Check("field", "S5.10", float(has_value), 1.0, float(has_value) - 1.0, has_value, text)


def domain_checks(text: str, system: System, language: str = "en") -> tuple[Check, ...]:
    """Checks of rule S2.1, before anything is retrieved or asked."""
    pattern_lists = system.policy.pattern_lists
    n_denied, n_allowed = (
        sum(matches(pattern, text) for pattern in patterns)
        for patterns in (pattern_lists.deny, pattern_lists.allow)
    )
    measurements = {
        "words": word_count(text),
        "denied": n_denied,
        "allowed": n_allowed,
        "needs_allowed": bool(pattern_lists.allow),
    }
    domain_context = SimpleNamespace(
        thresholds=policy_thresholds([system.policy]),
        say=lambda key, **values: say(language, Reason(key, values)),
    )
    steps = [Step(gate_by_name("domain"), None, NO_STAGE)]
    return tuple(step_checks(domain_context, 0, measurements.__getitem__, steps))
