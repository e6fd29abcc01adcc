"""Replies of OpenAI-compatible servers (shore): nothing of one is trusted to have its kind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from raglab.answering.client import MALFORMED, Completion, Finish, TokenScore
from raglab.answering.hygiene import visible

MAX_TOKEN_CHARACTERS = 128  # the longest token of a vocabulary in use, a run of blanks
MAX_TOKEN_COUNT = 1_000_000_000  # tokens of one request that are believed
# an error about a limit names a parameter that the server accepts
_LIMIT_ERROR = re.compile(
    r"context (?:length|size|window)|max_model_len|exceed|too (?:large|long|many)|at most|\brange"
    r"|(?:less|greater|more) than|between|maximum|max allowed|integer in|[<>]",
    re.IGNORECASE,
)
_ROLE_ERROR = re.compile(
    r"\broles?\b|system (?:prompt|message)|developer instruction", re.IGNORECASE
)


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
        parsed_reply = json.loads(body)
    except (ValueError, RecursionError):
        body_kind = "a page of HTML" if body.lstrip().startswith(b"<") else "what is not JSON"
        error_message = f"answered with {body_kind}"
        raise ServerError(error_message) from None
    try:
        first_choice = parsed_reply["choices"][0]
        message = first_choice.get("message") or {}
        finish_reason = first_choice.get("finish_reason")
        reply_text = message.get("content")
        refusal_text = message.get("refusal")
        has_thoughts = bool(message.get("reasoning_content") or message.get("reasoning"))
    except (LookupError, TypeError, AttributeError):
        error_message = f"answered without a choice{message_of(parsed_reply)}"
        raise ServerError(error_message) from None
    # A filter and a refusal by the model are both declined answers, for different reasons.
    finish_kind: Finish = "length" if finish_reason == "length" else "stop"
    decline_reason = ""
    if finish_reason == "content_filter":
        finish_kind = "declined"
        decline_reason = "withheld its answer (content_filter)"
    elif refusal_text and isinstance(refusal_text, str):
        finish_kind = "declined"
        decline_reason = f"declined to answer: {refusal_text}"
    if isinstance(reply_text, list):  # of parts, some of them thoughts
        content_parts = [
            content_part for content_part in reply_text if isinstance(content_part, dict)
        ]
        has_thoughts = has_thoughts or any(
            content_part.get("type") == "thinking" for content_part in content_parts
        )
        reply_text = "".join(
            str(content_part.get("text"))
            for content_part in content_parts
            if content_part.get("type") == "text"
        )
    # A declined reply, or one that ended in its thoughts, has no text: that is no error.
    if finish_kind == "declined" or (
        reply_text is None and (has_thoughts or finish_kind == "length")
    ):
        reply_text = ""
    if not isinstance(reply_text, str):
        error_message = "answered without a text"
        raise ServerError(error_message)
    # it did not heed max_tokens, and what reads the answer takes time
    if len(reply_text) > MAX_TOKEN_CHARACTERS * max_tokens:
        error_message = (
            f"answered with {len(reply_text)} characters, more than {max_tokens} tokens hold"
        )
        raise ServerError(error_message)
    completion = Completion(
        visible(reply_text),
        () if finish_kind == "declined" else _token_scores(first_choice.get("logprobs")),
        finish_kind,
        _token_count(parsed_reply, "prompt_tokens"),
        _token_count(parsed_reply, "completion_tokens"),
        reason=decline_reason,
    )
    model_name = parsed_reply.get("model")
    return ServerReply(completion, has_thoughts, model_name if isinstance(model_name, str) else "")


def _token_scores(logprobs: Any) -> tuple[TokenScore, ...]:  # noqa: ANN401  (any JSON)
    """Tokens with their log-probabilities; none unless all are measured."""
    token_rows = logprobs.get("content") if isinstance(logprobs, dict) else None
    measured_tokens = _measured(token_rows)
    if not isinstance(token_rows, list) or len(measured_tokens) < len(token_rows):
        return ()
    return tuple(
        TokenScore(
            *measured_token,
            tuple(
                sorted(
                    _measured(token_row.get("top_logprobs")),
                    key=lambda alternative: -alternative[1],
                )
            ),
        )
        for measured_token, token_row in zip(measured_tokens, token_rows, strict=True)
    )


def _measured(token_rows: Any) -> list[tuple[str, float]]:  # noqa: ANN401  (any JSON)
    """Texts and log-probabilities of the rows that have one."""
    return [
        (visible(str(token_row.get("token", ""))), float(token_row["logprob"]))
        for token_row in (token_rows if isinstance(token_rows, list) else [])
        if isinstance(token_row, dict)
        and type(token_row.get("logprob")) in {int, float}
        and -sys.float_info.max <= token_row["logprob"] <= 0
    ]


def _token_count(parsed_reply: Mapping[str, Any], usage_name: str) -> int | None:
    """Tokens that a reply reports under a name; None where it reports none that can be."""
    usage_counts = parsed_reply.get("usage")
    token_count = usage_counts.get(usage_name) if isinstance(usage_counts, dict) else None
    return token_count if type(token_count) is int and 0 <= token_count <= MAX_TOKEN_COUNT else None


def message_of(body: Any) -> str:  # noqa: ANN401  (any JSON)
    """What a server says of an error, after a colon; '' where it says nothing."""
    first_body = body[0] if isinstance(body, list) and body else body  # as Gemini's
    error = (
        first_body.get("error", first_body.get("detail", first_body))
        if isinstance(first_body, dict)
        else first_body
    )
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
    stated_parameter = error.body.get("param") if isinstance(error.body, dict) else ""
    text = f"{stated_parameter} {message_of(error.body)}"
    name_positions = {
        parameter_name: name_match.start()
        for parameter_name in sent
        if parameter_name not in {"model", "messages"}
        and (parameter_name == "temperature" or not _LIMIT_ERROR.search(text))
        and (name_match := re.search(rf"\b{parameter_name}\b", text))
    }
    if name_positions:
        return min(name_positions, key=name_positions.__getitem__)
    sent_roles = [message["role"] for message in sent["messages"]]
    return "system" if "system" in sent_roles and _ROLE_ERROR.search(text) else ""
