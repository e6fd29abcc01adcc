"""A model server that answers anything: a text, or a reason in one line.

Never an exception, a key or a wait.
"""

from __future__ import annotations

import json
import math
import re
import socket
import threading
from contextlib import suppress
from functools import partial

import pytest

from fuzz.mutation import WORDS, json_bytes, mutated_bytes, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from local_server import CHUNKED, GOOD, KEY, PASSAGES, tokens
from raglab.answering.generation import ModelGenerator
from raglab.answering.openai_client import OpenAIClient
from raglab.store.files import InputError
from raglab.values import Generation, ModelUnavailableError
from raglab.words.characters import visible

pytest.importorskip("openai")

WAIT_S = 0.15
STATUSES = (
    200,
    200,
    200,
    200,
    201,
    204,
    206,
    301,
    308,
    400,
    401,
    404,
    418,
    429,
    500,
    503,
    599,
    99,
    1000,
)
HEADERS = (
    b"content-encoding: gzip",
    b"content-encoding: br",
    b"transfer-encoding: chunked",
    b"content-length: -1",
    b"content-length: 99999999999999999999",
    b"location: file:///etc/passwd",
    b"retry-after: 3600",
    b"x: " + b"y" * 9_000,
    b"set-cookie: a=" + KEY.encode(),
    b"connection: upgrade",
    b"content-type: text/html",
    b"\xff: \xfe",
    b"no colon",
)


class Server:
    """A server that sends the same bytes to whoever asks, whatever is asked."""

    def __init__(self):
        self.sent = b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                link, _ = self.socket.accept()
            except OSError:
                return
            with link, suppress(OSError):
                link.settimeout(1.0)
                got = link.recv(65_536)
                head, _, body = got.partition(b"\r\n\r\n")
                stated = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                while len(body) < int(stated[1] if stated else 0):
                    body += link.recv(65_536)
                link.sendall(self.sent)
                link.shutdown(socket.SHUT_WR)

    def close(self):
        """End it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(2)


@pytest.fixture
def server(monkeypatch):
    """The server, ended at the end, and a key in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = Server()
    yield made
    made.close()


def body(rng):
    """A completion with values changed, or bytes."""
    kind = rng.random()
    if kind < 0.65:
        value = json.loads(GOOD)
        choice = value["choices"][0]
        if rng.random() < 0.3:
            choice["logprobs"] = tokens(
                *(pick(rng, (-0.1, 0, 1, math.nan, None, "x", -1e308, True)) for _ in range(3))
            )
        if rng.random() < 0.3:
            choice["message"]["content"] = str(pick(rng, WORDS)) + pick(
                rng, ("", " [1]", f" {KEY}", " [999999999999]")
            )
        return json_bytes(value if rng.random() < 0.3 else mutated_value(rng, value))
    return mutated_bytes(rng, GOOD) if kind < 0.9 else rng.bytes(int(rng.integers(300)))


def reply(rng):
    """A whole reply of HTTP, right or not."""
    said, kind = body(rng), rng.random()
    if kind < 0.05:
        return rng.bytes(int(rng.integers(2_000)))
    if kind < 0.1:
        return CHUNKED + mutated_bytes(rng, f"{len(said):x}\r\n".encode() + said + b"\r\n0\r\n\r\n")
    status = pick(rng, STATUSES) if rng.random() < 0.4 else 200
    lines = [f"HTTP/1.1 {status} OK".encode(), f"content-length: {len(said)}".encode()]
    if rng.random() < 0.15:
        lines.insert(int(rng.integers(1, 3)), pick(rng, HEADERS))
    whole = b"\r\n".join([*lines, b"", said])
    return mutated_bytes(rng, whole) if rng.random() < 0.15 else whole


def wrong(made):
    """What is wrong with what came of a reply."""
    if isinstance(made, str):
        return "the key is shown" if KEY in made else ""
    told = made.reason or ""
    if KEY in told + made.text:
        return "the key is shown"
    if not (math.isnan(made.confidence) or 0.0 <= made.confidence <= 1.0):
        return f"a confidence of {made.confidence}"
    if any(not 0 <= one < len(PASSAGES) for one in made.cited):
        return f"passages {made.cited}"
    return (
        "" if bool(made.text) != bool(told) else f"text {made.text[:60]!r} and reason {told[:60]!r}"
    )


def asked(call):
    """What is made of a reply; a failure and a reason are of one line."""
    try:
        made = call()
    except ModelUnavailableError as error:
        if (
            KEY in str(error)
            or "\n" in str(error)
            or str(error) != visible(str(error))
            or len(str(error)) > 1_000
        ):
            raise OSError(str(error)) from error
        raise InputError(str(error)) from error
    if isinstance(made, Generation) and not wrong(made) and made.reason:
        if "\n" in made.reason or made.reason != visible(made.reason) or len(made.reason) > 1_000:
            raise OSError(made.reason)
        raise InputError(made.reason)
    return made


def test_whatever_a_server_says(server):
    """Statuses, headers, shapes of JSON and bytes."""
    client = OpenAIClient("tiny", server.url, timeout=WAIT_S, max_retries=0)
    generator = ModelGenerator(client)

    def draw(rng):
        server.sent = reply(rng)
        call = partial(generator.answer, "What is the excess?", PASSAGES)
        return Trial(shown(server.sent, 500), partial(asked, call), wrong)

    failures = fuzz("model server", draw, None, -(-CASES // 2))
    assert not failures, report(failures)
