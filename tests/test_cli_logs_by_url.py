"""Every command that takes a log takes the URL of one on a server, and tells no password."""

from __future__ import annotations

import json
import os

import pytest

from commands import run
from log_samples import START, audit_at
from raglab.bandit import Bandit
from raglab.decision.checks import Check
from raglab.live.online_bandit import Online
from raglab.policy import PolicyData
from raglab.reward import RewardWeights

RAW = {"margin": 0.5, "diversity": 0.2, "latency_ratio": 0.25, "cache_hit": 0.0, "consistency": 1.0}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Without variables of ours, in a folder where no file is made of a URL."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("RAGLAB_"):
            monkeypatch.delenv(name)
    yield
    assert list(tmp_path.glob("*postgresql*")) == []


@pytest.fixture(scope="module")
def url(postgresql):
    """Return the URL of a database that holds both logs."""
    made = postgresql.database()
    log, online = (
        audit_at(made),
        Online(Bandit(floor=0.1), RewardWeights(), 8e3, made, ("a", "b")),
    )
    policy = PolicyData.from_mapping()
    for number in range(4):
        log.opened(f"r{number}", "who pays?", policy=policy, fingerprint="f", models={}, now=START)
        check = Check(
            "similarity", "S2.6", 0.5, 0.7, 0.5 - 0.7, False, "similarity of the nearest hit"
        )
        said = {
            "status": "refuse",
            "answer": "no",
            "refusal_reason": "similarity of the nearest hit",
        }
        log.decided(f"r{number}", said, [check], now=START)
        online.choose(f"r{number}", [True, True], {})
        online.update(f"r{number}", RAW)
    log.close()
    online.close()
    return made


def test_each_command(url, tmp_path, monkeypatch):
    """The audit's with --log or its variable, the bandit's by argument."""
    assert "decided anew  refuse by similarity" in run("explain", "r1", "--log", url).output
    monkeypatch.setenv("RAGLAB_AUDIT_LOG", url)
    assert json.loads(run("explain", "r1", "--json").output)["rebuilt"]
    assert run("audit", "--export", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "query_log.parquet").is_file()
    told = json.loads(run("audit", "--forget", "2026-03-03", "--json").output)
    assert (told["forgotten"], told["days"][0]["refuse"]) == (4, 4)
    arms = json.loads(run("metrics", url, "--out", tmp_path / "x.prom", "--json").stdout)["arms"]
    assert (sum(arm["pulls"] for arm in arms), sum(arm["rewards"] for arm in arms)) == (4, 4)
    assert run("feedback", url, "r1", "--up").exit_code == 0
    ended = run("evaluate-log", url, "--estimators", "snips", "--json")
    assert json.loads(ended.stdout)["overlap"]["n"] == 4, ended.output


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "r1", "--log"),
        ("audit", "--log"),
        ("metrics",),
        ("feedback", "r1", "--up"),
        ("evaluate-log",),
    ],
)
def test_a_password_is_not_told(url, words):
    """One line, exit code 1."""
    wrong = "postgresql://raglab:hunter2@" + url.partition("@")[2]
    place = (words[0], wrong, *words[1:]) if words[0] == "feedback" else (*words, wrong)
    ended = run(*place)
    assert (ended.exit_code, ended.output.count("\n")) == (1, 1)
    assert "password authentication failed" in ended.output
    assert "hunter2" not in ended.output
