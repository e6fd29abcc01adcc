"""Spans of small requests, in the forms in which applications export them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START = 1_764_000_000 * 10**9  # nanoseconds since 1970


def any_value(value: Any) -> dict[str, Any]:
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
    trace: str,
    number: int,
    attributes: Mapping[str, Any],
    *,
    parent: str = "",
    events: Sequence[tuple[str, Mapping[str, Any]]] = (),
    second: float = 0,
) -> dict[str, Any]:
    """A span of OTLP JSON."""

    def rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
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


def documents(
    *rows: tuple[str | None, Any] | tuple[str | None, Any, str], prefix: str = "retrieval.documents"
) -> dict[str, Any]:
    """Documents of OpenInference: id, score, and the text where it is not that of the id."""
    attributes: dict[str, Any] = {}
    for number, (name, score, *text) in enumerate(rows):
        at = f"{prefix}.{number}.document"
        values = {"id": name, "score": score, "content": text[0] if text else f"Text of {name}."}
        attributes |= {f"{at}.{key}": value for key, value in values.items() if value is not None}
    return attributes


def retriever(query: str, *rows: Any, **more: Any) -> dict[str, Any]:
    """Attributes of a retriever's span."""
    return {
        "openinference.span.kind": "RETRIEVER",
        "input.value": query,
        **documents(*rows),
        **more,
    }


def reranker(*rows: Any) -> dict[str, Any]:
    """Attributes of a reranker's span."""
    return {
        "openinference.span.kind": "RERANKER",
        **documents(*rows, prefix="reranker.output_documents"),
    }


def evaluation(name: str, label: str, source: str = "human") -> tuple[str, dict[str, Any]]:
    """An event of feedback."""
    stated = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": label}
    return "gen_ai.evaluation.result", {**stated, "gen_ai.evaluation.source": source}


def request(
    trace: str, question: str, *rows: Any, second: float = 0, feedback: str = "", **more: Any
) -> list[Any]:
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


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    """A file of JSON lines; a text is written as it is."""
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path
