"""Options that commands share: costs, targets, and the goal they make.

What means nothing is one clear line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
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
    parse_goal,
    parse_shares,
    parse_target,
    parse_targets,
    write_csv,
)
from raglab.lab.search_space import Goal
from raglab.progress import progress
from raglab.replay import sweep
from raglab.store.policies import Policy


def test_costs_by_label_and_outcome() -> None:
    """Repeated options make one mapping; none make none, which is the default."""
    given = ["ok.refused=1", "refuse.answered_wrong=10", "ok.asked = 0.5"]
    assert parse_costs(given) == {
        "ok": {"refused": 1.0, "asked": 0.5},
        "refuse": {"answered_wrong": 10.0},
    }
    assert parse_costs(None) is parse_costs([]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "refused=1",
            "--cost must be label.outcome=cost, such as refuse.answered_wrong=10, got 'refused=1'",
        ),
        ("ok.refused", "--cost must be label.outcome=cost"),
        ("ok.refused=cheap", "--cost must be label.outcome=cost"),
        ("=1", "--cost must be label.outcome=cost"),
        ("ok.answered=1", "an outcome of costs must be one of"),
        ("fine.refused=1", "a label of costs must be one of ok, refuse, ambiguous, got 'fine'"),
        ("ok.refused=-1", "a cost must be a finite number of at least 0, got ok.refused=-1.0"),
        ("ok.refused=nan", "a cost must be a finite number"),
        ("ok.refused=1e308", "--cost must be at most 1e\\+09, got 'ok.refused=1e308'"),
    ],
)
def test_costs_that_mean_nothing_are_refused(text: str, message: str) -> None:
    """Form, names and range, each with what came."""
    with pytest.raises(ValueError, match=message):
        parse_costs([text])


def test_what_is_said_twice_is_refused() -> None:
    """Neither of two costs of an outcome, nor of two limits of a rate, is chosen in silence."""
    with pytest.raises(
        ValueError, match=r"--cost must state an outcome once, got ok.refused twice"
    ):
        parse_costs(["ok.refused=1", "ok.refused=2"])
    with pytest.raises(ValueError, match=r"--target must name a rate once, got coverage twice"):
        parse_targets(["coverage=0.1", "over_ask_rate=0.2", "coverage=0.3"])


def test_a_goal_of_options() -> None:
    """Costs and targets as `Goal` takes them; no targets where none is given.

    Unknown rates are refused.
    """
    assert parse_goal(["ok.refused=2"], ["over_ask_rate=0.1"]) == Goal(
        {"ok": {"refused": 2.0}}, {"over_ask_rate": 0.1}
    )
    assert parse_goal(None, None) == Goal()
    assert parse_targets(None) == {}
    assert parse_target(" coverage =0.5") == ("coverage", 0.5)
    with pytest.raises(ValueError, match=r"a target must be one of .* got 'cost'"):
        parse_goal(None, ["cost=0.1"])
    with pytest.raises(ValueError, match=r"the target of coverage must be in"):
        parse_goal(None, ["coverage=10"])
    with pytest.raises(
        ValueError, match=r"--target must be rate=highest.* coverage=0\.05, got 'coverage'"
    ):
        parse_goal(None, ["coverage"])


def test_several_columns_in_one_option_are_refused_with_what_is_meant() -> None:
    """A pair each time; a comma in a name alone is one pair."""
    with pytest.raises(
        ValueError, match=r"got 2 in .*--columns query=question --columns expect_status=label"
    ):
        parse_columns(["query=question,expect_status=label"])
    assert parse_columns(["query=question, in words"]) == {"query": "question, in words"}


def test_shares_of_splits() -> None:
    """Three numbers; their range and sum are for `raglab.split` to check."""
    assert parse_shares(None) is None
    assert parse_shares("0.5, 0.5,0") == {"tune": 0.5, "certify": 0.5, "report": 0.0}
    for text in ("0.5,0.5", "tune=0.4", "0.4,0.3,x", "", "0.4,0.2,0.2,0.2"):
        with pytest.raises(
            ValueError, match=r"--split must be the shares .*, got .*; write --split 0.4,0.3,0.3\."
        ):
            parse_shares(text)


def test_the_doors_take_them(tmp_path: Path) -> None:
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
    assert "expected_cost" in run(*call).stdout
    for option in (["--cost", "ok=1"], ["--target", "over_ask=0.1"]):
        refused = run("tune", tmp_path / "none.parquet", *option)
        assert refused.exit_code == 1
        assert refused.stderr.startswith("raglab: ")
        assert refused.stderr.count("\n") == 1
        assert option[0] in refused.stderr or "target" in refused.stderr


def test_a_table_is_compressed_where_its_name_says_so(tmp_path: Path) -> None:
    """As pandas reads it again."""
    table = pd.DataFrame({"case": ["a", "b"], "margin": [0.5, -0.5]})
    for name in ("t.csv", "t.csv.gz"):
        write_csv(table, tmp_path / name)
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / name), table)


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--json"], False), (["-q"], False)])
def test_no_bar_stands_beside_json(
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    shown: bool,
) -> None:
    """Nor where it is asked for; after the command bars are as they were."""
    monkeypatch.setattr(raglab.progress, "DELAY", 0.0)
    command = typer.Typer()

    @command.command()
    # read by their callbacks
    def count(quiet: Quiet = False, as_json: AsJson = False) -> None:  # noqa: ARG001
        """Count to three on a standard error that is looked at."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        list(progress(range(3), "count"))

    for given, seen in ((options, shown), ([], True)):
        done = CliRunner().invoke(command, given)
        assert (done.exit_code, "count: 100%" in done.stderr) == (0, seen)


def test_a_refused_command_leaves_nothing_silent() -> None:
    """An option that is wrong beside `--json` ends the command.

    Bars of what its process does next are as they were.
    """
    done = run("tune", "--json", "--trials", "many")
    assert done.exit_code != 0
    assert not raglab.progress._silent.get()
