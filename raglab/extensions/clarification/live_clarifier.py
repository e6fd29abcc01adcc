"""Live clarifier (shore): clarification of an index, made when a system that clarifies is opened (S5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from raglab.extensions.clarification.clarification import clarify_request
from raglab.extensions.clarification.clarification_replies import answer_reply
from raglab.extensions.clarification.clarification_requests import GapClarifier
from raglab.extensions.clarification.question_vocabulary import Vocabulary, build_vocabulary
from raglab.live.clarifier import Clarifier, FieldReader, Parser
from raglab.live.requests import Request
from raglab.live.response import Response
from raglab.live.trace_building import Retriever
from raglab.packs import Pack
from raglab.retrieval.dense import EmbeddingCache, embed
from raglab.values import Chunk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from raglab.live.settings import ClarifySettings
    from raglab.live.system import Lab


@dataclass(frozen=True, slots=True, eq=False)
class LiveClarifier:
    """What asks and reads replies for a system; see `raglab.live.clarifier.Clarifier`.

    gaps: what a question leaves out of the documents of the index.
    """

    gaps: GapClarifier

    def ask(self, request: Request, system: Lab) -> Response:
        """Response to a request, logged: answered, refused, or asked back."""
        return clarify_request(request, system, self.gaps)

    def reply(self, request_id: str, answer: str, system: Lab, *, question: str | None, now: datetime) -> Response:
        """Response to a request with the user's reply, logged."""
        return answer_reply(request_id, answer, system, self.gaps, question=question, now=now)


def make_clarifier(
    settings: ClarifySettings,
    chunks: Sequence[Chunk],
    ready: Retriever,
    cache: EmbeddingCache,
    pack: Pack,
    *,
    parser: Parser | None,
    field_reader: FieldReader | None,
    asks: bool,
) -> Clarifier:
    """Clarifier of an index.

    Args:
      settings: what the environment says of asking.
      chunks: of the corpus, without the rows of its tables.
      ready: the index, whose encoder reads questions.
      cache: of the corpus's embeddings.
      pack: of the trade.
      parser: reads questions; None is the rules.
      field_reader: reads fields; None is the pack's rules.
      asks: whether for what a question leaves out; else choices among options alone are learned, which need no words.
    """
    gaps = GapClarifier(
        costs=settings,
        learner=settings.learner,
        chunks=tuple(chunks),
        vocabulary=_vocabulary(chunks, ready, cache, pack) if asks else None,
        pack=pack,
        parser=parser,
        reader=field_reader,
    )
    return LiveClarifier(gaps)


def _vocabulary(chunks: Sequence[Chunk], ready: Retriever, cache: EmbeddingCache, pack: Pack) -> Vocabulary:
    """Field vocabulary of a corpus; its embeddings are kept, those of questions are not."""

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return embed(ready.encoder, list(texts), None).vectors

    known = build_vocabulary(chunks, lambda texts: embed(ready.encoder, list(texts), cache).vectors, pack=pack)
    return known._replace(encode=encode)
