"""Clients of language models: what a server can do, its quirks, a model in process, budgets."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from judge_server import (
    Reply,
    completion,
    server,  # noqa: F401
)
from raglab.answering.client import (
    Capabilities,
    Completion,
    call_deadline,
    one_deadline,
)
from raglab.answering.local_model import LocalModel
from raglab.answering.metered_client import BudgetSpentError, MeteredClient, RequestBudget
from raglab.answering.openai_client import OpenAIClient
from raglab.values import ModelUnavailableError
from tiny_models import save_causal

pytest.importorskip("openai")
ASK = [{"role": "user", "content": "what does the policy cover"}]
SURE = {
    "content": [
        {"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": "yes", "logprob": -0.1}]}
    ]
}
WET = '{"wet": true}'
GONE = [{"role": "user", "content": "gone"}]


def client(server, **settings):
    """Client that asks once."""
    return OpenAIClient("tiny", server.base_url, **{"timeout": 5.0, "max_retries": 0, **settings})


def behaving(server, **quirks):
    """A server that does what the probe asks, but for its quirks: logprobs, forms."""

    def behave(_question, _place):
        body = server.bodies[-1]
        form = body.get("response_format", {}).get("type")
        if form is not None and form not in quirks.get("forms", ("json_schema", "json_object")):
            return Reply(
                quirks.get("refusal", 500),
                b'{"error": {"message": "response_format is not supported"}}',
            )
        measured = (
            SURE
            if quirks.get("logprobs", True) and body["top_logprobs"] <= quirks.get("top", 5)
            else None
        )
        return completion(WET if form else "yes", logprobs=measured)

    server.behave = behave


@pytest.mark.parametrize(
    ("quirks", "expected"),
    [
        ({}, {"logprobs": True, "schema": "json_schema"}),
        ({"logprobs": False}, {"logprobs": False, "top": 0}),
        ({"forms": ("json_object",)}, {"schema": "json_object"}),
        ({"forms": ()}, {"schema": "text"}),
    ],
    ids=str,
)
def test_a_probe_finds_what_a_server_can_do(server, quirks, expected):
    """In a handful of requests for a few tokens each."""
    behaving(server, **quirks)
    capabilities = client(server).capabilities()
    assert {name: getattr(capabilities, name) for name in expected} == expected
    assert sum(body["max_tokens"] for body in server.bodies) < 100
    assert "tiny" in capabilities.line("tiny")


def test_a_probe_is_kept_on_disk_by_address_and_model(server):
    """Another client of the same server asks nothing; one of another model does.

    `again` asks again.
    """
    behaving(server)
    first = client(server).capabilities()
    n_asked = len(server.bodies)
    assert client(server).capabilities() == first
    assert len(server.bodies) == n_asked
    OpenAIClient("other", server.base_url).capabilities()
    assert len(server.bodies) == 2 * n_asked
    client(server).capabilities(again=True)
    assert len(server.bodies) == 3 * n_asked


def test_a_server_that_is_down_is_not_taken_for_one_that_can_do_nothing(
    server,
):
    """The probe fails, nothing is kept, and the next one finds what it can do."""
    server.behave = lambda *_: Reply(503)
    with pytest.raises(ModelUnavailableError, match="503"):
        client(server).capabilities()
    behaving(server)
    assert client(server).capabilities().schema == "json_schema"


def test_a_schema_is_sent_in_the_form_that_the_server_takes(server):
    """And only there: a form that answers with HTTP 500 is not tried again with each request."""
    behaving(server, forms=("json_object",))
    probed_client = client(server)
    probed_client.capabilities()
    n_asked = len(server.bodies)
    for _ in range(3):
        assert probed_client.complete(ASK, schema={"type": "object"}).text == WET
    assert [body["response_format"]["type"] for body in server.bodies[n_asked:]] == [
        "json_object"
    ] * 3


def test_where_no_form_is_taken_the_object_is_read_out_of_the_text(server):
    """The first one that stands in it; no form is sent."""
    behaving(server, forms=())
    probed_client = client(server)
    probed_client.capabilities()
    server.behave = lambda *_: completion(f"Here it is: {WET}.")
    assert probed_client.complete(ASK, schema={"type": "object"}).text == WET
    assert "response_format" not in server.bodies[-1]


def test_alternatives_are_as_many_as_the_server_takes(server):
    """It is tried with twenty, then with five, and never asked for more than it gave."""
    five = [
        {"token": token, "logprob": -1.0 - place}
        for place, token in enumerate(("Yes", "No", "Well", "So", "I"))
    ]
    sure = {"content": [{"token": "Yes", "logprob": -1.0, "top_logprobs": five}]}

    def behave(*_):
        body = server.bodies[-1]
        if "response_format" in body or body["top_logprobs"] > 5:
            return Reply(400, b'{"error": {"message": "top_logprobs must be at most 5"}}')
        return completion("Yes", logprobs=sure)

    server.behave = behave
    probed_client = client(server)
    assert probed_client.capabilities().top == 5
    probed_client.complete(ASK, max_tokens=1, top=20)
    assert server.bodies[-1]["top_logprobs"] == 5


@pytest.mark.parametrize("quirks", [{"logprobs": False}, {}], ids=["none", "one alternative"])
def test_a_server_that_cannot_weigh_words_is_refused_where_that_is_needed(server, quirks):
    """With the remedy, before a case is asked; what needs no alternatives goes on."""
    behaving(server, **quirks)
    probed_client = client(server)
    with pytest.raises(
        ValueError, match=r"needs? a server that gives log-probabilities .* got [01] from tiny@"
    ):
        probed_client.complete(
            [{"role": "user", "content": "Question:\n> case"}], max_tokens=1, top=20
        )
    assert "case" not in server.asked
    assert probed_client.complete(ASK).text == "yes"


def test_a_probe_has_one_deadline(server):
    """Two requests of 0.6 s each do not fit into one second."""

    def behave(*_):
        server.released.wait(0.6)
        return completion("yes", logprobs=SURE)

    server.behave = behave
    begin = time.monotonic()
    with pytest.raises(ModelUnavailableError) as caught:
        client(server, timeout=1.0).capabilities(again=True)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - begin < 3.0


def test_a_call_whose_time_is_used_up_is_not_sent(server):
    """The calls before it took the time of its request, which is no failure of the server."""
    behaving(server)
    short_client = client(server, timeout=0.2)
    with one_deadline():
        call_deadline(0.0)
        time.sleep(0.25)
        for _ in range(6):
            with pytest.raises(
                ModelUnavailableError, match=r"did not answer within 0\.2 s"
            ) as caught:
                short_client.complete(ASK)
            assert caught.value.kind == "timeout"
    assert server.bodies == []
    assert client(server).complete(ASK).text == "yes"


class Slow:
    """A client that replies at once and says how many tokens it took."""

    name = "slow"

    def __init__(self, prompt=10, completion_tokens=5):
        self.counts = prompt, completion_tokens

    def complete(self, messages, **_):
        """One word, or a failure."""
        if messages is GONE:
            msg = "gone"
            raise ModelUnavailableError(msg, kind="HTTP 500")
        return Completion("yes", (), "stop", *self.counts)

    def capabilities(self, *, again=False):  # noqa: ARG002
        """Nothing."""
        return Capabilities(False, 0, "text")


def test_a_meter_counts_what_the_backend_states():
    """Two requests of 15 tokens; a failure of HTTP costs no token."""
    metered = MeteredClient(Slow(), RequestBudget(price_prompt=1.0, price_completion=2.0))
    metered.complete(ASK)
    metered.complete(ASK)
    with pytest.raises(ModelUnavailableError):
        metered.complete(GONE)
    counts = metered.counts
    assert counts[:4] == (3, 20, 10, pytest.approx(0.04))
    assert len(counts.ms) == 2


@pytest.mark.parametrize(
    ("limit", "value"), [("calls", 2), ("tokens", 1000), ("seconds", 0.0), ("cost", 0.001)]
)
def test_a_meter_stops_before_a_budget_is_exceeded(limit, value):
    """The request is not sent, and the error names the limit."""
    prices = {"price_prompt": 1.0} if limit == "cost" else {}
    metered = MeteredClient(Slow(None, None), RequestBudget(**{limit: value}, **prices))
    with pytest.raises(BudgetSpentError, match=limit) as caught:
        [metered.complete(ASK) for _ in range(50)]
    assert caught.value.kind == "budget spent"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A causal model of one layer with random weights."""
    return LocalModel(str(save_causal(tmp_path_factory.mktemp("models") / "causal")))


