"""Kinds of servers, each asked live, recorded, and decided in a study.

A row of `KINDS` says what a server does, and what comes of it. It does so for one question, or for
every request where it refuses a parameter or writes in a form of its own. An answer is the same
whatever the kind; what fails raises live, is missing in a recorded trace with the same kind, and is
left out of a study: it is never a refusal (rule S0.1).
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import socket
import struct
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from answered_traces import asked_world
from generators import Weighed
from live_worlds import CORPUS, OPEN, SMALL
from local_server import LocalServer, serving
from raglab.answering.generation import ModelGenerator
from raglab.answering.openai_client import OpenAIClient
from raglab.answering.required_confidence import NO_CONFIDENCE
from raglab.live.answer_recording import record_answers
from raglab.live.ask import ask
from raglab.live.system import System, build_index
from raglab.replay import decide, sweep
from raglab.store.policies import Policy
from raglab.store.trace_merging import ANSWER_REQUESTS
from raglab.store.traces import Trace
from raglab.values import ModelUnavailableError

pytest.importorskip("openai")
KEY = "sk-test-90aa3b17c6"
QUESTION, FAILING = "What is the motor excess?", "question 1"
ANSWER = "The motor excess is 250 pounds [1]."
SURE, DOUBT = math.log(0.9), math.log(0.05)  # of a token of the answer, and of a thought
THOUGHT = "The user wants the motor excess. Passage 1 says 250.\n"


def choice(text, tokens=None, **more):
    """A choice of a reply; the tokens are those of the text unless stated."""
    joined = tokens if tokens is not None else text if isinstance(text, str) else ""
    begin = joined.rfind(ANSWER)
    rows = [
        {
            "token": word[0],
            "logprob": SURE if begin < word.end() and word.start() < begin + len(ANSWER) else DOUBT,
            "top_logprobs": [{"token": word[0], "logprob": SURE}, {"token": "No", "logprob": -4}],
        }
        for word in re.finditer(r"<[^>]*>|assistantfinal|\[[^]]*\]|\s*[^\s<[]+\s*", joined)
    ]
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    return {
        "message": message,
        "finish_reason": "stop",
        "logprobs": {"content": rows} if rows else None,
        **more,
    }


def body(*choices, **more):
    """A whole reply."""
    return json.dumps({"model": "tiny", "choices": choices, **more}).encode()


GOOD = body(choice(ANSWER))


class Handler(BaseHTTPRequestHandler):
    """Does what the kind in its path does."""

    server: Server
    sent: dict[str, Any]

    def log_message(self, *_):
        """Keep quiet."""

    def do_POST(self):
        """Misbehave for the failing questions, or each time where the kind says so."""
        number = int(self.path.split("/")[1])
        kind = KINDS[number]
        self.sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.sent["messages"][-1]["content"]
        self.close_connection = True
        with suppress(OSError):
            if kind.always or QUESTION in text or FAILING in text:
                self.server.times[number] += 1
                kind.behave(self, self.server.times[number])
            else:
                self.say(200, GOOD)

    def say(self, status, content, **headers):
        """Send a whole reply."""
        self.send_response(status)
        for name, value in {"content_length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def drip(self, begins, part):
        """A part every 20 ms, without an end."""
        self.wfile.write(begins)
        while not self.server.released.wait(0.02):
            self.wfile.write(part)

    def reset(self, begins=b""):
        """Break off: the socket is reset."""
        self.wfile.write(begins)
        self.wfile.flush()
        time.sleep(0.02)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class Server(LocalServer):
    """Counts how often each kind misbehaved."""

    def __init__(self):
        super().__init__(Handler)
        self.times = Counter()


Behaviour = Callable[[Handler, int], object]


class Kind(NamedTuple):
    """A kind of server.

    ends: `ok`, or the kind of the failure, or `refuse` where the model declines. always: whether it
    does so for every request. sure: whether its answers have a confidence. left_out: parameters
    that it refuses. warned: words of a warning. timeout: of the client, in seconds. gated: whether
    a gate needs the confidence. first: live, where it ends otherwise than recorded.
    """

    name: str
    behave: Behaviour
    ends: str = "ok"
    always: bool = False
    sure: bool = True
    left_out: tuple[str, ...] = ()
    timeout: float = 10.0
    gated: bool = False


def saying(content, status=200, **headers):
    """The same reply each time."""
    return lambda handler, _: handler.say(status, content, **headers)


def replying(*chosen, **more):
    """A choice each time."""
    return saying(body(choice(*chosen, **more)))


def failing_once(status, **headers):
    """An error before each good reply."""
    return lambda handler, time: (
        handler.say(status, b"{}", **headers) if time % 2 else handler.say(200, GOOD)
    )


def thinking(text, **more):
    """A server whose replies hold thoughts."""
    return Kind(f"thoughts: {text[:44]!r}", replying(text, **more), always=False)


def refusing(maker, name, error, status=400, is_there=None, **more):
    """A server that refuses a parameter wherever it is sent."""
    sent = is_there or (lambda request: name in request)

    def behave(handler, _):
        refused = sent(handler.sent)
        gives = handler.sent.get("logprobs")
        good = GOOD if gives else body(choice(ANSWER, logprobs=None))
        handler.say(*((status, json.dumps(error).encode()) if refused else (200, good)))

    left_out = more.pop("left_out", (name,))
    return Kind(f"refuses {name} ({maker})", behave, always=True, left_out=left_out, **more)


def of_openai(name, more=""):
    """An error in OpenAI's words."""
    text = f"Unsupported parameter: '{name}' is not supported with this model.{more}"
    return {"error": {"message": text, "param": name, "code": "unsupported_parameter"}}


