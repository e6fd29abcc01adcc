"""`raglab ask --clarify` and `raglab reply`.

A prompt on a terminal, a structure for programs, two processes.
"""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from broker_documents import FRENCH, OPEN, QUI
from processes import at_once
from raglab.cli import app, live
from raglab.live.ask import explain
from raglab.live.response import RESPONSE_KEYS
from raglab.store.policies import Policy


@pytest.fixture
def folder(tmp_path, indexed):
    """Return a folder with an index and a policy."""
    shutil.copytree(indexed, tmp_path / "i")
    Policy.from_mapping(OPEN).save(tmp_path / "p.yaml")
    return tmp_path


def run(folder, command, *arguments, code=0, typed=None):
    """Output of a command over the index that ends with a code."""
    more = ["-p", str(folder / "p.yaml"), "--no-cache"]
    ended = CliRunner().invoke(app, [command, str(folder / "i"), *arguments, *more], input=typed)
    assert ended.exit_code == code, ended.output
    return ended.output


def asked(folder, *more):
    """What `raglab ask --clarify --json` says to the question of case 1."""
    said = json.loads(run(folder, "ask", QUI, "--document", FRENCH, "--clarify", "--json", *more))
    assert tuple(said) == RESPONSE_KEYS
    return dict(said)


def test_json_is_a_structure_and_no_prompt(folder, monkeypatch):
    """Also on a terminal."""
    monkeypatch.setattr(live, "_on_terminal", lambda: True)
    said = asked(folder, "--session", "ann")
    assert said["status"] == "ambiguous"
    assert said["clarification"]["proposed_default"] == "1"  # type: ignore[index]


def test_a_reply_completes_the_request_by_its_id(folder):
    """The id is all that goes from one to the other."""
    request = str(asked(folder)["request_id"])
    said = json.loads(run(folder, "reply", request, "oui", "--json"))
    assert (said["status"], said["request_id"], said["sources"]) == ("ok", request, [f"{FRENCH}#1"])
    assert "had 'oui'" in run(folder, "reply", request, "oui", code=1)


def test_a_reply_in_a_process_of_its_own(folder):
    """One process asks, another replies, this one explains."""
    exchange = folder / "exchange.json"

    def asks():
        exchange.write_text(json.dumps(asked(folder)))

    def replies():
        request = json.loads(exchange.read_text())["request_id"]
        exchange.write_text(run(folder, "reply", request, "oui", "--json"))

    assert [at_once([work]) for work in (asks, replies)] == [[0], [0]]
    answered = json.loads(exchange.read_text())
    assert (answered["status"], answered["sources"]) == ("ok", [f"{FRENCH}#1"])
    assert explain(answered["request_id"], folder / "i").rebuilt


def test_without_a_terminal_it_says_how_to_reply(folder):
    """Question, values, and the command."""
    told = run(folder, "ask", QUI, "--document", FRENCH, "--clarify")
    assert "Est-ce le bon point de départ ?" in told
    assert "\n  1  page 1\n" in told
    assert f"raglab reply {folder / 'i'} " in told
    # another policy would refuse the reply
    assert f" -p {folder / 'p.yaml'} yes, no, or a value." in told


def test_a_terminal_is_prompted(folder, monkeypatch):
    """What names nothing is asked for again; enter agrees to what is proposed."""
    monkeypatch.setattr(live, "_on_terminal", lambda: True)
    told = run(folder, "ask", QUI, "--document", FRENCH, "--clarify", typed="perhaps\n\n")
    assert "warning: la réponse 'perhaps' ne nomme aucune valeur" in told
    assert "Vauban Assurances SA" in told
    assert f"sources: {FRENCH}#1" in told


def test_off_unless_it_is_asked_for(folder, monkeypatch):
    """The environment says so or the option does, which goes first."""
    said = json.loads(run(folder, "ask", QUI, "--document", FRENCH, "--json"))
    assert said["clarification"] is None
    monkeypatch.setenv("RAGLAB_CLARIFY_ENABLED", "true")
    said = json.loads(run(folder, "ask", QUI, "--document", FRENCH, "--json"))
    assert said["clarification"] is not None
    said = json.loads(run(folder, "ask", QUI, "--document", FRENCH, "--json", "--no-clarify"))
    assert said["clarification"] is None


def test_a_silent_default_is_shown_with_the_request_to_correct(folder):
    """People see what was filled in, and the id that a correction takes."""
    run(folder, "reply", str(asked(folder)["request_id"]), "oui")
    told = run(folder, "ask", QUI, "--document", FRENCH, "--clarify", "--explain")
    assert "selon la valeur par défaut apprise pour schedule" in " ".join(told.split())
    assert "request: " in told


def test_a_request_there_is_none_of(folder):
    """One line, no stack."""
    assert "nobody" in run(folder, "reply", "nobody", "yes", code=1)
