"""Span requests (algebra): the spans of a trace joined to questions with hits and feedback."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from raglab.extensions.imports.import_counts import SIGNALS, ImportCounts
from raglab.extensions.imports.span_parts import SEARCH_KINDS, SpanDocument, SpanFeedback, SpanPart
from raglab.signals import WIDEST_RANGE
from raglab.values import LONGEST_QUESTION

# characters of a document's or trace's id, and of one in a message
MAX_ID_LENGTH = 1_000
SHOWN_ID_LENGTH = 40

# What users and annotators write for a good or a bad answer, in small letters.
GOOD_WORDS = frozenset(
    ("true", "yes", "up", "thumbs_up", "positive", "good", "correct", "pass", "passed", "👍", "1")
)
BAD_WORDS = frozenset(
    (
        "false",
        "no",
        "down",
        "thumbs_down",
        "negative",
        "bad",
        "incorrect",
        "wrong",
        "fail",
        "failed",
        "👎",
        "0",
        "-1",
    )
)
NUMBER_WORDS = frozenset(("1", "0", "-1"))  # of which a name must say the scale
# Names of judgements whose yes is bad.
_SAYS_BAD = re.compile(
    r"hallucinat|toxic|pii|harm|bias|refus|error|unsafe|fail|wrong|incorrect|violat|leak",
    re.IGNORECASE,
)


_time = attrgetter("start", "span_id")


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


_NO_DOCUMENT = SpanDocument("", math.nan, "", "", None)


class SpanRequest(NamedTuple):
    """A request that an application answered.

    Attributes:
      id: of its trace.
      start: nanoseconds since 1970, 0 where no span states it.
      question: of the user.
      answer: as the application gave it, '' where no span states it.
      hits: in the final order: the reranker's, then the rest of the retriever's.
      feedback: on its answer.
      groups: its groups by name.
      decision: that the application logged, '' where it logged none.
      label: by feedback, None without one.
      notes: source of the label, '' without one.
    """

    id: str
    start: int
    question: str
    answer: str
    hits: tuple[RequestHit, ...]
    feedback: tuple[SpanFeedback, ...]
    groups: Mapping[str, str] = MappingProxyType({})
    decision: str = ""
    label: str | None = None
    notes: str = ""


def joined_requests(parts: Sequence[SpanPart], counts: ImportCounts) -> list[SpanRequest]:
    """The requests of the spans of one trace: one, or one a turn of a conversation.

    What is none is counted.

    Turns are spans that have a question and retrieval below them, where the trace as a whole states
    no question: its first spans, or those right below a first span without a question.

    Args:
      parts: of one trace, in any order.
      counts: gets what is left out or merged.
    """
    trace_id = parts[0].trace_id
    trace_text = f"trace {trace_id:.{SHOWN_ID_LENGTH}}"
    if len(trace_id) > MAX_ID_LENGTH:
        counts.add(
            f"traces have an id of more than {MAX_ID_LENGTH:,} characters and are left out",
            trace_text,
        )
        return []
    parts_by_span = {
        span_part.span_id or part_number: span_part for part_number, span_part in enumerate(parts)
    }
    counts.add(
        "spans have the id of a later one of their trace and are left out",
        trace_text,
        len(parts) - len(parts_by_span),
    )
    ordered_parts = sorted(parts_by_span.values(), key=_time)
    parts_by_turn = _turns(ordered_parts)
    if len(parts_by_turn) < 2:
        parts_by_turn = {trace_id: ordered_parts}
    else:
        counts.add("traces have several turns, each of which is a case of its own", trace_text)
        counts.add(
            "judgements are of several turns as a whole, and are no label",
            trace_text,
            sum(len(span_part.feedback) for span_part in ordered_parts)
            - sum(
                len(span_part.feedback)
                for turn_parts in parts_by_turn.values()
                for span_part in turn_parts
            ),
        )
    turn_requests = (
        _joined(turn_parts, turn_id, trace_text, counts)
        for turn_id, turn_parts in parts_by_turn.items()
    )
    return [request for request in turn_requests if request]


def _levels(ordered_parts: Sequence[SpanPart]) -> list[list[SpanPart]]:
    """Spans by their depth, the outermost first, each depth in order of time; circles are last."""
    span_ids = {span_part.span_id for span_part in ordered_parts}
    parts_by_parent: dict[str, list[SpanPart]] = defaultdict(list)
    for span_part in ordered_parts:
        is_inner = span_part.parent_id in span_ids and span_part.parent_id != span_part.span_id
        parts_by_parent[span_part.parent_id if is_inner else ""].append(span_part)
    depth_levels = [parts_by_parent.pop("", [])]
    while depth_levels[-1]:
        inner_parts = chain.from_iterable(
            parts_by_parent.pop(span_part.span_id, ()) for span_part in depth_levels[-1]
        )
        depth_levels.append(sorted(inner_parts, key=_time))
    return [*depth_levels, *parts_by_parent.values()]


def _turns(ordered_parts: Sequence[SpanPart]) -> dict[str, list[SpanPart]]:
    """Spans of each turn by its name; those of none are left out."""
    depth_levels = _levels(ordered_parts)
    is_whole = len(depth_levels[0]) == 1 and not depth_levels[0][0].query
    turn_by_span = {span_part.span_id: span_part.span_id for span_part in depth_levels[is_whole]}
    parts_by_turn: dict[str, list[SpanPart]] = defaultdict(list)
    for span_part in chain.from_iterable(depth_levels):
        parts_by_turn[
            turn_by_span.setdefault(span_part.span_id, turn_by_span.get(span_part.parent_id, ""))
        ].append(span_part)
    question_turns = [
        sorted(turn_parts, key=_time)
        for turn_id, turn_parts in parts_by_turn.items()
        if turn_id and turn_parts[0].query and turn_parts[0].kind not in SEARCH_KINDS
        if any(span_part.kind == "retriever" for span_part in turn_parts)
    ]
    return {
        f"{ordered_parts[0].trace_id}/{turn_number}": turn_parts
        for turn_number, turn_parts in enumerate(question_turns, start=1)
    }


def _joined(
    ordered_parts: Sequence[SpanPart], request_id: str, trace_text: str, counts: ImportCounts
) -> SpanRequest | None:
    """The request of some spans in the order of their time, None where it cannot be decided."""
    retrievers, rerankers, models = (
        [span_part for span_part in ordered_parts if span_part.kind == search_kind]
        for search_kind in ("retriever", "reranker", "model")
    )
    depth_levels = _levels(ordered_parts)
    outer_first = list(chain.from_iterable(depth_levels))
    other_parts = [span_part for span_part in outer_first if span_part.kind == "other"]
    question = next(
        (span_part.query for span_part in (*other_parts, *retrievers, *models) if span_part.query),
        "",
    )
    if obstacle := _obstacle(retrievers, question):
        counts.add(f"traces have {obstacle} and are left out", trace_text)
        return None
    counts.add(
        "traces have several retrievers' spans, whose hits are joined in their order",
        trace_text,
        len(retrievers) > 1,
    )
    counts.add(
        "traces have several rerankers' spans, of which the last counts",
        trace_text,
        len(rerankers) > 1,
    )
    request_groups: dict[str, str] = {}
    for group_name, group_value in chain.from_iterable(
        span_part.groups for span_part in outer_first
    ):
        counts.add(
            "spans name another group than the outermost span, which counts",
            trace_text,
            request_groups.setdefault(group_name, group_value) != group_value,
        )
    return SpanRequest(
        request_id,
        min((span_part.start for span_part in depth_levels[0] if span_part.start), default=0),
        question,
        next(
            (
                span_part.answer
                for span_part in (*depth_levels[0], *reversed(models))
                if span_part.answer
            ),
            "",
        ),
        _hits((retrievers, rerankers[-1:]), trace_text, counts),
        tuple(
            feedback
            for span_part in ordered_parts
            if span_part.kind not in SEARCH_KINDS
            for feedback in span_part.feedback
        ),
        request_groups,
        next((span_part.decision for span_part in outer_first if span_part.decision), ""),
    )


def _obstacle(retrievers: Sequence[SpanPart], question: str) -> str:
    """What a request lacks to be decided, '' where it lacks nothing."""
    if not retrievers:
        return "no retriever's span"
    if all(retriever.is_failed and not retriever.documents for retriever in retrievers):
        return "a retriever that failed"
    if len(question) > LONGEST_QUESTION:
        return f"a question of more than {LONGEST_QUESTION:,} characters"
    return "" if question else "no question"


def _direction(span_parts: Iterable[SpanPart]) -> str:
    """Whether the scores of spans all fall or all rise down their own rankings, or are mixed."""
    score_lists = (
        [document.score for document in span_part.documents if document.score == document.score]
        for span_part in span_parts
    )
    score_steps = chain.from_iterable(map(pairwise, score_lists))
    is_falling = {
        earlier_score > later_score
        for earlier_score, later_score in score_steps
        if earlier_score != later_score
    }
    return "mixed" if len(is_falling) != 1 else "falls" if is_falling.pop() else "rises"


def _hits(
    parts_by_search: Sequence[Sequence[SpanPart]], trace_text: str, counts: ImportCounts
) -> tuple[RequestHit, ...]:
    """Hits of retrievers and of a reranker in their final order, with the first text of each."""
    for signal_name, search_parts in zip(SIGNALS, parts_by_search, strict=True):
        counts.tallies[_direction(search_parts)][signal_name] += 1
    retrieved_documents, reranked_documents = (
        _by_id(search_parts, trace_text, counts) for search_parts in parts_by_search
    )
    document_ids = list(dict.fromkeys(chain(reranked_documents, retrieved_documents)))
    counts.add(
        "requests retrieved no document and are cases without hits", trace_text, not document_ids
    )
    request_hits = []
    for document_id in document_ids:
        by_retriever = retrieved_documents.get(document_id, _NO_DOCUMENT)
        by_reranker = reranked_documents.get(document_id, _NO_DOCUMENT)
        document = max(
            by_retriever,
            by_reranker,
            key=lambda candidate: (candidate.text > "", candidate.id > ""),
        )
        request_hits.append(RequestHit(document, by_retriever.score, by_reranker.score))
        content = f"{document.source}\0{document.text}".encode()
        counts.add_document(document_id, hashlib.blake2b(content, digest_size=8).digest())
    for signal_name, field_name in SIGNALS.items():
        hit_scores = [getattr(hit, field_name) for hit in request_hits]
        counts.tallies["scored"][signal_name] += len(hit_scores) - sum(map(math.isnan, hit_scores))
    counts.add(
        f"hits have no score, or none within ±{WIDEST_RANGE:.0e}",
        trace_text,
        sum(math.isnan(hit.retrieved) and math.isnan(hit.reranked) for hit in request_hits),
    )
    return tuple(request_hits)


def _by_id(
    span_parts: Iterable[SpanPart], trace_text: str, counts: ImportCounts
) -> dict[str, SpanDocument]:
    """Documents by id, in their order; the first mention of one counts.

    One without an id is named by its text.
    """
    documents_by_id: dict[str, SpanDocument] = {}
    for document in chain.from_iterable(span_part.documents for span_part in span_parts):
        document_id = document.id if len(document.id) <= MAX_ID_LENGTH else ""
        if document.text and not document_id:
            document_id = "text-" + hashlib.sha256(document.text.encode()).hexdigest()[:16]
            counts.add("documents without an id are named by a hash of their text", trace_text)
        if not document_id:
            counts.add("documents without an id or a text are left out", trace_text)
        elif document_id in documents_by_id:
            counts.add(
                "documents occur twice in a trace and count at their first place", trace_text
            )
        else:
            documents_by_id[document_id] = document._replace(id=document_id)
    return documents_by_id


def feedback_label(
    request: SpanRequest, senses: Mapping[str, str], counts: ImportCounts
) -> tuple[str | None, str]:
    """Label that the feedback on a request gives, None where it gives none, and its source.

    A good answer is `ok`. A bad one should not have been given: `refuse`. Of a request that was
    refused, a good decision is `refuse`, a bad one `ok`; one that was asked back gives no label.
    Feedback that contradicts itself gives none. Numbers count where their name is stated, 1 and 0
    alone.

    Args:
      request: with feedback.
      senses: of the judgements that count, `ok` where a yes is good and `refuse` where it is bad;
        where it is empty, all but those whose name says something bad, such as `toxicity`.
      counts: gets labels, and judgements that are none.

    Example:
      >>> request = SpanRequest("a", 0, "excess?", "250", (), (SpanFeedback("pii", "1", "judge"),))
      >>> feedback_label(request, {"pii": "refuse"}, ImportCounts())
      ('refuse', 'feedback pii=1 (judge)')
    """
    trace_text = f"trace {request.id:.{SHOWN_ID_LENGTH}}"
    feedback_by_sense: dict[bool, SpanFeedback] = {}
    for feedback in request.feedback:
        is_good = _is_good(feedback, senses)
        if is_good is None or request.decision == "ambiguous":
            counts.add(
                f"judgements `{feedback.name:.{SHOWN_ID_LENGTH}}` are no label; "
                "state what a yes means by feedback=",
                trace_text,
            )
        else:
            feedback_by_sense[is_good] = feedback
    counts.add(
        "requests have feedback that contradicts itself and is no label",
        trace_text,
        len(feedback_by_sense) > 1,
    )
    if len(feedback_by_sense) != 1:
        return None, ""
    is_good, feedback = feedback_by_sense.popitem()
    is_refusal = request.decision == "refuse"
    status_label = "ok" if is_good != is_refusal else "refuse"
    counts.add(
        f"labels are {status_label} by `{feedback.name:.{SHOWN_ID_LENGTH}}`; "
        "who gives feedback is no sample",
        trace_text,
    )
    counts.add(
        "labels are of requests that were refused: a good refusal is refuse", trace_text, is_refusal
    )
    return status_label, f"feedback {feedback.name}={feedback.value} ({feedback.source})"


def _is_good(feedback: SpanFeedback, senses: Mapping[str, str]) -> bool | None:
    """Whether a judgement is good; None where it is none that counts."""
    feedback_word = re.sub(r"\b[ -]\b", "_", feedback.value.strip().lower()).removesuffix(".0")
    is_unclear = _SAYS_BAD.search(feedback.name) or feedback_word in NUMBER_WORDS
    if (
        feedback.name not in senses if senses else is_unclear
    ) or feedback_word not in GOOD_WORDS | BAD_WORDS:
        return None
    return (feedback_word in GOOD_WORDS) == (senses.get(feedback.name, "ok") == "ok")
