"""The log's database: rows in one sequence without a gap, whole or absent, and no secret in a message."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from raglab.store.database import Column, Database, EventTable, masked_url
from raglab.store.log_tables import CHOICE_TABLES, CHOICES, REWARDS, THUMBS, events

NOTES = EventTable(
    "notes", (Column("who", "name", unique=True), Column("said", "json"), Column("kind", "name", listed=True))
)
COUNTS = EventTable("counts", (Column("who", "name"), Column("n", "whole", missing=True)), key="who")
ROW: dict[str, Any] = {"at": "2026-01-01", "who": "ann", "said": {"x": [1, 0.1]}, "kind": "a"}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Return a fresh database of two tables."""
    return Database(tmp_path / "log.sqlite", (NOTES, COUNTS))


class TestRows:
    """What is added stays as it was added."""

    def test_numbers_have_no_gap(self, database: Database) -> None:
        """A transaction that fails takes no number."""
        with database.writing() as log:
            assert log.add("notes", ROW) == 1
        with pytest.raises(ZeroDivisionError), database.writing() as log:
            log.add("notes", ROW | {"who": "bob", "kind": 1 / (log.add("notes", ROW | {"who": "dan"}) - 2)})
        with database.writing() as log:
            assert log.add("notes", {**ROW, "who": "cat"}) == 2
            assert log.last == 2
            assert [row["who"] for row in log.rows("notes")] == ["ann", "cat"]

    def test_json_comes_back(self, database: Database) -> None:
        """Floats keep every bit, text every character."""
        said = {"pi": 3.141592653589793, "tenth": 0.1, "text": "£ é \U0001f600", "none": None}
        with database.writing() as log:
            log.add("notes", ROW | {"said": said})
        with database.reading() as log:
            row = log.one("notes", who="ann")
        assert row == {"seq": 1, **ROW, "said": said}

    def test_nan_is_no_json(self, database: Database) -> None:
        """What JSON cannot hold is not written."""
        with pytest.raises(ValueError, match="JSON compliant"), database.writing() as log:
            log.add("notes", ROW | {"said": float("nan")})
        with database.reading() as log:
            assert (log.last, list(log.rows("notes"))) == (0, [])

    def test_a_value_that_must_be_unique(self, database: Database) -> None:
        """A second row of the same name is refused in one line, and nothing is written."""
        with database.writing() as log:
            log.add("notes", ROW)
        with pytest.raises(ValueError, match="UNIQUE constraint failed"), database.writing() as log:
            log.add("notes", ROW)
        with database.reading() as log:
            assert log.last == 1

    def test_the_latest_come_last_first(self, database: Database) -> None:
        """`most` takes so many of the latest, of those that have a value; `after` what followed a number."""
        with database.writing() as log:
            for number in range(6):
                log.add("notes", ROW | {"who": str(number), "kind": "ab"[number % 2]})
            assert [row["who"] for row in log.rows("notes", most=2, kind="a")] == ["4", "2"]
            assert [row["who"] for row in log.rows("notes", after=4)] == ["4", "5"]
            assert log.one("notes", kind="c") is None

    def test_a_value_is_kept_over_the_one_before(self, database: Database) -> None:
        """One row a key, and no event."""
        with database.writing() as log:
            for n in (1, 2, None):
                log.keep("counts", {"who": "ann", "n": n})
            log.keep("counts", {"who": "bob", "n": 7})
            assert list(log.rows("counts")) == [{"who": "ann", "n": None}, {"who": "bob", "n": 7}]
            assert log.last == 0


class TestDatabase:
    """The file, and what it is not."""

    def test_readers_wait_for_nobody(self, database: Database) -> None:
        """SQLite is in WAL mode: while one writes, another reads what was there before."""
        with database.writing() as log:
            log.add("notes", ROW)
        other = Database(database.shown, (NOTES, COUNTS))
        with database.writing() as log, other.reading() as seen:
            log.add("notes", ROW | {"who": "bob"})
            assert seen.last == 1
        with sqlite3.connect(database.shown) as link:
            assert link.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        link.close()

    def test_tables_are_added_to_a_file_that_is_there(self, database: Database) -> None:
        """What another part of the system logs goes into the same file, under the same numbers."""
        with database.writing() as log:
            log.add("notes", ROW)
        more = EventTable("more", (Column("who", "name"),))
        with Database(database.shown, (more,)).writing() as log:
            assert log.add("more", {"at": "", "who": "ann"}) == 2

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Is made only where that is wanted."""
        with pytest.raises(ValueError, match=r"none\.sqlite: a log must be there"):
            Database(tmp_path / "none.sqlite", (NOTES,), create=False).reading().__enter__()
        assert list(tmp_path.iterdir()) == []

    def test_a_file_without_events(self, tmp_path: Path) -> None:
        """An empty database is not a log."""
        sqlite3.connect(tmp_path / "empty.sqlite").execute("CREATE TABLE t (x)").connection.close()
        with pytest.raises(ValueError, match="a log must hold events"):
            Database(tmp_path / "empty.sqlite", (NOTES,), create=False).reading().__enter__()

    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        """Is left as it was."""
        (tmp_path / "x.sqlite").write_text("no database at all, but long enough to be looked at" * 99)
        before = (tmp_path / "x.sqlite").read_bytes()
        with pytest.raises(ValueError, match="file is not a database"):
            Database(tmp_path / "x.sqlite", (NOTES,)).writing().__enter__()
        assert (tmp_path / "x.sqlite").read_bytes() == before

    def test_another_version(self, database: Database) -> None:
        """Is refused, and nothing changed."""
        with database.writing():
            pass
        database.close()
        with sqlite3.connect(database.shown) as link:
            link.execute("UPDATE audit_numbers SET value = 99 WHERE name = 'schema'")
        link.close()
        with pytest.raises(ValueError, match="a log must be of version 2, got version 99"):
            database.writing().__enter__()

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        """Says so, without a stack of the driver's."""
        with pytest.raises(ValueError, match="must be readable and writable, got unable to open database file"):
            Database(tmp_path / "no" / "x.sqlite", (NOTES,)).writing().__enter__()


