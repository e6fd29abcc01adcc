"""The hash chain of a log: what is deleted, forged, moved or dropped is named.

What is forgotten is not missed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from shutil import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

import commands
from raglab.audit.explanation import explain_request
from raglab.audit.live_rates import live_rates
from raglab.audit.log import AuditLog
from raglab.bandit import Bandit, dumps
from raglab.decision.checks import Check
from raglab.live.online_bandit import FEATURES, Online
from raglab.policy import PolicyData
from raglab.reward import RewardWeights
from raglab.store.database import SCHEMA, Database
from raglab.store.log_chain import Head, link_digest, make_link, parse_head, row_digest
from raglab.store.log_rows import Column, EventTable, decode_row, encode_row, row_form
from raglab.store.log_tables import CHOICE_TABLES, EVENTS, LABELS, REQUEST_TABLES, SAMPLES

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = START + timedelta(minutes=3)
POLICY = PolicyData.from_mapping()
NOTES = EventTable(
    "notes",
    (
        Column("who", "name", unique=True),
        Column("said", "text", missing=True),
        Column("n", "number", missing=True),
    ),
    without=lambda _: {"said": None},
)


class Log(NamedTuple):
    """A log of either kind, closed, and how it is verified."""

    path: Path
    verify: Callable[..., Any]
    write: Callable[[], object]
    read: Callable[[], object]
    close: Callable[[], None]

    def edit(self, *statements: str) -> None:
        """Run statements that raglab would not."""
        self.close()
        edited(self.path, *statements)

    def findings(self) -> list[str]:
        """What a verification finds, in words."""
        return [str(one) for one in self.verify().findings]


def edited(path: Path, *statements: str) -> None:
    """Run statements over a closed log; each must reach a row, or change the schema."""
    link = sqlite3.connect(path)
    for statement in statements:
        done = link.execute(statement)
        assert done.rowcount != 0, statement
    link.commit()
    link.close()


def ask(
    log: AuditLog, request: str, minute: int, session: str = "ann", question: str = "open Sesame?"
) -> None:
    """Open a request and answer it."""
    now = START + timedelta(minutes=minute)
    parsed = {"entity": ("Sesame", 0.9)}
    about = {
        "session": session,
        "policy": POLICY,
        "fingerprint": "f",
        "models": {"encoder": "mini"},
    }
    log.opened(request, question, parsed=parsed, now=now, **about)  # type: ignore[arg-type]
    check = Check("similarity", "S2.6", 0.9, 0.7, 0.9 - 0.7, True, "similarity of the nearest hit")
    said = {
        "status": "ok",
        "answer": "Sesame",
        "options": [{"id": 1, "text": "Sesame"}],
        "confidence": 0.5,
    }
    log.decided(request, said, [check], {"total": 12.5}, now=now)


def fill_audit(log: AuditLog) -> None:
    """A few requests with their events, but for those of the default table."""
    for number in range(3):
        ask(log, f"r{number}", number)
    log.replied("r2", "page Sesame", now=LATER)
    ask(log, "r3", 60, "bob")
    log.forget(before=START + timedelta(minutes=1))
    with log.log.writing() as entries:
        drawn = {
            "sample": "s1",
            "seed": 0,
            "first": 1,
            "last": 99,
            "sizes": {"ok": 4},
            "drawn": ["r1"],
        }
        entries.add(SAMPLES, {"at": "2026-03-03T09:00:00+00:00", **drawn})
        told = {"request_id": "r1", "sample": "s1", "label": "ok"}
        entries.add(LABELS, {"at": "2026-03-03T09:00:00+00:00", **told})
    became = {
        "query": "open Sesame?",
        "documents": ["a.md"],
        "task": "",
        "arm": "hybrid",
        "depths": [],
        "answer": None,
    }
    log.evidence("r2", became, now=LATER)


def audit_at(path: Path) -> AuditLog:
    """An audit log whose clock stands still."""
    return AuditLog(path, clock=lambda: START)


def bandit_at(path: Path) -> Online:
    """A bandit over a log."""
    return Online(
        Bandit(floor=0.05), RewardWeights(), 8000.0, path, ("hybrid", "graph"), clock=lambda: START
    )


def choose(online: Online, request: str) -> None:
    """One choice with its reward and a thumb."""
    parts = {
        "margin": 0.5,
        "diversity": 0.2,
        "latency_ratio": 0.25,
        "cache_hit": 0.0,
        "consistency": 1.0,
    }
    online.choose(request, [True, True], dict.fromkeys(FEATURES, 0.5), question="open Sesame?")
    online.update(request, parts)
    online.thumbs(request, up=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a closed log of either kind."""
    folder = tmp_path_factory.mktemp("logs")
    log, online = audit_at(folder / "audit.sqlite"), bandit_at(folder / "bandit.sqlite")
    fill_audit(log)
    for number in range(4):
        choose(online, f"r{number}")
    log.close()
    online.close()
    return folder


