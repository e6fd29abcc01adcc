"""Live clarifier (shore): clarifies from an index, made when a clarifying system opens (S5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from raglab.extensions.clarification.clarified_requests import clarify_request
from raglab.extensions.clarification.pinned_documents import DocumentIndex
from raglab.extensions.clarification.protocol_calls import TIMEOUT_S, ProtocolCalls
from raglab.extensions.clarification.reply_turns import answer_reply
from raglab.extensions.clarification.turns import Clarification
from raglab.live.clarifier import Clarifier, FieldReader, GapFinder, QuestionParser, ReplyReader
from raglab.live.requests import Request
from raglab.live.response import Response
from raglab.live.retriever import Retriever
from raglab.retrieval.dense import EmbeddingCache
from raglab.values import Chunk
from raglab.words.packs import Pack

if TYPE_CHECKING:
    from raglab.live.settings import Settings
    from raglab.live.system import System


@dataclass(frozen=True, slots=True, eq=False)
class LiveClarifier:
    """What asks and reads replies for a system; see `raglab.live.clarifier.Clarifier`."""

    clarification: Clarification

    def ask(self, request: Request, system: System) -> Response:
        """Response to a request, logged: answered, refused, or asked back."""
        return clarify_request(request, system, self.clarification)

    def reply(
        self, request_id: str, answer: str, system: System, *, question: str | None, now: datetime
    ) -> Response:
        """Response to a request with the user's reply, logged."""
        return answer_reply(
            request_id, answer, system, self.clarification, question=question, now=now
        )


def make_clarifier(
    settings: Settings,
    chunks: Sequence[Chunk],
    ready: Retriever,
    cache: EmbeddingCache,
    pack: Pack,
    *,
    parser: QuestionParser | None = None,
    gap_finder: GapFinder | None = None,
    reply_reader: ReplyReader | None = None,
    field_reader: FieldReader | None = None,
    timeout_s: float | None = TIMEOUT_S,
    asks: bool,
) -> Clarifier:
    """Clarifier of an index.

    Args:
      settings: what the environment says of asking.
      chunks: of the corpus, without the rows of its tables.
      ready: the index, whose encoder compares.
      cache: of the corpus's embeddings, which the index has used already.
      pack: of the trade.
      parser, gap_finder, reply_reader, field_reader: of the user; None is the default. They are
        called with an example.
      timeout_s: seconds that all calls of these may take for one question.
      asks: whether for what a question leaves out; else choices among options alone are learned.

    Raises:
      ValueError: one of the four fails on the example.
    """
    del cache
    calls = ProtocolCalls(
        pack=pack,
        least=settings.clarify_min_field_confidence,
        parser=parser,
        gap_finder=gap_finder,
        reply_reader=reply_reader,
        field_reader=field_reader,
        timeout_s=timeout_s,
    )
    calls.check()
    index = DocumentIndex(tuple(chunks), ready, pack)
    return LiveClarifier(Clarification(settings, settings.learner, index, calls, asks=asks))
