"""Database (shore): transactions of a log, in a file of SQLite or on a server of PostgreSQL.

`Database` opens whatever tables it is given, declared as `EventTable`; those of the bandit and
those of the questions are in `log_tables`. A row is added and never changed, but for texts that
`blank` takes out when they are to be forgotten; what `keep` writes over and `drop` takes away is
what the log can rebuild. Reading makes no file, no table and no column.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from sqlite3 import SQLITE_PERM
from threading import Lock
from time import monotonic, sleep
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from raglab.arguments.user_warnings import warn_user
from raglab.store.blobs import BUSY_S, LOCKED, UNWRITABLE, sqlite_code, unsafe_neighbour
from raglab.store.files import InputError, input_error
from raglab.store.log_rows import LONGEST_NAME, LONGEST_TIME, REMEDY, Entries, EventTable
from raglab.words.characters import masked_passwords, without_secrets

SCHEMA = 4  # of the tables; the first write brings an older log to it
NUMBERS = "audit_numbers"  # a table of every log: its schema, its last event, its tables
# Up to version 3 each event had a link in a chain of hashes there, with the salt of its texts.
_CHAIN = "audit_chain"
CONNECT_S = 10  # a server is waited for
LONGEST_PATIENCE_S = 3600.0
_LOOK_MS = 10  # between two looks for a turn
# PostgreSQL's advisory lock while tables are made; any number that nobody else takes
_MAKING = 5_771_031
_NO_TURN = "55P03"  # PostgreSQL's lock_not_available
_HIDDEN = "***"
_INSTALL = 'pip install "raglab-toolkit[postgres]"'
_KINDS: dict[str, Any] = {
    "name": sql.String(LONGEST_NAME),
    "text": sql.Text,
    "json": sql.Text,
    "whole": sql.BigInteger,
    "number": sql.Double,
}
# What SQLite says of a place that takes nothing: read-only, a full disk, a failed write, no rights,
# no folder, a lock.
_UNWRITABLE = UNWRITABLE | LOCKED | {SQLITE_PERM}
# And what PostgreSQL does, besides all that is an operational error: a standby or read-only role,
# no right to write.
_CLOSED = {"25006", "42501"}


class UnwritableLogError(InputError):
    """A log that cannot be written, though it may be whole.

    In a read-only folder or one that is gone, on a full disk, without rights, locked by another
    process, or on a server that does not answer. What is wrong with the log itself is another
    InputError.

    seconds: that the database took to say so.
    """

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


def is_unwritable(error: SQLAlchemyError) -> bool:
    """Whether a log's place, server or lock is at fault, and not the log."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, PoolTimeoutError)
    if code := sqlite_code(error.orig):
        return code in _UNWRITABLE
    server = getattr(error.orig, "sqlstate", "") in _CLOSED or isinstance(
        error, OperationalError | InterfaceError
    )
    return server and not type(error.orig).__module__.startswith("sqlite3")