@pytest.fixture
def audit(filled: Path, tmp_path: Path) -> Iterator[Log]:
    """Return an audit log."""
    path, names = (
        Path(copy(filled / "audit.sqlite", tmp_path)),
        (f"w{number}" for number in count()),
    )
    log = audit_at(path)
    yield Log(path, log.verify, lambda: ask(log, next(names), 99, "cat"), log.pack, log.close)
    log.close()


@pytest.fixture
def bandit(filled: Path, tmp_path: Path) -> Iterator[Log]:
    """Return a log of a bandit."""
    path, names = (
        Path(copy(filled / "bandit.sqlite", tmp_path)),
        (f"w{number}" for number in count()),
    )
    online = bandit_at(path)
    yield Log(path, online.verify, lambda: choose(online, next(names)), online.state, online.close)
    online.close()


class TestLink:
    """A link by hand."""

    def test_two_events(self, tmp_path: Path) -> None:
        """Digests are what the docstrings say, the second over the first."""
        log = Database(tmp_path / "x.sqlite", (NOTES,), salt=lambda: "aa")
        with log.writing() as entries:
            entries.add("notes", {"at": "t1", "who": "ann", "said": "yes", "n": 2})
            entries.add("notes", {"at": "t2", "who": "bob", "said": None})

        def sha(text: str) -> str:
            return sha256(text.encode()).hexdigest()

        content = sha("0::5:notes:at:s2:t1:n:f3:2.0:who:s3:ann:")
        seal = sha("2:aa:5:notes:at:s2:t1:n:f3:2.0:said:s3:yes:who:s3:ann:")
        first = sha(f":1:5:notes:{content}:{seal}")
        second = sha(
            f"{first}:2:5:notes:{sha('0::5:notes:at:s2:t2:who:s3:bob:')}:"
            f"{sha('2:aa:5:notes:at:s2:t2:who:s3:bob:')}"
        )
        assert log.verify() == (log.shown, 2, Head(2, second), SCHEMA, ())
        assert log.head() == Head(2, second)
        assert log.contains(Head(1, first))
        assert not log.contains(Head(1, second))

    def test_every_part_counts(self) -> None:
        """Another value, table, name, salt or link before is another digest.

        The number of a row is not in it.
        """
        row = {"seq": 1, "a": "x", "b": 1, "c": 1.5}
        others: list[tuple[str, dict[str, Any], str]] = [
            ("u", row, ""),
            ("t", row, "s"),
            ("t", row | {"a": "y"}, ""),
            ("t", row | {"b": 1.0}, ""),
            ("t", row | {"b": "1"}, ""),
            ("t", {"a": "x:b:i1:1:", "c": 1.5}, ""),
        ]
        digests = {row_digest("t", row), *(row_digest(*one) for one in others)}
        assert len(digests) == 1 + len(others)
        assert row_digest("t", row | {"seq": 9, "d": None}) == row_digest("t", row)
        links = [
            ("", 1, "t", "c", None),
            ("x", 1, "t", "c", None),
            ("", 2, "t", "c", None),
            ("", 1, "t", "c", "s"),
        ]
        assert len({link_digest(*one) for one in links}) == len(links)

    def test_a_salt_hides_a_text(self) -> None:
        """Two seals of a row differ by salts, not by content, which is that of any text."""
        one, two, other = (
            make_link("", 1, "notes", {"said": said}, {"said": None}, salt)
            for said, salt in (("yes", "a"), ("yes", "b"), ("no", "b"))
        )
        assert len({one.seal, two.seal, other.seal}) == 3
        assert one.content == two.content == other.content

    @pytest.mark.parametrize(
        "text", ["", "2", "x " + "ab" * 32, "2 " + "AB" * 32, "2 abcd", "² " + "ab" * 32]
    )
    def test_what_is_no_head(self, text: str) -> None:
        """Is refused."""
        with pytest.raises(ValueError, match="a head must be a number and 64 hex digits"):
            parse_head(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
CHECKS = st.fixed_dictionaries(
    {
        "gate": st.sampled_from(["coverage", "support", "gap"]),
        "text": st.sampled_from(["", "a", "ab"]),
    }
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "parsed": st.dictionaries(
        st.text(max_size=2), JSON | st.tuples(JSON, JSON).map(list), max_size=3
    )
    | JSON,
    "options": st.lists(st.dictionaries(st.sampled_from(["id", "text"]), JSON), max_size=2),
    "checks": st.lists(CHECKS, max_size=3),
    "depths": st.lists(st.dictionaries(st.sampled_from(["arm", "query"]), JSON), max_size=2),
    "answer": st.none() | st.dictionaries(st.sampled_from(["text", "cited"]), JSON),
    "reason": st.none() | st.sampled_from(["", "a", "abc", "x"]),
}


@pytest.mark.parametrize(
    "table", [table for table in EVENTS if table.without is not None], ids=lambda one: one.name
)
@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data())
def test_what_is_forgotten_stays_forgotten(table: EventTable, data: st.DataObject) -> None:
    """A row stripped of texts once or twice is the same to the byte, also after JSON and back."""
    assert table.without is not None
    form = row_form(table)
    kinds = {one.name: "json" if one.kind == "json" else "text" for one in table.columns}
    text = st.none() | st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3
    )
    of_kind = {one.name: JSON if one.kind == "json" else text for one in table.columns}
    of_kind |= {
        one.name: VALUES[one.name]
        for one in table.columns
        if one.name in VALUES and one.name != "answer"
    }
    if of_kind.get("answer") is JSON:  # of the evidence; a decision's is a text
        of_kind["answer"] = VALUES["answer"]
    row = {name: data.draw(values) for name, values in of_kind.items()}
    once = encode_row(table.without(decode_row(encode_row(row, kinds), form)), kinds)
    again = encode_row(table.without(decode_row(encode_row(row, kinds) | once, form)), kinds)
    assert once == again


