"""The log's database.

Rows in one sequence without a gap, whole or absent, and no secret in a message.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from raglab.store import database as store
from raglab.store.database import Database, masked_url
from raglab.store.log_rows import LONGEST_LISTED, LONGEST_TEXT, Column, EventTable

NOTES = EventTable(
    "notes",
    (
        Column("who", "name", unique=True),
        Column("said", "json"),
        Column("kind", "name", listed=True),
    ),
)
EVERY = EventTable(
    "every",
    (
        Column("who", "name", missing=True),
        Column("session", "text", missing=True, listed=True),
        Column("answer", "text", missing=True),
        Column("n", "whole", missing=True),
        Column("x", "number", missing=True),
        Column("body", "json"),
    ),
)
COUNTS = EventTable(
    "counts", (Column("who", "name"), Column("n", "whole", missing=True)), key="who"
)
ROW: dict[str, Any] = {"at": "2026-01-01", "who": "ann", "said": {"x": [1, 0.1]}, "kind": "a"}


@pytest.fixture
def database(places):
    """Return a fresh database of two tables."""
    log = Database(places("log.sqlite"), (NOTES, COUNTS))
    yield log
    log.close()


class TestRows:
    """What is added stays as it was added."""

    def test_numbers_have_no_gap(self, database):
        """A transaction that fails takes no number."""
        with database.writing() as log:
            assert log.add("notes", ROW) == 1
        with pytest.raises(ZeroDivisionError), database.writing() as log:
            log.add(
                "notes",
                ROW | {"who": "bob", "kind": 1 / (log.add("notes", ROW | {"who": "dan"}) - 2)},
            )
        with database.writing() as log:
            assert log.add("notes", {**ROW, "who": "cat"}) == 2
            assert log.last == 2
            assert [row["who"] for row in log.rows("notes")] == ["ann", "cat"]

    def test_a_value_that_must_be_unique(self, database):
        """A second row of the same name is refused in one line, and nothing is written."""
        with database.writing() as log:
            log.add("notes", ROW)
        with (
            pytest.raises(ValueError, match=r"UNIQUE constraint failed|duplicate key value"),
            database.writing() as log,
        ):
            log.add("notes", ROW)
        with database.reading() as log:
            assert log.last == 1

    def test_the_latest_come_last_first(self, database):
        """`most` takes so many of the latest, of those that have a value.

        `after` what followed a number.
        """
        with database.writing() as log:
            for number in range(6):
                log.add("notes", ROW | {"who": str(number), "kind": "ab"[number % 2]})
            assert [row["who"] for row in log.rows("notes", most=2, kind="a")] == ["4", "2"]
            assert [row["who"] for row in log.rows("notes", after=4)] == ["4", "5"]
            assert log.row("notes", kind="c") is None

    def test_a_value_is_kept_over_the_one_before(self, database):
        """One row a key, and no event."""
        with database.writing() as log:
            for n in (1, 2, None):
                log.keep("counts", {"who": "ann", "n": n})
            log.keep("counts", {"who": "bob", "n": 7})
            assert list(log.rows("counts")) == [{"who": "ann", "n": None}, {"who": "bob", "n": 7}]
            assert log.last == 0


class TestDatabase:
    """The file, and what it is not."""

    def test_readers_wait_for_nobody(self, database, places):
        """While one writes, another reads what was there before; SQLite is in WAL mode."""
        with database.writing() as log:
            log.add("notes", ROW)
        second = Database(places("log.sqlite"), (NOTES, COUNTS))
        with database.writing() as log, second.reading() as reader:
            log.add("notes", ROW | {"who": "bob"})
            assert reader.last == 1
        second.close()
        if places.server is None:
            assert places.execute("log.sqlite", "PRAGMA journal_mode") == [("wal",)]

    def test_tables_are_added_to_a_log_that_is_there(self, database, places):
        """What another part of the system logs goes into the same log, under the same numbers."""
        with database.writing() as log:
            log.add("notes", ROW)
        more = EventTable("more", (Column("who", "name"),))
        second = Database(places("log.sqlite"), (more,))
        with second.writing() as log:
            assert log.add("more", {"at": "", "who": "ann"}) == 2
        second.close()

    def test_what_is_no_log_is_refused(self, tmp_path):
        """No file, none in no folder, no events, no database; nothing is made or changed."""
        sqlite3.connect(tmp_path / "empty.sqlite").execute("CREATE TABLE t (x)").connection.close()
        (tmp_path / "text.sqlite").write_text("no database, but long enough to be looked at" * 99)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        for name, create, rule in (
            ("none.sqlite", False, r"none\.sqlite: a log must be there"),
            ("no/x.sqlite", True, "got unable to open database file"),
            ("empty.sqlite", False, "a log must hold events"),
            ("text.sqlite", True, "file is not a database"),
        ):
            log = Database(tmp_path / name, (NOTES,), create=create)
            with pytest.raises(ValueError, match=rule), log.writing() if create else log.reading():
                pass
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before

    @pytest.mark.parametrize("begun", [False, True])
    def test_reading_leaves_every_byte(self, tmp_path, begun):
        """Of an empty file, and of a log that another program took out of its write-ahead mode."""
        path = tmp_path / "log.sqlite"
        path.touch()
        if begun:
            writer = Database(path, (NOTES, COUNTS))
            with writer.writing() as log:
                log.add("notes", ROW)
            writer.close()
            with closing(sqlite3.connect(path)) as link:
                assert link.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
        before = path.read_bytes()
        reader = Database(path, (NOTES, COUNTS))
        with reader.reading() as log:
            assert log.last == int(begun)
        reader.close()
        assert path.read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["log.sqlite"]


class TestDoor:
    """What one of the databases cannot hold both refuse in the same words, leaving no trace."""

    @pytest.mark.parametrize(
        ("column", "value", "rule"),
        [
            ("who", "a\0b", r"who must be a text in Unicode without NUL, got 'a\\x00b'; take out"),
            ("who", "half \ud800", r"who must be a text in Unicode .*, got 'half \\ud800'"),
            ("who", "x" * 201, "at most 200 characters, got 201"),
            ("session", "é" * 1001, "at most 2000 bytes in UTF-8, got 2002"),
            ("body", "x" * LONGEST_TEXT, "body must be at most 16777216 bytes in UTF-8"),
            ("who", 7, "who must be a text, got int"),
            ("n", 2**63, "n must be a whole number of 64 bits, got 9223372036854775808"),
            ("n", 0.5, "n must be a whole number of 64 bits, got 0.5"),
            ("x", float("nan"), "x must be a finite number, got nan"),
            ("body", float("inf"), "not JSON compliant"),
        ],
    )
    def test_what_is_refused(self, places, column, value, rule):
        """By rule, value and remedy."""
        at = Database(places("log.sqlite"), (EVERY,))
        with pytest.raises(ValueError, match=rule), at.writing() as log:
            log.add("every", {"at": "", "body": None} | {column: value})
        with at.reading() as log:
            assert (log.last, list(log.rows("every"))) == (0, [])
        at.close()

    def test_what_comes_back_as_it_was(self, places):
        """The longest name, key and text there may be, in characters of four bytes.

        The ends of all numbers.
        """
        names = ("at", "who", "session", "answer", "n", "x", "body")
        listed = os.urandom(LONGEST_LISTED // 2).hex()
        odd = "\U0001f600\r\n\x1b\u202e" * 9
        values = (
            ("x" * 40, "\U0001f600" * 200, listed, "", 2**63 - 1, 5e-324, {"\0": "\0"}),
            ("", "", "", odd, -(2**63), -1.7976931348623157e308, 0.1),
            ("", None, None, "x" * 2**20, None, None, None),
        )
        at = Database(places("log.sqlite"), (EVERY,))
        with at.writing() as log:
            for row in values:
                log.add("every", dict(zip(names, row, strict=True)))
        with at.reading() as log:
            assert [tuple(row[name] for name in names) for row in log.rows("every")] == [*values]
        at.close()

    @pytest.mark.parametrize("value", ["a\0b", 7, "x" * 10_000])
    def test_what_no_row_can_hold_no_row_has(self, database, value):
        """To look for it finds nothing, whatever the driver would say."""
        with database.writing() as log:
            log.add("notes", ROW)
            assert log.row("notes", who=value) is None
            assert list(log.rows("notes", most=3, who=value)) == []
            assert log.row("counts", n=2**63) is None


OPENING = """
import sys, time
from sqlalchemy import Engine, event
from raglab.store.database import Database
from raglab.store.log_rows import Column, EventTable

