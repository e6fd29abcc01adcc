"""Export of an audit log (shore): each table of it as a Parquet file (S5.8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab.store.files import make_folder, replacing
from raglab.store.log_rows import Entries, EventTable
from raglab.store.log_tables import CURRENT, EVENTS, REQUEST_TABLES

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {"name": "str", "text": "str", "json": "str", "whole": "Int64", "number": "float64"}


def export_tables(log: Entries, folder: Path) -> list[Path]:
    """Files of every table of events and of the rows, each whole or as it was."""
    paths = []
    make_folder(folder)
    for table in (
        *EVENTS,
        *(request_table for request_table in REQUEST_TABLES if request_table.name == CURRENT),
    ):
        path = folder / f"{table.name}.parquet"
        with replacing(path) as partial:
            table_frame(log, table).to_parquet(partial, index=False)
        paths.append(path)
    return paths


def table_frame(log: Entries, table: EventTable) -> pd.DataFrame:
    """Rows of a table: `seq` whole, `at` a time in UTC, JSON as text, what is missing as NA."""
    import pandas as pd

    first = {} if table.key is not None else {"seq": "Int64", "at": "time"}
    kinds = first | {column.name: _KINDS[column.kind] for column in table.columns}
    packed = {column.name for column in table.columns if column.kind == "json"}
    rows = [_flat_row(row, packed) for row in log.rows(table.name)]
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        values = [row[name] for row in rows]
        if kind == "time":
            columns[name] = pd.to_datetime(
                pd.Series(values, dtype="str"), utc=True, format="ISO8601"
            ).astype("datetime64[us, UTC]")
        else:
            columns[name] = pd.Series(values, dtype=kind)
    return pd.DataFrame(columns)


def _flat_row(row: Mapping[str, Any], packed: set[str]) -> dict[str, Any]:
    return {
        name: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if name in packed
        else value
        for name, value in row.items()
    }
