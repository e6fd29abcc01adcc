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
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

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
    SLOTS,
    FieldReader,
    FieldValue,
    GapFinder,
    GapReading,
    ParsedQuestion,
    QuestionGap,
    QuestionParser,
    Reply,
    ReplyReader,
    ReplyRequest,
    Slot,
)
from raglab.live.guarded_calls import (
    CallFailedError,
    CallTime,
    LateCallError,
    attribute_text,
    call_in_time,
    is_running,
)
from raglab.values import Chunk
from raglab.words.packs import GENERIC, Pack

T = TypeVar("T")
TIMEOUT_S = 30.0  # of the calls of one question together
NAME_S = 1.0  # of reading what a callable calls itself
LONGEST = 200  # characters of a value
LONGEST_TEXT = 20_000  # characters of a question or quote
MOST = 20  # readings of a gap
MOST_PARTS = 1_000  # of a list
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
    """That a default stood in: for what, why, and whether the call was late."""

    role: str
    reason: str
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class OwnCall:
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

    pack: Pack = field(default=GENERIC, repr=False)
    least: float = MIN_FIELD_CONFIDENCE
    parser: QuestionParser | None = None
    gap_finder: GapFinder | None = None
    reply_reader: ReplyReader | None = None
    field_reader: FieldReader | None = None
    timeout_s: float | None = TIMEOUT_S
    fallbacks: list[Fallback] = field(default_factory=list, repr=False)
    time: CallTime | None = field(default=None, repr=False)
    _warnings: set[tuple[str, str]] = field(default_factory=set, repr=False)
    _late: list[threading.Thread] = field(default_factory=list, repr=False)

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
        callables = {role: getattr(self, role) for role in FORMS if getattr(self, role) is not None}
        for role, own in callables.items():
            if problem := _misfit(own.call, FORMS[role]):
                msg = f"{role} must be a callable {FORMS[role]}, got {problem}"
                raise ValueError(msg)
        documents = (EXAMPLE,)
        tries: dict[str, Callable[[], object]] = {
            "parser": lambda: self.for_request().parse(EXAMPLE_QUESTION, documents),
            "gap_finder": lambda: self.for_request().gaps(
                parse_question(EXAMPLE_QUESTION, documents), documents, documents
            ),
            "reply_reader": lambda: self.for_request().reply("yes", EXAMPLE_REQUEST),
            "field_reader": lambda: self.for_request().value("deposit", documents),
        }
        for role in callables:
            tries[role]()

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
            for failure in self.fallbacks:
                if failure.is_late and failure.role == role:
                    raise LateCallError(failure.reason)
            return call_in_time(
                own.call,
                tuple(map(_frozen, arguments)),
                time=self.time or CallTime(self.timeout_s),
                read=lambda value: checked(plain_copy(value)),
                late=self._late,
            )
        except CallFailedError as error:
            reason, is_late = str(error), isinstance(error, LateCallError)
        self.fallbacks.append(Fallback(role, reason, is_late))
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
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__):
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
        return value._replace(tags=MappingProxyType(dict(value.tags)))
    if isinstance(value, ReplyRequest):
        return value._replace(documents=_frozen(value.documents))
    if isinstance(value, ParsedQuestion):
        return value.model_copy()
    return tuple(map(_frozen, value)) if isinstance(value, tuple | list) else value


