"""Logs of older versions: read as they are, brought to this one by the first write."""

from __future__ import annotations

import warnings
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from log_samples import START, ask, audit_at, bandit_at, choose, edited, old_log
from raglab.audit.explanation import explain_request
from raglab.audit.live_rates import live_rates
from raglab.store.database import LOG_SCHEMA
from raglab.store.log_tables import CHOICE_TABLES, REQUEST_TABLES

SQLITE = pytest.mark.parametrize("places", ["sqlite"], indirect=True)  # what is told of files
EVERY = {table.name for table in (*REQUEST_TABLES, *CHOICE_TABLES)}


def write(place, kind, request):
    """Write two events of a question, or more of a choice."""
    with closing(audit_at(place)) as log, closing(bandit_at(place)) as online:
        ask(log, request, 9) if kind == "audit" else choose(online, request)


def tables(places):
    """Tables of a database."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if places.server is not None:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    return {name for (name,) in places.execute("log.sqlite", query)}


@pytest.mark.parametrize("version", [1, 3])
def test_one_is_read_as_it_is(places, version):
    """Its requests, rates and choices, without a warning and without another table."""
    place = old_log(places, version)
    before = tables(places)
    log, online = audit_at(place), bandit_at(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert log.pack() is None
        assert explain_request("r1", log).rebuilt
        assert explain_request("r0", log).request["question"] is None
        assert len(live_rates(log)) > 0
        assert (len(online.frame()), int(online.state().t)) == (1, 1)
        assert online.state().n.tolist() == online.rebuild().n.tolist()
    log.close()
    online.close()
    assert tables(places) == before


@pytest.mark.parametrize(("version", "kind"), [(1, "audit"), (2, "bandit"), (3, "audit")])
def test_the_first_write_brings_it_here(places, version, kind):
    """Either log: it gets the tables that it lacks and loses its chain, said once.

    Events go on with the next number, and a second write says nothing.
    """
    place = old_log(places, version)
    with pytest.warns(UserWarning, match=rf"was of version {version} and is of version 4") as said:
        write(place, kind, "new")
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(place, "audit", "last")
        write(place, "bandit", "last")
    assert tables(places) == EVERY | {"audit_numbers"}
    numbers = places.execute("log.sqlite", "SELECT name, value FROM audit_numbers")
    assert dict(numbers)["schema"] == LOG_SCHEMA == 4
    assert dict(numbers)["event"] == 12 + {"audit": 2, "bandit": 3}[kind] + 5
    with closing(audit_at(place)) as log, closing(bandit_at(place)) as online:
        assert explain_request("r1", log).rebuilt
        assert len(online.frame()) == 2 + (kind == "bandit")


@SQLITE
def test_its_salts_go(places):
    """With them somebody could test a guess of what was forgotten since: in no file of the log."""
    place = Path(old_log(places, 3))
    salt, seal = "a5cd3fddf05739cf7f3d25d556ca87dd", "f6e7a60533535b867e8415dd966b9ae5"
    assert salt.encode() in place.read_bytes()
    with pytest.warns(UserWarning, match="without a chain of hashes"):
        write(place, "bandit", "new")
    assert salt.encode() not in place.read_bytes()
    with closing(audit_at(place)) as log:
        assert log.forget(before=START + timedelta(days=1)) == 1
        for file in place.parent.iterdir():
            for text in (salt, seal, "Sesame"):
                assert text.encode() not in file.read_bytes(), (file.name, text)


@pytest.mark.parametrize("version", [5, "NULL"])
def test_another_version_is_refused(places, version):
    """To read and to write, and nothing changes."""
    place = old_log(places, 3)
    places.execute("log.sqlite", f"UPDATE audit_numbers SET value = {version} WHERE value = 3")
    before = tables(places)
    with closing(audit_at(place)) as log:
        for use in (log.pack, lambda: write(place, "audit", "new")):
            with pytest.raises(ValueError, match="a log must be of version 4, got version"):
                use()
    assert tables(places) == before


@SQLITE
@pytest.mark.parametrize("version", [1, 3])
def test_a_table_that_was_lost_before(places, version):
    """Is refused, as in any log; the chain is not missed."""
    place = Path(old_log(places, version))
    if version > 1:
        edited(place, "DROP TABLE audit_chain")
        assert explain_request("r1", audit_at(place)).rebuilt
    edited(place, "DROP TABLE replies")
    with pytest.raises(ValueError, match="got no replies; restore a copy"):
        write(place, "audit", "new")
