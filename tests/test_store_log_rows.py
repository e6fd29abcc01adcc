"""Rows of a log: what is forgotten, what was dropped, what was altered beyond reading."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from shutil import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_samples import START, ask, audit_at, bandit_at, choose, edited, fill_audit
from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog, blank_texts
from raglab.bandit import Bandit, dumps
from raglab.live.online_bandit import Online
from raglab.reward import RewardWeights
from raglab.store.database import Database
from raglab.store.log_tables import CHOICE_TABLES, EVENTS, REQUEST_TABLES

REFUSED = r"rows of a log must be as they were written, got .*restore a copy"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
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
def audit(filled, tmp_path):
    """Return the file of an audit log."""
    return Path(copy(filled / "audit.sqlite", tmp_path))


@pytest.fixture
def bandit(filled, tmp_path):
    """Return the file of a bandit's log."""
    return Path(copy(filled / "bandit.sqlite", tmp_path))


def known_tables(path):
    """Tables of a file."""
    with closing(sqlite3.connect(path)) as link:
        return {name for (name,) in link.execute("SELECT name FROM sqlite_master")}


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
VALUES = {
    "parsed": st.dictionaries(
        st.text(max_size=2), JSON | st.tuples(JSON, JSON).map(list), max_size=3
    )
    | JSON,
    "options": st.lists(st.dictionaries(st.sampled_from(["id", "text"]), JSON), max_size=2),
    "checks": st.lists(CHECKS, max_size=3),
    "depths": st.lists(st.dictionaries(st.sampled_from(["arm", "query"]), JSON), max_size=2),
    "reason": st.none() | st.sampled_from(["", "a", "abc", "x"]),
}
ANSWER = st.none() | st.dictionaries(st.sampled_from(["text", "cited"]), JSON)


class TestForgetting:
    """Texts go, numbers stay."""

    @pytest.mark.parametrize(
        "table", [table for table in EVENTS if table.without is not None], ids=lambda one: one.name
    )
    @settings(deadline=None, derandomize=True, max_examples=15)
    @given(data=st.data())
    def test_what_is_forgotten_stays_forgotten(self, table, data):
        """A row without its texts, once or twice, is the same, also after JSON and back."""
        assert table.without is not None
        row = {}
        for column in table.columns:
            plain = ANSWER if column.name == "answer" else JSON
            values = plain if column.kind == "json" else st.none() | st.text(max_size=3)
            row[column.name] = data.draw(VALUES.get(column.name, values))
        once = json.loads(json.dumps(table.without(row)))
        assert json.loads(json.dumps(table.without(row | once))) == once

    @pytest.mark.parametrize("query", ["text", "hash", "none"])
    def test_nothing_is_missed(self, tmp_path, query):
        """No text is left, and every request is explained as before."""
        log = AuditLog(tmp_path / "audit.sqlite", query=query, clock=lambda: START)
        fill_audit(log)
        before = [explain_request(f"r{number}", log) for number in range(4)]
        assert log.forget(before=START + timedelta(days=1)) == 3
        for number, explanation in enumerate(before):
            after = explain_request(f"r{number}", log)
            assert after.rebuilt
            assert after.frame().equals(explanation.frame())
        assert b"Sesame" not in (tmp_path / "audit.sqlite").read_bytes()
        log.close()

    def test_it_is_gone_before_the_file_is_rewritten(self, audit):
        """A process that is killed between blanking and rewriting leaves no text in the pages."""
        assert b"Sesame" in audit.read_bytes()
        log = audit_at(audit)
        with log.log.writing() as entries:
            assert blank_texts(entries, (START + timedelta(days=1)).isoformat()) == 3
        log.close()
        assert b"Sesame" not in audit.read_bytes()


