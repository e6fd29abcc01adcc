"""Span attributes (shore): requests, hits and answers in OpenTelemetry's GenAI words (S0.3).

What only raglab has is `raglab.*`. Texts are left out unless they are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, TypeAlias

from raglab.audit.explanation import decide_by_checks
from raglab.audit.log import check_to_json
from raglab.live.response import Response
from raglab.retrieval.arms import DepthHits
from raglab.values import Chunk, ModelUnavailableError

Attributes: TypeAlias = dict[str, Any]


def text_attributes(*, has_texts: bool, **texts: str | None) -> Attributes:
    """A text that is the `input` or `output` of an operation.

    Example:
      >>> list(text_attributes(has_texts=True, input="The excess?"))
      ['gen_ai.input.messages']
      >>> text_attributes(has_texts=False, input="The excess?")
      {}
    """
    attributes: Attributes = {}
    for side, text in texts.items() if has_texts else ():
        if text is not None:
            parts = [{"type": "text", "content": text}]
            stop = {"finish_reason": "stop"} if side == "output" else {}
            message = {"role": "assistant" if stop else "user", "parts": parts, **stop}
            attributes[f"gen_ai.{side}.messages"] = json.dumps([message])
    return attributes


def error_attributes(kind: type[BaseException], text: object, *, has_texts: bool) -> Attributes:
    """An error by its kind; its words may quote the question.

    Example:
      >>> error_attributes(ValueError, "no", has_texts=False)
      {'error.type': 'ValueError'}
    """
    return {"error.type": kind.__name__} | ({"error.message": f"{text}"} if has_texts else {})


def response_attributes(response: Response, *, has_texts: bool) -> Attributes:
    """The decision and the gate that made it, as `explain` names it, with its numbers.

    Every check without words.
    """
    checks, asks = response.record.checks, response["clarification"]
    attributes: Attributes = {
        f"raglab.{name}": response[name] for name in ("policy_id", "arm", "confidence")
    }
    attributes["raglab.decision"] = response["status"]
    attributes["raglab.answer_cache_hit"] = response.record.answer_cache_hit
    rows = [
        {name: value for name, value in check_to_json(check).items() if name != "text"}
        for check in checks
    ]
    attributes["raglab.checks"] = json.dumps(rows)
    decision = decide_by_checks(checks)
    if asks is not None:
        attributes["raglab.gate"] = "clarification"
    elif decision is not None and decision.status == response["status"]:
        attributes["raglab.gate"] = decision.gate or "answered"
        deciding = [
            check for check in checks if (check.gate, check.text) == (decision.gate, decision.text)
        ]
        for name in ("rule", "value", "threshold", "margin") if deciding else ():
            attributes[f"raglab.gate_{name}"] = getattr(deciding[0], name)
    answer = response["answer"] if asks is None else asks["question_to_user"]
    attributes |= text_attributes(has_texts=has_texts, output=answer)
    if response["error"] is not None:
        attributes |= error_attributes(
            ModelUnavailableError, response["error"], has_texts=has_texts
        )
    return _stated(attributes)


def retrieval_attributes(
    depth: DepthHits, chunks: Sequence[Chunk], *, has_texts: bool
) -> Attributes:
    """Hits of a depth in their final order, with their cosines."""
    fields = (depth.hits.rank, depth.hits.chunk, depth.hits.cosine)
    rows = []
    for _, place, cosine in sorted(zip(*(field.ravel().tolist() for field in fields), strict=True)):
        if place >= 0:
            chunk = chunks[place]
            row = {
                "id": chunk.chunk_id,
                "score": cosine,
                "source": chunk.source,
                "page": chunk.page,
                "content": chunk.full_text if has_texts else None,
            }
            rows.append(_stated(row))
    query = depth.query if has_texts else None
    documents = json.dumps(rows)
    return _stated({"gen_ai.retrieval.query.text": query, "gen_ai.retrieval.documents": documents})


def _stated(attributes: Attributes) -> Attributes:
    """Attributes without those that have no value or no finite one, which JSON does not hold."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and (not isinstance(value, float) or isfinite(value))
    }
