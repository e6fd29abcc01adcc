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
DOCUMENTS: Mapping[str, Kind] = {
    "retrieval.documents": "retriever",
    "reranker.output_documents": "reranker",
}
SEARCHES = frozenset(DOCUMENTS.values())
KIND_NAMES = (
    "openinference.span.kind",
    "mlflow.spanType",
    "span_kind",
    "gen_ai.operation.name",
)
KINDS: Mapping[Kind, frozenset[str]] = {
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
DECISION = "raglab.decision"
_STARTS = tuple(name.partition(".")[0] for name in DOCUMENTS)
_MOST_DIGITS = 6  # of the number of a document
_PLAIN = frozenset((str, int, float))
_LEVELS = 6  # of objects in which a text may lie


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


QUESTION = TextKeys(
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
ANSWER = TextKeys(
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
    attributes = span.attributes
    kind, records = _kind(attributes), []
    lists = {name: value for name, value in attributes.items() if name.startswith(_STARTS)}
    for name, kind_of_list in DOCUMENTS.items() if lists else ():
        numbered = {
            key.removeprefix(f"{name}."): value
            for key, value in lists.items()
            if key.startswith(f"{name}.")
        }
        if rows := _records(numbered or _stated(lists, name)):
            kind, records = kind_of_list, rows
    is_search = kind in SEARCHES
    if is_search:
        outputs = (_stated(attributes, name) for name in OUTPUT_KEYS)
        # an SDK keeps only so many attributes
        records = max(records, _records(next(filter(None, outputs), None)), key=len)
    return SpanPart(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start,
        kind,
        _text(attributes, QUESTION),
        "" if is_search else _text(attributes, ANSWER),
        tuple(map(_document, records)),
        tuple(map(_feedback, span.evaluations)),
        tuple(
            (name, str(value))
            for name in groups
            if (value := _stated(attributes, name)) is not None
        ),
        str(_stated(attributes, DECISION) or ""),
        span.is_failed,
    )


def _stated(attributes: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401
    """The value of a name, which may stand within that of its first part: `input: {value: …}`."""
    if attributes.get(name) is not None:
        return attributes[name]
    first, _, rest = name.partition(".")
    inner = attributes.get(first)
    return _stated(inner, rest) if rest and isinstance(inner, dict) else None


def _kind(attributes: Mapping[str, Any]) -> Kind:
    """Kind of a span: of those that its attributes state, the first of `KINDS`."""
    stated = {str(_stated(attributes, name)).strip('"').lower() for name in KIND_NAMES}
    if _stated(attributes, OUTPUT_KEYS[0]) is not None:
        stated.add("retriever")
    return next((kind for kind, names in KINDS.items() if names & stated), "other")


# --- documents


def _records(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of JSON
    """Fields of each document of a list, of an object that holds one, or of numbered fields.

    Numbered are `0.document.id` and `{"0": {"id": …}}`; all may be JSON texts.
    """
    value = _parsed(value)
    if isinstance(value, dict):
        numbered: dict[int, Any] = defaultdict(dict)
        for key, field in value.items():
            number, _, name = key.partition(".")
            if number.isdecimal() and len(number) <= _MOST_DIGITS:
                numbered[int(number)] |= {name: field} if name else _fields(field)
        lists = (value[key] for key in LIST_KEYS if isinstance(value.get(key), list))
        value = [numbered[number] for number in sorted(numbered)] or next(lists, [])
    return [_fields(row) for row in value] if isinstance(value, list | tuple) else []


def _fields(row: Any) -> dict[str, Any]:  # noqa: ANN401 - of JSON
    """Fields of a document, which may lie within its `document`."""
    if not isinstance(row, dict):
        return {"content": row}
    fields = {key.removeprefix("document."): field for key, field in row.items()}
    for inner in (_parsed(fields[key]) for key in INNER_KEYS if key in fields):
        fields |= inner if isinstance(inner, dict) else {}
    return fields


def _document(fields: Mapping[str, Any]) -> SpanDocument:
    metadata = _parsed(fields.get("metadata") or fields.get("meta"))
    both = (fields, metadata if isinstance(metadata, dict) else {})
    page = _first(both, PAGE_KEYS)
    return SpanDocument(
        _first(both, ID_KEYS),
        _score(both),
        _first(both[:1], TEXT_KEYS),
        _first(both, SOURCE_KEYS),
        int(page) or None if page.isdecimal() and len(page) <= _MOST_DIGITS else None,
    )


def _first(records: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> str:
    """Text of the first key that one of some records has, '' where none has one."""
    for record in records:
        for key in keys:
            if type(value := record.get(key)) in _PLAIN and value != "":
                return str(value)
    return ""


def _score(records: Iterable[Mapping[str, Any]]) -> float:
    """The first number that a signal may have, NaN where there is none. A truth value is none."""
    for value in (record.get(key) for record in records for key in SCORE_KEYS):
        with suppress(ValueError, OverflowError):
            if type(value) in _PLAIN and abs(number := float(value)) <= WIDEST_RANGE:  # type: ignore[arg-type]
                return number
    return math.nan


def _parsed(value: Any) -> Any:  # noqa: ANN401 - of JSON
    """The value of a JSON text that is an object, a list or a text; any other value as it is."""
    if isinstance(value, str) and value[:1] in {"{", "[", '"'}:
        try:
            return _parsed(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value


# --- texts


def _text(attributes: Mapping[str, Any], where: TextKeys) -> str:
    """The question or answer of a span, '' where it has none."""
    for name in where.names:
        text = _text_of(_parsed(_stated(attributes, name)), where, _LEVELS)
        if text.lower() not in where.missing:
            return text
    return ""


def _text_of(value: Any, where: TextKeys, levels: int) -> str:  # noqa: ANN401 - of JSON
    """A text itself, that of a known key, of the last message of a role, or the one text of a list.

    Args:
      value: of JSON.
      where: the keys and the roles.
      levels: of objects that are still looked into.
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict) and levels:
        inner = (_text_of(value.get(key), where, levels - 1) for key in where.keys)
        return next(filter(None, inner), "")
    for row in reversed(objects([row.get("message", row) for row in objects(value)])):
        if (row.get("role") or row.get("type")) in where.roles:
            return _message_text(row.get("content", row.get("parts")))
    texts = [row for row in value if isinstance(row, str)] if isinstance(value, list) else []
    return texts[0].strip() if len(texts) == 1 else ""


def _message_text(content: Any) -> str:  # noqa: ANN401 - of JSON
    """Text of a message, whose parts are joined."""
    parts = objects(content) if isinstance(content, list) else [{"text": content}]
    texts = (str(part.get("text") or part.get("content") or "").strip() for part in parts)
    return " ".join(filter(None, texts))


def _feedback(event: Mapping[str, Any]) -> SpanFeedback:
    value = event.get(
        "gen_ai.evaluation.score.label", event.get("gen_ai.evaluation.score.value", "")
    )
    source = str(event.get("gen_ai.evaluation.source") or "evaluation")
    return SpanFeedback(str(event.get("gen_ai.evaluation.name", "")), str(value), source)
