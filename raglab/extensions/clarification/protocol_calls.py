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
from raglab.extensions.clarification.question_parsing import TASKS, VERSION, parse_question
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

T = TypeVar("T")
TIMEOUT_S = 30.0  # of the calls of one question together
NAME_S = 1.0  # of reading what a callable calls itself
LONGEST = 200  # characters of a value
LONGEST_RESULT = 2**20  # bytes of all that a call gives, as JSON
MOST = 20  # readings of a gap
PAGE_SCOPES = ("toc", "document", "last")
EXAMPLE = Chunk("example#1", "Fees\n\nPet deposit: £250\n\nKey deposit: £50", "example.md", 1)
EXAMPLE_QUESTION = "What is the deposit?"
EXAMPLE_REQUEST = ReplyRequest(
    EXAMPLE_QUESTION,
    "field_type",
    "deposit",
    (GapReading("Pet deposit"), GapReading("Key deposit")),
    "Pet deposit",
    (EXAMPLE,),
)
FORMS = {
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


def _own_call(call: Any) -> OwnCall | None:  # noqa: ANN401 - whatever the user gives
    if call is None or isinstance(call, OwnCall):
        return call
    version, *more = (
        attribute_text(call, name, NAME_S)[:LONGEST]
        for name in ("version", "model", "prompt_version")
    )
    return OwnCall(
        call, version or attribute_text(call, "__name__", NAME_S) or type(call).__name__, *more
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
        return {role: getattr(getattr(self, role), "version", VERSION) for role in FORMS}

    def check(self) -> None:
        """Call what the user gave with an example.

        What fails on it is said, and not refused: a language model may be away, slow or wrong this
        once.

        Raises:
          ValueError: it can never work: it is no callable, is async, or takes other arguments.
        """
        documents = (EXAMPLE,)
        parsed = parse_question(EXAMPLE_QUESTION, documents)
        examples: dict[str, tuple[Any, ...]] = {
            "parser": (ProtocolCalls.parse, EXAMPLE_QUESTION, documents),
            "gap_finder": (ProtocolCalls.gaps, parsed, documents, documents),
            "reply_reader": (ProtocolCalls.reply, "yes", EXAMPLE_REQUEST),
            "field_reader": (ProtocolCalls.value, "deposit", documents),
        }
        for role, (method, *arguments) in examples.items():
            own = getattr(self, role)
            if own is None:
                continue
            if problem := _misfit(own.call, FORMS[role]):
                msg = f"{role} must be a callable {FORMS[role]}, got {problem}"
                raise ValueError(msg)
            method(self.for_request(), *arguments)

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
        checked: Callable[[Any], T],
        default: Callable[[], T],
    ) -> T:
        """What the user's callable gives, copied and checked.

        What the default gives where it fails.
        """
        own: OwnCall | None = getattr(self, role)
        if own is None:
            return default()
        try:
            if is_running(own.call):
                msg = "RecursionError: it was called within itself"
                raise CallFailedError(msg)  # noqa: TRY301 - a failure like any of the call
            return call_in_time(
                own.call,
                tuple(map(_frozen, arguments)),
                call_time=self.time or CallTime(self.timeout_s),
                read_result=checked,
                late_threads=self._late,
            )
        except CallFailedError as error:
            reason = str(error)
        self.fallbacks.append(Fallback(role, reason))
        kind = (role, reason.partition(":")[0])
        if kind not in self._warnings:
            self._warnings.add(kind)
            warn_user(
                f"{role} {own.version} failed ({reason}): the default stands in, wherever it fails."
            )
        return default()


def _misfit(call: object, form: str) -> str:
    """Why something can never be called as a protocol is; '' where it may be."""
    if not callable(call):
        return f"{type(call).__name__}; of a model take ModelCalls(client).arguments."
    if inspect.iscoroutinefunction(call):
        return "an async function; write def, or run it by asyncio.run."
    try:
        signature = inspect.signature(call)
    except Exception:  # noqa: BLE001 - one that states no arguments may take these
        return ""
    try:
        signature.bind(*form.partition(")")[0].split(","))
    except TypeError as error:
        return f"arguments {str(signature)[:LONGEST]} ({error}); take these by position."
    return ""


# --- copies: what goes to a callable, and what comes back


def _frozen(value: Any) -> Any:  # noqa: ANN401 - an argument of any protocol
    """An argument as a callable gets it: nothing that it does to it changes ours."""
    if isinstance(value, Chunk):
        return value._replace(tags=MappingProxyType(value.tags))
    if isinstance(value, ReplyRequest):
        return value._replace(documents=_frozen(value.documents))
    return tuple(map(_frozen, value)) if isinstance(value, tuple | list) else value


_ADAPTERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (ParsedQuestion, Reply, FieldValue)
} | {tuple: TypeAdapter(Annotated[tuple[QuestionGap, ...], FailFast()])}


