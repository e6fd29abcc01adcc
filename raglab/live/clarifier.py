"""The seam of clarification (shore): what asks a user for what a question leaves out (S5); an extension gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from raglab.extension_points import extension
from raglab.live.requests import Request
from raglab.packs import GENERIC, Pack
from raglab.values import Chunk

MIN_FIELD_CONFIDENCE = 0.60  # below which a field that was read from a question is missing (rule S5.1)


class Parser(Protocol):
    """What reads a question: `question_parsing.OpenAIParser` of the extension, or your own."""

    @property
    def name(self) -> str:
        """Identifier for the log."""

    def parse(self, question: str, vocabulary: Any, *, documents: Sequence[str] = ()) -> Any:  # noqa: ANN401
        """The question's slots, a `QuestionReading`, by the `Vocabulary` of a corpus; both are the extension's."""


class FieldReader(Protocol):
    """What reads a field: `server_reading.OpenAIReader` of the extension, or your own."""

    @property
    def name(self) -> str:
        """Identifier for the log."""

    def read(self, field: str, chunks: Sequence[Chunk], *, about: str = "", pack: Pack = GENERIC) -> Any:  # noqa: ANN401
        """The field's value, or nothing: an `Extraction` of the extension."""


class Clarifier(Protocol):
    """What answers for a system that clarifies: it asks once a request, and learns from the replies.

    The system is the `Lab` that holds it, with an audit log.
    """

    def ask(self, request: Request, system: Any) -> Any:  # noqa: ANN401
        """Response to a request, logged: answered, refused, or asked back."""

    def reply(self, request_id: str, answer: str, system: Any, *, question: str | None, now: datetime) -> Any:  # noqa: ANN401
        """Response to a request with the user's reply, logged."""


def clarifier_maker(what: str = "clarify=True") -> Callable[..., Clarifier]:
    """What makes the clarifier of an index; see `live_clarifier.make_clarifier` of the extension.

    Args:
      what: the user wrote, for the message.

    Raises:
      MissingExtensionError: the extension is not installed.
    """
    maker: Callable[..., Clarifier] = extension("clarifier", "clarification", what)
    return maker
