"""Disks are not waited for where inputs are fuzzed."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch):
    """What is written is read again at once: nothing is learned from a disk that turns."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
