"""Logs with a value that no honest one holds: refused with rule, value and remedy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import copy
from uuid import uuid4

import pytest

from fuzz.outcomes import is_clear
from raglab.audit.log import AuditLog
from raglab.audit.log_summary import days
from raglab.bandit import Bandit
from raglab.live.online_bandit import Online
from raglab.live.settings import open_online
from raglab.policy import PolicyData
from raglab.reward import RewardWeights

COMPONENTS = {
    "margin": 0.5,
    "diversity": 0.2,
    "latency_ratio": 0.25,
    "cache_hit": 0.0,
    "consistency": 1.0,
}
ARMS = ("hybrid", "graph")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Return a database with both logs, of one question that was decided and rewarded."""
    path = tmp_path_factory.mktemp("logs") / "both.sqlite"
    log, online = AuditLog(path), bandit(path)
    log.opened(
        "r", "who?", policy=PolicyData.from_mapping(), fingerprint="f", models={"encoder": "words"}
    )
    online.choose("r", [True, True], {"words": 0.5})
    online.update("r", COMPONENTS, ms=20.0)
    log.decided("r", {"status": "ok", "answer": "x", "confidence": 0.5})
    log.close()
    online.close()
    return path


@pytest.fixture
def place(sound, tmp_path):
    """Return a copy of the database."""
    return Path(copy(sound, tmp_path))


def bandit(path):
    """Bandit over a log."""
    return Online(Bandit(floor=0.05), RewardWeights(), 8000.0, path, ARMS)


def changed(path, table, column, value):
    """Change a value."""
    with closing(sqlite3.connect(path)) as link:
        link.execute(f"UPDATE {table} SET {column} = ?", (value,))
        link.commit()


def choose(path):
    """Choose the arm of another question."""
    return bandit(path).choose(uuid4().hex, [True, True], {"words": 0.5})


def fold(path):
    """State after all events, by nothing but them."""
    return bandit(path).rebuild()


def summary(path):
    """Days of the audit log, by hand and by pandas."""
    log = AuditLog(path)
    try:
        return [days(log), log.export(path.with_name("out"))]
    finally:
        log.close()


@pytest.mark.parametrize(
    ("table", "column", "value", "door"),
    [
        ("bandit_rewards", "ms", "", choose),
        ("bandit_rewards", "ms", b"\x01", choose),
        ("bandit_rewards", "ms", float("inf"), choose),
        ("bandit_choices", "arms", "null", open_online),
        ("bandit_choices", "arms", '[["hybrid"], null]', open_online),
        ("bandit_choices", "features", '{"words": NaN}', fold),
        ("bandit_rewards", "components", '{"margin": -Infinity}', fold),
        ("bandit_rewards", "reward", float("inf"), lambda path: bandit(path).frame()),
        ("decisions", "confidence", float("inf"), summary),
        ("decisions", "ms", '{"total": Infinity}', summary),
        ("decisions", "at", "\x1b[2J", summary),
    ],
)
def test_a_value_that_no_log_holds(place, table, column, value, door):
    """One line that names it, at the door that reads it."""
    door(place)
    changed(place, table, column, value)
    with pytest.raises(ValueError, match="must") as refused:
        door(place)
    assert is_clear(refused.value), str(refused.value)


def test_large_numbers_of_json_stay(place):
    """What a float holds is read to the last digit, however it is written."""
    changed(
        place,
        "bandit_rewards",
        "measured",
        '{"a": 1.5e300, "b": 1e0100, "c": 12345678901234567890, "d": "1e999"}',
    )
    with bandit(place).log.reading() as log:
        row = log.row("bandit_rewards")
    assert row["measured"] == {"a": 1.5e300, "b": 1e100, "c": 12345678901234567890, "d": "1e999"}
