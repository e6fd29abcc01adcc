"""Each kind of outcome is counted as what it is: the fuzzers can fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from fuzz import outcomes
from fuzz.mutation import MARKER
from fuzz.outcomes import TABLE, Trial, fuzz, outcome
from raglab.store.files import Where, input_error


def _raise(error):
    raise error


KNOWN: dict[str, Callable[[], Any]] = {
    "accepted": lambda: 1,
    "clear": lambda: _raise(input_error(Where("a"), "a must be b", "correct it")),
    "raw system message": lambda: _raise(OSError(28, "No space left on device")),
    "traceback": [].pop,
    "hang": lambda: time.sleep(5),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_kinds_by_head(kind, monkeypatch):
    """One input of each."""
    monkeypatch.setattr(outcomes, "LONGEST_S", 0.2)
    assert outcome(Trial(kind, KNOWN[kind])).kind == kind


@pytest.mark.parametrize(
    "error",
    [
        ValueError("invalid literal for int() with base 10: 'a'"),
        KeyError("a"),
        ValueError("a must be\nb"),
        ValueError(f"a must be {'b' * 5_000}"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "must be"),
        ValueError("a must be \x1b[2J"),
    ],
    ids=lambda error: repr(error)[:40],
)
def test_what_is_not_clear(error):
    """A library's words, more than a line, a message without end, what a terminal obeys."""
    assert outcome(Trial("", lambda: _raise(error))).kind in {"raw system message", "traceback"}


def test_what_is_accepted_must_be_right_and_whole(tmp_path):
    """A check that finds something, one that fails, and half of a file that is left."""
    assert outcome(Trial("", lambda: 1, lambda _: "another")).kind == "silent wrong"
    assert outcome(Trial("", lambda: 1, lambda _: 1 / 0)).kind == "traceback"
    (tmp_path / ".0123.tmp").touch()
    assert outcome(Trial("", lambda: 1), tmp_path).kind == "half-written"


def test_code_that_was_run_is_told(tmp_path, monkeypatch):
    """Its marker is found; each failure has the number that draws it again."""
    monkeypatch.chdir(tmp_path)
    text = f"!!python/object/apply:os.system ['touch {MARKER}']"
    loader = yaml.UnsafeLoader
    failures = fuzz(
        "trial",
        lambda rng: Trial(str(rng.integers(9)), lambda: yaml.load(text, loader)),  # noqa: S506
        cases=2,
    )
    assert failures == ["trial: code of an input was run"]
    again = [
        fuzz("trial", lambda rng: Trial(str(rng.integers(9**9)), [].pop), cases=3, only=2)
        for _ in "ab"
    ]
    assert again[0] == again[1]
    assert "trial case 2: traceback: 'IndexError" in again[0][0]
    del TABLE["trial"]
