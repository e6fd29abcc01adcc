"""A server that answers as llama.cpp's does, and fails where it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from judge_server import JudgeServer, Reply, completion
from local_server import serving

SURE = {"content": [{"token": "t", "logprob": -0.05, "top_logprobs": [{"token": "t", "logprob": -0.05}]}]}
SILENCE = Reply(0)  # until the client gives up
GONE = Reply(502, b"upstream is gone")


class LlamaServer(JudgeServer):
    """Log-probabilities only with `top_logprobs`, and an error of HTTP for the form `json_schema`.

    text: of every answer. logprobs: whether it can give log-probabilities at all. forms: of JSON that it takes.
    failing: what it does instead, by question; '' is the probe, which asks no question. times: how often it does; for
    ever where not given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = "The motor excess is 250 pounds [1]."
        self.logprobs = True
        self.forms: tuple[str | None, ...] = (None, "json_object")
        self.failing: dict[str, Reply] = {}
        self.times: dict[str, int] = {}
        self.behave = self._reply

    def _reply(self, question: str, place: int) -> Reply:
        body = self.bodies[-1]
        if question in self.failing and place <= self.times.get(question, place):
            return self.failing[question]
        if body.get("response_format", {}).get("type") not in self.forms:
            return Reply(500, json.dumps({"error": {"message": "response_format is not supported"}}).encode())
        given = SURE if self.logprobs and body.get("logprobs") and body.get("top_logprobs") else None
        return completion(self.text, logprobs=given)

    @property
    def questions(self) -> list[str]:
        """Questions that came, in order, without the probes."""
        return [question for question in self.asked if question]

    @property
    def probes(self) -> int:
        """How often it was asked for a few tokens alone."""
        return self.asked.count("")


def cut_off(text: str = "The motor excess is") -> Reply:
    """An answer that reached the limit of its tokens."""
    return completion(text, logprobs=SURE, finish_reason="length")


@contextmanager
def llama_server() -> Iterator[Any]:
    """A server that ends with the block."""
    server = LlamaServer()
    with serving(server):
        yield server