AUDIT_DAMAGE = [
    ("DELETE FROM decisions WHERE request_id = 'r1'", r"decisions \d+: the row is missing"),
    ("DELETE FROM query_log WHERE request_id = 'r3'", r"query_log \d+: the row is missing"),
    ("UPDATE replies SET reply = 'no'", r"replies \d+: the row, or its salt, was altered"),
    (
        "UPDATE decisions SET ms = '{}' WHERE request_id = 'r0'",
        r"decisions \d+: the row was altered",
    ),
    (
        "UPDATE query_log SET question = 'who?' WHERE request_id = 'r0'",
        r"query_log 3: the row was altered",
    ),
    ("UPDATE labels SET label = 'refuse'", r"labels \d+: the row was altered"),
    ("DELETE FROM labels", r"labels \d+: the row is missing"),
    ("UPDATE samples SET drawn = '[]'", r"samples \d+: the row was altered"),
    ("UPDATE policies SET body = '{}'", r"policies 1: the row was altered"),
    (
        "INSERT INTO replies VALUES (99, 't', 'r1', 'yes')",
        r"replies 99: the chain has no such event",
    ),
    ("INSERT INTO replies VALUES (3, 't', 'r1', 'yes')", r"replies 3: the chain has no such event"),
    (
        "UPDATE audit_chain SET content = digest WHERE seq = 5",
        r"audit_chain 5: the chain's entry, or the one before it",
    ),
    (
        "UPDATE audit_chain SET salt = 'x' WHERE seq = (SELECT seq FROM replies)",
        r"replies \d+: the row, or its salt",
    ),
    (
        "UPDATE audit_chain SET salt = NULL WHERE seq = (SELECT seq FROM replies)",
        r"replies \d+: the row was altered",
    ),
    (
        "DELETE FROM audit_chain WHERE seq = 5",
        r"audit_chain 6: the chain has no entry for event 5 before it",
    ),
    (
        "UPDATE audit_numbers SET value = 7 WHERE name = 'event'",
        r"audit_numbers: the counter says event 7",
    ),
    (
        "UPDATE audit_numbers SET digest = 'x' WHERE name = 'event'",
        r"audit_numbers: the counter says event \d+ with",
    ),
    ("DELETE FROM audit_numbers WHERE name = 'event'", r"audit_numbers: the counter is missing"),
    (
        "DELETE FROM audit_numbers WHERE name = 'replies'",
        r"audit_numbers: it does not name the table replies",
    ),
    ("DROP TABLE audit_numbers", r"audit_numbers: the table is missing"),
    *(
        (f"DROP TABLE {table.name}", rf"{table.name}: the table is missing")
        for table in REQUEST_TABLES
    ),
    ("DROP TABLE audit_chain", r"audit_chain: the table is missing"),
]
BANDIT_DAMAGE = [
    (
        "DELETE FROM bandit_rewards WHERE request_id = 'r1'",
        r"bandit_rewards \d+: the row is missing",
    ),
    (
        "UPDATE bandit_rewards SET reward = 1 WHERE request_id = 'r1'",
        r"bandit_rewards \d+: the row was altered",
    ),
    (
        "UPDATE bandit_choices SET propensity = 0.125 WHERE round = 2",
        r"bandit_choices \d+: the row was altered",
    ),
    (
        "INSERT INTO bandit_thumbs VALUES (99, 't', 'r1', 0, NULL, 1)",
        r"bandit_thumbs 99: the chain has no such event",
    ),
    ("UPDATE bandit_snapshots SET sums = '{}'", r"bandit_snapshots: the snapshot of \w+ differs"),
    ("UPDATE bandit_snapshots SET seq = seq - 2", r"bandit_snapshots: the snapshot of \w+ differs"),
    (
        "UPDATE bandit_snapshots SET seq = 999",
        r"bandit_snapshots: the snapshot of \w+ is of event 999, past the last",
    ),
    (
        "UPDATE bandit_snapshots SET setup = 'other'",
        r"bandit_snapshots: the setup other of a snapshot is not in the log",
    ),
    (
        "UPDATE bandit_setups SET body = replace(body, '0.05', '0.06')",
        r"bandit_setups 1: the row was altered",
    ),
    (
        "UPDATE audit_chain SET of = 'bandit_thumbs' WHERE seq = 2",
        r"audit_chain 2: the chain's entry",
    ),
    (
        "UPDATE audit_numbers SET value = 7 WHERE name = 'event'",
        r"audit_numbers: the counter says event 7",
    ),
    *(
        (f"DROP TABLE {table.name}", rf"{table.name}: the table is missing")
        for table in CHOICE_TABLES
    ),
]


