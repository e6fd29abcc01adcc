"""Protocol calls (shore): a parser, gap finder, reply reader and field reader of one's own, failing safe (S5.1).

Each is called with an example when the system opens, for its return type. At every call what raises, takes too long,
gives something of another type, or quotes what the documents do not hold gives way to the default, and is said once.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from raglab.answering.client import end_calls_within
from raglab.extensions.clarification.field_values import is_quoted, read_value
from raglab.extensions.clarification.gaps import Nearness, find_gaps
from raglab.extensions.clarification.question_parsing import VERSION, parse_question
from raglab.extensions.clarification.replies import NOT_UNDERSTOOD, read_reply
from raglab.extensions.clarification.reply_names import MORE_TASKS, own_statement, pages_of
from raglab.live.clarifier import (
    GAP_KINDS,
    MIN_FIELD_CONFIDENCE,
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
from raglab.packs import GENERIC, Pack
from raglab.user_warnings import warn_user
from raglab.values import Chunk, ModelUnavailableError

T = TypeVar("T")
TIMEOUT_S = 30.0  # of one call
LONGEST = 200  # characters of a value
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


class Fallback(NamedTuple):
    """That a default stood in: for what, and why."""

    role: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolCalls:
    """The four protocols of a system: what the user gave, over the defaults.

    pack: names of fields and roles, for the defaults. least: confidence below which a field of a question is missing.
    parser, gap_finder, reply_reader, field_reader: None is the default. timeout_s: seconds of one call; None waits.
    """

    pack: Pack = field(default=GENERIC, repr=False)
    least: float = MIN_FIELD_CONFIDENCE
    parser: QuestionParser | None = None
    gap_finder: GapFinder | None = None
    reply_reader: ReplyReader | None = None
    field_reader: FieldReader | None = None
    timeout_s: float | None = TIMEOUT_S
    fallbacks: list[Fallback] = field(default_factory=list, repr=False)
    _told: set[str] = field(default_factory=set, repr=False)

    def for_request(self) -> ProtocolCalls:
        """The same calls with the fallbacks of one request alone."""
        given = (
            self.pack,
            self.least,
            self.parser,
            self.gap_finder,
            self.reply_reader,
            self.field_reader,
            self.timeout_s,
        )
        return ProtocolCalls(*given, [], self._told)

    def names(self) -> dict[str, str]:
        """Version of each of the four, by its role."""
        own = {
            "parser": self.parser,
            "gap_finder": self.gap_finder,
            "reply_reader": self.reply_reader,
            "field_reader": self.field_reader,
        }
        return {role: VERSION if call is None else version_of(call) for role, call in own.items()}

    def check(self) -> None:
        """Call what the user gave with an example.

        A language model (what has a `model`) that is away, slow or misreads the example is said, and not refused.

        Raises:
          ValueError: it is no callable, gives another type, or raises; says which, and what it must give.
        """
        parsed = parse_question(EXAMPLE_QUESTION, (EXAMPLE,))
        tries: tuple[tuple[str, Any, tuple[Any, ...], Callable[[Any], Any], str], ...] = (
            ("parser", self.parser, (EXAMPLE_QUESTION, (EXAMPLE,)), _parsed, "(question, documents) -> ParsedQuestion"),
            (
                "gap_finder",
                self.gap_finder,
                (parsed, (EXAMPLE,), (EXAMPLE,)),
                partial(_gaps, documents=(EXAMPLE,)),
                "(parsed, documents, hits) -> list of QuestionGap",
            ),
            ("reply_reader", self.reply_reader, ("yes", EXAMPLE_REQUEST), _reply, "(reply, request) -> Reply"),
            (
                "field_reader",
                self.field_reader,
                ("deposit", (EXAMPLE,)),
                partial(_value, chunks=(EXAMPLE,)),
                "(field, chunks) -> FieldValue or None",
            ),
        )
        for role, call, example, checked, form in tries:
            if call is None:
                continue
            if not callable(call):
                old = (
                    " Classes with .parse or .read are of an earlier version; of a model: ModelCalls(client).arguments."
                    if hasattr(call, "parse") or hasattr(call, "read")
                    else ""
                )
                msg = f"{role} must be a callable {form}, got {type(call).__name__}; see raglab.live.clarifier.{old}"
                raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
            try:
                checked(_in_time(call, example, self.timeout_s))
            except (ModelUnavailableError, TimeoutError) as error:  # it may be up, or loaded, at the first question
                self._warn(role, call, _told_error(error))
            except Exception as error:
                if getattr(call, "model", ""):  # what a language model writes is no error of the code that asks it
                    self._warn(role, call, _told_error(error))
                    continue
                msg = f"{role} must be a callable {form}, and failed on an example: {_told_error(error)}; correct it."
                raise ValueError(msg) from error

    def parse(self, question: str, documents: Sequence[Chunk]) -> ParsedQuestion:
        """The question as typed fields."""
        default = partial(parse_question, question, documents, pack=self.pack)
        parsed = self._call("parser", self.parser, (question, documents), _parsed, default)
        return parsed if parsed.question else parsed.model_copy(update={"question": question})

    def gaps(
        self,
        parsed: ParsedQuestion,
        documents: Sequence[Chunk],
        hits: Sequence[Chunk],
        nearness: Nearness | None = None,
    ) -> tuple[QuestionGap, ...]:
        """What the question leaves out, in the order in which one is asked.

        Args:
          nearness: of texts to the question, for the default.
        """
        default = partial(find_gaps, parsed, documents, hits, pack=self.pack, least=self.least, nearness=nearness)
        return self._call(
            "gap_finder", self.gap_finder, (parsed, documents, hits), partial(_gaps, documents=documents), default
        )

    def reply(self, reply: str, request: ReplyRequest) -> Reply:
        """What a reply names, of what there is."""
        said = self._call(
            "reply_reader", self.reply_reader, (reply, request), _reply, partial(read_reply, reply, request)
        )
        return checked_reply(said, request)

    def value(self, field: str, chunks: Sequence[Chunk], *, about: str = "") -> FieldValue | None:
        """A field's value with a quote that the passages hold; about: words of the question, for the default."""
        default = partial(read_value, field, chunks, pack=self.pack, about=about)
        return self._call("field_reader", self.field_reader, (field, chunks), partial(_value, chunks=chunks), default)

    def _call(
        self,
        role: str,
        call: Callable[..., Any] | None,
        given: tuple[Any, ...],
        checked: Callable[[Any], T],
        default: Callable[[], T],
    ) -> T:
        """What the user's callable gives, checked; what the default gives where it fails."""
        if call is None:
            return default()
        try:
            return checked(_in_time(call, given, self.timeout_s))
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises, the question is answered
            reason = _told_error(error)
            self.fallbacks.append(Fallback(role, reason))
            self._warn(role, call, reason)
            return default()

    def _warn(self, role: str, call: object, reason: str) -> None:
        """Say once that a default stands in."""
        if role not in self._told:
            self._told.add(role)
            warn_user(f"{role} {version_of(call)} failed ({reason}): the default stands in, wherever it fails.")


