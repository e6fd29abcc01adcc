"""The live commands: an index is made, asked, and answers from anywhere are checked."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from live_worlds import CORPUS
from raglab.cli import app
from raglab.live import signal_functions
from raglab.live.response import RESPONSE_KEYS
from raglab.live.signal_functions import SignalFunction, register_signal
from raglab.store.loaders import save_corpus
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from sample_traces import sample_trace

OPEN = {
    "l2": {"enabled": False},
    "similarity": {"enabled": False},
    "gap": {"enabled": False},
    "confidence": {"enabled": False},
    "generation": {"enabled": False},
}


def run(*arguments, code=0):
    """Output of a command that ends with a code."""
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code == code, ended.output
    return ended.stdout if code == 0 else ended.output


@pytest.fixture
def folder(tmp_path, encoder):
    """Return a folder with an index and two policies."""
    del encoder
    save_corpus(CORPUS, tmp_path / "corpus.jsonl")
    said = json.loads(
        run(
            "index",
            str(tmp_path / "corpus.jsonl"),
            "--out",
            str(tmp_path / "i"),
            "--quiet",
            "--json",
        )
    )
    assert said["chunks"] == len(CORPUS.chunks)
    Policy.from_mapping(OPEN).save(tmp_path / "open.yaml")
    asking = {
        "gap": {"enabled": True, "min_gap": 4.0},
        "resolver": {"min_group_gap": None, "signature": False, "anchor": False, "entities": False},
    }
    Policy.from_mapping(OPEN | asking).save(tmp_path / "asking.yaml")
    return tmp_path


def ask(folder, question, *more, policy="open", code=0):
    """What `raglab ask` prints."""
    return run(
        "ask", str(folder / "i"), question, "-p", str(folder / f"{policy}.yaml"), *more, code=code
    )


def test_an_answer_names_its_sources(folder):
    """For people: status, arm, answer, sources."""
    said = ask(folder, "What is the motor excess?")
    assert said.startswith("ok · policy: hybrid · confidence")
    assert "The motor excess is 250 pounds for each claim." in said
    assert "sources: docs/motor.md#1" in said


def test_json_has_the_keys_of_the_response(folder):
    """For programs: rule S0.3."""
    said = json.loads(ask(folder, "What is the motor excess?", "--json"))
    assert tuple(said) == RESPONSE_KEYS
    assert said["status"] == "ok", said


def test_options_are_shown_and_a_selection_completes_the_question(folder):
    """The ids that are shown are those that `--select` takes."""
    shown = ask(folder, "What is the excess?", policy="asking")
    assert "Ask again with --select ID." in shown
    assert "\n  1  " in shown
    every = [
        json.loads(ask(folder, "What is the excess?", "--select", one, "--json", policy="asking"))
        for one in "12"
    ]
    assert "ok" in {said["status"] for said in every}
    assert not any(said["options"] for said in every)
    refused = json.loads(
        ask(folder, "What is the excess?", "--select", "9", "--json", policy="asking")
    )
    assert refused["refusal_reason"] == "Invalid selection: 9"


def test_documents_scope_the_search(folder):
    """Only the named document is a source."""
    said = json.loads(ask(folder, "What is the excess?", "--document", "home.md", "--json"))
    assert {source.split("#")[0] for source in said["sources"]} == {"docs/home.md"}
    assert "boat.md" in ask(folder, "What is the excess?", "--document", "boat.md", code=1)


def test_a_base_url_needs_a_model(folder):
    """The message says so."""
    assert "goes with a model" in ask(folder, "What?", "--base-url", "http://127.0.0.1:9", code=1)


def test_no_index(tmp_path):
    """Says how to make one."""
    assert "raglab index" in run("ask", str(tmp_path), "What?", code=1)


def test_signals_become_columns(tmp_path, monkeypatch):
    """A trace is written beside the one it comes from; a name there is none of is one line."""
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(signal_functions, "_REGISTERED_SIGNALS", {})
    sample_trace().save(tmp_path / "t.parquet")
    register_signal(SignalFunction("judge", lambda rows: [0.5] * len(rows)))
    more = ("--out", str(tmp_path / "new.parquet"), "--quiet")
    said = json.loads(
        run("signals", str(tmp_path / "t.parquet"), "--signal", "judge", *more, "--json")
    )
    assert said["signals"] == ["judge"]
    assert Trace.load(tmp_path / "new.parquet").signal("judge").count() == 5
    failed = run("signals", str(tmp_path / "t.parquet"), "--signal", "juge", *more, code=1)
    assert "a signal must be registered once, got 'juge'; registered: judge" in failed
