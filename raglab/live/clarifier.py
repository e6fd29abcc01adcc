"""The seam of clarification (shore): what asks a user for what a question leaves out (S5).

An extension gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, field_validator

from raglab.extension_points import extension
from raglab.live.requests import Request
from raglab.values import Chunk

# below which a field that was read from a question is missing (rule S5.1)
MIN_FIELD_CONFIDENCE = 0.60


SLOT_NAMES = ("entity", "intent", "target_field", "page_scope", "date_scope", "doctype")


class Slot(NamedTuple):
    """One field of a question, and how sure it is.

    Attributes:
      value: None where the question does not state it.
      confidence: chance, in [0, 1], that a careful reader of the question alone would put down the
        same value; 0 without a value.
    """

    value: str | None = None
    confidence: float = 0.0


class ParsedQuestion(BaseModel):
    """A question as typed fields (rule S5.1).

    Attributes:
      entity: who or what it is about, such as a role.
      intent: what is to be done, such as `lookup`, `cite`, `summarise`, `extract_conditions`.
      target_field: the field to fill, or the words that the question asks about.
      page_scope: a page number, `toc`, `document`, or a part.
      date_scope: a year, a date, `newest` or `oldest`.
      doctype: type of the document that the question is about.
      documents: documents that the user named.
      language: of the question.
      question: the text of the question.

    Raises:
      ValueError: a confidence is outside [0, 1], or a field has confidence without a value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entity: Slot = Slot()
    intent: Slot = Slot()
    target_field: Slot = Slot()
    page_scope: Slot = Slot()
    date_scope: Slot = Slot()
    doctype: Slot = Slot()
    documents: tuple[str, ...] = ()
    language: Literal["en", "fr"] = "en"
    question: str = ""

    @field_validator(*SLOT_NAMES)
    @classmethod
    def _in_range(cls, field_slot: Slot) -> Slot:
        if not 0.0 <= field_slot.confidence <= float(field_slot.value is not None):
            requirement = "a confidence must be in [0, 1], and 0 without a value"
            message = f"{requirement}, got {field_slot.confidence} for {field_slot.value!r:.80}."
            raise ValueError(message)
        return field_slot

    def missing(self, least: float = MIN_FIELD_CONFIDENCE) -> tuple[str, ...]:
        """Names of the fields whose confidence is below `least`, in their order.

        Args:
          least: confidence, in [0, 1].

        Example:
          >>> ParsedQuestion(
          ...     intent=Slot("lookup", 0.9), entity=Slot("Acme Premier", 0.95)
          ... ).missing()
          ('target_field', 'page_scope', 'date_scope', 'doctype')
        """
        return tuple(name for name in SLOT_NAMES if getattr(self, name).confidence < least)

    def known(self, name: str, least: float = MIN_FIELD_CONFIDENCE) -> str | None:
        """Value of a field, None where it is missing.

        Args:
          name: of the field, one of `SLOT_NAMES`.
          least: confidence below which it is missing.
        """
        field_slot: Slot = getattr(self, name)
        return field_slot.value if field_slot.confidence >= least else None


GapKind: TypeAlias = Literal[
    "field_type", "implicit_entity", "date_scope", "intent", "page_scope", "document"
]
GAP_KINDS: tuple[GapKind, ...] = get_args(GapKind)
ReplyKind: TypeAlias = Literal[
    "chosen", "own_value", "page", "yes", "declined", "corrected", "not_understood"
]


class GapReading(NamedTuple):
    """One of the values that can fill in what a question leaves out.

    Attributes:
      value: the value under which a choice of it is learned.
      quote: words of the documents that state it, letter for letter.
      text: the value as a user reads it, in the documents' own words; "" is the value itself.
    """

    value: str
    quote: str = ""
    text: str = ""


