"""Database (shore): tables through SQLAlchemy, in a file of SQLite or on a server of PostgreSQL.

`Database` opens whatever tables it is given, declared as `EventTable`; those of the bandit and
those of the questions are in `log_tables`. A row is added and never changed, but for texts that
`blank` takes out when they are to be forgotten; what `keep` writes over and `drop` takes away is
what the log can rebuild. Each event has its link in a hash chain, see `log_chain`, which `verify`
holds the rows against. Reading makes no file, no table and no column.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import merge
from pathlib import Path
from sqlite3 import (
    SQLITE_BUSY,
    SQLITE_CANTOPEN,
    SQLITE_FULL,
    SQLITE_IOERR,
    SQLITE_LOCKED,
    SQLITE_PERM,
    SQLITE_READONLY,
)
from threading import Lock
from time import monotonic, sleep
from typing import Any, ClassVar, NamedTuple

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

from raglab.store.blobs import BUSY_S, unsafe_neighbour
from raglab.store.files import InputError, Where, input_error
from raglab.store.log_chain import (
    CHAIN,
    MADE,
    MISSING,
    NUMBERS,
    REMEDY,
    UNNUMBERED,
    UNREADABLE,
    ChainWalk,
    Finding,
    Head,
    Link,
    Row,
    Verification,
    gap_link,
    make_link,
    tables_findings,
)
from raglab.store.log_entries import Entries
from raglab.store.log_rows import (
    LONGEST_NAME,
    LONGEST_TIME,
    EventTable,
    row_form,
    stored_without,
)
from raglab.words.characters import masked_passwords, without_secrets

CONNECT_S = 10  # a server is waited for
LONGEST_PATIENCE_S = 3600.0
_LOOK_MS = 10  # between two looks for a turn

# What SQLite says of a place that takes nothing: read-only, a full disk, a failed write, no rights,
# no folder, a lock.
_UNWRITABLE = {
    SQLITE_PERM,
    SQLITE_READONLY,
    SQLITE_IOERR,
    SQLITE_FULL,
    SQLITE_CANTOPEN,
    SQLITE_BUSY,
    SQLITE_LOCKED,
}
# And what PostgreSQL does, beside all that is an operational error: a standby or read-only role, no
# right to write.
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
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _UNWRITABLE
    server = getattr(error.orig, "sqlstate", "") in _CLOSED or isinstance(
        error, OperationalError | InterfaceError
    )
    return server and not type(error.orig).__module__.startswith("sqlite3")


def prepare_connection(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
    """Begin nothing by itself, and overwrite with zeros what is blanked."""
    link.isolation_level = None
    link.execute("PRAGMA secure_delete=ON")


def erase_blanked(link: Any, *, vacuum: bool) -> bool:  # noqa: ANN401 - of the driver
    """Take out of file and write-ahead log what was blanked.

    Whether no other reader kept it there.
    """
    if vacuum:
        link.execute("VACUUM")
    return not link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _begin_writing(link: sql.Connection, patience_s: float) -> None:
    """Begin alone, over a write-ahead log, within the patience."""
    until = monotonic() + patience_s
    # A fresh file that several switch to the write-ahead log at once answers `locked` at once. And
    # SQLite looks for its turn ten times a second after a while, which others take meanwhile: who
    # looks as often as all gets its share.
    link.exec_driver_sql(f"PRAGMA busy_timeout={_LOOK_MS}")
    try:
        for statement in ("PRAGMA journal_mode=WAL", "BEGIN IMMEDIATE"):
            while not _is_done(link, statement, until):
                sleep(1e-3 * _LOOK_MS)
    finally:
        link.exec_driver_sql(f"PRAGMA busy_timeout={round(1e3 * patience_s)}")


def _is_done(link: sql.Connection, statement: str, until: float) -> bool:
    """Whether a statement ran and was not locked out, which is an error after time `until`."""
    try:
        link.exec_driver_sql(statement)
    except OperationalError as error:
        if "locked" not in str(error.orig) or monotonic() > until:
            raise
        return False
    return True


SCHEMA = 3  # of the tables; `Database._steps` brings an older log to it on the first write
_HIDDEN = "***"
# PostgreSQL's advisory lock while tables are made; any number that nobody else takes
_MAKING = 5_771_031
_BATCH = 1000  # rows that are read or linked at a time
_INSTALL = 'pip install "raglab-toolkit[postgres]"'
_KINDS: dict[str, Any] = {
    "name": sql.String(LONGEST_NAME),
    "text": sql.Text,
    "json": sql.Text,
    "whole": sql.BigInteger,
    "number": sql.Double,
}
new_salt = partial(secrets.token_hex, 16)


def _page_findings(link: sql.Connection) -> Iterator[Finding]:
    """First damaged page of a SQLite file, also of a table without rows, which nobody read yet."""
    if link.dialect.name == "sqlite":
        result = str(link.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        if result != "ok":
            yield Finding("file", None, f"is damaged: {result}")


class Rebuild(NamedTuple):
    """How a table that is written over is held against the events that it comes from.

    table: its name. sources: tables of these events. findings: what differs.
    """

    table: str
    sources: tuple[str, ...]
    findings: Callable[[Entries], Iterator[Finding]]


_NO_TURN = "55P03"  # PostgreSQL's lock_not_available
# each statement sees what was committed before it: whoever waited for a turn, all before
_LATEST = "READ COMMITTED"
_ONE_MOMENT = "REPEATABLE READ"
_SERVER = {"connect_timeout": CONNECT_S, "client_encoding": "utf8"}


# of the driver
def prepare_session(patience_s: float, link: Any, _: object = None) -> None:  # noqa: ANN401
    """Wait for a lock as long as for one of SQLite, not for ever."""
    cursor = link.cursor()
    cursor.execute(f"SET lock_timeout = {round(1e3 * patience_s)}")
    cursor.close()
    link.commit()


def limit_idle_transactions(engine: sql.Engine, seconds: float) -> None:
    """Let a server of PostgreSQL end transactions of an engine in which nothing is done.

    Nothing on other databases.

    Args:
      engine: of whoever made it; its connections are opened anew.
      seconds: a transaction may stand idle.
    """
    if engine.dialect.name != "postgresql":
        return

    def limited(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
        cursor = link.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = {round(1e3 * seconds)}")
        cursor.close()
        link.commit()

    sql.event.listen(engine, "connect", limited)
    engine.dispose()


@contextmanager
def _transaction(engine: sql.Engine, isolation: str, *, alone: bool) -> Iterator[sql.Connection]:
    with engine.connect() as link:
        level: dict[str, Any] = (
            {} if link.dialect.name == "sqlite" else {"isolation_level": isolation}
        )
        with link.execution_options(alone=alone, **level), link.begin():
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
        salt: Callable[[], str] = new_salt,
        patience_s: float | None = None,
    ) -> None:
        """Name the place: a path is a file of SQLite, a text with `://` a URL of SQLAlchemy.

        Args:
          beside: tables that another log may have in the same database, whose events have their
            place in the chain.
          create: whether file and tables are made where they are not there, on the first write.
          salt: gives the salt of each event that has texts.
          patience_s: seconds to wait for a turn or a lock; None is `BUSY_S`, that of a batch of
            writers.

        Raises:
          InputError: a URL that is none. ValueError: a patience below 0 or past
            `LONGEST_PATIENCE_S`.
        """
        if patience_s is not None and not 0.0 <= patience_s <= LONGEST_PATIENCE_S:
            rule = f"patience_s must be in [0, {LONGEST_PATIENCE_S:g}] seconds"
            msg = f"{rule}, got {patience_s:g}; leave it out for {BUSY_S:g}."
            raise ValueError(msg)
        self._patience_s, self._turns = patience_s, Lock()
        self.place, self.url, self.shown = place, _url(place), masked_url(place)
        self._create, self._salt = create, salt
        meta = sql.MetaData()
        self._numbers = sql.Table(
            NUMBERS,
            meta,
            sql.Column("name", sql.String(32), primary_key=True),
            sql.Column("value", sql.BigInteger),
            sql.Column("digest", sql.String(64)),  # of the last event's link
        )
        self._chain = _chain_table(meta)
        self._own = tuple(table.name for table in tables)
        self._groups = (self._own, tuple(table.name for table in beside))  # each made together
        self._since = {table.name: table.since for table in (*tables, *beside)}
        self._tables = {table.name: _sql_table(table, meta) for table in (*tables, *beside)}
        self._forms = {table.name: row_form(table) for table in (*tables, *beside)}
        self._last = sql.select(self._numbers.c.value).where(self._numbers.c.name == "event")
        self._turn = sql.select(self._numbers.c.value, self._numbers.c.digest).where(
            self._numbers.c.name == "event"
        )
        self._count = sql.update(self._numbers).where(self._numbers.c.name == "event")
        self._statements: dict[Hashable, Any] = {}
        self._engine: sql.Engine | None = None
        self._empty: sql.Engine | None = None
        self._version = 0  # of the tables as they were when the log was opened

    @contextmanager
    def writing(self) -> Iterator[Entries]:
        """Entries to read and add to, in a transaction of its own turn; whole or not at all."""
        with self._turn_of_thread(), self._plain_errors(), self._link(_LATEST, alone=True) as link:
            before = link.execute(self._statement("turn", self._turn.with_for_update)).one_or_none()
            if before is None:
                raise self._altered(NUMBERS)
            entries = self._entries(link, self._counted(before.value), str(before.digest or ""))
            yield entries
            if entries.last != before.value:
                link.execute(self._count, {"value": entries.last, "digest": entries.digest})

    @contextmanager
    def _turn_of_thread(self) -> Iterator[None]:
        """Threads of this process take turns before they ask the database for one.

        It has one writer at a time.

        Raises:
          UnwritableLogError: none came within the patience.
        """
        if not self._turns.acquire(timeout=self.patience_s):
            reason = "no turn, since other threads of this process write"
            raise self._no_turn(reason, self.patience_s)
        try:
            yield
        finally:
            self._turns.release()

    @contextmanager
    def reading(self) -> Iterator[Entries]:
        """Entries as they are at this moment, whatever is written meanwhile."""
        with self._plain_errors(), self._link(_ONE_MOMENT, alone=False) as link:
            yield self._entries(link, self._counted(link.scalar(self._last)), "")

    def _counted(self, last: object) -> int:
        """Number of the last event by the counter, 0 where there is none yet.

        Raises:
          InputError: it is no number.
        """
        if last is None or isinstance(last, int):
            return last or 0
        rule, value = "a log's counter must be a whole number", f"{last!r:.80}"
        raise self._refused(rule, REMEDY, value)

    def _entries(self, link: sql.Connection, last: int, digest: str) -> Entries:
        return Entries(
            link=link,
            tables=self._tables,
            chain=self._chain,
            numbers=self._numbers,
            forms=self._forms,
            statement=self._statement,
            last=last,
            digest=digest,
            salt=self._salt,
            version=self._version or SCHEMA,
            since=self._since,
        )

    # a statement
    def _statement(self, key: Hashable, factory: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Statement of a key, made once: to build one costs more than to run it."""
        if key not in self._statements:
            self._statements[key] = factory()
        return self._statements[key]

    @property
    def patience_s(self) -> float:
        """Seconds that a turn or a lock is waited for."""
        return BUSY_S if self._patience_s is None else self._patience_s

    def erase(self, *, vacuum: bool) -> None:
        """Erase what was blanked from SQLite's files, rewritten by VACUUM if `vacuum`.

        PostgreSQL vacuums by itself.

        Raises:
          InputError: another process reads the log for longer than `patience_s`; what was blanked
            stands in a file yet.
        """
        with self._plain_errors():
            engine = self._opened(alone=True)
            if engine.dialect.name != "sqlite":
                return
            with engine.connect() as link:
                if not erase_blanked(link.connection.dbapi_connection, vacuum=vacuum):
                    rule = "a log must have no other reader while texts are erased"
                    raise self._refused(rule, "end the other processes and forget again")

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
        for engine in filter(None, (self._engine, self._empty)):
            engine.dispose()
        self._engine, self._empty, self._version = None, None, 0

    @contextmanager
    def _link(self, isolation: str, *, alone: bool) -> Iterator[sql.Connection]:
        engine = self._opened(alone=alone)
        with _transaction(engine, isolation, alone=alone) as link:
            yield link

    def _opened(self, *, alone: bool) -> sql.Engine:
        """Engine of the log, its tables made or brought up to date if it is written `alone`.

        A log that has not begun is read as an empty one.
        """
        if self._engine is not None and (self._version == SCHEMA or not alone):
            return self._engine
        if not alone and self._unmade():
            return self._stand_in()
        engine = self._engine or self._connected()
        try:
            # of before a step of the schema, or after it
            with _transaction(engine, _ONE_MOMENT, alone=False) as link:
                version = self._state(link)
            if alone and version != SCHEMA:
                self._make(engine)
                version = SCHEMA
        except BaseException:
            engine.dispose()
            raise
        if not version:
            engine.dispose()
            return self._stand_in()
        self._engine, self._version = engine, version
        return engine

    def _unmade(self) -> bool:
        """Whether the log is to be a file that is not there."""
        file = self.url.get_backend_name() == "sqlite" and self.url.database
        return self._create and bool(file) and not Path(str(file)).is_file()

    def _state(self, link: sql.Connection) -> int:
        """Version of the log, 0 where it has not begun.

        Raises:
          InputError: another version, a table that was there and is not, or nothing that may be
            begun.
        """
        known, own = set(sql.inspect(link).get_table_names()), set(self._own)
        if NUMBERS not in known:
            if known & {CHAIN, *own}:
                raise self._altered(NUMBERS)
            return self._none()
        numbers = self._stated(link)
        version = self._known_version(numbers)
        expected = {name for name in own if self._since[name] <= version}
        # A log's tables are made together: where one is there all are expected, else those that
        # have a number.
        tables = expected if known & expected else expected & numbers.keys()
        if version > 1 and CHAIN not in known:
            raise self._altered(CHAIN)
        if version > 1 and not tables:
            of = self._chain.c.of
            tables = expected & set(link.scalars(sql.select(of).where(of.in_(expected)).distinct()))
        if gone := sorted(tables - known):
            raise self._altered(*gone)
        return version if tables else self._none()

    def _stated(self, link: sql.Connection) -> dict[str, int | None]:
        query = sql.select(self._numbers.c.name, self._numbers.c.value)
        return {row.name: row.value for row in link.execute(query)}

    def _known_version(self, numbers: Mapping[str, int | None]) -> int:
        version = numbers.get("schema")
        if version not in {SCHEMA, *self._steps}:
            rule, value = f"a log must be of version {SCHEMA}", f"version {version}"
            raise self._refused(
                rule, "open it with the raglab that made it, or choose another", value
            )
        return int(version or 0)

    def _none(self) -> int:
        """0, where a log may begin."""
        if self._create:
            return 0
        rule = "a log must hold events"
        raise self._refused(rule, "check the place; `ask` makes it")

    def _stand_in(self) -> sql.Engine:
        """Empty tables in memory, in place of those of a log that has not begun."""
        if self._empty is None:
            # One connection for all threads: they only read, and find nothing.
            shared = {"check_same_thread": False}
            engine = sql.create_engine("sqlite://", poolclass=sql.StaticPool, connect_args=shared)
            self._numbers.metadata.create_all(engine)
            self._empty = engine
        return self._empty

    def _make(self, engine: sql.Engine) -> None:
        """Make missing tables and bring older ones up to date, whoever else does so too."""
        with _transaction(engine, _LATEST, alone=True) as link:
            if link.dialect.name == "postgresql":
                link.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
            version = self._state(link)  # again: another may have been faster
            if version == SCHEMA:
                return
            if not sql.inspect(link).has_table(NUMBERS):
                self._numbers.metadata.create_all(link, tables=[self._numbers, self._chain])
                rows = [{"name": "schema", "value": SCHEMA}, {"name": "event", "value": 0}]
                link.execute(sql.insert(self._numbers), rows)
            before = link.scalar(
                sql.select(self._numbers.c.value).where(self._numbers.c.name == "schema")
            )
            for number in range(int(before or SCHEMA), SCHEMA):
                self._steps[number](self, link)
                link.execute(
                    sql.update(self._numbers).where(self._numbers.c.name == "schema"),
                    {"value": number + 1},
                )
            if not version:
                self._numbers.metadata.create_all(
                    link, tables=[self._tables[name] for name in self._own]
                )
                link.execute(
                    sql.insert(self._numbers), [{"name": name, "value": MADE} for name in self._own]
                )

    def _begin_chain(self, link: sql.Connection) -> None:
        """From version 1 to 2.

        Every event that is there gets its link, in order, and tables are known by name.
        """
        # a writer of version 1 ends its turn first
        link.execute(sql.select(self._numbers.c.value).with_for_update())
        link.execute(sql.text(f"ALTER TABLE {NUMBERS} ADD COLUMN digest VARCHAR(64)"))
        self._chain.create(link)
        known = set(sql.inspect(link).get_table_names())
        last, digest, batch = 0, "", list[Link]()
        for seq, of, row in self._stored_rows(link, known):
            while last + 1 < seq:
                batch.append(gap_link(digest, last := last + 1))
                digest = batch[-1].digest
            batch.append(make_link(digest, seq, of, row, self._blank_form(of, row), self._salt()))
            last, digest = seq, batch[-1].digest
            if len(batch) >= _BATCH:
                link.execute(
                    sql.insert(self._chain), [chain_link._asdict() for chain_link in batch]
                )
                batch.clear()
        for number in range(last + 1, int(link.scalar(self._last) or 0) + 1):
            batch.append(gap_link(digest, number))
            last, digest = number, batch[-1].digest
        if batch:
            link.execute(sql.insert(self._chain), [chain_link._asdict() for chain_link in batch])
        link.execute(self._count, {"value": last, "digest": digest or None})
        table_rows = [{"name": name, "value": MADE} for name in self._forms if name in known]
        if table_rows:
            link.execute(sql.insert(self._numbers), table_rows)

    def _add_tables(self, link: sql.Connection) -> None:
        """From version 2 to 3: each log that has begun gets the tables that the new version has."""
        known = set(sql.inspect(link).get_table_names())
        for group in self._groups:
            new = [name for name in group if self._since[name] == 3 and name not in known]
            if new and known & set(group):
                self._numbers.metadata.create_all(link, tables=[self._tables[name] for name in new])
                link.execute(
                    sql.insert(self._numbers), [{"name": name, "value": MADE} for name in new]
                )

    # by version before
    _steps: ClassVar[Mapping[int, Callable[[Database, sql.Connection], None]]] = {
        1: _begin_chain,
        2: _add_tables,
    }

    def _stored_rows(
        self, link: sql.Connection, known: Collection[str]
    ) -> Iterator[tuple[int, str, Row]]:
        """Number, table and stored row of every event in the tables that there are, in order."""

        def stream(of: str) -> Iterator[tuple[int, str, Row]]:
            table = self._tables[of]
            names = table.c.keys()
            query = sql.select(table).order_by(table.c.seq)
            for row in link.execute(query, execution_options={"yield_per": _BATCH}):
                number = row[0] if isinstance(row[0], int) else UNNUMBERED
                yield number, of, dict(zip(names, row, strict=True))

        tables = [of for of, form in self._forms.items() if form.event and of in known]
        return merge(*map(stream, tables), key=lambda event: event[0])

    def _blank_form(self, of: str, row: Row) -> Row | None:
        return stored_without(self._forms[of], row)

    def head(self) -> Head | None:
        """Number and digest of the last event, to be kept elsewhere.

        None before the first, or without a chain.
        """
        chain = self._chain
        last = sql.select(chain.c.seq, chain.c.digest).order_by(chain.c.seq.desc()).limit(1)
        row = self._link_of_chain(last)
        return None if row is None else Head(*row)

    def contains(self, head: Head) -> bool:
        """Whether the log's chain goes through a head that was kept elsewhere.

        Without one, nothing tells that the last events were taken away with their links, or that
        the log was written anew as a whole.
        """
        chain = self._chain
        row = self._link_of_chain(sql.select(chain.c.digest).where(chain.c.seq == head.seq))
        return row is not None and bool(row.digest == head.digest)

    def _link_of_chain(self, query: Any) -> Any:  # noqa: ANN401 - a statement, a row
        """Row of the chain, None where there is none or no chain."""
        if self._unmade():
            return None
        with self._as_it_is() as link:
            return link.execute(query).one_or_none() if sql.inspect(link).has_table(CHAIN) else None

    def verify(self, rebuilds: Sequence[Rebuild] = (), heads: Sequence[Head] = ()) -> Verification:
        """Hold every row against the chain, and tables that are written over against the events.

        Args:
          heads: kept elsewhere before, which the chain must still contain.

        Raises:
          InputError: no log there, or one that the database cannot read.
        """
        verification = Verification(self.shown, 0, None, SCHEMA, ())
        if not self._unmade():
            with self._as_it_is() as link:
                verification = self._verified(link, rebuilds)
        gone = (head for head in heads if not self.contains(head))
        lost = (Finding(CHAIN, head.seq, "the chain does not contain the head") for head in gone)
        return verification._replace(findings=(*verification.findings, *lost))

    @contextmanager
    def _as_it_is(self) -> Iterator[sql.Connection]:
        """Connection to read whatever is there: nothing is made, and no table has to be."""
        engine = self._engine or self._connected()
        try:
            with self._plain_errors(), _transaction(engine, _ONE_MOMENT, alone=False) as link:
                yield link
        finally:
            if engine is not self._engine:
                engine.dispose()

    def _verified(self, link: sql.Connection, rebuilds: Sequence[Rebuild]) -> Verification:
        known = set(sql.inspect(link).get_table_names())
        if not known & {NUMBERS, CHAIN, *self._forms}:
            self._none()
            return Verification(self.shown, 0, None, SCHEMA, ())
        if NUMBERS not in known:
            return Verification(self.shown, 0, None, 0, (Finding(NUMBERS, None, MISSING),))
        numbers = self._stated(link)
        version = self._known_version(numbers)
        if version == 1:
            rows = sum(1 for _ in self._stored_rows(link, known))
            finding = Finding(
                CHAIN,
                None,
                "not chained yet: version 1; the next write chains the rows that are there",
            )
            return Verification(self.shown, rows, None, 1, (finding,))
        walk = ChainWalk(self._blank_form, known & self._forms.keys())
        if CHAIN in known:
            findings = list(walk.findings(self._links(link), self._stored_rows(link, known)))
            findings += self._counter_findings(link, walk.head)
        else:
            findings = []
        findings += tables_findings(known, self._forms, walk.named, numbers)
        findings += _page_findings(link)
        for rebuild in rebuilds:
            if Finding(rebuild.table, None, MISSING) not in findings:
                findings += self._rebuild_findings(link, rebuild, known)
        return Verification(self.shown, walk.rows, walk.head, version, tuple(findings))

    def _links(self, link: sql.Connection) -> Iterator[Link]:
        chain = self._chain
        query = sql.select(*(chain.c[name] for name in Link._fields)).order_by(chain.c.seq)
        return (Link(*row) for row in link.execute(query, execution_options={"yield_per": _BATCH}))

    def _counter_findings(self, link: sql.Connection, head: Head | None) -> Iterator[Finding]:
        counter = link.execute(self._turn).one_or_none()
        stated = None if counter is None else (counter.value, counter.digest)
        ended = (0, None) if head is None else tuple(head)
        if stated != ended:
            text = (
                "is missing"
                if stated is None
                else f"says event {stated[0]} with digest {stated[1]}"
            )
            yield Finding(
                NUMBERS,
                None,
                f"the counter {text}, the chain ends at event {ended[0]} with {ended[1]}",
            )

    def _rebuild_findings(
        self, link: sql.Connection, rebuild: Rebuild, known: Collection[str]
    ) -> list[Finding]:
        """What differs between a table and what events make; nothing where these are not there."""
        if not all(source in known for source in rebuild.sources):
            return []
        if rebuild.table not in known:
            return [Finding(rebuild.table, None, MISSING)]
        try:
            return list(
                rebuild.findings(self._entries(link, self._counted(link.scalar(self._last)), ""))
            )
        except UNREADABLE as error:
            text = f"events do not rebuild it: {type(error).__name__}: {error}"
            return [Finding(rebuild.table, None, text)]

    def _connected(self) -> sql.Engine:
        return (
            self._connected_to_file()
            if self.url.get_backend_name() == "sqlite"
            else self._connected_to_server()
        )

    def _connected_to_server(self) -> sql.Engine:
        url = self.url
        if url.drivername in {"postgresql", "postgres"}:
            url = url.set(drivername="postgresql+psycopg")
        if url.drivername.partition("+")[0] != "postgresql":
            rule = "a log must be a file of SQLite or a database of PostgreSQL"
            raise self._refused(
                rule, "use a path, or a URL such as postgresql://user@host/name", url.drivername
            )
        # A server that is gone says nothing for minutes, unless it is told; and it speaks UTF-8
        # whatever it stores.
        stated = {name: value for name, value in _SERVER.items() if name not in url.query}
        try:
            engine = sql.create_engine(
                url,
                connect_args=stated,
                hide_parameters=True,
                pool_pre_ping=True,
                pool_timeout=self.patience_s,
            )
        except (NoSuchModuleError, ImportError) as error:
            reason = f"{url.drivername} ({self._hidden(str(error))})"
            rule = "the database's driver must be installed"
            raise self._refused(rule, _INSTALL, reason) from None
        sql.event.listen(engine, "connect", partial(prepare_session, self.patience_s))
        return engine

    def _connected_to_file(self) -> sql.Engine:
        if not self._create and not Path(self.url.database or "").is_file():
            rule = "a log must be there"
            raise self._refused(rule, "check the path; `ask` makes it")
        value = unsafe_neighbour(Path(self.url.database or ""))
        if value is not None:
            rule = "a log must be a file with nothing but SQLite's own beside it"
            raise self._refused(rule, "it was not made by raglab: take it away", value)
        patience_s = self.patience_s
        engine = sql.create_engine(
            self.url,
            connect_args={"timeout": patience_s},
            hide_parameters=True,
            pool_timeout=patience_s,
        )

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
            rule = "a log must be readable and writable"
            place = (
                "place, rights and disk"
                if self.url.get_backend_name() == "sqlite"
                else "URL, server and rights"
            )
            refused = self._refused(rule, f"check {place}", reason)
            if self.read_only or is_unwritable(error):
                raise UnwritableLogError(str(refused), monotonic() - start) from None
            raise refused from None

    def _no_turn(self, reason: str, seconds: float) -> UnwritableLogError:
        rule = f"a writer of a log must get its turn within {self.patience_s:g} s"
        remedy = "another process holds the log's lock: end it or let it finish, then go on"
        return UnwritableLogError(str(self._refused(rule, remedy, reason)), seconds)

    def _altered(self, *gone: str) -> InputError:
        rule = "a log must have every table that was made with it"
        return self._refused(
            rule,
            "restore a copy; `raglab audit --verify` names what is missing",
            f"no {', '.join(gone)}",
        )

    def _refused(self, rule: str, remedy: str, value: str | None = None) -> InputError:
        return input_error(Where(self.shown), rule, remedy, value)

    def _hidden(self, text: str) -> str:
        """Text without the secrets of the URL."""
        values = (
            secret
            for value in self.url.query.values()
            for secret in ([value] if isinstance(value, str) else value)
        )
        return without_secrets(text, (str(self.url.password or ""), *values), _HIDDEN)


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
        return _LOGIN.sub("//***@", str(place))
    # a URL inside another is written with its password as part of a path
    if str(place).count("://") > 1:
        return masked_passwords(str(place))
    whole = _url(place)
    text = whole.set(query={}).render_as_string(hide_password=True) + (
        f"?{_HIDDEN}" if whole.query else ""
    )
    # A user of other signs may hold the password, where the colon between the two is a slip.
    is_plain = whole.username is None or _USER.fullmatch(whole.username) is not None
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
        rule = "a log must be a file or a URL"
        raise input_error(
            Where(str(place)), rule, f"an index keeps this log in {Path(place) / file}", "a folder"
        )


def _url(place: str | Path) -> URL:
    if "://" not in str(place):
        return URL.create("sqlite", database=str(Path(place).absolute()))
    try:
        return make_url(str(place))
    except (ArgumentError, ValueError):
        where = Where(str(place).partition("://")[0] + "://" + _HIDDEN)
        rule = "a log must be a path or a URL such as postgresql://user@host/name"
        raise input_error(where, rule, "correct the URL") from None


def _chain_table(meta: sql.MetaData) -> sql.Table:
    sizes = {"of": 200, "content": 64, "seal": 64, "salt": 64, "digest": 64}
    texts = (
        sql.Column(name, sql.String(n), nullable=name in {"seal", "salt"})
        for name, n in sizes.items()
    )
    return sql.Table(
        CHAIN,
        meta,
        sql.Column("seq", sql.BigInteger, primary_key=True, autoincrement=False),
        *texts,
    )


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
