"""What a refusal has to say."""

from __future__ import annotations


def told(message: str, *texts: str) -> None:
    """Check that a message holds all texts; ` … ` in one stands for what is not compared."""
    missing = [part for text in texts for part in text.split(" … ") if part not in message]
    assert not missing, f"{missing} not in {message!r}"
