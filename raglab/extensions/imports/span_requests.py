"""Span requests (algebra): the spans of a request joined to a question with its hits, answer and feedback."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raglab.extensions.imports.span_parts import SpanDocument, SpanFeedback, SpanPart
from raglab.extensions.imports.spans import Losses
from raglab.values import LONGEST_QUESTION, MOST_HITS

LONGEST_ID, SHOWN_ID = 1_000, 40  # characters of a document's or trace's id, and of one in a message

# What users and annotators write for a good or a bad answer, in small letters.
GOOD = frozenset(
    {"true", "yes", "up", "thumbs_up", "thumbs-up", "positive", "good", "correct", "pass", "passed", "1", "1.0"}
)
BAD = frozenset(
    {"false", "no", "down", "thumbs_down", "thumbs-down", "negative", "bad", "incorrect", "wrong", "fail", "failed"}
    | {"0", "0.0", "-1"}
)


SIGNALS = {"retriever_score": "retrieved", "reranker_score": "reranked"}  # signal -> score of a hit


class RequestHit(NamedTuple):
    """A document that a request retrieved.

    Attributes:
      document: as the first span that gave it has it.
      retrieved: its score by the retriever, NaN where it has none.
      reranked: its score by the reranker, NaN where it has none.
    """

    document: SpanDocument
    retrieved: float
    reranked: float


class SpanRequest(NamedTuple):
    """A request that an application answered.

    Attributes:
      id: of its trace.
      start: nanoseconds since 1970.
      question: of the user.
      answer: as the application gave it, '' where no span states it.
      hits: in the final order: the reranker's, then the rest of the retriever's.
      feedback: on its answer.
      groups: its groups by name.
      slopes: by signal, 1 where its score falls down its own ranking, -1 where it rises, 0 where it does neither.
    """

    id: str
    start: int
    question: str
    answer: str
    hits: tuple[RequestHit, ...]
    feedback: tuple[SpanFeedback, ...]
    groups: Mapping[str, str]
    slopes: Mapping[str, int]


def joined_request(parts: Sequence[SpanPart], losses: Losses) -> SpanRequest | None:
    """The request of the spans of one trace; None where it is none that can be decided, which is counted.

    Args:
      parts: of one trace, in any order.
      losses: gets what is left out or merged.
    """
    once = {part.span_id: part for part in reversed(parts)} if all(part.span_id for part in parts) else {}
    place = f"trace {parts[0].trace_id:.{SHOWN_ID}}"
    if len(parts[0].trace_id) > LONGEST_ID:
        losses.add(f"traces have an id of more than {LONGEST_ID:,} characters and are left out", place)
        return None
    if once and len(once) < len(parts):
        losses.add("spans have the id of another of their trace and are left out", place, len(parts) - len(once))
        parts = list(once.values())
    ordered = sorted(parts, key=lambda part: (part.start, part.span_id))
    retrievers = [part for part in ordered if part.kind == "retriever"]
    if not retrievers:
        losses.add("traces have no retriever's span and are left out", place)
        return None
    ids = {part.span_id for part in ordered}
    roots = [part for part in ordered if not part.parent_id or part.parent_id not in ids]
    models = [part for part in ordered if part.kind == "model"]
    question = next((part.query for part in (*roots, *retrievers, *models) if part.query), "")
    if not question or len(question) > LONGEST_QUESTION:
        what = "no question" if not question else f"a question of more than {LONGEST_QUESTION:,} characters"
        losses.add(f"traces have {what} and are left out", place)
        return None
    if len(retrievers) > 1:
        losses.add("traces have several retrievers' spans, whose hits are joined in their order", place)
    rerankers = [part for part in ordered if part.kind == "reranker"]
    if len(rerankers) > 1:
        losses.add("traces have several rerankers' spans, of which the last counts", place)
    answer = next((part.answer for part in (*roots, *reversed(models)) if part.answer), "")
    retrieved, reranked = _by_id(retrievers, place, losses), _by_id(rerankers[-1:], place, losses)
    groups = {name: value for part in ordered for name, value in part.groups}
    return SpanRequest(
        parts[0].trace_id,
        min((part.start for part in roots), default=0),
        _encodable(question, place, losses),
        _encodable(answer, place, losses),
        _hits(retrieved, reranked, place, losses),
        tuple(feedback for part in ordered for feedback in part.feedback),
        {name: _encodable(value, place, losses) for name, value in groups.items()},
        dict(zip(SIGNALS, map(_slope, (retrieved, reranked)), strict=True)),
    )


def _encodable(text: str, place: str, losses: Losses) -> str:
    """A text without halves of characters, which no file can hold."""
    if text.isascii():
        return text
    plain = text.encode("utf-8", "replace").decode()
    if plain != text:
        losses.add("texts have halves of characters (lone surrogates), which are replaced by `?`", place)
    return plain


def _slope(ranking: Mapping[str, SpanDocument]) -> int:
    """How scores run down a ranking: 1 where they fall, -1 where they rise, by the first and the last of them."""
    scores = [document.score for document in ranking.values() if not math.isnan(document.score)]
    return 0 if len(scores) < 2 else (scores[0] > scores[-1]) - (scores[0] < scores[-1])


def _hits(
    retrieved: Mapping[str, SpanDocument], reranked: Mapping[str, SpanDocument], place: str, losses: Losses
) -> tuple[RequestHit, ...]:
    """Hits in their final order, a document once."""
    order = [*reranked, *(name for name in retrieved if name not in reranked)]
    if len(order) > MOST_HITS:
        losses.add(f"hits beyond the first {MOST_HITS:,} of a trace are left out", place, len(order) - MOST_HITS)
    hits = []
    for name in order[:MOST_HITS]:
        first, second = retrieved.get(name), reranked.get(name)
        document = _fuller(first or second, second or first)
        score = math.nan if first is None else first.score
        hits.append(RequestHit(document, score, math.nan if second is None else second.score))
    return tuple(hits)


def _fuller(first: SpanDocument | None, second: SpanDocument | None) -> SpanDocument:
    """Of two mentions of a document the first that has a text."""
    assert first is not None and second is not None  # noqa: PT018, S101 - one of the two is there
    return first if first.text or not second.text else second


def _by_id(parts: Iterable[SpanPart], place: str, losses: Losses) -> dict[str, SpanDocument]:
    """Documents by id, in their order; the first mention of one counts. One without an id is named by its text."""
    documents: dict[str, SpanDocument] = {}
    for part in parts:
        for document in part.documents:
            text = _encodable(document.text, place, losses)
            name = _encodable(document.id, place, losses)
            if len(name) > LONGEST_ID:
                losses.add(f"documents have an id of more than {LONGEST_ID:,} characters", place)
            if text and not 0 < len(name) <= LONGEST_ID:
                name = "text-" + hashlib.sha256(text.encode()).hexdigest()[:16]
                losses.add("documents without an id are named by a hash of their text", place)
            if not 0 < len(name) <= LONGEST_ID:
                losses.add("documents without an id or a text are left out", place)
            elif name in documents:
                losses.add("documents occur twice in a trace and count at their first place", place)
            else:
                source = _encodable(document.source, place, losses)
                documents[name] = SpanDocument(name, document.score, text, source, document.page)
    return documents


def feedback_label(feedback: Sequence[SpanFeedback], names: Sequence[str]) -> tuple[str | None, str]:
    """Label that feedback gives, None where it gives none, and why.

    A good answer is `ok`. A bad one should not have been given: `refuse`. What contradicts itself gives none.

    Args:
      feedback: on a request.
      names: of the judgements that count; all where it is empty.

    Example:
      >>> feedback_label([SpanFeedback("user", "thumbs_up", "human")], ())
      ('ok', 'feedback user=thumbs_up (human)')
    """
    read = [row for row in feedback if (not names or row.name in names) and row.value.lower() in GOOD | BAD]
    labels = {"ok" if row.value.lower() in GOOD else "refuse" for row in read}
    if len(labels) != 1:
        return None, "feedback contradicts itself" if labels else ""
    row = read[-1]
    return labels.pop(), f"feedback {row.name}={row.value} ({row.source})"
