"""Parquet (shore): what a Parquet file says of itself, checked with its size before decoding.

A kilobyte of repeated values may stand for gigabytes. A file may hold a free number of values, and
more in proportion to its own bytes, so that honest files pass at any size and a small one costs
little.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raglab.store.files import InputError, input_error
from raglab.store.parquet_footer import declared_columns

TEXT_TYPE = "BYTE_ARRAY"  # physical type of strings


class OversizeError(InputError):
    """A Parquet file declares, or holds when decoded, more than its size allows."""


# What a Parquet file may have at most, of each a free number, and more for each byte of the file:
# columns, row groups, columns in all row groups, values in all columns, those that become Python
# objects (strings, and what stands inside lists of records), and bytes when decoded.
PARQUET_LIMITS: Mapping[str, tuple[int, int]] = {
    "columns": (10_000, 0),
    "row_groups": (10_000, 0),
    "column_chunks": (100_000, 0),
    "values": (20_000_000, 100),
    "texts": (2_000_000, 4),
    "decoded_bytes": (2**28, 100),
}


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
    n_columns = metadata.num_columns
    n_row_groups = metadata.num_row_groups
    _at_most(
        path, columns=n_columns, row_groups=n_row_groups, column_chunks=n_columns * n_row_groups
    )
    declarations = declared_columns(path)
    # a null has its room too
    n_padded = (
        sum(getattr(schema_field.type, "list_size", 0) for schema_field in schema)
        * metadata.num_rows
    )
    n_values = sum(declaration.n_values for declaration in declarations)
    # strings, and what is nested deeper than a list of numbers
    n_texts = sum(
        declaration.n_values
        for declaration in declarations
        if declaration.is_text or declaration.depth > 2
    )
    n_values = max(n_values, n_padded, metadata.num_rows)
    _at_most(
        path,
        values=n_values,
        texts=n_texts,
        decoded_bytes=sum(declaration.n_bytes for declaration in declarations),
    )


def check_decoded(n_bytes: int, path: Path) -> None:
    """Stop at a file whose strings, each row with its own, take more bytes than its size allows.

    Raises:
      OversizeError: as said.
    """
    _at_most(path, decoded_bytes=n_bytes)


def _at_most(path: Path, **numbers_by_limit: int) -> None:
    """Stop at a count above its limit, which has its name."""
    for name, number in numbers_by_limit.items():
        free_number, number_a_byte = PARQUET_LIMITS[name]
        allowed_number = free_number + number_a_byte * path.stat().st_size
        if not 0 <= number <= allowed_number:
            limit_noun = name.replace("_", " ")
            raise input_error(
                path,
                f"a Parquet file of this size must have at most {allowed_number} {limit_noun}",
                "write it in smaller parts",
                str(number),
                OversizeError,
            )
