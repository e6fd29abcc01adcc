"""Turns (shore): what holds for one user's turn: request, log, readers, deadline (S5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from raglab.decision.checks import Check
from raglab.default_learner import DefaultLearner
from raglab.extensions.clarification.pinned_documents import (
    ANY_DOCTYPE,
    DocumentIndex,
    PinnedDocuments,
)
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.live.clarifier import ParsedQuestion
from raglab.live.pipeline import answer_request
from raglab.live.requests import Request
from raglab.live.response import Response
from raglab.values import Chunk
from raglab.words.languages import Reason, say
from raglab.words.packs import Pack

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.settings import Settings
    from raglab.live.system import System

UNREAD, UNPINNED = ParsedQuestion(), PinnedDocuments((), ANY_DOCTYPE, {})


@dataclass(frozen=True, slots=True, eq=False)
class Clarification:
    """What asks for what a question leaves out.

    Attributes:
      settings: what the environment says of asking.
      index: the documents.
      calls: the four protocols.
      asks: whether it asks for what a question leaves out; else it only learns choices among the
        resolver's options.
    """

    settings: Settings
    learner: DefaultLearner
    index: DocumentIndex = field(repr=False)
    calls: ProtocolCalls = field(repr=False)
    asks: bool = True

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Passages of the corpus."""
        return self.index.chunks


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A user's turn: the request, and all that answers it and learns from it.

    calls: the protocols, with what failed in this turn. answered_as: id under which the pipeline
    answers. It is another than the request's where a reply corrects a request that was answered
    already, since a bandit takes an id once. writes: of a reply, what is logged with its answer or
    not at all. is_pinned: whether the user named the documents. parsed: the question as it was
    read. pinned: the documents that it is asked of. domain: checks before anything is retrieved.
    """

    request: Request
    system: System
    log: AuditLog
    clarification: Clarification
    calls: ProtocolCalls
    answered_as: str
    writes: list[Callable[[], object]] | None = None
    is_pinned: bool = True
    parsed: ParsedQuestion = UNREAD
    pinned: PinnedDocuments = UNPINNED
    domain: tuple[Check, ...] = ()

    @property
    def pack(self) -> Pack:
        """What the trade calls things."""
        return self.system.pack

    def say(self, key: str, /, **values: object) -> str:
        """Words of a reason in the language of the question."""
        return say(self.request.language, Reason(key, values))

    @property
    def reads_fields(self) -> bool:
        """Whether no reader of fields failed: one that did says nothing of the value."""
        return all(fallback.role != "field_reader" for fallback in self.calls.fallbacks)

    def write(self, method: Callable[..., object], *about: object, **more: object) -> None:
        """Call a method of the log: at once, or of a reply with its answer."""
        if self.writes is None:
            method(*about, **more)
        else:
            self.writes.append(partial(method, *about, **more))

    def answer(self, **changes: Any) -> Response:  # noqa: ANN401 - fields of Request
        """Response of the pipeline to the request, or to one that is changed in these fields."""
        response = answer_request(
            self.request._replace(**changes, id=self.answered_as), self.system
        )
        return response.changed(request_id=self.request.id)
