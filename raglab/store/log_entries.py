"""Entries (shore): the rows of a log in one transaction, as mappings by column, JSON unpacked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from raglab.store.log_chain import (
    Finding,
    Link,
    events_findings,
    make_link,
)
from raglab.store.log_rows import (
    RowForm,
    altered_value,
    can_stand,
    encode_row,
    is_storable,
    read_row,
    stored_without,
)

_BATCH = 1000  # rows that are read or linked at a time


class Entries:
    """The rows within one transaction, as mappings by column, JSON unpacked."""

    def __init__(
        self,
        link: sql.Connection,
        tables: Mapping[str, sql.Table],
        chain: sql.Table,
        numbers: sql.Table,
        forms: Mapping[str, RowForm],
        statement: Callable[[Hashable, Callable[[], Any]], Any],
        last: int,
        digest: str,
        salt: Callable[[], str],
        *,
        version: int,
        since: Mapping[str, int],
    ) -> None:
        """Take what `Database` gives.

        Args:
          last: number of the last event, 0 before the first, without a gap.
          digest: of its link; '' where it is only read.
          version: of the log's schema.
          since: by table, the first that has it.
        """
        self._link, self._tables, self._chain, self._forms = link, tables, chain, forms
        self._numbers = numbers
        self._statement, self._salt = statement, salt
        self.last, self.digest, self.chained = last, digest, version > 1
        self._unmade = frozenset(name for name, first in since.items() if first > version)

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Add an event under the next number, with its link, and give the number back."""
        form = self._forms[table]
        stored = encode_row(row, form.kinds)
        insert = self._statement(("add", table), lambda: sql.insert(self._tables[table]))
        self._link.execute(insert, {"seq": self.last + 1, **stored})
        link = make_link(
            self.digest, self.last + 1, table, stored, stored_without(form, stored), self._salt()
        )
        self._link.execute(
            self._statement(("link",), lambda: sql.insert(self._chain)), link._asdict()
        )
        self.last, self.digest = link.seq, link.digest
        return self.last

    def keep(self, table: str, row: Mapping[str, Any]) -> None:
        """Write a value over the one of the same key."""
        into, values = self._tables[table], encode_row(row, self._forms[table].kinds)
        key = next(iter(into.primary_key.columns))
        over = self._statement(
            ("keep", table), lambda: sql.update(into).where(key == sql.bindparam("the_key"))
        )
        if not self._link.execute(over, {"the_key": row[key.name], **values}).rowcount:
            self._link.execute(self._statement(("add", table), lambda: sql.insert(into)), values)

    def drop(self, table: str, key: object) -> None:
        """Take away the value of a key, where there is one."""
        of = self._tables[table]
        self._link.execute(sql.delete(of).where(next(iter(of.primary_key.columns)) == key))

    def blank(self, table: str, row: Mapping[str, Any]) -> bool:
        """Take its texts out of an event, and the salt out of its link; whether it had any."""
        form, of = self._forms[table], self._tables[table]
        new = {} if form.without is None else form.without(row)
        if all(row[name] == value for name, value in new.items()):
            return False
        values = encode_row(new, form.kinds)
        self._link.execute(sql.update(of).where(of.c.seq == row["seq"]).values(values))
        self._link.execute(
            sql.update(self._chain).where(self._chain.c.seq == row["seq"]).values(salt=None)
        )
        return True

    def event_findings(self, events: Mapping[str, Collection[int]]) -> Iterator[Finding]:
        """Faults of some events, each held against its link, and that against the one before.

        Args:
          events: their numbers by table.
        """
        chain = self._chain
        near = {seq - gap for seqs in events.values() for seq in seqs for gap in (0, 1)}

        def linked() -> Any:  # noqa: ANN401 - a statement
            columns = (chain.c[name] for name in Link._fields)
            return sql.select(*columns).where(
                chain.c.seq.in_(sql.bindparam("seqs", expanding=True))
            )

        cursor = self._link.execute(self._statement(("links",), linked), {"seqs": sorted(near)})
        links = {row[0]: Link(*row) for row in cursor}
        for of, seqs in events.items():
            if not seqs:
                continue
            table, wanted = self._tables[of], sorted(set(seqs))

            def stored(table: sql.Table = table) -> Any:  # noqa: ANN401 - a statement
                return sql.select(table).where(
                    table.c.seq.in_(sql.bindparam("seqs", expanding=True))
                )

            names = table.c.keys()
            cursor = self._link.execute(self._statement(("stored", of), stored), {"seqs": wanted})
            rows = {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
            yield from events_findings(of, wanted, links, rows)

    def blanked(self, of: str, since: str) -> list[int]:
        """Numbers of a table's events from a moment on whose texts are forgotten."""
        table, chain = self._tables[of], self._chain
        if of in self._unmade:
            return []
        query = sql.select(table.c.seq).join(chain, chain.c.seq == table.c.seq)
        forgotten = (chain.c.seal.is_not(None), chain.c.salt.is_(None), table.c.at >= since)
        return list(self._link.scalars(query.where(*forgotten).order_by(table.c.seq)))

    def missing(self, of: str, after: int) -> Iterator[Finding]:
        """Events of a table past a number that have a link and no row."""
        table, chain = self._tables[of], self._chain
        if of in self._unmade:
            return
        there = sql.select(table.c.seq).where(table.c.seq == chain.c.seq).exists()
        query = sql.select(chain.c.seq).where(
            chain.c.of == of, chain.c.seq > after, sql.not_(there)
        )
        yield from (
            Finding(of, seq, "the row is missing")
            for seq in self._link.scalars(query.order_by(chain.c.seq))
        )

    def complete(self) -> bool:
        """Whether the tables hold as many events as the log has numbered.

        Where they do not, some are missing.

        A count is read off an index; to look for each number takes as long as the log has events.
        """
        table_names = self._link.scalars(
            self._statement(("names",), lambda: sql.select(self._numbers.c.name))
        )
        named = tuple(
            sorted(name for name in table_names if name in self._forms and self._forms[name].event)
        )

        def counted() -> Any:  # noqa: ANN401 - a statement
            each = (
                sql.select(sql.func.count()).select_from(self._tables[name]).scalar_subquery()
                for name in named
            )
            return sql.select(sum(each, sql.literal(0)))

        return bool(self._link.scalar(self._statement(("count", named), counted)) == self.last)

    def row(
        self, table: str, *, columns: Sequence[str] = (), until: int | None = None, **where: object
    ) -> dict[str, Any] | None:
        """The latest row that has these values, None where there is none.

        Only some columns where they are named.

        Args:
          until: only events up to and with this number.
        """
        return next(self._rows(table, where, 0, until, 1, None, columns), None)

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
        """Rows that have these values, in order of their numbers from one after `after` on.

        Or the latest, last first.

        Args:
          columns: only these; all where none is named.
          until: only events up to and with this number.
          most: so many of the latest, instead of all.
          before: only those whose time `at` is before it.
        """
        return self._rows(table, where, after, until, most, before, columns)

    def _rows(
        self,
        table: str,
        where: Mapping[str, object],
        after: int,
        until: int | None,
        most: int | None,
        before: str | None,
        columns: Sequence[str],
    ) -> Iterator[dict[str, Any]]:
        of, form = self._tables[table], self._forms[table]
        names = tuple(columns) or tuple(of.c.keys())
        if table in self._unmade or not all(
            can_stand(value, form.kinds[name]) for name, value in where.items()
        ):
            return

        def rows_query() -> Any:  # noqa: ANN401 - a statement
            query = sql.select(*(of.c[name] for name in names))
            query = query.where(*(of.c[name] == sql.bindparam(f"the_{name}") for name in where))
            query = query if before is None else query.where(of.c.at < sql.bindparam("before"))
            if "seq" in of.c:
                query = query.where(of.c.seq > sql.bindparam("after"))
                query = query if until is None else query.where(of.c.seq <= sql.bindparam("until"))
                query = query.order_by(of.c.seq if most is None else of.c.seq.desc())
            return query if most is None else query.limit(sql.bindparam("most"))

        query = self._statement(
            ("rows", table, names, *where, until is None, before is None, most is None), rows_query
        )
        values = {f"the_{name}": value for name, value in where.items()}
        values |= {"after": after, "until": until, "before": before, "most": most}
        cursor = self._link.execute(query, values)
        for batch in cursor.partitions(_BATCH):
            for row in batch:
                yield read_row(table, names, row, form)

    def stored(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Values of some columns as stored, JSON as text, in order of the key or the number."""
        of = self._tables[table]
        if table in self._unmade:
            return iter(())
        query = sql.select(*(of.c[name] for name in columns)).order_by(*of.primary_key.columns)
        return (
            tuple(row) for row in self._link.execute(query, execution_options={"yield_per": _BATCH})
        )

    def latest(
        self, table: str, column: str, most: int, after: int = 0, **where: object
    ) -> list[Any]:
        """Values of a non-JSON column in the latest rows past a number that match, last first.

        Rows match that have these values.

        Raises:
          InputError: one that no log of ours holds.
        """
        of, kinds = self._tables[table], self._forms[table].kinds
        if table in self._unmade or not all(
            can_stand(value, kinds[name]) for name, value in where.items()
        ):
            return []

        def values_query() -> Any:  # noqa: ANN401 - a statement
            query = sql.select(of.c[column]).where(of.c.seq > sql.bindparam("after"))
            query = query.where(*(of.c[name] == sql.bindparam(f"the_{name}") for name in where))
            return query.order_by(of.c.seq.desc()).limit(sql.bindparam("most"))

        values = {f"the_{name}": value for name, value in where.items()}
        query = self._statement(("latest", table, column, *where), values_query)
        latest = list(self._link.scalars(query, {**values, "after": after, "most": most}))
        kind = self._forms[table].types[column]
        for value in latest:
            if not (isinstance(value, kind) and is_storable(value)):
                raise altered_value(table, column, value)
        return latest
