"""Readers of fields and questions whose server fails: by rules, as a failure, and without a vote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judge_server import KEY, Reply
from llama_server import GONE, SILENCE, LlamaServer, llama_server
from raglab.extensions.clarification.server_reading import OpenAIReader
from raglab.live.ask import ask
from raglab.live.system import Lab, build_index
from raglab.store.policies import Policy
from raglab.values import Chunk, ModelUnavailableError
from test_live_trace_building import CORPUS, SMALL, WordEncoder, encoder  # noqa: F401 - a fixture
from test_model_failures import FREE, QUESTION, generator

pytestmark = pytest.mark.slow

CHUNKS = [Chunk("a#1", "Ring us on 0800 123 4567.", "a.md", 1)]
FORMS = ("json_schema", "json_object", None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaServer]:
    """Return a server of its own for each test, and a key in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with llama_server() as running:
        yield running


@pytest.fixture
def index(tmp_path: Path, encoder: WordEncoder) -> Path:  # noqa: F811 - the fixture
    """Return the folder of an index over the small corpus."""
    del encoder
    build_index(CORPUS, tmp_path / "index", cache=None, **SMALL)
    return tmp_path / "index"


@pytest.fixture
def opened(index: Path, server: LlamaServer) -> Callable[..., Lab]:
    """Return what opens a system whose answers the server writes."""

    def make(stated: dict[str, Any] | None = None, **more: Any) -> Lab:
        chosen = Policy.from_mapping(FREE | (stated or {}))
        return Lab.open(index, **{"policy": chosen, "generator": generator(server), "cache": False, **more})

    return make


def reader(server: LlamaServer, **more: Any) -> OpenAIReader:
    """Reader that asks the server."""
    return OpenAIReader("tiny", server.base_url, **{"timeout": 5.0, "max_retries": 2, **more})


def forms(server: LlamaServer) -> list[str | None]:
    """Forms of JSON that the server was asked for."""
    return [body.get("response_format", {}).get("type") for body in server.bodies]


class TestForms:
    """A server that refuses `json_schema` is asked for `json_object` with the schema, then for plain text."""

    @pytest.mark.parametrize("number", range(3), ids=map(str, FORMS))
    def test_each_form_is_tried_once_and_remembered_by_the_client(self, server: LlamaServer, number: int) -> None:
        """Not three times each; another client begins anew."""
        server.forms = FORMS[number : number + 1]
        server.text = '{"value": "0800 123 4567", "passage": 1}'
        if FORMS[number] is None:
            server.text = f"Here it is:\n```json\n{server.text}\n```"
        one = reader(server)
        for _ in range(2):
            assert one.read("phone", CHUNKS).value == "0800 123 4567"
        assert forms(server) == [*FORMS[: number + 1], FORMS[number]]
        if FORMS[number] == "json_object":
            assert server.bodies[-1]["response_format"]["schema"]["required"] == ["value", "passage"]
        assert one == reader(server)
        server.bodies.clear()
        reader(server).read("phone", CHUNKS)
        assert forms(server) == [*FORMS[: number + 1]]

    @pytest.mark.parametrize("status", [401, 403, 429, 502])
    def test_other_statuses_say_nothing_of_the_form(self, server: LlamaServer, status: int) -> None:
        """The form stays, and what may pass is tried again as ever."""
        server.behave = lambda *_: Reply(status, b"{}")
        with pytest.raises(ModelUnavailableError, match=f"HTTP {status}"):
            reader(server, max_retries=1).read("phone", CHUNKS)
        assert forms(server) == ["json_schema"] * (2 if status in {429, 502} else 1)

    def test_a_server_that_refuses_every_form_fails(self, server: LlamaServer) -> None:
        """Two further tries, then those that a failure gets; none of the forms is remembered."""
        server.behave = lambda *_: Reply(500, b"{}")
        one = reader(server, max_retries=1)
        with pytest.raises(ModelUnavailableError, match="HTTP 500"):
            one.read("phone", CHUNKS)
        assert forms(server) == ["json_schema", "json_object", None, None]
        assert one.form.first == 0

    def test_all_tries_share_one_deadline(self, server: LlamaServer) -> None:
        """The second form hangs: the request ends with its timeout."""
        server.behave = lambda _, place: Reply(500, b"{}") if place == 1 else SILENCE
        begin = time.monotonic()
        with pytest.raises(ModelUnavailableError, match="timeout"):
            reader(server, timeout=0.5).read("phone", CHUNKS)
        assert time.monotonic() - begin < 5.0
        assert forms(server) == ["json_schema", "json_object"]

    def test_a_parser_goes_on_by_rules_and_says_so(self, server: LlamaServer) -> None:
        """A failure to read the question is no refusal either."""
        from raglab.extensions.clarification.question_parsing import OpenAIParser
        from raglab.extensions.clarification.question_vocabulary import BY_RULES, Vocabulary

        server.failing = {QUESTION: GONE}
        read = OpenAIParser("tiny", server.base_url, max_retries=0).parse(QUESTION, Vocabulary())
        assert read.by == BY_RULES
        assert read.reason == f"{server.host} answered 502: upstream is gone"


class TestLearners:
    """A request that fails teaches nothing."""

    def test_a_default_gets_no_vote(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """A reader whose server fails is no evidence against what was learned."""
        from raglab.store.log_tables import CHANGES, DECISIONS

        lab = opened(clarify=True, field_reader=reader(server, max_retries=0))
        server.behave = lambda *_: GONE
        pinned: dict[str, Any] = {"lab": lab, "documents": ["faq.txt"]}
        with pytest.raises(ModelUnavailableError):
            ask("what is the phone number?", **pinned)
        response = ask("what is the phone number?", **pinned, on_error="refuse")
        assert response["error"] is not None
        assert lab.audit is not None
        with lab.audit.log.reading() as log:
            assert [row["signal"] for row in log.rows(CHANGES) if row["signal"]] == []
            assert [row["status"] for row in log.rows(DECISIONS)] == ["refuse"]
        assert replace(lab, on_error="refuse").on_error == "refuse"