class TestDamage:
    """Each kind of damage is named; the intact log has no finding."""

    def test_an_intact_log(self, audit: Log, bandit: Log) -> None:
        """Nothing is found, before and after more is written."""
        for log in (audit, bandit):
            assert log.findings() == []
            log.write()
            said = log.verify()
            assert (said.findings, said.intact, said.rows) == ((), True, said.head.seq)

    @pytest.mark.parametrize(("statement", "told"), AUDIT_DAMAGE)
    def test_the_audit_log(self, audit: Log, statement: str, told: str) -> None:
        """By table, number and what is wrong."""
        audit.edit(statement)
        found = audit.verify()
        assert not found.intact
        assert any(matches(told, str(one)) for one in found.findings), found.findings

    @pytest.mark.parametrize(("statement", "told"), BANDIT_DAMAGE)
    def test_the_bandits_log(self, bandit: Log, statement: str, told: str) -> None:
        """By table, number and what is wrong."""
        bandit.edit(statement)
        found = bandit.verify()
        assert not found.intact
        assert any(matches(told, str(one)) for one in found.findings), found.findings

    def test_a_page_of_a_table_without_rows(self, audit: Log) -> None:
        """Nobody reads it before its first row; the file as a whole is checked."""
        audit.close()
        with closing(sqlite3.connect(audit.path)) as link:
            link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = link.execute(
                "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            empty = [
                page
                for name, page in pages
                if not link.execute(f'SELECT 1 FROM "{name}"').fetchone()
            ]
            (size,) = link.execute("PRAGMA page_size").fetchone()
        with audit.path.open("r+b") as file:
            file.seek((empty[0] - 1) * size)
            file.write(bytes(range(1, 65)))
        assert [finding.partition(":")[0] for finding in audit.findings()] == ["file"]

    @pytest.mark.parametrize(
        ("table", "one", "other"),
        [("decisions", "r1", "r2"), ("bandit_rewards", "r1", "r3"), ("query_log", "r1", "r2")],
    )
    def test_two_rows_change_places(
        self, audit: Log, bandit: Log, table: str, one: str, other: str
    ) -> None:
        """Each is named with the number that it had."""
        log = bandit if table.startswith("bandit") else audit
        link = sqlite3.connect(log.path)
        first, second = (
            link.execute(f"SELECT seq FROM {table} WHERE request_id = ?", (request,)).fetchone()[0]
            for request in (one, other)
        )
        link.close()
        changes = ((-1, first), (first, second), (second, -1))
        log.edit(*(f"UPDATE {table} SET seq = {new} WHERE seq = {old}" for new, old in changes))
        said = log.findings()
        assert f"{table} {first}: the order was changed: the row is that of event {second}" in said
        assert f"{table} {second}: the order was changed: the row is that of event {first}" in said

    def test_one_damage_is_one_finding(self, audit: Log) -> None:
        """What follows a damaged link is not blamed."""
        audit.edit("UPDATE audit_chain SET content = digest WHERE seq = 5")
        assert len(audit.findings()) <= 2
        audit.edit("UPDATE replies SET reply = 'no'")
        assert len([one for one in audit.findings() if one.startswith("replies")]) == 1

    @pytest.mark.parametrize("kind", ["audit", "bandit"])
    def test_a_log_whose_table_was_dropped_is_refused(
        self, audit: Log, bandit: Log, kind: str
    ) -> None:
        """To be read and to be written, by name; nothing is made in its place."""
        log, tables = (audit, REQUEST_TABLES) if kind == "audit" else (bandit, CHOICE_TABLES)
        dropped = tables[-1].name
        log.edit(f"DROP TABLE {dropped}")
        for use in (log.read, log.write):
            with pytest.raises(
                ValueError, match=f"a log must have every table .* got no {dropped}; restore a copy"
            ):
                use()
        log.close()
        link = sqlite3.connect(log.path)
        assert dropped not in {name for (name,) in link.execute("SELECT name FROM sqlite_master")}
        link.close()

    def test_all_tables_of_a_log_are_dropped(self, audit: Log) -> None:
        """The chain still names them, also where the record of them was deleted."""
        names = [table.name for table in REQUEST_TABLES]
        audit.edit(
            *(f"DROP TABLE {name}" for name in names), "DELETE FROM audit_numbers WHERE value = 1"
        )
        assert "query_log: the table is missing" in audit.findings()
        with pytest.raises(ValueError, match="a log must have every table that was made with it"):
            audit.write()

    def test_the_end_is_cut_off(self, audit: Log) -> None:
        """With links and counter nothing tells it but a head that was kept."""
        log = audit_at(audit.path)
        before = log.log.head()
        log.replied("r3", "thanks")
        kept = log.log.head()
        assert kept is not None
        assert before is not None
        log.close()
        edited(
            audit.path,
            f"DELETE FROM replies WHERE seq = {kept.seq}",
            f"DELETE FROM audit_chain WHERE seq = {kept.seq}",
            f"UPDATE audit_numbers SET value = {before.seq}, digest = '{before.digest}' WHERE "
            "name = 'event'",
        )
        assert log.verify().intact
        assert log.verify(before).intact
        (found,) = log.verify(before, kept).findings
        assert str(found) == f"audit_chain {kept.seq}: the chain does not contain the head"
        log.close()


