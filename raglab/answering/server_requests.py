"""Requests to OpenAI-compatible servers (shore): one reply, read whole before a deadline.

Retries and Retry-After.

What is sent goes to the host of the address alone: redirects are not followed, proxies and further
headers of the environment not used.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from raglab.answering.server_replies import ReplyError

if TYPE_CHECKING:
    import httpx2

_PARTS = ("chat", "completions", "models")  # of the client, which it imports with its first request
LONGEST_WAIT_S = 60.0  # that the client waits for a Retry-After
# of a reply; an answer of 10,000 tokens with their log-probabilities takes 2 MB
MAX_BYTES = 4_000_000
_SENT = frozenset({"host", "content-type", "content-length", "accept", "user-agent", "connection"})
_USED = frozenset({"content-type", "retry-after", "retry-after-ms"})


def _wait_s(header: str | None) -> float:
    """Seconds of a Retry-After header, stated as such or as a date.

    0 where there is none that can be read.
    """
    text = (header or "").strip()
    try:
        seconds = (
            float(text)
            if text[:1].isdigit()
            else parsedate_to_datetime(text).timestamp() - time.time()
        )
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return seconds if 0.0 < seconds < math.inf else 0.0


class ServerRequest(NamedTuple):
    """A request to a server.

    base_url: without user and password. authorization: header, None for none. body: of a chat or a
    completion; None asks for the list of models. deadline: by `time.monotonic`. retries: further
    attempts.
    """

    base_url: str
    authorization: str | None
    body: Mapping[str, Any] | None
    deadline: float
    retries: int


class StatusError(Exception):
    """A reply with a status of HTTP that is an error, and what the server says of it."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(f"status {status}")
        self.status, self.body = status, body


def import_libraries() -> None:
    """Import what a request needs, which is slow the first time."""
    for name in ("anyio.from_thread", "httpx2", *(f"openai.resources.{part}" for part in _PARTS)):
        import_module(name)


def reply_body(request: ServerRequest) -> bytes:
    """The body of the server's reply, read whole before the deadline.

    A client's own timeout is for one step: a server that sends a header, a `100 Continue` or a byte
    at a time would never reach it. The asynchronous client can be cancelled in whatever it waits
    for, which closes the connection; it runs in a thread of its own, since a notebook has a running
    loop already.

    Raises:
      TimeoutError, ConnectionError, StatusError, ReplyError: without the library's own error, which
        holds the request with its key.
    """
    import httpx2
    import openai
    from anyio import fail_after
    from anyio.from_thread import start_blocking_portal

    seconds = request.deadline - time.monotonic()

    async def post() -> bytes:
        with fail_after(request.deadline - time.monotonic()):
            async with openai.AsyncOpenAI(
                api_key="stands in the transport",
                base_url=request.base_url,
                timeout=seconds,
                max_retries=request.retries,
                http_client=httpx2.AsyncClient(transport=_transport(request), trust_env=False),
            ) as client:
                if request.body is None:
                    return (await client.models.with_raw_response.list()).content
                endpoint: Any = (
                    client.chat.completions if "messages" in request.body else client.completions
                )
                response = await endpoint.with_raw_response.create(**request.body)
                content: bytes = response.content
                return content

    try:
        with start_blocking_portal() as portal:
            return portal.call(post)
    except openai.APITimeoutError:
        raise TimeoutError from None
    except openai.APIConnectionError:
        raise ConnectionError from None
    except openai.APIStatusError as error:
        raise StatusError(error.status_code, error.body) from None


def _transport(server_request: ServerRequest) -> httpx2.AsyncBaseTransport:
    """A transport that sends the needed headers alone, and takes replies of at most `MAX_BYTES`."""
    import httpx2

    class Bounded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            # The client adds headers of its own, which would say what runs here; unpacked size
            # could not be bounded.
            headers = {name: value for name, value in request.headers.items() if name in _SENT}
            headers["accept-encoding"] = "identity"
            if server_request.authorization is not None:
                headers["authorization"] = server_request.authorization
            bare = httpx2.Request(
                request.method, request.url, headers=headers, stream=request.stream
            )
            body = bytearray()
            async with aclosing(await super().handle_async_request(bare)) as response:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > MAX_BYTES:
                        msg = f"answered with more than {MAX_BYTES} bytes"
                        raise ReplyError(msg)
            # No cookie, redirect or encoding of the server's is acted on.
            used = [(name, value) for name, value in response.headers.items() if name in _USED]
            wait = _wait_s(response.headers.get("retry-after"))
            if wait > LONGEST_WAIT_S or wait >= server_request.deadline - time.monotonic():
                # it would be asked too early, or too late: the status says more
                used = [("x-should-retry", "false")]
            return httpx2.Response(response.status_code, headers=used, content=bytes(body))

    secure = urlsplit(server_request.base_url).scheme == "https"
    context = httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return Bounded(verify=context)