def of_vllm(name):
    """An error in vLLM's words."""
    text = f"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs'}}]"
    return {"object": "error", "message": text, "type": "BadRequestError", "param": None}


def has_system(request):
    """Whether instructions stand in a message of their own."""
    return request["messages"][0]["role"] == "system"


def refuse_one_by_one(handler, _):
    """As reasoning models of OpenAI do: the first that is there is named."""
    names = ("max_tokens", "temperature", "logprobs", "top_logprobs", "seed")
    for name in names:
        if name in handler.sent:
            handler.say(400, json.dumps(of_openai(name)).encode())
            return
    handler.say(200, body(choice(ANSWER, logprobs=None)))


def without_log_probabilities(handler, _):
    """No log-probabilities, whatever is asked."""
    handler.say(200, body(choice(ANSWER, logprobs=None)))


def odd(value):
    """Log-probabilities of which the last is none."""
    rows = [{"token": "The", "logprob": -0.1}, {"token": " excess", "logprob": value}]
    return body(choice(ANSWER, logprobs={"content": rows}))


HTML = b"<!doctype html><html><script>alert(1)</script><h1>Welcome</h1></html>"
SYSTEM_ROLE = "Unsupported value: 'messages[0].role' does not support 'system' with this model."
OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + f"content-length: {len(GOOD) + 100}\r\n\r\n".encode()
LITELLM = (
    "litellm.UnsupportedParamsError: anthropic does not support parameters: ['logprobs', "
    "'top_logprobs'], for model=claude. To drop these, set `litellm.drop_params=True`."
)
DEFAULT = (
    "'temperature' does not support 0 with this model. Only the default (1) value is supported."
)
HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"
NO_LOGPROBS = {"sure": False, "left_out": ("logprobs",)}

