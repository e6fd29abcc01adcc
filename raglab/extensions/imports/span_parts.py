"""Span parts (shore): what a span says of a request, by the common conventions.

They are those of OpenInference, OpenTelemetry and MLflow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from raglab.extensions.imports.spans import LoggedSpan
from raglab.signals import ANY

Kind = Literal["retriever", "reranker", "model", "other"]
DOCUMENTS: Mapping[str, str] = {
    "retrieval.documents": "retriever",
    "reranker.output_documents": "reranker",
}
MODEL_OPERATIONS = frozenset({"chat", "text_completion", "generate_content"})
QUESTION_KEYS = ("question", "query", "input", "text", "prompt", "query_str")
ANSWER_KEYS = ("answer", "output", "result", "response", "text", "content")
SOURCE_KEYS = ("source", "doc_uri", "file_path", "file_name", "filename", "path", "url", "uri")
ID_KEYS = ("id", "document_id", "doc_id", "chunk_id", "node_id")
SCORE_KEYS = ("score", "relevance_score")
PAGE_KEYS = ("page", "page_number")
TEXT_KEYS = ("content", "text", "page_content")
# of a retriever, the first
OUTPUT_KEYS = ("gen_ai.retrieval.documents", "mlflow.spanOutputs", "output.value")
EVALUATION, DECISION = "gen_ai.evaluation.result", "raglab.decision"
_DOCUMENT_STARTS = tuple(prefix.partition(".")[0] for prefix in DOCUMENTS)
_MOST_DIGITS = 6  # of the number of a document


class SpanDocument(NamedTuple):
    """A document of a retriever or reranker.

    Attributes:
      id: as the span states it; "" where it states none.
      score: as the span states it, NaN where it states none.
      text: of the document.
      source: path or address of the file that it is of.
      page: of the file.
    """

    id: str
    score: float
    text: str
    source: str
    page: int | None


class SpanFeedback(NamedTuple):
    """A judgement of an answer: of a user, an annotator or a judge.

    Attributes:
      name: of what was judged.
      value: as it was stated.
      source: who or what judged.
    """

    name: str
    value: str
    source: str


class SpanPart(NamedTuple):
    """What a span says of its request.

    Attributes:
      trace_id: of the request.
      span_id: its own.
      parent_id: of the operation that it is a part of.
      start: nanoseconds since 1970.
      kind: of the operation.
      query: text that it was given.
      answer: text that it gave.
      documents: that it gave, in their order.
      feedback: on it.
      groups: values of the attributes that name the request's groups, of the span or of its
        resource.
      decision: that it states, `ok`, `refuse` or `ambiguous`; '' where it states none.
      is_failed: whether its status is an error.
    """

    trace_id: str
    span_id: str
    parent_id: str
    start: int
    kind: Kind
    query: str
    answer: str
    documents: tuple[SpanDocument, ...]
    feedback: tuple[SpanFeedback, ...]
    groups: tuple[tuple[str, str], ...]
    decision: str = ""
    is_failed: bool = False


def part_of_row(row: Sequence[Any]) -> SpanPart:
    """A part that was written as JSON."""
    part = SpanPart(*row)
    return part._replace(
        documents=tuple(SpanDocument(*fields) for fields in part.documents),
        feedback=tuple(SpanFeedback(*fields) for fields in part.feedback),
        groups=tuple((name, value) for name, value in part.groups),
    )


def span_part(span: LoggedSpan, groups: Sequence[str] = ()) -> SpanPart:
    """What a span says of its request.

    Args:
      span: to read.
      groups: names of attributes that name groups, such as `tenant.id`.

    Example:
      >>> attributes = {
      ...     "openinference.span.kind": "RETRIEVER",
      ...     "input.value": "the excess?",
      ...     "retrieval.documents.0.document.id": "a",
      ...     "retrieval.documents.0.document.score": 0.9,
      ... }
      >>> part = span_part(LoggedSpan("t", "s", "", "search", 0, attributes))
      >>> part.kind, part.query, [(document.id, document.score) for document in part.documents]
      ('retriever', 'the excess?', [('a', 0.9)])
    """
    attributes = span.attributes
    kind = _kind(attributes)
    documents: tuple[SpanDocument, ...] = ()
    names = [name for name in attributes if name.startswith(_DOCUMENT_STARTS)]
    for prefix, of_kind in DOCUMENTS.items() if names else ():
        if records := _numbered(attributes, prefix):
            # of `DOCUMENTS`
            kind, documents = of_kind, tuple(map(_document, records))  # type: ignore[assignment]
    if kind in {"retriever", "reranker"}:
        output = next((attributes[key] for key in OUTPUT_KEYS if attributes.get(key)), ())
        listed = tuple(_document(record) for record in _records(output))
        # an SDK keeps only so many attributes
        documents = listed if len(listed) > len(documents) else documents
    stated = {name: attributes.get(name, span.resource.get(name)) for name in groups}
    return SpanPart(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start,
        kind,
        _query(attributes),
        "" if kind in {"retriever", "reranker"} else _answer(attributes),
        documents,
        tuple(_feedback(event) for name, event in span.events if name == EVALUATION),
        tuple((name, str(value)) for name, value in stated.items() if value is not None),
        str(attributes.get(DECISION) or ""),
        span.is_failed,
    )


def _kind(attributes: Mapping[str, Any]) -> Kind:
    stated = attributes.get("openinference.span.kind") or attributes.get("mlflow.spanType") or ""
    name = str(stated).strip('"').lower()
    operation = str(attributes.get("gen_ai.operation.name", "")).lower()
    if name == "reranker" or operation == "rerank":
        return "reranker"
    if (
        name == "retriever"
        or operation in {"retrieval", "retrieve"}
        or "gen_ai.retrieval.documents" in attributes
    ):
        return "retriever"
    return "model" if name in {"llm", "chat_model"} or operation in MODEL_OPERATIONS else "other"


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Records of numbered attributes, `retrieval.documents.0.document.id`, or of an object.

    The object has the same names.
    """
    records: dict[int, dict[str, Any]] = {}
    for name in [name for name in attributes if name.startswith(prefix)]:
        number, _, key = name[len(prefix) + 1 :].partition(".")
        if key and number.isdecimal() and len(number) <= _MOST_DIGITS and name[len(prefix)] == ".":
            records.setdefault(int(number), {})[key.removeprefix("document.")] = attributes[name]
    if records:
        return [records[number] for number in sorted(records)]
    first, _, last = prefix.partition(".")
    whole = attributes.get(prefix)
    nested = attributes.get(first)
    if whole is None and isinstance(nested, Mapping):
        whole = nested.get(last)
    return _records(() if whole is None else whole)


