"""Logs with one value changed, as by one who knows the format."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from fuzz.resigned import json_changes
from raglab.store.log_tables import CHOICE_TABLES, REQUEST_TABLES

FORMS = {table.name: table for table in (*CHOICE_TABLES, *REQUEST_TABLES)}
# What SQLite takes in any column, whatever its type says.
CELLS: dict[str, Any] = {
    "nothing": None,
    "zero": 0,
    "negative": -1,
    "huge": 2**63 - 1,
    "fraction": 0.5,
    "infinite": float("inf"),
    "infinite below": float("-inf"),
    "beyond every time": 1e300,
    "empty": "",
    "text": "another",
    "number as text": "1",
    "bytes": b"x",
    "long": "x" * 300,
    "NUL": "a\0b",
    "escape": "\x1b[2J\u202e",
    "list": "[]",
    "object": "{}",
    "null": "null",
    "NaN": "NaN",
    "nested": '{"a": [[1]]}',
    "overflow": "[1e999]",
}


class CellChange(NamedTuple):
    """A change of one value of a log.

    table, column, rowid: its place. value: that it becomes. malformed: whether no honest log holds
    it.
    """

    table: str
    column: str
    rowid: int
    name: str
    value: Any
    malformed: bool

    def __str__(self):
        return f"{self.table}.{self.column} of {self.rowid}: {self.name}"


def cell_changes(path):
    """Changes of first and last rows of each table of a log, its own and the numbers."""
    with closing(sqlite3.connect(path)) as link:
        tables = [
            row[0]
            for row in link.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        for table in tables:
            rowids = [row[0] for row in link.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
            names = [
                row[1] for row in link.execute(f"PRAGMA table_info('{table}')") if row[1] != "seq"
            ]
            for rowid in sorted({*rowids[:1], *rowids[-1:]}):
                for column in names:
                    held = link.execute(
                        f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (rowid,)
                    ).fetchone()[0]
                    yield from _changes(table, column, rowid, held)


@cache
def changes_of(path):
    """Changes of a log, a table as likely as another whatever its size."""
    by_column: dict[tuple[str, str], list[CellChange]] = {}
    for change in cell_changes(path):
        by_column.setdefault((change.table, change.column), []).append(change)
    longest = max(map(len, by_column.values()))
    return [
        change
        for some in by_column.values()
        for change in (some * (longest // len(some)))[:longest]
    ]


def _changes(table, column, rowid, held):
    """Changes of one value; of one of JSON also each place inside it."""
    form = FORMS.get(table)
    for name, value in CELLS.items():
        if value != held:
            yield CellChange(
                table,
                column,
                rowid,
                name,
                value,
                form is not None and _is_malformed(form, column, value),
            )
    if form is not None and form.kinds.get(column) == "json" and isinstance(held, str):
        for change in json_changes(json.loads(held)):
            text = json.dumps(change.content)
            malformed = "NaN" in text or "Infinity" in text
            yield CellChange(table, column, rowid, change.what, text, malformed)


def _is_malformed(form, column, value):
    """Whether a column of an honest log never holds a value.

    What SQLite makes of it there is of another type.
    """
    kind = form.kinds[column]
    # in a column of texts it is "Inf"
    if isinstance(value, float) and math.isinf(value) and kind in {"whole", "number"}:
        return True
    if isinstance(value, bytes):
        return True
    return (value is None and column not in form.missing) or (
        kind == "json" and value in {"NaN", "[1e999]"}
    )


def change_cell(path, change):
    """Change a value in a log; whether the table took it."""
    with closing(sqlite3.connect(path)) as link:
        statement = f'UPDATE "{change.table}" SET "{change.column}" = ? WHERE rowid = ?'
        try:
            link.execute(statement, (change.value, change.rowid))
        except sqlite3.Error:
            return False
        link.commit()
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return True
