"""Database (shore): tables through SQLAlchemy, SQLite's files and locks.

`Database` opens whatever tables it is given, declared as `EventTable`; those of the bandit and those of the
questions are in `log_tables`. A row is added and never changed, but for texts that `blank` takes out when they are to
be forgotten; what `keep` writes over and `drop` takes away is what the log can rebuild.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import SQLITE_FULL, SQLITE_IOERR, SQLITE_PERM, SQLITE_READONLY, OperationalError
from time import monotonic, sleep
from typing import Any, NamedTuple

import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from raglab.store.files import InputError, Where, input_error

BUSY_S = 60.0  # a writer waits so long for its turn


# What SQLite says of a place that takes nothing: read-only, a full disk, a failed write, no rights.
_UNWRITABLE = {SQLITE_PERM, SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL}


class UnwritableLogError(InputError):
    """A log that stands where nothing can be written: in a read-only folder, on a full disk, without rights."""


def prepare_connection(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
    """Begin nothing by itself, keep a write-ahead log, and overwrite with zeros what is blanked."""
    link.isolation_level = None
    _in_wal(link)
    link.execute("PRAGMA secure_delete=ON")


def erase_blanked(link: Any, *, anew: bool) -> bool:  # noqa: ANN401 - of the driver
    """Take out of file and write-ahead log what was blanked; whether no other reader kept it there."""
    if anew:
        link.execute("VACUUM")
    return not link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _in_wal(link: Any) -> None:  # noqa: ANN401 - of the driver
    """WAL mode; a fresh file that several switch to it at once answers `locked` without waiting, so ask again."""
    until = monotonic() + BUSY_S
    while True:
        try:
            link.execute("PRAGMA journal_mode=WAL")
        except OperationalError as error:
            if "locked" not in str(error) or monotonic() > until:
                raise
            sleep(0.01)
        else:
            return


class Column(NamedTuple):
    """A column: kind is one of name (a short text), text, json, whole, number.

    unique: no value twice. missing: may be null. listed: found fast by its value, in the order of events.
    """

    name: str
    kind: str
    unique: bool = False
    missing: bool = False
    listed: bool = False


class EventTable(NamedTuple):
    """A table of events, which have a number `seq` and a time `at`; or, with a key, of values that are written over.

    key: the column that tells such values apart.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None


def encode_row(row: Mapping[str, Any], of_json: Collection[str]) -> dict[str, Any]:
    """Row with values of JSON columns as text, every digit kept.

    Raises:
      ValueError: a text that is no Unicode.
    """
    made = {key: _json_text(value) if key in of_json else value for key, value in row.items()}
    for key, value in made.items():
        try:
            value.encode() if isinstance(value, str) else None
        except UnicodeEncodeError:
            msg = f"{key} must be a text in Unicode, got {value!a:.80}; take out the half of a pair of surrogates."
            raise ValueError(msg) from None
    return made


def decode_row(row: Mapping[Any, Any], of_json: Collection[str]) -> dict[str, Any]:
    """Row with values of JSON columns as they were.

    Raises:
      ValueError: one is no JSON.
    """
    try:
        return {key: json.loads(value) if key in of_json else value for key, value in row.items()}
    except (ValueError, TypeError) as error:
        msg = f"JSON columns of a log must hold JSON, got {error}; its tables were altered, take a copy of before."
        raise ValueError(msg) from None


def _json_text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


SCHEMA = 1
_HIDDEN = "***"
_MAKING = 5_771_031  # PostgreSQL's advisory lock while tables are made; any number that nobody else takes
_NUMBERS = "audit_numbers"
_KINDS: dict[str, Any] = {
    "name": sql.String(200),
    "text": sql.Text,
    "json": sql.Text,
    "whole": sql.BigInteger,
    "number": sql.Double,
}


