"""Export of an audit log (shore): each table of it as a Parquet file (S5.8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from raglab.store.files import make_folder, replacing
from raglab.store.log_rows import Entries, EventTable
from raglab.store.log_tables import CURRENT, EVENTS, REQUEST_TABLES

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {
    **dict.fromkeys(("name", "text", "listed", "json"), "str"),
    "whole": "Int64",
    "number": "float64",
}


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

    packed = [name for name, kind in table.kinds.items() if kind == "json"]
    rows = []
    for row in log.rows(table.name):
        texts = {
            name: json.dumps(row[name], ensure_ascii=False, separators=(",", ":"))
            for name in packed
        }
        rows.append(row | texts)
    frame = pd.DataFrame(rows, columns=list(table.kinds), dtype=object)
    types = {name: _KINDS[kind] for name, kind in table.kinds.items() if kind != "time"}
    frame = frame.astype(types)
    if table.key is None:
        at = pd.to_datetime(frame["at"].astype("str"), utc=True, format="ISO8601")
        frame["at"] = at.astype("datetime64[us, UTC]")
    return frame
