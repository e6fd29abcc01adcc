"""Streams and statements of `experiments/monitoring.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import raglab
from raglab.extensions.monitoring.betting import bet, log_bar, opening_wealth

FOLDER = Path(raglab.__file__).parents[1] / "experiments"
NULLS = ("at the bound", "0.5 alpha", "blocks of 0.5 and 1.5 alpha", "by the past")


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        # at the end: tests have modules of other scripts' names
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        module = importlib.import_module("monitoring")
    yield module
    del sys.modules[module.__name__]


def drawn(script, setting, inclusion, shape, seed=0):
    """Streams of a setting at alpha 0.1."""
    return script.drawn(
        script.SETTINGS[setting], inclusion, 0.1, shape, np.random.default_rng(seed)
    )


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("inclusion", ["equal", "two levels"])
@pytest.mark.parametrize(("start", "stop"), [(0, 700), (250, 500)])
def test_counts_state_what_the_bets_state(
    script,
    inclusion,
    start,
    stop,
    below,
):
    """At every row of every stream; some state something, some do not."""
    setting = "0.5 alpha" if below else "1.5 alpha"
    streams, wealth = (
        drawn(script, setting, inclusion, (30, 700)),
        opening_wealth(-0.1, 0.9, below=below),
    )
    path, _ = bet(wealth, streams.steps[streams.kinds[:, start:stop]])
    for bar in (1.0, log_bar(0.05)):
        stated = script.statements(streams, wealth, bar, start, stop)
        assert np.array_equal(stated, path >= bar)
        assert stated.any()
        assert not stated.all()


@pytest.mark.parametrize("setting", NULLS)
def test_the_promise_holds_at_every_row(script, setting):
    """The mean of p so far is alpha at most; that of the blocks ends at alpha."""
    excess = drawn(script, setting, "equal", (50, 1000)).excess
    assert excess.max() <= script.ROUNDING
    if setting == "blocks of 0.5 and 1.5 alpha":
        assert excess[:, ::20] == pytest.approx(0.0)
        assert excess.min() == pytest.approx(-0.5)


def test_the_same_seed_prints_the_same_tables(script, monkeypatch, capsys):
    """Five tables for each alpha."""
    monkeypatch.setattr(sys, "argv", ["monitoring.py", "--streams", "3", "--steps", "300"])
    script.main()
    tables = capsys.readouterr().out
    script.main()
    assert capsys.readouterr().out == tables
    assert sum(line.startswith("|---") for line in tables.splitlines()) == 10
    assert "| 2 alpha | equal | " in tables
    assert "| 78; 109 |" in tables
