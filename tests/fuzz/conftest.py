"""Disks are not waited for where inputs are fuzzed."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch):
    """What is written is read again at once: nothing is learned from a disk that turns."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An index with both logs, one default applied and voted on."""
    from fuzz.logs import write_logs
    from fuzz.shop import words_for_models

    place = tmp_path_factory.mktemp("logs") / "i"
    with words_for_models(place.parent / "kept"):
        write_logs(place)
        yield place
