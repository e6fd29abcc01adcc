"""Span parts (shore): what a span says of a request, by the common conventions.

They are those of OpenInference, OpenTelemetry and MLflow.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from raglab.extensions.imports.spans import LoggedSpan, objects
from raglab.signals import WIDEST_RANGE
from raglab.store.csv_tables import MISSING_WORDS

Kind = Literal["retriever", "reranker", "model", "other"]
DOCUMENT_FIELDS: Mapping[str, Kind] = {
    "retrieval.documents": "retriever",
    "reranker.output_documents": "reranker",
}
SEARCH_KINDS = frozenset(DOCUMENT_FIELDS.values())
KIND_NAMES = (
    "openinference.span.kind",
    "mlflow.spanType",
    "span_kind",
    "gen_ai.operation.name",
)
SPAN_KINDS: Mapping[Kind, frozenset[str]] = {
    "reranker": frozenset(("reranker", "rerank")),
    "retriever": frozenset(("retriever", "retrieval", "retrieve")),
    "model": frozenset(("llm", "chat_model", "chat", "text_completion", "generate_content")),
}
SOURCE_KEYS = ("source", "doc_uri", "file_path", "file_name", "filename", "path", "url", "uri")
ID_KEYS = ("id", "document_id", "doc_id", "chunk_id", "node_id", "id_")
SCORE_KEYS = ("score", "relevance_score")
PAGE_KEYS = ("page", "page_number")
TEXT_KEYS = ("content", "text", "page_content")
LIST_KEYS = ("documents", "nodes", "results")  # of an output that is an object
INNER_KEYS = ("document", "node", "kwargs")  # of a document: the object that holds its fields
# of a retriever, the first
OUTPUT_KEYS = ("gen_ai.retrieval.documents", "mlflow.spanOutputs", "output.value")
DECISION_KEY = "raglab.decision"
_LIST_PREFIXES = tuple(name.partition(".")[0] for name in DOCUMENT_FIELDS)
_MOST_DIGITS = 6  # of the number of a document
_PLAIN_TYPES = frozenset((str, int, float))
_MAX_TEXT_LEVELS = 6  # of objects in which a text may lie


class TextKeys(NamedTuple):
    """Where the question or the answer of a span stands.

    Attributes:
      names: of attributes, the first that holds a text counts.
      keys: of an object, in their order.
      roles: of a message: its `role`, else its `type`, as of LangChain; None where it has none.
      missing: texts that stand for none, in small letters.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...]
    roles: tuple[str | None, ...]
    missing: frozenset[str]


