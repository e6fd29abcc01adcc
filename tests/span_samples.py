"""Spans of small requests, as applications export them and as a provider has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

START = 1_764_000_000 * 10**9  # nanoseconds since 1970


def any_value(value):
    """A value as OTLP states it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(entry) for entry in value]}}
    return {"stringValue": value}


def span(
    trace,
    number,
    attributes,
    *,
    parent="",
    events=(),
    second=0,
):
    """A span of OTLP JSON."""

    def rows(values):
        return [{"key": key, "value": any_value(value)} for key, value in values.items()]

    return {
        "traceId": trace,
        "spanId": f"{trace}-{number}",
        "parentSpanId": parent,
        "name": f"span {number}",
        "startTimeUnixNano": str(START + int(second * 10**9) + number),
        "attributes": rows(attributes),
        "events": [{"name": name, "attributes": rows(values)} for name, values in events],
    }


def documents(*rows, prefix="retrieval.documents"):
    """Documents of OpenInference: id, score, and the text where it is not that of the id."""
    attributes: dict[str, Any] = {}
    for number, (name, score, *text) in enumerate(rows):
        at = f"{prefix}.{number}.document"
        values = {"id": name, "score": score, "content": text[0] if text else f"Text of {name}."}
        attributes |= {f"{at}.{key}": value for key, value in values.items() if value is not None}
    return attributes


def retriever(query, *rows, **more):
    """Attributes of a retriever's span."""
    return {
        "openinference.span.kind": "RETRIEVER",
        "input.value": query,
        **documents(*rows),
        **more,
    }


def reranker(*rows):
    """Attributes of a reranker's span."""
    return {
        "openinference.span.kind": "RERANKER",
        **documents(*rows, prefix="reranker.output_documents"),
    }


def evaluation(name, label, source="human"):
    """An event of feedback."""
    stated = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": label}
    return "gen_ai.evaluation.result", {**stated, "gen_ai.evaluation.source": source}


def request(trace, question, *rows, second=0, feedback="", **more):
    """Spans of a request: a root with its answer, a retriever, a model."""
    root = {
        "openinference.span.kind": "CHAIN",
        "input.value": question,
        "output.value": f"Answer to {question}",
        **more,
    }
    events = (evaluation("user", feedback),) if feedback else ()
    return [
        span(trace, 0, root, events=events, second=second),
        span(trace, 1, retriever(question, *rows), parent=f"{trace}-0", second=second),
        span(trace, 2, {"openinference.span.kind": "LLM"}, parent=f"{trace}-0", second=second),
    ]


def write_lines(path, rows):
    """A file of JSON lines; a text is written as it is."""
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


class Spans:
    """The spans of a provider, as they end."""

    def __init__(self):
        sdk, export, memory = (
            pytest.importorskip(f"opentelemetry.sdk.trace{part}")
            for part in ("", ".export", ".export.in_memory_span_exporter")
        )
        self.exporter = memory.InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))

    @property
    def all(self):
        """Finished spans in their order."""
        return list(self.exporter.get_finished_spans())

    def of(self, operation):
        """Finished spans of an operation."""
        names = values(self.all, "gen_ai.operation.name")
        return [span for span, name in zip(self.all, names, strict=True) if name == operation]

    def one(self, operation):
        """The only span of an operation."""
        (span,) = self.of(operation)
        return span


def values(spans, name):
    """An attribute of spans, None where it is missing."""
    return [span.attributes.get(name) for span in spans]
