"""What the environment says of clarifications and of the audit log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raglab.audit.log import AuditLog
from raglab.default_learner import Learner, gate
from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW, EVERY
from raglab.live import settings
from raglab.live.settings import AuditSettings, ClarifySettings, open_audit


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no `.env` and no variable but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("RAGLAB_CLARIFY_", "RAGLAB_AUDIT_"))]:
        monkeypatch.delenv(name)


def stated(monkeypatch: pytest.MonkeyPatch, prefix: str, **values: str) -> None:
    """State variables."""
    for name, value in values.items():
        monkeypatch.setenv(f"RAGLAB_{prefix}_{name}", value)


def test_nothing_said() -> None:
    """The published learner holds, nothing is asked unless the caller says so, and the log keeps text for ever."""
    said, logged = ClarifySettings.read(), AuditSettings.read()
    assert (said.enabled, said.learner) == (None, Learner())
    assert (said.question_cost, said.error_cost, said.options, said.min_field_confidence) == (1.0, 10.0, False, 0.6)
    assert (logged.enabled, logged.log, logged.query, logged.keep_days) == (True, None, "text", 0.0)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable reaches what it sets."""
    stated(monkeypatch, "CLARIFY", ENABLED="true", RULE="posterior", ASK_BELOW="0.5", APPLY_ABOVE="0.7", EVERY="9")
    stated(monkeypatch, "CLARIFY", LEVEL="0.9", HALF_LIFE_DAYS="30", STRATIFY="false", QUESTION_COST="2")
    stated(monkeypatch, "CLARIFY", ERROR_COST="5", OPTIONS="true", MIN_FIELD_CONFIDENCE="0.4")
    stated(monkeypatch, "AUDIT", ENABLED="false", LOG="x.sqlite", QUERY="hash", KEEP_DAYS="90")
    said, logged = ClarifySettings.read(), AuditSettings.read()
    assert said.enabled is True
    assert said.learner == Learner(
        "posterior", ask_below=0.5, apply_above=0.7, every=9, level=0.9, half_life_days=30.0, stratify=False
    )
    assert (said.question_cost, said.error_cost, said.options, said.min_field_confidence) == (2.0, 5.0, True, 0.4)
    assert logged.enabled is False
    log = logged.audit_log("folder")
    assert (log.log.shown, log.query, log.keep_days, log.learner) == ("x.sqlite", "hash", 90.0, said.learner)


def test_the_log_of_an_index(tmp_path: Path) -> None:
    """Stands beside it where the environment names none."""
    assert AuditSettings.read().audit_log(tmp_path).log.shown == str(tmp_path / "audit.sqlite")


@pytest.mark.parametrize(
    ("prefix", "name", "value", "told"),
    [
        ("CLARIFY", "RULE", "majority", "RAGLAB_CLARIFY_RULE: it must be 'vote_share' or 'posterior', got 'majority'"),
        ("CLARIFY", "EVERY", "0", "RAGLAB_CLARIFY_EVERY: it must be greater than or equal to 1, got '0'"),
        ("CLARIFY", "LEVEL", "1", "RAGLAB_CLARIFY_LEVEL: it must be less than 1"),
        ("CLARIFY", "ASK_BELOW", "nan", "RAGLAB_CLARIFY_ASK_BELOW"),
        ("CLARIFY", "ASK_BELOW", "0.9", "RAGLAB_CLARIFY_*: ASK_BELOW 0.9 must be at most APPLY_ABOVE 0.85"),
        ("CLARIFY", "TRESHOLD", "1", "RAGLAB_CLARIFY_TRESHOLD: a variable must be one of RAGLAB_CLARIFY_APPLY_ABOVE"),
        ("AUDIT", "QUERY", "all", "RAGLAB_AUDIT_QUERY: it must be 'text', 'hash' or 'none'"),
        ("AUDIT", "KEEP_DAYS", "-1", "RAGLAB_AUDIT_KEEP_DAYS: it must be greater than or equal to 0"),
    ],
)
def test_what_is_wrong(monkeypatch: pytest.MonkeyPatch, prefix: str, name: str, value: str, told: str) -> None:
    """Variable, rule and value stand in the message."""
    stated(monkeypatch, prefix, **{name: value})
    with pytest.raises(ValueError, match="RAGLAB_") as error:
        (ClarifySettings if prefix == "CLARIFY" else AuditSettings).read()
    assert told in str(error.value)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's URL is shown without it."""
    stated(monkeypatch, "AUDIT", LOG="postgresql+psycopg://ann:hunter2@db/rag?sslpassword=swordfish")
    said = AuditSettings.read()
    for text in (repr(said), str(said)):
        assert "ann:***@db/rag?***" in text
        assert not any(secret in text for secret in ("hunter2", "swordfish"))


def test_the_template_says_what_holds(tmp_path: Path) -> None:
    """Every variable of the template is read, none is missing from it, and its values are those that hold."""
    rows = [line.split("#")[0].strip() for line in (settings.__doc__ or "").splitlines()]
    lines = [line for line in rows if line.startswith(("RAGLAB_CLARIFY_", "RAGLAB_AUDIT_"))]
    (tmp_path / ".env").write_text("\n".join(lines))
    named = {line.partition("=")[0] for line in lines}
    for kind in (ClarifySettings, AuditSettings):
        assert kind.read() == kind.read(env_file=None)
        assert {kind.variable(name) for name in kind.model_fields} <= named
    assert len(named) == len(ClarifySettings.model_fields) + len(AuditSettings.model_fields)


def test_opening_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's log, a log's file, or what the environment names; and a refusal where nothing is."""
    AuditLog(tmp_path / "audit.sqlite").rows()
    assert open_audit(tmp_path).rows() == open_audit(tmp_path / "audit.sqlite").rows() == ()
    with pytest.raises(ValueError, match="RAGLAB_AUDIT_LOG: it must name the audit log where none is given"):
        open_audit()
    stated(monkeypatch, "AUDIT", LOG=str(tmp_path / "audit.sqlite"))
    assert open_audit().rows() == ()
    with pytest.raises(ValueError, match="a log must be there"):
        open_audit(tmp_path / "none.sqlite").rows()


def test_the_published_gate_is_written_once() -> None:
    """What the environment, the gate and the learner start from are the same three numbers (rule S5.5)."""
    assert ClarifySettings.read(None).learner == Learner()
    assert gate.__kwdefaults__ == {"ask_below": Learner().ask_below, "apply_above": Learner().apply_above}
    assert (ASK_BELOW, APPLY_ABOVE, EVERY) == (0.60, 0.85, 5)