class TestOpening:
    """Nothing is made where nothing is written, or where something was taken away."""

    @pytest.mark.parametrize("kind", ["audit", "bandit"])
    def test_a_log_whose_table_was_dropped_is_refused(self, audit, bandit, kind):
        """To be read and to be written, by name; nothing is made in its place."""
        path, dropped = (
            (audit, REQUEST_TABLES[-1].name)
            if kind == "audit"
            else (bandit, CHOICE_TABLES[-1].name)
        )
        edited(path, f"DROP TABLE {dropped}")
        uses = (
            (audit_at(path).pack, lambda: ask(audit_at(path), "w", 99))
            if kind == "audit"
            else (bandit_at(path).state, lambda: choose(bandit_at(path), "w"))
        )
        for use in uses:
            with pytest.raises(
                ValueError,
                match=f"a log must have all its tables, got no {dropped}; restore a copy",
            ):
                use()
        assert dropped not in known_tables(path)

    @pytest.mark.parametrize("counter", ["", "DROP TABLE audit_numbers"])
    def test_all_tables_of_a_log_are_dropped(self, audit, counter):
        """The table of numbers still names them; without that table the others are no log."""
        names = [table.name for table in REQUEST_TABLES]
        edited(audit, *([counter] if counter else [f"DROP TABLE {name}" for name in names]))
        before = known_tables(audit)
        with pytest.raises(ValueError, match="a log must have all its tables"):
            ask(audit_at(audit), "w", 99)
        assert known_tables(audit) == before

    def test_a_log_that_has_not_begun(self, tmp_path):
        """Is read as an empty one, and is not there afterwards."""
        log, online = audit_at(tmp_path / "a.sqlite"), bandit_at(tmp_path / "b.sqlite")
        assert (log.settle(now=START), log.pack()) == (0, None)
        assert (int(online.state().t), len(online.frame()), online.asked_before("x")) == (
            0,
            0,
            None,
        )
        assert "none yet" in log._repr_html_()
        assert list(tmp_path.iterdir()) == []
        choose(online, "r1")
        assert int(online.state().t) == 1
        online.close()

    def test_a_log_beside_another(self, audit):
        """The bandit's, read from a database that holds the audit's alone, gets no table."""
        before = known_tables(audit)
        online = bandit_at(audit)
        assert int(online.state().t) == 0
        online.close()
        missing = Database(audit, CHOICE_TABLES, create=False)
        with pytest.raises(ValueError, match="a log must hold events"):
            missing.reading().__enter__()
        assert known_tables(audit) == before


class TestAlteredRows:
    """Rows that were altered beyond reading end in one line."""

    @pytest.mark.parametrize(
        ("statement", "use"),
        [
            ("UPDATE query_log SET models = '7'", lambda log: log.pack()),
            ("UPDATE query_log SET session = x'79'", lambda log: explain_request("r3", log)),
            (
                "UPDATE decisions SET checks = '7'",
                lambda log: log.forget(before=START + timedelta(days=1)),
            ),
            ("UPDATE decisions SET confidence = 'x'", lambda log: log.export("out")),
        ],
    )
    def test_the_audit_log(
        self,
        audit,
        monkeypatch,
        statement,
        use,
    ):
        """Rule, value, remedy."""
        monkeypatch.chdir(audit.parent)
        edited(audit, statement)
        log = audit_at(audit)
        with pytest.raises(ValueError, match=REFUSED) as told:
            use(log)
        assert "\n" not in str(told.value)
        log.close()

    @pytest.mark.parametrize(
        ("statement", "use"),
        [
            ("UPDATE bandit_snapshots SET state = '{}'", lambda online: online.state()),
            (
                'UPDATE bandit_snapshots SET sums = \'{"n": [1], "total": [1]}\'',
                lambda online: choose(online, "x"),
            ),
            (
                "UPDATE bandit_snapshots SET sums = replace(sums, '.', '9e999 ,')",
                lambda online: online.state(),
            ),
            ("UPDATE bandit_snapshots SET seq = 'x'", lambda online: choose(online, "x")),
            ("DELETE FROM bandit_choices", lambda online: online.rebuild()),
            ("UPDATE bandit_choices SET arms = '7'", lambda online: online.frame()),
            ("UPDATE bandit_rewards SET components = '7'", lambda online: online.frame()),
        ],
    )
    def test_the_bandits_log(self, bandit, statement, use):
        """Rule, value, remedy; a snapshot that is none is not trusted."""
        edited(bandit, statement)
        online = bandit_at(bandit)
        with pytest.raises(ValueError, match="must be") as told:
            use(online)
        assert "\n" not in str(told.value)
        online.close()

    def test_a_snapshot_of_another_learner(self, bandit, tmp_path):
        """Its own hash stands for it, its shape does not fit.

        It is refused, and deleting its row is the remedy.
        """
        other = Online(
            Bandit(floor=0.05), RewardWeights(), 8000.0, tmp_path / "o.sqlite", ("a", "b", "c")
        )
        state = dumps(other.state(), other.setup.bandit)
        edited(bandit, f"UPDATE bandit_snapshots SET state = '{state}'")
        with pytest.raises(
            ValueError, match=r"a snapshot must be a finite state of the setup.*delete the row"
        ):
            bandit_at(bandit).state()
        edited(bandit, "DELETE FROM bandit_snapshots")
        online = bandit_at(bandit)
        choose(online, "x")
        assert online.state().n.tolist() == online.rebuild().n.tolist()
