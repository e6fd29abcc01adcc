"""The audit log as Parquet, one file a table, for whoever studies it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab.store._declared import Table
from raglab.store._errors import Where, input_error
from raglab.store.audit import Entries
from raglab.store.requests import CURRENT, EVENTS, TABLES

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {"name": "str", "text": "str", "json": "str", "whole": "Int64", "number": "float64"}


def exported(log: Entries, folder: Path) -> list[Path]:
    """Files of every table of events and of the rows, each whole or as it was."""
    made = []
    for table in (*EVENTS, *(one for one in TABLES if one.name == CURRENT)):
        path = folder / f"{table.name}.parquet"
        partial = folder / f".{secrets.token_hex(8)}.tmp"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            frame(log, table).to_parquet(partial, index=False)
            partial.replace(path)
        except OSError as error:
            came = error.strerror or type(error).__name__
            rule = "the folder must be writable"
            raise input_error(Where(str(folder)), rule, "make it or choose another", came) from error
        finally:
            with suppress(OSError):
                partial.unlink()
        made.append(path)
    return made


def frame(log: Entries, table: Table) -> pd.DataFrame:
    """Rows of a table: `seq` whole, `at` a time in UTC, JSON as text, what is missing as NA."""
    import pandas as pd

    first = {} if table.key is not None else {"seq": "Int64", "at": "time"}
    kinds = first | {one.name: _KINDS[one.kind] for one in table.columns}
    packed = {one.name for one in table.columns if one.kind == "json"}
    rows = [_flat(row, packed) for row in log.rows(table.name)]
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        values = [row[name] for row in rows]
        if kind == "time":
            columns[name] = pd.to_datetime(pd.Series(values, dtype="str"), utc=True, format="ISO8601").astype(
                "datetime64[us, UTC]"
            )
        else:
            columns[name] = pd.Series(values, dtype=kind)
    return pd.DataFrame(columns)


def _flat(row: Mapping[str, Any], packed: set[str]) -> dict[str, Any]:
    return {
        name: json.dumps(value, ensure_ascii=False, separators=(",", ":")) if name in packed else value
        for name, value in row.items()
    }
