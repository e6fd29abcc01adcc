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
MIN_SECRET = 6
MAX_REASON = 240
MASK = "[hidden]"
KEY_VARIABLE = "OPENAI_API_KEY"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # keys of servers have small letters or a hyphen
_LOGS = ("httpcore2.connection", "httpcore2.http11", "httpx2", "openai._base_client")


def credentials(url: SplitResult, key_env: str) -> tuple[str | None, list[str]]:
    """The Authorization header, None for none, and all that must not be shown, the longest first.

    Raises:
      ValueError: the key must be printable ASCII, as headers are.
    """
    key = os.environ.get(key_env, "").strip()
    secrets, authorization = {key}, f"Bearer {key}" if key else None
    if url.username or url.password:
        user, password = url.username or "", url.password or ""
        pair = f"{unquote(user)}:{unquote(password)}"
        token = base64.b64encode(pair.encode()).decode()
        secrets |= {f"{user}:{password}", pair, token, password, unquote(password)}
        authorization = f"Basic {token}"
    if authorization and not (authorization.isascii() and authorization.isprintable()):
        msg = f"{key_env} must hold printable ASCII, got other characters; set it again."
        raise ValueError(msg)
    shown = [text for text in secrets if len(text) >= MIN_SECRET]
    return authorization, sorted(shown, key=lambda text: (-len(text), text))


def check_key_variable(name: str) -> None:
    """Stop where a text is no name of a variable.

    It is not shown, since it may be the key itself.

    Raises:
      ValueError: with the remedy.
    """
    if not _VARIABLE.fullmatch(name) and name not in os.environ:
        rule = "key_env must be the name of a variable, in capitals unless it is set"
        msg = f"{rule}, got another text; set {KEY_VARIABLE} to the key and leave key_env out."
        raise ValueError(msg)


def mask_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text with each secret replaced; the longest come first."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def carries(text: str, secrets: Sequence[str]) -> bool:
    """Whether a secret would show in a text once cleaned, or with other marks between letters."""
    plain = [re.sub("[^A-Za-z0-9]", "", shown) for shown in (text, clean(text).text)]
    bare = [re.sub("[^A-Za-z0-9]", "", secret) for secret in secrets]
    return any(len(secret) >= MIN_SECRET and secret in shown for secret in bare for shown in plain)


def masked(reply: ServerReply, secrets: Sequence[str]) -> ServerReply:
    """A reply that shows no secret, in text, tokens, reason or name of its model.

    Raises:
      ServerError: its text carries one that masking cannot reach, spelt with other marks between
        its letters.
    """
    completion, model = reply.completion, reply.model
    text = mask_secrets(completion.text, secrets)
    if carries(text, secrets):
        msg = "answered with the key in it"
        raise ServerError(msg)
    tokens = completion.tokens
    if text != completion.text or carries(str(tokens), secrets):
        tokens = tuple(token._replace(token="", top=()) for token in tokens)
    reason = one_line_reason(completion.reason, secrets) if completion.reason else ""
    return reply._replace(
        completion=completion._replace(text=text, tokens=tokens, reason=reason),
        model=one_line_reason(model, secrets) if model else "",
    )


def one_line_reason(why: str, secrets: Sequence[str]) -> str:
    """A reason on one line of at most `MAX_REASON` characters, without markup and secrets."""
    line = mask_secrets(" ".join(visible(why).split()), secrets)
    plain = " ".join(clean(line[: 4 * MAX_REASON]).text.split())[:MAX_REASON]
    return "failed, with the key in its words" if carries(plain, secrets) else plain or "failed"


@contextmanager
def unlogged(secrets: Sequence[str]) -> Iterator[None]:
    """Meanwhile the connection's log leaves out lines with a secret.

    A server may send the key back as a header.
    """

    def shows_none(record: logging.LogRecord) -> bool:
        return not any(secret in record.getMessage() for secret in secrets)

    logs = [logging.getLogger(name) for name in _LOGS]
    for log in logs:
        log.addFilter(shows_none)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(shows_none)
