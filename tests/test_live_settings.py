"""What the environment says of the bandit, and what it must not say."""

from __future__ import annotations

import json
import os
import re
from operator import attrgetter
from pathlib import Path

import pytest

from raglab.audit.log import AuditLog
from raglab.bandit import Bandit
from raglab.default_learner import DefaultLearner
from raglab.live import settings
from raglab.live.settings import (
    Settings,
    load_prior,
    open_audit,
    open_online,
)
from raglab.policy_parts.arms import LIVE_ARMS as ARMS
from raglab.reward import RewardWeights

ASKING = attrgetter(
    "clarify_question_cost", "clarify_error_cost", "clarify_options", "clarify_min_field_confidence"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Read no `.env` and no variable but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("RAGLAB_")]:
        monkeypatch.delenv(name)


def stated(monkeypatch, prefix, **values):
    """State variables."""
    for name, value in values.items():
        monkeypatch.setenv(f"RAGLAB_{prefix}_{name}", value)


def test_the_environment(monkeypatch):
    """Every variable reaches what it sets."""
    weights = {f"W{place}": f"0.{place}" for place in range(1, 6)}
    stated(
        monkeypatch,
        "BANDIT",
        ENABLED="true",
        POLICY="ucb1",
        SEED="7",
        BUDGET_MS="2000",
        LAMBDA="3",
        W_THUMBS="0.3",
        THRESHOLD="0.7",
        EXPLORATION="0.5",
        FLOOR="0.01",
        LOG="x.sqlite",
        **weights,
    )
    current = Settings.read()
    assert current.bandit_enabled is True
    assert current.weights == RewardWeights(0.1, 0.2, 0.3, 0.4, 0.5, 3.0, thumbs=0.3)
    assert current.bandit(ARMS) == Bandit("ucb1", threshold=0.7, exploration=0.5, floor=0.01)
    log = current.online(current.log_of("bandit", "."), ARMS)
    assert (log.log.shown, log.seed, log.budget_ms) == ("x.sqlite", 7, 2000.0)


def test_a_file_and_before_it_the_environment(tmp_path, monkeypatch):
    """`.env` of the working folder is read; a variable goes before it; what is another's is let be.

    Blank says none.
    """
    (tmp_path / ".env").write_text(
        "OPENAI_API_KEY=x\nRAGLAB_BANDIT_SEED=3\nRAGLAB_BANDIT_W1=0.9\nRAGLAB_BANDIT_LOG=\n"
    )
    monkeypatch.setenv("RAGLAB_BANDIT_W1", "0.8")
    current = Settings.read()
    assert (current.bandit_seed, current.bandit_w1, current.bandit_log) == (
        3,
        0.8,
        None,
    )
    assert Settings.read(env_file=None).bandit_seed == 0


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("BANDIT_W1", "-0.1", "greater than or equal to 0"),
        ("BANDIT_W5", "nan", "finite number"),
        ("BANDIT_BUDGET_MS", "0", "greater than 0"),
        ("BANDIT_THRESHOLD", "2", "less than or equal to 1"),
        ("BANDIT_ENABLED", "perhaps", "valid boolean"),
        ("CLARIFY_RULE", "majority", "'vote_share' or 'posterior'"),
        ("CLARIFY_EVERY", "0", "greater than or equal to 1"),
        ("CLARIFY_ASK_BELOW", "nan", ""),
        ("AUDIT_QUERY", "all", "'text', 'hash' or 'none'"),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_wrong_value(
    tmp_path,
    monkeypatch,
    name,
    value,
    rule,
    *,
    in_file,
):
    """The error names the variable, the value and the rule, wherever it was stated."""
    if in_file:
        (tmp_path / ".env").write_text(f"RAGLAB_{name}={value}\n")
    else:
        monkeypatch.setenv(f"RAGLAB_{name}", value)
    message = rf"^RAGLAB_{name}: .*{rule}.*, got '{value}'; correct or unset it\.$"
    with pytest.raises(ValueError, match=message):
        Settings.read()


def test_what_several_values_can_judge(monkeypatch):
    """An unknown policy; a floor that four arms cannot all have; thresholds that cross."""
    stated(monkeypatch, "BANDIT", POLICY="best")
    with pytest.raises(ValueError, match=r"BANDIT_POLICY: it must be one of .*got 'best'"):
        Settings.read().bandit(ARMS)
    stated(monkeypatch, "BANDIT", POLICY="ucb1", FLOOR="0.3")
    with pytest.raises(ValueError, match=r"BANDIT_FLOOR: .* at most 1 over the 4 arms, got 0\.3"):
        Settings.read().bandit(ARMS)
    stated(monkeypatch, "CLARIFY", ASK_BELOW="0.9")
    with pytest.raises(ValueError, match=r"ASK_BELOW 0\.9 must be at most APPLY_ABOVE 0\.85"):
        Settings.read()


