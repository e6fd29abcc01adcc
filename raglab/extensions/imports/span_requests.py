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
from raglab.extensions.imports.span_parts import SEARCHES, SpanDocument, SpanFeedback, SpanPart
from raglab.signals import WIDEST_RANGE
from raglab.values import LONGEST_QUESTION

# characters of a document's or trace's id, and of one in a message
LONGEST_ID, SHOWN_ID = 1_000, 40

# What users and annotators write for a good or a bad answer, in small letters.
GOOD = frozenset(
    ("true", "yes", "up", "thumbs_up", "positive", "good", "correct", "pass", "passed", "👍", "1")
)
BAD = frozenset(
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
NUMBERS = frozenset(("1", "0", "-1"))  # of which a name must say the scale
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
    name = parts[0].trace_id
    place = f"trace {name:.{SHOWN_ID}}"
    if len(name) > LONGEST_ID:
        counts.add(
            f"traces have an id of more than {LONGEST_ID:,} characters and are left out", place
        )
        return []
    last = {part.span_id or number: part for number, part in enumerate(parts)}
    counts.add(
        "spans have the id of a later one of their trace and are left out",
        place,
        len(parts) - len(last),
    )
    ordered = sorted(last.values(), key=_time)
    turns = _turns(ordered)
    if len(turns) < 2:
        turns = {name: ordered}
    else:
        counts.add("traces have several turns, each of which is a case of its own", place)
        counts.add(
            "judgements are of several turns as a whole, and are no label",
            place,
            sum(len(part.feedback) for part in ordered)
            - sum(len(part.feedback) for turn in turns.values() for part in turn),
        )
    joined = (_joined(turn, own, place, counts) for own, turn in turns.items())
    return [request for request in joined if request]


def _levels(ordered: Sequence[SpanPart]) -> list[list[SpanPart]]:
    """Spans by their depth, the outermost first, each depth in order of time; circles are last."""
    ids = {part.span_id for part in ordered}
    below: dict[str, list[SpanPart]] = defaultdict(list)
    for part in ordered:
        is_inner = part.parent_id in ids and part.parent_id != part.span_id
        below[part.parent_id if is_inner else ""].append(part)
    levels = [below.pop("", [])]
    while levels[-1]:
        inner = chain.from_iterable(below.pop(part.span_id, ()) for part in levels[-1])
        levels.append(sorted(inner, key=_time))
    return [*levels, *below.values()]


def _turns(ordered: Sequence[SpanPart]) -> dict[str, list[SpanPart]]:
    """Spans of each turn by its name; those of none are left out."""
    levels = _levels(ordered)
    is_whole = len(levels[0]) == 1 and not levels[0][0].query
    first = {part.span_id: part.span_id for part in levels[is_whole]}
    spans: dict[str, list[SpanPart]] = defaultdict(list)
    for part in chain.from_iterable(levels):
        spans[first.setdefault(part.span_id, first.get(part.parent_id, ""))].append(part)
    turns = [
        sorted(turn, key=_time)
        for name, turn in spans.items()
        if name and turn[0].query and turn[0].kind not in SEARCHES
        if any(part.kind == "retriever" for part in turn)
    ]
    return {f"{ordered[0].trace_id}/{number}": turn for number, turn in enumerate(turns, start=1)}


def _joined(
    ordered: Sequence[SpanPart], name: str, place: str, counts: ImportCounts
) -> SpanRequest | None:
    """The request of some spans in the order of their time, None where it cannot be decided."""
    retrievers, rerankers, models = (
        [part for part in ordered if part.kind == kind]
        for kind in ("retriever", "reranker", "model")
    )
    levels = _levels(ordered)
    outer = list(chain.from_iterable(levels))
    steps = [part for part in outer if part.kind == "other"]
    question = next((part.query for part in (*steps, *retrievers, *models) if part.query), "")
    if obstacle := _obstacle(retrievers, question):
        counts.add(f"traces have {obstacle} and are left out", place)
        return None
    counts.add(
        "traces have several retrievers' spans, whose hits are joined in their order",
        place,
        len(retrievers) > 1,
    )
    counts.add(
        "traces have several rerankers' spans, of which the last counts", place, len(rerankers) > 1
    )
    groups: dict[str, str] = {}
    for group, value in chain.from_iterable(part.groups for part in outer):
        counts.add(
            "spans name another group than the outermost span, which counts",
            place,
            groups.setdefault(group, value) != value,
        )
    return SpanRequest(
        name,
        min((part.start for part in levels[0] if part.start), default=0),
        question,
        next((part.answer for part in (*levels[0], *reversed(models)) if part.answer), ""),
        _hits((retrievers, rerankers[-1:]), place, counts),
        tuple(row for part in ordered if part.kind not in SEARCHES for row in part.feedback),
        groups,
        next((part.decision for part in outer if part.decision), ""),
    )


def _obstacle(retrievers: Sequence[SpanPart], question: str) -> str:
    """What a request lacks to be decided, '' where it lacks nothing."""
    if not retrievers:
        return "no retriever's span"
    if all(part.is_failed and not part.documents for part in retrievers):
        return "a retriever that failed"
    if len(question) > LONGEST_QUESTION:
        return f"a question of more than {LONGEST_QUESTION:,} characters"
    return "" if question else "no question"


def _direction(parts: Iterable[SpanPart]) -> str:
    """Whether the scores of spans all fall or all rise down their own rankings, or are mixed."""
    lists = ([row.score for row in part.documents if row.score == row.score] for part in parts)
    steps = chain.from_iterable(map(pairwise, lists))
    signs = {first > second for first, second in steps if first != second}
    return "mixed" if len(signs) != 1 else "falls" if signs.pop() else "rises"


def _hits(
    searches: Sequence[Sequence[SpanPart]], place: str, counts: ImportCounts
) -> tuple[RequestHit, ...]:
    """Hits of retrievers and of a reranker in their final order, with the first text of each."""
    for signal, parts in zip(SIGNALS, searches, strict=True):
        counts.tallies[_direction(parts)][signal] += 1
    retrieved, reranked = (_by_id(parts, place, counts) for parts in searches)
    order = list(dict.fromkeys(chain(reranked, retrieved)))
    counts.add("requests retrieved no document and are cases without hits", place, not order)
    hits = []
    for name in order:
        first, second = retrieved.get(name, _NO_DOCUMENT), reranked.get(name, _NO_DOCUMENT)
        document = max(first, second, key=lambda own: (own.text > "", own.id > ""))
        hits.append(RequestHit(document, first.score, second.score))
        content = f"{document.source}\0{document.text}".encode()
        counts.add_document(name, hashlib.blake2b(content, digest_size=8).digest())
    for signal, field_name in SIGNALS.items():
        scores = [getattr(hit, field_name) for hit in hits]
        counts.tallies["scored"][signal] += len(scores) - sum(map(math.isnan, scores))
    counts.add(
        f"hits have no score, or none within ±{WIDEST_RANGE:.0e}",
        place,
        sum(math.isnan(hit.retrieved) and math.isnan(hit.reranked) for hit in hits),
    )
    return tuple(hits)


def _by_id(parts: Iterable[SpanPart], place: str, counts: ImportCounts) -> dict[str, SpanDocument]:
    """Documents by id, in their order; the first mention of one counts.

    One without an id is named by its text.
    """
    documents: dict[str, SpanDocument] = {}
    for document in chain.from_iterable(part.documents for part in parts):
        name = document.id if len(document.id) <= LONGEST_ID else ""
        if document.text and not name:
            name = "text-" + hashlib.sha256(document.text.encode()).hexdigest()[:16]
            counts.add("documents without an id are named by a hash of their text", place)
        if not name:
            counts.add("documents without an id or a text are left out", place)
        elif name in documents:
            counts.add("documents occur twice in a trace and count at their first place", place)
        else:
            documents[name] = document._replace(id=name)
    return documents


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
    place = f"trace {request.id:.{SHOWN_ID}}"
    read: dict[bool, SpanFeedback] = {}
    for row in request.feedback:
        is_good = _is_good(row, senses)
        if is_good is None or request.decision == "ambiguous":
            counts.add(
                f"judgements `{row.name:.{SHOWN_ID}}` are no label; state what a yes means by "
                "feedback=",
                place,
            )
        else:
            read[is_good] = row
    counts.add(
        "requests have feedback that contradicts itself and is no label", place, len(read) > 1
    )
    if len(read) != 1:
        return None, ""
    is_good, row = read.popitem()
    is_refusal = request.decision == "refuse"
    label = "ok" if is_good != is_refusal else "refuse"
    counts.add(
        f"labels are {label} by `{row.name:.{SHOWN_ID}}`; who gives feedback is no sample", place
    )
    counts.add(
        "labels are of requests that were refused: a good refusal is refuse", place, is_refusal
    )
    return label, f"feedback {row.name}={row.value} ({row.source})"


def _is_good(row: SpanFeedback, senses: Mapping[str, str]) -> bool | None:
    """Whether a judgement is good; None where it is none that counts."""
    value = re.sub(r"\b[ -]\b", "_", row.value.strip().lower()).removesuffix(".0")
    is_unclear = _SAYS_BAD.search(row.name) or value in NUMBERS
    if (row.name not in senses if senses else is_unclear) or value not in GOOD | BAD:
        return None
    return (value in GOOD) == (senses.get(row.name, "ok") == "ok")
