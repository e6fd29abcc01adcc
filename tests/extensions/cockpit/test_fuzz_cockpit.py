"""Mutated messages of a cockpit's page.

One acts wholly or not at all, and no file but a policy's is written.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import raglab
from fuzz.mutation import hostile_value, mutated_value, pick, shown
from fuzz.outcomes import CASES, HalfWrittenError, Trial, fuzz, report
from labelled import free_policy, labelled
from raglab.store.policies import Policy

FLOOR = "similarity.min_similarity"
NOTES = b"notes: of mine\n"
SAMPLES: tuple[dict[str, Any], ...] = (
    {"do": "set", "path": FLOOR, "value": 0.4},
    {"do": "set", "path": "l2.soft_max_l2", "value": None},
    {"do": "set", "path": "density.min_keep", "value": 2},
    {"do": "drop", "path": FLOOR, "number": 3, "step": 1},
    {"do": "switch", "path": "similarity.enabled", "on": False},
    {"do": "lock", "path": FLOOR, "on": True},
    {"do": "lock", "path": FLOOR, "on": False},
    {"do": "cost", "label": "ok", "outcome": "refused", "value": 2},
    {
        "do": "filter",
        "filter": {
            "kind": None,
            "label": "ok",
            "decision": None,
            "decided_by": None,
            "slice": None,
            "search": "a",
        },
    },
    {"do": "filter", "filter": {"kind": "lost", "slice": ["lang", "en"]}},
    {"do": "enter", "path": FLOOR},
    {"do": "case", "id": "tune-0"},
    {"do": "flips", "id": "tune-0"},
    {"do": "undo"},
    {"do": "redo"},
    {"do": "reset"},
    {"do": "ready"},
    {"do": "save", "file": "policy.yaml"},
    {"do": "save", "file": "notes.yaml"},
    {"do": "save", "file": "link.yaml"},
    {"do": "report"},
    {"do": "certify"},
    {"do": "stop"},
)


def message(rng):
    """A message with values changed."""
    sample = copy.deepcopy(pick(rng, SAMPLES))
    if rng.random() < 0.05:
        return hostile_value(rng)
    if rng.random() < 0.3:
        sample[str(pick(rng, list(sample)))] = hostile_value(rng)
        return sample
    return mutated_value(rng, sample)


def held(cockpit):
    """All that a message may change, but looks."""
    page = cockpit.page()
    return [
        cockpit.policy.policy_id,
        cockpit.locked,
        cockpit.filter,
        cockpit.goal,
        len(cockpit.trials),
        page["undo"],
        page["redo"],
        page["cases"],
    ]


def test_whatever_a_page_sends(tmp_path, monkeypatch):
    """One cockpit takes them all, each refused one between two right ones."""
    place = tmp_path / "notebooks"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "notes.yaml").write_bytes(NOTES)
    (place / "link.yaml").symlink_to("notes.yaml")
    outside = tmp_path / "outside.yaml"
    cockpit = raglab.cockpit(labelled(3, {"tune": 12, "report": 8}), free_policy())

    def take(sent):
        before, value = held(cockpit), cockpit.policy.value(FLOOR)
        cockpit.widget.take(sent)
        notice = cockpit.widget.page["notice"]
        if (
            (place / "notes.yaml").read_bytes() != NOTES
            or not (place / "link.yaml").is_symlink()
            or outside.exists()
        ):
            msg = "a file that is no policy was written"
            raise HalfWrittenError(msg)
        for path in place.iterdir():
            if path.name not in {"notes.yaml", "link.yaml"}:
                Policy.load(path)  # nothing but policies is written
                path.unlink()
        is_refused = notice is not None and notice["kind"] == "error"
        if is_refused and held(cockpit) != before:
            msg = "a refused message acted"
            raise AssertionError(msg)
        cockpit.lock(FLOOR, False)
        cockpit.widget.take({"do": "set", "path": FLOOR, "value": 0.25 if value == 0.5 else 0.5})
        if cockpit.widget.page["notice"] is not None:
            msg = f"the next message is blocked: {cockpit.widget.page['notice']}"
            raise AssertionError(msg)
        if is_refused:
            raise ValueError(notice["text"])

    def draw(rng):
        sent = message(rng)
        return Trial(shown(sent, 500), partial(take, sent))

    failures = fuzz("cockpit messages", draw, tmp_path, -(-CASES // 8))
    assert not failures, report(failures)
