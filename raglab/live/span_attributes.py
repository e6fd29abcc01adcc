"""Span attributes (shore): OpenTelemetry GenAI and OpenInference words for requests (S0.3).

They also describe hits and answers.

What only raglab has is `raglab.*`. Texts are left out unless they are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raglab.audit.explanation import decide_by_checks
from raglab.audit.log import check_to_json
from raglab.live.response import Response
from raglab.retrieval.arms import DepthHits
from raglab.values import Chunk, ModelUnavailableError

Attributes: TypeAlias = dict[str, Any]
# attributes of numbered documents; with 16 others they are 128, and an SDK drops the oldest of more
_NUMBERED = 112


def text_attributes(*, has_texts: bool, **texts: str | None) -> Attributes:
    """A text that is the `input` or `output` of an operation, by either convention.

    Example:
      >>> text_attributes(has_texts=True, input="The excess?")["input.value"]
      'The excess?'
      >>> text_attributes(has_texts=False, input="The excess?")
      {}
    """
    attributes: Attributes = {}
    for side, text in texts.items() if has_texts else ():
        if text is not None:
            parts = [{"type": "text", "content": text}]
            stop = {"finish_reason": "stop"} if side == "output" else {}
            message = {"role": "assistant" if stop else "user", "parts": parts, **stop}
            attributes |= {f"{side}.value": text, f"gen_ai.{side}.messages": json.dumps([message])}
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
    """Hits of a depth with their cosines, the nearest first."""
    rows = _documents(
        depth.hits.chunk.ravel(), depth.hits.cosine.ravel(), chunks, has_texts=has_texts
    )
    query = dict.fromkeys(
        ("gen_ai.retrieval.query.text", "input.value") if has_texts else (), depth.query
    )
    return (
        _numbered("retrieval.documents", rows)
        | query
        | {"gen_ai.retrieval.documents": json.dumps(rows)}
    )


def reranking_attributes(
    depth: DepthHits, chunks: Sequence[Chunk], *, has_texts: bool
) -> Attributes:
    """Reranked hits of a depth with the reranker's scores, in the arm's final order."""
    hits, rank = depth.hits, depth.hits.rank.ravel()
    order = np.argsort(rank, kind="stable")
    order = order[(rank[order] >= 0) & (rank[order] < hits.n_reranked.max())]
    rows = _documents(
        hits.chunk.ravel()[order], hits.s_rerank.ravel()[order], chunks, has_texts=has_texts
    )
    return _numbered("reranker.output_documents", rows) | {"reranker.top_k": len(rows)}


def _documents(
    places: NDArray[np.integer],
    scores: NDArray[np.float64],
    chunks: Sequence[Chunk],
    *,
    has_texts: bool,
) -> list[Attributes]:
    hits = [
        (chunks[place], score)
        for place, score in zip(places.tolist(), scores.tolist(), strict=True)
        if place >= 0
    ]
    return [
        _stated({"id": chunk.chunk_id, "score": score, "source": chunk.source, "page": chunk.page})
        | ({"content": chunk.full_text} if has_texts else {})
        for chunk, score in hits
    ]


def _numbered(prefix: str, rows: Sequence[Mapping[str, Any]]) -> Attributes:
    """Documents by OpenInference.

    Ids and scores first, then the rest, as far as a span has room for attributes.
    """
    places = [
        json.dumps({name: row[name] for name in ("source", "page") if name in row}) for row in rows
    ]
    attributes = {
        f"{prefix}.{number}.document.{name}": row[name]
        for names in (("id", "score"), ("metadata",), ("content",))
        for number, row in enumerate(
            {**row, "metadata": place} for row, place in zip(rows, places, strict=True)
        )
        for name in names
        if name in row
    }
    return dict([*attributes.items()][:_NUMBERED])


def _stated(attributes: Attributes) -> Attributes:
    """Attributes without those that have no value or no finite one, which JSON does not hold."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and (not isinstance(value, float) or isfinite(value))
    }
