"""Replies of OpenAI-compatible servers (shore): nothing of one is trusted to have its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from raglab.answering.client import Completion, Echo, TokenScore
from raglab.answering.hygiene import visible

TOKEN_CHARS = 128  # the longest token of a vocabulary in use, a run of blanks
MAX_COUNT = 1_000_000_000  # tokens of one request that are believed
ECHOED = "one two three four zebra six seven eight"
UNLIKELY = " zebra"  # the word of it that no model expects


class ReplyError(Exception):
    """A reply that cannot be read, for the reason that stands in the message."""


def chat_completion(body: bytes, max_tokens: int) -> Completion:
    """Reply of a chat.

    Raises:
      ReplyError: it cannot be read, or is longer than its tokens hold.
    """
    reply = read_json(body)
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not choice or not isinstance(choice, dict):
        msg = f"answered without a choice{message_of(reply)}"
        raise ReplyError(msg)
    message = choice["message"] if isinstance(choice.get("message"), dict) else {}
    text, refusal, end = message.get("content"), message.get("refusal"), choice.get("finish_reason")
    empty = Completion(
        "",
        prompt_tokens=_token_count(reply, "prompt_tokens"),
        completion_tokens=_token_count(reply, "completion_tokens"),
    )
    if end == "content_filter":
        return empty._replace(finish="declined", reason="withheld its answer (content_filter)")
    if refusal and isinstance(refusal, str):
        return empty._replace(finish="declined", reason=f"declined to answer: {refusal}")
    if not isinstance(text, str):
        msg = "answered without a text"
        raise ReplyError(msg)
    # it did not heed max_tokens, and what reads the answer takes time
    if len(text) > TOKEN_CHARS * max_tokens:
        msg = f"answered with {len(text)} characters, more than {max_tokens} tokens hold"
        raise ReplyError(msg)
    tokens = _token_scores(choice.get("logprobs"))
    return empty._replace(
        text=visible(text).strip(), tokens=tokens, finish="length" if end == "length" else "stop"
    )


def model_of(body: bytes) -> str:
    """Name of the model that a reply states; '' where it states none."""
    reply = read_json(body)
    name = reply.get("model") if isinstance(reply, dict) else None
    return name if isinstance(name, str) else ""


def read_json(body: bytes) -> Any:  # noqa: ANN401  (any JSON)
    """A body as JSON.

    Raises:
      ReplyError: it is none.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        msg = (
            "answered with "
            f"{'a page of HTML' if body.lstrip().startswith(b'<') else 'what is not JSON'}"
        )
        raise ReplyError(msg) from None


def _token_scores(logprobs: Any) -> tuple[TokenScore, ...]:  # noqa: ANN401  (any JSON)
    """Tokens with their log-probabilities; none unless all are measured."""
    rows = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return ()
    if not all(_is_logprob(row.get("logprob")) for row in rows):
        return ()
    return tuple(
        TokenScore(str(row.get("token", "")), float(row["logprob"]), _alternatives(row))
        for row in rows
    )


def _alternatives(row: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Alternatives of a token, the most probable first."""
    rows = row.get("top_logprobs")
    measured = [
        (str(alternative.get("token", "")), float(alternative["logprob"]))
        for alternative in (rows if isinstance(rows, list) else [])
        if isinstance(alternative, dict) and _is_logprob(alternative.get("logprob"))
    ]
    return tuple(sorted(measured, key=lambda pair: -pair[1]))


def _is_logprob(value: Any) -> bool:  # noqa: ANN401  (any JSON)
    return type(value) in {int, float} and -math.inf < value <= 0


def _token_count(reply: Any, name: str) -> int | None:  # noqa: ANN401  (any JSON)
    """Tokens that a reply reports under a name; None where it reports none that can be."""
    usage = reply.get("usage") if isinstance(reply, dict) else None
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MAX_COUNT else None


def message_of(body: Any) -> str:  # noqa: ANN401  (any JSON)
    """What a server says of an error, after a colon; '' where it says nothing."""
    error = body.get("error", body) if isinstance(body, dict) else body
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text}" if isinstance(text, str) and text.strip() else ""


class _EchoedToken(NamedTuple):
    """A token of an echoed prompt.

    First character, text, log-probability, NaN where it is not measured.
    """

    at: int
    token: str
    logprob: float


def _echo_rows(body: bytes) -> list[_EchoedToken]:
    """Tokens of an echoed prompt; none where the reply has no such list."""
    reply = read_json(body)
    try:
        logprobs = reply["choices"][0]["logprobs"]
        rows = list(
            zip(
                logprobs["text_offset"], logprobs["tokens"], logprobs["token_logprobs"], strict=True
            )
        )
    except (LookupError, TypeError, ValueError):
        return []
    if not all(type(at) is int and isinstance(token, str) for at, token, _ in rows):
        return []
    return [
        _EchoedToken(at, token, float(value) if _is_logprob(value) else math.nan)
        for at, token, value in rows
    ]


def echo_kind(body: bytes) -> Echo:
    """Whether an echoed prompt is scored, and each log-probability stands at its own token.

    In a count that a word interrupts, the word is by far the least probable token.
    """
    # before the first token nothing is expected
    rows = [row for row in _echo_rows(body) if row.at < len(ECHOED)][1:]
    start, end = ECHOED.index(UNLIKELY), ECHOED.index(UNLIKELY) + len(UNLIKELY)
    inside = [row.logprob for row in rows if start <= row.at < end]
    outside = [row.logprob for row in rows if not start <= row.at < end]
    if not inside or not outside or any(map(math.isnan, (*inside, *outside))):
        return "none"
    return "exact" if min(inside) < min(outside) else "shifted"


def echoed_scores(body: bytes, start: int, end: int) -> tuple[TokenScore, ...]:
    """Tokens of an echoed prompt that begin between two characters.

    Raises:
      ReplyError: one of them is not measured.
    """
    rows = [row for row in _echo_rows(body) if start <= row.at < end]
    if not rows or any(math.isnan(row.logprob) for row in rows):
        msg = "echoed a prompt without the log-probability of each token"
        raise ReplyError(msg)
    return tuple(TokenScore(row.token, row.logprob) for row in rows)
