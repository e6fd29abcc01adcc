"""The key of a server and the credentials of its URL: read at each call, and kept out of whatever is shown."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, unquote

from raglab.answering._replies import ServerError
from raglab.answering.hygiene import clean, visible

MIN_SECRET = 6  # characters; shorter keys are placeholders such as EMPTY or none, and words of answers
MAX_REASON = 240
MASK = "[hidden]"


def credentials(url: SplitResult, key_env: str) -> tuple[str | None, list[str]]:
    """The Authorization header, None for none, and all that must not be shown, the longest first.

    Raises:
      ServerError: the key must be printable ASCII, as headers are.
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
        raise ServerError(msg)
    shown = [text for text in secrets if len(text) >= MIN_SECRET]
    return authorization, sorted(shown, key=lambda text: (-len(text), text))


def masked(text: str, secrets: Sequence[str]) -> str:
    """A text with each secret replaced; the longest come first."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def carries(text: str, secrets: Sequence[str]) -> bool:
    """Whether a secret would show in a text once it is cleaned, or with other marks between its letters."""
    plain = [re.sub("[^A-Za-z0-9]", "", shown) for shown in (text, clean(text).text)]
    bare = [re.sub("[^A-Za-z0-9]", "", secret) for secret in secrets]
    return any(len(secret) >= MIN_SECRET and secret in shown for secret in bare for shown in plain)


def one_line(why: str, secrets: Sequence[str]) -> str:
    """A reason on one line of at most `MAX_REASON` characters, without markup and secrets."""
    line = masked(" ".join(visible(why).split()), secrets)
    plain = " ".join(clean(line[: 4 * MAX_REASON]).text.split())[:MAX_REASON]
    return "failed, with the key in its words" if carries(plain, secrets) else plain or "failed"
