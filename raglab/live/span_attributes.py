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
    for text_side, side_text in texts.items() if has_texts else ():
        if side_text is not None:
            parts = [{"type": "text", "content": side_text}]
            stop_field = {"finish_reason": "stop"} if text_side == "output" else {}
            message = {
                "role": "assistant" if stop_field else "user",
                "parts": parts,
                **stop_field,
            }
            attributes[f"gen_ai.{text_side}.messages"] = json.dumps([message])
    return attributes


def error_attributes(
    error_type: type[BaseException], error_text: object, *, has_texts: bool
) -> Attributes:
    """An error by its kind; its words may quote the question.

    Example:
      >>> error_attributes(ValueError, "no", has_texts=False)
      {'error.type': 'ValueError'}
    """
    return {"error.type": error_type.__name__} | (
        {"error.message": f"{error_text}"} if has_texts else {}
    )


def response_attributes(response: Response, *, has_texts: bool) -> Attributes:
    """The decision and the gate that made it, as `explain` names it, with its numbers.

    Every check without words.
    """
    gate_checks = response.record.checks
    clarification = response["clarification"]
    attributes: Attributes = {
        f"raglab.{field_name}": response[field_name]
        for field_name in ("policy_id", "arm", "confidence")
    }
    attributes["raglab.decision"] = response["status"]
    attributes["raglab.answer_cache_hit"] = response.record.answer_cache_hit
    check_rows = [
        {
            field_name: value
            for field_name, value in check_to_json(check).items()
            if field_name != "text"
        }
        for check in gate_checks
    ]
    attributes["raglab.checks"] = json.dumps(check_rows)
    decision = decide_by_checks(gate_checks)
    if clarification is not None:
        attributes["raglab.gate"] = "clarification"
    elif decision is not None and decision.status == response["status"]:
        attributes["raglab.gate"] = decision.gate or "answered"
        deciding_checks = [
            check
            for check in gate_checks
            if (check.gate, check.text) == (decision.gate, decision.text)
        ]
        for field_name in ("rule", "value", "threshold", "margin") if deciding_checks else ():
            attributes[f"raglab.gate_{field_name}"] = getattr(deciding_checks[0], field_name)
    answer = response["answer"] if clarification is None else clarification["question_to_user"]
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
    hit_fields = (depth.hits.rank, depth.hits.chunk, depth.hits.cosine)
    document_rows = []
    for _, chunk_number, cosine in sorted(
        zip(*(hit_field.ravel().tolist() for hit_field in hit_fields), strict=True)
    ):
        if chunk_number >= 0:
            chunk = chunks[chunk_number]
            document_row = {
                "id": chunk.chunk_id,
                "score": cosine,
                "source": chunk.source,
                "page": chunk.page,
                "content": chunk.full_text if has_texts else None,
            }
            document_rows.append(_stated(document_row))
    query_text = depth.query if has_texts else None
    documents_json = json.dumps(document_rows)
    return _stated(
        {"gen_ai.retrieval.query.text": query_text, "gen_ai.retrieval.documents": documents_json}
    )


def _stated(attributes: Attributes) -> Attributes:
    """Attributes without those that have no value or no finite one, which JSON does not hold."""
    return {
        name: attribute
        for name, attribute in attributes.items()
        if attribute is not None and (not isinstance(attribute, float) or isfinite(attribute))
    }
