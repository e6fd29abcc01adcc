"""Secrets of a server (shore): the key of a request, and texts in which nothing of it may show."""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import SplitResult, unquote

from raglab.answering.hygiene import clean, visible
from raglab.answering.server_replies import ServerError, ServerReply

# characters; shorter keys are placeholders such as EMPTY or none, and words of answers
MIN_SECRET_LENGTH = 6
MAX_REASON_LENGTH = 240
HIDDEN_MARK = "[hidden]"
KEY_VARIABLE = "OPENAI_API_KEY"
_VARIABLE_NAME = re.compile(
    r"[A-Z_][A-Z0-9_]{0,63}"
)  # keys of servers have small letters or a hyphen
_LOG_NAMES = ("httpcore2.connection", "httpcore2.http11", "httpx2", "openai._base_client")


def credentials(url: SplitResult, key_env: str) -> tuple[str | None, list[str]]:
    """The Authorization header, None for none, and all that must not be shown, the longest first.

    Raises:
      ValueError: the key must be printable ASCII, as headers are.
    """
    server_key = os.environ.get(key_env, "").strip()
    secrets = {server_key}
    authorization = f"Bearer {server_key}" if server_key else None
    if url.username or url.password:
        user_name = url.username or ""
        password = url.password or ""
        plain_pair = f"{unquote(user_name)}:{unquote(password)}"
        basic_token = base64.b64encode(plain_pair.encode()).decode()
        secrets |= {f"{user_name}:{password}", plain_pair, basic_token, password, unquote(password)}
        authorization = f"Basic {basic_token}"
    if authorization and not (authorization.isascii() and authorization.isprintable()):
        message = f"{key_env} must hold printable ASCII, got other characters; set it again."
        raise ValueError(message)
    masked_texts = [secret_text for secret_text in secrets if len(secret_text) >= MIN_SECRET_LENGTH]
    return authorization, sorted(
        masked_texts, key=lambda secret_text: (-len(secret_text), secret_text)
    )


def check_key_variable(name: str) -> None:
    """Stop where a text is no name of a variable.

    It is not shown, since it may be the key itself.

    Raises:
      ValueError: with the remedy.
    """
    if not _VARIABLE_NAME.fullmatch(name) and name not in os.environ:
        rule = "key_env must be the name of a variable, in capitals unless it is set"
        message = f"{rule}, got another text; set {KEY_VARIABLE} to the key and leave key_env out."
        raise ValueError(message)


def mask_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text with each secret replaced; the longest come first."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN_MARK)
    return text


def carries(text: str, secrets: Sequence[str]) -> bool:
    """Whether a secret would show in a text once cleaned, or with other marks between letters."""
    plain_texts = [
        re.sub("[^A-Za-z0-9]", "", shown_text) for shown_text in (text, clean(text).text)
    ]
    bare_secrets = [re.sub("[^A-Za-z0-9]", "", secret) for secret in secrets]
    return any(
        len(secret) >= MIN_SECRET_LENGTH and secret in shown_text
        for secret in bare_secrets
        for shown_text in plain_texts
    )


def masked(reply: ServerReply, secrets: Sequence[str]) -> ServerReply:
    """A reply that shows no secret, in text, tokens, reason or name of its model.

    Raises:
      ServerError: its text carries one that masking cannot reach, spelt with other marks between
        its letters.
    """
    masked_completion = reply.completion
    model_name = reply.model
    masked_text = mask_secrets(masked_completion.text, secrets)
    if carries(masked_text, secrets):
        message = "answered with the key in it"
        raise ServerError(message)
    reply_tokens = masked_completion.tokens
    if masked_text != masked_completion.text or carries(str(reply_tokens), secrets):
        reply_tokens = tuple(reply_token._replace(token="", top=()) for reply_token in reply_tokens)
    masked_reason = (
        one_line_reason(masked_completion.reason, secrets) if masked_completion.reason else ""
    )
    return reply._replace(
        completion=masked_completion._replace(
            text=masked_text, tokens=reply_tokens, reason=masked_reason
        ),
        model=one_line_reason(model_name, secrets) if model_name else "",
    )


def one_line_reason(message: str, secrets: Sequence[str]) -> str:
    """A reason on one line of up to `MAX_REASON_LENGTH` characters, without markup or secrets."""
    line = mask_secrets(" ".join(visible(message).split()), secrets)
    plain_reason = " ".join(clean(line[: 4 * MAX_REASON_LENGTH]).text.split())[:MAX_REASON_LENGTH]
    return (
        "failed, with the key in its words"
        if carries(plain_reason, secrets)
        else plain_reason or "failed"
    )


@contextmanager
def unlogged(secrets: Sequence[str]) -> Iterator[None]:
    """Meanwhile the connection's log leaves out lines with a secret.

    A server may send the key back as a header.
    """

    def shows_none(record: logging.LogRecord) -> bool:
        return not any(secret in record.getMessage() for secret in secrets)

    connection_logs = [logging.getLogger(name) for name in _LOG_NAMES]
    for connection_log in connection_logs:
        connection_log.addFilter(shows_none)
    try:
        yield
    finally:
        for connection_log in connection_logs:
            connection_log.removeFilter(shows_none)