def matches(pattern: str, text: str) -> bool:
    """Whether a text begins by a pattern."""
    import re

    return re.match(pattern, text) is not None


class TestForgetting:
    """Texts go, the proof stays."""

    def test_nothing_is_missed(self, tmp_path: Path) -> None:
        """After each forgetting: log intact, chain through the head of before, its salts gone."""
        log = audit_at(tmp_path / "audit.sqlite")
        fill_audit(log)
        before = log.log.head()
        assert before is not None
        assert log.forget(before=START + timedelta(days=1)) == 3
        assert log.verify(before).intact
        assert b"Sesame" not in (tmp_path / "audit.sqlite").read_bytes()
        link = sqlite3.connect(tmp_path / "audit.sqlite")
        assert (
            link.execute("SELECT count(*) FROM audit_chain WHERE seal IS NOT NULL").fetchone()[0]
            >= 10
        )
        assert link.execute(
            "SELECT count(*) FROM audit_chain WHERE salt IS NOT NULL"
        ).fetchone() == (0,)
        link.close()
        log.close()

    def test_numbers_of_a_forgotten_row_cannot_be_forged(self, audit: Log) -> None:
        """Its first request is forgotten.

        Decision, margins and confidences still stand under the chain.
        """
        for statement in (
            "UPDATE decisions SET confidence = 0.75 WHERE request_id = 'r0'",
            "UPDATE decisions SET checks = replace(checks, '0.9', '0.8') WHERE request_id = 'r0'",
            "UPDATE decisions SET status = 'refuse' WHERE request_id = 'r0'",
            "UPDATE decisions SET answer = 'No.' WHERE request_id = 'r0'",
        ):
            audit.edit(statement)
            assert any(one.endswith("the row was altered") for one in audit.findings()), statement

    def test_texts_that_nobody_forgot(self, audit: Log) -> None:
        """Taken out by hand as forgetting takes them, they are missed.

        No event of forgetting covers the row.
        """
        audit.edit(
            "UPDATE replies SET reply = NULL",
            "UPDATE replies SET at = '2026-03-02T09:30:00.000000+00:00'",
            "UPDATE audit_chain SET salt = NULL WHERE seq = (SELECT seq FROM replies)",
        )
        assert any("no event of forgetting covers it" in one for one in audit.findings())

    @pytest.mark.parametrize("query", ["hash", "none"])
    def test_redaction(self, tmp_path: Path, query: Any) -> None:
        """What was never kept is not missed either, before and after forgetting the rest."""
        log = AuditLog(tmp_path / "audit.sqlite", query=query, clock=lambda: START)
        fill_audit(log)
        assert log.verify().intact
        log.forget(before=START + timedelta(days=1))
        assert log.verify().intact
        log.close()


def first_version(path: Path) -> None:
    """Turn a log into one of version 1.

    The same tables and rows, numbers without digests, no chain.
    """
    link = sqlite3.connect(path)
    ours = "name NOT IN ('audit_chain', 'audit_numbers') AND sql IS NOT NULL"
    made = link.execute(
        f"SELECT type, name, sql FROM sqlite_master WHERE {ours} ORDER BY type DESC"
    ).fetchall()
    (last,) = link.execute("SELECT value FROM audit_numbers WHERE name = 'event'").fetchone()
    old = path.with_suffix(".old")
    link.execute("ATTACH ? AS old", (str(old),))
    for kind, name, text in made:
        link.execute(text.replace(f"CREATE {kind.upper()} ", f"CREATE {kind.upper()} old.", 1))
        if kind == "table":
            link.execute(f"INSERT INTO old.{name} SELECT * FROM main.{name}")
    link.execute(
        "CREATE TABLE old.audit_numbers (name VARCHAR(32) NOT NULL, value BIGINT, PRIMARY KEY "
        "(name))"
    )
    link.execute("INSERT INTO old.audit_numbers VALUES ('schema', 1), ('event', ?)", (last,))
    link.commit()
    link.close()
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    old.rename(path)


def schema(path: Path) -> set[tuple[str, str]]:
    """Tables and indexes of a file as they were made."""
    link = sqlite3.connect(path)
    made = {(name, str(text)) for name, text in link.execute("SELECT name, sql FROM sqlite_master")}
    link.close()
    return made


