"""Database (shore): transactions of a log, in a file of SQLite or on a server of PostgreSQL.

`Database` opens the tables that it is given, declared as `EventTable`; those of the bandit and
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
from raglab.store.blobs import BUSY_S, LOCKED_CODES, UNWRITABLE_CODES, sqlite_code, unsafe_neighbour
from raglab.store.files import InputError, input_error
from raglab.store.log_rows import COPY_REMEDY, LONGEST_NAME, LONGEST_TIME, Entries, EventTable
from raglab.words.characters import masked_passwords, without_secrets

LOG_SCHEMA = 4  # of the tables; the first write brings an older log to it
NUMBERS_TABLE = "audit_numbers"  # a table of every log: its schema, its last event, its tables
# Up to version 3 each event had a link in a chain of hashes there, with the salt of its texts.
_CHAIN_TABLE = "audit_chain"
CONNECT_S = 10  # a server is waited for
LONGEST_PATIENCE_S = 3600.0
_TURN_PAUSE_MS = 10  # between two looks for a turn
# PostgreSQL's advisory lock while tables are made; any number that nobody else takes
_MAKING_LOCK = 5_771_031
_NO_TURN_STATE = "55P03"  # PostgreSQL's lock_not_available
_MASK = "***"
_DRIVER_REMEDY = 'pip install "raglab-toolkit[postgres]"'
_SQL_TYPES: dict[str, Any] = {
    "name": sql.String(LONGEST_NAME),
    "text": sql.Text,
    "json": sql.Text,
    "whole": sql.BigInteger,
    "number": sql.Double,
}
# What SQLite says of a place that takes nothing: read-only, a full disk, a failed write, no rights,
# no folder, a lock.
_UNWRITABLE = UNWRITABLE_CODES | LOCKED_CODES | {SQLITE_PERM}
# And what PostgreSQL does, besides all that is an operational error: a standby or read-only role,
# no right to write.
_CLOSED_STATES = {"25006", "42501"}


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
    server = getattr(error.orig, "sqlstate", "") in _CLOSED_STATES or isinstance(
        error, OperationalError | InterfaceError
    )
    return server and not type(error.orig).__module__.startswith("sqlite3")


def prepare_connection(connection: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
    """Begin nothing by itself, and overwrite with zeros what is blanked."""
    connection.isolation_level = None
    connection.execute("PRAGMA secure_delete=ON")


def _begin_writing(connection: sql.Connection, patience_s: float) -> None:
    """Begin alone, over a write-ahead log, within the patience."""
    deadline = monotonic() + patience_s
    # A fresh file that several switch to the write-ahead log at once answers `locked` at once. And
    # SQLite looks for its turn ten times a second after a while, which others take meanwhile: who
    # looks as often as all gets its share.
    connection.exec_driver_sql(f"PRAGMA busy_timeout={_TURN_PAUSE_MS}")
    statements = ["PRAGMA journal_mode=WAL", "BEGIN IMMEDIATE"]
    try:
        while statements:
            try:
                connection.exec_driver_sql(statements[0])
                statements.pop(0)
            except OperationalError as error:
                if "locked" not in str(error.orig) or monotonic() > deadline:
                    raise
                sleep(1e-3 * _TURN_PAUSE_MS)
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={round(1e3 * patience_s)}")


def _set_sessions(engine: sql.Engine, setting_name: str, limit_s: float) -> None:
    """Give every new connection of a server a time limit."""

    def prepared(connection: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
        cursor = connection.cursor()
        cursor.execute(f"SET {setting_name} = {round(1e3 * limit_s)}")
        cursor.close()
        connection.commit()

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
def _transaction(engine: sql.Engine, *, as_writer: bool) -> Iterator[sql.Connection]:
    """A transaction that sees one moment, or, `as_writer`, the one of a writer.

    Each statement of a writer on a server sees what was committed before it: whoever waited for a
    turn, all before.
    """
    isolation_options: dict[str, Any] = {}
    if engine.dialect.name != "sqlite":
        isolation_options["isolation_level"] = "READ COMMITTED" if as_writer else "REPEATABLE READ"
    with (
        engine.connect() as connection,
        connection.execution_options(alone=as_writer, **isolation_options),
        connection.begin(),
    ):
        yield connection


class Database:
    """A database opened on its first use, with the tables that it is given.

    Every write is one transaction, with no other writer: SQLite in WAL mode with BEGIN
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
          InputError: no valid URL. ValueError: a patience below 0 or past
            `LONGEST_PATIENCE_S`.
        """
        self.patience_s = BUSY_S if patience_s is None else patience_s
        if not 0.0 <= self.patience_s <= LONGEST_PATIENCE_S:
            patience_rule = f"patience_s must be in [0, {LONGEST_PATIENCE_S:g}] seconds"
            message = f"{patience_rule}, got {self.patience_s:g}; leave it out for {BUSY_S:g}."
            raise ValueError(message)
        self.place, self.url, self.shown = place, _url(place), masked_url(place)
        self._create, self._turns = create, Lock()
        table_metadata = sql.MetaData()
        self._numbers = sql.Table(
            NUMBERS_TABLE,
            table_metadata,
            sql.Column("name", sql.String(32), primary_key=True),
            sql.Column("value", sql.BigInteger),
        )
        self._own, self._beside = tuple(tables), tuple(beside)
        self._names = {event_table.name for event_table in tables}
        self._tables = {
            event_table.name: (event_table, _sql_table(event_table, table_metadata))
            for event_table in (*tables, *beside)
        }
        is_event_row = self._numbers.c.name == "event"
        self._last = sql.select(self._numbers.c.value).where(is_event_row)
        self._turn = self._last.with_for_update()
        self._count = sql.update(self._numbers).where(is_event_row)
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
            with self._entries(as_writer=True) as entries:
                yield entries
        finally:
            self._turns.release()

    def reading(self) -> AbstractContextManager[Entries]:
        """Entries as they are at this moment, without what is written meanwhile.

        A log that has not begun is read as an empty one.
        """
        return self._entries(as_writer=False)

    @contextmanager
    def _entries(self, *, as_writer: bool) -> Iterator[Entries]:
        with self._plain_errors():
            engine = self._opened(as_writer=as_writer)
            if engine is None:
                yield Entries(None, self._tables, self._statements, 0, 0)
                return
            with _transaction(engine, as_writer=as_writer) as connection:
                last_event = connection.scalar(self._turn if as_writer else self._last)
                if not isinstance(last_event, int):
                    raise input_error(
                        self.shown,
                        "a log's counter must be a whole number",
                        COPY_REMEDY,
                        f"{last_event!r:.80}",
                    )
                entries = Entries(
                    connection, self._tables, self._statements, last_event, self._version
                )
                yield entries
                if entries.last != last_event:
                    connection.execute(self._count, {"value": entries.last})

    def erase(self, *, vacuum: bool) -> None:
        """Erase what was blanked from SQLite's files, rewritten by VACUUM if `vacuum`.

        PostgreSQL vacuums by itself.

        Raises:
          InputError: another process reads the log for longer than `patience_s`; what was blanked
            stands in a file yet.
        """
        with self._plain_errors():
            engine = self._opened(as_writer=True)
            if engine is None or engine.dialect.name != "sqlite":
                return
            with engine.connect() as connection:
                driver_connection: Any = connection.connection.dbapi_connection
                if vacuum:
                    driver_connection.execute("VACUUM")
                if driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
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
        log_file = Path(self.url.database or "")
        return log_file.parent.is_dir() and not all(
            os.access(checked_path, os.W_OK)
            for checked_path in (log_file.parent, log_file)
            if checked_path.exists()
        )

    def close(self) -> None:
        """Let go of files and connections; the next use opens them again."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine, self._version = None, 0

    def _opened(self, *, as_writer: bool) -> sql.Engine | None:
        """Engine of the log, its tables made or brought up to date if it is written `as_writer`.

        None where a log that is read has not begun.
        """
        if self._engine is not None and (self._version == LOG_SCHEMA or not as_writer):
            return self._engine
        log_file = self.url.database if self.url.get_backend_name() == "sqlite" else None
        if not as_writer and self._create and log_file and not Path(log_file).is_file():
            return None
        engine = self._engine or self._connected()
        log_version = 0
        try:
            # what is not a log of ours is refused before it is written
            with _transaction(engine, as_writer=False) as connection:
                table_names, log_schema = self._state(connection)
            log_version = 0 if table_names.isdisjoint(self._names) else log_schema
            if as_writer and log_version != LOG_SCHEMA:
                self._make(engine)
                log_version = LOG_SCHEMA
        except BaseException:
            engine.dispose()
            raise
        if not log_version:
            engine.dispose()
            return None
        self._engine, self._version = engine, log_version
        return engine

    def _state(self, connection: sql.Connection) -> tuple[set[str], int]:
        """Tables that the database has, and their version, 0 where no log has begun.

        Raises:
          InputError: another version, a table that was there and is not, or nothing that may be
            begun.
        """
        table_names = set(sql.inspect(connection).get_table_names())
        stored_numbers: dict[str, Any] = {}
        log_schema: Any = 0
        if NUMBERS_TABLE in table_names:
            number_rows = connection.execute(sql.select(*self._numbers.c))
            stored_numbers = {number_row.name: number_row.value for number_row in number_rows}
            log_schema = stored_numbers.get("schema")
            if log_schema not in range(1, LOG_SCHEMA + 1):
                raise input_error(
                    self.shown,
                    f"a log must be of version {LOG_SCHEMA}",
                    "open it with the raglab that made it",
                    f"version {log_schema}",
                )
        # A log's tables are made together: where one is there or has a number all are expected.
        expected_tables = {table.name for table in self._own if table.since <= log_schema}
        if table_names & self._names or expected_tables & stored_numbers.keys():
            if missing_tables := sorted(({NUMBERS_TABLE} | expected_tables) - table_names):
                raise input_error(
                    self.shown,
                    "a log must have all its tables",
                    COPY_REMEDY,
                    f"no {', '.join(missing_tables)}",
                )
        elif not self._create:
            raise input_error(
                self.shown, "a log must hold events", "check the place; `ask` makes it"
            )
        return table_names, log_schema

    def _make(self, engine: sql.Engine) -> None:
        """Make missing tables and bring older ones up to date, whoever else does so too."""
        with _transaction(engine, as_writer=True) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING_LOCK)))
            table_names, log_schema = self._state(connection)  # again: another may have been faster
            new_numbers: dict[str, int] = {}
            if not log_schema:
                self._numbers.create(connection)
                new_numbers = {"schema": LOG_SCHEMA, "event": 0}
            elif log_schema < LOG_SCHEMA:
                connection.execute(self._turn)  # a writer of an older version ends its turn first
                # its salts would betray texts that are forgotten later
                connection.execute(sql.text(f"DROP TABLE IF EXISTS {_CHAIN_TABLE}"))
                schema_update = sql.update(self._numbers).where(self._numbers.c.name == "schema")
                connection.execute(schema_update.values(value=LOG_SCHEMA))
            for table_group in (self._own, self._beside):
                is_begun = not table_names.isdisjoint(
                    event_table.name for event_table in table_group
                )
                for event_table in table_group if is_begun or table_group is self._own else ():
                    if event_table.since > (log_schema if is_begun else 0):
                        self._tables[event_table.name][1].create(connection, checkfirst=True)
                        new_numbers[event_table.name] = 1
            if new_numbers:
                connection.execute(
                    sql.insert(self._numbers),
                    [
                        {"name": number_name, "value": number}
                        for number_name, number in new_numbers.items()
                    ],
                )
        if 0 < log_schema < LOG_SCHEMA:
            warn_user(
                f"{self.shown}: the log was of version {log_schema} and is of version "
                f"{LOG_SCHEMA} now, without a chain of hashes; an older raglab does not open it."
            )

    def _connected(self) -> sql.Engine:
        server_url = self.url
        patience_s = self.patience_s
        engine_options: dict[str, Any] = {"hide_parameters": True, "pool_timeout": patience_s}
        if server_url.get_backend_name() == "sqlite":
            return self._connected_to_file(engine_options)
        if server_url.drivername in {"postgresql", "postgres"}:
            server_url = server_url.set(drivername="postgresql+psycopg")
        if server_url.drivername.partition("+")[0] != "postgresql":
            raise input_error(
                self.shown,
                "a log must be in SQLite or PostgreSQL",
                "use a path, or a URL such as postgresql://user@host/name",
                server_url.drivername,
            )
        # A server that is gone says nothing for minutes, unless it is told; and it speaks UTF-8
        # whatever it stores.
        connect_options = {"connect_timeout": CONNECT_S, "client_encoding": "utf8"}
        connect_options = {
            option_name: option
            for option_name, option in connect_options.items()
            if option_name not in server_url.query
        }
        try:
            engine = sql.create_engine(
                server_url, connect_args=connect_options, pool_pre_ping=True, **engine_options
            )
        except (NoSuchModuleError, ImportError) as error:
            raise input_error(
                self.shown,
                "the database's driver must be installed",
                _DRIVER_REMEDY,
                f"{server_url.drivername} ({self._hidden(str(error))})",
            ) from None
        # a lock is waited for as long as one of SQLite, not for ever
        _set_sessions(engine, "lock_timeout", patience_s)
        return engine

    def _connected_to_file(self, engine_options: dict[str, Any]) -> sql.Engine:
        log_file = Path(self.url.database or "")
        patience_s = self.patience_s
        if not self._create and not log_file.is_file():
            raise input_error(self.shown, "a log must be there", "check the path; `ask` makes it")
        unsafe_file = unsafe_neighbour(log_file)
        if unsafe_file is not None:
            raise input_error(
                self.shown,
                "a log must be a file with nothing but SQLite's own beside it",
                "take it away",
                unsafe_file,
            )
        engine = sql.create_engine(self.url, connect_args={"timeout": patience_s}, **engine_options)

        def begun(connection: sql.Connection) -> None:
            if connection.get_execution_options().get("alone"):
                _begin_writing(connection, patience_s)
            else:
                connection.exec_driver_sql("BEGIN")

        sql.event.listen(engine, "connect", prepare_connection)
        sql.event.listen(engine, "begin", begun)
        return engine

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of the driver as one line, without what is secret."""
        start_time = monotonic()
        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            reason = self._hidden(" ".join(str(cause).split()))
            if getattr(cause, "sqlstate", None) == _NO_TURN_STATE or "database is locked" in reason:
                raise self._no_turn(reason, monotonic() - start_time) from None
            checked_places = (
                "place, rights and disk"
                if self.url.get_backend_name() == "sqlite"
                else "URL, server and rights"
            )
            plain_error = input_error(
                self.shown, "a log must be readable and writable", f"check {checked_places}", reason
            )
            if self.read_only or is_unwritable(error):
                raise UnwritableLogError(str(plain_error), monotonic() - start_time) from None
            raise plain_error from None

    def _no_turn(self, reason: str, waited_s: float) -> UnwritableLogError:
        return UnwritableLogError(
            str(
                input_error(
                    self.shown,
                    f"a writer of a log must get its turn within {self.patience_s:g} s",
                    "let the other process finish, or end it",
                    reason,
                )
            ),
            waited_s,
        )

    def _hidden(self, error_text: str) -> str:
        """Text without the secrets of the URL."""
        url_secrets = [str(self.url.password or "")]
        for values in self.url.normalized_query.values():
            url_secrets += values
        return without_secrets(error_text, url_secrets, _MASK)


_URL_LOGIN = re.compile(r"//\S{0,500}@")
_PLAIN_USER = re.compile(r"[\w.+-]*")


def masked_url(log_place: str | Path) -> str:
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
    if "://" not in str(log_place):  # a path, or a URL with a slip before its user
        return _URL_LOGIN.sub("//***@", str(log_place).partition("password=")[0])
    # a URL inside another is written with its password as part of a path
    if str(log_place).count("://") > 1:
        return masked_passwords(str(log_place))
    parsed_url = _url(log_place)
    masked_text = parsed_url.set(query={}).render_as_string(hide_password=True) + (
        f"?{_MASK}" if parsed_url.query else ""
    )
    # A user of other signs may hold the password, where the colon between the two is a slip.
    # A password of other signs may reach into the host.
    is_plain = _PLAIN_USER.fullmatch(parsed_url.username or "") and "@" not in (
        parsed_url.host or ""
    )
    return masked_text if is_plain else _URL_LOGIN.sub("//***@", masked_text)


def check_no_folder(log_place: str | Path, log_name: str) -> None:
    """Refuse a folder as the place of a log.

    Args:
      log_place: a path, or a URL with `://`.
      log_name: name of the log in the folder of an index.

    Raises:
      InputError: the place is a folder.
    """
    if "://" not in str(log_place) and Path(log_place).is_dir():
        raise input_error(
            log_place,
            "a log must be a file or a URL",
            f"an index keeps this log in {Path(log_place) / log_name}",
            "a folder",
        )


def _url(log_place: str | Path) -> URL:
    if "://" not in str(log_place) and "password=" not in str(log_place):  # a DSN is no path
        return URL.create("sqlite", database=str(Path(log_place).absolute()))
    try:
        return make_url(str(log_place))
    except (ArgumentError, ValueError):
        raise input_error(
            (str(log_place).partition("://")[0] if "://" in str(log_place) else "") + "://" + _MASK,
            "a log must be a path or a URL such as postgresql://user@host/name",
            "correct the URL",
        ) from None


def _sql_table(event_table: EventTable, table_metadata: sql.MetaData) -> sql.Table:
    sql_columns = [
        sql.Column(
            column.name,
            _SQL_TYPES[column.kind],
            primary_key=column.name == event_table.key,
            unique=column.unique,
            nullable=column.missing,
        )
        for column in event_table.columns
    ]
    if event_table.key is not None:
        return sql.Table(event_table.name, table_metadata, *sql_columns)
    leading_columns = (
        sql.Column("seq", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("at", sql.String(LONGEST_TIME), nullable=False),
    )
    listed_indexes = [
        sql.Index(f"{event_table.name}_of_{column.name}", column.name, "seq")
        for column in event_table.columns
        if column.listed
    ]
    return sql.Table(
        event_table.name, table_metadata, *leading_columns, *sql_columns, *listed_indexes
    )