def _plain_copy(value: Any, kind: type[T]) -> T:  # noqa: ANN401 - whatever a user's callable gives
    """A result in types of `raglab.live.clarifier`, plain texts and numbers; tuple: of gaps.

    It is so whatever its own types override.

    Raises:
      TypeError: it is of another type.
      ValueError: a part is of another type, or it is more than a log takes.

    Example:
      >>> _plain_copy(FieldValue("£50", "Key deposit: £50"), FieldValue)
      FieldValue(value='£50', quote='Key deposit: £50')
    """
    if inspect.iscoroutine(value):
        value.close()  # nobody awaits it
    if not isinstance(value, tuple | list if kind is tuple else kind):
        msg = f"it must give {kind.__name__}, got {type(value).__name__}"
        raise TypeError(msg)
    if isinstance(value, ParsedQuestion):
        value = {name: getattr(value, name) for name in ParsedQuestion.model_fields}
    copied: T = _ADAPTERS[kind].validate_python(value)
    written = to_json(copied)
    if len(written) > LONGEST_RESULT or b"\\u0000" in written:
        refuse(
            f"its texts must have no NUL and {LONGEST_RESULT:,} bytes at most",
            f"{copied!r:.80}",
            "shorten them",
        )
    return copied


# --- checks of what comes back


def _is_short(text: str) -> bool:
    return 0 < len(text.strip()) <= LONGEST


def _parsed(value: Any, documents: Sequence[Chunk]) -> ParsedQuestion:  # noqa: ANN401
    parsed = _plain_copy(value, ParsedQuestion)
    for name in SLOT_NAMES:
        text = getattr(parsed, name).value
        if text is not None and not _is_short(text):
            refuse(
                f"{name} must be None or a text of 1 to {LONGEST} characters",
                f"{text!r:.40}",
                "shorten it",
            )
    if parsed.page_scope.value == "0":
        refuse("page_scope must be a page from 1", "0", "count from 1")
    pinned = {name for chunk in documents for name in (chunk.document, chunk.source, chunk.shown)}
    if stray := set(parsed.documents) - pinned:
        refuse(
            "documents must be of those that the question is asked of",
            f"{min(stray)!r:.80}",
            "name these alone",
        )
    return parsed


