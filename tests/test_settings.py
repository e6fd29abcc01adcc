"""What the environment says of the bandit, and what it must not say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from raglab.arms import LIVE_ARMS as ARMS
from raglab.bandit import Bandit, Stats
from raglab.live import settings
from raglab.live.settings import BanditSettings, load_prior, open_online
from raglab.reward import RewardWeights

HISTORY = Stats(np.array([4.0, 2.0]), np.array([3.0, 0.5]), np.array([2.5, 0.25]))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no `.env` and no variable but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in BanditSettings.model_fields:
        monkeypatch.delenv(f"RAGLAB_BANDIT_{name.rstrip('_').upper()}", raising=False)


def test_nothing_said() -> None:
    """What is published holds, and the policy decides whether a bandit chooses."""
    said = BanditSettings.read()
    assert said.enabled is None
    assert said.weights == RewardWeights()
    assert said.bandit(ARMS) == Bandit()
    assert (said.budget_ms, said.seed, said.log) == (8000.0, 0, None)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable reaches what it sets."""
    stated = {"ENABLED": "true", "POLICY": "ucb1", "SEED": "7", "BUDGET_MS": "2000", "LAMBDA": "3", "W_THUMBS": "0.3"}
    stated |= {f"W{place}": f"0.{place}" for place in range(1, 6)}
    stated |= {"THRESHOLD": "0.7", "EXPLORATION": "0.5", "FLOOR": "0.01", "LOG": "x.sqlite"}
    for name, value in stated.items():
        monkeypatch.setenv(f"RAGLAB_BANDIT_{name}", value)
    said = BanditSettings.read()
    assert (said.enabled, said.seed, said.budget_ms) == (True, 7, 2000.0)
    assert said.weights == RewardWeights(0.1, 0.2, 0.3, 0.4, 0.5, 3.0, thumbs=0.3)
    assert said.bandit(ARMS) == Bandit("ucb1", threshold=0.7, exploration=0.5, floor=0.01)
    assert said.online("folder", ("dense", *ARMS)).arms == ARMS
    assert said.online("folder", ARMS).log.shown == "x.sqlite"


