"""Worlds, families and promises of `experiments/selection_validity.py`."""

from __future__ import annotations

import importlib
import sys
from math import sqrt
from pathlib import Path

import pytest

import raglab

FOLDER = Path(raglab.__file__).parents[1] / "experiments"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        # at the end: tests have modules of other scripts' names
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        module = importlib.import_module("selection_validity")
    yield module
    del sys.modules[module.__name__]


def test_promises_hold_with_fit_and_choice_inside_each_repeat(script):
    """In 12 repeats no more are broken than delta and three standard errors.

    Something is certified in most.
    """
    found = script.simulated(next(iter(script.settings().values())), 12, 7)
    most = script.DELTA + 3.0 * sqrt(script.DELTA * (1.0 - script.DELTA) / 12)
    assert (found.broken[2:] <= most).all()
    assert (found.promised[3:] > 0.5).all()
    assert found.broken[0] > most  # what is read off the cases that it was fitted on does not hold
    assert sum(found.won.values()) == 12