KINDS = (
    Kind("a good server", saying(GOOD)),
    # busy, broken, elsewhere
    Kind("429, then good", failing_once(429)),
    Kind("429 with Retry-After, then good", failing_once(429, retry_after="1")),
    Kind("429 with Retry-After in ms, then good", failing_once(429, retry_after_ms="30")),
    Kind("429 always", saying(b"{}", 429), "HTTP 429"),
    Kind("429 with Retry-After of an hour", saying(b"{}", 429, retry_after="3600"), "HTTP 429"),
    Kind(
        "429, Retry-After beyond the time",
        saying(b"", 429, retry_after="9"),
        "timeout",
        timeout=0.4,
    ),
    Kind("500, then good", failing_once(500)),
    Kind("500 always", saying(b'{"error": {"message": "CUDA error"}}', 500), "HTTP 500"),
    Kind("503, then good", failing_once(503)),
    Kind("503 always", saying(b"", 503), "HTTP 503"),
    Kind("401", saying(b'{"error": "expired"}', 401), "HTTP 401"),
    Kind("404 for the model", saying(b'{"error": {"message": "no model tiny"}}', 404), "HTTP 404"),
    Kind("redirect", saying(b"", 307, location="/0/v1/chat/completions"), "HTTP 307"),
    Kind(
        "prompt too long",
        saying(b'{"error": {"message": "exceeds the context size"}}', 400),
        "HTTP 400",
    ),
    Kind(
        "limit of max_tokens",
        saying(b'{"error": {"message": "max_tokens is too large: 512, at most 64"}}', 400),
        "HTTP 400",
    ),
    Kind(
        "an error that repeats the request",
        lambda handler, _: handler.say(
            422,
            json.dumps({"detail": [{"loc": ["user"], "input": handler.sent}]}).encode(),
        ),
        "HTTP 422",
    ),
    Kind(
        "a filter that repeats the question",
        saying(b'{"error": {"message": "blocked: \'Which temperature, which seed?\'"}}', 400),
        "HTTP 400",
    ),
    # refused parameters
    refusing("OpenAI", "logprobs", of_openai("logprobs"), **NO_LOGPROBS),
    refusing("vLLM", "logprobs", of_vllm("logprobs"), **NO_LOGPROBS),
    refusing(
        "llama.cpp",
        "logprobs",
        {"error": {"message": "Unsupported param: logprobs"}},
        **NO_LOGPROBS,
    ),
    refusing(
        "Mistral",
        "logprobs",
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "logprobs"], "input": True}]},
        422,
        **NO_LOGPROBS,
    ),
    refusing("Anthropic by LiteLLM", "logprobs", {"error": {"message": LITELLM}}, **NO_LOGPROBS),
    refusing("OpenAI", "top_logprobs", of_openai("top_logprobs")),
    refusing(
        "OpenAI", "max_tokens", of_openai("max_tokens", " Use 'max_completion_tokens' instead.")
    ),
    refusing("Gemini", "seed", [{"error": {"message": 'Unknown name "seed": Cannot find field.'}}]),
    refusing("vLLM", "seed", of_vllm("seed")),
    refusing(
        "Azure", "seed", {"error": {"message": "Unrecognized request argument supplied: seed"}}
    ),
    refusing("OpenAI", "temperature", {"error": {"message": DEFAULT, "param": "temperature"}}),
    refusing("TGI", "temperature", {"error": "`temperature` must be strictly positive"}, 422),
    refusing(
        "OpenAI",
        "system",
        {"error": {"message": SYSTEM_ROLE, "param": "messages[0].role"}},
        is_there=has_system,
    ),
    refusing("Gemma", "system", {"message": "System role not supported"}, is_there=has_system),
    refusing(
        "Mistral's template",
        "system",
        {"message": "Conversation roles must alternate user/assistant/user/assistant/..."},
        is_there=has_system,
    ),
    refusing(
        "Gemini",
        "system",
        [{"error": {"message": "Developer instruction is not enabled for models/gemma-3"}}],
        is_there=has_system,
    ),
    Kind(
        "refuses five, one by one",
        refuse_one_by_one,
        always=True,
        sure=False,
        left_out=("max_tokens", "temperature", "logprobs", "seed"),
    ),
    # thoughts
    thinking(f"<think>\n{THOUGHT}</think>\n\n{ANSWER}"),
    thinking(f"<thinking>{THOUGHT}</thinking>{ANSWER}"),
    thinking(f"<thought>{THOUGHT}</thought>\n{ANSWER}"),
    thinking(f"<reasoning>{THOUGHT}</reasoning>\n{ANSWER}"),
    thinking(f"{THOUGHT}</think>\n\n{ANSWER}"),
    thinking(f"[THINK]{THOUGHT}[/THINK]{ANSWER}"),
    thinking(HARMONY.format(THOUGHT, ANSWER)),
    thinking(f"analysis{THOUGHT}assistantfinal{ANSWER}"),
    thinking(f"<think>{THOUGHT}</think>\n<think>Sure?</think>{ANSWER}"),
    Kind("thoughts only opened", replying(f"<think>{THOUGHT}", finish_reason="length"), "cut off"),
    Kind("thoughts beside the text", replying(ANSWER, message={"reasoning_content": THOUGHT})),
    Kind(
        "thoughts beside the text, in its tokens",
        replying(ANSWER, f"<think>{THOUGHT}</think>{ANSWER}", message={"reasoning": THOUGHT}),
    ),
    Kind(
        "thoughts beside the text, of which the tokens are none",
        replying(ANSWER, "Ġother Ġtokens", message={"reasoning": THOUGHT}),
        sure=False,
    ),
    Kind(
        "thoughts as parts",
        replying([{"type": "thinking", "thinking": []}, {"type": "text", "text": ANSWER}], ANSWER),
    ),
    Kind(
        "thoughts alone",
        replying("", message={"reasoning_content": THOUGHT}, finish_reason="length"),
        "cut off",
    ),
    Kind("thoughts alone, null", replying(None, message={"reasoning": THOUGHT}), "cut off"),
    # without an end
    Kind(
        "slow first byte",
        lambda handler, _: handler.server.released.wait(9),
        "timeout",
        timeout=0.4,
    ),
    Kind(
        "headers byte by byte",
        lambda handler, _: handler.drip(OK + b"x: ", b"y"),
        "timeout",
        timeout=0.4,
    ),
    Kind("body byte by byte", lambda handler, _: handler.drip(SIZED, b" "), "timeout", timeout=0.4),
    Kind(
        "100 Continue for ever",
        lambda handler, _: handler.drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "timeout",
        timeout=0.4,
    ),
    # broken off
    Kind("reset before the headers", lambda handler, _: handler.reset(), "no connection"),
    Kind("reset behind the headers", lambda handler, _: handler.reset(SIZED), "no connection"),
    Kind("half a body", lambda handler, _: handler.reset(SIZED + GOOD[:50]), "no connection"),
    Kind("closed", lambda handler, _: handler.connection.close(), "no connection"),
    # other bodies
    Kind("no choices", saying(b"{}"), "malformed reply"),
    Kind("empty choices", saying(body()), "malformed reply"),
    Kind("null content", replying(None), "malformed reply"),
    Kind("empty content", replying(""), "malformed reply"),
    Kind("a page of HTML", saying(HTML, content_type="text/html"), "malformed reply"),
    Kind("a page of HTML with 502", saying(HTML, 502, content_type="text/html"), "HTTP 502"),
    Kind("wrong JSON", saying(GOOD[:60]), "malformed reply"),
    Kind("deep JSON", saying(b"[" * 100_000), "malformed reply"),
    Kind("a huge body", saying(b" " * 5_000_000), "malformed reply"),
    Kind(
        "a bomb of gzip",
        saying(gzip.compress(b" " * 20_000_000), content_encoding="gzip"),
        "malformed reply",
    ),
    Kind("another content type", saying(GOOD, content_type="image/png")),
    Kind("a text too long", replying(f"{ANSWER} " * 5000), "malformed reply"),
    Kind("another model", saying(GOOD.replace(b'"tiny"', b'"other"'))),
    Kind("key in the text", replying(f"Your key is {' '.join(KEY)}."), "malformed reply"),
    Kind(
        "key in an error",
        saying(f'{{"error": {{"message": "Bearer {KEY}"}}}}'.encode(), 403),
        "HTTP 403",
    ),
    Kind("key in a header", saying(GOOD, x_echo=f"Bearer {KEY}")),
    # what a model does
    Kind("content_filter", replying("", finish_reason="content_filter"), "refuse"),
    Kind("refusal", replying(None, message={"refusal": "I will not."}), "refuse"),
    Kind("INSUFFICIENT", replying("INSUFFICIENT"), "refuse"),
    Kind("length", replying("The motor", finish_reason="length"), "cut off"),
    # log-probabilities
    Kind("no log-probabilities", without_log_probabilities, always=True, sure=False),
    Kind(
        "no log-probabilities, a gate on them",
        without_log_probabilities,
        "ValueError",
        always=True,
        gated=True,
    ),
    Kind("none from the second answer on", without_log_probabilities, NO_CONFIDENCE, gated=True),
    Kind("log-probability a text", saying(odd("-0.1")), sure=False),
    Kind("log-probability NaN", saying(odd(math.nan)), sure=False),
    Kind("log-probability positive", saying(odd(0.1)), sure=False),
    Kind("log-probability of 400 digits", saying(odd(-(10**400))), sure=False),
    Kind("log-probability without a value", saying(odd(None)), sure=False),
)