def _records(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of JSON
    """Objects of a list, or of the JSON text of one.

    Each within its `document` where it has one.
    """
    value = _parsed(value)
    rows = value if isinstance(value, list | tuple) else ()
    records: list[Any] = [{"content": row} if isinstance(row, str) else row for row in rows]
    records = [
        {key.removeprefix("document."): field for key, field in record.items()}
        if isinstance(record, dict)
        else record
        for record in records
    ]
    return [
        {**record, **record["document"]} if isinstance(record.get("document"), Mapping) else record
        for record in records
        if isinstance(record, dict)
    ]


def _document(record: Mapping[str, Any]) -> SpanDocument:
    metadata = _parsed(record.get("metadata"))
    more: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    page = _first(record, PAGE_KEYS) or _first(more, PAGE_KEYS)
    score = _first_number(record, SCORE_KEYS)
    return SpanDocument(
        _first(record, ID_KEYS) or _first(more, ID_KEYS),
        _first_number(more, SCORE_KEYS) if math.isnan(score) else score,
        _first(record, TEXT_KEYS),
        _first(record, SOURCE_KEYS) or _first(more, SOURCE_KEYS),
        int(page) if page.isdecimal() and 0 < len(page) <= _MOST_DIGITS and int(page) > 0 else None,
    )


def _first(record: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Text of the first key that a record has, '' where it has none."""
    for key in keys:
        value = record.get(key)
        if value is not None and value != "":
            return value if isinstance(value, str) else str(value)
    return ""


def _first_number(record: Mapping[str, Any], keys: Iterable[str]) -> float:
    """The first number of some keys that a signal may have, NaN where there is none.

    A truth value is no number.
    """
    for key in keys:
        value = record.get(key)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if abs(number) <= ANY:
                return number
    return math.nan


def _parsed(value: Any) -> Any:  # noqa: ANN401 - of JSON
    """The value of a JSON text that is an object, a list or a text; any other value as it is."""
    if isinstance(value, str) and value[:1] in {"{", "[", '"'}:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _query(attributes: Mapping[str, Any]) -> str:
    for name in (
        "gen_ai.retrieval.query.text",
        "reranker.query",
        "input.value",
        "mlflow.spanInputs",
    ):
        if name in attributes and (
            text := _text_of(_parsed(attributes[name]), QUESTION_KEYS, "user")
        ):
            return text
    return _text_of(_parsed(attributes.get("gen_ai.input.messages")), QUESTION_KEYS, "user")


def _answer(attributes: Mapping[str, Any]) -> str:
    for name in ("output.value", "gen_ai.output.messages", "mlflow.spanOutputs"):
        if name in attributes and (
            text := _text_of(_parsed(attributes[name]), ANSWER_KEYS, "assistant")
        ):
            return text
    return ""


def _text_of(value: Any, keys: Sequence[str], role: str) -> str:  # noqa: ANN401 - of JSON
    """The text of an input or output.

    Itself, that of a known key, or that of the last message of a role.
    """
    if isinstance(value, str):
        return "" if value == "null" else value.strip()
    if isinstance(value, Mapping):
        messages = value.get("messages") or value.get("choices")
        if isinstance(messages, list):
            return _text_of(messages, keys, role)
        known = next(
            (value[key] for key in keys if isinstance(value.get(key), str | list | Mapping)), None
        )
        return "" if known is None else _text_of(known, keys, role)
    if isinstance(value, list):
        messages = [row.get("message", row) for row in value if isinstance(row, Mapping)]
        own = [
            row for row in messages if isinstance(row, Mapping) and row.get("role", role) == role
        ]
        return _message_text(own[-1]) if own else ""
    return ""


def _message_text(message: Mapping[str, Any]) -> str:
    """Text of a message, whose parts are joined."""
    content = message.get("content", message.get("parts", ""))
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else ()
    texts = [
        str(part.get("text") or part.get("content") or "")
        for part in parts
        if isinstance(part, Mapping)
    ]
    return " ".join(text.strip() for text in texts if text.strip())


def _feedback(event: Mapping[str, Any]) -> SpanFeedback:
    value = event.get(
        "gen_ai.evaluation.score.label", event.get("gen_ai.evaluation.score.value", "")
    )
    source = str(event.get("gen_ai.evaluation.source") or "evaluation")
    return SpanFeedback(str(event.get("gen_ai.evaluation.name", "")), str(value), source)
