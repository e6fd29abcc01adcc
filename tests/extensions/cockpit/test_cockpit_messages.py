"""Messages of the cockpit's page.

All of one acts or nothing, whatever it holds, and the next one is answered.
"""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import raglab
from labelled import free_policy, labelled
from raglab.store.policies import Policy

FLOOR = "similarity.min_similarity"


@pytest.fixture
def cockpit(tmp_path, monkeypatch):
    """Open a cockpit in a folder of its own, with something to undo."""
    monkeypatch.chdir(tmp_path)
    cockpit = raglab.cockpit(labelled(3, {"tune": 30}), free_policy())
    cockpit.widget.take({"do": "set", "path": FLOOR, "value": 0.5})
    return cockpit


def held(cockpit):
    """All that a message may change."""
    page = {name: value for name, value in cockpit.page().items() if name != "gates"}
    return [
        page,
        cockpit.locked,
        cockpit.filter,
        cockpit.goal,
        len(cockpit.trials),
        cockpit.searching,
        cockpit.report_views,
    ]


DEEP: Any = 0.5
for _ in range(5_000):
    DEEP = [DEEP]

REFUSED: dict[str, Any] = {
    "no message": None,
    "a list": [{"do": "undo"}],
    "an unknown act": {"do": "exec", "code": "1"},
    "an act that is an object": {"do": {"a": 1}},
    "a field of another act": {"do": "set", "path": FLOOR, "value": 0.4, "on": True},
    "a path that is a number": {"do": "set", "path": 4, "value": 0.4},
    "a path of Python": {"do": "set", "path": "__class__.__name__", "value": 0.4},
    "a value that is a text": {"do": "set", "path": FLOOR, "value": "0.4"},
    "a nested value": {"do": "set", "path": FLOOR, "value": DEEP},
    "NaN": {"do": "set", "path": FLOOR, "value": math.nan},
    "a step without end": {"do": "drop", "path": FLOOR, "step": 10**30},
    "a switch that is a number": {"do": "switch", "path": "similarity.enabled", "on": 1},
    "a cost of nobody": {"do": "cost", "label": "nobody", "outcome": "refused", "value": 1},
    "a cost that is huge": {"do": "cost", "label": "ok", "outcome": "refused", "value": 1e300},
    "a filter of an unknown field": {"do": "filter", "filter": {"regex": "("}},
    "a filter by an unknown slice": {"do": "filter", "filter": {"slice": ["nothing", "en"]}},
    "a search without end": {"do": "filter", "filter": {"search": "a" * 100_000}},
    "half of a surrogate pair": {"do": "filter", "filter": {"search": "\ud800"}},
    "an axis of a switch": {"do": "enter", "path": "resolver.strict"},
    "a case that is not shown": {"do": "case", "id": "nobody"},
    "no split to report on": {"do": "report"},
    "no split to certify on": {"do": "certify"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_changes_nothing_and_blocks_nothing(cockpit, name):
    """An error shows on the page, policy and page stay as before, and the next message is done."""
    before = held(cockpit)
    cockpit.widget.take(REFUSED[name])
    notice = cockpit.widget.page["notice"]
    assert notice is not None, name
    assert notice["kind"] == "error"
    assert 0 < len(notice["text"]) < 1_000
    assert notice["text"].isprintable()
    assert held(cockpit) == before
    cockpit.widget.take({"do": "set", "path": FLOOR, "value": 0.25})
    assert cockpit.policy.value(FLOOR) == 0.25
    assert cockpit.widget.page["notice"] is None


def test_what_a_page_sends_is_taken(cockpit):
    """Each message as cockpit.js makes it."""
    widget = cockpit.widget
    row = cockpit.page()["cases"]["rows"][0]
    wanted = {**cockpit.page()["filter"], "decision": "ok"}
    for message in (
        {"do": "ready"},
        {"do": "enter", "path": FLOOR},
        {"do": "drop", "path": FLOOR, "number": 3, "step": 1},
        {"do": "set", "path": "l2.soft_max_l2", "value": None},
        {"do": "set", "path": "density.min_keep", "value": 2},
        {"do": "switch", "path": "similarity.enabled", "on": False},
        {"do": "lock", "path": "similarity.enabled", "on": True},
        {"do": "lock", "path": FLOOR, "on": True},
        {"do": "filter", "filter": wanted},
        {"do": "filter", "filter": {**wanted, "slice": list(next(iter(_slices(cockpit))))}},
        {"do": "cost", "label": "ok", "outcome": "refused", "value": 2},
        {"do": "case", "id": row["id"]},
        {"do": "flips", "id": row["id"]},
        {"do": "undo"},
        {"do": "redo"},
        {"do": "reset"},
        {"do": "save", "file": "policy.yaml"},
        {"do": "stop"},
    ):
        widget.take(message)
        assert (widget.page["notice"] or {}).get("kind") != "error", (
            message,
            widget.page["notice"],
        )


def _slices(cockpit):
    return [(name, values[0]) for name, values in cockpit.setup["slices"].items()]


def test_a_page_that_cannot_be_drawn_takes_the_move_back(cockpit, monkeypatch):
    """Whatever the error is."""
    before = held(cockpit)
    draw = type(cockpit).page
    refused = iter((True, False, False, False, False))

    def page(self):
        if next(refused):
            raise AttributeError
        return draw(self)

    monkeypatch.setattr(type(cockpit), "page", page)
    cockpit.widget.take({"do": "cost", "label": "ok", "outcome": "refused", "value": 3})
    assert cockpit.widget.page["notice"] == {"kind": "error", "text": "AttributeError"}
    assert held(cockpit) == before


class TestSave:
    """A policy is saved under a plain name, in the notebook's folder, over nothing else."""

    @pytest.mark.parametrize(
        "name",
        [
            "/nowhere/policy.yaml",
            "../policy.yaml",
            "sub/policy.yaml",
            "..",
            ".bashrc",
            "C:policy.yaml",
            "a\0.yaml",
            "a\u202elmay.exe",
            "policy.py",
            "日" * 96,
            "-rf.yaml",
            "~root.yaml",
            "policy.yaml ",
            "a*.yaml",
        ],
    )
    def test_a_name_that_is_not_plain_is_refused(self, cockpit, name):
        """And nothing is written."""
        cockpit.widget.take({"do": "save", "file": name})
        notice = cockpit.widget.page["notice"]
        assert notice["kind"] == "error"
        assert "must" in notice["text"]
        assert notice["text"].isprintable()
        assert list(Path.cwd().iterdir()) == []
        assert list(Path.cwd().parent.glob("*.yaml")) == []

    @pytest.mark.parametrize(
        "content",
        [
            "notes: of mine\n",
            "{",
            "",
            "l2: {max_l2: many}\n",
            "\xff",
        ],
    )
    def test_a_file_that_is_no_policy_stays(self, cockpit, content):
        """To the byte."""
        path = Path("notes.yaml")
        path.write_bytes(content.encode("latin-1"))
        cockpit.widget.take({"do": "save", "file": "notes.yaml"})
        assert "must hold a policy" in cockpit.widget.page["notice"]["text"]
        assert path.read_bytes() == content.encode("latin-1")

    def test_what_the_system_refuses_is_said(self, cockpit, monkeypatch):
        """In words, and no number of an error."""

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device", "policy.yaml")

        monkeypatch.setattr(Policy, "save", full)
        cockpit.widget.take({"do": "save", "file": "policy.yaml"})
        assert "No space left on device" in cockpit.widget.page["notice"]["text"]

    def test_links_folders_and_pipes_stay(self, cockpit):
        """A link to a policy, one to nothing, a folder, a pipe that nobody writes to."""
        free_policy().save("own.yaml")
        before = Path("own.yaml").read_bytes()
        Path("link.yaml").symlink_to("own.yaml")
        Path("loose.yaml").symlink_to("nothing.yaml")
        Path("folder.yaml").mkdir()
        os.mkfifo("pipe.yaml")
        for name in ("link.yaml", "loose.yaml", "folder.yaml", "pipe.yaml"):
            cockpit.widget.take({"do": "save", "file": name})
            assert cockpit.widget.page["notice"]["kind"] == "error", name
        assert Path("own.yaml").read_bytes() == before
        assert not Path("nothing.yaml").exists()

    def test_a_policy_is_written_over(self, cockpit, tmp_path):
        """A name without suffix gets one, none is the policy's id; the folder is the notebook's."""
        widget = cockpit.widget
        os.chdir("/")
        for name in ("policy.yaml", "policy", "", "Política 2.yml"):
            widget.take({"do": "save", "file": name})
            assert widget.page["notice"] is None
        widget.take({"do": "set", "path": FLOOR, "value": 0.75})
        widget.take({"do": "save", "file": "policy.yaml"})
        assert Policy.load(tmp_path / "policy.yaml").value(FLOOR) == 0.75
        names = {path.name for path in tmp_path.iterdir()}
        assert {"policy.yaml", "Política 2.yml"} < names
        assert len(names) == 3


class TestLocks:
    """What is locked says by what it is unlocked."""

    @pytest.mark.parametrize("paths", [(FLOOR,), ("similarity",), (FLOOR, "similarity")])
    def test_the_remedy_unlocks(self, cockpit, paths):
        """The threshold, its gate, or both."""
        widget = cockpit.widget
        for path in paths:
            widget.take({"do": "lock", "path": path, "on": True})
        widget.take({"do": "set", "path": FLOOR, "value": 0.25})
        text = widget.page["notice"]["text"]
        assert [f"lock('{path}', False)" in text for path in paths] == [True] * len(paths)
        for path in paths:
            widget.take({"do": "lock", "path": path, "on": False})
        widget.take({"do": "set", "path": FLOOR, "value": 0.25})
        assert widget.page["notice"] is None
        assert cockpit.policy.value(FLOOR) == 0.25

    def test_a_search_that_breaks_says_so(self, cockpit, monkeypatch):
        """Whatever broke it; the page goes on."""

        def broken(*_, **__):
            raise ZeroDivisionError

        monkeypatch.setattr(type(cockpit), "run_search", broken)
        cockpit.widget._search(cockpit.begin_search(), Event())
        assert cockpit.widget.page["notice"] == {"kind": "error", "text": "ZeroDivisionError"}
        cockpit.widget.take({"do": "undo"})
        assert cockpit.widget.page["notice"] is None
