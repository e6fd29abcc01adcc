"""A judge on this machine.

An OpenAI-compatible server that scores questions, and misbehaves where it is told to.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

import pytest

from local_server import LocalServer, serving

KEY = "sk-test-7b1e90ffab42"
USAGE = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}


class Reply(NamedTuple):
    """What the server sends; a status of 0 is silence until the end of the test.

    Pause: seconds between its bytes.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    pause: float = 0.0


def completion(text, usage=USAGE, **choice):
    """A chat completion that says `text`."""
    said = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
        **choice,
    }
    return Reply(body=json.dumps({"id": "1", "choices": [said], "usage": usage}).encode())


def true_score(question):
    """Score that a question always gets."""
    return int(hashlib.sha256(question.encode()).hexdigest()[:4], 16) / 0xFFFF


def graded(question):
    """The reply of a judge that behaves."""
    return completion(json.dumps({"score": true_score(question)}))


class JudgeServer(LocalServer):
    """Requests that came and replies that went out whole, by question.

    `behave` maps a question's n-th request.
    """

    def __init__(self):
        super().__init__(_Handler)
        self.base_url = f"http://{self.host}/v1"
        self.behave: Callable[[str, int], Reply] = lambda question, _: graded(question)
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.served: Counter[str] = Counter()
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def log_message(self, *_):
        """Keep quiet."""

    def do_GET(self):
        """No list of models."""
        self.send_error(404)

    def do_POST(self):
        """Note the request and reply."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        found = re.search(r"^(?:Question|Field):\n((?:> .*\n?)+)", text, re.MULTILINE)
        question = (
            "\n".join(line.removeprefix("> ") for line in found[1].splitlines()) if found else ""
        )
        with self.server.lock:
            self.server.asked.append(question)
            self.server.bodies.append({**body, "path": self.path})
            self.server.keys.add(self.headers.get("Authorization", ""))
            place = self.server.asked.count(question)
        reply = self.server.behave(question, place)
        self.close_connection = True
        with suppress(BrokenPipeError, ConnectionResetError):
            if not reply.status:
                self.server.released.wait(20)
                return
            self.send_response(reply.status)
            for name, value in (("content-length", str(len(reply.body))), *reply.headers):
                self.send_header(name, value)
            self.end_headers()
            if reply.pause:
                for byte in reply.body:
                    self.server.released.wait(reply.pause)
                    self.wfile.write(bytes([byte]))
            else:
                self.wfile.write(reply.body)
            with self.server.lock:
                self.server.served[question] += reply.status == 200


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Return a server of the test's own, its key in the environment, and a place for kept data."""
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "kept"))
    running = JudgeServer()
    with serving(running):
        yield running
