"""Requests to OpenAI-compatible servers (shore): one reply, read whole before a deadline.

The `openai` library retries and heeds Retry-After. What is sent goes to the host of the address
alone: redirects are not followed, proxies and further headers of the environment not used.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from raglab.answering.client import NO_CONNECTION, TIMEOUT
from raglab.answering.server_replies import ServerError, message_of

if TYPE_CHECKING:
    import httpx2

# of a reply; an answer of 10,000 tokens with their log-probabilities takes 2 MB
MAX_REPLY_BYTES = 4_000_000
_SENT_HEADERS = frozenset(
    {"host", "content-type", "content-length", "accept", "user-agent", "connection"}
)
_READ_HEADERS = frozenset({"retry-after", "retry-after-ms"})


class ServerRequest(NamedTuple):
    """A request for a chat.

    base_url: without user and password. authorization: header, None for none. body: fields.
    timeout: seconds, as stated. deadline: by `time.monotonic`. retries: further attempts.
    """

    base_url: str
    authorization: str | None
    body: Mapping[str, Any]
    timeout: float
    deadline: float
    retries: int


def import_libraries() -> None:
    """Import what a request needs, which is slow the first time."""
    for name in ("anyio.from_thread", "httpx2", "openai"):
        import_module(name)


def reply_body(request: ServerRequest) -> bytes:
    """The body of the server's reply, read whole before the deadline.

    A client's own timeout is for one step: a server that sends a header, a `100 Continue` or a byte
    at a time would never reach it. The asynchronous client can be cancelled in whatever it waits
    for, which closes the connection; it runs in a thread of its own, since a notebook has a running
    loop already.

    Raises:
      ServerError: without the library's own error, which holds the request with its key.
    """
    import httpx2
    import openai
    from anyio import fail_after
    from anyio.from_thread import start_blocking_portal

    status_codes: list[int] = []

    async def send_needed(sent_request: httpx2.Request) -> None:
        """Leave out what says what runs here; of packed replies the size could not be bounded."""
        kept_headers = {
            header_name: header_value
            for header_name, header_value in sent_request.headers.items()
            if header_name in _SENT_HEADERS
        }
        kept_headers |= {"accept-encoding": "identity"}
        kept_headers |= {"authorization": request.authorization} if request.authorization else {}
        sent_request.headers = httpx2.Headers(kept_headers)

    async def read_bounded(response: httpx2.Response) -> None:
        """No cookie, redirect or encoding of the server's is acted on."""
        status_codes.append(response.status_code)
        reply_bytes = bytearray()
        byte_stream = cast("httpx2.AsyncByteStream", response.stream)
        async with aclosing(byte_stream):
            async for received_bytes in byte_stream:
                reply_bytes += received_bytes
                if len(reply_bytes) > MAX_REPLY_BYTES:
                    error_message = f"answered with more than {MAX_REPLY_BYTES} bytes"
                    raise ServerError(error_message)
        response.stream = httpx2.ByteStream(bytes(reply_bytes))
        kept_headers = {
            header_name: header_value
            for header_name, header_value in response.headers.items()
            if header_name in _READ_HEADERS
        }
        response.headers = httpx2.Headers(kept_headers)

    async def post() -> bytes:
        is_secure = urlsplit(request.base_url).scheme == "https"
        http_client = httpx2.AsyncClient(
            # a context with the certificates of the machine takes 20 ms
            verify=httpx2.create_ssl_context()
            if is_secure
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            event_hooks={"request": [send_needed], "response": [read_bounded]},
        )
        with fail_after(request.deadline - time.monotonic()):
            async with openai.AsyncOpenAI(
                api_key="stands in the header",
                base_url=request.base_url,
                timeout=None,
                max_retries=request.retries,
                http_client=http_client,
            ) as client:
                response = await client.post(
                    "/chat/completions", cast_to=httpx2.Response, body=request.body
                )
                return response.content

    # Each failure becomes one of our kinds: the error of the library holds the key.
    try:
        with start_blocking_portal() as portal:
            return portal.call(post)
    except TimeoutError:
        last_status = (
            f", but with {status_codes[-1]}" if status_codes and status_codes[-1] >= 400 else ""
        )
        failure_text, failure_kind, error_body = (
            f"did not answer within {request.timeout:g} s{last_status}",
            TIMEOUT,
            None,
        )
    except openai.APIConnectionError:
        failure_text, failure_kind, error_body = (
            "could not be reached or broke off",
            NO_CONNECTION,
            None,
        )
    except openai.APIStatusError as error:
        error_status = error.status_code
        error_body = error.body
        failure_text = f"answered {error_status}{message_of(error_body)}"
        failure_kind = f"HTTP {error_status}"
    raise ServerError(failure_text, failure_kind, error_body)