def slow(link, cursor, statement, *_):
    if statement.startswith("DROP TABLE"):  # in the middle of a step to another version
        time.sleep(0.2)
        if sys.argv[3] == "breaks":
            raise SystemExit("broken off")

event.listen(Engine, "after_cursor_execute", slow)
notes = EventTable("notes", (Column("who", "name", unique=True), Column("said", "json")))
log = Database(sys.argv[1], (notes,))
with log.writing() as entries:
    entries.add("notes", {"at": "", "who": sys.argv[2], "said": None})
    if sys.argv[3] == "waits":
        print("in its turn", flush=True)
        time.sleep(60)
"""
OLD = (  # what makes of a log one of version 3
    "CREATE TABLE audit_chain (seq BIGINT, salt VARCHAR(64))",
    "INSERT INTO audit_chain VALUES (1, 'aa')",
    "UPDATE audit_numbers SET value = 3 WHERE name = 'schema'",
)
SAID = EventTable("notes", (Column("who", "name", unique=True), Column("said", "json")))


def opening(place, who, how):
    """A process that opens a log and adds a row."""
    command = [sys.executable, "-c", OPENING, str(place), who, how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole(places, rows):
    """The log has so many rows, their numbers without a gap."""
    at = Database(places("log.sqlite"), (SAID,), create=False)
    with at.reading() as log:
        assert [row["seq"] for row in log.rows("notes")] == list(range(1, rows + 1))
        assert log.last == rows
    at.close()


def first(places):
    """Make a log of one row."""
    with closing(Database(places("log.sqlite"), (SAID,))) as log, log.writing() as entries:
        entries.add("notes", {"at": "", "who": "first", "said": None})


class TestProcesses:
    """Several processes, and what becomes of one that is killed."""

    def test_a_log_is_made_once(self, places):
        """Whoever opens it at the same time."""
        ended = [opening(places("log.sqlite"), str(number), "new") for number in range(2)]
        assert [process.communicate(timeout=60)[1] for process in ended] == [""] * 2
        whole(places, 2)

    def test_a_log_is_brought_to_a_version_once(self, places):
        """By one of those that open it; the others wait, and find it done.

        A step that breaks off leaves it whole.
        """
        first(places)
        for statement in OLD:
            places.execute("log.sqlite", statement)
        broken = opening(places("log.sqlite"), "second", "breaks").communicate(timeout=60)[1]
        assert broken == "broken off\n"
        assert places.execute("log.sqlite", "SELECT salt FROM audit_chain") == [("aa",)]
        query = "SELECT name, value FROM audit_numbers ORDER BY name"
        assert places.execute("log.sqlite", query) == [("event", 1), ("notes", 1), ("schema", 3)]
        ended = [opening(places("log.sqlite"), str(number), "") for number in range(2)]
        errors = [process.communicate(timeout=60)[1] for process in ended]
        assert sorted("is of version 4 now" in text for text in errors) == [False, True]
        assert [process.returncode for process in ended] == [0] * 2
        assert ("schema", 4) in places.execute("log.sqlite", query)
        whole(places, 3)

    def test_one_that_is_killed_in_its_turn(self, places):
        """Leaves nothing half-written, and its turn to the next."""
        first(places)
        child = opening(places("log.sqlite"), "half", "waits")
        assert child.stdout is not None
        assert child.stdout.readline() == "in its turn\n"
        child.send_signal(signal.SIGKILL)
        at = Database(places("log.sqlite"), (SAID,))
        with at.writing() as log:
            assert log.add("notes", {"at": "", "who": "next", "said": None}) == 2
            assert [row["who"] for row in log.rows("notes")] == ["first", "next"]
        child.communicate()
        at.close()
        whole(places, 2)

    @pytest.mark.parametrize("patience_s", [None, 0.2])
    def test_a_turn_that_does_not_come(self, places, monkeypatch, patience_s):
        """Is told after the same patience, that of all or its own, and what to do.

        Then it goes on.
        """
        monkeypatch.setattr(store, "BUSY_S", 0.2 if patience_s is None else 60.0)
        first_writer, second_writer = (
            Database(places("log.sqlite"), (NOTES,), patience_s=patience_s) for _ in "ab"
        )
        with first_writer.writing() as log:
            log.add("notes", ROW)
        rule = r"its turn within 0\.2 s, got .*lock"
        with first_writer.writing(), pytest.raises(ValueError, match=rule), second_writer.writing():
            pass
        with second_writer.writing() as log:
            assert log.last == 1
        first_writer.close()
        second_writer.close()


class TestServer:
    """PostgreSQL alone."""

    def test_the_server_is_started_again(self, postgresql):
        """What is asked meanwhile is refused in a line, the next call takes a new connection."""
        at = Database(postgresql.database(), (NOTES,))
        with at.writing() as log:
            log.add("notes", ROW)
        postgresql.stop("immediate")  # as a kill: it recovers when it starts
        with pytest.raises(
            ValueError, match=r"a log must be readable .*refused.*; check URL, server and rights"
        ):
            at.reading().__enter__()
        postgresql.start()
        with at.writing() as log:
            assert log.add("notes", ROW | {"who": "bob"}) == 2
        postgresql.stop()
        postgresql.start()
        with at.reading() as log:
            assert log.last == 2

        def broken_off():
            with at.writing() as log:
                log.add("notes", ROW | {"who": "cat"})
                postgresql.stop("immediate")
                postgresql.start()

        with pytest.raises(ValueError, match="check URL, server and rights"):
            broken_off()
        with at.writing() as log:
            assert log.add("notes", ROW | {"who": "cat"}) == 3
        at.close()

    def test_no_password_is_told(self, postgresql):
        """Whatever is wrong with the place.

        Password, database, host, option, or a password with every odd sign.
        """
        good = postgresql.url()
        wrong = {
            postgresql.url(password="hunter2'\\ @"):  # noqa: S106 - a wrong one
            "password authentication failed",
            postgresql.url("nowhere"): 'database "nowhere" does not exist',
            "postgres://ann:hunter2@127.0.0.1:1/rag": "Connection refused",
            "postgresql+psycopg://ann:hunter2@nohost.invalid/rag?connect_timeout=2": "resolve host",
            f"{good}?sslpasswords=hunter2": "invalid connection option",
            f"{good}?sslmode=hunter2": "invalid sslmode value",
            f"{good}?sslmode=require": "server does not support SSL",
        }
        for url, cause in wrong.items():
            with pytest.raises(ValueError, match="a log must be readable and writable") as caught:
                Database(url, (NOTES,)).reading().__enter__()
            assert cause in str(caught.value), url
            for secret in (
                "hunter2",
                postgresql.password,
                url.partition("@")[0].rpartition(":")[2],
            ):
                assert secret not in str(caught.value)
                assert secret not in repr(caught.value)
            assert "\n" not in str(caught.value)

    def test_a_role_that_only_reads(self, postgresql):
        """Reads, and is told that it may not write."""
        url = postgresql.database()
        at = Database(url, (NOTES,))
        with at.writing() as log:
            log.add("notes", ROW)
        at.close()
        postgresql.execute(url, "CREATE ROLE reader LOGIN PASSWORD 'hunter2'")
        postgresql.execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        reads = Database("postgresql://reader:hunter2@" + url.partition("@")[2], (NOTES,))
        with reads.reading() as log:
            assert log.last == 1
        with pytest.raises(ValueError, match="permission denied"), reads.writing():
            pass
        reads.close()


class TestUrls:
    """A URL may hold a password."""

    URL = "postgresql+nodriver://ann:hunter2@db.example/rag?sslpassword=hunter3"

    def test_it_is_not_shown(self):
        """Neither in a message nor in the name of the place."""
        with pytest.raises(ValueError, match="driver must be installed") as caught:
            Database(self.URL, (NOTES,)).writing().__enter__()
        for text in (repr(caught.value), masked_url(self.URL)):
            assert "db.example" in text
            assert "hunter" not in text

    @pytest.mark.parametrize(
        "place", ["postgresql://ann:p@hunter2@db/rag", "host=db password=hunter2 dbname=rag"]
    )
    def test_what_is_nearly_one_shows_none(self, place):
        """A password with the mark behind it; the words that a driver takes are no path."""
        assert "hunter" not in masked_url(place)
        if "://" not in place:
            with pytest.raises(ValueError, match="must be a path or a URL") as caught:
                Database(place, (NOTES,))
            assert "hunter" not in str(caught.value)

    def test_a_driver_that_is_not_there(self, monkeypatch):
        """Is named with what installs it."""
        monkeypatch.setitem(sys.modules, "psycopg", None)
        rule = r"got postgresql\+psycopg \(.*\); pip install \"raglab-toolkit\[postgres\]\""
        with pytest.raises(ValueError, match=rule) as caught:
            Database("postgresql://ann:hunter2@db/rag", (NOTES,)).writing().__enter__()
        assert "hunter2" not in str(caught.value)
