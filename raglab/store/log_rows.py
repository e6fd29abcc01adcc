"""Log rows (shore): the form of a log's tables, and their rows in one transaction.

A row is a mapping by column, JSON unpacked. What is written every database can hold as it is; what
is read is checked against the type of its column.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import sqlalchemy as sql

from raglab.store.files import InputError, finite_number
from raglab.words.characters import visible

LONGEST_NAME = 200  # characters of a name
# bytes in UTF-8 of a text that is found by its value: PostgreSQL's index holds 2,704 in all
LONGEST_LISTED = 2_000
LONGEST_TEXT = 16 * 2**20  # bytes in UTF-8 of any other text, and of JSON
LONGEST_TIME = 40
REMEDY = "restore a copy"
_LIMITS = {
    "name": (LONGEST_NAME, "characters"),
    "time": (LONGEST_TIME, "characters"),
    "listed": (LONGEST_LISTED, "bytes in UTF-8"),
    "text": (LONGEST_TEXT, "bytes in UTF-8"),
    "json": (LONGEST_TEXT, "bytes in UTF-8"),
}
_TYPES: Mapping[str, Any] = {"whole": int, "number": int | float}  # others are texts
_MOST_WHOLE = 2**63
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_BATCH = 1000  # rows that are read at a time


class Column(NamedTuple):
    """A column: kind is one of name (a short text), text, json, whole, number.

    unique: no value twice. missing: may be null. listed: found fast by its value, in the order of
    events.
    """

    name: str
    kind: str
    unique: bool = False
    missing: bool = False
    listed: bool = False


@dataclass(frozen=True)
class EventTable:
    """A table of events, which have a number `seq` and a time `at`.

    Or, with a key, of values that are written over.

    key: the column that tells such values apart. without: columns of a row, JSON unpacked, as they
    are when its texts are forgotten; the same of a row whose texts are. None where it has no texts.
    since: first version of a log's schema that has the table; an older log has no rows of it until
    it is written to.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    without: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    since: int = 1

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each column; `listed` for a text that is found by its value, `time` for `at`."""
        return ({"seq": "whole", "at": "time"} if self.key is None else {}) | {
            column.name: "listed" if column.listed and column.kind == "text" else column.kind
            for column in self.columns
        }

    @cached_property
    def missing(self) -> frozenset[str]:
        """Columns that may be null."""
        return frozenset(column.name for column in self.columns if column.missing)


def encode_row(row: Mapping[str, Any], table: EventTable) -> dict[str, Any]:
    """Row as every database can hold it.

    JSON as text with every digit, whole numbers and numbers as what they are.

    Raises:
      ValueError: a value that one of the databases could not hold, or not as it is: a text that is
        no Unicode, that has a NUL or is too long, a whole number beyond 64 bits, a number that is
        not finite.
    """
    return {name: _encode(name, value, table.kinds[name]) for name, value in row.items()}


def _encode(name: str, value: Any, kind: str) -> Any:  # noqa: ANN401 - a value of a column
    if kind == "json":
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if value is None:
        return None
    shown = ""
    if kind == "whole":
        if isinstance(value, int) and -_MOST_WHOLE <= value < _MOST_WHOLE:
            return int(value)  # a boolean is none for PostgreSQL
        rule, remedy = "a whole number of 64 bits", "correct it"
    elif kind == "number":
        if _is_finite(value):
            return float(value)
        rule, remedy = "a finite number", "leave it out where it is not known"
    elif not isinstance(value, str):
        rule, remedy, shown = "a text", "pass a str", type(value).__name__
    elif _UNSTORABLE.search(value):
        rule, remedy = "a text in Unicode without NUL", "take out NUL and half surrogates"
    else:
        limit, unit = _LIMITS[kind]
        length = len(value) if unit == "characters" else len(value.encode())
        if length <= limit:
            return value
        rule, remedy, shown = f"at most {limit} {unit}", "shorten it", f"{length} {unit}"
    msg = f"{name} must be {rule}, got {shown or f'{value!a:.80}'}; {remedy}."
    raise ValueError(msg)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _can_stand(value: object, kind: str) -> bool:
    """Whether a column may hold a value that is looked for.

    What none can, each database refuses in its own words.
    """
    if kind in _TYPES:
        return isinstance(value, int | float) and -_MOST_WHOLE <= value < _MOST_WHOLE
    return isinstance(value, str) and _UNSTORABLE.search(value) is None


_JSON = json.JSONDecoder(parse_float=finite_number, parse_constant=finite_number)


def _decode(value: Any, kind: str) -> Any:  # noqa: ANN401 - a value of a column
    """Value of a column as it was before `_encode`.

    Raises:
      ValueError: JSON that is none, a number that is not finite. TypeError: another type.
    """
    if not isinstance(value, _TYPES.get(kind, str)):
        raise TypeError(kind)
    if kind == "json":
        return _JSON.decode(value)
    return finite_number(value) if kind == "number" else value


def _read_row(table: EventTable, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Row of some columns of a table, JSON unpacked.

    Raises:
      InputError: a value of another type than its column's, a number that is not finite, or JSON
        that is none.
    """
    row = dict(zip(names, values, strict=True))
    for name, value in row.items():
        if value is None and name in table.missing:
            continue
        try:
            row[name] = _decode(value, table.kinds[name])
        except (ValueError, TypeError, RecursionError):
            shown = f"{value!r:.80} as {name} of {table.name}"
            raise _altered(shown) from None
    return row