class TestVersions:
    """Logs of before."""

    @pytest.mark.parametrize("kind", ["audit", "bandit"])
    def test_a_log_of_version_1(self, audit: Log, bandit: Log, kind: str) -> None:
        """Is read as it is, reported not yet chained, and chained by the first write, in order."""
        log = audit if kind == "audit" else bandit
        rows = log.verify().rows
        first_version(log.path)
        before = schema(log.path)
        log.read()
        said = log.verify()
        assert [str(one)[:39] for one in said.findings] == [
            "audit_chain: not chained yet: version 1"
        ]
        assert (said.rows, said.version, said.head) == (rows, 1, None)
        assert schema(log.path) == before
        log.write()
        assert log.findings() == []
        assert log.verify().rows > rows
        log.edit("UPDATE audit_chain SET content = digest WHERE seq = 3")
        assert log.findings() != []

    def test_a_log_of_version_2(self, audit: Log, bandit: Log) -> None:
        """Is read without the tables it lacks, is intact, and gets them with the first write."""
        new = [table.name for table in REQUEST_TABLES if table.since == SCHEMA]
        assert {"samples", "labels"} <= set(new)
        gone = [f"DELETE FROM audit_numbers WHERE name = '{name}'" for name in new]
        older = (
            *(f"DROP TABLE {name}" for name in new),
            *gone,
            "UPDATE audit_numbers SET value = 2 WHERE name = ",
        )
        last = "(SELECT seq FROM audit_chain WHERE of = 'samples')"
        ended = f"(SELECT digest FROM audit_chain WHERE seq = {last} - 1)"
        cut = (
            f"UPDATE audit_numbers SET value = {last} - 1, digest = {ended} WHERE name = 'event'",
            f"DELETE FROM audit_chain WHERE seq >= {last}",
        )
        audit.edit(*cut, *older[:-1], f"{older[-1]}'schema'")
        bandit.edit(f"{older[-1]}'schema'")
        before = schema(audit.path)
        assert len(live_rates(audit_at(audit.path))) > 0
        assert (audit.verify().version, audit.findings(), schema(audit.path)) == (2, [], before)
        for log in (audit, bandit):
            log.write()
            assert (log.verify().version, log.findings()) == (SCHEMA, [])
        assert set(new) <= {name for name, _ in schema(audit.path)}

    def test_a_row_that_was_lost_before(self, audit: Log) -> None:
        """Is known by the gap that it left, and stays named."""
        first_version(audit.path)
        edited(
            audit.path,
            "DELETE FROM decisions WHERE seq = (SELECT max(seq) FROM decisions WHERE request_id = "
            "'r2')",
        )
        audit.write()
        audit.write()
        (found,) = audit.findings()
        assert "the event was gone before the chain began" in found

    def test_a_table_that_was_lost_before(self, audit: Log) -> None:
        """Is refused, as in any log."""
        first_version(audit.path)
        edited(audit.path, "DROP TABLE replies")
        with pytest.raises(ValueError, match="got no replies"):
            audit.write()

    def test_a_request_is_explained_from_a_log_of_version_1(self, audit: Log) -> None:
        """Nothing is held against a chain that is not there, and the explanation says so."""
        first_version(audit.path)
        said = explain_request("r1", audit_at(audit.path))
        assert said.damage is None
        assert "verified      not yet: a log of version 1" in str(said)

    def test_both_logs_in_one_database(self, tmp_path: Path) -> None:
        """One of version 1 too is chained whole by the first writer, and either verifies it all."""
        path = tmp_path / "both.sqlite"
        log, online = audit_at(path), bandit_at(path)
        fill_audit(log)
        choose(online, "b0")
        assert log.verify().findings == online.verify().findings == ()
        log.close()
        online.close()
        first_version(path)
        choose(online, "b1")
        ask(log, "r9", 99)
        said = log.verify()
        assert (said.findings, said.rows) == ((), said.head.seq if said.head else 0)
        log.close()
        edited(path, "DELETE FROM bandit_thumbs", "DROP TABLE bandit_rewards")
        assert any(
            str(one).startswith("bandit_rewards: the table is missing")
            for one in log.verify().findings
        )
        with pytest.raises(ValueError, match="got no bandit_rewards"):
            bandit_at(path).state()
        log.close()


class TestReading:
    """Nothing is made where nothing is written."""

    def test_a_log_that_has_not_begun(self, tmp_path: Path) -> None:
        """Is read as an empty one, and is not there afterwards."""
        log, online = audit_at(tmp_path / "a.sqlite"), bandit_at(tmp_path / "b.sqlite")
        assert (log.settle(now=START), log.pack()) == (0, None)
        assert (int(online.state().t), len(online.frame()), online.asked_before("x")) == (
            0,
            0,
            None,
        )
        assert (log.verify().intact, online.verify().rows, log.log.head()) == (True, 0, None)
        assert list(tmp_path.iterdir()) == []
        choose(online, "r1")
        assert int(online.state().t) == 1
        online.close()

    def test_a_log_beside_another(self, audit: Log) -> None:
        """The bandit's, read from a database that holds the audit's alone, gets no table."""
        before = schema(audit.path)
        online = bandit_at(audit.path)
        assert int(online.state().t) == 0
        online.close()
        assert schema(audit.path) == before
        missing = Database(audit.path, CHOICE_TABLES, create=False)
        with pytest.raises(ValueError, match="a log must hold events"):
            missing.reading().__enter__()
        assert schema(audit.path) == before