def version_of(call: object) -> str:
    """Version of a callable: its `version`, else its name."""
    return str(getattr(call, "version", "") or getattr(call, "__name__", "") or type(call).__name__)[:LONGEST]


def _told_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:LONGEST]}".rstrip(": ")


def _in_time(call: Callable[..., Any], given: tuple[Any, ...], timeout_s: float | None) -> Any:  # noqa: ANN401
    """What a callable gives within a time; it may go on by itself after that.

    Raises:
      TimeoutError: it took longer.
    """
    if timeout_s is None:
        return call(*given)
    result: list[Any] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()
    context.run(end_calls_within, timeout_s)  # a language model writes no reply that nobody waits for

    def work() -> None:
        try:
            result.append(context.run(call, *given))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure.append(error)

    thread = threading.Thread(target=work, name="clarification protocol", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failure:
        raise failure[0]
    if not result:
        msg = f"it took longer than {timeout_s:g} s"
        raise TimeoutError(msg)
    return result[0]


# --- checks of what comes back


def _parsed(value: Any) -> ParsedQuestion:  # noqa: ANN401 - whatever a user's callable gives
    if not isinstance(value, ParsedQuestion):
        msg = f"it must give a ParsedQuestion, got {type(value).__name__}"
        raise TypeError(msg)
    for name in type(value).model_fields:
        told = getattr(value, name)
        if (
            isinstance(told, Slot)
            and told.value is not None
            and (not isinstance(told.value, str) or len(told.value) > LONGEST)
        ):
            msg = f"{name} must be a text of at most {LONGEST} characters"
            raise ValueError(msg)
    return value


def _gaps(value: Any, documents: Sequence[Chunk]) -> tuple[QuestionGap, ...]:  # noqa: ANN401
    """Gaps whose readings stand in the documents, at least two each."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    odd = next((item for item in items if not isinstance(item, QuestionGap)), None)
    if odd is not None or not isinstance(value, list | tuple):
        msg = f"it must give a list of QuestionGap, got {type(value if odd is None else odd).__name__}"
        raise TypeError(msg)
    kept = []
    for gap in value:
        if gap.kind not in GAP_KINDS or not isinstance(gap.field, str) or not 0 < len(gap.field.strip()) <= LONGEST:
            kinds, came = ", ".join(GAP_KINDS), f"{gap.kind!r} of {gap.field!r:.80}"
            msg = f"a gap must have one of the kinds {kinds} and a field, got {came}"
            raise ValueError(msg)
        readings = [reading for reading in gap.readings if isinstance(reading, GapReading)]
        good = {reading.value: reading for reading in reversed(readings) if _is_reading(reading, gap.kind, documents)}
        if len(good) > 1:
            kept.append(gap._replace(readings=tuple(good[value] for value in reversed(good))[:MOST]))
    return tuple(kept)


def _is_reading(reading: GapReading, kind: str, documents: Sequence[Chunk]) -> bool:
    texts = (reading.value, reading.quote, reading.text)
    if not all(isinstance(text, str) for text in texts) or not 0 < len(reading.value.strip()) <= LONGEST:
        return False
    if reading.quote:
        return is_quoted(reading.quote, documents) is not None
    return kind in {"page_scope", "intent", "document"}  # a page, a task and a document are no words of a passage


def _reply(value: Any) -> Reply:  # noqa: ANN401
    if not isinstance(value, Reply) or not all(
        isinstance(text, str) for text in (value.kind, value.value, value.quote, *value.declined)
    ):
        msg = f"it must give a Reply, got {type(value).__name__}"
        raise TypeError(msg)
    return value


def _value(value: Any, chunks: Sequence[Chunk]) -> FieldValue | None:  # noqa: ANN401
    if value is None:
        return None
    if not isinstance(value, FieldValue) or not all(isinstance(text, str) and text.strip() for text in value):
        msg = f"it must give a FieldValue or None, got {type(value).__name__}"
        raise TypeError(msg)
    if is_quoted(value.quote, chunks) is None or is_quoted(value.value, [Chunk("quote", value.quote, "quote")]) is None:
        came = f"{value.quote[:80]!r} for {value.value[:80]!r}"
        msg = f"its quote must stand in the passages and hold the value, got {came}"
        raise ValueError(msg)
    return value


def checked_reply(reply: Reply, asked: ReplyRequest) -> Reply:  # noqa: PLR0911 - a way out for each case
    """A reply that names only what there is: a value on offer, one that the documents quote, a page, a task.

    One that says yes names the proposal; one that declines nothing in particular declines it.
    """
    values = {reading.value for reading in asked.readings}
    declined = tuple(value for value in reply.declined if value in values or value == asked.proposed)
    if reply.kind == "yes":
        return NOT_UNDERSTOOD if asked.proposed is None else Reply("chosen", asked.proposed)
    if reply.kind == "declined":
        declined = declined or (() if asked.proposed is None else (asked.proposed,))
        return Reply("declined", declined=declined) if declined else NOT_UNDERSTOOD
    if reply.kind not in {"chosen", "own_value", "page", "corrected"} or not reply.value or reply.value in declined:
        return NOT_UNDERSTOOD
    if reply.value in values:
        return Reply("chosen", reply.value, declined=declined)
    is_task = asked.kind == "intent" and reply.value in MORE_TASKS
    if is_task or (asked.kind == "page_scope" and is_scope(reply.value, asked.documents)):
        return Reply("page", reply.value, declined=declined)
    if reply.quote and own_statement(reply, asked.documents) is not None and len(reply.value) <= LONGEST:
        return Reply("own_value", reply.value, reply.quote, declined)
    return NOT_UNDERSTOOD


def is_scope(value: str, documents: Sequence[Chunk]) -> bool:
    """Whether a value is a page that there is, or a scope of pages."""
    return value in PAGE_SCOPES or (value.isdecimal() and int(value) in pages_of(documents))
