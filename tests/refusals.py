"""What a refusal has to say."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest


def told(message, *texts):
    """Check that a message holds all texts; ` … ` in one stands for what is not compared."""
    missing = [part for text in texts for part in text.split(" … ") if part not in message]
    assert not missing, f"{missing} not in {message!r}"


def refused(rule, door, *columns, **more):
    """Check that a call stops with a ValueError whose message fits a pattern."""
    with pytest.raises(ValueError, match=rule):
        door(*columns, **more)


@contextmanager
def warned():
    """Messages of the warnings to a user of a block, complete when it ends."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    # none of files left open
    texts += [str(warning.message) for warning in caught if warning.category is UserWarning]


def noted(call):
    """What a call gives, and its warnings at lines of the file where it stands."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, [str(one.message) for one in caught if one.filename == call.__code__.co_filename]
