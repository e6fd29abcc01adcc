"""A PostgreSQL server of one's own, and places for logs on both databases.

The server lives in a temporary folder, listens on a free port of 127.0.0.1 alone, and is run by
Debian's user `postgres`, or `nobody`, where the tests are run by root, whom PostgreSQL refuses.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

USER = "raglab"
HOST = "127.0.0.1"


def server_programs():
    """Folder of initdb and pg_ctl, of the newest version where there are several.

    None where there is none.
    """
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])
    )
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return None if found is None else Path(found).parent


def why_not():
    """Why nothing can be run on PostgreSQL here; None where it can."""
    if server_programs() is None:
        return "no PostgreSQL server here: apt-get install postgresql"
    return (
        None
        if find_spec("psycopg")
        else 'no driver of PostgreSQL here: pip install "raglab-toolkit[postgres]"'
    )


class Server:
    """A server; `start` it, and `stop` it in the end."""

    def __init__(self, *, synchronised=False):
        """Make its files.

        Args:
          synchronised: whether what is committed is on the disk; else it survives a kill, but no
            loss of power.
        """
        self.programs = server_programs()
        assert self.programs is not None, why_not()
        self.folder = Path(tempfile.mkdtemp(prefix="raglab-postgresql-"))
        self.password, self.port = f"{secrets.token_hex(8)}'\\ %@/", _free_port()
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            names = {one.pw_name for one in pwd.getpwall()}
            who = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            self._user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
            os.chown(self.folder, who.pw_uid, who.pw_gid)
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # in a folder that its user alone may enter
        by_password = ("--auth=scram-sha-256", "--username", USER, "--pwfile", str(secret))
        self._run(
            "initdb",
            "--pgdata",
            str(self.data),
            *by_password,
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )
        settings = (
            f"listen_addresses = '{HOST}'\nport = {self.port}\nunix_socket_directories = ''\n"
        )
        settings += (
            f"fsync = {'on' if synchronised else 'off'}\nmax_connections = 50\nshared_buffers = "
            "16MB\n"
        )
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(settings)

    @property
    def data(self):
        """Folder of the server's files."""
        return self.folder / "data"

    def url(self, name="postgres", *, password=None):
        """URL of a database."""
        from urllib.parse import quote

        word = quote(self.password if password is None else password, safe="")
        return f"postgresql://{USER}:{word}@{HOST}:{self.port}/{name}"

    def start(self):
        """Run it, and wait until it answers."""
        self._run(
            "pg_ctl",
            "start",
            "--pgdata",
            str(self.data),
            "--wait",
            "--log",
            str(self.folder / "log"),
        )

    def stop(self, mode="fast"):
        """End it; `immediate` is as a kill."""
        self._run(
            "pg_ctl", "stop", "--pgdata", str(self.data), "--wait", "--timeout=20", "--mode", mode
        )

    def end(self):
        """Leave nothing behind, whatever state it is in."""
        with suppress(FileNotFoundError, ValueError, IndexError):
            recorded = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            try:
                self.stop("immediate")
            except subprocess.CalledProcessError:
                with suppress(ProcessLookupError):
                    os.kill(recorded, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self):
        """URL of a new database."""
        name = f"log_{secrets.token_hex(6)}"
        self.execute(self.url(), f"CREATE DATABASE {name}")
        return self.url(name)

    def schema(self):
        """URL of a new schema of the first database.

        As good as a database of its own, and made much faster.
        """
        name = f"log_{secrets.token_hex(6)}"
        self.execute(self.url(), f"CREATE SCHEMA {name}")
        return f"{self.url()}?options=-csearch_path%3D{name}"

    @staticmethod
    def execute(url, statement):
        """Rows of a statement, committed."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as link:
            cursor = link.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program, *words):
        assert self.programs is not None
        known = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        subprocess.run(
            [str(self.programs / program), *words],
            cwd=self.folder,
            env=known,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # no pipe: the server would keep it open
            stderr=subprocess.DEVNULL,
            **self._user,
        )


def _free_port():
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@contextmanager
def server(*, synchronised=False):
    """A server at work, ended whatever happens."""
    made = Server(synchronised=synchronised)
    try:
        made.start()
        yield made
    finally:
        made.end()


class Places:
    """Places of logs: files of SQLite in a folder, or schemas of a server.

    The same name is the same place.
    """

    def __init__(self, folder, server=None):
        """Take the folder, or the server."""
        self.folder, self.server = folder, server
        self._made: dict[str, str] = {}

    def __call__(self, name):
        """Place of a name."""
        if self.server is None:
            return self.folder / name
        if name not in self._made:
            self._made[name] = self.server.schema()
        return self._made[name]

    def execute(self, name, statement):
        """Rows of a statement, past everything of ours."""
        if self.server is not None:
            return self.server.execute(str(self(name)), statement)
        with closing(sqlite3.connect(self(name))) as link, link:
            return link.execute(statement).fetchall()

    def run(self, name, statements):
        """Run statements, none of which gives rows, over one connection."""
        script = ";\n".join(statements)
        if self.server is not None:
            self.server.execute(str(self(name)), script)
        else:
            with closing(sqlite3.connect(self(name))) as link:
                link.executescript(script)