def test_a_file_and_before_it_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.env` of the working folder is read; a variable goes before it; what is another's is let be; blank says none."""
    (tmp_path / ".env").write_text("OPENAI_API_KEY=x\nRAGLAB_BANDIT_SEED=3\nRAGLAB_BANDIT_W1=0.9\nRAGLAB_BANDIT_LOG=\n")
    monkeypatch.setenv("RAGLAB_BANDIT_W1", "0.8")
    said = BanditSettings.read()
    assert (said.seed, said.w1, said.log) == (3, 0.8, None)
    assert BanditSettings.read(env_file=None).seed == 0


def test_the_template_says_what_holds(tmp_path: Path) -> None:
    """The `.env` of the module's docstring names every variable and changes nothing."""
    template = "\n".join(re.findall(r"^ {4}(RAGLAB_BANDIT_.*)$", settings.__doc__ or "", flags=re.MULTILINE))
    assert set(re.findall(r"^(RAGLAB_BANDIT_\w+)=", template, flags=re.MULTILINE)) == {
        f"RAGLAB_BANDIT_{name.rstrip('_').upper()}" for name in BanditSettings.model_fields
    }
    (tmp_path / ".env").write_text(template)
    assert BanditSettings.read() == BanditSettings.read(env_file=None)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("W1", "-0.1", "greater than or equal to 0"),
        ("W1", "much", "valid number"),
        ("W5", "nan", "finite number"),
        ("LAMBDA", "-1", "greater than or equal to 0"),
        ("BUDGET_MS", "0", "greater than 0"),
        ("FLOOR", "1.5", "less than or equal to 1"),
        ("THRESHOLD", "2", "less than or equal to 1"),
        ("EXPLORATION", "inf", "finite number"),
        ("SEED", "-3", "greater than or equal to 0"),
        ("ENABLED", "perhaps", "valid boolean"),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_wrong_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, rule: str, *, in_file: bool
) -> None:
    """The error names the variable, the value and the rule, wherever it was said."""
    if in_file:
        (tmp_path / ".env").write_text(f"RAGLAB_BANDIT_{name}={value}\n")
    else:
        monkeypatch.setenv(f"RAGLAB_BANDIT_{name}", value)
    with pytest.raises(ValueError, match=rf"^RAGLAB_BANDIT_{name}: .*{rule}.*, got '{value}'; correct or unset it\.$"):
        BanditSettings.read()


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip of the pen does not pass in silence."""
    monkeypatch.setenv("RAGLAB_BANDIT_WEIGHT1", "0.1")
    with pytest.raises(ValueError, match="RAGLAB_BANDIT_WEIGHT1: a variable must be one of RAGLAB_BANDIT_BUDGET_MS, "):
        BanditSettings.read()


def test_what_only_the_arms_can_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown policy; a floor that four arms cannot all have."""
    monkeypatch.setenv("RAGLAB_BANDIT_POLICY", "best")
    with pytest.raises(ValueError, match=r"RAGLAB_BANDIT_POLICY: it must be one of epsilon_greedy.*got 'best'"):
        BanditSettings.read().bandit(ARMS)
    monkeypatch.setenv("RAGLAB_BANDIT_POLICY", "ucb1")
    monkeypatch.setenv("RAGLAB_BANDIT_FLOOR", "0.3")
    with pytest.raises(
        ValueError, match=r"RAGLAB_BANDIT_FLOOR: it must be at most 1 over the number of arms, 4, got 0\.3"
    ):
        BanditSettings.read().bandit(ARMS)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the settings nor by the log nor in an error."""
    monkeypatch.setenv("RAGLAB_BANDIT_LOG", "postgresql+nodriver://ann:hunter2@db.example/rag?sslpassword=hunter2")
    said = BanditSettings.read()
    at = said.online("folder", ARMS)
    with pytest.raises(ValueError, match="driver must be installed") as caught:
        at.state()
    for text in (repr(said), str(said), said.model_dump_json(), at.log.shown, str(caught.value)):
        assert "hunter2" not in text
    assert "ann:***@db.example" in repr(said)


class TestPrior:
    """Pseudo-counts from history."""

    def test_it_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """By arm, whatever their order; an arm that is not named starts without any."""
        rows = {
            arm: dict(zip(HISTORY._fields, map(float, row), strict=True))
            for arm, *row in zip(("hybrid", "table"), *HISTORY, strict=True)
        }
        (tmp_path / "p.json").write_text(json.dumps(rows), encoding="utf-8")
        monkeypatch.setenv("RAGLAB_BANDIT_PRIOR", str(tmp_path / "p.json"))
        history = BanditSettings.read().bandit(("table", "graph", "hybrid")).history
        assert history is not None
        assert [row.tolist() for row in history] == [[2.0, 0.0, 4.0], [0.5, 0.0, 3.0], [0.25, 0.0, 2.5]]

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            '{"hybrid": 3}',
            '{"hybrid": {"n": 1, "total": 1}}',
            '{"hybrid": {"n": -1, "total": 1, "square": 1}}',
            '{"hybrid": {"n": 4, "total": 26, "square": 18}}',
            '{"hybrid": {"n": 40, "total": 26, "square": 30}}',
            "{",
        ],
    )
    def test_another_form(self, tmp_path: Path, text: str) -> None:
        """Is refused with the file's name."""
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(ValueError, match=r"p\.json.*(a prior must name for each arm|must be valid JSON)"):
            load_prior(tmp_path / "p.json", ARMS)

    def test_an_arm_that_there_is_not(self, tmp_path: Path) -> None:
        """A misspelt arm is refused; one that this index lacks is passed over."""
        (tmp_path / "p.json").write_text('{"hybird": {"n": 4, "total": 2, "square": 1}}')
        with pytest.raises(ValueError, match=r"p\.json: a prior must name arms of hybrid.*got 'hybird'"):
            load_prior(tmp_path / "p.json", ARMS)
        (tmp_path / "p.json").write_text('{"table": {"n": 4, "total": 2, "square": 1}}')
        assert load_prior(tmp_path / "p.json", ("hybrid",)).n.tolist() == [0.0]

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Is refused."""
        with pytest.raises(ValueError, match="No such file"):
            load_prior(tmp_path / "none.json", ARMS)


class TestOpened:
    """A log that is there."""

    def test_it_has_its_arms(self, tmp_path: Path) -> None:
        """Those it last chose from, by folder or by file."""
        at = BanditSettings.read().online(tmp_path, ("hybrid", "table"))
        at.choose("r", [True, True], {})
        for place in (tmp_path, tmp_path / "bandit.sqlite", f"sqlite:///{tmp_path / 'bandit.sqlite'}"):
            assert open_online(place).arms == ("hybrid", "table")
            assert open_online(place).state().t == 1

    def test_none_is_made(self, tmp_path: Path) -> None:
        """A folder without a log, and a log without a choice, are refused."""
        with pytest.raises(ValueError, match="a log must be there"):
            open_online(tmp_path)
        assert list(tmp_path.iterdir()) == []
        at = BanditSettings.read().online(tmp_path, ARMS)
        with at.log.writing():
            pass
        with pytest.raises(ValueError, match="a log must hold choices of a bandit"):
            open_online(tmp_path)