def test_a_local_model_replies_the_same_each_time(tiny):
    """Greedy: the seed does not matter.

    Each token has its log-probability and its alternatives, best first.
    """
    first, second = (tiny.complete(ASK, max_tokens=6, seed=seed, top=3) for seed in (0, 1))
    assert first._replace(ms=0.0) == second._replace(ms=0.0)
    assert first.completion_tokens == len(first.tokens) <= 6
    assert all(token.logprob == token.top[0][1] for token in first.tokens)
    assert first.prompt_tokens == len(tiny.load().prompt_ids(ASK))


class Speaking:
    """A causal model that writes a given text, a letter a token, again and again."""

    name, context, ends = "speaking", 1000, frozenset[int]()

    def __init__(self, reply):
        self.reply = reply

    def prompt_ids(self, _):
        """One token."""
        return [0]

    def text(self, ids):
        """Letters at some places of the reply."""
        return "".join(self.reply[place] for place in ids)

    def log_probabilities(self, _):
        """All of it on the next letter."""
        for place in itertools.count():
            values = np.full(len(self.reply), -100.0)
            values[place % len(self.reply)] = 0.0
            yield values


@pytest.mark.parametrize(
    ("reply", "value", "finish"),
    [
        ('{"value": "£400"} Is there anything else that', '{"value": "£400"}', "stop"),
        ('Here it is: {"a": {"b": 1}}. ```', '{"a": {"b": 1}}', "stop"),
        ('{"a": "}"} and', '{"a": "}"}', "stop"),
        ("No object, } and {", None, "length"),
    ],
)
def test_a_local_models_object_ends_its_reply(reply, value, finish):
    """What stands behind a whole object does not cut the reply off.

    Half an object does, and so does a text.
    """
    model = LocalModel("speaking")
    model._loaded.append(Speaking(reply))  # type: ignore[arg-type]
    completion = model.complete(ASK, schema={"type": "object"}, max_tokens=60)
    assert completion.finish == finish
    assert value is None or completion.text == value
    assert model.complete(ASK, max_tokens=60).finish == "length"


def test_a_prompt_that_is_too_long_is_an_error_and_no_refusal(tiny):
    """Rule S0.1, with both counts."""
    with pytest.raises(ModelUnavailableError, match="exceed the context of 64") as caught:
        tiny.complete([{"role": "user", "content": "water " * 100}])
    assert caught.value.kind == "prompt too long"


def test_a_local_model_has_what_is_left_of_its_requests_time(tiny):
    """Calls before took it."""
    with one_deadline():
        call_deadline(0.0)
        time.sleep(0.05)
        with pytest.raises(ModelUnavailableError) as caught:
            LocalModel(tiny.name_or_folder, timeout=0.04).complete(ASK, max_tokens=6)
    assert caught.value.kind == "timeout"


def test_a_model_in_gguf_names_the_extra_that_it_needs(monkeypatch, tmp_path):
    """By file, and by its folder."""
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("raglab.models.loaders.find_spec", lambda _: None)
    for name in (tmp_path, tmp_path / "a.gguf"):
        with pytest.raises(ImportError, match=r"pip install \"raglab-toolkit\[local\]\""):
            LocalModel(str(name)).load()
