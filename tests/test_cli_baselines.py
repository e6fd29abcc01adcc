"""`raglab check --baseline`.

Fails where something is lost, in a process of its own, with exit codes and messages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from labelled import free_policy, labelled
from raglab.cli import app
from raglab.store.baselines import Baseline

MAIN = "from raglab.cli import main; main()"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def process(folder, *arguments):
    """Run the command in a process of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAGLAB_")
    }
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def run(folder, *arguments):
    """Run the command in this process."""
    places = [
        str(folder / one) if one.endswith((".json", ".yaml", ".parquet")) else one
        for one in arguments
    ]
    ended = CliRunner().invoke(app, places)
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a folder with a trace, policies without a certificate and a baseline of the first."""
    folder = tmp_path_factory.mktemp("world")
    labelled(3, {"tune": 150, "report": 100}).save(folder / "t.parquet")
    policies = {"same.yaml": 0.7, "near.yaml": 0.715, "worse.yaml": 0.9}
    for name, threshold in policies.items():
        free_policy(similarity={"min_similarity": threshold}).save(folder / name)
    ended = process(
        folder, "check", "same.yaml", "--cases", "t.parquet", "--save-baseline", "made/b.json"
    )
    assert ended.code == 0, ended.err
    assert "saved: made/b.json" in ended.out
    return folder


def test_exit_codes_of_a_process(world):
    """0 for the same policy, 3 of a process where something is lost; the lost cases are listed."""
    same = run(world, "check", "same.yaml", "-c", "t.parquet", "--baseline", "made/b.json")
    assert (same.code, "verdict: not shown" in same.out) == (0, True)
    worse = process(
        world,
        "check",
        "worse.yaml",
        "-c",
        "t.parquet",
        "--baseline",
        "made/b.json",
        "--rate",
        "coverage",
    )
    assert (worse.code, worse.err) == (3, "")
    assert "lost: expected_cost, coverage" in worse.out
    assert "changed, 20 of 55:" in worse.out
    assert "answered_right refused" in worse.out
    assert max(map(len, worse.out.splitlines())) <= 100


def test_a_loss_that_is_not_shown_passes_and_is_stated(world):
    """Fewer cases, a smaller minimum effect: what is left out and what so few cases cannot tell."""
    ended = run(
        world,
        "check",
        "near.yaml",
        "-c",
        "t.parquet",
        "--split",
        "report",
        "--baseline",
        "made/b.json",
        "--min-effect",
        "0.01",
    )
    assert ended.code == 0
    for text in ("verdict: not shown", "open", "150 only in the baseline", "detectable: 0."):
        assert text in ended.out


def test_json_holds_the_verdict(world):
    """No NaN, every digit, exit code 3."""
    ended = run(
        world, "check", "worse.yaml", "-c", "t.parquet", "--baseline", "made/b.json", "--json"
    )
    record = json.loads(ended.out, parse_constant=pytest.fail)
    assert (ended.code, record["verdict"], record["lost"]) == (3, "lost", ["expected_cost"])
    assert (record["cases"], record["min_effect"], len(record["changed"])) == (250, 0.02, 55)


def test_a_baseline_by_other_costs(world):
    """Costs are written with the table and read from it; others are refused."""
    saved = run(
        world,
        "check",
        "same.yaml",
        "-c",
        "t.parquet",
        "--save-baseline",
        "c.json",
        "--cost",
        "ok.refused=0.5",
    )
    assert saved.code == 0
    assert Baseline.load(world / "c.json").costs[0, 2] == 0.5
    against = ("-c", "t.parquet", "--baseline", "c.json")
    worse = run(world, "check", "worse.yaml", *against, "--json")
    assert json.loads(worse.out)["measures"][0]["loss"] == pytest.approx(0.11)
    other = run(world, "check", "worse.yaml", *against, "--cost", "ok.refused=2")
    assert (other.code, other.out, other.err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--save-baseline", "made/b.json"), "a baseline must be written to a new file"),
        (("--baseline", "absent.json"), "the file must be readable"),
        (("--baseline", "made/b.json", "--rate", "charm"), "rates must be among"),
        (
            ("--baseline", "made/b.json", "--min-effect", "-1"),
            "min_effect must be a number of at least 0",
        ),
        (("--rate", "coverage"), "--rate must be given with --baseline"),
        (
            ("--save-baseline", "new.json", "--min-effect", "0.1"),
            "--min-effect must be given with --baseline",
        ),
        ((), "a policy must hold a certificate"),
    ],
)
def test_what_is_refused(world, options, message):
    """Exit code 1; nothing is written."""
    before = {path: path.read_bytes() for path in world.rglob("*") if path.is_file()}
    ended = run(world, "check", "same.yaml", "-c", "t.parquet", *options)
    assert (ended.code, message in ended.err) == (1, True), ended.err
    assert {path: path.read_bytes() for path in world.rglob("*") if path.is_file()} == before