class TestRows:
    """Rows that were altered beyond reading end in one line."""

    @pytest.mark.parametrize(
        ("statement", "use"),
        [
            ("UPDATE query_log SET models = '7'", lambda log: log.pack()),
            ("UPDATE query_log SET documents = '7'", lambda log: explain_request("r3", log)),
            (
                "UPDATE decisions SET checks = '7'",
                lambda log: log.forget(before=START + timedelta(days=1)),
            ),
            ("UPDATE decisions SET confidence = 'x'", lambda log: log.export("out")),
        ],
    )
    def test_the_audit_log(
        self,
        audit: Log,
        monkeypatch: pytest.MonkeyPatch,
        statement: str,
        use: Callable[[AuditLog], object],
    ) -> None:
        """Rule, value, remedy."""
        monkeypatch.chdir(audit.path.parent)
        audit.edit(statement)
        log = audit_at(audit.path)
        with pytest.raises(
            ValueError, match=r"rows of a log must be as they were written, got .*audit --verify"
        ) as told:
            use(log)
        assert "\n" not in str(told.value)
        log.close()

    @pytest.mark.parametrize(
        ("statement", "use"),
        [
            ("UPDATE bandit_snapshots SET state = '{}'", lambda online: online.state()),
            ("UPDATE bandit_snapshots SET sums = '[]'", lambda online: choose(online, "x")),
            (
                'UPDATE bandit_snapshots SET sums = \'{"n": [1], "total": [1]}\'',
                lambda online: choose(online, "x"),
            ),
            (
                "UPDATE bandit_snapshots SET sums = replace(sums, '.', '9e999 ,')",
                lambda online: online.state(),
            ),
            ("UPDATE bandit_snapshots SET seq = 99", lambda online: choose(online, "x")),
            ("UPDATE bandit_snapshots SET seq = 'x'", lambda online: choose(online, "x")),
            ("DELETE FROM bandit_choices", lambda online: online.rebuild()),
            ("UPDATE bandit_choices SET arms = '7'", lambda online: online.frame()),
            (
                'UPDATE bandit_rewards SET components = \'{"margin": "x"}\'',
                lambda online: online.rebuild(),
            ),
            ("UPDATE bandit_rewards SET components = '7'", lambda online: online.frame()),
            ("UPDATE bandit_choices SET mask = '7'", lambda online: online.frame()),
        ],
    )
    def test_the_bandits_log(
        self, bandit: Log, statement: str, use: Callable[[Online], object]
    ) -> None:
        """Rule, value, remedy; a snapshot that is none is not trusted."""
        bandit.edit(statement)
        online = bandit_at(bandit.path)
        with pytest.raises(ValueError, match="must be") as told:
            use(online)
        assert "\n" not in str(told.value)
        online.close()

    def test_a_snapshot_of_another_learner(self, bandit: Log, tmp_path: Path) -> None:
        """Its own hash stands for it, its shape does not fit.

        It is refused, and deleting its row is the remedy.
        """
        other = Online(
            Bandit(floor=0.05), RewardWeights(), 8000.0, tmp_path / "o.sqlite", ("a", "b", "c")
        )
        state = dumps(other.state(), other.setup.bandit)
        bandit.edit(f"UPDATE bandit_snapshots SET state = '{state}'")
        with pytest.raises(
            ValueError, match=r"a snapshot must be a finite state of the setup.*delete its row"
        ):
            bandit.read()
        bandit.edit("DELETE FROM bandit_snapshots")
        bandit.write()
        assert bandit.findings() == []


# Nobody's: whether a repeated question came in time, and the digest beside numbers that are not the
# counter.
NOBODYS = {("open_applications", "rephrased"), ("audit_numbers", "digest")}


@pytest.mark.parametrize("kind", ["audit", "bandit"])
def test_a_hundred_cells_are_altered(audit: Log, bandit: Log, kind: str) -> None:
    """Whichever cell of whichever table.

    A verification names it, or the log is refused as a whole.
    """
    check_altered_cells(audit if kind == "audit" else bandit)


def check_altered_cells(log: Log) -> None:
    """Alter a hundred cells, one after the other, and see each noticed."""
    database = Database(log.path, (*CHOICE_TABLES, *REQUEST_TABLES), create=False)
    rng = np.random.default_rng(7)
    link = sqlite3.connect(log.path, isolation_level=None)
    tables = [
        name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    filled = [name for name in tables if link.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
    assert len(filled) >= 6
    for number in range(100):
        table = filled[number % len(filled)]
        columns = [row[1] for row in link.execute(f"PRAGMA table_info({table})")]
        column = columns[int(rng.integers(len(columns)))]
        rows = link.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        place, value = rows[int(rng.integers(len(rows)))]
        new = altered(value, rng)
        link.execute("BEGIN")
        try:
            link.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, place))
            after = link.execute(
                f"SELECT {column} FROM {table} WHERE rowid = ?", (place,)
            ).fetchone()
        except sqlite3.IntegrityError:
            link.execute("ROLLBACK")
            continue
        if after is not None and after[0] == value and type(after[0]) is type(value):
            link.execute("ROLLBACK")
            continue
        link.execute("COMMIT")
        try:
            noticed = not log.verify().intact
        except ValueError as error:
            noticed = "a log must" in str(error)
        assert noticed or (table, column) in NOBODYS, (table, column, value, new)
        link.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, place))
    assert log.findings() == []
    link.close()
    database.close()