class Database:
    """A database opened on its first use, with the tables that it is given.

    Every write is one transaction that no other writer runs beside: SQLite in WAL mode with BEGIN IMMEDIATE, PostgreSQL
    with a locked row. Reads see one moment and wait for nobody. Not to be carried over a fork.
    """

    def __init__(self, place: str | Path, tables: Sequence[EventTable], *, create: bool = True) -> None:
        """Name the place: a path is a file of SQLite, a text with `://` a URL of SQLAlchemy.

        Args:
          create: whether file and tables are made where they are not there.

        Raises:
          InputError: a URL that is none.
        """
        self.url, self.shown, self._create = _url(place), masked_url(place), create
        meta = sql.MetaData()
        number = (sql.Column("name", sql.String(32), primary_key=True), sql.Column("value", sql.BigInteger))
        self._numbers = sql.Table(_NUMBERS, meta, *number)
        self._tables = {table.name: _sql_table(table, meta) for table in tables}
        self._kinds = {table.name: {one.name for one in table.columns if one.kind == "json"} for table in tables}
        self._last = sql.select(self._numbers.c.value).where(self._numbers.c.name == "event")
        self._count = sql.update(self._numbers).where(self._numbers.c.name == "event")
        self._statements: dict[Hashable, Any] = {}
        self._engine: sql.Engine | None = None

    @contextmanager
    def writing(self) -> Iterator[Entries]:
        """Entries to read and add to, in a transaction of its own turn; whole or not at all."""
        with self._told(), self._link("READ COMMITTED", alone=True) as link:
            before = link.scalar(self._asked("turn", self._last.with_for_update))
            entries = Entries(
                link=link, tables=self._tables, kinds=self._kinds, asked=self._asked, last=int(before or 0)
            )
            yield entries
            if entries.last != before:
                link.execute(self._count, {"value": entries.last})

    @contextmanager
    def reading(self) -> Iterator[Entries]:
        """Entries as they are at this moment, whatever is written meanwhile."""
        with self._told(), self._link("REPEATABLE READ", alone=False) as link:
            yield Entries(
                link=link,
                tables=self._tables,
                kinds=self._kinds,
                asked=self._asked,
                last=int(link.scalar(self._last) or 0),
            )

    def _asked(self, key: Hashable, made: Callable[[], Any]) -> Any:  # noqa: ANN401 - a statement
        """Statement of a key, made once: to build one costs more than to run it."""
        if key not in self._statements:
            self._statements[key] = made()
        return self._statements[key]

    def erase(self, *, anew: bool) -> None:
        """Take what was blanked out of SQLite's files, written `anew` or not; PostgreSQL vacuums by itself.

        Raises:
          InputError: another process reads the log for longer than `BUSY_S`; what was blanked stands in a file yet.
        """
        engine = self._engine or self._opened()
        if engine.dialect.name != "sqlite":
            return
        with self._told(), engine.connect() as link:
            if not erase_blanked(link.connection.dbapi_connection, anew=anew):
                rule = "a log must have no other reader while texts are erased"
                raise self._refused(rule, "end the other processes and forget again")

    @property
    def read_only(self) -> bool:
        """Whether it is a file that this process may not write, or of a folder that it may not write in."""
        if self.url.get_backend_name() != "sqlite":
            return False
        file = Path(self.url.database or "")
        return file.parent.is_dir() and not all(os.access(one, os.W_OK) for one in (file.parent, file) if one.exists())

    def close(self) -> None:
        """Let go of files and connections; the next use opens them again."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @contextmanager
    def _link(self, isolation: str, *, alone: bool) -> Iterator[sql.Connection]:
        engine = self._engine or self._opened()
        with engine.connect() as link:
            level: dict[str, Any] = {} if link.dialect.name == "sqlite" else {"isolation_level": isolation}
            with link.execution_options(alone=alone, **level), link.begin():
                yield link

    def _opened(self) -> sql.Engine:
        engine = self._connected()
        with engine.connect() as link, link.begin():
            known = set(sql.inspect(link).get_table_names())
        if not (_NUMBERS in known or self._create):
            rule = "a log must hold events"
            raise self._refused(rule, "check the place; `ask` makes it")
        if not known >= {_NUMBERS, *self._tables}:
            self._make(engine)
        with engine.connect() as link, link.begin():
            version = link.scalar(sql.select(self._numbers.c.value).where(self._numbers.c.name == "schema"))
        if version != SCHEMA:
            engine.dispose()
            remedy = "open it with the raglab that made it, or choose another"
            rule = f"a log must be of version {SCHEMA}"
            raise self._refused(rule, remedy, f"version {version}")
        self._engine = engine
        return engine

    def _make(self, engine: sql.Engine) -> None:
        """Make the tables that are not there, whoever else does so too."""
        with engine.connect().execution_options(alone=True) as link, link.begin():
            if link.dialect.name == "postgresql":
                link.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
            made = sql.inspect(link).has_table(_NUMBERS)
            self._numbers.metadata.create_all(link)
            if not made:
                rows = [{"name": "schema", "value": SCHEMA}, {"name": "event", "value": 0}]
                link.execute(sql.insert(self._numbers), rows)

    def _connected(self) -> sql.Engine:
        if self.url.get_backend_name() != "sqlite":
            try:
                return sql.create_engine(self.url, hide_parameters=True)
            except (NoSuchModuleError, ImportError) as error:
                came = f"{self.url.drivername} ({self._hidden(str(error))})"
                rule = "the database's driver must be installed"
                raise self._refused(rule, "pip install it", came) from None
        if not self._create and not Path(self.url.database or "").is_file():
            rule = "a log must be there"
            raise self._refused(rule, "check the path; `ask` makes it")
        engine = sql.create_engine(self.url, connect_args={"timeout": BUSY_S}, hide_parameters=True)

        def begun(link: sql.Connection) -> None:
            link.exec_driver_sql("BEGIN IMMEDIATE" if link.get_execution_options().get("alone") else "BEGIN")

        sql.event.listen(engine, "connect", prepare_connection)
        sql.event.listen(engine, "begin", begun)
        return engine

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the driver as one line, without what is secret."""
        try:
            yield
        except DBAPIError as error:
            came = self._hidden(" ".join(str(error.orig).split()))
            rule = "a log must be readable and writable"
            refused = self._refused(rule, "check place, rights and disk", came)
            code = getattr(error.orig, "sqlite_errorcode", None)
            if self.read_only or (code is not None and code & 0xFF in _UNWRITABLE):
                raise UnwritableLogError(str(refused)) from None
            raise refused from None

    def _refused(self, rule: str, remedy: str, came: str | None = None) -> InputError:
        return input_error(Where(self.shown), rule, remedy, came)

    def _hidden(self, text: str) -> str:
        for secret in filter(None, (self.url.password, *(str(value) for value in self.url.query.values()))):
            text = text.replace(str(secret), _HIDDEN)
        return text