def _altered(shown: str) -> InputError:
    """Error of rows that no log of ours holds."""
    rule = "rows of a log must be as they were written"
    return InputError(f"{rule}, got {visible(shown)}; its tables were altered, {REMEDY}.")


@contextmanager
def as_written() -> Iterator[None]:
    """Turn what breaks over rows of another form into one line.

    Raises:
      InputError: in place of whatever a damaged row broke.
    """
    try:
        yield
    except InputError:
        raise
    except (
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
        StopIteration,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        shown = f"{type(error).__name__}: {reason:.300}"
        raise _altered(shown) from error


class Entries:
    """The rows within one transaction, as mappings by column, JSON unpacked."""

    def __init__(
        self,
        link: sql.Connection | None,
        tables: Mapping[str, tuple[EventTable, sql.Table]],
        statements: MutableMapping[Any, Any],
        last: int,
        version: int,
    ) -> None:
        """Take what `Database` gives.

        Args:
          link: None for a log that has not begun.
          tables: form and table by name.
          statements: by key, added to: to build one costs more than to run it.
          last: number of the last event, 0 before the first, without a gap.
          version: of the log's schema.
        """
        self._link: Any = link
        self._tables, self._statements = tables, statements
        self.last, self._version = last, version

    def _statement(self, key: object, factory: Callable[[], Any]) -> Any:  # noqa: ANN401
        if key not in self._statements:
            self._statements[key] = factory()
        return self._statements[key]

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Add an event under the next number, and give the number back."""
        self._insert(table, {"seq": self.last + 1, **row})
        self.last += 1
        return self.last

    def keep(self, table: str, row: Mapping[str, Any]) -> None:
        """Write a value over the one of the same key."""
        self.drop(table, row[str(self._tables[table][0].key)])
        self._insert(table, row)

    def _insert(self, table: str, row: Mapping[str, Any]) -> None:
        form, into = self._tables[table]
        insert = self._statement(("add", table), lambda: sql.insert(into))
        self._link.execute(insert, encode_row(row, form))

    def drop(self, table: str, key: object) -> None:
        """Take away the value of a key, where there is one."""
        form, of = self._tables[table]
        named = of.c[str(form.key)] == sql.bindparam("the_key")
        delete = self._statement(("drop", table), lambda: sql.delete(of).where(named))
        self._link.execute(delete, {"the_key": key})

    def blank(self, table: str, row: Mapping[str, Any]) -> bool:
        """Take its texts out of an event; whether it had any."""
        form, of = self._tables[table]
        new = {} if form.without is None else form.without(row)
        if all(row[name] == value for name, value in new.items()):
            return False
        self._link.execute(
            sql.update(of).where(of.c.seq == row["seq"]).values(encode_row(new, form))
        )
        return True

    def row(
        self, table: str, *, columns: Sequence[str] = (), until: int | None = None, **where: object
    ) -> dict[str, Any] | None:
        """The latest row that has these values, None where there is none; see `rows`."""
        values: dict[str, Any] = where
        return next(self.rows(table, columns=columns, until=until, most=1, **values), None)

    def rows(
        self,
        table: str,
        *,
        columns: Sequence[str] = (),
        after: int = 0,
        until: int | None = None,
        most: int | None = None,
        before: str | None = None,
        **where: object,
    ) -> Iterator[dict[str, Any]]:
        """Rows that have these values, in order of their numbers; or the latest, last first.

        Args:
          table: its name.
          columns: only these; all where none is named.
          after: only events after this number.
          until: only events up to and with this number.
          most: so many of the latest, instead of all.
          before: only those whose time `at` is before it.
          **where: values by column.
        """
        form, of = self._tables[table]
        names = tuple(columns) or tuple(of.c.keys())
        if form.since > self._version or not all(
            _can_stand(value, form.kinds[name]) for name, value in where.items()
        ):
            return

        def rows_query() -> Any:  # noqa: ANN401 - a statement
            query = sql.select(*(of.c[name] for name in names))
            query = query.where(*(of.c[name] == sql.bindparam(f"the_{name}") for name in where))
            query = query if before is None else query.where(of.c.at < sql.bindparam("before"))
            if form.key is None:
                query = query.where(of.c.seq > sql.bindparam("after"))
                query = query if until is None else query.where(of.c.seq <= sql.bindparam("until"))
                query = query.order_by(of.c.seq if most is None else of.c.seq.desc())
            return query if most is None else query.limit(sql.bindparam("most"))

        key = ("rows", table, names, *where, until is None, before is None, most is None)
        values = {f"the_{name}": value for name, value in where.items()}
        values |= {"after": after, "until": until, "before": before, "most": most}
        cursor = self._link.execute(self._statement(key, rows_query), values)
        for batch in cursor.partitions(_BATCH):
            for row in batch:
                yield _read_row(form, names, row)