def _gaps(value: Any, documents: Sequence[Chunk]) -> tuple[QuestionGap, ...]:  # noqa: ANN401
    """Gaps of different readings, each of which the documents state."""
    gaps = _plain_copy(value, tuple)
    for gap in gaps:
        values = {plain(reading.value) for reading in gap.readings}
        if not _is_short(gap.field) or not 1 < len(gap.readings) == len(values) <= MOST:
            refuse(
                f"a gap must have a field, and 2 to {MOST} readings that differ",
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
    value, quote, text = reading
    tags = {chunk.document: chunk.tags for chunk in documents}
    roles = document_roles(tags).values()
    known = {*tags, *roles, *TASKS, *MORE_TASKS, "newest", "oldest"}

    def is_there(part: str) -> bool:
        words = set(stems(part))  # a label of several cells
        return (
            part in known
            or _stands(part, documents)
            or (kind == "page_scope" and is_scope(part, documents))
            or (bool(quote and words) and words.issubset(stems(quote)))
        )

    if not _is_short(value) or not is_there(text or value):
        return False
    if quote:
        return _stands(quote, documents)
    return kind in {"page_scope", "intent", "document"} and is_there(value)


def _reply(value: Any, request: ReplyRequest) -> Reply:  # noqa: ANN401
    reply = _plain_copy(value, Reply)
    taken = checked_reply(reply, request)
    values = {request.proposed, *(reading.value for reading in request.readings)}
    is_named = reply.value in values or not reply.quote
    if (
        (taken.kind == "not_understood") != (reply.kind == "not_understood")
        or not values.issuperset(reply.declined)
        or not (is_named or _is_stated(reply.value, reply.quote, request.documents))
        or (reply.kind == "yes" and reply.value not in {"", request.proposed})
    ):
        refuse(
            "a reply must name what is on offer or what the documents state",
            f"{reply!r:.160}",
            "name one of these",
        )
    return taken


def _value(value: Any, chunks: Sequence[Chunk]) -> FieldValue | None:  # noqa: ANN401
    if value is None:
        return None
    answer = _plain_copy(value, FieldValue)
    if not _is_stated(*answer, chunks):
        refuse(
            "its quote must stand in the passages and hold the value",
            f"{answer!r:.160}",
            "copy both letter for letter",
        )
    return answer


def _is_stated(value: str, quote: str, chunks: Sequence[Chunk]) -> bool:
    """Whether a passage holds a quote, and the quote a value."""
    return _stands(quote, chunks) and _stands(value, [Chunk("quote", quote, "quote")])


def _stands(text: str, chunks: Sequence[Chunk]) -> bool:
    """Whether a passage holds a text exactly, but for table marks and blanks, in whole words.

    One that is cut ends in `…`.
    """
    whole = _letters(text.strip("…"))
    return any(
        whole in _letters(chunk.full_text)
        and ("…" in text or is_quoted(whole, [chunk]) is not None)
        for chunk in chunks
        if whole
    )


@lru_cache(maxsize=1 << 12)
def _letters(text: str) -> str:
    """A text without table and emphasis marks, in single blanks, with plain hyphens.

    Its apostrophes are straight.
    """
    straight = text.replace("’", "'").replace("\u2011", "-")
    return " ".join(re.sub(r"[|;*#>]+", " ", straight).split()).replace(" :", ":")


def checked_reply(reply: Reply, request: ReplyRequest) -> Reply:
    """A reply that names only what there is.

    Its kind follows from where its value is from, not from the kind stated.

    On offer: chosen; task or page: page; quoted: own_value. Yes chooses the proposal; no without a
    value declines it.
    """
    proposed = () if request.proposed is None else (request.proposed,)
    if reply.kind == "yes":
        return Reply("chosen", *proposed, doubted=reply.doubted) if proposed else NOT_UNDERSTOOD
    values = {reading.value for reading in request.readings}
    declined = tuple(value for value in reply.declined if value in values.union(proposed))
    if reply.kind == "declined":
        declined = declined or proposed
        return Reply("declined", declined=declined) if declined else NOT_UNDERSTOOD
    value, quote = reply.value, ""
    if reply.kind == "not_understood" or not value or value in declined:
        return NOT_UNDERSTOOD
    kind: ReplyKind = "page"
    is_task = request.kind == "intent" and value in MORE_TASKS
    if value in values:
        kind = "chosen"
    elif not is_task and not (request.kind == "page_scope" and is_scope(value, request.documents)):
        kind, quote = "own_value", reply.quote
        if not quote or own_statement(reply, request.documents) is None or len(value) > LONGEST:
            return NOT_UNDERSTOOD
    return reply._replace(kind=kind, quote=quote, declined=declined)


def is_scope(value: str, documents: Sequence[Chunk]) -> bool:
    """Whether a value is a page that there is, or a scope of pages."""
    return value in {*PAGE_SCOPES, *map(str, pages_of(documents))}
