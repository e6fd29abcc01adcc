"""Secrets of a server (shore): the key of a request, and texts in which nothing of it may show."""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote

from raglab.answering.hygiene import clean, visible

# characters; shorter keys are placeholders such as EMPTY or none, and words of answers
MIN_SECRET = 6
MAX_REASON = 240
MASK = "[hidden]"
KEY_VARIABLE = "OPENAI_API_KEY"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # keys of servers have small letters or a hyphen
_KEY_ARGUMENTS = (
    "api_key",
    "apikey",
    "key",
    "token",
    "secret",
    "password",
    "openai_api_key",
    "bearer_token",
)
T = TypeVar("T")
_CONNECTION_LOGS = ("httpcore2.connection", "httpcore2.http11")


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


def check_key_variable(name: object) -> None:
    """Stop where the name of a variable is expected.

    The value is not shown, since it may be the key itself.

    Raises:
      ValueError: with the remedy.
    """
    if not isinstance(name, str) or not (
        _VARIABLE.fullmatch(name) or (name and name in os.environ)
    ):
        rule = (
            "key_env must be the name of a variable of the environment, in capitals unless it is "
            "set"
        )
        shown = (
            "a text that is none and is not shown" if isinstance(name, str) else type(name).__name__
        )
        msg = f"{rule}, got {shown}; set {KEY_VARIABLE} to the key and leave key_env out."
        raise ValueError(msg)


def without_keys(client: type[T]) -> type[T]:
    """The class, which answers a key among its arguments with where keys go.

    The key is not shown.
    """
    initializer: Any = client.__init__

    @wraps(initializer)
    def init(self: object, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - of any client
        for name in _KEY_ARGUMENTS:
            if name in settings:
                msg = (
                    f"{client.__name__} takes no {name}, since keys stay out of code, notebooks "
                    "and logs; set the "
                    f"variable {KEY_VARIABLE}, or name another one by key_env."
                )
                raise TypeError(msg)
        initializer(self, *args, **settings)

    initialised: Any = client
    initialised.__init__ = init
    return client


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

    logs = [logging.getLogger(name) for name in _CONNECTION_LOGS]
    for log in logs:
        log.addFilter(shows_none)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(shows_none)
