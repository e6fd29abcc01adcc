"""Span requests (algebra): request spans joined to a question with hits, answer and feedback."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from raglab.extensions.imports.span_parts import SpanDocument, SpanFeedback, SpanPart
from raglab.extensions.imports.spans import Losses
from raglab.values import LONGEST_QUESTION, MOST_HITS

# characters of a document's or trace's id, and of one in a message
LONGEST_ID, SHOWN_ID = 1_000, 40

# What users and annotators write for a good or a bad answer, in small letters.
GOOD = frozenset(
    {
        "true",
        "yes",
        "up",
        "thumbs_up",
        "thumbs-up",
        "positive",
        "good",
        "correct",
        "pass",
        "passed",
        "👍",
        "1",
        "1.0",
    }
)
BAD = frozenset(
    {
        "false",
        "no",
        "down",
        "thumbs_down",
        "thumbs-down",
        "negative",
        "bad",
        "incorrect",
        "wrong",
        "fail",
        "failed",
    }
    | {"👎", "0", "0.0", "-1"}
)
NUMBERS = frozenset({"1", "1.0", "0", "0.0", "-1"})  # of which a name must say the scale
# Names of judgements whose yes is bad.
_SAYS_BAD = re.compile(
    r"hallucinat|toxic|pii|harm|bias|refus|error|unsafe|fail|wrong|incorrect|violat|leak",
    re.IGNORECASE,
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
      slopes: by signal, 1 where its score falls down its own ranking, -1 where it rises, 0 where it
        does neither.
      decision: that the application logged, '' where it logged none.
    """

    id: str
    start: int
    question: str
    answer: str
    hits: tuple[RequestHit, ...]
    feedback: tuple[SpanFeedback, ...]
    groups: Mapping[str, str]
    slopes: Mapping[str, int]
    decision: str = ""


def request_of_row(row: Sequence[Any]) -> SpanRequest:
    """A request that was written as JSON."""
    request = SpanRequest(*row)
    return request._replace(
        hits=tuple(
            RequestHit(SpanDocument(*document), *scores) for document, *scores in request.hits
        ),
        feedback=tuple(SpanFeedback(*fields) for fields in request.feedback),
    )


def joined_requests(parts: Sequence[SpanPart], losses: Losses) -> list[SpanRequest]:
    """The requests of the spans of one trace: one, or one a turn of a conversation.

    What is none is counted.

    Turns are spans that have a question and retrieval below them, where the trace as a whole states
    no question: its first spans, or those right below a first span without a question.

    Args:
      parts: of one trace, in any order.
      losses: gets what is left out or merged.
    """
    place = f"trace {parts[0].trace_id:.{SHOWN_ID}}"
    if len(parts[0].trace_id) > LONGEST_ID:
        losses.add(
            f"traces have an id of more than {LONGEST_ID:,} characters and are left out", place
        )
        return []
    once = {part.span_id: part for part in parts} if all(part.span_id for part in parts) else {}
    if once and len(once) < len(parts):
        losses.add(
            "spans have the id of a later one of their trace and are left out",
            place,
            len(parts) - len(once),
        )
        parts = list(once.values())
    ordered = sorted(parts, key=lambda part: (part.start, part.span_id))
    turns = _turns(ordered)
    if len(turns) < 2:
        request = _joined(ordered, ordered[0].trace_id, place, losses)
        return [] if request is None else [request]
    losses.add("traces have several turns, each of which is a case of its own", place)
    if any(part.feedback for part in ordered if not any(part in turn for turn in turns)):
        losses.add("traces of several turns have feedback as a whole, which is no label", place)
    joined = (
        _joined(turn, f"{turn[0].trace_id}/{number}", place, losses)
        for number, turn in enumerate(turns, start=1)
    )
    return [request for request in joined if request is not None]


def _turns(ordered: Sequence[SpanPart]) -> list[list[SpanPart]]:
    """Spans of each turn, the one with its question first; those of none are left out."""
    ids = {part.span_id for part in ordered if part.span_id}
    below: dict[str, list[SpanPart]] = {}
    for part in ordered:
        below.setdefault(part.parent_id if part.parent_id in ids else "", []).append(part)
    first = below.get("", [])
    if len(first) == 1 and not first[0].query:
        first = below.get(first[0].span_id, [])
    turns = []
    for part in first:
        spans, waiting = [part], list(below.get(part.span_id, ())) if part.span_id else []
        while waiting:
            spans.append(waiting.pop(0))
            waiting += below.pop(spans[-1].span_id, ()) if spans[-1].span_id else ()
        is_turn = part.query and part.kind not in {"retriever", "reranker"}
        if is_turn and any(span.kind == "retriever" for span in spans):
            turns.append([part, *sorted(spans[1:], key=lambda span: (span.start, span.span_id))])
    return turns


