"""Wrong keys, models, addresses and paths.

Refused where they are stated, or said once with the remedy.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from answered_traces import UNGATED, asking_once, extension, long_world
from generators import Weighed
from llama_server import (
    error,
    server,  # noqa: F401
)
from raglab.answering.generation import ModelGenerator
from raglab.answering.local_model import LocalModel
from raglab.answering.metered_client import MeteredClient
from raglab.answering.openai_client import OpenAIClient
from raglab.live.answer_recording import NOT_ASKED, MissingAnswersWarning, record_answers
from raglab.store.trace_merging import ANSWER_REQUESTS
from worlds import policy

pytest.importorskip("openai")
URL = "http://127.0.0.1:9/v1"
N = 8
NO_CLIENTS: list[Any] = [
    "m.gguf",
    None,
    5,
    OpenAIClient,
    Path("model.gguf"),
    ["tiny"],
    "http://u:secret@host/v1",
]


class TestKeys:
    """A key stands in the environment, and in no message."""

    @pytest.mark.parametrize(
        "key",
        [
            "sk-123",
            "sk-proj-AbC_dEf",
            "gsk_a1B2c3",
            "hf_AbCdEf",
            "Bearer x",
            "",
            "$KEY",
            " KEY",
            "KEY\n",
            "9KEY",
            None,
            5,
        ],
    )
    def test_a_key_is_no_name_of_a_variable(self, key):
        """By name, by position, by a copy: it is refused and not shown."""
        made = OpenAIClient("tiny", URL)
        for make in (
            lambda: OpenAIClient("tiny", URL, key_env=key),
            lambda: OpenAIClient("tiny", URL, key),
            lambda: dataclasses.replace(made, key_env=key),
        ):
            with pytest.raises(
                ValueError, match=r"key_env(: Input| must be the name of a variable)"
            ) as caught:
                make()
            if isinstance(key, str):
                assert "set OPENAI_API_KEY" in str(caught.value)
            assert not isinstance(key, str) or len(key) < 6 or key.strip() not in str(caught.value)

    @pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MISTRAL_API_KEY", "_KEY2", "groq_key"])
    def test_a_name_of_a_variable(self, monkeypatch, name):
        """In small letters where it is set; and one that is not set is named in the remedy."""
        if not name.isupper():
            monkeypatch.setenv(name, "k")
        assert OpenAIClient("tiny", URL, key_env=name).key_env == name

    @pytest.mark.parametrize("name", ["api_key", "token", "password"])
    def test_a_key_as_an_argument(self, name):
        """There is none; the key is not shown."""
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'") as caught:
            OpenAIClient("tiny", URL, **{name: "sk-123"})
        assert "sk-123" not in str(caught.value)


class TestWrongSettings:
    """Every further case would fail alike."""

    @pytest.mark.parametrize("at_once", [1, 3])
    @pytest.mark.parametrize(
        ("status", "remedy"),
        [
            (404, "correct model or base_url"),
            (401, "set OPENAI_API_KEY"),
            (403, "check OPENAI_API_KEY"),
            (405, "correct what it names"),
        ],
    )
    @pytest.mark.parametrize("some", [UNGATED, policy()])
    def test_recording_ends_with_its_first_batch(self, server, status, remedy, at_once, some):
        """The warning says what to correct; corrected, all are asked."""
        server.failing = {f"question {n}": error(status, "no such model") for n in range(N)}
        with pytest.warns(MissingAnswersWarning, match=f"it ended at: .*{remedy}, then ask"):
            made = record_answers(
                long_world(N), some, asking_once(server), Weighed(), at_once=at_once
            )
        assert len(server.questions) == at_once
        assert made.meta[ANSWER_REQUESTS]["missing"] == {
            f"HTTP {status}": at_once,
            NOT_ASKED: N - at_once,
        }
        server.failing = {}
        whole = record_answers(made, some, asking_once(server), Weighed(), at_once=at_once)
        assert whole.meta[ANSWER_REQUESTS]["missing"] == {}

    def test_a_key_that_is_lost_on_the_way(self, server):
        """What was answered before stays."""
        server.failing = {f"question {n}": error(401, "expired") for n in range(3, N)}
        with pytest.warns(MissingAnswersWarning, match="4 not asked"):
            made = record_answers(long_world(N), UNGATED, asking_once(server), Weighed())
        assert len(server.questions) == 4
        assert made.answers is not None
        assert len(made.answers.text) == 3

    def test_a_key_that_no_header_holds(self, server, monkeypatch):
        """Nothing is sent at all."""
        monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
        with pytest.warns(MissingAnswersWarning, match="7 not asked .* 1 no key"):
            record_answers(long_world(N), UNGATED, asking_once(server), Weighed())
        assert server.bodies == []

    @pytest.mark.parametrize(("status", "asked"), [(403, N), (400, N), (422, N)])
    def test_a_question_that_is_refused_ends_nothing(self, server, status, asked):
        """A filter before a server may forbid one question: the others are asked."""
        server.failing = {"question 2": error(status, "forbidden words")}
        with pytest.warns(
            MissingAnswersWarning, match=f"1 of {N} answers are missing: 1 HTTP {status}"
        ):
            record_answers(long_world(N), UNGATED, asking_once(server), Weighed())
        assert len(server.questions) == asked


class TestClients:
    """What takes a client takes nothing else."""

    @pytest.mark.parametrize("wrong", NO_CLIENTS)
    @pytest.mark.parametrize(
        "make",
        [
            ModelGenerator,
            MeteredClient,
            "clarification.model_calls:ModelCalls",
            *(f"learned_signals.signal_models:{name}" for name in ("judge", "yes_no", "is_true")),
        ],
    )
    def test_what_is_no_client(self, make, wrong):
        """Before any question, and without its value, which may hold a password."""
        make = extension(make) if isinstance(make, str) else make
        with pytest.raises(
            TypeError, match=r"client must be raglab\.OpenAIClient .* write raglab\.LocalModel"
        ) as caught:
            make(wrong)
        assert "secret" not in str(caught.value)


class TestPaths:
    """A path is looked at before the first request."""

    @pytest.mark.parametrize(
        "name", ["/nope/model.gguf", "model.gguf", "./model", "~/no/such", "a/b/c", "../x.gguf"]
    )
    def test_a_path_that_does_not_exist(self, name):
        """It is said to be none, and that a file is allowed."""
        for given in (name, Path(name)) if not name.startswith("./") else (name,):
            with pytest.raises(
                ValueError, match=r"a file in GGUF .* does not exist; correct the path"
            ):
                LocalModel(given)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", [None, 5, b"m.gguf", OpenAIClient("tiny", URL)])
    def test_what_names_no_model(self, name):
        """Neither a text nor a path."""
        with pytest.raises(TypeError, match="PathLike"):
            LocalModel(name)

    @pytest.mark.parametrize("size", [0, 4, 8, 11, 24, 40, 100])
    @pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x07"])
    def test_a_broken_file_is_a_reason(self, tmp_path, size, fill):
        """Whatever its reader stumbles over; the remedy is another model."""
        pytest.importorskip("gguf")
        path = tmp_path / "m.gguf"
        path.write_bytes((b"GGUF\x03\x00\x00\x00" + fill * size)[:size])
        with pytest.raises(
            ValueError, match=r"must hold a causal language model .* choose another"
        ):
            LocalModel(str(path)).load()