def plain_copy(value: Any) -> Any:  # noqa: ANN401 - whatever a user's callable gives
    """A result in types of `raglab.live.clarifier`, plain texts and numbers.

    It is so whatever its own types override.

    Raises:
      TypeError: a part is of another type.
      ValueError: a text is too long for a log or none that it takes, or a list has too many parts.

    Example:
      >>> plain_copy([FieldValue("£50", "Key deposit: £50")])
      (FieldValue(value='£50', quote='Key deposit: £50'),)
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = str.__str__(value)
        if (
            len(text) > LONGEST_TEXT
            or "\0" in text
            or text.encode("utf-8", "replace").decode() != text
        ):
            msg = (
                f"a text must be Unicode of at most {LONGEST_TEXT:,} characters without NUL, got "
                f"{text!r:.40}"
            )
            raise ValueError(msg)
        return text
    if isinstance(value, int | float):
        return float.__float__(value) if isinstance(value, float) else int.__int__(value)
    if isinstance(value, ParsedQuestion):
        return ParsedQuestion(
            **{name: plain_copy(getattr(value, name)) for name in ParsedQuestion.model_fields}
        )
    base = next((kind for kind in (tuple, list) if isinstance(value, kind)), None)
    if base is None:
        if inspect.iscoroutine(value):
            value.close()  # nobody awaits it
        msg = f"it must give what raglab.live.clarifier has, got {type(value).__name__}"
        raise TypeError(msg)
    parts = base.__getitem__(value, slice(MOST_PARTS + 1))
    if len(parts) > MOST_PARTS:
        msg = f"a list must have at most {MOST_PARTS:,} parts, got more"
        raise ValueError(msg)
    kind = next(
        (
            form
            for form in (Slot, GapReading, QuestionGap, Reply, FieldValue)
            if isinstance(value, form)
        ),
        None,
    )
    copied = tuple(map(plain_copy, parts))
    return copied if kind is None else TypeAdapter(kind).validate_python(kind(*copied))


# --- checks of what comes back


def _taken(value: Any, kind: type[T]) -> T:  # noqa: ANN401
    if not isinstance(value, kind):
        msg = f"it must give a {kind.__name__}, got {type(value).__name__}"
        raise TypeError(msg)
    return value


def _parsed(value: Any, documents: Sequence[Chunk]) -> ParsedQuestion:  # noqa: ANN401
    parsed = _taken(value, ParsedQuestion)
    for name in SLOTS:
        text = getattr(parsed, name).value
        if text is not None and not 0 < len(text.strip()) <= LONGEST:
            msg = f"{name} must be None or a text of 1 to {LONGEST} characters, got {text!r:.40}"
            raise ValueError(msg)
    page = parsed.page_scope.value or ""
    if page.isdecimal() and not int(page):
        msg = f"page_scope must be a page from 1, got {page!r:.40}"
        raise ValueError(msg)
    pinned = {name for chunk in documents for name in (chunk.document, chunk.source, chunk.shown)}
    if stray := set(parsed.documents) - pinned:
        msg = f"documents must be of those that the question is asked of, got {min(stray)!r:.80}"
        raise ValueError(msg)
    return parsed


def _gaps(value: Any, documents: Sequence[Chunk]) -> tuple[QuestionGap, ...]:  # noqa: ANN401
    """Gaps of different readings, each of which the documents state."""
    gaps = tuple(_taken(gap, QuestionGap) for gap in _taken(value, tuple))
    for kind, field_name, readings, _ in gaps:
        differ = len({plain(reading.value) for reading in readings})
        if (
            not 0 < len(field_name.strip()) <= LONGEST
            or not 1 < len(readings) <= MOST
            or differ < len(readings)
        ):
            shown = f"{field_name!r:.80} with {differ} values in {len(readings)} readings"
            msg = f"a gap must have a field, and 2 to {MOST} readings that differ, got {shown}"
            raise ValueError(msg)
        odd = next(
            (reading for reading in readings if not _is_reading(reading, kind, documents)), None
        )
        if odd is not None:
            shown = f"{odd.quote!r:.80} for {odd.text or odd.value!r:.80}"
            msg = f"a reading and its quote must stand in the documents, got {shown}"
            raise ValueError(msg)
    return gaps


def _is_reading(reading: GapReading, kind: str, documents: Sequence[Chunk]) -> bool:
    """Whether the documents have what a reading shows: its quote, and its text, else its value.

    A page, a task and a document are no words of a passage: without a quote there must be such a
    one.
    """
    value, quote, text = reading
    if not 0 < len(value.strip()) <= LONGEST or (quote and not _stands(quote, documents)):
        return False
    if not quote and kind not in {"page_scope", "intent", "document"}:
        return False
    roles = document_roles({chunk.document: chunk.tags for chunk in documents})
    names = {
        name
        for chunk in documents
        for name in (chunk.document, chunk.file_name, chunk.tags.get("title"))
    }
    known = names | {*roles.values(), *TASKS, *MORE_TASKS, "newest", "oldest"}
    needed = [text or value, *([] if quote else [value])]
    return all(
        part in known
        or _stands(part, documents)
        or (kind == "page_scope" and is_scope(part, documents))
        # a label of several cells
        or bool(quote and stems(part) and set(stems(quote)).issuperset(stems(part)))
        for part in needed
    )


def _reply(value: Any, request: ReplyRequest) -> Reply:  # noqa: ANN401
    reply = _taken(value, Reply)
    taken = checked_reply(reply, request)
    values = {request.proposed, *(reading.value for reading in request.readings)}
    is_own = bool(reply.quote) and reply.value not in values
    if (
        (taken.kind == "not_understood") != (reply.kind == "not_understood")
        or not values.issuperset(reply.declined)
        or (reply.quote and not _stands(reply.quote, request.documents))
        or (is_own and not _stands(reply.value, [Chunk("quote", reply.quote, "quote")]))
        or (reply.kind == "yes" and reply.value not in {"", request.proposed})
    ):
        shown = f"{reply.kind} {reply.value!r:.80} {reply.quote!r:.80}".strip()
        msg = f"a reply must name what is on offer or what the documents state, got {shown}"
        raise ValueError(msg)
    return taken


def _value(value: Any, chunks: Sequence[Chunk]) -> FieldValue | None:  # noqa: ANN401
    if value is None:
        return None
    answer = _taken(value, FieldValue)
    if not _stands(answer.quote, chunks) or not _stands(
        answer.value, [Chunk("quote", answer.quote, "quote")]
    ):
        shown = f"{answer.quote[:80]!r} for {answer.value[:80]!r}"
        msg = f"its quote must stand in the passages and hold the value, got {shown}"
        raise ValueError(msg)
    return answer


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


# a way out for each case
def checked_reply(reply: Reply, request: ReplyRequest) -> Reply:  # noqa: PLR0911
    """A reply that names only what there is.

    Its kind follows from where its value is from, not from the kind stated.

    On offer: chosen; task or page: page; quoted: own_value. Yes chooses the proposal; no without a
    value declines it.
    """
    if reply.kind == "yes":
        if request.proposed is None:
            return NOT_UNDERSTOOD
        return Reply("chosen", request.proposed, doubted=reply.doubted)
    values = {reading.value for reading in request.readings}
    declined = tuple(
        value for value in reply.declined if value in values or value == request.proposed
    )
    if reply.kind == "declined":
        declined = declined or (() if request.proposed is None else (request.proposed,))
        return Reply("declined", declined=declined) if declined else NOT_UNDERSTOOD
    if (
        reply.kind not in {"chosen", "own_value", "page", "corrected"}
        or not reply.value
        or reply.value in declined
    ):
        return NOT_UNDERSTOOD
    taken = reply._replace(kind="chosen", quote="", declined=declined)
    if reply.value in values:
        return taken
    is_task = request.kind == "intent" and reply.value in MORE_TASKS
    if is_task or (request.kind == "page_scope" and is_scope(reply.value, request.documents)):
        return taken._replace(kind="page")
    if (
        reply.quote
        and own_statement(reply, request.documents) is not None
        and len(reply.value) <= LONGEST
    ):
        return taken._replace(kind="own_value", quote=reply.quote)
    return NOT_UNDERSTOOD


def is_scope(value: str, documents: Sequence[Chunk]) -> bool:
    """Whether a value is a page that there is, or a scope of pages."""
    return value in PAGE_SCOPES or (value.isdecimal() and int(value) in pages_of(documents))