def altered(value: Any, rng: np.random.Generator) -> Any:
    """Another value of a cell."""
    if isinstance(value, str) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        return value[:place] + chr(33 + int(rng.integers(90))) + value[place + 1 :]
    if isinstance(value, int | float) and rng.random() < 0.8:
        return value + int(rng.integers(1, 5))
    return [None, "x", 7, b"\x01"][int(rng.integers(4))]


class TestExplanation:
    """The events of a request are held against the chain."""

    @pytest.mark.parametrize(
        ("statement", "told"),
        [
            ("UPDATE replies SET reply = 'no'", "replies"),
            ("DELETE FROM replies", "whether it was of this request, nothing tells"),
            (
                "INSERT INTO replies VALUES (99, 't', 'r2', 'yes')",
                "replies 99: the chain has no such event",
            ),
            ("UPDATE decisions SET at = '2027' WHERE request_id = 'r2'", "decisions"),
            (
                "UPDATE audit_chain SET digest = content WHERE seq = (SELECT seq FROM replies)",
                "replies",
            ),
        ],
    )
    def test_what_follows_from_nothing(self, audit: Log, statement: str, told: str) -> None:
        """Replies, proposals and moments: the chain tells that they were edited."""
        log = audit_at(audit.path)
        said = explain_request("r2", log)
        assert (said.damage, said.as_dict()["damage"], said.events) == (
            (),
            [],
            said.as_dict()["events"],
        )
        assert f"verified      yes: its {said.events} events are as they were written" in str(said)
        log.close()
        audit.edit(statement)
        said = explain_request("r2", log)
        assert any(told in one for one in said.damage or ()), said.damage
        assert "verified      NO\ndamage" in str(said)
        log.close()

    def test_another_requests_damage(self, audit: Log) -> None:
        """Is none of this one's."""
        audit.edit("UPDATE decisions SET answer = 'x' WHERE request_id = 'r1'")
        assert explain_request("r3", audit_at(audit.path)).damage == ()


def run(*words: object, code: int = 0) -> Result:
    """Result of a command that ends with a code."""
    said = commands.run(*words)
    assert said.exit_code == code, said.output
    return said


class TestCommand:
    """`raglab audit --verify | --head`, and `explain`."""

    def test_verify(self, audit: Log, bandit: Log) -> None:
        """Both logs of an index, a line each.

        Every finding on a line of its own, and exit code 5.
        """
        folder = str(audit.path.parent)
        lines = run("audit", "--log", folder, "--verify").output.splitlines()
        assert [line.partition(": ")[0] for line in lines] == [str(audit.path), str(bandit.path)]
        assert all(", intact, head " in line for line in lines)
        bandit.edit("UPDATE bandit_rewards SET reward = 1 WHERE request_id = 'r1'")
        lines = run("audit", "--log", audit.path, "--verify", code=5).output.splitlines()
        assert next(line for line in lines if line.startswith("bandit_rewards ")).endswith(
            "the row was altered"
        )
        assert "1 finding, head" in lines[1]
        run("audit", "--log", bandit.path, "--verify", "--json", code=5)

    @pytest.mark.usefixtures("bandit")
    def test_head(self, audit: Log) -> None:
        """What is printed is what --head-was takes; a head of nowhere is told."""
        first, second = run("audit", "--log", audit.path.parent, "--head").output.splitlines()
        assert first.endswith(str(audit.path))
        more = ("--head-was", first, "--head-was", second)
        said = run("audit", "--log", audit.path.parent, "--verify", *more).output
        assert said.count(f": in {audit.path.parent}") == 2
        other = f"1 {'ab' * 32}"
        said = run("audit", "--log", audit.path, "--verify", "--head-was", other, code=5).output
        assert f"head {other}: no log contains it" in said
        both = run("audit", "--log", audit.path, "--verify", "--forget", "old", code=1).output
        assert "must stand without --export and --forget" in both
        assert (
            "a head must be a number"
            in run("audit", "--log", audit.path, "--head-was", "x", code=1).output
        )

    def test_a_log_that_is_not_there(self, tmp_path: Path) -> None:
        """Is an error, and is not made."""
        assert "a log must be there" in run("audit", "--log", tmp_path, "--verify", code=1).output
        assert list(tmp_path.iterdir()) == []

    def test_explain(self, audit: Log) -> None:
        """Warns and ends with 5 where all adds up and the chain says no."""
        audit.edit("UPDATE replies SET reply = 'no'")
        said = run("explain", "r2", "--log", audit.path, code=5)
        assert "warning: the log was damaged or altered" in said.stderr
        assert "damage        replies" in said.stdout
