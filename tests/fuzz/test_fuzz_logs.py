"""Audit and bandit logs that somebody altered: read, or refused in one clear line."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from typing import Any

import pytest

from fuzz.log_cells import change_cell, changes_of
from fuzz.logs import AUDIT, BANDIT, DOORS, read
from fuzz.mutation import WORDS, mutated_bytes, pick
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.shop import QUESTIONS
from labelled import free_policy
from raglab.audit.live_rates import live_rates
from raglab.live.ask import ask
from raglab.live.settings import open_audit, open_online
from raglab.live.system import System
from raglab.store.log_tables import CHOICE_TABLES, REQUEST_TABLES

# Statements of somebody who has the file: traps for whoever reads or writes it next, tables gone or
# of another form.
TRAPS = (
    "CREATE TRIGGER trap AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE TRIGGER trap BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END",
    (
        "CREATE TRIGGER trap BEFORE UPDATE ON audit_numbers BEGIN SELECT RAISE(ABORT, "
        "'\x1b[2Jno'); "
        "END"
    ),
    "CREATE VIEW trap AS SELECT load_extension('x') FROM {table}",
    "ALTER TABLE {table} RENAME TO other",
    "DROP TABLE {table}",
    "DELETE FROM {table}",
    "CREATE TABLE other (a); DROP TABLE {table}; CREATE VIEW {table} AS SELECT * FROM other",
    "PRAGMA user_version=99",
    "PRAGMA application_id=7",
    "ALTER TABLE {table} ADD COLUMN more TEXT DEFAULT 'x'",
    "UPDATE audit_numbers SET value = value + 1",
    "UPDATE audit_numbers SET value = 'x'",
    "UPDATE audit_numbers SET value = -1 WHERE name = 'event'",
    "CREATE TABLE audit_chain (seq BIGINT)",
    "UPDATE audit_numbers SET value = 3 WHERE name = 'schema'",
    "DELETE FROM audit_numbers",
)


def _rebuild(place, _):
    log, online = open_audit(place), open_online(place)
    try:
        log.rebuild()
        online.rebuild()
        online.arms_frame()
        live_rates(log)
    finally:
        log.close()
        online.close()


def _ask_bandit(place, _):
    system = System.open(place, policy=free_policy(), arm="bandit")
    try:
        ask(QUESTIONS[1], system=system, request_id="new")
    finally:
        _close(system)


def _close(system):
    for log in filter(None, (system.audit, system.online, system.caches)):
        log.close()


def stored(place, *files):
    """Every row of every table that raglab made, of these logs, by the columns that it knows."""
    held = []
    known = {
        one.name: [*(() if one.key else ("seq", "at")), *(part.name for part in one.columns)]
        for one in (*CHOICE_TABLES, *REQUEST_TABLES)
    }
    for file in files:
        with closing(sqlite3.connect(place / file)) as link:
            tables = link.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            for (table,) in tables:
                names = ", ".join(f'"{name}"' for name in known.get(table, ())) or "*"
                # names of its own
                rows = link.execute(f'SELECT {names} FROM "{table}"').fetchall()
                held.append((file, table, sorted(map(repr, rows))))
    return held


@cache
def tables(path):
    """Columns by table of a database."""
    with closing(sqlite3.connect(path)) as link:
        names = [
            row[0]
            for row in link.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        return {
            name: [row[1] for row in link.execute(f"PRAGMA table_info('{name}')")] for name in names
        }


def altered(rng, path):
    """Change a log by one or two statements; what was changed."""
    told = []
    columns = tables(path)
    with closing(sqlite3.connect(path)) as link:
        for _ in range(int(rng.integers(1, 3))):
            table = pick(rng, sorted(columns))
            count = int(rng.integers(3))
            rowids: list[int] = []
            with suppress(sqlite3.Error):  # the statement before renamed or dropped it
                rowids = [row[0] for row in link.execute(f'SELECT rowid FROM "{table}"')]
            rowid = pick(rng, rowids) if rowids else None
            column, other = pick(rng, columns[table]), pick(rng, columns[table])
            with suppress(sqlite3.Error):  # a rule of the table that forbids it
                if count == 0 and rowid is not None:
                    link.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (rowid,))
                    told.append(f"{table} without {rowid}")
                elif count == 1 and rowid is not None:
                    names = ", ".join(
                        f'"{one}"' for one in columns[table] if one not in {"seq", "row_id"}
                    )
                    link.execute(
                        f'INSERT INTO "{table}" (seq, {names}) SELECT seq + ?, {names} FROM '
                        f'"{table}" WHERE rowid = ?',
                        (int(rng.integers(1, 60)), rowid),
                    )
                    told.append(f"{table} with {rowid} again")
                elif rng.random() < 0.3 and rowid is not None:
                    link.execute(
                        f'UPDATE "{table}" SET "{column}" = "{other}" WHERE rowid = ?', (rowid,)
                    )
                    told.append(f"{table}.{column} = {other} of {rowid}")
                else:
                    statement = pick(rng, TRAPS).format(table=table)
                    link.executescript(statement)
                    told.append(statement)
        link.commit()
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return "; ".join(told) or "nothing"


def spoil(rng, whole, place):
    """Copy the logs to a place and spoil one of them; how."""
    for file in (AUDIT, BANDIT):
        for end in ("", "-wal", "-shm", "-journal"):
            (place / f"{file}{end}").unlink(missing_ok=True)
        shutil.copyfile(whole / file, place / file)
    file = pick(rng, (AUDIT, BANDIT))
    path, kind = place / file, rng.random()
    if kind < 0.3:
        change = pick(rng, changes_of(whole / file))
        return f"{file}: {change if change_cell(path, change) else 'nothing'}"
    if kind < 0.6:
        return f"{file}: {altered(rng, path)}"
    raw = path.read_bytes()
    if kind < 0.8:
        path.write_bytes(mutated_bytes(rng, raw))
        return f"{file}: bytes"
    if kind < 0.9:
        spoilt = bytearray(raw)
        for at in rng.integers(len(raw), size=int(rng.integers(1, 4))):
            spoilt[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoilt)
        return f"{file}: bits"
    if kind < 0.96:
        end = pick(rng, ("-wal", "-shm", "-journal"))
        beside = pick(
            rng,
            (
                b"",
                rng.bytes(4096),
                raw[:8192],
                b"\x37\x7f\x06\x82" + rng.bytes(4000),
                WORDS[5].encode(),
            ),
        )
        (place / f"{file}{end}").write_bytes(beside)
        return f"{file}{end}: {len(beside)} bytes"
    path.unlink()
    made: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "empty": path.touch,
        "a folder": path.mkdir,
        "a link to the other": lambda: path.symlink_to(
            place / (BANDIT if file == AUDIT else AUDIT)
        ),
        "another database": lambda: shutil.copyfile(whole / "embeddings.sqlite", path),
        "text": lambda: path.write_text(str(pick(rng, WORDS)).encode("utf-8", "replace").decode()),
    }
    name = pick(rng, sorted(made))
    made[name]()
    return f"{file}: {name}"


def clear_away(place):
    """Take a folder away that stands in the place of a log."""
    for file in (AUDIT, BANDIT):
        if (place / file).is_dir() and not (place / file).is_symlink():
            (place / file).rmdir()


def test_a_log_that_was_altered_is_read_or_refused(whole, tmp_path):
    """Reading changes no row. A tenth of the cases."""
    place = tmp_path / "i"
    shutil.copytree(whole, place)

    def draw(rng):
        clear_away(place)
        what, before = spoil(rng, whole, place), list[Any]()
        with suppress(sqlite3.Error):
            before = stored(place, AUDIT, BANDIT)
        return Trial(
            what,
            partial(read, place),
            lambda _: "" if before in ([], stored(place, AUDIT, BANDIT)) else "rows were changed",
        )

    failures = fuzz("logs: read", draw, tmp_path, -(-CASES // 10))
    assert not failures, report(failures)


@pytest.mark.parametrize("name", [*DOORS, "rebuild", "bandit"])
def test_each_door_refuses_or_does(whole, tmp_path, name):
    """Over an altered log; a fortieth of the cases for each door."""
    place, out = tmp_path / "i", tmp_path / "out"
    door = {**DOORS, "rebuild": _rebuild, "bandit": _ask_bandit}[name]
    shutil.copytree(whole, place)

    def check(_, what):
        if name not in {"thumb", "signal"} or "TRIGGER" in what:
            return ""
        file = BANDIT if name == "thumb" else AUDIT
        with suppress(sqlite3.Error):  # a page that nothing reads is damaged
            return "nothing was written" if stored(place, file) == stored(whole, file) else ""
        return ""

    def draw(rng):
        clear_away(place)
        what = spoil(rng, whole, place)
        return Trial(what, partial(door, place, out), partial(check, what=what))

    failures = fuzz(f"logs: {name}", draw, tmp_path, -(-CASES // 40))
    assert not failures, report(failures)


def test_a_question_over_an_altered_log(whole, tmp_path):
    """It is answered as ever, or refused in one line.

    A hundredth of the cases, each opens the whole system.
    """
    place = tmp_path / "i"
    shutil.copytree(whole, place)
    sound = ask(
        QUESTIONS[0], system=System.open(whole, policy=free_policy(), arm="hybrid", audit=False)
    )["answer"]

    def asked():
        system = System.open(place, policy=free_policy(), arm="hybrid")
        try:
            return ask(QUESTIONS[0], system=system, request_id="new")
        finally:
            _close(system)

    def draw(rng):
        clear_away(place)
        what = spoil(rng, whole, place)
        return Trial(
            what,
            asked,
            lambda said: "" if said["answer"] == sound else f"another answer: {said['answer']}",
        )

    failures = fuzz("logs: ask", draw, tmp_path, -(-CASES // 100))
    assert not failures, report(failures)
