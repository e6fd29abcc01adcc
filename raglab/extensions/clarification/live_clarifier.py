"""Live clarifier (shore): made from an index when a system that clarifies opens (S5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raglab.extensions.clarification.clarified_requests import clarify_request
from raglab.extensions.clarification.pinned_documents import DocumentIndex
from raglab.extensions.clarification.protocol_calls import ProtocolCalls
from raglab.extensions.clarification.reply_turns import answer_reply
from raglab.extensions.clarification.turns import Clarification
from raglab.live.clarifier import Clarifier
from raglab.live.retriever import Retriever
from raglab.values import Chunk
from raglab.words.packs import Pack

if TYPE_CHECKING:
    from raglab.live.settings import Settings


class LiveClarifier(Clarification):
    """What asks and reads replies for a system; see `raglab.live.clarifier.Clarifier`."""

    __slots__ = ()
    ask = clarify_request
    reply = answer_reply


def make_clarifier(
    settings: Settings,
    chunks: Sequence[Chunk],
    ready: Retriever,
    pack: Pack,
    *,
    asks: bool,
    **own: Any,  # noqa: ANN401 - as `ProtocolCalls` takes them
) -> Clarifier:
    """Clarifier of an index.

    Args:
      settings: what the environment says of asking.
      chunks: of the corpus, without the rows of its tables.
      ready: the index, whose encoder compares.
      pack: of the trade.
      asks: whether for what a question leaves out; else choices among options alone are learned.
      **own: parser, gap_finder, reply_reader and field_reader of the user, None is the default, and
        timeout_s; see `ProtocolCalls`. They are called with an example.

    Raises:
      ValueError: one of the four fails on the example.
    """
    calls = ProtocolCalls(pack=pack, least=settings.clarify_min_field_confidence, **own)
    calls.check()
    index = DocumentIndex(tuple(chunks), ready, pack)
    return LiveClarifier(settings, settings.learner, index, calls, asks=asks)
