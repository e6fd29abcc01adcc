"""The door to off-policy evaluation.

A log of a file, a target by name or of a file, a table and its warnings.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from raglab.bandit import Bandit, Table, simulation
from raglab.cli import app
from raglab.live.online_bandit import Online
from raglab.off_policy import estimate
from raglab.reward import RewardWeights

ARMS = ["graph", "hybrid", "table"]


def ran(*arguments, code=0):
    """How the command ended."""
    ended = CliRunner().invoke(app, ["evaluate-log", *arguments])
    assert ended.exit_code == code, ended.output
    return ended


def log(n=900):
    """Log of three arms by name."""
    rng = np.random.default_rng(0)
    arm = rng.integers(0, 3, n)
    reward = (rng.random(n) < np.array([0.2, 0.5, 0.8])[arm]).astype(float)
    return pd.DataFrame(
        {
            "action": np.array(ARMS)[arm],
            "reward": reward,
            "propensity": 1 / 3,
            "user": np.arange(n) // 3,
        }
    )


@pytest.fixture
def path(tmp_path):
    """File of the log."""
    log().to_csv(tmp_path / "log.csv", index=False)
    return str(tmp_path / "log.csv")


def test_the_table_is_that_of_the_library(path, tmp_path):
    """Every digit in JSON and in the CSV, and the overlap."""
    expected = estimate(log(), np.full(3, 1 / 3), arms=ARMS)
    said = json.loads(ran(path, "--json", "--out", str(tmp_path / "deep" / "table.csv")).stdout)
    pd.testing.assert_frame_equal(pd.DataFrame(said["estimates"]), expected, check_exact=True)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "deep" / "table.csv"), expected)
    assert (said["overlap"]["n"], said["overlap"]["status"]) == (900, "ok")
    # weak even where dr says the same
    assert (list(said["notes"]), said["warnings"]) == (["dm"], [])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_target_of_a_file(path, tmp_path, kind):
    """A row for all or a row a round, arms as columns in any order."""
    target = pd.DataFrame([[0.1, 0.6, 0.3]], columns=["table", "graph", "hybrid"])
    for number, rows in enumerate((target, target.loc[[0] * 900])):
        file = tmp_path / f"{number}.{kind}"
        rows.to_csv(file, index=False) if kind == "csv" else rows.to_parquet(file)
        found = json.loads(
            ran(path, "-t", str(file), "-e", "ips,snips", "-e", "dr", "--json").stdout
        )["estimates"]
        expected = estimate(log(), [0.6, 0.3, 0.1], ("ips", "snips", "dr"), arms=ARMS)
        assert [row["value"] for row in found] == pytest.approx(expected["value"].tolist())


def test_what_cannot_be_said_is_said_aloud(tmp_path):
    """Warnings go to the error stream, and where nothing can be said at all the exit code is 4."""
    log(12).to_csv(tmp_path / "few.csv", index=False)
    said = ran(str(tmp_path / "few.csv"), "-t", "best:hybrid", "-e", "snips", code=4)
    assert (
        "warning: this log says nothing about the target (snips): effective sample size"
        in " ".join(said.stderr.split())
    )
    assert "status: none" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "best:dense"), "got 'dense'"),
        (("-e", "magic"), "estimators must be a sequence of"),
        (("--level", "95"), "level must be in (0, 1)"),
    ],
)
def test_what_is_wrong_is_one_line(path, arguments, message):
    """Rule, value, remedy; no stack; exit code 1."""
    said = ran(path, *arguments, code=1)
    assert said.stderr.startswith("raglab: ")
    assert said.stderr.count("\n") == 1
    assert message in said.stderr


def test_a_learners_log_tells_its_arms_and_which_were_open(tmp_path):
    """Uniform is over the arms that a round could take.

    An arm that was not always there cannot always be taken.
    """
    mask = np.array([[True, True, False], [True, True, True]])
    known = np.array([[0.2, 0.5, 0.8], [0.4, 0.6, 0.1]])
    world = Table(tuple(ARMS), known, known, mask, np.zeros((2, 0)), (), np.full((2, 3), np.nan))
    rounds = simulation.log(Bandit("epsilon_greedy", epsilon=0.5), world, rounds=600)
    file = tmp_path / "log.parquet"
    rounds.to_parquet(file)
    there = mask[rounds["case"]]
    expected = estimate(rounds, there / there.sum(axis=1, keepdims=True), ("snips",))
    said = json.loads(ran(str(file), "-e", "snips", "--json").stdout)["estimates"]
    assert said[0]["value"] == pytest.approx(expected["value"][0])
    closed = int((~there[:, 2]).sum())
    assert (
        f"got 'table', closed in {closed} of 600 rounds"
        in ran(str(file), "-t", "best:table", "-e", "snips", code=1).stderr
    )


def test_the_log_of_a_bandit_at_work(places, tmp_path, monkeypatch):
    """In the folder of an index, or by its URL.

    Rounds without a reward are left out, and it is said how many.
    """
    for name in list(os.environ):
        if name.startswith("RAGLAB_BANDIT_"):
            monkeypatch.delenv(name)
    at = Online(
        Bandit(floor=0.1), RewardWeights(), 8000.0, places("bandit.sqlite"), ("hybrid", "iterative")
    )
    for number in range(5):
        at.choose(str(number), [True, True], {})
    for number in range(4):
        raw = {
            "margin": 0.1 * number,
            "diversity": 0.5,
            "latency_ratio": 0.1,
            "cache_hit": 0.0,
            "consistency": 1.0,
        }
        at.update(str(number), raw)
    at.close()
    by_folder = (tmp_path,) if places.server is None else ()
    for place in (*by_folder, places("bandit.sqlite")):
        said = ran(str(place), "-e", "snips", "--json", code=4)
        assert json.loads(said.stdout)["overlap"]["n"] == 4
        assert "1 of 5 rounds have no reward yet and are left out" in said.stderr
