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
COPY_REMEDY = "restore a copy"
_LENGTH_LIMITS = {
    "name": (LONGEST_NAME, "characters"),
    "time": (LONGEST_TIME, "characters"),
    "listed": (LONGEST_LISTED, "bytes in UTF-8"),
    "text": (LONGEST_TEXT, "bytes in UTF-8"),
    "json": (LONGEST_TEXT, "bytes in UTF-8"),
}
_NUMBER_TYPES: Mapping[str, Any] = {"whole": int, "number": int | float}  # others are texts
_INTEGER_LIMIT = 2**63
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_BATCH_ROWS = 1000  # rows that are read at a time


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


def encode_row(table_row: Mapping[str, Any], event_table: EventTable) -> dict[str, Any]:
    """Row as every database can hold it.

    JSON as text with every digit, whole numbers and numbers as what they are.

    Raises:
      ValueError: a value that one of the databases could not hold, or not as it is: a text that is
        no Unicode, that has a NUL or is too long, a whole number beyond 64 bits, a number that is
        not finite.
    """
    return {
        name: _encode(name, value, event_table.kinds[name]) for name, value in table_row.items()
    }


def _encode(column_name: str, cell_value: Any, column_kind: str) -> Any:  # noqa: ANN401 - a value of a column
    if column_kind == "json":
        cell_value = json.dumps(
            cell_value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
    if cell_value is None:
        return None
    shown_value = ""
    if column_kind == "whole":
        if isinstance(cell_value, int) and -_INTEGER_LIMIT <= cell_value < _INTEGER_LIMIT:
            return int(cell_value)  # a boolean is none for PostgreSQL
        broken_rule = "a whole number of 64 bits"
        remedy = "correct it"
    elif column_kind == "number":
        if isinstance(cell_value, int | float) and abs(cell_value) <= sys.float_info.max:
            return float(cell_value)
        broken_rule = "a finite number"
        remedy = "leave it out where it is not known"
    elif not isinstance(cell_value, str):
        broken_rule, remedy, shown_value = "a text", "pass a str", type(cell_value).__name__
    elif _UNSTORABLE.search(cell_value):
        broken_rule = "a text in Unicode without NUL"
        remedy = "take out NUL and half surrogates"
    else:
        max_length, length_unit = _LENGTH_LIMITS[column_kind]
        length = len(cell_value) if length_unit == "characters" else len(cell_value.encode())
        if length <= max_length:
            return cell_value
        broken_rule, remedy, shown_value = (
            f"at most {max_length} {length_unit}",
            "shorten it",
            f"{length} {length_unit}",
        )
    message = (
        f"{column_name} must be {broken_rule}, got {shown_value or f'{cell_value!a:.80}'}; "
        f"{remedy}."
    )
    raise ValueError(message)


def _can_stand(cell_value: object, column_kind: str) -> bool:
    """Whether a column may hold a value that is looked for.

    What none can, each database refuses in its own words.
    """
    if column_kind in _NUMBER_TYPES:
        return (
            isinstance(cell_value, int | float) and -_INTEGER_LIMIT <= cell_value < _INTEGER_LIMIT
        )
    return isinstance(cell_value, str) and _UNSTORABLE.search(cell_value) is None


_JSON_DECODER = json.JSONDecoder(parse_float=finite_number, parse_constant=finite_number)


def _decode(stored_value: Any, column_kind: str) -> Any:  # noqa: ANN401 - a value of a column
    """Value of a column as it was before `_encode`.

    Raises:
      ValueError: broken JSON, a number that is not finite. TypeError: another type.
    """
    if not isinstance(stored_value, _NUMBER_TYPES.get(column_kind, str)):
        raise TypeError(column_kind)
    if column_kind == "json":
        return _JSON_DECODER.decode(stored_value)
    return finite_number(stored_value) if column_kind == "number" else stored_value


def _read_row(
    event_table: EventTable, column_names: Sequence[str], stored_values: Sequence[Any]
) -> dict[str, Any]:
    """Row of some columns of a table, JSON unpacked.

    Raises:
      InputError: a value of another type than its column's, a number that is not finite, or JSON
        that is none.
    """
    row = dict(zip(column_names, stored_values, strict=True))
    for column_name, stored_value in row.items():
        if stored_value is None and column_name in event_table.missing:
            continue
        try:
            row[column_name] = _decode(stored_value, event_table.kinds[column_name])
        except (ValueError, TypeError, RecursionError):
            shown_fault = f"{stored_value!r:.80} as {column_name} of {event_table.name}"
            raise _altered(shown_fault) from None
    return row


def _altered(shown_fault: str) -> InputError:
    """Error of rows that no log of ours holds."""
    form_rule = "rows of a log must be as they were written"
    return InputError(
        f"{form_rule}, got {visible(shown_fault)}; its tables were altered, {COPY_REMEDY}."
    )


@contextmanager
def as_written() -> Iterator[None]:
    """Turn what breaks over rows of another form into one line.

    Raises:
      InputError: in place of any error of a damaged row.
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
        shown_fault = f"{type(error).__name__}: {reason:.300}"
        raise _altered(shown_fault) from error


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

    def _statement(self, statement_key: object, build_statement: Callable[[], Any]) -> Any:  # noqa: ANN401
        if statement_key not in self._statements:
            self._statements[statement_key] = build_statement()
        return self._statements[statement_key]

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Add an event under the next number, and give the number back."""
        self._insert(table, {"seq": self.last + 1, **row})
        self.last += 1
        return self.last

    def keep(self, table: str, row: Mapping[str, Any]) -> None:
        """Write a value over the one of the same key."""
        self.drop(table, row[str(self._tables[table][0].key)])
        self._insert(table, row)

    def _insert(self, table_name: str, table_row: Mapping[str, Any]) -> None:
        event_table, sql_table = self._tables[table_name]
        insert_statement = self._statement(("add", table_name), lambda: sql.insert(sql_table))
        self._link.execute(insert_statement, encode_row(table_row, event_table))

    def drop(self, table: str, key: object) -> None:
        """Take away the value of a key, if it has one."""
        event_table, sql_table = self._tables[table]
        has_key = sql_table.c[str(event_table.key)] == sql.bindparam("the_key")
        delete_statement = self._statement(
            ("drop", table), lambda: sql.delete(sql_table).where(has_key)
        )
        self._link.execute(delete_statement, {"the_key": key})

    def blank(self, table: str, row: Mapping[str, Any]) -> bool:
        """Take its texts out of an event; whether it had any."""
        event_table, sql_table = self._tables[table]
        blanked_values = {} if event_table.without is None else event_table.without(row)
        if all(row[name] == blanked_value for name, blanked_value in blanked_values.items()):
            return False
        self._link.execute(
            sql.update(sql_table)
            .where(sql_table.c.seq == row["seq"])
            .values(encode_row(blanked_values, event_table))
        )
        return True

    def row(
        self,
        table: str,
        *,
        columns: Sequence[str] = (),
        until: int | None = None,
        **wanted_values: object,
    ) -> dict[str, Any] | None:
        """The latest row that has these values, or None; see `rows`."""
        column_values: dict[str, Any] = wanted_values
        return next(self.rows(table, columns=columns, until=until, most=1, **column_values), None)

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
        event_table, sql_table = self._tables[table]
        column_names = tuple(columns) or tuple(sql_table.c.keys())
        if event_table.since > self._version or not all(
            _can_stand(column_value, event_table.kinds[column_name])
            for column_name, column_value in where.items()
        ):
            return

        def rows_query() -> Any:  # noqa: ANN401 - a statement
            row_query = sql.select(*(sql_table.c[column_name] for column_name in column_names))
            row_query = row_query.where(
                *(
                    sql_table.c[column_name] == sql.bindparam(f"the_{column_name}")
                    for column_name in where
                )
            )
            row_query = (
                row_query
                if before is None
                else row_query.where(sql_table.c.at < sql.bindparam("before"))
            )
            if event_table.key is None:
                row_query = row_query.where(sql_table.c.seq > sql.bindparam("after"))
                row_query = (
                    row_query
                    if until is None
                    else row_query.where(sql_table.c.seq <= sql.bindparam("until"))
                )
                row_query = row_query.order_by(
                    sql_table.c.seq if most is None else sql_table.c.seq.desc()
                )
            return row_query if most is None else row_query.limit(sql.bindparam("most"))

        statement_key = (
            "rows",
            table,
            column_names,
            *where,
            until is None,
            before is None,
            most is None,
        )
        bound_values = {
            f"the_{column_name}": column_value for column_name, column_value in where.items()
        }
        bound_values |= {"after": after, "until": until, "before": before, "most": most}
        row_cursor = self._link.execute(self._statement(statement_key, rows_query), bound_values)
        for row_batch in row_cursor.partitions(_BATCH_ROWS):
            for stored_row in row_batch:
                yield _read_row(event_table, column_names, stored_row)
