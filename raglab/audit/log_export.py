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

_TYPE_BY_KIND = {
    **dict.fromkeys(("name", "text", "listed", "json"), "str"),
    "whole": "Int64",
    "number": "float64",
}


def export_tables(entries: Entries, folder: Path) -> list[Path]:
    """Files of every table of events and of the rows, each whole or as it was."""
    table_paths = []
    make_folder(folder)
    for event_table in (
        *EVENTS,
        *(request_table for request_table in REQUEST_TABLES if request_table.name == CURRENT),
    ):
        table_path = folder / f"{event_table.name}.parquet"
        with replacing(table_path) as partial_path:
            table_frame(entries, event_table).to_parquet(partial_path, index=False)
        table_paths.append(table_path)
    return table_paths


def table_frame(entries: Entries, table: EventTable) -> pd.DataFrame:
    """Rows of a table: `seq` whole, `at` a time in UTC, JSON as text, what is missing as NA."""
    import pandas as pd

    json_columns = [
        column_name for column_name, column_kind in table.kinds.items() if column_kind == "json"
    ]
    table_rows = []
    for event_row in entries.rows(table.name):
        json_texts = {
            column_name: json.dumps(
                event_row[column_name], ensure_ascii=False, separators=(",", ":")
            )
            for column_name in json_columns
        }
        table_rows.append(event_row | json_texts)
    event_frame = pd.DataFrame(table_rows, columns=list(table.kinds), dtype=object)
    column_types = {
        column_name: _TYPE_BY_KIND[column_kind]
        for column_name, column_kind in table.kinds.items()
        if column_kind != "time"
    }
    event_frame = event_frame.astype(column_types)
    if table.key is None:
        event_times = pd.to_datetime(event_frame["at"].astype("str"), utc=True, format="ISO8601")
        event_frame["at"] = event_times.astype("datetime64[us, UTC]")
    return event_frame
