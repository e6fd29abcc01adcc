"""Metrics per arm for Prometheus: its own parser reads them, and only this machine may."""

from __future__ import annotations

import json
import math
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from raglab.bandit import Bandit
from raglab.cli import logs
from raglab.live import online_bandit
from raglab.live.online_bandit import Online, metrics_text, serve, write_metrics
from raglab.reward import RewardWeights

ARMS = ("hybrid", "table")
GOOD = {"margin": 0.5, "diversity": 0.2, "latency_ratio": 0.25, "cache_hit": 0.0, "consistency": 1.0}  # reward 0.6


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Online:
    """Return a bandit that has answered three questions by one of its arms, two of them with a reward."""
    monkeypatch.chdir(tmp_path)
    made = Online(Bandit(), RewardWeights(), 8000.0, tmp_path / "bandit.sqlite", ARMS)
    for number in range(3):
        made.choose(f"r{number}", [True, False], {})
    made.update("r0", GOOD, ms=1000.0)
    made.update("r1", GOOD | {"latency_ratio": 4.0}, ms=3000.0)
    return made


def samples(text: str) -> dict[tuple[str, str], float]:
    """Samples of a text by name and arm, as Prometheus reads them."""
    return {
        (one.name, one.labels["arm"]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_by_head(at: Online) -> None:
    """Three pulls, rewards 0.6 and 0, a win of two; seconds; an arm without a reward has no mean."""
    said = samples(metrics_text(at.arms_frame()))
    expected = {"pulls_total": 3, "rewards_total": 2, "wins": 1, "win_ratio": 0.5, "reward_mean": 0.3}
    expected |= {"latency_mean_seconds": 2.0, "latency_p95_seconds": 2.9}
    first = {name.removeprefix("raglab_bandit_"): value for (name, arm), value in said.items() if arm == "hybrid"}
    assert first == pytest.approx(expected)
    rest = {name.removeprefix("raglab_bandit_"): value for (name, arm), value in said.items() if arm == "table"}
    assert rest == {"pulls_total": 0.0, "rewards_total": 0.0, "wins": 0.0}
    assert not any(math.isnan(value) for value in said.values())


def test_a_text_file(at: Online, tmp_path: Path) -> None:
    """Is written whole or not at all."""
    write_metrics(at.arms_frame(), tmp_path / "raglab.prom")
    assert samples((tmp_path / "raglab.prom").read_text())["raglab_bandit_pulls_total", "hybrid"] == 3.0
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(ValueError, match="the file must be writable"):
        write_metrics(at.arms_frame(), tmp_path / "no" / "raglab.prom")


def test_an_endpoint(at: Online) -> None:
    """It answers on 127.0.0.1 with what holds now, on no other address, and is gone when it is closed."""
    served = serve(at.arms_frame)
    try:
        address = f"http://127.0.0.1:{served.port}/metrics"
        assert samples(urllib.request.urlopen(address).read().decode())["raglab_bandit_pulls_total", "hybrid"] == 3.0
        at.choose("r3", [True, False], {})
        assert samples(urllib.request.urlopen(address).read().decode())["raglab_bandit_pulls_total", "hybrid"] == 4.0
        with socket.socket() as other, pytest.raises(OSError, match="refused"):
            other.connect(("127.0.0.2", served.port))
        with pytest.raises(
            OSError, match=rf"port must be free on 127.0.0.1, got {served.port}, .*in use; choose another"
        ):
            serve(at.arms_frame, served.port)
    finally:
        served.close()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address)
    serve(at.arms_frame, served.port).close()  # the port is free again


class TestCommands:
    """`raglab metrics` and `raglab feedback`."""

    @pytest.fixture
    def app(self) -> typer.Typer:
        """Return the two commands."""
        app = typer.Typer()
        app.command()(logs.metrics)
        app.command()(logs.feedback)
        return app

    def test_metrics(self, app: typer.Typer, at: Online, tmp_path: Path) -> None:
        """A table for people, JSON for programs, a file for Prometheus; by folder or file."""
        assert at.arms == ARMS
        said = CliRunner().invoke(app, ["metrics", str(tmp_path), "--out", str(tmp_path / "x.prom")])
        assert said.exit_code == 0, said.output
        assert "hybrid      3        2     1" in said.stdout
        assert samples((tmp_path / "x.prom").read_text())["raglab_bandit_wins", "hybrid"] == 1.0
        told = json.loads(CliRunner().invoke(app, ["metrics", str(tmp_path / "bandit.sqlite"), "--json"]).stdout)
        assert told[0] == at.arms_frame().to_dict("records")[0]
        assert told[1]["win_rate"] is None

    @pytest.mark.slow
    def test_serving(self, app: typer.Typer, at: Online, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Until interrupted; then the endpoint is closed, with the code of an interruption."""
        del at
        seen = []

        def interrupted() -> None:
            seen.append(1)
            raise KeyboardInterrupt

        monkeypatch.setattr(logs, "_until_interrupted", interrupted)
        ended = CliRunner().invoke(app, ["metrics", str(tmp_path), "--serve", "0"])
        assert (seen, ended.exit_code) == ([1], 130)
        assert f"http://{online_bandit.LOCALHOST}:" in ended.stderr

    def test_feedback(self, app: typer.Typer, at: Online, tmp_path: Path) -> None:
        """A thumb, up or down; one of them must be said."""
        for way, value in (("--up", 1.0), ("--down", 0.0)):
            ended = CliRunner().invoke(app, ["feedback", str(tmp_path), "r0", way])
            assert ended.exit_code == 0, ended.output
            assert at.frame()["thumb"][0] == value
        assert CliRunner().invoke(app, ["feedback", str(tmp_path), "r0"]).exit_code == 2

    @pytest.mark.parametrize("arguments", [("metrics", "."), ("feedback", ".", "r0", "--up"), ("metrics", "x.sqlite")])
    def test_no_log(
        self, app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
    ) -> None:
        """Is said in one line, and none is made."""
        monkeypatch.chdir(tmp_path)
        ended = CliRunner().invoke(app, list(arguments))
        assert (ended.exit_code, "a log must be there" in ended.stderr) == (1, True)
        assert list(tmp_path.iterdir()) == []

    def test_an_unknown_request(self, app: typer.Typer, at: Online, tmp_path: Path) -> None:
        """Is said in one line."""
        del at
        ended = CliRunner().invoke(app, ["feedback", str(tmp_path), "r9", "--up"])
        assert (ended.exit_code, "got 'r9'" in ended.stderr) == (1, True)
