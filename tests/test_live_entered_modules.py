"""Modules of raglab that one question enters: a reader who follows it opens so many files."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import raglab
from live_worlds import OPEN, opener
from raglab.live.ask import ask

ROOT = Path(raglab.__file__).parent
MOST = 50
LIVE = {"arm_choice", "ask", "pipeline", "requests", "response", "retriever", "system"}


@contextmanager
def entered():
    """Paths of the modules in which a function is called within the block, by any thread."""
    paths = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            paths.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield paths
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.usefixtures("encoder")
def test_one_question_enters_few_modules(tmp_path, monkeypatch):
    """The first question of a system that logs, by a process that traces nothing."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    policy = {"confidence": {"enabled": False}}
    system = opener(tmp_path / "index", OPEN)(policy, audit=True)
    with entered() as paths:
        response = ask("What is the motor excess now?", system=system)
    assert response["status"] == "ok"
    inside = sorted(
        str(Path(path).relative_to(ROOT)) for path in paths if Path(path).is_relative_to(ROOT)
    )
    assert {path.split("/")[1][:-3] for path in inside if path.startswith("live/")} == LIVE
    assert len(inside) <= MOST, inside
