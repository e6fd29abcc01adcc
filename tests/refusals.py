"""What a refusal has to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def told(message: str, *texts: str) -> None:
    """Check that a message holds all texts; ` … ` in one stands for what is not compared."""
    missing = [part for text in texts for part in text.split(" … ") if part not in message]
    assert not missing, f"{missing} not in {message!r}"


def refused(rule: str, door: Callable[..., object], *columns: Any, **more: Any) -> None:
    """Check that a call stops with a ValueError whose message fits a pattern."""
    with pytest.raises(ValueError, match=rule):
        door(*columns, **more)
