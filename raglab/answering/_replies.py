"""What a server replied, read from bytes that may hold anything: text and confidence, or why there is none."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from raglab.answering.hygiene import visible


class Said(NamedTuple):
    """What a server says: a text that is not empty, and its confidence in [0, 1] or NaN."""

    text: str
    confidence: float


class ServerError(Exception):
    """A server gave no answer, for the reason that stands in the message: one line, without secrets."""


def read(body: bytes, max_tokens: int) -> Said:
    """Text and confidence in a reply; an answer that is cut off could miss its exception, and is none."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        msg = f"answered with {'a page of HTML' if body.lstrip().startswith(b'<') else 'what is not JSON'}"
        raise ServerError(msg) from None
    choice = _first(reply.get("choices") if isinstance(reply, dict) else None)
    message = choice.get("message")
    said = message if isinstance(message, dict) else {}
    text, refusal, end = said.get("content"), said.get("refusal"), choice.get("finish_reason")
    if not choice:
        why = f"answered without a choice{message_of(reply)}"
    elif end == "length":
        why = f"cut its answer off at max_tokens {max_tokens}"
    elif end == "content_filter":
        why = "withheld its answer (content_filter)"
    elif refusal and isinstance(refusal, str):
        why = f"declined to answer: {refusal}"
    elif not isinstance(text, str) or not visible(text).strip():
        why = "answered without a text"
    else:
        return Said(visible(text).strip(), _confidence(choice.get("logprobs")))
    raise ServerError(why)


def _first(choices: Any) -> dict[str, Any]:  # noqa: ANN401  (any JSON)
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _confidence(logprobs: Any) -> float:  # noqa: ANN401  (any JSON)
    """Geometric mean of the tokens' probabilities; NaN unless all are measured."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens:
        return math.nan
    values: list[Any] = [token.get("logprob") if isinstance(token, dict) else None for token in tokens]
    measured = [value for value in values if type(value) in {int, float} and -math.inf < value <= 0]
    return math.exp(math.fsum(measured) / len(measured)) if len(measured) == len(tokens) else math.nan


def message_of(body: Any) -> str:  # noqa: ANN401  (any JSON)
    """What a server says of an error, after a colon; '' where it says nothing."""
    error = body.get("error", body) if isinstance(body, dict) else body
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text}" if isinstance(text, str) and text.strip() else ""
