"""A look at cases whose questions and candidates are unknown, through the lock of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raglab.lab.looks import Look, held_looks, record_look


def take_look(
    path: Path | None,
    known: Mapping[str, Any] | None,
    found_on: str,
    key: str,
    delta: float,
    *,
    again: bool,
) -> Look:
    """Count and record a look under the lock, as a certification does."""
    with held_looks(path, found_on) as held:
        look = record_look(known, held.before, key, delta, again=again)
        held.note(key, delta, 0)
    return look
