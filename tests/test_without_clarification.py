"""A system without the extension of clarification.

It asks, answers, logs and explains, and says what is missing.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from generators import Fixed
from live_worlds import CASES, CORPUS, SMALL
from raglab import extension_points
from raglab.audit.log import AuditLog
from raglab.audit.log_summary import defaults
from raglab.cli import app
from raglab.decision.signal_values import STORED_SIGNALS
from raglab.extension_points import MissingExtensionError
from raglab.live.ask import ask, explain, reply
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.policies import Policy

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
OPEN = {name: {"enabled": False} for name in ("l2", "similarity", "gap", "support", "confidence")}
ALL_OFF = {"min_group_gap": None, "signature": False, "anchor": False, "entities": False}
CLOSE = OPEN | {"gap": {"enabled": True, "min_gap": 4.0}, "resolver": ALL_OFF}
ROOM = "is in raglab/extensions/clarification, which is not installed"


@pytest.fixture(autouse=True)
def _without(monkeypatch):
    """Take the extension out, where it is there."""
    rooms = tuple(room for room in extension_points.installed() if room != "clarification")
    monkeypatch.setattr(extension_points, "installed", lambda: rooms)


@pytest.fixture
def index(tmp_path, encoder):
    """Return the folder of an index over the small corpus."""
    del encoder
    build_index(CORPUS, tmp_path / "index", cache=None, **SMALL)
    return tmp_path / "index"


def test_it_answers_asks_back_refuses_logs_and_explains(index):
    """The three outcomes, each logged under its request and rebuilt from the log."""
    outcomes = {"ok": OPEN, "ambiguous": CLOSE, "refuse": OPEN | {"patterns": {"deny": ["excess"]}}}
    for status, stated in outcomes.items():
        system = System.open(
            index, policy=Policy.from_mapping(stated), generator=Fixed(), cache=False
        )
        response = ask(
            "What is the motor excess?", system=system, request_id=status, session="ann", now=START
        )
        assert (response["status"], response["clarification"]) == (status, None)
        assert (len(response["options"]) > 1) == (status == "ambiguous")
        explanation = explain(status, system=system)
        assert explanation.rebuilt, explanation.differences
        assert system.audit is not None
        system.audit.close()


def test_clarify_says_what_is_missing(index, monkeypatch):
    """Before a model is loaded; as an argument, in the environment, and for a reply."""
    with pytest.raises(MissingExtensionError, match=f"clarify=True {ROOM}"):
        System.open(index, clarify=True)
    with pytest.raises(MissingExtensionError, match=f"clarify=True {ROOM}"):
        reply("r1", "yes", system=index)
    written = {
        "--clarify": ["ask", str(index), "Who?", "--clarify"],
        "raglab reply": ["reply", str(index), "r1", "y"],
    }
    for what, command in written.items():
        assert f"raglab: {what} {ROOM}" in CliRunner().invoke(app, command).output
    system = System.open(index, generator=Fixed(), cache=False)
    with pytest.raises(ValueError, match="a reply needs what asked"):
        reply("r1", "yes", system=system)
    monkeypatch.setenv("RAGLAB_CLARIFY_ENABLED", "true")
    with pytest.raises(MissingExtensionError, match=f"clarify=True {ROOM}"):
        System.open(index)


def test_a_signal_of_the_parser_says_what_is_missing(index):
    """When a system is opened under a policy that uses it; a trace is built without it."""
    policy = Policy.from_mapping(OPEN | {"signals": {"gaps": {"max": 0}}})
    with pytest.raises(MissingExtensionError, match=f"the signal gaps {ROOM}"):
        System.open(index, policy=policy, generator=Fixed())
    system = System.open(index, policy=Policy.from_mapping(OPEN), generator=Fixed(), cache=False)
    with pytest.raises(MissingExtensionError, match=f"the signal gaps {ROOM}"):
        ask("What is the motor excess?", system=system.replace(policy))
    trace = build_trace(CORPUS, CASES, cache=None, **SMALL)
    assert not set(STORED_SIGNALS) & set(trace.columns)
    for call in (
        lambda: decide(trace, policy),
        lambda: build_trace(CORPUS, CASES, policy=policy, cache=None, **SMALL),
    ):
        with pytest.raises(MissingExtensionError, match=f"the signal gaps {ROOM}"):
            call()


def test_a_default_table_says_what_is_missing(tmp_path):
    """Whoever reads or changes it is told; a log of requests alone needs none of it."""
    log = AuditLog(tmp_path / "audit.sqlite")
    about = {"policy": PolicyData.from_mapping(), "fingerprint": "f", "models": {}}
    log.opened("r1", "who?", session="ann", now=START, **about)  # type: ignore[arg-type]
    for use in (
        log.rows,
        log.rebuild,
        lambda: log.application("r1"),
    ):
        with pytest.raises(
            MissingExtensionError, match=f"the default table of an audit log {ROOM}"
        ):
            use()
    log.decided("r1", {"status": "ok", "answer": "x"}, now=START)
    assert log.settle(now=START) == 0
    assert len(defaults(log)) == 0