class TestUrls:
    """A URL may hold a password."""

    URL = "postgresql+nodriver://ann:hunter2@db.example/rag?sslpassword=hunter3"

    def test_it_is_not_shown(self) -> None:
        """Neither in a message nor in the name of the place."""
        with pytest.raises(ValueError, match="driver must be installed") as caught:
            Database(self.URL, (NOTES,)).writing().__enter__()
        assert "db.example" in str(caught.value)
        for text in (str(caught.value), repr(caught.value), masked_url(self.URL)):
            assert "hunter" not in text

    @pytest.mark.parametrize("url", ["://ann:hunter2@db", "postgresql://ann:hunter2@db:port/x"])
    def test_one_that_is_none(self, url: str) -> None:
        """Is not repeated either."""
        with pytest.raises(ValueError, match="must be a path or a URL such as") as caught:
            Database(url, (NOTES,))
        assert "hunter" not in str(caught.value)

    def test_sqlite_by_url(self, tmp_path: Path) -> None:
        """Is the same as by path."""
        with Database(f"sqlite:///{tmp_path / 'x.sqlite'}", (NOTES,)).writing() as log:
            log.add("notes", ROW)
        with Database(tmp_path / "x.sqlite", (NOTES,), create=False).reading() as log:
            assert log.last == 1

    def test_postgresql_takes_the_tables(self) -> None:
        """Its tables compile, every float with 64 bits; a writer locks the row of numbers."""
        database, dialect = Database("x", CHOICE_TABLES), postgresql.dialect()
        made = {name: str(CreateTable(table).compile(dialect=dialect)) for name, table in database._tables.items()}
        assert "propensity DOUBLE PRECISION NOT NULL" in made[CHOICES]
        assert "seq BIGINT NOT NULL" in made[REWARDS]
        locked = select(database._numbers).with_for_update().compile(dialect=dialect)
        assert str(locked).endswith("FOR UPDATE")


class TestEvents:
    """What a learner is told, in the order it happened."""

    def test_by_head(self, tmp_path: Path) -> None:
        """A thumb before its reward has no components, one after it has; both know the thumb before them."""
        choice = dict.fromkeys(("policy_id", "fingerprint", "question", "setup", "state_hash"), "")
        choice |= {"at": "", "arm": "graph", "arms": [], "mask": [], "propensity": 1.0, "propensities": []}
        choice |= {"features": {"words": 2.0}, "state_seq": 0, "seed": 0}
        reward = {"at": "", "arm": "graph", "age": 1, "components": {"margin": 0.5}, "reward": 0.5, "ms": 1.0}
        with Database(tmp_path / "x.sqlite", CHOICE_TABLES).writing() as log:
            log.add(CHOICES, choice | {"request_id": "a", "round": 1})
            log.add(CHOICES, choice | {"request_id": "b", "round": 2})
            log.add(THUMBS, {"at": "", "request_id": "a", "age": 1, "before": None, "up": 0})
            log.add(REWARDS, reward | {"request_id": "a", "thumb": 0, "measured": {}})
            log.add(THUMBS, {"at": "", "request_id": "a", "age": 1, "before": 0, "up": 1})
            said = list(events(log))
            assert [(one.seq, one.kind, one.request_id) for one in said] == [
                *((1, "choice", "a"), (2, "choice", "b"), (3, "thumb", "a"), (4, "reward", "a"), (5, "thumb", "a"))
            ]
            assert [one.components for one in said] == [None, None, None, {"margin": 0.5}, {"margin": 0.5}]
            assert [(one.before, one.thumb) for one in said[2:]] == [(None, 0), (None, 0), (0, 1)]
            assert {one.arm for one in said} == {"graph"}
            for after in range(6):
                assert list(events(log, after)) == said[after:]
