"""Replies of OpenAI-compatible servers (shore): nothing of one is trusted to have its kind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from raglab.answering.client import MALFORMED, Completion, Finish, TokenScore
from raglab.answering.hygiene import visible

TOKEN_CHARS = 128  # the longest token of a vocabulary in use, a run of blanks
MAX_COUNT = 1_000_000_000  # tokens of one request that are believed
# an error that speaks of a limit names a parameter that is taken
_LIMIT = re.compile(
    r"context (?:length|size|window)|max_model_len|exceed|too (?:large|long|many)|at most|\brange"
    r"|(?:less|greater|more) than|between|maximum|max allowed|integer in|[<>]",
    re.IGNORECASE,
)
_ROLE = re.compile(r"\broles?\b|system (?:prompt|message)|developer instruction", re.IGNORECASE)


class ServerError(Exception):
    """What went wrong with a request, in the message; its kind, and the body of an error."""

    def __init__(self, why: str, kind: str = MALFORMED, body: object = None) -> None:
        super().__init__(why)
        self.kind, self.body = kind, body


class ServerReply(NamedTuple):
    """A reply of a chat.

    completion: with the thoughts in its text. reasoned: whether the server took thoughts out of it.
    model: name of the model that it states, '' for none.
    """

    completion: Completion
    reasoned: bool
    model: str


def chat_reply(body: bytes, max_tokens: int) -> ServerReply:
    """Reply of a chat.

    Raises:
      ServerError: it cannot be read, or is longer than its tokens hold.
    """
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        what = "a page of HTML" if body.lstrip().startswith(b"<") else "what is not JSON"
        msg = f"answered with {what}"
        raise ServerError(msg) from None
    try:
        choice = reply["choices"][0]
        message, end = choice.get("message") or {}, choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
        reasoned = bool(message.get("reasoning_content") or message.get("reasoning"))
    except (LookupError, TypeError, AttributeError):
        msg = f"answered without a choice{message_of(reply)}"
        raise ServerError(msg) from None
    finish: Finish = "length" if end == "length" else "stop"
    reason = ""
    if end == "content_filter":
        finish, reason = "declined", "withheld its answer (content_filter)"
    elif refusal and isinstance(refusal, str):
        finish, reason = "declined", f"declined to answer: {refusal}"
    if isinstance(text, list):  # of parts, some of them thoughts
        parts = [part for part in text if isinstance(part, dict)]
        reasoned = reasoned or any(part.get("type") == "thinking" for part in parts)
        text = "".join(str(part.get("text")) for part in parts if part.get("type") == "text")
    if finish == "declined" or (text is None and (reasoned or finish == "length")):
        text = ""
    if not isinstance(text, str):
        msg = "answered without a text"
        raise ServerError(msg)
    # it did not heed max_tokens, and what reads the answer takes time
    if len(text) > TOKEN_CHARS * max_tokens:
        msg = f"answered with {len(text)} characters, more than {max_tokens} tokens hold"
        raise ServerError(msg)
    completion = Completion(
        visible(text),
        () if finish == "declined" else _token_scores(choice.get("logprobs")),
        finish,
        _token_count(reply, "prompt_tokens"),
        _token_count(reply, "completion_tokens"),
        reason=reason,
    )
    model = reply.get("model")
    return ServerReply(completion, reasoned, model if isinstance(model, str) else "")


def _token_scores(logprobs: Any) -> tuple[TokenScore, ...]:  # noqa: ANN401  (any JSON)
    """Tokens with their log-probabilities; none unless all are measured."""
    rows = logprobs.get("content") if isinstance(logprobs, dict) else None
    tokens = _measured(rows)
    if not isinstance(rows, list) or len(tokens) < len(rows):
        return ()
    return tuple(
        TokenScore(
            *token, tuple(sorted(_measured(row.get("top_logprobs")), key=lambda top: -top[1]))
        )
        for token, row in zip(tokens, rows, strict=True)
    )


def _measured(rows: Any) -> list[tuple[str, float]]:  # noqa: ANN401  (any JSON)
    """Texts and log-probabilities of the rows that have one."""
    return [
        (visible(str(row.get("token", ""))), float(row["logprob"]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
        and type(row.get("logprob")) in {int, float}
        and -sys.float_info.max <= row["logprob"] <= 0
    ]


def _token_count(reply: Mapping[str, Any], name: str) -> int | None:
    """Tokens that a reply reports under a name; None where it reports none that can be."""
    usage = reply.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MAX_COUNT else None


def message_of(body: Any) -> str:  # noqa: ANN401  (any JSON)
    """What a server says of an error, after a colon; '' where it says nothing."""
    first = body[0] if isinstance(body, list) and body else body  # as Gemini's
    error = first.get("error", first.get("detail", first)) if isinstance(first, dict) else first
    if isinstance(error, list) and error and isinstance(error[0], dict):
        error = f"{error[0].get('loc')} {error[0].get('msg')}"  # as FastAPI's, which repeats input
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text}" if isinstance(text, str) and text.strip() else ""


def refused_parameter(error: ServerError, sent: Mapping[str, Any]) -> str:
    """Name of the parameter that a server refuses, `system` for a role; '' where it names none.

    Args:
      sent: fields of the request.

    Example:
      >>> refused = ServerError("", "HTTP 400", {"message": "Unsupported parameter: 'seed'"})
      >>> refused_parameter(refused, {"seed": 0, "messages": []})
      'seed'
    """
    if error.kind not in {"HTTP 400", "HTTP 422"}:
        return ""
    stated = error.body.get("param") if isinstance(error.body, dict) else ""
    text = f"{stated} {message_of(error.body)}"
    places = {
        name: match.start()
        for name in sent
        if name not in {"model", "messages"}
        and (name == "temperature" or not _LIMIT.search(text))
        and (match := re.search(rf"\b{name}\b", text))
    }
    if places:
        return min(places, key=places.__getitem__)
    roles = [message["role"] for message in sent["messages"]]
    return "system" if "system" in roles and _ROLE.search(text) else ""