def prepare_connection(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
    """Begin nothing by itself, and overwrite with zeros what is blanked."""
    link.isolation_level = None
    link.execute("PRAGMA secure_delete=ON")


def _begin_writing(link: sql.Connection, patience_s: float) -> None:
    """Begin alone, over a write-ahead log, within the patience."""
    until = monotonic() + patience_s
    # A fresh file that several switch to the write-ahead log at once answers `locked` at once. And
    # SQLite looks for its turn ten times a second after a while, which others take meanwhile: who
    # looks as often as all gets its share.
    link.exec_driver_sql(f"PRAGMA busy_timeout={_LOOK_MS}")
    waiting = ["PRAGMA journal_mode=WAL", "BEGIN IMMEDIATE"]
    try:
        while waiting:
            try:
                link.exec_driver_sql(waiting[0])
                waiting.pop(0)
            except OperationalError as error:
                if "locked" not in str(error.orig) or monotonic() > until:
                    raise
                sleep(1e-3 * _LOOK_MS)
    finally:
        link.exec_driver_sql(f"PRAGMA busy_timeout={round(1e3 * patience_s)}")


def _set_sessions(engine: sql.Engine, setting: str, seconds: float) -> None:
    """Give every new connection of a server a time limit."""

    def prepared(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
        cursor = link.cursor()
        cursor.execute(f"SET {setting} = {round(1e3 * seconds)}")
        cursor.close()
        link.commit()

    sql.event.listen(engine, "connect", prepared)


def limit_idle_transactions(engine: sql.Engine, seconds: float) -> None:
    """Let a server of PostgreSQL end transactions of an engine in which nothing is done.

    Nothing on other databases.

    Args:
      engine: of whoever made it; its connections are opened anew.
      seconds: a transaction may stand idle.
    """
    if engine.dialect.name == "postgresql":
        _set_sessions(engine, "idle_in_transaction_session_timeout", seconds)
        engine.dispose()


@contextmanager
def _transaction(engine: sql.Engine, *, alone: bool) -> Iterator[sql.Connection]:
    """A transaction that sees one moment, or, `alone`, the one of a writer.

    Each statement of a writer on a server sees what was committed before it: whoever waited for a
    turn, all before.
    """
    level: dict[str, Any] = {}
    if engine.dialect.name != "sqlite":
        level["isolation_level"] = "READ COMMITTED" if alone else "REPEATABLE READ"
    with engine.connect() as link, link.execution_options(alone=alone, **level), link.begin():
        yield link


class Database:
    """A database opened on its first use, with the tables that it is given.

    Every write is one transaction that no other writer runs beside: SQLite in WAL mode with BEGIN
    IMMEDIATE, PostgreSQL with a locked row. Reads see one moment and wait for nobody. Not to be
    carried over a fork.
    """

    def __init__(
        self,
        place: str | Path,
        tables: Sequence[EventTable],
        *,
        beside: Sequence[EventTable] = (),
        create: bool = True,
        patience_s: float | None = None,
    ) -> None:
        """Name the place: a path is a file of SQLite, a text with `://` a URL of SQLAlchemy.

        Args:
          place: path or URL.
          tables: of the log.
          beside: tables that another log may have in the same database.
          create: whether file and tables are made where they do not exist, on the first write.
          patience_s: seconds to wait for a turn or a lock; None is `BUSY_S`, that of a batch of
            writers.

        Raises:
          InputError: a URL that is none. ValueError: a patience below 0 or past
            `LONGEST_PATIENCE_S`.
        """
        self.patience_s = BUSY_S if patience_s is None else patience_s
        if not 0.0 <= self.patience_s <= LONGEST_PATIENCE_S:
            rule = f"patience_s must be in [0, {LONGEST_PATIENCE_S:g}] seconds"
            msg = f"{rule}, got {self.patience_s:g}; leave it out for {BUSY_S:g}."
            raise ValueError(msg)
        self.place, self.url, self.shown = place, _url(place), masked_url(place)
        self._create, self._turns = create, Lock()
        meta = sql.MetaData()
        self._numbers = sql.Table(
            NUMBERS,
            meta,
            sql.Column("name", sql.String(32), primary_key=True),
            sql.Column("value", sql.BigInteger),
        )
        self._own, self._beside = tuple(tables), tuple(beside)
        self._names = {table.name for table in tables}
        self._tables = {
            table.name: (table, _sql_table(table, meta)) for table in (*tables, *beside)
        }
        event = self._numbers.c.name == "event"
        self._last = sql.select(self._numbers.c.value).where(event)
        self._turn = self._last.with_for_update()
        self._count = sql.update(self._numbers).where(event)
        self._statements: dict[Any, Any] = {}
        self._engine: sql.Engine | None = None
        self._version = 0  # of the tables as they were when the log was opened

    @contextmanager
    def writing(self) -> Iterator[Entries]:
        """Entries to read and add to, in a transaction of its own turn; whole or not at all.

        Threads of this process take turns before they ask the database for one.

        Raises:
          UnwritableLogError: no turn came within the patience.
        """
        if not self._turns.acquire(timeout=self.patience_s):
            reason = "other threads of this process write"
            raise self._no_turn(reason, self.patience_s)
        try:
            with self._entries(alone=True) as entries:
                yield entries
        finally:
            self._turns.release()

    def reading(self) -> AbstractContextManager[Entries]:
        """Entries as they are at this moment, whatever is written meanwhile.

        A log that has not begun is read as an empty one.
        """
        return self._entries(alone=False)

    @contextmanager
    def _entries(self, *, alone: bool) -> Iterator[Entries]:
        with self._plain_errors():
            engine = self._opened(alone=alone)
            if engine is None:
                yield Entries(None, self._tables, self._statements, 0, 0)
                return
            with _transaction(engine, alone=alone) as link:
                before = link.scalar(self._turn if alone else self._last)
                if not isinstance(before, int):
                    raise input_error(
                        self.shown,
                        "a log's counter must be a whole number",
                        REMEDY,
                        f"{before!r:.80}",
                    )
                entries = Entries(link, self._tables, self._statements, before, self._version)
                yield entries
                if entries.last != before:
                    link.execute(self._count, {"value": entries.last})

    def erase(self, *, vacuum: bool) -> None:
        """Erase what was blanked from SQLite's files, rewritten by VACUUM if `vacuum`.

        PostgreSQL vacuums by itself.

        Raises:
          InputError: another process reads the log for longer than `patience_s`; what was blanked
            stands in a file yet.
        """
        with self._plain_errors():
            engine = self._opened(alone=True)
            if engine is None or engine.dialect.name != "sqlite":
                return
            with engine.connect() as connection:
                link: Any = connection.connection.dbapi_connection
                if vacuum:
                    link.execute("VACUUM")
                if link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    raise input_error(
                        self.shown,
                        "a log must have no other reader while texts are erased",
                        "end the other processes and forget again",
                    )

    @property
    def read_only(self) -> bool:
        """Whether it is a file that this process may not write, or lies in such a folder."""
        if self.url.get_backend_name() != "sqlite":
            return False
        file = Path(self.url.database or "")
        return file.parent.is_dir() and not all(
            os.access(path, os.W_OK) for path in (file.parent, file) if path.exists()
        )

    def close(self) -> None:
        """Let go of files and connections; the next use opens them again."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine, self._version = None, 0

    def _opened(self, *, alone: bool) -> sql.Engine | None:
        """Engine of the log, its tables made or brought up to date if it is written `alone`.

        None where a log that is read has not begun.
        """
        if self._engine is not None and (self._version == SCHEMA or not alone):
            return self._engine
        file = self.url.database if self.url.get_backend_name() == "sqlite" else None
        if not alone and self._create and file and not Path(file).is_file():
            return None
        engine, version = self._engine or self._connected(), 0
        try:
            # what is not a log of ours is refused before it is written
            with _transaction(engine, alone=False) as link:
                known, schema = self._state(link)
            version = 0 if known.isdisjoint(self._names) else schema
            if alone and version != SCHEMA:
                self._make(engine)
                version = SCHEMA
        except BaseException:
            engine.dispose()
            raise
        if not version:
            engine.dispose()
            return None
        self._engine, self._version = engine, version
        return engine

    def _state(self, link: sql.Connection) -> tuple[set[str], int]:
        """Tables that the database has, and their version, 0 where no log has begun.

        Raises:
          InputError: another version, a table that was there and is not, or nothing that may be
            begun.
        """
        known = set(sql.inspect(link).get_table_names())
        numbers: dict[str, Any] = {}
        schema: Any = 0
        if NUMBERS in known:
            stated = link.execute(sql.select(*self._numbers.c))
            numbers = {row.name: row.value for row in stated}
            schema = numbers.get("schema")
            if schema not in range(1, SCHEMA + 1):
                raise input_error(
                    self.shown,
                    f"a log must be of version {SCHEMA}",
                    "open it with the raglab that made it",
                    f"version {schema}",
                )
        # A log's tables are made together: where one is there or has a number all are expected.
        expected = {table.name for table in self._own if table.since <= schema}
        if known & self._names or expected & numbers.keys():
            if gone := sorted(({NUMBERS} | expected) - known):
                raise input_error(
                    self.shown,
                    "a log must have all its tables",
                    REMEDY,
                    f"no {', '.join(gone)}",
                )
        elif not self._create:
            raise input_error(
                self.shown, "a log must hold events", "check the place; `ask` makes it"
            )
        return known, schema

    def _make(self, engine: sql.Engine) -> None:
        """Make missing tables and bring older ones up to date, whoever else does so too."""
        with _transaction(engine, alone=True) as link:
            if link.dialect.name == "postgresql":
                link.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
            known, schema = self._state(link)  # again: another may have been faster
            rows: dict[str, int] = {}
            if not schema:
                self._numbers.create(link)
                rows = {"schema": SCHEMA, "event": 0}
            elif schema < SCHEMA:
                link.execute(self._turn)  # a writer of an older version ends its turn first
                # its salts would betray texts that are forgotten later
                link.execute(sql.text(f"DROP TABLE IF EXISTS {_CHAIN}"))
                version = sql.update(self._numbers).where(self._numbers.c.name == "schema")
                link.execute(version.values(value=SCHEMA))
            for tables in (self._own, self._beside):
                begun = not known.isdisjoint(table.name for table in tables)
                for table in tables if begun or tables is self._own else ():
                    if table.since > (schema if begun else 0):
                        self._tables[table.name][1].create(link, checkfirst=True)
                        rows[table.name] = 1
            if rows:
                link.execute(
                    sql.insert(self._numbers),
                    [{"name": name, "value": value} for name, value in rows.items()],
                )
        if 0 < schema < SCHEMA:
            warn_user(
                f"{self.shown}: the log was of version {schema} and is of version {SCHEMA} now, "
                "without a chain of hashes; an older raglab does not open it."
            )

    def _connected(self) -> sql.Engine:
        url, patience_s = self.url, self.patience_s
        options: dict[str, Any] = {"hide_parameters": True, "pool_timeout": patience_s}
        if url.get_backend_name() == "sqlite":
            return self._connected_to_file(options)
        if url.drivername in {"postgresql", "postgres"}:
            url = url.set(drivername="postgresql+psycopg")
        if url.drivername.partition("+")[0] != "postgresql":
            raise input_error(
                self.shown,
                "a log must be in SQLite or PostgreSQL",
                "use a path, or a URL such as postgresql://user@host/name",
                url.drivername,
            )
        # A server that is gone says nothing for minutes, unless it is told; and it speaks UTF-8
        # whatever it stores.
        stated = {"connect_timeout": CONNECT_S, "client_encoding": "utf8"}
        stated = {name: value for name, value in stated.items() if name not in url.query}
        try:
            engine = sql.create_engine(url, connect_args=stated, pool_pre_ping=True, **options)
        except (NoSuchModuleError, ImportError) as error:
            raise input_error(
                self.shown,
                "the database's driver must be installed",
                _INSTALL,
                f"{url.drivername} ({self._hidden(str(error))})",
            ) from None
        # a lock is waited for as long as one of SQLite, not for ever
        _set_sessions(engine, "lock_timeout", patience_s)
        return engine

    def _connected_to_file(self, options: dict[str, Any]) -> sql.Engine:
        file, patience_s = Path(self.url.database or ""), self.patience_s
        if not self._create and not file.is_file():
            raise input_error(self.shown, "a log must be there", "check the path; `ask` makes it")
        value = unsafe_neighbour(file)
        if value is not None:
            raise input_error(
                self.shown,
                "a log must be a file with nothing but SQLite's own beside it",
                "take it away",
                value,
            )
        engine = sql.create_engine(self.url, connect_args={"timeout": patience_s}, **options)

        def begun(link: sql.Connection) -> None:
            if link.get_execution_options().get("alone"):
                _begin_writing(link, patience_s)
            else:
                link.exec_driver_sql("BEGIN")

        sql.event.listen(engine, "connect", prepare_connection)
        sql.event.listen(engine, "begin", begun)
        return engine

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of the driver as one line, without what is secret."""
        start = monotonic()
        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            reason = self._hidden(" ".join(str(cause).split()))
            if getattr(cause, "sqlstate", None) == _NO_TURN or "database is locked" in reason:
                raise self._no_turn(reason, monotonic() - start) from None
            place = (
                "place, rights and disk"
                if self.url.get_backend_name() == "sqlite"
                else "URL, server and rights"
            )
            refused = input_error(
                self.shown, "a log must be readable and writable", f"check {place}", reason
            )
            if self.read_only or is_unwritable(error):
                raise UnwritableLogError(str(refused), monotonic() - start) from None
            raise refused from None

    def _no_turn(self, reason: str, seconds: float) -> UnwritableLogError:
        return UnwritableLogError(
            str(
                input_error(
                    self.shown,
                    f"a writer of a log must get its turn within {self.patience_s:g} s",
                    "let the other process finish, or end it",
                    reason,
                )
            ),
            seconds,
        )

    def _hidden(self, text: str) -> str:
        """Text without the secrets of the URL."""
        secrets = [str(self.url.password or "")]
        for values in self.url.normalized_query.values():
            secrets += values
        return without_secrets(text, secrets, _HIDDEN)


_LOGIN = re.compile(r"//\S{0,500}@")
_USER = re.compile(r"[\w.+-]*")


def masked_url(place: str | Path) -> str:
    r"""Place of a log without its secrets: no password, nothing that follows the question mark.

    Example:
      >>> masked_url("postgresql://ann:hunter2@db/rag?sslpassword=x")
      'postgresql://ann:***@db/rag?***'
      >>> (
      ...     masked_url("postgresql//ann:hunter2@db/rag"),
      ...     masked_url(r"postgresql://ann\hunter2@db/rag"),
      ... )
      ('postgresql//***@db/rag', 'postgresql://***@db/rag')
    """
    if "://" not in str(place):  # a path, or a URL with a slip before its user
        return _LOGIN.sub("//***@", str(place).partition("password=")[0])
    # a URL inside another is written with its password as part of a path
    if str(place).count("://") > 1:
        return masked_passwords(str(place))
    whole = _url(place)
    text = whole.set(query={}).render_as_string(hide_password=True) + (
        f"?{_HIDDEN}" if whole.query else ""
    )
    # A user of other signs may hold the password, where the colon between the two is a slip.
    # A password of other signs may reach into the host.
    is_plain = _USER.fullmatch(whole.username or "") and "@" not in (whole.host or "")
    return text if is_plain else _LOGIN.sub("//***@", text)


def check_no_folder(place: str | Path, file: str) -> None:
    """Refuse a folder as the place of a log.

    Args:
      place: a path, or a URL with `://`.
      file: name of the log in the folder of an index.

    Raises:
      InputError: the place is a folder.
    """
    if "://" not in str(place) and Path(place).is_dir():
        raise input_error(
            place,
            "a log must be a file or a URL",
            f"an index keeps this log in {Path(place) / file}",
            "a folder",
        )


def _url(place: str | Path) -> URL:
    if "://" not in str(place) and "password=" not in str(place):  # a DSN is no path
        return URL.create("sqlite", database=str(Path(place).absolute()))
    try:
        return make_url(str(place))
    except (ArgumentError, ValueError):
        raise input_error(
            (str(place).partition("://")[0] if "://" in str(place) else "") + "://" + _HIDDEN,
            "a log must be a path or a URL such as postgresql://user@host/name",
            "correct the URL",
        ) from None


def _sql_table(table: EventTable, meta: sql.MetaData) -> sql.Table:
    columns = [
        sql.Column(
            column.name,
            _KINDS[column.kind],
            primary_key=column.name == table.key,
            unique=column.unique,
            nullable=column.missing,
        )
        for column in table.columns
    ]
    if table.key is not None:
        return sql.Table(table.name, meta, *columns)
    first = (
        sql.Column("seq", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("at", sql.String(LONGEST_TIME), nullable=False),
    )
    listed = [
        sql.Index(f"{table.name}_of_{column.name}", column.name, "seq")
        for column in table.columns
        if column.listed
    ]
    return sql.Table(table.name, meta, *first, *columns, *listed)
