"""Options that commands share: costs, targets, and the goal they make.

What means nothing is one clear line.
"""

from __future__ import annotations

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

import raglab.progress
from commands import run
from labelled import labelled
from raglab.cli.common import (
    AsJson,
    Quiet,
    parse_columns,
    parse_costs,
    parse_shares,
    parse_targets,
)
from raglab.progress import progress
from raglab.replay import sweep
from raglab.store.policies import Policy


def test_costs_by_label_and_outcome():
    """Repeated options make one mapping; none make none, which is the default."""
    given = ["ok.refused=1", "refuse.answered_wrong=10", "ok.asked = 0.5"]
    assert parse_costs(given) == {
        "ok": {"refused": 1.0, "asked": 0.5},
        "refuse": {"answered_wrong": 10.0},
    }
    assert parse_costs(None) is parse_costs([]) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("refused=1", "got 'refused=1'"),
        ("ok.refused", "--cost"),
        ("=1", "--cost"),
        ("ok.answered=1", "an outcome of costs"),
        ("ok.refused=-1", "got ok.refused=-1.0"),
        ("ok.refused=1e308", "--cost"),
    ],
)
def test_costs_that_mean_nothing_are_refused(text, named):
    """Form, names and range, each with what came."""
    with pytest.raises(ValueError, match=named):
        parse_costs([text])


def test_what_is_stated_twice_is_refused():
    """Neither of two costs of an outcome, nor of two limits of a rate, is chosen in silence."""
    with pytest.raises(ValueError, match=r"got 'ok\.refused=2'"):
        parse_costs(["ok.refused=1", "ok.refused=2"])
    with pytest.raises(ValueError, match=r"got 'coverage=0\.3'"):
        parse_targets(["coverage=0.1", "over_ask_rate=0.2", "coverage=0.3"])


def test_columns_and_shares():
    """A pair each time, also with a comma in a name; three numbers, checked by `raglab.split`."""
    assert parse_columns(["query=question, in words"]) == {"query": "question, in words"}
    assert parse_shares(None) is None
    assert parse_shares("0.5, 0.5,0") == {"tune": 0.5, "certify": 0.5, "report": 0.0}
    for text in ("0.5,0.5", "tune=0.4", "0.4,0.3,x", "", "0.4,0.2,0.2,0.2"):
        with pytest.raises(ValueError, match="--split must be"):
            parse_shares(text)


def test_the_doors_take_them(tmp_path):
    """`sweep` prints the cost by the matrix given.

    `tune` refuses a wrong one before it reads anything.
    """
    trace, file = labelled(0, {"tune": 20, "report": 20}), tmp_path / "p.yaml"
    trace.save(tmp_path / "t.parquet")
    Policy.load().save(file)
    call = [
        "sweep",
        tmp_path / "t.parquet",
        file,
        "--cost",
        "ok.refused=4",
        "--cost",
        "refuse.asked=2",
    ]
    done = run(*call, "--json")
    assert done.exit_code == 0, done.output
    costs = {"ok": {"refused": 4.0}, "refuse": {"asked": 2.0}}
    assert (
        json.loads(done.stdout)[0]["expected_cost"]
        == sweep(trace, [Policy.load()], costs=costs)["expected_cost"][0]
    )
    for option in (["--cost", "ok=1"], ["--target", "over_ask=0.1"]):
        refused = run("tune", tmp_path / "none.parquet", *option)
        assert refused.exit_code == 1
        assert refused.stderr.startswith("raglab: ")


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--json"], False), (["-q"], False)])
def test_no_bar_stands_beside_json(
    monkeypatch,
    options,
    shown,
):
    """Nor where it is asked for; after the command bars are as they were."""
    monkeypatch.setattr(raglab.progress, "BAR_DELAY_S", 0.0)
    command = typer.Typer()

    @command.command()
    # read by their callbacks
    def count(quiet: Quiet = False, as_json: AsJson = False):  # noqa: ARG001
        """Count to three on a standard error that is looked at."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        list(progress(range(3), "count"))

    for given, seen in ((options, shown), ([], True)):
        done = CliRunner().invoke(command, given)
        assert (done.exit_code, "count: 100%" in done.stderr) == (0, seen)


def test_a_refused_command_leaves_nothing_silent():
    """An option that is wrong beside `--json` ends the command.

    Bars of what its process does next are as they were.
    """
    done = run("tune", "--json", "--trials", "many")
    assert done.exit_code != 0
    assert not raglab.progress._is_silent.get()