def test_a_password_is_never_shown(monkeypatch):
    """Neither by the settings nor by the log nor in an error."""
    url = "postgresql+nodriver://ann:hunter2@db.example/rag?sslpassword=hunter2"
    for name in ("BANDIT", "AUDIT"):
        stated(monkeypatch, name, LOG=url)
    current = Settings.read()
    log = current.online(current.log_of("bandit", "."), ARMS)
    with pytest.raises(ValueError, match="driver must be installed") as caught:
        log.state()
    texts = (repr(current), str(current), current.model_dump_json(), log.log.shown)
    assert not any("hunter2" in text for text in (*texts, str(caught.value)))
    assert repr(current).count("ann:***@db.example/rag?***") == 2


class TestPrior:
    """Pseudo-counts from history."""

    def test_it_comes_back(self, tmp_path, monkeypatch):
        """By arm, whatever their order; an arm that is not named starts without any."""
        rows = {
            "hybrid": {"n": 4.0, "total": 3.0, "square": 2.5},
            "table": {"n": 2.0, "total": 0.5, "square": 0.25},
        }
        (tmp_path / "p.json").write_text(json.dumps(rows), encoding="utf-8")
        monkeypatch.setenv("RAGLAB_BANDIT_PRIOR", str(tmp_path / "p.json"))
        history = Settings.read().bandit(("table", "graph", "hybrid")).history
        assert history is not None
        assert [row.tolist() for row in history] == [
            [2.0, 0.0, 4.0],
            [0.5, 0.0, 3.0],
            [0.25, 0.0, 2.5],
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            '{"hybrid": {"n": -1, "total": 1, "square": 1}}',
            '{"hybrid": {"n": 40, "total": 26, "square": 30}}',
            "{",
        ],
    )
    def test_another_form(self, tmp_path, text):
        """Is refused with the file's name."""
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(
            ValueError, match=r"p\.json.*(a prior must name for each arm|must be valid JSON)"
        ):
            load_prior(tmp_path / "p.json", ARMS)

    def test_an_arm_that_there_is_not(self, tmp_path):
        """A misspelt arm is refused; one that the index lacks is passed over. No file is none."""
        (tmp_path / "p.json").write_text('{"hybird": {"n": 4, "total": 2, "square": 1}}')
        with pytest.raises(
            ValueError, match=r"p\.json: a prior must name arms of hybrid.*got 'hybird'"
        ):
            load_prior(tmp_path / "p.json", ARMS)
        (tmp_path / "p.json").write_text('{"table": {"n": 4, "total": 2, "square": 1}}')
        assert load_prior(tmp_path / "p.json", ("hybrid",)).n.tolist() == [0.0]
        with pytest.raises(ValueError, match="No such file"):
            load_prior(tmp_path / "none.json", ARMS)


class TestOpened:
    """A log that is there."""

    def test_none_is_made(self, tmp_path):
        """A folder without a log, and a log without a choice, are refused."""
        with pytest.raises(ValueError, match="a log must be there"):
            open_online(tmp_path)
        assert list(tmp_path.iterdir()) == []
        at = Settings.read().online(tmp_path / "bandit.sqlite", ARMS)
        with at.log.writing():
            pass
        with pytest.raises(ValueError, match="a log must hold choices of a bandit"):
            open_online(tmp_path)


def test_the_environment_clarify_settings(monkeypatch):
    """Every variable reaches what it sets."""
    stated(
        monkeypatch,
        "CLARIFY",
        ENABLED="true",
        RULE="posterior",
        ASK_BELOW="0.5",
        APPLY_ABOVE="0.7",
        EVERY="9",
        LEVEL="0.9",
        HALF_LIFE_DAYS="30",
        STRATIFY="false",
        QUESTION_COST="2",
        ERROR_COST="5",
        OPTIONS="true",
        MIN_FIELD_CONFIDENCE="0.4",
    )
    stated(monkeypatch, "AUDIT", ENABLED="false", LOG="x.sqlite", QUERY="hash", KEEP_DAYS="90")
    current = Settings.read()
    assert current.clarify_enabled is True
    assert current.learner == DefaultLearner(
        "posterior",
        ask_below=0.5,
        apply_above=0.7,
        every=9,
        level=0.9,
        half_life_days=30.0,
        stratify=False,
    )
    assert ASKING(current) == (2.0, 5.0, True, 0.4)
    assert current.audit_enabled is False
    log = current.audit(current.log_of("audit", "."))
    assert (log.log.shown, log.query, log.keep_days, log.learner) == (
        "x.sqlite",
        "hash",
        90.0,
        current.learner,
    )


