"""Misuse of the public names of clarification is answered with what was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import raglab.live
from test_decision_misuse import SYSTEM


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda live: live.clarified_trace(SYSTEM, "r1"), "swap them"),
        (lambda live: live.clarified_trace("r1", "out"), r"raglab\.System\.open\('out'\)"),
    ],
)
def test_a_value_that_is_not_what_is_meant_is_answered(
    call: Callable[[Any], object], message: str
) -> None:
    """With a TypeError that names the remedy."""
    with pytest.raises(TypeError, match=message):
        call(raglab.live)
