"""Servers of the tests on this machine: a free port, a thread of their own, gone with the block."""

from __future__ import annotations

import json
import math
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from raglab.values import Chunk


class LocalServer(ThreadingHTTPServer):
    """A server at 127.0.0.1; released: set when it ends, for handlers that wait."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.released = threading.Event()
        self.host = f"127.0.0.1:{self.server_port}"


@contextmanager
def serving(server):
    """Serve until the block ends."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


KEY = "sk-test-4f9a81c2d7"
PASSAGES = [
    Chunk("a", "The excess is £250.", "home.md"),
    Chunk("b", "Storm damage is covered up to £400.", "home.md"),
    Chunk("c", "Flood is excluded.", "flood.md"),
]


def reply(text, logprobs=None, **choice):
    """A chat completion that says `text`."""
    message = {"role": "assistant", "content": text}
    said = {"index": 0, "finish_reason": "stop", "message": message, **choice}
    if logprobs is not None:
        said["logprobs"] = logprobs
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [said]}).encode()


def tokens(*values):
    """Log-probabilities as a server reports them."""
    return {"content": [{"token": "t", "logprob": value} for value in values]}


GOOD = reply("The excess is £250 [1].", tokens(math.log(0.5), math.log(0.5)))
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

APP = Path(__file__).parents[1] / "experiments" / "service" / "app.py"
