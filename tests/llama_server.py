"""A server that answers as llama.cpp's does, and fails where it is told to."""

from __future__ import annotations

import json

import pytest

from judge_server import KEY, JudgeServer, Reply, completion
from local_server import serving

TOP = [
    {"token": token, "logprob": logprob}
    for token, logprob in (("t", -0.05), ("Yes", -4.0), ("No", -5.0))
]
SURE = {"content": [{"token": "t", "logprob": -0.05, "top_logprobs": TOP}]}
SILENCE = Reply(0)  # until the client gives up
GONE = Reply(502, b"upstream is gone")


def error(status, message, *headers):
    """An error as such servers word it."""
    return Reply(
        status, json.dumps({"error": {"message": message, "code": status}}).encode(), headers
    )


MARKED = "Passage 1:\n> The motor excess is 250 pounds [1]."
WHOLE = completion("The motor excess is 250 pounds [1].", logprobs=SURE)
# What servers do, and the kind of the failure that it must end in; '' is an answer.
QUIRKS: dict[str, tuple[Reply, str]] = {
    "busy": (error(429, "slow down"), "HTTP 429"),
    "busy for an hour": (error(429, "slow down", ("retry-after", "3600")), "HTTP 429"),
    "broken": (error(500, "CUDA error"), "HTTP 500"),
    "half a JSON": (Reply(body=WHOLE.body[:60]), "malformed reply"),
    "a drip": (WHOLE._replace(pause=0.05), "timeout"),
    "a redirect": (Reply(307, b"", (("location", "/elsewhere/v1/chat/completions"),)), "HTTP 307"),
    "an unknown model": (error(404, "The model `tiny` does not exist"), "HTTP 404"),
    "context overflow": (
        error(400, "the request exceeds the available context size, 512 tokens"),
        "HTTP 400",
    ),
    "cut off by the context": (
        completion("The motor", logprobs=SURE, finish_reason="length"),
        "cut off",
    ),
    "another model": (
        Reply(body=WHOLE.body.replace(b'{"id"', b'{"model": "other.gguf", "id"')),
        "",
    ),
    "echoed marks": (completion(MARKED, logprobs=SURE), ""),
}


class LlamaServer(JudgeServer):
    """Log-probabilities only with `top_logprobs`, and an error of HTTP for the form `json_schema`.

    text: of every answer. logprobs: whether it can give log-probabilities at all. forms: of JSON
    that it takes. failing: what it does instead, by question; '' is the probe, which asks no
    question. times: how often it does; for ever where not given.
    """

    def __init__(self):
        super().__init__()
        self.text = "The motor excess is 250 pounds [1]."
        self.logprobs = True
        self.forms: tuple[str | None, ...] = (None, "json_object")
        self.failing: dict[str, Reply] = {}
        self.times: dict[str, int] = {}
        self.behave = self._reply

    def _reply(self, question, place):
        body = self.bodies[-1]
        if question in self.failing and place <= self.times.get(question, place):
            return self.failing[question]
        if body.get("response_format", {}).get("type") not in self.forms:
            return Reply(
                500, json.dumps({"error": {"message": "response_format is not supported"}}).encode()
            )
        given = (
            SURE if self.logprobs and body.get("logprobs") and body.get("top_logprobs") else None
        )
        return completion(self.text, logprobs=given)

    @property
    def questions(self):
        """Questions that came, in order, without the probes."""
        return [question for question in self.asked if question]

    @property
    def probes(self):
        """How often it was probed: of the requests of a probe the first is counted."""
        return sum(
            body.get("top_logprobs") == 20 and "single word yes" in str(body["messages"])
            for body in self.bodies
        )


def cut_off(text="The motor excess is"):
    """An answer that reached the limit of its tokens."""
    return completion(text, logprobs=SURE, finish_reason="length")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Return a server of the test's own, its key in the environment, and a place for kept data."""
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "kept"))
    running = LlamaServer()
    with serving(running):
        yield running
