"""What is wrong with a store, by what its library says, and what helps."""

from __future__ import annotations

import errno
import socket
import sqlite3
import threading
from contextlib import closing, contextmanager

import pytest
from sqlalchemy.exc import OperationalError

from raglab.lab.store_errors import (
    ABSENT_SERVER,
    CLOSED_STORE,
    DAMAGED_STORE,
    DELETED_EXPERIMENT,
    FULL_DISK,
    HALF_MADE_STORE,
    LOCKED_STORE,
    OLD_STORE,
    OTHER_FAULT,
    check_server,
    fault_of,
    store_error,
)
from raglab.store.files import InputError


def of_sqlite(words):
    """An error of SQLite as SQLAlchemy raises it."""
    cause = sqlite3.OperationalError(words)
    error = OperationalError("statement", None, cause)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (of_sqlite("database is locked"), LOCKED_STORE),
        (of_sqlite("database table is locked"), LOCKED_STORE),
        (of_sqlite("database or disk is full"), FULL_DISK),
        (of_sqlite("attempt to write a readonly database"), CLOSED_STORE),
        (of_sqlite("database disk image is malformed"), DAMAGED_STORE),
        (of_sqlite("file is not a database"), DAMAGED_STORE),
        (OSError(errno.ENOSPC, "No space left on device"), FULL_DISK),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), FULL_DISK),
        # by its code, in whatever language
        (OSError(errno.ENOSPC, "voll"), FULL_DISK),
        (OSError(errno.EACCES, "zu"), CLOSED_STORE),
        (PermissionError(errno.EACCES, "Permission denied"), CLOSED_STORE),
        (ConnectionRefusedError(), ABSENT_SERVER),
        (TimeoutError(), ABSENT_SERVER),
        (RuntimeError("(sqlite3.OperationalError) database is locked"), LOCKED_STORE),
        (
            RuntimeError(
                "The experiment 7 must be in the 'active' state. Current state is deleted."
            ),
            DELETED_EXPERIMENT,
        ),
        (
            RuntimeError("Detected out-of-date database schema (found version a, but expected b)."),
            OLD_STORE,
        ),
        (RuntimeError("table _alembic_tmp_latest_metrics already exists"), HALF_MADE_STORE),
        (RuntimeError("duplicate column name: step"), HALF_MADE_STORE),
        (
            RuntimeError("Online migration expected to match one row when updating 'a'"),
            HALF_MADE_STORE,
        ),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), LOCKED_STORE),
        (RuntimeError("API request to http://h/api failed with exception"), ABSENT_SERVER),
        (RuntimeError("something else"), OTHER_FAULT),
    ],
    ids=str,
)
def test_each_is_told_apart(error, fault):
    """Alone, and where a library raises another from it."""
    assert fault_of(error) is fault
    wrapped = KeyError("of a library")
    wrapped.__cause__ = error
    assert fault_of(wrapped) is fault


def test_by_a_server_of_postgresql():
    """A lock, no room, no right, and all else of a connection."""
    psycopg = pytest.importorskip("psycopg")
    states = {
        "LockNotAvailable": LOCKED_STORE,
        "DiskFull": FULL_DISK,
        "InsufficientPrivilege": CLOSED_STORE,
        "AdminShutdown": ABSENT_SERVER,
    }
    assert {name: fault_of(getattr(psycopg.errors, name)("words")) for name in states} == states
    assert fault_of(psycopg.OperationalError("connection failed")) is ABSENT_SERVER


@pytest.mark.parametrize(
    "fault", [LOCKED_STORE, ABSENT_SERVER, FULL_DISK, CLOSED_STORE, DELETED_EXPERIMENT, OLD_STORE]
)
def test_nobody_is_told_to_take_a_whole_store_away(fault):
    """It would destroy what is whole."""
    text = str(
        store_error(
            "postgresql://ann:hunter2@db/x", RuntimeError("at postgresql://ann:hunter2@db/x")
        )
    )
    assert "hunter2" not in text
    assert not {"delete", "remove", "away"} & set(fault.remedy.replace(",", " ").split())


def test_the_whole_cause_is_named():
    """However long its sentence is."""
    cause = f"Online migration expected to match one row when updating {'9' * 100} to {'8' * 100}"
    assert cause in str(store_error("mlruns", RuntimeError(cause)))


@contextmanager
def answering(status):
    """URL of a server that answers each request with a status."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve():
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    link.recv(4096)
                    link.sendall(f"HTTP/1.1 {status} Words\r\nContent-Length: 0\r\n\r\n".encode())

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class TestServer:
    """A server of runs, before MLflow asks it for four minutes."""

    @pytest.mark.parametrize("status", [200, 301, 401, 404])
    def test_whatever_it_answers_is_left_to_mlflow(self, status):
        """It is there."""
        with answering(status) as url:
            check_server(url)

    @pytest.mark.parametrize("status", [500, 502, 503])
    def test_one_that_fails(self, status):
        """As a gateway whose server is down."""
        with (
            answering(status) as url,
            pytest.raises(InputError, match=f"must answer, got status {status}; check that"),
        ):
            check_server(url)

    def test_one_that_is_not_there(self):
        """Its password is not shown."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(InputError, match=r"must answer, got .*refused") as caught:
            check_server(f"http://ann:hunter2@127.0.0.1:{port}")
        assert "hunter2" not in str(caught.value)

    def test_one_of_no_name(self):
        """A name that nobody knows."""
        with pytest.raises(InputError, match="must answer"):
            check_server("http://no.such.host.invalid:5000")


def test_a_file_that_is_locked(tmp_path):
    """What SQLite itself raises."""
    with closing(sqlite3.connect(tmp_path / "a", isolation_level=None)) as holder:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        with closing(sqlite3.connect(tmp_path / "a", timeout=0.0)) as link:
            with pytest.raises(sqlite3.OperationalError) as caught:
                link.execute("SELECT * FROM t")
            assert fault_of(caught.value) is LOCKED_STORE
