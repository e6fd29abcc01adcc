"""Protocol calls (shore): one's own parser, gap finder, reply and field readers, checked (S5.1).

Each is called with an example when the system opens. It gets copies that it cannot change, in a
thread and a time of its own. What it gives is copied into plain types and checked: what raises,
takes too long, or has one part of another type, or one that the documents do not hold, gives way to
the default as a whole. That is said once a kind, and logged.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import FailFast, TypeAdapter
from pydantic_core import to_json

from raglab.arguments.plain_arrays import converted
from raglab.arguments.user_warnings import warn_user
from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.field_values import is_quoted, read_value
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.language_words import plain, stems
from raglab.extensions.clarification.question_parsing import (
    PARSER_VERSION,
    QUESTION_TASKS,
    parse_question,
)
from raglab.extensions.clarification.replies import NOT_UNDERSTOOD, read_reply
from raglab.extensions.clarification.reply_names import MORE_TASKS, own_statement, pages_of
from raglab.live.clarifier import (
    MIN_FIELD_CONFIDENCE,
    SLOT_NAMES,
    FieldReader,
    FieldValue,
    GapFinder,
    GapReading,
    ParsedQuestion,
    QuestionGap,
    QuestionParser,
    Reply,
    ReplyKind,
    ReplyReader,
    ReplyRequest,
)
from raglab.live.guarded_calls import (
    CallFailedError,
    CallTime,
    attribute_text,
    call_in_time,
    is_running,
)
from raglab.values import Chunk, refuse
from raglab.words.packs import GENERIC, Pack

Checked = TypeVar("Checked")
TIMEOUT_S = 30.0  # of the calls of one question together
NAME_TIMEOUT_S = 1.0  # of reading what a callable calls itself
MAX_RESULT_TEXT = 200  # characters of a value
MAX_RESULT_BYTES = 2**20  # bytes of all that a call gives, as JSON
MAX_GAP_READINGS = 20  # readings of a gap
PAGE_SCOPES = ("toc", "document", "last")
EXAMPLE_CHUNK = Chunk("example#1", "Fees\n\nPet deposit: £250\n\nKey deposit: £50", "example.md", 1)
EXAMPLE_QUESTION = "What is the deposit?"
EXAMPLE_REQUEST = ReplyRequest(
    EXAMPLE_QUESTION,
    "field_type",
    "deposit",
    (GapReading("Pet deposit"), GapReading("Key deposit")),
    "Pet deposit",
    (EXAMPLE_CHUNK,),
)
PROTOCOL_FORMS = {
    "parser": "(question, documents) -> ParsedQuestion",
    "gap_finder": "(parsed, documents, hits) -> list of QuestionGap",
    "reply_reader": "(reply, request) -> Reply",
    "field_reader": "(field, chunks) -> FieldValue or None",
}


class Fallback(NamedTuple):
    """That a default stood in: for what, and why."""

    role: str
    reason: str


class OwnCall(NamedTuple):
    """A callable of the user with what it calls itself, which is read once.

    Reading it may raise.
    """

    call: Callable[..., Any]
    version: str
    model: str
    prompt_version: str


def _own_call(user_call: Any) -> OwnCall | None:  # noqa: ANN401 - whatever the user gives
    if user_call is None or isinstance(user_call, OwnCall):
        return user_call
    own_version, *model_texts = (
        attribute_text(user_call, attribute, NAME_TIMEOUT_S)[:MAX_RESULT_TEXT]
        for attribute in ("version", "model", "prompt_version")
    )
    return OwnCall(
        user_call,
        own_version
        or attribute_text(user_call, "__name__", NAME_TIMEOUT_S)
        or type(user_call).__name__,
        *model_texts,
    )


@converted(parser=_own_call, gap_finder=_own_call, reply_reader=_own_call, field_reader=_own_call)
@dataclass(frozen=True, slots=True, eq=False)
class ProtocolCalls:
    """The four protocols of a system: what the user gave, over the defaults.

    pack: names of fields and roles, for the defaults. least: confidence below which a field of a
    question is missing. parser, gap_finder, reply_reader, field_reader: None is the default.
    timeout_s: seconds of all calls for one question; None waits.
    """

    pack: Pack = GENERIC
    least: float = MIN_FIELD_CONFIDENCE
    parser: QuestionParser | None = None
    gap_finder: GapFinder | None = None
    reply_reader: ReplyReader | None = None
    field_reader: FieldReader | None = None
    timeout_s: float | None = TIMEOUT_S
    fallbacks: list[Fallback] = field(default_factory=list)
    time: CallTime | None = None
    _warnings: set[tuple[str, str]] = field(default_factory=set)
    _late: list[threading.Thread] = field(default_factory=list)

    def for_request(self) -> ProtocolCalls:
        """The same calls with the fallbacks and the time of one request alone."""
        return replace(self, fallbacks=[], time=CallTime(self.timeout_s))

    def names(self) -> dict[str, str]:
        """Version of each of the four, by its role."""
        return {
            role: getattr(getattr(self, role), "version", PARSER_VERSION) for role in PROTOCOL_FORMS
        }

    def check(self) -> None:
        """Call what the user gave with an example.

        What fails on it is said, and not refused: a language model may be away, slow or wrong this
        once.

        Raises:
          ValueError: it can never work: it is no callable, is async, or takes other arguments.
        """
        documents = (EXAMPLE_CHUNK,)
        parsed_example = parse_question(EXAMPLE_QUESTION, documents)
        example_calls: dict[str, tuple[Any, ...]] = {
            "parser": (ProtocolCalls.parse, EXAMPLE_QUESTION, documents),
            "gap_finder": (ProtocolCalls.gaps, parsed_example, documents, documents),
            "reply_reader": (ProtocolCalls.reply, "yes", EXAMPLE_REQUEST),
            "field_reader": (ProtocolCalls.value, "deposit", documents),
        }
        for role, (protocol_method, *arguments) in example_calls.items():
            own_call = getattr(self, role)
            if own_call is None:
                continue
            if misfit := _misfit(own_call.call, PROTOCOL_FORMS[role]):
                msg = f"{role} must be a callable {PROTOCOL_FORMS[role]}, got {misfit}"
                raise ValueError(msg)
            protocol_method(self.for_request(), *arguments)

    def parse(self, question: str, documents: Sequence[Chunk]) -> ParsedQuestion:
        """The question as typed fields."""
        default = partial(parse_question, question, documents, pack=self.pack)
        parsed = self._call(
            "parser", (question, documents), partial(_parsed, documents=documents), default
        )
        return (
            parsed if parsed.question.strip() else parsed.model_copy(update={"question": question})
        )

    def gaps(
        self,
        parsed: ParsedQuestion,
        documents: Sequence[Chunk],
        hits: Sequence[Chunk],
    ) -> tuple[QuestionGap, ...]:
        """What the question leaves out, in the order in which one is asked."""
        default = partial(find_gaps, parsed, documents, hits, pack=self.pack, least=self.least)
        return self._call(
            "gap_finder", (parsed, documents, hits), partial(_gaps, documents=documents), default
        )

    def reply(self, reply: str, request: ReplyRequest) -> Reply:
        """What a reply names, of what there is."""
        checked = partial(_reply, request=request)
        return self._call(
            "reply_reader",
            (reply, request),
            checked,
            lambda: checked_reply(read_reply(reply, request), request),
        )

    def value(self, field: str, chunks: Sequence[Chunk], *, about: str = "") -> FieldValue | None:
        """A field's value with a quote that the passages hold.

        About: words of the question, for the default.
        """
        default = partial(read_value, field, chunks, pack=self.pack, about=about)
        return self._call("field_reader", (field, chunks), partial(_value, chunks=chunks), default)

    def _call(
        self,
        role: str,
        arguments: tuple[Any, ...],
        checked_reader: Callable[[Any], Checked],
        default: Callable[[], Checked],
    ) -> Checked:
        """What the user's callable gives, copied and checked.

        What the default gives where it fails.
        """
        own_call: OwnCall | None = getattr(self, role)
        if own_call is None:
            return default()
        try:
            if is_running(own_call.call):
                msg = "RecursionError: it was called within itself"
                raise CallFailedError(msg)  # noqa: TRY301 - a failure like any of the call
            return call_in_time(
                own_call.call,
                tuple(map(_frozen, arguments)),
                call_time=self.time or CallTime(self.timeout_s),
                read_result=checked_reader,
                late_threads=self._late,
            )
        except CallFailedError as error:
            failure_reason = str(error)
        self.fallbacks.append(Fallback(role, failure_reason))
        warning_kind = (role, failure_reason.partition(":")[0])
        if warning_kind not in self._warnings:
            self._warnings.add(warning_kind)
            warn_user(
                f"{role} {own_call.version} failed ({failure_reason}): "
                "the default stands in, wherever it fails."
            )
        return default()


def _misfit(user_call: object, protocol_form: str) -> str:
    """Why something can never be called as a protocol is; '' where it may be."""
    if not callable(user_call):
        return f"{type(user_call).__name__}; of a model take ModelCalls(client).arguments."
    if inspect.iscoroutinefunction(user_call):
        return "an async function; write def, or run it by asyncio.run."
    try:
        call_signature = inspect.signature(user_call)
    except Exception:  # noqa: BLE001 - one that states no arguments may take these
        return ""
    try:
        call_signature.bind(*protocol_form.partition(")")[0].split(","))
    except TypeError as error:
        return (
            f"arguments {str(call_signature)[:MAX_RESULT_TEXT]} ({error}); take these by position."
        )
    return ""


# --- copies: what goes to a callable, and what comes back


def _frozen(argument: Any) -> Any:  # noqa: ANN401 - an argument of any protocol
    """An argument as a callable gets it: nothing that it does to it changes ours."""
    if isinstance(argument, Chunk):
        return argument._replace(tags=MappingProxyType(argument.tags))
    if isinstance(argument, ReplyRequest):
        return argument._replace(documents=_frozen(argument.documents))
    return tuple(map(_frozen, argument)) if isinstance(argument, tuple | list) else argument


_ADAPTERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (ParsedQuestion, Reply, FieldValue)
} | {tuple: TypeAdapter(Annotated[tuple[QuestionGap, ...], FailFast()])}


def _plain_copy(user_result: Any, result_type: type[Checked]) -> Checked:  # noqa: ANN401 - whatever a user's callable gives
    """A result in types of `raglab.live.clarifier`, plain texts and numbers; tuple: of gaps.

    It is so whatever its own types override.

    Raises:
      TypeError: it is of another type.
      ValueError: a part is of another type, or it is more than a log takes.

    Example:
      >>> _plain_copy(FieldValue("£50", "Key deposit: £50"), FieldValue)
      FieldValue(value='£50', quote='Key deposit: £50')
    """
    if inspect.iscoroutine(user_result):
        user_result.close()  # nobody awaits it
    if not isinstance(user_result, tuple | list if result_type is tuple else result_type):
        msg = f"it must give {result_type.__name__}, got {type(user_result).__name__}"
        raise TypeError(msg)
    if isinstance(user_result, ParsedQuestion):
        user_result = {
            field_name: getattr(user_result, field_name)
            for field_name in ParsedQuestion.model_fields
        }
    plain_result: Checked = _ADAPTERS[result_type].validate_python(user_result)
    written_json = to_json(plain_result)
    if len(written_json) > MAX_RESULT_BYTES or b"\\u0000" in written_json:
        refuse(
            f"its texts must have no NUL and {MAX_RESULT_BYTES:,} bytes at most",
            f"{plain_result!r:.80}",
            "shorten them",
        )
    return plain_result


# --- checks of what comes back


def _is_short(text: str) -> bool:
    return 0 < len(text.strip()) <= MAX_RESULT_TEXT


def _parsed(user_result: Any, documents: Sequence[Chunk]) -> ParsedQuestion:  # noqa: ANN401
    parsed = _plain_copy(user_result, ParsedQuestion)
    for slot_name in SLOT_NAMES:
        slot_text = getattr(parsed, slot_name).value
        if slot_text is not None and not _is_short(slot_text):
            refuse(
                f"{slot_name} must be None or a text of 1 to {MAX_RESULT_TEXT} characters",
                f"{slot_text!r:.40}",
                "shorten it",
            )
    if parsed.page_scope.value == "0":
        refuse("page_scope must be a page from 1", "0", "count from 1")
    document_names = {
        slot_name
        for chunk in documents
        for slot_name in (chunk.document, chunk.source, chunk.shown)
    }
    if stray_documents := set(parsed.documents) - document_names:
        refuse(
            "documents must be of those that the question is asked of",
            f"{min(stray_documents)!r:.80}",
            "name these alone",
        )
    return parsed


def _gaps(user_result: Any, documents: Sequence[Chunk]) -> tuple[QuestionGap, ...]:  # noqa: ANN401
    """Gaps of different readings, each of which the documents state."""
    gaps = _plain_copy(user_result, tuple)
    for gap in gaps:
        reading_values = {plain(reading.value) for reading in gap.readings}
        if (
            not _is_short(gap.field)
            or not 1 < len(gap.readings) == len(reading_values) <= MAX_GAP_READINGS
        ):
            refuse(
                f"a gap must have a field, and 2 to {MAX_GAP_READINGS} readings that differ",
                f"{gap!r:.160}",
                "name each once",
            )
        for reading in gap.readings:
            if not _is_reading(reading, gap.kind, documents):
                refuse(
                    "a reading and its quote must stand in the documents",
                    f"{reading!r:.160}",
                    "copy them letter for letter",
                )
    return gaps


def _is_reading(reading: GapReading, kind: str, documents: Sequence[Chunk]) -> bool:
    """Whether the documents have what a reading shows: its quote, and its text, else its value.

    A page, a task and a document are no words of a passage: without a quote there must be such a
    one.
    """
    reading_value, quote, reading_text = reading
    tags_by_document = {chunk.document: chunk.tags for chunk in documents}
    roles_by_document = document_roles(tags_by_document).values()
    known_values = {
        *tags_by_document,
        *roles_by_document,
        *QUESTION_TASKS,
        *MORE_TASKS,
        "newest",
        "oldest",
    }

    def is_there(reading_part: str) -> bool:
        part_stems = set(stems(reading_part))  # a label of several cells
        return (
            reading_part in known_values
            or _stands(reading_part, documents)
            or (kind == "page_scope" and is_scope(reading_part, documents))
            or (bool(quote and part_stems) and part_stems.issubset(stems(quote)))
        )

    if not _is_short(reading_value) or not is_there(reading_text or reading_value):
        return False
    if quote:
        return _stands(quote, documents)
    return kind in {"page_scope", "intent", "document"} and is_there(reading_value)


def _reply(user_result: Any, request: ReplyRequest) -> Reply:  # noqa: ANN401
    reply = _plain_copy(user_result, Reply)
    checked = checked_reply(reply, request)
    offered_values = {request.proposed, *(reading.value for reading in request.readings)}
    is_named = reply.value in offered_values or not reply.quote
    if (
        (checked.kind == "not_understood") != (reply.kind == "not_understood")
        or not offered_values.issuperset(reply.declined)
        or not (is_named or _is_stated(reply.value, reply.quote, request.documents))
        or (reply.kind == "yes" and reply.value not in {"", request.proposed})
    ):
        refuse(
            "a reply must name what is on offer or what the documents state",
            f"{reply!r:.160}",
            "name one of these",
        )
    return checked


def _value(user_result: Any, chunks: Sequence[Chunk]) -> FieldValue | None:  # noqa: ANN401
    if user_result is None:
        return None
    value = _plain_copy(user_result, FieldValue)
    if not _is_stated(*value, chunks):
        refuse(
            "its quote must stand in the passages and hold the value",
            f"{value!r:.160}",
            "copy both letter for letter",
        )
    return value


def _is_stated(value: str, quote: str, chunks: Sequence[Chunk]) -> bool:
    """Whether a passage holds a quote, and the quote a value."""
    return _stands(quote, chunks) and _stands(value, [Chunk("quote", quote, "quote")])


def _stands(text: str, chunks: Sequence[Chunk]) -> bool:
    """Whether a passage holds a text exactly, but for table marks and blanks, in whole words.

    One that is cut ends in `…`.
    """
    whole_text = _letters(text.strip("…"))
    return any(
        whole_text in _letters(chunk.full_text)
        and ("…" in text or is_quoted(whole_text, [chunk]) is not None)
        for chunk in chunks
        if whole_text
    )


@lru_cache(maxsize=1 << 12)
def _letters(text: str) -> str:
    """A text without table and emphasis marks, in single blanks, with plain hyphens.

    Its apostrophes are straight.
    """
    straight_text = text.replace("’", "'").replace("\u2011", "-")
    return " ".join(re.sub(r"[|;*#>]+", " ", straight_text).split()).replace(" :", ":")


def checked_reply(reply: Reply, request: ReplyRequest) -> Reply:
    """A reply that names only what there is.

    Its kind follows from where its value is from, not from the kind stated.

    On offer: chosen; task or page: page; quoted: own_value. Yes chooses the proposal; no without a
    value declines it.
    """
    proposed_values = () if request.proposed is None else (request.proposed,)
    if reply.kind == "yes":
        return (
            Reply("chosen", *proposed_values, doubted=reply.doubted)
            if proposed_values
            else NOT_UNDERSTOOD
        )
    offered_values = {reading.value for reading in request.readings}
    declined_values = tuple(
        reply_value
        for reply_value in reply.declined
        if reply_value in offered_values.union(proposed_values)
    )
    if reply.kind == "declined":
        declined_values = declined_values or proposed_values
        return Reply("declined", declined=declined_values) if declined_values else NOT_UNDERSTOOD
    reply_value = reply.value
    reply_quote = ""
    if reply.kind == "not_understood" or not reply_value or reply_value in declined_values:
        return NOT_UNDERSTOOD
    reply_kind: ReplyKind = "page"
    is_task = request.kind == "intent" and reply_value in MORE_TASKS
    if reply_value in offered_values:
        reply_kind = "chosen"
    elif not is_task and not (
        request.kind == "page_scope" and is_scope(reply_value, request.documents)
    ):
        reply_kind = "own_value"
        reply_quote = reply.quote
        if (
            not reply_quote
            or own_statement(reply, request.documents) is None
            or len(reply_value) > MAX_RESULT_TEXT
        ):
            return NOT_UNDERSTOOD
    return reply._replace(kind=reply_kind, quote=reply_quote, declined=declined_values)


def is_scope(value: str, documents: Sequence[Chunk]) -> bool:
    """Whether a value is a page that there is, or a scope of pages."""
    return value in {*PAGE_SCOPES, *map(str, pages_of(documents))}