def _joined(
    ordered: Sequence[SpanPart], name: str, place: str, losses: Losses
) -> SpanRequest | None:
    """The request of some spans in the order of their time.

    None where it is none that can be decided.
    """
    retrievers = [part for part in ordered if part.kind == "retriever"]
    if not retrievers:
        losses.add("traces have no retriever's span and are left out", place)
        return None
    if all(part.is_failed and not part.documents for part in retrievers):
        losses.add("traces have a retriever that failed and are left out", place)
        return None
    by_depth = _by_depth(ordered)
    roots = [part for part, depth in by_depth if depth == 0]
    stated = [part for part, _ in by_depth if part.kind == "other"]
    models = [part for part in ordered if part.kind == "model"]
    question = next((part.query for part in (*stated, *retrievers, *models) if part.query), "")
    if not question or len(question) > LONGEST_QUESTION:
        what = (
            "no question"
            if not question
            else f"a question of more than {LONGEST_QUESTION:,} characters"
        )
        losses.add(f"traces have {what} and are left out", place)
        return None
    if len(retrievers) > 1:
        losses.add(
            "traces have several retrievers' spans, whose hits are joined in their order", place
        )
    rerankers = [part for part in ordered if part.kind == "reranker"]
    if len(rerankers) > 1:
        losses.add("traces have several rerankers' spans, of which the last counts", place)
    answer = next((part.answer for part in (*roots, *reversed(models)) if part.answer), "")
    retrieved, reranked = _by_id(retrievers, place, losses), _by_id(rerankers[-1:], place, losses)
    return SpanRequest(
        name,
        min((part.start for part in roots), default=0),
        _encodable(question, place, losses),
        _encodable(answer, place, losses),
        _hits(retrieved, reranked, place, losses),
        tuple(
            feedback
            for part in ordered
            if part.kind not in {"retriever", "reranker"}
            for feedback in part.feedback
        ),
        _groups(by_depth, place, losses),
        {"retriever_score": _slope(retrievers), "reranker_score": _slope(rerankers[-1:])},
        next((part.decision for part, _ in by_depth if part.decision), ""),
    )


def _by_depth(ordered: Sequence[SpanPart]) -> list[tuple[SpanPart, int]]:
    """Spans with their depth, the outermost first, and those of one depth in order of time."""
    parents = {part.span_id: part.parent_id for part in ordered if part.span_id}

    def depth(part: SpanPart) -> int:
        number, at, passed = 0, part.parent_id, {part.span_id}
        while at in parents and at not in passed:  # a circle of parents ends
            passed.add(at)
            number, at = number + 1, parents[at]
        return number

    return sorted(((part, depth(part)) for part in ordered), key=lambda row: row[1])


def _groups(by_depth: Sequence[tuple[SpanPart, int]], place: str, losses: Losses) -> dict[str, str]:
    """Groups of a request; where its spans differ, the outermost counts."""
    groups: dict[str, str] = {}
    for part, _ in by_depth:
        for name, value in part.groups:
            if groups.setdefault(name, _encodable(value, place, losses)) != value:
                losses.add("spans name another group than the outermost span, which counts", place)
    return groups


def _encodable(text: str, place: str, losses: Losses) -> str:
    """A text without halves of characters, which no file can hold."""
    if text.isascii():
        return text
    plain = text.encode("utf-8", "replace").decode()
    if plain != text:
        losses.add(
            "texts have halves of characters (lone surrogates), which are replaced by `?`", place
        )
    return plain


def _slope(parts: Sequence[SpanPart]) -> int:
    """How the scores of spans run down their own rankings.

    1 where all fall, -1 where all rise, else 0.
    """
    signs = set()
    for part in parts:
        scores = [document.score for document in part.documents if not math.isnan(document.score)]
        steps = {(left > right) - (left < right) for left, right in pairwise(scores)} - {0}
        signs |= steps
    return signs.pop() if len(signs) == 1 else 0


def _hits(
    retrieved: Mapping[str, SpanDocument],
    reranked: Mapping[str, SpanDocument],
    place: str,
    losses: Losses,
) -> tuple[RequestHit, ...]:
    """Hits in their final order, a document once."""
    order = [*reranked, *(name for name in retrieved if name not in reranked)]
    if len(order) > MOST_HITS:
        losses.add(
            f"hits beyond the first {MOST_HITS:,} of a trace are left out",
            place,
            len(order) - MOST_HITS,
        )
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
    """Documents by id, in their order; the first mention of one counts.

    One without an id is named by its text.
    """
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


def feedback_label(
    feedback: Sequence[SpanFeedback], senses: Mapping[str, str], decision: str = ""
) -> tuple[str | None, str]:
    """Label that feedback gives, None where it gives none, and why.

    A good answer is `ok`. A bad one should not have been given: `refuse`. Of a request that was
    refused, a good decision is `refuse`, a bad one `ok`; one that was asked back gives no label.
    Feedback that contradicts itself gives none. Numbers count where their name is stated, 1 and 0
    alone.

    Args:
      feedback: on a request.
      senses: of the judgements that count, `ok` where a yes is good and `refuse` where it is bad;
        where it is empty, all but those whose name says something bad, such as `toxicity`.
      decision: of the request, as it was logged.

    Example:
      >>> feedback_label([SpanFeedback("user", "thumbs_up", "human")], {})
      ('ok', 'feedback user=thumbs_up (human)')
      >>> feedback_label([SpanFeedback("toxicity", "1", "judge")], {"toxicity": "refuse"})
      ('refuse', 'feedback toxicity=1 (judge)')
    """
    read = [(is_good, row) for row in feedback if (is_good := _is_good(row, senses)) is not None]
    kinds = {is_good for is_good, _ in read}
    if len(kinds) != 1:
        return None, "feedback contradicts itself" if kinds else ""
    is_good, row = read[-1]
    if decision == "ambiguous":
        return None, ""
    label = "ok" if is_good == (decision != "refuse") else "refuse"
    return label, f"feedback {row.name}={row.value} ({row.source})"


def _is_good(row: SpanFeedback, senses: Mapping[str, str]) -> bool | None:
    """Whether a judgement is good; None where it is none that counts."""
    value = row.value.strip().lower().replace(" ", "_")
    if senses and row.name not in senses:
        return None
    if not senses and (_SAYS_BAD.search(row.name) or value in NUMBERS):
        return None
    if value not in GOOD | BAD:
        return None
    return (value in GOOD) == (senses.get(row.name, "ok") == "ok")