class QuestionGap(NamedTuple):
    """Something that a question leaves out.

    Attributes:
      kind: one of `GAP_KINDS`.
      field: the field that is asked for, under which choices are learned.
      readings: values that can fill it, the likeliest first, at least two.
      reason: why the first is proposed, a key of `words.yaml` or a sentence.
    """

    kind: GapKind
    field: str
    readings: tuple[GapReading, ...]
    reason: str = ""


class FieldValue(NamedTuple):
    """A field as it was read.

    Attributes:
      value: of the field.
      quote: words of a passage that hold the value, letter for letter.
    """

    value: str
    quote: str


class ReplyRequest(NamedTuple):
    """The request that a user replies to, and what a reply may name.

    Attributes:
      question: the user's first question.
      kind: of the gap.
      field: the field that is asked for.
      readings: the values on offer.
      proposed: value that a yes agrees to, None for none.
      documents: passages of the documents that the question is asked of.
      language: of the question.
    """

    question: str
    kind: str
    field: str
    readings: tuple[GapReading, ...]
    proposed: str | None = None
    documents: tuple[Chunk, ...] = ()
    language: str = "en"


class Reply(NamedTuple):
    """A user's reply as it was read.

    Attributes:
      kind: chosen (a value on offer), own_value (one that the documents state elsewhere, with a
        quote), page (by its number, `last`, `toc` or `document`), yes, declined, corrected
        (declined, and a value named) or not_understood.
      value: the value that the reply names.
      quote: words of the documents that state an own value, letter for letter.
      declined: values that the reply turns down, the proposal where it names none.
      doubted: whether the reply doubts what it names (`I think`): it answers, and is no vote.
    """

    kind: ReplyKind
    value: str = ""
    quote: str = ""
    declined: tuple[str, ...] = ()
    doubted: bool = False


class ReplyReader(Protocol):
    """What reads a user's reply: `replies.read_reply` of the extension, or your own."""

    def __call__(self, reply: str, request: ReplyRequest, /) -> Reply:
        """What the reply says of what was asked."""


class QuestionParser(Protocol):
    """What reads a question.

    `question_parsing.parse_question` of the extension, or your own callable.
    """

    def __call__(self, question: str, documents: Sequence[Chunk], /) -> ParsedQuestion:
        """The question as typed fields; documents: passages of those that it is asked of."""


class GapFinder(Protocol):
    """What finds what a question leaves out.

    `gaps.find_gaps` of the extension, or your own callable.
    """

    def __call__(
        self, parsed: ParsedQuestion, documents: Sequence[Chunk], hits: Sequence[Chunk], /
    ) -> Sequence[QuestionGap]:
        """Gaps, the first to be asked first.

        Hits: the passages of the documents nearest to the question.
        """


class FieldReader(Protocol):
    """What reads a field: `field_values.read_value` of the extension, or your own callable."""

    def __call__(self, field: str, chunks: Sequence[Chunk], /) -> FieldValue | None:
        """The field's value with a quote, None where the passages do not state it."""


class Clarifier(Protocol):
    """What answers for a system that clarifies.

    It asks once a request, and learns from the replies.

    The system is the `System` that holds it, with an audit log.
    """

    def ask(self, request: Request, system: Any) -> Any:  # noqa: ANN401
        """Response to a request, logged: answered, refused, or asked back."""

    def reply(
        self,
        request_id: str,
        answer: str,
        system: Any,  # noqa: ANN401
        *,
        question: str | None,
        now: datetime,
    ) -> Any:  # noqa: ANN401
        """Response to a request with the user's reply, logged."""


def clarifier_maker(caller_name: str = "clarify=True") -> Callable[..., Clarifier]:
    """What makes the clarifier of an index; see `live_clarifier.make_clarifier` of the extension.

    Args:
      caller_name: the user wrote, for the message.

    Raises:
      MissingExtensionError: the extension is not installed.
    """
    make_clarifier: Callable[..., Clarifier] = extension("clarifier", "clarification", caller_name)
    return make_clarifier
