"""Parquet (shore): what a Parquet file says of itself, checked with its size before decoding.

A kilobyte of repeated values may stand for gigabytes. A file may hold a free number of values, and
more in proportion to its own bytes, so that honest files pass at any size and a small one costs
little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from raglab.store.files import InputError, Where, input_error
from raglab.store.parquet_footer import declared_columns

TEXT = "BYTE_ARRAY"  # physical type of strings


class OversizeError(InputError):
    """A Parquet file declares, or holds when decoded, more than its size allows."""


class ParquetLimits(NamedTuple):
    """What a Parquet file may declare at most.

    columns, row_groups, column_chunks: of the file, the last of columns in all row groups. values,
    texts, decoded_bytes: values in all columns, those that become Python objects (strings, and what
    stands inside lists of records), and bytes when decoded; of each the first figure is free, and
    the second is added for each byte of the file.
    """

    columns: int = 10_000
    row_groups: int = 10_000
    column_chunks: int = 100_000
    values: tuple[int, int] = (20_000_000, 100)
    texts: tuple[int, int] = (2_000_000, 4)
    decoded_bytes: tuple[int, int] = (2**28, 100)


PARQUET_LIMITS = ParquetLimits()


# of pyarrow, which is imported in one place alone
def check_parquet(metadata: Any, schema: Any, path: Path) -> None:  # noqa: ANN401
    """Stop at a file that declares more than its size allows.

    Args:
      metadata: of an opened `pyarrow.parquet.ParquetFile`.
      schema: its Arrow schema.

    Raises:
      OversizeError: a limit is passed; the message names it.
      ValueError: its footer is damaged.
    """
    size, limits = path.stat().st_size, PARQUET_LIMITS
    groups = metadata.num_row_groups
    counts = {
        "columns": (metadata.num_columns, limits.columns),
        "row groups": (groups, limits.row_groups),
        "columns in all row groups": (metadata.num_columns * groups, limits.column_chunks),
    }
    for what, (count, most) in counts.items():
        _at_most(path, what, count, most)
    values = texts = decoded = 0
    for column in declared_columns(path):
        values += column.n_values
        decoded += column.n_bytes
        nested = column.depth > 2  # deeper than a list of numbers
        texts += column.n_values if nested or column.is_text else 0
    # a null has its room too
    padded = sum(getattr(field.type, "list_size", 0) for field in schema) * metadata.num_rows
    _at_most(path, "values", max(values, padded, metadata.num_rows), _room(limits.values, size))
    _at_most(path, "strings and values in records", texts, _room(limits.texts, size))
    _at_most(path, "bytes when decoded", decoded, _room(limits.decoded_bytes, size))


def check_decoded(n_bytes: int, path: Path) -> None:
    """Stop at a file whose strings, each row with its own, take more bytes than its size allows.

    Raises:
      OversizeError: as said.
    """
    _at_most(
        path,
        "bytes when decoded",
        n_bytes,
        _room(PARQUET_LIMITS.decoded_bytes, path.stat().st_size),
    )


def _room(limit: tuple[int, int], size: int) -> int:
    """What a file of a size may have."""
    free, more = limit
    return free + more * size


def _at_most(path: Path, what: str, count: int, most: int) -> None:
    if not 0 <= count <= most:
        rule = f"a Parquet file of this size must have at most {most} {what}"
        remedy = "write it again, in smaller parts if it is honest"
        raise OversizeError(str(input_error(Where(str(path)), rule, remedy, str(count))))