def test_opening_what_is_there(tmp_path, monkeypatch):
    """A folder's log, a log's file, or what the environment names.

    And a refusal where nothing is.
    """
    with AuditLog(tmp_path / "audit.sqlite").log.writing():
        pass
    assert open_audit(tmp_path).pack() is open_audit(tmp_path / "audit.sqlite").pack() is None
    with pytest.raises(ValueError, match="RAGLAB_AUDIT_LOG: it must name the audit log; set it"):
        open_audit()
    stated(monkeypatch, "AUDIT", LOG=str(tmp_path / "audit.sqlite"))
    assert open_audit().pack() is None
    with pytest.raises(ValueError, match="a log must be there"):
        open_audit(tmp_path / "none.sqlite").pack()


class TestFailClosed:
    """What is not understood is an error with its place, not the default."""

    @pytest.mark.parametrize(
        ("text", "line", "rule"),
        [
            # today this keeps the text of every question
            ("RAGLAB_AUDIT_QUERY='none\n", 1, "quotes closed"),
            ("A=1\nRAGLAB_AUDIT_QUERY none\n", 2, "a line must be NAME=value"),
            (
                "A='x\nRAGLAB_AUDIT_QUERY=none\nB='\n",
                1,
                "a quote must end before the next variable",
            ),
            (
                "RAGLAB_AUDIT_QUERY=none\nraglab_audit_query=text\n",
                2,
                "RAGLAB_AUDIT_QUERY must be stated once",
            ),
            (
                "RAGLAB_AUDIT_QUERY=${NOBODY_SET_THIS}\n",
                1,
                "RAGLAB_AUDIT_QUERY must stand for something",
            ),
            ("# ours\nRAGLAB_AUDITQUERY=none\n", 2, "did you mean RAGLAB_AUDIT_QUERY"),
            ("RAG_LAB_AUDIT_QUERY=none\n", 1, "did you mean RAGLAB_AUDIT_QUERY"),
            ("RAGLAB_CACHE=/tmp\n", 1, "RAGLAB_CACHE must be set in the environment"),
        ],
    )
    def test_a_line_of_the_file(self, tmp_path, text, line, rule):
        """File, line and rule, whichever settings are read."""
        (tmp_path / ".env").write_text(text)
        with pytest.raises(ValueError, match=r"^\.env, line") as error:
            Settings.read()
        assert str(error.value).startswith(f".env, line {line}: ")
        assert rule in str(error.value)

    def test_a_file_in_another_encoding(self, tmp_path):
        """Is named with its line; a byte-order mark is no part of the first name."""
        (tmp_path / ".env").write_bytes(b"A=1\nRAGLAB_AUDIT_QUERY=none\nB=\xff\n")
        with pytest.raises(ValueError, match=r"^\.env, line 3: text must be UTF-8"):
            Settings.read()
        (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfRAGLAB_AUDIT_QUERY=none\n")
        assert Settings.read().audit_query == "none"
        (tmp_path / ".env").unlink()
        (tmp_path / ".env").mkdir()
        with pytest.raises(ValueError, match=r"^\.env: the path must be a file, got a folder"):
            Settings.read()

    @pytest.mark.parametrize("name", ["RAGLAB_FOO", "raglab_audit_queri"])
    def test_a_variable_of_the_environment(self, monkeypatch, name):
        """One that begins as ours do is ours, whatever its case; one of another tool is let be."""
        monkeypatch.setenv("RAGLABELLER_HOME", "x")
        assert Settings.read().audit_query == "text"
        monkeypatch.setenv(name, "none")
        with pytest.raises(
            ValueError, match=f"^the environment: .* must be one of raglab's, got {name}; "
        ):
            Settings.read()

    def test_small_letters_are_read(self, tmp_path, monkeypatch):
        """But not beside capitals; an empty variable says nothing, so the file holds."""
        (tmp_path / ".env").write_text("raglab_audit_query=none\n")
        monkeypatch.setenv("RAGLAB_AUDIT_QUERY", "")
        assert Settings.read().audit_query == "none"
        monkeypatch.setenv("raglab_audit_query", "hash")
        with pytest.raises(ValueError, match="RAGLAB_AUDIT_QUERY must be stated once"):
            Settings.read()
        monkeypatch.delenv("RAGLAB_AUDIT_QUERY")
        assert Settings.read().audit_query == "hash"

    def test_what_is_known_is_what_is_read(self):
        """Every variable that the package names is in the table, and the table holds no other."""
        root = Path(settings.__file__).parents[1]
        texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
        named = {name for text in texts for name in re.findall(r"RAGLAB_[A-Z0-9_]*[A-Z0-9]", text)}
        known = settings.known_variables()
        assert named - known <= {"RAGLAB_BANDIT", "RAGLAB_CLARIFY", "RAGLAB_ANSWER", "RAGLAB_AUDIT"}
        assert set(settings.PROCESS_VARIABLES) <= named