QUESTION_KEYS = TextKeys(
    (
        "gen_ai.retrieval.query.text",
        "reranker.query",
        "input.value",
        "mlflow.spanInputs",
        "gen_ai.input.messages",
    ),
    (
        "messages",
        "question",
        "query",
        "input",
        "text",
        "prompt",
        "query_str",
        "kwargs",
        "inputs",
        "args",
    ),
    ("user", "human", None),
    MISSING_WORDS,
)
ANSWER_KEYS = TextKeys(
    ("output.value", "gen_ai.output.messages", "mlflow.spanOutputs"),
    (
        "messages",
        "choices",
        "answer",
        "output",
        "result",
        "response",
        "text",
        "content",
        "kwargs",
        "outputs",
    ),
    ("assistant", "ai", None),
    frozenset({"", "null"}),
)


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
      >>> part = span_part(LoggedSpan("t", "s", "", 0, attributes))
      >>> part.kind, part.query, [(document.id, document.score) for document in part.documents]
      ('retriever', 'the excess?', [('a', 0.9)])
    """
    span_attributes = span.attributes
    span_kind, document_records = _kind(span_attributes), []
    list_attributes = {
        attribute_name: attribute_value
        for attribute_name, attribute_value in span_attributes.items()
        if attribute_name.startswith(_LIST_PREFIXES)
    }
    for attribute_name, list_kind in DOCUMENT_FIELDS.items() if list_attributes else ():
        numbered_fields = {
            field_key.removeprefix(f"{attribute_name}."): attribute_value
            for field_key, attribute_value in list_attributes.items()
            if field_key.startswith(f"{attribute_name}.")
        }
        if list_records := _records(numbered_fields or _stated(list_attributes, attribute_name)):
            span_kind, document_records = list_kind, list_records
    is_search = span_kind in SEARCH_KINDS
    if is_search:
        output_values = (_stated(span_attributes, attribute_name) for attribute_name in OUTPUT_KEYS)
        # an SDK keeps only so many attributes
        document_records = max(
            document_records, _records(next(filter(None, output_values), None)), key=len
        )
    return SpanPart(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start,
        span_kind,
        _text(span_attributes, QUESTION_KEYS),
        "" if is_search else _text(span_attributes, ANSWER_KEYS),
        tuple(map(_document, document_records)),
        tuple(map(_feedback, span.evaluations)),
        tuple(
            (attribute_name, str(attribute_value))
            for attribute_name in groups
            if (attribute_value := _stated(span_attributes, attribute_name)) is not None
        ),
        str(_stated(span_attributes, DECISION_KEY) or ""),
        span.is_failed,
    )


def _stated(attributes: Mapping[str, Any], attribute_name: str) -> Any:  # noqa: ANN401
    """The value of a name, which may stand within that of its first part: `input: {value: …}`."""
    if attributes.get(attribute_name) is not None:
        return attributes[attribute_name]
    first_part, _, later_parts = attribute_name.partition(".")
    inner_attributes = attributes.get(first_part)
    return (
        _stated(inner_attributes, later_parts)
        if later_parts and isinstance(inner_attributes, dict)
        else None
    )


def _kind(attributes: Mapping[str, Any]) -> Kind:
    """Kind of a span: of those that its attributes state, the first of `SPAN_KINDS`."""
    stated_kinds = {
        str(_stated(attributes, attribute_name)).strip('"').lower() for attribute_name in KIND_NAMES
    }
    if _stated(attributes, OUTPUT_KEYS[0]) is not None:
        stated_kinds.add("retriever")
    return next(
        (span_kind for span_kind, kind_names in SPAN_KINDS.items() if kind_names & stated_kinds),
        "other",
    )


# --- documents


def _records(documents: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of JSON
    """Fields of each document of a list, of an object that holds one, or of numbered fields.

    Numbered are `0.document.id` and `{"0": {"id": …}}`; all may be JSON texts.
    """
    documents = _parsed(documents)
    if isinstance(documents, dict):
        numbered_fields: dict[int, Any] = defaultdict(dict)
        for field_key, field_value in documents.items():
            document_number, _, field_name = field_key.partition(".")
            if document_number.isdecimal() and len(document_number) <= _MOST_DIGITS:
                numbered_fields[int(document_number)] |= (
                    {field_name: field_value} if field_name else _fields(field_value)
                )
        inner_lists = (
            documents[field_key]
            for field_key in LIST_KEYS
            if isinstance(documents.get(field_key), list)
        )
        documents = [
            numbered_fields[document_number] for document_number in sorted(numbered_fields)
        ] or next(inner_lists, [])
    return (
        [_fields(document_record) for document_record in documents]
        if isinstance(documents, list | tuple)
        else []
    )


def _fields(document_record: Any) -> dict[str, Any]:  # noqa: ANN401 - of JSON
    """Fields of a document, which may lie within its `document`."""
    if not isinstance(document_record, dict):
        return {"content": document_record}
    document_fields = {
        field_key.removeprefix("document."): field_value
        for field_key, field_value in document_record.items()
    }
    for inner_fields in (
        _parsed(document_fields[field_key])
        for field_key in INNER_KEYS
        if field_key in document_fields
    ):
        document_fields |= inner_fields if isinstance(inner_fields, dict) else {}
    return document_fields


def _document(document_fields: Mapping[str, Any]) -> SpanDocument:
    """Document of a span; what its fields do not say may stand in their metadata, but for text."""
    metadata = _parsed(document_fields.get("metadata") or document_fields.get("meta"))
    field_sources = (document_fields, metadata if isinstance(metadata, dict) else {})
    page_text = _first(field_sources, PAGE_KEYS)
    return SpanDocument(
        _first(field_sources, ID_KEYS),
        _score(field_sources),
        _first(field_sources[:1], TEXT_KEYS),
        _first(field_sources, SOURCE_KEYS),
        int(page_text) or None
        if page_text.isdecimal() and len(page_text) <= _MOST_DIGITS
        else None,
    )


def _first(records: Iterable[Mapping[str, Any]], field_keys: Iterable[str]) -> str:
    """Text of the first key that one of some records has, '' where none has one."""
    for record in records:
        for field_key in field_keys:
            if type(field_value := record.get(field_key)) in _PLAIN_TYPES and field_value != "":
                return str(field_value)
    return ""


def _score(records: Iterable[Mapping[str, Any]]) -> float:
    """The first number that a signal may have, NaN where there is none. A truth value is none."""
    for raw_score in (record.get(score_key) for record in records for score_key in SCORE_KEYS):
        with suppress(ValueError, OverflowError):
            if type(raw_score) not in _PLAIN_TYPES:
                continue
            if abs(score_number := float(raw_score)) <= WIDEST_RANGE:  # type: ignore[arg-type]
                return score_number
    return math.nan


def _parsed(json_value: Any) -> Any:  # noqa: ANN401 - of JSON
    """The value of a JSON text that is an object, a list or a text; any other value as it is."""
    if isinstance(json_value, str) and json_value[:1] in {"{", "[", '"'}:
        try:
            return _parsed(json.loads(json_value))
        except (ValueError, RecursionError):
            return json_value
    return json_value


# --- texts


def _text(attributes: Mapping[str, Any], text_keys: TextKeys) -> str:
    """The question or answer of a span, '' where it has none."""
    for attribute_name in text_keys.names:
        found_text = _text_of(
            _parsed(_stated(attributes, attribute_name)), text_keys, _MAX_TEXT_LEVELS
        )
        if found_text.lower() not in text_keys.missing:
            return found_text
    return ""


def _text_of(json_value: Any, text_keys: TextKeys, n_levels: int) -> str:  # noqa: ANN401 - of JSON
    """A text itself, that of a known key, of the last message of a role, or the one text of a list.

    Args:
      json_value: of JSON.
      text_keys: the keys and the roles.
      n_levels: of objects that are still looked into.
    """
    if isinstance(json_value, str):
        return json_value.strip()
    if isinstance(json_value, dict) and n_levels:
        inner_texts = (
            _text_of(json_value.get(text_key), text_keys, n_levels - 1)
            for text_key in text_keys.keys
        )
        return next(filter(None, inner_texts), "")
    for message in reversed(
        objects([message.get("message", message) for message in objects(json_value)])
    ):
        if (message.get("role") or message.get("type")) in text_keys.roles:
            return _message_text(message.get("content", message.get("parts")))
    list_texts = (
        [message for message in json_value if isinstance(message, str)]
        if isinstance(json_value, list)
        else []
    )
    return list_texts[0].strip() if len(list_texts) == 1 else ""


def _message_text(content: Any) -> str:  # noqa: ANN401 - of JSON
    """Text of a message, whose parts are joined."""
    message_parts = objects(content) if isinstance(content, list) else [{"text": content}]
    part_texts = (
        str(message_part.get("text") or message_part.get("content") or "").strip()
        for message_part in message_parts
    )
    return " ".join(filter(None, part_texts))


def _feedback(evaluation_event: Mapping[str, Any]) -> SpanFeedback:
    score_value = evaluation_event.get(
        "gen_ai.evaluation.score.label", evaluation_event.get("gen_ai.evaluation.score.value", "")
    )
    feedback_source = str(evaluation_event.get("gen_ai.evaluation.source") or "evaluation")
    return SpanFeedback(
        str(evaluation_event.get("gen_ai.evaluation.name", "")), str(score_value), feedback_source
    )