@pytest.fixture(scope="module")
def server():
    """One server for all kinds."""
    running = Server()
    with serving(running):
        yield running


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Folder of an index that is built once."""
    return tmp_path_factory.mktemp("kinds") / "index"


def outcome(call):
    """What a question ends in, and in which words."""
    try:
        response = call()
    except ModelUnavailableError as error:
        return error.kind, str(error)
    except ValueError as error:
        return "ValueError", str(error)
    return response["status"], response["answer"]


class Outcome(NamedTuple):
    """What came of a kind: live and in which words, what is missing of a recorded trace, and it."""

    ends: str
    words: str
    missing: dict[str, int]
    trace: Trace | None
    seconds: tuple[float, float]


def outcomes_of(kind, client, index):
    """One question live, three recorded."""
    gates = {"confidence": {"enabled": False}, "generation": {"enabled": kind.gated}}
    policy, generator = Policy.from_mapping(OPEN | gates), ModelGenerator(client)
    system = System.open(index, policy=policy, generator=generator, cache=False, audit=False)
    if kind.ends == NO_CONFIDENCE:
        assert ask("Is a courtesy car provided?", system=system)["status"] == "ok"
    begin = time.perf_counter()
    ends, words = outcome(lambda: ask(QUESTION, system=system))
    live = time.perf_counter() - begin
    if kind.ends == "ValueError":
        with pytest.raises(ValueError, match="the gate generation needs"):
            record_answers(asked_world(3), policy, generator, Weighed())
        return Outcome(ends, words, {"ValueError": 3}, None, (live, math.nan))
    trace = record_answers(asked_world(3), policy, generator, Weighed())
    missing = trace.meta[ANSWER_REQUESTS]["missing"]
    return Outcome(ends, words, missing, trace, (live, time.perf_counter() - begin - live))


def check_study(kind, result, trace):
    """A failed call is missing in the trace, and no refusal in a study; the number of its cases."""
    failed = kind.ends not in {"ok", "refuse"}
    stops = kind.ends in {"HTTP 401", "HTTP 404", "HTTP 307"}  # the third question is not asked
    assert result.missing == (
        {kind.ends: 1, **({"not asked": 1} if stops else {})} if failed else {}
    )
    answers = trace.answers
    assert (1 in answers.row.tolist()) is not failed
    policy = Policy.from_mapping(OPEN | {"generation": {"enabled": kind.gated}})
    decisions = decide(trace, policy)
    assert ("q1" in decisions.ids()) is not failed
    assert sweep(trace, [policy]).iloc[0]["decided_by.generation"] == 0
    if kind.ends == "ok":
        assert result.words == answers.text[1] == ANSWER
        confidence = answers.confidence[1]
        assert confidence == pytest.approx(0.9) if kind.sure else math.isnan(confidence)
    assert bool(kind.ends == "refuse") is (not failed and bool(answers.refused[1]))
    return len(decisions)


@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("number", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_a_kind_of_server(
    server,
    index,
    number,
    monkeypatch,
    tmp_path,
    caplog,
):
    """Live, recorded, decided; no key anywhere, and in the time that is stated."""
    kind = KINDS[number]
    caplog.set_level("DEBUG")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path))
    if not index.exists():
        build_index(CORPUS, index, cache=None, **SMALL)
    url = f"http://{server.host}/{number}/v1"
    client = OpenAIClient("tiny", url, timeout=kind.timeout, max_retries=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = outcomes_of(kind, client, index)
        decided = check_study(kind, result, result.trace) if result.trace else 0
    messages = [str(warning.message) for warning in caught]
    assert result.ends == kind.ends
    assert KEY not in f"{result.words} {messages} {caplog.text}"
    assert max(result.seconds) < 2.0 * kind.timeout + 2.0
    assert tuple(client._known.left_out) == kind.left_out
    assert sum("left out now" in text for text in messages) == len(kind.left_out)  # each once
    if (table := os.environ.get("SERVER_KINDS")) is not None:
        add_row(Path(table), kind, result, decided)


def add_row(table, kind, result, decided):
    """A row of the table of what came of each kind, in Markdown."""
    what = "" if kind.ends != "ok" else ", confidence .9" if kind.sure else ", no confidence"
    without = f", without {', '.join(kind.left_out)}" if kind.left_out else ""
    missing = ", ".join(f"{n} missing: {name}" for name, n in result.missing.items())
    study = f"{decided} of 3 cases decided" if result.trace else "not begun"
    live, recorded = result.seconds
    cells = (kind.name, f"{result.ends}{what}{without}", missing or "3 of 3", study)
    row = (*(cell.replace("|", "\\|") for cell in cells), f"{live:.2f}", f"{recorded:.2f}")
    with table.open("a", encoding="utf-8") as file:
        file.write(f"| {' | '.join(row)} |\n")
