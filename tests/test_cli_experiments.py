"""The command `simulate`: a trace or known means in, plain words and a table out.

Wrong input is one line.
"""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from typer.testing import CliRunner

from arms import two_arms
from commands import certified
from labelled import free_policy, labelled
from raglab.bandit.fixed_plans import FIXED_PLAN, ORACLE_PLAN, ROUTER_PLAN, UNIFORM_PLAN
from raglab.cli import app
from raglab.lab import study_cases, targets

SMALL = ("--rounds", "120", "--replications", "4")


def run(*arguments, code=0):
    """Output of the command that ends with a code."""
    ended = CliRunner().invoke(app, ["simulate", *SMALL, *arguments])
    assert ended.exit_code == code, ended.output
    return ended.stdout if code == 0 else ended.output


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Return a stored trace of two arms."""
    path = tmp_path_factory.mktemp("trace") / "arms.parquet"
    two_arms(40).save(path)
    return str(path)


def policies(*arguments):
    """Rows of the JSON by policy."""
    return {row["policy"]: row for row in json.loads(run(*arguments, "--json"))["policies"]}


def test_a_trace_beside_its_baselines(trace):
    """Two learners, the best fixed arm, uniform, the router and the oracle, each a row."""
    said = run(trace, "--always-answer")
    for name in ("thompson_beta", "ucb1", FIXED_PLAN, UNIFORM_PLAN, ROUTER_PLAN, ORACLE_PLAN):
        assert re.search(rf"^ *{name} ", said, re.MULTILINE), name


def test_json_holds_every_digit(trace):
    """Means and intervals in order, shares of pulls that sum to 1, milliseconds of the arms."""
    rows = policies(trace, "--always-answer", "-b", "kl_ucb")
    assert list(rows) == ["kl_ucb", FIXED_PLAN, UNIFORM_PLAN, ROUTER_PLAN, ORACLE_PLAN]
    for row in rows.values():
        assert row["right_low"] <= row["right"] <= row["right_high"]
        assert row["pulls_hybrid"] + row["pulls_iterative"] == pytest.approx(1.0)
        assert row["ms"] == pytest.approx(
            10.0 * row["pulls_hybrid"] + 40.0 * row["pulls_iterative"]
        )
    assert rows[ORACLE_PLAN]["regret"] == 0.0
    assert rows[FIXED_PLAN]["difference"] == 0.0


def test_weights_as_numbers_or_as_a_file(trace, tmp_path):
    """Both forms say the same; they change what the learner sees, not the baselines."""
    file = tmp_path / "weights.json"
    file.write_text(
        json.dumps({"margin": 0, "diversity": 0, "latency": 1, "cache": 0, "consistency": 0}),
        encoding="utf-8",
    )
    one = policies(trace, "--always-answer", "--weights", "0,0,1,0,0")
    assert one == policies(trace, "--always-answer", "--weights", str(file))
    assert one["ucb1"] != policies(trace, "--always-answer")["ucb1"]


def test_a_row_a_learner_and_replication(trace, tmp_path):
    """The pulls of the CSV sum to the rounds."""
    out = tmp_path / "deep" / "runs.csv"
    run(trace, "--always-answer", "--out", str(out))
    stored = pd.read_csv(out)
    assert len(stored) == 2 * 4
    assert (stored["pulls_hybrid"] + stored["pulls_iterative"] == 120).all()


def test_arms_of_known_means():
    """Uniform over 0.9 and 0.1 earns 0.5 a round; the long-run bound is said."""
    said = run("--means", "0.9,0.1", "-b", "ucb1")
    assert "least regret" in said
    rows = policies("--means", "0.9,0.1", "-b", "ucb1")
    assert list(rows) == ["ucb1", UNIFORM_PLAN]
    assert rows[UNIFORM_PLAN]["reward"] == pytest.approx(0.5, abs=0.05)
    assert rows["ucb1"]["regret"] < rows[UNIFORM_PLAN]["regret"]
    assert "least regret" not in run("--means", "1,0.5")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "got both or none"),
        (("--means", "0.7,x"), "--means must be numbers"),
        (("--means", "0.7,1.2"), "means must be in [0, 1], got 1.2"),
        (("--means", "0.7,0.5", "-b", "best"), "algorithm must be one of epsilon_greedy"),
        (
            ("--means", "0.7,0.5", "-b", "lin_ucb"),
            "arms of --means have no context to learn from, got lin_ucb",
        ),
        (("missing.parquet",), "missing.parquet"),
    ],
)
def test_wrong_input_is_one_line(arguments, told):
    """The rule and what came, without a stack."""
    said = run(*arguments, code=1)
    assert told in said
    assert "Traceback" not in said
    assert said.startswith("raglab: ")


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ("0.4,0.1", "got '0.4,0.1'"),
        ("-1,0,0,0,0", "weight margin must be at least 0, got -1"),
    ],
)
def test_wrong_weights_are_refused(trace, weights, told):
    """Their number, their form, their range."""
    assert told in run(trace, f"--weights={weights}", code=1)


def test_wrong_names_of_weights_are_refused(trace, tmp_path):
    """A name that is none, and a file that is no object."""
    file = tmp_path / "w.json"
    file.write_text('{"speed": 1}', encoding="utf-8")
    assert "got 'speed'" in run(trace, "--weights", str(file), code=1)


@pytest.mark.parametrize(
    "option",
    [("--weights", "1,0,0,0,0"), ("--always-answer",)],
)
def test_what_known_means_cannot_use_is_refused(option):
    """An option that would change nothing is not passed over."""
    assert f"got {option[0]}" in run("--means", "0.7,0.6", *option, code=1)


def test_the_chance_of_a_certificate_is_that_of_all_cases(tmp_path, monkeypatch):
    """Of very many cases a sample is looked at: what it says of the chance is for all of them."""
    labelled(0, {"": 120}).save(tmp_path / "t.parquet")
    free_policy().save(tmp_path / "p.yaml")
    monkeypatch.setattr(study_cases, "MAX_REFITTED_CASES", 40)
    sizes = []
    whole = targets.diagnosis

    def diagnosis(*given, size):
        sizes.append((len(given[0]), size))
        return whole(*given, size=size)

    monkeypatch.setattr(targets, "diagnosis", diagnosis)
    told = certified(
        str(tmp_path / "t.parquet"),
        "-p",
        str(tmp_path / "p.yaml"),
        "-t",
        "hallucination_rate=0.001",
    )
    assert "40 of 120" in told
    assert sizes == [(40, 3.0)]