class Entries:
    """The rows within one transaction, as mappings by column, JSON unpacked."""

    def __init__(
        self,
        link: sql.Connection,
        tables: Mapping[str, sql.Table],
        kinds: Mapping[str, set[str]],
        asked: Callable[[Hashable, Callable[[], Any]], Any],
        last: int,
    ) -> None:
        """Take what `Database` gives; `last` is the number of the last event, 0 before the first, without a gap."""
        self._link, self._tables, self._kinds, self._asked, self.last = link, tables, kinds, asked, last

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Add an event under the next number, and give it back."""
        insert = self._asked(("add", table), lambda: sql.insert(self._tables[table]))
        self._link.execute(insert, {"seq": self.last + 1, **encode_row(row, self._kinds[table])})
        self.last += 1
        return self.last

    def keep(self, table: str, row: Mapping[str, Any]) -> None:
        """Write a value over the one of the same key."""
        into, values = self._tables[table], encode_row(row, self._kinds[table])
        key = next(iter(into.primary_key.columns))
        over = self._asked(("keep", table), lambda: sql.update(into).where(key == sql.bindparam("the_key")))
        if not self._link.execute(over, {"the_key": row[key.name], **values}).rowcount:
            self._link.execute(self._asked(("add", table), lambda: sql.insert(into)), values)

    def drop(self, table: str, key: object) -> None:
        """Take away the value of a key, where there is one."""
        of = self._tables[table]
        self._link.execute(sql.delete(of).where(next(iter(of.primary_key.columns)) == key))

    def blank(self, table: str, row: Mapping[str, Any], **values: object) -> None:
        """Write over columns of an event: only to take texts out of it."""
        of = self._tables[table]
        self._link.execute(sql.update(of).where(of.c.seq == row["seq"]).values(encode_row(values, self._kinds[table])))

    def one(self, table: str, **where: object) -> dict[str, Any] | None:
        """The latest row that has these values, None where there is none."""
        return next(self._rows(table, where, 0, 1, None), None)

    def rows(
        self, table: str, *, after: int = 0, most: int | None = None, before: str | None = None, **where: object
    ) -> Iterator[dict[str, Any]]:
        """Rows that have these values, in order of their numbers from one after `after` on; or the latest, last first.

        Args:
          most: so many of the latest, instead of all. before: only those whose time `at` is before it.
        """
        return self._rows(table, where, after, most, before)

    def _rows(
        self, table: str, where: Mapping[str, object], after: int, most: int | None, before: str | None
    ) -> Iterator[dict[str, Any]]:
        of = self._tables[table]

        def made() -> Any:  # noqa: ANN401 - a statement
            query = sql.select(of).where(*(of.c[name] == sql.bindparam(f"the_{name}") for name in where))
            query = query if before is None else query.where(of.c.at < sql.bindparam("before"))
            if "seq" in of.c:
                query = query.where(of.c.seq > sql.bindparam("after"))
                query = query.order_by(of.c.seq if most is None else of.c.seq.desc())
            return query if most is None else query.limit(sql.bindparam("most"))

        query = self._asked(("rows", table, *where, before is None, most is None), made)
        values = {f"the_{name}": value for name, value in where.items()}
        for row in self._link.execute(query, {**values, "after": after, "before": before, "most": most}).mappings():
            yield decode_row(row, self._kinds[table])

    def latest(self, table: str, column: str, most: int, after: int = 0, **where: object) -> list[Any]:
        """Values of a column, none of JSON, in the latest rows past a number that have these values, last first."""
        of = self._tables[table]
        query = sql.select(of.c[column]).where(of.c.seq > after, *(of.c[name] == at for name, at in where.items()))
        return list(self._link.scalars(query.order_by(of.c.seq.desc()).limit(most)))


def masked_url(place: str | Path) -> str:
    """Place of a log without its secrets: no password, nothing that follows the question mark.

    Example:
      >>> masked_url("postgresql://ann:hunter2@db/rag?sslpassword=x")
      'postgresql://ann:***@db/rag?***'
    """
    if "://" not in str(place):
        return str(place)
    whole = _url(place)
    return whole.set(query={}).render_as_string(hide_password=True) + (f"?{_HIDDEN}" if whole.query else "")


def _url(place: str | Path) -> URL:
    if "://" not in str(place):
        return URL.create("sqlite", database=str(Path(place).absolute()))
    try:
        return make_url(str(place))
    except (ArgumentError, ValueError):
        where = Where(str(place).partition("://")[0] + "://" + _HIDDEN)
        rule = "a log must be a path or a URL such as postgresql://user@host/name"
        raise input_error(where, rule, "correct the URL") from None


def _sql_table(table: EventTable, meta: sql.MetaData) -> sql.Table:
    columns = [
        sql.Column(
            one.name, _KINDS[one.kind], primary_key=one.name == table.key, unique=one.unique, nullable=one.missing
        )
        for one in table.columns
    ]
    if table.key is not None:
        return sql.Table(table.name, meta, *columns)
    first = (
        sql.Column("seq", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("at", sql.String(40), nullable=False),
    )
    listed = [sql.Index(f"{table.name}_of_{one.name}", one.name, "seq") for one in table.columns if one.listed]
    return sql.Table(table.name, meta, *first, *columns, *listed)
